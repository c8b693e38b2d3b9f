"""Learn a rule from a subgraph that somebody points at."""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.conditions import FUNCTION_NAMES, Condition
from dplcli.dpl.matcher import StepBudgetExceededError
from dplcli.dpl.pattern import (
    ConstantPattern,
    absent,
    all_parts,
    is_call,
    is_const,
    is_op,
    outputs,
    wildcard,
)
from dplcli.dpl.rule import Match, PatternRule, read_match
from dplcli.dpl.text import parse_pattern, spelled_attributes
from dplcli.errors import PassError, PatternSyntaxError, UsageError
from dplcli.ir import Node
from dplcli.ir.operators import (
    BIASED,
    MOVED,
    NUMBER_SLOTS,
    RANKED_SLOTS,
    inputs_of,
    parameter_of,
    schema_of,
    slot_of,
)
from dplcli.ir.traversal import behind_identities, is_identity, path_through_outside, users
from dplcli.ir.types import DTYPE_NAMES
from dplcli.keys import keys
from dplcli.passes.records import is_constant_node
from dplcli.passes.rewriter import claim, reachable
from dplcli.passes.select import describe_escape, judge, matchable_graphs, select_matches

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.pattern import AttributeValue, CallPattern, DFPattern, OpPattern, Scalar
    from dplcli.ir import Attribute, Graph, Model, Shape, Value
    from dplcli.passes.select import Selection


# The nodes that a rule is learned from: one connected, convex piece of one graph.


_MOST_NAMED = 8
"""Most nodes that a message names."""


class NodeExample(NamedTuple):
    """The nodes that a rule is learned from.

    Attributes:
        nodes: Its nodes in topological order, without Identity and Constant nodes.
        roots: Those whose outputs are needed outside, or nowhere; each but the first has something
            in common with those before it.
    """

    nodes: tuple[Node, ...]
    roots: tuple[Node, ...]


