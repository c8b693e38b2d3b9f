"""Two models, cut at values that both compute, and the places between the cuts, which run alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, cut, label_of, made_name, subgraphs
from dplcli.errors import counted
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import CASTS, CONTROL_FLOW, canonical_domain
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import all_nodes, all_scopes, file_of, graphs_of
from dplcli.onnx_io.infer import ONNX_ERRORS, inlined, types_by_name, write_defaults
from dplcli.shapes.knowledge import Knowledge
from dplcli.verify.call_types import complete_types
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import FLOATS, Facts, hides_differences, scale_of
from dplcli.verify.coverage import (
    Known,
    PlaceCoverage,
    calls_of,
    name_of,
    settled_in_bodies,
    show_inner,
    watch_bodies,
)
from dplcli.verify.draw_specs import MOST_TURNS
from dplcli.verify.layers import Pair, align, alone, capture, type_of, value_of
from dplcli.verify.model import (
    attribute,
    draws_random,
    dtype_name,
    input_ports,
    load_unshared,
    model_of,
    read_model,
    small_values,
    whole_of,
)
from dplcli.verify.numbering import Numbering, content_of
from dplcli.verify.ranges import Grid, Interval, Ranges
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto, NodeProto, TypeProto

    from dplcli.verify.behaviours import Call
    from dplcli.verify.check import Execution
    from dplcli.verify.compare import Judge
    from dplcli.verify.float64 import Precision
    from dplcli.verify.values import Array, Feed, Leaf, Outputs

    Cuts: TypeAlias = "Mapping[str, Pair] | _Fewer"
    """Values at which a model is cut, and the pairs that they are in."""

_KEPT_BYTES = 1 << 26
"""Models of fewer bytes are kept, so that no file is read again."""

_LOOKED_PAST = 24
"""How many cuts a place looks past to read the same in both models."""

_LARGEST_SIZE = 2.0**24
"""Sizes are taken to lie below."""

_WATCHED_BYTES = 1 << 22
"""Bodies that read more are not watched: onnx's evaluator is slow."""

_BOUND = "dpl/"
"""What names of values begin with that are added to a model that is cut out."""

_MOST_DEFAULT = 16
"""Of how many elements a default is that callers replace; larger ones are weights."""

_CONVERTING = CASTS | {"DequantizeLinear", "Identity"}


@dataclass(frozen=True)
class Part:
    """What one model computes in a place.

    Attributes:
        nodes: The rows of its nodes.
        reads: The values that enter.
        end: The value that it computes.
    """

    nodes: set[int]
    reads: Sequence[str]
    end: str


@dataclass(frozen=True, eq=False)
class Place:
    """The nodes of both models that compute the values of a pair from cuts.

    Attributes:
        pair: The pair.
        parts: Those of the original, and of the candidate.
        nodes: All of them, with those in their bodies.
        reads: The values of the original that enter one or the other.
        without: Cuts that this place looks past, by the original's names.
    """

    pair: Pair
    parts: tuple[Part, Part]
    nodes: tuple[Sequence[NodeProto], Sequence[NodeProto]]
    reads: Sequence[str]
    without: frozenset[str] = frozenset()

    def any_node(self) -> Iterator[NodeProto]:
        """Yield the nodes of both parts."""
        yield from self.nodes[0]
        yield from self.nodes[1]

    @property
    def hides(self) -> bool:
        """Whether some node may give the same for values that differ by more than rounding."""
        return any(hides_differences(node) for node in self.any_node())

    @property
    def jumps(self) -> bool:
        """Whether rounding may be enlarged to a step: then float64 would say little."""
        return self.hides or any(truncates(node) for node in self.any_node())

    @property
    def branches(self) -> bool:
        """Whether it holds nodes that need not have run."""
        return any(node.op_type in CONTROL_FLOW for node in self.any_node())


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
class CutSide:
    """One of the two models.

    Attributes:
        place: 0 for the original, 1 for the candidate.
        source: How it runs.
        wiring: Its main graph.
    """

    place: int
    source: ModelSource
    wiring: Wiring

    def stored(self, name: str) -> TensorProto | None:
        """Return the constant of a name, if there is one."""
        if name in self.wiring.initializers:
            tensor: TensorProto = self.wiring.initializers[name]
            return tensor
        row = self.wiring.makers.get(name)
        value = None if row is None else attribute(self.wiring.nodes[row], "value")
        return None if value is None else value.t

    def table(self, name: str) -> TensorProto | None:
        """Return the constant that a value is, or that it is converted from."""
        while (row := self.wiring.makers.get(name)) is not None:
            node = self.wiring.nodes[row]
            if node.op_type not in _CONVERTING:
                break
            name = node.input[0]
        return self.wiring.initializers.get(name)

    def inside(self, row: int) -> Iterator[NodeProto]:
        """Yield a node and what it holds; all functions, if it may call one."""
        node = self.wiring.nodes[row]
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph)
        if node.domain:
            for function in self.wiring.model.functions:
                yield from all_nodes(function)


