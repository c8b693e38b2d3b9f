"""Shapes of what nodes make, and the whole numbers that exporters compute from shapes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from dplcli.ir import Tensor, operators
from dplcli.ir.operators import attribute_of, inputs_of
from dplcli.shapes.terms import Term, add, divide, multiply, negative

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Node, Value
    from dplcli.shapes.terms import Algebra, Number

    Dims: TypeAlias = tuple[Number, ...]

    PartlyKnown: TypeAlias = Sequence[Number | None]

    Shapes: TypeAlias = Sequence[PartlyKnown | None]

    ShapeRule: TypeAlias = "Callable[[View], Shapes]"


# A node as the rules for shapes and contents see it.


class Fact(NamedTuple):
    """What is known of a value.

    Attributes:
        dtype: Name of the element type, or None.
        shape: Its dimensions; None if even the rank is unknown.
        content: The elements of a scalar or vector of whole numbers or truth values.
        array: All elements, if they are few and can only have these values.
    """

    dtype: str | None = None
    shape: Dims | None = None
    content: Dims | None = None
    array: NDArray[Any] | None = None


NOTHING = Fact()
"""What is known of a value of which no rule or type says anything."""

WHOLE = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}
)
"""The element types that contents are kept of."""

MOST_ELEMENTS = 64
"""Longer vectors are no shapes."""


class UnknownError(Exception):  # an answer: rules and their caller do not let it out
    """A rule asks for what is not known, and so says nothing."""


Found = TypeVar("Found")


def known(found: Found | None) -> Found:
    """Return what is there.

    Raises:
        UnknownError: It is None.
    """
    if found is None:
        raise UnknownError
    return found


class View:
    """A node with the facts about its inputs.

    What a rule asks for and is not known raises :class:`UnknownError`.

    Attributes:
        node: The node.
        op_type: Its operator.
        algebra: What to compute with.
    """

    def __init__(self, node: Node, algebra: Algebra, fact_of: Callable[[Value], Fact]) -> None:
        self.node = node
        self.op_type = node.op_type
        self.algebra = algebra
        self._values = inputs_of(node)
        self._facts = [NOTHING if value is None else fact_of(value) for value in self._values]

    @property
    def count(self) -> int:
        """The number of inputs."""
        return len(self._facts)

    def has(self, slot: int) -> bool:
        """Tell whether an input is present."""
        return slot < len(self._values) and self._values[slot] is not None

    def fact(self, slot: int = 0) -> Fact:
        """Return what is known of an input."""
        return self._facts[slot] if slot < len(self._facts) else NOTHING

    def shape(self, slot: int = 0) -> Dims:
        """Return the dimensions of an input."""
        return known(self.fact(slot).shape)

    def content(self, slot: int = 0) -> Dims:
        """Return the elements of an input."""
        return known(self.fact(slot).content)

    def vector(self, slot: int = 0) -> Dims:
        """Return the elements of an input with one axis."""
        if len(self.shape(slot)) != 1:
            raise UnknownError
        return self.content(slot)

    def scalar(self, slot: int) -> Number | None:
        """Return the only element of an input; None if that is not known."""
        content = self.fact(slot).content
        return content[0] if content is not None and len(content) == 1 else None

    def numbers(self, slot: int) -> list[int]:
        """Return the elements of an input, all of which are plain numbers."""
        content = self.content(slot)
        numbers = [item for item in content if isinstance(item, int)]
        if len(numbers) < len(content):
            raise UnknownError
        return numbers

    def constant(self, slot: int) -> list[float] | None:
        """Return the elements of a small constant input of any number type."""
        value = self._values[slot] if slot < len(self._values) else None
        tensor = None if value is None else value.constant
        if tensor is None or tensor.size > MOST_ELEMENTS or tensor.is_external:
            return None
        data = tensor.numpy()
        return [float(item) for item in data.ravel()] if data.dtype.kind in "iufb" else None

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole-number attribute."""
        attribute = attribute_of(self.node, name)
        value = default if attribute is None else None if attribute.ref else attribute.value
        if not isinstance(value, int):
            raise UnknownError
        return value

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of whole numbers; None if it is not known."""
        attribute = attribute_of(self.node, name)
        if attribute is None or attribute.ref or not isinstance(attribute.value, tuple):
            return None
        return [item for item in attribute.value if isinstance(item, int)]

    def text(self, name: str, default: str) -> str | None:
        """Return an attribute that is a text; None if it is not known."""
        attribute = attribute_of(self.node, name)
        if attribute is None:
            return default
        value = None if attribute.ref else attribute.value
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return value if isinstance(value, str) else None

    @property
    def fill(self) -> int:
        """The whole number that a ConstantOfShape repeats."""
        attribute = attribute_of(self.node, "value")
        tensor = None if attribute is None or attribute.ref else attribute.value
        if not isinstance(tensor, Tensor) or tensor.dtype not in WHOLE or tensor.size != 1:
            raise UnknownError
        return int(tensor.numpy().reshape(()).item())

    def axes(self, slot: int, rank: int) -> list[int]:
        """Return an input of axes, counted from the front."""
        numbers = self.numbers(slot)
        if not all(-rank <= axis < rank for axis in numbers):
            raise UnknownError
        return [axis % rank for axis in numbers]


# How dimensions combine: broadcasting, slicing, windows, and the target of a Reshape.


FAR = 2**31 - 1
"""From this number on an end means "to the end", whatever the dimension."""


def product(numbers: Iterable[Number]) -> Number:
    """Multiply numbers."""
    return reduce(multiply, numbers, _ONE)


def total(numbers: Iterable[Number]) -> Number:
    """Add up numbers."""
    return reduce(add, numbers, _NONE)


_NONE: Number = 0
_ONE: Number = 1


def broadcast(algebra: Algebra, shapes: Sequence[Dims]) -> Dims:
    """Return the shape that arrays of *shapes* broadcast to, if they do."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_dim(algebra, dims) for dims in zip(*padded, strict=True))


