"""The wire format of protobuf, read for many messages at once.

:func:`fields` walks any number of messages in lockstep: step k reads the k-th field of every
message that has one. So it costs a few array operations a field *position*, not a field.

Only *regular* bytes are read here: those that protobuf itself would write. What it would not
write but may accept (groups, numbers with needless bytes, a single field that is stated twice, and
fields in another order than that of their numbers, where that is asked for) raises
:class:`IrregularError`, and so does what it refuses: whoever reads a file lets protobuf decide
then, and reads what protobuf makes of it. A position is checked before anything is read there.
Fields that protobuf keeps but does not understand are called number 0.

Data is a uint8 array that ends with :data:`PADDING` zeros, which belong to no message, so that
words of eight bytes can be read at its end. Positions are int64. Format:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from dplcli.onnx_io.arrays import offsets, unnest

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from google.protobuf.descriptor import Descriptor
    from numpy.typing import NDArray

    from dplcli.onnx_io.arrays import Flags, Ids, Ints

    Bytes = NDArray[np.uint8]

PADDING: Final = 16
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_MOST_DIGITS = 10
_FIXED_SIZE = np.array([0, 8, 0, -1, -1, 4, -1, -1])
"""How many bytes a field of each wire type takes; 0 where it says so itself, -1 if irregular."""
_MOST_NUMBER = (1 << 29) - 1
_MORE = 0x80
"""The bit of a byte of a number that says that more bytes follow."""
_FEW = 8
"""Up to how many messages are walked one by one."""
_FEW_STRINGS = 64
"""Up to how many strings are looked at one by one."""
_LONG = 256
"""From how many bytes on a string is hashed by itself, not in lockstep with others."""


_TURNS = 3
"""How often strings are hashed in another way, where two different ones share a hash."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""What is left of a word of which only the first bytes count, by how many do."""
_KINDS = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64), FIXED64),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32), FIXED32),
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_BOOL,
            FieldDescriptor.TYPE_ENUM,
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_UINT64,
        ),
        VARINT,
    ),
}
"""The wire types of the numbers that ONNX has; all else is delimited."""
_WIDTHS = {FIXED32: 4, FIXED64: 8}
"""How many bytes a number of a wire type takes."""

_SMALL = (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT32)
_NOT_ASCII = np.uint64(0x8080808080808080)
"""The bits of a word that only bytes of other than ASCII text have."""


class IrregularError(ValueError):
    """Bytes that protobuf would not write; it may accept or refuse them."""


def padded(data: bytes) -> Bytes:
    """Return *data* with the zeros that everything here needs behind it."""
    return np.frombuffer(data + bytes(PADDING), np.uint8)


def padded_file(path: Path) -> Bytes:
    """Return the bytes of a file with these zeros behind them; they are in memory once."""
    with path.open("rb") as file:
        data = np.empty(os.fstat(file.fileno()).st_size + PADDING, np.uint8)
        # a file that shrinks meanwhile is read as far as it goes
        size = file.readinto(data[:-PADDING].data)
    data[size:] = 0
    return data[: size + PADDING]


# Numbers.


def varints(data: Bytes, at: Ints, limit: Ints) -> tuple[Ints, Ints]:
    """Read numbers, each as protobuf writes it.

    Args:
        data: The bytes.
        at: Where each begins, (n,).
        limit: Where what it belongs to ends, (n,).

    Returns:
        The numbers as int64, (n,): from 2 ** 63 on they are negative; and where each ends, (n,).

    Raises:
        IrregularError: One does not end before its limit, or takes more bytes than it needs.
    """
    if not at.size:
        return at, at
    if (at >= limit).any():
        raise IrregularError("a number is missing")
    value = data[at].astype(np.int64)
    end = at + 1
    more = np.flatnonzero(value >= _MORE)
    if not more.size:
        return value, end
    value[more] &= 0x7F
    for digit in range(1, _MOST_DIGITS):
        where = end[more]
        if (where >= limit[more]).any():
            raise IrregularError("a number does not end")
        byte = data[where].astype(np.int64)
        if (byte == 0).any() or (digit == _MOST_DIGITS - 1 and (byte != 1).any()):
            raise IrregularError("a number takes more bytes than it needs")
        value[more] |= (byte & 0x7F) << (7 * digit)
        end[more] = where + 1
        more = more[byte >= _MORE]
        if not more.size:
            break
    return value, end


