"""Tensor data in files beside the model: found, checked and copied, never read."""

from __future__ import annotations

import errno
import filecmp
import os
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, get_args

from onnx import ModelProto, TensorProto

from dplcli.errors import InvalidModelError, ModelExportError, ModelLoadError, opt
from dplcli.files import (
    copy_file,
    copy_part,
    link_file,
    mode_for,
    path_of,
    place_in,
    resolved,
    temporary_folder,
)
from dplcli.onnx_io.convert import entries_of, external_tensors, span_of
from dplcli.onnx_io.parts import RawData
from dplcli.onnx_io.source import source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.files import Provisional
    from dplcli.ir import Model, Tensor


ExternalData = Literal["copy", "link", "repack"]
EXTERNAL_DATA: tuple[ExternalData, ...] = get_args(ExternalData)
"""What becomes of external data when a model is written."""


def bring_data(
    locations: Iterable[str], folder: Path, target: Path, made: Provisional, *, link: bool = False
) -> None:
    """Make external data reachable from another folder than that in which it lies.

    Symbolic links would not do: onnx and onnxruntime follow none. A file with two names onnxruntime
    takes, but not onnx, not even under the first name.

    Args:
        locations: Where it lies in *folder*.
        folder: The folder of the model that it is of.
        target: The folder of the model that refers to it, too.
        made: What is put there is noted here.
        link: Whether to give the files a second name rather than to copy them.

    Raises:
        ModelExportError: A different file of the same name lies there, or one is missing.
    """
    for location in locations:
        source = place_in(folder, location)
        _put_beside(source, target / path_of(location), made, link=link)


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

    def put_data(self) -> None:
        """Put its data in its place.

        Raises:
            ModelExportError: A file stands in the way, or it cannot be put there.
        """
        data, target = _data_of(self.path), _data_of(self.destination)
        if data.exists():
            self.check_place()
            try:
                data.replace(target)
            except OSError as error:
                raise ModelExportError(f"{target}: cannot be written: {error.strerror}") from error

    def check_place(self) -> None:
        """Refuse a place for data where something else stands.

        Raises:
            ModelExportError: It does.
        """
        data, target = _data_of(self.path), _data_of(self.destination)
        is_taken = data.exists() and (target.exists() or target.is_symlink())
        if is_taken and not _are_equal(data, target):
            raise ModelExportError(
                f"{target}: a different file stands where external data must go",
                hint="write to another place, or remove that file if no model needs it",
            )

    def commit(self) -> None:
        """Put it and its data in their places.

        Raises:
            ModelExportError: A file stands in the way, or they cannot be put there.
        """
        self.put_data()
        try:
            self.path.replace(self.destination)
        except OSError as error:
            place = self.destination
            raise ModelExportError(f"{place}: cannot be written: {error.strerror}") from error


def _data_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


@contextmanager
def pack(proto: ModelProto, folders: Sequence[Path], destination: Path) -> Iterator[PackedModel]:
    """Write *proto* beside *destination*, with what it needs of its external data; then remove it.

    Data is copied from file to file, a piece at a time, once where tensors share it.

    Args:
        proto: The model, which is changed to refer to the new file.
        folders: Where its external data lies: in the first that has it. It was checked.
        destination: The place that it is for.

    Raises:
        ModelExportError: It cannot be written.
    """
    outside = external_tensors(proto)
    destination = resolved(destination)
    with ExitStack() as stack:
        try:
            path = stack.enter_context(temporary_folder(destination.parent)) / destination.name
            data, size = _data_of(path), 0
            if outside:
                places: dict[DataPlace, DataPlace] = {}
                with data.open("wb") as file:
                    for tensor in outside:
                        _move_data(tensor, folders, file, places)
                size = data.stat().st_size
            path.write_bytes(proto.SerializeToString())
            path.chmod(mode_for(destination))
        except OSError as error:
            reason = error.strerror or error
            raise ModelExportError(f"{destination}: cannot be written: {reason}") from error
        packed = PackedModel(path, destination, size)
        packed.check_place()
        yield packed


def pack_file(path: Path, destination: Path) -> None:
    """Write the model at *path* to *destination*, with all of its external data in one file.

    Raises:
        ModelExportError: It cannot be written.
    """
    proto = ModelProto.FromString(path.read_bytes())
    with pack(proto, [path.parent], destination) as written:
        written.commit()


_ALIGNED = 1 << 12
"""So that runtimes can map the data of each tensor."""


class DataPlace(NamedTuple):
    """Where the data of a tensor lies.

    Attributes:
        location: The file, as models name it.
        begin: Where the data begins there.
        end: Where it ends.
    """

    location: str
    begin: int
    end: int


IN_MEMORY = f"\0{token_hex(16)}"
"""Stands for a file where data is in memory: none has this name, and no model can spell it."""

NOWHERE: Mapping[Tensor, DataPlace] = MappingProxyType({})


def refer(tensor: TensorProto, place: DataPlace) -> None:
    """Let a tensor have its data in a file."""
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    location, begin, end = place
    for key, value in (("location", location), ("offset", begin), ("length", end - begin)):
        tensor.external_data.add(key=key, value=str(value))


def _move_data(
    tensor: TensorProto, folders: Sequence[Path], to: BinaryIO, places: dict[DataPlace, DataPlace]
) -> None:
    """Let a tensor refer to its data in a file, and copy the data to the file's end first.

    What *places* says is in the file already is not copied again.
    """
    place = place_of(tensor)
    if place not in places:
        begin = _begin_at_end(to)
        part = path_of(place.location)
        folder = next((item for item in folders if (item / part).exists()), folders[0])
        with place_in(folder, place.location).open("rb") as source:
            copy_part(source, to, place.begin, place.end)
        places[place] = DataPlace(Path(to.name).name, begin, begin + place.end - place.begin)
    refer(tensor, places[place])


