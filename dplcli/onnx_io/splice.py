"""From the table to the bytes of an ONNX file.

What was not edited is copied from the file as it stands, in runs as long as they go. New nodes and
nodes that read or make something else are encoded, all of one form by one template; nodes with a
body only if something in that was edited. The fields of what is encoded stand in the order in
which :mod:`dplcli.onnx_io.write` puts them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    ValueInfoProto,
)

from dplcli.ir.relations import Flags, Places, distinct, group
from dplcli.ir.table import OMITTED, GraphKind, Payload, Table, TableError
from dplcli.onnx_io import wire
from dplcli.onnx_io.wire import PADDING, padded, varint
from dplcli.onnx_io.write import add_opsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor import Descriptor

    Piece: TypeAlias = bytes | memoryview
    """Bytes, or where they stand."""

# Numbers of fields, by message.
_IR_VERSION = ModelProto.IR_VERSION_FIELD_NUMBER
_MODEL_OPSETS = ModelProto.OPSET_IMPORT_FIELD_NUMBER
_MODEL_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_MODEL_FUNCTIONS = ModelProto.FUNCTIONS_FIELD_NUMBER
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_SPARSE = GraphProto.SPARSE_INITIALIZER_FIELD_NUMBER
_GRAPH_GIVEN = GraphProto.INPUT_FIELD_NUMBER
_FUNCTION_OPSETS = FunctionProto.OPSET_IMPORT_FIELD_NUMBER
_INPUT = NodeProto.INPUT_FIELD_NUMBER
_OUTPUT = NodeProto.OUTPUT_FIELD_NUMBER
_NODE_NAME = NodeProto.NAME_FIELD_NUMBER
_OP_TYPE = NodeProto.OP_TYPE_FIELD_NUMBER
_ATTRIBUTE = NodeProto.ATTRIBUTE_FIELD_NUMBER
_DOC = NodeProto.DOC_STRING_FIELD_NUMBER
_DOMAIN = NodeProto.DOMAIN_FIELD_NUMBER
_OVERLOAD = NodeProto.OVERLOAD_FIELD_NUMBER
_ATTRIBUTE_NAME = AttributeProto.NAME_FIELD_NUMBER
_ATTRIBUTE_GRAPHS = AttributeProto.GRAPHS_FIELD_NUMBER
_BODIES = (AttributeProto.G_FIELD_NUMBER, _ATTRIBUTE_GRAPHS)
_TENSOR_NAME = TensorProto.NAME_FIELD_NUMBER
_INFO_NAME = ValueInfoProto.NAME_FIELD_NUMBER

_NOT_KNOWN = 1 << 29
"""Where fields that the format does not know stand: behind all others."""


class _Layout:
    """The fields of graphs of one kind, and the order in which they are written.

    Those of *first* come first and those of *last* last; then those that passes have made. All
    others come between, by their number. Without *first* and *last* all come by their number.
    """

    def __init__(self, message: Descriptor, first: str = "", last: str = "") -> None:
        known = {name: field.number for name, field in message.fields_by_name.items()}
        self.message = message
        self.node, self.given, self.returned = known["node"], known["input"], known["output"]
        self.info = known["value_info"]
        self._first = [known[name] for name in first.split()]
        self._last = [known[name] for name in last.split()]

    def rank(self, number: int, is_made: bool) -> tuple[int, int]:  # noqa: FBT001  # of a field
        """Return what fields are sorted by."""
        if number in self._first:
            return 0, number
        if self._first and is_made:
            return 3, number
        if number in self._last:
            return 2, self._last.index(number)
        return 1, number or _NOT_KNOWN


_LAYOUTS = {
    GraphKind.MAIN: _Layout(
        GraphProto.DESCRIPTOR, "node", "input value_info initializer sparse_initializer"
    ),
    GraphKind.BODY: _Layout(GraphProto.DESCRIPTOR),
    GraphKind.FUNCTION: _Layout(FunctionProto.DESCRIPTOR, "node", "opset_import value_info"),
}


def pieces(table: Table) -> list[Piece]:
    """Return the file, in pieces to be written one behind the other.

    Most are parts of the table's own bytes: write them before it is edited again. A table that was
    not edited is written byte for byte as it was read.
    """
    if not table.modified:
        return [table.original or memoryview(table.data[:-PADDING].data)]
    return _Splicer(table).model()


def written(table: Table) -> bytes:
    """Return the file."""
    return b"".join(pieces(table))


class _Splicer:
    """Writes one table, which is not edited meanwhile.

    Attributes:
        is_encoded: Whether a node is encoded, not copied.
        texts: The encoded nodes, by node.
        graphs: The content of each graph that was edited, or in which one was.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.file = memoryview(table.data.data)
        values = table.values
        self.is_defined = (values.producer >= 0) | (values.tensor >= 0) | values.given
        self.is_defined[OMITTED] = False
        self.is_new = values.name_at >= table.data.size
        self._parts = group(table.parts.graph + 1, len(table.graphs) + 1)
        self.stated: dict[int, list[int]] = {}
        for value in table.stated:
            if self.is_defined[value]:
                self.stated.setdefault(int(values.graph[value]), []).append(value)
        edited = self._edited()
        owners: dict[int, list[int]] = {}
        for number in sorted(edited):
            if (owner := table.graphs[number].owner) >= 0:
                owners.setdefault(owner, []).append(number)
        self.is_encoded = table.nodes.touched & table.nodes.live
        with_bodies = np.fromiter(owners, np.int64)
        plain = np.setdiff1d(np.flatnonzero(self.is_encoded), with_bodies)
        self.is_encoded[with_bodies] = True
        self.texts = dict(zip(plain.tolist(), self._nodes(plain, self._backs(plain)), strict=True))
        self.is_kept = self._kept(edited)
        order = table.in_order()
        first = np.searchsorted(table.nodes.graph[order], np.arange(len(table.graphs) + 1))
        self.graphs: dict[int, list[Piece]] = {}
        # a body comes behind the graph that holds it
        for number in sorted(edited, reverse=True):
            self.graphs[number] = self._graph(number, order[first[number] : first[number + 1]])
            if (owner := table.graphs[number].owner) >= 0 and number == owners[owner][0]:
                node = np.array([owner])
                (self.texts[owner],) = self._nodes(node, [self._back_with(owner, owners[owner])])

    def _edited(self) -> set[int]:
        """Return the main graph, graphs in which anything was edited, and those round them."""
        graphs = self.table.graphs
        edited: set[int] = {0}
        for number in self.table.modified:
            while number >= 0 and number not in edited and graphs[number].live:
                edited.add(number)
                number = graphs[number].parent  # noqa: PLW2901  # the way out
        return edited

    # The model, and its graphs.

    def model(self) -> list[Piece]:
        """Return the file."""
        table = self.table
        changed = ModelProto()
        stated = ModelProto.FromString(b"".join(self._fields(-1, _IR_VERSION)))
        if version := stated.ir_version if table.ir_version is None else table.ir_version:
            changed.ir_version = version
        opsets = self._opsets(-1)
        add_opsets(changed, opsets, table.imports.get(0, _in_force(opsets)))
        rows = self._rows(-1)
        rows = rows[~np.isin(table.parts.number[rows], (_IR_VERSION, _MODEL_OPSETS))]
        found = [changed.SerializeToString(), *self._copies(rows)]
        for number, graph in enumerate(table.graphs):
            if graph.kind is GraphKind.BODY or not graph.live:
                continue
            content = self.graphs.get(number, [self.file[graph.begin : graph.end]])
            field = _MODEL_GRAPH if graph.kind is GraphKind.MAIN else _MODEL_FUNCTIONS
            found += [_head(field, sum(map(len, content))), *content]
        return found

    def _graph(self, number: int, nodes: Places) -> list[Piece]:
        """Return the content of a graph, of which these are the nodes, in order."""
        graph = self.table.graphs[number]
        layout = _LAYOUTS[graph.kind]
        found = {(layout.node, False): self._node_pieces(nodes, layout.node)}
        if graph.begin < 0:
            self._add_new(found, number)
        else:
            rows = self._rows(number)
            rows = rows[self.is_kept[rows]]
            numbers = self.table.parts.number[rows]
            for field in np.unique(numbers).tolist():
                found[field, False] = self._copies(rows[numbers == field])
        if graph.kind is GraphKind.FUNCTION:
            changed = FunctionProto()
            opsets = self._opsets(number)
            known = _in_force(opsets) or self._imports_of_model()
            add_opsets(changed, opsets, self.table.imports.get(number, known))
            found[_FUNCTION_OPSETS, False] = [changed.SerializeToString()]
        else:
            found[_INITIALIZER, True] = self._made_initializers(number)
        found[layout.info, True] = self._made_infos(number, layout)
        ordered = sorted(found, key=lambda key: layout.rank(*key))
        return [piece for key in ordered for piece in found[key]]

    def _add_new(self, found: dict[tuple[int, bool], list[Piece]], number: int) -> None:
        """Add the fields that a new graph has of its own, what it is given and what it returns."""
        graph = self.table.graphs[number]
        layout = _LAYOUTS[graph.kind]
        for field, text in _split(layout.message, graph.fields):
            found.setdefault((field, False), []).append(text)
        for field, values in (
            (layout.given, self.table.given[number]),
            (layout.returned, self.table.returned[number]),
        ):
            if graph.kind is GraphKind.FUNCTION:
                texts = self.table.names(values)
            else:
                texts = self._infos(values.tolist())
            found[field, False] = [_field(field, text) for text in texts]

    # What stands beside nodes.

    def _rows(self, graph: int) -> Places:
        """Return the parts that a graph has in the file, in order; -1 is the model."""
        order, at, count = self._parts
        rows: Places = order[at[graph + 1] : at[graph + 1] + count[graph + 1]]
        return rows

    def _copies(self, rows: Places) -> list[Piece]:
        """Return parts as the file has them."""
        begin, end = self.table.parts.head[rows], self.table.parts.end[rows]
        edge = np.flatnonzero(begin[1:] != end[:-1]) + 1
        return self._runs(begin, end, edge)

    def _runs(self, begin: Places, end: Places, edge: Places) -> list[Piece]:
        """Return spans (n,) of the file; those from one edge to the next are one piece."""
        if not begin.size:
            return []
        first, last = np.append(0, edge), np.append(edge, begin.size) - 1
        spans = zip(begin[first].tolist(), end[last].tolist(), strict=True)
        return [self.file[a:b] for a, b in spans]

    def _fields(self, graph: int, number: int) -> list[Piece]:
        rows = self._rows(graph)
        return self._copies(rows[self.table.parts.number[rows] == number])

    def _opsets(self, graph: int) -> list[OperatorSetIdProto]:
        """Return the imports that the file states; -1 is the model."""
        if graph < 0:
            stated = b"".join(self._fields(graph, _MODEL_OPSETS))
            return list(ModelProto.FromString(stated).opset_import)
        stated = b"".join(self._fields(graph, _FUNCTION_OPSETS))
        return list(FunctionProto.FromString(stated).opset_import)

    def _imports_of_model(self) -> dict[str, int]:
        return self.table.imports.get(0, _in_force(self._opsets(-1)))

    def _kept(self, edited: set[int]) -> Flags:
        """Tell which parts of graphs stay as they are, of all parts."""
        table = self.table
        parts, tensors = table.parts, table.tensors
        is_kept = np.ones(parts.size, np.bool_)
        stored = np.flatnonzero(tensors.stored_as >= 0)
        lost = stored[table.values.tensor[tensors.stored_as[stored]] != stored]
        if lost.size:
            rows = np.flatnonzero(
                (parts.graph >= 0) & np.isin(parts.number, (_INITIALIZER, _SPARSE))
            )
            rows = rows[np.argsort(parts.begin[rows])]
            # a sparse tensor begins inside of its part
            which = np.searchsorted(parts.begin[rows], tensors.begin[lost], side="right") - 1
            is_kept[rows[which]] = False
        heads = [np.zeros(0, np.int64)]
        order, at, count = group(table.infos.graph, len(table.graphs))
        for number in edited:
            infos = order[at[number] : at[number] + count[number]]
            heads.append(table.infos.head[infos[self._is_dropped(number, infos)]])
        return is_kept & ~np.isin(parts.head, np.concatenate(heads))

    def _is_dropped(self, number: int, infos: Places) -> Flags:
        """Tell which infos of a graph state a value that is gone, or stated anew, or not given."""
        table = self.table
        kind = table.graphs[number].kind
        mine = table.values.graph == number
        is_dropped = np.zeros(infos.size, np.bool_)
        here = np.flatnonzero(table.infos.number[infos] == _LAYOUTS[kind].info)
        lost = np.flatnonzero(mine & ~self.is_defined & ~self.is_new)
        again = self.stated.get(number, [])
        if here.size and (lost.size or again):
            made = np.flatnonzero(mine & self.is_defined & self.is_new)
            names = {*table.names(lost)} - {*table.names(made)} | {
                *table.names(np.array(again, np.int64))
            }
            texts = self._info_names(infos[here])
            is_dropped[here] = [text in names for text in texts]
        here = np.flatnonzero(table.infos.number[infos] == _GRAPH_GIVEN)
        given = np.flatnonzero(mine & table.values.given)
        if kind is not GraphKind.FUNCTION and here.size != given.size:
            names = {*table.names(given)}
            is_dropped[here] = [text not in names for text in self._info_names(infos[here])]
        return is_dropped

    def _info_names(self, infos: Places) -> list[bytes]:
        begin, size = self.table.infos.name_at[infos], self.table.infos.name_size[infos]
        spans = zip(begin.tolist(), (begin + size).tolist(), strict=True)
        return [self.file[a:b].tobytes() for a, b in spans]

    def _infos(self, values: Sequence[int]) -> list[bytes]:
        """Encode what is stated of values, their names at least."""
        names = self.table.names(np.array(values, np.int64))
        stated = (self.table.stated.get(value, b"") for value in values)
        return [_field(_INFO_NAME, name) + text for name, text in zip(names, stated, strict=True)]

    def _made_infos(self, number: int, layout: _Layout) -> list[Piece]:
        """Encode the types that passes state of what a graph holds."""
        graph = self.table.graphs[number]
        values = self.stated.get(number, [])
        if graph.begin < 0 and graph.kind is GraphKind.BODY:
            interface = {*self.table.given[number].tolist(), *self.table.returned[number].tolist()}
            values = [value for value in values if value not in interface]
        return [_field(layout.info, text) for text in self._infos(values)]

    def _made_initializers(self, number: int) -> list[Piece]:
        """Encode what passes have stored in a graph, in the order of its values."""
        table = self.table
        values, tensors = table.values, table.tensors
        mine = np.flatnonzero(
            (values.graph == number) & (values.tensor >= 0) & (values.producer < 0)
        )
        mine = mine[tensors.stored_as[values.tensor[mine]] != mine]
        found: list[Piece] = []
        rows = values.tensor[mine].tolist()
        for row, name in zip(rows, table.names(mine), strict=True):
            data = self._payload(row)
            front = data.front + _field(_TENSOR_NAME, name)
            size = len(front) + sum(map(len, data.back))
            found += [_head(_INITIALIZER, size) + front, *data.back]
        return found

    def _payload(self, row: int) -> Payload:
        """Return a tensor without its name."""
        tensors = self.table.tensors
        begin, end = int(tensors.begin[row]), int(tensors.end[row])
        if begin < 0:
            return self.table.payloads[end]
        if tensors.type[row] < 0:
            raise TableError("a sparse tensor of the file is stored under another name")
        found = wire.fields(
            self.table.data, TensorProto.DESCRIPTOR, np.array([begin]), np.array([end])
        )
        before = found.end[(found.number > 0) & (found.number < _TENSOR_NAME)].max(initial=begin)
        behind = found.end[found.number == _TENSOR_NAME].max(initial=before)
        return Payload(self.file[begin:before].tobytes(), (self.file[behind:end],))

    # Nodes.

    def _node_pieces(self, nodes: Places, field: int) -> list[Piece]:
        """Return nodes, in order: runs of the file, and what is encoded."""
        begin, end = self.table.nodes.head[nodes], self.table.nodes.end[nodes]
        is_text = self.is_encoded[nodes]
        if not is_text.any():
            return self._runs(begin, end, np.flatnonzero(begin[1:] != end[:-1]) + 1)
        edge = np.flatnonzero(is_text[1:] | is_text[:-1] | (begin[1:] != end[:-1])) + 1
        found = self._runs(begin, end, edge)
        first = np.append(0, edge)
        here = np.flatnonzero(is_text[first])
        for place, node in zip(here.tolist(), nodes[first[here]].tolist(), strict=True):
            found[place] = _field(field, self.texts[node])
        return found

    def _nodes(self, nodes: Places, backs: Iterable[bytes]) -> list[bytes]:
        """Encode nodes (n,), of which all is encoded but inputs and outputs: by form."""
        columns = self.table.nodes
        fronts = [b""] * nodes.size
        form, example = distinct(columns.in_count[nodes], columns.out_count[nodes])
        order, at, count = group(form, example.size)
        for first, many in zip(at.tolist(), count.tolist(), strict=True):
            rows = order[first : first + many]
            here = nodes[rows]
            parts: list[list[bytes]] = []
            template = b""
            for field, heap, begin, width in (
                (_INPUT, self.table.inputs, columns.in_at, columns.in_count[here[0]]),
                (_OUTPUT, self.table.outputs, columns.out_at, columns.out_count[here[0]]),
            ):
                for slot in range(width):
                    names = self.table.names(heap.value[begin[here] + slot])
                    parts += [[_head(field, len(name)) for name in names], names]
                    template += b"%b%b"
            if template:
                for row, text in zip(rows.tolist(), zip(*parts, strict=True), strict=True):
                    fronts[row] = template % text
        return [front + back for front, back in zip(fronts, backs, strict=True)]

    def _backs(self, nodes: Places) -> list[bytes]:
        """Encode what stands behind inputs and outputs of nodes (n,)."""
        columns = self.table.nodes
        is_new = columns.head[nodes] < 0
        backs = [b""] * nodes.size
        here = np.flatnonzero(~is_new)
        rest = self._rest(nodes[here])
        ends = columns.end[nodes[here]].tolist()
        for row, begin, end in zip(here.tolist(), rest.tolist(), ends, strict=True):
            backs[row] = self.file[begin:end].tobytes()
        here = np.flatnonzero(is_new)
        new = nodes[here]
        form, example = distinct(
            columns.operator[new], columns.attributes[new], columns.remark[new]
        )
        forms = [self._new_back(node) for node in new[example].tolist()]
        names = self.table.node_names(new)
        for row, name, which in zip(here.tolist(), names, form.tolist(), strict=True):
            backs[row] = _field(_NODE_NAME, name) + forms[which]
        return backs

    def _rest(self, nodes: Places) -> Places:
        """Return where the fields behind inputs and outputs of nodes of the file begin, (n,)."""
        end = self.table.nodes.end[nodes]
        _, begin = wire.varints(self.table.data, self.table.nodes.head[nodes] + 1, end)
        found = wire.fields(self.table.data, NodeProto.DESCRIPTOR, begin, end)
        rest = begin.copy()
        is_front = (found.number == _INPUT) | (found.number == _OUTPUT)
        np.maximum.at(rest, found.owner[is_front], found.end[is_front])
        return rest

    def _new_back(self, node: int) -> bytes:
        """Encode a new node but for inputs, outputs and name: attributes come last."""
        op_type, others = self._words(node)
        attributes = self.table.attribute_sets[self.table.nodes.attributes[node]]
        return op_type + others + b"".join(_field(_ATTRIBUTE, text) for text in attributes)

    def _words(self, node: int) -> tuple[bytes, bytes]:
        """Encode the operator of a new node, and what stands behind attributes."""
        domain, op_type, overload = self.table.operators[self.table.nodes.operator[node]]
        doc, metadata = self.table.remarks[self.table.nodes.remark[node]]
        words = ((_DOC, doc), (_DOMAIN, domain), (_OVERLOAD, overload))
        others = b"".join(_field(number, text) for number, text in words if text)
        return _field(_OP_TYPE, op_type), others + metadata

    def _back_with(self, node: int, bodies: Sequence[int]) -> bytes:
        """Encode what stands behind inputs and outputs of a node whose bodies were edited."""
        columns, rows = self.table.nodes, self.table.graphs
        texts = {rows[number].attribute: b"".join(self.graphs[number]) for number in bodies}
        attributes = b"".join(
            _field(_ATTRIBUTE, _with_graphs(text, texts))
            for text in self.table.attribute_sets[columns.attributes[node]]
        )
        if columns.head[node] < 0:
            op_type, others = self._words(node)
            (name,) = self.table.node_names(np.array([node]))
            return _field(_NODE_NAME, name) + op_type + attributes + others
        (begin,) = self._rest(np.array([node])).tolist()
        fields = _split(NodeProto.DESCRIPTOR, self.file[begin : columns.end[node]].tobytes())
        before = [text for number, text in fields if 0 < number < _ATTRIBUTE]
        behind = [text for number, text in fields if not 0 < number <= _ATTRIBUTE]
        return b"".join([*before, attributes, *behind])


