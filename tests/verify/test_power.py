"""What the check notices, what it says when it is blind, and judging saved results again."""

import re
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest

from dplcli import pipeline
from dplcli.errors import UsageError
from dplcli.report.json import parts_of
from dplcli.verify import Check, Execution, Override, equivalence
from dplcli.verify.compare import Depth, output_depths
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.evidence import load_evidence
from dplcli.verify.model import Dataflow
from dplcli.verify.power import Idleness, changeable_nodes, changes
from tests.support.calling import exit_code
from tests.verify.conftest import save_away

Save = Callable[..., Path]

NET = """g (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {0.5, -1.25, 2, 0.75, -0.3, 1}, float[2] b = {0.1, 0.2}>
{ t = MatMul (x, w) s = Add (t, b) y = Tanh (s) }"""
BLIND = """g (float[N, 3] x) => (float[N, 3] y)
<float[3] z = {0, 0, 0}, float[3] w = {1, 2, 3}>
{ t = Mul (x, w) y = Mul (t, z) }"""
QUANTISED = """g (float[64, 16] x) => (uint8[64, 16] y)
<float s = {0.02}, uint8 z = {128}, float[16] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}>
{ t = Mul (x, w) y = QuantizeLinear (t, s, z) }"""
TWICE = """g (float[64, 16] x) => (float[64, 16] y)
<float s = {0.02}, uint8 z = {128}, float[16] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}, float h = {%s}>
{ t = Mul (x, w) u = Mul (t, h) q = QuantizeLinear (u, s, z) y = DequantizeLinear (q, s, z) }"""
# A mask as exporters quantise it: a step larger, and it is infinite.
MASKED = """g (float[1, 4] x) => (float[1, 4] y)
<int8[4] q = {-128, -128, -128, -128}, float s = {2.6584559e36}, float t = {0.01}, int8 z = {0},
 float h = {%s}> {
  m = DequantizeLinear (q, s) a = Add (x, m) p = Softmax (a) u = Mul (p, h)
  r = QuantizeLinear (u, t, z) y = DequantizeLinear (r, t, z) }"""


Dpl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dpl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Dpl:
    """Return a function that runs a command: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, arguments)
        streams = capfd.readouterr()
        return code, streams.out, streams.err

    return call


def test_mutants_of_a_small_net_are_caught(save: Save) -> None:
    """Each wrong version of a net without dead ends is refused, and the result says so."""
    path = save(NET)

    power = verify_equivalence(path, path, Check(levels=("disable",), mutants=4)).power

    assert power is not None
    assert power.of == 4
    assert power.caught == 4
    assert power.regions == "whole model"
    assert parts_of(power) == {
        "mutants": 4,
        "caught": 4,
        "missed": [],
        "regions": "whole model",
    }


def test_blind_check_is_too_weak(save: Save, dpl: Dpl) -> None:
    """Where everything is multiplied by 0 mutants pass: that is said, and the answer is 1."""
    path = save(BLIND)

    code, shown, _ = dpl("verify", path, path, "--min-power", "0.9")

    assert code == 1
    assert "Equivalent" in shown
    assert "missed: " in shown
    assert "what it was to catch 90% of" in shown
    assert "'y' does not change with the input" in shown
    assert dpl("verify", path, path, "--mutants", "5")[0] == 0


def test_mutants_are_drawn_inside_partitions(save: Save) -> None:
    """Only bodies and calls of functions that a partition wrote are changed."""
    model = onnx.load(save(NET))
    function = model.functions.add(domain="t", name="f", input=["a"], output=["c"])
    function.node.add(op_type="Relu", input=["a"], output=["c"])
    function.opset_import.add(domain="", version=17)
    model.graph.node.add(op_type="f", domain="t", input=["t"], output=["r"])
    assert changeable_nodes(model).label == "whole model"
    function.metadata_props.add(key="Composite", value="t.f")

    found = changeable_nodes(model)

    assert found.label == "partitions"
    assert [place.find(model).op_type for place in found.places] == ["Relu", "f"]


def test_mutants_change_what_bodies_read(save: Save) -> None:
    """Weights of a net that is all inside an If are weights of the net."""
    path = save("""g (float[2] x) => (float[2] y) <bool c = {1}, float[2] w = {1, 2}>
    { y = If (c) <then_branch = a () => (float[2] p) { p = Mul (x, w) },
                  else_branch = b () => (float[2] q) { q = Neg (x) }> }""")

    power = verify_equivalence(path, path, Check(levels=("disable",), mutants=4)).power

    assert power is not None
    assert power.caught == power.of == 4


HOLDING = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]>
g (float[2, 2] x, bool c) => (float[2, 2] y) <float[2, 2] w = {5, 2, 3, 4}> {
  m = MatMul (x, w)
  u = If (c) <then_branch = a () => (float[2, 2] p) <float[2] h = {1.5, 2.5}> { p = Mul (m, h) },
              else_branch = b () => (float[2, 2] n) { k = Constant <value = float[2] {3.5, 4}> ()
                                                      n = Add (m, k) }>
  y = l.f (u, c) }
<domain: "l", opset_import: ["" : 17]> f (a, c) => (b) {
  k = Constant <value = float[2] {1.5, 2}> ()  i = Add (a, k)
  b = If (c) <then_branch = v () => (p) { q = Constant <value = float[2] {7, 8}> ()
                                          p = Add (i, q) },
              else_branch = z () => (n) { n = Neg (i) }> }"""
