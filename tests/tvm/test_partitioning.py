"""TVM's tests of partitions: Relay's ``partition`` and MergeComposite, Relax's FuseOpsByPattern.

R69 to R89 and F1 to F27 of the inventory as far as they are partitions of one model, and appendix
A. Where TVM writes one function per match, dpl writes one per kind of match, and gives attributes
that differ at the calls. Inputs of a function are in order of its nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx.helper import get_node_attr_value

from dplcli.errors import PatternSyntaxError
from dplcli.language import DFPattern, is_const, is_function, is_input, is_op, is_value, wildcard
from tests.support.helpers import (
    check_outcome,
    check_partition,
    describe_refusals,
    numbered_forms,
    pattern_of,
    proto_from_text,
    rule,
    selected,
    taken,
)

if TYPE_CHECKING:
    import onnx

    from dplcli.language import Match, PatternRule, Rejection
    from tests.support.helpers import Rules

AB = "g (float[2] a, float[2] b) => (float[2] o)"
IMAGE = "float[1,3,4,4] x, float[3,3,1,1] w, float[3,1,1] b"
CONV = f"g ({IMAGE}) => (float[1,3,4,4] o)"


def traces(model: onnx.ModelProto) -> dict[str, str]:
    """Say which operators each function has, by the name of the rule and the number of the form."""
    names = numbered_forms(model)
    return {
        f"{function.domain}.{names[function.name]}": item.value
        for function in model.functions
        for item in function.metadata_props
        if item.key == "PartitionedFromPattern"
    }


def calls(model: onnx.ModelProto) -> list[str]:
    """Write each node of the main graph as ``y = f(x)``; forms of a rule are numbered."""
    names = numbered_forms(model)
    return [
        f"{', '.join(n.output)} = {f'{n.domain}.' if n.domain else ''}"
        f"{names.get(n.op_type, n.op_type)}({', '.join(n.input)})"
        for n in model.graph.node
    ]


def check_calls(rules: Rules, text: str, expected: list[str]) -> onnx.ModelProto:
    """Check soundness, and what the main graph calls."""
    result = check_outcome(rules, text)
    assert calls(result) == expected
    return result


def test_double_partition() -> None:
    """R69 test_double_partition: two rules one after the other; neither enters the other's."""
    rules = [
        rule("Relu(Add(Conv(x, w), b))", name="conv_bias_relu"),
        rule("Add(Conv(x, w), b)", name="conv_bias"),
    ]
    text = f"""g ({IMAGE}, float[3,3,1,1] w2, float[3,1,1] b2) => (float[1,3,4,4] o) {{
        c = Conv (x, w) a = Add (c, b) r = Relu (a) d = Conv (r, w2) o = Add (d, b2) }}"""
    result = check_calls(
        rules, text, ["r = t.conv_bias_relu(x, w, b)", "o = t.conv_bias(r, w2, b2)"]
    )
    assert traces(result) == {
        "t.conv_bias_relu": "Conv_Add_Relu_",
        "t.conv_bias": "Conv_Add_",
    }


REGION = 'dominates(Conv(_, _), op(kind="elementwise")(_) | Add(_, _), Add(_, _))'


def test_partition_dominator() -> None:
    """R70 test_partition_dominator: the inputs of the parent are those of the function."""
    text = f"""{CONV} {{
        i = Mul (x, x) k = Mul (w, w)
        c = Conv (i, k) r = Relu (c) s = Relu (r) l = LeakyRelu <alpha=0.0> (c)
        o = Add (s, l) }}"""
    result = check_calls(
        'dominates(Conv(_, _), op(kind="elementwise")(_), Add(_, _))',
        text,
        ["i = Mul(x, x)", "k = Mul(w, w)", "o = t.r(i, k)"],
    )
    assert traces(result) == {"t.r": "Conv_LeakyRelu_Relu_Relu_Add_"}


def test_quadruple_partition_dominator() -> None:
    """R71 test_quadruple_partition_dominator [H10]: four regions, one below the other."""
    text = f"""{CONV} {{
        c1 = Conv (x, w) r1 = Relu (c1) s1 = Relu (r1) l1 = LeakyRelu (c1) o1 = Add (s1, l1)
        c2 = Conv (o1, w) r2 = Relu (c2) s2 = Relu (r2) t2 = Tanh (s2) l2 = LeakyRelu (c2)
        o2 = Add (t2, l2)
        c3 = Conv (o2, w) r3 = Relu (c3) s3 = Relu (r3) t3 = Tanh (s3) o3 = Add (s3, t3)
        c4 = Conv (o3, w) r4 = Relu (c4) a4 = Add (r4, r4) t4 = Tanh (a4) l4 = LeakyRelu (c4)
        o = Add (t4, l4) }}"""
    result = check_calls(
        REGION,
        text,
        ["o1 = t.r(x, w)", "o2 = t.r_1(o1, w)", "o3 = t.r_2(o2, w)", "o = t.r_3(o3, w)"],
    )
    assert traces(result) == {
        "t.r": "Conv_LeakyRelu_Relu_Relu_Add_",
        "t.r_1": "Conv_LeakyRelu_Relu_Relu_Tanh_Add_",
        "t.r_2": "Conv_Relu_Relu_Tanh_Add_",
        "t.r_3": "Conv_LeakyRelu_Relu_Add_Tanh_Add_",
    }


NORM = "gamma * (x - mean) / Sqrt(var + const(eps)) + beta"
NORM_HEAD = """g (float[4] x, float[4] gamma, float[4] beta, float[4] mean) => (float[4] o)
    <float eps = {0.00001}, float[4] var = {1, 2, 3, 4}>"""


def norm_of(source: str, tag: str, result: str) -> str:
    """Write a batch normalization as arithmetic."""
    return f"""s{tag} = Sub ({source}, mean) m{tag} = Mul (gamma, s{tag}) a{tag} = Add (var, eps)
        q{tag} = Sqrt (a{tag}) d{tag} = Div (m{tag}, q{tag}) {result} = Add (d{tag}, beta)"""


