"""Where graphs are: their names for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.ir.graph import Graph


def scope_of(graph: Graph) -> str:
    """Name a graph: ``main``, ``main/loop_1.body``, or ``function local::f``."""
    parts: list[str] = []
    while graph.owner is not None:
        owner = graph.owner
        attribute = next(name for name, body in owner.subgraphs.items() if body is graph)
        parts.append(f"{owner.label}.{attribute}")
        graph = owner.graph
    return "/".join([_outermost_name(graph), *reversed(parts)])


def is_in_function(graph: Graph) -> bool:
    """Tell whether *graph* is the body of a function, or lies in it."""
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph is not graph.model.graph


def _outermost_name(graph: Graph) -> str:
    model = graph.model
    if graph is model.graph:
        return "main"
    key = next(key for key, function in model.functions.items() if function.body is graph)
    return f"function {key[0]}::{key[1]}"
