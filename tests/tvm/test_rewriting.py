"""TVM's tests of rewriting: Relay's ``rewrite``, Relax's ``rewrite_call`` and its rewriters.

R57 to R68, D39 to D58 and W1 to W27 of the inventory, as rules in YAML. What a callback decides is
a ``where`` here, and an external function an operator of the domain ``ext``. D39, D40, D47 and D48
are the examples of seed document 4, in tests/seeds/test_rewriting.py. What needs callbacks, one
turn only, clean-up or functions as rules (R60, R85, R87, R90, D51, W2 to W8, W12 to W15, W23 and
W24) is in test_rewriting_functions.py.

TVM re-associates a product and a quotient when it matches; the rule of R66 spells both out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli.analysis.numbering import same_structure
from dplcli.catalog import read_catalogs
from dplcli.errors import DplError
from dplcli.ir.traversal import check_structure
from dplcli.language import RewriteRule, is_function, wildcard
from dplcli.language.replacement import parse_replacement
from dplcli.onnx_io import model_from_proto, to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_bytes,
    model_from_text,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from dplcli.ir import Model

EXT = '<ir_version: 8, opset_import: ["" : 17, "ext" : 1]>\n'


def rules_from(text: str) -> list[RewriteRule]:
    """Load the items of ``rewrites``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        items = indent(dedent(text).strip(), "  ")
        path.write_text(f"dpl: 1\nrewrites:\n{items}\n", encoding="utf-8")
        return read_catalogs([str(path)], SCHEMAS).rewrites


def operators(model: Model) -> Counter[str]:
    """Count the nodes by operator, those left out that only pass a value on."""
    nodes = (node.qualified_op for graph in model.graphs() for node in graph)
    return Counter(op for op in nodes if op not in {"Identity", "Constant"})


def check_rewrite(
    rules: str | list[RewriteRule],
    before: str,
    after: str | None,
    *,
    times: int | tuple[int, ...] = 1,
    same_numbers: bool = True,
) -> Model:
    """Rewrite and compare everything: structure, counts, validity, a second run, numbers.

    Args:
        rules: The rules, or the items of ``rewrites`` in YAML.
        before: The model as ONNX text.
        after: What becomes of it, up to names and Identity; None if nothing may change.
        times: How often each rule is applied.
        same_numbers: Whether onnxruntime must compute the same.

    Returns:
        The model rewritten.
    """
    loaded = rules_from(rules) if isinstance(rules, str) else rules
    model = model_from_text(before)
    outcome = rewrite(model, loaded)
    check_structure(model)
    expected = model_from_text(before if after is None else after)
    assert same_structure(model, expected), print_model(model)
    assert operators(model) == operators(expected), print_model(model)
    wanted = (times,) if isinstance(times, int) else times
    assert tuple(outcome.counts.values()) == ((0,) * len(loaded) if after is None else wanted)
    written: onnx.ModelProto = to_proto(model)
    if after is None:
        assert written == to_proto(expected)
    assert rewrite(model_from_bytes(written.SerializeToString()), loaded).rounds == 0
    onnx.checker.check_model(written, full_check=True)
    if same_numbers:
        check_sound(proto_from_text(before), written)
    return model


# -- Relay: rewrite --------------------------------------------------------------------------------

ADD_TO_SUB = """
    - name: add_to_sub
      pattern: Add(a, b)
      replacement: Sub(a, b)
"""
XY = "g (float[2] x, float[2] y) => (float[2] o)"


def test_rewrite() -> None:
    """R57 test_rewrite: an addition becomes a subtraction, and keeps name and place."""
    text = f"{XY} {{ s = Add (x, y) o = Relu (s) }}"
    model = check_rewrite(ADD_TO_SUB, text, text.replace("Add", "Sub"), same_numbers=False)
    assert print_model(model) == "(x, y) => (o) {\n  s = Sub (x, y)\n  o = Relu (s)\n}"


LOCAL = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'
CONV_RELU = """<domain: "local", opset_import: ["" : 17]> conv_relu (a, b) => (d) {
    c = Conv (a, b) d = Relu (c) }"""


def test_rewrite_func() -> None:
    """R58 test_rewrite_func: the call of a function beside it is not disturbed."""
    text = f"""{LOCAL} g (float[1,3,4,4] x, float[3,3,1,1] w, float[3,1,1] y) => (float[1,3,4,4] o)
        {{ f = local.conv_relu (x, w) o = Add (f, y) }} {CONV_RELU}"""
    check_rewrite(ADD_TO_SUB, text, text.replace("= Add", "= Sub"), same_numbers=False)


