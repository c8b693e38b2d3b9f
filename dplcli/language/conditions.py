"""``where``: expressions over the captured values of a match, evaluated in a safe language.

Expressions may ask for facts about values, sizes, products, quantisation and element types, and
may compute with them. They may not compute without bounds, for catalogues come from anywhere.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from enum import IntEnum
from functools import cache, cached_property, lru_cache, wraps
from inspect import signature
from itertools import combinations, starmap
from threading import local
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeGuard, TypeVar

import numpy as np

from dplcli.errors import PatternSyntaxError, did_you_mean
from dplcli.ir import Tensor, Value
from dplcli.ir.model import is_exact
from dplcli.ir.operators import (
    BROADCASTING,
    KEEPS_SHAPE,
    MATRIX_SLOT,
    OP_KINDS,
    RESHAPING,
    ZERO_POINT_SLOTS,
    attribute_of,
    inputs_of,
    parameter_of,
)
from dplcli.ir.printer import print_numbers
from dplcli.ir.traversal import behind_identities, captured_values
from dplcli.ir.types import DTYPE_CODES
from dplcli.language.blocks import LazyArray, combined, data_of
from dplcli.language.expression import parse_expression, wrong
from dplcli.shapes import Knowledge, shape_of
from dplcli.shapes.rules import reshaped
from dplcli.shapes.terms import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from typing import NoReturn

    from numpy.typing import NDArray

    from dplcli.ir import Attribute, Node, TensorType
    from dplcli.shapes.rules import Dims

    Bound: TypeAlias = Value | tuple[Value, ...] | str | Mapping[str, Attribute]
    Facts: TypeAlias = "ValueFacts | list[ValueFacts] | str | SeveralAttributes | None"
    Code: TypeAlias = "Callable[[Mapping[str, Facts]], object]"
    from dplcli.shapes.terms import Number

    Array: TypeAlias = NDArray[Any]


# Which element types hold every number of another one, so that a Cast loses nothing.


class _Capacity(NamedTuple):
    """What a type can hold.

    Attributes:
        digits: Binary digits of a number: those of an integer without its sign, or those of a
            float's significand, the hidden one included.
        low: Exponent of the smallest positive number, subnormal ones included; 0 for integers.
        high: The largest number is below two to this power.
        signed: Whether there are negative numbers.
        special: Whether there are infinities.
    """

    digits: int
    low: int
    high: int
    signed: bool = True
    special: bool = False


_CAPACITIES = {
    "bool": _Capacity(1, 0, 1, signed=False),
    **{f"uint{bits}": _Capacity(bits, 0, bits, signed=False) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"int{bits}": _Capacity(bits - 1, 0, bits - 1) for bits in (2, 4, 8, 16, 32, 64)},
    "float16": _Capacity(11, -24, 16, special=True),
    "bfloat16": _Capacity(8, -133, 128, special=True),
    "float32": _Capacity(24, -149, 128, special=True),
    "float64": _Capacity(53, -1074, 1024, special=True),
    "float8e4m3fn": _Capacity(4, -9, 9),
    "float8e5m2": _Capacity(3, -16, 16, special=True),
}


def widens(source: str, target: str) -> bool:
    """Tell whether *target* holds every number of *source* exactly.

    ``float16`` and ``bfloat16`` are both within ``float32``, and that is within ``float64``;
    an integer type is within a float type that has as many binary digits (``int32`` in
    ``float64``, ``int8`` in ``float16``), and ``bool`` is within all; a type is within itself.
    The smallest integer, a power of two, takes no more digits than the others. The
    answer is no for all other types: text, complex numbers, the rarer 8-bit and 4-bit floats.
    """
    if source == target:
        return True
    small, large = _CAPACITIES.get(source), _CAPACITIES.get(target)
    if small is None or large is None or target == "bool":
        return False
    if (small.signed and not large.signed) or (small.special and not large.special):
        return False
    if small.low < 0 and large.low == 0:
        return False
    smallest = small.high + 1 if small.signed and small.low == 0 else small.high
    reach = large.high if large.low < 0 else smallest
    return small.digits <= large.digits and small.low >= large.low and smallest <= reach


# How much an expression may compute.


FREE = 1 << 20
"""Elements that any expression may compute."""

FACTOR = 16
"""Further elements for each element of a constant that it reads."""

MOST_ITEMS = 10_000
"""The most items of a list."""


class _Course(local):
    """What the evaluation that a thread is at has gone over.

    Attributes:
        left: How many elements it may still compute.
        items: How many items its comprehensions have gone over.
        weights: By ``id`` the lists that variables were bound to, with their weights.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin another evaluation: forget what was noted."""
        self.left = FREE
        self.items = 0
        self.weights: dict[int, tuple[object, int]] = {}

    def weight(self, thing: object) -> int:
        """Count the items of nested lists, each as often as it stands there."""
        if not isinstance(thing, (list, tuple, set)):
            return 1
        if id(thing) not in self.weights:
            self.weights[id(thing)] = thing, 1 + sum(map(self.weight, thing))
        return self.weights[id(thing)][1]


_COURSE = _Course()


def allow_for(size: int) -> None:
    """Allow more elements, since a constant of *size* elements is read."""
    _COURSE.left += FACTOR * size


def claim(size: int) -> None:
    """Count *size* elements of a result that is about to be computed.

    Raises:
        ValueError: The expression may not compute so many.
    """
    _COURSE.left -= size
    if _COURSE.left < 0:
        raise ExpressionError("the expression computes far more numbers than it reads")


# What a condition may ask of a captured value. What is unknown raises, and then it does not hold.


_FIRST_SPATIAL_AXIS = 2
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose"})


class UnknownFactError(Exception):
    """A condition asks for a fact that the model does not tell.

    Attributes:
        unranked: The value whose rank would have to be known, if that is all.
    """

    def __init__(self, message: str, unranked: Value | None = None) -> None:
        super().__init__(message)
        self.unranked = unranked


class NoAttributeError(UnknownFactError):
    """An expression asks for an attribute that the node has not."""


class ExpressionError(ValueError, TypeError):
    """An expression asks for what cannot be computed; the message says why, for a reader."""


class UnknownDim:
    """An unknown dimension; to compare it or to compute with it raises UnknownFactError."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def _refuse(self, *_: object) -> NoReturn:
        raise UnknownFactError(f"a dimension of {self._owner!r} is unknown")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __bool__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = __neg__ = __abs__ = _refuse
    __rmod__ = __rfloordiv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse


class SymbolicDim(str):
    """A dimension that has a name: it equals itself, and may or may not be any other one."""

    __slots__ = ()

    def _refuse(self, _: object) -> NoReturn:
        raise UnknownFactError(f"the size {str(self)!r} is not a number")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def _may_be_equal(left: object, right: object) -> bool:
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_may_be_equal, left, right))
    return isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim) or bool(left == right)


class AttributeFacts:
    """``x.attrs``: the attributes of the node that makes a value, defaults included."""

    def __init__(self, node: Node | None, label: str) -> None:
        self._node = node
        self._label = label

    def __getattr__(self, name: str) -> object:
        """Return the attribute's value.

        Raises:
            UnknownFactError: No node, no such attribute, or one that a function's caller gives.
        """
        if self._node is None:
            raise UnknownFactError(f"{self._label!r} is not made by a node, so has no attributes")
        attribute = parameter_of(self._node, name)
        if attribute is None:
            raise NoAttributeError(f"{self._node!r} has no attribute {name!r}")
        if attribute.ref:
            raise UnknownFactError(f"a caller gives the attribute {name!r} of {self._node!r}")
        if isinstance(attribute.value, Tensor):
            allow_for(attribute.value.size)
            return attribute.value.numpy()
        return attribute.value


class SeveralAttributes:
    """What ``**attrs`` is bound to: equal to another if both nodes state the same.

    A tensor equals itself alone.
    """

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
        self._values = {name: (each.kind, each.value) for name, each in attributes.items()}
        self._is_given = any(each.ref for each in attributes.values())

    def __eq__(self, other: object) -> bool:
        """Compare names and values.

        Raises:
            UnknownFactError: A function's caller gives some.
        """
        if not isinstance(other, SeveralAttributes):
            return False
        if self._is_given or other._is_given:
            raise UnknownFactError("a caller gives an attribute")
        return self._values == other._values

    __hash__ = None  # type: ignore[assignment]  # it is compared only

    def __len__(self) -> int:
        """Count them."""
        return len(self._values)


class ValueFacts:
    """A captured value as conditions see it."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        """Facts about *value* are computed when an expression asks for them."""
        self._value = value

    def __repr__(self) -> str:
        """Its name, for messages."""
        return self.name

    @property
    def subject(self) -> Value:
        """The value itself, for functions; expressions cannot ask for it."""
        return self._value

    @property
    def name(self) -> str:
        """The value's name."""
        return self._value.name

    @property
    def uses(self) -> int:
        """How often it is read; to be a graph output counts, too."""
        return self._value.use_count + len(self._value.returned_by)

    @property
    def is_const(self) -> bool:
        """Whether it is a constant."""
        return self._value.is_constant

    @property
    def attrs(self) -> AttributeFacts:
        """The attributes of the node that makes it."""
        return AttributeFacts(self._value.producer, self._value.name)

    @property
    def dtype(self) -> str:
        """The element type's name."""
        dtype = self._type.dtype
        if dtype is None:
            raise UnknownFactError(f"the element type of {self.name!r} is unknown")
        return dtype

    @property
    def shape(self) -> tuple[int | str | UnknownDim, ...]:
        """The dimensions: numbers, symbols, and those that are unknown."""
        shape = self._type.shape
        if shape is None:
            raise _unranked(self._value)
        if {*map(type, shape)} <= {int}:
            return shape  # type: ignore[return-value]  # all are numbers
        return tuple(
            [
                UnknownDim(self.name) if d is None else SymbolicDim(d) if isinstance(d, str) else d
                for d in shape
            ]
        )

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def value(self) -> Array | LazyArray:
        """The data of a constant."""
        tensor = self._value.constant
        if tensor is None:
            raise UnknownFactError(f"{self.name!r} is not a constant")
        allow_for(tensor.size)
        return data_of(tensor)

    @property
    def channels_and_rank(self) -> tuple[object, int]:
        """Extent of axis 1, and the rank; for a convolution read off its weight."""
        node = self._value.producer
        op_type = node.op_type if node is not None and node.domain == "" else ""
        weight = node.inputs[1] if node is not None and op_type in _CONVOLUTIONS else None
        if weight is not None and op_type != "ConvTranspose":
            shape = ValueFacts(weight).shape
            return shape[0], len(shape)
        group = None if node is None else parameter_of(node, "group")
        if weight is not None and group is not None and isinstance(group.value, int):
            shape = ValueFacts(weight).shape
            if isinstance(shape[1], int):
                return shape[1] * group.value, len(shape)
        shape = self.shape
        if len(shape) < _FIRST_SPATIAL_AXIS:
            raise UnknownFactError(f"{self.name!r} has no channel axis")
        return shape[1], len(shape)

    @property
    def _type(self) -> TensorType:
        stated = self._value.known_type()
        if stated is None:
            raise UnknownFactError(f"the type of {self.name!r} is unknown", self._value)
        return stated