def test_partition_batchnorm() -> None:
    """R72 test_partition_batchnorm: epsilon, a ``const`` leaf, goes inside; the others are inputs.

    Relay lists the inputs in the order of the pattern, gamma first; so does dpl.
    """
    result = check_calls(
        NORM, f"{NORM_HEAD} {{ {norm_of('x', '1', 'o')} }}", ["o = t.r(gamma, x, mean, var, beta)"]
    )
    assert traces(result) == {"t.r": "Sub_Mul_Add_Sqrt_Div_Add_"}
    (function,) = result.functions
    assert list(function.input) == ["gamma", "x", "mean", "var", "beta"]
    assert [node.op_type for node in function.node].count("Constant") == 1
    assert [tensor.name for tensor in result.graph.initializer] == ["var"]


def test_partition_double_batchnorm() -> None:
    """R73 test_partition_double_batchnorm: two matches; dpl shares the function, Relay does not."""
    text = f"{NORM_HEAD} {{ {norm_of('x', '1', 'y')} {norm_of('y', '2', 'o')} }}"
    result = check_calls(
        NORM,
        text,
        ["y = t.r(gamma, x, mean, var, beta)", "o = t.r(gamma, y, mean, var, beta)"],
    )
    assert len(result.functions) == 1


def test_overlapping_partitions() -> None:
    """R74 test_overlappting_partitions [H11]: two readers of one node cannot both take it.

    Relay's readers are two projections of one batch norm; two Neg of its output here.
    """
    text = """g (float[1,2] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[1,2] o) {
        n = BatchNormalization (x, s, b, m, v) p = Neg (n) q = Neg (n) o = Add (p, q) }"""
    check_partition(
        "Neg(BatchNormalization(_, _, _, _, _)[0])",
        text,
        refused=[
            "r at q: escape: 'n' is also read by Neg 'p'",
            "r at p: escape: 'n' is also read by Neg 'q'",
        ],
    )
    result = check_outcome("BatchNormalization(_, _, _, _, _)[0]", text)
    assert [node.op_type for node in result.graph.node] == ["r", "Neg", "Neg", "Add"]


def test_partition_overused() -> None:
    """R75 test_partition_overused [H12]: an inner convolution that something outside reads."""
    text = f"{CONV} {{ c = Conv (x, w) r = Relu (c) o = Add (r, c) }}"
    check_partition(
        "Relu(Conv(_, _))", text, refused=["r at r: escape: 'c' is also read by Add 'o'"]
    )


@pytest.mark.parametrize(
    ("inputs", "size"), [("a", 2), ("a, b", 4), ("a, b, s", 6), ("a, b, a", 6)]
)
def test_partition_fuzzy_tuple(inputs: str, size: int) -> None:
    """R76 test_partition_fuzzy_tuple: any number of inputs, each value once."""
    text = f"""g (float[2] a, float[2] b) => (float[{size}] o, float[2] s) {{
        s = Add (a, b) o = Concat <axis=0> ({inputs}) }}"""
    unique = ", ".join(dict.fromkeys(inputs.split(", ")))
    result = check_calls("Concat(...)", text, ["s = Add(a, b)", f"o = t.r({unique})"])
    assert traces(result) == {"t.r": "Concat_"}


FUZZY = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x, float[2] y, float[2] z, float[2] b) => (float[2] o) {{
    c = local.f ({0}) o = Add (c, b) }}
    <domain: "local", opset_import: ["" : 17]> f ({0}) => (r) {{ {1} }}"""


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("x", "r = Add (x, x)"),
        ("x, y", "r = Add (x, y)"),
        ("x, y, z", "s = Add (x, y) r = Add (s, z)"),
    ],
)
def test_partition_fuzzy_function_args(inputs: str, body: str) -> None:
    """R77 test_partition_fuzzy_function_args [H13]: a called function of any number of inputs."""
    pattern = is_function(None, wildcard() + wildcard())(...) + wildcard()
    text = FUZZY.format(inputs, body)
    result = check_calls(rule(pattern), text, [f"o = t.r({inputs}, b)"])
    assert traces(result) == {"t.r": "f_Add_"}
    assert sorted(numbered_forms(result).values()) == ["f", "r"]


def only_group(wanted: int) -> PatternRule:
    """Accept convolutions of one number of groups."""

    def check(match: Match) -> Rejection | None:
        conv = match.node("c")
        assert conv is not None
        group = conv.attributes.get("group")
        found = 1 if group is None else group.value
        return None if found == wanted else match.reject(f"{found} groups", at=conv)

    return rule("c = Conv(x, w)\nRelu(c)", check=check)


def test_partition_check() -> None:
    """R78 test_partition_check: a check that accepts, and one that refuses and leaves the graph."""
    text = f"{CONV} {{ c = Conv (x, w) o = Relu (c) }}"
    check_calls(only_group(1), text, ["o = t.r(x, w)"])
    check_partition(only_group(3), text, refused=["r at o: check: 1 groups"])


@pytest.mark.parametrize(
    ("batch", "pad", "reason"),
    [
        ("1", "NOTSET", None),
        ("2", "NOTSET", "'c.shape[0] == 1' does not hold"),
        ("1", "SAME_UPPER", "'c.attrs.auto_pad == \"NOTSET\"' does not hold"),
        ("N", "NOTSET", "'c.shape[0] == 1' does not hold"),
    ],
)
def test_partition_check_types(batch: str, pad: str, reason: str | None) -> None:
    """R79 test_partition_check_types: conditions on shapes and attributes.

    [≈] ``auto_pad`` for the layout. A batch that is a symbol is not known to be 1.
    """
    text = f"""g (float[{batch},3,4,4] x, float[3,3,1,1] w) => (float[{batch},3,4,4] o) {{
        c = Conv <auto_pad="{pad}"> (x, w) o = Relu (c) }}"""
    checked = rule("c = Conv(x, w)\nRelu(c)", "c.shape[0] == 1", 'c.attrs.auto_pad == "NOTSET"')
    if reason is None:
        check_calls(checked, text, ["o = t.r(x, w)"])
    else:
        check_partition(checked, text, refused=[f"r at o: where: {reason}"])


@pytest.mark.parametrize(
    "pattern",
    [
        "Relu(optional(Add)(Conv(x, w), b))",
        "optional(Relu)(optional(Add)(Conv(x, w), b))",
        "Relu(Conv(x, w)) | Relu(Add(Conv(x, w), b))",
    ],
)
def test_partition_option(pattern: str) -> None:
    """R80 test_partition_option: however the option is written, the largest match is taken."""
    check_partition(
        pattern,
        f"{CONV} {{ c = Conv (x, w) a = Add (c, b) o = Relu (a) }}",
        after="""
            (x, w, b) => (o) {
              [r_0] o = t.r (x, w, b)
            }
            t.r (x, w, b) => (relu_2_out) {
              [Conv_0] conv_0_out = Conv (x, w)
              [Add_1] add_1_out = Add (conv_0_out, b)
              [Relu_2] relu_2_out = Relu (add_1_out)
            }""",
    )


CALLED = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    {CONV} {{{{ c = local.f (x, w) {{}} }}}}
    <domain: "local", opset_import: ["" : 17]> f (p, q) => (r) {{{{ {{}} }}}}"""