def _broadcast_dim(algebra: Algebra, dims: Sequence[Number]) -> Number:
    distinct = {dim for dim in dims if dim != 1}
    # a table that is cut to length is as long as what it is added to, else the model cannot run
    distinct -= {cut for cut in distinct for dim in distinct if algebra.is_cut_from(cut, dim)}
    if len(distinct) <= 1:
        return next(iter(distinct), 1)
    numbers = [dim for dim in distinct if isinstance(dim, int)]
    if numbers:
        return max(numbers)  # whatever else is not 1 must be the same
    return algebra.meet(frozenset(distinct))


def slice_length(
    algebra: Algebra, dim: Number, start: Number, end: Number, step: Number
) -> Number | None:
    """Return how many elements a Slice takes of *dim*; None if that cannot be said."""
    if not isinstance(step, int) or step == 0:
        return None
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, _python_end(end, step), step).indices(dim)))
    if step < 0:
        return None
    first, last = (_bound(algebra, dim, bound) for bound in (start, end))
    if first is None or last is None:
        return None
    length = algebra.larger(add(last, negative(first)), 0)
    return length if step == 1 else algebra.floor_divide(add(length, step - 1), step)


def _python_end(end: int, step: int) -> int | None:
    """Return an end for Python, where None ends a backward slice at the very beginning."""
    return None if step < 0 and end <= -FAR else end


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
        else:
            is_size = isinstance(wanted, int) or algebra.is_at_least(wanted, 0)
            dims.append(wanted if is_size else None)
    rest = [dim for dim in dims if dim is not None and dim != -1]
    if dims.count(-1) != 1 or len(rest) < len(dims) - 1 or shape is None:
        return [None if dim == -1 else dim for dim in dims]
    left = quotient(algebra, product(shape), product(rest))
    return [left if dim == -1 else dim for dim in dims]


def quotient(algebra: Algebra, total: Number, part: Number) -> Number:
    """Divide a number of elements by one that divides it."""
    exact = divide(total, part)
    return algebra.floor_divide(total, part) if exact is None else exact


# Shapes of what attention and its companions make, onnxruntime's own operators among them.
#
# onnx infers 0 for the last dimension of Attention where it is unknown, and knows nothing of
# onnxruntime's operators.


_HEADS_RANK = 4
_MASK, _PAST = 3, 4


def _same(view: View) -> Shapes:
    return [view.shape()]


def _meet_mask(view: View, slot: int, total: Number) -> None:
    """Note that a mask, if there is one, is as long as the keys are."""
    if mask := view.fact(slot).shape:
        _broadcast_dim(view.algebra, (mask[-1], total))