def _begin_at_end(file: BinaryIO) -> int:
    """Go to where the next tensor begins in a file of data; return how far that is."""
    return file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)


def place_of(tensor: TensorProto) -> DataPlace:
    """Return where the data of a tensor lies that has it in a file; all places in memory are empty.

    Raises:
        ModelLoadError: What is stated cannot be, or does not fit the type.
    """
    entries = entries_of(tensor)
    location = entries.get("location", "")
    try:
        begin, size = (int(entries["offset"]), 0) if location == IN_MEMORY else span_of(tensor)
    except ValueError as error:
        raise ModelLoadError(str(error)) from error
    return DataPlace(location, begin, begin + size)


def places_in(proto: ModelProto) -> set[DataPlace]:
    """Return where a model has external data; tensors that share it have one place."""
    return set(map(place_of, external_tensors(proto)))


def total_size(places: Iterable[DataPlace]) -> int:
    """Return how many bytes of external data there are at *places*."""
    return sum([max(place.end - place.begin, 0) for place in places])


def data_used(model: Model) -> int:
    """Return how many bytes of external data a loaded model uses; what is shared counts once."""
    return total_size(set(map(place_of, _external_tensors(model))))


def write_data(tensors: Iterable[Tensor], data: Path) -> dict[Tensor, DataPlace]:
    """Write the data of tensors to a file; return where that of each lies.

    Raises:
        OSError: It cannot be written.
    """
    places = {}
    with data.open("wb") as file:
        for tensor in tensors:
            begin = _begin_at_end(file)
            file.writelines(RawData(tensor).encoded())
            places[tensor] = DataPlace(data.name, begin, file.tell())
    return places


def settle(data: Path, destination: Path, taken: Iterable[str], made: Provisional) -> Path:
    """Give a new file of data a name after the model at *destination* that nothing else has.

    Args:
        data: The file, beside the model or in another folder.
        destination: The model. An equal file beside it is taken instead.
        taken: The locations of other data of the model.
        made: What is made is noted here.

    Returns:
        The file under its new name.
    """
    path = final = _data_of(destination)
    others = set(map(path_of, taken))
    for number in count(1):
        path = data.with_name(final.name)
        is_free = Path(path.name) not in others and (path == final or not os.path.lexists(path))
        if is_free and (not os.path.lexists(final) or _are_equal(data, final)):
            break
        final = destination.with_name(f"{destination.name}.{number}.data")
    if not path.exists():
        data.chmod(mode_for(path))
        made.note(path)
        data.replace(path)
    return path


def external_files(model: Model, folder: Path) -> set[Path]:
    """Return, resolved, the files that hold a model's external data, or will in *folder*.

    Raises:
        InvalidModelError: A location leads out of the model's folder.
    """
    if model.path is None:
        return set()
    return {
        resolved(place / path_of(location))
        for location in locations_of(model)
        for place in (model.path.parent, folder)
    }


def shares_folder(model: Model, destination: Path) -> bool:
    """Tell whether *destination* lies beside the model, or beside the file it links to."""
    path = model.path
    return path is None or resolved(destination.parent) in {
        resolved(path.parent),
        resolved(path).parent,
    }


def _put_beside(source: Path, target: Path, made: Provisional, *, link: bool) -> None:
    if not source.is_file():
        raise ModelExportError(f"{source}: external data of the model is missing")
    if target.exists() or target.is_symlink():
        if _are_equal(source, target):
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
        (link_file if link else copy_file)(source, target)
    except OSError as error:
        if link and error.errno in _WITHOUT_LINKS:
            raise ModelExportError(
                f"{target}: {source} can have no second name there: {error.strerror}",
                hint=f"pass {opt('external_data', 'copy')}",
            ) from error
        raise ModelExportError(f"{target}: cannot be written: {error.strerror}") from error


_WITHOUT_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}
"""Why there are no hard links: two disks, a disk without links, too many of them."""


def _are_equal(one: Path, other: Path) -> bool:
    if not other.exists():  # as a symbolic link to nothing
        return False
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


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
        location = entries_of(tensor).get("location", "")
        try:
            needed, present = sum(span_of(tensor)), sizes.get(location, 0)
        except ValueError as error:
            raise ModelLoadError(f"{path}: {error}") from error
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
    try:
        status = place_in(model.parent, location).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ModelLoadError(f"{model}: its external data {location!r} is missing") from error
    except OSError as error:
        raise ModelLoadError(
            f"{model}: its external data {location!r} cannot be read: {error.strerror}"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ModelLoadError(f"{model}: its external data {location!r} is missing")
    return status.st_size


def locations_of(model: Model) -> list[str]:
    """Return the locations that the tensors of a loaded model refer to, each once.

    Raises:
        InvalidModelError: A location leads out of the model's folder.
    """
    locations = dict.fromkeys(
        entry.value
        for tensor in _external_tensors(model)
        for entry in tensor.external_data
        if entry.key == "location" and entry.value != IN_MEMORY
    )
    folder = model.path.parent if model.path else Path()
    for location in locations:
        try:
            place_in(folder, location)
        except ValueError as error:
            raise InvalidModelError(f"{model.path}: {error}") from error
    return list(locations)


def _external_tensors(model: Model) -> Sequence[TensorProto]:
    if not model.may_have_external_data or model.source is None:
        return ()
    return source_of(model).external
