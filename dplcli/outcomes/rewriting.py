"""What became of a model that was rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dplcli.keys import keys
from dplcli.language.rule import unmet_of
from dplcli.outcomes.base import ModelOutcome
from dplcli.outcomes.written import _MOST_NAMED, WrittenOutcome, _figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.catalog.plan import Plan
    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import JudgedExpectation, Rejection
    from dplcli.outcomes.base import Counts
    from dplcli.outcomes.written import Delivery
    from dplcli.passes.rewrite import Application, Missing, Trace


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


@keys("model=label turns=trace.turns", "dpl.trace/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TraceOutcome(ModelOutcome):
    """What a rewrite did turn by turn, for --trace-json.

    Attributes:
        trace: The turns.
    """

    trace: Trace