def test_partition_function() -> None:
    """R81 test_partition_function: a called function is part of a match, and stays one."""
    text = CALLED.format("a = Add (c, b) o = Add (a, b)", "r = Conv (p, q)")
    pattern = "function([p, q], Conv(p, q))(x, w) + b"
    result = check_calls(pattern, text, ["a = t.r(x, w, b)", "o = Add(a, b)"])
    assert traces(result) == {"t.r": "f_Add_"}
    (inner,) = (function for function in result.functions if function.domain == "local")
    assert [node.op_type for node in inner.node] == ["Conv"]


def test_partition_optional_function() -> None:
    """R82 test_partition_optional_function: one of two functions, by body (issue 13278)."""
    text = CALLED.format("o = Add (c, b)", "s = Conv (p, q) r = Relu (s)")
    p, q = wildcard(), wildcard()
    conv = is_op("Conv")(p, q)
    either = is_function([p, q], is_op("Sigmoid")(conv)) | is_function([p, q], is_op("Relu")(conv))
    pattern = either(wildcard("x"), wildcard("w")) + wildcard("b")
    check_calls(rule(pattern), text, ["o = t.r(x, w, b)"])
    other = text.replace("Relu (s)", "Tanh (s)")
    check_partition(rule(pattern), other)


def test_match_function_with_fuzzy_body() -> None:
    """R83 test_rewrite_function_with_fuzzy_body: what it matches; the rewriting is another test."""
    text = CALLED.format("a = Add (c, b) o = Add (a, b)", "r = Conv (p, q)")
    assert taken(selected("function([_, _], _)(x, w) + b", text)) == ["r: c, a"]


def test_partition_function_with_fuzzy_body() -> None:
    """R84 test_partition_function_with_fuzzy_body: the body may be anything."""
    text = CALLED.format("a = Add (c, b) o = Add (a, b)", "r = Conv (p, q)")
    check_calls("function([_, _], _)(x, w) + b", text, ["a = t.r(x, w, b)", "o = Add(a, b)"])


WITH_INPUT = f"{CONV} {{ c = Conv (x, w) a = Add (c, b) o = Relu (a) }}"
WITH_CONSTANT = """g (float[1,1,4,4] x, float[1,1,1] b) => (float[1,1,4,4] o)
    <float[1,1,1,1] w = {1}> { c = Conv (x, w) a = Add (c, b) o = Relu (a) }"""
ONE = np.ones((1, 1, 1, 1), np.float32)


@pytest.mark.parametrize(
    ("weight", "of_input", "of_constant"),
    [
        pytest.param(wildcard(), True, "lifted", id="wildcard"),
        pytest.param(is_input(), True, "", id="var"),
        pytest.param(is_const(), False, "embedded", id="const"),
        pytest.param(is_value(ONE), False, "embedded", id="expr"),
        pytest.param(is_input() | is_const(), True, "embedded", id="var|const"),
        pytest.param(is_const() | is_input(), True, "embedded", id="const|var"),
    ],
)
def test_partition_constant_embedding(
    weight: DFPattern,
    of_input: bool,  # noqa: FBT001  # parametrized
    of_constant: str,
) -> None:
    """R86 test_partition_constant_embedding [H14]: the leaf that matched decides."""
    around = rule(is_op("Relu")(is_op("Add")(is_op("Conv")(wildcard(), weight), wildcard())))
    whole = ["o = t.r(x, w, b)"]
    apart = ["c = Conv(x, w)", "a = Add(c, b)", "o = Relu(a)"]
    check_calls(around, WITH_INPUT, whole if of_input else apart)
    expected = {"lifted": whole, "embedded": ["o = t.r(x, b)"], "": apart}[of_constant]
    check_calls(around, WITH_CONSTANT, expected)


DOMINATED = f"""g ({IMAGE}) => (float[1,3,4,4] o) {{
    c = Conv (x, w) a = Add (c, b) s = Sigmoid (a) o = Mul (a, s) }}"""


def test_matched_outside_but_dominated() -> None:
    """R88 test_matched_outside_but_dominated [H16]: ``duplicate`` computes the sum inside, too."""
    pattern = "Mul(Add(Conv(_, _), _), _)"
    result = check_calls(
        rule(pattern, escape="duplicate"),
        DOMINATED,
        ["c = Conv(x, w)", "a = Add(c, b)", "s = Sigmoid(a)", "o = t.r(x, w, b, s)"],
    )
    assert traces(result) == {"t.r": "Conv_Add_Mul_"}
    check_partition(pattern, DOMINATED, refused=["r at o: escape: 'a' is also read by Sigmoid 's'"])
    check_partition(
        rule(pattern, escape="outputs"),
        DOMINATED,
        refused=["r at o: convexity: 's' lies outside but between two nodes of the match"],
    )


