"""What regions look like in the model: functions, names, scopes, what was there before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from dplcli.onnx_io import to_proto
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from tests.passes.inlining import inlined
from tests.passes.merged import check_merge, check_merged_again, groups, merged
from tests.support.helpers import (
    check_sound,
    model_from_bytes,
    print_model,
    proto_from_text,
    rule,
    rule_name,
)
from tests.support.structure import differences

if TYPE_CHECKING:
    from dplcli.language import PatternRule

RELU = rule("Relu(x)", name="relu", target="s")
ADD = rule("Add(x, y)", name="add", target="s")
LEAKY = rule("LeakyRelu(x)", name="leaky", target="s")
NEG = rule("Neg(x)", name="neg", target="t")
RULES = [RELU, ADD, LEAKY, NEG]
A = "float[2] a"
O = "float[2] o"  # noqa: E741  # the output


def notes(model: onnx.ModelProto, name: str) -> dict[str, Any]:
    """Return what the call of that name carries."""
    (node,) = [node for node in model.graph.node if node.name == name]
    return {item.key: json.loads(item.value) for item in node.metadata_props}


def remark(op: str, name: str, output: str) -> dict[str, dict[str, str]]:
    """Return what is noted of a call of a partition of one node."""
    return {"metadata": {"dpl.nodes": f'[["{op}","{name}",["{output}"]]]'}}


def names(model: onnx.ModelProto) -> list[str]:
    """Return the functions, in the order of the file."""
    return [f"{function.domain}::{function.name}" for function in model.functions]


def test_calls_of_a_domain_that_is_not_imported_are_merged() -> None:
    """The checker of onnx accepts such a file; what is written imports the domain."""
    text = f"""<ir_version: 10, opset_import: ["" : 17, "s" : 1]>
        g ({A}) => ({O}) {{ h = s.relu (a) o = s.relu (h) }}
        <domain: "s", opset_import: ["" : 17]> relu (x) => (y) {{ y = Relu (x) }}"""
    proto = proto_from_text(text)
    del proto.opset_import[1]
    (function,) = proto.functions
    item = function.metadata_props.add()
    item.key, item.value = "Composite", "s.relu"
    item = function.metadata_props.add()
    item.key, item.value = "Codegen", "s"
    model = model_from_bytes(proto.SerializeToString())
    (region,) = merge_partitions(model, {"relu"})
    assert len(region.partitions) == 2
    written = to_proto(model)
    onnx.checker.check_model(written)
    assert {opset.domain: opset.version for opset in written.opset_import} == {"": 17, "s": 1}


def test_what_a_region_is() -> None:
    """The function calls those of the partitions; the call says what each stands for."""
    result = check_merge(
        RULES,
        f"g ({A}) => ({O}) {{ [first] h = LeakyRelu <alpha = 0.5> (a) [second] o = Relu (h) }}",
        after="""
