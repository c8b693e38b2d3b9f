"""Walks over graphs, all iterative, and the check of what every pass may rely on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dplcli.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir.model import Graph, Model, Node, Value


# Walks over graphs: order, enclosure, reachability. All iterative.


def outwards(graph: Graph) -> Iterator[Graph]:
    """Iterate over *graph* and those round it, the outermost last."""
    while True:
        yield graph
        if graph.owner is None:
            return
        graph = graph.owner.graph


def find_value(graph: Graph, name: str) -> Value | None:
    """Return what *name* means in *graph*: a value of its own, or of a graph round it."""
    return next((each.values[name] for each in outwards(graph) if name in each.values), None)


def enclosing_node(node: Node, graph: Graph) -> Node | None:
    """Return the node of *graph* that is *node* or contains it in a nested graph.

    A use by a node inside the body of an ``If`` is, seen from *graph*, a use by the ``If``.
    None if *node* does not lie in *graph* at any depth.
    """
    current: Node | None = node
    while current is not None and current.graph is not graph:
        current = current.graph.owner
    return current


def is_made_before(value: Value, node: Node) -> bool:
    """Tell whether *node*, or what it would be replaced by, may read *value*."""
    if value.graph.values.get(value.name) is not value:
        return False
    here, maker = enclosing_node(node, value.graph), value.producer
    return here is not None and (maker is None or maker.position < here.position)


def bodies_of(node: Node) -> Iterator[Graph]:
    """Iterate over the bodies of *node* and those in them: by name of attribute, outer ones first.

    The order does not depend on the file's.
    """
    pending = [body for _, body in sorted(node.subgraphs.items(), reverse=True)]
    while pending:
        graph = pending.pop()
        yield graph
        inner = [body for each in graph for _, body in sorted(each.subgraphs.items())]
        pending += reversed(inner)


def with_bodies(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return *nodes*, and behind them the nodes of their bodies, at any depth."""
    owners = [node for node in nodes if node.subgraphs]
    inner = [each for owner in owners for body in bodies_of(owner) for each in body]
    return [*nodes, *inner] if inner else nodes


def captured_values(node: Node) -> list[Value]:
    """List the values from round *node* that its bodies read or return, one per reading."""
    if not node.subgraphs:
        return []
    inner = [graph for body in node.subgraphs.values() for graph in body.and_inner()]
    bodies = set(inner)
    found = [value for graph in inner for made in graph for value in made.inputs]
    found += [value for graph in inner for value in graph.outputs]
    return [value for value in found if value is not None and value.graph not in bodies]


def is_identity(node: Node | None) -> bool:
    """Tell whether *node* only passes its input on; a file may have one that lacks it."""
    return (
        node is not None
        and node.op_type == "Identity"
        and node.domain == ""
        and node.inputs[0] is not None
    )


def behind_identities(value: Value) -> Value:
    """Return the value that *value* is a copy of, itself if it is none."""
    producer = value.producer
    while producer is not None and is_identity(producer):
        source = producer.inputs[0]
        assert source is not None  # noqa: S101  # an Identity without input is none here
        value, producer = source, source.producer
    return value


def users(value: Value) -> Iterator[Node]:
    """Iterate over the nodes of *value*'s graph that read it, captures included.

    A node that reads the value twice, or in two bodies, comes as often. A body that returns the
    value reads it, too.
    """
    readers = [user for user, _ in value.iter_uses()]
    readers += [graph.owner for graph in value.returned_by if graph.owner is not None]
    for reader in readers:
        enclosing = enclosing_node(reader, value.graph)
        if enclosing is not None:
            yield enclosing


def is_read(value: Value) -> bool:
    """Tell whether a node reads *value* or a graph returns it."""
    return bool(value.use_count or value.returned_by)


def is_read_only_by(value: Value, node: Node) -> bool:
    """Tell whether *node* alone reads *value*, perhaps more than once, Identity nodes aside.

    To be returned, and to be read inside a body of another node, is to be read.
    """
    pending = [value]
    while pending:
        current = pending.pop()
        if current.returned_by:
            return False
        for user, _ in current.iter_uses():
            if user is node:
                continue
            if not is_identity(user) or user.graph is not node.graph:
                return False
            pending += [output for output in user.outputs if output is not None]
    return True


def path_through_outside(
    nodes: Collection[Node],
    leaving: Iterable[Value],
    contracted: Mapping[Node, Sequence[Value]] | None = None,
) -> Node | None:
    """Find a node that keeps *nodes* of one graph from becoming a single one without a cycle.

    Args:
        nodes: The nodes to contract.
        leaving: Their outputs that nodes outside read.
        contracted: For each node that is to be contracted with others into a node of several
            outputs: those outputs, which then all depend on what any of its nodes reads.

    Returns:
        An outside node that depends on one of *leaving* and that one of *nodes* depends on; None
        if the set is convex. The search never goes past the last of *nodes*.
    """
    members = set(nodes)
    groups = contracted or {}
    last = max(node.position for node in (*nodes, *groups))
    seen: dict[Node, Node] = {}
    pending: list[tuple[Node, Node]] = [
        (user, user) for value in leaving for user in users(value) if user not in members
    ]
    while pending:
        node, first = pending.pop()
        if node in members:
            return first
        if node in seen or node.position > last:
            continue
        seen[node] = first
        for output in groups.get(node, node.outputs):
            if output is not None:
                pending.extend((user, first) for user in users(output))
    return None


def dependents_before(
    anchor: Node, values: Iterable[Value], members: Collection[Node]
) -> list[Node]:
    """Return the nodes before *anchor*, not of *members*, that need one of *values*; in order."""
    found: set[Node] = set()
    pending = list(values)
    while pending:
        for user in users(pending.pop()):
            if user in found or user in members or user.position > anchor.position:
                continue
            found.add(user)
            pending += [output for output in user.outputs if output is not None]
    return sorted(found, key=lambda node: node.position)