def test_matched_outside_and_not_dominated() -> None:
    """R88 test_matched_outside_but_dominated [H16]: refused if a reader leads elsewhere."""
    text = DOMINATED.replace("=> (float[1,3,4,4] o)", "=> (float[1,3,4,4] o, float[1,3,4,4] s)")
    check_partition(
        rule("Mul(Add(Conv(_, _), _), _)", escape="duplicate"),
        text,
        refused=[
            "r at o: escape: 'a' is also read by Sigmoid 's', which does not lead to the root"
        ],
    )


def test_duplicate_leaves_nothing_to_a_second_run() -> None:
    """R88 test_matched_outside_but_dominated [H16]: the copy left outside may fit the rule, too.

    A second run changes nothing (language.md 2.6), so what is left must be matched in the first.
    """
    text = """g (float[2] x, float[2] y, float[2] z) => (float[2] o) {
        a = Add (x, y) s = Mul (a, z) o = Mul (a, s) }"""
    check_outcome(rule("Mul(Add(_, _), _)", escape="duplicate"), text)


def test_partition_parallel_branch_with_same_input() -> None:
    """R89 test_partition_parallel_branch_with_same_input [H17]: a value read twice is one input."""
    text = """g (float[2] l, float[2] x, float[2] r) => (float[2] o) {
        c = Neg (x) m = Mul (l, c) a = Add (c, r) o = Add (m, a) }"""
    check_calls("Add(Mul(_, _), Add(_, _))", text, ["c = Neg(x)", "o = t.r(c, r, l)"])


# -- FuseOpsByPattern ------------------------------------------------------------------------------

CONVS = """g (float[1,1,6,6] x, float[1,1,3,3] w1, float[1,1,3,3] w2) => (float[1,1,4,4] o) {{
    {} }}"""
CHAIN = CONVS.format(
    "c = Conv <pads=[1,1,1,1]> (x, w1) r = Relu (c) d = Conv <pads=[0,0,0,0]> (r, w2) o = Relu (d)"
)
ORDERS = pytest.mark.parametrize("order", ["program", "outermost"])


def conv2d(order: str = "program") -> PatternRule:
    """``dnnl.conv2d``."""
    return rule("Conv(x, w)", target="dnnl", name="conv2d", order=order)


def conv2d_relu(order: str = "program") -> PatternRule:
    """``dnnl.conv2d_relu``."""
    return rule("Relu(Conv(x, w))", target="dnnl", name="conv2d_relu", order=order)


@ORDERS
def test_partition_conv2d_relu(order: str) -> None:
    """F1 test_partition_conv2d_relu: two in a row; their pads are given at the calls."""
    result = check_calls(
        conv2d_relu(order), CHAIN, ["r = dnnl.conv2d_relu(x, w1)", "o = dnnl.conv2d_relu(r, w2)"]
    )
    pads = [list(get_node_attr_value(n, "pads")) for n in result.graph.node]
    assert pads == [[1, 1, 1, 1], [0, 0, 0, 0]]


@ORDERS
def test_partition_multiple_patterns(order: str) -> None:
    """F2 test_partition_multiple_patterns: one match of each rule."""
    text = CONVS.format("c = Conv <pads=[1,1,1,1]> (x, w1) d = Conv (c, w2) o = Relu (d)")
    check_calls(
        [conv2d_relu(order), conv2d(order)],
        text,
        ["c = dnnl.conv2d(x, w1)", "o = dnnl.conv2d_relu(c, w2)"],
    )


@ORDERS
def test_partition_order(order: str) -> None:
    """F3 test_partition_order: the rule that is listed first wins everywhere."""
    check_calls(
        [conv2d(order), conv2d_relu(order)],
        CHAIN,
        ["c = dnnl.conv2d(x, w1)", "r = Relu(c)", "d = dnnl.conv2d(r, w2)", "o = Relu(d)"],
    )


@ORDERS
def test_branch_tuple_output(order: str) -> None:
    """F4 test_branch_tuple_output [H31]: an inner convolution that is read outside, too."""
    text = (
        f"{CONV} {{ c = Conv (x, w) r = Relu (c) p = Sigmoid (r) q = Sigmoid (c) o = Add (p, q) }}"
    )
    check_calls(
        rule("Relu(Conv(x, w))", escape="outputs", order=order),
        text,
        ["r, c = t.r(x, w)", "p = Sigmoid(r)", "q = Sigmoid(c)", "o = Add(p, q)"],
    )


@ORDERS
def test_cyclic_dependency(order: str) -> None:
    """F5 test_cyclic_dependency [H32]: an outside node between two of the match; TVM throws."""
    text = f"{CONV} {{ c = Conv (x, w) r = Relu (c) s = Sigmoid (c) o = Add (r, s) }}"
    check_partition(
        rule("Add(Relu(Conv(x, w)), y)", escape="outputs", order=order),
        text,
        refused=["r at o: convexity: 's' lies outside but between two nodes of the match"],
    )


def test_cyclic_dependency_leaves_the_smaller_match() -> None:
    """F5 test_cyclic_dependency [H32]: a smaller rule behind it gets its chance."""
    text = f"{CONV} {{ c = Conv (x, w) r = Relu (c) s = Sigmoid (c) o = Add (r, s) }}"
    rules = [
        rule("Add(Relu(Conv(x, w)), y)", escape="outputs", name="large"),
        rule("Relu(Conv(x, w))", escape="outputs", name="small"),
    ]
    check_calls(rules, text, ["r, c = t.small(x, w)", "s = Sigmoid(c)", "o = Add(r, s)"])


