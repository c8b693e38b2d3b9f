"""What the standard says of operators in words rather than in machine-readable schemas.

Sources: the operator pages https://onnx.ai/onnx/operators/ (Conv, ConvTranspose, the pools,
Transpose and the arithmetic operators).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.types import Attribute

if TYPE_CHECKING:
    from dplcli.ir.codec import OpSchema
    from dplcli.ir.node import Node

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
    | {"Sum", "Max", "Min", "Mean"}
)
"""Operators of the standard domain whose inputs may stand in any order."""

SIZED_BY = {
    **dict.fromkeys(("Expand", "OneHot", "Reshape", "Split", "Squeeze", "Tile", "TopK"), (1,)),
    **dict.fromkeys(("CenterCropPad", "Compress", "Unsqueeze"), (1,)),
    **dict.fromkeys(("ConstantOfShape", "NonMaxSuppression", "NonZero", "Unique"), (0,)),
    "Col2Im": (1, 2),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Upsample": (1,),
}
"""By operator, the inputs whose elements, not whose shapes alone, say how large the results are."""

_WINDOWED = frozenset(
    {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "Col2Im"}
    | {"AveragePool", "LpPool", "MaxPool", "MaxUnpool"}
)
_WEIGHT_SLOT = {"QLinearConv": 3}
_LATER = {
    ("AveragePool", "ceil_mode"): 0,
    ("LpPool", "ceil_mode"): 0,
    ("MaxPool", "ceil_mode"): 0,
    ("Reshape", "allowzero"): 0,
}
"""Attributes that later opsets have, and what they would be in those that have none."""

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "MaxUnpool"})


def schema_of(node: Node) -> OpSchema | None:
    """Return the schema in force for *node*; None for an operator the standard does not know."""
    version = node.graph.opset_imports.get(node.domain, 0)
    return node.graph.model.codec.schemas.find(node.op_type, node.domain, version)


def attribute_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name* of *node*, completed with its default for the node's opset.

    Returns:
        What the file states; else the schema's default; else the default that the operator's page
        gives in words, where the known shapes determine it; else None.
    """
    stated = node.attributes.get(name)
    if stated is not None:
        return stated
    schema = schema_of(node)
    if schema is None:
        return None
    default = schema.defaults.get(name)
    if default is not None:
        return default
    if node.domain:
        return None
    if name not in schema.attributes:
        return _implied_attribute(node, name)
    return _textual_default(node, name)


def _implied_attribute(node: Node, name: str) -> Attribute | None:
    """Say in an attribute of a later opset what an earlier one says in another way."""
    if node.op_type == "BatchNormalization" and name == "training_mode":
        used = sum(output is not None for output in node.outputs)
        return Attribute("int", int(used > 1))
    number = _LATER.get((node.op_type, name))
    if number is not None:
        return Attribute("int", number)
    rank = _spatial_rank(node) if name == "dilations" and node.op_type in _POOLS else None
    return None if rank is None else Attribute("ints", (1,) * rank)


def _textual_default(node: Node, name: str) -> Attribute | None:  # noqa: PLR0911  # a guard each
    if node.op_type == "Transpose" and name == "perm":
        rank = _rank(node, 0)
        return None if rank is None else Attribute("ints", tuple(reversed(range(rank))))
    if node.op_type not in _WINDOWED:
        return None
    if name == "kernel_shape":
        return _kernel_shape(node)
    spatial = _spatial_rank(node)
    if spatial is None:
        return None
    if name in {"strides", "dilations"}:
        return Attribute("ints", (1,) * spatial)
    if name == "pads" and _pads_are_explicit(node):
        return Attribute("ints", (0,) * (2 * spatial))
    return None


def _pads_are_explicit(node: Node) -> bool:
    mode = node.attributes.get("auto_pad")
    return mode is None or mode.value == "NOTSET"


def _kernel_shape(node: Node) -> Attribute | None:
    if node.op_type in _POOLS:
        return None
    slot = _WEIGHT_SLOT.get(node.op_type, 1)
    weight = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if weight is None else weight.known_type()
    if known is None or known.shape is None:
        return None
    kernel = known.shape[2:]
    if not all(isinstance(dim, int) for dim in kernel):
        return None
    return Attribute("ints", kernel)


def _spatial_rank(node: Node) -> int | None:
    """Count spatial dimensions, from the cheapest fact at hand."""
    if node.op_type == "Col2Im":
        return _length(node, 1)
    for name, per_dim in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        stated = node.attributes.get(name)
        if stated is not None and isinstance(stated.value, tuple):
            return len(stated.value) // per_dim
    for slot in (_WEIGHT_SLOT.get(node.op_type, 1), 0):
        if node.op_type in _POOLS and slot:
            continue
        rank = _rank(node, slot)
        if rank is not None:
            return rank - 2
    return None


def _length(node: Node, slot: int) -> int | None:
    """Return the extent of a vector input."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if value is None else value.known_type()
    if known is None or known.shape is None or len(known.shape) != 1:
        return None
    return known.shape[0] if isinstance(known.shape[0], int) else None


def _rank(node: Node, slot: int) -> int | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if value is None else value.known_type()
    return None if known is None or known.shape is None else len(known.shape)
