"""Names for what an inlined call puts back: those of the record, or new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.passes.outline import unique

if TYPE_CHECKING:
    from dplcli.ir import Graph, Value


class InlinedNames:
    """Names of one outermost graph and the bodies in it.

    Args:
        outermost: The main graph, or the body of a function.
    """

    def __init__(self, outermost: Graph) -> None:
        """Look at the names that there are."""
        self._nodes = {node.name for graph in outermost.and_inner() for node in graph}

    def node(self, wanted: str, *, repeated: bool = False) -> str:
        """Return *wanted*, or with a number behind it if another node has that name.

        Args:
            wanted: The name that the node should have; "" for none.
            repeated: Whether the original had several nodes of that name.
        """
        if not wanted or repeated:
            return wanted
        name = unique(wanted, self._nodes.__contains__)
        self._nodes.add(name)
        return name

    def value(self, graph: Graph, wanted: str) -> str:
        """Return *wanted*, or with a number behind it if the name is not free in *graph*."""
        return unique(wanted, lambda name: _is_visible(graph, name))


def find_value(graph: Graph, name: str) -> Value | None:
    """Return what *name* means in *graph*: a value of its own, or of a graph round it."""
    current: Graph | None = graph
    while current is not None:
        found = current.values.get(name)
        if found is not None:
            return found
        current = None if current.owner is None else current.owner.graph
    return None


def _is_visible(graph: Graph, name: str) -> bool:
    """Tell whether *name* means something in *graph*, round it, or in a body inside."""
    if find_value(graph, name) is not None:
        return True
    return bool(graph.inner) and any(name in inner.values for inner in graph.and_inner())
