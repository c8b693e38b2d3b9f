"""What was done at one place of a model that somebody changed.

The old nodes and the new ones are numbered from what they are needed for, so that places at which
the same was done are read alike: they are of one *kind*.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from dplcli.analysis.numbering import is_commutative
from dplcli.ir.operators import inputs_of, schema_of
from dplcli.ir.traversal import behind_identities, is_identity
from dplcli.passes.places import NodePlace, NoRuleError, Operand, Slot, attributes_of, number_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.analysis.pairing import Difference
    from dplcli.ir import Node, Value
    from dplcli.ir.types import Tensor


_MOST_NODES = 60
"""Places of more nodes are no pattern that anything else is like."""

_FARTHEST = 6
"""How many nodes that stay may lie between the old ones and a value that the new ones read."""


class ChangedPlace(NodePlace):
    """Nodes of the first model, and what replaces them in the second.

    Args:
        difference: The old nodes and the new ones.
        around: How many nodes above the old ones are part of the pattern, although they stay.

    Attributes:
        made: The new nodes, producers first.
        made_args: What each of them reads.
        constants: The constants that they read, by where they stand.
        results: What replaces each output.
        stays: Whether nodes of the pattern stay, since others read what they make.

    Raises:
        NoRuleError: No rule can say it.
    """

    def __init__(self, difference: Difference, around: int = 0) -> None:
        super().__init__()
        _check(difference)
        self.difference = difference
        self.made: list[Node] = []
        self.made_args: list[list[Operand]] = []
        self.constants: dict[Slot, Tensor] = {}
        self.results: list[Operand] = []
        self._new_numbers: dict[Node, int] = {}
        self._forms: dict[Node, str] = {}
        copies = all(map(is_identity, difference.removed))
        self._inside = {n for n in difference.removed if copies or not is_identity(n)}
        for wanted in dict.fromkeys(self._needed()):
            self._inside |= self._path_to(wanted)
        for _ in range(around):
            read = (value for node in self._inside for value in node.inputs if value is not None)
            makers = {self.origin(value).producer for value in read}
            self._inside |= {m for m in makers if m is not None and _is_plain_node(m)}
        self.stays = not self._inside <= {*difference.removed}
        outputs = sorted(
            dict.fromkeys((self.origin(old), new) for old, new in difference.outputs),
            key=lambda pair: (self._form_of(pair[0].producer), pair[0].index),
        )
        for old, _ in outputs:
            self._visit(old)
        for old, new in outputs:
            operands = self._known(old), self._new_operand(new, (-1, len(self.outputs)))
            if operands[0] not in self.outputs:
                self.outputs.append(operands[0])
                self.results.append(operands[1])
        for node in (*self.nodes, *self.made):
            values_of(node)  # raises for what no rule can say
        if self.apart():
            raise NoRuleError("the nodes have nothing but constants in common, which is no pattern")

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with places of the same kind."""
        return (
            len(self.nodes),
            *((node.qualified_op, len(node.outputs)) for node in (*self.nodes, *self.made)),
            *map(tuple, (*self.args, *self.made_args, self.outputs, self.results)),
            tuple(frozenset(stated_values(node)) for node in self.made),
            tuple(leaf.is_constant for leaf in self.leaves),
        )

    def origin(self, value: Value) -> Value:
        """Look through Identity nodes, unless they are what is replaced."""
        return value if value.producer in self._inside else behind_identities(value)

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
            yield self.origin(original)

    def _path_to(self, wanted: Value) -> set[Node]:
        """Return the nodes that stay between the old ones and a value that they depend on."""
        if wanted.producer in self._inside:
            return set()
        ring = sorted(self._inside, key=lambda node: node.position)
        paths: dict[Node, set[Node]] = {node: set() for node in ring}
        for _ in range(_FARTHEST):
            above = []
            for node in ring:
                for value in map(self.origin, filter(None, node.inputs)):
                    if value is wanted:
                        return paths[node]
                    maker = value.producer
                    if maker is None or maker in paths or maker.graph is not node.graph:
                        continue
                    if _is_plain_node(maker):
                        paths[maker] = {maker, *paths[node]}
                        above.append(maker)
            ring = above
        raise NoRuleError(self._why_unread(wanted))

    def _why_unread(self, wanted: Value) -> str:
        maker = wanted.producer
        for node in self.difference.removed:
            if maker is not None and (node.qualified_op, [*node.inputs]) == (
                maker.qualified_op,
                [*maker.inputs],
            ):
                return "another node that computes the same took its place"
        return "the new nodes read a value that the old ones do not depend on"

    # -- the old nodes -----------------------------------------------------------------------------

    def _form_of(self, node: Node | None) -> str:
        """Number *node* by all that it computes from inside, as far as structure goes."""
        if node is None or node not in self._inside:
            return ""
        if node not in self._forms:
            args = [self._outline(node, slot, v) for slot, v in enumerate(inputs_of(node))]
            if is_commutative(node):
                args.sort()
            said = "\n".join([node.qualified_op, *args])  # the same in every run, unlike hash()
            self._forms[node] = blake2b(said.encode(), digest_size=8).hexdigest()
        return self._forms[node]

    def _outline(self, node: Node, slot: int, value: Value | None) -> str:
        if value is None:
            return "4 none"
        origin = self.origin(value)
        if origin.producer in self._inside:
            return f"0 node {self._form_of(origin.producer)} {origin.index}"
        if number_at(node, slot, origin) is not None:
            return "3 number"
        return "2 constant" if origin.is_constant else "1 other"

    def _visit(self, value: Value) -> None:
        node = self.origin(value).producer
        if node is None or node not in self._inside or node in self.numbered:
            return
        slots = list(enumerate(inputs_of(node)))
        if is_commutative(node):  # in an order that places of one kind share
            slots.sort(key=lambda item: self._outline(node, *item))
        for _, read in slots:
            if read is not None:
                self._visit(read)
        self.add(node, slots)

    def _known(self, value: Value) -> Operand:
        operand = self.operand_of(value)
        if operand is None:
            raise NoRuleError(self._why_unread(value))
        return operand

    # -- the new ones ------------------------------------------------------------------------------

    def _new_operand(self, value: Value | None, slot: Slot) -> Operand:
        if value is None:
            return ("none",)
        tensor = value.constant
        if tensor is not None:
            self.constants[slot] = tensor
            return ("const", *slot)
        if value.producer in self.difference.added:
            return ("new", self._new(value.producer), value.index)
        return self._known(self.difference.originals[value])

    def _new(self, node: Node) -> int:
        if node not in self._new_numbers:
            read = list(node.inputs)
            if is_commutative(node):  # constants last, so that more places are of one kind
                read.sort(key=lambda value: value is not None and value.constant is not None)
            for value in read:
                if value is not None and value.producer in self.difference.added:
                    self._new(value.producer)
            if schema_of(node) is None and not node.domain:
                version = node.graph.opset_imports.get("", 0)
                raise NoRuleError(f"opset {version} of the standard has no {node.op_type}")
            number = self._new_numbers[node] = len(self.made)
            self.made.append(node)
            args = [self._new_operand(value, (number, slot)) for slot, value in enumerate(read)]
            while args and args[-1] == ("none",):
                args.pop()
            self.made_args.append(args)
        return self._new_numbers[node]


