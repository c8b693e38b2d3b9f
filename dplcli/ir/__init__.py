"""The intermediate representation: what a model is while dpl works on it.

It knows nothing of protobuf: :mod:`dplcli.onnx_io` fills it and writes it back.
"""

from dplcli.ir.codec import Codec, OpSchema, Remarks, SchemaLibrary, StatedType, TypeStatement
from dplcli.ir.graph import Graph
from dplcli.ir.model import Function, Model
from dplcli.ir.node import Node
from dplcli.ir.tensor import ArrayTensor, Tensor
from dplcli.ir.types import Attribute, Dim, Shape, TensorType
from dplcli.ir.value import Value

__all__ = [
    "ArrayTensor",
    "Attribute",
    "Codec",
    "Dim",
    "Function",
    "Graph",
    "Model",
    "Node",
    "OpSchema",
    "Remarks",
    "SchemaLibrary",
    "Shape",
    "StatedType",
    "Tensor",
    "TensorType",
    "TypeStatement",
    "Value",
]
