"""Places that differ are judged by themselves: outputs are a poor witness."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from dplcli.verify import Check, VerificationResult
from dplcli.verify import places as module
from dplcli.verify.check import Execution, InputRequest
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.layers import feed
from dplcli.verify.places import judge_places
from dplcli.verify.run import Kind, Runner
from dplcli.verify.values import ModelSource
from dplcli.verify.verdict import LocalJudgement
from tests.support.helpers import proto_from_text
from tests.verify.conftest import Save, save_away

# A layer normalisation inside steps, behind which the last bits decide over far more.
STEPS = """g (float[4, 8] x) => (float[4, 8] y)
<float one = {1}, float[8] g = {1, 1, 1, 1, 1, 1, 1, 1}, float s = {0.02}, uint8 z = {128}>
{ a = Add (x, one)
  l = LayerNormalization <epsilon = EPSILON> (a, g)
  q = QuantizeLinear (l, s, z)
  d = DequantizeLinear (q, s, z)
  m = Mul (d, d)
  y = Softmax (m) }"""

USUAL = InputRequest()


def steps(epsilon: str) -> str:
    """Return the net with this epsilon."""
    return STEPS.replace("EPSILON", epsilon)


def check(ours: Path, theirs: Path, request: InputRequest = USUAL) -> VerificationResult:
    """Compare two models with optimisation off."""
    return verify_equivalence(ours, theirs, Check(levels=("disable",), request=request))


def test_a_changed_layer_is_named(save: Save) -> None:
    """However wide the tolerance of the output is: the place says it."""
    found = check(save(steps("1e-12")), save(steps("0.01"), "theirs"))
    assert not found.equivalent
    assert found.regions is not None
    (sentence,) = found.regions.differing
    assert sentence.startswith("LayerNormalization 'l', fed what the original computes: ")
    assert found.objections == (sentence,)
    assert (found.regions.judged, found.regions.unchanged) == (1, 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m = Mul (d, d)", "two = Constant <value_float = 2.0> () m = Pow (d, two)"),
        ("a = Add (x, one)", "n = Neg (one) a = Sub (x, n)"),
        ("float one = {1}", "float one = {1.5}"),  # a normalisation takes off what is added
    ],
)
def test_another_way_to_the_same_is_equivalent(save: Save, old: str, new: str) -> None:
    """Places that differ are run, and give the same."""
    net = steps("1e-12")
    assert old in net
    found = check(save(net), save(net.replace(old, new), "theirs"))
    assert found.equivalent
    assert found.regions is not None
    assert found.regions.judged >= 1
    assert found.regions.differing == ()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("{0.02}", "{0.0202}", "QuantizeLinear 'q'"),
        ("{128}", "{129}", "QuantizeLinear 'q'"),
        ("m = Mul (d, d)", "m = Add (d, d)", "Mul 'm'"),
        ("y = Softmax (m)", "y = Softmax <axis = 0> (m)", "Softmax 'y'"),
        ("m = Mul (d, d)", "k = Constant <value_float = 1.001> () e = Mul (d, k) m = Mul (d, e)",
         "Mul 'm'"),
    ],
)  # fmt: skip
def test_small_mistakes_are_refused(save: Save, old: str, new: str, what: str) -> None:
    """Scales, zero points, constants, operators and attributes."""
    net = steps("1e-12")
    assert old in net
    found = check(save(net), save(net.replace(old, new), "theirs"))
    assert not found.equivalent
    assert found.regions is not None
    assert any(sentence.startswith(what) for sentence in found.regions.differing), found.regions


# Both give the same up to the last bits, which decide over a step of 1000.
CHAOS = """g (float[64] x) => (float[64] y)
<float part = {0.018181818}, float whole = {55}, float k = {1000}>
{ a = Mul (x, part)  b = Mul (a, whole)  r = Floor (b)  y = Mul (r, k) }"""
REORDERED = CHAOS.replace(
    "a = Mul (x, part)  b = Mul (a, whole)", "a = Mul (x, whole)  b = Mul (a, part)"
)


def whole_numbers(folder: Path) -> Path:
    """Write inputs of which a part, taken 55 times, lies on an edge."""
    np.savez(folder / "x.npz", x=np.arange(1, 65, dtype=np.float32))
    return folder / "x.npz"


def test_rounding_that_is_amplified_is_told(save: Save, tmp_path: Path) -> None:
    """An output is outside its tolerance; each place gives the same, in float64, too."""
    ours = save(CHAOS.replace("Floor (b)", "Sub (b, x)"))
    theirs = save(REORDERED.replace("Floor (b)", "Sub (b, x)"), "theirs")
    found = check(ours, theirs, InputRequest(given=whole_numbers(tmp_path)))
    assert found.equivalent
    assert found.regions is not None
    assert (found.regions.judged, found.regions.differing) == (2, ())
    (output,) = found.outputs
    assert output.mismatches
    assert output.excuse == (
        "rounding, amplified by the model: each of 2 changed places gives the same by itself"
    )


def test_steps_taken_for_the_last_bits_are_no_mistake(save: Save, tmp_path: Path) -> None:
    """Where the original rounds inside, its own last bits move the output as far."""
    found = check(
        save(CHAOS), save(REORDERED, "theirs"), InputRequest(given=whole_numbers(tmp_path))
    )
    (output,) = found.outputs
    assert output.max_abs == 1000
    assert found.equivalent


@pytest.mark.parametrize("part", ["0.0182", "0.018183"])
def test_what_is_more_than_rounding_is_refused(save: Save, tmp_path: Path, part: str) -> None:
    """The same nets with a constant that is a little off."""
    theirs = REORDERED.replace("0.018181818", part)
    found = check(save(CHAOS), save(theirs, "theirs"), InputRequest(given=whole_numbers(tmp_path)))
    assert not found.equivalent
    assert found.objections


COMPENSATED = """g (float[64] x) => (float[64] y)
<float first = {FIRST}, float second = {SECOND}, float s = {0.1}, uint8 z = {128}>
{ a = Mul (x, first)  b = Mul (a, second)  q = QuantizeLinear (b, s, z)
  y = DequantizeLinear (q, s, z) }"""


def compensated(first: str, second: str) -> str:
    """Return a net with these two factors."""
    return COMPENSATED.replace("FIRST", first).replace("SECOND", second)


def test_a_stored_number_that_becomes_another_step_is_refused(save: Save) -> None:
    """One step in few elements may be rounding, but not of the same nodes with other numbers."""
    net = """g (float[4, 2] x) => (float[4, 3] y)
