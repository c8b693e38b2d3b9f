"""One function per kind: attributes, variants, constants, scopes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import onnx
import onnx.parser
import pytest

from dplcli.errors import PassError
from tests.support.helpers import (
    check_outcome,
    check_partition,
    check_sound,
    partitioned,
    rule,
    rule_name,
)

if TYPE_CHECKING:
    from tests.support.helpers import Rules

CONVS = """g (float[1,1,8,8] a) => (float[1,1,N,M] o)
  <float[1,1,1,1] k = {2}, float[1,1,1,1] l = {3}>"""


CONV = "{ c = Conv <strides = [2, 2]> (a, k) o = Relu (c) }"


def written(rules: Rules, text: str) -> onnx.ModelProto:
    """Partition and return the model written."""
    result: onnx.ModelProto = onnx.ModelProto.FromString(partitioned(rules, text)[2])
    return result


def functions(model: onnx.ModelProto) -> list[str]:
    """Name the functions of a model."""
    return [f"{function.domain}.{function.name}" for function in model.functions]


def test_one_function_for_equal_structures() -> None:
    """Attributes travel to the calls, in their own order, completed with defaults."""
    check_partition(
        "Relu(Conv(x, w))",
        f"""{CONVS} {{ c = Conv <strides = [2, 2]> (a, k) d = Relu (c)
            e = Conv <group = 1> (d, l) o = Relu (e) }}""",
        after="""
(a) => (o) {
  [r_0] d = t.r <strides = [2, 2], group = 1> (a, k)
  [r_1] o = t.r <group = 1, strides = [1, 1]> (d, l)
}
t.r <strides, group> (x, w) => (relu_1_out) {
  [Conv_0] conv_0_out = Conv <strides = @strides, group = @group> (x, w)
  [Relu_1] relu_1_out = Relu (conv_0_out)
}""",
    )


def test_what_no_node_states_is_not_declared() -> None:
    """Attributes left to their defaults by all stay so."""
    result = written("Relu(Conv(x, w))", f"{CONVS} {{ c = Conv (a, k) o = Relu (c) }}")
    assert list(result.functions[0].attribute) == []
    assert list(result.graph.node[0].attribute) == []


def test_an_unknown_default_makes_a_kind_of_its_own() -> None:
    """Pads beside auto_pad has no default to complete: two functions, both right."""
    text = f"""{CONVS} {{ c = Conv <auto_pad = "SAME_UPPER"> (a, k) d = Relu (c)
        e = Conv <pads = [0, 0, 0, 0]> (d, l) o = Relu (e) }}"""
    result = check_outcome("Relu(Conv(x, w))", text)
    first, second = functions(result)
    assert {rule_name(first), rule_name(second)} == {"t.r"}
    assert first != second


def test_two_attributes_of_one_name() -> None:
    """Nodes with the same attribute get one declared attribute each."""
    check_partition(
        "LeakyRelu(LeakyRelu(x))",
        """g (float[2] a) => (float[2] o) {
            c = LeakyRelu <alpha = 0.5> (a) o = LeakyRelu <alpha = 0.25> (c) }""",
        after="""
