"""Every term of the language in both spellings, every misuse of a word, and hostile texts."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import PatternSyntaxError
from dplcli.language import (
    DFPattern,
    Matcher,
    absent,
    dominates,
    is_call,
    is_const,
    is_function,
    is_if,
    is_input,
    is_op,
    is_value,
    outputs,
    parse_pattern,
    repeat,
    unordered,
    wildcard,
)
from dplcli.language.text import bound_names
from tests.support.helpers import SCHEMAS, find_solutions, model_from_text, pattern_of, rule
from tests.support.strategies import language_texts, within

if TYPE_CHECKING:
    from pathlib import Path

AB = "g (float[2] a, float[2] b, float[2] c) => (o)"
K = f"{AB} <float[2] k = {{2, 3}}, float[1] two = {{2}}>"
IF = """g (bool c, float[2] a) => (o) { o = If (c) <
    then_branch = t () => (y) { y = Relu (a) }, else_branch = e () => (z) { z = THEN (a) }> }"""
CALL = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] a) => (o) { o = local.f (a) }
    <domain: "local", opset_import: ["" : 17]> f (u) => (v) { v = BODY (u) }"""

x, y, z = wildcard("x"), wildcard("y"), wildcard("z")
h, twice = wildcard("h"), wildcard()
w, b = is_const("w"), is_const("b")
any_ = wildcard()


def relu(pattern: DFPattern) -> DFPattern:
    """Match a Relu."""
    return is_op("Relu")(pattern)


class Term(NamedTuple):
    """A term: in both spellings, on a graph where it matches, and on one where it nearly does."""

    text: str
    python: DFPattern
    graph: str
    bindings: str
    near_miss: str


_shared = relu(x)
_node = is_op("LayerNormalization")(x, z, ...)
_three = _node.outputs("y", "mean", "")
_split = is_op("Split")(x).outputs("y", "z")
NORM = "g (float[2,2] a, float[2] s, float[2] t) => (o, m)"

