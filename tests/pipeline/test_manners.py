"""Numbers that graphs are fed when rules are tried: each manner does what it is for."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from dplcli.pipeline.manners import Manner, Oddity, draw
from dplcli.verify.draw_specs import DrawSpec

ODDITIES: tuple[Manner, ...] = get_args(Oddity)
MANNERS: tuple[Manner, ...] = ("mixed", "ties", "bounds", "wide", "flat", "tiny", *ODDITIES)
FLOATS = ("float32", "float16", "bfloat16", "float64")
WHOLE = ("int64", "int32", "int8", "uint8", "uint32", "uint64")
PLAIN = DrawSpec(scale=2.0)
BIG = {
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float64": 1.7976931348623157e308,
}


def like(dtype: str, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return an array of a type and shape."""
    found: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = np.ones(shape, np.dtype(dtype))
    return found.astype(str).astype(object) if dtype == "O" else found


def drawn(
    manner: Manner, dtype: str = "float32", spec: DrawSpec = PLAIN, wide: float = 350.0
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Draw many numbers, and return them as float64."""
    return draw("v", like(dtype, 40, 50), spec, manner, wide).astype(np.float64)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, "bool", "O"])
def test_type_and_shape_stay_and_one_name_gives_one_value(dtype: str, manner: Manner) -> None:
    """Two runs draw the same, and both graphs are fed it."""
    for shape in ((), (1,), (0, 3), (2, 3, 4)):
        first, second = (draw("v", like(dtype, *shape), PLAIN, manner, 350.0) for _ in range(2))
        assert (first.dtype, first.shape) == (like(dtype, *shape).dtype, shape)
        assert str(first.tolist()) == str(second.tolist())


def test_other_names_and_manners_give_other_values() -> None:
    """What a graph reads is not all the same."""
    found = [drawn(manner).tolist() for manner in MANNERS]
    found.append(draw("w", like("float32", 40, 50), PLAIN, "mixed").tolist())
    assert len({str(values) for values in found}) == len(found)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_what_something_is_divided_by_is_never_zero(dtype: str, manner: Manner) -> None:
    """A whole number divided by zero ends the process, as the lowest one does, divided by -1."""
    spec = DrawSpec(never_zero=True, constants=(0, 1))
    found = draw("v", like(dtype, 40, 50), spec, manner).reshape(-1).tolist()
    assert 0 not in found
    assert min(found) > int(np.iinfo(dtype).min)


@pytest.mark.parametrize("dtype", FLOATS)
def test_mixed_holds_a_little_of_everything(dtype: str) -> None:
    """Halves of which many are equal, constants, and other numbers."""
    found = drawn("mixed", dtype, DrawSpec(scale=2.0, constants=(77,)))
    assert {77, 1.5, -2.5} <= {*found.reshape(-1)}
    assert (found == 1.5).sum() > 20
    assert np.unique(found).size > 100


def test_bounds_are_met_from_both_sides() -> None:
    """On each constant, below and above it."""
    found = drawn("bounds", spec=DrawSpec(constants=(6.0, 500.0)))
    for constant in (6.0, 500.0):
        assert (found == constant).any()
        assert ((constant * 0.8 < found) & (found < constant)).any()
        assert ((constant < found) & (found < constant * 1.2)).any()


def test_wide_goes_from_tiny_to_large() -> None:
    """Of both signs; whole numbers are larger than 32 bits hold, halves no larger than 16."""
    found = drawn("wide")
    assert np.abs(found).min() < 1e-6
    assert found.min() < -200
    assert 200 < found.max() < 500
    assert np.abs(drawn("wide", "float16")).max() < 20
    assert drawn("wide", "int64", wide=np.inf).max() > 2**36


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_flat_rows_are_one_number_each(dtype: str) -> None:
    """Not all the same one."""
    found = drawn("flat", dtype)
    assert np.unique(found).size > 10
    assert (found == found[:, :1]).all()


@pytest.mark.parametrize(("constants", "most"), [((), 2e-5), ((3.0, 1e-12), 2e-11)])
def test_tiny_numbers_are_as_small_as_the_smallest_constant(
    constants: tuple[float, ...], most: float
) -> None:
    """An epsilon decides there."""
    found = drawn("tiny", spec=DrawSpec(constants=constants))
    assert 0 < np.abs(found).max() < most
    assert (found == 0).any()
    assert (found < 0).any()


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE])
def test_edges_are_the_ends_of_the_type(dtype: str) -> None:
    """All of them finite."""
    kind = np.dtype(dtype)
    is_whole = kind.kind in "iu"
    most = np.iinfo(kind).max if is_whole else np.array(BIG[dtype]).astype(kind).item()
    values = draw("v", like(dtype, 40, 50), DrawSpec(), "edges")
    assert {*values.reshape(-1).tolist()} >= {most}
    assert (values == 0).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_odd_floats_stand_among_others(dtype: str) -> None:
    """One kind at a time."""
    assert 0.2 < np.isnan(drawn("nan", dtype)).mean() < 0.8
    infinite = drawn("inf", dtype)
    assert {-np.inf, np.inf} <= {*infinite.reshape(-1)}
    assert not np.isnan(infinite).any()
    zeros = drawn("zero_sign", dtype)
    assert {True, False} == {*np.signbit(zeros[zeros == 0])}
    assert np.isfinite(zeros).all()
