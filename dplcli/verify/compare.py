"""Comparing one output of two models, element by element.

A float passes within a tolerance (`dplcli.verify.tolerance`), NaN and infinity in place only; an
integer, a boolean or a string has to agree exactly. Two things are softer, because a difference in
the last bit before a rounding is a whole step after it:

- an integer output that a quantising operator makes may be one step off in a few elements;
- where the original rounds inside, and its output leaves the tolerance, what its *own* last bits
  move (`Limit`) decides: the largest difference and its root mean square must both stay within
  a small multiple of that. What moves more than the original's own rounding is still refused.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dplcli.verify.depth import Depth
from dplcli.verify.figures import Steps, distances, needed_tolerance, ulp_histogram
from dplcli.verify.result import Figures, OutputComparison, Override
from dplcli.verify.sessions import Array, Leaf
from dplcli.verify.tolerance import FLOATS, Tolerance, derive_tolerance

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# How much further than the original's own last bits a candidate may move an output.
_MARGIN = 2.0
# What share of a quantised output may be one step off.
_FLIPPED = 0.02
_NO_OVERRIDE = Override()


@dataclass(frozen=True)
class Limit:
    """How far an output of the original moves with its own last bits.

    Attributes:
        max_abs: Largest movement of one element.
        rmse: Largest root mean square movement of one run.
    """

    max_abs: float
    rmse: float


@dataclass(frozen=True)
class Judge:
    """How to compare: at which levels the two ran, and what tolerance replaces the derived one.

    Attributes:
        level: Optimisation level at which the candidate ran.
        baseline: Level at which the original ran.
        seed: Seed of the inputs.
        coarsest: The coarsest float type that the model computes with.
        rtol: Replaces the derived relative tolerance of every float output.
        atol: Replaces the derived absolute tolerance of every float output.
        overrides: Replaces tolerances of single outputs.
        depths: How many roundings lead to an output.
        stepped: Outputs that a quantising operator makes.
        limits: How far outputs move with the original's own last bits, where measured.
    """

    level: str
    baseline: str
    seed: int
    coarsest: str
    rtol: float | None = None
    atol: float | None = None
    overrides: Mapping[str, Override] = field(default_factory=dict)
    depths: Mapping[str, Depth] = field(default_factory=dict)
    stepped: Collection[str] = frozenset()
    limits: Mapping[str, Limit] = field(default_factory=dict)

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
        return _beyond_help(found, reason)

    def _blank(self, name: str, leaf: Leaf) -> OutputComparison:
        tolerance = self._tolerance(name, leaf)
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
            figures=Figures(needed_rtol=0.0, needed_atol=0.0),
            derivation=tolerance.derivation,
        )

    def _tolerance(self, name: str, leaf: Leaf) -> Tolerance:
        override = self.overrides.get(name, _NO_OVERRIDE)
        if leaf.dtype not in FLOATS:
            return _tolerance_of_steps(leaf, override, stepped=name in self.stepped)
        return derive_tolerance(
            leaf.dtype,
            leaf.data,
            coarsest=self.coarsest,
            rtol=self.rtol if override.rtol is None else override.rtol,
            atol=self.atol if override.atol is None else override.atol,
            depth=self.depths.get(name),
        )

    def _limit(self, name: str) -> Limit | None:
        """Return how far the original moves by itself, unless somebody chose a tolerance."""
        chosen = name in self.overrides or (self.rtol, self.atol) != (None, None)
        return None if chosen else self.limits.get(name)

    def _compare_leaf(self, name: str, expected: Leaf, actual: Leaf) -> OutputComparison:
        blank = self._blank(name, expected)
        where = f"element {expected.label}: " if expected.label else ""
        if expected.dtype != actual.dtype or expected.data.shape != actual.data.shape:
            what = ("type", actual.dtype, expected.dtype)
            if expected.dtype == actual.dtype:
                what = ("shape", str(actual.data.shape), str(expected.data.shape))
            reason = f"{where}its {what[0]} is {what[1]}, not {what[2]}"
            return replace(_beyond_help(blank, reason), mismatches=expected.data.size)
        if expected.dtype in FLOATS:
            found = _compare_floats(blank, expected, actual)
        elif expected.data.dtype.kind in "iub":
            flips = name in self.stepped and name not in self.overrides
            found = _compare_integers(blank, expected.data, actual.data, flips=flips)
        else:
            found = _compare_exactly(blank, expected, actual)
        if not found.ok and (limit := self._limit(name)) is not None:
            found = _within_limit(found, blank, limit, expected, actual)
        return found if found.ok else replace(found, reason=where + (found.reason or ""))


def severity(comparison: OutputComparison) -> tuple[bool, int, float]:
    """Order comparisons from best to worst: failures last, then by their differences."""
    return (not comparison.ok, comparison.mismatches, comparison.max_abs or 0.0)


def _tolerance_of_steps(leaf: Leaf, override: Override, *, stepped: bool) -> Tolerance:
    """Return the tolerance of what is no float: steps, for integers that somebody loosened."""
    if leaf.data.dtype.kind not in "iu" or leaf.dtype in {"string", "empty"}:
        return Tolerance(0.0, 0.0, "exact")
    if override != _NO_OVERRIDE:
        return Tolerance(override.rtol or 0.0, override.atol or 0.0, "given for this output")
    if stepped:
        return Tolerance(0.0, 1.0, f"one quantisation step, in {_FLIPPED:.0%} of the elements")
    return Tolerance(0.0, 0.0, "exact")


def _compare_exactly(blank: OutputComparison, expected: Leaf, actual: Leaf) -> OutputComparison:
    differs = np.asarray(expected.data != actual.data)
    if not differs.any():
        return blank
    found = _beyond_help(replace(blank, mismatches=int(differs.sum())), "")
    index = _index(differs.reshape(-1).argmax(), differs.shape)
    return _with_reason(_at_worst(found, index, expected.data, actual.data))


def _compare_integers(
    blank: OutputComparison, expected: Array, actual: Array, *, flips: bool
) -> OutputComparison:
    """Compare integers or booleans; with *flips*, a few may be one step off."""
    differs = np.asarray(expected != actual)
    ours, theirs = expected.astype(np.float64), actual.astype(np.float64)
    found = _with_distances(blank, ours, theirs)
    if not differs.any():
        return replace(found, figures=replace(found.figures, steps=0 if flips else None))
    # Integers beyond 2**53 can differ where their nearest floats do not.
    difference = np.where(differs, np.maximum(np.abs(theirs - ours), 1.0), 0.0)
    outside = difference > blank.atol + blank.rtol * np.abs(ours)
    moved = int(differs.sum())
    too_many = flips and moved > max(1, int(_FLIPPED * differs.size))
    found = _with_needed(found, np.abs(ours), difference)
    found = replace(
        found,
        mismatches=moved if too_many else int(outside.sum()),
        ok=not outside.any() and not too_many,
        figures=replace(found.figures, steps=moved if flips else None),
    )
    found = _at_worst(found, _index(difference.reshape(-1).argmax(), ours.shape), expected, actual)
    if too_many and not outside.any():
        reason = f"{moved} of {differs.size} elements are one quantisation step off, all at once"
        return replace(found, reason=reason)
    return found if found.ok else _with_reason(found)


def _compare_floats(blank: OutputComparison, expected: Leaf, actual: Leaf) -> OutputComparison:
    ours, theirs = expected.data.astype(np.float64), actual.data.astype(np.float64)
    both = np.isfinite(ours) & np.isfinite(theirs)
    nan_differs = np.isnan(ours) != np.isnan(theirs)
    other_differs = ~both & ~(np.isnan(ours) & np.isnan(theirs)) & (ours != theirs)
    ours_finite, theirs_finite = np.where(both, ours, 0), np.where(both, theirs, 0)
    magnitude = np.abs(ours_finite)
    with np.errstate(over="ignore"):
        difference = np.abs(theirs_finite - ours_finite)
        excess = difference - (blank.atol + blank.rtol * magnitude)
    outside = (excess > 0) | other_differs
    steps = _ulps(expected, actual)[both]
    found = _with_distances(blank, ours_finite, theirs_finite) if both.any() else blank
    if other_differs.any():
        found = _beyond_help(found, "")
    else:
        found = _with_needed(found, magnitude, difference)
    found = replace(
        found,
        max_ulp=int(steps.max()) if steps.size else None,
        mismatches=int(outside.sum()),
        nan_mismatches=int(nan_differs.sum()),
        ok=not outside.any(),
        figures=replace(
            found.figures,
            inf_mismatches=int((other_differs & ~nan_differs).sum()),
            ulp_histogram=ulp_histogram(steps),
        ),
    )
    if not difference.any() and found.ok:
        return found
    badness = np.where(other_differs, np.inf, np.where(difference > 0, excess, -np.inf))
    index = _index(badness.reshape(-1).argmax(), badness.shape)
    found = _at_worst(found, index, ours, theirs)
    return found if found.ok else _with_reason(found)


def _within_limit(
    found: OutputComparison, blank: OutputComparison, limit: Limit, expected: Leaf, actual: Leaf
) -> OutputComparison:
    """Judge what left its tolerance by what the original's own last bits move."""
    found = replace(found, figures=replace(found.figures, sensitivity=limit.max_abs))
    furthest = _MARGIN * limit.max_abs
    if furthest <= blank.atol or found.rmse is None or found.figures.needed_atol is None:
        return found
    wider = replace(
        blank,
        atol=furthest,
        derivation=f"{_MARGIN:g} x what the original's own last bits move, as it rounds inside",
    )
    if expected.dtype in FLOATS:
        again = _compare_floats(wider, expected, actual)
    else:
        again = _compare_integers(wider, expected.data, actual.data, flips=False)
    figures = replace(again.figures, sensitivity=limit.max_abs, steps=found.figures.steps)
    again = replace(again, figures=figures)
    if again.ok and found.rmse > _MARGIN * limit.rmse:
        reason = (
            f"its root mean square difference is {found.rmse:.3g}; the original's own last bits "
            f"move it by {limit.rmse:.3g}"
        )
        return replace(again, ok=False, reason=reason, mismatches=found.mismatches)
    return again


