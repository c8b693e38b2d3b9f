"""Element types, shapes and attribute values, in the words of ONNX and numpy."""

from functools import lru_cache
from typing import NamedTuple, TypeAlias

DTYPE_NAMES = (
    "undefined",
    "float32",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "float64",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
    "uint4",
    "int4",
    "float4e2m1",
    "float8e8m0",
    "uint2",
    "int2",
    "float6e2m3",
    "float6e3m2",
)
"""Name of each element type; the index is ONNX's ``TensorProto.DataType`` code."""

DTYPE_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}
"""The same the other way round."""

Dim: TypeAlias = int | str | None
"""One dimension: a number, a symbol, or unknown."""

Shape: TypeAlias = tuple[Dim, ...]


def dtype_name(code: int) -> str:
    """Name the element type *code*; a code newer than this table reads ``type<code>``."""
    return DTYPE_NAMES[code] if 0 <= code < len(DTYPE_NAMES) else f"type{code}"


class TensorType(NamedTuple):
    """What is known of a tensor before it is computed.

    Attributes:
        dtype: Name of the element type, or None if unknown.
        shape: Its dimensions, or None if even the rank is unknown.
    """

    dtype: str | None
    shape: Shape | None

    def __str__(self) -> str:
        """Read as ONNX text does: ``float32[1,3,n,?]``, or ``float32`` for an unknown rank."""
        if self.shape is None:
            return self.dtype or "?"
        dims = ",".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.dtype or '?'}[{dims}]"


def contradicts(first: TensorType, second: TensorType) -> bool:
    """Tell whether no tensor has both types; a symbol may stand for any number."""
    if first.dtype != second.dtype and None not in (first.dtype, second.dtype):
        return True
    if first.shape is None or second.shape is None:
        return False
    return len(first.shape) != len(second.shape) or any(
        old != new and isinstance(old, int) and isinstance(new, int)
        for old, new in zip(first.shape, second.shape, strict=True)
    )


@lru_cache(maxsize=1024)
def shared_type(dtype: str | None, shape: Shape | None) -> TensorType:
    """Return a type; most values of a model share a few, so they share the object, too."""
    return TensorType(dtype, shape)


class Attribute(NamedTuple):
    """One attribute of a node.

    Attributes:
        kind: ONNX's ``AttributeProto.AttributeType`` in lower case: ``int``, ``floats``, …
        value: int, float, str (bytes if not UTF-8), a Tensor, or a tuple of these; for the other
            kinds (graphs, sparse tensors, types) whatever the codec uses, opaque to the IR.
        ref: Name of the enclosing function's attribute that supplies the value, or "".
    """

    kind: str
    value: object
    ref: str = ""