def test_rewrite_func_with_attr() -> None:
    """R59 test_rewrite_func_with_attr: a call of a function with Composite=add, by an addition.

    Text has no word for a function's metadata, so that the pattern is written in Python.
    """
    proto = proto_from_text(
        f"""{LOCAL} {XY} {{ s = local.f (x, y) o = Abs (s) }}
        <domain: "local", opset_import: ["" : 17]> f (a, b) => (c) {{ c = Add (a, b) }}"""
    )
    proto.functions[0].metadata_props.add(key="Composite", value="add")
    pattern = is_function(None, wildcard(), {"Composite": "add"})(wildcard("a"), wildcard("b"))
    replacement = parse_replacement("Add(a, b)", wildcard("a") + wildcard("b"), SCHEMAS)
    model = model_from_proto(proto, Path(), "test")
    outcome = rewrite(model, [RewriteRule("inline_add", pattern, replacement)])
    check_structure(model)
    assert outcome.counts == {"inline_add": 1}
    expected = model_from_text(f"{XY} {{ s = Add (x, y) o = Abs (s) }}")
    assert same_structure(model, expected), print_model(model)
    check_sound(proto, to_proto(model))


CONV = "g (float[1,3,4,4] x, float[3,3,1,1] w) => (float[1,3,4,4] o)"


@pytest.mark.parametrize(("last", "times"), [("o = Add (s, c)", 0), ("o = Neg (s)", 1)])
def test_not_fuse_multi_diamond(last: str, times: int) -> None:
    """R61 test_not_fuse_multi_diamond: the convolution is read a third time, below the diamond."""
    rules = """
        - name: diamond
          pattern: |
            c = Conv(x, w, **attrs)
            Add(Relu(c), LeakyRelu(c, alpha=0.0))
          replacement: Conv(x, w, **attrs)
    """
    nodes = f"r = Relu (c) l = LeakyRelu <alpha=0.0> (c) s = Add (r, l) {last}"
    after = f"{CONV} {{ s = Conv (x, w) {last} }}" if times else None
    before = f"{CONV} {{ c = Conv (x, w) {nodes} }}"
    check_rewrite(rules, before, after, times=times, same_numbers=False)


NORM_INPUTS = "float[3,4] x, float[4] gamma, float[4] beta, float[4] mean"
NORM_HEAD = f"""g ({NORM_INPUTS}) => (float[3,4] o)
    <float eps = {{0.001}}, float[4] var = {{1, 2, 3, 4}}>"""


def norm_rules(pattern: str) -> str:
    """Write the rule for a pattern of a batch normalization over the last axis."""
    return f"""
        - name: batchnorm
          pattern: {pattern}
          where: [x.rank == 2, eps.rank == 0, gamma.rank == 1, beta.rank == 1, mean.rank == 1]
          replacement: BatchNormalization(x, gamma, beta, mean, var, epsilon=eps.value)
    """


NORM = norm_rules("gamma * (x - mean) / Sqrt(var + const(eps)) + beta")


def norm_of(source: str, tag: str, result: str, *, last: str = "Add") -> str:
    """Write a batch normalization as arithmetic."""
    return f"""s{tag} = Sub ({source}, mean) m{tag} = Mul (gamma, s{tag}) a{tag} = Add (var, eps)
        q{tag} = Sqrt (a{tag}) d{tag} = Div (m{tag}, q{tag}) {result} = {last} (d{tag}, beta)"""


def fused_of(source: str, result: str) -> str:
    """Write the same as one operator."""
    inputs = f"{source}, gamma, beta, mean, var"
    return f"{result} = BatchNormalization <epsilon = 0.001> ({inputs})"


def test_fuse_batchnorm() -> None:
    """R62 test_fuse_batchnorm: six operators become one, epsilon an attribute."""
    check_rewrite(
        NORM,
        f"{NORM_HEAD} {{ {norm_of('x', '', 'o')} }}",
        f"{NORM_HEAD} {{ {fused_of('x', 'o')} }}",
    )


def test_no_fuse_batchnorm() -> None:
    """R63 test_no_fuse_batchnorm: beta is subtracted."""
    check_rewrite(NORM, f"{NORM_HEAD} {{ {norm_of('x', '', 'o', last='Sub')} }}", None)


def test_fuse_double_batchnorm() -> None:
    """R64 test_fuse_double_batchnorm: two, one behind the other."""
    check_rewrite(
        NORM,
        f"{NORM_HEAD} {{ {norm_of('x', '1', 'y')} {norm_of('y', '2', 'o')} }}",
        f"{NORM_HEAD} {{ {fused_of('x', 'y')} {fused_of('y', 'o')} }}",
        times=2,
    )


def test_partial_fuse_double_batchnorm() -> None:
    """R65 test_partial_fuse_double_batchnorm: the inner one subtracts, and stays."""
    inner = norm_of("x", "1", "y", last="Sub")
    check_rewrite(
        NORM,
        f"{NORM_HEAD} {{ {inner} {norm_of('y', '2', 'o')} }}",
        f"{NORM_HEAD} {{ {inner} {fused_of('y', 'o')} }}",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "m = Mul (gamma, s) d = Div (m, q) o = Add (beta, d)",
        "m = Mul (s, gamma) d = Div (m, q) o = Add (d, beta)",
        "m = Div (s, q) d = Mul (gamma, m) o = Add (d, beta)",
    ],
)
def test_fuse_batchnorm_commutation(nodes: str) -> None:
    """R66 test_fuse_batchnorm_commutation [H07]: beta first, and the quotient below the product.

    Relay re-associates by itself; the rule names both ways, of which the match takes one.
    """
    rules = norm_rules("""|
            s = x - mean
            q = Sqrt(var + const(eps))
            (gamma * s / q | gamma * (s / q)) + beta""")
    text = f"{NORM_HEAD} {{ s = Sub (x, mean) a = Add (eps, var) q = Sqrt (a) {nodes} }}"
    check_rewrite(rules, text, f"{NORM_HEAD} {{ {fused_of('x', 'o')} }}")


