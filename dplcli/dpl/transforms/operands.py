"""Where an operand comes from: the value behind scalings, transpositions and idle nodes.

A rewrite may read any value above its match. So an operand of a matrix product is followed upwards
through nodes that only scale it by a number or put its axes in another order; what is found is
read instead, and whatever nobody reads any more goes away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.shapes import items_of, shape_of
from dplcli.dpl.shapes.terms import multiply
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

    Perm = tuple[int, ...]

_MOST_STEPS = 16
_FLOATS = frozenset({"bfloat16", "float16", "float32", "float64"})


class Origin(NamedTuple):
    """One value that an operand is made from: ``operand = transpose(value, perm) * scale``.

    Attributes:
        value: The value.
        perm: The axis of *value* that each axis of the operand is.
        scale: The number it is multiplied by.
    """

    value: Value
    perm: Perm
    scale: float


class Followed(NamedTuple):
    """An operand and all it can be made from, nearest first.

    Attributes:
        value: The operand itself.
        shape: Its dimensions.
        origins: The operand, and what is above it.
    """

    value: Value
    shape: Dims
    origins: tuple[Origin, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def scale(self) -> float:
        """All numbers on the way, multiplied."""
        return self.origins[-1].scale

    def without_scaling(self) -> Followed:
        """Return what is left if scalings are not looked through."""
        kept = tuple(origin for origin in self.origins if origin.scale == 1)
        return self._replace(origins=kept)

    def source_of(self, axis: int) -> tuple[Value, int]:
        """Return the furthest value that has one of the operand's axes, and which axis it is."""
        last = self.origins[-1]
        return last.value, last.perm[axis]

    def seen_as(self, perm: Perm) -> Origin | None:
        """Return the nearest value, free of scalings, that has the axes in the order *perm*.

        *perm* says which axis of the operand each axis of that value is.
        """
        for origin in self.origins:
            if origin.scale == self.scale and _inverse(origin.perm) == perm:
                return origin
        return None

    def build(self, build: GraphBuilder, perm: Perm) -> Operand:
        """Return the operand without scalings, its axes in the order *perm*."""
        found = self.seen_as(perm)
        if found is not None:
            return found.value
        last = self.origins[-1]
        return build.op("Transpose", last.value, perm=[last.perm[axis] for axis in perm])


def follow(value: Value) -> Followed | None:
    """Follow an operand upwards; None if not even its rank is known."""
    shape = shape_of(value)
    if shape is None:
        return None
    origins = [Origin(behind_identities(value), tuple(range(len(shape))), 1.0)]
    while len(origins) < _MOST_STEPS:
        above = _above(origins[-1])
        if above is None:
            break
        origins.append(above)
    return Followed(value, shape, tuple(origins))


def number_of(value: Value | None) -> float | None:
    """Return the only element of a tensor that holds one known float."""
    items = None if value is None else items_of(value)
    if items is None and value is not None:
        items = _converted(value)
    item = items.reshape(-1)[0] if items is not None and items.size == 1 else None
    return item if isinstance(item, float) else None


def _converted(value: Value) -> NDArray[Any] | None:
    """Return numbers that are converted to the type of a value which is not known itself."""
    node = behind_identities(value).producer
    known = value.known_type()
    if node is None or node.op_type != "CastLike" or node.domain or node.inputs[0] is None:
        return None
    items = items_of(node.inputs[0])
    if items is None or known is None or known.dtype not in _FLOATS:
        return None
    return items.astype(np.dtype(known.dtype)).astype(np.float64).astype(object)


def _above(origin: Origin) -> Origin | None:
    node = origin.value.producer
    if node is None or node.domain:
        return None
    if node.op_type in {"Mul", "Div"}:
        return _behind_scaling(node, origin)
    if node.op_type == "Transpose":
        return _behind_transpose(node, origin)
    if node.op_type == "Reshape":
        return _behind_reshape(node, origin)
    if node.op_type in {"Cast", "CastLike"}:
        return _behind_cast(node, origin)
    return None


