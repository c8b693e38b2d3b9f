"""What values a model computes can be at all: the least and the largest, by interval arithmetic.

Behind a Relu nothing is negative, behind a Softmax nothing exceeds 1, and no size is less than 0.
What is drawn for a place inside a model keeps to that, so that a place is not blamed for what it
gives where it never is. (R. E. Moore, Interval Analysis, 1966; the rules are those of the ONNX
standard, rounding aside.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import onnx

from dplcli.ir import operators
from dplcli.ir.operators import canonical_domain
from dplcli.verify.model import attribute, small_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from onnx import NodeProto

    from dplcli.analysis.extract import Wiring
    from dplcli.verify.compare import Reals
    from dplcli.verify.values import Array


class Interval(NamedTuple):
    """All numbers from *low* to *high*."""

    low: float = -math.inf
    high: float = math.inf

    def union(self, other: Interval) -> Interval:
        """Return the least interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def plus(self, other: Interval) -> Interval:
        """Return where sums lie."""
        return tidy(Interval(self.low + other.low, self.high + other.high))

    def minus(self, other: Interval) -> Interval:
        """Return where differences lie."""
        return tidy(Interval(self.low - other.high, self.high - other.low))

    def times(self, other: Interval) -> Interval:
        """Return where products lie."""
        corners = [0.0 if not a or not b else a * b for a in self for b in other]
        return tidy(Interval(min(corners), max(corners)))

    def negated(self) -> Interval:
        """Return where numbers of the other sign lie."""
        return Interval(-self.high, -self.low)

    def magnitude(self) -> Interval:
        """Return where absolute values lie."""
        least = max(self.low, -self.high, 0.0)
        return Interval(least, max(abs(self.low), abs(self.high)))


ANYTHING = Interval()


def tidy(found: Interval) -> Interval:
    """Return an interval; all numbers if one of its ends is none."""
    return ANYTHING if math.isnan(found.low) or math.isnan(found.high) else found


_NOT_NEGATIVE = Interval(0.0)
_PLACE = Interval(0.0, 2.0**24)
"""Where an element stands: sizes are taken to lie below."""
_SHARE = Interval(0.0, 1.0)
_SIGNED_SHARE = Interval(-1.0, 1.0)

_WITH_ZERO = 3
_SMALL = 2.0**31 - 1
_TYPES = onnx.TensorProto
_FLOATS = frozenset({_TYPES.FLOAT, _TYPES.FLOAT16, _TYPES.BFLOAT16, _TYPES.DOUBLE})
_UNSIGNED = frozenset({_TYPES.UINT8, _TYPES.UINT16, _TYPES.UINT32, _TYPES.UINT64})
_NARROW = frozenset({_TYPES.INT8, _TYPES.UINT8, _TYPES.INT16, _TYPES.UINT16})
_ENDS: Mapping[int, Interval] = {
    _TYPES.BOOL: Interval(0.0, 1.0),
    **{
        int(number): Interval(float(info.min), float(info.max))
        for number in (*_NARROW, *_UNSIGNED)
        for info in [np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(number))]
    },
}
"""What truth values, and numbers of unsigned and narrow types, lie between."""

_TYPE_FROM = {"Where": 1, "DequantizeLinear": 1, "CastLike": 1}
"""From which input a result has its type, if not from the first."""

_MOST_EXPONENT = 700.0
"""Exp of more is taken for infinity."""

_LEAST = 1e-300
"""The least positive number."""

_MOST_WALKED = 2_000
"""How many values are looked at for one answer; beyond, nothing is known."""

_ALWAYS: Mapping[str, Interval] = {
    **dict.fromkeys(operators.NOT_NEGATIVE - {"Exp", "Sqrt"}, _NOT_NEGATIVE),
    **dict.fromkeys(operators.SHARES, _SHARE),
    **dict.fromkeys(operators.SIGNED_SHARES, _SIGNED_SHARE),
    "LogSoftmax": Interval(high=0.0),
    "Cosh": Interval(1.0),
}
"""Results by operator, whatever they are computed from."""

_ON_GRID = operators.REARRANGING | {"DequantizeLinear", "MaxPool", "Slice", "Gather"}

_MAKING_WHOLE = frozenset({"Ceil", "Floor", "Round", "Sign"})
_SUMMING = frozenset({"Add", "Mul", "Sub"})
_KEEPING_WHOLE = _SUMMING | {"Clip", "ReduceSum", "Trilu"} | operators.VALUES_FROM.keys()

