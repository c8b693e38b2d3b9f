"""What other tools get wrong on tiny models (reference/peers.md, section 0), and dpl must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.passes.select import explain_rules
from tests.support.helpers import (
    all_bindings,
    check_match,
    check_outcome,
    check_partition,
    describe_refusals,
    model_from_text,
    rule,
    selected,
    taken,
)

if TYPE_CHECKING:
    from dplcli.language import Match, Rejection

# -- F1: convexity of several outputs --------------------------------------------------------------

BETWEEN = """g (float[2] x) => (float[2] c) {
    a = Relu (x) b = Sigmoid (a) c = Add (a, b) }"""
TWO_OUTPUTS = "a = Relu(x)\na, Add(a, y)"


def test_f1_non_convex_outputs_are_refused() -> None:
    """F1: the Sigmoid lies between Relu and Add, so {Relu, Add} cannot become one node.

    onnxscript writes a cyclic model, GraphSurgeon a wrong one, and TVM aborts the pass.
    """
    check_partition(
        TWO_OUTPUTS,
        BETWEEN,
        refused=["r at a: convexity: 'b' lies outside but between two nodes of the match"],
    )


def test_f1_non_convex_through_many_nodes() -> None:
    """F1: as many nodes as may lie between; TVM looks at one only."""
    text = """g (float[2] x) => (float[2] c) {
        a = Relu (x) b = Sigmoid (a) d = Tanh (b) e = Neg (d) c = Add (a, e) }"""
    check_partition(
        TWO_OUTPUTS,
        text,
        refused=["r at a: convexity: 'b' lies outside but between two nodes of the match"],
    )


def test_f1_non_convex_escape() -> None:
    """F1: the same nodes, the Relu an inner value that escapes as a further output."""
    settings = {"escape": "outputs"}
    selection = selected(rule("Add(Relu(x), y)", **settings), BETWEEN)
    assert taken(selection) == []
    assert describe_refusals(selection) == [
        "r at c: convexity: 'b' lies outside but between two nodes of the match"
    ]


def test_f1_non_convex_through_a_body() -> None:
    """F1: what lies between may be an If that captures the inner value."""
    text = """g (float[2] x, bool k) => (float[2] c) {
        a = Relu (x)
        b = If (k) <then_branch = t () => (float[2] p) { p = Sigmoid (a) },
                    else_branch = e () => (float[2] q) { q = Tanh (x) }>
        c = Add (a, b) }"""
    check_partition(
        TWO_OUTPUTS,
        text,
        refused=["r at a: convexity: 'b' lies outside but between two nodes of the match"],
    )


def test_f1_another_way_at_the_same_root_is_taken() -> None:
    """F1: a second Add that depends on nothing outside is found though the first is refused."""
    text = """g (float[2] x, float[2] z) => (float[2] c, float[2] d) {
        a = Relu (x) b = Sigmoid (a) c = Add (a, b) d = Add (a, z) }"""
    check_partition(
        TWO_OUTPUTS,
        text,
        after="""
            (x, z) => (c, d) {
              [r_0] a, d = t.r (x, z)
              b = Sigmoid (a)
              c = Add (a, b)
            }
            t.r (x, y) => (relu_0_out, add_1_out) {
              [Relu_0] relu_0_out = Relu (x)
              [Add_1] add_1_out = Add (relu_0_out, y)
            }""",
    )


def test_f1_convex_outputs_with_an_outside_reader() -> None:
    """F1: an inner value that is an output may have readers outside; onnxsim refuses that."""
    text = """g (float[2] x, float[2] z) => (float[2] c, float[2] d) {
        a = Relu (x) c = Add (a, z) d = Neg (a) }"""
    check_partition(
        TWO_OUTPUTS,
        text,
        after="""
            (x, z) => (c, d) {
              [r_0] a, c = t.r (x, z)
              d = Neg (a)
            }
            t.r (x, y) => (relu_0_out, add_1_out) {
              [Relu_0] relu_0_out = Relu (x)
              [Add_1] add_1_out = Add (relu_0_out, y)
            }""",
    )


# -- F2: injectivity -------------------------------------------------------------------------------

QKV = """g (float[2,2] x, float[2,2] wq, float[2,2] wk, float[2,2] wv)
    => (float[2,2] q, float[2,2] k, float[2,2] v) {
    q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv) }"""
PROJECTIONS = "MatMul(x, a), MatMul(x, b), MatMul(x, c)"


def test_f2_three_outputs_are_three_nodes() -> None:
    """F2: onnxscript finds three matches, each of one MatMul three times over."""
    assert taken(selected(PROJECTIONS, QKV)) == ["r: q, k, v"]
    found = all_bindings(PROJECTIONS, QKV)
    assert found[0] == "a=wq b=wk c=wv x=x"
    assert len(found) == 6
    assert all(len(set(line.split()[:3])) == 3 for line in found)


def test_f2_as_a_partition() -> None:
    """F2: one function with three outputs."""
    check_partition(
        PROJECTIONS,
        QKV,
        after="""
            (x, wq, wk, wv) => (q, k, v) {
              [r_0] q, k, v = t.r (x, wq, wk, wv)
            }
            t.r (x, a, b, c) => (matmul_0_out, matmul_1_out, matmul_2_out) {
              [MatMul_0] matmul_0_out = MatMul (x, a)
              [MatMul_1] matmul_1_out = MatMul (x, b)
              [MatMul_2] matmul_2_out = MatMul (x, c)
            }""",
    )


def test_f2_two_nodes_are_not_three() -> None:
    """F2: with one MatMul less there is no match."""
    text = QKV.replace("v = MatMul (x, wv)", "v = Neg (k)")
    assert all_bindings(PROJECTIONS, text) == []


def test_f2_two_groups() -> None:
    """F2: six MatMul of two inputs are two matches, none mixed."""
    text = """g (float[2,2] x, float[2,2] y, float[2,2] w) => (a, b, c, d, e, f) {
        a = MatMul (x, w) d = MatMul (y, w) b = MatMul (x, w)
        e = MatMul (y, w) c = MatMul (x, w) f = MatMul (y, w) }"""
    assert taken(selected(PROJECTIONS, text)) == ["r: a, b, c", "r: d, e, f"]


def test_f2_seventy_two_products() -> None:
    """F2: three outputs among 72 MatMul of 24 inputs; all triples would be over budget."""
    nodes = " ".join(
        f"p{block}_{index} = MatMul (x{block}, w)" for block in range(24) for index in range(3)
    )
    inputs = ", ".join(f"float[2,2] x{block}" for block in range(24))
    results = ", ".join(f"p{block}_{index}" for block in range(24) for index in range(3))
    text = f"g ({inputs}, float[2,2] w) => ({results}) {{ {nodes} }}"
    model = model_from_text(text)
    selection = selected(PROJECTIONS, text)
    assert describe_refusals(selection) == []
    assert len(selection.matches) == 24
    assert sum(len(match.nodes) for match in selection.matches) == len(list(model.graph))


# -- F3: conditions in alternatives ----------------------------------------------------------------

CHOICE = "a = Relu(x)\nb = Sigmoid(x)\nNeg(a | b)"
RELU = "g (float[2] x) => (float[2] o) { r = Relu (x) o = Neg (r) }"
SIGMOID = "g (float[2] x) => (float[2] o) { r = Sigmoid (x) o = Neg (r) }"


def refuse_sigmoid(match: Match) -> Rejection | None:
    """Refuse the second alternative."""
    node = match.node("b")
    return None if node is None else match.reject("no sigmoid, please", at=node)


@pytest.mark.parametrize(
    ("text", "expected", "refused"),
    [
        (RELU, ["r: r, o"], []),
        (SIGMOID, [], ["r at o: check: no sigmoid, please"]),
    ],
)
def test_f3_check_sees_the_alternative(text: str, expected: list[str], refused: list[str]) -> None:
    """F3: onnxscript never calls the check of an alternative; ours is asked, and obeyed."""
    selection = selected(rule(CHOICE, check=refuse_sigmoid), text)
    assert taken(selection) == expected
    assert describe_refusals(selection) == refused


@pytest.mark.parametrize(("text", "count"), [(RELU, 1), (SIGMOID, 0)])
def test_f3_condition_on_a_name_of_an_alternative(text: str, count: int) -> None:
    """F3: a ``where`` about a name in the alternative taken must hold."""
    assert len(selected(rule(CHOICE, "b.rank == 9"), text).matches) == count


def test_f3_refused_alternative_gives_way() -> None:
    """F3: where the check refuses one way to match, the other alternative is tried."""
    text = "g (float[2] x) => (float[2] o) { r = Relu (x) o = Neg (r) }"
    pattern = "a = Relu(x)\nNeg(a | y)"

    def refuse_relu(match: Match) -> Rejection | None:
        return None if match.node("a") is None else match.reject("not with its relu")

    selection = selected(rule(pattern, check=refuse_relu), text)
    assert taken(selection) == ["r: o"]
    assert describe_refusals(selection) == []


# -- F4: attributes that the pattern does not name -------------------------------------------------

GEMM = """g (float[3,2] a, float[3,4] w) => (float[2,4] o) {
    o = Gemm <transA=1, alpha=2.0> (a, w) }"""


def test_f4_unnamed_attributes_travel_into_the_function() -> None:
    """F4: transA and alpha are given at the call, and the numbers stay what they were.

    onnxscript and onnxsim replace the node by what ignores them. The numbers are compared in
    onnxruntime by ``check_partition``.
    """
    result = check_partition(
        "Gemm(x, w)",
        GEMM,
        after="""
            (a, w) => (o) {
              [r_0] o = t.r <transA = 1, alpha = 2.0> (a, w)
            }
            t.r <transA, alpha> (x, w) => (gemm_0_out) {
              [Gemm_0] gemm_0_out = Gemm <transA = @transA, alpha = @alpha> (x, w)
            }""",
    )
    assert [item.name for item in result.graph.node[0].attribute] == ["transA", "alpha"]


def test_f4_calls_with_and_without_the_attributes() -> None:
    """F4: nodes that differ in attributes share a function, and each keeps its own numbers."""
    text = """g (float[3,2] a, float[2,3] b, float[3,4] w) => (float[2,4] o, float[2,4] p) {
        o = Gemm <transA=1, alpha=2.0> (a, w) p = Gemm (b, w) }"""
    result = check_outcome("Gemm(x, w)", text)
    assert len(result.functions) == 1
    assert [node.op_type for node in result.graph.node] == ["r", "r"]


def test_f4_named_attributes_are_compared() -> None:
    """F4: a pattern that names an attribute matches only where it is equal."""
    check_match("Gemm(x, w, transA=0)", GEMM, {})
    check_match("Gemm(x, w, transA=1, alpha=2.0)", GEMM, {"o": "w=w x=a"})
    check_match("Gemm(x, w, transA=1, alpha=2.5)", GEMM, {})
    check_match("Gemm(x, w, beta=1.0)", GEMM, {"o": "w=w x=a"})


# -- F5: attributes left to their default ----------------------------------------------------------


CONV = "Conv(x, y, strides=[1, 1], dilations=[1, 1], pads=[0, 0, 0, 0], group={})"


@pytest.mark.parametrize(
    ("pattern", "other", "node"),
    [
        ("Flatten(x, axis=1)", "Flatten(x, axis=0)", "Flatten (x)"),
        ("LeakyRelu(x, alpha=0.01)", "LeakyRelu(x, alpha=0.02)", "LeakyRelu (x)"),
        ("Gemm(x, y, transB=0, alpha=1.0)", "Gemm(x, y, transB=1)", "Gemm (x, y)"),
        ("Softmax(x, axis=-1)", "Softmax(x, axis=1)", "Softmax (x)"),
        ("Transpose(x, perm=[3, 2, 1, 0])", "Transpose(x, perm=[0, 1, 2, 3])", "Transpose (x)"),
        (CONV.format(1), CONV.format(2), "Conv (x, y)"),
    ],
)
def test_f5_defaults_equal_what_is_omitted(pattern: str, other: str, node: str) -> None:
    """F5: an attribute that the file leaves out has its default; onnxscript does not know it."""
    text = f"g (float[1,1,2,2] x, float[1,1,2,2] y) => (o) {{ o = {node} }}"
    check_match(pattern, text, {"o": "x=x y=y" if "(x, y" in pattern else "x=x"})
    check_match(other, text, {})


def test_f5_default_depends_on_the_opset() -> None:
    """F5: Softmax has axis 1 before opset 13 and -1 from then on."""
    body = "g (float[2,2,2] x) => (o) { o = Softmax (x) }"
    old = f'<ir_version: 8, opset_import: ["" : 11]> {body}'
    check_match("Softmax(x, axis=1)", old, {"o": "x=x"})
    check_match("Softmax(x, axis=-1)", old, {})
    check_match("Softmax(x, axis=1)", body, {})


# -- F6: wrong root operator -----------------------------------------------------------------------

CONV_RELU = """g (float[1,1,4,4] x, float[1,1,1,1] w) => (float[1,1,4,4] o, float[1,1,4,4] p) {
    c = Conv (x, w) o = Relu (c) d = Conv (o, w) p = Relu (d) }"""


def test_f6_wrong_root_operator() -> None:
    """F6: the explanation names what the model lacks and which part of the pattern fits.

    onnxscript says "No matches found." and nothing else.
    """
    wrong = rule("Sigmoid(Conv(x, w))")
    found = explain_rules(model_from_text(CONV_RELU), [wrong]).rule(wrong)
    assert (found.candidates, found.matched, found.refused) == (0, 0, {})
    assert found.missing == ("Sigmoid",)
    assert found.nearest is None
    assert found.part is not None
    assert repr(found.part.part) == "Conv(x, w)"
    assert found.part.nodes == 2
    assert found.part.example.label == "c"
    assert found.part.readers == (("Relu", 2),)
    assert found.part.place == "line 1, column 9"


def test_f6_wrong_inner_operator() -> None:
    """F6: with the root right, the nearest attempt says where it ended."""
    wrong = rule("Relu(Add(Conv(x, w), b))")
    found = explain_rules(model_from_text(CONV_RELU), [wrong]).rule(wrong)
    assert (found.candidates, found.matched, found.part) == (2, 0, None)
    assert found.missing == ("Add",)
    assert found.nearest is not None
    assert (found.nearest.matched, found.nearest.of, found.nearest.fits) == (1, 3, False)
    mismatch = found.nearest.mismatch
    assert mismatch is not None
    assert (mismatch.expected, mismatch.found) == ("Add", "Conv 'c'")
    assert mismatch.place == "line 1, column 6"


def test_f6_right_operators_wrong_order() -> None:
    """F6: all operators are there, just not one on the other."""
    wrong = rule("Conv(Conv(x, w), v)")
    found = explain_rules(model_from_text(CONV_RELU), [wrong]).rule(wrong)
    assert found.missing == ("Conv that reads a Conv",)
    assert found.nearest is not None
    assert found.nearest.mismatch is not None
    assert found.nearest.mismatch.expected == "Conv"


def test_f6_a_rule_that_matches_needs_no_excuse() -> None:
    """F6: where it matches, nothing is missing."""
    right = rule("Relu(Conv(x, w))")
    found = explain_rules(model_from_text(CONV_RELU), [right]).rule(right)
    assert (found.candidates, found.matched, found.missing) == (2, 2, ())
    assert (found.nearest, found.part) == (None, None)


def test_f6_outputs_pattern_with_a_wrong_operator() -> None:
    """F6: the same for a pattern of several outputs."""
    wrong = rule("Sigmoid(x), Relu(x)")
    found = explain_rules(model_from_text(CONV_RELU), [wrong]).rule(wrong)
    assert found.missing == ("Sigmoid",)
    assert found.part is not None
    assert repr(found.part.part) == "Relu(x)"


# -- what else was seen to go wrong ----------------------------------------------------------------


def test_fourteen_commuted_sums() -> None:
    """Section 0, "also": 14 Adds are 16,384 rules in onnxscript; here they fit the budget."""
    pattern = "x14"
    for number in reversed(range(14)):
        pattern = f"Add(x{number}, {pattern})"
    names = ", ".join(f"float[2] a{number}" for number in range(15))
    body, last = "", "a14"
    for number in reversed(range(14)):
        body += f"s{number} = Add ({last}, a{number}) "
        last = f"s{number}"
    text = f"g ({names}) => (o) {{ {body} o = Identity (s0) }}"
    selection = selected(pattern, text)
    assert all(item.stage != "budget" for item in selection.refused)
    assert taken(selection) == ["r: " + ", ".join(f"s{number}" for number in reversed(range(14)))]


def test_partition_inside_a_branch() -> None:
    """Section 0, "also": onnxscript's as_function in an If body writes an invalid model."""
    text = """g (bool c, float[2] x) => (float[2] o) {
        o = If (c) <then_branch = t () => (float[2] p) { r = Relu (x) p = Neg (r) },
                    else_branch = e () => (float[2] q) { s = Relu (x) q = Neg (s) }> }"""
    result = check_outcome("Neg(Relu(x))", text)
    assert len(result.functions) == 1


def test_equal_matches_share_one_function() -> None:
    """Section 0, "also": 33 matches in onnxscript are 33 functions with 4 distinct bodies."""
    body = "".join(f"r{n} = Relu (x{n}) x{n + 1} = Neg (r{n}) " for n in range(33))
    text = f"g (float[2] x0) => (float[2] o) {{ {body} o = Abs (x33) }}"
    result = check_outcome("Neg(Relu(x))", text)
    assert len(result.functions) == 1
    assert [node.op_type for node in result.graph.node] == ["r"] * 33 + ["Abs"]
