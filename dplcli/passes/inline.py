"""Put the bodies of functions in the place of their calls; what a partition did is undone.

Calls that a partition wrote say what they stand for, so the nodes come back with their names, in
their order. Calls of other functions get the function's nodes under new names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dplcli.analysis.numbering import Content, attribute_form
from dplcli.errors import PassError
from dplcli.ir import Attribute, Graph, Node, StatedType, Tensor, Value
from dplcli.ir.model import (
    NO_REMARKS,
    called_function,
    callees,
    callees_in,
    expanded_sizes,
    followers_last,
    record_uses,
    scope_of,
)
from dplcli.ir.operators import schema_of
from dplcli.ir.traversal import (
    behind_identities,
    captured_values,
    enclosing_node,
    find_value,
    is_made_before,
    outwards,
)
from dplcli.ir.types import GRAPH_KINDS, PLAIN_KINDS, contradicts, is_made_up
from dplcli.keys import keys
from dplcli.passes.forms import bodies_in_form
from dplcli.passes.records import CallRecord, align, read_call
from dplcli.passes.rewriter import GraphRewriter, claim, lowest_rank_first, reachable, unique

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dplcli.ir import Dim, Function, Model
    from dplcli.passes.records import ConstantRecord

    Values = dict[Value, Value | None]
    """What stands for each value of the body where it is called; None for an omitted input."""


# Why a call, or all calls, cannot be replaced by the bodies of functions.


_MOST_NODES = 20_000_000
"""Most nodes that a model may have when its functions are inlined."""


def check_growth(model: Model, chosen: Collection[Function]) -> None:
    """Refuse functions that call themselves, and models that would become too large.

    Raises:
        PassError: There are such functions.
    """
    called = {function: callees(function) for function in model.functions.values()}
    sorted_out = set(followers_last(called))
    for function in (each for each in called if each not in sorted_out):
        if function in reachable(called[function], called.__getitem__):
            name = f"{function.domain}::{function.name}"
            raise PassError(f"the function {name} calls itself, so it has no end when inlined")
    own: dict[Function | None, int] = {}
    calls: dict[Function | None, Counter[Function | None]] = {}
    for caller in (None, *called):
        body = model.graph if caller is None else caller.body
        nodes = Counter(called_function(node) for graph in body.and_inner() for node in graph)
        calls[caller] = Counter({each: n for each, n in nodes.items() if each in chosen})
        own[caller] = nodes.total() - calls[caller].total()
    sizes = expanded_sizes(own, calls)
    total = sum(size for function, size in sizes.items() if function not in chosen)
    if total > _MOST_NODES:
        raise PassError(f"the model would have {total:,} nodes, more than {_MOST_NODES:,}")


def _object_to_arity(call: Node, function: Function) -> str:
    if call.subgraphs:
        return "it passes a graph as an attribute"
    for what, given, declared in (
        ("inputs", call.inputs, function.body.inputs),
        ("outputs", call.outputs, function.body.outputs),
    ):
        if len(given) > len(declared):
            return f"it has {len(given)} {what}, and the function {len(declared)}"
    return ""


def _object_to_omitted(call: Node, function: Function) -> str:
    """Refuse to return an input that the call leaves out, or to read it where one is needed."""
    body = function.body
    given = [*call.inputs, *[None] * len(body.inputs)]
    omitted = {formal for formal, value in zip(body.inputs, given, strict=False) if value is None}
    if not omitted:
        return ""
    wanted = zip(body.outputs, call.outputs, strict=False)
    returned = [value for value, given in wanted if given is not None]
    bodies = (graph for graph in body.and_inner() if graph is not body)
    returned += [value for inner in bodies for value in inner.outputs]
    name = next((value.name for value in returned if value in omitted), None)
    if name is not None:
        return f"the function returns its input {name!r}, which the call leaves out"
    for node in (node for graph in body.and_inner() for node in graph):
        schema = schema_of(node) if omitted.intersection(node.inputs) else None
        if schema is None:
            continue
        for place, value in enumerate(node.inputs):
            formal = min(place, len(schema.inputs) - 1)
            if value is not None and value in omitted and formal in schema.required_inputs:
                return f"{node.qualified_op} needs {value.name!r}, which the call leaves out"
    return ""


def _object_to_opsets(call: Node, function: Function) -> str:
    """Refuse an operator that means something else where the call is."""
    here = call.graph.opset_imports
    there = function.body.opset_imports
    if all(here.get(domain, version) == version for domain, version in there.items()):
        return ""
    for graph in function.body.and_inner():
        for node in graph:
            old, new = there.get(node.domain, 0), here.get(node.domain, 0)
            if new in {0, old} or called_function(node) is not None:
                continue
            schemas = node.graph.model.codec.schemas
            first = schemas.find(node.op_type, node.domain, old)
            second = schemas.find(node.op_type, node.domain, new)
            if not (first is not None and second is not None and first.since == second.since):
                return (
                    f"{node.qualified_op} is of opset {old} in the function, "
                    f"and of opset {new} where it is called"
                )
    return ""


# Names for what an inlined call puts back: those of the record, or new ones.


class InlinedNames:
    """Names of one outermost graph and the bodies in it.

    Args:
        outermost: The main graph, or the body of a function.
    """

    def __init__(self, outermost: Graph) -> None:
        self._nodes = {node.name for graph in outermost.and_inner() for node in graph}

    def node(self, wanted: str, *, repeated: bool = False) -> str:
        """Return *wanted*, or with a number behind it if another node has that name.

        Args:
            wanted: The name that the node should have; "" for none.
            repeated: Whether the original had several nodes of that name.
        """
        if not wanted or repeated:
            return wanted
        return claim(wanted, self._nodes)

    def value(self, graph: Graph, wanted: str) -> str:
        """Return *wanted*, or with a number behind it if the name is not free in *graph*."""
        scopes = [*outwards(graph), *graph.and_inner()]
        names = [graph.model.taken, *(scope.values.keys() for scope in scopes)]
        return unique(wanted, lambda name: any(name in some for some in names))


# Copy what a function's body holds to where the function is called.


class CallAttributes:
    """The attributes of one call, for the nodes of the body that refer to them.

    Args:
        function: The function called.
        call: The call.
    """

    def __init__(self, function: Function, call: Node) -> None:
        """Complete the attributes of *call* by the function's defaults."""
        given = call.attributes
        self.given = {**function.defaults, **given} if function.defaults else given

    def applied_to(self, node: Node, without: Collection[str] = ()) -> Mapping[str, Attribute]:
        """Return the attributes of a node of the body, references resolved; graphs as they are.

        Where the call gives all of them, they stand in its order. A reference to what it does not
        give, and that has no default, is no attribute.
        """
        stated = node.attributes
        if not without and not any(attribute.ref for attribute in stated.values()):
            return stated
        attributes = {}
        items = list(stated.items())
        if all(attribute.ref for attribute in stated.values()):
            places = {name: place for place, name in enumerate(self.given)}
            items.sort(key=lambda item: places.get(item[1].ref, len(places)))
        for name, attribute in items:
            known = self.given.get(attribute.ref) if attribute.ref else attribute
            if known is not None and name not in without:
                attributes[name] = known._replace(rest=attribute.rest) if attribute.rest else known
        return attributes


