"""Outline the repeated blocks of a model: one function for each kind, one call for each block.

What the file looks like is what :mod:`dplcli.passes.partition` writes: functions of one domain,
weights as inputs, and at each call what it stands for. Attributes that are equal in all blocks
stay in the function's body; the others are declared and given at each call.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.analysis.numbering import Numbers
from dplcli.ir.model import followers_last
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.ir.traversal import users
from dplcli.keys import keys
from dplcli.language.pattern import is_op
from dplcli.language.rule import Match, PatternRule
from dplcli.passes.partition import (
    OriginRecorder,
    Outline,
    OutlinedFunction,
    OutlineMaker,
    Outliner,
    Partition,
    formal_input,
    rule_of,
    wording_of,
)
from dplcli.passes.records import REPEAT_DOMAIN, is_constant_node
from dplcli.passes.rewriter import (
    BodyWriter,
    GraphRewriter,
    attribute_key,
    claim,
    lowest_rank_first,
    object_to_devices,
    raise_ir_version,
    reachable,
    unique,
)
from dplcli.passes.select import Selection, matchable_graphs

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value
    from dplcli.passes.partition import AttributeKey
    from dplcli.settings import RepeatSettings

    Path: TypeAlias = tuple[str, ...]


# The graphs of a model as numbered nodes, for the search for repeated blocks.
#
# A node's label says all that two nodes must have in common to stand at the same place of two equal
# blocks: operator, opset, how many inputs and which outputs are there, the names and kinds of the
# attributes. What feeds it does not count: that is compared edge by edge.


FIXED = -1
"""Label of a node that no block may contain."""

_LARGE_CONSTANT = 64
"""A Constant node of more elements is taken for a weight: blocks read it and do not contain it."""

_WINDOW_ATTRIBUTES = ("dilations", "pads", "strides")

_COLOURINGS = 3
"""How far the finest colours look."""


class RepeatIndex:
    """Every node that may be in a block, by number; numbers follow the graphs' order.

    Args:
        model: The model, which must not be edited while the index is in use.
        graphs: Which of its graphs to look at.
        same_attributes: Whether the values of attributes are part of the label.

    Attributes:
        nodes: The nodes.
        numbers: The number of each.
        labels: By node, equal for those that may stand for each other; :data:`FIXED` for others.
        makers: By node and input slot, the node that makes what is read and the index of its
            output; None for what no node of the same graph makes.
        readers: By node, what reads its outputs in the same graph: output, slot and reader.
        shown: By node, the outputs that are also read elsewhere: returned, or inside a body.
        full_size: How many nodes there would be without the blocks found before.
        colours: Labels of ever larger neighbourhoods, the smallest first.
    """

    def __init__(
        self, model: Model, graphs: Iterable[Graph], *, same_attributes: bool = False
    ) -> None:
        self.model = model
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.labels: list[int] = []
        self.makers: list[tuple[tuple[int, int] | None, ...]] = []
        self.readers: list[list[tuple[int, int, int]]] = []
        self.shown: list[tuple[int, ...]] = []
        self._same_attributes = same_attributes
        self.full_size = 0
        self._sizes: dict[tuple[str, str, str], int] = {}
        self._number = Numbers()
        for graph in graphs:
            self._add(graph)
        self.colours = [self.labels]
        for _ in range(_COLOURINGS):
            # Finer colours: nodes share one if their neighbours are of equal colours, too.
            colours = self.colours[-1]
            number_of = Numbers()
            refined = []
            for number, colour in enumerate(colours):
                if colour == FIXED:
                    refined.append(FIXED)
                    continue
                above = tuple(
                    [None if m is None else (colours[m[0]], m[1]) for m in self.makers[number]]
                )
                below = [(index, slot, colours[user]) for index, slot, user in self.readers[number]]
                below.sort()
                refined.append(number_of((colour, above, tuple(below))))
            self.colours.append(refined)

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self.nodes)

    def _add(self, graph: Graph) -> None:
        numbers = self.numbers
        first = len(self.nodes)
        for number, node in enumerate(graph, first):
            numbers[node] = number
            self.nodes.append(node)
            self.labels.append(self._label(node))
            self.readers.append([])
            makers: list[tuple[int, int] | None] = []
            for slot, value in enumerate(node.inputs):
                if value is None or value.producer is None or value.graph is not graph:
                    makers.append(None)
                    continue
                maker = numbers[value.producer]
                makers.append((maker, value.index))
                self.readers[maker].append((value.index, slot, number))
            self.makers.append(tuple(makers))
        self.shown += [
            tuple(
                value.index
                for value in node.outputs
                if value is not None and is_read_elsewhere(value)
            )
            for node in self.nodes[first:]
        ]
        self.full_size += sum(self._size(node) for node in self.nodes[first:])

    def _size(self, node: Node) -> int:
        """Count the nodes that *node* stands for: a call, for those of the function."""
        if not is_repeat_call(node):
            return 1
        key = (node.domain, node.op_type, node.overload)
        if key not in self._sizes:
            function = self.model.functions.get(key)
            self._sizes[key] = 1
            if function is not None:
                self._sizes[key] = sum(self._size(inner) for inner in function.body)
        return self._sizes[key]

    def _label(self, node: Node) -> int:
        if _is_fixed(node):
            return FIXED
        opset = node.graph.opset_imports.get(node.domain, 0)
        inputs = [value is not None for value in node.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [value is not None for value in node.outputs]
        operator = (node.domain, node.op_type, node.overload, opset)
        attributes = (
            (name, attribute_key(attribute) if self._same_attributes else attribute.kind)
            for name, attribute in complete_attributes(node).items()
        )
        key = (operator, tuple(inputs), tuple(outputs), tuple(sorted(attributes)))
        return self._number(key)


def complete_attributes(node: Node) -> dict[str, Attribute]:
    """Return the attributes of *node*, with those it leaves to defaults that need no inference."""
    schema = schema_of(node)
    attributes: dict[str, Attribute] = {**(schema.defaults if schema else {}), **node.attributes}
    if "kernel_shape" in attributes:
        for name in _WINDOW_ATTRIBUTES:
            implied = attributes.get(name) or attribute_of(node, name)
            if implied is not None:
                attributes[name] = implied
    return attributes


def is_repeat_call(node: Node) -> bool:
    """Tell whether *node* is a call that an earlier search has left."""
    return node.domain == REPEAT_DOMAIN


def _is_fixed(node: Node) -> bool:
    if node.subgraphs or is_repeat_call(node):
        return True
    if not node.domain and "" not in node.graph.opset_imports:
        return True
    if not any(value is not None for value in node.outputs):
        return True
    return is_constant_node(node) and not _is_small(node)


def _is_small(node: Node) -> bool:
    value = node.outputs[0]
    tensor = None if value is None else value.constant
    return tensor is not None and not tensor.is_external and tensor.size <= _LARGE_CONSTANT


def is_read_elsewhere(value: Value) -> bool:
    """Tell whether *value* is returned, or read in a body inside its graph."""
    if value.returned_by:
        return True
    return any(user.graph is not value.graph for user, _ in value.iter_uses())


# Grow equal patches round equal nodes, all at once and edge by edge.
#
# The patches of one growth have the same rows: row *p* of patch *i* stands for row *p* of patch
# *j*, and every wire between two rows is there in all patches or in none. So whatever rows are left
# out later, the patches stay equal. Patches may overlap while they grow: where blocks follow each
# other it is not known yet where one ends, and the cut decides that.


Row: TypeAlias = tuple[int, ...]
"""What stands at one place of every patch: a node number per patch."""

_MANY_READERS = 64
"""Patches do not grow through a value with more readers: which correspond is unclear."""


class Disagreement(NamedTuple):
    """An edge at which the patches could not grow together.

    Attributes:
        groups: The patches (by place) that agree with each other, two and more.
        found: What patches have at the edge; those that have nothing there are left out.
    """

    groups: list[list[int]]
    found: Mapping[int, int]


class PatchGrowth:
    """Patches round *starts*, as large as they can be.

    Args:
        index: The graphs.
        starts: One node per patch, with equal labels, in order.
        claimed: Nodes that no patch may contain.

    Attributes:
        rows: The places of the patches, the starts' first.
        places: By patch, the row of each of its nodes.
        owners: How many patches a node is in.
        touching: Whether two patches met.
        disagreements: Where some of the patches could have grown further.
        work: How many nodes were looked at.
    """

    def __init__(self, index: RepeatIndex, starts: Row, claimed: Collection[int]) -> None:
        self.index = index
        self.claimed = claimed
        self.rows: list[Row] = []
        self.places: list[dict[int, int]] = [{} for _ in starts]
        self.owners: dict[int, int] = {}
        self.touching = False
        self.disagreements: list[Disagreement] = []
        self.work = 0
        self._starts = frozenset(starts)
        self._upwards: deque[tuple[int, int]] = deque()
        self._downwards: deque[tuple[int, int]] = deque()
        self._unclear: deque[tuple[int, int]] = deque()
        self._add(starts)
        # Look at every edge once: first at makers, for an input has but one; then at readers.
        while True:
            if self._upwards:
                self._grow_upwards(*self._upwards.popleft())
            elif self._downwards:
                self._grow_downwards(*self._downwards.popleft())
            elif self._unclear:
                self._grow_in_order(*self._unclear.popleft())
            else:
                return

    def _add(self, row: Row) -> None:
        place = len(self.rows)
        self.rows.append(row)
        for patch, node in zip(self.places, row, strict=True):
            patch[node] = place
            self.owners[node] = self.owners.get(node, 0) + 1
        slots = range(len(self.index.makers[row[0]]))
        self._upwards.extend((place, slot) for slot in slots)
        outputs = range(len(self.index.nodes[row[0]].outputs))
        self._downwards.extend((place, output) for output in outputs)

    # -- upwards -----------------------------------------------------------------------------

    def _grow_upwards(self, place: int, slot: int) -> None:
        makers = [self.index.makers[node] for node in self.rows[place]]
        wires = [of_node[slot] if slot < len(of_node) else None for of_node in makers]
        above = [None if wire is None else wire[0] for wire in wires]
        self.work += len(above)
        if all(node is None for node in above) or self._any_inside(above):
            return
        if self._agrees(above) and len({wire[1] for wire in wires if wire is not None}) == 1:
            self._try([node for node in above if node is not None])

    def _any_inside(self, numbers: Iterable[int | None]) -> bool:
        return any(
            node in patch
            for node, patch in zip(numbers, self.places, strict=True)
            if node is not None
        )

    def _agrees(self, numbers: list[int | None]) -> bool:
        """Tell whether nodes of one label are found; note who agrees with whom if not."""
        labels = [self._label(node) for node in numbers]
        if labels.count(labels[0]) == len(labels):
            return labels[0] != FIXED
        self._disagree(
            {
                patch: (label, node)
                for patch, (label, node) in enumerate(zip(labels, numbers, strict=True))
                if node is not None
            }
        )
        return False

    def _label(self, node: int | None) -> int:
        return FIXED if node is None or node in self.claimed else self.index.labels[node]

    def _disagree(self, found: Mapping[int, tuple[int, int]]) -> None:
        """Note an edge at which patches have different nodes, or some have none.

        Args:
            found: By patch, a key that is equal for what agrees, and the number of what it has.
        """
        if 2 * sum(node in self._starts for _, node in found.values()) >= len(self.places):
            self.touching = True
        groups: dict[int, list[int]] = {}
        for patch, (label, _) in found.items():
            if label != FIXED:
                groups.setdefault(label, []).append(patch)
        several = [group for group in groups.values() if len(group) > 1]
        if several:
            nodes = {patch: node for patch, (_, node) in found.items()}
            self.disagreements.append(Disagreement(several, nodes))

    # -- downwards ---------------------------------------------------------------------------

    def _grow_downwards(self, place: int, output: int) -> None:
        """Follow the readers of an output where only one pairing is possible."""
        readers = self._readers(place, output)
        if readers is None or not any(readers):
            return
        if all(len(of_patch) == 1 for of_patch in readers) and self._is_one_kind(readers):
            self._try([of_patch[0][1] for of_patch in readers])
            return
        for colours in reversed(self.index.colours):
            for alike in _alike(readers, colours):
                row = [nodes[0] for nodes in alike]
                if len(alike[0]) == 1 and not self._any_inside(row):
                    self._try(row)
            readers = [
                [(slot, node) for slot, node in of_patch if node not in patch]
                for of_patch, patch in zip(readers, self.places, strict=True)
            ]
        if all(readers):
            self._unclear.append((place, output))
        self._note_missing(readers)

    def _is_one_kind(self, readers: list[list[tuple[int, int]]]) -> bool:
        """Tell whether the first readers have one label and read in one slot."""
        labels = self.index.labels
        slot, node = readers[0][0]
        label = labels[node]
        return all(of[0][0] == slot and labels[of[0][1]] == label for of in readers)

    def _note_missing(self, readers: list[list[tuple[int, int]]]) -> None:
        """Note who has a reader of a kind that others lack."""
        labels = self.index.labels
        kinds: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        for patch, of_patch in enumerate(readers):
            for slot, node in of_patch:
                kinds.setdefault((labels[node], slot), {}).setdefault(patch, (0, node))
        for firsts in kinds.values():
            found = {p: first for p, first in firsts.items() if first[1] not in self.claimed}
            if len(found) < len(readers):
                self._disagree(found)

    def _readers(self, place: int, output: int) -> list[list[tuple[int, int]]] | None:
        """List what reads an output of a row outside the patches; None where that is too much."""
        readers = []
        for node, patch in zip(self.rows[place], self.places, strict=True):
            of_node = self.index.readers[node]
            self.work += 1 + len(of_node)
            if len(of_node) > _MANY_READERS:
                return None
            readers.append([(s, n) for o, s, n in of_node if o == output and n not in patch])
        return readers

    def _grow_in_order(self, place: int, output: int) -> None:
        """Pair equal readers in the order of the file, one row at a time."""
        readers = self._readers(place, output)
        if readers is None:
            return
        for colours in reversed(self.index.colours):
            for row in (
                row for alike in _alike(readers, colours) for row in zip(*alike, strict=True)
            ):
                if self._try(row):
                    self._unclear.append((place, output))
                    return

    # -- both --------------------------------------------------------------------------------

    def _try(self, row: Sequence[int]) -> bool:
        """Add *row* if its nodes can stand for each other and are wired to the patches alike."""
        self.work += len(row)
        labels = self.index.labels
        label = labels[row[0]]
        if label == FIXED or len(set(row)) < len(row):
            return False
        for node in row:
            if labels[node] != label or node in self.claimed:
                return False
        met = sum(node in self._starts or self.owners.get(node, 0) > 1 for node in row)
        if met:
            self.touching = self.touching or 2 * met >= len(row)
            return False
        wiring = None
        for node, patch in zip(row, self.places, strict=True):
            wires = self._wires(node, patch)
            if wiring is not None and wires != wiring:
                return False
            wiring = wires
        self._add(tuple(row))
        return True

    def _wires(self, node: int, patch: dict[int, int]) -> tuple[list[object], list[object]]:
        """Return how *node* is wired to the nodes of *patch*."""
        index = self.index
        above: list[object] = [
            None if maker is None or maker[0] not in patch else (patch[maker[0]], maker[1])
            for maker in index.makers[node]
        ]
        while above and above[-1] is None:
            above.pop()
        below = [(o, s, patch[n]) for o, s, n in index.readers[node] if n in patch]
        self.work += len(index.readers[node])
        return above, sorted(below)  # type: ignore[return-value]  # numbers are objects


def _alike(readers: list[list[tuple[int, int]]], colours: list[int]) -> Iterator[list[list[int]]]:
    """Iterate over the kinds of readers that every patch has equally many of, in their order."""
    by_kind: list[dict[tuple[int, int], list[int]]] = []
    for of_patch in readers:
        by_kind.append({})
        for slot, node in of_patch:
            by_kind[-1].setdefault((colours[node], slot), []).append(node)
    for kind, nodes in by_kind[0].items():
        alike = [kinds.get(kind, []) for kinds in by_kind]
        if all(len(of_patch) == len(nodes) for of_patch in alike):
            yield alike


# What the names in a model tell of its blocks: where one begins, and what to call it.
#
# Exporters name nodes and weights after modules: ``/encoder/layer.3/attention/Softmax``,
# ``encoder.layer.3.attention.query.weight``. Where such names tell blocks apart, they decide what
# the wiring leaves open. A model without names has repeated blocks, too.


_SEPARATORS = re.compile(r"[/.:]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_LONGEST = 4


def path_of(name: str) -> Path:
    """Split a name into the modules that it goes through, and what comes last."""
    return tuple(part for part in _SEPARATORS.split(name) if part)


def paths_of_node(node: Node) -> list[Path]:
    """Return what the names of *node* and of its weights say of where it is."""
    names = [node.name, *(v.name for v in node.inputs if v is not None and v.is_initializer)]
    return [path for path in map(path_of, names) if len(path) > 1]


def find_scopes(rows: Iterable[Sequence[Node]]) -> list[Path] | None:
    """Find the module that each block belongs to.

    Args:
        rows: Nodes that stand for each other, one per block.

    Returns:
        By block, the path that most rows agree on and that no two blocks share; None if there is
        none.
    """
    votes: Counter[tuple[Path, ...]] = Counter()
    for row in rows:
        of_nodes = [paths_of_node(node) for node in row]
        if len({len(paths) for paths in of_nodes}) != 1:
            continue
        for paths in zip(*of_nodes, strict=True):
            scopes = _distinct_prefixes(paths)
            if scopes is not None:
                votes[scopes] += 1
    return list(votes.most_common(1)[0][0]) if votes else None


def _distinct_prefixes(paths: Sequence[Path]) -> tuple[Path, ...] | None:
    """Return the shortest beginnings of equal length that tell *paths* apart; modules only."""
    shortest = min(map(len, paths))
    for depth in range(1, shortest):
        prefixes = tuple(path[:depth] for path in paths)
        if len(set(prefixes)) == len(prefixes):
            return prefixes
    return None


def count_at_home(row: Sequence[Node], scopes: Sequence[Path]) -> int:
    """Count the nodes of *row* that names place in their own block."""
    return sum(
        any(path[: len(scope)] == scope for path in paths_of_node(node))
        for node, scope in zip(row, scopes, strict=True)
    )


def name_input(values: Sequence[Value], readers: Sequence[Node], formal: str) -> str | None:
    """Name an input of a function after the values given for it.

    Args:
        values: What each block gives.
        readers: The nodes that read them.
        formal: What the operator of these calls what it reads.

    Returns:
        The name that they share, if all blocks are given the same; else, for weights, what their
        names end in alike, or what reads them; else None.
    """
    if len(set(values)) == 1:
        return _plain(path_of(values[0].name)[-_LONGEST:])
    if not all(value.is_initializer for value in values):
        return None
    own = _plain(_common_end([value.name for value in values])[-_LONGEST:])
    if own is not None:
        return own
    reader = _common_end([node.name for node in readers])[-_LONGEST:]
    return _plain((*reader, formal)) if reader else None


def name_node(nodes: Sequence[Node]) -> str | None:
    """Name a node of a function after what the names of those it stands for end in alike.

    None if those names tell nothing. The name begins with a slash, because onnxruntime puts the
    call's name and an underscore before it: ``layer`` with ``1/Relu`` must not read like
    ``layer_1`` with ``Relu``.
    """
    common = _common_end([node.name for node in nodes])
    return "/" + "/".join(common) if common else None


def _common_end(names: Sequence[str]) -> Path:
    """Return what the paths of *names* end in alike."""
    common: list[str] = []
    for parts in zip(*(reversed(path_of(name)) for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return tuple(reversed(common))


def _plain(parts: Sequence[str]) -> str | None:
    """Join *parts* to what may be a name in ONNX text, too."""
    while parts and parts[0].isdigit():
        parts = parts[1:]
    name = _NOT_IN_NAMES.sub("_", "_".join(parts)).strip("_")
    if not name or not any(letter.isalpha() for letter in name):
        return None
    return f"_{name}" if name[0].isdigit() else name


# The function that stands for equal blocks: what it reads, what it returns, what is in it.


OutputSlot: TypeAlias = tuple[int, int]
"""A node of a block by its row, and one of its outputs."""


class Wire(NamedTuple):
    """What a node of the body reads.

    Attributes:
        inner: The node of the body and the output that it reads; None for an input.
        outer: The input of the function that it reads, by number, if it reads one.
    """

    inner: OutputSlot | None
    outer: int = -1


@dataclass
class RepeatKind(OutlinedFunction):
    """The blocks of one kind.

    Attributes:
        wires: By row and slot, what is read; None where an optional input is left out.
        inputs: By input of the function, what each block gives for it.
        outputs: The outputs of nodes that the function returns.
        shared: By row and name, the attributes that are the same in all blocks.
    """

    wires: list[list[Wire | None]] = field(default_factory=list)
    inputs: list[tuple[Value, ...]] = field(default_factory=list)
    outputs: list[OutputSlot] = field(default_factory=list)
    shared: dict[AttributeKey, Attribute] = field(default_factory=dict)

    def fill(self, body: BodyWriter) -> None:
        """Write the nodes into *body*, under names that the blocks share."""
        # Name the inputs after the values that calls give, else after their readers, or ``x``.
        readers: dict[int, OutputSlot] = {}
        for row, of_row in enumerate(self.wires):
            for slot, wire in enumerate(of_row):
                if wire is not None and wire.inner is None:
                    readers.setdefault(wire.outer, (row, slot))
        names = []
        for number, given in enumerate(self.inputs):
            row, slot = readers[number]
            nodes = [item.match.nodes[row] for item in self.outlines]
            formal = formal_input(nodes[0], slot) or f"{slot}"
            names.append(name_input(given, nodes, formal) or "x")
        for formal in names:
            body.add_input(formal)
        copies: list[Node] = []
        for number in range(len(self.outlines[0].match.nodes)):
            copies.append(_copy(body, self, number, copies))
        for row, output in self.outputs:
            value = copies[row].outputs[output]
            assert value is not None  # noqa: S101  # see _returned
            body.graph.add_output(value)


def make_kind(index: RepeatIndex, rows: Sequence[Row], rule: PatternRule) -> RepeatKind:
    """Work out what a function for equal blocks reads, returns and declares.

    Args:
        index: The graphs.
        rows: The blocks, nodes in topological order.
        rule: What the blocks are called.
    """
    # Sort blocks by where they end, and rows by where they are in the first block.
    ends = [max(block) for block in zip(*rows, strict=True)]
    order = sorted(range(len(ends)), key=ends.__getitem__)
    rows = sorted(tuple(row[block] for block in order) for row in rows)
    nodes = [[index.nodes[number] for number in row] for row in rows]
    wires, inputs = _read(index, rows)
    # List the outputs that something outside reads, in one block at least.
    block_of = {node: block for row in rows for block, node in enumerate(row)}
    slots = [
        (number, output.index)
        for number, row in enumerate(rows)
        for output in index.nodes[row[0]].outputs
        if output is not None
        and any(_is_read_outside(index, node, output.index, block_of) for node in row)
    ]
    if not slots:
        slots = [(len(rows) - 1, index.nodes[rows[-1][0]].made[0].index)]
    outputs = slots[::-1]
    kind = RepeatKind([], {}, wires=wires, inputs=inputs, outputs=outputs)
    for block in range(len(rows[0])):
        kind.outlines.append(_outline(kind, [row[block] for row in nodes], block, rule))
    # Keep in the body what is the same in all blocks; let the calls give the rest.
    used: set[str] = set()
    for number, row in enumerate(nodes):
        for name in dict.fromkeys(name for node in row for name in node.attributes):
            key = (number, name)
            stated = [node.attributes.get(name) for node in row]
            full = [a or attribute_of(node, name) for a, node in zip(stated, row, strict=True)]
            for item, attribute in zip(kind.outlines, stated, strict=True):
                if attribute is None:
                    item.completed.append(key)
            present = [attribute for attribute in full if attribute is not None]
            if len(set(map(attribute_key, present))) == 1 and not present[0].ref:
                kind.shared[key] = present[0]
                continue
            kind.attribute_names[key] = claim(name or "attribute", used)
            for item, attribute in zip(kind.outlines, present, strict=True):
                item.attributes[key] = attribute
    return kind


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


def _is_read_outside(index: RepeatIndex, node: int, output: int, block_of: dict[int, int]) -> bool:
    value = index.nodes[node].outputs[output]
    if value is None or is_read_elsewhere(value):
        return value is not None
    block = block_of[node]
    return any(block_of.get(reader) != block for o, _, reader in index.readers[node] if o == output)


def _outline(kind: RepeatKind, nodes: list[Node], block: int, rule: PatternRule) -> Outline:
    outputs = [value for row, o in kind.outputs if (value := nodes[row].outputs[o]) is not None]
    match = Match(rule, nodes[-1], tuple(nodes), {}, (), {}, tuple(outputs))
    item = OutlineMaker().outline(match)
    item.inputs = [given[block] for given in kind.inputs]
    item.outputs = outputs
    item.nodes, item.swapped, item.form = match.nodes, (), None  # blocks have names of their own
    item.common.wording = wording_of(match.nodes)
    return item


# -- the body ---------------------------------------------------------------------------------


def _copy(body: BodyWriter, kind: RepeatKind, number: int, copies: Sequence[Node]) -> Node:
    """Put a copy of a node into the body, behind those *copies* before."""
    row = [item.match.nodes[number] for item in kind.outlines]
    first = row[0]
    used = {node.name for node in copies}
    name = unique(name_node(row) or f"{first.op_type}_{number}", used.__contains__)
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    shared = {name: a for (place, name), a in kind.shared.items() if place == number}
    return body.add_node(
        (first.domain, first.op_type, first.overload),
        name,
        [None if wire is None else _value_of(body, wire, copies) for wire in kind.wires[number]],
        {**shared, **kind.references(number)},
        ["" if output is None else f"{plain}_out" for output in first.outputs],
    )


def _value_of(body: BodyWriter, wire: Wire, copies: Sequence[Node]) -> Value | None:
    if wire.inner is None:
        return body.graph.inputs[wire.outer]
    row, output = wire.inner
    return copies[row].outputs[output]


# Whether each block can become a single node, without a cycle.


_DETOUR_PER_NODE = 8
_LEAST_DETOUR = 256
"""How far paths out of one block are followed; beyond that, all blocks are checked together."""


_SCATTERED = 8
"""Nodes are gathered in a graph whose blocks together span so many times its nodes."""


def places_of(rows: Sequence[Row]) -> list[dict[int, int]]:
    """Return the row of each node, by patch."""
    if not rows:
        return []
    return [{row[patch]: place for place, row in enumerate(rows)} for patch in range(len(rows[0]))]


def trim(index: RepeatIndex, rows: list[Row]) -> tuple[list[Row], bool]:
    """Make every block convex by leaving out rows, or blocks, whichever saves more.

    Returns:
        What is left, and whether that was all.
    """
    early: set[int] = set()
    late: set[int] = set()
    bad: set[int] = set()
    unclear: list[int] = []
    all_places = places_of(rows)
    for number, places in enumerate(all_places):
        detours = _detours(index, places, _LEAST_DETOUR + _DETOUR_PER_NODE * len(places))
        if detours is None:
            unclear.append(number)
            continue
        entries, exits = detours
        if entries:
            bad.add(number)
            late |= {places[node] for node in _closure(index, entries, places, up=False)}
            early |= {places[node] for node in _closure(index, exits, places, up=True)}
    if unclear:
        groups = {node: number for number in unclear for node in all_places[number]}
        bad |= _stuck(index, groups)
    if not bad:
        return rows, True
    without = [tuple(n for number, n in enumerate(row) if number not in bad) for row in rows]
    if not late:
        return without, True
    smaller = late if len(late) <= len(early) else early
    trimmed = [row for place, row in enumerate(rows) if place not in smaller]
    if _saving(without) > _saving(trimmed):
        return without, True
    return trimmed, False


def _saving(rows: Sequence[Row]) -> int:
    return len(rows) * (len(rows[0]) - 1) if rows and rows[0] else 0


def _detours(
    index: RepeatIndex, places: Mapping[int, int], most: int
) -> tuple[set[int], set[int]] | None:
    """Return where paths through the outside come back into the block, and where they leave it.

    None if that takes more than *most* nodes outside the block.
    """
    last = max(places)
    came_from: dict[int, list[int]] = {}
    pending = list(places)
    while pending:
        node = pending.pop()
        most -= node not in places
        if most < 0:
            return None
        for user in readers_of(index, node):
            if user > last or (user in places and node in places):
                continue
            if user not in came_from and user not in places:
                pending.append(user)
            came_from.setdefault(user, []).append(node)
    entries = {node for node in came_from if node in places}
    return entries, _left_from(came_from, entries, places)


def _left_from(
    came_from: Mapping[int, Sequence[int]], entries: set[int], places: Mapping[int, int]
) -> set[int]:
    """Return the nodes of the block from which ways outside lead to *entries*."""

    def outside(node: int) -> list[int]:
        return [maker for maker in came_from.get(node, ()) if maker not in places]

    met = reachable(entries, outside)
    return {maker for node in met for maker in came_from.get(node, ()) if maker in places}


def readers_of(index: RepeatIndex, node: int) -> list[int]:
    """List the nodes of the same graph that read what *node* makes, bodies included."""
    readers = [user for _, _, user in index.readers[node]]
    if index.shown[node]:
        outputs = (value for value in index.nodes[node].outputs if value is not None)
        readers += [index.numbers[user] for value in outputs for user in users(value)]
    return readers


def _closure(
    index: RepeatIndex, starts: Collection[int], inside: Collection[int], *, up: bool
) -> set[int]:
    """Return *starts* and all that they need (*up*), or that needs them, of what is inside."""

    def near(node: int) -> list[int]:
        if up:
            nodes = [maker[0] for maker in index.makers[node] if maker is not None]
        else:
            nodes = [user for _, _, user in index.readers[node]]
        return [other for other in nodes if other in inside]

    return reachable(starts, near)


def acyclic(index: RepeatIndex, rows: Sequence[Row], claimed: dict[int, int]) -> list[Row]:
    """Leave out blocks until the model has no cycle if all of them, and the claimed, are nodes."""
    rows = list(rows)
    while rows and rows[0]:
        groups = dict(claimed)
        groups.update((node, -1 - number) for row in rows for number, node in enumerate(row))
        stuck = {group for group in _stuck(index, groups) if group < 0}
        if not stuck:
            return rows
        keep = max(stuck) if len(stuck) > 1 else None
        out = {-1 - group for group in stuck if group != keep}
        rows = [tuple(n for number, n in enumerate(row) if number not in out) for row in rows]
    return []


def gathered(index: RepeatIndex, blocks: Sequence[Sequence[Row]]) -> list[list[int]]:
    """Order the nodes of each graph so that those of a block follow each other.

    Args:
        index: The graphs.
        blocks: The kinds of blocks, which form no cycle.

    Returns:
        The nodes of each graph that blocks are scattered over; of the others nothing.
    """
    members: list[list[int]] = [
        sorted(block) for rows in blocks for block in zip(*rows, strict=True)
    ]
    spans: dict[Graph, int] = {}
    for block in members:
        graph = index.nodes[block[0]].graph
        spans[graph] = spans.get(graph, 0) + block[-1] - block[0]
    scattered = {graph for graph, span in spans.items() if span > _SCATTERED * graph.node_count}
    if not scattered:
        return []
    group_of = {node: block for block in members for node in block}
    orders = []
    for graph in scattered:
        first = index.numbers[next(iter(graph))]
        numbers = range(first, first + graph.node_count)
        # Sort the nodes of one graph; each group is as late as its last node, if it can be.
        owner = {node: group_of[node][-1] if node in group_of else node for node in numbers}
        needs: dict[int, set[int]] = {group: set() for group in owner.values()}
        for node in numbers:
            for user in readers_of(index, node):
                if owner[user] != owner[node]:
                    needs[owner[user]].add(owner[node])
        order = lowest_rank_first(needs, {group: (group,) for group in needs})
        orders.append([node for group in order for node in group_of.get(group, [group])])
    return sorted(orders)


def _stuck(index: RepeatIndex, groups: dict[int, int]) -> set[int]:
    """Return the groups that lie on a cycle, or between cycles, if each were a single node."""
    size = len(index)
    names = {group: size + number for number, group in enumerate(dict.fromkeys(groups.values()))}
    owner = [names[groups[node]] if node in groups else node for node in range(size)]
    below: dict[int, set[int]] = {unit: set() for unit in owner}
    for node in range(size):
        for user in readers_of(index, node):
            if owner[user] != owner[node]:
                below[owner[node]].add(owner[user])
    # what cannot be sorted lies on a cycle or behind one; of that, what cannot be sorted upwards
    sorted_down = followers_last(below)
    remaining = set(below).difference(sorted_down)
    above: dict[int, set[int]] = {unit: set() for unit in remaining}
    for unit in remaining:
        for user in below[unit] & remaining:
            above[user].add(unit)
    sorted_up = followers_last(above)
    remaining.difference_update(sorted_up)
    return {group for group, name in names.items() if name in remaining}


# Decide which rows of patches that have grown round equal nodes become a block.
#
# Blocks are disjoint, each is connected, and none lies on a cycle.


_PATCHES_ASKED = 24
"""How many patches are asked for names."""

_TRIMS = 4
"""How often blocks are trimmed before they are given up."""


def cut_blocks(index: RepeatIndex, growth: PatchGrowth) -> list[Row]:
    """Return the rows of *growth* that make blocks; none of them if they make no sense.

    Rows are in topological order. Patches that cannot be made blocks are left out of the rows.
    """
    rows = _without_overlap(index, growth)
    rows = _connected(index, _without_lent_constants(index, rows), growth.rows[0])
    for _ in range(_TRIMS):
        if not rows:
            return []
        rows, is_whole = trim(index, rows)
        if is_whole:
            return sorted(rows)
        rows = _connected(index, _without_lent_constants(index, rows), growth.rows[0])
    return []


# -- overlap ----------------------------------------------------------------------------------


def _without_overlap(index: RepeatIndex, growth: PatchGrowth) -> list[Row]:
    """Give nodes that are the end of one patch and the beginning of the next to one of them.

    The cut with the fewest values across it wins; among equals the one that the names speak for;
    then the latest.
    """
    middle = len(growth.places) // 2
    order = {place: row[middle] for place, row in enumerate(growth.rows)}
    pairs = sorted(
        {tuple(sorted(pair, key=order.__getitem__)) for pair in _conflicts(growth)},
        key=lambda pair: (order[pair[0]], order[pair[1]]),
    )
    if not pairs:
        return growth.rows
    margin = {place for pair in pairs for place in pair}
    core = [growth.rows[place] for place in order if place not in margin] or growth.rows[:1]
    few = range(0, len(growth.places), -(-len(growth.places) // _PATCHES_ASKED))
    scopes = find_scopes([index.nodes[row[number]] for number in few] for row in core)
    home = {
        place: count_at_home([index.nodes[growth.rows[place][number]] for number in few], scopes)
        for place in margin
        if scopes is not None
    }
    # How many of *pairs* stay at the end of the earlier patch.
    reasons = dict.fromkeys(range(len(growth.rows)), 0)
    for pair in pairs:
        reasons[pair[1]] += 1
    nodes = [row[middle] for row in growth.rows]
    inside = [nodes[place] for place, count in reasons.items() if not count]
    border = _Border(index, inside)
    score = sum(home.get(place, 0) for place, count in reasons.items() if not count)
    best, best_score = 0, (len(inside), -border.crossing, score)
    kept = len(inside)
    for number, (front, end) in enumerate(pairs, 1):
        for place, change in ((front, 1), (end, -1)):
            before = reasons[place]
            reasons[place] += change
            if bool(before) == bool(reasons[place]):
                continue
            border.toggle(nodes[place])
            kept -= change
            score -= change * home.get(place, 0)
        if (kept, -border.crossing, score) >= best_score:
            best, best_score = number, (kept, -border.crossing, score)
    left_out = {pair[0] for pair in pairs[:best]} | {pair[1] for pair in pairs[best:]}
    return [row for place, row in enumerate(growth.rows) if place not in left_out]


def _conflicts(growth: PatchGrowth) -> set[tuple[int, int]]:
    """List the pairs of rows that share a node."""
    shared = {node for node, count in growth.owners.items() if count > 1}
    rows_of: dict[int, list[int]] = {}
    for patch in growth.places:
        for node in shared & patch.keys():
            rows_of.setdefault(node, []).append(patch[node])
    return {(min(rows), max(rows)) for rows in rows_of.values()}


class _Border:
    """Counts the values that go into and out of a set of nodes, constants aside."""

    def __init__(self, index: RepeatIndex, inside: Iterable[int]) -> None:
        self.index = index
        self.inside: set[int] = set()
        self.reads: dict[Value, int] = {}
        self.crossing = 0
        for node in inside:
            self.toggle(node)

    def toggle(self, number: int) -> None:
        """Put a node in, or take it out."""
        node = self.index.nodes[number]
        touched = {value for value in (*node.inputs, *node.outputs) if value is not None}
        self.crossing -= sum(map(self._crosses, touched))
        change = -1 if number in self.inside else 1
        self.inside ^= {number}
        for value in node.inputs:
            if value is not None:
                self.reads[value] = self.reads.get(value, 0) + change
        self.crossing += sum(map(self._crosses, touched))

    def _crosses(self, value: Value) -> bool:
        if value.is_constant:
            return False
        inner = self.reads.get(value, 0)
        if value.producer is not None and self.index.numbers.get(value.producer) in self.inside:
            return value.use_count > inner or bool(value.returned_by)
        return inner > 0


# -- connection -------------------------------------------------------------------------------


def _without_lent_constants(index: RepeatIndex, rows: list[Row]) -> list[Row]:
    """Leave out Constant nodes that are also read outside their block: those stay inputs."""
    places = places_of(rows)
    return [
        row
        for row in rows
        if not (
            is_constant_node(index.nodes[row[0]])
            and any(
                index.shown[node] or any(user not in patch for _, _, user in index.readers[node])
                for node, patch in zip(row, places, strict=True)
            )
        )
    ]


def _connected(index: RepeatIndex, rows: list[Row], starts: Row) -> list[Row]:
    """Return the largest part of *rows* that hangs together; that of the starts among equals."""
    place_of = {row[0]: place for place, row in enumerate(rows)}
    linked: list[list[int]] = [[] for _ in rows]
    for place, row in enumerate(rows):
        for maker in index.makers[row[0]]:
            if maker is not None and maker[0] in place_of:
                linked[place].append(place_of[maker[0]])
                linked[place_of[maker[0]]].append(place)
    best: set[int] = set()
    seen: set[int] = set()
    for start in range(len(rows)):
        if start in seen:
            continue
        part = reachable([start], linked.__getitem__)
        seen |= part
        if len(part) > len(best) or (len(part) == len(best) and place_of.get(starts[0]) in part):
            best = part
    return [rows[place] for place in sorted(best)]


# Find the repeated blocks of a model: equal patches that are called rather than spelled out.
#
# Equal patches grow round nodes with equal surroundings (PatchGrowth); where only some of those
# could have grown further, those are tried by themselves. The blocks that make the model shortest
# are taken first. What overlaps with them has to grow again round the nodes that are left.


_WORK_PER_NODE = (400, 20)
_LEAST_WORK, _LARGE_WORK = 2_000_000, 8_000_000
"""Nodes looked at, per node of the model: in a small model, and in one where that is much."""

_DEEPEST = 40
"""How often starts are parted again before the parts are left as they are."""

_PARTITIONS = 3
"""In how many ways the starts of one growth are parted where they disagree."""

_LARGER = 1.15
_SHARE_INSIDE = 0.6
_SHARE_COVERED = 0.8
_SHARE_SAVED = 0.8
_SHARE_OF_KIND = 0.1
_LARGER_TRIED = 16
"""When larger blocks win over what they have in common: see :meth:`_Search._larger`."""

_WELL_SERVED = 0.8
_SHARE_SERVED = 0.95
"""Blocks that save such a share serve their nodes well. Starts well served are left alone."""

_KNOWN_ROWS = 24
"""How many of the patches that a node has been in are remembered."""


class Blocks(NamedTuple):
    """One kind of block.

    Attributes:
        rows: Its nodes in topological order, each as node numbers, one per block.
        saving: How many nodes fewer there are in the model if it becomes a function.
    """

    rows: list[Row]
    saving: int


class _Search:
    """Finds the kinds of blocks in an index."""

    def __init__(self, index: RepeatIndex, options: RepeatSettings) -> None:
        self.index = index
        self.options = options
        self.claimed: dict[int, int] = {}
        self.found: list[Blocks] = []
        small, large = (factor * len(index) for factor in _WORK_PER_NODE)
        self.work_left = max(_LEAST_WORK, min(small, _LARGE_WORK + large))
        self.tried: dict[Row, list[Blocks]] = {}
        self.known: dict[int, list[tuple[int, int]]] = {}
        self.served: set[int] = set()
        self.results: list[list[Blocks]] = []
        self.least_saving = max(1.0, options.min_saving * index.full_size)

    @property
    def is_whole(self) -> bool:
        """Whether it has looked everywhere, rather than stopped at what is too much work."""
        return self.work_left > 0

    def run(self, most: int | None) -> list[Blocks]:
        """Return at most so many kinds of blocks, the most saving first; None for all.

        No node is in two blocks.
        """
        pool = list({id(blocks): blocks for blocks in self._explore()}.values())
        while pool and (most is None or len(self.found) < most):
            best = min(pool, key=_merit)
            if self._is_claimed(best):
                pool = [blocks for blocks in pool if blocks is not best]
                pool += self._grown_again(best)
                continue
            chosen = self._larger(best, pool) or best
            pool = [blocks for blocks in pool if blocks is not chosen]
            whole = self._worth(acyclic(self.index, chosen.rows, self.claimed))
            if whole is not None and whole.saving == chosen.saving:
                first = len(self.found) * len(self.index)
                for row in whole.rows:
                    self.claimed.update((node, first + block) for block, node in enumerate(row))
                self.found.append(whole)
            elif whole is not None:
                pool.append(whole)
        return self.found

    def _is_claimed(self, blocks: Blocks) -> bool:
        return any(node in self.claimed for row in blocks.rows for node in row)

    def _larger(self, best: Blocks, pool: Sequence[Blocks]) -> Blocks | None:
        """Find blocks of which those of *best* are but the part that they have in common.

        Where nearly every one of *best* lies in a larger block, with more round it, a reader is
        served better by the larger ones, though there are more kinds of them: a model with two
        stacks of layers that are equal for the most part has two kinds of layers. A larger block
        that is but several of *best* in a row is no such thing.
        """
        owner = {node: number for row in best.rows for number, node in enumerate(row)}
        size, repeats = len(best.rows), len(best.rows[0])
        larger = [
            blocks
            for blocks in sorted(pool, key=_merit)
            if len(blocks.rows) >= _LARGER * size and _SHARE_OF_KIND * best.saving <= blocks.saving
        ]
        chosen: list[Blocks] = []
        covered: set[int] = set()
        for blocks in larger[:_LARGER_TRIED]:
            inside = _parts_inside(blocks, owner, size)
            if inside and covered.isdisjoint(inside) and not self._is_claimed(blocks):
                chosen.append(blocks)
                covered |= inside
        if len(covered) < _SHARE_COVERED * repeats or _total(chosen) < _SHARE_SAVED * best.saving:
            return None
        return chosen[0]

    def _worth(self, rows: list[Row]) -> Blocks | None:
        """Return *rows* as blocks if they are large and many enough; none runs in two places."""
        nodes = self.index.nodes
        if rows and nodes[0].graph.model.is_spread:
            blocks = [
                b for b in zip(*rows, strict=True) if object_to_devices(nodes[n] for n in b) is None
            ]
            rows = [*zip(*blocks, strict=True)]
        if not rows or len(rows[0]) < self.options.min_repeats:
            return None
        if (
            sum(not is_constant_node(self.index.nodes[row[0]]) for row in rows)
            < self.options.min_nodes
        ):
            return None
        size, repeats = len(rows), len(rows[0])
        saving = size * repeats - size - repeats
        return Blocks(rows, saving) if saving >= self.least_saving else None

    # -- starts -------------------------------------------------------------------------------

    def _explore(self) -> Iterator[Blocks]:
        for starts in self._classes():
            if self.work_left <= 0:
                return
            if sum(map(self.served.__contains__, starts)) < _SHARE_SERVED * len(starts):
                yield from self._from_starts(starts)

    def _classes(self) -> Iterator[Row]:
        """Iterate over sets of nodes with equal surroundings, ever larger ones."""
        seen: set[Row] = set()
        for colours in self.index.colours:
            classes: dict[int, list[int]] = {}
            for node, colour in enumerate(colours):
                if colour != FIXED:
                    classes.setdefault(colour, []).append(node)
            for nodes in sorted(classes.values(), key=len):
                starts = tuple(nodes)
                if len(starts) >= self.options.min_repeats and starts not in seen:
                    seen.add(starts)
                    yield starts

    def _known_blocks(self, starts: Row, besides: frozenset[int]) -> list[Blocks] | None:
        """Return the blocks of an earlier growth in which all *starts* are in one row.

        None if there was no such growth. The growths *besides* do not count.
        """
        common = {growths for growths in self.known.get(starts[0], ()) if growths[0] not in besides}
        for node in starts:
            common.intersection_update(self.known.get(node, ()))
            if not common:
                return None
        return max((self.results[growth] for growth, _ in sorted(common)), key=_total)

    def _from_starts(
        self, starts: Row, line: frozenset[int] = frozenset(), depth: int = 0
    ) -> list[Blocks]:
        """Grow round *starts*, and round those of them that agree where not all do.

        Args:
            starts: Where to start.
            line: The growths that *starts* are a part of.
            depth: How often they were parted.

        Returns:
            All of them as blocks, or the parts by themselves, whichever saves more.
        """
        if len(starts) < self.options.min_repeats or self.work_left <= 0:
            return []
        earlier = self.tried[starts] if starts in self.tried else self._known_blocks(starts, line)
        if earlier is not None:
            return earlier
        self.tried[starts] = []
        growth = PatchGrowth(self.index, starts, self.claimed)
        self.work_left -= growth.work
        best = self._as_blocks(growth)
        if best:
            self._remember(growth, best)
            line |= {len(self.results) - 1}
        elif growth.touching:
            parts = self._thinned(growth)
            best = [b for part in parts for b in self._from_starts(part, depth=depth + 1)]
        for parts in _partitions(growth, _PARTITIONS if best else 1) if depth < _DEEPEST else ():
            blocks = [b for part in parts for b in self._from_starts(part, line, depth + 1)]
            best = max(best, blocks, key=_total)
        self.tried[starts] = best
        return best

    def _as_blocks(self, growth: PatchGrowth) -> list[Blocks]:
        if len(growth.rows) < self.options.min_nodes:
            return []
        self.work_left -= len(growth.rows) * len(growth.rows[0])
        blocks = self._worth(cut_blocks(self.index, growth))
        return [] if blocks is None else [blocks]

    def _thinned(self, growth: PatchGrowth) -> list[Row]:
        """Leave out starts, so that one block can hold several of the small patches."""
        size = sum(not is_constant_node(self.index.nodes[row[0]]) for row in growth.rows)
        stride = -(-self.options.min_nodes // max(1, size))
        starts = tuple(sorted(growth.rows[0]))
        return [starts[::stride]] if stride > 1 else []

    def _remember(self, growth: PatchGrowth, blocks: list[Blocks]) -> None:
        self.results.append(blocks)
        for rows, saving in blocks:
            if saving >= _WELL_SERVED * len(rows) * len(rows[0]):
                self.served.update(node for row in rows for node in row)
        for place, row in enumerate(growth.rows):
            for node in row:
                rows_of_node = self.known.setdefault(node, [])
                rows_of_node.append((len(self.results) - 1, place))
                if len(rows_of_node) > _KNOWN_ROWS:
                    del rows_of_node[0]

    def _grown_again(self, blocks: Blocks) -> Iterator[Blocks]:
        """Grow again from the row with the most nodes that are not claimed."""
        best: Row = ()
        for row in blocks.rows:
            if is_constant_node(self.index.nodes[row[0]]):
                continue
            free = tuple(node for node in row if node not in self.claimed)
            if len(free) > len(best):
                best = free
        if len(best) >= self.options.min_repeats and self.work_left > 0:
            self.tried.clear()
            self.known.clear()
            yield from self._from_starts(best)


def _merit(blocks: Blocks) -> tuple[int, Row]:
    """Sort by what is saved, most first; among equals by the nodes, so that all runs agree."""
    return (-blocks.saving, blocks.rows[0])


def _parts_inside(blocks: Blocks, owner: dict[int, int], size: int) -> set[int]:
    """Return which smaller blocks lie in *blocks* for the most part, if they are not all of it."""
    inside: set[int] = set()
    for number in range(len(blocks.rows[0])):
        owners = [owner[row[number]] for row in blocks.rows if row[number] in owner]
        distinct = set(owners)
        if not _SHARE_INSIDE * size * len(distinct) <= len(owners) <= len(blocks.rows) / _LARGER:
            return set()
        inside |= distinct
    return inside


def _total(of_kinds: Sequence[Blocks]) -> int:
    """Say how many nodes fewer there are with all of *of_kinds*, which may overlap."""
    if len(of_kinds) < 2:  # noqa: PLR2004  # nothing to overlap with
        return sum(blocks.saving for blocks in of_kinds)
    distinct = list({id(blocks): blocks for blocks in of_kinds}.values())
    covered = {node for blocks in distinct for row in blocks.rows for node in row}
    return len(covered) - sum(len(blocks.rows) + len(blocks.rows[0]) for blocks in distinct)


def _partitions(growth: PatchGrowth, most: int) -> list[list[Row]]:
    """Part the starts where they disagree, in *most* ways at most.

    Where most of what some agree on is in the next patch anyway, blocks follow each other and
    nothing is to be gained.
    """
    starts = growth.rows[0]
    partitions: dict[tuple[Row, ...], list[Row]] = {}
    seen: set[tuple[Row, ...]] = set()
    for groups, nodes in growth.disagreements:
        fresh = [group for group in groups if _is_fresh(growth, group, nodes)]
        key = tuple(map(tuple, fresh))
        if not fresh or key in seen:  # to write a partition out is much work for two of many starts
            continue
        seen.add(key)
        parted = {patch for group in fresh for patch in group}
        rest = [patch for patch in range(len(starts)) if patch not in parted]
        parts = [tuple(starts[patch] for patch in part) for part in (*fresh, rest)]
        partitions.setdefault(tuple(sorted(parts)), parts)
        if len(partitions) == most:
            break
    return list(partitions.values())


def _is_fresh(growth: PatchGrowth, group: Sequence[int], nodes: Mapping[int, int]) -> bool:
    """Tell whether most of what *group* has at an edge is in no patch yet."""
    return 2 * sum(growth.owners.get(nodes[patch], 0) > 0 for patch in group) < len(group)


_SEARCHES = 8
"""How often the model is searched; it gets shorter each time."""

_BLOCKS_ASKED = 64
"""How many blocks are asked for the names of their nodes."""

_UNNAMED = "block"

_CUT_SHORT = "the search for repeated blocks stopped early: there may be more of them"


@keys(
    "rule function calls=partitions.len nodes=size is_nested inputs=function.body.inputs "
    "outputs=function.body.outputs differing.attributes=differing "
    "differing.weight_shapes=reshaped first"
)
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
    def first(self) -> tuple[Node, ...]:
        """The first node of the first block."""
        return self.partitions[0].match.nodes[:1]

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


def outline_repeats(
    model: Model,
    options: RepeatSettings,
    stays: Callable[[Sequence[Node]], bool] = lambda _: False,
) -> RepeatResult:
    """Replace the repeated blocks of *model* by calls of functions.

    The model is edited in place; without repeated blocks it is left as it is. What is left is
    searched again until nothing more is found, so that a second run changes nothing.

    Args:
        model: The model.
        options: What counts as a repeat.
        stays: Tells of the first block of a kind whether the kind is left as it is.
    """
    writer = _Writer(model)
    totals: dict[str, int] = {}
    outlined: dict[str, int] = {}
    families: list[Family] = []
    for number in range(_SEARCHES):
        index = RepeatIndex(model, matchable_graphs(model), same_attributes=options.same_attributes)
        if not number:
            for node in index.nodes:
                op = node.qualified_op
                totals[op] = totals.get(op, 0) + 1
                if is_repeat_call(node):
                    outlined[op] = totals[op]
        search = _Search(index, options)
        kinds = [
            blocks
            for blocks in search.run(_room(index, options))
            if not stays([index.nodes[row[0]] for row in blocks.rows])
        ]
        families += writer.write(index, kinds)
        if not search.is_whole and _CUT_SHORT not in model.notes:
            model.notes.append(_CUT_SHORT)
        if not kinds:
            break
    outer = tuple(families)
    if options.nested:
        families += _outline_nested(writer, outer, options)
    if families:
        raise_ir_version(model)
    matches = [partition.match for family in outer for partition in family.partitions]
    rules = tuple(family.rule for family in outer)
    return RepeatResult(families, Selection(rules, matches, [], totals, outlined=outlined))


def _room(index: RepeatIndex, options: RepeatSettings) -> int | None:
    """Count the kinds of blocks that there may be besides those that there are."""
    if options.max_families is None:
        return None
    called = {node.op_type for node in index.nodes if is_repeat_call(node)}
    return max(0, options.max_families - len(called))


def _outline_nested(
    writer: _Writer, outer: Sequence[Family], options: RepeatSettings
) -> list[Family]:
    """Outline what repeats inside the functions written, and inside those, and so on."""
    families: list[Family] = []
    bodies = [family.function.body for family in outer]
    while bodies:
        index = RepeatIndex(writer.model, bodies, same_attributes=options.same_attributes)
        written = writer.write(index, _Search(index, options).run(None), is_nested=True)
        families += written
        bodies = [family.function.body for family in written]
    return families


class _Writer:
    """Writes functions and calls, each function under a name of its own."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.used_names = {name for domain, name, _ in model.functions if domain == REPEAT_DOMAIN}
        nodes = (node for graph in model.graphs() for node in graph)
        self.used_names |= {node.op_type for node in nodes if node.domain == REPEAT_DOMAIN}

    def write(
        self, index: RepeatIndex, chosen: Sequence[Blocks], *, is_nested: bool = False
    ) -> list[Family]:
        if not chosen:
            return []
        # Name the kinds of blocks after their modules, by as many words as tell them apart.
        offers = [_offered(index, blocks) for blocks in chosen]
        names = []
        for offer in offers:
            others = [name for other in offers if other is not offer for name in other]
            free = [n for n in offer if n not in self.used_names]
            own = [n for n in free if n not in others]
            wanted = (own or free or offer or [_UNNAMED])[0]
            names.append(claim(wanted, self.used_names))
        kinds = []
        for blocks, name in zip(chosen, names, strict=True):
            rule = PatternRule(
                target=REPEAT_DOMAIN, name=name, pattern=is_op()(...), constants="lift"
            )
            kinds.append(make_kind(index, blocks.rows, rule))
        origins = OriginRecorder(self.model, [item for kind in kinds for item in kind.outlines])
        for order in gathered(index, [blocks.rows for blocks in chosen]):
            nodes = [index.nodes[number] for number in order]
            GraphRewriter(nodes[0].graph).arrange(nodes)
        partitions = Outliner(self.model, set(names), origins).replace_all(kinds)
        return [_family(kind, partitions, is_nested=is_nested) for kind in kinds]


