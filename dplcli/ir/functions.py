"""Model-local functions and the nodes that call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from dplcli.ir.model import Function, Model
    from dplcli.ir.node import Node

Key = TypeVar("Key", bound="Hashable")

MANY = 10**15
"""More nodes than any model has; what is more, or without an end, counts as this."""


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


def expanded_sizes(
    own: Mapping[Key, int], calls: Mapping[Key, Mapping[Key, int]]
) -> dict[Key, int]:
    """Count the nodes that functions stand for: each call counts as what it calls.

    Nothing is expanded: 40 functions that call each other twice take 40 steps.

    Args:
        own: By function, how many nodes it has.
        calls: By function, how often it calls which other.

    Returns:
        The counts, at most :data:`MANY`, which a function that reaches itself has.
    """
    callers: dict[Key, list[Key]] = {key: [] for key in own}
    for key, called in calls.items():
        for inner in called:
            callers[inner].append(key)
    waiting = {key: len(calls.get(key, ())) for key in own}
    ready = [key for key, count in waiting.items() if not count]
    sizes = dict.fromkeys(own, MANY)
    for key in ready:
        inside = sum(count * sizes[inner] for inner, count in calls.get(key, {}).items())
        sizes[key] = min(own[key] + inside, MANY)
        for caller in callers[key]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    return sizes


def nodes_stood_for(model: Model) -> dict[Function, int]:
    """Count the nodes that each function of *model* stands for (:func:`expanded_sizes`)."""
    own: dict[Function, int] = {}
    calls: dict[Function, dict[Function, int]] = {}
    for function in model.functions.values():
        own[function], calls[function] = 0, {}
        for graph in function.body.and_inner():
            own[function] += graph.node_count
            for node in graph:
                called = called_function(node)
                if called is not None:
                    calls[function][called] = calls[function].get(called, 0) + 1
    return expanded_sizes(own, calls)