@dataclass(frozen=True)
class _Ran:
    """One run of places of one model.

    Attributes:
        source: The model that ran.
        feeding: What was fed, by the original's names.
        feeds: The same, by the names in this model.
        outputs: What it gave.
    """

    source: ModelSource
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


class _Fewer:
    """All cuts but some, without copying them."""

    def __init__(self, every: Mapping[str, Pair], without: frozenset[str]) -> None:
        self._every = every
        self._without = without

    def __contains__(self, name: object) -> bool:
        pair = self._every.get(name) if isinstance(name, str) else None
        return pair is not None and pair.original not in self._without

    def __getitem__(self, name: str) -> Pair:
        return self._every[name]


class CutModels:
    """An original and a candidate, cut at the pairs of values that both compute.

    Attributes:
        ours: The main graph of the original, functions written out.
        theirs: That of the candidate.
        sides: Both, as they run.
        models: Both, as graphs of dpl's own.
        cuts: Those that are cut, by the candidate's name.
        partners: The same by the original's name.
        order: The position of each value in the original.
        ranges: What values can be, in either model.
        coverage: What runs showed of the operators of each place, by the candidate's value.
        axes: How long the axis is that a value chooses from, by the original's name.
        tables: What is stored in files, by its digest.
        inputs: What the original is fed, in one case, with the defaults.
        defaults: What inputs hold that need not be fed.

    Args:
        original: The original.
        candidate: The candidate.
        inputs: What the original is fed, in one case.

    Raises:
        RunError: Weights cannot be read.
    """

    def __init__(
        self, original: ModelSource, candidate: ModelSource, inputs: Mapping[str, Feed]
    ) -> None:
        ours, theirs = _comparable(original, candidate)
        self.defaults = _without_defaults(ours, theirs)
        self.inputs = inputs = {**self.defaults, **inputs}
        self.ours, self.theirs = Wiring(ours), Wiring(theirs)
        source = original
        if ours.ByteSize() <= _KEPT_BYTES or model_of(original).functions:  # large files stay files
            source = replace(original, content=ours.SerializeToString())
        self.sides = CutSide(0, source, self.ours), CutSide(1, candidate, self.theirs)
        aligned, self.models = align((self.ours, self.theirs), (original, candidate))
        given = {info.name for info in self.theirs.model.graph.input}
        entering = [Pair(name, name, "structure") for name in inputs if name in given]
        pairs = [*entering, *aligned.values()]
        self.cuts = {pair.candidate: pair for pair in pairs}
        self.partners = {pair.original: pair for pair in pairs}
        self.order = {name: position for position, name in enumerate(self.ours.makers)}
        self.ranges = Ranges(self.ours), Ranges(self.theirs)
        self.coverage: dict[str, PlaceCoverage] = defaultdict(PlaceCoverage)
        self.axes: dict[str, int] = {}
        self.tables: dict[str, Array] = {}

    def pairs(self) -> list[Pair]:
        """Return the pairs of values that nodes make, in the original's order."""
        computed = (pair for pair in self.cuts.values() if pair.original in self.order)
        return sorted(computed, key=lambda pair: self.order[pair.original])

    def changed(self) -> list[Pair]:
        """Return the pairs between whose nearest cuts the models do not say the same."""
        pairs = self.pairs()
        numbering = Numbering()
        ours = numbering.model(self.ours.model, {pair.original: pair.original for pair in pairs})
        theirs = numbering.model(
            self.theirs.model, {pair.candidate: pair.original for pair in pairs}
        )
        return [
            pair for pair in pairs if ours.values[pair.original] != theirs.values[pair.candidate]
        ]

    def place(self, pair: Pair, without: frozenset[str] = frozenset()) -> Place:
        """Return what lies between a pair and the cuts next before it.

        Args:
            pair: The pair.
            without: Cuts to look past, by the original's names.

        Raises:
            RunError: The candidate reads there what the original does not have.
        """
        ours, theirs = self._parts(pair, without)
        if unknown := [name for name in theirs.reads if name not in self.cuts]:
            raise RunError(f"{unknown[0]!r} of the candidate cannot be fed")
        nodes = tuple(
            [node for row in sorted(part.nodes) for node in side.inside(row)]
            for side, part in zip(self.sides, (ours, theirs), strict=True)
        )
        reads = dict.fromkeys([*ours.reads, *(self.cuts[name].original for name in theirs.reads)])
        return Place(pair, (ours, theirs), (nodes[0], nodes[1]), [*reads], without)

    def cuts_of(self, side: int, without: frozenset[str] = frozenset()) -> Cuts:
        """Return the cuts of one model by its own names, but for some."""
        every = self.cuts if side else self.partners
        return _Fewer(every, without) if without else every

    def even(self, place: Place) -> Place | None:
        """Return a place of which both parts read the same, to draw for it; None if there is none.

        What only one part reads may depend on what the other reads. So the place looks past it, the
        last one first, and past what follows from a value that it has looked past.
        """
        without = place.without
        for _ in range(_LOOKED_PAST):
            ours, theirs = self._parts(place.pair, without)
            if any(name not in self.cuts for name in theirs.reads):
                return None
            reads = {*ours.reads}, {self.cuts[name].original for name in theirs.reads}
            uneven = reads[0] ^ reads[1]
            if not uneven.issubset(self.inputs):
                past = uneven - self.inputs.keys()
            else:  # what both read may depend on an input that one reads
                past = (reads[0] | reads[1]) - self.inputs.keys() if uneven else set()
            past = past or {name for name in reads[0] if self._follows(name, without)}
            if not past:
                return place if without == place.without else self.place(place.pair, without)
            without |= {max(past, key=lambda name: self.order[name])}
        return None

    def _follows(self, name: str, values: frozenset[str]) -> bool:
        """Tell whether a value of the original follows from one of some."""
        first = min((self.order[value] for value in values), default=len(self.order))
        pending = [name]
        seen = {name}
        while pending:
            row = self.ours.makers.get(pending.pop())
            for read in () if row is None else self.ours.reads[row]:
                if read in values:
                    return True
                if read not in seen and self.order.get(read, -1) > first:
                    seen.add(read)
                    pending.append(read)
        return False

    def _parts(self, pair: Pair, without: frozenset[str]) -> tuple[Part, Part]:
        ours = self._part(self.ours, self.cuts_of(0, without), pair.original)
        return ours, self._part(self.theirs, self.cuts_of(1, without), pair.candidate)

    @staticmethod
    def _part(wiring: Wiring, cuts: Cuts, end: str) -> Part:
        nodes = wiring.between(cuts, [end])
        return Part(nodes, wiring.entering(nodes, cuts), end)

    def draws_random(self, place: Place) -> bool:
        """Tell whether a place gives something else each time."""
        return any(
            draws_random(node, side.stored)
            for side, nodes in zip(self.sides, place.nodes, strict=True)
            for node in nodes
        )

    def depth_of_ifs(self, place: Place) -> int:
        """Return how deep If nodes lie in each other whose branches can be chosen; 0 for none.

        The candidate must have as many as the original. It may have none any more, if it does not
        see what decides either.
        """
        ours, theirs = (
            [*_open_ifs(nodes, self.ranges[side.place])]
            for side, nodes in zip(self.sides, place.nodes, strict=True)
        )
        if len(ours) != len(theirs):
            cuts = self.cuts_of(1, place.without)
            seen = {cuts[n].original if n in cuts else n for n in place.parts[1].reads}
            deciding = self._behind({node.input[0] for _, node in ours}, place.parts[0])
            if theirs or deciding & seen:
                return 0
        return max((depth for depth, _ in ours), default=-1) + 1

    def _behind(self, names: set[str], part: Part) -> set[str]:
        """Return what of the values that a part of the original reads some others follow from."""
        pending, seen = [*names], set(names)
        while pending:
            row = self.ours.makers.get(pending.pop())
            if row in part.nodes and row is not None:
                more = {*self.ours.reads[row]} - seen
                seen |= more
                pending += more
        return seen & {*part.reads}

    def results(
        self,
        side: CutSide,
        places: Sequence[Place],
        feedings: Sequence[Feeding],
        precision: Precision | None = None,
    ) -> dict[tuple[Place, int], Sequence[Leaf] | RunError]:
        """Return what places give in each feeding, by its number, or why they do not run.

        Args:
            side: The model.
            places: Where.
            feedings: What is fed.
            precision: How to compute in float64; None for onnxruntime.
        """
        leaves: dict[tuple[Place, int], Sequence[Leaf] | RunError] = {}
        pending = [(list(places), True)] if places and feedings else []
        while pending:
            some, is_sized = pending.pop()
            given = self._runs(side, some, feedings, precision, is_sized=is_sized)
            if any(isinstance(each, RunError) for each in given):
                if len(some) > 1:
                    middle = len(some) // 2
                    pending += [(some[:middle], True), (some[middle:], True)]
                    continue
                if is_sized:  # a body may state other sizes
                    pending.append((some, False))
                    continue
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
                given[number] = error
                continue
            arrays = (f for f in feeds.values() if is_sized and isinstance(f, np.ndarray))
            groups.setdefault(tuple(array.shape for array in arrays), {})[number] = feeds
        for group in groups.values():
            opened: tuple[ModelSource, Callable[[Mapping[str, Feed]], Outputs]] | None = None
            for number, fed in group.items():
                feeding = feedings[number]
                try:
                    if opened is None:
                        source, _ = self.cut_out(
                            side, places, feeding, is_sized=is_sized, shows=not precision
                        )
                        opened = (
                            source,
                            (
                                partial(precision.run, source)
                                if precision
                                else Runner(source, REFERENCE_LEVEL).run
                            ),
                        )
                    outputs = opened[1](fed)
                except RunError as error:
                    given[number] = RunError(str(error))  # the other holds on to the session
                    continue
                given[number] = outputs
                if not precision and not feeding.taken:
                    self._watch(side, places, _Ran(opened[0], feeding, fed, outputs))
        return [given[number] for number in range(len(feedings))]

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
            cuts = self.cuts_of(side.place, places[0].without)
        feeds = self.fed(side, places, feeding, cuts)
        types = {name: type_of(value, is_sized=is_sized) for name, value in feeds.items()}
        nodes = {row for part in parts for row in part.nodes}
        model = cut(side.wiring, nodes, types, [part.end for part in parts], cuts)
        if keeps_casts:
            _keep_casts(model)
        if feeding.is_drawn:
            _bound_loops(model)
        if feeding.taken:
            _take(model, self.ranges[side.place], feeding.taken)
        if shows and not (keeps_casts and _has_half(model)):
            show_inner(model)
        return alone(side.source, model, "place"), feeds

    def _watch(self, side: CutSide, places: Sequence[Place], ran: _Ran) -> None:
        """Note what the nodes of places did in one run."""
        if _has_half(model_of(ran.source)):  # to ask for inner values rounds them: run it again
            source, _ = self.cut_out(side, places, ran.feeding, shows=True, keeps_casts=False)
            try:
                outputs = Runner(source, REFERENCE_LEVEL).run(ran.feeds)
            except RunError:
                return
            ran = replace(ran, source=source, outputs=outputs)
        arrays = ran.arrays()
        owners: dict[int, list[Place]] = defaultdict(list)
        for place in places:
            for row in place.parts[side.place].nodes:
                owners[row].append(place)
        known = self._known(side)
        for call in calls_of(model_of(ran.source), arrays, partial(self.table, side)):
            self._note_axis(call)
            maker = side.wiring.makers.get(name_of(call.node))
            for place in owners[maker] if maker is not None else ():
                self.coverage[place.pair.candidate].add(side.place, call, ran.feeding.feeds, known)
        is_small = sum(array.nbytes for array in arrays.values()) <= _WATCHED_BYTES
        if len(places) == 1 and places[0].branches and is_small:
            self._watch_bodies(side, self.coverage[places[0].pair.candidate], ran)

    def _note_axis(self, call: Call) -> None:
        """Note how long the axis is in which a node says where an element stands."""
        if call.node.op_type in {"ArgMax", "ArgMin"} and np.ndim(call.values[0]):
            name, size = name_of(call.node), np.shape(call.values[0])[int(call.number("axis", 0))]
            self.axes[name] = max(self.axes.get(name, 0), size)

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
        if known not in self.tables:
            path, begin, _ = file_of(tensor, side.source.path.parent)
            self.tables[known] = np.memmap(path, dtype, "r", begin, tuple(tensor.dims))
        return self.tables[known]

    def _watch_bodies(self, side: CutSide, covered: PlaceCoverage, ran: _Ran) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(model_of(ran.source))
        known, is_size = self._known(side), self.ranges[side.place].is_size
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
        ranges = self.ranges[side.place]
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
        graph, ranges = self.models[side.place].graph, self.ranges[side.place]
        value = graph.values.get(name)
        array = None if value is None else graph.model.memory(Knowledge).array(value)
        if array is not None and array.size and array.dtype.kind in "fiub":
            return Interval(float(array.min()), float(array.max()))
        found = ranges[name]
        if name in self.axes:
            axis = self.axes[name]
            return Interval(max(found.low, -axis), min(found.high, axis - 1.0))
        if not ranges.is_size(name):
            return found
        return Interval(max(found.low, -_LARGEST_SIZE), min(found.high, _LARGEST_SIZE))

    def fed(
        self, side: CutSide, places: Sequence[Place], feeding: Feeding, cuts: Cuts | None = None
    ) -> dict[str, Array | list[Array]]:
        """Return what a feeding feeds places of one model, by the names there."""
        if cuts is None:
            cuts = self.cuts_of(side.place, places[0].without)
        feeds: dict[str, Array | list[Array]] = {}
        for name in dict.fromkeys(n for place in places for n in place.parts[side.place].reads):
            value = feeding.feeds.get(cuts[name].original) if name in cuts else None
            if value is None:
                raise RunError(f"the value {name!r} cannot be fed")
            feeds[name] = value
        return feeds


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


