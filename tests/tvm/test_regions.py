"""TVM's tests of regions: Relax's MergeCompositeFunctions, Relay's MergeCompilerRegions.

M1 to M12 of the inventory, Relay's ``test_pass_merge_compiler_regions.py``, and of
``test_pass_partition_graph.py`` what is about regions and not about TVM's runtimes. A region of
one partition is that partition's call: dpl writes no function round it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.passes.merged import check_merge, groups
from tests.support.helpers import rule

if TYPE_CHECKING:
    from dplcli.language import PatternRule

_PATTERNS = {
    "Abs": "Abs(x)",
    "Add": "Add(x, y)",
    "Conv": "Conv(x, w)",
    "ConvRelu": "Relu(Conv(x, w))",
    "Exp": "Exp(x)",
    "Gelu": "Tanh(x)",
    "Log": "Log(x)",
    "MatMul": "MatMul(x, y)",
    "Mul": "Mul(x, y)",
    "Neg": "Neg(x)",
    "Relu": "Relu(x)",
    "Reshape": "Reshape(x, const(s))",
    "Split": "a, b = Split(x)\na, b",
    "Sub": "Sub(x, y)",
}

X = "float[2] x"
OUT = "float[2] o"


def rules(**targets: str) -> list[PatternRule]:
    """Make rules by target: ``a="Conv Relu"``."""
    return [
        rule(_PATTERNS[name], name=name.lower(), target=target)
        for target, names in targets.items()
        for name in names.split()
    ]


def check_groups(given: list[PatternRule], text: str, expected: list[str]) -> None:
    """Check that the regions are as expected, and all else that must hold of them."""
    check_merge(given, text)
    assert groups(given, text) == expected


def test_conv2d_relu_x2() -> None:
    """M1 test_conv2d_relu_x2.

    Two partitions in a row are one region, whose call reads data and both weights.
    """
    check_merge(
        rules(dnnl="ConvRelu"),
        """g (float[1,2,4,4] x, float[2,2,3,3] w1, float[2,2,3,3] w2) => (float[1,2,2,2] o) {
            c = Conv <pads = [1,1,1,1]> (x, w1) r = Relu (c)
            d = Conv <pads = [0,0,0,0]> (r, w2) o = Relu (d) }""",
        after="""
(x, w1, w2) => (o) {
  [region_0] o = dnnl.region (x, w1, w2)
}
dnnl.convrelu <pads> (x, w) => (relu_1_out) {
  [Conv_0] conv_0_out = Conv <pads = @pads> (x, w)
  [Relu_1] relu_1_out = Relu (conv_0_out)
}
dnnl.region (x, w, w_1) => (convrelu_1_out) {
  [convrelu_0] convrelu_0_out = dnnl.convrelu <pads = [1, 1, 1, 1]> (x, w)
  [convrelu_1] convrelu_1_out = dnnl.convrelu <pads = [0, 0, 0, 0]> (convrelu_0_out, w_1)
}""",
    )


_DIAMOND = """g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] o) {
    c = Conv (x, w) r = Relu (c) t = Tanh (c) o = Add (r, t) }"""


def test_diamond_cyclic_dep() -> None:
    """M2 [H36] test_diamond_cyclic_dep.

    With the other target on one side, the end of a diamond stays by itself.
    """
    given = rules(a="Conv Relu Add", b="Gelu")
    check_groups(given, _DIAMOND, ["a: c r", "b: t", "a: o"])
    check_merge(
        given,
        _DIAMOND,
        after="""
