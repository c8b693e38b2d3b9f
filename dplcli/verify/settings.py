"""What the check is asked and answers, and what a run takes and gives: values only."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dplcli.errors import UsageError, VerificationError, counted, did_you_mean
from dplcli.ir.types import summands
from dplcli.keys import keys

# A third opinion where two models differ: that of onnx's reference evaluator.
#
# It is asked two questions, with the same inputs as onnxruntime:
#
# - The original runs in the evaluator. Does it give what the original gave in onnxruntime, or what
#   the candidate gave there?
# - Both models run in the evaluator. Do they agree with each other? Then the files say the same,
#   and the difference is onnxruntime's.


Side = Literal["original", "candidate", "both", "neither"]


@dataclass(frozen=True)
class Opinion:
    """What the reference evaluator says of one output that failed.

    Attributes:
        output: Name of the output; "" if nothing could be asked.
        level: Optimisation level at which it failed.
        seed: Number of the case (`VerificationResult.cases`).
        agrees_with: Whose results agree with its own within the tolerance; None if it has no
            opinion.
        models_agree: Whether the evaluator gives the same for both models; None if not known.
        problem: Why it has no opinion, or none of the candidate.
        is_inside: Whether *output* is a value inside, computed by itself from what the original
            computes.
    """

    output: str
    level: str
    seed: int
    agrees_with: Side | None = None
    models_agree: bool | None = None
    problem: str = ""
    is_inside: bool = False

    def sentence(self, more: int = 0) -> str:
        """Return the opinion as a sentence, also for so many outputs more."""
        evaluator = "third opinion: onnx's reference evaluator"
        if not self.output:
            return f"{evaluator} was not asked, because {self.problem}"
        where = f"{self.output} at level {self.level}, seed {self.seed}"
        if self.is_inside:
            where = f"the value {self.output!r} by itself"
        if more:
            where = f"{where} (and {more:,} more)"
        if self.agrees_with is None:
            return f"{evaluator} could not say anything of {where}, because {self.problem}"
        whom = "with" if self.agrees_with in {"both", "neither"} else "with the"
        text = f"{evaluator} agrees {whom} {self.agrees_with} on {where}"
        match self.models_agree:
            case True:
                return f"{text}; it finds both models equal, so the difference is onnxruntime's"
            case False:
                return f"{text}; it finds that the models differ"
            case None:
                return f"{text}; it could not say anything of the candidate, because {self.problem}"


# What somebody asks of the inputs: values from elsewhere, ranges, shapes, corners.


InputFunction = Callable[[int], object]
"""Takes a seed and returns a mapping from input names to arrays."""

Sums = Mapping[str, tuple[int | str, ...]]
"""Symbols of inputs that are sums of others, and of numbers."""

CORNERS = ("zeros", "negative", "large", "denormal")
"""The corner values that are tried, in this order."""


def sizes_and_shapes(
    shape: Mapping[str, int | Sequence[int] | str],
) -> tuple[dict[str, int], dict[str, tuple[int, ...]], Sums]:
    """Tell sizes of dimensions, whole shapes of inputs and sums apart, as ``--shape`` takes them.

    Raises:
        UsageError: A text is no sum.
    """
    sizes: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    sums: dict[str, tuple[int | str, ...]] = {}
    for name, size in shape.items():
        if isinstance(size, int):
            sizes[name] = size
        elif isinstance(size, str):
            if not (parts := summands(size)):
                raise UsageError(
                    f"--shape {name}={size}: not a size, nor a sum of sizes",
                    hint="write --shape total=past+sequence",
                )
            sums[name] = parts
        else:
            shapes[name] = tuple(size)
    return sizes, shapes, sums


@dataclass(frozen=True, kw_only=True)
class InputRequest:
    """What the user wants the inputs to be.

    The rest is made up: an input that neither *given* nor *function* covers is drawn from its range
    in *ranges*, or else from the range that the model's operators suggest.

    Attributes:
        given: A .npz or .npy file, a .pb file, or a folder of them (see `verify.inputs`).
        function: Makes the values of one seed.
        label: What to call *function* in messages.
        ranges: Smallest and largest value of an input, both included.
        shapes: Whole shapes, by input.
        sums: Dimensions that are sums of others, and of which.
        corners: Whether to run corner values, too (see `verify.inputs`).
        save: Where to write what was fed, as .npz.

    Raises:
        UsageError: There are two sources, a range is empty or endless, a dimension is negative, or
            the file to write is no .npz or has no folder.
    """

    given: Path | None = None
    function: InputFunction | None = None
    label: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sums: Sums = field(default_factory=dict)
    corners: bool = False
    save: Path | None = None

    def __post_init__(self) -> None:
        """Refuse impossible wishes before any work is done."""
        if self.given is not None and self.function is not None:
            raise UsageError("inputs come from a file or from a function, not from both")
        for name, (low, high) in self.ranges.items():
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise UsageError(
                    f"the range of {name!r} holds no number: {low:g} to {high:g}",
                    hint="write the smaller number first: --range ids=0:1000",
                )
        for name, shape in self.shapes.items():
            if any(dim < 0 for dim in shape):
                raise UsageError(f"the shape of {name!r} must not hold a negative number")
        if self.save is not None:
            _check_place(self.save)


def _check_place(path: Path) -> None:
    if path.suffix != ".npz":
        raise UsageError(f"{path}: inputs are saved as .npz", hint="write --save-inputs inputs.npz")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {str(path.parent)!r}")


# How a model is run: where, with which options of onnxruntime, and within which limits.


_SWITCHES = frozenset(
    {"enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_deterministic_compute"}
)
_NUMBERS = frozenset({"intra_op_num_threads", "inter_op_num_threads"})
_LONGEST_NUMBER = 4
_CHOICES = {
    "execution_mode": ("sequential", "parallel"),
    "execution_order": ("default", "priority"),
}
_KNOWN = (*sorted(_SWITCHES | _NUMBERS), *_CHOICES)
_TRUTH = {"1": "1", "true": "1", "on": "1", "0": "0", "false": "0", "off": "0"}

CPU = "CPUExecutionProvider"
TIMEOUT = 3600.0

_MOST_LIMIT = 10**9
"""More than anybody waits for or has, and less than clocks and limits of the system can hold."""


def _check_limit(what: str, limit: float | None, unit: str) -> None:
    if limit is not None and not 0 < limit <= _MOST_LIMIT:
        bound = f"at most {_MOST_LIMIT:,}" if limit > 0 else "more than 0"
        got = f"{limit:g}" if what == "time" else limit
        raise UsageError(f"the {what} limit must be {bound} {unit} (got {got})")


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How to run a model in onnxruntime.

    Attributes:
        isolated: Whether it runs in a process of its own. A crash of onnxruntime or of a kernel
            then ends that process and not ours. Limits need it.
        provider: The execution provider. It takes what it can of the graph, the CPU the rest.
        options: Attributes of onnxruntime's SessionOptions as text. A name with a dot is an entry
            of its session configuration.
        timeout: Seconds for each step: to create a session, to run it once. None for no limit.
        memory_limit: Megabytes for the model and its run, beyond what onnxruntime takes by itself.
        kernels: What runs partitions in the place of their bodies; None for nothing.

    Raises:
        UsageError: A limit is not positive or cannot be kept here, or an option or its value is
            unknown.
    """

    isolated: bool = True
    provider: str = CPU
    options: tuple[tuple[str, str], ...] = ()
    timeout: float | None = TIMEOUT
    memory_limit: int | None = None
    kernels: "Kernels | None" = None

    def __post_init__(self) -> None:
        """Refuse impossible options and limits before any work is done."""
        read = tuple((key, _read_option(key, text)) for key, text in self.options)
        object.__setattr__(self, "options", read)
        _check_limit("time", self.timeout, "seconds")
        if not self.isolated and self.timeout not in {None, TIMEOUT}:
            raise UsageError("a time limit needs a process of its own")
        if self.memory_limit is None:
            return
        _check_limit("memory", self.memory_limit, "MB")
        if not sys.platform.startswith("linux"):
            raise UsageError(f"a memory limit can be kept on Linux only, not on {sys.platform}")
        if not self.isolated:
            raise UsageError("a memory limit needs a process of its own")

    @property
    def is_plain(self) -> bool:
        """Whether the model runs on the CPU with onnxruntime's own options."""
        return self.provider == CPU and not self.options and self.kernels is None

    def plain(self) -> "Execution":
        """Return how the original runs: on the CPU, without options, within the same limits."""
        return replace(self, provider=CPU, options=(), kernels=None)


