"""Intervals: what values a model computes can be at all."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.analysis.extract import Wiring
from dplcli.verify.cuts import settled
from dplcli.verify.ranges import Grid, Interval, Ranges
from tests.support.helpers import model_from_bytes, proto_from_text

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

ANYTHING = (-math.inf, math.inf)
NOT_NEGATIVE = (0, math.inf)
KNOWN = """float two = {2}, float half = {0.5}, float[2] some = {-3, 5}, float none = {0},
 int64 zero = {0}, int64 one = {1}, int64 last = {-1}, int64[1] axis = {1}, int64[2] far = {2, 7}"""


def ranges_of(model: onnx.ModelProto) -> Ranges:
    """Return the intervals of a model, as places are asked for them."""
    graph = model_from_bytes(model.SerializeToString()).graph
    return Ranges(Wiring(model), partial(settled, graph))


def ranges(body: str, weights: str = KNOWN) -> Ranges:
    """Return the intervals of a net of this body, which reads *x*, *i*, *b* and *given*."""
    net = "g (float[N, 6] x, int64[N] i, bool[N] b, float given) => (float y)"
    model = proto_from_text(f"{net} <{weights}> {{ {body} }}")
    model.graph.output[0].ClearField("type")  # which depends on the body
    return Ranges(Wiring(model), lambda _: None)


def run(model: onnx.ModelProto, feeds: dict[str, object]) -> list[Floats]:
    """Run a model in onnxruntime, as it stands."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(output, np.float64) for output in session.run(None, feeds)]


def test_constants_without_an_end_may_be_anything() -> None:
    """NaN is neither above a number nor below it: what follows from it is not out of reach."""
    text = """g (float x, uint8 q) => (float a, float b) <float s = {1}> {
        a = Neg (x) b = DequantizeLinear (q, s) }"""
    model = proto_from_text(text)
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array(math.nan, np.float32), "s")
    )
    nan = np.array([1.0, math.nan])
    known = Ranges(Wiring(model), lambda name: nan if name == "a" else None)
    assert (known["a"], known["b"], known["s"]) == (ANYTHING, ANYTHING, ANYTHING)


