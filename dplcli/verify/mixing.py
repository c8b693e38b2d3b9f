"""Two models, cut at the values that both compute, and models that are mixed of their parts.

What lies between cuts is a place. Fed what the original computes, each place shows the noise that
it adds by itself, all of them in one run. And the candidate with the original's nodes in one place
shows what is gained if that place is left as it was.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import onnx
from google.protobuf.message import EncodeError
from onnx import TypeProto

from dplcli.analysis.extract import Wiring, cut, made_name, subgraphs
from dplcli.errors import DplError, InvalidModelError
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.bounded import GivenUpError
from dplcli.onnx_io.convert import all_tensors, load_data
from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.onnx_io.opset import imported_standard, raise_opset
from dplcli.onnx_io.read import sort_nodes
from dplcli.verify.blocks import stored_rows
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import FLOATS, held_as
from dplcli.verify.cuts import written_out
from dplcli.verify.layers import align, alone, models_of, renamed, type_of, value_of
from dplcli.verify.model import model_of
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError, one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Node
    from dplcli.verify.values import Feed, Leaf

_GRAFT = "dpl/original/"
"""What names of values begin with that come from the original."""

_STEPPED = "_quantized"
"""What onnxruntime's quantiser adds to the name of a value."""

_CUTTING_OFF = frozenset({"Relu", "Clip"})
"""What steps stand for, too, that do not reach below zero, or beyond a bound."""


class CutPlaces(NamedTuple):
    """Places that run by themselves.

    Attributes:
        source: The model.
        reads: What it reads, with what that is in the original.
    """

    source: ModelSource
    reads: Mapping[str, str]