def _offered(index: RepeatIndex, blocks: Blocks) -> list[str]:
    some = range(0, len(blocks.rows[0]), -(-len(blocks.rows[0]) // _BLOCKS_ASKED))
    rows = [[index.nodes[row[number]] for number in some] for row in blocks.rows]
    # Name a kind of block after what the modules of its members have in common.
    parts: list[str] = []
    for level in zip(*(find_scopes(rows) or ()), strict=True):
        bare = {re.sub(r"[0-9]+", "", part).strip("_-") for part in level}
        if len(bare) != 1:
            break
        part = _NOT_IN_NAMES.sub("_", bare.pop()).strip("_")
        if part and (not parts or parts[-1] != part):
            parts.append(part)
    if len(parts) > 1 and len(parts[0]) == 1:
        parts = parts[1:]
    if not any(len(part) > 1 for part in parts):
        return []
    return ["_".join(parts[-count:]) for count in range(min(2, len(parts)), len(parts) + 1)]


def _family(kind: RepeatKind, calls: Mapping[int, Partition], *, is_nested: bool) -> Family:
    partitions = tuple(calls[id(item.match)] for item in kind.outlines)
    differing = dict.fromkeys(name for _, name in kind.attribute_names)
    rule = rule_of(partitions[0].match)
    function = partitions[0].function
    reshaped = sum(map(_have_several_shapes, kind.inputs))
    return Family(rule, function, partitions, tuple(differing), reshaped, is_nested)


def _have_several_shapes(values: Sequence[Value]) -> bool:
    if not all(value.is_initializer for value in values):
        return False
    return len({declared.shape for v in values if (declared := v.declared_type) is not None}) > 1


def find_layers(model: Model, options: RepeatSettings) -> list[list[Node]]:
    """Return the blocks of the main graph that save most, in its order, each with its nodes."""
    index = RepeatIndex(model, [model.graph])
    kinds = _Search(index, options).run(1)
    blocks = sorted(map(sorted, zip(*kinds[0].rows, strict=True))) if kinds else []
    return [[index.nodes[number] for number in block] for block in blocks]