def _unranked(value: Value) -> UnknownFactError:
    return UnknownFactError(f"the rank of {value.name!r} is unknown", value)


# What expressions may compute with arrays and lists: numpy's functions, within bounds.
#
# Each function takes numbers, lists or arrays (``w.value``), not captured names. It claims the size
# of its result before it computes a new one.


_NUMERIC_KINDS = "biufcV"
_COMPUTED_WIDE = 4
"""Floats of fewer bytes are computed in float32 and rounded once."""


P = ParamSpec("P")
Result = TypeVar("Result")


def _fails(
    words: str, kind: type[Exception] = ValueError
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Let a function say *words* where Python or numpy raises an error of a *kind*."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def computed(*args: P.args, **keywords: P.kwargs) -> Result:
            try:
                return function(*args, **keywords)
            except kind as error:
                if isinstance(error, ExpressionError):
                    raise
                raise ExpressionError(words) from error

        return computed

    return decorate


@_fails("a list holds lists of different lengths")
def _array(given: object) -> Array:
    """Turn a number or a list into an array."""
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, ValueFacts):
        raise ExpressionError(f"write {given.name}.value for the data of {given.name!r}")
    array = np.asarray(given)
    if array.dtype.kind not in _NUMERIC_KINDS:
        raise ExpressionError("expected numbers or an array")
    return array


def items_of(given: object) -> list[Any]:
    """List the items of a list or an array.

    Raises:
        TypeError: It is neither of them.
        ValueError: It is too long.
    """
    if isinstance(given, ValueFacts):
        raise ExpressionError(f"{given.name!r} is not a list; ask for its shape or value")
    if isinstance(given, LazyArray):
        given = given.whole()
    if not isinstance(given, (list, tuple, range, set, np.ndarray)):
        raise ExpressionError("expected a list")
    if len(given) > MOST_ITEMS:
        raise ExpressionError(f"a list of more than {MOST_ITEMS} items")
    return given.tolist() if isinstance(given, np.ndarray) and given.ndim == 1 else [*given]


@_fails("one number is expected, not several")
def _whole(number: object) -> int:
    """Turn a number, or an array of one element, into a whole number.

    Raises:
        ValueError: It has a fraction, or is no number at all.
    """
    if type(number) is int:
        claim(1)
        return number
    data = _array(number)
    claim(data.size)
    item = data.reshape(()).item()
    if item != item // 1:
        raise ExpressionError(f"{item} is not a whole number")
    return builtins.int(item)


@_fails("one number is expected, not several")
def _number(number: object) -> float:
    """Turn a number, or an array of one element, into a float."""
    return builtins.float(_array(number).reshape(()).item())


@_fails("a whole number is expected", TypeError)
def _dims(given: object) -> tuple[int, ...]:
    """Read dimensions, axes or a permutation: whole numbers."""
    if isinstance(given, (int, np.integer)):
        return (operator.index(given),)
    return tuple(operator.index(item) for item in items_of(given))


def _axes(given: object, rank: int) -> tuple[int, ...] | None:
    """Read axes of an array of a rank; None stays None."""
    axes = None if given is None else _dims(given)
    if axes is not None and not all(-rank <= axis < rank for axis in axes):
        raise ExpressionError("an axis is asked for that the array does not have")
    if axes is not None and len({axis % rank for axis in axes}) < len(axes):
        raise ExpressionError("an axis is named twice")
    return axes


def _pointwise(function: Callable[[Array], Array]) -> Callable[[object], Array | float]:
    """Apply *function* to floats, keeping their type; a plain number gives a number."""

    def apply(given: object) -> Array | float:
        data = _array(given)
        claim(data.size)
        kind = data.dtype
        wide = data.astype(np.float64) if kind.kind in "biu" else data
        if kind.kind != "c" and wide.dtype.itemsize < _COMPUTED_WIDE:
            wide = wide.astype(np.float32)
        result = function(wide)
        if not isinstance(given, (np.ndarray, np.generic)) and result.ndim == 0:
            return builtins.float(result)
        return np.asarray(result if kind.kind in "biu" else result.astype(kind))

    return apply


# -- arrays ------------------------------------------------------------------------------------


@_fails("the numbers do not fill the dimensions asked for")
def reshape(data: object, dims: object) -> Array | LazyArray:
    """Give an array other dimensions; one of them may be -1."""
    return _kept(data).reshape(_dims(dims))


def _kept(given: object) -> Array | LazyArray:
    return given if isinstance(given, LazyArray) else _array(given)


@_fails("the shapes of two arrays do not fit together")
def expand(data: object, dims: object) -> Array:
    """Repeat an array along dimensions of 1 until it has the dimensions *dims*."""
    wanted = _dims(dims)
    claim(math.prod(wanted))
    source = _array(data)
    if source.shape == wanted:
        return source.copy()
    if not source.ndim:
        return np.full(wanted, source, source.dtype)
    return np.broadcast_to(source, wanted).copy()


@_fails("the order does not name every axis")
def transpose(data: object, perm: object = None) -> Array:
    """Reorder the dimensions of an array; without *perm*, reverse them."""
    source = _array(data)
    claim(source.size)
    return np.transpose(source, _axes(perm, source.ndim)).copy()


@_fails("a dimension that is removed is not 1")
def squeeze(data: object, axes: object = None) -> Array:
    """Remove dimensions of 1: those listed, or all."""
    source = _array(data)
    return np.squeeze(source, _axes(axes, source.ndim))


def unsqueeze(data: object, axes: object) -> Array:
    """Insert dimensions of 1, which become *axes* of the result."""
    source, added = _array(data), _dims(axes)
    return np.expand_dims(source, _axes(added, source.ndim + len(added)) or ())


@_fails("the numbers do not fill the dimensions asked for")
def along(data: object, axis: object, rank: object) -> Array | LazyArray:
    """Put all elements along *axis* of an array of rank *rank*; its other dimensions are 1."""
    dims = [1] * _whole(rank)
    dims[_whole(axis)] = -1
    source = _kept(data)
    return source if source.ndim == 1 == len(dims) else source.reshape(dims)


@_fails("the arrays to join do not fit together")
def concat(parts: object, axis: object = 0) -> Array:
    """Join arrays along *axis*."""
    arrays = [_array(part) for part in items_of(parts)]
    claim(builtins.sum(part.size for part in arrays))
    return np.concatenate(arrays, operator.index(axis))  # type: ignore[arg-type]  # raises


def cast(data: object, dtype: object) -> Array | LazyArray:
    """Convert to another element type; floats are rounded, anything else must be exact.

    Raises:
        ValueError: There is no such type, or it cannot hold a number.
    """
    if not isinstance(dtype, str) or dtype not in DTYPE_CODES:
        raise ExpressionError(f"{dtype!r} is not an element type")
    source = _kept(data)
    claim(source.size)
    if isinstance(source, LazyArray):
        return source.mapped(lambda block: _cast(block, dtype))
    return _cast(source, dtype)


def _cast(source: Array, dtype: str) -> Array:
    result = source.astype(_numpy_type(dtype))
    if result.dtype.kind == "f" and result.dtype.itemsize >= _COMPUTED_WIDE:
        is_certain = source.dtype.kind in "biu" or source.dtype == np.float32
        if is_certain or (source.dtype.kind == "f" and np.isfinite(result).all()):
            return result
    if dtype.startswith(("float", "bfloat", "complex")):
        fits = np.array_equal(_finite(source, like=result), _finite(result, like=result))
    else:
        fits = np.array_equal(result, source)
    if not fits:
        raise ExpressionError(f"{dtype} cannot hold all numbers")
    return result


@cache
def _numpy_type(dtype: str) -> np.dtype[Any]:
    kind, exponent, rest = dtype.partition("e")  # numpy calls float8e4m3fn float8_e4m3fn
    is_small = kind in {"float8", "float6", "float4"}
    return np.dtype(f"{kind}_{exponent}{rest}" if is_small else dtype)


def double(data: object) -> Array | LazyArray:
    """Convert to float64, to compute with."""
    return cast(data, "float64")


def _finite(numbers: Array, like: Array) -> NDArray[np.bool_]:
    """Tell of each number whether it is neither infinite nor NaN; *like* says if it is complex."""
    return np.isfinite(numbers.astype(np.complex128 if like.dtype.kind == "c" else np.float64))


def is_finite(data: object) -> bool:
    """Tell whether no number is infinite or not a number."""
    source = _kept(data)
    claim(source.size)
    return _every(lambda block: _finite(block, like=block), source)


