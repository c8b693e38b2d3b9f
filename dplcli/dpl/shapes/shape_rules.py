"""Shapes of what a node makes, from those of what it reads, for any values of the atoms.

A rule gets the view of a node and returns the shapes of its outputs; None stands for a shape, or
a dimension, that the rule cannot tell. What is not here is left to the schemas' own inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.shapes.arithmetic import broadcast, product, quotient, reshaped, slice_length
from dplcli.dpl.shapes.terms import add, multiply, negative

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims, View

    PartlyKnown: TypeAlias = Sequence[Number | None]
    Shapes: TypeAlias = Sequence[PartlyKnown | None]
    ShapeRule: TypeAlias = Callable[[View], Shapes]

_MATRIX = 2


def _same(view: View) -> Shapes:
    return [view.shape()]


def _same_for_all(view: View) -> Shapes:
    return [view.shape()] * len(view.node.outputs)


def _broadcast(view: View) -> Shapes:
    shapes = [shape for slot in range(view.count) if (shape := view.shape(slot)) is not None]
    return [broadcast(view.algebra, shapes)] if len(shapes) == view.count else []


def _matmul(view: View) -> Shapes:
    a, b = view.shape(0), view.shape(1)
    if not a or not b:
        return []
    left, right = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    made: Dims = broadcast(view.algebra, [left[:-2], right[:-2]])
    made += (left[-2],) * (len(a) > 1) + (right[-1],) * (len(b) > 1)
    return [made]


def _gemm(view: View) -> Shapes:
    a, b = view.shape(0), view.shape(1)
    if a is None or b is None or len(a) != _MATRIX or len(b) != _MATRIX:
        return []
    rows, columns = view.integer("transA", 0), view.integer("transB", 0)
    if rows is None or columns is None:
        return []
    return [(a[1 if rows else 0], b[0 if columns else 1])]


def _transpose(view: View) -> Shapes:
    shape, perm = view.shape(), view.integers("perm")
    if shape is None:
        return []
    order = list(reversed(range(len(shape)))) if perm is None else perm
    return [[shape[axis] for axis in order]] if sorted(order) == [*range(len(shape))] else []


def _reshape(view: View) -> Shapes:
    target = view.content(1)
    copies = view.integer("allowzero", 0) == 0
    if target is None:
        length = view.shape(1)
        known = length is not None and len(length) == 1 and isinstance(length[0], int)
        return [[None] * length[0]] if known and length and isinstance(length[0], int) else []
    return [reshaped(view.algebra, view.shape(), target, copies=copies)]


def _flatten(view: View) -> Shapes:
    shape, axis = view.shape(), view.integer("axis", 1)
    if shape is None or axis is None:
        return []
    cut = axis + len(shape) if axis < 0 else axis
    return [(product(shape[:cut]), product(shape[cut:]))]


def _squeeze(view: View) -> Shapes:
    shape = view.shape()
    if shape is None:
        return []
    if not view.has(1):
        return [[d for d in shape if d != 1]] if all(isinstance(d, int) for d in shape) else []
    axes = view.axes(1, len(shape))
    return [] if axes is None else [[d for axis, d in enumerate(shape) if axis not in axes]]


def _unsqueeze(view: View) -> Shapes:
    shape, added = view.shape(), view.numbers(1)
    if shape is None or added is None:
        return []
    axes = view.axes(1, len(shape) + len(added))
    if axes is None or len(set(axes)) < len(axes):
        return []
    rest = iter(shape)
    return [[1 if axis in axes else next(rest) for axis in range(len(shape) + len(added))]]


def _concat(view: View) -> Shapes:
    shapes = [shape for slot in range(view.count) if (shape := view.shape(slot)) is not None]
    axis = view.integer("axis")
    if len(shapes) < view.count or axis is None or len({len(s) for s in shapes}) != 1:
        return []
    rank = len(shapes[0])
    if not -rank <= axis < rank:
        return []
    total: Number = 0
    for shape in shapes:
        total = add(total, shape[axis])
    made = [_best(view, [shape[place] for shape in shapes]) for place in range(rank)]
    made[axis % rank] = total
    return [made]


def _best(_view: View, dims: Sequence[Number]) -> Number:
    """Return the one of several equal dimensions that says most."""
    return next((dim for dim in dims if isinstance(dim, int)), dims[0])


def _slice(view: View) -> Shapes:
    shape, starts, ends = view.shape(), view.content(1), view.content(2)
    if shape is None or starts is None or ends is None or len(starts) != len(ends):
        return [None if shape is None else [None] * len(shape)]
    axes = view.axes(3, len(shape)) if view.has(3) else list(range(len(starts)))
    steps = view.content(4) if view.has(4) else (1,) * len(starts)
    if axes is None or steps is None or len(axes) != len(starts) or len(steps) != len(starts):
        return [[None] * len(shape)]
    made: list[Number | None] = list(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made[axis] = slice_length(view.algebra, shape[axis], start, end, step)
    return [made]


def _gather(view: View) -> Shapes:
    data, indices, axis = view.shape(0), view.shape(1), view.integer("axis", 0)
    if not data or indices is None or axis is None:
        return []
    place = axis % len(data)
    return [(*data[:place], *indices, *data[place + 1 :])]


def _gather_elements(view: View) -> Shapes:
    return [view.shape(1)]


def _gather_nd(view: View) -> Shapes:
    data, indices, batch = view.shape(0), view.shape(1), view.integer("batch_dims", 0)
    if data is None or not indices or batch is None or not isinstance(indices[-1], int):
        return []
    return [(*indices[:-1], *data[batch + indices[-1] :])]


def _split(view: View) -> Shapes:
    shape, axis, lengths = view.shape(), view.integer("axis", 0), view.content(1)
    count = len(view.node.outputs)
    if not shape or axis is None:
        return []
    place, dim = axis % len(shape), shape[axis]
    parts: Sequence[Number | None]
    if lengths is not None and len(lengths) == count:
        parts = lengths
    elif view.has(1) or not isinstance(dim, int):
        parts = [None] * count
    else:
        size = -(-dim // count)
        parts = [min(size, dim - size * number) for number in range(count)]
    return [[*shape[:place], part, *shape[place + 1 :]] for part in parts]


def _expand(view: View) -> Shapes:
    shape, target = view.shape(0), view.content(1)
    if shape is None or target is None:
        return []
    if any(not view.algebra.is_at_least(dim, 0) for dim in target):
        return [[None] * max(len(shape), len(target))]
    return [broadcast(view.algebra, [shape, target])]


def _tile(view: View) -> Shapes:
    shape, repeats = view.shape(0), view.content(1)
    if shape is None or repeats is None or len(repeats) != len(shape):
        return []
    return [[multiply(dim, times) for dim, times in zip(shape, repeats, strict=True)]]


def _pad(view: View) -> Shapes:
    shape, pads = view.shape(0), view.content(1)
    if shape is None or pads is None:
        return [None if shape is None else [None] * len(shape)]
    axes = view.axes(3, len(shape)) if view.has(3) else list(range(len(shape)))
    if axes is None or len(pads) != 2 * len(axes):
        return []
    made = list(shape)
    for number, axis in enumerate(axes):
        made[axis] = add(add(shape[axis], pads[number]), pads[number + len(axes)])
    return [made]


def _vector(view: View) -> Shapes:
    """Shape: a vector as long as the rank, or a part of that."""
    shape = view.shape()
    start, end = (
        view.integer("start", 0),
        view.integer("end", None if shape is None else len(shape)),
    )
    if shape is None or start is None or end is None:
        return [[None]]
    return [(len(shape[start:end]),)]


def _scalar(_view: View) -> Shapes:
    return [()]


def _constant_of_shape(view: View) -> Shapes:
    target = view.content(0)
    if target is None:
        return []
    return [[dim if view.algebra.is_at_least(dim, 0) else None for dim in target]]


def _range(view: View) -> Shapes:
    start, limit, delta = (view.scalar(slot) for slot in range(3))
    if start is None or limit is None or not isinstance(delta, int) or delta <= 0:
        return [[None]]
    length = view.algebra.larger(add(limit, negative(start)), 0)
    return [(length if delta == 1 else view.algebra.floor_divide(add(length, delta - 1), delta),)]


def _reduce(view: View) -> Shapes:
    shape, keep = view.shape(), view.integer("keepdims", 1)
    if shape is None or keep is None:
        return []
    if view.has(1):
        axes = view.axes(1, len(shape))
        if axes is None:
            return []
    else:
        axes = []
    if not axes:
        if view.integer("noop_with_empty_axes", 0):
            return [shape]
        axes = list(range(len(shape)))
    return [_without(shape, axes, keep=bool(keep))]


def _arg(view: View) -> Shapes:
    shape, axis, keep = view.shape(), view.integer("axis", 0), view.integer("keepdims", 1)
    if not shape or axis is None or keep is None:
        return []
    return [_without(shape, [axis % len(shape)], keep=bool(keep))]


def _without(shape: Dims, axes: Sequence[int], *, keep: bool) -> Dims:
    kept = [
        1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes
    ]
    return tuple(kept)


def _non_zero(view: View) -> Shapes:
    shape = view.shape()
    return [] if shape is None else [(len(shape), None)]


def _one_hot(view: View) -> Shapes:
    indices, depth, axis = view.shape(0), view.scalar(1), view.integer("axis", -1)
    if indices is None or axis is None:
        return []
    place = axis + len(indices) + 1 if axis < 0 else axis
    return [(*indices[:place], depth, *indices[place:])]


def _top_k(view: View) -> Shapes:
    shape, count, axis = view.shape(), view.scalar(1), view.integer("axis", -1)
    if not shape or axis is None:
        return []
    place = axis % len(shape)
    return [[*shape[:place], count, *shape[place + 1 :]]] * 2


def _resize(view: View) -> Shapes:
    shape = view.shape()
    if shape is None or view.integers("axes") is not None:
        return []
    is_old = view.op_type == "Upsample" or view.count == _MATRIX
    if not is_old and view.content(3):
        sizes = view.content(3)
        is_stretched = view.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        return [sizes] if is_stretched else []
    scales = view.constant(1 if is_old else 2)
    if scales is None or len(scales) != len(shape):
        return [[None] * len(shape)]
    return [[_scaled(dim, scale) for dim, scale in zip(shape, scales, strict=True)]]


def _scaled(dim: Number, scale: float) -> Number | None:
    if scale == int(scale):
        return multiply(dim, int(scale))
    return int(dim * scale) if isinstance(dim, int) else None


def _einsum(view: View) -> Shapes:
    equation = view.text("equation", "")
    if not equation or "." in equation:
        return []
    left, _, right = equation.replace(" ", "").partition("->")
    dims: dict[str, Number] = {}
    for slot, labels in enumerate(left.split(",")):
        shape = view.shape(slot)
        if shape is None or len(shape) != len(labels):
            return []
        for label, dim in zip(labels, shape, strict=True):
            dims[label] = _best(view, [dim, dims.get(label, dim)])
    if not right or not set(right) <= dims.keys():
        return []
    return [[dims[label] for label in right]]


def _depth_to_space(view: View) -> Shapes:
    shape, block = view.shape(), view.integer("blocksize")
    if shape is None or block is None or len(shape) != 4:  # noqa: PLR2004  # images only
        return []
    n, c, h, w = shape
    area = block * block
    return [(n, quotient(view.algebra, c, area), multiply(h, block), multiply(w, block))]


def _recurrent(view: View) -> Shapes:
    data, weights, layout = view.shape(0), view.shape(2), view.integer("layout", 0)
    if data is None or weights is None or layout != 0 or len(data) != 3 or len(weights) != 3:  # noqa: PLR2004  # both have three axes
        return []
    state = (weights[0], data[1], weights[2])
    return [(data[0], weights[0], data[1], weights[2]), state, state]


_LIKE_INPUT = """
    BatchNormalization CumSum DequantizeLinear DynamicQuantizeLinear GroupNormalization Hardmax
    InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization
    MeanVarianceNormalization PRelu QuantizeLinear RMSNormalization ReverseSequence Scatter
    ScatterElements ScatterND Softmax Trilu
"""
_BROADCASTING = """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
    LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor
"""
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

SHAPE_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(_LIKE_INPUT.split(), _same),
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS.split()},
    "Dropout": _same_for_all,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Shape": _vector,
    "Size": _scalar,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Resize": _resize,
    "Upsample": _resize,
    "Einsum": _einsum,
    "DepthToSpace": _depth_to_space,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
"""By operator of the standard domain; element-wise operators need none."""
