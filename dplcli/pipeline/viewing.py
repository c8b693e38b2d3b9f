"""Loading a model to draw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.outcomes import ViewOutcome
from dplcli.pipeline.inspecting import inspect

if TYPE_CHECKING:
    from pathlib import Path


def view(model_path: Path) -> ViewOutcome:
    """Load a model, with the types of its values, to draw it.

    Raises:
        DplError: The file is no model.
    """
    model = inspect(model_path)
    model.inferred_types()
    return ViewOutcome(label=model_path.name, model=model, notes=tuple(model.notes))
