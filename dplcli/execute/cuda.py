"""Memory of a GPU by ctypes, and calls that run there on what onnxruntime holds on the CPU.

Constants are copied to the GPU once; everything else is copied there and back in each run. That is
for judging results, not for speed.
"""

from __future__ import annotations

import ctypes as c
import math
import os
import sys
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from dplcli.errors import UsageError
from dplcli.execute.plan import LibraryError, Primitive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.execute.plan import KernelPlan, Shape

    Arrangement = Callable[[NDArray[Any]], NDArray[Any]]

_MAJORS = (13, 12)
_TO_DEVICE, _FROM_DEVICE = 1, 2
_COMPUTE_MAJOR = 75
"""``cudaDevAttrComputeCapabilityMajor``."""


def load(name: str, function: str, variable: str, extra: str) -> c.CDLL:
    """Load a library of NVIDIA's.

    It is the one that a variable of the environment names, or one of a Python package, or one of
    the system.

    Args:
        name: Its name, as ``cudart``.
        function: One of its functions.
        variable: The variable.
        extra: The extra of dpl that installs it.

    Raises:
        UsageError: There is none.
    """
    named = os.environ.get(variable)
    files = [f"lib{name}.so.{major}" for major in _MAJORS]
    folders = [path for path in map(Path, sys.path) if (path / "nvidia").is_dir()]
    packages = [
        str(place)
        for file in files
        for folder in folders
        for place in sorted(folder.glob(f"nvidia/*/lib/{file}"))
    ]
    places = [named] if named else packages + files
    reasons = []
    for place in places:
        try:
            found = c.CDLL(place)
        except OSError as error:
            reasons.append(str(error))
            continue
        if hasattr(found, function):
            return found
        reasons.append(f"{place} has no {function}")
    hint = f"pip install '{extra}' (Linux), or name a lib{name}.so in {variable}"
    raise UsageError(f"lib{name} was not found: {reasons[0]}", hint=hint)


class Device:
    """The first GPU.

    Attributes:
        generation: The first number of its compute capability; 9 is Hopper.
    """

    def __init__(self, extra: str) -> None:
        """Find it.

        Raises:
            UsageError: There is no CUDA runtime, or no GPU.
        """
        self._functions = load("cudart", "cudaMalloc", "DPL_CUDART_LIBRARY", extra)
        self._functions.cudaGetErrorString.restype = c.c_char_p
        count, major = c.c_int(), c.c_int()
        try:
            self._call("cudaGetDeviceCount", c.byref(count))
            self._call("cudaDeviceGetAttribute", c.byref(major), _COMPUTE_MAJOR, 0)
        except LibraryError as error:
            hint = "run it on a machine with a GPU of NVIDIA's and its driver"
            raise UsageError(f"there is no GPU to run partitions on: {error}", hint=hint) from error
        self.generation = major.value

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._functions, function)(*arguments)
        if status:
            said = self._functions.cudaGetErrorString(status).decode()
            raise LibraryError(f"{function}: {said} (CUDA error {status})")

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes, which somebody has to free."""
        address = c.c_void_p()
        self._call("cudaMalloc", c.byref(address), c.c_size_t(max(size, 1)))
        return address.value or 0

    def free(self, addresses: Sequence[int]) -> None:
        """Give memory back."""
        for address in addresses:
            self._call("cudaFree", c.c_void_p(address))

    def write(self, address: int, array: NDArray[Any]) -> None:
        """Copy an array to the GPU."""
        data = np.ascontiguousarray(array)
        self._copy(address, data.ctypes.data, data.nbytes, _TO_DEVICE)

    def wait(self) -> None:
        """Wait until the GPU has done all that it was told to."""
        self._call("cudaDeviceSynchronize")

    def read(self, address: int, into: NDArray[Any]) -> None:
        """Copy from the GPU."""
        self._copy(into.ctypes.data, address, into.nbytes, _FROM_DEVICE)

    def _copy(self, to: int, source: int, size: int, direction: int) -> None:
        places = c.c_void_p(to), c.c_void_p(source)
        self._call("cudaMemcpy", *places, c.c_size_t(size), direction)


class DeviceLibrary:
    """A library for the GPU, which says what it ran.

    Attributes:
        device: The GPU.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._trace: list[Primitive] | None = None

    @contextmanager
    def traced(self) -> Iterator[list[Primitive]]:
        """Collect what is run meanwhile; copies count as reorders."""
        found: list[Primitive] = []
        self._trace = found
        try:
            yield found
        finally:
            self._trace = None

    def note(self, kind: str, implementation: str, seconds: float) -> None:
        """Say that something was run."""
        if self._trace is not None:
            self._trace.append(Primitive(kind, implementation, 1e3 * seconds))


