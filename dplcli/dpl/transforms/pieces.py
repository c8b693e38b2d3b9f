"""Parts of a value along its last axis, cut out by Slice or Split."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.shapes import items_of, shape_of
from dplcli.ir.operators import attribute_of
from dplcli.ir.parameters import inputs_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.ir import Node, Value


class Piece(NamedTuple):
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


def piece_of(value: Value) -> Piece | None:
    """Say which part of which value *value* is; None if it is no known part."""
    value = behind_identities(value)
    node = value.producer
    if node is None or node.domain or node.inputs[0] is None:
        return None
    source = behind_identities(node.inputs[0])
    shape = shape_of(source)
    if not shape or not isinstance(shape[-1], int):
        return None
    span = None
    if node.op_type == "Slice":
        span = _span_of_slice(node, len(shape), shape[-1])
    elif node.op_type == "Split":
        span = _span_of_split(node, value.index, len(shape), shape[-1])
    return None if span is None else Piece(source, *span, shape[-1])


def _span_of_slice(node: Node, rank: int, whole: int) -> tuple[int, int, int] | None:
    inputs = [*inputs_of(node), None, None][:5]
    found = [_number(value) for value in inputs[1:]]
    start, end, axis, step = found
    if inputs[3] is None:
        axis = 0
    if inputs[4] is None:
        step = 1
    if start is None or end is None or axis is None or step is None or step < 1:
        return None
    if axis % rank != rank - 1:
        return None
    places = range(whole)[start:end:step]
    # as a slice that ends where the source ends is written in many ways, count it from the places
    is_to_the_end = not places or places[-1] + step >= whole
    return (places.start, whole if is_to_the_end else places.stop, step)


def _number(value: Value | None) -> int | None:
    items = None if value is None else items_of(value)
    if items is None or items.size != 1:
        return None
    item = items.reshape(-1)[0]
    return item if type(item) is int else None


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