(a) => (o) {
  [region_0] o = s.region (a)
}
s.leaky <alpha> (x) => (leakyrelu_0_out) {
  [LeakyRelu_0] leakyrelu_0_out = LeakyRelu <alpha = @alpha> (x)
}
s.relu (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}
s.region (x) => (relu_1_out) {
  [leaky_0] leaky_0_out = s.leaky <alpha = 0.5> (x)
  [relu_1] relu_1_out = s.relu (leaky_0_out)
}""",
    )
    assert notes(result, "region_0") == {
        "dpl.nodes": [["s.leaky", "leaky_0", ["h"]], ["s.relu", "relu_0", ["o"]]],
        "dpl.undo": {
            "run": 1,
            "remarks": {"0": remark("LeakyRelu", "first", "h"), "1": remark("Relu", "second", "o")},
        },
    }
    (region,) = [function for function in result.functions if function.name == "region"]
    assert [(item.key, item.value) for item in region.metadata_props] == [("Codegen", "s")]
    assert [(item.domain, item.version) for item in region.opset_import] == [("s", 1)]
    assert not any(node.metadata_props for node in region.node)
    assert [(item.domain, item.version) for item in result.opset_import][-1] == ("s", 1)


def test_neighbours_make_no_difference_to_a_model_without() -> None:
    """A model without neighbours is, to the byte, what it is without merging."""
    text = f"g ({A}) => ({O}) {{ h = Relu (a) n = Abs (h) o = Relu (n) }}"
    model = model_from_bytes(proto_from_text(text).SerializeToString())
    partition(model, select_matches(model, RULES))
    before = print_model(model)
    regions = merge_partitions(model)
    assert print_model(model) == before
    assert [region.partitions for region in regions] == [("relu_0",), ("relu_1",)]
    check_merge(RULES, text)


def test_regions_that_do_the_same_share_a_function() -> None:
    """Each call says for itself what it stands for."""
    result = check_merge(
        RULES,
        f"""g ({A}) => ({O}) {{
            h = LeakyRelu <alpha = 0.5> (a) i = Relu (h) j = Abs (i)
            [k] k = LeakyRelu <alpha = 0.5> (j) [o] o = Relu (k) }}""",
    )
    assert [(n.name, n.op_type) for n in result.graph.node] == [
        ("region_0", "region"),
        ("", "Abs"),
        ("region_1", "region"),
    ]
    assert notes(result, "region_1") == {
        "dpl.nodes": [["s.leaky", "leaky_1", ["k"]], ["s.relu", "relu_1", ["o"]]],
        "dpl.undo": {
            "run": 1,
            "remarks": {"0": remark("LeakyRelu", "k", "k"), "1": remark("Relu", "o", "o")},
        },
    }


@pytest.mark.parametrize(
    "second",
    [
        "k = LeakyRelu <alpha = 0.25> (j) o = Relu (k)",
        "k = Relu (j) o = LeakyRelu <alpha = 0.5> (k)",
        "k = LeakyRelu <alpha = 0.5> (j) l = Relu (k) o = Max (k, l)",
        "k = LeakyRelu <alpha = 0.5> (j) l = Relu (k) o = Relu (l)",
    ],
    ids=["attribute", "order", "outputs", "longer"],
)
def test_regions_that_differ_do_not(second: str) -> None:
    """Another attribute, another order, another output, one call more: another function."""
    result = check_merge(
        RULES,
        f"""g ({A}) => ({O}) {{
            h = LeakyRelu <alpha = 0.5> (a) i = Relu (h) j = Abs (i) {second} }}""",
    )
    assert names(result)[2:] == ["s::region", "s::region_1"]


def test_regions_wired_otherwise_differ() -> None:
    """The same calls in the same order, but operands exchanged: another function."""
    result = check_merge(
        RULES,
        f"""g ({A}, float[2] b) => ({O}) {{
            h = Relu (a) i = Add (h, b) j = Abs (i) k = Relu (j) o = Add (b, k) }}""",
    )
    assert names(result) == ["s::relu", "s::add", "s::region", "s::region_1"]


def test_names_that_are_taken() -> None:
    """A function, an operator and a rule may be called region already, and a node region_1_0."""
    rules = [rule("Relu(x)", name="region", target="s"), ADD]
    result = check_merge(
        rules,
        f"""<ir_version: 8, opset_import: ["" : 17, "s" : 1]>
        g ({A}) => ({O}) {{ [region_2_0] h = s.region_1 (a) i = Relu (h) o = Add (i, i) }}
        <domain: "s", opset_import: ["" : 17]> region_1 (x) => (y) {{ y = Abs (x) }}""",
    )
    found = list(map(rule_name, names(result)))
    assert found == ["s::region", "s::add", "s::region_2", "s::region_1"]
    assert [node.name for node in result.graph.node] == ["region_2_0", "region_2_0_1"]


def test_a_rule_called_region() -> None:
    """A region's function is not called as a rule is, though that has matched nothing."""
    model = model_from_bytes(
        proto_from_text(f"g ({A}) => ({O}) {{ h = Relu (a) o = Relu (h) }}").SerializeToString()
    )
    partition(model, select_matches(model, RULES))
    (region,) = merge_partitions(model, {"region"})
    assert region.function.name == "region_1"


def test_what_nobody_reads() -> None:
    """A region all of whose values are unread still makes one."""
    text = f"g ({A}) => ({O}) {{ h = Relu (a) i = Relu (h) o = Abs (a) }}"
    result = check_merge(RULES, text)
    assert [list(node.output) for node in result.graph.node] == [["i"], ["o"]]


