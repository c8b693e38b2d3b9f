"""The class of every standard operator, by how its output elements come from its input elements.

The classes are those of TVM's ``OpPatternKind``, and membership follows TVM's registrations: Relay
0.18, ``TOpPattern`` in src/relay/op/** and ``register_pattern`` in python/tvm/relay/op/**; where
Relay registers several variants, the one closest to the ONNX operator; where it registers none,
what Relax finds (``AnnotateTIROpPattern``). What TVM has no operator for is classed by the
definitions below and the operator pages https://onnx.ai/onnx/operators/, else it is opaque.

Where TVM's class would not fit these definitions, they win:

* QuantizeLinear and DequantizeLinear (TVM: elementwise) take a scale per axis: broadcast.
* Dropout (Relay: opaque, Relax: elementwise) is the identity in inference: elementwise.
* Trilu (elementwise) chooses by position what it copies: injective.
* Einsum (Relay: injective, Relax: by its equation) may well be a matrix product: out-fusable.
* Size (injective) and what makes a tensor from a shape alone (ConstantOfShape, EyeLike:
  elementwise) read no element: opaque.

The table has one class per operator, whatever its version, attributes and number of outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ELEMENTWISE = """
    Abs Acos Acosh Asin Asinh Atan Atanh BitCast BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh
    Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish
    Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish
    Tan Tanh ThresholdedRelu
"""

_BROADCAST = """
    Add BitShift BitwiseAnd BitwiseOr BitwiseXor Div Mod Mul Pow Sub
    And Equal Greater GreaterOrEqual Less LessOrEqual Or Where Xor
    Max Mean Min Sum
    PRelu SwiGLU
    DequantizeLinear QuantizeLinear
    Expand Unsqueeze
"""

_INJECTIVE = """
    Flatten Reshape Squeeze Transpose
    CenterCropPad Concat Pad Slice Split Tile Trilu
    DepthToSpace SpaceToDepth ReverseSequence
    Gather GatherElements GatherND
    AffineGrid GridSample Resize Upsample
"""

_REDUCTION = """
    ArgMax ArgMin
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare
"""

_OUT_FUSABLE = """
    Conv ConvInteger ConvTranspose DeformConv QLinearConv
    Attention Einsum Gemm MatMul MatMulInteger QLinearMatMul
    AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool RoiAlign
    BatchNormalization GroupNormalization InstanceNormalization LayerNormalization
    RMSNormalization
    LogSoftmax Softmax
    NegativeLogLikelihoodLoss OneHot
"""

_OPAQUE = """
    If Loop Scan
    Optional OptionalGetElement OptionalHasElement
    ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence
    RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow ImageDecoder
    MelWeightMatrix Range Shape Size
    Compress NonMaxSuppression NonZero TopK Unique
    MaxUnpool Scatter ScatterElements ScatterND TensorScatter
    CausalConvWithState CumProd CumSum GRU LSTM LinearAttention RNN
    Col2Im DFT Det RotaryEmbedding STFT
    DynamicQuantizeLinear Hardmax LRN LpNormalization MeanVarianceNormalization
    SoftmaxCrossEntropyLoss
"""

OP_KINDS: Mapping[str, frozenset[str]] = {
    "elementwise": frozenset(_ELEMENTWISE.split()),
    "broadcast": frozenset(_BROADCAST.split()),
    "injective": frozenset(_INJECTIVE.split()),
    "reduction": frozenset(_REDUCTION.split()),
    "out-fusable": frozenset(_OUT_FUSABLE.split()),
    "opaque": frozenset(_OPAQUE.split()),
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

_KIND_OF = {op_type: kind for kind, op_types in OP_KINDS.items() for op_type in op_types}


def kind_of(op_type: str) -> str | None:
    """Return the class of *op_type*; None for an operator the standard domain does not have."""
    return _KIND_OF.get(op_type)