class BodyNames(Protocol):
    """Where the copies of nodes and values in a body get their names."""

    def node(self, wanted: str) -> str:
        """Name a node after the one that it is a copy of."""

    def value(self, graph: Graph, wanted: str) -> str:
        """Name a value of *graph* after the one that it is a copy of."""


class BodyCopier(NamedTuple):
    """Copies the bodies of If, Loop and Scan nodes.

    Attributes:
        values: What stands for values round the bodies; others stand for themselves.
        attributes_of: Tells the attributes of the copy of a node.
        names: Names in use.
    """

    values: Values
    attributes_of: Callable[[Node], Mapping[str, Attribute]]
    names: BodyNames

    def copy_bodies(self, source: Node, copy: Node) -> None:
        """Give *copy*, which is in its graph, copies of the bodies of *source*."""
        bodies = {name: self._copy(body, copy) for name, body in source.subgraphs.items()}
        copies = {body: bodies[name] for name, body in source.subgraphs.items()}
        copy.subgraphs = bodies
        copy.attributes = {
            name: _with_graphs(attribute, copies) for name, attribute in copy.attributes.items()
        }

    def _copy(self, source: Graph, owner: Node) -> Graph:
        graph = Graph(owner.graph.model, owner.graph.opset_imports, owner=owner)
        graph.name = source.name
        graph.likeness = source.likeness if source.source is None else source.source
        graph.modified = True
        for value in source.inputs:
            graph.inputs.append(self._define(value, graph))
        for value in source.initializers:
            copy = self.values.get(value) or self._define(value, graph)
            copy.set_initializer(graph.model.codec.tensor(value.initializer_source))
        for node in source:
            self._copy_node(node, graph)
        for value in source.outputs:
            returned = self.values.get(value, value)
            if returned is not None:
                graph.add_output(returned)
        copies = {value.name: self.values[value] for value in source.values.values()}
        names = {name: copy.name for name, copy in copies.items() if copy is not None}
        graph.annotations = {
            names.get(name, name): tuple(item.renamed(names) for item in annotations)
            for name, annotations in source.annotations.items()
        }
        return graph

    def _copy_node(self, source: Node, graph: Graph) -> None:
        node = Node(graph, source.op_type, source.domain, self.names.node(source.name))
        node.overload = source.overload
        node.remarks = source.remarks
        node.attributes = self.attributes_of(source)
        node.inputs = tuple([None if v is None else self.values.get(v, v) for v in source.inputs])
        record_uses((node,))
        graph.append(node)
        if source.subgraphs:
            self.copy_bodies(source, node)
        outputs: list[Value | None] = []
        for index, value in enumerate(source.outputs):
            outputs.append(None if value is None else self._define(value, graph, node, index))
        node.outputs = tuple(outputs)
        if graph.model.is_spread:
            let_run(node, source)

    def _define(
        self, source: Value, graph: Graph, node: Node | None = None, index: int = 0
    ) -> Value:
        name = self.names.value(graph, source.name)
        copy = graph.values[name] = Value(name, graph, node, index)
        copy.is_graph_input = source.is_graph_input
        copy.type_source = source.type_source
        self.values[source] = copy
        return copy


