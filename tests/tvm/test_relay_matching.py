"""Relay's tests of what a pattern matches (tests/python/relay/test_dataflow_pattern.py, v0.19.0).

R1 to R56 of the inventory in our terms. A tuple is a node's list of inputs or outputs, a Relay
``Let`` an Identity, ``bias_add`` an Add, ``dense`` a MatMul, and a function a model-local one.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import (
    DFPattern,
    Matcher,
    dominates,
    is_call,
    is_const,
    is_function,
    is_if,
    is_input,
    is_op,
    is_value,
    wildcard,
)
from dplcli.language.pattern import FunctionPattern, OpKind, OpName
from dplcli.onnx_io import model_from_proto
from tests.support.helpers import (
    all_bindings,
    check_match,
    find_solutions,
    model_from_text,
    pattern_of,
    proto_from_text,
)

if TYPE_CHECKING:
    from dplcli.language.pattern import OpPattern

XY = "g (float[10,10] x, float[10,10] y) => (float[10,10] o)"
IMAGE = "g (float[1,3,12,12] x, float[3,3,3,3] w, float[3,1,1] b) => (float[1,3,10,10] o)"


# -- construction ----------------------------------------------------------------------------------


def test_expr_pattern() -> None:
    """R1 test_expr_pattern: ``is_value`` keeps what it compares with."""
    pattern = is_value(np.array([1.0, 2.0], np.float32))
    assert pattern.exact is not None
    assert (pattern.exact.dtype, pattern.exact.shape) == ("float32", (2,))
    assert pattern.exact.data == np.array([1.0, 2.0], np.float32).tobytes()


def test_var_pattern() -> None:
    """R2 test_var_pattern: a pattern for an input keeps the input's name."""
    assert is_input("x").source == "x"
    assert is_input("x").name == "x"
    assert is_input().source == ""


def test_constant_pattern() -> None:
    """R3 test_constant_pattern: any constant at all demands no value."""
    pattern = is_const()
    assert (pattern.value, pattern.exact, repr(pattern)) == (None, None, "const()")


def test_wildcard_pattern() -> None:
    """R4 test_wildcard_pattern: a wildcard demands nothing and binds no name."""
    assert (wildcard().name, repr(wildcard())) == ("", "_")
    assert (wildcard("x").name, repr(wildcard("x"))) == ("x", "x")


def test_call_pattern() -> None:
    """R5 test_CallPattern: a node pattern keeps callee and arguments, as the objects they are."""
    x, y = wildcard(), wildcard()
    call = is_op("Add")(x, y)
    assert call.op.choices == (OpName("Add"),)
    assert len(call.args) == 2
    assert call.args[0] is x
    assert call.args[1] is y


def test_function_pattern() -> None:
    """R6 test_FunctionPattern: a function pattern keeps parameters and body."""
    x, y = wildcard(), wildcard()
    body = is_op("Add")(x, y)
    (function,) = is_function([x, y], body)(x, y).op.choices
    assert isinstance(function, FunctionPattern)
    assert function.params is not None
    assert [param is want for param, want in zip(function.params, (x, y), strict=True)] == [
        True,
        True,
    ]
    assert function.results[0] is body


def test_tuple_pattern() -> None:
    """R7 test_TuplePattern: a list of values is the arguments of a node."""
    x, y = wildcard(), wildcard()
    fields = is_op("Concat")(x, y).args
    assert len(fields) == 2
    assert fields[0] is x
    assert fields[1] is y


def test_tuple_get_item_pattern() -> None:
    """R8 test_TupleGetItemPattern: ``p[1]`` keeps the node and the index."""
    split = is_op("Split")(wildcard())
    item = split[1]
    assert item.index == 1
    assert item.node is split


def test_alt_pattern() -> None:
    """R9 test_AltPattern: ``|`` keeps both, for operators and for patterns."""
    assert (is_op("Add") | is_op("Sub")).choices == (OpName("Add"), OpName("Sub"))
    left, right = is_op("Add")(wildcard(), wildcard()), is_op("Sub")(wildcard(), wildcard())
    either = left | right
    assert either.left is left
    assert either.right is right


def test_type_pattern() -> None:
    """R10 test_TypePattern: a demand for a type keeps element type and shape."""
    inner = wildcard()
    typed = inner.has_type("float32[10, 10]")
    assert (typed.dtypes, typed.shape) == (("float32",), (10, 10))
    assert typed.pattern is inner


def test_data_type_pattern() -> None:
    """R11 test_DataTypePattern: a demand for an element type keeps it."""
    assert wildcard().has_dtype("float16").dtypes == ("float16",)


