"""Run a model in onnxruntime, in this process.

A worker loads this and little else before its first session; onnx only for types that numpy lacks.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from dplcli.errors import UsageError, opt
from dplcli.files import is_text, resolved, text_path
from dplcli.ir.types import TensorType
from dplcli.verify.check import CPU, Execution
from dplcli.verify.values import (
    NO_CALLS,
    Array,
    Calls,
    Feed,
    Leaf,
    ModelSource,
    Outputs,
    RunError,
    ShortageError,
    is_exotic,
    leaves_of,
    one_line,
    tells_of_shortage,
)

Opened = TypeVar("Opened")
RUNTIME_VERSION: str = ort.__version__

# Arrays into onnxruntime and out of it, also of element types that numpy lacks.


_FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0")
_BITS = {
    "bfloat16": 16,
    **dict.fromkeys(_FLOAT8, 8),
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
}
_BYTE = 8


def wrap(feed: Feed) -> ort.OrtValue:
    """Return a feed as onnxruntime takes it where numpy lacks its type, or that of some output."""
    if not isinstance(feed, np.ndarray) or feed.dtype.kind in "OUS":
        raise NotImplementedError(
            "onnxruntime's Python interface takes no strings, sequences or optionals where an "
            "output has a type that numpy lacks"
        )
    if not is_exotic(feed):
        return ort.OrtValue.ortvalue_from_numpy(feed)
    import onnx  # noqa: PLC0415  # slow to load, and rarely needed

    dtype = onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)
    raw = feed.view(np.uint16 if feed.dtype.itemsize > 1 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(raw), dtype)


def unwrap(value: ort.OrtValue) -> Leaf:
    """Read a tensor of onnxruntime, also one of a type that numpy lacks."""
    kind = str(value.data_type())
    inner = kind.removeprefix("tensor(").removesuffix(")")
    if kind == f"tensor({inner})" and inner not in _BITS:
        return leaves_of(value.numpy())[0]
    if kind != f"tensor({inner})":
        raise NotImplementedError(f"an output of type {kind} beside types that numpy lacks")
    from dplcli.verify.model import dtype_name  # noqa: PLC0415  # loads onnx

    shape = tuple(value.shape())
    size = (int(np.prod(shape)) * _BITS[inner] + _BYTE - 1) // _BYTE
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    name = dtype_name(value.element_type())
    if inner != "bfloat16":
        codes = _unpacked(raw, _BITS[inner])[: int(np.prod(shape))]
        return Leaf("", name, numbered(codes, inner).reshape(shape))
    bits = np.frombuffer(raw, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return Leaf("", name, bits.view(np.float32).reshape(shape))


def numbered(codes: Array, dtype: str) -> Array:
    """Number the codes of a narrow type in the order of the numbers that they stand for.

    So a difference counts steps, and both zeros are the same.

    Args:
        codes: An unsigned code in each byte.
        dtype: The type's name in onnxruntime or numpy.
    """
    if dtype.startswith("uint") or dtype.endswith("e8m0"):
        return codes
    bits = next(width for name, width in _BITS.items() if dtype.replace("_", "") == name)
    half = 1 << (bits - 1)
    wide = codes.astype(np.int16)
    below = wide - 2 * half if dtype.startswith("int") else half - wide
    if dtype.endswith("uz"):
        below = np.where(wide == half, -half, below)  # NaN has the place of the other zero
    return np.where(wide < half, wide, below).astype(np.int8)


def _unpacked(raw: bytes, bits: int) -> Array:
    """Unpack codes, several of which may share a byte, the lowest bits first: one byte for each."""
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    packed = np.frombuffer(raw, dtype=np.uint8)
    return ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)


# Running a model in onnxruntime.


_OTHER_NAMES = {"float": "float32", "double": "float64"}
_SILENT = 4
_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_CHOICES = {
    "execution_mode": {
        "sequential": ort.ExecutionMode.ORT_SEQUENTIAL,
        "parallel": ort.ExecutionMode.ORT_PARALLEL,
    },
    "execution_order": {
        "default": ort.ExecutionOrder.DEFAULT,
        "priority": ort.ExecutionOrder.PRIORITY_BASED,
    },
}
_ERRORS: tuple[type[Exception], ...] = (
    *(e for e in vars(_state).values() if isinstance(e, type) and issubclass(e, Exception)),
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    MemoryError,
    OSError,
)


class Session:
    """A session for one model at one optimisation level, silent on stderr."""

    def __init__(self, source: ModelSource, level: str) -> None:
        """Create the session; this can take minutes for a large graph.

        Raises:
            RunError: onnxruntime does not accept the model.
            UsageError: onnxruntime does not have the provider, or does not know an option.
        """
        self._session = opened(source, lambda given: _created(given, level))
        exotic = {f"tensor({name})" for name in _BITS}
        self._names = [output.name for output in self._session.get_outputs()]
        self._plain = not any(output.type in exotic for output in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime does not accept the inputs, or fails on the way.
        """
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        names = self._names
        try:
            if self._plain:  # a feed may be of a type that numpy lacks nevertheless
                given = {
                    name: wrap(feed) if isinstance(feed, np.ndarray) and is_exotic(feed) else feed
                    for name, feed in feeds.items()
                }
                values = self._session.run(names, given, options)
                return {n: leaves_of(v) for n, v in zip(names, values, strict=True)}
            wrapped = {name: wrap(feed) for name, feed in feeds.items()}
            results = self._session.run_with_ort_values(names, wrapped, options)
            return {n: (unwrap(v),) for n, v in zip(names, results, strict=True)}
        except _ERRORS as error:
            raise _onnxruntime_error(error) from error


