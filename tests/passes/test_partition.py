"""What a partition looks like in the model: calls, names, outputs, scopes, versions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.support.helpers import (
    check_outcome,
    check_partition,
    model_from_text,
    partitioned,
    proto_from_text,
    rule,
)

ROOT = Path(__file__).parents[2]
ADD_RELU = "Relu(Add(x, y))"
AB = "g (float[2] a, float[2] b) => (float[2] o)"


def test_a_match_becomes_a_call() -> None:
    """Nodes go into a function, in the order of the operands, and the call takes their place."""
    check_partition(
        ADD_RELU,
        f"{AB} {{ n = Neg (a) m = Add (b, n) o = Relu (m) }}",
        after="""
(a, b) => (o) {
  n = Neg (a)
  [r_0] o = t.r (b, n)
}
t.r (x, y) => (relu_1_out) {
  [Add_0] add_0_out = Add (x, y)
  [Relu_1] relu_1_out = Relu (add_0_out)
}""",
    )


def test_an_attribute_without_a_name_goes_along() -> None:
    """No operator has one, and the checker refuses it; what is in it is not lost."""
    proto = proto_from_text("g (float[4] x) => (float[4] y) { y = Relu (x) }")
    proto.graph.node[0].attribute.add().ints.extend([1, 2])

    _, _, written = partitioned(rule("Relu(x)"), proto.SerializeToString())

    result = onnx.ModelProto.FromString(written)
    (call,), (function,) = result.graph.node, result.functions
    assert call.attribute[0].ints == [1, 2]
    assert function.node[0].attribute[0].ref_attr_name == call.attribute[0].name


def test_nothing_to_do_leaves_the_model_as_it_was() -> None:
    """Without a match not a byte changes, the IR version included."""
    text = '<ir_version: 3, opset_import: ["" : 7]> g (float[2] a) => (float[2] o) { o = Neg (a) }'
    result = check_partition(ADD_RELU, text)
    assert result == onnx.parser.parse_model(text)


def test_a_refused_match_leaves_the_model_as_it_was() -> None:
    """What is refused stays, with a reason."""
    check_partition(
        rule(ADD_RELU, "x.rank == 9"),
        f"{AB} {{ m = Add (a, b) o = Relu (m) }}",
        refused=["r at o: where: 'x.rank == 9' does not hold"],
    )


def test_a_convolution_shared_by_two_relus_stays() -> None:
    """A producer that two consumers need is never duplicated or lost."""
    check_partition(
        "Relu(Conv(x, w))",
        """g (float[1,1,4,4] a) => (float[1,1,4,4] o, float[1,1,4,4] p) <float[1,1,1,1] k = {2}> {
            c = Conv (a, k) o = Relu (c) p = Relu (c) }""",
        refused=[
            "r at p: escape: 'c' is also read by Relu 'o'",
            "r at o: escape: 'c' is also read by Relu 'p'",
        ],
    )


STEPPED = """g (int8[1,1,4,4] a, float[1,1,4,4] r) => (float[1,1,4,4] o, float[1,1,4,4] p%s)
  <float[1,1,1,1] k = {2}, float s = {0.5}, int8 z = {3}> {
    d = DequantizeLinear (a, s, z) c = Conv (d, k) o = Relu (c) e = Conv (d, k) p = Relu (e)%s }"""
STEPPED_CONV = "Relu(Conv(DequantizeLinear(x, s, z), w))"


def test_a_shared_dequantisation_is_done_by_each_reader() -> None:
    """Both convolutions take it along, and read what is packed; here nobody else needs it."""
    check_partition(
        STEPPED_CONV,
        STEPPED % ("", ""),
        after="""
