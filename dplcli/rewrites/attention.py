"""Rewrites to and of attention: the standard operator, onnxruntime's, masks and layouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from dplcli.ir import Tensor, Value
from dplcli.ir.operators import RESHAPING, attribute_of, inputs_of
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import DTYPE_CODES
from dplcli.language.replacement import DraftOutput, dtype_of, far_sighted, nodewise
from dplcli.rewrites.operands import (
    Followed,
    MisfitError,
    array_of,
    fill_of,
    follow,
    input_of,
    item_of,
    length_of,
    merged_heads,
    node_called,
    node_of,
    number_of,
    refuse,
    remade,
    source_of,
    split_heads,
    ungrouped,
    value_called,
)
from dplcli.shapes import Term, described, items_of, shape_of
from dplcli.shapes.terms import add, divide, negative

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Node
    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match, Rejection
    from dplcli.shapes.rules import Dims
    from dplcli.shapes.terms import Number


# Masks that hide the keys after the query, as exporters make them.


_MATRIX = 2
_MOST_STEPS = 8
_IDLE = frozenset({"Cast", "CastLike", "Expand"})
_SIGNS = {"Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}


def causal_offset(term: Value, scores: Dims) -> Number | None:
    """Return n where *term* adds 0 to key j of query i if j <= i + n, and -inf otherwise.

    None if it does something else, or if it cannot be told.
    """
    if shape_of(term) is None or _rows_and_columns(shape_of(term)) != scores[-2:]:
        return None
    if dtype_of(term) == "bool":
        return _offset_of_choice(KeyChoice(term), scores)
    constant = _matrix(term)
    if constant is not None:
        return _offset_of(constant, 0.0, -np.inf)
    choice = _chosen(_behind_idle(term))
    return None if choice is None else _offset_of_choice(choice, scores)


def _rows_and_columns(shape: Dims | None) -> Dims | None:
    """Return the last two dimensions of what has no others but ones."""
    if shape is None or len(shape) < _MATRIX or any(dim != 1 for dim in shape[:-2]):
        return None
    return shape[-2:]


def _matrix(value: Value) -> NDArray[Any] | None:
    """Return the data of a constant matrix, conversions of its type undone."""
    data = array_of(_behind_idle(value))
    return data.reshape(data.shape[-2:]) if data is not None and data.ndim >= _MATRIX else None


def _behind_idle(value: Value) -> Value:
    """Look through conversions and what repeats along leading axes."""
    value = behind_identities(value)
    shape = shape_of(value)
    while shape is not None and (source := source_of(value, *_IDLE)) is not None:
        if shape_of(source) != shape:
            break
        value = source
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


def _offset_of_choice(choice: KeyChoice, scores: Dims) -> Number | None:
    keep, is_negated, _ = choice
    if _rows_and_columns(shape_of(keep)) != scores[-2:]:
        return None
    data = _matrix(keep)
    if data is not None and data.dtype == np.bool_:
        return _offset_of(data, not is_negated, is_negated)
    maker = _behind_idle(keep)
    if (negated := source_of(maker, "Not")) is not None:
        return _offset_of_choice(KeyChoice(negated, not is_negated), scores)
    if (node := node_of(maker, "Trilu")) is not None:
        return None if is_negated else _offset_of_triangle(node)
    node = node_of(maker, *_SIGNS)
    return None if node is None else _offset_of_comparison(node, is_negated=is_negated)


def _offset_of_triangle(node: Node) -> Number | None:
    """Read ``Trilu(ones, k, upper=0)``."""
    upper = attribute_of(node, "upper")
    if upper is None or upper.ref or upper.value != 0 or node.inputs[0] is None:
        return None
    value = node.inputs[0]
    value = behind_identities(value)
    while (source := source_of(value, "Cast", "Expand")) is not None:
        value = source
    data = array_of(value)
    if data is None:
        fill = fill_of(value)
        data = fill.numpy() if isinstance(fill, Tensor) else None
    if not (data is not None and bool(np.all(data == 1))):
        return None
    shift = input_of(node, 1)
    return 0 if shift is None else _whole(shift)


def _offset_of_comparison(node: Node, *, is_negated: bool) -> Number | None:
    """Read a comparison of the numbers of queries, down, with those of keys, across."""
    if len(node.inputs) != _MATRIX or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first, second = _count(node.inputs[0]), _count(node.inputs[1])
    if first is None or second is None or {first[0], second[0]} != {"rows", "columns"}:
        return None
    # keys that take part are those with: key <sign> query + offset
    sign = _SIGNS[node.op_type]
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
        # The first of some numbers if each is one more than the one before it.
        known = all(isinstance(item, (int, Term)) for item in items)
        if not known or not len(items):
            return None
        is_count = all(item == add(items[0], rank) for rank, item in enumerate(items))
        return cast("Number", items[0]) if is_count else None
    node = node_of(value, "Range")
    if node is None:
        return None
    start, _, step = node.inputs
    if start is None or step is None or _whole(step) != 1:
        return None
    return _whole(start)


def _whole(value: Value) -> Number | None:
    """Return the only element of a tensor of whole numbers, if it is known."""
    item = item_of(value)
    return item if isinstance(item, (int, Term)) and not isinstance(item, bool) else None


# Keep masks of very low numbers apart from masks of -inf.
#
# The standard's Attention adds a float mask, whatever is in it. onnxruntime (1.31, for one) takes
# the lowest number of the element type for -inf there, and gives 0 to a query none of whose keys
# takes part, where the sum says the mean of all values. So the next higher number is added: a
# score added to it vanishes just the same.


_CARRIERS = (RESHAPING - {"Flatten"}) | {"Cast", "Expand", "Identity", "Slice"}
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
    is_at_lowest = build.op("Equal", mask, build.constant(np.array(lowest)))
    return build.op("Where", is_at_lowest, build.constant(np.array(above_lowest(dtype))), mask)


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
    data = array_of(value)
    if data is None or data.dtype.name not in _FLOATS:
        return None
    places = is_lowest(data)
    return np.where(places, above_lowest(data.dtype.name), data) if np.any(places) else None


def _ends_in_softmax(value: Value) -> bool:
    """Tell whether all that reads *value* hands it on to a Softmax as it is, or added to scores."""
    pending, seen = [value], {value}
    is_read = False
    while pending:
        current = pending.pop()
        if current.returned_by or len(seen) > _MOST_VALUES:
            return False
        for user, slot in current.iter_uses():
            if user.graph is not value.graph or not (
                not user.domain
                and (
                    user.op_type in {"Add", "Softmax"} or (user.op_type in _CARRIERS and slot == 0)
                )
            ):
                return False
            is_read = is_read or user.op_type == "Softmax"
            if user.op_type != "Softmax":
                new = [out for out in user.outputs if out is not None and out not in seen]
                seen.update(new)
                pending += new
    return is_read


# The masks of attention: what is added to scores, taken apart.
#
# A mask is a sum of terms. One that adds 0 or -inf is a choice of keys, which the operators write
# as a boolean mask; one that takes just the keys after the query away is causal.


_MOST_TERMS = 8
_SWALLOWS = {"float32": -1e30, "float64": -1e30, "bfloat16": -1e30}
"""Numbers so low that adding a score to them changes nothing, in the types that have such."""


class KeyChoice(NamedTuple):
    """A choice of keys.

    Attributes:
        keep: Where it is true keys take part.
        is_negated: Whether they do where it is false.
        number: What is added to the scores of the others.
    """

    keep: Value
    is_negated: bool = False
    number: float = -np.inf


@dataclass(frozen=True)
class Mask:
    """What is added to the scores.

    Attributes:
        added: Float tensors that are added as they are.
        choices: Choices of keys.
        is_causal: Whether keys after the query get -inf, too.
    """

    added: tuple[Value, ...] = ()
    choices: tuple[KeyChoice, ...] = ()
    is_causal: bool = False

    @property
    def tensors(self) -> list[Value]:
        """Everything that has to broadcast to the scores."""
        return [*self.added, *(choice.keep for choice in self.choices)]

    @property
    def is_boolean(self) -> bool:
        """Whether it can be written as a boolean mask."""
        is_sharp = all(choice.number == -np.inf for choice in self.choices)
        return is_sharp and bool(self.choices) and not self.added

    @property
    def may_hide_all(self) -> bool:
        """Whether all keys of a query may get -inf."""
        is_sharp = any(choice.number == -np.inf for choice in self.choices)
        return is_sharp or bool(self.added)

    def with_choice(self, choice: KeyChoice) -> Mask:
        """Add what ``Where(keep, scores, number)`` does."""
        return Mask(self.added, (*self.choices, choice), self.is_causal)


def read_mask(
    terms: Sequence[Value], scores: Dims, past: Number = 0, *, split: bool = False
) -> Mask:
    """Take apart what is added to scores, or chooses them.

    A term stays as it is if its parts say no more than the whole.

    Args:
        terms: What is added, or boolean tensors that choose.
        scores: The shape of the scores.
        past: How many keys come before the first query.
        split: Whether choices are taken apart, too.
    """
    pending = [behind_identities(term) for term in terms]
    added: list[Value] = []
    choices: list[KeyChoice] = []
    is_causal = False
    while pending:
        term = pending.pop(0)
        plain = _unconverted(term)
        if _is_zero(plain):
            continue
        if causal_offset(plain, scores) == past:
            is_causal = True
        elif split and (both := _conjuncts(plain)):
            pending = [*both, *pending]
        elif (choice := _as_choice(plain)) is not None:
            choices.append(choice)
        elif (parts := _summands(plain, scores, past)) and len(pending) + len(added) < _MOST_TERMS:
            pending = [*parts, *pending]
        else:
            added.append(_unconverted(term, only_idle=True))
    return Mask(tuple(added), tuple(choices), is_causal)


def _unconverted(term: Value, *, only_idle: bool = False) -> Value:
    """Look through conversions to another type, which do nothing to 0 and -inf, and idle Pads."""
    while (source := source_of(term, "Cast", "CastLike", "Pad")) is not None:
        pad = node_of(term, "Pad")
        is_kept = only_idle and dtype_of(source) != dtype_of(term)
        if is_kept if pad is None else not _pads_nothing(pad):
            break
        term = source
    return term


def _pads_nothing(node: Node) -> bool:
    inputs = inputs_of(node)
    pads = items_of(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    return pads is not None and all(type(pad) is int and pad == 0 for pad in pads)


def _is_zero(term: Value) -> bool:
    """Tell whether a term adds nothing."""
    if dtype_of(term) == "bool":
        return False
    if number_of(term) == 0 or (fill := fill_of(term)) == 0:
        return True
    tensor = fill if isinstance(fill, Tensor) else term.constant
    return tensor is not None and not tensor.is_external and not np.any(tensor.numpy())


def _as_choice(term: Value) -> KeyChoice | None:
    """Read ``Where(keep, 0, -inf)``, ``Where(drop, -inf, 0)``, or a boolean mask."""
    return KeyChoice(term) if dtype_of(term) == "bool" else _chosen(term)


def _chosen(term: Value) -> KeyChoice | None:
    node = node_of(term, "Where")
    if node is None or node.inputs[0] is None:
        return None
    numbers = (number_of(node.inputs[1]), number_of(node.inputs[2]))
    if numbers not in {(0.0, -np.inf), (-np.inf, 0.0)}:
        return None
    return KeyChoice(behind_identities(node.inputs[0]), numbers[0] != 0)


def _conjuncts(term: Value) -> list[Value]:
    """Take a boolean mask apart that chooses what two others choose."""
    node = node_of(term, "And")
    return [] if node is None else [behind_identities(p) for p in node.read]


def _summands(term: Value, scores: Dims, past: Number) -> list[Value]:
    """Take a sum apart, if a part of it says something that the whole does not."""
    node = node_of(term, "Add")
    if node is None:
        return []
    parts = [behind_identities(part) for part in node.read]
    special = any(
        _is_zero(part) or causal_offset(part, scores) == past or _as_choice(part) is not None
        for part in parts
    )
    return parts if special else []


# -- making masks ------------------------------------------------------------------------------


def objection_to(tensor: Value, scores: Dims) -> str:
    """Say why a mask may not broadcast to the scores, or ""."""
    shape = shape_of(tensor)
    if shape is None:
        return "the rank of the mask is not known"
    if len(shape) > len(scores):
        return "the mask has more dimensions than the scores"
    for dim, wanted in zip(reversed(shape), reversed(scores), strict=False):
        if dim not in {1, wanted}:
            own, other = described(tensor, dim), described(tensor, wanted)
            return f"a dimension of the mask is {own}, which is not known to be 1 or {other}"
    return ""


def build_float(
    build: GraphBuilder, mask: Mask, dtype: str, *, keeps_lowest: bool = True
) -> Operand:
    """Return one float tensor to add.

    Args:
        build: Who makes nodes.
        mask: The mask.
        dtype: The element type.
        keeps_lowest: Whether the lowest number may stand in it.
    """
    parts: list[Operand] = [
        item if keeps_lowest else without_lowest(build, item, dtype) for item in mask.added
    ]
    for choice in mask.choices:
        zero, filler = (_number(build, each, dtype, keeps_lowest) for each in (0, choice.number))
        pair = (filler, zero) if choice.is_negated else (zero, filler)
        parts.append(build.op("Where", choice.keep, *pair))
    total = parts[0]
    for part in parts[1:]:
        total = build.op("Add", total, part)
    return total


def _number(build: GraphBuilder, number: float, dtype: str, keeps_lowest: bool) -> Operand:  # noqa: FBT001  # passed on
    array = np.array(number, np.dtype(dtype))
    if not keeps_lowest and is_lowest(array):
        array = np.array(above_lowest(dtype))
    return build.constant(array)


def build_boolean(build: GraphBuilder, mask: Mask) -> Operand:
    """Return one boolean tensor that is true where a key takes part."""
    kept = [build.op("Not", item.keep) if item.is_negated else item.keep for item in mask.choices]
    total: Operand = kept[0]
    for part in kept[1:]:
        total = build.op("And", total, part)
    return total


def joint_shape(tensors: Sequence[Value], scores: Dims) -> Dims:
    """Return the shape that masks have together, each of which broadcasts to the scores."""
    shapes = [shape_of(tensor) or () for tensor in tensors]
    rank = max(map(len, shapes), default=0)
    dims: list[Number] = []
    for place in range(1, rank + 1):
        is_wide = any(len(shape) >= place and shape[-place] != 1 for shape in shapes)
        dims.append(scores[-place] if is_wide else 1)
    return tuple(reversed(dims))


def rows_and_columns(
    build: GraphBuilder,
    mask: Operand,
    shape: Dims,
    scores: Dims,
    owners: Sequence[tuple[Operand, int]],
) -> Operand:
    """Widen a mask to one row per query and one column per key, as kernels want it.

    Args:
        build: Who makes nodes.
        mask: The mask.
        shape: Its shape.
        scores: The shape of the scores.
        owners: A value and an axis that is as long as there are queries, and one for the keys.
    """
    if shape[-2:] == scores[-2:]:
        return mask
    if all(isinstance(dim, int) for dim in scores[-2:]):
        wanted = build.constant(np.array([1] * max(len(shape) - 2, 0) + list(scores[-2:])))
        return build.op("Expand", mask, wanted)
    parts = [build.constant(np.ones(len(shape) - 2, np.int64))] if len(shape) > 2 else []  # noqa: PLR2004  # rows and columns
    lengths = [length_of(build, *owner) for owner in owners]
    return build.op("Expand", mask, build.op("Concat", *parts, *lengths, axis=0))


# Turn attention that is written out into the standard operator Attention.
#
# Before: ``MatMul(Softmax(MatMul(q, k^T) * scale + mask), v)``
# After:  ``Attention(q, k, v, mask, scale=scale)``
# Holds when: see read_attention.
# Numerics: the same sums in another order. A query all of whose keys get -inf has no defined result
# before and 0 after. Inputs that are infinite or not a number are not considered.


_HEADS_RANK = 4
_HEADS_FIRST = (0, 1, 2, 3)
_LENGTHS_FIRST = (0, 2, 1, 3)
_KEYS_HEADS_FIRST = (0, 1, 3, 2)
_KEYS_LENGTHS_FIRST = (0, 3, 1, 2)


@far_sighted
def attention(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe the operator Attention in the place of a match of the attention pattern."""
    try:
        parts = read_attention(match)
    except MisfitError as error:
        return error.rejection(match)
    if parts.rank < _HEADS_RANK and not isinstance(parts.value.shape[-1], int):
        # onnx infers a size of 0 for the result then
        return match.reject("the size of the values is not known", at=parts.value.value)
    operands = _heads_first_operands(parts, build)
    attributes: dict[str, object] = {
        "scale": None if parts.has_default_scale else parts.scale,
        "softcap": parts.softcap or None,
        "is_causal": 1 if parts.mask.is_causal else None,
        "softmax_precision": DTYPE_CODES[parts.softmax_dtype] if parts.softmax_dtype else None,
    }
    if parts.rank < _HEADS_RANK:
        attributes |= {"q_num_heads": 1, "kv_num_heads": 1}
    mask = _full_mask(parts, build, operands)
    return DraftOutput(build.node("Attention", "", (*operands, mask), attributes))


