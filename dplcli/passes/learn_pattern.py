"""Learn a rule from a subgraph that somebody points at."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.errors import PassError, PatternSyntaxError, UsageError, counted
from dplcli.ir.operators import MOVED, RANKED_SLOTS, inputs_of, parameter_of, schema_of, slot_of
from dplcli.ir.traversal import behind_identities, is_identity, path_through_outside, users
from dplcli.keys import keys
from dplcli.language.conditions import Condition
from dplcli.language.matcher import StepBudgetExceededError
from dplcli.language.rule import Match, PatternRule, read_match
from dplcli.language.text import parse_pattern
from dplcli.passes.pattern_writer import (
    KEPT_ATTRIBUTES,
    MOST_NAMED,
    NodePlace,
    NoRuleError,
    PatternWriter,
    attribute_text,
    attributes_of,
    leaf_word,
    list_nodes,
    rule_name,
    say,
    shape_of,
)
from dplcli.passes.records import is_constant_node
from dplcli.passes.rewriter import reachable
from dplcli.passes.select import describe_escape, judge, matchable_graphs, select_matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.ir import Graph, Model, Node, Value


# The nodes that a rule is learned from: one connected, convex piece of one graph.


def read_example(nodes: Sequence[Node]) -> NodePlace:
    """Read *nodes*, without Identity and Constant nodes, if a rule can be learned from them.

    Raises:
        UsageError: They are in different graphs, not connected or not convex, or no function can
            hold them; says which nodes are concerned, and what to do.
    """
    if not nodes:
        raise UsageError("no node is named", hint="pass the names of the nodes to learn from")
    first = nodes[0]
    stray = next((node for node in nodes if node.graph is not first.graph), None)
    if stray is not None:
        raise UsageError(
            f"{say(first)} is in {_scope(first.graph)} and {say(stray)} in {_scope(stray.graph)}: "
            "a pattern never spans two graphs"
        )
    members = sorted(
        {node for node in nodes if not is_identity(node) and not is_constant_node(node)},
        key=lambda node: node.position,
    )
    if not members:
        raise UsageError(
            "there is nothing to learn from Identity and Constant nodes alone",
            hint="add the nodes that read them",
        )
    for node in members:
        if node.subgraphs:
            raise UsageError(
                f"{say(node)} has a body of its own, which no pattern tells from others"
            )
    copies = _copies_between(members)
    whole = sorted({*members, *copies}, key=lambda node: node.position)
    # The values made by *whole* that the graph returns or that others read.
    inside = set(whole)
    outputs = [output for node in whole for output in node.made]
    leaving = [
        v for v in outputs if v.is_graph_output or any(user not in inside for user in users(v))
    ]
    _check_convex(whole, leaving)
    place = NodePlace()
    for node in members:
        place.add(node, enumerate(inputs_of(node)))
    _check_connected(place)
    # Refuse an inner Identity node with readers outside: a match has none of those as output.
    for value in leaving:
        producer = value.producer
        if producer is not None and producer in copies:
            outside = describe_escape(value, whole)
            raise UsageError(
                f"{say(producer)} lies between the nodes named, but {outside}",
                hint="add what reads it, or remove the Identity node from the model",
            )
    for root in _ordered_roots(place, whole, leaving):
        index = next(i for i, output in enumerate(root.outputs) if output is not None)
        place.outputs.append(("node", place.numbered[root], index))
    return place


def _scope(graph: Graph) -> str:
    if graph.owner is not None:
        return f"a body of {say(graph.owner)}"
    functions = graph.model.functions.values()
    function = next((item for item in functions if item.body is graph), None)
    return "the main graph" if function is None else f"the function {function.name!r}"


def _copies_between(members: Sequence[Node]) -> list[Node]:
    """Return the Identity nodes that lie between two of *members*."""
    inside = set(members)
    copies: dict[Node, None] = {}
    for node in members:
        for value in node.inputs:
            if value is None or behind_identities(value).producer not in inside:
                continue
            producer = value.producer
            while producer is not None and producer not in inside:
                copies[producer] = None
                copied = producer.inputs[0]
                producer = None if copied is None else copied.producer
    return list(copies)


def _check_convex(whole: Sequence[Node], leaving: Sequence[Value]) -> None:
    """Refuse nodes with others between them, and name the first few of those."""
    extended, values = list(whole), list(leaving)
    missing: list[Node] = []
    while len(missing) <= MOST_NAMED:
        outside = path_through_outside(extended, values)
        if outside is None:
            break
        missing.append(outside)
        extended.append(outside)
        values += outside.made
    missing = sorted(
        (node for node in missing if not is_identity(node)), key=lambda node: node.position
    )
    if not missing:
        return
    more = ", and more" if len(missing) > MOST_NAMED else ""
    shown = ", ".join(say(node) for node in missing[:MOST_NAMED])
    is_one = len(missing) == 1
    raise UsageError(
        f"{shown}{more} {'lies' if is_one else 'lie'} between the nodes named",
        hint=f"add {'it' if is_one else 'them'} to the nodes",
    )


def _check_connected(place: NodePlace) -> None:
    """Refuse nodes that neither feed one another nor read the same value."""
    apart = place.apart()
    if apart:
        joined = [node for node in place.nodes if node not in apart]
        raise UsageError(
            f"the nodes are not connected: {list_nodes(joined)} on one side, "
            f"{list_nodes(apart)} on the other",
            hint="add the nodes between them, or learn a rule for each side",
        )


def _ordered_roots(
    place: NodePlace, whole: Sequence[Node], leaving: Sequence[Value]
) -> Iterator[Node]:
    """Yield the nodes that make the outputs, each with something above it in common with others.

    So whoever has matched the first ones need not search the whole graph for the next.
    """
    inside = set(whole)
    escaping = {value.producer for value in leaving}
    roots = [
        number
        for number, node in enumerate(place.nodes)
        if node in escaping or inside.isdisjoint(user for out in node.made for user in users(out))
    ]
    cones = {root: reachable([("node", root)], place.read_by) for root in roots}
    seen = set(cones[roots[0]])
    while roots:
        following = next(root for root in roots if not seen.isdisjoint(cones[root]))
        seen |= cones[following]
        roots.remove(following)
        yield place.nodes[following]


class _ExampleWriter(PatternWriter[NodePlace]):
    """Writes the pattern of an example: exact in operators and wiring, free in nearly all else.

    Attributes:
        notes: What it keeps of the example and what it leaves free, a line per node.
    """

    def __init__(self, place: NodePlace, *, exact: bool) -> None:
        super().__init__([place], {node.domain for node in place.nodes})
        self.notes: list[str] = []
        self._exact = exact
        self._kept: list[str] = []
        self._free: list[str] = []

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions."""
        return tuple(map(Condition, self.where))

    def pattern(self) -> str:
        """Write the pattern; a single root has a name only if a condition needs it."""
        lines = super().pattern().splitlines()
        root, _, text = lines[-2].partition(" = ")
        named = {name for condition in self.conditions() for name in condition.names}
        if len(self.first.outputs) == 1 and root not in named:
            lines[-2:] = [text + lines[-1].removeprefix(root)]
        return "\n".join(lines)

    def call(self, number: int) -> str:
        """Write a node, and a note on it."""
        node, self._kept, self._free = self.first.nodes[number], [], []
        text = super().call(number)
        parts = [f"keeps {', '.join(self._kept)}"] if self._kept else []
        parts += [f"leaves {', '.join(self._free)} free"] if self._free else []
        if parts:
            self.notes.append(f"{say(node)} {' and '.join(parts)}")
        return text

    def given(self, number: int) -> dict[int, str]:
        """Return the axes that a node is given by a constant; of an exact rule, all it states."""
        node = self.first.nodes[number]
        moved = {} if node.domain else {m.slot: m.attribute for m in MOVED.get(node.op_type, ())}
        given = {}
        for slot in range(len(self.first.args[number])):
            name = moved.get(slot, leaf_word(node, slot))
            parameter = parameter_of(node, name)
            is_kept = name in _AXES or (self._exact and name in node.attributes and slot in moved)
            if is_kept and parameter is not None:
                given[slot] = attribute_text(name, parameter.value)
        return given

    def attributes(self, number: int) -> list[str]:
        """Write what says what is computed, unless it is usual; of an exact rule, all stated."""
        node = self.first.nodes[number]
        schema = schema_of(node)
        usual = {} if schema is None else {n: a.value for n, a in schema.defaults.items()}
        texts = {}
        for name, attribute in attributes_of(node).items():
            is_telling = name in KEPT_ATTRIBUTES and usual.get(name) != attribute.value
            if not attribute.ref and (is_telling or (self._exact and name in node.attributes)):
                with suppress(NoRuleError):
                    texts[name] = attribute_text(name, attribute.value)
        self._free = [n for n in node.attributes if n not in texts and slot_of(node, n) is None]
        if "group" in texts and not self._exact and self._is_depthwise(number):
            del texts["group"]
        self._kept += [*self.given(number).values(), *texts.values()]
        return [*texts.values()]

    def operand(self, reader: int, place: int) -> str:
        """Write what a node reads, and one rank if it shows over how many dimensions a window runs.

        It is that of a value from outside, else of the weight of a convolution.
        """
        text = super().operand(reader, place)
        node, args = self.first.nodes[reader], self.first.args[reader]
        if args[place][0] == "number":
            self._kept.append(f"input {place} = {self.first.numbers[reader, place]}")
        slots = () if node.domain else RANKED_SLOTS.get(node.op_type, ())
        telling = [slot for slot in slots if slot < len(args) and args[slot][0] == "leaf"]
        shapes = {slot: shape_of(node.inputs[slot]) for slot in (*telling, *slots[:-1])}
        ranked = next((slot for slot, shape in shapes.items() if shape is not None), None)
        if place != ranked:
            return text
        self._kept.append(f"rank {len(shapes[place] or ())} of input {place}")
        return f"{text}.has_rank({len(shapes[place] or ())})"

    def leaf(self, reader: int, place: int) -> str:
        """Write a value from outside; a constant stays one, and a bias per channel stays that."""
        operand, node = self.first.args[reader][place], self.first.nodes[reader]
        name, value = self.name_of(operand), self.first.value(operand)
        product = self.first.product_biased_by(node, place) if value.is_constant else None
        if product is not None and product.op_type in {"Conv", "ConvTranspose"}:
            made = ("node", self.first.numbered[product], 0)
            text = f"per_channel({name}, {self.name_of(made)})"
            bound = {name: value, self.name_of(made): self.first.value(made)}
            if Condition(text).unmet_by(bound) is None:
                self.demand(text)
                self._kept.append(f"one number per channel in input {place}")
        return f"const({name})" if value.is_constant else name

    def _is_depthwise(self, number: int) -> bool:
        """Keep of a convolution with a group per channel that it is one, for any number of them."""
        node, weight = self.first.nodes[number], self.first.args[number][1]
        shape = shape_of(node.inputs[1])
        if node.op_type != "Conv" or node.domain or weight[0] != "leaf" or not shape:
            return False
        if shape[1] != 1:
            return False
        name = self.node_names[number]
        self.demand(f"{name}.attrs.group > 1", f"{self.name_of(weight)}.shape[1] == 1")
        self._kept.append("a group for each channel")
        return True


