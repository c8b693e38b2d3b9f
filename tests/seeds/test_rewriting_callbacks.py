"""The rewriting of seed documents 3 and 4 as they are written: patterns and callbacks in Python.

A callback that "returns the node as it is" leaves a match; test_rewriting.py has the same as texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from dplcli.analysis.numbering import same_structure
from dplcli.language import RewriteRule, is_const, is_op, wildcard
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from tests.passes.rewriting import Rewritten, check_settled, rewrite_rule, rewritten
from tests.support.helpers import check_sound, model_from_text, print_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Value
    from dplcli.language import Match, Rejection
    from dplcli.language.pattern import DFPattern
    from dplcli.language.replacement import GraphBuilder, NewValue, Operand


def bound(match: Match, pattern: DFPattern) -> Value:
    """Return what a pattern object is bound to, as TVM's ``matchings`` do."""
    value = match.value(pattern)
    assert value is not None
    return value


def check_rewrite(
    rules: Sequence[RewriteRule], before: str, after: str, *, times: tuple[int, ...] = (1,)
) -> Rewritten:
    """Check structure, how often each rule is applied, validity, numbers and a second run."""
    result = rewritten(before, rules)
    assert same_structure(result.model, model_from_text(after)), print_model(result.model)
    operators = [node.op_type for node in result.model.graph]
    assert sorted(operators) == sorted(node.op_type for node in model_from_text(after).graph)
    assert tuple(result.done.counts.values()) == times
    check_sound(result.before, result.after)
    check_settled(result, rules)
    return result


# -- document 4, 简单的示例 ----------------------------------------------------------------------

SQUARE = "g (float[16,16] x) => (float[16,16] x4)"
DOUBLED = f"{SQUARE} {{ x2 = Add (x, x) x4 = Add (x2, x2) }}"
TWICE = f"{SQUARE} <float two = {{2}}> {{ x2 = Mul (x, two) x4 = Mul (x2, two) }}"
FOURFOLD = f"{SQUARE} <float four = {{4}}> {{ x4 = Mul (x, four) }}"


def times(name: str, x: DFPattern, pattern: DFPattern, factor: float) -> RewriteRule:
    """Make the rule whose callback multiplies what *x* is bound to."""

    def rewriter(match: Match, build: GraphBuilder) -> NewValue:
        constant = build.constant(np.float32(factor))
        return build.op("Mul", bound(match, x), constant)

    return RewriteRule(name, pattern, rewriter)


def double() -> RewriteRule:
    """Make the document's first rule."""
    x = wildcard()
    return times("double", x, is_op("Add")(x, x), 2)


def quadruple() -> RewriteRule:
    """Make the document's second rule."""
    x = wildcard()
    add1 = is_op("Add")(x, x)
    return times("quadruple", x, is_op("Add")(add1, add1), 4)


def test_double() -> None:
    """A sum of x and x becomes 2 x, wherever it stands."""
    check_rewrite([double()], DOUBLED, TWICE, times=(2,))


def test_quadruple() -> None:
    """(x + x) + (x + x) with one inner sum becomes 4 x."""
    check_rewrite([quadruple()], DOUBLED, FOURFOLD)


def test_both_in_both_orders() -> None:
    """The rule that is listed first wins."""
    check_rewrite([quadruple(), double()], DOUBLED, FOURFOLD, times=(1, 0))
    check_rewrite([double(), quadruple()], DOUBLED, TWICE, times=(2, 0))


