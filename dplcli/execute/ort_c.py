"""onnxruntime's C interface by ctypes: a session whose custom operators are Python functions.

The Python wheels of onnxruntime ship the library. The slots are those of version 16 of the
interface (onnxruntime 1.16), which later libraries keep: ``onnxruntime_c_api.h``.
"""

from __future__ import annotations

import ctypes as c
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dplcli.errors import UsageError
from dplcli.execute.plan import LibraryError, RefusedError
from dplcli.verify.engines import RUNTIME_FOLDER, RUNTIME_VERSION
from dplcli.verify.settings import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Key = tuple[str, str]

_VERSION = 16
_SLOTS = {
    "CreateStatus": 0,
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "CreateSession": 7,
    "CreateSessionFromArray": 8,
    "Run": 9,
    "CreateSessionOptions": 10,
    "SetSessionLogSeverityLevel": 22,
    "SetSessionGraphOptimizationLevel": 23,
    "SetIntraOpNumThreads": 24,
    "CreateCustomOpDomain": 26,
    "CustomOpDomain_Add": 27,
    "AddCustomOpDomain": 28,
    "SessionGetInputCount": 30,
    "SessionGetOutputCount": 31,
    "SessionGetInputName": 36,
    "SessionGetOutputName": 37,
    "CreateTensorWithDataAsOrtValue": 49,
    "IsTensor": 50,
    "GetTensorMutableData": 51,
    "GetTensorElementType": 60,
    "GetDimensionsCount": 61,
    "GetDimensions": 62,
    "GetTensorTypeAndShape": 65,
    "CreateCpuMemoryInfo": 69,
    "GetAllocatorWithDefaultOptions": 78,
    "KernelContext_GetInput": 90,
    "KernelContext_GetOutput": 91,
    "ReleaseStatus": 93,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseSessionOptions": 100,
    "AddSessionConfigEntry": 130,
    "KernelInfo_GetNodeName": 244,
    "KernelInfoGetConstantInput_tensor": 249,
}
_TYPES: dict[int, type[np.generic]] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}
TYPE_CODES = {np.dtype(known).name: code for code, known in _TYPES.items()} | {"bfloat16": 16}
"""Element types as the interface numbers them, by numpy's names."""

_LEVELS = {"disable": 0, "basic": 1, "extended": 2, "all": 99}
_FATAL = 4
_FAILED = 1
_REQUIRED, _DEFAULT_MEMORY = 0, 0
_P, _S = c.c_void_p, c.c_size_t


_MEMBERS = """CreateKernel GetName GetExecutionProviderType GetInputType GetInputTypeCount
GetOutputType GetOutputTypeCount KernelCompute KernelDestroy GetInputCharacteristic
GetOutputCharacteristic GetInputMemoryType GetVariadicInputMinArity GetVariadicInputHomogeneity
GetVariadicOutputMinArity GetVariadicOutputHomogeneity CreateKernelV2 KernelComputeV2"""


class _CustomOp(c.Structure):
    """``OrtCustomOp``, as of version 16."""

    _fields_ = (("version", c.c_uint32), *((name, _P) for name in _MEMBERS.split()))