"""Weights in the main graph, in bodies, in a function, and in a body inside it."""


def drawn(model: onnx.ModelProto, home: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield mutants, and what was changed in each."""
    kinds = changes(model, np.random.default_rng(0), home)
    for change, seed in islice(kinds, 200):
        mutant = onnx.ModelProto()
        mutant.CopyFrom(model)
        yield change(mutant, np.random.default_rng(seed)), mutant


def weights_drawn(model: onnx.ModelProto, home: Path) -> set[str]:
    """Return the weights and constants that mutants change."""
    found = {" ".join(what.split()[:2]) for what, _ in drawn(model, home)}
    return {what for what in found if what.startswith(("weight", "constant"))}


def test_weights_in_bodies_are_changed(save: Save) -> None:
    """Those of bodies, of functions, and of bodies inside functions."""
    names = {"weight 'w'", "weight 'h'", "constant 'k'", "constant 'q'"}
    assert weights_drawn(onnx.load(save(HOLDING)), Path()) == names


@pytest.mark.parametrize("data", ["data", ""], ids=["one file", "a file each"])
def test_weights_in_other_files_are_changed(tmp_path: Path, save: Save, data: str) -> None:
    """Each is read alone and stands in the mutant; the files stay as they are."""
    folder = tmp_path / "away"
    folder.mkdir()
    path = save_away(onnx.load(save(NET)), folder / "m.onnx", data=data)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    model = onnx.load(path, load_external_data=False)

    assert weights_drawn(model, folder) == {"weight 'w'", "weight 'b'"}
    for what, mutant in drawn(model, folder):
        here = [each.name for each in mutant.graph.initializer if not each.external_data]
        assert here == [name for name in "wb" if what.startswith(f"weight {name!r}")]
    power = verify_equivalence(path, path, Check(levels=("disable",), mutants=3)).power
    assert power is not None
    assert power.caught == power.of == 3
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_a_weight_whose_file_is_gone_is_left_alone(tmp_path: Path, save: Save) -> None:
    """Nothing is raised: the change does nothing."""
    path = save_away(onnx.load(save(NET)), tmp_path / "m.onnx", data="data")
    model = onnx.load(path, load_external_data=False)
    (tmp_path / "data").unlink()
    assert weights_drawn(model, tmp_path) == set()


@pytest.mark.long
def test_mutant_that_never_ends_is_given_up(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight with another sign makes this loop endless: long before the limit it is stopped."""
    execution = Execution(timeout=120)
    monkeypatch.setattr(equivalence, "_PATIENCE", 1.0)
    path = save("""g (float[1] x) => (float[1] y)
    <float[1] w = {1}, float[1] limit = {50}, int64 most = {9223372036854775807}, bool go = {1}>
    { z = Sub (x, x)  y = Loop (most, go, z) <body = b (int64 i, bool k, float[1] a) =>
        (bool again, float[1] sum)
        { sum = Add (a, w)  below = Less (sum, limit)  again = Squeeze (below) }> }""")

    start = time.monotonic()
    settings = Check(levels=("disable",), mutants=5, execution=execution)
    power = verify_equivalence(path, path, settings).power

    assert power is not None
    assert power.caught >= 1
    assert time.monotonic() - start < 120


def test_long_attributes_are_not_written_out(save: Save) -> None:
    """Of a list of thousands, as in a forest, the element is named that was changed."""
    model = onnx.load(save(NET))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("ids", list(range(10, 5010))))

    kinds = changes(model, np.random.default_rng(0))
    said = []
    for _, (change, number) in zip(range(60), kinds, strict=False):
        mutant = onnx.ModelProto()
        mutant.CopyFrom(model)
        said.append(change(mutant, np.random.default_rng(number)))

    named = [text for text in said if "ids" in text]
    assert named
    assert all(re.fullmatch(r"MatMul 't': ids\[\d+\] \d+ -> \d+", text) for text in named)


