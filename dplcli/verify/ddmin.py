"""Delta debugging: the smallest part of a list that still breaks something.

After ``ddmin`` of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"
(2002): halves, then quarters, and so on are tried alone and left out, until leaving out any single
item mends it. One culprit in *n* is found in about ``2 log2 n`` trials.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def minimise(
    items: Sequence[T], try_out: Callable[[Sequence[T]], Sequence[T] | None]
) -> tuple[T, ...]:
    """Return a part of *items*, in order, of which no single item can be left out.

    Args:
        items: What breaks it as a whole.
        try_out: Tries a part; returns None if all is well, else what of the part took effect:
            an item may need another one that was left out.
    """
    current, parts = tuple(items), 2
    tried: set[tuple[int, ...]] = {tuple(map(id, current))}
    while len(current) > 1:
        parts = min(parts, len(current))
        for part, is_rest in _splits(current, parts):
            key = tuple(map(id, part))
            if key in tried:
                continue
            tried.add(key)
            found = try_out(part)
            if found is not None:
                current = tuple(found)
                parts = max(parts - 1, 2) if is_rest else 2
                break
        else:
            if parts == len(current):
                break
            parts *= 2
    return current


def _splits(items: tuple[T, ...], parts: int) -> Iterator[tuple[tuple[T, ...], bool]]:
    """Yield each of so many parts, then what is left without each, and which of both it is."""
    bounds = [len(items) * index // parts for index in range(parts + 1)]
    spans = list(pairwise(bounds))
    for start, end in spans:
        yield items[start:end], False
    if parts > 2:  # noqa: PLR2004  # of two parts each is what the other one leaves
        for start, end in spans:
            yield items[:start] + items[end:], True
