"""Attributes between protobuf and the IR."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import AttributeProto

from dplcli.ir import Attribute, Graph, Tensor
from dplcli.onnx_io.tensors import ProtoTensor, tensor_to_proto

_KIND_NAMES = {code: name.lower() for name, code in AttributeProto.AttributeType.items()}
_KIND_CODES = {name: code for code, name in _KIND_NAMES.items()}


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_READERS: dict[str, Callable[[AttributeProto], object]] = {
    "float": lambda proto: proto.f,
    "int": lambda proto: proto.i,
    "string": lambda proto: _text(proto.s),
    "tensor": lambda proto: ProtoTensor(proto.t),
    "floats": lambda proto: tuple(proto.floats),
    "ints": lambda proto: tuple(proto.ints),
    "strings": lambda proto: tuple(_text(item) for item in proto.strings),
    "tensors": lambda proto: tuple(ProtoTensor(item) for item in proto.tensors),
    "sparse_tensor": lambda proto: proto.sparse_tensor,
    "sparse_tensors": lambda proto: tuple(proto.sparse_tensors),
    "type_proto": lambda proto: proto.tp,
    "type_protos": lambda proto: tuple(proto.type_protos),
}
_GUESSED_KINDS = (("t", "tensor"), ("g", "graph"), ("f", "float"), ("i", "int"), ("s", "string"))
_GUESSED_LISTS = ("floats", "ints", "strings", "tensors", "graphs")


def decode_attribute(proto: AttributeProto, subgraphs: Mapping[str, Graph]) -> Attribute:
    """Read one attribute; a graph attribute becomes the graph in *subgraphs* of its name."""
    kind = _KIND_NAMES[proto.type] if proto.type else _guess_kind(proto)
    if proto.ref_attr_name:
        return Attribute(kind, None, proto.ref_attr_name)
    if kind == "graph":
        return Attribute(kind, subgraphs.get(proto.name))
    if kind == "graphs":
        return Attribute(kind, tuple(proto.graphs))
    return Attribute(kind, _READERS[kind](proto))


def _guess_kind(proto: AttributeProto) -> str:
    """Tell the kind of an attribute that states none, as files of IR version 1 and 2 may."""
    for kind in _GUESSED_LISTS:
        if len(getattr(proto, kind)):
            return kind
    return next((kind for field, kind in _GUESSED_KINDS if proto.HasField(field)), "ints")


def encode_attribute(name: str, attribute: Attribute) -> AttributeProto:
    """Write one attribute that a pass has made; graph attributes are the exporter's affair."""
    proto = AttributeProto(name=name, type=_KIND_CODES[attribute.kind])
    if attribute.ref:
        proto.ref_attr_name = attribute.ref
        return proto
    value: Any = attribute.value
    match attribute.kind:
        case "float":
            proto.f = value
        case "int":
            proto.i = value
        case "string":
            proto.s = _data(value)
        case "tensor":
            proto.t.CopyFrom(_tensor(value))
        case "floats":
            proto.floats.extend(value)
        case "ints":
            proto.ints.extend(value)
        case "strings":
            proto.strings.extend(_data(item) for item in value)
        case "tensors":
            proto.tensors.extend(_tensor(item) for item in value)
        case "sparse_tensor":
            proto.sparse_tensor.CopyFrom(value)
        case "sparse_tensors":
            proto.sparse_tensors.extend(value)
        case "type_proto":
            proto.tp.CopyFrom(value)
        case "type_protos":
            proto.type_protos.extend(value)
        case "graphs":
            proto.graphs.extend(value)
        case "graph":
            proto.g.CopyFrom(value.source)
    return proto


def _data(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _tensor(tensor: Tensor) -> onnx.TensorProto:
    return tensor.proto if isinstance(tensor, ProtoTensor) else tensor_to_proto(tensor, "")