@pytest.mark.parametrize("levels", [1, 2, 3, 10])
def test_to_a_fixpoint(levels: int) -> None:
    """A tower of sums: the first rule takes all; the second takes pairs, and one may be left."""
    names = ["x", *(f"v{level}" for level in range(1, levels)), "y"]
    body = " ".join(f"{names[n + 1]} = Add ({names[n]}, {names[n]})" for n in range(levels))
    before = f"g (float[2] x) => (float[2] y) {{ {body} }}"
    result = rewritten(before, [double()])
    assert result.done.counts == {"double": levels}
    check_sound(result.before, result.after)
    result = rewritten(before, [quadruple(), double()])
    assert result.done.counts == {"quadruple": levels // 2, "double": levels % 2}
    check_sound(result.before, result.after)
    check_settled(result, [quadruple(), double()])


def test_two_sums_of_two() -> None:
    """(x + x) + (x + x) with two inner sums is no diamond: first they double, then nothing."""
    text = f"{SQUARE} {{ a = Add (x, x) b = Add (x, x) x4 = Add (a, b) }}"
    after = f"""{SQUARE} <float two = {{2}}> {{
        a = Mul (x, two) b = Mul (x, two) x4 = Add (a, b) }}"""
    check_rewrite([quadruple(), double()], text, after, times=(0, 2))


def test_the_node_as_it_is() -> None:
    """不进行重写: a callback that returns what it was given changes nothing, and has an end."""

    def original(match: Match, build: GraphBuilder) -> Sequence[Operand]:
        assert build.match is match
        return match.outputs

    x = wildcard()
    rule = RewriteRule("same", is_op("Add")(x, x), original)
    result = check_rewrite([rule], DOUBLED, DOUBLED, times=(0,))
    assert not result.done.refused


def test_none_is_the_same_and_a_reason_is_told() -> None:
    """None says no more than that; ``match.reject`` says why, once for each root."""
    x = wildcard()

    def refuse(match: Match, build: GraphBuilder) -> Rejection | None:
        assert build.match is match
        first = bound(match, x)
        return None if first.producer is None else match.reject("not of a sum", at=first)

    rule = RewriteRule("never", is_op("Add")(x, x), refuse)
    result = check_rewrite([rule], DOUBLED, DOUBLED, times=(0,))
    (refused,) = result.done.refused
    assert (refused.root.label, refused.stage, refused.reason) == ("x4", "check", "not of a sum")
    assert refused.at is refused.root.inputs[0]


# -- document 4, 重写注意力模块 --------------------------------------------------------------------

BSNH = "float[2,6,3,4]"
ATTENTION = f"""<ir_version: 11, opset_import: ["" : 23]>
    g ({BSNH} Q, {BSNH} K, {BSNH} V) => ({BSNH} lv72)
    <int64[3] merged = {{6, 6, 4}}, int64[4] split = {{2, 3, 6, 4}}, float scale = {{0.5}}> {{
    lv58 = Transpose <perm = [0, 2, 1, 3]> (Q) lv59 = Reshape (lv58, merged)
    lv61 = Transpose <perm = [0, 2, 1, 3]> (K) lv62 = Reshape (lv61, merged)
    lv64 = Transpose <perm = [0, 2, 1, 3]> (V) lv65 = Reshape (lv64, merged)
    lv62_transposed = Transpose <perm = [0, 2, 1]> (lv62)
    lv3_1 = MatMul (lv59, lv62_transposed)
    lv68 = Mul (lv3_1, scale)
    lv69 = Softmax <axis = -1> (lv68)
    lv_3 = MatMul (lv69, lv65)
    lv71 = Reshape (lv_3, split) lv72 = Transpose <perm = [0, 2, 1, 3]> (lv71) }}"""
HEADS = """
merged_q = Reshape(Transpose(Q, perm=[0, 2, 1, 3]), const(to_q), allowzero=0)
merged_k = Reshape(Transpose(K, perm=[0, 2, 1, 3]), const(to_k), allowzero=0)
merged_v = Reshape(Transpose(V, perm=[0, 2, 1, 3]), const(to_v), allowzero=0)
weights = Softmax(MatMul(merged_q, Transpose(merged_k, perm=[0, 2, 1])) * const(scale), axis=-1)
Transpose(Reshape(MatMul(weights, merged_v), const(back), allowzero=0), perm=[0, 2, 1, 3])
"""
STANDARD = """
q = Transpose(Q, perm=[0, 2, 1, 3])
k = Transpose(K, perm=[0, 2, 1, 3])
v = Transpose(V, perm=[0, 2, 1, 3])
Transpose(Attention(q, k, v, scale=scale.value), perm=[0, 2, 1, 3])
"""
SHAPES = (
    "scale.rank == 0",
    "Q.rank == 4",
    "same_shape(K, V)",
    "merged_q.shape == (Q.shape[0] * Q.shape[2], Q.shape[1], Q.shape[3])",
    "merged_k.shape == (K.shape[0] * K.shape[2], K.shape[1], K.shape[3])",
    "merged_v.shape == (V.shape[0] * V.shape[2], V.shape[1], V.shape[3])",
    "all(back.value == [Q.shape[0], Q.shape[2], Q.shape[1], Q.shape[3]])",
)


def test_standard_attention() -> None:
    """The block becomes the standard's Attention: opset 23 has it, and it computes the same."""
    after = f"""<ir_version: 11, opset_import: ["" : 23]>
        g ({BSNH} Q, {BSNH} K, {BSNH} V) => ({BSNH} lv72) {{
        q = Transpose <perm = [0, 2, 1, 3]> (Q) k = Transpose <perm = [0, 2, 1, 3]> (K)
        v = Transpose <perm = [0, 2, 1, 3]> (V) a = Attention <scale = 0.5> (q, k, v)
        lv72 = Transpose <perm = [0, 2, 1, 3]> (a) }}"""
    check_rewrite([rewrite_rule(HEADS, STANDARD, *SHAPES)], ATTENTION, after)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"" : 23', '"" : 22', "opset 22 has no Attention"),
        ("float scale = {0.5}", "float[1] scale = {0.5}", "'scale.rank == 0' does not hold"),
        ("split = {2, 3, 6, 4}", "split = {3, 2, 6, 4}", "back.value"),
        ("merged = {6, 6, 4}", "merged = {2, 18, 4}", "merged_q.shape"),
    ],
)
def test_nearly_standard_attention(old: str, new: str, reason: str) -> None:
    """Another opset, a scale per head, heads and batch confused: left as it is, with a reason."""
    text = ATTENTION.replace(old, new)
    if "split" in old:
        text = text.replace(f"({BSNH} lv72)", "(float[3,6,2,4] lv72)")
    result = rewritten(text, [rewrite_rule(HEADS, STANDARD, *SHAPES)])
    assert not result.done.applications
    (refused,) = result.done.refused
    assert reason in refused.reason


