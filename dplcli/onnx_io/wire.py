"""Serialise a message part by part, so that parts can be left out or replaced.

The encoding is protobuf's own (https://protobuf.dev/programming-guides/encoding/): a message is
the concatenation of its fields, each with a header. Whole parts are encoded by protobuf; only the
headers between them are made here. Fields that protobuf does not know are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from google.protobuf.message import Message

    Part: TypeAlias = "bytes | Later"
    """Encoded already, or to be encoded when it is written."""

_TEXT_TYPES = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
_VARINT, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}


def varint(number: int) -> bytes:
    """Encode a non-negative number in groups of seven bits, lowest first."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # seven bits
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def header(field_number: int, length: int) -> bytes:
    """Encode what stands before *length* bytes of an embedded message."""
    return varint(field_number << 3 | _BYTES) + varint(length)


def text_field_size(text: str) -> int:
    """Count the bytes of a field numbered below 16 that holds text; "" is not encoded."""
    length = len(text) if text.isascii() else len(text.encode())
    if length <= 0x7F:  # noqa: PLR2004  # seven bits
        return length and length + 2
    return length + 1 + len(varint(length))


def embedded(field_number: int, payloads: Iterable[bytes]) -> Iterator[bytes]:
    """Encode the items of a repeated message field."""
    headers: dict[int, bytes] = {}
    for payload in payloads:
        length = len(payload)
        if length not in headers:
            headers[length] = header(field_number, length)
        yield headers[length]
        yield payload


class Later:
    """The items of a repeated message field, each encoded when it is written.

    Weights are most of a model; so at most one of them is in memory a second time.

    Args:
        field_number: The field.
        messages: Its items, which are not edited before they are written.

    Attributes:
        size: How many bytes they take.
    """

    __slots__ = ("_headers", "_messages", "size")

    def __init__(self, field_number: int, messages: Sequence[Message]) -> None:
        """Measure *messages*."""
        sizes = [message.ByteSize() for message in messages]
        self._messages = messages
        self._headers = {length: header(field_number, length) for length in set(sizes)}
        self.size = sum(sizes) + sum([len(self._headers[length]) for length in sizes])

    def encoded(self) -> Iterator[bytes]:
        """Encode one after the other."""
        for message in self._messages:
            data: bytes = message.SerializeToString()
            yield self._headers[len(data)]
            yield data


def size(parts: Iterable[Part]) -> int:
    """Count the bytes of *parts*."""
    return sum([len(part) if isinstance(part, bytes) else part.size for part in parts])


def encode(parts: Iterable[Part]) -> Iterator[bytes]:
    """Return the bytes of *parts*."""
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            yield from part.encoded()


def fields(message: Message, *, without: Collection[str] = ()) -> Iterator[bytes]:
    """Encode every field of *message* but those named, unknown fields included."""
    for descriptor, value in message.ListFields():
        if descriptor.name in without:
            continue
        if descriptor.message_type is not None and descriptor.is_repeated:
            yield from embedded(descriptor.number, (item.SerializeToString() for item in value))
            continue
        if descriptor.type in _TEXT_TYPES:
            texts = value if descriptor.is_repeated else [value]
            yield from embedded(descriptor.number, map(_data, texts))
            continue
        part = type(message)()
        if descriptor.is_repeated:
            getattr(part, descriptor.name).extend(value)
        elif descriptor.message_type is not None:
            getattr(part, descriptor.name).CopyFrom(value)
        else:
            setattr(part, descriptor.name, value)
        yield part.SerializeToString()
    yield from unknown_fields(message)


def _data(text: str | bytes) -> bytes:
    """Return the bytes of a string; one that is not UTF-8 comes from protobuf as bytes."""
    return text.encode() if isinstance(text, str) else text


def unknown_fields(message: Message) -> Iterator[bytes]:
    """Encode the fields that the installed onnx has no name for; groups are dropped."""
    for field in UnknownFieldSet(message):
        tag = varint(field.field_number << 3 | field.wire_type)
        if field.wire_type == _VARINT:
            yield tag + varint(field.data)
        elif field.wire_type == _BYTES:
            yield tag + varint(len(field.data)) + field.data
        elif field.wire_type in _FIXED_BYTES:
            yield tag + field.data.to_bytes(_FIXED_BYTES[field.wire_type], "little")
