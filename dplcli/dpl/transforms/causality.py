"""Masks that hide the keys after the query, as exporters make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from dplcli.dpl.shapes import Term, items_of, shape_of
from dplcli.dpl.shapes.terms import add, negative
from dplcli.dpl.transforms.operands import number_of
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

_MATRIX = 2
_MOST_STEPS = 8
_IDLE = frozenset({"Cast", "CastLike", "Expand"})


def causal_offset(term: Value, scores: Dims) -> Number | None:
    """Return n where *term* adds 0 to key j of query i if j <= i + n, and -inf otherwise.

    None if it does something else, or if it cannot be told.
    """
    if shape_of(term) is None or _rows_and_columns(shape_of(term)) != scores[-2:]:
        return None
    known = term.known_type()
    if known is not None and known.dtype == "bool":
        return _offset_of_choice(term, False, scores)  # noqa: FBT003  # not negated
    constant = _array(term)
    if constant is not None:
        return _offset_of(constant, 0.0, -np.inf)
    chosen = _chosen(term)
    return None if chosen is None else _offset_of_choice(*chosen, scores)


def _rows_and_columns(shape: Dims | None) -> Dims | None:
    """Return the last two dimensions of what has no others but ones."""
    if shape is None or len(shape) < _MATRIX or any(dim != 1 for dim in shape[:-2]):
        return None
    return shape[-2:]


def _array(value: Value) -> NDArray[Any] | None:
    """Return the data of a constant matrix, conversions of its type undone."""
    tensor = _behind_idle(value).constant
    if tensor is None or tensor.is_external:
        return None
    data = tensor.numpy()
    return data.reshape(data.shape[-2:]) if data.ndim >= _MATRIX else None


def _behind_idle(value: Value) -> Value:
    """Look through conversions and what repeats along leading axes."""
    value = behind_identities(value)
    node = value.producer
    while node is not None and node.op_type in _IDLE and not node.domain and node.inputs[0]:
        source = behind_identities(node.inputs[0])
        if shape_of(source) is None or shape_of(source) != shape_of(value):
            break
        value, node = source, source.producer
    return value


def _offset_of(data: NDArray[Any], low: object, high: object) -> int | None:
    """Read a matrix that is *low* up to a diagonal and *high* above it."""
    rows, columns = data.shape
    if not data.size:
        return None
    offset = int(np.count_nonzero(data[0] == low)) - 1
    below = np.tri(rows, columns, offset, dtype=bool)
    is_shown = offset >= 0 and offset < columns - 1
    fits = np.array_equal(data == low, below) and np.array_equal(data == high, ~below)
    return offset if fits and is_shown else None


def _chosen(term: Value) -> tuple[Value, bool] | None:
    """Return the condition of ``Where(keep, 0, -inf)``, and whether it is the other way round."""
    node = _behind_idle(term).producer
    if node is None or node.op_type != "Where" or node.domain or node.inputs[0] is None:
        return None
    numbers = (number_of(node.inputs[1]), number_of(node.inputs[2]))
    if numbers not in {(0.0, -np.inf), (-np.inf, 0.0)}:
        return None
    return behind_identities(node.inputs[0]), numbers[0] != 0


def _offset_of_choice(keep: Value, is_negated: bool, scores: Dims) -> Number | None:  # noqa: FBT001  # unpacked
    if _rows_and_columns(shape_of(keep)) != scores[-2:]:
        return None
    data = _array(keep)
    if data is not None and data.dtype == np.bool_:
        return _offset_of(data, not is_negated, is_negated)
    node = _behind_idle(keep).producer
    if node is None or node.domain:
        return None
    if node.op_type == "Not" and node.inputs[0] is not None:
        return _offset_of_choice(behind_identities(node.inputs[0]), not is_negated, scores)
    if node.op_type == "Trilu":
        return None if is_negated else _offset_of_triangle(node)
    return _offset_of_comparison(node, is_negated=is_negated)


def _offset_of_triangle(node: Node) -> Number | None:
    """Read ``Trilu(ones, k, upper=0)``."""
    upper = attribute_of(node, "upper")
    if upper is None or upper.ref or upper.value != 0 or node.inputs[0] is None:
        return None
    if not _is_all_true(node.inputs[0]):
        return None
    if len(node.inputs) == 1 or node.inputs[1] is None:
        return 0
    shift = items_of(node.inputs[1])
    return None if shift is None or shift.size != 1 else shift.reshape(-1)[0]


def _is_all_true(value: Value) -> bool:
    node = behind_identities(value).producer
    while node is not None and not node.domain and node.op_type in {"Cast", "Expand"}:
        if node.inputs[0] is None:
            return False
        value = behind_identities(node.inputs[0])
        node = value.producer
    tensor = value.constant
    if tensor is not None:
        return not tensor.is_external and bool(np.all(tensor.numpy() == 1))
    if node is None or node.op_type != "ConstantOfShape" or node.domain:
        return False
    filler = attribute_of(node, "value")
    data = None if filler is None or filler.ref else filler.value
    return hasattr(data, "numpy") and bool(np.all(data.numpy() == 1))


def _offset_of_comparison(node: Node, *, is_negated: bool) -> Number | None:
    """Read a comparison of the numbers of queries, down, with those of keys, across."""
    if len(node.inputs) != _MATRIX or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first, second = _count(node.inputs[0]), _count(node.inputs[1])
    if first is None or second is None or {first[0], second[0]} != {"rows", "columns"}:
        return None
    # keys that take part are those with: key <sign> query + offset
    sign = {"Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}.get(
        node.op_type
    )
    if sign is None:
        return None
    if first[0] == "rows":
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]
        first, second = second, first
    if is_negated:
        sign = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[sign]
    offset = add(second[1], negative(first[1]))
    return {"<=": offset, "<": add(offset, -1)}.get(sign)


def _count(value: Value) -> tuple[str, Number] | None:
    """Tell which axis a value counts along, and from which number.

    It is a Range with step 1, to which numbers may be added, and extents of 1.
    """
    axis = _only_axis(shape_of(value))
    shift: Number = 0
    for _ in range(_MOST_STEPS):
        value = behind_identities(value)
        start = _start_of_count(value)
        if start is not None:
            return None if axis is None else (axis, add(start, shift))
        step = _step_up(value)
        if step is None:
            return None
        value, added = step
        shift = add(shift, added)
    return None


def _step_up(value: Value) -> tuple[Value, Number] | None:
    """Return what a value was made from, and the number that was added to it."""
    node = value.producer
    if node is None or node.domain or node.inputs[0] is None:
        return None
    if node.op_type in {"Unsqueeze", "Reshape", "Cast"}:
        return node.inputs[0], 0
    if node.op_type != "Add" or node.inputs[1] is None:
        return None
    for moving, fixed in (node.inputs, node.inputs[::-1]):
        number = None if fixed is None else _whole(fixed)
        if number is not None and moving is not None and _whole(moving) is None:
            return moving, number
    return None


def _only_axis(shape: Dims | None) -> str | None:
    """Return the axis that is not of extent 1."""
    if not shape or any(dim != 1 for dim in shape[:-2]):
        return None
    if shape[-1] == 1 and len(shape) >= _MATRIX:
        return "rows"
    return "columns" if len(shape) == 1 or shape[-2] == 1 else None


def _start_of_count(value: Value) -> Number | None:
    """Return the first number of a vector that counts."""
    if len(shape_of(value) or ()) != 1:
        return None
    items = items_of(value)
    if items is not None:
        return _start_of_items(items)
    node = value.producer
    if node is None or node.op_type != "Range" or node.domain:
        return None
    start, _, step = node.inputs
    if start is None or step is None or _whole(step) != 1:
        return None
    return _whole(start)


def _start_of_items(items: NDArray[Any]) -> Number | None:
    """Return the first of some numbers if each is one more than the one before it."""
    known = all(isinstance(item, (int, Term)) for item in items)
    if not known or not len(items):
        return None
    is_count = all(item == add(items[0], rank) for rank, item in enumerate(items))
    return cast("Number", items[0]) if is_count else None


def _whole(value: Value) -> Number | None:
    """Return the only element of a tensor of whole numbers, if it is known."""
    items = items_of(value)
    item = None if items is None or items.size != 1 else items.reshape(-1)[0]
    return item if isinstance(item, (int, Term)) and not isinstance(item, bool) else None
