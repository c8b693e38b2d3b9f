"""Numbers that graphs are fed when rules are tried: each manner does what it is for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.pipeline.manners import MANNERS, DrawPlan, Manner, draw

TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "int8",
    "uint8",
    "bool",
    "O",
)
FLOATS = TYPES[:4]
BOUNDS: tuple[Manner, ...] = ("bounds", "second", "third")


def drawn(
    manner: Manner,
    dtype: str = "float32",
    shape: tuple[int, ...] = (40, 50),
    spec: DrawPlan | None = None,
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Draw values of a type that has numbers, and return them as float64."""
    return draw("v", like(dtype, shape), spec or DrawPlan(), manner).astype(np.float64)


def like(dtype: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return an array of a type and shape."""
    if dtype == "O":
        return np.full(shape, "word", object)
    found: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = np.ones(shape, np.dtype(dtype))
    return found


# -- whatever the manner --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_type_and_shape_stay_and_one_name_gives_one_value(dtype: str) -> None:
    """Two runs draw the same, and both models are fed it."""
    shapes: list[tuple[int, ...]] = [(), (1,), (0, 3), (2, 3, 4)]
    for manner, shape in product(MANNERS, shapes):
        first, second = (draw("v", like(dtype, shape), DrawPlan(), manner) for _ in range(2))
        assert (first.dtype, first.shape) == (like(dtype, shape).dtype, shape)
        assert first.tolist() == second.tolist()


def test_other_names_and_manners_give_other_values() -> None:
    """What a place reads is not all the same."""
    some = like("float32", (8, 8))
    found = [draw("v", some, DrawPlan(), manner).tolist() for manner in MANNERS]
    found.append(draw("w", some, DrawPlan(), MANNERS[0]).tolist())
    assert len({str(values) for values in found}) == len(found)


@given(
    dtype=st.sampled_from(["float32", "float16", "float64", "int64", "int8"]),
    manner=st.sampled_from(MANNERS),
    bounds=st.tuples(st.integers(-100, 100), st.integers(0, 100)),
    known=st.integers(-200, 200),
)
def test_nothing_leaves_what_can_be_there(
    dtype: str, manner: Manner, bounds: tuple[int, int], known: int
) -> None:
    """Neither for a constant beyond, nor for a wide manner."""
    low, high = bounds[0], bounds[0] + bounds[1]
    spec = DrawPlan(low=low, high=high, constants=(known,), scale=1e3, wide=1e6)
    found = drawn(manner, dtype, (4, 5), spec)
    assert found.min() >= low
    assert found.max() <= high


@pytest.mark.parametrize("manner", MANNERS)
def test_what_something_is_divided_by_is_never_zero(manner: Manner) -> None:
    """A whole number divided by zero ends the process."""
    spec = DrawPlan(never_zero=True, constants=(0, 1))
    for dtype in ("int64", "int32", "int8", "uint8"):
        assert np.all(drawn(manner, dtype, spec=spec) != 0)
        assert np.all(drawn(manner, dtype, (), spec) != 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_all_floats_are_finite(dtype: str) -> None:
    """However large the constants are for their type."""
    spec = DrawPlan(constants=(1e30, -1e30), scale=1e30, wide=1e36)
    assert all(np.isfinite(drawn(manner, dtype, spec=spec)).all() for manner in MANNERS)


# -- each manner ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_mixed_holds_a_little_of_everything(dtype: str) -> None:
    """Zeros, halves of which many are equal, what lies near a constant, and other numbers."""
    found = drawn("mixed", dtype, spec=DrawPlan(constants=(77,)))
    assert (found == 0).any()
    assert (np.abs(found) == 1.5).sum() > 20
    assert (found == 77).any()
    assert ((found > 70) & (found != 77)).any()
    assert np.unique(found).size > 100


@pytest.mark.parametrize("dtype", FLOATS)
def test_ties_are_few_numbers_with_halves(dtype: str) -> None:
    """In a row of fifty no number is alone."""
    found = drawn("ties", dtype)
    assert set(np.unique(found)) == {number / 2 for number in range(-5, 6)}


@pytest.mark.parametrize(
    ("manner", "constant"), [("bounds", 6.0), ("second", 30.0), ("third", 500.0)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_are_met_from_both_sides(dtype: str, manner: Manner, constant: float) -> None:
    """On a constant, below and above it; now and then at its negative."""
    found = drawn(manner, dtype, spec=DrawPlan(constants=(6.0, 30.0, 500.0)))
    near = found[np.abs(found - constant) <= 0.25]
    assert (near == constant).any()
    assert (near < constant).any()
    assert (near > constant).any()
    assert (found == -constant).any()


@pytest.mark.parametrize("manner", BOUNDS)
def test_with_one_constant_all_stay_near_it(manner: Manner) -> None:
    """There is no second one to take."""
    assert (drawn(manner, spec=DrawPlan(constants=(42.0,))) == 42).any()


def test_wide_values_of_tiny_ones() -> None:
    """What was seen may be far smaller than one."""
    assert np.isfinite(drawn("wide", spec=DrawPlan(scale=1e-12))).all()


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_wide_goes_from_tiny_to_large(scale: float) -> None:
    """Of both signs, and beyond what the original computes there."""
    found = drawn("wide", spec=DrawPlan(scale=scale))
    assert np.abs(found).min() < 1e-6
    assert found.min() < -2 * scale
    assert found.max() > 2 * scale
    assert drawn("wide", spec=DrawPlan(scale=scale, wide=1e6)).max() > 1e5


def test_wide_whole_numbers_are_large() -> None:
    """Those of 64 bits are larger than 32 bits hold."""
    found = drawn("wide", "int64")
    assert found.max() > 2**36
    assert found.min() < -(2**36)
    assert (drawn("wide", "int8").max(), drawn("wide", "int8").min()) == (127, -127)


@pytest.mark.parametrize("dtype", FLOATS)
def test_flat_rows_are_one_number_each(dtype: str) -> None:
    """And the first of them is zero."""
    found = drawn("flat", dtype)
    assert (found == found[:, :1]).all()
    assert (found[0] == 0).all()
    assert np.unique(found[:, 0]).size > 10
    whole = drawn("flat", "int64")
    assert (whole == whole[:, :1]).all()


@pytest.mark.parametrize(("constants", "most"), [((), 1e-5), ((3.0, 1e-12), 1e-11)])
def test_tiny_numbers_are_as_small_as_the_smallest_constant(
    constants: tuple[float, ...], most: float
) -> None:
    """An epsilon decides there."""
    found = drawn("tiny", spec=DrawPlan(constants=constants))
    assert 0 < np.abs(found).max() < most
    assert (found == 0).any()
    assert (found < 0).any()


def test_small_types_are_drawn_in_full() -> None:
    """All codes of eight bits, in the mixed manner."""
    found = draw("v", like("int8", (200, 50)), DrawPlan(), "mixed")
    assert set(found.reshape(-1).tolist()) == set(range(-127, 128))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_unsigned_numbers_may_be_zero(dtype: str) -> None:
    """A mask is zero somewhere, and a pixel may be black."""
    assert any((drawn(manner, dtype) == 0).any() for manner in MANNERS)


def test_a_single_whole_number_is_at_a_bound_and_beyond() -> None:
    """On a constant, just above, and just below it."""
    spec = DrawPlan(constants=(512, 100))
    found = {manner: int(drawn(manner, "int64", (), spec)) for manner in MANNERS}
    assert {found["bounds"], found["mixed"], found["second"]} == {512, 513, 511}
    assert {found["third"], found["tiny"]} == {100, 101}


def test_whole_numbers_are_near_constants() -> None:
    """Some on them, others beside them."""
    found = drawn("bounds", "int64", spec=DrawPlan(constants=(50256,)))
    assert {50255, 50256, 50257}.issubset(np.unique(found))


def test_truth_is_mixed_or_all_one() -> None:
    """A single one is true in some manners, and false in others."""
    assert drawn("wide", "bool").all()
    assert not drawn("flat", "bool").any()
    assert 0.4 < drawn("mixed", "bool").mean() < 0.6
    assert {bool(drawn(manner, "bool", ())) for manner in MANNERS} == {True, False}


def test_text_is_of_several_words() -> None:
    """One of them is empty."""
    assert len({*draw("v", like("O", (400,)), DrawPlan(), "mixed").tolist()} | {""}) == 6
