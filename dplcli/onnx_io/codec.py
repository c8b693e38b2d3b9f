"""The IR's decoder for models that came from protobuf."""

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto, ValueInfoProto

from dplcli.errors import InvalidModelError
from dplcli.ir import Attribute, Model, Node, SchemaLibrary, Tensor, TensorType, Value
from dplcli.onnx_io.attributes import decode_attribute
from dplcli.onnx_io.schemas import OnnxSchemas
from dplcli.onnx_io.shape_inference import infer_types
from dplcli.onnx_io.tensors import ProtoTensor, SparseTensor
from dplcli.onnx_io.types import decode_type

_SHORT_KINDS = frozenset(
    {
        AttributeProto.INT,
        AttributeProto.INTS,
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
        AttributeProto.STRING,
    }
)


class ProtoCodec:
    """A :class:`dplcli.ir.Codec` for protobuf sources.

    Attributes and types that are encoded alike are decoded once: in most nets they repeat.

    Args:
        folder: The model's folder, where external data lies.
    """

    schemas: SchemaLibrary = OnnxSchemas()

    def __init__(self, folder: Path) -> None:
        """Decode relative to *folder*."""
        self.folder = folder
        self._attributes: dict[bytes, tuple[str, Attribute]] = {}
        self._types: dict[bytes, TensorType | None] = {}

    def attributes(self, node: Node) -> dict[str, Attribute]:
        """Decode the attributes of *node*."""
        proto = node.source
        assert isinstance(proto, onnx.NodeProto)  # noqa: S101  # the loader sets nothing else
        known = self._attributes
        attributes = {}
        for item in proto.attribute:
            if not isinstance(item.name, str):
                raise InvalidModelError(f"{node!r}: the attribute {item.name!r} is not UTF-8 text")
            if item.type not in _SHORT_KINDS:
                attributes[item.name] = decode_attribute(item, node.subgraphs, self.folder)
                continue
            encoded = item.SerializeToString()
            decoded = known.get(encoded)
            if decoded is None:
                attribute = decode_attribute(item, node.subgraphs, self.folder)
                decoded = known[encoded] = (item.name, attribute)
            attributes[decoded[0]] = decoded[1]
        return attributes

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""
        if isinstance(source, Tensor):
            return source
        if isinstance(source, SparseTensorProto):
            return SparseTensor(source, self.folder)
        assert isinstance(source, TensorProto)  # noqa: S101  # the loader sets nothing else
        return ProtoTensor(source, self.folder)

    def declared_type(self, source: object) -> TensorType | None:
        """Decode a ``ValueInfoProto`` or ``TypeProto``; None if it is not a dense tensor's."""
        proto = source.type if isinstance(source, ValueInfoProto) else source
        assert isinstance(proto, TypeProto)  # noqa: S101  # the loader sets nothing else
        encoded = proto.SerializeToString()
        if encoded not in self._types:
            self._types[encoded] = decode_type(proto)
        return self._types[encoded]

    def infer_types(self, model: Model) -> tuple[Mapping[Value, TensorType], str]:
        """Run onnx's shape inference over the model as it was loaded."""
        return infer_types(model)
