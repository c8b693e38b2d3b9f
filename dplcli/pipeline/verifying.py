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


def judge_again(results: Path, *, settings: VerifySettings | None = None) -> VerificationResult:
    """Judge saved results with other tolerances; no model is run.

    Args:
        results: What a verification saved (`Settings.save_results`).
        settings: Its tolerances are used, nothing else of it.

    Raises:
        UsageError: The file holds no saved results, or a tolerance is for an unknown output.
    """
    from dplcli.verify.evidence import load_evidence  # noqa: PLC0415  # onnxruntime

    return load_evidence(results).judge(settings or VerifySettings())


def verify_against(
    results: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare a model with what the original gave in another run, of which results were saved.

    Raises:
        DplError: A file is no model or holds no results, or no verdict can be reached.
    """
    prepare(settings)
    from dplcli.verify.against import verify_against  # noqa: PLC0415  # onnxruntime
    from dplcli.verify.evidence import load_evidence  # noqa: PLC0415  # onnxruntime

    check_external_data(load_model(candidate))
    return verify_against(
        load_evidence(results),
        candidate,
        settings or VerifySettings(),
        progress=progress or (lambda _phrase: None),
    )
