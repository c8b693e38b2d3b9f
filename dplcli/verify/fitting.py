"""Making somebody's values fit an input: its type, its rank, its fixed dimensions.

A difference of type that loses nothing is bridged (numpy makes float64 and int64 of everything);
anything else is an error that names the input, because onnxruntime's own messages do not.
"""

from collections.abc import Sequence

import numpy as np
import onnx

from dplcli.errors import UsageError
from dplcli.verify.interface import Port
from dplcli.verify.sessions import Array, Feed

_TEXT = "OUS"
_WHOLE = "iu"


def fit(value: object, port: Port, where: str) -> Feed:
    """Return *value* as what *port* takes.

    Args:
        value: An array, or whatever numpy makes one of; a list for a sequence; None for an
            optional that is to be absent.
        port: The input.
        where: Where the value comes from, for messages.

    Raises:
        UsageError: It is of another kind, type or shape.
    """
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
        raise UsageError(f"{place} is no array: {_first_line(error)}") from error
    _check_shape(array.shape, port, place)
    if port.dtype == onnx.TensorProto.UNDEFINED:
        return array
    if port.dtype == onnx.TensorProto.STRING:
        return _as_text(array, place)
    wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(port.dtype))
    if array.dtype == wanted:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "V" and array.dtype.names is None and _is_raw(array.dtype, wanted):
        return np.ascontiguousarray(array).view(wanted).reshape(array.shape)
    if not _may_become(array.dtype, port.dtype):
        raise UsageError(f"{place} is {array.dtype.name}, but {port.type_name} in the model")
    return _converted(array, wanted, place)


def _converted(array: Array, wanted: np.dtype[np.generic], place: str) -> Array:
    """Cast, and refuse what a whole number or a finite one does not survive."""
    with np.errstate(all="ignore"):
        made: Array = array.astype(wanted)
        if array.dtype.kind in _WHOLE and wanted.kind in _WHOLE:
            lost = made != array
        else:
            finite = np.isfinite(array.astype(np.float64))
            lost = finite & ~np.isfinite(made.astype(np.float64))
    if lost.any():
        worst = array.reshape(-1)[int(np.argmax(lost.reshape(-1)))]
        raise UsageError(f"{place} holds {worst}, which is outside of {wanted.name}")
    return made


def _is_raw(found: np.dtype[np.generic], wanted: np.dtype[np.generic]) -> bool:
    """Tell bytes that numpy could not name when it saved them: bfloat16 becomes '|V2'."""
    return found.type is np.void and found.itemsize == wanted.itemsize and wanted.kind in "Vf"


def _may_become(found: np.dtype[np.generic], wanted: int) -> bool:
    name = onnx.TensorProto.DataType.Name(wanted)
    if name == "BOOL" or found.kind in "bOUSMm" or found.type is np.void:
        return False
    is_float = "FLOAT" in name or name == "DOUBLE"
    if found.kind in _WHOLE:
        return "COMPLEX" not in name
    if found.kind == "c":
        return "COMPLEX" in name
    return is_float


def _as_text(array: Array, place: str) -> Array:
    if array.dtype.kind not in _TEXT or not all(
        isinstance(item, (str, bytes)) for item in array.reshape(-1).tolist()
    ):
        raise UsageError(f"{place} is {array.dtype.name}, but strings in the model")
    words = [w.decode("utf-8", "replace") if isinstance(w, bytes) else w for w in array.flat]
    text = np.empty(array.shape, dtype=object)
    text.reshape(-1)[:] = words
    return text


def _check_shape(shape: Sequence[int], port: Port, place: str) -> None:
    if port.shape is None:
        return
    fits = len(shape) == len(port.shape) and all(
        not isinstance(declared, int) or declared == dim
        for dim, declared in zip(shape, port.shape, strict=True)
    )
    if not fits:
        raise UsageError(
            f"{place} has the shape {_shown(shape)}, but {_shown(port.shape)} in the model"
        )


def _shown(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