def let_run(copy: Node, node: Node, call: bytes = b"") -> None:
    """Let *copy* run where *node* of a function does, else where the *call* does."""
    pairs = zip((*node.inputs, *node.outputs), (*copy.inputs, *copy.outputs), strict=False)
    names = {inner.name: outer.name for inner, outer in pairs if inner and outer}
    rest = copy.graph.model.codec.moved_devices(copy.remarks.rest, names, call)
    copy.remarks = copy.remarks._replace(rest=rest)


def _with_graphs(attribute: Attribute, copies: Mapping[Graph, Graph]) -> Attribute:
    """Return a graph attribute with the copies of its graphs, any other one as it is."""
    value = attribute.value
    if isinstance(value, Graph):
        return attribute._replace(value=copies[value])
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return attribute._replace(value=tuple(copies[item] for item in value))
    return attribute


# Put constants back that were embedded in a function: as they were, and where.


@dataclass
class EmbeddedConstants:
    """The constants of one call.

    Attributes:
        call: The call, which is still in its graph.
        records: What they were, by name.
        names: Names in use.
        nodes: The nodes put back.
    """

    call: Node
    records: Mapping[str, ConstantRecord]
    names: InlinedNames
    nodes: list[Node] = field(default_factory=list)

    def put_back(self, name: str, constant: Tensor) -> Value | None:
        """Return the constant called *name*; make it if it is not there.

        Returns:
            The value; None if the record does not say what it was.
        """
        copies: list[str] = []
        while True:
            value_there = self._find(name, constant)
            record = self.records.get(name)
            if value_there is not None or record is None or not record.reads:
                break
            if name in copies:
                return None
            copies.append(name)
            name = record.reads
        if value_there is None and record is not None:
            graph = self._graph(record)
            name = self.names.value(graph, name)
            rewriter = GraphRewriter(graph)
            # The body of a function cannot have initializers.
            if record.node is None and (graph.owner is not None or graph is graph.model.graph):
                value = rewriter.add_initializer(name, constant)
            else:
                attributes = _attributes(record.attribute, constant, record.rest)
                value = self._insert(graph, "Constant", (), name, record)
                assert value.producer is not None  # noqa: S101  # it was just made
                value.producer.attributes = attributes
            value_there = self._typed(value, record)
        for copy in reversed(copies):
            if value_there is not None:
                value_there = self._copy(copy, self.records[copy], value_there)
        return value_there

    def _find(self, name: str, constant: Tensor) -> Value | None:
        """Return the constant of that name, if it is still there and as it was."""
        value = find_value(self.call.graph, name)
        if value is None or not is_made_before(value, self.call):
            return None
        tensor = _constant_behind(value)
        return value if tensor is not None and Content(tensor) == Content(constant) else None

    def _copy(self, name: str, record: ConstantRecord, source: Value) -> Value:
        graph = self._graph(record)
        if find_value(graph, source.name) is not source:
            graph = self.call.graph
        name = self.names.value(graph, name)
        return self._typed(self._insert(graph, "Identity", (source,), name, record), record)

    def _typed(self, value: Value, record: ConstantRecord) -> Value:
        if record.known is not None:
            value.graph.stated_types[value.name] = record.known
        return value

    def _insert(
        self, graph: Graph, op_type: str, inputs: Sequence[Value], name: str, record: ConstantRecord
    ) -> Value:
        rewriter = GraphRewriter(graph)
        anchor = enclosing_node(self.call, graph)
        assert anchor is not None  # noqa: S101  # the graph is round the call
        node_name = self.names.node(record.node or "")
        node = rewriter.insert(anchor, op_type, inputs, name=node_name, remarks=record.remarks)
        value = rewriter.make_value(name, node)
        node.outputs = (value,)
        self.nodes.append(node)
        return value

    def _graph(self, record: ConstantRecord) -> Graph:
        """Return the graph so many levels up, or the outermost there is."""
        *graphs, outermost = outwards(self.call.graph)
        return graphs[record.up] if record.up < len(graphs) else outermost


