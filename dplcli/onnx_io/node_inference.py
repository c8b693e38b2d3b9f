"""Types of what one node makes, by the inference of its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import NodeProto, TypeProto, helper, numpy_helper

from dplcli.ir.op_kinds import OP_KINDS
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.bounded_inference import INFERENCE_ERRORS, with_length, without_length
from dplcli.onnx_io.exporter import encode_node
from dplcli.onnx_io.types import decode_type

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Dim, Node, TensorType, Value

_BY_TYPES = (OP_KINDS["elementwise"] | OP_KINDS["broadcast"] | OP_KINDS["out-fusable"]) - {
    "Expand",
    "OneHot",
    "Unsqueeze",
}
"""Operators whose inference looks at types alone, whatever is constant."""

_INDICES = frozenset({"int32", "int64"})
"""The types of what an operator may read as a shape."""

_SHORT = 1024
"""Most elements of a constant that inference may look at."""


def infer_node(
    node: Node,
    types: Mapping[Value, TensorType] | None = None,
    data: Mapping[Value, NDArray[Any]] | None = None,
) -> list[TensorType | None]:
    """Infer the types of the outputs of *node* from those of its inputs; empty if unknown.

    The schema's own inference is used; it sees short constant inputs.

    Args:
        node: The node.
        types: What is known of values beyond what the model says.
        data: Values that are known beyond the model's constants.
    """
    if node.has_references:
        return []
    try:
        version = node.graph.opset_imports[node.domain]
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        proto = NodeProto.FromString(encode_node(node))
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            proto,
            _input_types(node, types or {}),
            _input_data(node, data or {}),
            opset_imports=[helper.make_opsetid(*item) for item in node.graph.opset_imports.items()],
            ir_version=max(node.graph.model.ir_version, 8),
        )
    except (*INFERENCE_ERRORS, KeyError):
        return []
    types_made = [
        None if value is None or value.name not in found else decode_type(found[value.name])
        for value in node.outputs
    ]
    return [None if known is None else with_length(known) for known in types_made]


class NodeInference:
    """Infers nodes, and asks onnx once for all that are alike.

    Nodes are alike if they have the operator, the attributes and the types of inputs in common,
    and the data of constants, where inference may look at it.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self._found: dict[Hashable, list[TensorType | None]] = {}

    def infer(
        self,
        node: Node,
        types: Mapping[Value, TensorType],
        data: Mapping[Value, NDArray[Any]],
    ) -> list[TensorType | None]:
        """Infer the types of the outputs of *node* as :func:`infer_node` does."""
        key = None if node.subgraphs else _key(node, types, data)
        if key is None:
            return infer_node(node, types, data)
        if key not in self._found:
            self._found[key] = infer_node(node, types, data)
        return self._found[key]


def _key(
    node: Node, types: Mapping[Value, TensorType], data: Mapping[Value, NDArray[Any]]
) -> Hashable:
    """Return what the types of the outputs depend on; None if it cannot be told."""
    source = node.source
    if not isinstance(source, NodeProto):
        return None
    read: list[Hashable] = []
    looks_at_data = bool(node.domain) or node.op_type not in _BY_TYPES
    for value in node.inputs:
        if value is None:
            read.append(None)
            continue
        read.append(types.get(value) or value.settled_type() or "unknown")
        if not looks_at_data:
            continue
        tensor = value.constant if value.is_constant else None
        if value in data:
            read.append((data[value].dtype.str, data[value].shape, data[value].tobytes()))
        elif tensor is not None and tensor.size <= _SHORT:
            read.append((tensor.dtype, tensor.shape, tensor.numpy().tobytes()))
    return (
        node.op_type,
        node.domain,
        node.graph.opset_imports.get(node.domain),
        tuple([attribute.SerializeToString() for attribute in source.attribute]),
        tuple(read),
        tuple([value is None for value in node.outputs]),
    )


def _input_types(node: Node, known_types: Mapping[Value, TensorType]) -> dict[str, TypeProto]:
    types = {}
    for slot, value in enumerate(node.inputs):
        known = None if value is None else known_types.get(value) or value.settled_type()
        if value is None or known is None or known.dtype is None:
            continue
        shape: Sequence[Dim] | None = known.shape
        if shape is not None and known.dtype in _INDICES and (slot or len(node.inputs) == 1):
            shape = without_length(shape)
        types[value.name] = helper.make_tensor_type_proto(DTYPE_CODES[known.dtype], shape)
    return types


def _input_data(node: Node, known: Mapping[Value, NDArray[Any]]) -> dict[str, onnx.TensorProto]:
    data = {}
    for value in node.inputs:
        if value is not None and value in known:
            data[value.name] = numpy_helper.from_array(known[value], value.name)
            continue
        tensor = None if value is None else value.constant
        if value is not None and tensor is not None and tensor.size <= _SHORT:
            data[value.name] = numpy_helper.from_array(np.asarray(tensor.numpy()), value.name)
    return data
