"""Outline the repeated blocks of a model: one function for each kind, one call for each block.

What the file looks like is what :mod:`dplcli.passes.partition` writes: functions of one domain,
weights as inputs, and at each call what it stands for. Attributes that are equal in all blocks
stay in the function's body; the others are declared and given at each call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dplcli.dpl.builders import wildcard
from dplcli.dpl.rule import PatternRule
from dplcli.passes.ir_version import raise_ir_version
from dplcli.passes.marks import REPEAT_DOMAIN
from dplcli.passes.origin import OriginRecorder
from dplcli.passes.outline import rule_of, unique
from dplcli.passes.partition import Partition, write_calls
from dplcli.passes.repeat_body import RepeatKind, make_kind
from dplcli.passes.repeat_index import RepeatIndex, is_repeat_call
from dplcli.passes.repeat_names import find_scopes, names_for_block
from dplcli.passes.repeat_order import gathered
from dplcli.passes.repeat_search import RepeatOptions, find_blocks
from dplcli.passes.rewriter import GraphRewriter
from dplcli.passes.selection import Selection, matchable_graphs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Function, Model, Value
    from dplcli.passes.repeat_search import Blocks

_ROUNDS = 8
"""How often what is left is searched again; it gets shorter each time."""

_ASKED = 64
"""How many blocks are asked for the names of their nodes."""

_UNNAMED = "block"

_CUT_SHORT = "the search for repeated blocks stopped early: there may be more of them"


@dataclass(frozen=True)
class Family:
    """One kind of block, and what became of it.

    Attributes:
        rule: Stands for it where a partition has a rule.
        function: The function written.
        partitions: The calls, in program order.
        differing: The attributes that the function declares since the blocks differ in them.
        reshaped: How many of the function's inputs are weights of different shapes.
        is_nested: Whether the calls are in the bodies of functions of this kind.
    """

    rule: PatternRule
    function: Function
    partitions: tuple[Partition, ...]
    differing: tuple[str, ...]
    reshaped: int = 0
    is_nested: bool = False

    @property
    def size(self) -> int:
        """How many nodes each block had."""
        return len(self.partitions[0].match.nodes)


@dataclass
class RepeatResult:
    """What :func:`outline_repeats` did.

    Attributes:
        families: The kinds of blocks, the most saving first, those inside others behind them.
        selection: The blocks as matches, those inside others not counted.
    """

    families: list[Family] = field(default_factory=list)
    selection: Selection = field(default_factory=Selection)


def outline_repeats(model: Model, options: RepeatOptions) -> RepeatResult:
    """Replace the repeated blocks of *model* by calls of functions.

    The model is edited in place; without repeated blocks it is left as it is. What is left is
    searched again until nothing more is found, so that a second run changes nothing.
    """
    writer = _Writer(model)
    totals: dict[str, int] = {}
    outlined: dict[str, int] = {}
    families: list[Family] = []
    for number in range(_ROUNDS):
        index = RepeatIndex(model, matchable_graphs(model), same_attributes=options.same_attributes)
        if not number:
            for node in index.nodes:
                op = node.qualified_op
                totals[op] = totals.get(op, 0) + 1
                if is_repeat_call(node):
                    outlined[op] = totals[op]
        found = find_blocks(index, options, most=_room(index, options))
        families += writer.write(index, found.kinds)
        if not found.is_whole and _CUT_SHORT not in model.notes:
            model.notes.append(_CUT_SHORT)
        if not found.kinds:
            break
    outer = tuple(families)
    if options.nested:
        families += _outline_nested(writer, outer, options)
    if families:
        raise_ir_version(model)
    matches = [partition.match for family in outer for partition in family.partitions]
    rules = tuple(family.rule for family in outer)
    return RepeatResult(families, Selection(rules, matches, [], totals, outlined=outlined))


def _room(index: RepeatIndex, options: RepeatOptions) -> int | None:
    """Count the kinds of blocks that there may be besides those that there are."""
    if options.max_families is None:
        return None
    called = {node.op_type for node in index.nodes if is_repeat_call(node)}
    return max(0, options.max_families - len(called))


def _outline_nested(
    writer: _Writer, outer: Sequence[Family], options: RepeatOptions
) -> list[Family]:
    """Outline what repeats inside the functions written, and inside those, and so on."""
    families: list[Family] = []
    bodies = [family.function.body for family in outer]
    while bodies:
        index = RepeatIndex(writer.model, bodies, same_attributes=options.same_attributes)
        found = find_blocks(index, options, most=None)
        written = writer.write(index, found.kinds, is_nested=True)
        families += written
        bodies = [family.function.body for family in written]
    return families


class _Writer:
    """Writes functions and calls, each function under a name of its own."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.taken = {name for domain, name, _ in model.functions if domain == REPEAT_DOMAIN}
        nodes = (node for graph in model.graphs() for node in graph)
        self.taken |= {node.op_type for node in nodes if node.domain == REPEAT_DOMAIN}

    def write(
        self, index: RepeatIndex, found: Sequence[Blocks], *, is_nested: bool = False
    ) -> list[Family]:
        if not found:
            return []
        names = self._names(index, found)
        kinds = []
        for blocks, name in zip(found, names, strict=True):
            rule = PatternRule(
                target=REPEAT_DOMAIN, name=name, pattern=wildcard(), constants="lift"
            )
            kinds.append(make_kind(index, blocks.rows, rule))
        origins = OriginRecorder(self.model, [item for kind in kinds for item in kind.outlines])
        for order in gathered(index, [blocks.rows for blocks in found]):
            nodes = [index.nodes[number] for number in order]
            GraphRewriter(nodes[0].graph).arrange(nodes)
        made = write_calls(self.model, kinds, set(names), origins)
        return [_family(kind, made, is_nested=is_nested) for kind in kinds]

    def _names(self, index: RepeatIndex, found: Sequence[Blocks]) -> list[str]:
        """Name the kinds of blocks after their modules, by as many words as tell them apart."""
        offers = [_offered(index, blocks) for blocks in found]
        names = []
        for offer in offers:
            others = [name for other in offers if other is not offer for name in other]
            free = [n for n in offer if n not in self.taken]
            own = [n for n in free if n not in others]
            wanted = (own or free or offer or [_UNNAMED])[0]
            names.append(unique(wanted, self.taken.__contains__))
            self.taken.add(names[-1])
        return names


def _offered(index: RepeatIndex, blocks: Blocks) -> list[str]:
    some = range(0, len(blocks.rows[0]), -(-len(blocks.rows[0]) // _ASKED))
    rows = [[index.nodes[row[number]] for number in some] for row in blocks.rows]
    return names_for_block(find_scopes(rows))


def _family(kind: RepeatKind, made: Mapping[int, Partition], *, is_nested: bool) -> Family:
    partitions = tuple(made[id(item.match)] for item in kind.outlines)
    differing = dict.fromkeys(name for _, name in kind.attribute_names)
    rule = rule_of(partitions[0].match)
    function = partitions[0].function
    reshaped = sum(map(_have_several_shapes, kind.inputs))
    return Family(rule, function, partitions, tuple(differing), reshaped, is_nested)


def _have_several_shapes(values: Sequence[Value]) -> bool:
    if not all(value.is_initializer for value in values):
        return False
    return len({known.shape for v in values if (known := v.declared_type) is not None}) > 1