def test_quadruple_rewrite_dominator() -> None:
    """R67 test_quadruple_rewrite_dominator [H08]: four regions, each to its convolution."""
    rules = """
        - name: region
          pattern: |
            path = op(kind="elementwise")(_, **_) | Add(_, _)
            dominates(Conv(x, w, **attrs), path, Add(_, _))
          replacement: Conv(x, w, **attrs)
    """
    before = f"""{CONV} {{
        c1 = Conv (x, w) r1 = Relu (c1) s1 = Relu (r1) l1 = LeakyRelu (c1) o1 = Add (s1, l1)
        c2 = Conv (o1, w) r2 = Relu (c2) s2 = Relu (r2) t2 = Tanh (s2) l2 = LeakyRelu (c2)
        o2 = Add (t2, l2)
        c3 = Conv (o2, w) r3 = Relu (c3) s3 = Relu (r3) t3 = Tanh (s3) o3 = Add (s3, t3)
        c4 = Conv (o3, w) r4 = Relu (c4) a4 = Add (r4, r4) t4 = Tanh (a4) l4 = LeakyRelu (c4)
        o = Add (t4, l4) }}"""
    after = f"""{CONV} {{
        o1 = Conv (x, w) o2 = Conv (o1, w) o3 = Conv (o2, w) o = Conv (o3, w) }}"""
    check_rewrite(rules, before, after, times=4, same_numbers=False)


# Whose shapes agree: a zero of rank 0 is no tensor of zeros.
ALGEBRA = """
    - {name: add_zero, pattern: "Add(x, 0)", replacement: x}
    - {name: sub_zero, pattern: "Sub(x, 0)", replacement: x}
    - {name: mul_one, pattern: "Mul(x, 1)", replacement: x}
    - {name: div_one, pattern: "Div(x, 1)", replacement: x}
    - name: mul_zero
      pattern: Mul(x, const(zero) & 0)
      where: ["same_shape(x, zero)"]
      replacement: zero
    - name: zero_div
      pattern: Div(const(zero) & 0, x)
      where: ["same_shape(x, zero)"]
      replacement: zero
"""


@pytest.mark.parametrize("dtype", ["float", "int64"])
@pytest.mark.parametrize(
    ("call", "result", "rule"),
    [
        ("Add (x, zero)", "x", 0),
        ("Add (zero, x)", "x", 0),
        ("Sub (x, zero)", "x", 1),
        ("Mul (x, one)", "x", 2),
        ("Mul (one, x)", "x", 2),
        ("Div (x, one)", "x", 3),
        ("Mul (x, zero)", "zero", 4),
        ("Mul (zero, x)", "zero", 4),
        ("Div (zero, x)", "zero", 5),
        ("Sub (zero, x)", None, -1),
        ("Div (one, x)", None, -1),
    ],
)
def test_algebraic_simplify(dtype: str, call: str, result: str | None, rule: int) -> None:
    """R68 test_algebraic_simplify [H09]: zeros and ones of both types, on either side."""
    head = f"g ({dtype} x) => ({dtype} o) <{dtype} zero = {{0}}, {dtype} one = {{1}}>"
    times = tuple(int(number == rule) for number in range(6))
    check_rewrite(
        ALGEBRA,
        f"{head} {{ o = {call} }}",
        None if result is None else f"{head} {{ o = Identity ({result}) }}",
        times=times,
        same_numbers=dtype == "float",  # a random integer may be zero
    )


def test_algebraic_simplify_all_at_once() -> None:
    """R68 test_algebraic_simplify [H09]: all rules, on what others of them leave."""
    head = "g (float x, float y) => (float o) <float zero = {0}, float one = {1}>"
    before = f"""{head} {{
        a = Mul (zero, y) b = Add (x, a) c = Div (b, one) d = Mul (y, one) e = Add (c, d)
        f = Div (zero, x) o = Sub (e, f) }}"""
    check_rewrite(ALGEBRA, before, f"{head} {{ o = Add (x, y) }}", times=(1, 1, 1, 1, 1, 1))


def test_algebraic_simplify_where_shapes_differ() -> None:
    """R68: a product with a zero of rank 0 is no zero of rank 0; in TVM it becomes one."""
    text = "g (float[2] x) => (float[2] o) <float zero = {0}> { o = Mul (x, zero) }"
    check_rewrite(ALGEBRA, text, None)


