"""Replacements by values that are there already, and everything else that can be an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.helper
import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.ir.traversal import check_structure
from dplcli.passes.rewrite import rewrite
from tests.passes.rewriting import bound, check_settled, rewrite_rule, rewritten
from tests.support.helpers import check_sound, model_from_text, print_model, proto_from_text

if TYPE_CHECKING:
    from dplcli.language import Match, RewriteRule
    from dplcli.language.replacement import GraphBuilder, NewValue, Operand

NEGATION = rewrite_rule("Neg(Neg(v))", "v", name="negation")
COPY = rewrite_rule("Identity(v)", "v", name="copy")


def becomes(before: str, *rules: RewriteRule) -> str:
    """Rewrite; check validity, numbers and that nothing is left to do; return the text."""
    result = rewritten(before, rules)
    check_sound(result.before, result.after)
    check_settled(result, rules)
    return result.text


# -- captured values, by what they are and by what they take the place of --------------------------

MADE = {
    "graph-input": ("", "", "x"),
    "initializer": (" <float[2] k = {1, 2}>", "", "k"),
    "node": ("", "s = Abs (x) ", "s"),
}


@pytest.mark.parametrize(("data", "made", "source"), MADE.values(), ids=MADE)
def test_in_the_middle(data: str, made: str, source: str) -> None:
    """Readers read the captured value itself."""
    before = f"g (float[2] x) => (float[2] y){data} {{ {made}"
    before += f"a = Neg ({source}) b = Neg (a) c = Relu (b) d = Exp (b) y = Add (c, d) }}"
    assert becomes(before, NEGATION) == (
        f"(x) => (y) {{ {made}c = Relu ({source}) d = Exp ({source}) y = Add (c, d) }}"
    )


@pytest.mark.parametrize(("data", "made", "source"), MADE.values(), ids=MADE)
def test_at_a_graph_output(data: str, made: str, source: str) -> None:
    """The output keeps its name: by another name for what makes it, or as a copy."""
    text = becomes(
        f"g (float[2] x) => (float[2] y){data} {{ {made}a = Neg ({source}) y = Neg (a) }}", NEGATION
    )
    copy = "y = Abs (x)" if made else f"y = Identity ({source})"
    assert text == f"(x) => (y) {{ {copy} }}"


@pytest.mark.parametrize(("data", "made", "source"), MADE.values(), ids=MADE)
def test_at_two_graph_outputs(data: str, made: str, source: str) -> None:
    """One can have the value itself, the other is a copy; both names stay."""
    text = becomes(
        f"g (float[2] x) => (float[2] y, float[2] z){data} "
        f"{{ {made}a = Neg ({source}) y = Neg (a) b = Neg ({source}) z = Neg (b) }}",
        NEGATION,
    )
    assert text.count("Identity") == (1 if made else 2)
    assert text.startswith("(x) => (y, z)")


def test_a_captured_value_that_is_an_output_itself() -> None:
    """Both outputs keep their names."""
    text = becomes(
        "g (float[2] x) => (float[2] s, float[2] y) { s = Abs (x) a = Neg (s) y = Neg (a) }",
        NEGATION,
    )
    assert text == "(x) => (s, y) { s = Abs (x) y = Identity (s) }"


def test_an_output_that_is_returned_twice() -> None:
    """The same value at two places of the signature; onnxruntime refuses such a graph."""
    before = (
        """g (float[2] x) => (float[2] y, float[2] y) { s = Abs (x) a = Neg (s) y = Neg (a) }"""
    )
    model = model_from_text(before)
    rewrite(model, [NEGATION])
    check_structure(model)
    assert print_model(model) == "(x) => (y, y) {\n  y = Abs (x)\n}"


def test_the_second_output_of_a_node() -> None:
    """The node that makes it gives that output the name; its others stay as they are."""
    text = becomes(
        "g (float[4] x) => (float[2] y, float[2] z) "
        "{ p, q = Split (x) a = Neg (q) y = Neg (a) z = Exp (p) }",
        NEGATION,
    )
    assert text == "(x) => (y, z) { p, y = Split (x) z = Exp (p) }"


def test_readers_of_what_gets_another_name() -> None:
    """Whoever read the captured value reads it under the output's name: bodies and returns, too."""
    text = becomes(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) {
        s = Abs (x) t = Exp (s) a = Neg (s) y = Neg (a)
        i = If (c) <then_branch = t () => (float[2] p) { p = Add (s, y) },
                    else_branch = e () => (float[2] q) { q = Sub (s, x) }>
        z = Add (t, i) }""",
        NEGATION,
    )
    assert "y = Abs (x) t = Exp (y)" in text
    assert "p = Add (y, y)" in text
    assert "q = Sub (y, x)" in text


# -- bodies ----------------------------------------------------------------------------------------


def branch(then: str, outside: str = "k = Abs (x)", result: str = "p") -> str:
    """Write a model with an If."""
    return f"""g (float[2] x, bool c) => (float[2] y) {{ {outside}
        i = If (c) <then_branch = t () => (float[2] {result}) {{ {then} }},
                    else_branch = e () => (float[2] q) {{ q = Exp (x) }}>
        y = Relu (i) }}"""


def test_a_value_from_outside_in_the_middle_of_a_body() -> None:
    """The body's node reads the outer value."""
    assert "p = Exp (k)" in becomes(branch("a = Neg (k) b = Neg (a) p = Exp (b)"), NEGATION)


