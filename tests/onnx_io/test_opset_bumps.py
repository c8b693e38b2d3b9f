"""Every change of an operator between two opsets has been looked at and is dealt with."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx.defs import OpSchema

from dplcli.ir.operators import FIRST_OPSET, LAST_OPSET
from dplcli.onnx_io.opset import (
    ADAPTERS,
    REFUSED,
    NotRaisableError,
    bumps,
    rule_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEWEST = onnx.defs.onnx_opset_version()
Bump = tuple[str, int]

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
"""What was read and found to keep the meaning of every node, by the opset of the change."""


@cache
def history() -> dict[str, list[OpSchema]]:
    """Return every version of every schema of the standard, oldest first."""
    found = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name].append(schema)
    return {name: sorted(items, key=lambda s: s.since_version) for name, items in found.items()}


def all_bumps() -> Iterator[tuple[OpSchema, OpSchema]]:
    """Iterate over the changes after opset 7: the schema before, the schema from then on."""
    for schemas in history().values():
        for old, new in pairwise(schemas):
            if new.since_version > FIRST_OPSET:
                yield old, new


def listed_as_kept() -> set[Bump]:
    """Return the changes that are listed as keeping the meaning of every node."""
    return {(name, version) for version, names in KEEPS_MEANING.items() for name in names.split()}


def test_every_bump_is_in_one_class() -> None:
    """Each bump is listed as kept, adapted or refused, and none twice, and nothing else is."""
    real = {(new.name, new.since_version) for _, new in all_bumps()}
    listed = [*listed_as_kept(), *ADAPTERS, *REFUSED]
    assert len(listed) == len(set(listed))
    assert {bump for bump in listed if bump[1] <= NEWEST} == real
    assert len(real) > 300
    assert max(version for _, version in listed) == LAST_OPSET


@pytest.mark.parametrize("bump", sorted(REFUSED), ids=lambda bump: f"{bump[0]}-{bump[1]}")
def test_a_refused_bump_says_why(bump: Bump) -> None:
    """The reason names the operator."""
    with pytest.raises(NotRaisableError, match=bump[0]):
        rule_for(*bump)


def test_what_is_kept_has_no_rule() -> None:
    """A change that was read and keeps the meaning leaves the node as it is."""
    assert {bump for bump in listed_as_kept() if rule_for(*bump) is not None} == set()
    assert {bump for bump in ADAPTERS if rule_for(*bump) is None} == set()


def test_an_unknown_bump_is_refused() -> None:
    """What a later onnx changes is not taken for harmless."""
    for version in (99, LAST_OPSET + 1):
        with pytest.raises(
            NotRaisableError,
            match=f"Relu changed in opset {version} in a way that dpl does not know",
        ):
            rule_for("Relu", version)


def test_bumps_before_opset_8_are_refused() -> None:
    """Older changes, such as the end of one-way broadcasting, were not looked at."""
    for version in (6, 7):
        with pytest.raises(
            NotRaisableError, match=f"Add changed in opset {version}, and only changes"
        ):
            rule_for("Add", version)


def test_kept_bumps_only_widen() -> None:
    """A kept schema takes all types and attributes it took; what is new is optional."""
    kept = listed_as_kept()
    narrowed = {
        f"{new.name} {new.since_version}: {why}"
        for old, new in all_bumps()
        if (new.name, new.since_version) in kept
        for why in narrowings(old, new)
    }
    assert narrowed == set()


def test_sees_what_is_no_widening() -> None:
    """The check of the kept ones finds something in each adapted bump that changed a signature."""
    blind = {
        (new.name, new.since_version)
        for old, new in all_bumps()
        if (new.name, new.since_version) in ADAPTERS and not list(narrowings(old, new))
    }
    assert blind == {
        ("MeanVarianceNormalization", 13),  # adapted for the checker only
        ("Resize", 13),  # one mode of an attribute went
        ("RoiAlign", 16),  # a new attribute's default is not the old way
        ("Split", 18),  # one of two optional things must be there
        ("GroupNormalization", 21),  # inputs of another size
    }


def narrowings(old: OpSchema, new: OpSchema) -> Iterator[str]:
    """Say how *new* takes less than *old*, or takes it in another way."""
    if new.deprecated:
        yield "deprecated"
    yield from narrower_formals(old.inputs, new.inputs)
    yield from narrower_formals(old.outputs, new.outputs)
    for name, attribute in old.attributes.items():
        later = new.attributes.get(name)
        if later is None:
            yield f"{name} is gone"
        elif later.default_value != attribute.default_value:
            yield f"{name} has another default"
    for name, attribute in new.attributes.items():
        known = old.attributes.get(name)
        if attribute.required and (known is None or not known.required):
            yield f"{name} is needed"


def narrower_formals(
    before: Sequence[OpSchema.FormalParameter], after: Sequence[OpSchema.FormalParameter]
) -> Iterator[str]:
    """Compare the inputs of two schemas, or their outputs."""
    optional = OpSchema.FormalParameterOption.Optional
    for old, new in zip(before, after, strict=False):
        if not old.types <= new.types:
            yield f"{old.name} takes fewer types"
        if new.option not in {old.option, optional}:
            yield f"{old.name} is needed"
    if len(after) < len(before):
        yield "fewer of them"
    for new in after[len(before) :]:
        if new.option != optional:
            yield f"{new.name} is needed"


def test_bumps_are_those_of_the_operator() -> None:
    """The steps between two opsets are the versions of the schema, the first left out."""
    assert bumps("Softmax", 7, 18) == (11, 13)
    assert bumps("Softmax", 13, 26) == ()
    assert bumps("Upsample", 8, 18) == (9, 10)
    with pytest.raises(NotRaisableError, match="LayerNormalization is no operator of the standard"):
        bumps("LayerNormalization", 16, 18)