(x, w) => (o) {
  [region_0] c, r = a.region (x, w)
  [gelu_0] t = b.gelu (c)
  [add_0] o = a.add (r, t)
}
a.conv (x, w) => (conv_0_out) {
  [Conv_0] conv_0_out = Conv (x, w)
}
a.relu (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}
a.region (x, w) => (conv_0_out, relu_1_out) {
  [conv_0] conv_0_out = a.conv (x, w)
  [relu_1] relu_1_out = a.relu (conv_0_out)
}
b.gelu (x) => (tanh_0_out) {
  [Tanh_0] tanh_0_out = Tanh (x)
}
a.add (x, y) => (add_0_out) {
  [Add_0] add_0_out = Add (x, y)
}""",
    )


def test_diamond() -> None:
    """M3 test_diamond.

    Of one target, the whole diamond is a region.
    """
    check_groups(rules(a="Conv Relu Add Gelu"), _DIAMOND, ["a: c r t o"])


def test_merge_producers() -> None:
    """M4 test_merge_producers.

    Several regions come together in one; the functions of partitions are shared in it.
    """
    given = rules(a="Relu Gelu Add")
    text = f"""g ({X}, float[2] y) => ({OUT}) {{
        r = Relu (x) g = Tanh (r) s = Relu (y) h = Tanh (s) o = Add (g, h) }}"""
    check_groups(given, text, ["a: r g s h o"])
    result = check_merge(given, text)
    assert [f.name for f in result.functions] == ["relu", "gelu", "add", "region"]


def test_merge_producers_cyclic_dep() -> None:
    """M5 [H37] test_merge_producers_cyclic_dep.

    An operator of no target between keeps one of two producers out.
    """
    text = f"""g ({X}) => ({OUT}) {{
        l1 = Relu (x) l2 = Sigmoid (l1) l3 = Tanh (l2) o = Add (l1, l3) }}"""
    check_groups(rules(a="Relu Gelu Add"), text, ["a: l1", "a: l3 o"])


def test_merge_compiler_regions_example() -> None:
    """M6 [H38] test_merge_compiler_regions_example.

    Seven partitions of two targets; the two alike of the second are one function.
    """
    text = """g (float[2] x1, float[2] x2, float[2] x3) => (float[2] p, float[2] o) {
        a0 = Add (x1, x2) g0 = Tanh (x3) a1 = Add (a0, g0) g1 = Tanh (a1)
        p = Relu (a1) a2 = Add (g1, p) o = Relu (a2) }"""
    check_groups(rules(a="Add Relu", b="Gelu"), text, ["b: g0", "a: a0 a1 p", "b: g1", "a: a2 o"])
    result = check_merge(rules(a="Add Relu", b="Gelu"), text)
    calls = [f"{', '.join(n.output)} = {n.domain}.{n.op_type}" for n in result.graph.node]
    assert calls == [
        "g0 = b.gelu",
        "a1, p = a.region",
        "g1 = b.gelu",
        "o = a.region_1",
    ]


def test_mixed_non_composite() -> None:
    """M7 test_mixed_non_composite.

    An operator that no rule takes stays where it is.
    """
    text = """g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] o) {
        c = Conv (x, w) o = Relu (c) }"""
    check_groups(rules(tensorrt="Conv"), text, ["tensorrt: c"])


def test_reshape() -> None:
    """M8 test_reshape.

    A shape that is a constant goes where it is read.
    """
    text = """g (float[1,2,2] x, float[2,2] w) => (float[2,2] o) <int64[2] s = {2, 2}> {
        t = Transpose <perm = [1, 0]> (w) r = Reshape (x, s) o = MatMul (r, t) }"""
    check_groups(rules(trt="Reshape MatMul"), text, ["trt: r o"])
    result = check_merge(rules(trt="Reshape MatMul"), text)
    (region,) = [f for f in result.functions if f.name == "region"]
    assert list(region.input) == ["x", "y"]
    assert [t.name for t in result.graph.initializer] == []


def test_handle_existence_of_call_tir() -> None:
    """M9 test_handle_existence_of_call_tir.

    A call of something foreign between two partitions keeps them apart.
    """
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ext" : 1]>
        g ({X}) => ({OUT}) {{ r = Relu (x) f = ext.relu (r) o = Tanh (f) }}
        <domain: "ext", opset_import: ["" : 17]> relu (x) => (y) {{ y = Relu (x) }}"""
    check_groups(rules(a="Relu Gelu"), text, ["a: r", "a: o", "a: y"])


def test_tuple_projection_merging() -> None:
    """M10 test_tuple_projection_merging.

    Both outputs of a split, read in the other order, stay inside.
    """
    text = """g (float[4] x) => (float[4] o) {
        p, q = Split (x) s = Sub (q, p) o = Concat <axis = 0> (s, s) }"""
    check_merge(
        rules(a="Split Sub"),
        text,
        after="""
(x) => (o) {
  [region_0] s = a.region (x)
  o = Concat <axis = 0> (s, s)
}
a.split (x) => (split_0_out, split_0_out_1) {
  [Split_0] split_0_out, split_0_out_1 = Split (x)
}
a.sub (x, y) => (sub_0_out) {
  [Sub_0] sub_0_out = Sub (x, y)
}
a.region (x) => (sub_1_out) {
  [split_0] split_0_out, split_0_out_1 = a.split (x)
  [sub_1] sub_1_out = a.sub (split_0_out_1, split_0_out)
}""",
    )


def test_tuple_projection_preserves_real_cycle_boundary() -> None:
    """M11 [H39] test_tuple_projection_preserves_real_cycle_boundary.

    One output goes through the other target, so the reader of both stays out.
    """
    text = """g (float[4] x) => (float[2] o) {
        p, q = Split (x) r = Relu (p) o = Add (q, r) }"""
    check_groups(rules(a="Split Add", b="Relu"), text, ["a: p", "b: r", "a: o"])


