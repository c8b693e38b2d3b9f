"""The only code that edits a graph: every edit keeps order, names and use-lists true.

What several passes need for that is here, too: free names, walks, orders, bodies of functions.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dplcli.errors import InvalidGraphError, PassError
from dplcli.ir import Graph, Node, Tensor, TensorType, Value
from dplcli.ir.model import (
    FIRST_IR_WITH_PLAIN_INITIALIZERS,
    NO_ATTRIBUTES,
    NO_REMARKS,
    called_function,
    callees,
    record_uses,
)
from dplcli.ir.traversal import captured_values, is_read, outwards, users
from dplcli.ir.types import PLAIN_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from dplcli.ir import Attribute, Model, Remarks


# What passes have in common: free names, walks, orders, equal data.


Item = TypeVar("Item", bound="Hashable")

_SHORT_DATA = 64
"""Most elements of a tensor that is told from others by its data."""


def unique(name: str, is_used: Callable[[str], bool]) -> str:
    """Return *name*, or the first of ``name_1``, ``name_2``, … that is not used."""
    if not is_used(name):
        return name
    number = 1
    while is_used(f"{name}_{number}"):
        number += 1
    return f"{name}_{number}"


def claim(name: str, used: set[str]) -> str:
    """Return *name*, or with a number behind it if it is one of *used*, and add it to them."""
    free = unique(name, used.__contains__)
    used.add(free)
    return free


def reachable(starts: Iterable[Item], near: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """Return *starts*, what is *near* to them, what is near to that, and so on."""
    reached = set(starts)
    pending = list(reached)
    while pending:
        fresh = [item for item in dict.fromkeys(near(pending.pop())) if item not in reached]
        reached.update(fresh)
        pending += fresh
    return reached


def lowest_rank_first(
    needs: Mapping[Item, Iterable[Item]], rank: Mapping[Item, tuple[int, ...]]
) -> list[Item]:
    """Sort items so that each follows what it needs.

    Args:
        needs: By item, the others that it needs, each once.
        rank: Of the items that may be next, the lowest comes; no two are of the same rank.
    """
    users: dict[Item, list[Item]] = {item: [] for item in needs}
    missing = dict.fromkeys(needs, 0)
    for item, needed in needs.items():
        for other in needed:
            users[other].append(item)
            missing[item] += 1
    at = {rank[item]: item for item in needs}
    ready = [rank[item] for item, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(at[heapq.heappop(ready)])
        for user in users[order[-1]]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, rank[user])
    return order


def nodes_run_by(node: Node) -> list[Node]:
    """List *node* and the nodes of the functions that it calls, at any depth."""
    function = called_function(node)
    functions = [] if function is None else reachable([function], callees)
    bodies = [graph for each in functions for graph in each.body.and_inner()]
    return [node, *(inner for body in bodies for inner in body)]


def data_key(tensor: object) -> tuple[Hashable, ...] | None:
    """Return what short tensors of equal data share; None if it is long, or in another file."""
    if not isinstance(tensor, Tensor) or tensor.is_external or tensor.size > _SHORT_DATA:
        return None
    return tensor.content


def attribute_key(attribute: Attribute) -> Hashable:
    """Return what attributes of equal value share; of graphs and long tensors, their identity."""
    if attribute.ref:
        return (attribute.kind, "ref", attribute.ref)
    value = attribute.value
    if attribute.kind in PLAIN_KINDS:
        return (attribute.kind, repr(value))
    return (attribute.kind, data_key(value) or str(id(value)))


class BodyWriter:
    """Writes the body of a new function: inputs first, then one node after the other.

    Args:
        model: The model that gets the function.
        name: The body's name.
        imports: The opsets of its operators.

    Attributes:
        graph: The body.
    """

    def __init__(self, model: Model, name: str, imports: Mapping[str, int]) -> None:
        self.graph = Graph(model, dict(imports))
        self.graph.name = name
        self.graph.modified = True
        self._numbers: dict[str, int] = {}

    def value(self, wanted: str, node: Node | None = None, index: int = 0) -> Value:
        """Define a value under the name *wanted*, or with a number behind it."""
        name = wanted
        while name in self.graph.values:
            number = self._numbers[wanted] = self._numbers.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        value = self.graph.values[name] = Value(name, self.graph, node, index)
        return value

    def add_input(self, wanted: str) -> Value:
        """Define an input."""
        value = self.value(wanted)
        value.is_graph_input = True
        self.graph.inputs.append(value)
        return value

    def add_node(
        self,
        operator: tuple[str, str, str],
        name: str,
        inputs: Iterable[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: Iterable[str],
    ) -> Node:
        """Append a node.

        Args:
            operator: Domain, operator and overload.
            name: The node's name.
            inputs: What it reads.
            attributes: Its attributes.
            outputs: The names wanted for what it makes, "" for an output that is omitted.
        """
        domain, op_type, overload = operator
        node = Node(self.graph, op_type, domain, name)
        node.overload = overload
        node.attributes = attributes
        node.inputs = tuple(inputs)
        record_uses((node,))
        node.outputs = tuple(
            [self.value(out, node, index) if out else None for index, out in enumerate(outputs)]
        )
        self.graph.append(node)
        return node


# The IR version that a model must have for what passes put into it.


FIRST_IR_WITH_FUNCTIONS = 8
"""First IR version with model-local functions."""


def raise_ir_version(model: Model, needed: int = FIRST_IR_WITH_FUNCTIONS) -> None:
    """Raise the IR version to *needed*, if it is lower: to the first one with functions.

    Below version 4 every initializer had to be listed among the graph inputs; above, being listed
    makes it overridable, which stops onnxruntime from folding it, so they are taken off the list.

    Raises:
        PassError: The file has functions all the same, and one that may not be in a model of such
            an IR version.
    """
    if model.ir_version >= needed:
        return
    if needed >= FIRST_IR_WITH_FUNCTIONS:
        _check_functions(model)
    if model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        for graph in model.graphs():
            for value in graph.inputs:
                value.is_graph_input = not value.is_initializer
            graph.inputs = [value for value in graph.inputs if value.is_graph_input]
            graph.modified = True
    model.ir_version = needed


def _check_functions(model: Model) -> None:
    """Refuse functions whose operators are others than in the model, as onnx.checker does."""
    schemas = model.codec.schemas
    for function in model.functions.values():
        for node in function.body:
            theirs = function.body.opset_imports.get(node.domain)
            ours = model.opset_imports.get(node.domain)
            if theirs is None or ours is None or called_function(node) is not None:
                continue
            found = [schemas.find(node.op_type, node.domain, version) for version in (theirs, ours)]
            if len({None if schema is None else schema.since for schema in found}) > 1:
                raise PassError(
                    f"the result needs IR version {FIRST_IR_WITH_FUNCTIONS}, in which functions "
                    f"use the operators of the model; {function.domain}::{function.name} uses "
                    f"{node.qualified_op} of opset {theirs}, and the model imports opset {ours}",
                    hint="raise the model first: "
                    f"dpl rewrite MODEL --patterns prepare --opset {max(ours, theirs)} -o RAISED",
                )


# Nodes that say on which devices they run, or in which stage of a pipeline.


def object_to_devices(nodes: Iterable[Node]) -> tuple[str, Node] | None:
    """Say which of *nodes* runs on other devices, or in another stage, than one before it.

    What is not said contradicts nothing.

    Returns:
        The reason and the node; None if they may be one node.
    """
    said: dict[tuple[str, str], tuple[str, Node]] = {}
    for node in nodes:
        for key, place in node.graph.model.codec.placements(node).items():
            other, first = said.setdefault(key, (place, node))
            if other != place:
                name, what = key
                places = f"{first.label!r} has {what} {other}, {node.label!r} {what} {place}"
                return f"it would run in two places: {places} (in {name!r})", node
    return None


def inherit_devices(node: Node, nodes: Sequence[Node]) -> None:
    """Let *node* run where *nodes* do, in whose place it is."""
    model = node.graph.model
    if model.is_spread:
        node.remarks = node.remarks._replace(rest=model.codec.devices(node, nodes))


class RewriteListener:
    """Is told of every edit; this base class wants to know of none."""

    def node_inserted(self, node: Node) -> None:
        """*node* has just been put in: what it reads has one more reader."""

    def bodies_made(self, node: Node) -> None:
        """A new node has got its bodies: what they read has more readers."""

    def node_erased(self, node: Node) -> None:
        """*node* has just been taken out; its fields are as they were.

        What it and its bodies read has fewer readers.
        """

    def value_changed(self, value: Value) -> None:
        """Another node makes *value* than before, or it is data now."""

    def constant_made(self, value: Value) -> None:
        """*value* is data that a pass has made."""

    def inputs_changed(self, node: Node) -> None:
        """*node* reads another value than before."""

    def readers_changed(self, value: Value) -> None:
        """Other nodes read *value* than before."""


_NOBODY = RewriteListener()


class GraphRewriter(NamedTuple):
    """Edits one graph.

    Attributes:
        graph: The graph to edit.
        listener: Told of every edit.
    """

    graph: Graph
    listener: RewriteListener = _NOBODY

    def insert(  # noqa: PLR0913  # these are the parts of a node
        self,
        anchor: Node,
        op_type: str,
        inputs: Sequence[Value | None],
        *,
        domain: str = "",
        name: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        remarks: Remarks = NO_REMARKS,
    ) -> Node:
        """Put a node without outputs just before *anchor*, which must follow all *inputs*."""
        node = Node(self.graph, op_type, domain, name)
        node.inputs = tuple(inputs)
        node.attributes = NO_ATTRIBUTES if attributes is None else attributes
        node.remarks = remarks
        record_uses((node,))
        self.graph.insert_before(anchor, node)
        self.graph.modified = True
        self.listener.node_inserted(node)
        return node

    def make_value(self, name: str, node: Node | None = None, index: int = 0) -> Value:
        """Define a value under a name that is free."""
        value = self.graph.values[name] = Value(name, self.graph, node, index)
        return value

    def add_initializer(self, name: str, tensor: Tensor) -> Value:
        """Store *tensor* under a name that is free."""
        value = self.make_value(name)
        value.set_initializer(tensor)
        self.graph.modified = True
        self.listener.constant_made(value)
        return value

    def make_initializer(self, value: Value, tensor: Tensor) -> None:
        """Make *value* an initializer with the data of *tensor*, in place of what a node made."""
        value.producer = None
        value.index = 0
        value.set_initializer(tensor)
        value.note_type(TensorType(tensor.dtype, tensor.shape))
        self.graph.modified = True
        self._changed(value)
        self.listener.constant_made(value)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Let every node that reads *old* read *new* instead, inside bodies too.

        The caller sees to it that *new* is made before all of them, and that *old* is not
        returned.
        """
        uses = old.uses
        for node, slot in uses:
            old.remove_use(node, slot)
            new.add_use(node, slot)
            node.rewire(slot, new)
            for graph in outwards(node.graph):
                graph.modified = True
        self.graph.model.note_edit()
        for node, _slot in uses:
            self.listener.inputs_changed(node)
        self.listener.readers_changed(old)
        self.listener.readers_changed(new)

    def rename_source(self, value: Value, old: Value) -> None:
        """Let the node that makes *value* make *old*, a copy of it, in its place.

        Whoever read *value* reads *old*; the node that made *old* no longer does. *value* is gone.
        """
        node = value.producer
        assert node is not None  # noqa: S101  # the caller has looked
        self.replace_uses(value, old)
        outputs = [old if output is value else output for output in node.outputs]
        node.rewired = True
        old.index = value.index
        old.producer = node
        node.outputs = tuple(outputs)
        del self.graph.values[value.name]
        self.graph.erased.add(value.name)
        self.graph.modified = True
        self._changed(old)

    def move_behind(self, anchor: Node, nodes: Sequence[Node]) -> None:
        """Put *nodes*, which are in order, just behind *anchor*, which they follow anyway.

        The caller sees to it that nothing between needs them.
        """
        for node in nodes:
            self.graph.unlink(node)
            self.graph.insert_behind(anchor, node)
            anchor = node
        self.graph.modified = self.graph.modified or bool(nodes)

    def move_before(self, anchor: Node, nodes: Sequence[Node]) -> None:
        """Put *nodes*, which are in order, just before *anchor*, which they precede anyway.

        The caller sees to it that they need nothing between.
        """
        for node in nodes:
            self.graph.unlink(node)
            self.graph.insert_before(anchor, node)
        self.graph.modified = self.graph.modified or bool(nodes)

    def arrange(self, nodes: Sequence[Node]) -> None:
        """Put *nodes*, all of the graph, in the order given; each follows what it reads."""
        self.graph.arrange(nodes)
        self.graph.modified = True

    def take_over_outputs(self, node: Node, values: Sequence[Value | None]) -> None:
        """Let *node* make *values*, which keep their names and users; None is an omitted output."""
        outputs = [value for value in values if value is not None]
        for index, value in enumerate(values):
            if value is not None:
                value.producer = node
                value.index = index
        node.outputs = tuple(values)
        self._changed(*outputs)

    def _changed(self, *values: Value) -> None:
        self.graph.model.note_edit()
        for value in values:
            self.listener.value_changed(value)

    def erase(self, nodes: Sequence[Node]) -> None:
        """Take *nodes* out, with the values that they (still) make.

        Raises:
            InvalidGraphError: Such a value is used by other nodes or returned; nothing is changed.
        """
        members = set(nodes)
        unused = _made_and_unused(nodes, members)
        graph = self.graph
        for node in nodes:
            for slot, read in enumerate(node.inputs):
                if read is not None and read.producer not in members:
                    read.remove_use(node, slot)
            graph.unlink(node)
            if node.subgraphs:
                for body in node.subgraphs.values():
                    _forget_body(body)
                    graph.inner.remove(body)
        values, erased = graph.values, graph.erased
        for value in unused:
            del values[value.name]
            erased.add(value.name)
        graph.modified = True
        for node in nodes:
            self.listener.node_erased(node)

    def drop_initializer(self, value: Value) -> None:
        """Take out an initializer that nothing reads.

        Raises:
            InvalidGraphError: Something reads it.
        """
        if value.use_count or value.returned_by or value.is_graph_input:
            raise InvalidGraphError(f"{value!r} is still used and cannot be dropped")
        del self.graph.values[value.name]
        self.graph.erased.add(value.name)
        self.graph.dropped.add(value.name)
        self.graph.modified = True