def test_mutants_are_the_same_for_the_same_seed(save: Save) -> None:
    """The draw depends on the seed alone, and the model handed in stays as it is."""
    model = onnx.load(save(NET))
    before = model.SerializeToString()

    def drawn(seed: int) -> list[str]:
        source = changes(model, np.random.default_rng(seed))
        found = []
        for _, (change, number) in zip(range(9), source, strict=False):
            mutant = onnx.ModelProto()
            mutant.CopyFrom(model)
            found.append(change(mutant, np.random.default_rng(number)))
        return found

    assert drawn(3) == drawn(3) != drawn(4)
    assert model.SerializeToString() == before


def test_quantised_output_of_an_equal_model_passes_and_a_wrong_zero_point_does_not(
    save: Save,
) -> None:
    """The step that a quantiser may flip does not hide a step everywhere."""
    ours, theirs = save(QUANTISED, "a"), save(QUANTISED.replace("{128}", "{129}"), "b")

    assert verify_equivalence(ours, save(QUANTISED, "c")).equivalent
    found = verify_equivalence(ours, theirs)

    assert not found.equivalent
    assert "quantisation step" in str(found.outputs[0].reason)


@pytest.mark.parametrize(
    ("factor", "equivalent"), [("1.0000001", True), ("1.0000003", True), ("1.00001", False)]
)
def test_flipped_roundings_inside_are_no_difference_but_another_scale_is(
    save: Save, factor: str, *, equivalent: bool
) -> None:
    """A last bit before a rounding may cost a step after it; a hundred of them may not."""
    ours, theirs = save(TWICE % "1", "a"), save(TWICE % factor, "b")

    found = verify_equivalence(ours, theirs, Check(seeds=tuple(range(4)), levels=("disable",)))

    assert found.equivalent == equivalent


def test_saved_results_are_judged_as_when_they_were_made(
    save: Save, tmp_path: Path, dpl: Dpl
) -> None:
    """Offline, the same tolerances give the same record; other ones another verdict."""
    ours, theirs = save(NET, "a"), save(NET.replace("0.2}", "0.2001}"), "b")
    results = tmp_path / "results.npz"
    online = verify_equivalence(ours, theirs, Check(save_results=results))
    assert not online.equivalent

    again = pipeline.judge_again(results)
    loose = pipeline.judge_again(results, check=Check(tolerances={"y": Override(atol=1e-3)}))

    assert parts_of(again) == parts_of(online)
    assert loose.equivalent
    assert dpl("verify", "--from", results)[0] == 1
    assert dpl("verify", "--from", results, "--tolerance", "y=atol:1e-3")[0] == 0
    assert dpl("verify", "--from", results, "--atol", "1e-3")[0] == 0


