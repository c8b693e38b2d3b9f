"""Comparing two models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.onnx_io import check_external_data, load_model
from dplcli.verify import Settings as VerifySettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dplcli.verify import VerificationResult

    Progress = Callable[[str], None]


def verify(
    original: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare two models in onnxruntime.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    prepare(settings)
    for path in (original, candidate):
        check_external_data(load_model(path))
    return compare(original, candidate, settings, progress)


def prepare(settings: VerifySettings | None) -> None:
    """Let the process that will run the models start while we do something else."""
    from dplcli.verify.workers import warm_up  # noqa: PLC0415  # only where models run

    if settings is None or settings.execution.isolated:
        warm_up()


def compare(
    original: Path, candidate: Path, settings: VerifySettings | None, progress: Progress | None
) -> VerificationResult:
    """Compare two files that are known to be whole."""
    from dplcli.verify.equivalence import verify_equivalence  # noqa: PLC0415  # onnxruntime

    return verify_equivalence(original, candidate, settings or VerifySettings(), progress=progress)
