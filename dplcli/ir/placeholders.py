"""Weights that were left out of a file: ``ConstantOfShape`` in the place of a trained tensor.

So are the ``light_*`` nets of the onnx package made. Two of them with equal shapes stand for two
different weights, and one that is folded puts into the file what was left out of it.

A placeholder is a float tensor of a constant shape, with two elements or more, whose every use is
one as a weight:

- an operand that only holds weights (the kernel of a Conv, the scale of a BatchNormalization …),
  directly or through a reshape;
- an operand of Add, Sub, Mul or Div, if the fill value is neither 0 nor 1.

So a causal mask, an initial state or a neutral element is none, nor is what has a dynamic shape.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from dplcli.ir.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.ir.node import Node
    from dplcli.ir.value import Value

WEIGHT_DTYPES = ("float16", "float32", "float64")
"""Element types of the placeholders known."""

MOVES = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Transpose", "Identity", "Flatten", "Cast"})
"""Operators whose result holds the elements of their first input, and nothing else."""

OPERANDS = frozenset({"Add", "Sub", "Mul", "Div"})
"""Operators whose operands may be weights."""

_WEIGHT_SLOTS: dict[str, frozenset[int]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "InstanceNormalization"), frozenset({1, 2})),
    **dict.fromkeys(("LayerNormalization", "GroupNormalization"), frozenset({1, 2})),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), frozenset({1, 2, 3})),
    **dict.fromkeys(("PRelu", "RMSNormalization"), frozenset({1})),
    "Gemm": frozenset({0, 1, 2}),
    "MatMul": frozenset({0, 1}),
    "BatchNormalization": frozenset({1, 2, 3, 4}),
}
_NEUTRAL = frozenset({0.0, 1.0})
_LARGEST_FILL = 1e3
_FEWEST = 2


def can_stand_for_weight(count: int, fill: float) -> bool:
    """Tell whether *count* elements that are all *fill* may be a weight that was left out."""
    return count >= _FEWEST and abs(fill) <= _LARGEST_FILL


def is_weight_use(op_type: str, slot: int, fill: float) -> bool:
    """Tell whether a tensor full of *fill* is read as a weight by an operator of ONNX."""
    if op_type in OPERANDS:
        return fill not in _NEUTRAL
    return slot in _WEIGHT_SLOTS.get(op_type, ())


def is_placeholder(node: Node) -> bool:
    """Tell whether *node* stands for a weight.

    A use by a call, or by an operator of another domain, counts as one as a weight.
    """
    if node.op_type != "ConstantOfShape" or node.domain or node.outputs[0] is None:
        return False
    count = _element_count(node.inputs[0] if node.inputs else None)
    if count is None:
        return False
    fill = _fill(node)
    if fill is None or not can_stand_for_weight(count, fill):
        return False
    uses = list(_uses(node.outputs[0]))
    return bool(uses) and all(
        user is not None and (bool(user.domain) or is_weight_use(user.op_type, slot, fill))
        for user, slot in uses
    )


def _element_count(shape: Value | None) -> int | None:
    """Return how many elements a tensor of the constant *shape* has; None if that is not known."""
    tensor = None if shape is None else shape.constant
    if tensor is None or tensor.is_external or tensor.dtype != "int64":
        return None
    return prod(int(dim) for dim in tensor.numpy().reshape(-1))


def _fill(node: Node) -> float | None:
    """Return the number that a ConstantOfShape repeats; None if it is no weight's."""
    attribute = node.attributes.get("value")
    if attribute is None:
        return 0.0
    tensor = attribute.value
    if not isinstance(tensor, Tensor) or tensor.dtype not in WEIGHT_DTYPES or tensor.size != 1:
        return None
    return float(tensor.numpy().reshape(-1)[0])


def _uses(value: Value) -> Iterator[tuple[Node | None, int]]:
    """Yield who computes with *value*, beyond reshapes, and in which slot; None if it is returned.

    Each node that moves it has one input, so that none is met twice.
    """
    pending = [value]
    while pending:
        current = pending.pop()
        if current.returned_by:
            yield None, 0
        for user, slot in current.iter_uses():
            made = user.outputs[0] if user.outputs else None
            if user.domain or user.op_type not in MOVES or slot or made is None:
                yield user, slot
            else:
                pending.append(made)
