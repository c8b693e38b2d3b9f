"""The shapes of what moves elements about: Reshape, Transpose, Slice, Concat and their like."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, cast

from dplcli.ir.symbolic.analysis import ask_items, ask_shape
from dplcli.ir.symbolic.reading import (
    FAR,
    argument,
    attribute,
    broadcast,
    numbers,
    numbers_or,
)
from dplcli.ir.symbolic.size import Size, exact_quotient, is_never_negative, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir.node import Node
    from dplcli.ir.symbolic.analysis import Extents, FoundSteps, ShapeRule
    from dplcli.ir.symbolic.size import Extent


def _transpose(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    perm = attribute(node, "perm")
    if shape is None:
        return None if perm is None else (None,) * len(perm)
    order = range(len(shape))[::-1] if perm is None else perm
    return tuple(shape[axis] for axis in order)


def _reshape(node: Node, _: int) -> FoundSteps:
    wanted = yield from ask_items(argument(node, 1))
    if wanted is None or wanted.ndim != 1:
        return None
    shape = yield from ask_shape(node.inputs[0])
    made: list[Any] = list(wanted)
    if not attribute(node, "allowzero", 0):
        for axis, dim in enumerate(made):
            if type(dim) is int and dim == 0:
                made[axis] = None if shape is None else shape[axis]
    for axis, dim in enumerate(made):
        if type(dim) is int and dim == -1:
            made[axis] = _rest(shape, [*made[:axis], *made[axis + 1 :]])
    return tuple(made)


def _rest(shape: Extents | None, others: Sequence[Extent | None]) -> Extent | None:
    """Work out the dimension that Reshape's -1 stands for."""
    if shape is None or None in others:
        return None
    known = cast("Sequence[Extent]", others)
    return exact_quotient(prod(shape), prod(known))


def _flatten(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    if shape is None:
        return None
    axis = attribute(node, "axis", 1)
    axis += len(shape) if axis < 0 else 0
    return (prod(shape[:axis]), prod(shape[axis:]))


def _squeeze(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    axes = yield from numbers(node, 1)
    if shape is None or (axes is None and argument(node, 1) is not None):
        return None
    if axes is None:
        return tuple(d for d in shape if d != 1) if all(type(d) is int for d in shape) else None
    gone = {axis % len(shape) for axis in axes}
    return tuple(dim for axis, dim in enumerate(shape) if axis not in gone)


def _unsqueeze(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    axes = yield from numbers(node, 1)
    if shape is None or axes is None:
        return None
    rank = len(shape) + len(axes)
    new = {axis % rank for axis in axes}
    old = iter(shape)
    return tuple(1 if axis in new else next(old) for axis in range(rank))


def _expand(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    wanted = yield from ask_items(argument(node, 1))
    if wanted is None or wanted.ndim != 1:
        return None
    return broadcast(shape, tuple(wanted))


def _tile(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    repeats = yield from ask_items(argument(node, 1))
    if shape is None or repeats is None:
        return None
    return tuple(dim * times for dim, times in zip(shape, repeats, strict=True))


def _concat(node: Node, _: int) -> FoundSteps:
    shapes = []
    for value in node.inputs:
        shape = yield from ask_shape(value)
        if shape is None:
            return None
        shapes.append(shape)
    first = shapes[0]
    axis = attribute(node, "axis", 1) % len(first)
    return tuple(
        sum(shape[axis] for shape in shapes) if position == axis else _agreed(shapes, position)
        for position in range(len(first))
    )


def _agreed(shapes: Sequence[Extents], axis: int) -> Extent:
    """Return one dimension of tensors that are joined along another: all have the same."""
    dims = [shape[axis] for shape in shapes]
    return next((dim for dim in dims if isinstance(dim, int)), dims[0])


def _split(node: Node, index: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    if shape is None:
        return None
    axis = attribute(node, "axis", 0) % len(shape)
    parts = yield from ask_items(argument(node, 1))
    if parts is not None:
        part = parts[index]
    elif argument(node, 1) is not None:
        part = None
    else:
        part = exact_quotient(shape[axis], attribute(node, "num_outputs", len(node.outputs)))
    return tuple(part if position == axis else dim for position, dim in enumerate(shape))


def _slice(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    starts = yield from ask_items(argument(node, 1))
    ends = yield from ask_items(argument(node, 2))
    if shape is None:
        return None
    count = len(shape) if starts is None else len(starts)
    axes = yield from numbers_or(node, 3, list(range(count)))
    steps = yield from numbers_or(node, 4, [1] * count)
    if axes is None:
        return None
    made: list[Extent | None] = list(shape)
    for axis in axes:
        made[axis] = None
    if starts is not None and ends is not None and steps is not None:
        for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
            made[axis] = sliced(shape[axis], *bounds)
    return tuple(made)


def sliced(dim: Extent, start: Extent, end: Extent, step: Extent) -> Extent | None:
    """Return how many elements a slice takes; None if that cannot be told."""
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(dim)[start : end : int(step)])  # type: ignore[arg-type]  # a number
    if isinstance(dim, int) and isinstance(end, Size) and (start, step) == (0, 1):
        return minimum(end, dim) if dim > 1 and is_never_negative(end) else None
    begin, stop = _bound(dim, start), _bound(dim, end)
    if step != 1 or begin is None or stop is None:
        return None
    length = stop - begin
    return length if is_never_negative(length) else None


def _bound(dim: Extent, place: Extent) -> Extent | None:
    """Count a slice's bound from the front; None if it may lie outside."""
    if isinstance(place, int) and abs(place) >= FAR:
        return dim if place > 0 else 0
    counted = dim + place if isinstance(place, int) and place < 0 else place
    return counted if is_never_negative(counted) and is_never_negative(dim - counted) else None


def _gather(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    picked = yield from ask_shape(node.inputs[1])
    if shape is None or picked is None:
        return None
    axis = attribute(node, "axis", 0) % len(shape)
    return (*shape[:axis], *picked, *shape[axis + 1 :])


def _gather_nd(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    picked = yield from ask_shape(node.inputs[1])
    if shape is None or not picked or not isinstance(picked[-1], int):
        return None
    return picked[:-1] + shape[attribute(node, "batch_dims", 0) + picked[-1] :]


def _pad(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    pads = yield from ask_items(argument(node, 1))
    if shape is None or pads is None:
        return None
    axes = yield from numbers_or(node, 3, list(range(len(shape))))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    made = list(shape)
    for place, axis in enumerate(axes):
        made[axis] = shape[axis] + pads[place] + pads[place + len(axes)]
    return tuple(made)


def _resize(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    if shape is None or attribute(node, "axes") is not None:
        return None
    sizes = yield from ask_items(argument(node, 3))
    if sizes is not None and len(sizes) == len(shape):
        is_exact = attribute(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
        return tuple(sizes) if is_exact else None
    scales = yield from ask_items(argument(node, 2))
    if scales is None or len(scales) != len(shape):
        return None
    return tuple(dim if by == 1 else None for dim, by in zip(shape, scales, strict=True))


def _top_k(node: Node, _: int) -> FoundSteps:
    shape = yield from ask_shape(node.inputs[0])
    count = yield from ask_items(argument(node, 1))
    if shape is None:
        return None
    made: list[Extent | None] = list(shape)
    made[attribute(node, "axis", -1)] = None if count is None else count.reshape(-1)[0]
    return tuple(made)


LAYOUT_RULES: dict[str, ShapeRule] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "TopK": _top_k,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": lambda node, _: ask_shape(node.inputs[1]),
}
"""By operator; a dimension that a rule leaves None is not known."""
