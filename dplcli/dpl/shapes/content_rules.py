"""What whole numbers come to: the arithmetic that exporters do on shapes.

A rule gets the view of a node and returns the elements of its first output, or None. Scalars
and vectors only; every rule holds for any values of the atoms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.shapes.arithmetic import FAR, product
from dplcli.dpl.shapes.terms import Term, add, multiply, negative
from dplcli.dpl.shapes.view import MOST_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims, View


def _shape(view: View) -> Dims | None:
    shape = view.shape()
    if shape is None:
        return None
    start, end = view.integer("start", 0), view.integer("end", len(shape))
    return None if start is None or end is None else shape[slice(start, end)]


def _size(view: View) -> Dims | None:
    shape = view.shape()
    return None if shape is None else (product(shape),)


def _same(view: View) -> Dims | None:
    return view.content()


_CAST_TO = {6: 32, 7: 64}
"""ONNX's codes of int32 and int64, and their bits."""

_BOOL = 9


def _cast(view: View) -> Dims | None:
    content, code = view.content(), view.integer("to")
    if content is None or code is None:
        return None
    if code == _BOOL:
        answers = [_is_zero(view, item) for item in content]
        known = [1 - answer for answer in answers if answer is not None]
        return tuple(known) if len(known) == len(answers) else None
    if code not in _CAST_TO or view.dtype() in {"uint64", None}:
        return None
    limit = 2 ** (_CAST_TO[code] - 1)
    fits = all(isinstance(item, Term) or -limit <= item < limit for item in content)
    return content if fits else None


def _is_zero(view: View, item: Number) -> int | None:
    if isinstance(item, int):
        return int(item == 0)
    return 0 if view.algebra.differ(item, 0) else None


def _gather(view: View) -> Dims | None:
    content, indices = view.content(0), view.numbers(1)
    if content is None or indices is None or len(view.shape(0) or ()) != 1:
        return None
    if not all(-len(content) <= index < len(content) for index in indices):
        return None
    return tuple(content[index] for index in indices)


def _slice(view: View) -> Dims | None:
    content = view.content(0)
    starts, ends = view.numbers(1), view.numbers(2)
    steps = view.numbers(4) if view.has(4) else [1]
    if content is None or starts is None or ends is None or steps is None:
        return None
    if len(view.shape(0) or ()) != 1 or [len(starts), len(ends), len(steps)] != [1, 1, 1]:
        return None
    if steps[0] == 0:
        return None
    last = None if steps[0] < 0 and ends[0] <= -FAR else ends[0]
    return content[slice(starts[0], last, steps[0])]


def _concat(view: View) -> Dims | None:
    parts = [view.content(slot) for slot in range(view.count)]
    if any(part is None for part in parts) or any(
        len(view.shape(slot) or ()) != 1 for slot in range(view.count)
    ):
        return None
    return tuple(item for part in parts for item in part or ())


def _split(view: View) -> Dims | None:
    """Return what the first output gets; the others have no content here."""
    content, lengths = view.content(0), view.numbers(1)
    return None if content is None or not lengths else content[: lengths[0]]


def _pairwise(
    operation: Callable[[View, Number, Number], Number | None],
) -> Callable[[View], Dims | None]:
    """Apply *operation* to elements at the same place, a single one standing for all."""

    def apply(view: View) -> Dims | None:
        result = view.content(0)
        for slot in range(1, view.count):
            other = view.content(slot)
            if result is None or other is None:
                return None
            length = max(len(result), len(other)) if result and other else 0
            if {len(result), len(other)} - {1, length}:
                return None
            pairs = zip(_stretched(result, length), _stretched(other, length), strict=True)
            made = [operation(view, first, second) for first, second in pairs]
            result = _complete(made)
        return result

    return apply


def _stretched(content: Dims, length: int) -> Dims:
    return content * length if len(content) == 1 else content


def _complete(items: list[Number | None]) -> Dims | None:
    known = tuple(item for item in items if item is not None)
    return known if len(known) == len(items) else None


def _subtract(_view: View, first: Number, second: Number) -> Number:
    return add(first, negative(second))


def _divide(view: View, first: Number, second: Number) -> Number | None:
    """Divide as ONNX does, towards zero, which is down where nothing is negative."""
    algebra = view.algebra
    if isinstance(first, int) and isinstance(second, int) and second:
        return abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
    if not algebra.is_at_least(first, 0) or not algebra.is_at_least(second, 1):
        return None
    return algebra.floor_divide(first, second)


def _mod(view: View, first: Number, second: Number) -> Number | None:
    algebra = view.algebra
    if not algebra.is_at_least(first, 0) or not algebra.is_at_least(second, 1):
        return None
    return algebra.remainder(first, second)


def _equal(view: View, first: Number, second: Number) -> int | None:
    if first == second:
        return 1
    return 0 if view.algebra.differ(first, second) else None


def _less(view: View, first: Number, second: Number) -> int | None:
    if view.algebra.is_at_least(second, add(first, 1)):
        return 1
    return 0 if view.algebra.is_at_least(first, second) else None


def _less_or_equal(view: View, first: Number, second: Number) -> int | None:
    return _less(view, first, add(second, 1))