def test_tuple_projection_rejects_escaping_tuple() -> None:
    """M12 [H40] test_tuple_projection_rejects_escaping_tuple.

    Outputs that are returned are no obstacle: ONNX returns each by itself.

    TVM keeps two regions, since there the tuple as a whole is a result.
    """
    text = """g (float[4] x) => (float[2] p, float[2] q, float[2] o) {
        p, q = Split (x) o = Relu (p) }"""
    check_groups(rules(a="Split Relu"), text, ["a: p o"])
    result = check_merge(rules(a="Split Relu"), text)
    assert [list(node.output) for node in result.graph.node] == [["p", "q", "o"]]


# -- what TVM gets wrong ---------------------------------------------------------------------------


def test_a_region_that_grows_after_others_depend_on_it() -> None:
    """What a region comes to depend on later counts, too: TVM makes two regions of a cycle here.

    ``n`` joins ``a1``, on which ``X`` depends by then; so ``X`` depends on ``Y`` from then on.
    """
    text = f"""g ({X}, float[2] y) => ({OUT}, float[2] n) {{
        a1 = Relu (x) X = Neg (a1) Y = Neg (y) n = Add (a1, Y) o = Sub (X, Y) }}"""
    given = rules(a="Relu Add", b="Neg Sub")
    check_groups(given, text, ["b: Y", "a: a1 n", "b: X o"])


def test_the_same_with_the_other_order_of_nodes() -> None:
    """Where the second target's last partition comes first, it is the first that has to wait."""
    text = f"""g ({X}, float[2] y) => ({OUT}, float[2] n) {{
        Y = Neg (y) a1 = Relu (x) X = Neg (a1) o = Sub (X, Y) n = Add (a1, Y) }}"""
    given = rules(a="Relu Add", b="Neg Sub")
    check_groups(given, text, ["a: a1", "b: Y X o", "a: n"])


# -- Relay: test_pass_merge_compiler_regions.py ----------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({"test": "Abs Relu", "other": "Neg"}, ["test: a r", "other: n"]),
        ({"test": "Abs Relu Neg"}, ["test: a r n"]),
    ],
    ids=["two-targets", "one-target"],
)
def test_diamond_graph_fanouts(targets: dict[str, str], expected: list[str]) -> None:
    """test_diamond_graph_fanouts: relu goes with abs; the way round through another stays out."""
    text = f"g ({X}) => ({OUT}) {{ a = Abs (x) r = Relu (a) n = Neg (a) o = Max (r, n) }}"
    check_groups(rules(**targets), text, expected)


def test_diamond_graph_fanouts_end() -> None:
    """test_diamond_graph_fanouts: the end of the diamond cannot join its beginning."""
    text = f"g ({X}) => ({OUT}) {{ a = Abs (x) r = Relu (a) n = Neg (a) o = Add (r, n) }}"
    check_groups(rules(test="Abs Relu Add"), text, ["test: a r", "test: o"])


def test_example_graph() -> None:
    """test_example_graph: two targets over ten inputs, as the figure of the pass draws it."""
    inputs = ", ".join(f"float[2] in_{number}" for number in range(1, 11))
    text = f"""g ({inputs}) => (float[2] o) {{
        n0 = Add (in_1, in_2) n1 = Add (in_3, in_4) n2 = Add (n0, n1)
        n3 = Sub (in_5, in_6) n4 = Sub (in_7, n3)
        n5 = Add (n2, n4) n6 = Sub (n4, in_8) n7 = Sub (n5, n6)
        n8 = Add (in_9, n5) n9 = Add (n8, n7) o = Add (in_10, n9) }}"""
    check_groups(
        rules(test="Add", other="Sub"),
        text,
        ["other: n3 n4 n6", "test: n0 n1 n2 n5 n8", "other: n7", "test: n9 o"],
    )


def test_if_else() -> None:
    """test_if_else: what is in a branch is a region there, and the condition's maker is none."""
    text = """g (float[2] x, float[2] y, bool c) => (float[2] o) {
        e = Exp (x)
        i = If (c) <
            then_branch = t () => (float[2] t2) { t1 = Add (e, y) t2 = Sub (t1, y) },
            else_branch = f () => (float[2] f2) { f1 = Exp (e) f2 = Log (f1) }>
        o = Exp (i) }"""
    given = rules(test="Add Sub Exp Log")
    check_groups(given, text, ["test: e", "test: o", "test: t1 t2", "test: f1 f2"])


