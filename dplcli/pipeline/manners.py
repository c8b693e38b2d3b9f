"""Numbers that graphs are fed when rules are tried.

Random numbers of one size say little. Graphs part at ties, at zero, at the bounds that they hold,
far from zero, and where a whole row is one number. So there are several manners of drawing:

- *mixed*: a little of everything, element by element;
- *ties*: few numbers, halves among them, so that many are equal;
- *bounds*: on, just below and just above a constant that the graph holds; *second* and *third*
  take other constants;
- *wide*: from tiny to large;
- *flat*: each row one number, the first row zero;
- *tiny*: near zero, as far as the smallest constant that the graph holds;
- *edges*: the ends of the type, powers of two, what nearly overflows or underflows;
- *nan*, *inf*, *zero_sign*: numbers among which some are none, are infinite, or are zeros of
  either sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from zlib import crc32

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.verify.values import Array

Oddity = Literal["edges", "nan", "inf", "zero_sign"]
Manner = Literal["mixed", "ties", "bounds", "second", "third", "wide", "flat", "tiny", Oddity]

MANNERS: tuple[Manner, ...] = (
    *("mixed", "ties", "bounds", "wide"),
    *("flat", "tiny", "second", "third"),
)
"""Those that tell most come first."""

ODDITIES: tuple[Oddity, ...] = ("edges", "nan", "inf", "zero_sign")
"""Those in which only the ends of a type, or what is no number, tell."""

_SEEDS = (*MANNERS, *ODDITIES)
_ODD: Mapping[Manner, tuple[float, ...]] = {
    "nan": (math.nan,),
    "inf": (math.inf, -math.inf),
    "zero_sign": (0.0, -0.0),
}

_BOUNDS: Mapping[Manner, int] = {"bounds": 0, "second": 1, "third": 2}
"""Which of the constants to stay near."""

_ONE: Mapping[Manner, tuple[int, int]] = {
    "mixed": (0, 1),
    "bounds": (0, 0),
    "second": (0, -1),
    "third": (1, 0),
    "tiny": (1, 1),
}
"""For a single whole number: which constant, and what to add to it."""

_WIDER = 8.0
"""How many times as large as plain numbers *wide* ones are at the least."""

_WORDS = ("alpha", "Beta", "GAMMA delta", "", "42", "é")
_OPPOSITE, _HALF = 0.2, 0.5  # shares of the elements
_SHARES = 0.4, 0.65, 0.9  # of plain, tied and bounding numbers in a mixture; zeros are the rest
_TINY = 2.0**-20
_LARGE_HALF = 16.0
_LEAST = 2.0**-30
_LARGEST_WHOLE = 40  # powers of two
_FEW_CODES = 1 << 16


@dataclass(frozen=True)
class DrawPlan:
    """What numbers are to be drawn.

    Attributes:
        low: The least.
        high: The largest.
        constants: Numbers that the graph holds.
        scale: The largest magnitude in a plain manner.
        wide: The largest magnitude in a wide manner.
        never_zero: Whether something is divided by them, as whole numbers.
    """

    low: float = -math.inf
    high: float = math.inf
    constants: tuple[float, ...] = ()
    scale: float = 1.0
    wide: float = 0.0
    never_zero: bool = False


def draw(name: str, like: Array, spec: DrawPlan, manner: Manner) -> Array:
    """Return other values of the type and shape of *like*, always the same ones.

    Args:
        name: The value, which gives the seed.
        like: A value.
        spec: What to draw.
        manner: How to draw.
    """
    rng = np.random.default_rng([crc32(name.encode()), _SEEDS.index(manner)])
    shape = like.shape
    if like.dtype.kind in "OUS":
        start = _SEEDS.index(manner) * like.size  # all of them come up, in few elements, too
        places = (start + np.arange(like.size)) % len(_WORDS)
        return rng.permutation(np.array(_WORDS, dtype=object)[places]).reshape(shape)
    if like.dtype.kind == "b":
        if like.size == 1:
            return np.full(shape, _SEEDS.index(manner) % 2 == 0)
        return rng.random(shape) < {"wide": 1.0, "flat": 0.0}.get(manner, _HALF)
    if like.dtype.kind in "iu" or like.dtype.name.startswith(("int", "uint")):
        return (_whole_edges if manner == "edges" else _whole)(rng, like, spec, manner)
    if manner in ODDITIES:
        return _odd_floats(rng, like, manner)
    # Nothing finer than float64 tells what is rounding there.
    is_finest = manner == "tiny" and like.dtype == np.float64
    if like.dtype.itemsize < np.dtype(np.float32).itemsize:  # products overflow soon
        spec = replace(spec, scale=min(spec.scale, _LARGE_HALF / _WIDER), wide=_LARGE_HALF)
    values = np.clip(_real(rng, shape, spec, "mixed" if is_finest else manner), spec.low, spec.high)
    info = ml_dtypes.finfo(like.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    most = float(info.max) / 4
    return np.asarray(np.clip(values, -most, most).astype(like.dtype))


def _odd_floats(rng: np.random.Generator, like: Array, manner: Manner) -> Array:
    """Return floats some of which are odd, or that are near the ends of the type."""
    if manner in _ODD:
        plain = rng.standard_normal(like.shape)
        odd = rng.choice(_ODD[manner], like.shape)
        return np.where(rng.random(like.shape) < _HALF, odd, plain).astype(like.dtype)
    info = ml_dtypes.finfo(like.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    most, least = float(info.max), float(info.smallest_normal)
    ends = [most, most / 2, math.sqrt(most) * 2, least, least / 4, math.sqrt(least) / 2]
    ends += [0.0, 1.0, 2.0, 0.5, 4.0, 2.0**10]
    signs = np.where(rng.random(like.shape) < _HALF, -1, 1)
    return np.asarray(rng.choice(ends, like.shape) * signs).astype(like.dtype)


def _real(
    rng: np.random.Generator, shape: tuple[int, ...], spec: DrawPlan, manner: Manner
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    plain = rng.standard_normal(shape) * (spec.scale / 2)
    ties = rng.integers(-5, 6, shape) / 2
    bounds = np.array([*spec.constants] or [0.0, 1.0, -1.0], np.float64)
    if manner in _BOUNDS:
        chosen = bounds[_BOUNDS[manner] % bounds.size]
        close = np.where(rng.random(shape) < _OPPOSITE, -chosen, chosen)
        values = np.where(rng.random(shape) < _OPPOSITE, plain, _near(rng, close))
        values.reshape(-1)[::3] = chosen  # on it in every column, in few rows, too
        return values
    match manner:
        case "ties":
            return ties
        case "wide":
            most = max(_WIDER * spec.scale, spec.wide, 2 * _LEAST)
            sizes = 2.0 ** rng.uniform(math.log2(_LEAST), math.log2(most), shape)
            return np.where(rng.random(shape) < _HALF, -sizes, sizes)
        case "flat":
            return _rows(shape, plain)
        case "tiny":
            least = min((abs(c) for c in spec.constants if c), default=1.0)
            share = rng.choice(np.array([0.0, -0.0, 0.1, -0.3, 1.0, -1.0, 4.0]), shape)
            return np.asarray(share * min(least, _TINY))
        case _:
            where = rng.random(shape)
            kinds = [where < share for share in _SHARES]
            return np.select(kinds, [plain, ties, _near(rng, rng.choice(bounds, shape))], 0.0)


def _near(
    rng: np.random.Generator, close: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return numbers on, just beside and not far from others."""
    little = np.array([0, 0, 2.0**-20, -(2.0**-20), 2.0**-9, -(2.0**-9), 0, 0, 0, 0])
    much = np.array([0, 0, 0, 0, 0, 0, -0.25, 0.25, -1.5, 1.5])
    which, size = rng.integers(0, little.size, close.shape), np.maximum(np.abs(close), _LEAST)
    return np.asarray(close + little[which] * size + much[which] * np.minimum(size, 1.0))


