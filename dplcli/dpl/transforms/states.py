"""Initial states of recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.transforms.remake import remade
from dplcli.ir import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

_FIRST_STATE = 5
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_DEEPEST = 8
_MOST_ELEMENTS = 1 << 16

_COPYING = frozenset(
    {"Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Slice", "Split", "Identity", "Tile"}
    | {"Flatten", "Gather"}
)
"""Operators whose results are made of elements of their first input."""


@nodewise("LSTM", "GRU", "RNN", reach=_DEEPEST)
def drop_zero_states(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Leave out an initial state that is all zeros: that is what is taken in its place.

    Before: ``y = GRU(x, w, r, b, None, ConstantOfShape(shape))``
    After:  ``y = GRU(x, w, r, b)``
    Holds when: all elements are zero whatever the shape is; of the two states of an LSTM each
    counts for itself.
    """
    node = match.root
    inputs = list(node.inputs)
    for slot in range(_FIRST_STATE, _FIRST_STATE + _STATES[node.op_type]):
        value = inputs[slot] if slot < len(inputs) else None
        if value is not None and is_zero(value):
            inputs[slot] = None
    if inputs == list(node.inputs):
        return None
    made = remade(build, node, inputs)
    return [made[value.index] for value in match.outputs]


def is_zero(value: Value) -> bool:
    """Tell whether every element of *value* is provably zero."""
    for _ in range(_DEEPEST):
        if value.is_constant:
            tensor = value.constant
            return tensor is not None and _holds_zeros(tensor)
        node = value.producer
        if node is None or node.domain:
            return False
        if node.op_type == "ConstantOfShape":
            return _fills_with_zero(node)
        source = node.inputs[0] if node.op_type in _COPYING else None
        if source is None:
            return False
        value = source
    return False


def _fills_with_zero(node: Node) -> bool:
    fill = node.attributes.get("value")
    if fill is None:
        return True
    return not fill.ref and isinstance(fill.value, Tensor) and _holds_zeros(fill.value)


def _holds_zeros(tensor: Tensor) -> bool:
    if tensor.is_external or tensor.size > _MOST_ELEMENTS:
        return False
    array = tensor.numpy()
    return array.dtype.kind in "fiu" and not array.any()
