"""What is said of shapes and contents, against what onnxruntime makes at several sizes."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ValueInfoProto, helper

from dplcli.ir import TensorType
from dplcli.ir.model import is_exact
from dplcli.onnx_io.infer import infer_for_sizes
from dplcli.shapes import Fact, Knowledge, Term
from dplcli.shapes.rules import CONTENT_RULES, SHAPE_RULES, WINDOW_RULES
from tests.support.helpers import model_from_bytes, model_from_text, proto_from_text

if TYPE_CHECKING:
    from dplcli.ir import Model
    from dplcli.shapes.terms import Number

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
OLD = '<ir_version: 7, opset_import: ["" : 10]>\n'
I = "int64 i0 = {0}, int64 i1 = {1}, int64 k = {2}, int64[1] v0 = {0}, int64[1] v1 = {1}"  # noqa: E741  # constants that many cases use
DIM = "s = Shape(x) d = Gather(s, i0)"

SHAPES = {
    "Relu": "y = Relu(x)",
    "Softmax LogSoftmax Hardmax": "a = Softmax(x) b = LogSoftmax(a) y = Hardmax(b)",
    "LayerNormalization": "<float[6] g = {1,1,1,1,1,1}> y = LayerNormalization(x, g)",
    "BatchNormalization": """<float[m] g, float[m] h> z = Relu(x)
        y = BatchNormalization(z, g, h, g, g)""",
    "InstanceNormalization": "<float[4] g = {1,1,1,1}> y = InstanceNormalization(f, g, g)",
    "GroupNormalization": """<float[4] g = {1,1,1,1}>
        y = GroupNormalization <num_groups = 2> (f, g, g)""",
    "LpNormalization MeanVarianceNormalization": """a = LpNormalization(x)
        y = MeanVarianceNormalization <axes = [0, 1]> (a)""",
    "LRN": "y = LRN <size = 1> (f)",
    "CumSum": "y = CumSum(x, i0)",
    "Trilu": "y = Trilu(x)",
    "PRelu": "<float sl = {2}> y = PRelu(x, sl)",
    "QuantizeLinear DequantizeLinear": """<float sc = {0.5}> a = QuantizeLinear(x, sc)
        y = DequantizeLinear(a, sc)""",
    "DynamicQuantizeLinear": "a, sc, zp = DynamicQuantizeLinear(x) y = Cast <to = 1> (a)",
    "ScatterND": "<int64[1,2] at = {0,0}, float[1] up = {1}> y = ScatterND(q, at, up)",
    "ScatterElements Scatter": """<int64[1,1] at = {0}, float[1,1] up = {1}>
        y = ScatterElements(q, at, up)""",
    "ReverseSequence": "<int64[2] sl = {1, 1}> y = ReverseSequence <batch_axis = 1> (p, sl)",
    "RMSNormalization": "",
    "SimplifiedLayerNormalization": "",
    "Add Sub Mul Div": "a = Add(x, r) b = Sub(r, a) c = Mul(b, x) y = Div(c, x)",
    "Pow Mod Mean Sum Max Min": """a = Pow(x, x) b = Mod <fmod = 1> (a, r) c = Mean(b, r)
        d = Sum(c, x) e = Max(d, r) y = Min(e, x)""",
    "Equal Greater GreaterOrEqual Less LessOrEqual Or And Xor Where": """a = Equal(x, r)
        b = Greater(x, r) c = Or(a, b) d = GreaterOrEqual(x, r) e = And(c, d) l = Less(x, r)
        g = Xor(e, l) h = LessOrEqual(x, r) t = And(g, h) y = Where(t, x, r)""",
    "BitwiseAnd BitwiseOr BitwiseXor BitShift": """a = Cast <to = 13> (x) b = BitwiseAnd(a, a)
        c = BitwiseOr(a, b) d = BitwiseXor(c, b) y = BitShift <direction = "LEFT"> (d, d)""",
    "ReduceSum": "a = ReduceSum(x, v1) y = ReduceMax <keepdims = 0> (a, v0)",
    **{
        f"Reduce{name}": f"y = Reduce{name} <keepdims = 0> (x)"
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
    "ReduceMean": "<int64[1] none = {-1}> y = ReduceMean(x, none)",
    "Dropout": "y, z = Dropout(x)",
    "MatMul": "a = Transpose(x) b = MatMul(x, a) y = MatMul(b, x)",
    "MatMulInteger": """a = Cast <to = 2> (x) b = Transpose(a) y = MatMulInteger(a, b)""",
    "Gemm": "a = Gemm <transB = 1> (x, x) y = Gemm <transA = 1> (a, x)",
    "Transpose": "y = Transpose <perm = [2, 0, 3, 1]> (f)",
    "Reshape": "<int64[3] t = {0, -1, 2}> y = Reshape(x, t)",
    "Flatten": "y = Flatten <axis = 2> (f) b = Flatten <axis = -1> (f) c = Flatten <axis = 0> (f)",
    "Squeeze": "<int64[2] t = {1, -1}> a = Unsqueeze(x, t) y = Squeeze(a, t)",
    "Unsqueeze": "y = Unsqueeze(x, v1)",
    "Concat": "y = Concat <axis = -2> (x, x, q)",
    "Slice": """<int64[1] e = {-1}, int64[1] far = {9223372036854775807}> a = Slice(x, v0, far, v0)
        y = Slice(a, v1, e, v1)""",
    "Gather": "y = Gather <axis = 1> (x, v0)",
    "GatherElements": "<int64[1,1] at = {0}> y = GatherElements(q, at)",
    "GatherND": "<int64[3,1] at = {0,0,0}> y = GatherND(x, at)",
    "Split": "<int64[2] t = {2, 4}> y, z = Split <axis = 1> (x, t)",
    "Split ": "y, z, w = Split <axis = 1, num_outputs = 3> (x)",
    "Expand": f"{DIM} a = Unsqueeze(d, v0) t = Concat <axis = 0> (v1, a, v1) y = Expand(x, t)",
    "Tile": f"{DIM} a = Unsqueeze(d, v0) t = Concat <axis = 0> (a, v1) y = Tile(x, t)",
    "Pad": "<int64[4] t = {1, 0, 2, 3}> y = Pad(x, t)",
    "Pad ": "<int64[2] t = {1, 2}> y = Pad(x, t, , v1)",
    "Shape": "a = Shape(f) y = Shape <start = 1, end = -1> (f)",
    "Size": "y = Size(f)",
    "ConstantOfShape": "s = Shape(x) y = ConstantOfShape(s)",
    "Range": f"{DIM} a = Range(i0, d, i1) b = Range(i1, d, k) y = Concat <axis = 0> (a, b)",
    "ArgMax ArgMin": "a = ArgMax(x) y = ArgMin <axis = 1, keepdims = 0> (x)",
    "OneHot": "<int64 n = {5}, float[2] c = {0, 1}> a = Cast <to = 7> (x) y = OneHot(a, n, c)",
    "TopK": "y, z = TopK(x, v1)",
    "Resize": "<float[4] t = {1, 1, 2, 2}> y = Resize(f, , t)",
    "Resize ": "s = Shape(f) y = Resize(f, , , s)",
    "Einsum": 'y = Einsum <equation = "ab,cb->ca"> (x, x)',
    "DepthToSpace": "y = DepthToSpace <blocksize = 2> (f)",
    "LSTM": """<float[1,8,6] w, float[1,8,2] u> a = Unsqueeze(x, v0)
        y, z, c = LSTM <hidden_size = 2> (a, w, u)""",
    "GRU": """<float[1,6,6] w, float[1,6,2] u> a = Unsqueeze(x, v0)
        y, z = GRU <hidden_size = 2> (a, w, u)""",
    "RNN": """<float[1,2,6] w, float[1,2,2] u> a = Unsqueeze(x, v0)
        y, z = RNN <hidden_size = 2> (a, w, u)""",
    "Conv": "<float[2,2,3,3] w> y = Conv <group = 2, strides = [2, 1], pads = [1, 0, 2, 1]> (f, w)",
    "Conv ": '<float[2,4,3,3] w> y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (f, w)',
    "Conv  ": '<float[2,4,2,2] w> y = Conv <auto_pad = "VALID", dilations = [2, 1]> (f, w)',
    "ConvInteger": "<uint8[2,4,1,1] w> a = Cast <to = 2> (f) y = ConvInteger(a, w)",
    "ConvTranspose": """<float[4,3,3,3] w>
        y = ConvTranspose <strides = [2, 3], pads = [1, 0, 1, 1], output_padding = [1, 0]>
        (f, w)""",
    "MaxPool": "y, z = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1,1,1,1]> (f)",
    "AveragePool LpPool": """a = AveragePool <kernel_shape = [2, 2]> (f)
        y = LpPool <kernel_shape = [2, 2]> (a)""",
    "GlobalMaxPool GlobalAveragePool GlobalLpPool": """a = GlobalMaxPool(f)
        b = GlobalAveragePool(a) y = GlobalLpPool(b)""",
}
"""Graphs of ``x`` [n, 6], ``r`` [1, 6], ``q`` [n, 6], ``p`` [n, 2], ``f`` [n, 4, h, w]."""

CONTENTS = {
    "Shape Gather Unsqueeze Concat": f"{DIM} a = Unsqueeze(d, v0) y = Concat <axis = 0> (a, v1)",
    "Slice": "s = Shape(f) y = Slice(s, v1, last, v0)",
    "Slice ": """<int64[1] far = {-9223372036854775807}>
        s = Shape(f) y = Slice(s, last, far, v0, last)""",
    "Size Identity": "a = Size(x) y = Identity(a)",
    "Cast": f"""{DIM} a = Cast <to = 6> (d) b = Add(d, k) c = Cast <to = 9> (b)
        e = Cast <to = 7> (c) g = Cast <to = 7> (a) y = Add(e, g)""",
    "Split Squeeze": "<int64[2] t = {1, 3}> s = Shape(f) a, b = Split(s, t) y = Squeeze(a, v0)",
    "Reshape Flatten": f"{DIM} y = Reshape(d, last) z = Flatten <axis = 0> (y)",
    "Add Sub Mul": f"{DIM} a = Add(d, k) b = Mul(a, d) c = Sub(b, k) y = Add(c, d)",
    "Div Mod": f"{DIM} a = Mul(d, k) b = Add(a, i1) c = Div(b, k) e = Mod(b, k) y = Add(c, e)",
    "Max Min": f"{DIM} a = Add(d, k) b = Max(d, a) c = Min(d, a) y = Add(b, c)",
    "Neg Abs": f"{DIM} a = Neg(d) b = Neg(a) y = Abs(b)",
    "Equal Where Not": f"{DIM} a = Add(d, i1) b = Equal(a, i0) c = Not(b) y = Where(c, d, k)",
    "Less Greater And Or": f"""{DIM} a = Add(d, i1) b = Less(d, a) c = Greater(d, a)
        e = And(b, c) g = Or(b, c) h = Where(e, d, k) l = Where(g, d, k) y = Add(h, l)""",
    "LessOrEqual GreaterOrEqual": f"""{DIM} a = Add(d, i1) b = LessOrEqual(d, a)
        c = GreaterOrEqual(a, d) e = And(b, c) y = Where(e, d, k)""",
    "Expand ConstantOfShape": f"""<int64[1] three = {{3}}> {DIM} a = Expand(d, three)
        b = ConstantOfShape <value = int64[1] {{-1}}> (three) y = Mul(a, b)""",
    "ReduceProd ReduceSum": """s = Shape(f) a = ReduceProd <keepdims = 0> (s, v0)
        b = ReduceSum(s) c = Squeeze(b) y = Add(a, c)""",
    "ReduceMax ReduceMin": """s = Shape(x) t = Concat <axis = 0> (s, s) u = Slice(t, v1, two, v0)
        a = ReduceMax(u) b = ReduceMin(u) y = Sub(a, b)""",
    "Range": "<int64 n = {5}> y = Range(n, i0, m1)",
}
"""Graphs whose ``y`` is a whole number, or several, computed from shapes."""

MORE = ", int64[1] last = {-1}, int64[1] two = {2}, int64 m1 = {-1}"
SIZES = ({"n": 2, "h": 9, "w": 8, "m": 6}, {"n": 5, "h": 7, "w": 12, "m": 6})
INPUTS = "float[n,6] x, float[1,6] r, float[n,6] q, float[n,2] p, float[n,4,h,w] f"


def graph_of(body: str) -> str:
    """Write a whole model; what a case declares without data is a further input."""
    declared, own = "", ""
    match = re.match(r"\s*<(.*?)>(.*)", body, re.DOTALL)
    if match:
        parts = [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", match[1])]
        declared = "".join(f", {part}" for part in parts if "{" not in part)
        own = "".join(f", {part}" for part in parts if "{" in part)
        body = match[2]
    return f"{HEADER}g ({INPUTS}{declared}) => (y) <{I}{MORE}{own}> {{ {body} }}"


def run(text: str, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Run a model with everything it computes as outputs."""
    proto = proto_from_text(text)
    del proto.graph.output[:]
    names = [name for node in proto.graph.node for name in node.output if name]
    proto.graph.output.extend(ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        dims = [dim.dim_value or sizes[dim.dim_param] for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = (rng.random(dims) + 0.5).astype(dtype)
    return dict(zip(names, session.run(None, feeds), strict=True)) | feeds


def symbols_of(model: Model, knowledge: Knowledge, sizes: dict[str, int]) -> dict[int, int]:
    """Say what the atoms of the inputs' dimensions are."""
    found = {}
    for value in model.graph.inputs:
        declared, shape = value.declared_type, knowledge.shape(value)
        assert declared is not None
        for said, dim in zip(declared.shape or (), shape or (), strict=True):
            if isinstance(said, str) and isinstance(dim, Term):
                ((serial,),) = dim.products
                found[serial] = sizes[said]
    return found


def computed(number: Number, atoms: dict[int, int]) -> int | None:
    """Compute a term; None if it holds an atom that is not a size of an input."""
    if isinstance(number, int):
        return number
    total = 0
    for serials, factor in number.products.items():
        for serial in serials:
            if serial not in atoms:
                return None
            factor *= atoms[serial]  # noqa: PLW2901  # a product
        total += factor
    return total


def check(text: str) -> dict[str, Fact]:
    """Compare every fact with every run; return the facts."""
    model = model_from_text(text)
    knowledge = Knowledge()
    facts = {
        value.name: knowledge.fact(value)
        for node in model.graph
        for value in node.outputs
        if value is not None
    }
    for sizes in SIZES:
        arrays = run(text, sizes)
        atoms = symbols_of(model, knowledge, sizes)
        for name, fact in facts.items():
            _compare(name, fact, arrays[name], atoms)
    return facts


def _compare(name: str, fact: Fact, array: np.ndarray, atoms: dict[int, int]) -> None:
    if fact.shape is not None:
        said = [computed(dim, atoms) for dim in fact.shape]
        assert len(said) == array.ndim, name
        for dim, extent in zip(said, array.shape, strict=True):
            assert dim in (None, extent), name
    if fact.content is not None:
        assert len(fact.content) == array.size, name
        for item, element in zip(fact.content, array.ravel().tolist(), strict=True):
            assert computed(item, atoms) in (None, int(element)), name
    if fact.array is not None:
        np.testing.assert_array_equal(fact.array, array, name)
    if fact.dtype is not None:
        assert np.dtype(fact.dtype) == array.dtype, name


def _is_full(dims: tuple[Number, ...] | None) -> bool:
    """Tell whether nothing is said but in terms of sizes of inputs."""
    return dims is not None and all(
        isinstance(dim, int) or all(s < 6 for product_ in dim.products for s in product_)
        for dim in dims
    )


@pytest.mark.parametrize("name", [name for name, body in SHAPES.items() if body])
def test_shapes(name: str) -> None:
    """Each operator's rule is right at every size, and says something."""
    facts = check(graph_of(SHAPES[name]))

    assert facts["y"].shape is not None


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(name: str) -> None:
    """Each operator's rule is right at every size, and the last number follows from the sizes."""
    facts = check(graph_of(CONTENTS[name]))

    assert _is_full(facts["y"].content)


def test_every_rule_has_a_case() -> None:
    """No rule goes untested."""
    shapes = {name for names in SHAPES for name in names.split()}
    contents = {name for names in CONTENTS for name in names.split()}

    assert {*SHAPE_RULES, *WINDOW_RULES} - {"NonZero", "Upsample"} <= shapes
    assert set(CONTENT_RULES) <= contents


def test_non_zero_and_upsample() -> None:
    """How many elements are not zero is anybody's guess; the rank is not."""
    facts = check(graph_of("y = NonZero(f)"))
    assert facts["y"].shape is not None
    assert facts["y"].shape[0] == 4

    text = f"""{OLD}g (float[n,4,h,w] f) => (y) <float[4] t = {{1, 1, 2, 3}}> {{
        y = Resize(f, t) }}"""
    assert _is_full(check(text)["y"].shape)


@pytest.mark.parametrize(
    "body",
    [
        "y = Reshape(x, g)",
        "y = Expand(r, g)",
        "y = ConstantOfShape(g)",
        "y = Slice(x, g, g)",
        "y = Tile(x, g)",
        "z = Neg(g) y = Expand(r, z)",
        "z = Div(g, g) y = Mod(z, g)",
        "z = Equal(g, g) y = Where(z, g, g)",
        "y = Gather(g, g)",
        "<int64[1] t = {-1}> y = Reshape(x, t)",
    ],
)
def test_numbers_from_outside_are_not_guessed(body: str) -> None:
    """What the caller passes in is known to equal itself, and nothing else is said of it."""
    text = graph_of(body).replace(INPUTS, f"{INPUTS}, int64[2] g")
    model = model_from_text(text)
    knowledge = Knowledge()
    value = model.graph.values["y"]
    for item in (*(knowledge.shape(value) or ()), *(knowledge.content(value) or ())):
        assert isinstance(item, Term) or "t =" in body or item in (0, 1, 2, 6)


def test_a_type_that_disagrees_is_not_believed() -> None:
    """A declared dimension is used, unless sizes that the caller chooses say otherwise."""
    text = (
        f"{HEADER}g (float[n,4] x) => (y) <float[7,4] a, float[1,4] b> {{ a = Relu(x) y = Neg(a) }}"
    )
    model = model_from_text(text)
    knowledge = Knowledge()

    assert knowledge.shape(model.graph.values["a"]) == knowledge.shape(model.graph.values["x"])


SIZED = """{0}g (float[b,2,8] x, int64[3] t, int64[3] u, float[2] m) => (y)
    <int64[3] k = {{0, 2, 8}}> {{ {1} y = Neg(r) }}"""


@pytest.mark.parametrize(
    ("body", "is_known"),
    [
        ("r = Reshape(x, t)", False),
        ("r = Expand(x, t)", False),
        ("s = Add(t, u) q = Reshape(x, s) r = Relu(q)", False),
        ("q = Reshape(x, t) s = Shape(q) r = Reshape(x, s)", False),
        ("z = Unsqueeze(t, k) s = Squeeze(z) r = Tile(x, s)", False),
        ("n = NonZero(m) s = Shape(n) r = Slice(x, s, t)", False),
        ("r = Reshape(x, k)", True),
        ("s = Shape(x) r = Reshape(x, s)", True),
        ("s = Shape(t) q = Reshape(x, k) r = Relu(q)", True),
    ],
)
def test_what_a_file_states_of_sizes_that_callers_choose_is_not_known(
    body: str, *, is_known: bool
) -> None:
    """They may have been so once; only what follows from shapes and constants always is."""
    proto = proto_from_text(SIZED.format(HEADER, body))
    for node in proto.graph.node:
        if node.output[0] in {"q", "r"}:
            stated = helper.make_tensor_value_info(node.output[0], 1, ["b", 2, 8])
            proto.graph.value_info.append(stated)
    model = model_from_bytes(proto.SerializeToString())
    shape = Knowledge().shape(model.graph.values["y"])

    assert shape is not None
    assert len(shape) == 3
    assert (shape[1:] == (2, 8)) is is_known


def test_the_same_symbol_in_two_graphs_is_not_the_same() -> None:
    """A body may run with another size each time: its symbols are its own."""
    text = f"""{HEADER}g (float[n] x, bool c, int64 t) => (float[?] y) {{
        y = Loop (t, c, x) <body = b (int64 i, bool p, float[n] s) => (bool q, float[?] r) {{
          q = Identity(p) r = Concat <axis = 0> (s, s) }}> }}"""
    model = model_from_text(text)
    knowledge = Knowledge()
    body = model.graph.inner[0]

    assert knowledge.shape(model.graph.values["x"]) != knowledge.shape(body.values["s"])
    assert knowledge.shape(model.graph.values["y"]) != knowledge.shape(body.values["r"])


@pytest.mark.parametrize(("one", "other"), list(product(["?", "None", "unk", "-1"], repeat=2)))
def test_placeholders_are_no_symbols(one: str, other: str) -> None:
    """Two dimensions that a tool calls the same for want of a name are not the same."""
    proto = proto_from_text(f"{HEADER}g (float[n] x, float[m] z) => (y) {{ y = Add(x, z) }}")
    for value, name in zip(proto.graph.input, (one, other), strict=True):
        value.type.tensor_type.shape.dim[0].dim_param = name
    first, second = model_from_bytes(proto.SerializeToString()).graph.inputs
    knowledge = Knowledge()

    same = knowledge.shape(first) == knowledge.shape(second)
    assert same is (one == other == "unk")


def test_long_chains_are_no_trouble() -> None:
    """Ten thousand nodes in a row need no stack."""
    steps = " ".join(f"a{n + 1} = Neg(a{n})" for n in range(10_000))
    model = model_from_text(f"{HEADER}g (float[n,4] a0) => (y) {{ {steps} y = Relu(a10000) }}")
    knowledge = Knowledge()

    assert knowledge.shape(model.graph.values["y"]) == knowledge.shape(model.graph.values["a0"])


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("t, y = TopK (x, k)", "int64"),
        ("y, t = TopK (x, k)", "float32"),
        ("t, y = Dropout (x)", "bool"),
        ("t = Cast <to = 11> (x) y = Neg (t)", "float64"),
        ("y = Equal (x, x)", "bool"),
        ("t = com.example.Unknown (x) y = Neg (t)", None),
    ],
)
def test_each_output_has_its_own_type(body: str, dtype: str | None) -> None:
    """The schema says whose type an output has; here nothing else is known of any."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
        g (float[n,4] x) => (y) <int64[1] k = {{2}}> {{ {body} }}"""
    model = model_from_text(text)
    bound = {model.graph.values["x"]: TensorType("float32", (None, None))}
    assert Knowledge(bound).fact(model.graph.values["y"]).dtype == dtype


