"""What expressions may compute with arrays and lists: numpy by other names, and within bounds.

Each function takes numbers, lists or arrays (``w.value``), never captured names, makes something
new, and claims the size of its result beforehand (:mod:`dplcli.dpl.room`).
"""

from __future__ import annotations

import builtins
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dplcli.dpl.dtype_lattice import widens
from dplcli.dpl.facts import ValueFacts
from dplcli.dpl.room import MOST_ITEMS, claim
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Number: TypeAlias = float | np.generic

_NUMERIC_KINDS = "biufcV"
_COMPUTED_WIDE = 4
"""Bytes of a float below which functions are computed in float32 and rounded once."""


def _array(given: object) -> Array:
    """Take an array, or a number or list as one."""
    if isinstance(given, ValueFacts):
        raise TypeError(f"write {given.name}.value for the data of {given.name!r}")
    if isinstance(given, np.ndarray):
        return given
    made = np.asarray(given)
    if made.dtype.kind not in _NUMERIC_KINDS:
        raise TypeError("expected numbers or an array")
    return made


def items_of(given: object) -> list[Any]:
    """List the items of a list of ordinary length.

    Raises:
        TypeError: It is no list, and no array either.
        ValueError: It is too long.
    """
    if isinstance(given, ValueFacts):
        raise TypeError(f"{given.name!r} is not a list; ask for its shape or value")
    if not isinstance(given, (list, tuple, range, set, np.ndarray)):
        raise TypeError("expected a list")
    if len(given) > MOST_ITEMS:
        raise ValueError(f"a list of more than {MOST_ITEMS} items")
    return given.tolist() if isinstance(given, np.ndarray) and given.ndim == 1 else [*given]


def _whole(number: object) -> int:
    """Turn a number, or an array of one element, into a whole number.

    Raises:
        ValueError: It has a fraction, or is no number at all.
    """
    data = _array(number)
    claim(data.size)
    item = data.reshape(()).item()
    if item != item // 1:
        raise ValueError(f"{item} is not a whole number")
    return builtins.int(item)


def _number(number: object) -> float:
    """Turn a number, or an array of one element, into a float."""
    return builtins.float(_array(number).reshape(()).item())


def _dims(given: object) -> tuple[int, ...]:
    """Read dimensions, axes or a permutation: whole numbers."""
    if isinstance(given, (int, np.integer)):
        return (operator.index(given),)
    return tuple(operator.index(item) for item in items_of(given))


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


def _rsqrt(data: Array) -> Array:
    """Return one over the square root."""
    return np.asarray(1 / np.sqrt(data))


# -- arrays ------------------------------------------------------------------------------------


def reshape(data: object, dims: object) -> Array:
    """Give an array other dimensions; one of them may be -1."""
    return _array(data).reshape(_dims(dims))


def expand(data: object, dims: object) -> Array:
    """Repeat an array along dimensions of 1 until it has the dimensions *dims*."""
    wanted = _dims(dims)
    claim(_size_of(wanted))
    return np.broadcast_to(_array(data), wanted).copy()


def transpose(data: object, perm: object = None) -> Array:
    """Reorder the dimensions of an array; without *perm*, reverse them."""
    source = _array(data)
    claim(source.size)
    return np.transpose(source, None if perm is None else _dims(perm)).copy()


def squeeze(data: object, axes: object = None) -> Array:
    """Take dimensions of 1 away: those listed, or all."""
    return np.squeeze(_array(data), None if axes is None else _dims(axes))


def unsqueeze(data: object, axes: object) -> Array:
    """Put dimensions of 1 in, so that they stand at *axes* of the result."""
    return np.expand_dims(_array(data), _dims(axes))


def along(data: object, axis: object, rank: object) -> Array:
    """Lay all elements along one axis of *rank*, so that they broadcast over the others."""
    dims = [1] * _whole(rank)
    dims[_whole(axis)] = -1
    return _array(data).reshape(dims)


def concat(parts: object, axis: object = 0) -> Array:
    """Join arrays along an axis that they have."""
    arrays = [_array(part) for part in items_of(parts)]
    claim(builtins.sum(part.size for part in arrays))
    return np.concatenate(arrays, operator.index(axis))  # type: ignore[arg-type]  # raises


