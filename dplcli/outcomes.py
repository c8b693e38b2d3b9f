"""What each job answers: frozen values, for programs to read and for reports to show."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dplcli.dpl.rule import unmet_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.catalog.plan import Plan
    from dplcli.diff import ModelDiff
    from dplcli.dpl.explain import NodeExplanation, RuleExplanation
    from dplcli.dpl.replacement import RewriteRule
    from dplcli.dpl.rule import JudgedExpectation, PatternRule, Rejection, Rule
    from dplcli.ir import Model, Node
    from dplcli.passes.inline import Inlining
    from dplcli.passes.learn import LearnedRule
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.repeat import Family
    from dplcli.passes.rewrite import Application, Missing
    from dplcli.passes.select import Coverage, Selection
    from dplcli.verify import VerificationResult
    from dplcli.verify.layers import Layers
    from dplcli.verify.settings import (
        Feed,
        KernelReport,
        Leaf,
        Opinion,
        PartitionRun,
        PartitionTime,
        Timing,
    )


@dataclass(frozen=True, kw_only=True)
class ModelOutcome:
    """The model that a job worked on.

    Attributes:
        label: The model's file name.
        notes: What a reader should know about it and the run.
        hints: What would let rules do more, if that was asked for.
    """

    label: str
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ViewOutcome(ModelOutcome):
    """A model to draw.

    Attributes:
        model: The model; the types of its values are inferred.
        costs: The floating-point operations of the nodes of which they are known.
        open_sizes: The dimensions of inputs that are not known, on which other costs depend.
    """

    model: Model
    costs: Mapping[Node, int] = field(default_factory=dict)
    open_sizes: tuple[str, ...] = ()


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
    cases: Sequence[tuple[str, str, Literal["passed", "failed", "skipped"], str]] = ()
    record: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


# What matches, and why the rest does not.


@dataclass(frozen=True, kw_only=True)
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
    def counts(self) -> dict[str, int]:
        """Matches per rule, rules without any included."""
        return {rule.qualified_name: 0 for rule in self.rules} | dict(self.selection.counts)


@dataclass(frozen=True, kw_only=True)
class RunOutcome(ModelOutcome):
    """What a model gave.

    Attributes:
        fed: What it was fed: 'seed 0', or a file.
        inputs: That, by input: an array, a list of arrays for a sequence, or None for an absent
            optional.
        level: The optimisation level of onnxruntime.
        outputs: The arrays of every output.
        kernels: Where its partitions ran, if kernels were asked for.
        output: Where the outputs were written; None for nowhere.
    """

    fed: str
    inputs: Mapping[str, Feed]
    level: str
    outputs: Mapping[str, tuple[Leaf, ...]]
    kernels: KernelReport | None = None
    output: Path | None = None


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


@dataclass(frozen=True, kw_only=True)
class BenchOutcome(ModelOutcome):
    """How long two models took.

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

    def ratios(self, kind: Literal["wall", "cpu"]) -> tuple[float, float, float]:
        """Return how many times as long the other takes: first quartile, median, third quartile.

        They are those of the rounds, each of which saw both models under the same conditions.
        """
        ours, theirs = (getattr(side.timing, kind) for side in self.sides)
        return quartiles([b / max(a, 1e-12) for a, b in zip(ours, theirs, strict=True)])


def quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile."""
    if len(numbers) == 1:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


@dataclass(frozen=True, kw_only=True)
class KernelsOutcome(ModelOutcome):
    """The plan of a model's partitions.

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


@dataclass(frozen=True, kw_only=True)
class ExplainOutcome(ModelOutcome):
    """Why rules match where they do, and not elsewhere.

    Attributes:
        rules: What became of each rule.
        verdicts: What each rule says of the node asked about; empty if none was.
    """

    rules: tuple[RuleExplanation, ...]
    verdicts: tuple[NodeExplanation, ...] = ()


# What became of a model that was changed.


@dataclass(frozen=True)
class Verdict:
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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know, beside what the check of numbers has to say."""
        return (f"onnx objects to the model: {self.fault}",) if self.fault else ()

    @property
    def is_sound(self) -> bool:
        """Whether the result is valid, and equivalent as far as checked."""
        equivalent = self.verification is None or self.verification.accepted
        return equivalent and not self.objection


@dataclass(frozen=True, kw_only=True)
class WrittenOutcome(ModelOutcome):
    """A model that was made from another.

    Attributes:
        verdict: What is said of the result, and where it is.
    """

    verdict: Verdict = Verdict()

    @property
    def verification(self) -> VerificationResult | None:
        """The numerical check; None if it was not made."""
        return self.verdict.verification


@dataclass(frozen=True, kw_only=True)
class InlineOutcome(WrittenOutcome):
    """Functions put in the place of their calls.

    Attributes:
        inlining: The calls replaced, those that stay, and the functions removed.
        nodes: Nodes of the main graph before and after.
        functions: How many functions the model had.
        is_sorted: Whether the nodes had to be brought into topological order.
    """

    inlining: Inlining
    nodes: tuple[int, int]
    functions: int
    is_sorted: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        return self.is_sorted or bool(self.inlining.calls or self.inlining.removed)

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, and equivalent as far as checked."""
        return self.verdict.is_sound


