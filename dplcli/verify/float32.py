"""A model that computes in float32 what it says in bfloat16, where onnxruntime has no kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io.convert import all_nodes, all_tensors, graphs_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

    from dplcli.verify.values import Calls

STATED_TYPE = ("to", "dtype", "output_datatype")
"""Attributes that state the element type of a result."""

_NARROW, _WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT


def holds_bfloat16(model: ModelProto) -> bool:
    """Tell whether a model says bfloat16 of what it is fed, returns, stores or casts to."""
    return (
        any(map(_is_narrow, (*model.graph.input, *model.graph.output)))
        or any(tensor.data_type == _NARROW for tensor in all_tensors(model))
        or any(map(_casts, all_nodes(model.graph, *model.functions)))
    )


def in_float32(model: ModelProto, calls: Calls) -> ModelProto | None:
    """Let a model compute in float32 what it says in bfloat16, as onnxruntime does for float16.

    What is fed, stored, cast to or returned as bfloat16 is so still: it is converted where it is
    read.

    Args:
        model: The model, which is changed.
        calls: The calls that custom operators run, which get what their bodies would be given.

    Returns:
        The model; None if it says nothing in bfloat16.
    """
    if not holds_bfloat16(model):
        return None
    plain = [each for each in model.opset_import if not canonical_domain(each.domain)]
    for function in model.functions:
        if all(canonical_domain(each.domain) for each in function.opset_import):
            function.opset_import.extend(plain)  # for Cast
    for root in (model.graph, *model.functions):
        _Widening({}, calls).run(root, is_main=root is model.graph)
    return model


class _Widening:
    """One graph or function that becomes one of float32, node by node.

    Attributes:
        wide: What values of bfloat16 are called in float32, those around it included.
        nodes: Its nodes.

    Args:
        outer: The same of what is around it.
        calls: As for :func:`in_float32`.
    """

    def __init__(self, outer: Mapping[str, str], calls: Calls) -> None:
        self.wide, self.calls = dict(outer), calls
        self.nodes: list[NodeProto] = []

    def run(self, scope: GraphProto | FunctionProto, *, is_main: bool = False) -> None:
        """Widen it; what enters and leaves the main graph stays what it is."""
        old, ends = list(scope.node), set[str]()
        del scope.node[:]
        if isinstance(scope, onnx.GraphProto):
            del scope.value_info[:]
            narrow = [info for info in scope.input if _is_narrow(info)] if is_main else []
            ends = {info.name for info in scope.output if is_main and _is_narrow(info)}
            stored = [tensor for tensor in scope.initializer if tensor.data_type == _NARROW]
            for each in (*narrow, *stored):
                self._widen(each.name)
        for node in old:
            self._add(node, ends)
        scope.node.extend(self.nodes)
        if isinstance(scope, onnx.FunctionProto):
            scope.output[:] = [self.wide.get(name, name) for name in scope.output]
        elif not is_main:
            for info in scope.output:
                info.name = self.wide.get(info.name, info.name)
            for info in filter(_is_narrow, (*scope.input, *scope.output)):
                info.type.tensor_type.elem_type = _WIDE

    def _add(self, node: NodeProto, ends: Container[str]) -> None:
        """Add a node that reads float32, and makes it unless it says otherwise."""
        reads, makes = self.calls.get((node.domain, node.op_type, node.name), ((), ()))
        for slot, name in enumerate(node.input):
            if not makes:
                node.input[slot] = self.wide.get(name, name)
            elif reads[slot] == "bfloat16" and name not in self.wide:
                node.input[slot] = self._cast(name, _NARROW, f"{name} for {node.name}.{slot}")
        for _, body in graphs_of(node):
            _Widening(self.wide, self.calls).run(body)
        self.nodes.append(node)
        is_narrow = not makes and _is_made_narrow(node)
        for slot, name in enumerate(node.output):
            if is_narrow or (makes and makes[slot] == "bfloat16"):
                self._widen(name)
            elif name in ends:
                node.output[slot] = self.wide[name] = f"{name} in float32"
                self._cast(self.wide[name], _NARROW, name)

    def _widen(self, name: str) -> None:
        if name and name not in self.wide:
            self.wide[name] = self._cast(name, _WIDE, f"{name} in float32")

    def _cast(self, name: str, to: int, made: str) -> str:
        self.nodes.append(onnx.helper.make_node("Cast", [name], [made], to=to))
        return made


def _is_narrow(info: ValueInfoProto) -> bool:
    return bool(info.type.tensor_type.elem_type == _NARROW)


def _casts(node: NodeProto) -> bool:
    """Tell whether a node converts to bfloat16."""
    return node.op_type == "Cast" and any(a.name == "to" and a.i == _NARROW for a in node.attribute)


def _is_made_narrow(node: NodeProto) -> bool:
    """Tell whether a node goes on to make bfloat16; let others state float32."""
    for item in node.attribute:
        is_tensor = item.HasField("t") and item.t.data_type == _NARROW
        if (is_tensor and node.op_type == "Constant") or _casts(node):
            return True
        if is_tensor:
            values = onnx.numpy_helper.to_array(item.t).astype(np.float32)
            item.t.CopyFrom(onnx.numpy_helper.from_array(values, item.t.name))
        if item.name in STATED_TYPE and item.i == _NARROW:
            item.i = _WIDE
    return False