def test_a_value_from_outside_as_the_result_of_a_body() -> None:
    """A body must make what it returns: a copy."""
    assert "p = Identity (k)" in becomes(branch("a = Neg (k) p = Neg (a)"), NEGATION)


def test_a_value_of_the_body_as_its_result() -> None:
    """What makes it makes it under the result's name."""
    assert "() => (p) { p = Exp (k) }" in becomes(
        branch("s = Exp (k) a = Neg (s) p = Neg (a)"), NEGATION
    )


def test_a_copy_that_a_body_returns_stays() -> None:
    """There would be another one in its place: no application, and a reason."""
    before = branch("p = Identity (k)")
    result = rewritten(before, [COPY])
    assert not result.done.applications
    assert [item.reason for item in result.done.refused] == [
        "'p' is an output, so a copy of 'k' has to make it"
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = Identity (x)", "y = Identity (x)"),
        ("a = Identity (x) y = Identity (a)", "y = Identity (x)"),
        ("a = Identity (x) b = Identity (a) y = Exp (b)", "y = Exp (x)"),
        ("s = Exp (x) y = Identity (s)", "y = Exp (x)"),
        ("s = Exp (x) y = Identity (s) z = Identity (s)", "z = Exp (x) y = Identity (z)"),
        ("y = Exp (x) z = Identity (y)", "y = Exp (x) z = Identity (y)"),
    ],
)
def test_a_rule_that_takes_copies_away_has_an_end(before: str, after: str) -> None:
    """What a graph returns under two names, or does not make, remains a copy."""
    outputs = ", ".join(f"float[2] {name}" for name in ("y", "z") if f"{name} =" in before)
    text = becomes(f"g (float[2] x) => ({outputs}) {{ {before} }}", COPY)
    assert text == f"(x) => ({outputs.replace('float[2] ', '')}) {{ {after} }}"


def test_a_loop() -> None:
    """Values that a Loop's body reads from outside, and its own results."""
    before = """g (float[2] x, int64 n, bool go) => (float[2] y) {
        k = Abs (x) a = Neg (k) b = Neg (a)
        y = Loop (n, go, x) <body = l (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity (c) e = Neg (b) f = Neg (e) g = Add (s, f) h = Neg (g) t = Neg (h) }> }"""
    result = rewritten(before, [NEGATION])
    assert result.done.counts == {"negation": 3}
    assert "d = Identity (c) t = Add (s, k)" in result.text
    check_settled(result, [NEGATION])
    onnx.checker.check_model(result.after, full_check=True)


def test_a_rule_on_nodes_with_bodies() -> None:
    """An If whose branches are the same becomes what both return: data, or a node's value."""

    def choose(match: Match, build: GraphBuilder) -> NewValue | None:
        then = match.root.subgraphs["then_branch"].outputs[0].producer
        if then is None or then.op_type != "Exp" or then.inputs[0] is None:
            return None
        return build.op("Exp", then.inputs[0])

    rule = rewrite_rule("If(c, **_)", choose, name="same")
    text = becomes(branch("p = Exp (x)", outside=""), rule)
    assert text == "(x, c) => (y) { i = Exp (x) y = Relu (i) }"


def test_a_node_with_bodies_that_is_kept() -> None:
    """A match that reads the result of an If leaves the If as it is."""
    keep = rewrite_rule("i = If(c, **_)\nRelu(i)", "Max(i, 0.0)", name="keep")
    result = rewritten(branch("p = Exp (x)", outside=""), [keep])
    assert result.done.counts == {"keep": 1}
    assert "y = Max (i, y_Constant)" in result.text
    check_sound(result.before, result.after)


