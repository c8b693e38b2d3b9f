"""What JSON and tables call the parts of a value, declared once: at the class of the value."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    AnyClass = TypeVar("AnyClass", bound=type)

_KEYS, _SCHEMA, _COLUMNS = "_json_keys", "_json_schema", "_columns"


class Key(NamedTuple):
    """A key of an object in JSON.

    Attributes:
        place: The key, behind those of the objects around it; "*" for all keys of the part.
        path: Attributes and positions that lead to the part; none for a key that is left out.
        is_optional: Whether it is left out where the part is None or empty.
    """

    place: tuple[str, ...]
    path: tuple[str, ...]
    is_optional: bool


class Column(NamedTuple):
    """A column of a table, of which each row is about one value.

    Attributes:
        title: What it is called.
        path: Attributes and positions that lead to the part of the value.
        form: How the part is written, one of those of :mod:`dplcli.report.tables`.
        is_optional: Whether it is left out where no row has anything in it.
    """

    title: str
    path: tuple[str, ...]
    form: str
    is_optional: bool


def keys(
    text: str = "...", schema: str = "", *, columns: str = ""
) -> Callable[[AnyClass], AnyClass]:
    """Declare the keys of a class in JSON. A class without them has all of its fields.

    Args:
        text: The keys in order, apart by spaces. ``counts`` is the attribute of that name, and
            ``is_sorted`` is called ``sorted``. ``model=label`` is called otherwise,
            ``reason=trial.reason`` is a part of a part (of each, if they are many),
            ``model=labels.0`` is at a position, and ``calls=partitions.len`` counts.
            ``nodes.before=size.0`` stands in an object ``nodes``. ``*=verdict`` stands for all
            keys of the part. What ends with ``?`` is left out where it is None or empty. ``...``
            stands for what the class has without this, and ``-name`` takes a key away.
        schema: The name of the document that it is, with the version.
        columns: The columns of a table with a row for each, apart by spaces. ``reason`` is the
            attribute of that name, ``max_abs`` is called ``max abs``, ``FLOP=work.flops`` is called
            otherwise, ``=function`` has no heading. ``nodes:count`` says how it is written. What
            ends with ``?`` is left out where no row has anything in it.
    """

    def declare(cls: AnyClass) -> AnyClass:
        setattr(cls, _KEYS, text)
        if schema:
            setattr(cls, _SCHEMA, schema)
        if columns:
            setattr(cls, _COLUMNS, read_columns(columns))
        return cls

    return declare


def schema_name(cls: type) -> str:
    """Return the name of the document that a class is; "" for none."""
    name: str = getattr(cls, _SCHEMA, "")
    return name


def columns_of(cls: type) -> tuple[Column, ...]:
    """Return the columns of a class in tables; none if it has no rows there."""
    declared: tuple[Column, ...] = getattr(cls, _COLUMNS, ())
    return declared


@cache
def read_columns(text: str) -> tuple[Column, ...]:
    """Read columns as ``@keys`` has them."""
    return tuple(map(_column, text.split()))


def _column(word: str) -> Column:
    place, _, form = word.removesuffix("?").partition(":")
    title, is_named, path = place.partition("=")
    steps = tuple((path if is_named else title).split("."))
    title = title if is_named else steps[-1]
    return Column(title.replace("_", " "), steps, form, word.endswith("?"))


def part_of(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # anything
    """Return the part of a value to which attributes and positions lead; None where one is None."""
    for step in path:
        value = _step(value, step)
    return value


def _step(part: Any, step: str) -> Any:  # noqa: ANN401  # anything
    if part is None:
        return None
    if step == "len":
        return len(part)
    if step.isdigit():
        return part[int(step)]
    if isinstance(part, (list, tuple)) and not hasattr(part, step):
        return [_step(item, step) for item in part]
    return getattr(part, step)


def keys_of(cls: type) -> tuple[Key, ...]:
    """Return the keys of a class in JSON, in order; none if it is not made of parts."""
    return _known(cast("Hashable", cls))


@cache
def _known(cls: Hashable) -> tuple[Key, ...]:
    bases = cls.__mro__ if isinstance(cls, type) else ()
    texts = [vars(base)[_KEYS] for base in bases if _KEYS in vars(base)]
    words = _words(cls, texts)
    own = [word for word in words if f"-{word}" not in words]  # what else goes comes with "*"
    return tuple(map(_read, own))


def _words(cls: object, texts: Sequence[str]) -> list[str]:
    """Return the words of the first text; ``...`` in it stands for those of the others."""
    if not texts:
        names = [each.name for each in fields(cls)] if is_dataclass(cls) else ()
        return [*getattr(cls, "_fields", names)]
    words = []
    for word in texts[0].split():
        words += _words(cls, texts[1:]) if word == "..." else [word]
    return words


def _read(word: str) -> Key:
    if word.startswith("-"):
        return Key((word[1:],), (), is_optional=False)
    place, is_named, path = word.removesuffix("?").rpartition("=")
    steps = tuple(path.split("."))
    own = tuple(place.split(".")) if is_named else (steps[-1].removeprefix("is_"),)
    return Key(own, steps, word.endswith("?"))