def read_example(nodes: Sequence[Node]) -> NodeExample:
    """Check that a rule can be learned from *nodes*.

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
    _check_connected(members)
    # Refuse an inner Identity node with readers outside: a match has none of those as output.
    for value in leaving:
        producer = value.producer
        if producer is not None and producer in copies:
            outside = describe_escape(value, whole)
            raise UsageError(
                f"{say(producer)} lies between the nodes named, but {outside}",
                hint="add what reads it, or remove the Identity node from the model",
            )
    return NodeExample(tuple(members), tuple(_ordered_roots(members, whole, leaving)))


def say(node: Node) -> str:
    """Name *node* in a message."""
    return f"{node.qualified_op} {node.label!r}"


def list_nodes(nodes: Sequence[Node], most: int = _MOST_NAMED) -> str:
    """Name some nodes, and say how many more there are."""
    texts = [say(node) for node in nodes[:most]]
    if len(nodes) > most:
        texts.append(f"and {len(nodes) - most} more")
    return ", ".join(texts)


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
    while len(missing) <= _MOST_NAMED:
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
    more = ", and more" if len(missing) > _MOST_NAMED else ""
    shown = ", ".join(say(node) for node in missing[:_MOST_NAMED])
    is_one = len(missing) == 1
    raise UsageError(
        f"{shown}{more} {'lies' if is_one else 'lie'} between the nodes named",
        hint=f"add {'it' if is_one else 'them'} to the nodes",
    )


def _check_connected(members: Sequence[Node]) -> None:
    """Refuse nodes that neither feed one another nor read the same value."""
    inside = set(members)
    neighbours: dict[object, list[object]] = {}
    for node in members:
        neighbours.setdefault(node, [])
        for other in _read_by(node, inside):
            neighbours[node].append(other)
            neighbours.setdefault(other, []).append(node)
    first: list[object] = [members[0]]
    reached = reachable(first, neighbours.__getitem__)
    apart = [node for node in members if node not in reached]
    if apart:
        joined = [node for node in members if node in reached]
        raise UsageError(
            f"the nodes are not connected: {list_nodes(joined)} on one side, "
            f"{list_nodes(apart)} on the other",
            hint="add the nodes between them, or learn a rule for each side",
        )


def _read_by(node: Node, members: AbstractSet[Node | None]) -> Iterator[Node | Value]:
    """Yield what *node* reads: members, or values that come from outside; constants join nothing.

    Identity nodes are looked through.
    """
    for value in inputs_of(node):
        origin = None if value is None else behind_identities(value)
        if origin is not None and not origin.is_constant:
            maker = origin.producer
            yield maker if maker is not None and maker in members else origin


def _ordered_roots(
    members: Sequence[Node], whole: Sequence[Node], leaving: Sequence[Value]
) -> Iterator[Node]:
    """Yield the nodes that make the outputs, each with something above it in common with others.

    So whoever has matched the first ones need not search the whole graph for the next.
    """
    inside = set(whole)
    escaping = {value.producer for value in leaving}
    roots = [
        node
        for node in members
        if node in escaping or inside.isdisjoint(user for out in node.made for user in users(out))
    ]
    cones = {root: _cone(root, inside) for root in roots}
    seen = set(cones[roots[0]])
    while roots:
        following = next(root for root in roots if not seen.isdisjoint(cones[root]))
        seen |= cones[following]
        roots.remove(following)
        yield following


def _cone(root: Node, inside: AbstractSet[Node | None]) -> set[Node | Value]:
    """Return *root* with everything above it that is inside, and the values read from outside."""

    def above(item: Node | Value) -> Iterable[Node | Value]:
        return _read_by(item, inside) if isinstance(item, Node) else ()

    return reachable([root], above)


# What a learned rule keeps of the example it is learned from; everything else it leaves free.
#
# A rule is to find the example's kin: the same operators wired the same way, for which one kernel
# can stand in. Attributes that a pattern does not name travel into the function and are given at
# each call, so a kernel can handle any value of them.


_KEPT_BY_REASON = {
    "which axes, in what order, and which element type": """
        axes axis batch_axis batch_dims dtype equation perm time_axis to
    """,
    "operands that are transposed, grouped or laid out in another way": """
        group layout storage_order transA transB
    """,
    "which way, which half, which end": """
        direction end exclusive inverse largest onesided reverse select_last_index start upper
    """,
    "another formula under the same name": """
        activation activations approximate detect_negative detect_positive fmod input_forget
        interleaved is_causal linear_before_reset mode p post_transform reduction training_mode
        unidirectional update_rule
    """,
    "where a window or a sample falls, and what counts in it": """
        align_corners auto_pad ceil_mode coordinate_transformation_mode count_include_pad
        nearest_mode padding_mode
    """,
    "what the result looks like": """
        allowzero keepdims new_axis noop_with_empty_axes
    """,
}

KEPT_ATTRIBUTES = frozenset(" ".join(_KEPT_BY_REASON.values()).split())
"""Attributes that say what a node computes, rather than on how much or how finely.

A rule names them where they differ from the schema's default. It leaves all others free: strides,
pads, dilations, kernel_shape, epsilon, alpha, momentum, hidden_size and so on. What an opset keeps
in an input (``axes`` of Squeeze) counts as an attribute if it is constant.
"""

LEAF_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("data", "data_0", "input", "input_data", "inputs", "tensor"), "x"),
        "input_mean": "mean",
        "input_var": "var",
        "max": "high",
        "min": "low",
    }
)
"""Better names for some formal inputs, after the shipped catalogues."""


# Names for the parts of a learned rule, and for the rule itself.


_RESERVED = frozenset(
    {*keyword.kwlist, *FUNCTION_NAMES, "const", "input", "is_value", "repeat", "dominates"}
    | {"optional", "unordered", "call", "function", "op"}
)
"""Words that mean something in a pattern or a condition already."""

_MOST_OPERATORS = 6
"""Most operators in the name of a rule."""


class PatternNames:
    """Names for the parts of one pattern, each given once.

    Args:
        reserved: Words that no part may have as its name.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self.used = {*_RESERVED, *reserved}

    def new(self, word: str) -> str:
        """Return *word*, or with a number behind it if a part has that name."""
        return claim(word, self.used)