def _made_and_unused(nodes: Iterable[Node], members: set[Node]) -> list[Value]:
    """Return what *nodes* make; raise InvalidGraphError where others read or return it."""
    outputs = [
        output
        for node in nodes
        for output in node.outputs
        if output is not None and output.producer is node
    ]
    for value in outputs:
        if not members.issuperset(users(value)):
            raise InvalidGraphError(f"{value!r} is still used and cannot be erased")
        if any(body.owner is None for body in value.returned_by):
            raise InvalidGraphError(f"{value!r} is still returned and cannot be erased")
    return outputs


def _forget_body(body: Graph) -> None:
    """Take the reads of *body*, whose node goes, out of the graphs round it."""
    for graph in body.and_inner():
        for node in graph:
            for slot, value in enumerate(node.inputs):
                if value is not None and value.graph is not graph:
                    value.remove_use(node, slot)
        for output in graph.outputs:
            if output.graph is not graph:
                others = (other for other in output.returned_by if other is not graph)
                output.returned_by = tuple(others)


# Take out what an edit has left unread, so that use counts stay true.


def erase_unread(values: Iterable[Value], listener: RewriteListener = _NOBODY) -> list[Node]:
    """Erase the nodes whose results nobody reads, from *values* upwards.

    Initializers that nobody reads go, too, unless they are graph inputs.

    Returns:
        The nodes erased.
    """
    erased: list[Node] = []
    pending = list(values)
    while pending:
        value = pending.pop()
        if is_read(value) or value.graph.values.get(value.name) is not value:
            continue
        node = value.producer
        rewriter = GraphRewriter(value.graph, listener)
        if node is None:
            if value.is_initializer and not value.is_graph_input:
                rewriter.drop_initializer(value)
            continue
        if any(output is not None and is_read(output) for output in node.outputs):
            continue
        read = [*node.read, *captured_values(node)]
        rewriter.erase([node])
        erased.append(node)
        pending += read
    return erased