def test_values_inside_a_body_mean_nothing_outside() -> None:
    """A function that reads a body's own value from outside is refused."""

    def inside(match: Match, build: GraphBuilder) -> NewValue:
        return build.op("Exp", match.root.subgraphs["then_branch"].outputs[0])

    result = rewritten(branch("p = Exp (x)"), [rewrite_rule("If(c, **_)", inside)])
    assert not result.done.applications
    assert "not made before it" in result.done.refused[0].reason


# -- several outputs -------------------------------------------------------------------------------

PAIR = "a = Neg(x)\na, Abs(a)"
RETURNED = {"both": "y, z", "first": "y", "second": "z", "none": ""}


def two(outputs: str) -> str:
    """Write a graph in which both values are read, and some of them returned."""
    returned = ", ".join(f"float[2] {name}" for name in ["w", *outputs.split(", ")] if name)
    return (
        f"g (float[2] x) => ({returned}) "
        "{ y = Neg (x) q = Exp (y) z = Abs (y) r = Sin (z) w = Add (q, r) }"
    )


@pytest.mark.parametrize("outputs", RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize(
    "replacement",
    ["b = Mul(x, -1.0)\nb, Max(b, Neg(b))", "Sub(Mul(x, 0.0), x), Max(x, Mul(x, -1.0))"],
)
def test_two_outputs(outputs: str, replacement: str) -> None:
    """Each of them may be returned, or read before the other is made."""
    text = becomes(two(outputs), rewrite_rule(PAIR, replacement))
    assert "Abs" not in text


SAME = {
    "a-captured-value": "x, x",
    "a-new-node": "b = Relu(x)\nb, b",
    "a-constant": "c = const(k.value)\nc, c",
    "two-of-one-node": "p, q = Split(Concat(x, x, axis=0))\nq, p",
}


@pytest.mark.parametrize("outputs", RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize("replacement", SAME.values(), ids=SAME)
def test_one_value_for_two_outputs(outputs: str, replacement: str) -> None:
    """The same value twice: names stay, whoever is returned; a valid model."""
    before = two(outputs).replace("y = Neg (x)", "y = Add (x, k)")
    before = before.replace(" {", " <float[2] k = {1, 2}> {", 1)
    rule = rewrite_rule("a = Add(x, const(k))\na, Abs(a)", replacement)
    result = rewritten(before, [rule])
    assert result.done.counts == {"r": 1}
    onnx.checker.check_model(result.after, full_check=True)
    check_settled(result, [rule])


@pytest.mark.parametrize("outputs", RETURNED.values(), ids=RETURNED)
def test_outputs_that_change_places(outputs: str) -> None:
    """Each would read what the other was: refused where they meet, and at load from a text."""

    def swap(match: Match, build: GraphBuilder) -> list[Operand]:
        assert build.match is match
        return [match.outputs[1], match.outputs[0]]

    pattern = "a = Neg(x)\nb = Sin(x)\na, b"
    with pytest.raises(PatternSyntaxError, match="which it replaces"):
        rewrite_rule(pattern, "b, a")
    before = two(outputs).replace("z = Abs (y)", "z = Sin (x)")
    result = rewritten(before, [rewrite_rule(pattern, swap)])
    assert not result.done.applications
    assert all("which it replaces" in item.reason for item in result.done.refused)


def test_a_sibling_of_what_is_replaced() -> None:
    """The node that makes both would have to stay and to go: refused."""
    rule = rewrite_rule("a, b = Split(x, **_)\na, Relu(b)", "Abs(b), Neg(b)")
    result = rewritten(
        "g (float[4] x) => (float[2] y, float[2] a) { a, b = Split (x) y = Relu (b) }", [rule]
    )
    assert not result.done.applications
    assert result.done.refused[0].reason == "the replacement needs Split 'a', which it replaces"


@pytest.mark.parametrize("last", ["", "y = Relu (a)"])
def test_a_sibling_in_the_place_of_the_root(last: str) -> None:
    """Nor can one output of a node take the place of another one."""
    name = "y" if last else "a"
    before = f"g (float[4] x) => (float[2] {name}) {{ a, b = Split (x) {last} }}"
    result = rewritten(before, [rewrite_rule("a, b = Split(x, **_)\na", "b")])
    assert not result.done.applications


def test_an_inner_value_that_depends_on_what_is_replaced() -> None:
    """What needs the replaced value cannot help to make it: no cycle."""
    rule = rewrite_rule("a = Neg(x)\nr = Relu(a)\na, Abs(r)", "Sub(r, r), Abs(x)")
    before = """g (float[2] x) => (float[2] y, float[2] w)
        { a = Neg (x) w = Exp (a) r = Relu (a) y = Abs (r) }"""
    result = rewritten(before, [rule])
    assert not result.done.applications
    assert "which it replaces" in result.done.refused[0].reason


def test_some_outputs_as_they_are() -> None:
    """Only the others change; and nothing more the second time."""
    rule = rewrite_rule("a = Neg(x)\na, Relu(a)", "a, Max(a, 0.0)")
    text = becomes("g (float[2] x) => (float[2] a, float[2] y) { a = Neg (x) y = Relu (a) }", rule)
    assert text == "(x) => (a, y) { a = Neg (x) y = Max (a, a_Constant) }"


@pytest.mark.parametrize("outputs", ["w, y", "w, y, z", "w"])
def test_the_last_node_of_the_match_in_the_place_of_another(outputs: str) -> None:
    """A copy of what it makes cannot stand before it; to read it instead needs no copy."""
    before = f"""g (float[2] x) => ({", ".join(f"float[2] {name}" for name in outputs.split(", "))})
        {{ y = Sin (x) q = Exp (y) z = Cos (x) w = Add (q, z) }}"""
    rule = rewrite_rule("a = Sin(x)\nb = Cos(x)\na, b", "b, b")
    result = rewritten(before, [rule])
    reasons = [item.reason for item in result.done.refused]
    if "y" in outputs:
        assert reasons == ["the replacement reads 'z', the last node of the match"]
    else:
        assert result.text == "(x) => (w) { z = Cos (x) q = Exp (z) w = Add (q, z) }"
    onnx.checker.check_model(result.after, full_check=True)
    check_settled(result, [rule])


def test_all_outputs_as_they_are() -> None:
    """That is no application, by a text as well as by a function."""

    def same(match: Match, build: GraphBuilder) -> list[Operand]:
        build.op("Exp", bound(match, "x"))
        return list(match.outputs)

    before = "g (float[2] x) => (float[2] a, float[2] y) { a = Neg (x) y = Relu (a) }"
    pattern = "a = Neg(x)\nb = Relu(a)\na, b"
    for becoming in ("a, b", same):
        result = rewritten(before, [rewrite_rule(pattern, becoming)])
        assert not result.done.applications


def test_an_output_that_nobody_reads() -> None:
    """It needs no copy, and nothing is left of it."""
    text = becomes(
        "g (float[2] x) => (float[2] z) { s = Exp (x) y = Neg (s) z = Abs (y) q = Neg (x) }",
        rewrite_rule(PAIR, "s2 = Mul(x, -1.0)\ns2, Max(s2, Neg(s2))"),
    )
    assert text.endswith("y_Neg = Neg (y) z = Max (y, y_Neg) q = Neg (x) }")


# -- other ways to keep data -----------------------------------------------------------------------


def test_the_third_ir_version() -> None:
    """There every initializer is a graph input; the result is of version 4, where none is."""
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("Add", ["x", "x"], ["a"], name="n_a"),
                onnx.helper.make_node("Mul", ["a", "k"], ["y"], name="n_y"),
            ],
            "g",
            [
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
                for name in "xk"
            ],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
            [onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [2], [3, 4])],
        ),
        ir_version=3,
        opset_imports=[onnx.helper.make_opsetid("", 8)],
    )
    rules = [
        rewrite_rule("Add(v, v)", "Mul(v, 2.0)", name="double"),
        rewrite_rule("Mul(Mul(v, const(a)), const(b))", "Mul(v, const(a.value * b.value))"),
    ]
    result = rewritten(proto, rules)
    assert result.done.counts == {"double": 1, "r": 1}
    assert [node.op_type for node in result.after.graph.node] == ["Mul"]
    (product,) = result.after.graph.initializer
    assert onnx.numpy_helper.to_array(product).tolist() == [6, 8]
    assert [value.name for value in result.after.graph.input] == ["x"]
    assert result.after.ir_version == 4
    onnx.checker.check_model(result.after)
    check_sound(proto, result.after)
    check_settled(result, rules)


