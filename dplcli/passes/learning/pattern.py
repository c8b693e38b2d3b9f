"""Build the pattern of a region: exact in operators and wiring, free in nearly everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.dpl.builders import absent, is_call, is_op, outputs
from dplcli.dpl.conditions import Condition
from dplcli.dpl.written import spelled_attributes
from dplcli.ir.parameters import inputs_of, slot_of
from dplcli.ir.traversal import behind_identities
from dplcli.passes.learning.attributes import free_attributes, named_attributes
from dplcli.passes.learning.leaves import Leaves, number_at
from dplcli.passes.learning.region import say
from dplcli.passes.learning.tables import BIASED, CONVOLUTIONS, RANKED_SLOTS
from dplcli.passes.learning.words import Names, node_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl.pattern import CallPattern, DFPattern, OpPattern
    from dplcli.ir import Node, Shape, Value
    from dplcli.passes.learning.region import Region


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
    region: Region, *, exact: bool = False, any_values: bool = False
) -> LearnedPattern:
    """Describe *region*, as generally as is safe.

    Args:
        region: The nodes.
        exact: Whether to demand every attribute that the file states.
        any_values: Whether weights may be computed, too.
    """
    builder = _Builder(region, exact=exact, any_values=any_values)
    for node in region.nodes:
        builder.add(node)
    roots = [builder.first_output(root) for root in region.roots]
    pattern = roots[0] if len(roots) == 1 else outputs(*roots)
    return LearnedPattern(pattern, tuple(builder.where), tuple(builder.notes))


class _Builder:
    """Makes one node pattern after the other, producers first.

    Attributes:
        where: The conditions so far.
        notes: What was kept and left free so far.
    """

    def __init__(self, region: Region, *, exact: bool, any_values: bool) -> None:
        self.where: list[Condition] = []
        self.notes: list[str] = []
        self._kept: list[str] = []
        self._exact = exact
        self._only_root = region.roots[0] if len(region.roots) == 1 else None
        self._names = Names({node.domain for node in region.nodes})
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
        args = self._args(node, named)
        is_depthwise = not self._exact and "group" in named and self._is_depthwise(node, name)
        if is_depthwise:
            del named["group"]
        call = _callee(node)(*args).has_attr(named)
        is_named = is_depthwise or node is not self._only_root
        self._nodes[node] = call.named(name) if is_named else call
        self._kept += spelled_attributes(call.attributes)
        self._note(node, free)

    def _note(self, node: Node, free: Sequence[str]) -> None:
        parts = [f"keeps {', '.join(self._kept)}"] if self._kept else []
        parts += [f"leaves {', '.join(free)} free"] if free else []
        if parts:
            self.notes.append(f"{say(node)} {' and '.join(parts)}")

    def _output(self, node: Node, index: int) -> DFPattern:
        return self._nodes[node][index] if index else self._nodes[node]

    def _args(self, node: Node, named: Iterable[str]) -> list[DFPattern]:
        """Describe the inputs, but for those that are given by name."""
        given = {slot_of(node, name) for name in named}
        inputs = {slot: v for slot, v in enumerate(inputs_of(node)) if slot not in given}
        args = {slot: self._arg(node, slot, value) for slot, value in inputs.items()}
        for slot, rank in self._rank_to_keep(node, inputs):
            self._kept.append(f"rank {rank} of input {slot}")
            args[slot] = args[slot].has_rank(rank)
        return list(args.values())

    def _arg(self, node: Node, slot: int, value: Value | None) -> DFPattern:
        if value is None:
            return absent()
        origin = behind_identities(value)
        if origin.producer is not None and origin.producer in self._nodes:
            return self._output(origin.producer, origin.index)
        product = self._product_biased_by(node, slot, origin)
        if product is not None:
            return self._bias(node, slot, origin, product)
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

    def _bias(self, node: Node, slot: int, value: Value, product: Node) -> DFPattern:
        leaf = self._leaves.leaf(node, slot, value)
        output = product.outputs[0]
        if product.op_type in CONVOLUTIONS and output is not None:
            name = self._nodes[product].name
            condition = Condition(f"per_channel({leaf.name}, {name})")
            if not condition.reason_against({leaf.name: value, name: output}):
                self.where.append(condition)
                self._kept.append(f"one number per channel in input {slot}")
        return leaf

    def _rank_to_keep(
        self, node: Node, inputs: Mapping[int, Value | None]
    ) -> list[tuple[int, int]]:
        """Choose an input whose rank is known: a leaf, else the weight of a convolution."""
        slots = () if node.domain else RANKED_SLOTS.get(node.op_type, ())
        leaves = [slot for slot in slots if not self._is_inside(inputs.get(slot))]
        for slot in (*leaves, *slots[:-1]):
            shape = _shape_of(inputs.get(slot))
            if shape is not None:
                return [(slot, len(shape))]
        return []

    def _is_inside(self, value: Value | None) -> bool:
        return value is not None and behind_identities(value).producer in self._nodes

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
    known = None if value is None else value.known_type()
    return None if known is None else known.shape
