"""What each operator of ONNX may do: the pieces of its meaning.

A Relu passes or stops, a comparison holds or does not, a Cast meets an end of its type. Each piece
is a quantity of what a node reads and gives, and an interval where that quantity has to lie in some
element. The table is read in three ways:

- with arrays: how far a run stayed from a piece, 0 if it reached it;
- with intervals (:mod:`dplcli.verify.ranges`): whether it can be reached at all;
- as numbers and words to draw, which reach it where a node reads them directly.

What is not listed bends nowhere: sums, products, and what moves elements about. Where it moves them
depends on sizes (:func:`bounds_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import onnx

from dplcli.ir.operators import COMPARISONS, INDEXED
from dplcli.verify.model import attribute, small_values
from dplcli.verify.ranges import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onnx import NodeProto, TensorProto

    from dplcli.ir.types import Exempt
    from dplcli.verify.compare import Reals
    from dplcli.verify.values import Array

Values: TypeAlias = "Sequence[Any]"
"""Operands and results of a node: floats of 64 bits, words, or None for what is left out."""

_INF = math.inf
_LEAST = 1e-300
"""The least number that counts as more than zero."""

_BEYOND = 1 + 2.0**-20
"""What is this many times as large as an end is beyond it, in float32, too."""

_MOST_NUMBERS = 8
"""Of how many numbers of a constant each is drawn; of larger ones, the ends."""

_INFINITE = 1.002
"""How many times as large as the largest float is surely infinite, of bfloat16 too."""

_MOST_KEYS = 64
"""Of how many keys of a list each is drawn."""

_MOST_BOUNDS = 16
"""Of how many numbers a constant is that holds bounds."""

_MOST_FLOAT_BOUND = 40_000.0
"""Up to where a float that is a whole number may be one."""

_WINDOWS = ("Conv", "ConvTranspose")

_TELLING = 1e3
"""Up to here a step of one is no rounding of the whole."""

_NEXT_TO_NOTHING = 1e-5
"""Rounding may make a 0 of a smaller number, and the other way round."""

_TINY = 1e-2
"""Constants up to here keep a number from zero: they show where it is as small."""

_LARGE, _CANCELLED = 1e4, 2.0**-14
"""From where on a constant is large, and what is left of it where something cancels it."""

EXACT_TO: Mapping[str, float] = {
    "float64": 2.0**53,
    "float32": 2.0**24,
    "float16": 2.0**11,
    "bfloat16": 2.0**8,
}
"""The largest whole number up to which a float type has all."""

_OVERFLOWS: Mapping[str, float] = {"float16": 11.1, "float64": 709.8}
"""From where on Exp gives infinity; of float32 and bfloat16, from 88.73."""


class Quantity(NamedTuple):
    """A number of each element of what a node reads and gives.

    Attributes:
        of: It, of arrays.
        within: Where it lies, for intervals.
    """

    of: Callable[[Values], Any]
    within: Callable[[Sequence[Interval]], Interval] = lambda _: ANYTHING


class Piece(NamedTuple):
    """Something that a node may do: a quantity lies in an interval, in some element.

    Attributes:
        name: What it does then, to be read after the node.
        quantity: The quantity.
        low: The least that it is.
        high: The largest.
        draws: Numbers or words that reach it, where the node reads them.
        unless: When it need not be reached: "alike" if as many nodes of either model, with the
            same attributes and numbers, may do it; "fewer" if no more of the candidate's do, as
            whole numbers wrap around alike in both models; "never" if it always has to be.
    """

    name: str
    quantity: Quantity
    low: float
    high: float
    draws: tuple[object, ...] = ()
    unless: Literal["never", "alike", "fewer"] = "never"

    def distance(self, values: Values) -> float:
        """Return how far the nearest element stayed from it; infinity if there is none.

        Args:
            values: The operands and results of the node, in one run.
        """
        with np.errstate(all="ignore"):
            found = np.asarray(self.quantity.of(values), np.float64)
            off = np.maximum(np.maximum(self.low - found, found - self.high), 0.0)
            off = np.where((self.low <= found) & (found <= self.high), 0.0, off)
        off = off[~np.isnan(off)]
        return float(off.min()) if off.size else _INF

    def is_possible(self, intervals: Sequence[Interval]) -> bool:
        """Tell whether it can be reached, for what operands and results can be."""
        found = self.quantity.within(intervals)
        return not (found.high < self.low or found.low > self.high)


@dataclass(frozen=True)
class Call:
    """A node as it ran once.

    Attributes:
        node: The node.
        values: What it read and gave; behind it, of a Loop, how often it went round.
        types: The types of these; None for what is left out, or is no tensor.
        stored: Whether the model holds each operand.
    """

    node: NodeProto
    values: Values
    types: Sequence[np.dtype[Any] | None]
    stored: Sequence[bool]

    @property
    def results(self) -> int:
        """The position of the first result."""
        return len(self.node.input)

    def has(self, slot: int) -> bool:
        """Tell whether there is an operand."""
        return slot < self.results and bool(self.node.input[slot])

    def constants(self, *slots: int) -> list[float]:
        """Return some numbers of operands that the model holds."""
        found: dict[float, None] = {}
        for slot in slots:
            if self.has(slot) and self.stored[slot] and isinstance(self.values[slot], np.ndarray):
                flat = self.values[slot].reshape(-1)
                if flat.dtype.kind == "f" and flat.size:
                    some = [*flat[:_MOST_NUMBERS].tolist(), float(flat.min()), float(flat.max())]
                    found |= dict.fromkeys(number for number in some if not math.isnan(number))
        return list(found)

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is one number."""
        item = attribute(self.node, name)
        if item is None:
            return default
        return float(item.f if item.type == onnx.AttributeProto.FLOAT else item.i)