# -- each rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        # whatever is read
        *((f"y = {op} (x)", *NOT_NEGATIVE) for op in ("Abs", "Exp", "Sqrt", "Softplus", "Relu")),
        *((f"y = {op} (x)", *NOT_NEGATIVE) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare")),
        *((f"y = {op} (x)", *NOT_NEGATIVE) for op in ("Shape", "Size", "NonZero", "ArgMax")),
        *((f"y = {op} (x)", 0, 1) for op in ("Sigmoid", "HardSigmoid", "Softmax", "Hardmax")),
        *((f"y = {op} (x)", -1, 1) for op in ("Tanh", "Erf", "Sin", "Cos", "Softsign", "Sign")),
        ("y = LogSoftmax (x)", -math.inf, 0),
        ("y = Cosh (x)", 1, math.inf),
        *((f"y = {op} (b, b)", 0, 1) for op in ("And", "Or", "Xor")),
        ("y = Identity (x)", *ANYTHING),
        ("y = Selu (x)", *ANYTHING),
        ("y = other.Sigmoid (x)", *ANYTHING),  # of another domain
        # constants
        ("y = Identity (some)", -3, 5),
        ("y = Constant <value = float[2] {1, 4}> ()", 1, 4),
        ("s = Shape (x)  y = ConstantOfShape <value = float[1] {7}> (s)", 7, 7),
        ("s = Shape (x)  y = ConstantOfShape (s)", 0, 0),
        # what is moved or chosen
        ("s = Sigmoid (x)  y = Transpose (s)", 0, 1),
        ("s = Sigmoid (x)  y = Gather <axis = 1> (s, zero)", 0, 1),
        ("s = Sigmoid (x)  y = ReduceMax (s)", 0, 1),
        ("s = Sigmoid (x)  y = GlobalMaxPool (s)", 0, 1),
        ("e = Exp (x)  p, y = Split <axis = 1> (e)", *NOT_NEGATIVE),
        ("y, p = TopK (some, axis)", -3, 5),
        ("v, y = TopK (x, axis)", 0, 2**24),  # places
        ("v, y = MaxPool <kernel_shape = [1]> (x)", 0, 2**24),
        ("t = Add (some, ten)  y = AveragePool <kernel_shape = [1]> (t)", *ANYTHING),
        # what is computed
        ("s = Tanh (x)  y = Neg (s)", -1, 1),
        ("y = Neg (some)", -5, 3),
        ("s = Sigmoid (x)  y = Add (s, two)", 2, 3),
        ("s = Sigmoid (x)  y = Sub (two, s)", 1, 2),
        ("s = Sigmoid (x)  y = Mul (s, some)", -3, 5),
        ("y = Mul (x, x)", *NOT_NEGATIVE),
        ("s = Tanh (x)  y = Mul (s, s)", 0, 1),
        ("y = Mul (x, none)", 0, 0),
        ("y = Pow (x, two)", *NOT_NEGATIVE),
        ("e = Exp (x)  y = Pow (e, half)", *NOT_NEGATIVE),
        ("y = Pow (x, half)", *ANYTHING),
        ("s = Sigmoid (x)  y = Div (s, two)", 0, 0.5),
        ("s = Sigmoid (x)  y = Div (two, s)", *ANYTHING),  # by zero
        ("e = Exp (x)  y = ReduceSum (e)", *NOT_NEGATIVE),
        ("e = Exp (x)  n = Neg (e)  y = ReduceSum (n)", -math.inf, 0),
        ("y = ReduceSum (x)", *ANYTHING),
        ("s = Tanh (x)  y = Relu (s)", 0, 1),
        ("s = Tanh (x)  y = Clip (s, none)", 0, 1),
        ("y = Clip (x, none, two)", 0, 2),
        ("y = Clip (x, , two)", -math.inf, 2),
        ("s = Sigmoid (x)  y = Concat <axis = 0> (s, some)", -3, 5),
        ("s = Sigmoid (x)  y = Where (b, s, some)", -3, 5),
        ("s = Sigmoid (x)  y = Max (s, some)", 0, 5),
        ("s = Sigmoid (x)  y = Min (s, some)", -3, 1),
        ("y = Max (x, two)", 2, math.inf),
        ("y = Cast <to = 9> (x)", 0, 1),
        ("y = Cast <to = 9> (two)", 1, 1),
        ("s = Tanh (x)  y = Cast <to = 11> (s)", -1, 1),
        ("y = Range (zero, one, one)", 0, 1),
        ("s = Sigmoid (x)  d = Dropout (s)  y = Add (d, two)", 2, 3),
        # what is decided
        ("s = Sigmoid (x)  y = Greater (s, two)", 0, 0),
        ("s = Sigmoid (x)  y = Less (s, two)", 1, 1),
        ("s = Sigmoid (x)  y = Greater (s, half)", 0, 1),
        ("s = Sigmoid (x)  y = GreaterOrEqual (s, none)", 1, 1),
        ("s = Sigmoid (x)  y = Less (s, none)", 0, 0),
        ("s = Sigmoid (x)  y = LessOrEqual (s, none)", 0, 1),
        ("s = Sigmoid (x)  y = Equal (s, two)", 0, 0),
        ("y = Equal (two, two)", 1, 1),
        ("s = Sigmoid (x)  c = Greater (s, two)  y = Not (c)", 1, 1),
        ("c = Greater (x, two)  y = Not (c)", 0, 1),
        ("y = IsNaN (x)", 0, 1),
        ("y = BitwiseAnd (i, far)", 0, 7),
        ("y = BitwiseAnd (i, last)", *ANYTHING),
    ],
)  # fmt: skip
def test_rule(body: str, low: float, high: float) -> None:
    """Each operator of which something is known, and what nothing is known of."""
    assert ranges(body)["y"] == pytest.approx((low, high))


def test_what_is_computed_with_stated_sizes_is_known() -> None:
    """What is computed with that of a symbol is not; neither is less than nothing."""
    net = f"""g (float[N, 6] x) => (int64 y, float z, int64 n) <{KNOWN}> {{
        s = Shape (x)  y = Gather (s, one)  f = Cast <to = 1> (y)  h = Mul (f, half)
        z = Ceil (h)  n = Gather (s, zero)
    }}"""
    found = ranges_of(proto_from_text(net))
    assert (found["y"], found["z"], found["n"]) == ((6, 6), (3, 3), NOT_NEGATIVE)
    assert found.is_integral("h")


def test_what_follows_from_sizes_alone_is_told() -> None:
    """A value that also depends on what is fed is none."""
    body = (
        "s = Shape (x)  g = Gather (s, zero)  m = Mul (g, one)  a = Add (g, i)  c = Add (one, one)"
    )
    found = ranges(body)
    told = {name: found.is_size(name) for name in ("s", "g", "m", "a", "c", "x", "one")}
    assert told == {**dict.fromkeys("sgm", True), "a": False, "c": True, "x": False, "one": True}


def test_long_nets_are_looked_at_once() -> None:
    """Ten thousand nodes in a row are no depth to fall into."""
    nodes = [f"v{place + 1} = Relu (v{place})" for place in range(10_000)]
    found = ranges(f"v0 = Identity (x)  {'  '.join(nodes)}")
    assert found["v10000"] in {NOT_NEGATIVE, ANYTHING}
    assert found["v100"] == NOT_NEGATIVE


