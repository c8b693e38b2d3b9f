"""What was done at one place of a model that somebody changed.

The old nodes and the new ones are numbered from what they are needed for, so that places at which
the same was done are read alike: they are of one *kind*.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.analysis.numbering import is_commutative
from dplcli.ir.operators import MOVED, attribute_of, inputs_of, schema_of
from dplcli.ir.traversal import behind_identities, is_identity
from dplcli.ir.types import Tensor
from dplcli.passes.learn import number_at
from dplcli.passes.rewriter import reachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dplcli.analysis.pairing import Difference
    from dplcli.ir import Node, Value

Operand: TypeAlias = tuple[Any, ...]
"""A value in a place: ``("node", k, output)``, ``("new", k, output)``, ``("leaf", k)``,
``("number",)``, ``("const",)`` or ``("none",)``."""

Slot: TypeAlias = tuple[int, int]
"""A node of a place, by its number, and one of its inputs."""


class NoRuleError(Exception):
    """No rule can say what was done at a place; the message says why.

    Attributes:
        counterexample: A graph on which the rule learned from it is wrong, as text; "" if there is
            no rule.
    """

    def __init__(self, message: str, counterexample: str = "") -> None:
        super().__init__(message)
        self.counterexample = counterexample


_MOST_NODES = 60
"""Places of more nodes are no pattern that anything else is like."""

_FARTHEST = 6
"""How many nodes that stay may lie between the old ones and a value that the new ones read."""


@dataclass(eq=False)
class ChangedPlace:
    """What was done at one place.

    Attributes:
        difference: The old nodes and the new ones.
        nodes: The nodes of the pattern, producers first.
        args: What each of them reads.
        leaves: The values that they read from outside.
        readers: The node and slot that reads each leaf first.
        numbers: The numbers that say what a node computes, by where they stand.
        made: The new nodes, producers first.
        made_args: What each of them reads.
        constants: The constants that they read, by where they stand.
        outputs: What is replaced, and what by.
    """

    difference: Difference
    nodes: list[Node] = field(default_factory=list)
    args: list[list[Operand]] = field(default_factory=list)
    leaves: list[Value] = field(default_factory=list)
    readers: list[Slot] = field(default_factory=list)
    numbers: dict[Slot, int | float] = field(default_factory=dict)
    made: list[Node] = field(default_factory=list)
    made_args: list[list[Operand]] = field(default_factory=list)
    constants: dict[Slot, Tensor] = field(default_factory=dict)
    outputs: list[tuple[Operand, Operand]] = field(default_factory=list)

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with places of the same kind."""
        return (
            tuple((node.qualified_op, len(node.outputs)) for node in self.nodes),
            _frozen(self.args),
            tuple((node.qualified_op, len(node.outputs)) for node in self.made),
            _frozen(self.made_args),
            _frozen(self.outputs),
            tuple(frozenset(stated_attributes(node)) for node in self.made),
            tuple(leaf.is_constant for leaf in self.leaves),
        )

    def value(self, operand: Operand) -> Value:
        """Return a value of the pattern."""
        kind, number, *rest = operand
        if kind == "leaf":
            return self.leaves[number]
        node = self.nodes[number]
        candidate = node.outputs[rest[0]] if kind == "node" else inputs_of(node)[rest[0]]
        assert candidate is not None  # noqa: S101  # only values are operands
        return candidate


def _frozen(lists: Iterable[Iterable[object]]) -> tuple[object, ...]:
    return tuple(map(tuple, lists))


