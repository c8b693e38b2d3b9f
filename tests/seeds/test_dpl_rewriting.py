"""Seed document 4, "DPL 模式重写": what its patterns match; the rewriting has its own tests."""

from __future__ import annotations

import pytest

from dplcli.language import DFPattern, is_const, is_op, wildcard
from tests.support.helpers import all_bindings, check_match, pattern_of, selected, taken

DOUBLED = """g (float[16,16] x) => (float[16,16] x4) {
    x2 = Add (x, x) x4 = Add (x2, x2) }"""


def test_simple_example() -> None:
    """简单的示例: x + x matches twice, at x2 and at x4."""
    x = wildcard("x")
    check_match(is_op("Add")(x, x), DOUBLED, {"x2": "x=x", "x4": "x=x2"})
    assert taken(selected("Add(x, x)", DOUBLED)) == ["r: x4", "r: x2"]


def test_simple_example_as_one() -> None:
    """简单的示例: (x + x) + (x + x) with one inner pattern is one inner node."""
    x = wildcard("x")
    add1 = is_op("Add")(x, x)
    pattern = is_op("Add")(add1, add1)
    check_match(pattern, DOUBLED, {"x4": "x=x"})
    assert pattern == pattern_of("_a = Add(x, x)\nAdd(_a, _a)")


def test_simple_example_of_two_inner_nodes() -> None:
    """简单的示例: two inner patterns are two nodes (language.md 2.2), not so in TVM."""
    check_match("Add(Add(x, x), Add(x, x))", DOUBLED, {})
    two = DOUBLED.replace("x4 = Add (x2, x2)", "x3 = Add (x, x) x4 = Add (x2, x3)")
    check_match("Add(Add(x, x), Add(x, x))", two, {"x4": "x=x"})
    check_match("a = Add(x, x)\nAdd(a, a)", two, {})


def bsnh_to_bsh(tensor: DFPattern) -> DFPattern:
    """Merge batch and heads."""
    return is_op("Reshape")(is_op("Transpose")(tensor), wildcard())


def bsh_to_bsnh(tensor: DFPattern) -> DFPattern:
    """Split them again."""
    return is_op("Transpose")(is_op("Reshape")(tensor, wildcard()))


ATTENTION = """
    g (float[2,6,8,4] Q, float[2,6,8,4] K, float[2,6,8,4] V) => (float[2,6,8,4] o)
        <int64[3] merged = {16, 6, 4}, int64[4] split = {2, 8, 6, 4}, float scale = {0.158}> {
    lv58 = Transpose <perm=[0,2,1,3]> (Q) lv59 = Reshape (lv58, merged)
    lv61 = Transpose <perm=[0,2,1,3]> (K) lv62 = Reshape (lv61, merged)
    lv64 = Transpose <perm=[0,2,1,3]> (V) lv65 = Reshape (lv64, merged)
    lv62t = Transpose <perm=[0,2,1]> (lv62) lv3 = MatMul (lv59, lv62t)
    lv68 = Mul (lv3, scale) lv69 = Softmax <axis=-1> (lv68) lv70 = MatMul (lv69, lv65)
    lv71 = Reshape (lv70, split) o = Transpose <perm=[0,2,1,3]> (lv71) }"""


def attention() -> DFPattern:
    """Build the document's pattern, which calls the second product's operand K."""
    q_3d, k_3d, v_3d = (bsnh_to_bsh(wildcard(name)) for name in "QKV")
    product = is_op("MatMul")(q_3d, is_op("Transpose")(v_3d))
    softmax = is_op("Softmax")(is_op("Mul")(product, is_const()))
    return bsh_to_bsnh(is_op("MatMul")(softmax, k_3d))


def test_attention() -> None:
    """重写注意力模块: the document's pattern binds K and V the other way round than the graph."""
    check_match(attention(), ATTENTION, {"o": "K=V Q=Q V=K"})


def test_attention_as_text() -> None:
    """重写注意力模块: the same as text, with the axes stated, and the names as in the graph."""
    pattern = """
        q = Reshape(Transpose(Q, perm=[0, 2, 1, 3]), _)
        k = Reshape(Transpose(K, perm=[0, 2, 1, 3]), _)
        v = Reshape(Transpose(V, perm=[0, 2, 1, 3]), _)
        weights = Softmax(MatMul(q, Transpose(k, perm=[0, 2, 1])) * const(scale), axis=-1)
        Transpose(Reshape(weights @ v, _), perm=[0, 2, 1, 3])"""
    expected = "K=K Q=Q V=V k=lv62 q=lv59 scale=scale v=lv65 weights=lv69"
    check_match(pattern, ATTENTION, {"o": expected})
    check_match(pattern.replace("axis=-1", "axis=1"), ATTENTION, {})
    assert len(selected(pattern, ATTENTION).matches[0].nodes) == 13


def test_attention_with_an_input_in_place_of_the_scale() -> None:
    """重写注意力模块: the scale must be constant."""
    text = ATTENTION.replace("float[2,6,8,4] V)", "float[2,6,8,4] V, float scale)").replace(
        ", float scale = {0.158}", ""
    )
    check_match(attention(), text, {})


COMMUTED = """g (float[1024] x) => (float[1024] out) <float one = {1.0}> {
    y = Add (x, x) out = Add (one, y) }"""


@pytest.mark.parametrize("pattern", ["(Add | Mul)(arg, const(c))", "(Mul | Add)(arg, const(c))"])
def test_commutative_pattern(pattern: str) -> None:
    """测试交换律模式匹配: the constant stands first in the graph and second in the pattern."""
    check_match(pattern, COMMUTED, {"out": "arg=y c=one"})
    check_match(pattern, COMMUTED.replace("Add (one, y)", "Mul (one, y)"), {"out": "arg=y c=one"})
    check_match(pattern, COMMUTED.replace("Add (one, y)", "Sub (one, y)"), {})


def test_commutative_pattern_value() -> None:
    """测试交换律模式匹配: the callback's test of the value is a literal here."""
    check_match("(Add | Mul)(arg, 1.0)", COMMUTED, {"out": "arg=y"})
    check_match("(Add | Mul)(arg, 2.0)", COMMUTED, {})


REPEATED = """g (float[1024] x, float[1024] y, float[1024] z) => (float[1024] out)
    <float five = {5.0}> { a = Add (x, y) b = Add (a, z) out = Mul (b, five) }"""


def test_repeated_pattern() -> None:
    """测试重复模式匹配: the first match, from which the document goes on until none is left."""
    check_match("Mul(Add(lhs, rhs), const(c))", REPEATED, {"out": "c=five lhs=a rhs=z"})
    found = all_bindings("Mul(Add(lhs, rhs), const(c))", REPEATED)
    assert found == ["c=five lhs=a rhs=z", "c=five lhs=z rhs=a"]


def test_repeated_pattern_after_one_step() -> None:
    """测试重复模式匹配: after one rewrite the pattern matches once more, inside."""
    text = """g (float[1024] x, float[1024] y, float[1024] z) => (float[1024] out)
        <float five = {5.0}> {
        a = Add (x, y) l = Mul (a, five) r = Mul (z, five) out = Add (l, r) }"""
    check_match("Mul(Add(lhs, rhs), const(c))", text, {"l": "c=five lhs=x rhs=y"})
