"""Places that differ are judged by themselves where outputs are a poor witness."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from dplcli.verify import Settings, VerificationResult
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.settings import InputRequest
from tests.verify.conftest import Save

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
    return verify_equivalence(ours, theirs, Settings(levels=("disable",), request=request))


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
        ("Add (x, one)", "Add (one, x)"),
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
    """An output is outside its tolerance; each place gives the same on the original's values."""
    ours = save(CHAOS.replace("Floor (b)", "Sub (b, x)"))
    theirs = save(REORDERED.replace("Floor (b)", "Sub (b, x)"), "theirs")
    found = check(ours, theirs, InputRequest(given=whole_numbers(tmp_path)))
    assert not found.equivalent
    assert found.reasons == ()
    assert found.regions is not None
    assert (found.regions.judged, found.regions.differing) == (2, ())
    assert any("rounding that the model amplifies" in warning for warning in found.warnings)


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


def test_plain_nets_within_their_tolerance_are_not_cut(save: Save) -> None:
    """It costs nothing where the outputs say it all."""
    net = "g (float[8] x) => (float[8] y) { a = Add (x, x)  y = Exp (a) }"
    found = check(save(net), save(net.replace("Exp", "Elu"), "theirs"))
    assert (found.equivalent, found.regions is not None) == (False, True)
    found = check(save(net), save(net.replace("a = Add (x, x)", "z = Identity (x) a = Add (z, x)"),
                              "theirs"))  # fmt: skip
    assert (found.equivalent, found.regions) == (True, None)


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


def test_what_cannot_be_cut_is_a_warning(save: Save) -> None:
    """Sequences are not measured: the outputs decide alone, and the report says so."""
    net = """g (float[4] x) => (float[4] y, seq(float[2]) z)
    { y = Floor (x)  z = SplitToSequence <keepdims = 1> (y) }"""
    theirs = net.replace("y = Floor (x)", "w = Identity (x)  v = Floor (w)  y = Abs (v)")
    found = check(save(net), save(theirs, "theirs"), InputRequest(ranges={"x": (0.0, 9.0)}))
    assert found.equivalent
    assert found.regions is None
    assert any("were not judged by themselves" in warning for warning in found.warnings)


@pytest.mark.parametrize("folder", ["", "elsewhere"])
def test_weights_in_other_files(save: Save, tmp_path: Path, folder: str) -> None:
    """The same file, or one with the same numbers, is the same; another number is found."""
    path = save(steps("1e-12"))
    for name, epsilon in (("same", "1e-12"), ("other", "0.01")):
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        model = onnx.load(save(steps(epsilon), "plain"))
        data = f"{name}.bin"
        onnx.save(model, home / f"{name}.onnx", save_as_external_data=True, location=data,
                  size_threshold=0)  # fmt: skip
    assert check(path, tmp_path / folder / "same.onnx").equivalent
    found = check(tmp_path / folder / "same.onnx", tmp_path / folder / "other.onnx")
    assert not found.equivalent
    assert found.objections[0].startswith("LayerNormalization 'l'")
