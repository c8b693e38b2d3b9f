"""Write a model: untouched parts as they came, changed ones encoded anew, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from dplcli.errors import ModelExportError
from dplcli.files import mode_for, provisional, temporary_file
from dplcli.ir import Tensor, TensorType, TypeStatement
from dplcli.onnx_io import convert
from dplcli.onnx_io.convert import (
    encode_attribute,
    encode_statement,
    encode_type,
    graphs_of,
    tensor_to_proto,
)
from dplcli.onnx_io.external_data import copy_external_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from google.protobuf.message import Message
    from onnx import OperatorSetIdProto

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value


# Messages for what passes have made: functions, bodies, initializers, types.


def encode_interface(function: Function) -> FunctionProto:
    """Encode a function made by a pass, without its nodes."""
    proto = FunctionProto(domain=function.domain, name=function.name)
    proto.input.extend(value.name for value in function.body.inputs)
    proto.output.extend(value.name for value in function.body.outputs)
    proto.attribute.extend(function.attributes)
    for key, value in function.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def encode_body(graph: Graph) -> GraphProto:
    """Encode the interface of a body made by a pass, and the types of what is made in it."""
    proto = GraphProto(name=graph.name)
    proto.input.extend(map(_value_info, graph.inputs))
    proto.output.extend(map(_value_info, graph.outputs))
    interface = {*graph.inputs, *graph.outputs}
    proto.value_info.extend(
        _value_info(value)
        for value in graph.values.values()
        if value.type_source is not None and value not in interface
    )
    return proto


def _value_info(value: Value) -> ValueInfoProto:
    known = value.type_source
    if isinstance(known, TensorType):
        return encode_type(value.name, known)
    proto = ValueInfoProto()
    if isinstance(known, TypeStatement):
        proto.ParseFromString(known.encoded)
    elif isinstance(known, ValueInfoProto):
        proto.CopyFrom(known)
    elif isinstance(known, TypeProto):
        proto.type.CopyFrom(known)
    proto.name = value.name
    return proto


def made_initializers(graph: Graph) -> dict[str, Tensor]:
    """Return the data of the initializers that passes have made, by name."""
    found = {}
    for name, value in graph.values.items():
        data = value.initializer_source
        if data is None or isinstance(data, (TensorProto, SparseTensorProto)):
            continue
        if isinstance(data, Tensor) and value.producer is None:
            found[name] = data
    return found


def encode_stated_types(graph: Graph) -> list[ValueInfoProto]:
    """Encode the types that passes state of what they have made."""
    stated = (
        encode_statement(name, known)
        for name, known in graph.stated_types.items()
        if name in graph.values
    )
    return [proto for proto in stated if proto is not None]


_M = TypeVar("_M", bound="Message")


class StagedModel:
    """A model written beside its destination, to be looked at before it takes the place.

    Attributes:
        path: The temporary file, in the destination's folder so that external data is found.
        destination: Where :meth:`commit` puts it.
    """

    def __init__(self, path: Path, destination: Path) -> None:
        """Stand for the file at *path*."""
        self.path = path
        self.destination = destination

    def commit(self) -> None:
        """Put the file in its place, replacing what is there in one step.

        Raises:
            ModelExportError: The place cannot be written to.
        """
        self.keep_as(self.destination)

    def keep_as(self, path: Path) -> None:
        """Put the file at *path* instead: a result that failed and is to be looked at.

        Raises:
            ModelExportError: *path* cannot be written to.
        """
        try:
            self.path.replace(path)
        except OSError as error:
            raise _cannot_write(path, error) from error


def check_destination(destination: Path) -> None:
    """Refuse a destination that cannot be written to.

    Raises:
        ModelExportError: It is a directory or a device, or its folder is missing or read-only.
    """
    folder = destination.parent
    try:
        mode = destination.stat().st_mode if destination.exists() else stat.S_IFREG
        is_folder = folder.is_dir()
    except OSError as error:
        raise _cannot_write(destination, error) from error
    if stat.S_ISDIR(mode):
        raise ModelExportError(f"{destination}: is a directory", hint="name a file in it")
    if not stat.S_ISREG(mode):
        raise ModelExportError(
            f"{destination}: is not a regular file", hint="a model is written in one step to a file"
        )
    if not is_folder:
        raise ModelExportError(f"{destination}: there is no folder {str(folder)!r} to write to")
    if not os.access(folder, os.W_OK):
        raise ModelExportError(f"{destination}: the folder {str(folder)!r} cannot be written to")


@contextmanager
def staged(model: Model, destination: Path) -> Iterator[StagedModel]:
    """Write *model* to a temporary file beside *destination*; a symbolic link is followed.

    The file is gone afterwards unless it was committed or kept, and so is external data that was
    put beside it.

    Raises:
        ModelExportError: The folder cannot be written to, or external data stands in the way.
    """
    check_destination(destination)
    destination = destination.resolve()
    with provisional() as made, ExitStack() as stack:
        try:
            path = stack.enter_context(temporary_file(destination.parent, ".onnx"))
        except OSError as error:
            raise _cannot_write(destination, error) from error
        copy_external_data(model, destination, made)
        try:
            _write(model, path)
            path.chmod(mode_for(destination))
        except OSError as error:
            raise _cannot_write(destination, error) from error
        try:
            yield StagedModel(path, destination)
        finally:
            if not path.exists():  # it was put in its place, whatever happened since
                made.keep()


def _cannot_write(destination: Path, error: OSError) -> ModelExportError:
    return ModelExportError(f"{destination}: cannot be written: {error.strerror or error}")


def _write(model: Model, path: Path) -> None:
    if model.path is not None and not is_modified(model):
        shutil.copyfile(model.path, path)
        return
    with path.open("wb", buffering=_BUFFER) as file:
        file.writelines(convert.encode(model_parts(model)))


def written_size(model: Model) -> int:
    """Return how many bytes *model* takes in a file, external data apart; nothing is written."""
    if model.path is not None and not is_modified(model):
        return model.path.stat().st_size
    return convert.size(model_parts(model))


def is_modified(model: Model) -> bool:
    """Tell whether anything was edited since *model* was loaded."""
    return any(graph.modified for graph in model.graphs())


def to_proto(model: Model) -> ModelProto:
    """Return *model* as one message."""
    proto = ModelProto()
    proto.ParseFromString(_joined(model_parts(model)))
    return proto


def _joined(parts: Iterable[convert.Part]) -> bytes:
    return b"".join(convert.encode(parts))


def model_parts(model: Model) -> list[convert.Part]:
    """Take *model* apart; the concatenation of the parts' bytes is the file.

    What was not edited is encoded from the messages it came in, which stay as they are.
    """
    source = model.source
    assert isinstance(source, ModelProto)  # noqa: S101  # the loader sets nothing else
    writer = _Writer()
    graph = writer.graph(model.graph)
    changed = ModelProto()
    if model.ir_version:
        changed.ir_version = model.ir_version
    add_opsets(changed, source.opset_import, model.opset_imports)
    functions = [_joined(writer.function(item)) for item in model.functions.values()]
    return [
        changed.SerializeToString(),
        *convert.fields(source, without={"ir_version", "opset_import", "graph", "functions"}),
        convert.header(_MODEL_GRAPH, convert.size(graph)),
        *graph,
        *convert.embedded(_MODEL_FUNCTIONS, functions),
    ]


_BUFFER = 1 << 20
_MODEL_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_MODEL_FUNCTIONS = ModelProto.FUNCTIONS_FIELD_NUMBER
_GRAPH_NODE = GraphProto.NODE_FIELD_NUMBER
_GRAPH_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_GRAPH_VALUE_INFO = GraphProto.VALUE_INFO_FIELD_NUMBER
_FUNCTION_NODE = FunctionProto.NODE_FIELD_NUMBER


def add_opsets(
    proto: ModelProto | FunctionProto,
    stated: Iterable[OperatorSetIdProto],
    opset_imports: Mapping[str, int],
) -> None:
    """List the opsets that are in force: those of the file first, each as it was written."""
    listed = set()
    for opset in stated:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if domain in opset_imports:
            proto.opset_import.add().CopyFrom(opset)
            proto.opset_import[-1].version = opset_imports[domain]
            listed.add(domain)
    for domain, version in opset_imports.items():
        if domain not in listed:
            proto.opset_import.add(domain=domain, version=version)


class _Writer:
    """Encodes the graphs of one model, which is not edited meanwhile."""

    def __init__(self) -> None:
        self._attributes: dict[int, bytes] = {}

    def graph(self, graph: Graph) -> list[convert.Part]:
        source = graph.source
        if not isinstance(source, GraphProto):
            source = encode_body(graph)
        parts: list[convert.Part] = list(convert.embedded(_GRAPH_NODE, map(self.node, graph)))
        made = made_initializers(graph) if graph.modified else {}
        stored = graph.dropped - graph.values.keys() | made.keys()
        stated = graph.erased - graph.values.keys() | graph.stated_types.keys()
        inputs = {value.name for value in graph.inputs}
        narrowed = {
            "input": [info for info in source.input if info.name in inputs],
            "value_info": _without(stated, source.value_info, _NAME),
            "initializer": _without(stored, source.initializer, _NAME),
            "sparse_initializer": _without(stored, source.sparse_initializer, _VALUES_NAME),
        }
        parts += convert.fields(source, without={"node", *narrowed})
        for name, items in narrowed.items():
            parts.append(
                convert.LazyField(GraphProto.DESCRIPTOR.fields_by_name[name].number, items)
            )
        parts.append(
            convert.LazyField(
                _GRAPH_INITIALIZER, [tensor_to_proto(data, name) for name, data in made.items()]
            )
        )
        if graph.modified:
            parts.append(convert.LazyField(_GRAPH_VALUE_INFO, encode_stated_types(graph)))
        return parts

    def function(self, function: Function) -> list[bytes]:
        source = function.source
        body = function.body
        if not isinstance(source, FunctionProto):
            source = encode_interface(function)
        elif not any(inner.modified for inner in body.and_inner()):
            return [source.SerializeToString()]
        changed = FunctionProto()
        add_opsets(changed, source.opset_import, body.opset_imports)
        gone = (body.erased - body.values.keys()) | body.stated_types.keys()
        changed.value_info.extend(info for info in source.value_info if info.name not in gone)
        changed.value_info.extend(encode_stated_types(body))
        return [
            *convert.embedded(_FUNCTION_NODE, map(self.node, body)),
            *convert.fields(source, without={"node", "opset_import", "value_info"}),
            changed.SerializeToString(),
        ]

    def node(self, node: Node) -> bytes:
        source = node.source
        if isinstance(source, NodeProto):
            if node.rewired:
                source = _rewired(node, source)
            return self._with_bodies(node, source) if node.subgraphs else _bytes(source)
        proto = NodeProto(
            op_type=node.op_type,
            name=node.name,
            input=[_name(value) for value in node.inputs],
            output=[_name(value) for value in node.outputs],
        )
        if node.domain:
            proto.domain = node.domain
        if node.overload:
            proto.overload = node.overload
        if node.doc:
            proto.doc_string = node.doc
        for key, value in node.metadata.items():
            proto.metadata_props.add(key=key, value=value)
        data = _bytes(proto) + self._encoded(node.attributes)
        return self._with_bodies(node, NodeProto.FromString(data)) if node.subgraphs else data

    def _with_bodies(self, node: Node, source: NodeProto) -> bytes:
        """Encode a loaded node whose bodies may have been edited."""
        edited = {
            name: body
            for name, body in node.subgraphs.items()
            if any(inner.modified for inner in body.and_inner())
        }
        if not edited:
            return _bytes(source)
        proto = NodeProto()
        proto.CopyFrom(source)
        for name, body in graphs_of(proto):
            if name in edited:
                body.ParseFromString(_joined(self.graph(edited[name])))
        return _bytes(proto)

    def _encoded(self, attributes: Mapping[str, Attribute]) -> bytes:
        """Encode the attributes of a node; many nodes share one mapping."""
        known = self._attributes.get(id(attributes))
        if known is None:
            proto = NodeProto()
            proto.attribute.extend(encode_attribute(*item) for item in attributes.items())
            known = _bytes(proto)
            self._attributes[id(attributes)] = known
        return known


_NAME = attrgetter("name")
_VALUES_NAME = attrgetter("values.name")


def _without(
    names: AbstractSet[str], messages: MutableSequence[_M], name_of: Callable[[_M], str]
) -> list[_M]:
    """Leave out the messages that are called one of *names*."""
    if not names:
        return [*messages[:]]
    return [message for message in messages[:] if name_of(message) not in names]


def encode_function(function: Function) -> bytes:
    """Return the serialised ``FunctionProto`` of one function as it is now."""
    return _joined(_Writer().function(function))


def encode_node(node: Node) -> bytes:
    """Return the serialised ``NodeProto`` of one node as it is now."""
    return _Writer().node(node)


def _rewired(node: Node, source: NodeProto) -> NodeProto:
    """Copy *source* with the inputs and outputs that the node has now."""
    proto = NodeProto()
    proto.CopyFrom(source)
    del proto.input[:], proto.output[:]
    proto.input.extend(map(_name, node.inputs))
    proto.output.extend(map(_name, node.outputs))
    return proto


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _name(value: Value | None) -> str:
    return "" if value is None else value.name
