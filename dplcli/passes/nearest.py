"""Which rule comes nearest to the nodes that no match has, and why it does not take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.keys import keys
from dplcli.language.explain import NEAREST_BUDGET, Tracer
from dplcli.language.matcher import Fingerprints
from dplcli.passes.records import call_of_written, is_constant_node
from dplcli.passes.select import NO_ROOT, Mentions, nearness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import Node
    from dplcli.language.explain import Explainer, MatchTrace
    from dplcli.language.rule import Rejection, Rule

_DEPTH = 3
"""How many nodes above one another tell which nodes are alike."""


@keys(
    "node scope=node.scope alike rule stage matched of reason",
    columns="node nodes=alike:count nearest_rule=rule fits reason:prose",
)
class NearestRule(NamedTuple):
    """The rule that comes nearest to taking a node that none takes.

    Attributes:
        node: The node; of several that are alike, the first.
        alike: How many nodes of its operator fail for the same reason.
        reason: Why the rule does not take it.
        rule: The rule; None if none has such a node.
        stage: The stage at which its match was refused, or "".
        matched: How many nodes of its pattern fit.
        of: How many nodes its pattern has.
    """

    node: Node
    alike: int
    reason: str
    rule: Rule | None = None
    stage: str = ""
    matched: int = 0
    of: int = 0

    @property
    def fits(self) -> str:
        """How much of the pattern fits."""
        return "all" if self.stage else f"{self.matched} of {self.of}" if self.of else ""


def nearest_rules(explainer: Explainer, rules: Sequence[Rule]) -> tuple[NearestRule, ...]:
    """Say of each node that no match has which of *rules* comes nearest; of those alike, once."""
    refused: dict[Node, Rejection] = {}
    for item in explainer.refused:
        if item.rule in rules:
            refused[item.root] = max(refused.get(item.root, item), item, key=nearness)
    groups = _alike(explainer, refused)
    tracers = [Tracer(rule, budget=NEAREST_BUDGET) for rule in rules]
    traces = {nodes[0]: _traces(nodes[0], tracers) for nodes in groups}
    inside = _inside(trace for found in traces.values() for trace in found)
    mentions = Mentions(rules)
    twins: dict[tuple[object, ...], NearestRule] = {}
    for nodes in groups:
        node, alike = nodes[0], len(nodes)
        found, why = traces[node], mentions.reason(node)
        if why == NO_ROOT:
            found = found or [inside[each] for each in nodes if each in inside]
        if node in refused:
            item = refused[node]
            text = item.condition and item.condition.text
            key: tuple[object, ...] = (item.rule.qualified_name, item.stage, text)
            said = NearestRule(node, alike, item.reason, item.rule, item.stage)
        elif found:
            trace, reason = found[0], "another match has a part of it"
            if trace.mismatch is not None:
                reason = f"expected {trace.mismatch.expected}, found {trace.mismatch.found}"
            key = (trace.rule.qualified_name, trace.mismatch and trace.mismatch.pattern)
            said = NearestRule(node, alike, reason, trace.rule, "", trace.matched, trace.of)
        else:
            key, said = (), NearestRule(node, alike, why)
        other = twins.get((node.qualified_op, *key))
        twins[node.qualified_op, *key] = (
            said if other is None else other._replace(alike=other.alike + alike)
        )
    return tuple(twins.values())


def _alike(explainer: Explainer, refused: dict[Node, Rejection]) -> Iterable[list[Node]]:
    """Group the nodes that no match has by what tells how far a rule gets at them."""
    numbers = Fingerprints(_DEPTH)
    groups: dict[object, list[Node]] = {}
    for node in (node for index in explainer.indexes.all for node in index.graph):
        if node in explainer.owners or is_constant_node(node) or call_of_written(node):
            continue
        types = [None if value is None else value.known_type() for value in node.inputs]
        ranks = tuple(kind and (kind.dtype, kind.shape and len(kind.shape)) for kind in types)
        item = refused.get(node)
        cause = item and (item.rule.qualified_name, item.stage, id(item.condition))
        groups.setdefault((numbers.number(node), ranks, cause), []).append(node)
    return groups.values()


def _traces(node: Node, tracers: Iterable[Tracer]) -> list[MatchTrace]:
    """Return the attempts of rules that may be rooted at a node, those that got furthest first."""
    op = (node.domain, node.op_type)
    asked = [each for each in tracers if op in (each.rule.matcher.program.root.heads or ())]
    tried = [each.trace(node) for each in asked if each.rule.holds_for(node.graph)]
    return sorted(tried, key=_distance)


def _inside(traces: Iterable[MatchTrace]) -> dict[Node, MatchTrace]:
    """Return the nodes that parts of patterns fit, each with the attempt that got furthest."""
    inside: dict[Node, MatchTrace] = {}
    for trace in sorted(traces, key=_distance):
        for line, value in zip(trace.lines, trace.values, strict=True):
            if line.status == "matched" and value is not None and value.producer is not None:
                inside.setdefault(value.producer, trace)
    return inside


def _distance(trace: MatchTrace) -> tuple[int, int]:
    return -trace.matched, trace.of
