"""Guess what somebody meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return ``did you mean 'Conv'?`` for the known word closest to *word*; None if none is."""
    candidates = list(known)
    by_lower = {candidate.lower(): candidate for candidate in reversed(candidates)}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}?" if close else None