def _open_ifs(
    nodes: Iterable[NodeProto], ranges: Ranges, depth: int = 0
) -> Iterator[tuple[int, NodeProto]]:
    """Yield the If nodes whose condition is not always the same, and in how many others each is."""
    for node in nodes:
        is_if = node.op_type == "If" and not node.domain
        is_open = is_if and len({*ranges[node.input[0]]}) > 1
        if is_open:
            yield depth, node
        for _, body in graphs_of(node):
            yield from _open_ifs(body.node, ranges, depth + is_open)


def _take(model: ModelProto, ranges: Ranges, taken: Sequence[bool]) -> None:
    """Let every If of a model take one branch, by how many others it lies in."""
    for depth, node in _open_ifs(model.graph.node, ranges):
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


def truncates(node: NodeProto) -> bool:
    """Tell whether a node makes whole numbers of others."""
    to = attribute(node, "to") if node.op_type == "Cast" else None
    return to is not None and dtype_name(to.i) not in FLOATS


def _comparable(*sources: ModelSource) -> list[ModelProto]:
    """Read models, and those weights in files that they do not share.

    Raises:
        RunError: They cannot be read.
    """
    models = [model_of(source) for source in sources]
    try:
        sides = zip(models, sources, strict=True)
        for _ in load_unshared(*((model, each.path.parent) for model, each in sides)):
            pass
        return [_written_out(model) if model.functions else model for model in models]
    except GivenUpError:
        return models
    except (OSError, *ONNX_ERRORS) as error:
        raise RunError(f"weights cannot be read: {one_line(str(error))}") from error