TERMS = {
    "name": Term(
        "Sub(x, x)",
        is_op("Sub")(x, x),
        f"{AB} {{ o = Sub (a, a) }}",
        "x=a",
        f"{AB} {{ o = Sub (a, b) }}",
    ),
    "blank": Term(
        "Sub(_, _)",
        is_op("Sub")(wildcard(), wildcard()),
        f"{AB} {{ o = Sub (a, b) }}",
        "",
        f"{AB} {{ o = Neg (a) }}",
    ),
    "absent": Term(
        "Clip(x, None, y)",
        is_op("Clip")(x, absent(), y),
        f"{AB} {{ o = Clip (a, , b) }}",
        "x=a y=b",
        f"{AB} {{ o = Clip (a, c, b) }}",
    ),
    "rest": Term(
        "Concat(x, y, ...)",
        is_op("Concat")(x, y, ...),
        f"{AB} {{ o = Concat <axis = 0> (a, b, c) }}",
        "x=a y=b",
        f"{AB} {{ o = Concat <axis = 0> (a) }}",
    ),
    "rest, empty": Term(
        "Concat(x, ...)",
        is_op("Concat")(x, ...),
        f"{AB} {{ o = Concat <axis = 0> (a) }}",
        "x=a",
        f"{AB} {{ o = Sum (a) }}",
    ),
    "node": Term(
        "Conv(x, y)",
        is_op("Conv")(x, y),
        f"{AB} {{ o = Conv (a, b) }}",
        "x=a y=b",
        f"{AB} {{ o = Conv (a, b, c) }}",
    ),
    "trimmed": Term(
        "Clip(x)",
        is_op("Clip")(x),
        f"{AB} {{ o = Clip (a, , ) }}",
        "x=a",
        f"{AB} {{ o = Clip (a, , b) }}",
    ),
    "domain": Term(
        "com.microsoft.Gelu(x)",
        is_op("Gelu", domain="com.microsoft")(x),
        f"{AB} {{ o = com.microsoft.Gelu (a) }}",
        "x=a",
        f"{AB} {{ o = Gelu (a) }}",
    ),
    "callees": Term(
        "(Add | Sub)(x, Neg(y))",
        (is_op("Add") | is_op("Sub"))(x, -y),
        f"{AB} {{ n = Neg (b) o = Add (n, a) }}",
        "x=a y=b",
        f"{AB} {{ n = Neg (b) o = Sub (n, a) }}",
    ),
    "any op": Term(
        "op()(x, y)",
        is_op()(x, y),
        f"{AB} {{ o = com.microsoft.Foo (a, b) }}",
        "x=a y=b",
        f"{AB} {{ o = com.microsoft.Foo (a) }}",
    ),
    "kind": Term(
        'op(kind="elementwise")(x, ...)',
        is_op(kind="elementwise")(x, ...),
        f"{AB} {{ o = Tanh (a) }}",
        "x=a",
        f"{AB} {{ o = Add (a, b) }}",
    ),
    "kind or op": Term(
        '(op(kind="reduction") | Neg)(x, ...)',
        (is_op(kind="reduction") | is_op("Neg"))(x, ...),
        f"{AB} {{ o = ReduceMax (a) }}",
        "x=a",
        f"{AB} {{ o = Abs (a) }}",
    ),
    "attribute": Term(
        "LeakyRelu(x, alpha=0.01)",
        is_op("LeakyRelu")(x).has_attr({"alpha": 0.01}),
        f"{AB} {{ o = LeakyRelu (a) }}",
        "x=a",
        f"{AB} {{ o = LeakyRelu <alpha = 0.02> (a) }}",
    ),
    "attribute list": Term(
        "Transpose(x, perm=[1, 0])",
        is_op("Transpose")(x, perm=[1, 0]),
        "g (float[2,3] a) => (o) { o = Transpose (a) }",
        "x=a",
        "g (float[2,3] a) => (o) { o = Transpose <perm = [0, 1]> (a) }",
    ),
    "attributes": Term(
        "Neg(LeakyRelu(x, **attrs))",
        -is_op("LeakyRelu")(x).bind_attrs("attrs"),
        f"{AB} {{ r = LeakyRelu <alpha = 0.5> (a) o = Neg (r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) o = Neg (r) }}",
    ),
    "waived": Term(
        "LeakyRelu(x, **_)",
        is_op("LeakyRelu")(x).bind_attrs(),
        f"{AB} {{ o = LeakyRelu <alpha = 0.5> (a) }}",
        "x=a",
        f"{AB} {{ o = Relu (a) }}",
    ),
    "output": Term(
        "Neg(Split(x)[1])",
        -is_op("Split")(x)[1],
        f"{AB} {{ s, t = Split (a) o = Neg (t) }}",
        "x=a",
        f"{AB} {{ s, t = Split (a) o = Neg (s) }}",
    ),
    "bare output": Term(
        "Neg(Split(x))",
        -is_op("Split")(x),
        f"{AB} {{ s, t = Split (a) o = Neg (s) }}",
        "x=a",
        f"{AB} {{ s, t = Split (a) o = Neg (t) }}",
    ),
    "outputs": Term(
        "y, z = Split(x)\nSub(y, z)",
        is_op("Sub")(*_split),
        f"{AB} {{ s, t = Split (a) o = Sub (s, t) }}",
        "x=a y=s z=t",
        f"{AB} {{ s, t = Split (a) o = Sub (t, s) }}",
    ),
    "outputs, blank": Term(
        "y, mean, _ = LayerNormalization(x, z, ...)\nAdd(Relu(mean), y)",
        is_op("Add")(relu(_three[1]), _three[0]),
        f"{NORM} {{ n, m = LayerNormalization (a, s) r = Relu (m) o = Add (n, r) }}",
        "mean=m x=a y=n z=s",
        f"{NORM} {{ n, m = LayerNormalization (a, s) r = Relu (n) o = Add (n, r) }}",
    ),
    "add": Term(
        "x + -y",
        x + -y,
        f"{AB} {{ n = Neg (b) o = Add (n, a) }}",
        "x=a y=b",
        f"{AB} {{ n = Abs (b) o = Add (n, a) }}",
    ),
    "sub": Term(
        "x - y", x - y, f"{AB} {{ o = Sub (a, b) }}", "x=a y=b", f"{AB} {{ o = Add (a, b) }}"
    ),
    "mul": Term(
        "x * -y",
        x * -y,
        f"{AB} {{ n = Neg (b) o = Mul (n, a) }}",
        "x=a y=b",
        f"{AB} {{ n = Neg (b) o = Add (n, a) }}",
    ),
    "div": Term(
        "x / y", x / y, f"{AB} {{ o = Div (a, b) }}", "x=a y=b", f"{AB} {{ o = Mul (a, b) }}"
    ),
    "matmul": Term(
        "x @ y", x @ y, f"{AB} {{ o = MatMul (a, b) }}", "x=a y=b", f"{AB} {{ o = Gemm (a, b) }}"
    ),
    "pow": Term(
        "x ** 2", x**2, f"{K} {{ o = Pow (a, two) }}", "x=a", f"{K} {{ o = Pow (two, a) }}"
    ),
    "neg": Term("-x", -x, f"{AB} {{ o = Neg (a) }}", "x=a", f"{AB} {{ o = Abs (a) }}"),
    "number": Term(
        "Add(x, 2.0)", x + 2.0, f"{K} {{ o = Add (two, a) }}", "x=a", f"{K} {{ o = Add (a, k) }}"
    ),
    "number left": Term(
        "2.0 - x", 2.0 - x, f"{K} {{ o = Sub (two, a) }}", "x=a", f"{K} {{ o = Sub (a, two) }}"
    ),
    "number as const": Term(
        "Add(x, 2.0)",
        is_op("Add")(x, is_const(value=2.0)),
        f"{K} {{ o = Add (two, a) }}",
        "x=a",
        f"{K} {{ o = Add (b, a) }}",
    ),
    "constant": Term(
        "Sub(x, const())",
        x - is_const(),
        f"{K} {{ o = Sub (a, k) }}",
        "x=a",
        f"{K} {{ o = Sub (a, b) }}",
    ),
    "named constant": Term(
        "Sub(const(w), const(w))",
        w - w,
        f"{K} {{ o = Sub (k, k) }}",
        "w=k",
        f"{K} {{ o = Sub (k, two) }}",
    ),
    "exact": Term(
        'Sub(x, is_value([2.0, 3.0], dtype="float32"))',
        x - is_value(np.array([2, 3], np.float32)),
        f"{K} {{ o = Sub (a, k) }}",
        "x=a",
        f"{K} {{ o = Sub (a, two) }}",
    ),
    "input": Term(
        'Sub(input("a"), y)',
        is_input("a") - y,
        f"{AB} {{ o = Sub (a, b) }}",
        "a=a y=b",
        f"{AB} {{ o = Sub (b, a) }}",
    ),
    "any input": Term(
        "Sub(input(), y)",
        is_input() - y,
        f"{K} {{ o = Sub (a, k) }}",
        "y=k",
        f"{K} {{ o = Sub (k, a) }}",
    ),
    "or": Term(
        "Neg(Relu(x) | Tanh(x))",
        -(relu(x) | is_op("Tanh")(x)),
        f"{AB} {{ t = Tanh (a) o = Neg (t) }}",
        "x=a",
        f"{AB} {{ t = Abs (a) o = Neg (t) }}",
    ),
    "and": Term(
        "Neg(Relu(x) & z)",
        -(relu(x) & z),
        f"{AB} {{ t = Relu (a) o = Neg (t) }}",
        "x=a z=t",
        f"{AB} {{ t = Abs (a) o = Neg (t) }}",
    ),
    "not": Term(
        "Neg(~Relu(_))",
        -~relu(wildcard()),
        f"{AB} {{ t = Abs (a) o = Neg (t) }}",
        "",
        f"{AB} {{ t = Relu (a) o = Neg (t) }}",
    ),
    "not, shared": Term(
        "Add(x, ~x)",
        is_op("Add")(x, ~x),
        f"{AB} {{ o = Add (a, b) }}",
        "x=a",
        f"{AB} {{ o = Add (a, a) }}",
    ),
    "not, later": Term(
        "Sub(~x, x)",
        is_op("Sub")(~x, x),
        f"{AB} {{ o = Sub (a, b) }}",
        "x=b",
        f"{AB} {{ o = Sub (a, a) }}",
    ),
    "optional": Term(
        "Neg(optional(Relu)(Abs(x)))",
        -is_op("Abs")(x).optional(relu),
        f"{AB} {{ t = Abs (a) r = Relu (t) o = Neg (r) }}",
        "x=a",
        f"{AB} {{ t = Abs (a) r = Tanh (t) o = Neg (r) }}",
    ),
    "optional, out": Term(
        "Neg(optional(Relu)(Abs(x)))",
        -is_op("Abs")(x).optional(relu),
        f"{AB} {{ t = Abs (a) o = Neg (t) }}",
        "x=a",
        f"{AB} {{ t = Relu (a) o = Neg (t) }}",
    ),
    "optional, more": Term(
        "Neg(optional(Add)(Abs(x), const(b)))",
        -is_op("Abs")(x).optional(lambda p: is_op("Add")(p, b)),
        f"{K} {{ t = Abs (a) r = Add (k, t) o = Neg (r) }}",
        "b=k x=a",
        f"{K} {{ t = Abs (a) r = Add (b, t) o = Neg (r) }}",
    ),
    "dominates": Term(
        "dominates(Relu(x), Neg(_), Add(_, _))",
        dominates(relu(x), -wildcard(), is_op("Add")(wildcard(), wildcard())),
        f"{AB} {{ r = Relu (a) n = Neg (r) o = Add (n, r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) n = Abs (r) o = Add (n, r) }}",
    ),
    "dominates, method": Term(
        "Add(_, _).dominates(Relu(x), Neg(_))",
        is_op("Add")(wildcard(), wildcard()).dominates(relu(x), -wildcard()),
        f"{AB} {{ r = Relu (a) n = Neg (r) o = Add (n, r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) n = Neg (r) n2 = Neg (r) o = Add (n, r) }}",
    ),
    "dominates, any path": Term(
        "Add(_, _).dominates(Relu(x))",
        is_op("Add")(wildcard(), wildcard()).dominates(relu(x)),
        f"{AB} {{ r = Relu (a) n = Abs (r) o = Add (n, r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) n = Neg (b) o = Add (n, r) }}",
    ),
    "repeat": Term(
        "Neg(repeat(Tanh, x, min=2, max=3))",
        -repeat("Tanh", x, min=2, max=3),
        f"{AB} {{ r = Tanh (a) s = Tanh (r) o = Neg (s) }}",
        "x=a",
        f"{AB} {{ r = Tanh (a) o = Neg (r) }}",
    ),
    "repeat none": Term(
        "Neg(repeat(Tanh, Abs(x)))",
        -repeat("Tanh", is_op("Abs")(x)),
        f"{AB} {{ r = Abs (a) o = Neg (r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) o = Neg (r) }}",
    ),
    "repeat more": Term(
        "repeat(Sub, Neg(x), const(w), min=1)",
        repeat("Sub", -x, w, min=1),
        f"{K} {{ n = Neg (a) s = Sub (n, k) o = Sub (s, two) }}",
        "x=a",
        f"{K} {{ n = Neg (a) s = Sub (n, b) o = Sub (s, two) }}",
    ),
    "repeat attribute": Term(
        "repeat(LeakyRelu, -x, min=1, alpha=0.5)",
        repeat("LeakyRelu", -x, min=1, alpha=0.5),
        f"{K} {{ n = Neg (a) o = LeakyRelu <alpha = 0.5> (n) }}",
        "x=a",
        f"{K} {{ n = Neg (a) o = LeakyRelu (n) }}",
    ),
    "repeat steps": Term(
        "Neg(repeat(Tanh(Abs(_)), x, min=2))",
        -repeat(is_op("Tanh")(is_op("Abs")(wildcard())), x, min=2),
        f"{AB} {{ p = Abs (a) q = Tanh (p) r = Abs (q) s = Tanh (r) o = Neg (s) }}",
        "x=a",
        f"{AB} {{ p = Abs (a) r = Abs (p) s = Tanh (r) o = Neg (s) }}",
    ),
    "repeat steps by name": Term(
        "repeat(Sub(Tanh(h), h), h=-x, min=1)",
        repeat(is_op("Sub")(is_op("Tanh")(h), h), h=-x, min=1),
        f"{AB} {{ n = Neg (a) t = Tanh (n) o = Sub (t, n) }}",
        "x=a",
        f"{AB} {{ n = Neg (a) t = Tanh (n) o = Sub (t, a) }}",
    ),
    "dtype": Term(
        'Neg(x.has_dtype("float16", "float32"))',
        -x.has_dtype("float16", "float32"),
        f"{AB} {{ o = Neg (a) }}",
        "x=a",
        "g (int64[2] a) => (o) { o = Neg (a) }",
    ),
    "shape": Term(
        "Neg(x.has_shape(1, _, n, n))",
        -x.has_shape(1, None, "n", "n"),
        "g (float[1,3,5,5] a) => (o) { o = Neg (a) }",
        "x=a",
        "g (float[1,3,5,6] a) => (o) { o = Neg (a) }",
    ),
    "rank": Term(
        "Neg(x.has_rank(1, 4))",
        -x.has_rank(1, 4),
        f"{AB} {{ o = Neg (a) }}",
        "x=a",
        "g (float[2,2] a) => (o) { o = Neg (a) }",
    ),
    "type": Term(
        'Sub(x.has_type("float32[n, 4]"), y.has_shape(n))',
        is_op("Sub")(x.has_type("float32[n, 4]"), y.has_shape("n")),
        "g (float[3,4] a, float[3] b) => (o) { o = Sub (a, b) }",
        "x=a y=b",
        "g (float[3,4] a, float[4] b) => (o) { o = Sub (a, b) }",
    ),
    "same shape": Term(
        "Sub(same_shape(x, y), y)",
        is_op("Sub")(x.same_shape_as(y), y),
        f"{AB} {{ o = Sub (a, b) }}",
        "x=a y=b",
        "g (float[2] a, float[1] b) => (o) { o = Sub (a, b) }",
    ),
    "same shape, method": Term(
        "Sub(x, y.same_shape_as(x))",
        is_op("Sub")(x, y.same_shape_as(x)),
        "g (float[N] a, float[N] b) => (o) { o = Sub (a, b) }",
        "x=a y=b",
        "g (float[N] a, float[M] b) => (o) { o = Sub (a, b) }",
    ),
    "same shape, unknown": Term(
        "Sub(same_shape(x, y), y)",
        is_op("Sub")(x.same_shape_as(y), y),
        f"{AB} {{ r = Relu (a) o = Sub (r, b) }}",
        "x=r y=b",
        "g (float[?] a, float[?] b) => (o) { o = Sub (a, b) }",
    ),
    "unordered": Term(
        "Concat(unordered(const(w), Neg(x), y))",
        is_op("Concat")(unordered(w, -x, y)),
        f"{K} {{ n = Neg (a) o = Concat <axis = 0> (n, b, k) }}",
        "w=k x=a y=b",
        f"{K} {{ n = Abs (a) o = Concat <axis = 0> (n, b, k) }}",
    ),
    "unordered rest": Term(
        "Concat(unordered(const(w), Neg(x)), ...)",
        is_op("Concat")(unordered(w, -x), ...),
        f"{K} {{ n = Neg (a) o = Concat <axis = 0> (n, b, k) }}",
        "w=k x=a",
        f"{K} {{ n = Neg (a) o = Concat <axis = 0> (n, b, a) }}",
    ),
    "used by": Term(
        "Relu(x).used_by(Neg(_))",
        relu(x).used_by(-wildcard()),
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Neg (r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Neg (t) }}",
    ),
    "used by, sign": Term(
        "Relu(x) ^ Neg(_)",
        relu(x) ^ -wildcard(),
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Neg (r) }}",
        "x=a",
        f"{AB} {{ r = Abs (a) o = Neg (r) }}",
    ),
    "used by, slot": Term(
        "Relu(x).used_by(Sub(_, _), 1)",
        relu(x).used_by(is_op("Sub")(wildcard(), wildcard()), 1),
        f"{AB} {{ r = Relu (a) o = Sub (b, r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) o = Sub (r, b) }}",
    ),
    "used by, index": Term(
        "Relu(x).used_by(Sub(_, _), index=0)",
        relu(x).used_by(is_op("Sub")(wildcard(), wildcard()), index=0),
        f"{AB} {{ r = Relu (a) o = Sub (r, b) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) o = Sub (b, r) }}",
    ),
    "only used by": Term(
        "Relu(x).only_used_by(Sub(_, _))",
        relu(x).only_used_by(is_op("Sub")(wildcard(), wildcard())),
        f"{AB} {{ r = Relu (a) o = Sub (r, r) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Sub (r, r) }}",
    ),
    "only used by, returned": Term(
        "Relu(x) >> Neg(_)",
        relu(x) >> -wildcard(),
        f"{AB} {{ r = Relu (a) o = Neg (r) }}",
        "x=a",
        "g (float[2] a) => (r, o) { r = Relu (a) o = Neg (r) }",
    ),
    "chain of edges": Term(
        "Relu(x) ^ Tanh(_) ^ Neg(_)",
        relu(x) ^ is_op("Tanh")(wildcard()) ^ -wildcard(),
        f"{AB} {{ r = Relu (a) t = Tanh (r) o = Neg (t) }}",
        "x=a",
        f"{AB} {{ r = Relu (a) t = Tanh (b) o = Neg (t) }}",
    ),
    "if": Term(
        "if_(y, Relu(x), Neg(x))",
        is_if(y, relu(x), -x),
        IF.replace("THEN", "Neg"),
        "x=a y=c",
        IF.replace("THEN", "Abs"),
    ),
    "call": Term(
        'call("f", x)',
        is_call("f")(x),
        CALL.replace("BODY", "Relu"),
        "x=a",
        CALL.replace("BODY", "Relu").replace("f (", "g2 ("),
    ),
    "call, domain": Term(
        'call("local::f", x)',
        is_call("local::f")(x),
        CALL.replace("BODY", "Relu"),
        "x=a",
        CALL.replace("BODY", "Relu").replace("local", "other"),
    ),
    "function": Term(
        "function([y], Relu(y))(x)",
        is_function([y], relu(y))(x),
        CALL.replace("BODY", "Relu"),
        "x=a y=u",
        CALL.replace("BODY", "Abs"),
    ),
    "function, any": Term(
        "function(..., Relu(_))(x)",
        is_function(None, relu(wildcard()))(x),
        CALL.replace("BODY", "Relu"),
        "x=a",
        CALL.replace("BODY", "Abs"),
    ),
    "line": Term(
        "r = Relu(x)\nAdd(r, Tanh(r))",
        is_op("Add")(_shared.named("r"), wildcard()),
        f"{AB} {{ s = Relu (a) t = Tanh (s) o = Add (t, s) }}",
        "r=s x=a",
        f"{AB} {{ s = Relu (a) s2 = Relu (a) t = Tanh (s2) o = Add (t, s) }}",
    ),
    "several outputs": Term(
        "Neg(x), Tanh(x)",
        outputs(-x, is_op("Tanh")(x)),
        "g (float[2] a, float[2] b) => (o, p) { o = Neg (a) p = Tanh (a) }",
        "x=a",
        "g (float[2] a, float[2] b) => (o, p) { o = Neg (a) p = Tanh (b) }",
    ),
}
_named = _shared.named("r")
TERMS["line"] = TERMS["line"]._replace(python=is_op("Add")(_named, is_op("Tanh")(_named)))