def _constant_behind(value: Value | None) -> Tensor | None:
    """Return the constant that *value* is, also where a call passes it on: it may cover copies."""
    while value is not None:
        value = behind_identities(value)
        call = value.producer
        function = None if call is None else called_function(call)
        if call is None or function is None:
            return value.constant
        inner = behind_identities(function.body.outputs[value.index])
        if inner not in function.body.inputs:
            return inner.constant
        place = function.body.inputs.index(inner)
        value = call.inputs[place] if place < len(call.inputs) else None
    return None


def _attributes(name: str, constant: Tensor, rest: bytes) -> Mapping[str, Attribute]:
    """Return the attributes of a Constant node that held its number in the attribute *name*."""
    prefix, _, kind = name.partition("_")
    if prefix != "value" or kind not in PLAIN_KINDS:
        return {"value": Attribute("tensor", constant, rest=rest)}
    data = constant.numpy().tolist()
    return {name: Attribute(kind, tuple(data) if isinstance(data, list) else data, rest=rest)}


# Put the body of a function in the place of one call.


class _NamesOfBodies(NamedTuple):
    """Names that nodes and values in bodies had, by those that they have in a function."""

    names: InlinedNames
    nodes: Mapping[str, str]
    values: Mapping[str, str]
    is_repeated: bool

    def node(self, wanted: str) -> str:
        return self.names.node(self.nodes.get(wanted, wanted), repeated=self.is_repeated)

    def value(self, graph: Graph, wanted: str) -> str:
        return self.names.value(graph, self.values.get(wanted, wanted))