def _heads_first_operands(
    parts: AttentionParts, build: GraphBuilder
) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values, heads before lengths."""
    if parts.rank < _HEADS_RANK:
        return parts.build(build, (0, 1, 2), (0, 2, 1))
    grouped = grouped_heads(parts)
    if grouped is not None:
        return parts.query.build(build, _HEADS_FIRST), grouped[0], grouped[1]
    return parts.build(build, _HEADS_FIRST, _KEYS_HEADS_FIRST)


def _full_mask(
    parts: AttentionParts, build: GraphBuilder, operands: tuple[Operand, Operand, Operand]
) -> Operand | None:
    """Return the mask, with a row per query and a column per key, which onnxruntime wants."""
    tensors = parts.mask.tensors
    if not tensors:
        return None
    shape = joint_shape(tensors, parts.scores)
    if parts.mask.is_boolean:
        mask = build_boolean(build, parts.mask)
    else:
        mask = build_float(build, parts.mask, parts.dtype, keeps_lowest=False)
    owners = [(operand, parts.rank - 2) for operand in operands[::2]]
    mask = rows_and_columns(build, mask, shape, parts.scores, owners)
    if len(shape) == parts.rank < _HEADS_RANK:
        return build.op("Unsqueeze", mask, build.constant(np.array([1])))
    return mask


# Make better use of an operator Attention: its own layouts, its own cache, its own masks.


_MASK = 3
"""Slot of the mask."""
_PAST = 4
"""Slot of the cached keys; that of the cached values is the next one."""


@far_sighted
def attention_with_cache(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Let Attention append the new keys and values to those of the cache.

    Before: ``all_k = Concat(past_k, k); all_v = Concat(past_v, v); Attention(q, all_k, all_v)``
    After:  ``y, all_k, all_v = Attention(q, k, v, mask, past_k, past_v)``
    Holds when: both are joined along the lengths; the attribute does not hide keys after the
    query, since with a cache these would be other keys. A mask that hides the keys after the
    query, counted from the end of the cache, becomes the attribute.
    """
    node, query = match.node("a"), match.value("q")
    if node is None or len(node.inputs) > _PAST or len(node.outputs) > 1:
        return None
    causal = attribute_of(node, "is_causal")
    appended = _appended(match, node)
    if causal is None or causal.value != 0 or appended is None or query is None:
        return None
    if len(shape_of(query) or ()) != _HEADS_RANK:
        return None
    key, value, *past = appended
    scores = _scores(node)
    length = (shape_of(past[0]) or ())[2]
    stripped = None if scores is None else _without_causal(build, node, scores, length)
    mask: Operand | None = input_of(node, _MASK) if stripped is None else stripped[0]
    attributes = {**node.attributes, "is_causal": None if stripped is None else 1}
    attention = build.node("Attention", "", (query, key, value, mask, *past), attributes, 3)
    return [DraftOutput(attention, index) for index in range(3)]


