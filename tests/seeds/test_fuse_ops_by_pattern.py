"""Seed document 2, "融合 Conv2dReLU": FuseOpsByPattern, bound weights, and the order of rules.

The document's models have 64 channels of 56 by 56; these have one of 6 by 6. TVM's patterns come
from ``make_fused_bias_activation_pattern``, which without a bias is an operator and its activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.helpers import check_outcome, check_partition, rule, selected, taken

if TYPE_CHECKING:
    import onnx

    from dplcli.language import PatternRule

IMAGE = "float[1,1,6,6] data"
WEIGHT1 = "float[1,1,3,3] weight1"
ONES = "= {1,1,1,1,1,1,1,1,1}"
CONV2D_RELU = f"""g ({IMAGE}, {WEIGHT1}) => (float[1,1,6,6] conv1) {{
    lv = Conv <pads=[1,1,1,1]> (data, weight1) conv1 = Relu (lv) }}"""
BOUND = f"""g ({IMAGE}) => (float[1,1,6,6] conv1) <{WEIGHT1} {ONES}> {{
    lv = Conv <pads=[1,1,1,1]> (data, weight1) conv1 = Relu (lv) }}"""
TWICE = f"""g ({IMAGE}, {WEIGHT1}, float[1,1,3,3] weight2) => (float[1,1,4,4] conv2) {{
    lv = Conv <pads=[1,1,1,1]> (data, weight1) conv1 = Relu (lv)
    lv1 = Conv <pads=[0,0,0,0]> (conv1, weight2) conv2 = Relu (lv1) }}"""
CONV_CONV_RELU = f"""g ({IMAGE}, {WEIGHT1}, float[1,1,3,3] weight2) => (float[1,1,4,4] conv2) {{
    conv1 = Conv <pads=[1,1,1,1]> (data, weight1)
    lv1 = Conv <pads=[0,0,0,0]> (conv1, weight2) conv2 = Relu (lv1) }}"""


def relu_rule(**settings: str) -> PatternRule:
    """``dnnl.conv2d_relu``, with Relax's order of search."""
    fields = {"target": "dnnl", "name": "conv2d_relu", "order": "program"} | settings
    return rule("Relu(Conv(x, w))", **fields)


def conv_rule(**settings: str) -> PatternRule:
    """``dnnl.conv2d``, with Relax's order of search."""
    fields = {"target": "dnnl", "name": "conv2d", "order": "program"} | settings
    return rule("Conv(x, w)", **fields)


def calls(model: onnx.ModelProto) -> list[str]:
    """Name what the main graph calls, in order."""
    return [f"{n.domain}.{n.op_type}".lstrip(".") for n in model.graph.node]


def test_bind_params() -> None:
    """绑定参数: a weight bound to data is constant, and ``embed`` puts it into the function."""
    result = check_partition(
        relu_rule(constants="embed"),
        BOUND,
        after="""
            (data) => (conv1) {
              [conv2d_relu_0] conv1 = dnnl.conv2d_relu <pads = [1, 1, 1, 1]> (data)
            }
            dnnl.conv2d_relu <pads> (x) => (relu_1_out) {
              [Constant] constant_out = Constant <value = float32[1, 1, 3, 3]> ()
              [Conv_0] conv_0_out = Conv <pads = @pads> (x, constant_out)
              [Relu_1] relu_1_out = Relu (conv_0_out)
            }""",
    )
    assert not result.graph.initializer


@pytest.mark.parametrize("constants", ["auto", "lift"])
def test_bind_constants_false(constants: str) -> None:
    """绑定参数: with bind_constants=False the weight is an input; so with ``auto``."""
    result = check_outcome(relu_rule(constants=constants), BOUND)
    (call,) = result.graph.node
    assert list(call.input) == ["data", "weight1"]
    assert [tensor.name for tensor in result.graph.initializer] == ["weight1"]