PLAIN = Execution()


@dataclass(frozen=True)
class Kernels:
    """What runs the partitions of a target.

    Attributes:
        target: The target.
        library: What its library is called.
        module: The module that opens sessions with it: ``open_session`` and ``check`` of
            :mod:`dplcli.execute.session`.
        require: How many partitions have to run on it: "all", "any" or a number.
        allow_inexact: Whether partitions run on it that it is known to compute inexactly.
        math: In which arithmetic it may compute products of float32: ``fp32`` or ``bf16``.
    """

    target: str
    library: str
    module: str
    require: str = "any"
    allow_inexact: bool = False
    math: str = "fp32"

    def __post_init__(self) -> None:
        """Refuse what is no number of partitions."""
        if self.require not in {"all", "any"} and not (
            self.require.isascii() and self.require.isdigit() and int(self.require)
        ):
            raise UsageError(
                f"--require {self.require}: is no number of partitions",
                hint="write all, any, or a number from 1 on",
            )


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
    """

    call: str
    function: str
    library: str = ""
    primitives: tuple[str, ...] = ()
    runs: int = 0
    is_repeated: bool = False
    why: str = ""


@dataclass(frozen=True)
class PartitionTime:
    """How long one partition took in one run of the model, by the library's own account.

    Attributes:
        call: Name of the call.
        milliseconds: What it computes.
        reorders: To lay tensors out in another way, in milliseconds.
    """

    call: str
    milliseconds: float
    reorders: float


@dataclass(frozen=True)
class Timing:
    """How long one model took, in seconds for one run: a number for each round.

    Attributes:
        wall: By the clock.
        cpu: Of all its threads together.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]


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

    def __str__(self) -> str:
        """Say how many ran, in words."""
        total = counted(len(self.partitions), "partition")
        return f"{self.ran:,} of {total} ran on {self.kernels.library}"