@dataclass(frozen=True, kw_only=True)
class ExtractOutcome(WrittenOutcome):
    """A part of a model, as a model of its own.

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
    def is_success(self) -> bool:
        """Whether there is a part: else an error said why not."""
        return True


@dataclass(frozen=True)
class Preparation:
    """What was rewritten before matches were outlined.

    Attributes:
        counts: How often each rule was applied, of those that were.
        rounds: How many rounds changed something.
        nodes: Nodes of all graphs before and after.
        proof: What is proved by structure of the result and the prepared model, or "".
        unproved: Why nothing is, if that was tried, or "".
    """

    counts: Mapping[str, int]
    rounds: int
    nodes: tuple[int, int]
    proof: str = ""
    unproved: str = ""


@dataclass(frozen=True, kw_only=True)
class PartitionOutcome(MatchOutcome, WrittenOutcome):
    """Matches outlined as functions.

    Attributes:
        partitions: The calls written, in program order.
        nodes: Nodes of the model before and after, function bodies not counted.
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
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.verdict.is_sound and not self.unmet


@dataclass(frozen=True, kw_only=True)
class RepeatOutcome(PartitionOutcome):
    """Repeated blocks outlined as functions.

    Attributes:
        families: The kinds of blocks; blocks inside other blocks come after these.
        size: Bytes of the file before and after, external data not counted; the second is 0 if
            none was made.
    """

    families: tuple[Family, ...]
    size: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BrokenTurn:
    """The first turn of a rule that broke the model.

    Attributes:
        rule: The rule's name; "" if the model was broken before any rule had a turn.
        round: The round.
        applications: What the rule did in it.
        reason: What is wrong.
        verdict: What was said of the result.
    """

    rule: str
    round: int
    applications: tuple[Application, ...]
    reason: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class RewriteOutcome(WrittenOutcome):
    """What rules or a plan replaced.

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
    def is_wanted(self) -> bool:
        """Whether expectations and limits are met, apart from the check."""
        fits = self.may_miss or not self.missing
        return fits and self.broken is None and not self.unmet and not self.growth

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.is_wanted and self.verdict.is_sound


# What catalogues offer, whether it does what it says, and a rule learned from an example.


@dataclass(frozen=True)
class LibraryState:
    """A library that runs partitions.

    Attributes:
        version: Its version; "" if there is none that can be used.
        path: Its file, as it was loaded.
        looked_for: The files that were tried, in order.
        problem: Why one that is there cannot be used: it is too old, or known to be faulty.
    """

    version: str
    path: str
    looked_for: tuple[str, ...]
    problem: str = ""


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
            (neither, but the rule has examples that it applies to: they are its trials).
        reason: Why it failed or was not tried.
        graphs: How many graphs were made up that the rule applies to.
        counterexample: The smallest graph found on which the rule is wrong, as ONNX text; or "".
    """

    rule: PatternRule | RewriteRule
    kind: Literal["example", "made up"]
    place: str
    verdict: Literal["passed", "failed", "not tried", "by example"]
    reason: str = ""
    graphs: int = 0
    counterexample: str = ""


@dataclass(frozen=True)
class LearnOutcome:
    """A rule that was made from a subgraph.

    Attributes:
        label: The model's file name.
        learned: The rule, and what was generalised.
        yaml: The catalogue that holds it.
    """

    label: str
    learned: LearnedRule
    yaml: str


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


@dataclass(frozen=True)
class RewritesOutcome:
    """What leads from one model to another.

    Attributes:
        before: The first model's file name.
        after: The second one's.
        learned: The rules, the most frequent first.
        explained: How many changed places they explain.
        left: The changed places that no rule explains: what they are and why, and how many.
        beyond: How many places the rules change that the second model has as the first.
        yaml: The catalogue that holds them; "" if there are none.
        verdict: Whether the first model computes the same when they are applied, or why that could
            not be asked; None if it was not asked.
    """

    before: str
    after: str
    learned: tuple[LearnedRewrite, ...]
    explained: int
    left: tuple[tuple[str, int], ...]
    beyond: int
    yaml: str = ""
    verdict: Verdict | str | None = None


# In what two models differ, and what makes them.


@dataclass(frozen=True)
class DiffOutcome:
    """Two models and in what their structures differ.

    Attributes:
        labels: The models' file names.
        difference: In what they differ.
    """

    labels: tuple[str, str]
    difference: ModelDiff


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
        opinions: What onnx's reference evaluator says of it, if it was asked.
    """

    applied: tuple[BisectStep, ...]
    reason: str = ""
    levels: tuple[str, ...] = ()
    seed: int = 0
    opinions: tuple[Opinion, ...] = ()


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


@dataclass(frozen=True)
class BisectOutcome:
    """Which applications of rules break a model.

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
    kind: str
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


@dataclass(frozen=True)
class Reproduced:
    """The result of running a reproducer.

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
    def differs(self) -> bool:
        """Whether it still shows the fault."""
        compared = self.verification
        return bool(self.objection) or (compared is not None and not compared.equivalent)


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


@dataclass(frozen=True)
class ModelsOutcome:
    """Where two models part.

    Attributes:
        labels: The models' file names.
        verification: The verdict on both as a whole.
        layers: How they compare inside; None if that was not looked at.
        place: Where they part; None if they do not, or no place was found.
        remark: Why no place was found; "" if one was, or nothing was looked for.
    """

    labels: tuple[str, str]
    verification: VerificationResult
    layers: Layers | None = None
    place: Divergence | None = None
    remark: str = ""

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing is wrong, and the check can tell."""
        return self.verification.accepted
