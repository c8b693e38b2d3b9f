"""The probe log of reference/tvm_language.md, section 14: R*, G*, F* and what matches of the rest.

Each program was run in apache-tvm 0.27. Where TVM is right, dpl does the same; where TVM is wrong
or silent, the docstring says what it does and what dpl does instead. Probes of rewriting and of
merging regions (W*, M*) are left to their own tests.
"""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import is_op, is_value, wildcard
from tests.support.helpers import (
    all_bindings,
    check_match,
    check_outcome,
    check_partition,
    describe_refusals,
    pattern_of,
    rule,
    rule_name,
    selected,
    taken,
)

if TYPE_CHECKING:
    from dplcli.language import DFPattern, Match, Rejection

AB = "g (float[2] a, float[2] b) => (float[2] o)"
X = "g (float[2] x) => (float[2] o)"


# -- R: matching one root --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("m = Mul (a, b) o = Add (m, a)", {"o": "x=a y=b"}),
        ("m = Mul (b, a) o = Add (m, a)", {"o": "x=a y=b"}),
        ("m = Mul (a, b) o = Add (m, b)", {"o": "x=b y=a"}),
        ("m = Mul (b, a) o = Add (b, m)", {"o": "x=b y=a"}),
    ],
)
def test_r1_commuted_operands(body: str, expected: dict[str, str]) -> None:
    """R1: TVM finds the first and the last; dpl goes back into the product and finds all four."""
    check_match("Add(Mul(x, y), x)", f"{AB} {{ {body} }}", expected)


@pytest.mark.parametrize(
    ("pattern", "body", "bound"),
    [
        ("Sub(x | Relu(x), x)", "r = Relu (a) o = Sub (r, a)", "x=a"),
        ("Sub(Relu(x) | x, x)", "r = Relu (a) o = Sub (r, a)", "x=a"),
        ("Sub(Relu(x) | x, x)", "o = Sub (a, a)", "x=a"),
        ("Sub(Relu(x) | x, x)", "r = Relu (a) o = Sub (r, r)", "x=r"),
    ],
)
def test_r2_alternatives(pattern: str, body: str, bound: str) -> None:
    """R2: TVM misses the first and the last, where the alternative taken first leads nowhere."""
    check_match(pattern, f"{AB} {{ {body} }}", {"o": bound})