def _appended(match: Match, node: Node) -> list[Value] | None:
    """Return the keys and values that are appended to a cache, and the cached ones.

    None unless both are joined along the lengths, heads being before them, and others than *node*
    read what is joined: else it is no cache.
    """
    axes = [attribute_of(node_called(match, name), "axis") for name in ("all_k", "all_v")]
    if any(axis is None or axis.value not in {-2, 2} for axis in axes):
        return None
    for joined in match.outputs[1:]:
        if not joined.returned_by and all(user is node for user, _ in joined.iter_uses()):
            return None
    values = [value_called(match, name) for name in ("k", "v", "past_k", "past_v")]
    shapes = [shape_of(value) or () for value in values]
    if {len(shape) for shape in shapes} != {_HEADS_RANK} or shapes[2][2] != shapes[3][2]:
        return None
    return values


@far_sighted
@nodewise("Attention")
def attention_causal(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Say in an attribute that keys after the query take no part.

    Before: ``Attention(q, k, v, mask)`` with a mask that hides them
    After:  ``Attention(q, k, v, is_causal=1)``, with what is left of the mask
    """
    node = match.root
    causal = attribute_of(node, "is_causal")
    scores = _scores(node)
    if scores is None or causal is None or causal.value:
        return None
    stripped = _without_causal(build, node, scores, _past_length(node))
    if stripped is None:
        return None
    (left,) = stripped
    inputs = (*node.inputs[:_MASK], left, *node.inputs[_MASK + 1 :])
    attention = remade(build, node, inputs, is_causal=1)
    return [attention[output.index] for output in match.outputs]


def _without_causal(
    build: GraphBuilder, node: Node, scores: Dims, past: Number
) -> tuple[Operand | None] | None:
    """Return what is left of a mask but that it hides the keys after the query.

    None if it does not, or if what is left has no row for each query.
    """
    mask = input_of(node, _MASK)
    query = input_of(node, 0)
    if mask is None or query is None:
        return None
    read = read_mask([mask], scores, past, split=True)
    if not read.is_causal or any((shape_of(t) or ())[-2:] != scores[-2:] for t in read.tensors):
        return None
    if not read.tensors:
        return (None,)
    if read.is_boolean:
        return (build_boolean(build, read),)
    kind = query.known_type()
    if kind is None or kind.dtype is None:
        return None
    return (build_float(build, read, kind.dtype),)


def _scores(node: Node) -> Dims | None:
    """Return the shape of an Attention's scores."""
    query, key = (_shape(node, slot) for slot in (0, 1))
    if query is None or key is None:
        return None
    total = add(key[-2], _past_length(node))
    if len(query) == _HEADS_RANK:
        return (*query[:3], total)
    heads = attribute_of(node, "q_num_heads")
    count = heads.value if heads is not None else None
    return (query[0], count, query[1], total) if isinstance(count, int) else None


def _past_length(node: Node) -> Number:
    shape = _shape(node, _PAST)
    return 0 if shape is None else shape[2]


def _shape(node: Node, slot: int) -> Dims | None:
    value = input_of(node, slot)
    return None if value is None else shape_of(value)


# What a match of the attention pattern computes, or why it is no attention.
#
# Holds when: the queries, keys and values are ``(batch, heads, length, size)`` or ``(batch,
# length, size)`` with provably equal batches and fitting numbers of heads; the softmax is over
# the keys; all scalings are by positive numbers; the mask broadcasts to the scores.


_ROUNDING = 1e-6
_RANKS = (3, _HEADS_RANK)
_LARGEST_SCALE = 16.0
"""Usual scales are 1 and less; a query and a key may be some digits larger than their product."""

_CONSTANT_ROUNDING = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2, "float64": 2e-6}
"""Element types of attention, and how far constants in them are from what they are meant to be."""


