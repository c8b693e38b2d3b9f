"""How much an expression may compute: a catalogue is somebody else's text."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FREE = 1 << 20
"""Elements that any expression may compute."""

FACTOR = 16
"""Elements that it may compute for each element of the constants that it reads."""

MOST_ITEMS = 10_000
"""Items of a list."""

_left: ContextVar[int] = ContextVar("left", default=FREE)


@contextmanager
def limited() -> Iterator[None]:
    """Evaluate one expression: give it its elements."""
    token = _left.set(FREE)
    try:
        yield
    finally:
        _left.reset(token)


def allow_for(size: int) -> None:
    """Give more elements: a constant of *size* elements is read."""
    _left.set(_left.get() + FACTOR * size)


def claim(size: int) -> None:
    """Take *size* elements for a result that is about to be computed.

    Raises:
        ValueError: So many are not left.
    """
    left = _left.get() - size
    if left < 0:
        raise ValueError("the expression computes far more numbers than it reads")
    _left.set(left)
