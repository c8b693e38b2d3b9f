"""Why a call, or all calls, cannot be replaced by the bodies of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import PassError
from dplcli.ir.functions import called_function

if TYPE_CHECKING:
    from collections.abc import Collection

    from dplcli.ir import Function, Graph, Model, Node

_MOST_NODES = 20_000_000
"""Most nodes that a model may have when its functions are inlined."""


def check_growth(model: Model, chosen: Collection[Function]) -> None:
    """Refuse functions that lead back to themselves, and those that unfold without measure.

    Raises:
        PassError: There are such functions.
    """
    sizes: dict[Function, int] = {}
    for function in _callees_first(model):
        sizes[function] = _size(function.body, sizes, chosen)
    total = sum(sizes[f] for f in model.functions.values() if f not in chosen)
    total += _size(model.graph, sizes, chosen)
    if total > _MOST_NODES:
        raise PassError(f"the model would have {total:,} nodes, more than {_MOST_NODES:,}")


def _size(graph: Graph, sizes: dict[Function, int], chosen: Collection[Function]) -> int:
    """Count the nodes that *graph* has when the *chosen* functions are inlined in it."""
    total = 0
    for inner in graph.and_inner():
        for node in inner:
            callee = called_function(node)
            total += sizes[callee] if callee is not None and callee in chosen else 1
    return total


def _callees_first(model: Model) -> list[Function]:
    """Sort the functions so that each comes after those that it calls.

    Raises:
        PassError: A function calls itself, perhaps through others.
    """
    callees = {function: callees_of(function.body) for function in model.functions.values()}
    finished: dict[Function, None] = {}
    for function in callees:
        path: set[Function] = set()
        pending = [(function, False)]
        while pending:
            current, is_left = pending.pop()
            if is_left:
                path.remove(current)
                finished[current] = None
            elif current in path:
                name = f"{current.domain}::{current.name}"
                raise PassError(f"the function {name} calls itself, so it has no end when inlined")
            elif current not in finished:
                path.add(current)
                pending.append((current, True))
                pending += [(callee, False) for callee in callees[current]]
    return list(finished)


def callees_of(body: Graph) -> list[Function]:
    """List the functions called in *body*, each once."""
    nodes = (node for graph in body.and_inner() for node in graph)
    found = (called_function(node) for node in nodes)
    return list(dict.fromkeys(callee for callee in found if callee is not None))


def object_to_call(call: Node, function: Function) -> str:
    """Say why *call* of *function* has to stay, or "" if it need not."""
    return (
        _object_to_arity(call, function)
        or _object_to_omitted(call, function)
        or _object_to_opsets(call, function)
    )


def _object_to_arity(call: Node, function: Function) -> str:
    if call.subgraphs:
        return "it passes a graph as an attribute"
    for what, given, declared in (
        ("inputs", call.inputs, function.body.inputs),
        ("outputs", call.outputs, function.body.outputs),
    ):
        if len(given) > len(declared):
            return f"it has {len(given)} {what}, and the function {len(declared)}"
    return ""


def _object_to_omitted(call: Node, function: Function) -> str:
    """Refuse to return an input that the call leaves out."""
    body = function.body
    given = [*call.inputs, *[None] * len(body.inputs)]
    omitted = {formal for formal, value in zip(body.inputs, given, strict=False) if value is None}
    if not omitted:
        return ""
    wanted = zip(body.outputs, call.outputs, strict=False)
    returned = [value for value, taken in wanted if taken is not None]
    bodies = (graph for graph in body.and_inner() if graph is not body)
    returned += [value for inner in bodies for value in inner.outputs]
    name = next((value.name for value in returned if value in omitted), None)
    return "" if name is None else f"the function returns its input {name!r}, which it leaves out"


def _object_to_opsets(call: Node, function: Function) -> str:
    """Refuse an operator that means something else where the call is."""
    here = call.graph.opset_imports
    there = function.body.opset_imports
    if all(here.get(domain, version) == version for domain, version in there.items()):
        return ""
    for graph in function.body.and_inner():
        for node in graph:
            old, new = there.get(node.domain, 0), here.get(node.domain, 0)
            if new in {0, old} or called_function(node) is not None:
                continue
            if not _means_the_same(node, old, new):
                return (
                    f"{node.qualified_op} is of opset {old} in the function, "
                    f"and of opset {new} where it is called"
                )
    return ""


def _means_the_same(node: Node, old: int, new: int) -> bool:
    schemas = node.graph.model.codec.schemas
    first = schemas.find(node.op_type, node.domain, old)
    second = schemas.find(node.op_type, node.domain, new)
    return first is not None and second is not None and first.since == second.since
