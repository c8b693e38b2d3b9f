"""Seed document 3, "Relay 中的模式匹配": every example of the page, on ONNX."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplcli.language import (
    Match,
    Rejection,
    dominates,
    is_const,
    is_function,
    is_op,
    is_value,
    wildcard,
)
from dplcli.onnx_io import model_from_proto
from tests.support.helpers import (
    check_match,
    check_partition,
    describe_refusals,
    find_solutions,
    model_from_text,
    pattern_of,
    proto_from_text,
    rule,
    selected,
    taken,
)

XY = "g (float[10,10] x, float[10,10] y) => (float[10,10] o)"
CONV = "g (float[1,3,28,28] x, float[32,3,3,3] w, float[32,1,1] b) => (o)"
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x, float[2] y) => (float[2] o) {{ o = local.f (x, y) }}
    <domain: "local", opset_import: ["" : 17]> f (a, b) => (c) {{ {} }}"""


# -- Pattern Examples ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "expected"), [("Add", {"o": "p=x q=y"}), ("Sub", {"o": "p=x q=y"}), ("Mul", {})]
)
def test_matching_one_of_two_ops(node: str, expected: dict[str, str]) -> None:
    """Matching One of Two Ops: add or subtract."""
    text = f"{XY} {{ o = {node} (x, y) }}"
    check_match("(Add | Sub)(p, q)", text, expected)
    check_match((is_op("Add") | is_op("Sub"))(wildcard("p"), wildcard("q")), text, expected)


def test_matching_an_op_with_attributes_class() -> None:
    """Matching an Op with Attributes: a dense operation is not element-wise."""
    check_match('op(kind="elementwise")(p, q)', f"{XY} {{ o = MatMul (x, y) }}", {})
    check_match('op(kind="out-fusable")(p, q)', f"{XY} {{ o = MatMul (x, y) }}", {"o": "p=x q=y"})


def test_matching_an_op_with_attributes_layout() -> None:
    """Matching an Op with Attributes: [≈] for lack of a data layout, ``auto_pad``."""
    text = f"{CONV} {{ o = Conv (x, w) }}"
    check_match('Conv(x, w, auto_pad="SAME_UPPER")', text, {})
    check_match('Conv(x, w, auto_pad="NOTSET")', text, {"o": "w=w x=x"})


def test_matching_an_op_with_attributes_kernel_size() -> None:
    """Matching an Op with Attributes: the kernel's size, stated or read off the weight."""
    for stated in ("", "<kernel_shape=[3,3]>"):
        text = f"{CONV} {{ o = Conv {stated} (x, w) }}"
        check_match("Conv(x, w, kernel_shape=[3, 3])", text, {"o": "w=w x=x"})
        check_match("Conv(x, w, kernel_shape=[2, 1])", text, {})


def test_matching_an_optional_op() -> None:
    """Matching an Optional Op: convolution and bias, with a Relu or without."""
    conv = is_op("Conv")(wildcard("x"), wildcard("w"))
    pattern = is_op("Add")(conv, wildcard("b")).optional(is_op("Relu"))
    assert pattern == pattern_of("optional(Relu)(Add(Conv(x, w), b))")
    check_match(pattern, f"{CONV} {{ c = Conv (x, w) o = Add (c, b) }}", {"o": "b=b w=w x=x"})
    text = f"{CONV} {{ c = Conv (x, w) a = Add (c, b) o = Relu (a) }}"
    check_match(pattern, text, {"a": "b=b w=w x=x", "o": "b=b w=w x=x"})
    assert taken(selected(rule(pattern), text)) == ["r: c, a, o"]


def test_matching_types() -> None:
    """Matching Types: an element type, a shape, and the shape of convolution and Relu."""
    text = "g (float[10,10] x) => (o) { o = Abs (x) }"
    check_match('Abs(p.has_dtype("float32"))', text, {"o": "p=x"})
    check_match("Abs(p.has_shape(10, 10))", text, {"o": "p=x"})
    chain = f"{CONV} {{ c = Conv <pads=[1,1,1,1]> (x, w) o = Relu (c) }}"
    check_match("Relu(Conv(x, w)).has_shape(1, 32, 28, 28)", chain, {"o": "w=w x=x"})
    check_match("Relu(Conv(x, w)).has_shape(1, 32, 26, 26)", chain, {})