def node_word(node: Node) -> str:
    """Write the operator in snake case: ``mat_mul``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", node.op_type)
    return _identifier(spaced, "node")


def leaf_word(node: Node, slot: int) -> str:
    """Return what the standard calls input *slot* of *node*, in lower case."""
    moved = () if node.domain else MOVED.get(node.op_type, ())
    formal = {item.slot: item.name for item in moved}
    schema = schema_of(node)
    if schema is not None and schema.inputs:
        last = len(schema.inputs) - 1
        formal = dict(enumerate(schema.inputs)) | {k: v for k, v in formal.items() if k > last}
        formal.setdefault(slot, schema.inputs[last])
    word = _identifier(formal.get(slot, "x"), "x")
    return LEAF_NAMES.get(word, word)


def rule_name(nodes: Sequence[Node]) -> str:
    """Name a rule after its operators: ``conv_add_relu``."""
    words = [node_word(node) for node in nodes]
    if len(words) > _MOST_OPERATORS:
        return f"{words[0]}_to_{words[-1]}"
    return "_".join(words)


def _identifier(text: str, otherwise: str) -> str:
    """Make a name in lower case of what *text* has of letters, digits and underscores."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()
    return word if word.isidentifier() else otherwise


# What comes into the example: values that may be anything, constants, and numbers that matter.


_LARGEST_PLAIN = 1024
_FINEST_PLAIN = 16
"""A plain number is at most 1024, and a multiple of 1/16: what a person would choose."""

_TOLERANCE = 5e-4
"""How near the digits of a number must be to it; ``is_close`` allows twice as much."""


class Leaves:
    """The leaves of one pattern: one per value, but one per use for a number.

    Args:
        names: Where their names come from.
        any_values: Whether a leaf for a constant, numbers aside, takes any value.
    """

    def __init__(self, names: PatternNames, *, any_values: bool) -> None:
        self._names = names
        self._any_values = any_values
        self._known: dict[Value, DFPattern] = {}

    def leaf(self, node: Node, slot: int, value: Value) -> DFPattern:
        """Return the leaf for *value*, which *node* reads in input *slot*."""
        origin = behind_identities(value)
        if origin not in self._known:
            name = self._names.new(leaf_word(node, slot))
            is_weight = origin.is_constant and not self._any_values
            self._known[origin] = is_const(name) if is_weight else wildcard(name)
        return self._known[origin]

    def name_of(self, value: Value) -> str:
        """Return the name of the leaf for *value*, "" if there is none."""
        leaf = self._known.get(behind_identities(value))
        return "" if leaf is None else leaf.name

    def number(self, node: Node, slot: int, number: float) -> tuple[DFPattern, list[Condition]]:
        """Return a leaf for a constant, and what must hold for it to be *number*."""
        if isinstance(number, int) or is_plain(number):
            return is_const(value=number), []
        name = self._names.new(leaf_word(node, slot))
        return is_const(name), [Condition(f"is_close({name}, {number!r})")]


def number_at(node: Node, slot: int, value: Value) -> int | float | None:
    """Return the number that input *slot* of *node* is, if it says what the node computes."""
    slots = () if node.domain else NUMBER_SLOTS.get(node.op_type, ())
    tensor = behind_identities(value).constant
    if tensor is None or tensor.size != 1 or slot not in slots:
        return None
    scalar = tensor.numpy().reshape(-1)[0]
    if scalar.dtype.kind in "iub":
        return int(scalar)
    if "float" not in scalar.dtype.name:
        return None
    number = shortest(scalar)
    if not math.isclose(number, float(scalar), rel_tol=_TOLERANCE):
        number = float(scalar)  # so small that its dtype has few digits left
    return None if math.isnan(number) else number


def shortest(scalar: np.generic) -> float:
    """Return the number of fewest digits that is *scalar* in its own dtype."""
    return float(str(scalar))


def is_plain(number: float) -> bool:
    """Tell whether *number* is one that a person would choose, rather than a rounded one."""
    if math.isinf(number):
        return True
    return abs(number) <= _LARGEST_PLAIN and (number * _FINEST_PLAIN).is_integer()


# Which attributes of a node a learned rule names.