@pytest.mark.parametrize(("size", "expected"), [(3, (12, 2)), (None, None)])
def test_bound_numbers_are_followed_through_what_is_computed(
    size: int | None, expected: tuple[int, ...] | None
) -> None:
    """From one size come all that follow from it; without it none is a number."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,4,2] x) => (y)
        <int64[2] z = {1, 2}, int64[1] o = {0}, int64[1] b = {2}, int64[1] e = {3}> {
            s = Shape (x) i = Size (x) h = ReduceProd <keepdims = 0> (z) d = Div (i, h)
            u = Unsqueeze (d, o) w = Slice (s, b, e) t = Concat <axis = 0> (u, w)
            y = Reshape (x, t) }"""
    model = model_from_text(text)
    types = infer_for_sizes(model, {} if size is None else {"n": size}).types
    known = types[model.graph.values["y"]]
    assert (known.shape if is_exact(known) else None) == expected


# The types that rules are told where onnx leaves a rank open.


FLAT = """s = Shape (x) v = Constant <value = int64[1] {0}> ()
    o = Constant <value = int64[1] {1}> () h = Slice (s, v, o)
    e = Constant <value = int64[1] {-1}> () t = Concat <axis = 0> (h, e)"""
"""To what an exporter reshapes: the first size, and the rest. onnx does not follow a Slice."""


