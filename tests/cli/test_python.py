"""``import dplcli as dpl``: models as objects, results, and what the commands say of the same."""

import dataclasses
import gc
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper
import onnx_ir
import pytest

import dplcli as dpl
from dplcli.ir import Model
from dplcli.onnx_io import objects
from tests.cli.support import ROOT, Dpl, Save, contents

NUMBER: Any = 3
TWO_RELUS = "g (float[2,3] x) => (float[2,3] y) { t = Relu (x) u = Relu (t) y = Neg (u) }"
WRONG = """dpl: 1
rewrites:
  - name: wrong
    pattern: Neg(x)
    replacement: Abs(x)
"""


class ONNXProgram:
    """As torch's, as far as dpl looks."""

    def __init__(self, model: onnx_ir.Model | None, proto: onnx.ModelProto) -> None:
        """Hold either."""
        self.model = model
        self.model_proto = proto


ONNXProgram.__module__ = "torch.onnx._internal.exporter._onnx_program"


def unchanged(path: Path) -> Path:
    """Return the path."""
    return path


FORMS: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": unchanged,
    "proto": onnx.load,
    "onnx_ir": onnx_ir.load,
    "torch": lambda path: ONNXProgram(onnx_ir.load(path), onnx.load(path)),
    "older torch": lambda path: ONNXProgram(None, onnx.load(path)),
    "loaded": dpl.load,
    "loaded object": lambda path: dpl.load(onnx.load(path)),
    "result": lambda path: dpl.inline(path, verify=False),
}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files, which is empty."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_a_model_may_be_any_of_these(model: Path, form: str) -> None:
    """Each gives the same result, and neither it nor the file is changed."""
    before = model.read_bytes()
    given = FORMS[form](model)
    as_proto = given if isinstance(given, onnx.ModelProto) else None
    encoded = None if as_proto is None else as_proto.SerializeToString()

    result = dpl.partition(given, patterns="conv_relu", verify=False)

    assert result.counts["dnnl.conv2d_bias_relu"] == 2
    assert [node.op_type for node in result.model.graph.node].count("conv2d_bias_relu") == 2
    assert dpl.diff(model, dpl.inline(result, verify=False)).equal
    assert model.read_bytes() == before
    assert as_proto is None or as_proto.SerializeToString() == encoded


def test_nothing_is_written_that_was_not_asked_for(
    folder: Path, model: Path, scratch: Path
) -> None:
    """Neither beside the model nor, once results are gone, where temporary files are."""
    before = contents(folder)
    result = dpl.partition(model, patterns="conv_relu")
    again = dpl.inline(onnx.load(model))
    assert (result.path, result.verdict, again.verdict) == (None, "equivalent", "equivalent")
    assert contents(folder) == before
    del result, again
    assert contents(scratch) == {}


def test_a_result_is_saved_where_its_reader_wants(folder: Path, model: Path) -> None:
    """What is saved is what the command writes; so is what output= writes."""
    dpl.partition(model, patterns="conv_relu").save("saved.onnx")
    written = dpl.partition(model, patterns="conv_relu", output="written.onnx")
    assert written.path == Path("written.onnx")
    assert dpl.run("saved.onnx").ok
    assert (folder / "saved.onnx").read_bytes() == (folder / "written.onnx").read_bytes()
    assert written.model == onnx.load("saved.onnx")


def test_a_no_is_a_result_without_a_model(save: Save, folder: Path) -> None:
    """It says so; whoever takes the model all the same is told."""
    path = save(TWO_RELUS)
    (folder / "wrong.yaml").write_text(WRONG)
    result = dpl.rewrite(path, patterns=Path("wrong.yaml"), all_or_nothing=True)
    assert (result.verdict, result.equivalent, result.ok) == ("different", False, False)
    with pytest.raises(dpl.DplError, match=r"there is no result: .*not equivalent"):
        _ = result.model
    with pytest.raises(dpl.DplError, match="there is no result"):
        dpl.match(result, patterns="conv_relu")
    unseen = dpl.rewrite(path, patterns="wrong.yaml", verify=False)
    assert (unseen.verdict, unseen.equivalent, unseen.ok) == ("unverified", False, True)
    assert dpl.rewrite(path, patterns="fuse").verdict == "equivalent"