@dataclass(frozen=True)
class DeviceWork:
    """What a GPU does for a plan of given shapes.

    Attributes:
        name: What is run, as a :class:`~dplcli.execute.plan.Primitive` says it.
        launch: Starts it, given where the operands are and where the result goes.
        made: The shape of what it makes.
        finish: Makes the output of that.
        tail: What else is computed then, on the CPU; "" for nothing.
        shape: The shape of the output.
        operands: By role, a value of the plan, and what is done to it before it is copied. One
            value may have two roles.
    """

    name: tuple[str, str]
    launch: Callable[[Mapping[str, int], int], None]
    made: Shape
    finish: Arrangement
    tail: str
    shape: Shape
    operands: Mapping[str, tuple[int, Arrangement]]


class DeviceCall:
    """A plan of one product for given shapes, with its data on the GPU.

    Attributes:
        output_shapes: The shape of its output.
    """

    def __init__(
        self,
        library: DeviceLibrary,
        plan: KernelPlan,
        shapes: Mapping[int, Shape],
        work: DeviceWork,
    ) -> None:
        """Take memory, which goes with this, and copy the constants of the body there."""
        self._library, self._device = library, library.device
        self._plan, self._shapes, self._work = plan, dict(shapes), work
        self._dtype = plan.dtypes[plan.outputs[0]]
        self._result = np.empty(work.made, numpy_type(self._dtype))
        self.output_shapes: Sequence[Shape] = [work.shape]
        self._at = self._device.allocate(self._result.nbytes)
        self._places: dict[str, int] = {}
        self._owned = [self._at]
        weakref.finalize(self, self._device.free, self._owned).atexit = False
        for value, array in plan.numbers.items():
            self._put(value, array)

    def _put(self, number: int, array: NDArray[Any]) -> None:
        for role, (value, arrange) in self._work.operands.items():
            if value == number:
                data = arrange(array)
                if role not in self._places:
                    self._places[role] = self._device.allocate(data.nbytes)
                    self._owned.append(self._places[role])
                self._device.write(self._places[role], data)

    def run(self, inputs: Mapping[int, int], outputs: Sequence[int]) -> None:
        """Copy what has changed to the GPU, run, and copy the result back."""
        if not self._result.size:
            return
        work, times = self._work, [perf_counter()]
        for number, address in inputs.items():
            array = _array_at(address, self._plan.dtypes[number], self._shapes[number])
            self._put(number, array)
        times.append(perf_counter())
        work.launch(self._places, self._at)
        self._device.wait()
        times.append(perf_counter())
        self._device.read(self._at, self._result)
        times.append(perf_counter())
        _array_at(outputs[0], self._dtype, work.shape)[...] = work.finish(self._result)
        times.append(perf_counter())
        there, run, back, after = (end - start for start, end in pairwise(times))
        self._library.note("reorder", "copies", there + back)
        self._library.note(*work.name, run)
        if work.tail:
            self._library.note(work.tail, "on the CPU", after)


def numpy_type(name: str) -> np.dtype[Any]:
    """Return numpy's form of an element type."""
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def _array_at(address: int, dtype: str, shape: Shape) -> NDArray[Any]:
    """Return memory as an array."""
    kind = numpy_type(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = memoryview((c.c_uint8 * size).from_address(address)) if size else b""
    return np.frombuffer(raw, kind).reshape(shape)
