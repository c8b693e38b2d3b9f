"""What a verification is asked, and what it answers: frozen values, no behaviour."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dplcli.errors import UsageError
from dplcli.verify.execution import PLAIN, Execution
from dplcli.verify.opinion import Opinion
from dplcli.verify.request import InputRequest

LEVELS = ("disable", "basic", "extended", "all")
SCHEMA = "dpl.verify/1"
_MOST_NAMED = 6


@dataclass(frozen=True)
class Override:
    """Tolerances that somebody chose for one output; None keeps the derived one.

    Attributes:
        rtol: Relative tolerance.
        atol: Absolute tolerance, in the output's own unit: steps, for an integer.

    Raises:
        UsageError: A tolerance is negative, infinite or not a number.
    """

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, tolerance in (("rtol", self.rtol), ("atol", self.atol)):
            if tolerance is not None and not 0 <= tolerance < math.inf:
                raise UsageError(f"{name} must be a number of 0 or more (got {tolerance})")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to compare two models.

    Attributes:
        seeds: One set of inputs is made per seed; at least one, none negative.
        levels: Optimisation levels of onnxruntime at which the candidate runs, out of `LEVELS`.
        rtol: Replaces the derived relative tolerance of every float output.
        atol: Replaces the derived absolute tolerance of every float output.
        tolerances: Replaces tolerances of single outputs, integers too; wins over the two above.
        mutants: How many wrong candidates to try, to measure the power of the check.
        min_power: The share of mutants that must be caught for a yes; None if any will do.
        save_results: Where to write what the models gave, to judge it again; None for nowhere.
        refill_weights: Give weights that ConstantOfShape nodes make random values, in both models.
        sizes: A number per symbolic dimension, or per ``input:axis``.
        request: What the inputs shall be, beyond seeds and sizes.
        custom_ops: Libraries of custom operators to register with onnxruntime for the candidate,
            and for the original if it does not run without.
        execution: Limits for every run; provider and options for the candidate.
        third_opinion: Ask onnx's reference evaluator about outputs that fail.

    Raises:
        UsageError: No seed, a negative one, no or an unknown level, a negative tolerance or size.
    """

    seeds: tuple[int, ...] = (0, 1)
    levels: tuple[str, ...] = ("disable", "all")
    rtol: float | None = None
    atol: float | None = None
    tolerances: Mapping[str, Override] = field(default_factory=dict)
    mutants: int = 0
    min_power: float | None = None
    save_results: Path | None = None
    refill_weights: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    request: InputRequest = field(default_factory=InputRequest)
    custom_ops: tuple[Path, ...] = ()
    execution: Execution = PLAIN
    third_opinion: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before any work is done."""
        if not self.seeds or min(self.seeds) < 0:
            raise UsageError("at least one seed is needed, and none may be negative")
        if unknown := [level for level in self.levels if level not in LEVELS]:
            raise UsageError(
                f"unknown optimisation level {unknown[0]!r}", hint=f"use one of {', '.join(LEVELS)}"
            )
        if not self.levels:
            raise UsageError("at least one optimisation level is needed")
        for name, tolerance in (("rtol", self.rtol), ("atol", self.atol)):
            if tolerance is not None and not 0 <= tolerance < math.inf:
                raise UsageError(f"{name} must be a number of 0 or more (got {tolerance})")
        if self.mutants < 0:
            raise UsageError(f"the number of mutants must not be negative (got {self.mutants})")
        if self.min_power is not None and not 0 <= self.min_power <= 1:
            raise UsageError(f"the power asked for must be from 0 to 1 (got {self.min_power})")
        for name, size in self.sizes.items():
            if size < 0:
                raise UsageError(f"the size of {name!r} must not be negative (got {size})")


@dataclass(frozen=True)
class InputChoice:
    """What one graph input was fed, over all seeds.

    Attributes:
        name: Name of the graph input.
        dtype: Element type, as numpy calls it ('float32', 'bfloat16', 'string', …).
        shape: Dimensions of the tensor (of each element, for a sequence).
        low: Smallest value fed, None where there is no order or no element.
        high: Largest value fed, likewise.
        how: How the values were chosen, in words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    how: str