def _read_option(key: str, text: str) -> str:
    """Return the value of a session option as onnxruntime reads it."""
    where = f"--session-option {key}={text}"
    if "." in key:
        return text
    if key in _SWITCHES:
        if text.lower() not in _TRUTH:
            raise UsageError(f"{where}: is on or off", hint=f"write {key}=1 or {key}=0")
        return _TRUTH[text.lower()]
    if key in _NUMBERS:
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER:
            raise UsageError(f"{where}: is not a number of threads", hint=f"write {key}=1")
        return text
    if (choices := _CHOICES.get(key)) is not None:
        if text not in choices:
            what = key.rpartition("_")[2]
            hint = f"use {' or '.join(choices)}"
            raise UsageError(f"{where}: there is no such {what}", hint=hint)
        return text
    guess = did_you_mean(key, _KNOWN)
    known = f"use one of {', '.join(_KNOWN)}, or an entry such as session.disable_prepacking=1"
    raise UsageError(f"{where}: there is no such option", hint=guess or known)


# What the check is asked, and what it answers.


REFERENCE_LEVEL = "disable"
"""Optimisation is off where the original says what is right."""

LEVELS = ("disable", "basic", "extended", "all")
_USUAL_LEVELS = ("disable", "all")
_USUAL_SEEDS = (0, 1)
_MOST_NAMED = 6
_IDLE = "too few partitions ran on the library (--require)"
_TOO_WEAK = "the check notices too little to be trusted (--min-power)"


