"""The IR version that a model must have for what passes put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.value import FIRST_IR_WITH_PLAIN_INITIALIZERS

if TYPE_CHECKING:
    from dplcli.ir import Model

FIRST_IR_WITH_FUNCTIONS = 8
"""First IR version with model-local functions."""


def raise_ir_version(model: Model) -> None:
    """Raise the IR version to the first one with functions, if it is lower.

    Below version 4 every initializer had to be listed among the graph inputs; above, being listed
    makes it overridable, which stops onnxruntime from folding it, so they are taken off the list.
    """
    if model.ir_version >= FIRST_IR_WITH_FUNCTIONS:
        return
    if model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        for graph in model.graphs():
            for value in graph.inputs:
                value.is_graph_input = not value.is_initializer
            graph.inputs = [value for value in graph.inputs if value.is_graph_input]
            graph.modified = True
    model.ir_version = FIRST_IR_WITH_FUNCTIONS
