"""The intermediate representation: what a model is while dpl works on it.

It knows nothing of protobuf: :mod:`dplcli.onnx_io` fills it and writes it back.
"""

from dplcli.ir.model import (
    Annotation,
    Codec,
    Function,
    Graph,
    Model,
    Node,
    OpSchema,
    Remarks,
    SchemaLibrary,
    StatedType,
    TypeStatement,
    Value,
)
from dplcli.ir.types import ArrayTensor, Attribute, Dim, Shape, Tensor, TensorType
