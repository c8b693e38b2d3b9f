"""Running a model in onnxruntime on the CPU, and saying in one line why it did not run."""

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from dplcli.errors import UsageError
from dplcli.verify.interface import dtype_name

Array = npt.NDArray[np.generic]
Feed = Array | list[Array] | None

_SILENT = 4
_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_ERRORS: tuple[type[Exception], ...] = (
    *(e for e in vars(_state).values() if isinstance(e, type) and issubclass(e, Exception)),
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
)
_BITS = {
    "bfloat16": 16,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "float4e2m1": 4,
}
_BYTE = 8
_NOISE = (
    re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"Load model from .*? failed:\s*"),
    re.compile(r"Non-zero status code returned while "),
    re.compile(r"Status Message: "),
    re.compile(r"<lambda\(\)>\s*"),
    re.compile(r"/?[\w./\\+-]*onnxruntime[\w./\\+-]*\.(?:cc|h|cpp):\d+\s*"),
    re.compile(r"[\w:~]*onnxruntime::[\w:<>,&*~ ]*\(.*?\)(?: const)?(?: \[with [^]]*\])?[:\s]*"),
)
_LONGEST_MESSAGE = 300


class RunError(Exception):
    """onnxruntime refused a model or a set of inputs; the message is one clean line."""


@dataclass(frozen=True)
class Leaf:
    """One array of an output.

    Attributes:
        label: Where it is inside the output: '' for a tensor, '[3]' in a sequence.
        dtype: Element type, as numpy calls it; bfloat16 comes as float32 data of that name.
        data: The values; types without a numpy counterpart come as raw bytes.
    """

    label: str
    dtype: str
    data: Array


Outputs = dict[str, tuple[Leaf, ...]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        path: The file; external data is looked up beside it.
        content: What to run instead of the file's own bytes, if set.
        weights: Values of initializers of *content* that are declared external.
        libraries: Libraries of custom operators that it may use.
    """

    path: Path
    content: bytes | None = None
    weights: Mapping[str, Array] | None = None
    libraries: tuple[Path, ...] = ()


class Runner:
    """A session for one model at one optimisation level, on the CPU, silent on stderr."""

    def __init__(self, source: Source, level: str) -> None:
        """Create the session; this can take minutes for a large graph.

        Raises:
            RunError: onnxruntime does not accept the model.
        """
        ort.set_default_logger_severity(_SILENT)
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        options.graph_optimization_level = _LEVELS[level]
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        model: str | bytes = str(source.path)
        if source.content is not None:
            model = source.content
            _add_weights(options, source)
        try:
            _register(options, source.libraries)
            self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except _ERRORS as error:
            raise RunError(one_line(str(error))) from error
        self._plain = _has_numpy_types(self._session)

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model.

        Raises:
            RunError: onnxruntime does not accept the inputs, or fails on the way.
        """
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        names = [output.name for output in self._session.get_outputs()]
        try:
            if self._plain:
                values = self._session.run(names, dict(feeds), options)
                return {n: _leaves(v) for n, v in zip(names, values, strict=True)}
            wrapped = {name: _wrap(feed) for name, feed in feeds.items()}
            results = self._session.run_with_ort_values(names, wrapped, options)
            return {n: (_unwrap(v),) for n, v in zip(names, results, strict=True)}
        except _ERRORS as error:
            raise RunError(one_line(str(error))) from error


def check_libraries(libraries: Sequence[Path]) -> None:
    """Refuse, before any work is done, what onnxruntime cannot load custom operators from.

    Raises:
        UsageError: A file is missing, no library, or one without ``RegisterCustomOps``.
    """
    ort.set_default_logger_severity(_SILENT)
    for library in libraries:
        if not library.is_file():
            raise UsageError(f"--custom-ops {library}: there is no such file")
        try:
            _register(ort.SessionOptions(), (library,))
        except _ERRORS as error:
            raise UsageError(
                f"--custom-ops {library}: onnxruntime does not load it: {one_line(str(error))}",
                hint="it must be a shared library that exports RegisterCustomOps",
            ) from error


def _register(options: ort.SessionOptions, libraries: Sequence[Path]) -> None:
    for library in libraries:
        options.register_custom_ops_library(str(library.resolve()))


def one_line(message: str) -> str:
    """Return what onnxruntime said without its codes, C++ paths and signatures, on one line."""
    text = " ".join(message.split())
    for noise in _NOISE:
        text = noise.sub("", text)
    text = _balanced(" ".join(text.split()))
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _balanced(text: str) -> str:
    """Strip quotes round the whole message, and close one that was cut open."""
    text = text.strip(" ")
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote) and text.count(quote) == 2:  # noqa: PLR2004
            text = text.strip(quote)
        if text.count(quote) % 2:
            text = text.removesuffix(quote) if text.endswith(quote) else f"{text}{quote}"
    return text


def _add_weights(options: ort.SessionOptions, source: Source) -> None:
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(source.path.resolve().parent)
    )
    if not source.weights:
        return
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in source.weights.values()]
    options.add_external_initializers(list(source.weights), values)


def _has_numpy_types(session: ort.InferenceSession) -> bool:
    exotic = {f"tensor({name})" for name in _BITS}
    values = [*session.get_inputs(), *session.get_outputs()]
    return not any(value.type in exotic for value in values)


def _leaves(value: object) -> tuple[Leaf, ...]:
    match value:
        case None:
            return ()
        case np.ndarray():
            return (_leaf("", value),)
        case dict():
            return _map_leaves([value])
        case [dict(), *_]:
            return _map_leaves([entry for entry in value if isinstance(entry, dict)])
        case list():
            return tuple(_leaf(f"[{index}]", np.asarray(v)) for index, v in enumerate(value))
        case _:
            return (_leaf("", np.asarray(value)),)


def _map_leaves(maps: Sequence[Mapping[object, object]]) -> tuple[Leaf, ...]:
    keys = np.array([[str(key) for key in entry] for entry in maps], dtype=object)
    values = np.array([list(entry.values()) for entry in maps])
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    return (_leaf(".keys", keys), _leaf(".values", values))


def _leaf(label: str, data: Array) -> Leaf:
    name = "string" if data.dtype.kind in "OUS" else data.dtype.name
    return Leaf(label, name, data)


def _wrap(feed: Feed) -> ort.OrtValue:
    if not isinstance(feed, np.ndarray):
        raise NotImplementedError("sequences beside types that numpy lacks")
    if feed.dtype.kind != "V":
        return ort.OrtValue.ortvalue_from_numpy(feed)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)
    raw = feed.view(np.uint16 if feed.dtype.itemsize > 1 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(raw), dtype)


def _unwrap(value: ort.OrtValue) -> Leaf:
    kind = str(value.data_type())
    inner = kind.removeprefix("tensor(").removesuffix(")")
    if kind == f"tensor({inner})" and inner not in _BITS:
        return _leaf("", value.numpy())
    if kind != f"tensor({inner})":
        raise NotImplementedError(f"an output of type {kind} beside types that numpy lacks")
    shape = tuple(value.shape())
    size = (int(np.prod(shape)) * _BITS[inner] + _BYTE - 1) // _BYTE
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    name = dtype_name(value.element_type())
    if inner != "bfloat16":
        return Leaf("", name, np.frombuffer(raw, dtype=np.uint8))
    bits = np.frombuffer(raw, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return Leaf("", name, bits.view(np.float32).reshape(shape))
