"""Seed document 1, "constant embedding" partition (also R86): which constants go into a function.

The document's graphs are ``relu(bias_add(conv2d(x, w), b))`` with w an input and with w a constant.
Its seven headings are one test each, over both graphs; what it prints is compared line by line.
"""

from __future__ import annotations

import numpy as np
import pytest

from dplcli.language import DFPattern, is_const, is_input, is_op, is_value, wildcard
from tests.support.helpers import check_partition, pattern_of, rule

BODY = "c = Conv (x, w) a = Add (c, b) o = Relu (a)"
WITH_INPUT = f"""g (float[1,1,2,2] x, float[1,1,1,1] w, float[1,1,1] b) => (float[1,1,2,2] o) {{
    {BODY} }}"""
WITH_CONSTANT = f"""g (float[1,1,2,2] x, float[1,1,1] b) => (float[1,1,2,2] o)
    <float[1,1,1,1] w = {{1}}> {{ {BODY} }}"""

LIFTED = """
    {main} => (o) {{
      [r_0] o = t.r (x, w, b)
    }}
    t.r (X, {weight}, B) => (relu_2_out) {{
      [Conv_0] conv_0_out = Conv (X, {weight})
      [Add_1] add_1_out = Add (conv_0_out, B)
      [Relu_2] relu_2_out = Relu (add_1_out)
    }}"""
EMBEDDED = """
    (x, b) => (o) {
      [r_0] o = t.r (x, b)
    }
    t.r (X, B) => (relu_2_out) {
      [Constant] constant_out = Constant <value = float32[1, 1, 1, 1]> ()
      [Conv_0] conv_0_out = Conv (X, constant_out)
      [Add_1] add_1_out = Add (conv_0_out, B)
      [Relu_2] relu_2_out = Relu (add_1_out)
    }"""
TRACE = "Conv_Add_Relu_"


def around(weight: DFPattern) -> DFPattern:
    """Build the document's pattern round a pattern for the weight."""
    conv = is_op("Conv")(wildcard(), weight)
    return is_op("Relu")(is_op("Add")(conv, wildcard()))


def check(weight: DFPattern, text: str, after: str | None) -> None:
    """Partition, and compare graph, function and trace."""
    result = check_partition(rule(around(weight)), text, after=after)
    for function in result.functions:
        metadata = {item.key: item.value for item in function.metadata_props}
        assert metadata["PartitionedFromPattern"] == TRACE
        assert metadata["Composite"] == "t.r"
        data = [item for node in function.node for item in node.attribute if item.name == "value"]
        assert len(data) == (after == EMBEDDED)
    assert len(result.functions) == (after is not None)
    assert len(result.graph.initializer) == (text == WITH_CONSTANT and after != EMBEDDED)


def lifted(text: str, weight: str = "W") -> str:
    """Write what the partition looks like with the weight as an input of the function."""
    main = "(x, w, b)" if text == WITH_INPUT else "(x, b)"
    return LIFTED.format(main=main, weight=weight)


@pytest.mark.parametrize("text", [WITH_INPUT, WITH_CONSTANT])
def test_wildcard(text: str) -> None:
    """解除 wildcard() 匹配: a weight that a wildcard matched is passed in, constant or not."""
    check(wildcard(), text, lifted(text))


def test_input() -> None:
    """解除 input 匹配: a weight that is an input is passed in."""
    check(is_input(), WITH_INPUT, lifted(WITH_INPUT))


def test_constant_is_no_input() -> None:
    """常量不是输入: a constant weight is not an input, so nothing is done."""
    check(is_input(), WITH_CONSTANT, None)


def test_constant_pattern() -> None:
    """检查常量匹配的嵌入: a weight that must be constant is embedded, an input is no match."""
    check(is_const(), WITH_INPUT, None)
    check(is_const(), WITH_CONSTANT, EMBEDDED)


def test_expr_pattern() -> None:
    """检查常量 ExprPatterns 的嵌入: the same for a weight of given data."""
    exact = is_value(np.ones((1, 1, 1, 1), np.float32))
    check(exact, WITH_INPUT, None)
    check(exact, WITH_CONSTANT, EMBEDDED)
    check(is_value(np.zeros((1, 1, 1, 1), np.float32)), WITH_CONSTANT, None)
    check(is_value(np.ones((1, 1, 1, 1), np.float64)), WITH_CONSTANT, None)


@pytest.mark.parametrize("swapped", [False, True])
def test_alternative(swapped: bool) -> None:  # noqa: FBT001  # parametrized
    """检查 Alt 匹配的提升/嵌入, 是否与其他排序一致: the side that matched decides."""
    weight = is_const() | is_input() if swapped else is_input() | is_const()
    check(weight, WITH_INPUT, lifted(WITH_INPUT))
    check(weight, WITH_CONSTANT, EMBEDDED)


def test_wildcard_or_constant() -> None:
    """检查 Alt 匹配的提升/嵌入: with a wildcard beside, the first that matches decides."""
    check(wildcard() | is_const(), WITH_CONSTANT, lifted(WITH_CONSTANT))
    check(is_const() | wildcard(), WITH_CONSTANT, EMBEDDED)
    check(is_const() | wildcard(), WITH_INPUT, lifted(WITH_INPUT))


def test_names_become_names_of_the_inputs() -> None:
    """FunctionVar_0_0: in place of numbers, the inputs are called as the pattern calls them."""
    check_partition(
        "Relu(Add(Conv(data, weight), bias))",
        WITH_INPUT,
        after="""
            (x, w, b) => (o) {
              [r_0] o = t.r (x, w, b)
            }
            t.r (data, weight, bias) => (relu_2_out) {
              [Conv_0] conv_0_out = Conv (data, weight)
              [Add_1] add_1_out = Add (conv_0_out, bias)
              [Relu_2] relu_2_out = Relu (add_1_out)
            }""",
    )


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("_", wildcard()),
        ("input()", is_input()),
        ("const()", is_const()),
        ("(input() | const())", is_input() | is_const()),
        ("(const() | input())", is_const() | is_input()),
    ],
)
def test_both_spellings(text: str, weight: DFPattern) -> None:
    """The seven patterns read the same as text and as objects."""
    assert pattern_of(f"Relu(Add(Conv(_, {text}), _))") == around(weight)


@pytest.mark.parametrize(("constants", "after"), [("embed", EMBEDDED), ("lift", "lifted")])
@pytest.mark.parametrize("weight", [wildcard(), is_const()])
def test_policy_overrides_the_leaf(weight: DFPattern, constants: str, after: str) -> None:
    """Language page 3: ``embed`` and ``lift`` decide for every constant, whatever matched it."""
    expected = lifted(WITH_CONSTANT) if after == "lifted" else after
    check_partition(rule(around(weight), constants=constants), WITH_CONSTANT, after=expected)
