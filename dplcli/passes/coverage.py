"""How much of a model's work is inside matches, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.callee import OpKind, OpName
from dplcli.dpl.pattern import CallPattern, RepeatPattern
from dplcli.dpl.rule import PatternRule
from dplcli.dpl.scoping import all_parts
from dplcli.ir.flops import flops
from dplcli.ir.functions import called_function, callers_first, calls_in
from dplcli.ir.op_kinds import kind_of
from dplcli.passes.marks import call_of_written, is_for_target
from dplcli.passes.selection import matchable_graphs

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from dplcli.dpl.rule import Rule
    from dplcli.ir import Graph, Model, Node
    from dplcli.ir.operation import Shapes
    from dplcli.passes.selection import Selection

NO_RULE = "no rule has this operator"
NO_ROOT = "no rule is rooted at this operator"
NO_FIT = "no rule fits here"
REPEATED = "dpl does not look into the repeated block that it stands for"


@dataclass
class Work:
    """Some nodes, and what they compute.

    Attributes:
        nodes: How many they are.
        flops: Floating-point operations of those whose cost is known.
        unknown: How many have a cost that is not known.
    """

    nodes: int = 0
    flops: int = 0
    unknown: int = 0

    def add(self, cost: int | None, count: int = 1) -> None:
        """Count more nodes that cost the same."""
        self.nodes += count
        if cost is None:
            self.unknown += count
        else:
            self.flops += cost * count


class Share(NamedTuple):
    """What is inside matches, of how much.

    Attributes:
        inside: The part inside.
        whole: All of it.
    """

    inside: Work
    whole: Work


@dataclass(frozen=True)
class LeftOut:
    """Nodes of one operator that were left out for one reason.

    Attributes:
        op: The operator.
        reason: Why, in one sentence; of several refusals, the first one's.
        rule: The rule that refused them, or "".
        stage: The stage at which it did, or "".
        work: The nodes.
    """

    op: str
    reason: str
    rule: str
    stage: str
    work: Work


@dataclass(frozen=True)
class Coverage:
    """How much of a model is inside matches.

    Attributes:
        total: All nodes.
        by_op: The nodes by operator.
        by_target: What is inside, by target.
        left_out: What is not, biggest first.
        symbols: The dimensions of inputs that are not known: what makes costs unknown.
        problem: Why shape inference found nothing, or not all, or "".
        sizes: The dimensions of inputs that were counted with.
        chosen: Those of them that nobody asked for: the check chose them.
    """

    total: Share
    by_op: Mapping[str, Share]
    by_target: Mapping[str, Work]
    left_out: tuple[LeftOut, ...]
    symbols: tuple[str, ...] = ()
    problem: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()


@dataclass
class _Tally:
    """Counts under way."""

    total: Share = field(default_factory=lambda: Share(Work(), Work()))
    by_op: dict[str, Share] = field(default_factory=dict)
    by_target: dict[str, Work] = field(default_factory=dict)
    left_out: dict[tuple[str, str, str, str], LeftOut] = field(default_factory=dict)


class Cause(NamedTuple):
    """Why a node was left out.

    Attributes:
        rule: The rule that refused it, or "".
        stage: The stage at which it did, or "".
        reason: Why, in one sentence.
    """

    rule: str
    stage: str
    reason: str


def fates(model: Model, selection: Selection) -> list[str | Cause]:
    """Say of each node of *model* which target has it, or why none; before they are outlined.

    Returns:
        One item for each node that :func:`measure` counts, in its order.
    """
    targets = _targets(selection)
    refused = {item.root: item for item in reversed(selection.refused)}
    mentions = _Mentions(selection.rules)
    no_rule: dict[tuple[str, str, str], Cause] = {}
    found: list[str | Cause] = []
    for node in _counted(matchable_graphs(model)):
        target = targets.get(node)
        if target is None:
            target = _target_before(node)
        if target is not None:
            found.append(target)
        elif (refusal := refused.get(node)) is not None:
            found.append(Cause(refusal.rule.qualified_name, refusal.stage, refusal.reason))
        else:
            key = (node.domain, node.op_type, node.overload)
            if key not in no_rule:
                no_rule[key] = Cause("", "", mentions.reason(node))
            found.append(no_rule[key])
    return found


def _counted(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the nodes that do something: a Constant is data that stands in a node."""
    for graph in graphs:
        for node in graph:
            if node.op_type != "Constant" or node.domain:
                yield node