<float[2, 3] w = {0.31, 0.12, 0.33, -0.44, 0.51, NUMBER}, float s = {0.1}, int8 z = {0}>
{ q = QuantizeLinear (w, s, z)
  d = DequantizeLinear (q, s, z)
  y = MatMul (x, d) }"""
    found = check(save(net.replace("NUMBER", "0.62")), save(net.replace("NUMBER", "0.7"), "theirs"))
    assert found.objections[0].startswith("QuantizeLinear 'q', fed what the original computes: ")


def test_steps_on_another_way_were_never_to_be_the_same(save: Save) -> None:
    """The first products differ, the second agree again: one region, and it gives the same."""
    ours, theirs = save(compensated("0.5", "4.0")), save(compensated("0.25", "8.0"), "theirs")
    assert check(ours, theirs).equivalent
    assert not check(ours, save(compensated("0.25", "8.01"), "theirs")).equivalent


def test_steps_hide_nothing(save: Save) -> None:
    """A difference that all inputs round away is one: other inputs would show it."""
    net = """g (float[4] x) => (float[4] y) <float k = {K}, float s = {100.0}, uint8 z = {128}>
    { a = Mul (x, k)  q = QuantizeLinear (a, s, z)  y = DequantizeLinear (q, s, z) }"""
    ours, theirs = save(net.replace("K", "1.0")), save(net.replace("K", "1.01"), "theirs")
    found = check(ours, theirs, InputRequest(ranges={"x": (1.0, 9.0)}))
    assert all(output.max_abs == 0 for output in found.outputs)
    assert not found.equivalent


def test_the_case_that_fails_is_judged(save: Save, tmp_path: Path) -> None:
    """A place that goes wrong for some inputs only is judged on these."""
    ours = save("g (float[8] x) => (float[8] y) { a = Abs (x)  r = Floor (x)  y = Add (a, r) }")
    theirs = save(
        "g (float[8] x) => (float[8] y) { a = Relu (x)  r = Floor (x)  y = Add (a, r) }", "theirs"
    )
    for case, sign in (("0", 1.0), ("1", -1.0)):
        folder = tmp_path / "sets" / f"test_data_set_{case}"
        folder.mkdir(parents=True)
        values = [sign * (n + 0.5) for n in range(8)]
        tensor = onnx.helper.make_tensor("x", onnx.TensorProto.FLOAT, [8], values)
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    found = check(ours, theirs, InputRequest(given=tmp_path / "sets"))
    assert not found.equivalent
    assert found.regions is not None
    assert found.regions.differing[0].startswith("Abs 'a'")


def test_of_many_wrong_places_the_first_is_named_first(save: Save) -> None:
    """Also where there are more in a row than are judged together."""

    def net(*activation: str) -> str:
        names = ["x", *(f"m{k}" for k in range(9)), "y"]
        turns = zip(names, names[1:], range(10), strict=False)
        told = " ".join(
            " ".join(each.format(x=x, k=k) for each in activation) + f" {y} = MatMul (a{k}, w)"
            for x, y, k in turns
        )
        weight = "float[4,4] w = {1,2,0,-1, 0,1,1,1, 1,-2,1,0, 0.5,0,1,2}"
        return f"g (float[3,4] x) => (float[3,4] y) <{weight}> {{ {told} }}"

    ours = save(net("s{k} = Sigmoid ({x})", "a{k} = Mul ({x}, s{k})"))
    found = check(ours, save(net("a{k} = Relu ({x})"), "theirs"))
    assert found.regions is not None
    assert len(found.regions.differing) > 1
    assert found.regions.differing[0].startswith("Mul 'a0'")
    assert found.regions.places[0].original == "a0"


@pytest.mark.parametrize(("early", "is_equivalent"), [("s", True), ("r", False)])
def test_steps_that_move_in_front_of_a_transpose(
    save: Save, early: str, *, is_equivalent: bool
) -> None:
    """Rounding to the same steps earlier, too, changes nothing, whatever the number of rows."""
    net = """g (float[N, 64] x) => (float[64, N] y)
    <float s = {0.05}, float r = {0.06}, uint8 z = {128}>
    { FIRST  q = QuantizeLinear (t, s, z)  y = DequantizeLinear (q, s, z) }"""
    ours = save(net.replace("FIRST", "t = Transpose (x)"))
    moved = """a = QuantizeLinear (x, EARLY, z)  b = DequantizeLinear (a, EARLY, z)
    t = Transpose (b)""".replace("EARLY", early)
    found = check(ours, save(net.replace("FIRST", moved), "theirs"))
    assert found.equivalent == is_equivalent


def test_what_moves_nothing_is_no_place(save: Save) -> None:
    """Both say the same then, node for node, and nothing runs."""
    net = "g (float[8] x) => (float[8] y) { a = Add (x, x)  y = Exp (a) }"
    more = net.replace("a = Add (x, x)", "z = Identity (x) a = Add (z, x)")
    found = check(save(net), save(more, "theirs"))
    assert found.verdict == "equivalent"
    assert found.regions is not None
    assert (found.regions.judged, found.regions.unchanged) == (0, 2)
    assert found.regions.agreement == "no place differs"


def test_outputs_that_no_node_makes_any_more(save: Save) -> None:
    """What was folded is stored; there is nothing to run, and the outputs themselves agree."""
    net = """g (float[4] x) => (float[4] y, float[2] z) <float[2] c = {1.5, 2.5}>
    { y = Floor (x)  z = Floor (c) }"""
    folded = """g (float[4] x) => (float[4] y, float[2] z) <float[2] z = {1, 2}>
    { n = Neg (x)  m = Ceil (n)  y = Neg (m) }"""
    found = check(save(net), save(folded, "theirs"))
    assert found.equivalent
    assert found.regions is not None
    assert found.regions.judged == 1
    assert not check(save(net), save(folded.replace("Ceil", "Floor"), "theirs")).equivalent


def test_places_beside_sequences_are_judged(save: Save) -> None:
    """What makes them, too: only what reads one is not cut off from it."""
    net = """g (float[4] x) => (float[4] y, seq(float[2]) z)
    { y = Floor (x)  z = SplitToSequence <keepdims = 1> (y) }"""
    theirs = net.replace("y = Floor (x)", "n = Neg (x)  m = Ceil (n)  y = OP (m)")
    assert check(save(net), save(theirs.replace("OP", "Neg"), "same")).verdict == "equivalent"
    found = check(save(net), save(theirs.replace("OP", "Abs"), "theirs"))
    assert found.verdict == "different"
    assert found.objections[0].startswith("Floor 'y', ")


def test_what_cannot_be_judged_by_places_is_a_doubt(save: Save) -> None:
    """An output that the original stores, and the candidate computes, has no place."""
    net = """g (float[4] x) => (float[4] y, float[2] z) <float[2] NAME = {1, 2}>
    { y = Floor (x)  MORE }"""
    ours = save(net.replace("NAME", "z").replace("MORE", ""))
    theirs = save(net.replace("NAME", "c").replace("MORE", "z = Relu (c)"), "theirs")
    found = check(ours, theirs)
    assert found.verdict == "inconclusive"
    assert found.regions is None
    start = "the places that differ could not be judged by themselves: the output 'z' "
    assert any(doubt.startswith(start) for doubt in found.doubts)


@pytest.mark.parametrize("folder", ["", "elsewhere"])
def test_weights_in_other_files(save: Save, tmp_path: Path, folder: str) -> None:
    """The same file, or one with the same numbers, is the same; another number is found."""
    path = save(steps("1e-12"))
    for name, epsilon in (("same", "1e-12"), ("other", "0.01")):
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        model = onnx.load(save(steps(epsilon), "plain"))
        save_away(model, home / f"{name}.onnx", data=f"{name}.bin")
    assert check(path, tmp_path / folder / "same.onnx").equivalent
    found = check(tmp_path / folder / "same.onnx", tmp_path / folder / "other.onnx")
    assert not found.equivalent
    assert found.objections[0].startswith("LayerNormalization 'l'")


def test_a_model_in_memory_is_judged_as_it_is(save: Save, tmp_path: Path) -> None:
    """One weight of several in other files was put into the model: it is that which counts."""
    net = """g (float[4] x) => (float[4] y)
    <float[4] k = {1, 2, 3, 4}, float s = {100}, uint8 z = {1}> { a = Mul (x, k)
    q = QuantizeLinear (a, s, z)  y = DequantizeLinear (q, s, z) }"""
    path = save_away(onnx.load(save(net)), tmp_path / "away.onnx")
    model = onnx.load(path, load_external_data=False)
    (tensor,) = (each for each in model.graph.initializer if each.name == "k")
    values = np.array([1, 2, 3, 4.1], np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "k"))
    settings = Check(levels=("disable",))
    reference = feed(path, settings)
    candidate = ModelSource(path, content=model.SerializeToString())

    found = judge_places(reference, candidate, Judge(settings, reference.facts, 0), [0])

    (sentence,) = found.differing
    assert sentence.startswith("Mul 'a'")


# A convolution whose mean a normalisation takes off: the last bits of the original are far apart.
NORMALISED = """g (float[1, 2, 8, 8] x) => (float[1, 4, 8, 8] y)
{ c = Conv (x, w, b)  y = BatchNormalization <epsilon = 1e-5> (c, g, e, m, v) }"""
FOLDED = """g (float[1, 2, 8, 8] x) => (float[1, 4, 8, 8] y) { y = Conv (x, w, b) }"""


def normalised(mean: float, *, off: float = 1.0) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the net, and one in which the normalisation was computed in advance.

    Args:
        mean: How far the convolution's values are from zero.
        off: Factor of one folded weight.
    """
    rng = np.random.default_rng(0)
    ours, theirs = proto_from_text(NORMALISED), proto_from_text(FOLDED)
    values = {name: rng.uniform(0.5, 2, 4).astype(np.float32) for name in ("g", "e", "v")}
    values["b"] = values["m"] = np.full(4, mean, np.float32)
    values["w"] = rng.normal(size=(4, 2, 1, 1)).astype(np.float32)
    exact = {name: array.astype(np.float64) for name, array in values.items()}
    scale = exact["g"] / np.sqrt(exact["v"] + 1e-5)
    weights = exact["w"] * scale.reshape(4, 1, 1, 1)
    weights[0, 0] *= off
    folded = {"w": weights, "b": (exact["b"] - exact["m"]) * scale + exact["e"]}
    for model, given in ((ours, values), (theirs, folded)):
        for name, array in given.items():
            tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
            model.graph.initializer.append(tensor)
    return ours, theirs


