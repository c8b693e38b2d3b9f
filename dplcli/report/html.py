"""Reports as one page of HTML that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dplcli.report.document import versions
from dplcli.report.escaping import one_line, visible
from dplcli.report.measures import error_bins, number, percent, ranked, share_of_tolerance
from dplcli.report.plots import Share, histogram_plot, layer_plot, share_plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.report.document import Document
    from dplcli.verify import OutputComparison

MARK = '<meta name="generator" content="dpl">'
"""What stands near the top of the page, so that dpl knows its own."""

_MOST_DRAWN = 40
_MOST_HISTOGRAMS = 24
_MOST_ROWS = 1_000


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
    drawn = _most_wanted(outputs, _MOST_DRAWN, has=share_of_tolerance)
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
        "percent": percent,
        "share": share_of_tolerance,
        "visible": visible,
    }
    return environment.get_template("report.html.j2").render(
        document=document,
        result=result,
        outputs=outputs,
        most=_MOST_ROWS,
        shares=_shares(drawn),
        share_levels=list(dict.fromkeys(output.level for output in drawn)),
        drawn=len({output.name for output in drawn}),
        named=len({output.name for output in outputs}),
        histograms=histograms,
        layers=Markup(layer_plot(document.layers, "layers")) if document.layers else "",  # noqa: S704  # our own plot
        versions=versions(),
    )


def _most_wanted(
    outputs: Sequence[OutputComparison], most: int, *, has: object
) -> list[OutputComparison]:
    """Return the comparisons of the first *most* outputs that have something to draw."""
    assert callable(has)  # noqa: S101  # a function of this package
    names = list(dict.fromkeys(o.name for o in outputs if has(o) not in {None, ()}))[:most]
    return [output for output in outputs if output.name in set(names)]


def _shares(outputs: Sequence[OutputComparison]) -> Markup:
    if not outputs:
        return Markup()
    shares = [Share(o.name, o.level, share_of_tolerance(o), o.ok) for o in outputs]
    return Markup(share_plot(shares, "shares"))  # noqa: S704  # our own plot


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
