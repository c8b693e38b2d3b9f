"""Serialise a message part by part, so that parts can be left out or replaced.

The encoding is protobuf's own (https://protobuf.dev/programming-guides/encoding/): a message is
the concatenation of its fields, each with a header. Whole parts are encoded by protobuf; only the
headers between them are made here. Fields that protobuf does not know are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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


class Later(NamedTuple):
    """A message that is encoded when it is written.

    Weights are most of a model; so at most one of them is in memory a second time.
    """

    message: Message
    size: int


def later(field_number: int, messages: Iterable[Message]) -> Iterator[Part]:
    """Stand for the items of a repeated message field."""
    for message in messages:
        size = message.ByteSize()
        yield header(field_number, size)
        yield Later(message, size)


def size(parts: Iterable[Part]) -> int:
    """Count the bytes of *parts*."""
    return sum(len(part) if type(part) is bytes else part[1] for part in parts)


def encode(part: Part) -> bytes:
    """Return the bytes of *part*."""
    if isinstance(part, bytes):
        return part
    data: bytes = part.message.SerializeToString()
    return data


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
