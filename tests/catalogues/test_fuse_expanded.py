"""The standard's own functions as an oracle for ``fuse.yaml``.

onnx ships, for each operator that is a function, test cases with the operator, the same with the
function's body in its place ("expanded"), and golden outputs. After rewriting, the body must be
the operator again, with its inputs and attributes, and reproduce the golden outputs.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.backend.test.case import node as node_cases
from onnx.reference import ReferenceEvaluator

from dplcli.catalog import read_catalogs
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import model_from_proto, to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import SCHEMAS, thinned, with_long

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dplcli.language.replacement import RewriteRule

pytestmark = pytest.mark.long

CLAIMED = {
    "Celu": 1,
    "Clip": 10,
    "DepthToSpace": 2,
    "Elu": 3,
    "Gelu": 4,
    "GreaterOrEqual": 8,
    "GroupNormalization": 2,
    "HardSigmoid": 3,
    "HardSwish": 1,
    "LayerNormalization": 38,
    "LeakyRelu": 3,
    "LessOrEqual": 8,
    "LogSoftmax": 14,
    "Mish": 1,
    "PRelu": 2,
    "RMSNormalization": 19,
    "ReduceL1": 9,
    "ReduceL2": 9,
    "ReduceLogSum": 5,
    "ReduceLogSumExp": 9,
    "ReduceSumSquare": 9,
    "Relu": 1,
    "Selu": 3,
    "Softmax": 14,
    "Softplus": 2,
    "Softsign": 2,
    "SpaceToDepth": 3,
    "Swish": 1,
    "ThresholdedRelu": 3,
}
"""The operators that the catalogue makes, and how many expanded cases onnx 1.23 has of each."""

FEW = {"ThresholdedRelu", "Softplus"}
"""What is made again in the quick part."""
NOT_CLAIMED = {
    "AffineGrid": "a body with an If for two and three dimensions, which exporters do not write",
    "Attention": "fuse_attention.yaml has tests of its own",
    "Bernoulli": "random: the same numbers cannot be expected",
    "BlackmanWindow": "constants, once folded",
    "CastLike": "the other way round: a CastLike becomes a Cast",
    "CausalConvWithState": "from opset 27 on, which onnxruntime 1.31 cannot load",
    "CenterCropPad": "shape arithmetic that exporters do not write",
    "DynamicQuantizeLinear": "quantisation is left as it was written",
    "FlexAttention": "of a preview domain",
    "HammingWindow": "constants, once folded",
    "HannWindow": "constants, once folded",
    "LinearAttention": "from opset 27 on, which onnxruntime 1.31 cannot load",
    "MeanVarianceNormalization": "onnxruntime leaves out epsilon: constant channels become NaN",
    "NegativeLogLikelihoodLoss": "for training",
    "Range": "a Loop",
    "RotaryEmbedding": "fuse_attention.yaml has tests of its own",
    "SequenceMap": "a Loop",
    "Shrink": "two nested Where, which exporters do not write",
    "SoftmaxCrossEntropyLoss": "for training",
    "SwiGLU": "from opset 28 on, which onnxruntime 1.31 cannot load",
}
"""Operators with an expanded form that the catalogue leaves in parts, and why."""

NOT_CLAIMED_CASES = {
    "test_celu_bfloat16_expanded": "Celu takes float32 only before opset 28",
    "test_celu_float16_expanded": "Celu takes float32 only before opset 28",
    "test_clip_default_inbounds_expanded": "a Clip without bounds is an Identity",
    "test_clip_default_int8_inbounds_expanded": "a Clip without bounds is an Identity",
    "test_spacetodepth_crd_mode_example_expanded": "a mode of SpaceToDepth only from opset 28 on",
}
"""Single cases of claimed operators that stay in parts, and why."""

LAST_OPSET = 26
"""The newest that onnxruntime 1.31 loads."""


@cache
def all_cases() -> dict[str, Any]:
    """Return onnx's node tests by name; making them takes some seconds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in node_cases.collect_testcases(None)}


def original_of(name: str) -> Any:  # noqa: ANN401  # a test case of onnx
    """Return the case that *name* is the expanded form of."""
    return all_cases()[name[: name.index("_expanded")]]


@cache
def expanded() -> dict[str, list[str]]:
    """Return the names of the expanded cases by operator."""
    found: dict[str, list[str]] = {}
    for name in all_cases():
        if "_expanded" in name:
            op_type = original_of(name).model.graph.node[0].op_type
            found.setdefault(op_type, []).append(name)
    return found


