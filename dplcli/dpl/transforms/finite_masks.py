"""Keep masks of very low numbers apart from masks of -inf.

The standard adds a float mask, whatever is in it. onnxruntime (1.24 to 1.31 at least) takes the
lowest number of the element type for -inf, and gives 0 to a query none of whose keys takes part,
where it should be the mean of all values. The next higher number is added, and a score added to it
vanishes just the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.nodewise import far_sighted, nodewise
from dplcli.ir.traversal import behind_identities, is_identity

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

_MASK = 3
_CARRIERS = frozenset({"Add", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})
"""What masks pass through on their way to scores."""

_MOST_USERS = 10_000


@far_sighted
@nodewise("Where", "Mul", "Sub")
def finite_mask(match: Match, build: GraphBuilder) -> Operand | None:
    """Make masks of a number just above the lowest one, where nothing but attention reads them.

    Before: ``Where(keep, 0, -3.4028235e38)``
    After:  ``Where(keep, 0, -3.4028233e38)``
    Holds when: it is read as a mask of Attention, and elsewhere at most added to scores.
    """
    node = match.root
    lowered = {slot: _raised(value) for slot, value in enumerate(node.inputs) if value is not None}
    if not any(array is not None for array in lowered.values()) or not match.outputs:
        return None
    if not _is_only_a_mask(match.outputs[0]):
        return None
    inputs: list[Operand | None] = list(node.inputs)
    for slot, array in lowered.items():
        if array is not None:
            inputs[slot] = build.constant(array)
    return build.op(node.op_type, *inputs)


@nodewise("Attention")
def finite_mask_constant(match: Match, build: GraphBuilder) -> Operand | None:
    """Do the same to a mask that is a constant."""
    node = match.root
    mask = node.inputs[_MASK] if len(node.inputs) > _MASK else None
    array = None if mask is None else _raised(mask)
    if array is None or [output.index for output in match.outputs] != [0]:
        return None
    inputs = (*node.inputs[:_MASK], build.constant(array), *node.inputs[_MASK + 1 :])
    return build.op("Attention", *inputs, **node.attributes)  # type: ignore[arg-type]  # attributes


def _raised(value: Value) -> NDArray[Any] | None:
    """Return the data of a constant, its lowest numbers raised; None if it has none such."""
    tensor = behind_identities(value).constant
    if (
        tensor is None
        or tensor.is_external
        or tensor.dtype not in {"float16", "float32", "float64"}
    ):
        return None
    data = tensor.numpy()
    lowest = np.finfo(data.dtype).min
    if not (data == lowest).any():
        return None
    return np.where(data == lowest, np.nextafter(lowest, data.dtype.type(0)), data)


def _is_only_a_mask(value: Value) -> bool:
    """Tell whether all that reads *value* takes it for a mask, an Attention among it."""
    pending, seen = [value], {value}
    is_mask = False
    while pending:
        current = pending.pop()
        if current.returned_by or len(seen) > _MOST_USERS:
            return False
        for user, slot in current.iter_uses():
            if user.domain or user.graph is not value.graph:
                return False
            if user.op_type == "Attention" and slot == _MASK:
                is_mask = True
            elif user.op_type in _CARRIERS and _carries(user, slot):
                new = [out for out in user.outputs if out is not None and out not in seen]
                seen.update(new)
                pending += new
            elif user.op_type != "Softmax":
                return False
    return is_mask


def _carries(node: Node, slot: int) -> bool:
    """Tell whether a node passes on what it reads in *slot*, rather than being shaped by it."""
    return slot == 0 or node.op_type == "Add" or is_identity(node)