JSON: dict[str, tuple[list[str], Callable[[Path], Any]]] = {
    "inspect": (["inspect", "m.onnx"], dpl.load),
    "match": (
        ["match", "m.onnx", "-p", "conv_relu", "--expect", "dnnl.conv2d_relu>=1"],
        lambda m: dpl.match(m, patterns="conv_relu", expect="dnnl.conv2d_relu>=1"),
    ),
    "explain": (
        ["explain", "m.onnx", "-p", "conv_relu", "--rule", "conv2d_relu"],
        lambda m: dpl.explain(m, patterns="conv_relu", rule="conv2d_relu"),
    ),
    "rewrite": (
        ["rewrite", "m.onnx", "-p", "prepare", "-o", "r.onnx", "--seed", "3", "--seed", "4"],
        lambda m: dpl.rewrite(m, patterns="prepare", seed=[3, 4]),
    ),
    "partition": (
        ["partition", "m.onnx", "--target", "dnnl", "-o", "p.onnx", "--merge", "--level", "all"],
        lambda m: dpl.partition(m, target="dnnl", merge=True, level="all"),
    ),
    "repeat": (
        ["repeat", "m.onnx", "--min-nodes", "2", "--no-verify", "-o", "q.onnx"],
        lambda m: dpl.repeat(m, min_nodes=2, verify=False),
    ),
    "inline": (
        ["inline", "p.onnx", "--target", "dnnl", "-o", "i.onnx"],
        lambda m: dpl.inline(m.with_name("p.onnx"), target="dnnl"),
    ),
    "verify": (
        ["verify", "m.onnx", "p.onnx", "--tolerance", "out=rtol:1e-3", "--layers"],
        lambda m: dpl.verify(m, "p.onnx", tolerance={"out": {"rtol": 1e-3}}, layers=True),
    ),
    "diff": (["diff", "m.onnx", "p.onnx"], lambda m: dpl.diff(m, "p.onnx")),
}


@pytest.mark.long
def test_json_is_that_of_the_command(dpl_process: Dpl, model: Path) -> None:
    """And so is what is printed, and the exit code."""
    out = onnx.load(model).graph.output[0].name
    for name, (arguments, call) in JSON.items():
        named = [argument.replace("out=", f"{out}=") for argument in arguments]
        answer = dpl_process(*named, "--json", "j.json")
        if name == "verify":
            result: Any = dpl.verify(model, "p.onnx", tolerance={out: {"rtol": 1e-3}}, layers=True)
        else:
            result = call(model)
        record = json.loads(Path("j.json").read_text())
        assert result.to_json() == record, name
        assert answer.code == (0 if result.ok else 1), answer.err
        if name in {"match", "diff", "explain", "inspect", "verify"}:
            assert answer.out == f"{result}\n", name


