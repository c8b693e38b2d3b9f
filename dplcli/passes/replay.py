"""Do again what a plan lists, in its order, and nothing else.

The driver takes its turns as it would anyway, and rules are tried wherever they would be, so that
whatever they remember is the same; but nothing is done that is not the next entry of the plan.
What the driver does not come to by itself, because the plan was edited, is tried out of turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.tracing import Tracer
from dplcli.ir.scopes import scope_of
from dplcli.passes.driver import RewriteDriver, whole_node
from dplcli.passes.loops import LoopDetector
from dplcli.passes.observer import Observers
from dplcli.passes.rewriting import Narrowed, Rewriting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.plan import PlanEntry
    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Graph, Model, Node
    from dplcli.passes.applications import Application
    from dplcli.passes.observer import RewriteObserver


class Missing(NamedTuple):
    """An entry of a plan that does not fit."""

    entry: PlanEntry
    reason: str


class Replayed(NamedTuple):
    """What a plan did to a model.

    Attributes:
        rewriting: What was done; matches that the plan does not list count as neither.
        missing: The entries that did not fit.
    """

    rewriting: Rewriting
    missing: tuple[Missing, ...]


def replay(
    model: Model,
    rules: Sequence[RewriteRule],
    *,
    entries: Sequence[PlanEntry],
    skip_missing: bool = False,
    watchers: Sequence[RewriteObserver] = (),
) -> Replayed:
    """Apply what *entries* list, each once and in order; the model is edited in place.

    Args:
        model: The model.
        rules: The rules that the entries name, and others.
        entries: What to do.
        skip_missing: Whether to go on after an entry that does not fit.
        watchers: Who is told, and may end it.

    Raises:
        RewriteLimitError: The entries undo each other again and again.
    """
    guide = _Guide(entries)
    told = Observers([guide, *watchers])
    driver = RewriteDriver(model, rules, told, LoopDetector(model))
    return _Replay(driver, guide, skip_missing=skip_missing).run()


class _Guide(Narrowed):
    """Lets happen what is next in a plan.

    Attributes:
        position: How many entries are behind.
        rejection: What was last said against the next one.
    """

    def __init__(self, entries: Sequence[PlanEntry]) -> None:
        super().__init__()
        self.entries = entries
        self.position = 0
        self.rejection: Rejection | None = None

    @property
    def is_over(self) -> bool:
        """Whether the plan is done."""
        return self.position >= len(self.entries)

    @property
    def next(self) -> PlanEntry:
        """The entry that is next; there is one unless it is over."""
        return self.entries[self.position]

    def wants(self, match: Match) -> bool:
        """Tell whether *match* is next."""
        entry, root = self.next, match.root
        if match.rule.qualified_name != entry.rule or not _makes(root, entry):
            return False
        return scope_of(root.graph) == entry.scope

    def applied(self, application: Application) -> None:
        """Go on to the next entry."""
        super().applied(application)
        self.position += 1

    def refused(self, rejection: Rejection) -> None:
        """Remember why."""
        self.rejection = rejection


class _Replay:
    def __init__(self, driver: RewriteDriver, guide: _Guide, *, skip_missing: bool) -> None:
        self.driver = driver
        self.guide = guide
        self.skip_missing = skip_missing
        self.rules = {turn.rule.qualified_name: turn.rule for turn in driver.turns}
        self.missing: list[Missing] = []
        self.learned: set[int] = set()

    def run(self) -> Replayed:
        """Go through the plan."""
        rounds = 0
        while not self.is_over:
            rounds += self.driver.run()
            if self.is_over:
                break
            self.driver.round += 1
            if self._step_out_of_turn():
                rounds += 1
            elif not self._learn() and not self._give_up():
                break
        done = Rewriting(self.driver.counts, rounds, (), tuple(self.guide.log))
        return Replayed(done, tuple(self.missing))

    @property
    def is_over(self) -> bool:
        """Whether the plan is done, or somebody wants no more."""
        return self.driver.observer.is_over

    def _step_out_of_turn(self) -> bool:
        """Do what is next, and what follows as far as it fits; tell whether anything was done."""
        before = self.guide.position
        while not self.is_over and not self._try(self.guide.next):
            pass
        return self.guide.position > before

    def _learn(self) -> bool:
        """Infer types again, and let rules forget; once for each entry that does not fit.

        A rule may remember what was done in its name and is not in the plan.

        Returns:
            Whether that was not tried before.
        """
        is_new = self.guide.position not in self.learned
        self.learned.add(self.guide.position)
        if is_new:
            self.driver.learn()
            self.driver.model.forget()
        return is_new

    def _give_up(self) -> bool:
        """Note that the next entry does not fit; tell whether to go on with those behind it."""
        entry = self.guide.next
        self.missing.append(Missing(entry, self._try(entry)))
        self.guide.position += self.skip_missing
        return self.skip_missing

    def _try(self, entry: PlanEntry) -> str:
        """Apply *entry*; return "" or why it does not fit."""
        rule = self.rules.get(entry.rule)
        if rule is None:
            return f"there is no rule {entry.rule!r}"
        graphs = [graph for graph in self.driver.worklist.graphs if scope_of(graph) == entry.scope]
        reason = f"the model has no graph {entry.scope!r}"
        for graph in graphs:
            node, reason = _find(graph, entry)
            if node is None:
                continue
            if not rule.holds_for(graph):
                reason = f"the rule does not hold for opset {graph.opset_imports.get('', 0)}"
                continue
            self.guide.rejection = None
            if self.driver.apply_at(rule, node):
                return ""
            reason = _explain(rule, node, self.guide.rejection)
        return reason


def _find(graph: Graph, entry: PlanEntry) -> tuple[Node | None, str]:
    """Return the node that *entry* speaks of; or None, and why there is none."""
    value = graph.values.get(entry.output)
    if value is None:
        return None, f"{entry.output!r} does not exist there"
    if value.producer is None:
        return None, f"{entry.output!r} is not made by a node"
    if value.producer.qualified_op != entry.op_type:
        maker = f"{value.producer.qualified_op} {value.producer.label!r}"
        return None, f"{entry.output!r} is made by {maker}, not by {entry.op_type}"
    return value.producer, ""


def _makes(node: Node, entry: PlanEntry) -> bool:
    if node.qualified_op != entry.op_type:
        return False
    return any(output is not None and output.name == entry.output for output in node.outputs)


def _explain(rule: RewriteRule, node: Node, rejection: Rejection | None) -> str:
    """Say why *rule* was not applied at *node*."""
    if rejection is not None:
        return f"refused by {rejection.stage}: {rejection.reason}"
    if rule.is_nodewise:
        is_dead = whole_node(rule, node) is None
        return "nobody reads what it makes" if is_dead else "the rule's function leaves it"
    trace = Tracer(rule).trace(node)
    if trace.mismatch is not None:
        return f"the pattern expects {trace.mismatch.expected}, there is {trace.mismatch.found}"
    return "the rule's function leaves it" if trace.fits else "the pattern does not match"