def preferred(pattern: str | DFPattern, text: str) -> str | None:
    """Return what the preferred match at the node that makes ``o`` binds; None if there is none."""
    found = find_solutions(pattern, model_from_text(text))
    return next((str(solution) for solution in found if solution.root == "o"), None)


@pytest.mark.parametrize("name", TERMS)
def test_term_matches(name: str) -> None:
    """Each term of the language matches what it says, in both spellings."""
    term = TERMS[name]
    assert preferred(term.text, term.graph) == term.bindings
    assert preferred(term.python, term.graph) == term.bindings


@pytest.mark.parametrize("name", TERMS)
def test_term_does_not_match_a_near_miss(name: str) -> None:
    """And it does not match what differs in one point."""
    term = TERMS[name]
    assert preferred(term.text, term.near_miss) is None
    assert preferred(term.python, term.near_miss) is None


@pytest.mark.parametrize("name", TERMS)
def test_both_spellings_are_equal(name: str) -> None:
    """What Python builds equals what the text reads, is hashed and printed alike."""
    term = TERMS[name]
    read = pattern_of(term.text)
    assert read == term.python
    assert hash(read) == hash(term.python)
    assert repr(read) == repr(term.python)
    assert pattern_of(repr(read)) == read
    assert repr(pattern_of(repr(read))) == repr(read)