def test_a_function_body() -> None:
    """It holds no initializers: constants are nodes, which go when nobody reads them."""
    before = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.f (x) }
        <domain: "own", opset_import: ["" : 17]> f (p) => (r) {
            a = Constant <value = float[2] {1, 2}> () b = Constant <value = float[2] {3, 4}> ()
            m = Mul (p, a) r = Mul (m, b) }"""
    rule = rewrite_rule("Mul(Mul(v, const(a)), const(b))", "Mul(v, const(a.value * b.value))")
    result = rewritten(before, [rule])
    (function,) = result.after.functions
    assert [node.op_type for node in function.node] == ["Constant", "Mul"]
    check_sound(proto_from_text(before), result.after)
    check_settled(result, [rule])


def test_data_in_a_body() -> None:
    """A body's constants lie in the body, and clash with nothing."""
    before = branch("p = Add (k, k)", outside="k = Add (x, x)")
    result = rewritten(before, [rewrite_rule("Add(v, v)", "Mul(v, 2.0)")])
    inner = result.after.graph.node[1].attribute[0].g
    assert [item.name for item in inner.initializer] == ["p_Constant"]
    assert [item.name for item in result.after.graph.initializer] == ["k_Constant"]
    check_sound(result.before, result.after)


@pytest.mark.parametrize("returned", [False, True])
def test_a_constant_in_the_place_of_a_node(returned: bool) -> None:  # noqa: FBT001  # parametrized
    """It becomes an initializer of the value's name; a graph output stays a node's."""
    before = "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { a = Neg (k) y = Add (x, a) }"
    if returned:
        before = "g () => (float[2] a) <float[2] k = {1, 2}> { a = Neg (k) }"
    result = rewritten(before, [rewrite_rule("Neg(const(k))", "const(-k.value)")])
    names = [item.name for item in result.after.graph.initializer]
    assert names == ([] if returned else ["a"])
    assert [n.op_type for n in result.after.graph.node] == (["Constant"] if returned else ["Add"])
    check_sound(result.before, result.after)