def check_folded(folder: Path, mean: float, *, off: float = 1.0) -> VerificationResult:
    """Compare the two of `normalised`."""
    paths = folder / "ours.onnx", folder / "theirs.onnx"
    for model, path in zip(normalised(mean, off=off), paths, strict=True):
        onnx.save(model, path)
    return check(*paths)


@pytest.mark.parametrize("mean", [1.0, 1e3, 1e5])
def test_rounding_of_the_original_is_told_from_meaning(tmp_path: Path, mean: float) -> None:
    """However far the original is from what it means, the candidate means the same."""
    found = check_folded(tmp_path, mean)
    assert found.equivalent
    assert found.regions is not None
    assert found.regions.differing == ()
    (output,) = found.outputs
    assert bool(output.excuse) == bool(output.mismatches) == (mean >= 1e3)


def test_a_folded_weight_that_is_wrong_is_seen_through_rounding(tmp_path: Path) -> None:
    """It is off by 3 %, and the original's own rounding moves the output by 1 %."""
    found = check_folded(tmp_path, 1e5, off=1.03)
    assert not found.equivalent
    assert found.regions is not None
    assert len(found.regions.differing) == 1


FACTOR = """g (float[4, 64] x) => (float[4, 64] y) <float k = {FACTOR}>
{ a = Mul (x, k)  y = Tanh (a) }"""


