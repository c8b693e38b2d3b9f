"""Partitions inside bodies and local functions, and in models that have functions already."""

from __future__ import annotations

import onnx
import pytest

from tests.support.helpers import (
    check_idempotent,
    check_outcome,
    check_partition,
    check_sound,
    describe_refusals,
    partitioned,
    proto_from_text,
    rule,
    rule_name,
    selected,
    taken,
)

LOCAL = '<ir_version: 10, opset_import: ["" : 17, "f" : 1]>\n'
FUNCTION = '<domain: "f", opset_import: ["" : 17]>'
NEG_RELU = "Relu(Neg(x))"


def imports(model: onnx.ModelProto) -> dict[str, dict[str, int]]:
    """Return what each function imports."""
    return {
        function.name: {item.domain: item.version for item in function.opset_import}
        for function in model.functions
    }


# -- bodies ----------------------------------------------------------------------------------------


def test_in_a_branch_of_a_loop() -> None:
    """What is captured, from one scope up or from two, becomes an input of the call."""
    check_partition(
        "Add(Neg(x), y)",
        """g (float[2] a, float[2] b, bool c, int64 n) => (float[2] o) <float[2] k = {1, 2}> {
            t = Abs (a)
            o = Loop (n, c, a) <body = b (int64 i, bool ci, float[2] s) => (bool co, float[2] so) {
              co = Identity (ci) m = Abs (s)
              so = If (c) <
                then_branch = t () => (float[2] p) { q = Neg (b) p = Add (q, k) },
                else_branch = e () => (float[2] r) { u = Neg (t) r = Add (u, m) }> }> }""",
        after="""
            (a, b, c, n) => (o) {
              t = Abs (a)
              o = Loop <body = {…}> (n, c, a)
            }
            (i, ci, s) => (co, so) {
              co = Identity (ci)
              m = Abs (s)
              so = If <then_branch = {…}, else_branch = {…}> (c)
            }
            () => (p) {
              [r_0] p = t.r (b, k)
            }
            () => (r) {
              [r_1] r = t.r (t, m)
            }
            t.r (x, y) => (add_1_out) {
              [Neg_0] neg_0_out = Neg (x)
              [Add_1] add_1_out = Add (neg_0_out, y)
            }""",
    )


def test_in_a_scan() -> None:
    """State and slices of a Scan are values like others; so is what it captures."""
    text = """g (float[2] a, float[3,2] xs) => (float[2] o, float[3,2] ys) {
        o, ys = Scan <num_scan_inputs = 1,
          body = b (float[2] s, float[2] x) => (float[2] so, float[2] y) {
            n = Neg (x) so = Add (n, s) m = Neg (so) y = Add (m, a) }> (a, xs) }"""
    result = check_outcome("Add(Neg(x), y)", text)
    (scan,) = result.graph.node
    (body,) = (item.g for item in scan.attribute if item.name == "body")
    assert [list(node.input) for node in body.node] == [["x", "s"], ["so", "a"]]


@pytest.mark.parametrize("escape", ["refuse", "duplicate", "outputs"])
def test_a_capture_is_a_use(escape: str) -> None:
    """What a branch reads of a match escapes, whatever lies between."""
    text = """g (float[2] a, bool c) => (float[2] o, float[2] p) {
        n = Neg (a) o = Relu (n)
        p = If (c) <then_branch = t () => (float[2] q) { q = Abs (n) },
                    else_branch = e () => (float[2] r) { r = Abs (a) }> }"""
    rules = rule(NEG_RELU, escape=escape)
    result = check_outcome(rules, text)
    if escape == "outputs":
        assert [list(node.output) for node in result.graph.node] == [["o", "n"], ["p"]]
        return
    (refusal,) = describe_refusals(selected(rules, text))
    assert refusal.startswith("r at o: escape: 'n' is also read by If 'p'")


