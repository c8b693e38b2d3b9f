"""Attributes between protobuf and the IR."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto

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
    "floats": lambda proto: tuple(proto.floats),
    "ints": lambda proto: tuple(proto.ints),
    "strings": lambda proto: tuple(_text(item) for item in proto.strings),
    "sparse_tensor": lambda proto: proto.sparse_tensor,
    "sparse_tensors": lambda proto: tuple(proto.sparse_tensors),
    "type_proto": lambda proto: proto.tp,
    "type_protos": lambda proto: tuple(proto.type_protos),
}
_WITHOUT_GRAPHS = frozenset(_KIND_NAMES) - {
    AttributeProto.UNDEFINED,
    AttributeProto.GRAPH,
    AttributeProto.GRAPHS,
}
_GUESSED_KINDS = (("t", "tensor"), ("g", "graph"), ("f", "float"), ("i", "int"), ("s", "string"))
_HEAD = frozenset({"name", "type", "ref_attr_name", "doc_string"})
_GUESSED_LISTS = ("floats", "ints", "strings", "tensors", "graphs")


def decode_attribute(
    proto: AttributeProto,
    subgraphs: Mapping[str, Graph],
    folder: Path | None = None,
    *,
    in_function: bool = True,
) -> Attribute:
    """Read one attribute.

    Outside of functions there is nothing to refer to: there the value counts that stands beside
    the reference, as it does for onnx.checker and onnxruntime.

    Args:
        proto: The message.
        subgraphs: What a graph attribute becomes, by name.
        folder: Where a tensor's external data lies.
        in_function: Whether the node is in a function's body.
    """
    kind = _KIND_NAMES[proto.type] if proto.type else _guess_kind(proto)
    if proto.ref_attr_name and (in_function or not _holds_value(proto)):
        return Attribute(kind, None, proto.ref_attr_name)
    if kind == "graph":
        return Attribute(kind, subgraphs.get(proto.name))
    if kind == "graphs":
        names = (f"{proto.name}[{number}]" for number in range(len(proto.graphs)))
        return Attribute(kind, tuple(subgraphs.get(name) for name in names))
    if kind == "tensor":
        return Attribute(kind, ProtoTensor(proto.t, folder))
    if kind == "tensors":
        return Attribute(kind, tuple(ProtoTensor(item, folder) for item in proto.tensors))
    return Attribute(kind, _READERS[kind](proto))


def graphs_of(proto: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Iterate over the bodies of a node: the attribute's name, ``name[i]`` in a list of graphs."""
    for attribute in proto.attribute:
        if attribute.type in _WITHOUT_GRAPHS:
            continue
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for number, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{number}]", graph


def _holds_value(proto: AttributeProto) -> bool:
    """Tell whether *proto* holds more than what it is called, and what it refers to."""
    return any(field.name not in _HEAD for field, _ in proto.ListFields())


def _guess_kind(proto: AttributeProto) -> str:
    """Tell the kind of an attribute that states none, as files of IR version 1 and 2 may."""
    for kind in _GUESSED_LISTS:
        if len(getattr(proto, kind)):
            return kind
    return next((kind for field, kind in _GUESSED_KINDS if proto.HasField(field)), "ints")


_FIELDS = {
    "float": "f",
    "int": "i",
    "string": "s",
    "tensor": "t",
    "graph": "g",
    "sparse_tensor": "sparse_tensor",
    "type_proto": "tp",
}
"""The field that holds a kind's value, where it is not named like the kind."""


def encode_attribute(name: str, attribute: Attribute) -> AttributeProto:
    """Write one attribute that a pass has made."""
    proto = AttributeProto(name=name, type=_KIND_CODES[attribute.kind])
    if attribute.ref:
        proto.ref_attr_name = attribute.ref
        return proto
    kind = attribute.kind
    field = _FIELDS.get(kind, kind)
    if kind not in _FIELDS:
        items: Any = attribute.value
        getattr(proto, field).extend(map(_encodable, items))
    elif kind in {"float", "int", "string"}:
        setattr(proto, field, _encodable(attribute.value))
    else:
        getattr(proto, field).CopyFrom(_encodable(attribute.value))
    return proto


def _encodable(value: object) -> Any:  # noqa: ANN401  # whatever protobuf's field takes
    if isinstance(value, str):
        return value.encode()
    if type(value) is ProtoTensor:
        return value.proto
    if isinstance(value, Tensor):
        return tensor_to_proto(value, "")
    if isinstance(value, Graph):
        return GraphProto() if value.source is None else value.source
    return value
