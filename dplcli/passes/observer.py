"""Who watches a rewrite, and may narrow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.dpl.match import Rejection
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

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """In round *number* it is the turn of *rule*, which has so many nodes to look at."""

    def applied(self, application: Application) -> None:
        """A rule was applied."""

    def refused(self, rejection: Rejection) -> None:
        """A pattern fits, but is refused."""

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """The turn of *rule* is over; it was applied so often in it."""
