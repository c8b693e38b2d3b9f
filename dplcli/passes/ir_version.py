"""The IR version that a model must have for what passes put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import PassError
from dplcli.ir.functions import called_function
from dplcli.ir.value import FIRST_IR_WITH_PLAIN_INITIALIZERS

if TYPE_CHECKING:
    from dplcli.ir import Model

FIRST_IR_WITH_FUNCTIONS = 8
"""First IR version with model-local functions."""


def raise_ir_version(model: Model) -> None:
    """Raise the IR version to the first one with functions, if it is lower.

    Below version 4 every initializer had to be listed among the graph inputs; above, being listed
    makes it overridable, which stops onnxruntime from folding it, so they are taken off the list.

    Raises:
        PassError: The file has functions all the same, and one that may not be in a model of such
            an IR version.
    """
    if model.ir_version >= FIRST_IR_WITH_FUNCTIONS:
        return
    _check_functions(model)
    if model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        for graph in model.graphs():
            for value in graph.inputs:
                value.is_graph_input = not value.is_initializer
            graph.inputs = [value for value in graph.inputs if value.is_graph_input]
            graph.modified = True
    model.ir_version = FIRST_IR_WITH_FUNCTIONS


def _check_functions(model: Model) -> None:
    """Refuse functions whose operators are others than in the model, as onnx.checker does."""
    schemas = model.codec.schemas
    for function in model.functions.values():
        for node in function.body:
            theirs = function.body.opset_imports.get(node.domain)
            ours = model.opset_imports.get(node.domain)
            if theirs is None or ours is None or called_function(node) is not None:
                continue
            found = [schemas.find(node.op_type, node.domain, version) for version in (theirs, ours)]
            if len({None if schema is None else schema.since for schema in found}) > 1:
                raise PassError(
                    f"the result needs IR version {FIRST_IR_WITH_FUNCTIONS}, in which functions "
                    f"use the operators of the model; {function.domain}::{function.name} uses "
                    f"{node.qualified_op} of opset {theirs}, and the model imports opset {ours}",
                    hint="raise the model first: "
                    f"dpl rewrite MODEL --patterns prepare --opset {max(ours, theirs)} -o RAISED",
                )