def test_unused() -> None:
    """F13 test_unused: a node whose result nobody reads does no harm."""
    text = f"{CONV} {{ d = Relu (x) o = Conv (x, w) }}"
    check_calls("Conv(x, w)", text, ["d = Relu(x)", "o = t.r(x, w)"])


def test_check_pattern() -> None:
    """F14 test_check_pattern: the check sees what root, lhs and rhs are bound to, and refuses."""
    seen: list[str] = []

    def check(match: Match) -> Rejection | None:
        seen.extend(f"{name}={match.bindings[name].name}" for name in ("root", "lhs", "rhs"))
        assert match.value("root") is match.root.outputs[0]
        return match.reject("not this one")

    text = """g (float[1,3,4,4] data, float[3,3,1,1] weight1) => (float[1,3,4,4] o) {
        o = Conv (data, weight1) }"""
    pattern = rule("root = Conv(lhs, rhs)\nroot", check=check)
    check_partition(pattern, text, refused=["r at o: check: not this one"])
    assert seen[:3] == ["root=o", "lhs=data", "rhs=weight1"]


@pytest.mark.parametrize(
    ("constants", "inputs"), [("embed", "x"), ("lift", "x, w"), ("auto", "x, w")]
)
def test_bind_constants(constants: str, inputs: str) -> None:
    """F15 test_bind_constants: embedded or lifted, as the rule says."""
    text = "g (float[1,1,4,4] x) => (float[1,1,4,4] o) <float[1,1,1,1] w = {2}> { o = Conv (x, w) }"
    result = check_calls(rule("Conv(x, w)", constants=constants), text, [f"o = t.r({inputs})"])
    (function,) = result.functions
    assert len(function.node) == (2 if constants == "embed" else 1)


SPLIT = "g (float[4] x) => (float[2] o) { p, q = Split (x) o = Add (p, q) }"


def test_split() -> None:
    """F16 test_split: a Split alone has two outputs; with the Add that reads them, one."""
    check_calls("Split(x)", SPLIT, ["p, q = t.r(x)", "o = Add(p, q)"])
    result = check_calls("s = Split(x)\nAdd(s[0], s[1])", SPLIT, ["o = t.r(x)"])
    assert traces(result) == {"t.r": "Split_Add_"}


def test_split_of_which_one_output_is_matched() -> None:
    """F16 test_split: an output that the pattern does not name is one that may escape."""
    check_partition(
        "Add(Split(x)[0], y)",
        SPLIT.replace("Add (p, q)", "Add (p, p)"),
        after="""
        (x) => (o) {
          [r_0] o = t.r (x)
        }
        t.r (x) => (add_1_out) {
          [Split_0] split_0_out, split_0_out_1 = Split (x)
          [Add_1] add_1_out = Add (split_0_out, split_0_out)
        }""",
    )
    text = (
        "g (float[4] x, float[2] y) => (float[2] o, float[2] n) {\n"
        "p, q = Split (x) o = Add (p, y) n = Neg (q) }"
    )
    check_partition(
        "Add(Split(x)[0], y)", text, refused=["r at o: escape: 'q' is also read by Neg 'n'"]
    )
    check_calls(
        rule("Add(Split(x)[0], y)", escape="outputs"), text, ["o, q = t.r(x, y)", "n = Neg(q)"]
    )


MATMULS = """g (float[2,2] x, float[2,2] y, float[2] bias, float[2,2] res) => (float[2,2] o) {
    m = MatMul (x, y) s = Add (m, bias) n = MatMul (x, y) t = Add (s, n) o = Add (t, res) }"""


@pytest.mark.parametrize(
    ("order", "expected"), [("outermost", ["r: n, t, o"]), ("program", ["r: m, s, t"])]
)
def test_matmul_add3(order: str, expected: list[str]) -> None:
    """F18 test_matmul_add3 [H33]: the residual pattern fits in two ways that overlap; one is taken.

    With Relax's order the one nearest the inputs, which is TVM's.
    """
    pattern = rule("Add(Add(MatMul(_, _), bias), residual)", order=order)
    assert taken(selected(pattern, MATMULS)) == expected
    result = check_outcome(pattern, MATMULS)
    assert traces(result) == {"t.r": "MatMul_Add_Add_"}


def test_intermediate_var_to_var_binding() -> None:
    """F19 test_intermediate_var_to_var_binding: an Identity inside is looked through.

    In TVM it keeps the Add out of the match.
    """
    text = """g (float[2,2] x, float[2,2] w) => (float[2,2] o) {
        k = Transpose (w) m = MatMul (x, k) i = Identity (m) o = Add (x, i) }"""
    rules = [
        rule("MatMul(x, Transpose(w)) + b", name="bias"),
        rule("MatMul(x, Transpose(w))", name="plain"),
    ]
    result = check_calls(rules, text, ["o = t.bias(x, w)"])
    assert traces(result) == {"t.bias": "Transpose_MatMul_Identity_Add_"}
    check_calls(rules[1:], text, ["m = t.plain(x, w)", "i = Identity(m)", "o = Add(x, i)"])


def test_multiple_runs() -> None:
    """F20 test_multple_runs: a second run finds nothing, whatever the order of the rules."""
    for rules in ([conv2d_relu(), conv2d()], [conv2d(), conv2d_relu()]):
        check_outcome(rules, CHAIN)


def test_matmul_symbolic_var() -> None:
    """F22 test_matmul_symbolic_var: symbols are no affair of the function's."""
    text = """g (float[batch,4] x, float[4,4] w, float[4,M] v)
        => (float[batch,4] o, float[batch,M] p) { o = MatMul (x, w) p = MatMul (x, v) }"""
    result = check_calls(
        rule("MatMul(a, b)", target="cublas", name="matmul"),
        text,
        ["o = cublas.matmul(x, w)", "p = cublas.matmul(x, v)"],
    )
    assert len(result.functions) == 1


CLIP = """g (float[2,2] x, float[2,2] y, float[2] b) => (float[2,2] o)
    <float low = {-128}, float high = {127}> {
    m = MatMul (x, y) a = Add (m, b) o = Clip (a, low, high) }"""


