"""Messages between dpl and its workers: a line of JSON, and arrays in shared memory.

Each message is a length, a JSON object, and at most one file descriptor. That stands for a file
without a name which holds the arrays one after another: the receiver maps it and looks at them in
place. Nothing is unpickled, and nothing is left behind whoever dies when.
"""

import array
import json
import mmap
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dplcli.verify.values import Array, is_exotic

Header = dict[str, Any]

OUT_OF_MEMORY = 71
"""Exit code of a worker that has not even the memory to say so."""

_ALIGNMENT = 64
_LENGTH = 8
_CHUNK = 1 << 20


class ClosedError(Exception):
    """The other side is gone."""


def send(to: socket.socket, header: Header, arrays: Sequence[Array] = ()) -> None:
    """Send a message.

    Raises:
        ClosedError: Nobody listens any more.
        TimeoutError: Nobody read it in the time that the socket allows.
    """
    packed, places, size = [], [], 0
    for values in arrays:
        place, data = _pack(values)
        place |= {"offset": size, "nbytes": data.nbytes}
        packed.append(data)
        places.append(place)
        size += -(-data.nbytes // _ALIGNMENT) * _ALIGNMENT
    text = json.dumps({**header, "arrays": places, "size": size}).encode()
    length = len(text).to_bytes(_LENGTH, "little")
    descriptors = [_fill(packed, places, size)] if size else []
    try:
        socket.send_fds(to, [length], descriptors)
        to.sendall(text)
    except TimeoutError:
        raise
    except OSError as error:
        raise ClosedError from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def receive(
    at: socket.socket, deadline: float | None = None, *, writable: bool = False
) -> tuple[Header, list[Array]]:
    """Wait for a message.

    Args:
        at: Where it comes in.
        deadline: When to give up, by `time.monotonic`; None for never.
        writable: Map the arrays so that writing to them changes a private copy.

    Raises:
        ClosedError: The other side went away before or within the message.
        TimeoutError: It did not come in time.
    """
    descriptors: list[int] = []
    try:
        length = int.from_bytes(_read(at, _LENGTH, deadline, descriptors), "little")
        header = cast("Header", json.loads(_read(at, length, deadline, descriptors)))
        return header, _unpack(header, descriptors, writable=writable)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _read(
    at: socket.socket, size: int, deadline: float | None, descriptors: list[int]
) -> bytearray:
    found = bytearray()
    room = socket.CMSG_SPACE(array.array("i", [0]).itemsize)
    while len(found) < size:
        at.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
        try:
            part, extra, _, _ = at.recvmsg(min(size - len(found), _CHUNK), room)
        except TimeoutError:
            raise
        except OSError as error:
            raise ClosedError from error
        for level, kind, data in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors += array.array("i", data).tolist()
        if not part:
            raise ClosedError
        found += part
    return found


def _pack(values: Array) -> tuple[Header, Array]:
    """Return how an array is described, and its content as numbers."""
    place: Header = {"shape": list(values.shape), "dtype": values.dtype.str}
    if values.dtype.kind in "OUS":
        text = json.dumps([str(word) for word in values.reshape(-1)]).encode()
        return {**place, "dtype": "string"}, np.frombuffer(text, np.uint8)
    data = np.ascontiguousarray(values)
    if is_exotic(values):
        import onnx  # noqa: PLC0415  # slow to load, and rarely needed

        number = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        return {**place, "dtype": number}, data.reshape(-1).view(np.uint8)
    return place, data


def _fill(packed: Sequence[Array], places: Sequence[Header], size: int) -> int:
    """Return a file without a name that holds the arrays."""
    descriptor = _nameless()
    try:
        os.ftruncate(descriptor, size)
        with mmap.mmap(descriptor, size) as memory:
            for data, place in zip(packed, places, strict=True):
                flat = np.frombuffer(memory, np.uint8, data.nbytes, place["offset"])
                flat[:] = data.reshape(-1).view(np.uint8)
                del flat
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dpl", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415  # not on Linux

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _unpack(header: Header, descriptors: Sequence[int], *, writable: bool) -> list[Array]:
    places, size = header.pop("arrays"), header.pop("size")
    memory: mmap.mmap | bytes = b""
    if size:
        access = mmap.ACCESS_COPY if writable else mmap.ACCESS_WRITE
        try:
            memory = mmap.mmap(descriptors[0], size, access=access)
        except OSError as error:
            raise MemoryError from error
    return [_array(memory, place) for place in places]


def _array(memory: mmap.mmap | bytes, place: Header) -> Array:
    shape, dtype = tuple(place["shape"]), place["dtype"]
    raw = np.frombuffer(memory, np.uint8, place["nbytes"], place["offset"])
    if dtype == "string":
        words = np.empty(shape, dtype=object)
        words.reshape(-1)[:] = json.loads(raw.tobytes())
        return words
    if isinstance(dtype, int):
        import onnx  # noqa: PLC0415  # slow to load, and rarely needed

        return raw.view(onnx.helper.tensor_dtype_to_np_dtype(dtype)).reshape(shape)
    return raw.view(dtype).reshape(shape)