def _check(difference: Difference) -> None:
    """Refuse what cannot be a pattern."""
    if not difference.removed:
        raise NoRuleError("nodes were added, and none there before makes what they make")
    if not difference.outputs:
        raise NoRuleError("nobody reads what they make; dpl rewrite drops such nodes by itself")
    if len(difference.removed) > _MOST_NODES:
        raise NoRuleError(f"more than {_MOST_NODES} connected nodes changed at once")
    for node in (*difference.removed, *difference.added):
        if node.subgraphs:
            raise NoRuleError(f"{node.qualified_op} {node.label!r} has a body of its own")


def _is_plain_node(node: Node) -> bool:
    """Tell whether a pattern can have *node* as a part that stays."""
    output = node.outputs[0] if node.outputs else None
    return not node.subgraphs and output is not None and output.constant is None


def values_of(node: Node) -> dict[str, object]:
    """Return the values of the attributes of *node*, those by default included.

    Raises:
        NoRuleError: No rule can say one of them.
    """
    attributes = attributes_of(node)
    for name, attribute in attributes.items():
        if attribute.ref or not isinstance(attribute.value, (int, float, str, tuple)):
            raise NoRuleError(f"{node.qualified_op} {node.label!r}: no rule can say its {name}")
    return {name: attribute.value for name, attribute in attributes.items()}


def stated_values(node: Node) -> dict[str, object]:
    """Return what the file states of a new node, but for what is so by default."""
    schema = schema_of(node)
    usual = {} if schema is None else schema.defaults
    return {
        name: attribute.value
        for name, attribute in node.attributes.items()
        if name not in usual or usual[name].value != attribute.value
    }
