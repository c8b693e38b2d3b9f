"""The rewriting of seed documents 3, "Relay 中的模式匹配", and 4, "DPL 模式重写", as rules in YAML.

A callback that returns the node as it is, depending on what it finds, is a ``where`` here. The
documents' own callbacks are in test_rewriting_callbacks.py.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli.analysis.numbering import same_structure
from dplcli.catalog import read_catalogs
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import RewriteLimitError, rewrite
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_text,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from dplcli.ir import Model
    from dplcli.language import RewriteRule
    from dplcli.passes.rewrite import Rewriting


def rules_from(text: str) -> list[RewriteRule]:
    """Load the items of ``rewrites``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        items = indent(dedent(text).strip(), "  ")
        path.write_text(f"dpl: 1\nrewrites:\n{items}\n", encoding="utf-8")
        return read_catalogs([str(path)], SCHEMAS).rewrites


def operators(model: Model) -> Counter[str]:
    """Count the nodes by operator, constants left out."""
    return Counter(n.qualified_op for n in model.graph if n.op_type != "Constant")


def check_rewrite(
    rules: str, before: str, after: str, *, times: tuple[int, ...] = (1,), same_numbers: bool = True
) -> Rewriting:
    """Check structure, how often each rule is applied, validity and numbers."""
    model, expected = model_from_text(before), model_from_text(after)
    outcome = rewrite(model, rules_from(rules))
    check_structure(model)
    assert same_structure(model, expected), print_model(model)
    assert operators(model) == operators(expected), print_model(model)
    assert tuple(outcome.counts.values()) == times
    written: onnx.ModelProto = to_proto(model)
    onnx.checker.check_model(written, full_check=True)
    if same_numbers:
        check_sound(proto_from_text(before), written)
    return outcome


# -- document 3, Pattern Rewriting -----------------------------------------------------------------

BATCHNORM = """
    - name: batchnorm
      pattern: gamma * (x - mean) / Sqrt(var + const(eps)) + beta
      where: [x.rank == 2, eps.rank == 0, gamma.rank == 1, beta.rank == 1, mean.rank == 1]
      replacement: BatchNormalization(x, gamma, beta, mean, var, epsilon=eps.value)
"""
NORM_INPUTS = "float[3,4] x, float[4] var, float[4] mean, float[4] beta, float[4] gamma"
NORM = f"g ({NORM_INPUTS}) => (float[3,4] o) <float eps = {{0.00001}}> {{ v = Abs (var)"


@pytest.mark.parametrize("added", ["v, eps", "eps, v"])
def test_batchnorm(added: str) -> None:
    """Pattern Rewriting: arithmetic that is a batch normalization becomes one.

    The variance is made positive, so that the numbers can be compared.
    """
    arithmetic = f"""s = Sub (x, mean) m = Mul (gamma, s) a = Add ({added}) q = Sqrt (a)
        d = Div (m, q) o = Add (d, beta)"""
    fused = "o = BatchNormalization <epsilon = 0.00001> (x, gamma, beta, mean, v)"
    check_rewrite(BATCHNORM, f"{NORM} {arithmetic} }}", f"{NORM} {fused} }}")


def test_a_rule_that_matches_what_it_makes() -> None:
    """Pattern Rewriting: "the rewriter will run in a loop"; here it is ended, and named."""
    model = model_from_text("g (float[2] x, float[2] y) => (float[2] o) { o = Add (x, y) }")
    rules = rules_from('- {name: turn, pattern: "Add(x, y)", replacement: "Add(y, x)"}')
    with pytest.raises(RewriteLimitError, match="the rule turn feeds itself at 'o'"):
        rewrite(model, rules)


# -- document 4 ------------------------------------------------------------------------------------

SQUARE = "g (float[16,16] x) => (float[16,16] x4)"
DOUBLED = f"{SQUARE} {{ x2 = Add (x, x) x4 = Add (x2, x2) }}"


