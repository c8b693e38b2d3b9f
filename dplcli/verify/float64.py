"""A model that computes in float64 what it computes in coarser floats.

What two ways to compute a value give apart from rounding shows in float64: there, rounding is half
a billion times as fine as in float32. onnx's reference evaluator runs such models. (onnxruntime has
no float64 kernels of many operators, Conv among them.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.ir.operators import canonical_domain
from dplcli.onnx_io.external_data import all_tensors
from dplcli.onnx_io.opset import all_scopes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from dplcli.verify.compare import Reals
    from dplcli.verify.settings import Array, Feed

_COARSER: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
}
"""Types that become float64, and their units in the last place of 1."""

_LEAST, _MOST = 0.5, 2.0
"""How many units in the last place numbers are moved."""

_STATED_TYPE = ("to", "dtype", "output_datatype")
"""Attributes that state the element type of a result."""


def in_float64(model: ModelProto, moved: np.random.Generator | None = None) -> ModelProto:
    """Return a copy that computes in float64.

    Args:
        model: The model; its weights lie in it.
        moved: If given, each float constant is moved by half a unit to two units in the last place
            of its own type, up or down: about as far as computing it in advance does.

    Raises:
        ValueError: A constant is damaged.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for root in (wide.graph, *wide.functions):
        for scope in all_scopes(root):
            del scope.value_info[:]
            for node in scope.node:
                _widen(node)
            if isinstance(scope, onnx.GraphProto):
                _widen_interface(scope)
    for tensor in all_tensors(wide):
        if tensor.data_type in _COARSER:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            if moved is not None:
                values = _moved(values, _COARSER[tensor.data_type], moved)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return wide


def widened(content: bytes) -> bytes:
    """Return the file of a model, its weights in it, that computes in float64.

    Raises:
        ValueError: A constant is damaged.
    """
    made: bytes = in_float64(onnx.ModelProto.FromString(content)).SerializeToString()
    return made


def wide_feed(value: Feed, moved: np.random.Generator | None = None) -> Feed:
    """Return in float64 what is fed in coarser floats; moved in the last place if asked.

    Args:
        value: What is fed: nothing, an array, or a list of arrays.
        moved: As for :func:`in_float64`.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return [_wide(array, moved) for array in value]
    return _wide(value, moved)


def _wide(values: Array, moved: np.random.Generator | None) -> Array:
    if values.dtype.kind in "OUS":
        return values
    unit = _COARSER.get(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    if unit is None:
        return values
    wide = values.astype(np.float64)
    return wide if moved is None else _moved(wide, unit, moved)


def _moved(values: Reals, unit: float, rng: np.random.Generator) -> Reals:
    """Return values moved by half a unit to two units in the last place, up or down.

    Not by one unit each: two constants that cancel out would often move together.
    """
    sizes = rng.uniform(_LEAST, _MOST, values.shape) * rng.choice([-1.0, 1.0], values.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        moved: Reals = values * (1 + unit * sizes)
    return moved


def _widen(node: NodeProto) -> None:
    """Let a node state float64 instead of coarser types, and constants as tensors."""
    if canonical_domain(node.domain):
        return
    given = {item.name: item for item in node.attribute}
    for name in _STATED_TYPE:
        if name in given and given[name].i in _COARSER:
            given[name].i = TensorProto.DOUBLE
    if node.op_type == "ConstantOfShape" and "value" not in given:
        zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32))
        node.attribute.append(onnx.helper.make_attribute("value", zero))
    if node.op_type == "Constant":
        for name in ("value_float", "value_floats"):
            if name in given:
                values = np.array(onnx.helper.get_attribute_value(given[name]), np.float32)
                tensor = onnx.numpy_helper.from_array(values)
                given[name].CopyFrom(onnx.helper.make_attribute("value", tensor))


def _widen_interface(graph: GraphProto) -> None:
    """Correct the types that a graph states of what enters and leaves."""
    for info in (*graph.input, *graph.output):
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type in _COARSER:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
