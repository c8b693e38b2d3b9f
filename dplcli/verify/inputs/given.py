"""Inputs that the user has: in files, or from a Python function.

A path may be:

- ``FILE.npz``: arrays by input name. ``NAME[0]``, ``NAME[1]``, … are the elements of a sequence;
  ``NAME[]`` is an empty sequence or an absent optional; ``NAME@CASE`` is the value of NAME in one
  of several cases;
- ``FILE.npy`` or ``FILE.pb``: the only input of a model;
- a folder with ``input_0.pb``, ``input_1.pb``, …: onnx test data, in the order of the inputs;
- a folder with ``test_data_set_0``, ``test_data_set_1``, …: several of them;
- a folder with ``NAME.npy``, …: arrays by input name.

numpy makes float64 and int64 of everything, so a type is converted where nothing is lost. Anything
else is an error that names the input, because onnxruntime's own messages do not.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dplcli.errors import UsageError, opt
from dplcli.verify.check import InputFunction, InputRequest, Sums
from dplcli.verify.inputs.files import first_line, read_npy, read_npz, read_pb
from dplcli.verify.inputs.sizes import rank_of, with_rank
from dplcli.verify.model import Port, kind_of
from dplcli.verify.values import Array, Feed

_KINDS = "a .npz, .npy or .pb file, or a folder with input_0.pb or test_data_set_0"
_PB = re.compile(r"input_(\d+)\.pb")
_DATA_SET = re.compile(r"test_data_set_(\d+)")
_ELEMENT = re.compile(r"(.*)\[(\d*)\]", re.DOTALL)
_TEXT, _WHOLE = "OUS", "iu"


@dataclass(frozen=True)
class GivenSet:
    """Values of some inputs or all, for one run.

    Attributes:
        label: What to call it in reports.
        values: By input.
    """

    label: str
    values: Mapping[str, Feed]


def read_given(
    request: InputRequest, graph: onnx.GraphProto, ports: Sequence[Port], seeds: Sequence[int]
) -> list[GivenSet]:
    """Return the sets of inputs that the user gives; none if the user gives none.

    Args:
        request: Says where they come from.
        graph: The original's graph.
        ports: The inputs that have to be fed.
        seeds: What a function is called with, one after the other.

    Raises:
        UsageError: A file cannot be read, a function fails, or a value does not fit its input.
    """
    if request.function is not None:
        return [_called(request.function, seed, ports, request.label) for seed in seeds]
    return [] if request.given is None else [*_read(request.given, graph, ports)]


def check_known(names: Iterable[str], known: Collection[str], message: str) -> None:
    """Refuse the first of *names* that is not *known*; its place in *message* is ``{!r}``.

    Raises:
        UsageError: There is such a name.
    """
    if unknown := [name for name in names if name not in known]:
        there_are = ", ".join(known) or "none"
        raise UsageError(message.format(unknown[0]), hint=f"there are: {there_are}")


def sizes_given(ports: Sequence[Port], given: Mapping[str, Feed]) -> dict[str, int]:
    """Return the sizes of symbols in given arrays; the first array decides."""
    sizes: dict[str, int] = {}
    for port in ports:
        if isinstance(array := given.get(port.name), np.ndarray):
            for symbol, dim in zip(port.symbols, array.shape, strict=False):
                if symbol is not None:
                    sizes.setdefault(symbol, dim)
    return sizes


def shaped_sizes(
    ports: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
    sums: Sums,
) -> dict[str, int]:
    """Return *sizes* and the sizes of all symbols in *shapes*, which are given for whole inputs.

    Raises:
        UsageError: A shape is for no input, has another rank or contradicts a fixed dimension; one
            symbol gets two numbers; or a size, or one of *sums*, is for a dimension that no input
            has.
    """
    by_name = {port.name: port for port in ports}
    result = dict(sizes)
    check_known(shapes, by_name, "the model has no input {!r}")
    for name, shape in shapes.items():
        port = with_rank(by_name[name], len(shape))
        declared = port.shape or ()
        if len(declared) != len(shape):
            ranks = f"{len(shape)} dimensions, but {len(declared)} in the model"
            raise UsageError(f"the shape of {name!r} has {ranks}")
        result |= {rank_of(port): len(shape)} if by_name[name].shape is None else {}
        for axis, (symbol, dim) in enumerate(zip(port.symbols, shape, strict=True)):
            if symbol is None and declared[axis] != dim:
                raise UsageError(f"dimension {axis} of {name!r} is {declared[axis]}, not {dim}")
            if symbol is not None and result.setdefault(symbol, dim) != dim:
                raise UsageError(f"two sizes are given for {symbol!r}: {result[symbol]} and {dim}")
    is_ranked = all(port.shape is not None for port in ports)
    parts = (part for each in sums.values() for part in each if isinstance(part, str))
    named = [name for name in (*result, *sums, *parts) if is_ranked or ":" not in name]
    symbols = {symbol for port in ports for symbol in port.symbols if symbol is not None}
    check_known(named, sorted(symbols), "no input has a dimension {!r}")
    return result


# Where values come from.


def _read(path: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> Iterator[GivenSet]:
    if path.is_dir():
        yield from _read_folder(path, graph, ports)
    elif not path.exists():
        raise UsageError(f"{opt('inputs')} {path}: there is no such file or folder")
    elif path.suffix == ".npz":
        for case, values in _cases(path, {port.name: port for port in ports}).items():
            yield _fitted(f"{path.name}@{case}" if case else path.name, values, ports)
    elif path.suffix not in {".npy", ".pb"}:
        raise UsageError(f"{opt('inputs')} {path}: not inputs", hint=f"give {_KINDS}")
    elif len(ports) != 1:
        names = ", ".join(port.name for port in ports) or "none"
        raise UsageError(
            f"{opt('inputs')} {path}: one array, but the model has {len(ports)} inputs: {names}",
            hint="give a .npz file with an array per input",
        )
    else:
        (port,) = ports
        value = read_npy(path) if path.suffix == ".npy" else read_pb(path, port.kind)[1]
        yield _fitted(path.name, {port.name: value}, ports)


def _cases(path: Path, ports: Mapping[str, Port]) -> dict[str, dict[str, Any]]:
    """Return the values in a .npz file, by case and input."""

    def look(key: str, shape: tuple[int, ...]) -> None:
        _, name, index = _address(key, ports)
        if name in ports and index != "":
            _check_shape(shape, ports[name], f"{path.name}: input {name!r}")

    arrays = read_npz(path, look)
    addresses = {key: _address(key, ports) for key in arrays}
    cases: dict[str, dict[str, Any]] = {}
    for key in sorted(arrays, key=lambda key: int(addresses[key][2] or 0)):
        case, name, index = addresses[key]
        values = cases.setdefault(case, {})
        if index is None:
            values[name] = arrays[key]
        elif not index:
            values[name] = None if ports[name].may_be_absent else []
        else:
            values.setdefault(name, []).append(arrays[key])
    shared = cases.pop("", {}) if len(cases) > 1 else {}
    return {case: {**shared, **values} for case, values in cases.items()}


def _address(key: str, ports: Mapping[str, Port]) -> tuple[str, str, str | None]:
    """Return the case, the input and the element of an array; inputs may have such names, too."""
    before, _, case = key.rpartition("@")
    for name, of in ((key, ""), (before, case)):
        element = _ELEMENT.fullmatch(name)
        port = ports.get(element[1]) if element else None
        if name in ports:
            return of, name, None
        if element and port and (port.is_sequence or port.may_be_absent):
            return of, port.name, element[2]
    return (case, before, None) if before else ("", key, None)


def _read_folder(path: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> Iterator[GivenSet]:
    entries = sorted(path.iterdir())
    if _numbered(entries, _PB):
        yield _read_test_data(path, graph, ports)
    elif sets := _numbered(filter(Path.is_dir, entries), _DATA_SET):
        for _, folder in sets:
            yield _read_test_data(folder, graph, ports)
    elif arrays := [entry for entry in entries if entry.suffix == ".npy"]:
        yield _fitted(path.name, {entry.stem: read_npy(entry) for entry in arrays}, ports)
    else:
        raise UsageError(
            f"{opt('inputs')} {path}: the folder holds no inputs", hint=f"give {_KINDS}"
        )


def _numbered(entries: Iterable[Path], pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return those whose names fit, by the numbers in these."""
    named = ((pattern.fullmatch(entry.name), entry) for entry in entries)
    return sorted((int(name[1]), entry) for name, entry in named if name)


