"""Write a model: untouched parts as they came, changed ones encoded anew, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    ValueInfoProto,
)

from dplcli.errors import ModelExportError
from dplcli.files import end_of, mode_for, path_of, provisional, resolved, temporary_file
from dplcli.ir import Tensor, TensorType, TypeStatement
from dplcli.ir.operators import canonical_domain
from dplcli.ir.types import DTYPE_CODES, is_made_up
from dplcli.onnx_io.convert import (
    ProtoTensor,
    encode_annotation,
    encode_attribute,
    encode_statement,
    encode_type,
    graphs_of,
    node_remarks,
    tensor_to_proto,
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
from dplcli.onnx_io.parts import MessageParts, RawData, Untouched, fields
from dplcli.onnx_io.source import source_of
from dplcli.onnx_io.strip import strip_file, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from google.protobuf.message import Message

    from dplcli.files import Provisional
    from dplcli.ir import Function, Graph, Model, Node, Value
    from dplcli.onnx_io.external_data import ExternalData
    from dplcli.onnx_io.parts import Part


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
        if value.producer is None and isinstance(value.initializer_source, Tensor):
            found[name] = value.initializer_source
    return found


def encode_stated_types(graph: Graph) -> list[ValueInfoProto]:
    """Encode the types that passes state of what they have made."""
    stated = (
        encode_statement(name, known)
        for name, known in graph.stated_types.items()
        if name in graph.values
    )
    return [proto for proto in stated if proto is not None]


def encode_annotations(graph: Graph) -> Iterator[bytes]:
    """Encode what is said of how values are quantised, but of those that have gone."""

    def is_there(name: str) -> bool:
        return name in graph.values or name not in graph.erased

    told = {name: stated.annotations for name, stated in graph.stated_types.items()}
    if isinstance(graph.source, GraphProto):
        stated = graph.source.quantization_annotation
        yield from (_bytes(item) for item in stated if is_there(item.tensor_name))
    else:
        told = graph.annotations | told
    for name, several in told.items():
        if is_there(name):
            yield from (_bytes(encode_annotation(name, each)) for each in several)


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
        end_of(destination)
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
    destination = resolved(destination)
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
        file.writelines(_parts_of(model, outside).encoded())


def written_size(model: Model, strip: Collection[str] = ()) -> tuple[int, int]:
    """Return how many bytes :func:`staged` would write, and how many of external data are used.

    Raises:
        ModelExportError: The model is too large to be stripped.
    """
    has_data = bool(locations_of(model))
    places = {
        data: DataPlace(str(number), 0, RawData(data).size)
        for number, data in enumerate(large_tensors(model) if has_data else ())
    }
    parts = _parts_of(model, places)
    used = total_size(places_in(ModelProto.FromString(parts.joined()))) if has_data else 0
    if strip:
        return len(stripped(parts.joined(), strip)[0]), used
    if model.path is not None and not is_modified(model):
        return model.path.stat().st_size, used
    return parts.size, used


def is_modified(model: Model) -> bool:
    """Tell whether anything was edited since *model* was loaded."""
    return any(graph.modified for graph in model.graphs())


def to_proto(model: Model, outside: Mapping[Tensor, DataPlace] = NOWHERE) -> ModelProto:
    """Return *model* as one message; *outside* says where data that passes have made lies."""
    proto = ModelProto()
    proto.ParseFromString(_parts_of(model, outside).joined())
    return proto


def large_tensors(model: Model) -> list[Tensor]:
    """List what passes have made that is too large to be held in a file without need."""
    made = (data for graph in model.graphs() for data in made_initializers(graph).values())
    return [data for data in made if _is_new(data) and RawData(data).size > _SMALL]


def _is_new(data: Tensor) -> bool:
    """Tell whether a pass has computed numbers, and not taken over what the file has."""
    return not isinstance(data, ProtoTensor) and data.dtype != "string"


_SMALL = 1 << 10
"""Up to how many bytes what was computed is held in the file, whatever else lies outside."""


def _parts_of(model: Model, outside: Mapping[Tensor, DataPlace]) -> MessageParts:
    """Take *model* apart: what was not edited are the messages it came in, as they are.

    Args:
        model: The model, which is not edited until the parts are written.
        outside: Where the data of what passes have made lies, if not in the file.
    """
    header = source_of(model).proto
    writer = _Writer(outside)
    version = ModelProto(ir_version=model.ir_version) if model.ir_version else ModelProto()
    parts = MessageParts(version.SerializeToString())
    parts.fill(
        header,
        {
            "ir_version": (),
            "opset_import": opsets(header.opset_import, model.opset_imports),
            "graph": [writer.graph(model.graph)],
            "functions": map(writer.function, model.functions.values()),
        },
    )
    return parts


_BUFFER = 1 << 20


def opsets(stated: Iterable[OperatorSetIdProto], in_force: Mapping[str, int]) -> Iterator[bytes]:
    """Encode the opsets that are in force: those of the file first, each as it was written."""
    listed = set()
    for opset in stated:
        domain = canonical_domain(opset.domain)
        if domain in in_force:
            listed.add(domain)
            changed = OperatorSetIdProto.FromString(_bytes(opset))
            if changed.version != in_force[domain]:
                changed.version = in_force[domain]
            yield _bytes(changed)
    for domain, version in in_force.items():
        if domain not in listed:
            yield _bytes(OperatorSetIdProto(domain=domain, version=version))


class _Writer:
    """Encodes the graphs of one model, which is not edited meanwhile.

    Args:
        outside: Where the data of what passes have made lies, if not in the file.
    """

    def __init__(self, outside: Mapping[Tensor, DataPlace] = NOWHERE) -> None:
        self._outside = outside
        self._alike: dict[tuple[object, ...], bytes] = {}

    def graph(self, graph: Graph) -> MessageParts:
        """Encode a graph, without what edits have taken out, and with what they have added."""
        source = graph.source if isinstance(graph.source, GraphProto) else _made_graph(graph)
        made = made_initializers(graph) if graph.modified else {}
        inputs = {value.name for value in graph.inputs}
        gone = graph.dropped - graph.values.keys() | made.keys()
        untold = graph.erased - graph.values.keys() | graph.stated_types.keys()
        sparse = (item for item in source.sparse_initializer if item.values.name not in gone)
        replaced: dict[str, Iterable[Part]] = {
            "node": map(self.node, graph),
            "input": [_bytes(info) for info in source.input if info.name in inputs],
            "initializer": chain(
                (Untouched(item) for item in source.initializer if item.name not in gone),
                (self._initializer(*item) for item in made.items()),
            ),
            "sparse_initializer": map(Untouched, sparse),
        }
        if graph.modified:
            kept = (_bytes(info) for info in source.value_info if info.name not in untold)
            replaced["value_info"] = chain(kept, map(_bytes, encode_stated_types(graph)))
            replaced["quantization_annotation"] = encode_annotations(graph)
        parts = MessageParts()
        parts.fill(source, replaced)
        if graph.source is None:
            parts.add(encode_graph_remarks(graph))
        return parts

    def _initializer(self, name: str, data: Tensor) -> MessageParts:
        """Encode an initializer made by a pass, or where its data lies."""
        place = self._outside.get(data)
        if place is None and not _is_new(data):
            return MessageParts(_bytes(tensor_to_proto(data, name)))
        head = TensorProto(name=name, data_type=DTYPE_CODES[data.dtype], dims=data.shape)
        if place is not None:
            refer(head, place)
        parts = MessageParts(_bytes(head))
        if place is None:
            parts.embed(TensorProto.RAW_DATA_FIELD_NUMBER, [RawData(data)])
        return parts

    def function(self, function: Function) -> bytes:
        """Encode a function, whose body may have been edited."""
        body, source = function.body, function.source
        if not isinstance(source, FunctionProto):
            source = FunctionProto(domain=function.domain, name=function.name)
            source.input.extend(value.name for value in body.inputs)
            source.output.extend(value.name for value in body.outputs)
            source.attribute.extend(function.attributes)
            for key, value in function.metadata.items():
                source.metadata_props.add(key=key, value=value)
        elif not any(inner.modified for inner in body.and_inner()):
            return _bytes(source)
        gone = (body.erased - body.values.keys()) | body.stated_types.keys()
        kept = (info for info in source.value_info if info.name not in gone)
        parts = MessageParts()
        parts.fill(
            source,
            {
                "node": map(self.node, body),
                "opset_import": opsets(source.opset_import, body.opset_imports),
                "value_info": map(_bytes, chain(kept, encode_stated_types(body))),
            },
        )
        return parts.joined()

    def node(self, node: Node) -> bytes:
        """Encode a node, whose bodies may have been edited."""
        source = node.source
        if isinstance(source, NodeProto):
            data = _bytes(source)
            if not node.rewired and not node.subgraphs:
                return data
        else:
            data = self._made(node)
        edited = {
            name: body
            for name, body in node.subgraphs.items()
            if any(inner.modified for inner in body.and_inner())
        }
        if not edited and not node.rewired:
            return data
        copy = NodeProto.FromString(data)
        del copy.input[:], copy.output[:]
        copy.input.extend(map(_name, node.inputs))
        copy.output.extend(map(_name, node.outputs))
        for name, body in graphs_of(copy) if edited else ():
            if name in edited:
                body.ParseFromString(self.graph(edited[name]).joined())
        return _bytes(copy)

    def _made(self, node: Node) -> bytes:
        """Encode a node made by a pass: many share all but their names."""
        remarks = node.remarks
        alike = (id(node.attributes), node.op_type, node.domain, node.overload, remarks.doc)
        known = self._alike.get(alike)
        if known is None:
            proto = NodeProto(op_type=node.op_type)
            proto.attribute.extend(encode_attribute(*item) for item in node.attributes.items())
            texts = {"doc_string": remarks.doc, "domain": node.domain, "overload": node.overload}
            for name, text in texts.items():
                if text:
                    setattr(proto, name, text)
            known = self._alike[alike] = _bytes(proto)
        proto = NodeProto.FromString(known)
        proto.input.extend(map(_name, node.inputs))
        proto.output.extend(map(_name, node.outputs))
        proto.name = node.name
        for key, text in remarks.metadata.items():
            proto.metadata_props.add(key=key, value=text)
        if remarks.rest:
            proto.MergeFromString(_rest(remarks.rest))
        return _bytes(proto)


def _made_graph(graph: Graph) -> GraphProto:
    """Encode the interface of a body made by a pass, and the types that are stated in it."""
    proto = GraphProto(name=graph.name)
    proto.input.extend(map(_value_info, graph.inputs))
    proto.output.extend(map(_value_info, graph.outputs))
    interface = {*graph.inputs, *graph.outputs}
    proto.value_info.extend(
        _value_info(value)
        for value in graph.values.values()
        if value not in interface and isinstance(value.type_source, (TypeStatement, bytes))
    )
    return proto


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


def encode_graph_remarks(graph: Graph) -> bytes:
    """Return what a body, or what it is a copy of, carries for readers and tools."""
    like = graph.likeness if graph.source is None else graph.source
    if not isinstance(like, GraphProto):
        return like if isinstance(like, bytes) else b""
    return fields(like, without=_OF_BODIES)


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