Pieces: TypeAlias = "Iterable[Piece]"


# Quantities.


def _at(slot: int) -> Quantity:
    return Quantity(lambda v: v[slot], lambda r: r[slot])


def _apart(one: int, other: int) -> Quantity:
    return Quantity(lambda v: v[one] - v[other], lambda r: r[one].minus(r[other]))


def _from(slot: int, number: float) -> Quantity:
    """Return an operand less a number."""
    end = Interval(number, number)
    return Quantity(lambda v: v[slot] - number, lambda r: r[slot].minus(end))


def _off(of: Quantity, parity: int, past: float = 0.0, sign: int = 0) -> Quantity:
    """Return how far a number is from the next even or odd one; large ones say nothing.

    Args:
        of: The number.
        parity: 0 for even ones, 1 for odd ones.
        past: How far past these: 0.5 for the ties that one of each wins.
        sign: The sign that the number must have; 0 if it may have either.
    """

    def off(values: Values) -> Reals:
        number = of.of(values)
        apart = np.abs((number - past - parity + 1) % 2 - 1)
        is_other = (sign != 0) & (np.sign(number) != sign)
        return np.where(np.abs(number) < _TELLING, apart + is_other, 1.0)

    return Quantity(off)


_PARITIES = ((0, "even"), (1, "odd"))

_FIRST = _at(0)
_SIZE = Quantity(lambda v: np.abs(v[0]), lambda r: r[0].magnitude())


def _around(*ends: float) -> tuple[object, ...]:
    return tuple(n for end in ends if math.isfinite(end) for n in (end, end + 1, end - 1))


# Pieces, by what operators have in common.


def _sides(knees: Iterable[float], of: Quantity = _FIRST) -> Iterator[Piece]:
    """Yield a piece between each two numbers at which an operator bends."""
    ends = [-_INF, *sorted(knees), _INF]
    for low, high in pairwise(ends):
        inside = (
            low if math.isinf(low) else float(np.nextafter(np.float32(low), np.float32(_INF))),
            high if math.isinf(high) else float(np.nextafter(np.float32(high), np.float32(-_INF))),
        )
        name = f"below {high:g}" if math.isinf(low) else f"above {low:g}"
        yield Piece(name, of, *inside, _around(low, high))


def _bending(*fixed: float, **named: float) -> Callable[[Call], Pieces]:
    """Return the pieces of an operator that bends at numbers, some of which attributes say."""

    def pieces(call: Call) -> Pieces:
        return _sides([*fixed, *(call.number(name, usual) for name, usual in named.items())])

    return pieces


def _shrink(call: Call) -> Pieces:
    bound = call.number("lambd", 0.5)
    return _sides({-bound, bound})


def _hard_sigmoid(call: Call) -> Pieces:
    slope, shift = call.number("alpha", 0.2), call.number("beta", 0.5)
    return _sides({-shift / slope, (1 - shift) / slope}) if slope else ()


_FLAT: Mapping[str, float] = {"Tanh": 10.0, "Sigmoid": 18.0, "Erf": 4.5}
"""From where on what these give is 1, in float32."""


def _saturating(call: Call) -> Iterator[Piece]:
    """Yield where a curve is flat, as far as its type tells."""
    end = _FLAT[call.node.op_type]
    yield Piece("flat below", _FIRST, -_INF, -end, (-end, -3 * end), unless="alike")
    yield Piece("flat above", _FIRST, end, _INF, (end, 3 * end), unless="alike")


def _sign(_: Call) -> Iterator[Piece]:
    yield from _sides([0.0])
    yield Piece("of zero", _FIRST, 0, 0, (0.0,))


def _clip(call: Call) -> Iterator[Piece]:
    for slot, word in ((1, "min"), (2, "max")):
        stated = attribute(call.node, word)
        if call.has(slot):
            of, draws = _apart(0, slot), _around(*call.constants(slot))
        elif stated is not None:
            of, draws = _from(0, stated.f), _around(stated.f)
        else:
            continue
        yield Piece(f"below its {word}", of, -_INF, -_LEAST, draws)
        yield Piece(f"above its {word}", of, _LEAST, _INF, draws)


def _comparison(call: Call) -> Iterator[Piece]:
    op, result = call.node.op_type, _at(call.results)
    if call.types[0] is not None and call.types[0].kind in "OUS":
        stored = [v for v, known in zip(call.values, call.stored, strict=False) if known]
        words = tuple(word for v in stored for word in v.reshape(-1).tolist())
        yield Piece("true", result, 1, 1, words)
        yield Piece("false", result, 0, 0)
        return
    if call.node.input[0] == call.node.input[1]:
        if not is_whole_type(call.types[0]):
            is_none = Quantity(lambda v: np.isnan(v[0]))
            yield Piece("of NaN", is_none, 1, 1, (math.nan,))
        return
    draws, apart = _around(*call.constants(0, 1)), _apart(0, 1)
    yield Piece("of equal numbers", apart, 0, 0, draws, unless="alike")
    if op == "Equal":
        size = Quantity(lambda v: np.abs(v[0] - v[1]), lambda r: r[0].minus(r[1]).magnitude())
        yield Piece("of other numbers", size, _LEAST, _INF, draws, unless="alike")
        return
    yield Piece("of a smaller number", apart, -_INF, -_LEAST, draws, unless="alike")
    yield Piece("of a larger number", apart, _LEAST, _INF, draws, unless="alike")