@pytest.mark.parametrize("inputs", ["r, a", "a, r"])
def test_r3_unordered(inputs: str) -> None:
    """R3: TVM's unordered tuple is greedy and misses (relu(a), a); dpl assigns."""
    text = f"{AB} {{ r = Relu (a) o = Concat <axis=0> ({inputs}) }}"
    check_match("Concat(unordered(p, Relu(q)))", text, {"o": "p=a q=a"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("o = Add (a, a)", {"o": "x=a"}),
        ("o = Add (a, b)", {}),
        ("r = Relu (a) s = Relu (a) o = Add (r, s)", {}),
        ("r = Relu (a) o = Add (r, r)", {"o": "x=r"}),
    ],
)
def test_r4_identity(body: str, expected: dict[str, str]) -> None:
    """R4: one name is one value, not two that are computed alike; as in TVM."""
    check_match("Add(x, x)", f"{AB} {{ {body} }}", expected)


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [("float", "", True), ("float16", "", False), ("int32", "", False), ("float", "[1]", False)],
)
def test_r5_exact_constants(dtype: str, shape: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """R5: ``is_value`` compares element type, shape and bytes, as ``is_expr`` does."""
    exact = is_op("Sub")(wildcard("x"), is_value(np.float32(1.0)))
    one = 0x3C00 if dtype == "float16" else 1
    text = f"g ({dtype}[2] a) => (o) <{dtype}{shape} k = {{{one}}}> {{ o = Sub (a, k) }}"
    check_match(exact, text, {"o": "x=a"} if expected else {})
    check_match("Sub(x, 1.0)", text, {"o": "x=a"})


CONV = wildcard("x"), wildcard("w")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (is_op("Conv")(*CONV).has_attr({"strides": [1, 1]}), True),
        (is_op("Conv")(*CONV).has_attr({"pads": [1, 1]}), False),
        (is_op("Conv")(*CONV).has_attr({"pads": [1, 1, 1, 1]}), True),
        (is_op("Conv")(*CONV).has_attr({"no_such": 1}), False),
        (is_op("Conv")(*CONV).has_attr({}), True),
        (is_op("Relu")(is_op()(...).has_attr({})), False),
    ],
)
def test_r6_attributes(pattern: DFPattern, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """R6: defaults count, the stored form counts, an unknown name is no match; as in TVM."""
    text = """g (float[1,1,4,4] x, float[1,1,3,3] w) => (o) {
        o = Conv <pads=[1,1,1,1]> (x, w) r = Relu (x) }"""
    check_match(pattern, text, {"o": "w=w x=x"} if expected else {})


@pytest.mark.parametrize(
    ("kind", "pattern", "expected"),
    [
        ("float[N,4]", "p.has_shape(4, 4)", False),
        ("float[4,4]", "p.has_shape(4, 4)", True),
        ("float[N,4]", 'p.has_type("float32[4, 4]")', False),
        ("float[]", 'p.has_type("float32[4, 4]")', False),
        ("float[4,4]", 'p.has_type("float32[4, 4]")', True),
    ],
)
def test_r7_unknown_types(kind: str, pattern: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """R7: TVM's ``has_ty`` accepts (n, 4) for (4, 4) as undecided; dpl wants a proof."""
    text = f"g ({kind} x) => (o) {{ o = Relu (x) }}"
    check_match(f"Relu({pattern})", text, {"o": "p=x"} if expected else {})


def test_r7_unknown_element_type() -> None:
    """R7: TVM crashes on ``has_dtype`` of an unknown element type; for dpl it is no match."""
    text = '<ir_version: 8, opset_import: ["" : 17, "ext" : 1]> g (float[2] x) => (o)'
    text += " { u = ext.unknown (x) o = Relu (u) }"
    check_match('Relu(p.has_dtype("float32"))', text, {})
    check_match('Relu(p.has_type("float32[2]"))', text, {})
    check_match("Relu(p.has_rank(1))", text, {})
    check_match("Relu(p)", text, {"o": "p=u"})


@pytest.mark.parametrize(
    ("pattern", "body", "expected"),
    [
        ("Abs(~Relu(_))", "r = Relu (a) o = Abs (r)", {}),
        ("Abs(~Relu(_))", "o = Abs (a)", {"o": ""}),
        ("Abs(~~Relu(_))", "r = Relu (a) o = Abs (r)", {"o": ""}),
        ("Abs(~~Relu(_))", "o = Abs (a)", {}),
        ("Add(x, ~x)", "o = Add (a, b)", {"o": "x=a"}),
        ("Add(x, ~x)", "o = Add (a, a)", {}),
    ],
)
def test_r8_negation(pattern: str, body: str, expected: dict[str, str]) -> None:
    """R8: a ~ matches what its pattern does not; as in TVM."""
    check_match(pattern, f"{AB} {{ {body} }}", expected)


def test_r8_negation_is_complete() -> None:
    """R8: what is denied is searched completely, though TVM would miss the inner match."""
    pattern = "Neg(~Add(Mul(x, y), x) & z)"
    for product in ("a, b", "b, a"):
        text = f"{AB} {{ m = Mul ({product}) s = Add (m, a) o = Neg (s) }}"
        check_match(pattern, text, {})
    check_match(pattern, f"{AB} {{ m = Mul (b, b) s = Add (m, a) o = Neg (s) }}", {"o": "z=s"})


def test_r11_further_inputs() -> None:
    """R11: too many arguments are no match; what stands before ``...`` may be the last operand."""
    text = f"{AB} {{ r = Relu (b) o = Add (a, r) }}"
    check_match(is_op("Relu")(wildcard(), wildcard(), ...), text, {})
    check_match("Add(Relu(p), ...)", text, {"o": "p=b"})


@pytest.mark.parametrize(("op", "expected"), [("Add", {"o": "a=a p=b"}), ("Sub", {})])
def test_r12_alternative_callees(op: str, expected: dict[str, str]) -> None:
    """R12: a choice of operators commutes if the node's operator does; as in TVM."""
    text = f"{AB} {{ r = Relu (b) o = {op} (a, r) }}"
    check_match('(Add | Sub)(Relu(p), input("a"))', text, expected)


@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        ("Div(Mul(p, q), r)", "d = Div (b, c) o = Mul (a, d)"),
        ("Div(Mul(p, q), r)", "d = Div (a, c) o = Mul (d, b)"),
        ("Mul(p, Div(q, r))", "m = Mul (a, b) o = Div (m, c)"),
        ("Mul(p, Div(q, r))", "m = Mul (b, a) o = Div (m, c)"),
    ],
)
def test_r13_no_re_association(pattern: str, body: str) -> None:
    """R13: TVM reads nested products and quotients in another order; dpl matches what is there.

    The nodes of such a match do not exist, so a partition could not take them, and with floats the
    results differ; who wants it writes the alternative.
    """
    text = f"g (float[2] a, float[2] b, float[2] c) => (o) {{ {body} }}"
    check_match(pattern, text, {})
    both = "Div(Mul(p, q), r) | Mul(p, Div(q, r))"
    assert len(all_bindings(both, text)) > 0