def _read_test_data(folder: Path, graph: onnx.GraphProto, ports: Sequence[Port]) -> GivenSet:
    """Read input_N.pb: by the names inside if all of them are inputs, else by position."""
    read: list[tuple[str, str, Any]] = []
    for index, entry in _numbered(folder.iterdir(), _PB):
        if index >= len(graph.input):
            raise UsageError(
                f"{folder.name}: holds {entry.name}, but the model has {len(graph.input)} inputs"
            )
        info = graph.input[index]
        read.append((info.name, *read_pb(entry, kind_of(info.type)[0])))
    by_name = len({name for _, name, _ in read} & {info.name for info in graph.input}) == len(read)
    values = {name if by_name else placed: value for placed, name, value in read}
    return _fitted(folder.name, values, ports)


def _called(function: InputFunction, seed: int, ports: Sequence[Port], label: str) -> GivenSet:
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
    fitted = _fitted(label, {str(name): value for name, value in values.items()}, ports)
    return GivenSet(f"{label}, seed {seed}", fitted.values)


# Making values fit the inputs: their types, their ranks, their fixed dimensions.


def _fitted(label: str, values: Mapping[str, object], ports: Sequence[Port]) -> GivenSet:
    by_name = {port.name: port for port in ports}
    check_known(values, by_name, label + ": the model has no input {!r} to feed")
    return GivenSet(label, {n: _fit(value, by_name[n], label) for n, value in values.items()})