def _truth(slot: int) -> Callable[[Call], Pieces]:
    """Return the pieces of an operand, or of the first result if *slot* is negative."""

    def pieces(call: Call) -> Iterator[Piece]:
        of = _at(slot if slot >= 0 else call.results)
        yield Piece("true", of, 1, 1, (1,))
        yield Piece("false", of, 0, 0, (0,))

    return pieces


_HUGE = 1e25
"""A number of which products overflow, so that their softmax is NaN though all are finite."""


def _nan_or_not(call: Call) -> Iterator[Piece]:
    yield Piece("true", _at(call.results), 1, 1, (math.nan, _HUGE, -_HUGE), unless="alike")
    yield Piece("false", _at(call.results), 0, 0, (0.0,))


def _infinite_or_not(call: Call) -> Iterator[Piece]:
    for end, word in ((_INF, "infinity"), (-_INF, "negative infinity")):
        yield Piece(f"of {word}", _FIRST, end, end, (end,), unless="alike")
    yield Piece("false", _at(call.results), 0, 0, (0.0,))


def _winners(call: Call) -> Iterator[Piece]:
    for slot in range(1, call.results):
        draws, apart = _around(*call.constants(slot - 1, slot)), _apart(slot - 1, slot)
        yield Piece(f"of a smaller operand {slot}", apart, -_INF, -_LEAST, draws)
        yield Piece(f"of a larger operand {slot}", apart, _LEAST, _INF, draws)


def is_whole_type(dtype: np.dtype[Any] | None) -> bool:
    """Tell whether a type is one of whole numbers."""
    return dtype is not None and (dtype.kind in "iu" or dtype.name.startswith(("int", "uint")))