@ORDERS
@pytest.mark.parametrize("swapped", [False, True])
def test_match_maximal_subgraph(order: str, swapped: bool) -> None:  # noqa: FBT001  # parametrized
    """F23 test_match_maximal_subgraph [H34]: the alternative that takes more wins, in any order."""
    choice = "Clip(s, _, _) | s" if swapped else "s | Clip(s, _, _)"
    pattern = f"s = Add(MatMul(_, _), bias)\n{choice}"
    result = check_outcome(rule(pattern, order=order), CLIP)
    assert traces(result) == {"t.r": "MatMul_Add_Clip_"}


def test_dataflow_inside_branch() -> None:
    """F24 test_dataflow_inside_branch: both branches of an If, with two rules."""
    text = """g (bool c, float[2,2] x, float[2,2] w) => (float[2,2] o) {
        o = If (c) <
            then_branch = t () => (float[2,2] p) { k = Transpose (w) p = MatMul (x, k) },
            else_branch = e () => (float[2,2] q) { q = MatMul (x, w) }> }"""
    rules = [
        rule("MatMul(a, Transpose(b))", target="cublas", name="matmul_transposed"),
        rule("MatMul(a, b)", target="cublas", name="matmul"),
    ]
    result = check_outcome(rules, text)
    (node,) = result.graph.node
    inside = [[n.op_type for n in attribute.g.node] for attribute in node.attribute]
    assert inside == [["matmul_transposed"], ["matmul"]]


ABS = """g (float[2] x, float[2] y) => (float[4] o) {
    a = Abs (x) b = Abs (y) c = Concat <axis=0> (a, b) o = Relu (c) }"""


def test_concat() -> None:
    """F25 test_concat: the inputs of a Concat as patterns, or left open."""
    result = check_calls("Concat(Abs(_), Abs(_))", ABS, ["c = t.r(x, y)", "o = Relu(c)"])
    assert traces(result) == {"t.r": "Abs_Abs_Concat_"}
    check_calls("Concat(...)", ABS, ["a = Abs(x)", "b = Abs(y)", "c = t.r(a, b)", "o = Relu(c)"])
    check_calls("Relu(Concat(unordered(Abs(_), Abs(_))))", ABS, ["o = t.r(x, y)"])


def test_unique_boundary_output_precedes_last_group_binding() -> None:
    """F26 test_unique_boundary_output_precedes_last_group_binding [H35]: a dead node at the end.

    TVM's call results in ``kept`` alone. Here the root is an output of the pattern even if nobody
    reads it; what counts is that ``kept`` is there and the model is sound.
    """
    text = "g (float[2] x) => (float[2] kept) { r1 = Relu (x) kept = Relu (r1) dead = Relu (kept) }"
    pattern = rule("Relu(Relu(Relu(x)))", escape="outputs")
    assert taken(selected(pattern, text)) == ["r: r1, kept, dead"]
    result = check_outcome(pattern, text)
    (call,) = result.graph.node
    assert "kept" in call.output
    check_partition(
        "Relu(Relu(Relu(x)))", text, refused=["r at dead: escape: 'kept' is a graph output"]
    )


RESHAPE = "g (float[4] x) => (float[2,2] o) <int64[2] s = {2, 2}> { o = Reshape (x, s) }"


@pytest.mark.parametrize(
    ("pattern", "constants"),
    [("Reshape(x, s)", "embed"), ("Reshape(x, const(s))", "auto"), ("Reshape(x, s)", "lift")],
)
def test_inline_bound_static_shape_argument(pattern: str, constants: str) -> None:
    """F27 test_inline_bound_static_shape_argument: the shape goes inside, unless it is lifted."""
    inputs = "x, s" if constants == "lift" else "x"
    check_calls(rule(pattern, constants=constants), RESHAPE, [f"o = t.r({inputs})"])


# -- MergeComposite (appendix A) -------------------------------------------------------------------


def test_simple_merge() -> None:
    """Appendix A test_simple_merge: add and relu."""
    result = check_calls(
        rule("Relu(Add(x, y))", name="add_relu"),
        f"{AB} {{ s = Add (a, b) o = Relu (s) }}",
        ["o = t.add_relu(a, b)"],
    )
    assert traces(result) == {"t.add_relu": "Add_Relu_"}


ADD_SUB_MUL = "Mul(Add(x, y), Sub(x, y))"


def test_branch_merge() -> None:
    """Appendix A test_branch_merge: inputs that branches share; two matches in a row."""
    text = """g (float[2] a, float[2] b, float[2] c) => (float[2] o) {
        p = Add (a, b) q = Sub (a, b) m = Mul (p, q)
        r = Add (c, m) s = Sub (c, m) n = Mul (r, s) o = Relu (n) }"""
    check_calls(ADD_SUB_MUL, text, ["m = t.r(a, b)", "n = t.r(c, m)", "o = Relu(n)"])


def test_reuse_call_merge() -> None:
    """Appendix A test_reuse_call_merge: an inner sum that is used twice inside."""
    text = f"{AB} {{ s = Sub (a, b) n = Add (s, b) m = Add (s, n) o = Add (m, n) }}"
    result = check_calls(
        "n = Add(x, y)\nAdd(Add(x, n), n)", text, ["s = Sub(a, b)", "o = t.r(s, b)"]
    )
    assert traces(result) == {"t.r": "Add_Add_Add_"}


def test_multiple_patterns() -> None:
    """Appendix A test_multiple_patterns: two entries of the table."""
    text = f"""g ({IMAGE}, float[1,3,4,4] p, float[1,3,4,4] q) => (float[1,3,4,4] o) {{
        c = Conv (x, w) a = Add (c, b) r = Relu (a) d = Add (p, q) s = Relu (d)
        o = Mul (r, s) }}"""
    rules = [
        rule("Relu(Add(Conv(x, w), b))", name="conv_bias_relu"),
        rule("Relu(Add(x, y))", name="add_relu"),
    ]
    check_calls(
        rules,
        text,
        ["r = t.conv_bias_relu(x, w, b)", "s = t.add_relu(p, q)", "o = Mul(r, s)"],
    )