@pytest.mark.parametrize(("factor", "same"), [("1.0000005", True), ("1.000005", False)])
def test_a_constant_may_be_rounded_and_not_changed(save: Save, factor: str, *, same: bool) -> None:
    """Four units in its last place may come from computing it; forty do not."""
    ours, theirs = (
        save(FACTOR.replace("FACTOR", "1.0")),
        save(FACTOR.replace("FACTOR", factor), "b"),
    )
    found = check(ours, theirs)
    assert all(output.ok for output in found.outputs)
    assert found.equivalent == same
    assert found.regions is not None
    assert same or "computed in float64, it is up to" in found.regions.differing[0]


def test_what_is_rounded_more_coarsely_is_refused(save: Save) -> None:
    """A float16 on the way means the same in float64, and is no float32."""
    net = "g (float[4, 64] x) => (float[4, 64] y) { a = Exp (x)  y = Neg (a) }"
    half = net.replace("y = Neg (a)", "h = Cast <to = 10> (a)  b = Cast <to = 1> (h)  y = Neg (b)")
    found = check(save(net), save(half, "theirs"))
    assert not found.equivalent
    assert any("times as far as in the original" in said for said in found.objections)


def test_a_chosen_tolerance_decides_alone(save: Save) -> None:
    """Whoever chose it accepts what is within it, and gets no excuse for what is not."""
    ours, theirs = (
        save(FACTOR.replace("FACTOR", "1.0")),
        save(FACTOR.replace("FACTOR", "1.01"), "b"),
    )
    for atol, same in ((0.1, True), (1e-5, False)):
        settings = Check(levels=("disable",), atol=atol, rtol=0.0)
        assert verify_equivalence(ours, theirs, settings).equivalent == same


