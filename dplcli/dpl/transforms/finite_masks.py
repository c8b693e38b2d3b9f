"""Keep masks of very low numbers apart from masks of -inf.

The standard's Attention adds a float mask, whatever is in it. onnxruntime (1.31, for one) takes the
lowest number of the element type for -inf there, and gives 0 to a query none of whose keys takes
part, where the sum says the mean of all values. So the next higher number is added: a score added
to it vanishes just the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.nodewise import far_sighted, nodewise
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

_CARRIERS = frozenset({"Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})
"""What passes on the numbers of its first input."""

_MAKERS = frozenset({"Where", "Mul", "Sub"})
"""What masks are made by."""

_MOST_VALUES = 1000
_FLOATS = frozenset({"float16", "float32", "float64"})


@far_sighted
@nodewise(*sorted(_MAKERS))
def finite_mask(match: Match, build: GraphBuilder) -> Operand | None:
    """Make masks of a number just above the lowest one, where they are added to scores only.

    Before: ``Where(keep, 0, -3.4028235e38)``
    After:  ``Where(keep, 0, -3.4028233e38)``
    Holds when: all that reads it is, in the end, a Softmax.
    """
    node = match.root
    raised = [None if value is None else _raised(value) for value in node.inputs]
    if not match.outputs or all(array is None for array in raised):
        return None
    if not _ends_in_softmax(match.outputs[0]):
        return None
    inputs = [
        value if array is None else build.constant(array)
        for value, array in zip(node.inputs, raised, strict=True)
    ]
    return build.op(node.op_type, *inputs)


def without_lowest(build: GraphBuilder, mask: Value, dtype: str) -> Operand:
    """Return a mask whose lowest numbers, if it is known to have some, are raised."""
    raised = _raised(mask)
    if raised is not None:
        return build.constant(raised)
    if dtype not in _FLOATS or not holds_lowest(mask):
        return mask
    lowest = np.finfo(dtype).min
    found = build.op("Equal", mask, build.constant(np.array(lowest)))
    return build.op("Where", found, build.constant(np.array(above_lowest(dtype))), mask)


def above_lowest(dtype: str) -> np.floating[Any]:
    """Return the second lowest number of an element type."""
    lowest: np.floating[Any] = np.finfo(dtype).min
    above: np.floating[Any] = np.nextafter(lowest, lowest.dtype.type(0))
    return above


def is_lowest(data: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which numbers are the lowest ones of their type."""
    is_float = data.dtype.name in _FLOATS
    return np.equal(data, np.finfo(data.dtype).min) if is_float else np.zeros(data.shape, bool)


def holds_lowest(mask: Value) -> bool:
    """Tell whether a mask is seen to be made with the lowest number of its type."""
    pending, seen = [behind_identities(mask)], {mask}
    while pending and len(seen) < _MOST_VALUES:
        value = pending.pop()
        if _raised(value) is not None:
            return True
        node = value.producer
        if node is None or node.domain:
            continue
        new: list[Value | None] = []
        if node.op_type in _CARRIERS:
            new = [node.inputs[0]]
        elif node.op_type in {*_MAKERS, "Add"}:
            new = list(node.inputs[1:] if node.op_type == "Where" else node.inputs)
        pending += [item for item in new if item is not None and item not in seen]
        seen.update(pending)
    return False


def _raised(value: Value) -> NDArray[Any] | None:
    """Return the data of a constant, its lowest numbers raised; None if it has none such."""
    tensor = behind_identities(value).constant
    if tensor is None or tensor.is_external or tensor.dtype not in _FLOATS:
        return None
    data = tensor.numpy()
    found = is_lowest(data)
    return np.where(found, above_lowest(tensor.dtype), data) if np.any(found) else None


def _ends_in_softmax(value: Value) -> bool:
    """Tell whether all that reads *value* hands it on to a Softmax as it is, or added to scores."""
    pending, seen = [value], {value}
    is_read = False
    while pending:
        current = pending.pop()
        if current.returned_by or len(seen) > _MOST_VALUES:
            return False
        for user, slot in current.iter_uses():
            if user.graph is not value.graph or not _hands_on(user, slot):
                return False
            is_read = is_read or user.op_type == "Softmax"
            if user.op_type != "Softmax":
                new = [out for out in user.outputs if out is not None and out not in seen]
                seen.update(new)
                pending += new
    return is_read


def _hands_on(node: Node, slot: int) -> bool:
    if node.domain:
        return False
    return node.op_type in {"Add", "Softmax"} or (node.op_type in _CARRIERS and slot == 0)
