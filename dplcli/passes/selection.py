"""Decide which matches of a list of rules are taken, and say why the others are not.

Rules in listed order over the whole model, earlier wins everywhere; within a rule consumers
before producers (Relay's ``pattern.partition``). A match that is refused leaves its nodes free,
and another way to match at the same root is tried before the root is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from dplcli.dpl.index import OpIndex
from dplcli.dpl.match import Match, Rejection
from dplcli.dpl.matcher import StepBudgetExceededError
from dplcli.ir import Node, Value
from dplcli.ir.traversal import enclosing_node, path_through_outside, users

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.rule import PatternRule
    from dplcli.dpl.steps import State
    from dplcli.ir import Graph, Model

_POSITION = attrgetter("position")

PARTITION_MARK = "Composite"
"""Metadata key of a function that a partition wrote; its body is not matched again."""


@dataclass
class Selection:
    """What the rules found.

    Attributes:
        matches: The matches taken; no node is in two of them.
        refused: The first attempt of each rule at every root where its pattern fits but was
            refused, unless another match took the root.
        totals: How many nodes of each operator were looked at.
        rules: The rules that were tried.
    """

    rules: tuple[PatternRule, ...] = ()
    matches: list[Match] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)


def select_matches(model: Model, rules: Sequence[PatternRule]) -> Selection:
    """Match *rules* against every graph of *model*; nothing is edited."""
    selection = Selection(rules=tuple(rules))
    indexes = [OpIndex(graph) for graph in matchable_graphs(model)]
    for index in indexes:
        for (domain, op_type), count in index.counts.items():
            op = f"{domain}.{op_type}" if domain else op_type
            selection.totals[op] = selection.totals.get(op, 0) + count
    claimed: set[Node] = set()
    for rule in rules:
        for index in indexes:
            for root in reversed(index.candidates(rule.matcher.program)):
                if root not in claimed:
                    _select_at(root, rule, claimed, selection)
    selection.refused = [item for item in selection.refused if item.root not in claimed]
    return selection


def in_program_order(matches: Iterable[Match]) -> list[Match]:
    """Sort matches by their roots: graph by graph, in topological order."""
    matches = list(matches)
    if not matches:
        return []
    ranks = {graph: rank for rank, graph in enumerate(matches[0].root.graph.model.graphs())}
    return sorted(matches, key=lambda found: (ranks[found.root.graph], found.root.position))


def matchable_graphs(model: Model) -> list[Graph]:
    """Return every graph but the bodies of functions that a partition wrote."""
    written = {f.body for f in model.functions.values() if PARTITION_MARK in f.metadata}
    return [graph for graph in model.graphs() if graph not in written]


def _select_at(root: Node, rule: PatternRule, claimed: set[Node], selection: Selection) -> None:
    first: Rejection | None = None
    try:
        for state in rule.matcher.solutions(root):
            match = _read_match(rule, root, state)
            if match is None:
                continue
            rejection = judge(match, claimed)
            if rejection is None:
                claimed.update(match.nodes)
                selection.matches.append(match)
                return
            first = first or rejection
    except StepBudgetExceededError as error:
        first = Rejection(rule, root, "budget", error.message, root)
    if first is not None:
        selection.refused.append(first)


def _read_match(rule: PatternRule, root: Node, state: State) -> Match | None:
    """Copy a solution out of *state*; None if the root itself is only looked through."""
    if root not in state.claimed:
        return None
    slots = state.slots
    bindings: dict[str, Value] = {}
    for name, choices in rule.matcher.program.names:
        for slot in choices:
            bound = slots[slot]
            if bound is not None:
                value = bound.outputs[0] if isinstance(bound, Node) else bound
                if isinstance(value, Value):
                    bindings[name] = value
                break
    nodes = state.claimed.union(state.through) if state.through else state.claimed
    ordered = tuple(sorted(nodes, key=_POSITION))
    return Match(rule, root, ordered, bindings, _constants(rule, slots))


def _constants(rule: PatternRule, slots: Sequence[object]) -> tuple[Value, ...]:
    """Return the values that only constant leaves matched: one a wildcard took is lifted."""
    program = rule.matcher.program
    if not program.constant_slots:
        return ()
    by_other = {slots[slot] for slot in program.other_slots}
    found = dict.fromkeys(slots[slot] for slot in program.constant_slots)
    return tuple(v for v in found if isinstance(v, Value) and v not in by_other)


def judge(match: Match, claimed: AbstractSet[Node]) -> Rejection | None:
    """Return why *match* must be refused; None if it may be taken."""
    rule, root = match.rule, match.root
    for node in match.nodes:
        if node in claimed:
            return Rejection(rule, root, "overlap", f"{node.label!r} is in another match", node)
        if node.subgraphs:
            reason = f"{node.label!r} has a body of its own, which a function cannot take along"
            return Rejection(rule, root, "check", reason, node)
    if "" not in root.graph.opset_imports and not all(node.domain for node in match.nodes):
        reason = "the model does not say which opset of the standard operators it uses"
        return Rejection(rule, root, "check", reason, root)
    escaping = escaping_values(match.nodes, root)
    for value in escaping:
        return Rejection(rule, root, "escape", _describe_escape(value, match.nodes), value)
    for condition in rule.where:
        reason = condition.reason_against(match.bindings)
        if reason:
            return Rejection(rule, root, "where", reason, root)
    return _judge_convexity(match, escaping)


def escaping_values(nodes: Sequence[Node], root: Node) -> list[Value]:
    """Return the values made inside *nodes*, not by *root*, that something outside reads."""
    members = set(nodes)
    return [
        output
        for node in nodes
        if node is not root
        for output in node.outputs
        if output is not None and _is_read_outside(output, members)
    ]


def _is_read_outside(value: Value, members: AbstractSet[Node]) -> bool:
    if value.returned_by:
        return True
    for user, _ in value.iter_uses():
        if user not in members and enclosing_node(user, value.graph) not in members:
            return True
    return False


def _describe_escape(value: Value, nodes: Iterable[Node]) -> str:
    if value.is_graph_output:
        return f"{value.name!r} is a graph output"
    outside = next(user for user in users(value) if user not in set(nodes))
    return f"{value.name!r} is also read by {outside.op_type} {outside.label!r}"


def _judge_convexity(match: Match, escaping: Sequence[Value]) -> Rejection | None:
    """Refuse a match that would form a cycle with the rest of its graph."""
    leaving = list(escaping)
    if match.root is not match.nodes[-1]:
        leaving += [value for value in match.root.outputs if value is not None]
    if not leaving:
        return None
    outside = path_through_outside(match.nodes, leaving)
    if outside is None:
        return None
    reason = f"{outside.label!r} lies outside but between two nodes of the match"
    return Rejection(match.rule, match.root, "convexity", reason, outside)