class _PlaceReader:
    """Reads one place.

    Raises:
        NoRuleError: No pattern can describe it.
    """

    def __init__(self, difference: Difference, around: int) -> None:
        self.difference = difference
        self.around = around
        self.place = ChangedPlace(difference)
        self.inside = set(difference.removed)
        if not all(map(is_identity, difference.removed)):
            self.inside = {node for node in difference.removed if not is_identity(node)}
        self.numbered: dict[Node, int] = {}
        self.made: dict[Node, int] = {}
        self.forms: dict[Node, str] = {}

    def read(self) -> ChangedPlace:
        """Number the old nodes and the new ones from what they are needed for."""
        difference, place = self.difference, self.place
        self._check()
        for wanted in dict.fromkeys(self._needed()):
            if wanted.producer in self.inside or wanted in self._read_by(self.inside):
                continue
            path = self._path_to(wanted)
            if path is None:
                raise NoRuleError(self._why_unread(wanted))
            self.inside |= path
        for _ in range(self.around):
            makers = {value.producer for value in self._read_by(self.inside)}
            self.inside |= {m for m in makers if m is not None and _is_plain_node(m)}
        outputs = sorted(
            dict.fromkeys((self._origin(old), new) for old, new in difference.outputs),
            key=lambda pair: (self._form_of(pair[0]), pair[0].index),
        )
        for old, _ in outputs:
            self._visit(old)
        for old, new in outputs:
            pair = self._operand_of(old), self._new_operand(new, (-1, len(place.outputs)))
            if pair[0] not in {known for known, _ in place.outputs}:
                place.outputs.append(pair)
        for node in (*place.nodes, *place.made):
            attributes_of(node)  # raises for what no rule can say
        self._check_connected()
        return place

    def _check(self) -> None:
        """Refuse what cannot be a pattern."""
        difference = self.difference
        if not difference.removed:
            raise NoRuleError("nodes were added, and none there before makes what they make")
        if not difference.outputs:
            raise NoRuleError("nobody reads what they make; dpl rewrite drops such nodes by itself")
        if len(difference.removed) > _MOST_NODES:
            raise NoRuleError(f"more than {_MOST_NODES} connected nodes changed at once")
        for node in (*difference.removed, *difference.added):
            if node.subgraphs:
                raise NoRuleError(f"{node.qualified_op} {node.label!r} has a body of its own")

    def _check_connected(self) -> None:
        """Refuse nodes with nothing but constants in common: one says nothing of where others are.

        A search for them would go through all ways to choose among their kind.
        """
        joined: dict[Operand, list[Operand]] = defaultdict(list)
        for number, args in enumerate(self.place.args):
            node: Operand = ("node", number)
            for arg in args:
                is_free = arg[0] == "leaf" and not self.place.leaves[arg[1]].is_constant
                if is_free or arg[0] == "node":
                    joined[node].append(arg[:2])
                    joined[arg[:2]].append(node)
        reached = reachable([("node", 0)], joined.__getitem__)
        if any(("node", number) not in reached for number in range(len(self.place.nodes))):
            raise NoRuleError("the nodes have nothing but constants in common, which is no pattern")

    def _origin(self, value: Value) -> Value:
        """Look through Identity nodes, unless they are what is replaced."""
        maker = value.producer
        return value if maker in self.inside else behind_identities(value)

    def _needed(self) -> Iterator[Value]:
        """Yield the values of the first model that the new nodes read or that replace others."""
        added = set(self.difference.added)
        read = [v for node in self.difference.added for v in node.inputs]
        for value in (*read, *(new for _, new in self.difference.outputs)):
            if value is None or value.producer in added or value.constant is not None:
                continue
            original = self.difference.originals.get(value)
            if original is None:
                raise NoRuleError(f"{value.name!r} is not in the first model")
            yield self._origin(original)

    def _why_unread(self, wanted: Value) -> str:
        maker = wanted.producer
        for node in self.difference.removed:
            if maker is not None and (node.qualified_op, [*node.inputs]) == (
                maker.qualified_op,
                [*maker.inputs],
            ):
                return "another node that computes the same took its place"
        return "the new nodes read a value that the old ones do not depend on"

    def _read_by(self, nodes: Iterable[Node]) -> set[Value]:
        return {self._origin(value) for node in nodes for value in node.inputs if value is not None}

    def _path_to(self, wanted: Value) -> set[Node] | None:
        below: dict[Node, Node | None] = dict.fromkeys(self.inside)
        ring = list(self.inside)
        for _ in range(_FARTHEST):
            nodes: list[Node] = []
            for node in ring:
                for value in map(self._origin, filter(None, node.inputs)):
                    if value is wanted:
                        path = set()
                        step: Node | None = node
                        while step is not None and step not in self.inside:
                            path.add(step)
                            step = below[step]
                        return path
                    maker = value.producer
                    if maker is None or maker in below or maker.graph is not node.graph:
                        continue
                    if _is_plain_node(maker):
                        below[maker] = node
                        nodes.append(maker)
            ring = nodes
        return None

    def _form_of(self, value: Value) -> tuple[object, ...]:
        maker = value.producer
        return (0, "") if maker not in self.inside else (1, self._form(maker), value.index)

    def _form(self, node: Node) -> str:
        """Number *node* by all that it computes from inside, as far as structure goes."""
        if node not in self.forms:
            args = [self._sketch(node, slot, v) for slot, v in enumerate(inputs_of(node))]
            if is_commutative(node):
                args.sort()
            said = "\n".join([node.qualified_op, *args])  # the same in every run, unlike hash()
            self.forms[node] = blake2b(said.encode(), digest_size=8).hexdigest()
        return self.forms[node]

    def _sketch(self, node: Node, slot: int, value: Value | None) -> str:
        if value is None:
            return "4 none"
        origin = self._origin(value)
        if origin.producer in self.inside:
            return f"0 node {self._form(origin.producer)} {origin.index}"
        if number_at(node, slot, origin) is not None:
            return "3 number"
        return "2 constant" if origin.is_constant else "1 other"

    def _visit(self, value: Value) -> None:
        node = self._origin(value).producer
        if node is None or node not in self.inside or node in self.numbered:
            return
        slots = list(enumerate(inputs_of(node)))
        if is_commutative(node):
            slots.sort(key=lambda item: self._sketch(node, *item))
        for _, read in slots:
            if read is not None:
                self._visit(read)
        number = self.numbered[node] = len(self.place.nodes)
        self.place.nodes.append(node)
        self.place.args.append([self._read(node, number, *slot) for slot in slots])

    def _read(self, node: Node, number: int, slot: int, value: Value | None) -> Operand:
        if value is None:
            return ("none",)
        origin = self._origin(value)
        if origin.producer in self.numbered:
            return ("node", self.numbered[origin.producer], origin.index)
        read = number_at(node, slot, origin)
        if read is not None:
            self.place.numbers[number, slot] = read
            return ("number", number, slot)
        if origin not in self.place.leaves:
            self.place.leaves.append(origin)
            self.place.readers.append((number, slot))
        return ("leaf", self.place.leaves.index(origin))

    def _operand_of(self, value: Value) -> Operand:
        origin = self._origin(value)
        if origin.producer in self.numbered:
            return ("node", self.numbered[origin.producer], origin.index)
        if origin in self.place.leaves:
            return ("leaf", self.place.leaves.index(origin))
        raise NoRuleError(self._why_unread(value))

    def _new_operand(self, value: Value | None, slot: Slot) -> Operand:
        if value is None:
            return ("none",)
        if value.producer in self.difference.added and value.constant is None:
            return ("new", self._new(value.producer), value.index)
        tensor = value.constant
        if tensor is not None:
            self.place.constants[slot] = tensor
            return ("const", *slot)
        return self._operand_of(self.difference.originals[value])

    def _new(self, node: Node) -> int:
        if node not in self.made:
            read = list(node.inputs)
            if is_commutative(node):  # constants last, so that more places are of one kind
                read.sort(key=lambda value: value is not None and value.constant is not None)
            slots = list(enumerate(read))
            for value in read:
                if value is not None and value.producer in self.difference.added:
                    self._new(value.producer)
            if schema_of(node) is None and not node.domain:
                version = node.graph.opset_imports.get("", 0)
                raise NoRuleError(f"opset {version} of the standard has no {node.op_type}")
            number = self.made[node] = len(self.place.made)
            self.place.made.append(node)
            self.place.made_args.append([])
            args = [self._new_operand(value, (number, slot)) for slot, value in slots]
            while args and args[-1] == ("none",):
                args.pop()
            self.place.made_args[number] = args
        return self.made[node]


