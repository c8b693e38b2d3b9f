"""Why a call cannot be replaced by the body of its function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.functions import called_function

if TYPE_CHECKING:
    from dplcli.ir import Function, Node


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
