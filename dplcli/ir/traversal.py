"""Walks over graphs: order, enclosure, reachability. All iterative."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir.graph import Graph
    from dplcli.ir.node import Node
    from dplcli.ir.value import Value


def enclosing_node(node: Node, graph: Graph) -> Node | None:
    """Return the node of *graph* that is *node* or contains it in a nested graph.

    A use by a node inside the body of an ``If`` is, seen from *graph*, a use by the ``If``.
    None if *node* does not lie in *graph* at any depth.
    """
    current: Node | None = node
    while current is not None and current.graph is not graph:
        current = current.graph.owner
    return current


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
    """Tell whether *node* only passes its input on."""
    return node is not None and node.op_type == "Identity" and node.domain == ""


def behind_identities(value: Value) -> Value:
    """Return the value that *value* is a copy of, itself if it is none."""
    producer = value.producer
    while producer is not None and is_identity(producer) and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer
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
    """Tell whether contracting *nodes* of one graph to a single node would make a cycle.

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
            pending.extend(value.producer for value in node.inputs if value is not None)
    return needed