def test_intervals_unite() -> None:
    """To the least one that holds both."""
    assert Interval(0, 1).union(Interval(3, 4)) == (0, 4)
    assert Interval(low=2).union(Interval(0, 1)) == NOT_NEGATIVE


@pytest.mark.parametrize(
    ("body", "value"),
    [
        pytest.param("s = Sigmoid (x)  r = ReduceSum (s)  y = Clip (none, r)", 3, id="least"),
        pytest.param("s = Sigmoid (x)  y = Clip (two, none, s)", 0.5, id="most"),
        pytest.param("c = Clip (x, half, most)  y = Cast <to = 7> (c)", 0, id="truncated"),
        pytest.param("c = Tanh (x)  y = Cast <to = 2> (c)", 255, id="wrapped"),
        pytest.param("y = Div (seven, three)", 2, id="whole"),
        pytest.param("a = Abs (i)  y = Add (a, a)", -2, id="overflow"),
        pytest.param("s = Sigmoid (x)  y = Dropout (s, half, true)", 2, id="training"),
        pytest.param("y = Min (x, given)", 9, id="default"),
    ],
)
def test_what_can_be_there_is_within(body: str, value: float) -> None:
    """A bound that is computed, whole numbers, random ones, and a default that was replaced."""
    weights = """float none = {0}, float half = {0.5}, float most = {0.9}, float two = {2},
        int64 seven = {7}, int64 three = {3}, bool true = {1}, float given = {1}"""
    found = ranges(body, weights)["y"]
    assert found.low <= value <= found.high


# -- grids ----------------------------------------------------------------------------------------

QDQ = "float s = {0.5}, uint8 u = {128}, int8 z = {0}, float[2] ss = {0.5, 1}, uint8[2] uu = {1, 2}"


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("y = DequantizeLinear (q, s, u)", (0.5, -64, 63.5)),
        ("q8 = QuantizeLinear (x, s, z)  y = DequantizeLinear (q8, s, z)", (0.5, -64, 63.5)),
        ("d = DequantizeLinear (q, s, u)  y = Transpose (d)", (0.5, -64, 63.5)),
        ("d = DequantizeLinear (q, s, u)  y = MaxPool <kernel_shape = [1]> (d)", (0.5, -64, 63.5)),
        ("y = DequantizeLinear (q, ss, uu)",
         ([[0.5, 1]], [[-0.5, -2]], [[127, 253]])),  # one for each channel
        ("y = DequantizeLinear <axis = 0> (q, ss, uu)",
         ([[0.5], [1]], [[-0.5], [-2]], [[127], [253]])),
        ("y = DequantizeLinear <axis = -1> (q, ss, uu)",
         ([[0.5, 1]], [[-0.5, -2]], [[127, 253]])),
        ("d = DequantizeLinear (q, s, u)  y = Relu (d)", None),
        ("y = Relu (x)", None),
    ],
)  # fmt: skip
def test_what_is_dequantised_lies_on_a_grid(
    body: str, grid: tuple[npt.ArrayLike, ...] | None
) -> None:
    """Also if it is moved; not once something computes with it."""
    steps = ranges(f"q = QuantizeLinear (x, s, u)  {body}", QDQ).grid("y", 2)
    assert (steps is None) == (grid is None)
    assert steps != "unknown"
    for found, wanted in zip(steps or (), grid or (), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    "body",
    [
        "d = DequantizeLinear (q, ss, uu)  y = Transpose (d)",  # which channel is where
        "y = DequantizeLinear <axis = 2> (q, ss, uu)",
        "c = Abs (s)  y = DequantizeLinear (q, c, u)",
    ],
)
def test_steps_that_do_not_follow_are_unknown(body: str) -> None:
    """Nothing is drawn there."""
    assert ranges(f"q = QuantizeLinear (x, s, u)  {body}", QDQ).grid("y", 2) == "unknown"


def test_a_grid_holds_all_that_is_dequantised() -> None:
    """Every code, and nothing else; none of it is NaN."""
    net = """g (uint8[256] q) => (float[256] y) <float s = {0.1}, uint8 u = {128}>
        { y = DequantizeLinear (q, s, u) }"""
    model = proto_from_text(net)
    found = ranges_of(model).grid("y", 1)
    assert isinstance(found, Grid)
    (values,) = run(model, {"q": np.arange(256, dtype=np.uint8)})
    assert values.min() == pytest.approx(float(found.low))
    assert values.max() == pytest.approx(float(found.high))
    assert np.allclose(values / found.step, np.round(values / found.step), atol=1e-4)
    body = "q = QuantizeLinear (x, s, u)  d = DequantizeLinear (q, s, u)  y = IsNaN (d)"
    assert ranges(body, QDQ)["y"] == (0, 0)


