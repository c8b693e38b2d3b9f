"""Relational algebra on NumPy arrays: the few operations that the graph as a table is written in.

A *relation* is a set of columns of equal length; row r is what they hold at r. A *ragged column*
holds any number of items a row: those of row r are ``heap[at[r] : at[r] + count[r]]``. An *index*
of a column says which rows hold a value: the same two columns, over values.

Nothing here knows of ONNX. Shapes below: n rows, m items, k distinct keys. Positions and row
numbers are int64, ids and counts in columns int32; -1 stands for none.

The names are those of the relational model (E. F. Codd, A Relational Model of Data for Large
Shared Data Banks, 1970) and of APL's descendants; ragged columns are those of Apache Arrow's
list layout, with counts beside the offsets so that rows can be replaced one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Ids: TypeAlias = NDArray[np.int32]
Places: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

# where annotations are not evaluated they are strings
_DTYPES: dict[object, np.dtype[Any]] = {
    **dict.fromkeys((Ids, "Ids"), np.dtype(np.int32)),
    **dict.fromkeys((Places, "Places"), np.dtype(np.int64)),
    **dict.fromkeys((Flags, "Flags"), np.dtype(np.bool_)),
}

_ROUNDS = 8
"""How often :func:`disjoint` looks at all rows at once before it goes on row by row."""


_DENSE = 4
"""Up to how many places a row :func:`lookup` joins by a table of all numbers there may be."""


class Relation:
    """A relation that grows by batches; a subclass declares its columns by annotations.

    Each column is an attribute, an array of :attr:`size` rows. Adding m rows takes O(m) amortised:
    a column is the front of a buffer that doubles. So a column that was taken before rows were
    added may be a copy: take it again.

    Args:
        columns: An array of n values for each column, converted to what its annotation says.

    Raises:
        TypeError: A column is missing, is not declared, or differs in length.
    """

    size: int
    _dtypes: ClassVar[dict[str, np.dtype[Any]]]

    def __init_subclass__(cls) -> None:
        cls._dtypes = {name: _DTYPES[hint] for name, hint in cls.__annotations__.items()}

    def __init__(self, **columns: Any) -> None:  # noqa: ANN401  # whatever makes an array
        if columns.keys() != self._dtypes.keys():
            odd = sorted(columns.keys() ^ self._dtypes.keys())
            raise TypeError(f"{type(self).__name__}: columns missing or not declared: {odd}")
        self._buffers = {
            name: np.array(column, self._dtypes[name]) for name, column in columns.items()
        }
        sizes = {buffer.size for buffer in self._buffers.values()}
        if len(sizes) != 1:
            raise TypeError(f"{type(self).__name__}: columns of different length: {sorted(sizes)}")
        (self.size,) = sizes
        self._show()

    # the columns are views of the buffers, and so must those of a copy be

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._dtypes}

    def __setstate__(self, columns: dict[str, Any]) -> None:
        Relation.__init__(self, **columns)

    def _show(self) -> None:
        for name, buffer in self._buffers.items():
            setattr(self, name, buffer[: self.size])

    def append(self, count: int, **columns: Any) -> Ids:  # noqa: ANN401  # arrays and scalars
        """Add rows.

        Args:
            count: How many.
            columns: For each column an array of *count* values, or one value for all.

        Returns:
            The numbers of the new rows, int32 (count,).

        Raises:
            TypeError: A column is missing, or is not declared.
        """
        if columns.keys() != self._dtypes.keys():
            odd = sorted(columns.keys() ^ self._dtypes.keys())
            raise TypeError(f"{type(self).__name__}: columns missing or not declared: {odd}")
        begin, self.size = self.size, self.size + count
        for name, buffer in self._buffers.items():
            if self.size > buffer.size:
                grown = np.empty(max(self.size, 2 * buffer.size), buffer.dtype)
                grown[:begin] = buffer[:begin]
                self._buffers[name] = grown
            self._buffers[name][begin : self.size] = columns[name]
        self._show()
        return np.arange(begin, self.size, dtype=np.int32)


def offsets(count: NDArray[Any]) -> Places:
    """Return where each row's items begin if all are laid out in order: counts (n,) to (n,)."""
    begin: Places = np.cumsum(count, dtype=np.int64) - count
    return begin


def unnest(at: NDArray[Any], count: NDArray[Any]) -> tuple[Places, Places]:
    """Return a row an item of a ragged column, in order.

    Args:
        at: Where the items of each row begin in the heap, (n,).
        count: How many there are, (n,).

    Returns:
        The row that each item is of, and its place in the heap, both (m,).
    """
    row: Places = np.repeat(np.arange(count.size), count)
    place: Places = np.arange(row.size) + np.repeat(at - offsets(count), count)
    return row, place


def beside(*columns: tuple[NDArray[Any], ...]) -> tuple[Places, ...]:
    """Return ragged columns joined row by row: the items of the first, then those of the next.

    Args:
        columns: Of each the counts, (n,), and any number of heaps of items in order, (m,).

    Returns:
        The same of all of them together.
    """
    count: Places = np.stack([column[0] for column in columns]).sum(axis=0, dtype=np.int64)
    heaps = [np.empty(int(count.sum()), np.int64) for _ in columns[0][1:]]
    begin = offsets(count)
    for many, *items in columns:
        _, place = unnest(begin, many)
        for heap, item in zip(heaps, items, strict=True):
            heap[place] = item
        begin = begin + many
    return count, *heaps