def varint(number: int) -> bytes:
    """Write one number, 0 or above."""
    digits = bytearray()
    while number >= _MORE:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# Fields.


class Fields(NamedTuple):
    """Fields of messages, by message and in order; m of them.

    Attributes:
        owner: The message that each is of, (m,).
        number: Its number, (m,); 0 if it is none of this type, or of another wire type than that.
        head: Where it begins, tag and size included, (m,).
        begin: Where its content begins, (m,).
        end: Where it ends, (m,).
    """

    owner: Ints
    number: Ints
    head: Ints
    begin: Ints
    end: Ints

    def of(self, number: int) -> Fields:
        """Return those of one number."""
        which = np.flatnonzero(self.number == number)
        return Fields(*[column[which] for column in self])


class _Layout(NamedTuple):
    """What regular messages of one type look like.

    Attributes:
        kinds: The wire type of each field by its number; -1 for a number that is not known.
        others: The wire type that such a field may have, too, where it is one of many numbers.
        alone: Of which fields a message has one at most, by number: those of one union have the
            same number here, and others 0.
        is_small: Whether a field has 32 bits, by number.
        is_text: Whether it holds text, by number.
        packed: The fields that hold many numbers in one piece, with the wire type of these.
        choices: The numbers of fields that hold one of some numbers, and these.
        nested: The numbers of fields that hold messages, and the type of these.
    """

    kinds: NDArray[np.int64]
    others: NDArray[np.int64]
    alone: NDArray[np.int64]
    is_small: Flags
    is_text: Flags
    packed: tuple[tuple[int, int], ...]
    choices: tuple[tuple[int, tuple[int, ...]], ...]
    nested: tuple[tuple[int, Descriptor], ...]


@cache
def _layout(descriptor: Descriptor) -> _Layout:
    known = descriptor.fields_by_number
    kinds = np.full(max(known) + 2, -1)  # the last is for what is not known
    others = kinds.copy()
    for number, field in known.items():
        kind = _KINDS.get(field.type, DELIMITED)
        kinds[number] = DELIMITED if field.is_packed else kind
        if field.is_repeated and kind != DELIMITED:
            others[number] = kind if field.is_packed else DELIMITED
    alone = np.zeros(kinds.size, np.int64)
    is_small, is_text = np.zeros((2, kinds.size), np.bool_)
    for number, field in known.items():
        is_small[number] = field.type in _SMALL
        is_text[number] = field.type == FieldDescriptor.TYPE_STRING
        if not field.is_repeated:
            alone[number] = number
    for union in descriptor.oneofs:
        alone[[field.number for field in union.fields]] = union.fields[0].number
    return _Layout(
        kinds,
        others,
        alone,
        is_small,
        is_text,
        tuple((n, _KINDS[field.type]) for n, field in known.items() if field.is_packed),
        tuple((n, tuple(f.enum_type.values_by_number)) for n, f in known.items() if f.enum_type),
        tuple((n, field.message_type) for n, field in known.items() if field.message_type),
    )


def fields(
    data: Bytes, descriptor: Descriptor, begin: Ints, end: Ints, *, in_order: bool = True
) -> Fields:
    """Walk messages: in lockstep while there are enough of them, the longest ones by themselves.

    Args:
        data: The bytes.
        descriptor: The type of the messages.
        begin: Where each begins, (n,).
        end: Where it ends, (n,).
        in_order: Whether their fields must stand in the order of their numbers.

    Returns:
        All their fields.

    Raises:
        IrregularError: The bytes are not regular; messages inside these are not looked at.
    """
    if not begin.size:
        return Fields(*np.zeros((5, 0), np.int64))
    count = np.zeros(begin.size, np.int64)
    live = np.flatnonzero(begin < end)
    at, limit = begin[live], end[live]
    steps: list[tuple[Ints, ...]] = []
    while live.size > _FEW:
        number, kind, start, stop = _field(data, at, limit)
        steps.append((live, count[live], number, kind, at, start, stop))
        count[live] += 1
        keep = np.flatnonzero(stop < limit)
        if keep.size < live.size:
            live, at, limit = live[keep], stop[keep], limit[keep]
        else:
            at = stop
    if live.size:
        more, heads, limits = _walk(data, at, limit)
        number, kind, start, stop = _field(data, heads, limits)
        if (stop != limits).any():
            raise IrregularError("a field does not end where the next one begins")
        row, place = unnest(count[live], more)
        steps.append((live[row], place, number, kind, heads, start, stop))
        count[live] += more
    # how many fields each message has is known now, and so is where each field belongs
    owner = np.repeat(np.arange(begin.size), count)
    columns = np.empty((5, owner.size), np.int64)
    first = offsets(count)
    for rows, place, *parts in steps:
        where = first[rows] + place
        for column, part in zip(columns, parts, strict=True):
            column[where] = part
    number, kind, head, start, stop = columns
    found = Fields(owner, number, head, start, stop)
    _require_layout(data, descriptor, found, kind)
    if in_order:
        # Refuse fields in another order than that of their numbers.
        rank = np.where(found.number == 0, _MOST_NUMBER, found.number)
        if ((rank[1:] < rank[:-1]) & (found.owner[1:] == found.owner[:-1])).any():
            raise IrregularError(f"fields of {descriptor.name} are not in order")
    return found