@dataclass(frozen=True)
class Figures:
    """Measures of a difference beyond the largest one; None and empty where without meaning.

    Attributes:
        mean_abs: Mean absolute difference.
        mean_rel: Mean relative difference, where the original is not zero.
        quantile_abs: The absolute difference that 99 % of the elements stay within.
        snr_db: Power of the original over power of the difference, in decibels.
        inf_mismatches: Number of elements that are infinite in exactly one, or with another sign.
        ulp_histogram: How many elements are 0, 1, 2 to 3, 4 to 7, … representable numbers apart.
        worst_values: Original and candidate at the worst index, as text.
        needed_rtol: Relative tolerance of the smallest multiple of the tolerance in force with
            which the output would pass; None if no tolerance would do.
        needed_atol: Its absolute tolerance.
        steps: Number of elements of a quantised output that are off by a step or more.
        sensitivity: Largest movement of this output when the original's own last bits were
            moved, if that was measured.
    """

    mean_abs: float | None = None
    mean_rel: float | None = None
    quantile_abs: float | None = None
    snr_db: float | None = None
    inf_mismatches: int = 0
    ulp_histogram: tuple[int, ...] = ()
    worst_values: tuple[str, str] | None = None
    needed_rtol: float | None = None
    needed_atol: float | None = None
    steps: int | None = None
    sensitivity: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields in a fixed order, tuples as lists."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Power:
    """How many wrong models the check notices.

    Attributes:
        caught: Number of mutants whose outputs the check refuses; one that onnxruntime refuses
            to run counts for nothing.
        of: Number of mutants that ran.
        missed: What was changed in those that passed, in words.
        regions: What was mutated: 'rewritten nodes', 'partitions' or 'whole model'.
    """

    caught: int
    of: int
    missed: tuple[str, ...] = ()
    regions: str = ""

    @property
    def score(self) -> float:
        """The share that was caught; 0 if there was nothing to catch."""
        return self.caught / self.of if self.of else 0.0

    def to_json(self) -> dict[str, object]:
        """Return the fields in a fixed order."""
        return {
            "mutants": self.of,
            "caught": self.caught,
            "missed": list(self.missed),
            "regions": self.regions,
        }


