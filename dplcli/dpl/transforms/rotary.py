"""Turn rotary position embeddings that are written out into the operator RotaryEmbedding.

Before: ``x * cos + concat(-x2, x1) * sin``, or ``concat(x1 * cos - x2 * sin, x1 * sin + x2 * cos)``
After:  ``RotaryEmbedding(x, cos_cache, sin_cache, position_ids)``
Holds when: x1 and x2 are the halves, or the even and odd elements, of the last axis of x, or of
its beginning if the rest is passed on; cosines and sines have one row per position and, where they
are as wide as x, two equal halves; batch and length provably fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from dplcli.dpl.shapes import shape_of
from dplcli.dpl.shapes.terms import multiply
from dplcli.dpl.transforms.operands import follow
from dplcli.dpl.transforms.pieces import Piece, piece_of
from dplcli.dpl.transforms.rotary_tables import Table, read_table
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Value

_RANK = 4
_DTYPES = {"float32", "float16", "bfloat16"}


class NotRotaryError(Exception):
    """A match is no rotary embedding.

    Args:
        reason: Why.
        at: The value concerned.
    """

    def __init__(self, reason: str, at: Value | None = None) -> None:
        """Say why."""
        super().__init__(reason)
        self.at = at

    def rejection(self, match: Match) -> Rejection:
        """Refuse *match* for this reason."""
        return match.reject(str(self), at=self.at)


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
    cos: Table
    sin: Table

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
        found = None if followed is None else followed.seen_as((0, 2, 1, 3))
        return None if found is None or found.scale != 1 else found.value


class _Turned(NamedTuple):
    value: Value
    is_interleaved: bool


def read_rotary(match: Match) -> RotaryParts:
    """Take a match of the rotary pattern apart.

    Raises:
        NotRotaryError: It is none.
    """
    turned = _turned(match)
    width = _width_of(turned.value)
    source = _whole(match, turned.value, width)
    shape = shape_of(source)
    if shape is None or len(shape) != _RANK:
        _refuse("what is turned is not known to have 4 axes", source)
    _check_types(match, source)
    cos, sin = match.value("cos"), match.value("sin")
    if cos is None or sin is None:
        _refuse("there are no cosines and sines", source)
    axis = _heads_axis(cos, shape)
    tables = [read_table(value, axis, shape, width) for value in (cos, sin)]
    for table, value in zip(tables, (cos, sin), strict=True):
        if isinstance(table, str):
            _refuse(table, value)
    first, second = tables
    assert isinstance(first, Table)  # noqa: S101  # checked above
    assert isinstance(second, Table)  # noqa: S101  # checked above
    return RotaryParts(source, shape, axis, width, turned.is_interleaved, first, second)


def _refuse(reason: str, at: Value | None = None) -> NoReturn:
    raise NotRotaryError(reason, at)


def _turned(match: Match) -> _Turned:
    """Return what is turned, and whether by halves or by neighbours."""
    first, second = match.value("first"), match.value("second")
    pieces = [None if value is None else piece_of(value) for value in (first, second)]
    one, other = pieces
    if one is None or other is None or one.source is not other.source:
        _refuse("what is combined are not two parts of one value", first)
    width = one.whole
    halves = (
        Piece(one.source, 0, width // 2, 1, width),
        Piece(one.source, width // 2, width, 1, width),
    )
    neighbours = (Piece(one.source, 0, width, 2, width), Piece(one.source, 1, width, 2, width))
    if width % 2:
        _refuse("an odd number of elements is turned", first)
    is_interleaved = (one.span, other.span) == tuple(piece.span for piece in neighbours)
    if not is_interleaved and (one.span, other.span) != tuple(piece.span for piece in halves):
        _refuse("what is combined are not the two halves of one value", first)
    whole = match.value("x")
    if whole is not None and behind_identities(whole) is not one.source:
        _refuse("what is combined are not parts of what is multiplied by the cosines", first)
    _check_joints(match, is_interleaved=is_interleaved)
    return _Turned(one.source, is_interleaved)


def _check_joints(match: Match, *, is_interleaved: bool) -> None:
    """Refuse parts that are not put together again as they were taken apart."""
    paired = match.node("paired")
    joined = match.node("joined") or match.node("joined_parts")
    if (paired is not None) != is_interleaved:
        _refuse("halves and neighbours are mixed", match.outputs[0])
    for node in (joined, paired, match.node("whole")):
        if node is None:
            continue
        axis = attribute_of(node, "axis")
        output = node.outputs[0]
        shape = None if output is None else shape_of(output)
        if axis is None or shape is None or axis.value not in {-1, len(shape) - 1}:
            _refuse("the parts are not joined along the last axis", output)
    if paired is not None:
        _check_pairs(match)


def _check_pairs(match: Match) -> None:
    """Refuse a Reshape that does more than to lay pairs one after the other."""
    flat, real = match.value("flat"), match.value("real")
    paired = match.value("paired")
    if flat is None or real is None or paired is None:
        _refuse("the pairs are not laid one after the other", flat)
    shape = shape_of(real)
    if shape is None or shape_of(paired) != (*shape, 2):
        _refuse("real and imaginary parts do not become pairs", paired)
    if shape_of(flat) != (*shape[:-1], multiply(shape[-1], 2)):
        _refuse("the pairs are not laid one after the other", flat)


def _width_of(value: Value) -> int:
    shape = shape_of(value)
    width = shape[-1] if shape else None
    if not isinstance(width, int):
        _refuse("how many elements are turned is not known", value)
    return width


def _whole(match: Match, turned: Value, width: int) -> Value:
    """Return the value whose beginning is turned; all of it if nothing is passed on."""
    rest = match.value("rest")
    if rest is None:
        return turned
    beginning, end = piece_of(turned), piece_of(rest)
    if beginning is None or end is None or beginning.source is not end.source:
        _refuse("what is passed on is not the rest of what is turned", rest)
    spans = ((0, width, 1), (width, beginning.whole, 1))
    if (beginning.span, end.span) != spans:
        _refuse("what is passed on is not the rest of what is turned", rest)
    return beginning.source


def _check_types(match: Match, source: Value) -> None:
    found = set()
    for value in (source, match.value("cos"), match.value("sin")):
        known = None if value is None else value.known_type()
        found.add(None if known is None else known.dtype)
    if len(found) != 1 or not found <= _DTYPES:
        _refuse("x, cosines and sines are not known to be of one type that can be turned", source)


def _heads_axis(cos: Value, shape: Dims) -> int:
    """Tell which axis of x the cosines are the same for."""
    own = shape_of(cos)
    if own is None:
        _refuse("the rank of the cosines is not known", cos)
    padded = (1,) * (_RANK - len(own)) + own
    for axis, other in ((1, 2), (2, 1)):
        if len(padded) == _RANK and padded[axis] == 1 and padded[other] == shape[other]:
            return axis
    _refuse("the cosines are not known to have one row per position, for all heads", cos)
