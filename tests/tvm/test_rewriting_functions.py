"""TVM's tests of rewriting that need callbacks, one turn only, clean-up, or functions as rules.

R60, R85, R87 and R90 of the inventory (Relay), D51 (Relax) and the rewriters W2 to W8, W12 to W15,
W23 and W24, whose rules are pairs of functions (``from_module``). TVM raises KeyError, TypeError
and ValueError for modules that make no rule; here they are refused when the file is read.

======== ==========================================================================================
W14      [≈] nothing is public here: the standard's own domain is what a helper may not enter
W23, W24 [≈] ONNX has no side effects: a body's border is what a match may not cross
======== ==========================================================================================
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli.analysis.numbering import same_structure
from dplcli.catalog import read_catalogs
from dplcli.errors import CatalogError
from dplcli.language import RewriteRule, is_op, wildcard
from dplcli.language.replacement import DraftOutput
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.rules import READERS
from tests.passes.rewriting import bound, check_settled, rewrite_rule, rewritten
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_text,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language import Match
    from dplcli.language.replacement import GraphBuilder, NewValue, Operand
    from tests.passes.rewriting import Rewritten

HEADER = '<ir_version: 10, opset_import: ["" : 20, "ext" : 1]>\n'
RULES = '<domain: "rules", opset_import: ["" : 20, "rules" : 1, "ext" : 1]>\n'


def function_rules(*functions: str) -> list[RewriteRule]:
    """Read functions of the domain ``rules``, written without their headers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.onnxtxt"
        path.write_text("\n".join(RULES + item for item in functions), encoding="utf-8")
        return read_catalogs([str(path)], SCHEMAS, readers=READERS).rewrites


def check_rewrite(
    rules: Sequence[RewriteRule],
    before: str,
    after: str | None,
    *,
    times: tuple[int, ...] = (1,),
    numbers: bool = True,
) -> Rewritten:
    """Check structure, how often each rule is applied, validity, numbers and a second run."""
    result = rewritten(HEADER + before, rules)
    expected = model_from_text(HEADER + (before if after is None else after))
    assert same_structure(result.model, expected), print_model(result.model)
    assert tuple(result.done.counts.values()) == times
    onnx.checker.check_model(result.after, full_check=True)
    if numbers:
        check_sound(proto_from_text(HEADER + before), result.after)
    check_settled(result, rules)
    return result


# -- Relay -----------------------------------------------------------------------------------------

XY = "g (float[2] x, float[2] y) => (float[2] o)"


def test_nested_rewrite() -> None:
    """R60 test_nested_rewrite [H06]: a callback that returns what it was given has an end."""
    a, b = wildcard(), wildcard()
    n0 = is_op("Add")(a, b)
    pattern = is_op("Add")(n0, is_op("Add")(n0, a))
    seen = []

    def post(match: Match, build: GraphBuilder) -> Sequence[Operand]:
        assert build.match is match
        seen.append(match.root.label)
        return match.outputs

    before = f"{XY} {{ s = Add (y, y) n = Add (x, s) m = Add (x, n) o = Add (m, n) }}"
    check_rewrite([RewriteRule("same", pattern, post)], before, None, times=(0,))
    assert set(seen) == {"o"}


@pytest.mark.parametrize("inside", ["Mul", "Add"])
def test_match_match(inside: str) -> None:
    """R85 test_match_match: [≈] a model with bodies; rewriting ends, and finds what is in them."""
    before = f"""g (float[2] x, int64 n, bool c) => (float[2] o) {{
        i = If (c) <then_branch = t () => (float[2] p) {{ p = {inside} (x, x) }},
                    else_branch = e () => (float[2] q) {{ q = Neg (x) }}>
        o = Loop (n, c, i) <body = l (int64 k, bool d, float[2] s) => (bool e2, float[2] u) {{
            e2 = Identity (d) u = {inside} (s, i) }}> }}"""
    rule = rewrite_rule("Add(a, b)", "Sub(a, Neg(b))", name="sum")
    result = rewritten(HEADER + before, [rule])
    assert result.done.counts == {"sum": 2 if inside == "Add" else 0}
    onnx.checker.check_model(result.after, full_check=True)
    check_settled(result, [rule])


