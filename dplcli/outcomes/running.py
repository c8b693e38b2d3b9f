"""What a model gave when it ran, and how fast it did."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dplcli.errors import counted
from dplcli.keys import keys
from dplcli.outcomes.base import ModelOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.verify import VerificationResult
    from dplcli.verify.values import Array, Feed, Leaf, PartitionTime, Timing
    from dplcli.verify.verdict import KernelReport, PartitionRun


@keys("model=label fed inputs=given level outputs=made kernels verification?", "dpl.run/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunOutcome(ModelOutcome):
    """What a model gave.

    Attributes:
        fed: What it was fed: 'seed 0', or a file.
        feeds: That, by input: an array, a list of arrays for a sequence, or None for an absent
            optional.
        level: The optimisation level of onnxruntime.
        leaves: The arrays of every output.
        kernels: Where its partitions ran, if kernels were asked for.
        verification: What the check of what they gave said; None if that was not asked for.
        output: Where the outputs were written; None for nowhere.
    """

    fed: str
    feeds: Mapping[str, Feed]
    level: str
    leaves: Mapping[str, tuple[Leaf, ...]]
    kernels: KernelReport | None = None
    verification: VerificationResult | None = None
    output: Path | None = None

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no."""
        if self.verification is not None and not self.verification.accepted:
            return self.verification.objections or ("partitions give something else than bodies",)
        return () if self.kernels is None else self.kernels.complaints

    @property
    def inputs(self) -> dict[str, Array]:
        """What it was fed, by input, for ``inputs=``; an absent optional is left out.

        A sequence is an array of objects, each an array.
        """
        return _arrays(self.feeds)

    @property
    def outputs(self) -> dict[str, Array]:
        """What it gave, by output."""
        feeds: dict[str, Feed] = {}
        for name, leaves in self.leaves.items():
            arrays = [leaf.data for leaf in leaves]
            feeds[name] = arrays[0] if [leaf.label for leaf in leaves] == [""] else arrays
        return _arrays(feeds)

    @property
    def given(self) -> list[ArrayFacts]:
        """Every array that it was fed; those of a sequence are many."""
        facts = []
        for name, value in self.feeds.items():
            if isinstance(value, list):
                facts += [ArrayFacts(f"{name}[{n}]", a.dtype.name, a) for n, a in enumerate(value)]
            elif value is not None:
                facts.append(ArrayFacts(name, value.dtype.name, value))
        return facts

    @property
    def made(self) -> list[ArrayFacts]:
        """Every array that it gave; those of a sequence are many."""
        return [
            ArrayFacts(f"{name}{leaf.label}", leaf.dtype, leaf.data)
            for name, leaves in self.leaves.items()
            for leaf in leaves
        ]


def _arrays(values: Mapping[str, Feed]) -> dict[str, Array]:
    import numpy as np  # noqa: PLC0415  # only where a model ran

    found: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found[name] = np.empty(len(value), object)
            found[name][:] = value
        elif value is not None:
            found[name] = value
    return found


@keys("name dtype shape min=figures.0 max=figures.1 mean=figures.2")
class ArrayFacts(NamedTuple):
    """An array that went in or came out.

    Attributes:
        name: The input or output, with its place in a sequence.
        dtype: Element type, as numpy calls it.
        data: The array.
    """

    name: str
    dtype: str
    data: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.data.shape

    @property
    def figures(self) -> tuple[float | None, float | None, float | None]:
        """The least, the largest and the mean number; None where there are none."""
        if self.data.dtype.kind not in "biuf" or not self.data.size:
            return None, None, None
        wide = self.data.astype("float64")
        numbers = map(float, (wide.min(), wide.max(), wide.mean()))
        low, high, mean = (number if math.isfinite(number) else None for number in numbers)
        return low, high, mean


