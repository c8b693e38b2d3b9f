"""Arithmetic of unknown numbers: what holds of terms holds whatever the atoms are."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dplcli.shapes.terms import Algebra, Term, add, divide, is_small, multiply, negative

if TYPE_CHECKING:
    from dplcli.shapes.terms import Number

ALGEBRA = Algebra()
ATOMS = [ALGEBRA.atom(name, low=0) for name in "abc"] + [ALGEBRA.atom("z")]
VALUES = [(0, 1, 2, -3), (1, 1, 1, 1), (3, 5, 7, 11), (2, 4, 8, -16)]


def value(number: Number, atoms: tuple[int, ...]) -> int:
    """Compute a term that holds no other atoms than those above."""
    if isinstance(number, int):
        return number
    total = 0
    for serials, factor in number.products.items():
        part = factor
        for serial in serials:
            part *= atoms[serial]
        total += part
    return total


numbers = st.recursive(
    st.integers(-6, 6) | st.sampled_from(ATOMS),
    lambda inner: st.builds(add, inner, inner) | st.builds(multiply, inner, inner),
    max_leaves=5,
)


@given(numbers, numbers)
def test_sums_and_products(first: Number, second: Number) -> None:
    """A term computes as its text does, and a term without atoms is a number."""
    for atoms in VALUES:
        a, b = value(first, atoms), value(second, atoms)

        assert value(add(first, second), atoms) == a + b
        assert value(multiply(first, second), atoms) == a * b
        assert value(negative(first), atoms) == -a
    assert add(first, negative(first)) == 0
    assert add(first, second) == add(second, first)
    assert hash(multiply(first, second)) == hash(multiply(second, first))


@given(numbers, numbers)
def test_division_undoes_multiplication(first: Number, second: Number) -> None:
    """A product is divisible by its factors; what divides gives back the whole."""
    assume(second != 0)

    assert divide(multiply(first, second), second) == first
    quotient = divide(first, second)
    if quotient is not None:
        assert multiply(quotient, second) == first


@pytest.mark.parametrize(("number", "divisor"), list(product(range(-9, 10), [-4, -1, 1, 2, 5])))
def test_numbers_are_divided_as_python_does(number: int, divisor: int) -> None:
    """Rounded down, with what is left."""
    assert ALGEBRA.floor_divide(number, divisor) == number // divisor
    assert ALGEBRA.remainder(number, divisor) == number % divisor


def test_division_by_nothing() -> None:
    """A quotient by zero is some number, not an error: it is never used."""
    assert divide(ATOMS[0], 0) is None
    assert isinstance(ALGEBRA.floor_divide(7, 0), Term)


@pytest.mark.parametrize("more", range(-3, 7))
def test_whole_parts_are_split_off(more: int) -> None:
    """``(4 * n + k) // 4`` is ``n + k // 4``."""
    n = ATOMS[0]
    number = add(multiply(n, 4), more)

    assert ALGEBRA.floor_divide(number, 4) == add(n, more // 4)
    assert ALGEBRA.remainder(number, 4) == more % 4


@given(numbers, numbers)
def test_bounds_and_choices(first: Number, second: Number) -> None:
    """What is said of order is so for all atoms that keep their own bounds."""
    low = ALGEBRA.low(first)
    larger, smaller = ALGEBRA.larger(first, second), ALGEBRA.smaller(first, second)
    for atoms in VALUES:
        a, b = value(first, atoms), value(second, atoms)

        assert low is None or a >= low
        assert not ALGEBRA.is_at_least(first, second) or a >= b
        assert not ALGEBRA.differ(first, second) or a != b
        for chosen, expected in ((larger, max(a, b)), (smaller, min(a, b))):
            if chosen in (first, second):
                assert value(chosen, atoms) == expected


def test_what_is_not_known_is_an_atom_of_its_own() -> None:
    """The same question gets the same atom, another question another one."""
    a, b = ATOMS[0], ATOMS[1]

    assert ALGEBRA.larger(a, b) == ALGEBRA.larger(b, a)
    assert ALGEBRA.larger(a, b) != ALGEBRA.smaller(a, b)
    assert ALGEBRA.floor_divide(a, b) == ALGEBRA.floor_divide(a, b)
    assert ALGEBRA.floor_divide(a, b) != ALGEBRA.floor_divide(b, a)
    assert ALGEBRA.low(ALGEBRA.larger(a, 3)) == 3
    assert ALGEBRA.low(ALGEBRA.smaller(a, 3)) == 0
    assert ALGEBRA.low(ALGEBRA.floor_divide(a, b)) == 0
    assert ALGEBRA.low(ALGEBRA.floor_divide(ATOMS[3], b)) is None


def test_long_terms_are_told_apart() -> None:
    """A term that has grown out of proportion says so."""
    long: Number = 1
    for number in range(40):
        long = multiply(long, add(ALGEBRA.atom(("long", number), low=0), 1) if number < 6 else 1)

    assert is_small(ATOMS[0])
    assert not is_small(long)
    assert repr(add(multiply(ATOMS[0], 2), 3)) == "3 + 2*n0"