# -- near misses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = Relu (a) n = Abs (h) o = Add (h, n)", ["s: h", "s: o"]),
        ("h = Relu (a) n = Abs (h) m = Abs (n) l = Abs (m) o = Add (h, l)", ["s: h", "s: o"]),
        ("h = Relu (a) n = Neg (h) o = Add (h, n)", ["s: h", "t: n", "s: o"]),
        (
            "h = Relu (a) n = Neg (a) i = Add (h, n) m = Neg (h) p = Max (n, m) o = Max (i, p)",
            ["t: n", "s: h i", "t: m"],
        ),
        (
            "h = Relu (a) n = Neg (h) i = Relu (h) m = Neg (i) o = Max (n, m)",
            ["s: h i", "t: n", "t: m"],
        ),
        (
            "n = Neg (a) h = Relu (a) m = Neg (h) i = Add (h, n) p = Sub (m, n) o = Max (p, i)",
            ["t: n", "s: h i", "t: m"],
        ),
    ],
    ids=["one-node", "several", "another-target", "no-edge", "siblings", "interleaved"],
)
def test_what_keeps_calls_apart(body: str, expected: list[str]) -> None:
    """A way round through others, or no value from one to the other."""
    text = f"g ({A}) => ({O}) {{ {body} }}"
    check_merge(RULES, text)
    assert groups(RULES, text) == expected


def test_two_targets_in_a_ladder() -> None:
    """Of two pairs that would need each other, the first in the program is merged."""
    text = f"""g ({A}) => ({O}, float[2] p) {{
        s1 = Relu (a) t1 = Neg (a) t2 = Sub (t1, s1) s2 = Add (s1, t1)
        o = Abs (s2) p = Abs (t2) }}"""
    rules = [*RULES, rule("Sub(x, y)", name="sub", target="t")]
    check_merge(rules, text)
    assert groups(rules, text) == ["s: s1", "t: t1 t2", "s: s2"]


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        ("p = Abs (h)", ["s: h", "s: o"]),
        ("p = Abs (a)", ["s: h o"]),
    ],
    ids=["captures", "captures-something-else"],
)
def test_a_way_through_a_body(branch: str, expected: list[str]) -> None:
    """What a branch captures leads to what reads the branches' result."""
    text = f"""g ({A}, bool c) => ({O}) {{
        h = Relu (a)
        i = If (c) <
            then_branch = t () => (float[2] p) {{ {branch} }},
            else_branch = e () => (float[2] q) {{ q = Abs (a) }}>
        o = Add (h, i) }}"""
    check_merge(RULES, text)
    assert groups(RULES, text) == expected


def test_a_branch_that_returns_what_it_captures() -> None:
    """To be returned by a branch is to be read by the node that has it."""
    text = f"""g ({A}, bool c) => ({O}) {{
        h = Relu (a)
        i = If (c) <
            then_branch = t () => (float[2] h) {{ }},
            else_branch = e () => (float[2] q) {{ q = Abs (a) }}>
        o = Add (h, i) }}"""
    assert groups(RULES, text) == ["s: h", "s: o"]


# -- scopes ----------------------------------------------------------------------------------------


def test_never_across_scopes() -> None:
    """A branch's region reads from the one outside; the two stay two."""
    text = f"""g ({A}, bool c) => ({O}) {{
        g = Relu (a) h = Relu (g)
        o = If (c) <
            then_branch = t () => (float[2] q) {{ p = Relu (h) q = Relu (p) }},
            else_branch = e () => (float[2] s) {{ s = Abs (h) }}> }}"""
    check_merge(
        RULES,
        text,
        after="""
(a, c) => (o) {
  [region_0] h = s.region (a)
  o = If <then_branch = {…}, else_branch = {…}> (c)
}
() => (q) {
  [region_1] q = s.region (h)
}
() => (s) {
  s = Abs (h)
}
s.relu (x) => (relu_0_out) {
  [Relu_0] relu_0_out = Relu (x)
}
s.region (x) => (relu_1_out) {
  [relu_0] relu_0_out = s.relu (x)
  [relu_1] relu_1_out = s.relu (relu_0_out)
}""",
    )


def test_in_loops_and_scans() -> None:
    """Bodies have regions of their own, carried values and captures included."""
    result = check_merge(
        RULES,
        """g (float[3,2] x, float[2] a) => (float[2] o, float[3,2] ys)
            <int64 n = {3}, bool t = {1}> {
        l = Loop (n, t, a) <body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) {
            k2 = Identity (k) u = Add (v, a) w = Relu (u) }>
        o, ys = Scan <num_scan_inputs = 1, body = s (float[2] state, float[2] item)
            => (float[2] next, float[2] y) { m = Add (state, item) next = Relu (m) y = Neg (m) }>
            (l, x) }""",
    )
    bodies = [item.g for node in result.graph.node for item in node.attribute if item.HasField("g")]
    assert [[node.op_type for node in body.node] for body in bodies] == [
        ["Identity", "region"],
        ["region_1", "neg"],
    ]


