"""The tables of cosines and sines that rotary embeddings multiply by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.nodewise import far_sighted
from dplcli.dpl.shapes import described, shape_of
from dplcli.dpl.transforms.attention_masks import node_of
from dplcli.dpl.transforms.operands import number_of
from dplcli.dpl.transforms.pieces import piece_of
from dplcli.dpl.transforms.tensor_layouts import length_of
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Value

_MATRIX = 2
_RANK = 4


class Table(NamedTuple):
    """Cosines or sines, one row per position.

    Attributes:
        value: ``(batch or 1, length, width)``, perhaps with an axis of extent 1 for the heads, or
            without one for the batch.
        squeezed: The axis of the heads, if it is there.
        half: The width to keep, if the table is twice as wide and both halves are equal.
        rows: Where *value* is rows of a matrix, that matrix; *half* is about it then.
        positions: And which rows they are.
        batch: How many sequences it has rows for.
    """

    value: Value
    squeezed: int | None
    half: int | None
    rows: Value | None
    positions: Value | None
    batch: Number

    def build_rows(self, build: GraphBuilder) -> Operand:
        """Return the matrix that holds a row for every position."""
        assert self.rows is not None  # noqa: S101  # the caller has seen it
        constant = self.rows.constant
        if self.half is None or constant is None:
            return self.rows
        return build.constant(constant.numpy()[..., : self.half])

    def build(self, build: GraphBuilder) -> Operand:
        """Return the table as ``(batch or 1, length, half the turned width)``."""
        if self.rows is not None and self.half is not None:
            return build.op("Gather", self.build_rows(build), self.positions)
        made: Operand = self.value
        constant = self.value.constant
        if self.half is not None and constant is not None:
            made = build.constant(constant.numpy()[..., : self.half])
        if self.squeezed is not None:
            made = build.op("Squeeze", made, build.constant(np.array([self.squeezed])))
        rank = len(shape_of(self.value) or ()) - (self.squeezed is not None)
        if rank == _MATRIX:
            made = build.op("Unsqueeze", made, build.constant(np.array([0])))
        return made


def read_table(value: Value, heads_axis: int, shape: Dims, width: int) -> Table | str:
    """Read the factors that x of *shape* is multiplied by, or say why they are no such table."""
    length = shape[3 - heads_axis]
    found, axis = _without_heads(behind_identities(value), heads_axis)
    found = _unsliced(found)
    half = None
    rows, positions = _rows(found) if axis is None else (None, None)
    if (shape_of(found) or ())[-1:] == (width,):
        halved = _half(found) or _half_of_rows(found, rows)
        if halved is None:
            return "its two halves are not known to be equal"
        found, half = halved
        rows, positions = (rows, positions) if half is not None else (None, None)
    flat = _flat(shape_of(found) or (), axis)
    wanted = (length, width // 2 if half is None else width)
    if len(flat) != _RANK - 1 or flat[1:] != wanted:
        told = described(value, length)
        return f"it is not known to have {told} rows of {width} or {width // 2} numbers"
    if flat[0] not in {1, shape[0]}:
        return f"it is not known to be for one sequence, or for {described(value, shape[0])}"
    return Table(found, axis, half, rows, positions, flat[0])


def _flat(shape: Dims, axis: int | None) -> Dims:
    """Leave out the axis of the heads, and put in that of the batch."""
    flat = shape if axis is None else shape[:axis] + shape[axis + 1 :]
    return (1, *flat) if len(flat) == _MATRIX else flat


def _without_heads(value: Value, heads_axis: int) -> tuple[Value, int | None]:
    """Return the value before an axis for the heads was put in; else the axis to take out."""
    shape = shape_of(value) or ()
    axis = heads_axis - (_RANK - len(shape))
    if axis < 0 or (axis == 0 and len(shape) == _RANK - 1):
        return value, None  # the axis of extent 1 may as well be that of the batch
    node = value.producer
    source = None
    if node is not None and not node.domain and node.op_type in {"Unsqueeze", "Reshape"}:
        source = node.inputs[0]
    if source is not None and shape_of(source) == shape[:axis] + shape[axis + 1 :]:
        return behind_identities(source), None
    return value, axis


def _unsliced(value: Value) -> Value:
    """Look through a Slice that takes everything."""
    piece = piece_of(value)
    return piece.source if piece is not None and piece.span == (0, piece.whole, 1) else value


def _half(value: Value) -> tuple[Value, int | None] | None:
    """Return a value of half the width whose double is *value*, or *value* and the width to keep.

    None if its halves are not known to be equal.
    """
    single = _single(value)
    if single is not None:
        return single, None
    tensor = value.constant
    if tensor is None or tensor.is_external or not tensor.shape or tensor.shape[-1] % 2:
        return None
    left, right = np.split(tensor.numpy(), 2, axis=-1)
    return (value, tensor.shape[-1] // 2) if np.array_equal(left, right) else None


def _single(value: Value) -> Value | None:
    """Return f, where *value* is ``Concat(f, f, axis=-1)``."""
    node = node_of(value, "Concat")
    if node is None or len(node.inputs) != _MATRIX or not _are_joined_last(value):
        return None
    first, second = node.inputs
    return behind_identities(first) if first is not None and first is second else None


def _half_of_rows(value: Value, rows: Value | None) -> tuple[Value, int | None] | None:
    """Return *value* and the width to keep, where it is rows of a matrix with equal halves."""
    halved = None if rows is None else _half(rows)
    return None if halved is None or halved[1] is None else (value, halved[1])


def _are_joined_last(value: Value) -> bool:
    shape, node = shape_of(value), value.producer
    axis = None if node is None else attribute_of(node, "axis")
    return axis is not None and shape is not None and axis.value in {-1, len(shape) - 1}


def _rows(value: Value) -> tuple[Value | None, Value | None]:
    """Return table and positions where *value* is ``Gather(table, positions)``."""
    node = node_of(value, "Gather")
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return None, None
    axis = attribute_of(node, "axis")
    table, positions = node.inputs[0], node.inputs[1]
    known = positions.known_type()
    is_table = len(shape_of(table) or ()) == len(shape_of(positions) or ()) == _MATRIX
    if axis is None or axis.value != 0 or not is_table:
        return None, None
    return (table, positions) if known is not None and known.dtype == "int64" else (None, None)


def for_batch(build: GraphBuilder, table: Operand, batch: Number, owner: Value) -> Operand:
    """Repeat a table for one sequence for each sequence of *owner*."""
    if isinstance(batch, int):
        return build.op("Expand", table, build.constant(np.array([batch, 1, 1])))
    count = length_of(build, _batched(build, batch, owner), 0)
    ones = build.constant(np.array([1, 1]))
    return build.op("Expand", table, build.op("Concat", count, ones, axis=0))


def _batched(build: GraphBuilder, batch: Number, owner: Value) -> Value:
    """Return a value whose first dimension is the batch: an input of the graph, if there is one."""
    for value in build.graph.inputs:
        if (shape_of(value) or (None,))[0] == batch:
            return value
    return owner


@far_sighted
def double_later(match: Match, build: GraphBuilder) -> Operand | None:
    """Compute on f, and join the result with itself, rather than on f joined with itself."""
    doubled = match.value("doubled")
    half = None if doubled is None else _single(behind_identities(doubled))
    if half is None or doubled is None:
        return None
    factor = match.value("factor")
    if factor is not None and number_of(factor) is None:
        return None
    shape, wide = shape_of(match.outputs[0]), shape_of(doubled)
    if shape is None or shape != wide:
        return None  # the number has more dimensions
    inputs = [half if value is doubled else value for value in match.root.inputs]
    node = build.node(match.root.op_type, "", inputs, match.root.attributes)
    return build.op("Concat", DraftOutput(node), DraftOutput(node), axis=len(shape) - 1)