def _attention(view: View) -> Shapes:
    """Attention: the result, and keys and values behind those of the cache."""
    query, key, value = (view.shape(slot) for slot in range(3))
    past = view.fact(_PAST).shape
    kept: Number | None = 0 if not view.has(_PAST) else past[2] if past else None
    if kept is not None:
        _meet_mask(view, _MASK, add(kept, key[-2]))
    if len(query) == _HEADS_RANK:
        total = None if kept is None else add(kept, key[2])
        caches = [(*part[:2], total, part[3]) for part in (key, value)]
        return [(*query[:3], value[3]), *caches]
    size = divide(value[-1], view.integer("kv_num_heads", 0))
    width = None if size is None else multiply(size, view.integer("q_num_heads"))
    return [(*query[:2], width)]


def _multi_head_attention(view: View) -> Shapes:
    query, value = view.shape(0), view.shape(2)
    past = view.fact(6).shape or (0, 0, 0)
    _meet_mask(view, 5, add(value[-2], past[-2]))
    is_split = len(value) == _HEADS_RANK
    return [(*query[:2], multiply(value[1], value[3]) if is_split else value[-1])]


def _group_query_attention(view: View) -> Shapes:
    """GroupQueryAttention: the caches are as long as is told, which is past and present."""
    query, total, past = view.shape(0), view.scalar(6), view.fact(3).shape
    if total is not None and past is not None:
        _broadcast_dim(view.algebra, (total, add(past[-2], query[-2])))
    return [query] if view.has(1) else []


def _matmul_nbits(view: View) -> Shapes:
    """MatMulNBits: the columns of the packed weight are an attribute."""
    shape, columns = view.shape(), view.integer("N")
    return [(*shape[:-1], columns)] if shape else []


ATTENTION_RULES: dict[str, ShapeRule] = {"Attention": _attention, "RotaryEmbedding": _same}
"""Operators of the standard."""


# What whole numbers come to: the arithmetic that exporters do on shapes.
#
# A rule gets the view of a node and returns the elements of its first output, or None. Scalars
# and vectors only; every rule holds for any values of the atoms.


Content: TypeAlias = "Callable[[View], Dims | None]"


def _shape(view: View) -> Dims:
    shape = view.shape()
    return shape[view.integer("start", 0) : view.integer("end", len(shape))]


_CAST_TO = {6: 32, 7: 64}
"""ONNX's codes of int32 and int64, and their bits."""

_BOOL = 9


def _cast(view: View) -> Dims | None:
    content, code = view.content(), view.integer("to")
    if code == _BOOL:
        return tuple(1 - known(_equal(view, item, 0)) for item in content)
    if code not in _CAST_TO or view.fact().dtype in {"uint64", None}:
        return None
    limit = 2 ** (_CAST_TO[code] - 1)
    fits = all(isinstance(item, Term) or -limit <= item < limit for item in content)
    return content if fits else None


def _gather_content(view: View) -> Dims | None:
    content, indices = view.vector(), view.numbers(1)
    if not all(-len(content) <= index < len(content) for index in indices):
        return None
    return tuple(content[index] for index in indices)


def _slice_content(view: View) -> Dims | None:
    content, starts, ends = view.vector(), view.numbers(1), view.numbers(2)
    steps = view.numbers(4) if view.has(4) else [1]
    if [len(starts), len(ends), len(steps)] != [1, 1, 1] or steps[0] == 0:
        return None
    return content[starts[0] : _python_end(ends[0], steps[0]) : steps[0]]


def _split_content(view: View) -> Dims | None:
    """Return what the first output gets; the others have no content here."""
    content, lengths = view.content(), view.numbers(1)
    return content[: lengths[0]] if lengths else None


def _each(operation: Callable[[View, Number], Number | None]) -> Content:
    """Apply *operation* to each element."""
    return lambda view: _complete(operation(view, item) for item in view.content())


def _pairwise(operation: Callable[[View, Number, Number], Number | None]) -> Content:
    """Apply *operation* to elements at the same place, a single one standing for all."""

    def apply(view: View) -> Dims | None:
        result = view.content(0)
        for slot in range(1, view.count):
            pairs = _lined_up(result, view.content(slot))
            result = _complete(operation(view, first, second) for first, second in pairs)
        return result

    return apply


def _lined_up(*contents: Dims) -> Iterable[tuple[Number, ...]]:
    """Pair elements at the same place; a single one stands for all."""
    length = max(map(len, contents)) if all(contents) else 0
    if any(len(content) not in {1, length} for content in contents):
        raise UnknownError
    return zip(*(_stretched(content, length) for content in contents), strict=True)


