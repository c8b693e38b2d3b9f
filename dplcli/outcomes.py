"""What each job answers: frozen values, for programs to read and for reports to show.

``@keys`` says what JSON calls their parts (:mod:`dplcli.report.json` makes it), and what is said
of each part here is what ``dpl schema`` tells a reader.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias

from dplcli.errors import UsageError, VerificationError, counted, some_of
from dplcli.escaping import json_text
from dplcli.files import encoded, write_new_file
from dplcli.ir.model import calls_in
from dplcli.ir.printer import node_window, print_attribute
from dplcli.ir.types import TensorType
from dplcli.keys import keys
from dplcli.language.rule import unmet_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from onnx import ModelProto

    from dplcli.catalog.plan import Plan
    from dplcli.diff import ModelDiff
    from dplcli.ir import Function, Model, Node, Value
    from dplcli.language.explain import NodeExplanation, RuleExplanation
    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import JudgedExpectation, Match, PatternRule, Rejection, Rule
    from dplcli.passes.inline import Inlining
    from dplcli.passes.learn_pattern import LearnedRule
    from dplcli.passes.merge import Region
    from dplcli.passes.nearest import NearestRule
    from dplcli.passes.partition import Partition
    from dplcli.passes.repeat import Family
    from dplcli.passes.rewrite import Application, Missing, Trace
    from dplcli.passes.select import Coverage, Selection, Share
    from dplcli.verify import VerificationResult
    from dplcli.verify.accuracy import Measured
    from dplcli.verify.layers import Layers
    from dplcli.verify.values import Array, Feed, Leaf, PartitionTime, Timing
    from dplcli.verify.verdict import KernelReport, OutputComparison, PartitionRun

    Counts: TypeAlias = tuple[tuple[str, int], ...]
    """What is counted, and how often."""


class Report(Protocol):
    """What is told of an outcome, before it takes a form."""

    @property
    def subject(self) -> str:
        """What it is about."""

    @property
    def verdict(self) -> str:
        """The answer in a few words."""

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no."""

    def json(self) -> Mapping[str, Any]:
        """Return what the command writes for ``--json``."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""


class Stored(Protocol):
    """A model: its file, or what is in it."""

    @property
    def place(self) -> Path | bytes:
        """Its file, or its bytes."""

    def proto(self) -> ModelProto:
        """Return a new message, external data loaded."""

    def save(self, path: Path) -> None:
        """Write it, and its external data beside it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What a job answers. Printed, it is what the command prints; notebooks show the same."""

    _report: Callable[[], Report] | None = None

    def answered(self, report: Callable[[], Report]) -> Self:
        """Return the same outcome with what makes its report."""
        return replace(self, _report=report)

    def document(self) -> Report:
        """Return the report, from which all forms are made.

        Raises:
            LookupError: It is no answer of the functions of dpl, which know how to report it.
        """
        if self._report is None:
            raise LookupError("only what the functions of dpl answer has a report")
        return self._report()

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, a sentence each."""
        return ()

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: the command's exit code is 0."""
        return not self.complaints

    def to_json(self) -> dict[str, Any]:
        """Return what the command writes for ``--json``."""
        record: dict[str, Any] = json.loads(json_text(self.document().json()))
        return record

    def __repr__(self) -> str:
        if self._report is None:
            return object.__repr__(self)
        told = self.document()
        subject, verdict = f" of {told.subject}" * bool(told.subject), told.verdict
        return f"<{type(self).__name__}{subject}{f': {verdict}' * bool(verdict)}>"

    def __str__(self) -> str:
        return repr(self) if self._report is None else str(self.document())

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()  # the name that notebooks know


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelOutcome(Outcome):
    """The model that a job worked on.

    Attributes:
        label: The model's file name.
        notes: What a reader should know about it and the run.
        hints: What would let rules do more, if that was asked for.
    """

    label: str
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredOutcome(ModelOutcome):
    """An answer that is a model; functions take it as they take a path."""

    _stored: Stored | None = None

    def answered(self, report: Callable[[], Report], stored: Stored | None = None) -> Self:
        """Return the same outcome with what makes its report, and the model."""
        return replace(self, _report=report, _stored=stored)

    @property
    def stored(self) -> Stored:
        """Where the model is.

        Raises:
            VerificationError: There is none, because the answer is no.
        """
        if self._stored is None:
            reasons = "; ".join(self.complaints)
            raise VerificationError(f"there is no result: {reasons}")
        return self._stored

    @property
    def model(self) -> ModelProto:
        """The model as a new message, external data loaded.

        Raises:
            VerificationError: There is none, because the answer is no.
        """
        return self.stored.proto()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, and its external data beside it."""
        self.stored.save(Path(path))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ViewOutcome(ModelOutcome):
    """A model to draw.

    Attributes:
        model: The model; the types of its values are inferred.
        costs: The floating-point operations of the nodes of which they are known.
        open_sizes: The dimensions of inputs that are not known, on which other costs depend.
        layers: Parts of the main graph that are alike and make up most of it, each with its nodes.
    """

    model: Model
    costs: Mapping[Node, int] = field(default_factory=dict)
    open_sizes: tuple[str, ...] = ()
    layers: Sequence[Sequence[Node]] = ()


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """What a command said of one of many models: plain data, which travels between processes.

    Attributes:
        label: The model, as it is named.
        status: Whether the answer is yes or no, or there is none.
        verdict: The answer in a few words.
        messages: Why the answer is no, or why there is none.
        hint: What to do about it.
        notes: What else a reader should know.
        figures: Names and numbers, of which a summary has a column each.
        rules: Name, matches or applications, and refusals of each rule that did anything.
        cases: What was tried: group, name, status and message.
        record: The report as JSON, if that is wanted.
        lines: What the command would print, if that is wanted.
        files: What was written, each with the hash of its content.
        seconds: How long it took.
    """

    label: str
    status: Literal["yes", "no", "error"]
    verdict: str = ""
    messages: Sequence[str] = ()
    hint: str = ""
    notes: Sequence[str] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[tuple[str, int, int]] = ()
    cases: Sequence[tuple[str, str, Literal["passed", "failed", "error", "skipped"], str]] = ()
    record: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


# What matches, and why the rest does not.


@keys("model=label counts unmet matches refused hints?", "dpl.match/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MatchOutcome(ModelOutcome):
    """Where rules match.

    Attributes:
        rules: The rules, in listed order.
        selection: Matches taken, and matches refused with reasons.
        expected: The expectations, each with what was found.
    """

    rules: tuple[Rule, ...]
    selection: Selection
    expected: tuple[JudgedExpectation, ...] = ()

    @property
    def unmet(self) -> tuple[str, ...]:
        """The expectations that were not met, a sentence each."""
        return unmet_of(self.expected)

    @property
    def complaints(self) -> tuple[str, ...]:
        """The same: nothing else is asked of matches."""
        return self.unmet

    @property
    def counts(self) -> dict[str, int]:
        """Matches per rule, rules without any included."""
        return {rule.qualified_name: 0 for rule in self.rules} | dict(self.selection.counts)

    @property
    def matches(self) -> Sequence[Match]:
        """The matches taken, in program order."""
        return self.selection.ordered

    @property
    def refused(self) -> Sequence[Rejection]:
        """The matches refused, each with the reason."""
        return self.selection.refused


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


@keys("model=label planned=taken partitions=planned", "dpl.kernels/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KernelsOutcome(ModelOutcome):
    """Which partitions a plan of kernels takes, for dpl kernels plan.

    Attributes:
        partitions: Each partition, and where it runs.
        output: Where the plan is, if any partition is in it.
    """

    partitions: tuple[PartitionRun, ...]
    output: Path

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
        return () if self.taken else (f"{self.found}, so it is not written",)

    @property
    def planned(self) -> list[PlannedPartition]:
        """Each partition, and whether the plan has it."""
        return [PlannedPartition(p.call, p.function, p.library, p.why) for p in self.partitions]


@keys("model=label rules verdicts left_out?", "dpl.explain/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExplainOutcome(ModelOutcome):
    """Why rules match where they do, and not elsewhere.

    Attributes:
        rules: What became of each rule.
        verdicts: What each rule says of the node asked about; empty if none was.
        left_out: The nodes that no match has, if that was asked: the nearest rule of each.
    """

    rules: tuple[RuleExplanation, ...]
    verdicts: tuple[NodeExplanation, ...] = ()
    left_out: tuple[NearestRule, ...] | None = None

    @property
    def node(self) -> tuple[NodeExplanation, ...]:
        """What each rule says of the node asked about."""
        return self.verdicts


# What became of a model that was changed.


NOTHING_WRITTEN = "nothing was written"


@keys("objection verification stripped? external_data=data? fault?")
@dataclass(frozen=True)
class Delivery:
    """Whether a result is sound, and where it was written.

    Attributes:
        objection: What onnx.checker says of it though it accepts the original, or "".
        verification: The numerical check; None if it was not made.
        output: The file written; None if nothing was, because the answer is no.
        kept: Where a failed result was kept for a look.
        size: How many bytes the file has, external data apart.
        data: How many bytes of external data were put into a file of its own; None if all lie
            where the model had them.
        used: How many bytes of external data it uses, wherever they lie.
        unused: How many more bytes the files have in which those lie.
        stripped: How many bytes each kind took that was left out, as asked.
        fault: What onnx says against a model that was not changed, or "".
        linked: The model's own data files that have a second name now.
    """

    objection: str = ""
    verification: VerificationResult | None = None
    output: Path | None = None
    kept: Path | None = None
    size: int = 0
    data: int | None = None
    used: int = 0
    unused: int = 0
    stripped: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""
    linked: tuple[Path, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know, beside what the check of numbers has to say."""
        said = (f"onnx objects to the model: {self.fault}",) if self.fault else ()
        if not self.linked:
            return said
        named = some_of([path.name for path in self.linked])
        refused = "onnx refuses that, in the result and in the model itself, until one is removed"
        copied = "onnxruntime reads both (--external-data copy makes a copy)"
        return (*said, f"{named} has two names now: {refused}; {copied}")

    @property
    def complaint(self) -> str:
        """Why the result is not sound; "" if it is."""
        if self.objection:
            return f"onnx.checker refuses the result: {self.objection}"
        return "" if self.verification is None else self.verification.complaint

    @property
    def failures(self) -> list[str]:
        """The same, with what to do; none if it is sound."""
        mend = "; mend the rule that made this, which dpl bisect finds" if self.objection else ""
        return [f"{self.complaint}{mend}"] if self.complaint else []

    @property
    def is_sound(self) -> bool:
        """Whether the result is valid, and equivalent as far as checked."""
        equivalent = self.verification is None or self.verification.accepted
        return equivalent and not self.objection