@dataclass(frozen=True)
class AttentionParts:
    """An attention.

    Attributes:
        query: The queries, ``(batch, heads, length, size)`` or without heads.
        key: The keys, the last two axes swapped.
        value: The values.
        scores: Shape of the scores.
        dtype: The element type.
        scale: What scores are multiplied by.
        softcap: What they are limited to, or 0.
        mask: What is added to them.
        softmax_dtype: What the softmax is computed in; "" for the type of the scores.
        is_guarded: Whether queries without keys get 0.
    """

    query: Followed
    key: Followed
    value: Followed
    scores: Dims
    dtype: str
    scale: float
    softcap: float
    mask: Mask
    softmax_dtype: str
    is_guarded: bool

    @property
    def rank(self) -> int:
        """The number of axes of queries, keys and values."""
        return len(self.scores)

    @property
    def has_default_scale(self) -> bool:
        """Whether the scale is ``1 / sqrt(size)``, as near as its type tells."""
        size = self.query.shape[-1]
        if not isinstance(size, int) or size <= 0:
            return False
        return abs(self.scale * math.sqrt(size) - 1) <= _CONSTANT_ROUNDING[self.dtype]

    def build(
        self, build: GraphBuilder, perm: tuple[int, ...], of_keys: tuple[int, ...]
    ) -> tuple[Operand, Operand, Operand]:
        """Return queries, keys and values, with their axes in these orders."""
        return (
            self.query.build(build, perm),
            self.key.build(build, of_keys),
            self.value.build(build, perm),
        )


