"""Facts about operators, all in one place, and what follows from them for a node."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from dplcli.errors import DplError
from dplcli.ir.model import Value, called_function
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import ArrayTensor, Attribute, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from dplcli.ir.model import Function, Node, OpSchema
    from dplcli.ir.types import Shape

    Shapes: TypeAlias = Callable[[Value], Shape | None]

    Formula: TypeAlias = "Callable[[Operation], int]"

T = TypeVar("T")


def canonical_domain(name: str) -> str:
    """Return the one spelling of a domain: "ai.onnx" is the standard's domain, "", written out."""
    return "" if name == "ai.onnx" else name


# The table of operators: whatever the library asks of one by its name, each fact once.
#
# Whoever adds an operator adds a line. What its schema says is read from there (:func:`schema_of`).
# Names are those of the standard domain; operators of onnxruntime that are asked for by name alone
# stand at the end, without a class. Sources: the operator pages https://onnx.ai/onnx/operators/.
#
# A line has the names of operators that have all facts in common. Behind the colon stand
#
# * the class (:data:`OP_KINDS`);
# * how the elements of the results come about, the narrowest word of :data:`_GRADES` that holds;
# * further words, and the inputs that something is true of; what they mean stands below the table.


_TABLE = """
    Abs: elementwise exact light not-negative
    Acos Asin Atanh: elementwise wants-unit
    Acosh Asinh Atan BitwiseNot Celu Cosh Elu Gelu HardSwish Mish Selu Sinh Swish Tan:
      elementwise
    BitCast: elementwise kept
    Cast: elementwise unrounded cast light leftover values=0 influences=0
    CastLike: elementwise unrounded cast light values=0 influences=0
    Ceil Floor Round: elementwise unrounded light
    Clip: elementwise exact light bounding ordering influences=0 scalars=1,2 numbers=1,2
    Cos Erf Sin Softsign Tanh: elementwise signed-share
    Dropout: elementwise exact leftover kept values=0 scalars=1
    Exp Softplus: elementwise not-negative
    HardSigmoid Sigmoid: elementwise share
    Identity: elementwise rearranging light leftover values=0 influences=0
    IsInf IsNaN: elementwise logical
    LeakyRelu: elementwise ordering
    Log Reciprocal: elementwise wants-positive
    Neg: elementwise exact light influences=all
    Not: elementwise exact logical light influences=all
    Relu: elementwise exact light ordering
    Shrink: elementwise unrounded
    Sign: elementwise unrounded light signed-share ordering
    Sqrt: elementwise not-negative wants-positive
    ThresholdedRelu: elementwise unrounded ordering
    Add: broadcast commutative arithmetic light wants-number influences=all numbers=0,1
    And Or: broadcast exact commutative logical light share influences=all
    BitShift: broadcast light
    BitwiseAnd BitwiseOr BitwiseXor: broadcast commutative light
    DequantizeLinear: broadcast light same-shape unpacking kept influences=0 zero-points=2
    Div Sub: broadcast ordered arithmetic light wants-number influences=all numbers=0,1
    Equal: broadcast exact commutative comparison light leftover influences=all numbers=0,1
    Expand: broadcast copying light leftover explosive between sizes=1 counts=1 values=0
      influences=0
    Greater Less: broadcast exact ordered comparison light influences=all numbers=0,1
    GreaterOrEqual LessOrEqual: broadcast unrounded comparison light influences=all
      numbers=0,1
    Max Min: broadcast exact commutative light bounding ordering values=all influences=all
      numbers=all
    Mean Sum: broadcast commutative light numbers=all
    Mod: broadcast unrounded ordered bounding wants-number numbers=0,1
    Mul: broadcast commutative arithmetic light influences=all numbers=0,1
    PRelu: broadcast ordered light same-shape ordering weights=1
    Pow: broadcast ordered wants-number numbers=0,1
    QuantizeLinear: broadcast light same-shape kept influences=0 scalars=1,2 zero-points=2
    SwiGLU: broadcast kept
    Unsqueeze: broadcast reshaping light leftover sizes=1 counts=1 values=0 influences=0
    Where: broadcast moving light leftover bounding values=1,2 influences=all numbers=1,2
    Xor: broadcast commutative logical light share
    AffineGrid: injective sizes=1
    CenterCropPad: injective light sizes=1
    Concat: injective moving light values=all influences=all
    DepthToSpace SpaceToDepth: injective light
    Flatten: injective reshaping light values=0 influences=0
    Gather: injective copying light leftover between values=0 influences=0 numbers=1
    GatherElements GatherND: injective moving light between values=0 influences=0
    GridSample: injective looping
    Pad: injective moving light explosive sizes=1,3 counts=1 values=0 influences=0 scalars=2
    Reshape: injective reshaping light sizes=1 counts=1 values=0 influences=0
    Resize: injective explosive looping sizes=1,2,3 counts=3
    ReverseSequence: injective light same-shape between values=0
    Slice: injective copying light leftover between bounding bounded-by-size sizes=3,4
      bounds=1,2 counts=1,2 values=0 influences=0
    Split: injective copying light between sizes=1 values=0 influences=0
    Squeeze: injective reshaping light leftover sizes=1 values=0 influences=0
    Tile: injective copying light explosive between sizes=1 counts=1 values=0 influences=0
    Transpose: injective rearranging light values=0 influences=0
    Trilu: injective light same-shape bounding bounded-by-size influences=0 numbers=1
    Upsample: injective explosive looping sizes=1
    ArgMax ArgMin: reduction unrounded not-negative place ordering
    ReduceL1 ReduceL2 ReduceSumSquare: reduction not-negative sizes=1 sums=sample
    ReduceLogSum ReduceLogSumExp ReduceProd ReduceSum: reduction sizes=1 sums=sample
    ReduceMax ReduceMin: reduction exact between ordering sizes=1 values=0 influences=0
    ReduceMean: reduction between sizes=1 sums=sample
    Attention: out-fusable heavy sums=unknown
    AveragePool: out-fusable pool between ordering sums=window
    BatchNormalization: out-fusable leftover same-shape weights=1,2,3,4 channels=1,2,3,4
    Conv: out-fusable convolution biased heavy weights=1,2 channels=2 kernel=1 sums=kernel
    ConvTranspose: out-fusable convolution biased heavy never-empty weights=1,2 channels=2 kernel=1
      sums=kernel
    ConvInteger: out-fusable convolution biased heavy scalars=2,3 zero-points=2,3 kernel=1
      sums=kernel
    DeformConv: out-fusable heavy looping kernel=1
    Einsum: out-fusable foldable heavy never-empty sums=unknown
    Gemm: out-fusable foldable biased heavy weights=0,1,2 channels=2 matrix=1 sums=inner
    GlobalAveragePool: out-fusable global-pool between heavy sums=sample
    GlobalLpPool: out-fusable global-pool
    GlobalMaxPool: out-fusable global-pool between ordering
    GroupNormalization: out-fusable same-shape weights=1,2 sums=sample
    InstanceNormalization: out-fusable same-shape never-empty weights=1,2 channels=1,2 sums=sample
    LayerNormalization: out-fusable same-shape foldable heavy weights=1,2 channels=1,2
      sums=row
    LogSoftmax: out-fusable same-shape sums=row
    LpPool: out-fusable pool sums=window
    MatMul: out-fusable ordered foldable biased wants-number heavy weights=0,1 matrix=1
      sums=inner
    MatMulInteger: out-fusable biased wants-number heavy scalars=2,3 zero-points=2,3 matrix=1
      sums=inner
    MaxPool: out-fusable exact pool between ordering
    MaxRoiPool NegativeLogLikelihoodLoss: out-fusable
    RoiAlign: out-fusable looping
    OneHot: out-fusable explosive foldable sizes=1 counts=1
    QLinearConv: out-fusable convolution heavy scalars=1,2,4,5,6,7 zero-points=2,5,7 kernel=3
      sums=kernel
    QLinearMatMul: out-fusable heavy scalars=1,2,4,5,6,7 zero-points=2,5,7 matrix=3 sums=inner
    RMSNormalization: out-fusable same-shape heavy weights=1 sums=row
    Softmax: out-fusable same-shape foldable share sums=row
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike:
      opaque random
    BlackmanWindow HammingWindow HannWindow MelWeightMatrix: opaque sizes=0
    CausalConvWithState LinearAttention: opaque heavy
    Col2Im: opaque sizes=1,2
    Compress: opaque foldable between counted=1 values=0
    ConcatFromSequence CumProd Det ImageDecoder Optional OptionalGetElement OptionalHasElement
      RegexFullMatch RotaryEmbedding SequenceAt SequenceConstruct SequenceEmpty SequenceErase
      SequenceInsert SequenceMap SoftmaxCrossEntropyLoss StringConcat StringNormalizer
      StringSplit TensorScatter TfIdfVectorizer: opaque
    Constant: opaque moving
    ConstantOfShape: opaque moving leftover explosive foldable sizes=0 counts=0
    CumSum: opaque same-shape foldable sums=sample
    DFT: opaque sizes=1,2 sums=unknown
    DynamicQuantizeLinear LRN: opaque same-shape
    EyeLike: opaque explosive foldable
    GRU LSTM RNN: opaque heavy never-empty weights=1,2,3 sums=unknown
    Hardmax: opaque unrounded same-shape share ordering
    If Scan: opaque control-flow
    Loop: opaque control-flow counts=0
    LpNormalization MeanVarianceNormalization: opaque same-shape sums=sample
    MaxUnpool: opaque pool
    NonMaxSuppression: opaque unrounded not-negative place counted=0
    Unique: opaque unrounded counted=0
    NonZero: opaque unrounded foldable not-negative place counted=0
    Range: opaque leftover explosive foldable bounded-by-size sizes=0,1,2 counts=0,1,2
      scalars=0,1,2 numbers=0,1,2
    STFT: opaque sizes=1,3 sums=unknown
    Scatter: opaque same-shape foldable
    ScatterElements ScatterND: opaque same-shape foldable values=0,2 influences=all
    SequenceLength: opaque bounded-by-size
    Shape: opaque moving leftover measuring foldable not-negative place
    Size: opaque moving measuring foldable not-negative place
    SplitToSequence: opaque sizes=1
    TopK: opaque unrounded foldable between bounded-by-size ordering sizes=1 counts=1 values=0
    FusedConv: - sums=kernel
    FusedMatMul: - sums=inner
    SimplifiedLayerNormalization: - same-shape heavy
    TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor: - unrounded
"""