def test_domains_that_are_imported() -> None:
    """An operator that onnx knows is imported in the version that has it, a foreign one in 1."""
    before = "g (float[2, 2] x) => (float[2, 2] y) { a = Neg (x) y = Exp (a) }"
    rules = [
        rewrite_rule("Neg(v)", "ai.onnx.ml.Normalizer(v, norm='MAX')", name="old"),
        rewrite_rule("Exp(v)", "own.f(v)", name="foreign"),
    ]
    result = rewritten(before, rules)
    found = {item.domain: item.version for item in result.after.opset_import}
    assert found == {"": 17, "com.microsoft": 1, "ai.onnx.ml": 1, "own": 1}
    onnx.checker.check_model(result.after, full_check=True)
    replacement = "ai.onnx.ml.LabelEncoder(v, keys_floats=[1.0], values_floats=[2.0])"
    result = rewritten(before, [rewrite_rule("Neg(v)", replacement)])
    found = {item.domain: item.version for item in result.after.opset_import}
    assert found["ai.onnx.ml"] == 4
    onnx.checker.check_model(result.after, full_check=True)


def test_a_domain_that_is_imported_already() -> None:
    """In its version, or not at all."""
    header = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>\n'
    before = f"{header}g (float[2, 2] x) => (float[2, 2] y) {{ a = Neg (x) y = Exp (a) }}"
    replacement = "ai.onnx.ml.LabelEncoder(v, keys_floats=[1.0], values_floats=[2.0])"
    result = rewritten(before, [rewrite_rule("Neg(v)", replacement)])
    assert not result.done.applications
    assert "LabelEncoder-1" in result.done.refused[0].reason


# -- overlaps and what goes with them --------------------------------------------------------------


def test_overlapping_matches() -> None:
    """Consumers first: the second of three goes with the third, the first stays."""
    text = becomes(
        "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (a) c = Neg (b) y = Exp (c) }",
        NEGATION,
    )
    assert text == "(x) => (y) { a = Neg (x) y = Exp (a) }"


def test_a_root_that_an_application_has_taken() -> None:
    """A candidate of the same turn that has gone meanwhile is passed over."""
    rule = rewrite_rule("Add(Neg(a), Neg(a))", "Mul(a, -2.0)")
    text = becomes(
        """g (float[2] x) => (float[2] y) {
        n = Neg (x) m = Neg (x) s = Add (n, m) t = Neg (s) u = Neg (s) y = Add (t, u) }""",
        rule,
    )
    assert text.count("Mul") == 2
    assert "Neg" not in text