_UNITING = frozenset({"Concat", "Where", "Max", "Min"})

_WEIGHT_SLOT = operators.MATRIX_SLOT | operators.KERNEL_SLOT
_KEEPING_NUMBERS = frozenset(
    operators.UNROUNDED
    | operators.OP_KINDS["elementwise"]
    | operators.ARITHMETIC
    | operators.SHARES
    | {op for op, summed in operators.SUMMED.items() if summed == "row"}
    | _WEIGHT_SLOT.keys()
) - (operators.WANTS_POSITIVE | operators.WANTS_UNIT | {"Mod", "Pad"})
"""Operators that make numbers of numbers, overflow aside; Div does where it never divides by 0."""


class Grid(NamedTuple):
    """All multiples of *step* from *low* to *high*: what quantised numbers stand for.

    Each has the rank of the value, or none: channels may have steps of their own.
    """

    step: Reals
    low: Reals
    high: Reals


class Ranges:
    """Intervals of the values of a main graph, found when asked for.

    Args:
        wiring: The main graph.
        settled: Returns the elements of a value that can only have these, as where sizes that the
            model states are computed with; None for others.
    """

    def __init__(self, wiring: Wiring, settled: Callable[[str], Array | None]) -> None:
        self._wiring = wiring
        self._settled = settled
        self._known: dict[str, Interval] = {}
        self._limits: dict[str, Interval] = {}
        self._types: dict[str, int] = {}
        self._sizes: dict[str, bool] = {}
        self._constants: dict[str, bool] = {}
        graph = wiring.model.graph
        self._given = {info.name for info in graph.input}  # an input with a default may be fed
        self._stored = {n: t for n, t in wiring.initializers.items() if n not in self._given}
        self._stated = {
            info.name: info.type.tensor_type.elem_type
            for info in (*graph.input, *graph.value_info, *graph.output)
        }

    def limit(self, name: str, limit: Interval) -> None:
        """Note within what a value lies, beyond what the nodes before it tell."""
        if self._limits.get(name) != limit:
            self._limits[name] = limit
            self._known.clear()

    def is_size(self, name: str) -> bool:
        """Tell whether a value follows from sizes and constants alone."""
        return self._follows_from(name, operators.MEASURING, self._sizes)

    def is_stored(self, name: str) -> bool:
        """Tell whether a value follows from constants alone, as weights do."""
        return self._follows_from(name, (), self._constants)

    def _follows_from(self, name: str, measuring: Collection[str], known: dict[str, bool]) -> bool:
        """Tell whether a value follows from constants, and from what some operators measure."""
        pending, seen = [name], {name}
        while pending and len(seen) < _MOST_WALKED and name not in known:
            current = pending.pop()
            row = self._wiring.makers.get(current)
            is_given = row is None and current not in self._stored
            if is_given or known.get(current) is False:
                known[name] = False
            elif row is not None and self._wiring.nodes[row].op_type not in measuring:
                is_like = self._wiring.nodes[row].op_type == "CastLike"
                read = self._wiring.reads[row][: 1 if is_like else None]
                pending += [each for each in read if each not in seen and not known.get(each)]
                seen.update(read)
        return known.setdefault(name, not pending)

    def grid(self, name: str, rank: int) -> Grid | Literal["unknown"] | None:
        """Return the grid of a value of a rank that is dequantised and moved; None if it is not."""
        is_moved = False
        for _ in range(_MOST_WALKED):
            row = self._wiring.makers.get(name)
            node = None if row is None else self._wiring.nodes[row]
            if node is None or node.op_type not in _ON_GRID or name != node.output[0]:
                return None
            if node.op_type == "DequantizeLinear":
                return self._grid_of(node, 0 if is_moved else rank) or "unknown"
            name, is_moved = node.input[0], True
        return None

    def _grid_of(self, node: NodeProto, rank: int) -> Grid | None:
        """Return the grid of what a node dequantises; of rank 0 if channels may have moved."""
        scale, zero = (
            small_values(tensor) if (tensor := self._stored.get(name)) is not None else None
            for name in (*node.input[1:3], "")[:2]
        )
        if zero is None and len([name for name in node.input if name]) < _WITH_ZERO:
            zero = np.zeros(1, np.uint8)  # codes of a signed type lie in a wider range: no harm
        if scale is None or zero is None or zero.dtype.kind not in "iu":
            return None
        shape: tuple[int, ...] = ()
        if max(scale.size, zero.size) > 1:
            axis = attribute(node, "axis")
            place = 1 if axis is None else axis.i
            if scale.ndim != 1 or not -rank <= place < rank:
                return None
            shape = tuple(-1 if at == place % rank else 1 for at in range(rank))
        info = np.iinfo(zero.dtype.name)
        step, start = (values.astype(np.float64).reshape(shape) for values in (scale, zero))
        return Grid(step, (int(info.min) - start) * step, (int(info.max) - start) * step)

    def __getitem__(self, name: str) -> Interval:
        """Return what the value *name* can be."""
        pending = [name]
        walked = 0
        while pending and name not in self._known:
            walked += 1
            current = pending[-1]
            node = self._maker(current)
            missing = [n for n in node.input if n and n not in self._known] if node else []
            if missing and walked < _MOST_WALKED and current not in self._stored:
                pending += missing
                continue
            pending.pop()
            found, limit = self._found(current, node), self._limits.get(current, ANYTHING)
            low, high = max(found.low, limit.low), min(found.high, limit.high)
            self._known.setdefault(current, Interval(low, high) if low <= high else found)
        return self._known.get(name, ANYTHING)

    def _maker(self, name: str) -> NodeProto | None:
        node = self._maker_of(name)
        return None if node is None or node.op_type in _ALWAYS else node

    def _found(  # noqa: C901, PLR0911  # a way for each kind of value
        self, name: str, node: NodeProto | None
    ) -> Interval:
        if name in self._stored:
            return _of_tensor(self._stored[name])
        settled = self._settled(name)
        if settled is not None and settled.size and settled.dtype.kind in "fiub":
            return _hull(settled, settled)
        if node is None:
            row = self._wiring.makers.get(name)
            if row is None:
                return _ENDS.get(self._type_of(name), ANYTHING)
            return self._always(self._wiring.nodes[row], name)
        if node.op_type == "DequantizeLinear":
            grid = self.grid(name, 0)
            return _hull(grid.low, grid.high) if isinstance(grid, Grid) else ANYTHING
        read = [self._known.get(n, ANYTHING) for n in node.input]
        if node.op_type in {"IsNaN", "IsInf"}:
            is_idle = self.grid(node.input[0], 0) is not None or self._is_of_numbers(node)
            return Interval(0.0, 0.0) if is_idle else _SHARE
        if name != node.output[0] and node.op_type != "Split":
            return _PLACE if node.op_type in {"MaxPool", "TopK"} else ANYTHING
        if node.op_type == "Dropout" and any(node.input[2:3]):
            return ANYTHING  # it may be in training
        if node.op_type == "Sub" and self._is_most_of(node.input[1], node.input[0]):
            return Interval(-math.inf, 0.0)  # a row less its largest element
        if node.op_type in {"ConvInteger", "MatMulInteger"}:
            return self._integer_product(node, read)
        interval = _computed(node, read)
        return self._as_whole(name, node, interval) if self.is_whole(name) else interval

    def _integer_product(self, node: NodeProto, read: Sequence[Interval]) -> Interval:
        """Return what a product of codes is, if the model holds the second factor."""
        weight = self._wiring.initializers.get(node.input[1])
        if weight is None or not weight.dims:
            return ANYTHING
        is_conv = node.op_type == "ConvInteger"
        dims = weight.dims[1:] if is_conv else weight.dims[-2:][:1]
        depth = Interval(0.0, float(math.prod(dims)))
        factors = [
            read[slot].minus(read[slot + 2]) if any(node.input[slot + 2 : slot + 3]) else read[slot]
            for slot in (0, 1)
        ]
        return factors[0].times(factors[1]).times(depth)

    def _is_of_numbers(self, guard: NodeProto) -> bool:
        """Tell whether a guard asks a Softmax that no row which is hidden whole can reach.

        PyTorch guards each attention so: IsNaN is true where a mask is -inf all along a row.
        Without such a mask only what is no number, or overflows, makes one. Weights are numbers.
        """
        softmax = self._maker_of(guard.input[0])
        if softmax is None or softmax.op_type != "Softmax":
            return False
        pending, seen = [str(softmax.input[0])], {str(softmax.input[0])}
        while pending and len(seen) < _MOST_WALKED:
            name = pending.pop()
            node = self._maker_of(name)
            if node is None or not node.input:
                if name not in self._given and math.isinf(max(map(abs, self[name]))):
                    return False
                continue
            if node.op_type not in _KEEPING_NUMBERS:
                return False
            if node.op_type == "Div" and self[node.input[1]].low <= 0:
                return False
            weight = _WEIGHT_SLOT.get(node.op_type)
            chosen = _chosen(self[node.input[0]]) if node.op_type == "Where" else (0, 1, 2)
            read = {
                str(each)
                for slot, each in enumerate(node.input)
                if each and slot in chosen and not (slot == weight and each in self._stored)
            }
            pending += read - seen
            seen |= read
        return not pending

    def _maker_of(self, name: str) -> NodeProto | None:
        """Return the node of the standard that makes a value."""
        row = self._wiring.makers.get(name)
        node: NodeProto | None = None if row is None else self._wiring.nodes[row]
        return None if node is None or canonical_domain(node.domain) else node

    def _is_most_of(self, name: str, of: str) -> bool:
        """Tell whether a value is the largest of another, along some axes."""
        row = self._wiring.makers.get(name)
        node = None if row is None else self._wiring.nodes[row]
        return node is not None and node.op_type == "ReduceMax" and node.input[0] == of

    def is_integral(self, name: str) -> bool:
        """Tell whether floats are whole numbers, as far as the nodes before them tell."""
        pending, seen = [name], {name}
        while pending and len(seen) < _MOST_WALKED:
            current = pending.pop()
            node, stored = self._maker(current), self._stored.get(current)
            low, high = self[current]
            if (low == high and low % 1 == 0) or (stored is not None and _holds_whole(stored)):
                continue
            if node is None or stored is not None:
                return False
            if node.op_type == "DequantizeLinear":
                grid = self.grid(current, 0)
                if not isinstance(grid, Grid) or np.any(np.asarray(grid.step) % 1):
                    return False
            elif node.op_type in _KEEPING_WHOLE and not self._is_cast_of_whole(node):
                slots = operators.VALUES_FROM.get(node.op_type, range(len(node.input)))
                read = [name for slot, name in enumerate(node.input) if name and slot in slots]
                pending += [each for each in read if each not in seen]
                seen.update(read)
            elif node.op_type not in _MAKING_WHOLE | {"Cast"}:
                return False
        return not pending

    def _is_cast_of_whole(self, node: NodeProto) -> bool:
        return node.op_type == "Cast" and self._type_of(node.input[0]) not in {0, *_FLOATS}

    def is_truth(self, name: str) -> bool:
        """Tell whether a value is true or false."""
        return self._type_of(name) == _TYPES.BOOL

    def is_whole(self, name: str) -> bool:
        """Tell whether a value holds whole numbers, or may."""
        return self._type_of(name) not in _FLOATS

    def _type_of(self, name: str) -> int:
        """Return the element type of a value, 0 if it is not known."""
        pending = [name]
        while pending and name not in self._types:
            current = pending[-1]
            source = self._source_of_type(current)
            if isinstance(source, str) and source not in self._types:
                if len(pending) < _MOST_WALKED:
                    pending.append(source)
                    continue
                self._types[source] = 0
            self._types[current] = self._types[source] if isinstance(source, str) else source
            pending.pop()
        return self._types[name]

    def _source_of_type(self, name: str) -> int | str:
        """Return the element type of a value, or which value has the same one."""
        if (stored := self._wiring.initializers.get(name)) is not None:
            return int(stored.data_type)
        row = self._wiring.makers.get(name)
        if (stated := self._stated.get(name, 0)) or row is None:
            return int(stated)
        node = self._wiring.nodes[row]
        if (to := attribute(node, "to")) is not None:
            return int(to.i)
        if node.op_type in operators.PLACES:
            return int(_TYPES.INT64)
        if node.op_type in operators.PREDICATES | {"IsInf", "IsNaN"}:
            return int(_TYPES.BOOL)
        read = node.input[_TYPE_FROM.get(node.op_type, 0) :][:1]
        return str(read[0]) if read and read[0] else 0

    def _as_whole(self, name: str, node: NodeProto, found: Interval) -> Interval:
        """Return an interval of whole numbers: they are cut off, and wrap around."""
        if node.op_type in operators.BETWEEN or node.op_type in _UNITING | {"Clip"}:
            return found  # it is one of what it reads
        kind = self._type_of(name)
        least = 0.0 if kind in _UNSIGNED else -_SMALL
        if not least <= found.low <= found.high <= _SMALL or kind in _NARROW:
            is_share = found in {_SHARE, Interval(0.0, 0.0), Interval(1.0, 1.0)}
            if node.op_type == "Cast" and found.low >= 0 and kind not in _NARROW:
                return Interval(math.floor(found.low))  # what lies beyond the type is undefined
            return found if is_share else ANYTHING
        return Interval(math.floor(found.low), math.ceil(found.high))

    @staticmethod
    def _always(node: NodeProto, name: str) -> Interval:
        is_standard = not canonical_domain(node.domain) and name == node.output[0]
        return _ALWAYS.get(node.op_type, ANYTHING) if is_standard else ANYTHING