def test_saved_results_keep_strings(save: Save, tmp_path: Path) -> None:
    """Text goes into the file without pickles, and comes back equal."""
    text = "g (string[4] x) => (string[4] y) { y = Identity (x) }"
    path, results = save(text), tmp_path / "r.npz"

    assert verify_equivalence(path, path, Check(save_results=results)).equivalent
    assert pipeline.judge_again(results).equivalent
    assert load_evidence(results).candidates["all"][0]["y"][0].dtype == "string"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--from", "missing.npz"], id="missing"),
        pytest.param(["--from", "{model}"], id="a model"),
        pytest.param(["--from", "{results}", "{model}", "{model}"], id="models too"),
        pytest.param(["--from", "{results}", "--seed", "3"], id="a seed"),
        pytest.param(["--from", "{results}", "--tolerance", "z=rtol:1"], id="unknown output"),
        pytest.param(["--from", "{results}", "--tolerance", "y=rtol:x"], id="no number"),
        pytest.param(["--from", "{results}", "--tolerance", "y=rtol:1,rtol:2"], id="twice"),
        pytest.param(
            ["--from", "{results}", "--tolerance", "y=rtol:1", "--tolerance", "y=atol:1"],
            id="two of one output",
        ),
        pytest.param(["--from", "{results}", "--tolerance", "y"], id="nothing"),
        pytest.param(["--from", "{results}", "--tolerance", "y=rtol:-1"], id="negative"),
        pytest.param(["{model}"], id="one model"),
        pytest.param(["{model}", "{model}", "--tolerance", "z=rtol:1"], id="unknown online"),
        pytest.param(["{model}", "{model}", "--save-results", "no/where.npz"], id="no folder"),
        pytest.param(["{model}", "{model}", "--save-results", "{model}"], id="over the model"),
        pytest.param(["{model}", "{model}", "--min-power", "2"], id="power"),
        pytest.param(["{model}", "{model}", "--mutants", "-2"], id="mutants"),
    ],
)
def test_bad_usage_is_one_message(
    save: Save, tmp_path: Path, dpl: Dpl, arguments: list[str]
) -> None:
    """Each is refused with 2 and a message, and the model is as it was."""
    model, results = save(NET), tmp_path / "r.npz"
    content = model.read_bytes()
    verify_equivalence(model, model, Check(save_results=results))

    code, shown, said = dpl("verify", *[a.format(model=model, results=results) for a in arguments])

    assert (code, shown) == (2, "")
    assert said.startswith("dpl: error: ")
    assert "internal" not in said
    assert model.read_bytes() == content


def test_damaged_results_are_no_crash(save: Save, tmp_path: Path) -> None:
    """A truncated file and a foreign archive are named."""
    model, results = save(NET), tmp_path / "r.npz"
    verify_equivalence(model, model, Check(save_results=results))
    (tmp_path / "cut.npz").write_bytes(results.read_bytes()[:-200])
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with np.load(results) as archive:
        arrays = dict(archive)
    record = str(arrays["record"]).replace('"level": "disable"', '"level": "basic"')
    np.savez(tmp_path / "half.npz", **{**arrays, "record": np.array(record)})

    for name in ("cut.npz", "other.npz", "half.npz"):
        with pytest.raises(UsageError, match="holds no saved results"):
            load_evidence(tmp_path / name)