def test_attributes_are_bound_by_name() -> None:
    """``**attrs`` binds what is not named, also after the search has gone back over it."""
    model = model_from_text(
        f"""{AB} {{ p = LeakyRelu <alpha = 0.5> (a) q = LeakyRelu <alpha = 0.25> (b)
            o = Sub (q, p) }}"""
    )
    for text in ("Sub(LeakyRelu(x, **k), y)", "LeakyRelu(x, **k) ^ Sub(_, _)"):
        matcher = Matcher(pattern_of(text))
        (root,) = (node for node in model.graph if node.op_type == "Sub")
        bound = [
            matcher.program.bound_attributes(state.slots)["k"]["alpha"].value
            for state in matcher.solutions(root)
        ]
        assert bound[0] == 0.25


def test_going_back_over_bound_attributes_is_no_crash() -> None:
    """A node whose attributes are bound may have to be given up again."""
    text = f"{AB} {{ p = LeakyRelu <alpha = 0.5> (a) q = LeakyRelu (b) o = Add (p, q) }}"
    assert preferred("Add(LeakyRelu(Neg(x) | x, **k), LeakyRelu(Neg(y), **j))", text) is None
    assert preferred("Add(LeakyRelu(x, **k), LeakyRelu(x, **j))", text) is None
    assert preferred("Add(LeakyRelu(x, **k), LeakyRelu(y, **k))", text) is None


# -- names -----------------------------------------------------------------------------------


def test_labels_bind_nothing() -> None:
    """A name with an underscore in front labels one pattern, or one value, and binds nothing."""
    pattern = "_1 = Relu(x)\n_2 = _1 + _1\n-_2"
    text = f"{AB} {{ r = Relu (a) s = Add (r, r) o = Neg (s) }}"
    assert preferred(pattern, text) == "x=a"
    assert preferred(pattern, text.replace("Add (r, r)", "Add (r, b)")) is None
    assert preferred("Sub(_k, _k)", f"{AB} {{ o = Sub (a, a) }}") == ""
    assert preferred("Sub(_k, _k)", f"{AB} {{ o = Sub (a, b) }}") is None
    assert bound_names(pattern_of(pattern)) == {"x"}


def test_blanks_in_a_tuple_may_stand_anywhere() -> None:
    """Any output may be left without a name."""
    text = f"{AB} {{ s, t, u = Split (a) o = Neg (u) }}"
    assert preferred("_, _, z = Split(x)\nNeg(z)", text) == "x=a z=u"
    assert preferred("_, _p, z = Split(x)\nNeg(z)", text) == "x=a z=u"
    assert preferred("y, _, _p = Split(x)\nNeg(_p)", text) == "x=a y=s"
    assert preferred("y, _, _p = Split(x)\nNeg(y)", text) is None


HIDDEN = [
    ("Add(x, ~Relu(h))", "h"),
    ("h = Relu(x)\nAdd(x, ~h)", "h"),
    ("Add(x, ~(x & Relu(h)))", "h"),
    ("Add(x, ~input('h'))", "h"),
    ("Add(x, ~~Relu(h))", "h"),
    ("repeat(Add, x, h)", "h"),
    ("repeat(Add, x, const(h), min=1)", "h"),
    ("repeat(Add, x, Relu(h), max=3)", "h"),
    ("dominates(Relu(x), Add(_, h), Neg(_))", "h"),
    ("h = Neg(_)\ndominates(Relu(x), h, Neg(_))", "h"),
    ("Add(x, ~repeat(Relu, h))", "h"),
    ("h, _ = Split(x)\nAdd(x, ~h)", "h"),
]


@pytest.mark.parametrize(("pattern", "name"), HIDDEN)
def test_hidden_names_are_not_bound(pattern: str, name: str) -> None:
    """What is named only in a negation, a path or a repeated part has no value to ask about."""
    assert name not in bound_names(pattern_of(pattern))
    assert "x" in bound_names(pattern_of(pattern))
    rule(pattern, "x.rank == 1")
    with pytest.raises(PatternSyntaxError, match=f"'{name}'"):
        rule(pattern, f"{name}.rank == 1")


def test_hidden_names_do_not_show_in_a_match() -> None:
    """Nor does the match mention them."""
    text = f"{K} {{ r = Relu (a) s = Add (r, k) o = Neg (s) }}"
    assert preferred("Neg(repeat(Add, Relu(x), const(h), min=1))", text) == "x=a"
    assert preferred("dominates(Relu(x), Add(_, h), Neg(_))", text) == "x=a"
    assert preferred("Neg(~Relu(h) & y)", text) == "y=s"


def test_a_name_hidden_in_one_place_and_bound_in_another() -> None:
    """A name that is also bound outside may be asked about, and is the same value inside."""
    pattern = "Sub(Add(x, ~Relu(y)), y)"
    rule(pattern, "y.rank == 1")
    text = f"{AB} {{ r = Relu (b) s = Add (a, r) o = Sub (s, c) }}"
    assert preferred(pattern, text.replace("(s, c)", "(s, b)")) == "x=r y=b"
    assert preferred(pattern.replace("x, ~", "Neg(_), ~"), text) is None
    assert preferred("Sub(Sub(x, ~Relu(y)), y)", text.replace("Add", "Sub")) == "x=a y=c"
    near = text.replace("Add", "Sub").replace("(s, c)", "(s, b)")
    assert preferred("Sub(Sub(x, ~Relu(y)), y)", near) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "Sub(repeat(Add, x, h), h)",
        "Sub(h, repeat(Add, x, Relu(h)))",
        "Sub(dominates(Relu(x), Add(_, h), Neg(_)), h)",
        "dominates(Relu(h), Add(_, h), Neg(_))",
        "dominates(Relu(x), Add(_, h), Neg(h))",
        "repeat(Add, h, h)",
        "r = Relu(_)\nSub(repeat(Add, x, r), r)",
        "Sub(repeat(Add, x, y.has_shape(n)), z.has_shape(n))",
        "Sub(repeat(LeakyRelu, x, **k), LeakyRelu(y, **k))",
    ],
)
def test_what_is_matched_anew_each_time_is_not_shared(pattern: str) -> None:
    """A name in a path or a repeated part that is also used outside is refused."""
    with pytest.raises(PatternSyntaxError):
        pattern_of(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "w = Relu(x)\nAdd(w, const(w))",
        "r = Relu(const(w))\nw = Neg(r)\nw",
        "r = Relu(input('w'))\nw = Neg(r)\nw",
        "k = LeakyRelu(x, **k)\nk",
        "Add(LeakyRelu(x, **k), k)",
        "y, z = Split(x)\nAdd(y, const(z))",
    ],
)
def test_one_name_is_not_two_things(pattern: str) -> None:
    """A name binds one value: two patterns cannot have the same one."""
    with pytest.raises(PatternSyntaxError):
        pattern_of(pattern)