_GRADES = ("reshaping", "rearranging", "copying", "moving", "exact", "unrounded")
"""Each includes those before it.

* reshaping: another shape, and the elements stay in order.
* rearranging: the elements of the first input, each once.
* copying: elements of the first input, and nothing else.
* moving: elements that were there before, constants and sizes.
* exact: nothing is rounded.
* unrounded: no rounding error could turn one result into another.
"""

_ALL = range(64)


class Operator(NamedTuple):
    """What the table says of an operator.

    Attributes:
        kind: Its class; "" for an operator that the standard does not have.
        words: What is true of it.
        slots: The inputs that something is true of, by what that is.
        sums: What one element of the result is a sum over; "" if it is none.
    """

    kind: str
    words: frozenset[str]
    slots: Mapping[str, Sequence[int]]
    sums: str


def _read_table() -> dict[str, Operator]:
    found = {}
    for line in _TABLE.replace("\n      ", " ").split("\n"):
        names, _, facts = line.partition(":")
        kind, *words = facts.split() or [""]
        pairs = dict(word.split("=") for word in words if "=" in word)
        sums = pairs.pop("sums", "")
        slots = {
            what: _ALL if text == "all" else tuple(map(int, text.split(",")))
            for what, text in pairs.items()
        }
        plain = frozenset(word for word in words if "=" not in word)
        record = Operator(kind.strip("-"), plain, slots, sums)
        found.update(dict.fromkeys(names.split(), record))
    return found


OPERATORS: Mapping[str, Operator] = _read_table()


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _having(*words: str) -> frozenset[str]:
    """Return the operators of which one of these words is true."""
    return frozenset(op for op, it in OPERATORS.items() if not it.words.isdisjoint(words))


def _up_to(grade: str) -> frozenset[str]:
    """Return the operators of a grade, and of those before it."""
    return _having(*_GRADES[: _GRADES.index(grade) + 1])


def _slots(*what: str) -> dict[str, Sequence[int]]:
    """Return by operator the inputs of which one of these is true, if there are any."""
    found = {
        op: [slot for each in what for slot in it.slots.get(each, ())]
        for op, it in OPERATORS.items()
    }
    return {op: tuple(sorted(slots)) for op, slots in found.items() if slots}


def _slot(what: str) -> dict[str, int]:
    """Return by operator the one input of which something is true."""
    return {op: slots[0] for op, slots in _slots(what).items()}