(a) => (o) {
  [r_0] o = t.r <alpha = 0.5, alpha_1 = 0.25> (a)
}
t.r <alpha, alpha_1> (x) => (leakyrelu_1_out) {
  [LeakyRelu_0] leakyrelu_0_out = LeakyRelu <alpha = @alpha> (x)
  [LeakyRelu_1] leakyrelu_1_out = LeakyRelu <alpha = @alpha_1> (leakyrelu_0_out)
}""",
    )


def test_negative_zero_is_not_zero() -> None:
    """Attributes that compare equal and are not the same bits are each written as they are."""
    result = written(
        "LeakyRelu(x)",
        """g (float[2] a) => (float[2] o, float[2] p) {
            o = LeakyRelu <alpha = 0.0> (a) p = LeakyRelu <alpha = -0.0> (a) }""",
    )
    bits = [struct.pack("<f", node.attribute[0].f) for node in result.graph.node]
    assert bits == [struct.pack("<f", 0.0), struct.pack("<f", -0.0)]


def test_structural_variants() -> None:
    """An optional part that is there in one match only makes a second function."""
    text = """g (float[2] a) => (float[2] o) {
        c = Abs (a) d = Neg (c) e = Relu (d) f = Abs (e) o = Relu (f) }"""
    result = check_outcome("Relu(optional(Neg)(Abs(x)))", text)
    with_neg, without = functions(result)
    assert (rule_name(with_neg), without) == ("t.r", "t.r")
    assert with_neg != "t.r"
    calls = [f"t.{node.op_type}" for node in result.graph.node]
    assert calls == [with_neg, without]


def test_operands_of_a_commuting_operator_make_no_variant() -> None:
    """Both calls are of one function, and ``dpl inline`` puts the operands back as they were."""
    text = """g (float[2] a, float[2] b) => (float[2] o) {
        r = Relu (a) s = Add (r, b) t = Relu (s) o = Add (b, t) }"""
    result = check_outcome("Add(Relu(x), y)", text)
    assert functions(result) == ["t.r"]
    assert [list(node.input) for node in result.graph.node] == [["a", "b"], ["s", "b"]]


@pytest.mark.parametrize("operator", ["Sub", "Div", "Sum"])
def test_operands_that_do_not_commute_make_a_variant(operator: str) -> None:
    """A difference is not its opposite, and a sum of three depends on the order."""
    third = ", a" if operator == "Sum" else ""
    text = f"""g (float[2] a, float[2] b) => (float[2] o) {{
        r = Relu (a) s = {operator} (r, b{third}) t = Relu (s) o = {operator} (b, t{third}) }}"""
    pattern = f"{operator}(Relu(x), y{third and ', z'}) | {operator}(y, Relu(x){third and ', z'})"
    assert len(functions(check_outcome(pattern, text))) == 2


def test_trailing_omitted_inputs_make_no_variant() -> None:
    """Inputs omitted at the end by empty names are the same structure as none."""
    text = "g (float[2] a) => (float[2] o) { b = Clip (a) o = Clip (b, , ) }"
    assert functions(check_outcome("Clip(x)", text)) == ["t.r"]


def test_a_function_of_that_name_is_left_alone() -> None:
    """A function in the file keeps its name and body; the partition gets another name."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
        g (float[2] a) => (float[2] o) { m = t.r (a) o = Relu (m) }
        <domain: "t", opset_import: ["" : 17]> r (x) => (y) { y = Neg (x) }"""
    result = written("Relu(x)", text)
    assert sorted(functions(result)) == ["t.r", "t.r_1"]
    assert [node.op_type for node in result.graph.node] == ["r", "r_1"]


CONST = "g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> { o = Add (a, k) }"


@pytest.mark.parametrize(
    ("pattern", "policy", "embedded"),
    [
        ("Add(x, const(c))", "auto", True),
        ("Add(x, const(c))", "embed", True),
        ("Add(x, const(c))", "lift", False),
        ("Add(x, y)", "auto", False),
        ("Add(x, y)", "embed", True),
        ("Add(x, y)", "lift", False),
    ],
)
def test_policies_for_constants(pattern: str, policy: str, *, embedded: bool) -> None:
    """Auto embeds what const(...) matched, embed every constant, lift none."""
    result = written(rule(pattern, constants=policy), CONST)
    assert [node.op_type for node in result.functions[0].node] == (
        ["Constant", "Add"] if embedded else ["Add"]
    )
    assert list(result.graph.node[0].input) == (["a"] if embedded else ["a", "k"])
    assert [tensor.name for tensor in result.graph.initializer] == ([] if embedded else ["k"])
    onnx.checker.check_model(result, full_check=True)


def test_an_embedded_constant_that_is_read_elsewhere_is_kept() -> None:
    """Only what nobody reads any more is dropped."""
    text = CONST.replace("o = Add (a, k)", "m = Add (a, k) o = Sub (m, k)")
    result = check_outcome("Add(x, const(c))", text)
    assert [tensor.name for tensor in result.graph.initializer] == ["k"]


@pytest.mark.parametrize(
    "source",
    ["k = Constant <value = float[2] {1, 2}> ()", "h = Constant <value_floats = [1.0, 2.0]> ()"],
)
def test_embedded_constant_nodes_and_identities_are_dropped(source: str) -> None:
    """A Constant node, and the Identity before the match, go when nobody reads them."""
    name = source.split(" ", 1)[0]
    text = f"""g (float[2] a) => (float[2] o) {{
        {source} i = Identity ({name}) o = Add (a, i) }}"""
    result = check_outcome("Add(x, const(c))", text)
    assert [rule_name(node.op_type) for node in result.graph.node] == ["r"]


def test_a_constant_embedded_beside_foreign_operators() -> None:
    """The Constant node of a function needs the standard domain, if no other node does."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a) => (float[2] o) <float[2] k = {1, 2}> { o = f.body (a, k) }
        <domain: "f", opset_import: ["" : 17]> body (x, y) => (z) { z = Add (x, y) }"""
    check_outcome("f.body(x, const(c))", text)


def test_partitions_in_bodies_and_functions_share_one_function() -> None:
    """If bodies and functions are partitioned too, and import the target."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a, bool c) => (float[2] o) {
          m = Relu (a) n = f.body (m)
          o = If (c) <then_branch = t () => (float[2] p) { p = Relu (n) },
                      else_branch = e () => (float[2] q) { q = Neg (n) }> }
        <domain: "f", opset_import: ["" : 17]> body (x) => (y) { y = Relu (x) }"""
    result = check_outcome("Relu(v)", text)
    assert sorted(functions(result)) == ["f.body", "t.r"]
    body = next(function for function in result.functions if function.name == "body")
    assert [node.domain for node in body.node] == ["t"]
    assert {item.domain for item in body.opset_import} == {"", "t"}
    assert [node.domain for node in result.graph.node[2].attribute[0].g.node] == ["t"]


def test_a_captured_constant_is_embedded_and_dropped() -> None:
    """A constant of the outer graph, matched in a body, goes into the function."""
    text = """g (float[2] a, bool c) => (float[2] o) <float[2] k = {1, 2}> {
        o = If (c) <then_branch = t () => (float[2] p) { p = Add (a, k) },
                    else_branch = e () => (float[2] q) { q = Neg (a) }> }"""
    result = check_outcome("Add(x, const(w))", text)
    assert not result.graph.initializer


def test_an_attribute_by_reference_is_passed_on() -> None:
    """Inside a function, what its caller supplies is supplied to the partition in turn."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] a) => (float[2] o) { m = f.leaky <alpha = 0.5> (a) o = LeakyRelu (m) }
        <domain: "f", opset_import: ["" : 17]>
        leaky <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"""
    result = check_outcome("LeakyRelu(v)", text)
    assert sorted(functions(result)) == ["f.leaky", "t.r"]


def test_scopes_of_different_opsets_share_nothing() -> None:
    """A function is written for the opset of its nodes."""
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2,2] a) => (float[2,2] o) { m = f.body (a) o = Softmax (m) }
        <domain: "f", opset_import: ["" : 11]> body (x) => (y) { y = Softmax (x) }"""
    result = written("Softmax(v)", text)
    versions = {
        f.name: [i.version for i in f.opset_import if not i.domain] for f in result.functions
    }
    assert sorted(versions.pop("body")) == [11]
    assert sorted(versions.values()) == [[11], [17]]


