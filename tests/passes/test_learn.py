"""Rules made from an example: what they keep, and what they leave free."""

import re
from pathlib import Path

import numpy as np
import onnx.numpy_helper
import pytest

from dplcli.onnx_io import model_from_proto
from dplcli.passes.learn_pattern import learn_rule
from tests.passes.learned import CONV, check_written, learned, lines, nodes_of
from tests.support.helpers import proto_from_text, selected, taken


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        pytest.param(
            f"{CONV} {{ c = Conv <pads = [1, 1, 1, 1], group = 1> (x, w) y = Relu (c) }}",
            "c y",
            ["conv = Conv(x, w.has_rank(4))", "Relu(conv)"],
            id="window-is-free",
        ),
        pytest.param(
            f'{CONV} {{ y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w) }}',
            "y",
            ['Conv(x, w.has_rank(4), auto_pad="SAME_UPPER")'],
            id="auto-pad",
        ),
        pytest.param(
            """g (float[1,4,8] x) => (y) <float[8,2,3] w = {1}> {
            y = Conv <group = 2> (x, w) }""",
            "y",
            ["Conv(x, const(w).has_rank(3), group=2)"],
            id="groups",
        ),
        pytest.param(
            "g (float[1,4,8] x, float[4,1,3] w) => (y) { y = Conv <group = 4> (x, w) }",
            "y",
            [
                "conv = Conv(x, w.has_rank(3))",
                "conv",
                "where conv.attrs.group > 1",
                "where w.shape[1] == 1",
            ],
            id="depthwise-of-any-width",
        ),
        pytest.param(
            "g (float[1,4,8] x) => (y) { y = MaxPool <kernel_shape = [2]> (x) }",
            "y",
            ["MaxPool(x.has_rank(3))"],
            id="pool-of-a-leaf",
        ),
        pytest.param(
            "g (float[1,4,8] x) => (y) { t = Relu (x) y = MaxPool <kernel_shape = [2]> (t) }",
            "t y",
            ["relu = Relu(x)", "MaxPool(relu)"],
            id="pool-of-something-inside",
        ),
        pytest.param(
            "g (x) => (y) { y = MaxPool <kernel_shape = [2]> (x) }",
            "y",
            ["MaxPool(x)"],
            id="rank-unknown",
        ),
        pytest.param(
            "g (float[4,2] x) => (y) { t = Cast <to = 10> (x) y = Transpose (t) }",
            "t y",
            ['cast_1 = Cast(x, to="float16")', "Transpose(cast_1, perm=[1, 0])"],
            id="element-type-by-name-and-default-in-words",
        ),
        pytest.param(
            "g (float[2,2] x) => (y) { y = Gemm <alpha = 0.5, transB = 1, transA = 0> (x, x) }",
            "y",
            ["Gemm(a, a, transB=1)"],
            id="scaling-is-free",
        ),
        pytest.param(
            "g (float[2,2] x) => (y) { s = Softmax <axis = -1> (x) y = Softmax <axis = 0> (s) }",
            "s y",
            ["softmax = Softmax(x)", "Softmax(softmax, axis=0)"],
            id="default-axis-is-free",
        ),
        pytest.param(
            "g (float[2,2] x, float[2] s) => (y) { y = LayerNormalization <epsilon = 0.1> (x, s) }",
            "y",
            ["LayerNormalization(x, scale)"],
            id="epsilon",
        ),
        pytest.param(
            "g (float[2] x) => (y) <int64[1] axes = {1}> { y = Unsqueeze (x, axes) }",
            "y",
            ["Unsqueeze(x, axes=[1])"],
            id="axes-given-as-input",
        ),
        pytest.param(
            "g (float[2] x, int64[1] axes) => (y) { y = Unsqueeze (x, axes) }",
            "y",
            ["Unsqueeze(x, axes)"],
            id="axes-computed",
        ),
        pytest.param(
            "g (float[2] x) => (y) <int64[2] to = {1, 2}> { y = Reshape (x, to) }",
            "y",
            ["Reshape(x, const(shape))"],
            id="shape-is-a-constant",
        ),
        pytest.param(
            "g (float[2] x, float[2] z) => (y) { y = Concat <axis = 0> (x, z, x) }",
            "y",
            ["Concat(x, x_1, x, axis=0)"],
            id="one-name-per-value",
        ),
        pytest.param(
            "g (float[2] x, float low) => (y) { y = Clip (x, low, ) }",
            "y",
            ["Clip(x, low)"],
            id="omitted-at-the-end",
        ),
        pytest.param(
            "g (float[2] x, float high) => (y) { y = Clip (x, , high) }",
            "y",
            ["Clip(x, None, high)"],
            id="omitted-in-between",
        ),
        pytest.param(
            "g (float[2] x) => (y) { t = com.microsoft.Gelu (x) y = Not (t) }",
            "t y",
            ["gelu = com.microsoft.Gelu(x)", "Not(gelu)"],
            id="another-domain",
        ),
        pytest.param(
            "g (float[2] x) => (y) { s = Relu (x) t = relu.F (s) y = Abs (t) }",
            "s t y",
            ["relu_1 = Relu(x)", "f = relu.F(relu_1)", "Abs(f)"],
            id="names-are-no-domains",
        ),
        pytest.param(
            "g (bool[2] x) => (y) { t = Not (x) y = And (t, t) }",
            "t y",
            ["not_1 = Not(x)", "And(not_1, not_1)"],
            id="names-are-no-keywords",
        ),
        pytest.param(
            "g (float[2,2] x) => (y) { a, b = Split <axis = 1> (x) y = Relu (b) }",
            "a y",
            ["split = Split(x, axis=1)", "Relu(split[1])"],
            id="second-output",
        ),
        pytest.param(
            "g (float[2] x) => (y) { t = Neg (x) i = Identity (t) y = Relu (i) }",
            "t i y",
            ["neg = Neg(x)", "Relu(neg)"],
            id="identity-looked-through",
        ),
        pytest.param(
            "g (float[2] x) => (y) { c = Constant <value = float {2}> () y = Mul (x, c) }",
            "c y",
            ["Mul(a, 2.0)"],
            id="constant-node-is-a-leaf",
        ),
        pytest.param(
            """<ir_version: 8, opset_import: ["" : 9]> g (float[1,2] x) => (y) {
            t = Clip <max = 6.0, min = 0.0> (x) y = Squeeze <axes = [0]> (t) }""",
            "t y",
            ["clip = Clip(x, 0.0, 6.0)", "Squeeze(clip, axes=[0])"],
            id="old-opset-reads-like-new",
        ),
    ],
)
def test_keeps_what_says_what_is_computed(text: str, labels: str, expected: list[str]) -> None:
    """Operators, wiring and telling attributes stay; all else is free."""
    found = learned(text, labels)
    assert lines(found) == expected
    check_written(found.rule)