def test_rules_come_in_every_form_and_in_the_order_given(model: Path) -> None:
    """Names, paths, texts and rules; the first that takes a node has it."""
    learned = dpl.learn(model, nodes=["Conv_1", "Relu_0"])
    learned.save("learned.yaml")
    text = "Relu(Conv(x, w, b))"
    for patterns in (
        text,
        [text],
        Path("learned.yaml"),
        learned.rules,
        learned.rules[0],
        "conv_relu",
    ):
        assert sum(dpl.match(model, patterns=patterns).counts.values()) == 2
    first = dpl.match(model, patterns=[text, learned.rules[0], text, learned.rules[0]])
    assert first.counts == {"custom.pattern": 2, "custom.conv_relu": 0}
    other = dpl.match(model, patterns=[*learned.rules, text, "conv_relu"])
    assert {rule: n for rule, n in other.counts.items() if n} == {"custom.conv_relu": 2}
    two = dpl.match(model, patterns=["MaxPool(x)", text])
    assert two.counts == {"custom.pattern": 1, "custom.pattern_2": 2}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("Relux(x)", "the pattern 'Relux(x)', 1:1: unknown operator 'Relux'"),
        ("Relu(x", r"the pattern 'Relu(x', 1:5: '(' was never closed"),
        ("no_such", "no_such: no such catalogue, neither a file nor shipped with dpl"),
        ((), "no catalogue is named"),
        (["conv_relu", ""], "'': no such catalogue: the name is empty"),
    ],
)
def test_a_rule_that_is_none_is_said_to_be_none(model: Path, patterns: Any, message: str) -> None:  # noqa: ANN401  # whatever a user writes
    """In one sentence, of an error of dpl's."""
    with pytest.raises(dpl.DplError) as raised:
        dpl.match(model, patterns=patterns)
    assert raised.value.message == message


def test_an_operator_alone_is_told_to_be_a_pattern_with_brackets(model: Path) -> None:
    """Not to be a catalogue of a name that is near."""
    with pytest.raises(dpl.DplError) as raised:
        dpl.match(model, patterns="Conv")
    assert raised.value.hint == "a pattern has brackets: 'Conv(...)' is any Conv"
    assert dpl.match(model, patterns="Conv(...)").counts == {"custom.pattern": 3}


def test_a_file_may_be_called_like_a_pattern(model: Path, folder: Path) -> None:
    """What exists is a file."""
    (folder / "rules (1).yaml").write_text(dpl.learn(model, nodes=["Relu_0"]).yaml)
    assert dpl.match(model, patterns="rules (1).yaml").counts == {"custom.relu": 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: dpl.load(NUMBER), "this is no model, but an object of the class int"),
        (lambda m: dpl.load(m.with_name("none.onnx")), "none.onnx: no such file"),
        (lambda m: dpl.rewrite(onnx.load(m), patterns="fuse", in_place=True), "only a file"),
        (lambda m: dpl.rewrite(m, patterns="fuse", keep_failed=True), "kept beside the output"),
        (lambda m: dpl.rewrite(m, patterns="fuse", output=m), "the output is the input"),
        (dpl.verify, "dpl verify needs ORIGINAL and CANDIDATE"),
        (lambda m: dpl.verify(m, m, seed=-1), "none may be negative"),
        (lambda m: dpl.verify(m, m, inputs={"nobody": 1}), "nobody"),
        (lambda m: dpl.run(m, {"in": np.zeros(3)}), "in"),
        (lambda m: dpl.run(m, level="most"), "^level: there is no 'most'"),
        (lambda m: dpl.verify(m, m, level=["all", "most"]), "^level: there is no 'most'"),
        (lambda m: dpl.run(m, kernels="openvino"), "^kernels: there is no 'openvino'"),
        (lambda m: dpl.learn(before=m), "^before without after"),
        (dpl.learn, "no node is named"),
    ],
)
def test_bad_input_is_an_error_of_dpl(
    model: Path, call: Callable[[Path], Any], message: str
) -> None:
    """Never one of another package, and with a sentence."""
    with pytest.raises(dpl.DplError, match=message):
        call(model)


def test_an_unknown_keyword_is_refused_as_python_does(model: Path) -> None:
    """With what was probably meant."""
    wrong: dict[str, Any] = {"pattern": "conv_relu"}
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'toleranse'.*'tolerance'"):
        dpl.verify(model, model, toleranse=1)  # type: ignore[call-arg]  # that is the test
    with pytest.raises(TypeError, match="'pattern'"):
        dpl.partition(model, **wrong)


def test_positions_are_refused_as_python_does(model: Path) -> None:
    """A model is given once, and not one too many."""
    run: Any = dpl.run
    verify: Any = dpl.verify
    with pytest.raises(TypeError, match=r"^verify\(\) .*'original'"):
        verify(model, model, original=model)
    with pytest.raises(TypeError, match=r"^verify\(\) too many positional arguments"):
        verify(model, model, "x")
    with pytest.raises(TypeError, match=r"^run\(\) missing a required argument: 'model'"):
        run()
    assert str(signature(run)).startswith("(model: 'ModelLike', inputs: 'Inputs' = None, *")


