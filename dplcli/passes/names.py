"""New names: each is used once, and says what it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.passes.brought import BroughtFunctions

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from dplcli.ir import Graph, Model


class NewNames:
    """Names for the nodes and values that passes make in one model.

    Args:
        model: The model.
        announce: Told of the body of each function that a replacement brings along.

    Attributes:
        functions: The functions that replacements bring along, by their names here.
    """

    def __init__(self, model: Model, announce: Callable[[Graph], None] | None = None) -> None:
        """Look at *model*; node names are listed when the first new one is wanted."""
        self.model = model
        self.functions = BroughtFunctions(model, announce)
        self._nodes: set[str] | None = None
        self._numbers: dict[str, int] = {}
        self._origins: dict[str, str] = {}

    def node(self, wanted: str, free: Container[str] = ()) -> str:
        """Return *wanted*, or with a number behind it if a node has it that is not going.

        Args:
            wanted: The name that the node should have.
            free: Names of nodes that are about to go.
        """
        if self._nodes is None:
            self._nodes = {node.name for graph in self.model.graphs() for node in graph}
        taken = self._nodes
        name = wanted if wanted in free else self._numbered(wanted, taken.__contains__)
        taken.add(name)
        return name

    def node_from(self, source: str, op_type: str) -> str:
        """Return a name for a node of *op_type* that is made from the one called *source*.

        What is made from something made is named after the same source.
        """
        origin = self._origins.get(f"node {source}", source)
        name = self.node(f"{origin}/{op_type}")
        self._origins[f"node {name}"] = origin
        return name

    def value(self, graph: Graph, source: str, what: str) -> str:
        """Return a name for a value of *graph*: that of *source*, and *what* it is.

        What is made from something made is named after the same source.
        """
        origin = self._origins.get(source, source)
        scopes = _scopes_round(graph)
        name = self._numbered(
            f"{origin}_{what}",
            lambda found: any(found in scope.values or found in scope.erased for scope in scopes),
        )
        self._origins[name] = origin
        return name

    def _numbered(self, wanted: str, is_taken: Callable[[str], bool]) -> str:
        name = wanted
        number = self._numbers.get(wanted, 0)
        while number or is_taken(name):
            number += 1
            name = f"{wanted}_{number}"
            if not is_taken(name):
                break
        if number:
            self._numbers[wanted] = number
        return name


def _scopes_round(graph: Graph) -> list[Graph]:
    """List the graphs in which names may clash with those of *graph*: outside it and inside."""
    graphs = [*graph.and_inner()] if graph.inner else [graph]
    owner = graph.owner
    while owner is not None:
        graphs.append(owner.graph)
        owner = owner.graph.owner
    return graphs
