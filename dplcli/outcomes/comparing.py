"""In what two models differ, and what makes them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dplcli.errors import counted
from dplcli.keys import keys
from dplcli.outcomes.base import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dplcli.diff import ModelDiff
    from dplcli.language.rule import Rule
    from dplcli.verify import VerificationResult
    from dplcli.verify.accuracy import Measured
    from dplcli.verify.layers import Layers
    from dplcli.verify.verdict import OutputComparison


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
