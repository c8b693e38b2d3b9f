"""One node by itself, computed by onnx's reference evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from dplcli.onnx_io.exporter import encode_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Node


def evaluate(node: Node, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...] | None:
    """Compute *node* with onnx's reference evaluator.

    Args:
        node: The node; its attributes must be known.
        inputs: One array per input, None for an omitted one.

    Returns:
        One array per output; None if the evaluator cannot do it.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  # slow to load, rarely needed

    if node.subgraphs or any(attribute.ref for attribute in node.attributes.values()):
        return None
    proto = NodeProto.FromString(encode_node(node))
    names = [value.name for value in node.outputs if value is not None]
    feeds = {
        value.name: array
        for value, array in zip(node.inputs, inputs, strict=True)
        if value is not None and array is not None
    }
    graph = helper.make_graph(
        [proto],
        "one_node",
        [onnx.ValueInfoProto(name=name) for name in feeds],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    opsets = [helper.make_opsetid(*item) for item in node.graph.opset_imports.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001  # whatever an operator's implementation does with odd input
        return None
    arrays = tuple(np.asarray(item) for item in found)
    return arrays if len(arrays) == len(node.outputs) else None
