"""Read an ONNX file into the IR, or build a model from ONNX text."""

from __future__ import annotations

import gc
import stat
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

from dplcli.errors import InvalidModelError, ModelLoadError, some_of
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
from dplcli.ir.model import NO_ATTRIBUTES, followers_last, is_in_function, record_uses
from dplcli.ir.operators import canonical_domain
from dplcli.ir.traversal import find_value, outwards
from dplcli.ir.types import dtype_name, shared_type
from dplcli.onnx_io import infer
from dplcli.onnx_io.convert import (
    Home,
    OnnxSchemas,
    ProtoTensor,
    all_nodes,
    decode_annotations,
    decode_attribute,
    decode_statement,
    decode_type,
    entries_of,
    fewest_operands,
    graphs_of,
    joined_devices,
    missing_value,
    moved_devices,
    names_in_training,
    names_read,
    node_remarks,
    placements_of,
    restated,
    shardings_of,
)
from dplcli.onnx_io.external_data import IN_MEMORY, DataPlace
from dplcli.onnx_io.parts import size_of_texts
from dplcli.onnx_io.source import Source, proto_of, source_of
from dplcli.onnx_io.write import (
    encode_graph_remarks,
    encode_statement_of,
    large_tensors,
    to_proto,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from google.protobuf.message import Message
    from onnx import AttributeProto, NodeProto, OperatorSetIdProto


# The IR's decoder for models that came from protobuf.


class ProtoCodec:
    """A :class:`dplcli.ir.Codec` for models that were read from a file.

    Types that are encoded alike are decoded once: in most nets they repeat.

    Args:
        source: The file.
    """

    schemas: SchemaLibrary = OnnxSchemas()

    def __init__(self, source: Source) -> None:
        self.source = source
        self._types: dict[bytes, TensorType | None] = {}

    @staticmethod
    def remarks(node: Node) -> Remarks:
        """Read what a loaded node carries for readers and tools."""
        return node_remarks(proto_of(node))

    graph_remarks = staticmethod(encode_graph_remarks)
    statement_of = staticmethod(encode_statement_of)

    @staticmethod
    def readable(kind: Literal["graph", "value"], encoded: bytes) -> bytes | None:
        """Return what one of these two has encoded; None if it cannot be read."""
        try:
            (GraphProto if kind == "graph" else ValueInfoProto).FromString(encoded)
        except DecodeError:
            return None
        return encoded

    @staticmethod
    def placements(node: Node) -> Mapping[tuple[str, str], str]:
        """Read where a node runs: by configuration, its pipeline stage and its devices."""
        return placements_of(node.remarks.rest)

    @staticmethod
    def devices(node: Node, nodes: Iterable[Node]) -> bytes:
        """Return what *node*, in the place of *nodes*, is to say of its devices."""
        names = {value.name for value in (*node.inputs, *node.outputs) if value is not None}
        return joined_devices((each.remarks.rest for each in nodes), names)

    moved_devices = staticmethod(moved_devices)
    restated = staticmethod(restated)

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""
        if isinstance(source, Tensor):
            return source
        assert isinstance(source, (TensorProto, SparseTensorProto))  # noqa: S101  # the loader's
        return self.source.tensor(source)

    def declared_type(self, source: object) -> TensorType | None:
        """Decode what is stated of a value; None if it is not a dense tensor."""
        assert type(source) is bytes  # noqa: S101  # the loader sets nothing else
        if source not in self._types:
            self._types[source] = decode_type(ValueInfoProto.FromString(source).type)
        return self._types[source]

    @staticmethod
    def inference(model: Model, *, is_anew: bool = False) -> infer.Inference:
        """Return what infers the types of a model as it is now."""
        return infer.Inference(model, is_anew=is_anew)

    evaluate = staticmethod(infer.evaluate)


# Get the bytes of a file, or say what the file is instead.


_LFS_MARK = b"version https://git-lfs"
_PROSE = frozenset({"doc_string", "producer_name", "producer_version"})
_TEXT_PROBE = 512
_LARGEST_MESSAGE = 2**31 - 1


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


def parse_model(data: bytes, path: Path) -> ModelProto:
    """Parse the bytes of the file at *path*, without its external data; nodes are sorted.

    Raises:
        ModelLoadError: They are no model, or not a whole one.
        InvalidModelError: They are a model that contradicts itself, or a name is not UTF-8.
    """
    proto, _ = _parsed_file(data, path)
    return source_of(_model(proto, Home(path.parent, str(path)))).proto


def _parsed_file(data: bytes, path: Path) -> tuple[ModelProto, list[str]]:
    beginning = data[:_TEXT_PROBE]
    if not beginning:
        raise ModelLoadError(f"{path}: is empty")
    if beginning.startswith(_LFS_MARK):
        raise ModelLoadError(
            f"{path}: is a Git LFS pointer, not the model itself", hint="run: git lfs pull"
        )
    try:
        proto, notes = _parsed_bytes(data, str(path))
    except DecodeError as error:
        raise ModelLoadError(f"{path}: {_what_is_wrong(beginning, str(error))}") from error
    if not proto.HasField("graph"):
        raise ModelLoadError(f"{path}: {_what_is_wrong(beginning)}: it holds no graph")
    return proto, notes


def _parsed_bytes(data: bytes, label: str) -> tuple[ModelProto, list[str]]:
    """Parse a model, all of whose text is UTF-8 then; say what had to be spelled out for that.

    Raises:
        DecodeError: The bytes are no model.
        InvalidModelError: A name is not UTF-8.
    """
    try:
        _strict_model().FromString(data)
    except DecodeError:
        proto = ModelProto.FromString(data)
        return proto, _mended(proto, label)
    return ModelProto.FromString(data), []


@cache
def _strict_model() -> type[Message]:
    """Make a twin of ModelProto that refuses text that is not UTF-8: only proto3 does, in C."""
    file = FileDescriptorProto()
    ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    pool = DescriptorPool()
    pool.Add(file)
    twin: type[Message] = GetMessageClass(
        pool.FindMessageTypeByName(ModelProto.DESCRIPTOR.full_name)
    )
    return twin


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


_TOO_DEEP = "MaxDepth"
"""What protobuf says of messages in messages, more of which than 100 it does not read."""


def _what_is_wrong(beginning: bytes, said: str = "") -> str:
    if _TOO_DEEP in said:
        return "its graphs, types or other parts nest deeper than protobuf reads: over 100 levels"
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in beginning):  # noqa: PLR2004  # ASCII space
        return "is a text file, not a binary ONNX model"
    return "is not an ONNX model, or was cut off"