def test_no_cycle_through_a_branch() -> None:
    """The If reads one node of the match and is read by another."""
    text = """g (float[2] a, bool c) => (float[2] o) {
        n = Neg (a)
        p = If (c) <then_branch = t () => (float[2] q) { q = Abs (n) },
                    else_branch = e () => (float[2] r) { r = Abs (a) }>
        o = Add (n, p) }"""
    check_partition(
        rule("Add(Neg(x), y)", escape="outputs"),
        text,
        refused=["r at o: convexity: 'p' lies outside but between two nodes of the match"],
    )


def test_no_name_is_captured_by_accident() -> None:
    """A call must not read an inner value that has the name of the outer one it means.

    The checker and onnxruntime refuse such a model; dpl does not make it worse.
    """
    text = """g (float[2] x, float[2] y, bool c) => (float[2] o) {
        o = If (c) <
          then_branch = t () => (float[2] q) {
            p = Relu (x) x = Neg (y) s = Add (p, y) q = Mul (s, x) },
          else_branch = e () => (float[2] r) { h = Relu (x) r = Add (h, y) }> }"""
    selection = selected("Add(Relu(v), w)", text)
    assert taken(selection) == ["r: h, r"]
    assert describe_refusals(selection) == [
        "r at s: check: 'p' reads 'x', which is the name of two values there"
    ]


def test_a_copy_of_a_hidden_value() -> None:
    """A call reads what a copy is made of, so the name of that must not be hidden either."""
    text = """g (float[2] x, bool c) => (float[2] o) <float[2] k = {1, 2}> {
        i = Identity (k)
        o = If (c) <
          then_branch = t () => (float[2] q) <float[2] k = {3, 4}> { q = Add (x, i) },
          else_branch = e () => (float[2] r) { r = Add (x, i) }> }"""
    selection = selected(rule("Add(v, w)"), text)
    assert taken(selection) == ["r: r"]
    assert describe_refusals(selection) == [
        "r at q: check: 'q' reads 'k', which is the name of two values there"
    ]


def test_constants_of_one_name() -> None:
    """The checker allows it; which one onnxruntime takes depends on who else reads the outer."""
    text = """g (float[2] x, bool c) => (float[2] o) <float[2] k = {1, 2}> {
        o = If (c) <
          then_branch = t () => (float[2] q) <float[2] k = {3, 4}> { q = Add (x, k) },
          else_branch = e () => (float[2] r) { r = Abs (x) }> }"""
    check_partition(
        "Add(x, const(c))",
        text,
        refused=["r at q: check: 'q' reads 'k', which is the name of two values there"],
    )


# -- functions -------------------------------------------------------------------------------------


def test_in_functions_that_call_each_other() -> None:
    """Each function that calls the partition imports its domain; one function serves all."""
    result = check_outcome(
        NEG_RELU,
        f"""{LOCAL}g (float[2] a) => (float[2] o) {{ o = f.outer (a) }}
        <domain: "f", opset_import: ["" : 17, "f" : 1]>
        outer (x) => (y) {{ n = Neg (x) r = Relu (n) y = f.inner (r) }}
        {FUNCTION} inner (x) => (y) {{ n = Neg (x) y = Relu (n) }}""",
    )
    assert imports(result) == {
        "r": {"": 17},
        "outer": {"": 17, "f": 1, "t": 1},
        "inner": {"": 17, "t": 1},
    }


def test_in_a_branch_inside_a_function() -> None:
    """The function round the branch imports the domain, since a branch cannot."""
    result = check_outcome(
        NEG_RELU,
        f"""{LOCAL}g (float[2] a, bool c) => (float[2] o) {{ o = f.h (a, c) }}
        {FUNCTION} h (x, c) => (y) {{ y = If (c) <
          then_branch = t () => (p) {{ n = Neg (x) p = Relu (n) }},
          else_branch = e () => (q) {{ q = Abs (x) }}> }}""",
    )
    assert imports(result)["h"] == {"": 17, "t": 1}