@pytest.mark.parametrize("name", ["match", "apply", "verify", "run"])
def test_help_says_what_each_keyword_is_for(name: str) -> None:
    """It names nothing that cannot be given."""
    function = getattr(dpl, name)
    listed = re.findall(r"^        (\w+): ", function.__doc__.partition("Raises:")[0], re.MULTILINE)
    assert sorted(listed) == sorted(signature(function).parameters)


def external(path: Path) -> onnx.ModelProto:
    """Write a model with its weight in a file beside it; return it with the weight inside."""
    weight = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[2,3] x) => (float[2,4] y) { t = MatMul (x, w) y = Relu (t) }"
    )
    proto.graph.initializer.append(weight)
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return onnx.load(path)


def test_external_data_comes_along(folder: Path, scratch: Path) -> None:
    """It is in the message, and beside what is saved; the model's folder is as it was."""
    path = folder / "e.onnx"
    whole = external(path)
    before = contents(folder)
    result = dpl.partition(path, patterns="Relu(MatMul(x, w))")
    assert result.counts == {"custom.pattern": 1}
    assert result.model.graph.initializer == whole.graph.initializer
    assert contents(folder) == before
    other = folder / "other"
    other.mkdir()
    result.save(other / "p.onnx")
    assert (other / "w.bin").read_bytes() == before["w.bin"]
    assert dpl.verify(path, other / "p.onnx").equivalent
    assert contents(scratch) == {}


def test_a_message_with_data_elsewhere_is_refused(folder: Path) -> None:
    """A message does not say which folder that is."""
    external(folder / "e.onnx")
    with pytest.raises(dpl.DplError, match="the data of 'w' lies in a file") as raised:
        dpl.load(onnx.load("e.onnx", load_external_data=False))
    assert "pass the path of the model" in str(raised.value.hint)