def _stretched(content: Dims, length: int) -> Dims:
    return content * length if len(content) == 1 else content


def _complete(items: Iterable[Number | None]) -> Dims:
    """Return elements all of which are known."""
    items = tuple(items)
    sizes = tuple(item for item in items if item is not None)
    if len(sizes) < len(items):
        raise UnknownError
    return sizes


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


def _logical(deciding: int) -> Content:
    """Return And or Or: one operand that is *deciding* decides, else the other one does."""

    def apply(_view: View, first: Number, second: Number) -> Number | None:
        if deciding in (first, second):
            return deciding
        neutral = 1 - deciding
        return second if first == neutral else first if second == neutral else None

    return _pairwise(apply)


def _abs(view: View, item: Number) -> Number | None:
    if isinstance(item, int):
        return abs(item)
    return item if view.algebra.is_at_least(item, 0) else None


def _where(view: View) -> Dims:
    return _complete(
        yes if condition == 1 or yes == no else no if condition == 0 else None
        for condition, yes, no in _lined_up(*(view.content(slot) for slot in range(3)))
    )


def _expand_content(view: View) -> Dims | None:
    content, target = view.content(0), view.numbers(1)
    wanted = max([*target, len(content)])
    if len(target) > 1 or len(content) not in {1, wanted} or 0 in target or wanted > MOST_ELEMENTS:
        return None
    return _stretched(content, wanted)


def _constant_of_shape_content(view: View) -> Dims | None:
    target = view.numbers(0)
    if len(target) > 1 or max(target, default=1) > MOST_ELEMENTS:
        return None
    return (view.fill,) * (target[0] if target else 1)


def _reduced(operation: Callable[[View, Dims], Number]) -> Content:
    """Apply *operation* to a whole vector."""

    def apply(view: View) -> Dims | None:
        content = view.vector()
        if view.has(1) and view.numbers(1) not in ([0], [-1]):
            return None
        if view.integer("noop_with_empty_axes", 0):
            return None
        return (operation(view, content),)

    return apply


def _chosen(choose: Callable[[Algebra], Callable[[Number, Number], Number]]) -> Content:
    """Return the largest or the smallest element of a vector, which must have one."""

    def fold(view: View, content: Dims) -> Number:
        if not content:
            raise UnknownError
        return reduce(choose(view.algebra), content)

    return _reduced(fold)


def _range_content(view: View) -> Dims | None:
    bounds = [view.numbers(slot) for slot in range(3)]
    if any(len(bound) != 1 for bound in bounds):
        return None
    start, limit, delta = (bound[0] for bound in bounds)
    if delta == 0 or len(range(start, limit, delta)) > MOST_ELEMENTS:
        return None
    return tuple(range(start, limit, delta))


CONTENT_RULES: dict[str, Content] = {
    # the shape rule sees to it that the result is no matrix
    **dict.fromkeys(operators.RESHAPING | {"Identity"}, lambda view: view.content()),
    "Shape": _shape,
    "Size": lambda view: (product(view.shape()),),
    "Cast": _cast,
    "Gather": _gather_content,
    "Slice": _slice_content,
    "Concat": lambda view: tuple(item for n in range(view.count) for item in view.vector(n)),
    "Split": _split_content,
    "Add": _pairwise(lambda _, a, b: add(a, b)),
    "Sub": _pairwise(lambda _, a, b: add(a, negative(b))),
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
    "And": _logical(0),
    "Or": _logical(1),
    "Not": _each(lambda _, item: add(1, negative(item))),
    "Neg": _each(lambda _, item: negative(item)),
    "Abs": _each(_abs),
    "Where": _where,
    "Expand": _expand_content,
    "ConstantOfShape": _constant_of_shape_content,
    "ReduceProd": _reduced(lambda _, content: product(content)),
    "ReduceSum": _reduced(lambda _, content: total(content)),
    "ReduceMax": _chosen(lambda algebra: algebra.larger),
    "ReduceMin": _chosen(lambda algebra: algebra.smaller),
    "Range": _range_content,
}
"""By operator of the standard domain."""

