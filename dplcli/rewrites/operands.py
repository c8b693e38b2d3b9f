"""What the rewrites share: where operands come from, parts of values, heads, nodes like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from dplcli.ir import Tensor, Value
from dplcli.ir.operators import attribute_of, inputs_of
from dplcli.ir.traversal import behind_identities
from dplcli.language.replacement import BuildError, DraftOutput, dtype_of
from dplcli.shapes import items_of, shape_of
from dplcli.shapes.terms import multiply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Node
    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match, Rejection
    from dplcli.shapes.rules import Dims
    from dplcli.shapes.terms import Number

    Perm = tuple[int, ...]


# Matches that are not what they look like.


class MisfitError(Exception):
    """A match has the shape of the pattern and does not compute what the rule is about.

    Args:
        reason: Why.
        at: The value or node concerned.
    """

    def __init__(self, reason: str, at: Value | Node | None = None) -> None:
        super().__init__(reason)
        self.at = at

    def rejection(self, match: Match) -> Rejection:
        """Refuse *match* for this reason."""
        return match.reject(str(self), at=self.at)


def refuse(reason: str, at: Value | Node | None = None) -> NoReturn:
    """Refuse the match that is being read."""
    raise MisfitError(reason, at)


def node_called(match: Match, name: str) -> Node:
    """Return the node that makes what the rule calls *name*.

    Raises:
        BuildError: It took no part in the match.
    """
    node = match.node(name)
    if node is None:
        raise BuildError(f"{name!r} took no part in the match")
    return node


def value_called(match: Match, name: str) -> Value:
    """Return the value that the rule calls *name*.

    Raises:
        BuildError: It took no part in the match.
    """
    value = match.value(name)
    if value is None:
        raise BuildError(f"{name!r} took no part in the match")
    return value


# What is known of one value or one node.


def array_of(value: Value | None) -> NDArray[Any] | None:
    """Return the data of a constant that the file itself holds, also behind Identity nodes."""
    tensor = None if value is None else behind_identities(value).constant
    return None if tensor is None or tensor.is_external else tensor.numpy()


def item_of(value: Value | None) -> object:
    """Return the only element of a tensor; None if it has others, or is not known."""
    items = None if value is None else items_of(value)
    return items.reshape(-1)[0] if items is not None and items.size == 1 else None


def whole_of(value: Value | None) -> int | None:
    """Return the only element of a tensor, if it is a whole number that is known."""
    item = item_of(value)
    return item if type(item) is int else None


def input_of(node: Node, slot: int) -> Value | None:
    """Return an input of *node*; None if it is omitted."""
    return node.inputs[slot] if slot < len(node.inputs) else None


def perm_of(node: Node) -> Perm | None:
    """Return the order that a Transpose gives its axes; None if it is not known."""
    perm = attribute_of(node, "perm")
    if perm is None or perm.ref or not isinstance(perm.value, tuple):
        return None
    return perm.value if sorted(perm.value) == [*range(len(perm.value))] else None


def node_of(value: Value | None, *op_types: str) -> Node | None:
    """Return the node that makes a value, if it is of one of these standard operators."""
    node = None if value is None else value.producer
    return node if node is not None and node.op_type in op_types and not node.domain else None


def source_of(value: Value | None, *op_types: str) -> Value | None:
    """Return what one of these standard operators makes *value* from, its first input."""
    node = node_of(value, *op_types)
    source = None if node is None else node.inputs[0]
    return None if source is None else behind_identities(source)


def fill_of(value: Value) -> float | Tensor | None:
    """Return what a ConstantOfShape repeats; None for any other value, or if it is not known."""
    node = node_of(value, "ConstantOfShape")
    if node is None:
        return None
    fill = node.attributes.get("value")
    if fill is None:
        return 0.0
    return fill.value if isinstance(fill.value, Tensor) and not fill.ref else None


# Where an operand comes from: the value behind scalings, transpositions and idle nodes.
#
# A rewrite may read any value above its match. So an operand of a matrix product is followed
# upwards through nodes that only scale it by a number or put its axes in another order; what is
# found is read instead, and whatever nobody reads any more goes away.


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
            if (
                origin.scale == self.scale
                and tuple(sorted(range(len(origin.perm)), key=origin.perm.__getitem__)) == perm
            ):
                return origin
        return None

    def build(self, build: GraphBuilder, perm: Perm) -> Operand:
        """Return the operand without scalings, its axes in the order *perm*."""
        origin = self.seen_as(perm)
        if origin is not None:
            return origin.value
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
    source = source_of(behind_identities(value), "CastLike")
    items, dtype = None if source is None else items_of(source), dtype_of(value)
    if items is None or dtype not in _FLOATS:
        return None
    return items.astype(np.dtype(dtype)).astype(np.float64).astype(object)


def _above(origin: Origin) -> Origin | None:
    node = origin.value.producer
    behind = None if node is None or node.domain else _BEHIND.get(node.op_type)
    return None if node is None or behind is None else behind(node, origin)


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
    perm, source = perm_of(node), node.inputs[0]
    if perm is None or source is None:
        return None
    composed = tuple(perm[axis] for axis in origin.perm)
    return Origin(behind_identities(source), composed, origin.scale)


def _behind_cast(node: Node, origin: Origin) -> Origin | None:
    """Pass a conversion to the type that it has already."""
    source, dtype = node.inputs[0], dtype_of(origin.value)
    if source is None or dtype is None or dtype_of(source) != dtype:
        return None
    return origin._replace(value=behind_identities(source))


def _behind_reshape(node: Node, origin: Origin) -> Origin | None:
    """Pass a Reshape that changes nothing, and a transposition with leading axes merged."""
    source = node.inputs[0]
    shape = shape_of(origin.value)
    if source is None or shape is None:
        return None
    if shape_of(source) == shape:
        return origin._replace(value=behind_identities(source))
    flipped = _unmerged_transpose(behind_identities(source))
    if flipped is None or len(shape) < 2:  # noqa: PLR2004  # there is nothing to flip
        return None
    swap = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    if shape_of(flipped) != tuple(shape[axis] for axis in swap):
        return None
    composed = tuple(swap[axis] for axis in origin.perm)
    return Origin(flipped, composed, origin.scale)


def _unmerged_transpose(value: Value) -> Value | None:
    """Return x, where *value* is ``Transpose(Reshape(x, [-1, m, n]), perm=[0, 2, 1])``."""
    node, merged = node_of(value, "Transpose"), source_of(value, "Transpose")
    source = source_of(merged, "Reshape")
    if node is None or merged is None or source is None or perm_of(node) != (0, 2, 1):
        return None
    before, after = shape_of(source), shape_of(merged)
    if before is None or after is None or before[-2:] != after[-2:]:
        return None
    return source


_BEHIND = {
    "Cast": _behind_cast,
    "CastLike": _behind_cast,
    "Div": _behind_scaling,
    "Mul": _behind_scaling,
    "Reshape": _behind_reshape,
    "Transpose": _behind_transpose,
}
"""How to pass the nodes that an operand is followed through."""


def ungrouped(value: Value) -> tuple[Value, int] | None:
    """Return what a value's slices along axis 1 were repeated from, and how often each.

    That is, x of ``Reshape(Expand(Unsqueeze(x, 2), …), …)``, where each head of x stands
    for several; the repetition may be a Tile, and the Unsqueeze a Reshape.
    """
    spread = source_of(value, "Reshape")
    single = source_of(spread, "Expand", "Tile")
    source = source_of(single, "Unsqueeze", "Reshape")
    if spread is None or single is None or source is None:
        return None
    few, one, many, merged = (shape_of(item) for item in (source, single, spread, value))
    if few is None or many is None or not many[2:]:
        return None
    times = many[2]
    if not isinstance(times, int):
        return None
    before, after = few[:2], few[2:]
    expected = [(*before, 1, *after), (*before, times, *after)]
    joined = (few[0], multiply(few[1], times), *after)
    return (source, times) if [one, many, merged] == [*expected, joined] else None


# Parts of a value along its last axis, cut out by Slice or Split.


class SlicePiece(NamedTuple):
    """``source[..., start:stop:step]``.

    Attributes:
        source: What it is a part of.
        start: Its first place.
        stop: The place after its last one, at most the source's length.
        step: How far apart its places are.
        whole: The length of the source's last axis.
    """

    source: Value
    start: int
    stop: int
    step: int
    whole: int

    @property
    def span(self) -> tuple[int, int, int]:
        """Start, stop and step."""
        return (self.start, self.stop, self.step)


def piece_of(value: Value) -> SlicePiece | None:
    """Say which part of which value *value* is; None if it is no known part."""
    value = behind_identities(value)
    node, source = node_of(value, "Slice", "Split"), source_of(value, "Slice", "Split")
    shape = None if source is None else shape_of(source)
    if node is None or source is None or not shape or not isinstance(shape[-1], int):
        return None
    whole = shape[-1]
    if node.op_type == "Split":
        span = _span_of_split(node, value.index, len(shape), whole)
        return None if span is None else SlicePiece(source, *span, whole)
    axis, places = slice_of(node) or (None, range(0))
    if axis != len(shape) - 1:
        return None
    # as a slice that ends where the source ends is written in many ways, count it from the places
    is_to_the_end = not places or places[-1] + places.step >= whole
    stop = whole if is_to_the_end else places.stop
    return SlicePiece(source, places.start, stop, places.step, whole)


def slice_of(node: Node) -> tuple[int, range] | None:
    """Return the axis and the places that a Slice takes, if it is one axis, forwards.

    None if that is not known in numbers.
    """
    inputs = [*inputs_of(node), None, None][:5]
    shape = None if inputs[0] is None else shape_of(inputs[0])
    start, end, axis, step = map(whole_of, inputs[1:])
    axis = 0 if inputs[3] is None else axis
    step = 1 if inputs[4] is None else step
    if not shape or start is None or end is None or axis is None or not step or step < 1:
        return None
    length = shape[axis] if -len(shape) <= axis < len(shape) else None
    if not isinstance(length, int):
        return None
    return axis % len(shape), range(length)[start:end:step]


def _span_of_split(node: Node, index: int, rank: int, whole: int) -> tuple[int, int, int] | None:
    axis = attribute_of(node, "axis")
    if axis is None or not isinstance(axis.value, int) or axis.value % rank != rank - 1:
        return None
    inputs = inputs_of(node)
    sizes = items_of(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    if sizes is None:
        count = len(node.outputs)
        if len(inputs) > 1 or whole % count:
            return None
        part = whole // count
        return (index * part, (index + 1) * part, 1)
    if not all(type(size) is int for size in sizes):
        return None
    start = sum(sizes[:index])
    return (start, start + sizes[index], 1)


# Nodes like others, with something changed.


def remade(
    build: GraphBuilder, node: Node, inputs: Sequence[Operand | None], **changed: object
) -> list[DraftOutput]:
    """Describe a node of the same operator over other *inputs*; return all its outputs.

    Args:
        build: Who describes it.
        node: The node that it is like, attributes included.
        inputs: What it reads.
        changed: Attributes that it has instead of, or besides, those of *node*.
    """
    attributes: dict[str, object] = {**node.attributes, **changed}
    count = len(node.outputs)
    copy = build.node(node.op_type, node.domain, inputs, attributes, count)
    return [DraftOutput(copy, index) for index in range(count)]


# Heads as an axis of their own, and heads side by side in the last axis.


_HEADS_RANK = 4
_FIRST_WITH_BOUNDS = 15
"""The first opset whose Shape can be asked for one dimension."""


def merged_heads(build: GraphBuilder, value: Operand) -> Operand:
    """Return ``(batch, length, heads, size)`` as ``(batch, length, heads * size)``.

    That is what it was reshaped from, or a Reshape of it.
    """
    width: Number | None = None
    if isinstance(value, Value):
        shape, source = shape_of(value), source_of(value, "Reshape")
        if shape is not None and len(shape) == _HEADS_RANK:
            width = multiply(shape[2], shape[3])
            if source is not None and shape_of(source) == (*shape[:2], width):
                return source
    last = width if isinstance(width, int) else -1
    return build.op("Reshape", value, build.constant(np.array([0, 0, last])))


def split_heads(build: GraphBuilder, value: Operand, heads: Number) -> Operand:
    """Return ``(batch, length, heads * size)`` as ``(batch, length, heads, size)``."""
    return build.op("Reshape", value, build.constant(np.array([0, 0, heads, -1])))


def length_of(build: GraphBuilder, value: Operand, axis: int) -> Operand:
    """Return one dimension of a value as a vector with one element."""
    if build.opset >= _FIRST_WITH_BOUNDS:
        end = axis + 1 if axis != -1 else None
        return build.op("Shape", value, start=axis, end=end)
    return build.op("Gather", build.op("Shape", value), build.constant(np.array([axis])))
