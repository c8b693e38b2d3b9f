"""The shapes of operators' results, from those of their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir.op_kinds import OP_KINDS
from dplcli.ir.symbolic.analysis import ask_items, ask_shape
from dplcli.ir.symbolic.layout_rules import LAYOUT_RULES
from dplcli.ir.symbolic.reading import argument, attribute, broadcast, numbers
from dplcli.ir.symbolic.size import (
    exact_quotient,
    is_never_negative,
)

if TYPE_CHECKING:
    from dplcli.ir.node import Node
    from dplcli.ir.symbolic.analysis import Found, FoundSteps, ShapeRule
    from dplcli.ir.symbolic.size import Extent

_MATRIX_RANK = 2
_HEADS_RANK = 4


def _same_as_first(node: Node, _: int) -> FoundSteps:
    """The result has the shape of the first input."""
    return (yield from ask_shape(node.inputs[0]))


def _broadcast(node: Node, _: int) -> FoundSteps:
    shape: Found = ()
    for value in node.inputs:
        shape = broadcast(shape, (yield from ask_shape(value)))
    return shape


def _mat_mul(node: Node, _: int) -> FoundSteps:
    left = yield from ask_shape(node.inputs[0])
    right = yield from ask_shape(node.inputs[1])
    if not left or not right:
        return None
    batch = broadcast(left[:-2], right[:-2])
    rows = left[-2:-1]
    columns = right[-1:] if len(right) >= _MATRIX_RANK else ()
    return (*(batch or ()), *rows, *columns)


def _gemm(node: Node, _: int) -> FoundSteps:
    left = yield from ask_shape(node.inputs[0])
    right = yield from ask_shape(node.inputs[1])
    if left is None or right is None:
        return None
    rows = left[1 if attribute(node, "transA", 0) else 0]
    return (rows, right[0 if attribute(node, "transB", 0) else 1])


def _reduce(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    axes = yield from numbers(node, 1)
    if shape is None or (axes is None and argument(node, 1) is not None):
        return None
    if axes is None or not len(axes):
        if attribute(node, "noop_with_empty_axes", 0):
            return shape
        axes = np.arange(len(shape))
    gone = {axis % len(shape) for axis in axes}
    if attribute(node, "keepdims", 1):
        return tuple(1 if axis in gone else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in gone)


def _convolution(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    weight = yield from ask_shape(node.inputs[1])
    if shape is None or weight is None:
        return None
    return (shape[0], weight[0], *(None for _ in shape[2:]))


def _transposed_convolution(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    weight = yield from ask_shape(node.inputs[1])
    if shape is None or weight is None:
        return None
    return (shape[0], weight[1] * attribute(node, "group", 1), *(None for _ in shape[2:]))


def _grid_sample(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    grid = yield from ask_shape(node.inputs[1])
    return None if shape is None or grid is None else (*shape[:2], *grid[1:-1])


def _einsum(node: Node, _: int) -> FoundSteps:
    inputs, arrow, output = attribute(node, "equation").replace(" ", "").partition("->")
    if not arrow or "." in inputs:
        return None
    dims: dict[str, Extent] = {}
    for letters, value in zip(inputs.split(","), node.inputs, strict=True):
        shape = yield from ask_shape(value)
        if shape is None:
            return None
        for letter, dim in zip(letters, shape, strict=True):
            if not isinstance(dims.get(letter), int) or dims[letter] == 1:
                dims[letter] = dim
    return tuple(dims[letter] for letter in output)


def _pool(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    return None if shape is None else (*shape[:2], *(None for _ in shape[2:]))


def _shape_op(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    if shape is None:
        return None
    return (len(shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))]),)


def _constant_of_shape(node: Node, _: int) -> FoundSteps:
    wanted = yield from ask_items(node.inputs[0])
    return None if wanted is None else tuple(wanted)


def _range(node: Node, _: int) -> FoundSteps:
    bounds = []
    for value in node.inputs:
        items = yield from ask_items(value)
        bounds.append(None if items is None else items.reshape(-1)[0])
    start, limit, step = bounds
    if start is None or limit is None or step != 1 or isinstance(step, float):
        return None
    length = limit - start
    return (length,) if is_never_negative(length) else None


def _attention(node: Node, index: int) -> FoundSteps:
    query = yield from ask_shape(node.inputs[0])
    value = yield from ask_shape(node.inputs[2])
    if index or query is None or value is None:
        return None
    if len(query) == _HEADS_RANK:
        return (*query[:3], value[3])
    width = exact_quotient(value[2], attribute(node, "kv_num_heads"))
    return (*query[:2], None if width is None else width * attribute(node, "q_num_heads"))


def _multi_head_attention(node: Node, index: int) -> FoundSteps:
    query = yield from ask_shape(node.inputs[0])
    value = yield from ask_shape(node.inputs[2])
    if index or query is None or value is None:
        return None
    width = value[1] * value[3] if len(value) == _HEADS_RANK else value[2]
    return (*query[:2], width)


_FIRST = """
    Softmax LogSoftmax Hardmax BatchNormalization InstanceNormalization GroupNormalization
    LayerNormalization RMSNormalization LpNormalization MeanVarianceNormalization LRN
    CumSum CumProd Trilu RotaryEmbedding ScatterND ScatterElements Scatter TensorScatter
    ReverseSequence DequantizeLinear QuantizeLinear DynamicQuantizeLinear
"""
_FIRST_OF_ONNXRUNTIME = """
    Gelu BiasGelu FastGelu QuickGelu SkipLayerNormalization SimplifiedLayerNormalization
    SkipSimplifiedLayerNormalization RotaryEmbedding GroupQueryAttention
"""
_OTHERWISE = frozenset({"BitCast", "SwiGLU"})
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def _first_output(rule: ShapeRule) -> ShapeRule:
    """Keep a rule to the first output."""

    def checked(node: Node, index: int) -> FoundSteps:
        return (yield from rule(node, index)) if index == 0 else None

    return checked


_OWN: dict[str, ShapeRule] = {
    "MatMul": _mat_mul,
    "MatMulInteger": _mat_mul,
    "Gemm": _gemm,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "GridSample": _grid_sample,
    "Einsum": _einsum,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "Shape": _shape_op,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Attention": _attention,
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
}

SHAPE_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(OP_KINDS["broadcast"] - _OTHERWISE, _broadcast),
    **dict.fromkeys([*(OP_KINDS["elementwise"] - _OTHERWISE), *_FIRST.split()], _same_as_first),
    **_OWN,
}
SHAPE_RULES = {name: _first_output(rule) for name, rule in SHAPE_RULES.items()} | LAYOUT_RULES
SHAPE_RULES["com.microsoft.MultiHeadAttention"] = _multi_head_attention
SHAPE_RULES |= {
    f"com.microsoft.{name}": _first_output(_same_as_first) for name in _FIRST_OF_ONNXRUNTIME.split()
}
"""By operator; a dimension that a rule leaves None is not known."""
