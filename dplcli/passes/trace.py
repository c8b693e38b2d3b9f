"""A record of a rewrite: every turn, what was done in it, and what was refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.ir.scopes import scope_of
from dplcli.passes.applications import Application, NodeIdentity, identify
from dplcli.passes.observer import RewriteObserver

if TYPE_CHECKING:
    from dplcli.dpl.match import Rejection
    from dplcli.dpl.rule import RewriteRule

    Event: TypeAlias = "Application | Refusal"


class Refusal(NamedTuple):
    """A match that was not replaced, in words that stay true after further edits.

    Attributes:
        scope: The graph, as :func:`dplcli.ir.scopes.scope_of` names it.
        root: The node that the pattern fits at.
        stage: Which test it failed.
        reason: What the test found.
    """

    scope: str
    root: NodeIdentity
    stage: str
    reason: str


@dataclass
class TracedTurn:
    """What one rule did in one round.

    Attributes:
        round: The round.
        rule: The rule's name.
        candidates: How many nodes it had to look at.
        events: What it did and why it did no more, in order.
    """

    round: int
    rule: str
    candidates: int
    events: list[Event] = field(default_factory=list)

    @property
    def applied(self) -> int:
        """How often the rule was applied."""
        return sum(isinstance(event, Application) for event in self.events)


class Trace(RewriteObserver):
    """Writes down what happens; complete also where the rewrite ends with an error."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.turns: list[TracedTurn] = []

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Begin a turn."""
        self.turns.append(TracedTurn(number, rule.qualified_name, candidates))

    def applied(self, application: Application) -> None:
        """Note an application."""
        self.turns[-1].events.append(application)

    def refused(self, rejection: Rejection) -> None:
        """Note a refusal."""
        root = rejection.root
        self.turns[-1].events.append(
            Refusal(
                scope_of(root.graph),
                identify(root, root.outputs),
                rejection.stage,
                rejection.reason,
            )
        )
