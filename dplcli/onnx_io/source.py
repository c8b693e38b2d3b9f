"""The message that a model was read from, to which nodes, graphs and functions look back.

Each node, graph and function of a file has the message of it as its ``source``, and nothing changes
one. So what is not decoded costs nothing, and what no pass has touched is written as it came.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto, GraphProto, NodeProto, SparseTensorProto

from dplcli.onnx_io.convert import ProtoTensor, SparseTensor, external_tensors
from dplcli.onnx_io.parts import copy_but

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import ModelProto, TensorProto

    from dplcli.ir import Function, Graph, Model, Node, Tensor
    from dplcli.onnx_io.convert import Home


class Source:
    """The message of a model.

    Args:
        proto: The message, which is not to be changed.
        home: Where it comes from.

    Attributes:
        places: Of each body, by its identity, which node of its graph has it, and the attribute.
        sorted: The identities of the outermost graphs whose nodes stood in another order.
    """

    def __init__(self, proto: ModelProto, home: Home) -> None:
        self.proto = proto
        self.home = home
        self.places: dict[int, tuple[int, str]] = {}
        self.sorted: set[int] = set()
        self._tensors: dict[int, Tensor] = {}

    @cached_property
    def size(self) -> int:
        """How many bytes the model has."""
        size: int = self.proto.ByteSize()
        return size

    @cached_property
    def external(self) -> tuple[TensorProto, ...]:
        """The tensors of which the data lies in files beside the model."""
        return tuple(external_tensors(self.proto))

    def tensor(self, proto: TensorProto | SparseTensorProto) -> Tensor:
        """Return a tensor of the file, whose data is not looked at."""
        tensor = self._tensors.get(id(proto))
        if tensor is None:
            is_sparse = isinstance(proto, SparseTensorProto)
            tensor = SparseTensor(proto, self.home) if is_sparse else ProtoTensor(proto, self.home)
            self._tensors[id(proto)] = tensor
        return tensor


def source_of(model: Model) -> Source:
    """Return what a model was loaded from."""
    assert isinstance(model.source, Source)  # noqa: S101  # the loader sets nothing else
    return model.source


def proto_of(part: Node | Graph | Function) -> Any:  # noqa: ANN401  # NodeProto and its like
    """Return the message of what was loaded; it is not to be changed."""
    assert isinstance(part.source, (NodeProto, GraphProto, FunctionProto))  # noqa: S101  # as above
    return part.source


def statement_of(graph: Graph) -> Message:
    """Copy what the file holds of a graph or function beside nodes and dense initializers."""
    return copy_but(proto_of(graph), {"node", "initializer"})


def header_of(model: Model) -> ModelProto:
    """Copy what the file holds beside graphs."""
    return copy_but(source_of(model).proto, {"graph", "functions"})
