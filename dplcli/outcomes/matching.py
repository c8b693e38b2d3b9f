"""What matches, and why the rest does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.keys import keys
from dplcli.language.rule import unmet_of
from dplcli.outcomes.base import ModelOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language.explain import NodeExplanation, RuleExplanation
    from dplcli.language.rule import JudgedExpectation, Match, Rejection, Rule
    from dplcli.passes.nearest import NearestRule
    from dplcli.passes.select import Selection


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
