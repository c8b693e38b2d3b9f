"""What is known of the values that a place reads, so that others can be drawn which could be there.

What decides over sizes stays as it is. Indices stay within the axis that they choose from, floats
within what they can be at all (:mod:`dplcli.verify.ranges`). Where a place may bend is told by the
numbers and words that it holds.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dplcli.analysis.extract import subgraphs
from dplcli.ir.operators import BOUNDING, MEASURING, PLACE_SLOTS, SIZED_FROM
from dplcli.verify.draws import DrawSpec
from dplcli.verify.model import Dataflow, input_domain, model_of, port_of, small_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import onnx
    from onnx import NodeProto

    from dplcli.verify.cuts import CutModels, CutSide, Feeding, Place
    from dplcli.verify.values import Array

_WIDE = 1e3
"""How large numbers are drawn that are inputs of the model."""

LARGE_CONSTANT = 16
"""Constants of more elements are weights; smaller ones may be bounds."""

BOUND_CONSTANT = 1 << 16
"""Constants of more elements are no bounds, whatever reads them."""

_MOST_BOUND = 2.0**32
"""Larger numbers stand for infinity, as in masks."""

_KNEES = {
    "HardSigmoid": (-2.5, 2.5, -3.0, 3.0),
    "HardSwish": (-3.0, 3.0),
    "Shrink": (0.5,),
    "ThresholdedRelu": (1.0,),
}
"""Where operators bend, which hold no constant that says so."""

_LIMITING = {op for op, _ in PLACE_SLOTS} | {"Equal"}
"""Operators that say within what whole numbers have to be."""

_TREES = frozenset({"TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"})

_ASKING = frozenset({"IsInf", "IsNaN"}) | _TREES
"""Operators that ask whether a number is finite, or is missing."""


def draw_specs(of: CutModels, every: Sequence[Place], seen: Feeding) -> dict[str, DrawSpec]:
    """Return the values that may be drawn, and what is known of each.

    Args:
        of: The places of the two models.
        every: Those that are to be drawn for.
        seen: What the original computes there.
    """
    readers: dict[str, list[Place]] = {}
    for place in every:
        for name in place.reads:
            readers.setdefault(name, []).append(place)
    still = {name for place in every for name in _deciding(of, place, _sizes)}
    turning = {name for place in every for name in _deciding(of, place, _turns)} - still
    limits = _limits(of, every, seen)
    specs: dict[str, DrawSpec] = {}
    for name, places in readers.items():
        like = seen.feeds.get(name)
        turns = name in turning
        if not isinstance(like, np.ndarray) or (name in still and not turns):
            continue
        held = _Held(of.sides, places)
        interval = of.ranges[0][name]
        axis, is_still = limits.get(name, (0, False))
        grid = of.ranges[0].grid(name, like.ndim)
        is_bounded = interval.low >= 0 and math.isfinite(interval.high)
        if (is_still and not turns and not is_bounded) or grid == "unknown":
            continue
        is_input = name in of.inputs
        specs[name] = DrawSpec(
            low=interval.low,
            high=interval.high,
            constants=held.told_apart(),
            scale=_scale(like),
            wide=_WIDE if is_input else 0.0,
            axis=0 if is_still else axis,
            words=tuple(held.words),
            odd_floats=any(node.op_type in _ASKING for p in places for node in p.any_node()),
            grid=grid,
            odd=tuple(held.ignored),
            is_turns=turns,
            never_zero=any(n.op_type in {"Div", "Mod"} for p in places for n in p.any_node()),
        )
    return specs


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
        pending = [name for row in part.nodes for name in what(side.wiring.nodes[row])]
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


def _limits(of: CutModels, every: Sequence[Place], seen: Feeding) -> dict[str, tuple[int, bool]]:
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
        source, _ = of.cut_out(side, places, seen)
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
    return float(wide[np.isfinite(wide)].max(initial=0.0)) or 1.0


class _Held:
    """The numbers and words that places hold.

    Attributes:
        numbers: The numbers, of either model.
        words: The words.
        ignored: Labels that a loss ignores, or that are told from others.
    """

    def __init__(self, sides: tuple[CutSide, CutSide], places: Sequence[Place]) -> None:
        self.numbers: tuple[Counter[float], Counter[float]] = Counter(), Counter()
        self.words: dict[str, None] = {}
        self.ignored: dict[int, None] = {}
        for place in places:
            for side, nodes in zip(sides, place.nodes, strict=True):
                for node in nodes:
                    self._add_node(side, node)

    def told_apart(self) -> tuple[float, ...]:
        """Return the numbers; those first that only one model holds."""
        ours, theirs = self.numbers
        alone = [number for number in ours | theirs if ours[number] != theirs[number]]
        ordered = dict.fromkeys([*sorted(alone, key=abs), *ours])
        return tuple(number for number in ordered if abs(number) <= _MOST_BOUND)

    def _add_node(self, side: CutSide, node: NodeProto) -> None:
        self.numbers[side.place].update(_KNEES.get(node.op_type, ()))
        tensors = [side.wiring.initializers.get(name) for name in node.input]
        for tensor in filter(None, tensors if node.op_type in BOUNDING else ()):
            self._add_ends(side, tensor)
        tensors += [item.t for item in node.attribute if item.HasField("t")]
        for graph in subgraphs(node):
            tensors += graph.initializer
        for tensor in filter(None, tensors):
            self._add_tensor(side, tensor, tells=node.op_type == "Equal")
        for item in node.attribute:
            if node.op_type not in _TREES or item.name == "nodes_values":  # the thresholds
                if item.name == "ignore_index":
                    self.ignored[item.i] = None
                listed = [item.f] if item.HasField("f") else [*item.floats, *item.ints]
                if item.name == "nodes_values":
                    listed = [*dict.fromkeys(listed)][:LARGE_CONSTANT]
                if len(listed) <= LARGE_CONSTANT:
                    self.numbers[side.place].update(map(float, listed))
                texts = [item.s] if item.HasField("s") else item.strings
                self.words |= dict.fromkeys(text.decode("utf-8", "replace") for text in texts)

    def _add_ends(self, side: CutSide, tensor: onnx.TensorProto) -> None:
        """Add the least and the largest of a vector of bounds."""
        if LARGE_CONSTANT < np.prod(tensor.dims) <= BOUND_CONSTANT:
            values = small_values(tensor)
            if values is not None and values.dtype.kind in "fiu":
                ends = float(values.min()), float(values.max())
                self.numbers[side.place].update(ends)

    def _add_tensor(self, side: CutSide, tensor: onnx.TensorProto, *, tells: bool) -> None:
        values = small_values(tensor) if np.prod(tensor.dims) <= LARGE_CONSTANT else None
        if values is not None and values.dtype.kind == "i" and values.size == 1 and tells:
            self.ignored[int(values.reshape(-1)[0])] = None
        if values is not None and values.dtype.kind in "fiu":
            numbers = values.astype(np.float64).reshape(-1).tolist()
            self.numbers[side.place].update(numbers)
        elif values is not None and values.dtype.kind in "OUS":
            self.words |= dict.fromkeys(map(str, values.reshape(-1)))
