"""How dimensions combine: broadcasting, slicing, windows, and the target of a Reshape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.shapes.terms import add, divide, multiply, negative

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.dpl.shapes.terms import Algebra, Number
    from dplcli.dpl.shapes.view import Dims

FAR = 2**31 - 1
"""From this number on an end means "to the end", whatever the dimension."""


def product(numbers: Iterable[Number]) -> Number:
    """Multiply numbers."""
    total: Number = 1
    for number in numbers:
        total = multiply(total, number)
    return total


def broadcast(algebra: Algebra, shapes: Sequence[Dims]) -> Dims:
    """Return the shape that arrays of *shapes* broadcast to, if they do."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_dim(algebra, dims) for dims in zip(*padded, strict=True))


def _broadcast_dim(algebra: Algebra, dims: Sequence[Number]) -> Number:
    distinct = {dim for dim in dims if dim != 1}
    # a table cut to length is as long as what it meets, else the model does not run
    distinct -= {cut for cut in distinct for dim in distinct if algebra.is_cut_from(cut, dim)}
    if len(distinct) <= 1:
        return next(iter(distinct), 1)
    numbers = [dim for dim in distinct if isinstance(dim, int)]
    if numbers:
        return max(numbers)  # whatever else is not 1 must be the same
    return algebra.atom(("broadcast", frozenset(distinct)), low=0)


def slice_length(
    algebra: Algebra, dim: Number, start: Number, end: Number, step: Number
) -> Number | None:
    """Return how many elements a Slice takes of *dim*; None if that cannot be said."""
    if not isinstance(step, int) or step == 0:
        return None
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(*_python_bounds(start, end, step), step).indices(dim)))
    if step < 0:
        return None
    first, last = (_bound(algebra, dim, bound) for bound in (start, end))
    if first is None or last is None:
        return None
    length = algebra.larger(add(last, negative(first)), 0)
    return length if step == 1 else algebra.floor_divide(add(length, step - 1), step)


def _python_bounds(start: int, end: int, step: int) -> tuple[int, int | None]:
    """Say in Python's words that a backward slice goes to the very beginning."""
    return start, (None if step < 0 and end <= -FAR else end)


def _bound(algebra: Algebra, dim: Number, bound: Number) -> Number | None:
    if isinstance(bound, int) and bound >= FAR:
        return dim
    if algebra.is_at_least(bound, 0):
        return algebra.smaller(bound, dim)
    if isinstance(bound, int):
        return algebra.larger(add(dim, bound), 0)
    return None


def reshaped(
    algebra: Algebra, shape: Dims | None, target: Dims, *, copies: bool
) -> list[Number | None]:
    """Return the dimensions that a Reshape gives.

    Args:
        algebra: What to compute with.
        shape: The dimensions before.
        target: The elements of the second input.
        copies: Whether 0 stands for the dimension that was at its place.
    """
    dims: list[Number | None] = []
    for axis, wanted in enumerate(target):
        if wanted == 0 and copies:
            dims.append(shape[axis] if shape is not None and axis < len(shape) else None)
        elif isinstance(wanted, int):
            dims.append(wanted)
        else:
            dims.append(wanted if algebra.is_at_least(wanted, 0) else None)
    rest = [dim for dim in dims if dim is not None and dim != -1]
    if dims.count(-1) != 1 or len(rest) < len(dims) - 1 or shape is None:
        return [None if dim == -1 else dim for dim in dims]
    left = quotient(algebra, product(shape), product(rest))
    return [left if dim == -1 else dim for dim in dims]


def quotient(algebra: Algebra, total: Number, part: Number) -> Number:
    """Divide a number of elements by one that divides it."""
    exact = divide(total, part)
    return algebra.floor_divide(total, part) if exact is None else exact
