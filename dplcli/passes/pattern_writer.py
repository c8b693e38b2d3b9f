"""What one or more places of a graph have in common, as a pattern.

A place is some nodes, numbered so that places that are alike read alike: those that somebody points
at (`learn_pattern`), or those that were replaced by others (`learn_rewrite`).
"""

from __future__ import annotations

import keyword
import math
import re
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from dplcli.errors import DplError
from dplcli.ir.operators import (
    BIASED,
    MOVED,
    NUMBER_SLOTS,
    attribute_of,
    inputs_of,
    schema_of,
)
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import DTYPE_NAMES
from dplcli.language.conditions import FUNCTION_NAMES
from dplcli.language.text import literal, spelled_keyword
from dplcli.passes.rewriter import claim, reachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import Attribute, Node, Shape, Value


Operand: TypeAlias = tuple[Any, ...]
"""A value in a place: ``("node", k, output)``, ``("leaf", k)``, ``("number", k, slot)`` or
``("none",)``; of what replaces it also ``("new", k, output)`` and ``("const", k, slot)``."""

Slot: TypeAlias = tuple[int, int]
"""A node of a place, by its number, and one of its inputs."""


class NoRuleError(DplError):
    """No rule can say what a place is, or what was done there; the message says why.

    Attributes:
        counterexample: A graph on which the rule learned from it is wrong, as text; "" if there is
            no rule.
    """

    def __init__(self, message: str, counterexample: str = "") -> None:
        super().__init__(message)
        self.counterexample = counterexample