def read_attention(match: Match) -> AttentionParts:
    """Take a match of the attention pattern apart.

    Raises:
        MisfitError: It is none.
    """
    types = {dtype_of(match.value(name)) for name in ("q", "kt", "v")}
    dtype = types.pop()
    if types or dtype not in _CONSTANT_ROUNDING:
        refuse("queries, keys and values are not known to be of one float type", match.value("q"))
    query, key, value = (_operand(match, name) for name in ("q", "kt", "v"))
    if not query.rank == key.rank == value.rank or query.rank not in _RANKS:
        refuse("queries, keys and values do not all have 3 or 4 axes", match.value("q"))
    # Refuse a softmax that is not over the keys.
    softmax = match.node("p")
    axis = None if softmax is None else attribute_of(softmax, "axis")
    if axis is None or axis.value not in {-1, query.rank - 1}:
        refuse("the softmax is not over the last axis", softmax)
    _check_dimensions(query, key, value)
    scores = (*query.shape[:-1], key.shape[-1])
    softcap, by = _softcap(match)
    scale = query.scale * key.scale * _factor(match) * by
    if not scale > 0:
        refuse(f"the scale is {scale:.6g}, and operators take positive ones only", match.value("q"))
    if scale > _LARGEST_SCALE:
        reason = "operators scale the factors, which may overflow where the product does not"
        refuse(f"the scale is {scale:.6g}: {reason}", match.value("q"))
    return AttentionParts(
        query,
        key,
        value,
        scores,
        dtype,
        scale,
        softcap,
        _mask_of_match(match, dtype, scores),
        _softmax_type(match, dtype),
        _is_guarded(match),
    )


