"""The figures of a comparison that reports draw and count."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.verify import OutputComparison, VerificationResult

_TENTH = 0.1
_TWO_DIGITS = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)


@dataclass(frozen=True)
class Bin:
    """Some elements whose error is about the same.

    Attributes:
        label: How large it is, such as '4-7'.
        count: How many elements there are.
    """

    label: str
    count: int


def comparisons(result: VerificationResult) -> tuple[OutputComparison, ...]:
    """Return every comparison that was made: of each output at each level, for each seed."""
    return tuple(each for output in result.outputs for each in output.by_seed or (output,))


def share_of_tolerance(output: OutputComparison) -> float | None:
    """Return the largest error as a share of the tolerance: above 1 it does not pass.

    None where it is not known: the output is no number, or NaN or infinity differ.
    """
    if output.max_abs == 0 and output.ok:
        return 0.0
    figures = output.figures
    for needed, given in ((figures.needed_atol, output.atol), (figures.needed_rtol, output.rtol)):
        if needed is not None and given > 0 and math.isfinite(needed):
            return needed / given
    return None


def needed_tolerances(outputs: Sequence[OutputComparison]) -> dict[str, str]:
    """Return with which tolerances outputs that fail would pass, as --tolerance takes them.

    An output that no tolerance helps is left out.
    """
    failing = dict.fromkeys(output.name for output in outputs if not output.ok)
    found = {}
    for name in failing:
        compared = [each for o in outputs if o.name == name for each in o.by_seed or (o,)]
        needed = [each.figures for each in compared]
        limits = {
            "rtol": [figures.needed_rtol for figures in needed],
            "atol": [figures.needed_atol for figures in needed],
        }
        known = {kind: [n for n in numbers if n is not None] for kind, numbers in limits.items()}
        if known == limits:
            found[name] = ",".join(
                f"{kind}:{_rounded_up(max(numbers))}" for kind, numbers in known.items() if numbers
            )
    return found


def _rounded_up(number: float) -> str:
    """Return two digits of a number that are no less than it."""
    return f"{float(_TWO_DIGITS.create_decimal_from_float(number)):g}"


def error_bins(output: OutputComparison) -> tuple[Bin, ...]:
    """Return how many elements are so many representable numbers apart, neighbours first."""
    counts = enumerate(output.figures.ulp_histogram)
    return tuple(Bin(_range(power), count) for power, count in counts)


def _range(power: int) -> str:
    """Name the bin of 2**(power - 1) up to 2**power, and that of no distance."""
    if power < 2:  # noqa: PLR2004  # zero and one
        return str(power)
    low, high = 1 << (power - 1), (1 << power) - 1
    if high < 100:  # noqa: PLR2004  # short enough for an axis
        return f"{low}-{high}"
    return f"{low:,}+" if low < 100_000 else f"{low:.0e}+".replace("e+0", "e").replace("e+", "e")  # noqa: PLR2004


def ranked(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Return *outputs* with those first that need looking at: failures, then the largest shares."""
    return sorted(outputs, key=lambda output: (output.ok, -(share_of_tolerance(output) or 0.0)))


def number(value: float | None) -> str:
    """Return a figure with two digits; nothing for None."""
    return "" if value is None else f"{value:.2g}"


def value(number: float | None) -> str:
    """Return a number that was fed; nothing for None."""
    return "" if number is None else f"{number:,.6g}"


def percent(share: float | None) -> str:
    """Return a share of the tolerance: '0.3 %', '12 %', '4,000 times'."""
    if share is None:
        return ""
    if math.isinf(share):
        return "infinite"
    if share >= 10:  # noqa: PLR2004  # so many percent are hard to read
        return f"{share:,.0f} times" if share < 1e6 else f"{share:.2g} times"  # noqa: PLR2004
    return f"{100 * share:.3g} %" if share >= _TENTH else f"{100 * share:.2g} %"