(a, r) => (o, p) {
  [r_0] o = t.r (a, s, z, k)
  [r_1] p = t.r (a, s, z, k)
}
t.r (x, s, z, w) => (relu_2_out) {
  [DequantizeLinear_0] dequantizelinear_0_out = DequantizeLinear (x, s, z)
  [Conv_1] conv_1_out = Conv (dequantizelinear_0_out, w)
  [Relu_2] relu_2_out = Relu (conv_1_out)
}""",
    )


@pytest.mark.parametrize(
    ("output", "node"),
    [("", " t = Add (d, r)"), (", float[1,1,4,4] d", "")],
    ids=["read by a residual", "returned"],
)
def test_a_dequantisation_that_others_need_stays(output: str, node: str) -> None:
    """Beside the copies in the functions; the file is proved to be the original all the same."""
    text = STEPPED % (output or ", float[1,1,4,4] t", node)
    model, selection, _ = partitioned(rule(STEPPED_CONV), text)
    assert len(selection.matches) == 2
    assert [node.op_type for node in model.graph].count("DequantizeLinear") == 1


@pytest.mark.parametrize(
    ("pattern", "shared"),
    [
        ("Relu(Conv(DequantizeLinear(QuantizeLinear(x, s, z), s, z), w))", "d"),
        ("Mul(Neg(Conv(x, w)), y)", "n"),
    ],
    ids=["with what it is made of", "another operator"],
)
def test_what_costs_more_is_not_done_twice(pattern: str, shared: str) -> None:
    """Where a copy would take a quantisation along, or is no dequantisation."""
    text = """g (float[1,1,4,4] a, float[1,1,4,4] y) => (float[1,1,4,4] o, float[1,1,4,4] m)
      <float[1,1,1,1] k = {2}, float s = {0.5}, uint8 z = {3}> {
        q = QuantizeLinear (a, s, z) d = DequantizeLinear (q, s, z) c = Conv (d, k) o = Relu (c)
        e = Conv (d, k) n = Neg (e) p = Mul (n, y) m = Add (p, n) }"""
    _, selection, _ = partitioned(rule(pattern), text)
    assert not selection.matches
    (refused,) = selection.refused
    assert refused.reason.startswith(f"'{shared}' is also read by")


def test_a_value_used_twice_is_one_input() -> None:
    """The call reads each value once."""
    check_partition(
        "Mul(Add(x, y), x)",
        f"{AB} {{ m = Add (a, b) o = Mul (m, a) }}",
        after="""
(a, b) => (o) {
  [r_0] o = t.r (a, b)
}
t.r (x, y) => (mul_1_out) {
  [Add_0] add_0_out = Add (x, y)
  [Mul_1] mul_1_out = Mul (add_0_out, x)
}""",
    )


def test_a_value_bound_twice_by_chance_is_one_input() -> None:
    """Two wildcards that meet in one value make one input."""
    check_partition(
        ADD_RELU,
        f"{AB} {{ m = Add (a, a) o = Relu (m) }}",
        after="""
(a, b) => (o) {
  [r_0] o = t.r (a)
}
t.r (x) => (relu_1_out) {
  [Add_0] add_0_out = Add (x, x)
  [Relu_1] relu_1_out = Relu (add_0_out)
}""",
    )


def test_absent_inputs_stay_absent() -> None:
    """An omitted input inside the match is omitted in the function, not an input of it."""
    check_partition(
        "Clip(x, None, h)",
        "g (float[2] a, float hi) => (float[2] o) { o = Clip (a, , hi) }",
        after="""
(a, hi) => (o) {
  [r_0] o = t.r (a, hi)
}
t.r (x, h) => (clip_0_out) {
  [Clip_0] clip_0_out = Clip (x, "", h)
}""",
    )


def test_a_root_with_several_outputs() -> None:
    """Every output of the root that is read is an output of the call, under its name."""
    check_partition(
        "Split(x)",
        "g (float[4] a) => (float[2] p, float[2] q) { p, q = Split (a) }",
        after="""
(a) => (p, q) {
  [r_0] p, q = t.r (a)
}
t.r (x) => (split_0_out, split_0_out_1) {
  [Split_0] split_0_out, split_0_out_1 = Split (x)
}""",
    )


def test_a_root_whose_second_output_alone_is_read() -> None:
    """An output that nobody reads is not an output of the call."""
    result = check_partition(
        "Split(x)[1]",
        "g (float[4] a) => (float[2] q) { p, q = Split (a) }",
        after="""
(a) => (q) {
  [r_0] q = t.r (a)
}
t.r (x) => (split_0_out_1) {
  [Split_0] split_0_out, split_0_out_1 = Split (x)
}""",
    )
    assert [list(node.output) for node in result.graph.node] == [["q"]]


def test_identity_inside_goes_along() -> None:
    """An Identity between two matched nodes is part of the function."""
    check_partition(
        "Relu(Neg(x))",
        f"{AB} {{ n = Neg (a) i = Identity (n) o = Relu (i) }}",
        after="""
