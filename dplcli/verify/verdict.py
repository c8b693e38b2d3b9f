"""What the check answers: the verdict on two models, and what it rests on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dplcli.errors import counted
from dplcli.ir.types import Exempt
from dplcli.keys import keys
from dplcli.verify.check import Kernels


@dataclass(frozen=True)
class PartitionRun:
    """What has become of one partition when kernels were asked for.

    Attributes:
        call: Name of the call.
        function: What it calls, with the domain.
        library: The library and version that it runs on; "" if its body runs in onnxruntime.
        primitives: What the library ran for it, by its own account.
        runs: How often it ran there.
        is_repeated: Whether it is in the body of a node, which may run it any number of times.
        why: Why it is not run on the library.
        drops_nan: Whether the library gives a number where the body gives NaN.
    """

    call: str
    function: str
    library: str = ""
    primitives: tuple[str, ...] = ()
    runs: int = 0
    is_repeated: bool = False
    why: str = ""
    drops_nan: bool = False

    @property
    def what(self) -> str:
        """What the library ran for it, or why it ran nothing."""
        return self.why or "; ".join(dict.fromkeys(self.primitives)) or "not reached"


@keys(
    "target=kernels.target library=kernels.library require=kernels.require "
    "allow_inexact=kernels.allow_inexact math=kernels.math runs ran partitions"
)
@dataclass(frozen=True)
class KernelReport:
    """The partitions of a candidate, and where they ran.

    Attributes:
        kernels: What was asked for.
        runs: How often the model was run.
        partitions: Each of its partitions.
    """

    kernels: Kernels
    runs: int
    partitions: tuple[PartitionRun, ...]

    @property
    def ran(self) -> int:
        """How many partitions ran on the library."""
        return sum(item.runs > 0 for item in self.partitions)

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why that is not enough; none if it is."""
        found = []
        total, library = len(self.partitions), self.kernels.library
        require = self.kernels.require
        needed = total if require == "all" else 1 if require == "any" else int(require)
        if require == "all":  # a branch that was not taken is no fault of the library
            needed -= sum(bool(p.library) and p.is_repeated and not p.runs for p in self.partitions)
        if not total:
            target = self.kernels.target
            found.append(f"there is no partition for {target}: nothing ran on {library}")
        elif self.ran < max(needed, 1):
            found.append(
                f"{self.ran:,} of {counted(total, 'partition')} ran on {library}; "
                f"--require {require} asks for {max(needed, 1):,}"
            )
        found += [
            f"{item.call!r} ran {counted(item.runs, 'time')} on {library} "
            f"in {counted(self.runs, 'run')} of the model"
            for item in self.partitions
            if item.library and not item.is_repeated and item.runs != self.runs
        ]
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What no number of the check shows: it feeds no NaN."""
        count = sum(item.runs > 0 and item.drops_nan for item in self.partitions)
        if not count:
            return ()
        where = f"{self.kernels.library} gives a number where the model gives NaN"
        return (f"{where}: a Relu or a Clip lets none through, in {counted(count, 'partition')}",)

    def __str__(self) -> str:
        """Say how many ran, in words."""
        total = counted(len(self.partitions), "partition")
        return f"{self.ran:,} of {total} ran on {self.kernels.library}"


_MOST_NAMED = 6
_IDLE = "too few partitions ran on the library (--require)"
_TOO_WEAK = "the check notices too little to be trusted (--min-power)"


@dataclass(frozen=True)
class Proof:
    """Two models are the same graph, node for node, once all calls are written out.

    Attributes:
        calls: How many calls the candidate has of functions that only it has.
        undone: How many the original has of functions that only that has.
    """

    calls: int = 0
    undone: int = 0

    def __str__(self) -> str:
        """Say what is proved, in words."""
        whose = [counted(self.calls, "call")] * bool(self.calls)
        whose += [f"the original's {counted(self.undone, 'call')}"] * bool(self.undone)
        if not whose:
            return "both are the same graph, node for node"
        verb = "stands" if self.calls + self.undone == 1 else "stand"
        return f"{' and '.join(whose)} {verb} for exactly the same nodes"


@dataclass(frozen=True)
class Junction:
    """A place where two models may part.

    Attributes:
        original: The name of a value in the original.
        candidate: Its name in the candidate.
        how: What aligned the two.
        agreed: Pairs of values, by the original's name, at which both may be cut to be fed what the
            original computes there.
        why: What is wrong there, or cannot be told, in a sentence.
    """

    original: str
    candidate: str
    how: str
    agreed: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True)
class Sight:
    """What was seen of a place where two models differ.

    Attributes:
        place: The operator and the value of the original.
        runs: How often it ran by itself and gave the same.
        numbers: How many different numbers it gave, of a thousand at most.
        low: The least of them; None if there is none.
        high: The largest.
        reached: How many behaviours of its operators, in either model, some run showed.
        possible: How many there are that can be reached.
    """

    place: str
    runs: int
    numbers: int
    low: float | None = None
    high: float | None = None
    reached: int = 0
    possible: int = 0


@keys("... -odd -behaviours -places -case -roundings")
@dataclass(frozen=True)
class LocalJudgement:
    """Places where two models differ, each run by itself.

    Attributes:
        judged: How many there are.
        unchanged: How many other places are the same node for node.
        differing: What some of them give instead, a sentence each; none if all give the same.
        exact: How many were computed in float64, since they differ by more than a last bit.
        unseen: What cannot be told, a sentence each: what gave nothing that tells, and what differs
            for values alone that the inputs do not reach.
        changes: What the models say differently there, a sentence each.
        notes: What differs where the original gives no finite number, a sentence each; it decides
            nothing.
        odd: The odd numbers for which some differ, if only there. It is kept in no file, nor is the
            next.
        behaviours: What the operators may do, in words, and whether some run showed it.
        sights: What was seen of each place that gives the same.
        places: Where to cut these out: first as closely as can be, then with what they were joined
            to. They are kept in no file, nor is the case.
        case: Number of the case on which they were run.
        roundings: How far each is off on what the original computes there, by the original's value,
            in units in the last place of its largest number. It is kept in no file.
    """

    judged: int
    unchanged: int
    differing: tuple[str, ...] = ()
    exact: int = 0
    unseen: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    odd: tuple[Exempt, ...] = ()
    behaviours: Mapping[str, bool] = field(default_factory=dict)
    sights: tuple[Sight, ...] = ()
    places: tuple[Junction, ...] = ()
    case: int = 0
    roundings: Mapping[str, float] = field(default_factory=dict)

    @property
    def agreement(self) -> str:
        """What was judged and gives the same, in words."""
        if not self.judged:
            return "no place differs"
        if self.judged == 1:
            return "the changed place gives the same by itself"
        return f"each of {self.judged:,} changed places gives the same by itself"

    @property
    def evidence(self) -> str:
        """How much of what the operators may do there was seen; "" if none of them bends."""
        reached, possible = (sum(counts) for counts in zip(*self._behaviours, strict=True))
        return f", {reached:,} of {possible:,} behaviours seen" if possible else ""

    @property
    def _behaviours(self) -> list[tuple[int, int]]:
        return [(sight.reached, sight.possible) for sight in self.sights] or [(0, 0)]


GIGABYTE = 10**9


@dataclass(frozen=True)
class Need:
    """How much memory a run needs, in bytes, as far as that can be told before.

    Attributes:
        weights: What is stored; what lies in files is mapped.
        copies: What onnxruntime makes of it: float16 as float32, and packed for its kernels.
        values: What flows through the model, at most.
    """

    weights: int
    copies: int
    values: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.copies + self.values

    def __str__(self) -> str:
        parts = f"weights {_bytes(self.weights)}, values {_bytes(self.values)}"
        return f"about {_bytes(self.total)} ({parts}, onnxruntime's copies {_bytes(self.copies)})"


@keys(
    columns="block=number:number nodes:count places=judged:count ulps_off=distance:number in=worst"
)
@dataclass(frozen=True)
class BlockReport:
    """What was seen of one block.

    Attributes:
        number: Which it is, from 1 on.
        nodes: How many nodes of the original it has.
        judged: How many of its places differ between the models, and were run by themselves.
        worst: The value of that of them which is furthest off; "" if there is none.
        off: How far that is, in units in the last place of its largest number.
    """

    number: int
    nodes: int
    judged: int
    worst: str
    off: float | None

    @property
    def distance(self) -> str:
        """How far that is; "other" if numbers do not say it."""
        return "other" if self.off is None else f"{self.off:.2g}"


@dataclass(frozen=True)
class MemoryPlan:
    """How two models are run within the memory that there is.

    Attributes:
        need: What the larger run of a whole model needs.
        limit: How many bytes a run may take.
        free: How many there are; None if that is not known.
        blocks: In how many blocks the models run, one after the other.
        largest: What the largest block needs; *need* if they run whole.
        seen: What was seen of each block, if places were judged.
    """

    need: Need
    limit: int
    free: int | None
    blocks: int
    largest: Need
    seen: tuple[BlockReport, ...] = ()

    def __str__(self) -> str:
        said = f"A run needs {self.need}"
        if self.free is not None:
            said += f"; {_bytes(self.free)} are free"
        if self.blocks == 1:
            return f"{said}."
        return (
            f"{said}. It goes in {self.blocks:,} blocks, of which the largest needs {self.largest}."
        )


def _bytes(size: int) -> str:
    is_small = size * 10 < GIGABYTE
    return f"{size / 10**6:,.1f} MB" if is_small else f"{size / GIGABYTE:,.1f} GB"


@keys(columns="input=name type lowest=low:value highest=high:value how_it_was_chosen=how:prose")
@dataclass(frozen=True)
class InputChoice:
    """What one graph input was fed, over all cases.

    Attributes:
        name: Name of the graph input.
        dtype: Element type, as numpy calls it ('float32', 'bfloat16', 'string', …).
        shape: Dimensions of the tensor (of each element, for a sequence).
        low: Smallest value fed; None where there is no order or no element.
        high: Largest value fed; None likewise.
        how: How the values were chosen, in words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    how: str

    @property
    def type(self) -> str:
        """Element type and dimensions."""
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Figures:
    """Further measures of a difference; None or empty where one has no meaning.

    Attributes:
        mean_abs: Mean absolute difference.
        mean_rel: Mean relative difference, where the original is not zero.
        quantile_abs: The absolute difference that 99 % of the elements stay within.
        snr_db: Power of the original over power of the difference, in decibels.
        inf_mismatches: Number of elements that are infinite in one only, or with another sign.
        ulp_histogram: How many elements are 0, 1, 2 to 3, 4 to 7, … representable numbers apart.
        worst_values: Original and candidate at the worst index, as text.
        needed_rtol: Relative tolerance that the output would need to pass. Both are the smallest
            multiple of the tolerance in force; None if no tolerance would do.
        needed_atol: Absolute tolerance that it would need.
        steps: Number of elements of a quantised output that are off by a step or more.
        sensitivity: How far the original's own last bits move this output, if it was measured.
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


@keys("mutants=of caught missed regions")
@dataclass(frozen=True)
class Power:
    """How many wrong models the check notices.

    Attributes:
        caught: Number of mutants whose outputs the check refuses.
        of: Number of mutants that ran; those that onnxruntime refuses do not count.
        missed: What was changed in those that passed, in words.
        regions: What was mutated: 'rewritten nodes', 'partitions' or 'whole model'.
    """

    caught: int
    of: int
    missed: tuple[str, ...] = ()
    regions: str = ""

    @property
    def score(self) -> float:
        """The share of mutants that was caught; 0 if none ran."""
        return self.caught / self.of if self.of else 0.0


@keys(
    "... *=figures -by_seed -figures",
    columns="output=name level=levels max_abs:figure max_rel:figure max_ulp:number rtol:figure "
    "atol:figure used=share:percent verdict=fate:fate",
)
@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """How far one output of the candidate is from the original, in the worst case.

    A figure is None where it has no meaning: no element is finite in both models, the element type
    has no distance, a norm is zero.

    Attributes:
        name: Name of the graph output.
        dtype: Element type of the original's output.
        shape: Dimensions of the original's output (of the worst element, for a sequence).
        level: Optimisation level at which the candidate ran.
        baseline: Level at which the original ran: 'disable', or *level* where that agrees better.
        seed: Number of the case that gave these figures (`VerificationResult.cases`).
        max_abs: Largest absolute difference.
        max_rel: Largest difference relative to the original, where that is not zero.
        rmse: Root of the mean square difference.
        cosine: Cosine of the angle between both outputs as vectors.
        max_ulp: Largest distance in representable numbers between them.
        mismatches: Number of elements outside the tolerance, NaN and infinity included.
        nan_mismatches: Number of elements that are NaN in one of the models only.
        worst_index: Where the difference is largest, in tolerances; None if there is none.
        rtol: Relative tolerance in force.
        atol: Absolute tolerance in force, in the output's own unit.
        ok: Whether the output passes.
        reason: Why not, in one sentence; None if it passes.
        excuse: Why it passes though elements are outside the tolerance; "" if none is.
        by_seed: The comparisons of all cases; not part of the JSON.
        figures: Further measures of the difference.
        derivation: Where the tolerance comes from, in words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    level: str
    baseline: str
    seed: int
    max_abs: float | None = None
    max_rel: float | None = None
    rmse: float | None = None
    cosine: float | None = None
    max_ulp: int | None = None
    mismatches: int = 0
    nan_mismatches: int = 0
    worst_index: tuple[int, ...] | None = None
    rtol: float
    atol: float
    ok: bool
    reason: str | None = None
    excuse: str = ""
    by_seed: tuple["OutputComparison", ...] = ()
    figures: Figures = Figures()
    derivation: str = ""

    @property
    def levels(self) -> str:
        """At which level the candidate ran, and whether the original did, too."""
        return self.level if self.baseline == "disable" else f"{self.level} (same level)"

    @property
    def share(self) -> float | None:
        """The largest error as a share of the tolerance; above 1 the output fails.

        It is None where it is not known: the output holds no numbers, or NaN or infinity differ.
        """
        if self.max_abs == 0 and self.ok:
            return 0.0
        figures = ((self.figures.needed_atol, self.atol), (self.figures.needed_rtol, self.rtol))
        known = ((n, given) for n, given in figures if n is not None and given > 0)
        return next((n / given for n, given in known if math.isfinite(n)), None)

    @property
    def fate(self) -> str:
        """Whether it passes, or how many elements differ."""
        return "ok" if self.ok and not self.excuse else f"{self.mismatches:,} differ"