def test_optional_pattern() -> None:
    """Appendix A test_optional_pattern: one rule, two traces, both with the rule's name."""
    text = f"""{CONV} {{ c = Conv (x, w) a = Add (c, b) r = Relu (a)
        d = Conv (r, w) o = Add (d, b) }}"""
    result = check_calls(
        rule("optional(Relu)(Add(Conv(x, w), b))", name="layer"),
        text,
        ["r = t.layer(x, w, b)", "o = t.layer_1(r, w, b)"],
    )
    assert traces(result) == {"t.layer": "Conv_Add_Relu_", "t.layer_1": "Conv_Add_"}
    composites = [
        i.value for f in result.functions for i in f.metadata_props if i.key == "Composite"
    ]
    assert composites == ["t.layer", "t.layer"]


ORDERED = f"{AB} {{ s = Add (a, b) m = Abs (s) o = Relu (m) }}"
A, B, C = "Relu(Abs(Add(x, y)))", "Abs(Add(x, y))", "Relu(Abs(x))"


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({"a": A, "b": B, "c": C}, ["o = t.a(a, b)"]),
        ({"b": B, "a": A, "c": C}, ["m = t.b(a, b)", "o = Relu(m)"]),
        ({"c": C, "a": A, "b": B}, ["s = Add(a, b)", "o = t.c(s)"]),
    ],
)
def test_merge_order(patterns: dict[str, str], expected: list[str]) -> None:
    """Appendix A test_merge_order: the order of the table decides."""
    check_calls([rule(text, name=name) for name, text in patterns.items()], ORDERED, expected)


def test_parallel_merge() -> None:
    """Appendix A test_parallel_merge: the same block twice on the same inputs."""
    text = f"""{AB} {{ p = Add (a, b) q = Sub (a, b) m = Mul (p, q)
        r = Add (a, b) s = Sub (a, b) n = Mul (r, s) o = Mul (m, n) }}"""
    result = check_calls(ADD_SUB_MUL, text, ["m = t.r(a, b)", "n = t.r(a, b)", "o = Mul(m, n)"])
    assert len(result.functions) == 1


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("a, b", ["o = t.r(a, b)"]),
        ("c, d", ["p = Add(a, b)", "q = Sub(c, d)", "o = Mul(p, q)"]),
        ("b, a", ["o = t.r(b, a)"]),
    ],
)
def test_multiple_input_subgraphs(inputs: str, expected: list[str]) -> None:
    """Appendix A test_multiple_input_subgraphs: both branches must have the same inputs.

    With the Sub's operands swapped it is still a match, as Add commutes; then b is its minuend.
    """
    text = f"""g (float[2] a, float[2] b, float[2] c, float[2] d) => (float[2] o) {{
        p = Add (a, b) q = Sub ({inputs}) o = Mul (p, q) }}"""
    check_calls(ADD_SUB_MUL, text, expected)


def test_tuple_get_item_merge() -> None:
    """Appendix A test_tuple_get_item_merge: an output inside the match."""
    text = """g (float[1,2] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[1,2] o) {
        n = BatchNormalization (x, s, b, m, v) o = Relu (n) }"""
    result = check_calls(
        "Relu(BatchNormalization(x, _, _, _, _)[0])", text, ["o = t.r(x, s, b, m, v)"]
    )
    assert traces(result) == {"t.r": "BatchNormalization_Relu_"}


@pytest.mark.parametrize("group", [1, 3])
def test_pattern_with_check(group: int) -> None:
    """Appendix A test_pattern_with_check: a check that holds and one that does not."""
    text = f"{CONV} {{ c = Conv (x, w) a = Add (c, b) o = Relu (a) }}"
    checked = rule("c = Conv(x, w)\nRelu(Add(c, b))", f"c.attrs.group == {group}")
    if group == 1:
        check_calls(checked, text, ["o = t.r(x, w, b)"])
    else:
        check_partition(
            checked, text, refused=["r at o: where: 'c.attrs.group == 3' does not hold"]
        )


