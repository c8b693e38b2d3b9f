"""Places of a model, run by themselves: in onnxruntime, or in float64.

Whatever is fed, what the original computes or what is drawn, places are cut out and run here. What
their nodes did is noted (:mod:`dplcli.verify.coverage`).
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import cut, made_name
from dplcli.onnx_io.convert import all_nodes, all_scopes, file_of
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.coverage import (
    Known,
    PlaceCoverage,
    calls_of,
    name_of,
    settled_in_bodies,
    show_inner,
    watch_bodies,
)
from dplcli.verify.cuts import open_ifs
from dplcli.verify.layers import alone, type_of
from dplcli.verify.model import (
    attribute,
    dtype_name,
    model_of,
)
from dplcli.verify.numbering import content_of
from dplcli.verify.ranges import Grid, Interval, Ranges
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from dplcli.verify.behaviours import Call
    from dplcli.verify.cuts import CutModels, Cuts, CutSide, Place
    from dplcli.verify.float64 import Precision
    from dplcli.verify.values import Array, Feed, Leaf, Outputs

MOST_TURNS = 2_048
"""How often loops go round at the most on drawn values."""

_WATCHED_BYTES = 1 << 22
"""Bodies that read more are not watched: onnx's evaluator is slow."""

_BOUND = "dpl/"
"""What names of values begin with that are added to a model that is cut out."""

_LARGEST_SIZE = 2.0**24
"""Sizes are taken to lie below."""