def drop_last(*, once: bool) -> RewriteRule:
    """Make R87's first rule: a Concat loses its last input."""

    def callback(match: Match, build: GraphBuilder) -> NewValue | Operand:
        *inputs, _ = match.root.inputs
        if len(inputs) == 1:
            assert inputs[0] is not None
            return inputs[0]
        return DraftOutput(build.node("Concat", "", inputs, match.attributes["attrs"]))

    return rewrite_rule("Concat(x, _, ..., **attrs)", callback, name="concat", once=once)


def relu_on_softmax() -> RewriteRule:
    """Make R87's second rule, which matches what it makes and so has one turn."""
    return rewrite_rule("Softmax(x, **attrs)", "Relu(Softmax(x, **attrs))", name="relu", once=True)


CONCAT = "g (float[2,2] x, float[2,2] y, float[2,2] z) => (float[2,n] o)"


@pytest.mark.parametrize(
    ("once", "after", "times"),
    [(False, "o = Identity (x)", 2), (True, "o = Concat <axis = 1> (x, y)", 1)],
)
def test_rewrite_once(once: bool, after: str, times: int) -> None:  # noqa: FBT001  # parametrized
    """R87 test_rewrite_once [H15]: down to one input, or by one input."""
    before = f"{CONCAT} {{ o = Concat <axis = 1> (x, y, z) }}"
    result = rewritten(HEADER + before, [drop_last(once=once)])
    expected = model_from_text(f"{HEADER}{CONCAT} {{ {after} }}")
    assert same_structure(result.model, expected), print_model(result.model)
    assert result.done.counts == {"concat": times}
    onnx.checker.check_model(result.after, full_check=True)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("once", "inner", "times"), [(False, "x", 2), (True, "c", 1)], ids=["free", "once"]
)
def test_rewrite_once_of_two(swapped: bool, once: bool, inner: str, times: int) -> None:  # noqa: FBT001
    """R87 test_rewrite_once [H15]: two callbacks, one of them with one turn, or both."""
    rules = [drop_last(once=once), relu_on_softmax()]
    before = f"{CONCAT} {{ c = Concat <axis = 1> (x, y, z) o = Softmax (c) }}"
    concat = "c = Concat <axis = 1> (x, y)" if once else ""
    after = f"{CONCAT} {{ {concat} s = Softmax ({inner}) o = Relu (s) }}"
    result = rewritten(HEADER + before, rules[::-1] if swapped else rules)
    assert same_structure(result.model, model_from_text(HEADER + after)), print_model(result.model)
    assert result.done.counts == {"concat": times, "relu": 1}


def test_pattern_recursion_once() -> None:
    """R90 test_rewrite_with_pattern_recursion [H18]: six casts and what they end in, below a Relu.

    The replacement holds what was matched, so that the rule has one turn.
    """

    def callback(match: Match, build: GraphBuilder) -> NewValue:
        return build.op("Relu", bound(match, "m"))

    rule = rewrite_rule(
        "m = MatMul(x, const(w))\nrepeat(Cast, m, min=1, to=1)", callback, name="casts", once=True
    )
    casts = "a = Cast <to = 1> (m) b = Cast <to = 1> (a) o = Cast <to = 1> (b)"
    head = "g (float[2,2] x) => (float[2,2] o) <float[2,2] w = {1, 2, 3, 4}>"
    result = rewritten(f"{HEADER}{head} {{ m = MatMul (x, w) {casts} }}", [rule])
    assert result.text == "(x) => (o) { m = MatMul (x, w) o = Relu (m) }"


# -- Relax -----------------------------------------------------------------------------------------