def _with_graphs(text: bytes, graphs: dict[bytes, bytes]) -> bytes:
    """Return an encoded attribute with other graphs in it, by name as in :class:`GraphRow`."""
    found = []
    name, count = b"", 0
    for number, whole in _split(AttributeProto.DESCRIPTOR, text):
        called = name
        if number == _ATTRIBUTE_NAME:
            name = AttributeProto.FromString(whole).name.encode()
        elif number == _ATTRIBUTE_GRAPHS:
            called, count = name + b"[%d]" % count, count + 1
        is_other = number in _BODIES and called in graphs
        found.append(_field(number, graphs[called]) if is_other else whole)
    return b"".join(found)


def _split(message: Descriptor, text: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of an encoded message: number and bytes of each."""
    found = wire.fields(padded(text), message, np.array([0]), np.array([len(text)]))
    columns = (found.number.tolist(), found.head.tolist(), found.end.tolist())
    return [(number, text[head:end]) for number, head, end in zip(*columns, strict=True)]


def _in_force(opsets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each domain that is in force: the last one counts."""
    return {"" if one.domain == "ai.onnx" else one.domain: one.version for one in opsets}


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


@lru_cache(1 << 14)
def _head(number: int, size: int) -> bytes:
    """Encode what stands before the content of a field."""
    return varint(number << 3 | wire.DELIMITED) + varint(size)