def test_matching_non_call_nodes_tuple() -> None:
    """Matching Non-Call Nodes: [≈] a tuple is the inputs of a node."""
    text = "g (float[2] x, float[2] y, float[2] z) => (o) { o = Concat <axis=0> (x, y, z) }"
    check_match("Concat(a, b, c)", text, {"o": "a=x b=y c=z"})


def test_matching_non_call_nodes_tuple_get_item() -> None:
    """Matching Non-Call Nodes: [≈] batch_norm -> get(0) -> relu, and an item of any index."""
    head = "g (float[1,8] x, float[8] s, float[8] b, float[8] m, float[8] v) => (o)"
    text = f"{head} {{ n = BatchNormalization (x, s, b, m, v) o = Relu (n) }}"
    check_match("Relu(BatchNormalization(x, _, _, _, _)[0])", text, {"o": "x=x"})
    check_match("Relu(BatchNormalization(x, _, _, _, _))", text, {"o": "x=x"})
    split = "g (float[4] x) => (o) { p, q = Split (x) o = Relu (q) }"
    check_match("s = Split(x)\nRelu(s[0] | s[1])", split, {"o": "s=p x=x"})
    check_match("Relu(Split(x)[0])", split, {})


def test_matching_a_function() -> None:
    """Matching Non-Call Nodes, test_match_func: a function by its body."""
    first, second = wildcard("p"), wildcard("q")
    pattern = is_function([first, second], first + second)(...)
    check_match(pattern, FUNCTION.format("c = Add (a, b)"), {"o": "p=a q=b"})
    check_match(pattern, FUNCTION.format("c = Sub (a, b)"), {})


def test_matching_a_constant() -> None:
    """Matching Non-Call Nodes, test_match_constant: before and after a weight is bound."""
    pattern = is_op("Add")(is_op("Conv")(wildcard("x"), is_const("w")), wildcard("b"))
    body = "{ c = Conv (x, w) o = Add (c, b) }"
    check_match(pattern, f"{CONV} {body}", {})
    head = "g (float[1,1,4,4] x, float[1,1,1] b) => (o) <float[1,1,1,1] w = {1}>"
    check_match(pattern, f"{head} {body}", {"o": "b=b w=w x=x"})