def test_in_a_function_of_the_model() -> None:
    """The model imports the domain, the function does, and the file has callees first."""
    result = check_merge(
        RULES,
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g ({A}) => ({O}) {{ o = own.f <slope = 0.5> (a) }}
        <domain: "own", opset_import: ["" : 17]> f <slope> (x) => (y) {{
            h = LeakyRelu <alpha: float = @slope> (x) y = Relu (h) }}""",
    )
    assert names(result) == ["s::leaky", "s::relu", "s::region", "own::f"]
    assert {item.domain for item in result.opset_import} == {"", "own", "s"}
    (function,) = [function for function in result.functions if function.name == "f"]
    assert [node.op_type for node in function.node] == ["region"]
    (region,) = [function for function in result.functions if function.name == "region"]
    assert list(region.attribute) == ["slope"]


def test_regions_of_functions_and_of_the_main_graph() -> None:
    """What a function passes on is an attribute of the region; what is stated is not."""
    result = check_merge(
        RULES,
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g ({A}) => ({O}) {{
            h = LeakyRelu <alpha = 0.5> (a) i = Relu (h) o = own.f <slope = 0.5> (i) }}
        <domain: "own", opset_import: ["" : 17]> f <slope> (x) => (y) {{
            h = LeakyRelu <alpha: float = @slope> (x) y = Relu (h) }}""",
    )
    regions = [function for function in result.functions if function.name.startswith("region")]
    assert [list(region.attribute) for region in regions] == [[], ["slope"]]


# -- what was there before -------------------------------------------------------------------------


def again(rules: list[PatternRule], before: onnx.ModelProto) -> onnx.ModelProto:
    """Partition and merge what an earlier run wrote; the numbers stay."""
    _, _, written = merged(rules, before.SerializeToString())
    result: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(before, result)
    check_merged_again(rules, result)
    return result


CHAIN = f"""g ({A}) => ({O}) {{
    [h] h = Relu (a) [i] i = Relu (h) [j] j = LeakyRelu <alpha = 0.5> (i)
    [k] k = Relu (j) [o] o = Relu (k) }}"""


def test_partitions_of_an_earlier_run() -> None:
    """Calls written without merging are merged by a later run, to the same model."""
    model = model_from_bytes(proto_from_text(CHAIN).SerializeToString())
    partition(model, select_matches(model, RULES))
    _, _, at_once = merged(RULES, CHAIN)
    assert again(RULES, to_proto(model)) == onnx.ModelProto.FromString(at_once)


def test_regions_of_an_earlier_run_grow() -> None:
    """A region and its new neighbours are one region, flat; the old function is gone."""
    first = onnx.ModelProto.FromString(merged([RELU], CHAIN)[2])
    assert [node.op_type for node in first.graph.node] == ["region", "LeakyRelu", "region"]

    result = again([LEAKY], first)

    assert names(result) == ["s::leaky", "s::relu", "s::region_1"]
    (call,) = result.graph.node
    assert call.op_type == "region_1"
    later = remark("LeakyRelu", "j", "j")
    assert notes(result, call.name) == {
        "dpl.nodes": [
            ["s.relu", "relu_0", ["h"]],
            ["s.relu", "relu_1", ["i"]],
            ["s.leaky", "leaky_0", ["j"]],
            ["s.relu", "relu_2", ["k"]],
            ["s.relu", "relu_3", ["o"]],
        ],
        "dpl.undo": {
            "run": 3,
            "remarks": {
                "0": remark("Relu", "h", "h"),
                "1": remark("Relu", "i", "i"),
                "2": {"metadata": later["metadata"] | {"dpl.undo": '{"run":2}'}},
                "3": remark("Relu", "k", "k"),
                "4": remark("Relu", "o", "o"),
            },
        },
    }


