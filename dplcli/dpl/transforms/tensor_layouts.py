"""Heads as an axis of their own, and heads side by side in the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.shapes import shape_of
from dplcli.dpl.shapes.terms import multiply
from dplcli.ir import Value
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.shapes.terms import Number

_HEADS_RANK = 4
_FIRST_WITH_BOUNDS = 15
"""The first opset whose Shape can be asked for one dimension."""


def merged_heads(build: GraphBuilder, value: Operand, width: Number | None = None) -> Operand:
    """Return ``(batch, length, heads, size)`` as ``(batch, length, heads * size)``.

    That is what it was reshaped from, or a Reshape of it.

    Args:
        build: Who makes nodes.
        value: The value.
        width: ``heads * size``, where it is known.
    """
    node = value.producer if isinstance(value, Value) else None
    shape = shape_of(value) if isinstance(value, Value) else None
    if shape is not None and len(shape) == _HEADS_RANK:
        width = multiply(shape[2], shape[3])
    if shape is not None and node is not None and node.op_type == "Reshape" and not node.domain:
        source = node.inputs[0]
        if source is not None and shape_of(source) == (*shape[:2], width):
            return behind_identities(source)
    last = width if isinstance(width, int) else -1
    return build.op("Reshape", value, build.constant(np.array([0, 0, last])))


def split_heads(build: GraphBuilder, value: Operand, heads: Number) -> Operand:
    """Return ``(batch, length, heads * size)`` as ``(batch, length, heads, size)``."""
    return build.op("Reshape", value, build.constant(np.array([0, 0, heads, -1])))


def length_of(build: GraphBuilder, value: Operand, axis: int) -> Operand:
    """Return one dimension of a value as a vector with one element."""
    if build.opset >= _FIRST_WITH_BOUNDS:
        end = axis + 1 if axis != -1 else None
        return build.op("Shape", value, start=axis, end=end)
    return build.op("Gather", build.op("Shape", value), build.constant(np.array([axis])))
