"""Models made from scratch: from ONNX text, and from made-up graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import onnx
import onnx.parser
import onnx.shape_inference

from dplcli.errors import InvalidModelError
from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.loader import model_from_proto

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Model

DEFAULT_OPSET = 21
_NO_GRAPH = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]> empty () => () {{}}\n'
_DEFAULT_HEADER = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]>\n'


def model_from_text(text: str, label: str) -> Model:
    """Read ONNX text; without a header of its own it is of opset 21.

    Raises:
        InvalidModelError: It is no model; says why.
    """
    header = "" if text.lstrip().startswith("<") else _DEFAULT_HEADER
    try:
        proto = onnx.parser.parse_model(header + text)
        onnx.checker.check_model(proto)
    except (onnx.parser.ParseError, onnx.checker.ValidationError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidModelError(f"{label}: is not a model in ONNX text: {reason}") from error
    return model_from_proto(proto, Path(), label)


def functions_from_text(text: str, label: str) -> Model:
    """Read functions in ONNX text, with or without a model before them.

    Raises:
        InvalidModelError: They are no functions; says why.
    """
    whole = text if text.lstrip().startswith("<ir_version") else _NO_GRAPH + text
    try:
        proto = onnx.parser.parse_model(whole)
    except (onnx.parser.ParseError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidModelError(f"{label}: is not ONNX text: {reason}") from error
    return model_from_proto(proto, Path(), label)


class MadeUpNode(Protocol):
    """One node, by names."""

    @property
    def op_type(self) -> str:
        """Its operator."""

    @property
    def inputs(self) -> Sequence[str]:
        """Names of what it reads."""

    @property
    def outputs(self) -> Sequence[str]:
        """Names of what it makes."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Its attributes."""


class MadeUpGraph(Protocol):
    """A graph, by names."""

    @property
    def nodes(self) -> Sequence[MadeUpNode]:
        """Its nodes, in topological order."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of each input."""

    @property
    def constants(self) -> Mapping[str, NDArray[Any]]:
        """Its initializers."""

    @property
    def outputs(self) -> Sequence[str]:
        """Names of what it returns."""


def build_model(graph: MadeUpGraph, opset: int) -> Model | None:
    """Make a model of a made-up graph; None if operators and shapes do not fit together."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
        for name, (dtype, shape) in graph.inputs.items()
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    try:
        nodes = [
            onnx.helper.make_node(node.op_type, node.inputs, node.outputs, **dict(node.attributes))
            for node in graph.nodes
        ]
    except (ValueError, TypeError):
        return None  # an attribute that onnx cannot tell the kind of
    outputs = [onnx.ValueInfoProto(name=name) for name in graph.outputs]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "made_up", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=10,
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        types = {info.name: info for info in inferred.graph.value_info}
        types |= {info.name: info for info in inferred.graph.output}
        del proto.graph.output[:]
        proto.graph.output.extend(types[name] for name in graph.outputs)
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, KeyError):
        return None
    return model_from_proto(proto, Path(), "made up")