# Read an ONNX file into the IR.


_EXTERNAL_MARK = b"location"
"""The key in every reference to external data; a file without it has no such data."""


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
    may_have_external_data = may_refer(data)
    proto, notes = _parsed_file(data, path)
    del data  # the message has copied it
    model = _model(proto, Home(path.parent, str(path)))
    model.notes = [*notes, *model.notes]
    model.path = path
    if opset is not None:
        model = _raised(model, opset, path)
    model.may_have_external_data = may_have_external_data
    return model


def may_refer(data: bytes) -> bool:
    """Tell whether a file may refer to external data."""
    return _EXTERNAL_MARK in data


def _raised(model: Model, opset: int, path: Path) -> Model:
    """Raise a model to an opset: build it anew from what it becomes."""
    from dplcli.onnx_io.opset import raise_opset  # noqa: PLC0415  # rarely needed

    check_imports(model)
    proto = source_of(model).proto  # the model of it is not needed any more
    with paused_gc():
        result = raise_opset(proto, opset, lambda: model.graph, str(path))
    if not result.is_changed:
        return model
    raised = model_from_proto(proto, path.parent, str(path))
    raised.path = path
    raised.notes = [*model.notes, f"{path}: {result}"]
    raised.graph.modified = True
    return raised


@contextmanager
def paused_gc() -> Iterator[None]:
    """Suspend cyclic garbage collection while many long-lived objects are made.

    At 100,000 nodes the collector would otherwise walk the growing graph again and again, which
    costs as much as building it. Afterwards the new objects are young ones, as anybody's are: what
    is garbage of them is found soon. (`gc.freeze` and `gc.unfreeze` would make them old without a
    walk. But they also set back what decides when the old are walked: in a process that lives long,
    and pauses often, that is never, and no garbage is freed.)
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def model_from_proto(proto: ModelProto, folder: Path, label: str) -> Model:
    """Build the IR of *proto*.

    Args:
        proto: A model, without external data.
        folder: Where its external data lies.
        label: What to call it in messages.

    Raises:
        InvalidModelError: Its graph contradicts itself.
    """
    own, notes = _parsed_bytes(proto.SerializeToString(), label)
    model = _model(own, Home(folder, label))
    model.notes = [*notes, *model.notes]
    return model


def built_again(model: Model) -> Model:
    """Build a loaded model anew, as it was before any pass edited it."""
    source = source_of(model)
    again = _model(source.proto, source.home)
    again.path = model.path
    again.may_have_external_data = model.may_have_external_data
    return again


def as_written(model: Model) -> Model:
    """Build an edited model anew from what its file would be: the result is nobody's file yet.

    What passes have made and is large is the same in memory.
    """
    home = source_of(model).home
    large = large_tensors(model)
    places = {tensor: DataPlace(IN_MEMORY, k, k) for k, tensor in enumerate(large)}
    again = model_from_proto(to_proto(model, places), home.folder, home.label)
    again.path = model.path
    again.may_have_external_data = model.may_have_external_data
    again.graph.modified = True
    for value in (value for graph in again.graphs() for value in graph.initializers if large):
        tensor = value.constant
        if isinstance(tensor, ProtoTensor) and tensor.is_external:
            stated = entries_of(tensor.proto)
            if stated.get("location") == IN_MEMORY:
                value.set_initializer(large[int(stated["offset"])])
                value.graph.modified = True
    return again


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


def _model(proto: ModelProto, home: Home) -> Model:
    """Build the IR of a message, which is to stay as it is from here on.

    Nodes that do not follow what they read are sorted first.
    """
    with paused_gc():
        builder = _Builder(proto, home)
        if not builder.lost:
            return builder.model
        graphs = [
            graph for graph in (proto.graph, *proto.functions) if sort_nodes(graph, home.label)
        ]
        builder = _Builder(proto, home)
    if builder.lost:
        raise builder.wrong(*builder.lost[0])
    model = builder.model
    for graph in (model.graph, *(function.body for function in model.functions.values())):
        if any(graph.source is each for each in graphs):
            graph.modified = True
            source_of(model).sorted.add(id(graph.source))
    model.notes.append(f"{home.label}: the nodes were not in topological order; sorted")
    return model


def sort_nodes(graph: GraphProto | FunctionProto, label: str) -> bool:
    """Bring the nodes of a graph, and those inside them, into topological order; tell if that did.

    Raises:
        InvalidModelError: Nodes form a circle.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    consumers: dict[int, list[int]] = {index: [] for index in range(len(nodes))}
    for index, node in enumerate(nodes):
        for made_by in {maker[name] for name in names_read(node) if name in maker}:
            consumers[made_by].append(index)
    order = followers_last(consumers)
    if len(order) < len(nodes):
        culprit = nodes[min(consumers.keys() - set(order))]
        name = culprit.name or next(iter(culprit.output), culprit.op_type)
        where = f"graph {graph.name!r}: " if graph.name else ""
        raise InvalidModelError(
            f"{label}: invalid model: {where}node {name!r} lies on or behind a cycle"
        )
    inner = [sort_nodes(body, label) for node in nodes for _, body in graphs_of(node)]
    if order != sorted(order):
        del graph.node[:]
        graph.node.extend([nodes[index] for index in order])
        return True
    return any(inner)