def cast(data: object, dtype: object) -> Array:
    """Convert to another element type; floats are rounded, anything else must be exact.

    Raises:
        ValueError: There is no such type, or it cannot hold a number.
    """
    if not isinstance(dtype, str) or dtype not in DTYPE_CODES:
        raise ValueError(f"{dtype!r} is not an element type")
    source = _array(data)
    claim(source.size)
    made = source.astype(np.dtype(_numpy_name(dtype)))
    is_rounded = dtype.startswith(("float", "bfloat", "complex"))
    fits = _same_infinities(source, made) if is_rounded else np.array_equal(made, source)
    if not fits:
        raise ValueError(f"{dtype} cannot hold all numbers")
    return made


def double(data: object) -> Array:
    """Convert to float64, to compute with."""
    return cast(data, "float64")


def _numpy_name(dtype: str) -> str:
    """Return what numpy calls an element type: ``float8e4m3fn`` is ``float8_e4m3fn`` there."""
    kind, exponent, rest = dtype.partition("e")
    return f"{kind}_{exponent}{rest}" if kind in {"float8", "float6", "float4"} else dtype


def _same_infinities(source: Array, made: Array) -> bool:
    """Tell whether no number became infinite or not a number."""
    wide = np.complex128 if made.dtype.kind == "c" else np.float64
    before, after = np.isfinite(source.astype(wide)), np.isfinite(made.astype(wide))
    return bool(np.array_equal(before, after))


def is_finite(data: object) -> bool:
    """Tell whether no number is infinite or not a number."""
    source = _array(data)
    claim(source.size)
    wide = np.complex128 if source.dtype.kind == "c" else np.float64
    return bool(np.isfinite(source.astype(wide)).all())


def total(data: object, axes: object = None) -> object:
    """Add up a list, or an array: all of it, or along *axes*."""
    if not isinstance(data, np.ndarray):
        return builtins.sum(items_of(data))
    claim(data.size)
    return data.sum(axis=None if axes is None else _dims(axes), dtype=data.dtype)


def _size_of(dims: Sequence[int]) -> int:
    size = 1
    for dim in dims:
        size *= dim
    return size


def value_or(constant: object, other: object) -> object:
    """Return the data of a captured constant, or *other* if it took no part in the match."""
    if constant is None:
        return other
    if not isinstance(constant, ValueFacts):
        raise TypeError("value_or takes a name of the pattern first")
    return constant.value


# -- numbers and lists -------------------------------------------------------------------------


def whole_numbers(*bounds: object) -> list[int]:
    """List whole numbers, as Python's ``range`` does.

    Raises:
        ValueError: They are too many.
    """
    return items_of(builtins.range(*map(_whole, bounds)))


def rounded(number: object) -> object:
    """Round to the nearest whole number, ties to the even one."""
    if isinstance(number, np.ndarray):
        claim(number.size)
        return np.rint(number)
    return builtins.round(number)  # type: ignore[call-overload]  # what is no number raises


def in_order(items: object) -> list[Any]:
    """List the items from the smallest to the largest."""
    return builtins.sorted(items_of(items))


def pairs(*lists: object) -> list[tuple[Any, ...]]:
    """List what stands at the same places of lists of equal length."""
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
        raise ValueError(f"{items} is not a permutation")
    return builtins.sorted(builtins.range(len(items)), key=items.__getitem__)


def _or_reduced(
    python: Callable[..., object], reduce: Callable[[Array], object]
) -> Callable[..., object]:
    """Use *reduce* for one array or truth value, and Python's own function for all else."""

    def choose(*given: object) -> object:
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
        raise ValueError(f"a list of more than {MOST_ITEMS} items")
    return items if isinstance(left, builtins.list) else tuple(items)


ARRAY_FUNCTIONS: dict[str, Callable[..., object]] = {
    "sqrt": _pointwise(np.sqrt),
    "rsqrt": _pointwise(_rsqrt),
    "exp": _pointwise(np.exp),
    "log": _pointwise(np.log),
    "min": _or_reduced(min, np.min),
    "max": _or_reduced(max, np.max),
    "all": _or_reduced(all, np.all),
    "any": _or_reduced(any, np.any),
    "reshape": reshape,
    "expand": expand,
    "transpose": transpose,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "along": along,
    "concat": concat,
    "cast": cast,
    "double": double,
    "widens": widens,
    "value_or": value_or,
    "is_finite": is_finite,
    "sum": total,
    "range": whole_numbers,
    "round": rounded,
    "sorted": in_order,
    "zip": pairs,
    "list": items_of,
    "tuple": fixed,
    "int": _whole,
    "float": _number,
    "is_number": is_number,
    "is_perm": is_perm,
    "inverse": inverse,
}
"""The functions over arrays and lists, by the names that expressions use."""