def known(body: str, inputs: str, name: str = "y", outputs: str = "y") -> str:
    """Return what is known of the type of a value, as rules see it."""
    model = model_from_text(f"{EXPORTED} g ({inputs}) => ({outputs}) {{ {body} }}")
    return str(model.graph.values[name].known_type())


EXPORTED = '<ir_version: 7, opset_import: ["" : 13, "com.microsoft" : 1, "own" : 1]>'


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        pytest.param(f"{FLAT} y = Reshape (x, t)", "float[b,3,4] x", "float32[b,12]", id="numbers"),
        pytest.param(
            f"{FLAT} r = Reshape (x, t) y = Relu (r)",
            "float[b,c,4] x",
            "float32[b,(4*c)]",
            id="term",
        ),
        pytest.param(
            f"{FLAT} r = Reshape (x, t) y = Cast <to = 7> (r)",
            "float[b,3,4] x",
            "int64[b,12]",
            id="type",
        ),
        pytest.param(
            "t = Constant <value = int64[2] {-1, 4}> () r = Reshape (x, t) y = Relu (r)",
            "float[b,c,4] x",
            "float32[(b*c),4]",
            id="made-up-by-onnx",
        ),
        pytest.param(
            "n = NonZero (x) y = Neg (n)", "float[b,c] x", "int64[2,unk__0]", id="nobody-knows"
        ),
        pytest.param("y = own.Foo (x)", "float[b,3] x", "None", id="foreign"),
        pytest.param(
            "y = Reshape (x, t)", "float[b,3] x, int64[k] t", "float32", id="sizes-nobody-knows"
        ),
        pytest.param("y = Relu (x)", "float x", "float32[]", id="scalar"),
        pytest.param("z = own.Foo (x) y = Add (z, x)", "float[b,3] x", "float32", id="half-known"),
    ],
)
def test_what_rules_are_told(body: str, inputs: str, expected: str) -> None:
    """A rank and sizes if they follow from the graph, and nothing that is only likely."""
    assert known(body, inputs) == expected


