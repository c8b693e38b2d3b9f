"""Files of arrays: what numpy writes, and the test data of onnx.

A file may come from anywhere. What is wrong with it is one message that names it, and it is not
unpacked before its sizes were looked at.
"""

import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dplcli.errors import UsageError
from dplcli.files import resolved, write_file
from dplcli.verify.model import Kind
from dplcli.verify.values import Array, storable

ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError)
"""What reading a .npz file raises; it is RuntimeError where a file says that it is encrypted."""

_READ_ERRORS = (*ARCHIVE_ERRORS, OSError, ValueError, EOFError, KeyError, MemoryError)
_MOST_UNPACKED = 1 << 30
_MOST_PACKED = 100
"""How many times its size a file may unpack to, beyond that many bytes."""

_HEADERS = (np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0)
_PROTOS: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
    "sequence": (onnx.SequenceProto, onnx.numpy_helper.to_list),
    "optional": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    "optional sequence": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
}
_TIME = (1980, 1, 1, 0, 0, 0)
"""When members of archives were written, as they say: a file is the same bytes each time."""


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return str(error).partition("\n")[0]


def read_npy(path: Path) -> Array:
    """Return the array in a .npy file.

    Raises:
        UsageError: There is none, or there are several.
    """
    loaded = _loaded(path, "an array in numpy's format")
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"{path}: holds several arrays; rename it to .npz")
    return loaded


def read_npz(path: Path, look: Callable[[str, tuple[int, ...]], None]) -> dict[str, Array]:
    """Return the arrays in a .npz file.

    Args:
        path: The file.
        look: Called with the name and the shape of each array while all are still packed.

    Raises:
        UsageError: There are none, or they are far larger than the file.
    """
    total = 0
    with suppress(*_READ_ERRORS), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():  # what is damaged is found when it is unpacked
            total += info.file_size
            with archive.open(info) as file:
                is_long = np.lib.format.read_magic(file) >= (2, 0)
                shape, _, dtype = _HEADERS[is_long](file)
            if not dtype.hasobject:
                look(info.filename.removesuffix(".npy"), shape)
    size = path.stat().st_size
    if total > max(_MOST_UNPACKED, _MOST_PACKED * size):
        raise UsageError(
            f"{path}: would unpack to {total / 1e9:,.1f} GB, from {size / 1e6:,.1f} MB",
            hint="if that is right, save it with numpy.savez, which does not pack",
        )
    arrays = _loaded(path, "arrays in numpy's .npz format")
    if isinstance(arrays, np.ndarray):
        raise UsageError(f"{path}: holds one array; rename it to .npy")
    if not arrays:
        raise UsageError(f"{path}: holds no arrays")
    return arrays


def _loaded(path: Path, what: str) -> Array | dict[str, Array]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            return {name: loaded[name] for name in loaded.files}
    except (*_READ_ERRORS, AttributeError) as error:
        reason = (first_line(error) or type(error).__name__)[:120]
        raise UsageError(f"{path}: not {what} ({reason})") from error


def read_pb(path: Path, kind: Kind) -> tuple[str, Any]:
    """Return the name and the value in one file of onnx test data.

    Raises:
        UsageError: There is no such file, or it holds nothing of that kind.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    try:
        proto, decoded = _PROTOS.get(kind, (onnx.TensorProto, onnx.numpy_helper.to_array))
        message = proto.FromString(content)
        if getattr(message, "data_location", None) == onnx.TensorProto.EXTERNAL:
            raise UsageError(f"{path}: its data lie in another file, which is not read")
        return message.name, decoded(message)
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: holds no {kind} in onnx's format") from error


def write_arrays(option: str, path: Path, arrays: Iterable[tuple[str, Array]]) -> None:
    """Write arrays by name as .npz, in one step and the same bytes each time.

    numpy has no name for bfloat16 and the like. Such arrays are raw bytes of that width in the
    file, and are read back as the type that the model declares.

    Raises:
        UsageError: The file cannot be written.
    """

    def write(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays:
                member = zipfile.ZipInfo(f"{name}.npy", _TIME)
                member.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, storable(array), allow_pickle=False)

    try:
        write_file(path, write)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written: {error.strerror}") from error


def check_saving(option: str, save: Path | None, *read: Path | None) -> None:
    """Refuse to write over what is read.

    Raises:
        UsageError: The file to write is one of those.
    """
    if save is not None and resolved(save) in {resolved(path) for path in read if path is not None}:
        raise UsageError(f"{option} {save}: would replace what is read")
