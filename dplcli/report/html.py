"""Reports as one page of HTML. It needs no network, no script and no font; plots are SVG."""

from __future__ import annotations

import io
import itertools
import logging
import math
import re
import warnings
from functools import partial
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dplcli.escaping import one_line, visible
from dplcli.report.document import chosen_layers, versions
from dplcli.report.tables import error_bins, number, percent, ranked, share_of_tolerance, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dplcli.report.document import Document, LayerError
    from dplcli.report.tables import Bin
    from dplcli.verify import OutputComparison


# Plots as SVG for the page: small, always the same bytes, coloured by its style sheet.
#
# Matplotlib draws with colours that stand for those of the page. The page's colours differ
# between light and dark mode, so they are put in as references to its style sheet.


_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--line)",
    "#040404": "var(--ok)",
    "#050505": "var(--bad)",
    "#060606": "var(--other)",
    "#070707": "var(--first)",
}
_INK, _MUTED, _LINE, _OK, _BAD, _OTHER, _FIRST = _COLOURS
_WIDTH = 4.8
_FLOOR = 1e-6
_NAME = 22
_MARKERS = "os^Dv"


def can_plot() -> bool:
    """Tell whether the library that draws plots is installed; a page without them is one, too."""
    return find_spec("matplotlib") is not None


def share_plot(outputs: Sequence[OutputComparison], levels: Sequence[str]) -> str:
    """Draw a row for each output: its largest errors as shares of the tolerance.

    Args:
        outputs: What was compared; a row holds all levels of an output.
        levels: The levels. Each has its own marker; only the first level's is filled.
    """
    count = len({output.name for output in outputs})
    title = f"Errors of {count} outputs as shares of the tolerance"
    return _draw(0.7 + 0.24 * count, partial(_paint_shares, outputs, levels), "shares", title)


def histogram_plot(series: Sequence[tuple[str, Sequence[Bin]]], key: str, title: str) -> str:
    """Draw how many elements of one output have which error, a series for each level.

    Args:
        series: The levels, and their bins.
        key: What sets this plot's identifiers apart from those of others.
        title: What the plot shows, for readers who cannot see it.
    """
    return _draw(2.0, partial(_paint_bins, series), key, title)


def layer_plot(layers: Sequence[LayerError]) -> str:
    """Draw how the error grows from the first of *layers* to the last."""
    title = f"Errors of {len(layers)} values in order of computation"
    return _draw(2.4, partial(_paint_layers, layers), "layers", title)


def _paint_shares(outputs: Sequence[OutputComparison], levels: Sequence[str], axes: Axes) -> None:
    names = list(dict.fromkeys(output.name for output in outputs))
    for level, marker in zip(levels, itertools.cycle(_MARKERS), strict=False):
        for is_ok, colour in ((True, _OK), (False, _BAD)):
            chosen = [each for each in outputs if (each.level, each.ok) == (level, is_ok)]
            axes.plot(
                [_clipped(share_of_tolerance(each)) for each in chosen],
                [names.index(each.name) for each in chosen],
                linestyle="none",
                marker=marker,
                markersize=6,
                markerfacecolor=colour if level == levels[0] else "none",
                markeredgecolor=colour,
                markeredgewidth=1.4,
            )
    shares = (share_of_tolerance(output) for output in outputs)
    known = [_clipped(share) for share in shares if share is not None] or [1.0]
    axes.set_xscale("log")
    axes.set_xlim(min(*known, 1e-3) / 2, max(*known, 3.0) * 2)
    axes.xaxis.set_major_formatter(lambda share, _: percent(share))
    axes.minorticks_off()
    axes.axvline(1, color=_BAD, linewidth=1.2, linestyle="--")
    labels = [one_line(name, _NAME) or "(no name)" for name in names]
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", color=_LINE, linewidth=0.6)


def _paint_bins(series: Sequence[tuple[str, Sequence[Bin]]], axes: Axes) -> None:
    longest = max((bins for _, bins in series), key=len)
    width = 0.8 / len(series)
    for position, (_, bins) in enumerate(series):
        left = -0.4 + width * (position + 0.5)
        axes.bar(
            [place + left for place in range(len(bins))],
            [item.count for item in bins],
            width=width,
            color=_OTHER if position else _FIRST,
        )
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda count, _: _count(count))
    axes.minorticks_off()
    step = math.ceil(len(longest) / 7)
    chosen = range(0, len(longest), step)
    axes.set_xticks(chosen, [longest[place].label for place in chosen], parse_math=False)
    axes.set_xlabel("representable numbers apart")
    axes.set_ylabel("elements")
    axes.grid(axis="y", color=_LINE, linewidth=0.6)


