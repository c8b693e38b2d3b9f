"""Structural difference of two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dplcli.diff import DEFAULT_IGNORED, FACETS, Differ, Facet
from dplcli.errors import UsageError, did_you_mean
from dplcli.onnx_io import load_model, paused_gc
from dplcli.onnx_io.statements import statements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dplcli.diff import ModelDiff
    from dplcli.ir import Model

NOTHING = "nothing"
"""What to ignore in order to ignore nothing."""


@dataclass(frozen=True)
class DiffOutcome:
    """Two models and in what they differ.

    Attributes:
        first: One model.
        second: The other.
        labels: What to call them.
        difference: In what they differ.
    """

    first: Model
    second: Model
    labels: tuple[str, str]
    difference: ModelDiff


def facets(names: Iterable[str] | None) -> frozenset[Facet]:
    """Read names of facets; None is what is ignored by default, ``nothing`` is none of them.

    Raises:
        UsageError: There is no such facet, or others stand beside ``nothing``.
    """
    if names is None:
        return DEFAULT_IGNORED
    listed = list(dict.fromkeys(names))
    if listed == [NOTHING]:
        return frozenset()
    for name in listed:
        if name == NOTHING:
            raise UsageError(f"--ignore: {NOTHING!r} stands alone")
        if name not in FACETS:
            raise UsageError(
                f"--ignore: {name!r} is nothing that can be ignored",
                hint=did_you_mean(name, [*FACETS, NOTHING])
                or f"one of {', '.join([*FACETS, NOTHING])}",
            )
    return frozenset(cast("list[Facet]", listed))


def diff(
    first: Path,
    second: Path,
    *,
    ignore: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> DiffOutcome:
    """Compare the structure of two models by dataflow.

    Args:
        first: One file.
        second: The other.
        ignore: The facets that do not count; None for the default.
        progress: Told what is going on.

    Raises:
        DplError: A file is no model, or a weight cannot be read; or there is no such facet.
    """
    ignored = facets(ignore)
    models = []
    for path in (first, second):
        if progress is not None:
            progress(f"reading {path.name}")
        models.append(load_model(path))
    if progress is not None:
        progress(f"comparing {first.name} and {second.name}")
    statements = (statements_of(models[0]), statements_of(models[1]))
    with paused_gc():
        difference = Differ(models[0], models[1], statements).result(ignored)
    return DiffOutcome(models[0], models[1], (first.name, second.name), difference)
