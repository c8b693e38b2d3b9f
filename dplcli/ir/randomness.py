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


def draws_random(node: Node, harmless: set[Function] | None = None) -> bool:
    """Tell whether *node* may draw random numbers, perhaps in a body or a function it calls.

    Args:
        node: The node.
        harmless: Functions that draw none; those found to draw none are added.
    """
    pending = [node]
    seen: set[Function] = set()
    known = seen if harmless is None else harmless
    while pending:
        current = pending.pop()
        if not current.domain and (current.op_type in RANDOM_OPS or _drops_out(current)):
            return True
        graphs = [*current.subgraphs.values()]  # what nests deeper comes when its node does
        function = called_function(current)
        if function is not None and function not in seen and function not in known:
            seen.add(function)
            graphs.append(function.body)
        pending += [inner for graph in graphs for inner in graph]
    if harmless is not None:
        harmless |= seen
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
