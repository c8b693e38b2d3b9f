"""How errors are spread, as a line of bars for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dplcli.report.escaping import one_line
from dplcli.report.layout import Table, Text
from dplcli.report.measures import error_bins, ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.report.layout import Part
    from dplcli.report.measures import Bin
    from dplcli.verify import OutputComparison

_BARS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_MOST_ROWS = 8
_LONG = 1000
_HEADING = "0, 1, 2-3, 4-7, ... representable numbers apart"


class Bars:
    """Bins as characters of different heights, on a logarithmic scale: one element shows.

    Args:
        bins: What to show.
    """

    def __init__(self, bins: Sequence[Bin]) -> None:
        """Keep *bins*."""
        self._counts = [item.count for item in bins]

    def text(self, *, is_ascii: bool) -> str:
        """Return the bars; *is_ascii* for terminals that know no others."""
        shapes = _ASCII if is_ascii else _BARS
        largest = math.log1p(max(self._counts, default=0)) or 1.0
        steps = len(shapes) - 1
        return "".join(shapes[math.ceil(math.log1p(n) / largest * steps)] for n in self._counts)


def error_histograms(outputs: Sequence[OutputComparison]) -> list[Part]:
    """Return a line of bars for each output and level whose elements are not all the same.

    The first bar counts elements that are the same, the next those one representable number apart,
    then 2 to 3, 4 to 7 and so on. Of many the worst are shown.
    """
    spread = [output for output in ranked(outputs) if len(error_bins(output)) > 1]
    if not spread:
        return []
    table = Table("errors of", "level", _HEADING, "farthest", prose=(_HEADING,))
    for output in spread[:_MOST_ROWS]:
        bins = error_bins(output)
        table.add_row(one_line(output.name, _LONG), output.level, Bars(bins), bins[-1].label)
    left = len(spread) - _MOST_ROWS
    more = [Text(f"and {left} more", style="dim")] if left > 0 else []
    return [Text(), table, *more, Text()]
