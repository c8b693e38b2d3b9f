"""Arrays that are computed a block at a time, as weights are too large to have copies of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.ir.types import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dplcli.ir import Tensor

    Array = NDArray[Any]
    Read = Callable[[int, int], Array]


class LazyArray:
    """An array that is not there yet: it is computed when somebody wants its numbers.

    It notes operations, and does them for one block after the other. So only the result is ever in
    memory as a whole. It becomes an array where numpy needs one.

    Args:
        shape: The dimensions.
        read: Returns the elements from one to another one, in order, (n,).
    """

    __slots__ = ("read", "shape")

    def __init__(self, shape: tuple[int, ...], read: Read) -> None:
        self.shape = shape
        self.read = read

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, which one element tells."""
        return self.read(0, 1).dtype

    def reshape(self, dims: tuple[int, ...] | list[int]) -> LazyArray:
        """Give it other dimensions; one of them may be -1."""
        return LazyArray(np.broadcast_to(np.empty(()), self.shape).reshape(dims).shape, self.read)

    def mapped(self, function: Callable[[Array], Array]) -> LazyArray:
        """Apply *function* to every element."""
        read = self.read
        return LazyArray(self.shape, lambda begin, end: function(read(begin, end)))

    def reduced(self, function: Callable[[Array], Any]) -> Any:  # noqa: ANN401  # any element
        """Reduce it to one element, by what may be applied to parts first: all, any, min, max."""
        return function(np.array([function(block) for _, block in self._blocks()]))

    def whole(self) -> Array:
        """Compute all of it."""
        array: Array | None = None
        for begin, block in self._blocks():
            if array is None:
                array = np.empty(self.size, block.dtype)
            array[begin : begin + block.size] = block
        return np.empty(self.shape) if array is None else array.reshape(self.shape)

    def _blocks(self) -> Iterator[tuple[int, Array]]:
        for begin in range(0, self.size, CHUNK):
            yield begin, self.read(begin, min(begin + CHUNK, self.size))

    # What Python and numpy do with an array.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401, FBT001  # numpy's
        """Compute all of it."""
        return np.asarray(self.whole(), dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  # as an array takes them
        return self.whole()[key]

    def __neg__(self) -> LazyArray:
        return self.mapped(np.negative)

    def __invert__(self) -> LazyArray:
        return self.mapped(np.invert)

    def __abs__(self) -> LazyArray:
        return self.mapped(np.abs)

    def __bool__(self) -> bool:
        """Refuse to be true or false, as arrays do."""
        return bool(np.empty(2))


def data_of(tensor: Tensor) -> Array | LazyArray:
    """Return the data of a constant: in blocks if it is large."""
    if tensor.size <= CHUNK or tensor.dtype == "string":
        return tensor.numpy()
    return LazyArray(tensor.shape, tensor.reader())


def combined(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> LazyArray:  # noqa: ANN401  # numbers, too
    """Apply *operation* to the elements of two operands; at least one of them is in blocks."""
    shapes = [
        item.shape if isinstance(item, LazyArray) else np.shape(item) for item in (left, right)
    ]
    shape = np.broadcast_shapes(*shapes)
    first, second = _reader(left, shape), _reader(right, shape)
    return LazyArray(shape, lambda begin, end: operation(first(begin, end), second(begin, end)))


def _reader(operand: Any, shape: tuple[int, ...]) -> Callable[[int, int], Any]:  # noqa: ANN401  # a number, too
    """Return what reads the elements of an operand that is broadcast to *shape*."""
    if isinstance(operand, LazyArray) and operand.shape == shape:
        return operand.read
    if isinstance(operand, (int, float)):  # its type is that of the other operand
        return lambda _begin, _end: operand
    array = np.asarray(operand)
    if array.size == 1:
        return lambda _begin, _end: array.reshape(())
    view = np.broadcast_to(array, shape)
    return lambda begin, end: _elements(view, begin, end)


def _elements(view: Array, begin: int, end: int) -> Array:
    """Return the elements from one to another one, in order, (n,); no others are copied."""
    if view.ndim == 1:
        return view[begin:end]
    row = view[0].size
    first, last = -(-begin // row), end // row  # the rows of which all is wanted
    if first > last:
        return _elements(view[last], begin - last * row, end - last * row)
    parts = [view[first:last].reshape(-1)]
    if begin < first * row:
        parts.insert(0, _elements(view[first - 1], begin - (first - 1) * row, row))
    if end > last * row:
        parts.append(_elements(view[last], 0, end - last * row))
    return np.concatenate(parts)