@pytest.mark.parametrize(
    ("net", "unchanged"),
    [
        pytest.param("kernel_shape = [4, 2], strides = [1, 1]", "strides [1, 1] -> [2, 1]", id="1"),
        pytest.param("dilations = [1, 1]", "dilations", id="kernel-of-one"),
        pytest.param("ConvTranspose strides = [1, 1]", "strides [1, 1] -> [2, 1]", id="input-of-1"),
    ],
)
def test_changes_that_cannot_matter_are_not_tried(save: Save, net: str, unchanged: str) -> None:
    """A stride along an axis whose result has one element, a dilation of a kernel of one."""
    size, op = "4, 2" if "kernel" in net else "1, 1", "Conv"
    if net.startswith("ConvTranspose"):
        op, net = "ConvTranspose", net.partition(" ")[2]
    rows = 4 if op == "Conv" else 1
    path = save(f"""g (float[1, 1, {rows}, 4] x, float[1, 1, {size}] w) => (float[N, C, H, W] y)
        {{ c = {op} <{net}> (x, w) y = Relu (c) }}""")
    model = onnx.load(path)
    tried = set()
    for change, seed in islice(changes(model, np.random.default_rng(0)), 200):
        mutant = onnx.ModelProto()
        mutant.CopyFrom(model)
        tried.add(change(mutant, np.random.default_rng(seed)))

    assert not [what for what in tried if unchanged in what]
    assert "dilations" in unchanged or any("strides [1, 1] -> [1, 2]" in what for what in tried)


def test_depth_is_counted_along_the_longest_path(save: Save) -> None:
    """A product of 3 terms, a sum and Tanh are 5 roundings of 3 operators."""
    flow = Dataflow(onnx.load(save(NET)))

    assert output_depths(flow) == {"y": Depth(5, 3, assumed=False)}


def test_depth_behind_a_body_is_unknown(save: Save) -> None:
    """What an If computes is not counted, and nothing is claimed of it."""
    text = """g (bool c, float[2] x) => (float[2] y, float[2] z) {
    t = If (c) <then_branch = a () => (float[2] p) { p = Relu (x) },
                else_branch = b () => (float[2] q) { q = Neg (x) }>
    y = Tanh (t) z = Tanh (x) }"""

    assert output_depths(Dataflow(onnx.load(save(text)))) == {"z": Depth(1, 1, assumed=False)}


def test_a_step_beyond_the_largest_number_is_no_rounding_error(save: Save) -> None:
    """Numbers that stand for infinity are left alone when the original's last bits are moved."""
    right, wrong = save(MASKED % "1"), save(MASKED % "0.5", "wrong")

    (found,) = verify_equivalence(right, wrong, Check(levels=("disable",))).outputs

    assert not found.ok
    assert found.figures.sensitivity is not None
    assert found.figures.sensitivity < 0.01


ATTENTION = """g (float[1, 4, 6] x) => (float[1, 4, 6] y)
<float[6] b = {1, 2, 3, 4, 5, 6}, float s = {0.5}> {
  k = Add (x, b)  t = Transpose <perm = [0, 2, 1]> (k)  m = MatMul (x, t)  h = Mul (m, s)
  p = Softmax <axis = -1> (h)  y = MatMul (p, x) }"""


@pytest.mark.parametrize(
    ("before", "after", "is_idle"),
    [
        pytest.param("", "", True, id="keys"),
        pytest.param("MatMul (x, t)", "MatMul (t, x)", False, id="queries"),
        pytest.param("axis = -1", "axis = 1", False, id="over-queries"),
        pytest.param("MatMul (p, x)", "MatMul (p, k)", False, id="values-too"),
        pytest.param("Mul (m, s)", "Mul (m, m)", False, id="squared"),
        pytest.param("Softmax <axis = -1>", "Sigmoid", False, id="no-shares"),
    ],
)
def test_bias_of_keys_is_not_changed(save: Save, before: str, after: str, *, is_idle: bool) -> None:
    """It adds the same to all scores of a query, which leaves their shares as they are."""
    assert Idleness(onnx.load(save(ATTENTION.replace(before, after)))).is_key_bias("b") is is_idle
