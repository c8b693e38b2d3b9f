"""What the check is asked: how two models are compared, how they run, and what they are fed."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dplcli.errors import UsageError, did_you_mean, opt
from dplcli.ir.types import Exempt, summands_stated

# What somebody asks of the inputs: values from elsewhere, ranges, shapes.


InputFunction = Callable[[int], object]
"""Takes a seed and returns a mapping from input names to arrays."""

Sums = Mapping[str, tuple[int | str, ...]]
"""Symbols of inputs that are sums of others, and of numbers."""


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
            if not (parts := summands_stated(size)):
                raise UsageError(
                    f"{opt('shape')} {name}={size}: not a size, nor a sum of sizes",
                    hint=f"write {opt('shape', 'total=past+sequence')}",
                )
            sums[name] = parts
        else:
            shapes[name] = tuple(size)
    ordered: dict[str, tuple[int | str, ...]] = {}  # each after those that it is made of
    while len(ordered) < len(sums):
        left = sums.keys() - ordered.keys()
        ready = [name for name in sums if name in left and left.isdisjoint(sums[name])]
        if not ready:
            name = min(left)
            raise UsageError(
                f"{opt('shape')} {name}={shape[name]}: {name!r} is a part of itself",
                hint="say what a dimension is in terms of others",
            )
        ordered |= {name: sums[name] for name in ready}
    return sizes, shapes, ordered


def assumed_sums(shape: Mapping[str, int | Sequence[int] | str]) -> Sums:
    """Read ``--shape`` where nothing runs: only what a dimension always is matters.

    Raises:
        UsageError: It is a size, or a part of itself.
    """
    sizes, shapes, sums = sizes_and_shapes(shape)
    for name in (*sizes, *shapes):
        raise UsageError(
            f"{opt('shape')} {name}: nothing is run here, so no size is chosen",
            hint=f"say what a dimension always is: {opt('shape', 'total=past+sequence')}",
        )
    return sums


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
        save: Where to write what was fed, as .npz.
        exact_in: Float types that inputs are fed in, too: what is fed, both types hold.

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
    save: Path | None = None
    exact_in: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse impossible wishes before any work is done."""
        if self.given is not None and self.function is not None:
            raise UsageError("inputs come from a file or from a function, not from both")
        for name, (low, high) in self.ranges.items():
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise UsageError(
                    f"the range of {name!r} holds no number: {low:g} to {high:g}",
                    hint=f"write the smaller number first: {opt('range', 'ids=0:1000')}",
                )
        for name, shape in self.shapes.items():
            if any(dim < 0 for dim in shape):
                raise UsageError(f"the shape of {name!r} must not hold a negative number")
        if self.save is not None:
            _check_place(self.save)


def _check_place(path: Path) -> None:
    if path.suffix != ".npz":
        raise UsageError(
            f"{path}: inputs are saved as .npz", hint=f"write {opt('save_inputs', 'inputs.npz')}"
        )
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
        widens: Whether a model that onnxruntime refuses may compute in float32 what it says in
            bfloat16.

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
    widens: bool = False

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
                f"{opt('require')} {self.require}: is no number of partitions",
                hint="write all, any, or a number from 1 on",
            )


def _read_option(key: str, text: str) -> str:
    """Return the value of a session option as onnxruntime reads it."""
    where = f"{opt('session_option')} {key}={text}"
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


# How two models are compared.


REFERENCE_LEVEL = "disable"
"""Optimisation is off where the original says what is right."""

LEVELS = ("disable", "basic", "extended", "all")
_USUAL_LEVELS = ("disable", "all")
_USUAL_SEEDS = (0, 1)


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


@dataclass(frozen=True)
class OfRule:
    """The models are a rule's graph before and after: what it means counts, not how it rounds.

    What both give alike in float64 is the same then, and float64 needs to be as exact as float32
    alone, since attributes are.

    Attributes:
        excused: For which numbers the rule may be wrong.
    """

    excused: frozenset[Exempt] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Check:
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
        sizes: A number per symbolic dimension, or per ``input:axis``.
        request: What the inputs shall be, beyond seeds and sizes.
        custom_ops: Libraries of custom operators to register with onnxruntime for the candidate,
            and for the original if it does not run without.
        execution: Limits for every run; provider and options for the candidate.
        strict: Whether it is a difference, too, if only what is drawn tells and the original gives
            NaN, an infinity or -0 there.
        whole: What the models are parts of; None if they are whole.
        of_rule: What is tried if they are a rule's graph; None for models of somebody's.
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
    sizes: Mapping[str, int] = field(default_factory=dict)
    request: InputRequest = field(default_factory=InputRequest)
    custom_ops: tuple[Path, ...] = ()
    execution: Execution = PLAIN
    strict: bool = False
    whole: Whole | None = None
    of_rule: OfRule | None = None
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
