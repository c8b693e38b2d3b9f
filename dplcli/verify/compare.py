"""Comparing one output of two models, element by element."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dplcli.verify.result import OutputComparison
from dplcli.verify.sessions import Array, Leaf
from dplcli.verify.tolerance import FLOATS, Tolerance, derive_tolerance

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judge:
    """How to compare: at which levels the two ran, and what tolerance replaces the derived one."""

    level: str
    baseline: str
    seed: int
    coarsest: str
    rtol: float | None = None
    atol: float | None = None

    def compare(
        self, name: str, expected: Sequence[Leaf], actual: Sequence[Leaf]
    ) -> OutputComparison:
        """Compare one output; of a sequence, the worst element speaks for all."""
        pairs = [
            self._compare_leaf(name, ours, theirs)
            for ours, theirs in zip(expected, actual, strict=False)
        ]
        if not pairs:
            pairs = [self._blank(name, Leaf("", "empty", np.empty(0, np.uint8)))]
        found = max(pairs, key=severity)
        if len(expected) == len(actual):
            return found
        reason = f"it holds {len(actual)} elements where the original's holds {len(expected)}"
        return replace(found, ok=False, reason=reason)

    def _blank(self, name: str, leaf: Leaf) -> OutputComparison:
        tolerance = self._tolerance(leaf)
        return OutputComparison(
            name=name,
            dtype=leaf.dtype,
            shape=leaf.data.shape,
            level=self.level,
            baseline=self.baseline,
            seed=self.seed,
            max_abs=None,
            max_rel=None,
            rmse=None,
            cosine=None,
            max_ulp=None,
            mismatches=0,
            nan_mismatches=0,
            worst_index=None,
            rtol=tolerance.rtol,
            atol=tolerance.atol,
            ok=True,
        )

    def _tolerance(self, leaf: Leaf) -> Tolerance:
        return derive_tolerance(
            leaf.dtype, leaf.data, coarsest=self.coarsest, rtol=self.rtol, atol=self.atol
        )

    def _compare_leaf(self, name: str, expected: Leaf, actual: Leaf) -> OutputComparison:
        blank = self._blank(name, expected)
        where = f"element {expected.label}: " if expected.label else ""
        if expected.dtype != actual.dtype:
            reason = f"{where}its type is {actual.dtype}, not {expected.dtype}"
            return replace(blank, ok=False, mismatches=expected.data.size, reason=reason)
        if expected.data.shape != actual.data.shape:
            reason = f"{where}its shape is {actual.data.shape}, not {expected.data.shape}"
            return replace(blank, ok=False, mismatches=expected.data.size, reason=reason)
        if expected.dtype in FLOATS:
            found = _compare_floats(blank, expected, actual)
        else:
            found = _compare_exactly(blank, expected, actual)
        return found if found.ok else replace(found, reason=where + (found.reason or ""))


def severity(comparison: OutputComparison) -> tuple[bool, int, float]:
    """Order comparisons from best to worst: failures last, then by their differences."""
    return (not comparison.ok, comparison.mismatches, comparison.max_abs or 0.0)


def _compare_exactly(blank: OutputComparison, expected: Leaf, actual: Leaf) -> OutputComparison:
    differs = np.asarray(expected.data != actual.data)
    found = replace(blank, mismatches=int(differs.sum()), ok=not differs.any())
    if expected.data.dtype.kind in "iub":
        ours, theirs = expected.data.astype(np.float64), actual.data.astype(np.float64)
        found = _with_distances(found, ours, theirs)
    if found.ok:
        return found
    index = _index(differs.reshape(-1).argmax(), differs.shape)
    return _with_reason(replace(found, worst_index=index), expected.data, actual.data)


def _compare_floats(blank: OutputComparison, expected: Leaf, actual: Leaf) -> OutputComparison:
    ours, theirs = expected.data.astype(np.float64), actual.data.astype(np.float64)
    both = np.isfinite(ours) & np.isfinite(theirs)
    nan_differs = np.isnan(ours) != np.isnan(theirs)
    other_differs = ~both & ~(np.isnan(ours) & np.isnan(theirs)) & (ours != theirs)
    with np.errstate(over="ignore"):
        difference = np.abs(np.where(both, theirs, 0) - np.where(both, ours, 0))
        excess = difference - (blank.atol + blank.rtol * np.abs(np.where(both, ours, 0)))
    outside = (excess > 0) | other_differs
    found = replace(
        blank,
        max_ulp=_max_ulp(expected, actual, both),
        mismatches=int(outside.sum()),
        nan_mismatches=int(nan_differs.sum()),
        ok=not outside.any(),
    )
    found = _with_distances(found, np.where(both, ours, 0), np.where(both, theirs, 0))
    if not both.any():
        found = replace(found, max_abs=None, max_rel=None, rmse=None, cosine=None)
    if not difference.any() and found.ok:
        return found
    badness = np.where(other_differs, np.inf, np.where(difference > 0, excess, -np.inf))
    index = _index(badness.reshape(-1).argmax(), badness.shape)
    found = replace(found, worst_index=index)
    return found if found.ok else _with_reason(found, ours, theirs)


def _with_distances(found: OutputComparison, ours: Reals, theirs: Reals) -> OutputComparison:
    """Fill in the distances between arrays of finite numbers."""
    if not ours.size:
        return found
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.abs(theirs - ours)
        nonzero = ours != 0
        relative = difference[nonzero] / np.abs(ours[nonzero])
        scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()))
        rmse = float(difference.max()) and float(
            np.sqrt(np.mean((difference / difference.max()) ** 2)) * difference.max()
        )
    return replace(
        found,
        max_abs=_finite(float(difference.max())),
        max_rel=_finite(float(relative.max())) if relative.size else None,
        rmse=_finite(rmse),
        cosine=_cosine(ours / scale, theirs / scale) if scale else None,
    )


def _cosine(ours: Reals, theirs: Reals) -> float | None:
    norms = math.sqrt(float((ours**2).sum()) * float((theirs**2).sum()))
    if not norms:
        return None
    return max(-1.0, min(1.0, float((ours * theirs).sum()) / norms))


def _max_ulp(expected: Leaf, actual: Leaf, both: Flags) -> int | None:
    """Return the largest number of representable steps between finite elements."""
    if not both.any():
        return None
    ours, theirs = _ordered(expected)[both], _ordered(actual)[both]
    return int((np.maximum(ours, theirs) - np.minimum(ours, theirs)).max())


def _ordered(leaf: Leaf) -> npt.NDArray[np.uint64]:
    """Number the floats of a type in increasing order; both zeros get the same number."""
    width = leaf.data.dtype.itemsize * 8
    bits = leaf.data.view(f"u{leaf.data.dtype.itemsize}").astype(np.uint64)
    if leaf.dtype == "bfloat16":
        width, bits = 16, bits >> np.uint64(16)
    middle = np.uint64(1 << (width - 1))
    magnitude = bits & (middle - np.uint64(1))
    return np.where(bits & middle, middle - magnitude, middle + magnitude)


def _index(flat: np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(flat, shape))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _with_reason(found: OutputComparison, ours: Array, theirs: Array) -> OutputComparison:
    index = found.worst_index or ()
    how_many = f"{found.mismatches} of {ours.size} elements"
    limit = "differ" if found.rtol == found.atol == 0 else "are outside the tolerance"
    got, want = _shown(theirs[index]), _shown(ours[index])
    return replace(found, reason=f"{how_many} {limit}; at {list(index)} it is {got}, not {want}")


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