def test_blind_outputs_do_not_hide_a_place(save: Save) -> None:
    """No input that is tried moves the output from its edge; inside, values move."""
    net = """g (float[4, 64] x) => (float[4, 64] y) <float low = {2}, float k = {FACTOR}>
        { a = Tanh (x)  b = Mul (a, k)  y = Max (b, low) }"""
    ours = save(net.replace("FACTOR", "1.0"))
    assert check(
        ours, save(net.replace("b = Mul (a, k)", "b = Mul (k, a)").replace("FACTOR", "1.0"), "same")
    ).equivalent
    found = check(ours, save(net.replace("FACTOR", "1.5"), "theirs"))
    assert found.blind_outputs == ("y",)
    assert not found.equivalent


def test_another_form_of_the_same_steps_is_no_difference(save: Save) -> None:
    """Steps without a sign, moved by 128, stand for the same numbers; by 127 they do not."""
    net = """g (float[4, 64] x) => (float[4, 64] y) <float s = {0.02}, int8 z = {0}>
        { a = Tanh (x)  q = QuantizeLinear (a, s, z)  t = Transpose (q)  u = Transpose (t)
          d = DequantizeLinear (u, s, z)  y = Sin (d) }"""
    ours, unsigned = save(net), net.replace("int8 z = {0}", "uint8 z = {ZERO}")
    assert check(ours, save(unsigned.replace("ZERO", "128"), "same")).equivalent
    wrong = unsigned.replace("ZERO", "128").replace(
        "DequantizeLinear (u, s, z)", "DequantizeLinear (u, s, o)"
    )
    wrong = wrong.replace("<float s", "<uint8 o = {127}, float s")
    assert not check(ours, save(wrong, "wrong")).equivalent


def test_what_both_round_has_to_be_the_same_before(save: Save) -> None:
    """Also if another operator computes it, and no input that was tried shows it behind."""
    net = """g (float[4, 8] x) => (float[4, 8] y) <float s = {0.5}>
        { l = OP (x)  f = Floor (l)  y = Mul (f, s) }"""
    found = check(save(net.replace("OP", "Erf")), save(net.replace("OP", "Tanh"), "theirs"))
    assert all(output.max_abs == 0 for output in found.outputs)
    assert found.verdict == "inconclusive"


def in_a_row(count: int, product: str, first: str = "v0") -> str:
    """Return a net of places in a row.

    Args:
        count: How many.
        product: How each is written; ``{}`` is what it reads.
        first: What the first one reads.
    """
    reads = [first, *(f"v{place}" for place in range(1, count))]
    nodes = [f"v{place} = {product.format(read)}" for place, read in enumerate(reads, 1)]
    return f"""g (float[4, 8] v0) => (float[4, 8] v{count}) <float k = {{0.99}}, float none = {{0}}>
        {{ n = Add (v0, none)  {"  ".join(nodes)} }}"""