def number_info(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401  # ml_dtypes has no types
    """Return the limits of a type of numbers: its `iinfo` or `finfo`, as numpy calls them."""
    return (ml_dtypes.iinfo if is_whole_type(dtype) else ml_dtypes.finfo)(dtype)


def oddities_of(arrays: Iterable[Array]) -> set[Exempt]:
    """Return what is odd about some numbers: none, infinite, -0, or squares of them overflow."""
    found: set[Exempt] = set()
    for array in arrays:
        if array.dtype.kind not in "fiu" or not array.size:
            continue
        sizes = np.abs(array.astype(np.float64))
        kinds: dict[Exempt, Array] = {
            "nan": np.isnan(sizes),
            "inf": np.isinf(sizes),
            "zero_sign": (sizes == 0) & np.signbit(array),
            "overflow": np.isfinite(sizes) & (sizes**2 >= float(number_info(array.dtype).max)),
        }
        found |= {kind for kind, holds in kinds.items() if holds.any()}
    return found


def ends_of(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the ends of a type of whole numbers; of another, infinity."""
    if not is_whole_type(dtype):
        return -_INF, _INF
    info = number_info(dtype)
    return float(info.min), float(info.max)


def _beyond(dtype: np.dtype[Any], of: Quantity) -> Iterator[Piece]:
    """Yield a piece beyond each end of a type of whole numbers."""
    low, high = ends_of(dtype)
    margin, below = (max(1.0, end * (_BEYOND - 1)) for end in (high, -low))
    over, under = (high + 1, high * 1.5), (low - 1, low * 1.5 - 1)
    yield Piece(f"beyond {high:g}", of, high + margin, _INF, over)
    yield Piece(f"beyond {low:g}", of, -_INF, low - below, under)


def _cast(call: Call) -> Iterator[Piece]:
    before, after = call.types[0], _target(call)
    if before is None or after is None or "O" in (before.kind, after.kind):
        return
    if before.kind == "b" == after.kind:
        return  # exporters leave such casts behind: nothing becomes of them
    if before.kind == "b":
        yield from _truth(0)(call)
    elif after.kind == "b":
        yield Piece("of zero", _FIRST, 0, 0, (0,))
        yield Piece("of another number", _SIZE, _LEAST, _INF, (1,))
        if not is_whole_type(before):
            fractions = (0.5, -0.25)
            yield Piece("of a fraction", _SIZE, _LEAST, 1 - 2.0**-20, fractions, unless="alike")
    elif is_whole_type(after):
        yield from _cut_off(before, after)
    elif is_whole_type(before):
        yield from _inexact(call, before, after)
    else:
        yield from _overflowing_cast(before, after)


def casts_anything(call: Call) -> bool:
    """Tell whether a node casts floats that its type does not hold, or that are next to nothing.

    What becomes of the former is nowhere said, and the last bit decides whether the latter are 0.
    """
    before, after = call.types[0], _target(call) if call.node.op_type == "Cast" else None
    if before is None or after is None or is_whole_type(before) or before.kind == "b":
        return False
    sizes = np.abs(np.asarray(call.values[0], np.float64))
    if after.kind == "b":
        return bool((sizes < _NEXT_TO_NOTHING).any())
    return is_whole_type(after) and not bool((sizes <= ends_of(after)[1]).all())


def _cut_off(before: np.dtype[Any], after: np.dtype[Any]) -> Iterator[Piece]:
    """Yield where whole numbers are made of numbers that are none, or beyond their ends."""
    known = ends_of(before)
    for piece in _beyond(after, _FIRST):
        if known[0] < piece.high and piece.low < known[1]:
            yield piece
    if not is_whole_type(before):
        for sign, word in ((1, "positive"), (-1, "negative")):
            yield Piece(f"of a {word} fraction", _part(sign), _LEAST, _INF, (sign * 1.5,))


def _target(call: Call) -> np.dtype[Any] | None:
    """Return the type that a Cast makes: that of a run may be a wider one, which holds it."""
    stated = attribute(call.node, "to")
    if stated is None or stated.i == onnx.TensorProto.STRING:
        return call.types[call.results]
    return onnx.helper.tensor_dtype_to_np_dtype(stated.i)


def _part(sign: int) -> Quantity:
    """Return a number of one sign that is not whole, or -1."""
    return Quantity(
        lambda v: np.where(v[0] == np.floor(v[0]), -1.0, sign * v[0]),
        lambda r: r[0] if sign > 0 else r[0].negated(),
    )


def _inexact(call: Call, before: np.dtype[Any], after: np.dtype[Any]) -> Iterator[Piece]:
    """Yield where whole numbers become floats that are not exact any more."""
    limit = EXACT_TO.get(after.name, _INF)
    low, high = ends_of(before)
    if high > limit:
        yield Piece(f"beyond {limit:g}", _FIRST, limit + 1, _INF, (limit + 1, limit + 3))
        if low < 0:
            yield Piece(f"beyond {-limit:g}", _FIRST, -_INF, -limit - 1, (-limit - 1,))
        if np.size(call.values[0]) > 1:
            result = call.results
            lost = Quantity(
                lambda v: np.asarray(np.unique(v[0]).size - np.unique(v[result]).size),
                lambda r: Interval(0.0, _INF if r[0].magnitude().high > limit else 0.0),
            )
            yield Piece("making one number of two", lost, 1, _INF, (limit, limit + 1))


def _overflowing_cast(before: np.dtype[Any], after: np.dtype[Any]) -> Iterator[Piece]:
    if after.itemsize < before.itemsize or after.name == "float16":
        most, known = (float(number_info(dtype).max) for dtype in (after, before))
        if most < known:
            least, large = most * _INFINITE, min(most * 1.5, known)
            yield Piece(f"beyond {most:g}", _SIZE, least, _INF, (large, -large))


def _sum_of(signs: int) -> Quantity:
    if signs > 0:
        return Quantity(lambda v: v[0] + v[1], lambda r: r[0].plus(r[1]))
    return _apart(0, 1)


def _folded(fold: Callable[..., Any]) -> Quantity:
    """Return what rows become, along the axes that are read; along all if none are."""

    def of(values: Values) -> Any:  # noqa: ANN401  # an array
        axes = None if len(values) <= _AXES or values[1] is None else np.ravel(values[1])
        chosen = None if axes is None or not axes.size else tuple(map(int, axes))
        return fold(values[0], axis=chosen[0] if chosen and len(chosen) == 1 else chosen)

    return Quantity(of)


_AXES = 2
"""The values of a fold that reads its axes are more."""

_RESULTS: Mapping[str, Quantity] = {
    "MatMul": Quantity(lambda v: np.matmul(v[0], v[1])),
    "CumSum": _folded(np.cumsum),
    "ReduceProd": _folded(np.prod),
    "Add": _sum_of(1),
    "Sub": _sum_of(-1),
    "Mul": Quantity(lambda v: v[0] * v[1], lambda r: r[0].times(r[1])),
}


def _arithmetic(call: Call) -> Iterator[Piece]:
    """Yield where whole numbers wrap around, and where a constant shows that is small or large."""
    op, dtype = call.node.op_type, call.types[0]
    for slot in (0, 1) if op != "Mul" else ():
        numbers = call.constants(slot)
        if np.size(call.values[slot]) == 1 and numbers and abs(numbers[0]) >= _LARGE:
            end = numbers[0] if op == "Sub" else -numbers[0]
            most = abs(end) * _CANCELLED
            beside = tuple(end + share * most for share in (0.0, 0.3, -0.7))
            name = f"of numbers that nearly cancel {numbers[0]:g}"
            yield Piece(name, _from(1 - slot, end), -most, most, beside, unless="alike")
    yield from _wrapping(call)
    if op != "Mul" and not is_whole_type(dtype):
        for slot in (0, 1):
            numbers = [n for n in call.constants(slot) if 0 < abs(n) <= _TINY]
            if len(numbers) == 1 and np.size(call.values[slot]) == 1:
                size = abs(numbers[0])
                other = 1 - slot
                near = Quantity(
                    lambda v, other=other: np.abs(v[other]),  # type: ignore[misc]
                    lambda r, other=other: r[other].magnitude(),  # type: ignore[misc]
                )
                yield Piece(
                    f"of no more than {size:.3g}", near, 0, size, (0.0, size), unless="fewer"
                )


def _wrapping(call: Call) -> Iterator[Piece]:
    """Yield where sums and products of whole numbers lie beyond their type."""
    op, dtype = call.node.op_type, call.types[0]
    if dtype is None or not is_whole_type(dtype):
        return
    low, high = ends_of(dtype)
    for piece in _beyond(dtype, _RESULTS[op]):
        if piece.low < 0 and (op == "ReduceProd" or (not low and op != "Sub")):
            continue  # what many make wraps above as well; no sum of unsigned numbers lies below
        at_end = (high - 1, high // 2 + 1) if piece.low > 0 else (low + 1, low // 2 - 1)
        yield piece._replace(draws=at_end, unless="fewer")


def _masked(call: Call) -> Iterator[Piece]:
    """Yield a number of which a mask stops a bit."""
    for slot in (0, 1):
        if call.stored[slot] and np.size(call.values[slot]) == 1:
            mask = int(np.ravel(call.values[slot])[0])
            other, end = 1 - slot, int(ends_of(np.dtype(call.types[0]))[1])
            stopped = Quantity(
                lambda v, mask=mask, other=other: (  # type: ignore[misc]
                    np.asarray(v[other]).astype(np.int64) & ~mask != 0
                )
            )
            draws = (float(end), float(mask ^ end), float((mask + 1) & end))
            yield Piece("of a bit that the mask stops", stopped, 1, 1, draws, unless="alike")


def _gated(call: Call) -> Iterator[Piece]:
    """Yield numbers beyond where a recurrent network cuts its gates off."""
    if clip := call.number("clip", 0.0):
        draws = (2 * clip, -2 * clip, 8 * clip, -8 * clip)
        yield Piece(f"of more than {clip:g}", _SIZE, clip, _INF, draws, unless="alike")


def _labelled(call: Call) -> Iterator[Piece]:
    """Yield each number that stands for another, of a list that is not long."""
    for name in ("keys_int64s", "keys_floats"):
        stated = attribute(call.node, name)
        keys = [] if stated is None else [*stated.ints, *stated.floats]
        for key in keys if len(keys) <= _MOST_KEYS else ():
            yield Piece(f"of {key}", _FIRST, key, key, (key,), unless="alike")


def _splits(call: Call) -> Iterator[Piece]:
    """Yield a text of more parts than it is split into."""
    delimiter, most = attribute(call.node, "delimiter"), int(call.number("maxsplit", -1))
    if most < 0:
        return
    mark = delimiter.s.decode() if delimiter is not None and delimiter.s else " "
    count = np.vectorize(lambda text: str(text).count(mark), otypes=[float])
    text = mark.join("abcdefghijklmnopqrstuvwxyz"[: most + 3])
    parts = Quantity(lambda v: count(v[0]) if np.size(v[0]) else np.zeros(0))
    yield Piece(f"of more than {most} marks", parts, most + 1, _INF, (text,), unless="alike")


def _divide(call: Call) -> Iterator[Piece]:
    dtype, numbers = call.types[0], call.constants(0, 1)
    is_whole = is_whole_type(dtype)
    if is_whole and {abs(number) for number in call.constants(1)} == {1.0}:
        return  # nothing is left over
    if not is_whole and call.node.op_type == "Div":
        if call.stored[1] and np.all(call.values[1]):
            return
        yield Piece("by zero", _at(1), 0, 0, (0.0,), unless="fewer")
        return
    least = 1.0 if is_whole else _LEAST
    for sign, word in ((1, "positive"), (-1, "negative")):
        if sign > 0 or dtype is None or dtype.kind != "u":
            draws = tuple(sign * (number + 1) for number in numbers)
            name = f"of a {word} number with a rest"
            yield Piece(name, _rest(sign), least, _INF, draws, unless="fewer")


def _rest(sign: int) -> Quantity:
    """Return a number of one sign that another does not divide, or -1."""
    return Quantity(
        lambda v: np.where(np.fmod(v[0], v[1]) != 0, sign * v[0], -1.0),
        lambda r: r[0] if sign > 0 else r[0].negated(),
    )


_OF_ZERO = Piece("of zero", _FIRST, 0, 0, (0.0,), unless="fewer")
_OF_NEGATIVE = Piece("of a negative number", _FIRST, -_INF, -_LEAST, (-1.0, -2.0), unless="fewer")


def _of_zero(_: Call) -> Pieces:
    """Return where there is no finite result."""
    return (_OF_ZERO,)


def _negative_or_zero(_: Call) -> Pieces:
    """Return where there is no result, or another kind of result."""
    return (_OF_NEGATIVE, _OF_ZERO)


def _exponential(call: Call) -> Iterator[Piece]:
    kind = "" if call.types[0] is None else call.types[0].name
    most = _OVERFLOWS.get(kind, 88.73)
    yield Piece("overflowing", _FIRST, most, _INF, (most + 1, most * 1.2), unless="fewer")
    yield Piece("underflowing", _FIRST, -_INF, -most * 1.2, (-most * 1.3,), unless="fewer")


def _rounding(call: Call) -> Iterator[Piece]:
    is_round = call.node.op_type == "Round"
    for parity, word in _PARITIES:
        draws = (2.0 - parity, parity - 2.0)
        yield Piece(f"of an {word} number", _off(_FIRST, parity), 0, 0, draws, unless="fewer")
    yield Piece("of a negative fraction", _part(-1), _LEAST, _INF, (-0.3, -1.7))
    yield Piece("of a positive fraction", _part(1), _LEAST, _INF, (0.3, 1.7))
    if is_round:
        for sign, word in ((1, "positive"), (-1, "negative")):
            off = _off(_FIRST, int(sign < 0), 0.5, sign)  # that the number nearer zero wins
            yield Piece(f"of a {word} tie", off, 0, 0, (0.5 * sign, 2.5 * sign), unless="alike")


def _quantise(call: Call) -> Iterator[Piece]:
    after = call.types[call.results]
    operands = call.values[1 : call.results]
    if after is None or not is_whole_type(after) or any(np.size(v) != 1 for v in operands):
        return
    if any(v is None and call.has(1 + at) for at, v in enumerate(operands)):
        return
    step = float(np.ravel(call.values[1])[0])
    shift = float(np.ravel(call.values[2])[0]) if call.has(2) else 0.0
    if not step:
        return
    low, high = ends_of(after)
    code = Quantity(
        lambda v: v[0] / step + shift,
        lambda r: Interval(r[0].low / step + shift, r[0].high / step + shift),
    )
    below, above = ((low - 2 - shift) * step,), ((high + 2 - shift) * step,)
    yield Piece("below its codes", code, -_INF, low - 1, below)
    yield Piece("giving its least code", code, low - 0.4, low + 0.4, ((low - shift) * step,))
    yield Piece("above its codes", code, high + 1, _INF, above)
    share = Quantity(lambda v: v[0] / step)
    for parity, word in _PARITIES:
        ties = tuple((n + parity + 0.5) * step for n in range(-4, 4, 2))
        yield Piece(f"of an {word} tie", _off(share, parity, 0.5), 0, 0, ties, unless="fewer")


def _fused(call: Call) -> Iterator[Piece]:
    """Yield the pieces of the activation that a node of onnxruntime's own ends with."""
    stated, numbers = attribute(call.node, "activation"), attribute(call.node, "activation_params")
    name, result = "" if stated is None else stated.s.decode(), _at(call.results)
    if name in {"Relu", "LeakyRelu"}:
        yield Piece("stopped at 0", result, -_INF, 0)
        yield Piece("above 0", result, _LEAST, _INF)
    if name == "Clip" and numbers is not None:
        low, high = numbers.floats
        yield Piece(f"stopped at {low:g}", result, low, low)
        yield Piece(f"stopped at {high:g}", result, high, high, (high * 10, -high * 10))


def _choice(call: Call) -> Iterator[Piece]:
    """Yield the pieces of what chooses the largest or the least: a tie, and none."""
    axis = int(call.number("axis", -1 if call.node.op_type == "TopK" else 0))
    is_least = call.node.op_type == "ArgMin" or not call.number("largest", 1)

    def ties(v: Values) -> Reals:
        best = (np.min if is_least else np.max)(v[0], axis, keepdims=True)
        return np.asarray((v[0] == best).sum(axis) - 1.0)

    if np.ndim(call.values[0]) and np.shape(call.values[0])[axis] > 1:
        yield Piece("of a tie", Quantity(ties), 1, _INF, (5.0,), unless="alike")


def _kept(call: Call) -> Iterator[Piece]:
    slot = 1 if call.node.op_type == "Compress" else 0
    some = Quantity(lambda v: np.asarray(np.count_nonzero(v[slot])))
    rest = Quantity(lambda v: np.asarray(np.size(v[slot]) - np.count_nonzero(v[slot])))
    yield Piece("keeping none", some, 0, 0, (0,))
    yield Piece("keeping some", some, 1, _INF)
    yield Piece("keeping all", rest, 0, 0, (1,))


def _index(call: Call) -> Iterator[Piece]:
    """Yield an index that counts from the end of its axis."""
    for slot, _, _ in choices(call):
        yield Piece("by a negative index", _at(slot), -_INF, -1, (-1,), unless="fewer")


def _one_hot(call: Call) -> Iterator[Piece]:
    draws = _around(*call.constants(1))
    yield Piece("of an index beyond its depth", _apart(0, 1), 0, _INF, draws, unless="alike")


def _extreme(call: Call) -> Iterator[Piece]:
    """Yield the side of 0 on which what is added to a maximum, or a minimum, wins: a filler."""
    result = _at(call.results)
    if call.node.op_type == "ReduceMin":
        yield Piece("giving a number above 0", result, _LEAST, _INF, (1.0, 30.0), unless="alike")
    else:
        yield Piece(
            "giving a number below 0", result, -_INF, -_LEAST, (-1.0, -30.0), unless="alike"
        )


def _shifted(call: Call) -> Iterator[Piece]:
    """Yield a number of which a shift takes the highest bit."""
    half = (ends_of(np.dtype(call.types[0]))[1] + 1) / 2
    if math.isfinite(half):
        draws = (half, half * 1.5)
        yield Piece("of its highest bit", _FIRST, half, _INF, draws, unless="alike")


def _spread(call: Call) -> Iterator[Piece]:
    """Yield a row that hardly varies, in which the epsilon of a normalisation shows."""
    axis = int(call.number("axis", -1))
    epsilon = call.number("epsilon", 1e-5)
    if call.node.op_type == "InstanceNormalization":
        axis = 2
    data = call.values[0]
    if not np.ndim(data) or not -np.ndim(data) <= axis < np.ndim(data):
        return

    def variance(v: Values) -> Reals:
        axes = tuple(range(axis % np.ndim(v[0]), np.ndim(v[0])))
        return np.asarray(np.var(v[0], axis=axes))

    yield Piece("of a row that hardly varies", Quantity(variance), 0, epsilon, (), unless="fewer")


def _missing(call: Call) -> Iterator[Piece]:
    """Yield a number that is none, where an operator says what becomes of it."""
    if is_guard(call.node) and not is_whole_type(call.types[0]):
        yield Piece("of NaN", Quantity(lambda v: np.isnan(v[0])), 1, 1, (math.nan,))
    for name in ("replaced_value_float", "replaced_value_int64"):
        stated = attribute(call.node, name)
        number = math.nan if stated is None else call.number(name, 0.0)
        if not math.isnan(number):
            yield Piece(f"of {number:g}", _FIRST, number, number, (number,))


def _turns(call: Call) -> Iterator[Piece]:
    """Yield how often a Loop goes round, which stands behind its results."""
    if not call.has(0):
        return  # the condition has pieces of its own
    node, turns = call.node, _at(-1)
    most = float(call.values[0]) if np.size(call.values[0]) == 1 else _INF
    is_fixed = call.stored[0]
    least = most if is_fixed and goes_on(node) else 0.0
    may_begin = not call.has(1) or call.stored[1]
    for number, word in ((0, "without a turn"), (1, "in one turn"), (2, "in two turns")):
        if least <= number <= (most if is_fixed else _INF) and (
            number or not may_begin or not is_fixed
        ):
            yield Piece(word, turns, number, number, (number,), unless="alike")
    yield Piece("in several turns", turns, min(3.0, most) if is_fixed else 3.0, _INF, (3, 4))
    if not goes_on(node):
        early = Quantity(lambda v: np.asarray(v[0] - v[-1]))
        yield Piece("ending early", early, 1, _INF, unless="alike")
        yield Piece("in as many turns as it may", early, 0, 0, unless="alike")


def goes_on(node: NodeProto) -> bool:
    """Tell whether the body of a Loop never says that it ends."""
    body = attribute(node, "body").g  # type: ignore[union-attr]  # a Loop has one
    name = body.output[0].name
    makers = {output: each for each in body.node for output in each.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    # The condition that it begins with, or one like it from outside.
    is_given = name in {body.input[1].name, node.input[1], *(t.name for t in body.initializer)}
    return is_given or (name in makers and makers[name].op_type == "Constant")


_SIGNS = _bending(0.0)


def _negated(call: Call) -> Pieces:
    """Return the lowest whole number, which has no opposite."""
    dtype = call.types[0]
    low = 0.0 if dtype is None or not is_whole_type(dtype) else ends_of(dtype)[0]
    return (
        ()
        if not low
        else (Piece("of the lowest number", _FIRST, low, low, (low,), unless="fewer"),)
    )


def _magnitude(call: Call) -> Pieces:
    """Return either side of 0, and the lowest whole number."""
    return (*_SIGNS(call), *_negated(call))


PIECES: Mapping[str, Callable[[Call], Pieces]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu"), _SIGNS),
    "Abs": _magnitude,
    "Neg": _negated,
    "Sign": _sign,
    "ThresholdedRelu": _bending(alpha=1.0),
    "HardSwish": _bending(-3.0, 3.0),
    "HardSigmoid": _hard_sigmoid,
    "Shrink": _shrink,
    "Clip": _clip,
    "Exp": _exponential,
    **dict.fromkeys(("Pow", "Sqrt", "Log"), _negative_or_zero),
    "Reciprocal": _of_zero,
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(_FLAT, _saturating),
    **dict.fromkeys(("And", "Or", "Xor"), _truth(-1)),
    **dict.fromkeys(("Where", "If", "Not"), _truth(0)),
    "IsNaN": _nan_or_not,
    "OneHot": _one_hot,
    "BitShift": _shifted,
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _extreme),
    "IsInf": _infinite_or_not,
    **dict.fromkeys(("Max", "Min"), _winners),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    **dict.fromkeys(("Add", "Sub", "Mul"), _arithmetic),
    **dict.fromkeys(("MatMul", "CumSum", "ReduceProd"), _wrapping),
    "BitwiseAnd": _masked,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _gated),
    "LabelEncoder": _labelled,
    "StringSplit": _splits,
    **dict.fromkeys(("Div", "Mod"), _divide),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _rounding),
    "QuantizeLinear": _quantise,
    **dict.fromkeys(("FusedConv", "FusedGemm"), _fused),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _choice),
    **dict.fromkeys(("NonZero", "Compress"), _kept),
    **dict.fromkeys({"GatherND", *(op for op, _ in INDEXED)}, _index),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization"), _spread),
    **dict.fromkeys(("Imputer", "TreeEnsembleRegressor", "TreeEnsembleClassifier"), _missing),
    "Loop": _turns,
}
"""By operator, the pieces of a call of it."""