_SHORT = 1 << 10
"""Up to how many bytes what a node says is kept for others while a model is built."""


class _Kind(NamedTuple):
    """What nodes say beside names.

    Attributes:
        op_type: The operator.
        domain: Its domain, "" for the standard one.
        overload: Its overload.
        attributes: Its attributes, if none of them has a body.
        is_plain: Whether there is nothing for readers and tools, nor of devices.
        has_bodies: Whether each node has bodies of its own.
        fewest: How many inputs and outputs there are at least.
    """

    op_type: str
    domain: str
    overload: str
    attributes: Mapping[str, Attribute]
    is_plain: bool
    has_bodies: bool
    fewest: tuple[int, int]


def _label_of(node: Node) -> str:
    """Name a node whose outputs are not built yet."""
    return f"{node.op_type} {node.name or next(filter(None, proto_of(node).output), '')!r}"


class _Builder:
    """Builds the graphs of one model from its message.

    Args:
        proto: The message.
        home: Where it comes from.

    Attributes:
        model: The model.
        lost: What is read or returned and not defined before: the graph, who reads it, its name.
    """

    def __init__(self, proto: ModelProto, home: Home) -> None:
        self.label = home.label
        self.source = Source(proto, home)
        self.lost: list[tuple[Graph, str, str]] = []
        self._statements: dict[bytes, TypeStatement] = {}
        self._kinds: tuple[dict[bytes, _Kind], dict[bytes, _Kind]] = ({}, {})
        self._attributes: dict[tuple[bool, bytes], Mapping[str, Attribute]] = {}
        self.model = model = Model(ProtoCodec(self.source))
        model.source = self.source
        model.ir_version = proto.ir_version
        model.opset_imports.update(self._imports(proto.opset_import))
        self._fill(model.graph, proto.graph)
        for item in proto.functions:
            self._add_function(item)
        self._protect()

    def wrong(self, graph: Graph, reader: str, name: str) -> InvalidModelError:
        """Say that a graph, or a node of it, needs a value that nothing makes."""
        *_, outermost = outwards(graph)
        what = f"{reader} reads {name!r}, which nothing defines"
        return (
            self._refusal(outermost, what)
            if reader
            else self._refusal(graph, f"its output {name!r} is never made")
        )

    def _refusal(self, graph: Graph, what: str) -> InvalidModelError:
        where = f"graph {graph.name!r}: " if graph.name else ""
        return InvalidModelError(f"{self.label}: invalid model: {where}{what}")

    def _imports(self, stated: Iterable[OperatorSetIdProto], where: str = "") -> dict[str, int]:
        """Read which version of each domain is in force; note what is imported in two.

        The last one counts, as in onnxruntime.
        """
        listed: dict[str, list[OperatorSetIdProto]] = {}
        for opset in stated:
            listed.setdefault(canonical_domain(opset.domain), []).append(opset)
        for domain, opsets in listed.items():
            if len({opset.version for opset in opsets}) > 1:
                what = f"the domain {domain!r}" if domain else "the default domain"
                versions = [f"{opset.domain!r} {opset.version}" for opset in opsets]
                times = "twice" if len(opsets) == 2 else f"{len(opsets)} times"  # noqa: PLR2004  # English has a word for two
                conflict = (
                    f"{where}imports {what} {times}: {', '.join(versions[:-1])} and {versions[-1]}"
                )
                self.model.conflicts.append(conflict)
                self.model.notes.append(
                    f"{self.label}: {conflict}; read as version {opsets[-1].version}, "
                    "which onnxruntime takes; other tools may take another"
                )
        return {domain: opsets[-1].version for domain, opsets in listed.items()}

    def _add_function(self, proto: FunctionProto) -> None:
        where = f"the function {proto.domain}::{proto.name} "
        body = Graph(
            self.model, self._imports(proto.opset_import, where) or self.model.opset_imports
        )
        function = Function(
            proto.domain,
            proto.name,
            body,
            overload=proto.overload,
            attributes=tuple(proto.attribute),
            metadata={entry.key: entry.value for entry in proto.metadata_props},
            source=proto,
        )
        for item in proto.attribute_proto:
            self._check_attribute(item, where.strip())
        function.defaults = {
            item.name: decode_attribute(item, {}, self.source.home)
            for item in proto.attribute_proto
        }
        if function.key in self.model.functions:
            body.name = proto.name
            what = f"two functions are named {proto.domain}::{proto.name}"
            raise self._refusal(body, what)
        self.model.functions[function.key] = function
        self._fill(body, proto)

    # -- one graph ---------------------------------------------------------------------------

    def _fill(self, graph: Graph, proto: GraphProto | FunctionProto) -> None:
        """Define the values of a graph: what it is given and stores, then what its nodes make."""
        graph.name = proto.name
        graph.source = proto
        is_function = isinstance(proto, FunctionProto)
        for info in proto.input:
            self._declare(graph, info if is_function else info.name)
        if not is_function:
            self._store(graph, proto)
        graph.inputs += [value for value in graph.values.values() if value.is_graph_input]
        self._add_nodes(graph, proto.node)
        for info in proto.output:
            name = info if is_function else info.name
            value = find_value(graph, name) if name else None
            if value is not None:
                graph.add_output(value)
            elif name:
                self.lost.append((graph, "", name))
        self._state_types(graph, proto)

    def _declare(self, graph: Graph, name: str) -> None:
        if name in graph.values:
            raise self._refusal(graph, f"two inputs are named {name!r}")
        graph.values[name] = value = Value(name, graph)
        value.is_graph_input = True

    def _store(self, graph: Graph, proto: GraphProto) -> None:
        for tensor in (*proto.initializer[:], *proto.sparse_initializer):
            is_sparse = isinstance(tensor, SparseTensorProto)
            name = tensor.values.name if is_sparse else tensor.name
            if name not in graph.values:
                graph.values[name] = Value(name, graph)
            value = graph.values[name]
            if value.is_initializer:
                raise self._refusal(graph, f"two initializers are named {name!r}")
            value.set_initializer(tensor)
            if not is_sparse:
                dims = tuple(tensor.dims[:])
                value.type_source = shared_type(dtype_name(tensor.data_type), dims)

    def _add_nodes(self, graph: Graph, protos: Sequence[NodeProto]) -> None:
        values = graph.values
        unnamed = values.pop("", None)  # an omitted input is none of the graph's
        captured: set[str] = set()
        kinds = self._kinds[is_in_function(graph)]
        for number, proto in enumerate(protos[:]):
            read, made, name = proto.input[:], proto.output[:], proto.name
            names = [*read, *made, name] if name else [*read, *made]
            text = proto.SerializeToString()[size_of_texts(names) :]
            kind = kinds.get(text) or self._kind_of(proto, text, kinds)
            node = Node(graph, kind.op_type, kind.domain, name, proto)
            node.overload, node.attributes = kind.overload, kind.attributes
            if not kind.is_plain:
                node.remarks = None
            inputs = tuple(map(values.get, read))
            if None in inputs:
                inputs = tuple([self._value(node, name, captured) for name in read])
            # What an operator needs and a bad file lacks counts as omitted: anybody may ask for it.
            node.inputs = inputs + (None,) * (kind.fewest[0] - len(inputs))
            graph.append(node)
            record_uses((node,))
            if kind.has_bodies:
                self._add_bodies(node, proto, number)
            outputs = tuple(
                [self._make(node, name, index, captured) for index, name in enumerate(made)]
            )
            node.outputs = outputs + (None,) * (kind.fewest[1] - len(outputs))
        if unnamed is not None:
            values[""] = unnamed

    def _make(self, node: Node, name: str, index: int, captured: set[str]) -> Value | None:
        """Define what a node makes; note that something has read it before."""
        if not name:
            return None
        graph = node.graph
        if name in graph.values:
            raise self._refusal(graph, f"{name!r} is made twice, again by {_label_of(node)}")
        if name in captured:
            self.lost.append((graph, node.op_type, name))
        value = graph.values[name] = Value(name, graph, node, index)
        return value

    def _value(self, node: Node, name: str, captured: set[str]) -> Value | None:
        """Return what a name means where a node reads it; note that it means nothing yet."""
        value = find_value(node.graph, name) if name else None
        if value is None and name:
            self.lost.append((node.graph, _label_of(node), name))
        elif value is not None and value.graph is not node.graph:
            captured.add(name)
        return value

    def _kind_of(self, proto: NodeProto, text: bytes, kinds: dict[bytes, _Kind]) -> _Kind:
        """Read what a node says beside the names of its values and its own.

        Args:
            proto: The node.
            text: What it says, encoded: nodes that are encoded alike share what was read.
            kinds: What was read already, in functions or outside.
        """
        domain, has_devices = proto.domain, bool(proto.device_configurations)
        if has_devices and self.source.proto.configuration:
            self.model.is_spread = True
        is_plain = not (
            has_devices or proto.doc_string or proto.metadata_props or len(UnknownFieldSet(proto))
        )
        overload = proto.overload if domain else ""
        has_bodies = any(True for _ in graphs_of(proto))
        attributes = NO_ATTRIBUTES
        if not has_bodies:
            in_function = kinds is self._kinds[True]
            attributes = self._attributes_of(proto, {}, in_function=in_function)
        domain = canonical_domain(domain)
        fewest = fewest_operands(proto.op_type, domain)
        kind = _Kind(proto.op_type, domain, overload, attributes, is_plain, has_bodies, fewest)
        if len(text) <= _SHORT:
            kinds[text] = kind
        return kind

    def _add_bodies(self, node: Node, proto: NodeProto, number: int) -> None:
        """Build the bodies of a node, the *number*-th of its graph, and read its attributes."""
        for name, body in graphs_of(proto):
            if name in node.subgraphs:
                label = f"{node.op_type} {node.name!r}" if node.name else f"a node {node.op_type}"
                raise self._refusal(node.graph, f"{label} has two bodies {name!r}")
            inner = Graph(self.model, node.graph.opset_imports, owner=node)
            node.subgraphs = {**node.subgraphs, name: inner}
            self.source.places[id(body)] = (number, name)
            self._fill(inner, body)
        in_function = is_in_function(node.graph)
        node.attributes = self._attributes_of(proto, node.subgraphs, in_function=in_function)

    def _attributes_of(
        self, proto: NodeProto, bodies: Mapping[str, Graph], *, in_function: bool
    ) -> Mapping[str, Attribute]:
        """Decode attributes; those that are encoded alike are decoded once."""
        home = self.source.home
        text = b"".join([item.SerializeToString() for item in proto.attribute])
        known = None if bodies else self._attributes.get((in_function, text))
        if known is None:
            for item in proto.attribute:
                self._check_attribute(item, f"{proto.op_type} {proto.name!r}")
            known = {
                item.name: decode_attribute(item, bodies, home, in_function=in_function)
                for item in proto.attribute
            }
            if not bodies and len(text) <= _SHORT:
                self._attributes[in_function, text] = known
        return known

    def _check_attribute(self, item: AttributeProto, owner: str) -> None:
        if kind := missing_value(item):
            raise InvalidModelError(
                f"{self.label}: invalid model: {owner}: its attribute {item.name!r} is stated to "
                f"be a {kind.replace('_', ' ')} and holds none",
                hint="save the model again with the attribute's value, or without the attribute",
            )

    def _state_types(self, graph: Graph, proto: GraphProto | FunctionProto) -> None:
        """Note what the file states of values.

        Interfaces come as they stand in the file, all else as statements, which edits may take out.
        """
        values, statements = graph.values, self._statements

        def stated(infos: Iterable[ValueInfoProto]) -> Iterator[tuple[Value, TypeStatement]]:
            for info in infos:
                name = info.name
                value = values.get(name)
                if value is not None:
                    text = info.SerializeToString()[size_of_texts([name]) :]
                    known = statements.get(text)
                    if known is None:
                        known = statements[text] = TypeStatement(text, decode_statement)
                    yield value, known

        is_function = isinstance(proto, FunctionProto)
        for value, statement in stated(() if is_function else proto.input):
            value.type_source = statement.encoded
        for value, statement in stated(proto.value_info):
            if value.type_source is None or type(value.type_source) is TensorType:
                value.type_source = statement
        for value, statement in stated(() if is_function else proto.output):
            if value.type_source is None:
                value.type_source = statement.encoded

    def _protect(self) -> None:
        """Keep what lies beside the graphs true: hold the values that it names."""
        model, main = self.model, self.model.graph.values
        model.taken, updated, model.called_beside = names_in_training(
            self.source.proto.training_info
        )
        model.trained = [main[name] for name in updated if name in main and main[name].use_count]
        for name in sorted(model.taken & main.keys()):
            model.protect(main[name], "the training information")
        for graph in model.graphs():
            proto = graph.source
            if not isinstance(proto, GraphProto) or not proto.quantization_annotation:
                continue
            model.annotated.append(graph)
            graph.annotations = decode_annotations(proto.quantization_annotation)
            for annotation in chain.from_iterable(graph.annotations.values()):
                for name in annotation.parameters.values():
                    value = find_value(graph, name)
                    if value is not None:
                        model.protect(value, "a quantization annotation")