# Shapes of what a node makes, from those of what it reads, for any values of the atoms.
#
# A rule gets the view of a node and returns the shapes of its outputs; None stands for a shape, or
# a dimension, that the rule cannot tell. The schemas' own inference does operators without a rule.


_MATRIX = 2


def _broadcast(view: View) -> Shapes:
    return [broadcast(view.algebra, [view.shape(slot) for slot in range(view.count)])]


def _matmul(view: View) -> Shapes:
    a, b = view.shape(0), view.shape(1)
    if not a or not b:
        return []
    left, right = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    dims: Dims = broadcast(view.algebra, [left[:-2], right[:-2]])
    dims += (left[-2],) * (len(a) > 1) + (right[-1],) * (len(b) > 1)
    return [dims]


def _gemm(view: View) -> Shapes:
    a, b = view.shape(0), view.shape(1)
    if len(a) != _MATRIX or len(b) != _MATRIX:
        return []
    return [(a[1 if view.integer("transA", 0) else 0], b[0 if view.integer("transB", 0) else 1])]


def _transpose(view: View) -> Shapes:
    shape, perm = view.shape(), view.integers("perm")
    order = list(reversed(range(len(shape)))) if perm is None else perm
    return [[shape[axis] for axis in order]] if sorted(order) == [*range(len(shape))] else []


def _reshape(view: View) -> Shapes:
    target = view.fact(1).content
    if target is None:
        (length,) = view.shape(1) if len(view.shape(1)) == 1 else (None,)
        return [[None] * length] if isinstance(length, int) else []
    copies = view.integer("allowzero", 0) == 0
    return [reshaped(view.algebra, view.fact().shape, target, copies=copies)]


def _flatten(view: View) -> Shapes:
    shape, axis = view.shape(), view.integer("axis", 1)
    cut = axis + len(shape) if axis < 0 else axis
    return [(product(shape[:cut]), product(shape[cut:]))]


def _squeeze(view: View) -> Shapes:
    shape = view.shape()
    if not view.has(1):
        return [[d for d in shape if d != 1]] if all(isinstance(d, int) for d in shape) else []
    axes = view.axes(1, len(shape))
    return [[d for axis, d in enumerate(shape) if axis not in axes]]


def _unsqueeze(view: View) -> Shapes:
    shape = view.shape()
    rank = len(shape) + len(view.numbers(1))
    axes = view.axes(1, rank)
    if len(set(axes)) < len(axes):
        return []
    rest = iter(shape)
    return [[1 if axis in axes else next(rest) for axis in range(rank)]]


def _concat_shape(view: View) -> Shapes:
    shapes = [view.shape(slot) for slot in range(view.count)]
    axis = view.integer("axis")
    if len({len(shape) for shape in shapes}) != 1 or not -len(shapes[0]) <= axis < len(shapes[0]):
        return []
    merged = [_best(dims) for dims in zip(*shapes, strict=True)]
    merged[axis] = total(shape[axis] for shape in shapes)
    return [merged]


def _best(dims: Sequence[Number]) -> Number:
    """Return the one of several equal dimensions that says most."""
    return next((dim for dim in dims if isinstance(dim, int)), dims[0])


def _slice_shape(view: View) -> Shapes:
    shape = view.shape()
    dims: list[Number | None] = list(shape)
    try:
        starts, ends = view.content(1), view.content(2)
        axes = view.axes(3, len(shape)) if view.has(3) else range(len(starts))
        steps = view.content(4) if view.has(4) else (1,) * len(starts)
    except UnknownError:
        return [[None] * len(shape)]
    if not len(starts) == len(ends) == len(axes) == len(steps):
        return [[None] * len(shape)]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dims[axis] = slice_length(view.algebra, shape[axis], start, end, step)
    return [dims]


def _gather_shape(view: View) -> Shapes:
    data, indices, axis = view.shape(0), view.shape(1), view.integer("axis", 0)
    return [_with(data, axis, *indices)] if data else []


def _with(shape: Dims, axis: int, *dims: Number | None) -> PartlyKnown:
    """Put *dims* in the place of one dimension."""
    place = axis % len(shape)
    return (*shape[:place], *dims, *shape[place + 1 :])


def _gather_nd(view: View) -> Shapes:
    data, indices, batch = view.shape(0), view.shape(1), view.integer("batch_dims", 0)
    if not indices or not isinstance(indices[-1], int):
        return []
    return [(*indices[:-1], *data[batch + indices[-1] :])]


