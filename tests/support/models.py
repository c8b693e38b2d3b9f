"""Models for the tests of the lower layers, which import nothing of the upper ones."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser

from dplcli.ir import Model, Node, Value
from dplcli.onnx_io import model_from_proto

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


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


def read_values(node: Node) -> Iterator[Value]:
    """Iterate over every value that *node* depends on, also those its nested graphs capture."""
    yield from (value for value in node.inputs if value is not None)
    pending = list(node.subgraphs.values())
    while pending:
        graph = pending.pop()
        yield from (output for output in graph.outputs if output.graph is not graph)
        for inner in graph:
            yield from (v for v in inner.inputs if v is not None and v.graph is not graph)
            pending.extend(inner.subgraphs.values())
