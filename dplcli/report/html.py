"""Reports as one page of HTML that loads nothing; a script searches and sorts its tables."""

from __future__ import annotations

import json
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from dplcli.escaping import one_line, visible
from dplcli.report.document import versions
from dplcli.report.layout import Bars, kind_of, mood_of, plain_of
from dplcli.report.page import allowed, inert_json, static, templates
from dplcli.report.plots import histogram_plot, layer_plot, share_plot
from dplcli.report.verify import error_bins, ranked
from dplcli.report.view import SCRIPTS, packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.report.document import Document
    from dplcli.report.layout import Cell, TextTable
    from dplcli.verify import OutputComparison

_MOST_DRAWN = 40
_MOST_HISTOGRAMS = 24
_LONGEST = 2_000
_LONGEST_CELL = 400
_WRITTEN = 100
"""So many rows of a table stand in the page as such; its script makes the others."""


class HistogramDrawing(NamedTuple):
    """The histogram of one output.

    Attributes:
        name: The output.
        ok: Whether it passes at every level.
        levels: The levels that it shows.
        svg: The plot.
    """

    name: str
    ok: bool
    levels: list[str]
    svg: Markup


class PageGraphs(NamedTuple):
    """The pictures of a page.

    Attributes:
        records: One for each picture that is shown, as :func:`dplcli.report.view.view_data` makes
            it.
        beside: What leads from the one to the other, as ``beside_record`` makes it.
        notes: What a reader should know of them; also why one is not shown.
    """

    records: Sequence[Mapping[str, Any]] = ()
    beside: Mapping[str, Any] = MappingProxyType({})
    notes: Sequence[str] = ()


def html_page(document: Document, graphs: PageGraphs | None = None) -> str:
    """Return *document* as a page; in every table, what needs a look comes first.

    Args:
        document: What is reported.
        graphs: Pictures of the models that it is about.
    """
    graphs = graphs or PageGraphs()
    drawn_by = [static(name) for name in SCRIPTS] if graphs.records else []
    result, layers = document.verification, document.layers
    outputs = ranked(result.outputs) if result is not None else []
    levels = () if result is None else result.levels
    drawn = _drawable(outputs)
    environment = templates()
    environment.filters["visible"] = lambda text: visible(text, _LONGEST)
    environment.filters |= {"mood": mood_of, "plain": _plain, "rest": _rest}
    environment.tests["plotted"] = _is_plotted
    script = static("tables.js")
    return environment.get_template("report.html.j2").render(
        document=document,
        mood="no" if not document.ok else "" if document.is_idle else "yes",
        levels=levels,
        shares=Markup(share_plot(drawn, levels)) if drawn else "",  # noqa: S704  # our own plot
        drawn=len({output.name for output in drawn}),
        named=len({output.name for output in outputs}),
        histograms=_histograms(outputs),
        layers="" if layers is None else Markup(layer_plot(layers.layers)),  # noqa: S704  # our own plot
        parts=[(kind, list(blocks)) for kind, blocks in groupby(document.blocks(), kind_of)],
        written=_WRITTEN,
        versions=versions(),
        scripts=[*drawn_by, script],
        graphs=graphs,
        titles=[record["title"] for record in graphs.records],
        graph_style=static("view.css") if graphs.records else "",
        data=[packed(record) for record in graphs.records],
        beside=packed(dict(graphs.beside)),
        policy=allowed(*drawn_by, script),
    )


# Tables and lines, as a page has them.


def _plain(cell: Cell) -> str:
    return one_line(plain_of(cell), _LONGEST_CELL)


def _rest(rows: Iterable[Sequence[Cell]]) -> Markup:
    """Return rows as JSON, in which nothing can end a script: texts, and pairs with a mood."""
    cells = ([(_plain(cell), mood_of(cell)) for cell in row] for row in rows)
    more = [[[text, mood] if mood else text for text, mood in row] for row in cells]
    return inert_json(json.dumps(more, separators=(",", ":")))


def _is_plotted(table: TextTable) -> bool:
    return any(isinstance(cell, Bars) for row in table.rows for cell in row)


# Plots.


def _drawable(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Return the comparisons of the first outputs whose shares of the tolerance are known.

    A plot says something if one of them is not zero.
    """
    known = dict.fromkeys(o.name for o in outputs if o.share is not None)
    names = set(list(known)[:_MOST_DRAWN])
    chosen = [output for output in outputs if output.name in names]
    return chosen if any(each.share for each in chosen) else []


def _histograms(outputs: Sequence[OutputComparison]) -> list[HistogramDrawing]:
    """Draw the outputs that have an error."""
    by_name: dict[str, list[OutputComparison]] = {}
    for output in sorted(outputs, key=lambda output: output.level != "disable"):
        if error_bins(output):
            by_name.setdefault(output.name, []).append(output)
    names = dict.fromkeys(each.name for each in outputs if len(error_bins(each)) > 1)
    return [_histogram(name, by_name[name]) for name in list(names)[:_MOST_HISTOGRAMS]]


def _histogram(name: str, ordered: Iterable[OutputComparison]) -> HistogramDrawing:
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
    plot = Markup(histogram_plot(series, title))  # noqa: S704  # our own plot
    is_ok = all(output.ok for output in ordered)
    return HistogramDrawing(name, is_ok, [level for level, _ in series], plot)
