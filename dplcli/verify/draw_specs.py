"""What is known of the values that a place reads, so that others can be drawn which could be there.

What decides over sizes stays as it is. Indices stay within the axis that they choose from, floats
within what they can be at all (:mod:`dplcli.verify.ranges`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplcli.analysis.extract import subgraphs
from dplcli.ir.operators import MEASURING, PLACE_SLOTS, SIZED_FROM
from dplcli.verify.model import (
    Dataflow,
    attribute,
    input_domain,
    model_of,
    port_of,
    small_values,
)
from dplcli.verify.ranges import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onnx import NodeProto

    from dplcli.verify.cuts import CutModels, CutSide, Place
    from dplcli.verify.experiment import Experiment, Feeding
    from dplcli.verify.values import Array

LARGE_CONSTANT = 16
"""Constants of more elements are weights; smaller ones may be bounds."""

BOUND_CONSTANT = 1 << 16
"""Constants of more elements are no bounds, whatever reads them."""

_MOST_BOUND = 2.0**53
"""Larger numbers stand for infinity, as in masks."""

_LIMITING = {op for op, _ in PLACE_SLOTS}
"""Operators that say within what whole numbers have to be."""

_WHOLE = Grid(np.array(1.0), np.array(-(2.0**24)), np.array(2.0**24))
"""Of whole numbers in floats, those that float32 has all."""

_LARGE_HALF = 2.0
"""Up to where numbers of half precision are drawn: their products overflow soon."""


@dataclass(frozen=True)
class DrawSpec:
    """What is known of a value that is to be drawn.

    Attributes:
        low: The least that it can be.
        high: The largest.
        constants: Numbers that the place holds; those first that tell one model from the other.
        words: Words that it holds.
        scale: The largest magnitude that was seen.
        axis: If it chooses from an axis, how long that is, else 0.
        is_turns: Whether it says how often a loop goes round.
        never_zero: Whether something is divided by it, as whole numbers.
        grid: If only its steps can be there, as of quantised numbers, the steps.
        shares: Along which axis its numbers add up to one, if they do.
    """

    low: float = -math.inf
    high: float = math.inf
    constants: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    scale: float = 1.0
    axis: int = 0
    is_turns: bool = False
    never_zero: bool = False
    grid: Grid | None = None
    shares: int | None = None


def draw_specs(
    of: CutModels, experiment: Experiment, every: Sequence[Place], seen: Feeding
) -> dict[str, DrawSpec]:
    """Return the values that may be drawn, and what is known of each.

    Args:
        of: The two models.
        experiment: Cuts places out.
        every: Those that are to be drawn for.
        seen: What the original computes there.
    """
    readers: dict[str, list[Place]] = {}
    for place in every:
        for name in place.reads:
            readers.setdefault(name, []).append(place)
    still = {name for place in every for name in _deciding(of, place, _sizes)}
    turning = {name for place in every for name in _deciding(of, place, _turns)} - still
    limits = _limits(of, experiment, every, seen)
    specs: dict[str, DrawSpec] = {}
    for name, places in readers.items():
        like = seen.feeds.get(name)
        turns = name in turning
        is_fixed = name in still or of.ranges[0].is_stored(name)
        is_fixed |= of.ranges[0].is_size(name) and any(name in p.uneven for p in places)
        if not isinstance(like, np.ndarray) or (is_fixed and not turns):
            continue
        interval = of.ranges[0][name]
        axis, is_still = limits.get(name, (0, False))
        grid = of.ranges[0].grid(name, like.ndim)
        if grid is None and like.dtype.kind == "f" and of.ranges[0].is_integral(name):
            grid = _WHOLE
        is_bounded = math.isfinite(interval.low) and math.isfinite(interval.high)
        if (is_still and not turns and not is_bounded) or grid == "unknown":
            continue
        numbers, words = _held(of.sides, places)
        specs[name] = DrawSpec(
            low=interval.low,
            high=interval.high,
            constants=numbers,
            words=words,
            scale=_scale(like),
            axis=0 if is_still else axis,
            is_turns=turns,
            never_zero=any(n.op_type in {"Div", "Mod"} for p in places for n in p.any_node()),
            grid=grid,
            shares=_axis_of_shares(of, name),
        )
    return specs


def _axis_of_shares(of: CutModels, name: str) -> int | None:
    """Return along which axis numbers add up to one, if they do."""
    row = of.ours.makers.get(name)
    node = None if row is None else of.ours.nodes[row]
    if node is None or node.op_type != "Softmax":
        return None
    axis = attribute(node, "axis")
    return -1 if axis is None else int(axis.i)


def _deciding(
    of: CutModels, place: Place, what: Callable[[NodeProto], Sequence[str]]
) -> Iterator[str]:
    """Yield what a place reads that decides over some operands, sizes of tensors aside.

    Args:
        of: The two models.
        place: The place.
        what: Names the operands of a node.
    """
    for side, part in zip(of.sides, place.parts, strict=True):
        nodes = (node for row in part.nodes for node in side.inside(row))
        pending = [name for node in nodes for name in what(node)]
        seen: set[str] = set()
        cuts = of.cuts_of(side.place, place.without)
        while pending:
            name = pending.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in part.reads:
                yield cuts[name].original if name in cuts else name
                continue
            row_ = side.wiring.makers.get(name)
            if row_ in part.nodes and row_ is not None:
                node = side.wiring.nodes[row_]
                if node.op_type not in MEASURING:
                    pending += side.wiring.reads[row_]


def _limits(
    of: CutModels, experiment: Experiment, every: Sequence[Place], seen: Feeding
) -> dict[str, tuple[int, bool]]:
    """Return for whole numbers which axis they choose from, and whether they have to stay."""
    limits: dict[str, tuple[int, bool]] = {}
    arrays = (item for place in every for item in seen.arrays(place).items())
    whole = {name for name, array in arrays if array.dtype.kind in "iu"}
    for side in of.sides:
        places = [
            place
            for place in every
            if not whole.isdisjoint(place.reads)
            and any(node.op_type in _LIMITING for node in place.nodes[side.place])
        ]
        if not places:
            continue
        cuts = of.cuts_of(side.place, places[0].without)
        source, _ = experiment.cut_out(side, places, seen)
        flow = Dataflow(model_of(source), infers=False)
        for info in flow.model.graph.input:
            name = cuts[info.name].original
            if name in whole:
                domain = input_domain(flow, port_of(info))
                bounds = [bound for bound in domain.bounds if bound.is_strict]
                axes = [bound.limit for bound in bounds if isinstance(bound.limit, int)]
                is_odd = len(axes) < len(bounds) or bool(domain.parts)
                is_odd = is_odd or any(bound.offset for bound in bounds)
                axis, is_still = limits.get(name, (0, False))
                axis = min(filter(None, (axis, *axes)), default=0)
                limits[name] = axis, is_still or is_odd
    return limits


def _turns(node: NodeProto) -> Sequence[str]:
    """Return the operand that says how often a loop goes round."""
    return [*node.input[:1]] if node.op_type == "Loop" else ()


def _sizes(node: NodeProto) -> Sequence[str]:
    """Return the operands that say how large a result is, but for where a Slice begins and ends."""
    first = SIZED_FROM.get(node.op_type)
    return () if first is None else [*node.input[first:]]


def _scale(like: Array) -> float:
    if like.dtype.kind in "OUSb" or not like.size:
        return 1.0
    wide = np.abs(like.astype(np.float64))
    found = float(wide[np.isfinite(wide)].max(initial=0.0)) or 1.0
    return min(found, _LARGE_HALF) if like.dtype.itemsize < np.dtype(np.float32).itemsize else found


def _held(
    sides: tuple[CutSide, CutSide], places: Sequence[Place]
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the numbers and the words that places hold; first numbers that one model alone has."""
    counts: tuple[Counter[float], Counter[float]] = Counter(), Counter()
    words: dict[str, None] = {}
    for place in places:
        for side, nodes in zip(sides, place.nodes, strict=True):
            for told in (each for node in nodes for each in _told(side, node)):
                if isinstance(told, str):
                    words[told] = None
                elif abs(told) <= _MOST_BOUND:
                    counts[side.place][told] += 1
    ours, theirs = counts
    alone = [number for number in ours | theirs if ours[number] != theirs[number]]
    return tuple(dict.fromkeys([*sorted(alone, key=abs), *ours])), tuple(words)


def _told(side: CutSide, node: NodeProto) -> Iterator[float | str]:
    """Yield the numbers and words of a node's attributes and small constants."""
    tensors = [side.wiring.initializers.get(name) for name in node.input]
    tensors += [item.t for item in node.attribute if item.HasField("t")]
    for graph in subgraphs(node):
        tensors += graph.initializer
    for tensor in filter(None, tensors):
        values = small_values(tensor) if np.prod(tensor.dims) <= LARGE_CONSTANT else None
        if values is not None:
            yield from map(str if values.dtype.kind in "OUS" else float, values.reshape(-1))
    for item in node.attribute:
        numbers = [item.f] if item.HasField("f") else [*item.floats, *item.ints]
        if len(numbers) <= LARGE_CONSTANT:
            yield from map(float, numbers)
        for text in [item.s] if item.HasField("s") else item.strings:
            yield text.decode("utf-8", "replace")