def test_attention_by_a_callback() -> None:
    """The document's own: patterns made by functions, a callback that names an operator."""
    perm = {"perm": [0, 2, 1, 3]}

    def to_3d(tensor: DFPattern) -> DFPattern:
        return is_op("Reshape")(is_op("Transpose")(tensor).has_attr(perm), wildcard())

    query, key, value = wildcard("Q"), wildcard("K"), wildcard("V")
    transposed = is_op("Transpose")(to_3d(value)).has_attr({"perm": [0, 2, 1]})
    scaled = is_op("Mul")(is_op("MatMul")(to_3d(query), transposed), is_const())
    product = is_op("MatMul")(is_op("Softmax")(scaled), to_3d(key))
    pattern = is_op("Transpose")(is_op("Reshape")(product, wildcard())).has_attr(perm)

    def rewriter(match: Match, build: GraphBuilder) -> NewValue:
        operands = (bound(match, item) for item in (query, key, value))
        return build.op("Attention", *operands, domain="custom")

    result = rewritten(ATTENTION, [RewriteRule("attention", pattern, rewriter)])
    assert result.text == "(Q, K, V) => (lv72) { lv72 = custom.Attention (Q, V, K) }"
    assert {item.domain for item in result.after.opset_import} == {"", "custom"}
    onnx.checker.check_model(result.after)


# -- document 4, 测试交换律模式匹配 ----------------------------------------------------------------


def commutative() -> RewriteRule:
    """Make the rule that turns a 1.0 beside a sum or product into 2.0, whichever it is."""
    argument, constant = wildcard(), is_const()
    call = (is_op("Add") | is_op("Mul"))(argument, constant)

    def rewriter(match: Match, build: GraphBuilder) -> NewValue | None:
        tensor = bound(match, constant).constant
        assert tensor is not None
        if tensor.shape != () or tensor.numpy() != 1:
            return None
        two = build.constant(np.array(2, tensor.numpy().dtype))
        return build.op(match.root.op_type, bound(match, argument), two)

    return RewriteRule("one_to_two", call, rewriter)


