"""What a call says of the nodes that it took the place of, beyond their operators and names.

The metadata ``dpl.nodes`` of a call lists the nodes. What cannot be read off that list and the
function's body stands in ``dpl.undo``, a JSON object that is left out where there is nothing to
say. Numbers of nodes are places in ``dpl.nodes``:

==============  ==================================================================================
``run``         how many partitions the graph had been through before, if any
``offsets``     how many nodes before the last one each lay, unless they stood in one row
``moved``       nodes that had to move behind the call: first output, and how many nodes before
                the last one they lay
``reads``       by node and input slot, what was read through Identity nodes, or is embedded now;
                ``""`` for a trailing omitted input
``constants``   the embedded constants by name, and what made them (:func:`_constant`)
``types``       what the file stated of inner values, by node or ``NODE.OUTPUT``: element type,
                shape, perhaps remarks; or a ``ValueInfoProto`` in base 64
``remarks``     by node, ``doc_string`` and ``metadata_props``
``repeated``    the nodes whose names other nodes had, too
==============  ==================================================================================
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

from dplcli.ir.functions import called_function
from dplcli.ir.marks import NODES_KEY
from dplcli.ir.traversal import behind_identities
from dplcli.passes.call_records import UNDO_KEY, read_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dplcli.ir import Graph, Model, Node, Value
    from dplcli.ir.codec import Remarks, StatedType
    from dplcli.passes.outline import Outline

    Json = dict[str, Any]

_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class OriginRecorder:
    """Knows how a model was before it is partitioned.

    Args:
        model: The model, which is not edited before all *outlines* have been drawn.
        outlines: What is to be outlined, each looked at as soon as it is drawn.

    Attributes:
        names: The names that nodes have.
    """

    def __init__(self, model: Model, outlines: Iterable[Outline]) -> None:
        """Look at *model* and *outlines*."""
        names = [node.name for graph in model.graphs() for node in graph]
        self.names = set(names)
        self._repeated: set[str] = set()
        if len(self.names) < len(names):
            self._repeated = {name for name, n in Counter(names).items() if name and n > 1}
        self._runs: dict[Graph, int] = {}
        self._places: dict[Node, int] = {}
        self._placed: set[Graph] = set()
        self._statements: dict[int, tuple[StatedType, str]] = {}
        self._last: dict[Node, Node] = {}
        self._found: dict[int, tuple[str, str]] = {}
        seen = []
        for item in outlines:
            seen.append(item)
            self._found[id(item)] = _describe_nodes(item), self._describe(item)
        placed = seen if self._places else []
        self._anchors = {id(item): item.last for item in placed}
        self._inner = {
            node
            for item in placed
            for node in item.match.nodes
            if node is not self._anchors[id(item)]
        }

    def stand_for(self, call: Node, item: Outline) -> None:
        """Let *call* count as the last node that it takes the place of."""
        if self._anchors:
            self._last[call] = self._anchors[id(item)]

    def metadata(self, item: Outline, moved: Iterable[Node]) -> Mapping[str, str]:
        """Return, once, the metadata that say what a call stands for.

        Args:
            item: What is outlined, its attributes complete.
            moved: The nodes that have to move behind the call.
        """
        nodes, rest = self._found.pop(id(item))
        if item.completed:
            nodes = _describe_nodes(item)
        if moved:
            places = _encode(self._moved(moved, self._anchors.get(id(item))))
            rest += f'{rest and ","}"moved":{places}'
        return {NODES_KEY: nodes, UNDO_KEY: f"{{{rest}}}"} if rest else {NODES_KEY: nodes}

    def _describe(self, item: Outline) -> str:
        """Write every part that has something to say, as the members of a JSON object."""
        graph = item.match.root.graph
        run = self._runs.get(graph)
        if run is None:
            run = self._runs[graph] = _runs_of(graph)
        repeated = self._repeated
        nodes = item.match.nodes
        found: Json = {
            "run": run,
            "offsets": [] if _stands_in_one_row(item) else self._offsets(item),
            "reads": {} if item.reads_plainly else _reads(item),
            "constants": self._constants(item) if item.embedded else {},
            "remarks": _remarks(nodes),
            "repeated": [i for i, n in enumerate(nodes) if n.name in repeated] if repeated else [],
        }
        members = [f'"{key}":{_encode(value)}' for key, value in found.items() if value]
        types = self._types(item)
        if types:
            members.append(f'"types":{{{",".join(types)}}}')
        return ",".join(members)

    def _place(self, graph: Graph) -> None:
        """Number the nodes of *graph*."""
        if graph not in self._placed:
            self._placed.add(graph)
            self._places.update((node, number) for number, node in enumerate(graph))

    def _offsets(self, item: Outline) -> list[int]:
        self._place(item.match.root.graph)
        nodes = item.match.nodes
        last = self._places[item.last]
        offsets = [last - self._places[node] for node in nodes]
        return [] if offsets == list(reversed(range(len(nodes)))) else offsets

    def _moved(self, moved: Iterable[Node], anchor: Node | None) -> dict[str, int]:
        if anchor is None:
            return {}
        lasts = (self._last.get(node, node) for node in moved)
        return {
            output.name: self._places[anchor] - self._places[node]
            for node in lasts
            for output in node.outputs[:1]
            if output is not None and node in self._places and node not in self._inner
        }

    def _statement(self, stated: StatedType) -> str:
        known = self._statements.get(id(stated))
        if known is None:
            known = self._statements[id(stated)] = (stated, _encode(describe_type(stated)))
        return known[1]

    def _types(self, item: Outline) -> list[str]:
        """Write what the file states of inner values, as the members of a JSON object."""
        found = []
        kept: set[Node] = set()
        if item.match.escaping:
            kept = set(item.match.nodes).difference(item.replaced)
        outputs = item.outputs
        for number, node in enumerate(item.match.nodes):
            if node in kept:
                continue
            for value in node.outputs:
                if value is None or value in outputs:
                    continue
                stated = value.stated_type
                if stated is not None:
                    place = f"{number}.{value.index}" if value.index else f"{number}"
                    found.append(f'"{place}":{self._statement(stated)}')
        return found

    def _constants(self, item: Outline) -> Json:
        """Describe the embedded constants, and the Identity nodes that they come through."""
        found: Json = {}
        graph = item.match.root.graph
        for read in item.embedded:
            value = read
            while value.name not in found:
                known = found[value.name] = _constant(value, graph)
                stated = value.stated_type
                if stated is not None:
                    known["type"] = describe_type(stated)
                maker = value.producer
                if maker is None:
                    break
                if maker.graph is graph:
                    self._place(graph)
                    known["at"] = self._places[item.last] - self._places[maker]
                if not maker.inputs or maker.inputs[0] is None:
                    break
                value = maker.inputs[0]
        return found


def _describe_nodes(item: Outline) -> str:
    """Write down, as JSON, what a call stands for, so that it can be undone.

    One entry per node of the function's body: operator, node name, names of the outputs, and
    the attributes that the file left to their defaults.
    """
    completed: dict[int, list[str]] = {}
    for number, name in item.completed:
        completed.setdefault(number, []).append(name)
    entries = []
    for number, node in enumerate(item.match.nodes):
        outputs = ",".join([_quote("" if out is None else out.name) for out in node.outputs])
        entry = f"[{_quote(node.qualified_op)},{_quote(node.name)},[{outputs}]"
        if number in completed:
            entry += f",[{','.join(map(_quote, completed[number]))}]"
        entries.append(entry)
    return f"[{'],'.join(entries)}]]"


def _runs_of(graph: Graph) -> int:
    """Count the partitions that a graph has been through, as far as its calls tell."""
    if not graph.model.functions:
        return 0
    runs = [
        -1 if (record := read_call(node)) is None else record.run
        for node in graph
        if called_function(node) is not None and NODES_KEY in node.remarks.metadata
    ]
    return max(runs, default=-1) + 1


def _stands_in_one_row(item: Outline) -> bool:
    """Tell whether the nodes follow each other, and nothing made by nodes is embedded."""
    expected: Node | None = item.match.nodes[0]
    for node in item.match.nodes:
        if node is not expected:
            return False
        expected = node.next
    return all(value.producer is None for value in item.embedded)


def describe_type(stated: StatedType) -> object:
    """Write a type: element type, shape, remarks; or what the codec encodes it as."""
    known = stated.known
    if known is None:
        return b64encode(stated.encoded).decode()
    shape = None if known.shape is None else list(known.shape)
    remark = _remark(stated.remarks)
    return [known.dtype, shape, remark] if remark else [known.dtype, shape]


def _reads(item: Outline) -> Json:
    """List what the body does not tell: embedded constants, Identity nodes, omitted inputs."""
    made: set[Node | None] = set(item.match.nodes)
    given = set(item.inputs)
    found: Json = {}
    for number, node in enumerate(item.match.nodes):
        inputs = node.inputs
        slots = {}
        for slot, value in enumerate(inputs):
            if value is None or (maker := value.producer) in made:
                continue
            is_told = maker is None or behind_identities(value).producer not in made
            if not is_told or value not in given:
                slots[f"{slot}"] = value.name
        if inputs and inputs[-1] is None:
            slots[f"{len(inputs) - 1}"] = ""
        if slots:
            found[f"{number}"] = slots
    return found


def _constant(value: Value, graph: Graph) -> Json:
    """Describe what a constant, or a copy of one, is made of.

    An initializer has nothing; a node has its ``node`` name, and what it ``reads`` if it is an
    Identity, or else the ``attribute`` that holds the number, if that is not ``value``; what lies
    ``up`` so many graphs outside says so.
    """
    found: Json = {}
    levels = 0
    current: Graph | None = graph
    while current is not None and current is not value.graph:
        current = None if current.owner is None else current.owner.graph
        levels += 1
    if levels:
        found["up"] = levels
    node = value.producer
    if node is None:
        return found
    found["node"] = node.name
    if behind_identities(value) is not value:
        source = node.inputs[0]
        found["reads"] = "" if source is None else source.name
    elif (name := next(iter(node.attributes), "value")) != "value":
        found["attribute"] = name
    remarks = _remark(node.remarks)
    if remarks:
        found["remarks"] = remarks
    return found


def _remarks(nodes: Iterable[Node]) -> Json:
    found: Json = {}
    for number, node in enumerate(nodes):
        remarks = node.remarks
        if remarks.doc or remarks.metadata:
            found[f"{number}"] = _remark(remarks)
    return found


def _remark(remarks: Remarks) -> Json:
    found: Json = {"doc": remarks.doc, "metadata": dict(remarks.metadata)}
    return {key: value for key, value in found.items() if value}