class Kernel(Protocol):
    """What runs one call.

    Attributes:
        changing: The places of the inputs that may change from run to run; the others are read
            once.
    """

    changing: tuple[int, ...]

    def prepare(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        """Return the shapes of the outputs for given shapes of the inputs."""

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Compute; inputs and outputs are addresses."""


class Operator:
    """A custom operator.

    Attributes:
        key: Domain and name.
        inputs: Element type of each input.
        outputs: Element type of each output.
        kernel: Creates what runs a call, by the name of the node and the places of the inputs that
            onnxruntime holds to be constant: what the model states, or what it has computed before.
    """

    def __init__(
        self,
        key: Key,
        inputs: Sequence[str],
        outputs: Sequence[str],
        kernel: Callable[[str, Sequence[int]], Kernel],
    ) -> None:
        self.key, self.inputs, self.outputs, self.kernel = key, inputs, outputs, kernel


class _Interface:
    """The functions of the library, and the environment that they need."""

    def __init__(self) -> None:
        names = sorted(RUNTIME_FOLDER.glob("libonnxruntime.so*"))
        if not names:
            raise RunError(f"onnxruntime {RUNTIME_VERSION} ships no C library here")
        library = c.CDLL(str(names[0]))
        library.OrtGetApiBase.restype = _P
        base = c.cast(library.OrtGetApiBase(), c.POINTER(_P))
        get = c.CFUNCTYPE(_P, c.c_uint32)(base[0])
        table = c.cast(get(_VERSION), c.POINTER(_P))
        self._functions = {}
        for name, slot in _SLOTS.items():
            returns: type[c.c_void_p | c.c_char_p] | None
            returns = None if name.startswith("Release") else _P
            if name == "GetErrorMessage":
                returns = c.c_char_p
            self._functions[name] = c.CFUNCTYPE(returns)(table[slot])
        self.environment = _P()
        self.call("CreateEnv", c.c_int(_FATAL), c.c_char_p(b"dpl"), c.byref(self.environment))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status.

        Raises:
            RunError: The status is an error.
        """
        status = self._functions[name](*arguments)
        if not status:
            return
        message = self._functions["GetErrorMessage"](_P(status)) or b"?"
        self._functions["ReleaseStatus"](_P(status))
        raise RunError(" ".join(message.decode("utf-8", "replace").split()))

    def release(self, what: str, handle: object) -> None:
        self._functions[f"Release{what}"](handle)

    def failure(self, message: str) -> int:
        """Return a status that says why a kernel failed."""
        text = c.c_char_p(message.encode())
        return int(self._functions["CreateStatus"](c.c_int(_FAILED), text))

    def shape(self, value: c.c_void_p) -> tuple[tuple[int, ...], int]:
        """Return shape and element type of a tensor."""
        info, count, dtype = _P(), _S(), c.c_int()
        self.call("GetTensorTypeAndShape", value, c.byref(info))
        self.call("GetDimensionsCount", info, c.byref(count))
        sizes = (c.c_int64 * count.value)()
        self.call("GetDimensions", info, sizes, count)
        self.call("GetTensorElementType", info, c.byref(dtype))
        self.release("TensorTypeAndShapeInfo", info)
        return tuple(sizes), dtype.value


_INTERFACE: list[_Interface] = []


def interface() -> _Interface:
    """Return the one interface of this process."""
    if not _INTERFACE:
        _INTERFACE.append(_Interface())
    return _INTERFACE[0]


class CSession:
    """A session with custom operators.

    Attributes:
        inputs: Names of the model's inputs.
        outputs: Names of its outputs.
    """

    def __init__(
        self,
        model: Path | bytes,
        operators: Sequence[Operator],
        *,
        level: str = "all",
        threads: int = 0,
        entries: Mapping[str, str] | None = None,
    ) -> None:
        """Open a model.

        Args:
            model: The file, or its content.
            operators: What is registered for the session; it wins over functions of the model.
            level: How onnxruntime optimises the rest.
            threads: How many threads onnxruntime has; 0 for its own choice.
            entries: Entries of the session's configuration.

        Raises:
            RunError: onnxruntime refuses it.
        """
        self._api = api = interface()
        self._kept: list[object] = []
        self._kernels: dict[int, Kernel] = {}
        self._seen: dict[int, tuple[list[int], list[tuple[int, ...]]]] = {}
        self._failures: list[BaseException] = []
        options = _P()
        api.call("CreateSessionOptions", c.byref(options))
        try:
            api.call("SetSessionLogSeverityLevel", options, c.c_int(_FATAL))
            api.call("SetSessionGraphOptimizationLevel", options, c.c_int(_LEVELS[level]))
            api.call("SetIntraOpNumThreads", options, c.c_int(threads))
            for key, text in (entries or {}).items():
                pair = c.c_char_p(key.encode()), c.c_char_p(text.encode())
                api.call("AddSessionConfigEntry", options, *pair)
            self._register(options, operators)
            self._handle = _P()
            if isinstance(model, bytes):
                data = (c.c_char_p(model), _S(len(model)))
                api.call("CreateSessionFromArray", api.environment, *data, options, self._out())
            else:
                path = c.c_char_p(str(model).encode())
                api.call("CreateSession", api.environment, path, options, self._out())
        except RunError as error:
            raise self._explained(error) from error
        finally:
            api.release("SessionOptions", options)
        self._memory, self._allocator = _P(), _P()
        api.call("GetAllocatorWithDefaultOptions", c.byref(self._allocator))
        api.call("CreateCpuMemoryInfo", c.c_int(1), c.c_int(0), c.byref(self._memory))
        self.inputs, self.outputs = self._names("Input"), self._names("Output")

    def _out(self) -> object:
        return c.byref(self._handle)

    def _explained(self, error: RunError) -> RunError:
        """Return the error that a kernel raised rather than what onnxruntime made of it."""
        if not self._failures:
            return error
        cause = self._failures[0]
        self._failures.clear()
        if isinstance(cause, RunError):
            return cause
        is_told = isinstance(cause, LibraryError | RefusedError)  # others may have no words
        return RunError(f"a kernel failed: {cause if is_told else repr(cause)}")

    def _names(self, what: str) -> list[str]:
        count = _S()
        self._api.call(f"SessionGet{what}Count", self._handle, c.byref(count))
        found = []
        for place in range(count.value):
            text = c.c_char_p()
            where = (self._handle, _S(place), self._allocator, c.byref(text))
            self._api.call(f"SessionGet{what}Name", *where)
            found.append((text.value or b"").decode())
        return found

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return every output.

        Raises:
            RunError: onnxruntime or a kernel fails.
            UsageError: Something is no tensor that numpy has.
        """
        api = self._api
        arrays = {name: np.ascontiguousarray(feeds[name]) for name in self.inputs if name in feeds}
        values: list[c.c_void_p] = []
        made = (_P * len(self.outputs))()
        try:
            for name, array in arrays.items():
                values.append(self._tensor(name, array))
            api.call(
                "Run",
                self._handle,
                None,
                _texts(list(arrays)),
                (_P * len(values))(*(value.value for value in values)),
                _S(len(values)),
                _texts(self.outputs),
                _S(len(self.outputs)),
                made,
            )
            return {
                name: self._array(name, _P(value))
                for name, value in zip(self.outputs, made, strict=True)
            }
        except RunError as error:
            raise self._explained(error) from error
        finally:
            for value in [*values, *(_P(each) for each in made if each)]:
                api.release("Value", value)

    def _tensor(self, name: str, array: NDArray[np.generic]) -> c.c_void_p:
        code = TYPE_CODES.get(array.dtype.name)
        if code is None:
            kind = "string" if array.dtype.kind in "OUS" else array.dtype
            raise cannot_be_had(f"the input {name!r} is of type {kind}")
        value = _P()
        self._api.call(
            "CreateTensorWithDataAsOrtValue",
            self._memory,
            _P(array.ctypes.data),
            _S(array.nbytes),
            (c.c_int64 * array.ndim)(*array.shape),
            _S(array.ndim),
            c.c_int(code),
            c.byref(value),
        )
        return value

    def _array(self, name: str, value: c.c_void_p) -> NDArray[np.generic]:
        is_tensor = c.c_int()
        self._api.call("IsTensor", value, c.byref(is_tensor))
        if not is_tensor.value:
            raise cannot_be_had(f"the output {name!r} is no tensor")
        shape, code = self._api.shape(value)
        if code not in _TYPES:
            raise cannot_be_had(f"the output {name!r} is no tensor of numbers that numpy has")
        dtype = np.dtype(_TYPES[code])
        data = _P()
        self._api.call("GetTensorMutableData", value, c.byref(data))
        size = math.prod(shape) * dtype.itemsize
        raw = c.string_at(data.value or 0, size) if size else b""
        return np.frombuffer(raw, dtype).reshape(shape).copy()

    # -- custom operators --------------------------------------------------------------------------

    def _register(self, options: c.c_void_p, operators: Sequence[Operator]) -> None:
        domains: dict[str, c.c_void_p] = {}
        for operator in operators:
            domain, _ = operator.key
            if domain not in domains:
                domains[domain] = _P()
                text = c.c_char_p(domain.encode())
                self._api.call("CreateCustomOpDomain", text, c.byref(domains[domain]))
            made = c.byref(self._custom_op(operator))
            self._api.call("CustomOpDomain_Add", domains[domain], made)
        for handle in domains.values():
            self._api.call("AddCustomOpDomain", options, handle)

    def _custom_op(self, operator: Operator) -> _CustomOp:
        op = _CustomOp(version=_VERSION)

        def callback(name: str, types: Sequence[Any], function: Callable[..., object]) -> None:
            made = c.CFUNCTYPE(*types)(function)
            self._kept.append(made)
            setattr(op, name, c.cast(made, _P).value)

        name = c.create_string_buffer(operator.key[1].encode())
        inputs = [TYPE_CODES[dtype] for dtype in operator.inputs]
        outputs = [TYPE_CODES[dtype] for dtype in operator.outputs]
        callback("GetName", [_P, _P], lambda _: c.addressof(name))
        callback("GetExecutionProviderType", [_P, _P], lambda _: None)
        callback("GetInputType", [c.c_int, _P, _S], lambda _, place: inputs[place])
        callback("GetInputTypeCount", [_S, _P], lambda _: len(inputs))
        callback("GetOutputType", [c.c_int, _P, _S], lambda _, place: outputs[place])
        callback("GetOutputTypeCount", [_S, _P], lambda _: len(outputs))
        for each in ("GetInputCharacteristic", "GetOutputCharacteristic"):
            callback(each, [c.c_int, _P, _S], lambda _, __: _REQUIRED)
        callback("GetInputMemoryType", [c.c_int, _P, _S], lambda _, __: _DEFAULT_MEMORY)
        for side in ("Input", "Output"):
            callback(f"GetVariadic{side}MinArity", [c.c_int, _P], lambda _: 1)
            callback(f"GetVariadic{side}Homogeneity", [c.c_int, _P], lambda _: 1)
        callback(
            "CreateKernelV2",
            [_P, _P, _P, _P, c.POINTER(_P)],
            lambda _, __, info, out: self._create(operator, _P(info), out),
        )
        count = (len(inputs), len(outputs))
        callback(
            "KernelComputeV2", [_P, _P, _P], lambda key, at: self._compute(key, _P(at), *count)
        )
        callback("KernelDestroy", [None, _P], lambda _: None)
        self._kept += [op, name]
        return op

    def _create(
        self, operator: Operator, info: c.c_void_p, out: c._Pointer[c.c_void_p]
    ) -> int | None:
        try:
            size = _S(0)
            self._api.call("KernelInfo_GetNodeName", info, None, c.byref(size))
            text = c.create_string_buffer(size.value)
            self._api.call("KernelInfo_GetNodeName", info, text, c.byref(size))
            constant = [
                place for place in range(len(operator.inputs)) if self._is_constant(info, place)
            ]
            key = len(self._kernels) + 1
            self._kernels[key] = operator.kernel(text.value.decode(), constant)
            out[0] = key
        except BaseException as error:  # noqa: BLE001  # must not pass through C
            self._failures.append(error)
            return self._api.failure(str(error))
        return None

    def _is_constant(self, info: c.c_void_p, place: int) -> bool:
        answer, value = c.c_int(), _P()
        where = (info, _S(place), c.byref(answer), c.byref(value))
        self._api.call("KernelInfoGetConstantInput_tensor", *where)
        return bool(answer.value and value.value)

    def _compute(self, key: int, at: c.c_void_p, inputs: int, outputs: int) -> int | None:
        call = self._api.call
        try:
            kernel = self._kernels[key]
            known = self._seen.get(key)
            addresses, shapes = known or ([0] * inputs, [()] * inputs)
            for place in range(inputs) if known is None else kernel.changing:
                value, data, info, count = _P(), _P(), _P(), _S()
                call("KernelContext_GetInput", at, _S(place), c.byref(value))
                call("GetTensorMutableData", value, c.byref(data))
                call("GetTensorTypeAndShape", value, c.byref(info))
                call("GetDimensionsCount", info, c.byref(count))
                sizes = (c.c_int64 * count.value)()
                call("GetDimensions", info, sizes, count)
                self._api.release("TensorTypeAndShapeInfo", info)
                addresses[place], shapes[place] = data.value or 0, tuple(sizes)
            self._seen[key] = addresses, shapes
            places = []
            for place, shape in zip(range(outputs), kernel.prepare(shapes), strict=True):
                value, data = _P(), _P()
                where = (at, _S(place), (c.c_int64 * len(shape))(*shape), _S(len(shape)))
                call("KernelContext_GetOutput", *where, c.byref(value))
                call("GetTensorMutableData", value, c.byref(data))
                places.append(data.value or 0)
            kernel.run(addresses, places)
        except BaseException as error:  # noqa: BLE001  # must not pass through C
            self._failures.append(error)
            return self._api.failure(str(error))
        return None


def cannot_be_had(why: str) -> UsageError:
    """Return the error for a model that runs in Python's onnxruntime, and not in a session here."""
    return UsageError(f"--with cannot run the model: {why}", hint="leave --with out")


def _texts(names: Sequence[str]) -> object:
    return (c.c_char_p * len(names))(*(name.encode() for name in names))
