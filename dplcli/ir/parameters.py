"""One accessor for what some opsets keep in an attribute and others in an input.

``axes`` of Squeeze is an attribute up to opset 12 and an input from 13 on; so are the bounds of
Clip, the axes of the reductions, and more (https://onnx.ai/onnx/operators/, the versions of each).
Every node is seen as the newest opset would write it: :func:`inputs_of` lists the inputs, those
that the node's opset keeps in attributes as constants made for the purpose; :func:`parameter_of`
reads an attribute, or the constant input that stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dplcli.ir.operators import attribute_of, schema_of
from dplcli.ir.tensor import ArrayTensor
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import Attribute
from dplcli.ir.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir.node import Node


class Parameter(NamedTuple):
    """One thing that moved.

    Attributes:
        slot: The input it is in the newest opset.
        name: The input's name there.
        attribute: The attribute's name in the opsets that have one.
        kind: The attribute's kind.
        dtype: Element type of the input.
    """

    slot: int
    name: str
    attribute: str
    kind: str
    dtype: str


_AXES = (Parameter(1, "axes", "axes", "ints", "int64"),)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

MOVED: dict[str, tuple[Parameter, ...]] = {
    **{f"Reduce{name}": _AXES for name in _REDUCTIONS},
    "Squeeze": _AXES,
    "Unsqueeze": _AXES,
    "Clip": (
        Parameter(1, "min", "min", "float", "float32"),
        Parameter(2, "max", "max", "float", "float32"),
    ),
    "DFT": (Parameter(2, "axis", "axis", "int", "int64"),),
    "Dropout": (Parameter(1, "ratio", "ratio", "float", "float32"),),
    "Pad": (
        Parameter(1, "pads", "pads", "ints", "int64"),
        Parameter(2, "constant_value", "value", "float", "float32"),
    ),
    "Reshape": (Parameter(1, "shape", "shape", "ints", "int64"),),
    "Slice": (
        Parameter(1, "starts", "starts", "ints", "int64"),
        Parameter(2, "ends", "ends", "ints", "int64"),
        Parameter(3, "axes", "axes", "ints", "int64"),
    ),
    "Split": (Parameter(1, "split", "split", "ints", "int64"),),
    "TopK": (Parameter(1, "K", "k", "int", "int64"),),
    "Upsample": (Parameter(1, "scales", "scales", "floats", "float32"),),
}
"""By operator of the standard domain, in order of slots."""

_VECTORS = frozenset({"TopK"})
"""Operators whose number becomes an input with one element rather than a scalar."""


def inputs_of(node: Node) -> Sequence[Value | None]:
    """List the inputs as the newest opset would have them; omitted ones at the end are cut off."""
    inputs = list(node.inputs)
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            if parameter.slot >= len(node.inputs):
                _fill(inputs, parameter.slot, _implied_input(node, parameter))
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _fill(inputs: list[Value | None], slot: int, value: Value | None) -> None:
    if value is not None:
        inputs += [None] * (slot + 1 - len(inputs))
        inputs[slot] = value


def _implied_input(node: Node, parameter: Parameter) -> Value | None:
    stated = node.attributes.get(parameter.attribute)
    if stated is None or stated.ref:
        return None
    model = node.graph.model
    known = model.implied.get((node, parameter.slot))
    if known is None:
        data: Any = stated.value
        if node.op_type in _VECTORS:
            data = [data]
        known = Value(f"{node.label}.{parameter.name}", node.graph)
        known.set_initializer(ArrayTensor(np.asarray(data, dtype=_dtype_of(node, parameter))))
        model.implied[node, parameter.slot] = known
    return known


def _dtype_of(node: Node, parameter: Parameter) -> str:
    """Return the element type; a bound has that of the data it bounds."""
    if parameter.kind != "float" or node.inputs[0] is None:
        return parameter.dtype
    known = node.inputs[0].known_type()
    is_numeric = known is not None and known.dtype in {"float16", "float64"}
    return str(known.dtype) if known is not None and is_numeric else parameter.dtype


def slot_of(node: Node, name: str) -> int | None:
    """Return the input slot that *name* means at *node*; None if it means an attribute or nothing.

    Both the input's name and the attribute's name of other opsets are understood.
    """
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            if name in (parameter.name, parameter.attribute):
                return parameter.slot
    schema = schema_of(node)
    if schema is None or name in schema.attributes or name not in schema.inputs:
        return None
    return schema.inputs.index(name)


def parameter_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name*, completed with its default, or the constant input of that name.

    None if it is neither, or if the input is not constant.
    """
    attribute = attribute_of(node, name)
    if attribute is not None:
        return attribute
    slot = slot_of(node, name)
    if slot is None:
        return None
    inputs = inputs_of(node)
    value = inputs[slot] if slot < len(inputs) else None
    tensor = None if value is None else behind_identities(value).constant
    if tensor is None or len(tensor.shape) > 1:
        return None
    data = tensor.numpy()
    if data.dtype.kind not in "iufb":
        return None
    kind = "float" if data.dtype.kind == "f" else "int"
    moved = {item.slot: item.kind for item in MOVED.get(node.op_type, ())}
    if data.ndim == 0 or (moved.get(slot) == kind and data.size == 1):
        item = data.reshape(()).item()
        return Attribute(kind, item if kind == "float" else int(item))
    return Attribute(f"{kind}s", tuple(data.tolist()))
