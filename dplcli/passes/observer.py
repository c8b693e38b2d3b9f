"""Who watches a rewrite, and may narrow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Node
    from dplcli.passes.applications import Application


class RewriteObserver:
    """Told of every turn, application and refusal; this one does nothing and admits all."""

    @property
    def is_over(self) -> bool:
        """Whether no more should be done."""
        return False

    def admits(self, rule: RewriteRule, root: Node) -> bool:  # noqa: ARG002  # for overriding
        """Tell whether *rule* may be tried at *root*."""
        return True

    def wants(self, match: Match) -> bool:  # noqa: ARG002  # for overriding
        """Tell whether *match*, which could be replaced, is to be."""
        return True

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """In round *number* it is the turn of *rule*, which has so many nodes to look at."""

    def applied(self, application: Application) -> None:
        """A rule was applied."""

    def refused(self, rejection: Rejection) -> None:
        """A pattern fits, but is refused."""

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """The turn of *rule* is over; it was applied so often in it."""


class Observers(RewriteObserver):
    """Several observers as one: over if one of them says so, and only what all admit is done.

    Args:
        members: Who is told, in this order.
    """

    def __init__(self, members: Sequence[RewriteObserver]) -> None:
        """Stand for *members*."""
        self.members = tuple(members)

    @property
    def is_over(self) -> bool:
        """Whether one of them wants no more."""
        return any(member.is_over for member in self.members)

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether all of them do."""
        return all(member.admits(rule, root) for member in self.members)

    def wants(self, match: Match) -> bool:
        """Tell whether all of them do."""
        return all(member.wants(match) for member in self.members)

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Tell all of them."""
        for member in self.members:
            member.turn_started(number, rule, candidates)

    def applied(self, application: Application) -> None:
        """Tell all of them."""
        for member in self.members:
            member.applied(application)

    def refused(self, rejection: Rejection) -> None:
        """Tell all of them."""
        for member in self.members:
            member.refused(rejection)

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """Tell all of them."""
        for member in self.members:
            member.turn_ended(rule, count)
