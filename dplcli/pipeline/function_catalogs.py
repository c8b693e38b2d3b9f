"""Catalogues that are ONNX models: their functions come in pairs, pattern and replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.function_rules import rules_of_functions
from dplcli.errors import CatalogError, ModelError
from dplcli.onnx_io import load_model
from dplcli.onnx_io.build import functions_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dplcli.dpl import RewriteRule


def _from_model(path: Path) -> Sequence[RewriteRule]:
    try:
        model = load_model(path)
    except ModelError as error:
        raise CatalogError(error.message, hint=error.hint) from error
    return rules_of_functions(model.functions.values(), path.name)


def _from_text(path: Path) -> Sequence[RewriteRule]:
    try:
        model = functions_from_text(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path.name}: cannot be read: {error}") from error
    except ModelError as error:
        raise CatalogError(error.message, hint=error.hint) from error
    return rules_of_functions(model.functions.values(), path.name)


READERS: dict[str, Callable[[Path], Sequence[RewriteRule]]] = {
    ".onnx": _from_model,
    ".onnxtxt": _from_text,
}
"""What reads a catalogue with such a suffix."""
