"""The operations of relational algebra agree with loops over rows."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir.relations import (
    Flags,
    Ids,
    Places,
    Relation,
    beside,
    disjoint,
    distinct,
    follow,
    group,
    lookup,
    offsets,
    sums,
    unnest,
)

SMALL = st.integers(0, 9)
COUNTS = st.lists(st.integers(0, 4), max_size=8)


def column(numbers: list[int]) -> Ids:
    """Return a column."""
    return np.array(numbers, np.int32)


class Things(Relation):
    """A relation of the tests."""

    size_of: Ids
    at: Places
    live: Flags


@given(st.lists(st.integers(0, 5), max_size=12))
def test_rows_are_appended(batches: list[int]) -> None:
    """Columns keep what they hold while they grow, each with its own type."""
    things = Things(size_of=[7], at=[1 << 40], live=[True])
    wanted = [(7, 1 << 40, True)]
    for number, count in enumerate(batches):
        new = things.append(count, size_of=number, at=np.arange(count), live=False)
        assert new.tolist() == list(range(len(wanted), len(wanted) + count))
        wanted += [(number, place, False) for place in range(count)]
        rows = zip(things.size_of.tolist(), things.at.tolist(), things.live.tolist(), strict=True)
        assert list(rows) == wanted
    dtypes = [column.dtype.name for column in (things.size_of, things.at, things.live)]
    assert dtypes == ["int32", "int64", "bool"]
    assert things.size == len(wanted)


def test_a_row_has_every_column_and_no_other() -> None:
    """Columns that are missing, unknown or of another length are refused, and nothing changes."""
    with pytest.raises(TypeError, match=r"Things: .*\['live'\]"):
        Things(size_of=[], at=[])
    with pytest.raises(TypeError, match="different length"):
        Things(size_of=[], at=[1], live=[True])
    things = Things(size_of=[], at=[], live=[])
    with pytest.raises(TypeError, match=r"\['more'\]"):
        things.append(1, size_of=1, at=1, live=True, more=1)
    assert things.size == things.at.size == 0


@given(COUNTS)
def test_offsets(counts: list[int]) -> None:
    """A row begins where the rows before it end."""
    assert offsets(column(counts)).tolist() == [sum(counts[:k]) for k in range(len(counts))]


@given(COUNTS, st.data())
def test_unnest(counts: list[int], data: st.DataObject) -> None:
    """The items of all rows, in order, wherever they are in the heap."""
    at = data.draw(st.lists(SMALL, min_size=len(counts), max_size=len(counts)))
    row, place = unnest(np.array(at, np.int64), column(counts))
    wanted = [(k, at[k] + j) for k, count in enumerate(counts) for j in range(count)]
    assert list(zip(row.tolist(), place.tolist(), strict=True)) == wanted


@given(st.lists(st.integers(0, 5), max_size=20))
def test_group(keys: list[int]) -> None:
    """Each key finds its items, in their order."""
    order, at, count = group(np.array(keys, np.int64), 6)
    for key in range(6):
        items = order[at[key] : at[key] + count[key]].tolist()
        assert items == [k for k, other in enumerate(keys) if other == key]


HUGE = st.sampled_from([-(1 << 62), -1, 0, 1, 1 << 31, (1 << 62) - 1])


@given(st.lists(st.tuples(HUGE, HUGE, HUGE), max_size=20))
def test_distinct(rows: list[tuple[int, int, int]]) -> None:
    """Equal rows and no others share a number; the example of a number is its first row."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    which, example = distinct(*table.T)
    assert len(which) == len(rows)
    firsts = {row: rows.index(row) for row in rows}
    assert [int(example[k]) for k in which.tolist()] == [firsts[row] for row in rows]
    assert len(example) == len(firsts)


KEYS = SMALL | st.integers(0, (1 << 31) - 1)


@given(st.lists(KEYS, unique=True), st.lists(KEYS))
def test_lookup(keys: list[int], wanted: list[int]) -> None:
    """The row that holds it, or -1."""
    found = lookup(column(keys), column(wanted)).tolist()
    assert found == [keys.index(item) if item in keys else -1 for item in wanted]


@given(st.lists(st.integers(0, 8), min_size=9, max_size=9))
def test_follow(pointers: list[int]) -> None:
    """Where chains end; a circle of more than one row has no end."""

    def end(row: int) -> int | None:
        for _ in pointers:
            if pointers[row] == row:
                return row
            row = pointers[row]
        return None

    ends = [end(row) for row in range(9)]
    if None in ends:
        with pytest.raises(ValueError, match="circle"):
            follow(column(pointers))
    else:
        assert follow(column(pointers)).tolist() == ends


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_follow_refuses_a_circle(size: int) -> None:
    """Also one whose length is a power of two, where jumps come to rest."""
    with pytest.raises(ValueError, match="circle"):
        follow(column([*range(1, size), 0]))


@given(st.lists(st.tuples(*[st.integers(-1, 12)] * 3), max_size=60))
def test_disjoint(rows: list[tuple[int, int, int]]) -> None:
    """What a loop takes that goes through the rows in order."""
    seen: set[int] = set()
    wanted = []
    for row in rows:
        mine = set(row) - {-1}
        wanted.append(seen.isdisjoint(mine))
        if wanted[-1]:
            seen |= mine
    assert disjoint(np.array(rows, np.int32).reshape(-1, 3)).tolist() == wanted


def test_disjoint_goes_on_where_rounds_end() -> None:
    """A chain in which each row loses to the one before: every second is taken."""
    rows = np.array([(k, k + 1) for k in range(100)])
    assert disjoint(rows).tolist() == [k % 2 == 0 for k in range(100)]


RAGGED = st.lists(st.lists(st.tuples(SMALL, SMALL), max_size=3), min_size=3, max_size=3)


@given(st.lists(RAGGED, min_size=1, max_size=3))
def test_ragged_columns_are_joined_row_by_row(columns: list[list[list[tuple[int, int]]]]) -> None:
    """As lists are."""
    joined = beside(*(ragged(column) for column in columns))
    expected = ragged([list(chain(*rows)) for rows in zip(*columns, strict=True)])
    for found, wanted in zip(joined, expected, strict=True):
        assert found.tolist() == wanted.tolist()


def ragged(rows: list[list[tuple[int, int]]]) -> tuple[Places, ...]:
    """Return counts, and two heaps."""
    items = [item for row in rows for item in row]
    counts = np.array([len(row) for row in rows], np.int64)
    return counts, *np.array(items, np.int64).reshape(-1, 2).T


@given(st.lists(st.lists(SMALL, max_size=4), max_size=6))
def test_sums_of_rows(rows: list[list[int]]) -> None:
    """Of empty rows, too."""
    items = np.array([item for row in rows for item in row], np.int64)
    count = np.array([len(row) for row in rows], np.int64)
    assert sums(count, items).tolist() == [sum(row) for row in rows]