# The class of every standard operator, by how its output elements come from its input elements.
#
# The classes are those of TVM's ``OpPatternKind``, and membership follows TVM's registrations:
# Relay 0.18, ``TOpPattern`` in src/relay/op/** and ``register_pattern`` in
# python/tvm/relay/op/**; where Relay registers several variants, the one closest to the ONNX
# operator; where it registers none, what Relax finds (``AnnotateTIROpPattern``). What TVM has no
# operator for is classed by the definitions below and the operator pages
# https://onnx.ai/onnx/operators/, else it is opaque.
#
# Where TVM's class would not fit these definitions, they win:
#
# * QuantizeLinear and DequantizeLinear (TVM: elementwise) take a scale per axis: broadcast.
# * Dropout (Relay: opaque, Relax: elementwise) is the identity in inference: elementwise.
# * Trilu (elementwise) chooses by position what it copies: injective.
# * Einsum (Relay: injective, Relax: by its equation) may well be a matrix product: out-fusable.
# * Size (injective) and what makes a tensor from a shape alone (ConstantOfShape, EyeLike:
#     elementwise) read no element: opaque.
#
# The table has one class per operator, whatever its version, attributes and number of outputs.


OP_KINDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(op for op, it in OPERATORS.items() if it.kind == kind)
    for kind in ("elementwise", "broadcast", "injective", "reduction", "out-fusable", "opaque")
}
"""The operators of the standard domain by class, from the easiest to fuse to the hardest.

* elementwise (kElemWise): one data input, and each output element depends on the input element at
  its place alone.
* broadcast (kBroadcast): inputs combined element by element once their axes are lined up, in order.
* injective (kInjective): each output element is a copy of an input element (or a filler), taken
  from a place that its own place tells; TVM counts resampling here too.
* reduction (kCommReduce): whole axes folded into one element.
* out-fusable (kOutEWiseFusable): heavy work to whose result elementwise work can be fused.
* opaque (kOpaque): everything else; nothing can be fused to it.
"""


def kind_of(op_type: str) -> str | None:
    """Return the class of *op_type*; None for an operator the standard domain does not have."""
    return OPERATORS[op_type].kind or None if op_type in OPERATORS else None


# What the words of the table mean.


LIGHT = _having("light")
"""Do little for each element: they move it, or compute one thing of it."""

LEFTOVERS = _having("leftover")
"""What exporters leave behind: the arithmetic on sizes, and what other operators can take in."""

LOOPING = _having("looping")
"""onnx's evaluator computes these one element after the other, in Python."""

NEVER_EMPTY = _having("never-empty")
"""onnxruntime's kernels end the process if they are fed nothing, or make something of it."""

# -- what they compute --

COMMUTATIVE = _having("commutative")
"""Inputs may stand in any order."""

_MEANINGS = {"GroupNormalization": (21,), "Hardmax": (13,), "LogSoftmax": (13,), "Softmax": (13,)}
"""The opsets from which an operator computes something else from the same inputs and attributes."""

ORDERED = _having("ordered")
"""Two inputs; with the two swapped something else is computed."""

ARITHMETIC = _having("arithmetic")
COMPARISONS = _having("comparison")
PREDICATES = _having("comparison", "logical")
"""The results are truth values, which say nothing of the numbers that are compared."""

REDUCTIONS = OP_KINDS["reduction"] - {"ArgMax", "ArgMin"}
RANDOM_OPS = _having("random")
"""Draw random numbers, whatever they are given."""

CONTROL_FLOW = _having("control-flow")

_HEAVY_BY_DOMAIN = {
    "": _having("heavy"),
    "ai.onnx.preview": _ops("FlexAttention"),
    "com.microsoft": _ops("""
        FusedConv NhwcConv NhwcFusedConv QLinearConv ConvTransposeWithDynamicPads WordConvEmbedding
        FusedGemm FusedMatMul FusedMatMulActivation TransposeMatMul SparseToDenseMatMul
        GemmFastGelu GemmFloat8 QGemm MatMulInteger16 MatMulIntegerToFloat DynamicQuantizeMatMul
        MatMulNBits MatMulNBitsMlp MatMulNBitsQkv MatMulBnb4 MatMulFpQ4 QOrderedMatMul
        SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization
        QEmbedLayerNormalization QOrderedLayerNormalization QLinearGlobalAveragePool
        Attention QAttention QOrderedAttention MultiHeadAttention GroupQueryAttention
        PackedAttention PackedMultiHeadAttention DecoderAttention DecoderMaskedSelfAttention
        DecoderMaskedMultiHeadAttention LongformerAttention QOrderedLongformerAttention
        PagedAttention SparseAttention DynamicSparseAttention LinearAttention
        DynamicQuantizeLSTM AttnLSTM MoE QMoE
        """),
}

HEAVY = frozenset((domain, op) for domain, ops in _HEAVY_BY_DOMAIN.items() for op in ops)
"""Domain and name of the operators whose work is worth a call of a library.

TVM (``prune_dnnl_subgraphs``) counts convolutions and transposed ones, dense layers, batched matrix
products, layer normalisation and global average pooling; the operators that ONNX has for these, or
for many of these in one, are heavy here.
"""

# -- where the elements of the result come from --

RESHAPING = _up_to("reshaping")
REARRANGING = _up_to("rearranging")
COPYING = _up_to("copying")
MOVING = _up_to("moving")
EXACT = _up_to("exact")
UNROUNDED = _up_to("unrounded")
CASTS = _having("cast")

VALUES_FROM = _slots("values")
"""The inputs whose values the results hold, and no others."""

INFLUENCED = _slots("influences")
"""The inputs whose numbers reach the results one by one, whatever is done with each."""

SUMMED = {op: it.sums for op, it in OPERATORS.items() if it.sums}
"""What one element of the result is a sum over."""

# -- sizes and types --

KEEPS_SHAPE = OP_KINDS["elementwise"] | _having("same-shape")
"""The first output has the shape of the first input."""

BROADCASTING = OP_KINDS["broadcast"] - KEEPS_SHAPE - {"Expand", "SwiGLU", "Unsqueeze"}
"""The output has the shape that all inputs broadcast to."""

CONTRIB_KEEPS_SHAPE = _ops("""
    BiasGelu FastGelu Gelu QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QuickGelu RotaryEmbedding
    SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
""")
"""In com.microsoft the first output has the shape of the first input."""

ML_KEEPS_SHAPE = _ops("Binarizer Imputer LabelEncoder Normalizer Scaler")
"""In ai.onnx.ml the output has the shape of the input."""

SIZED_FROM = _slot("sizes")
"""From which input on numbers say how large the result is (not where a Slice begins and ends)."""

SIZED_BY = _slots("sizes", "bounds", "counted")
"""The inputs whose elements, not whose shapes alone, say how large the results are.

Sizes are given, bounds are what a Slice keeps, and what is counted are the elements that pass.
"""

SET_BY_NUMBERS = SIZED_FROM.keys() - REDUCTIONS
"""Numbers among the inputs say how large the result is or where it comes from."""

