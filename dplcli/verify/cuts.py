"""Two models, cut at values that both compute, and the places between the cuts, which run alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, subgraphs
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import CASTS, CONTROL_FLOW, MEASURING
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import all_nodes, graphs_of
from dplcli.onnx_io.infer import ONNX_ERRORS, inlined, write_defaults
from dplcli.shapes.knowledge import Knowledge
from dplcli.verify.compare import FLOATS, hides_differences
from dplcli.verify.layers import Pair, align, models_of, returned
from dplcli.verify.model import (
    attribute,
    draws_random,
    dtype_name,
    load_unshared,
    model_of,
    small_values,
)
from dplcli.verify.numbering import Numbering
from dplcli.verify.ranges import Ranges
from dplcli.verify.values import ModelSource, RunError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto

    from dplcli.ir.model import Graph
    from dplcli.verify.values import Array, Feed

    Cuts: TypeAlias = "Mapping[str, Pair] | _Fewer"
    """Values at which a model is cut, and the pairs that they are in."""

_KEPT_BYTES = 1 << 26
"""Models of fewer bytes are kept, so that no file is read again."""

_LOOKED_PAST = 24
"""How many cuts a place looks past to read the same in both models."""

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
        uneven: What of *reads* enters one part alone.
    """

    pair: Pair
    parts: tuple[Part, Part]
    nodes: tuple[Sequence[NodeProto], Sequence[NodeProto]]
    reads: Sequence[str]
    without: frozenset[str] = frozenset()
    uneven: frozenset[str] = frozenset()

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

    def is_measured(self, name: str, part: Part) -> bool:
        """Tell whether nothing of a value matters to a part but its size or its type."""
        pending, seen = [name], {name}
        while pending:
            current = pending.pop()
            for row in self.wiring.readers.get(current, ()):
                node = self.wiring.nodes[row]
                is_like = node.op_type == "CastLike" and node.input[0] != current
                if row not in part.nodes or node.op_type in MEASURING or is_like:
                    continue
                if part.end in node.output:
                    return False
                pending += [made for made in node.output if made and made not in seen]
                seen.update(node.output)
        return True

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
        inputs: What the original is fed, in one case, with the defaults.
        defaults: What inputs hold that need not be fed.

    Args:
        original: The original.
        candidate: The candidate.
        inputs: What the original is fed, in one case.
        is_whole: Whether only what they return is cut, as of a rule's graph: it is one place.

    Raises:
        RunError: Weights cannot be read.
    """

    def __init__(
        self,
        original: ModelSource,
        candidate: ModelSource,
        inputs: Mapping[str, Feed],
        *,
        is_whole: bool = False,
    ) -> None:
        ours, theirs = _comparable(original, candidate)
        self.defaults = _without_defaults(ours, theirs)
        self.inputs = inputs = {**self.defaults, **inputs}
        self.ours, self.theirs = Wiring(ours), Wiring(theirs)
        source = original
        if ours.ByteSize() <= _KEPT_BYTES or model_of(original).functions:  # large files stay files
            source = replace(original, content=ours.SerializeToString())
        self.sides = CutSide(0, source, self.ours), CutSide(1, candidate, self.theirs)
        wirings = self.ours, self.theirs
        self.models = models_of(wirings, (original, candidate))
        aligned = returned(*wirings) if is_whole else align(wirings, self.models)
        given = {info.name for info in self.theirs.model.graph.input}
        entering = [Pair(name, name, "structure") for name in inputs if name in given]
        pairs = [*entering, *aligned.values()]
        self.cuts = {pair.candidate: pair for pair in pairs}
        self.partners = {pair.original: pair for pair in pairs}
        self._places: dict[tuple[Pair, frozenset[str]], Place] = {}  # until a cut is given up
        self.order = {name: position for position, name in enumerate(self.ours.makers)}
        self.ranges = tuple(
            Ranges(side.wiring, partial(settled, model.graph))
            for side, model in zip(self.sides, self.models, strict=True)
        )

    def pairs(self) -> list[Pair]:
        """Return the pairs of values that nodes make, in the original's order."""
        computed = (pair for pair in self.cuts.values() if pair.original in self.order)
        return sorted(computed, key=lambda pair: self.order[pair.original])

    def give_up(self, original: str) -> None:
        """Cut no longer at a pair, by the original's name: what reads it reaches further."""
        del self.cuts[self.partners.pop(original).candidate]
        self._places.clear()

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
        if (known := self._places.get((pair, without))) is not None:
            return known
        ours, theirs = (
            self._part(side.wiring, self.cuts_of(side.place, without), end)
            for side, end in zip(self.sides, (pair.original, pair.candidate), strict=True)
        )
        if unknown := [name for name in theirs.reads if name not in self.cuts]:
            raise RunError(f"{unknown[0]!r} of the candidate cannot be fed")
        nodes = tuple(
            [node for row in sorted(part.nodes) for node in side.inside(row)]
            for side, part in zip(self.sides, (ours, theirs), strict=True)
        )
        again = [self.cuts[name].original for name in theirs.reads]
        reads = [*dict.fromkeys([*ours.reads, *again])]
        uneven = frozenset({*ours.reads} ^ {*again})
        place = Place(pair, (ours, theirs), (nodes[0], nodes[1]), reads, without, uneven)
        self._places[pair, without] = place
        return place

    def cuts_of(self, side: int, without: frozenset[str] = frozenset()) -> Cuts:
        """Return the cuts of one model by its own names, but for some."""
        every = self.cuts if side else self.partners
        return _Fewer(every, without) if without else every

    def even(self, place: Place) -> Place | None:
        """Return a place of which both parts read the same, to draw for it; None if there is none.

        What only one part reads may depend on what the other reads. So the place looks past it, the
        last one first, and past what follows from a value that it has looked past. Numbers that
        are told by sizes stay, as these do; and of what is but measured, the size does.
        """
        without, (ours, theirs) = place.without, place.parts
        for _ in range(_LOOKED_PAST):
            if any(name not in self.cuts for name in theirs.reads):
                return None
            reads = {*ours.reads}, {self.cuts[name].original for name in theirs.reads}
            uneven = {
                name
                for name in reads[0] ^ reads[1]
                if not (self._is_told(name) or self._is_measured(name, ours, theirs))
            }
            if not uneven.issubset(self.inputs):
                past = uneven - self.inputs.keys()
            else:  # what both read may depend on an input that one reads
                past = (reads[0] | reads[1]) - self.inputs.keys() if uneven else set()
            past = past or {name for name in reads[0] if self.follows(name, without)}
            if not past:
                return place if without == place.without else self.place(place.pair, without)
            last = max(past, key=lambda name: self.order[name])
            without |= {last}
            ours = self._looking_past(last, self.sides[0], ours, without)
            theirs = self._looking_past(
                self.partners[last].candidate, self.sides[1], theirs, without
            )
        return None

    def _is_told(self, name: str) -> bool:
        """Tell whether a value of the original is known as terms of sizes."""
        graph = self.models[0].graph
        value = graph.values.get(name) if self.ranges[0].is_size(name) else None
        return value is not None and graph.model.memory(Knowledge).content(value) is not None

    def _is_measured(self, name: str, ours: Part, theirs: Part) -> bool:
        other = self.partners[name].candidate if name in self.partners else name
        return self.sides[0].is_measured(name, ours) and self.sides[1].is_measured(other, theirs)

    def _looking_past(self, name: str, side: CutSide, part: Part, without: frozenset[str]) -> Part:
        """Return a part that reads what one value that it read is made from."""
        if name not in part.reads:
            return part
        cuts = self.cuts_of(side.place, without)
        more = side.wiring.between(cuts, [name], part.nodes)
        reads = dict.fromkeys([*part.reads, *side.wiring.entering(more, cuts)])
        enters = [each for each in reads if each in cuts or each not in side.wiring.makers]
        return Part(part.nodes | more, enters, part.end)

    def follows(self, name: str, values: frozenset[str]) -> bool:
        """Tell whether a value of the original follows from one of some."""
        first = min((self.order.get(value, -1) for value in values), default=len(self.order))
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

    def near(self, name: str, steps: int) -> set[str]:
        """Return what a value of the original is made from, a few nodes back, but for constants."""
        near, last = {name}, {name}
        for _ in range(steps):
            rows = [row for each in last if (row := self.ours.makers.get(each)) is not None]
            last = {read for row in rows for read in self.ours.reads[row]} - near
            near |= {each for each in last if self.sides[0].stored(each) is None}
        return near

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
            [*open_ifs(nodes, self.ranges[side.place])]
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


def open_ifs(
    nodes: Iterable[NodeProto], ranges: Ranges, depth: int = 0
) -> Iterator[tuple[int, NodeProto]]:
    """Yield the If nodes whose condition is not always the same, and in how many others each is."""
    for node in nodes:
        is_if = node.op_type == "If" and not node.domain
        is_open = is_if and len({*ranges[node.input[0]]}) > 1
        if is_open:
            yield depth, node
        for _, body in graphs_of(node):
            yield from open_ifs(body.node, ranges, depth + is_open)


def truncates(node: NodeProto) -> bool:
    """Tell whether a node makes whole numbers of others."""
    to = attribute(node, "to") if node.op_type == "Cast" else None
    return to is not None and dtype_name(to.i) not in FLOATS


def settled(graph: Graph, name: str) -> Array | None:
    """Return the elements of a value that can only have these."""
    value = graph.values.get(name)
    return None if value is None else graph.model.memory(Knowledge).array(value)


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
        return [written_out(model) if model.functions else model for model in models]
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


def written_out(model: ModelProto) -> ModelProto:
    """Put the bodies of functions in the place of their calls, with the defaults of attributes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    write_defaults(copy)
    return inlined(copy)