# -- misuse ----------------------------------------------------------------------------------

MISUSE = [
    # (text, culprit): the error must point into the culprit, which stands once in the text
    ("Relu()", "Relu()"),
    ("Relu(x, y)", "Relu(x, y)"),
    ("Relu(x, y=1)", "Relu(x, y=1)"),
    ("Rleu(x)", "Rleu"),
    ("Conv(x, w, gruop=1)", "Conv(x, w, gruop=1)"),
    ("Conv(x, w, group=g[0])", "g[0])"),
    ("Conv(x, w, group=None)", "None"),
    ("Conv(x, w, group=True)", "True"),
    ("Conv(x, w, **{1: 2})", "1"),
    ("Conv(x, w, **'a')", "'a'"),
    ("Conv(x, w, **a, **b)", "b"),
    ("Conv(x, w, group=1, group=2)", "2"),
    ("Conv(x, *w[0])", "*w[0]"),
    ("Conv(x, ..., w)", "..."),
    ("Conv(x, w, True)", "True"),
    ("Conv(x, w, 'b')", "'b'"),
    ("Conv(x, w, b'b')", "b'b'"),
    ("Conv(x, w, 1j)", "1j"),
    ("-True", "True"),
    ("-'a'", "'a'"),
    ("~True", "True"),
    ("not x", "not x"),
    ("+x", "+x"),
    ("x // y", "x // y"),
    ("x % y", "x % y"),
    ("x << y", "x << y"),
    ("x == y", "x == y"),
    ("x and y", "x and y"),
    ("(Relu | x)(y)", "x"),
    ("(Relu & Neg)(y)", "Relu & Neg"),
    ("(Relu, Neg)(y)", "(Relu, Neg)(y)"),
    ("'Relu'(y)", "'Relu'"),
    ("op(x)", "op(x)"),
    ("op()", "op()"),
    ("op('Relu')(x)", "op('Relu')"),
    ("op(kind='bogus')(x)", "op(kind='bogus')"),
    ("op(kind=elementwise)(x)", "elementwise"),
    ("op(kind=1)(x)", "1"),
    ("op(kinds='opaque')(x)", "op(kinds='opaque')"),
    ("op(kind='opaque', kind='reduction')(x)", "op(kind='opaque', kind='reduction')"),
    ("op(**k)(x)", "op(**k)"),
    ("const(1)", "1"),
    ("const('w')", "'w'"),
    ("const(x, y)", "const(x, y)"),
    ("const(name=x)", "const(name=x)"),
    ("const(_w)", "const(_w)"),
    ("const(Relu(x))", "Relu(x)"),
    ("input(x)", "x"),
    ("input(1)", "1"),
    ("input('a', 'b')", "input('a', 'b')"),
    ("input(name='a')", "input(name='a')"),
    ("is_value()", "is_value()"),
    ("is_value(x)", "x"),
    ("is_value(1, 2)", "is_value(1, 2)"),
    ("is_value([[1], [2, 3]])", "is_value([[1], [2, 3]])"),
    ("is_value(1, dtype='flaot32')", "is_value(1, dtype='flaot32')"),
    ("is_value(1, dtype=float32)", "float32"),
    ("is_value(1, dtype='U8')", "is_value(1, dtype='U8')"),
    ("is_value(1, dtype='object')", "is_value(1, dtype='object')"),
    ("is_value(1, dtype='datetime64')", "is_value(1, dtype='datetime64')"),
    ("is_value(1, type='int64')", "is_value(1, type='int64')"),
    ("is_value(1, shape=[2])", "is_value(1, shape=[2])"),
    ("is_value(1, shape='a')", "is_value(1, shape='a')"),
    ("is_value({})", "is_value({})"),
    ("is_value({1: 2})", "is_value({1: 2})"),
    ("is_value({1, 2})", "is_value({1, 2})"),
    ("is_value(None)", "is_value(None)"),
    ("is_value([1, None])", "is_value([1, None])"),
    ("is_value(...)", "is_value(...)"),
    ("is_value(99999999999999999999999)", "is_value(99999999999999999999999)"),
    ("is_value(300, dtype='uint8')", "is_value(300, dtype='uint8')"),
    ("is_value(1.5, dtype='int64')", "is_value(1.5, dtype='int64')"),
    ("same_shape(x)", "same_shape(x)"),
    ("same_shape(x, y, z)", "same_shape(x, y, z)"),
    ("same_shape(x, other=y)", "same_shape(x, other=y)"),
    ("same_shape(x, y)", "same_shape(x, y)"),
    ("x.same_shape_as()", "x.same_shape_as()"),
    ("x.same_shape_as(y, z)", "x.same_shape_as(y, z)"),
    ("dominates(x, y)", "dominates(x, y)"),
    ("dominates(x, y, z, v)", "dominates(x, y, z, v)"),
    ("dominates(parent=x)", "dominates(parent=x)"),
    ("dominates(x, y, Rleu(z))", "Rleu"),
    ("x.dominates()", "x.dominates()"),
    ("x.dominates(y, z, v)", "x.dominates(y, z, v)"),
    ("x.dominates(y, path=z)", "x.dominates(y, path=z)"),
    ("repeat()", "repeat()"),
    ("repeat(Relu)", "repeat(Relu)"),
    ("repeat('Relu', x)", "'Relu'"),
    ("repeat(Relu(x), x)", "Relu(x)"),
    ("repeat(Rleu, x)", "Rleu"),
    ("repeat(Relu, x, y)", "repeat(Relu, x, y)"),
    ("repeat(Relu, x, min=-1)", "-1"),
    ("repeat(Relu, x, min=1.5)", "1.5"),
    ("repeat(Relu, x, max='a')", "'a'"),
    ("repeat(Relu, x, max=True)", "True"),
    ("repeat(Relu, x, min=3, max=2)", "repeat(Relu, x, min=3, max=2)"),
    ("repeat(Relu, x, min=1, min=2)", "repeat(Relu, x, min=1, min=2)"),
    ("repeat(Relu, x, least=1)", "repeat(Relu, x, least=1)"),
    ("repeat(Relu, ...)", "..."),
    ("if_(x, y)", "if_(x, y)"),
    ("if_(x, y, z, v)", "if_(x, y, z, v)"),
    ("if_(x, y, otherwise=z)", "if_(x, y, otherwise=z)"),
    ("if_((x, x), y, z)", "(x, x)"),
    ("if_(x, [y], z)", "[y]"),
    ("if_(x, y, Rleu(z))", "Rleu"),
    ("call()", "call()"),
    ("call(f, x)", "f,"),
    ("call(1, x)", "1"),
    ("function([x], y)", "function([x], y)"),
    ("function([x])(z)", "function([x])"),
    ("function(x, y)(z)", "x,"),
    ("function([x], y, metadata=1)(z)", "1"),
    ("function([x], y, metadata={'a': 1})(z)", "{'a': 1}"),
    ("function([x], y, name='f')(z)", "function([x], y, name='f')"),
    ("function([Rleu(x)], y)(z)", "Rleu"),
    ("unordered(x, y)", "unordered(x, y)"),
    ("Concat(unordered(x), y)", "unordered(x)"),
    ("Concat(unordered(x, key=y))", "unordered(x, key=y)"),
    ("Neg(unordered(x, y))", "Neg(unordered(x, y))"),
    ("optional(Relu)", "optional(Relu)"),
    ("optional(Relu)()", "optional(Relu)()"),
    ("optional()(x)", "optional()(x)"),
    ("optional(Relu, Neg)(x)", "optional(Relu, Neg)(x)"),
    ("optional(op=Relu)(x)", "optional(op=Relu)(x)"),
    ("optional(Relu)(x, y)", "optional(Relu)(x, y)"),
    ("optional(x)(x)", "(x)("),
    ("optional(Rleu)(x)", "Rleu"),
    ("x.has_dtype()", "x.has_dtype()"),
    ("x.has_dtype(float32)", "float32"),
    ("x.has_dtype('flaot32')", "x.has_dtype('flaot32')"),
    ("x.has_dtype('float32', strict=1)", "x.has_dtype('float32', strict=1)"),
    ("x.has_rank()", "x.has_rank()"),
    ("x.has_rank(1.5)", "1.5"),
    ("x.has_rank('a')", "'a'"),
    ("x.has_rank(-1)", "-1"),
    ("x.has_rank(True)", "True"),
    ("x.has_rank(rank=1)", "x.has_rank(rank=1)"),
    ("x.has_shape(1.5)", "1.5"),
    ("x.has_shape(-1)", "-1"),
    ("x.has_shape('n')", "'n'"),
    ("x.has_shape(n + 1)", "n + 1"),
    ("x.has_shape([1, 2])", "[1, 2]"),
    ("x.has_shape(None)", "None"),
    ("x.has_shape(n, n=1)", "x.has_shape(n, n=1)"),
    ("x.has_type()", "x.has_type()"),
    ("x.has_type(float32)", "float32"),
    ("x.has_type('float32', 'n')", "x.has_type('float32', 'n')"),
    ("x.has_type('flaot32[n]')", "x.has_type('flaot32[n]')"),
    ("x.has_type('float32[n')", "x.has_type('float32[n')"),
    ("x.has_type('float32[-1]')", "x.has_type('float32[-1]')"),
    ("x.has_type('float32[n+1]')", "x.has_type('float32[n+1]')"),
    ("x.has_type('float32[,]')", "x.has_type('float32[,]')"),
    ("x.has_type('')", "x.has_type('')"),
    ("x.has_type('float32', strict=1)", "x.has_type('float32', strict=1)"),
    ("x.used_by()", "x.used_by()"),
    ("x.used_by(y, -1)", "-1"),
    ("x.used_by(y, z)", "z"),
    ("x.used_by(y, 0, 1)", "x.used_by(y, 0, 1)"),
    ("x.used_by(y, 0, index=1)", "x.used_by(y, 0, index=1)"),
    ("x.used_by(y, index=0, index=1)", "x.used_by(y, index=0, index=1)"),
    ("x.used_by(y, slot=1)", "x.used_by(y, slot=1)"),
    ("x.used_by(other=y)", "x.used_by(other=y)"),
    ("x.only_used_by()", "x.only_used_by()"),
    ("x.only_used_by(y, only=1)", "x.only_used_by(y, only=1)"),
    ("x.has_rnk(4)", "x.has_rnk"),
    ("x.is_constant()", "x.is_constant"),
    ("x.has_quantum(2)", "x.has_quantum"),
    ("x.fork_to(y)", "x.fork_to"),
    ("x.optional(Relu)", "x.optional"),
    ("x.named('y')", "x.named"),
    ("x.match(y)", "x.match"),
    ("x.has_attr(y)", "x.has_attr"),
    ("Relu(x).bogus(1)", "Relu(x).bogus"),
    ("Relu(x).name", "Relu(x).name"),
    ("x.name", "x.name"),
    ("x.has_rank", "x.has_rank"),
    ("x[0]", "x[0]"),
    ("Split(x)[-1]", "-1"),
    ("Split(x)[y]", "y"),
    ("Split(x)[True]", "True"),
    ("Split(x)[0:1]", "0:1"),
    ("Split(x)[0, 1]", "0, 1"),
    ("Split(x)[0][1]", "Split(x)[0][1]"),
    ("(Relu(x) | y)[1]", "(Relu(x) | y)[1]"),
    ("(v := x)", "v := x"),
    ("x if y else z", "x if y else z"),
    ("[v for v in x]", "[v for v in x]"),
    ("{v: v for v in x}", "{v: v for v in x}"),
    ("lambda: x", "lambda: x"),
    ("f'{x}'", "f'{x}'"),
    ("().__class__", "().__class__"),
]
CONTEXTS = ["{}", "é = Relu(q)\nSub(é, ~({}))"]