GUARDS = frozenset({"IsNaN", "IsInf", "Imputer"})
"""Operators that ask whether a number is one; trees do if they say where a missing one goes."""

_MISSING = "nodes_missing_value_tracks_true"


def pieces_of(call: Call) -> list[Piece]:
    """Return the pieces of a node's meaning, as far as its types and constants tell."""
    rule = PIECES.get(call.node.op_type)
    return [] if rule is None or call.types[0] is None else [*rule(call)]


def is_listed(node: NodeProto) -> bool:
    """Tell whether a node has pieces."""
    if PIECES.get(node.op_type) is _gated:
        return attribute(node, "clip") is not None  # else its weights would be read for nothing
    return node.op_type in PIECES


def is_guard(node: NodeProto) -> bool:
    """Tell whether a node asks whether a number is one."""
    stated = attribute(node, _MISSING)
    return (
        node.op_type in GUARDS
        or (node.op_type == "Equal" and node.input[0] == node.input[1])
        or (stated is not None and any(stated.ints))
    )


def choices(call: Call) -> Iterator[tuple[int, int, int]]:
    """Yield which operand chooses from which other, and along which axis."""
    op = call.node.op_type
    for (name, slot), (at, axis) in (*INDEXED.items(), (("GatherND", 1), (0, 0))):
        is_other = op == "RotaryEmbedding" and (slot == 1) != bool(call.node.domain)
        if name == op and call.has(slot) and call.has(at) and not is_other:
            yield slot, at, axis if isinstance(axis, int) else int(call.number(*axis))
            if op == "RotaryEmbedding":  # of cosines and of sines
                yield slot, at + 1, 0


