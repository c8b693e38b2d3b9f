"""Turn rotary position embeddings that are written out into the operator RotaryEmbedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities
from dplcli.language.replacement import DraftOutput, dtype_of, far_sighted
from dplcli.rewrites.operands import (
    MisfitError,
    array_of,
    follow,
    length_of,
    merged_heads,
    node_of,
    piece_of,
    refuse,
    source_of,
    split_heads,
    value_called,
)
from dplcli.shapes import described, shape_of
from dplcli.shapes.terms import multiply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Value
    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match, Rejection
    from dplcli.shapes.rules import Dims
    from dplcli.shapes.terms import Number


# Turn rotary position embeddings that are written out into the operator RotaryEmbedding.
#
# Before: ``x * cos + concat(-x2, x1) * sin``,
#     or ``concat(x1 * cos - x2 * sin, x1 * sin + x2 * cos)``
# After:  ``RotaryEmbedding(x, cos_cache, sin_cache, position_ids)``
# Holds when: x1 and x2 are the halves, or the even and odd elements, of the last axis of x (or of
# the beginning of that axis, if the rest is passed on); cosines and sines have one row per
# position, of two equal halves where they are as wide as x; batch and length provably fit.


_RANK = 4
_DTYPES = {"float32", "float16", "bfloat16"}


@dataclass(frozen=True)
class RotaryParts:
    """A rotary embedding.

    Attributes:
        source: What is turned, ``(batch, heads, length, size)`` or with lengths before heads.
        shape: Its dimensions.
        heads_axis: 1 or 2.
        width: How much of the last axis is turned.
        is_interleaved: Whether even and odd elements are turned, rather than halves.
        cos: The cosines.
        sin: The sines.
    """

    source: Value
    shape: Dims
    heads_axis: int
    width: int
    is_interleaved: bool
    cos: RotaryTable
    sin: RotaryTable

    @property
    def batch(self) -> Number:
        """The number of sequences."""
        return self.shape[0]

    @property
    def heads(self) -> Number:
        """The number of heads."""
        return self.shape[self.heads_axis]

    @property
    def is_partial(self) -> bool:
        """Whether a part of the last axis is passed on as it is."""
        return self.width != self.shape[-1]

    @property
    def heads_first(self) -> Value | None:
        """The value with heads before lengths, if there is such a value."""
        if self.heads_axis == 1:
            return self.source
        followed = follow(self.source)
        origin = None if followed is None else followed.seen_as((0, 2, 1, 3))
        return None if origin is None or origin.scale != 1 else origin.value


class _Turned(NamedTuple):
    value: Value
    is_interleaved: bool


def read_rotary(match: Match) -> RotaryParts:
    """Take a match of the rotary pattern apart.

    Raises:
        MisfitError: It is none.
    """
    turned = _turned(match)
    shape = shape_of(turned.value)
    width = shape[-1] if shape else None
    if not isinstance(width, int):
        refuse("how many elements are turned is not known", turned.value)
    source = _whole(match, turned.value, width)
    shape = shape_of(source)
    if shape is None or len(shape) != _RANK:
        refuse("what is turned is not known to have 4 axes", source)
    types = {dtype_of(value) for value in (source, match.value("cos"), match.value("sin"))}
    if len(types) != 1 or not types <= _DTYPES:
        refuse("x, cosines and sines are not known to be of one type that can be turned", source)
    cos, sin = value_called(match, "cos"), value_called(match, "sin")
    axis = _heads_axis(cos, shape)
    tables = [read_table(value, axis, shape, width) for value in (cos, sin)]
    return RotaryParts(source, shape, axis, width, turned.is_interleaved, *tables)


def _turned(match: Match) -> _Turned:
    """Return what is turned, and whether by halves or by neighbours."""
    first, second = match.value("first"), match.value("second")
    one, other = (None if value is None else piece_of(value) for value in (first, second))
    if one is None or other is None or one.source is not other.source:
        refuse("what is combined are not two parts of one value", first)
    width = one.whole
    if width % 2:
        refuse("an odd number of elements is turned", first)
    spans = (one.span, other.span)
    is_interleaved = spans == ((0, width, 2), (1, width, 2))
    if not is_interleaved and spans != ((0, width // 2, 1), (width // 2, width, 1)):
        refuse("what is combined are not the two halves of one value", first)
    whole = match.value("x")
    if whole is not None and behind_identities(whole) is not one.source:
        refuse("what is combined are not parts of what is multiplied by the cosines", first)
    # Refuse parts that are not put together again as they were taken apart.
    paired = match.node("paired")
    joined = match.node("joined") or match.node("joined_parts")
    if (paired is not None) != is_interleaved:
        refuse("halves and neighbours are mixed", match.outputs[0])
    for node in (joined, paired, match.node("whole")):
        if node is None:
            continue
        output = node.outputs[0]
        if output is None or not _are_joined_last(output):
            refuse("the parts are not joined along the last axis", output)
    if paired is not None:
        _check_pairs(match)
    return _Turned(one.source, is_interleaved)


def _check_pairs(match: Match) -> None:
    """Refuse a Reshape that does more than to lay pairs one after the other."""
    flat, real = match.value("flat"), match.value("real")
    paired = match.value("paired")
    if flat is None or real is None or paired is None:
        refuse("the pairs are not laid one after the other", flat)
    shape = shape_of(real)
    if shape is None or shape_of(paired) != (*shape, 2):
        refuse("real and imaginary parts do not become pairs", paired)
    if shape_of(flat) != (*shape[:-1], multiply(shape[-1], 2)):
        refuse("the pairs are not laid one after the other", flat)


def _whole(match: Match, turned: Value, width: int) -> Value:
    """Return the value whose beginning is turned; all of it if nothing is passed on."""
    rest = match.value("rest")
    if rest is None:
        return turned
    beginning, end = piece_of(turned), piece_of(rest)
    if beginning is None or end is None or beginning.source is not end.source:
        refuse("what is passed on is not the rest of what is turned", rest)
    spans = ((0, width, 1), (width, beginning.whole, 1))
    if (beginning.span, end.span) != spans:
        refuse("what is passed on is not the rest of what is turned", rest)
    return beginning.source


def _heads_axis(cos: Value, shape: Dims) -> int:
    """Tell which axis of x the cosines are the same for."""
    own = shape_of(cos)
    if own is None:
        refuse("the rank of the cosines is not known", cos)
    padded = (1,) * (_RANK - len(own)) + own
    for axis, other in ((1, 2), (2, 1)):
        if len(padded) == _RANK and padded[axis] == 1 and padded[other] == shape[other]:
            return axis
    reason = "the cosines are not known to have one row per position, for all heads"
    raise MisfitError(reason, cos)


# The tables of cosines and sines that rotary embeddings multiply by.


_MATRIX = 2


class RotaryTable(NamedTuple):
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
        table: Operand = self.value
        constant = self.value.constant
        if self.half is not None and constant is not None:
            table = build.constant(constant.numpy()[..., : self.half])
        if self.squeezed is not None:
            table = build.op("Squeeze", table, build.constant(np.array([self.squeezed])))
        rank = len(shape_of(self.value) or ()) - (self.squeezed is not None)
        if rank == _MATRIX:
            table = build.op("Unsqueeze", table, build.constant(np.array([0])))
        return table


def read_table(value: Value, heads_axis: int, shape: Dims, width: int) -> RotaryTable:
    """Read the factors that x of *shape* is multiplied by.

    Raises:
        MisfitError: They are no such table.
    """
    length = shape[3 - heads_axis]
    origin, axis = _without_heads(behind_identities(value), heads_axis)
    # Look through a Slice that takes everything.
    piece = piece_of(origin)
    origin = piece.source if piece is not None and piece.span == (0, piece.whole, 1) else origin
    half = None
    rows, positions = _rows(origin) if axis is None else (None, None)
    if (shape_of(origin) or ())[-1:] == (width,):
        halved = _half(origin) or _half_of_rows(origin, rows)
        if halved is None:
            refuse("its two halves are not known to be equal", value)
        origin, half = halved
        rows, positions = (rows, positions) if half is not None else (None, None)
    flat = _flat(shape_of(origin) or (), axis)
    wanted = (length, width // 2 if half is None else width)
    if len(flat) != _RANK - 1 or flat[1:] != wanted:
        told = described(value, length)
        refuse(f"it is not known to have {told} rows of {width} or {width // 2} numbers", value)
    if flat[0] not in {1, shape[0]}:
        told = described(value, shape[0])
        refuse(f"it is not known to be for one sequence, or for {told}", value)
    return RotaryTable(origin, axis, half, rows, positions, flat[0])


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
    if shape[axis] != 1:  # of the cosines it is known, of the sines not yet
        refuse("it is not known to be the same for all heads", value)
    source = source_of(value, "Unsqueeze", "Reshape")
    if source is not None and shape_of(source) == shape[:axis] + shape[axis + 1 :]:
        return source, None
    return value, axis


def _half(value: Value) -> tuple[Value, int | None] | None:
    """Return a value of half the width whose double is *value*, or *value* and the width to keep.

    None if its halves are not known to be equal.
    """
    single = _single(value)
    if single is not None:
        return single, None
    data = array_of(value)
    if data is None or not data.shape or data.shape[-1] % 2:
        return None
    left, right = np.split(data, 2, axis=-1)
    return (value, data.shape[-1] // 2) if np.array_equal(left, right) else None


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
    is_table = len(shape_of(table) or ()) == len(shape_of(positions) or ()) == _MATRIX
    if axis is None or axis.value != 0 or not is_table:
        return None, None
    return (table, positions) if dtype_of(positions) == "int64" else (None, None)


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


# The standard operator RotaryEmbedding in the place of a rotary embedding that is written out.


@far_sighted
def rotary_embedding(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe the operator RotaryEmbedding in the place of a match of the rotary pattern."""
    try:
        parts = read_rotary(match)
    except MisfitError as error:
        return error.rejection(match)
    if parts.heads_first is None and not isinstance(parts.heads, int):
        return match.reject("the number of heads is not known", at=parts.source)
    return _embedded(parts, build, "", _tables(parts, build), tells_heads=parts.heads_first is None)