@pytest.mark.parametrize("dtype", ["float", "double", "int64"])
@pytest.mark.parametrize(
    ("call", "becomes"),
    [
        ("Add (one, y)", "Add (y, two)"),
        ("Add (y, one)", "Add (y, two)"),
        ("Mul (one, y)", "Mul (y, two)"),
        ("Add (two, y)", None),
        ("Add (ones, y)", None),
        ("Sub (y, one)", None),
        ("Add (x, y)", None),
    ],
)
def test_commutative_pattern(dtype: str, call: str, becomes: str | None) -> None:
    """A constant on either side; the callback learns which operator it was, and may decline."""
    text = f"""g ({dtype}[8] x) => ({dtype}[8] out)
        <{dtype} one = {{1}}, {dtype} two = {{2}}, {dtype}[1] ones = {{1}}> {{
        y = Add (x, x) out = {{}} }}"""
    result = rewritten(text.replace("{}", call), [commutative()])
    expected = model_from_text(text.replace("{}", becomes or call))
    assert same_structure(result.model, expected), print_model(result.model)
    assert result.done.counts == {"one_to_two": int(becomes is not None)}
    onnx.checker.check_model(result.after, full_check=True)
    check_settled(result, [commutative()])


# -- document 4, 测试重复模式匹配 ------------------------------------------------------------------


def distribute() -> RewriteRule:
    """Make the rule that multiplies both sides of a sum."""
    left, right, constant = wildcard(), wildcard(), is_const()

    def rewriter(match: Match, build: GraphBuilder) -> NewValue:
        sides = (
            build.op("Mul", bound(match, side), bound(match, constant)) for side in (left, right)
        )
        return build.op("Add", *sides)

    return RewriteRule("distribute", is_op("Mul")(is_op("Add")(left, right), constant), rewriter)


@pytest.mark.parametrize("count", [1, 2, 3, 25])
def test_repeated_pattern(count: int) -> None:
    """Until it converges: a round for each sum of the chain, and a product for each operand."""
    inputs = ", ".join(f"float[4] x{n}" for n in range(count + 1))
    head = f"g ({inputs}) => (float[4] out) <float five = {{5}}>"
    sums = [f"a{n} = Add ({f'a{n - 1}' if n > 1 else 'x0'}, x{n})" for n in range(1, count + 1)]
    before = f"{head} {{ {' '.join(sums)} out = Mul (a{count}, five) }}"
    products = [f"m{n} = Mul (x{n}, five)" for n in range(count + 1)]
    sums = [f"a{n} = Add ({f'a{n - 1}' if n > 1 else 'm0'}, m{n})" for n in range(1, count + 1)]
    after = f"{head} {{ {' '.join(products + sums)} }}".replace(f"a{count} =", "out =")
    result = check_rewrite([distribute()], before, after, times=(count,))
    assert result.done.rounds == count


# -- document 3, Pattern Rewriting -----------------------------------------------------------------

NORM = """g (float[3,4] x, float[4] var, float[4] mean, float[4] beta, float[4] gamma)
    => (float[3,4] o) <float eps = {0.00001}> { v = Abs (var)"""


class BatchNorm:
    """The document's callback class: the parts of the pattern are its fields."""

    def __init__(self, *, once: bool = False) -> None:
        """Build the pattern."""
        self.x, self.var, self.mean = wildcard(), wildcard(), wildcard()
        self.beta, self.gamma, self.eps = wildcard(), wildcard(), is_const()
        root = is_op("Sqrt")(self.var + self.eps)
        pattern = self.gamma * (self.x - self.mean) / root + self.beta
        self.rule = RewriteRule("batchnorm", pattern, self.callback, once=once)

    def callback(self, match: Match, build: GraphBuilder) -> NewValue | Rejection:
        """Make one operator, if what is scaled has the shapes that it wants."""
        operands = [bound(match, part) for part in (self.x, self.gamma, self.beta, self.mean)]
        ranks = [len(known.shape or ()) if (known := v.known_type()) else None for v in operands]
        if ranks != [2, 1, 1, 1]:
            return match.reject("BatchNormalization scales columns", at=operands[0])
        tensor = bound(match, self.eps).constant
        assert tensor is not None
        epsilon = tensor.numpy().item()
        return build.op(
            "BatchNormalization", *operands, bound(match, self.var), epsilon=float(epsilon)
        )


def arithmetic(source: str, result: str, tag: str, *, last: str = "Add") -> str:
    """Write a batch normalization as arithmetic."""
    return f"""s{tag} = Sub ({source}, mean) m{tag} = Mul (gamma, s{tag}) a{tag} = Add (v, eps)
        q{tag} = Sqrt (a{tag}) d{tag} = Div (m{tag}, q{tag}) {result} = {last} (d{tag}, beta)"""


