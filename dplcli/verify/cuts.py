"""Two models, cut at values that both compute, and the places between the cuts, which run alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, cut, made_name, subgraphs
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import CASTS, CONTROL_FLOW
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import all_nodes, all_scopes, file_of, graphs_of
from dplcli.onnx_io.infer import ONNX_ERRORS, inlined, write_defaults
from dplcli.shapes.knowledge import Knowledge
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import FLOATS, hides_differences
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
from dplcli.verify.layers import Pair, align, alone, type_of
from dplcli.verify.model import (
    attribute,
    draws_random,
    dtype_name,
    load_unshared,
    model_of,
    small_values,
)
from dplcli.verify.numbering import Numbering, content_of
from dplcli.verify.ranges import Grid, Interval, Ranges
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto

    from dplcli.verify.behaviours import Call
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