@dataclass(frozen=True)
class Override:
    """Tolerances that the user chose for one output; None keeps the derived one.

    Attributes:
        rtol: Relative tolerance.
        atol: Absolute tolerance, in the output's own unit: steps, for an integer.

    Raises:
        UsageError: A tolerance is negative, infinite or not a number.
    """

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no tolerance."""
        for name, tolerance in (("rtol", self.rtol), ("atol", self.atol)):
            if tolerance is not None and not 0 <= tolerance < math.inf:
                raise UsageError(f"{name} must be a number of 0 or more (got {tolerance})")


@dataclass(frozen=True)
class Whole:
    """What two models are parts of, as far as tolerances depend on it: a part may not show it.

    Attributes:
        coarsest: The coarsest float type that the whole computes with.
        rounds: Whether some operator of the whole rounds to steps.
    """

    coarsest: str
    rounds: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to compare two models.

    Attributes:
        seeds: One set of inputs is made per seed; at least one, none negative. None for 0 and 1.
        levels: Optimisation levels of onnxruntime at which the candidate runs, out of `LEVELS`.
            None for the usual ones, "disable" and "all"; "disable" alone if it is proved to be the
            original and no results are saved.
        rtol: Replaces the derived relative tolerance of every float output.
        atol: Replaces the derived absolute tolerance of every float output.
        tolerances: Replaces tolerances of single outputs, also of integers; wins over both above.
        mutants: How many wrong candidates to try, to measure the power of the check.
        min_power: The share of mutants that must be caught for a yes; None if any will do.
        save_results: File for what the models gave, to judge it again later; None for no file.
        refill_weights: Whether weights that ConstantOfShape makes get random values in both models.
        sizes: A number per symbolic dimension, or per ``input:axis``.
        request: What the inputs shall be, beyond seeds and sizes.
        custom_ops: Libraries of custom operators to register with onnxruntime for the candidate,
            and for the original if it does not run without.
        execution: Limits for every run; provider and options for the candidate.
        third_opinion: Whether to ask onnx's reference evaluator about what differs.
        strict: Whether it is a difference, too, if only what is drawn tells and the original gives
            NaN, an infinity or -0 there.
        whole: What the models are parts of; None if they are whole.
        max_memory: How many gigabytes a run may take; models that need more run in blocks. None for
            a part of the memory that is free.

    Raises:
        UsageError: No seed, a negative one, no or an unknown level, a negative tolerance or size.
    """

    seeds: tuple[int, ...] | None = None
    levels: tuple[str, ...] | None = None
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
    strict: bool = False
    whole: Whole | None = None
    max_memory: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible wishes before any work is done."""
        if not self.first_seeds or min(self.first_seeds) < 0:
            raise UsageError("at least one seed is needed, and none may be negative")
        if unknown := [level for level in self.judged_levels if level not in LEVELS]:
            raise UsageError(
                f"unknown optimisation level {unknown[0]!r}", hint=f"use one of {', '.join(LEVELS)}"
            )
        if not self.judged_levels:
            raise UsageError("at least one optimisation level is needed")
        Override(self.rtol, self.atol)  # refuses what is no tolerance
        if self.mutants < 0:
            raise UsageError(f"the number of mutants must not be negative (got {self.mutants})")
        if self.min_power is not None and not 0 <= self.min_power <= 1:
            raise UsageError(f"the power asked for must be from 0 to 1 (got {self.min_power})")
        for name, size in self.sizes.items():
            if size < 0:
                raise UsageError(f"the size of {name!r} must not be negative (got {size})")

    @property
    def chooses_tolerance(self) -> bool:
        """Whether somebody chose a tolerance, instead of the derived ones."""
        return bool(self.tolerances) or (self.rtol, self.atol) != (None, None)

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """The seeds to begin with; there are no others if they are given."""
        return _USUAL_SEEDS if self.seeds is None else self.seeds

    @property
    def judged_levels(self) -> tuple[str, ...]:
        """The levels at which a candidate is judged that is not proved to be the original."""
        return _USUAL_LEVELS if self.levels is None else self.levels


@dataclass(frozen=True)
class Proof:
    """Two models are the same graph, node for node, once all calls are written out.

    Attributes:
        nodes: How many nodes it has; Constant and Identity are not counted.
        moved: How many of them stand behind calls that only one of the models has.
        calls: How many such calls the candidate has.
        undone: How many the original has.
    """

    nodes: int
    moved: int = 0
    calls: int = 0
    undone: int = 0

    def __str__(self) -> str:
        """Say what is proved, in words."""
        nodes = counted(self.nodes, "node")
        if not self.calls + self.undone:
            return f"both are the same {nodes}"
        whose = [counted(self.calls, "call")] * bool(self.calls)
        whose += [f"the original's {counted(self.undone, 'call')}"] * bool(self.undone)
        verb = "stands" if self.calls + self.undone == 1 else "stand"
        return f"{' and '.join(whose)} {verb} for exactly {self.moved:,} of the {nodes}"


@dataclass(frozen=True)
class Junction:
    """A place where two models may part.

    Attributes:
        original: The name of a value in the original.
        candidate: Its name in the candidate.
        how: What aligned the two.
        agreed: Pairs of values, by the original's name, at which both may be cut to be fed what the
            original computes there.
    """

    original: str
    candidate: str
    how: str
    agreed: Mapping[str, str]


@dataclass(frozen=True)
class Sight:
    """What was seen of a place where two models differ.

    Attributes:
        place: The operator and the value of the original.
        runs: How often it ran by itself and gave the same.
        numbers: How many different numbers it gave, of a thousand at most.
        low: The least of them; None if there is none.
        high: The largest.
    """

    place: str
    runs: int
    numbers: int
    low: float | None = None
    high: float | None = None


@keys("... -places -case -roundings")
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


@keys("... *=figures -by_seed -figures")
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


class NamedCase(NamedTuple):
    """One set of inputs: its number, and what it is called."""

    seed: int
    name: str


@keys(
    "is_equivalent verdict doubts accepted proof unproved regions reasons seeds levels inputs "
    "outputs power.blind_outputs=blind_outputs power.*=power refilled cases=named_cases "
    "third_opinion=opinions warnings kernels? memory?",
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
        refilled: Number of weights that were given random values.
        cases: What to call each set of inputs, by its number: 'seed 0', the name of a file, a
            corner. Comparisons name the number as their *seed*. Empty if nothing ran.
        opinions: What onnx's reference evaluator says of what differs, if it was asked.
        power: How many mutants the check caught, if that was measured.
        min_power: The share of mutants that had to be caught.
        proof: That the candidate is the original, up to functions; None if it is not proved.
        unproved: Why not, if that was tried.
        doubts: Why the check cannot tell though it found no difference, and what would help; none
            if it can.
        regions: What places that differ give by themselves, if that was asked.
        kernels: Where the partitions of the candidate ran, if kernels were asked for.
        memory: What a run takes of the memory, if the models are large or somebody limited it.
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
    proof: Proof | None = None
    unproved: str = ""
    doubts: tuple[str, ...] = ()
    regions: LocalJudgement | None = None
    kernels: KernelReport | None = None
    memory: MemoryPlan | None = None

    @property
    def verdict(self) -> Literal["equivalent", "different", "inconclusive"]:
        """The answer: yes, no, or that the check cannot tell."""
        if not self.equivalent:
            return "different"
        return "inconclusive" if self.doubts else "equivalent"

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


# What goes into a run, and what comes out of it.


Array = npt.NDArray[np.generic]
Feed = Array | list[Array] | None


def map_feeds(change: Callable[[Array], Array], feeds: Mapping[str, Feed]) -> dict[str, Feed]:
    """Return *feeds* with every array changed; what is absent stays absent."""
    return {
        name: [change(array) for array in feed]
        if isinstance(feed, list)
        else (None if feed is None else change(feed))
        for name, feed in feeds.items()
    }


def arrays_in(feed: Feed) -> list[Array]:
    """Return the arrays of what is fed: none for what is absent."""
    return feed if isinstance(feed, list) else [] if feed is None else [feed]


_ADDED = 2  # numpy's mark of an element type that another package registered


def is_exotic(array: Array) -> bool:
    """Tell whether numpy itself lacks the element type: ml_dtypes adds bfloat16, float8, ..."""
    return array.dtype.isbuiltin == _ADDED


def storable(array: Array) -> Array:
    """Return *array* as numpy's files hold it: words as text, types that numpy lacks as bytes."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.view(f"V{array.dtype.itemsize}") if is_exotic(array) else array