def _every(test: Callable[[Array], Array], data: Array | LazyArray) -> bool:
    """Tell whether *test* says yes of all elements."""
    if isinstance(data, LazyArray):
        return bool(data.mapped(test).reduced(np.ndarray.all))
    return bool(test(data).all())


def total(data: object, axes: object = None) -> object:
    """Add up a list, or an array: all of it, or along *axes*; of truth values, count the true."""
    if isinstance(data, LazyArray):
        data = data.whole()
    if not isinstance(data, np.ndarray):
        return builtins.sum(items_of(data))
    claim(data.size)
    dtype = np.int64 if data.dtype == np.bool_ else data.dtype
    return data.sum(axis=_axes(axes, data.ndim), dtype=dtype)


# -- numbers and lists -------------------------------------------------------------------------


def whole_numbers(*bounds: object) -> list[int]:
    """List whole numbers, as Python's ``range`` does.

    Raises:
        ValueError: They are too many.
    """
    return items_of(builtins.range(*map(_whole, bounds)))


@_fails("a number is infinite or not a number")
def rounded(number: object) -> object:
    """Round to the nearest whole number, ties to the even one."""
    if isinstance(number, np.ndarray | LazyArray):
        claim(number.size)
        return number.mapped(np.rint) if isinstance(number, LazyArray) else np.rint(number)
    return builtins.round(number)  # type: ignore[call-overload]  # what is no number raises


@_fails("values of different kinds are compared", TypeError)
def from_smallest(items: object) -> list[Any]:
    """List the items from the smallest to the largest."""
    return builtins.sorted(items_of(items))


@_fails("lists of different lengths are paired")
def pairs(*lists: object) -> list[tuple[Any, ...]]:
    """Pair the items of lists of equal length."""
    return builtins.list(zip(*map(items_of, lists), strict=True))


def fixed(items: object) -> tuple[Any, ...]:
    """Make a tuple of a list: shapes are tuples."""
    return tuple(items_of(items))


def is_number(thing: object) -> bool:
    """Tell whether a dimension is a number rather than a symbol or unknown."""
    return isinstance(thing, (int, float, np.number))


def is_perm(numbers: object) -> bool:
    """Tell whether a list holds 0, 1, … up to its length, each once."""
    items = items_of(numbers)
    return builtins.sorted(items) == builtins.list(builtins.range(len(items)))


def inverse(perm: object) -> list[int]:
    """Return the permutation that undoes *perm*.

    Raises:
        ValueError: It is none.
    """
    items = items_of(perm)
    if not is_perm(items):
        raise ExpressionError(f"{items} is not a permutation")
    return builtins.sorted(builtins.range(len(items)), key=items.__getitem__)


def _count(items: Any) -> int:  # noqa: ANN401  # of any kind
    """Count the items of a list."""
    if not hasattr(items, "__len__"):
        raise ExpressionError("a list is expected")
    return len(items)


def _or_reduced(
    python: Callable[..., object], reduce: Callable[[Array], object]
) -> Callable[..., object]:
    """Use *reduce* for a single array or truth value, and Python's function otherwise."""

    @_fails("values of different kinds are compared", TypeError)
    def choose(*given: object) -> object:
        if len(given) == 1 and isinstance(given[0], LazyArray):
            claim(given[0].size)
            return given[0].reduced(reduce)
        if len(given) == 1 and isinstance(given[0], (np.ndarray, np.generic, bool)):
            data = np.asarray(given[0])
            claim(data.size)
            return reduce(data)
        return python(*given)

    return choose


def joined(left: Iterable[object], right: Iterable[object]) -> object:
    """Return two lists as one: ``[0] + axes``."""
    items = [*items_of(left), *items_of(right)]
    if len(items) > MOST_ITEMS:
        raise ExpressionError(f"a list of more than {MOST_ITEMS} items")
    return items if isinstance(left, builtins.list) else tuple(items)


_AS_NAMED_HERE = (
    *(reshape, expand, transpose, squeeze, unsqueeze, along, concat, cast, double, widens),
    *(is_finite, is_number, is_perm, inverse),
)
ARRAY_FUNCTIONS: dict[str, Callable[..., object]] = {
    "sqrt": _pointwise(np.sqrt),
    "rsqrt": _pointwise(lambda data: np.asarray(1 / np.sqrt(data))),
    "exp": _pointwise(np.exp),
    "log": _pointwise(np.log),
    "min": _fails("there are no numbers to choose from")(_or_reduced(min, np.ndarray.min)),
    "max": _fails("there are no numbers to choose from")(_or_reduced(max, np.ndarray.max)),
    "all": _or_reduced(all, np.ndarray.all),
    "any": _or_reduced(any, np.ndarray.any),
    "sum": total,
    "range": whole_numbers,
    "round": rounded,
    "sorted": from_smallest,
    "zip": pairs,
    "list": items_of,
    "tuple": fixed,
    "int": _whole,
    "float": _number,
    **{function.__name__: function for function in _AS_NAMED_HERE},
}
"""The functions over arrays and lists, by the names that expressions use."""


# What conditions may ask of matrix products and the nodes around them.
#
# A product is the output of a node that multiplies matrices: one of RIGHT. Its depth is the
# extent that is summed over, its columns are the last extent of the result. Both come from the
# operands as the node reads them, so no rule needs to know how a weight is laid out.
#
# Extents are compared as `dims` gives them: an unknown one equals only itself.


RIGHT = {
    **{("", op_type): slot for op_type, slot in MATRIX_SLOT.items()},
    ("com.microsoft", "MatMulNBits"): 1,
}
"""The nodes that multiply matrices, and the input that is the matrix on the right."""

_MATRIX = 2
_PACKED = "MatMulNBits"
"""The node that states depth and columns as attributes, since its weight is packed bits."""


class _Operands(NamedTuple):
    """The operands of a product, the right one as the product reads it: (…, depth, columns)."""

    left: Dims
    right: Dims


def depth(product: ValueFacts) -> int:
    """Return the extent that *product* sums over.

    Raises:
        UnknownFactError: It is not a number.
    """
    left, right = _operands(product)
    extent = next((n for n in (left[-1], right[-2]) if isinstance(n, int)), None)
    if extent is None:
        node = _multiplier(product)
        stated = None if node.inputs[0] is None else node.inputs[0].known_type()
        is_turned = node.op_type == "Gemm" and _whole_attribute(node, "transA")
        symbol = stated.shape[-2 if is_turned else -1] if stated and stated.shape else None
        way = f", since the file leaves {symbol!r} open" if isinstance(symbol, str) else ""
        raise UnknownFactError(f"the depth of the product {product.name!r} is not a number{way}")
    return extent


def has_depth(product: ValueFacts) -> bool:
    """Tell whether *product* sums over something, unless it has no elements.

    Raises:
        UnknownFactError: The sizes that are known prove neither.
    """
    left, right = _operands(product)
    is_at_least = product.subject.graph.model.memory(Knowledge).algebra.is_at_least
    sizes = (1, *left[:-1], *right[:-_MATRIX], right[-1])
    ends = (left[-1], right[-_MATRIX])
    return any(is_at_least(end, size) for end in ends for size in sizes) or depth(product) > 0


def columns(product: ValueFacts) -> int:
    """Return the number of columns of *product*.

    Raises:
        UnknownFactError: It is not a number.
    """
    extent = _operands(product).right[-1]
    if not isinstance(extent, int):
        raise UnknownFactError(f"the number of columns of {product.name!r} is not known")
    return extent


def batches_agree(product: ValueFacts) -> bool:
    """Tell whether both operands have the same leading extents, so that none is broadcast."""
    a, b = (side[:-_MATRIX] for side in _operands(product))
    longest = max(len(a), len(b))
    return (1,) * (longest - len(a)) + a == (1,) * (longest - len(b)) + b


def left_is_matrix(product: ValueFacts) -> bool:
    """Tell whether the left operand of *product* is a single matrix."""
    return _is_one(_operands(product).left[:-_MATRIX])


def right_is_matrix(product: ValueFacts) -> bool:
    """Tell whether the right operand of *product* is a single matrix."""
    return _is_one(_operands(product).right[:-_MATRIX])


def per_column(vector: ValueFacts, product: ValueFacts) -> bool:
    """Tell whether *vector* has one number per column of *product*, and no other extent.

    ``(N,)`` and ``(1, N)`` have. A column or a matrix has not, nor has a vector of more dimensions
    than the product: adding it would widen the product.
    """
    left, right = _operands(product)
    shape = shape_of(vector.subject)
    if shape is None:
        raise _unranked(vector.subject)
    if not 1 <= len(shape) <= max(len(left), len(right)):
        return False
    return _is_one(shape[:-1]) and shape[-1] == right[-1]


def scales_columns(scale: ValueFacts, product: ValueFacts) -> bool:
    """Tell whether the weight of *product* has a scale per column, or per block of a column.

    The weight is the right operand: made by DequantizeLinear, perhaps with a Transpose behind it.
    MatMulNBits has no other scales.
    """
    node = _multiplier(product)
    if node.op_type == _PACKED:
        return True
    weight, is_turned = node.inputs[RIGHT[node.domain, node.op_type]], _turns_right(node)
    source = None if weight is None else behind_identities(weight).producer
    if source is not None and source.op_type == "Transpose" and source.inputs[0] is not None:
        source, is_turned = behind_identities(source.inputs[0]).producer, not is_turned
    if source is None or (source.domain, source.op_type) != ("", "DequantizeLinear"):
        raise ExpressionError(f"the weight of {product.name!r} is not made by a DequantizeLinear")
    quantised = None if source.inputs[0] is None else shape_of(source.inputs[0])
    scales = shape_of(scale.subject)
    if quantised is None or scales is None:
        raise UnknownFactError(f"the shapes of {scale.name!r} and the weight are not known")
    if len(quantised) != _MATRIX or len(scales) not in {1, _MATRIX}:
        return False
    axis_of_columns = 0 if is_turned else 1
    if scales[axis_of_columns if len(scales) == _MATRIX else 0] != quantised[axis_of_columns]:
        return False
    return (_whole_attribute(source, "axis") % _MATRIX == axis_of_columns) is (len(scales) == 1)


