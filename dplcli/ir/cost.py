"""How much an operator computes: floating-point operations, estimated from shapes."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeAlias, cast

from dplcli.errors import DplError
from dplcli.ir.operators import OP_KINDS, attribute_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dplcli.ir.model import Node, Value
    from dplcli.ir.types import Shape

    Shapes: TypeAlias = Callable[[Value], Shape | None]

    Formula: TypeAlias = "Callable[[Operation], int]"


# A node and the sizes of what it reads and makes, for formulas over them.


class UnknownCostError(Exception):
    """What a node costs is not known."""


class Operation:
    """A node and the shapes of what it reads and makes.

    Args:
        node: The node.
        shapes: Tells the shape of a value.
    """

    __slots__ = ("_shapes", "node")

    def __init__(self, node: Node, shapes: Shapes) -> None:
        self.node = node
        self._shapes = shapes

    @property
    def arity(self) -> int:
        """How many inputs are given."""
        return sum(value is not None for value in self.node.inputs)

    def has(self, slot: int) -> bool:
        """Whether an input is given."""
        return slot < len(self.node.inputs) and self.node.inputs[slot] is not None

    def read(self, slot: int = 0) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            UnknownCostError: It is not known, or there is no such input.
        """
        return self._shape(self.node.inputs[slot] if slot < len(self.node.inputs) else None)

    def made(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output.

        Raises:
            UnknownCostError: It is not known, or there is no such output.
        """
        return self._shape(self.node.outputs[index] if index < len(self.node.outputs) else None)

    def size_read(self, slot: int = 0) -> int:
        """Return how many elements an input has."""
        return prod(self.read(slot))

    def size_made(self, index: int = 0) -> int:
        """Return how many elements an output has."""
        return prod(self.made(index))

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a string."""
        found = attribute_of(self.node, name)
        return str(found.value) if found is not None and found.value is not None else default

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute that is a whole number."""
        found = attribute_of(self.node, name)
        return found.value if found is not None and isinstance(found.value, int) else default

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of whole numbers.

        Raises:
            UnknownCostError: There is none.
        """
        found = attribute_of(self.node, name)
        if found is None or not isinstance(found.value, tuple):
            raise UnknownCostError(name)
        return tuple(int(item) for item in found.value)

    def _shape(self, value: Value | None) -> tuple[int, ...]:
        shape = None if value is None else self._shapes(value)
        if shape is None:
            raise UnknownCostError
        for dim in shape:
            if type(dim) is not int or dim < 0:
                raise UnknownCostError
        return cast("tuple[int, ...]", shape)


# How much an operator computes: floating-point operations, estimated from shapes.
#
# A multiplication and an addition are two operations, so a matrix product of M x K by K x N is
# 2 M N K. Whatever works element by element (an activation, too) is one operation for each element
# it makes; moving, gathering and converting data is none. Integers count like other numbers. Bodies
# of Loop, Scan and If count once, node by node.


_LARGEST = 10**24
"""Beyond any computer: sizes that give more are slips, or malice."""

_SOFTMAX = 5
"""For each element: largest, difference, exponential, sum, quotient."""
_STANDARDISE = 5
"""For each element: sum, difference, square, sum of squares, product with a factor."""

# -- matrix products and convolutions --------------------------------------------------------------


def _convolution(op: Operation, weight: int = 1, bias: int = 2) -> int:
    """Count one product and one sum for each weight that an output element depends on."""
    made = op.size_made()
    return made * 2 * prod(op.read(weight)[1:]) + (made if op.has(bias) else 0)


def _transposed_convolution(op: Operation) -> int:
    """Count one product and one sum for each weight that an input element is multiplied with."""
    spread = 2 * op.size_read(0) * prod(op.read(1)[1:])
    return spread + (op.size_made() if op.has(2) else 0)


def _gemm(op: Operation) -> int:
    first = op.read(0)
    inner = first[0] if op.number("transA") else first[1]
    made = op.size_made()
    return made * 2 * inner + (made if op.has(2) else 0)


def _matmul(op: Operation) -> int:
    return 2 * op.size_made() * op.read(0)[-1]


def _fused_matmul(op: Operation) -> int:
    return 2 * op.size_made() * op.read(0)[-2 if op.number("transA") else -1]


def _matmul_n_bits(op: Operation) -> int:
    return 2 * op.size_made() * op.number("K") + (op.size_made() if op.has(5) else 0)


def _einsum(op: Operation) -> int:
    """Count, at each point of the indices' space, a product per further operand and a sum."""
    equation = op.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    for slot, term in enumerate(terms):
        for letter, size in zip(_letters(term, len(op.read(slot))), op.read(slot), strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    kept = set(_letters(right, len(op.made()))) if arrow else _once(terms, len(op.made()))
    is_sum = any(letter not in kept for letter in sizes)
    return prod(sizes.values()) * (len(terms) - 1 + is_sum)


def _letters(term: str, rank: int) -> list[str]:
    """Return an index per axis; those of an ellipsis are numbered from the last one."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    middle = [f".{index}" for index in range(hidden, 0, -1)] if dots else []
    return [*before, *middle, *after]


def _once(terms: Sequence[str], rank: int) -> set[str]:
    """Return the indices that an equation without an arrow keeps: those that it has once."""
    letters = "".join(terms).replace(".", "")
    hidden = {f".{index}" for index in range(1, rank + 1)}
    return {letter for letter in letters if letters.count(letter) == 1} | hidden


# -- attention -------------------------------------------------------------------------------------


def _scores(batches: int, queries: int, keys: int, width: int, value_width: int) -> int:
    """Count scaled products of queries and keys, their softmax, and products with the values.

    The widths are those of all heads together; *batches* counts heads for the softmax.
    """
    products = 2 * queries * keys * (width + value_width)
    return batches * (products + queries * keys * (1 + _SOFTMAX))


def _attention(op: Operation) -> int:
    """Count the standard's operator; each head of rank 4, or heads side by side in rank 3."""
    query, value, made = op.read(0), op.read(2), op.made()
    keys = value[-2] + (op.read(4)[-2] if op.has(4) else 0)
    if len(query) == len("BHLE"):
        batch, heads, queries, width = query
        return _scores(batch * heads, queries, keys, width, value[-1])
    heads = op.number("q_num_heads")
    batch, queries, width = query
    return _scores(batch * heads, queries, keys, width // heads, made[-1] // heads)


def _projected_attention(op: Operation) -> int:
    """Count com.microsoft.Attention: the projections of one input, then the attention."""
    batch, length, hidden = op.read(0)
    made, heads = op.read(1)[1], op.number("num_heads")
    width = op.made()[-1] // heads
    keys = length + (op.read(4)[-2] if op.has(4) else 0)
    projections = 2 * batch * length * hidden * made + batch * length * made * op.has(2)
    score_width = (made - op.made()[-1]) // (2 * heads)
    return projections + _scores(batch * heads, length, keys, score_width, width)


def _multi_head_attention(op: Operation) -> int:
    """Count com.microsoft.MultiHeadAttention with query, key and value of rank 3."""
    batch, queries, width = op.read(0)
    heads, keys = op.number("num_heads"), op.read(1)[1]
    value_width = op.read(2)[-1]
    added = batch * (queries * width + keys * (width + value_width)) if op.has(3) else 0
    return added + _scores(batch * heads, queries, keys, width // heads, value_width // heads)


# -- windows, reductions, normalisation ------------------------------------------------------------


def _pool(op: Operation, per_element: int = 1) -> int:
    return op.size_made() * prod(op.numbers("kernel_shape")) * per_element


def _per_read(op: Operation, per_element: int = 1) -> int:
    return op.size_read(0) * per_element


def _per_made(op: Operation, per_element: int = 1) -> int:
    return op.size_made() * per_element


def _local_response(op: Operation) -> int:
    return op.size_made() * (op.number("size") + 5)


def _layer_norm(op: Operation, per_element: int) -> int:
    """Count the standardising, then scale and shift as far as they are given."""
    return op.size_read(0) * (per_element + op.has(1) + op.has(2))


def _skip_layer_norm(op: Operation, per_element: int, bias: int) -> int:
    """Count the sum with the skipped input and bias, then the normalisation."""
    scale = op.has(2) + (op.has(3) if bias > 3 else 0)  # noqa: PLR2004  # slot of beta
    return op.size_read(0) * (1 + op.has(bias) + per_element + scale)


def _lp_norm(op: Operation) -> int:
    return 3 * op.size_made()


# -- element by element ----------------------------------------------------------------------------


def _variadic(op: Operation) -> int:
    return op.size_made() * max(op.arity - 1, 0)


def _mean(op: Operation) -> int:
    return op.size_made() * op.arity


def _bias_gelu(op: Operation) -> int:
    return op.size_made() * (1 + op.has(1))


def _resize(op: Operation) -> int:
    """Count a product and a sum for each neighbour that an output element is mixed from."""
    mode = op.text("mode", "nearest")
    if mode == "nearest":
        return 0
    read, made = op.read(0), op.made()
    axes = sum(before != after for before, after in zip(read, made, strict=True))
    per_axis = 4 if mode == "cubic" else 2
    return 2 * prod(made) * prod([per_axis] * axes) if axes else 0


def _grid_sample(op: Operation) -> int:
    mode = op.text("mode", "linear")
    per_axis = {"nearest": 0, "cubic": 4, "bicubic": 4}.get(mode, 2)
    return 2 * op.size_made() * prod([per_axis] * (len(op.made()) - 2))


def _nothing(op: Operation) -> int:
    del op
    return 0


# -- recurrent nets --------------------------------------------------------------------------------

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_BEYOND_GATES = {"RNN": 1, "GRU": 8, "LSTM": 9}
"""For each element of the state: activations, and what is made of the gates."""


def _recurrent(op: Operation) -> int:
    """Count the products with the input and the state, their sums, and the gates."""
    kind = op.node.op_type
    read, recurrence = op.read(0), op.read(2)
    directions, _, hidden = recurrence
    steps = directions * read[0] * read[1]
    gates = _GATES[kind] * hidden
    products = 2 * gates * (read[-1] + hidden)
    sums = gates * (3 if op.has(3) else 1)
    return steps * (products + sums + _BEYOND_GATES[kind] * hidden)


def _transform(op: Operation) -> int:
    """Count a fast Fourier transform: 5 N log2 N for each signal of N points, rounded up."""
    if op.has(2):
        raise UnknownCostError  # the axis is computed
    read = op.read(0)
    length = read[op.number("axis", -2)]
    return 5 * prod(read[:-1]) * max(length - 1, 1).bit_length()


# -- the tables ------------------------------------------------------------------------------------

_MOVING = """
    BitCast Cast CastLike Col2Im Compress ConcatFromSequence Constant ConstantOfShape Dropout Expand
    EyeLike Identity If Loop MaxUnpool NonZero OneHot Optional OptionalGetElement OptionalHasElement
    Range RegexFullMatch Scan Scatter ScatterElements ScatterND SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size SplitToSequence
    StringConcat StringNormalizer StringSplit TensorScatter Unsqueeze
"""
_RESAMPLING = frozenset({"Resize", "Upsample", "GridSample", "AffineGrid"})

_FREE = (OP_KINDS["injective"] - _RESAMPLING) | frozenset(_MOVING.split())
"""Operators that move, make or convert data."""

_REDUCTIONS = {
    "ReduceL2": 2,
    "ReduceL1": 2,
    "ReduceSumSquare": 2,
    "ReduceLogSumExp": 2,
} | dict.fromkeys(
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSum"), 1
)

STANDARD: Mapping[str, Formula] = {
    **dict.fromkeys(OP_KINDS["elementwise"] | OP_KINDS["broadcast"], _per_made),
    **dict.fromkeys(_FREE, _nothing),
    **{op: partial(_per_read, per_element=count) for op, count in _REDUCTIONS.items()},
    **dict.fromkeys(("Max", "Min", "Sum"), _variadic),
    "Mean": _mean,
    "QuantizeLinear": partial(_per_made, per_element=2),
    "DequantizeLinear": partial(_per_made, per_element=2),
    "DynamicQuantizeLinear": partial(_per_made, per_element=4),
    "ArgMax": _per_read,
    "ArgMin": _per_read,
    "TopK": _per_read,
    "Conv": _convolution,
    "ConvInteger": partial(_convolution, bias=4),
    "QLinearConv": partial(_convolution, weight=3, bias=8),
    "DeformConv": partial(_convolution, bias=3),
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Einsum": _einsum,
    "Attention": _attention,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": partial(_pool, per_element=2),
    "GlobalAveragePool": _per_read,
    "GlobalMaxPool": _per_read,
    "GlobalLpPool": partial(_per_read, per_element=2),
    "BatchNormalization": partial(_per_made, per_element=2),
    "InstanceNormalization": partial(_layer_norm, per_element=_STANDARDISE),
    "GroupNormalization": partial(_layer_norm, per_element=_STANDARDISE),
    "LayerNormalization": partial(_layer_norm, per_element=_STANDARDISE),
    "RMSNormalization": partial(_layer_norm, per_element=3),
    "MeanVarianceNormalization": partial(_per_read, per_element=_STANDARDISE),
    "LpNormalization": _lp_norm,
    "LRN": _local_response,
    "Softmax": partial(_per_made, per_element=_SOFTMAX),
    "LogSoftmax": partial(_per_made, per_element=_SOFTMAX),
    "Hardmax": _per_made,
    "CumSum": _per_made,
    "CumProd": _per_made,
    "RotaryEmbedding": partial(_per_read, per_element=3),
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DFT": _transform,
}
"""The formula of each standard operator that has one."""

_MICROSOFT: Mapping[str, Formula] = {
    "FusedConv": _convolution,
    "NhwcFusedConv": _convolution,
    "FusedGemm": _gemm,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "MatMulNBits": _matmul_n_bits,
    "MatMulIntegerToFloat": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "Attention": _projected_attention,
    "MultiHeadAttention": _multi_head_attention,
    "LayerNormalization": partial(_layer_norm, per_element=_STANDARDISE),
    "SimplifiedLayerNormalization": partial(_layer_norm, per_element=3),
    "SkipLayerNormalization": partial(_skip_layer_norm, per_element=_STANDARDISE, bias=4),
    "SkipSimplifiedLayerNormalization": partial(_skip_layer_norm, per_element=3, bias=3),
    "Gelu": _per_made,
    "FastGelu": _bias_gelu,
    "BiasGelu": _bias_gelu,
    "QuickGelu": _per_made,
    "BiasSoftmax": partial(_per_made, per_element=1 + _SOFTMAX),
    "RotaryEmbedding": partial(_per_read, per_element=3),
    "QuantizeLinear": partial(_per_made, per_element=2),
    "DequantizeLinear": partial(_per_made, per_element=2),
    "QLinearAdd": _per_made,
    "QLinearMul": _per_made,
    "QLinearSigmoid": _per_made,
    "QLinearLeakyRelu": _per_made,
}


def flops(node: Node, shapes: Shapes) -> int | None:
    """Estimate what *node* computes; None if a shape that counts, or the operator, is not known.

    Args:
        node: The node.
        shapes: Tells the shape of a value.
    """
    formula = _formula_of(node)
    if formula is None:
        return None
    try:
        found = formula(Operation(node, shapes))
    except (UnknownCostError, ArithmeticError, LookupError, TypeError, ValueError, DplError):
        return None  # a shape is not known, or does not fit the operator
    return found if 0 <= found <= _LARGEST else None


def _formula_of(node: Node) -> Formula | None:
    if node.domain == "com.microsoft":
        return _MICROSOFT.get(node.op_type)
    return None if node.domain else STANDARD.get(node.op_type)