def test_iterative_rewrite_without_trivial_binding() -> None:
    """D51 test_iterative_rewrite_without_trivial_binding: two slices, two uses of one Split.

    Each slice becomes an output of a Split of its own; the second rule makes one of equal ones.
    """

    def half(match: Match, build: GraphBuilder) -> NewValue | None:
        known = bound(match, "x").known_type()
        bounds = [bound(match, name).constant for name in ("start", "end")]
        if known is None or known.shape is None or None in bounds:
            return None
        start, end = (int(item.numpy()[0]) for item in bounds if item is not None)
        (size,) = known.shape
        if not isinstance(size, int) or (start, end) not in {(0, size // 2), (size // 2, size)}:
            return None
        parts = build.ops("Split", bound(match, "x"), outputs=2, axis=0, num_outputs=2)
        return parts[start * 2 // size]

    slices = rewrite_rule("Slice(x, const(start), const(end), axes=[0])", half, name="slice")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(
            "dpl: 1\nrewrites:\n  - {name: merge_common, function: merge_common}\n",
            encoding="utf-8",
        )
        (merge,) = read_catalogs([str(path)], SCHEMAS).rewrites
    before = """g (float[1024] x) => (float[512] o)
        <int64[1] s0 = {0}, int64[1] s1 = {512}, int64[1] s2 = {1024}, int64[1] axis = {0}> {
        a = Slice (x, s0, s1, axis) b = Slice (x, s1, s2, axis) o = Add (a, b) }"""
    after = """g (float[1024] x) => (float[512] o) {
        a, b = Split <axis = 0, num_outputs = 2> (x) o = Add (a, b) }"""
    result = check_rewrite([slices, merge], before, after, times=(2, 1))
    assert [node.op_type for node in result.model.graph] == ["Split", "Add"]
    assert not result.after.graph.initializer


# -- Relax: rewriters from modules -----------------------------------------------------------------

ADD = "(a, b) => (c) { c = Add (a, b) }"
SUM = "g (float[16] A, float[16] B) => (float[16] o)"


def test_missing_pattern() -> None:
    """W2 test_missing_pattern_raises_error: KeyError there."""
    with pytest.raises(CatalogError, match="there is no function 'r_pattern' beside"):
        function_rules(f"r_replacement {ADD}")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("(a, b) => (a) { c = Add (a, b) }", "made by no node"),
        ("(a) => () { c = Neg (a) }", "made by no node"),
        ("(a) => (c) { c = Constant <value = float[1] {1}> () }", "made by no node"),
        (
            """(a, k) => (c) { c = If (k) <
            then_branch = t () => (p) { p = Neg (a) },
            else_branch = e () => (q) { q = Abs (a) }> }""",
            "If has a body",
        ),
    ],
)
def test_pattern_of_the_wrong_kind(body: str, reason: str) -> None:
    """W3 test_incorrect_function_type_of_pattern_raises_error: [≈] no function that can match."""
    inputs = body[: body.index("=>")]
    outputs = body[body.index("=>") : body.index("{")]
    after = f"{inputs} {outputs} {{ {'c = Neg (a)' if 'c)' in outputs else ''} }}"
    with pytest.raises(CatalogError, match=reason):
        function_rules(f"r_pattern {body}", f"r_replacement {after}")


def test_missing_replacement() -> None:
    """W4 test_missing_replacement_raises_error: KeyError there."""
    with pytest.raises(CatalogError, match="there is no function 'r_replacement' beside"):
        function_rules(f"r_pattern {ADD}")


def test_replacement_of_the_wrong_kind() -> None:
    """W5 test_incorrect_function_type_of_replacement_raises_error: [≈] it holds a body."""
    body = """(a, b) => (c) { k = Less (a, b) c = If (k) <
        then_branch = t () => (p) { p = Neg (a) }, else_branch = e () => (q) { q = Abs (a) }> }"""
    with pytest.raises(CatalogError, match="If has a body, which no rule can hold"):
        function_rules(f"r_pattern {ADD}", f"r_replacement {body}")


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("(a) => (c) { c = Neg (a) }", "2 inputs, the replacement 1"),
        ("(a, b) => (c, d) { c = Add (a, b) d = Neg (c) }", "1 outputs, the replacement 2"),
    ],
)
def test_mismatch_of_signatures(after: str, reason: str) -> None:
    """W6 test_mismatch_of_static_shapes_raises_error: ValueError there.

    [≈] Functions say nothing of shapes; what they have are inputs and outputs.
    """
    with pytest.raises(CatalogError, match=reason):
        function_rules(f"r_pattern {ADD}", f"r_replacement {after}")


OPT_ADD = (f"add_pattern {ADD}", "add_replacement (a, b) => (c) { c = ext.opt_add (a, b) }")


def test_a_whole_model() -> None:
    """W7 test_rewriter_may_be_applied_to_ir_module, by functions: main graph and function body."""
    text = f"""<ir_version: 10, opset_import: ["" : 20, "ext" : 1, "local" : 1]>
        {SUM} {{ s = local.f (A, B) o = Add (s, B) }}
        <domain: "local", opset_import: ["" : 20]> f (a, b) => (c)
        {{ d = Neg (a) c = Add (d, b) }}"""
    result = rewritten(text, function_rules(*OPT_ADD))
    assert result.done.counts == {"add": 2}
    assert "o = ext.opt_add (s, B)" in result.text
    assert "c = ext.opt_add (d, b)" in result.text


