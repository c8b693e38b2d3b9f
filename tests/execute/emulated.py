"""cuBLASLt without a GPU: descriptors of the real library, or of a list, and a product in numpy.

The emulator knows nothing of ONNX. It reads the descriptors back, as the library would, and then
memory: buffers, leading dimensions, strides, operations, epilogue.
"""

# ruff: noqa: ANN401, N802, SLF001  # functions of C, and what ctypes hands them

from __future__ import annotations

import ctypes as c
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dplcli.errors import UsageError
from dplcli.execute import kernels_for
from dplcli.execute.cublas import library
from dplcli.execute.cublas.library import DESCRIPTION, LAYOUT
from dplcli.execute.cublas.matmul import BIAS, DTYPES, RELU
from dplcli.execute.cuda import load, numpy_type
from dplcli.execute.cutlass import library as cutlass
from dplcli.execute.product import gelu
from dplcli.execute.session import KernelSession
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource
from tests.execute.support import uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.execute.cutlass.library import TemplateInstance

TYPES = {number: name for name, number in DTYPES.items()}
GUARD = b"\xa5" * 64


class HostDevice:
    """Memory of the CPU in the place of a GPU's, with a guard behind each piece."""

    generation = 9

    def __init__(self, _extra: str = "") -> None:
        self.pieces: dict[int, tuple[c.Array[c.c_char], int]] = {}

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes, which nothing has written to."""
        piece = c.create_string_buffer(b"\xff" * size + GUARD, size + len(GUARD))
        self.pieces[c.addressof(piece)] = piece, size
        return c.addressof(piece)

    def free(self, addresses: Sequence[int]) -> None:
        """Give memory back, once; nothing has been written behind it."""
        for address in addresses:
            piece, size = self.pieces.pop(address)
            assert piece.raw[size:] == GUARD

    def write(self, address: int, array: NDArray[Any]) -> None:
        """Copy an array there."""
        data = np.ascontiguousarray(array)
        assert data.nbytes <= self.pieces[address][1]
        c.memmove(address, data.ctypes.data, data.nbytes)

    def wait(self) -> None:
        """Do nothing: all is done at once."""

    def read(self, address: int, into: NDArray[Any]) -> None:
        """Copy from there; nothing has been written behind any piece."""
        for piece, size in self.pieces.values():
            assert piece.raw[size:] == GUARD
        assert into.nbytes <= self.pieces[address][1]
        c.memmove(into.ctypes.data, address, into.nbytes)


class Listed:
    """Descriptors as cuBLASLt keeps them, for where there is no cuBLASLt."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[int, bytes]] = {}
        self.cublasLtGetVersion = lambda: 130000
        self.cublasLtMatmulDescGetAttribute = self._get
        self.cublasLtMatrixLayoutGetAttribute = self._get
        self.cublasLtMatmulDescSetAttribute = self._set
        self.cublasLtMatrixLayoutSetAttribute = self._set

    def _new(self, handle: Any, attributes: dict[int, Any]) -> int:
        number = len(self.kept) + 1
        handle._obj.value = number
        self.kept[number] = {key: bytes(value) for key, value in attributes.items()}
        return 0

    def cublasLtMatmulDescCreate(self, handle: Any, compute: int, scale: int) -> int:
        """Make a descriptor: no operation, no epilogue."""
        numbers = {0: compute, 1: scale, 3: 0, 4: 0, 7: 1}
        made: dict[int, Any] = {key: c.c_int32(value) for key, value in numbers.items()}
        return self._new(handle, made | {8: c.c_uint64(0)})

    def cublasLtMatrixLayoutCreate(
        self, handle: Any, dtype: int, rows: Any, columns: Any, leading: Any
    ) -> int:
        """Make a layout of one matrix."""
        made: dict[int, Any] = {0: c.c_uint32(dtype), 2: rows, 3: columns, 4: leading}
        return self._new(handle, made | {5: c.c_int32(1), 6: c.c_int64(0)})

    def _set(self, handle: c.c_void_p, number: int, value: Any, size: c.c_size_t) -> int:
        assert handle.value is not None
        self.kept[handle.value][number] = c.string_at(c.addressof(value._obj), size.value)
        return 0

    def _get(self, handle: c.c_void_p, number: int, value: Any, size: c.c_size_t, _: Any) -> int:
        assert handle.value is not None
        kept = self.kept[handle.value][number]
        if len(kept) != size.value:
            return 7
        c.memmove(c.addressof(value._obj), kept, len(kept))
        return 0