@dataclass(frozen=True)
class Feeding:
    """What places are fed once, and what the original gives.

    Attributes:
        what: It, in words.
        feeds: The values that enter, by the original's name.
        expected: What the original computes, by name.
        is_drawn: Whether it was drawn; else the original computes it.
        taken: Which branch every If takes, by how many others it lies in; empty for those that
            the conditions say.
    """

    what: str
    feeds: Mapping[str, Feed]
    expected: Mapping[str, Sequence[Leaf]]
    is_drawn: bool = False
    taken: tuple[bool, ...] = ()

    def arrays(self, place: Place) -> dict[str, Array]:
        """Return the arrays that a place reads, by the original's names."""
        fed = {name: self.feeds.get(name) for name in place.reads}
        return {name: value for name, value in fed.items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class _Ran:
    """One run of places of one model.

    Attributes:
        feeding: What was fed, by the original's names.
        feeds: The same, by the names in this model.
        outputs: What it gave.
    """

    feeding: Feeding
    feeds: Mapping[str, Feed]
    outputs: Outputs

    def arrays(self) -> dict[str, Array]:
        """Return what it was fed and gave, as far as these are tensors."""
        fed = {
            n: np.asarray(v)
            for n, v in self.feeds.items()
            if isinstance(v, np.ndarray | np.generic)
        }
        return fed | {
            name: leaves[0].data
            for name, leaves in self.outputs.items()
            if len(leaves) == 1 and not leaves[0].label
        }


class Experiment:
    """Runs places of two models, and notes what that shows.

    Attributes:
        coverage: What runs showed of the operators of each place, by the candidate's value.
        axes: How long the axis is that a value chooses from, by model and name.

    Args:
        models: The two models, with their cuts, which may change.
    """

    def __init__(self, models: CutModels) -> None:
        self._models = models
        self.coverage: dict[str, PlaceCoverage] = defaultdict(PlaceCoverage)
        self.axes: dict[tuple[int, str], int] = {}
        self._tables: dict[str, Array] = {}
        self._decoded: dict[str, Array | None] = {}  # of the places that are watched

    def run(
        self,
        side: CutSide,
        places: Sequence[Place],
        feedings: Sequence[Feeding],
        precision: Precision | None = None,
        *,
        is_sized: bool = True,
    ) -> dict[tuple[Place, int], Sequence[Leaf] | RunError]:
        """Return what places give in each feeding, by its number, or why they do not run.

        Args:
            side: The model.
            places: Where.
            feedings: What is fed.
            precision: How to compute in float64; None for onnxruntime.
            is_sized: Whether to say what size each value has, in a session for each set of sizes.
                What does not run so, runs the other way.
        """
        leaves: dict[tuple[Place, int], Sequence[Leaf] | RunError] = {}
        pending = [list(places)] if places and feedings else []
        while pending:
            some = pending.pop()
            given = self._runs(side, some, feedings, precision, is_sized=is_sized)
            failed = [n for n, outputs in enumerate(given) if isinstance(outputs, RunError)]
            if failed and len(some) > 1:
                middle = len(some) // 2
                pending += [some[:middle], some[middle:]]
                continue
            if failed:  # a body may state other sizes
                again = [feedings[number] for number in failed]
                found = self._runs(side, some, again, precision, is_sized=not is_sized)
                given = [*given]
                for number, outputs in zip(failed, found, strict=True):
                    given[number] = given[number] if isinstance(outputs, RunError) else outputs
            for number, outputs in enumerate(given):
                for place in some:
                    end = made_name(place.parts[side.place].end)
                    leaves[place, number] = (
                        outputs if isinstance(outputs, RunError) else outputs[end]
                    )
        return leaves

    def _runs(
        self,
        side: CutSide,
        places: Sequence[Place],
        feedings: Sequence[Feeding],
        precision: Precision | None,
        *,
        is_sized: bool,
    ) -> list[Outputs | RunError]:
        """Run places as one model on each feeding; those of the same sizes in one session.

        One session is open at a time: a second one would start another process.
        """
        given: dict[int, Outputs | RunError] = {}
        groups: dict[object, dict[int, Mapping[str, Feed]]] = {}
        for number, feeding in enumerate(feedings):
            try:
                feeds = self.fed(side, places, feeding)
            except RunError as error:
                given[number] = RunError(str(error))
                continue
            arrays = (f for f in feeds.values() if is_sized and isinstance(f, np.ndarray))
            groups.setdefault(tuple(array.shape for array in arrays), {})[number] = feeds
        for group in groups.values():
            some = [feedings[number] for number in group]
            try:
                source, _ = self.cut_out(
                    side, places, some[0], is_sized=is_sized, shows=not precision
                )
                found = (
                    _in_float64(precision, source, [*group.values()])
                    if precision
                    else Runner(source, REFERENCE_LEVEL).try_each([*group.values()])
                )
            except RunError as error:
                # the other holds on to the session
                given |= dict.fromkeys(group, RunError(str(error)))
                continue
            given |= zip(group, found, strict=True)
            if precision or some[0].taken:
                continue
            every = zip(some, group.values(), found, strict=True)
            ran = [
                _Ran(feeding, fed, outputs)
                for feeding, fed, outputs in every
                if not isinstance(outputs, RunError)
            ]
            self._watch(side, places, model_of(source), ran)
        return [given[number] for number in range(len(feedings))]

    def leaves_range(self, side: CutSide, place: Place, feeding: Feeding) -> bool:
        """Tell whether a place computes with numbers beyond the range of their type.

        It does if an inner value is infinite, or has a subnormal number, which has few digits left,
        though all that is fed is finite. Then what it gives is no reference for what it means.
        """
        if not all(
            np.isfinite(a).all() for a in feeding.arrays(place).values() if a.dtype.kind == "f"
        ):
            return False
        try:
            source, feeds = self.cut_out(side, [place], feeding, shows=True, keeps_casts=False)
            outputs = Runner(source, REFERENCE_LEVEL).run(feeds)
        except RunError:
            return False
        end = made_name(place.parts[side.place].end)
        inner = (leaf.data for name, leaves in outputs.items() if name != end for leaf in leaves)
        return any(
            bool(
                (np.isinf(a) | ((a != 0) & (np.abs(a) < float(np.finfo(str(a.dtype)).tiny)))).any()
            )
            for a in inner
            if a.dtype.kind == "f"
        )

    def cut_out(  # noqa: PLR0913  # what is cut out, and how
        self,
        side: CutSide,
        places: Sequence[Place],
        feeding: Feeding,
        cuts: Cuts | None = None,
        *,
        is_sized: bool = True,
        shows: bool = False,
        keeps_casts: bool = True,
    ) -> tuple[ModelSource, Mapping[str, Feed]]:
        """Return places of one model as one model, and what a feeding feeds them.

        Args:
            side: The model.
            places: Where.
            feeding: What is fed.
            cuts: What can be fed, by its name in the model; None for all pairs.
            is_sized: Whether the model states the sizes of what it is fed.
            shows: Whether it also gives what inner nodes do, as far as that rounds nothing.
            keeps_casts: Whether casts to half precision round; else inner values are all given.

        Raises:
            RunError: Something cannot be fed.
        """
        parts = [place.parts[side.place] for place in places]
        if cuts is None:
            cuts = self._models.cuts_of(side.place, places[0].without)
        feeds = self.fed(side, places, feeding, cuts)
        types = {name: type_of(value, is_sized=is_sized) for name, value in feeds.items()}
        nodes = {row for part in parts for row in part.nodes}
        model = cut(side.wiring, nodes, types, [part.end for part in parts], cuts)
        if keeps_casts:
            _keep_casts(model)
        if feeding.is_drawn:
            _bound_loops(model)
        if feeding.taken:
            _take(model, self._models.ranges[side.place], feeding.taken)
        if shows and not (keeps_casts and _has_half(model)):
            show_inner(model)
        return alone(side.source, model, "place"), feeds

    def _watch(
        self, side: CutSide, every: Sequence[Place], model: ModelProto, runs: Sequence[_Ran]
    ) -> None:
        """Note what the nodes of places did in some runs, until all that they may do was seen."""
        is_half, known = _has_half(model), self._known(side)
        self._decoded = {}
        for ran in runs:
            places = [
                place
                for place in every
                if place.branches or self.coverage[place.pair.candidate].is_open(side.place)
            ]
            if not places:
                return
            for place in places:
                self.coverage[place.pair.candidate].runs[side.place] += 1
            if not is_half:
                self._note(side, places, model, ran, known)
                continue
            # To ask for inner values rounds them: run it again.
            source, _ = self.cut_out(side, places, ran.feeding, shows=True, keeps_casts=False)
            with suppress(RunError):
                again = replace(ran, outputs=Runner(source, REFERENCE_LEVEL).run(ran.feeds))
                self._note(side, places, model_of(source), again, known)

    def _note(
        self, side: CutSide, places: Sequence[Place], model: ModelProto, ran: _Ran, known: Known
    ) -> None:
        """Note what the nodes of places did in one run of a model."""
        arrays = ran.arrays()
        owners: dict[int, list[Place]] = defaultdict(list)
        for place in places:
            for row in place.parts[side.place].nodes:
                owners[row].append(place)
        for call in calls_of(model, arrays, partial(self._decoded_once, side)):
            self._note_axis(side, call)
            maker = side.wiring.makers.get(name_of(call.node))
            for place in owners[maker] if maker is not None else ():
                self.coverage[place.pair.candidate].add(side.place, call, ran.feeding.feeds, known)
        is_small = sum(array.nbytes for array in arrays.values()) <= _WATCHED_BYTES
        if len(places) == 1 and places[0].branches and is_small:
            self._watch_bodies(side, self.coverage[places[0].pair.candidate], model, ran)

    def _note_axis(self, side: CutSide, call: Call) -> None:
        """Note how long the axis is in which a node says where an element stands."""
        if call.node.op_type in {"ArgMax", "ArgMin"} and np.ndim(call.values[0]):
            size = np.shape(call.values[0])[int(call.number("axis", 0))]
            key = side.place, name_of(call.node)
            self.axes[key] = max(self.axes.get(key, 0), size)

    def _decoded_once(self, side: CutSide, tensor: TensorProto) -> Array | None:
        """Return what is stored, as :meth:`table` does, decoded once for all runs of places."""
        if tensor.name not in self._decoded:
            self._decoded[tensor.name] = self.table(side, tensor)
        return self._decoded[tensor.name]

    def table(self, side: CutSide, tensor: TensorProto) -> Array | None:
        """Return what is stored, mapped where it lies in a file; None if it cannot be read so.

        What is known to be the same in both models is one array.
        """
        if tensor.data_location != TensorProto.EXTERNAL:
            return onnx.numpy_helper.to_array(tensor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        known = content_of(tensor)
        if not known or dtype.kind not in "fiub":
            return None
        if known not in self._tables:
            path, begin, _ = file_of(tensor, side.source.path.parent)
            self._tables[known] = np.memmap(path, dtype, "r", begin, tuple(tensor.dims))
        return self._tables[known]

    def _watch_bodies(
        self, side: CutSide, covered: PlaceCoverage, watched: ModelProto, ran: _Ran
    ) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(watched)
        known, is_size = self._known(side), self._models.ranges[side.place].is_size
        settled = settled_in_bodies(model, lambda name: is_size(name.removeprefix(made_name(""))))
        inner = Known(is_settled=settled.__contains__)
        known = known._replace(is_settled=settled.__contains__)
        if not ran.feeding.is_drawn:
            _bound_loops(model)

        def see(call: Call) -> None:
            name = name_of(call.node)
            if not name.startswith(_BOUND):
                is_main = name in side.wiring.makers
                covered.add(side.place, call, ran.feeding.feeds, known if is_main else inner)

        watch_bodies(model, ran.feeds, see)

    def _known(self, side: CutSide) -> Known:
        ranges = self._models.ranges[side.place]
        within = partial(self._within, side)

        def is_multiple(name: str, step: Array) -> bool:
            grid = ranges.grid(name, 0)
            if not isinstance(grid, Grid) or not np.all(step):
                return False
            share = np.asarray(grid.step) / np.asarray(step, np.float64)
            return bool(np.allclose(share, np.round(share), rtol=1e-6))

        return Known(within, ranges.is_size, ranges.is_integral, is_multiple, is_main=True)

    def _within(self, side: CutSide, name: str) -> Interval:
        """Return within what a value of a main graph lies."""
        ranges = self._models.ranges[side.place]
        found = ranges[name]
        if axis := self.axes.get((side.place, name)):
            return Interval(max(found.low, -axis), min(found.high, axis - 1.0))
        if not ranges.is_size(name):
            return found
        return Interval(max(found.low, -_LARGEST_SIZE), min(found.high, _LARGEST_SIZE))

    def fed(
        self, side: CutSide, places: Sequence[Place], feeding: Feeding, cuts: Cuts | None = None
    ) -> dict[str, Array | list[Array]]:
        """Return what a feeding feeds places of one model, by the names there."""
        if cuts is None:
            cuts = self._models.cuts_of(side.place, places[0].without)
        feeds: dict[str, Array | list[Array]] = {}
        for name in dict.fromkeys(n for place in places for n in place.parts[side.place].reads):
            value = feeding.feeds.get(cuts[name].original) if name in cuts else None
            if value is None:
                raise RunError(f"the value {name!r} cannot be fed")
            feeds[name] = value
        return feeds


def _in_float64(
    precision: Precision, source: ModelSource, feeds: Sequence[Mapping[str, Feed]]
) -> list[Outputs | RunError]:
    given: list[Outputs | RunError] = []
    for fed in feeds:
        try:
            given.append(precision.run(source, fed))
        except RunError as error:
            given.append(RunError(str(error)))
    return given


def _has_half(model: ModelProto) -> bool:
    """Tell whether a model has to do with half precision."""
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    types = {info.type.tensor_type.elem_type for info in infos}
    types |= {tensor.data_type for tensor in model.graph.initializer}
    types |= {to.i for node in all_nodes(model.graph) if (to := attribute(node, "to")) is not None}
    return not types.isdisjoint({TensorProto.FLOAT16, TensorProto.BFLOAT16})


def _bound_loops(model: ModelProto) -> None:
    """Let no loop go round for ever, as one may that only its condition ends."""
    most, bounds = f"{_BOUND}most turns", set[str]()
    for scope in all_scopes(model.graph):
        position = 0
        while position < len(scope.node):
            node = scope.node[position]
            if node.op_type == "Loop" and not node.domain and node.input[0] not in bounds:
                asked = node.input[0]
                node.input[0] = f"{most} {len(bounds)}"
                bounds.add(node.input[0])
                bound = onnx.helper.make_node(
                    "Min" if asked else "Identity", [most, *filter(None, [asked])], node.input[:1]
                )
                scope.node.insert(position, bound)
                position += 1
            position += 1
    if bounds:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(MOST_TURNS), most))


