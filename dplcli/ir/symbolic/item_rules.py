"""The elements of small tensors, as exporters compute them to shape other tensors."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dplcli.ir.symbolic.analysis import MOST_ITEMS, ask_items, ask_shape, objects
from dplcli.ir.symbolic.reading import FAR, argument, attribute, numbers, numbers_or
from dplcli.ir.symbolic.size import Size, is_never_negative, quotient, remainder
from dplcli.ir.tensor import Tensor
from dplcli.ir.types import DTYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dplcli.ir.node import Node
    from dplcli.ir.symbolic.analysis import ItemRule, ItemSteps

_Item: TypeAlias = Any
"""A bool, an int, a float or a Size."""

_LARGEST_BASE = 2**16
_LARGEST_EXPONENT = 3


def _shape(node: Node, _: int) -> ItemSteps:
    shape = yield from ask_shape(node.inputs[0])
    if shape is None:
        return None
    return _vector(shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))])


def _size(node: Node, _: int) -> ItemSteps:
    shape = yield from ask_shape(node.inputs[0])
    return None if shape is None else _scalar(math.prod(shape))


def _same(node: Node, _: int) -> ItemSteps:
    return (yield from ask_items(node.inputs[0]))


def _gather(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    places = yield from ask_items(node.inputs[1])
    if data is None or places is None:
        return None
    taken = np.take(data, places.astype(np.int64), axis=attribute(node, "axis", 0))
    return _array(taken)


def _slice(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    starts = yield from numbers(node, 1)
    ends = yield from numbers(node, 2)
    if data is None or starts is None or ends is None:
        return None
    axes = yield from numbers_or(node, 3, list(range(len(starts))))
    steps = yield from numbers_or(node, 4, [1] * len(starts))
    if axes is None or steps is None:
        return None
    parts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        last = None if step < 0 and end <= -FAR else end
        parts[axis] = slice(start, last, step)
    return data[tuple(parts)]


def _transpose(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    return None if data is None else np.transpose(data, attribute(node, "perm"))


def _one_hot(node: Node, _: int) -> ItemSteps:
    places = yield from numbers(node, 0)
    depth = yield from numbers(node, 1)
    choice = yield from ask_items(argument(node, 2))
    if places is None or depth is None or choice is None or attribute(node, "axis", -1) != -1:
        return None
    off, on = choice
    count = int(depth[0])
    if len(places) * count > MOST_ITEMS:
        return None
    made = np.empty((len(places), count), dtype=object)
    made[:] = off
    for row, place in enumerate(places):
        if -count <= place < count:
            made[row, place] = on
    return made


def _concat(node: Node, _: int) -> ItemSteps:
    parts = []
    for value in node.inputs:
        part = yield from ask_items(value)
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts, axis=attribute(node, "axis", 0))


def _split(node: Node, index: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    sizes = yield from numbers(node, 1)
    if data is None or data.ndim != 1:
        return None
    if sizes is None:
        count = len(node.outputs)
        sizes = objects(np.full(count, len(data) // count)) if len(data) % count == 0 else None
    if sizes is None:
        return None
    begin = sum(sizes[:index])
    return data[begin : begin + sizes[index]]


def _reshape(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    wanted = yield from numbers(node, 1)
    if data is None or wanted is None:
        return None
    kept = [data.shape[a] if dim == 0 else dim for a, dim in enumerate(wanted)]
    return data.reshape(kept)


def _squeeze(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    axes = yield from numbers(node, 1)
    if data is None or (axes is None and argument(node, 1) is not None):
        return None
    return _array(np.squeeze(data, None if axes is None else tuple(axes)))


def _unsqueeze(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    axes = yield from numbers(node, 1)
    return None if data is None or axes is None else np.expand_dims(data, tuple(axes))


def _cast(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    return None if data is None else _converted(data, DTYPE_NAMES[attribute(node, "to")])


def _cast_like(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    like = node.inputs[1]
    known = None if like is None else like.known_type()
    if data is None or known is None or known.dtype is None:
        return None
    return _converted(data, known.dtype)


def _converted(data: NDArray[Any], dtype: str) -> NDArray[Any] | None:
    if dtype.startswith(("float", "bfloat")):
        return _mapped(lambda item: _to_float(item, dtype), data)
    if dtype.startswith(("int", "uint")):
        return _mapped(_to_int, data)
    return _mapped(bool, data) if dtype == "bool" and not _has_sizes(data) else None


def _to_float(item: _Item, dtype: str) -> float:
    if isinstance(item, Size):
        raise TypeError
    return float(item) if dtype.startswith("b") else float(np.dtype(dtype).type(item))


def _to_int(item: _Item) -> _Item:
    return item if isinstance(item, Size) else int(item)


def _divided(dividend: _Item, divisor: _Item) -> _Item:
    if isinstance(dividend, float) or isinstance(divisor, float):
        return dividend / divisor
    return quotient(dividend, divisor)


def _modulo(dividend: _Item, divisor: _Item) -> _Item:
    if isinstance(dividend, float) or isinstance(divisor, float):
        raise TypeError
    if not (is_never_negative(dividend) and is_never_negative(divisor)):
        raise ValueError  # the sign depends on the attribute fmod
    return remainder(dividend, divisor)


def _power(base: _Item, exponent: _Item) -> _Item:
    if isinstance(base, float):
        return math.pow(base, exponent)
    if abs(base) > _LARGEST_BASE or not 0 <= exponent <= _LARGEST_EXPONENT:
        raise ValueError
    return base**exponent


def _equal(left: _Item, right: _Item) -> bool:
    if left == right:
        return True
    if isinstance(left, Size) or isinstance(right, Size):
        gap = left - right
        if isinstance(gap, Size) and not _is_apart(gap):
            raise ValueError  # they may be equal when the model runs
    return False


def _is_apart(gap: Size) -> bool:
    """Tell whether a difference is surely not 0: ``n + 1`` is not."""
    return is_never_negative(gap - 1) or is_never_negative(-1 - gap)


def _compared(compare: Callable[[_Item, _Item], bool]) -> Callable[[_Item, _Item], bool]:
    """Let a comparison raise rather than guess."""

    def checked(left: _Item, right: _Item) -> bool:
        if left == right or not (isinstance(left, Size) or isinstance(right, Size)):
            return bool(compare(0, 0) if left == right else compare(left, right))
        gap = left - right
        if is_never_negative(gap - 1):
            return bool(compare(1, 0))
        if is_never_negative(-1 - gap):
            return bool(compare(0, 1))
        raise ValueError  # it depends on the sizes

    return checked


def _least(left: _Item, right: _Item) -> _Item:
    return left if _compared(operator.le)(left, right) else right


def _most(left: _Item, right: _Item) -> _Item:
    return left if _compared(operator.ge)(left, right) else right


def _elementwise(function: Callable[..., _Item]) -> ItemRule:
    """Make a rule that applies *function* element by element, broadcasting."""

    def rule(node: Node, _: int) -> ItemSteps:
        operands = []
        for value in node.inputs:
            items = yield from ask_items(value)
            if items is None:
                return None
            operands.append(items)
        return _mapped(function, *operands)

    return rule


def _mapped(function: Callable[..., _Item], *operands: NDArray[Any]) -> NDArray[Any]:
    lined_up = np.broadcast_arrays(*operands)
    if lined_up[0].size > MOST_ITEMS:
        raise ValueError
    made = np.empty(lined_up[0].shape, dtype=object)
    rows = zip(*(operand.reshape(-1) for operand in lined_up), strict=True)
    made.reshape(-1)[:] = [function(*row) for row in rows]
    return made


def _where(node: Node, _: int) -> ItemSteps:
    chosen = yield from ask_items(node.inputs[0])
    left = yield from ask_items(node.inputs[1])
    right = yield from ask_items(node.inputs[2])
    if chosen is None or left is None or right is None:
        return None
    return _mapped(lambda which, one, other: one if which else other, chosen, left, right)


def _constant_of_shape(node: Node, _: int) -> ItemSteps:
    shape = yield from numbers(node, 0)
    if shape is None or math.prod(shape) > MOST_ITEMS:
        return None
    filler = attribute(node, "value")
    item = filler.numpy().reshape(-1)[0].item() if isinstance(filler, Tensor) else 0.0
    made = np.empty(tuple(shape), dtype=object)
    made.reshape(-1)[:] = [item] * made.size
    return made


def _expand(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    shape = yield from numbers(node, 1)
    if data is None or shape is None or math.prod(shape) > MOST_ITEMS:
        return None
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape)))


def _range(node: Node, _: int) -> ItemSteps:
    bounds = []
    for value in node.inputs:
        items = yield from ask_items(value)
        bounds.append(None if items is None else items.reshape(-1)[0])
    start, limit, step = bounds
    if not (type(start) is type(limit) is type(step) is int):
        return None
    steps = range(start, limit, step)
    return None if len(steps) > MOST_ITEMS else _vector(tuple(steps))


def _reduce_prod(node: Node, _: int) -> ItemSteps:
    data = yield from ask_items(node.inputs[0])
    if data is None or data.ndim != 1:
        return None
    product = math.prod(data)
    return _vector((product,)) if attribute(node, "keepdims", 1) else _scalar(product)


def _scalar(item: _Item) -> NDArray[Any]:
    made = np.empty((), dtype=object)
    made[()] = item
    return made


def _vector(items: tuple[_Item, ...]) -> NDArray[Any]:
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


def _array(taken: Any) -> NDArray[Any]:  # noqa: ANN401  # numpy unwraps a single object
    return taken if isinstance(taken, np.ndarray) else _scalar(taken)


def _has_sizes(data: NDArray[Any]) -> bool:
    return any(isinstance(item, Size) for item in data.reshape(-1))


_ELEMENTWISE: dict[str, Callable[..., _Item]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divided,
    "Mod": _modulo,
    "Neg": operator.neg,
    "Sqrt": math.sqrt,
    "Reciprocal": lambda item: 1.0 / item,
    "Pow": _power,
    "Floor": lambda item: float(math.floor(item)),
    "Ceil": lambda item: float(math.ceil(item)),
    "Min": _least,
    "Max": _most,
    "Equal": _equal,
    "Less": _compared(operator.lt),
    "LessOrEqual": _compared(operator.le),
    "Greater": _compared(operator.gt),
    "GreaterOrEqual": _compared(operator.ge),
    "Not": operator.not_,
    "And": lambda left, right: left and right,
    "Or": lambda left, right: left or right,
}

ITEM_RULES: dict[str, ItemRule] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Gather": _gather,
    "Slice": _slice,
    "Transpose": _transpose,
    "OneHot": _one_hot,
    "Concat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Where": _where,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Range": _range,
    "ReduceProd": _reduce_prod,
    **{name: _elementwise(function) for name, function in _ELEMENTWISE.items()},
}
"""By operator of the standard domain."""