def symmetric(result: ValueFacts) -> bool:
    """Tell whether every zero point of the node that makes *result* is absent or constant zeros.

    Raises:
        UnknownFactError: One is computed.
    """
    node = result.subject.producer
    slots = () if node is None or node.domain else ZERO_POINT_SLOTS.get(node.op_type, ())
    if node is None or not slots:
        raise ExpressionError(f"{result.name!r} is not made by an operator with zero points")
    for slot in slots:
        zero_point = node.inputs[slot] if slot < len(node.inputs) else None
        if zero_point is None:
            continue
        if not _every(np.logical_not, ValueFacts(zero_point).value):
            return False
    return True


def transposes_last_two(result: ValueFacts) -> bool:
    """Tell whether the Transpose that makes *result* swaps the last two axes and no others."""
    node = result.subject.producer
    if node is None or (node.domain, node.op_type) != ("", "Transpose"):
        raise ExpressionError(f"{result.name!r} is not made by a Transpose")
    perm = parameter_of(node, "perm")
    if perm is None or perm.ref or not isinstance(perm.value, tuple):
        raise UnknownFactError(f"the order of the axes of {result.name!r} is not known")
    rest = tuple(range(len(perm.value) - _MATRIX))
    return perm.value == (*rest, len(rest) + 1, len(rest))


def only_output(result: ValueFacts) -> bool:
    """Tell whether nothing reads another output of the node that makes *result*."""
    node = result.subject.producer
    others = [] if node is None else [item for item in node.outputs if item is not result.subject]
    return not any(item is not None and (item.use_count or item.returned_by) for item in others)


def depends_on(value: ValueFacts, source: ValueFacts) -> bool:
    """Tell whether *value* is *source*, or computed from it through any number of nodes."""
    end = source.subject
    first = 0 if end.producer is None else end.producer.position
    pending = [value.subject]
    seen: set[Node] = set()
    while pending:
        current = pending.pop()
        if current is end:
            return True
        node = current.producer
        if node is None or node in seen or node.graph is not end.graph or node.position < first:
            continue
        seen.add(node)
        pending += [*(item for item in node.inputs if item is not None), *captured_values(node)]
    return False


def _operands(product: ValueFacts) -> _Operands:
    """Read the extents of both operands.

    Raises:
        TypeError: No node that multiplies makes it.
        UnknownFactError: The rank of one is unknown, or it is a vector.
    """
    node = _multiplier(product)
    inputs = inputs_of(node)
    left = _matrices(product, inputs[0])
    if node.op_type == _PACKED:
        return _Operands(left, (_whole_attribute(node, "K"), _whole_attribute(node, "N")))
    right = _matrices(product, inputs[RIGHT[node.domain, node.op_type]])
    if node.op_type == "Gemm" and _whole_attribute(node, "transA"):
        left = _swapped(left)
    return _Operands(left, _swapped(right) if _turns_right(node) else right)


def _multiplier(product: ValueFacts) -> Node:
    node = product.subject.producer
    if node is None or (node.domain, node.op_type) not in RIGHT:
        raise ExpressionError(f"{product.name!r} is not a product of matrices")
    return node


def _turns_right(node: Node) -> bool:
    return node.op_type == "Gemm" and bool(_whole_attribute(node, "transB"))


def _matrices(product: ValueFacts, operand: Value | None) -> Dims:
    shape = None if operand is None else shape_of(behind_identities(operand))
    if shape is None:
        raise UnknownFactError(f"the rank of an operand of {product.name!r} is unknown", operand)
    if len(shape) < _MATRIX:
        raise UnknownFactError(f"an operand of {product.name!r} is a vector")
    return shape


def _swapped(shape: Dims) -> Dims:
    return (*shape[:-_MATRIX], shape[-1], shape[-2])


def _is_one(extents: tuple[Number, ...]) -> bool:
    return all(extent == 1 for extent in extents)


def _whole_attribute(node: Node, name: str) -> int:
    attribute = parameter_of(node, name)
    if attribute is None or not isinstance(attribute.value, int):
        raise UnknownFactError(f"the attribute {name!r} of {node.label!r} is not known")
    return attribute.value


# What conditions may ask of the parameters of a quantisation.


def per_tensor(parameter: ValueFacts) -> bool:
    """Tell whether a scale or zero point is one number for all: a scalar, or a vector of one."""
    return parameter.shape in {(), (1,)}


# Whether broadcasting has widened a value, proved from the nodes.
#
# A rule may replace several elementwise operators by one. Then no other operand, a constant of rank
# 5 say, may make the result larger than the input. Shape inference cannot always tell: it may not
# know the input's shape, and a symbol in a shape is only a claim of the file. So the proof goes
# through the nodes: what is computed from *x* element by element, with operands that fit into *x*,
# has the shape of *x*, whatever that is.


_MOST_NODES = 64


class _Extent(IntEnum):
    """How the shape of a value compares with that of the source."""

    UNKNOWN = 0
    FITS = 1
    WHOLE = 2


def shaped_like(result: ValueFacts, source: ValueFacts) -> bool:
    """Tell whether *result*, which is computed from *source*, has its shape.

    Raises:
        UnknownFactError: Nothing proves it.
    """
    if _Proof(source.subject).extent_of(result.subject) is _Extent.WHOLE:
        return True
    raise UnknownFactError(f"{result.name!r} may have another shape than {source.name!r}")


class _Proof:
    """Compares shapes with that of one value.

    Args:
        source: The value.
    """

    def __init__(self, source: Value) -> None:
        self.source = behind_identities(source)
        self.knowledge = source.graph.model.memory(Knowledge)
        self.shape = self.knowledge.shape(source)

    def extent_of(self, result: Value) -> _Extent:
        """Compare *result*, in topological order of what it is computed from."""
        extents: dict[Value, _Extent] = {self.source: _Extent.WHOLE}
        pending = [result]
        while pending:
            value = pending[-1]
            node = None if value in extents else value.producer
            missing = (
                []
                if node is None
                else [v for v in node.inputs if v is not None and v not in extents]
            )
            if missing and len(extents) + len(pending) < _MOST_NODES:
                pending += missing
                continue
            if value not in extents:
                extents[value] = max(self._by_type(value), self._by_node(value, extents))
            pending.pop()
        return extents[result]

    def _by_type(self, value: Value) -> _Extent:
        """Compare dimensions; only numbers prove something, since symbols are claims."""
        shape = self.knowledge.shape(value)
        if shape is None:
            return _Extent.UNKNOWN
        if not shape:
            return _Extent.FITS
        if self.shape is None or len(shape) > len(self.shape):
            return _Extent.UNKNOWN
        pairs = zip(reversed(shape), reversed(self.shape), strict=False)
        if not all(dim == 1 or (isinstance(dim, int) and dim == other) for dim, other in pairs):
            return _Extent.UNKNOWN
        is_whole = shape == self.shape and all(isinstance(dim, int) for dim in shape)
        return _Extent.WHOLE if is_whole else _Extent.FITS

    def _by_node(self, value: Value, extents: dict[Value, _Extent]) -> _Extent:
        """Conclude from the inputs of the value's node."""
        node = value.producer
        if node is None or node.domain or value.index:
            return _Extent.UNKNOWN
        read = [extents.get(v, _Extent.UNKNOWN) for v in node.inputs if v is not None]
        if not read:
            return _Extent.UNKNOWN
        if node.op_type in KEEPS_SHAPE:
            return read[0]
        if node.op_type in BROADCASTING | {"SwiGLU"}:
            return max(read) if min(read) is not _Extent.UNKNOWN else _Extent.UNKNOWN
        if node.op_type in OP_KINDS["reduction"]:
            keepdims = attribute_of(node, "keepdims")
            if keepdims is not None and not keepdims.ref and keepdims.value == 1:
                return min(read[0], _Extent.FITS)
        return _Extent.UNKNOWN


# What expressions may ask of sizes that shape inference does not know.


def dims(value: ValueFacts) -> Dims:
    """Return the dimensions of a captured value, also where the model computes them.

    A dimension is a number or a polynomial over the dimensions of inputs. All that can be asked of
    two is ``==``: whether they are provably equal.

    Raises:
        UnknownFactError: Not even the rank is known.
    """
    shape = shape_of(value.subject)
    if shape is None:
        raise _unranked(value.subject)
    return shape


def _are_equal_dims(first: ValueFacts, second: ValueFacts) -> bool:
    """Tell what ``dims(first) == dims(second)`` does; where types have other ranks, soon."""
    types = (first.subject.known_type(), second.subject.known_type())
    ranks = {len(each.shape) for each in types if each is not None and each.shape is not None}
    return len(ranks) < 2 and dims(first) == dims(second)  # noqa: PLR2004  # they differ


def is_static(value: ValueFacts) -> bool:
    """Tell whether every dimension of *value* is a number.

    A number that the file states counts, as in ``x.shape``, though the dimension follows from one
    of an input for which the file has a symbol.

    Raises:
        UnknownFactError: Not even the rank is known.
    """
    stated = value.subject.known_type()
    return is_exact(stated) or all(isinstance(extent, int) for extent in dims(value))