_ELEMENT_TYPES = frozenset({"to", "dtype"})
"""Attributes that hold the number of an element type; a pattern names it."""

_AXES = frozenset({"axes", "axis"})
"""What some operators take as an input and others as an attribute."""


def named_attributes(node: Node, *, exact: bool) -> dict[str, AttributeValue]:
    """Return what a pattern should demand of the attributes of *node*.

    Args:
        node: The node.
        exact: Whether to demand every attribute that the file states.
    """
    named: dict[str, AttributeValue] = {}
    # List the names that may mean an attribute of *node*, or an input that was one.
    schema = schema_of(node)
    names = dict.fromkeys(node.attributes)
    if schema is not None:
        names |= dict.fromkeys(schema.attributes)
        names |= dict.fromkeys(name for name in schema.inputs if name in _AXES)
    for name in list(names):
        is_stated = exact and name in node.attributes
        if not is_stated and name not in KEPT_ATTRIBUTES:
            continue
        attribute = parameter_of(node, name)
        if attribute is None or attribute.ref:
            continue
        default = None if schema is None else schema.defaults.get(name)
        if not is_stated and default is not None and attribute.value == default.value:
            continue
        value = _as_written(name, attribute)
        if value is not None:
            named[name] = value
    return named


def free_attributes(node: Node, named: Container[str]) -> list[str]:
    """List the attributes that the file states and a pattern neither names nor has as inputs."""
    return [name for name in node.attributes if name not in named and slot_of(node, name) is None]


def _as_written(name: str, attribute: Attribute) -> AttributeValue | None:
    """Return the value as a pattern's text writes it; None if no text can."""
    value = attribute.value
    if attribute.kind == "int" and name in _ELEMENT_TYPES and type(value) is int:
        return DTYPE_NAMES[value] if 0 <= value < len(DTYPE_NAMES) else value
    if not isinstance(value, tuple):
        return _scalar(value)
    items = [_scalar(item) for item in value]
    return tuple(item for item in items if item is not None) if None not in items else None


def _scalar(value: object) -> Scalar | None:
    if isinstance(value, float):
        return shortest(np.float32(value)) if math.isfinite(value) else None
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None


# Build the pattern of an example: exact in operators and wiring, free in nearly everything else.


@dataclass(frozen=True)
class LearnedPattern:
    """What :func:`build_pattern` makes.

    Attributes:
        pattern: The pattern.
        where: Conditions over its names.
        notes: What it keeps of the example and what it leaves free, a line per node.
    """

    pattern: DFPattern
    where: tuple[Condition, ...]
    notes: tuple[str, ...]


def build_pattern(
    example: NodeExample, *, exact: bool = False, any_values: bool = False
) -> LearnedPattern:
    """Describe *example*, as generally as is safe.

    Args:
        example: The nodes.
        exact: Whether to demand every attribute that the file states.
        any_values: Whether weights may be computed, too.
    """
    builder = _Builder(example, exact=exact, any_values=any_values)
    for node in example.nodes:
        builder.add(node)
    roots = [builder.first_output(root) for root in example.roots]
    pattern = roots[0] if len(roots) == 1 else outputs(*roots)
    return LearnedPattern(pattern, tuple(builder.where), tuple(builder.notes))