def _is_plain_node(node: Node) -> bool:
    """Tell whether a pattern can have *node* as a part that stays."""
    output = node.outputs[0] if node.outputs else None
    return not node.subgraphs and output is not None and output.constant is None


def attributes_of(node: Node) -> dict[str, object]:
    """Return the attributes of *node* that have a value, those by default included."""
    schema = schema_of(node)
    names = dict.fromkeys([*node.attributes, *(schema.attributes if schema is not None else ())])
    moved = {item.attribute for item in MOVED.get(node.op_type, ())} if not node.domain else set()
    attributes: dict[str, object] = {}
    for name in names:
        attribute = attribute_of(node, name)
        if attribute is None and schema is not None:
            attribute = schema.defaults.get(name)
        if attribute is None or name in moved:
            continue
        if attribute.ref or isinstance(attribute.value, Tensor):
            raise NoRuleError(f"{node.qualified_op} {node.label!r}: no rule can say its {name}")
        attributes[name] = attribute.value
    return attributes


def stated_attributes(node: Node) -> dict[str, object]:
    """Return the attributes that the file states of a new node, those at their default left out."""
    schema = schema_of(node)
    defaults = {} if schema is None else schema.defaults
    values = attributes_of(node)
    moved = {name: a.value for name, a in node.attributes.items() if name not in values}
    return {
        name: value
        for name, value in (values | moved).items()
        if name in node.attributes and (name not in defaults or defaults[name].value != value)
    }


def read_place(difference: Difference, around: int = 0) -> ChangedPlace:
    """Read what was done at one place.

    Args:
        difference: The nodes.
        around: How many nodes above them are part of the pattern, although they stay.

    Raises:
        NoRuleError: No rule can say it.
    """
    return _PlaceReader(difference, around).read()