def test_exact_demands_every_stated_attribute() -> None:
    """With exact, the rule finds nodes with the very same attributes only."""
    text = f"""{CONV} {{ c = Conv <pads = [1, 1, 1, 1], group = 1> (x, w)
        y = LeakyRelu <alpha = 0.1> (c) }}"""
    found = learned(text, "c y", exact=True)
    assert lines(found) == [
        "conv = Conv(x, w.has_rank(4), pads=[1, 1, 1, 1], group=1)",
        "LeakyRelu(conv, alpha=0.1)",
    ]
    check_written(found.rule)
    assert len(selected(found.rule, text).matches) == 1
    assert taken(selected(found.rule, text.replace("0.1", "0.2"))) == []
    assert len(selected(learned(text, "c y").rule, text.replace("0.1", "0.2")).matches) == 1


@pytest.mark.parametrize(
    ("exact", "expected"),
    [(True, 'Pad(x, pads=[0, 1], mode="reflect")'), (False, 'Pad(x, const(pads), mode="reflect")')],
)
def test_exact_demands_what_became_an_input(exact: bool, expected: str) -> None:  # noqa: FBT001
    """It is written once, as the file has it; else it is a constant like any other."""
    text = """<ir_version: 8, opset_import: ["" : 10]> g (float[4] x) => (y) {
        y = Pad <mode = "reflect", pads = [0, 1]> (x) }"""
    found = learned(text, "y", exact=exact)
    assert lines(found) == [expected]
    check_written(found.rule)
    assert taken(selected(found.rule, text.replace("[0, 1]", "[1, 0]"))) == (
        [] if exact else ["pad: y"]
    )


