"""Extents that depend on the model's inputs: polynomials over named unknowns.

``batch * seq`` over ``seq`` is ``batch``, and ``past + seq`` is another number than ``seq``; with
that, most of what exporters compute to shape a Reshape can be followed. Only equality can be
proven: two sizes that are not equal as polynomials may still be equal when the model runs.
"""

from __future__ import annotations

from typing import TypeAlias

Monomial: TypeAlias = tuple[str, ...]

_MOST_TERMS = 16
_HIGHEST_DEGREE = 8
_LONGEST_NAME = 200


class TooComplexError(Exception):
    """A size has become too large to be of use."""


class Size:
    """A polynomial with whole coefficients that is no plain number; numbers are ``int``.

    Unknowns are extents, so never negative.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: frozenset[tuple[Monomial, int]]) -> None:
        """Take the terms as they are; :func:`unknown` and arithmetic make sizes."""
        self.terms = terms

    def __repr__(self) -> str:
        """Read as a sum of products: ``2*batch*seq + 1``."""
        ordered = sorted(self.terms, key=lambda term: (-len(term[0]), term))
        return " + ".join(_written(names, factor) for names, factor in ordered)

    def __eq__(self, other: object) -> bool:
        """Tell whether both are provably equal."""
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self.terms)

    def __add__(self, other: Extent) -> Extent:
        """Add term by term."""
        sums = dict(self.terms)
        for names, factor in _terms(other):
            sums[names] = sums.get(names, 0) + factor
        return _normal(sums)

    def __neg__(self) -> Extent:
        """Turn every sign."""
        return self * -1

    def __sub__(self, other: Extent) -> Extent:
        """Subtract term by term."""
        return self + other * -1

    def __rsub__(self, other: int) -> Extent:
        """Subtract from a number."""
        return self * -1 + other

    def __mul__(self, other: Extent) -> Extent:
        """Multiply each term with each."""
        products: dict[Monomial, int] = {}
        for names, factor in self.terms:
            for more, by in _terms(other):
                key = tuple(sorted(names + more))
                products[key] = products.get(key, 0) + factor * by
        return _normal(products)

    __radd__ = __add__
    __rmul__ = __mul__


Extent: TypeAlias = int | Size


def is_never_negative(extent: Extent) -> bool:
    """Tell whether *extent* is 0 or more whatever the unknowns are."""
    return all(factor >= 0 for _, factor in _terms(extent))


def unknown(name: str) -> Size:
    """Return the extent called *name*; the same name is the same extent."""
    return Size(frozenset({((name,), 1)}))


def quotient(dividend: Extent, divisor: Extent) -> Extent:
    """Divide, rounding towards zero; a quotient that cannot be told is an unknown of its own.

    Raises:
        ZeroDivisionError: The divisor is 0.
    """
    if divisor == 0:
        raise ZeroDivisionError
    if isinstance(dividend, int) and isinstance(divisor, int):
        rounded = abs(dividend) // abs(divisor)
        return rounded if (dividend < 0) == (divisor < 0) else -rounded
    exact = exact_quotient(dividend, divisor)
    return _combined("/", dividend, divisor) if exact is None else exact


def exact_quotient(dividend: Extent, divisor: Extent) -> Extent | None:
    """Divide; None if there is a remainder, or might be one."""
    if dividend == divisor:
        return 1
    divisors = _terms(divisor)
    if len(divisors) != 1:
        return None
    ((names, factor),) = divisors
    quotients: dict[Monomial, int] = {}
    for names_above, factor_above in _terms(dividend):
        left = _without(names_above, names)
        if left is None or factor == 0 or factor_above % factor:
            return None
        quotients[left] = factor_above // factor
    return _normal(quotients)


def remainder(dividend: Extent, divisor: Extent) -> Extent:
    """Return what the division leaves over; an unknown of its own if that cannot be told.

    Raises:
        ZeroDivisionError: The divisor is 0.
    """
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend % divisor
    if exact_quotient(dividend, divisor) is not None:
        return 0
    return _combined("%", dividend, divisor)


def minimum(extent: Extent, number: int) -> Extent:
    """Return the smaller one; an unknown of its own if that cannot be told."""
    if isinstance(extent, int):
        return min(extent, number)
    name = f"{_minimum_of(extent)}{number})"
    if len(name) > _LONGEST_NAME:
        raise TooComplexError
    return unknown(name)


def is_minimum_of(extent: Extent, other: Extent) -> bool:
    """Tell whether *extent* is what :func:`minimum` made of *other*."""
    if not isinstance(extent, Size) or len(extent.terms) != 1:
        return False
    ((names, factor),) = extent.terms
    return factor == len(names) == 1 and names[0].startswith(_minimum_of(other))


def _minimum_of(extent: Extent) -> str:
    return f"min({extent!r}; "


def _combined(sign: str, left: Extent, right: Extent) -> Size:
    name = f"({left!r} {sign} {right!r})"
    if len(name) > _LONGEST_NAME:
        raise TooComplexError
    return unknown(name)


def _terms(extent: Extent) -> frozenset[tuple[Monomial, int]]:
    if isinstance(extent, Size):
        return extent.terms
    return frozenset({((), extent)}) if extent else frozenset()


def _normal(terms: dict[Monomial, int]) -> Extent:
    kept = {names: factor for names, factor in terms.items() if factor}
    if kept.keys() <= {()}:
        return kept.get((), 0)
    if len(kept) > _MOST_TERMS or max(map(len, kept)) > _HIGHEST_DEGREE:
        raise TooComplexError
    return Size(frozenset(kept.items()))


def _without(names: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(names)
    for name in divisor:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def _written(names: Monomial, factor: int) -> str:
    if not names:
        return str(factor)
    product = "*".join(names)
    return product if factor == 1 else f"{factor}*{product}"