@pytest.mark.parametrize("declared", ["<alpha>", "<alpha: float = 0.75>"])
def test_attributes_of_the_function_round_it(declared: str) -> None:
    """What a caller gives, or leaves to a default, reaches the node in the partition."""
    text = f"""{LOCAL}g (float[2] a, bool c) => (float[2] o) {{
        m = f.h (a, c) p = f.h <alpha = 0.5> (m, c) q = Neg (p) o = LeakyRelu <alpha = 0.25> (q) }}
        {FUNCTION} h {declared} (x, c) => (y) {{
          n = Neg (x) l = LeakyRelu <alpha: float = @alpha> (n)
          y = If (c) <
            then_branch = t () => (p) {{ k = Neg (l) p = LeakyRelu <alpha: float = @alpha> (k) }},
            else_branch = e () => (q) {{ q = Abs (l) }}> }}"""
    result = check_outcome("LeakyRelu(Neg(v))", text)
    assert [f.name for f in result.functions if f.domain == "t"] == ["r"]
    assert len(selected("LeakyRelu(Neg(v))", text).matches) == 3


def test_types_of_values_that_are_gone() -> None:
    """A function may state types, too; those of what went into a partition go with it."""
    text = f"""{LOCAL}g (float[2] a) => (float[2] o) {{ o = f.h (a) }}
        {FUNCTION} h (x) => (y) <float[2] n, float[2] m> {{
          n = Neg (x) m = Relu (n) y = Exp (m) }}"""
    result = check_outcome(NEG_RELU, text)
    (caller,) = (function for function in result.functions if function.domain == "f")
    assert [info.name for info in caller.value_info] == ["m"]


def test_what_a_function_says_of_itself_stays() -> None:
    """Documentation, metadata, and what the model says besides."""
    proto = proto_from_text(
        f"""{LOCAL}g (float[2] a) => (float[2] o) {{ o = f.h (a) }}
        {FUNCTION} h (x) => (y) {{ n = Neg (x) m = Relu (n) y = Exp (m) }}"""
    )
    proto.functions[0].doc_string = "what it does"
    proto.functions[0].metadata_props.add(key="pkg.torch", value="x")
    proto.metadata_props.add(key="author", value="somebody")
    _, _, written = partitioned(NEG_RELU, proto.SerializeToString())
    result = onnx.ModelProto.FromString(written)
    (caller,) = (function for function in result.functions if function.domain == "f")
    assert caller.doc_string == "what it does"
    assert [(item.key, item.value) for item in caller.metadata_props] == [("pkg.torch", "x")]
    assert [(item.key, item.value) for item in result.metadata_props] == [("author", "somebody")]
    check_sound(proto, result)


# -- names that are taken --------------------------------------------------------------------------


def test_an_operator_of_that_name_keeps_its_meaning() -> None:
    """A custom operator without a function must not be given one."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a) => (o) { n = Neg (a) r = Relu (n) s = t.r (r) o = t.r_1 (s) }"""
    model, _, written = partitioned(NEG_RELU, text)
    assert [node.qualified_op for node in model.graph] == ["t.r_2", "t.r", "t.r_1"]
    assert [key[1] for key in model.functions] == ["r_2"]
    check_idempotent(NEG_RELU, written)


@pytest.mark.parametrize("first", ["m = t.r:one (a)", "m = Exp (a)"])
def test_an_overload_of_that_name_is_another_function(first: str) -> None:
    """Older onnxruntime ignores overloads: the partition gets a name of its own."""
    text = f"""<ir_version: 10, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a) => (float[2] o) {{ {first} n = Neg (m) o = Relu (n) }}
        <domain: "t", overload: "one", opset_import: ["" : 17]> r (x) => (y) {{ y = Exp (x) }}"""
    result = check_outcome(NEG_RELU, text)
    assert [node.op_type for node in result.graph.node][1:] == ["r_1"]


def test_an_overload_is_not_called_from_a_function() -> None:
    """There onnxruntime does not find it, so the match is refused."""
    text = f"""{LOCAL}g (float[2] a) => (float[2] o) {{ m = f.h:one (a) o = Relu (m) }}
        <domain: "f", overload: "one", opset_import: ["" : 17]> h (x) => (y) {{ y = Exp (x) }}"""
    check_partition(
        "Relu(f.h(x))",
        text,
        refused=[
            "r at o: check: 'm' calls an overload, which onnxruntime does not find in a function"
        ],
    )
    plain = text.replace(":one", "").replace(', overload: "one"', "")
    assert len(check_outcome("Relu(f.h(x))", plain).functions) == 2


