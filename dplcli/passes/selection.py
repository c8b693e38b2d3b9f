"""Decide which matches of a list of rules are taken, and say why the others are not.

Rules in listed order over the whole model, earlier wins everywhere. Within a rule, consumers
before producers (Relay's ``pattern.partition``), or producers first with absorption (Relax's
``FuseOpsByPattern``), as the rule says. A match that is refused leaves its nodes free, and another
way to match at the same root is tried before the root is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dplcli.dpl.draft import Draft
from dplcli.dpl.drafting import draft_replacement
from dplcli.dpl.index import OpIndex
from dplcli.dpl.match import Match, Rejection, read_match
from dplcli.dpl.rule import RewriteRule
from dplcli.dpl.state import StepBudgetExceededError
from dplcli.passes.judgement import Taken, judge
from dplcli.passes.marks import is_for_target, is_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl.rule import Rule
    from dplcli.ir import Graph, Model, Node

_MANY_RULES = 24


@dataclass
class Selection:
    """What the rules found.

    Attributes:
        matches: The matches taken; no node is in two of them.
        refused: The first attempt of each rule at every root where its pattern fits but was
            refused, unless another match took the root.
        totals: How many nodes of each operator were looked at.
        rules: The rules that were tried.
        candidates: By rule, at how many nodes its pattern was tried.
        outlined: How many nodes of each operator are calls of what dpl outlined before.
    """

    rules: tuple[Rule, ...] = ()
    matches: list[Match] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)
    outlined: dict[str, int] = field(default_factory=dict)


def select_matches(model: Model, rules: Sequence[Rule]) -> Selection:
    """Match *rules* against every graph of *model*; nothing is edited."""
    selection = Selection(rules=tuple(rules))
    indexes = [OpIndex(graph) for graph in matchable_graphs(model)]
    for index in indexes:
        for (domain, op_type), count in index.counts.items():
            op = f"{domain}.{op_type}" if domain else op_type
            selection.totals[op] = selection.totals.get(op, 0) + count
            function = model.functions.get((domain, op_type, ""))
            if function is not None and is_written(function) and is_for_target(function):
                selection.outlined[op] = selection.totals[op]
    selector = _Selector(selection)
    by_edges = len(rules) >= _MANY_RULES
    for rule in rules:
        selector.begin(rule)
        for index in indexes:
            if rule.holds_for(index.graph):
                selector.select(index.candidates(rule.matcher.program, by_edges=by_edges))
    selector.try_again()
    claimed = selector.taken.claimed
    selection.refused = [item for item in selection.refused if item.root not in claimed]
    selection.matches = [match for match in selection.matches if id(match) not in selector.absorbed]
    return selection


def in_program_order(matches: Iterable[Match]) -> list[Match]:
    """Sort matches by their roots: graph by graph, in topological order."""
    matches = list(matches)
    if not matches:
        return []
    ranks = {graph: rank for rank, graph in enumerate(matches[0].root.graph.model.graphs())}
    return sorted(matches, key=lambda found: (ranks[found.root.graph], found.root.position))


def matchable_graphs(model: Model) -> list[Graph]:
    """Return every graph but the bodies of functions that a partition or a merge wrote."""
    written = {f.body for f in model.functions.values() if is_written(f)}
    return [graph for graph in model.graphs() if graph not in written]


class _Selector:
    """Takes matches of one rule after the other."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.taken = Taken()
        self.absorbed: set[int] = set()
        self.rule: Rule | None = None

    def begin(self, rule: Rule) -> None:
        self.rule = rule
        self.selection.candidates[rule.qualified_name] = 0

    def select(self, roots: Sequence[Node]) -> None:
        rule = self.rule
        assert rule is not None  # noqa: S101  # see begin
        self.selection.candidates[rule.qualified_name] += len(roots)
        absorbs = rule.order == "program"
        claimed = self.taken.claimed
        for root in roots if rule.producers_first else reversed(roots):
            if absorbs or root not in claimed:
                refused = self._select_at(root, rule)
                if refused is not None:
                    self.selection.refused.append(refused)

    def try_again(self) -> None:
        """Try what was refused again, as long as that finds something.

        Where a match computes a node again by itself, what that node reads has fewer readers in
        the end than when an earlier root was looked at.
        """
        found = -1
        while self.taken.copying and found < len(self.selection.matches):
            found = len(self.selection.matches)
            for item in self.selection.refused:
                if item.stage != "budget" and item.root not in self.taken.claimed:
                    self._select_at(item.root, item.rule)

    def _select_at(self, root: Node, rule: Rule) -> Rejection | None:
        """Take the first match at *root* that may be taken; say why not if none may."""
        first: Rejection | None = None
        try:
            claimed = self.taken.claimed
            for state in rule.matcher.solutions(root, () if rule.order == "program" else claimed):
                match = read_match(rule, root, state)
                if match is None:
                    continue
                inside = _contained(match, claimed) if rule.order == "program" else []
                verdict = judge(match, self.taken, inside)
                if isinstance(rule, RewriteRule) and isinstance(verdict, Match):
                    verdict = _object_to_replacement(verdict, rule) or verdict
                if isinstance(verdict, Match):
                    self._take(verdict, inside)
                    return None
                first = first or verdict
        except StepBudgetExceededError as error:
            first = Rejection(rule, root, "budget", error.message, root)
        return first

    def _take(self, match: Match, inside: Iterable[Match]) -> None:
        self.absorbed.update(id(smaller) for smaller in inside)
        self.taken.add(match, inside)
        self.selection.matches.append(match)


def _object_to_replacement(match: Match, rule: RewriteRule) -> Rejection | None:
    """Say why nothing can take the place of *match*."""
    draft = draft_replacement(match, rule.instance() or rule.replacement)
    if isinstance(draft, Draft):
        return None
    return match.reject("the rule's function leaves it") if draft is None else draft


def _contained(match: Match, claimed: Mapping[Node, Match]) -> list[Match]:
    """Return the earlier matches of the same rule that *match* contains whole and outgrows."""
    members = set(match.nodes)
    touched = {id(found): found for node in match.nodes if (found := claimed.get(node)) is not None}
    return [
        found
        for found in touched.values()
        if found.rule is match.rule
        and len(found.nodes) < len(members)
        and members.issuperset(found.nodes)
    ]
