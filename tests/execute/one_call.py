"""Calls of a partitioned model, each as a model of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from dplcli.ir.model import calls_in
from dplcli.onnx_io import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.ir import Node


@dataclass(frozen=True)
class OneCall:
    """A model that is one call, and what it is fed.

    Attributes:
        name: The function, and the shapes.
        model: The model.
        feeds: Its inputs; constants are in the model.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, NDArray[Any]]


def calls_of(path: Path, target: str) -> Iterator[OneCall]:
    """Yield each call of a target, once for each function, attributes, types and shapes."""
    model = load_model(path)
    raw = onnx.load(path)
    protos = {node.name: node for node in _nodes(raw.graph) if node.domain == target}
    seen = set()
    for function, nodes in calls_in(model).items():
        if function.domain != target:
            continue
        for node in nodes:
            if node.name not in protos:  # in a function of the model's own
                continue
            made = _one(node, protos[node.name], raw)
            if made is not None and made.name not in seen:
                seen.add(made.name)
                yield made


def _one(node: Node, proto: onnx.NodeProto, raw: onnx.ModelProto) -> OneCall | None:
    """Return a call by itself, with sizes for what is open; None if a rank is not known."""
    known = {}
    for number, value in enumerate(node.inputs):
        kind = None if value is None else value.known_type()
        if kind is None or kind.shape is None or kind.dtype is None:
            return None
        known[number] = kind
    shapes = {
        n: [size if isinstance(size, int) else 2 for size in kind.shape or ()]
        for n, kind in known.items()
    }
    end = -1 if "transposed" in node.op_type else -2
    if len(shapes[1]) > 1 and "matmul" in node.op_type:  # both sides are as deep
        if isinstance((known[0].shape or ())[-1], int):
            shapes[1][end] = shapes[0][-1]
        else:
            shapes[0][-1] = shapes[1][end]
    random = np.random.default_rng(len(node.name))
    feeds, weights, stated = {}, [], []
    for number, value in enumerate(node.inputs):
        assert value is not None
        dtype = str(known[number].dtype)
        wanted = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
        data = np.asarray(random.standard_normal(shapes[number])).astype(wanted)
        if value.is_constant and value.constant is not None and data.size == 1:
            data = value.constant.numpy()
        if proto.input[number] in feeds or any(w.name == proto.input[number] for w in weights):
            continue
        if value.is_constant:
            weights.append(numpy_helper.from_array(data, proto.input[number]))
        else:
            feeds[proto.input[number]] = data
            code = helper.np_dtype_to_tensor_dtype(wanted)
            stated.append(helper.make_tensor_value_info(proto.input[number], code, data.shape))
    results = [onnx.ValueInfoProto(name=name) for name in proto.output]
    called = [function for function in raw.functions if function.name == node.op_type]
    made = onnx.ModelProto(ir_version=max(raw.ir_version, 8), functions=called)
    made.opset_import.extend(raw.opset_import)
    made.graph.CopyFrom(helper.make_graph([proto], "g", stated, results, weights))
    kinds = [f"{known[n].dtype}{shapes[n]}" for n in known]
    attributes = sorted(str(attribute) for attribute in proto.attribute)
    return OneCall(" ".join([node.op_type, *kinds, *attributes]), made, feeds)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
