"""Model-local functions and the nodes that call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir.model import Function, Model
    from dplcli.ir.node import Node


def called_function(node: Node) -> Function | None:
    """Return the function of its model that *node* calls; None if it is an operator."""
    return node.graph.model.functions.get((node.domain, node.op_type, node.overload))


def calls_in(model: Model) -> dict[Function, list[Node]]:
    """List the calls of each function of *model*, wherever they are."""
    calls: dict[Function, list[Node]] = {function: [] for function in model.functions.values()}
    for graph in model.graphs():
        for node in graph:
            function = called_function(node)
            if function is not None:
                calls[function].append(node)
    return calls


def callees(function: Function) -> list[Function]:
    """List the functions that *function* calls, each once."""
    nodes = (node for graph in function.body.and_inner() for node in graph)
    called = dict.fromkeys(map(called_function, nodes))
    return [function for function in called if function is not None]


def callers_first(calls: Mapping[Function, Sequence[Node]]) -> list[Function]:
    """Sort functions so that each follows all that call it; what lies on a cycle is left out.

    Args:
        calls: The functions, with their calls (:func:`calls_in`).
    """
    called = {function: callees(function) for function in calls}
    waiting = dict.fromkeys(calls, 0)
    for functions in called.values():
        for function in functions:
            waiting[function] += 1
    ready = [function for function, count in waiting.items() if not count]
    for caller in ready:
        for function in called[caller]:
            waiting[function] -= 1
            if not waiting[function]:
                ready.append(function)
    return ready
