"""Nodes that compute something else each time: two of them are not one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.functions import called_function

if TYPE_CHECKING:
    from dplcli.ir.model import Function
    from dplcli.ir.node import Node

RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
)
"""Operators that draw random numbers, whatever they are given."""

_TRAINING_SLOT = 2


def draws_random(node: Node) -> bool:
    """Tell whether *node* may draw random numbers, perhaps in a body or a function it calls."""
    pending = [node]
    seen: set[Function] = set()
    while pending:
        current = pending.pop()
        if not current.domain and (current.op_type in RANDOM_OPS or _drops_out(current)):
            return True
        graphs = [graph for body in current.subgraphs.values() for graph in body.and_inner()]
        function = called_function(current)
        if function is not None and function not in seen:
            seen.add(function)
            graphs += function.body.and_inner()
        pending += [inner for graph in graphs for inner in graph]
    return False


def _drops_out(node: Node) -> bool:
    """Tell whether *node* is a Dropout that may be training; before opset 12 it never is."""
    if node.op_type != "Dropout" or len(node.inputs) <= _TRAINING_SLOT:
        return False
    training = node.inputs[_TRAINING_SLOT]
    if training is None:
        return False
    data = training.constant if training.is_constant else None
    return data is None or bool(data.numpy().any())
