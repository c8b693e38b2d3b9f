"""The IR's decoder for models that came from protobuf."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import (
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from dplcli.ir import (
    Attribute,
    Model,
    Node,
    Remarks,
    SchemaLibrary,
    Tensor,
    TensorType,
    Value,
)
from dplcli.ir.scopes import is_in_function
from dplcli.onnx_io.attributes import decode_attribute
from dplcli.onnx_io.node_inference import infer_node
from dplcli.onnx_io.schemas import OnnxSchemas
from dplcli.onnx_io.shape_inference import infer_types, infer_types_anew
from dplcli.onnx_io.stated_types import statements_hold
from dplcli.onnx_io.tensors import Home, ProtoTensor, SparseTensor
from dplcli.onnx_io.types import decode_type, remarks_of

_SHORT_BYTES = 4096
"""Most bytes of a node's attributes that are remembered."""


class ProtoCodec:
    """A :class:`dplcli.ir.Codec` for protobuf sources.

    Attributes and types that are encoded alike are decoded once, and nodes share the result: in
    most nets they repeat.

    Args:
        home: Where the model comes from; external data lies beside it.
    """

    schemas: SchemaLibrary = OnnxSchemas()

    def __init__(self, home: Home) -> None:
        """Decode relative to *home*."""
        self.home = home
        self._attributes: dict[tuple[bytes, ...], dict[str, Attribute]] = {}
        self._types: dict[bytes, TensorType | None] = {}

    def attributes(self, node: Node) -> dict[str, Attribute]:
        """Decode the attributes of *node*."""
        proto = node.source
        assert isinstance(proto, onnx.NodeProto)  # noqa: S101  # the loader sets nothing else
        if node.subgraphs:
            return self._decoded(node, proto)
        encoded = tuple([item.SerializeToString() for item in proto.attribute[:]])
        known = self._attributes.get(encoded)
        if known is None:
            known = self._decoded(node, proto)
            refers = any(item.ref_attr_name for item in proto.attribute)  # which depends on where
            if sum(map(len, encoded)) <= _SHORT_BYTES and not refers:
                self._attributes[encoded] = known
        return known

    def _decoded(self, node: Node, proto: onnx.NodeProto) -> dict[str, Attribute]:
        attributes = {}
        for item in proto.attribute:
            inside = bool(item.ref_attr_name) and is_in_function(node.graph)
            attributes[item.name] = decode_attribute(
                item, node.subgraphs, self.home, in_function=inside
            )
        return attributes

    def remarks(self, node: Node) -> Remarks:
        """Read the documentation and metadata of a loaded node."""
        proto = node.source
        assert isinstance(proto, onnx.NodeProto)  # noqa: S101  # the loader sets nothing else
        return remarks_of(proto)

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""
        if type(source) is TensorProto:
            return ProtoTensor(source, self.home)
        if isinstance(source, SparseTensorProto):
            return SparseTensor(source, self.home)
        assert isinstance(source, Tensor)  # noqa: S101  # nothing else is ever set
        return source

    def declared_type(self, source: object) -> TensorType | None:
        """Decode a ``ValueInfoProto`` or ``TypeProto``; None if it is not a dense tensor's."""
        proto = source.type if isinstance(source, ValueInfoProto) else source
        assert isinstance(proto, TypeProto)  # noqa: S101  # the loader sets nothing else
        encoded = proto.SerializeToString()
        if encoded not in self._types:
            self._types[encoded] = decode_type(proto)
        return self._types[encoded]

    def infer_types(
        self, model: Model, *, anew: bool = False
    ) -> tuple[Mapping[Value, TensorType], str]:
        """Run onnx's shape inference over the model as it was loaded, or as it is now."""
        return infer_types_anew(model) if anew else infer_types(model)

    def statements_hold(self, model: Model) -> bool:
        """Compare what is stated of each value with what its node makes of what is stated."""
        return statements_hold(model)

    def infer_node(self, node: Node) -> list[TensorType | None]:
        """Run the schema's inference for one node."""
        return infer_node(node)

    def evaluate(
        self, node: Node, inputs: Sequence[NDArray[Any] | None]
    ) -> tuple[NDArray[Any], ...] | None:
        """Compute one node with onnx's reference evaluator, which is slow to import."""
        from dplcli.onnx_io.evaluation import evaluate  # noqa: PLC0415  # rarely needed

        return evaluate(node, inputs)