def test_shape_pattern() -> None:
    """R12 test_ShapePattern: a demand for a shape keeps it."""
    assert wildcard().has_shape(10, 10).shape == (10, 10)


def test_attr_pattern() -> None:
    """R13 test_AttrPattern: attributes are kept; TOpPattern is a class of operators."""
    assert is_op(kind="elementwise").choices == (OpKind("elementwise"),)
    call = is_op("Conv")(wildcard(), wildcard()).has_attr({"kernel_shape": [3, 3], "group": 1})
    assert call.attributes == (("kernel_shape", (3, 3)), ("group", 1))


def test_if_pattern() -> None:
    """R14 test_IfPattern: the three parts are kept."""
    x, y = wildcard("x"), wildcard("y")
    condition = is_op("Less")(x, y)
    pattern = is_if(condition, x, y)
    assert pattern.args == (condition,)
    assert pattern.bodies == (("then_branch", (x,)), ("else_branch", (y,)))


def test_let_pattern() -> None:
    """R15 test_LetPattern: [≈] ONNX has no Let; naming a node and passing it on is the nearest."""
    value = is_op("Less")(wildcard("x"), wildcard("y")).named("let")
    body = is_op("Identity")(value)
    assert body.args[0] is value
    assert repr(body) == "let = Less(x, y)\nIdentity(let)"