@keys("rule node reason", columns="taken_back=rule where reason:prose")
class TakenBack(NamedTuple):
    """What was done, and left out again because the check said no.

    Attributes:
        rule: The rule, or what else was done.
        node: Where; "" for everywhere.
        reason: What the check said.
    """

    rule: str
    node: str
    reason: str

    def __str__(self) -> str:
        """Say what was taken back, and why."""
        where = f"at {self.node!r}" if self.node else "everywhere"
        return f"{self.rule} {where}: {self.reason}"

    @property
    def where(self) -> str:
        """The node, or that it is everywhere."""
        return self.node or "everywhere"


_MOST_NAMED = 10


def _figures(what: str, nodes: tuple[int, int], done: tuple[str, int]) -> Counts:
    before, after = nodes
    return (f"{what} before", before), (f"{what} after", after), done


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WrittenOutcome(StoredOutcome):
    """A model that was made from another.

    Attributes:
        delivery: What is said of the result, and where it is.
        is_verified: Whether a check was asked for.
        taken_back: What failed the check and was left out of the result.
    """

    delivery: Delivery = Delivery()
    is_verified: bool = False
    taken_back: tuple[TakenBack, ...] = ()

    @property
    def path(self) -> Path | None:
        """Where it was written; None for nowhere."""
        return self.delivery.output

    @property
    def verification(self) -> VerificationResult | None:
        """The numerical check; None if it was not made."""
        return self.delivery.verification

    @property
    def verdict(self) -> Literal["equivalent", "different", "inconclusive", "unverified"]:
        """Whether it computes what the model does."""
        if self.verification is not None:
            return self.verification.answer
        is_same = self.is_verified and self._stored is not None
        return "equivalent" if is_same else "unverified"  # what was not changed needs no check

    @property
    def equivalent(self) -> bool:
        """Whether the check says so."""
        return self.verdict == "equivalent"

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: valid, and equivalent as far as checked."""
        return self.delivery.is_sound

    @property
    def failures(self) -> list[str]:
        """Reasons for a no that the comparison does not give, a sentence each."""
        return self.delivery.failures

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, and where a result that failed is."""
        kept = self.delivery.kept
        return (*self.failures, NOTHING_WRITTEN if kept is None else f"kept as {kept}")


