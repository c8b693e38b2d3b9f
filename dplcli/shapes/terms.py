"""Sums of products of unknown whole numbers: ``batch * (past + seq) * 64``.

A number that nothing is known of is an atom: equal to itself and to nothing else. So nothing is
ever unknown here, and equality of terms is equality for all values of the atoms.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


_MOST_PRODUCTS = 32

Product: TypeAlias = tuple[int, ...]
"""Serial numbers of atoms, in order; one that comes twice is squared."""


class Term:
    """A whole number that depends on atoms; immutable, and never just a number.

    Attributes:
        products: The factor of each product of atoms; the empty product is 1.
    """

    __slots__ = ("_hash", "products")

    def __init__(self, products: Mapping[Product, int]) -> None:
        """Add up *products*."""
        self.products = products
        self._hash = hash(frozenset(products.items()))

    def __eq__(self, other: object) -> bool:
        """Tell whether both are equal whatever the atoms are."""
        return isinstance(other, Term) and self.products == other.products

    def __hash__(self) -> int:
        """Equal terms have equal hashes."""
        return self._hash

    def __repr__(self) -> str:
        """Show the products by serial numbers."""
        parts = [
            "*".join([str(factor), *(f"n{serial}" for serial in product)])
            for product, factor in sorted(self.products.items())
        ]
        return " + ".join(parts)


Number: TypeAlias = int | Term


class Algebra:
    """Makes atoms and computes with terms."""

    def __init__(self) -> None:
        self._lows: list[int | None] = []
        self._plain: list[bool] = []
        self._known: dict[Hashable, Term] = {}
        self._keys: list[Hashable] = []
        self._minima: dict[Term, frozenset[Number]] = {}

    def atom(self, key: Hashable, *, low: int | None = None, plain: bool = False) -> Term:
        """Return the atom for *key*, which is the same one each time.

        Args:
            key: What it stands for.
            low: A number that it is never below, if there is one.
            plain: Whether it is a size that the caller of the model chooses.
        """
        atom = self._known.get(key)
        if atom is None:
            atom = self._known[key] = Term({(len(self._lows),): 1})
            self._lows.append(low)
            self._plain.append(plain)
            self._keys.append(key)
        return atom

    def is_plain(self, number: Number) -> bool:
        """Tell whether *number* depends on nothing but sizes that the caller chooses."""
        return isinstance(number, int) or all(
            self._plain[serial] for product in number.products for serial in product
        )

    # -- sizes that meet -----------------------------------------------------------------------

    def meet(self, sizes: frozenset[Number]) -> Term:
        """Return what different sizes broadcast to: if none of them is 1, all are equal."""
        return self.atom(("met", sizes), low=0)

    @property
    def meetings(self) -> list[frozenset[Number]]:
        """The sizes that have met so far."""
        return [key[1] for key in self._keys if isinstance(key, tuple) and key[0] == "met"]

    # -- bounds --------------------------------------------------------------------------------

    def low(self, number: Number) -> int | None:
        """Return a number that *number* is never below, or None."""
        if isinstance(number, int):
            return number
        total = 0
        for product, factor in number.products.items():
            least = factor
            for serial in product:
                low = self._lows[serial]
                if low is None or low < 0 or factor < 0:
                    return None
                least *= low
            total += least
        return total

    def is_at_least(self, number: Number, other: Number) -> bool:
        """Tell whether *number* is provably not below *other*."""
        low = self.low(add(number, negative(other)))
        return low is not None and low >= 0

    def differ(self, first: Number, second: Number) -> bool:
        """Tell whether both are provably different."""
        return any(
            (low := self.low(add(a, negative(b)))) is not None and low > 0
            for a, b in ((first, second), (second, first))
        )

    # -- division ------------------------------------------------------------------------------

    def floor_divide(self, number: Number, divisor: Number) -> Number:
        """Divide and round down; ``divisor`` is never 0 where the result is used."""
        if isinstance(number, int) and isinstance(divisor, int):
            return number // divisor if divisor else self.atom(("/0", number))
        exact = divide(number, divisor)
        if exact is not None:
            return exact
        whole: Number = 0
        if isinstance(divisor, int) and divisor > 0 and isinstance(number, Term):
            split = {p: f // divisor for p, f in number.products.items() if f % divisor == 0}
            whole = _number({**split, (): number.products.get((), 0) // divisor})
            number = add(number, negative(multiply(whole, divisor)))
        low = 0 if self.is_at_least(number, 0) and self.is_at_least(divisor, 0) else None
        if isinstance(number, int):
            return (
                add(whole, number // divisor)
                if isinstance(divisor, int)
                else self._ratio(number, divisor, low)
            )
        return add(whole, self._ratio(number, divisor, low))

    def _ratio(self, number: Number, divisor: Number, low: int | None) -> Term:
        return self.atom(("//", number, divisor), low=low)

    def remainder(self, number: Number, divisor: Number) -> Number:
        """Return what :meth:`floor_divide` leaves."""
        quotient = self.floor_divide(number, divisor)
        return add(number, negative(multiply(quotient, divisor)))

    # -- choices -------------------------------------------------------------------------------

    def larger(self, first: Number, second: Number) -> Number:
        """Return the larger of two numbers."""
        if self.is_at_least(first, second):
            return first
        if self.is_at_least(second, first):
            return second
        lows = [low for low in (self.low(first), self.low(second)) if low is not None]
        return self.atom(("max", frozenset((first, second))), low=max(lows, default=None))

    def smaller(self, first: Number, second: Number) -> Number:
        """Return the smaller of two numbers."""
        if self.is_at_least(second, first):
            return first
        if self.is_at_least(first, second):
            return second
        lows = (self.low(first), self.low(second))
        low = None if lows[0] is None or lows[1] is None else min(lows[0], lows[1])
        operands = frozenset((first, second))
        minimum = self.atom(("min", operands), low=low)
        self._minima[minimum] = operands
        return minimum

    def is_cut_from(self, number: Number, whole: Number) -> bool:
        """Tell whether *number* is the smaller one of *whole* and some number above 1."""
        operands = self._minima.get(number, frozenset()) if isinstance(number, Term) else ()
        rest = [operand for operand in operands if operand != whole]
        return whole in operands and all(isinstance(n, int) and n > 1 for n in rest)

    # -- reading -------------------------------------------------------------------------------

    def meaning(self, number: Term) -> Hashable:
        """Return the key of a number that is one atom; None if it is not."""
        (product, factor), *others = number.products.items()
        is_atom = factor == 1 and len(product) == 1 and not others
        return self._keys[product[0]] if is_atom else None

    def summands(self, number: Term) -> list[Any]:
        """Return the keys of the atoms, and the number, that *number* is the sum of; [] if none."""
        parts: list[Any] = []
        for product, times in number.products.items():
            if len(product) > 1 or times < 0:
                return []
            parts += [self._keys[product[0]]] * times if product else [times]
        return parts

    def written(self, number: Number, name_of: Callable[[Hashable], str | None]) -> str:
        """Write *number* with names for the atoms, from their keys; the largest products first."""
        if isinstance(number, int):
            return str(number)
        products = sorted(number.products.items(), key=lambda item: (-len(item[0]), item))
        return " + ".join(
            "*".join(
                [str(factor)] * (factor != 1 or not product)
                + [name_of(self._keys[serial]) or f"n{serial}" for serial in product]
            )
            for product, factor in products
        )


def add(first: Number, second: Number) -> Number:
    """Add two numbers."""
    if isinstance(first, int) and isinstance(second, int):
        return first + second
    total = Counter(_products(first))
    for product, factor in _products(second).items():
        total[product] += factor
    return _number(total)


def negative(number: Number) -> Number:
    """Return the number with the other sign."""
    return multiply(number, -1)


def multiply(first: Number, second: Number) -> Number:
    """Multiply two numbers."""
    if isinstance(first, int) and isinstance(second, int):
        return first * second
    total: Counter[Product] = Counter()
    for left, factor in _products(first).items():
        for right, other in _products(second).items():
            total[tuple(sorted(left + right))] += factor * other
    return _number(total)


def is_small(number: Number) -> bool:
    """Tell whether a number is short enough to go on computing with."""
    return isinstance(number, int) or (
        len(number.products) <= _MOST_PRODUCTS
        and all(len(p) <= _MOST_PRODUCTS for p in number.products)
    )


def divide(number: Number, divisor: Number) -> Number | None:
    """Divide if nothing is left whatever the atoms are, else return None.

    Where the divisor is 0 the quotient means nothing.
    """
    if divisor == 0:
        return None
    quotient: Number = 0
    rest = number
    lead, lead_factor = max(_products(divisor).items(), key=_degree)
    for _ in range(_MOST_PRODUCTS):
        if rest == 0:
            return quotient
        product, factor = max(_products(rest).items(), key=_degree)
        left = Counter(product)
        left.subtract(lead)
        if factor % lead_factor or min(left.values(), default=0) < 0:
            return None
        part = _number({tuple(sorted(left.elements())): factor // lead_factor})
        quotient = add(quotient, part)
        rest = add(rest, negative(multiply(part, divisor)))
    return None


def _degree(item: tuple[Product, int]) -> tuple[int, Product]:
    """Order products: the largest one of a product of terms is the product of their largest."""
    product, _ = item
    return len(product), product


def _products(number: Number) -> Mapping[Product, int]:
    return {(): number} if isinstance(number, int) else number.products


def _number(products: Mapping[Product, int]) -> Number:
    kept = {product: factor for product, factor in products.items() if factor}
    if not kept:
        return 0
    if kept.keys() == {()}:
        return kept[()]
    return Term(kept)