COUNT_SLOTS = frozenset((op, slot) for op, slots in _slots("counts").items() for slot in slots)
"""The inputs that are taken for numbers of something when data are drawn."""

MEASURING = _having("measuring")
"""Bring sizes into a computation; nodes before the first need no look."""

EXPLOSIVE = _having("explosive")
"""The result may be far larger than what is read."""

DEQUANTIZING = _having("unpacking")
"""What unpacks numbers: computed again for each reader, it costs less than what is packed saves."""

FOLDABLE = (
    OP_KINDS["elementwise"] | OP_KINDS["broadcast"] | OP_KINDS["injective"] | OP_KINDS["reduction"]
) - _having("kept") | _having("foldable")
"""Always give the same, so may be computed once; no convolutions and other heavy work.

What is kept says how a model is quantised, or may not give the same each time.
"""

# -- what the inputs are --

MATRIX_SLOT = _slot("matrix")
"""Multiply two matrices: the one on the right."""

CONVOLUTIONS = _having("convolution")
KERNEL_SLOT = _slot("kernel")
BIASED = _having("biased")
"""A constant of rank 1 or more that is added to the result is a bias.

Even if it has one element, it is a weight and no number.
"""

POOLS = _having("pool")
GLOBAL_POOLS = _having("global-pool")
WINDOWED = POOLS | KERNEL_SLOT.keys() | {"Col2Im"}
RANKED_SLOTS = {op: (slot, 0) for op, slot in KERNEL_SLOT.items()} | dict.fromkeys(
    POOLS | GLOBAL_POOLS, (0,)
)
"""The inputs that show over how many dimensions a window runs."""

WEIGHT_AXES: Mapping[str, tuple[int, int]] = {
    **{op: (slot, -1) for op, slot in MATRIX_SLOT.items()},
    **{op: (KERNEL_SLOT[op], op == "ConvTranspose") for op in CONVOLUTIONS},
}
"""Where those that multiply most have their weight, and which of its axes their results have."""

_WEIGHT_SLOTS = _slots("weights")
"""The inputs that only hold weights."""

CHANNEL_SLOTS = _slots("channels")
"""The inputs with one number per channel."""

SCALAR_SLOTS = _slots("scalars")

CONTRIB_QUANTIZED = _ops("QLinearAdd QLinearMul")
"""In com.microsoft: two quantised operands, each with scale and zero point behind it."""

ONLY_SCALARS: Mapping[tuple[str, str], tuple[int, ...]] = {
    **dict.fromkeys(
        (("com.microsoft", op_type) for op_type in sorted(CONTRIB_QUANTIZED)),
        (1, 2, 4, 5, 6, 7),
    ),
    ("com.microsoft", "QLinearAveragePool"): (1, 2, 3, 4),
}
"""The inputs that onnxruntime refuses to take as vectors of one number."""

NUMBER_SLOTS = _slots("numbers")
"""The inputs in which a single number says what is computed.

``Div(x, 1.4142135)`` is a step of Gelu and ``Clip(x, 0, 6)`` is ReLU6; a scale of
QuantizeLinear is a parameter, as weights are.
"""

ZERO_POINT_SLOTS = _slots("zero-points")

INDEXED: Mapping[tuple[str, int], tuple[int, int | tuple[str, int]]] = {
    ("Gather", 1): (0, ("axis", 0)),
    ("GatherElements", 1): (0, ("axis", 0)),
    ("ScatterElements", 1): (0, ("axis", 0)),
    ("ArrayFeatureExtractor", 1): (0, -1),
    ("GatherBlockQuantized", 1): (0, ("gather_axis", 0)),
    ("RotaryEmbedding", 1): (2, 0),
    ("RotaryEmbedding", 3): (1, 0),
    ("GroupQueryAttention", 9): (7, 0),
    ("SoftmaxCrossEntropyLoss", 1): (0, 1),
    ("NegativeLogLikelihoodLoss", 1): (0, 1),
    ("EmbedLayerNormalization", 0): (2, 0),
    ("EmbedLayerNormalization", 1): (4, 0),
    ("EmbedLayerNormalization", 8): (3, 0),
    ("RoiAlign", 2): (0, 0),
}
"""By input with indices: the input with the data, and the axis (or its attribute and default).

Operators of onnxruntime are among them.
"""

LENGTHS: Mapping[tuple[str, int], tuple[int, str, tuple[int, int]]] = {
    **{(op, 4): (0, "layout", (0, 1)) for op in _ops("GRU LSTM RNN")},
    ("ReverseSequence", 1): (0, "time_axis", (0, 1)),
    ("Attention", 6): (1, "", (-2, -2)),
}
"""By input with lengths, each 1 to the size of an axis: the input with the data, and the axis.

The attribute chooses one of two axes.
"""

AXIS_SLOTS = frozenset({("CumProd", 1), ("CumSum", 1)})
PART_SLOTS = frozenset({("Split", 1), ("SplitToSequence", 1)})
TUPLE_SLOTS = frozenset({("GatherND", 1), ("ScatterND", 1)})
"""The input with indices into several axes at once."""

PLACE_SLOTS = frozenset({*INDEXED, *LENGTHS, *TUPLE_SLOTS, *AXIS_SLOTS, *PART_SLOTS})
"""The inputs with whole numbers that are places, lengths or parts of an axis."""

MASK_SLOTS = frozenset(
    {("Softmax", 0), ("Attention", 3), ("MultiHeadAttention", 4), ("MultiHeadAttention", 5)}
)

NOT_NEGATIVE = _having("not-negative")
"""No number of the first result is below 0."""

PLACES = _having("place")
"""The first result is a size or an index, an int64."""

SHARES = _having("share")
"""From 0 to 1."""

SIGNED_SHARES = _having("signed-share")
"""From -1 to 1."""

BETWEEN = REARRANGING | _having("between")
"""The results lie between the least and the largest element of the first input."""

BOUNDING = COMPARISONS | _having("bounding")
"""Tell numbers up to a bound from those beyond it."""

BOUNDED_BY_SIZE = _having("bounded-by-size")
"""What they give follows from the size of what they read, and bounds."""

ORDERING = _having("ordering")
"""What they make of NaN, or of no numbers, is nowhere said, or done in different ways."""

WANTS_POSITIVE = _having("wants-positive")
WANTS_UNIT = _having("wants-unit")
WANTS_NUMBER = _having("wants-number")

# -- attributes --

_LATER = {
    ("AveragePool", "ceil_mode"): 0,
    ("LpPool", "ceil_mode"): 0,
    ("MaxPool", "ceil_mode"): 0,
    ("Reshape", "allowzero"): 0,
    **{(op_type, "noop_with_empty_axes"): 0 for op_type in sorted(REDUCTIONS)},
}
"""Attributes of later opsets, and the value that earlier opsets imply."""


