"""Types between protobuf and the IR."""

import onnx
from onnx import TypeProto

from dplcli.ir import Dim, TensorType
from dplcli.ir.types import dtype_name


def decode_type(proto: TypeProto) -> TensorType | None:
    """Read a type; None if it is not a dense tensor's or states nothing."""
    if not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    value = proto.dim_value
    if value > 0:
        return value
    if value == 0 and proto.HasField("dim_value"):
        return 0
    return proto.dim_param or None


def dtype_bits(code: int) -> int:
    """Return the size of one element in bits; 0 for a type that is unknown or has no size."""
    name = dtype_name(code)
    if name in _BITS:
        return _BITS[name]
    digits = "".join(filter(str.isdigit, name))
    return int(digits) if digits else 0


_BITS = {"undefined": 0, "string": 0, "bool": 8, "bfloat16": 16} | dict.fromkeys(
    ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8
)
_BITS |= {"float4e2m1": 4, "float6e2m3": 6, "float6e3m2": 6}
