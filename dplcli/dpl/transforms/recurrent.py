"""Recurrent operators: what their pages say of omitted inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.transforms.remake import remade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Value

_INITIAL_STATES = (5, 6)
_REARRANGING = frozenset(
    {"Slice", "Split", "Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Tile", "Gather"}
    | {"Identity", "Cast"}
)
"""Operators that make nothing but zeros of zeros."""

_MOST_STEPS = 16
_MOST_ELEMENTS = 1 << 16


@nodewise("LSTM", "GRU", "RNN", reach=_MOST_STEPS)
def drop_zero_state(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Leave out initial states that are zero, as they are when left out.

    Before: ``y, h, c = LSTM(x, w, r, b, lens, ConstantOfShape(s), zeros)``
    After:  ``y, h, c = LSTM(x, w, r, b, lens)``
    """
    inputs: list[Value | None] = list(match.root.inputs)
    zero = [slot for slot in _INITIAL_STATES if slot < len(inputs) and _is_zero(inputs[slot])]
    for slot in zero:
        inputs[slot] = None
    if not zero:
        return None
    made = remade(build, match.root, inputs)
    return [made[output.index] for output in match.outputs]


def _is_zero(value: Value | None) -> bool:
    """Tell whether every element is provably zero."""
    for _ in range(_MOST_STEPS):
        if value is None:
            return False
        tensor = value.constant
        if tensor is not None:
            return tensor.size <= _MOST_ELEMENTS and not np.any(tensor.numpy())
        node = value.producer
        if node is None or node.domain:
            return False
        if node.op_type == "ConstantOfShape":
            stated = node.attributes.get("value")
            return stated is None or not np.any(getattr(stated.value, "numpy", _one)())
        if node.op_type not in _REARRANGING:
            return False
        value = node.inputs[0]
    return False


def _one() -> int:
    """Stand for data that nobody can see."""
    return 1