class _Builder:
    """Makes one node pattern after the other, producers first.

    Attributes:
        where: The conditions so far.
        notes: What was kept and left free so far.
    """

    def __init__(self, example: NodeExample, *, exact: bool, any_values: bool) -> None:
        self.where: list[Condition] = []
        self.notes: list[str] = []
        self._kept: list[str] = []
        self._exact = exact
        self._only_root = example.roots[0] if len(example.roots) == 1 else None
        self._names = PatternNames({node.domain for node in example.nodes})
        self._leaves = Leaves(self._names, any_values=any_values)
        self._nodes: dict[Node, CallPattern] = {}

    def first_output(self, node: Node) -> DFPattern:
        """Return the pattern of the first output that *node* has."""
        index = next(i for i, output in enumerate(node.outputs) if output is not None)
        return self._output(node, index)

    def add(self, node: Node) -> None:
        """Describe one node whose producers are described."""
        self._kept = []
        name = self._names.new(node_word(node))
        named = named_attributes(node, exact=self._exact)
        free = free_attributes(node, named)
        # Describe the inputs, but for those that are given by name.
        given = {slot_of(node, name) for name in named}
        inputs = {slot: v for slot, v in enumerate(inputs_of(node)) if slot not in given}
        args = {slot: self._arg(node, slot, value) for slot, value in inputs.items()}
        for slot, rank in self._rank_to_keep(node, inputs):
            self._kept.append(f"rank {rank} of input {slot}")
            args[slot] = args[slot].has_rank(rank)
        is_depthwise = not self._exact and "group" in named and self._is_depthwise(node, name)
        if is_depthwise:
            del named["group"]
        call = _callee(node)(*args.values()).has_attr(named)
        is_named = is_depthwise or node is not self._only_root
        self._nodes[node] = call.named(name) if is_named else call
        self._kept += spelled_attributes(call.attributes)
        parts = [f"keeps {', '.join(self._kept)}"] if self._kept else []
        parts += [f"leaves {', '.join(free)} free"] if free else []
        if parts:
            self.notes.append(f"{say(node)} {' and '.join(parts)}")

    def _output(self, node: Node, index: int) -> DFPattern:
        return self._nodes[node][index] if index else self._nodes[node]

    def _arg(self, node: Node, slot: int, value: Value | None) -> DFPattern:
        if value is None:
            return absent()
        origin = behind_identities(value)
        if origin.producer is not None and origin.producer in self._nodes:
            return self._output(origin.producer, origin.index)
        product = self._product_biased_by(node, slot, origin)
        if product is not None:
            leaf = self._leaves.leaf(node, slot, origin)
            output = product.outputs[0]
            if product.op_type in {"Conv", "ConvTranspose"} and output is not None:
                name = self._nodes[product].name
                condition = Condition(f"per_channel({leaf.name}, {name})")
                if condition.unmet_by({leaf.name: origin, name: output}) is None:
                    self.where.append(condition)
                    self._kept.append(f"one number per channel in input {slot}")
            return leaf
        number = number_at(node, slot, origin)
        if number is None:
            return self._leaves.leaf(node, slot, origin)
        self._kept.append(f"input {slot} = {number}")
        leaf, where = self._leaves.number(node, slot, number)
        self.where += where
        return leaf

    def _product_biased_by(self, node: Node, slot: int, value: Value) -> Node | None:
        """Return the node inside to whose result *node* adds the constant *value*, if it does."""
        tensor = value.constant
        if node.op_type != "Add" or node.domain or tensor is None or not tensor.shape:
            return None
        other = node.inputs[1 - slot]
        maker = None if other is None else behind_identities(other).producer
        if maker is None or maker not in self._nodes or maker.domain:
            return None
        return maker if maker.op_type in BIASED else None

    def _rank_to_keep(
        self, node: Node, inputs: Mapping[int, Value | None]
    ) -> list[tuple[int, int]]:
        """Choose an input whose rank is known: a leaf, else the weight of a convolution."""
        slots = () if node.domain else RANKED_SLOTS.get(node.op_type, ())
        origins = {slot: behind_identities(value) for slot, value in inputs.items() if value}
        inside = {slot for slot, origin in origins.items() if origin.producer in self._nodes}
        leaves = [slot for slot in slots if slot not in inside]
        for slot in (*leaves, *slots[:-1]):
            shape = _shape_of(inputs.get(slot))
            if shape is not None:
                return [(slot, len(shape))]
        return []

    def _is_depthwise(self, node: Node, name: str) -> bool:
        """Keep of a convolution with a group per channel that it is one, for any number of them."""
        weight = node.inputs[1]
        shape = _shape_of(weight)
        leaf = "" if weight is None else self._leaves.name_of(weight)
        if node.op_type != "Conv" or node.domain or not leaf or shape is None or shape[1] != 1:
            return False
        self.where += [Condition(f"{name}.attrs.group > 1"), Condition(f"{leaf}.shape[1] == 1")]
        self._kept.append("a group for each channel")
        return True


