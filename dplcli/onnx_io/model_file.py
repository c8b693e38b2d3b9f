"""Get the message out of a file, or say what the file is instead."""

from __future__ import annotations

import stat
from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from onnx import GraphProto, ModelProto, TensorProto

from dplcli.errors import InvalidModelError, ModelLoadError
from dplcli.onnx_io.wire import header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from google.protobuf.message import Message

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

    ONNX is declared in proto2, where protobuf does not look, and hands out bytes instead of text.
    Declared in proto3 the same message is refused; so protobuf looks at all fields at its speed.
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
    """Spell out the bytes in prose that is not UTF-8, and refuse names that are not.

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
    if not places:  # what is not text was replaced later in the file
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
