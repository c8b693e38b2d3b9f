"""Compare two models by dataflow: how paired graphs differ, and how far weights are apart."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, starmap, zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dplcli.analysis.numbering import (
    attribute_form,
    attribute_forms,
    both_there,
    free_inputs,
    has_same_bits,
    is_commutative,
    share_data,
    slots,
)
from dplcli.analysis.pairing import ModelPairing, declared, with_twins
from dplcli.ir.model import scope_of
from dplcli.ir.operators import canonical_domain, fixed_attribute, schema_of
from dplcli.ir.traversal import is_read
from dplcli.keys import keys
from dplcli.onnx_io.convert import ProtoTensor, graphs_of
from dplcli.onnx_io.messages import ORDER, FieldChange, field_changes
from dplcli.onnx_io.source import header_of, proto_of, source_of, statement_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from google.protobuf.message import Message
    from numpy.typing import NDArray

    from dplcli.analysis.numbering import ValuePair
    from dplcli.analysis.pairing import FunctionPair, Pairing
    from dplcli.ir import Attribute, Function, Graph, Model, Node, Tensor, Value

    Operands = Iterable[tuple[int, Value | None, Value | None]]

V = TypeVar("V")


# How two models differ.


Facet: TypeAlias = Literal["names", "order", "doc", "metadata", "value-info", "storage", "other"]
"""A kind of difference that no computed number depends on, as far as dpl knows."""

FACETS: Mapping[Facet, str] = {
    "names": "what nodes and inner values are called",
    "order": "the order of nodes, of operands that commute, and of lists",
    "doc": "documentation",
    "metadata": "metadata, producer, IR version, imports that no node uses, and the like",
    "value-info": "types stated of inner values",
    "storage": "how the same is stored: a constant as initializer or Constant node, in which field "
    "or file; a default that is stated",
    "other": "fields that dpl does not know",
}


@dataclass(frozen=True)
class Remark:
    """A difference that no computed number depends on.

    Attributes:
        facet: What kind it is.
        where: The graph, and the node or value in it.
        before: What the first model says.
        after: What the second says.
    """

    facet: Facet
    where: str
    before: str
    after: str


@dataclass(frozen=True)
class AttributeChange:
    """An attribute that differs; None where it is neither stated nor has a default."""

    name: str
    before: Attribute | None
    after: Attribute | None


@dataclass(frozen=True)
class InputChange:
    """A slot that reads something else; None where nothing is read."""

    slot: int
    before: Value | None
    after: Value | None


@dataclass(frozen=True)
class NodeChange:
    """A node that is in both graphs and differs.

    Attributes:
        before: The node in the first graph.
        after: The node in the second.
        attributes: The attributes that differ.
        inputs: The slots that read something else; other data of a weight does not count here.
        outputs: Indices of the outputs that only one of the two makes.
    """

    before: Node
    after: Node
    attributes: tuple[AttributeChange, ...] = ()
    inputs: tuple[InputChange, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def is_other_op(self) -> bool:
        """Whether another operator stands in the same place."""
        return self.before.qualified_op != self.after.qualified_op


@dataclass(frozen=True)
class Distance:
    """How far two weights of one type and shape are apart.

    Attributes:
        changed: How many elements differ.
        size: How many there are.
        max_abs: The largest difference; None if the elements are no numbers.
        max_rel: The largest difference, relative to the larger of the two elements.
    """

    changed: int
    size: int
    max_abs: float | None
    max_rel: float | None


class DeclaredValue(NamedTuple):
    """A value, and its type as the file states it."""

    name: str
    type: str | None

    @classmethod
    def of(cls, value: Value | None) -> DeclaredValue | None:
        """Return what the file says of *value*; None if there is none."""
        if value is None:
            return None
        declared = value.declared_type
        return cls(value.name, None if declared is None else str(declared))


@keys("before=ends.0 after=ends.1 distance")
@dataclass(frozen=True)
class WeightChange:
    """A constant that holds something else; no distance if type or shape differ."""

    before: Value
    after: Value
    distance: Distance | None

    @property
    def ends(self) -> tuple[DeclaredValue | None, DeclaredValue | None]:
        """Both, with the types that the files state."""
        return DeclaredValue.of(self.before), DeclaredValue.of(self.after)


@keys("side what before=ends.0 after=ends.1")
@dataclass(frozen=True)
class SignatureChange:
    """An input or output that differs.

    Attributes:
        side: Whether it is an input or an output.
        what: ``added``, ``removed``, ``renamed``, ``moved`` to another place, ``retyped``, or
            ``rewired``: an output that returns something else.
        before: It in the first graph; None if added.
        after: It in the second; None if removed.
    """

    side: Literal["input", "output"]
    what: Literal["added", "removed", "renamed", "moved", "retyped", "rewired"]
    before: Value | None
    after: Value | None

    @property
    def ends(self) -> tuple[DeclaredValue | None, DeclaredValue | None]:
        """Both, with the types that the files state."""
        return DeclaredValue.of(self.before), DeclaredValue.of(self.after)


@keys(
    "scope.before=before.scope scope.after=after.scope nodes.before=sizes.0 nodes.after=sizes.1 "
    "nodes.paired=paired signature removed added changed=changes weights"
)
@dataclass(frozen=True)
class GraphDiff:
    """How two graphs differ; the bodies inside are compared by themselves.

    Attributes:
        before: The first graph.
        after: The second.
        partners: The nodes that are in both: of the first graph, with that of the second.
        added: The nodes that only the second has, in its order.
        removed: The nodes that only the first has, in its order.
        changes: The nodes of both that differ, in the first one's order.
        weights: The constants that differ.
        signature: The inputs and outputs that differ.
        beside: Finds what else differs; no computed number depends on it.
    """

    before: Graph
    after: Graph
    partners: Mapping[Node, Node]
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    signature: tuple[SignatureChange, ...] = ()
    beside: Callable[[], Iterable[Remark]] = tuple

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What *beside* finds, once somebody asks."""
        return tuple(self.beside())

    @property
    def paired(self) -> int:
        """How many nodes are in both."""
        return len(self.partners)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many nodes each graph has."""
        return self.paired + len(self.removed), self.paired + len(self.added)

    @property
    def count(self) -> int:
        """How many differences there are, remarks not counted."""
        parts = (self.added, self.removed, self.changes, self.weights, self.signature)
        return sum(map(len, parts))


@dataclass(frozen=True)
class FunctionChange:
    """A function that only one model has, or whose name or declarations differ."""

    what: Literal["added", "removed", "renamed", "redeclared"]
    before: Function | None
    after: Function | None


@dataclass(frozen=True)
class OpsetChange:
    """A domain that is imported in another version, or by one model only (None)."""

    domain: str
    before: int | None
    after: int | None


@keys(
    "equal=is_equal ignored=ignored_facets counts not_counted opsets functions graphs "
    "remarks=counted"
)
@dataclass(frozen=True)
class ModelDiff:
    """How two models differ.

    Attributes:
        graphs: The graphs that are in both: main, bodies, functions.
        functions: Functions whose differences are not in their bodies.
        opsets: Imports of used domains that differ.
        ignored: The facets that do not count.
        beside: Finds what else differs of the models as a whole.
    """

    graphs: tuple[GraphDiff, ...]
    functions: tuple[FunctionChange, ...]
    opsets: tuple[OpsetChange, ...]
    ignored: frozenset[Facet]
    beside: Callable[[], Iterable[Remark]]

    @cached_property
    def all_remarks(self) -> tuple[Remark, ...]:
        """The remarks on the models and on all graphs."""
        return (*self.beside(), *chain.from_iterable(graph.remarks for graph in self.graphs))

    @property
    def counted(self) -> tuple[Remark, ...]:
        """The remarks that count."""
        return tuple(r for r in self.all_remarks if r.facet not in self.ignored)

    @property
    def count(self) -> int:
        """How many differences count."""
        others = len(self.functions) + len(self.opsets) + len(self.counted)
        return others + sum(graph.count for graph in self.graphs)

    @property
    def ignored_facets(self) -> list[Facet]:
        """The facets that do not count, in the order of :data:`FACETS`."""
        return [facet for facet in FACETS if facet in self.ignored]

    @property
    def not_counted(self) -> Mapping[str, int]:
        """How many remarks of each of these facets there are."""
        counts = Counter(remark.facet for remark in self.all_remarks)
        return {facet: counts[facet] for facet in self.ignored_facets}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many differences of each kind there are."""
        graphs = self.graphs
        changes = [change for graph in graphs for change in graph.changes]
        return {
            "added": sum(len(graph.added) for graph in graphs),
            "removed": sum(len(graph.removed) for graph in graphs),
            "changed": len(changes),
            "replaced": sum(change.is_other_op for change in changes),
            "attributes": sum(len(change.attributes) for change in changes),
            "rewired": sum(len(change.inputs) for change in changes),
            "weights": sum(len(graph.weights) for graph in graphs),
            "signature": sum(len(graph.signature) for graph in graphs),
            "functions": len(self.functions),
            "opsets": len(self.opsets),
            "remarks": len(self.counted),
        }

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that counts."""
        return not self.count


def function_changes(
    first: Model, second: Model, pairs: list[FunctionPair]
) -> Iterator[FunctionChange]:
    """Yield the functions that differ in more than their bodies."""
    paired = {function for pair in pairs for function in pair}
    for one, other in pairs:
        if one.key != other.key:
            yield FunctionChange("renamed", one, other)
        if declared(one) != declared(other):
            yield FunctionChange("redeclared", one, other)
    ours, theirs = first.functions.values(), second.functions.values()
    yield from (FunctionChange("removed", f, None) for f in ours if f not in paired)
    yield from (FunctionChange("added", None, f) for f in theirs if f not in paired)


# Differences that no computed number depends on: names, order, documentation and the like.
#
# What both models hold of a node, a constant or a graph is compared as it stands in their files,
# field by field. What is said elsewhere is taken out of both first.


_FACETS: Mapping[str, Facet] = {
    **dict.fromkeys(("name", "configuration_id"), "names"),
    "doc_string": "doc",
    ORDER: "order",
    "ValueInfoProto.type": "value-info",
    "value_info": "value-info",
    **dict.fromkeys(("input", "output", "initializer", "sparse_initializer"), "storage"),
    **dict.fromkeys(("attribute", "attribute_proto"), "storage"),
    **dict.fromkeys(("ir_version", "producer_name", "producer_version", "domain"), "metadata"),
    **dict.fromkeys(("model_version", "metadata_props", "opset_import", "overload"), "metadata"),
    **dict.fromkeys(("training_info", "quantization_annotation", "configuration"), "metadata"),
    "device_configurations": "metadata",
}
"""The facet of a field, and of what is in it and not listed; of all else it is "other"."""

_UNKNOWN: Facet = "other"

_WORDS = {
    "": "unknown field",
    "doc_string": "documentation",
    "metadata_props": "metadata",
    "opset_import": "import of",
    "ir_version": "IR version",
    "initializer": "",
    "value_info": "value",
    "attribute_proto": "attribute",
    "ref_attr_name": "name that it refers to",
    "elem_type": "element type",
}
"""How a field is called where its name is not plain."""


def _remarks(where: str, changes: Iterable[FieldChange]) -> Iterator[Remark]:
    """Say where fields differ."""
    for path, before, after in changes:
        words, facet = [where], _UNKNOWN
        for full_name, key in path:
            name = full_name.rpartition(".")[2]
            facet = _FACETS.get(full_name) or _FACETS.get(name) or (facet if name else _UNKNOWN)
            words.append(f"{_WORDS.get(name, name.replace('_', ' '))} {key}".strip())
        yield Remark(facet, ": ".join(filter(None, words)), before, after)


def _order(where: str, places: Iterable[tuple[int, int, str]]) -> Iterator[Remark]:
    """Yield one remark if what is in both stands in another order.

    Args:
        where: What it is in.
        places: Where each stands in the first and in the second model, and what it is called.
    """
    for (_, before, early), (_, after, late) in pairwise(sorted(places)):
        if after < before:
            yield Remark("order", where, f"{early} before {late}", f"{late} before {early}")
            return


class _Beside:
    """What differs between two graphs and changes nothing that they compute.

    Args:
        pairing: Which node is which.
        found: What else differs.
        named: Whether the names of inputs and outputs are compared elsewhere.
    """

    def __init__(self, pairing: Pairing, found: GraphDiff, *, named: bool) -> None:
        self.pairing = pairing
        self.found = found
        self.named = named
        self.graphs = found.before, found.after
        self.sources = [source_of(graph.model) for graph in self.graphs]
        self.where = scope_of(found.before)
        self.functions = [graph.function for graph in self.graphs if graph.function is not None]
        self.weights = {(change.before, change.after) for change in found.weights}
        outputs = (both_there(a.outputs, b.outputs) for a, b in pairing.forth.items())
        self.constants = dict.fromkeys(self._constants())
        self.pairs = dict.fromkeys([*pairing.inputs, *chain(*outputs), *self.constants])
        self.own = [pair for pair in self.pairs if tuple(v.graph for v in pair) == self.graphs]
        # of several that became one, the one that kept its name stands for it
        kept = [pair for pair in self.own if pair[0].name == pair[1].name]
        self.twins = {new: old for old, new in (*self.own, *kept)}
        self.names = {new.name: old.name for new, old in self.twins.items()}

    def _constants(self) -> Iterator[ValuePair]:
        """Yield constants that are read or returned in the same place, then the rest by name."""
        first, second = self.graphs
        both = (both_there(a.inputs, b.inputs) for a, b in self.pairing.forth.items())
        returned = [(first.outputs[a], second.outputs[b]) for a, b in self.pairing.outputs]
        read = [*chain(*both), *returned]
        named = [(old, second.values[k]) for k, old in first.values.items() if k in second.values]
        seen: set[Value] = set()
        for place, (old, new) in enumerate([*read, *named]):
            if old.is_constant and new.is_constant:
                if place < len(read) or not {old, new} & seen:
                    yield old, new
                seen |= {old, new}

    def remarks(self) -> Iterator[Remark]:
        """Yield all of them."""
        makers = ((a.producer, b.producer) for a, b in self.own if (a, b) in self.constants)
        nodes = {first: second for first, second in makers if first and second}
        nodes |= self.pairing.forth
        changes = {change.before: change for change in self.found.changes}
        for first, second in nodes.items():
            said = changes.get(first, NodeChange(first, second))
            yield from _remarks(f"{self.where}: {first.label}", self._of_nodes(said))
        rows = [{node: row for row, node in enumerate(graph)} for graph in self.graphs]
        yield from _order(self.where, ((rows[0][a], rows[1][b], a.label) for a, b in nodes.items()))
        given = set(self.pairing.inputs)
        for old, new in self.own:
            is_returned = old.is_graph_output and new.is_graph_output
            is_said = self.named and (is_returned or (old, new) in given)
            if old.name != new.name and not is_said:
                yield Remark("names", self.where, old.name, new.name)
        yield from self._of_constants()
        yield from _remarks(self.where, self._of_graphs())
        were_sorted = [
            id(graph.source) in source.sorted
            for source, graph in zip(self.sources, self.graphs, strict=True)
        ]
        if were_sorted[0] != were_sorted[1]:
            ends = ("out of order" if is_sorted else "in order" for is_sorted in were_sorted)
            yield Remark("order", f"{self.where}: nodes", *ends)

    def _of_nodes(self, change: NodeChange) -> Iterator[FieldChange]:
        """Compare what the files hold of two nodes, but for what *change* says."""
        first, second = change.before, change.after
        encoded = [proto_of(node).SerializeToString() for node in (first, second)]
        if encoded[0] == encoded[1]:
            return
        old, new = map(type(proto_of(first)).FromString, encoded)
        said = {attribute.name for attribute in change.attributes}
        if any(pair in self.weights for pair in both_there(first.outputs, second.outputs)):
            said |= {attribute.name for attribute in old.attribute}
        operands = list(zip_longest(first.inputs, second.inputs))
        is_read_alike = len(old.input) == len(new.input) and all(starmap(self._is_one, operands))
        is_same_call = (first.domain, first.op_type) == (second.domain, second.op_type)
        for message in (old, new):
            for _, body in graphs_of(message):  # these are paired, too
                body.Clear()
            left = [attribute for attribute in message.attribute if attribute.name not in said]
            del message.attribute[:]
            message.attribute.extend(left)
        for field, is_said in (
            ("input", change.inputs or is_read_alike),
            ("output", change.outputs or len(old.output) == len(new.output)),
            ("op_type", not is_same_call),
            ("domain", not is_same_call),
        ):
            for message in (old, new) if is_said else ():
                message.ClearField(field)
        for field in ("input", "output"):
            names = [self.names.get(name, name) for name in getattr(new, field)]
            getattr(new, field)[:] = names
        yield from field_changes(old, new)

    def _is_one(self, old: Value | None, new: Value | None) -> bool:
        """Tell whether two values that are read are the same one, if maybe under another name."""
        if old is None or new is None or (old, new) in self.pairs:
            return old is new or (old, new) in self.pairs
        is_outside = old.graph is not self.graphs[0] and new.graph is not self.graphs[1]
        return is_outside and self.pairing.same_value(old, new)

    def _of_constants(self) -> Iterator[Remark]:
        """Compare what the files hold of constants, and name those that nobody reads."""
        places = [
            {id(v.initializer_source): n for n, v in enumerate(g.initializers)} for g in self.graphs
        ]
        rows: list[tuple[int, int, str]] = []
        for pair in self.own:
            if all(value.is_initializer for value in pair):
                yield from _remarks(f"{self.where}: {pair[0].name}", self._of_tensors(pair))
                ours, theirs = (id(value.initializer_source) for value in pair)
                if self.twins[pair[1]] is pair[0]:
                    rows.append((places[0][ours], places[1][theirs], pair[0].name))
        for pair in self.constants:
            ends = tuple(map(_stored, pair, self.graphs))
            if ends[0] != ends[1]:
                yield Remark("storage", f"{self.where}: {pair[0].name}", *ends)
        yield from _order(f"{self.where}: initializers", rows)
        paired = set(chain(*self.own))
        for which, graph in enumerate(self.graphs):
            for value in graph.values.values():
                if value.is_constant and value not in paired and not is_read(value):
                    ends = ("", _stored(value, graph)) if which else (_stored(value, graph), "")
                    yield Remark("storage", f"{self.where}: {value.name}", *ends)

    def _of_tensors(self, pair: ValuePair) -> Iterator[FieldChange]:
        """Compare what the files hold of two stored tensors, but for data that differs."""
        first, second = (v.graph.model.codec.tensor(v.initializer_source) for v in pair)
        assert isinstance(first, ProtoTensor)  # noqa: S101  # the loader sets nothing else
        assert isinstance(second, ProtoTensor)  # noqa: S101  # the loader sets nothing else
        if first.is_encoded_as(second):
            return
        old, new = (deepcopy(tensor.message) for tensor in (first, second))
        if type(old) is not type(new):
            yield FieldChange(
                (("GraphProto.initializer", ""),), *(type(m).__name__ for m in (old, new))
            )
            return
        for message in (old, new):
            getattr(message, "values", message).ClearField("name")
            for field in message.DESCRIPTOR.fields if pair in self.weights else ():
                if field.name in {"values", "indices", "dims"} or "data" in field.name:
                    message.ClearField(field.name)
        yield from field_changes(old, new, (("GraphProto.initializer", ""),))

    def _of_graphs(self) -> Iterator[FieldChange]:
        """Compare what the files hold of two graphs beside nodes and stored tensors."""
        messages = list(map(statement_of, self.graphs))
        for which, message in enumerate(messages):
            paired = {"", *(v.name for v in (self.twins if which else self.twins.values()))}
            alone = self.graphs[which].values.keys() - paired
            _keep(message.value_info, [i for i in message.value_info if i.name not in alone])
            infos = list(message.value_info)
            if self.functions:
                # Take out of a function what :func:`function_changes` says, and names of values.
                one, other = self.functions
                said = ["name", "domain", "overload"] if one.key != other.key else []
                if declared(one) != declared(other):
                    said += ["attribute", "attribute_proto", "opset_import"]
                for field in said:
                    message.ClearField(field)
                for names in (message.input, message.output):
                    names[:] = [name for name in names if not name]
            else:
                _keep(message.input, [info for info in message.input if info.name in paired])
                self._clear_graph(message, which)
                infos += message.input
            for info in infos if which else ():
                info.name = self.names.get(info.name, info.name)
        yield from field_changes(*messages)

    def _clear_graph(self, graph: Any, which: int) -> None:  # noqa: ANN401  # a message
        """Take out of a graph what is said of its inputs and outputs, and of sparse tensors."""
        tensors = graph.sparse_initializer
        _keep(tensors, [tensor for tensor in tensors if not tensor.values.name])
        named = [info for info in graph.output if info.name]
        kept = [named[pair[which]] for pair in self.pairing.outputs]
        for change in self.found.signature:
            value = change.after if which else change.before
            for info in (*graph.input, *kept) if change.what == "retyped" else ():
                if value is not None and info.name == value.name:
                    info.ClearField("type")
            if change.what == "moved" and change.side == "input":
                graph.input.sort(key=lambda info: self.names.get(info.name, info.name))
        for info, (place, _) in zip(kept, self.pairing.outputs, strict=True):
            info.name = self.graphs[0].outputs[place].name
        _keep(graph.output, [*kept, *(info for info in graph.output if not info.name)])


def _keep(items: Any, kept: Sequence[Message]) -> None:  # noqa: ANN401  # a list of messages
    del items[:]
    items.extend(kept)


def _stored(value: Value, graph: Graph) -> str:
    kind = "initializer" if value.producer is None else "Constant node"
    return kind if value.graph is graph else f"{kind} outside"


# How far apart two weights are.


def distance(first: Tensor, second: Tensor) -> Distance | None:
    """Measure how far two constants are apart; None if they differ in type or shape.

    An element has changed if its bits have. So 0 and -0 count as changed, though 0 apart.
    """
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return None
    if first.dtype == "string":
        changed = int((first.numpy() != second.numpy()).sum())
        return Distance(changed, first.size, None, None)
    if share_data(first, second):
        return Distance(0, first.size, 0.0, 0.0)
    changed, max_abs, max_rel = 0, 0.0, 0.0
    for one, other in zip(first.chunks(), second.chunks(), strict=True):
        found = _chunk_distance(one, other)
        changed += found[0]
        max_abs, max_rel = _larger(max_abs, found[1]), _larger(max_rel, found[2])
    return Distance(changed, first.size, max_abs, max_rel)


def _chunk_distance(one: NDArray[Any], other: NDArray[Any]) -> tuple[int, float, float]:
    if has_same_bits(one, other):  # element by element takes ten times as long
        return 0, 0.0, 0.0
    changed = (_bits(one) != _bits(other)).any(axis=1)
    count = int(changed.sum())
    wide: type[Any] = np.complex128 if one.dtype.kind == "c" else np.float64
    if one.dtype.kind in "iu" and one.dtype.itemsize == 8:  # noqa: PLR2004  # exact Python numbers
        wide = np.object_
    a, b = one[changed].astype(wide), other[changed].astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))  # noqa: PLR0124  # NaN
        apart = np.where(same, 0, np.abs(a - b)).astype(np.float64)
        larger = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
        relative = np.where(same, 0, apart / np.where(larger == 0, 1, larger))
    return count, float(apart.max()), float(relative.max())


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """View the elements of *array* as their bytes, one row each."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1)


