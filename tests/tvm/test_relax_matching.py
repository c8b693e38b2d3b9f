"""Relax's tests of what a pattern matches (tests/python/relax/test_dataflow_pattern.py, main).

D1 to D38 of the inventory in our terms, and the matching halves of D41, D42, D47, D50 and D53 to
D56. A DataflowVar is a value inside the graph, a GlobalVar the name of a model-local function, an
ExternFunc an operator of a custom domain, and a PatternContext a pattern of several outputs, or of
chains joined by ``&``. An edge of ours names its value by its consumer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dplcli.language import (
    is_call,
    is_const,
    is_function,
    is_input,
    is_op,
    is_value,
    outputs,
    unordered,
    wildcard,
)
from dplcli.language.pattern import FunctionName
from dplcli.onnx_io import model_from_proto
from tests.support.helpers import (
    all_bindings,
    check_match,
    find_solutions,
    model_from_text,
    proto_from_text,
    selected,
    taken,
)

XY = "g (float[2,2] x, float[2,2] y) => (float[2,2] o)"
EXT = '<ir_version: 8, opset_import: ["" : 17, "ext" : 1]>\n'
XW = "g (float[2,2] x, float[2,2] w) => (o)"


# -- values ----------------------------------------------------------------------------------------


def test_expr_pattern() -> None:
    """D1 test_expr_pattern: ``is_value`` keeps the data; equal data make equal patterns."""
    pattern = is_value(np.array([[1, 2]], np.int64))
    assert repr(pattern) == 'is_value([[1, 2]], dtype="int64")'
    assert pattern == is_value(np.array([[1, 2]], np.int64))
    assert pattern != is_value(np.array([[1, 2]], np.int32))


def test_var_pattern() -> None:
    """D2 test_var_pattern: an input by name and any input; inner values and functions are none.

    In Relax ``is_var`` takes inner variables, too, but only as long as nobody says what they are
    bound to; an ONNX value always has a producer.
    """
    text = f"{XY} {{ r = Relu (x) o = Abs (r) }}"
    check_match('Relu(input("x"))', text, {"r": "x=x"})
    check_match('Relu(input("y"))', text, {})
    check_match("Relu(input())", text, {"r": ""})
    check_match("Abs(input())", text, {})
    check_match("Abs(p)", text, {"o": "p=r"})


def test_dataflow_var_pattern() -> None:
    """D3 test_dataflow_var_pattern: [≈] a value inside the graph is one that a node makes."""
    text = f"{XY} {{ r = Relu (x) o = Abs (r) }}"
    check_match("Abs(op()(...))", text, {"o": ""})
    check_match("Relu(op()(...))", text, {})
    check_match("Abs(~input())", text, {"o": ""})
    check_match("Relu(~input())", text, {})


def function_model(body: str) -> str:
    """Write a model that calls ``local.x``."""
    return f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] p, float[2] q) => (float[2] o) {{ o = local.x (p, q) }}
        <domain: "local", opset_import: ["" : 17]> x (a, b) => (c) {{ {body} }}"""


def test_global_var_pattern() -> None:
    """D4 test_global_var_pattern: a function by its name, any function, another name, no function.

    Relax compares by substring; we compare the whole name.
    """
    text = function_model("c = Add (a, b)")
    check_match('call("x", ...)', text, {"o": ""})
    check_match('call("local::x", s, t)', text, {"o": "s=p t=q"})
    check_match(is_call()(...), text, {"o": ""})
    check_match('call("y", ...)', text, {})
    check_match('call("other::x", ...)', text, {})
    check_match('call("Abs", p)', f"{XY} {{ o = Abs (x) }}", {})
    check_match('call("", p)', f"{XY} {{ o = Abs (x) }}", {})
    longer = text.replace("local.x", "local.xx").replace(" x (a, b)", " xx (a, b)")
    check_match('call("x", ...)', longer, {})


