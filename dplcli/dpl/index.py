"""Find candidate roots by operator, so that a rule that cannot match costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.program import Program
    from dplcli.ir import Graph, Node


class OpIndex:
    """The nodes of one graph by operator, in topological order.

    Args:
        graph: The graph, which must not be edited while the index is in use.
    """

    def __init__(self, graph: Graph) -> None:
        """Index *graph*."""
        self.graph = graph
        self._nodes: dict[tuple[str, str], list[Node]] = {}
        for node in graph:
            self._nodes.setdefault((node.domain, node.op_type), []).append(node)

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """How many nodes there are of each operator (domain, type)."""
        return {op: len(nodes) for op, nodes in self._nodes.items()}

    def candidates(self, program: Program) -> Sequence[Node]:
        """Return the nodes at which *program* might match, in topological order.

        Empty if some operator that every match needs is missing from the graph.
        """
        present = self._nodes.keys()
        if any(present.isdisjoint(choice) for choice in program.root.required):
            return ()
        return self.of(program.root.heads)

    def of(self, heads: AbstractSet[tuple[str, str]] | None) -> Sequence[Node]:
        """Return the nodes of the operators *heads*, all if it is None, in topological order."""
        if heads is None:
            return list(self.graph)
        lists = [self._nodes[head] for head in sorted(heads) if head in self._nodes]
        if len(lists) == 1:
            return lists[0]
        return sorted((node for nodes in lists for node in nodes), key=lambda node: node.position)