@keys(
    "model=label counts calls=inlining.calls refused=inlining.refused removed=inlining.removed "
    "nodes.before=nodes.0 nodes.after=nodes.1 *=delivery taken_back?",
    "dpl.inline/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InlineOutcome(WrittenOutcome):
    """Which functions were put in the place of their calls.

    Attributes:
        inlining: The calls replaced, those that stay, and the functions removed.
        nodes: Nodes of the main graph before and after, but for Constants.
        functions: How many functions the model had.
        is_sorted: Whether the nodes had to be brought into topological order.
    """

    inlining: Inlining
    nodes: tuple[int, int]
    functions: int
    is_sorted: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """How many calls of each function were replaced, functions without any included."""
        names = {function.qualified_name: 0 for function in self.inlining.functions}
        return names | Counter(item.function.qualified_name for item in self.inlining.calls)

    @property
    def figures(self) -> Counts:
        """How many nodes there were and are, and what was done."""
        done = ("calls inlined", len(self.inlining.calls))
        return _figures("nodes of the main graph", self.nodes, done)

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        return self.is_sorted or bool(self.inlining.calls or self.inlining.removed)


@keys(
    "model=label inputs outputs weights operators data notes nodes.before=nodes.0 "
    "nodes.after=nodes.1",
    "dpl.extract/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExtractOutcome(WrittenOutcome):
    """A part that was cut out of a model.

    Attributes:
        inputs: What it is given, those that were named first.
        outputs: What it returns.
        nodes: Nodes of the main graph of the model, and of the part.
        weights: How many initializers it has.
        operators: How many of its nodes have which operator, the most frequent first.
        data: Bytes of its external data.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, int]
    weights: int
    operators: Mapping[str, int]
    data: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes each operator has in it, in its main graph."""
        return dict(self.operators)

    @property
    def figures(self) -> Counts:
        """How many nodes the model and the part have."""
        return _figures("nodes", self.nodes, ("nodes taken", self.nodes[1]))


@keys("counts rounds proof unproved nodes.before=nodes.0 nodes.after=nodes.1")
@dataclass(frozen=True)
class Preparation:
    """What was rewritten before matches were outlined.

    Attributes:
        counts: How often each rule was applied, of those that were.
        rounds: How many rounds changed something.
        nodes: Nodes of all graphs before and after, but for Constants.
        proof: What is proved by structure of the result and the prepared model, or "".
        unproved: Why nothing is, if that was tried, or "".
    """

    counts: Mapping[str, int]
    rounds: int
    nodes: tuple[int, int]
    proof: str = ""
    unproved: str = ""


@keys(
    "model=label counts unmet partitions refused coverage=covered *=delivery regions hints? "
    "prepared? taken_back?",
    "dpl.partition/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartitionOutcome(MatchOutcome, WrittenOutcome):
    """What was outlined as functions, by dpl partition and dpl repeat.

    Attributes:
        partitions: The calls written, in program order.
        nodes: Nodes of the main graph before and after, but for Constants.
        coverage: How much of the work is inside the functions; None if it was not measured.
        regions: What the targets are handed, in program order; None if nothing was to be merged.
        is_sorted: Whether the nodes had to be brought into topological order.
        written: How many functions were written for each rule, if that was counted.
        prepared: What was rewritten first; None if nothing was to be.
    """

    partitions: Sequence[Partition]
    nodes: tuple[int, int]
    coverage: Coverage | None = None
    regions: tuple[Region, ...] | None = None
    is_sorted: bool = False
    written: Mapping[str, int] | None = None
    prepared: Preparation | None = None

    @property
    def figures(self) -> Counts:
        """How many nodes there were and are, and what was done."""
        done = ("partitions", len(self.partitions))
        return _figures("nodes of the main graph", self.nodes, done)

    @property
    def failures(self) -> list[str]:
        """Reasons for a no that the comparison does not give, a sentence each."""
        return [*self.unmet, *self.delivery.failures]

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, and where a result that failed is."""
        return super(MatchOutcome, self).complaints  # what WrittenOutcome says

    @property
    def covered(self) -> Covered:
        """How many nodes are inside functions, and what that costs if it was measured."""
        return Covered.of_selection(self.selection, self.coverage)

    @property
    def functions(self) -> Mapping[str, int]:
        """How many functions were written for each rule that has matches."""
        if self.written is not None:
            return self.written
        keys = {(item.match.rule.qualified_name, item.function.key) for item in self.partitions}
        return Counter(rule for rule, _ in keys)

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        merged = any(region.members for region in self.regions or ())
        return self.is_sorted or bool(self.partitions) or merged

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.delivery.is_sound and not self.unmet


@keys("covered of flops?")
class CoveredOp(NamedTuple):
    """How many nodes of an operator are inside functions, and what they cost."""

    covered: int
    of: int
    flops: Share | None = None


@keys("nodes of by_op *=measured")
class Covered(NamedTuple):
    """How much of a model is inside functions."""

    nodes: int
    of: int
    by_op: Mapping[str, CoveredOp]
    measured: Coverage | None = None

    @classmethod
    def of_selection(cls, selection: Selection, measured: Coverage | None) -> Covered:
        """Count nodes as the selection does; what was *measured* has to agree."""
        inside, of = selection.share
        if measured is not None:
            left = sum(item.work.nodes for item in measured.left_out)
            assert (inside, of) == (measured.total.inside.nodes, inside + left)  # noqa: S101  # one count
        shares = {} if measured is None else measured.by_op
        covered = selection.covered
        by_op = {
            op: CoveredOp(covered.get(op, 0), count, shares.get(op))
            for op, count in selection.counted.items()
        }
        return cls(inside, of, by_op, measured)


@keys("... families")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RepeatOutcome(PartitionOutcome):
    """What was outlined as functions of repeated blocks, by dpl repeat.

    Attributes:
        families: The kinds of blocks; blocks inside other blocks come after these.
        size: Bytes of the file before and after, external data not counted; the second is 0 if
            none was made.
    """

    families: tuple[Family, ...]
    size: tuple[int, int] = (0, 0)


@keys("rule round applications=applications.number reason")
@dataclass(frozen=True)
class BrokenTurn:
    """The first turn of a rule that broke the model.

    Attributes:
        rule: The rule's name; "" if the model was broken before any rule had a turn.
        round: The round.
        applications: What the rule did in it.
        reason: What is wrong.
        delivery: What became of the result.
    """

    rule: str
    round: int
    applications: tuple[Application, ...]
    reason: str
    delivery: Delivery

    @property
    def told(self) -> list[str]:
        """What is wrong, and what the rule did, a line each."""
        culprit = f"the rule {self.rule}" if self.rule else "raising the opset"
        when = f" in round {self.round}" if self.rule else ""
        done = [f"  {item.number}. {item.text}" for item in self.applications]
        if (left := len(done) - _MOST_NAMED) > 0:
            done = [*done[:_MOST_NAMED], f"  and {left} more"]
        return [f"{culprit} breaks the model{when}: {self.reason}", *done]


class Ends(NamedTuple):
    """A number before and after."""

    before: int
    after: int


@keys(
    "model=label counts unmet applications rounds refused missing=misfits broken "
    "nodes.before=nodes.0 nodes.after=nodes.1 nodes.by_op=by_op bytes.before=size.0 "
    "bytes.after=size.1 growth *=delivery hints? taken_back?",
    "dpl.rewrite/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteOutcome(WrittenOutcome):
    """What was replaced, by dpl rewrite and dpl apply.

    Attributes:
        rules: The rules, in listed order.
        counts: How often each rule was applied.
        untried: Names of the rules that were not to be tried.
        applications: What was done, in order.
        rounds: How many rounds changed something.
        refused: Matches that were not replaced, at nodes that are still there.
        ops: Nodes of every graph by operator, before and after.
        size: Bytes of the model and the external data that it uses, before and after.
        is_changed: Whether the result differs from the model at all.
        expected: The expectations, each with what was found.
        growth: Why the model grew too much, or "".
        plan: The plan that was applied; None for none.
        missing: The entries of the plan that did not fit.
        broken: The turn that broke the model, if each was checked and one did.
        is_dry: Whether nothing was to be written.
        is_stopped: Whether a limit ended it.
        may_miss: Whether entries of a plan that do not fit are left out.
    """

    rules: tuple[RewriteRule, ...]
    counts: Mapping[str, int]
    applications: Sequence[Application]
    rounds: int
    refused: tuple[Rejection, ...]
    ops: tuple[Mapping[str, int], Mapping[str, int]]
    size: tuple[int, int]
    is_changed: bool
    untried: frozenset[str] = frozenset()
    expected: tuple[JudgedExpectation, ...] = ()
    growth: str = ""
    plan: Plan | None = None
    missing: tuple[Missing, ...] = ()
    broken: BrokenTurn | None = None
    is_dry: bool = False
    is_stopped: bool = False
    may_miss: bool = False

    @property
    def unmet(self) -> tuple[str, ...]:
        """The expectations that were not met, a sentence each."""
        return unmet_of(self.expected)

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes there were and are, in all graphs, but for Constants, which are data."""
        before, after = (sum(ops.values()) - ops.get("Constant", 0) for ops in self.ops)
        return before, after

    @property
    def figures(self) -> Counts:
        """How many nodes there were and are, and what was done."""
        return _figures("nodes", self.nodes, ("applications", len(self.applications)))

    @property
    def failures(self) -> list[str]:
        """Reasons for a no that the comparison does not give, a sentence each."""
        missing = () if self.may_miss else self.misfits
        reasons = [*self.unmet, *missing, *filter(None, [self.growth])]
        return [*reasons, *(self.delivery.failures if self.broken is None else self.broken.told)]

    @property
    def by_op(self) -> Mapping[str, Ends]:
        """How many nodes of each operator there were and are."""
        before, after = self.ops
        ops = sorted(before.keys() | after.keys())
        return {op: Ends(before.get(op, 0), after.get(op, 0)) for op in ops}

    @property
    def misfits(self) -> tuple[str, ...]:
        """The entries of the plan that do not fit: the line, and why, a sentence each."""
        if (plan := self.plan) is None:
            return ()
        return tuple(
            f"{plan.place(at)}: {at.rule} does not fit at {at.output!r} in {at.scope}: {reason}"
            for at, reason in self.missing
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, and where a result that failed is, if one was to be written."""
        return tuple(self.failures) if self.is_dry else super().complaints

    @property
    def is_wanted(self) -> bool:
        """Whether expectations and limits are met, apart from the check."""
        fits = self.may_miss or not self.missing
        return fits and self.broken is None and not self.unmet and not self.growth

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.is_wanted and self.delivery.is_sound


# What catalogues offer, whether it does what it says, and a rule learned from an example.


@dataclass(frozen=True)
class LibraryState:
    """A library that runs partitions.

    Attributes:
        version: Its version; "" if there is none that can be used.
        path: Its file, as it was loaded.
        looked_for: The files that were tried, in order.
        problem: Why one that is there cannot be used: it is too old, or known to be faulty.
        features: What it uses of the CPU, of what some arithmetics need.
    """

    version: str
    path: str
    looked_for: tuple[str, ...]
    problem: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What dpl runs on.

    Attributes:
        system: The operating system and the processor.
        providers: The execution providers of onnxruntime.
        is_isolated: Whether models run in processes of their own.
        missing: For each extra, the packages that it lacks.
        catalogs: The catalogues that can be named, and who offers them.
        libraries: The libraries that run partitions, by their names.
        problems: What is wrong, a sentence each.
    """

    system: str
    providers: tuple[str, ...]
    is_isolated: bool
    missing: Mapping[str, tuple[str, ...]]
    catalogs: Mapping[str, str]
    libraries: Mapping[str, LibraryState]
    problems: tuple[str, ...]


@keys(columns="catalogue=name from=origin target rules:count =doc:prose")
@dataclass(frozen=True)
class CatalogEntry:
    """A catalogue that can be named.

    Attributes:
        name: Its name.
        origin: "dpl", or the package that offers it.
        target: The target of its functions, or "".
        doc: What it is for; empty for one of a package, which is code and not run to find out.
        rules: How many rules it has; None if that is not known without running it.
    """

    name: str
    origin: str
    target: str = ""
    doc: str = ""
    rules: int | None = None


@dataclass(frozen=True)
class Trial:
    """One attempt at a rule.

    Attributes:
        rule: The rule.
        kind: "example" or "made up".
        place: Where the example is written, which variant of the pattern was made up, or how many
            graphs were.
        verdict: "passed", "failed", "not tried" (nothing could be made up), or "by example"
            (neither, but the rule has examples that it applies to: they are its trials). Those of
            an installed catalogue stayed in the sources of dpl, whose tests run them.
        reason: Why it failed or was not tried.
        graphs: How many graphs were made up that the rule applies to.
        counterexample: The smallest graph found on which the rule is wrong, as ONNX text; or "".
        tried: What the graphs had: opsets, types, ranks, forms of the pattern, attributes.
        behaviours: What the operators before and after may do, in words, and whether some graph
            showed it.
        notes: Where results differ, and why that is no fault.
    """

    rule: PatternRule | RewriteRule
    kind: Literal["example", "made up"]
    place: str
    verdict: Literal["passed", "failed", "not tried", "by example"]
    reason: str = ""
    graphs: int = 0
    counterexample: str = ""
    tried: tuple[str, ...] = ()
    behaviours: Mapping[str, bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """How many of the behaviours were seen, in words; "" if there are none."""
        count = len(self.behaviours)
        return f"{sum(self.behaviours.values())} of {count} behaviours" if count else ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RulesOutcome(Outcome):
    """Rules that were learned: as values, for ``patterns=``, and as the text of a catalogue.

    Attributes:
        yaml: The catalogue that holds them; "" if there are none.
    """

    yaml: str = ""

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rules."""
        raise NotImplementedError

    @property
    def ok(self) -> bool:
        """Whether there are any."""
        return bool(self.rules)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the catalogue to a new file.

        Raises:
            UsageError: There is such a file, or it cannot be written.
        """
        try:
            write_new_file(Path(path), encoded(self.yaml))
        except FileExistsError as error:
            raise UsageError(f"{path}: exists", hint="choose another name") from error
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from error

    def __str__(self) -> str:
        return self.yaml

    def _repr_html_(self) -> str:
        from html import escape  # noqa: PLC0415  # only in a notebook

        return f"<pre>{escape(self.yaml)}</pre>"


@keys("model=label rules=all_learned notes=learned.notes", "dpl.learn/1")
@dataclass(frozen=True, eq=False, repr=False)
class LearnOutcome(RulesOutcome):
    """Rules learned from nodes of a model, or from two models.

    Attributes:
        label: The model's file name.
        learned: The rule, and what was generalised.
    """

    label: str
    learned: LearnedRule

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rule."""
        return [self.learned.rule]

    @property
    def all_learned(self) -> tuple[LearnedRule, ...]:
        """The rules."""
        return (self.learned,)


@keys(
    "*=rule places trial.verdict=trial.verdict trial.reason=trial.reason trial.graphs=trial.graphs"
)
@dataclass(frozen=True)
class LearnedRewrite:
    """A rule that replaces, learned from places at which two models differ.

    Attributes:
        rule: The rule.
        places: How many places it was learned from.
        trial: What became of it on graphs made up for it.
    """

    rule: RewriteRule
    places: int
    trial: Trial


class LeftPlaces(NamedTuple):
    """Changed places that no rule explains.

    Attributes:
        what: What they are, and why no rule explains them.
        places: How many there are.
        counterexample: The graph on which the rule learned from them is wrong; "" for none.
    """

    what: str
    places: int
    counterexample: str = ""


@keys(
    "model=before candidate=after rules=learned unproved explained left beyond spent? *=checked "
    "verification=checked.verification not_run?",
    "dpl.learn/1",
)
@dataclass(frozen=True, eq=False, repr=False)
class RewritesOutcome(RulesOutcome):
    """What leads from one model to another.

    Attributes:
        before: The first model's file name.
        after: The second one's.
        learned: The rules, those of more nodes first.
        unproved: Rules that were neither proved nor refuted, and are commented out.
        explained: How many changed places they explain.
        left: The changed places that no rule explains: what they are and why, and how many.
        beyond: How many places the rules change that the second model has as the first.
        spent: The budget, if it was spent before all was looked at; None if it was not.
        delivery: Whether the first model computes the same when they are applied, or why that could
            not be asked; None if it was not asked.
    """

    before: str
    after: str
    learned: tuple[LearnedRewrite, ...]
    unproved: tuple[LearnedRewrite, ...]
    explained: int
    left: tuple[LeftPlaces, ...]
    beyond: int
    spent: int | None = None
    delivery: Delivery | str | None = None

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """The rules."""
        return [item.rule for item in self.learned]

    @property
    def checked(self) -> Delivery | None:
        """What the check said, if it ran."""
        return None if isinstance(self.delivery, str) else self.delivery

    @property
    def not_run(self) -> str:
        """Why that could not be asked, or ""."""
        return self.delivery if isinstance(self.delivery, str) else ""


# In what two models differ, and what makes them.


@keys("model=labels.0 candidate=labels.1 *=difference", "dpl.diff/1")
@dataclass(frozen=True, eq=False, repr=False)
class DiffOutcome(Outcome):
    """In what two models differ.

    Attributes:
        labels: The models' file names.
        difference: In what they differ.
    """

    labels: tuple[str, str]
    difference: ModelDiff

    @property
    def equal(self) -> bool:
        """Whether the structures do not differ."""
        return self.difference.is_equal

    @property
    def ok(self) -> bool:
        """The same."""
        return self.equal


@keys("rule scope root.op_type=op_type root.output=output change=text")
@dataclass(frozen=True)
class BisectStep:
    """One application of a rule, or one partition.

    Attributes:
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.model.scope_of` names it.
        op_type: Operator of the node that the match is rooted in.
        output: Name of that node's first output.
        covered: Names of what the nodes make that it takes out.
        text: What became of which nodes, for a reader.
    """

    rule: str
    scope: str
    op_type: str
    output: str
    covered: tuple[str, ...] = ()
    text: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Which rule it is of, and where."""
        return self.rule, self.scope, self.op_type, self.output

    @property
    def label(self) -> str:
        """Name it: ``fuse.add at Relu 'y'``."""
        where = "" if self.scope == "main" else f" in {self.scope}"
        return f"{self.rule} at {self.op_type} {self.output!r}{where}"


@dataclass(frozen=True)
class BisectTrial:
    """The result of some of the steps.

    Attributes:
        applied: The steps that fitted.
        reason: What is wrong with the result, in one line; "" if nothing is.
        levels: At which optimisation levels it is wrong.
        seed: For which seed it is worst.
    """

    applied: tuple[BisectStep, ...]
    reason: str = ""
    levels: tuple[str, ...] = ()
    seed: int = 0


@keys(
    "culprits needed reason=trial.reason levels=trial.levels seed=trial.seed alike reproducer nodes"
)
@dataclass(frozen=True)
class Cause:
    """A smallest set of steps that breaks the model.

    Attributes:
        culprits: The steps that do it.
        needed: Steps that they build on: without them there is nothing to apply them to.
        trial: What is wrong with these steps alone.
        alike: How many steps of the culprits' rules there are in all.
        reproducer: The folder with a small model that shows it; None if none was written.
        nodes: How many nodes that model has, and the model had; (0, 0) if none was written.
        is_hidden: Whether a reproducer was wanted, but nothing shows the fault outside of a
            verification of the whole.
    """

    culprits: tuple[BisectStep, ...]
    needed: tuple[BisectStep, ...]
    trial: BisectTrial
    alike: int
    reproducer: Path | None = None
    nodes: tuple[int, int] = (0, 0)
    is_hidden: bool = False

    @property
    def steps(self) -> tuple[BisectStep, ...]:
        """All of them, in order."""
        return (*self.needed, *self.culprits)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the culprits, each once."""
        return tuple(dict.fromkeys(step.rule for step in self.culprits))


@keys(
    "model=label over=kind equivalent=is_equivalent applications=steps.len trials "
    "complete=is_complete causes unjudged",
    "dpl.bisect/1",
)
@dataclass(frozen=True)
class BisectOutcome:
    """What breaks a model: steps of rules, or, over nodes, a place in two models.

    Attributes:
        label: The model's file name.
        kind: ``rewrite`` or ``partition``.
        rules: The rules, in listed order.
        steps: What the rules do, in order.
        causes: What breaks the model; empty if nothing does.
        unjudged: Steps that were not looked at: they build on steps of a rule found wrong.
        is_complete: Whether what is left, causes set aside, was seen to be equivalent.
        trials: How many parts were compared with the original.
    """

    label: str
    kind: Literal["rewrite", "partition"]
    rules: tuple[Rule, ...]
    steps: tuple[BisectStep, ...]
    causes: tuple[Cause, ...] = ()
    unjudged: tuple[BisectStep, ...] = ()
    is_complete: bool = True
    trials: int = 0

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing is wrong."""
        return not self.causes


@keys(
    "model=label equivalent=is_equivalent applies=fitted objection verification",
    "dpl.reproduced/1",
)
@dataclass(frozen=True)
class Reproduced:
    """What running a reproducer showed.

    Attributes:
        label: Name of the folder.
        objection: What is wrong with the result of its rules, so that it was not run; or "".
        verification: How the two models in it compare; None if they were not run.
        fitted: Whether all of its steps could be applied.
    """

    label: str
    objection: str = ""
    verification: VerificationResult | None = None
    fitted: bool = True

    @property
    def is_equivalent(self) -> bool:
        """Whether the fault is gone."""
        return not self.differs

    @property
    def differs(self) -> bool:
        """Whether it still shows the fault."""
        compared = self.verification
        return bool(self.objection) or (compared is not None and not compared.equivalent)


@keys(
    "original candidate aligned_by=how reason level nodes.original=nodes.0 "
    "nodes.candidate=nodes.1 reproducer"
)
@dataclass(frozen=True)
class Divergence:
    """Where one model leaves another.

    Attributes:
        original: The first value that differs though all that flows into it agrees, or is given to
            both.
        candidate: Its name in the candidate.
        how: What aligned the two.
        reason: How they differ.
        nodes: The nodes that compute it from there, of the original and of the candidate.
        total: How many nodes the models have.
        level: Optimisation level at which the candidate ran.
        reproducer: The folder with both parts; None if none was written.
    """

    original: str
    candidate: str
    how: str
    reason: str
    nodes: tuple[tuple[str, ...], tuple[str, ...]]
    total: tuple[int, int]
    level: str
    reproducer: Path | None = None


@keys(
    "model=labels.0 candidate=labels.1 over equivalent=is_equivalent "
    "verdict=verification.verdict remark place layers verification",
    "dpl.bisect/1",
)
@dataclass(frozen=True)
class ModelsOutcome:
    """Where two models part: a bisection over nodes.

    Attributes:
        labels: The models' file names.
        verification: The verdict on both as a whole.
        layers: How they compare inside; None if that was not looked at.
        place: Where they part; None if they do not, or no place was found.
        remark: Why no place was found; "" if one was, or nothing was looked for.
    """

    over: ClassVar[Literal["nodes"]] = "nodes"
    labels: tuple[str, str]
    verification: VerificationResult
    layers: Layers | None = None
    place: Divergence | None = None
    remark: str = ""

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing is wrong, and the check can tell."""
        return self.verification.accepted


@keys("model=labels.0 candidate=labels.1 *=verification layers=inside? hints?", "dpl.verify/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VerifyOutcome(Outcome):
    """Whether two models compute the same.

    Attributes:
        labels: The models' file names; "" for one that is saved results.
        verification: The comparison.
        layers: The values inside, compared; why they were not; or None if nobody asked.
    """

    labels: tuple[str, ...]
    verification: VerificationResult
    layers: Layers | str | None = None

    @property
    def verdict(self) -> Literal["equivalent", "different", "inconclusive"]:
        """The answer."""
        return self.verification.answer

    @property
    def equivalent(self) -> bool:
        """Whether they compute the same, as far as the check can tell."""
        return self.verdict == "equivalent"

    @property
    def ok(self) -> bool:
        """Whether that is enough: partitions ran as asked, too, and the check is strong enough."""
        return self.verification.accepted

    @property
    def outputs(self) -> tuple[OutputComparison, ...]:
        """How each output compares, at each level."""
        return self.verification.outputs

    @property
    def inside(self) -> Layers | None:
        """The values inside, compared."""
        return None if isinstance(self.layers, str) else self.layers

    @property
    def hints(self) -> tuple[str, ...]:
        """What tells more of a candidate that is meant to differ."""
        result = self.verification
        if result.verdict == "equivalent" or not (result.is_quantised or result.retyped):
            return ()
        what = "quantised" if result.is_quantised else "of another precision"
        names = shlex.join(self.labels)
        told = f"dpl accuracy {names} --layers tells how near it is, and where accuracy is lost"
        return (f"the candidate is {what}, and so it differs by design: {told}",)


@keys(
    "model=labels.0 candidate=labels.1 *=measured bounds unmet",
    "dpl.accuracy/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AccuracyOutcome(Outcome):
    """How near a model comes to one that it approximates.

    Attributes:
        labels: The models' file names.
        measured: The figures.
        bounds: What was asked for: the least SQNR in decibels, cosine and agreement.
    """

    labels: tuple[str, str]
    measured: Measured
    bounds: Mapping[str, float]

    @property
    def misses(self) -> tuple[tuple[str, str], ...]:
        """Why the answer is no: the output, or "" for all, and what is wrong with it."""
        outputs = self.measured.outputs
        lost = ((each.name, each.accuracy.lost) for each in outputs)
        misses = [(n, f"{counted(k, 'element')} finite in one model alone") for n, k in lost if k]
        for figure, least in self.bounds.items():
            asked = f"at least {least:g} is asked for"
            word = {"sqnr": "SQNR"}.get(figure, figure)
            values = [(each.name, getattr(each.accuracy, figure)) for each in outputs]
            reached = [(name, value) for name, value in values if value is not None]
            if not reached:
                article = "a" if figure == "cosine" else "an"
                misses.append(("", f"no output has {article} {word}; {asked}"))
            low = [(name, value) for name, value in reached if not value >= least]
            misses += [(name, f"{word} {value:.6g}; {asked}") for name, value in low]
        return tuple(misses)

    @property
    def complaints(self) -> tuple[str, ...]:
        """The same, a sentence each."""
        return self.unmet

    @property
    def unmet(self) -> tuple[str, ...]:
        """The same, a sentence each."""
        return tuple(f"{name}: {why}" if name else why for name, why in self.misses)


# What a model is made of.


class TypedValue(NamedTuple):
    """A value and its type, as far as it is known."""

    name: str
    dtype: str | None
    shape: Sequence[int | str | None] | None

    @classmethod
    def of(cls, value: Value) -> TypedValue:
        """Return what is known of *value*."""
        known = value.known_type()
        return cls(value.name, known and known.dtype, known and known.shape)

    def __str__(self) -> str:
        """Write it as ONNX text does."""
        if self.dtype is None:
            return f"{self.name} (not a tensor)"
        shape = None if self.shape is None else tuple(self.shape)
        return f"{self.name} {TensorType(self.dtype, shape)}"


@keys("*=function nodes=function.body.node_count calls composite")
class FunctionUse(NamedTuple):
    """A function, and how many nodes call it."""

    function: Function
    calls: int

    @property
    def composite(self) -> str:
        """The rule that it was made by."""
        return self.function.metadata.get("Composite", "")


@dataclass(frozen=True)
class Weights:
    """How many initializers there are, their elements, and how many lie in other files."""

    count: int
    elements: int
    external: int


@keys(
    "model=label ir_version=ir.ir_version opsets inputs outputs nodes.total=total "
    "nodes.main=ir.graph.node_count nodes.by_op=counts initializers=weights overridable functions "
    "notes",
    "dpl.inspect/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InspectOutcome(StoredOutcome):
    """What a model is made of.

    Attributes:
        ir: The model.
    """

    ir: Model

    @property
    def opsets(self) -> Mapping[str, int]:
        """The versions of the operators of each domain."""
        return {domain or "ai.onnx": n for domain, n in sorted(self.ir.opset_imports.items())}

    @property
    def inputs(self) -> list[TypedValue]:
        """What has to be given."""
        return [TypedValue.of(v) for v in self.ir.graph.inputs if not v.is_initializer]

    @property
    def outputs(self) -> list[TypedValue]:
        """What it gives."""
        return [TypedValue.of(value) for value in self.ir.graph.outputs]

    @property
    def overridable(self) -> list[TypedValue]:
        """Inputs with a default."""
        return [TypedValue.of(value) for value in self.ir.graph.inputs if value.is_overridable]

    @property
    def total(self) -> int:
        """How many nodes all graphs have."""
        return self.ir.node_count

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes of each operator all graphs have, the most frequent first."""
        counts = Counter(node.qualified_op for graph in self.ir.graphs() for node in graph)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def weights(self) -> Weights:
        """The initializers."""
        tensors = [
            self.ir.codec.tensor(value.initializer_source)
            for graph in self.ir.graphs()
            for value in graph.initializers
        ]
        size, external = sum(t.size for t in tensors), sum(t.is_external for t in tensors)
        return Weights(len(tensors), size, external)

    @property
    def functions(self) -> list[FunctionUse]:
        """The functions."""
        return [FunctionUse(each, len(calls)) for each, calls in calls_in(self.ir).items()]


@keys("*=node scope=node.scope inputs outputs attributes window")
class NodeView(NamedTuple):
    """A node and what is around it."""

    node: Node

    @property
    def inputs(self) -> list[TypedValue | None]:
        """What it reads."""
        return [None if each is None else TypedValue.of(each) for each in self.node.inputs]

    @property
    def outputs(self) -> list[TypedValue | None]:
        """What it makes."""
        return [None if each is None else TypedValue.of(each) for each in self.node.outputs]

    @property
    def made(self) -> str:
        """What it makes, with the types, in words."""
        values = [(value.name, value.known_type()) for value in self.node.outputs if value]
        return ", ".join(name if kind is None else f"{name} {kind}" for name, kind in values)

    @property
    def attributes(self) -> Mapping[str, str]:
        """Its attributes, as text."""
        return {name: print_attribute(each) for name, each in self.node.attributes.items()}

    @property
    def window(self) -> list[str]:
        """The nodes around it, as text."""
        return node_window(self.node)


@keys("model=label nodes", "dpl.node/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodesOutcome(ModelOutcome):
    """Nodes of a model, for dpl inspect --node and --nodes.

    Attributes:
        nodes: The nodes.
    """

    nodes: tuple[NodeView, ...]


@keys("model=label turns=trace.turns", "dpl.trace/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TraceOutcome(ModelOutcome):
    """What a rewrite did turn by turn, for --trace-json.

    Attributes:
        trace: The turns.
    """

    trace: Trace
