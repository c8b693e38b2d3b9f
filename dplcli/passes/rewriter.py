"""The only code that edits a graph: every edit keeps order, names and use-lists true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dplcli.errors import InvalidGraphError
from dplcli.ir import Node
from dplcli.ir.node import NO_ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.ir import Attribute, Graph, Value


class RewriteListener(Protocol):
    """Somebody who wants to know of every edit."""

    def node_inserted(self, node: Node) -> None:
        """*node* has just been put in."""

    def node_erased(self, node: Node) -> None:
        """*node* has just been taken out; its fields are as they were."""


class GraphRewriter:
    """Edits one graph.

    Args:
        graph: The graph to edit.
        listener: Told of every edit.
    """

    def __init__(self, graph: Graph, listener: RewriteListener | None = None) -> None:
        """Edit *graph*."""
        self.graph = graph
        self.listener = listener

    def insert(  # noqa: PLR0913  # these are the parts of a node
        self,
        anchor: Node,
        op_type: str,
        inputs: Sequence[Value | None],
        *,
        domain: str = "",
        name: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Node:
        """Put a node without outputs just before *anchor*, which must follow all *inputs*."""
        node = Node(self.graph, op_type, domain, name)
        node.inputs = tuple(inputs)
        node.attributes = NO_ATTRIBUTES if attributes is None else attributes
        if metadata:
            node.metadata = metadata
        for slot, value in enumerate(inputs):
            if value is not None:
                value.add_use(node, slot)
        self.graph.insert_before(anchor, node)
        self.graph.modified = True
        if self.listener is not None:
            self.listener.node_inserted(node)
        return node

    def move_behind(self, anchor: Node, nodes: Sequence[Node]) -> None:
        """Put *nodes*, which are in order, just behind *anchor*, which they follow anyway.

        The caller sees to it that nothing between needs them.
        """
        for node in nodes:
            self.graph.unlink(node)
            self.graph.insert_behind(anchor, node)
            anchor = node
        self.graph.modified = self.graph.modified or bool(nodes)

    def take_over_outputs(self, node: Node, values: Sequence[Value]) -> None:
        """Let *node* make *values*, which keep their names and users."""
        for index, value in enumerate(values):
            value.producer = node
            value.index = index
        node.outputs = tuple(values)

    def erase(self, nodes: Sequence[Node]) -> None:
        """Take *nodes* out, with the values that they (still) make.

        Raises:
            InvalidGraphError: Such a value is used by other nodes or returned; nothing is changed.
        """
        members = set(nodes)
        names = [value.name for value in _made_and_unused(nodes, members)]
        graph = self.graph
        for node in nodes:
            for slot, read in enumerate(node.inputs):
                if read is not None and read.producer not in members:
                    read.remove_use(node, slot)
            graph.unlink(node)
            for body in node.subgraphs.values():
                graph.inner.remove(body)
        for name in names:
            del graph.values[name]
        graph.erased.update(names)
        graph.modified = True
        if self.listener is not None:
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
        self.graph.modified = True


def _made_and_unused(nodes: Iterable[Node], members: set[Node]) -> list[Value]:
    """Return what *nodes* make; raise InvalidGraphError where others read or return it."""
    made = [
        output
        for node in nodes
        for output in node.outputs
        if output is not None and output.producer is node
    ]
    for value in made:
        for user, _ in value.iter_uses():
            if user not in members:
                raise InvalidGraphError(f"{value!r} is still used and cannot be erased")
        if value.returned_by:
            raise InvalidGraphError(f"{value!r} is still returned and cannot be erased")
    return made
