"""The nodes that a rule is learned from: one connected, convex piece of one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import UsageError
from dplcli.ir import Node
from dplcli.ir.parameters import inputs_of
from dplcli.ir.traversal import behind_identities, is_identity, path_through_outside, users
from dplcli.passes.judgement import describe_escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Graph, Value

_MOST_NAMED = 8
"""Most nodes that a message names."""


class Region(NamedTuple):
    """A subgraph that a rule can be learned from.

    Attributes:
        nodes: Its nodes in topological order, without Identity and Constant nodes.
        roots: Those whose outputs are needed outside, or nowhere; each but the first has something
            in common with those before it.
    """

    nodes: tuple[Node, ...]
    roots: tuple[Node, ...]


def read_region(nodes: Sequence[Node]) -> Region:
    """Check that a rule can be learned from *nodes*.

    Raises:
        UsageError: They are in different graphs, not connected or not convex, or no function can
            hold them; says which nodes are concerned, and what to do.
    """
    _check_one_graph(nodes)
    members = sorted(
        {node for node in nodes if not is_identity(node) and not _is_constant(node)},
        key=lambda node: node.position,
    )
    if not members:
        raise UsageError(
            "there is nothing to learn from Identity and Constant nodes alone",
            hint="add the nodes that read them",
        )
    for node in members:
        if node.subgraphs:
            raise UsageError(f"{say(node)} has a body of its own, which a function cannot hold")
    copies = _copies_between(members)
    whole = sorted({*members, *copies}, key=lambda node: node.position)
    leaving = _read_outside(whole)
    _check_convex(whole, leaving)
    _check_connected(members)
    _check_copies(copies, leaving, whole)
    return Region(tuple(members), tuple(_ordered_roots(members, whole, leaving)))


def say(node: Node) -> str:
    """Name *node* in a message."""
    return f"{node.qualified_op} {node.label!r}"


def list_nodes(nodes: Sequence[Node], most: int = _MOST_NAMED) -> str:
    """Name some nodes, and say how many more there are."""
    texts = [say(node) for node in nodes[:most]]
    if len(nodes) > most:
        texts.append(f"and {len(nodes) - most} more")
    return ", ".join(texts)


def _is_constant(node: Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _check_one_graph(nodes: Sequence[Node]) -> None:
    if not nodes:
        raise UsageError("no node is named", hint="pass the names of the nodes to learn from")
    first = nodes[0]
    stray = next((node for node in nodes if node.graph is not first.graph), None)
    if stray is not None:
        raise UsageError(
            f"{say(first)} is in {_scope(first.graph)} and {say(stray)} in {_scope(stray.graph)}: "
            "a pattern never spans two graphs"
        )


def _scope(graph: Graph) -> str:
    if graph.owner is not None:
        return f"a body of {say(graph.owner)}"
    functions = graph.model.functions.values()
    function = next((item for item in functions if item.body is graph), None)
    return "the main graph" if function is None else f"the function {function.name!r}"


def _copies_between(members: Sequence[Node]) -> list[Node]:
    """Return the Identity nodes that lie between two of *members*."""
    known = set(members)
    copies: dict[Node, None] = {}
    for node in members:
        for value in node.inputs:
            if value is None or behind_identities(value).producer not in known:
                continue
            producer = value.producer
            while producer is not None and producer not in known:
                copies[producer] = None
                copied = producer.inputs[0]
                producer = None if copied is None else copied.producer
    return list(copies)


def _read_outside(whole: Sequence[Node]) -> list[Value]:
    """Return the values made by *whole* that the graph returns or that others read."""
    inside = set(whole)
    made = [output for node in whole for output in node.outputs if output is not None]
    return [v for v in made if v.is_graph_output or any(user not in inside for user in users(v))]


def _check_convex(whole: Sequence[Node], leaving: Sequence[Value]) -> None:
    """Refuse nodes with others between them, and name the first few of those."""
    extended, values = list(whole), list(leaving)
    missing: list[Node] = []
    while len(missing) <= _MOST_NAMED:
        outside = path_through_outside(extended, values)
        if outside is None:
            break
        missing.append(outside)
        extended.append(outside)
        values += [output for output in outside.outputs if output is not None]
    missing = sorted(
        (node for node in missing if not is_identity(node)), key=lambda node: node.position
    )
    if not missing:
        return
    more = ", and more" if len(missing) > _MOST_NAMED else ""
    shown = ", ".join(say(node) for node in missing[:_MOST_NAMED])
    is_one = len(missing) == 1
    raise UsageError(
        f"{shown}{more} {'lies' if is_one else 'lie'} between the nodes named",
        hint=f"add {'it' if is_one else 'them'} to the nodes",
    )


def _check_connected(members: Sequence[Node]) -> None:
    """Refuse nodes that neither feed one another nor read the same value."""
    known = set(members)
    neighbours: dict[object, list[object]] = {}
    for node in members:
        neighbours.setdefault(node, [])
        for other in _read_by(node, known):
            neighbours[node].append(other)
            neighbours.setdefault(other, []).append(node)
    reached: set[object] = {members[0]}
    pending: list[object] = [members[0]]
    while pending:
        fresh = [other for other in neighbours[pending.pop()] if other not in reached]
        reached.update(fresh)
        pending += fresh
    apart = [node for node in members if node not in reached]
    if apart:
        joined = [node for node in members if node in reached]
        raise UsageError(
            f"the nodes are not connected: {list_nodes(joined)} on one side, "
            f"{list_nodes(apart)} on the other",
            hint="add the nodes between them, or learn a rule for each side",
        )


def _read_by(node: Node, members: AbstractSet[Node | None]) -> Iterator[Node | Value]:
    """Yield what *node* reads: members, or values that come from outside; constants join nothing.

    Identity nodes are looked through.
    """
    for value in inputs_of(node):
        origin = None if value is None else behind_identities(value)
        if origin is not None and not origin.is_constant:
            maker = origin.producer
            yield maker if maker is not None and maker in members else origin


def _check_copies(copies: Sequence[Node], leaving: Sequence[Value], whole: Sequence[Node]) -> None:
    """Refuse an inner Identity node with readers outside: a match has none of those as output."""
    for value in leaving:
        producer = value.producer
        if producer is not None and producer in copies:
            outside = describe_escape(value, whole)
            raise UsageError(
                f"{say(producer)} lies between the nodes named, but {outside}",
                hint="add what reads it, or remove the Identity node from the model",
            )


def _ordered_roots(
    members: Sequence[Node], whole: Sequence[Node], leaving: Sequence[Value]
) -> Iterator[Node]:
    """Yield the nodes that make the outputs, each with something above it in common with others.

    So whoever has matched the first ones need not search the whole graph for the next.
    """
    inside = set(whole)
    escaping = {value.producer for value in leaving}
    roots = [node for node in members if node in escaping or not _is_read_in(node, inside)]
    cones = {root: _cone(root, inside) for root in roots}
    seen = set(cones[roots[0]])
    while roots:
        following = next(root for root in roots if not seen.isdisjoint(cones[root]))
        seen |= cones[following]
        roots.remove(following)
        yield following


def _is_read_in(node: Node, inside: AbstractSet[Node]) -> bool:
    made = [output for output in node.outputs if output is not None]
    return any(user in inside for output in made for user in users(output))


def _cone(root: Node, inside: AbstractSet[Node | None]) -> set[Node | Value]:
    """Return *root* with everything above it that is inside, and the values read from outside."""
    cone: set[Node | Value] = {root}
    pending = [root]
    while pending:
        for other in _read_by(pending.pop(), inside):
            if other not in cone:
                cone.add(other)
                if isinstance(other, Node):
                    pending.append(other)
    return cone
