"""Calls of functions with operators that onnx does not know: what they make has its type stated.

onnx infers nothing behind an operator of a domain that it does not know. In a function it says of
the call's readers that they lack a type. In functions statements do not help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir import StatedType, TensorType
from dplcli.ir.model import called_function, is_in_function
from dplcli.passes.rewriter import nodes_run_by

if TYPE_CHECKING:
    from dplcli.ir import Model, Node, Value


def is_foreign(node: Node) -> bool:
    """Tell whether onnx does not know an operator: *node*, or one in a function that it calls."""
    return any(
        each.domain and not each.domain.startswith("ai.onnx") and called_function(each) is None
        for each in nodes_run_by(node)
    )


def lacks_type(value: Value) -> bool:
    """Tell whether the file states no type of what a call makes, and could."""
    return value.stated_type is None and not value.returned_by and not is_in_function(value.graph)


def statement_for(value: Value) -> StatedType | None:
    """Return what is known of a value as the file may state it; None if that is nothing."""
    known = value.known_type()
    if known is None or known.dtype is None:
        return None
    if known.shape is None:
        return StatedType(known)
    # Leave out the symbols that inference has made up.
    inputs = (each.declared_type for each in value.graph.model.graph.inputs)
    symbols = {dim for each in inputs if each is not None for dim in each.shape or ()}
    shape = [dim if isinstance(dim, int) or dim in symbols else None for dim in known.shape]
    return StatedType(TensorType(known.dtype, tuple(shape)))


def state_calls(model: Model) -> None:
    """State the types of what calls make, if edits have put operators into their functions."""
    edited = {
        function.key
        for function in model.functions.values()
        if any(inner.modified for inner in function.body.and_inner())
    }
    if not edited:
        return
    for graph in model.graphs():
        for node in graph:
            if called_function(node) is None or not is_foreign(node):
                continue
            for value in filter(None, node.outputs):
                stated = statement_for(value) if lacks_type(value) else None
                if stated is not None:
                    graph.stated_types[value.name] = stated
                    graph.modified = True
