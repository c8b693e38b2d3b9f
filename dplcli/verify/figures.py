"""Measures of how far two arrays are apart, each by its textbook definition."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Steps = npt.NDArray[np.uint64]

_QUANTILE = 0.99
_DECIBELS = 20
# Rounding in the last bits must not make the tolerance that is needed fail by itself.
_ROUNDED_UP = 1 + 2.0**-40


@dataclass(frozen=True)
class Distances:
    """Distances between finite numbers; None where they have no meaning."""

    max_abs: float | None = None
    max_rel: float | None = None
    rmse: float | None = None
    cosine: float | None = None
    mean_abs: float | None = None
    mean_rel: float | None = None
    quantile_abs: float | None = None
    snr_db: float | None = None


def distances(ours: Reals, theirs: Reals) -> Distances:
    """Return how far *theirs* is from *ours*: finite numbers of one shape.

    Everything is worked out relative to the largest number, so that no square overflows.
    """
    if not ours.size:
        return Distances()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = np.abs(theirs - ours)
        nonzero = ours != 0
        relative = difference[nonzero] / np.abs(ours[nonzero])
        scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()))
        means = float(difference.mean()), float(relative.mean()) if relative.size else None
    rmse = _root_mean_square(difference)
    return Distances(
        max_abs=_finite(float(difference.max())),
        max_rel=_finite(float(relative.max())) if relative.size else None,
        rmse=_finite(rmse),
        cosine=_cosine(ours / scale, theirs / scale) if scale else None,
        mean_abs=_finite(means[0]),
        mean_rel=None if means[1] is None else _finite(means[1]),
        quantile_abs=_finite(float(np.quantile(difference, _QUANTILE, method="higher"))),
        snr_db=_decibels(_root_mean_square(np.abs(ours)), rmse),
    )


def ulp_histogram(steps: Steps) -> tuple[int, ...]:
    """Count elements 0, 1, 2 to 3, 4 to 7, … steps apart; the last entry is never 0."""
    if not steps.size:
        return ()
    _, exponents = np.frexp(steps.astype(np.float64))
    return tuple(int(count) for count in np.bincount(exponents.reshape(-1)))


def needed_tolerance(
    magnitude: Reals, difference: Reals, rtol: float, atol: float
) -> tuple[float, float]:
    """Return the smallest multiple of a tolerance that covers *difference*.

    Where no multiple does (a tolerance of 0), the absolute part alone covers it.

    Args:
        magnitude: Absolute values that the relative part refers to.
        difference: Absolute differences.
        rtol: Relative tolerance in force.
        atol: Absolute tolerance in force.
    """
    apart = difference > 0
    if not apart.any():
        return 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        factor = float((difference[apart] / (atol + rtol * magnitude[apart])).max())
    if not math.isfinite(factor * max(rtol, atol)):
        return 0.0, float(difference.max())
    return factor * rtol * _ROUNDED_UP, factor * atol * _ROUNDED_UP


def _root_mean_square(values: Reals) -> float:
    largest = float(values.max())
    if not largest or not math.isfinite(largest):
        return largest
    return float(np.sqrt(np.mean((values / largest) ** 2))) * largest


def _decibels(signal: float, noise: float) -> float | None:
    if not signal or not noise or not math.isfinite(signal) or not math.isfinite(noise):
        return None
    return _DECIBELS * (math.log10(signal) - math.log10(noise))


def _cosine(ours: Reals, theirs: Reals) -> float | None:
    norms = math.sqrt(float((ours**2).sum()) * float((theirs**2).sum()))
    if not norms:
        return None
    return max(-1.0, min(1.0, float((ours * theirs).sum()) / norms))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
