"""What operators compute, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dplcli.ir.operators import FORMULAS, OP_KINDS, flops
from dplcli.onnx_io import load_model, model_from_proto
from dplcli.pipeline.inspecting import exact_types
from tests.support.helpers import model_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Model, Shape, TensorType, Value
    from dplcli.ir.operators import Shapes

ROOT = Path(__file__).parents[2]
HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "c" : 1]>\n'


def shapes(types: Mapping[Value, TensorType]) -> Shapes:
    """Return what tells the shape of a value."""

    def shape_of(value: Value) -> Shape | None:
        known = types.get(value) or value.declared_type
        return None if known is None else known.shape

    return shape_of


def total(model: Model, sizes: dict[str, int] | None = None) -> tuple[int, int]:
    """Return the operations of all nodes, and how many nodes have an unknown cost."""
    types, _ = exact_types(model, sizes or {})
    costs = [flops(node, shapes(types)) for graph in model.graph.and_inner() for node in graph]
    return sum(cost or 0 for cost in costs), costs.count(None)


def cost(text: str, opset: int = 23) -> int | None:
    """Return what the last node of the graph *text* computes."""
    model = model_from_text(HEADER.replace("{opset}", str(opset)) + f"g {text}")
    types, _ = exact_types(model, {})
    node = list(model.graph)[-1]
    return flops(node, shapes(types))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a convolution: 2 products and sums per weight, 3*3*3 weights, 8*6*6 outputs, bias
        ("(float[1,3,8,8] x, float[8,3,3,3] w) => (y) { y = Conv (x, w) }", 2 * 27 * 288),
        ("(float[1,3,8,8] x, float[8,3,3,3] w, float[8] b) => (y) { y = Conv (x, w, b) }",
         2 * 27 * 288 + 288),
        ("(float[2,4,8,8] x, float[8,2,3,3] w) => (y) { y = Conv <group = 2> (x, w) }",
         2 * (2 * 9) * (2 * 8 * 6 * 6)),
        (("(float[1,4,8,8] x, float[4,1,3,3] w) => (y)"
         " { y = Conv <group = 4, strides = [2, 2], pads = [1, 1, 1, 1]> (x, w) }"),
         2 * 9 * (4 * 4 * 4)),
        ("(float[1,2,9] x, float[4,2,3] w) => (y) { y = Conv <dilations = [2]> (x, w) }",
         2 * 6 * (4 * 5)),
        ("(uint8[1,3,8,8] x, uint8[8,3,3,3] w) => (y) { y = ConvInteger (x, w) }", 2 * 27 * 288),
        (("(uint8[1,3,8,8] x, float s, uint8 z, uint8[8,3,3,3] w, int32[8] b) => (y)"
         " { y = QLinearConv (x, s, z, w, s, z, s, z, b) }"), 2 * 27 * 288 + 288),
        # each input element meets 4*3*3 weights
        ("(float[1,2,5,5] x, float[2,4,3,3] w) => (y) { y = ConvTranspose (x, w) }",
         2 * 50 * 36),
        (("(float[1,2,5,5] x, float[2,4,3,3] w, float[4] b) => (y)"
         " { y = ConvTranspose <strides = [2, 2]> (x, w, b) }"), 2 * 50 * 36 + 4 * 11 * 11),
        # matrix products
        ("(float[2,3] x, float[3,5] w) => (y) { y = MatMul (x, w) }", 2 * 2 * 3 * 5),
        ("(float[7,2,3] x, float[3,5] w) => (y) { y = MatMul (x, w) }", 2 * 7 * 2 * 3 * 5),
        ("(float[1,4,2,3] x, float[6,1,3,5] w) => (y) { y = MatMul (x, w) }",
         2 * 6 * 4 * 2 * 3 * 5),
        ("(float[3] x, float[3,5] w) => (y) { y = MatMul (x, w) }", 2 * 3 * 5),
        ("(float[2,3] x, float[3] w) => (y) { y = MatMul (x, w) }", 2 * 2 * 3),
        ("(float[3] x, float[3] w) => (y) { y = MatMul (x, w) }", 2 * 3),
        ("(uint8[2,3] x, uint8[3,5] w) => (y) { y = MatMulInteger (x, w) }", 2 * 2 * 3 * 5),
        ("(float[2,3] x, float[3,5] w) => (y) { y = Gemm (x, w) }", 60),
        (("(float[3,2] x, float[5,3] w, float[5] b) => (y)"
         " { y = Gemm <transA = 1, transB = 1> (x, w, b) }"), 60 + 10),
        ('(float[2,3] x, float[3,5] w) => (y) { y = Einsum <equation = "ij,jk->ik"> (x, w) }', 60),
        ('(float[2,3] x, float[3,5] w) => (y) { y = Einsum <equation = "ij,jk"> (x, w) }', 60),
        ('(float[2,3] x, float[2,3] w) => (y) { y = Einsum <equation = "ij,ij->ij"> (x, w) }', 6),
        ('(float[2,3] x) => (y) { y = Einsum <equation = "ij->ji"> (x) }', 0),
        ('(float[2,3] x) => (y) { y = Einsum <equation = "ij->i"> (x) }', 6),
        (("(float[7,2,3] x, float[1,3,5] w) => (y)"
         ' { y = Einsum <equation = "...ij, ...jk -> ...ik"> (x, w) }'), 7 * 60),
        (("(float[7,2,3] x, float[7,3,5] w) => (y)"
         ' { y = Einsum <equation = "...ij,...jk"> (x, w) }'), 7 * 60),
        # attention: 2 heads of 4, 3 queries, 5 keys: products 2*3*5*(4+4), scale and softmax 6*3*5
        (("(float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (y)"
         " { y = Attention (q, k, v) }"), 2 * (2 * 15 * 8 + 6 * 15)),
        (("(float[1,3,8] q, float[1,5,8] k, float[1,5,8] v) => (y)"
         " { y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"),
         2 * (2 * 15 * 8 + 6 * 15)),
        # 4 keys of the past and 5 new ones
        (
            ("(float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v, float[1,2,4,4] p,"
            " float[1,2,4,4] r) => (y) { y, k1, v1 = Attention (q, k, v, , p, r) }"),
            2 * (2 * 27 * 8 + 6 * 27),
        ),
        # pools, reductions
        ("(float[1,2,8,8] x) => (y) { y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
         2 * 16 * 4),
        ("(float[1,2,8,8] x) => (y) { y = AveragePool <kernel_shape = [3, 3]> (x) }", 2 * 36 * 9),
        ("(float[1,2,8,8] x) => (y) { y = LpPool <kernel_shape = [3, 3]> (x) }", 2 * 2 * 36 * 9),
        ("(float[1,2,8,8] x) => (y) { y = GlobalAveragePool (x) }", 128),
        ("(float[2,8] x) => (y) { y = ReduceSum (x) }", 16),
        ("(float[2,8] x) => (y) { y = ReduceMean <keepdims = 0> (x) }", 16),
        ("(float[2,8] x) => (y) { y = ReduceL2 (x) }", 32),
        ("(float[2,8] x) => (y) { y = ArgMax (x) }", 16),
        ("(float[2,8] x, int64[1] k) => (y) { y, i = TopK (x, k) }", 16),
        # normalisations: 5 to standardise, scale and shift 1 each
        (("(float[1,2,4,4] x, float[2] s, float[2] b, float[2] m, float[2] v) => (y)"
         " { y = BatchNormalization (x, s, b, m, v) }"), 64),
        ("(float[2,8] x, float[8] s, float[8] b) => (y) { y = LayerNormalization (x, s, b) }",
         7 * 16),
        ("(float[2,8] x, float[8] s) => (y) { y = LayerNormalization (x, s) }", 6 * 16),
        ("(float[2,8] x, float[8] s) => (y) { y = RMSNormalization (x, s) }", 4 * 16),
        ("(float[1,2,4] x, float[2] s, float[2] b) => (y) { y = InstanceNormalization (x, s, b) }",
         7 * 8),
        ("(float[2,8] x) => (y) { y = LpNormalization (x) }", 48),
        ("(float[1,5,2,2] x) => (y) { y = LRN <size = 3> (x) }", 8 * 20),
        ("(float[2,8] x) => (y) { y = Softmax (x) }", 80),
        # element by element
        ("(float[2,8] x) => (y) { y = Relu (x) }", 16),
        ("(float[2,8] x) => (y) { y = Gelu (x) }", 16),
        ("(float[2,1] x, float[8] b) => (y) { y = Add (x, b) }", 16),
        ("(float[2,8] x, float[8] b) => (y) { y = Max (x, b, x) }", 32),
        ("(float[2,8] x, float[8] b) => (y) { y = Mean (x, b) }", 32),
        ("(float[2,8] x) => (y) { y = Sum (x) }", 0),
        ("(float[2,8] x, float s, uint8 z) => (y) { y = QuantizeLinear (x, s, z) }", 32),
        # data that moves
        ("(float[2,8] x) => (y) { y = Transpose (x) }", 0),
        ("(float[2,8] x) => (y) { y = Cast <to = 10> (x) }", 0),
        ("(float[2,8] x) => (y) { y = Concat <axis = 0> (x, x) }", 0),
        ("(float[2,8] x) => (y) { y = Shape (x) }", 0),
        ("(float[1,1,2,2] x, float[4] s) => (y) { y = Resize (x, , s) }", 0),
        (("(float[1,1,2,2] x) => (y) { s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()"
         ' y = Resize <mode = "linear"> (x, , s) }'), 2 * 16 * 4),
        (("(float[1,1,2,2] x) => (y) { s = Constant <value_floats = [1.0, 1.0, 2.0, 1.0]> ()"
         ' y = Resize <mode = "cubic"> (x, , s) }'), 2 * 8 * 4),
        ("(float[1,2,4,4] x, float[1,3,3,2] g) => (y) { y = GridSample (x, g) }", 2 * 18 * 4),
        # 3 signals of 8 points: 5 * 8 * 3 each
        ("(float[3,8,1] x) => (y) { y = DFT (x) }", 360),
        ("(float[3,8,1] x) => (y) { y = DFT <onesided = 1> (x) }", 360),
        ("(float[2,8] x) => (y) { y = Hardmax (x) }", 16),
        # recurrent nets: 3 steps, batch 2, 4 features, state of 5
        (("(float[3,2,4] x, float[1,20,4] w, float[1,20,5] r) => (y) { y = LSTM <hidden_size = 5>"
         " (x, w, r) }"), 6 * (2 * 20 * 9 + 20 + 9 * 5)),
        (("(float[3,2,4] x, float[1,20,4] w, float[1,20,5] r, float[1,40] b) => (y)"
         " { y = LSTM <hidden_size = 5> (x, w, r, b) }"), 6 * (2 * 20 * 9 + 60 + 9 * 5)),
        (("(float[3,2,4] x, float[2,15,4] w, float[2,15,5] r) => (y)"
         ' { y = GRU <hidden_size = 5, direction = "bidirectional"> (x, w, r) }'),
         2 * 6 * (2 * 15 * 9 + 15 + 8 * 5)),
        (("(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (y) { y = RNN <hidden_size = 5>"
         " (x, w, r) }"), 6 * (2 * 5 * 9 + 5 + 5)),
        # onnxruntime's own; their outputs are declared, as onnx cannot infer them
        (("(float[1,3,8,8] x, float[8,3,3,3] w) => (float[1,8,6,6] y)"
         " { y = com.microsoft.FusedConv (x, w) }"), 2 * 27 * 288),
        (("(float[3,2] x, float[3,5] w) => (float[2,5] y)"
         " { y = com.microsoft.FusedMatMul <transA = 1> (x, w) }"), 60),
        ("(float[2,8] x, float[8] b) => (float[2,8] y) { y = com.microsoft.FastGelu (x, b) }", 32),
        (("(float[1,3,8] x, float[1,3,8] s, float[8] g, float[8] b) => (float[1,3,8] y)"
         " { y = com.microsoft.SkipLayerNormalization (x, s, g, b) }"), 24 * (1 + 5 + 2)),
        (("(float[1,3,8] x, float[8,24] w, float[24] b) => (float[1,3,8] y)"
         " { y = com.microsoft.Attention <num_heads = 2> (x, w, b) }"),
         2 * 3 * 8 * 24 + 72 + 2 * (2 * 9 * 8 + 6 * 9)),
        (("(float[1,3,8] q, float[1,5,8] k, float[1,5,8] v) => (float[1,3,8] y)"
         " { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }"),
         2 * (2 * 15 * 8 + 6 * 15)),
    ],
)  # fmt: skip
def test_a_cost_is_the_formulas(text: str, expected: int) -> None:
    """Worked out by hand, in the comment or in the product beside it."""
    assert cost(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(float[n,3] x, float[3,5] w) => (y) { y = MatMul (x, w) }",
        "(float x, float[3,5] w) => (y) { y = MatMul (x, w) }",
        "(float[2,3] x) => (y) { y = c.Own (x) }",
        "(float[2,3] x) => (y) { y = com.microsoft.Unheard (x) }",
        "(float[4,4] x) => (y) { y = Det (x) }",
        "(float[3,8,1] x, int64 n, int64 a) => (y) { y = DFT (x, n, a) }",
        '(float[2,3] x, float[3,5] w) => (y) { y = Einsum <equation = "ijk,jk"> (x, w) }',
        ("(float[1,3,8] q, float[1,5,8] k, float[1,5,8] v) => (float[1,3,8] y)"
        " { y = com.microsoft.MultiHeadAttention (q, k, v) }"),
        "(float[1,2,8] x) => (float[1,2,8] y) { y = MaxPool (x) }",
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_unknown(text: str) -> None:
    """Never zero: a symbol, a foreign operator, a missing attribute, nonsense."""
    assert cost(text) is None


def test_a_negative_size_is_unknown() -> None:
    """Files have them; a cost below zero would make shares above 100 %."""
    (node,) = model_from_text("g (float[2] x) => (y) { y = Relu (x) }").graph

    assert flops(node, lambda _: (-1, 3)) is None
    assert flops(node, lambda _: (0, 3)) == 0


def test_a_size_beyond_all_bounds_is_unknown() -> None:
    """Nor is it printed with three hundred digits."""
    (node,) = model_from_text("g (float[2] x) => (y) { y = Relu (x) }").graph

    assert flops(node, lambda _: (2**62,) * 40) is None


def test_every_operator_that_fuses_or_reduces_has_a_formula() -> None:
    """What onnx's heavy classes hold is counted, but for three that nobody meets."""
    named = OP_KINDS["out-fusable"] | OP_KINDS["reduction"] | OP_KINDS["broadcast"]
    assert named - FORMULAS.keys() == {"MaxRoiPool", "RoiAlign", "NegativeLogLikelihoodLoss"}