@pytest.mark.parametrize("form", ["proto", "onnx_ir"])
def test_a_large_object_has_its_weights_in_a_file(
    folder: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protobuf takes no message of 2 GB; small tensors stay inside."""
    whole = external(folder / "e.onnx")
    monkeypatch.setattr(objects, "_MOST", 8)
    monkeypatch.setattr(objects, "_SMALL", 16)
    given = whole if form == "proto" else onnx_ir.from_proto(whole)
    loaded = dpl.load(given)
    assert [
        t.data_location
        for t in onnx.load(str(loaded.stored.place), load_external_data=False).graph.initializer
    ] == [1]
    assert loaded.model.graph.initializer[0].raw_data == whole.graph.initializer[0].raw_data
    assert dpl.verify(loaded, whole).equivalent
    loaded.save("copy.onnx")
    assert dpl.diff("copy.onnx", "e.onnx").equal


def test_a_model_runs_on_what_it_is_given_or_on_what_fits(model: Path) -> None:
    """A dict of arrays, a function of a seed, or what is made up; twice the same."""
    made = dpl.run(model, seed=1)
    (name,) = made.inputs
    array = made.inputs[name]
    for inputs in ({name: array}, lambda _seed: {name: array}):
        again = dpl.run(model, inputs)
        assert all(np.array_equal(again.outputs[key], value) for key, value in made.outputs.items())
    other = dpl.run(model, seed=2)
    assert not np.array_equal(other.inputs[name], array)
    record = made.to_json()
    assert (record["schema"], record["model"]) == ("dpl.run/1", "m.onnx")
    assert record["inputs"][0]["shape"] == list(np.shape(array))


def test_a_sequence_goes_in_and_out(save: Save) -> None:
    """As an array of arrays, which need not be alike."""
    path = save(
        "g (seq(float[n]) s) => (seq(float[n]) o, float[m] y) "
        "{ o = SequenceErase (s) y = ConcatFromSequence <axis = 0> (s) }"
    )
    one, other = np.arange(3, dtype=np.float32), np.arange(5, dtype=np.float32)
    done = dpl.run(path, {"s": [one, other]})
    assert np.array_equal(done.outputs["y"], np.concatenate([one, other]))
    assert [item.size for item in done.outputs["o"]] == [3]
    again = dpl.run(path, done.inputs)
    assert np.array_equal(again.outputs["y"], done.outputs["y"])
    (item,) = (each for each in again.to_json()["outputs"] if each["name"] == "o[0]")
    assert item["shape"] == [3]


def test_results_are_frozen_and_show_themselves(model: Path) -> None:
    """In a notebook, with what a name may hold made harmless."""
    result = dpl.match(model, patterns="conv_relu")
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.label = "other"  # type: ignore[misc]  # that is the test
    page = result._repr_html_()
    assert "dnnl.conv2d_bias_relu" in page
    hostile = dpl.match(
        model,
        patterns=dpl.PatternRule(
            target="t", name="<b>", pattern=dpl.learn(model, nodes=["Relu_0"]).rules[0].pattern
        ),
    )
    assert "<b>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in hostile._repr_html_()
    assert (
        repr(dpl.partition(model, patterns="conv_relu"))
        == "<PartitionOutcome of m.onnx: Equivalent>"
    )
    assert len(repr(result)) < 80
    learned = dpl.learn(model, nodes=["Relu_0"], name="r")
    assert repr(learned) == "<LearnOutcome of m.onnx: 1 rule>"
    assert "name: r" in learned._repr_html_()


def test_functions_win_over_packages_of_their_names() -> None:
    """However those were imported, and in whatever order."""
    import_module("dplcli.verify.check")
    import_module("dplcli.diff")
    assert callable(dpl.verify)
    assert callable(dpl.diff)
    assert set(dpl.__all__) <= set(dir(dpl))
    with pytest.raises(AttributeError, match="no attribute 'verfy'"):
        _ = dpl.verfy  # type: ignore[attr-defined]  # that is the test


def test_importing_it_loads_nothing_else() -> None:
    """Neither numpy nor onnx: a program may import it and not use it."""
    code = (
        "import sys, dplcli; found = {name.split('.')[0] for name in sys.modules}; "
        "print(sorted(found & {'numpy', 'onnx', 'click', 'rich'}))"
    )
    program = [sys.executable, "-c", code]
    done = subprocess.run(  # noqa: S603  # our own
        program, cwd=ROOT, capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout == "[]\n"


def test_errors_name_keywords() -> None:
    """Where the command names its options; what is said of a command stays."""
    with pytest.raises(dpl.DplError) as caught:
        dpl.match(ROOT / "sample_models/residual_block.onnx")
    assert caught.value.hint == "pass patterns=FILE or target=NAME"
    with pytest.raises(dpl.DplError, match=r"^expect 'bad': not an expectation$"):
        dpl.match(ROOT / "sample_models/residual_block.onnx", patterns="fuse", expect="bad")
    with pytest.raises(dpl.DplError) as caught:
        dpl.learn("m.onnx")
    assert caught.value.hint == "dpl inspect --nodes lists the names"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"prune": True}, "prune=True is about the regions that merge=True makes"),
        ({"kernels": "mkl"}, "kernels: there is no 'mkl'"),
        ({"math": "bf16"}, "math is about the library of kernels='dnnl'; pass both"),
        ({"kernels": "dnnl", "verify": False}, "kernels runs the result, and verify=False leaves"),
        ({"max_memory": -1}, "max_memory: expected at least 0, not -1"),
        ({"shape": {"n": "?"}}, "shape n=?: not a size, nor a sum of sizes"),
    ],
)
def test_what_cannot_be_is_said_in_keywords(keywords: dict[str, Any], message: str) -> None:
    """Whatever the command calls the option, and before any work is done."""
    with pytest.raises(dpl.DplError, match=f"^{re.escape(message)}"):
        dpl.partition(ROOT / "sample_models/residual_block.onnx", target="dnnl", **keywords)


def test_a_text_that_looks_like_an_option_stays() -> None:
    """Only what a message says on purpose is spelled; a name of somebody's is no option."""
    with pytest.raises(dpl.DplError, match="no such rule") as caught:
        dpl.explain(
            ROOT / "sample_models/residual_block.onnx", patterns="fuse", rule="--max-memory"
        )
    assert caught.value.message == "rule --max-memory: there is no such rule"


@pytest.mark.long
def test_a_service_keeps_no_model_that_it_is_done_with(save: Save) -> None:
    """However often it calls, and without asking for garbage: Python's own collector finds it."""
    path = save(TWO_RELUS)
    thresholds = gc.get_threshold()
    gc.collect()
    before = models_alive()
    gc.set_threshold(700, 10, 10)  # as Python has them
    try:
        for _ in range(40):
            dpl.partition(path, patterns="Neg(Relu(x))", verify=False)
    finally:
        gc.set_threshold(*thresholds)

    assert models_alive() - before < 40  # each call has two


def models_alive() -> int:
    """Count the models in memory."""
    return sum(isinstance(item, Model) for item in gc.get_objects())


SCRIPT = """
import dplcli as dpl
import onnx

def optimise(path: str, proto: onnx.ModelProto) -> onnx.ModelProto:
    result = dpl.partition(proto, patterns=["conv_relu", "Relu(x)"], seed=3, shape={"n": 4})
    reveal_type(result)
    reveal_type(result.model)
    reveal_type(result.counts)
    reveal_type(result.verdict)
    reveal_type(result.equivalent)
    reveal_type(result.partitions[0].call)
    reveal_type(result.nodes)
    reveal_type(dpl.match(path, patterns="x").matches[0].root.op_type)
    reveal_type(dpl.rewrite(path, patterns="x").applications[0])
    reveal_type(dpl.verify(path, result).outputs[0].max_abs)
    reveal_type(dpl.diff(path, proto).difference.is_equal)
    reveal_type(dpl.explain(path, patterns="x").rules[0])
    reveal_type(dpl.learn(path, nodes="x").rules)
    reveal_type(dpl.run(path).outputs["y"])
    reveal_type(dpl.load(path).counts)
    reveal_type(dpl.inline(path).save)
    try:
        dpl.apply("p.json", path)
    except dpl.DplError as error:
        reveal_type(error.hint)
    return result.model

dpl.partition(3)
dpl.partition("m", sed=3)
dpl.partition("m", seed="x")
dpl.match("m", patterns=3)

from dplcli.language import GraphBuilder, Match, Operand, RewriteFunction

def half(match: Match, build: GraphBuilder) -> Operand:
    return build.op("Mul", match["x"], 0.5)

def backwards(build: GraphBuilder, match: Match) -> Operand:
    return build.op("Mul", match["x"], 0.5)

right: RewriteFunction = half
wrong: RewriteFunction = backwards
"""


@pytest.mark.long
def test_mypy_knows_what_a_program_gets(tmp_path: Path) -> None:
    """Strictly, of the package as it is installed: types and no Any, and mistakes are mistakes."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "dplcli").symlink_to(ROOT / "dplcli")
    (tmp_path / "user.py").write_text(SCRIPT)
    done = subprocess.run(  # mypy
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "user.py"],
        cwd=tmp_path,
        env={"MYPYPATH": "", "PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(revealed) == 17, done.stdout
    of_numpy = ("dtype[Any]", "tuple[Any, ...]", "generic[Any]")
    plain = [reduce(lambda text, known: text.replace(known, ""), of_numpy, e) for e in revealed]
    assert [line for line in plain if re.search(r"\bAny\b", line)] == []
    assert [line.partition(":")[2].partition(":")[0] for line in errors] == [
        *("29", "30", "31", "32", "43")
    ]
