"""Looking at a model, also at a picture of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean
from dplcli.escaping import inert, one_line
from dplcli.onnx_io import load_model
from dplcli.outcomes import ViewOutcome

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


def view(model_path: Path) -> ViewOutcome:
    """Load a model, with the types of its values, to draw it.

    Raises:
        DplError: The file is no model.
    """
    model = inspect(model_path)
    model.inferred_types()
    return ViewOutcome(label=model_path.name, model=model, notes=tuple(model.notes))


def find_nodes(model: Model, name: str) -> list[Node]:
    """Return the nodes whose name, or an output's, is *name*; graphs in order.

    If no name is *name*, a name counts that dpl shows like it: invisible characters are escaped.

    Raises:
        UsageError: There is none.
    """
    if not name:
        raise UsageError("'': the name is empty")
    bearers: dict[str, list[Node]] = {}
    for graph in model.graphs():
        for node in graph:
            for known in {node.name, *(out.name for out in node.outputs if out is not None)}:
                bearers.setdefault(known, []).append(node)
    if name in bearers:
        return bearers[name]
    shown = [known for known in bearers if name in _shown(known)]
    if len(shown) == 1:
        return bearers[shown[0]]
    if shown:
        raise UsageError(
            f"{name!r}: {len(shown)} names are shown like this: {', '.join(map(repr, shown))}",
            hint="name another value that the node makes",
        )
    raise UsageError(
        f"{name!r}: no node has this name or makes a value of this name",
        hint=did_you_mean(name, sorted(bearers)),
    )


def _shown(name: str) -> set[str]:
    """Return the forms in which tables, lines and messages show a name."""
    line = one_line(name, None)
    return {line, inert(line), repr(name)[1:-1]}