@pytest.mark.parametrize("context", CONTEXTS, ids=["alone", "inside"])
@pytest.mark.parametrize(("text", "culprit"), MISUSE, ids=[text for text, _ in MISUSE])
def test_misuse_is_refused_where_it_stands(text: str, culprit: str, context: str) -> None:
    """A word used wrongly is an error that points at what is wrong with it."""
    whole = context.format(text)
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(whole, SCHEMAS)
    error = caught.value
    lines = whole.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 0 <= error.column <= len(lines[error.line - 1])
    assert error.message
    assert culprit in text
    number = next(i for i, line in enumerate(lines, start=1) if text in line)
    start = lines[number - 1].index(text) + text.index(culprit)
    assert error.line == number
    assert start <= error.column < start + len(culprit), (error.column, error.message)


STATEMENTS = [
    ("y, y = Split(x)\ny", 1, "y, y"),
    ("_, _ = Split(x)\nRelu(x)", 1, "_, _"),
    ("y, x = Split(x)\ny", 1, "y, x"),
    ("y, z = x\ny", 1, "x"),
    ("y, z = Relu(x) | Neg(x)\ny", 1, "Relu(x) | Neg(x)"),
    ("y, *z = Split(x)\ny", 1, "*z"),
    ("y, z.w = Split(x)\ny", 1, "z.w"),
    ("y, (z, v) = Split(x)\ny", 1, "(z, v)"),
    ("[y, z] = Split(x)\ny", 1, "[y, z]"),
    ("y, Relu = Split(x)\ny", 1, "Relu"),
    ("y, z = Split(x)\nz, v = Split(y)\nv", 2, "z"),
    ("y[0] = Relu(x)\ny", 1, "y[0]"),
    ("y: 1 = Relu(x)\ny", 1, "y: 1 = Relu(x)"),
    ("y = z = Relu(x)\ny", 1, "y = z = Relu(x)"),
    ("Relu(x)\nNeg(x)", 1, "Relu(x)"),
    ("y = Relu(x)", 1, "y = Relu(x)"),
    ("y, z = Split(x)", 1, "y, z = Split(x)"),
    ("Relu(x), Relu = 1\nx", 1, "Relu(x), Relu = 1"),
    ("pass\nx", 1, "pass"),
    ("if x: y\nx", 1, "if x: y"),
    ("with x: y\nx", 1, "with x: y"),
    ("class x: y\nx", 1, "class x: y"),
    ("return x\nx", 1, "return x"),
    ("raise x\nx", 1, "raise x"),
    ("from os import path\nx", 1, "from os import path"),
    ("match x:\n case y: z\nx", 1, "match x:"),
    ("type = Relu(x)\nRleu(type)", 2, "Rleu"),
    ("Neg(x), (Relu(x), Tanh(x))", 1, "(Relu(x), Tanh(x))"),
    ("y = (Neg(x), Tanh(x))\ny", 1, "(Neg(x), Tanh(x))"),
]


