"""Ragged and numbered arrays: the few operations in which a file is read.

A *ragged* array holds any number of items a row: those of row r are
``heap[at[r] : at[r] + count[r]]``. Shapes below: n rows, m items, k distinct keys. The names are
those of the relational model (E. F. Codd, *A Relational Model of Data for Large Shared Data
Banks*, 1970); ragged arrays are the list layout of Apache Arrow, with counts beside the offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ids: TypeAlias = "NDArray[np.int32]"
Ints: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"

_DENSE = 4
"""Up to how many places a row :func:`lookup` joins by a table of all numbers there may be."""


def offsets(count: NDArray[Any]) -> Ints:
    """Return where each row's items begin if all are laid out in order: counts (n,) to (n,)."""
    begin: Ints = np.cumsum(count, dtype=np.int64) - count
    return begin


def unnest(at: NDArray[Any], count: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return a row an item of a ragged column, in order.

    Args:
        at: Where the items of each row begin in the heap, (n,).
        count: How many there are, (n,).

    Returns:
        The row that each item is of, and its place in the heap, both (m,).
    """
    row: Ints = np.repeat(np.arange(count.size), count)
    place: Ints = np.arange(row.size) + np.repeat(at - offsets(count), count)
    return row, place


def group(key: NDArray[Any], size: int) -> tuple[Ints, Ints, Ints]:
    """Return an index: which items have which key.

    Args:
        key: The key of each item, (m,), each in [0, size).
        size: How many keys there may be.

    Returns:
        ``order`` (m,), ``at`` (size,), ``count`` (size,): ``order[at[k] : at[k] + count[k]]`` are
        the items that have key k, in their own order.
    """
    count = np.bincount(key, minlength=size)
    return np.argsort(key, kind="stable"), offsets(count), count


def ascending(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct ones of whole numbers, (k,), in ascending order.

    That is :func:`numpy.unique`, which hashes and takes up to fifty times as long.
    """
    numbers = np.sort(numbers, axis=None)
    is_new = np.ones(numbers.size, np.bool_)
    is_new[1:] = numbers[1:] != numbers[:-1]
    return numbers[is_new]


def distinct(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return equal numbers for equal rows.

    Args:
        columns: At least one column of whole numbers, each (n,).

    Returns:
        The number of each row, (n,), by the order of the values; and a row that has each number,
        its first, (k,).
    """
    which = np.zeros(columns[0].size, np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        if (int(which.max(initial=0)) + 1) * span > np.iinfo(np.int64).max:
            which = np.unique(which, return_inverse=True)[1]
            column = np.unique(column, return_inverse=True)[1]  # noqa: PLW2901  # the same, denser
            low, span = 0, column.size
        which = which * span + (column.astype(np.int64) - low)
    _, example, which = np.unique(which, return_index=True, return_inverse=True)
    return which, example


def lookup(keys: NDArray[Any], wanted: NDArray[Any]) -> Ints:
    """Join on equality, where at most one row can be found.

    Args:
        keys: Distinct numbers, 0 or above, (k,).
        wanted: Numbers, 0 or above, (n,).

    Returns:
        Which row of *keys* holds each of *wanted*; -1 where none does, (n,).
    """
    top = max(int(keys.max(initial=-1)), int(wanted.max(initial=-1))) + 1
    if top <= _DENSE * (keys.size + wanted.size):
        row: Ints = np.full(top, -1, np.int64)
        row[keys] = np.arange(keys.size)
        found: Ints = row[wanted]
        return found
    if not keys.size:
        return np.full(wanted.size, -1, np.int64)
    order = np.argsort(keys)
    near = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return np.where(keys[near] == wanted, near, -1)