# -- operators and calls ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "node", "expected"),
    [
        pytest.param(is_op("Add"), "Add", True, id="R16"),
        pytest.param(is_op("Add"), "Sub", False, id="R17"),
        pytest.param(is_op("Add") | is_op("Sub"), "Add", True, id="R18-add"),
        pytest.param(is_op("Add") | is_op("Sub"), "Sub", True, id="R18-sub"),
        pytest.param(is_op("Add") | is_op("Sub"), "Mul", False, id="R18-mul"),
    ],
)
def test_match_op(op: OpPattern, node: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """R16 test_match_op, R17 test_no_match_op, R18 test_match_op_or: [≈] operators have nodes."""
    pattern = op(wildcard("p"), wildcard("q"))
    check_match(pattern, f"{XY} {{ o = {node} (x, y) }}", {"o": "p=x q=y"} if expected else {})


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("body", ["(x, y)", "(y, x)"])
def test_match_call_commutive(op: str, body: str) -> None:
    """R19 test_match_call_commutive: add and multiply match their operands in both orders."""
    check_match(f'{op}(input("x"), input("y"))', f"{XY} {{ o = {op} {body} }}", {"o": "x=x y=y"})


@pytest.mark.parametrize("op", ["Sub", "Div"])
def test_no_match_call_commutive(op: str) -> None:
    """R20 test_no_match_call_commutive: subtract and divide match as written only."""
    pattern = f'{op}(input("x"), input("y"))'
    check_match(pattern, f"{XY} {{ o = {op} (x, y) }}", {"o": "x=x y=y"})
    check_match(pattern, f"{XY} {{ o = {op} (y, x) }}", {})


def test_match_call() -> None:
    """R21 test_match_call: two wildcards match a sum; ``op()(...)`` matches any node."""
    check_match("Add(p, q)", f"{XY} {{ o = Add (x, y) }}", {"o": "p=x q=y"})
    any_call = is_op()(...)
    check_match(any_call, f"{XY} {{ o = Relu (x) }}", {"o": ""})
    check_match(any_call, f"{XY} {{ r = Relu (x) o = Add (r, y) }}", {"r": "", "o": ""})


def test_no_match_call() -> None:
    """R22 test_no_match_call: another operator is no match."""
    check_match("Add(p, q)", f"{XY} {{ o = Sub (x, y) }}", {})


# -- functions, If, Let ----------------------------------------------------------------------------


def called(body: str, formal: str, call: str) -> str:
    """Write a model that calls ``local.f``."""
    return f"""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x, float[2] y) => (float[2] o) {{ o = local.f {call} }}
        <domain: "local", opset_import: ["" : 17]>
        f {formal} => (r) {{ {body} }}"""


def test_match_func() -> None:
    """R23 test_match_func: a function by parameters and body, with either left open."""
    add = called("r = Add (a, b)", "(a, b)", "(x, y)")
    p, q = wildcard("p"), wildcard("q")
    check_match(is_function([p, q], is_op("Add")(p, q))(...), add, {"o": "p=a q=b"})
    any_body = is_function(None, wildcard())(...)
    check_match(any_body, add, {"o": ""})
    check_match(any_body, called("r = Relu (a)", "(a)", "(x)"), {"o": ""})


def test_match_func_arity() -> None:
    """R23 test_match_func: as many parameters as the pattern lists, no more, no less."""
    one = called("r = Relu (a)", "(a)", "(x)")
    two = called("r = Add (a, b)", "(a, b)", "(x, y)")
    check_match("function([_], _)(p)", one, {"o": "p=x"})
    check_match("function([_], _)(...)", two, {})
    check_match("function([_, _], _)(...)", one, {})


def test_no_match_func() -> None:
    """R24 test_no_match_func: a function with another operator in its body."""
    p, q = wildcard("p"), wildcard("q")
    pattern = is_function([p, q], is_op("Add")(p, q))(...)
    check_match(pattern, called("r = Sub (a, b)", "(a, b)", "(x, y)"), {})


IF = (
    "g (float x, float y) => (float o) {{ c = {cond} (x, y)"
    " o = If (c) <then_branch = t () => (float p) {{ p = Identity ({then}) }},"
    " else_branch = e () => (float q) {{ q = Identity ({other}) }}> }}"
)


def test_match_if() -> None:
    """R25 test_match_if: condition and the results of both branches, which are captures here."""
    text = IF.format(cond="Less", then="x", other="y")
    check_match('if_(Less(input("x"), input("y")), input("x"), input("y"))', text, {"o": "x=x y=y"})
    check_match("if_(Less(p, q), p, q)", text, {"o": "p=x q=y"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(IF.format(cond="Greater", then="x", other="y"), id="wrong comparison"),
        pytest.param(IF.format(cond="Less", then="y", other="x"), id="swapped branches"),
    ],
)
def test_no_match_if(text: str) -> None:
    """R26 test_no_match_if: another comparison, or the branches the other way round."""
    check_match("if_(Less(p, q), p, q)", text, {})


def test_match_if_with_nodes_in_the_branches() -> None:
    """R25 test_match_if: nodes of a branch are matched in the branch, captures being leaves."""
    text = """g (float x, float y) => (float o) { c = Less (x, y)
        o = If (c) <then_branch = t () => (float p) { p = Add (x, y) },
                    else_branch = e () => (float q) { s = Sub (x, y) q = Relu (s) }> }"""
    check_match("if_(Less(a, b), Add(a, b), Relu(Sub(a, b)))", text, {"o": "a=x b=y"})
    check_match("if_(Less(a, b), Add(a, b), Relu(Add(a, b)))", text, {})


LET = "g (float[2] x, float[2] y) => (o) {{ let = {} (x, y) o = {} }}"


def test_match_let() -> None:
    """R27 test_match_let: [≈] a named node that is passed on."""
    text = LET.format("Less", "Identity (let)")
    check_match("let = Less(x, y)\nIdentity(let)", text, {"o": "let=let x=x y=y"})


@pytest.mark.parametrize(("value", "body"), [("Greater", "Identity (let)"), ("Less", "Not (let)")])
def test_no_match_let(value: str, body: str) -> None:
    """R28 test_no_match_let: [≈] another value, or another body."""
    check_match("let = Less(x, y)\nIdentity(let)", LET.format(value, body), {})


# -- optional parts, constants ---------------------------------------------------------------------

BIASED = "Relu(optional(Add)(Conv(x, w), b))"
ACTIVATED = "optional(Tanh)(optional(Relu)(Conv(x, w)))"


@pytest.mark.parametrize(
    ("pattern", "body", "expected"),
    [
        (BIASED, "c = Conv (x, w) o = Relu (c)", {"o": "w=w x=x"}),
        (BIASED, "c = Conv (x, w) a = Add (c, b) o = Relu (a)", {"o": "b=b w=w x=x"}),
        (ACTIVATED, "o = Conv (x, w)", {"o": "w=w x=x"}),
        (ACTIVATED, "c = Conv (x, w) o = Relu (c)", {"c": "w=w x=x", "o": "w=w x=x"}),
        (ACTIVATED, "c = Conv (x, w) o = Tanh (c)", {"c": "w=w x=x", "o": "w=w x=x"}),
        (
            ACTIVATED,
            "c = Conv (x, w) r = Relu (c) o = Tanh (r)",
            {"c": "w=w x=x", "r": "w=w x=x", "o": "w=w x=x"},
        ),
        (
            ACTIVATED,
            "c = Conv (x, w) t = Tanh (c) o = Relu (t)",
            {"c": "w=w x=x", "t": "w=w x=x"},
        ),
    ],
)
def test_match_option(pattern: str, body: str, expected: dict[str, str]) -> None:
    """R29 test_match_option: with and without; of two options the order counts.

    The last graph has no match at its output, as in Relay; inner nodes are roots of their own.
    """
    check_match(pattern, f"{IMAGE} {{ {body} }}", expected)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("c = Conv (x, w) o = Tanh (c)", id="wrong activation"),
        pytest.param("c = MatMul (x, w) o = Tanh (c)", id="wrong product and activation"),
        pytest.param("c = MatMul (x, w) a = Add (c, b) o = Relu (a)", id="wrong product"),
        pytest.param("c = Conv (x, w) a = Sub (c, b) o = Relu (a)", id="wrong bias"),
    ],
)
def test_no_match_option(body: str) -> None:
    """R30 test_no_match_option: [≈] what is optional is this node or none, not another one.

    Relay's fourth case is a plain add in place of ``bias_add``, which in ONNX is a Sub.
    """
    check_match(BIASED, f"{IMAGE} {{ {body} }}", {})