@dataclass(frozen=True)
class OutputComparison:
    """How far one output of the candidate is from the original, for the worst seed.

    Floating point figures are None where they have no meaning: no element is finite in both
    models, the dtype has no distance, a norm is zero.

    Attributes:
        name: Name of the graph output.
        dtype: Element type of the original's output.
        shape: Dimensions of the original's output (of the worst element, for a sequence).
        level: Optimisation level at which the candidate ran.
        baseline: Level at which the original ran: 'disable', or *level* where that agrees better.
        seed: The seed that gave these figures.
        max_abs: Largest absolute difference.
        max_rel: Largest difference relative to the original, where that is not zero.
        rmse: Root of the mean square difference.
        cosine: Cosine of the angle between both outputs as vectors.
        max_ulp: Largest distance in representable numbers between them.
        mismatches: Number of elements outside the tolerance, NaN and infinity included.
        nan_mismatches: Number of elements that are NaN in exactly one of the models.
        worst_index: Where the difference is largest measured in tolerances; None if nowhere.
        rtol: Relative tolerance in force.
        atol: Absolute tolerance in force, in the output's own unit.
        ok: Whether the output passes.
        reason: Why not, in one sentence; None if it passes.
        by_seed: The same for every seed; not part of the JSON.
        figures: Further measures of the difference.
        derivation: Where the tolerance comes from, in words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    level: str
    baseline: str
    seed: int
    max_abs: float | None
    max_rel: float | None
    rmse: float | None
    cosine: float | None
    max_ulp: int | None
    mismatches: int
    nan_mismatches: int
    worst_index: tuple[int, ...] | None
    rtol: float
    atol: float
    ok: bool
    reason: str | None = None
    by_seed: tuple["OutputComparison", ...] = ()
    figures: Figures = Figures()
    derivation: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the fields in a fixed order, tuples as lists; every number is finite."""
        values = dict(vars(self))
        del values["by_seed"]
        del values["figures"]
        values |= self.figures.to_json()
        values["shape"] = list(self.shape)
        values["worst_index"] = None if self.worst_index is None else list(self.worst_index)
        return values


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """The verdict and what it rests on.

    Attributes:
        equivalent: Whether every output passed at every level.
        seeds: Seeds of the inputs.
        levels: Optimisation levels at which the candidate ran.
        inputs: What the models were fed.
        outputs: One entry per level and output, in this order; empty if nothing was compared.
        reasons: Why the models differ as a whole: another signature, a candidate that
            onnxruntime refuses. Reasons of single outputs are with the outputs.
        warnings: What weakens the verdict, one sentence each.
        blind_outputs: Outputs of the original that did not change with the input.
        refilled: Number of weights that were given random values.
        cases: Per number that stands as *seed* of an output what was fed: 'seed 0', the name of a
            file, a corner. Empty if nothing ran.
        opinions: What onnx's reference evaluator says of outputs that failed, if it was asked.
        power: How many mutants the check caught, if that was measured.
        min_power: The share of mutants that had to be caught.
    """

    equivalent: bool
    seeds: tuple[int, ...]
    levels: tuple[str, ...]
    inputs: tuple[InputChoice, ...] = ()
    outputs: tuple[OutputComparison, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    blind_outputs: tuple[str, ...] = ()
    refilled: int = 0
    cases: Mapping[int, str] = field(default_factory=dict)
    opinions: tuple[Opinion, ...] = ()
    power: Power | None = None
    min_power: float | None = None

    @property
    def fed(self) -> str:
        """What the models were fed, in words: 'seeds 0, 1', or the files that were given."""
        drawn = [str(case) for case, name in self.cases.items() if name == f"seed {case}"]
        others = [name for case, name in self.cases.items() if name != f"seed {case}"]
        if not self.cases:
            drawn = [str(seed) for seed in self.seeds]
        if len(others) > _MOST_NAMED:
            others = [*others[:_MOST_NAMED], f"{len(others) - _MOST_NAMED} more"]
        return ", ".join(["seeds " + ", ".join(drawn)] * bool(drawn) + others)

    @property
    def accepted(self) -> bool:
        """Whether the answer is yes: equivalent, by a check as powerful as was asked for."""
        return self.equivalent and not self.is_weak

    @property
    def is_weak(self) -> bool:
        """Whether the check caught fewer mutants than was asked for."""
        score = 0.0 if self.power is None else self.power.score
        return self.min_power is not None and score < self.min_power

    def to_json(self) -> dict[str, object]:
        """Return the `dpl.verify/1` object: stable order, no times, no paths, JSON-safe numbers."""
        return {
            "schema": SCHEMA,
            "equivalent": self.equivalent,
            "accepted": self.accepted,
            "reasons": list(self.reasons),
            "seeds": list(self.seeds),
            "levels": list(self.levels),
            "inputs": [dict(vars(choice), shape=list(choice.shape)) for choice in self.inputs],
            "outputs": [output.to_json() for output in self.outputs],
            "power": {
                "blind_outputs": list(self.blind_outputs),
                **(self.power.to_json() if self.power else {}),
            },
            "refilled": self.refilled,
            "cases": [{"seed": seed, "name": name} for seed, name in self.cases.items()],
            "third_opinion": [opinion.to_json() for opinion in self.opinions],
            "warnings": list(self.warnings),
        }
