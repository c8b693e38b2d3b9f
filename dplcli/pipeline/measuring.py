"""Measure how near a model comes to one that it approximates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.onnx_io import check_external_data, load_model
from dplcli.outcomes import AccuracyOutcome
from dplcli.pipeline.verifying import check_of, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.settings import AccuracySettings


def accuracy(original: Path, candidate: Path, chosen: AccuracySettings) -> AccuracyOutcome:
    """Run two models on the same inputs, and measure how near they are.

    Raises:
        DplError: A file is no model, or they cannot be run on the same inputs.
    """
    from dplcli.verify.accuracy import measure_accuracy  # noqa: PLC0415  # onnxruntime

    settings = check_of(chosen)
    prepare(settings)
    for path in (original, candidate):
        check_external_data(load_model(path))
    measured = measure_accuracy(
        original,
        candidate,
        settings,
        layers=chosen.layers,
        say=chosen.progress or (lambda _phrase: None),
    )
    asked = {
        "sqnr": chosen.min_sqnr,
        "cosine": chosen.min_cosine,
        "agreement": chosen.min_agreement,
    }
    return AccuracyOutcome(
        labels=(original.name, candidate.name),
        measured=measured,
        bounds={name: least for name, least in asked.items() if least is not None},
    )