def keeps_order(result: ValueFacts) -> bool:
    """Tell whether a Transpose, or what reshapes, leaves the elements in the order they were in.

    A Transpose does if it moves dimensions of 1 only.
    """
    node = result.subject.producer
    if node is None or node.domain or node.op_type not in RESHAPING | {"Transpose"}:
        raise ExpressionError(f"{result.name!r} is made by nothing that reshapes or transposes")
    if node.op_type in RESHAPING or node.inputs[0] is None:
        return True
    perm, shape = parameter_of(node, "perm"), shape_of(node.inputs[0])
    if perm is None or perm.ref or not isinstance(perm.value, tuple) or shape is None:
        raise UnknownFactError(f"what {result.name!r} is transposed from is not known")
    kept = [axis for axis in perm.value if isinstance(axis, int) and shape[axis] != 1]
    return kept == sorted(kept)


def reshape_target(source: ValueFacts, result: ValueFacts) -> list[int]:
    """Return the numbers by which a Reshape gives *source* the shape of *result*.

    0 stands for a dimension that stays, also where a number would do: onnxruntime's Attention wants
    a target like ``[0, 0, 12, 64]``. At most one dimension is -1. onnxruntime refuses -1 beside a
    size of 0 (ReshapeHelper in its reshape_helper.h), and an empty batch that ran before would
    fail. So -1 stands only where no other dimension can be 0 when the model runs, or where the
    Reshape that makes *result* has -1 itself. It also must not hide a known size, which the
    patterns of a target ask for.

    Raises:
        UnknownFactError: The rank is not known, or numbers cannot say it.
    """
    before, after = shape_of(source.subject), dims(result)
    numbers: list[int] = []
    for axis, dim in enumerate(after):
        is_kept = before is not None and axis < len(before) and before[axis] == dim
        numbers.append(0 if is_kept else dim if isinstance(dim, int) else -1)
    if numbers.count(-1) > 1 or any(isinstance(dim, int) and dim <= 0 for dim in after):
        raise UnknownFactError(f"numbers cannot say the shape of {result.name!r}")
    if -1 in numbers and not _may_be_left(result.subject, numbers.index(-1), after):
        raise UnknownFactError(
            f"the shape of {result.name!r} takes a -1, beside a size that may be 0"
        )
    if -1 in numbers and not _follows(result.subject, numbers, before, after):
        raise UnknownFactError(f"the shape of {result.name!r} takes a -1, which hides a size")
    return numbers


def _follows(result: Value, target: list[int], before: Dims | None, after: Dims) -> bool:
    """Tell whether the dimension of -1 follows from *target*, as far as it is known."""
    algebra, axis = result.graph.model.memory(Knowledge).algebra, target.index(-1)
    wanted = after[axis]
    if reshaped(algebra, before, tuple(target), copies=True)[axis] == wanted:
        return True
    return isinstance(wanted, Term) and algebra.meaning(wanted) == ("dim", result, axis)


def _may_be_left(result: Value, axis: int, shape: Dims) -> bool:
    """Tell whether -1 says the dimension at *axis* whenever what makes *result* runs."""
    if all(isinstance(dim, int) for other, dim in enumerate(shape) if other != axis):
        return True
    node = result.producer
    if node is None or node.domain or node.op_type != "Reshape" or node.inputs[1] is None:
        return False
    target = result.graph.model.memory(Knowledge).content(node.inputs[1])
    return target is not None and axis < len(target) and target[axis] == -1


# The functions that expressions over captured names may call.


LARGEST_NUMBER = 2**64
"""Larger numbers are no dimensions, and computing with them takes long."""

_LAST_BIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def same_shape(first: ValueFacts, second: ValueFacts) -> bool:
    """Tell whether both shapes are known and equal dimension for dimension."""
    return first.shape == second.shape


def broadcasts_to(small: ValueFacts, large: ValueFacts) -> bool:
    """Tell whether *small* broadcasts to the shape of *large* without changing it."""
    a, b = small.shape, large.shape
    if len(a) > len(b):
        return False
    return all(x in (1, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def per_channel(bias: ValueFacts, output: ValueFacts) -> bool:
    """Tell whether *bias* has one number per channel (axis 1) of *output* and no other extent.

    ``(C, 1, 1)`` and ``(1, C, 1, 1)`` are, for an output of rank 4; ``(C,)`` is not: it runs
    along the last axis.
    """
    channels, rank = output.channels_and_rank
    shape = bias.shape
    axis = 1 - (rank - len(shape))
    if len(shape) > rank:
        return False
    wanted: list[object] = [1] * len(shape)
    if axis >= 0:
        wanted[axis] = channels
    elif channels != 1:
        return False
    return list(shape) == wanted


def is_close(constant: ValueFacts, number: float, rtol: float = 1e-3) -> bool:
    """Tell whether every element of a constant is within *rtol* of *number*.

    Half precision cannot hold a number so exactly, so an error of its last bit is accepted.
    """
    rtol = max(rtol, _LAST_BIT.get(constant.dtype, 0.0))
    return _every(
        lambda block: np.isclose(block.astype(np.float64), number, rtol, atol=1e-12),
        constant.value,
    )


def _product(numbers: object) -> float:
    """Multiply numbers of ordinary size, such as dimensions."""
    product: float = 1
    for number in numbers if type(numbers) is tuple else items_of(numbers):
        product = product * number
        if abs(product) > LARGEST_NUMBER:
            raise ExpressionError("a product is too large")
    return product


def _of_values(
    functions: Iterable[Callable[..., object]], names: str
) -> dict[str, Callable[..., object]]:
    """Let functions say which captured values they take, if they are given something else."""
    return {
        each.__name__: _fails(
            f"{each.__name__} takes {names} of the pattern first", AttributeError
        )(each)
        for each in functions
    }


_OF_ONE_VALUE = (
    *(dims, is_close, per_tensor, is_static, depth, has_depth, columns, batches_agree),
    *(left_is_matrix, right_is_matrix, symmetric, transposes_last_two, only_output, keeps_order),
)
_OF_TWO_VALUES = (
    *(same_shape, broadcasts_to, per_channel, shaped_like, per_column, scales_columns, depends_on),
    reshape_target,
)
FUNCTIONS: dict[str, Callable[..., object]] = {
    **ARRAY_FUNCTIONS,
    "len": _count,
    "abs": abs,
    "prod": _product,
    **_of_values(_OF_ONE_VALUE, "a name"),
    **_of_values(_OF_TWO_VALUES, "2 names"),
}
"""Every function an expression may call, but for :data:`VALUE_OR`."""

VALUE_OR = "value_or"
"""The function that evaluates its second argument only if there is no first one."""

FUNCTION_NAMES = (*FUNCTIONS, VALUE_OR)

_VALUES_FIRST = {
    **{function.__name__: 1 for function in _OF_ONE_VALUE},
    **{function.__name__: 2 for function in _OF_TWO_VALUES},
}
"""How many arguments of a function are captured values, from the first on."""

_PROVED = frozenset({"dims", "same_shape", "broadcasts_to"})
"""The functions that compare sizes, which may be equal though nothing proves it."""

SHAPE_FUNCTIONS = frozenset({"dims", "is_static", "keeps_order", "reshape_target"})
"""The functions that ask what the nodes above a value say of sizes."""


# Expressions over the captured names: parsed, checked against the language, and only then compiled.


_ARRAYS = (np.ndarray, LazyArray)
_LARGEST_EXPONENT = 64
_FACTS = ("dtype", "shape", "rank", "name", "is_const", "value", "uses", "attrs")
_MOST_TEXTS = 4096
_ALLOWED = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Slice, ast.BoolOp),
    *(ast.UnaryOp, ast.BinOp, ast.Compare, ast.List, ast.Tuple, ast.Set, ast.IfExp),
    *(ast.ListComp, ast.GeneratorExp, ast.Starred),
)


