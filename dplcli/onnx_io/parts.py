"""Messages part by part: what is left out, or replaced, is not even copied.

The encoding is protobuf's own (https://protobuf.dev/programming-guides/encoding/): a message is the
concatenation of its fields, each with a header. protobuf encodes whole parts; this module makes
only the headers between them. Fields that protobuf does not know are kept.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import numpy_helper

from dplcli.ir.types import bits_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from google.protobuf.descriptor import Descriptor

    from dplcli.ir import Tensor

    Part: TypeAlias = "bytes | Untouched | RawData | MessageParts"
    """Encoded already, or to be encoded when it is written."""


M = TypeVar("M", bound=Message)

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_MORE = 0x80
"""The bit of a byte of a number that says that more bytes follow."""

_TEXT_TYPES = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_SHORT = [bytes([number]) for number in range(_MORE)]
"""The numbers of one byte: nearly all."""


def varint(number: int) -> bytes:
    """Write one number, 0 or above."""
    if number < _MORE:
        return _SHORT[number]
    digits = bytearray()
    while number >= _MORE:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def delimited(field_number: int, *contents: bytes) -> bytes:
    """Encode the items of a field that holds text or messages."""
    tag = varint(field_number << 3 | DELIMITED)
    return b"".join([tag + varint(len(content)) + content for content in contents])


def size_of_texts(texts: Sequence[str]) -> int:
    """Return how many bytes fields of these texts take, whose numbers are below 16."""
    joined = "".join(texts)
    if joined.isascii() and len(joined) < _MORE:
        return len(joined) + 2 * len(texts)
    return sum([len(delimited(1, text.encode())) for text in texts])


class MessageParts:
    """A message in the making: its parts, of which the large ones are encoded when it is written.

    Attributes:
        size: How many bytes it takes.
    """

    __slots__ = ("_parts", "size")

    def __init__(self, encoded: bytes = b"") -> None:
        self._parts: list[Part] = [encoded]
        self.size = len(encoded)

    def add(self, encoded: bytes) -> None:
        """Add fields that are encoded already."""
        self._parts.append(encoded)
        self.size += len(encoded)

    def embed(self, field_number: int, contents: Iterable[Part]) -> None:
        """Add items of a field, each without its header."""
        tag, headers = varint(field_number << 3 | DELIMITED), dict[int, bytes]()
        parts, total = self._parts, self.size
        for content in contents:
            size = len(content) if isinstance(content, bytes) else content.size
            header = headers.get(size)
            if header is None:
                header = headers[size] = tag + varint(size)
            parts += (header, content)
            total += len(header) + size
        self.size = total

    def fill(self, message: Message, replaced: Mapping[str, Iterable[Part]]) -> None:
        """Add the fields of a message in protobuf's order; those *replaced* hold other items."""
        for field in _fields_of(message.DESCRIPTOR):
            if field.name in replaced:
                self.embed(field.number, replaced[field.name])
            else:
                self.add(_field(message, field))
        self.add(b"".join(unknown_fields(message)))

    def encoded(self) -> Iterator[bytes]:
        """Encode one part after the other."""
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
            else:
                yield from part.encoded()

    def joined(self) -> bytes:
        """Encode the whole."""
        return b"".join(self.encoded())


class Untouched:
    """A message of the file, written as it came: so no weight is in memory twice.

    Args:
        message: The message, which does not change.

    Attributes:
        size: How many bytes it takes.
    """

    __slots__ = ("_message", "size")

    def __init__(self, message: Message) -> None:
        self._message = message
        self.size: int = message.ByteSize()

    def encoded(self) -> Iterator[bytes]:
        """Encode it."""
        yield self._message.SerializeToString()


class RawData:
    """The data of a tensor that a pass has made, encoded a chunk at a time when it is written.

    Args:
        tensor: The tensor; not of text.

    Attributes:
        size: How many bytes it takes.
    """

    __slots__ = ("_tensor", "size")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.size = -(-tensor.size * bits_of(tensor.dtype) // 8)

    def encoded(self) -> Iterator[bytes]:
        """Encode one chunk after the other."""
        for chunk in self._tensor.chunks():
            yield numpy_helper.from_array(chunk).raw_data


def fields(message: Message, *, without: Container[str]) -> bytes:
    """Encode every field of *message* but those named, unknown fields included."""
    known = [_field(message, f) for f in _fields_of(message.DESCRIPTOR) if f.name not in without]
    return b"".join([*known, *unknown_fields(message)])


def copy_but(message: M, left_out: Container[str]) -> M:
    """Copy a message but for some fields, which are not even copied first."""
    copy: M = type(message).FromString(fields(message, without=left_out))
    return copy


@cache
def _fields_of(descriptor: Descriptor) -> list[FieldDescriptor]:
    """List fields as protobuf orders them in a file."""
    return sorted(descriptor.fields, key=lambda field: field.number)


def _field(message: Message, field: FieldDescriptor) -> bytes:
    """Encode one field; nothing if the message does not state it."""
    if not field.is_repeated and not message.HasField(field.name):
        return b""
    value = getattr(message, field.name)
    items = value if field.is_repeated else [value]
    if field.message_type is not None:
        return delimited(field.number, *[item.SerializeToString() for item in items])
    if field.type in _TEXT_TYPES:
        return delimited(field.number, *map(_data, items))
    part = type(message)()
    if field.is_repeated:
        getattr(part, field.name).extend(value)
    else:
        setattr(part, field.name, value)
    data: bytes = part.SerializeToString()
    return data


def _data(text: str | bytes) -> bytes:
    """Return the bytes of a string; one that is not UTF-8 comes from protobuf as bytes."""
    return text.encode() if isinstance(text, str) else text


def unknown_fields(message: Message) -> Iterator[bytes]:
    """Encode the fields that the installed onnx has no name for; groups are dropped."""
    for field in UnknownFieldSet(message):
        tag = varint(field.field_number << 3 | field.wire_type)
        if field.wire_type == VARINT:
            yield tag + varint(field.data)
        elif field.wire_type == DELIMITED:
            yield tag + varint(len(field.data)) + field.data
        elif field.wire_type in _FIXED_BYTES:
            yield tag + field.data.to_bytes(_FIXED_BYTES[field.wire_type], "little")