def _created(source: ModelSource, level: str) -> ort.InferenceSession:
    ort.set_default_logger_severity(_SILENT)
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.graph_optimization_level = _LEVELS[level]
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    _apply_options(options, source.execution)
    provider = source.execution.provider
    _check_provider(provider)
    try:
        with ExitStack() as stack:
            model = _model_of(source, options, stack)
            _register(options, source.libraries)
            providers = list(dict.fromkeys((provider, CPU)))
            # No fallback: it would run on the CPU what another provider fails to run.
            session = ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    except _ERRORS as error:
        raise _onnxruntime_error(error) from error
    if provider not in session.get_providers():
        raise UsageError(
            f"{opt('provider')} {provider}: onnxruntime has it, but cannot start it here",
            hint="the device, its driver, or a library that the provider needs is missing",
        )
    return session


def opened(
    source: ModelSource, create: Callable[[ModelSource], Opened], calls: Calls = NO_CALLS
) -> Opened:
    """Open a model; with bfloat16 in float32, if it is refused otherwise, and if that will do.

    Args:
        source: The model.
        create: Opens it.
        calls: The calls in it that custom operators run.

    Raises:
        RunError: onnxruntime does not accept the model.
    """
    given = replace(source, execution=replace(source.execution, widens=False))
    try:
        return create(given)
    except RunError:
        if not source.execution.widens:
            raise
        from dplcli.verify.float32 import in_float32  # noqa: PLC0415  # loads onnx
        from dplcli.verify.model import model_of  # noqa: PLC0415  # loads onnx

        if (wide := in_float32(model_of(source), calls)) is None:
            raise
        return create(replace(given, content=wide.SerializeToString()))


def output_types(source: ModelSource) -> dict[str, TensorType]:
    """Return the types that onnxruntime infers for the outputs of a model, without running it.

    It knows its own operators, which onnx does not. A rank of 0 is as good as unknown to it.

    Raises:
        RunError: onnxruntime does not accept the model.
    """
    types = {}
    for output in opened(source, lambda given: _created(given, "disable")).get_outputs():
        inner = output.type.removeprefix("tensor(").removesuffix(")")
        dtype = None if output.type != f"tensor({inner})" else _OTHER_NAMES.get(inner, inner)
        types[output.name] = TensorType(dtype, tuple(output.shape) or None)
    return types


def check_provider_and_libraries(libraries: Sequence[Path], execution: Execution) -> None:
    """Look for a provider, and try to load custom operators, which may read session options.

    Raises:
        UsageError: onnxruntime does not have the provider; a file is no library, or one without
            ``RegisterCustomOps``.
    """
    _check_provider(execution.provider)
    ort.set_default_logger_severity(_SILENT)
    for library in libraries:
        options = ort.SessionOptions()
        _apply_options(options, execution)
        try:
            _register(options, (library,))
        except _ERRORS as error:
            said = one_line(str(error))
            raise UsageError(
                f"{opt('custom_ops')} {library}: onnxruntime does not load it: {said}",
                hint="see dpl kernels plan, and --session-option dpl.plan=FILE"
                if said.startswith("dpl: ")  # our own library, as dpl kernels build makes it
                else "it must be a shared library that exports RegisterCustomOps",
            ) from error


def _onnxruntime_error(error: Exception) -> RunError:
    message = one_line(str(error)) or type(error).__name__
    if isinstance(error, MemoryError) or tells_of_shortage(message):
        return ShortageError(f"out of memory: {message}")
    return RunError(message)


def providers() -> list[str]:
    """Return the execution providers that this onnxruntime has."""
    names: list[str] = ort.get_available_providers()
    return names


def _check_provider(provider: str) -> None:
    available = providers()
    if provider not in available:
        raise UsageError(
            f"{opt('provider')} {provider}: this onnxruntime ({ort.__version__}) does not have it",
            hint=f"it has {', '.join(available)}",
        )


def _apply_options(options: ort.SessionOptions, execution: Execution) -> None:
    for key, text in execution.options:
        if "." in key:
            options.add_session_config_entry(key, text)
        else:
            setattr(options, key, _CHOICES[key][text] if key in _CHOICES else int(text))


def _register(options: ort.SessionOptions, libraries: Sequence[Path]) -> None:
    for library in libraries:
        with text_path(resolved(library)) as name:
            options.register_custom_ops_library(name)


def _model_of(source: ModelSource, options: ort.SessionOptions, stack: ExitStack) -> str | bytes:
    """Return the file's name or its content; *options* then say where external data lies."""
    content = source.content
    if content is None and is_text(source.path):
        return stack.enter_context(text_path(source.path))
    folder = stack.enter_context(text_path(resolved(source.path.parent)))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return source.path.read_bytes() if content is None else content
