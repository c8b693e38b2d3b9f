"""Places in texts, and values as texts write them."""

from __future__ import annotations

import json
import keyword
import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypeAlias

Scalar: TypeAlias = int | float | str
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class Place:
    """Where in a pattern's text something stands: 1-based line, 0-based column."""

    line: int
    column: int


_SCALARS = (Real, str)


def _scalar(value: Real | str) -> Scalar:
    """Turn numpy's numbers, and truth values, into Python's plain ones."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, Integral) else float(value)


def attribute_value(value: object) -> AttributeValue:
    """Freeze the value of an attribute.

    Raises:
        TypeError: It is no number, string, or list of them.
    """
    if isinstance(value, (list, tuple)) and all(isinstance(v, _SCALARS) for v in value):
        return tuple(map(_scalar, value))
    if isinstance(value, _SCALARS):
        return _scalar(value)
    raise TypeError(f"{value!r} is not an attribute value: a number, a string or a list of them")


def spelled_attributes(attributes: tuple[tuple[str, AttributeValue], ...]) -> list[str]:
    """Write ``name=value`` for each, or ``**{"a name": value}`` where it cannot be a keyword."""
    return [
        f"{name}={literal(value)}"
        if name.isidentifier() and not keyword.iskeyword(name)
        else f"**{{{json.dumps(name)}: {literal(value)}}}"
        for name, value in attributes
    ]


def literal(value: object) -> str:
    """Write a number, a text or a list as Python does; infinities as numbers too large."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "1e999" if value > 0 else "-1e999" if value < 0 else '"nan"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