def test_producers_that_two_matches_share() -> None:
    """What only the two needed goes with the second, and what others read stays."""
    drop = rewrite_rule("Max(v, _)", "v", name="drop")
    result = rewritten(
        """g (float[2] x) => (float[2] y, float[2] z, float[2] s) <float[2] k = {1, 2}> {
        s = Exp (x) t = Sin (s) u = Cos (t) e = Mul (u, k)
        a = Neg (e) b = Abs (e) m = Max (x, a) n = Max (s, b) y = Add (m, x) z = Add (n, x) }""",
        [drop],
    )
    assert result.text == "(x) => (y, z, s) { s = Exp (x) y = Add (x, x) z = Add (s, x) }"
    assert not result.after.graph.initializer
    first, second = result.done.applications
    assert [node.op_type for node in first.removed] == ["Max", "Abs"]
    assert [node.op_type for node in second.removed] == ["Max", "Neg", "Mul", "Cos", "Sin"]


def test_names_of_nodes_are_unique() -> None:
    """A new node has the name of the one whose place it takes, or one with its operator."""
    before = """g (float[2] x) => (float[2] y) {
        ["n/Neg"] a = Abs (x) [n] b = Add (a, a) [m] c = Add (b, b) [m_1] y = Exp (c) }"""
    before = before.replace('["n/Neg"]', "[n_Neg]")
    rule = rewrite_rule("Add(v, v)", "Sub(Neg(Neg(v)), Neg(v))")
    model = model_from_text(before)
    first = next(iter(model.graph))
    first.name = "n/Neg"
    rewrite(model, [rule])
    names = [node.name for node in model.graph]
    assert len(names) == len(set(names))
    assert names[:4] == ["n/Neg", "n/Neg_1", "n/Neg_2", "n/Neg_3"]
    assert {"n/Sub", "m/Sub", "m/Neg"} <= set(names)


def test_types_of_values_that_are_gone() -> None:
    """Nothing is declared of what is there no more, and names are not given a second time."""
    proto = onnx.shape_inference.infer_shapes(
        proto_from_text(
            "g (float[2] x) => (float[2] y) { a = Neg (x) y_Exp = Neg (a) b = Relu (y_Exp) "
            "c = Relu (b) y = Abs (c) }"
        )
    )
    assert {info.name for info in proto.graph.value_info} == {"a", "y_Exp", "b", "c"}
    rules = [NEGATION, rewrite_rule("Abs(Relu(v))", "Abs(Exp(v))", name="exp")]
    result = rewritten(proto, rules)
    assert result.text == "(x) => (y) { b = Relu (x) y_Exp_1 = Exp (b) y = Abs (y_Exp_1) }"
    assert {info.name for info in result.after.graph.value_info} == {"b"}


def test_what_was_dead_before() -> None:
    """Nodes that nobody read before are none of the engine's business."""
    before = "g (float[2] x) => (float[2] y) { d = Exp (x) a = Neg (x) b = Neg (a) y = Abs (b) }"
    assert becomes(before, NEGATION) == "(x) => (y) { d = Exp (x) y = Abs (x) }"


# -- constants that no Constant node of an early opset holds ---------------------------------------

SUM = rewrite_rule("Add(const(a), const(b))", "const(a.value + b.value)", name="sum")
SUMMED = """<ir_version: {}, opset_import: ["" : {}]>
    g ({}) => ({dtype}[2] y) <{dtype}[2] a = {{1, 2}}, {dtype}[2] b = {{3, 4}}> {{ {} }}"""


@pytest.mark.parametrize("ir_version", [3, 4])
@pytest.mark.parametrize(("opset", "is_returned"), [(7, False), (8, True), (9, False), (9, True)])
def test_whole_numbers_before_opset_9(
    ir_version: int,
    opset: int,
    is_returned: bool,  # noqa: FBT001
) -> None:
    """What is returned must be a Constant node, and one of opset 1 holds floats."""
    body = "y = Add (a, b)" if is_returned else "s = Add (a, b) y = Mul (s, s)"
    inputs = "int64[2] a, int64[2] b" if ir_version == 3 else ""
    result = rewritten(SUMMED.format(ir_version, opset, inputs, body, dtype="int64"), [SUM])
    applies = opset >= 9 or not is_returned
    assert bool(result.done.rounds) == applies
    assert [r.reason for r in result.done.refused] == (
        [] if applies else ["no Constant node holds int64 before opset 9"]
    )
    check_sound(result.before, result.after)


def test_floats_before_opset_9() -> None:
    """Constant nodes of opset 1 hold floats."""
    text = SUMMED.format(3, 7, "float[2] a, float[2] b", "y = Add (a, b)", dtype="float")
    assert "Constant" in becomes(text, SUM)