def _holds_whole(tensor: onnx.TensorProto) -> bool:
    """Tell whether all that is stored is whole, as far as it is small enough to be read."""
    values = small_values(tensor)
    if values is None or values.dtype.kind not in "iuf":
        return False
    return bool((values == np.floor(values)).all())


def _of_tensor(tensor: onnx.TensorProto) -> Interval:
    values = small_values(tensor)
    if values is None or values.dtype.kind not in "fiub" or not values.size:
        return ANYTHING
    return _hull(values, values)


def _hull(lows: Array, highs: Array) -> Interval:
    """Return what lies between some numbers: anything if one of them is none."""
    return tidy(Interval(float(np.min(lows)), float(np.max(highs))))


def _chosen(condition: Interval) -> tuple[int, ...]:
    """Return which operands a Where may choose."""
    if condition.low < condition.high:
        return 1, 2
    return (1,) if condition.low else (2,)


def _computed(node: NodeProto, read: Sequence[Interval]) -> Interval:
    """Return what a node of the standard makes of intervals."""
    if node.op_type in {"Constant", "ConstantOfShape"}:
        if (value := attribute(node, "value")) is not None:
            return _of_tensor(value.t)
        return Interval(0.0, 0.0) if node.op_type == "ConstantOfShape" else ANYTHING
    if not read:
        return ANYTHING
    first = read[0]
    if node.op_type in operators.BETWEEN:
        is_padded = node.op_type == "AveragePool"  # zeros may count
        return first.union(Interval(0.0, 0.0)) if is_padded else first
    if node.op_type in _UNITING:
        parts = [read[at] for at in _chosen(first)] if node.op_type == "Where" else read
        low, high = (min(p.low for p in parts), max(p.high for p in parts))
        if node.op_type == "Max":
            low = max(p.low for p in parts)
        if node.op_type == "Min":
            high = min(p.high for p in parts)
        return Interval(low, high)
    rule = _RULES.get(node.op_type)
    return ANYTHING if rule is None else tidy(rule(node, read))