class NodePlace:
    """Some nodes of one graph, and what they read.

    Attributes:
        nodes: The nodes, producers first.
        args: What each of them reads.
        leaves: The values that they read from outside.
        readers: The node and slot that reads each leaf first.
        numbers: The numbers that say what a node computes, by where they stand.
        outputs: What they make for others.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.args: list[list[Operand]] = []
        self.leaves: list[Value] = []
        self.readers: list[Slot] = []
        self.numbers: dict[Slot, int | float] = {}
        self.outputs: list[Operand] = []
        self.numbered: dict[Node, int] = {}

    def origin(self, value: Value) -> Value:
        """Look through Identity nodes."""
        return behind_identities(value)

    def add(self, node: Node, slots: Iterable[tuple[int, Value | None]]) -> None:
        """Add a node, whose producers are there, and what it reads."""
        number = len(self.nodes)
        self.nodes.append(node)
        self.args.append([self._read(node, number, *slot) for slot in slots])
        self.numbered[node] = number

    def _read(self, node: Node, number: int, slot: int, value: Value | None) -> Operand:
        if value is None:
            return ("none",)
        origin = self.origin(value)
        read = number_at(node, slot, origin)
        if read is not None and not (shape_of(origin) and self.product_biased_by(node, slot)):
            self.numbers[number, slot] = read
            return ("number", number, slot)
        if self.operand_of(origin) is None:
            self.leaves.append(origin)
            self.readers.append((number, slot))
        return self.operand_of(origin) or ("none",)

    def product_biased_by(self, node: Node, slot: int) -> Node | None:
        """Return the product inside to whose result *node* adds its input *slot*, if it does."""
        other = None if node.op_type != "Add" or node.domain else node.inputs[1 - slot]
        maker = None if other is None else self.origin(other).producer
        is_product = maker in self.numbered and not maker.domain and maker.op_type in BIASED
        return maker if is_product else None

    def operand_of(self, value: Value) -> Operand | None:
        """Return what a value is here; None if it is nothing that the nodes make or read."""
        origin = self.origin(value)
        if origin.producer in self.numbered:
            return ("node", self.numbered[origin.producer], origin.index)
        return ("leaf", self.leaves.index(origin)) if origin in self.leaves else None

    def value(self, operand: Operand) -> Value:
        """Return the value that an operand is."""
        kind, number, *rest = operand
        if kind == "leaf":
            return self.leaves[number]
        node = self.nodes[number]
        candidate = node.outputs[rest[0]] if kind == "node" else inputs_of(node)[rest[0]]
        assert candidate is not None  # noqa: S101  # only values are operands
        return candidate

    def read_by(self, operand: Operand) -> list[Operand]:
        """List the nodes and the leaves that a node reads; constants join nothing."""
        return [
            arg[:2]
            for arg in (self.args[operand[1]] if operand[0] == "node" else ())
            if arg[0] == "node" or (arg[0] == "leaf" and not self.leaves[arg[1]].is_constant)
        ]

    def apart(self) -> list[Node]:
        """List the nodes that have nothing but constants in common with the first one.

        One of those says nothing of where the others are: a search would go through all ways to
        choose among their kind.
        """
        near: dict[Operand, list[Operand]] = {}
        for number in range(len(self.nodes)):
            for operand in self.read_by(("node", number)):
                near.setdefault(("node", number), []).append(operand)
                near.setdefault(operand, []).append(("node", number))
        reached = reachable([("node", 0)], lambda operand: near.get(operand, ()))
        return [node for n, node in enumerate(self.nodes) if ("node", n) not in reached]


def shape_of(value: Value | None) -> Shape | None:
    """Return the sizes of a value, None if nobody knows them."""
    known = None if value is None else value.known_type()
    return None if known is None else known.shape


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

MOST_NAMED = 8
"""Most nodes that a message names."""

_MOST_OPERATORS = 6
"""Most operators in the name of a rule."""


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


def say(node: Node) -> str:
    """Name *node* in a message."""
    return f"{node.qualified_op} {node.label!r}"


def list_nodes(nodes: Sequence[Node], most: int = MOST_NAMED) -> str:
    """Name some nodes, and say how many more there are."""
    texts = [say(node) for node in nodes[:most]]
    if len(nodes) > most:
        texts.append(f"and {len(nodes) - most} more")
    return ", ".join(texts)


# Numbers that matter: they say what is computed.


_LARGEST_PLAIN = 1024
_FINEST_PLAIN = 16
"""A plain number is at most 1024, and a multiple of 1/16: what a person would choose."""

_TOLERANCE = 5e-4
"""How near the digits of a number must be to it; ``is_close`` allows twice as much."""


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
    if isinstance(number, int) or math.isinf(number):
        return True
    return abs(number) <= _LARGEST_PLAIN and (number * _FINEST_PLAIN).is_integer()


# The text of a pattern.


AnyPlace = TypeVar("AnyPlace", bound=NodePlace)


def attributes_of(node: Node) -> dict[str, Attribute]:
    """Return the attributes of *node*, also those by default, but for what is an input now."""
    schema = schema_of(node)
    names = dict.fromkeys([*node.attributes, *(() if schema is None else schema.attributes)])
    moved = set() if node.domain else {item.attribute for item in MOVED.get(node.op_type, ())}
    every = {name: attribute_of(node, name) for name in names if name not in moved}
    return {name: attribute for name, attribute in every.items() if attribute is not None}


def value_text(value: object, dtype: type[np.generic] = np.float32) -> str:
    """Write a number, a word or a list of them, floats with the fewest digits; infinity is 1e999.

    Raises:
        NoRuleError: No text can say it.
    """
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(value_text(item, dtype) for item in value)}]"
    if isinstance(value, float):
        value = shortest(dtype(value))
        if math.isnan(value):
            raise NoRuleError("a rule cannot write nan")
    if not isinstance(value, (int, float, str)):
        raise NoRuleError(f"a rule cannot write {value!r}")
    return literal(value)


def attribute_text(name: str, value: object) -> str:
    """Write an attribute; an element type by its name.

    Raises:
        NoRuleError: No text can say its value.
    """
    if name in {"to", "dtype"} and type(value) is int and 0 <= value < len(DTYPE_NAMES):
        value = DTYPE_NAMES[value]
    return spelled_keyword(name, value_text(value))


def operator_text(node: Node) -> str:
    """Write an operator; a model-local function may have a name that only fits in quotes.

    Raises:
        NoRuleError: Its name is no word of the language.
    """
    name = node.qualified_op
    if all(word.isidentifier() and not keyword.iskeyword(word) for word in name.split(".")):
        return f"{name}("
    if (node.domain, node.op_type, node.overload) in node.graph.model.functions:
        return f'call("{node.domain}::{node.op_type}", '
    raise NoRuleError(f"a rule cannot write the name of the operator {name!r}")


class PatternWriter(ABC, Generic[AnyPlace]):
    """Writes the pattern of places of one kind.

    Attributes:
        places: The places.
        first: One of them.
        names: The names given so far.
        node_names: Those of the nodes.
        leaf_names: Those of the leaves.
        number_names: Those of the numbers that have one.
        stands_for: What each name stands for.
        where: The conditions so far.
    """

    nearness = ""
    """What conditions say of how near a number must be."""

    def __init__(self, places: Sequence[AnyPlace], reserved: Iterable[str] = ()) -> None:
        first = places[0]
        self.places = places
        self.first = first
        self.names = {*_RESERVED, *reserved}
        self.node_names = [self.named(node_word(node)) for node in first.nodes]
        self.leaf_names = [self.named(leaf_word(first.nodes[n], s)) for n, s in first.readers]
        self.stands_for: dict[str, Operand] = {
            **{name: ("node", number, 0) for number, name in enumerate(self.node_names)},
            **{name: ("leaf", number) for number, name in enumerate(self.leaf_names)},
        }
        self.number_names: dict[Slot, str] = {}
        self.where: list[str] = []

    def named(self, word: str) -> str:
        """Return *word*, or with a number behind it if something has that name."""
        return claim(word, self.names)

    def pattern(self) -> str:
        """Write the pattern."""
        lines = [f"{name} = {self.call(number)}" for number, name in enumerate(self.node_names)]
        return "\n".join([*lines, ", ".join(map(self.name_of, self.first.outputs))])

    def call(self, number: int) -> str:
        """Write a node: what it reads, but for what is given by name, and its attributes."""
        given = self.given(number)
        args = range(len(self.first.args[number]))
        texts = [self.operand(number, place) for place in args if place not in given]
        texts += [*given.values(), *self.attributes(number)]
        return f"{operator_text(self.first.nodes[number])}{', '.join(texts)})"

    @abstractmethod
    def given(self, number: int) -> dict[int, str]:
        """Return the inputs of a node that are written as attributes, by their place."""

    @abstractmethod
    def attributes(self, number: int) -> list[str]:
        """Write the attributes of a node."""

    @abstractmethod
    def leaf(self, reader: int, place: int) -> str:
        """Write a value that a node reads from outside."""

    def operand(self, reader: int, place: int) -> str:
        """Write what a node reads."""
        operand = self.first.args[reader][place]
        if operand[0] == "none":
            return "None"
        if operand[0] == "leaf":
            return self.leaf(reader, place)
        if operand[0] == "node":
            return self.name_of(operand)
        _, number, slot = operand
        name = self.number_names.get((number, slot), "")
        if not self.is_free(name):
            plain = self.plain_number(number, slot)
            if plain is not None:
                return plain
            name = self.name_of(operand)
            values = {each.numbers[number, slot] for each in self.places}
            if len(values) == 1:
                self.demand(f"is_close({name}, {literal(*values)}{self.nearness})")
        return f"const({name})"

    def is_free(self, name: str) -> bool:
        """Tell whether a number may be any, though it is the same at all places."""
        del name
        return False

    def plain_number(self, number: int, slot: int) -> str | None:
        """Write a number if it is plain and the same at every place; else None."""
        values = {place.numbers[number, slot] for place in self.places}
        value = values.pop()
        return None if values or not is_plain(value) else literal(value)

    def name_of(self, operand: Operand) -> str:
        """Return what a value is called in the pattern; a number gets a name if it has none."""
        kind, number, *rest = operand
        if kind == "leaf":
            return self.leaf_names[number]
        if kind == "node":
            return self.node_names[number] + (f"[{rest[0]}]" if rest[0] else "")
        key = number, rest[0]
        if key not in self.number_names:
            word = leaf_word(self.first.nodes[number], rest[0])
            self.number_names[key] = self.named(word)
            self.stands_for[self.number_names[key]] = operand
        return self.number_names[key]

    def demand(self, *conditions: str) -> None:
        """Add conditions."""
        self.where += [text for text in conditions if text not in self.where]
