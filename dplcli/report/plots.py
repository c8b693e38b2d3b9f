"""Plots of a page, as SVG: small, always the same bytes, coloured by the page's style sheet."""

from __future__ import annotations

import itertools
import math
from html import escape
from typing import TYPE_CHECKING

from dplcli.escaping import one_line
from dplcli.report.tables import percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.report.verify import Bin
    from dplcli.verify import OutputComparison
    from dplcli.verify.layers import Layer

_WIDTH, _SMALL = 480, 330
"""Of plots that stand alone, and of those side by side."""
_FLOOR = 1e-6
"""What is drawn for zero, which a logarithmic axis does not have; infinity is its inverse."""
_NAME = 22
_MOST_TICKS = 6
_ROW = 24


def share_plot(outputs: Sequence[OutputComparison], levels: Sequence[str]) -> str:
    """Draw a row for each output: its largest errors as shares of the tolerance.

    Args:
        outputs: What was compared; a row holds all levels of an output.
        levels: The levels. Each has its own marker; only the first level's is filled.
    """
    names = dict.fromkeys(output.name for output in outputs)
    middles = {name: _ROW * row + _ROW / 2 for row, name in enumerate(names)}
    drawn = [(output, _clipped(output.share)) for output in outputs]
    drawn = [(output, share) for output, share in drawn if not math.isnan(share)]
    known = [share for _, share in drawn] or [1.0]
    bottom = _ROW * len(middles) + 4
    axis = _Axis(min(*known, 1e-3) / 2, max(*known, 3.0) * 2, 176, _WIDTH - 30)
    parts = []
    for name, y in middles.items():
        parts.append(_line(axis.start, y, axis.end, y, "line"))
        parts.append(_text(axis.start - 8, y + 4, one_line(name, _NAME) or "(no name)", "end"))
    parts.append(_line(axis.start, bottom, axis.end, bottom, "muted"))
    for share in axis.ticks():
        parts.append(_line(axis(share), bottom, axis(share), bottom + 4, "muted"))
        parts.append(_text(axis(share), bottom + 18, _times(share), "middle"))
    parts.append(_line(axis(1), 0, axis(1), bottom, "bad", dashes="5 3"))
    markers = dict(zip(levels, itertools.cycle(_MARKERS), strict=False))
    for output, share in drawn:
        colour, shape = "ok" if output.ok else "bad", markers.get(output.level, _MARKERS[0])
        fill = _fill(colour) if output.level == levels[0] else 'fill="none"'
        place = f"M{axis(share):.1f} {middles[output.name]:.1f}"
        parts.append(
            f'<path d="{place}{shape}" {fill} stroke="var(--{colour})" stroke-width="1.5"/>'
        )
    title = f"Errors of {len(middles)} outputs as shares of the tolerance"
    return _svg(bottom + 22, title, parts)


def histogram_plot(series: Sequence[tuple[str, Sequence[Bin]]], title: str) -> str:
    """Draw how many elements of one output have which error, a series for each level.

    Args:
        series: The levels, and their bins.
        title: What the plot shows, for readers who cannot see it.
    """
    longest = max((bins for _, bins in series), key=len)
    most = max(item.count for _, bins in series for item in bins)
    left, right, top, bottom = 44.0, _SMALL - 4.0, 16.0, 150.0
    place = (right - left) / len(longest)

    def height(count: float) -> float:  # one element shows beside a million
        return (bottom - top) * math.log1p(count) / math.log1p(max(most, 1))

    parts = [_line(left, bottom, right, bottom, "muted")]
    decades = range(math.floor(math.log10(max(most, 1))) + 1)
    for power in [*decades][:: math.ceil(len(decades) / _MOST_TICKS)]:
        y = bottom - height(10**power)
        parts.append(_line(left, y, right, y, "line"))
        parts.append(_text(left - 6, y + 4, _count(10**power), "end"))
    width = 0.8 * place / len(series)
    for number, (_, bins) in enumerate(series):
        for at, item in enumerate(bins):
            if item.count:
                x = left + place * at + 0.1 * place + width * number
                tall = height(item.count)
                colour = "other" if number else "first"
                parts.append(
                    f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{width:.1f}" '
                    f'height="{tall:.1f}" fill="var(--{colour})"/>'
                )
    parts += [
        _text(left + place * (at + 0.5), bottom + 16, longest[at].label, "middle")
        for at in range(0, len(longest), math.ceil(len(longest) / 7))
    ]
    middle = (left + right) / 2
    parts += [
        _text(middle, bottom + 34, "representable numbers apart", "middle", "muted"),
        _text(0, 10, "elements", "start", "muted"),
    ]
    return _svg(bottom + 40, title, parts, width=_SMALL)