def _embedded(
    parts: RotaryParts,
    build: GraphBuilder,
    domain: str,
    tables: Sequence[Operand],
    *,
    tells_heads: bool,
) -> Operand:
    """Describe the operator, and bring back the axes as they were."""
    attributes: dict[str, object] = {
        "interleaved": 1 if parts.is_interleaved else None,
        "rotary_embedding_dim": parts.width if parts.is_partial else None,
        "num_heads": parts.heads if tells_heads else None,
    }
    source = parts.heads_first
    rows = source if source is not None else merged_heads(build, parts.source)
    turned = DraftOutput(build.node("RotaryEmbedding", domain, (rows, *tables), attributes))
    if source is None:
        return split_heads(build, turned, parts.heads)
    return turned if parts.heads_axis == 1 else build.op("Transpose", turned, perm=[0, 2, 1, 3])


def _tables(parts: RotaryParts, build: GraphBuilder) -> list[Operand]:
    """Return cosines, sines and, if they are rows of tables, which rows."""
    shared = _shared_rows(parts, build)
    if shared is not None:
        return shared
    tables = []
    for table in (parts.cos, parts.sin):
        rows = table.build(build)
        if table.batch != parts.batch:
            rows = for_batch(build, rows, parts.batch, parts.source)
        tables.append(rows)
    return tables


