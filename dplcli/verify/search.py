"""Draws: a few for all places, then those that go after what no run of a place showed yet.

Each piece of an operator says which numbers reach it where the operator reads them directly
(:mod:`dplcli.verify.behaviours`). Numbers are drawn from those of all pieces that are missing, and
then beside the draw that came nearest to one. (Search-based testing: B. Korel, Automated software
test data generation, IEEE Transactions on Software Engineering 16, 1990.)

Sizes are behaviours, too. A place is fed with sizes of 0, 1 and 2, and beyond each bound that it
holds, where callers choose them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from dplcli.shapes.terms import Term
from dplcli.verify.behaviours import is_whole_type, number_info
from dplcli.verify.experiment import MOST_TURNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Graph
    from dplcli.shapes.knowledge import Knowledge
    from dplcli.shapes.terms import Number
    from dplcli.verify.coverage import Met, PlaceCoverage
    from dplcli.verify.draw_specs import DrawSpec
    from dplcli.verify.values import Array, Feed

_LIMITS = (2.0**24, 2.0**53, 2.0**31, 2.0**62, 2.0**63, -(2.0**31), -(2.0**62), 3e9)
"""Where types of whole numbers and of floats end, or stop to be exact."""

_SIZES = (1.0, -1.0, 30.0, -30.0, 120.0, -120.0)
"""Numbers of several sizes, of which rows are made: what is shared by rows shows there."""

_SMALL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1.5, -2.5)

_COUNTS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
"""Numbers that most indices and counts may be."""

_PLAIN = 1e4
"""Larger floats are drawn only where a piece asks for them: they hide what differs beside them."""

_MOST_HALF = 16.0
"""The same of half precision: products overflow soon, and cancel to nothing."""

_STEPS = ((2.0, 0), (-1.0, 0), (1.0, 1), (1.0, -1), (10.0, 0), (0.5, 0), (100.0, 0), (-10.0, 0))
"""How a draw is moved that came near a piece: by a factor, and by how far it stayed from it."""

_FARTHEST = 1e6

_HALF, _EQUAL, _BESIDE, _ODD_ONES = 0.5, 0.6, 0.8, 0.3  # shares of the elements

_BETWEEN = 0.15
"""How many elements lie anywhere between two numbers."""

_MOVED = 0.05
"""How far numbers are moved, relatively, in a normal distribution."""

_ROWS_EACH = 4
"""In every which draw rows are of one number each."""

_EMPTY_WORDS = 3
"""Which draw of four is of one word, and of empty ones."""

_FEW_HELD = 8
"""Through how many constants of a place numbers are sought that reach a piece behind them."""

_WORDS = ("alpha", "", "GAMMA delta", "é")
"""Words that no place need know."""

AS_SEEN: tuple[float, ...] = ()
"""The group of numbers as large as those that were seen; of codes and indices, all that there
are."""

_GENERAL = (
    AS_SEEN,
    _SIZES,
    (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5),
    tuple(sign * 2.0**power for power in (-30, -20, -10, -3, 0, 3, 6, 10) for sign in (1, -1)),
)
"""What is drawn of every place, whatever it may do: numbers as they were seen, rows of one number
each, numbers of which many are equal, and numbers from tiny to large."""

_ODD = (
    (math.nan, math.nan, 0.7, -0.4, 1.3, -1.6),
    (math.inf, -math.inf, 0.7, -0.4, 1.3, -1.6),
)
"""What is drawn beside that where odd numbers count, too: some that are none, or infinite."""

_TURNS = (2, 40, 0, 1)
"""How often loops go round in these."""

_ELEMENTS = 2
"""The draw that is made element by element."""

GENERAL = len(_GENERAL)
"""How many draws there are for many places at once."""

_LEAST_SHARE = 1e-6
"""What is added to shares, which would all be zero else."""

_FEW_CODES = 1 << 16
"""Of up to so many whole numbers each is as likely as another."""

_PLAIN_WHOLE = 9
"""Of more, those up to here in magnitude are."""

_BATCH, _MOST_BATCH = 8, 1024
"""How many draws there are at once; at most, where many rows are to be chosen."""

_FEW_ROWS = 64
"""Of how many rows some are chosen if nothing says which."""

_LARGEST_BOUND = 40_000
"""The largest bound beyond which a size is tried."""

_EQUAL_SIZES = 2
"""A size that all are given at once: what is as long as another is not repeated to fit it."""

MANY = 61
"""A size at which small places give many numbers, so that rare ones are among them."""

EACH = 1024
"""Up to here all sizes are tried where fractions of sizes are rounded: a wrong one may be rare."""

_MOST_EACH = 1 << 16
"""If a place reads no more elements then: all these draws are held at once."""

LONG = (347, 2_503, 9_001)
"""Sizes beyond what models are usually tried with: something may begin there, untold."""

_MOST_BOUNDS = 8
"""Beyond how many bounds sizes are tried: the largest, which other cases hardly reach."""

_MOST_ELEMENTS = 1 << 22
"""How many elements a value of another size has at most."""


class Search:
    """Draws for what no run of one place showed.

    Args:
        covered: What its runs showed, which goes on being noted there.
        made: What the nodes of either part give.
        seen: What the original computes there.
        specs: What may be drawn, and what is known of it.
        replays: What showed a difference in places that were joined to this one.
        beside: Numbers and words that stand beside what differs in attributes.
        first: How many draws there are at first, whether something is missing or not.
    """

    def __init__(  # noqa: PLR0913  # what is known of a place
        self,
        covered: PlaceCoverage,
        made: Sequence[set[str]],
        seen: Mapping[str, Feed],
        specs: Mapping[str, DrawSpec],
        *,
        replays: Sequence[Mapping[str, Array]],
        beside: Sequence[object],
        first: int,
    ) -> None:
        self._covered, self._made = covered, made
        self._seen, self._specs = seen, specs
        self._likes = {n: v for n in specs if isinstance(v := seen[n], np.ndarray)}
        self._replays, self._beside, self._first = replays, beside, first
        self._number = 0

    def draws(self, most: int) -> list[dict[str, Feed]]:
        """Return the next draws, the same in each run of dpl; none if nothing is missing.

        Args:
            most: How many may be afforded.
        """
        missing = [self._covered.met[key] for key in self._covered.missing(self._made)]
        wanted_rows = self._covered.rows_to_choose()
        is_first = not self._number
        is_text = any(like.dtype.kind in "OUS" for like in self._likes.values())
        known = (self._covered.met, *self._covered.tables, self._replays, self._beside)
        may_bend = is_text or any(known)
        if not self._likes or not ((is_first and may_bend) or missing or wanted_rows):
            return []
        whole = [like.size for like in self._likes.values() if like.dtype.kind in "iu"]
        for_rows = min(_MOST_BATCH, 2 * len(wanted_rows) // max(min(whole, default=1), 1))
        count = min(max(self._first if is_first else _BATCH, for_rows), most)
        drawn = [*self._again()][:count] if is_first else []
        wanted = self._wanted(missing, wanted_rows)
        for _ in range(count):
            near = missing[self._number // 2 % len(missing)] if missing else None
            climbs = not is_first and self._number % 2 and near and near.fed
            if climbs and near and near.fed and math.isfinite(near.distance):
                drawn.append(climbed(near.fed, self._specs, near.distance, self._number // 2))
            else:
                which = self._number if is_first else self._number // 2
                drawn.append({**self._seen, **drawn_for(wanted, self._likes, self._specs, which)})
            self._number += 1
        return drawn

    def _again(self) -> Iterator[dict[str, Feed]]:
        """Yield what showed a difference in places that were joined to this one."""
        for fed in self._replays:
            again = {
                name: value
                for name, value in fed.items()
                if name in self._likes and value.shape == self._likes[name].shape
            }
            if again:
                yield {**self._seen, **again}

    def _wanted(self, missing: Sequence[Met], rows: Sequence[int]) -> Wanted:
        asked = [number for each in missing for number in each.piece.draws]
        held = [number for spec in self._specs.values() for number in spec.constants]
        met = [number for each in self._covered.met.values() for number in each.piece.draws]
        every = dict.fromkeys([*asked, *met, *held])
        finite = finite_of(every)
        large = max(map(abs, finite), default=1.0)
        through = [
            inverse
            for number in dict.fromkeys(n for n in asked if isinstance(n, (int, float)))
            for constant in held[:_FEW_HELD]
            if constant and math.isfinite(number)
            for inverse in (number / constant, number * constant, number - constant)
        ]
        odd = [float(n) for n in every if isinstance(n, float) and not math.isfinite(n)]
        ties = [
            float(number)  # type: ignore[arg-type]  # the numbers of a tie are floats
            for each in self._covered.met.values()
            if each.piece.name.endswith("tie")
            for number in each.piece.draws
        ]
        large_held = dict.fromkeys(abs(number) for number in held if abs(number) > _PLAIN)
        beyond = [(n * 1.5, n * 2, n * -1.5, n * -2) for n in large_held]  # as of a mask
        is_asked = {*asked}.__contains__
        aimed = tuple(filter(is_asked, finite))
        among = (*odd * (len(_SMALL) // len(odd)), *_SMALL) if odd else ()
        groups = [
            tuple(finite) or (0.0, 1.0),
            tuple(ties),  # one step of a few elements is rounding: many have to be ties
            tuple(through),
            among,
            _SIZES,
            (large + 1, large * 1.25 + 1, large + 3),
            (-large - 1, -large * 1.25 - 1, -large - 3),
            _LIMITS,
            _SMALL,
            (0.0, -0.0),
            _COUNTS,
            *beyond,
            *((number,) for number in dict.fromkeys([*odd, *finite])),
        ]
        likely = asked if not self._number else [*asked, *met] if missing else []
        needed = [abs(n) for n in likely if isinstance(n, (int, float)) and math.isfinite(n)]
        beside = self._beside if not self._number else []
        groups = [group for group in groups if group]
        if self._number:  # what is missing comes up most often
            is_odd_missing = any(number in odd for number in asked)
            sure = [aimed, among if is_odd_missing else (), tuple(through)]
            sure = [group for group in sure if group]
            groups = [each for group in groups for each in (*sure, group)]
        return Wanted(
            groups,
            words=[word for word in [*asked, *beside] if isinstance(word, str)],
            rows=sorted(
                {*rows, *(int(n) for n in beside if isinstance(n, (int, float)) and _is_index(n))}
            ),
            most=1.5 * max([_PLAIN, *needed]),
            beyond=frozenset(aimed).union(*beyond),
            wraps=not any(
                met.piece.unless == "fewer" and met.piece.name.startswith("beyond")
                for met in self._covered.met.values()
            )
            or any(met.piece.name.startswith("beyond") for met in missing),
        )


def finite_of(draws: Iterable[object]) -> list[float]:
    """Return the finite numbers among what is to be drawn."""
    return [float(n) for n in draws if isinstance(n, (int, float)) and math.isfinite(n)]


def general_draws(
    seen: Mapping[str, Feed], specs: Mapping[str, DrawSpec], count: int
) -> list[dict[str, Feed]]:
    """Return draws for many places at once, whatever they may do.

    Args:
        seen: What the original computes there.
        specs: What may be drawn, and what is known of it.
        count: How many, of `GENERAL`.
    """
    likes = {name: value for name in specs if isinstance(value := seen[name], np.ndarray)}
    wanted = Wanted(_GENERAL, turns=_TURNS)
    return [{**seen, **drawn_for(wanted, likes, specs, number)} for number in range(count)]


def odd_draws(seen: Mapping[str, Feed], specs: Mapping[str, DrawSpec]) -> Iterator[dict[str, Feed]]:
    """Yield draws of odd floats for many places at once, a kind in each."""
    likes = {
        name: value
        for name in specs
        if isinstance(value := seen[name], np.ndarray) and value.dtype.kind == "f"
    }
    for numbers in _ODD:
        wanted = Wanted([numbers], most=math.inf, beyond=frozenset(numbers))
        yield {**seen, **drawn_for(wanted, likes, specs, _ELEMENTS)}


@dataclass(frozen=True)
class Wanted:
    """What to draw for.

    Attributes:
        numbers: Groups of numbers, one of which each draw is made of.
        words: Words that a place knows.
        rows: Rows of tables that are to be chosen, in order.
        most: Larger floats are not drawn, but for those beyond.
        beyond: Large floats that are drawn: those that are asked for, and some that come together.
        turns: How often loops go round, draw by draw; if none is said, as often as the group says.
        wraps: Whether whole numbers may be so large that sums wrap around.
    """

    numbers: Sequence[tuple[float, ...]]
    words: Sequence[str] = ()
    rows: Sequence[int] = ()
    most: float = _PLAIN
    beyond: frozenset[float] = frozenset()
    turns: Sequence[int] = ()
    wraps: bool = True


def _is_index(number: float) -> bool:
    return abs(number) < _LIMITS[3]


@dataclass(frozen=True)
class _Draw:
    """How one value is drawn.

    Attributes:
        rng: Where chance comes from.
        like: A value of its type and shape.
        spec: What is known of it.
        group: The numbers to draw from.
        wanted: What to draw for.
        number: Which draw it is.
        beside: Other values of the type, which this one is to be near.
    """

    rng: np.random.Generator
    like: Array
    spec: DrawSpec
    group: tuple[float, ...]
    wanted: Wanted
    number: int
    beside: Array | None

    def chance(self, share: float) -> Array:
        """Return which elements are chosen, if about a share of them is."""
        return np.asarray(self.rng.random(self.like.shape) < share)

    def of_rows(self) -> tuple[int, ...]:
        """Return the shape of what is drawn: in some draws one number for each row."""
        shape = self.like.shape
        return (*shape[:-1], 1) if shape and self.number % _ROWS_EACH == 1 else shape

    def floats(self) -> Array:
        """Return floats of the group, none too large, some of them moved a little."""
        shape = self.like.shape
        most, beyond = self.wanted.most, self.wanted.beyond
        if self.like.dtype.itemsize < np.dtype(np.float32).itemsize:
            most = min(most, _MOST_HALF)
        numbers = [n for n in self.group if not most < abs(n) < math.inf or n in beyond] or [0.0]
        values = np.broadcast_to(self.rng.choice(numbers, self.of_rows()), shape)
        if not self.group:
            values = self.rng.normal(size=self.of_rows()) * (self.spec.scale / 2)
            values = np.broadcast_to(values, shape)
        elif len(self.group) > 1:
            most_moved = float(number_info(self.like.dtype).max) / 2
            may_move = self.chance(_ODD_ONES) & (np.abs(values) < most_moved)
            with np.errstate(over="ignore", invalid="ignore"):
                moved = values * (1 + self.rng.normal(size=shape) * _MOVED)
            values = np.where(may_move, moved, values)
            # Where one operator bends, others do not: some numbers lie between two of them.
            other = self.rng.choice(numbers, shape)
            is_between = self.chance(_BETWEEN) & (np.abs(values) < most_moved)
            is_between &= self.of_rows() == shape
            is_between &= np.abs(other) < most_moved
            with np.errstate(over="ignore", invalid="ignore"):
                between = values + self.rng.random(shape) * (other - values)
            values = np.where(is_between, between, values)
        if self.beside is not None:
            values = np.where(self.chance(_EQUAL), self.beside.astype(np.float64), values)
        values = np.clip(values, self.spec.low, self.spec.high)
        if self.spec.grid is not None:
            step, low, high = self.spec.grid
            values = np.clip(np.round(values / step) * step, low, high)
        if self.spec.shares is not None and values.size:
            values = np.abs(values) + _LEAST_SHARE
            values = values / values.sum(self.spec.shares, keepdims=True)
        with np.errstate(all="ignore"):
            return np.asarray(values.astype(self.like.dtype))

    def whole(self) -> Array:
        """Return whole numbers of the group, or beside them, within what there can be."""
        low, high = self._ends()
        if self.spec.is_turns and (turns := self.wanted.turns):
            return np.full(self.like.shape, turns[self.number % len(turns)], self.like.dtype)
        wanted = self.wanted.rows
        if rows := wanted[bisect_left(wanted, low) : bisect_right(wanted, high)]:
            return _cycled(rows, self.like, self.number)
        shape, few = self.like.shape, (0, 2) if self.number % 2 else (-1, 2)
        numbers: Sequence[int] = [int(n) for n in self.group if math.isfinite(n)]
        numbers = numbers or self._any_of(low, high)
        if self.spec.axis and self.group:
            numbers = [n for n in numbers if low <= n <= high] or [*range(min(high + 1, _FEW_ROWS))]
        chosen = np.broadcast_to(self.rng.integers(0, len(numbers), self.of_rows()), shape)
        values = np.array([numbers[int(at)] for at in np.ravel(chosen)], dtype=object).reshape(
            shape
        )
        if self.of_rows() == shape and (len(self.group) > 1 or self.number % 2):
            values = values + self.rng.integers(-1, 2, shape).astype(object)
        if self.beside is not None:
            near = self.beside.astype(object) + self.rng.integers(*few, shape).astype(object)
            pair = (np.asarray(each, dtype=object) for each in (near, values))  # or a scalar is int
            values = np.where(self.chance(_BESIDE), *pair)
        # Not numpy's clip: no float of 64 bits holds the ends of an int64.
        flat = [min(max(int(n), low), high) for n in np.ravel(np.asarray(values, dtype=object))]
        if self.spec.never_zero:
            flat = [n or max(low, 1) for n in flat]
        return np.array(flat, dtype=object).reshape(shape).astype(self.like.dtype)

    def _any_of(self, low: int, high: int) -> Sequence[int]:
        """Return whole numbers that are plain: all places of an axis, all codes of a small type."""
        if self.spec.axis:
            return range(max(low, 0), high + 1)
        if high - low < _FEW_CODES:
            return range(low, high + 1)
        return range(max(low, -_PLAIN_WHOLE), min(high, _PLAIN_WHOLE) + 1) or [low]

    def _ends(self) -> tuple[int, int]:
        """Return the least and the largest whole number that there can be."""
        info, spec = number_info(self.like.dtype), self.spec
        most = int(info.max) if self.wanted.wraps else math.isqrt(int(info.max)) // 2
        # The lowest number, divided by -1, ends the process, as anything does, divided by 0.
        least = int(info.min) + spec.never_zero
        low, high = (0, MOST_TURNS) if spec.is_turns else (max(least, -most - 1), most)
        low = max(low, math.ceil(spec.low)) if math.isfinite(spec.low) else low
        high = min(high, math.floor(spec.high)) if math.isfinite(spec.high) else high
        return (max(low, -spec.axis), min(high, spec.axis - 1)) if spec.axis else (low, high)


def drawn_for(
    wanted: Wanted, likes: Mapping[str, Array], specs: Mapping[str, DrawSpec], number: int
) -> dict[str, Array]:
    """Draw values for what is missing, the same for the same number.

    Values of one type are often equal, or nearly: models compare them.

    Args:
        wanted: What to draw for.
        likes: Values of the types and shapes to draw.
        specs: What is known of each.
        number: Which draw it is.
    """
    count = len(wanted.numbers)
    group = wanted.numbers[number % count if number < 2 * count or number % 2 else 0]
    first: dict[np.dtype[Any], Array] = {}
    drawn = {}
    # NaN or an infinity in one value may show what it hides if others have it, too.
    finite = tuple(filter(math.isfinite, group))
    floats = [name for name, like in likes.items() if like.dtype.kind == "f"]
    odd = [*floats, ""][number // max(count, 1) % (len(floats) + 1)] if finite != group else ""
    for name, like in likes.items():
        rng = np.random.default_rng([crc32(name.encode()), number])
        beside = None if number % 2 or not group else first.get(like.dtype)
        if beside is not None and beside.shape != like.shape:
            beside = rng.choice(beside.reshape(-1), like.shape) if beside.size else None
        own = (finite or _SMALL) if odd and odd != name else group
        values = _drawn(_Draw(rng, like, specs[name], own, wanted, number, beside))
        first.setdefault(like.dtype, values)
        drawn[name] = np.asarray(values)
    return drawn


def _drawn(draw_: _Draw) -> Array:
    like, number = draw_.like, draw_.number
    if like.dtype.kind in "OUS":
        if draw_.beside is not None:
            return _respelt(draw_, draw_.beside)
        known = dict.fromkeys([*draw_.wanted.words, *draw_.spec.words, *_WORDS])
        spelt = [*dict.fromkeys(way(word) for word in known for way in _SPELT)]
        # Where one word is empty, joined words are those of another pair.
        if number % _ROWS_EACH == _EMPTY_WORDS:
            few = np.array([spelt[number % len(spelt)], ""], dtype=object)
            return np.asarray(draw_.rng.choice(few, like.shape), like.dtype)
        return _cycled(spelt, like, number)
    if like.dtype.kind == "b":
        # By chance, not in turn: else truth values would keep step with the numbers beside them.
        return draw_.chance(float(draw_.rng.choice((0.0, 1.0, _HALF, _HALF, _HALF, _HALF))))
    if is_whole_type(like.dtype):
        return draw_.whole()
    return draw_.floats()


_SPELT = (str, str.upper, str.lower, str.title, "one{0}two{0}{0}three".format)
"""Ways to write a word: the last one is split there."""


def _respelt(draw_: _Draw, beside: Array) -> Array:
    """Return words as another value has them, some spelt in another way, some left out."""
    ways = (str, str.upper, str.title, " {} ".format, "".format)
    which = draw_.rng.integers(0, len(ways), beside.shape)
    words = [ways[way](str(word)) for way, word in zip(which.flat, beside.flat, strict=True)]
    return np.array(words, dtype=object).reshape(beside.shape).astype(beside.dtype)


def _cycled(some: Sequence[object], like: Array, number: int) -> Array:
    """Return elements that come in turn, others in each draw."""
    turned = np.roll(np.array(some, dtype=object), -number * max(like.size, 1))
    return np.asarray(np.resize(turned, like.shape).astype(like.dtype))


def climbed(
    fed: Mapping[str, Feed], specs: Mapping[str, DrawSpec], distance: float, number: int
) -> dict[str, Feed]:
    """Return a draw beside the one that came nearest to a piece.

    Args:
        fed: What came nearest.
        specs: What may be drawn.
        distance: How far from the piece it stayed.
        number: Which draw it is.
    """
    factor, steps = _STEPS[number % len(_STEPS)]
    moved = dict(fed)
    for name, spec in specs.items():
        value = fed.get(name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and spec.grid is None:
            with np.errstate(all="ignore"):
                new = value.astype(np.float64) * factor + steps * distance
                most = min(_FARTHEST, float(number_info(value.dtype).max))
                low, high = max(spec.low, -most), min(spec.high, most)
                moved[name] = np.asarray(np.clip(new, low, high).astype(value.dtype))
    return moved


# Other sizes.


@dataclass(frozen=True)
class Sizes:
    """What a place reads, as sizes that callers choose.

    Attributes:
        arrays: What it reads.
        shapes: The dimensions of each, as terms.
        contents: What each holds, as terms, where that follows from sizes.
        chosen: The sizes that callers choose, by serial number, as they are in *arrays*.
    """

    arrays: Mapping[str, Array]
    shapes: Mapping[str, Sequence[Number]]
    contents: Mapping[str, Sequence[Number] | None]
    chosen: Mapping[int, int]

    def bounds(self) -> set[int]:
        """Return the numbers that what it reads was computed with, from sizes."""
        terms = (term for content in self.contents.values() for term in content or ())
        return {abs(t.products.get((), 0)) for t in terms if isinstance(t, Term)} - {0}

    def tried(
        self, bounds: set[int], *, each: bool = False
    ) -> Iterator[tuple[int, int, dict[int, int]]]:
        """Yield what a size is, what it is to be, and all sizes then, for each to be tried.

        Args:
            bounds: Where the place may bend.
            each: Whether to try each size up to `EACH`.
        """
        sizes = {0, 1, 2, 3}
        near = sorted(bound for bound in bounds if bound <= _LARGEST_BOUND)[-_MOST_BOUNDS:]
        for bound in near:
            sizes |= {bound - 1, bound, bound + 1, 2 * bound + 1, 2 * bound + 2} - {-1}
        yield max(self.chosen.values()), _EQUAL_SIZES, dict.fromkeys(self.chosen, _EQUAL_SIZES)
        if max(array.size for array in self.arrays.values()) < MANY:
            sizes.add(MANY)
        sizes.update(LONG)
        of_each = {serial: sizes | self._fillings(serial, near) for serial in self.chosen}
        for serial in of_each if each else ():
            of_each[serial].update(range(EACH if self._stays_small(serial) else 0))
        for size in sorted(set[int]().union(*of_each.values())):
            for serial, before in self.chosen.items():
                if size != before and size in of_each[serial]:
                    yield before, size, {**self.chosen, serial: size}

    def _fillings(self, serial: int, bounds: Sequence[int]) -> set[int]:
        """Return the sizes at which something that is read has as many elements as a bound."""
        filling = set()
        for name in self.arrays:
            growth = self._growth(serial, name)
            filling |= {bound // growth for bound in bounds if growth > 1 and not bound % growth}
        return filling

    def _stays_small(self, serial: int) -> bool:
        """Tell whether few elements are read with the largest of all sizes that are tried."""
        return self._elements({**self.chosen, serial: EACH}, *self.arrays) <= _MOST_EACH

    def indices_for_one_more(self, serial: int) -> int:
        """Return how many more whole numbers are read if one size is larger by 1."""
        names = (name for name, array in self.arrays.items() if array.dtype.kind in "iu")
        return self._growth(serial, *names)

    def _growth(self, serial: int, *names: str) -> int:
        """Return how many more elements some of the arrays have if one size is larger by 1."""
        more = {**self.chosen, serial: self.chosen[serial] + 1}
        return self._elements(more, *names) - self._elements(self.chosen, *names)

    def _elements(self, sizes: Mapping[int, int], *names: str) -> int:
        """Return how many elements some of the arrays have at sizes."""
        shapes = [_all_evaluated(self.shapes[name], sizes) for name in names]
        return sum(math.prod(shape) for shape in shapes if shape is not None)

    def fed(
        self,
        sizes: Mapping[int, int],
        before: int,
        specs: Mapping[str, DrawSpec],
        group: tuple[float, ...] = AS_SEEN,
        rows: Sequence[int] = (),
    ) -> dict[str, Array] | None:
        """Return values for sizes; None if some cannot be had.

        Args:
            sizes: The sizes.
            before: What the one is that is another.
            specs: What may be drawn.
            group: The group of numbers to draw.
            rows: Rows of tables that are to be chosen.
        """
        feeds: dict[str, Array] = {}
        likes: dict[str, Array] = {}
        open_specs: dict[str, DrawSpec] = {}
        for name, array in self.arrays.items():
            shape = _all_evaluated(self.shapes[name], sizes)
            count = -1 if shape is None else math.prod(shape)
            if shape is None or min(shape, default=0) < 0 or count > _MOST_ELEMENTS:
                return None
            content = self.contents[name]
            numbers = None if content is None else _all_evaluated(content, sizes)
            if numbers is not None and count == len(numbers):
                feeds[name] = np.array(numbers).reshape(shape).astype(array.dtype)
            elif name in specs and not specs[name].is_turns:
                spec = specs[name]
                if spec.axis == before:
                    spec = replace(spec, axis=max(1, min(sizes.values())))
                likes[name], open_specs[name] = np.zeros(shape, array.dtype), spec
            elif shape == array.shape:
                feeds[name] = array
            elif not count:
                feeds[name] = np.zeros(shape, array.dtype)
            else:
                return None
        return feeds | drawn_for(Wanted([group], rows=rows), likes, open_specs, 0)


def sizes_of(arrays: Mapping[str, Array], graph: Graph, known: Knowledge) -> Sizes | None:
    """Return what a place reads as sizes that callers choose; None if that is not known.

    Args:
        arrays: What it reads, by name.
        graph: The graph of the original.
        known: What is known of its sizes.
    """
    shapes: dict[str, Sequence[Number]] = {}
    contents: dict[str, Sequence[Number] | None] = {}
    open_dims: list[tuple[Number, int]] = []
    for name, array in arrays.items():
        value = graph.values.get(name)
        shape = None if value is None else known.shape(value)
        if value is None or shape is None or len(shape) != array.ndim:
            return None
        shapes[name], contents[name] = shape, known.content(value)
        open_dims += zip(shape, array.shape, strict=True)
        if array.dtype.kind == "i":
            open_dims += zip(contents[name] or (), map(int, array.reshape(-1)), strict=False)
    chosen: dict[int, int] = {}
    for dim, size in sorted(open_dims, key=lambda pair: _atoms_in(pair[0])):
        _solve(dim, size, chosen)
    is_right = all(
        _evaluated(dim, chosen) == size
        for name, shape in shapes.items()
        for dim, size in zip(shape, arrays[name].shape, strict=True)
    )
    return Sizes(arrays, shapes, contents, chosen) if chosen and is_right else None


def _atoms_in(dim: Number) -> int:
    return (
        len({serial for product in dim.products for serial in product})
        if isinstance(dim, Term)
        else 0
    )


def _solve(dim: Number, size: int, chosen: dict[int, int]) -> None:
    """Note what a size is that a dimension depends on, if it is the only one not known yet."""
    if not isinstance(dim, Term):
        return
    unknown = [p for p in dim.products if any(serial not in chosen for serial in p)]
    if len(unknown) == 1 and len(unknown[0]) == 1:
        (product,) = unknown
        rest = _evaluated(Term({p: f for p, f in dim.products.items() if p != product}), chosen)
        whole, left = divmod(size - (rest or 0), dim.products[product])
        if not left:
            chosen[product[0]] = whole


def _all_evaluated(dims: Sequence[Number], sizes: Mapping[int, int]) -> tuple[int, ...] | None:
    found = [_evaluated(dim, sizes) for dim in dims]
    known = tuple(number for number in found if number is not None)
    return known if len(known) == len(found) else None


def _evaluated(dim: object, sizes: Mapping[int, int]) -> int | None:
    """Return a dimension for some sizes; None if it depends on others."""
    if isinstance(dim, Term):
        if any(serial not in sizes for product in dim.products for serial in product):
            return None
        return sum(
            factor * math.prod(sizes[serial] for serial in product)
            for product, factor in dim.products.items()
        )
    return int(dim) if isinstance(dim, (int, float, bool, np.integer)) else None
