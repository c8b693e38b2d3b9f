"""``dpl accuracy``: how near a quantised model comes to its source."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import dplcli
from dplcli.verify.accuracy import Accuracy, Sums
from tests.support.helpers import proto_from_text

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl

HEAD = "g (float[N, 16] x) => (float[N, 4] y)\n<float[16, 4] w"
WEIGHTS = ", ".join(f"{math.sin(n):.4f}" for n in range(64))
FLOAT = f"""{HEAD} = {{{WEIGHTS}}}> {{ a = Relu (x)  m = MatMul (a, w)  y = Tanh (m) }}"""
QDQ = f"""{HEAD} = {{{WEIGHTS}}}, float s = {{SCALE}}, uint8 z = {{0}}>
{{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
  m = MatMul (d, w)  y = Tanh (m) }}"""
"""The steps begin at zero: they are the Relu, too, as onnxruntime's quantiser leaves it."""


@pytest.fixture(autouse=True)
def models(folder: Path) -> None:
    """Write a model, and two that are quantised, the second in coarse steps."""
    for name, text in (
        ("float", FLOAT),
        ("fine", QDQ.replace("SCALE", "0.02")),
        ("coarse", QDQ.replace("SCALE", "0.5")),
        ("broken", FLOAT.replace("y = Tanh (m)", "b = Log (m)  y = Tanh (b)")),
        ("other", FLOAT.replace("x)", "v)").replace(" x", " v")),
    ):
        onnx.save(proto_from_text(text), folder / f"{name}.onnx")


def figures(one: list[float], two: list[float]) -> Accuracy:
    """Return the figures of two rows."""
    sums = Sums()
    sums.add(np.array([one], np.float32), np.array([two], np.float32))
    return sums.figures()


def test_the_figures_are_the_usual_ones() -> None:
    """Checked by hand: |a|^2 = 25, |b - a|^2 = 0.25, a.b = 25 + 0.5 * 3."""
    got = figures([3, 4, 0], [3.5, 4, 0])
    assert got.sqnr == pytest.approx(20)
    assert got.cosine == pytest.approx(26.5 / (5 * math.hypot(3.5, 4)))
    assert (got.agreement, got.max_abs, got.lost) == (1, 0.5, 0)


@pytest.mark.parametrize(
    ("change", "error", "agreement"),
    [
        ([[0.1, 0.2], [0.3, 0.1], [0.0, 0.5]], 0.1, 1),  # a tenth everywhere
        ([[0, 0], [0, -4], [0, 0]], 4 / math.sqrt(40), 1),
        ([[0, -2], [0, 0], [0, 0]], 2 / math.sqrt(40), 2 / 3),
        ([[0, math.nan], [0, 0], [0, 0]], math.inf, 2 / 3),
    ],
)
def test_the_relative_error_says_the_same_as_sqnr(
    change: list[list[float]], error: float, agreement: float
) -> None:
    """The length of the difference over that of the original; no number at all is no small one."""
    one = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 5.0]])
    sums = Sums()
    sums.add(one, one + change)
    assert sums.figures().relative_error == pytest.approx(error)
    if math.isfinite(error):
        assert sums.figures().agreement == pytest.approx(agreement)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ([1, 2], [1, 2], (math.inf, 1, 1, 0, 0)),
        ([0, 0], [0, 0], (math.inf, 1, 1, 0, 0)),
        ([0, 0], [0, 1], (-math.inf, 0, 0, 1, 0)),
        ([1, math.nan], [1, math.nan], (math.inf, 1, 1, 0, 0)),
        ([1, 2], [1, math.nan], (math.inf, 1, 1, 0, 1)),
        ([1, math.inf], [1, -math.inf], (math.inf, 1, 0, 0, 1)),
    ],
)
def test_corners(one: list[float], two: list[float], expected: tuple[float, ...]) -> None:
    """Nothing at all, and what is no number."""
    assert figures(one, two) == pytest.approx(expected)


def test_the_agreement_of_images_is_that_of_classes() -> None:
    """From rank 4 on, along axis 1: the places of an image are rows."""
    one = np.zeros((1, 3, 2, 2), np.float32)
    two = one.copy()
    one[0, 1], two[0, 1, 0, 0], two[0, 2] = 1, 1, 0.5
    sums = Sums()
    sums.add(one, two)
    assert sums.figures().agreement == 0.25


