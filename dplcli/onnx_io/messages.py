"""In what two protobuf messages differ: a walk along their descriptors, which misses no field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Path: TypeAlias = tuple[tuple[str, str], ...]
    """The fields from the outside in: ``Message.field``, and which item of a list it is."""

ORDER: Final = "order"
"""The last field of a path where the same items stand in another order."""

_KEYS = ("key", "name", "tensor_name", "configuration_id", "domain")
"""What tells the items of a list apart, if they have it; else their places do."""
_DTYPES = TensorProto.DESCRIPTOR.enum_types_by_name["DataType"]
_NUMBERS_OF_TYPES = frozenset({"data_type", "elem_type", "key_type"})
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_MOST = 200
"""Up to how many characters a value is written out."""


class FieldChange(NamedTuple):
    """A field that two messages state differently.

    Attributes:
        path: Where it is. A field that the installed onnx does not know has no name.
        before: What the first message says, as text; empty if nothing.
        after: What the second says.
    """

    path: Path
    before: str
    after: str


def field_changes(first: Message, second: Message, path: Path = ()) -> Iterator[FieldChange]:
    """Yield every field that differs, unknown ones too; recursion is as deep as messages nest.

    Args:
        first: One message.
        second: Another one of the same type.
        path: Where they are.
    """
    if first.SerializeToString() == second.SerializeToString():
        return
    for field in first.DESCRIPTOR.fields:
        old, new = (_stated(message, field) for message in (first, second))
        name = f"{first.DESCRIPTOR.name}.{field.name}"
        place = (*path, (name, ""))
        if field.message_type is not None and field.is_repeated:
            yield from _item_changes(old, new, path, name)
        elif field.message_type is not None and old is not None and new is not None:
            yield from field_changes(old, new, place)
        elif not _are_same(old, new, field):
            if field.is_repeated and sorted(map(repr, old)) == sorted(map(repr, new)):
                place = (*place, (ORDER, ""))
            yield FieldChange(place, _text(old, field), _text(new, field))
    olds, news = (_unknown(message) for message in (first, second))
    for number in sorted(olds.keys() | news.keys()):
        ends = olds.get(number, ""), news.get(number, "")
        if ends[0] != ends[1]:
            yield FieldChange((*path, ("", number)), *ends)


def _item_changes(
    first: Iterable[Message], second: Iterable[Message], path: Path, name: str
) -> Iterator[FieldChange]:
    """Compare the items of two lists, whatever their order; then the order."""
    olds, news = _by_key(first), _by_key(second)
    for key in olds | news:
        old, new = olds.get(key), news.get(key)
        place = (*path, (name, key))
        if old is not None and new is not None:
            yield from field_changes(old, new, place)
        else:
            yield FieldChange(place, _text(old), _text(new))
    orders = [key for key in olds if key in news], [key for key in news if key in olds]
    if orders[0] != orders[1]:
        yield FieldChange((*path, (name, ""), (ORDER, "")), *(_short(", ".join(o)) for o in orders))


def _by_key(items: Iterable[Message]) -> dict[str, Message]:
    named: dict[str, Message] = {}
    for number, item in enumerate(items, 1):
        key = next((str(getattr(item, k)) for k in _KEYS if hasattr(item, k)), str(number))
        while key in named:
            key += " again"
        named[key] = item
    return named


def _stated(message: Message, field: FieldDescriptor) -> Any:  # noqa: ANN401  # a field's value
    is_there = field.is_repeated or message.HasField(field.name)
    return getattr(message, field.name) if is_there else None


def _are_same(old: Any, new: Any, field: FieldDescriptor) -> bool:  # noqa: ANN401  # as above
    """Compare values: NaN is the same as itself, and 0 not as -0."""
    if old is None or new is None or field.cpp_type not in _FLOATS:
        return bool(old == new)
    return np.asarray(old).tobytes() == np.asarray(new).tobytes()


def _unknown(message: Message) -> dict[str, str]:
    """Write what stands in fields that the installed onnx does not know, by number."""
    values: dict[str, list[str]] = {}
    for field in UnknownFieldSet(message):
        values.setdefault(str(field.field_number), []).append(repr(field.data))
    return {number: _short(", ".join(items)) for number, items in values.items()}


def _text(value: Any, field: FieldDescriptor | None = None) -> str:  # noqa: ANN401  # as above
    """Write a value; of a large one, how large it is."""
    entry = getattr(value, "value", None)
    if isinstance(entry, str):  # of a key, which the path names
        return _text(entry)
    if isinstance(value, Message):
        text = MessageToString(value, as_one_line=True, print_unknown_fields=True)
        return f"{value.ByteSize():,} bytes" if len(text) > _MOST else text or "(empty)"
    if field is not None and field.is_repeated:
        is_long = len(value) > _MOST
        text = "" if is_long else _short(", ".join(map(_text, value)))
        return f"{len(value):,} items" if is_long else text or ("(empty)" if len(value) else "")
    if isinstance(value, bytes):
        return f"{len(value):,} bytes" if len(value) > _MOST else repr(value)[1:]
    if field is not None and value is not None:
        numbered = field.enum_type or (_DTYPES if field.name in _NUMBERS_OF_TYPES else None)
        known = numbered and numbered.values_by_number.get(value)
        return known.name if known else _short(str(value)) or "(empty)"
    return "" if value is None else _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