def test_exact_demands_the_number_of_groups() -> None:
    """A depthwise convolution, too, is then of one width."""
    text = "g (float[1,4,8] x, float[4,1,3] w) => (y) { y = Conv <group = 4> (x, w) }"
    assert lines(learned(text, "y", exact=True)) == ["Conv(x, w.has_rank(3), group=4)"]


def test_learns_inside_a_function() -> None:
    """An attribute that the function's caller gives is not known, hence free."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] x) => (y) { y = f.f <axis = 1> (x) }
        <domain: "f", opset_import: ["" : 17]>
        f <axis> (a) => (c) { b = Softmax <axis : int = @axis> (a) c = Flatten <axis = 0> (b) }"""
    found = learned(text, "b c")
    assert lines(found) == ["softmax = Softmax(x)", "Flatten(softmax, axis=0)"]
    assert found.matches == 1


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ("float c = {2}", ["Mul(a, 2.0)"]),
        ("float[1] c = {-0.5}", ["Mul(a, -0.5)"]),
        ("float c = {1.41421356}", ["Mul(a, const(b))", "where is_close(b, 1.4142135)"]),
        ("float c = {-1e-6}", ["Mul(a, const(b))", "where is_close(b, -1e-06)"]),
        ("float c = {5000}", ["Mul(a, const(b))", "where is_close(b, 5000.0)"]),
        ("float c = {inf}", ["Mul(a, 1e999)"]),
        ("float c = {nan}", ["Mul(a, const(b))"]),
        ("float[2] c = {2, 2}", ["Mul(a, const(b))"]),
        ("int64 c = {100000}", ["Mul(a, 100000)"]),
        ("double c = {0.1}", ["Mul(a, const(b))", "where is_close(b, 0.1)"]),
    ],
    ids=[
        "plain",
        "one-element",
        "rounded",
        "tiny",
        "large",
        "inf",
        "nan",
        "two",
        "int",
        "double",
    ],
)
def test_a_single_number_is_kept(constant: str, expected: list[str]) -> None:
    """A number that every dtype holds becomes a literal, others become a condition."""
    dtype = re.split(r"\W", constant)[0]
    found = learned(f"g ({dtype}[2] x) => (y) <{constant}> {{ y = Mul (x, c) }}", "y")
    assert lines(found) == expected
    check_written(found.rule)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.1, "where is_close(b, 0.1)"),
        (1e-6, "where is_close(b, 1.0132789611816406e-06)"),
    ],
)
def test_a_number_in_half_precision(number: float, expected: str) -> None:
    """The digits are those a reader would write, where they are close enough to match."""
    proto = proto_from_text("g (float16[2] x, float16 c) => (y) { y = Add (x, c) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number, np.float16), "c"))
    del proto.graph.input[1]
    model = model_from_proto(proto, Path(), "test")
    assert lines(learn_rule(model, nodes_of(model, "y"))) == ["Add(a, const(b))", expected]


def test_numbers_are_kept_where_they_count_only() -> None:
    """A quantisation scale is a weight; the index of Gather is not."""
    text = """g (float[2,2] x) => (y) <float s = {0.1}, uint8 z = {3}, int64 i = {1}> {
        r = Gather (x, i) y = QuantizeLinear (r, s, z) }"""
    assert lines(learned(text, "r y")) == [
        "gather = Gather(x, 1)",
        "QuantizeLinear(gather, const(y_scale), const(y_zero_point))",
    ]


def test_each_use_of_a_number_stands_for_itself() -> None:
    """Exporters differ in whether equal numbers share a tensor, so the rule does not ask."""
    shared = "g (float[2] x) => (y) <float c = {0.1}> { t = Add (x, c) y = Mul (t, c) }"
    apart = """g (float[2] x) => (y) <float c = {0.1}, float d = {0.1}> {
        t = Add (x, c) y = Mul (t, d) }"""
    found = learned(shared, "t y")
    assert lines(found) == [
        "add = Add(a, const(b))",
        "Mul(add, const(b_1))",
        "where is_close(b, 0.1)",
        "where is_close(b_1, 0.1)",
    ]
    assert len(selected(found.rule, apart).matches) == 1


@pytest.mark.parametrize(
    ("bias", "expected"),
    [
        ("float[4,1,1] b = {1, 2, 3, 4}", ["where per_channel(b, conv)"]),
        ("float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}", []),
        ("float[1] b = {1}", []),
        ("float b = {1}", []),
    ],
    ids=["per-channel", "per-column", "one-for-all", "number"],
)
def test_a_bias_per_channel_stays_one(bias: str, expected: list[str]) -> None:
    """The condition is there if it holds in the example; one element is a weight, but no scalar."""
    text = f"{CONV} <{bias}> {{ c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Add (c, b) }}"
    found = learned(text, "c y")
    leaf = "1.0" if bias.startswith("float b") else "const(b)"
    assert lines(found) == ["conv = Conv(x, w.has_rank(4))", f"Add(conv, {leaf})", *expected]


def test_quantised_weights_made_inside_show_the_rank() -> None:
    """A convolution whose operands are both made inside is still two-dimensional."""
    text = """g (uint8[1,3,8,8] x, float s) => (y) <uint8[4,3,1,1] q = {1}> {
        a = DequantizeLinear (x, s) w = DequantizeLinear (q, s) y = Conv (a, w) }"""
    assert lines(learned(text, "a w y"))[-1] == (
        "Conv(dequantize_linear, dequantize_linear_1.has_rank(4))"
    )


# -- several outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        pytest.param(
            "g (float[2] x) => (p, q) { p = Neg (x) q = Abs (x) }",
            "p q",
            ["neg = Neg(x)", "abs_1 = Abs(x)", "neg, abs_1"],
            id="siblings",
        ),
        pytest.param(
            "g (float[2] x) => (p, q) { p = Neg (x) q = Abs (p) }",
            "p q",
            ["neg = Neg(x)", "abs_1 = Abs(neg)", "neg, abs_1"],
            id="read-inside-and-outside",
        ),
        pytest.param(
            "g (float[2] x) => (p) { p = Neg (x) q = Abs (p) }",
            "p q",
            ["neg = Neg(x)", "abs_1 = Abs(neg)", "neg, abs_1"],
            id="read-by-nobody",
        ),
        pytest.param(
            """g (float[2] x, float[2] z) => (p, q, r) {
            p = Neg (x) q = Abs (z) r = Add (x, z) }""",
            "p q r",
            [
                "neg = Neg(x)",
                "add = Add(x, x_1)",
                "abs_1 = Abs(x_1)",
                "neg, add, abs_1",
            ],
            id="each-output-shares-with-those-before",
        ),
        pytest.param(
            "g (float[2,2] x) => (p, q) { p, q = Split <axis = 0> (x) }",
            "p",
            ["Split(x)"],
            id="two-outputs-of-one-node",
        ),
        pytest.param(
            "g (float[2,2,2] x) => (i) { , i = MaxPool <kernel_shape = [1]> (x) }",
            "i",
            ["MaxPool(x.has_rank(3))[1]"],
            id="first-output-omitted",
        ),
    ],
)
def test_every_value_needed_outside_is_an_output(
    text: str, labels: str, expected: list[str]
) -> None:
    """A function for the subgraph returns all that the rest of the model reads."""
    found = learned(text, labels)
    assert lines(found) == expected
    assert found.matches == 1
    check_written(found.rule)