def _fit(value: object, port: Port, where: str) -> Feed:
    """Return *value* as what *port* takes; *where* it comes from stands in messages."""
    place = f"{where}: input {port.name!r}"
    if value is None:
        if not port.may_be_absent:
            raise UsageError(f"{place} is None, but it is a {port.kind}: only an optional may be")
        return None
    if port.is_sequence:
        if not isinstance(value, (list, tuple)):
            raise UsageError(f"{place} is a sequence in the model, but a single array is given")
        return [_fit_array(item, port, f"{place}[{index}]") for index, item in enumerate(value)]
    if port.kind not in {"tensor", "optional"}:
        raise UsageError(f"{place} is a {port.kind} in the model: dpl cannot feed that")
    return _fit_array(value, port, place)


def _fit_array(value: object, port: Port, place: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UsageError(f"{place} is no array: {first_line(error)}") from error
    _check_shape(array.shape, port, place)
    if port.dtype == onnx.TensorProto.UNDEFINED:
        return array
    if port.dtype == onnx.TensorProto.STRING:
        items = array.reshape(-1).tolist()
        if array.dtype.kind not in _TEXT or not all(isinstance(i, (str, bytes)) for i in items):
            raise UsageError(f"{place} is {array.dtype.name}, but strings in the model")
        words = [i.decode("utf-8", "replace") if isinstance(i, bytes) else i for i in items]
        return np.array(words, dtype=object).reshape(array.shape)
    wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(port.dtype))
    is_raw = array.dtype.type is np.void and array.dtype.names is None  # as bfloat16 is saved
    is_raw = is_raw and array.dtype.itemsize == wanted.itemsize and wanted.kind in "Vf"
    if array.dtype == wanted or is_raw:
        return np.ascontiguousarray(array).view(wanted).reshape(array.shape)
    if not _may_become(array.dtype, port.dtype):
        raise UsageError(f"{place} is {array.dtype.name}, but {port.type_name} in the model")
    # Cast; refuse whole numbers that would change and finite ones that would become infinite.
    with np.errstate(all="ignore"):
        converted: Array = array.astype(wanted)
        if array.dtype.kind in _WHOLE and wanted.kind in _WHOLE:
            lost = converted != array
        else:
            finite = np.isfinite(array.astype(np.float64))
            lost = finite & ~np.isfinite(converted.astype(np.float64))
    if lost.any():
        raise UsageError(f"{place} holds {array[lost][0]}, which is outside of {wanted.name}")
    return converted


def _may_become(found: np.dtype[np.generic], wanted: int) -> bool:
    """Tell whether numbers of a type may be cast to an element type of ONNX."""
    name = onnx.TensorProto.DataType.Name(wanted)
    if name == "BOOL" or found.kind in "bOUSMm" or found.type is np.void:
        return False
    if found.kind == "c" or "COMPLEX" in name:
        return found.kind == "c" and "COMPLEX" in name
    return found.kind in _WHOLE or "FLOAT" in name or name == "DOUBLE"


def _check_shape(shape: Sequence[int], port: Port, place: str) -> None:
    declared = port.shape or ()
    fits = [not isinstance(n, int) or n == dim for dim, n in zip(shape, declared, strict=False)]
    if port.shape is not None and (len(shape) != len(declared) or not all(fits)):
        ours, theirs = _shown(shape), _shown(declared)
        raise UsageError(f"{place} has the shape {ours}, but {theirs} in the model")


def _shown(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