# -- G: graphs of edges ----------------------------------------------------------------------------

RELU_GELU = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => ({}) {{ {} }}'
CHAIN = "r = Relu (x) o = Gelu (r)"


def relu_gelu(body: str, outputs: str = "o") -> str:
    """Write a model in an opset that has Gelu."""
    return RELU_GELU.format(outputs, body)


def test_g1_only_used_by() -> None:
    """G1: a second reader is a second reader; as in TVM."""
    check_match("Relu(_) >> Gelu(_)", relu_gelu(CHAIN), {"o": ""})
    check_match("Relu(_) >> Gelu(_)", relu_gelu(f"{CHAIN} s = Add (r, r)", "o, s"), {})


def test_g3_a_graph_output_is_a_use() -> None:
    """G3: TVM does not see that a value is also returned; for dpl that is a use."""
    check_match("Relu(_) >> Gelu(_)", relu_gelu(CHAIN, "o, r"), {})
    check_match("Relu(_) ^ Gelu(_)", relu_gelu(CHAIN, "o, r"), {"o": ""})


K = f"{X} <float[2] k = {{1, 2}}> {{ r = Relu (x) o = "


def test_g4_constants_in_graphs() -> None:
    """G4: in a PatternContext a literal constant never matches; in dpl it does."""
    check_match("Relu(_) >> Add(_, const(c))", f"{K} Add (r, k) }}", {"o": "c=k"})
    check_match("Relu(_) >> Add(Relu(_), const(c))", f"{K} Add (r, k) }}", {})
    check_match("r = Relu(_)\nr >> Add(r, const(c))", f"{K} Add (r, k) }}", {"o": "c=k r=r"})


@pytest.mark.parametrize(("index", "expected"), [(1, {"o": ""}), (0, {})])
def test_g4cd_slots_count_constants(index: int, expected: dict[str, str]) -> None:
    """G4c, G4d: TVM's index skips literal constants; dpl counts input slots."""
    check_match(f"Relu(_).used_by(Sub(...), {index})", f"{K} Sub (k, r) }}", expected)
    check_match(f"Relu(_).used_by(Add(...), {index})", f"{K} Add (k, r) }}", expected)


def test_g5_commuted_operands_in_graphs() -> None:
    """G5: in a PatternContext Add loses its commutativity; in dpl it keeps it."""
    text = "g (float[2] x, float[2] y) => (o) { r = Relu (x) o = Add (y, r) }"
    check_match("r = Relu(_)\nr ^ Add(r, q)", text, {"o": "q=y r=r"})
    check_match("Relu(p) ^ Add(_, q)", text, {"o": "p=x q=r"})


def test_g6_leaves_may_coincide() -> None:
    """G6: in a context of TVM two wildcards are two values; dpl is injective on nodes only."""
    check_match("Add(u, v)", f"{X} {{ o = Add (x, x) }}", {"o": "u=x v=x"})
    check_match("Relu(u) ^ Add(_, v)", f"{X} {{ r = Relu (x) o = Add (r, x) }}", {"o": "u=x v=x"})


def test_g8_a_repeated_chain_is_as_strict_as_the_first() -> None:
    """G8: TVM's ``dup()`` turns ``relu ^ gelu`` into "only used by"; a text is a text."""
    text = relu_gelu(f"{CHAIN} s = Sigmoid (r)", "o, s")
    chain = "Relu(_) ^ Gelu(_)"
    check_match(chain, text, {"o": ""})
    twice = relu_gelu(f"{CHAIN} s = Relu (x) t = Gelu (s) u = Neg (s) v = Neg (r)", "o, t, u, v")
    assert len(all_bindings(f"p = {chain}\nq = {chain}\np, q", twice)) == 2