def _clipped(node: NodeProto, read: Sequence[Interval]) -> Interval:
    """Clip: the bounds may be computed, too."""
    low: Interval = Interval(-math.inf, -math.inf)
    high: Interval = Interval(math.inf, math.inf)
    for name, place in (("min", 1), ("max", 2)):
        stated = attribute(node, name)
        bound = None if stated is None else Interval(stated.f, stated.f)
        if len(read) > place and node.input[place]:
            bound = read[place]
        if bound is not None and name == "min":
            low = bound
        elif bound is not None:
            high = bound
    return Interval(min(max(read[0].low, low[0]), high[0]), min(max(read[0].high, low[1]), high[1]))


def _product(node: NodeProto, read: Sequence[Interval]) -> Interval:
    one, other = read[:2]
    if node.input[0] == node.input[1]:
        top = max(one.low**2, one.high**2)
        return Interval(0.0, top)
    corners = [0.0 if not a or not b else a * b for a in one for b in other]
    return Interval(min(corners), max(corners))


def _power(_: NodeProto, read: Sequence[Interval]) -> Interval:
    base, exponent = read[:2]
    is_even = exponent.low == exponent.high and exponent.low % 2 == 0 and exponent.low > 0
    return _NOT_NEGATIVE if is_even or base.low >= 0 else ANYTHING