def test_diamond_not_merge() -> None:
    """Appendix A test_diamond_not_merge: an Add too many in one branch (issue 5552)."""
    head = "g (float[2] x) => (float[2] o) <float l = {0}, float h = {6}, float one = {1}>"
    pattern = "r = Relu(x)\nMul(r, Clip(r, _, _))"
    check_partition(
        pattern, f"{head} {{ r = Relu (x) a = Add (r, one) c = Clip (a, l, h) o = Mul (r, c) }}"
    )
    check_calls(
        pattern,
        f"{head} {{ r = Relu (x) c = Clip (r, l, h) o = Mul (r, c) }}",
        ["o = t.r(x, l, h)"],
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_type_check(batch: int) -> None:
    """Appendix A test_type_check: a check reads types behind an earlier composite."""
    text = f"""g (float[{batch},3,4,4] p, float[3,3,1,1] w, float[3,1,1] b)
        => (float[{batch},3,4,4] o) {{
        s = Add (p, p) x = Relu (s) c = Conv (x, w) a = Add (c, b) o = Relu (a) }}"""
    rules = [
        rule("Relu(Add(Conv(x, w), b))", "x.shape[0] == 1", name="conv_bias_relu"),
        rule("Relu(Add(x, y))", name="add_relu"),
    ]
    last = (
        ["o = t.conv_bias_relu(x, w, b)"]
        if batch == 1
        else ["c = Conv(x, w)", "o = t.add_relu_1(c, b)"]
    )
    check_calls(rules, text, ["x = t.add_relu(p)", *last])


def test_einsum_reshape_pattern() -> None:
    """Appendix A test_einsum_reshape_pattern: operands that may be reshaped first."""
    text = """g (float[4] a, float[4] b) => (float[2,2] o) <int64[2] s = {2, 2}> {
        p = Reshape (a, s) q = Reshape (b, s) o = Einsum <equation="ij,jk->ik"> (p, q) }"""
    operand = "(Reshape({0}, _) | {0})"
    pattern = f"Einsum({operand.format('x')}, {operand.format('y')})"
    result = check_calls(pattern, text, ["o = t.r(a, b, s)"])
    assert traces(result) == {"t.r": "Reshape_Reshape_Einsum_"}


# -- several matches at once -----------------------------------------------------------------------


def check_no_cycle(rules: Rules, text: str) -> None:
    """Check that at most one of two matches is taken, and that the model stays sound."""
    assert len(selected(rules, text).matches) == 1
    result = check_outcome(rules, text)
    assert len([node for node in result.graph.node if node.domain == "t"]) == 1


def test_two_matches_that_need_each_other() -> None:
    """F5 test_cyclic_dependency [H32]: each match alone is convex, both together make a cycle.

    The first call needs a result of the second one and the other way round (language.md 2.8: a
    match that would form a cycle with the rest is refused, and no cyclic model is written).
    """
    text = """g (float[2] u, float[2] v, float[2] w) => (float[2] q, float[2] r) {
        p = Mul (u, w) s = Add (v, w) q = Add (u, s) r = Mul (v, p) }"""
    check_no_cycle("Mul(x, a), Add(x, b)", text)


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_two_matches_that_need_each_others_inner_value(order: str) -> None:
    """F5 test_cyclic_dependency [H32]: the same with inner values as further outputs."""
    text = """g (float[2] x, float[2] y) => (float[2] o, float[2] p) {
        a = Tanh (x) b = Tanh (y) o = Sub (a, b) p = Sub (b, a) }"""
    check_no_cycle(rule("Sub(Tanh(x), z)", escape="outputs", order=order), text)


def test_two_rules_that_need_each_other() -> None:
    """F5 test_cyclic_dependency [H32]: the same between matches of two rules."""
    text = """g (float[2] x, float[2] y) => (float[2] o, float[2] p) {
        a = Tanh (x) b = Sigmoid (y) o = Sub (a, b) p = Mul (b, a) }"""
    rules = [
        rule("Sub(Tanh(x), z)", escape="outputs", name="first"),
        rule("Mul(Sigmoid(x), z)", escape="outputs", name="second"),
    ]
    check_no_cycle(rules, text)


def test_three_matches_in_a_ring() -> None:
    """F5 test_cyclic_dependency [H32]: three matches, each of which needs the next one."""
    text = """g (float[2] x, float[2] y, float[2] z) => (float[2] o, float[2] p, float[2] q) {
        a = Tanh (x) b = Tanh (y) c = Tanh (z)
        o = Sub (a, b) p = Sub (b, c) q = Sub (c, a) }"""
    selection = selected(rule("Sub(Tanh(x), z)", escape="outputs"), text)
    assert len(selection.matches) == 2
    check_outcome(rule("Sub(Tanh(x), z)", escape="outputs"), text)


def test_matches_that_need_each_other_through_outside_nodes() -> None:
    """F5 test_cyclic_dependency [H32]: the way from one match to the other may be long."""
    text = """g (float[2] x, float[2] y) => (float[2] o, float[2] p) {
        a = Tanh (x) b = Tanh (y) c = Neg (a) d = Neg (b) e = Abs (c) f = Abs (d)
        o = Sub (a, f) p = Sub (b, e) }"""
    check_no_cycle(rule("Sub(Tanh(x), z)", escape="outputs"), text)


@pytest.mark.parametrize("pattern", ["Relu(x), y", "Relu(x), x", "r = Relu(x)\nr, r"])
def test_an_output_that_is_no_node_is_refused(pattern: str) -> None:
    """D24 test_simple_used_by: a further output that can be no node of the match is an error."""
    with pytest.raises(PatternSyntaxError):
        pattern_of(pattern)


@pytest.mark.parametrize("pattern", ["Relu(x), (Tanh(y) | z)"])
@pytest.mark.parametrize("escape", ["refuse", "outputs"])
def test_an_output_of_a_match_is_made_by_it(pattern: str, escape: str) -> None:
    """D24 test_simple_used_by: a further output that no node of the match makes is no output.

    As at the first output: a match owns the node there.
    """
    text = "g (float[2] a) => (float[2] o, float[2] p) { n = Neg (a) o = Relu (n) p = Abs (n) }"
    rules = rule(pattern, escape=escape)
    assert taken(selected(rules, text)) == []
    check_outcome(rules, text)


def test_an_output_that_may_be_a_node() -> None:
    """D24 test_simple_used_by: where the alternative that is a node fits, it is taken."""
    text = "g (float[2] a) => (float[2] o, float[2] p) { n = Neg (a) o = Relu (n) p = Tanh (n) }"
    check_calls("Relu(x), (Tanh(x) | z)", text, ["n = Neg(a)", "o, p = t.r(n)"])
    check_calls("Relu(x), (z | Tanh(x))", text, ["n = Neg(a)", "o, p = t.r(n)"])


def test_refusals_of_overlapping_ways_are_reported() -> None:
    """R75 test_partition_overused [H12]: of each root that is refused there is a reason."""
    text = f"{CONV} {{ c = Conv (x, w) r = Relu (c) s = Relu (c) o = Add (r, s) }}"
    selection = selected("Relu(Conv(x, w))", text)
    assert describe_refusals(selection) == [
        "r at s: escape: 'c' is also read by Relu 'r'",
        "r at r: escape: 'c' is also read by Relu 's'",
    ]


def test_partition_leaves_input_proto_alone() -> None:
    """F8 test_no_op_if_no_patterns_match: with no match the model is the one that was read."""
    text = f"{AB} {{ s = Add (a, b) o = Abs (s) }}"
    result = check_partition("Relu(Add(x, y))", text)
    assert result == proto_from_text(text)
