"""Sizes as polynomials: what is equal for all values of the unknowns, and nothing else."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir.symbolic.size import (
    Size,
    TooComplexError,
    exact_quotient,
    is_minimum_of,
    is_never_negative,
    minimum,
    quotient,
    remainder,
    unknown,
)

if TYPE_CHECKING:
    from dplcli.ir.symbolic.size import Extent

A, B, C = unknown("a"), unknown("b"), unknown("c")
VALUES = {"a": 3, "b": 5, "c": 7}


def value_of(extent: Extent) -> int:
    """Put numbers in the place of the unknowns."""
    if isinstance(extent, int):
        return extent
    total = 0
    for names, factor in extent.terms:
        for name in names:
            factor *= VALUES[name]  # noqa: PLW2901  # a product
        total += factor
    return total


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    """Make a small polynomial."""
    total: Extent = draw(st.integers(-3, 3))
    for _ in range(draw(st.integers(0, 3))):
        term: Extent = draw(st.integers(-3, 3))
        for name in draw(st.lists(st.sampled_from("abc"), max_size=2)):
            term = term * unknown(name)
        total = total + term
    return total


@given(extents(), extents())
def test_arithmetic_agrees_with_numbers(first: Extent, second: Extent) -> None:
    """Sums, differences and products are those of the numbers."""
    assert value_of(first + second) == value_of(first) + value_of(second)
    assert value_of(first - second) == value_of(first) - value_of(second)
    assert value_of(first * second) == value_of(first) * value_of(second)


@given(extents(), extents())
def test_what_was_multiplied_can_be_divided(first: Extent, second: Extent) -> None:
    """An exact quotient is one, and a product by a single term has one."""
    product = first * second
    if second != 0:
        found = exact_quotient(product, second)
        assert found is None or found * second == product
        if isinstance(second, int) or len(second.terms) == 1:
            assert found == first


@given(extents(), extents())
def test_equal_sizes_are_equal_numbers(first: Extent, second: Extent) -> None:
    """Nothing is called equal that is not."""
    if first == second:
        assert value_of(first) == value_of(second)
        assert hash(first) == hash(second)


@given(extents())
def test_a_constant_is_a_number(extent: Extent) -> None:
    """What no unknown is left in is an int, so that it compares with numbers."""
    left = extent - extent

    assert type(left) is int
    assert left == 0


def test_sizes_read_as_sums_of_products() -> None:
    """A message shows what a dimension is."""
    assert repr(A * B * 2 + C + 1) == "2*a*b + c + 1"


@pytest.mark.parametrize(("dividend", "divisor"), [*itertools.product([7, -7, 6], [2, -2, 3])])
def test_numbers_are_divided_as_onnx_does(dividend: int, divisor: int) -> None:
    """Division of whole numbers rounds towards zero."""
    assert quotient(dividend, divisor) == int(dividend / divisor)


def test_a_quotient_that_cannot_be_told_is_itself() -> None:
    """The same division is the same unknown, another one is another."""
    assert quotient(A, 2) == quotient(A, 2)
    assert quotient(A, 2) != quotient(A, 3)
    assert quotient(A * 4, 2) == A * 2
    assert quotient(A * B, B) == A


def test_remainders() -> None:
    """What divides leaves nothing."""
    assert remainder(A * 6, 3) == 0
    assert remainder(7, 3) == 1
    assert remainder(A, 3) == remainder(A, 3)


@pytest.mark.parametrize("divide", [quotient, remainder])
def test_nothing_is_divided_by_zero(divide: object) -> None:
    """That is an error."""
    with pytest.raises(ZeroDivisionError):
        divide(A if divide is quotient else 1, 0)  # type: ignore[operator]  # one of two functions


def test_signs() -> None:
    """Unknowns are extents: 0 or more."""
    assert is_never_negative(A * B + 1)
    assert is_never_negative(0)
    assert not is_never_negative(A - B)
    assert not is_never_negative(A - 1)


def test_minima_know_what_they_are_of() -> None:
    """A minimum of something is known by that, and of nothing else."""
    least = minimum(A + 1, 512)

    assert is_minimum_of(least, A + 1)
    assert not is_minimum_of(least, A)
    assert not is_minimum_of(A, A)
    assert minimum(3, 512) == 3


def test_large_polynomials_are_given_up() -> None:
    """A size that has become too large to be of use says so."""
    names = [unknown(f"n{number}") for number in range(100)]
    with pytest.raises(TooComplexError):
        sum(names)
    with pytest.raises(TooComplexError):
        math.prod([A] * 100)


def test_a_size_is_no_number() -> None:
    """Numbers are ints: a Size always has an unknown in it."""
    assert isinstance(A, Size)
    assert A != 3
