"""Write a model: untouched parts as they came, changed ones encoded anew, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
)

from dplcli.errors import ModelExportError
from dplcli.files import mode_for, path_of, provisional, temporary_file
from dplcli.ir import Tensor, TensorType, TypeStatement
from dplcli.ir.operators import canonical_domain
from dplcli.ir.types import DTYPE_CODES, is_made_up
from dplcli.onnx_io import convert
from dplcli.onnx_io.convert import (
    DELIMITED,
    ProtoTensor,
    encode_annotation,
    encode_attribute,
    encode_statement,
    encode_type,
    graphs_of,
    node_remarks,
    tensor_to_proto,
    varint,
)
from dplcli.onnx_io.external_data import (
    NOWHERE,
    DataPlace,
    bring_data,
    locations_of,
    pack,
    places_in,
    refer,
    settle,
    shares_folder,
    total_size,
    write_data,
)
from dplcli.onnx_io.source import source_of
from dplcli.onnx_io.strip import strip_file, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from google.protobuf.message import Message
    from onnx import OperatorSetIdProto

    from dplcli.files import Provisional
    from dplcli.ir import Annotation, Function, Graph, Model, Node, Value
    from dplcli.onnx_io.external_data import ExternalData


# Messages for what passes have made: functions, bodies, initializers, types.


def _value_info(value: Value) -> ValueInfoProto:
    known = value.type_source
    if isinstance(known, TensorType):  # found by inference, whose symbols say nothing in a file
        dims = known.shape and tuple(None if is_made_up(dim) else dim for dim in known.shape)
        return encode_type(value.name, TensorType(known.dtype, dims))
    proto = ValueInfoProto()
    if isinstance(known, (TypeStatement, bytes)):
        proto.ParseFromString(known if isinstance(known, bytes) else known.encoded)
    proto.name = value.name
    return proto


def made_initializers(graph: Graph) -> dict[str, Tensor]:
    """Return the data of the initializers that passes have made, by name."""
    found = {}
    for name, value in graph.values.items():
        data = value.initializer_source
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


def annotations_of(graph: Graph) -> Iterator[tuple[str, Annotation]]:
    """Iterate over what is said of how values are quantised, but of those that have gone."""
    told = {name: stated.annotations for name, stated in graph.stated_types.items()}
    for name, several in (*graph.annotations.items(), *told.items()):
        if name in graph.values or name not in graph.erased:
            yield from ((name, annotation) for annotation in several)


@dataclass
class StagedModel:
    """A model written beside its destination, to be looked at before it takes the place.

    Attributes:
        path: The temporary file, in the destination's folder so that external data is found.
        destination: Where :meth:`commit` puts it.
        stripped: How many bytes each kind took that was left out.
        data_size: How many bytes of external data are in a file of its own; None if there is none.
        used: How many bytes of external data it uses; what is shared counts once.
        unused: How many more bytes the files have that these lie in.
        put_data: Puts its external data beside its destination; None if that is there already.
        linked: The model's own data files that have a second name now.
    """

    path: Path
    destination: Path
    stripped: Mapping[str, int]
    data_size: int | None = None
    used: int = 0
    unused: int = 0
    put_data: Callable[[], None] | None = None
    linked: tuple[Path, ...] = ()

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
        if self.put_data is not None:
            self.put_data()
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
def staged(
    model: Model,
    destination: Path,
    strip: Collection[str] = (),
    external_data: ExternalData = "copy",
) -> Iterator[StagedModel]:
    """Write *model* to a temporary file beside *destination*; a symbolic link is followed.

    If the model has external data, so has what passes have made, but for what is small: it is
    written to a file of its own. So a model may have more than 2 GB of it.

    The file is gone afterwards unless it was committed or kept, and so is external data that was
    put beside it.

    Args:
        model: The model.
        destination: The place that it is for.
        strip: What to leave out, by its names in :mod:`dplcli.onnx_io.strip`.
        external_data: What becomes of external data.

    Raises:
        ModelExportError: The folder cannot be written to, or external data stands in the way.
    """
    check_destination(destination)
    destination = destination.resolve()
    locations = locations_of(model)
    has_data = bool(locations)
    is_linked = external_data == "link" and has_data and not shares_folder(model, destination)
    with provisional() as made, ExitStack() as stack:
        # Data with two names cannot be looked at by onnx. So that is done beside the first one.
        beside = _folder_of(model, destination) if is_linked else destination.parent
        outside = NOWHERE
        try:
            path = stack.enter_context(temporary_file(beside, ".onnx"))
            if has_data and (large := large_tensors(model)):
                data = stack.enter_context(temporary_file(beside, ".data"))
                outside = write_data(large, data)
                if external_data != "repack":
                    name = settle(data, destination, locations, made).name
                    outside = {t: p._replace(location=name) for t, p in outside.items()}
            _write(model, path, outside)
            freed = strip_file(path, strip) if strip else {}
            path.chmod(mode_for(destination))
        except OSError as error:
            raise _cannot_write(beside / destination.name, error) from error
        written = StagedModel(path, destination, freed)
        if has_data and external_data == "repack":
            # Put all external data that is used into one file.
            proto = ModelProto.FromString(written.path.read_bytes())
            folders = [_folder_of(model, written.destination), written.path.parent]
            packed = stack.enter_context(pack(proto, folders, written.destination))
            written.path, written.put_data = packed.path, packed.put_data
            written.data_size, written.used = packed.data_size, total_size(places_in(proto))
        elif has_data:
            _bring_data(written, model, outside, made, link=is_linked)
        try:
            yield written
        finally:
            if not written.path.exists():  # it was put in its place, whatever happened since
                made.keep()


def _folder_of(model: Model, destination: Path) -> Path:
    """Return where the external data of a model lies."""
    return destination.parent if model.path is None else model.path.parent


def _bring_data(
    written: StagedModel,
    model: Model,
    outside: Mapping[Tensor, DataPlace],
    made: Provisional,
    *,
    link: bool,
) -> None:
    """Make the external data that is used reachable; links are made when the model is there."""
    places = places_in(ModelProto.FromString(written.path.read_bytes()))
    written.used = total_size(places)
    own = {place.location for place in outside.values()}
    if outside:
        written.data_size = max(place.end for place in outside.values())
    folder, target = _folder_of(model, written.destination), written.destination.parent
    locations = sorted({place.location for place in places} - own)
    files = [folder / path_of(location) for location in locations]
    there = sum([path.stat().st_size for path in files if path.is_file()])
    written.unused = there - total_size(place for place in places if place.location not in own)
    if shares_folder(model, written.destination):
        return

    def put() -> None:
        bring_data(locations, folder, target, made, link=link)
        for name in own if link else ():
            if not (target / name).exists():
                made.note(target / name)
            (written.path.parent / name).replace(target / name)
        written.linked = tuple(path for path in files if link and path.stat().st_nlink > 1)

    if link:
        written.put_data = put
    else:
        put()


def _cannot_write(destination: Path, error: OSError) -> ModelExportError:
    return ModelExportError(f"{destination}: cannot be written: {error.strerror or error}")


def _write(model: Model, path: Path, outside: Mapping[Tensor, DataPlace]) -> None:
    if model.path is not None and not is_modified(model):
        shutil.copyfile(model.path, path)
        return
    with path.open("wb", buffering=_BUFFER) as file:
        file.writelines(convert.encode(model_parts(model, outside)))


def written_size(model: Model, strip: Collection[str] = ()) -> tuple[int, int]:
    """Return how many bytes :func:`staged` would write, and how many of external data are used.

    Raises:
        ModelExportError: The model is too large to be stripped.
    """
    places = {
        data: DataPlace(str(number), 0, convert.RawData(data).size)
        for number, data in enumerate(large_tensors(model) if locations_of(model) else ())
    }
    parts = model_parts(model, places)
    used = total_size(places_in(to_proto(model, places))) if locations_of(model) else 0
    if strip:
        return len(stripped(_joined(parts), strip)[0]), used
    if model.path is not None and not is_modified(model):
        return model.path.stat().st_size, used
    return convert.size(parts), used


def is_modified(model: Model) -> bool:
    """Tell whether anything was edited since *model* was loaded."""
    return any(graph.modified for graph in model.graphs())


def to_proto(model: Model, outside: Mapping[Tensor, DataPlace] = NOWHERE) -> ModelProto:
    """Return *model* as one message; *outside* as for :func:`model_parts`."""
    proto = ModelProto()
    proto.ParseFromString(_joined(model_parts(model, outside)))
    return proto


def large_tensors(model: Model) -> list[Tensor]:
    """List what passes have made that is too large to be held in a file without need."""
    made = (data for graph in model.graphs() for data in made_initializers(graph).values())
    return [data for data in made if _is_new(data) and convert.RawData(data).size > _SMALL]


def _is_new(data: Tensor) -> bool:
    """Tell whether a pass has computed numbers, and not taken over what the file has."""
    return not isinstance(data, ProtoTensor) and data.dtype != "string"


_SMALL = 1 << 10
"""Up to how many bytes what was computed is held in the file, whatever else lies outside."""


def _joined(parts: Iterable[convert.Part]) -> bytes:
    return b"".join(convert.encode(parts))


def model_parts(model: Model, outside: Mapping[Tensor, DataPlace] = NOWHERE) -> list[convert.Part]:
    """Take *model* apart; the concatenation of the parts' bytes is the file.

    What was not edited is encoded from the messages it came in, which stay as they are.

    Args:
        model: The model.
        outside: Where the data of what passes have made lies, if not in the file.
    """
    header = source_of(model).proto
    writer = _Writer(outside)
    graph = writer.graph(model.graph)
    changed = ModelProto()
    if model.ir_version:
        changed.ir_version = model.ir_version
    add_opsets(changed, header.opset_import, model.opset_imports)
    functions = [_joined(writer.function(item)) for item in model.functions.values()]
    return [
        changed.SerializeToString(),
        *convert.fields(header, without={"ir_version", "opset_import", "graph", "functions"}),
        convert.header(ModelProto.GRAPH_FIELD_NUMBER, convert.size(graph)),
        *graph,
        *convert.embedded(ModelProto.FUNCTIONS_FIELD_NUMBER, functions),
    ]


_BUFFER = 1 << 20
_SIZES = [bytes([size]) for size in range(128)]
_INPUT, _OUTPUT, _NAME, _METADATA, _KEY, _VALUE = (
    bytes([number << 3 | DELIMITED])
    for number in (
        NodeProto.INPUT_FIELD_NUMBER,
        NodeProto.OUTPUT_FIELD_NUMBER,
        NodeProto.NAME_FIELD_NUMBER,
        NodeProto.METADATA_PROPS_FIELD_NUMBER,
        StringStringEntryProto.KEY_FIELD_NUMBER,
        StringStringEntryProto.VALUE_FIELD_NUMBER,
    )
)
"""The tags of the fields of a node that are written by hand."""
_GRAPH_INPUT = GraphProto.INPUT_FIELD_NUMBER
_GRAPH_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_GRAPH_SPARSE = GraphProto.SPARSE_INITIALIZER_FIELD_NUMBER
_GRAPH_ANNOTATION = GraphProto.QUANTIZATION_ANNOTATION_FIELD_NUMBER
_GRAPH_VALUE_INFO = GraphProto.VALUE_INFO_FIELD_NUMBER
_ONE_BY_ONE = {"node", "input", "value_info", "initializer", "sparse_initializer"}
"""The fields of a graph of which some items may be left out."""
_TENSOR_RAW = TensorProto.RAW_DATA_FIELD_NUMBER


def add_opsets(
    proto: ModelProto | FunctionProto,
    stated: Iterable[OperatorSetIdProto],
    opset_imports: Mapping[str, int],
) -> None:
    """List the opsets that are in force: those of the file first, each as it was written."""
    listed = set()
    for opset in stated:
        domain = canonical_domain(opset.domain)
        if domain in opset_imports:
            proto.opset_import.add().CopyFrom(opset)
            proto.opset_import[-1].version = opset_imports[domain]
            listed.add(domain)
    for domain, version in opset_imports.items():
        if domain not in listed:
            proto.opset_import.add(domain=domain, version=version)


class _Writer:
    """Encodes the graphs of one model, which is not edited meanwhile.

    Args:
        source: The file that it was read from.
        outside: Where the data of what passes have made lies, if not in the file.
    """

    def __init__(self, outside: Mapping[Tensor, DataPlace] = NOWHERE) -> None:
        self._outside = outside
        self._attributes: dict[tuple[object, ...], bytes] = {}

    def graph(self, graph: Graph) -> list[convert.Part]:
        """Encode a graph: nodes, then what it states of itself, then what it declares."""
        parts: list[convert.Part] = [*self._nodes(graph, GraphProto.NODE_FIELD_NUMBER)]
        if isinstance(graph.source, GraphProto):
            but = {"quantization_annotation"} if graph.modified else set[str]()
            parts += convert.fields(graph.source, without=but | _ONE_BY_ONE)
            parts += self._declared(graph, graph.source)
        else:
            # Encode the interface of a body made by a pass, and the types that are stated in it.
            proto = GraphProto(name=graph.name)
            proto.input.extend(map(_value_info, graph.inputs))
            proto.output.extend(map(_value_info, graph.outputs))
            interface = {*graph.inputs, *graph.outputs}
            proto.value_info.extend(
                _value_info(value)
                for value in graph.values.values()
                if value not in interface and isinstance(value.type_source, (TypeStatement, bytes))
            )
            source = proto
            parts += convert.fields(source, without={"input", "value_info"})
            parts.append(self.remarks(graph))
            parts += convert.embedded(_GRAPH_INPUT, map(_bytes, source.input))
            parts += convert.embedded(_GRAPH_VALUE_INFO, map(_bytes, source.value_info))
        if graph.modified:
            for name, data in made_initializers(graph).items():
                parts += self._initializer(name, data)
            parts += convert.embedded(_GRAPH_VALUE_INFO, map(_bytes, encode_stated_types(graph)))
            annotations = [encode_annotation(*item) for item in annotations_of(graph)]
            parts += convert.embedded(_GRAPH_ANNOTATION, map(_bytes, annotations))
        return parts

    def remarks(self, graph: Graph) -> bytes:
        """Encode what a body carries beside what dpl has words for."""
        like = graph.likeness if graph.source is None else graph.source
        if not isinstance(like, GraphProto):
            return like if isinstance(like, bytes) else b""
        return b"".join(convert.fields(like, without=_OF_BODIES))

    def _initializer(self, name: str, data: Tensor) -> list[convert.Part]:
        """Encode an initializer made by a pass, or where its data lies."""
        parts: list[convert.Part]
        place = self._outside.get(data)
        if place is None and not _is_new(data):
            parts = [_bytes(tensor_to_proto(data, name))]
        else:
            head = TensorProto(name=name, data_type=DTYPE_CODES[data.dtype], dims=data.shape)
            if place is not None:
                refer(head, place)
            raw = convert.RawData(data)
            rest = () if place is not None else (convert.header(_TENSOR_RAW, raw.size), raw)
            parts = [_bytes(head), *rest]
        return [convert.header(_GRAPH_INITIALIZER, convert.size(parts)), *parts]

    @staticmethod
    def _declared(graph: Graph, source: GraphProto) -> Iterator[bytes]:
        """Write what a graph of the file declares and still has."""
        made = made_initializers(graph).keys() if graph.modified else set[str]()
        gone = graph.dropped - graph.values.keys() | made
        untold = graph.erased - graph.values.keys() | graph.stated_types.keys()
        inputs = {value.name for value in graph.inputs}
        sparse = (item for item in source.sparse_initializer if item.values.name not in gone)
        for number, kept in (
            (_GRAPH_INPUT, (info for info in source.input if info.name in inputs)),
            (_GRAPH_VALUE_INFO, (info for info in source.value_info if info.name not in untold)),
            (_GRAPH_INITIALIZER, (item for item in source.initializer if item.name not in gone)),
            (_GRAPH_SPARSE, sparse),
        ):
            yield from convert.embedded(number, map(_bytes, kept))

    def function(self, function: Function) -> list[convert.Part]:
        body = function.body
        if not isinstance(function.source, FunctionProto):
            # Encode a function made by a pass, without its nodes.
            proto = FunctionProto(domain=function.domain, name=function.name)
            proto.input.extend(value.name for value in function.body.inputs)
            proto.output.extend(value.name for value in function.body.outputs)
            proto.attribute.extend(function.attributes)
            for key, value in function.metadata.items():
                proto.metadata_props.add(key=key, value=value)
            source = proto
            infos: list[ValueInfoProto] = []
        elif not any(inner.modified for inner in body.and_inner()):
            return [_bytes(function.source)]
        else:
            source = function.source
            gone = (body.erased - body.values.keys()) | body.stated_types.keys()
            infos = [info for info in source.value_info if info.name not in gone]
        changed = FunctionProto()
        add_opsets(changed, source.opset_import, body.opset_imports)
        changed.value_info.extend(infos)
        changed.value_info.extend(encode_stated_types(body))
        return [
            *self._nodes(body, FunctionProto.NODE_FIELD_NUMBER),
            *convert.fields(source, without={"opset_import", "value_info", "node"}),
            changed.SerializeToString(),
        ]

    def _nodes(self, graph: Graph, field: int) -> Iterator[bytes]:
        """Encode the nodes of a graph."""
        return convert.embedded(
            field,
            (
                self.node(node)
                if node.source is None or node.rewired or node.subgraphs
                else node.source.SerializeToString()  # type: ignore[attr-defined]  # a NodeProto
                for node in graph
            ),
        )

    def node(self, node: Node) -> bytes:
        source = node.source
        if isinstance(source, NodeProto):
            if node.rewired:
                # Let a copy read and make what the node does now.
                source = NodeProto.FromString(source.SerializeToString())
                del source.input[:], source.output[:]
                source.input.extend(map(_name, node.inputs))
                source.output.extend(map(_name, node.outputs))
            return self._with_bodies(node, source) if node.subgraphs else _bytes(source)
        parts = [_field(_INPUT, _name(value).encode()) for value in node.inputs]
        parts += [_field(_OUTPUT, _name(value).encode()) for value in node.outputs]
        remarks = node.remarks
        # many nodes share operator and attributes
        alike = (id(node.attributes), node.op_type, node.domain, node.overload, remarks.doc)
        known = self._attributes.get(alike)
        if known is None:
            proto = NodeProto(op_type=node.op_type)
            proto.attribute.extend(encode_attribute(*item) for item in node.attributes.items())
            texts = {"doc_string": remarks.doc, "domain": node.domain, "overload": node.overload}
            for name, text in texts.items():
                if text:
                    setattr(proto, name, text)
            known = self._attributes[alike] = _bytes(proto)
        parts += (_field(_NAME, node.name.encode()), known)
        for key, text in remarks.metadata.items():
            entry = _field(_KEY, key.encode()) + _field(_VALUE, text.encode())
            parts.append(_field(_METADATA, entry))
        if remarks.rest:
            parts.append(_rest(remarks.rest))
        data = b"".join(parts)
        return self._with_bodies(node, NodeProto.FromString(data)) if node.subgraphs else data

    def _with_bodies(self, node: Node, source: NodeProto) -> bytes:
        """Encode a node whose bodies may have been edited."""
        edited = {
            name: body
            for name, body in node.subgraphs.items()
            if any(inner.modified for inner in body.and_inner())
        }
        if not edited:
            return _bytes(source)
        copy = NodeProto.FromString(_bytes(source))
        for name, body in graphs_of(copy):
            if name in edited:
                body.ParseFromString(_joined(self.graph(edited[name])))
        return _bytes(copy)


_OF_BODIES = {"name", "input", "output", "value_info", "quantization_annotation", "node"}
_OF_BODIES |= {"initializer"}
"""The fields of a body that dpl has words for."""


@lru_cache(maxsize=1024)
def _rest(encoded: bytes) -> bytes:
    """Return what a node carries beside all that has a name here; nothing if it cannot be read.

    A file says of a call what the nodes carried that it stands for, and files come from anywhere.
    """
    try:
        return node_remarks(NodeProto.FromString(encoded)).rest
    except DecodeError:
        return b""


def _field(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    return tag + (_SIZES[size] if size < len(_SIZES) else varint(size)) + content


def encode_function(function: Function) -> bytes:
    """Return the serialised ``FunctionProto`` of one function as it is now."""
    return _joined(_Writer().function(function))


def encode_graph_remarks(graph: Graph) -> bytes:
    """Return what a body, or what it is a copy of, carries for readers and tools."""
    return _Writer().remarks(graph)


def encode_statement_of(value: Value) -> bytes:
    """Return what the file states, or is to state, of a value of a body; nothing of data."""
    graph, made = value.graph, value.graph.stated_types.get(value.name)
    if made is not None:
        proto = encode_statement("", made)
    elif isinstance(value.type_source, TensorType):
        is_declared = value in (*graph.inputs, *graph.outputs) and not value.is_initializer
        proto = _value_info(value) if is_declared else None
    else:
        proto = _value_info(value)
    if proto is None:
        return b""
    proto.ClearField("name")
    return _bytes(proto)


def encode_node(node: Node) -> bytes:
    """Return the serialised ``NodeProto`` of one node as it is now."""
    return _Writer().node(node)


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _name(value: Value | None) -> str:
    return "" if value is None else value.name