def _without_defaults(ours: ModelProto, theirs: ModelProto) -> dict[str, Feed]:
    """Take small defaults of inputs, equal in both models, out of them, and return their values.

    A caller may feed other values, so they are drawn like other inputs.
    """
    if min(ours.ir_version, theirs.ir_version) < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        return {}
    inputs = [{info.name for info in model.graph.input} for model in (ours, theirs)]
    stored = [
        {
            tensor.name: small_values(tensor)
            for tensor in model.graph.initializer
            if tensor.name in names and np.prod(tensor.dims) <= _MOST_DEFAULT
        }
        for model, names in zip((ours, theirs), inputs, strict=True)
    ]
    defaults: dict[str, Feed] = {
        name: value
        for name, value in stored[0].items()
        if value is not None
        and (other := stored[1].get(name)) is not None
        and (value.dtype, value.shape) == (other.dtype, other.shape)
        and np.array_equal(value, other)
    }
    for model in (ours, theirs) if defaults else ():
        kept = [tensor for tensor in model.graph.initializer if tensor.name not in defaults]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
    return defaults


def _written_out(model: ModelProto) -> ModelProto:
    """Put the bodies of functions in the place of their calls, with the defaults of attributes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    write_defaults(copy)
    return inlined(copy)


# Two models of which onnxruntime does not run some nodes: what can be said of the others.
#
# A custom operator whose library is missing, or a kernel that this build lacks, keeps a whole
# model from running. Nodes that say the same in both models need not run: what they read becomes
# outputs of both, and what they give becomes inputs. A node that differs is a place that cannot be
# seen.


_MOST_NAMED = 3


@dataclass(frozen=True)
class Runnable:
    """Two models without the nodes that do not run.

    Attributes:
        models: The original and the candidate; None if nodes that do not run differ.
        said: What to say: what was not run or not seen, and why.
    """

    models: tuple[onnx.ModelProto, onnx.ModelProto] | None
    said: tuple[str, ...]


def without_refused(original: Path, candidate: Path, execution: Execution) -> Runnable | None:
    """Return two models without the nodes that onnxruntime refuses; None if that is not why.

    Raises:
        RunError: Weights cannot be read.
    """
    inputs = dict.fromkeys(port.name for port in input_ports(read_model(original).graph))
    ours, theirs = (
        ModelSource(path, execution=execution.plain()) for path in (original, candidate)
    )
    models = CutModels(ours, theirs, inputs)
    types = [_types(side) for side in models.sides]
    refused = [
        _refused(side, types_there) for side, types_there in zip(models.sides, types, strict=True)
    ]
    if not refused[0]:
        return None
    changed = {pair.original for pair in models.changed()}
    pairs = {
        pair.original: pair.candidate for pair in models.pairs() if pair.original not in changed
    }
    kept = ({*pairs}, {*pairs.values()})
    unseen = [
        f"{label_of(side.wiring.nodes[row])} was not seen: onnxruntime does not run it: {why}"
        for side, rows, same in zip(models.sides, refused, kept, strict=True)
        for row, why in rows.items()
        if not same.issuperset(filter(None, side.wiring.nodes[row].output))
    ]
    if unseen:
        return Runnable(None, tuple(dict.fromkeys(unseen)))
    given = [name for row in refused[0] for name in models.ours.nodes[row].output if name]
    if any(name not in types[0] for name in given):
        return None
    names = {name: name for name in given}, {pairs[name]: name for name in given}
    models_left = [
        _without(side, rows, own, types[0])
        for side, rows, own in zip(models.sides, refused, names, strict=True)
    ]
    return Runnable((models_left[0], models_left[1]), tuple(_not_run(models.sides[0], refused[0])))


def _types(side: CutSide) -> dict[str, TypeProto]:
    """Return the types of values; what an unknown operator gives has that of its first input."""
    model = onnx.ModelProto()
    model.CopyFrom(side.wiring.model)
    guesses: dict[str, TypeProto] = {}
    while True:
        path = side.source.path
        types = guesses | types_by_name(model_from_proto(model, path.parent, path.name))
        more = {
            name: types[node.input[0]]
            for node in side.wiring.nodes
            if node.domain and node.input and node.input[0] in types
            for name in node.output
            if name and name not in types
        }
        if not more:
            break
        guesses |= more
        model.graph.value_info.extend(
            onnx.ValueInfoProto(name=name, type=guess) for name, guess in more.items()
        )
    for tensor in side.wiring.initializers.values():
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types


def _refused(side: CutSide, types: Mapping[str, TypeProto]) -> dict[int, str]:
    """Return the nodes that onnxruntime refuses, and why; of one kind, one is tried."""
    tried: dict[object, str] = {}
    refused = {}
    for row, node in enumerate(side.wiring.nodes):
        reads = side.wiring.entering([row])
        if any(name not in types for name in reads):
            continue
        elements = [
            types[name].tensor_type.elem_type for name in side.wiring.reads[row] if name in types
        ]
        kind = (node.domain, node.op_type, *sorted(a.name for a in node.attribute), *elements)
        if kind not in tried:
            tried[kind] = _refusal(side, row, types)
        if tried[kind]:
            refused[row] = tried[kind]
    return refused


def _refusal(side: CutSide, row: int, types: Mapping[str, TypeProto]) -> str:
    """Return why onnxruntime refuses a model of one node; "" if it does not, or if onnx does."""
    node = side.wiring.nodes[row]
    if not canonical_domain(node.domain) and not onnx.defs.has(node.op_type):
        return ""  # a misspelt name
    ends = [name for name in node.output if name]
    model = cut(side.wiring, [row], types, ends)
    for output in model.graph.output:
        output.ClearField("type")  # what is known of it may be a guess
    content = model.SerializeToString()
    try:
        Runner(replace(side.source, content=content), REFERENCE_LEVEL)
    except RunError as error:
        refusal = str(error)
    else:
        return ""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except ONNX_ERRORS:
        return ""  # the model is at fault
    return refusal


def _without(
    side: CutSide, rows: Mapping[int, str], names: Mapping[str, str], types: Mapping[str, TypeProto]
) -> onnx.ModelProto:
    """Return a model with inputs for what some nodes give, and outputs for what they read.

    Args:
        side: The model.
        rows: The nodes.
        names: What they give, and the original's names of it, by which the inputs are called.
        types: The types of values of the original.
    """
    model = onnx.ModelProto()
    model.CopyFrom(side.wiring.model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for row, node in enumerate(nodes):
        if row not in rows:
            model.graph.node.append(node)
            continue
        given = [(name, f"stand-in for {names[name]}") for name in node.output if name]
        for name, stand_in in given:
            model.graph.input.add(name=stand_in, type=types[names[name]])
            model.graph.node.add(op_type="Identity", input=[stand_in], output=[name])
        first = names[next(filter(None, node.output))]
        for slot, name in enumerate(node.input):
            if name in side.wiring.makers:
                read = f"input {slot} of {first}"
                model.graph.node.add(op_type="Identity", input=[name], output=[read])
                model.graph.output.add(name=read)
    del model.graph.value_info[:]
    return whole_of(ModelSource(side.source.path, content=model.SerializeToString()))


def _not_run(side: CutSide, rows: Mapping[int, str]) -> Iterator[str]:
    """Say which nodes did not run, and why."""
    for why in dict.fromkeys(rows.values()):
        called = [label_of(side.wiring.nodes[row]) for row in rows if rows[row] == why]
        more = f" and {len(called) - _MOST_NAMED} more" if len(called) > _MOST_NAMED else ""
        yield (
            f"onnxruntime does not run {', '.join(called[:_MOST_NAMED])}{more}, so numbers were "
            f"drawn for what comes of it; it is the same in both models: {why}"
        )


# Each partition judged by itself: on what the original computes there, kernel against body.
#
# The outputs of a whole model are a poor witness of kernels (see :mod:`dplcli.verify.places`): the
# last bits of a partition decide over large differences behind a Softmax, a Sigmoid that
# onnxruntime rounds to steps, or a quantisation.


_ROUNDINGS = 1 << 10
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_LAST_PLACE = 2.0**-7
"""Of bfloat16: what a call makes, and what lies between two of its products, may be rounded to
either side. Errors add up like a random walk. Of real models, single calls were off by half of this
at most, and a region of 53 convolutions by 4 times this."""

_MOST_VALUES = 64
"""How many partitions run in one session: what they read and make is held at once."""


@dataclass(frozen=True)
class ApartJudgement:
    """What partitions give by themselves.

    Attributes:
        judged: How many were run by themselves.
        unseen: How many ran in the model and do not by themselves, such as those in bodies.
        differing: What is wrong with those that do not give what their bodies give.
    """

    judged: int
    unseen: int
    differing: tuple[str, ...]

    @property
    def excuse(self) -> str:
        """What this says for the kernels; "" if it is not enough to say anything."""
        if self.differing or self.unseen or not self.judged:
            return ""
        return (
            "rounding, amplified by the model: "
            f"{counted(self.judged, 'partition')} by themselves give what the bodies give"
        )


def judge_apart(
    candidate: ModelSource,
    ran: Collection[str],
    feeds: Mapping[str, Feed],
    judge: Judge,
    create: Callable[[ModelSource], Runner],
) -> ApartJudgement:
    """Run partitions by themselves, on a library and by their bodies.

    Args:
        candidate: The model, with the kernels that it is to have.
        ran: The names of the calls that ran on the library.
        feeds: What the model is fed.
        judge: Says for which inputs this is.
        create: Creates a session.

    Raises:
        RunError: A model that is cut out does not run.
        StoppedError: The process crashed, or took longer than allowed.
    """
    wiring = Wiring(model_of(candidate))
    calls = [row for row, node in enumerate(wiring.nodes) if node.name in ran]
    bodies = replace(candidate, execution=candidate.execution.plain())
    kernels = candidate.execution.kernels
    is_bf16 = kernels is not None and kernels.math == "bf16"
    narrow = _read_in_bfloat16(bodies) if bodies.execution.widens else frozenset()
    differing: list[str] = []
    seen: set[str] = set()
    for start in range(0, len(calls), _MOST_VALUES):
        rows = calls[start : start + _MOST_VALUES]
        read = dict.fromkeys(name for row in rows for name in wiring.reads[row])
        makers = {name: wiring.makers[name] for name in read if name in wiring.makers}
        # A kernel may have to know a constant, such as the bound of a Clip.
        constants = {row for row in makers.values() if wiring.nodes[row].op_type == "Constant"}
        asked = [name for name, row in makers.items() if row not in constants]
        outputs = capture(bodies, asked, feeds) if asked else {}
        for name in narrow.intersection(outputs):  # it was computed in float32
            outputs[name] = tuple(replace(leaf, dtype="bfloat16") for leaf in outputs[name])
        values = {name: value_of(leaves) for name, leaves in outputs.items()}
        if lost := [name for name, value in values.items() if value is None]:
            raise RunError(f"{lost[0]!r} cannot be fed")
        given = {**{name: feeds[name] for name in read if name in feeds}, **values}
        sources = [
            _cut_out(wiring, rows, constants, source, given) for source in (bodies, candidate)
        ]
        expected, runner = create(sources[0]).run(given), create(sources[1])
        actual = runner.run(given)
        seen |= {item.call for item in runner.record() if item.runs}
        rounded = create(in_bf16(sources[0])).run(given) if is_bf16 else None
        differing += _differences(wiring, rows, judge, (expected, rounded), actual)
    return ApartJudgement(len(seen), len(ran) - len(seen), tuple(differing))


def _read_in_bfloat16(source: ModelSource) -> frozenset[str]:
    """Return the values of a main graph that are of bfloat16, by the types of what is read."""
    model = model_from_proto(model_of(source), source.path.parent, source.path.name)
    complete_types(model, source)
    read = {value for node in model.graph for value in node.inputs if value is not None}
    types = {value.name: value.known_type() for value in read}
    return frozenset(n for n, known in types.items() if known and known.dtype == "bfloat16")


def _differences(
    wiring: Wiring,
    rows: Sequence[int],
    judge: Judge,
    wanted: tuple[Mapping[str, Sequence[Leaf]], Mapping[str, Sequence[Leaf]] | None],
    actual: Mapping[str, Sequence[Leaf]],
) -> list[str]:
    """Say which partitions give something else than their bodies, in neither arithmetic."""
    expected, rounded = wanted
    stepped = frozenset(
        name
        for name, leaves in expected.items()
        if any(leaf.data.dtype.kind in "iu" for leaf in leaves)
    )
    judge = replace(
        judge, facts=Facts(stepped=stepped), roundings=_ROUNDINGS, level=REFERENCE_LEVEL
    )
    objections = []
    for row in rows:
        node = wiring.nodes[row]
        for output in filter(None, node.output):
            name = output if output in expected else made_name(output)
            compared = judge.compare(name, expected[name], actual[name])
            products = _products_of(wiring.model, node)
            is_ok, reason = compared.ok, compared.reason
            if all(leaf.dtype == "bfloat16" for leaf in actual[name]):
                off = _off(expected[name], actual[name])
                is_ok = off <= _LAST_PLACE * max(products, 1) ** 0.5
                reason = f"it is off by {off:.2%} of its largest element"
            elif not is_ok and rounded is not None:
                is_ok = judge.compare(name, rounded[name], actual[name]).ok
                is_ok |= products > 1 and _off(rounded[name], actual[name]) <= _LAST_PLACE
            if not is_ok:
                objections.append(
                    f"partition {node.name!r} ({node.domain}::{node.op_type}) by itself gives "
                    f"something else than its body: {reason}"
                )
    return objections


def _products_of(model: onnx.ModelProto, node: onnx.NodeProto) -> int:
    """Count the products that a call stands for."""
    if not node.domain:
        return int(node.op_type in _PRODUCTS)
    bodies = [f for f in model.functions if (f.domain, f.name) == (node.domain, node.op_type)]
    return sum(_products_of(model, each) for body in bodies for each in body.node)


def _off(expected: Sequence[Leaf], actual: Sequence[Leaf]) -> float:
    """Return how far some element is off, as a share of the largest one (fill values: of it)."""
    furthest = 0.0
    for one, other in zip(expected, actual, strict=True):
        if one.data.shape != other.data.shape:
            return np.inf
        numbers, others = one.data.astype(np.float64), other.data.astype(np.float64)
        is_same = (numbers == others) | (np.isnan(numbers) & np.isnan(others))
        with np.errstate(all="ignore"):
            sizes = np.maximum(np.abs(numbers), scale_of(numbers))
            shares = np.where(is_same, 0.0, np.abs(numbers - others) / sizes)
        furthest = max(furthest, float(np.where(np.isnan(shares), np.inf, shares).max(initial=0.0)))
    return furthest


def in_bf16(source: ModelSource) -> ModelSource:
    """Return a model whose functions round what products read to bfloat16, and sum as ever."""
    model = model_of(source)
    for function in model.functions:
        nodes: list[onnx.NodeProto] = []
        for node in function.node:
            slots = (0, 1) if not node.domain and node.op_type in _PRODUCTS else ()
            for slot in slots:
                name = node.input[slot]
                short = f"{name}.{node.output[0]}.{slot}"
                node.input[slot] = f"{short}.wide"
                code = onnx.TensorProto.BFLOAT16
                nodes.append(onnx.helper.make_node("Cast", [name], [short], to=code))
                nodes.append(onnx.helper.make_node("CastLike", [short, name], [f"{short}.wide"]))
            nodes.append(node)
        del function.node[:]
        function.node.extend(nodes)
    return replace(source, content=model.SerializeToString())


def _cut_out(
    wiring: Wiring,
    rows: Sequence[int],
    constants: Collection[int],
    source: ModelSource,
    given: Mapping[str, Feed],
) -> ModelSource:
    """Return calls and constants as a model that is fed what else the calls read."""
    types = {name: type_of(value) for name, value in given.items() if value is not None}
    ends = [name for row in rows for name in wiring.nodes[row].output if name]
    return alone(source, cut(wiring, {*rows, *constants}, types, ends, given), "partitions")