def _split_shape(view: View) -> Shapes:
    shape, axis, lengths = view.shape(), view.integer("axis", 0), view.fact(1).content
    count = len(view.node.outputs)
    if not shape:
        return []
    dim = shape[axis]
    parts: PartlyKnown
    if count == 1:
        parts = [dim]
    elif lengths is not None and len(lengths) == count:
        parts = lengths
    elif view.has(1) or not isinstance(dim, int):
        parts = [None] * count
    else:
        size = -(-dim // count)
        parts = [min(size, dim - size * number) for number in range(count)]
    return [_with(shape, axis, part) for part in parts]


def _expand_shape(view: View) -> Shapes:
    shape, target = view.shape(0), view.content(1)
    if any(not view.algebra.is_at_least(dim, 0) for dim in target):
        return [[None] * max(len(shape), len(target))]
    return [broadcast(view.algebra, [shape, target])]


def _tile(view: View) -> Shapes:
    shape, repeats = view.shape(0), view.content(1)
    if len(repeats) != len(shape):
        return []
    return [[multiply(dim, times) for dim, times in zip(shape, repeats, strict=True)]]


def _pad(view: View) -> Shapes:
    shape, pads = view.shape(0), view.fact(1).content
    if pads is None:
        return [[None] * len(shape)]
    axes = view.axes(3, len(shape)) if view.has(3) else list(range(len(shape)))
    if len(pads) != 2 * len(axes):
        return []
    dims = list(shape)
    for number, axis in enumerate(axes):
        dims[axis] = add(add(shape[axis], pads[number]), pads[number + len(axes)])
    return [dims]


def _vector(view: View) -> Shapes:
    """Shape: a vector as long as the rank, or a part of that."""
    try:
        return [(len(_shape(view)),)]
    except UnknownError:
        return [[None]]


def _constant_of_shape_shape(view: View) -> Shapes:
    return [[dim if view.algebra.is_at_least(dim, 0) else None for dim in view.content(0)]]


def _range_shape(view: View) -> Shapes:
    start, limit, delta = (view.scalar(slot) for slot in range(3))
    if start is None or limit is None or not isinstance(delta, int) or delta <= 0:
        return [[None]]
    length = view.algebra.larger(add(limit, negative(start)), 0)
    return [(length if delta == 1 else view.algebra.floor_divide(add(length, delta - 1), delta),)]


def _reduce(view: View) -> Shapes:
    shape, keep = view.shape(), view.integer("keepdims", 1)
    axes = view.axes(1, len(shape)) if view.has(1) else []
    if not axes and view.integer("noop_with_empty_axes", 0):
        return [shape]
    return [_without(shape, axes or range(len(shape)), keep=bool(keep))]


def _arg(view: View) -> Shapes:
    shape, axis, keep = view.shape(), view.integer("axis", 0), view.integer("keepdims", 1)
    return [_without(shape, [axis % len(shape)], keep=bool(keep))] if shape else []


def _without(shape: Dims, axes: Sequence[int], *, keep: bool) -> Dims:
    return tuple(
        1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes
    )


def _one_hot(view: View) -> Shapes:
    indices, depth, axis = view.shape(0), view.scalar(1), view.integer("axis", -1)
    place = axis + len(indices) + 1 if axis < 0 else axis
    return [(*indices[:place], depth, *indices[place:])]


def _top_k(view: View) -> Shapes:
    shape, count, axis = view.shape(), view.scalar(1), view.integer("axis", -1)
    return [_with(shape, axis, count)] * 2 if shape else []


def _resize(view: View) -> Shapes:
    shape = view.shape()
    if view.integers("axes") is not None:
        return []
    is_old = view.op_type == "Upsample" or view.count == _MATRIX
    sizes = None if is_old else view.fact(3).content
    if sizes:
        is_stretched = view.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        return [sizes] if is_stretched else []
    scales = view.constant(1 if is_old else 2)
    if scales is None or len(scales) != len(shape):
        return [[None] * len(shape)]
    return [[_scaled(dim, scale) for dim, scale in zip(shape, scales, strict=True)]]


def _scaled(dim: Number, scale: float) -> Number | None:
    if scale == int(scale):
        return multiply(dim, int(scale))
    return int(dim * scale) if isinstance(dim, int) else None


def _einsum(view: View) -> Shapes:
    equation = view.text("equation", "")
    if not equation or "." in equation:
        return []
    left, _, right = equation.replace(" ", "").partition("->")
    dims: dict[str, Number] = {}
    for slot, labels in enumerate(left.split(",")):
        shape = view.shape(slot)
        if len(shape) != len(labels):
            return []
        for label, dim in zip(labels, shape, strict=True):
            dims[label] = _best([dim, dims.get(label, dim)])
    if not right or not set(right) <= dims.keys():
        return []
    return [[dims[label] for label in right]]


def _depth_to_space(view: View) -> Shapes:
    shape, block = view.shape(), view.integer("blocksize")
    if len(shape) != 4:  # noqa: PLR2004  # images only
        return []
    n, c, h, w = shape
    area = block * block
    return [(n, quotient(view.algebra, c, area), multiply(h, block), multiply(w, block))]


def _recurrent(view: View) -> Shapes:
    data, weights = view.shape(0), view.shape(2)
    if view.integer("layout", 0) != 0 or len(data) != 3 or len(weights) != 3:  # noqa: PLR2004  # both have three axes
        return []
    state = (weights[0], data[1], weights[2])
    return [(data[0], weights[0], data[1], weights[2]), state, state]


SHAPE_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(operators.KEEPS_SHAPE - operators.OP_KINDS["elementwise"], _same),
    **dict.fromkeys(operators.BROADCASTING, _broadcast),
    **dict.fromkeys(operators.REDUCTIONS, _reduce),
    "Dropout": lambda view: [view.shape()] * len(view.node.outputs),
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat_shape,
    "Slice": _slice_shape,
    "Gather": _gather_shape,
    "GatherElements": lambda view: [view.shape(1)],
    "GatherND": _gather_nd,
    "Split": _split_shape,
    "Expand": _expand_shape,
    "Tile": _tile,
    "Pad": _pad,
    "Shape": _vector,
    "Size": lambda _: [()],
    "ConstantOfShape": _constant_of_shape_shape,
    "Range": _range_shape,
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    "NonZero": lambda view: [(len(view.shape()), None)],
    "OneHot": _one_hot,
    "TopK": _top_k,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Einsum": _einsum,
    "DepthToSpace": _depth_to_space,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
}
"""By operator of the standard domain; element-wise operators need none."""