def test_regions_of_an_earlier_run_that_others_need() -> None:
    """A region's function stays while a call of it is left; inner values stay apart."""
    text = f"""g ({A}) => ({O}, float[2] p) {{
        h = Relu (a) i = Relu (h) j = LeakyRelu (i) k = Relu (j) l = Relu (k) o = Abs (l)
        m = Abs (a) n = Relu (m) p = Relu (n) }}"""
    first = onnx.ModelProto.FromString(merged([RELU], text)[2])
    result = again([LEAKY], first)
    assert names(result) == ["s::leaky", "s::relu", "s::region_1", "s::region"]
    assert [node.op_type for node in result.graph.node] == ["region_1", "Abs", "Abs", "region"]


def test_regions_in_functions_grow() -> None:
    """What the function supplied stays its affair when a region of its body is taken apart."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g ({A}) => ({O}) {{ o = own.f <slope = 0.5> (a) }}
        <domain: "own", opset_import: ["" : 17]> f <slope> (x) => (y) {{
            h = LeakyRelu <alpha: float = @slope> (x) i = Relu (h) y = Add (i, i) }}"""
    first = onnx.ModelProto.FromString(merged([LEAKY, RELU], text)[2])
    result = again([ADD], first)
    (region,) = [function for function in result.functions if function.name == "region_1"]
    assert list(region.attribute) == ["slope"]
    assert [rule_name(node.op_type) for node in region.node] == ["leaky", "relu", "add"]


def test_where_nodes_were() -> None:
    """The call stands where the last one did; what reads from it follows, and that is noted."""
    result = check_merge(
        RULES,
        f"""g ({A}) => ({O}, float[2] p, float[2] q) {{
            h = Relu (a) n = Abs (h) p = Neg (n) b = Abs (a) i = Add (h, b) q = Abs (b)
            o = Relu (i) }}""",
    )
    assert [node.output[0] for node in result.graph.node] == ["b", "q", "h", "n", "p"]
    undo = notes(result, "region_0")["dpl.undo"]
    assert undo["order"] == [0, "n", 1, "q", 2]
    assert undo["behind"] == {"n": "p", "p": "b"}


def test_types_that_the_file_states_of_inner_values() -> None:
    """They go with the values, and are noted."""
    text = f"g ({A}) => ({O}) {{ h = Relu (a) o = Relu (h) }}"
    proto = proto_from_text(text)
    proto.graph.value_info.append(
        onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [2, "n", None])
    )
    _, _, written = merged(RULES, proto.SerializeToString())
    result = onnx.ModelProto.FromString(written)
    assert list(result.graph.value_info) == []
    assert notes(result, "region_0")["dpl.undo"]["types"] == {"0": ["float32", [2, "n", None]]}


def test_what_the_file_states_survives_as_regions_grow() -> None:
    """Types of values that a region inside the new one kept, with their remarks."""
    before = proto_from_text(CHAIN)
    for name in "hijk":
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        info.metadata_props.add(key="from", value=name)
        before.graph.value_info.append(info)
    text = before.SerializeToString()
    first = onnx.ModelProto.FromString(merged([RELU], text)[2])
    assert [info.name for info in first.graph.value_info] == ["i", "j"]
    result = again([LEAKY], first)
    assert [node.op_type for node in result.graph.node] == ["region_1"]
    assert differences(before, inlined(result)[0]) == []


@pytest.mark.parametrize("text", ["", "{", "7", "[[[", '[["s.relu"', "null", "[1]", "[[]]", "{}"])
@pytest.mark.parametrize("key", ["dpl.nodes", "dpl.undo"])
def test_calls_that_do_not_say_what_they_stand_for(key: str, text: str) -> None:
    """What a call of a partition carries goes with it, whatever it is."""
    before = onnx.ModelProto.FromString(merged([RELU], f"g ({A}) => ({O}) {{ o = Relu (a) }}")[2])
    second = before.graph.node.add()
    second.CopyFrom(before.graph.node[0])
    before.graph.node[0].output[0] = second.input[0] = "h"
    before.graph.node[0].name = "first"
    before.graph.node[0].metadata_props[0].key = key
    before.graph.node[0].metadata_props[0].value = text
    result = again([RELU], before)
    undo = notes(result, "region_0")["dpl.undo"]
    assert undo["remarks"]["0"] == {"metadata": {key: text}}


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[7,7]", "[[],[]]", '[["s.relu","a"],["s.relu",7,["x"]]]', "null", "{}"],
)
@pytest.mark.parametrize("key", ["dpl.nodes", "dpl.undo"])
def test_regions_that_do_not_say_what_they_stand_for(key: str, text: str) -> None:
    """What cannot be read is as good as missing; what is in the graph has its name for certain."""
    first = onnx.ModelProto.FromString(
        merged([RELU], f"g ({A}) => ({O}) {{ h = Relu (a) i = Relu (h) o = LeakyRelu (i) }}")[2]
    )
    (item,) = [item for item in first.graph.node[0].metadata_props if item.key == key]
    item.value = text
    nodes = notes(again([LEAKY], first), "region_1_0")["dpl.nodes"]
    inner = "h" if (key, text) == ("dpl.undo", "{}") else "region_0/relu_0_out"
    assert [outputs for _, _, outputs in nodes] == [[inner], ["i"], ["o"]]
    assert len({name for _, name, _ in nodes}) == 3


