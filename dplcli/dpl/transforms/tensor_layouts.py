"""Heads as an axis of their own, and heads side by side in the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir.symbolic import shape_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.ir import Value

_HEADS_RANK = 4


def merged_heads(build: GraphBuilder, value: Value) -> Operand:
    """Return ``(batch, length, heads, size)`` as ``(batch, length, heads * size)``.

    That is what it was reshaped from, or a Reshape of it.
    """
    shape = shape_of(value)
    node = value.producer
    if shape is not None and node is not None and node.op_type == "Reshape" and not node.domain:
        source = node.inputs[0]
        merged = (*shape[:2], shape[2] * shape[3])
        if source is not None and len(shape) == _HEADS_RANK and shape_of(source) == merged:
            return behind_identities(source)
    return build.op("Reshape", value, build.constant(np.array([0, 0, -1])))