# -- a second run ----------------------------------------------------------------------------------

TWO = "g (float[2] a) => (float[2] o) { n = Neg (a) m = Relu (n) p = Exp (m) o = Abs (p) }"


@pytest.mark.parametrize(
    "pattern",
    [
        "op()(x, ...)",
        "op()(op()(x, ...), ...)",
        'op(kind="elementwise")(x)',
        "repeat(op(), x, min=1, max=3)",
        "(Neg | op())(x)",
    ],
)
@pytest.mark.parametrize("order", ["outermost", "program"])
def test_any_operator_does_not_mean_a_partition(pattern: str, order: str) -> None:
    """The calls that a run writes are leaves in the next, which changes nothing."""
    result = check_outcome(rule(pattern, order=order), TWO)
    assert {node.domain for node in result.graph.node} == {"t"}


def test_any_function_does_not_mean_a_partition() -> None:
    """``call("")`` and functions by their bodies mean those of the model's author."""
    text = f"""{LOCAL}g (float[2] a) => (float[2] o) {{ n = f.h (a) o = Relu (n) }}
        {FUNCTION} h (x) => (y) {{ y = Neg (x) }}"""
    for pattern in ('call("", x)', "function([p], Neg(p))(x)", "function(..., _)(x)"):
        result = check_outcome(pattern, text)
        assert [rule_name(node.op_type) for node in result.graph.node] == ["r", "Relu"]


def test_a_partition_that_is_named_is_meant() -> None:
    """A second catalogue may build on the first by name, or by metadata."""
    _, _, first = partitioned(rule("Neg(x)", name="neg"), TWO)
    named = ("Relu(t.neg(x))", 'Relu(call("t::neg", x))')
    for pattern in (*named, 'Relu(function(..., _, metadata={"Composite": "t.neg"})(x))'):
        rules = rule(pattern, target="u", name="pair")
        _, selection, second = partitioned(rules, first)
        assert taken(selection) == ["pair: neg_0, m"]
        check_sound(proto_from_text(TWO), onnx.ModelProto.FromString(second))
        check_idempotent(rules, second)


def test_a_second_target() -> None:
    """It finds what the first has left, and leaves the first one's functions alone."""
    text = f"""{LOCAL}g (float[2] a) => (float[2] o) {{
        n = Neg (a) m = Relu (n) e = Exp (m) s = Sin (e) o = f.h (s) }}
        {FUNCTION} h (x) => (y) {{ n = Neg (x) m = Relu (n) e = Exp (m) y = Sin (e) }}"""
    one = rule(NEG_RELU, target="one", name="pair")
    two = [rule("Sin(Exp(x))", target="two", name="pair"), rule("Neg(x)", target="two", name="neg")]
    _, _, first = partitioned(one, text)
    _, _, second = partitioned(two, first)
    result = onnx.ModelProto.FromString(second)
    check_sound(proto_from_text(text), result)
    assert [(node.domain, node.op_type) for node in result.graph.node] == [
        ("one", "pair"),
        ("two", "pair"),
        ("f", "h"),
    ]
    before = {f.domain: f for f in onnx.ModelProto.FromString(first).functions}
    assert next(f for f in result.functions if f.domain == "one") == before["one"]
    assert imports(result)["h"] == {"": 17, "one": 1, "two": 1}
    check_idempotent([one, *two], second)


# -- what surrounds it -----------------------------------------------------------------------------


