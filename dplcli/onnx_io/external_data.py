"""Tensor data in files beside the model: found, checked and copied, never read."""

from __future__ import annotations

import filecmp
import math
import os
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

from dplcli.errors import InvalidModelError, ModelExportError, ModelLoadError
from dplcli.files import copy_file, mode_for, path_of, temporary_folder
from dplcli.ir.types import PLAIN_KINDS
from dplcli.onnx_io.convert import dtype_bits
from dplcli.onnx_io.source import source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from onnx import NodeProto, SparseTensorProto

    from dplcli.files import Provisional
    from dplcli.ir import Model


_WITHOUT_TENSORS = {AttributeProto.AttributeType.Value(kind.upper()) for kind in PLAIN_KINDS}


def copy_external_data(model: Model, destination: Path, made: Provisional) -> None:
    """Make the model's external data reachable from *destination*'s folder.

    In the model's own folder the data is there already. To other folders the files are copied, as
    onnx refuses to follow links, hard ones included.

    Args:
        model: The model.
        destination: Where it is written.
        made: What is put there is noted here.

    Raises:
        ModelExportError: A different file of the same name lies there, or one is missing.
    """
    if model.path is not None and not _shares_folder(model.path, destination):
        for location in locations_of(model):
            part = path_of(location)
            _copy_beside(model.path.parent / part, destination.parent / part, made)


@dataclass(frozen=True)
class PackedModel:
    """A model in a folder beside its destination, with all of its external data in one file.

    Attributes:
        path: The model there.
        destination: Where :meth:`commit` puts it.
        data_size: How many bytes of external data it has.
    """

    path: Path
    destination: Path
    data_size: int

    def commit(self) -> None:
        """Put it and its data in their places.

        Raises:
            ModelExportError: A file stands in the way, or they cannot be put there.
        """
        data, target = _data_of(self.path), _data_of(self.destination)
        try:
            if data.exists():
                if target.exists() and not filecmp.cmp(data, target, shallow=False):
                    raise ModelExportError(
                        f"{target}: a different file stands where external data must go",
                        hint="remove it, or write to another place",
                    )
                data.replace(target)
            self.path.replace(self.destination)
        except OSError as error:
            place = self.destination
            raise ModelExportError(f"{place}: cannot be written: {error.strerror}") from error


def _data_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


@contextmanager
def pack(proto: ModelProto, folder: Path, destination: Path) -> Iterator[PackedModel]:
    """Write *proto* beside *destination*, with what it needs of its external data; then remove it.

    Data is copied from file to file, a piece at a time.

    Args:
        proto: The model, which is changed to refer to the new file.
        folder: Where its external data lies. It was checked.
        destination: The place that it is for.

    Raises:
        ModelExportError: It cannot be written.
    """
    outside = [t for t in all_tensors(proto) if t.data_location == TensorProto.EXTERNAL]
    destination = destination.resolve()
    with ExitStack() as stack:
        try:
            path = stack.enter_context(temporary_folder(destination.parent)) / destination.name
            data, size = _data_of(path), 0
            if outside:
                with data.open("wb") as file:
                    for tensor in outside:
                        _move_data(tensor, folder, file, data.name)
                size = data.stat().st_size
            path.write_bytes(proto.SerializeToString())
            path.chmod(mode_for(destination))
        except OSError as error:
            reason = error.strerror or error
            raise ModelExportError(f"{destination}: cannot be written: {reason}") from error
        yield PackedModel(path, destination, size)


def pack_file(path: Path, destination: Path) -> None:
    """Write the model at *path* to *destination*, with all of its external data in one file.

    Raises:
        ModelExportError: It cannot be written.
    """
    proto = ModelProto.FromString(path.read_bytes())
    with pack(proto, path.parent, destination) as written:
        written.commit()


_PIECE = 1 << 22
_ALIGNED = 1 << 12
"""So that runtimes can map the data of each tensor."""