# Shapes of convolutions and pools: windows that move over the spatial axes.


_SPATIAL = 2
"""The first spatial axis."""


def conv(view: View) -> Shapes:
    """Conv and ConvInteger."""
    shape, weight = view.shape(0), view.shape(1)
    if len(weight) != len(shape) or len(shape) < _SPATIAL:
        return []
    return [(shape[0], weight[0], *_moved(view, shape, weight[_SPATIAL:]))]


def pool(view: View) -> Shapes:
    """MaxPool, AveragePool and LpPool, and the places of the maxima."""
    shape, kernel = view.shape(0), known(view.integers("kernel_shape"))
    if len(shape) != len(kernel) + _SPATIAL or view.integer("ceil_mode", 0) != 0:
        return []
    dims = (*shape[:_SPATIAL], *_moved(view, shape, kernel))
    return [dims] * len(view.node.outputs)


def global_pool(view: View) -> Shapes:
    """The pools over all that there is."""
    shape = view.shape()
    return [(*shape[:_SPATIAL], *(1 for _ in shape[_SPATIAL:]))]


def conv_transpose(view: View) -> Shapes:
    """ConvTranspose with pads that are stated."""
    shape, weight, group = view.shape(0), view.shape(1), view.integer("group", 1)
    if len(weight) != len(shape):
        return []
    count = len(shape) - _SPATIAL
    dims: list[Number | None] = [None] * count
    if view.text("auto_pad", "NOTSET") == "NOTSET" and view.integers("output_shape") is None:
        strides, dilations = (_listed(view, name, count, 1) for name in ("strides", "dilations"))
        more, paddings = _listed(view, "output_padding", count, 0), _paddings(view, count)
        for place, dim in enumerate(shape[_SPATIAL:]):
            span = _span(weight[_SPATIAL + place], dilations[place])
            last = multiply(add(dim, -1), strides[place])
            dims[place] = add(add(last, span), more[place] - paddings[place])
    return [(shape[0], multiply(weight[1], group), *dims)]


def _span(kernel: Number, dilation: int) -> Number:
    """Return how far a kernel reaches."""
    return add(multiply(dilation, add(kernel, -1)), 1)