def test_option_by_method() -> None:
    """R29 test_match_option: ``p.optional(f)`` in Python reads and matches like the text."""
    conv = is_op("Conv")(wildcard("x"), wildcard("w"))
    pattern = conv.optional(is_op("Relu")).optional(is_op("Tanh"))
    assert pattern == pattern_of(ACTIVATED)
    text = f"{IMAGE} {{ c = Conv (x, w) r = Relu (c) o = Tanh (r) }}"
    assert [str(s) for s in find_solutions(pattern, model_from_text(text))] == ["w=w x=x"] * 3


def test_match_const() -> None:
    """R31 test_match_const: a weight must be a constant; bound to data, it is one."""
    pattern = is_op("Add")(is_op("Conv")(wildcard("x"), is_const("w")), wildcard("b"))
    body = "{ c = Conv (x, w) o = Add (c, b) }"
    head = "g (float[1,1,4,4] x, {}float[1,1,1] b) => (float[1,1,4,4] o)"
    weight = "<float[1,1,1,1] w = {2}>"
    check_match(pattern, f"{head.format('float[1,1,1,1] w, ')} {body}", {})
    check_match(pattern, f"{head.format('')} {weight} {body}", {"o": "b=b w=w x=x"})
    check_match(pattern, f"{head.format('float[1,1,1,1] w, ')} {weight} {body}", {})


# -- lists of inputs and outputs -------------------------------------------------------------------


def test_match_tuple() -> None:
    """R32 test_match_tuple: the inputs of a node, by name, by wildcard and by operator."""
    text = """g (float[2] x, float[2] y, float[2] z) => (float[6] o) {
        a = Add (y, z) o = Concat <axis=0> (x, y, a) }"""
    check_match('Concat(input("x"), p, Add(q, r))', text, {"o": "p=y q=y r=z x=x"})


SPLIT = """g (float[6] x) => (float[2] o) {{
    p, q, r = Split (x) o = Relu ({}) }}"""
ANY_OUTPUT = "s = Split(x)\nRelu(s[0] | s[1] | s[2])"


def test_match_tuple_get_item() -> None:
    """R32 test_match_tuple: one output of a node by index, and any of them."""
    check_match("Relu(Split(x)[1])", SPLIT.format("q"), {"o": "x=x"})
    for index, name in enumerate("pqr"):
        check_match(ANY_OUTPUT, SPLIT.format(name), {"o": "s=p x=x"})
        check_match(f"Relu(Split(x)[{index}])", SPLIT.format(name), {"o": "x=x"})


def test_match_item_at_the_root() -> None:
    """R32 test_match_tuple: an output may be what the pattern as a whole makes."""
    check_match("Split(x)[1]", SPLIT.format("q"), {"p": "x=x"})
    check_match("Split(x)[3]", SPLIT.format("q"), {})


@pytest.mark.parametrize("inputs", ["x", "x, y", "x, y, z"])
def test_match_fuzzy_tuple(inputs: str) -> None:
    """R32 test_match_tuple: ``...`` takes any number of inputs."""
    text = f"g (float[2] x, float[2] y, float[2] z) => (o) {{ o = Concat <axis=0> ({inputs}) }}"
    check_match("Concat(...)", text, {"o": ""})
    check_match(is_op("Concat")(...), text, {"o": ""})
    check_match("Concat(p, ...)", text, {"o": "p=x"})


def test_no_match_tuple() -> None:
    """R33 test_no_match_tuple: another number of inputs, another output."""
    text = "g (float[2] x, float[2] y, float[2] z) => (o) { o = Concat <axis=0> (x, y, z) }"
    check_match("Concat(a, b, c, d)", text, {})
    check_match("Concat(a, b)", text, {})
    check_match("Concat(a, b, c, d, ...)", text, {})
    check_match("Concat(a, b, c, ...)", text, {"o": "a=x b=y c=z"})
    check_match("Relu(Split(x)[1])", SPLIT.format("r"), {})
    check_match("Relu(Split(x))", SPLIT.format("r"), {})