def _rows(
    shape: tuple[int, ...], plain: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return rows of one number each, the first of which is zero."""
    if not shape or not plain.size:
        return np.zeros(shape)
    heads = np.array(plain[..., :1])
    heads.reshape(-1)[0] = 0.0
    heads.reshape(-1)[1::4] = np.round(heads.reshape(-1)[1::4])
    return np.broadcast_to(heads, shape).copy()


def _whole(rng: np.random.Generator, like: Array, spec: DrawPlan, manner: Manner) -> Array:
    """Return whole numbers that the type has."""
    info = ml_dtypes.iinfo(like.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    least, most = max(int(info.min) + (info.min < 0), -(2**62)), min(int(info.max), 2**62)
    low = least if math.isinf(spec.low) else max(least, math.ceil(spec.low))
    high = most if math.isinf(spec.high) else min(most, math.floor(spec.high))
    if manner == "wide":
        bits = min(_LARGEST_WHOLE, int(most).bit_length())
        sizes = np.round(2.0 ** rng.uniform(0, bits, like.shape)).astype(np.int64)
        values = np.where(rng.random(like.shape) < _HALF, -sizes, sizes)
        if not least:
            values = rng.integers(least, most + 1, like.shape)
    elif most - least < _FEW_CODES and manner == "mixed":
        values = rng.integers(least, most + 1, like.shape)
    else:
        spread = 3 if manner in {"ties", "flat"} else 9
        one = (*like.shape[:-1], 1) if manner == "flat" and like.ndim else like.shape
        values = np.broadcast_to(rng.integers(-spread, spread, one), like.shape)
    bounds = [c for c in spec.constants if low <= c <= high and c == int(c)]
    if like.size == 1 and bounds and manner in _ONE:
        which, step = _ONE[manner]
        values = np.full(like.shape, int(bounds[which % len(bounds)]) + step)
    elif bounds and manner in {"mixed", *_BOUNDS}:
        chosen = np.array(bounds, np.int64)
        if manner in _BOUNDS:
            chosen = chosen[_BOUNDS[manner] % chosen.size :][:1]
        close = rng.choice(chosen, like.shape) + rng.integers(-2, 3, like.shape)
        values = np.where(rng.random(like.shape) < _HALF, close, values)
    values = np.clip(values, low, high)
    if spec.never_zero:
        values = np.where(values == 0, np.clip(1, low, high), values)
    return values.astype(like.dtype)


def _whole_edges(rng: np.random.Generator, like: Array, spec: DrawPlan, _: Manner) -> Array:
    """Return whole numbers at the ends of the type, at half of it, and around 0."""
    info = ml_dtypes.iinfo(like.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    # The lowest number, divided by -1, ends the process, as anything does, divided by 0.
    first, last = int(info.min) + spec.never_zero, int(info.max)
    ends = [first, first, last, last - 1, first // 2, last // 2 + 1, 1 << int(info.bits) // 2]
    ends += [number for number in (-1, 0, 1, 2) if number >= first]
    values = np.array([end for end in ends if end or not spec.never_zero], like.dtype)
    return np.asarray(rng.choice(values, like.shape))