def _require_layout(data: Bytes, descriptor: Descriptor, found: Fields, kind: Ints) -> None:
    """Refuse fields that protobuf would not write so; those that it does not know become 0."""
    layout = _layout(descriptor)
    number = np.minimum(found.number, layout.kinds.size - 1)
    if (layout.others[number] == kind).any():
        raise IrregularError(f"numbers of {descriptor.name} are packed otherwise")
    known = found.number
    known[layout.kinds[number] != kind] = 0
    for which, packed in layout.packed:
        rows = np.flatnonzero(known == which)
        begin, end = found.begin[rows], found.end[rows]
        _require_numbers(data, begin, end, packed, is_small=bool(layout.is_small[which]))
    rows = np.flatnonzero(layout.is_small[known] & (kind == VARINT))
    value, _ = varints(data, found.begin[rows], found.end[rows])
    if (value.astype(np.int32) != value).any():
        raise IrregularError(f"a number of {descriptor.name} takes more than 32 bits")
    for which, choices in layout.choices:
        rows = np.flatnonzero(known == which)
        value, _ = varints(data, found.begin[rows], found.end[rows])
        known[rows[~np.isin(value, choices)]] = 0
    rows = np.flatnonzero(layout.is_text[known])
    _require_text(data, found.begin[rows], found.end[rows])
    alone = layout.alone[known]
    once = (found.owner * layout.alone.size + alone)[alone > 0]
    is_there = np.zeros(int(once.max(initial=-1)) + 1, np.bool_)
    is_there[once] = True
    if np.count_nonzero(is_there) < once.size:
        raise IrregularError(f"a field of {descriptor.name} is stated twice")


def _require_numbers(data: Bytes, begin: Ints, end: Ints, kind: int, *, is_small: bool) -> None:
    """Refuse packed numbers that protobuf would not write so.

    Args:
        data: The bytes.
        begin: Where the numbers of each field begin, (n,).
        end: Where they end, (n,).
        kind: Their wire type.
        is_small: Whether they have 32 bits.
    """
    if (begin == end).any():
        raise IrregularError("a piece of numbers is empty")
    if kind != VARINT:
        if ((end - begin) % _WIDTHS[kind]).any():
            raise IrregularError("a piece of numbers ends within one")
        return
    for first, stop in zip(begin.tolist(), end.tolist(), strict=True):
        last = first + np.flatnonzero(data[first:stop] < _MORE)
        value, at = varints(data, np.append(first, last[:-1] + 1) if last.size else last, last + 1)
        if (at[-1] if at.size else first) != stop:
            raise IrregularError("a number does not end")
        if is_small and (value.astype(np.int32) != value).any():
            raise IrregularError("a number takes more than 32 bits")


def _require_text(data: Bytes, begin: Ints, end: Ints) -> None:
    """Refuse text that is not UTF-8, which protobuf lets pass."""
    if not begin.size:
        return
    size = end - begin
    odd = size > (_LONG if size.size > _FEW_STRINGS else 0)
    for rows, word in _words(data, begin, np.where(odd, 0, size)):
        odd[rows[(word & _NOT_ASCII) != 0]] = True
    for row in np.flatnonzero(odd).tolist():
        try:
            data[begin[row] : end[row]].tobytes().decode()
        except UnicodeDecodeError as error:
            raise IrregularError("a text is not UTF-8") from error


