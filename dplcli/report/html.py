"""Reports as one page of HTML that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dplcli.report.document import chosen_layers, versions
from dplcli.report.escaping import one_line, visible
from dplcli.report.measures import (
    error_bins,
    number,
    percent,
    ranked,
    share_of_tolerance,
    value,
)
from dplcli.report.plots import Share, histogram_plot, layer_plot, share_plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.report.document import Document
    from dplcli.verify import OutputComparison

_MOST_DRAWN = 40
_MOST_HISTOGRAMS = 24
_MOST_ROWS = 1_000
_MOST_REASONS = 10
_LONGEST = 2_000


class Drawing(NamedTuple):
    """The histogram of one output.

    Attributes:
        name: The output.
        ok: Whether it passes at every level.
        levels: The levels that it shows.
        svg: The plot.
        words: What it shows, in words.
    """

    name: str
    ok: bool
    levels: tuple[str, ...]
    svg: Markup
    words: str


def html_page(document: Document) -> str:
    """Return *document* as a page; what needs looking at comes first in every table."""
    result = document.verification
    outputs = ranked(result.outputs) if result is not None else []
    drawn = _drawable(outputs)
    histograms = _histograms(outputs)
    environment = Environment(
        loader=PackageLoader("dplcli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "line": one_line,
        "number": number,
        "value": value,
        "percent": percent,
        "share": share_of_tolerance,
        "visible": lambda text: visible(text, _LONGEST),
    }
    return environment.get_template("report.html.j2").render(
        document=document,
        result=result,
        outputs=outputs,
        most=_MOST_ROWS,
        reasons=[output for output in outputs if output.reason],
        most_reasons=_MOST_REASONS,
        shares=_shares(drawn, () if result is None else result.levels),
        drawn=len({output.name for output in drawn}),
        fed="" if result is None else result.fed,
        named=len({output.name for output in outputs}),
        histograms=histograms,
        values=chosen_layers(document.layers, _MOST_ROWS),
        layers=Markup(layer_plot(document.layers, "layers")) if document.layers else "",  # noqa: S704  # our own plot
        versions=versions(),
    )


def _drawable(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Return the comparisons of the first outputs whose errors can be measured in tolerances."""
    known = dict.fromkeys(o.name for o in outputs if share_of_tolerance(o) is not None)
    names = set(list(known)[:_MOST_DRAWN])
    return [output for output in outputs if output.name in names]


def _shares(outputs: Sequence[OutputComparison], levels: Sequence[str]) -> Markup:
    if not outputs:
        return Markup()
    shares = [Share(o.name, o.level, share_of_tolerance(o), o.ok) for o in outputs]
    return Markup(share_plot(shares, levels, "shares"))  # noqa: S704  # our own plot


def _histograms(outputs: Sequence[OutputComparison]) -> list[Drawing]:
    by_name: dict[str, list[OutputComparison]] = {}
    for output in outputs:
        if error_bins(output):
            by_name.setdefault(output.name, []).append(output)
    return [
        _histogram(name, of_name, f"histogram{position}")
        for position, (name, of_name) in enumerate(list(by_name.items())[:_MOST_HISTOGRAMS])
    ]


def _histogram(name: str, outputs: Sequence[OutputComparison], key: str) -> Drawing:
    ordered = sorted(outputs, key=lambda output: output.level != "disable")
    series = [(output.level, error_bins(output)) for output in ordered]
    words = []
    for level, bins in series:
        total = sum(item.count for item in bins)
        last = next((item.label for item in reversed(bins) if item.count), "0")
        words.append(
            f"level {level}: {bins[0].count:,} of {total:,} elements are the same, "
            f"the farthest are {last} representable numbers apart"
        )
    title = f"Errors of {one_line(name)}: {'; '.join(words)}"
    return Drawing(
        name,
        all(output.ok for output in outputs),
        tuple(level for level, _ in series),
        Markup(histogram_plot(series, key, title)),  # noqa: S704  # our own plot
        "; ".join(words),
    )