def test_in_a_row_of_passes() -> None:
    """W8 test_rewriter_may_be_used_as_ir_transform: one rewriter after the other, in one model."""
    first = function_rules(
        "twice_pattern (a) => (c) { c = Add (a, a) }",
        "twice_replacement (a) => (c) { k = Constant <value = float {2.0}> () c = Mul (a, k) }",
    )
    second = function_rules(
        "mul_pattern (a, b) => (c) { c = Mul (a, b) }",
        "mul_replacement (a, b) => (c) { c = ext.mul (a, b) }",
    )
    model = model_from_text(f"{HEADER}g (float[16] A) => (float[16] o) {{ o = Add (A, A) }}")
    for rules in (first, second):
        assert sum(rewrite(model, rules).counts.values()) == 1
    assert print_model(model) == "(A) => (o) {\n  o = ext.mul (A, o_Constant)\n}"


def test_composition() -> None:
    """W10 and W11 by functions: two rules of one file, one of which goes on from the other."""
    rules = function_rules(
        "mul_pattern (a, b) => (c) { c = Mul (a, b) }",
        "mul_replacement (a, b) => (c) { c = ext.mul (a, b) }",
        "twice_pattern (a) => (c) { c = Add (a, a) }",
        "twice_replacement (a) => (c) { k = Constant <value = float {2.0}> () c = Mul (a, k) }",
    )
    before = "g (float[16] A) => (float[16] o) { s = Add (A, A) o = Mul (s, A) }"
    result = rewritten(HEADER + before, rules)
    assert result.done.counts == {"mul": 2, "twice": 1}
    assert result.text == "(A) => (o) { s = ext.mul (A, s_Constant) o = ext.mul (s, A) }"
    check_settled(result, rules)


SUBROUTINE = (
    f"add_pattern {ADD}",
    "add_replacement (a, b) => (c) { c = rules.subroutine (a, b) }",
    "subroutine (a, b) => (c) { m = Neg (b) c = Sub (a, m) }",
)
TWICE = "g (float[16] A) => (float[16] o) { B = Add (A, A) o = Add (B, B) }"


def test_subroutines() -> None:
    """W12 test_rewrite_may_introduce_private_relax_subroutines: called twice, there once."""
    rules = function_rules(*SUBROUTINE)
    result = rewritten(HEADER + TWICE, rules)
    assert result.done.counts == {"add": 2}
    assert result.text.startswith("(A) => (o) { B = rules.subroutine (A, A) o = rules.subroutine (")
    (function,) = result.after.functions
    assert (function.domain, function.name) == ("rules", "subroutine")
    onnx.checker.check_model(result.after, full_check=True)
    check_sound(proto_from_text(HEADER + TWICE), result.after)
    check_settled(result, rules)


def test_subroutines_only_when_required() -> None:
    """W13 test_rewrite_only_introduces_private_subroutines_when_required."""
    rules = function_rules(
        *SUBROUTINE,
        "mul_pattern (a, b) => (c) { c = Mul (a, b) }",
        "mul_replacement (a, b) => (c) { c = rules.another (a, b) }",
        "another (a, b) => (c) { c = Div (a, b) }",
    )
    result = rewritten(HEADER + TWICE, rules)
    assert [function.name for function in result.after.functions] == ["subroutine"]
    nothing = f"{HEADER}g (float[16] A) => (float[16] o) {{ o = Exp (A) }}"
    assert not rewritten(nothing, rules).after.functions


