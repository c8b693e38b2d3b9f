"""Slices that together are a Split."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.shapes import Knowledge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

_FIRST_OPSET = 13
"""From here on the lengths are an input of Split."""


class _Piece(NamedTuple):
    """What a Slice takes of one axis."""

    axis: int
    start: int
    end: int


@nodewise("Slice", reach=3)
def merge_slices_into_split(match: Match, build: GraphBuilder) -> Operand | None:
    """Cut a tensor into pieces at once.

    Before: ``a = Slice(x, [0], [2], [1]); b = Slice(x, [2], [6], [1])`` with *x* ``[n, 6]``
    After:  ``a, b = Split(x, [2, 4], axis=1)``
    Holds when: the pieces are the whole axis, do not overlap, and go forward one by one.

    The first Slice becomes the Split; the others then read its other outputs.
    """
    node = match.root
    knowledge = node.graph.model.memory(Knowledge)
    piece = _piece(node, knowledge)
    data = node.inputs[0]
    if piece is None or data is None or build.opset < _FIRST_OPSET or len(match.outputs) != 1:
        return None
    made = _piece_of_split(data, node, piece, knowledge)
    if made is not None:
        return made
    shape = knowledge.shape(data)
    cuts = sorted({p for p in _pieces(data, node, knowledge) if p.axis == piece.axis})
    if shape is None or len(cuts) < 2 or not _is_whole(cuts, shape[piece.axis]):  # noqa: PLR2004  # one piece is no cut
        return None
    lengths = np.array([cut.end - cut.start for cut in cuts], dtype=np.int64)
    parts = build.ops("Split", data, build.constant(lengths), outputs=len(cuts), axis=piece.axis)
    return parts[cuts.index(piece)]


def _is_whole(cuts: Sequence[_Piece], length: object) -> bool:
    touch = all(first.end == second.start for first, second in pairwise(cuts))
    return touch and cuts[0].start == 0 and cuts[-1].end == length


def _pieces(data: Value, node: Node, knowledge: Knowledge) -> Iterator[_Piece]:
    for user, slot in data.iter_uses():
        if slot == 0 and user.graph is node.graph and user.op_type == "Slice" and not user.domain:
            piece = _piece(user, knowledge)
            if piece is not None:
                yield piece


def _piece(node: Node, knowledge: Knowledge) -> _Piece | None:
    """Return what a Slice along one axis takes; None if that is not known in numbers."""
    contents = [None if value is None else knowledge.content(value) for value in node.inputs[1:]]
    given = [value is not None for value in node.inputs[1:]]
    if len(contents) < 2 or node.inputs[0] is None:  # noqa: PLR2004  # starts and ends
        return None
    starts, ends, axes, steps = (*contents, None, None)[:4]
    has_axes, has_steps = (*given[2:], False, False)[:2]
    if has_steps and steps != (1,):
        return None
    start, end, axis = _only(starts), _only(ends), _only(axes) if has_axes else 0
    shape = knowledge.shape(node.inputs[0])
    if (
        start is None
        or end is None
        or axis is None
        or not shape
        or not -len(shape) <= axis < len(shape)
    ):
        return None
    length = shape[axis]
    if not isinstance(length, int):
        return None
    first, last, _ = slice(start, end).indices(length)
    return _Piece(axis % len(shape), first, last) if first < last else None


def _only(content: Dims | None) -> int | None:
    if content is None or len(content) != 1 or not isinstance(content[0], int):
        return None
    return content[0]


def _piece_of_split(data: Value, node: Node, piece: _Piece, knowledge: Knowledge) -> Value | None:
    """Return the output of a Split of the same data that is *piece* already."""
    for user, slot in data.iter_uses():
        if slot or user.op_type != "Split" or user.domain or user.graph is not node.graph:
            continue
        lengths = user.inputs[1] if len(user.inputs) > 1 else None
        content = None if lengths is None else knowledge.content(lengths)
        axis = user.attributes.get("axis")
        if content is None or axis is None or axis.value != piece.axis:
            continue
        start = 0
        for output, length in zip(user.outputs, content, strict=False):
            if not isinstance(length, int):
                break
            if (start, start + length) == piece[1:] and user.position < node.position:
                return output
            start += length
    return None
