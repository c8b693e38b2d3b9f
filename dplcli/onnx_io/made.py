"""Messages for what passes have made: functions, bodies, initializers, types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import (
    FunctionProto,
    GraphProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from dplcli.ir import Tensor, TensorType, TypeStatement
from dplcli.onnx_io.tensors import tensor_to_proto
from dplcli.onnx_io.types import encode_statement, encode_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Function, Graph, Value


def new_function(function: Function) -> FunctionProto:
    """Encode everything of a function made by a pass but its nodes."""
    proto = FunctionProto(domain=function.domain, name=function.name)
    proto.input.extend(value.name for value in function.body.inputs)
    proto.output.extend(value.name for value in function.body.outputs)
    proto.attribute.extend(function.attributes)
    for key, value in function.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def new_body(graph: Graph) -> GraphProto:
    """Encode the interface of a body made by a pass, and the types of what is made in it."""
    proto = GraphProto(name=graph.name)
    proto.input.extend(map(_value_info, graph.inputs))
    proto.output.extend(map(_value_info, graph.outputs))
    interface = {*graph.inputs, *graph.outputs}
    proto.value_info.extend(
        _value_info(value)
        for value in graph.values.values()
        if value.type_source is not None and value not in interface
    )
    return proto


def _value_info(value: Value) -> ValueInfoProto:
    known = value.type_source
    if isinstance(known, TensorType):
        return encode_type(value.name, known)
    proto = ValueInfoProto()
    if isinstance(known, TypeStatement):
        proto.ParseFromString(known.encoded)
    elif isinstance(known, ValueInfoProto):
        proto.CopyFrom(known)
    elif isinstance(known, TypeProto):
        proto.type.CopyFrom(known)
    proto.name = value.name
    return proto


def made_initializers(graph: Graph) -> dict[str, Tensor]:
    """Return the data of the initializers that passes have made, by name."""
    found = {}
    for name, value in graph.values.items():
        data = value.initializer_source
        if data is None or isinstance(data, (TensorProto, SparseTensorProto)):
            continue
        if isinstance(data, Tensor) and value.producer is None:
            found[name] = data
    return found


def new_initializers(made: Mapping[str, Tensor]) -> list[TensorProto]:
    """Encode the initializers that passes have made, which :func:`made_initializers` lists."""
    return [tensor_to_proto(data, name) for name, data in made.items()]


def new_types(graph: Graph) -> list[ValueInfoProto]:
    """Encode the types that passes state of what they have made."""
    stated = (
        encode_statement(name, known)
        for name, known in graph.stated_types.items()
        if name in graph.values
    )
    return [proto for proto in stated if proto is not None]