def test_many_places_run_in_few_sessions(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty places, each fed what the original computes there, take no more sessions than two."""
    asked: list[str] = []

    def counted(source: ModelSource, level: str, engine: Kind = "onnxruntime") -> Runner:
        asked.append(engine)
        return Runner(source, level, engine)

    monkeypatch.setattr(module, "Runner", counted)
    sessions = []
    for count in (2, 40):
        asked.clear()
        ours = save(in_a_row(count, "Mul ({}, k)"), f"a{count}")
        theirs = save(in_a_row(count, "Mul (k, {})", "n").replace("0.99", "0.9899999"), f"b{count}")
        found = check(ours, theirs)
        assert found.equivalent
        assert found.regions is not None
        assert found.regions.judged == count
        sessions.append(len(asked))
    assert sessions[0] == sessions[1] <= 6


def test_one_place_that_does_not_run_leaves_the_others_alone(save: Save) -> None:
    """It is named; the others of its session are judged by themselves."""
    net = """g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float k = {2.0}, float t = {0.5}>
        { a = Mul (x, k)  y = Tanh (a)  b = Mul (x, t)  z = Exp (b) }"""
    theirs = net.replace("{2.0}", "{2.0000002}").replace("{0.5}", "{0.50000006}")
    broken = theirs.replace(
        "z = Exp (b)", "s = Constant <value_ints = [5]> ()  r = Reshape (b, s)  z = Exp (r)"
    )
    ours = save(net)
    assert check(ours, save(theirs, "same")).equivalent
    found = judged(ours, save(broken, "broken"))
    assert found.judged == 3
    (said,) = found.differing
    assert "Exp 'z'" in said
    assert "onnxruntime does not run it" in said


@pytest.mark.parametrize(("other", "same"), [("x", True), ("r", False)])
def test_a_body_may_state_other_sizes(save: Save, other: str, *, same: bool) -> None:
    """In the whole, where it cannot tell beforehand, onnxruntime overlooks that."""
    net = """g (float[n] x) => (float[m] y) <int64 k = {3}>
        { y = Loop (k, "", x) <
            body = b (int64 i, bool c, float[4] s) => (bool d, float[4] o)
            { d = Identity (c) r = Relu (s) LAST }> }"""
    ours = save(net.replace("LAST", "o = Add (r, x)"))
    last = f"h = Sub (r, x) e = Add (x, {other}) o = Add (h, e)"
    theirs = save(net.replace("LAST", last), "theirs")
    found = check(ours, theirs, InputRequest(shapes={"x": (3,)}))
    assert found.equivalent == same
    assert found.regions is not None
    assert [why for why in found.regions.differing if "does not run" in why] == []


def judged(ours: Path, theirs: Path) -> LocalJudgement:
    """Judge the places of a candidate that does not run as a whole."""
    settings = Check(levels=("disable",))
    reference = feed(ours, settings)
    return judge_places(reference, ModelSource(theirs), Judge(settings, Facts(), 0), [0])


TABLE = """g (int64[4] i, float[4, 3] x) => (float[4, 3] y) { r = Gather (w, i)  y = Mul (x, r) }"""


@pytest.mark.parametrize(("row", "factor", "same"), [(7, 1.5, False), (7, 1.0000005, True)])
def test_rows_that_no_input_chose_are_compared(
    tmp_path: Path, row: int, factor: float, *, same: bool
) -> None:
    """A table is compared as it is stored, up to rounding."""
    paths = []
    for name, times in (("ours", 1.0), ("theirs", factor)):
        table = np.linspace(1, 2, 24, dtype=np.float32).reshape(8, 3)
        table[row] *= np.float32(times)
        model = proto_from_text(TABLE)
        model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(model, paths[-1])
    np.savez(tmp_path / "i.npz", i=np.array([0, 1, 2, 3]), x=np.ones((4, 3), np.float32))
    found = check(paths[0], paths[1], InputRequest(given=tmp_path / "i.npz"))
    assert found.equivalent == same
    assert same or found.objections[0].startswith("Gather 'r', fed ")


def test_a_branch_that_is_never_taken_is_none(save: Save) -> None:
    """The condition is stored: what the other branch would compute is no difference."""
    net = """g (float[4, 64] x) => (float[4, 64] y) <bool c = {1}, float k = {0.99}>
        { a = MUL  y = If (c) <
            then_branch = t () => (float[4, 64] u) { u = Tanh (a) },
            else_branch = e () => (float[4, 64] v) { v = OTHER (a) }> }"""
    ours = save(net.replace("MUL", "Mul (x, k)").replace("OTHER", "Sin"))
    theirs = net.replace("MUL", "Mul (k, x)").replace("OTHER", "Cos")
    found = check(ours, save(theirs.replace("{0.99}", "{0.9899999}"), "theirs"))
    assert (found.verdict, found.doubts) == ("equivalent", ())


def test_numbers_that_a_cast_rounds_may_be_a_step_off(save: Save) -> None:
    """In a few elements; a constant that is off by 1 % moves more."""
    net = """g (float[64, 64] x) => (uint8[64, 64] y) <float k = {K}>
        { a = Mul (x, k)  y = Cast <to = 2> (a) }"""
    near = net.replace("a = Mul (x, k)", "b = Mul (x, h)  a = Mul (b, h)").replace(
        "<float k = {K}>", "<float h = {1.7320508}>"
    )
    ours = save(net.replace("K", "3.0"))
    asked = InputRequest(ranges={"x": (0.0, 80.0)})
    found = check(ours, save(near, "near"), asked)
    assert found.equivalent
    assert not check(ours, save(net.replace("K", "3.03"), "theirs"), asked).equivalent


def test_places_are_judged_however_the_candidate_is_to_run(save: Save) -> None:
    """Session options change how fast it runs, not what it means."""
    ours, theirs = save(steps("1e-12")), save(steps("0.01"), "theirs")
    execution = Execution(options=(("intra_op_num_threads", "1"),))
    settings = Check(levels=("disable",), execution=execution)
    found = verify_equivalence(ours, theirs, settings)
    assert found.regions is not None
    assert len(found.regions.differing) == 1


def test_an_output_that_is_stored_is_compared(save: Save) -> None:
    """A candidate that computes nothing has no place to run; what it stores counts."""
    ours = "g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
    theirs = """g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] y = {1, 1, 1, 1, 1, 1}>
        { n = Neg (x) }"""
    found = check(save(ours), save(theirs, "theirs"))
    assert not found.equivalent
    assert "Relu 'y'" in found.objections[0]


def test_an_output_that_was_computed_in_advance_is_the_same(save: Save) -> None:
    """Up to rounding; beside it another output depends on the input."""
    net = """g (float[2, 3] x) => (float[2, 3] y, float[2] z) <float[2] k = {1, 2}>
        { y = Relu (x)  z = Sqrt (k) }"""
    stored = """g (float[2, 3] x) => (float[2, 3] y, float[2] z) <float[2] z = {1, ROOT}>
        { m = Neg (x)  n = Neg (m)  y = Relu (n) }"""
    ours = save(net)
    assert check(ours, save(stored.replace("ROOT", "1.4142136"), "same")).equivalent
    assert not check(ours, save(stored.replace("ROOT", "1.42"), "theirs")).equivalent


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ("x", "different"),  # the input itself may be 1500
        ("a", "inconclusive"),  # whether anything makes this 1500 is not known
        ("b", "equivalent"),  # this cannot be 1500
    ],
)
def test_a_bend_far_above_all_inputs(save: Save, read: str, verdict: str) -> None:
    """Two thresholds: everything is false for what is made up, whichever it is."""
    net = """g (float[4, 64] x) => (bool[4, 64] y) <float k = {K}>
        { a = Selu (x)  b = Tanh (x)  y = Greater (READ, k) }"""
    net = net.replace("READ", read)
    found = check(save(net.replace("K", "1000")), save(net.replace("K", "2000"), "theirs"))
    assert found.verdict == verdict
    assert found.regions is not None
    said = {"different": found.objections, "inconclusive": found.regions.unseen}
    for sentence in said.get(verdict, ()):
        assert sentence.startswith("Greater 'y', fed drawn values (")
    assert found.doubts == found.regions.unseen
    assert len(said.get(verdict, "1")) == 1


def test_each_case_that_fails_is_looked_into(save: Save, tmp_path: Path) -> None:
    """The worst one fails for rounding alone; the other one for another threshold."""
    net = """g (float[64] x, float[64] t) => (float[64] y)
        <float part = {0.018181818}, float whole = {55}, float edge = {EDGE}>
        { a = Mul (x, FIRST)  b = Mul (a, SECOND)  d = Sub (b, x)
          s = Greater (t, edge)  f = Cast <to = 1> (s)  y = Add (d, f) }"""
    ours = net.replace("FIRST", "part").replace("SECOND", "whole").replace("EDGE", "0.5")
    theirs = net.replace("FIRST", "whole").replace("SECOND", "part").replace("EDGE", "0.51")
    numbers = np.arange(1, 65, dtype=np.float32)
    folder = tmp_path / "sets"
    for place, (x, t) in enumerate(((numbers, 0.505), (numbers * 1e6, 0.9))):
        (folder / f"test_data_set_{place}").mkdir(parents=True)
        for slot, (name, values) in enumerate((("x", x), ("t", np.full(64, t, np.float32)))):
            packed = onnx.numpy_helper.from_array(values.astype(np.float32), name)
            path = folder / f"test_data_set_{place}" / f"input_{slot}.pb"
            path.write_bytes(packed.SerializeToString())
    found = check(save(ours), save(theirs, "theirs"), InputRequest(given=folder))
    assert not found.equivalent


def test_a_single_number_can_agree_again(save: Save) -> None:
    """A factor may move behind a sum, whatever the sum's shape is."""
    net = """g (float[4, 64] x) => (float y) <float p = {P}, float q = {Q}>
        { t = Mul (x, p)  s = ReduceSum <keepdims = 0> (t)  y = Mul (s, q) }"""
    ours = save(net.replace("P", "2.0").replace("Q", "3.0"))
    assert check(ours, save(net.replace("P", "3.0").replace("Q", "2.0"), "same")).equivalent
    assert not check(ours, save(net.replace("P", "3.0").replace("Q", "2.1"), "theirs")).equivalent