def _larger(first: float, second: float) -> float:
    """Return the larger number; NaN counts as the largest."""
    return second if second != second or second > first else first  # noqa: PLR0124  # NaN


# How two graphs differ, once their nodes are paired.


_Side: TypeAlias = Literal["input", "output"]


class Comparison:
    """The differences between the graphs of a pairing.

    Args:
        pairing: Which node is which.
        named: Whether names of inputs and outputs count, as in a main graph.
    """

    def __init__(self, pairing: Pairing, *, named: bool) -> None:
        self.pairing = pairing
        self.named = named
        self._weights: dict[tuple[Value, Value], WeightChange] = {}

    def result(self) -> GraphDiff:
        """Compare every pair of nodes, inputs and outputs."""
        pairing = self.pairing
        removed, added = pairing.rest()
        first, second = pairing.sides
        changes = [self._change(n, pairing.forth[n]) for n in first.nodes if n in pairing.forth]
        signature = tuple(self._signature())  # which notes weights, too
        difference = GraphDiff(
            before=first.graph,
            after=second.graph,
            partners=pairing.forth,
            added=tuple(added),
            removed=tuple(removed),
            changes=tuple(change for change in changes if change is not None),
            weights=tuple(self._weights.values()),
            signature=signature,
        )
        return replace(
            difference, beside=lambda: _Beside(pairing, difference, named=self.named).remarks()
        )

    def _change(self, first: Node, second: Node) -> NodeChange | None:
        change = NodeChange(
            first,
            second,
            attributes=tuple(attribute_changes(first, second)),
            inputs=tuple(
                InputChange(slot, before, after)
                for slot, before, after in self._operands(first, second)
                if before is None or after is None or not self._is_weight(before, after)
            ),
            outputs=tuple(
                index
                for index, (old, new) in enumerate(zip_longest(first.outputs, second.outputs))
                if (old is None) != (new is None)
            ),
        )
        is_other_call = not self.pairing.is_same_call(first, second)
        differs = change.attributes or change.inputs or change.outputs or is_other_call
        return change if differs else None

    def _is_weight(self, before: Value, after: Value) -> bool:
        """Tell whether two different values are constants; if so, note their distance."""
        old, new = (
            side.reader.tensor(value)
            for side, value in zip(self.pairing.sides, (before, after), strict=True)
        )
        if old is None or new is None:
            return False
        if (before, after) not in self._weights:
            self._note(before, after, distance(old, new))
        return True

    def _note(self, before: Value, after: Value, apart: Distance | None) -> None:
        if apart is None or apart.changed:
            self._weights[before, after] = WeightChange(before, after, apart)

    def _operands(self, first: Node, second: Node) -> Operands:
        """Pair the operands of two nodes; leave out those that are the same."""
        both = [
            (slot, before, after)
            for slot, (before, after) in enumerate(zip_longest(slots(first), slots(second)))
        ]
        differing = [item for item in both if not self.pairing.same_value(*item[1:])]
        if differing and is_commutative(first) and is_commutative(second):
            return self._unordered(both)
        return differing

    def _unordered(self, both: list[tuple[int, Value | None, Value | None]]) -> Operands:
        """Pair operands in any order: those of partners, equal ones, constants with constants."""
        places = [place for place, _, _ in both]
        left = [(slot, old) for slot, old, _ in both if old is not None]
        news = [new for _, _, new in both if new is not None]
        # two nodes that compute the same are equal, but only one is the partner
        for is_same in (self.pairing.are_partners, self.pairing.same_value):
            _, left = with_twins(left, news, lambda old, new: is_same(old[1], new))  # noqa: B023  # called at once
        first, second = (side.reader for side in self.pairing.sides)
        left.sort(key=lambda item: first.tensor(item[1]) is not None)
        news.sort(key=lambda value: second.tensor(value) is not None)
        if len(left) == len(news):
            return [(slot, old, new) for (slot, old), new in zip(left, news, strict=True)]
        operands: list[tuple[int, Value | None, Value | None]] = [(s, old, None) for s, old in left]
        return operands + [(places[-1], None, new) for new in news]

    def _signature(self) -> Iterator[SignatureChange]:
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        befores, afters = free_inputs(first.inputs), free_inputs(second.inputs)
        for old, new in pairing.inputs:
            yield from self._interface_change("input", old, new)
            tensors = [
                value.graph.model.codec.tensor(value.initializer_source)
                for value in (old, new)
                if value.is_initializer
            ]
            if tensors:
                self._note(old, new, distance(*tensors) if len(tensors) > 1 else None)
        places = [{value: n for n, value in enumerate(values)} for values in (befores, afters)]
        pairs = [(places[0][old], places[1][new]) for old, new in pairing.inputs]
        yield from self._unpaired("input", befores, afters, pairs)
        for one, other in pairing.outputs:
            old, new = first.outputs[one], second.outputs[other]
            yield from self._interface_change("output", old, new)
            if not pairing.same_value(old, new) and not self._is_weight(old, new):
                yield SignatureChange("output", "rewired", old, new)
        yield from self._unpaired("output", first.outputs, second.outputs, pairing.outputs)

    def _interface_change(self, side: _Side, old: Value, new: Value) -> Iterator[SignatureChange]:
        if not self.named:
            return
        if old.name != new.name:
            yield SignatureChange(side, "renamed", old, new)
        types = old.declared_type, new.declared_type
        is_retyped = types[0] != types[1]
        if types == (None, None):  # a sequence, an optional, a map
            stated = zip(self._stated_types, (old, new), strict=True)
            one, other = (kinds.get(value.name) for kinds, value in stated)
            is_retyped = one != other
        if is_retyped:
            yield SignatureChange(side, "retyped", old, new)

    @cached_property
    def _stated_types(self) -> list[dict[str, bytes]]:
        """The types of inputs and outputs as the files hold them, by name."""
        graphs = [side.graph for side in self.pairing.sides]
        headers = [proto_of(graph) for graph in graphs]
        return [
            {info.name: info.type.SerializeToString() for info in (*header.input, *header.output)}
            for header in headers
        ]

    def _unpaired(
        self,
        side: _Side,
        befores: list[Value],
        afters: list[Value],
        pairs: Iterable[tuple[int, int]],
    ) -> Iterator[SignatureChange]:
        """Yield what only one graph has, and what changed its place among the pairs."""
        ordered = sorted(pairs)
        ranks = {new: rank for rank, new in enumerate(sorted(new for _, new in ordered))}
        for rank, (old, new) in enumerate(ordered):
            if ranks[new] != rank:
                yield SignatureChange(side, "moved", befores[old], afters[new])
        for which, values in enumerate((befores, afters)):
            paired = {pair[which] for pair in ordered}
            for value in (v for place, v in enumerate(values) if place not in paired):
                if which:
                    yield SignatureChange(side, "added", None, value)
                else:
                    yield SignatureChange(side, "removed", value, None)