# -- whole models ----------------------------------------------------------------------------------


def test_resnet50_takes_the_8_gflop_of_the_literature() -> None:
    """4.1 billion multiply-adds at 224 x 224 (He and others 2016: 3.8, its later form 4.1)."""
    operations, unknown = total(load_model(ROOT / "sample_models" / "light_resnet50.onnx"))

    assert unknown == 0
    assert 8.1e9 < operations < 8.3e9


def encoder(layers: int, width: int, heads: int) -> onnx.ModelProto:
    """Return a BERT encoder, as exporters write it, with weights as inputs."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[tuple[str, list[int | str]]] = [("x", ["batch", "length", width])]

    def make(op: str, read: list[str], made: str, **attributes: Any) -> str:  # noqa: ANN401  # as onnx
        nodes.append(helper.make_node(op, read, [made], **attributes))
        return made

    def dense(read: str, made: str, size: int, bigger: int) -> str:
        inputs.extend([(f"{made}.w", [size, bigger]), (f"{made}.b", [bigger])])
        make("MatMul", [read, f"{made}.w"], f"{made}.product")
        return make("Add", [f"{made}.product", f"{made}.b"], made)

    def normed(read: list[str], made: str) -> str:
        inputs.extend([(f"{made}.g", [width]), (f"{made}.s", [width])])
        make("Add", read, f"{made}.sum")
        return make("LayerNormalization", [f"{made}.sum", f"{made}.g", f"{made}.s"], made)

    split = np.array([0, 0, heads, width // heads])
    constants = [helper.make_tensor("split", TensorProto.INT64, [4], split)]
    constants.append(helper.make_tensor("join", TensorProto.INT64, [3], [0, 0, width]))
    constants.append(helper.make_tensor("root", TensorProto.FLOAT, [], [8.0]))
    x = "x"
    for layer in range(layers):
        at = f"{layer}."
        for part in "qkv":
            dense(x, at + part, width, width)
            make("Reshape", [at + part, "split"], f"{at}{part}.split")
            perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            make("Transpose", [f"{at}{part}.split"], f"{at}{part}.heads", perm=perm)
        make("MatMul", [f"{at}q.heads", f"{at}k.heads"], f"{at}raw")
        make("Div", [f"{at}raw", "root"], f"{at}scores")
        make("Softmax", [f"{at}scores"], f"{at}weights")
        make("MatMul", [f"{at}weights", f"{at}v.heads"], f"{at}mixed")
        make("Transpose", [f"{at}mixed"], f"{at}back", perm=[0, 2, 1, 3])
        make("Reshape", [f"{at}back", "join"], f"{at}joined")
        x = normed([dense(f"{at}joined", f"{at}out", width, width), x], f"{at}first")
        make("Gelu", [dense(x, f"{at}up", width, 4 * width)], f"{at}active")
        x = normed([dense(f"{at}active", f"{at}down", 4 * width, width), x], f"{at}second")
    graph = helper.make_graph(
        nodes,
        "bert",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [onnx.ValueInfoProto(name=x)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_bert_base_takes_the_22_gflop_of_the_literature() -> None:
    """22.5 billion at 128 tokens (MobileBERT, Sun and others 2020, table 4)."""
    model = model_from_proto(encoder(12, 768, 12), Path(), "bert")
    operations, unknown = total(model, {"batch": 1, "length": 128})

    assert unknown == 0
    assert 22.3e9 < operations < 22.6e9


def test_without_sizes_a_symbolic_model_is_unknown() -> None:
    """Neither a guess nor a zero."""
    model = model_from_proto(encoder(1, 64, 4), Path(), "bert")
    operations, unknown = total(model)

    assert (operations, unknown) == (0, sum(node.op_type not in MOVING for node in model.graph))


MOVING = {"Reshape", "Transpose"}