@pytest.mark.parametrize(("other", "count"), [("4", 2), ("1", 0), ("N", 0)])
def test_g10_same_shape_in_a_graph(other: str, count: int) -> None:
    """G10: an inner context of TVM forgets the comparison; a pattern within a pattern keeps it."""
    text = f"""g (float[4] x, float[{other}] y) => (o) {{
        r = Relu (x) s = Sigmoid (y) a = Add (r, s) o = Neg (a) }}"""
    edges = dedent("""\
        r = Relu(_)
        s = Sigmoid(_).same_shape_as(r)
        a = Add(_, _)
        {}""")
    for last in ("(r >> a) & (s >> a)", "((r >> a) & (s >> a)) >> Neg(_)"):
        found = all_bindings(edges.format(last), text)
        assert bool(found) == bool(count)


def test_g11_a_refused_match_hides_no_other() -> None:
    """G11: TVM offers no second match after the first is refused; dpl offers every one."""

    def refuse_first(match: Match) -> Rejection | None:
        return match.reject("not this one") if match.root.label == "r" else None

    text = f"{X} {{ r = Relu (x) t = Tanh (r) o = Relu (t) }}"
    selection = selected(rule("Relu(_)", check=refuse_first), text)
    assert taken(selection) == ["r: o"]
    assert describe_refusals(selection) == ["r at r: check: not this one"]


# -- F: partitions ---------------------------------------------------------------------------------

SHARED = """g (float[2] x) => (float[2] p, float[2] q, float[2] s) {
    t = Tanh (x) p = Relu (t) q = Sigmoid (t) s = Relu (t) }"""


@pytest.mark.parametrize("order", ["outermost", "program"])
def test_f1_shared_inner_node_refused(order: str) -> None:
    """F1: TVM lets the second match steal the Tanh of the first, which is left a broken remnant."""
    check_partition(
        rule("Relu(Tanh(x))", order=order),
        SHARED,
        refused=[
            f"r at {name}: escape: 't' is also read by {other} and 1 other node"
            for name, other in sorted(
                [("p", "Sigmoid 'q'"), ("s", "Relu 'p'")], reverse=order == "outermost"
            )
        ],
    )


@pytest.mark.parametrize(("order", "kept"), [("outermost", "s"), ("program", "p")])
def test_f1_shared_inner_node_as_an_output(order: str, kept: str) -> None:
    """F1: with the Tanh as a further output one match is kept whole, the other left out."""
    settings = {"order": order, "escape": "outputs"}
    selection = selected(rule("Relu(Tanh(x))", **settings), SHARED)
    assert taken(selection) == [f"r: t, {kept}"]
    other = "p" if kept == "s" else "s"
    assert describe_refusals(selection) == [
        f"r at {other}: overlap: 't' is in another match, of t.r"
    ]
    result = check_outcome(rule("Relu(Tanh(x))", **settings), SHARED)
    names = sorted(rule_name(node.op_type) for node in result.graph.node)
    assert names == ["Relu", "Sigmoid", "r"]


CHAINS = {
    4: f"{X} {{ b = Relu (x) c = Relu (b) d = Relu (c) o = Relu (d) }}",
    3: f"{X} {{ b = Relu (x) c = Relu (b) o = Relu (c) }}",
}


@pytest.mark.parametrize(
    ("length", "order", "expected"),
    [
        (4, "outermost", ["r: d, o", "r: b, c"]),
        (3, "outermost", ["r: c, o"]),
        (4, "program", ["r: b, c", "r: d, o"]),
        (3, "program", ["r: b, c"]),
    ],
)
def test_f2_order(length: int, order: str, expected: list[str]) -> None:
    """F2: TVM's Relax pass starts at the inputs; ``order: program`` does, the default does not."""
    assert taken(selected(rule("Relu(Relu(x))", order=order), CHAINS[length])) == expected


def test_f3_an_output_may_be_the_root() -> None:
    """F3: TVM never has a TupleGetItem as root; an output of a node is one in dpl."""
    text = "g (float[4] x) => (float[2] p, float[2] q) { p, q = Split (x) }"
    assert taken(selected("Split(x)[1]", text)) == ["r: p"]
    check_outcome("Split(x)[1]", text)


