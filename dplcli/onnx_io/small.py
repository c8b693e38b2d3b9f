"""From the bytes of a small ONNX file to the table, one field after the other.

:mod:`dplcli.onnx_io.table` reads in bulk, at the cost of some thousand array operations however
little there is to read; here a model of a few nodes takes a seventh of that time. Only plain models
are read: whatever is odd or wrong is left to the reading in bulk, which knows what to say of it.
"""

from __future__ import annotations

from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

from dplcli.ir.relations import offsets
from dplcli.ir.table import (
    OMITTED,
    ROOM,
    FileParts,
    GraphKind,
    GraphRow,
    Infos,
    Nodes,
    Slots,
    Table,
    Tensors,
    Values,
    is_constant,
)
from dplcli.onnx_io.wire import (
    DELIMITED,
    FIXED64,
    VARINT,
    IrregularError,
    padded,
    require_regular,
    tags,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from numpy.typing import NDArray

SMALL: Final = 1 << 15
"""Up to how many bytes a file is small."""
_MORE = 0x80
_GRAPH_FIELDS = ("node", "initializer", "input", "output", "value_info")
_KINDS_WITH_BODIES = (AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.GRAPHS)
_MOST_KNOWN = 4096
_SPARSE = SparseTensorProto.DESCRIPTOR


class NotPlainError(Exception):
    """A model that is left to the reading in bulk."""


def read_small(data: bytes) -> Table:
    """Read a model that is small and plain.

    Raises:
        NotPlainError: It is odd or wrong in some way.
    """
    try:
        if ModelProto.FromString(data).SerializeToString(deterministic=True) != data:
            raise NotPlainError
        return _SmallReader(data).table()
    except (DecodeError, IrregularError, UnicodeDecodeError) as error:
        raise NotPlainError from error


class _Field(NamedTuple):
    """A field of a message: what it is, and where it and its content stand."""

    name: str
    number: int
    head: int
    begin: int
    end: int


class _Name(NamedTuple):
    """A name that a graph uses, and where it begins."""

    text: bytes
    begin: int
    graph: int


class _Tensor(NamedTuple):
    """See :class:`dplcli.ir.table.Tensors`."""

    begin: int
    end: int
    type: int
    external: bool


class _Node(NamedTuple):
    """See :class:`dplcli.ir.table.Nodes`."""

    operator: int
    attributes: int
    graph: int
    in_count: int
    out_count: int
    head: int
    end: int
    name_at: int
    name_size: int
    remarked: bool


class _SmallReader:
    """Reads one model.

    Args:
        data: A file that protobuf would write so.
    """

    known: ClassVar[set[tuple[str, bytes]]] = set()
    """Encoded messages that were found regular, with their types: models share many."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.graphs: list[GraphRow] = []
        self.plain: set[bytes] = set()
        self.operators: dict[tuple[bytes, bytes, bytes], int] = {}
        self.attribute_sets: dict[tuple[bytes, ...], int] = {(): 0}
        self.tensor_types: dict[bytes, int] = {}
        self.nodes: list[_Node] = []
        self.given: list[_Name] = []
        self.stored: list[_Name] = []
        self.read: list[_Name] = []
        self.made: list[_Name] = []
        self.returned: list[_Name] = []
        self.tensors: list[_Tensor] = []
        self.constants: list[tuple[int, _Tensor]] = []
        self.parts: list[tuple[int, int, int, int, int]] = []
        self.infos: list[tuple[int, int, int, int, int, int]] = []

    def table(self) -> Table:
        """Read all."""
        main, functions = [], []
        for field in self._fields(ModelProto, 0, len(self.data), ("graph", "functions")):
            if field.name == "graph":
                main.append(GraphRow(GraphKind.MAIN, field.begin, field.end))
            elif field.name == "functions":
                functions.append(GraphRow(GraphKind.FUNCTION, field.begin, field.end))
            else:
                self._keep(-1, field)
        if not main:
            raise NotPlainError
        self.graphs += main + functions
        done = 0
        while True:  # protobuf has read it, so bodies nest no deeper than 33
            level = range(done, len(self.graphs))
            done = len(self.graphs)
            self._read_level(level)
            if done == len(self.graphs):
                return self._assemble()

    # Messages.

    def _fields(
        self, kind: type[Message], at: int, end: int, but: tuple[str, ...] = ()
    ) -> Iterator[_Field]:
        """Walk a message; check what its fields hold, but for those of some names."""
        data, known = self.data, tags(kind.DESCRIPTOR)
        while at < end:
            head = at
            tag, begin = data[at], at + 1
            if tag >= _MORE:
                tag, begin = self._number(at)
            field = known.get(tag)
            if field is None:
                raise NotPlainError
            wire_type = tag & 7
            if wire_type == DELIMITED:
                size, begin = data[begin], begin + 1
                if size >= _MORE:
                    size, begin = self._number(begin - 1)
                at = begin + size
            elif wire_type == VARINT:
                at = self._number(begin)[1]
            else:
                at = begin + (8 if wire_type == FIXED64 else 4)
            if field.name not in but:
                self._check(field, begin, at)
            yield _Field(field.name, field.number, head, begin, at)

    def _number(self, at: int) -> tuple[int, int]:
        """Read a number; return where it ends, too."""
        value = shift = 0
        while True:
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < _MORE:
                return value, at
            shift += 7

    def _check(self, field: FieldDescriptor, begin: int, end: int) -> None:
        """Leave to others what is no text, or a choice that nobody knows."""
        if field.message_type:
            self._require_regular(field.message_type, begin, end)
        elif field.type == FieldDescriptor.TYPE_STRING:
            text = self.data[begin:end]
            if not text.isascii():
                text.decode()
        elif field.enum_type and self._number(begin)[0] not in field.enum_type.values_by_number:
            raise NotPlainError

    def _require_regular(self, descriptor: Descriptor, begin: int, end: int) -> None:
        """Check a message, and all in it, once."""
        if descriptor is _SPARSE:
            raise NotPlainError
        key = descriptor.name, self.data[begin:end]
        if key not in self.known:
            data = padded(key[1])
            require_regular(data, descriptor, np.array([0]), np.array([end - begin]))
            if len(self.known) < _MOST_KNOWN:
                self.known.add(key)

    # What a model consists of.

    def _keep(self, graph: int, field: _Field) -> None:
        self.parts.append((graph, field.number, field.head, field.begin, field.end))

    def _read_level(self, level: range) -> None:
        """Read some graphs: first what they declare, then their nodes."""
        is_function = [self.graphs[graph].kind is GraphKind.FUNCTION for graph in level]
        found: dict[str, list[tuple[int, _Field]]] = {name: [] for name in _GRAPH_FIELDS}
        for graph in compress(level, map(not_, is_function)):
            row = self.graphs[graph]
            for field in self._fields(GraphProto, row.begin, row.end, _GRAPH_FIELDS):
                if field.name in found:
                    found[field.name].append((graph, field))
                if field.name != "node":
                    self._keep(graph, field)
        for graph, field in found["initializer"]:
            name, tensor = self._read_tensor(field.begin, field.end)
            self.stored.append(name._replace(graph=graph))
            self.tensors.append(tensor)
        self.given += [self._read_info(graph, field) for graph, field in found["input"]]
        self.returned += [self._read_info(graph, field) for graph, field in found["output"]]
        for graph, field in found["value_info"]:
            self._read_info(graph, field)
        nodes = found["node"]
        for graph in compress(level, is_function):
            nodes += self._read_function(graph)
        bodies: dict[bytes, list[tuple[int, int, int]]] = {}
        for graph, field in nodes:
            self._read_node(graph, field, bodies)
        for attribute, places in bodies.items():
            self._list_bodies(attribute, places)

    def _read_function(self, graph: int) -> list[tuple[int, _Field]]:
        """Read what a function declares; return its nodes."""
        row, nodes = self.graphs[graph], []
        for field in self._fields(FunctionProto, row.begin, row.end, ("node", "value_info")):
            if field.name == "node":
                nodes.append((graph, field))
                continue
            self._keep(graph, field)
            if field.name == "value_info":
                self._read_info(graph, field)
            elif field.name in {"input", "output"}:
                names = self.given if field.name == "input" else self.returned
                names.append(_Name(self.data[field.begin : field.end], field.begin, graph))
        return nodes

    def _read_info(self, graph: int, info: _Field) -> _Name:
        """Read what a graph states of a value; return its name."""
        begin = end = info.begin
        for field in self._fields(ValueInfoProto, info.begin, info.end):
            if field.name == "name":
                begin, end = field.begin, field.end
        self.infos.append((graph, info.number, info.head, begin, end - begin, info.end))
        return _Name(self.data[begin:end], begin, graph)

    def _read_tensor(self, begin: int, end: int) -> tuple[_Name, _Tensor]:
        """Read what a tensor is, but not its data."""
        name, last, external = _Name(b"", 0, 0), begin, False
        for field in self._fields(TensorProto, begin, end):
            if field.name in {"dims", "data_type"}:
                last = field.end
            elif field.name == "name":
                name = _Name(self.data[field.begin : field.end], field.begin, 0)
            elif field.name == "data_location":
                external = self.data[field.begin] == TensorProto.EXTERNAL
        number = self.tensor_types.setdefault(self.data[begin:last], len(self.tensor_types))
        return name, _Tensor(begin, end, number, external)

    def _read_node(
        self, graph: int, node: _Field, bodies: dict[bytes, list[tuple[int, int, int]]]
    ) -> None:
        """Read a node; note where those attributes of it stand that hold bodies."""
        words = {"domain": b"", "op_type": b"", "overload": b""}
        attributes = []
        in_count, out_count = len(self.read), len(self.made)
        name_at = name_size = 0
        remarked = False
        for field in self._fields(NodeProto, node.begin, node.end, ("attribute",)):
            text = self.data[field.begin : field.end]
            if field.name == "input":
                self.read.append(_Name(text, field.begin, graph))
            elif field.name == "output":
                self.made.append(_Name(text, field.begin, graph))
            elif field.name == "attribute":
                attributes.append(text)
                if text not in self.plain and self._read_attribute(field.begin, field.end):
                    place = len(self.nodes), graph, field.begin
                    bodies.setdefault(text, []).append(place)
            elif field.name == "name":
                name_at, name_size = field.begin, len(text)
            elif field.name in words:
                words[field.name] = text
            else:
                remarked = True
        operator = words["domain"], words["op_type"], words["overload"]
        row = _Node(
            self.operators.setdefault(operator, len(self.operators)),
            self.attribute_sets.setdefault(tuple(attributes), len(self.attribute_sets)),
            graph,
            len(self.read) - in_count,
            len(self.made) - out_count,
            node.head,
            node.end,
            name_at,
            name_size,
            remarked,
        )
        self.nodes.append(row)

    def _read_attribute(self, begin: int, end: int) -> bool:
        """Check an attribute, and list the tensor in it; tell whether it holds bodies."""
        kind, has_graph, has_tensor = 0, False, False
        for field in self._fields(AttributeProto, begin, end, ("g", "graphs", "t")):
            if field.name == "t":
                has_tensor = True
                _, tensor = self._read_tensor(field.begin, field.end)
                self.constants.append((len(self.nodes), tensor))
            elif field.name == "type":
                kind = self.data[field.begin]
            elif field.name in {"g", "graphs"}:
                has_graph = True
        if has_graph and kind not in _KINDS_WITH_BODIES:
            raise NotPlainError
        if not has_graph and not has_tensor:
            self.plain.add(self.data[begin:end])
        return has_graph

    def _list_bodies(self, attribute: bytes, places: list[tuple[int, int, int]]) -> None:
        """List the graphs in equal attributes: node, graph and place of each."""
        first = places[0][2]
        name, count = b"", 0
        for field in self._fields(AttributeProto, first, first + len(attribute), ("g", "graphs")):
            if field.name == "name":
                name = self.data[field.begin : field.end]
            elif field.name in {"g", "graphs"}:
                label = name if field.name == "g" else name + b"[%d]" % count
                count += field.name == "graphs"
                for node, graph, begin in places:
                    span = field.begin + begin - first, field.end + begin - first
                    self.graphs.append(GraphRow(GraphKind.BODY, *span, graph, node, label))

    # All of it together.

    def _assemble(self) -> Table:
        size = len(self.nodes)
        names, given, stored, made, scopes = self._defined()
        read, returned = (
            [self._visible(scopes, name) for name in group] for group in (self.read, self.returned)
        )
        producer, tensor = [-1] * len(names), [-1] * len(names)
        first_made, first = [], 0
        for number, node in enumerate(self.nodes):
            first_made.append(first)
            for value in made[first : first + node.out_count]:
                producer[value] = number
            first += node.out_count
        producer[OMITTED] = -1
        self._require_order(producer, read)
        for row, value in enumerate(stored):
            tensor[value] = row
        operators = list(self.operators)
        stored_as = list(stored)
        for number, each in self.constants:
            node = self.nodes[number]
            if node.out_count and is_constant(operators[node.operator]):
                tensor[made[first_made[number]]] = len(self.tensors)
                self.tensors.append(each)
                stored_as.append(-1)
        tensor[OMITTED] = -1
        is_given = np.zeros(len(names))
        is_given[given] = 1
        columns = _columns(self.nodes, _Node._fields)
        return Table(
            data=padded(self.data),
            graphs=self.graphs,
            nodes=Nodes(
                **columns,
                in_at=offsets(columns["in_count"]),
                out_at=first_made,
                remark=np.zeros(size),
                place=(np.arange(size) + 1) * ROOM,
                room=np.full(size, ROOM),
                live=np.ones(size),
                touched=np.zeros(size),
            ),
            values=Values(
                name_at=[name.begin for name in names],
                name_size=[len(name.text) for name in names],
                graph=[name.graph for name in names],
                producer=producer,
                uses=np.bincount(np.array(read, np.int64), minlength=len(names)),
                returned=np.bincount(np.array(returned, np.int64), minlength=len(names)),
                tensor=tensor,
                given=is_given,
            ),
            inputs=Slots(value=read),
            outputs=Slots(value=made),
            tensors=Tensors(**_columns(self.tensors, _Tensor._fields), stored_as=stored_as),
            parts=FileParts(**_columns(self.parts, ("graph", "number", "head", "begin", "end"))),
            infos=Infos(
                **_columns(self.infos, ("graph", "number", "head", "name_at", "name_size", "end"))
            ),
            returned=[
                np.array(
                    [
                        value
                        for name, value in zip(self.returned, returned, strict=True)
                        if name.graph == graph
                    ],
                    np.int32,
                )
                for graph in range(len(self.graphs))
            ],
            operators=operators,
            attribute_sets=list(self.attribute_sets),
            tensor_types=list(self.tensor_types),
        )

    def _defined(
        self,
    ) -> tuple[list[_Name], list[int], list[int], list[int], list[dict[bytes, int]]]:
        """Number values, the omitted one first: those of graphs, then those of nodes.

        Returns:
            Their names; which are given, stored and made; and those of each graph by name.
        """
        scopes: list[dict[bytes, int]] = [{} for _ in self.graphs]
        names = [_Name(b"", 0, 0)]
        declared: tuple[list[int], list[int]] = ([], [])
        for group, found in zip((self.given, self.stored), declared, strict=True):
            for name in group:
                value = scopes[name.graph].setdefault(name.text, len(names))
                if value == len(names):
                    names.append(name)
                found.append(value)
            if len(set(found)) < len(found):
                raise NotPlainError  # two inputs or two initializers have one name
        made = []
        for name in self.made:
            value = OMITTED
            if name.text:
                value = len(names)
                if scopes[name.graph].setdefault(name.text, value) != value:
                    raise NotPlainError  # it is made twice
                names.append(name)
            made.append(value)
        return names, *declared, made, scopes

    def _visible(self, scopes: list[dict[bytes, int]], name: _Name) -> int:
        """Return the value that a name stands for where it is read."""
        graph = name.graph
        while name.text and graph >= 0:
            value = scopes[graph].get(name.text)
            if value is not None:
                return value
            graph = self.graphs[graph].parent
        if name.text:
            raise NotPlainError  # nothing defines it
        return OMITTED

    def _require_order(self, producer: list[int], read: list[int]) -> None:
        """Leave nodes to others that do not follow what they, or those in their bodies, read."""
        readers = (number for number, node in enumerate(self.nodes) for _ in range(node.in_count))
        for reader, value in zip(readers, read, strict=True):
            maker, place = producer[value], reader
            while maker >= 0 and self.nodes[maker].graph != self.nodes[place].graph:
                place = self.graphs[self.nodes[place].graph].owner
            if maker >= place:
                raise NotPlainError


def _columns(
    rows: Sequence[tuple[int, ...]], names: tuple[str, ...]
) -> dict[str, NDArray[np.int64]]:
    """Return rows as columns by name."""
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))
