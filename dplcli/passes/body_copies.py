"""Copy what a function's body holds to where the function is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir import Attribute, Graph, Node, Value
from dplcli.ir.value import record_uses

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dplcli.ir import Function
    from dplcli.passes.inlined_names import InlinedNames

    Values = dict[Value, Value | None]
    """What stands for each value of the body where it is called; None for an omitted input."""


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

        A reference to what the call does not give, and that has no default, is no attribute.
        """
        stated = node.attributes
        if not without and not any(attribute.ref for attribute in stated.values()):
            return stated
        found = {}
        for name, attribute in stated.items():
            known = self.given.get(attribute.ref) if attribute.ref else attribute
            if known is not None and name not in without:
                found[name] = known
        return found


class BodyCopier:
    """Copies the bodies of If, Loop and Scan nodes.

    Args:
        attributes: The attributes of the call.
        values: What stands for the values of the function's body.
        names: Names in use.
    """

    def __init__(self, attributes: CallAttributes, values: Values, names: InlinedNames) -> None:
        """Copy into one place."""
        self.attributes = attributes
        self.values = values
        self.names = names

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
        graph.modified = True
        for value in source.inputs:
            graph.inputs.append(self._define(value, graph))
        for value in source.initializers:
            copy = self.values.get(value) or self._define(value, graph)
            copy.set_initializer(graph.model.codec.tensor(value.initializer_source))
        for node in source:
            self._copy_node(node, graph)
        for value in source.outputs:
            returned = self.values[value]
            if returned is not None:
                graph.add_output(returned)
        return graph

    def _copy_node(self, source: Node, graph: Graph) -> None:
        node = Node(graph, source.op_type, source.domain, self.names.node(source.name))
        node.overload = source.overload
        node.doc, node.metadata = source.remarks
        node.attributes = self.attributes.applied_to(source)
        node.inputs = tuple([None if v is None else self.values[v] for v in source.inputs])
        record_uses(node)
        graph.append(node)
        if source.subgraphs:
            self.copy_bodies(source, node)
        outputs: list[Value | None] = []
        for index, value in enumerate(source.outputs):
            outputs.append(None if value is None else self._define(value, graph, node, index))
        node.outputs = tuple(outputs)

    def _define(
        self, source: Value, graph: Graph, node: Node | None = None, index: int = 0
    ) -> Value:
        name = self.names.value(graph, source.name)
        copy = graph.values[name] = Value(name, graph, node, index)
        copy.is_graph_input = source.is_graph_input
        copy.type_source = source.type_source
        self.values[source] = copy
        return copy


def _with_graphs(attribute: Attribute, copies: Mapping[Graph, Graph]) -> Attribute:
    """Return a graph attribute with the copies of its graphs, any other one as it is."""
    value = attribute.value
    if isinstance(value, Graph):
        return attribute._replace(value=copies[value])
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return attribute._replace(value=tuple(copies[item] for item in value))
    return attribute