def test_simple_example() -> None:
    """简单的示例: x + x becomes 2 x, twice."""
    rules = """
        - name: double
          pattern: Add(x, x)
          replacement: Mul(x, 2.0)
    """
    after = f"{SQUARE} <float two = {{2}}> {{ x2 = Mul (x, two) x4 = Mul (x2, two) }}"
    check_rewrite(rules, DOUBLED, after, times=(2,))


def test_simple_example_as_one() -> None:
    """简单的示例: (x + x) + (x + x) with one inner sum becomes 4 x."""
    rules = """
        - name: quadruple
          pattern: |
            add1 = Add(x, x)
            Add(add1, add1)
          replacement: Mul(x, 4.0)
    """
    check_rewrite(rules, DOUBLED, f"{SQUARE} <float four = {{4}}> {{ x4 = Mul (x, four) }}")


@pytest.mark.parametrize("swapped", [False, True])
def test_simple_example_in_both_ways(swapped: bool) -> None:  # noqa: FBT001  # parametrized
    """简单的示例: both rules together; the one listed first wins."""
    quadruple = """
        - {name: quadruple, pattern: "a = Add(x, x)\\nAdd(a, a)", replacement: "x * 4.0"}"""
    double = """
        - {name: double, pattern: "Add(x, x)", replacement: "x * 2.0"}"""
    twice = f"{SQUARE} <float two = {{2}}> {{ x2 = Mul (x, two) x4 = Mul (x2, two) }}"
    once = f"{SQUARE} <float four = {{4}}> {{ x4 = Mul (x, four) }}"
    if swapped:
        check_rewrite(double + quadruple, DOUBLED, twice, times=(2, 0))
    else:
        check_rewrite(quadruple + double, DOUBLED, once, times=(1, 0))


BSNH = "float[2,4096,8,40]"
ATTENTION = f"""g ({BSNH} Q, {BSNH} K, {BSNH} V) => ({BSNH} lv72)
    <int64[3] merged = {{16, 4096, 40}}, int64[4] split = {{2, 8, 4096, 40}},
     float scale = {{0.15811388194561005}}> {{
    lv58 = Transpose <perm = [0, 2, 1, 3]> (Q) lv59 = Reshape (lv58, merged)
    lv61 = Transpose <perm = [0, 2, 1, 3]> (K) lv62 = Reshape (lv61, merged)
    lv64 = Transpose <perm = [0, 2, 1, 3]> (V) lv65 = Reshape (lv64, merged)
    lv62_transposed = Transpose <perm = [0, 2, 1]> (lv62)
    lv3_1 = MatMul (lv59, lv62_transposed)
    lv68 = Mul (lv3_1, scale)
    lv69 = Softmax <axis = -1> (lv68)
    lv_3 = MatMul (lv69, lv65)
    lv71 = Reshape (lv_3, split) lv72 = Transpose <perm = [0, 2, 1, 3]> (lv71) }}"""
ATTENTION_RULE = """
    - name: attention
      pattern: |
        Q_3D = Reshape(Transpose(Q, perm=[0, 2, 1, 3]), _, allowzero=0)
        V_3D = Reshape(Transpose(V, perm=[0, 2, 1, 3]), _, allowzero=0)
        K_3D = Reshape(Transpose(K, perm=[0, 2, 1, 3]), _, allowzero=0)
        matmul1 = MatMul(Q_3D, Transpose(V_3D, perm=[0, 2, 1]))
        softmax = Softmax(matmul1 * const(), axis=-1)
        matmul2 = MatMul(softmax, K_3D)
        Transpose(Reshape(matmul2, _, allowzero=0), perm=[0, 2, 1, 3])
      replacement: custom.Attention(Q, K, V)
"""


def test_attention() -> None:
    """重写注意力模块: the block becomes one operator, Attention(Q, V, K).

    The document's pattern calls the operand of the first product V and that of the second K, so
    that the graph's K and V change places.
    """
    after = f"""<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
        g ({BSNH} Q, {BSNH} K, {BSNH} V) => ({BSNH} lv72) {{ lv72 = custom.Attention (Q, V, K) }}"""
    check_rewrite(ATTENTION_RULE, ATTENTION, after, same_numbers=False)