def _differing(
    old: Mapping[str, V], new: Mapping[str, V]
) -> Iterator[tuple[str, V | None, V | None]]:
    """Yield the keys under which two mappings hold something else, in order, and what they hold."""
    for key in sorted(old.keys() | new.keys()) if old != new else ():
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def attribute_changes(first: Node, second: Node) -> Iterator[AttributeChange]:
    """Yield the attributes that differ.

    To state a default is no difference. If the opsets differ, an unstated default may differ, too.
    """
    versions = [node.graph.opset_imports.get(node.domain) for node in (first, second)]
    is_other_opset = versions[0] != versions[1]
    if first.attributes is second.attributes and not is_other_opset:
        return
    stated = (attribute_forms(first), attribute_forms(second))
    schemas = (schema_of(first), schema_of(second))
    defaults = [
        {name: attribute_form(value) for name, value in schema.defaults.items()} if schema else {}
        for schema in schemas
    ]
    names = stated[0].keys() | stated[1].keys()
    if is_other_opset and first.qualified_op == second.qualified_op:
        names |= defaults[0].keys() & defaults[1].keys()
    forms = [
        {name: own.get(name, default.get(name)) for name in names}
        for own, default in zip(stated, defaults, strict=True)
    ]
    bodies = {name.partition("[")[0] for name in first.subgraphs.keys() ^ second.subgraphs.keys()}
    for name in sorted(bodies):
        yield AttributeChange(name, first.attributes.get(name), second.attributes.get(name))
    for name, *_ in _differing(*forms):
        yield AttributeChange(name, fixed_attribute(first, name), fixed_attribute(second, name))


