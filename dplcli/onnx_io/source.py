"""A file that was read: its parts as messages, whenever somebody asks for one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from dplcli.ir import Tensor, TensorType
from dplcli.ir.types import dtype_name
from dplcli.onnx_io.arrays import lookup
from dplcli.onnx_io.convert import Home, ProtoTensor, SparseTensor
from dplcli.onnx_io.table import GraphKind
from dplcli.onnx_io.wire import PADDING, intern

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from google.protobuf.message import Message
    from numpy.typing import NDArray

    from dplcli.ir import Model
    from dplcli.onnx_io.arrays import Ids, Ints
    from dplcli.onnx_io.table import Table
    from dplcli.onnx_io.wire import Bytes

_SHORT = 256
"""Up to how many bytes a tensor is kept once it was read."""
_SEPARATE = (
    GraphProto.INITIALIZER_FIELD_NUMBER,
    GraphProto.SPARSE_INITIALIZER_FIELD_NUMBER,
    GraphProto.INPUT_FIELD_NUMBER,
    GraphProto.VALUE_INFO_FIELD_NUMBER,
)
"""The fields of a graph, beside its nodes, that are written one by one."""


_TENSORS, _DENSE = _SEPARATE[:2], _SEPARATE[:1]


_Message = TypeVar("_Message", bound="Message")


def parsed(kind: type[_Message], data: bytes | memoryview) -> _Message:
    """Parse one message."""
    message: _Message = kind()
    message.ParseFromString(data)
    return message


class FileTensor(ProtoTensor):
    """A tensor in a file, which becomes a message when its data is asked for.

    Args:
        source: The file.
        row: Which of :attr:`dplcli.onnx_io.table.Table.tensors` it is.
    """

    __slots__ = ("_array", "_type", "row", "source")

    def __init__(self, source: Source, row: int) -> None:
        """Look at nothing yet."""
        super().__init__(None, source.home)
        self.source = source
        self.row = row
        self._array: NDArray[Any] | None = None
        self._type: TensorType | None = None

    def numpy(self) -> NDArray[Any]:
        """Decode the data; what is short is decoded once."""
        if self._array is not None:
            return self._array
        array = super().numpy()
        if self._proto is not None and self._proto.raw_data and not self.is_external:
            self._array, self._proto = array, None
        return array

    @property
    def proto(self) -> TensorProto:
        """The message; a long one is made anew each time, so that it is in memory but once."""
        if self._proto is not None:
            return self._proto
        data = self.encoded
        proto = parsed(TensorProto, data.tobytes())
        if data.size <= _SHORT:
            self._proto = proto
        return proto

    def is_encoded_as(self, other: ProtoTensor) -> bool:
        """Tell whether the file holds the same bytes of it as another one of *other*."""
        return isinstance(other, FileTensor) and np.array_equal(self.encoded, other.encoded)

    @property
    def encoded(self) -> Bytes:
        """What the file holds of it."""
        tensors = self.source.table.tensors
        return self.source.table.data[tensors.begin[self.row] : tensors.end[self.row]]

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        if self._type is None:
            self._type = self.source.tensor_types[self.source.table.tensors.type[self.row]]
        return self._type

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self.type.dtype or "undefined"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self.type.shape or ()  # type: ignore[return-value]  # a stored tensor's are numbers

    @property
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""
        return bool(self.source.table.tensors.external[self.row])


def source_of(model: Model) -> Source:
    """Return the file that a model was loaded from."""
    assert isinstance(model.source, Source)  # noqa: S101  # the loader sets nothing else
    return model.source


def row_of(source: object) -> int:
    """Return the number of a node, tensor or graph that was loaded."""
    assert type(source) is int  # noqa: S101  # the loader sets nothing else
    return source


class Source:
    """The file of a model.

    Args:
        table: What was read.
        home: Where it comes from.
    """

    def __init__(self, table: Table, home: Home) -> None:
        self.table = table
        self.home = home
        self.view = memoryview(table.data)  # type: ignore[arg-type]  # a buffer since Python 3.12
        self.size = table.data.size - PADDING
        self._tensors: dict[int, Tensor] = {}

    def copied(self, begin: int, end: int) -> bytes:
        """Copy bytes of the file."""
        return bytes(self.view[begin:end])

    def runs(self, begin: Ints, end: Ints) -> Iterator[memoryview]:
        """Yield the bytes of spans (n,), neighbours together."""
        if begin.size:
            gap = np.flatnonzero(begin[1:] != end[:-1])
            first, last = np.append(0, gap + 1), np.append(gap, begin.size - 1)
            for a, b in zip(begin[first].tolist(), end[last].tolist(), strict=True):
                yield self.view[a:b]

    def model(self) -> ModelProto:
        """Parse all of it."""
        return parsed(ModelProto, self.view[: self.size])

    def node(self, row: int) -> NodeProto:
        """Parse a node."""
        return parsed(NodeProto, self.encoded_node(row))

    def encoded_node(self, row: int) -> bytes:
        """Copy what it holds of a node."""
        nodes = self.table.nodes
        # the tag of a node, in a graph or a function, takes one byte; what follows is its size
        head = int(nodes.head[row]) + 1
        while self.view[head] & 0x80:
            head += 1
        return self.copied(head + 1, nodes.end[row])

    def attributes(self, row: int) -> list[AttributeProto]:
        """Parse the attributes of a node."""
        encoded = self.table.attribute_sets[self.table.nodes.attributes[row]]
        return [AttributeProto.FromString(text) for text in encoded]

    def graph(self, number: int) -> GraphProto:
        """Parse a graph that is no function."""
        row = self.table.graphs[number]
        return parsed(GraphProto, self.view[row.begin : row.end])

    @cached_property
    def header(self) -> ModelProto:
        """What the file holds beside graphs."""
        return parsed(ModelProto, b"".join(self.runs(*self._spans(-1))))

    def graph_header(self, graph: int, but: tuple[int, ...] = _SEPARATE) -> GraphProto:
        """What it holds of a graph beside nodes and, by default, what is written one by one."""
        return parsed(GraphProto, b"".join(self.runs(*self._spans(graph, but))))

    def function_header(self, graph: int) -> FunctionProto:
        """What it holds of a function beside nodes."""
        return parsed(FunctionProto, b"".join(self.runs(*self._spans(graph))))

    def statement(self, graph: int) -> Any:  # noqa: ANN401  # of a graph, or of a function
        """What it holds of a graph or function beside nodes and dense initializers."""
        is_function = self.table.graphs[graph].kind is GraphKind.FUNCTION
        return self.function_header(graph) if is_function else self.graph_header(graph, _DENSE)

    def _spans(self, graph: int, but: tuple[int, ...] = ()) -> tuple[Ints, Ints]:
        rows = self._rows(graph)
        rows = rows[~np.isin(self.table.parts.number[rows], but)]
        return self.table.parts.head[rows], self.table.parts.end[rows]

    def _rows(self, graph: int) -> Ints:
        """Return the parts of a graph; they stand together."""
        return np.arange(*np.searchsorted(self.table.parts.graph, (graph, graph + 1)))

    def spans_of(self, graph: int, number: int) -> tuple[Ints, Ints, Ints]:
        """Return where the fields of a number of a graph stand: head, begin and end of each."""
        parts, rows = self.table.parts, self._rows(graph)
        rows = rows[parts.number[rows] == number]
        return parts.head[rows], parts.begin[rows], parts.end[rows]

    @cached_property
    def tensor_types(self) -> list[TensorType]:
        """Element type and shape by number."""
        found = map(TensorProto.FromString, self.table.tensor_types)
        return [TensorType(dtype_name(item.data_type), tuple(item.dims)) for item in found]

    def tensor(self, row: int) -> Tensor:
        """Return a tensor, whose data is not looked at."""
        tensor = self._tensors.get(row)
        if tensor is None:
            tensors = self.table.tensors
            tensor = FileTensor(self, row)
            if tensors.type[row] < 0:
                data = self.copied(tensors.begin[row], tensors.end[row])
                tensor = SparseTensor(SparseTensorProto.FromString(data), self.home)
            self._tensors[row] = tensor
        return tensor

    def texts(self, at: Ints, size: Ids | Ints) -> list[str]:
        """Return texts of the file, n of them."""
        view = self.view
        spans = zip(at.tolist(), (at + size).tolist(), strict=True)
        return [str(view[begin:end], "utf-8") for begin, end in spans]

    def name_of(self, graph: int) -> str:
        """Return the name of a graph that is no function."""
        _, begin, end = self.spans_of(graph, GraphProto.NAME_FIELD_NUMBER)
        return self.copied(begin[-1], end[-1]).decode() if begin.size else ""

    def place_of_body(self, graph: int) -> tuple[int, str]:
        """Return which node of the graph round it has a body, and the name of the attribute."""
        row = self.table.graphs[graph]
        first = int(np.searchsorted(self.table.nodes.graph, row.parent))
        return row.owner - first, row.attribute.decode()

    def statements(self) -> tuple[Ids, list[bytes]]:
        """Number what is stated of values, names left out.

        Returns:
            The number of each of the table's ``infos``, and what that stands for.
        """
        infos = self.table.infos
        begin = infos.name_at + infos.name_size
        number, example = intern(self.table.data, begin, infos.end)
        spans = zip(begin[example].tolist(), infos.end[example].tolist(), strict=True)
        return number, [self.copied(a, b) for a, b in spans]

    def values_stated(self) -> Ints:
        """Return the value that each of the table's ``infos`` is of; 0 for none."""
        infos, values = self.table.infos, self.table.values
        at = np.concatenate([values.name_at, infos.name_at])
        size = np.concatenate([values.name_size, infos.name_size])
        number, _ = intern(self.table.data, at, at + size)
        graph = np.concatenate([values.graph, infos.graph])
        key = graph.astype(np.int64) * at.size + number
        return lookup(key[1 : values.graph.size], key[values.graph.size :]) + 1

    def names_declared(self, graph: int, number: int) -> list[str]:
        """Return the names of what a graph declares in the fields of a number, in order."""
        table = self.table
        head, begin, _ = self.spans_of(graph, number)
        if number in _TENSORS:
            # where the tensor that a value stores begins
            stored = np.flatnonzero((table.values.tensor >= 0) & (table.values.producer < 0))
            at = table.tensors.begin[table.values.tensor[stored]]
            # A tensor without anything is no value: -1 leads to value 0, which has no name.
            value = np.append(stored, 0)[lookup(at, begin)]
            return self.texts(table.values.name_at[value], table.values.name_size[value])
        infos = table.infos
        row = lookup(infos.head, head)
        return self.texts(infos.name_at[row], infos.name_size[row])

    def declared(self, graph: int, number: int, gone: AbstractSet[str]) -> Iterator[memoryview]:
        """Yield the fields of a number of a graph, but those that declare one of *gone*."""
        head, _, end = self.spans_of(graph, number)
        if gone:
            names = self.names_declared(graph, number)
            stays = np.array([name not in gone for name in names], np.bool_)
            head, end = head[stays], end[stays]
        yield from self.runs(head, end)