def losses(model: Model, *, in_calls: bool = False) -> list[str]:
    """Say what the file states beside its graphs that an edited model no longer does.

    Args:
        model: The model.
        in_calls: Whether calls say what was there, so that inlining them brings it back.
    """
    graphs = list(model.graphs())
    gone: list[str] = []
    for graph in model.annotated:
        *_, outermost = outwards(graph)  # where it was, if it has gone with its node
        lost = graph.erased - graph.values.keys() if graph in graphs else graph.annotations.keys()
        gone += [name for name in graph.annotations if name in lost and outermost in graphs]
    idle = [v.name for v in model.trained if not v.use_count and not v.is_graph_output]
    spread: list[str] = []
    if model.is_spread and not in_calls:
        roots = [graph.source for graph in graphs if graph.owner is None]
        protos = all_nodes(
            *[root for root in roots if isinstance(root, (GraphProto, FunctionProto))]
        )
        before = (node_remarks(node).rest for node in protos if node.device_configurations)
        after = {item for g in graphs for node in g for item in shardings_of(node.remarks.rest)}
        told = (item for rest in before for item in shardings_of(rest))
        spread = [item[1] for item in dict.fromkeys(told) if item not in after]
    where = "are inside functions now; dpl inline brings them back" if in_calls else "are gone"
    lines = (
        (f"left out: the quantization annotations of {{}}, which {where}", gone),
        ("left out: the sharding of {}, which no node reads or makes any more", spread),
        ("the training information updates {}, which no node reads any more", idle),
    )
    label = model.path or "the model"
    return [f"{label}: {text.format(some_of(names))}" for text, names in lines if names]