@pytest.mark.parametrize(
    ("dtype", "zero", "expected"),
    [("float", "0", True), ("int64", "0", True), ("float", "1", False)],
)
def test_matching_plus_zero(dtype: str, zero: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """Matching Non-Call Nodes, test_match_plus_zero: a constant of a given value, of two types."""
    text = f"g ({dtype}[2] x) => (o) <{dtype} k = {{{zero}}}> {{ o = Add (x, k) }}"
    exact = 'is_value(0, dtype="int64") | is_value(0.0)'
    check_match(f"Add(p, {exact})", text, {"o": "p=x"} if expected else {})
    check_match("Add(p, 0)", text, {"o": "p=x"} if expected else {})
    objects = wildcard("p") + (is_value(0) | is_const(value=0.0))
    check_match(objects, text, {"o": "p=x"} if expected else {})


@pytest.mark.parametrize(("metadata", "count"), [({"Composite": "add"}, 1), ({"Other": "add"}, 0)])
def test_matching_function_attributes(metadata: dict[str, str], count: int) -> None:
    """Matching Non-Call Nodes, test_match_function: a function by its metadata."""
    proto = proto_from_text(FUNCTION.format("c = Add (a, b)"))
    for key, value in metadata.items():
        proto.functions[0].metadata_props.add(key=key, value=value)
    model = model_from_proto(proto, Path(), "test")
    pattern = is_function(None, wildcard(), {"Composite": "add"})(...)
    assert len(find_solutions(pattern, model)) == count


def test_matching_if() -> None:
    """Matching Non-Call Nodes, test_match_if: condition and both branches."""
    text = """g (float x, float y) => (float o) { c = Less (x, y)
        o = If (c) <then_branch = t () => (float p) { p = Identity (x) },
                    else_branch = e () => (float q) { q = Identity (y) }> }"""
    check_match('if_(Less(input("x"), input("y")), input("x"), input("y"))', text, {"o": "x=x y=y"})
    check_match('if_(Less(input("x"), input("y")), input("y"), input("x"))', text, {})


def test_matching_let() -> None:
    """Matching Non-Call Nodes, test_match_let: [≈] a named node that is passed on."""
    text = f"{XY} {{ let = Less (x, y) o = Identity (let) }}"
    check_match('let = Less(input("x"), input("y"))\nIdentity(let)', text, {"o": "let=let x=x y=y"})


# -- Matching Diamonds and Post-Dominator Graphs ---------------------------------------------------

DIAMOND = f"""{CONV} {{
    c = Conv (x, w) r = Relu (c) l = LeakyRelu <alpha=0.0> (c) o = Add (r, l) }}"""
FAKE = DIAMOND.replace("r = Relu (c)", "d = Conv (x, w) r = Relu (d)")


def test_matching_diamonds() -> None:
    """Matching Diamonds: two branches of one convolution."""
    pattern = "c = Conv(input(), input())\nAdd(Relu(c), LeakyRelu(c))"
    check_match(pattern, DIAMOND, {"o": "c=c"})
    check_match(pattern, FAKE, {})


def test_matching_post_dominator_graphs() -> None:
    """Post-Dominator Graphs: the same where what lies between is not known."""
    elementwise = is_op(kind="elementwise")(wildcard())
    total = is_op("Add")(wildcard(), wildcard())
    pattern = dominates(is_op("Conv")(wildcard("x"), wildcard("w")), elementwise, total)
    check_match(pattern, DIAMOND, {"o": "w=w x=x"})
    (solution,) = find_solutions(pattern, model_from_text(DIAMOND))
    assert solution.nodes == ("c", "l", "o", "r")
    check_match(pattern, FAKE, {})


# -- Matching Fuzzy Patterns -----------------------------------------------------------------------


@pytest.mark.parametrize("body", ["c = Add (a, b)", "s = Mul (a, a) c = Add (s, b)"])
def test_matching_fuzzy_patterns(body: str) -> None:
    """Matching Fuzzy Patterns: any arguments, and a body that is known in part.

    ``function([input(), input()], …)`` stands for the page's ``is_var()`` parameters.
    """
    text = FUNCTION.format(body)
    check_match("function(..., Add(_, _))(...)", text, {"o": ""})
    check_match("function([input(), input()], Add(_, _))(...)", text, {"o": ""})
    check_match("function(..., Sub(_, _))(...)", text, {})


@pytest.mark.parametrize("inputs", ["x", "x, y", "x, y, x"])
def test_matching_fuzzy_tuples(inputs: str) -> None:
    """Matching Fuzzy Patterns: a list of any length."""
    check_match("Concat(...)", f"{XY} {{ o = Concat <axis=0> ({inputs}) }}", {"o": ""})


@pytest.mark.parametrize(
    "text",
    [
        'is_value([1, 2], dtype="int64")',
        "_",
        "Add(x, y)",
        'x.has_type("float32[10, 10]")',
        'x.has_dtype("float32")',
        "x.has_shape(10, 10)",
        "Conv(x, w, group=1)",
        'input("x")',
        "const()",
        "Concat(...)",
        "Relu(Split(x)[1])",
        "if_(c, x, y)",
        "let = Less(x, y)\nIdentity(let)",
        "Relu(x) | Abs(x)",
        'dominates(Conv(x, w), op(kind="elementwise")(_), Add(_, _))',
        "function([a, b], Add(a, b))(...)",
    ],
)
def test_pattern_language_design(text: str) -> None:
    """Pattern Language Design: every production of the grammar has a text form, which is stable."""
    assert repr(pattern_of(text)) == text


# -- Pattern Rewriting, Pattern Partitioning -------------------------------------------------------


def test_pattern_rewriting_match() -> None:
    """Pattern Rewriting: what the batch-norm rule binds; the rewriting has its own tests."""
    gamma, x, mean, var, eps, beta = map(wildcard, ("gamma", "x", "mean", "var", "eps", "beta"))
    pattern = gamma * (x - mean) / is_op("Sqrt")(var + eps) + beta
    assert pattern == pattern_of("gamma * (x - mean) / Sqrt(var + eps) + beta")
    text = """g (float[2] x, float[2] var, float[2] mean, float[2] beta, float[2] gamma) => (o)
        <float k = {0.00001}> {
        a = Sub (x, mean) b = Mul (gamma, a) c = Add (var, k) d = Sqrt (c) e = Div (b, d)
        o = Add (e, beta) }"""
    check_match(pattern, text, {"o": "beta=beta eps=k gamma=gamma mean=mean var=var x=x"})


RELU = """g (float[1,3,8,8] input, float[3,3,3,3] weight) => (float[1,3,6,6] o) {
    c = Conv (input, weight) o = Relu (c) }"""
PARTITIONED = """
    (input, weight) => (o) {
      [r_0] o = t.r (input, weight)
    }
    t.r (X, W) => (relu_1_out) {
      [Conv_0] conv_0_out = Conv (X, W)
      [Relu_1] relu_1_out = Relu (conv_0_out)
    }"""
CONV_RELU = is_op("Relu")(is_op("Conv")(wildcard(), wildcard()))


def test_pattern_partitioning() -> None:
    """Pattern Partitioning: one function per subgraph, with the trace of its operators."""
    result = check_partition(rule(CONV_RELU), RELU, after=PARTITIONED)
    (function,) = result.functions
    metadata = {item.key: item.value for item in function.metadata_props}
    assert metadata["PartitionedFromPattern"] == "Conv_Relu_"


def test_pattern_partitioning_with_attributes() -> None:
    """Pattern Partitioning: ``Composite`` is the rule's name; more metadata can be given."""
    named = rule(CONV_RELU, target="my", name="one_layer", metadata={"Layer": "one"})
    after = PARTITIONED.replace("t.r", "my.one_layer").replace("r_0", "one_layer_0")
    result = check_partition(named, RELU, after=after)
    metadata = {item.key: item.value for item in result.functions[0].metadata_props}
    assert metadata == {
        "Layer": "one",
        "Composite": "my.one_layer",
        "Codegen": "my",
        "PartitionedFromPattern": "Conv_Relu_",
    }


def check_layout(match: Match) -> Rejection | None:
    """Ask for a layout and a batch of one, as the page's last example does."""
    conv = match.root.inputs[0]
    assert conv is not None
    known = conv.known_type()
    if known is None or known.shape is None or known.shape[0] != 1:
        return match.reject("the batch is not 1", at=conv)
    return None


def test_pattern_partitioning_with_a_check() -> None:
    """Pattern Partitioning: a check function sees the match and can refuse it."""
    checked = rule(CONV_RELU, check=check_layout)
    check_partition(checked, RELU, after=PARTITIONED)
    two = RELU.replace("float[1,", "float[2,")
    check_partition(checked, two, refused=["r at o: check: the batch is not 1"])


def test_pattern_partitioning_with_conditions() -> None:
    """Pattern Partitioning: the same as an expression; [≈] ``auto_pad`` for the layout."""
    pattern = "c = Conv(x, w)\nRelu(c)"
    where = ("c.shape[0] == 1", 'c.attrs.auto_pad == "NOTSET"')
    named = PARTITIONED.replace("X, W", "x, w")
    check_partition(rule(pattern, *where), RELU, after=named)
    two = selected(rule(pattern, *where), RELU.replace("float[1,", "float[2,"))
    assert describe_refusals(two) == ["r at o: where: 'c.shape[0] == 1' does not hold"]