def _beyond_help(found: OutputComparison, reason: str) -> OutputComparison:
    """Say that *found* fails whatever the tolerance."""
    figures = replace(found.figures, needed_rtol=None, needed_atol=None)
    return replace(found, ok=False, reason=reason, figures=figures)


def _with_needed(found: OutputComparison, magnitude: Reals, difference: Reals) -> OutputComparison:
    rtol, atol = needed_tolerance(magnitude, difference, found.rtol, found.atol)
    if not math.isfinite(rtol + atol):
        return _beyond_help(found, found.reason or "")
    figures = replace(found.figures, needed_rtol=rtol, needed_atol=atol)
    return replace(found, figures=figures)


def _with_distances(found: OutputComparison, ours: Reals, theirs: Reals) -> OutputComparison:
    """Fill in the distances between arrays of finite numbers."""
    apart = distances(ours, theirs)
    return replace(
        found,
        max_abs=apart.max_abs,
        max_rel=apart.max_rel,
        rmse=apart.rmse,
        cosine=apart.cosine,
        figures=replace(
            found.figures,
            mean_abs=apart.mean_abs,
            mean_rel=apart.mean_rel,
            quantile_abs=apart.quantile_abs,
            snr_db=apart.snr_db,
        ),
    )


def _ulps(expected: Leaf, actual: Leaf) -> Steps:
    """Return how many representable numbers each element is off; nonsense where not finite."""
    ours, theirs = _ordered(expected), _ordered(actual)
    return np.maximum(ours, theirs) - np.minimum(ours, theirs)


def _ordered(leaf: Leaf) -> Steps:
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


def _at_worst(
    found: OutputComparison, index: tuple[int, ...], ours: Array, theirs: Array
) -> OutputComparison:
    values = (_shown(ours[index]), _shown(theirs[index]))
    return replace(found, worst_index=index, figures=replace(found.figures, worst_values=values))


def _with_reason(found: OutputComparison) -> OutputComparison:
    how_many = f"{found.mismatches} of {math.prod(found.shape)} elements"
    limit = "differ" if found.rtol == found.atol == 0 else "are outside the tolerance"
    want, got = found.figures.worst_values or ("", "")
    where = list(found.worst_index or ())
    return replace(found, reason=f"{how_many} {limit}; at {where} it is {got}, not {want}")


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
