"""Shapes followed through the graph: by hand, and against what onnxruntime finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from dplcli.onnx_io import load_model
from dplcli.shapes import Term, described, items_of, shape_of
from tests.corpus.nets import each_model, manifest, real_model
from tests.support.models import ir_of

if TYPE_CHECKING:
    from dplcli.shapes.terms import Number


def shape(body: str, inputs: str = "float[b,s,16] x", constants: str = "") -> str:
    """Return the shape of y, as text."""
    header = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>'
    stored = f"<{constants}>" if constants else ""
    model = ir_of(f"{header} g ({inputs}) => (y) {stored} {{ {body} }}")
    value = model.graph.values["y"]
    found = shape_of(value)
    return "unknown" if found is None else ", ".join(_named(described(value, dim)) for dim in found)


def _named(dimension: str) -> str:
    """Say ? for what has no name."""
    return "?" if re.fullmatch(r"n\d+", dimension) else dimension


@pytest.mark.parametrize(
    ("body", "constants", "expected"),
    [
        pytest.param(
            "l = Shape (x) lb = Gather (l, i) lb1 = Unsqueeze (lb, z) n = Concat <axis = 0>"
            " (lb1, m, h) y = Reshape (x, n)",
            "int64 i = {0}, int64[1] z = {0}, int64[1] m = {-1}, int64[2] h = {4, 4}",
            "b, s, 4, 4",
            id="a-target-made-of-a-shape",
        ),
        pytest.param("y = Reshape (x, n)", "int64[2] n = {-1, 16}", "b*s, 16", id="merged"),
        pytest.param("y = Reshape (x, n)", "int64[3] n = {0, -1, 8}", "b, 2*s, 8", id="moved"),
        pytest.param("y = Reshape (x, n)", "int64[2] n = {5, -1}", "5, ?", id="no-exact-quotient"),
        pytest.param("y = Transpose <perm = [2, 0, 1]> (x)", "", "16, b, s", id="transpose"),
        pytest.param("y = Transpose (x)", "", "16, s, b", id="transpose-by-default"),
        pytest.param("y = Flatten <axis = 2> (x)", "", "b*s, 16", id="flatten"),
        pytest.param("y = Concat <axis = 1> (x, x)", "", "b, 2*s, 16", id="concat"),
        pytest.param("y, z = Split <axis = 2, num_outputs = 2> (x)", "", "b, s, 8", id="split"),
        pytest.param(
            "y = Slice (x, i, j, k)",
            "int64[1] i = {0}, int64[1] j = {9223372036854775807}, int64[1] k = {1}",
            "b, s, 16",
            id="slice-of-all",
        ),
        pytest.param(
            "y = Slice (x, i, j, k)",
            "int64[1] i = {-4}, int64[1] j = {9223372036854775807}, int64[1] k = {2}",
            "b, s, 4",
            id="slice-from-the-end",
        ),
        pytest.param(
            "y = Slice (x, i, j, k)",
            "int64[1] i = {0}, int64[1] j = {3}, int64[1] k = {1}",
            "b, ?, 16",
            id="slice-of-what-may-be-shorter",
        ),
        pytest.param(
            "p = Pad (x, n) y = Relu (p)",
            "int64[6] n = {0, 1, 0, 0, 2, 0}",
            "b, s + 3, 16",
            id="pad",
        ),
        pytest.param("y = Tile (x, n)", "int64[3] n = {2, 1, 1}", "2*b, s, 16", id="tile"),
        pytest.param('y = Einsum <equation = "bsc,btc->bst"> (x, x)', "", "b, s, s", id="einsum"),
    ],
)
def test_shapes_that_are_followed(body: str, constants: str, expected: str) -> None:
    """Dimensions are polynomials over those of the inputs, or unknowns of their own."""
    assert shape(body, constants=constants) == expected


def test_what_is_chosen_from_a_table_has_its_type() -> None:
    """Indices enter first, and what is read in their places goes on."""
    inputs = "int32[b,s] i, float[100,8] w, float[8] v, float[8,4] u"
    body = "x = com.microsoft.EmbedLayerNormalization (i, , w, , , v, v) y = MatMul (x, u)"
    header = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>'
    known = ir_of(f"{header} g ({inputs}) => (y) {{ {body} }}").graph.values["y"].known_type()
    assert known is not None
    assert known.dtype == "float32"


def test_products_broadcast_what_comes_before_matrices() -> None:
    """Rows of the first, columns of the second."""
    inputs = "float[b,s,16] x, float[1,16,t] w"

    assert shape("y = MatMul (x, w)", inputs) == "b, s, t"


HEADS = "float[b,2,s,8] q, float[b,2,t,8] k, float[b,2,t,6] v"
ROWS = "float[b,s,16] q, float[b,t,16] k, float[b,t,12] v"
CACHED = f"{HEADS}, float[b,2,p,8] pk, float[b,2,p,6] pv"
GROUPED = "float[b,s,16] q, float[b,s,8] k, float[b,1,m,8] p, int32[b] n, int32 t"
QUANTIZED = "uint8[b,3,4,4] q, uint8[3,1,1] w, float s, uint8 z"
OWN = "com.microsoft"


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        ("y = Attention (q, k, v)", HEADS, "b, 2, s, 6"),
        ("y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)", ROWS, "b, s, 12"),
        ("z, y = Attention (q, k, v, , pk, pv)", CACHED, "b, 2, p + t, 8"),
        ("z, w, y = Attention (q, k, v, , pk, pv)", CACHED, "b, 2, p + t, 6"),
        (f"y = {OWN}.MultiHeadAttention <num_heads = 2> (q, k, v)", ROWS, "b, s, 12"),
        (
            f"y = {OWN}.MultiHeadAttention <num_heads = 2> (q, k, v)",
            "float[b,s,16] q, float[b,2,t,8] k, float[b,2,t,8] v",
            "b, s, 16",
        ),
        ("y = RotaryEmbedding (q, k, k)", "float[b,2,s,8] q, float[b,s,4] k", "b, 2, s, 8"),
        ("y = SimplifiedLayerNormalization (q, k)", "float[b,s,8] q, float[8] k", "b, s, 8"),
        (f"y = {OWN}.GroupQueryAttention (q, k, k, p, p, n, t)", GROUPED, "b, s, 16"),
        (f"y = {OWN}.GroupQueryAttention (q, , , p, p, n, t)", GROUPED, "unknown"),
        (
            f"y = {OWN}.EmbedLayerNormalization (i, , w, , , v, v)",
            "int32[b,s] i, float[100,8] w, float[8] v",
            "b, s, 8",
        ),
        (f"y = {OWN}.QLinearAdd (q, s, z, w, s, z, s, z)", QUANTIZED, "b, 3, 4, 4"),
        (f"y = {OWN}.QLinearSigmoid (q, s, z, s, z)", QUANTIZED, "b, 3, 4, 4"),
        (f"y = {OWN}.QLinearGlobalAveragePool (q, s, z, s, z)", QUANTIZED, "b, 3, 1, 1"),
        (
            f"y = {OWN}.QLinearGlobalAveragePool <channels_last = 1> (q, s, z, s, z)",
            QUANTIZED,
            "b, 1, 1, 4",
        ),
        (f"y = {OWN}.SkipLayerNormalization (q, q, k)", "float[b,s,8] q, float[8] k", "b, s, 8"),
        (
            f"z, , , y = {OWN}.SkipLayerNormalization (q, q, k)",
            "float[b,s,8] q, float[8] k",
            "b, s, 8",
        ),
        (
            f"z, y = {OWN}.SkipLayerNormalization (q, q, k)",
            "float[b,s,8] q, float[8] k",
            "b, s, 1",
        ),
        (f"y = {OWN}.Attention <num_heads = 2> (q, k)", "float[b,s,8] q, float[8,24] k", "b, s, 8"),
        (
            f"y = {OWN}.Attention <num_heads = 2> (q, k)",
            "float[b,s,8] q, float[8,25] k",
            "b, s, y.shape[2]",
        ),
        (
            f"y = {OWN}.Attention <num_heads = 2, qkv_hidden_sizes = [8, 8, 4]> (q, k)",
            "float[b,s,8] q, float[8,20] k",
            "b, s, 4",
        ),
        (f"y = {OWN}.FusedMatMul (q, k)", "float[b,s,8] q, float[8,t] k", "b, s, t"),
        (
            f"y = {OWN}.FusedMatMul <transA = 1, transB = 1> (q, k)",
            "float[b,s,8] q, float[b,t,s] k",
            "b, 8, t",
        ),
        (
            f"y = {OWN}.FusedMatMul <transBatchA = 1> (q, k)",
            "float[b,s,8] q, float[8,t] k",
            "unknown",
        ),
        (f"y = {OWN}.FusedMatMul (q, k)", "float[8] q, float[8,t] k", "unknown"),
        (
            f'y = {OWN}.FusedConv <activation = "Relu", strides = [2, 2]> (q, k)',
            "float[b,3,9,9] q, float[4,3,3,3] k",
            "b, 4, 4, 4",
        ),
        (f"y = {OWN}.FusedGemm <transB = 1> (q, k)", "float[b,3] q, float[4,3] k", "b, 4"),
    ],
)
def test_attention_and_its_companions(body: str, inputs: str, expected: str) -> None:
    """Operators of the standard and of onnxruntime, whose widths onnx does not infer."""
    assert shape(body, inputs) == expected


def test_a_table_cut_to_length_is_as_long_as_what_it_is_added_to() -> None:
    """Else the model would not run: positions are cut from a table of 512."""
    body = "l = Shape <start = 1, end = 2> (x) p = Slice (t, i, l, k) y0 = Add (x, p) y = Relu (y0)"
    inputs = "float[b,s,16] x, float[1,512,16] t"

    assert shape(body, inputs, "int64[1] i = {0}, int64[1] k = {1}") == "b, s, 16"


def test_unknown_symbols_of_inference_are_not_taken_for_names() -> None:
    """Inference calls unknown dimensions unk__0, unk__1, …, and others so the next time."""
    model = ir_of("g (float[unk__0,4] x, float[unk__0,4] z) => (y) { y = Relu (x) }")
    values = model.graph.values

    assert shape_of(values["x"]) != shape_of(values["z"])
    assert shape_of(values["y"]) == shape_of(values["x"])


def test_numbers_are_computed() -> None:
    """Small tensors of numbers are known element by element."""
    model = ir_of(
        "g (float[b,s,16] x) => (y, n) { n = Shape <start = 2, end = 3> (x) f = Cast <to = 1> (n)"
        " y = Sqrt (f) }"
    )
    items = items_of(model.graph.values["y"])

    assert items is not None
    assert items.tolist() == [4.0]


def test_what_cannot_be_told_is_not_guessed() -> None:
    """Whether b equals s is not known, so neither is what is chosen by it."""
    model = ir_of(
        "g (float[b,s] x) => (y) <int64[1] one = {1}, int64[1] two = {2}> {"
        " b = Shape <start = 0, end = 1> (x) s = Shape <start = 1, end = 2> (x) e = Equal (b, s)"
        " y = Where (e, one, two) }"
    )

    items = items_of(model.graph.values["y"])

    assert items is None or isinstance(items[0], Term)


def test_a_deep_graph_is_followed() -> None:
    """Without recursion."""
    lines = ["v0 = Relu (x)", *(f"v{n + 1} = Relu (v{n})" for n in range(5000))]
    model = ir_of(f"g (float[b,4] x) => (v5000) {{ {' '.join(lines)} }}")
    for node in model.graph:
        for output in node.outputs:
            assert output is not None
            output.type_source = None

    last = model.graph.values["v5000"]

    assert [described(last, dim) for dim in shape_of(last) or ()] == ["b", "4"]


MODELS = [
    "bert-legacy17.onnx",
    "gpt2_past-legacy17.onnx",
    "swin-legacy17.onnx",
    "sam_decoder-legacy17.onnx",
    "t5_decoder-legacy17.onnx",
    "deberta-legacy17.onnx",
    "llama-dynamo18-noopt.onnx",
]


@pytest.mark.parametrize("name", each_model(MODELS))
def test_shapes_and_numbers_are_those_of_onnxruntime(name: str) -> None:
    """Every dimension and element, with numbers for the unknowns, is what onnxruntime computes."""
    path = real_model(name)
    model = load_model(path)
    computed = _compute_all(onnx.load(path), manifest()[name]["inputs"])
    numbers: dict[int, int] = {}
    checked = 0

    for value, array in computed.items():
        known = model.graph.values.get(value)
        found = None if known is None else shape_of(known)
        if known is None or found is None:
            continue
        assert len(found) == array.ndim, value
        pairs: list[tuple[Any, Any]] = list(zip(found, array.shape, strict=True))
        items = items_of(known)
        if items is not None:
            assert items.shape == array.shape, value
            pairs += list(zip(items.reshape(-1), array.reshape(-1).tolist(), strict=True))
        for expected, actual in pairs:
            assert _agree(expected, actual, numbers), (value, expected, actual)
        checked += len(pairs)
    assert checked > 1000


def _compute_all(
    proto: onnx.ModelProto, inputs: list[dict[str, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a model and return every value, its inputs first."""
    rng = np.random.default_rng(0)
    feeds = {}
    for item in inputs:
        low, high = item.get("low", 0), item.get("high", 1)
        is_float = item["dtype"].startswith("float")
        data = (
            rng.uniform(low, high, item["example_shape"])
            if is_float
            else rng.integers(low, high + 1, item["example_shape"])
        )
        feeds[item["name"]] = data.astype(item["dtype"])
    named = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        for output in node.output:
            if output and output not in named:
                proto.graph.output.append(onnx.ValueInfoProto(name=output))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, feeds)
    return feeds | dict(zip([o.name for o in session.get_outputs()], found, strict=True))


def _agree(expected: Number | float, actual: float, numbers: dict[int, int]) -> bool:
    """Compare; an unknown that is met for the first time is the number that makes it right."""
    if not isinstance(expected, Term):
        return bool(np.isclose(expected, actual, rtol=1e-4, atol=1e-6))
    new = {serial for product in expected.products for serial in product if serial not in numbers}
    if len(new) == len(expected.products) == 1:
        ((product, factor),) = expected.products.items()
        rest = factor * int(np.prod([numbers[n] for n in product if n in numbers]))
        if product.count(*new) != 1 or not rest or actual % rest:
            return False
        numbers[new.pop()] = int(actual) // rest
    elif new:
        return True
    total = 0
    for product, factor in expected.products.items():
        total += factor * int(np.prod([numbers[serial] for serial in product]))
    return total == actual