def with_symbols(text: str, symbols: dict[str, str]) -> Model:
    """Read a model; give its inputs symbols that ONNX text cannot spell."""
    proto = proto_from_text(text)
    for info in proto.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.dim_param = symbols.get(dim.dim_param, dim.dim_param)
    return model_from_bytes(proto.SerializeToString())


@pytest.mark.parametrize("odd", ["(2*n)", "2*n", "n", "(2*n)'", "?", "n0", "y.shape[1]"])
def test_equal_sizes_have_equal_symbols_and_others_do_not(odd: str) -> None:
    """However odd the symbols of a file are: one may be spelled as ours are."""
    body = f"""{FLAT} y = Reshape (x, t) z = Neg (y)
        us = Shape (u) uh = Slice (us, v, o) ut = Concat <axis = 0> (uh, e)
        w = Reshape (u, ut)"""
    text = f"{EXPORTED} g (float[b,n,2] x, float[odd,3] u) => (z, w) {{ {body} }}"
    values = with_symbols(text, {"odd": odd}).graph.values
    types = [values[name].known_type() for name in "yzw"]
    y, z, w = (found.shape for found in types if found is not None and found.shape is not None)

    assert y == z
    assert y[0] == "b"
    assert y[1] not in {w[0], None, "n"}
    assert w[1] == 3
    assert w[0] is not None


def test_what_a_broken_node_makes_stays_unknown() -> None:
    """A permutation of too many axes is no reason to stop."""
    assert known(
        f"{FLAT} r = Reshape (x, t) y = Transpose <perm = [0, 1, 7]> (r)", "float[b,3] x"
    ) in {
        "None",
        "float32",
    }


def test_a_body_sees_what_is_known_outside() -> None:
    """Captured values have types, too."""
    body = f"""{FLAT} r = Reshape (x, t)
        y = If (c) <then_branch = a () => (float[p,q] k) {{ k = Relu (r) }},
                    else_branch = d () => (float[p,q] l) {{ l = Neg (r) }}>"""
    model = model_from_text(f"{EXPORTED} g (float[b,3,4] x, bool c) => (float[p,q] y) {{ {body} }}")
    branches = next(node for node in model.graph if node.subgraphs).subgraphs
    value = branches["then_branch"].values["k"]
    reads = value.producer.inputs[0] if value.producer is not None else None

    assert reads is not None
    assert str(reads.known_type()) == "float32[b,12]"
