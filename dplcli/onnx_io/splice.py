"""From the table to the bytes of an ONNX file.

What was not edited is copied from the file as it stands, in runs as long as they go. New nodes and
nodes that read or make something else are encoded, all of one form by one template; nodes with a
body only if something in that was edited. The fields of what is encoded stand in the order in
which :mod:`dplcli.onnx_io.write` puts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

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

from dplcli.ir.operators import canonical_domain
from dplcli.ir.relations import (
    Flags,
    Ids,
    Places,
    ascending,
    beside,
    distinct,
    group,
    lookup,
    offsets,
    sums,
)
from dplcli.ir.table import OMITTED, GraphKind, Payload, Table, TableError
from dplcli.onnx_io import wire
from dplcli.onnx_io.wire import PADDING, padded, varint
from dplcli.onnx_io.write import add_opsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor import Descriptor
    from numpy.typing import NDArray

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

_LONG = 256
"""From how many bytes on a piece of the file is not copied."""
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


@dataclass(frozen=True)
class _Spans:
    """Bytes, piece by piece: where each begins, in the file or behind it in the heap, and its size.

    All (n,).
    """

    at: Places
    size: Places | Ids

    def of(self, rows: Places | Flags | slice) -> _Spans:
        """Return some of them."""
        return _Spans(self.at[rows], self.size[rows])


class _Splicer:
    """Writes one table, which is not edited meanwhile.

    Attributes:
        heap: What is to be written and does not stand in the file; it begins with the arena.
        stored: The values that passes have stored.
        stated: Those of which passes state a type.
        is_defined: Whether a value is made, stored or given.
        graphs: The content of each graph that was edited, or in which one was.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.file = memoryview(table.data.data)
        self.heap = bytearray(table.arena)
        values = table.values
        stored = np.flatnonzero((values.tensor >= 0) & (values.producer < 0))
        self.stored = stored[table.tensors.stored_as[values.tensor[stored]] != stored]
        self.is_defined = (values.producer >= 0) | (values.tensor >= 0) | values.given
        self.is_defined[OMITTED] = False
        self.stated = np.array([v for v in table.stated if self.is_defined[v]], np.int64)
        self.graphs: dict[int, list[Piece]] = {}
        self._operators: dict[int, tuple[bytes, bytes]] = {}
        self._sets: dict[int, bytes] = {}
        edited = np.array(sorted(self._edited()))
        self._parts = group(table.parts.graph + 1, len(table.graphs) + 1)
        self._is_kept = self._kept(edited)
        self._encode(edited)

    def _edited(self) -> set[int]:
        """Return the main graph, graphs in which anything was edited, and those round them."""
        graphs = self.table.graphs
        edited: set[int] = {0}
        for number in self.table.modified:
            while number >= 0 and number not in edited and graphs[number].live:
                edited.add(number)
                number = graphs[number].parent  # noqa: PLW2901  # the way out
        return edited

    def _encode(self, edited: Places) -> None:
        """Encode graphs."""
        graphs, graph_of = self.table.graphs, self.table.nodes.graph
        owners: dict[int, list[int]] = {}
        for number in edited.tolist():
            if (owner := graphs[number].owner) >= 0:
                owners.setdefault(owner, []).append(number)
        nodes = self.table.in_order()
        nodes = nodes[np.isin(graph_of[nodes], edited)]
        is_owner = np.isin(nodes, list(owners))
        count, spans = self._spans(nodes, is_owner)
        ends = np.append(0, np.cumsum(count))
        place = dict(zip(nodes[is_owner].tolist(), ends[:-1][is_owner].tolist(), strict=True))
        begin = ends[np.searchsorted(graph_of[nodes], edited)]
        end = ends[np.searchsorted(graph_of[nodes], edited, side="right")]
        # a body comes behind the graph that holds it
        for number, first, last in zip(edited[::-1].tolist(), begin[::-1], end[::-1], strict=True):
            self.graphs[number] = self._graph(number, self._pieces(spans.of(slice(first, last))))
            if (owner := graphs[number].owner) >= 0 and number == owners[owner][0]:
                layout = _LAYOUTS[graphs[graphs[number].parent].kind]
                text = field_of(layout.node, self._node_with(owner, owners[owner]))
                where = [place[owner]]
                spans.at[where], spans.size[where] = self._keep([text])

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
        field = table.parts.number[rows]
        rows = rows[np.argsort(np.where(field == 0, _NOT_KNOWN, field), kind="stable")]
        found = [changed.SerializeToString(), *self._copies(rows)]
        for number, graph in enumerate(table.graphs):
            if graph.kind is GraphKind.BODY or not graph.live:
                continue
            content = self.graphs.get(number, [self.file[graph.begin : graph.end]])
            tag = _MODEL_GRAPH if graph.kind is GraphKind.MAIN else _MODEL_FUNCTIONS
            found += [head_of(tag, sum(map(len, content))), *content]
        return found

    def _graph(self, number: int, nodes: list[Piece]) -> list[Piece]:
        """Return the content of a graph, of which these are the nodes."""
        graph = self.table.graphs[number]
        layout = _LAYOUTS[graph.kind]
        found = {(layout.node, False): nodes}
        if graph.begin < 0:
            self._add_new(found, number)
        else:
            rows = self._rows(number)
            rows = rows[self._is_kept[rows]]
            numbers = self.table.parts.number[rows]
            for field in ascending(numbers).tolist():
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
            found[field, False] = [field_of(field, text) for text in texts]

    # What stands beside nodes.

    def _rows(self, graph: int) -> Places:
        """Return the parts that a graph has in the file, in order; -1 is the model."""
        order, at, count = self._parts
        rows: Places = order[at[graph + 1] : at[graph + 1] + count[graph + 1]]
        return rows

    def _copies(self, rows: Places) -> list[Piece]:
        """Return parts as the file has them."""
        begin, end = self.table.parts.head[rows], self.table.parts.end[rows]
        return self._pieces(_Spans(begin, end - begin))

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

    def _kept(self, edited: Places) -> Flags:
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
        heads = table.infos.head[self._dropped(edited)]
        order = np.argsort(parts.head, kind="stable")  # mostly they are in order
        is_kept[order[np.searchsorted(parts.head, heads, sorter=order)]] = False
        return is_kept

    def _dropped(self, edited: Places) -> Places:
        """Return the infos that go.

        They state what is gone, or what passes state now, or an input that is none any more.
        """
        table, values = self.table, self.table.values
        is_edited = np.zeros(len(table.graphs), np.bool_)
        is_edited[edited] = True
        infos = np.flatnonzero(is_edited[table.infos.graph])
        graph, number = table.infos.graph[infos], table.infos.number[infos]
        info = np.array([_LAYOUTS[row.kind].info for row in table.graphs])
        is_info = number == info[graph]
        is_given = number == _GRAPH_GIVEN
        # new graphs have no infos in the file
        here = np.zeros(len(table.graphs), np.bool_)
        here[graph] = True
        mine = here[values.graph]
        mine[OMITTED] = False
        is_new = values.name_at >= table.data.size
        lost = np.flatnonzero(mine & ~self.is_defined & ~is_new)
        made = np.flatnonzero(mine & self.is_defined & is_new)
        given = np.flatnonzero(mine & values.given)
        stated = self.stated[mine[self.stated]]
        key, of_lost, of_made, of_given, of_stated = self._keys(
            (_Spans(table.infos.name_at[infos], table.infos.name_size[infos]), graph),
            *((self._names(rows), values.graph[rows]) for rows in (lost, made, given, stated)),
        )
        of_lost = of_lost[lookup(of_made, of_lost) < 0]
        is_gone = (lookup(of_lost, key) >= 0) | (lookup(of_stated, key) >= 0)
        result: Places = infos[(is_info & is_gone) | (is_given & (lookup(of_given, key) < 0))]
        return result

    def _keys(self, *columns: tuple[_Spans, Ids]) -> list[Places]:
        """Return numbers that are equal for equal names of one graph; columns of names and graphs.

        They are small where few graphs have names.
        """
        at, size = (np.concatenate([getattr(n, k) for n, _ in columns]) for k in ("at", "size"))
        graphs, graph = np.unique(np.concatenate([g for _, g in columns]), return_inverse=True)
        begin = offsets(size)
        which, _ = wire.intern(self._gathered(_Spans(at, size)), begin, begin + size)
        key = which * np.int64(graphs.size) + graph
        ends = np.cumsum([graph.size for _, graph in columns])
        return np.split(key, ends[:-1])

    def _infos(self, values: Sequence[int]) -> list[bytes]:
        """Encode what is stated of values, their names at least."""
        names = self.table.names(np.array(values, np.int64))
        stated = (self.table.stated.get(value, b"") for value in values)
        return [field_of(_INFO_NAME, name) + text for name, text in zip(names, stated, strict=True)]

    def _made_infos(self, number: int, layout: _Layout) -> list[Piece]:
        """Encode the types that passes state of what a graph holds."""
        graph = self.table.graphs[number]
        values = self.stated[self.table.values.graph[self.stated] == number].tolist()
        if graph.begin < 0 and graph.kind is GraphKind.BODY:
            interface = {*self.table.given[number].tolist(), *self.table.returned[number].tolist()}
            values = [value for value in values if value not in interface]
        return [field_of(layout.info, text) for text in self._infos(values)]

    def _made_initializers(self, number: int) -> list[Piece]:
        """Encode what passes have stored in a graph, in the order of its values."""
        table = self.table
        mine = self.stored[table.values.graph[self.stored] == number]
        found: list[Piece] = []
        rows = table.values.tensor[mine].tolist()
        for row, name in zip(rows, table.names(mine), strict=True):
            data = self._payload(row)
            front = data.front + field_of(_TENSOR_NAME, name)
            size = len(front) + sum(map(len, data.back))
            found += [head_of(_INITIALIZER, size) + front, *data.back]
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

    # Spans.

    def _keep(self, texts: Sequence[bytes]) -> tuple[Places, Places]:
        """Put texts into the heap; return where each begins and its size, (n,)."""
        size = np.fromiter(map(len, texts), np.int64, len(texts))
        at = self.table.data.size + len(self.heap) + offsets(size)
        self.heap += b"".join(texts)
        return at, size

    def _heads(self, number: Places | int, size: Places | Ids) -> tuple[Places, Places]:
        """Encode what stands before the contents of fields, (n,); return where that stands."""
        numbers = np.broadcast_to(np.asarray(number, np.int64), size.shape)
        which, example = distinct(numbers, size)
        pairs = zip(numbers[example].tolist(), size[example].tolist(), strict=True)
        at, taken = self._keep([head_of(*pair) for pair in pairs])
        return at[which], taken[which]

    def _gathered(self, spans: _Spans) -> NDArray[np.uint8]:
        """Return the bytes of spans one behind the other, padded."""
        in_heap = spans.at >= self.table.data.size
        heap = padded(bytes(self.heap))
        at = np.where(in_heap, spans.at - self.table.data.size, spans.at)
        return wire.gathered((self.table.data, heap), in_heap.astype(np.int64), at, spans.size)

    def _pieces(self, spans: _Spans) -> list[Piece]:
        """Return the bytes of spans: long ones where they stand, others copied together."""
        spans = spans.of(spans.size > 0)
        if not spans.at.size:
            return []
        end = spans.at + spans.size
        # the heap lies elsewhere than the file
        goes_on = (end[:-1] == spans.at[1:]) & (spans.at[1:] != self.table.data.size)
        edge = np.flatnonzero(~goes_on) + 1
        first, last = np.append(0, edge), np.append(edge, end.size) - 1
        runs = _Spans(spans.at[first], end[last] - spans.at[first])
        is_long = (runs.size >= _LONG) & (runs.at < self.table.data.size)
        copied = self._gathered(runs.of(~is_long)).data
        # behind each long run, how far the copied ones before it go
        done = np.cumsum(np.where(is_long, 0, runs.size))[is_long].tolist()
        found: list[Piece] = []
        begin = 0
        places = zip(runs.at[is_long].tolist(), runs.size[is_long].tolist(), done, strict=True)
        for at, size, upto in places:
            found += [copied[begin:upto], self.file[at : at + size]]
            begin = upto
        return [*found, copied[begin : len(copied) - PADDING]]

    # Nodes.

    def _spans(self, nodes: Places, is_owner: Flags) -> tuple[Places, _Spans]:
        """Return the spans of nodes (n,): how many each has, and they themselves.

        A node that is not encoded has one, and so have owners, for what is encoded later.
        """
        columns = self.table.nodes
        is_encoded = columns.touched[nodes] & ~is_owner
        encoded, copied = nodes[is_encoded], nodes[~is_encoded]
        _, read = self.table.inputs_of(encoded)
        _, made = self.table.outputs_of(encoded)
        count, at, size = beside(
            self._texts(_INPUT, columns.in_count[encoded], self._names(read)),
            self._texts(_OUTPUT, columns.out_count[encoded], self._names(made)),
            self._backs(encoded),
        )
        number = np.array([_LAYOUTS[graph.kind].node for graph in self.table.graphs])
        heads = self._heads(number[columns.graph[encoded]], sums(count, size))
        of_encoded = beside((np.ones(encoded.size, np.int64), *heads), (count, at, size))
        many = np.zeros(nodes.size, np.int64)
        many[is_encoded] = of_encoded[0]
        begin, end = columns.head[copied], columns.end[copied]
        count, at, size = beside(
            ((~is_encoded).astype(np.int64), begin, end - begin), (many, *of_encoded[1:])
        )
        return count, _Spans(at, size)

    def _names(self, values: Ids | Places) -> _Spans:
        return _Spans(self.table.values.name_at[values], self.table.values.name_size[values])

    def _texts(self, number: int, count: NDArray[Any], texts: _Spans) -> tuple[Places, ...]:
        """Return the spans of fields that hold texts (m,), of which each row has *count* (n,)."""
        at, size = self._heads(number, texts.size)
        alternating = (
            np.stack(pair, axis=1).reshape(-1) for pair in ((at, texts.at), (size, texts.size))
        )
        return 2 * count, *alternating

    def _backs(self, nodes: Places) -> tuple[Places, ...]:
        """Return the spans of what stands behind inputs and outputs of nodes (n,)."""
        columns = self.table.nodes
        is_new = columns.head[nodes] < 0
        new, old = nodes[is_new], nodes[~is_new]
        facts = (columns.operator, columns.attributes, columns.remark)
        form, example = distinct(*(fact[new] for fact in facts))
        at, size = np.empty(nodes.size, np.int64), np.empty(nodes.size, np.int64)
        form_at, form_size = self._keep([self._new_back(node) for node in new[example].tolist()])
        at[is_new], size[is_new] = form_at[form], form_size[form]
        at[~is_new] = self._rest(old)
        size[~is_new] = columns.end[old] - at[~is_new]
        names = _Spans(columns.name_at[new], columns.name_size[new])
        return beside(
            self._texts(_NODE_NAME, is_new.astype(np.int64), names),
            (np.ones(nodes.size, np.int64), at, size),
        )

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
        """Encode a new node but for inputs, outputs and name."""
        op_type, others = self._words(node)
        return op_type + self._attributes(int(self.table.nodes.attributes[node])) + others

    def _words(self, node: int) -> tuple[bytes, bytes]:
        """Encode the operator of a new node, and what stands behind attributes."""
        op_type, others = self._operator(int(self.table.nodes.operator[node]))
        doc, metadata = self.table.remarks[self.table.nodes.remark[node]]
        return op_type, (field_of(_DOC, doc) if doc else b"") + others + metadata

    def _operator(self, number: int) -> tuple[bytes, bytes]:
        """Encode an operator: its type, and domain and overload if it has them."""
        if number not in self._operators:
            domain, op_type, overload = self.table.operators[number]
            words = ((_DOMAIN, domain), (_OVERLOAD, overload))
            others = b"".join(field_of(field, text) for field, text in words if text)
            self._operators[number] = field_of(_OP_TYPE, op_type), others
        return self._operators[number]

    def _attributes(self, number: int) -> bytes:
        """Encode a set of attributes."""
        if number not in self._sets:
            texts = self.table.attribute_sets[number]
            self._sets[number] = b"".join(field_of(_ATTRIBUTE, text) for text in texts)
        return self._sets[number]

    def _node_with(self, node: int, bodies: Sequence[int]) -> bytes:
        """Encode a node some of whose bodies were edited."""
        table, columns = self.table, self.table.nodes
        rows = np.array([node])
        found = [field_of(_INPUT, name) for name in table.names(table.inputs_of(rows)[1])]
        found += [field_of(_OUTPUT, name) for name in table.names(table.outputs_of(rows)[1])]
        texts = {table.graphs[body].attribute: b"".join(self.graphs[body]) for body in bodies}
        attributes = [
            field_of(_ATTRIBUTE, _with_graphs(text, texts))
            for text in table.attribute_sets[columns.attributes[node]]
        ]
        if columns.head[node] < 0:
            op_type, others = self._words(node)
            name = field_of(_NODE_NAME, table.node_names(rows)[0])
            return b"".join([*found, name, op_type, *attributes, others])
        (begin,) = self._rest(rows).tolist()
        rest = _split(NodeProto.DESCRIPTOR, self.file[begin : columns.end[node]].tobytes())
        found += [text for number, text in rest if 0 < number < _ATTRIBUTE]
        found += attributes
        found += [text for number, text in rest if not 0 < number <= _ATTRIBUTE]
        return b"".join(found)


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
        found.append(field_of(number, graphs[called]) if is_other else whole)
    return b"".join(found)


def _split(message: Descriptor, text: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of an encoded message: number and bytes of each."""
    found = wire.fields(padded(text), message, np.array([0]), np.array([len(text)]))
    columns = (found.number.tolist(), found.head.tolist(), found.end.tolist())
    return [(number, text[head:end]) for number, head, end in zip(*columns, strict=True)]


def _in_force(opsets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each domain that is in force: the last one counts."""
    return {canonical_domain(one.domain): one.version for one in opsets}


def field_of(number: int, content: bytes) -> bytes:
    """Encode a field."""
    return head_of(number, len(content)) + content


@lru_cache(1 << 14)
def head_of(number: int, size: int) -> bytes:
    """Encode what stands before the content of a field."""
    return varint(number << 3 | wire.DELIMITED) + varint(size)
