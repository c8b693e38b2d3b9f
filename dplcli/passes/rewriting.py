"""Apply rewrite rules until nothing changes: the front of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.passes.driver import RewriteDriver
from dplcli.passes.loops import LoopDetector
from dplcli.passes.observer import Observers, RewriteObserver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.match import Rejection
    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Model, Node
    from dplcli.passes.applications import Application


class Rewriting(NamedTuple):
    """What rules did to a model.

    Attributes:
        counts: How often each rule was applied.
        rounds: How many rounds changed something.
        refused: Why other matches, at nodes that are still there, were not replaced.
        applications: What was done, in order.
    """

    counts: dict[str, int]
    rounds: int
    refused: tuple[Rejection, ...]
    applications: tuple[Application, ...]


class Restriction(NamedTuple):
    """A rule, perhaps at one node only.

    Attributes:
        rule: The rule's name; "" for all.
        node: Name of a node or of a value that it makes; "" for all.
    """

    rule: str
    node: str = ""

    def covers(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether it speaks of *rule* at *root*."""
        if self.rule not in ("", rule.name, rule.qualified_name):
            return False
        names = [root.name, *(output.name for output in root.outputs if output is not None)]
        return not self.node or self.node in names


class Narrowed(RewriteObserver):
    """Keeps a log, and restricts where rules are tried and how often they are applied.

    Args:
        only: If not empty, nothing else is tried.
        skip: What is not tried.
        limit: After so many applications no more is done; None for no limit.
    """

    def __init__(
        self,
        only: Sequence[Restriction] = (),
        skip: Sequence[Restriction] = (),
        limit: int | None = None,
    ) -> None:
        """Restrict a rewrite."""
        self.only = tuple(only)
        self.skip = tuple(skip)
        self.limit = limit
        self.log: list[Application] = []

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and len(self.log) >= self.limit

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether the restrictions let *rule* be tried at *root*."""
        if self.only and not any(item.covers(rule, root) for item in self.only):
            return False
        return not self.skip or not any(item.covers(rule, root) for item in self.skip)

    def applied(self, application: Application) -> None:
        """Keep the log."""
        self.log.append(application)


def rewrite(
    model: Model,
    rules: Sequence[RewriteRule],
    observer: Narrowed | None = None,
    *,
    watchers: Sequence[RewriteObserver] = (),
    most: int | None = None,
) -> Rewriting:
    """Apply *rules*, in listed order, until none matches; the model is edited in place.

    Args:
        model: The model.
        rules: The rules; those listed first have their turn first in every round.
        observer: Who keeps the log, and may narrow what is done.
        watchers: Who else is told; they may end it.
        most: After so many applications a rule is taken to have no end; None: ten times as many
            as the model has nodes, and some.

    Raises:
        RewriteLimitError: They would go on without an end; names the rules.
    """
    observer = observer or Narrowed()
    told = Observers([observer, *watchers]) if watchers else observer
    driver = RewriteDriver(model, rules, told, LoopDetector(model, most))
    rounds = driver.run()
    return Rewriting(driver.counts, rounds, driver.remaining(), tuple(observer.log))