OLD_FUNCTION = """<ir_version: {0}, opset_import: ["" : {1}, "f" : 1]>
    g (float[2] a) => (float[2] o) {{ m = f.body (a) o = Neg (m) }}
    <domain: "f", opset_import: ["" : {2}]> body (x) => (y) {{ y = {3} (x) }}"""


def test_a_function_of_a_file_too_old_for_functions() -> None:
    """In the result it would count, and its operators are not those of the model: refused."""
    text = OLD_FUNCTION.format(6, 13, 17, "Relu")

    with pytest.raises(PassError, match=r"f::body uses Relu of opset 17, and .* opset 13") as error:
        partitioned("Neg(v)", text)
    assert "--opset 17" in (error.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        OLD_FUNCTION.format(6, 17, 17, "Relu"),
        OLD_FUNCTION.format(6, 16, 17, "Relu"),
        OLD_FUNCTION.format(6, 13, 17, "Abs"),
    ],
    ids=["same opset", "same operator", "an operator that stayed"],
)
def test_one_whose_operators_are_those_of_the_model(text: str) -> None:
    """That is no trouble."""
    check_outcome("Neg(v)", text)


def test_nothing_is_refused_where_nothing_is_written() -> None:
    """What needs no newer file is left as it is."""
    text = OLD_FUNCTION.format(6, 13, 17, "Relu")
    before = onnx.parser.parse_model(text)

    assert onnx.ModelProto.FromString(partitioned("Tanh(v)", text)[2]) == before


def test_an_attribute_that_refers_to_nothing() -> None:
    """In the main graph its value counts, in the function written as well."""
    before = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {CONVS} {CONV}')
    before.graph.node[0].attribute[0].ref_attr_name = "axis"
    _, _, data = partitioned("Relu(Conv(x, w))", before.SerializeToString())
    after = onnx.ModelProto.FromString(data)

    check_sound(before, after)
    assert [list(item.ints) for item in after.graph.node[0].attribute] == [[2, 2]]
    assert not any(item.ref_attr_name for item in after.graph.node[0].attribute)
