"""How far apart two weights are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.diff.result import Distance

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Tensor

_CHUNK = 1 << 20
"""Elements that are compared at a time, so that large weights take no more memory."""


def distance(first: Tensor, second: Tensor) -> Distance | None:
    """Measure how far two constants are apart; None if they differ in type or shape.

    An element has changed if its bits have; zeros of either sign, say, are 0 apart nevertheless.
    """
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return None
    one, other = first.numpy().reshape(-1), second.numpy().reshape(-1)
    if one.dtype.hasobject:
        return Distance(int((one != other).sum()), one.size, None, None)
    changed, max_abs, max_rel = 0, 0.0, 0.0
    for start in range(0, one.size, _CHUNK):
        found = _chunk_distance(one[start : start + _CHUNK], other[start : start + _CHUNK])
        changed += found[0]
        max_abs, max_rel = _larger(max_abs, found[1]), _larger(max_rel, found[2])
    return Distance(changed, one.size, max_abs, max_rel)


def _chunk_distance(one: NDArray[Any], other: NDArray[Any]) -> tuple[int, float, float]:
    changed = (_bits(one) != _bits(other)).any(axis=1)
    count = int(changed.sum())
    if not count:
        return 0, 0.0, 0.0
    wide = np.complex128 if one.dtype.kind == "c" else _wide(one.dtype)
    a, b = one[changed].astype(wide), other[changed].astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))  # noqa: PLR0124  # NaN
        apart = np.where(same, 0, np.abs(a - b)).astype(np.float64)
        larger = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
        relative = np.where(same, 0, apart / np.where(larger == 0, 1, larger))
    return count, float(apart.max()), float(relative.max())


def _wide(dtype: np.dtype[Any]) -> type[Any]:
    """Choose what holds differences of *dtype*: exact Python numbers for 64-bit integers."""
    return np.object_ if dtype.kind in "iu" and dtype.itemsize == 8 else np.float64  # noqa: PLR2004


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """View the elements of *array* as their bytes, one row each."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1)


def _larger(first: float, second: float) -> float:
    """Return the larger number; NaN counts as the largest."""
    return second if second != second or second > first else first  # noqa: PLR0124  # NaN