def _and(_view: View, first: Number, second: Number) -> Number | None:
    known = [item for item in (first, second) if isinstance(item, int)]
    if 0 in known:
        return 0
    return second if first == 1 else first if second == 1 else None


def _or(_view: View, first: Number, second: Number) -> Number | None:
    known = [item for item in (first, second) if isinstance(item, int)]
    if 1 in known:
        return 1
    return second if first == 0 else first if second == 0 else None


def _not(view: View) -> Dims | None:
    content = view.content()
    return None if content is None else tuple(add(1, negative(item)) for item in content)


def _negative(view: View) -> Dims | None:
    content = view.content()
    return None if content is None else tuple(negative(item) for item in content)


def _abs(view: View) -> Dims | None:
    content = view.content()
    if content is None:
        return None
    made = [
        abs(item) if isinstance(item, int) else item if view.algebra.is_at_least(item, 0) else None
        for item in content
    ]
    return _complete(made)


def _where(view: View) -> Dims | None:
    contents = [view.content(slot) for slot in range(3)]
    if any(content is None for content in contents):
        return None
    known = [content or () for content in contents]
    length = max(map(len, known)) if all(known) else 0
    if any(len(content) not in {1, length} for content in known):
        return None
    chosen = [
        yes if condition == 1 or yes == no else no if condition == 0 else None
        for condition, yes, no in zip(*(_stretched(c, length) for c in known), strict=True)
    ]
    return _complete(chosen)


def _expand(view: View) -> Dims | None:
    content, target = view.content(0), view.numbers(1)
    if content is None or target is None or len(target) > 1:
        return None
    wanted = max([*target, len(content)])
    if len(content) not in {1, wanted} or 0 in target or wanted > MOST_ELEMENTS:
        return None
    return _stretched(content, wanted)


def _constant_of_shape(view: View) -> Dims | None:
    target, fill = view.numbers(0), view.fill
    if target is None or fill is None or len(target) > 1 or max(target, default=1) > MOST_ELEMENTS:
        return None
    return (fill,) * (target[0] if target else 1)


def _reduced(
    operation: Callable[[View, Dims], Number | None],
) -> Callable[[View], Dims | None]:
    """Apply *operation* to a whole vector."""

    def apply(view: View) -> Dims | None:
        content = view.content(0)
        if content is None or (view.has(1) and view.numbers(1) not in ([0], [-1])):
            return None
        if len(view.shape(0) or ()) != 1 or view.integer("noop_with_empty_axes", 0):
            return None
        result = operation(view, content)
        return None if result is None else (result,)

    return apply


def _total(_view: View, content: Dims) -> Number:
    total: Number = 0
    for item in content:
        total = add(total, item)
    return total


def _largest(view: View, content: Dims) -> Number | None:
    return _folded(view.algebra.larger, content)


def _smallest(view: View, content: Dims) -> Number | None:
    return _folded(view.algebra.smaller, content)


def _folded(operation: Callable[[Number, Number], Number], content: Dims) -> Number | None:
    if not content:
        return None
    result = content[0]
    for item in content[1:]:
        result = operation(result, item)
    return result


def _range(view: View) -> Dims | None:
    bounds = [view.numbers(slot) for slot in range(3)]
    if any(bound is None or len(bound) != 1 for bound in bounds):
        return None
    start, limit, delta = (bound[0] for bound in bounds if bound)
    if delta == 0 or len(range(start, limit, delta)) > MOST_ELEMENTS:
        return None
    return tuple(range(start, limit, delta))


def _flattened(view: View) -> Dims | None:
    """Pass the elements on; the shape rule sees to it that the result is no matrix."""
    return view.content()


CONTENT_RULES: dict[str, Callable[[View], Dims | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Squeeze": _flattened,
    "Unsqueeze": _flattened,
    "Reshape": _flattened,
    "Flatten": _flattened,
    "Add": _pairwise(lambda _, a, b: add(a, b)),
    "Sub": _pairwise(_subtract),
    "Mul": _pairwise(lambda _, a, b: multiply(a, b)),
    "Div": _pairwise(_divide),
    "Mod": _pairwise(_mod),
    "Max": _pairwise(lambda view, a, b: view.algebra.larger(a, b)),
    "Min": _pairwise(lambda view, a, b: view.algebra.smaller(a, b)),
    "Equal": _pairwise(_equal),
    "Less": _pairwise(_less),
    "LessOrEqual": _pairwise(_less_or_equal),
    "Greater": _pairwise(lambda view, a, b: _less(view, b, a)),
    "GreaterOrEqual": _pairwise(lambda view, a, b: _less_or_equal(view, b, a)),
    "And": _pairwise(_and),
    "Or": _pairwise(_or),
    "Not": _not,
    "Neg": _negative,
    "Abs": _abs,
    "Where": _where,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "ReduceProd": _reduced(lambda _, content: product(content)),
    "ReduceSum": _reduced(_total),
    "ReduceMax": _reduced(_largest),
    "ReduceMin": _reduced(_smallest),
    "Range": _range,
}
"""By operator of the standard domain."""

BOOLEAN = frozenset(
    {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"}
)
"""The operators whose results are truth values."""

MEASURING = frozenset({"Shape", "Size"})
"""The operators that bring sizes into a computation; nodes before the first need no look."""