(a, b) => (o) {
  [r_0] o = t.r (a)
}
t.r (x) => (relu_2_out) {
  [Neg_0] neg_0_out = Neg (x)
  [Identity_1] identity_1_out = Identity (neg_0_out)
  [Relu_2] relu_2_out = Relu (identity_1_out)
}""",
    )


def test_metadata() -> None:
    """Function and call say what they are made of, in TVM's words."""
    result = check_partition(
        """
        dpl: 1
        target: dnnl
        patterns:
          - name: add_relu
            pattern: Relu(Add(x, y))
            attrs: {Version: "3"}
        """,
        f"{AB} {{ [first] m = Add (b, a) o = Relu (m) }}",
        after="""
(a, b) => (o) {
  [add_relu_0] o = dnnl.add_relu (b, a)
}
dnnl.add_relu (x, y) => (relu_1_out) {
  [Add_0] add_0_out = Add (x, y)
  [Relu_1] relu_1_out = Relu (add_0_out)
}""",
    )
    assert {item.key: item.value for item in result.functions[0].metadata_props} == {
        "Composite": "dnnl.add_relu",
        "Codegen": "dnnl",
        "PartitionedFromPattern": "Add_Relu_",
        "Version": "3",
    }
    (entry,) = result.graph.node[0].metadata_props
    assert entry.key == "dpl.nodes"
    assert json.loads(entry.value) == [["Add", "first", ["m"]], ["Relu", "", ["o"]]]


ATTRS = """
dpl: 1
target: t
patterns:
  - name: r
    pattern: |
      c = Conv(x, w, strides=s)
      Mul(LeakyRelu(c), const(k))
    constants: lift
    attrs:
      layout: NCHW
      groups: = c.attrs.group
      strides: = s
      alpha: = k.value * 2
      n: = w.shape[0]
"""
CONVS = """g (float[1,4,8,8] a, float[4,4,1,1] w, float[4,2,1,1] v) => (float[1,4,8,8] o)
    <float k = {0.5}, float l = {2.0}> {
    c = Conv (a, w) r = LeakyRelu <alpha = 0.3> (c) n = Mul (r, k)
    d = Conv <group = 2, strides = [1, 1]> (n, v) q = LeakyRelu (d) o = Mul (l, q) }"""


def test_attributes_of_a_call_are_computed() -> None:
    """What a rule computes of a match is given at its call, before the attributes of operators."""
    result = check_outcome(ATTRS, CONVS)

    (function,) = result.functions
    given = [
        {each.name: onnx.helper.get_attribute_value(each) for each in call.attribute}
        for call in result.graph.node
    ]
    computed = [(each["groups"], each["strides"], each["alpha"], each["n"]) for each in given]
    assert computed == [(1, [1, 1], 1.0, 4), (2, [1, 1], 4.0, 4)]
    assert list(function.attribute)[:4] == ["groups", "strides", "alpha", "n"]
    assert [each["alpha_1"] for each in given] == pytest.approx([0.3, 0.01])
    assert {"groups", "layout"} & {item.key for item in function.metadata_props} == {"layout"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("= x.shape", "the attribute 'a' cannot be ('N', 2)"),
        ("= x.shape[0]", "the attribute 'a' cannot be 'N'"),
        ("= x.shape[1:] + y.shape[:1]", "the attribute 'a' cannot be (2, 'N')"),
        ("= y.value", "attrs: a is not known: 'b' is not a constant"),
        ("= x.shape[2]", "attrs: a cannot be evaluated: an item is asked for that there is not"),
    ],
)
def test_a_match_whose_attributes_are_not_known_is_refused(text: str, reason: str) -> None:
    """With what is not known, and the model stays as it was."""
    check_partition(
        rule("Sub(x, y)", metadata={"a": text}),
        "g (float[N, 2] a, float[N, 2] b) => (float[N, 2] o) { o = Sub (a, b) }",
        refused=[f"r at o: where: {reason}"],
    )


def test_a_rule_cannot_forge_the_partitions_own_metadata() -> None:
    """Further metadata is added; of what dpl writes it replaces the name alone, as in TVM."""
    forged = rule("Relu(x)", metadata={"Composite": "other.thing", "Codegen": "other"})
    _, _, written = partitioned(forged, f"{AB} {{ o = Relu (a) }}")
    function = onnx.ModelProto.FromString(written).functions[0]
    metadata = {item.key: item.value for item in function.metadata_props}
    assert (metadata["Composite"], metadata["Codegen"]) == ("other.thing", "t")


def test_names_of_calls_are_unique() -> None:
    """A call's name is one that no other node has, whatever names are in the file."""
    result = check_partition(
        "Relu(x)",
        f"{AB} {{ [r_0] n = Neg (a) [r_0_1] m = Neg (n) k = Relu (m) o = Relu (k) }}",
        after="""
(a, b) => (o) {
  [r_0] n = Neg (a)
  [r_0_1] m = Neg (n)
  [r_0_2] k = t.r (m)
  [r_1] o = t.r (k)
}
t.r (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}""",
    )
    names = [node.name for node in result.graph.node]
    assert len(set(names)) == len(names)