def test_fuse_ops_by_pattern() -> None:
    """`FuseOpsByPattern`: one function, which says what it is and who implements it.

    TVM wraps the composite function in another one that carries ``Codegen``; here one function
    carries both.
    """
    result = check_partition(
        relu_rule(constants="embed"),
        CONV2D_RELU,
        after="""
            (data, weight1) => (conv1) {
              [conv2d_relu_0] conv1 = dnnl.conv2d_relu <pads = [1, 1, 1, 1]> (data, weight1)
            }
            dnnl.conv2d_relu <pads> (x, w) => (relu_1_out) {
              [Conv_0] conv_0_out = Conv <pads = @pads> (x, w)
              [Relu_1] relu_1_out = Relu (conv_0_out)
            }""",
    )
    (function,) = result.functions
    assert {item.key: item.value for item in function.metadata_props} == {
        "Composite": "dnnl.conv2d_relu",
        "Codegen": "dnnl",
        "PartitionedFromPattern": "Conv_Relu_",
    }


def test_no_patterns() -> None:
    """`FuseOpsByPattern`: an empty list of patterns changes nothing."""
    check_partition([], CONV2D_RELU)


def test_conv2d_relu_x2() -> None:
    """融合 Conv2dReLUx2: two matches.

    TVM writes two functions since the pads differ; here the pads are attributes of the function,
    given at each call, so one is enough.
    """
    check_partition(
        relu_rule(),
        TWICE,
        after="""
            (data, weight1, weight2) => (conv2) {
              [conv2d_relu_0] conv1 = dnnl.conv2d_relu <pads = [1, 1, 1, 1]> (data, weight1)
              [conv2d_relu_1] conv2 = dnnl.conv2d_relu <pads = [0, 0, 0, 0]> (conv1, weight2)
            }
            dnnl.conv2d_relu <pads> (x, w) => (relu_1_out) {
              [Conv_0] conv_0_out = Conv <pads = @pads> (x, w)
              [Relu_1] relu_1_out = Relu (conv_0_out)
            }""",
    )


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_order_of_the_rules(order: str) -> None:
    """模板匹配依赖顺序: with the smaller rule first only convolutions are fused, the Relus stay."""
    rules = [conv_rule(order=order), relu_rule(order=order)]
    assert taken(selected(rules, TWICE)) == [
        f"conv2d: {name}" for name in (("lv", "lv1") if order == "program" else ("lv1", "lv"))
    ]
    result = check_outcome(rules, TWICE)
    assert calls(result) == ["dnnl.conv2d", "Relu", "dnnl.conv2d", "Relu"]


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_larger_rule_first(order: str) -> None:
    """融合 Conv2dConv2dReLU: the document's last cell, which runs on Conv2dReLUx2 after all."""
    rules = [relu_rule(order=order), conv_rule(order=order)]
    result = check_outcome(rules, TWICE)
    assert calls(result) == ["dnnl.conv2d_relu", "dnnl.conv2d_relu"]


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_conv_conv_relu(order: str) -> None:
    """融合 Conv2dConv2dReLU: and what its heading says, one match of each rule (also F2)."""
    rules = [relu_rule(order=order), conv_rule(order=order)]
    result = check_outcome(rules, CONV_CONV_RELU)
    assert calls(result) == ["dnnl.conv2d", "dnnl.conv2d_relu"]
    swapped = check_outcome(rules[::-1], CONV_CONV_RELU)
    assert calls(swapped) == ["dnnl.conv2d", "dnnl.conv2d", "Relu"]


def test_as_a_catalogue() -> None:
    """融合 Conv2dConv2dReLU: the same two rules as a YAML file."""
    catalogue = """
        dpl: 1
        target: dnnl
        patterns:
          - name: conv2d_relu
            pattern: Relu(Conv(x, w))
            order: program
          - name: conv2d
            pattern: Conv(x, w)
            order: program
        """
    result = check_outcome(catalogue, CONV_CONV_RELU)
    assert calls(result) == ["dnnl.conv2d", "dnnl.conv2d_relu"]
