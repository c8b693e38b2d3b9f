"""Inputs that somebody has: .npz, .npy, onnx test data, or what a Python function returns.

What a path may be:

- ``FILE.npz``: arrays by input name; ``NAME[0]``, ``NAME[1]``, … are the elements of a sequence,
  ``NAME[]`` is an empty one or an absent optional, and ``NAME@CASE`` is the value of NAME in one
  of several cases, as `save_inputs` writes them;
- ``FILE.npy`` or ``FILE.pb``: the one input of a model;
- a folder with ``input_0.pb``, ``input_1.pb``, …: onnx test data, in the order of the inputs;
- a folder with ``test_data_set_0``, ``test_data_set_1``, …: several of them;
- a folder with ``NAME.npy``, …: arrays by input name.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dplcli.errors import UsageError
from dplcli.verify.fitting import fit
from dplcli.verify.interface import Port, kind_of
from dplcli.verify.request import InputFunction, InputRequest
from dplcli.verify.sessions import Array, Feed

_KINDS = "a .npz, .npy or .pb file, or a folder with input_0.pb or test_data_set_0"
_READ_ERRORS = (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile)
_PB = re.compile(r"input_(\d+)\.pb")
_DATA_SET = re.compile(r"test_data_set_(\d+)")
_ELEMENT = re.compile(r"(.*)\[(\d*)\]", re.DOTALL)


@dataclass(frozen=True)
class GivenSet:
    """Values of some inputs, or of all, for one run.

    Attributes:
        label: What to call it in reports.
        values: By input.
    """

    label: str
    values: Mapping[str, Feed]


def read_given(
    request: InputRequest, graph: onnx.GraphProto, ports: Sequence[Port], seeds: Sequence[int]
) -> list[GivenSet]:
    """Return the sets of inputs that *request* brings, one at least; none if it brings nothing.

    Args:
        request: Where they come from.
        graph: The original's graph.
        ports: What has to be fed.
        seeds: A function is called with each of them.

    Raises:
        UsageError: A file cannot be read, a function fails, or a value does not fit its input.
    """
    if request.function is not None:
        return [_call(request.function, seed, ports, request.label) for seed in seeds]
    if request.given is None:
        return []
    return list(_read(request.given, graph, ports))


def _read(path: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> Iterator[GivenSet]:
    if path.is_dir():
        yield from _read_folder(path, graph, ports)
    elif not path.exists():
        raise UsageError(f"--inputs {path}: there is no such file or folder")
    elif path.suffix == ".npz":
        yield from _read_npz(path, ports)
    elif path.suffix == ".npy":
        yield _fitted(path.name, {_only(ports, path).name: _load_npy(path)}, ports)
    elif path.suffix == ".pb":
        port = _only(ports, path)
        info = next(info for info in graph.input if info.name == port.name)
        yield _fitted(path.name, {port.name: _load_pb(path, info)[1]}, ports)
    else:
        raise UsageError(f"--inputs {path}: not inputs", hint=f"give {_KINDS}")


def _only(ports: Sequence[Port], path: Path) -> Port:
    if len(ports) != 1:
        names = ", ".join(port.name for port in ports) or "none"
        raise UsageError(
            f"--inputs {path}: one array, but the model has {len(ports)} inputs: {names}",
            hint="give a .npz file with an array per input",
        )
    return ports[0]


def _fitted(label: str, values: Mapping[str, object], ports: Sequence[Port]) -> GivenSet:
    by_name = {port.name: port for port in ports}
    for name in values:
        if name not in by_name:
            known = ", ".join(by_name) or "none"
            raise UsageError(
                f"{label}: the model has no input {name!r} to feed", hint=f"there are: {known}"
            )
    return GivenSet(label, {n: fit(value, by_name[n], label) for n, value in values.items()})


def _read_folder(path: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> Iterator[GivenSet]:
    entries = sorted(path.iterdir())
    if any(_PB.fullmatch(entry.name) for entry in entries):
        yield _read_test_data(path, graph, ports)
        return
    sets = {
        int(found.group(1)): entry
        for entry in entries
        if entry.is_dir() and (found := _DATA_SET.fullmatch(entry.name))
    }
    arrays = [entry for entry in entries if entry.suffix == ".npy"]
    if sets:
        for _, folder in sorted(sets.items()):
            yield _read_test_data(folder, graph, ports)
    elif arrays:
        yield _fitted(path.name, {entry.stem: _load_npy(entry) for entry in arrays}, ports)
    else:
        raise UsageError(f"--inputs {path}: the folder holds no inputs", hint=f"give {_KINDS}")


def _read_test_data(folder: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> GivenSet:
    """Read input_N.pb: by the names inside, where all are inputs, else by position."""
    files = sorted(
        (int(found.group(1)), entry)
        for entry in folder.iterdir()
        if (found := _PB.fullmatch(entry.name))
    )
    values: dict[str, object] = {}
    for index, entry in files:
        if index >= len(graph.input):
            raise UsageError(
                f"{folder.name}: holds {entry.name}, but the model has {len(graph.input)} inputs"
            )
    named = [_load_pb(entry, graph.input[index]) for index, entry in files]
    known = {info.name for info in graph.input}
    by_name = len({name for name, _ in named} & known) == len(files)
    for (index, _), (name, value) in zip(files, named, strict=True):
        values[name if by_name else graph.input[index].name] = value
    return _fitted(folder.name, values, ports)


def _load_pb(path: Path, info: onnx.ValueInfoProto) -> tuple[str, object]:
    """Return the name and the value in one file of onnx test data."""
    content = _bytes(path)
    kind, _ = kind_of(info.type)
    try:
        if kind == "sequence":
            sequence = onnx.SequenceProto.FromString(content)
            return sequence.name, onnx.numpy_helper.to_list(sequence)
        if kind in {"optional", "optional sequence"}:
            optional = onnx.OptionalProto.FromString(content)
            return optional.name, onnx.numpy_helper.to_optional(optional)
        tensor = onnx.TensorProto.FromString(content)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(f"{path}: its data lie in another file, which is not read")
        return tensor.name, onnx.numpy_helper.to_array(tensor)
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: holds no {kind} in onnx's format") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _load_npy(path: Path) -> Array:
    loaded = _load_numpy(path, "an array in numpy's format")
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"{path}: holds several arrays; rename it to .npz")
    return loaded


def _load_numpy(path: Path, what: str) -> Array | dict[str, Array]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            return {name: loaded[name] for name in loaded.files}
    except (*_READ_ERRORS, AttributeError) as error:
        reason = (str(error).partition("\n")[0] or type(error).__name__)[:120]
        raise UsageError(f"{path}: not {what} ({reason})") from error


def _read_npz(path: Path, ports: Sequence[Port]) -> Iterator[GivenSet]:
    arrays = _load_numpy(path, "arrays in numpy's .npz format")
    if isinstance(arrays, np.ndarray):
        raise UsageError(f"{path}: holds one array; rename it to .npy")
    if not arrays:
        raise UsageError(f"{path}: holds no arrays")
    for label, values in _cases(arrays, {port.name for port in ports}).items():
        yield _fitted(f"{path.name}@{label}" if label else path.name, _joined(values, ports), ports)


def _cases(arrays: Mapping[str, Array], names: set[str]) -> dict[str, dict[str, Array]]:
    """Group ``NAME@CASE`` by case; a name that an input has is never taken apart."""
    cases: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        name, _, label = key.rpartition("@")
        is_plain = key in names or not name or _element_of(key) in names
        cases.setdefault("" if is_plain else label, {})[key if is_plain else name] = array
    shared = cases.pop("", {}) if len(cases) > 1 else {}
    return {label: {**shared, **values} for label, values in cases.items()}


def _element_of(key: str) -> str:
    found = _ELEMENT.fullmatch(key)
    return found.group(1) if found else key


def _joined(arrays: Mapping[str, Array], ports: Sequence[Port]) -> dict[str, object]:
    """Gather ``NAME[0]``, ``NAME[1]``, … as the sequence NAME, where the model has one."""
    kinds = {port.name: port for port in ports if port.is_sequence or port.may_be_absent}
    values: dict[str, object] = {}
    elements: dict[str, dict[int, Array]] = {}
    for key, array in arrays.items():
        found = _ELEMENT.fullmatch(key)
        name, index = found.groups() if found else (key, "")
        if not found or name not in kinds:
            values[key] = array
        elif not index:
            values[name] = None if kinds[name].may_be_absent else []
        else:
            elements.setdefault(name, {})[int(index)] = array
    return values | {name: [e[i] for i in sorted(e)] for name, e in elements.items()}


def _call(function: InputFunction, seed: int, ports: Sequence[Port], label: str) -> GivenSet:
    try:
        values = function(seed)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{label}: failed with {type(error).__name__} for seed {seed}: {reason}"
        ) from error
    if not isinstance(values, Mapping):
        raise UsageError(
            f"{label}: returned {type(values).__name__} where a mapping is expected",
            hint="return a dict from input names to arrays",
        )
    named = {str(name): value for name, value in values.items()}
    made = _fitted(label, named, ports)
    return GivenSet(f"{label}, seed {seed}", made.values)