def measure(
    model: Model,
    outcome: Iterable[str | Cause],
    shapes: Shapes,
    symbols: tuple[str, ...] = (),
) -> Coverage:
    """Say how much of *model* is inside matches.

    Args:
        model: The model that was matched, or the same one read again.
        outcome: What became of each node (:func:`fates`).
        shapes: Tells the shape of a value.
        symbols: The dimensions of inputs whose sizes are not known.
    """
    tally = _Tally()
    alike: dict[tuple[str, str, str | Cause, int | None], int] = {}
    graphs = matchable_graphs(model)
    runs = _runs_of(model)
    times = {graph: runs[_outermost(graph)] for graph in graphs}
    bodies = set(graphs)
    for node, fate in zip(_counted(graphs), outcome, strict=True):
        cost = _cost_of(node, shapes, bodies)
        cost = None if cost is None else cost * times[node.graph]
        key = (node.domain, node.op_type, fate, cost)
        alike[key] = alike.get(key, 0) + 1
    for (domain, op_type, fate, cost), count in alike.items():
        op = f"{domain}.{op_type}" if domain else op_type
        _count(tally, op, fate if isinstance(fate, str) else None, cost, count)
        if isinstance(fate, Cause):
            _leave_out(tally, op, fate, cost, count)
    left = sorted(tally.left_out.values(), key=partial(_weight, by_nodes=bool(symbols)))
    return Coverage(tally.total, tally.by_op, tally.by_target, tuple(left), symbols)


def _runs_of(model: Model) -> dict[Graph, int]:
    """Count how often each outermost graph is run for once through *model*, by calls.

    That a body may be run more or less often than once is not counted.
    """
    runs = dict.fromkeys([function.body for function in model.functions.values()], 0)
    runs[model.graph] = 1
    calls = calls_in(model)
    for function in callers_first(calls):
        runs[function.body] = sum(runs[_outermost(node.graph)] for node in calls[function])
    return runs


def _outermost(graph: Graph) -> Graph:
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph


def _cost_of(node: Node, shapes: Shapes, bodies: Container[Graph]) -> int | None:
    """Estimate what *node* computes; what a call costs is counted inside the function."""
    function = called_function(node)
    return 0 if function is not None and function.body in bodies else flops(node, shapes)


def _count(tally: _Tally, op: str, target: str | None, cost: int | None, count: int) -> None:
    """Count *count* nodes of one operator that cost the same; without a target they are outside."""
    of_op = tally.by_op.setdefault(op, Share(Work(), Work()))
    for share in (of_op, tally.total):
        share.whole.add(cost, count)
        if target is not None:
            share.inside.add(cost, count)
    if target is not None:
        tally.by_target.setdefault(target, Work()).add(cost, count)


def _targets(selection: Selection) -> dict[Node, str]:
    """Return the target of each node that is in a match."""
    return {
        node: found.rule.target if isinstance(found.rule, PatternRule) else ""
        for found in selection.matches
        for node in found.nodes
    }


def _target_before(node: Node) -> str | None:
    """Return the target that a call was outlined for before; None if *node* is no such call."""
    function = call_of_written(node)
    return function.domain if function is not None and is_for_target(function) else None


def _leave_out(tally: _Tally, op: str, cause: Cause, cost: int | None, count: int) -> None:
    """Count *count* nodes that were left out; of several refusals by one rule the first speaks."""
    rule, stage, reason = cause
    key = (op, rule, stage, "" if rule else reason)
    if key not in tally.left_out:
        tally.left_out[key] = LeftOut(op, reason, rule, stage, Work())
    tally.left_out[key].work.add(cost, count)


def _weight(item: LeftOut, *, by_nodes: bool) -> tuple[object, ...]:
    """Order what is left out: by cost; where sizes are missing, heavy operators come first."""
    work = item.work
    sizes: tuple[object, ...] = (-work.flops, -work.unknown)
    if by_nodes:
        sizes = (kind_of(item.op) != "out-fusable", -work.unknown)
    return (*sizes, -work.nodes, item.op, item.rule, item.stage, item.reason)


class _Mentions:
    """Which operators the rules are rooted at, and which they have anywhere.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.roots: set[tuple[str, str]] = set()
        self.names: set[tuple[str, str]] = set()
        self.kinds: set[str] = set()
        self.has_open_root = False
        for rule in rules:
            heads = rule.matcher.program.root.heads
            self.has_open_root |= heads is None
            self.roots |= heads or set()
            for callee in _callees(rule):
                if isinstance(callee, OpName):
                    self.names.add((callee.domain, callee.op_type))
                elif isinstance(callee, OpKind):
                    self.kinds.add(callee.kind)

    def reason(self, node: Node) -> str:
        """Say why no rule took *node*, though none refused it."""
        key = (node.domain, node.op_type)
        if call_of_written(node) is not None:
            return REPEATED
        if key in self.roots or self.has_open_root:
            return NO_FIT
        of_kind = not node.domain and kind_of(node.op_type) in self.kinds
        return NO_ROOT if key in self.names or of_kind or "" in self.kinds else NO_RULE


def _callees(rule: Rule) -> Iterable[object]:
    for part in all_parts(rule.pattern):
        call = part.step if isinstance(part, RepeatPattern) else part
        if isinstance(call, CallPattern):
            yield from call.op.choices
