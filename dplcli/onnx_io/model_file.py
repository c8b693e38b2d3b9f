"""Get the message out of a file, or say what the file is instead."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from onnx import ModelProto

from dplcli.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

_LFS_MARK = b"version https://git-lfs"
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
    """Parse the bytes of the file at *path*, without its external data.

    Raises:
        ModelLoadError: They are no model, or not a whole one.
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
    return proto


def _what_is_wrong(data: bytes) -> str:
    probe = data[:_TEXT_PROBE]
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in probe):  # noqa: PLR2004  # ASCII space
        return "is a text file, not a binary ONNX model"
    return "is not an ONNX model, or was cut off"