def test_a_region_that_gets_its_attributes_from_its_caller() -> None:
    """What a call states takes the place of the reference when the region is taken apart."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g ({A}) => ({O}) {{ h = own.f <slope = 0.5> (a) o = Add (h, h) }}
        <domain: "own", opset_import: ["" : 17]> f <slope> (x) => (y) {{
            h = LeakyRelu <alpha: float = @slope> (x) y = Relu (h) }}"""
    first = onnx.ModelProto.FromString(merged([LEAKY, RELU], text)[2])
    first.graph.node[0].op_type, first.graph.node[0].domain = "region", "s"
    result = again([ADD], first)
    (region,) = [function for function in result.functions if function.name == "region_1"]
    assert list(region.attribute) == []
    (alpha,) = region.node[0].attribute
    assert (alpha.name, alpha.f, alpha.ref_attr_name) == ("alpha", 0.5, "")


def test_bodies_of_regions_are_not_matched() -> None:
    """A rule that asks for calls by name finds those in the graphs of the model alone."""
    text = f"g ({A}) => ({O}) {{ g = Relu (a) h = Relu (g) i = Abs (h) o = Relu (i) }}"
    _, _, written = merged([RELU], text)
    outer = rule("s.relu(x)", name="outer", target="u")
    found = select_matches(model_from_bytes(written), [outer]).matches
    assert [match.root.outputs[0].name for match in found if match.root.outputs[0]] == ["o"]


@pytest.mark.parametrize("outputs", ["twice", "an-input"])
def test_a_region_whose_outputs_are_not_its_own(outputs: str) -> None:
    """A function that returns a value twice, or what it is given, is one like any other."""
    before = onnx.ModelProto.FromString(
        merged([RELU], f"g ({A}) => ({O}) {{ h = Relu (a) i = Relu (h) o = LeakyRelu (i) }}")[2]
    )
    (region,) = [function for function in before.functions if function.name == "region"]
    region.output.append(region.output[0] if outputs == "twice" else region.input[0])
    before.graph.node[0].output.append("more")
    _, regions, _ = merged([LEAKY], before.SerializeToString())
    assert [item.function.name for item in regions] == ["leaky", "region_1"]
    assert [len(item.partitions) for item in regions] == [1, 2]


def test_a_call_that_brings_a_body() -> None:
    """A call with a graph for an attribute is left alone, whoever wrote that."""
    before = onnx.ModelProto.FromString(
        merged([RELU], f"g ({A}) => ({O}) {{ h = Relu (a) o = LeakyRelu (h) }}")[2]
    )
    body = onnx.helper.make_graph([], "body", [], [])
    before.graph.node[0].attribute.append(onnx.helper.make_attribute("body", body))
    _, regions, _ = merged([LEAKY], before.SerializeToString())
    assert [item.function.name for item in regions] == ["leaky"]


def test_what_only_looks_like_a_region() -> None:
    """A function with other nodes than calls of partitions is no region: it is left alone."""
    before = onnx.ModelProto.FromString(merged([RELU], CHAIN)[2])
    (region,) = [function for function in before.functions if function.name == "region"]
    region.node[0].CopyFrom(
        onnx.helper.make_node("Relu", [region.input[0]], [region.node[0].output[0]])
    )
    region.opset_import.add(domain="", version=17)
    _, regions, written = merged([LEAKY], before.SerializeToString())
    assert [item.function.name for item in regions] == ["leaky", "relu"]
    check_sound(before, onnx.ModelProto.FromString(written))