@keys("median=middle quartiles")
class Spread(NamedTuple):
    """Of some numbers the first quartile, the median and the third quartile."""

    low: float
    middle: float
    high: float

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between these lies the middle half."""
        return self.low, self.high

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """Return that of *numbers*."""
        if len(numbers) == 1:
            return cls(*numbers, *numbers, *numbers)
        return cls(*statistics.quantiles(numbers, n=4, method="inclusive"))


@keys("model=label engine cpu wall rounds.cpu=timing.cpu rounds.wall=timing.wall")
@dataclass(frozen=True)
class BenchSide:
    """One of two models that were timed.

    Attributes:
        label: Its file name.
        engine: What it ran in.
        timing: How long it took, round by round.
    """

    label: str
    engine: str
    timing: Timing

    @property
    def cpu(self) -> Spread:
        """How long all its threads took together, in seconds."""
        return Spread.of(self.timing.cpu)

    @property
    def wall(self) -> Spread:
        """How long it took by the clock, in seconds."""
        return Spread.of(self.timing.wall)


@keys(
    "model=labels.0 candidate=labels.1 models=sides ratios quicker fed level threads kernels times",
    "dpl.bench/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BenchOutcome(ModelOutcome):
    """How long two models take, for dpl bench.

    Attributes:
        sides: The model that is the measure, and the other.
        fed: What they were fed: 'seed 0', or a file.
        inputs: That, by input; see :class:`RunOutcome`.
        level: The optimisation level of onnxruntime.
        threads: How many threads each had; 0 for as many as there are cores.
        kernels: Where the partitions of the other ran, if kernels were asked for: in one run.
        times: How long each of these took there.
    """

    sides: tuple[BenchSide, ...]
    fed: str
    inputs: Mapping[str, Feed]
    level: str
    threads: int
    kernels: KernelReport | None = None
    times: tuple[PartitionTime, ...] = ()

    @property
    def labels(self) -> tuple[str, str]:
        """The models' file names."""
        ours, theirs = self.sides
        return ours.label, theirs.label

    @property
    def ratios(self) -> Ratios:
        """How many times as long the other takes.

        They are those of the rounds, each of which saw both models under the same conditions.
        """
        ours, theirs = (side.timing for side in self.sides)
        clocks = (zip(ours.cpu, theirs.cpu, strict=True), zip(ours.wall, theirs.wall, strict=True))
        return Ratios(*(Spread.of([b / max(a, 1e-12) for a, b in rounds]) for rounds in clocks))

    @property
    def ratio(self) -> float:
        """How many times the CPU time of the first model the second takes: the median."""
        return self.ratios.cpu.middle

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no."""
        return () if self.kernels is None else self.kernels.complaints

    @property
    def is_void(self) -> bool:
        """Whether nothing ran on the library that was asked for."""
        return self.kernels is not None and not self.kernels.ran

    @property
    def quicker(self) -> Literal["first", "second"] | None:
        """Which is quicker; None if that cannot be told."""
        low, _, high = self.ratios.cpu
        if self.is_void or low <= 1 <= high:
            return None
        return "second" if high < 1 else "first"


class Ratios(NamedTuple):
    """How many times as long the second of two models takes."""

    cpu: Spread
    wall: Spread


class PlannedPartition(NamedTuple):
    """A partition, and whether a plan has it.

    Attributes:
        call: Name of the call.
        function: What it calls, with the domain.
        library: The library that runs it; empty if it is not in the plan.
        why: Why it is not in the plan.
    """

    call: str
    function: str
    library: str
    why: str


@keys("model=label planned=taken partitions=planned verification? notes", "dpl.kernels/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KernelsOutcome(ModelOutcome):
    """Which partitions a plan of kernels takes, for dpl kernels plan.

    Attributes:
        partitions: Each partition, and where it runs.
        output: Where the plan is, if there are no complaints.
        verification: The model with the plan beside the model without; None if it was not checked.
    """

    partitions: tuple[PartitionRun, ...]
    output: Path
    verification: VerificationResult | None = None

    @property
    def taken(self) -> int:
        """How many partitions are in the plan."""
        return sum(bool(item.library) for item in self.partitions)

    @property
    def found(self) -> str:
        """How many partitions are in the plan, in words."""
        total = counted(len(self.partitions), "partition")
        return f"{self.taken:,} of {total} {'is' if self.taken == 1 else 'are'} in the plan"

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why there is no plan."""
        if not self.partitions:
            return (f"{self.label} has no partition for dnnl, so no plan is written",)
        if not self.taken:
            return (f"{self.found}, so it is not written",)
        if self.verification is not None and not self.verification.accepted:
            return ("the model with the plan fails the check, so it is not written",)
        return ()

    @property
    def planned(self) -> list[PlannedPartition]:
        """Each partition, and whether the plan has it."""
        return [PlannedPartition(p.call, p.function, p.library, p.why) for p in self.partitions]