def _move_data(tensor: TensorProto, folder: Path, to: BinaryIO, location: str) -> None:
    """Copy the data of a tensor to the end of a file, and let the tensor refer to that."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    begin, end = int(entries.get("offset", 0)), _end_of(tensor, entries)
    start = -(-to.tell() // _ALIGNED) * _ALIGNED
    to.seek(start)
    with (folder / path_of(entries["location"])).open("rb") as source:
        source.seek(begin)
        left = end - begin
        while left and (piece := source.read(min(_PIECE, left))):
            left -= len(piece)
            if piece.count(0) == len(piece):  # as in files with holes: the copy has them, too
                to.seek(len(piece), os.SEEK_CUR)
            else:
                to.write(piece)
    to.truncate()
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", start), ("length", end - begin)):
        tensor.external_data.add(key=key, value=str(value))


def external_files(model: Model, folder: Path) -> set[Path]:
    """Return, resolved, the files that hold a model's external data, or will in *folder*.

    Raises:
        InvalidModelError: A location leads out of the model's folder.
    """
    if model.path is None:
        return set()
    return {
        (place / path_of(location)).resolve()
        for location in locations_of(model)
        for place in (model.path.parent, folder)
    }


def _shares_folder(model: Path, destination: Path) -> bool:
    """Tell whether *destination* lies beside the model, or beside the file it links to."""
    return destination.parent.resolve() in {model.parent.resolve(), model.resolve().parent}


def _copy_beside(source: Path, target: Path, made: Provisional) -> None:
    if not source.is_file():
        raise ModelExportError(f"{source}: external data of the model is missing")
    if target.exists() or target.is_symlink():
        if target.exists() and filecmp.cmp(source, target, shallow=False):
            return
        raise ModelExportError(
            f"{target}: a different file stands where the model's external data must go",
            hint="write to another folder",
        )
    try:
        for folder in reversed(target.parents):
            if not folder.exists():
                made.note(folder)
                folder.mkdir()
        made.note(target)
        copy_file(source, target)
    except OSError as error:
        raise ModelExportError(f"{target}: cannot be written: {error.strerror}") from error


def check_external_data(model: Model) -> None:
    """Check, without reading it, that the external data of a loaded model is there and whole.

    Raises:
        ModelLoadError: A file is missing, or shorter than a tensor in it says.
        InvalidModelError: A location leads out of the model's folder.
    """
    path = model.path
    if path is None:
        return
    sizes = {place: _size(path, place) for place in locations_of(model)}
    for tensor in _external_tensors(model):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        needed, present = _end_of(tensor, entries), sizes.get(location, 0)
        if present < needed:
            raise ModelLoadError(
                f"{path}: its external data {location!r} is cut off: {tensor.name!r} needs "
                f"{needed:,} bytes of it, there are {present:,}"
            )


def _size(model: Path, location: str) -> int:
    """Return the size of a file of external data.

    Raises:
        ModelLoadError: There is no such file.
    """
    path = model.parent / path_of(location)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ModelLoadError(f"{model}: its external data {location!r} is missing") from error
    except OSError as error:
        raise ModelLoadError(
            f"{model}: its external data {location!r} cannot be read: {error.strerror}"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ModelLoadError(f"{model}: its external data {location!r} is missing")
    return status.st_size


def _end_of(tensor: TensorProto, entries: Mapping[str, str]) -> int:
    """Return where in its file a tensor's data ends."""
    try:
        offset = int(entries.get("offset", 0))
        if "length" in entries:
            return offset + int(entries["length"])
    except ValueError:
        return 0
    elements: int = math.prod(tensor.dims)
    return offset + elements * dtype_bits(tensor.data_type) // 8


def locations_of(model: Model) -> list[str]:
    """Return the locations that the tensors of a loaded model refer to, each once.

    Raises:
        InvalidModelError: A location leads out of the model's folder.
    """
    locations = dict.fromkeys(
        entry.value
        for tensor in _external_tensors(model)
        for entry in tensor.external_data
        if entry.key == "location"
    )
    for location in locations:
        parts = PurePosixPath(location.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise InvalidModelError(
                f"{model.path}: external data at {location!r} lies outside the model's folder"
            )
    return list(locations)


def _external_tensors(model: Model) -> Iterator[TensorProto]:
    if not model.may_have_external_data or model.source is None:
        return
    for tensor in all_tensors(source_of(model).model()):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield tensor


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Iterate over the tensors of a model, in nodes and functions, too; sparse ones are two."""
    yield from _tensors_of_graph(proto.graph)
    for function in proto.functions:
        yield from _tensors_of_nodes(function.node)
        yield from _tensors_of_attributes(function.attribute_proto)


def _tensors_of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _tensors_of_sparse(graph.sparse_initializer)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_sparse(sparse: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for item in sparse:
        yield item.values
        yield item.indices


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        yield from _tensors_of_attributes(node.attribute)


def _tensors_of_attributes(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.type in _WITHOUT_TENSORS:
            continue
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from _tensors_of_sparse([attribute.sparse_tensor])
        yield from _tensors_of_sparse(attribute.sparse_tensors)
        if attribute.HasField("g"):
            yield from _tensors_of_graph(attribute.g)
        for graph in attribute.graphs:
            yield from _tensors_of_graph(graph)