class NamedCase(NamedTuple):
    """One set of inputs: its number, and what it is called."""

    seed: int
    name: str


@keys(
    "is_equivalent verdict doubts accepted proof unproved regions reasons seeds levels inputs "
    "outputs power.blind_outputs=blind_outputs power.*=power cases=named_cases "
    "warnings kernels? memory?",
    "dpl.verify/1",
)
@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """The verdict and what it rests on.

    Attributes:
        equivalent: Whether no difference was found: every output passed at every level. If the
            candidate is proved to be the original, whether it gives the same bits wherever the
            original runs. If places were run by themselves, whether they give the same, too.
        seeds: Seeds of the inputs.
        levels: Optimisation levels at which the candidate ran.
        inputs: What the models were fed.
        outputs: One entry per level and output, in this order; empty if nothing was compared.
        reasons: Why the models differ as a whole: they have different signatures, or onnxruntime
            refuses the candidate. Reasons of single outputs are with the outputs.
        warnings: What weakens the verdict, one sentence each.
        blind_outputs: Outputs of the original that did not change with the input.
        cases: What to call each set of inputs, by its number: 'seed 0', the name of a file.
            Comparisons name the number as their *seed*. Empty if nothing ran.
        power: How many mutants the check caught, if that was measured.
        min_power: The share of mutants that had to be caught.
        proof: That the candidate is the original, up to functions; None if it is not proved.
        unproved: Why not, if that was tried.
        doubts: Why the check cannot tell though it found no difference, and what would help; none
            if it can.
        regions: What places that differ give by themselves, if that was asked.
        kernels: Where the partitions of the candidate ran, if kernels were asked for.
        memory: What a run takes of the memory, if the models are large or somebody limited it.
        is_quantised: Whether the candidate computes with numbers in steps, and the original not.
        retyped: The inputs and outputs that are floats of another type in the candidate, in words.
    """

    equivalent: bool
    seeds: tuple[int, ...]
    levels: tuple[str, ...]
    inputs: tuple[InputChoice, ...] = ()
    outputs: tuple[OutputComparison, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    blind_outputs: tuple[str, ...] = ()
    cases: Mapping[int, str] = field(default_factory=dict)
    power: Power | None = None
    min_power: float | None = None
    proof: Proof | None = None
    unproved: str = ""
    doubts: tuple[str, ...] = ()
    regions: LocalJudgement | None = None
    kernels: KernelReport | None = None
    memory: MemoryPlan | None = None
    is_quantised: bool = False
    retyped: tuple[str, ...] = ()

    @property
    def verdict(self) -> Literal["equivalent", "different", "inconclusive"]:
        """The answer: yes, no, or that the check cannot tell."""
        if not self.equivalent:
            return "different"
        return "inconclusive" if self.doubts else "equivalent"

    @property
    def is_retyped_alone(self) -> bool:
        """Whether nothing differs but the types of floats that go in or come out."""
        is_all = bool(self.retyped) and self.reasons == self.retyped
        return is_all and all(output.ok for output in self.outputs)

    @property
    def answer(self) -> Literal["equivalent", "different", "inconclusive"]:
        """The verdict; nothing is told by a check that is weaker than was asked for."""
        is_enough = self.verdict != "equivalent" or self.accepted
        return self.verdict if is_enough else "inconclusive"

    @property
    def is_equivalent(self) -> bool:
        """Whether the verdict is that they are."""
        return self.verdict == "equivalent"

    @property
    def named_cases(self) -> tuple[NamedCase, ...]:
        """The sets of inputs."""
        return tuple(NamedCase(seed, name) for seed, name in self.cases.items())

    @property
    def complaint(self) -> str:
        """What to say of a result that is not accepted; "" if it is."""
        match self.verdict:
            case "different":
                return "the result is not equivalent to the original"
            case "inconclusive":
                return "the check cannot tell whether the result is equivalent to the original"
            case "equivalent":
                return _TOO_WEAK if self.is_weak else _IDLE if self.idle else ""

    @property
    def fed(self) -> str:
        """What the models were fed, in words: 'seeds 0, 1', or the files that were given."""
        drawn = [case for case, name in self.cases.items() if name == f"seed {case}"]
        others = [name for case, name in self.cases.items() if name != f"seed {case}"]
        if not self.cases:
            drawn = list(self.seeds)
        if len(others) > _MOST_NAMED:
            others = [*others[:_MOST_NAMED], f"{len(others) - _MOST_NAMED} more"]
        if len(drawn) > _MOST_NAMED and drawn == list(range(drawn[0], drawn[-1] + 1)):
            seeds = [f"seeds {drawn[0]} to {drawn[-1]}"]
        else:
            seeds = ["seeds " + ", ".join(map(str, drawn))] * bool(drawn)
        return ", ".join(seeds + others)

    @property
    def objections(self) -> tuple[str, ...]:
        """Why the models differ, but for what is said with single outputs."""
        places = () if self.regions is None else self.regions.differing
        return (*self.reasons, *places, *self.idle)

    @property
    def idle(self) -> tuple[str, ...]:
        """Why too few partitions ran on a library; none if enough did, or nobody asked."""
        return () if self.kernels is None else self.kernels.complaints

    @property
    def accepted(self) -> bool:
        """Whether the answer is yes: equivalent, by a check as powerful as was asked for.

        Also, whether as many partitions ran on a library as was asked for.
        """
        return self.verdict == "equivalent" and not (self.is_weak or self.idle)

    @property
    def is_weak(self) -> bool:
        """Whether the check caught fewer mutants than was asked for."""
        score = 0.0 if self.power is None else self.power.score
        return self.min_power is not None and score < self.min_power