@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
@pytest.mark.parametrize("ir_version", range(3, 14))
def test_every_ir_version(ir_version: int, constants: str) -> None:
    """Below 4 initializers are inputs, too, and are no more once functions are there."""
    stated = ", float[2] k" if ir_version < 4 else ""
    text = f"""<ir_version: {ir_version}, opset_import: ["" : 9]>
        g (float[2] a{stated}) => (float[2] o) <float[2] k = {{1, 2}}> {{
          n = Neg (a) o = Add (n, k) }}"""
    result = check_outcome(rule("Add(Neg(x), const(c))", constants=constants), text)
    assert result.ir_version == max(ir_version, 8)
    assert [info.name for info in result.graph.input] == ["a"]
    assert [rule_name(node.op_type) for node in result.graph.node] == ["r"]
    assert len(result.graph.initializer) == (constants == "lift")


def test_an_initializer_that_a_caller_may_override_is_no_constant() -> None:
    """From IR version 4 on an initializer that is an input stays one."""
    text = """<ir_version: 7, opset_import: ["" : 13]>
        g (float[2] a, float[2] k) => (float[2] o) <float[2] k = {1, 2}> {
          n = Neg (a) o = Add (n, k) }"""
    check_partition("Add(Neg(x), const(c))", text)
    result = check_outcome(rule("Add(Neg(x), c)", constants="embed"), text)
    assert list(result.graph.node[0].input) == ["a", "k"]
    assert [info.name for info in result.graph.input] == ["a", "k"]


def test_nodes_in_any_order() -> None:
    """A file whose nodes are out of order is sorted first, in bodies and functions too."""
    text = f"""{LOCAL}g (float[2] a, bool c) => (float[2] o) {{
        o = Relu (h) h = Neg (i)
        i = If (c) <then_branch = t () => (float[2] p) {{ p = Relu (q) q = Neg (m) }},
                    else_branch = e () => (float[2] r) {{ r = Abs (m) }}>
        m = f.h (a) }}
        {FUNCTION} h (x) => (y) {{ y = Relu (n) n = Neg (x) }}"""
    _, selection, written = partitioned(NEG_RELU, text)
    assert len(selection.matches) == 3
    result = onnx.ModelProto.FromString(written)
    onnx.checker.check_model(result, full_check=True)
    check_idempotent(NEG_RELU, written)


# -- matches that touch ----------------------------------------------------------------------------


@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
def test_an_identity_in_a_function_and_looked_through(constants: str) -> None:
    """One rule outlines the Identity that another has looked through to its input."""
    rules = [
        rule("Identity(x)", name="copy", constants=constants),
        rule("Add(Relu(x), Neg(c))", name="sum", constants=constants),
    ]
    text = """g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> {
        i = Identity (a) j = Identity (k) r = Relu (i) n = Neg (j) o = Add (r, n) }"""
    for order in (rules, rules[::-1]):
        result = check_outcome(order, text)
        assert [rule_name(node.op_type) for node in result.graph.node].count("sum") == 1


def test_what_one_match_duplicates_another_may_take() -> None:
    """The Split is computed again inside the first rule's function, and is the second's."""
    text = """g (float[2] a) => (float[1] o) {
        p, q = Split (a) r = Relu (p) o = Sum (q, r, p) }"""
    rules = [
        rule("s = Split(x)\nSum(s[1], y, s[0])", name="sum", escape="duplicate"),
        rule("(Split | Relu)(x)", name="one"),
    ]
    result = check_outcome(rules, text)
    names = [node.op_type for node in result.graph.node]
    assert list(map(rule_name, names)) == ["one", "one", "sum"]
    assert len(set(names)) == 3


