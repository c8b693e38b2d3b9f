"""Which casts lose nothing, against the numbers themselves."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from dplcli.language.conditions import widens

FLOATS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)]
TYPES = ["bool", *INTEGERS, *FLOATS]


def bounds(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def extremes(dtype: str) -> list[Fraction]:
    """Return the numbers of a type that are the hardest to hold elsewhere."""
    if dtype == "bool":
        return [Fraction(0), Fraction(1)]
    if dtype in FLOATS:
        info = ml_dtypes.finfo(np.dtype(FLOATS[dtype]))  # type: ignore[no-untyped-call]  # untyped
        numbers = (info.max, info.min, info.smallest_subnormal, info.tiny, 1 + float(info.eps))
        return [Fraction(float(number)) for number in numbers]
    low, high = bounds(dtype)
    return [Fraction(number) for number in (low, high, high // 2, low // 2)]


def holds(dtype: str, number: Fraction) -> bool:
    """Tell whether a type has *number* itself."""
    if dtype == "bool":
        return number in {0, 1}
    if dtype not in FLOATS:
        low, high = bounds(dtype)
        return number.denominator == 1 and low <= number <= high
    if Fraction(float(number)) != number:
        return False
    with np.errstate(all="ignore"):
        made = float(np.float64(float(number)).astype(np.dtype(FLOATS[dtype])))
    return bool(np.isfinite(made)) and Fraction(made) == number


@pytest.mark.parametrize("source", TYPES)
def test_a_wider_type_holds_the_extremes_of_the_narrower(source: str) -> None:
    """``widens`` says yes exactly where the target has every extreme number of the source."""
    found = {target for target in TYPES if widens(source, target)}
    expected = {
        target for target in TYPES if all(holds(target, number) for number in extremes(source))
    }

    assert found == expected


def test_nothing_is_said_of_unlisted_types() -> None:
    """Text and complex numbers are within themselves only."""
    for source, target in product(["string", "complex64", "nonsense"], ["float64", "complex128"]):
        assert not widens(source, target)
    assert widens("string", "string")