def test_f4_bodies_are_partitioned() -> None:
    """F4: TVM leaves ordinary blocks alone; the nearest thing here, a branch, is searched."""
    text = """g (bool c, float[2] x) => (float[2] o) {
        o = If (c) <then_branch = t () => (float[2] p) { r = Tanh (x) p = Relu (r) },
                    else_branch = e () => (float[2] q) { q = Relu (x) }> }"""
    assert taken(selected("Relu(Tanh(x))", text)) == ["r: r, p"]
    check_outcome("Relu(Tanh(x))", text)


RETURNED = "g (float[2] x) => (float[2] o, float[2] t) { t = Tanh (x) o = Relu (t) }"


def test_f5_inner_value_is_an_output() -> None:
    """F5: an inner value that is returned is refused, or becomes a second output as in TVM."""
    check_partition("Relu(Tanh(x))", RETURNED, refused=["r at o: escape: 't' is a graph output"])
    check_partition(
        rule("Relu(Tanh(x))", escape="outputs"),
        RETURNED,
        after="""
            (x) => (o, t) {
              [r_0] o, t = t.r (x)
            }
            t.r (x) => (relu_1_out, tanh_0_out) {
              [Tanh_0] tanh_0_out = Tanh (x)
              [Relu_1] relu_1_out = Relu (tanh_0_out)
            }""",
    )


def test_f5_duplicate_of_a_returned_value_is_refused() -> None:
    """F5: to be returned does not lead to the root, so it is no case of Relay's duplication."""
    check_partition(
        rule("Relu(Tanh(x))", escape="duplicate"),
        RETURNED,
        refused=["r at o: escape: 't' is a graph output, which does not lead to the root"],
    )


@pytest.mark.parametrize("order", ["outermost", "program"])
def test_f6_earlier_rules_win(order: str) -> None:
    """F6: with the rule for Tanh first, the larger one gets nothing; as in TVM."""
    rules = [rule("Tanh(x)", name="a", order=order), rule("Relu(Tanh(x))", name="b", order=order)]
    text = f"{X} {{ t = Tanh (x) o = Relu (t) }}"
    assert taken(selected(rules, text)) == ["a: t"]
    assert taken(selected(rules[::-1], text)) == ["b: t, o"]


def refuse_relu(match: Match) -> Rejection | None:
    """Refuse a match whose root is a Relu."""
    return match.reject("no relu") if match.root.op_type == "Relu" else None


@pytest.mark.parametrize("order", ["outermost", "program"])
def test_f7_alternatives_and_a_check(order: str) -> None:
    """F7: the larger alternative if nobody objects, else the smaller one; as in TVM."""
    pattern = "t = Tanh(x)\nt | Relu(t)"
    text = f"{X} {{ t = Tanh (x) o = Relu (t) }}"
    assert taken(selected(rule(pattern, order=order), text)) == ["r: t, o"]
    refusing = selected(rule(pattern, order=order, check=refuse_relu), text)
    assert taken(refusing) == ["r: t"]
    assert describe_refusals(refusing) == ["r at o: check: no relu"]


@pytest.mark.parametrize("escape", ["refuse", "duplicate", "outputs"])
@pytest.mark.parametrize("between", ["s = Sigmoid (t)", "g = Tanh (t) s = Sigmoid (g)"])
def test_f8_nodes_between(escape: str, between: str) -> None:
    """F8: with one node between TVM throws, with two it writes a module that is ill-formed.

    dpl refuses, whatever lies between; if Neg may be recomputed inside, there is no cycle.
    """
    text = f"{X} {{ t = Neg (x) {between} r = Relu (t) o = Add (r, s) }}"
    rules = rule("Add(Relu(Neg(x)), y)", escape=escape)
    selection = selected(rules, text)
    if escape == "duplicate":
        assert taken(selection) == ["r: t, r, o"]
        result = check_outcome(rules, text)
        assert (result.graph.node[0].op_type, result.graph.node[-1].op_type) == ("Neg", "r")
        return
    assert taken(selection) == []
    (reason,) = describe_refusals(selection)
    stage = "escape" if escape == "refuse" else "convexity"
    assert reason.startswith(f"r at o: {stage}: ")