def test_rounding_where_the_original_is_exact_is_told(save: Save) -> None:
    """It gives zeros, and the candidate the last bits of what it goes round by."""
    ours = "g (float[4, 64] x) => (float[4, 64] y) { y = Sub (x, x) }"
    theirs = """g (float[4, 64] x) => (float[4, 64] y) <float z = {2.0}>
        { a = Add (x, z)  b = Sub (a, z)  y = Sub (b, x) }"""
    asked = InputRequest(ranges={"x": (1.0, 2.0)})
    found = check(save(ours), save(theirs, "theirs"), asked)
    assert not found.equivalent
    assert any("and the original is exact" in said for said in found.objections)


@pytest.mark.parametrize("first", [-np.inf, np.nan, 1.0])
def test_rows_are_compared_beside_what_is_not_finite(tmp_path: Path, first: float) -> None:
    """Also if nothing else differs, and all outputs are the same to the bit."""
    paths = []
    for name, last in (("ours", 2.0), ("theirs", 9.0)):
        model = proto_from_text("g (int64[64] i) => (float[64] y) { y = Gather (w, i) }")
        table = np.linspace(1, 2, 5000, dtype=np.float32)
        table[0], table[4321] = first, last
        model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(model, paths[-1])
    np.savez(tmp_path / "i.npz", i=np.arange(64))
    found = check(paths[0], paths[1], InputRequest(given=tmp_path / "i.npz"))
    assert all(output.max_abs == 0 for output in found.outputs)
    assert found.objections[0].startswith("Gather 'y', ")


