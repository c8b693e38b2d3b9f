"""Model-local functions and the nodes that call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.ir.model import Function
    from dplcli.ir.node import Node


def called_function(node: Node) -> Function | None:
    """Return the function of its model that *node* calls; None if it is an operator."""
    return node.graph.model.functions.get((node.domain, node.op_type, node.overload))