def _take(model: ModelProto, ranges: Ranges, taken: Sequence[bool]) -> None:
    """Let every If of a model take one branch, by how many others it lies in."""
    for depth, node in open_ifs(model.graph.node, ranges):
        node.input[0] = f"dpl/taken {taken[min(depth, len(taken) - 1)]}"
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(way), f"dpl/taken {way}") for way in (True, False)
    )


def _keep_casts(model: ModelProto) -> None:
    """Let casts to half precision round.

    onnxruntime computes in float32 where it has no kernel for float16, and takes out casts to it
    beside casts of its own: a difference that other devices show would not show here.
    """
    nodes = all_nodes(model.graph)
    types = {to.i for node in nodes if (to := attribute(node, "to")) is not None}
    if {dtype_name(number) for number in types}.isdisjoint({"float16", "bfloat16"}):
        return
    number = 0
    for scope in all_scopes(model.graph):
        for position in reversed(range(len(scope.node))):
            node = scope.node[position]
            if node.op_type == "Cast" and not node.domain:
                ends = [*node.input, *node.output]
                node.input[0], node.output[0] = f"dpl/cast {number}", f"dpl/cast to {number}"
                number += 1
                after = onnx.helper.make_node("Identity", node.output, ends[1:])
                scope.node.insert(position + 1, after)
                scope.node.insert(position, onnx.helper.make_node("Identity", ends[:1], node.input))
