"""What happened to each operator of the standard between two opsets.

An operator's schema is in force from the opset it names until the next version of the schema: a
*bump*. Every bump from opset 8 to 28 has been read and put into one of three classes: it keeps the
meaning of every node that was valid before (:data:`KEEPS_MEANING`), there is an adapter for it,
or it is refused. A bump that is in none of them, of an onnx yet to come, is refused as unknown.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import onnx

from dplcli.onnx_io.opset_raising.attribute_inputs import ATTRIBUTE_INPUTS
from dplcli.onnx_io.opset_raising.meanings import MEANINGS
from dplcli.onnx_io.opset_raising.site import Refusal, Site

Adapter: TypeAlias = Callable[[Site], None]
"""Hands what a node becomes to its site; nothing if the node may stay as it is."""

OLDEST_COVERED = 7

KEEPS_MEANING = {
    8: "Max MaxPool Mean Min Sum",
    9: "Cast Constant Flatten Gemm Greater Less MatMul PRelu",
    10: "AveragePool MaxPool",
    11: """
        ArgMax ArgMin AveragePool Compress Concat Constant Conv ConvTranspose DepthToSpace
        Equal Flatten Gather Gemm Hardmax If LogSoftmax Loop LpPool MaxPool MaxUnpool
        NonMaxSuppression OneHot ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Scan Slice Softmax Split
        Squeeze TopK Unsqueeze
    """,
    12: "ArgMax ArgMin Clip Constant GatherND Max MaxPool Min Pow ReduceMax ReduceMin",
    13: """
        Abs Add ArgMax ArgMin Cast Ceil Clip Concat Constant DepthToSpace DequantizeLinear
        Div Dropout Equal Exp Expand Flatten Floor Gather GatherElements GatherND Gemm
        Greater Identity If IsNaN LRN Less Log Loop MatMul Max Mean Min Mod Mul Neg
        NegativeLogLikelihoodLoss NonZero Pad Pow QuantizeLinear Reciprocal ReduceL1
        ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
        ReduceSumSquare Relu Reshape ScatterElements ScatterND Shape Sigmoid Sign Size Slice
        SoftmaxCrossEntropyLoss SpaceToDepth Sqrt Sub Sum Tanh Tile Transpose
    """,
    14: "Add CumSum Div GRU Identity LSTM Mul RNN Relu Reshape Sub",
    15: "BatchNormalization Pow Shape",
    16: """
        GreaterOrEqual Identity If LeakyRelu LessOrEqual Loop PRelu Scan ScatterElements
        ScatterND Where
    """,
    18: "LpPool OptionalGetElement OptionalHasElement Pad Resize ScatterElements ScatterND",
    19: """
        AveragePool Cast CastLike Constant DequantizeLinear Equal Identity If Loop Pad
        QuantizeLinear Reshape Resize Scan Shape Size
    """,
    20: "ConstantOfShape IsInf IsNaN ReduceMax ReduceMin",
    21: """
        Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad
        QLinearMatMul QuantizeLinear Reshape Scan Shape Size Squeeze Transpose Unsqueeze
    """,
    22: """
        Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Conv ConvTranspose Cos Cosh
        DeformConv Det Dropout Elu EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool
        GridSample HardSigmoid HardSwish InstanceNormalization LSTM LpNormalization LpPool
        MaxPool MaxRoiPool MaxUnpool Mish Multinomial NegativeLogLikelihoodLoss RNN
        RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu
        Sin Sinh Softplus Softsign Tan ThresholdedRelu
    """,
    23: """
        Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad
        QuantizeLinear Reshape Scan Shape Size Squeeze Transpose Unsqueeze
    """,
    24: """
        Attention Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity
        If Loop Pad QuantizeLinear Reshape Scan Shape Size SplitToSequence Squeeze TopK
        Transpose Unsqueeze
    """,
    25: """
        Attention Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity
        If Loop Pad QuantizeLinear Reshape Scan Shape Size Squeeze Transpose Unsqueeze
    """,
    27: "Range",
    28: """
        BitShift Cast Celu Compress DepthToSpace DequantizeLinear Einsum Mod OneHot Optional
        OptionalGetElement OptionalHasElement QuantizeLinear ReverseSequence SpaceToDepth
        Unique
    """,
}
"""Bumps that need nothing: more types, optional inputs and attributes whose default is the old way.

In a few the wording changed as well, to what onnxruntime and onnx's reference evaluator had been
computing for the older version all along, which is how models use it: where ConvTranspose 11 puts
the odd element of the padding, what OneHot 11 makes of negative indices, that AveragePool 22 and
MaxPool 22 drop windows that begin in the padding, and how Cast 24 and CastLike 24 round infinity
to the finite eight-bit floats.
"""

REFUSED = {
    ("Scan", 9): "Scan before opset 9 runs over a batch, which later ones do not",
}

ADAPTERS: dict[tuple[str, int], Adapter] = {**ATTRIBUTE_INPUTS, **MEANINGS}


def rule_for(op_type: str, version: int) -> Adapter | None:
    """Return what makes a node fit the schema of *version*; None if it fits as it is.

    Raises:
        Refusal: Nothing does.
    """
    key = (op_type, version)
    if key in ADAPTERS:
        return ADAPTERS[key]
    if op_type in _keeping(version):
        return None
    if version <= OLDEST_COVERED:
        raise Refusal(f"{op_type} changed in opset {version}, and only changes after 7 are covered")
    reason = f"{op_type} changed in opset {version} in a way that dpl does not know"
    raise Refusal(REFUSED.get(key, reason))


@cache
def _keeping(version: int) -> frozenset[str]:
    return frozenset(KEEPS_MEANING.get(version, "").split())


@cache
def bumps(op_type: str, old: int, new: int) -> tuple[int, ...]:
    """Return the versions at which an operator's schema changed after *old*, up to *new*.

    Raises:
        Refusal: The operator is not in the standard at *old*.
    """
    start = _since(op_type, old)
    if start is None:
        raise Refusal(f"{op_type} is no operator of the standard at opset {old}")
    found: list[int] = []
    version = _since(op_type, new)
    while version is not None and version > start:
        found.insert(0, version)
        version = _since(op_type, version - 1)
    return tuple(found)


def _since(op_type: str, version: int) -> int | None:
    try:
        return onnx.defs.get_schema(op_type, version, "").since_version
    except (onnx.defs.SchemaError, TypeError):
        return None  # TypeError: a name that is no text, or a version beyond 32 bits