# Compare two models by dataflow.


DEFAULT_IGNORED: frozenset[Facet] = frozenset(FACETS) - {_UNKNOWN}
"""Facets that do not count unless the user says so: no computed number depends on them."""


class Differ(ModelPairing):
    """Compares two models."""

    def result(self, ignored: frozenset[Facet] = DEFAULT_IGNORED) -> ModelDiff:
        """Compare the main graphs with the bodies in them, and the functions."""
        imports = _differing(*(model.opset_imports for model in self.models))
        graphs = (graph for model in self.models for graph in model.graphs())
        in_use = {node.domain for graph in graphs for node in graph}
        opsets = [OpsetChange(*change) for change in imports if change[0] in in_use]
        return ModelDiff(
            graphs=tuple(
                Comparison(pairing, named=is_main).result() for pairing, is_main in self.pairings()
            ),
            functions=tuple(function_changes(*self.models, self.functions)),
            opsets=tuple(opsets),
            ignored=ignored,
            beside=lambda: self._remarks({change.domain for change in opsets}),
        )

    def _remarks(self, said: set[str]) -> Iterator[Remark]:
        """Compare what both files hold beside graphs, but for imports of the domains in *said*."""
        old, new = map(header_of, self.models)
        for message in (old, new):
            imports = message.opset_import
            _keep(imports, [each for each in imports if canonical_domain(each.domain) not in said])
        yield from _remarks("model", field_changes(old, new))
        places = [{f.key: n for n, f in enumerate(m.functions.values())} for m in self.models]
        yield from _order(
            "functions", ((places[0][a.key], places[1][b.key], a.name) for a, b in self.functions)
        )
