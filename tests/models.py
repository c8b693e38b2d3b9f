"""Models for the tests of the lower layers, which import nothing of the upper ones."""

from pathlib import Path

import onnx
import onnx.parser

from dplcli.ir import Model, Node
from dplcli.onnx_io import model_from_proto

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
SHARED_MODELS = Path(__file__).parents[1].parent / "shared" / "models"


def parse(text: str) -> onnx.ModelProto:
    """Return the model that *text* describes; a text without a header is opset 17."""
    header = "" if text.lstrip().startswith("<") else HEADER
    return onnx.parser.parse_model(header + text)


def ir_of(model: str | onnx.ModelProto, folder: Path = Path()) -> Model:
    """Return the IR of a model given as text or as a message."""
    proto = parse(model) if isinstance(model, str) else model
    return model_from_proto(proto, folder, "m.onnx")


def node_making(model: Model, name: str) -> Node:
    """Return the node of the main graph that makes the value *name*."""
    producer = model.graph.values[name].producer
    assert producer is not None
    return producer