def _moved(view: View, shape: Dims, kernel: Sequence[Number]) -> PartlyKnown:
    count = len(kernel)
    strides, dilations = (_listed(view, name, count, 1) for name in ("strides", "dilations"))
    mode = view.text("auto_pad", "NOTSET")
    if mode in {"SAME_UPPER", "SAME_LOWER"}:
        pairs = zip(shape[_SPATIAL:], strides, strict=True)
        return [view.algebra.floor_divide(add(dim, step - 1), step) for dim, step in pairs]
    if mode not in {"NOTSET", "VALID"}:
        return [None] * count
    paddings = _paddings(view, count) if mode == "NOTSET" else [0] * count
    dims = []
    for place, dim in enumerate(shape[_SPATIAL:]):
        span = _span(kernel[place], dilations[place])
        room = add(add(dim, paddings[place]), negative(span))
        dims.append(add(view.algebra.floor_divide(room, strides[place]), 1))
    return dims


def _listed(view: View, name: str, count: int, default: int) -> list[int]:
    given = view.integers(name)
    return given if given is not None and len(given) == count else [default] * count


def _paddings(view: View, count: int) -> list[int]:
    pads = _listed(view, "pads", 2 * count, 0)
    return [before + after for before, after in zip(pads[:count], pads[count:], strict=True)]


WINDOW_RULES = {
    **dict.fromkeys(("Conv", "ConvInteger"), conv),
    "ConvTranspose": conv_transpose,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), pool),
    **dict.fromkeys(operators.GLOBAL_POOLS, global_pool),
}
"""By operator of the standard domain."""


# Shapes of what onnxruntime's fusions make, of operators of its own.


def _packed_attention(view: View) -> Shapes:
    """Attention with one weight for queries, keys and values."""
    shape, sizes = view.shape(), view.integers("qkv_hidden_sizes")
    past = view.fact(_PAST).shape
    if past is not None and len(view.fact(_MASK).shape or ()) > 1:
        _meet_mask(view, _MASK, add(past[-2], shape[-2]))
    if sizes is not None:
        return [(*shape[:-1], sizes[-1])]
    weight = view.shape(1)
    return [(*shape[:-1], divide(weight[-1], 3))]


def _skip_normalization(view: View) -> Shapes:
    """Return the result, mean and scale of each row, and the sum that was normalized."""
    shape = view.shape()
    of_row = (*shape[:-1], 1)
    return [shape, of_row, of_row, shape]


def _fused_matmul(view: View) -> Shapes:
    if view.integer("transBatchA", 0) or view.integer("transBatchB", 0):
        return []
    sides = [view.shape(0), view.shape(1)]
    if min(map(len, sides)) < _MATRIX:
        return []
    for slot, name in enumerate(("transA", "transB")):
        if view.integer(name, 0):
            *batch, rows, columns = sides[slot]
            sides[slot] = (*batch, columns, rows)
    a, b = sides
    return [(*broadcast(view.algebra, [a[:-2], b[:-2]]), a[-2], b[-1])]


def _quantized_global_pool(view: View) -> Shapes:
    batch, *inner = view.shape()
    ones = [1] * (len(inner) - 1)
    is_last = view.integer("channels_last", 0)
    return [(batch, *ones, inner[-1]) if is_last else (batch, inner[0], *ones)]


_OF_ONNXRUNTIME: dict[str, ShapeRule] = {
    **dict.fromkeys(operators.CONTRIB_KEEPS_SHAPE, _same),
    "Attention": _packed_attention,
    "EmbedLayerNormalization": lambda view: [(*view.shape(0), view.shape(2)[-1])],
    "FusedConv": conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _fused_matmul,
    "GroupQueryAttention": _group_query_attention,
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _multi_head_attention,
    "QLinearGlobalAveragePool": _quantized_global_pool,
    **dict.fromkeys(
        operators.CONTRIB_QUANTIZED,
        lambda view: [broadcast(view.algebra, [view.shape(0), view.shape(3)])],
    ),
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_normalization
    ),
}

DOMAIN_RULES: dict[str, dict[str, ShapeRule]] = {
    "com.microsoft": _OF_ONNXRUNTIME,
    "ai.onnx.ml": dict.fromkeys(operators.ML_KEEPS_SHAPE, _same),
}
"""By domain, if it is not the standard one, and operator."""