@pytest.mark.parametrize(
    ("constants", "inputs"),
    [("embed", ["x"]), ("lift", ["x", "k", "l"]), ("auto", ["x", "k", "l"])],
)
def test_f9_constants_that_wildcards_match(constants: str, inputs: list[str]) -> None:
    """F9: bind_constants true and false are ``embed`` and ``lift``; ``auto`` is Relay's rule."""
    text = f"{X} <float[2] k = {{1, 2}}, float[2] l = {{3, 4}}> {{ m = Mul (x, k) o = Add (m, l) }}"
    result = check_outcome(rule("Add(Mul(_, _), _)", constants=constants), text)
    (call,) = result.graph.node
    assert list(call.input) == inputs
    (function,) = result.functions
    kinds = [node.op_type for node in function.node]
    assert sorted(kinds) == sorted(["Mul", "Add"] + ["Constant"] * (3 - len(inputs)))
    assert [tensor.name for tensor in result.graph.initializer] == inputs[1:]


def test_f12_equal_partitions_share_a_function() -> None:
    """F12: two matches that are built alike call one function; as in TVM."""
    text = f"{X} {{ a = Tanh (x) b = Relu (a) c = Tanh (b) o = Relu (c) }}"
    check_partition(
        "Relu(Tanh(x))",
        text,
        after="""
            (x) => (o) {
              [r_0] b = t.r (x)
              [r_1] o = t.r (b)
            }
            t.r (x) => (relu_1_out) {
              [Tanh_0] tanh_0_out = Tanh (x)
              [Relu_1] relu_1_out = Relu (tanh_0_out)
            }""",
    )


def test_f14_inputs_without_names_in_order_of_first_use() -> None:
    """F14: inputs that the pattern does not name are in order of the nodes, as in TVM."""
    text = """g (float[2] x, float[2] y, float[2] z) => (float[2] o) {
        s = Add (z, y) o = Mul (x, s) }"""
    check_partition(
        "Mul(_, Add(_, _))",
        text,
        after="""
            (x, y, z) => (o) {
              [r_0] o = t.r (z, y, x)
            }
            t.r (A, B, B_1) => (mul_1_out) {
              [Add_0] add_0_out = Add (A, B)
              [Mul_1] mul_1_out = Mul (add_0_out, B_1)
            }""",
    )


# -- what matches of the other probes --------------------------------------------------------------


def test_fm1_attributes_of_a_pattern_count() -> None:
    """FM1: a rule of TVM's ``from_module`` for softmax(axis=0) fires on axis=1; ours does not."""
    text = "g (float[2,2] x) => (o) { o = Softmax <axis=1> (x) }"
    check_match("Softmax(x, axis=0)", text, {})
    check_match("Softmax(x, axis=1)", text, {"o": "x=x"})


def test_fm2_constants_in_a_pattern() -> None:
    """FM2: ``from_module`` refuses constants in a pattern; they are part of our language."""
    check_match(
        "Add(x, is_value([1.0, 2.0]))",
        f"{X} <float[2] k = {{1, 2}}> {{ o = Add (x, k) }}",
        {"o": "x=x"},
    )


@pytest.mark.parametrize(("bounds", "expected"), [((0, 4), {"o": "x=x"}), ((1, 3), {})])
def test_fm3_scalar_arguments_count(bounds: tuple[int, int], expected: dict[str, str]) -> None:
    """FM3: a rule of ``from_module`` for clip(0, 4) fires on clip(1, 3); ours does not."""
    low, high = bounds
    text = f"{X} <float l = {{{low}}}, float h = {{{high}}}> {{ o = Clip (x, l, h) }}"
    check_match("Clip(x, 0, 4)", text, expected)
    check_match("Clip(x, min=0.0, max=4.0)", text, expected)


def test_ts_shared_wildcard_is_one_value() -> None:
    """TS: outputs share a wildcard by equal structure in TVM, by identity here (2.2)."""
    text = """g (float[2] x, float[2] y) => (o, p) <float[2] k = {1, 2}, float[2] l = {1, 2}> {
        o = Mul (x, k) p = Mul (y, l) }"""
    assert all_bindings("Mul(x, c), Mul(y, c)", text) == []
    assert all_bindings("Mul(x, const(c)), Mul(y, const(c))", text) == []
    exact = "Mul(x, is_value([1.0, 2.0])), Mul(y, is_value([1.0, 2.0]))"
    assert all_bindings(exact, text) == ["x=x y=y", "x=y y=x"]