def _numeric(operation: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    """Let *operation* work on numbers of ordinary size and arrays only."""
    apply = _compared(operation)

    def checked(left: object, right: object) -> object:
        for operand in (left, right):
            if type(operand) in {np.ndarray, LazyArray}:
                continue
            if isinstance(operand, (str, bytes, list, tuple)):
                raise ExpressionError("arithmetic is for numbers")
            if isinstance(operand, int) and abs(operand) > LARGEST_NUMBER:
                raise ExpressionError("a number is too large")
        return apply(left, right)

    return checked


def _compared(operation: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    """Let *operation* work on anything, arrays only if the result is not too large.

    A list equals a tuple: shapes and attributes are tuples, which nobody has to know.
    """

    def checked(left: object, right: object) -> object:
        if type(left) is list:
            left = tuple(left)
        if type(right) is list:
            right = tuple(right)
        if isinstance(left, _ARRAYS) or isinstance(right, _ARRAYS):
            a, b = _dims_of(left), _dims_of(right)
            claim(math.prod(a if a == b or not b else np.broadcast_shapes(a, b)))
            if LazyArray in {type(left), type(right)}:
                return combined(operation, left, right)
        return operation(left, right)

    return _fails("the shapes of two arrays do not fit together")(checked)


_are_unequal = _compared(operator.ne)


def _differs(left: object, right: object) -> object:
    if type(left) is type(right) is str:
        return left != right  # names, which are most of what is compared like that
    differs = _are_unequal(left, right)
    if differs is True and _may_be_equal(left, right):
        raise UnknownFactError(f"{left!r} and {right!r} may be equal")
    return differs


def _lacks(item: object, items: Collection[object]) -> bool:
    if item in items:
        return False
    return isinstance(items, str) or all(_differs(item, other) for other in items)


@_fails("a list holds lists of different lengths")
def _dims_of(operand: object) -> tuple[int, ...]:
    if isinstance(operand, (list, tuple)):
        operand = np.asarray(operand)
    return operand.shape if isinstance(operand, _ARRAYS) else ()


def _added(left: Any, right: Any) -> object:  # noqa: ANN401  # numbers, arrays, lists
    """Add numbers or arrays, or join two lists."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return joined(left, right)
    return _plus(left, right)


def _power(base: Any, exponent: Any) -> object:  # noqa: ANN401  # a number or an array
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ExpressionError(f"an exponent is larger than {_LARGEST_EXPONENT}")
    return base**exponent


_plus = _numeric(operator.add)
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], object]] = {
    ast.Add: _added,
    **{
        kind: _numeric(operation)
        for kind, operation in (
            (ast.Sub, operator.sub),
            (ast.Mult, operator.mul),
            (ast.Div, operator.truediv),
            (ast.FloorDiv, operator.floordiv),
            (ast.Mod, operator.mod),
            (ast.Pow, _power),
            (ast.BitAnd, operator.and_),
            (ast.BitOr, operator.or_),
            (ast.BitXor, operator.xor),
        )
    },
    **{
        kind: _fails("values of different kinds are compared", TypeError)(_compared(operation))
        for kind, operation in (
            (ast.Eq, operator.eq),
            (ast.Lt, operator.lt),
            (ast.LtE, operator.le),
            (ast.Gt, operator.gt),
            (ast.GtE, operator.ge),
        )
    },
    ast.NotEq: _differs,
    ast.In: lambda item, items: item in items,
    ast.NotIn: _lacks,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
"""What computes within bounds, by the operator that it is written as."""
_AS_IN_PYTHON = (ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, ast.Invert)


UNANSWERABLE = (
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    LookupError,
    MemoryError,
    NameError,
    RecursionError,
)


_BY_KIND: tuple[tuple[type[Exception], str], ...] = (
    (ZeroDivisionError, "it divides by zero"),
    (OverflowError, "a number is too large"),
    (LookupError, "an item is asked for that there is not"),
    (AttributeError, "a fact is asked for that there is not"),
    (MemoryError, "it needs too much memory"),
    (RecursionError, "it is nested too deeply"),
    (NameError, "a variable is read before it has a value"),
    (TypeError, "it computes with something that is no number, or that is no list"),
    (ValueError, "an array is not true or false: write all(…) or any(…)"),
)
"""What Python itself may find wrong; functions and operators say what they do not take."""


def in_plain_words(error: Exception) -> str:
    """Say why an expression cannot be evaluated, without the words of libraries."""
    if isinstance(error, ExpressionError):
        return " ".join(str(error).split())
    return next((said for kind, said in _BY_KIND if isinstance(error, kind)), "it has no answer")


NO_CAPTURES: Mapping[str, str] = MappingProxyType({})


class _Parts(NamedTuple):
    """What an expression is made of; equal texts share it.

    Attributes:
        tree: The expression.
        nodes: All nodes of that.
        local: The variables of comprehensions.
        names: Where names stand, but for those of functions.
        used: The captured names.
        needed: Those of them that must have taken part in a match.
        computes: Whether it computes with arrays, so that numpy may have something to say.
    """

    tree: ast.expr
    nodes: list[ast.AST]
    local: set[str]
    names: list[ast.Name]
    used: frozenset[str]
    needed: frozenset[str]
    computes: bool


class _Spelling(ast.NodeTransformer):
    """Writes out what captured names stand for: ``p`` is ``p.attrs.perm``."""

    def __init__(self, captures: Mapping[str, str]) -> None:
        self.captures = captures

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Write out one name."""
        attribute = self.captures.get(node.id)
        if attribute is None:
            return node
        attributes = ast.copy_location(ast.Attribute(node, "attrs", ast.Load()), node)
        return ast.copy_location(ast.Attribute(attributes, attribute, ast.Load()), node)


@lru_cache(maxsize=_MOST_TEXTS)
def _parsed(text: str, captures: tuple[tuple[str, str], ...]) -> _Parts:
    """Parse an expression, and check it: the rules of one catalogue have many in common.

    Raises:
        PatternSyntaxError: It is none, or is not in the language.
    """
    try:
        tree = parse_expression(text, "it")
    except PatternSyntaxError as error:
        what = f"is not an expression: {error.message}"
        raise PatternSyntaxError(what, line=error.line, column=error.column) from error
    return _checked(tree, captures)


def _checked(tree: ast.expr, captures: tuple[tuple[str, str], ...]) -> _Parts:
    """Take an expression apart.

    Raises:
        PatternSyntaxError: It is not in the language.
    """
    if captures:
        local = _local_names(list(ast.walk(tree)))
        tree = _Spelling({name: its for name, its in captures if name not in local}).visit(tree)
    nodes = list(ast.walk(tree))
    for node in nodes:
        _check_form(node, dict(captures))
    local, names = _local_names(nodes), names_in(nodes)
    free = _free_names(tree) if local else set()
    for name in names:
        if name.id in local and name.id in free:
            raise wrong(name, f"uses {name.id!r} as a variable, too", "call one of them otherwise")
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    in_calls = (arg for call in calls if ast.unparse(call.func) == VALUE_OR for arg in call.args)
    optional = {id(node) for arg in in_calls for node in names_in(list(ast.walk(arg)))}
    return _Parts(
        tree,
        nodes,
        local,
        names,
        used=frozenset({node.id for node in names} - local),
        needed=frozenset({node.id for node in names if id(node) not in optional} - local),
        computes=any(isinstance(node, (ast.BinOp, ast.UnaryOp)) for node in nodes)
        or any(call.func.id in _COMPUTING for call in calls),  # type: ignore[attr-defined]  # names alone pass the check
    )


def _check_form(node: ast.AST, captures: Mapping[str, str]) -> None:
    """Refuse what is not in the language, so that it is never evaluated."""
    if isinstance(node, ast.expr) and not isinstance(node, _ALLOWED):
        raise wrong(node, f"{ast.unparse(node)!r} is not allowed")
    signs = node.ops if isinstance(node, ast.Compare) else [getattr(node, "op", None)]
    known = (*_OPERATORS, *_AS_IN_PYTHON)
    if any(sign is not None and not isinstance(sign, known) for sign in signs):
        raise wrong(node, f"{ast.unparse(node)!r} is not allowed")  # type: ignore[arg-type]  # it has an operator
    if isinstance(node, ast.Call):
        _check_call(node, captures)
    if isinstance(node, ast.comprehension):
        odd = [part for part in ast.walk(node.target) if not isinstance(part, _IN_TARGETS)]
        if odd:
            raise wrong(node.target, f"{ast.unparse(node.target)!r} is no variable")
    if isinstance(node, ast.Attribute):
        of_attributes = _is_attrs(node.value) and not _is_attrs(node.value.value)
        if node.attr.startswith("_") or not (of_attributes or node.attr in _FACTS):
            hint = did_you_mean(node.attr, _FACTS)
            if hint is None and isinstance(node.value, ast.Name):
                hint = f"an attribute of its node is {node.value.id}.attrs.{node.attr}"
            raise wrong(node, f"asks for {node.attr!r}, which does not exist", hint)


def _check_call(node: ast.Call, captures: Mapping[str, str]) -> None:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise wrong(node, "only the listed functions may be called")
    if any(isinstance(arg, ast.Starred) for arg in node.args):
        raise wrong(node, "has *items outside a list", "write [*a, *b]")
    name = node.func.id
    if name not in FUNCTION_NAMES:
        what = f"uses the function {name!r}, which does not exist"
        raise wrong(node, what, did_you_mean(name, FUNCTION_NAMES))
    count = _VALUES_FIRST.get(name, 0)
    if len(node.args) < count:
        raise wrong(node, f"gives {name} too few names of values: it takes {count}")
    if name != VALUE_OR and not _takes(FUNCTIONS[name], len(node.args)):
        raise wrong(node, f"gives {name} too few or too many arguments")
    for arg in node.args[:count]:
        if not isinstance(arg, (ast.Name, ast.Subscript, ast.IfExp)) or _asked_of(arg):
            raise _no_value(node, name, arg, captures)


@cache
def _takes(function: Callable[..., object], count: int) -> bool:
    try:
        signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


def _asked_of(arg: ast.expr) -> bool:
    """Tell whether *arg* is an item of a fact: ``x.shape[0]``."""
    return isinstance(arg, ast.Subscript) and isinstance(arg.value, ast.Attribute)


def _no_value(
    node: ast.Call, name: str, arg: ast.expr, captures: Mapping[str, str]
) -> PatternSyntaxError:
    """Make the error for what is given to a function in place of a name of the pattern."""
    said, other, hint = ast.unparse(arg), "", None
    match arg:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id=owner), attr="attrs"), attr=its):
            said = owner if captures.get(owner) == its else said
            other = ", which is an attribute,"
            if name == is_close.__name__ and len(node.args) > 1:
                hint = f"write abs({said} - {ast.unparse(node.args[1])}) < 1e-6"
        case (
            ast.Attribute(value=ast.Name(id=owner))
            | ast.Subscript(value=ast.Attribute(value=ast.Name(id=owner)))
        ):
            hint = f"write {name}({owner}, …)" if len(node.args) > 1 else f"write {name}({owner})"
        case _:
            pass
    return wrong(arg, f"gives {said}{other} to {name}, which takes a name of a value first", hint)


_IN_TARGETS = (ast.Name, ast.Tuple, ast.List, ast.expr_context)