class Emulated:
    """A cuBLASLt whose product is computed here."""

    def __init__(self, functions: Any) -> None:
        self.real = functions
        self.products = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cublasLtCreate(self, _: object) -> int:
        """Succeed, though there is no GPU."""
        return 0

    def read(self, handle: c.c_void_p, table: dict[str, tuple[int, Any]]) -> dict[str, Any]:
        """Return all attributes of a descriptor."""
        kind = "MatrixLayout" if table is LAYOUT else "MatmulDesc"
        get = getattr(self.real, f"cublasLt{kind}GetAttribute")
        found = {}
        for name, (number, ctype) in table.items():
            value, written = ctype(), c.c_size_t()
            status = get(
                handle, number, c.byref(value), c.c_size_t(c.sizeof(value)), c.byref(written)
            )
            assert status == 0, (name, status)
            found[name] = value.value
        return found

    def _matrices(self, address: int, layout: dict[str, Any]) -> NDArray[Any]:
        """Return column-major matrices in memory: batch, rows, columns."""
        dtype = numpy_type(TYPES[layout["type"]])
        count = (layout["batch"] - 1) * layout["stride"] + (layout["columns"] - 1) * layout[
            "leading"
        ]
        size = (count + layout["rows"]) * dtype.itemsize
        flat = np.frombuffer((c.c_uint8 * size).from_address(address), dtype)
        shape = layout["batch"], layout["rows"], layout["columns"]
        steps = [n * dtype.itemsize for n in (layout["stride"], 1, layout["leading"])]
        return np.lib.stride_tricks.as_strided(flat, shape, steps)

    def cublasLtMatmul(self, *arguments: Any) -> int:
        """Compute what the descriptors say."""
        _, description, alpha, a, a_layout, b, b_layout, beta, _, _, d, d_layout, *rest = arguments
        told = self.read(description, DESCRIPTION)
        matrices = []
        for place, handle in ((a, a_layout), (b, b_layout), (d, d_layout)):
            matrices.append(self._matrices(place.value, self.read(handle, LAYOUT)))
        wide = np.float64 if TYPES[told["scale"]] == "float64" else np.float32
        left: Any
        right: Any
        left, right = (matrix.astype(wide) for matrix in matrices[:2])
        if told["transpose_a"]:
            left = left.transpose(0, 2, 1)
        if told["transpose_b"]:
            right = right.transpose(0, 2, 1)
        result = alpha._obj.value * (left @ right)
        assert beta._obj.value == 0
        assert rest[:2] == [None, None]
        if told["epilogue"] & BIAS:
            dtype = matrices[2].dtype
            size = result.shape[1] * dtype.itemsize
            raw = (c.c_uint8 * size).from_address(told["bias"])
            result = result + np.frombuffer(raw, dtype).astype(wide)[:, None]
        if told["epilogue"] & RELU:
            result = np.maximum(result, 0)
        assert told["epilogue"] in {1, 2, 4, 6}
        matrices[2][...] = result
        self.products += 1
        return 0


def _at(place: c.c_void_p, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return memory as an array."""
    assert place.value
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = memoryview((c.c_uint8 * size).from_address(place.value))
    return np.frombuffer(raw, np.dtype(dtype)).reshape(shape)


_CUTLASS: dict[str, Callable[[Any], Any]] = {
    "Identity": lambda a: a,
    "GELU": gelu,
    "HardSwish": lambda a: a * np.minimum(np.maximum(a + 3, 0), 6) / 6,
    "ReLu": lambda a: np.maximum(a, 0),
    "Sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "SiLu": lambda a: a / (1 + np.exp(-a)),
}


class Template:
    """``product.cu`` in numpy: it knows sizes, NHWC and OHWI, and nothing of ONNX."""

    def __init__(self, instance: TemplateInstance, _compiler: object = None) -> None:
        self.instance = instance

    def dpl_product(self, *arguments: Any) -> int:
        """Compute what the kernel is meant to."""
        image, filters, bias, residual, result, sizes, _ = arguments
        n, h, w, channels, k, r, s, p, q, top, left, *more = sizes
        down, right, reach_down, reach_right, is_row = more
        dtype = self.instance.dtype
        if dtype == "float16":
            assert channels % 8 == k % 8 == 0
        x = _at(image, dtype, (n, h, w, channels)).astype(np.float64)
        x = np.pad(
            x,
            [(0, 0), (top, p * down + r * reach_down), (left, q * right + s * reach_right), (0, 0)],
        )
        f = _at(filters, dtype, (k, r, s, channels)).astype(np.float64)
        made = np.zeros((n, p, q, k))
        for i, j in np.ndindex(r, s):
            rows = x[:, i * reach_down :][:, : p * down : down]
            places = rows[:, :, j * reach_right :][:, :, : q * right : right]
            made += places @ f[:, i, j].T
        made += _at(bias, dtype, (k,))
        made = _CUTLASS[self.instance.activation](made)
        other = _at(residual, dtype, (k,) if is_row else (n, p, q, k)).astype(np.float64)
        made = made * other if self.instance.binary == "multiplies" else made + other
        made = _CUTLASS[self.instance.last](made)
        _at(result, dtype, (n, p, q, k))[...] = made
        return 0


def use_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``--with cutlass`` of this process be emulated."""
    monkeypatch.setattr(cutlass, "loaded", Template)
    monkeypatch.setattr(cutlass, "Device", HostDevice)
    monkeypatch.setattr(cutlass, "Compiler", lambda: SimpleNamespace(missing=""))


def real_library() -> Any:
    """Return cuBLASLt; skip the test if it is not installed."""
    try:
        return load(*library.LIBRARY)
    except UsageError as error:
        pytest.skip(error.message)


def use(monkeypatch: pytest.MonkeyPatch, functions: Any = None) -> Emulated:
    """Let ``--with cublas`` of this process be emulated."""
    emulated = Emulated(functions or Listed())
    monkeypatch.setattr(library, "load", lambda *_: emulated)
    monkeypatch.setattr(library, "Device", HostDevice)
    return emulated


def opened(path: Path, target: str = "cublas", level: str = "disable") -> KernelSession:
    """Open a partitioned model in this process."""
    if uncompiled():
        pytest.skip(uncompiled())
    execution = Execution(isolated=False, kernels=kernels_for(target))
    return KernelSession(ModelSource(path, execution=execution), level)