def _paint_layers(layers: Sequence[LayerError], axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  # only where plots are drawn

    shares = [_clipped(layer.share) for layer in layers]
    axes.plot(range(1, len(layers) + 1), shares, color=_MUTED, linewidth=1)
    for is_ok, colour in ((True, _OK), (False, _BAD)):
        places = [place for place, layer in enumerate(layers) if layer.ok == is_ok]
        axes.plot(
            [place + 1 for place in places],
            [shares[place] for place in places],
            linestyle="none",
            marker="o",
            markersize=4 if is_ok else 6,
            color=colour,
        )
    axes.axhline(1, color=_BAD, linewidth=1.2, linestyle="--")
    axes.set_yscale("log")
    axes.set_ylim(*_whole_decades([1.0, *(share for share in shares if not math.isnan(share))]))
    axes.yaxis.set_major_formatter(lambda share, _: percent(share))
    axes.minorticks_off()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("values in order of computation")
    axes.grid(axis="y", color=_LINE, linewidth=0.6)


def _whole_decades(shares: Sequence[float]) -> tuple[float, float]:
    """Return powers of ten around *shares*, with room for a marker on both sides."""
    low, high = math.log10(min(shares)), math.log10(max(shares))
    return 10 ** (math.floor(low) - 0.3), 10 ** (math.ceil(high) + 0.3)


def _clipped(share: float | None) -> float:
    """Return where *share* is drawn: a logarithmic axis has neither zero nor infinity."""
    if share is None or math.isnan(share):
        return math.nan
    return min(max(share, _FLOOR), 1 / _FLOOR)


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e5 else f"{number:.0e}".replace("e+0", "e")  # noqa: PLR2004


def _draw(height: float, paint: Callable[[Axes], None], key: str, title: str) -> str:
    """Return a figure as an element of a page, whatever settings the user has for matplotlib."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of fonts that it looks for
    import matplotlib as mpl  # noqa: PLC0415  # only reports with plots need it
    from matplotlib.figure import Figure  # noqa: PLC0415

    text = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.simplefilter("ignore")  # a name may have letters that its fonts lack
        mpl.rcdefaults()
        mpl.rcParams["svg.fonttype"] = "none"
        mpl.rcParams["svg.hashsalt"] = "dpl"
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        paint(_styled(figure))
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    return _element(text.getvalue(), key, title)


def _styled(figure: Figure) -> Axes:
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.tick_params(which="both", colors=_INK, labelsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=_MUTED, fontsize=9)
    for name, spine in axes.spines.items():
        spine.set_color(_MUTED)
        spine.set_visible(name in {"left", "bottom"})
    axes.set_axisbelow(True)
    return axes


def _element(svg: str, key: str, title: str) -> str:
    """Fit matplotlib's SVG into a page: identifiers of its own, the page's colours and font."""
    svg = svg[svg.index("<svg") :].strip()
    for unwanted in ("<metadata>.*?</metadata>", "<style.*?</style>", "<!--.*?-->"):
        svg = re.sub(unwanted, "", svg, flags=re.DOTALL)
    used = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", svg))
    svg = re.sub("<[^>]*>", lambda tag: _fit(tag[0], key, used), svg)
    box = re.search('viewBox="[^"]*"', svg)
    inner = svg[svg.index(">") + 1 :]
    lines = "\n".join(line.strip() for line in inner.splitlines() if line.strip())
    return f'<svg {box[0] if box else ""} role="img" aria-label="{escape(title)}">\n{lines}'


def _fit(tag: str, key: str, used: set[str]) -> str:
    """Rewrite one tag. Text between tags may be a name, so it stays."""
    tag = re.sub(' id="([^"]*)"', lambda f: f' id="{key}-{f[1]}"' if f[1] in used else "", tag)
    tag = re.sub(r"(?:xlink:)?href=\"#", f'href="#{key}-', tag)
    tag = tag.replace("url(#", f"url(#{key}-")
    tag = re.sub('; font-family: [^;"]*|font-family: [^;"]*; ', "", tag)
    tag = re.sub(r"font: (?:[^;\"]* )?([0-9.]+px)[^;\"]*", r"font-size: \1", tag)
    for colour, variable in _COLOURS.items():
        tag = tag.replace(colour, variable)
    return tag


# The page.


_MOST_DRAWN = 40
_MOST_HISTOGRAMS = 24
_MOST_ROWS = 1_000
_MOST_REASONS = 10
_LONGEST = 2_000


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


def html_page(document: Document) -> str:
    """Return *document* as a page; in every table, what needs a look comes first."""
    result = document.verification
    outputs = ranked(result.outputs) if result is not None else []
    levels = () if result is None else result.levels
    has_plots = can_plot()
    drawn = _drawable(outputs) if has_plots else []
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
        shares=Markup(share_plot(drawn, levels)) if drawn else "",  # noqa: S704  # our own plot
        drawn=len({output.name for output in drawn}),
        fed="" if result is None else result.fed,
        named=len({output.name for output in outputs}),
        histograms=_histograms(outputs) if has_plots else [],
        values=chosen_layers(document.layers, _MOST_ROWS),
        layers=_layers(document.layers) if has_plots else "",
        has_plots=has_plots,
        versions=versions(),
    )


def _layers(layers: Sequence[LayerError]) -> Markup:
    return Markup(layer_plot(layers) if layers else "")  # noqa: S704  # our own plot


def _drawable(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Return the comparisons of the first outputs whose shares of the tolerance are known."""
    known = dict.fromkeys(o.name for o in outputs if share_of_tolerance(o) is not None)
    names = set(list(known)[:_MOST_DRAWN])
    return [output for output in outputs if output.name in names]


def _histograms(outputs: Sequence[OutputComparison]) -> list[HistogramDrawing]:
    by_name: dict[str, list[OutputComparison]] = {}
    for output in outputs:
        if error_bins(output):
            by_name.setdefault(output.name, []).append(output)
    return [
        _histogram(name, of_name, f"histogram{position}")
        for position, (name, of_name) in enumerate(list(by_name.items())[:_MOST_HISTOGRAMS])
    ]


def _histogram(name: str, outputs: Sequence[OutputComparison], key: str) -> HistogramDrawing:
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
    plot = Markup(histogram_plot(series, key, title))  # noqa: S704  # our own plot
    is_ok = all(output.ok for output in outputs)
    return HistogramDrawing(name, is_ok, [level for level, _ in series], plot)
