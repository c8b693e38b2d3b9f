"""Numbers that graphs are fed when rules are tried.

Random numbers of one size say little. Graphs part at ties, at zero, at the bounds that they hold,
far from zero, and where a whole row is one number. So there are several manners, each a group of
numbers from which elements are drawn as they are for a place (:mod:`dplcli.verify.search`):

- *mixed*: plain numbers, and beside them those of *ties* and *bounds*;
- *ties*: few numbers, halves among them, so that many are equal;
- *bounds*: on and beside the constants that the graph holds;
- *wide*: from tiny to large;
- *flat*: each row one number;
- *tiny*: near zero, as far as the smallest constant that the graph holds;
- *edges*: the ends of the type, powers of two, what nearly overflows or underflows;
- *nan*, *inf*, *zero_sign*: numbers among which some are none, are infinite, or are zeros of
  either sign.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from zlib import crc32

import numpy as np

from dplcli.verify.behaviours import is_whole_type, number_info
from dplcli.verify.search import AS_SEEN, Wanted, drawn_for

if TYPE_CHECKING:
    from dplcli.verify.draw_specs import DrawSpec
    from dplcli.verify.values import Array

Oddity = Literal["edges", "nan", "inf", "zero_sign"]
Manner = Literal["mixed", "ties", "bounds", "wide", "flat", "tiny", Oddity]

ODDITIES: tuple[Oddity, ...] = ("edges", "nan", "inf", "zero_sign")
"""Those in which only the ends of a type, or what is no number, tell."""

_TIES = tuple(number / 2 for number in range(-5, 6))
_SHARES = (0.0, -0.0, 0.1, -0.3, 1.0, -1.0, 4.0)
_TINY = 2.0**-20
_LEAST_POWER, _MOST_POWER = -30, 62
_PLAIN = (0.7, -0.4, 1.3, -1.6)
_ELEMENTS, _ROWS = 2, 1
"""Numbers of draws: by elements, and by rows."""


def draw(name: str, like: Array, spec: DrawSpec, manner: Manner, wide: float = math.inf) -> Array:
    """Return other values of the type and shape of *like*, always the same ones.

    Args:
        name: The value, which gives the seed.
        like: A value.
        spec: What is known of what may be drawn.
        manner: How to draw.
        wide: The largest magnitude of floats in a wide manner.
    """
    which = _ROWS if manner == "flat" else _ELEMENTS
    numbers = _numbers(like, spec, manner, wide)
    # In a wide manner, numbers of half precision are drawn as small as for a place.
    every = () if manner == "wide" else numbers
    values = _drawn(
        f"{manner} {name}", like, spec, Wanted([numbers], beyond=frozenset(every)), which
    )
    if manner != "mixed":
        return values
    close = (*_TIES, *spec.constants)
    others = _drawn(f"others {name}", like, spec, Wanted([close], beyond=frozenset(close)), which)
    half = np.random.default_rng(crc32(name.encode())).integers(0, 2, like.shape)
    return np.asarray(np.where(half, values, others))


def _drawn(key: str, like: Array, spec: DrawSpec, wanted: Wanted, which: int) -> Array:
    return drawn_for(replace(wanted, most=math.inf), {key: like}, {key: spec}, which)[key]


def _numbers(like: Array, spec: DrawSpec, manner: Manner, wide: float) -> tuple[float, ...]:
    """Return the numbers of a manner."""
    if manner == "edges":
        return _edges(like)
    least = min((_TINY, *(abs(number) for number in spec.constants if number)))
    if manner == "tiny" and like.dtype == np.float64:
        return AS_SEEN  # nothing finer than float64 tells what is rounding there
    powers = (2.0**power for power in range(_LEAST_POWER, _MOST_POWER))
    groups: dict[Manner, tuple[float, ...]] = {
        "mixed": AS_SEEN,
        "flat": AS_SEEN,
        "ties": _TIES,
        "bounds": spec.constants or (0.0, 1.0, -1.0),
        "wide": tuple(sign * power for power in powers if power <= wide for sign in (1, -1)),
        "tiny": tuple(share * least for share in _SHARES),
        "nan": (math.nan, math.nan, math.nan, *_PLAIN),
        "inf": (math.inf, -math.inf, math.inf, -math.inf, *_PLAIN),
        "zero_sign": (0.0, -0.0, 0.0, -0.0, *_PLAIN),
    }
    return groups[manner]


def _edges(like: Array) -> tuple[float, ...]:
    """Return the ends of a type, half of them, and their roots: squares of these overflow."""
    if is_whole_type(like.dtype):
        whole = number_info(like.dtype)
        first, last = int(whole.min), int(whole.max)
        half = (first // 2, last // 2 + 1, 1 << int(whole.bits) // 2)
        return (first, first, last, last - 1, *half, -1, 0, 1, 2)
    kind = np.dtype(np.float32) if like.dtype.kind in "bOUS" else like.dtype
    floats = number_info(kind)
    most, least = float(floats.max), float(floats.smallest_normal)
    ends = (most, most / 2, math.sqrt(most) * 2, least, least / 4, math.sqrt(least) / 2)
    return tuple(sign * end for end in (*ends, 0.0, 1.0, 2.0, 0.5, 4.0, 1024.0) for sign in (1, -1))