_NOISE = (
    re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"Load model from .*? failed:\s*"),
    re.compile(r"Non-zero status code returned while "),
    re.compile(r"Status Message: "),
    re.compile(r"<lambda\(\)>\s*"),
    re.compile(r"/?[\w./\\+-]*onnxruntime[\w./\\+-]*\.(?:cc|h|cpp):\d+\s*"),
    re.compile(r"[\w:~]*onnxruntime::[\w:<>,&*~ ]*\(.*?\)(?: const)?(?: \[with [^]]*\])?[:\s]*"),
)
_LONGEST_MESSAGE = 300
_SHORTAGE = re.compile(
    r"bad_?\s?alloc|allocate memory|out of memory|cannot allocate|allocation fail", re.IGNORECASE
)


def one_line(message: str) -> str:
    """Return a message of onnxruntime on one line, without codes, C++ paths and signatures."""
    text = " ".join(message.split())
    for noise in _NOISE:
        text = noise.sub("", text)
    text = _balanced(" ".join(text.split()))
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _balanced(text: str) -> str:
    """Strip quotes round the whole message, and add or drop one that has no partner."""
    text = text.strip(" ")
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote) and text.count(quote) == 2:  # noqa: PLR2004
            text = text.strip(quote)
        if text.count(quote) % 2:
            text = text.removesuffix(quote) if text.endswith(quote) else f"{text}{quote}"
    return text