def needed_within(members: Collection[Node], values: Iterable[Value]) -> set[Node]:
    """Return the nodes of *members* that make *values*, or what those need, and so on."""
    inside = set(members)
    needed: set[Node] = set()
    pending = [value.producer for value in values]
    while pending:
        node = pending.pop()
        if node is not None and node in inside and node not in needed:
            needed.add(node)
            read = (*node.inputs, *captured_values(node))
            pending.extend(value.producer for value in read if value is not None)
    return needed


# Check the invariants that every pass may rely on and must leave intact.


def check_structure(model: Model) -> None:
    """Check every graph of *model*, and that the domains of called functions are imported.

    Raises:
        InvalidGraphError: An invariant is broken; the message names graph, node and value.
    """
    for graph in model.graphs():
        check_graph_structure(graph)
        for node in graph:
            is_call = (node.domain, node.op_type, node.overload) in model.functions
            if is_call and node.domain not in graph.opset_imports:
                raise InvalidGraphError(f"{graph!r}: {node!r} calls into a domain not imported")


def check_graph_structure(graph: Graph) -> None:
    """Check one graph: order of nodes, names of values, use-lists and outputs.

    Raises:
        InvalidGraphError: As :func:`check_structure`.
    """
    nodes = _check_list(graph)
    members = set(nodes)
    for node in nodes:
        for body in node.subgraphs.values():
            if body.owner is not node:
                raise InvalidGraphError(f"{graph!r}: a body of {node!r} belongs to another node")
            if body not in graph.inner:
                raise InvalidGraphError(f"{graph!r}: a body of {node!r} is not among its bodies")
    _check_inputs(graph, nodes)
    inner = set(with_bodies(nodes))
    for value in graph.values.values():
        _check_uses(value, inner)
    for name, value in graph.values.items():
        if value.name != name or value.graph is not graph:
            raise InvalidGraphError(f"{graph!r}: value {name!r} is registered under a wrong name")
        producer = value.producer
        if producer is not None and value not in producer.outputs:
            raise InvalidGraphError(f"{graph!r}: {value!r} is not an output of its producer")
        if value.producer is not None and value.producer not in members:
            raise InvalidGraphError(f"{graph!r}: {value!r} is made by a node that is not there")
    _check_outputs(graph)


def _check_list(graph: Graph) -> list[Node]:
    """Check the linked list of nodes in both directions, and return it."""
    nodes = list(graph)
    if len(nodes) != graph.node_count:
        raise InvalidGraphError(f"{graph!r}: holds {len(nodes)} nodes")
    if list(reversed(graph)) != nodes[::-1]:
        raise InvalidGraphError(f"{graph!r}: the node list differs when walked backwards")
    position = 0
    for node in nodes:
        if node.graph is not graph or node.position <= position:
            raise InvalidGraphError(f"{graph!r}: {node!r} is out of place in the node list")
        position = node.position
    return nodes


def _check_inputs(graph: Graph, nodes: list[Node]) -> None:
    """Check that what nodes read is defined before them and knows that it is read."""
    reads = {
        (node, slot): value
        for node in nodes
        for slot, value in enumerate(node.inputs)
        if value is not None
    }
    recorded = {use for value in set(reads.values()) for use in value.iter_uses()}
    for (node, slot), value in reads.items():
        _check_defined_before(value, node)
        if (node, slot) not in recorded:
            raise InvalidGraphError(f"{graph!r}: {value!r} does not know its use by {node!r}")
    for node in nodes:
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            if graph.values.get(output.name) is not output or output.index != index:
                raise InvalidGraphError(f"{graph!r}: {output!r} is not registered")


def _check_defined_before(value: Value, node: Node) -> None:
    if value.graph.values.get(value.name) is not value:
        raise InvalidGraphError(f"{node!r} reads {value!r}, which no graph defines any more")
    here = enclosing_node(node, value.graph)
    if here is None:
        raise InvalidGraphError(f"{node!r} reads {value!r} from a graph that is not round it")
    if value.producer is not None and value.producer.position >= here.position:
        raise InvalidGraphError(f"{node!r} reads {value!r} before it is made")


def _check_uses(value: Value, inner: set[Node]) -> None:
    if len(set(value.iter_uses())) != value.use_count:
        raise InvalidGraphError(f"{value!r} has one use recorded twice")
    for node, slot in value.iter_uses():
        if node not in inner:
            raise InvalidGraphError(f"{value!r} claims a use by {node!r}, which is not there")
        if slot >= len(node.inputs) or node.inputs[slot] is not value:
            raise InvalidGraphError(f"{value!r} claims a use by {node!r} in slot {slot}")


def _check_outputs(graph: Graph) -> None:
    """Check that what is returned is defined, and that the values know who returns them."""
    for output in graph.outputs:
        if output.graph.values.get(output.name) is not output:
            raise InvalidGraphError(f"{graph!r} returns {output!r}, which no graph defines")
        if graph not in output.returned_by:
            raise InvalidGraphError(f"{graph!r}: output {output!r} is not marked as one")
        if output.graph is not graph:
            _check_returned_from_outside(graph, output)
    returned = Counter(graph.outputs)
    for value in graph.values.values():
        if value.returned_by.count(graph) != returned[value]:
            raise InvalidGraphError(f"{graph!r}: {value!r} is marked as an output but is none")


def _check_returned_from_outside(graph: Graph, output: Value) -> None:
    owner = graph.owner
    if owner is None or enclosing_node(owner, output.graph) is None:
        raise InvalidGraphError(f"{graph!r} returns {output!r} of a graph that is not round it")
    _check_defined_before(output, owner)
