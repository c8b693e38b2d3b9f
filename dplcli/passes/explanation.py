"""Why rules match where they do, and why not elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.dpl.index import OpIndex
from dplcli.dpl.matcher import Matcher
from dplcli.dpl.pattern import CallPattern
from dplcli.dpl.scoping import all_parts
from dplcli.dpl.state import StepBudgetExceededError
from dplcli.dpl.tracing import Tracer, headline
from dplcli.ir.traversal import users
from dplcli.passes.selection import matchable_graphs, select_matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.rule import Rule
    from dplcli.dpl.steps import Ops
    from dplcli.dpl.tracing import Trace
    from dplcli.ir import Model, Node
    from dplcli.passes.selection import Selection

    Verdict: TypeAlias = Literal["matched", "inside", "refused", "mismatch", "taken", "skipped"]

_MOST_NAMED = 4
_NEAREST_BUDGET = 20_000
MOST_TRACED = 1000
"""Most nodes to look at for the nearest miss of one rule."""


class PartFit(NamedTuple):
    """A part of a pattern that fits though the whole does not.

    Attributes:
        part: The part.
        place: Where it is written, or "".
        nodes: At how many nodes it fits.
        example: The first of them.
        readers: What reads its value there: operators, most frequent first.
    """

    part: DFPattern
    place: str
    nodes: int
    example: Node
    readers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class RuleExplanation:
    """What became of one rule.

    Attributes:
        rule: The rule.
        candidates: How many nodes have an operator that the pattern's root may have.
        matched: How many matches were taken.
        taken: How many candidates lie in matches of other rules, or inside its own.
        refused: How many fits were refused, by stage.
        examples: The first refusal of each stage.
        missing: Operators that every match needs and the model does not have.
        nearest: The furthest attempt among the candidates that do not fit, or None.
        part: The largest part that fits somewhere, if the model has no candidate at all.
        opset_holds: Whether the rule holds for the model's opset.
    """

    rule: Rule
    candidates: int
    matched: int
    taken: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    examples: tuple[Rejection, ...] = ()
    missing: tuple[str, ...] = ()
    nearest: Trace | None = None
    part: PartFit | None = None
    opset_holds: bool = True


class NodeExplanation(NamedTuple):
    """What one rule says of one node as the root of a match.

    Attributes:
        rule: The rule.
        node: The node.
        verdict: "matched" (it is the root of a match), "inside" (it is another node of one),
            "taken" (another rule's match has it), "refused", "mismatch", or "skipped" (it lies in
            a function that a partition wrote, or the rule does not hold for its opset).
        match: The match that has the node.
        rejection: Why a fit was refused.
        trace: How far the pattern got.
    """

    rule: Rule
    node: Node
    verdict: Verdict
    match: Match | None = None
    rejection: Rejection | None = None
    trace: Trace | None = None


class Explainer:
    """Answers questions about one model and a list of rules.

    Args:
        model: The model.
        rules: All rules of the run, since earlier ones take nodes from later ones.
    """

    def __init__(self, model: Model, rules: Sequence[Rule]) -> None:
        """Select matches as a partition would."""
        self.model = model
        self.selection: Selection = select_matches(model, rules)
        self.indexes = [OpIndex(graph) for graph in matchable_graphs(model)]
        self.owners = {node: match for match in self.selection.matches for node in match.nodes}

    def rule(self, rule: Rule) -> RuleExplanation:
        """Explain what became of *rule*."""
        matched = sum(match.rule is rule for match in self.selection.matches)
        rejections = [item for item in self.selection.refused if item.rule is rule]
        first: dict[str, Rejection] = {}
        for item in rejections:
            first.setdefault(item.stage, item)
        roots = self._roots(rule)
        found = RuleExplanation(
            rule,
            candidates=len(roots),
            matched=matched,
            taken=sum(root in self.owners for root in roots) - matched,
            refused=dict(Counter(item.stage for item in rejections)),
            examples=tuple(first.values()),
            missing=self._missing(rule),
            opset_holds=any(rule.holds_for(index.graph) for index in self.indexes),
        )
        if not roots:
            return replace(found, part=self._largest_part(rule))
        settled = {item.root for item in rejections} | self.owners.keys()
        return replace(found, nearest=_nearest(rule, [r for r in roots if r not in settled]))

    def node(self, rule: Rule, node: Node) -> NodeExplanation:
        """Explain what *rule* says of *node*."""
        tried = any(node.graph is index.graph for index in self.indexes)
        if not tried or not rule.holds_for(node.graph):
            return NodeExplanation(rule, node, "skipped")
        owner = self.owners.get(node)
        trace = Tracer(rule).trace(node)
        if owner is not None and owner.rule is rule:
            verdict: Verdict = "matched" if owner.root is node else "inside"
            return NodeExplanation(rule, node, verdict, owner, trace=trace)
        for item in self.selection.refused:
            if item.rule is rule and item.root is node:
                return NodeExplanation(rule, node, "refused", rejection=item, trace=trace)
        if owner is not None and trace.fits:
            return NodeExplanation(rule, node, "taken", owner, trace=trace)
        return NodeExplanation(rule, node, "mismatch", owner, trace=trace)

    def _roots(self, rule: Rule) -> list[Node]:
        heads = rule.matcher.program.root.heads
        return [node for index in self.indexes for node in index.of(heads)]

    def _missing(self, rule: Rule) -> tuple[str, ...]:
        required = rule.matcher.program.root.required
        absent = [need for need in required if all(index.lacks(need) for index in self.indexes)]
        ops = [need for need in absent if isinstance(need, frozenset)]
        if ops:
            least = [need for need in ops if not any(other < need for other in ops)]
            return tuple(sorted(map(_named, least)))
        edges = (need for need in absent if not isinstance(need, frozenset))
        return tuple(sorted(f"{_named(b)} that reads a {_named(a)}" for a, b in edges))

    def _largest_part(self, rule: Rule) -> PartFit | None:
        for part in reversed(all_parts(rule.pattern)[:-1]):
            if not isinstance(part, CallPattern):
                continue
            fits = self._fits(Matcher(part))
            if fits:
                readers = Counter(
                    user.qualified_op
                    for node in fits
                    for output in node.outputs
                    if output is not None
                    for user in users(output)
                )
                place = rule.place(part)
                return PartFit(part, place, len(fits), fits[0], tuple(readers.most_common(3)))
        return None

    def _fits(self, matcher: Matcher) -> list[Node]:
        found = []
        for index in self.indexes:
            for node in index.candidates(matcher.program):
                try:
                    fits = any(node in state.claimed for state in matcher.solutions(node))
                except StepBudgetExceededError:
                    fits = False
                if fits:
                    found.append(node)
        return found


def _named(ops: Ops) -> str:
    """Name operators to choose from: ``Add or Sum``."""
    names = sorted(f"{domain}.{op_type}" if domain else op_type for domain, op_type in ops)
    shown = names if len(names) <= _MOST_NAMED else [*names[:_MOST_NAMED], "another of its class"]
    return " or ".join(shown)


def _nearest(rule: Rule, roots: Sequence[Node]) -> Trace | None:
    """Return the attempt that matched most nodes, the first of several."""
    tracer = Tracer(rule, budget=_NEAREST_BUDGET)
    best: Trace | None = None
    for root in roots[:MOST_TRACED]:
        trace = tracer.trace(root)
        if not trace.fits and (best is None or trace.matched > best.matched):
            best = trace
    return best


def describe_part(fit: PartFit) -> str:
    """Say where a part fits, and what reads it there."""
    readers = ", ".join(f"{count} {op}" for op, count in fit.readers) or "nothing"
    times = "1 node" if fit.nodes == 1 else f"{fit.nodes} nodes"
    return f"{headline(fit.part)} fits at {times}, such as {fit.example.label!r}; read by {readers}"