@pytest.mark.parametrize(("text", "line", "culprit"), STATEMENTS)
def test_misuse_of_lines(text: str, line: int, culprit: str) -> None:
    """A line that assigns nothing sensible is refused where it stands."""
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(text, SCHEMAS)
    shown = text.split("\n")[line - 1]
    start = shown.index(culprit)
    assert caught.value.line == line
    assert start <= caught.value.column < start + len(culprit), caught.value.message


@pytest.mark.parametrize(
    "odd", ["\u2028", "\x0c", "\x0b", "\x1c", "\x85", "é\U0001f600", "\r", "\r\n"]
)
def test_place_of_an_error_after_odd_characters(odd: str) -> None:
    """Only what ends a line in Python ends a line: the column is counted in the right one."""
    text = f"# {odd}# b\nAdd(é, Rleu(x))"
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(text, SCHEMAS)
    assert (caught.value.line, caught.value.column) == (3 if "\r" in odd else 2, 7)


# -- in Python -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        x + np.float64(2.5),
        is_op("Add")(x, is_const(value=np.float64(2.5))),
        is_op("Add")(x, is_const(value=float("inf"))),
        is_op("Add")(x, is_const(value=-0.0)),
        is_op("LeakyRelu")(x).has_attr({"alpha": np.float64(0.5)}),
        is_op("Cast")(x).has_attr({"to": "float32"}),
        is_op("LeakyRelu")(x).has_attr({"alpha": float("inf")}),
        x - is_value(np.array([[1, 2], [3, 4]], np.int8)),
        x - is_value(np.array([True, False])),
        x - is_value(np.array(["a", 'b"', "\n", "é\0c"], dtype=object)),
        x - is_value(np.zeros((2, 0, 3), np.float16)),
        x - is_value(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)),
        x - is_value(np.array(0.1, np.float32)),
        x - is_value(np.array([2**63], np.uint64)),
        x - is_value(np.array([1 + 2j], np.complex64)),
        is_input('a "quoted" \\ name\n'),
        is_input("é\u2028") + x,
        is_call('a"b')(x),
        (is_op("Relu") | is_call('a"b'))(x),
        (is_call("f") | is_op("Relu"))(x),
        (is_op("Relu") | is_op(kind="reduction"))(x, ...),
        x.optional(is_op("Relu") | is_op(kind="reduction")),
        x.optional(is_op("Relu") | is_call("f")),
        x.optional(is_op("Relu") | is_op("Neg")),
        x.optional(is_op("Gelu", "com.microsoft")),
        x.optional(lambda p: is_op("Concat")(p, ...)),
        x.optional(lambda p: is_op("Concat")(unordered(p, y))),
        x.optional(lambda p: is_op("Add")(y, p)),
        x.optional(lambda p: is_op("Add")(p, p)),
        x.optional(lambda p: is_op("LeakyRelu")(p, alpha=0.5).bind_attrs("k")),
        relu(x).named("r").optional(is_op("Neg")),
        is_op("Neg")(relu(x).optional(lambda p: is_op("Neg")(p).named("n"))),
        is_function(None, relu(x), {"Composite": 'a"b'})(y),
        is_function([x], (relu(x), -x))(y),
        is_if(x, (y, z), (z, y)),
        x.has_shape("n", None, 3).has_dtype("int8").has_rank(1, 3),
        x.has_type("?[if, None, n]"),
        x.has_type("float32[class]"),
        x.has_type("float32[]"),
        x.has_type("[]"),
        relu(x).has_rank(1) | y,
        ~(x | y) & ~~z,
        (x ^ relu(y)) | (relu(x) >> z),
        (relu(x) | y) ^ (z & relu(z)),
        x ^ (relu(y) ^ -wildcard()),
        x ^ (relu(y) ^ -wildcard()).named("c"),
        repeat(is_op("Relu") | is_op("Neg"), x | y, max=0),
        repeat(is_op("LeakyRelu"), x, alpha=0.5),
        repeat(is_op("Concat"), x, y, ...),
        repeat(is_op("Concat")(wildcard(), y, x)),
        repeat(is_op("Add")(relu(y), twice), x, min=1),
        repeat(is_op("Add")(relu(twice), twice), x & relu(y), min=1),
        repeat((relu(wildcard()) & -y).named("step"), x),
        repeat(is_op("Add")(h, h), h=x | y, max=3),
        repeat(relu(-repeat("Tanh", wildcard())), x),
        is_op("Split")(x)[0],
        is_op("Neg")(is_op("Split")(x).outputs("", "", "t")[2]),
        outputs(*is_op("Split")(x).outputs("s", "t")),
        outputs(*is_op("Split")(x).outputs("", "t")),
        is_op("Split")(x)[3].has_rank(2),
        absent() | x,
        is_op("Clip")(x, absent(), absent()),
        is_op("Foo", "a.b.c")(x, **{"if": 1, "a b": "c", "é": [1, 2]}),
        dominates(relu(x), None, relu(y)).named("d"),
        x.same_shape_as(y) + y,
        (x + y).named("s") * (x + y),
        wildcard() * wildcard(),
    ],
    ids=repr,
)
def test_what_python_builds_reads_back(pattern: DFPattern) -> None:
    """The text of any pattern built in Python is a text, and reads as an equal pattern."""
    again = parse_pattern(repr(pattern), SCHEMAS)
    assert repr(again) == repr(pattern)
    assert again == pattern


@pytest.mark.parametrize(
    "text",
    [
        "repeat(LeakyRelu, x, **k)",
        "repeat(Concat, x, unordered(y, z))",
        "repeat(Sum, x, ..., min=2)",
        "optional(Relu | Neg)(x)",
        'optional(Relu | op(kind="reduction"))(x)',
        'optional(op(kind="reduction"))(x)',
        'optional(call("f"))(x)',
        "optional(com.microsoft.Gelu)(x)",
        "optional(Concat)(x, ...)",
        "p = Relu(x)\noptional(Neg)(p)",
        "p = optional(Neg)(Relu(x))\nAdd(p, p)",
        "c = optional(Neg)(Relu(x)) ^ Tanh(_)\nAdd(c, c)",
        "c = Relu(x) ^ Tanh(_)\nAbs(y) ^ c",
        "Abs(y) ^ (Relu(x) ^ Tanh(_))",
        "_c = Relu(x) ^ Tanh(_)\nAdd(_c, Abs(y) ^ _c)",
        "_, _k, m = Split(x)\nAdd(m, _k)",
        "y, z = Split(x)\ny[1] + z",
        "2 - x - -3 - (-y)",
        "x.has_type('float32[if]')",
        "x.has_type('[None, if]')",
        "x.has_type('?[True]')",
        "function([x], Relu(x))(function([y], Neg(y))(z))",
        "f = Relu(x) | Neg(x)\nfunction([f], f)(y)",
    ],
)
def test_text_reads_back(text: str) -> None:
    """The text of what was read from a text says the same: nothing of it is lost."""
    pattern = parse_pattern(text, SCHEMAS)
    again = parse_pattern(repr(pattern), SCHEMAS)
    assert repr(again) == repr(pattern)


def test_reading_back_loses_no_demand() -> None:
    """A chain's bound attributes and unordered inputs are part of what it reads."""
    for text in ("repeat(LeakyRelu, x, **k)", "repeat(Concat, x, unordered(y, z))"):
        assert "**k" in repr(pattern_of(text)) or "unordered" in repr(pattern_of(text))


@pytest.mark.long
@given(language_texts())
def test_any_text_of_the_language_reads_back(text: str) -> None:
    """Whatever reads as a pattern is printed as a text that reads as an equal one."""
    try:
        pattern = parse_pattern(text, SCHEMAS)
    except PatternSyntaxError:
        return
    printed = repr(pattern)
    again = parse_pattern(printed, SCHEMAS)
    assert repr(again) == printed
    assert again == pattern


# -- hostile ---------------------------------------------------------------------------------