def test_global_var_is_stored() -> None:
    """D4 test_global_var_pattern: the name is kept."""
    assert is_call("x").choices == (FunctionName("x"),)


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        ("<float[2,3] k = {1,2,3,4,5,6}>", ""),
        ("", "k = Constant <value = float[2,3] {1,2,3,4,5,6}> ()"),
        ("", "c = Constant <value = float[2,3] {1,2,3,4,5,6}> () k = Identity (c)"),
    ],
)
def test_constant_pattern(declared: str, body: str) -> None:
    """D5 test_constant_pattern: initializers and Constant nodes, Identity nodes between or not."""
    text = f"g (float[2,3] x) => (o) {declared} {{ {body} o = Sub (x, k) }}"
    name = "c" if "c =" in body else "k"
    check_match("Sub(x, const(k))", text, {"o": f"k={name} x=x"})
    check_match("Sub(const(k), x)", text, {})
    exact = is_value(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    check_match(is_op("Sub")(wildcard("x"), exact), text, {"o": "x=x"})
    check_match(
        is_op("Sub")(wildcard("x"), is_value(np.array([1, 2, 3, 4, 5, 6], np.float32))), text, {}
    )


def test_wildcard_pattern() -> None:
    """D6 test_wildcard_pattern: any value that is there."""
    text = f"{XY} <float[2,2] k = {{1,2,3,4}}> {{ r = Relu (x) p = Sub (r, k) o = Sub (p, y) }}"
    check_match("Sub(a, b)", text, {"p": "a=r b=k", "o": "a=p b=y"})
    check_match("a", text, {})


def test_call_pattern() -> None:
    """D7 test_call_pattern: a sum of anything."""
    check_match("Add(_, _)", f"{XY} {{ o = Add (x, y) }}", {"o": ""})


def test_function_pattern() -> None:
    """D8 test_function_pattern: [≈] a called function whose body adds, and one that multiplies."""
    x, y = wildcard("x"), wildcard("y")
    pattern = is_function([x, y], is_op("Add")(x, y))(...)
    check_match(pattern, function_model("c = Add (a, b)"), {"o": "x=a y=b"})
    check_match(pattern, function_model("c = Mul (a, b)"), {})


# -- lists of values -------------------------------------------------------------------------------

CONCAT = f"{XW} {{ r = Relu (x) o = Concat <axis=0> (w, r) }}"


def test_tuple_pattern() -> None:
    """D9 test_tuple_pattern: [≈] fields in order, as the inputs of a node."""
    check_match("Concat(w, Relu(x))", CONCAT, {"o": "w=w x=x"})
    check_match("Concat(Relu(x), w)", CONCAT, {})
    check_match(is_op("Concat")(), CONCAT, {})
    check_match("Concat(w)", CONCAT, {})


def test_tuple_pattern_items() -> None:
    """D9 test_tuple_pattern: items by index; a negative one has no meaning where arity is open."""
    split = is_op("Split")(wildcard("x"))
    text = "g (float[4] x) => (o) { p, q = Split (x) o = Sub (p, q) }"
    check_match(is_op("Sub")(split[0], split[1]), text, {"o": "x=x"})
    check_match(is_op("Sub")(split[1], split[0]), text, {})
    check_match(is_op("Sub")(split, split[1]), text, {"o": "x=x"})
    check_match(is_op("Sub")(split[0], split[2]), text, {})
    with pytest.raises(IndexError):
        split[-1]


UNORDERED = "g (float[2] x, float[2] y) => (o) <float[2] k = {{1, 2}}> {{ r = Relu (x) {} }}"


@pytest.mark.parametrize("inputs", ["k, r", "r, k"])
def test_unordered_tuple_pattern(inputs: str) -> None:
    """D10 test_unordered_tuple_pattern: a constant and an inner value in any order."""
    text = UNORDERED.format(f"o = Concat <axis=0> ({inputs})")
    check_match("Concat(unordered(const(c), Relu(p)))", text, {"o": "c=k p=x"})
    check_match(
        is_op("Concat")(unordered(is_const("c"), is_op("Relu")(wildcard("p")))),
        text,
        {"o": "c=k p=x"},
    )


@pytest.mark.parametrize("inputs", ["r, r", "k, k", "r", "k, r, k"])
def test_no_match_unordered_tuple_pattern(inputs: str) -> None:
    """D10 test_unordered_tuple_pattern: two of one kind, too few, too many."""
    text = UNORDERED.format(f"o = Concat <axis=0> ({inputs})")
    check_match("Concat(unordered(const(c), Relu(p)))", text, {})


def test_unordered_is_a_real_assignment() -> None:
    """D10 test_unordered_tuple_pattern: TVM gives each input to the first pattern that takes it.

    Here the wildcard must not take what only the other pattern could, in whichever place it is.
    """
    for inputs in ("r, y, x", "y, r, x", "x, y, r"):
        text = UNORDERED.format(f"o = Concat <axis=0> ({inputs})")
        found = all_bindings("Concat(unordered(p, q, Relu(_)))", text)
        others = [name for name in inputs.split(", ") if name != "r"]
        assert len(found) == 2
        assert set(found) == {
            f"p={others[0]} q={others[1]}",
            f"p={others[1]} q={others[0]}",
        }


def test_tuple_get_item_pattern() -> None:
    """D11 test_tuple_get_item_pattern: item 0."""
    text = "g (float[4] x) => (o) { p, q = Split (x) o = Relu (p) }"
    check_match("Relu(Split(x)[0])", text, {"o": "x=x"})
    check_match("Relu(Split(x)[1])", text, {})


# -- logic, types ----------------------------------------------------------------------------------


def test_or_pattern() -> None:
    """D12 test_or_pattern: either of two inputs, and nothing else."""
    for name, bound in {"x": "x=x", "y": "y=y"}.items():
        check_match('Abs(input("x") | input("y"))', f"{XY} {{ o = Abs ({name}) }}", {"o": bound})
    text = "g (float[2] z) => (o) <float[2] k = {1, 2}> { r = Relu (z) s = Abs (r) o = Abs (k) }"
    check_match('Abs(input("x") | input("y"))', text, {})


SHAPED = "g ({} x) => (o) {{ o = Relu (x) }}"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("float[2,3,3]", {"o": "x=x"}), ("float[3,3,3]", {}), ("float[]", {}), ("int64[2,3,3]", {})],
)
def test_and_pattern(kind: str, expected: dict[str, str]) -> None:
    """D13 test_and_pattern: shape and element type; what is unknown is no match."""
    pattern = 'Relu(x.has_shape(2, 3, 3) & x.has_dtype("float32"))'
    check_match(pattern, SHAPED.format(kind), expected)
    check_match('Relu(x.has_type("float32[2, 3, 3]"))', SHAPED.format(kind), expected)


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        ("r = Relu(p)\nr & r", {"o": "p=x r=o"}),
        ("Relu(p) & q.has_rank(2)", {"o": "p=x q=o"}),
        ("(Relu(p) | Abs(p)) & ~Abs(_)", {"o": "p=x"}),
        ("Relu(p) & ~Relu(Abs(_))", {"o": "p=x"}),
        ("Relu(p) & Abs(q)", {}),
        ("Relu(p) & op()(...)", {}),
    ],
)
def test_and_pattern_of_nodes(pattern: str, bound: dict[str, str]) -> None:
    """D13 test_and_pattern: a node and a demand on its value.

    TVM matches the last one, too. With us two node patterns are two nodes (language.md, 2.2), so
    they cannot both be at one value.
    """
    check_match(pattern, f"{XY} {{ o = Relu (x) }}", bound)