def test_rewrite_with_pattern_recursion() -> None:
    """R90 test_rewrite_with_pattern_recursion [H18]: six casts down to a product, as one match.

    Relay puts a relu below the casts, once; here they give way to it.
    """
    rules = """
        - name: casts
          pattern: repeat(Cast, MatMul(x, const(w)), min=1, to=1, **_)
          replacement: Relu(MatMul(x, w))
    """
    head = "g (float[2,2] x) => (float[2,2] o) <float[2,2] w = {1, 2, 3, 4}>"
    names = ["m", "a", "b", "c", "d", "e", "o"]
    casts = " ".join(
        f"{below} = Cast <to = 1> ({above})" for above, below in itertools.pairwise(names)
    )
    after = f"{head} {{ m = MatMul (x, w) o = Relu (m) }}"
    check_rewrite(rules, f"{head} {{ m = MatMul (x, w) {casts} }}", after, same_numbers=False)


@pytest.mark.parametrize("inner", ["r", "Identity(r)"])
def test_a_replacement_may_use_an_inner_value(inner: str) -> None:
    """After R90: every captured name may be used, that of a node matched, too, which then stays."""
    rules = f"""
        - name: relu_twice
          pattern: |
            r = Relu(x)
            Relu(r)
          replacement: {inner}
    """
    before = f"{XY} {{ a = Relu (x) b = Relu (a) o = Add (b, y) }}"
    check_rewrite(rules, before, f"{XY} {{ a = Relu (x) o = Add (a, y) }}")


def test_a_replacement_may_not_feed_on_itself() -> None:
    """After R90: a replacement around the root has no end here; it must not become a cycle."""
    model = model_from_text(f"{XY} {{ o = Add (x, y) }}")
    rules = """
        - name: relu_below
          pattern: |
            a = Add(x, y)
            a
          replacement: Relu(a)
    """
    with pytest.raises(DplError):
        rewrite(model, rules_from(rules))
    check_structure(model)


# -- Relax: rewrite_call and rewrite_bindings ------------------------------------------------------

QKV = """
    - name: combine_qkv
      pattern: MatMul(x, w0), MatMul(x, w1), MatMul(x, w2)
      where: [w0.rank == 2, "same_shape(w0, w1)", "same_shape(w0, w2)"]
      replacement: |
        q, k, v = Split(MatMul(x, Concat(w0, w1, w2, axis=1)), axis=-1)
        q, k, v
"""


def test_combine_matmul_twice() -> None:
    """D43 test_combine_matmul_twice: two groups; TVM slices, dpl splits."""
    weights = [f"w{number}" for number in range(6)]
    inputs = ", ".join(["float[2,3] x1", "float[2,3] x2", *(f"float[3,4] {w}" for w in weights)])
    results = [f"float[2,4] {name}" for name in ("q1", "k1", "v1", "q2", "k2", "v2")]
    head = f"g ({inputs}) => ({', '.join(results)})"
    before = f"""{head} {{
        q1 = MatMul (x1, w0) k1 = MatMul (x1, w1) v1 = MatMul (x1, w2)
        q2 = MatMul (x2, w3) k2 = MatMul (x2, w4) v2 = MatMul (x2, w5) }}"""
    after = f"""{head} {{
        c1 = Concat <axis = 1> (w0, w1, w2) m1 = MatMul (x1, c1)
        q1, k1, v1 = Split <axis = -1> (m1)
        c2 = Concat <axis = 1> (w3, w4, w5) m2 = MatMul (x2, c2)
        q2, k2, v2 = Split <axis = -1> (m2) }}"""
    check_rewrite(QKV, before, after, times=2)


QKV_HEAD = """g (float[2,3] x, float[3,4] w0, float[4,3] w1, float[4,3] w2)
    => (float[2,4] q, float[2,4] k, float[2,4] v)"""


def test_dataflow_may_start_with_match_cast() -> None:
    """D44 test_dataflow_may_start_with_match_cast: [≈] a copy of the input stands first."""
    head = QKV_HEAD.replace("float[4,3]", "float[3,4]")
    before = f"""{head} {{
        y = Identity (x) q = MatMul (y, w0) k = MatMul (y, w1) v = MatMul (y, w2) }}"""
    after = f"""{head} {{
        c = Concat <axis = 1> (w0, w1, w2) m = MatMul (x, c) q, k, v = Split <axis = -1> (m) }}"""
    check_rewrite(QKV, before, after)


def test_combine_matmul_emit_order() -> None:
    """D45 test_combine_matmul_emit_order [H22]: weights made below the first product move up."""
    before = f"""{QKV_HEAD} {{
        q = MatMul (x, w0)
        t1 = Transpose <perm = [1, 0]> (w1) k = MatMul (x, t1)
        t2 = Transpose <perm = [1, 0]> (w2) v = MatMul (x, t2) }}"""
    after = f"""{QKV_HEAD} {{
        t1 = Transpose <perm = [1, 0]> (w1) t2 = Transpose <perm = [1, 0]> (w2)
        c = Concat <axis = 1> (w0, t1, t2) m = MatMul (x, c) q, k, v = Split <axis = -1> (m) }}"""
    model = check_rewrite(QKV, before, after)
    order = [node.op_type for node in model.graph]
    assert order == ["Transpose", "Transpose", "Concat", "MatMul", "Split"]