def fused(source: str, result: str) -> str:
    """Write it as one operator."""
    inputs = f"{source}, gamma, beta, mean, v"
    return f"{result} = BatchNormalization <epsilon = 0.00001> ({inputs})"


@pytest.mark.parametrize("once", [False, True])
def test_batchnorm(once: bool) -> None:  # noqa: FBT001  # parametrized
    """Arithmetic that is a batch normalization becomes one, also with ``rewrite_once``."""
    rule = BatchNorm(once=once).rule
    check_rewrite([rule], f"{NORM} {arithmetic('x', 'o', '')} }}", f"{NORM} {fused('x', 'o')} }}")


def test_batchnorm_behind_batchnorm() -> None:
    """Two of them; and where one subtracts, only the other."""
    body = f"{arithmetic('x', 'y', '1')} {arithmetic('y', 'o', '2')}"
    after = f"{NORM} {fused('x', 'y')} {fused('y', 'o')} }}"
    check_rewrite([BatchNorm().rule], f"{NORM} {body} }}", after, times=(2,))
    inner = arithmetic("x", "y", "1", last="Sub")
    before = f"{NORM} {inner} {arithmetic('y', 'o', '2')} }}"
    check_rewrite([BatchNorm().rule], before, f"{NORM} {inner} {fused('y', 'o')} }}")


def test_batchnorm_of_other_shapes() -> None:
    """Rows instead of columns: the callback says why not."""
    before = f"{NORM} {arithmetic('x', 'o', '')} }}".replace("float[4] gamma", "float[3,1] gamma")
    result = rewritten(before, [BatchNorm().rule])
    assert [item.reason for item in result.done.refused] == ["BatchNormalization scales columns"]


def test_a_callback_that_matches_its_own_result() -> None:
    """Where the pattern matches what the callback returned, "the rewriter will run in a loop".

    Here it is ended, and the rule named; with ``rewrite_once`` it runs once at each place.
    """
    a, b = wildcard(), wildcard()

    def turn(match: Match, build: GraphBuilder) -> NewValue:
        return build.op("Add", bound(match, b), bound(match, a))

    text = """g (float[2] x, float[2] y) => (float[2] o)
        { s = Add (x, y) t = Add (s, x) o = Neg (t) }"""
    model = model_from_text(text)
    with pytest.raises(RewriteLimitError, match="the rule turn "):
        rewrite(model, [RewriteRule("turn", is_op("Add")(a, b), turn)])
    once = RewriteRule("turn", is_op("Add")(a, b), turn, once=True)
    result = rewritten(text, [once])
    assert result.done.counts == {"turn": 2}
    assert result.text == "(x, y) => (o) { s = Add (y, x) t = Add (x, s) o = Neg (t) }"
    check_sound(result.before, result.after)


def test_once_beside_rules_without_end_in_sight() -> None:
    """A rule with one turn sees what rules before it have made in that round, and no more."""
    wrap = rewrite_rule("Relu(v)", "Abs(Relu(v))", name="wrap", once=True)
    make = rewrite_rule("Sin(v)", "Relu(v)", name="make")
    before = "g (float[2] x) => (float[2] y) { a = Relu (x) y = Sin (a) }"
    result = rewritten(before, [make, wrap])
    assert result.done.counts == {"make": 1, "wrap": 2}
    result = rewritten(before, [wrap, make])
    assert result.done.counts == {"wrap": 1, "make": 1}


def test_once_leaves_alone_what_it_has_made() -> None:
    """Producers come first where there are several outputs: the second pair stands on the first."""
    before = """g (float[2] x) => (float[2] y, float[2] z) {
        p = Abs (x) s = Sin (p) c = Cos (p) y = Sin (s) z = Cos (s) w = Exp (c) }"""
    pattern, becomes = "p = Abs(v)\nSin(p), Cos(p)", "Abs(Sin(v)), Abs(Cos(v))"
    result = rewritten(before, [rewrite_rule(pattern, becomes, name="pair", once=True)])
    assert result.done.counts == {"pair": 1}
    result = rewritten(before, [rewrite_rule(pattern, becomes, name="pair")])
    assert result.done.counts == {"pair": 2}