def _shared_rows(parts: RotaryParts, build: GraphBuilder) -> list[Operand] | None:
    """Return cosines and sines of all positions, and the positions, if it is made of these."""
    cos, sin = parts.cos, parts.sin
    length = parts.shape[3 - parts.heads_axis]
    positions = cos.positions
    if cos.rows is None or sin.rows is None or positions is None:
        return None
    if positions is not sin.positions or shape_of(positions) != (parts.batch, length):
        return None
    return [cos.build_rows(build), sin.build_rows(build), positions]


@far_sighted
def onnxruntime_rotary_embedding(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe onnxruntime's own operator in the place of a match of the rotary pattern.

    Its tables are matrices: rows for all positions and which rows to take, or rows for the
    positions of every sequence, which begin at 0.
    """
    try:
        parts = read_rotary(match)
    except MisfitError as error:
        return error.rejection(match)
    if not isinstance(parts.heads, int):
        return match.reject("the number of heads is not known", at=parts.source)
    tables = _matrices(parts, build)
    if tables is None:
        return match.reject("the positions differ between sequences", at=parts.cos.value)
    tells_heads = parts.is_partial or parts.heads_first is None
    return _embedded(parts, build, "com.microsoft", tables, tells_heads=tells_heads)


def _matrices(parts: RotaryParts, build: GraphBuilder) -> list[Operand] | None:
    """Return positions, cosines and sines; None if each sequence has rows of its own."""
    shared = _shared_rows(parts, build)
    if shared is not None:
        return [shared[2], shared[0], shared[1]]
    if parts.cos.batch != 1 or parts.sin.batch != 1:
        return None
    first = build.constant(np.array([0]))
    axis = build.constant(np.array([0]))
    return [first, *(build.op("Squeeze", t.build(build), axis) for t in (parts.cos, parts.sin))]