@pytest.mark.parametrize(
    ("scores", "high"),
    [
        ("r = Add (x, x)", 0),
        ("h = MatMul (x, w)  l = LayerNormalization (h, some)  r = Div (l, two)", 0),
        ("m = Where (yes, none, out)  r = Add (x, m)", 0),  # the mask hides nothing
        ("m = Where (no, none, out)  r = Add (x, m)", 1),
        ("m = Where (b, none, out)  r = Add (x, m)", 1),
        ("r = Log (x)", 1),
        ("l = Log (x)  r = Sigmoid (l)", 1),  # in bounds, but where it is none
        ("m = Constant <value = float {-inf}> ()  r = Add (x, m)", 1),
        ("r = Div (x, given)", 1),
        ("r = Pow (x, half)", 1),
        ("r = com.microsoft.Gelu (x)", 1),
    ],
)
def test_a_guard_of_a_softmax_waits_for_a_row_that_is_hidden(scores: str, high: int) -> None:
    """No mask, or one that hides nothing: PyTorch's guard is never true, but by an input of NaN."""
    weights = f"{KNOWN}, bool yes = {{1}}, bool no = {{0}}, float out = {{-inf}}, float[6, 6] w"
    found = ranges(f"{scores}  s = Softmax (r)  y = IsNaN (s)", f"{weights} = {{{'1, ' * 35} 1}}")
    assert found["y"] == (0, high)


# -- random nets ----------------------------------------------------------------------------------

ONE = (
    *("Abs", "Exp", "Sqrt", "Softplus", "Sigmoid", "HardSigmoid", "Softmax", "Tanh", "Erf", "Sin"),
    *("Cos", "Softsign", "Sign", "LogSoftmax", "Relu", "Neg", "Floor", "Ceil", "Round", "Selu"),
    *("Identity", "Transpose", "Cosh", "Reciprocal", "Dropout", "Log", "Softmax", "Elu"),
)
TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Where", "Clip", "ReduceSum", "Concat")
LOGICAL = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
WEIGHTS = "float w0 = {W0}, float[4] w1 = {W1}, float lo = {-1.5}, float hi = {2.5}"
NUMBERS = st.floats(-4, 4, width=32).map(lambda number: round(number, 2))


@st.composite
def nets(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a net of these operators and constants, and the names of what it computes."""
    known, nodes = ["x", "w0", "w1"], []
    for place in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from((*ONE, *TWO, *LOGICAL)))
        one, other = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        name = f"v{place}"
        if kind in LOGICAL:
            nodes.append(f"b{place} = {kind} ({one}, {other})  n{place} = Not (b{place})")
            nodes.append(f"{name} = Cast <to = 1> ({draw(st.sampled_from('bn'))}{place})")
        elif kind == "Where":
            nodes.append(
                f"b{place} = Greater ({one}, lo)  {name} = Where (b{place}, {one}, {other})"
            )
        elif kind == "Clip":
            bounds = draw(st.sampled_from(["lo, hi", "lo", ", hi", "hi, lo"]))
            nodes.append(f"{name} = Clip ({one}, {bounds})")
        elif kind == "ReduceSum":
            op = draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"]))
            nodes.append(f"{name} = {op} <keepdims = 1> ({one})")
        elif kind == "Concat":
            nodes.append(f"r{place} = Add (x, {one})  q{place} = Add (x, {other})")
            nodes.append(f"c{place} = Concat <axis = 0> (r{place}, q{place})")
            nodes.append(f"{name} = ReduceMin <keepdims = 0> (c{place})")
        elif kind in {"Softmax", "LogSoftmax", "Transpose"}:
            nodes.append(f"r{place} = Add (x, {one})  {name} = {kind} (r{place})")
        else:
            nodes.append(f"{name} = {kind} ({one}{f', {other}' if kind in TWO else ''})")
        known.append(name)
    constants = ", ".join(str(draw(NUMBERS)) for _ in range(4))
    weights = WEIGHTS.replace("W0", str(draw(NUMBERS))).replace("W1", constants)
    net = f"g (float[4] x) => (float[4] y) <{weights}> {{ {'  '.join(nodes)}  y = Identity (v0) }}"
    return net, known[3:]


@given(nets(), st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4))
def test_random_nets_stay_within_their_intervals(
    drawn: tuple[str, list[str]], values: list[float]
) -> None:
    """Rounding aside, up to what is no finite number: nothing is said of what follows."""
    net, names = drawn
    model = proto_from_text(net)
    found = ranges_of(model)
    intervals = {name: found[name] for name in names}
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    outputs = run(model, {"x": np.array(values, np.float32)})
    for name, output in zip(names, outputs, strict=True):
        if not np.isfinite(output).all():
            break
        low, high = intervals[name]
        slack = 1e-5 * (1 + np.abs(output))
        assert np.all(output >= low - slack), name
        assert np.all(output <= high + slack), name