@dataclass
class _Inliner:
    call: Node
    function: Function
    record: CallRecord
    numbers: Mapping[Node, int | None]
    names: InlinedNames

    def __post_init__(self) -> None:
        self.body = self.function.body
        self.graph = self.call.graph
        self.rewriter = GraphRewriter(self.graph)
        self.attributes = CallAttributes(self.function, self.call)
        self.embedded = EmbeddedConstants(self.call, self.record.constants, self.names)
        self.constants: dict[Value, Tensor] = {}
        self.values: Values = {}
        self.returned: dict[Value, Value] = {}
        self.copies: list[tuple[Value, Value]] = []
        self.symbols: dict[str, Dim] = {}
        self.made: list[Node] = []

    def run(self) -> list[Node]:
        """Replace the call by copies of the nodes of the body, as the record says they were.

        The outputs of the call keep their names.
        """
        inputs = [*self.call.inputs, *[None] * len(self.body.inputs)]
        self.values.update(zip(self.body.inputs, inputs, strict=False))
        for inner, outer in zip(self.body.outputs, self.call.outputs, strict=False):
            if outer is None:
                continue
            if inner.producer is None or inner in self.returned:
                self.copies.append((inner, outer))
            else:
                self.returned[inner] = outer
        for node in self.body:
            self._put(node)
        for inner, outer in self.copies:
            # Copy a value that the function only passes on, or returns twice.
            source = self.values[inner]
            name = self.names.node(f"{self._prefix}/Identity")
            copy = self.rewriter.insert(self.call, "Identity", [source], name=name)
            self.rewriter.take_over_outputs(copy, [outer])
            self.made.append(copy)
        for index, value in enumerate(self.call.outputs):
            if value is not None and index in self.record.stated:
                self.graph.stated_types[value.name] = StatedType(None)
        self.rewriter.erase([self.call])
        return [*self.embedded.nodes, *self.made]

    def _put(self, node: Node) -> None:
        number = self.numbers.get(node)
        if number is None and node in self.numbers:
            value = node.outputs[0]
            tensor = None if value is None else value.constant
            if value is not None and tensor is not None and value not in self.returned:
                self.constants[value] = tensor
                return
        reads = {} if number is None else self.record.reads.get(number, {})
        read = node.inputs[::-1] if number in self.record.swapped else node.inputs
        inputs = [
            None if value is None else self._read(value, reads.get(slot))
            for slot, value in enumerate(read)
        ]
        while number is None and inputs and inputs[-1] is None:
            inputs.pop()
        omitted = [slot for slot, name in reads.items() if not name]
        schema = schema_of(node) if omitted else None
        if schema is not None and len(inputs) <= max(omitted) < schema.max_inputs:
            inputs += [None] * (max(omitted) + 1 - len(inputs))
        left_out = () if number is None else self.record.entries[number].defaulted
        attributes = self.attributes.applied_to(node, left_out)
        if number is None or not self._is_there(node, number, inputs, attributes):
            self._insert(node, number, inputs, attributes)
        for index, value in enumerate(node.outputs):
            outer = None if value is None else self.values.get(value)
            if value is None or outer is None or (number is not None and value in self.returned):
                continue
            stated = self._stated(value, outer)
            if number is not None:
                stated = self.record.types.get((number, index))
            if stated is not None:
                self.graph.stated_types[outer.name] = stated

    def _read(self, value: Value, name: str | None) -> Value | None:
        """Return what to read for *value* of the body, by the name that was read if possible."""
        constant = self.constants.get(value)
        if constant is not None:
            put_back = None if name is None else self.embedded.put_back(name, constant)
            return put_back or self._plain_constant(value)
        inner = self.values[value]
        if name is None or inner is None:
            return inner
        other = find_value(self.graph, name)
        if other is None or not is_made_before(other, self.call):
            return inner
        return other if behind_identities(other) is behind_identities(inner) else inner

    def _plain_constant(self, value: Value) -> Value | None:
        """Put an embedded constant in as the node it is in the body."""
        if value not in self.values:
            assert value.producer is not None  # noqa: S101  # a Constant node makes it
            self._insert(value.producer, None, [], value.producer.attributes)
        return self.values[value]

    def _is_there(
        self,
        node: Node,
        number: int,
        inputs: list[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> bool:
        """Look for the node that this one repeats: it stayed because others needed it."""
        if any(value in self.returned for value in node.outputs):
            return False
        entry = self.record.entries[number]
        first = next((name for name in entry.outputs if name), "")
        value = self.graph.values.get(first)
        there = None if value is None else value.producer
        if value is None or there is None or not is_made_before(value, self.call):
            return False
        ours, theirs = bodies_in_form(node), bodies_in_form(there)
        captured = [self.values.get(value) for value in ours.captured]
        outputs = tuple("" if v is None else v.name for v in there.outputs)
        wanted = (node.qualified_op, node.overload, inputs, ours.digest, captured, entry.outputs)
        told = (there.qualified_op, there.overload, [*there.inputs], theirs.digest)
        if (*told, [*theirs.captured], outputs) != wanted:
            return False
        if not _same_attributes(there.attributes, attributes):
            return False
        pairs = zip(node.outputs, there.outputs, strict=True)
        self.values.update((inner, outer) for inner, outer in pairs if inner is not None)
        return True

    def _insert(
        self,
        node: Node,
        number: int | None,
        inputs: list[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> None:
        # What the node carried; a call in a body says itself what it stands for.
        copy = self.rewriter.insert(
            self.call,
            node.op_type,
            inputs,
            domain=node.domain,
            name=self._name(node, number),
            attributes=attributes,
            remarks=node.remarks
            if number is None
            else self.record.remarks.get(number) or node.remarks,
        )
        copy.overload = node.overload
        if node.subgraphs:
            self._put_bodies(node, copy, number)
        outputs: list[Value | None] = []
        for index, value in enumerate(node.outputs):
            outputs.append(None if value is None else self._define(value, copy, index, number))
        copy.outputs = tuple(outputs)
        if number is None and self.graph.model.is_spread:
            let_run(copy, node, self.call.remarks.rest)
        self.made.append(copy)

    def _put_bodies(self, node: Node, copy: Node, number: int | None) -> None:
        """Give *copy* the bodies of *node*, as they were if the record says it."""
        form = bodies_in_form(node)
        record = None if number is None else self.record.bodies.get(number)
        inner = form.nodes
        counts = (len(form.graphs), len(inner), len(form.values))
        if record and counts != (len(record.graphs), len(record.nodes), len(record.values)):
            record = None
        captures = {} if record is None else record.captures
        captured = {v: self._read(v, captures.get(n)) for n, v in enumerate(form.captured)}
        values = self.values | captured
        if record is None:
            BodyCopier(values, self.attributes.applied_to, self.names).copy_bodies(node, copy)
            return
        names = _NamesOfBodies(
            self.names,
            {each.name: name for each, name in zip(inner, record.nodes, strict=True)},
            {each.name: name for each, name in zip(form.values, record.values, strict=True)},
            is_repeated=number in self.record.repeated,
        )
        BodyCopier(values, self.attributes.applied_to, names).copy_bodies(node, copy)
        order = [name for name in record.attributes if name in copy.attributes]
        copy.attributes = {n: copy.attributes[n] for n in dict.fromkeys([*order, *copy.attributes])}
        copied, codec = bodies_in_form(copy), self.graph.model.codec
        for place, graph in enumerate(copied.graphs):
            graph.name = record.graphs[place]
            graph.likeness = codec.readable("graph", record.rest.get(place, b""))
        for place, each in enumerate(copied.nodes):
            each.remarks = record.remarks.get(place, NO_REMARKS)
        for place, encoded in record.types.items():
            if place < len(copied.values):
                copied.values[place].type_source = codec.readable("value", encoded)

    def _define(self, value: Value, copy: Node, index: int, number: int | None) -> Value:
        outer = self.returned.get(value)
        if outer is None:
            wanted = f"{self._prefix}/{value.name}"
            if number is not None:
                wanted = self.record.entries[number].outputs[index]
            outer = self.rewriter.make_value(self.names.value(self.graph, wanted), copy, index)
        else:
            outer.producer, outer.index = copy, index
        self.values[value] = outer
        return outer

    @property
    def _prefix(self) -> str:
        return self.call.label or self.call.op_type

    def _name(self, node: Node, number: int | None) -> str:
        if number is None:
            return self.names.node(f"{self._prefix}/{node.name or node.op_type}")
        name = self.record.entries[number].name
        return self.names.node(name, repeated=number in self.record.repeated)

    def _stated(self, inner: Value, outer: Value) -> StatedType | None:
        """Return what the function states of a value, as it holds where the call is.

        Its symbols mean something in the function alone. They become what the sizes are here, as
        far as that follows, else names that are this call's own.
        """
        stated, declared = inner.stated_type, inner.declared_type
        if stated is None or inner in self.graph.model.refuted or outer.type_source is not None:
            return None
        inferred = outer.known_type()
        if declared is None or declared.shape is None:
            return stated
        if inferred is not None and contradicts(declared, inferred):
            return None
        dims = declared.shape if inferred is None or inferred.shape is None else inferred.shape
        for dim, here in zip(declared.shape, dims, strict=True):
            if isinstance(dim, str):
                is_open = inferred is None or here is None or is_made_up(here)
                self.symbols.setdefault(dim, f"{self._prefix}/{dim}" if is_open else here)
        return self.graph.model.codec.restated(stated, self.symbols)


def _same_attributes(first: Mapping[str, Attribute], second: Mapping[str, Attribute]) -> bool:
    """Tell whether attributes are the same, graphs aside."""
    if first is second:
        return True
    stated = [
        {
            name: (each.kind, *(() if each.kind in GRAPH_KINDS else attribute_form(each)))
            for name, each in attributes.items()
        }
        for attributes in (first, second)
    ]
    return stated[0] == stated[1]


# Bring nodes that were put back into the order in which they were.


def places_before(graph: Graph, records: Mapping[Node, CallRecord]) -> dict[str, int]:
    """Return the places that nodes had before the calls took those of some, by first outputs.

    Args:
        graph: The graph with its calls.
        records: What the calls of one partition say, chosen or not.
    """
    before: dict[str, list[str]] = {}
    moved: set[str] = set()
    last_of: dict[Node, str] = {}
    for node, record in records.items():
        behind = record.following()
        last_of[node] = next((name for name in behind if not behind[name]), "")
        for name, following in behind.items():
            if name and following and name not in moved:
                moved.add(name)
                before.setdefault(following, []).append(name)
    order: list[str] = []
    for node in reversed(graph):
        name = last_of.get(node, node.first_output)
        pending = [] if name in moved else [name]
        while pending:
            name = pending.pop()
            order.append(name)
            pending += before.pop(name, ())
    return {name: place for place, name in enumerate(reversed(order))}


def arrange(graph: Graph, places: Mapping[str, int]) -> None:
    """Put the nodes of *graph* in the order of *places*, as far as what they read allows.

    A node that makes nothing there is a place for stays with the one behind it.
    """
    behind = max(places.values(), default=0) + 1
    from_the_end: list[tuple[Node, int]] = []
    for node in reversed(graph):
        names = [output.name for output in node.made]
        behind = next((places[name] for name in names if name in places), behind)
        from_the_end.append((node, behind))
    wanted = dict(reversed(from_the_end))
    needs = {}
    for node in wanted:
        read = [value for value in (*node.inputs, *captured_values(node)) if value is not None]
        makers = [v.producer for v in read if v.graph is graph and v.producer is not None]
        needs[node] = dict.fromkeys(makers)
    ranks = {node: (place, rank) for rank, (node, place) in enumerate(wanted.items())}
    ordered = lowest_rank_first(needs, ranks)
    if ordered != list(wanted):
        graph.arrange(ordered)
        graph.modified = True


@keys("function call scope nodes is_restored")
class InlinedCall(NamedTuple):
    """One call that was replaced by the body of its function.

    Attributes:
        function: The function called.
        call: The call, which is no longer in its graph.
        scope: The name of the graph that it was in.
        nodes: The nodes that took its place.
        is_restored: Whether the call said what the nodes were.
        outputs: The names of the values that it made.
    """

    function: Function
    call: Node
    scope: str
    nodes: tuple[Node, ...]
    is_restored: bool
    outputs: tuple[str, ...] = ()


@keys("function call scope=call.scope reason")
class RefusedCall(NamedTuple):
    """One call that stays, and why."""

    function: Function
    call: Node
    reason: str


@dataclass
class Inlining:
    """What :func:`inline` did.

    Attributes:
        functions: The functions that were to be inlined.
        calls: The calls replaced.
        refused: The calls that stay.
        removed: The functions taken out of the model, because nothing calls them any more.
    """

    functions: tuple[Function, ...]
    calls: list[InlinedCall] = field(default_factory=list)
    refused: list[RefusedCall] = field(default_factory=list)
    removed: list[Function] = field(default_factory=list)


def inline(
    model: Model,
    functions: Iterable[Function],
    only: Collection[Node] | None = None,
    stays: Callable[[Function, Node], str] = lambda _function, _call: "",
) -> Inlining:
    """Replace calls of *functions* by their bodies, and take out functions left without calls.

    Args:
        model: The model to edit; without such calls or functions it is left as it is.
        functions: What to inline.
        only: The calls to replace; None for all, those in the bodies included.
        stays: Says of a function and its call why this stays, if it does.

    Raises:
        PassError: A function calls itself, or the model would become too large.
    """
    chosen = dict.fromkeys(functions)
    check_growth(model, chosen if only is None else ())
    result = Inlining(tuple(chosen))
    worker = _Worker(chosen, only, result, stays)
    kept = [f for f in model.functions.values() if f not in chosen]
    todo = [model.graph, *(function.body for function in kept)]
    done: set[Function] = set(kept)
    while todo:
        for outermost in todo:
            worker.run(outermost)
        called = _called_from(model.graph, kept)
        still = [f for f in chosen if f in called and f not in done]
        done.update(still)
        todo = [function.body for function in still]
    _remove(model, result, [f for f in chosen if f not in _called_from(model.graph, kept)])
    return result


@dataclass
class _Worker:
    """Inlines the chosen calls in one outermost graph after the other."""

    chosen: Collection[Function]
    only: Collection[Node] | None
    result: Inlining
    stays: Callable[[Function, Node], str]
    refused: set[Node] = field(default_factory=set)
    restored: set[Node] = field(default_factory=set)
    scopes: dict[Graph, str] = field(default_factory=dict)

    def run(self, outermost: Graph) -> None:
        names = InlinedNames(outermost)
        seen: set[Graph] = set()
        while graphs := [graph for graph in outermost.and_inner() if graph not in seen]:
            for graph in graphs:
                seen.add(graph)
                while self._inline_latest(graph, names):
                    pass

    def _inline_latest(self, graph: Graph, names: InlinedNames) -> bool:
        """Inline the calls that the latest partition of *graph* wrote; tell if there were any."""
        calls = {
            node: function
            for node in graph
            if (function := called_function(node)) is not None and node not in self.refused
        }
        chosen = [
            node
            for node in calls
            if calls[node] in self.chosen and (self.only is None or node in self.only)
        ]
        if not chosen:
            return False
        records_of_calls = {node: read_call(node) for node in calls}
        records = {node: record for node, record in records_of_calls.items() if record is not None}
        latest = max(_run_of(records.get(node)) for node in chosen)
        batch = [node for node in chosen if _run_of(records.get(node)) == latest]
        of_run = {node: record for node, record in records.items() if record.run == latest}
        # if no record says where anything was, everything may stay where it is
        is_told = any(record.order or record.behind for record in of_run.values())
        places = places_before(graph, of_run) if is_told else {}
        for call in batch:
            self._inline(call, calls[call], records.get(call), names)
        if places:
            arrange(graph, places)
        return True

    def _inline(
        self, call: Node, function: Function, record: CallRecord | None, names: InlinedNames
    ) -> None:
        reason = (
            self.stays(function, call)
            or _object_to_arity(call, function)
            or _object_to_omitted(call, function)
            or _object_to_opsets(call, function)
        )
        if reason:
            self.refused.add(call)
            self.result.refused.append(RefusedCall(function, call, reason))
            return
        graph = call.graph
        # Name a graph, before a node that its name mentions goes.
        if graph not in self.scopes:
            self.scopes[graph] = scope_of(graph)
        scope = self.scopes[graph]
        _import_domains(function, graph)
        numbers = None if record is None else align(record, function.body)
        if numbers is None:
            record = None
        elif record is not None and call.source is None and call not in self.restored:
            record = replace(record, repeated=frozenset())  # names of the body it was copied from
        outputs = tuple(value.name for value in call.made)
        nodes = _Inliner(call, function, record or CallRecord(()), numbers or {}, names).run()
        is_restored = record is not None
        self.restored.update(nodes if is_restored else ())
        done = InlinedCall(function, call, scope, tuple(nodes), is_restored, outputs)
        self.result.calls.append(done)


def _import_domains(function: Function, graph: Graph) -> None:
    """Let *graph* import the domains that the nodes of *function* are of."""
    imports = function.body.opset_imports
    missing = imports.keys() - graph.opset_imports.keys()
    if not missing:
        return
    used = {node.domain for body in function.body.and_inner() for node in body}
    for domain in sorted(missing & used):
        graph.opset_imports[domain] = imports[domain]
        graph.model.opset_imports.setdefault(domain, imports[domain])


def _run_of(record: CallRecord | None) -> int:
    return -1 if record is None else record.run


def _called_from(graph: Graph, functions: Iterable[Function]) -> set[Function]:
    """Return what *graph* or one of *functions* calls, directly or through others."""
    bodies = [graph, *(function.body for function in functions)]
    called = [callee for body in bodies for callee in callees_in(body)]
    all_functions = graph.model.functions
    called += [
        all_functions[key] for key in sorted(graph.model.called_beside & all_functions.keys())
    ]
    return reachable(called, callees)


def _remove(model: Model, result: Inlining, functions: Iterable[Function]) -> None:
    """Take *functions* out, and the imports that only they needed."""
    result.removed = list(functions)
    if not result.removed:
        return
    model.graph.modified = True
    domains = {function.domain for function in result.removed}
    for function in result.removed:
        del model.functions[function.key]
    used = {key[0] for key in model.functions}
    used |= {node.domain for graph in model.graphs() for node in graph}
    for domain in domains - used:
        model.opset_imports.pop(domain, None)
        bodies = [graph for graph in model.graphs() if domain in graph.opset_imports]
        for body in bodies:
            body.opset_imports.pop(domain, None)
            body.modified = True