def _callee(node: Node) -> OpPattern:
    """Name the operator; a model-local function may have a name that only fits in quotes."""
    function = node.graph.model.functions.get((node.domain, node.op_type, node.overload))
    if function is None or all(map(str.isidentifier, node.qualified_op.split("."))):
        return is_op(node.op_type, node.domain)
    return is_call(f"{node.domain}::{node.op_type}")


def _shape_of(value: Value | None) -> Shape | None:
    declared = None if value is None else value.known_type()
    return None if declared is None else declared.shape


# Learn a rule from a subgraph: check the nodes, build the pattern, prove that it matches them.


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
    learned = build_pattern(example, exact=exact)
    # Write the pattern's text, which reads as an equal pattern.
    text = repr(learned.pattern)
    try:
        read = parse_pattern(text, model.codec.schemas)
    except PatternSyntaxError as error:
        raise UsageError(
            f"no pattern can describe these nodes: {error.message}", hint=error.hint
        ) from error
    if read != learned.pattern:
        raise PassError(f"the pattern does not read as it was written:\n{text}")
    count = len(example.nodes)
    label = "a model" if model.path is None else model.path.name
    what = "1 node" if count == 1 else f"{count} nodes"
    rule = PatternRule(
        target=target,
        name=name or rule_name(example.nodes),
        pattern=learned.pattern,
        where=learned.where,
        constants="lift",
        doc=(f"Learned from {what} of {label}: {list_nodes(example.nodes)}."),
    )
    _prove(rule, example)
    selection = select_matches(model, [rule])
    notes = [*learned.notes, *_notes_on_search(selection, example)]
    if not _given_up(selection) and any(
        isinstance(part, ConstantPattern) for part in all_parts(rule.pattern)
    ):
        looser = build_pattern(example, exact=exact, any_values=True)
        notes += _notes_on_constants(model, replace(rule, pattern=looser.pattern), selection)
    return LearnedRule(rule, text, example.nodes, tuple(notes), len(selection.matches))


def _notes_on_search(selection: Selection, example: NodeExample) -> Iterator[str]:
    if not any(_core(match) == set(example.nodes) for match in selection.matches):
        yield "another match of the rule takes some of the nodes it was learned from"
    count = _given_up(selection)
    if count:
        where = "1 node" if count == 1 else f"{count} nodes"
        yield f"the search was given up at {where}: too much in the model is like these nodes"


def _given_up(selection: Selection) -> int:
    return sum(item.stage == "budget" for item in selection.refused)


def _notes_on_constants(model: Model, looser: PatternRule, selection: Selection) -> Iterator[str]:
    more = len(select_matches(model, [looser]).matches) - len(selection.matches)
    if more > 0:
        yield f"{more} more would match if constants might be computed: x instead of const(x)"


def _prove(rule: PatternRule, example: NodeExample) -> None:
    """Check that the rule may match exactly *example*, as far as no other match is concerned."""
    try:
        reasons = list(_objections(rule, example))
    except StepBudgetExceededError as error:
        raise PassError(
            f"too much in the model is like these nodes: {error.message}",
            hint="name fewer nodes, or those as well that tell them from the others",
        ) from error
    if "" not in reasons:
        why = "; ".join(dict.fromkeys(reasons)) or "its pattern does not fit"
        raise PassError(
            f"the rule learned does not match the nodes it was learned from: {why}",
            hint=f"this is a bug in dpl; the pattern is\n{rule.pattern!r}",
        )


def _objections(rule: PatternRule, example: NodeExample) -> Iterator[str]:
    """Yield for each way to match exactly *example* why it is refused; last "" if one is not."""
    members, root = set(example.nodes), example.roots[0]
    for state in rule.matcher.solutions(root):
        match = read_match(rule, root, state)
        if match is None or _core(match) != members:
            continue
        verdict = judge(match)
        yield "" if isinstance(verdict, Match) else f"{verdict.stage}: {verdict.reason}"
        if isinstance(verdict, Match):
            return


def _core(match: Match) -> set[Node]:
    return {node for node in match.nodes if not is_identity(node)}