# Sizes at which nodes bend, and lists of attributes.


_READING_SIZES = frozenset({"Shape", "Size", "Slice", "Gather"})
"""Operators for which the size of a constant is a number like others."""

_AXES_BESIDE = 2
"""The axes of a weight that are no part of its window: channels."""


def bounds_of(nodes: Iterable[NodeProto], stored: Callable[[str], TensorProto | None]) -> set[int]:
    """Return the sizes at which nodes may bend: whole numbers that they hold, windows, and types.

    Args:
        nodes: The nodes.
        stored: Gives the constant of a name.
    """
    bounds: set[int] = set()
    for node in nodes:
        for item in node.attribute:
            if item.name == "to":
                dtype = onnx.helper.tensor_dtype_to_np_dtype(item.i)
                bounds.add(int(min(EXACT_TO.get(dtype.name, ends_of(dtype)[1]), 2.0**62)))
            elif item.type in {onnx.AttributeProto.INT, onnx.AttributeProto.INTS}:
                bounds.update(item.ints or [item.i])
        for tensor in filter(None, map(stored, node.input)):
            if len(tensor.dims) > _AXES_BESIDE and node.op_type.endswith(_WINDOWS):
                bounds |= _reach(node, tensor.dims[_AXES_BESIDE:])
            if math.prod(tensor.dims) <= _MOST_BOUNDS:
                bounds |= _whole_in(tensor)
            if node.op_type in _READING_SIZES:
                bounds.update(tensor.dims)
    return {abs(bound) for bound in bounds if bound}