def test_a_bound_is_kept_or_not(dpl: Dpl, folder: Path) -> None:
    """The fine steps pass; the coarse ones do not, and the report says by how much."""
    bound = ("--min-sqnr", "25", "--min-cosine", "0.99", "--range", "x=-3:3")
    assert dpl("accuracy", "float.onnx", "fine.onnx", *bound, "--save-inputs", "x.npz").code == 0
    assert dpl("accuracy", "float.onnx", "fine.onnx", *bound[:4], "--inputs", "x.npz").code == 0
    files = ("--json", "r.json", "--junit", "j", "--markdown", "m")
    answer = dpl("accuracy", "float.onnx", "coarse.onnx", *bound, *files)
    assert answer.code == 1
    assert "y: SQNR " in answer.err
    record = json.loads((folder / "r.json").read_text())
    assert record["outputs"][0]["sqnr"] < 25
    assert record["unmet"]
    assert (folder / "j").read_text().count("<failure") == 1
    summary = (folder / "m").read_text()
    assert f"- least SQNR dB: {record['outputs'][0]['sqnr']:.1f}" in summary
    assert "at least 25 is asked for" in summary


def test_steps_that_stand_for_a_relu_are_compared_as_they_are_read(dpl: Dpl, folder: Path) -> None:
    """What is not yet rounded is negative, where the original has zeros."""
    answer = dpl("accuracy", "float.onnx", "fine.onnx", "--layers", "--json", "r.json")
    assert answer.code == 0, answer.err
    layers = json.loads((folder / "r.json").read_text())["layers"]
    assert [layer["name"] for layer in layers][-2:] == ["m", "y"]
    assert all(layer["sqnr"] > 20 for layer in layers)


def test_what_is_finite_in_one_model_alone_is_a_no(dpl: Dpl) -> None:
    """Without any bound, too: a figure over the rest would hide it."""
    answer = dpl("accuracy", "float.onnx", "broken.onnx")
    assert answer.code == 1
    assert "finite in one model alone" in answer.err


def test_a_bound_that_nothing_has_is_a_no(dpl: Dpl, folder: Path) -> None:
    """Labels have no SQNR: to ask for one and pass would say something false."""
    labels = proto_from_text("g (float[2, 3] x) => (int64[2, 1] y) { y = ArgMax <axis = 1> (x) }")
    onnx.save(labels, folder / "labels.onnx")
    assert dpl("accuracy", "labels.onnx", "labels.onnx", "--min-agreement", "1").code == 0
    answer = dpl("accuracy", "labels.onnx", "labels.onnx", "--min-sqnr", "10")
    assert answer.code == 1
    assert "no output has an SQNR" in answer.err


@pytest.mark.parametrize(
    ("second", "why"), [("other.onnx", "has no input 'x'"), ("none.onnx", "none.onnx")]
)
def test_models_that_cannot_be_measured(dpl: Dpl, second: str, why: str) -> None:
    """One message, and exit code 2."""
    answer = dpl("accuracy", "float.onnx", second)
    assert answer.code == 2
    assert why in answer.err


def test_from_python(folder: Path) -> None:
    """The same figures, and the same bound."""
    outcome = dplcli.accuracy(folder / "float.onnx", folder / "coarse.onnx", min_sqnr=60)
    assert not outcome.ok
    sqnr = outcome.measured.outputs[0].accuracy.sqnr
    assert sqnr is not None
    assert sqnr < 60


# -- where the accuracy is lost -------------------------------------------------------------------

THREE = f"""g (float[N, 16] x) => (float[N, 16] y)
<float[16, 16] wa = {{{", ".join(f"{math.sin(n):.4f}" for n in range(256))}}},
 float[16, 16] wb = {{{", ".join(f"{math.cos(n):.4f}" for n in range(256))}}},
 float[16, 16] wc = {{{", ".join(f"{math.sin(3 * n):.4f}" for n in range(256))}}}>
{{ a = MatMul (x, wa)  b = Tanh (a)  t = MatMul (b, wb)  c = Relu (t)  y = MatMul (c, wc) }}"""


def stepped(text: str, value: str, step: float) -> str:
    """Return *text* with a value in steps: its readers get it dequantised."""
    head, _, body = text.partition("{ a =")
    name = f"s_{value}"
    head = (
        head.rstrip().removesuffix(">") + f", float {name} = {{{step}}}, uint8 z_{value} = {{128}}>"
    )
    made = f"{value} = "
    before, _, after = f"{{ a ={body}".partition(made)
    op, _, rest = after.partition(")")
    steps = f"{value}q = QuantizeLinear ({value}, {name}, z_{value})  "
    steps += f"{value}d = DequantizeLinear ({value}q, {name}, z_{value})  "
    rest = rest.replace(f"({value}, ", f"({value}d, ").replace(f"({value})", f"({value}d)")
    return f"{head}\n{before}{made}{op})  {steps}{rest}"