def test_w8_pairs() -> None:
    """W8: an implicit pair on four products makes the pairs (1, 2) and (3, 4); as in TVM."""
    text = """g (float[2,2] x, float[2,2] w) => (a, b, c, d) {
        a = MatMul (x, w) b = MatMul (x, w) c = MatMul (x, w) d = MatMul (x, w) }"""
    assert taken(selected("MatMul(x, u), MatMul(x, v)", text)) == ["r: a, b", "r: c, d"]


def test_w12_vv_match_through_identities() -> None:
    """W12, VV: through a copy of a value a match goes on; TVM's FuseOpsByPattern throws there."""
    text = f"{X} {{ t = Tanh (x) i = Identity (t) j = Identity (i) o = Relu (j) }}"
    check_match("Relu(Tanh(p))", text, {"o": "p=x"})
    assert taken(selected("Relu(Tanh(p))", text)) == ["r: t, i, j, o"]
    check_outcome("Relu(Tanh(p))", text)


# -- sections 3 to 6: bugs and limits of TVM -------------------------------------------------------


def test_patterns_with_too_few_arguments() -> None:
    """Section 3.5: TVM raises an IndexError on divide(...) and multiply(*); here it is no match."""
    text = f"{AB} {{ o = Add (a, b) }}"
    check_match("Div(...)", text, {})
    check_match(is_op("Mul")(wildcard()), text, {})
    with pytest.raises(PatternSyntaxError, match="Mul"):
        pattern_of("Mul(x)")


def test_repeat_binds_anew_in_each_step() -> None:
    """Section 3.8: in Relay a second branch of a recursion must be the first; here it is free."""
    text = "g (float[2] x, float[2] a, float[2] b) => (o) { s = Sub (x, a) o = Sub (s, b) }"
    check_match("repeat(Sub, x, _, min=2)", text, {"o": "x=x"})
    check_match('repeat(Sub, input("x"), _)', text, {"s": "x=x", "o": "x=x"})
    check_match('repeat(Sub, input("x"), _, max=1)', text, {"s": "x=x"})
    check_match("repeat(Sub, x, _, min=3)", text, {})


def test_function_parameters_are_not_arguments() -> None:
    """Section 3.9: the parameters of a function pattern are its formal inputs."""
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x, float[2] y) => (float[2] o) { o = local.f (x, y) }
        <domain: "local", opset_import: ["" : 17]> f (a, b) => (c) { c = Add (b, a) }"""
    check_match("function([p, q], Add(q, p))(u, v)", text, {"o": "p=a q=b u=x v=y"})
    check_match("function([p, q], Add(p, q))(p, q)", text, {})


def test_matching_thousands_of_nodes_deep() -> None:
    """Section 3.7: no part of the search is recursive, so depth is no limit."""
    count = 2000
    body = "".join(f"v{n + 1} = Relu (v{n}) " for n in range(count))
    text = f"g (float[2] v0) => (float[2] v{count}) {{ {body} }}"
    assert len(selected(f"repeat(Relu, input(), min={count})", text).matches) == 1


def test_stacked_diamonds_are_linear() -> None:
    """Section 5: TVM's dominator is exponential on stacked diamonds; ours marks what it saw."""
    count = 60
    body = "c0 = Conv (x, w) "
    for n in range(count):
        body += f"r{n} = Relu (c{n}) s{n} = Sigmoid (c{n}) c{n + 1} = Add (r{n}, s{n}) "
    text = f"""g (float[1,1,2,2] x, float[1,1,1,1] w) => (float[1,1,2,2] o) {{
        {body} o = Mul (c{count}, c{count}) }}"""
    pattern = 'dominates(Conv(x, w), op(kind="elementwise")(_) | Add(_, _), Mul(_, _))'
    (match,) = selected(pattern, text).matches
    assert len(match.nodes) == 3 * count + 2


def test_small_diamond_is_one_user() -> None:
    """Section 6: a node that reads a value twice is one reader of it."""
    text = f"{X} {{ r = Relu (x) o = Add (r, r) }}"
    check_match("Relu(_) >> Add(_, _)", text, {"o": ""})
    check_match("r = Relu(_)\nr >> Add(r, r)", text, {"o": "r=r"})