def _quotient(_: NodeProto, read: Sequence[Interval]) -> Interval:
    over, under = read[:2]
    if under.low <= 0:
        return ANYTHING
    corners = [a / b for a in over for b in (under.low, under.high) if b]
    return Interval(min(corners), max(corners)) if corners else ANYTHING


def _reduced_sum(_: NodeProto, read: Sequence[Interval]) -> Interval:
    low, high = read[0]
    return Interval(low if low >= 0 else -math.inf, high if high <= 0 else math.inf)


def _monotonic(function: Callable[[float], Any], read: Sequence[Interval]) -> Interval:
    """Return what a function that never falls makes of an interval."""
    with np.errstate(all="ignore"):
        low, high = (float(function(end)) for end in read[0])
    return Interval(low, high)


def _masked(_: NodeProto, read: Sequence[Interval]) -> Interval:
    """BitwiseAnd: a number that is not negative lets no bit through that it has not."""
    most = min((each.high for each in read if each.low >= 0), default=math.inf)
    return ANYTHING if math.isinf(most) else Interval(0.0, most)


def _remainder(node: NodeProto, read: Sequence[Interval]) -> Interval:
    """Mod: from zero on, where it has the sign of a positive divisor."""
    number, divisor = read[:2]
    stated = attribute(node, "fmod")
    if divisor.low <= 0 or math.isinf(divisor.high):
        return ANYTHING
    is_positive = number.low >= 0 or stated is None or not stated.i
    return Interval(0.0 if is_positive else -divisor.high, divisor.high)