def test_attention_of_other_axes() -> None:
    """重写注意力模块: one Transpose of other axes is no attention, and nothing changes."""
    other = ATTENTION.replace("[0, 2, 1]> (lv62)", "[0, 1, 2]> (lv62)").replace("4096", "40")
    check_rewrite(ATTENTION_RULE, other, other, times=(0,))


COMMUTED = """g (float[1024] x) => (float[1024] out)
    <float one = {{1}}, float two = {{2}}, float[1] ones = {{1}}> {{
    y = Add (x, x) out = {} }}"""
ONE_TO_TWO = """
    - name: add_one
      pattern: Add(arg, const(c))
      where: [c.rank == 0, c.value == 1.0]
      replacement: Add(arg, 2.0)
    - name: mul_one
      pattern: Mul(arg, const(c))
      where: [c.rank == 0, c.value == 1.0]
      replacement: Mul(arg, 2.0)
"""


@pytest.mark.parametrize(
    ("call", "result", "times"),
    [
        ("Add (one, y)", "Add (y, two)", (1, 0)),
        ("Add (y, one)", "Add (y, two)", (1, 0)),
        ("Mul (one, y)", "Mul (y, two)", (0, 1)),
        ("Add (two, y)", "Add (two, y)", (0, 0)),
        ("Add (ones, y)", "Add (ones, y)", (0, 0)),
        ("Sub (y, one)", "Sub (y, one)", (0, 0)),
    ],
)
def test_commutative_pattern(call: str, result: str, times: tuple[int, int]) -> None:
    """测试交换律模式匹配: a constant of 1.0 on either side becomes 2.0, on the right.

    The document's callback makes a call of whichever operator it found; these are two rules.
    It returns the node as it is if the constant is another, or has a rank.
    """
    same = times == (0, 0)
    check_rewrite(
        ONE_TO_TWO, COMMUTED.format(call), COMMUTED.format(result), times=times, same_numbers=same
    )


DISTRIBUTE = """
    - name: distribute
      pattern: Mul(Add(lhs, rhs), const(c))
      replacement: lhs * c + rhs * c
"""


def test_repeated_pattern() -> None:
    """测试重复模式匹配: a product over a chain of sums is distributed until none is left."""
    head = """g (float[1024] x, float[1024] y, float[1024] z) => (float[1024] out)
        <float five = {5}>"""
    before = f"{head} {{ a = Add (x, y) b = Add (a, z) out = Mul (b, five) }}"
    after = f"""{head} {{ lv3 = Mul (x, five) lv4 = Mul (y, five) lv1 = Add (lv3, lv4)
        lv2 = Mul (z, five) out = Add (lv1, lv2) }}"""
    outcome = check_rewrite(DISTRIBUTE, before, after, times=(2,))
    assert outcome.rounds == 2


def test_repeated_pattern_over_a_long_chain() -> None:
    """测试重复模式匹配: the same over a chain of thirty sums, a round for each."""
    count = 30
    inputs = ", ".join(f"float[4] x{n}" for n in range(count + 1))
    head = f"g ({inputs}) => (float[4] out) <float five = {{5}}>"
    before, after = ["a0 = Identity (x0)"], ["a0 = Mul (x0, five)"]
    for n in range(1, count + 1):
        before.append(f"a{n} = Add (a{n - 1}, x{n})")
        after.append(f"m{n} = Mul (x{n}, five) a{n} = Add (a{n - 1}, m{n})")
    before.append(f"out = Mul (a{count}, five)")
    model = model_from_text(f"{head} {{ {' '.join(before)} }}")
    assert rewrite(model, rules_from(DISTRIBUTE)).rounds == count
    expected = model_from_text(f"{head} {{ {' '.join(after)} out = Identity (a{count}) }}")
    assert same_structure(model, expected), print_model(model)
    check_sound(proto_from_text(f"{head} {{ {' '.join(before)} }}"), to_proto(model))