@cache
def rules() -> list[RewriteRule]:
    """Read what is applied: constants are folded first, in the same run."""
    return read_catalogs(["prepare", "fuse"], SCHEMAS).rewrites


def rewritten(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite a copy of a model."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    model = model_from_proto(copy, Path(), "case")
    rewrite(model, rules())
    check_structure(model)
    result: onnx.ModelProto = onnx.ModelProto.FromString(to_proto(model).SerializeToString())
    return result


def described(model: onnx.ModelProto) -> list[tuple[str, list[str], list[str], dict[str, Any]]]:
    """Describe the nodes: operator, inputs, outputs, attributes with defaults filled in."""
    return [
        (node.op_type, list(node.input), list(node.output), attributes_of(node, model))
        for node in model.graph.node
    ]


def attributes_of(node: onnx.NodeProto, model: onnx.ModelProto) -> dict[str, Any]:
    """Return the attributes of a node; axes count from the front, floats have six digits."""
    version = model.opset_import[0].version
    schema = onnx.defs.get_schema(node.op_type, version)
    found = {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type
    }
    found |= {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    if "axis" in found:
        rank = len(model.graph.input[0].type.tensor_type.shape.dim)
        found["axis"] %= rank
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in found.items()}


def runner_of(model: onnx.ModelProto) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """Run by onnxruntime, at an opset that it loads, or by onnx if it has no kernel."""
    lowered = onnx.ModelProto.FromString(model.SerializeToString())
    lowered.ir_version = min(lowered.ir_version, 10)
    for item in lowered.opset_import:
        item.version = min(item.version, LAST_OPSET)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            lowered.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, RuntimeError):
        evaluator = ReferenceEvaluator(model)
        return lambda feeds: list(evaluator.run(None, feeds))
    return lambda feeds: session.run(None, feeds)


@pytest.mark.long
def test_every_expanded_operator_is_accounted_for() -> None:
    """An operator with a body is made by the catalogue, or there is a reason why not."""
    claimed = {
        op_type: len([name for name in names if name not in NOT_CLAIMED_CASES])
        for op_type, names in expanded().items()
        if op_type not in NOT_CLAIMED
    }

    assert claimed == CLAIMED
    assert all_cases().keys() >= NOT_CLAIMED_CASES.keys()
    assert expanded().keys() >= NOT_CLAIMED.keys()


@pytest.mark.parametrize(
    "op_type", with_long({name: (name,) for name in CLAIMED}, CLAIMED.keys() - FEW)
)
def test_a_body_becomes_its_operator_again(op_type: str) -> None:
    """The body of each case becomes the node that it is the body of, inputs, attributes and all."""
    for name in expanded()[op_type]:
        if name in NOT_CLAIMED_CASES:
            continue
        result = rewritten(all_cases()[name].model)
        original = original_of(name).model

        trimmed = onnx.ModelProto.FromString(original.SerializeToString())
        for node in trimmed.graph.node:
            while node.input and not node.input[-1]:
                node.input.pop()
        assert described(result) == described(trimmed), name


@pytest.mark.parametrize("op_type", thinned(4, CLAIMED))
def test_golden_outputs_are_reproduced(op_type: str) -> None:
    """What the rewritten model computes is what the standard says, within its own tolerance."""
    for name in expanded()[op_type]:
        if name in NOT_CLAIMED_CASES:
            continue
        case = all_cases()[name]
        result = rewritten(case.model)
        run = runner_of(result)
        for inputs, outputs in case.data_sets:
            names = [value.name for value in result.graph.input]
            found = run({key: np.asarray(item) for key, item in zip(names, inputs, strict=True)})

            for got, wanted in zip(found, outputs, strict=True):
                np.testing.assert_allclose(
                    got, wanted, rtol=case.rtol, atol=max(case.atol, 1e-6), err_msg=name
                )


@pytest.mark.parametrize("name", NOT_CLAIMED_CASES)
def test_unclaimed_cases_stay_in_parts(name: str) -> None:
    """A case is listed as unclaimed only as long as it does not become the operator."""
    op_type = original_of(name).model.graph.node[0].op_type
    result = rewritten(all_cases()[name].model)

    assert op_type not in {node.op_type for node in result.graph.node}
