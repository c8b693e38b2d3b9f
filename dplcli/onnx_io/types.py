"""Types between protobuf and the IR."""

import onnx
from google.protobuf.message import DecodeError
from onnx import NodeProto, TypeProto, ValueInfoProto

from dplcli.ir import Dim, Remarks, StatedType, TensorType
from dplcli.ir.codec import NO_REMARKS
from dplcli.ir.types import DTYPE_CODES, dtype_name


def decode_type(proto: TypeProto) -> TensorType | None:
    """Read a type; None if it is not a dense tensor's or states nothing."""
    if not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def encode_type(name: str, known: TensorType) -> ValueInfoProto:
    """Write the type of the value *name*; an element type newer than the table is left out."""
    proto = ValueInfoProto(name=name)
    tensor = proto.type.tensor_type
    tensor.elem_type = 0 if known.dtype is None else DTYPE_CODES.get(known.dtype, 0)
    if known.shape is None:
        return proto
    tensor.shape.SetInParent()
    for dim in known.shape:
        entry = tensor.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim is not None:
            entry.dim_param = dim
    return proto


def remarks_of(proto: NodeProto | ValueInfoProto) -> Remarks:
    """Read the documentation and metadata of a message; what is not UTF-8 text is left out."""
    doc = proto.doc_string
    if not doc and not proto.metadata_props:
        return NO_REMARKS
    items = [(item.key, item.value) for item in proto.metadata_props]
    metadata = {key: text for key, text in items if type(key) is type(text) is str}
    return Remarks(doc if type(doc) is str else "", metadata)


def decode_statement(encoded: bytes) -> tuple[TensorType | None, StatedType]:
    """Read what a graph states of a value: its type, and all of it.

    Args:
        encoded: A ``ValueInfoProto`` without the name. What we have no words for stays encoded.
    """
    proto = ValueInfoProto.FromString(encoded)
    proto.name = ""
    known = decode_type(proto.type)
    found = StatedType(known, remarks_of(proto))
    try:
        is_all = encode_statement("", found) == proto
    except ValueError:
        is_all = False  # a symbol is not UTF-8 text
    return known, found if is_all else StatedType(None, encoded=proto.SerializeToString())


def encode_statement(name: str, stated: StatedType) -> ValueInfoProto | None:
    """Write what is stated of the value *name*; None if it is not ours and does not read."""
    if stated.encoded:
        proto = ValueInfoProto()
        try:
            proto.ParseFromString(stated.encoded)
        except DecodeError:
            return None
        proto.name = name
        return proto
    if stated.known is None:
        return None
    proto = encode_type(name, stated.known)
    doc, metadata = stated.remarks
    if doc:
        proto.doc_string = doc
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


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