def test_opset_imports() -> None:
    """The target is imported by the model once; the function imports what its nodes need."""
    result = check_partition(
        "Relu(x)",
        f"{AB} {{ o = Relu (a) }}",
        after="""
(a, b) => (o) {
  [r_0] o = t.r (a)
}
t.r (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}""",
    )
    imports = [(item.domain, item.version) for item in result.opset_import]
    assert imports == [("", 17), ("com.microsoft", 1), ("t", 1)]
    function = result.functions[0]
    assert [(item.domain, item.version) for item in function.opset_import] == [("", 17)]


OLD = """<ir_version: {}, opset_import: ["" : 7]>
    g (float[2] a, float[2] w) => (float[2] o) <float[2] w = {{1, 2}}> {{
      m = Add (a, w) o = Relu (m) }}"""


@pytest.mark.parametrize(
    ("version", "inputs", "raised"),
    [(3, ["a"], 8), (4, ["a", "w"], 8), (7, ["a", "w"], 8), (8, ["a", "w"], 8)],
)
def test_ir_version(version: int, inputs: list[str], raised: int) -> None:
    """IR rises to 8 if lower; below 4 alone initializers leave the list of inputs."""
    _, _, written = partitioned(ADD_RELU, OLD.format(version))
    result = onnx.ModelProto.FromString(written)
    assert result.ir_version == raised
    assert [info.name for info in result.graph.input] == inputs
    assert [tensor.name for tensor in result.graph.initializer] == ["w"]
    onnx.checker.check_model(result, full_check=True)


def test_a_higher_ir_version_stays() -> None:
    """IR 10 is not lowered."""
    text = f'<ir_version: 10, opset_import: ["" : 17]> {AB} {{ o = Relu (a) }}'
    assert onnx.ModelProto.FromString(partitioned("Relu(x)", text)[2]).ir_version == 10


def test_names_shapes_and_other_metadata_are_kept() -> None:
    """Inputs, outputs, value_info and other nodes' metadata stand as before."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17], producer_name: "p"> {AB} '
        "<float[2] n> { n = Neg (a) m = Add (b, n) o = Relu (m) }"
    )
    proto.graph.node[0].metadata_props.add(key="k", value="v")
    proto.metadata_props.add(key="model", value="yes")
    before = proto.SerializeToString()
    result = onnx.ModelProto.FromString(partitioned(ADD_RELU, before)[2])
    assert (result.graph.input, result.graph.output) == (proto.graph.input, proto.graph.output)
    assert result.graph.node[0] == proto.graph.node[0]
    assert result.graph.value_info == proto.graph.value_info
    assert (result.producer_name, result.metadata_props) == ("p", proto.metadata_props)


def test_value_info_of_what_is_gone_goes_too() -> None:
    """A value that moved into a function is declared no more."""
    text = f"{AB} <float[2] m> {{ m = Add (a, b) o = Relu (m) }}"
    assert not onnx.ModelProto.FromString(partitioned(ADD_RELU, text)[2]).graph.value_info


def test_bytes_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Neither the run nor the seed of Python's hashes shows in the result."""
    text = f"{AB} {{ m = Add (a, b) k = Relu (m) n = Add (k, a) l = Relu (n) o = Neg (l) }}"
    here = partitioned([rule(ADD_RELU), rule("Neg(x)", name="n")], text)[2]
    assert here == partitioned([rule(ADD_RELU), rule("Neg(x)", name="n")], text)[2]
    program = (
        "import sys; from tests.support.helpers import partitioned, rule\n"
        f"data = partitioned([rule({ADD_RELU!r}), rule('Neg(x)', name='n')], {text!r})[2]\n"
        "open(sys.argv[1], 'wb').write(data)"
    )
    out = tmp_path / "out"
    subprocess.run(  # noqa: S603  # our own interpreter and program
        [sys.executable, "-c", program, str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        check=True,
        timeout=60,
    )
    assert out.read_bytes() == here


def test_partitions_come_in_the_order_of_the_program() -> None:
    """Each entry of the result names its match, its function and its call."""
    model = model_from_text(f"{AB} {{ m = Relu (a) o = Relu (m) }}")
    assert model.graph.node_count == 2
    after, selection, _ = partitioned("Relu(x)", f"{AB} {{ m = Relu (a) o = Relu (m) }}")
    assert [node.qualified_op for node in after.graph] == ["t.r", "t.r"]
    assert len(selection.matches) == 2