def test_combine_transposed_matmul_twice() -> None:
    """D46 test_combine_transposed_matmul_twice: pairs of products with transposed weights."""
    rules = """
        - name: combine_pair
          pattern: |
            MatMul(x, Transpose(w0, perm=[1, 0])), MatMul(x, Transpose(w1, perm=[1, 0]))
          where: ["same_shape(w0, w1)"]
          replacement: |
            both = Transpose(Concat(w0, w1, axis=0), perm=[1, 0])
            l, r = Split(MatMul(x, both), axis=-1)
            l, r
    """
    weights = ", ".join(f"float[4,3] w{number}" for number in range(4))
    head = f"g (float[2,3] x1, float[5,3] x2, {weights}) => (float[2,4] p, float[5,4] q)"
    sums = "p = Add (l0, l1) q = Sub (l2, l3)"
    products = " ".join(
        f"t{n} = Transpose <perm = [1, 0]> (w{n}) l{n} = MatMul (x{1 + n // 2}, t{n})"
        for n in range(4)
    )
    after = f"""{head} {{
        c1 = Concat <axis = 0> (w0, w1) d1 = Transpose <perm = [1, 0]> (c1) m1 = MatMul (x1, d1)
        l0, l1 = Split <axis = -1> (m1)
        c2 = Concat <axis = 0> (w2, w3) d2 = Transpose <perm = [1, 0]> (c2) m2 = MatMul (x2, d2)
        l2, l3 = Split <axis = -1> (m2) {sums} }}"""
    check_rewrite(rules, f"{head} {{ {products} {sums} }}", after, times=2)


@pytest.mark.parametrize("returned", [True, False])
def test_rewrite_without_trivial_binding(returned: bool) -> None:  # noqa: FBT001  # parametrized
    """D49 test_rewrite_without_trivial_binding: a Reshape to the same shape, last and not last.

    It becomes an Identity, which clean-up removes.
    """
    rules = """
        - name: no_reshape
          pattern: |
            r = Reshape(x, const(), **_)
            r
          where: ["same_shape(r, x)"]
          replacement: x
    """
    head = "g (float[2,3] x) => (float[2,3] o) <int64[2] s = {2, 3}>"
    name, last = ("o", "") if returned else ("p", "o = Neg (p)")
    before = f"{head} {{ a = Add (x, x) {name} = Reshape (a, s) {last} }}"
    after = f"{head} {{ a = Add (x, x) {name} = Identity (a) {last} }}"
    check_rewrite(rules, before, after)


def test_iterative_rewrite_with_removed_intermediates() -> None:
    """D52 test_iterative_rewrite_with_removed_intermediates [H25]: the second rule's x + x shows.

    It does after the first rule has removed what lay between.
    """
    rules = """
        - name: split_of_concat
          pattern: |
            s = Split(Concat(a, b, axis=0), axis=0, **_)
            s[0], s[1]
          where: ["same_shape(a, b)"]
          replacement: a, b
        - name: add_self
          pattern: Add(x, x)
          replacement: Mul(x, 2.0)
    """
    head = "g (float[2] a, float[2] b) => (float[2] o)"
    before = f"""{head} {{
        c = Concat <axis = 0> (a, b) s0, s1 = Split <axis = 0> (c)
        d = Add (a, s0) o = Add (s1, d) }}"""
    after = f"{head} <float two = {{2}}> {{ d = Mul (a, two) o = Add (b, d) }}"
    check_rewrite(rules, before, after, times=(1, 1))


def typed(left: str, right: str = "") -> str:
    """Write a rule for a sum whose operands have types."""
    return f"""
        - name: add_to_mul
          pattern: Add(x{left}, y{right or left})
          replacement: Mul(x, y)
    """


def sums(*types: tuple[str, str]) -> str:
    """Write a graph of independent sums of two inputs."""
    names = [(f"a{n}", f"b{n}", f"o{n}") for n, _ in enumerate(types)]
    inputs = [
        f"{left} {a}, {right} {b}" for (a, b, _), (left, right) in zip(names, types, strict=True)
    ]
    results = [f"{left} {o}" for (_, _, o), (left, _) in zip(names, types, strict=True)]
    nodes = " ".join(f"{o} = Add ({a}, {b})" for a, b, o in names)
    return f"g ({', '.join(inputs)}) => ({', '.join(results)}) {{ {nodes} }}"


def test_wildcard_with_type() -> None:
    """D53 test_wildcard_with_ty_updates_when_matching: both operands have the shape."""
    text = sums(("float[2,3]", "float[2,3]"))
    check_rewrite(typed(".has_shape(2, 3)"), text, text.replace("Add", "Mul"), same_numbers=False)