def require_regular(data: Bytes, descriptor: Descriptor, begin: Ints, end: Ints) -> None:
    """Refuse what protobuf would not write, in messages and in all those inside them.

    Args:
        data: The bytes.
        descriptor: The type of the messages.
        begin: Where each begins, (n,).
        end: Where it ends, (n,).

    Raises:
        IrregularError: One of them is not regular.
    """
    pending = [(descriptor, begin, end)]
    while pending:
        descriptor, begin, end = pending.pop()
        if begin.size:
            pending += inside(descriptor, fields(data, descriptor, begin, end))


def inside(
    descriptor: Descriptor, found: Fields, but: Container[int] = ()
) -> Iterator[tuple[Descriptor, Ints, Ints]]:
    """Yield the messages in fields *found*, type by type, but those of some numbers."""
    present = np.flatnonzero(np.bincount(found.number)).tolist()
    for number, inner in _layout(descriptor).nested:
        if number in present and number not in but:
            rows = found.of(number)
            yield inner, rows.begin, rows.end


def _walk(data: Bytes, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Walk messages one by one.

    A field's place is known when the one before it has been read, so this is a loop; numbers and
    contents are read in bulk behind it.

    Returns:
        How many fields each message has; where each field begins, and where the next one does.
    """
    text = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer since Python 3.12
    found = [_heads(text, a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    count = np.array([len(heads) for heads in found])
    head = np.array([place for heads in found for place in heads], np.int64)
    limit = np.append(head[1:], 0)
    limit[np.cumsum(count) - 1] = end
    return count, head, limit


def _heads(text: memoryview, at: int, end: int) -> list[int]:
    """Return where the fields of a message begin."""
    heads = []
    while at < end:
        heads.append(at)
        # a field of number 1 to 15 that holds bytes, fewer than 2 ** 14, is the common case
        if text[at] & 0x87 == DELIMITED and (size := text[at + 1]) < _MORE:
            at += 2 + size
        elif text[at] & 0x87 == DELIMITED and (high := text[at + 2]) < _MORE:
            at += 3 + (size & 0x7F | high << 7)
        else:
            at = _behind(text, at, end)
    return heads


def _field(data: Bytes, at: Ints, limit: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Read one field at each position: number, wire type, and where its content begins and ends."""
    tag, start = varints(data, at, limit)
    number, kind = tag >> 3, tag & 7
    if ((number < 1) | (number > _MOST_NUMBER)).any():
        raise IrregularError("a field has no number")
    if (kind == DELIMITED).all():
        size, start = varints(data, start, limit)
    else:
        size = _FIXED_SIZE[kind]
        if (size < 0).any():
            raise IrregularError("a field has no wire type that is in use")
        here = np.flatnonzero(kind == DELIMITED)
        size[here], start[here] = varints(data, start[here], limit[here])
        here = np.flatnonzero(kind == VARINT)
        size[here] = varints(data, start[here], limit[here])[1] - start[here]
    # sizes are compared before they are added, so that a huge one cannot wrap round
    if ((size < 0) | (size > limit - start)).any():
        raise IrregularError("a field does not end inside its message")
    return number, kind, start, start + size


def _behind(text: memoryview, at: int, end: int) -> int:
    """Return where the field at *at* ends; *end* and more if it does not end before that."""
    tag, at = _number(text, at, end)
    kind = tag & 7
    if kind == DELIMITED:
        size, at = _number(text, at, end)
        return at + size
    if kind == VARINT:
        return _number(text, at, end)[1]
    if _FIXED_SIZE[kind] < 0:
        raise IrregularError("a field has a wire type that is not in use")
    return at + int(_FIXED_SIZE[kind])


def _number(text: memoryview, at: int, end: int) -> tuple[int, int]:
    value = 0
    for digit in range(_MOST_DIGITS):
        if at >= end:
            break
        byte = text[at]
        at += 1
        value |= (byte & 0x7F) << (7 * digit)
        if byte < _MORE:
            return value, at
    raise IrregularError("a number does not end")


# Equal strings.


def intern(data: Bytes, begin: Ints, end: Ints) -> tuple[Ids, Ints]:
    """Give equal strings equal numbers.

    All rows are put into a hash table at once: each round, the rows that are left try one slot.
    Two strings of one hash are told apart by their bytes, and hashed anew in another way.

    Args:
        data: The bytes.
        begin: Where each string begins, (n,).
        end: Where it ends, (n,).

    Returns:
        The number of each string, int32 (n,), by first appearance; and the first row that has each
        number, int64 (k,).
    """
    if not begin.size:
        return np.zeros(0, np.int32), begin
    size = end - begin
    for turn in range(_TURNS if size.size > _FEW_STRINGS else 0):
        first = _first_equal(_hashes(data, begin, size, turn))
        others = np.flatnonzero(first != np.arange(size.size))
        if _are_equal(data, begin, size, others, first[others]):
            break
    else:
        first = _first_equal_by_bytes(data, begin, end)
    is_first = first == np.arange(size.size)
    return (np.cumsum(is_first, dtype=np.int32) - np.int32(1))[first], np.flatnonzero(is_first)


def _words(data: Bytes, begin: Ints, size: Ints) -> Iterator[tuple[Ints, NDArray[np.uint64]]]:
    """Yield, word by word, the rows that go on and their next eight bytes, zeros behind the end."""
    view = np.ndarray((data.size - 7,), "<u8", data, strides=(1,))
    rows, at, left = np.arange(size.size), begin, size
    while rows.size:
        yield rows, view[at] & _MASKS[np.minimum(left, 8)]
        more = left > 8  # noqa: PLR2004  # a word
        rows, at, left = rows[more], at[more] + 8, left[more] - 8


def _hashes(data: Bytes, begin: Ints, size: Ints, turn: int) -> NDArray[np.uint64]:
    """Return a hash of each string; another one each turn (multiply and fold, as FNV does)."""
    prime = _PRIME + np.uint64(2 * turn)
    key = (size + 1).astype(np.uint64) * prime
    for rows, word in _words(data, begin, np.where(size > _LONG, 0, size)):
        mixed = (key[rows] ^ word) * prime
        key[rows] = mixed ^ (mixed >> np.uint64(29))
    for row in np.flatnonzero(size > _LONG).tolist():
        text = data[begin[row] : begin[row] + size[row]].tobytes()
        key[row] ^= np.uint64(crc32(text, turn) << 32 | crc32(text[::-1], turn))
    return key


def _first_equal(key: NDArray[np.uint64]) -> Ints:
    """Return the first row that has the same key, (n,)."""
    bits = max(4, key.size.bit_length() + 1)
    slots = np.full(1 << bits, -1, np.int64)
    first = np.empty(key.size, np.int64)
    live = np.arange(key.size)
    step = 0
    while live.size:
        mixed = (key[live] ^ np.uint64(step)) * _PRIME
        slot = (mixed >> np.uint64(64 - bits)).astype(np.int64)
        free = slots[slot] < 0
        # of all that write into one slot the last stays, so the first row is written last
        slots[slot[free][::-1]] = live[free][::-1]
        owner = slots[slot]
        same = key[owner] == key[live]
        first[live[same]] = owner[same]
        live, step = live[~same], step + 1
    return first


def _are_equal(data: Bytes, begin: Ints, size: Ints, left: Ints, right: Ints) -> bool:
    """Tell whether the strings of rows *left* are those of rows *right*."""
    if not np.array_equal(size[left], size[right]):
        return False
    is_long = size[left] > _LONG
    for a, b in zip(left[is_long].tolist(), right[is_long].tolist(), strict=True):
        first, second = (data[begin[row] : begin[row] + size[row]] for row in (a, b))
        if not np.array_equal(first, second):
            return False
    short = np.where(is_long, 0, size[left])
    pairs = zip(_words(data, begin[left], short), _words(data, begin[right], short), strict=True)
    return all(np.array_equal(a, b) for (_, a), (_, b) in pairs)


def _first_equal_by_bytes(data: Bytes, begin: Ints, end: Ints) -> Ints:
    """Do what :func:`_first_equal` does, for few strings or some chosen to share their hashes."""
    seen: dict[bytes, int] = {}
    spans = zip(begin.tolist(), end.tolist(), strict=True)
    rows = [seen.setdefault(data[a:b].tobytes(), row) for row, (a, b) in enumerate(spans)]
    return np.array(rows, np.int64)