def told(dpl: Dpl, folder: Path, original: str, candidate: str, *more: str) -> dict[str, Any]:
    """Measure two models inside, and return the record."""
    for name, text in (("ours", original), ("theirs", candidate)):
        onnx.save(proto_from_text(text), folder / f"{name}.onnx")
    answer = dpl("accuracy", "ours.onnx", "theirs.onnx", "--layers", "--json", "r.json", *more)
    assert answer.code == 0, answer.err
    record: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return record | {"said": answer.out}


def test_a_place_is_blamed_for_the_noise_that_it_adds(dpl: Dpl, folder: Path) -> None:
    """The first value in steps is nearly exact; the last has 20 times as coarse ones."""
    text = stepped(stepped(THREE, "b", 0.008), "c", 0.4)
    record = told(dpl, folder, THREE, text)

    alone = {layer["name"]: layer["sqnr_alone"] for layer in record["layers"]}
    assert alone["c"] < 30 < alone["b"]
    assert alone["y"] == "inf"
    assert record["loss"]["name"] == "c"
    assert [node["op_type"] for node in record["loss"]["nodes"]] == ["Relu"]
    (change,) = record["loss"]["outputs"]
    assert change["before"] == record["outputs"][0]["sqnr"]
    assert change["unrounded"] > change["before"] + 10
    assert [each["name"] for each in record["tried"]] == ["c", "b"]
    assert "Most accuracy is lost at Relu 'c': " in record["said"]


def test_what_is_measured_is_what_leaving_a_place_in_float_gives(dpl: Dpl, folder: Path) -> None:
    """The same model, written by hand with that weight in float, is as near as was said."""
    coarse = THREE.replace("b = Tanh (a)", "b = Tanh (a)  k = Round (wb)").replace(
        "(b, wb)", "(b, k)"
    )
    record = told(dpl, folder, THREE, stepped(coarse, "b", 0.02))
    assert record["loss"]["name"] == "t"
    (change,) = record["loss"]["outputs"]

    again = told(dpl, folder, THREE, stepped(THREE, "b", 0.02))
    assert change["left"] == pytest.approx(again["outputs"][0]["sqnr"], abs=0.01)
    assert f"left in float: {change['left']:.1f} dB at 'y' instead of " in record["said"]


def test_steps_that_are_taken_over_add_no_noise(dpl: Dpl, folder: Path) -> None:
    """A Transpose between equal steps moves numbers; all of the noise is made before it."""
    net = "{ a = MatMul (x, wa)  b = Tanh (a)  t = Transpose <perm = [1, 0]> (b)  y = Neg (t) }"
    text = THREE.partition("{ a =")[0] + net
    both = stepped(stepped(text, "b", 0.05), "t", 0.05)
    record = told(dpl, folder, text, both)

    alone = {layer["name"]: layer["sqnr_alone"] for layer in record["layers"]}
    assert alone["b"] < 40
    assert alone["t"] == "inf"


@pytest.mark.parametrize("opsets", [(13, 18), (18, 13)])
def test_models_of_two_opsets_are_put_together(
    dpl: Dpl, folder: Path, opsets: tuple[int, int]
) -> None:
    """The older one is raised: its ReduceMean has the axes in an attribute."""

    def in_opset(opset: int, text: str) -> str:
        if opset >= 18:
            text = text.replace("ReduceMean <axes = [1]> (t)", "ReduceMean (t, ax)")
            text = text.replace("<float[16, 16] wa", "<int64[1] ax = {1}, float[16, 16] wa")
        return f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'

    net = THREE.replace("c = Relu (t)", "m = ReduceMean <axes = [1]> (t)  c = Sub (t, m)")
    ours = in_opset(opsets[0], net)
    theirs = in_opset(opsets[1], stepped(net, "c", 0.4))
    record = told(dpl, folder, ours, theirs)
    assert record["loss"]["name"] == "c"
    assert record["loss"]["outputs"][0]["unrounded"] == "inf"


def test_nothing_is_said_to_be_lost_where_nothing_is(dpl: Dpl, folder: Path) -> None:
    """One model twice."""
    record = told(dpl, folder, THREE, THREE)
    assert "loss" not in record
    assert "is lost" not in record["said"]
    assert "is added at" not in record["said"]


def test_one_value_is_not_said_to_be_several(dpl: Dpl, folder: Path) -> None:
    """The only value that nodes make."""
    one = "g (float[N, 4] x) => (float[N, 4] y) { y = Tanh (x) }"
    assert "\n1 value inside\n" in told(dpl, folder, one, one)["said"]


