"""Arrays into onnxruntime and out of it, element types that numpy lacks included."""

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort

from dplcli.verify.values import Array, Feed, Leaf, is_exotic

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


def gives_numpy_types(session: ort.InferenceSession) -> bool:
    """Tell whether numpy has the element type of every output of the model."""
    exotic = {f"tensor({name})" for name in _BITS}
    return not any(value.type in exotic for value in session.get_outputs())


def leaves_of(value: object) -> tuple[Leaf, ...]:
    """Return the arrays of one output: a tensor, a sequence, a map or an absent optional."""
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


def fed(feed: Feed) -> Feed | ort.OrtValue:
    """Return what onnxruntime takes where it gives numpy's types; a feed can be of any."""
    if isinstance(feed, np.ndarray) and is_exotic(feed):
        return wrap(feed)
    return feed


def wrap(feed: Feed) -> ort.OrtValue:
    """Hand an array to onnxruntime where outputs have a type that numpy lacks."""
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
        return _leaf("", value.numpy())
    if kind != f"tensor({inner})":
        raise NotImplementedError(f"an output of type {kind} beside types that numpy lacks")
    shape = tuple(value.shape())
    size = (int(np.prod(shape)) * _BITS[inner] + _BYTE - 1) // _BYTE
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    from dplcli.verify.interface import dtype_name  # noqa: PLC0415  # loads onnx

    name = dtype_name(value.element_type())
    if inner != "bfloat16":
        codes = _unpacked(raw, _BITS[inner])[: int(np.prod(shape))]
        return Leaf("", name, numbered(codes, inner).reshape(shape))
    bits = np.frombuffer(raw, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return Leaf("", name, bits.view(np.float32).reshape(shape))


def numbered(codes: Array, dtype: str) -> Array:
    """Number the codes of a narrow type in the order of the numbers they stand for.

    So a distance is in steps, and both zeros are the same.

    Args:
        codes: An unsigned code in each byte.
        dtype: What onnxruntime or numpy call the type.
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
    """Return a byte for each code, of which several may share one, the lowest bits first."""
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    packed = np.frombuffer(raw, dtype=np.uint8)
    return ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)