def schema_of(node: Node) -> OpSchema | None:
    """Return the schema in force for *node*; None for an operator the standard does not know."""
    version = node.graph.opset_imports.get(node.domain, 0)
    return node.graph.model.codec.schemas.find(node.op_type, node.domain, version)


def possible_attributes(node: Node) -> frozenset[str]:
    """Return the attributes that a node of its operator can have, at any opset."""
    schemas = node.graph.model.codec.schemas
    return schemas.attributes_of(node.op_type, node.domain) or frozenset()


def attribute_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name* of *node*, completed with its default for the node's opset.

    Returns:
        What the file states; else the schema's default; else the default that the operator's page
        gives in words, where the known shapes determine it; else None.
    """
    stated = node.attributes.get(name)
    return default_of(node, name) if stated is None else stated


def default_of(node: Node, name: str) -> Attribute | None:
    """Return what attribute *name* of *node* would be, were it not stated; None if nobody says."""
    schema = schema_of(node)
    if schema is None:
        return None
    fixed = schema.defaults.get(name)
    if fixed is not None or node.domain:
        return fixed
    if name not in schema.attributes:
        # An attribute of a later opset for what an earlier one says in another way.
        if node.op_type == "BatchNormalization" and name == "training_mode":
            used = sum(output is not None for output in node.outputs)
            return Attribute("int", int(used > 1))
        number = _LATER.get((node.op_type, name))
        if number is not None:
            return Attribute("int", number)
        rank = _spatial_rank(node) if name == "dilations" and node.op_type in POOLS else None
        return None if rank is None else Attribute("ints", (1,) * rank)
    return _textual_default(node, name)


AXES = frozenset(
    {"axes", "axis", "batch_axis", "gather_axis", "perm", "quantize_axis", "time_axis"}
)
"""The attributes, and the inputs, that hold axes."""

_BOUNDS = frozenset({("Shape", "start"), ("Shape", "end")})
_OF_RESULT = _ops("ConcatFromSequence OneHot Unsqueeze")
"""Operators whose axes are those of their result."""
_OF_LATER_INPUT = {"QLinearConcat": 2}
"""The input whose axes an operator counts, if it is not the first."""


def from_the_first(node: Node, name: str, value: object) -> object:
    """Return axes counted from the first one, where the rank is known; anything else as it is.

    What an operator that nobody knows calls an axis may be something else.
    """
    values = node.outputs if node.op_type in _OF_RESULT else node.inputs
    place = values[_OF_LATER_INPUT.get(node.op_type, 0) :][:1] or (None,)
    is_axis = name in AXES or (node.op_type, name) in _BOUNDS
    is_axis &= not node.domain or name in possible_attributes(node)
    known = place[0].known_type() if is_axis and place[0] is not None else None
    if known is None or known.shape is None:
        return value
    axes = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(axis, int) for axis in axes):
        return value
    counted = tuple(axis + len(known.shape) * (axis < 0) for axis in axes)
    return counted if isinstance(value, tuple) else counted[0]


def equal_axes(node: Node, slot: int, axes: Sequence[int], others: Sequence[int]) -> bool:
    """Tell whether two lists are the same axes, if *node* reads axes as its input *slot*."""
    moved = () if node.domain else MOVED.get(node.op_type, ())
    names = {item.slot: item.name for item in moved}
    schema = schema_of(node)
    if slot not in names and schema is not None and slot < len(schema.inputs):
        names[slot] = schema.inputs[slot]
    name = names.get(slot, "")
    if name not in AXES or len(axes) != len(others):
        return False
    return from_the_first(node, name, (*axes,)) == from_the_first(node, name, (*others,))


def beyond_default(node: Node, named: Container[str]) -> str:
    """Return an attribute of *node* that is not named and has not its default; "" if there is none.

    What became an input is named as that, or is none of the attributes.
    """
    moved = [item.attribute for item in MOVED.get(node.op_type, ()) if not node.domain]
    for name, stated in node.attributes.items():
        if name in named or name in moved:
            continue
        usual = default_of(node, name)
        if usual is None or stated.ref or stated.kind != usual.kind:
            return name
        values = [
            (v.value.dtype, v.value.shape, v.value.numpy().tolist())
            if isinstance(v.value, Tensor)
            else from_the_first(node, name, v.value)
            for v in (stated, usual)
        ]
        if values[0] != values[1]:
            return name
    return ""


def fixed_attribute(node: Node, name: str) -> Attribute | None:
    """Return what the file states, else the schema's default: all nodes of equal attributes agree.

    None if there is neither; then what the node reads may decide.
    """
    stated = node.attributes.get(name)
    if stated is not None:
        return stated
    schema = schema_of(node)
    return None if schema is None else schema.defaults.get(name)


def commutes(domain: str, op_type: str, operands: int) -> bool:
    """Tell whether an operator gives the same, bit for bit, for its operands in another order.

    A sum of three numbers depends on the order in which they are added.
    """
    return not domain and op_type in COMMUTATIVE and operands == 2  # noqa: PLR2004  # a pair


def meaning_of(domain: str, op_type: str, opset: int) -> int:
    """Return which of the meanings that an operator has had is in force at an opset."""
    return 0 if domain else sum(since <= opset for since in _MEANINGS.get(op_type, ()))


def lacks_default(domain: str, op_type: str, name: str, schema: OpSchema | None) -> bool:
    """Tell whether nothing says what an operator does where attribute *name* is not given."""
    if schema is None or domain:
        return schema is None or name not in schema.defaults
    if name in schema.required_attributes or name in schema.defaults:
        return False
    return name not in _TEXTUAL.get(op_type, _OF_WINDOWS if op_type in WINDOWED else ())


_OF_WINDOWS = frozenset({"dilations", "kernel_shape", "pads", "strides"})
_TEXTUAL = {"ConstantOfShape": {"value"}, "Transpose": {"perm"}}
"""The attributes whose defaults the pages of operators give in words (:func:`attribute_of`)."""


def _textual_default(  # noqa: PLR0911  # a guard each
    node: Node, name: str
) -> Attribute | None:
    if node.op_type == "Transpose" and name == "perm":
        rank = _rank(node, 0)
        return None if rank is None else Attribute("ints", tuple(reversed(range(rank))))
    if node.op_type == "ConstantOfShape" and name == "value":
        return Attribute("tensor", ArrayTensor(np.zeros(1, np.float32)))
    if node.op_type not in WINDOWED:
        return None
    if name == "kernel_shape":
        slot = KERNEL_SLOT.get(node.op_type)
        shape = None if slot is None else _shape_at(node, slot)
        kernel = None if shape is None else shape[2:]
        if kernel is None or not all(isinstance(dim, int) for dim in kernel):
            return None
        return Attribute("ints", kernel)
    spatial = _spatial_rank(node)
    if spatial is None:
        return None
    if name in {"strides", "dilations"}:
        return Attribute("ints", (1,) * spatial)
    if name == "pads" and _pads_are_explicit(node):
        return Attribute("ints", (0,) * (2 * spatial))
    return None


def _pads_are_explicit(node: Node) -> bool:
    mode = node.attributes.get("auto_pad")
    return mode is None or mode.value == "NOTSET"


def _spatial_rank(node: Node) -> int | None:
    """Count spatial dimensions, from the cheapest fact at hand."""
    if node.op_type == "Col2Im":
        # The extent of a vector input.
        shape = _shape_at(node, 1)
        return shape[0] if shape and len(shape) == 1 and isinstance(shape[0], int) else None
    for name, per_dim in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        stated = node.attributes.get(name)
        if stated is not None and isinstance(stated.value, tuple):
            return len(stated.value) // per_dim
    for slot in RANKED_SLOTS[node.op_type]:
        rank = _rank(node, slot)
        if rank is not None:
            return rank - 2
    return None


def _rank(node: Node, slot: int) -> int | None:
    shape = _shape_at(node, slot)
    return None if shape is None else len(shape)


def _shape_at(node: Node, slot: int) -> Shape | None:
    """Return what is known of the shape of an input."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if value is None else value.known_type()
    return None if known is None else known.shape