def test_float64_is_not_judged_in_float64(tmp_path: Path) -> None:
    """Half a billionth is far more than rounding there."""
    net = "g (double[4, 64] x) => (double[4, 64] y) { a = Add (x, k)  y = Neg (a) }"
    paths = []
    for name, value in (("ours", 0.0), ("theirs", 5e-10)):
        model = proto_from_text(net)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), "k"))
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(model, paths[-1])
    assert not check(paths[0], paths[1]).equivalent


# onnxruntime's optimiser rounds a value before it is moved, and again where it was rounded before.
MOVED = """g (float[32, 64] x) => (float[32, 64] y)
<float s = {0.03125}, float other = {0.03}, uint8 z = {128}, float small = {1.0002},
 float tiny = {0.0002}>
{ t = Transpose <perm = [1, 0]> (x)
  q = QuantizeLinear (t, s, z)
  d = DequantizeLinear (q, s, z)
  y = Transpose <perm = [1, 0]> (d) }"""
ROUNDED_BEFORE = """p = QuantizeLinear (x, s, z)  u = DequantizeLinear (p, s, z)
  t = Transpose <perm = [1, 0]> (u)"""
MOVE = "t = Transpose <perm = [1, 0]> (x)"


def test_what_is_rounded_twice_to_the_same_steps_is_equivalent(save: Save) -> None:
    """Nearly all elements differ before the steps, and none behind them."""
    found = check(save(MOVED), save(MOVED.replace(MOVE, ROUNDED_BEFORE), "theirs"))
    assert found.verdict == "equivalent", found
    assert found.regions is not None
    assert found.regions.judged > 0


@pytest.mark.parametrize(
    "instead",
    [
        ROUNDED_BEFORE.replace("(x, s, z)", "(x, other, z)"),
        "u = Mul (x, small)  t = Transpose <perm = [1, 0]> (u)",
        "u = Add (x, tiny)  t = Transpose <perm = [1, 0]> (u)",
    ],
)
def test_what_steps_hide_by_luck_is_refused(save: Save, instead: str) -> None:
    """A difference that is far smaller than a step, or other steps: some inputs would show it."""
    found = check(save(MOVED), save(MOVED.replace(MOVE, instead), "theirs"))
    assert found.verdict == "different"
    assert found.regions is not None
    assert found.regions.differing


def test_steps_hide_too_little_to_tell(save: Save) -> None:
    """With few elements no difference shows behind the steps, wherever it is: no excuse."""
    few = MOVED.replace("32, 64", "2, 3")
    found = check(save(few), save(few.replace(MOVE, ROUNDED_BEFORE), "theirs"))
    assert found.verdict != "equivalent"


NAMED_SIZES = '<ir_version: 10, opset_import: ["" : 23]> g (float[B, 4, 8] x) => (float[B, 4, 8] y)'


def test_an_operator_that_does_not_run_on_nothing_is_named(save: Save) -> None:
    """It is no difference, but a batch of 0 ran before."""
    spelt = f"""{NAMED_SIZES} <float scale = {{0.35355339}}> {{
        t = Transpose <perm = [0, 2, 1]> (x)  p = MatMul (x, t)  s = Mul (p, scale)
        a = Softmax <axis = -1> (s)  y = MatMul (a, x)
    }}"""
    fused = f"""{NAMED_SIZES} {{
        y = Attention <q_num_heads = 1, kv_num_heads = 1> (x, x, x)
    }}"""
    result = check(save(spelt, "a.onnx"), save(fused, "b.onnx"))
    assert result.verdict == "equivalent"
    assert any("does not run in the candidate where a size is 0" in w for w in result.warnings)