@pytest.mark.parametrize(
    ("kind", "expected"), [("float[2,3,3]", {}), ("float[3,3,3]", {"o": "x=x"})]
)
def test_not_pattern(kind: str, expected: dict[str, str]) -> None:
    """D14 test_not_pattern: everything that is not of a shape."""
    check_match("Relu(x & ~_.has_shape(2, 3, 3))", SHAPED.format(kind), expected)


def test_not_pattern_of_the_unknown() -> None:
    """D14 test_not_pattern: of an unknown shape it cannot be shown, so its negation holds."""
    check_match("Relu(x & ~_.has_shape(2, 3, 3))", SHAPED.format("float[]"), {"o": "x=x"})


def test_dtype_pattern() -> None:
    """D15 test_dtype_pattern: the element type of an inner value."""
    text = "g (int64[2] x) => (o) { r = Cast <to=1> (x) o = Relu (r) }"
    check_match('Relu(p.has_dtype("float32"))', text, {"o": "p=r"})
    check_match('Relu(p.has_dtype("int64"))', text, {})
    check_match('Relu(p.has_dtype("float16", "float32"))', text, {"o": "p=r"})


@pytest.mark.parametrize(
    ("kind", "pattern", "expected"),
    [
        ("float[2,3,3]", "x.has_shape(2, 3, 3)", True),
        ("float[N,M,K]", "x.has_shape(n, m, k)", True),
        ("float[N,M,N]", "x.has_shape(n, m, n)", True),
        ("float[N,M,K]", "x.has_shape(n, m, n)", False),
        ("float[2,3,2]", "x.has_shape(n, m, n)", True),
        ("float[2,3,3]", "x.has_shape(2, 3)", False),
        ("float[2,3,3]", "x.has_shape(2, 3, 4)", False),
        ("float[N,3,3]", "x.has_shape(2, 3, 3)", False),
        ("float[2,3,3]", "x.has_shape(2, _, 3)", True),
        ("float[2,?,3]", "x.has_shape(2, _, 3)", True),
        ("float[2,?,3]", "x.has_shape(2, n, 3)", False),
    ],
)
def test_shape_pattern(kind: str, pattern: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """D16 test_shape_pattern: numbers, variables, and both.

    [≈] ONNX has no sums of dimensions: what Relax writes n+m is a third variable, and which of the
    two orders it is written in does not arise.
    """
    check_match(f"Relu({pattern})", SHAPED.format(kind), {"o": "x=x"} if expected else {})


def test_prim_arr_pattern() -> None:
    """D17 test_prim_arr_pattern: [≈] a shape as a value is a constant of int64.

    A shape that is computed (n * m in Relax) is not known, and no match.
    """
    text = "g (float[1024] x) => (o) <int64[2] s = {32, 32}> { o = Reshape (x, s) }"
    check_match("Reshape(x, is_value([32, 32]))", text, {"o": "x=x"})
    check_match('Reshape(x, is_value([32, 32], dtype="int32"))', text, {})
    check_match("Reshape(x, is_value([16, 64]))", text, {})
    check_match("Reshape(x, is_value([32]))", text, {})
    computed = """g (float[1024] x, float[N,M] y) => (o) { s = Shape (y) o = Reshape (x, s) }"""
    check_match("Reshape(x, is_value([32, 32]))", computed, {})
    check_match("Reshape(x, Shape(y))", computed, {"o": "x=x y=y"})


# -- calls by name ---------------------------------------------------------------------------------

CHAIN = f"{EXT}{XW} {{ m = ext.matmul (x, w) o = ext.relu (m) }}"


def test_extern_fn_pattern() -> None:
    """D18 test_extern_fn_pattern: [≈] an operator of a custom domain by its name."""
    text = f"{EXT}{XW} {{ o = ext.test (x) }}"
    check_match("ext.test(p)", text, {"o": "p=x"})
    check_match("ext.other(p)", text, {})
    check_match("com.ext.test(p)", text, {})
    check_match(is_op("test")(wildcard()), text, {})


def test_op_attr() -> None:
    """D19 test_op_attr: strides, also where the file leaves them to their default."""
    head = "g (float[1,3,9,9] x, float[3,3,3,3] w) => (o)"
    text = f"{head} {{ o = Conv <strides=[3,3]> (x, w) }}"
    check_match("Conv(x, w, strides=[3, 3])", text, {"o": "w=w x=x"})
    check_match("Conv(x, w, strides=[4, 3])", text, {})
    check_match("Conv(x, w, strides=[1, 1])", f"{head} {{ o = Conv (x, w) }}", {"o": "w=w x=x"})


def test_match_call_attr() -> None:
    """D20 test_match_call_attr: a subset of a function's metadata; an unknown key; none asked."""
    proto = proto_from_text(function_model("c = Add (a, b)"))
    for key, value in (("Codegen", "test-codegen"), ("global_symbol", "test-symbol")):
        proto.functions[0].metadata_props.add(key=key, value=value)
    model = model_from_proto(proto, Path(), "test")
    cases: list[tuple[dict[str, str], int]] = [
        ({"Codegen": "test-codegen", "global_symbol": "test-symbol"}, 1),
        ({"Codegen": "test-codegen"}, 1),
        ({"Codegen": "other", "global_symbol": "test-symbol"}, 0),
        ({"ping": "pong"}, 0),
        ({}, 1),
    ]
    for metadata, count in cases:
        pattern = is_function(None, wildcard(), metadata)(...)
        assert len(find_solutions(pattern, model)) == count, metadata


def test_is_call_tir() -> None:
    """D21 test_is_call_tir: [≈] custom operators by name, nested, wrong inside, any inputs."""
    check_match("ext.relu(ext.matmul(p, q))", CHAIN, {"o": "p=x q=w"})
    check_match("ext.relu(ext.relu(...))", CHAIN, {})
    check_match("ext.relu(ext.matmul(p))", CHAIN, {})
    check_match("ext.relu(...)", CHAIN, {"o": ""})
    check_match("ext.matmul(...)", CHAIN, {"m": ""})
    through = CHAIN.replace("o = ext.relu (m)", "n = Identity (m) o = ext.relu (n)")
    check_match("ext.relu(ext.matmul(p, q))", through, {"o": "p=x q=w"})


def test_varg_default_wildcard() -> None:
    """D22 test_varg_default_wildcard: as many inputs as written, or any after them with ``...``."""
    check_match("ext.matmul(p, q)", CHAIN, {"m": "p=x q=w"})
    check_match("ext.matmul(...)", CHAIN, {"m": ""})
    check_match("ext.matmul(p, ...)", CHAIN, {"m": "p=x"})
    check_match("ext.matmul(p, q, ...)", CHAIN, {"m": "p=x q=w"})
    check_match("ext.matmul(p)", CHAIN, {})
    check_match("ext.matmul(p, q, r, ...)", CHAIN, {})


def test_simple_call_packed() -> None:
    """D23 test_simple_call_packed: by name alone, and with patterns for the inputs."""
    text = f"{EXT}{XW} {{ o = ext.mul (x, w) }}"
    check_match("ext.mul(...)", text, {"o": ""})
    check_match('ext.mul(input("x"), input("w"))', text, {"o": "w=w x=x"})
    check_match('ext.mul(input("w"), input("x"))', text, {})


# -- edges -----------------------------------------------------------------------------------------


def test_simple_used_by() -> None:
    """D24 test_simple_used_by: whatever reads an input."""
    pattern = 'n = op()(...)\ninput("x") ^ n'
    check_match(pattern, CHAIN, {"m": "n=m x=x"})
    check_match("n = op()(...)\nx.used_by(n, 0)", CHAIN, {"m": "n=m x=x", "o": "n=o x=m"})


def test_simple_call_tir_edge() -> None:
    """D25 test_simple_call_tir_edge: relu reads matmul."""
    check_match("ext.matmul(p, q) ^ ext.relu(_)", CHAIN, {"o": "p=x q=w"})
    check_match("ext.matmul(...).used_by(ext.relu(...))", CHAIN, {"o": ""})


def test_simple_oub() -> None:
    """D26 test_simple_oub: relu alone reads matmul."""
    check_match("ext.matmul(p, q) >> ext.relu(_)", CHAIN, {"o": "p=x q=w"})
    check_match("ext.matmul(...).only_used_by(ext.relu(...))", CHAIN, {"o": ""})
    twice = CHAIN.replace("=> (o)", "=> (o, p)").replace("}", "p = ext.relu (m) }")
    check_match("ext.matmul(...) >> ext.relu(_)", twice, {})
    check_match("ext.matmul(...) ^ ext.relu(_)", twice, {"o": "", "p": ""})


@pytest.mark.parametrize("sign", ["^", ">>"])
def test_counter_syntax_match(sign: str) -> None:
    """D27 test_counter_syntax_match: operators that are not there, in either place."""
    check_match(f"ext.matmul_x(...) {sign} ext.relu(_)", CHAIN, {})
    check_match(f"ext.matmul(...) {sign} ext.relu_x(_)", CHAIN, {})
    check_match(f"ext.relu(...) {sign} ext.matmul(...)", CHAIN, {})


DIAMOND = f"{XW} {{ m = MatMul (x, w) r = Relu (m) s = Sigmoid (m) o = Add (r, s) }}"


def test_diamond() -> None:
    """D28 test_diamond: one product, two readers, and a sum that alone reads those."""
    pattern = """
        m = MatMul(x, w)
        a = Add(_, _)
        (m ^ Relu(_) >> a) & (m ^ Sigmoid(_) >> a)"""
    check_match(pattern, DIAMOND, {"o": "a=o m=m w=w x=x"})
    swapped = DIAMOND.replace("Add (r, s)", "Add (s, r)")
    check_match(pattern, swapped, {"o": "a=o m=m w=w x=x"})


def test_diamond_as_outputs() -> None:
    """D28 test_diamond: the fork written as outputs, as ``fork_to`` does."""
    pattern = """
        m = MatMul(x, w)
        r = m ^ Relu(_)
        s = m ^ Sigmoid(_)
        a = Add(_, _)
        r >> a, s >> a"""
    check_match(pattern, DIAMOND, {"o": "a=o m=m r=r s=s w=w x=x"})


def test_diamond_in_python() -> None:
    """D28 test_diamond: the same with objects; an object is one node wherever it stands."""
    product, relu, sigmoid = is_op("MatMul")(...), is_op("Relu")(...), is_op("Sigmoid")(...)
    total = is_op("Add")(...)
    pattern = (product ^ relu >> total) & (product ^ sigmoid >> total)
    check_match(pattern, DIAMOND, {"o": ""})
    solution = find_solutions(pattern, model_from_text(DIAMOND))[0]
    assert solution.nodes == ("m", "o", "r", "s")


def test_diamond_of_two_products() -> None:
    """D28 test_diamond: two products are not one that forks."""
    text = f"""{XW} {{ m = MatMul (x, w) n = MatMul (x, w) r = Relu (m) s = Sigmoid (n)
        o = Add (r, s) }}"""
    pattern = """
        m = MatMul(...)
        a = Add(_, _)
        (m ^ Relu(_) >> a) & (m ^ Sigmoid(_) >> a)"""
    check_match(pattern, text, {})


def test_diamond_counter_oub() -> None:
    """D29 test_diamond_counter_oub: the product has two readers, so none reads it alone."""
    pattern = """
        m = MatMul(x, w)
        a = Add(_, _)
        (m >> Relu(_) >> a) & (m >> Sigmoid(_) >> a)"""
    check_match(pattern, DIAMOND, {})


SMALL_DIAMOND = f"{XW} {{ r = Relu (x) o = Add (r, r) }}"
PARALLEL = f"{XW} {{ r = Relu (x) s = Relu (x) o = Add (r, s) }}"
ONE_NODE_TWICE = """
    r = Relu(x)
    a = Add(_, _)
    r.{edge}(a, 0) & r.{edge}(a, 1)"""
TWO_NODES = """
    r = Relu(x)
    s = Relu(x)
    a = Add(_, _)
    r.{edge}(a, 0) & s.{edge}(a, 1)"""


@pytest.mark.parametrize("edge", ["used_by", "only_used_by"])
def test_distinguish_diamond_and_parallel(edge: str) -> None:
    """D30 test_distinguish_diamond_and_parallel [H19]: slots tell one node read twice from two."""
    diamond, parallel = ONE_NODE_TWICE.format(edge=edge), TWO_NODES.format(edge=edge)
    check_match(diamond, SMALL_DIAMOND, {"o": "a=o r=r x=x"})
    check_match(diamond, PARALLEL, {})
    check_match(parallel, SMALL_DIAMOND, {})
    check_match(parallel, PARALLEL, {"o": "a=o r=r s=s x=x"})


CBR_TWICE = """
    g (float[1,3,8,8] x, float[3,3,1,1] w0, float[3,1,1] b0, float[3,3,1,1] w1, float[3,1,1] b1)
        => (o) {
    c0 = Conv (x, w0) a0 = Add (c0, b0) r0 = Relu (a0)
    c1 = Conv (x, w1) a1 = Add (c1, b1) r1 = Relu (a1)
    o = Concat <axis=1> (r0, r1) }"""


def test_nested_context() -> None:
    """D31 test_nested_context: three patterns of one graph, each on its own."""
    check_match("Add(...) >> Relu(_)", CBR_TWICE, {"r0": "", "r1": ""})
    check_match("Conv(...) >> Relu(_)", CBR_TWICE, {})
    check_match("Conv(...) >> Add(...) >> Relu(_)", CBR_TWICE, {"r0": "", "r1": ""})
    check_match("Conv(...) ^ Relu(_)", CBR_TWICE, {})


CBR = "Conv(...) >> Add(_, _) >> Relu(_)"


def test_two_cbr() -> None:
    """D32 test_two_cbr [H20]: the same chain twice, from one input."""
    pattern = f"""
        x = input("x")
        p = x ^ {CBR}
        q = x ^ {CBR}
        p, q"""
    assert all_bindings(pattern, CBR_TWICE) == ["p=r0 q=r1 x=x", "p=r1 q=r0 x=x"]


def test_two_cbr_from_another_input() -> None:
    """D32 test_two_cbr [H20]: y is not the value that both chains read."""
    two = CBR_TWICE.replace("g (", "g (float[1,3,8,8] y, ")
    for name in ("y", "b0"):
        pattern = f"""
            y = input("{name}")
            p = y ^ {CBR}
            q = y ^ {CBR}
            p, q"""
        check_match(pattern, two, {})


def test_two_cbr_are_two() -> None:
    """D32 test_two_cbr [H20]: one chain is not two."""
    one = CBR_TWICE.replace("c1 = Conv (x, w1) a1 = Add (c1, b1) r1 = Relu (a1)", "").replace(
        "(r0, r1)", "(r0, r0)"
    )
    check_match(f"x = input()\np = x ^ {CBR}\nq = x ^ {CBR}\np, q", one, {})


def test_two_cbr_in_python() -> None:
    """D32 test_two_cbr [H20]: chains made of objects."""
    source = is_input("x")
    chains = [
        source ^ is_op("Conv")(...) >> is_op("Add")(...) >> is_op("Relu")(...) for _ in range(2)
    ]
    assert len(find_solutions(outputs(*chains), model_from_text(CBR_TWICE))) == 2


MATMULS = """g (float[32,8] a, float[8,8] b, float[8,16] c) => (o) {
    m = MatMul (a, b) o = MatMul (m, c) }"""


def test_two_matmul() -> None:
    """D33 test_two_matmul: a chain of two, with shapes, and one of three that is not there."""
    check_match("MatMul(a, b) >> MatMul(_, c)", MATMULS, {"o": "a=a b=b c=c"})
    check_match(
        """
        a = _.has_shape(32, 8)
        m = MatMul(a, _.has_shape(8, 8))
        m >> MatMul(_, _.has_shape(8, 16))""",
        MATMULS,
        {"o": "a=a m=m"},
    )
    check_match("MatMul(_, _) >> MatMul(_, _.has_shape(8, 17))", MATMULS, {})
    check_match("MatMul(_, _) >> MatMul(_, _) >> MatMul(_, _)", MATMULS, {})
    check_match("(MatMul(_, _) >> MatMul(_, _)).has_shape(32, 16)", MATMULS, {"o": ""})


CONCAT_MM_SPLIT = """
    g (float[16,32] a, float[16,32] b, float[32,32] c) => (o) {
    l = Concat <axis=0> (a, b) m = MatMul (l, c) p, q = Split <axis=0> (m) o = Add (p, q) }"""


def test_concat_mm_split() -> None:
    """D34 test_concat_mm_split: concat, product, split, and its two outputs with shapes."""
    check_match("Concat(a, b) >> MatMul(_, c) >> Split(_)", CONCAT_MM_SPLIT, {"p": "a=a b=b c=c"})
    pattern = """
        s = Split(_)
        left = s[0].has_shape(16, 32)
        right = s[1].has_shape(16, 32)
        t = Concat(a, b) >> MatMul(_, c) >> s
        total = Add(left, right)
        (left >> total) & (t ^ total)"""
    expected = {"o": "a=a b=b c=c left=p right=q s=p t=p total=o"}
    check_match(pattern, CONCAT_MM_SPLIT, expected)
    check_match(pattern.replace("16, 32", "32, 16"), CONCAT_MM_SPLIT, {})


def test_split_outputs_by_edges() -> None:
    """D34 test_concat_mm_split: an edge can start at one output of a node."""
    pattern = """
        s = Split(_)
        a = Add(_, _)
        (s[0] >> a) & (s[1] >> a)"""
    check_match(pattern, CONCAT_MM_SPLIT, {"o": "a=o s=p"})
    doubled = CONCAT_MM_SPLIT.replace("Add (p, q)", "Add (p, p)")
    check_match(pattern, doubled, {})


SELF_ATTENTION = """
    g (float[2,2] x, float[2,2] w0, float[2,2] w1, float[2,2] w2) => (q, k, v) {
    m0 = MatMul (x, w0) q = Transpose (m0)
    m1 = MatMul (x, w1) k = Transpose (m1)
    m2 = MatMul (x, w2) v = Transpose (m2) }"""


def test_self_attention() -> None:
    """D35 test_self_attention: three chains from one input, each its own nodes."""
    chain = "x ^ MatMul(_, {}) >> Transpose(_)"
    pattern = ", ".join(chain.format(name) for name in "abc")
    found = all_bindings(pattern, SELF_ATTENTION)
    assert found[0] == "a=w0 b=w1 c=w2 x=x"
    assert len(found) == 6
    assert taken(selected(pattern, SELF_ATTENTION)) == ["r: m0, q, m1, k, m2, v"]


NESTED = f"""{XW} {{
    m0 = MatMul (x, w) m1 = MatMul (x, w)
    s2 = Sigmoid (m0) s3 = Sigmoid (m1) a4 = Add (m0, m1)
    a5 = Add (s2, a4) a6 = Add (s3, a4) o = Add (a5, a6) }}"""
NESTED_DIAMOND = """
    m = MatMul(_, _)
    s = Sigmoid(_)
    p = Add(_, _)
    q = Add(_, _)
    (m ^ s >> q) & (m ^ p {edge} q)"""


def test_nested_diamond() -> None:
    """D36 test_nested_diamond [H21]: both diamonds that overlap, and the sums below them."""
    check_match(
        NESTED_DIAMOND.format(edge="^"),
        NESTED,
        {"a5": "m=m0 p=a4 q=a5 s=s2", "a6": "m=m1 p=a4 q=a6 s=s3"},
    )
    sums = """
        a4 = Add(_, _)
        a7 = Add(_, _)
        (a4 ^ Add(_, Sigmoid(l)) >> a7) & (a4 ^ Add(_, Sigmoid(r)) >> a7)"""
    assert all_bindings(sums, NESTED) == ["a4=a4 a7=o l=m0 r=m1", "a4=a4 a7=o l=m1 r=m0"]


def test_nested_diamond_counter_case() -> None:
    """D36 test_nested_diamond [H21]: the middle sum has two readers, so none reads it alone."""
    check_match(NESTED_DIAMOND.format(edge=">>"), NESTED, {})


STEPS = f"{XW} {{ r = Relu (x) s = Sigmoid (r) o = Neg (s) }}"


def test_incremental_solving() -> None:
    """D37 test_incremental_solving: a chain, and the chain it is the start of."""
    check_match("Relu(_) >> Sigmoid(_)", STEPS, {"s": ""})
    check_match("Relu(_) >> Sigmoid(_) >> Neg(_)", STEPS, {"o": ""})
    first = is_op("Relu")(wildcard()) >> is_op("Sigmoid")(wildcard())
    check_match(first, STEPS, {"s": ""})
    check_match(first >> is_op("Neg")(wildcard()), STEPS, {"o": ""})


def test_incremental_solving_counter() -> None:
    """D38 test_incremental_solving_counter: one edge more than there is."""
    text = f"{XW} {{ s = Sigmoid (x) o = Neg (s) }}"
    check_match("Sigmoid(_) >> Neg(_)", text, {"o": ""})
    check_match("Relu(_) >> Sigmoid(_) >> Neg(_)", text, {})


# -- edges, beyond the upstream tests --------------------------------------------------------------


def test_a_chain_is_the_same_nested_either_way() -> None:
    """D26 test_simple_oub: brackets in a chain change nothing."""
    for pattern in (
        "Relu(_) >> Sigmoid(_) >> Neg(_)",
        "(Relu(_) >> Sigmoid(_)) >> Neg(_)",
        "Relu(_) >> (Sigmoid(_) >> Neg(_))",
        "Relu(_).only_used_by(Sigmoid(_)).only_used_by(Neg(_))",
        "Relu(_).only_used_by(Sigmoid(_).only_used_by(Neg(_)))",
    ):
        check_match(pattern, STEPS, {"o": ""})


def test_a_chain_may_have_a_name() -> None:
    """D31 test_nested_context: a chain that is named first is still entered at its start."""
    check_match("_t = Sigmoid(_) >> Neg(_)\nRelu(_) ^ _t", STEPS, {"o": ""})
    check_match("t = Sigmoid(_) >> Neg(_)\nRelu(_) ^ t", STEPS, {"o": "t=o"})


def test_edges_see_through_identities() -> None:
    """D26 test_simple_oub: an Identity between the two is no reader of its own."""
    text = f"{XW} {{ r = Relu (x) i = Identity (r) j = Identity (i) o = Neg (j) }}"
    check_match("Relu(_) >> Neg(_)", text, {"o": ""})
    more = text.replace("=> (o)", "=> (o, p)").replace("}", "p = Abs (i) }")
    check_match("Relu(_) >> Neg(_)", more, {})
    check_match("Relu(_) ^ Neg(_)", more, {"o": ""})
    returned = text.replace("=> (o)", "=> (o, i)")
    check_match("Relu(_) >> Neg(_)", returned, {})


def test_edge_to_an_omitted_slot() -> None:
    """D30 test_distinguish_diamond_and_parallel: a slot that is omitted or absent has no edge."""
    text = "g (float[2] x, float hi) => (o) { r = Relu (hi) o = Clip (x, , r) }"
    check_match("Relu(_).used_by(Clip(...), 2)", text, {"o": ""})
    check_match("Relu(_).used_by(Clip(...), 1)", text, {})
    check_match("_.used_by(Clip(...), 1)", text, {})
    check_match("_.used_by(Clip(...), 3)", text, {})


def test_only_used_by_counts_bodies() -> None:
    """D29 test_diamond_counter_oub: to be captured by a body is to be read."""
    text = """g (bool c, float[2] x) => (float[2] o, float[2] p) {
        r = Relu (x) o = Neg (r)
        p = If (c) <then_branch = t () => (float[2] a) { a = Abs (r) },
                    else_branch = e () => (float[2] b) { b = Abs (x) }> }"""
    check_match("Relu(_) >> Neg(_)", text, {})
    check_match("Relu(_) ^ Neg(_)", text, {"o": ""})


def test_edge_onto_a_leaf_matches_nothing() -> None:
    """D24 test_simple_used_by: an input has no inputs."""
    check_match("Relu(_) ^ input()", STEPS, {})


def test_edge_into_a_commutative_consumer() -> None:
    """D28 test_diamond: an edge without a slot leaves operands free; TVM's context loses that."""
    for body in ("o = Add (r, w)", "o = Add (w, r)"):
        text = f"{XW} {{ r = Relu (x) {body} }}"
        check_match('Relu(_) >> Add(input("w"), _)', text, {"o": "w=w"})


# -- matching halves of rewriting tests ------------------------------------------------------------

QKV = "MatMul(x, w0), MatMul(x, w1), MatMul(x, w2)"


def test_attention_qkv() -> None:
    """D41 test_attention_qkv: three products of one input, bound in program order."""
    text = SELF_ATTENTION
    found = all_bindings(QKV, text)
    assert found[0] == "w0=w0 w1=w1 w2=w2 x=x"
    assert taken(selected(QKV, text)) == ["r: m0, m1, m2"]


def test_attention_fake_qkv() -> None:
    """D42 test_attention_fake_qkv: another input for one of them is no match."""
    text = """g (float[2,2] x1, float[2,2] x2, float[2,2] w0, float[2,2] w1, float[2,2] w2)
        => (q, k, v) { q = MatMul (x1, w0) k = MatMul (x2, w1) v = MatMul (x2, w2) }"""
    assert all_bindings(QKV, text) == []
    assert len(all_bindings("MatMul(x, w0), MatMul(x, w1)", text)) == 2


def test_commutative_pattern_match() -> None:
    """D47 test_commutative_pattern_match: a choice of operators commutes as the node's does."""
    text = "g (float[4] x) => (o) <float k = {1.0}> { y = Add (x, x) o = Add (k, y) }"
    check_match("(Add | Mul)(p, const(c))", text, {"o": "c=k p=y"})
    check_match("(Mul | Add)(p, const(c))", text, {"o": "c=k p=y"})
    check_match("(Mul | Sub | Add)(p, 1.0)", text, {"o": "p=y"})
    check_match("(Mul | Sub)(p, const(c))", text, {})
    check_match("(Add | Sub)(p, const(c))", text.replace("Add (k, y)", "Sub (k, y)"), {})


SAME_SHAPE = "m = Mul(a, const(k))\nAdd(same_shape(m, b), b)"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("1024,128", "1024,128", True),
        ("N,128", "N,128", True),
        ("1024,128", "1,128", False),
        ("N,128", "M,128", False),
        ("?,128", "?,128", False),
        ("1024,128", "128", False),
    ],
)
def test_same_shape_pattern(left: str, right: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """D50 test_same_shape_pattern [H24]: provably equal, by number or by symbol; else no match."""
    text = f"""g (float[{left}] a, float[{right}] b) => (o) <float k = {{2}}> {{
        m = Mul (a, k) o = Add (b, m) }}"""
    check_match(SAME_SHAPE, text, {"o": "a=a b=b k=k m=m"} if expected else {})
    method = "m = Mul(a, const(k))\nAdd(m.same_shape_as(b), b)"
    check_match(method, text, {"o": "a=a b=b k=k m=m"} if expected else {})


def test_same_shape_of_unknown_rank() -> None:
    """D50 test_same_shape_pattern [H24]: two values of unknown shape are not provably alike."""
    text = "g (float[] a, float[] b) => (o) <float k = {2}> { m = Mul (a, k) o = Add (b, m) }"
    check_match(SAME_SHAPE, text, {})


TYPED_SUM = "Add(a.has_shape(2, 3), b.has_shape(2, 3))"
SUM = "g ({0} x, {1} y) => (o) {{ o = Add (x, y) }}"


def test_wildcard_with_ty_updates_when_matching() -> None:
    """D53 test_wildcard_with_ty_updates_when_matching: both operands of the shape asked for."""
    check_match(TYPED_SUM, SUM.format("float[2,3]", "float[2,3]"), {"o": "a=x b=y"})


def test_wildcard_with_ty_is_no_op_when_not_matching() -> None:
    """D54 test_wildcard_with_ty_is_no_op_when_not_matching: another shape."""
    check_match(TYPED_SUM, SUM.format("float[16,32]", "float[16,32]"), {})
    check_match(TYPED_SUM, SUM.format("float[2,3]", "float[1,3]"), {})


@pytest.mark.parametrize("dtype", ["int32", "float"])
def test_wildcard_ty_for_unknown_dtype(dtype: str) -> None:
    """D55 test_wildcard_ty_for_unknown_dtype: a shape asked for leaves the element type free."""
    check_match(TYPED_SUM, SUM.format(f"{dtype}[2,3]", f"{dtype}[2,3]"), {"o": "a=x b=y"})
    pattern = 'Add(a.has_type("?[2, 3]"), b.has_type("_[2, 3]"))'
    check_match(pattern, SUM.format(f"{dtype}[2,3]", f"{dtype}[2,3]"), {"o": "a=x b=y"})


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("64,128", "64,128", True),
        ("64,128", "1,128", False),
        ("N,128", "N,128", True),
        ("N,128", "M,128", False),
        ("128,64", "64,128", False),
    ],
)
def test_wildcard_ty_with_symbolic_vars(left: str, right: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """D56 test_wildcard_ty_with_symbolic_vars: one variable is one dimension everywhere."""
    text = SUM.format(f"float[{left}]", f"float[{right}]")
    pattern = 'Add(a.has_type("float32[m, n]"), b.has_type("float32[m, n]"))'
    check_match(pattern, text, {"o": "a=x b=y"} if expected else {})
    check_match(
        "Add(a.has_shape(m, n), b.has_shape(m, n))", text, {"o": "a=x b=y"} if expected else {}
    )