QLINEAR = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[N, 3, 6, 6] x) => (float[N, 4, 1, 1] y)
<float sx = {0.03}, uint8 zx = {128}, float sw = {0.01}, int8 zw = {0},
 int8[4, 3, 1, 1] wq = {WEIGHTS},
 float sc = {0.05}, uint8 zc = {0}, float sg = {0.01}, uint8 zg = {0}>
{ xq = QuantizeLinear (x, sx, zx)
  c_quantized = QLinearConv (xq, sx, zx, wq, sw, zw, sc, zc)
  m_quantized = MaxPool <kernel_shape = [2, 2]> (c_quantized)
  g_quantized = com.microsoft.QLinearGlobalAveragePool (m_quantized, sc, zc, sg, zg)
  y = DequantizeLinear (g_quantized, sg, zg) }"""
FLOATING = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N, 3, 6, 6] x) => (float[N, 4, 1, 1] y)
<float[4, 3, 1, 1] w = {WEIGHTS}>
{ c = Conv (x, w)  r = Relu (c)  m = MaxPool <kernel_shape = [2, 2]> (r)
  y = GlobalAveragePool (m) }"""


def test_operators_on_quantised_tensors_are_looked_into(dpl: Dpl, folder: Path) -> None:
    """A QLinearConv is a Conv between steps, and its steps are the Relu, too."""
    weights = [(7 * n) % 50 - 20 for n in range(12)]
    ours = FLOATING.replace("WEIGHTS", ", ".join(f"{n / 100:.2f}" for n in weights))
    theirs = QLINEAR.replace("WEIGHTS", ", ".join(map(str, weights)))
    record = told(dpl, folder, ours, theirs, "--range", "x=-3:3")

    layers = {layer["name"]: layer for layer in record["layers"]}
    assert [*layers] == ["r", "m", "y"]
    assert all(layer["sqnr"] > 25 for layer in layers.values())
    assert layers["m"]["sqnr_alone"] == "inf"


# -- floats of two types --------------------------------------------------------------------------

HALF = f"""{HEAD} = {{{WEIGHTS}}}>
{{ h = Cast <to = 10> (w)  a = Relu (x)  m = MatMul (a, h)  y = Tanh (m) }}"""
HALF = HALF.replace("float[N", "float16[N")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("float", "float16"), ("float16", "float"), ("float", "bfloat16"), ("float", "double")],
)
def test_models_of_two_precisions_are_fed_the_same(
    dpl: Dpl, folder: Path, ours: str, theirs: str
) -> None:
    """Numbers that both hold: nothing but the arithmetic differs, and here there is none."""
    text = "g (TYPE[N, 4] x) => (TYPE[N, 4] y) { y = Identity (x) }"
    for name in (ours, theirs):
        onnx.save(proto_from_text(text.replace("TYPE", name)), folder / f"{name}.onnx")
    answer = dpl("accuracy", f"{ours}.onnx", f"{theirs}.onnx")
    assert answer.code == 0, answer.err
    assert "exact" in answer.out
    assert "note: input 'x' is " in answer.out


def test_a_model_in_half_precision_is_looked_into(dpl: Dpl, folder: Path) -> None:
    """Places are fed in the candidate's type, and left in the original's."""
    record = told(dpl, folder, FLOAT, HALF)
    alone = {layer["name"]: layer["sqnr_alone"] for layer in record["layers"]}
    assert alone["a"] == "inf"
    assert 55 < alone["m"] < 90
    assert record["tried"][0]["outputs"][0]["left"] > 50


def test_what_a_type_cannot_hold_is_no_noise_where_it_is_only_read(dpl: Dpl, folder: Path) -> None:
    """The -3.4e38 of a mask is -65504 in float16, once; what reads it adds nothing."""
    net = """g (TYPE[2, 8] x, bool[2, 8] k) => (TYPE[2, 8] y)
        <TYPE low = {LOW}, TYPE none = {0}> { m = Where (k, none, low)  s = Add (x, m)
        y = Softmax <axis = 1> (s) }"""
    wide = net.replace("TYPE", "float").replace("LOW", "-3.4e38")
    narrow = net.replace("TYPE", "float16").replace("LOW", "64511")  # as bits
    record = told(dpl, folder, wide, narrow)
    alone = {layer["name"]: layer["sqnr_alone"] for layer in record["layers"]}
    assert alone["m"] < 10
    assert alone["s"] > 40
