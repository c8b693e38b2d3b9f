"""From the bytes of an ONNX file to the table.

Graphs are read level by level: the main one and functions, then the bodies that their nodes hold,
and so on. A level is walked in lockstep (:mod:`dplcli.onnx_io.wire`), whatever its graphs are.
Format: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from dplcli.errors import InvalidModelError
from dplcli.ir.model import in_order
from dplcli.onnx_io.arrays import ascending, distinct, group, lookup, offsets
from dplcli.onnx_io.convert import graphs_of, names_read
from dplcli.onnx_io.wire import (
    PADDING,
    Fields,
    IrregularError,
    fields,
    inside,
    intern,
    padded,
    require_regular,
    varints,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

    from dplcli.onnx_io.arrays import Flags, Ids, Ints
    from dplcli.onnx_io.wire import Bytes

# Numbers of fields, by message.
_MODEL_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_MODEL_FUNCTIONS = ModelProto.FUNCTIONS_FIELD_NUMBER
_NODE = GraphProto.NODE_FIELD_NUMBER
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_SPARSE = GraphProto.SPARSE_INITIALIZER_FIELD_NUMBER
_GIVEN = GraphProto.INPUT_FIELD_NUMBER
_RETURNED = GraphProto.OUTPUT_FIELD_NUMBER
_VALUE_INFO = GraphProto.VALUE_INFO_FIELD_NUMBER
_DECLARED = (_GIVEN, _RETURNED, _VALUE_INFO)
_FUNCTION_NODE = FunctionProto.NODE_FIELD_NUMBER
_FUNCTION_INFO = FunctionProto.VALUE_INFO_FIELD_NUMBER
_INPUT = NodeProto.INPUT_FIELD_NUMBER
_OUTPUT = NodeProto.OUTPUT_FIELD_NUMBER
_ATTRIBUTE = NodeProto.ATTRIBUTE_FIELD_NUMBER
_OP_TYPE = NodeProto.OP_TYPE_FIELD_NUMBER
_DOMAIN = NodeProto.DOMAIN_FIELD_NUMBER
_OVERLOAD = NodeProto.OVERLOAD_FIELD_NUMBER
_NODE_NAME = NodeProto.NAME_FIELD_NUMBER
_PLAIN = (_INPUT, _OUTPUT, _ATTRIBUTE, _OP_TYPE, _DOMAIN, _OVERLOAD, _NODE_NAME)
_ATTRIBUTE_TENSOR = AttributeProto.T_FIELD_NUMBER
_ATTRIBUTE_GRAPHS = AttributeProto.GRAPHS_FIELD_NUMBER
_BODIES = (AttributeProto.G_FIELD_NUMBER, _ATTRIBUTE_GRAPHS)
_KINDS_WITH_BODIES = (AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.GRAPHS)
_TENSOR_NAME = TensorProto.NAME_FIELD_NUMBER
_TENSOR_TYPE = (TensorProto.DIMS_FIELD_NUMBER, TensorProto.DATA_TYPE_FIELD_NUMBER)
_SPARSE_VALUES = SparseTensorProto.VALUES_FIELD_NUMBER
_INFO_TYPE = ValueInfoProto.TYPE_FIELD_NUMBER
_PROSE = frozenset({"doc_string", "producer_name", "producer_version"})
_LEVELS = 20
"""From how many levels of graphs on we ask protobuf, which has a limit, too."""


OMITTED: Final = 0
"""The value that stands for an input or output that is left out."""


class GraphKind(Enum):
    """Where a graph is in its model."""

    MAIN = "main"
    BODY = "body"
    FUNCTION = "function"


class GraphRow(NamedTuple):
    """A graph; a model has few, so they are objects.

    Attributes:
        kind: Where it is.
        begin: Where it begins in the file, in bytes.
        end: Where it ends.
        parent: The graph that holds its owner; -1 for none.
        owner: The node whose attribute it is; -1 for none.
        attribute: The name of that; with ``[i]`` behind it, if it is a list of graphs.
    """

    kind: GraphKind
    begin: int
    end: int
    parent: int = -1
    owner: int = -1
    attribute: bytes = b""


class Nodes(NamedTuple):
    """Nodes, of all graphs; n of them.

    Attributes:
        operator: Which of :attr:`Table.operators`.
        attributes: Which of :attr:`Table.attribute_sets`.
        graph: The graph that it is in.
        in_at: Where its inputs begin in :attr:`Table.inputs`, and how many there are.
        in_count: See there.
        out_at: Where its outputs begin in :attr:`Table.outputs`, and how many there are.
        out_count: See there.
        head: Where it begins in the file, its tag included.
        end: Where it ends there.
        name_at: Where its name begins in the file.
        name_size: How many bytes that has.
        remarked: Whether it has documentation, metadata, or what else a node may carry.
    """

    operator: Ints
    attributes: Ints
    graph: Ints
    in_at: Ints
    in_count: Ints
    out_at: Ints
    out_count: Ints
    head: Ints
    end: Ints
    name_at: Ints
    name_size: Ints
    remarked: Flags


class Values(NamedTuple):
    """Values, of all graphs; a name that two scopes define is two values.

    Attributes:
        name_at: Where its name begins in the file.
        name_size: How many bytes that has.
        graph: The graph that defines it.
        producer: The node that makes it; -1 for none.
        tensor: Its row in :attr:`Table.tensors`, if it is stored or made by a Constant; else -1.
        given: Whether it is an input of its graph.
    """

    name_at: Ints
    name_size: Ints
    graph: Ints
    producer: Ints
    tensor: Ints
    given: Flags


class Tensors(NamedTuple):
    """Encoded tensors.

    Attributes:
        begin: Where it begins in the file.
        end: Where it ends there.
        type: Which of :attr:`Table.tensor_types`; of a sparse tensor -1.
        external: Whether its data lies in a file beside the model.
    """

    begin: Ints
    end: Ints
    type: Ints
    external: Flags

    def at(self, rows: Ints) -> Tensors:
        """Return some of them."""
        return Tensors(self.begin[rows], self.end[rows], self.type[rows], self.external[rows])

    def moved(self, by: Ints) -> Tensors:
        """Return equal ones that stand elsewhere."""
        return Tensors(self.begin + by, self.end + by, self.type, self.external)


class FileParts(NamedTuple):
    """What the file holds of graphs beside their nodes, and of the model beside its graphs.

    Attributes:
        graph: The graph that it is of; -1 for the model.
        number: The number of the field.
        head: Where it begins in the file, tag and size included.
        begin: Where its content begins.
        end: Where it ends.
    """

    graph: Ints
    number: Ints
    head: Ints
    begin: Ints
    end: Ints


class Infos(NamedTuple):
    """What the file states of values: inputs and outputs of graphs, and what lies between.

    Attributes:
        graph: The graph that states it.
        number: The number of the field, as in :class:`FileParts`.
        head: Where it begins in the file, tag and size included.
        name_at: Where the value's name begins; all else that is stated stands behind that.
        name_size: How many bytes that has.
        end: Where it ends.
    """

    graph: Ints
    number: Ints
    head: Ints
    name_at: Ints
    name_size: Ints
    end: Ints


@dataclass(eq=False)
class Table:
    """What a file holds, as columns, and where in it that stands; nothing is decoded.

    The main graph, the bodies of If, Loop and Scan, and functions share one table of nodes and one
    of values. Operators and sets of attributes are numbered, equal ones alike. Who refers to a
    node or a value says its row; value 0 is the omitted one.

    Attributes:
        data: The file's bytes, zeros behind them.
        graphs: Its graphs; the main one is the first, and a body is behind the graph that holds it.
        nodes: Their nodes.
        values: Their values.
        inputs: The values that nodes read.
        outputs: The values that nodes make.
        tensors: What is stored.
        parts: What else the file holds.
        infos: What it states of values.
        returned: The values that each graph returns, in order.
        operators: Domain, type and overload of each operator, as the file spells them.
        attribute_sets: The encoded attributes of each set; the first has none.
        tensor_types: Encoded tensors without name and data.
        notes: What a reader should know about the file.
        sorted: The main graph (0) and functions whose nodes stand in another order than there.
        original: The file, if it is spelled in another way than *data*.
        is_spread: Whether some node says which devices it runs on.
    """

    data: Bytes
    graphs: list[GraphRow]
    nodes: Nodes
    values: Values
    inputs: Ints
    outputs: Ints
    tensors: Tensors
    parts: FileParts
    infos: Infos
    returned: list[Ints]
    operators: list[tuple[bytes, bytes, bytes]]
    attribute_sets: list[tuple[bytes, ...]]
    tensor_types: list[bytes]
    notes: list[str] = field(default_factory=list)
    sorted: list[int] = field(default_factory=list)
    original: bytes = b""
    is_spread: bool = False

    def rows_by_graph(self) -> tuple[list[int], list[int]]:
        """Return the first node of each graph in the file, and how many it has there."""
        graph = self.nodes.graph
        numbers = np.arange(len(self.graphs))
        first = np.searchsorted(graph, numbers)
        return first.tolist(), (np.searchsorted(graph, numbers, "right") - first).tolist()


def read_table(data: bytes | Bytes, label: str) -> Table:
    """Read a model.

    Nodes that do not follow what they read are sorted, as a file that is in order has them.

    Args:
        data: The file; an array has the zeros behind it that the table needs, and is not copied.
        label: What messages call it.

    Raises:
        DecodeError: The bytes are no model.
        InvalidModelError: A value is made twice, read and never defined, or nodes form a circle;
            or a name is no text.
    """
    try:
        return _read(data, label)
    except _DisorderError as error:
        text = data if isinstance(data, bytes) else data[:-PADDING].tobytes()
        model = ModelProto.FromString(text)
        (graphs,) = error.args
        for number in graphs:
            _sort(model.functions[number - 1] if number else model.graph, label)
        table = _read(model.SerializeToString(deterministic=True), label)
        table.original = text
        table.sorted = graphs
        table.notes.append(f"{label}: the nodes were not in topological order; sorted")
        return table


def _read(data: bytes | Bytes, label: str) -> Table:
    with suppress(IrregularError):
        read = padded(data) if isinstance(data, bytes) else data
        return _Reader(read, label, levels=_LEVELS).table()
    # protobuf refuses it, or writes what it has understood
    data = data if isinstance(data, bytes) else data[:-PADDING].tobytes()
    model = ModelProto.FromString(data)
    notes = _mended(model, label)
    try:
        table = _Reader(padded(model.SerializeToString(deterministic=True)), label, notes).table()
    except IrregularError:
        # what it has not understood it writes as it was
        model.DiscardUnknownFields()
        table = _Reader(padded(model.SerializeToString(deterministic=True)), label, notes).table()
    table.original = data
    return table


def _mended(proto: ModelProto, label: str) -> list[str]:
    """Spell out the bytes of prose that is not UTF-8; refuse names that are not.

    Raises:
        InvalidModelError: A name in it is not UTF-8.
    """
    places = []
    for message, part, where in _strings(proto, ""):
        value = getattr(message, part.name)
        wrong = [each for each in (value if part.is_repeated else [value]) if type(each) is bytes]
        if not wrong:
            continue
        if part.name not in _PROSE and not (part.name == "value" and "metadata_props[" in where):
            raise InvalidModelError(
                f"{label}: invalid model: {wrong[0]!r} is not UTF-8 text ({where}.{part.name})",
                hint="save the model again with names in UTF-8",
            )
        setattr(message, part.name, wrong[0].decode(errors="backslashreplace"))
        places.append(f"{where}.{part.name}")
    if not places:  # a later field of the file replaced what is not text
        return []
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return [f"{label}: is not UTF-8 text: {places[0]}{more}; the bytes are spelled out"]


def _strings(message: Message, where: str) -> Iterator[tuple[Message, FieldDescriptor, str]]:
    """Find the fields of *message* that hold strings, and say where each stands."""
    for part, value in message.ListFields():
        if part.type == FieldDescriptor.TYPE_STRING:
            yield message, part, where or "model"
        elif part.type == FieldDescriptor.TYPE_MESSAGE:
            for number, item in enumerate(value if part.is_repeated else [value]):
                label = _label(item) if part.is_repeated else ""
                place = f"[{label or number}]" if part.is_repeated else ""
                yield from _strings(item, f"{where}.{part.name}{place}".lstrip("."))


def _label(item: Any) -> str:  # noqa: ANN401  # any message
    """Return the name of a message that has one."""
    name = getattr(item, "name", "") or getattr(item, "key", "")
    return name if isinstance(name, str) else ""


class _DisorderError(Exception):
    """Nodes stand before what they read.

    Its argument lists the main graph (0) and functions (1 and up) in which some do, at any depth.
    """


def _sort(graph: GraphProto | FunctionProto, label: str) -> None:
    """Bring the nodes of a graph, and those inside them, into topological order.

    Raises:
        InvalidModelError: There is none.
    """
    before = list(graph.node)
    ordered = _in_order(before)
    if len(ordered) < len(before):
        kept = set(map(id, ordered))
        culprit = next(node for node in before if id(node) not in kept)
        name = culprit.name or next(iter(culprit.output), culprit.op_type)
        where = f"graph {graph.name!r}: " if graph.name else ""
        raise InvalidModelError(
            f"{label}: invalid model: {where}node {name!r} lies on or behind a cycle"
        )
    for node in before:
        for _, body in graphs_of(node):
            _sort(body, label)
    del graph.node[:]
    graph.node.extend(ordered)


def _in_order(protos: Sequence[NodeProto]) -> list[NodeProto]:
    """Sort *protos* so that producers come first; stable.

    Names that none of *protos* makes are taken as defined elsewhere. Nodes on a cycle, and those
    that depend on one, are left out.
    """
    maker = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    consumers: dict[int, list[int]] = {index: [] for index in range(len(protos))}
    for index, proto in enumerate(protos):
        for made_by in {maker[name] for name in names_read(proto) if name in maker}:
            consumers[made_by].append(index)
    return [protos[index] for index in in_order(consumers)]


class _Names(NamedTuple):
    """Names that graphs use for one purpose: where each stands, and in which graph, (n,)."""

    begin: Ints
    end: Ints
    graph: Ints

    def at(self, rows: Ints) -> _Names:
        """Return some of them."""
        return _Names(self.begin[rows], self.end[rows], self.graph[rows])


class _Nodes(NamedTuple):
    """The nodes of one level, n of them: see :class:`Nodes`.

    ``operator`` has where domain, type and overload of each begin and end, (6, n); ``name`` where
    its name does, (2, n).
    """

    graph: Ints
    head: Ints
    end: Ints
    attributes: Ints
    in_count: Ints
    out_count: Ints
    operator: Ints
    name: Ints
    remarked: Flags


class _Reader:
    """Reads one model.

    Args:
        data: The file, zeros behind it.
        label: What messages call it.
        notes: What a reader should know about it.
        levels: Up to how deep graphs may lie in one another; None for any depth.
    """

    def __init__(
        self, data: Bytes, label: str, notes: Sequence[str] = (), levels: int | None = None
    ) -> None:
        self.data = data
        self.label = label
        self.notes = list(notes)
        self.levels = levels
        self.graphs: list[GraphRow] = []
        self.attribute_sets: dict[tuple[bytes, ...], int] = {(): 0}
        self.given: list[_Names] = []
        self.stored: list[_Names] = []
        self.read: list[_Names] = []
        self.made: list[_Names] = []
        self.returned: list[_Names] = []
        self.nodes: list[_Nodes] = []
        # which tensors are stored, and which are in attributes of which nodes
        self.tensor_types: dict[bytes, int] = {}
        self.tensors: list[Tensors] = []
        self.in_attributes: list[tuple[Ints, Tensors]] = []
        self.parts: list[tuple[Ints, Fields]] = []
        self.infos: list[tuple[Ints, Fields, Fields]] = []
        self.is_spread = False

    def table(self) -> Table:
        """Read all."""
        size = self.data.size - PADDING
        model = self._walk(
            ModelProto, np.array([0]), np.array([size]), (_MODEL_GRAPH, _MODEL_FUNCTIONS)
        )
        for number, kind in (
            (_MODEL_GRAPH, GraphKind.MAIN),
            (_MODEL_FUNCTIONS, GraphKind.FUNCTION),
        ):
            spans = model.of(number)
            for begin, end in zip(spans.begin.tolist(), spans.end.tolist(), strict=True):
                self.graphs.append(GraphRow(kind, begin, end))
        if not self.graphs or self.graphs[0].kind is not GraphKind.MAIN:
            self.graphs.insert(0, GraphRow(GraphKind.MAIN, 0, 0))
        self._keep(model, np.array([-1]), (_MODEL_GRAPH, _MODEL_FUNCTIONS))
        done = depth = 0
        while done < len(self.graphs):
            depth += 1
            if self.levels is not None and depth > self.levels:
                raise IrregularError("graphs lie too deep in one another")
            level = np.arange(done, len(self.graphs))
            done = len(self.graphs)
            self._read_level(level)
        return self._assemble()

    def _walk(
        self, kind: type[Message], begin: Ints, end: Ints, but: tuple[int, ...] = ()
    ) -> Fields:
        """Walk messages and check those inside them, but those of some numbers.

        Writers differ in the order in which they write what a graph consists of; we take any.
        """
        in_order = kind not in {ModelProto, GraphProto, FunctionProto}
        found = fields(self.data, kind.DESCRIPTOR, begin, end, in_order=in_order)
        for descriptor, first, last in inside(kind.DESCRIPTOR, found, but):
            require_regular(self.data, descriptor, first, last)
        return found

    def _keep(self, found: Fields, graphs: Ints, but: tuple[int, ...]) -> None:
        """List the fields of *graphs*, but those of some numbers."""
        which = np.flatnonzero(~np.isin(found.number, but))
        kept = Fields(*[column[which] for column in found])
        self.parts.append((graphs[kept.owner], kept))

    def _read_infos(self, found: Fields, graphs: Ints, number: int) -> _Names:
        """Read what graphs state of values; return the names."""
        rows = found.of(number)
        infos = self._walk(ValueInfoProto, rows.begin, rows.end, (_INFO_TYPE,))
        types = infos.of(_INFO_TYPE)
        # most types of a model are the same few
        _, example = intern(self.data, types.begin, types.end)
        begin, end = types.begin[example], types.end[example]
        require_regular(self.data, TypeProto.DESCRIPTOR, begin, end)
        names = infos.of(ValueInfoProto.NAME_FIELD_NUMBER)
        begin, end = rows.begin.copy(), rows.begin.copy()  # of what has no name
        begin[names.owner], end[names.owner] = names.begin, names.end
        named = Fields(rows.owner, rows.number, rows.head, begin, end)
        self.infos.append((graphs[rows.owner], rows, named))
        return _Names(begin, end, graphs[rows.owner])

    def _read_tensors(self, begin: Ints, end: Ints) -> tuple[Tensors, Fields]:
        """Read what tensors are, n of them, but not their data; return their fields, too."""
        found = self._walk(TensorProto, begin, end)
        is_type = np.isin(found.number, _TENSOR_TYPE)
        last = begin.copy()
        last[found.owner[is_type]] = found.end[is_type]
        number, example = intern(self.data, begin, last)
        spans = zip(begin[example].tolist(), last[example].tolist(), strict=True)
        known = self.tensor_types
        ids = [known.setdefault(self.data[a:b].tobytes(), len(known)) for a, b in spans]
        external = np.zeros(begin.size, np.bool_)
        places = found.of(TensorProto.DATA_LOCATION_FIELD_NUMBER)
        external[places.owner] = self.data[places.begin] == TensorProto.EXTERNAL
        return Tensors(begin, end, np.array(ids, np.int64)[number], external), found

    # One level of graphs.

    def _read_level(self, level: Ints) -> None:
        is_function = np.array([self.graphs[k].kind is GraphKind.FUNCTION for k in level.tolist()])
        nodes = []
        if not is_function.all():
            nodes.append(self._read_graphs(level[~is_function]))
        if is_function.any():
            nodes.append(self._read_functions(level[is_function]))
        head, begin, end, graph = (np.concatenate(parts) for parts in zip(*nodes, strict=True))
        self._read_nodes(head, begin, end, graph)

    def _spans(self, graphs: Ints) -> tuple[Ints, Ints]:
        rows = [self.graphs[graph] for graph in graphs.tolist()]
        return np.array([row.begin for row in rows]), np.array([row.end for row in rows])

    def _read_graphs(self, graphs: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Read what graphs declare; return head, begin, end and graph of each of their nodes."""
        found = self._walk(
            GraphProto, *self._spans(graphs), (_NODE, *_DECLARED, _INITIALIZER, _SPARSE)
        )
        self._keep(found, graphs, (_NODE,))
        stored = found.of(_INITIALIZER)
        tensors, inner = self._read_tensors(stored.begin, stored.end)
        self.stored.append(_named(inner, _TENSOR_NAME, graphs[stored.owner]))
        self.tensors.append(tensors)
        sparse = found.of(_SPARSE)
        inner = self._walk(SparseTensorProto, sparse.begin, sparse.end, (_SPARSE_VALUES,))
        inner = inner.of(_SPARSE_VALUES)  # its name is that of the whole
        owner = sparse.owner[inner.owner]
        names = self._walk(TensorProto, inner.begin, inner.end)
        self.stored.append(_named(names, _TENSOR_NAME, graphs[owner]))
        begin, end = sparse.begin[inner.owner], sparse.end[inner.owner]
        none = np.full(begin.size, -1)
        self.tensors.append(Tensors(begin, end, none, np.zeros(begin.size, np.bool_)))
        self.given.append(self._read_infos(found, graphs, _GIVEN))
        self.returned.append(self._read_infos(found, graphs, _RETURNED))
        self._read_infos(found, graphs, _VALUE_INFO)
        nodes = found.of(_NODE)
        return nodes.head, nodes.begin, nodes.end, graphs[nodes.owner]

    def _read_functions(self, graphs: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Do for functions as :meth:`_read_graphs` does."""
        found = self._walk(FunctionProto, *self._spans(graphs), (_FUNCTION_NODE, _FUNCTION_INFO))
        self._keep(found, graphs, (_FUNCTION_NODE,))
        self._read_infos(found, graphs, _FUNCTION_INFO)
        for number, names in (
            (FunctionProto.INPUT_FIELD_NUMBER, self.given),
            (FunctionProto.OUTPUT_FIELD_NUMBER, self.returned),
        ):
            rows = found.of(number)
            names.append(_Names(rows.begin, rows.end, graphs[rows.owner]))
        nodes = found.of(_FUNCTION_NODE)
        return nodes.head, nodes.begin, nodes.end, graphs[nodes.owner]

    def _read_nodes(self, head: Ints, begin: Ints, end: Ints, graph: Ints) -> None:
        """Read the nodes of a level, and list the bodies that they hold."""
        found = self._walk(NodeProto, begin, end, (_ATTRIBUTE,))
        first = sum(level.graph.size for level in self.nodes)
        read, made, stated = found.of(_INPUT), found.of(_OUTPUT), found.of(_ATTRIBUTE)
        self.read.append(_Names(read.begin, read.end, graph[read.owner]))
        self.made.append(_Names(made.begin, made.end, graph[made.owner]))
        number, example = intern(self.data, stated.begin, stated.end)
        at, stop = stated.begin[example], stated.end[example]
        inner = self._walk(AttributeProto, at, stop, (*_BODIES, _ATTRIBUTE_TENSOR))
        called = _single(inner, AttributeProto.NAME_FIELD_NUMBER, at.size)
        # equal attributes hold the same at the same distance from where they begin
        bodies = np.flatnonzero(np.isin(inner.number, _BODIES))
        # an attribute that says it is a number is one, whatever else it holds
        said = inner.of(AttributeProto.TYPE_FIELD_NUMBER)
        kind = np.zeros(at.size, np.int64)
        kind[said.owner] = varints(self.data, said.begin, said.end)[0]
        holds = np.isin(kind[inner.owner[bodies]], _KINDS_WITH_BODIES)
        others = bodies[~holds]
        require_regular(self.data, GraphProto.DESCRIPTOR, inner.begin[others], inner.end[others])
        for row in bodies[holds].tolist():
            which = inner.owner[row]
            name = self.data[called[0, which] : called[1, which]].tobytes()
            if inner.number[row] == _ATTRIBUTE_GRAPHS:
                before = (inner.owner[:row] == which) & (inner.number[:row] == _ATTRIBUTE_GRAPHS)
                name += b"[%d]" % before.sum()
            for place in np.flatnonzero(number == which).tolist():
                node, shift = int(stated.owner[place]), stated.begin[place] - at[which]
                span = int(inner.begin[row] + shift), int(inner.end[row] + shift)
                self.graphs.append(
                    GraphRow(GraphKind.BODY, *span, int(graph[node]), first + node, name)
                )
        tensor = inner.of(_ATTRIBUTE_TENSOR)
        tensors, _ = self._read_tensors(tensor.begin, tensor.end)
        which = lookup(tensor.owner, number.astype(np.int64))
        has = np.flatnonzero(which >= 0)
        shift = stated.begin[has] - at[number[has]]
        self.in_attributes.append((first + stated.owner[has], tensors.at(which[has]).moved(shift)))
        spans = zip(at.tolist(), stop.tolist(), strict=True)
        texts = [self.data[a:b].tobytes() for a, b in spans]
        is_remark = ~np.isin(found.number, _PLAIN)
        self.is_spread |= NodeProto.DEVICE_CONFIGURATIONS_FIELD_NUMBER in found.number
        words = [_single(found, which, graph.size) for which in (_DOMAIN, _OP_TYPE, _OVERLOAD)]
        self.nodes.append(
            _Nodes(
                graph,
                head,
                end,
                attributes=self._attribute_sets(stated.owner, number, texts, graph.size),
                in_count=np.bincount(read.owner, minlength=graph.size),
                out_count=np.bincount(made.owner, minlength=graph.size),
                operator=np.concatenate(words),
                name=_single(found, _NODE_NAME, graph.size),
                remarked=np.isin(np.arange(graph.size), found.owner[is_remark]),
            )
        )

    def _attribute_sets(self, owner: Ints, number: Ids, texts: list[bytes], size: int) -> Ints:
        """Return the number of each node's set of attributes, (size,); new sets are listed."""
        count = np.bincount(owner, minlength=size)
        found = np.zeros(size, np.int64)
        first = offsets(count)
        for width in ascending(count[count > 0]).tolist():
            here = np.flatnonzero(count == width)
            rows = number[first[here][:, None] + np.arange(width)]
            which, example = distinct(*rows.T)
            ids = [
                self.attribute_sets.setdefault(
                    tuple(texts[k] for k in row), len(self.attribute_sets)
                )
                for row in rows[example].tolist()
            ]
            found[here] = np.array(ids)[which]
        return found

    # All of it together.

    def _assemble(self) -> Table:
        columns = {
            name: np.concatenate([getattr(level, name) for level in self.nodes], axis=-1)
            for name in _Nodes._fields
        }
        operators, operator = self._operators(columns.pop("operator"))
        name_at, name_end = columns.pop("name")
        try:
            names = _Resolved(
                self.data,
                np.array([graph.parent for graph in self.graphs]),
                *map(_joined, (self.given, self.stored, self.made, self.read, self.returned)),
            )
        except _UnresolvedError as error:
            raise self._refusal(*error.args) from None
        size, count = operator.size, names.name_at.size
        in_count, out_count = columns["in_count"], columns["out_count"]
        producer = np.full(count, -1)
        producer[names.made] = np.repeat(np.arange(size), out_count)
        producer[OMITTED] = -1
        stored = _all_tensors(self.tensors)
        tensor = np.full(count, -1)
        tensor[names.stored] = np.arange(stored.begin.size)
        node = np.concatenate([nodes for nodes, _ in self.in_attributes])
        constants = _all_tensors([tensors for _, tensors in self.in_attributes])
        of_constant = np.array([is_constant(kind) for kind in operators], np.bool_)
        here = np.flatnonzero(of_constant[operator[node]] & (out_count[node] > 0))
        tensor[names.made[offsets(out_count)[node[here]]]] = stored.begin.size + np.arange(
            here.size
        )
        tensor[OMITTED] = -1
        given = np.zeros(count, np.bool_)
        given[names.given] = True
        order, first, many = group(_joined(self.returned).graph, len(self.graphs))
        self._require_order(columns["graph"], producer, names.read, in_count)
        return Table(
            data=self.data,
            graphs=self.graphs,
            nodes=Nodes(
                **columns,
                operator=operator,
                in_at=offsets(in_count),
                out_at=offsets(out_count),
                name_at=name_at,
                name_size=name_end - name_at,
            ),
            values=Values(
                name_at=names.name_at,
                name_size=names.name_size,
                graph=names.graph,
                producer=producer,
                tensor=tensor,
                given=given,
            ),
            inputs=names.read,
            outputs=names.made,
            tensors=_all_tensors([stored, constants.at(here)]),
            parts=self._parts(),
            infos=self._infos(),
            returned=[
                names.returned[order[a : a + n]]
                for a, n in zip(first.tolist(), many.tolist(), strict=True)
            ],
            operators=operators,
            attribute_sets=list(self.attribute_sets),
            tensor_types=list(self.tensor_types),
            notes=self.notes,
            is_spread=self.is_spread,
        )

    def _parts(self) -> FileParts:
        graphs, found = zip(*self.parts, strict=True)
        _, *columns = zip(*found, strict=True)
        return FileParts(np.concatenate(graphs), *map(np.concatenate, columns))

    def _infos(self) -> Infos:
        graphs, rows, names = zip(*self.infos, strict=True)
        begin = np.concatenate([found.begin for found in names])
        return Infos(
            graph=np.concatenate(graphs),
            number=np.concatenate([found.number for found in rows]),
            head=np.concatenate([found.head for found in rows]),
            name_at=begin,
            name_size=np.concatenate([found.end for found in names]) - begin,
            end=np.concatenate([found.end for found in rows]),
        )

    def _operators(self, spans: Ints) -> tuple[list[tuple[bytes, bytes, bytes]], Ints]:
        """Number operators: what each number stands for, and the number of each node."""
        numbers, texts = [], []
        for begin, end in zip(spans[::2], spans[1::2], strict=True):
            number, example = intern(self.data, begin, end)
            numbers.append(number)
            places = zip(begin[example].tolist(), end[example].tolist(), strict=True)
            texts.append([self.data[a:b].tobytes() for a, b in places])
        operator, example = distinct(*numbers)
        domains, types, overloads = texts
        rows = np.stack(numbers, axis=1)[example].tolist()
        return [(domains[a], types[b], overloads[c]) for a, b, c in rows], operator

    def _require_order(self, graph: Ints, producer: Ints, read: Ints, in_count: Ints) -> None:
        """Refuse nodes that do not follow what they, or the nodes in their bodies, read."""
        reader = np.repeat(np.arange(graph.size), in_count)
        maker = producer[read]
        reader, maker = reader[maker >= 0], maker[maker >= 0]
        owner = np.array([row.owner for row in self.graphs])
        # what a body reads, the node that holds it reads
        while (inside := np.flatnonzero(graph[maker] != graph[reader])).size:
            reader[inside] = owner[graph[reader[inside]]]
        wrong = set(graph[reader[maker >= reader]].tolist())
        if not wrong:
            return
        parent = [row.parent for row in self.graphs]
        while inner := {number for number in wrong if parent[number] >= 0}:
            wrong = (wrong - inner) | {parent[number] for number in inner}
        raise _DisorderError(sorted(wrong))

    def _refusal(self, part: int, row: int) -> InvalidModelError:
        """Say what is wrong with a name."""
        names = _joined((self.given, self.stored, self.made, self.read, self.returned)[part])
        name = self._text(names.begin[row], names.end[row])
        graph = int(names.graph[row])
        while part == _READ and self.graphs[graph].parent >= 0:
            graph = self.graphs[graph].parent
        where = self._name_of(graph)
        node = self._label_of(part, row) if part in {_MADE, _READ} else ""
        what = {
            _INPUTS: f"two inputs are named {name!r}",
            _STORED: f"two initializers are named {name!r}",
            _MADE: f"{name!r} is made twice, again by {node}",
            _READ: f"{node} reads {name!r}, which nothing defines",
            _RETURNS: f"its output {name!r} is never made",
        }[part]
        prefix = f"graph {where!r}: " if where else ""
        return InvalidModelError(f"{self.label}: invalid model: {prefix}{what}")

    def _text(self, begin: int, end: int) -> str:
        return self.data[begin:end].tobytes().decode()

    def _name_of(self, graph: int) -> str:
        """Return the name of a graph or function."""
        is_function = self.graphs[graph].kind is GraphKind.FUNCTION
        wanted = FunctionProto.NAME_FIELD_NUMBER if is_function else GraphProto.NAME_FIELD_NUMBER
        for graphs, found in self.parts:
            for row in np.flatnonzero((graphs == graph) & (found.number == wanted)).tolist():
                return self._text(found.begin[row], found.end[row])
        return ""

    def _label_of(self, part: int, row: int) -> str:
        """Return the operator and the name of the node that reads or makes a value."""
        made = _joined(self.made)
        in_count, out_count, operator, named = (
            np.concatenate([getattr(level, name) for level in self.nodes], axis=-1)
            for name in ("in_count", "out_count", "operator", "name")
        )
        count = in_count if part == _READ else out_count
        node = np.repeat(np.arange(count.size), count)[row]
        first = offsets(out_count)[node]
        outputs = range(first, first + out_count[node])
        texts = [self._text(*named[:, node])]
        texts += [self._text(made.begin[row], made.end[row]) for row in outputs]
        return f"{self._text(*operator[2:4, node])} {next(filter(None, texts), '')!r}"


_INPUTS, _STORED, _MADE, _READ, _RETURNS = range(5)
"""What names are for, in the order in which :class:`_Resolved` takes them."""


class _UnresolvedError(Exception):
    """A name is defined twice, or not at all: what it is for, and which of these names it is."""


class _Resolved:
    """The values that names stand for, scope by scope, in the order in which names stand.

    Args:
        data: The file.
        parent: The graph round each graph; -1 for none.
        parts: Inputs of graphs, initializers, outputs of nodes, inputs of nodes, outputs of graphs.

    Raises:
        _UnresolvedError: A name is defined twice in a graph, or nowhere it could be seen.
    """

    def __init__(self, data: Bytes, parent: Ints, *parts: _Names) -> None:
        # the name of what is omitted is the first, so it has number 0
        omitted = np.zeros(1, np.int64)
        every = _joined([_Names(omitted, omitted, omitted), *parts])
        number, _ = intern(data, every.begin, every.end)
        width = int(number.max()) + 1
        ends = np.cumsum([1, *(part.begin.size for part in parts)])[:-1]
        texts = np.split(number.astype(np.int64), ends)[1:]
        keys = [part.graph * width + text for part, text in zip(parts, texts, strict=True)]
        _require_once(keys[_INPUTS], _INPUTS)
        _require_once(keys[_STORED], _STORED)
        # what is given may have a default that is stored, so both are one value
        both = np.concatenate(keys[:2])
        row = np.sort(np.unique(both, return_index=True)[1])
        declared = both[row]
        is_named = np.flatnonzero(texts[2])
        defined = np.concatenate([declared, keys[2][is_named]])
        names = _joined([_joined(parts[:2]).at(row), parts[2].at(is_named)])
        _require_once(defined, _MADE, is_named, declared.size)
        everything = _joined([_Names(omitted, omitted, omitted), names])
        self.name_at, self.graph = everything.begin, everything.graph
        self.name_size = everything.end - everything.begin
        self.given, self.stored = (lookup(defined, keys[which]) + 1 for which in (0, 1))
        self.made = np.zeros(texts[2].size, np.int64)
        self.made[is_named] = np.arange(declared.size, defined.size) + 1
        self.read, self.returned = (
            _visible(defined, width, parent, parts[which], texts[which])
            for which in (_READ, _RETURNS)
        )
        for part, found in ((_READ, self.read), (_RETURNS, self.returned)):
            if (found < 0).any():
                raise _UnresolvedError(part, int(found.argmin()))


def _visible(defined: Ints, width: int, parent: Ints, names: _Names, text: Ints) -> Ints:
    """Return the value that each name (n,) stands for where it is read; -1 if it has none."""
    value = np.zeros(text.size, np.int64)
    graph = names.graph.copy()
    left = np.flatnonzero(text)
    while left.size:
        row = lookup(defined, graph[left] * width + text[left])
        value[left] = row + 1
        left = left[row < 0]
        graph[left] = parent[graph[left]]
        lost = left[graph[left] < 0]
        value[lost] = -1
        left = left[graph[left] >= 0]
    return value


def _require_once(keys: Ints, part: int, rows: Ints | None = None, declared: int = 0) -> None:
    """Refuse a key that comes twice; behind the declared ones they are those of *rows*."""
    _, first = np.unique(keys, return_index=True)
    if first.size < keys.size:
        again = int(np.setdiff1d(np.arange(keys.size), first)[0]) - declared
        raise _UnresolvedError(part, again if rows is None else int(rows[again]))


def _all_tensors(parts: Sequence[Tensors]) -> Tensors:
    """Return tensors one part behind the other."""
    return Tensors(*map(np.concatenate, zip(*parts, strict=True)))


def _joined(parts: Sequence[_Names]) -> _Names:
    """Return names one part behind the other."""
    return _Names(*map(np.concatenate, zip(*parts, strict=True)))


def _named(found: Fields, number: int, graph: Ints) -> _Names:
    """Return the names that messages (n,) of graphs (n,) have in a field."""
    begin, end = _single(found, number, graph.size)
    return _Names(begin, end, graph)


def _single(found: Fields, number: int, size: int) -> Ints:
    """Return where each message's field of a number begins and ends, (2, size); 0 without one."""
    rows = found.of(number)
    spans = np.zeros((2, size), np.int64)
    spans[:, rows.owner] = rows.begin, rows.end
    return spans


def is_constant(operator: tuple[bytes, bytes, bytes]) -> bool:
    """Tell whether an operator is the standard's Constant."""
    return operator[0] in {b"", b"ai.onnx"} and operator[1] == b"Constant"