def test_subroutines_in_the_standards_domain() -> None:
    """W14 test_rewriter_may_not_introduce_public_subroutines: [≈] ValueError there."""
    helper = '<domain: "ai.onnx.more", opset_import: ["" : 20]> f (a, b) => (c) { c = Sub (a, b) }'
    text = "\n".join(
        [
            f"{RULES}add_pattern {ADD}",
            RULES.replace('"ext" : 1', '"ai.onnx.more" : 1')
            + "add_replacement (a, b) => (c) { c = ai.onnx.more.f (a, b) }",
            helper,
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.onnxtxt"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CatalogError, match=r"ai\.onnx\.more::f is in the standard's own"):
            read_catalogs([str(path)], SCHEMAS, readers=READERS)


def test_subroutines_of_one_name() -> None:
    """W15 test_rewrite_branches_may_reuse_subroutine_name: the second gets a number."""
    other = function_rules(
        "mul_pattern (a, b) => (c) { c = Mul (a, b) }",
        "mul_replacement (a, b) => (c) { c = rules.subroutine (a, b) }",
        "subroutine (a, b) => (c) { r = Reciprocal (b) c = Div (a, r) }",
    )
    rules = [*function_rules(*SUBROUTINE), *other]
    before = "g (float[16] A, float[16] B) => (float[16] o) { s = Add (A, B) o = Mul (s, B) }"
    result = rewritten(HEADER + before, rules)
    assert [function.name for function in result.after.functions] == [
        "subroutine",
        "subroutine_1",
    ]
    assert "s = rules.subroutine (A, B) o = rules.subroutine_1 (s, B)" in result.text
    onnx.checker.check_model(result.after, full_check=True)
    check_sound(proto_from_text(HEADER + before), result.after)
    check_settled(result, rules)


def test_a_subroutine_that_is_there_already() -> None:
    """The model's own function of that name and body is used; one of another body is left alone."""
    own = RULES + SUBROUTINE[2]
    header = HEADER.replace('"ext" : 1', '"rules" : 1')
    rules = function_rules(*SUBROUTINE)
    result = rewritten(f"{header}{TWICE}\n{own}", rules)
    assert [function.name for function in result.after.functions] == ["subroutine"]
    mine = "subroutine (a, b) => (c) { c = Max (a, b) }"
    before = TWICE.replace("B = Add (A, A)", "B = rules.subroutine (A, A)")
    result = rewritten(f"{header}{before}\n{RULES}{mine}", rules)
    assert [function.name for function in result.after.functions] == [
        "subroutine",
        "subroutine_1",
    ]
    assert "B = rules.subroutine (A, A) o = rules.subroutine_1 (B, B)" in result.text
    check_sound(result.before, result.after)


def test_subroutines_that_call_each_other() -> None:
    """What a helper calls comes along, and rules are applied in it, too."""
    rules = function_rules(
        "exp_pattern (a) => (c) { c = Exp (a) }",
        "exp_replacement (a) => (c) { c = rules.outer (a) }",
        "outer (a) => (c) { m = rules.inner (a) c = Sin (m) }",
        "inner (a) => (c) { k = Constant <value = float {2.0}> () n = Neg (a) c = Mul (n, k) }",
        "neg_pattern (a) => (c) { c = Neg (a) }",
        "neg_replacement (a) => (c) { c = ext.minus (a) }",
    )
    result = rewritten(f"{HEADER}g (float[4] A) => (float[4] o) {{ o = Exp (A) }}", rules)
    assert result.done.counts == {"exp": 1, "neg": 1}
    assert {function.name for function in result.after.functions} == {"inner", "outer"}
    assert "n = ext.minus (a)" in result.text
    assert [item.scope for item in result.done.applications] == ["main", "function rules::inner"]
    onnx.checker.check_model(result.after)
    check_settled(result, rules)


def test_a_subroutine_that_calls_itself() -> None:
    """No such function is accepted; nor two that call each other."""
    with pytest.raises(CatalogError, match="rules::f calls itself"):
        function_rules(
            f"add_pattern {ADD}",
            "add_replacement (a, b) => (c) { c = rules.f (a, b) }",
            "f (a, b) => (c) { c = rules.g (a, b) }",
            "g (a, b) => (c) { c = rules.f (b, a) }",
        )


def test_a_subroutine_that_holds_what_it_takes_the_place_of() -> None:
    """The rule does not make it call itself, not even in the next run over the written file."""
    rules = function_rules(
        f"add_pattern {ADD}",
        "add_replacement (a, b) => (c) { c = rules.f (a, b) }",
        "f (a, b) => (c) { d = Add (a, b) e = Exp (d) c = Log (e) }",
        "exp_pattern (a) => (c) { c = Exp (a) }",
        "exp_replacement (a) => (c) { c = rules.g (a) }",
        "g (a) => (c) { k = Constant <value = float {0.0}> () d = Add (a, k) c = Exp (d) }",
    )
    result = rewritten(HEADER + TWICE, rules)
    assert {function.name for function in result.after.functions} == {"f", "g"}
    assert {item.reason for item in result.done.refused} == {
        "rules::f would call itself",
        "rules::g would call itself",
    }
    onnx.checker.check_model(result.after, full_check=True)
    check_sound(proto_from_text(HEADER + TWICE), result.after)
    check_settled(result, rules)


def test_attributes_of_subroutines() -> None:
    """What the pattern binds is given at the call."""
    rules = function_rules(
        "leaky_pattern <k> (a) => (c) { c = LeakyRelu <alpha: float = @k> (a) }",
        "leaky_replacement <k> (a) => (c) { c = rules.leaky <alpha: float = @k> (a) }",
        "leaky <alpha> (a) => (c) { c = Elu <alpha: float = @alpha> (a) }",
    )
    before = "g (float[4] A) => (float[4] o) { s = LeakyRelu <alpha = 0.5> (A) o = LeakyRelu (s) }"
    result = rewritten(HEADER + before, rules)
    assert "s = rules.leaky <alpha = 0.5> (A) o = rules.leaky <alpha = 0.01" in result.text
    onnx.checker.check_model(result.after, full_check=True)
    assert len(result.after.functions) == 1
    with pytest.raises(CatalogError, match="the attribute 'alpha' of rules::leaky has a default"):
        function_rules(
            "leaky_pattern <k> (a) => (c) { c = LeakyRelu <alpha: float = @k> (a) }",
            "leaky_replacement <k> (a) => (c) { c = rules.leaky <alpha: float = @k> (a) }",
            "leaky <alpha: float = 1.0> (a) => (c) { c = Elu <alpha: float = @alpha> (a) }",
        )


@pytest.mark.parametrize(
    ("opset", "applied"), [(20, True), (19, True), (17, False)], ids=["same", "alike", "other"]
)
def test_subroutines_in_another_opset(opset: int, applied: bool) -> None:  # noqa: FBT001  # parametrized
    """They get the model's opset, if their operators mean the same in it."""
    rules = function_rules(
        f"add_pattern {ADD}",
        "add_replacement (a, b) => (c) { c = rules.f (a, b) }",
        "f (a, b) => (c) { s = Shape (a) t = Expand (b, s) c = Add (a, t) }",
    )
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> {TWICE}'
    result = rewritten(text, rules)
    assert bool(result.done.applications) is applied
    if applied:
        (function,) = result.after.functions
        assert {item.domain: item.version for item in function.opset_import}[""] == opset
        onnx.checker.check_model(result.after, full_check=True)
    else:
        assert "rules::f means Shape-19, the model has 15" in result.done.refused[0].reason


def test_subroutines_in_an_old_model() -> None:
    """The IR version is raised to the first one with functions."""
    model = model_from_text(f'<ir_version: 7, opset_import: ["" : 20]> {TWICE}')
    assert rewrite(model, function_rules(*SUBROUTINE)).counts == {"add": 2}
    assert model.ir_version == 8


def test_not_across_the_border_of_a_body() -> None:
    """W23 test_pattern_matching_may_not_reorder_across_impure_functions: [≈] half in a branch."""
    rules = function_rules(*FMA)
    text = """g (float[4] s, float[4] w, float[4] b, bool c) => (float[4] o) {
        m = Mul (s, w)
        o = If (c) <then_branch = t () => (float[4] p) { p = Add (m, b) },
                    else_branch = e () => (float[4] q) { q = Neg (s) }> }"""
    check_rewrite(rules, text, None, times=(0,))


FMA = (
    "fma_pattern (s, w, b) => (r) { m = Mul (s, w) r = Add (m, b) }",
    "fma_replacement (s, w, b) => (r) { r = ext.fma (s, w, b) }",
)


def test_inside_a_body() -> None:
    """W24 test_pattern_matching_may_occur_between_impure_functions: [≈] all in one branch."""
    text = """g (float[4] s, float[4] w, float[4] b, bool c) => (float[4] o) {
        o = If (c) <then_branch = t () => (float[4] p) { m = Mul (s, w) p = Add (m, b) },
                    else_branch = e () => (float[4] q) { q = Neg (s) }> }"""
    rules = function_rules(*FMA)
    result = rewritten(HEADER + text, rules)
    assert result.done.counts == {"fma": 1}
    assert "p = ext.fma (s, w, b)" in result.text
    check_settled(result, rules)