# -- types -----------------------------------------------------------------------------------------

TYPED = "g ({} x) => (o) {{ o = Abs (x) }}"


@pytest.mark.parametrize(
    ("pattern", "kind", "expected"),
    [
        pytest.param('p.has_type("float32[10, 10]")', "float[10,10]", True, id="R34"),
        pytest.param('p.has_type("float32[10, 10]")', "int32[10,10]", False, id="R35"),
        pytest.param('p.has_type("float32[10, 10]")', "float[10,5]", False, id="R35-shape"),
        pytest.param('p.has_dtype("float32")', "float[10,10]", True, id="R36"),
        pytest.param('p.has_dtype("float32")', "int32[10,10]", False, id="R37"),
        pytest.param("p.has_shape(10, 10)", "float[10,10]", True, id="R38"),
        pytest.param("p.has_shape(10, 5)", "float[10,10]", False, id="R39"),
        pytest.param("p.has_shape(10, 10, 1)", "float[10,10]", False, id="R39-rank"),
        pytest.param("p.has_shape()", "float[10,10]", False, id="R39-scalar"),
        pytest.param("p.has_shape()", "float", True, id="R38-scalar"),
        pytest.param("p.has_shape()", "float[]", False, id="unknown rank"),
    ],
)
def test_match_type(pattern: str, kind: str, expected: bool) -> None:  # noqa: FBT001  # parametrized
    """R34 to R39 test_match_type, _dtype, _shape and their test_no_match: what the model states.

    In ONNX text ``float`` is a scalar and ``float[]`` a tensor of unknown rank.
    """
    check_match(f"Abs({pattern})", TYPED.format(kind), {"o": "p=x"} if expected else {})


# -- attributes ------------------------------------------------------------------------------------


def test_match_op_attr() -> None:
    """R40 test_match_op_attr: TOpPattern is a class of operators; add broadcasts."""
    pattern = is_op(kind="broadcast")(wildcard("p"), wildcard("q"))
    check_match(pattern, f"{XY} {{ o = Add (x, y) }}", {"o": "p=x q=y"})


def test_no_match_op_attr() -> None:
    """R41 test_no_match_op_attr: a product is not element-wise, sub is not add, x is no node."""
    check_match('op(kind="elementwise")(p, q)', f"{XY} {{ o = MatMul (x, y) }}", {})
    check_match('op(kind="elementwise")(...)', f"{XY} {{ o = MatMul (x, y) }}", {})
    check_match('op(kind="broadcast")(p, q) & Add(p, q)', f"{XY} {{ o = Sub (x, y) }}", {})
    check_match('op(kind="broadcast")(p, Relu(q))', f"{XY} {{ o = Add (x, y) }}", {})


def metadata_solutions(pattern: str, metadata: dict[str, str]) -> list[str]:
    """Match at the call of a function with metadata."""
    proto = proto_from_text(called("r = Add (a, b)", "(a, b)", "(x, y)"))
    for key, value in metadata.items():
        proto.functions[0].metadata_props.add(key=key, value=value)
    model = model_from_proto(proto, Path(), "test")
    return [f"{s.root}: {s}" for s in find_solutions(pattern, model)]


ADD_FUNCTION = 'function([_, _], _, metadata={"Composite": "add"})(p, q)'


def test_match_func_attr() -> None:
    """R42 test_match_func_attr: the metadata of a function."""
    assert metadata_solutions(ADD_FUNCTION, {"Composite": "add"}) == ["o: p=x q=y"]
    assert metadata_solutions(ADD_FUNCTION, {"A": "b", "Composite": "add"}) == ["o: p=x q=y"]


@pytest.mark.parametrize("metadata", [{"RandomTest": "add"}, {"Composite": "conv_bias"}, {}])
def test_no_match_func_attr(metadata: dict[str, str]) -> None:
    """R43 test_no_match_func_attr: another key, another value, nothing at all."""
    assert metadata_solutions(ADD_FUNCTION, metadata) == []