@pytest.mark.parametrize("escape", ["refuse", "duplicate", "outputs"])
def test_what_a_copy_reads_escapes(escape: str) -> None:
    """The first rule computes *m* again in its function, whose call then reads *r*."""
    text = """g (float[2] a) => (float[2] o) {
        r = Relu (a) m = Add (r, a) n = Neg (m) o = Mul (n, m) }"""
    rules = [
        rule("Mul(y, Add(p, q))", name="first", escape="duplicate"),
        rule("Add(Relu(w), w)", name="second", escape=escape),
    ]
    result = check_outcome(rules, text)
    found = [(node.op_type, list(node.input), list(node.output)) for node in result.graph.node]
    if escape == "outputs":
        name, *ports = found[0]
        assert rule_name(name) == "second" != name
        assert ports == [["a"], ["m", "r"]]
        assert found[-1] == ("first", ["n", "r", "a"], ["o"])
        return
    assert [op_type for op_type, _, _ in found] == ["Relu", "Add", "Neg", "first"]
    (refusal,) = describe_refusals(selected(rules, text))
    reason = "'r' is also read by the match of t.first at 'o', which computes 'm' again"
    more = ", which does not lead to the root" if escape == "duplicate" else ""
    assert refusal == f"second at m: escape: {reason}{more}"


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_what_a_copy_sets_free_is_taken_at_once(order: str) -> None:
    """Once *o* computes *m* again by itself, *n* alone reads *m*: it need not wait for a run."""
    text = """g (float[2] a) => (float[2] o) {
        m = Neg (a) n = Add (m, m) r = Relu (n) o = Add (m, r) }"""
    rules = rule("Add(Neg(x), y)", escape="duplicate", order=order)
    selection = selected(rules, text)
    assert sorted(taken(selection)) == ["r: m, n", "r: m, o"]
    assert describe_refusals(selection) == []
    check_outcome(rules, text)


def test_a_copy_that_is_a_partition_stays_one() -> None:
    """Its constant is embedded by another match, which leaves the call without a reader."""
    rules = [
        rule("Identity(x)", name="copy", constants="embed"),
        rule("Sub(x, y)", name="sub", constants="embed"),
    ]
    text = """g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> {
        i = Identity (k) o = Sub (i, i) }"""
    result = check_outcome(rules, text)
    assert [rule_name(node.op_type) for node in result.graph.node] == ["copy", "sub"]
    assert not result.graph.initializer


# -- random numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "pattern", "is_random"),
    [
        ("RandomUniformLike (x)", "RandomUniformLike(_)", True),
        ("f.noise (x)", "f.noise(_)", True),
        ("f.calm (x)", "f.calm(_)", False),
        ("Dropout (x, half, yes)", "Dropout(_, _, _)", True),
        ("Dropout (x, half, no)", "Dropout(_, _, _)", False),
        ("Dropout (x, half)", "Dropout(_, _)", False),
        ("Exp (x)", "Exp(_)", False),
    ],
)
def test_random_numbers_are_drawn_once(draw: str, pattern: str, *, is_random: bool) -> None:
    """To compute a node again inside a function is no harm, unless it makes something else then."""
    text = f"""{LOCAL}g (float[2] x) => (float[2] o)
        <float half = {{0.5}}, bool yes = {{1}}, bool no = {{0}}> {{
          r = {draw} n = Neg (r) a = Abs (r) o = Sub (n, a) }}
        {FUNCTION} noise (x) => (y) {{ r = RandomUniformLike (x) y = Add (x, r) }}
        {FUNCTION} calm (x) => (y) {{ y = Add (x, x) }}"""
    rules = rule(f"Sub(Neg({pattern}), y)", escape="duplicate")
    selection = selected(rules, text)
    if is_random:
        assert describe_refusals(selection) == [
            "r at o: escape: 'r' draws random numbers, which would be drawn twice"
        ]
        return
    assert taken(selection) == ["r: r, n, o"]
    check_outcome(rules, text)


@pytest.mark.parametrize("constants", ["auto", "embed"])
def test_a_sparse_constant_is_dense_inside(constants: str) -> None:
    """Functions have no sparse initializers, and what is stored are only some of the numbers."""
    proto = proto_from_text("g (float[2] x) => (float[2] o) { o = Add (x, k) }")
    values = onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [1], [5.0])
    indices = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [1], [1])
    sparse = onnx.helper.make_sparse_tensor(values, indices, [2])
    proto.graph.sparse_initializer.append(sparse)
    rules = rule("Add(x, const())", constants=constants)
    _, _, written = partitioned(rules, proto.SerializeToString())
    result = onnx.ModelProto.FromString(written)
    assert [node.op_type for node in result.functions[0].node] == ["Constant", "Add"]
    assert not result.graph.sparse_initializer
    check_sound(proto, result)
    check_idempotent(rules, written)