def _operand(match: Match, name: str) -> Followed:
    value = match.value(name)
    followed = None if value is None else follow(value)
    if followed is None:
        refuse("its rank is not known", value)
    return followed.without_scaling() if name == "v" and followed.scale != 1 else followed


def _check_dimensions(query: Followed, key: Followed, value: Followed) -> None:
    """Refuse batches and heads that are not known to fit: operators do not broadcast them."""
    for name, other in (("keys", key), ("values", value)):
        if other.shape[0] != query.shape[0]:
            own, batch = (described(other.value, each.shape[0]) for each in (query, other))
            reason = f"the batch is {own} for queries and {batch} for {name}"
            refuse(f"{reason}: not known to be equal", other.value)
    if query.rank < _HEADS_RANK:
        return
    heads, of_keys, of_values = (operand.shape[1] for operand in (query, key, value))
    if of_keys != of_values or of_keys not in {heads, 1}:
        told = [described(value.value, number) for number in (heads, of_keys, of_values)]
        numbers = f"{told[0]}, {told[1]} and {told[2]}"
        refuse(f"{numbers} heads of queries, keys and values do not provably fit", value.value)


def _factor(match: Match) -> float:
    """Return what the scores are multiplied by after the product."""
    factor, divisor = match.value("factor"), match.value("divisor")
    named = factor if factor is not None else divisor
    if named is None:
        return 1.0
    number = number_of(named)
    if number is None:
        refuse("the scale is not a known number", named)
    if divisor is not None and number == 0:
        refuse("the scores are divided by 0", named)
    return number if divisor is None else 1 / number


def _softcap(match: Match) -> tuple[float, float]:
    """Return what scores are capped at, and what they are multiplied by besides.

    ``c * tanh(u * x)`` caps ``(c * u) * x`` at c.
    """
    again = match.value("cap_again")
    if again is None:
        return 0.0, 1.0
    cap, uncap = number_of(match.value("cap")), number_of(match.value("uncap"))
    inner = uncap if uncap is not None else 1 / cap if cap else None
    outer = number_of(again)
    if inner is None or outer is None or not 0 < outer < math.inf:
        refuse("what the scores are capped at is not a known positive number", again)
    factor = inner * outer
    return outer, 1.0 if abs(factor - 1) <= _ROUNDING else factor


def _mask_of_match(match: Match, dtype: str, scores: Dims) -> Mask:
    terms = [value for name in ("mask", "bias") if (value := match.value(name)) is not None]
    for term in terms:  # a term of zeros is dropped below, but it may widen the scores
        shape = shape_of(term) or ()
        pairs = zip(reversed(shape), reversed(scores), strict=False)
        sizes = [pair for pair in pairs if all(isinstance(dim, int) for dim in pair)]
        if len(shape) > len(scores) or any(own not in {1, wanted} for own, wanted in sizes):
            refuse("the mask is larger than the scores", term)
    mask = read_mask(terms, scores)
    keep, drop, fill = (match.value(name) for name in ("keep", "drop", "fill"))
    chosen = keep if keep is not None else drop
    if chosen is not None:
        number = number_of(fill)
        if number is None or not (number == -np.inf or number <= _SWALLOWS.get(dtype, -np.inf)):
            refuse("what stands in the place of masked scores is not known to swallow them", fill)
        mask = mask.with_choice(KeyChoice(behind_identities(chosen), keep is None, number))
    for tensor in mask.tensors:
        objection = objection_to(tensor, scores)
        if objection:
            refuse(objection, tensor)
    for tensor in mask.added:
        if dtype_of(tensor) != dtype:
            refuse(f"the mask is not known to be {dtype}", tensor)
    return mask


def _is_guarded(match: Match) -> bool:
    """Tell whether queries without keys get 0."""
    if match.value("guarded") is None:
        return False
    lowest = match.value("lowest")
    if number_of(match.value("zero")) != 0 or (
        lowest is not None and number_of(lowest) != -math.inf
    ):
        refuse("what becomes of queries without keys is not known to be 0", match.value("guarded"))
    return True


def _softmax_type(match: Match, dtype: str) -> str:
    """Return the type that the softmax is computed in, if it is another one."""
    wide = dtype_of(match.value("wide"))
    allowed = (("scores", {dtype}), ("wide", {dtype, wide}), ("narrow", {dtype, wide}))
    for name, types in allowed:
        # The types that a value has on its way through conversions, the first one included.
        value = match.value(name)
        dtypes = set()
        while value is not None:
            value = behind_identities(value)
            dtypes.add(dtype_of(value))
            value = source_of(value, "Cast")
        if not dtypes <= types:
            refuse("scores are converted to another type on the way", match.value(name))
    if any(dtype_of(match.value(name)) != dtype for name in ("scores", "narrow")):
        refuse("conversions round the softmax do not cancel out", match.value("wide"))
    if wide == dtype:
        return ""
    if wide not in {"float32", "float64"} or dtype == "float64":
        refuse(f"the softmax is computed in {wide or 'an unknown type'}", match.value("wide"))
    return wide


