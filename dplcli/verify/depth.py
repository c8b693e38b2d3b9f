"""How many roundings lead to an output: the length of the sums along the longest path to it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from dplcli.verify.dataflow import Dataflow, Dims, attribute, subgraphs

# Where the length of a sum cannot be told.
_ASSUMED_TERMS = 4096
_ROW_BY_ROW = frozenset({"Softmax", "LogSoftmax"})
_REDUCTIONS = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"}
    | {"ReduceProd", "ReduceSumSquare", "LpNormalization", "MeanVarianceNormalization"}
    | {"GlobalAveragePool", "InstanceNormalization", "GroupNormalization", "CumSum"}
)
_NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul"})
_FILTERS = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "FusedConv"})
_POOLS = frozenset({"AveragePool", "LpPool"})
_UNKNOWN_SUMS = frozenset({"LSTM", "GRU", "RNN", "Einsum", "Attention", "DFT", "STFT"})
_EXACT = frozenset(
    {"Identity", "Constant", "ConstantOfShape", "Shape", "Size", "Gather", "GatherElements"}
    | {"GatherND", "Where", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice"}
    | {"Split", "Concat", "Expand", "Tile", "Pad", "Relu", "Max", "Min", "MaxPool", "Neg", "Abs"}
    | {"ReduceMax", "ReduceMin", "Dropout", "Clip", "Equal", "Less", "Greater", "And", "Or", "Not"}
)
_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})


@dataclass(frozen=True)
class Depth:
    """What happens to a number on the longest way to an output.

    Attributes:
        roundings: Terms of all sums, and one for each other operator that computes.
        operators: Operators that compute, however many terms each adds.
        assumed: Whether the length of a sum on the way was not known.
    """

    roundings: int = 0
    operators: int = 0
    assumed: bool = False


_NOTHING = Depth()


def output_depths(flow: Dataflow) -> Mapping[str, Depth]:
    """Return the depth of every graph output, where it can be counted (`value_depths`)."""
    known = value_depths(flow)
    names = (info.name for info in flow.model.graph.output)
    return {name: known[name] for name in names if name in known}


def value_depths(flow: Dataflow) -> Mapping[str, Depth]:
    """Return the depth of every value of the main graph; a call or a loop makes it unknown.

    Values behind what cannot be counted (bodies, functions, operators of other domains) are
    left out.
    """
    known: dict[str, Depth | None] = {}
    for node in flow.model.graph.node:
        found = _depth_after(flow, node, known)
        known.update((name, found) for name in node.output if name)
    for info in flow.model.graph.output:
        known.setdefault(info.name, _NOTHING)
    return {name: depth for name, depth in known.items() if depth is not None}


def _depth_after(
    flow: Dataflow, node: onnx.NodeProto, known: Mapping[str, Depth | None]
) -> Depth | None:
    before = [known.get(name, _NOTHING) for name in node.input if name]
    counted = [depth for depth in before if depth is not None]
    bodies = any(True for _ in subgraphs(node))
    if bodies or node.domain not in _DOMAINS or len(counted) < len(before):
        return None
    terms = _terms(flow, node)
    return Depth(
        max((depth.roundings for depth in counted), default=0)
        + (_ASSUMED_TERMS if terms is None else terms),
        max((depth.operators for depth in counted), default=0) + (terms != 0),
        terms is None or any(depth.assumed for depth in counted),
    )


def _terms(flow: Dataflow, node: onnx.NodeProto) -> int | None:
    """Return how many numbers one element of the result sums up; None if that is unknown."""
    if node.op_type in _EXACT:
        return 0
    if node.op_type in _UNKNOWN_SUMS:
        return None
    shapes = [flow.main.dims(name) if name else None for name in node.input]
    count = _SUMS.get(node.op_type)
    return 1 if count is None else count(node, shapes)


def _window(node: onnx.NodeProto, _: list[Dims | None]) -> int | None:
    window = attribute(node, "kernel_shape")
    return math.prod(window.ints) if window is not None else None


def _filter_size(node: onnx.NodeProto, shapes: list[Dims | None]) -> int | None:
    weight = shapes[3 if node.op_type == "QLinearConv" else 1]
    return None if weight is None else _size(weight[1:])


def _row(node: onnx.NodeProto, shapes: list[Dims | None]) -> int | None:
    axis = attribute(node, "axis")
    return None if shapes[0] is None else _size(shapes[0][-1 if axis is None else axis.i :])


def _all_but_first(_: onnx.NodeProto, shapes: list[Dims | None]) -> int | None:
    return None if shapes[0] is None else _size(shapes[0][1:] or shapes[0])


def _inner_size(node: onnx.NodeProto, shapes: list[Dims | None]) -> int | None:
    slots = (0, 3) if node.op_type == "QLinearMatMul" else (0, 1)
    left, right = shapes[slots[0]], shapes[slots[1]]
    turned = attribute(node, "transA")
    if left and not (turned is not None and turned.i) and isinstance(left[-1], int):
        return left[-1]
    across = attribute(node, "transB")
    axis = -1 if across is not None and across.i else -2
    if right and len(right) >= -axis and isinstance(right[axis], int):
        return _size(right[axis : axis + 1 or None])
    return None


def _size(dims: Dims) -> int | None:
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return math.prod(sizes) if len(sizes) == len(dims) else None


_SUMS: Mapping[str, Callable[[onnx.NodeProto, list[Dims | None]], int | None]] = {
    **dict.fromkeys(_PRODUCTS, _inner_size),
    **dict.fromkeys(_FILTERS, _filter_size),
    **dict.fromkeys(_POOLS, _window),
    **dict.fromkeys(_ROW_BY_ROW | _NORMALIZATIONS, _row),
    **dict.fromkeys(_REDUCTIONS, _all_but_first),
}
