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