def grouped_heads(parts: AttentionParts) -> tuple[Value, Value, Number] | None:
    """Return keys and values before their heads were repeated, and the number of heads.

    Keys and values are ``(batch, heads, length, size)``. None if they were not repeated alike.
    """
    of_keys = _before_repetition(parts.key, _KEYS_HEADS_FIRST)
    of_values = _before_repetition(parts.value, _HEADS_FIRST)
    if of_keys is None or of_values is None:
        return None
    (key, times), (value, same_times) = of_keys, of_values
    heads = divide(parts.scores[1], times)
    shapes = (shape_of(key), shape_of(value))
    if times != same_times or heads is None or any(s is None or s[1] != heads for s in shapes):
        return None
    return key, value, heads


def _before_repetition(operand: Followed, perm: tuple[int, ...]) -> tuple[Value, int] | None:
    origin = operand.seen_as(perm)
    return None if origin is None else ungrouped(origin.value)


# Turn attention that is written out into onnxruntime's own operators, which older opsets have.
#
# Before: ``MatMul(Softmax(MatMul(q, k^T) * scale + mask), v)``
# After:  ``MultiHeadAttention(q, k, v, , , mask)``,
#     or ``GroupQueryAttention`` where heads share keys or scores are capped
# Holds when: see read_attention; and the number of heads is known.
# Numerics: the same sums in another order. Where all keys of a query get -inf, both give NaN. If
# the model makes 0 of that, nodes behind the operator do so as well.


_DOMAIN = "com.microsoft"


_GROUPED_UNIT = 8
"""Head sizes of GroupQueryAttention are multiples of it."""

_INT32 = 6
_BIAS = 5
"""Slot of what MultiHeadAttention adds to the scores."""