def _exponential(_: NodeProto, read: Sequence[Interval]) -> Interval:
    """Exp: it is never zero; where it is rounded to zero, that is a behaviour of its own."""
    low, high = (math.exp(min(end, _MOST_EXPONENT)) for end in read[0])
    return Interval(max(low, _LEAST), high if read[0].high <= _MOST_EXPONENT else math.inf)


def _counted(_: NodeProto, read: Sequence[Interval]) -> Interval:
    """Range: from the start on, upwards if the step is positive."""
    start, limit, step = read[:3]
    return Interval(start.low, limit.high) if step.low > 0 else ANYTHING


def _cast(node: NodeProto, read: Sequence[Interval]) -> Interval:
    to = attribute(node, "to")
    is_bool = to is not None and to.i == onnx.TensorProto.BOOL
    if not is_bool:
        return read[0]
    return Interval(1.0, 1.0) if read[0].low > 0 or read[0].high < 0 else _SHARE


def _compared(node: NodeProto, read: Sequence[Interval]) -> Interval:
    """Comparisons of what cannot meet, or is always one number each, are decided."""
    one, other = read[:2]
    if node.op_type.startswith("Less"):
        one, other = other, one
    is_or_equal = node.op_type.endswith("OrEqual")
    if node.op_type == "Equal":
        if one == other and one.low == one.high:
            return Interval(1.0, 1.0)
        return Interval(0.0, 0.0) if one.high < other.low or other.high < one.low else _SHARE
    if one.low > other.high or (is_or_equal and one.low >= other.high):
        return Interval(1.0, 1.0)
    if one.high < other.low or (not is_or_equal and one.high <= other.low):
        return Interval(0.0, 0.0)
    return _SHARE


_RULES: Mapping[str, Callable[[NodeProto, Sequence[Interval]], Interval]] = {
    "Relu": lambda _, read: Interval(max(read[0].low, 0.0), max(read[0].high, 0.0)),
    "Neg": lambda _, read: Interval(-read[0].high, -read[0].low),
    "Add": lambda _, read: Interval(read[0].low + read[1].low, read[0].high + read[1].high),
    "Sub": lambda _, read: Interval(read[0].low - read[1].high, read[0].high - read[1].low),
    "Floor": lambda _, read: _monotonic(np.floor, read),
    "Ceil": lambda _, read: _monotonic(np.ceil, read),
    "Round": lambda _, read: _monotonic(np.round, read),
    "Sqrt": lambda _, read: _monotonic(np.sqrt, [Interval(max(read[0].low, 0.0), read[0].high)]),
    "Log": lambda _, read: _monotonic(np.log, [Interval(max(read[0].low, 0.0), read[0].high)]),
    "Mod": _remainder,
    "BitwiseAnd": _masked,
    "Mul": _product,
    "Pow": _power,
    "Div": _quotient,
    "Clip": _clipped,
    "ReduceSum": _reduced_sum,
    "Exp": _exponential,
    "Range": _counted,
    "Cast": _cast,
    **dict.fromkeys(operators.COMPARISONS, _compared),
    "Not": lambda _, read: Interval(1 - min(read[0].high, 1), 1 - max(read[0].low, 0)),
    "CastLike": lambda _, read: read[0],
    "Dropout": lambda _, read: read[0],
}