def tells_of_shortage(message: str) -> bool:
    """Tell whether a message says that there was not enough memory."""
    return _SHORTAGE.search(message) is not None


class RunError(Exception):
    """onnxruntime refused a model or a set of inputs; the message is one clean line."""


class ShortageError(RunError):
    """There was not enough memory for a model or its run."""


class StoppedError(VerificationError):
    """The process that ran a model crashed, or was stopped at a limit.

    Args:
        how: What onnxruntime did, such as 'crashed (SIGSEGV)'.
        doing: On what, such as 'running the candidate at level all'.
        hint: What may help.
    """

    def __init__(self, how: str, doing: str, *, hint: str | None = None) -> None:
        super().__init__(f"onnxruntime {how} {doing}", hint=hint)
        self.how = how
        self.doing = doing


@dataclass(frozen=True)
class Leaf:
    """One array of an output.

    Attributes:
        label: Where it is inside the output: '' for a tensor, '[3]' in a sequence.
        dtype: Element type, as numpy calls it.
        data: The values. bfloat16 comes as float32. Other types that numpy lacks come as integers,
            in the order of the numbers that they stand for.
    """

    label: str
    dtype: str
    data: Array


def leaves_of(value: object) -> tuple[Leaf, ...]:
    """Return the arrays of one output: a tensor, a sequence, a map or an absent optional."""
    match value:
        case None:
            return ()
        case np.ndarray():
            return (_leaf("", value),)
        case dict():
            return _map_leaves([value])
        case [dict(), *_]:
            return _map_leaves([entry for entry in value if isinstance(entry, dict)])
        case list():
            return tuple(_leaf(f"[{index}]", np.asarray(v)) for index, v in enumerate(value))
        case _:
            return (_leaf("", np.asarray(value)),)


def _map_leaves(maps: Sequence[Mapping[object, object]]) -> tuple[Leaf, ...]:
    keys = np.array([[str(key) for key in entry] for entry in maps], dtype=object)
    values = np.array([list(entry.values()) for entry in maps])
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    return (_leaf(".keys", keys), _leaf(".values", values))


def _leaf(label: str, data: Array) -> Leaf:
    name = "string" if data.dtype.kind in "OUS" else data.dtype.name
    return Leaf(label, name, data)


Outputs = dict[str, tuple[Leaf, ...]]
Runs = Mapping[int, Outputs]
"""What a model gave, per case."""


@dataclass(frozen=True, eq=False)
class BlockCuts:
    """Where a model is cut into blocks, which run one after the other.

    Attributes:
        create: What runs a model so: it is given a source, a level and an engine.
        ends: For each block but the last: values that it makes, and that others need.
        noted: Further values that are asked for where optimisation is off.
        kept: What the model gave there by what it was fed, so that blocks need not run again; None
            if nothing is kept.
        say: Called with a short phrase before each block.
        results: Where what blocks give is stored until the check is over, so that one that was
            interrupted goes on from there; None for nowhere.
        stored: The files there that this check has to do with.
    """

    create: Callable[..., Any]
    ends: Sequence[Sequence[str]]
    noted: frozenset[str] = frozenset()
    kept: dict[bytes, dict[str, Feed]] | None = None
    say: Callable[[str], None] = lambda _phrase: None
    results: Path | None = None
    stored: set[Path] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.ends) + 1


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, and how it is to be run.

    Attributes:
        path: The file; external data is looked up beside it.
        content: What to run instead of the file's own bytes, if set.
        weights: Values of initializers of *content* that are declared external.
        libraries: Libraries of custom operators that it may use.
        execution: Provider, options and limits.
        name: What messages call it.
        blocks: Where it is cut, if it runs in blocks.
    """

    path: Path
    content: bytes | None = None
    weights: Mapping[str, Array] | None = None
    libraries: tuple[Path, ...] = ()
    execution: Execution = PLAIN
    name: str = "model"
    blocks: BlockCuts | None = None