HOSTILE = [
    "().__class__.__base__.__subclasses__()",
    "x.__class__",
    "x.__class__(y)",
    "x.__class__.__mro__(y)",
    "x.__init__(1)",
    "Relu.__call__(x)",
    "Relu(x).__class__(y)",
    "Relu(x).__reduce__()",
    "__import__('os')",
    "__builtins__.eval('1')",
    "eval('1')",
    "exec('1')(x)",
    "getattr(x, 'y')",
    "(lambda: 0)()",
    "(lambda x: x)(Relu(y))",
    "[Relu(x) for _ in range(10**9)]",
    "{Relu(x) for x in y}",
    "(Relu(x) for x in y)",
    "Relu(x for x in y)",
    "Relu(await x)",
    "Relu((yield))",
    "f'{().__class__}'",
    "f'{x!r:{y}}'",
    "x[().__class__]",
    "Split(x)[9**9**9]",
    "Split(x)[lambda: 1]",
    "9**9**9**9",
    "Conv(x, w, group=9**9**9)",
    "Conv(x, w, group=-9**9**9)",
    "Conv(x, w, pads=[0]*10**10)",
    "Conv(x, w, pads='a'*10**10)",
    "Conv(x, w, **().__class__)",
    "Conv(x, w, **{().__class__: 1})",
    "is_value([0]*10**10)",
    "is_value(().__class__)",
    "is_value([], shape=[99999999999, 0])",
    "is_value([1], dtype='U100000000')",
    "is_value([1], dtype='V1000000000')",
    "is_value([1], dtype='i8,i8')",
    "is_value([1], dtype=[('a', 'i8')])",
    "is_value([1], shape=[-1, -1])",
    "is_value([1], shape=[10**12])",
    "is_value(1+2j)",
    "is_value(-(1))",
    "is_value(set())",
    "x.has_rank(10**10)",
    "x.has_type('float32[" + "9" * 100_000 + "]')",
    "x.has_type('" + " " * 5_000 + "!')",
    "x.has_type('" + "a" * 100_000 + "[')",
    "x.has_type('float32[" + "n," * 100_000 + "')",
    "x.has_type('" + "[" * 10_000 + "')",
    "x.has_dtype('" + "a" * 100_000 + "')",
    "op(kind='" + "a" * 100_000 + "')(x)",
    "'" + "a" * 1_000_000 + "'",
    "R" + "e" * 1_000_000 + "lu(x)",
    "Relu(" + "x" * 1_000_000 + ")",
    "Relu(x" + " " * 1_000_000 + ")",
    "#" * 1_000_000 + "\nRelu(x",
    "\n" * 100_000 + "Relu(",
    "Relu(x)" + "\n" * 100_000 + "y",
    "Relu(" + "9" * 5_000 + ")",
    "Relu(" + "9" * 100_000 + ")",
    "Relu(0x" + "f" * 5_000 + ")",
    "Relu(-0x" + "f" * 100_000 + ")",
    "[0x" + "f" * 5_000 + "]",
    "Relu([0x" + "f" * 5_000 + "])",
    "Conv(x, w, group=0x" + "f" * 5_000 + ")",
    "Conv(x, w, group=1+0x" + "f" * 5_000 + ")",
    "Conv(x, w, group={0x" + "f" * 5_000 + "})",
    "is_value(0x" + "f" * 5_000 + ")",
    "Split(x)[0x" + "f" * 5_000 + "]",
    "x.has_rank(0x" + "f" * 5_000 + ")",
    "x.has_shape(0x" + "f" * 5_000 + ")",
    "x.used_by(y, 0x" + "f" * 5_000 + ")",
    "repeat(Relu, x, max=0x" + "f" * 5_000 + ")",
    "repeat(Relu, x, min=0x" + "f" * 5_000 + ", max=1)",
    "repeat(Relu, x, min=999999999999)",
    "Relu(1e999999)",
    "Relu(1_0__0)",
    "Sum(" + "x, " * 30_000 + ")",
    "Conv(x, w, " + ", ".join(f"**{{'a{i}': 1}}" for i in range(5_000)) + ")",
    "\0",
    "Relu(x\0)",
    "Relu('\0')",
    "input('\\0')",
    "input('\\ud800')",
    "Relu(\ud800)",
    "\ufeffRelu(x)",
    "Relu(x)\ufeff",
    "\u202eRelu(x)",
    "Relu(\u200bx)",
    "\uff32\uff45\uff4c\uff55(x)",
    "Relu(ﬁ)",
    "Relu(\U0001d535)",
    "Relu(x²)",
    "Relu(\u0661)",
    "x.has_type('float32[\u0661]')",
    "x.has_type('float32[²]')",
    "input('\\d')",
    "Relu(1if x else y)",
    "Relu(0o17, 0777)",
    "# -*- coding: utf-7 -*-\nRelu(x)",
    "# -*- coding: bogus -*-\nRelu(x)",
    "\\\n" * 1_000 + "Relu(x)",
    "\t Relu(x)",
    "if 1:\n\tRelu(x)\n        Neg(x)",
    "Relu(x);Neg(x)",
    "Relu(x);",
    "Relu(x) # type: ignore",
    "\x1a",
    "\x0cRelu(x)",
    "print = Relu(x)\nprint(print)",
    "match = Relu(x)\nmatch",
    "None = Relu(x)\nx",
    "__debug__ = Relu(x)\n__debug__",
    "x" + ".used_by(y)" * 90 + ".has_type('" + " " * 200 + "')",
    "Relu(*" + "[" * 100 + "x" + "]" * 100 + ")",
    "a." * 150 + "Relu(x)",
    '"""' + "x" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text(text: str) -> None:
    """A hostile text is soon refused, with a place in it, or read, printed and read back."""
    refusals: list[PatternSyntaxError] = []
    with within(3), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pattern = parse_pattern(text, SCHEMAS)
        except PatternSyntaxError as error:
            refusals.append(error)
        else:
            printed = repr(pattern)
            is_same = repr(parse_pattern(printed, SCHEMAS)) == printed
            assert is_same
            Matcher(pattern)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for refusal in refusals:
        assert 1 <= refusal.line <= len(lines)
        assert 0 <= refusal.column <= len(lines[refusal.line - 1])
        assert refusal.message


@pytest.mark.parametrize(
    "text",
    [
        "{code}",
        "Relu({code})",
        "{code}(x)",
        "x.has_type({code})",
        "x.has_rank({code})",
        "x.has_shape({code})",
        "x.used_by(y, {code})",
        "x.dominates({code})",
        "dominates({code}, x, y)",
        "repeat(Relu, x, min={code})",
        "repeat({code}, x)",
        "call({code}, x)",
        "function([x], y, metadata={code})(x)",
        "function({code}, y)(x)",
        "is_value({code})",
        "is_value(1, dtype={code})",
        "is_value(1, shape={code})",
        "op(kind={code})(x)",
        "optional({code})(x)",
        "if_({code}, x, y)",
        "Concat(unordered({code}))",
        "Split(x)[{code}]",
        "y, z = {code}\ny",
        "Conv(x, w, **{{{code}: 1}})",
        "(lambda a={code}: a)(x)",
        "[x for _ in {code}]",
        "f'{{{code}}}'",
        "(Relu | {code})(x)",
        "input({code})",
        "const({code})",
    ],
)
def test_nothing_is_executed(text: str, tmp_path: Path) -> None:
    """Code in any place of the language is an error and never runs."""
    mark = tmp_path / "executed"
    code = f"open({str(mark)!r}, 'w')"
    with suppress(PatternSyntaxError):
        parse_pattern(text.format(code=code), SCHEMAS)
    assert not mark.exists()


@pytest.mark.long
@given(st.text(max_size=30))
def test_any_characters_are_read_or_refused(text: str) -> None:
    """No sequence of characters does anything but read or raise the language's error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(PatternSyntaxError):
            parse_pattern(text, SCHEMAS)
