"""Check the invariants that every pass may rely on and must leave intact."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dplcli.errors import InvalidGraphError
from dplcli.ir.traversal import enclosing_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.ir.graph import Graph
    from dplcli.ir.model import Model
    from dplcli.ir.node import Node
    from dplcli.ir.value import Value


def verify_model(model: Model) -> None:
    """Check every graph of *model*, and that the domains of called functions are imported.

    Raises:
        InvalidGraphError: An invariant is broken; the message names graph, node and value.
    """
    for graph in model.graphs():
        verify_graph(graph)
        for node in graph:
            is_call = (node.domain, node.op_type, node.overload) in model.functions
            if is_call and node.domain not in graph.opset_imports:
                raise InvalidGraphError(f"{graph!r}: {node!r} calls into a domain not imported")


def verify_graph(graph: Graph) -> None:
    """Check one graph: order, registration, use-lists and outputs.

    Raises:
        InvalidGraphError: As :func:`verify_model`.
    """
    nodes = _check_list(graph)
    members = set(nodes)
    inner = set(nodes)
    for node in nodes:
        for body in node.subgraphs.values():
            if body.owner is not node:
                raise InvalidGraphError(f"{graph!r}: a body of {node!r} belongs to another node")
            if body not in graph.inner:
                raise InvalidGraphError(f"{graph!r}: a body of {node!r} is not among its bodies")
            inner.update(_nodes_inside(body))
    _check_inputs(graph, nodes)
    for value in graph.values.values():
        _check_uses(value, inner)
    for name, value in graph.values.items():
        _check_registration(graph, name, value)
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


def _nodes_inside(graph: Graph) -> Iterator[Node]:
    pending = [graph]
    while pending:
        for node in pending.pop():
            yield node
            pending.extend(node.subgraphs.values())


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


def _check_registration(graph: Graph, name: str, value: Value) -> None:
    if value.name != name or value.graph is not graph:
        raise InvalidGraphError(f"{graph!r}: value {name!r} is registered under a wrong name")
    producer = value.producer
    if producer is not None and value not in producer.outputs:
        raise InvalidGraphError(f"{graph!r}: {value!r} is not an output of its producer")


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