_AXES = frozenset({"axes", "axis"})
"""What some operators take as an input and others as an attribute."""


# Learn a rule from a subgraph: check the nodes, write the pattern, prove that it matches them.


DEFAULT_TARGET = "custom"


@keys("*=rule matches")
@dataclass(frozen=True)
class LearnedRule:
    """A rule made from an example.

    Attributes:
        rule: The rule.
        text: The text of its pattern.
        nodes: The nodes it was learned from, in topological order.
        notes: What it keeps of the example and what it leaves free.
        matches: How many matches it has in the model.
    """

    rule: PatternRule
    text: str
    nodes: tuple[Node, ...]
    notes: tuple[str, ...]
    matches: int


def learn_rule(
    model: Model,
    nodes: Sequence[Node],
    *,
    name: str = "",
    target: str = DEFAULT_TARGET,
    exact: bool = False,
) -> LearnedRule:
    """Make a rule that matches *nodes* and all that is like them; the model is not changed.

    Args:
        model: The model.
        nodes: Nodes of one of its graphs, connected and convex. Identity and Constant nodes among
            them do not count.
        name: What to call the rule; "" for a name made from the operators.
        target: Target of the rule.
        exact: Whether to demand every attribute that the file states.

    Raises:
        UsageError: The nodes make no subgraph that a rule can describe.
        PassError: The rule does not match the nodes it was learned from.
    """
    example = read_example(nodes)
    if example.nodes[0].graph not in matchable_graphs(model):
        raise UsageError(
            f"{say(example.nodes[0])} is in a function that dpl partition wrote",
            hint="learn from the model that was partitioned",
        )
    writer = _ExampleWriter(example, exact=exact)
    try:
        text = writer.pattern()
        pattern = parse_pattern(text, model.codec.schemas)
    except (PatternSyntaxError, NoRuleError) as error:
        what = f"no pattern can describe these nodes: {error.message}"
        raise UsageError(what, hint=error.hint) from error
    label = "a model" if model.path is None else model.path.name
    count = counted(len(example.nodes), "node")
    rule = PatternRule(
        target=target,
        name=name or rule_name(example.nodes),
        pattern=pattern,
        where=writer.conditions(),
        constants="lift",
        doc=f"Learned from {count} of {label}: {list_nodes(example.nodes)}.",
    )
    _prove(rule, example)
    selection, notes = select_matches(model, [rule]), writer.notes
    if not any(_core(match) == {*example.nodes} for match in selection.matches):
        notes.append("another match of the rule takes some of the nodes it was learned from")
    if given_up := sum(item.stage == "budget" for item in selection.refused):
        where = f"the search was given up at {counted(given_up, 'node')}"
        notes.append(f"{where}: too much in the model is like these nodes")
    elif "const(" in text:
        free = parse_pattern(re.sub(r"const\((\w+)\)", r"\1", text), model.codec.schemas)
        looser = select_matches(model, [replace(rule, pattern=free)])
        more = len(looser.matches) - len(selection.matches)
        if more > 0:
            would = f"{more} more would match if constants might be computed"
            notes.append(f"{would}: x instead of const(x)")
    nodes, matches = tuple(example.nodes), len(selection.matches)
    return LearnedRule(rule, repr(pattern), nodes, tuple(notes), matches)


def _prove(rule: PatternRule, example: NodePlace) -> None:
    """Check that the rule may match exactly *example*, as far as no other match is concerned."""
    members, root = {*example.nodes}, example.nodes[example.outputs[0][1]]
    reasons: dict[str, None] = {}
    try:
        for state in rule.matcher.solutions(root):
            match = read_match(rule, root, state)
            if match is None or _core(match) != members:
                continue
            verdict = judge(match)
            if isinstance(verdict, Match):
                return
            reasons[f"{verdict.stage}: {verdict.reason}"] = None
    except StepBudgetExceededError as error:
        raise PassError(
            f"too much in the model is like these nodes: {error.message}",
            hint="name fewer nodes, or those as well that tell them from the others",
        ) from error
    why = "; ".join(reasons) or "its pattern does not fit"
    raise PassError(
        f"the rule learned does not match the nodes it was learned from: {why}",
        hint=f"this is a bug in dpl; the pattern is\n{rule.pattern!r}",
    )


def _core(match: Match) -> set[Node]:
    return {node for node in match.nodes if not is_identity(node)}