def test_wildcard_with_other_type() -> None:
    """D54 test_wildcard_with_ty_is_no_op_when_not_matching: they have another."""
    check_rewrite(typed(".has_shape(2, 3)"), sums(("float[16,32]", "float[16,32]")), None)


def test_wildcard_of_any_dtype() -> None:
    """D55 test_wildcard_ty_for_unknown_dtype: the shape is given and the element type free."""
    text = sums(("int32[2,3]", "int32[2,3]"), ("float[2,3]", "float[2,3]"))
    rules = typed(".has_shape(2, 3)")
    check_rewrite(rules, text, text.replace("Add", "Mul"), times=2, same_numbers=False)


def test_wildcard_with_symbolic_dimensions() -> None:
    """D56 test_wildcard_ty_with_symbolic_vars: equal shapes whatever they are, and no broadcast."""
    text = sums(("float[64,128]", "float[64,128]"), ("float[64,128]", "float[1,128]"))
    after = text.replace("o0 = Add", "o0 = Mul")
    check_rewrite(typed(".has_shape(m, n)"), text, after, same_numbers=False)


ALTERNATIVES = """
    - name: add_zeros
      pattern: |
        declined = Add(_, _)
        taken = Add(x, const(zeros))
        declined | taken
      where: [declined.rank < 0, "is_close(zeros, {0})"]
      replacement: x
"""
ZEROS_HEAD = "g (float[2] x) => (float[2] o) <float[2] z = {0, 0}>"


def test_backtrack_if_rewriter_returns_no_op() -> None:
    """D57 test_backtrack_if_rewriter_returns_no_op [H26]: the second alternative, after all."""
    check_rewrite(
        ALTERNATIVES.format(0.0),
        f"{ZEROS_HEAD} {{ o = Add (x, z) }}",
        f"{ZEROS_HEAD} {{ o = Identity (x) }}",
    )


def test_backtrack_for_no_op_rewriter_does_not_match_on_var() -> None:
    """D58 test_backtrack_for_no_op_rewriter_does_not_match_on_var: both alternatives decline."""
    check_rewrite(ALTERNATIVES.format(1.0), f"{ZEROS_HEAD} {{ o = Add (x, z) }}", None)


# -- Relax: rewriters ------------------------------------------------------------------------------

OPT_ADD = """
    - name: opt_add
      pattern: Add(a.has_type("float32[16]"), b.has_type("float32[16]"))
      replacement: ext.opt_add(a, b)
"""


def test_rewrite_defined_by_ir_module() -> None:
    """W1 test_rewrite_defined_by_ir_module: typed parameters of a rule; the domain is imported."""
    head = "g (float[32] x) => (float[16] o)"
    model = check_rewrite(
        OPT_ADD,
        f"{head} {{ p, q = Split <axis = 0> (x) o = Add (p, q) }}",
        f"{EXT} {head} {{ p, q = Split <axis = 0> (x) o = ext.opt_add (p, q) }}",
        same_numbers=False,
    )
    assert model.opset_imports == {"": 17, "com.microsoft": 1, "ext": 1}


def test_rewriter_may_be_applied_to_ir_module() -> None:
    """W7 test_rewriter_may_be_applied_to_ir_module: the main graph and a function's body."""
    body = (
        '<domain: "local", opset_import: ["" : 17]> f (a, b) => (c) { d = Neg (a) c = Add (d, b) }'
    )
    text = f"{LOCAL} {XY} {{ s = local.f (x, y) o = Add (s, x) }} {body}"
    model = check_rewrite(
        ADD_TO_SUB, text, text.replace("= Add", "= Sub"), times=2, same_numbers=False
    )
    assert "c = Sub (d, b)" in print_model(model)


def test_same_pattern_applied_multiple_times() -> None:
    """W9 test_same_pattern_applied_multiple_times: two places, one above the other."""
    head = "g (float[16] x) => (float[16] o)"
    check_rewrite(
        OPT_ADD,
        f"{head} {{ y = Add (x, x) o = Add (y, y) }}",
        f"{EXT} {head} {{ y = ext.opt_add (x, x) o = ext.opt_add (y, y) }}",
        times=2,
        same_numbers=False,
    )