# One accessor for what some opsets keep in an attribute and others in an input.
#
# ``axes`` of Squeeze is an attribute up to opset 12 and an input from 13 on; so are the bounds of
# Clip, the axes of the reductions, and more (https://onnx.ai/onnx/operators/, the versions of
# each). Every node is seen as the newest opset would write it: inputs_of lists the inputs, those
# that the node's opset keeps in attributes as constants made for the purpose; parameter_of reads
# an attribute, or the constant input that stands for it.


class Parameter(NamedTuple):
    """An attribute that became an input.

    Attributes:
        slot: The input it is in the newest opset.
        name: The input's name there.
        attribute: The attribute's name in the opsets that have one.
        kind: The attribute's kind.
        default: What an omitted input means, if that is a number.
    """

    slot: int
    name: str
    attribute: str
    kind: str
    default: float | None = None

    @property
    def dtype(self) -> str:
        """Element type of the input."""
        return "float32" if self.kind in {"float", "floats"} else "int64"


def _moved(kind: str, *names: str) -> tuple[Parameter, ...]:
    """Return parameters of one kind, in slots from 1 on, whose name did not change."""
    return tuple(Parameter(slot, name, name, kind) for slot, name in enumerate(names, 1))


FIRST_OPSET, LAST_OPSET = 7, 28
"""The oldest opset that dpl supports, and the newest whose operators it knows."""

MOVED: dict[str, tuple[Parameter, ...]] = {
    **dict.fromkeys(REDUCTIONS | {"Squeeze", "Unsqueeze"}, _moved("ints", "axes")),
    "Clip": _moved("float", "min", "max"),
    "DFT": (Parameter(2, "axis", "axis", "int", -2),),
    "Dropout": (Parameter(1, "ratio", "ratio", "float", 0.5),),
    "Pad": (*_moved("ints", "pads"), Parameter(2, "constant_value", "value", "float", 0.0)),
    "Reshape": _moved("ints", "shape"),
    "Slice": _moved("ints", "starts", "ends", "axes"),
    "Split": _moved("ints", "split"),
    "TopK": (Parameter(1, "K", "k", "int"),),
    "Upsample": _moved("floats", "scales"),
}
"""By operator of the standard domain, in order of slots."""

DTYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "stash_type", "precision", "softmax_precision"}
)
"""The attributes that hold an element type."""

VECTORS = frozenset({"TopK"})
"""Operators whose number becomes an input with one element rather than a scalar."""


def inputs_of(node: Node) -> Sequence[Value | None]:
    """List the inputs as the newest opset would have them; omitted ones at the end are cut off."""
    inputs = list(node.inputs)
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            slot = parameter.slot
            if slot >= len(node.inputs) and (implied := _implied_input(node, parameter)):
                inputs += [None] * (slot + 1 - len(inputs))
                inputs[slot] = implied
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def has_unknown_parameter(node: Node) -> bool:
    """Tell whether a function's caller gives what is an input in the newest opset."""
    stated = (node.attributes.get(item.attribute) for item in MOVED.get(node.op_type, ()))
    return any(attribute is not None and attribute.ref for attribute in stated)


def _implied_input(node: Node, parameter: Parameter) -> Value | None:
    stated = node.attributes.get(parameter.attribute)
    if stated is None or stated.ref or stated.kind != parameter.kind:
        return None
    model = node.graph.model
    known = model.implied.get((node, parameter.slot))
    if known is None:
        data: Any = stated.value
        if node.op_type in VECTORS:
            data = [data]
        known = Value(f"{node.label}.{parameter.name}", node.graph)
        known.set_initializer(ArrayTensor(np.asarray(data, dtype=_dtype_of(node, parameter))))
        model.implied[node, parameter.slot] = known
    return known


def _dtype_of(node: Node, parameter: Parameter) -> str:
    """Return the element type; a bound has that of the data it bounds."""
    data = node.inputs[0] if parameter.kind == "float" else None
    known = None if data is None else data.known_type()
    if known is not None and known.dtype in {"float16", "float64"}:
        return known.dtype
    return parameter.dtype


def slot_of(node: Node, name: str) -> int | None:
    """Return the input slot that *name* means at *node*; None if it means an attribute or nothing.

    Both the input's name and the attribute's name of other opsets are understood.
    """
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            if name in (parameter.name, parameter.attribute):
                return parameter.slot
    schema = schema_of(node)
    if schema is None or name in schema.attributes or name not in schema.inputs:
        return None
    return schema.inputs.index(name)


