"""Read an ONNX file into the IR, or build a model from ONNX text."""

from __future__ import annotations

import gc
import stat
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import onnx
import onnx.parser
import onnx.shape_inference
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from dplcli.errors import InvalidModelError, ModelLoadError
from dplcli.ir import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Remarks,
    SchemaLibrary,
    Tensor,
    TensorType,
    TypeStatement,
    Value,
)
from dplcli.ir.model import NO_ATTRIBUTES, in_order, is_in_function, record_uses
from dplcli.ir.operators import schema_of
from dplcli.ir.types import DTYPE_CODES, dtype_name
from dplcli.onnx_io import infer
from dplcli.onnx_io.convert import (
    Home,
    OnnxSchemas,
    ProtoTensor,
    SparseTensor,
    decode_attribute,
    decode_statement,
    decode_type,
    graphs_of,
    header,
    remarks_of,
    text_field_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence

    from google.protobuf.message import Message
    from numpy.typing import NDArray
    from onnx import FunctionProto, OperatorSetIdProto

    RepeatedNodes = MutableSequence[NodeProto]


# The IR's decoder for models that came from protobuf.


_SHORT_BYTES = 4096
"""Most bytes of a node's attributes that are remembered."""


class ProtoCodec:
    """A :class:`dplcli.ir.Codec` for protobuf sources.

    Attributes and types that are encoded alike are decoded once, and nodes share the result: in
    most nets they repeat.

    Args:
        home: Where the model comes from; external data lies beside it.
    """

    schemas: SchemaLibrary = OnnxSchemas()

    def __init__(self, home: Home) -> None:
        self.home = home
        self._attributes: dict[tuple[bytes, ...], dict[str, Attribute]] = {}
        self._types: dict[bytes, TensorType | None] = {}

    def attributes(self, node: Node) -> dict[str, Attribute]:
        """Decode the attributes of *node*."""
        proto = node.source
        assert isinstance(proto, onnx.NodeProto)  # noqa: S101  # the loader sets nothing else
        if node.subgraphs:
            return self._decoded(node, proto)
        encoded = tuple([item.SerializeToString() for item in proto.attribute[:]])
        known = self._attributes.get(encoded)
        if known is None:
            known = self._decoded(node, proto)
            refers = any(item.ref_attr_name for item in proto.attribute)  # which depends on where
            if sum(map(len, encoded)) <= _SHORT_BYTES and not refers:
                self._attributes[encoded] = known
        return known

    def _decoded(self, node: Node, proto: onnx.NodeProto) -> dict[str, Attribute]:
        attributes = {}
        for item in proto.attribute:
            inside = bool(item.ref_attr_name) and is_in_function(node.graph)
            attributes[item.name] = decode_attribute(
                item, node.subgraphs, self.home, in_function=inside
            )
        return attributes

    def remarks(self, node: Node) -> Remarks:
        """Read the documentation and metadata of a loaded node."""
        proto = node.source
        assert isinstance(proto, onnx.NodeProto)  # noqa: S101  # the loader sets nothing else
        return remarks_of(proto)

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""
        if type(source) is TensorProto:
            return ProtoTensor(source, self.home)
        if isinstance(source, SparseTensorProto):
            return SparseTensor(source, self.home)
        assert isinstance(source, Tensor)  # noqa: S101  # nothing else is ever set
        return source

    def declared_type(self, source: object) -> TensorType | None:
        """Decode a ``ValueInfoProto`` or ``TypeProto``; None if it is not a dense tensor's."""
        proto = source.type if isinstance(source, ValueInfoProto) else source
        assert isinstance(proto, TypeProto)  # noqa: S101  # the loader sets nothing else
        encoded = proto.SerializeToString()
        if encoded not in self._types:
            self._types[encoded] = decode_type(proto)
        return self._types[encoded]

    def infer_types(
        self, model: Model, *, anew: bool = False
    ) -> tuple[Mapping[Value, TensorType], str]:
        """Run onnx's shape inference over the model as it was loaded, or as it is now."""
        return infer.infer_types_anew(model) if anew else infer.infer_types(model)

    statements_hold = staticmethod(infer.statements_hold)
    infer_node = staticmethod(infer.infer_node)
    evaluate = staticmethod(infer.evaluate)


# Get the message out of a file, or say what the file is instead.


_LFS_MARK = b"version https://git-lfs"
_TEXT_PROBE = 512
_LARGEST_MESSAGE = 2**31 - 1
_SMALL = 1 << 24
_VARINT, _BYTES, _GROUP = 0, 2, 3
_FIXED = {1: 8, 5: 4}
_TENSOR_DATA = frozenset(
    field.number
    for field in TensorProto.DESCRIPTOR.fields
    if field.name == "raw_data" or (field.name.endswith("_data") and field.name != "external_data")
)
_PROSE = frozenset({"doc_string", "producer_name", "producer_version"})


def read_model_file(path: Path) -> bytes:
    """Return the bytes of the file at *path*.

    Raises:
        ModelLoadError: It is missing, no file, too large or cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ModelLoadError(f"{path}: is not a regular file", hint="save the model to a file")
        if status.st_size > _LARGEST_MESSAGE:
            raise ModelLoadError(
                f"{path}: is larger than 2 GB, which protobuf cannot hold",
                hint="save it with its weights as external data",
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise ModelLoadError(
            f"{path}: is a directory, not a model", hint="name the .onnx file inside it"
        ) from error
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from error


def parse_model(data: bytes, path: Path) -> tuple[ModelProto, list[str]]:
    """Parse the bytes of the file at *path*, without its external data.

    Returns:
        The model, all of whose text is text, and what there is to say about that.

    Raises:
        ModelLoadError: They are no model, or not a whole one.
        InvalidModelError: A name in it is not UTF-8.
    """
    if not data:
        raise ModelLoadError(f"{path}: is empty")
    if data.startswith(_LFS_MARK):
        raise ModelLoadError(
            f"{path}: is a Git LFS pointer, not the model itself", hint="run: git lfs pull"
        )
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelLoadError(f"{path}: {_what_is_wrong(data)}") from error
    if not proto.HasField("graph"):
        raise ModelLoadError(f"{path}: {_what_is_wrong(data)}: it holds no graph")
    return proto, [] if _holds_only_text(data) else _mended(proto, path)


def _what_is_wrong(data: bytes) -> str:
    probe = data[:_TEXT_PROBE]
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in probe):  # noqa: PLR2004  # ASCII space
        return "is a text file, not a binary ONNX model"
    return "is not an ONNX model, or was cut off"


def _holds_only_text(data: bytes) -> bool:
    """Tell whether every string in an encoded model is UTF-8.

    ONNX is declared in proto2, where protobuf accepts any bytes as text. In proto3 it refuses what
    is no text. So we declare the same messages in proto3, and protobuf looks at all fields in C.
    """
    try:
        _strict_class()().ParseFromString(_without_bulk(data))
    except DecodeError:
        return False
    return True


@cache
def _strict_class() -> type[Message]:
    declared = FileDescriptorProto()
    ModelProto.DESCRIPTOR.file.CopyToProto(declared)
    declared.syntax = "proto3"
    pool = DescriptorPool()
    pool.Add(declared)
    strict: type[Message] = GetMessageClass(
        pool.FindMessageTypeByName(ModelProto.DESCRIPTOR.full_name)
    )
    return strict


def _without_bulk(data: bytes) -> bytes:
    """Leave the data of initializers out of a large model, so that it is not in memory twice."""
    if len(data) <= _SMALL:
        return data
    graph, initializer = ModelProto.GRAPH_FIELD_NUMBER, GraphProto.INITIALIZER_FIELD_NUMBER
    return b"".join(_lean(memoryview(data), (graph, initializer)))


def _lean(data: memoryview, path: tuple[int, ...]) -> list[bytes | memoryview]:
    """Return the parts of a message that parses.

    Args:
        data: The message; a tensor, if *path* is empty.
        path: The fields below which the data of tensors is left out.
    """
    parts: list[bytes | memoryview] = []
    start = at = groups = 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        elif kind != _BYTES:
            groups += 1 if kind == _GROUP else -1
        else:
            length, at = _varint(data, at)
            at += length
            if groups or field not in (path[:1] or _TENSOR_DATA):
                continue
            parts.append(data[start:begin])
            start = at
            if path:
                inner = _lean(data[at - length : at], path[1:])
                parts += [header(field, sum(map(len, inner))), *inner]
    return [*parts, data[start:]]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a place, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # noqa: PLR2004  # the last one
            return number, at
        shift += 7


def _mended(proto: ModelProto, path: Path) -> list[str]:
    """Spell out the bytes of prose that is not UTF-8; refuse names that are not.

    Raises:
        InvalidModelError: A name in it is not UTF-8.
    """
    places = []
    for message, field, where in _strings(proto, ""):
        value = getattr(message, field.name)
        wrong = [each for each in (value if field.is_repeated else [value]) if type(each) is bytes]
        if not wrong:
            continue
        if field.name not in _PROSE and not (field.name == "value" and "metadata_props[" in where):
            raise InvalidModelError(
                f"{path}: invalid model: {wrong[0]!r} is not UTF-8 text ({where}.{field.name})",
                hint="save the model again with names in UTF-8",
            )
        setattr(message, field.name, wrong[0].decode(errors="backslashreplace"))
        places.append(f"{where}.{field.name}")
    if not places:  # a later field of the file replaced what is not text
        return []
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return [f"{path}: is not UTF-8 text: {places[0]}{more}; the bytes are spelled out"]


def _strings(message: Message, where: str) -> Iterator[tuple[Message, FieldDescriptor, str]]:
    """Find the fields of *message* that hold strings, and say where each stands."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield message, field, where or "model"
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for number, item in enumerate(value if field.is_repeated else [value]):
                label = _label(item) if field.is_repeated else ""
                place = f"[{label or number}]" if field.is_repeated else ""
                yield from _strings(item, f"{where}.{field.name}{place}".lstrip("."))


def _label(item: Any) -> str:  # noqa: ANN401  # any message
    """Return the name of a message that has one."""
    name = getattr(item, "name", "") or getattr(item, "key", "")
    return name if isinstance(name, str) else ""


# Topological order of node messages, for files that do not keep it.


def sort_nodes(protos: Sequence[NodeProto]) -> list[NodeProto]:
    """Sort *protos* so that producers come first; stable.

    Names that none of *protos* makes are taken as defined elsewhere. Nodes on a cycle, and those
    that depend on one, are left out.
    """
    maker = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    consumers: dict[int, list[int]] = {index: [] for index in range(len(protos))}
    for index, proto in enumerate(protos):
        for made_by in {maker[name] for name in _names_read(proto) if name in maker}:
            consumers[made_by].append(index)
    return [protos[index] for index in in_order(consumers)]


def _names_read(proto: NodeProto) -> Iterator[str]:
    yield from proto.input
    for _, graph in graphs_of(proto):
        yield from _names_captured(graph)


def _names_captured(graph: GraphProto) -> set[str]:
    defined = {info.name for info in graph.input}
    defined |= {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    defined |= {name for proto in graph.node for name in proto.output}
    read = {name for proto in graph.node for name in _names_read(proto)}
    read |= {info.name for info in graph.output}
    return read - defined


# Read an ONNX file into the IR.


ValuesByName = dict[str, Value]

_EXTERNAL_MARK = b"location"
"""The key in every reference to external data; a file without it has no such data."""

_SLICE = 512
"""How many messages to take at a time where each is needed once."""


def load_model(path: Path, *, opset: int | None = None) -> Model:
    """Read the model at *path*; external data stays where it is, unread.

    Args:
        path: The file.
        opset: The opset to raise the model to before anything else is done with it.

    Raises:
        ModelLoadError: The file is missing, empty, truncated or not ONNX.
        InvalidModelError: Its graph contradicts itself.
        OpsetError: It cannot be raised to *opset*.
        UsageError: There is no such opset, or the model's is newer.
    """
    data = read_model_file(path)
    proto, notes = parse_model(data, path)
    model = model_from_proto(proto, path.parent, str(path))
    model.path = path
    if opset is not None:
        model = _raised(model, proto, opset, path)
        model.path = path
    model.notes = [*notes, *model.notes]
    model.may_have_external_data = _EXTERNAL_MARK in data
    return model


def _raised(model: Model, proto: ModelProto, opset: int, path: Path) -> Model:
    """Raise *proto*, of which *model* was built without an error, and build a model anew."""
    from dplcli.onnx_io.opset import raise_opset  # noqa: PLC0415  # rarely needed

    check_imports(model)
    with paused_gc():
        result = raise_opset(proto, opset, str(path))
    if not result.is_changed:
        return model
    raised = model_from_proto(proto, path.parent, str(path))
    raised.notes = [*model.notes, f"{path}: {result}"]
    raised.graph.modified = True
    return raised


@contextmanager
def paused_gc() -> Iterator[None]:
    """Suspend cyclic garbage collection while many long-lived objects are made.

    At 100,000 nodes the collector would otherwise walk the growing graph again and again, which
    costs as much as building it. Afterwards the new objects count as old, without a walk.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def model_from_proto(proto: ModelProto, folder: Path, label: str) -> Model:
    """Build the IR over *proto*, which the model owns from now on.

    Args:
        proto: A parsed model, without external data.
        folder: Where its external data lies.
        label: What to call it in messages.

    Raises:
        InvalidModelError: Its graph contradicts itself.
    """
    model = Model(ProtoCodec(Home(folder, label)))
    model.source = proto
    model.ir_version = proto.ir_version
    reader = _GraphReader(model, label)
    model.opset_imports.update(reader.read_imports(proto.opset_import))
    with paused_gc():
        reader.read_main(proto.graph)
        for function in proto.functions:
            reader.read_function(function)
    return model


def built_again(model: Model) -> Model:
    """Build a loaded model anew, as it was before any pass edited it."""
    source, path = model.source, model.path
    assert isinstance(source, ModelProto)  # noqa: S101  # the loader sets nothing else
    assert path is not None  # noqa: S101  # nor leaves it out
    return model_from_proto(source, path.parent, str(path))


def check_imports(model: Model) -> None:
    """Refuse to change a model that imports a domain in two versions.

    Tools disagree on what its nodes mean: of `""` and `ai.onnx` onnxruntime takes the last one,
    onnx takes `""`. So no edit is right for both.

    Raises:
        InvalidModelError: The model does so.
    """
    if model.conflicts:
        raise InvalidModelError(
            f"{model.path or 'the model'}: {model.conflicts[0]}",
            hint="tools disagree on what its nodes mean; delete the import that is wrong from "
            "opset_import",
        )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _UndefinedError(Exception):
    """A node reads a name that nothing before it, in its graph or round it, defines."""

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name)
        self.name = name
        self.node = node


class _GraphReader:
    """Builds the graphs of one model.

    Nodes are linked in a single pass, which needs them in topological order. A graph that turns
    out not to be (files of some converters are not) is read once more, sorted, and noted. Repeated
    fields are read as slices, which takes half the time of protobuf's iterators.
    """

    def __init__(self, model: Model, label: str) -> None:
        self.model = model
        self.label = label
        self.sorting = False
        self.with_bodies: dict[str, bool] = {}
        self.op_types: dict[str, str] = {}
        self.types: dict[tuple[int, ...], TensorType] = {}
        self.statements: dict[bytes, TypeStatement] = {}

    def read_imports(self, stated: Iterable[OperatorSetIdProto], where: str = "") -> dict[str, int]:
        """Read which version of each domain is in force; note what is imported in two.

        The last one counts, as for onnxruntime.
        """
        listed: dict[str, list[OperatorSetIdProto]] = {}
        for opset in stated:
            listed.setdefault(_domain(opset.domain), []).append(opset)
        for domain, opsets in listed.items():
            if len({opset.version for opset in opsets}) > 1:
                what = f"the domain {domain!r}" if domain else "the default domain"
                versions = [f"{opset.domain!r} {opset.version}" for opset in opsets]
                times = "twice" if len(opsets) == 2 else f"{len(opsets)} times"  # noqa: PLR2004
                conflict = (
                    f"{where}imports {what} {times}: {', '.join(versions[:-1])} and {versions[-1]}"
                )
                self.model.conflicts.append(conflict)
                self.model.notes.append(
                    f"{self.label}: {conflict}; read as version {opsets[-1].version}, which "
                    "onnxruntime takes; other tools may take another"
                )
        return {domain: opsets[-1].version for domain, opsets in listed.items()}

    def read_main(self, proto: GraphProto) -> None:
        graph = self.model.graph
        self._read_sorted_if_needed(graph, lambda: self._read_graph(graph, proto, []))

    def read_function(self, proto: FunctionProto) -> None:
        opsets = self.read_imports(
            proto.opset_import, f"the function {proto.domain}::{proto.name} "
        )
        body = Graph(self.model, opsets or self.model.opset_imports)
        function = Function(proto.domain, proto.name, body)
        function.overload = proto.overload
        function.attributes = tuple(proto.attribute)
        if proto.attribute_proto:
            function.defaults = self._defaults(proto)
        function.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        function.source = proto
        if function.key in self.model.functions:
            raise self._invalid(body, f"two functions are named {proto.domain}::{proto.name}")
        self._read_sorted_if_needed(body, lambda: self._read_function_body(body, proto))
        self.model.functions[function.key] = function

    def _defaults(self, proto: FunctionProto) -> dict[str, Attribute]:
        home = self.model.codec.home if isinstance(self.model.codec, ProtoCodec) else None
        return {item.name: decode_attribute(item, {}, home) for item in proto.attribute_proto}

    def _read_sorted_if_needed(self, graph: Graph, read: Callable[[], None]) -> None:
        self.sorting = False
        try:
            read()
        except _UndefinedError:
            self.sorting = True
            graph.clear()
            try:
                read()
            except _UndefinedError as error:
                raise self._invalid(
                    graph,
                    f"{error.node.op_type} {error.node.label!r} reads {error.name!r}, "
                    "which nothing defines",
                ) from None
            self.model.notes.append(
                f"{self.label}: the nodes were not in topological order; sorted"
            )

    def _read_function_body(self, body: Graph, proto: FunctionProto) -> None:
        body.name = proto.name
        body.source = proto
        for name in proto.input:
            self._add_input(body, name, None)
        self._read_body(body, proto.node, proto.output, [])
        self._declare(body.values, proto.value_info)

    def _read_graph(self, graph: Graph, proto: GraphProto, scopes: Sequence[ValuesByName]) -> None:
        graph.name = proto.name
        graph.source = proto
        values = graph.values
        for info in proto.input:
            self._add_input(graph, info.name, info)
        for tensor in proto.initializer[:]:
            constant = self._store(graph, tensor.name, tensor)
            if constant.type_source is None:
                constant.type_source = self._type_of(tensor)
        for sparse in proto.sparse_initializer:
            self._store(graph, sparse.values.name, sparse)
        self._read_body(graph, proto.node, [info.name for info in proto.output], scopes)
        self._declare(values, proto.value_info)
        for info in proto.output:
            declared = values.get(info.name)
            if declared is not None and declared.type_source is None:
                declared.type_source = info

    def _add_input(self, graph: Graph, name: str, stated: ValueInfoProto | None) -> None:
        if name in graph.values:
            raise self._invalid(graph, f"two inputs are named {name!r}")
        value = graph.values[name] = Value(name, graph)
        value.is_graph_input = True
        value.type_source = stated
        graph.inputs.append(value)

    def _store(self, graph: Graph, name: str, source: object) -> Value:
        """Let the value *name* be an initializer."""
        constant = graph.values.get(name)
        if constant is None:
            constant = graph.values[name] = Value(name, graph)
        elif constant.is_initializer:
            raise self._invalid(graph, f"two initializers are named {name!r}")
        constant.set_initializer(source)
        return constant

    def _type_of(self, tensor: TensorProto) -> TensorType:
        """Return the type of a tensor; most tensors of a model share a few."""
        key = (tensor.data_type, *tensor.dims[:])
        known = self.types.get(key)
        if known is None:
            known = self.types[key] = TensorType(dtype_name(key[0]), key[1:])
        return known

    def _declare(self, values: ValuesByName, infos: MutableSequence[ValueInfoProto]) -> None:
        """Note what the file states of values beside the interface of their graph."""
        statements = self.statements
        slices = (infos[i : i + _SLICE] for i in range(0, len(infos), _SLICE))
        for info in chain.from_iterable(slices):
            name = info.name
            declared = values.get(name)
            if declared is None:
                continue
            known = declared.type_source
            if known is not None and type(known) is not TensorType:
                continue
            encoded = info.SerializeToString()[text_field_size(name) :]
            statement = statements.get(encoded)
            if statement is None:
                statement = statements[encoded] = TypeStatement(encoded, decode_statement)
            declared.type_source = statement

    def _read_body(
        self,
        graph: Graph,
        protos: RepeatedNodes,
        outputs: Iterable[str],
        scopes: Sequence[ValuesByName],
    ) -> None:
        if self.sorting:
            self._sort(graph, protos)
        inner_scopes = [*scopes, graph.values]
        for proto in protos[:]:
            self._read_node(graph, proto, inner_scopes)
        for name in outputs:
            value = _find(name, inner_scopes)
            if value is None:
                raise self._invalid(graph, f"its output {name!r} is never made")
            graph.add_output(value)

    def _read_node(self, graph: Graph, proto: NodeProto, scopes: Sequence[ValuesByName]) -> None:
        domain, op_type = proto.domain, proto.op_type
        op_type = self.op_types.setdefault(op_type, op_type)
        node = Node(graph, op_type, domain and _domain(domain), proto.name, proto)
        if domain:
            node.overload = proto.overload
        values = graph.values
        inputs: list[Value | None] = []
        for name in proto.input[:]:
            value = values.get(name) if name else None
            if value is None and name:
                value = _find(name, scopes)
                if value is None:
                    raise _UndefinedError(name, node)
            inputs.append(value)
        node.inputs = tuple(inputs)
        record_uses(node)
        if not proto.attribute:
            node.attributes = NO_ATTRIBUTES
        elif self._may_have_bodies(node):
            self._read_bodies(node, proto, scopes)
        outputs: list[Value | None] = []
        for name in proto.output[:]:
            if name in values:
                raise self._invalid(
                    graph, f"{name!r} is made twice, again by {node.op_type} {node.label!r}"
                )
            output = Value(name, graph, node, len(outputs)) if name else None
            if output is not None:
                values[name] = output
            outputs.append(output)
        node.outputs = tuple(outputs)
        graph.append(node)

    def _may_have_bodies(self, node: Node) -> bool:
        """Tell whether a node can have graph attributes; unknown operators can."""
        op_type = node.op_type
        known = None if node.domain else self.with_bodies.get(op_type)
        if known is None:
            schema = schema_of(node)
            kinds = () if schema is None else schema.attributes.values()
            known = schema is None or "graph" in kinds or "graphs" in kinds
            if not node.domain:
                self.with_bodies[op_type] = known
        return known

    def _read_bodies(self, node: Node, proto: NodeProto, scopes: Sequence[ValuesByName]) -> None:
        bodies = {}
        for name, source in graphs_of(proto):
            body = bodies[name] = Graph(self.model, node.graph.opset_imports, owner=node)
            self._read_graph(body, source, scopes)
        if bodies:
            node.subgraphs = bodies

    def _sort(self, graph: Graph, protos: RepeatedNodes) -> None:
        """Bring the messages themselves into topological order."""
        before = list(protos)
        ordered = sort_nodes(before)
        if len(ordered) < len(before):
            kept = set(map(id, ordered))
            culprit = next(proto for proto in before if id(proto) not in kept)
            label = culprit.name or next(iter(culprit.output), culprit.op_type)
            raise self._invalid(graph, f"node {label!r} lies on or behind a cycle")
        if ordered != before:
            del protos[:]
            protos.extend(ordered)
            graph.modified = True

    def _invalid(self, graph: Graph, what: str) -> InvalidModelError:
        where = f"graph {graph.name!r}: " if graph.name else ""
        return InvalidModelError(f"{self.label}: invalid model: {where}{what}")


def _find(name: str, scopes: Sequence[ValuesByName]) -> Value | None:
    for scope in reversed(scopes):
        value = scope.get(name)
        if value is not None:
            return value
    return None


# Models made from scratch: from ONNX text, and from made-up graphs.


DEFAULT_OPSET = 21
_NO_GRAPH = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]> empty () => () {{}}\n'
_DEFAULT_HEADER = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]>\n'


def model_from_text(text: str, label: str) -> Model:
    """Read ONNX text; without a header of its own it is of opset 21.

    Raises:
        InvalidModelError: It is no model; says why.
    """
    header = "" if text.lstrip().startswith("<") else _DEFAULT_HEADER
    return _from_text(header + text, label, "is not a model in ONNX text", is_checked=True)


def functions_from_text(text: str, label: str) -> Model:
    """Read functions in ONNX text, with or without a model before them.

    Raises:
        InvalidModelError: They are no functions; says why.
    """
    whole = text if text.lstrip().startswith("<ir_version") else _NO_GRAPH + text
    return _from_text(whole, label, "is not ONNX text", is_checked=False)


def _from_text(text: str, label: str, wrong: str, *, is_checked: bool) -> Model:
    try:
        proto = onnx.parser.parse_model(text)
        if is_checked:
            onnx.checker.check_model(proto)
    except (onnx.parser.ParseError, onnx.checker.ValidationError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidModelError(f"{label}: {wrong}: {reason}") from error
    return model_from_proto(proto, Path(), label)


class MadeUpGraph(Protocol):
    """A graph, by names.

    Attributes:
        nodes: Its nodes in topological order, each with an operator, inputs, outputs, attributes.
        inputs: Element type and shape of each input.
        constants: Its initializers.
        outputs: Names of what it returns.
    """

    nodes: list[Any]
    inputs: dict[str, tuple[str, tuple[int, ...]]]
    constants: dict[str, NDArray[Any]]
    outputs: list[str]


def build_model(graph: MadeUpGraph, opset: int) -> Model | None:
    """Make a model of a made-up graph; None if operators and shapes do not fit together."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
        for name, (dtype, shape) in graph.inputs.items()
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    try:
        nodes = [
            onnx.helper.make_node(node.op_type, node.inputs, node.outputs, **dict(node.attributes))
            for node in graph.nodes
        ]
    except (ValueError, TypeError):
        return None  # an attribute that onnx cannot tell the kind of
    outputs = [onnx.ValueInfoProto(name=name) for name in graph.outputs]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "made_up", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=10,
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        types = {info.name: info for info in inferred.graph.value_info}
        types |= {info.name: info for info in inferred.graph.output}
        del proto.graph.output[:]
        proto.graph.output.extend(types[name] for name in graph.outputs)
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, KeyError):
        return None
    return model_from_proto(proto, Path(), "made up")


# What a model's file says of itself beside its graphs.


def statements_of(model: Model) -> dict[tuple[str, str], str]:
    """Return what the file of a loaded model states, as text; empty fields are left out.

    Returns:
        The texts by kind (``doc``, ``metadata`` or ``names``) and by what states it.
    """
    found = {("metadata", "IR version"): str(model.ir_version)}
    proto = model.source
    if not isinstance(proto, ModelProto):
        return found
    found |= {
        ("doc", "model"): proto.doc_string,
        ("doc", "graph"): proto.graph.doc_string,
        ("names", "graph"): proto.graph.name,
        ("metadata", "producer"): f"{proto.producer_name} {proto.producer_version}".strip(),
        ("metadata", "domain"): proto.domain,
        ("metadata", "model version"): str(proto.model_version or ""),
    }
    for what, message in (("model", proto), ("graph", proto.graph)):
        for entry in message.metadata_props:
            found["metadata", f"{what}: {entry.key}"] = entry.value
    return {key: text for key, text in found.items() if text}
