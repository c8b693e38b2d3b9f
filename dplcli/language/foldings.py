"""What tools make of constants ahead of time: expressions that may give one that they wrote."""

from __future__ import annotations

import math
from itertools import combinations, islice, permutations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dplcli.errors import PatternSyntaxError
from dplcli.language.conditions import Expression, UnknownFactError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Value
    from dplcli.ir.types import Tensor

    Array: TypeAlias = NDArray[Any]


_ROUNDING = 1e-4
"""How far a constant may be from an expression: tools compute in other types and orders."""

_MOST_GUESSES = 3000
"""How many expressions are tried for one constant or attribute."""

_OF_ONE = (
    *("cast({0}, {dtype})", "transpose({0})", "squeeze({0})"),
    *("-{0}", "1 / {0}", "sqrt({0})", "rsqrt({0})", "exp({0})"),
    *(f"unsqueeze({{0}}, {axes})" for axes in ([0], [1], [-1], [0, 1], [1, 2], [0, 1, 2])),
)
_OF_TWO = (
    *(f"{{0}} {sign} {{1}}" for sign in "*+-/"),
    *(f"{{0}} {sign} along({{1}}, {axis}, {{rank}})" for axis in (0, 1) for sign in "*/"),
    "{0} + reshape({1}, [-1])",
)
_SCALE = "{1} / sqrt({4} + {epsilon})"
_OF_NORMALISATION = (
    f"{{2}} - {{3}} * ({_SCALE})",
    *(f"{{0}} * along({_SCALE}, {axis}, {{rank}})" for axis in (0, 1)),
    f"({{0}} - {{3}}) * ({_SCALE}) + {{2}}",
)
"""Of any constant, and the scale, bias, mean and variance of a batch normalisation."""


def foldings(
    sizes: Mapping[str, int],
    wanted: Tensor,
    perms: Sequence[str],
    norms: Sequence[tuple[str, ...]],
    *,
    is_shaped: bool,
) -> Iterator[str]:
    """Yield expressions over constants that may give one of so many elements, likely ones first.

    Args:
        sizes: How many elements each constant has, by its name.
        wanted: What they should give.
        perms: Names of orders of axes.
        norms: Names of the constants of each batch normalisation, and of its epsilon.
        is_shaped: Whether its shape may be written down.
    """
    turned = [f"transpose({{0}}, {perm})" for perm in perms]
    turned += [f"reshape({{0}}, {[*wanted.shape]})"] if is_shaped else []
    rows: list[tuple[Iterable[str], Iterable[tuple[str, ...]]]] = [
        (["{0}"], zip(sizes)),
        ([*turned, *_OF_ONE], zip(sizes)),
        (_OF_TWO, permutations(sizes, 2)),
    ]
    for *names, epsilon in norms:
        texts = [text.replace("{epsilon}", epsilon) for text in _OF_NORMALISATION]
        rows.append((texts, [(one, *names) for one in sizes]))
    large = [name for name, size in sizes.items() if size > 1]
    for those in ("{0}, {1}", "{0}, {1}, {2}", "{0}, {1}, {2}, {3}"):
        texts = [f"concat([{those}], {axis})" for axis in (0, -1)]
        rows.append((texts, combinations(large, those.count("{"))))
    for templates, every in rows:
        for chosen, text in ((chosen, text) for chosen in every for text in templates):
            used = [sizes[name] for n, name in enumerate(chosen) if f"{{{n}}}" in text]
            is_joined = text.startswith("concat")
            least, most = (sum(used),) * 2 if is_joined else (max(used), math.prod(used))
            if least <= wanted.size <= most:
                values = (f"{name}.value" for name in chosen)
                yield text.format(*values, rank=f"{chosen[0]}.rank", dtype=repr(wanted.dtype))


def first_fitting(
    guesses: Iterable[str],
    captures: Mapping[str, str],
    fits: Callable[[object, Any], bool],
    cases: Sequence[tuple[Callable[[str], Value], Any]],
) -> Expression | None:
    """Return the first expression that gives what is wanted in each case.

    Args:
        guesses: The expressions.
        captures: Names that stand for an attribute; more may come as guesses are made.
        fits: Tells whether what an expression gives is what is wanted.
        cases: Which values the names stand for, and what is wanted.
    """
    for guess in islice(guesses, _MOST_GUESSES):
        try:
            expression = Expression(guess, "replacement", captures)
            if all(
                fits(expression.value({name: value_of(name) for name in expression.names}), wanted)
                for value_of, wanted in cases
            ):
                return expression
        except (PatternSyntaxError, UnknownFactError, ValueError, TypeError):
            continue
    return None


def is_value(value: object, wanted: object) -> bool:
    """Tell whether an expression gives an attribute's value."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.reshape(()).item() if value.size == 1 else value.tolist()
    if isinstance(wanted, float) and isinstance(value, (int, float)):
        return math.isclose(value, wanted, rel_tol=1e-6)
    value = tuple(value) if isinstance(value, list) else value
    return type(value) is type(wanted) and value == wanted


def is_like(value: object, wanted: Array) -> bool:
    """Tell whether an expression gives a constant, up to rounding."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return False
    array = np.asarray(value)
    return (array.dtype, array.shape) == (wanted.dtype, wanted.shape) and is_near(array, wanted)


def is_near(array: Array, wanted: Array) -> bool:
    """Tell whether two arrays of one type and shape are equal up to rounding."""
    if wanted.dtype.kind != "f" or not wanted.size:
        return bool(np.array_equal(array, wanted))
    scale = float(np.max(np.abs(wanted), initial=0.0))
    with np.errstate(all="ignore"):
        return bool(np.allclose(array, wanted, rtol=_ROUNDING, atol=1e-6 * scale, equal_nan=True))
