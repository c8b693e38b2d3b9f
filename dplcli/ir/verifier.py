"""Check the invariants that every pass may rely on and must leave intact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import InvalidGraphError
from dplcli.ir.traversal import enclosing_node

if TYPE_CHECKING:
    from dplcli.ir.graph import Graph
    from dplcli.ir.model import Model
    from dplcli.ir.node import Node
    from dplcli.ir.value import Value


def verify_model(model: Model) -> None:
    """Check every graph of *model*, and that every custom call has an opset import.

    Raises:
        InvalidGraphError: An invariant is broken; the message names graph, node and value.
    """
    for graph in model.graphs():
        verify_graph(graph)


def verify_graph(graph: Graph) -> None:
    """Check one graph: order, registration, use-lists and outputs.

    Raises:
        InvalidGraphError: As :func:`verify_model`.
    """
    uses = _check_nodes(graph)
    for name, value in graph.values.items():
        if value.name != name or value.graph is not graph:
            raise InvalidGraphError(f"{graph!r}: value {name!r} is registered under a wrong name")
        if value.producer is not None and value not in value.producer.outputs:
            raise InvalidGraphError(f"{graph!r}: {value!r} is not an output of its producer")
    recorded = {use for value in set(uses.values()) for use in value.iter_uses()}
    for (node, slot), value in uses.items():
        if (node, slot) not in recorded:
            raise InvalidGraphError(f"{graph!r}: {value!r} does not know its use by {node!r}")
    for value in graph.values.values():
        _check_uses_exist(value)
    for output in graph.outputs:
        if not output.is_graph_output:
            raise InvalidGraphError(f"{graph!r}: output {output!r} is not marked as one")


def _check_nodes(graph: Graph) -> dict[tuple[Node, int], Value]:
    uses: dict[tuple[Node, int], Value] = {}
    position = 0
    count = 0
    for node in graph:
        count += 1
        if node.graph is not graph or node.position <= position:
            raise InvalidGraphError(f"{graph!r}: {node!r} is out of place in the node list")
        position = node.position
        for slot, value in enumerate(node.inputs):
            if value is not None:
                _check_defined_before(value, node)
                uses[node, slot] = value
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            if graph.values.get(output.name) is not output or output.index != index:
                raise InvalidGraphError(f"{graph!r}: {output!r} is not registered")
    if count != graph.node_count:
        raise InvalidGraphError(f"{graph!r}: holds {count} nodes")
    return uses


def _check_defined_before(value: Value, node: Node) -> None:
    if value.graph.values.get(value.name) is not value:
        raise InvalidGraphError(f"{node!r} reads {value!r}, which no graph defines any more")
    here = enclosing_node(node, value.graph)
    if here is None:
        raise InvalidGraphError(f"{node!r} reads {value!r} from a graph that is not round it")
    if value.producer is not None and value.producer.position >= here.position:
        raise InvalidGraphError(f"{node!r} reads {value!r} before it is made")


def _check_uses_exist(value: Value) -> None:
    for node, slot in value.iter_uses():
        if slot >= len(node.inputs) or node.inputs[slot] is not value:
            raise InvalidGraphError(f"{value!r} claims a use by {node!r} in slot {slot}")
