"""Looking at a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean
from dplcli.onnx_io import load_model

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.ir import Model, Node


def inspect(model_path: Path) -> Model:
    """Load a model to look at it.

    Raises:
        DplError: The file is no model.
    """
    model = load_model(model_path)
    model.check_statements()
    return model


def find_nodes(model: Model, name: str) -> list[Node]:
    """Return the nodes whose name, or an output's, is *name*; graphs in order.

    Raises:
        UsageError: There is none.
    """
    if not name:
        raise UsageError("'': the name is empty")
    found, names = [], set()
    for graph in model.graphs():
        for node in graph:
            known = {node.name, *(output.name for output in node.outputs if output is not None)}
            names |= known
            if name in known:
                found.append(node)
    if not found:
        raise UsageError(
            f"{name!r}: no node has this name or makes a value of this name",
            hint=did_you_mean(name, sorted(names)),
        )
    return found
