"""Find candidate roots by operator, so that a rule that cannot match costs nothing."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.program import Program
    from dplcli.dpl.steps import Requirement
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
        self._merged: dict[frozenset[tuple[str, str]], list[Node]] = {}
        for node in graph:
            self._nodes.setdefault((node.domain, node.op_type), []).append(node)

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """How many nodes there are of each operator (domain, type)."""
        return {op: len(nodes) for op, nodes in self._nodes.items()}

    def candidates(self, program: Program, *, by_edges: bool = True) -> Sequence[Node]:
        """Return the nodes at which *program* might match, in topological order.

        Empty if an operator that every match needs is missing from the graph, or an edge between
        two operators.

        Args:
            program: The compiled pattern.
            by_edges: Whether to look at edges; to list those of the graph pays for many rules.
        """
        if any(self.lacks(needed) for needed in program.root.required if type(needed) is frozenset):
            return ()
        if by_edges and any(self.lacks(needed) for needed in program.root.required):
            return ()
        return self.of(program.root.heads)

    def lacks(self, needed: Requirement) -> bool:
        """Tell whether the graph has none of the operators, or no such edge."""
        if isinstance(needed, frozenset):
            return self._nodes.keys().isdisjoint(needed)
        makers, readers = needed
        return not any((maker, reader) in self._edges for maker in makers for reader in readers)

    @cached_property
    def _edges(self) -> set[tuple[tuple[str, str], tuple[str, str]]]:
        """Which operators read which, Identity nodes aside."""
        edges = set()
        for op, nodes in self._nodes.items():
            for node in nodes:
                for value in node.inputs:
                    maker = None if value is None else value.producer
                    if maker is not None and maker.op_type == "Identity":
                        maker = behind_identities(value).producer  # type: ignore[arg-type]  # it is made
                    if maker is not None:
                        edges.add(((maker.domain, maker.op_type), op))
        return edges

    def of(self, heads: AbstractSet[tuple[str, str]] | None) -> Sequence[Node]:
        """Return the nodes of the operators *heads*, all if it is None, in topological order."""
        if heads is None:
            return list(self.graph)
        present = self._nodes.keys() & heads
        if len(present) == 1:
            return self._nodes[next(iter(present))]
        key = frozenset(present)
        if key not in self._merged:
            nodes = (node for head in present for node in self._nodes[head])
            self._merged[key] = sorted(nodes, key=lambda node: node.position)
        return self._merged[key]
