"""Apply rewrite rules, in turns, until nothing changes.

In each round every rule has one turn, in listed order. In its turn a rule looks at the nodes that
are new to it: at first all, later those that edits may concern (:mod:`dplcli.passes.worklist`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.draft import Draft
from dplcli.dpl.drafting import draft_replacement
from dplcli.dpl.match import Match, Rejection, read_match
from dplcli.dpl.nodewise import takes_unread
from dplcli.dpl.state import StepBudgetExceededError
from dplcli.passes.applications import Application
from dplcli.passes.cleanup import is_read
from dplcli.passes.judgement import judge
from dplcli.passes.names import NewNames
from dplcli.passes.replace import Change, replace_match
from dplcli.passes.worklist import Concern, Worklist

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Graph, Model, Node
    from dplcli.passes.loops import LoopDetector
    from dplcli.passes.observer import RewriteObserver
    from dplcli.passes.worklist import Seen

_INFERENCES = 4
"""How often types are inferred again after the rules have settled."""


class Turn:
    """One rule, and how far it has read the journal.

    Attributes:
        rule: The rule.
        heads: The operators its matches may be rooted in; None for all.
        follows_shapes: Whether it depends on what is known of shapes.
        is_local: Whether it depends on nothing but what lies within reach of its root.
        looks_afar: Whether it asks a function that may depend on more than the pattern's reach.
        seen: Its place in the journal.
        edits: How much had been edited when it last looked at everything.
    """

    def __init__(self, rule: RewriteRule) -> None:
        """Begin with everything new to *rule*."""
        self.rule = rule
        self.heads = rule.heads
        self.is_local = rule.reach is not None
        self.seen: Seen = ()
        self.follows_shapes = rule.is_nodewise and (rule.reach or 0) > 1
        self.has_begun = False
        self.edits = -1
        self.function = rule.instance()
        own = rule.check if self.function is None or rule.is_nodewise else self.function
        self.looks_afar = own is not None and not rule.once

    def candidates(self, worklist: Worklist) -> dict[Graph, list[Node]]:
        """Return the nodes to look at, by graph, in topological order."""
        if self.has_begun and (self.is_local or worklist.edits == self.edits):
            counts = self.rule.counts_uses
            return worklist.new_since(self.seen, self.heads, counts_uses=counts)
        self.has_begun = True
        self.seen = worklist.forget_before()
        self.edits = worklist.edits
        return {graph: self._all(graph, worklist) for graph in worklist.graphs}

    def _all(self, graph: Graph, worklist: Worklist) -> list[Node]:
        needed = self.rule.matcher.program.root.required
        ops = (item for item in needed if isinstance(item, frozenset))
        if any(not worklist.has_any(graph, item) for item in ops):
            return []
        return worklist.all_of(graph, self.heads)


class RewriteDriver:
    """Applies rules to one model.

    Args:
        model: The model, which is edited in place.
        rules: The rules, in order of priority.
        observer: Told of everything; may narrow what is done.
        loops: Ends what has no end.
    """

    def __init__(
        self,
        model: Model,
        rules: Sequence[RewriteRule],
        observer: RewriteObserver,
        loops: LoopDetector,
    ) -> None:
        """List what there is to look at."""
        self.model = model
        self.observer = observer
        self.turns = [Turn(rule) for rule in rules]
        self.worklist = Worklist(model, Concern.of(rules))
        self.names = NewNames(model, self.worklist.graph_added)
        self.loops = loops
        self.counts = {rule.qualified_name: 0 for rule in rules}
        self.applied = 0
        self.refused: dict[tuple[str, Node], Rejection] = {}
        self.round = 0
        self.made: set[Node] = set()

    def run(self) -> int:
        """Apply the rules until none matches; return how many rounds changed something.

        Raises:
            RewriteLimitError: They would go on without an end.
        """
        rounds = 0
        inferences = 0
        while not self.observer.is_over:
            self.round += 1
            before, counts = self.applied, dict(self.counts)
            for turn in self.turns:
                self._take(turn)
                if self.observer.is_over:
                    break
            if self.applied > before:
                rounds += 1
                self.loops.check_size(self._active(counts))
                self._look_again_at_shapes()
                continue
            if not rounds:
                break
            if inferences < _INFERENCES and self.learn():
                inferences += 1
            elif not self._look_everywhere():
                break
        return rounds

    def _active(self, before: dict[str, int]) -> list[str]:
        return [name for name, count in self.counts.items() if count > before[name]]

    def _look_again_at_shapes(self) -> None:
        """Let rules that follow shapes start anew if what was unknown to them no longer is."""
        if self.worklist.takes_new_sizes() and self.model.forget():
            for turn in self.turns:
                turn.has_begun = turn.has_begun and not turn.follows_shapes

    def learn(self) -> bool:
        """Infer types again if rules asked for some; tell whether more is known now."""
        found = self.model.infer_again()
        if found:
            self.model.forget()
        for value in found:
            self.worklist.value_changed(value)
        return bool(found)

    def _look_everywhere(self) -> bool:
        """Let rules that may depend on anything look at all nodes again; tell if there are any."""
        due = [turn for turn in self.turns if turn.looks_afar]
        due = [turn for turn in due if turn.edits != self.worklist.edits]
        for turn in due:
            turn.has_begun = False
        return bool(due)

    def remaining(self) -> tuple[Rejection, ...]:
        """Return why matches of the last look were refused, where their root still stands."""
        order = {turn.rule.qualified_name: rank for rank, turn in enumerate(self.turns)}
        graphs = {graph: rank for rank, graph in enumerate(self.worklist.graphs)}
        left = [item for item in self.refused.values() if self.worklist.is_listed(item.root)]
        return tuple(
            sorted(
                left,
                key=lambda item: (
                    order[item.rule.qualified_name],
                    graphs[item.root.graph],
                    item.root.position,
                ),
            )
        )

    def _take(self, turn: Turn) -> None:
        rule = turn.rule
        if rule.once and turn.has_begun:
            return
        self.made = set()
        found = turn.candidates(self.worklist)
        count = sum(map(len, found.values()))
        if not count:
            return
        self.observer.turn_started(self.round, rule, count)
        before = self.applied
        self._visit(turn, found)
        self.observer.turn_ended(rule, self.applied - before)

    def _visit(self, turn: Turn, found: dict[Graph, list[Node]]) -> None:
        rule = turn.rule
        for graph, roots in found.items():
            if not rule.holds_for(graph):
                continue
            for root in roots if rule.producers_first else reversed(roots):
                if not self.worklist.is_listed(root) or not self.observer.admits(rule, root):
                    continue
                if self._rewrite_at(turn, root) and self.observer.is_over:
                    return

    def apply_at(self, rule: RewriteRule, root: Node) -> bool:
        """Try one of the rules at one node, out of turn; tell whether it was applied."""
        turn = next(turn for turn in self.turns if turn.rule is rule)
        self.made = set()
        self.observer.turn_started(self.round, rule, 1)
        applied = self._rewrite_at(turn, root)
        self.observer.turn_ended(rule, int(applied))
        return applied

    def _rewrite_at(self, turn: Turn, root: Node) -> bool:
        rule = turn.rule
        key = (rule.qualified_name, root)
        self.refused.pop(key, None)
        first: Rejection | None = None
        was = (root, root.outputs)
        try:
            for match in self._matches(rule, root):
                outcome = self._attempt(turn, match)
                if isinstance(outcome, Change):
                    self._note(Application(self.applied + 1, self.round, was, outcome), outcome)
                    return True
                first = first or outcome
        except StepBudgetExceededError as error:
            first = Rejection(rule, root, "budget", error.message, root)
        if first is not None:
            self.refused[key] = first
            self.observer.refused(first)
        return False

    def _matches(self, rule: RewriteRule, root: Node) -> Iterator[Match]:
        if rule.is_nodewise:
            alone = whole_node(rule, root)
            if alone is not None:
                yield alone
            return
        for state in rule.matcher.solutions(root):
            match = read_match(rule, root, state)
            if match is not None:
                yield match

    def _attempt(self, turn: Turn, match: Match) -> Change | Rejection | None:
        rule = turn.rule
        if rule.once and not self.made.isdisjoint(match.nodes):
            return None
        if not rule.is_nodewise:
            verdict = judge(match)
            if isinstance(verdict, Rejection):
                return verdict
        draft = draft_replacement(match, turn.function or rule.replacement)
        if not isinstance(draft, Draft):
            return draft
        if not self.observer.wants(match):
            return None
        self.loops.note(match, draft)
        outcome = replace_match(match, draft, self.names, self.worklist)
        if isinstance(outcome, Change):
            self.made.update(outcome.added)
            self.loops.note_birth(match, outcome.added)
        return outcome

    def _note(self, application: Application, change: Change) -> None:
        self.applied += 1
        rule = change.match.rule
        self.counts[rule.qualified_name] += 1
        self.observer.applied(application)
        self.loops.check(rule.qualified_name, self.counts[rule.qualified_name])


def whole_node(rule: RewriteRule, node: Node) -> Match | None:
    """Match *node* by itself; its outputs are those that somebody reads.

    None if there are none of them, unless the rule is for such nodes: nothing can take the place
    of what nobody reads.
    """
    read = tuple(output for output in node.outputs if output is not None and is_read(output))
    if not read and not takes_unread(rule.replacement):
        return None
    return Match(rule, node, (node,), {}, (), {}, read)
