"""The operations on ragged and numbered arrays agree with loops over rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dplcli.onnx_io.arrays import ascending, distinct, group, lookup, offsets, unnest

SMALL = st.integers(0, 9)
COUNTS = st.lists(st.integers(0, 4), max_size=8)
HUGE = st.sampled_from([-(1 << 62), -1, 0, 1, 1 << 31, (1 << 62) - 1])
KEYS = SMALL | st.integers(0, (1 << 31) - 1)


@given(COUNTS, st.data())
def test_ragged_rows(counts: list[int], data: st.DataObject) -> None:
    """A row begins where those before it end; items come in order, wherever the heap has them."""
    count = np.array(counts, np.int64)
    assert offsets(count).tolist() == [sum(counts[:k]) for k in range(len(counts))]
    at = data.draw(st.lists(SMALL, min_size=len(counts), max_size=len(counts)))
    row, place = unnest(np.array(at, np.int64), count)
    wanted = [(k, at[k] + j) for k, many in enumerate(counts) for j in range(many)]
    assert list(zip(row.tolist(), place.tolist(), strict=True)) == wanted


@given(st.lists(st.integers(0, 5), max_size=20))
def test_group(keys: list[int]) -> None:
    """Each key finds its items, in their order."""
    order, at, count = group(np.array(keys, np.int64), 6)
    for key in range(6):
        items = order[at[key] : at[key] + count[key]].tolist()
        assert items == [k for k, other in enumerate(keys) if other == key]


@given(st.lists(HUGE, max_size=12))
def test_ascending(numbers: list[int]) -> None:
    """Each number once, the smallest first."""
    assert ascending(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))


@given(st.lists(st.tuples(HUGE, HUGE, HUGE), max_size=20))
def test_distinct(rows: list[tuple[int, int, int]]) -> None:
    """Equal rows and no others share a number; the example of a number is its first row."""
    which, example = distinct(*np.array(rows, np.int64).reshape(-1, 3).T)
    firsts = [rows.index(row) for row in rows]
    assert example[which].tolist() == firsts
    assert len(example) == len(set(firsts))


@given(st.lists(KEYS, unique=True), st.lists(KEYS))
def test_lookup(keys: list[int], wanted: list[int]) -> None:
    """The row that holds it, or -1."""
    found = lookup(np.array(keys, np.int32), np.array(wanted, np.int32)).tolist()
    assert found == [keys.index(item) if item in keys else -1 for item in wanted]