def parameter_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name*, completed with its default, or the constant input of that name.

    What an omitted input means is told by the operator's page. None if it is neither, or if the
    input is not constant.
    """
    attribute = attribute_of(node, name)
    if attribute is not None:
        return attribute
    slot = slot_of(node, name)
    if slot is None:
        return None
    inputs = inputs_of(node)
    value = inputs[slot] if slot < len(inputs) else None
    known = () if node.domain else MOVED.get(node.op_type, ())
    moved = next((item for item in known if item.slot == slot), None)
    if value is None and moved is not None and moved.default is not None:
        return Attribute(moved.kind, moved.default)
    tensor = None if value is None else behind_identities(value).constant
    if tensor is None or len(tensor.shape) > 1 or (data := tensor.numpy()).dtype.kind not in "iufb":
        return None
    kind = "float" if data.dtype.kind == "f" else "int"
    if data.ndim == 0 or (moved is not None and moved.kind == kind and data.size == 1):
        item = data.reshape(()).item()
        return Attribute(kind, item if kind == "float" else int(item))
    return Attribute(f"{kind}s", tuple(data.tolist()))


# Nodes that compute something else each time; two equal ones must not be merged.


_TRAINING_SLOT = 2
_RANDOM_NAMES = ("Bernoulli", "Dropout", "Multinomial", "Random", "Sampling")
WRITTEN_OUT = {"Attention": "Softmax", "Gelu": "Erf"}
"""Operators that older models have written out, and an operator that tells so."""

_KNOWN_DOMAINS = {"", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"}
"""What their operators give depends on their operands alone, if their names do not say else."""


def may_be_random(domain: str, op_type: str) -> bool:
    """Tell whether an operator may give something else each time, whatever it reads.

    Even one with a seed does, in a loop. An operator that nobody knows may, too.
    """
    is_known = canonical_domain(domain) in _KNOWN_DOMAINS
    return not is_known or any(word in op_type for word in _RANDOM_NAMES)


def is_random(
    domain: str, op_type: str, inputs: Sequence[T], is_true: Callable[[T], bool | None]
) -> bool:
    """Tell whether an operator may draw random numbers by itself, as Dropout does in training.

    Args:
        domain: Its domain.
        op_type: Its name.
        inputs: What it reads; something false for what is omitted.
        is_true: Tells whether any number of a constant input is not 0; None of what is computed.
    """
    if canonical_domain(domain) or op_type in RANDOM_OPS:
        return not canonical_domain(domain)
    if op_type != "Dropout" or not (training := inputs[_TRAINING_SLOT:][:1]) or not training[0]:
        return False  # before opset 12 it never draws
    return is_true(training[0]) is not False


def draws_random(node: Node, harmless: set[Function] | None = None) -> bool:
    """Tell whether *node* may draw random numbers, perhaps in a body or a function it calls.

    Args:
        node: The node.
        harmless: Functions that draw none; those found to draw none are added.
    """
    pending = [node]
    seen: set[Function] = set()
    known = seen if harmless is None else harmless
    while pending:
        current = pending.pop()
        if is_random(current.domain, current.op_type, current.inputs, _is_true):
            return True
        graphs = [*current.subgraphs.values()]  # what nests deeper comes when its node does
        function = called_function(current)
        if function is not None and function not in seen and function not in known:
            seen.add(function)
            graphs.append(function.body)
        pending += [inner for graph in graphs for inner in graph]
    if harmless is not None:
        harmless |= seen
    return False


def _is_true(value: Value | None) -> bool | None:
    data = None if value is None else value.constant
    return None if data is None else bool(data.numpy().any())


# Weights that were left out of a file: ``ConstantOfShape`` in the place of a trained tensor.
#
# The ``light_*`` nets of the onnx package are made like this. Two placeholders with equal shapes
# stand for two different weights, so they must not be merged. Nor must one be folded: that would
# put back what was left out.
#
# A placeholder is a float tensor of a constant shape, with two elements or more, that is only used
# as a weight:
#
# - an operand that only holds weights (the kernel of a Conv, the scale of a BatchNormalization …),
#     directly or through a reshape;
# - an operand of Add, Sub, Mul or Div, if the fill value is neither 0 nor 1.
#
# So a causal mask, an initial state or a neutral element is no placeholder, nor is a tensor of a
# dynamic shape.


WEIGHT_DTYPES = ("float16", "float32", "float64")
"""Element types of the placeholders known."""

HOLDS_WEIGHT = REARRANGING | {"Cast"}
"""Hold a weight if their first input does."""

_NEUTRAL = frozenset({0.0, 1.0})
_LARGEST_FILL = 1e3
_FEWEST = 2


def can_stand_for_weight(count: int, fill: float) -> bool:
    """Tell whether *count* elements that are all *fill* may be a weight that was left out."""
    return count >= _FEWEST and abs(fill) <= _LARGEST_FILL


def is_weight_use(op_type: str, slot: int, fill: float) -> bool:
    """Tell whether a tensor full of *fill* is read as a weight by an operator of ONNX."""
    if op_type in ARITHMETIC:
        return fill not in _NEUTRAL
    return slot in _WEIGHT_SLOTS.get(op_type, ())


def is_placeholder(node: Node) -> bool:
    """Tell whether *node* stands for a weight.

    A use by a call, or by an operator of another domain, counts as one as a weight.
    """
    if node.op_type != "ConstantOfShape" or node.domain or node.outputs[0] is None:
        return False
    count = _element_count(node.inputs[0])
    if count is None:
        return False
    fill = _fill_of(node)
    if fill is None or not can_stand_for_weight(count, fill):
        return False
    uses = list(_uses(node.outputs[0]))
    return bool(uses) and all(
        user is not None and (bool(user.domain) or is_weight_use(user.op_type, slot, fill))
        for user, slot in uses
    )


def _element_count(shape: Value | None) -> int | None:
    """Return how many elements a tensor of the constant *shape* has; None if that is not known."""
    tensor = None if shape is None else shape.constant
    if tensor is None or tensor.is_external or tensor.dtype != "int64":
        return None
    return prod(int(dim) for dim in tensor.numpy().reshape(-1))


def _fill_of(node: Node) -> float | None:
    """Return the number that a ConstantOfShape repeats; None if no weight holds such a number."""
    attribute = node.attributes.get("value")
    if attribute is None:
        return 0.0
    tensor = attribute.value
    if not isinstance(tensor, Tensor) or tensor.dtype not in WEIGHT_DTYPES or tensor.size != 1:
        return None
    return float(tensor.numpy().reshape(-1)[0])


def _uses(value: Value) -> Iterator[tuple[Node | None, int]]:
    """Yield who computes with *value*, also behind reshapes, and in which slot; None if returned.

    Each node that moves it reads it once, so no node is met twice.
    """
    pending = [value]
    while pending:
        current = pending.pop()
        if current.returned_by:
            yield None, 0
        for user, slot in current.iter_uses():
            made = user.outputs[0] if user.outputs else None
            if user.domain or user.op_type not in HOLDS_WEIGHT or slot or made is None:
                yield user, slot
            else:
                pending.append(made)


# How much an operator computes: floating-point operations, estimated from shapes.
#
# A multiplication and an addition are two operations, so a matrix product of M x K by K x N is
# 2 M N K. Whatever works element by element (an activation, too) is one operation for each element
# it makes; moving, gathering and converting data counts as none. Integers count like other
# numbers. Bodies of Loop, Scan and If count once, node by node.


class UnknownCostError(Exception):
    """What a node costs is not known."""


class Operation(NamedTuple):
    """A node and the shapes of what it reads and makes.

    Attributes:
        node: The node.
        shapes: Tells the shape of a value.
    """

    node: Node
    shapes: Shapes

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
        shape = None if value is None else self.shapes(value)
        if shape is None:
            raise UnknownCostError
        for dim in shape:
            if type(dim) is not int or dim < 0:
                raise UnknownCostError
        return cast("tuple[int, ...]", shape)


_LARGEST = 10**24
"""No computer does more; sizes that give more are mistakes or malice."""

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


def _per_read(per_element: int = 1) -> Formula:
    return lambda op: op.size_read() * per_element


def _per_made(per_element: int = 1) -> Formula:
    return lambda op: op.size_made() * per_element


def _layer_norm(op: Operation, per_element: int) -> int:
    """Count the standardising, then scale and shift as far as they are given."""
    return op.size_read(0) * (per_element + op.has(1) + op.has(2))


def _skip_layer_norm(op: Operation, per_element: int, bias: int) -> int:
    """Count the sum with the skipped input and bias, then the normalisation."""
    scale = op.has(2) + (op.has(3) if bias > 3 else 0)  # noqa: PLR2004  # slot of beta
    return op.size_read(0) * (1 + op.has(bias) + per_element + scale)


# -- resampling ------------------------------------------------------------------------------------


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

_RESAMPLING = frozenset({"Resize", "Upsample", "GridSample", "AffineGrid"})

_FREE = (
    (OP_KINDS["injective"] - _RESAMPLING)
    | CASTS
    | CONTROL_FLOW
    | _ops("""
        BitCast Col2Im Compress ConcatFromSequence Constant ConstantOfShape Dropout Expand EyeLike
        Identity MaxUnpool NonZero OneHot Optional OptionalGetElement OptionalHasElement Range
        RegexFullMatch Scatter ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size SplitToSequence
        StringConcat StringNormalizer StringSplit TensorScatter Unsqueeze
    """)
)
"""Operators that move, make or convert data."""

FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(OP_KINDS["elementwise"] | OP_KINDS["broadcast"], _per_made()),
    **dict.fromkeys(_ops("CumProd CumSum Hardmax"), _per_made()),
    **dict.fromkeys(_ops("BatchNormalization DequantizeLinear QuantizeLinear"), _per_made(2)),
    "LpNormalization": _per_made(3),
    "DynamicQuantizeLinear": _per_made(4),
    **dict.fromkeys(_ops("LogSoftmax Softmax"), _per_made(_SOFTMAX)),
    **dict.fromkeys(_FREE, lambda _: 0),
    **dict.fromkeys(REDUCTIONS, _per_read()),
    **dict.fromkeys(_ops("ArgMax ArgMin GlobalAveragePool GlobalMaxPool TopK"), _per_read()),
    **dict.fromkeys(_ops("ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"), _per_read(2)),
    "GlobalLpPool": _per_read(2),
    "RotaryEmbedding": _per_read(3),
    "MeanVarianceNormalization": _per_read(_STANDARDISE),
    **dict.fromkeys(_ops("Max Min Sum"), lambda op: op.size_made() * max(op.arity - 1, 0)),
    "Mean": lambda op: op.size_made() * op.arity,
    "Conv": _convolution,
    "ConvInteger": partial(_convolution, bias=4),
    "QLinearConv": partial(_convolution, weight=3, bias=8),
    "DeformConv": partial(_convolution, bias=3),
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    **dict.fromkeys(_ops("MatMul MatMulInteger QLinearMatMul"), _matmul),
    "Einsum": _einsum,
    "Attention": _attention,
    **dict.fromkeys(_ops("AveragePool MaxPool"), _pool),
    "LpPool": partial(_pool, per_element=2),
    **dict.fromkeys(
        _ops("GroupNormalization InstanceNormalization LayerNormalization"),
        partial(_layer_norm, per_element=_STANDARDISE),
    ),
    "RMSNormalization": partial(_layer_norm, per_element=3),
    "LRN": lambda op: op.size_made() * (op.number("size") + 5),
    **dict.fromkeys(_ops("Resize Upsample"), _resize),
    "GridSample": _grid_sample,
    **dict.fromkeys(_GATES, _recurrent),
    "DFT": _transform,
}
"""The formula of each standard operator that has one."""

_MICROSOFT: Mapping[str, Formula] = {
    **dict.fromkeys(
        _ops("Gelu QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid"), _per_made()
    ),
    "QuickGelu": _per_made(),
    **dict.fromkeys(_ops("BiasGelu FastGelu"), lambda op: op.size_made() * (1 + op.has(1))),
    "BiasSoftmax": _per_made(1 + _SOFTMAX),
    **dict.fromkeys(_ops("DequantizeLinear QuantizeLinear"), _per_made(2)),
    "RotaryEmbedding": _per_read(3),
    **dict.fromkeys(_ops("FusedConv NhwcFusedConv"), _convolution),
    "FusedGemm": _gemm,
    **dict.fromkeys(_ops("FusedMatMul TransposeMatMul"), _matmul),
    **dict.fromkeys(_ops("DynamicQuantizeMatMul MatMulIntegerToFloat"), _matmul),
    "MatMulNBits": _matmul_n_bits,
    "Attention": _projected_attention,
    "MultiHeadAttention": _multi_head_attention,
    "LayerNormalization": partial(_layer_norm, per_element=_STANDARDISE),
    "SimplifiedLayerNormalization": partial(_layer_norm, per_element=3),
    "SkipLayerNormalization": partial(_skip_layer_norm, per_element=_STANDARDISE, bias=4),
    "SkipSimplifiedLayerNormalization": partial(_skip_layer_norm, per_element=3, bias=3),
}


def flops(node: Node, shapes: Shapes) -> int | None:
    """Estimate what *node* computes; None if a shape that counts, or the operator, is not known.

    Args:
        node: The node.
        shapes: Tells the shape of a value.
    """
    if node.domain == "com.microsoft":
        formula = _MICROSOFT.get(node.op_type)
    else:
        formula = None if node.domain else FORMULAS.get(node.op_type)
    if formula is None:
        return None
    try:
        found = formula(Operation(node, shapes))
    except (UnknownCostError, ArithmeticError, LookupError, TypeError, ValueError, DplError):
        return None  # a shape is not known, or does not fit the operator
    return found if 0 <= found <= _LARGEST else None
