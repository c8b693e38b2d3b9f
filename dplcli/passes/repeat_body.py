"""The function that stands for equal blocks: what it reads, what it returns, what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.dpl.match import Match
from dplcli.ir import Attribute, Function, Graph, Node, Value
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.passes.outline import OPSET_OF_UNDECLARED, Kind, Outline, outline, rule_of, unique
from dplcli.passes.repeat_index import fingerprint, is_read_elsewhere
from dplcli.passes.repeat_names import name_input, name_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.rule import PatternRule
    from dplcli.ir import Model
    from dplcli.passes.outline import AttributeKey
    from dplcli.passes.repeat_growth import Row
    from dplcli.passes.repeat_index import RepeatIndex

Place: TypeAlias = tuple[int, int]
"""A node of a block by its row, and one of its outputs."""


class Wire(NamedTuple):
    """What a node of the body reads.

    Attributes:
        inner: The node of the body and the output that it reads; None for an input.
        outer: The input of the function that it reads, by number, if it reads one.
    """

    inner: Place | None
    outer: int = -1


@dataclass
class RepeatKind(Kind):
    """The blocks of one kind.

    Attributes:
        wires: By row and slot, what is read; None where an optional input is left out.
        inputs: By input of the function, what each block gives for it.
        outputs: The outputs of nodes that the function returns.
        shared: By row and name, the attributes that are the same in all blocks.
    """

    wires: list[list[Wire | None]] = field(default_factory=list)
    inputs: list[tuple[Value, ...]] = field(default_factory=list)
    outputs: list[Place] = field(default_factory=list)
    shared: dict[AttributeKey, Attribute] = field(default_factory=dict)

    def write(self, model: Model, name: str) -> Function:
        """Write the function."""
        return _make_function(model, self, name)


def make_kind(index: RepeatIndex, rows: Sequence[Row], rule: PatternRule) -> RepeatKind:
    """Work out what a function for equal blocks reads, returns and declares.

    Args:
        index: The graphs.
        rows: The blocks (:func:`in_program_order`).
        rule: What the blocks are called.
    """
    nodes = [[index.nodes[number] for number in row] for row in rows]
    wires, inputs = _read(index, rows)
    outputs = _returned(index, rows)
    kind = RepeatKind([], {}, wires=wires, inputs=inputs, outputs=outputs)
    for block in range(len(rows[0])):
        kind.outlines.append(_outline(kind, [row[block] for row in nodes], block, rule))
    _share_attributes(kind, nodes)
    return kind


def in_program_order(rows: Sequence[Row]) -> list[Row]:
    """Sort blocks by where they end, and rows by where they are in the first block."""
    ends = [max(block) for block in zip(*rows, strict=True)]
    order = sorted(range(len(ends)), key=ends.__getitem__)
    return sorted(tuple(row[block] for block in order) for row in rows)


def _read(
    index: RepeatIndex, rows: Sequence[Row]
) -> tuple[list[list[Wire | None]], list[tuple[Value, ...]]]:
    """Wire the body; what all blocks read alike is one input, however often it is read."""
    row_of = {row[0]: number for number, row in enumerate(rows)}
    numbers: dict[tuple[Value, ...], int] = {}
    wires: list[list[Wire | None]] = []
    for row in rows:
        nodes = [index.nodes[number] for number in row]
        of_row: list[Wire | None] = []
        for slot, value in enumerate(nodes[0].inputs):
            maker = index.makers[row[0]][slot]
            if value is None:
                of_row.append(None)
            elif maker is not None and maker[0] in row_of:
                of_row.append(Wire((row_of[maker[0]], maker[1])))
            else:
                given = tuple(read for node in nodes if (read := node.inputs[slot]) is not None)
                of_row.append(Wire(None, numbers.setdefault(given, len(numbers))))
        while of_row and of_row[-1] is None:
            of_row.pop()
        wires.append(of_row)
    return wires, list(numbers)


def _returned(index: RepeatIndex, rows: Sequence[Row]) -> list[Place]:
    """List the outputs that something outside reads, in one block at least; the last ones first.

    A block of which nothing is read returns what its last node makes.
    """
    block_of = {node: block for row in rows for block, node in enumerate(row)}
    found = [
        (number, output.index)
        for number, row in enumerate(rows)
        for output in index.nodes[row[0]].outputs
        if output is not None
        and any(_is_read_outside(index, node, output.index, block_of) for node in row)
    ]
    if not found:
        made = [output for output in index.nodes[rows[-1][0]].outputs if output is not None]
        found = [(len(rows) - 1, made[0].index)]
    return found[::-1]


def _is_read_outside(index: RepeatIndex, node: int, output: int, block_of: dict[int, int]) -> bool:
    value = index.nodes[node].outputs[output]
    if value is None or is_read_elsewhere(value):
        return value is not None
    block = block_of[node]
    return any(block_of.get(reader) != block for o, _, reader in index.readers[node] if o == output)


def _outline(kind: RepeatKind, nodes: list[Node], block: int, rule: PatternRule) -> Outline:
    outputs = [value for row, o in kind.outputs if (value := nodes[row].outputs[o]) is not None]
    match = Match(rule, nodes[-1], tuple(nodes), {}, (), {}, tuple(outputs))
    item = outline(match)
    item.inputs = [given[block] for given in kind.inputs]
    item.outputs = outputs
    return item


def _share_attributes(kind: RepeatKind, nodes: Sequence[Sequence[Node]]) -> None:
    """Keep in the body what is the same in all blocks; let the calls give the rest."""
    taken: set[str] = set()
    for number, row in enumerate(nodes):
        for name in dict.fromkeys(name for node in row for name in node.attributes):
            key = (number, name)
            stated = [node.attributes.get(name) for node in row]
            full = [a or attribute_of(node, name) for a, node in zip(stated, row, strict=True)]
            for item, attribute in zip(kind.outlines, stated, strict=True):
                if attribute is None:
                    item.completed.append(key)
            present = [attribute for attribute in full if attribute is not None]
            if len(set(map(fingerprint, present))) == 1 and not present[0].ref:
                kind.shared[key] = present[0]
                continue
            kind.attribute_names[key] = unique(name, taken.__contains__)
            taken.add(kind.attribute_names[key])
            for item, attribute in zip(kind.outlines, present, strict=True):
                item.attributes[key] = attribute


# -- the body ---------------------------------------------------------------------------------


def _make_function(model: Model, kind: RepeatKind, name: str) -> Function:
    first = kind.outlines[0].match
    rule = rule_of(first)
    scope = first.root.graph.opset_imports
    domains = sorted({node.domain for node in first.nodes})
    for domain in domains:
        scope.setdefault(domain, model.opset_imports.setdefault(domain, OPSET_OF_UNDECLARED))
    body = Graph(model, {domain: scope[domain] for domain in domains})
    body.name = name
    body.modified = True
    for formal in _name_inputs(kind):
        body.values[formal] = Value(formal, body)
        body.values[formal].is_graph_input = True
        body.inputs.append(body.values[formal])
    made: list[Node] = []
    for number in range(len(first.nodes)):
        made.append(_copy(body, kind, number, made))
    for row, output in kind.outputs:
        value = made[row].outputs[output]
        assert value is not None  # noqa: S101  # see _returned
        body.add_output(value)
    function = Function(rule.target, name, body)
    function.attributes = tuple(kind.attribute_names.values())
    function.metadata = {
        "Composite": rule.qualified_name,
        "Codegen": rule.target,
        "PartitionedFromPattern": "".join(f"{node.op_type}_" for node in first.nodes),
    }
    return function


def _name_inputs(kind: RepeatKind) -> list[str]:
    """Name what is read after what is given for it, else after what reads it, or ``x``."""
    readers: dict[int, Place] = {}
    for row, of_row in enumerate(kind.wires):
        for slot, wire in enumerate(of_row):
            if wire is not None and wire.inner is None:
                readers.setdefault(wire.outer, (row, slot))
    taken: set[str] = set()
    names = []
    for number, given in enumerate(kind.inputs):
        row, slot = readers[number]
        nodes = [item.match.nodes[row] for item in kind.outlines]
        schema = schema_of(nodes[0])
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)] if schema else f"{slot}"
        names.append(unique(name_input(given, nodes, formal) or "x", taken.__contains__))
        taken.add(names[-1])
    return names


def _copy(body: Graph, kind: RepeatKind, number: int, made: Sequence[Node]) -> Node:
    """Put a copy of a node into the body, behind those *made* before."""
    row = [item.match.nodes[number] for item in kind.outlines]
    wanted = name_node(row) or f"{row[0].op_type}_{number}"
    names = {node.name for node in made}
    copy = Node(body, row[0].op_type, row[0].domain, unique(wanted, names.__contains__))
    copy.overload = row[0].overload
    copy.attributes = {
        **{name: a for (place, name), a in kind.shared.items() if place == number},
        **{
            name: Attribute(kind.outlines[0].attributes[place, name].kind, None, declared)
            for (place, name), declared in kind.attribute_names.items()
            if place == number
        },
    }
    copy.inputs = tuple(
        None if wire is None else _value_of(body, wire, made) for wire in kind.wires[number]
    )
    for slot, value in enumerate(copy.inputs):
        if value is not None:
            value.add_use(copy, slot)
    copy.outputs = tuple(
        None if output is None else _define(body, copy, output.index) for output in row[0].outputs
    )
    body.append(copy)
    return copy


def _value_of(body: Graph, wire: Wire, made: Sequence[Node]) -> Value | None:
    if wire.inner is None:
        return body.inputs[wire.outer]
    row, output = wire.inner
    return made[row].outputs[output]


def _define(body: Graph, node: Node, index: int) -> Value:
    plain = "".join(letter if letter.isalnum() else "_" for letter in node.name)
    name = unique(f"{plain}_out", body.values.__contains__)
    value = body.values[name] = Value(name, body, node, index)
    return value