def test_composition_of_rewrite_rules() -> None:
    """W10 test_composition_of_rewrite_rules: two rules in one run."""
    rules = """
        - {name: add, pattern: "Add(a, b)", replacement: "ext.add(a, b)"}
        - {name: mul, pattern: "Mul(a, b)", replacement: "ext.mul(a, b)"}
    """
    head = "g (float[16] a, float[16] b, float[16] c) => (float[16] o)"
    check_rewrite(
        rules,
        f"{head} {{ s = Add (a, b) o = Mul (c, s) }}",
        f"{EXT} {head} {{ s = ext.add (a, b) o = ext.mul (c, s) }}",
        times=(1, 1),
        same_numbers=False,
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_recursive_rewrite_rules(swapped: bool) -> None:  # noqa: FBT001  # parametrized
    """W11 test_recursive_rewrite_rules: one rule goes on from what the other leaves."""
    rules = rules_from("""
        - {name: double, pattern: "Add(a, a)", replacement: "Mul(a, 2.0)"}
        - {name: mul, pattern: "Mul(a, b)", replacement: "ext.mul(a, b)"}
    """)
    head = "g (float[16] a) => (float[16] o)"
    check_rewrite(
        rules[::-1] if swapped else rules,
        f"{head} {{ o = Add (a, a) }}",
        f"{EXT} {head} <float two = {{2}}> {{ o = ext.mul (a, two) }}",
        times=(1, 1),
        same_numbers=False,
    )


JOIN = """
    - name: join
      pattern: MatMul(a, s), MatMul(b, s)
      where: [a.rank == 2, s.rank == 2, "same_shape(a, b)"]
      replacement: |
        p, q = Split(MatMul(Concat(a, b, axis=0), s), axis=0)
        p, q
"""
JOINED = "c = Concat <axis = 0> (a, b) m = MatMul (c, s) p, q = Split <axis = 0> (m)"
ABS = "float[3,4] a, float[3,4] b, float[4,4] s"


def test_rewrite_of_explicit_tuple() -> None:
    """W16 test_rewrite_of_explicit_relax_tuple: [≈] the tuple is a sequence."""
    rules = """
        - name: join
          pattern: SequenceConstruct(MatMul(a, s), MatMul(b, s))
          where: [a.rank == 2, s.rank == 2, "same_shape(a, b)"]
          replacement: |
            p, q = Split(MatMul(Concat(a, b, axis=0), s), axis=0)
            SequenceConstruct(p, q)
    """
    head = f"g ({ABS}) => (float[3,4] o) <int64 zero = {{0}}, int64 one = {{1}}>"
    rest = """t = SequenceConstruct (p, q)
        i = SequenceAt (t, zero) j = SequenceAt (t, one) o = Add (i, j)"""
    before = f"{head} {{ p = MatMul (a, s) q = MatMul (b, s) {rest} }}"
    check_rewrite(rules, before, f"{head} {{ {JOINED} {rest} }}")


def test_rewrite_of_output_tuple() -> None:
    """W17 test_rewrite_of_output_relax_tuple: both are graph outputs, and keep their names."""
    head = f"g ({ABS}) => (float[3,4] p, float[3,4] q)"
    before = f"{head} {{ p = MatMul (a, s) q = MatMul (b, s) }}"
    model = check_rewrite(JOIN, before, f"{head} {{ {JOINED} }}")
    assert [value.name for value in model.graph.outputs] == ["p", "q"]
    assert [node.op_type for node in model.graph] == ["Concat", "MatMul", "Split"]


def test_rewrite_of_implicit_tuple() -> None:
    """W18 test_rewrite_of_implicit_tuple: two values that only their readers have in common."""
    head = f"g ({ABS}) => (float[3,4] o)"
    before = f"{head} {{ p = MatMul (a, s) q = MatMul (b, s) o = Add (p, q) }}"
    check_rewrite(JOIN, before, f"{head} {{ {JOINED} o = Add (p, q) }}")


SHARED = """
    - name: impl
      pattern: Add(x, y), Add(y, z)
      replacement: |
        p, q = ext.impl(x, y, z)
        p, q
"""
ABCD = "g (float[16] a, float[16] b, float[16] c, float[16] d) => (float[16] o)"


def test_rewrite_of_implicit_tuple_with_shared_wildcard() -> None:
    """W19 test_rewrite_of_implicit_tuple_with_shared_wildcard [H27]: the sums share b."""
    check_rewrite(
        SHARED,
        f"{ABCD} {{ p = Add (a, b) q = Add (b, c) o = Mul (p, q) }}",
        f"{EXT} {ABCD} {{ p, q = ext.impl (a, b, c) o = Mul (p, q) }}",
        same_numbers=False,
    )


def test_no_rewrite_of_implicit_tuple_when_shared_wildcard_is_mismatched() -> None:
    """W20 test_no_rewrite_of_implicit_tuple_when_shared_wildcard_is_mismatched: they share none."""
    check_rewrite(SHARED, f"{ABCD} {{ p = Add (a, b) q = Add (c, d) o = Mul (p, q) }}", None)


def test_implicit_tuple_may_not_introduce_extra_compute() -> None:
    """W21 test_implicit_tuple_may_not_introduce_extra_compute [H28]: one depends on the other."""
    text = """g (float[4,4] a, float[4,4] b, float[4,4] s) => (float[4,4] o) {
        p = MatMul (a, s) r = MatMul (p, b) q = MatMul (r, s) o = Add (p, q) }"""
    check_rewrite(JOIN, text, None)
    refused = rewrite(model_from_text(text), rules_from(JOIN)).refused
    assert {item.stage for item in refused} == {"convexity"}


def test_rewrite_of_implicit_tuple_with_three_elements() -> None:
    """W22 test_rewrite_of_implicit_tuple_with_three_elements [H29]: one is a Split's own output."""
    rules = """
        - name: split_rotary
          pattern: |
            s = Split(qkv, axis=-1, **_)
            ext.rotary(s[0], **_), ext.rotary(s[1], **_), s[2]
          replacement: |
            q, k, v = ext.split_rotary(qkv)
            q, k, v
    """
    head = f"{EXT} g (float[2,6] x) => (float[2,2] o)"
    rest = "o = ext.attention (q, k, v)"
    before = f"""{head} {{
        r, t, v = Split <axis = -1> (x) q = ext.rotary (r) k = ext.rotary (t) {rest} }}"""
    after = f"{head} {{ q, k, v = ext.split_rotary (x) {rest} }}"
    check_rewrite(rules, before, after, same_numbers=False)


def test_rewrite_may_apply_within_conditional() -> None:
    """W25 test_rewrite_may_apply_within_conditional: in both branches, twice in the second."""
    text = """g (float[16] a, float[16] b, bool k) => (float[16] o) {
        o = If (k) <then_branch = t () => (float[16] p) { p = Add (a, b) },
                    else_branch = e () => (float[16] q) { r = Add (a, b) q = Add (r, b) }> }"""
    expected = f"{EXT} {text}".replace("Add", "ext.opt_add")
    model = check_rewrite(OPT_ADD, text, expected, times=3, same_numbers=False)
    assert print_model(model) == print_model(model_from_text(expected))


@pytest.mark.parametrize(("first", "second"), [("16", "16"), ("16", "8"), ("n", "m")])
def test_match_dynamic_shape(first: str, second: str) -> None:
    """W26 test_match_dynamic_shape: any two extents; TVM slices with them, dpl splits."""
    rules = """
        - name: join
          pattern: |
            MatMul(a.has_shape(n1, m), s.has_shape(m, m)), MatMul(b.has_shape(n2, m), s)
          replacement: |
            sizes = Concat(Shape(a, start=0, end=1), Shape(b, start=0, end=1), axis=0)
            p, q = Split(MatMul(Concat(a, b, axis=0), s), sizes, axis=0)
            p, q
    """
    head = f"""g (float[{first},4] a, float[{second},4] b, float[4,4] s)
        => (float[{first},4] p, float[{second},4] q)"""
    before = f"{head} {{ p = MatMul (a, s) q = MatMul (b, s) }}"
    after = f"""{head} {{
        h = Shape <start = 0, end = 1> (a) i = Shape <start = 0, end = 1> (b)
        j = Concat <axis = 0> (h, i)
        c = Concat <axis = 0> (a, b) m = MatMul (c, s) p, q = Split <axis = 0> (m, j) }}"""
    check_rewrite(rules, before, after)


def test_match_dynamic_shape_as_attributes() -> None:
    """W26 test_match_dynamic_shape: opset 9 slices by attributes, which take the shapes matched."""
    rules = """
        - name: join
          pattern: |
            MatMul(a.has_shape(n1, m), s.has_shape(m, m)), MatMul(b.has_shape(n2, m), s)
          opsets: [7, 9]
          replacement: |
            both = MatMul(Concat(a, b, axis=0), s)
            p = Slice(both, axes=[0], starts=[0], ends=[a.shape[0]])
            q = Slice(both, axes=[0], starts=[a.shape[0]], ends=[a.shape[0] + b.shape[0]])
            p, q
    """
    head = """<ir_version: 8, opset_import: ["" : 9]>
        g (float[16,4] a, float[8,4] b, float[4,4] s) => (float[16,4] p, float[8,4] q)"""
    before = f"{head} {{ p = MatMul (a, s) q = MatMul (b, s) }}"
    after = f"""{head} {{ c = Concat <axis = 0> (a, b) m = MatMul (c, s)
        p = Slice <axes = [0], starts = [0], ends = [16]> (m)
        q = Slice <axes = [0], starts = [16], ends = [24]> (m) }}"""
    check_rewrite(rules, before, after)


def test_match_dynamic_pattern_against_dynamic_shape() -> None:
    """W27 test_match_dynamic_pattern_against_dynamic_shape [H30]: [m,n] times [n,n], twice.

    [≈] ``2 * N`` is a symbol of its own. A product with no square matrix stays.
    """
    rules = """
        - name: square_matmul
          pattern: MatMul(a.has_shape(m, n), b.has_shape(n, n))
          replacement: ext.square_matmul(a, b)
    """
    head = "g (float[N,N2] a, float[N2,N2] b, float[N,N] c, float[N,K] d) => (float[N2,K] o)"
    before = f"""{head} {{ p = MatMul (a, b) t = Transpose <perm = [1, 0]> (p)
        q = MatMul (t, c) o = MatMul (q, d) }}"""
    after = f"""{EXT} {head} {{ p = ext.square_matmul (a, b) t = Transpose <perm = [1, 0]> (p)
        q = ext.square_matmul (t, c) o = MatMul (q, d) }}"""
    check_rewrite(rules, before, after, times=2, same_numbers=False)