def layer_plot(layers: Sequence[Layer]) -> str:
    """Draw how the error grows from the first of *layers* to the last."""
    shares = [_clipped(layer.comparison.share) for layer in layers]
    known = [share for share in shares if not math.isnan(share)] or [1.0]
    low, high = (math.log10(limit) for limit in (min(*known, 1.0), max(*known, 1.0)))
    axis = _Axis(10 ** (math.floor(low) - 0.3), 10 ** (math.ceil(high) + 0.3), 196, 8)
    left, right = 64.0, _WIDTH - 10.0
    step = (right - left) / max(len(layers) - 1, 1)
    points = [(left + step * at, axis(share)) for at, share in enumerate(shares)]
    parts = [_line(left, axis.start, right, axis.start, "muted")]
    for share in axis.ticks():
        parts.append(_line(left, axis(share), right, axis(share), "line"))
        parts.append(_text(left - 6, axis(share) + 4, _times(share), "end"))
    for is_unknown, run in itertools.groupby(points, lambda point: math.isnan(point[1])):
        ends = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        line = f'<polyline points="{ends}" fill="none" stroke="var(--muted)"/>'
        parts += [] if is_unknown else [line]
    parts.append(_line(left, axis(1), right, axis(1), "bad", dashes="5 3"))
    for is_ok, colour, radius in ((True, "ok", 2.5), (False, "bad", 3.5)):
        for layer, (x, y) in zip(layers, points, strict=True):
            if layer.ok == is_ok and not math.isnan(y):
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {_fill(colour)}/>')
    parts += [
        _text(left, 212, "1", "middle"),
        _text(right, 212, f"{len(layers):,}", "end"),
        _text((left + right) / 2, 228, "values in order of computation", "middle", "muted"),
    ]
    title = f"Errors of {len(layers)} values in order of computation"
    return _svg(234, title, parts)


class _Axis:
    """A logarithmic axis.

    Args:
        low: The number at *start*, more than zero.
        high: The number at *end*.
        start: A coordinate.
        end: Another.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = math.log10(low), math.log10(high)
        self.start, self.end = start, end

    def __call__(self, number: float) -> float:
        share = (math.log10(number) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Choose powers of ten, 1 among them, that do not batch each other."""
        low, high = math.ceil(self.low), math.floor(self.high)
        step = math.ceil((high - low + 1) / _MOST_TICKS)
        return [10.0**power for power in range(low, high + 1) if power % step == 0]


def _clipped(share: float | None) -> float:
    """Return where *share* is drawn: a logarithmic axis has neither zero nor infinity."""
    if share is None or math.isnan(share):
        return math.nan
    return min(max(share, _FLOOR), 1 / _FLOOR)


def _times(share: float) -> str:
    """Write a share of the tolerance where there is little room: '1 %', 'x 1,000'."""
    return percent(share) if share <= 1 else f"x {_count(share)}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e5 else f"{number:.0e}".replace("e+0", "e")  # noqa: PLR2004  # how a reader wants numbers cut


# Shapes. Colours are those of the page, which differ between light and dark mode.


def _svg(height: float, title: str, parts: Iterable[str], width: int = _WIDTH) -> str:
    box = f'viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}"'
    return "\n".join([f'<svg {box} font-size="12">', *parts, "</svg>"])


def _line(  # noqa: PLR0913, PLR0917  # two points
    x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="var(--{colour})"{dashed}/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "ink") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where} {_fill(colour)}>{escape(text)}</text>"


def _fill(colour: str) -> str:
    return f'fill="var(--{colour})"'


_MARKERS = (
    "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",  # circle
    "m-4.5 -4.5h9v9h-9z",  # square
    "m0 -5l5 9h-10z",  # triangle
    "m0 -6l5 6l-5 6l-5 -6z",  # diamond
    "m0 5l5 -9h-10z",  # triangle, upside down
)