class Mixing:
    """An original and a candidate, and the models that can be mixed of both.

    Attributes:
        sources: Both, functions written out.
        wirings: Their main graphs.
        ends: The values that both compute, in the original's order, by its names: where the
            candidate's readers get each of them, the first place first.

    Args:
        original: The model that is approximated.
        candidate: The model that approximates it.
    """

    def __init__(self, original: ModelSource, candidate: ModelSource) -> None:
        self.sources = _plain(original), _plain(candidate)
        self.wirings = Wiring(model_of(self.sources[0])), Wiring(model_of(self.sources[1]))
        self._stored = [stored_rows(wiring) for wiring in self.wirings]
        self._models = models_of(self.wirings, self.sources)
        aligned = align(self.wirings, self._models)
        self.ends = self._as_read({name: pair.candidate for name, pair in aligned.items()})

    def _as_read(self, aligned: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Pair what has one name and operator, and what is aligned, as readers get it."""
        ours, theirs = self.wirings
        stored = self._stored
        named = {name: name for name in theirs.makers} | dict(_stepped_names(theirs))
        pairs = {
            name: named[name]
            for name, row in ours.makers.items()
            if name in named
            and ours.nodes[row].op_type == theirs.nodes[theirs.makers[named[name]]].op_type
        }
        taken = {*pairs.values()}
        for name, partner in aligned.items():
            if name not in pairs and partner not in taken:
                pairs[name] = partner
        ends: dict[str, tuple[str, ...]] = {}
        for name in ours.makers:
            if name not in pairs or ours.makers[name] in stored[0]:
                continue
            partner = pairs[name]
            read = [*_dequantised(theirs, partner)]
            end = self._cut_off(name, pairs) if read != [partner] else name
            if theirs.makers[partner] not in stored[1] and self._fit(end, read[0]):
                ends.setdefault(end, tuple(read))
        return {name: ends[name] for name in ours.makers if name in ends}

    def _cut_off(self, name: str, pairs: Collection[str]) -> str:
        """Return what steps that are made of a value stand for: for a Relu behind it, say."""
        wiring = self.wirings[0]
        while name not in wiring.outputs and len(rows := [*wiring.readers.get(name, ())]) == 1:
            node = wiring.nodes[rows[0]]
            if node.op_type not in _CUTTING_OFF or node.output[0] in pairs:
                break
            name = node.output[0]
        return name

    def _fit(self, name: str, partner: str) -> bool:
        """Tell whether two values may be fed for each other: of one type, or two floats."""
        types = {self._dtype(0, name), self._dtype(1, partner)}
        return len(types) == 1 or types <= FLOATS | {""}

    def _dtype(self, side: int, name: str) -> str:
        value = self._models[side].graph.values.get(name)
        known = None if value is None else value.known_type()
        return "" if known is None else known.dtype or ""

    def nodes(self, name: str) -> tuple[Node, ...]:
        """Return the original's nodes that compute one of its values, but for constants."""
        rows = self.wirings[0].between(self.ends, [name]) - self._stored[0]
        made = (self.wirings[0].nodes[row].output for row in sorted(rows))
        values = (self._models[0].graph.values[next(filter(None, names))] for names in made)
        return tuple(value.producer for value in values if value.producer is not None)

    # Places of the candidate by themselves.

    @cached_property
    def cuts(self) -> tuple[dict[str, str], dict[str, str]]:
        """The values at which each model is cut, with what they are in the original."""
        theirs = {end: name for name, ends in self.ends.items() for end in ends}
        return dict(zip(self.ends, self.ends, strict=True)), theirs

    def end(self, side: int, name: str) -> str:
        """Return how a model calls a value."""
        return self.ends.get(name, (name,))[0] if side else name

    def held(self, side: int, name: str, feed: Feed) -> Feed:
        """Return what is fed for a value of a model, in the type that it has there."""
        return held_as(self._dtype(side, name), feed)

    def by_themselves(
        self, side: int, names: Sequence[str], feeds: Mapping[str, Feed]
    ) -> CutPlaces:
        """Return the places of *names*, each of which reads what it is fed.

        Args:
            side: 0 for the original's, 1 for the candidate's.
            names: The values, by their names in the original.
            feeds: What is fed, by the same names.

        Raises:
            RunError: Something cannot be fed.
        """
        ends = [self.end(side, name) for name in names]
        rows = self.wirings[side].between(self.cuts[side], ends)
        return self._cutting(side, rows, ends, self.cuts[side], feeds)

    def steps(self, names: Iterable[str], feeds: Mapping[str, Feed]) -> CutPlaces:
        """Return the steps to which the candidate rounds values for their readers.

        Raises:
            RunError: Something cannot be fed.
        """
        stepped = [name for name in names if self.is_stepped(name)]
        starts = {self._unrounded(name): name for name in stepped}
        ends = [self.end(1, name) for name in stepped]
        rows = self.wirings[1].between(starts, ends)
        return self._cutting(1, rows, ends, starts, feeds)

    def _cutting(
        self,
        side: int,
        rows: Collection[int],
        ends: Sequence[str],
        cuts: Mapping[str, str],
        feeds: Mapping[str, Feed],
    ) -> CutPlaces:
        reads = {name: cuts.get(name, name) for name in self.wirings[side].entering(rows, cuts)}
        types = {}
        for name, value in reads.items():
            if (fed := self.held(side, name, feeds.get(value))) is None:
                raise RunError(f"{name!r} cannot be fed")
            types[name] = type_of(fed, is_sized=False)
        model = cut(self.wirings[side], rows, types, ends, cuts)
        return CutPlaces(alone(self.sources[side], model, "place"), reads)

    # The candidate with a place of the original.

    def is_stepped(self, name: str) -> bool:
        """Tell whether what a place gives is rounded to steps for its readers."""
        return name in self.ends and (self._unrounded(name),) != self.ends[name]

    def _unrounded(self, name: str) -> str:
        """Return what the candidate computes for a value before it rounds that to steps."""
        wiring, value = self.wirings[1], self.ends[name][0]
        for op_type in ("DequantizeLinear", "QuantizeLinear"):
            row = wiring.makers.get(value)
            if row is None or wiring.nodes[row].op_type != op_type:
                return self.ends[name][0]
            value = wiring.nodes[row].input[0]
        steps = wiring.between({value}, self.ends[name][:1])
        is_fixed = value in wiring.makers and wiring.entering(steps) == [value]
        return value if is_fixed else self.ends[name][0]

    def with_original(self, name: str, *, stepped: bool) -> ModelSource:
        """Return the candidate with the original's nodes where it computes one value.

        Args:
            name: The value, by its name in the original.
            stepped: Whether what they give is rounded to steps still.

        Raises:
            RunError: Both cannot be put together.
        """
        donor, host = self._of_one_opset
        part = self._part(donor, name)
        model = onnx.ModelProto()
        model.CopyFrom(host)
        ends = (self._unrounded(name),) if stepped else self.ends[name]
        for node in model.graph.node:
            node.output[:] = [f"{_GRAFT}without/{n}" if n in ends else n for n in node.output]
        model.graph.node.extend(part.graph.node)
        model.graph.initializer.extend(part.graph.initializer)
        model.graph.sparse_initializer.extend(part.graph.sparse_initializer)
        known = {entry.domain for entry in model.opset_import}
        model.opset_import.extend(e for e in part.opset_import if e.domain not in known)
        model.ir_version = max(model.ir_version, part.ir_version)
        for end in ends:
            _convert(model, f"{_GRAFT}{made_name(name)}", end, *self._dtypes(name, end))
        try:
            sort_nodes(model.graph, "the two models together")
        except InvalidModelError as error:
            raise RunError(error.message) from error
        return replace(self.sources[1], content=model.SerializeToString())

    def _part(self, donor: Wiring, name: str) -> onnx.ModelProto:
        """Return the original's nodes for a value, on what the candidate computes before them."""
        given = {info.name for info in self.wirings[1].model.graph.input}
        rows = donor.between(self.ends, [name])
        reads = donor.entering(rows, self.ends)
        if unknown := [n for n in reads if n not in self.ends and n not in given]:
            raise RunError(f"the candidate does not compute {unknown[0]!r}")
        part = cut(donor, rows, dict.fromkeys(reads, TypeProto()), [name], self.ends)
        try:
            for tensor in all_tensors(part):
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    load_data(tensor, self.sources[0].path.parent)
        except (OSError, *ONNX_ERRORS) as error:
            raise RunError(f"its weights cannot be read: {one_line(str(error))}") from error
        renamed(part, {n: f"{_GRAFT}{n}" for n in _names(part)})
        for node in part.graph.node:
            node.name = node.name and f"{_GRAFT}{node.name}"
        for read in reads:
            source = self.end(1, read)
            dtypes = self._dtypes(read, source)
            _convert(part, source, f"{_GRAFT}{read}", *reversed(dtypes))
        return part

    def _dtypes(self, name: str, partner: str) -> tuple[str, str]:
        return self._dtype(0, name), self._dtype(1, partner)

    @cached_property
    def _of_one_opset(self) -> tuple[Wiring, onnx.ModelProto]:
        """The original's graph and the candidate, the older one raised; names stay.

        Raises:
            RunError: It cannot be raised.
        """
        models = [wiring.model for wiring in self.wirings]
        versions = [imported_standard(model.opset_import) or 0 for model in models]
        for side, version in enumerate(versions):
            if 0 < version < max(versions):
                models[side] = self._raised(side, max(versions))
        return Wiring(models[0]), models[1]

    def _raised(self, side: int, version: int) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(self.wirings[side].model)
        try:
            raise_opset(copy, version, lambda: self._models[side].graph)
        except DplError as error:
            raise RunError(error.message) from error
        return copy


def _plain(source: ModelSource) -> ModelSource:
    """Return a model with the bodies of its functions in the place of their calls."""
    model = model_of(source)
    if not model.functions:
        return source
    try:
        return replace(source, content=written_out(model).SerializeToString())
    except (GivenUpError, EncodeError, *ONNX_ERRORS):
        return source


def _stepped_names(wiring: Wiring) -> Iterator[tuple[str, str]]:
    """Yield what floats were called before onnxruntime made steps of them, and what they are."""
    for node in wiring.nodes:
        name = node.output[0] if node.op_type == "QuantizeLinear" else ""
        if name.endswith(_STEPPED) and node.input[0] in wiring.makers:
            yield name.removesuffix(_STEPPED), node.input[0]


def _dequantised(wiring: Wiring, name: str) -> Iterator[str]:
    """Yield where readers get a value: what is quantised at once is dequantised for each."""
    chains = [name]
    for op_type in ("QuantizeLinear", "DequantizeLinear"):
        readers = [wiring.nodes[row] for each in chains for row in wiring.readers.get(each, ())]
        is_returned = any(each in wiring.outputs for each in chains)
        if is_returned or {node.op_type for node in readers} != {op_type}:
            yield name
            return
        chains = [node.output[0] for node in readers]
    yield from chains


def _names(model: onnx.ModelProto) -> Iterator[str]:
    """Yield what is made or stored anywhere in a model."""
    graphs = [model.graph]
    for graph in graphs:
        graphs += [body for node in graph.node for body in subgraphs(node)]
        yield from (tensor.name for tensor in graph.initializer)
        yield from (item.values.name for item in graph.sparse_initializer)
        yield from (info.name for info in graph.input)
        yield from (name for node in graph.node for name in node.output if name)


def _convert(model: onnx.ModelProto, source: str, end: str, before: str, after: str) -> None:
    """Add a node that makes *end* of *source*: as it is, or of another float type."""
    if before == after or not {before, after} <= FLOATS:
        model.graph.node.add(op_type="Identity", input=[source], output=[end], name=end)
        return
    node = model.graph.node.add(op_type="Cast", input=[source], output=[end], name=end)
    node.attribute.append(onnx.helper.make_attribute("to", DTYPE_CODES[after]))


class Alone:
    """Places of both models that run on the same: what the original computes before them.

    It is fed as the candidate's places can get it: in the candidate's types, and rounded to its
    steps. So what is lost in a value counts where that is made, and not again where it is read.

    Attributes:
        reads: What both read, by the original's names.

    Args:
        mixing: The two models.
        names: The values that the places compute, by their names in the original.
    """

    def __init__(self, mixing: Mixing, names: Sequence[str]) -> None:
        self._mixing, self._names = mixing, names
        reads: dict[str, None] = {}
        for side, wiring in enumerate(mixing.wirings):
            cuts = mixing.cuts[side]
            rows = wiring.between(cuts, [mixing.end(side, name) for name in names])
            reads |= dict.fromkeys(cuts.get(name, name) for name in wiring.entering(rows, cuts))
        self.reads = [*reads]
        self._opened: list[tuple[Runner, Mapping[str, str]]] = []

    def run(self, values: Mapping[str, Feed]) -> Iterator[tuple[str, Leaf, Leaf]]:
        """Yield what places of both models make of values of the original.

        Raises:
            RunError: They do not run.
        """
        mixing, names = self._mixing, self._names
        rounded = {name: mixing.held(1, mixing.end(1, name), values[name]) for name in self.reads}
        if not self._opened:
            cuttings = [mixing.by_themselves(side, names, rounded) for side in (0, 1)]
            if any(mixing.is_stepped(name) for name in self.reads):
                cuttings.append(mixing.steps(self.reads, values))
            self._opened = [(Runner(c.source, REFERENCE_LEVEL), c.reads) for c in cuttings]
        for steps, read in self._opened[2:]:
            made = steps.run({n: mixing.held(1, n, values[own]) for n, own in read.items()})
            rounded |= {own: value_of(made[mixing.end(1, own)]) for own in read.values()}
        ours, theirs = (
            runner.run({n: mixing.held(side, n, rounded[own]) for n, own in reads.items()})
            for side, (runner, reads) in enumerate(self._opened[:2])
        )
        for name in names:
            (one,), (two,) = ours[made_name(name)], theirs[made_name(mixing.end(1, name))]
            yield name, one, two