# -- Relay: test_pass_partition_graph.py -----------------------------------------------------------


def test_multi_node_compiler() -> None:
    """test_multi_node_compiler: two chains alike of one target, and one of another, are joined."""
    inputs = ", ".join(f"float[2] {name}" for name in ("x", *(f"w{i}" for i in range(8))))
    chains = " ".join(
        f"z{i} = Add (x, w{4 * i}) p{i} = Sub (z{i}, w{4 * i + 1}) q{i} = Mul (p{i}, w{4 * i + 2})"
        for i in range(2)
    )
    text = f"""g ({inputs}) => (float[2] o) {{ {chains}
        z = Add (x, w3) y = Sub (z, w7) o = Max (q0, q1, y) }}"""
    given = rules(ccompiler="Add Sub Mul")
    check_groups(
        given,
        text,
        ["ccompiler: z0 p0 q0", "ccompiler: z1 p1 q1", "ccompiler: z y"],
    )
    result = check_merge(given, text)
    assert [node.op_type for node in result.graph.node] == ["region", "region", "region_1", "Max"]


def test_multiple_outputs() -> None:
    """test_multiple_outputs: what others read of a region are its outputs, in order."""
    text = """g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] o, float[1,2,4,4] n) {
        c = Conv (x, w) r = Relu (c) n = Neg (c) m = Sigmoid (c) o = Mul (r, m) }"""
    check_merge(
        rules(test="Conv Relu Neg"),
        text,
        after="""
(x, w) => (o, n) {
  [region_0] c, r, n = test.region (x, w)
  m = Sigmoid (c)
  o = Mul (r, m)
}
test.conv (x, w) => (conv_0_out) {
  [Conv_0] conv_0_out = Conv (x, w)
}
test.relu (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}
test.neg (x) => (neg_0_out) {
  [Neg_0] neg_0_out = Neg (x)
}
test.region (x, w) => (conv_0_out, relu_1_out, neg_2_out) {
  [conv_0] conv_0_out = test.conv (x, w)
  [relu_1] relu_1_out = test.relu (conv_0_out)
  [neg_2] neg_2_out = test.neg (conv_0_out)
}""",
    )


def test_mixed_single_multiple_outputs() -> None:
    """test_mixed_single_multiple_outputs: regions of one and of several outputs side by side."""
    text = f"""g ({X}) => (float[2] p, float[2] q, {OUT}) {{
        a = Abs (x) b = Relu (a) c = Sigmoid (b) d = Abs (c) p = Relu (d)
        q = Neg (d) o = Sigmoid (b) }}"""
    check_groups(rules(test="Abs Relu Neg"), text, ["test: a b", "test: d p q"])


def test_multiple_use_of_an_output() -> None:
    """test_multiple_use_of_an_output: a value read twice is one output, and one input."""
    text = f"""g ({X}) => ({OUT}) {{
        a = Relu (x) b = Neg (a) c = Sigmoid (b) o = Mul (c, c) }}"""
    given = rules(test="Relu Neg Mul")
    check_groups(given, text, ["test: a b", "test: o"])
    result = check_merge(given, text)
    assert [list(node.input) for node in result.graph.node] == [["x"], ["b"], ["c"]]


def test_duplicate_outputs() -> None:
    """test_duplicate_outputs: a value that is returned and read is one output."""
    text = f"""g ({X}) => (float[2] n, {OUT}) {{
        r = Abs (x) n = Neg (r) o = Sigmoid (n) }}"""
    result = check_merge(rules(test="Abs Neg"), text)
    assert [list(node.output) for node in result.graph.node] == [["n"], ["o"]]


def test_constants_are_inputs() -> None:
    """test_not_bind_constant: what is lifted out of partitions is an input of the region, too."""
    text = f"""g ({X}) => ({OUT}) <float[2] k = {{1, 2}}, float[2] m = {{3, 4}}> {{
        a = Add (x, k) o = Mul (a, m) }}"""
    result = check_merge(rules(test="Add Mul"), text)
    assert [list(node.input) for node in result.graph.node] == [["x", "k", "m"]]
    assert [t.name for t in result.graph.initializer] == ["k", "m"]


def test_constant_propagation() -> None:
    """test_constant_propagation: what is embedded in partitions is no input of the region."""
    given = [
        rule("Add(x, const(c))", name="add", target="test"),
        rule("Neg(x)", name="neg", target="test"),
    ]
    text = f"g ({X}) => ({OUT}) <float[2] k = {{1, 2}}> {{ a = Add (x, k) o = Neg (a) }}"
    result = check_merge(given, text)
    assert [list(node.input) for node in result.graph.node] == [["x"]]
