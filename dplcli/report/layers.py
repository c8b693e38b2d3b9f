"""Layout of a graph in layers, from top to bottom.

The way of K. Sugiyama, S. Tagawa and M. Toda, *Methods for visual understanding of hierarchical
system structures*, 1981: give each item a layer below all that it needs, sort the layers so that
few edges cross, then place all items near their neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dplcli.ir.model import in_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Key: TypeAlias = Any
    """Whatever can be in a dictionary."""
    Layer: TypeAlias = list[Key]
    Neighbours: TypeAlias = Mapping[Key, Sequence[Key]]

_GAP = 18.0
_RISE = 36.0
_SWEEPS = 12


class Spot(NamedTuple):
    """Where something is: its upper left corner, and its size."""

    x: float
    y: float
    width: float
    height: float


class Band(NamedTuple):
    """Where an edge passes a layer, or begins and ends at one: straight down from top to bottom."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class LayeredGraph:
    """A graph that is laid out; its upper left corner is at 0, 0.

    Attributes:
        width: How wide it is.
        height: How high.
        spots: Where each item is.
        routes: By edge: the layers of its ends, and those it passes, from its start on.
    """

    width: float
    height: float
    spots: Mapping[Key, Spot]
    routes: Mapping[tuple[Key, Key], list[Band]]


class _Passing:
    """A place in a layer that an edge only passes."""


def laid_out(
    sizes: Mapping[Key, tuple[float, float]],
    edges: Collection[tuple[Key, Key]],
    first: Collection[Key] = (),
    last: Collection[Key] = (),
) -> LayeredGraph:
    """Lay out a graph.

    Args:
        sizes: Width and height of each item; their order is the one in which edges lead on. An
            edge against it is drawn upwards.
        edges: Between which items there are edges.
        first: What is in the first layer.
        last: What is in the last one.
    """
    number = {item: place for place, item in enumerate(sizes)}
    number |= dict.fromkeys(first, -1) | dict.fromkeys(last, len(number))
    forward = {(a, b) if number[a] <= number[b] else (b, a): None for a, b in edges if a != b}
    rank = _ranks(list(sizes), list(forward), first, last)
    layers: list[Layer] = [[] for _ in range(max(rank.values(), default=0) + 1)]
    for item, layer in rank.items():
        layers[layer].append(item)
    chains: dict[tuple[Key, Key], list[Key]] = {}
    above: dict[Key, list[Key]] = defaultdict(list)
    below: dict[Key, list[Key]] = defaultdict(list)
    for start, end in forward:
        between: list[Key] = [_Passing() for _ in range(rank[start] + 1, rank[end])]
        for layer, passing in enumerate(between, rank[start] + 1):
            layers[layer].append(passing)
        chains[start, end] = [start, *between, end]
        for upper, lower in pairwise(chains[start, end]):
            below[upper].append(lower)
            above[lower].append(upper)
    widths = {item: sizes.get(item, (8.0, 0.0))[0] for layer in layers for item in layer}
    _sort(layers, above, below)
    return _drawn(layers, sizes, _across(layers, above, below, widths), chains, edges)


def _ranks(
    items: list[Key],
    edges: list[tuple[Key, Key]],
    first: Collection[Key],
    last: Collection[Key],
) -> dict[Key, int]:
    """Give each item the number of its layer: what needs nothing comes just before its use.

    The first layer and the last one hold nothing but *first* and *last*, if there are such.
    """
    after: dict[Key, list[Key]] = {item: [] for item in items}
    for start, end in edges:
        after[start].append(end)
    rank = dict.fromkeys(items, 1 if first else 0) | dict.fromkeys(first, 0)
    for item in in_order(after):
        for other in after[item]:
            rank[other] = max(rank[other], rank[item] + 1)
    fed = {end for _, end in edges}
    for item in items:
        if item not in fed and item not in first and after[item]:
            rank[item] = min(rank[other] for other in after[item]) - 1
    lowest = max((rank[item] for item in items if item not in last), default=-1)
    return rank | dict.fromkeys(last, lowest + 1)


def _sort(layers: list[Layer], above: Neighbours, below: Neighbours) -> None:
    """Sort each layer by where the neighbours are, downwards and upwards in turn."""
    for sweep in range(_SWEEPS):
        beside = below if sweep % 2 else above
        for before, layer in pairwise(layers[::-1] if sweep % 2 else layers):
            place = {item: at for at, item in enumerate(before)}
            centres = {item: float(at) for at, item in enumerate(layer)}
            for item in layer:
                known = [place[other] for other in beside.get(item, ())]
                if known:
                    centres[item] = sum(known) / len(known)
            layer.sort(key=centres.__getitem__)


def _across(
    layers: list[Layer], above: Neighbours, below: Neighbours, widths: Mapping[Key, float]
) -> dict[Key, float]:
    """Place the middles of all items: each near its neighbours, in order, with room between."""
    middles: dict[Key, float] = dict.fromkeys(widths, 0.0)
    for sweep in range(_SWEEPS + 1):
        beside = below if sweep % 2 else above
        for layer in layers[::-1] if sweep % 2 else layers:
            wanted = []
            for item in layer:
                known = [middles[other] for other in beside.get(item, ())] or [middles[item]]
                wanted.append(sum(known) / len(known))
            places = _apart(wanted, [widths[item] for item in layer])
            middles.update(zip(layer, places, strict=True))
    return middles


def _apart(wanted: list[float], widths: list[float]) -> list[float]:
    """Return the places nearest to *wanted* at which nothing overlaps (pool adjacent violators)."""
    offsets = [0.0]
    for one, other in pairwise(widths):
        offsets.append(offsets[-1] + (one + other) / 2 + _GAP)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, size = blocks.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=False)]


def _drawn(
    layers: list[Layer],
    sizes: Mapping[Key, tuple[float, float]],
    middles: Mapping[Key, float],
    chains: Mapping[tuple[Key, Key], list[Key]],
    edges: Collection[tuple[Key, Key]],
) -> LayeredGraph:
    extents = {item: sizes.get(item, (8.0, 0.0)) for layer in layers for item in layer}
    left = min((middles[item] - width / 2 for item, (width, _) in extents.items()), default=0.0)
    right = max((middles[item] + width / 2 for item, (width, _) in extents.items()), default=0.0)
    spots: dict[Key, Spot] = {}
    bands: dict[Key, Band] = {}
    y = 0.0
    for layer in layers:
        bottom = y + max((extents[item][1] for item in layer), default=0.0)
        for item in layer:
            x, (width, height) = middles[item] - left, extents[item]
            bands[item] = Band(x, y, bottom)
            spots[item] = Spot(x - width / 2, (y + bottom - height) / 2, width, height)
        y = bottom + _RISE
    routes = {}
    for start, end in edges:
        chain = chains.get((start, end)) or chains.get((end, start), [])[::-1]
        if chain:
            routes[start, end] = [bands[item] for item in chain]
    seen = {item: spots[item] for item in sizes}
    return LayeredGraph(right - left, y - _RISE, seen, routes)