CALL_ATTR = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x, float[2] y) => (float[2] o) {{ o = local.f {} (x, y) }}
    <domain: "local", opset_import: ["" : 17]>
    f {} (a, b) => (r) {{ r = Add (a, b) }}"""
STATED = CALL_ATTR.format('<call_attr = "attr">', "<call_attr>")
PLAIN = CALL_ATTR.format("", "")


CONV = is_op("Conv")(wildcard("x"), wildcard("w"))


def conv_of(attributes: str = "") -> str:
    """Write a convolution with a 3x3 kernel."""
    return f"{IMAGE} {{ o = Conv {attributes} (x, w) }}"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ('Conv(x, w, auto_pad="NOTSET")', conv_of(), {"o": "w=w x=x"}),
        ("Conv(x, w, kernel_shape=[3, 3])", conv_of("<kernel_shape=[3,3]>"), {"o": "w=w x=x"}),
        ("Conv(x, w, kernel_shape=[3, 3])", conv_of(), {"o": "w=w x=x"}),
        ('call("f", x, y, call_attr="attr")', STATED, {"o": "x=x y=y"}),
        ('local.f(x, y, call_attr="attr")', STATED, {"o": "x=x y=y"}),
        (is_call("f")(wildcard("x"), wildcard("y")).has_attr({}), PLAIN, {"o": "x=x y=y"}),
        (CONV.has_attr({}), conv_of(), {"o": "w=w x=x"}),
    ],
)
def test_match_call_attr(pattern: str | DFPattern, text: str, expected: dict[str, str]) -> None:
    """R44 test_match_call_attr: [≈] defaults, lists, a call's own attributes, and none asked for.

    Relay's ``data_layout="NCHW"`` is a default; ONNX's nearest is ``auto_pad``.
    """
    check_match(pattern, text, expected)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ('Conv(x, w, auto_pad="VALID")', conv_of()),
        (CONV.has_attr({"RandomAttr": 1}), conv_of()),
        ("Conv(x, w, kernel_shape=[2, 1])", conv_of("<kernel_shape=[3,3]>")),
        ("Conv(x, w, kernel_shape=[3])", conv_of("<kernel_shape=[3,3]>")),
        ("Conv(x, w, kernel_shape=[3, 3, 3])", conv_of()),
        ('call("f", x, y, call_attr="attr")', PLAIN),
        ('call("f", x, y, wrong="attr")', STATED),
        ('call("f", x, y, call_attr="wrong")', STATED),
    ],
)
def test_no_match_call_attr(pattern: str | DFPattern, text: str) -> None:
    """R45 test_no_match_call_attr: another value, an unknown name, a node without attributes."""
    check_match(pattern, text, {})


def test_unknown_attribute_in_a_text() -> None:
    """R45 test_no_match_call_attr: an attribute no Conv has is refused when the text is read."""
    with pytest.raises(PatternSyntaxError, match="RandomAttr"):
        pattern_of("Conv(x, w, RandomAttr=1)")


def test_no_match_call_attr_of_an_input() -> None:
    """R45 test_no_match_call_attr: ``{}`` asks for no attribute but still for a node."""
    pattern = is_op("Relu")(is_op()(...).has_attr({}))
    check_match(pattern, "g (float[2] x) => (o) { o = Relu (x) }", {})
    check_match(pattern, "g (float[2] x) => (o) { a = Abs (x) o = Relu (a) }", {"o": ""})


def test_match_call_attr_dtype() -> None:
    """R46 test_match_call_attr_dtype: an element type compares by its name."""
    text = "g (float16[2] x) => (float[2] o) { o = Cast <to=1> (x) }"
    check_match('Cast(x, to="float32")', text, {"o": "x=x"})
    check_match(is_op("Cast")(wildcard("x")).has_attr({"to": "float32"}), text, {"o": "x=x"})
    check_match("Cast(x, to=1)", text, {"o": "x=x"})
    check_match('Cast(x, to="float16")', text, {})


# -- diamonds --------------------------------------------------------------------------------------

DIAMOND = "c = Conv(x, w)\nAdd(Relu(c), LeakyRelu(c))"
BRANCHES = "c = Conv (x, w) r = Relu (c) l = LeakyRelu <alpha=0.0> (c)"


def test_match_diamond() -> None:
    """R47 test_match_diamond: one pattern object is one node."""
    check_match(DIAMOND, f"{IMAGE} {{ {BRANCHES} o = Add (r, l) }}", {"o": "c=c w=w x=x"})
    check_match(DIAMOND, f"{IMAGE} {{ {BRANCHES} o = Add (l, r) }}", {"o": "c=c w=w x=x"})


@pytest.mark.parametrize("body", [f"{BRANCHES} o = Abs (l)", f"{BRANCHES} o = Abs (r)"])
def test_no_match_diamond(body: str) -> None:
    """R48 test_no_match_diamond: one branch is no diamond."""
    check_match(DIAMOND, f"{IMAGE} {{ {body} }}", {})


def test_match_fake_diamond() -> None:
    """R49 test_match_fake_diamond: two convolutions that compute the same are two."""
    body = "c = Conv (x, w) d = Conv (x, w) r = Relu (c) l = LeakyRelu (d) o = Add (r, l)"
    check_match(DIAMOND, f"{IMAGE} {{ {body} }}", {})


# -- dominators ------------------------------------------------------------------------------------

WIDE = "g (float[1,3,8,8] x, float[3,3,1,1] w, float[3,1,1] b) => (float[1,3,8,8] o)"
ELEMENTWISE = 'dominates(Conv(x, w), op(kind="elementwise")(_), Add(_, _))'


def check_region(pattern: str | DFPattern, body: str, expected: dict[str, str]) -> None:
    """Check which nodes the preferred match takes at each root; bindings are x=x w=w."""
    model = model_from_text(f"{WIDE} {{ {body} }}")
    found: dict[str, str] = {}
    for solution in find_solutions(pattern, model):
        assert dict(solution.bindings) == {"x": "x", "w": "w"}
        found.setdefault(solution.root, " ".join(solution.nodes))
    assert found == expected


AT_MOST_ONE = """
    n6 = Conv (x, w) n7 = Tanh (n6) n8 = Conv (n7, w)
    n9 = Relu (n8) n10 = Relu (n6) o = Add (n9, n10)"""


def test_at_most_one_parent() -> None:
    """R50 test_at_most_one_parent [H01]: two convolutions above the sum are not one parent."""
    check_region("dominates(Conv(x, w), Relu(_), Add(_, _))", AT_MOST_ONE, {})


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        pytest.param(f"{BRANCHES} o = Add (r, l)", "c l o r", id="classic"),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) s = Relu (r) t = Tanh (s) l = LeakyRelu (c)"
            " o = Add (t, l)",
            "c l o r s t",
            id="deeper branch",
        ),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) s = Relu (r) t = Tanh (s) o = Add (s, t)",
            "c o r s t",
            id="single branch",
        ),
    ],
)
def test_match_dominator(body: str, nodes: str) -> None:
    """R51 test_match_dominator [H02]: every way from the sum up ends at the one convolution."""
    check_region(ELEMENTWISE, body, {"o": nodes})


def test_match_dominator_nested_diamond() -> None:
    """R51 test_match_dominator [H02]: a diamond within, if the path may contain its sum.

    The inner sum is a child of its own unless the convolution is also read beside it, as here.
    """
    pattern = 'dominates(Conv(x, w), op(kind="elementwise")(_) | Add(_, _), Add(_, _))'
    body = """c = Conv (x, w) r = Relu (c) a = Add (r, r) t = Tanh (a)
        l = LeakyRelu (c) o = Add (t, l)"""
    check_region(pattern, body, {"o": "a c l o r t"})


def test_match_dominator_by_objects() -> None:
    """R51 test_match_dominator [H02]: the same pattern made of Python objects."""
    parent = is_op("Conv")(wildcard("x"), wildcard("w"))
    path = is_op(kind="elementwise")(wildcard())
    pattern = dominates(parent, path, is_op("Add")(wildcard(), wildcard()))
    assert pattern == pattern_of(ELEMENTWISE)
    check_region(pattern, f"{BRANCHES} o = Add (r, l)", {"o": "c l o r"})


def test_match_dominator2() -> None:
    """R52 test_match_dominator2 [H03]: side inputs of path nodes may be leaves."""
    pattern = """dominates(Conv(x, w), op(kind="elementwise")(...) | op(kind="broadcast")(...),
        op(kind="injective")(_, ...))"""
    text = f"""{WIDE} <int64[2] shape = {{1, 192}}> {{
        c = Conv (x, w) a = Add (c, b) r = Relu (a) o = Reshape (r, shape) }}"""
    (found,) = find_solutions(pattern, model_from_text(text))
    assert (found.root, found.nodes, str(found)) == ("o", ("a", "c", "o", "r"), "w=w x=x")


def test_no_match_dominator_with_a_computed_side_input() -> None:
    """R52 test_match_dominator2 [H03]: a side input that is computed breaks the region."""
    path = '(op(kind="elementwise")(...) | op(kind="broadcast")(...))'
    pattern = f"dominates(Conv(x, w), {path}, Tanh(_))"
    check_region(pattern, "c = Conv (x, w) a = Add (c, b) o = Tanh (a)", {"o": "a c o"})
    body = "c = Conv (x, w) n = Neg (b) a = Add (c, n) o = Tanh (a)"
    check_region(pattern, body, {})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "c = Conv (x, w) d = Conv (x, w) r = Relu (c) l = LeakyRelu (d) o = Add (r, l)",
            id="fake diamond",
        ),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) a = Mul (r, r) l = LeakyRelu (c) o = Add (a, l)",
            id="path node of another class",
        ),
        pytest.param(
            "c = Conv (x, w) r = Relu (x) l = LeakyRelu (c) o = Add (r, l)",
            id="a branch from the input",
        ),
        pytest.param("r = Relu (x) s = Relu (r) t = Tanh (s) o = Add (s, t)", id="no parent"),
    ],
)
def test_not_match_dominator(body: str) -> None:
    """R53 test_not_match_dominator [H04]: not one parent, not only path nodes, not all ways.

    Relay's second case has an Add inside; a Mul keeps it from being the child of a match itself.
    """
    check_region(ELEMENTWISE, body, {})


def test_not_match_dominator_nested() -> None:
    """R53 test_not_match_dominator [H04]: the second case as in Relay, seen from the last sum."""
    body = "c = Conv (x, w) r = Relu (c) a = Add (r, r) l = LeakyRelu (c) o = Add (a, l)"
    check_region(ELEMENTWISE, body, {})


def test_not_match_dominator2() -> None:
    """R54 test_not_match_dominator2 [H05]: the first convolution is read beside the second."""
    body = "n6 = Conv (x, w) n7 = Tanh (n6) n8 = Conv (n7, w) r = Relu (n6) o = Add (n8, r)"
    check_region(ELEMENTWISE, body, {})
    check_region("dominates(Conv(x, w), Relu(_), Add(_, _))", body, {})


CLASSIC = f"{BRANCHES} o = Add (r, l)"


def test_match_typed_dominator() -> None:
    """R55 test_match_typed_dominator: types on the path and on the child."""
    path = 'op(kind="elementwise")(_).has_dtype("float32")'
    pattern = f"dominates(Conv(x, w), {path}, Add(_, _).has_shape(1, 3, 8, 8))"
    check_region(pattern, CLASSIC, {"o": "c l o r"})


@pytest.mark.parametrize(("dtype", "shape"), [("float32", "1, 1, 8, 8"), ("float16", "1, 3, 8, 8")])
def test_no_match_typed_dominator(dtype: str, shape: str) -> None:
    """R56 test_no_match_typed_dominator: another shape of the child, another type on the path."""
    path = f'op(kind="elementwise")(_).has_dtype("{dtype}")'
    pattern = f"dominates(Conv(x, w), {path}, Add(_, _).has_shape({shape}))"
    check_region(pattern, CLASSIC, {})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("c = Conv (x, w) o = Add (c, c)", {"o": "c o"}, id="length zero"),
        pytest.param("c = Conv (x, w) r = Relu (c) o = Add (r, b)", {"o": "c o r"}, id="leaf"),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) n = Neg (b) o = Add (r, n)", {}, id="computed side input"
        ),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) s = Sigmoid (c) a = Add (r, r) o = Sub (a, s)",
            {},
            id="parent read beside the region",
        ),
        pytest.param(
            "c = Conv (x, w) r = Relu (c) s = Sigmoid (r) a = Add (r, r) o = Sub (a, s)",
            {},
            id="path node read beside the region",
        ),
    ],
)
def test_dominator_edges(body: str, expected: dict[str, str]) -> None:
    """R51, R53: section 5 of the language report, what the algorithm says of borderline regions."""
    check_region(ELEMENTWISE, body, expected)


def test_dominator_parent_that_is_a_graph_output() -> None:
    """R53 test_not_match_dominator: to be a graph output is to be read outside."""
    head = "g (float[1,3,8,8] x, float[3,3,1,1] w) => (float[1,3,8,8] o, float[1,3,8,8] {})"
    for extra in ("c", "r"):
        text = f"{head.format(extra)} {{ {BRANCHES} o = Add (r, l) }}"
        assert all_bindings(ELEMENTWISE, text) == []


def test_dominator_is_found_once_per_parent() -> None:
    """R50 test_at_most_one_parent [H01]: a region has one parent, so there is one way to match."""
    text = f"{WIDE} {{ {BRANCHES} o = Add (r, l) }}"
    assert len(find_solutions(ELEMENTWISE, model_from_text(text))) == 1
    assert Matcher(pattern_of(ELEMENTWISE)).budget == 100_000


def test_dominator_text_with_names() -> None:
    """R51 test_match_dominator: parent and child can be named, for conditions."""
    pattern = dedent("""\
        c = Conv(x, w)
        s = Add(_, _)
        dominates(c, op(kind="elementwise")(_), s)""")
    check_match(pattern, f"{WIDE} {{ {BRANCHES} o = Add (r, l) }}", {"o": "c=c s=o w=w x=x"})