def _whole_in(tensor: TensorProto) -> set[int]:
    """Return the whole numbers of a small constant; of a scale, how much becomes one."""
    values = small_values(tensor)
    if values is None or values.dtype.kind not in "iuf":
        return set()
    most = _MOST_FLOAT_BOUND if values.dtype.kind == "f" else EXACT_TO["float32"]
    numbers = [float(n) for n in values.reshape(-1).tolist() if 0 < abs(n) <= most]
    return {int(n) if n == int(n) else round(1 / n) for n in numbers if n == int(n) or 0 < n < 1}


def _reach(node: NodeProto, kernel: Sequence[int]) -> set[int]:
    """Return how far a window reaches along each axis."""
    stated = attribute(node, "dilations")
    dilations = [1] * len(kernel) if stated is None else stated.ints
    return {(size - 1) * step for size, step in zip(kernel, dilations, strict=False)}


_OF_WORDS = frozenset({"RegexFullMatch", "StringNormalizer", "StringSplit", "TfIdfVectorizer"})


def edits(
    ours: Sequence[NodeProto], theirs: Sequence[NodeProto]
) -> dict[str, tuple[list[object], str]]:
    """Return words and lists of attributes that differ, in nodes that are alike otherwise.

    Words of a vocabulary, leaves of trees: a run shows one if it is drawn. With each stands what is
    beside it in lists as long, and what differs, in words.
    """
    found: dict[str, tuple[list[object], str]] = {}
    if [node.op_type for node in ours] != [node.op_type for node in theirs]:
        return found
    for one, other in zip(ours, theirs, strict=True):
        if one.domain != "ai.onnx.ml" and one.op_type not in _OF_WORDS:
            continue
        lists = [{item.name: _listed(item) for item in node.attribute} for node in (one, other)]
        for name, (before, after) in _paired(*lists).items():
            rows = [
                row
                for row in range(max(len(before), len(after)))
                if before[row : row + 1] != after[row : row + 1]
            ]
            if rows and (len(before) > 1 or isinstance(before[0], str)):
                lengths = {len(before), len(after)}
                beside = [
                    own[row]
                    for each in lists
                    for own in each.values()
                    if len(own) in lengths
                    for row in rows[:64]
                    if row < len(own)
                ]
                found[f"{one.op_type} {one.output[0]!r}"] = beside, f"{name}[{rows[0]}]"
    return found


def beside_edits(ours: Sequence[NodeProto], theirs: Sequence[NodeProto]) -> list[object]:
    """Return the numbers and words that stand beside what differs in lists of attributes."""
    return [each for beside, _ in edits(ours, theirs).values() for each in beside]


def _paired(
    ours: Mapping[str, list[object]], theirs: Mapping[str, list[object]]
) -> dict[str, tuple[list[object], list[object]]]:
    return {name: (ours[name], theirs[name]) for name in ours if name in theirs}


def _listed(item: onnx.AttributeProto) -> list[object]:
    """Return what an attribute lists, or its one word; nothing if it is one number."""
    if item.HasField("t"):
        values = small_values(item.t)
        return [] if values is None else list(values.reshape(-1).tolist())
    if item.strings:
        return [text.decode("utf-8", "replace") for text in item.strings]
    if item.HasField("s"):
        return [item.s.decode("utf-8", "replace")]
    return [*item.floats] or [*item.ints]