def sums(count: NDArray[Any], items: NDArray[Any]) -> Places:
    """Return the sum of each row's items in order: counts (n,) and items (m,) to (n,)."""
    total = np.append(0, np.cumsum(items, dtype=np.int64))
    begin = offsets(count)
    result: Places = total[begin + count] - total[begin]
    return result


def nth(
    heap: NDArray[Any], at: NDArray[Any], count: NDArray[Any], place: int, missing: int
) -> NDArray[Any]:
    """Return one item of each row of a ragged column.

    Args:
        heap: The items.
        at: Where the items of each row begin in the heap, (n,).
        count: How many there are, (n,).
        place: Which item.
        missing: What stands for it where there are fewer.

    Returns:
        The items, (n,).
    """
    found = np.full(at.size, missing, heap.dtype)
    has = np.flatnonzero(count > place)
    found[has] = heap[at[has] + place]
    return found


def group(key: NDArray[Any], size: int) -> tuple[Places, Places, Places]:
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


def distinct(*columns: NDArray[Any]) -> tuple[Places, Places]:
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


def distinct_lists(
    count: NDArray[Any], heads: Sequence[NDArray[Any]], items: Sequence[NDArray[Any]]
) -> tuple[Places, Places]:
    """Return equal numbers for rows whose columns are equal, ragged ones included.

    Args:
        count: How many items each row has, (n,).
        heads: Columns of whole numbers, each (n,).
        items: Heaps of whole numbers, the items of all rows in order, each (m,).

    Returns:
        The number of each row, by the first row that has it, (n,); and that row, (k,).
    """
    number = np.zeros(count.size, np.int64)
    examples = []
    begin, found = offsets(count), 0
    for width in ascending(count).tolist():
        rows = np.flatnonzero(count == width)
        place = begin[rows][:, None] + np.arange(width)
        columns = [column for heap in items for column in heap[place].T]
        which, example = distinct(np.zeros_like(rows), *(head[rows] for head in heads), *columns)
        number[rows] = which + found
        examples.append(rows[example])
        found += example.size
    example = np.concatenate([np.zeros(0, np.int64), *examples])
    order = np.argsort(example)
    rank = np.empty(found, np.int64)
    rank[order] = np.arange(found)
    return rank[number], example[order]


def lookup(keys: NDArray[Any], wanted: NDArray[Any]) -> Places:
    """Join on equality, where at most one row can be found.

    Args:
        keys: Distinct numbers, 0 or above, (k,).
        wanted: Numbers, 0 or above, (n,).

    Returns:
        Which row of *keys* holds each of *wanted*; -1 where none does, (n,).
    """
    top = max(int(keys.max(initial=-1)), int(wanted.max(initial=-1))) + 1
    if top <= _DENSE * (keys.size + wanted.size):
        row: Places = np.full(top, -1, np.int64)
        row[keys] = np.arange(keys.size)
        found: Places = row[wanted]
        return found
    if not keys.size:
        return np.full(wanted.size, -1, np.int64)
    order = np.argsort(keys)
    near = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return np.where(keys[near] == wanted, near, -1)


def follow(forward: NDArray[Any]) -> NDArray[Any]:
    """Return where chains of pointers end, by pointer jumping: O(n log n).

    Args:
        forward: What each row points at, (n,); itself where its chain ends.

    Raises:
        ValueError: Pointers form a circle.
    """
    end = forward
    for _ in range(forward.size.bit_length() + 1):
        further = end[end]
        if np.array_equal(further, end):
            break
        end = further
    # in a circle of 2 ** i rows the jumps come to rest, too, but not at an end
    if not np.array_equal(forward[end], end):
        raise ValueError("pointers form a circle")
    return end


def disjoint(sets: NDArray[Any]) -> Flags:
    """Return the rows that greed would take: each that shares no id with a row taken before.

    All rows at once, for a few rounds: a row that claims each of its ids first wins, and whoever
    shares an id with a winner is out. What is left after that is done row by row.

    Args:
        sets: The ids of each row, (n, w), -1 for none; rows by preference.

    Returns:
        Whether each row is taken, (n,).
    """
    rows = len(sets)
    chosen = np.zeros(rows, np.bool_)
    top = int(sets.max(initial=-1)) + 1
    taken = np.zeros(top + 1, np.bool_)  # the last stands for -1, and nobody takes it
    left = np.arange(rows)
    for _ in range(_ROUNDS):
        if not left.size:
            return chosen
        mine = sets[left]
        claim = np.full(top + 1, rows, np.int64)
        for column in mine.T:
            np.minimum.at(claim, column, left)
        wins = ((claim[mine] == left[:, None]) | (mine < 0)).all(axis=1)
        chosen[left[wins]] = True
        taken[mine[wins]] = True
        taken[-1] = False
        left = left[~wins]
        left = left[~taken[sets[left]].any(axis=1)]
    for row in left.tolist():
        if not taken[sets[row]].any():
            chosen[row] = True
            taken[sets[row]] = True
            taken[-1] = False
    return chosen