@far_sighted
def onnxruntime_attention(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe one of onnxruntime's operators in the place of a match of the attention pattern."""
    try:
        parts = read_attention(match)
        _check(parts)
        shared = _shared(parts)
    except MisfitError as error:
        return error.rejection(match)
    bias = _bias(parts, build, shared)
    if shared is None:
        attention = _multi_head(parts, build, bias)
    else:
        attention = _grouped(parts, build, bias, shared)
    if parts.is_guarded and parts.mask.may_hide_all:
        zero = build.constant(np.zeros((), np.dtype(parts.dtype)))
        attention = build.op("Where", build.op("IsNaN", attention), zero, attention)
    if parts.rank < _HEADS_RANK:
        return attention
    return build.op(
        "Transpose", split_heads(build, attention, parts.scores[1]), perm=_LENGTHS_FIRST
    )


def _check(parts: AttentionParts) -> None:
    """Refuse what the kernels do not compute.

    Raises:
        MisfitError: They do not.
    """
    at = parts.query.value
    if parts.dtype not in {"float32", "float16"} or parts.softmax_dtype:
        refuse("the kernels compute in float32 or float16 throughout", at)
    if parts.rank == _HEADS_RANK and not isinstance(parts.scores[1], int):
        refuse("the number of heads is not known", at)
    if parts.mask.is_causal and parts.scores[-2] != parts.scores[-1]:
        refuse("a causal mask is not known to be square", at)


# -- one key head for each query head ----------------------------------------------------------


def _multi_head(parts: AttentionParts, build: GraphBuilder, bias: Operand | None) -> Operand:
    """Describe MultiHeadAttention; the result has the heads side by side."""
    attributes: dict[str, object] = {
        "num_heads": parts.scores[1] if parts.rank == _HEADS_RANK else 1,
        "scale": None if parts.has_default_scale else parts.scale,
        "unidirectional": 1 if parts.mask.is_causal else None,
    }
    inputs = (*_onnxruntime_operands(parts, build), None, None, bias)
    return DraftOutput(build.node("MultiHeadAttention", _DOMAIN, inputs, attributes))


def _onnxruntime_operands(
    parts: AttentionParts, build: GraphBuilder
) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values; keys and values with heads first if they are there so."""
    if parts.rank < _HEADS_RANK:
        return parts.build(build, (0, 1, 2), (0, 2, 1))
    query, key, value = parts.query, parts.key, parts.value
    rows = merged_heads(build, query.build(build, _LENGTHS_FIRST))
    lengths_first = (key.seen_as(_KEYS_LENGTHS_FIRST), value.seen_as(_LENGTHS_FIRST))
    heads_first = (key.seen_as(_KEYS_HEADS_FIRST), value.seen_as(_HEADS_FIRST))
    sizes = (key.shape[2], value.shape[3])
    if None in lengths_first and None not in heads_first and sizes[0] == sizes[1]:
        return rows, key.build(build, _KEYS_HEADS_FIRST), value.build(build, _HEADS_FIRST)
    return (
        rows,
        merged_heads(build, key.build(build, _KEYS_LENGTHS_FIRST)),
        merged_heads(build, value.build(build, _LENGTHS_FIRST)),
    )


def _bias(
    parts: AttentionParts, build: GraphBuilder, shared: _SharedHeads | None
) -> Operand | None:
    """Return what is added to the scores, with four axes and a row and column per score."""
    tensors = parts.mask.tensors
    if not tensors:
        return None
    scores = parts.scores
    shape = joint_shape(tensors, scores)
    bias = build_float(build, parts.mask, parts.dtype)
    of_keys = parts.value.source_of(parts.rank - 2)
    if shared is not None and shared.before is not None:
        of_keys = (shared.before[1], 2)
    owners = (parts.query.source_of(parts.rank - 2), of_keys)
    bias = rows_and_columns(build, bias, shape, scores, owners)
    rank = max(len(shape), 2)
    if parts.rank < _HEADS_RANK and rank == parts.rank:
        axes = [1]
    else:
        axes = list(range(_HEADS_RANK - rank))
    return build.op("Unsqueeze", bias, build.constant(np.array(axes))) if axes else bias


# -- heads that share keys ---------------------------------------------------------------------


class _SharedHeads(NamedTuple):
    """Keys and values of which each head may serve several query heads.

    Attributes:
        heads: How many heads they have.
        before: Keys and values before they were repeated, ``(batch, heads, length, size)``; None
            if they were not.
    """

    heads: int
    before: tuple[Value, Value] | None


def _shared(parts: AttentionParts) -> _SharedHeads | None:
    """Return what GroupQueryAttention takes; None for MultiHeadAttention.

    Raises:
        MisfitError: It takes the former, but that does not compute it.
    """
    if parts.rank < _HEADS_RANK:
        if parts.softcap:
            refuse("scores are capped, and heads are not apart", parts.query.value)
        return None
    repeated = grouped_heads(parts)
    is_needed = bool(parts.softcap) or parts.key.shape[1] != parts.scores[1]
    if repeated is None and not is_needed:
        return None
    heads = parts.key.shape[1] if repeated is None else repeated[2]
    objection = _objection_to_grouping(parts, heads)
    if isinstance(heads, int) and not objection:
        return _SharedHeads(heads, None if repeated is None else repeated[:2])
    if is_needed:
        reason = f"heads share keys, or scores are capped, and {objection}"
        refuse(reason, parts.query.value)
    return None


def _objection_to_grouping(parts: AttentionParts, heads: Number) -> str:
    """Say why GroupQueryAttention does not compute it, or ""."""
    size = parts.query.shape[-1]
    if not isinstance(heads, int):
        return "the number of key heads is not known"
    if not isinstance(size, int) or size % _GROUPED_UNIT or size != parts.value.shape[-1]:
        told = [described(parts.value.value, n) for n in (size, parts.value.shape[-1])]
        return f"heads of {told[0]} and {told[1]} are not a multiple of {_GROUPED_UNIT}"
    if parts.scores[-2] != parts.scores[-1]:
        return "there are not known to be as many keys as queries"
    return ""


def _grouped(
    parts: AttentionParts, build: GraphBuilder, bias: Operand | None, shared: _SharedHeads
) -> Operand:
    """Describe GroupQueryAttention; every sequence is as long as the tensors are."""
    rows = [merged_heads(build, parts.query.build(build, _LENGTHS_FIRST))]
    if shared.before is None:
        rows.append(merged_heads(build, parts.key.build(build, _KEYS_LENGTHS_FIRST)))
        rows.append(merged_heads(build, parts.value.build(build, _LENGTHS_FIRST)))
    for tensor in shared.before or ():
        followed = follow(tensor)
        assert followed is not None  # noqa: S101  # its shape is known
        rows.append(merged_heads(build, followed.without_scaling().build(build, _LENGTHS_FIRST)))
    lengths, total = _lengths(parts, build)
    attributes: dict[str, object] = {
        "num_heads": parts.scores[1],
        "kv_num_heads": shared.heads,
        "scale": None if parts.has_default_scale else parts.scale,
        "softcap": parts.softcap or None,
        "causal": None if parts.mask.is_causal else 0,
    }
    inputs = (*rows, None, None, lengths, total, None, None, None, bias)
    return DraftOutput(build.node("GroupQueryAttention", _DOMAIN, inputs, attributes, 3))


def _lengths(parts: AttentionParts, build: GraphBuilder) -> tuple[Operand, Operand]:
    """Return the last place of each sequence, and the number of places, in int32."""
    batch, length = parts.scores[0], parts.scores[-1]
    if isinstance(batch, int) and isinstance(length, int):
        last = np.full(batch, length - 1, np.int32)
        return build.constant(last), build.constant(np.array(length, np.int32))
    # there are as many keys as queries
    counted = build.op("Cast", length_of(build, *parts.query.source_of(2)), to=_INT32)
    last_place = build.op("Sub", counted, build.constant(np.array([1], np.int32)))
    lengths = build.op("Expand", last_place, length_of(build, *parts.query.source_of(0)))
    return lengths, build.op("Squeeze", counted)


# -- caches ------------------------------------------------------------------------------------


@far_sighted
def onnxruntime_attention_with_cache(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Let MultiHeadAttention append the new keys and values to those of the cache.

    Before: ``all_k = Concat(past_k, k); MultiHeadAttention(q, all_k, all_v, , , mask)``
    After:  ``MultiHeadAttention(q, k, v, , , mask, past_k, past_v)``
    """
    node = match.node("a")
    if node is None or len(node.inputs) > _BIAS + 1:
        return None
    causal = attribute_of(node, "unidirectional")
    appended = _appended(match, node)
    if appended is None or (causal is not None and causal.value):
        return None
    key, value, *past = appended
    rows = [_rows_of(build, each) for each in (key, value)]
    pair = rows if None not in rows else [key, value]
    inputs = (match.value("q"), *pair, None, None, input_of(node, _BIAS), *past)
    attention = build.node("MultiHeadAttention", _DOMAIN, inputs, node.attributes, 3)
    return [DraftOutput(attention, index) for index in range(3)]


def _rows_of(build: GraphBuilder, value: Value | None) -> Operand | None:
    """Merge the heads of what a value was transposed from, if that has lengths before heads."""
    followed = None if value is None else follow(value)
    if followed is None or followed.rank != _HEADS_RANK:
        return None
    origin = followed.without_scaling().seen_as(_LENGTHS_FIRST)
    return None if origin is None else merged_heads(build, origin.value)