def _is_attrs(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == "attrs"


class _Compiler(ast.NodeTransformer):
    """Rewrites a checked expression as code that computes within bounds.

    What the code can reach is what stands here: the facts of captured values, the listed
    functions, and operators that are calls of :data:`_OPERATORS`. It names no built-in function.

    Args:
        needed: The captured names that are bound whenever the code runs; others may be None.
        local: The variables of comprehensions.
    """

    def __init__(self, needed: AbstractSet[str], local: AbstractSet[str]) -> None:
        self.needed = needed
        self.local = local

    def compiled(self, tree: ast.expr) -> Code:
        """Return a function of the facts."""
        expression = ast.Expression(_function(self.visit(tree), [ast.arg("facts")]))
        with warnings.catch_warnings(action="ignore"):  # Python's advice is not for the reader
            code = compile(ast.fix_missing_locations(expression), "<expression>", "eval")
        function: Code = eval(code, _REACHABLE)  # noqa: S307  # a lambda of checked parts alone
        return function

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Make a copy with parts made anew: the checked tree stays as it is."""
        parts = {}
        for name, part in ast.iter_fields(node):
            if isinstance(part, list):
                parts[name] = [self.visit(item) for item in part]
            else:
                parts[name] = self.visit(part) if isinstance(part, ast.AST) else part
        return type(node)(**parts)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Read a captured value; variables get names that no function has."""
        if node.id in self.local:
            name = ast.Name(f"v_{node.id}", node.ctx)
            return name if isinstance(node.ctx, ast.Store) else _call_of("_light", name)
        if node.id in self.needed:
            return ast.Subscript(_FACTS_GIVEN, ast.Constant(node.id), ast.Load())
        return _call_of("_present", _FACTS_GIVEN, ast.Constant(node.id))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Call a listed function; what ``value_or`` may not need is left to it."""
        args = [self.visit(arg) for arg in node.args]
        if not isinstance(node.func, ast.Name) or node.func.id != VALUE_OR:
            return ast.Call(node.func, args, [])
        match node.args:
            case [
                ast.Name(id=first)
                | ast.Attribute(value=ast.Attribute(value=ast.Name(id=first), attr="attrs")),
                _,
            ] if first not in self.local:
                parts = [_function(arg, []) for arg in args]
                return _call_of("_either", _FACTS_GIVEN, ast.Constant(first), *parts)
            case _:
                return _call_of("_misused")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Call what computes within bounds."""
        return _call_of(type(node.op).__name__, self.visit(node.left), self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Call what compares within bounds; in a chain each operand is evaluated once."""
        match node:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="dims"), args=[first]),
                ops=[ast.Eq()],
                comparators=[ast.Call(func=ast.Name(id="dims"), args=[second])],
            ):
                return _call_of(_are_equal_dims.__name__, self.visit(first), self.visit(second))
            case _:
                pass
        left, *others = [self.visit(operand) for operand in (node.left, *node.comparators)]
        signs = [type(sign).__name__ for sign in node.ops]
        if len(signs) == 1:
            return _call_of(signs[0], left, *others)
        links = [
            ast.Tuple([ast.Name(sign, ast.Load()), _function(other, [])], ast.Load())
            for sign, other in zip(signs, others, strict=True)
        ]
        return _call_of(_chained.__name__, left, *links)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Ask for what differs rather than deny what is equal: sizes that have names may be."""
        opposite = _opposite(node.operand) if isinstance(node.op, ast.Not) else None
        made: ast.AST = self.generic_visit(node) if opposite is None else self.visit(opposite)
        return made

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """Count the items."""
        parts = len(node.target.elts) if isinstance(node.target, (ast.Tuple, ast.List)) else 0
        items = _call_of("_bounded", self.visit(node.iter), ast.Constant(parts))
        tests = [self.visit(test) for test in node.ifs]
        return ast.comprehension(self.visit(node.target), items, tests, 0)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        """Count the items that become part of a list."""
        return ast.Starred(_call_of("_bounded", self.visit(node.value)), ast.Load())

    def visit_Set(self, node: ast.Set) -> ast.expr:
        """Make a set, or say what cannot be part of it."""
        return _call_of("_set_of", ast.List([self.visit(item) for item in node.elts], ast.Load()))

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        """Make a list, whose length is known."""
        parts = [self.visit(part) for part in node.generators]
        return ast.ListComp(self.visit(node.elt), parts)


_OPPOSITE: dict[type[ast.AST], type[Any]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def _opposite(part: ast.expr) -> ast.expr | None:
    """Return what holds where *part* does not, if ``not`` can go inside."""
    match part:
        case ast.Compare(left=left, ops=[sign], comparators=others) if type(sign) in _OPPOSITE:
            return ast.Compare(left, [_OPPOSITE[type(sign)]()], others)
        case ast.BoolOp(op=sign, values=values):
            return ast.BoolOp(_OPPOSITE[type(sign)](), [*map(_not, values)])
        case ast.Call(func=ast.Name(id="any" | "all" as word), args=[each]):
            if isinstance(each, (ast.ListComp, ast.GeneratorExp)):
                each = type(each)(_not(each.elt), each.generators)
                return _call_of("all" if word == "any" else "any", each)
            return None
        case _:
            return None


def _not(part: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), part)


_FACTS_GIVEN = ast.Name("facts", ast.Load())


def _function(body: ast.expr, names: list[ast.arg]) -> ast.Lambda:
    arguments = ast.arguments([], names, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(arguments, body)


def _call_of(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [*args], [])


def _present(facts: Mapping[str, Facts], name: str) -> Facts:
    fact = facts[name]
    if fact is None:
        raise UnknownFactError(f"{name!r} took no part in the match")
    return fact


def _either(
    facts: Mapping[str, Facts], name: str, first: Callable[[], Any], other: Callable[[], object]
) -> object:
    """Return the data of a constant, or an attribute; else what the second argument says."""
    if facts[name] is None:
        return other()
    try:
        fact: object = first()
    except NoAttributeError:
        return other()
    if isinstance(fact, list):
        raise ExpressionError(f"{name!r} is several inputs, not one constant")
    return fact.value if isinstance(fact, ValueFacts) else fact


def _misused() -> NoReturn:
    raise ExpressionError(f"{VALUE_OR} takes a name of the pattern first, or an attribute")


def _chained(left: object, *links: tuple[Callable[..., object], Callable[[], object]]) -> object:
    """Compare neighbours, as long as the answer is yes."""
    answer: object = True
    for compare, other in links:
        right = other()
        answer = compare(left, right)
        if not answer:
            break
        left = right
    return answer


def _bounded(items: Any, parts: int = 0) -> Iterator[Any]:  # noqa: ANN401  # of any kind
    """Count the items, each of which has so many *parts*, if their number is given."""
    if not isinstance(items, Iterable):
        raise ExpressionError("a list is expected")
    for item in items:
        _COURSE.items += 1
        if _COURSE.items > MOST_ITEMS:
            raise ExpressionError(f"a list of more than {MOST_ITEMS} items")
        if parts and _count(item) != parts:
            raise ExpressionError(f"a list of {parts} items is expected")
        yield item


def _light(variable: object) -> object:
    """Return what a variable is bound to; lists in lists double soon, if they hold one twice."""
    if _COURSE.weight(variable) > FREE:
        raise ExpressionError("lists in lists have far too many items")
    return variable


def _set_of(items: list[object]) -> set[object]:
    try:
        return set(items)
    except TypeError as error:
        raise ExpressionError("a list or an array cannot be part of a set") from error


_HELPERS: tuple[Callable[..., object], ...] = (
    *(_present, _either, _misused, _chained, _bounded, _light, _set_of, _are_equal_dims),
)
_REACHABLE: dict[str, Any] = {
    "__builtins__": {"__import__": __import__},  # for numpy's C code; no expression can name it
    **FUNCTIONS,
    **{kind.__name__: operation for kind, operation in _OPERATORS.items()},
    **{function.__name__: function for function in _HELPERS},
}
"""All that compiled expressions can name."""

_COMPUTING = ARRAY_FUNCTIONS.keys() - {"all", "any", "list", "len"}


@lru_cache(maxsize=_MOST_TEXTS)
def _code_of(text: str, captures: tuple[tuple[str, str], ...]) -> Code:
    """Compile an expression: equal texts share the code."""
    parts = _parsed(text, captures)
    return _Compiler(parts.needed, parts.local).compiled(parts.tree)


class Expression:
    """An expression over captured names.

    Args:
        text: The expression.
        role: What it is for, to begin messages with.
        captures: Names that stand for an attribute of the node that they are bound to.
        tree: The same, parsed, if it stands inside another text: messages say where in that.

    Raises:
        PatternSyntaxError: It is not one expression.
    """

    def __init__(
        self,
        text: str,
        role: str = "where",
        captures: Mapping[str, str] = NO_CAPTURES,
        tree: ast.expr | None = None,
    ) -> None:
        self.role = role
        self.text = text.strip()
        self.captures = tuple(captures.items())
        self._indent = len(text) - len(text.lstrip())
        try:
            if tree is not None:
                vars(self)["_parts"] = _checked(tree, self.captures)
            _ = self._parts
        except PatternSyntaxError as error:
            place = (error.line, error.column)
            raise self._wrong_at(place, error.message, error.hint) from error
        except RecursionError as error:
            what = "is not an expression: it is nested too deeply"
            raise self._wrong_at((1, 0), what, None) from error

    def __getstate__(self) -> dict[str, object]:
        """Keep what it was made of; the rest is made again when somebody asks."""
        return {name: vars(self)[name] for name in ("role", "text", "captures", "_indent")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)

    @cached_property
    def _parts(self) -> _Parts:
        return _parsed(self.text, self.captures)

    def __repr__(self) -> str:
        """Read as written."""
        return f"{type(self).__name__}({self.text!r})"

    def check_names(self, bound: frozenset[str]) -> None:
        """Refuse names that the pattern does not bind.

        Raises:
            PatternSyntaxError: The expression names something unbound.
        """
        for node in self._parts.names:
            if node.id not in bound and node.id not in self._parts.local:
                raise self.wrong(
                    node,
                    f"uses the name {node.id!r}, which the pattern does not bind",
                    did_you_mean(node.id, sorted(bound)),
                )

    def wrong(self, node: ast.expr, what: str, hint: str | None = None) -> PatternSyntaxError:
        """Make the error that points at a part of the expression."""
        return self._wrong_at((node.lineno, node.col_offset), what, hint)

    def _wrong_at(self, place: tuple[int, int], what: str, hint: str | None) -> PatternSyntaxError:
        line, column = place
        column += self._indent if line == 1 else 0
        message = f"{self.role}: {self.text!r} {what}"
        return PatternSyntaxError(message, line=line, column=column, hint=hint)

    @property
    def names(self) -> frozenset[str]:
        """The captured names that it uses."""
        return self._parts.used

    @property
    def needed(self) -> frozenset[str]:
        """Those of them without which it has no value; ``value_or`` can do without its first."""
        return self._parts.needed

    @property
    def tree(self) -> ast.expr:
        """The expression, parsed."""
        return self._parts.tree

    @property
    def nodes(self) -> Sequence[ast.AST]:
        """All parts of the expression."""
        return self._parts.nodes

    def is_constant(self, part: ast.expr) -> bool:
        """Tell whether a part of it needs no names but those of its own comprehensions."""
        nodes: list[ast.AST] = []
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and node.id in self._parts.used:
                return False  # most parts, soon
            nodes.append(node)
        return {node.id for node in names_in(nodes)} <= _local_names(nodes)

    def constant(self, part: ast.expr) -> object:
        """Return the value of a part that is constant; what cannot be computed raises."""
        return self._run(self._compile(part), {})

    def asks_for(self, fact: str) -> bool:
        """Tell whether it may ask a captured value for *fact*, as in ``x.uses``."""
        parts = (part for part in self._parts.nodes if isinstance(part, ast.Attribute))
        return any(part.attr == fact for part in parts)

    def calls(self, functions: AbstractSet[str]) -> bool:
        """Tell whether it calls one of *functions*."""
        called = (node.func for node in self._parts.nodes if isinstance(node, ast.Call))
        return any(
            isinstance(function, ast.Name) and function.id in functions for function in called
        )

    @cached_property
    def says_target(self) -> bool:
        """Whether it computes the target of a Reshape, which several places may share."""
        return self.calls({"reshape_target"})

    def value(self, bindings: Mapping[str, Bound]) -> object:
        """Return its value; a name may be bound to several inputs, or to an operator's type.

        Raises:
            UnknownFactError: It needs something that is not known, or a name that took no part.
            ValueError: It cannot be evaluated.
        """
        if not self._parts.needed <= bindings.keys():
            absent = sorted(self._parts.needed - bindings.keys())
            raise UnknownFactError(f"{absent[0]!r} took no part in the match")
        try:
            return self._run(self._code, self._facts(bindings))
        except UNANSWERABLE as error:
            raise ValueError(in_plain_words(error)) from error

    def _facts(self, bindings: Mapping[str, Bound]) -> dict[str, Facts]:
        """Return the facts of each name; None for a name that may be absent and is."""
        facts: dict[str, Facts] = {}
        for name in self._parts.used:
            bound = bindings.get(name)
            if type(bound) is Value:
                facts[name] = ValueFacts(bound)
            elif isinstance(bound, tuple):
                facts[name] = [ValueFacts(value) for value in bound]
            elif isinstance(bound, str):
                facts[name] = bound
            elif isinstance(bound, Mapping):
                facts[name] = SeveralAttributes(bound)
            elif name not in self._parts.needed:
                facts[name] = None
        return facts

    @cached_property
    def _code(self) -> Code:
        return _code_of(self.text, self.captures)

    def _compile(self, part: ast.expr) -> Code:
        return _Compiler(self._parts.needed, self._parts.local).compiled(part)

    def _run(self, code: Code, facts: Mapping[str, Facts]) -> object:
        try:
            with np.errstate(all="ignore") if self._parts.computes else nullcontext():
                return _computed(code(facts))
        finally:
            _COURSE.begin()  # what is noted would keep a model alive


def _computed(result: object) -> object:
    return result.whole() if isinstance(result, LazyArray) else result


def names_in(nodes: Sequence[ast.AST]) -> list[ast.Name]:
    """Return the names among the parts of an expression that are not those of called functions."""
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return [node for node in nodes if isinstance(node, ast.Name) and id(node) not in called]


def _free_names(tree: ast.AST) -> set[str]:
    """Return the names that stand outside the comprehensions whose variables they are."""
    free: set[str] = set()
    pending: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, bound = pending.pop()
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            first, *others = node.generators
            pending.append((first.iter, bound))  # it is evaluated outside
            bound = bound.union(_local_names(node.generators))
            parts = [node.elt, first.target, *first.ifs, *others]
        elif isinstance(node, ast.Call):
            parts = [*node.args]  # functions have names of their own
        elif isinstance(node, ast.Name) and node.id not in bound:
            free.add(node.id)
        pending += [(part, bound) for part in parts]
    return free


def _local_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the variables of comprehensions."""
    return {
        target.id
        for node in nodes
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
        if isinstance(target, ast.Name)
    }


# ``where``: what must hold for a match to be taken.
#
# A condition that needs an unknown fact, an unknown shape say, does not hold; the reason says so.


class Unmet(NamedTuple):
    """Why a condition does not hold.

    Attributes:
        reason: What to tell a reader.
        unranked: The value whose rank would have to be known first.
        is_open: Whether it may hold once more is known.
    """

    reason: str
    unranked: Value | None = None
    is_open: bool = False


class Condition(Expression):
    """One expression of a ``where`` list.

    Args:
        text: The expression.
        captures: Names that stand for an attribute of the node that they are bound to.

    Raises:
        PatternSyntaxError: It is not one expression.
    """

    def __init__(self, text: str, captures: Mapping[str, str] = NO_CAPTURES) -> None:
        super().__init__(text, captures=captures)
        self._shorter: dict[frozenset[str], Code | None] = {}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._shorter = {}

    def over(self, captures: Mapping[str, str]) -> Condition:
        """Return the same condition, in which some names stand for attributes."""
        used = {(name, captures[name]) for name in self.names & captures.keys()}
        return self if used <= {*self.captures} else Condition(self.text, captures)

    def unmet_by(self, bindings: Mapping[str, Bound]) -> Unmet | None:
        """Return why the condition does not hold for *bindings*, or None if it does.

        A name may be unbound, since the match took the other side of an alternative. Operands of
        ``and`` and ``or`` that use such a name are left out; if nothing is left, the condition
        holds.
        """
        facts = self._facts(bindings)
        try:
            is_whole = len(facts) == len(self._parts.used)
            code = self._code if is_whole else self._left_of(self._parts.used.difference(facts))
            if code is None:
                return None
            holds = bool(self._run(code, facts))
        except UnknownFactError as error:
            return Unmet(
                f"{self.text!r} is not known to hold: {error}", error.unranked, is_open=True
            )
        except UNANSWERABLE as error:
            return Unmet(f"{self.text!r} cannot be evaluated: {in_plain_words(error)}")
        if holds:
            return None
        values = [bindings.get(name) for name in self._parts.used]
        types = [value.known_type() for value in values if isinstance(value, Value)]
        if self.calls(_PROVED) and any(starmap(_may_be_alike, combinations(types, 2))):
            return Unmet(f"{self.text!r} is not proved to hold", is_open=True)
        return Unmet(f"{self.text!r} does not hold")

    def facts_of(self, bindings: Mapping[str, Bound]) -> list[str]:
        """Say what it asks about, for a reader: attributes, numbers of uses, else types."""
        captures, facts = dict(self.captures), self._facts(bindings)
        said: set[str] = set()
        told: set[ast.expr] = set()
        for node in self._parts.nodes:
            is_captured = False
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name() as owner, attr="attrs")):
                    is_captured = captures.get(owner.id) == node.attr
                case ast.Attribute(value=ast.Name() as owner, attr="name" | "uses"):
                    pass
                case _:
                    continue
            if facts.get(owner.id) is not None:
                told.add(owner)
                with suppress(UnknownFactError, *UNANSWERABLE):
                    value = self._run(self._compile(node), facts)
                    shown = list(value) if isinstance(value, tuple) else value
                    said.add(f"{owner.id if is_captured else ast.unparse(node)} = {shown!r}")
        for node in self._parts.names:
            bound = None if node in told else bindings.get(node.id)
            if isinstance(bound, Value):
                said.add(f"{node.id} {_described(bound)}")
            elif isinstance(bound, tuple):
                said.add(f"{node.id} [{', '.join(map(_described, bound))}]")
        return sorted(said)

    def _left_of(self, absent: frozenset[str]) -> Code | None:
        """Return the expression without the operands that use *absent* names; None if all do."""
        if absent not in self._shorter:
            tree = without(self._parts.tree, absent)
            self._shorter[absent] = None if tree is None else self._compile(tree)
        return self._shorter[absent]


def _may_be_alike(one: TensorType | None, other: TensorType | None) -> bool:
    """Tell whether types have shapes that may be equal though that is not known."""
    shapes = [None if kind is None else kind.shape for kind in (one, other)]
    if None in shapes or (is_exact(one) and is_exact(other)):
        return False
    first, second = shapes
    assert first is not None  # noqa: S101  # as was asked
    assert second is not None  # noqa: S101  # as was asked
    differing = (type(a) is type(b) is int and a != b for a, b in zip(first, second, strict=False))
    return len(first) == len(second) and not any(differing)


_MOST_NUMBERS = 4


def _described(value: Value) -> str:
    """Return what is known of the type of *value*, and the numbers of a small constant."""
    known, tensor = value.known_type(), value.constant
    text = "of unknown type" if known is None else str(known)
    if tensor is None or tensor.size > _MOST_NUMBERS or tensor.is_external:
        return text
    return f"{text} = {print_numbers(tensor)}"


def without(
    tree: ast.expr,
    absent: AbstractSet[str],
    signs: tuple[type[ast.boolop], ...] = (ast.And, ast.Or),
) -> ast.expr | None:
    """Leave out the operands of ``and`` and ``or`` that use *absent* names; None if all do."""
    if not any(node.id in absent for node in names_in(list(ast.walk(tree)))):
        return tree
    if not isinstance(tree, ast.BoolOp) or not isinstance(tree.op, signs):
        return None
    kept = [left for value in tree.values if (left := without(value, absent, signs)) is not None]
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else ast.BoolOp(tree.op, kept)