def _behind_scaling(node: Node, origin: Origin) -> Origin | None:
    left, right = node.inputs
    number, other = number_of(right), left
    if number is None and node.op_type == "Mul":
        number, other = number_of(left), right
    if number is None or other is None or number == 0:
        return None
    shape, scaled = shape_of(other), shape_of(origin.value)
    if shape is None or scaled is None or len(shape) != len(scaled):
        return None  # the number has more dimensions than what it scales
    by = 1 / number if node.op_type == "Div" else number
    return Origin(behind_identities(other), origin.perm, origin.scale * by)


def _behind_transpose(node: Node, origin: Origin) -> Origin | None:
    perm = attribute_of(node, "perm")
    source = node.inputs[0]
    if perm is None or perm.ref or not isinstance(perm.value, tuple) or source is None:
        return None
    composed = tuple(int(perm.value[axis]) for axis in origin.perm)
    return Origin(behind_identities(source), composed, origin.scale)


def _behind_cast(node: Node, origin: Origin) -> Origin | None:
    """Pass a conversion to the type that it has already."""
    source = node.inputs[0]
    before = None if source is None else source.known_type()
    after = origin.value.known_type()
    if source is None or before is None or after is None or before.dtype is None:
        return None
    return origin._replace(value=behind_identities(source)) if before.dtype == after.dtype else None


def _behind_reshape(node: Node, origin: Origin) -> Origin | None:
    """Pass a Reshape that changes nothing, and a transposition with leading axes merged."""
    source = node.inputs[0]
    shape = shape_of(origin.value)
    if source is None or shape is None:
        return None
    if shape_of(source) == shape:
        return origin._replace(value=behind_identities(source))
    flipped = _unmerged_transpose(behind_identities(source).producer)
    if flipped is None or len(shape) < 2:  # noqa: PLR2004  # there is nothing to flip
        return None
    swap = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    if shape_of(flipped) != tuple(shape[axis] for axis in swap):
        return None
    composed = tuple(swap[axis] for axis in origin.perm)
    return Origin(flipped, composed, origin.scale)


def _unmerged_transpose(node: Node | None) -> Value | None:
    """Return x, where *node* is ``Transpose(Reshape(x, [-1, m, n]), perm=[0, 2, 1])``."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    perm = attribute_of(node, "perm")
    merged = None if node.inputs[0] is None else behind_identities(node.inputs[0])
    if perm is None or perm.value != (0, 2, 1) or merged is None or merged.producer is None:
        return None
    if merged.producer.op_type != "Reshape" or merged.producer.domain:
        return None
    source = merged.producer.inputs[0]
    before = None if source is None else shape_of(source)
    after = shape_of(merged)
    if source is None or before is None or after is None or before[-2:] != after[-2:]:
        return None
    return behind_identities(source)


def _inverse(perm: Perm) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def ungrouped(value: Value, axis: int) -> tuple[Value, int] | None:
    """Return what a value's slices along *axis* were repeated from, and how often each.

    That is, x of ``Reshape(Expand(Unsqueeze(x, axis + 1), …), …)``, where each head of x stands
    for several; the repetition may be a Tile, and the Unsqueeze a Reshape.
    """
    merging = value.producer
    spread = None if merging is None else _first_input(merging, {"Reshape"})
    repeating = None if spread is None else spread.producer
    single = None if repeating is None else _first_input(repeating, {"Expand", "Tile"})
    adding = None if single is None else single.producer
    source = None if adding is None else _first_input(adding, {"Unsqueeze", "Reshape"})
    if spread is None or single is None or source is None:
        return None
    shapes = [shape_of(item) for item in (source, single, spread, value)]
    few, one, many, merged = shapes
    if few is None or one is None or many is None or merged is None:
        return None
    times = many[axis + 1] if len(many) > axis + 1 else None
    if not isinstance(times, int):
        return None
    before, after = few[: axis + 1], few[axis + 1 :]
    expected = [(*before, 1, *after), (*before, times, *after)]
    joined = (*few[:axis], multiply(few[axis], times), *after)
    return (source, times) if [one, many, merged] == [*expected, joined] else None


def _first_input(node: Node, op_types: set[str]) -> Value | None:
    if node.domain or node.op_type not in op_types or node.inputs[0] is None:
        return None
    return behind_identities(node.inputs[0])
