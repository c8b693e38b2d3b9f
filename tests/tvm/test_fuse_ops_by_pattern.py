"""The rest of TVM's tests of FuseOpsByPattern: F6, F7, F9 to F12, F17, F21 of the inventory.

And what users of TVM's partitions reported, where no other test of this folder has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.catalog import read_catalogs
from dplcli.errors import InvalidModelError
from tests.support.helpers import (
    SCHEMAS,
    check_outcome,
    check_partition,
    model_from_text,
    numbered_forms,
    partitioned,
    pattern_of,
    proto_from_text,
    rule,
    rule_name,
    selected,
    taken,
)

if TYPE_CHECKING:
    import onnx

    from dplcli.language import PatternRule

IMAGE = "float[1,1,4,4] data, float[1,1,3,3] weight1"
ONES = "{1,1,1,1,1,1,1,1,1}"
LOCAL = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'


def conv_relu(**settings: str) -> PatternRule:
    """``dnnl.conv2d_relu`` with Relax's order of search."""
    fields = {"target": "dnnl", "name": "conv2d_relu", "order": "program"} | settings
    return rule("Relu(Conv(x, w))", **fields)


def metadata(function: onnx.FunctionProto) -> dict[str, str]:
    """Return what a function says of itself."""
    return {item.key: item.value for item in function.metadata_props}


def functions(model: onnx.ModelProto) -> list[str]:
    """Name the functions of a model, in the order of the file."""
    return [f"{function.domain}.{function.name}" for function in model.functions]


def test_bind_params() -> None:
    """F6 test_bind_params: a weight bound to data goes into the function; one input is left."""
    text = f"g (float[1,1,4,4] data) => (float[1,1,2,2] o) <float[1,1,3,3] w = {ONES}> {{ \
        c = Conv (data, w) o = Relu (c) }}"
    result = check_outcome(conv_relu(constants="embed"), text)
    (function,) = result.functions
    assert [node.op_type for node in function.node] == ["Constant", "Conv", "Relu"]
    assert list(result.graph.node[0].input) == ["data"]
    assert not result.graph.initializer


def test_annotate_codegen() -> None:
    """F7 test_annotate_codegen: who implements the function is the part before the first dot.

    TVM wraps the composite in a second function for that; here one function says both.
    """
    text = f"g ({IMAGE}) => (float[1,1,2,2] o) {{ c = Conv (data, weight1) o = Relu (c) }}"
    result = check_outcome(conv_relu(), text)
    (function,) = result.functions
    assert (function.domain, function.name) == ("dnnl", "conv2d_relu")
    assert metadata(function)["Codegen"] == "dnnl"
    assert metadata(function)["Composite"] == "dnnl.conv2d_relu"


@pytest.mark.parametrize("constants", ["embed", "lift"])
def test_unmatched_calls_may_include_lambda_functions(constants: str) -> None:
    """F9 test_unmatched_calls_may_include_lambda_functions: others' functions stay as they are."""
    text = f"""{LOCAL}g ({IMAGE}) => (float[1,1,2,2] o) {{
        c = Conv (data, weight1) r = Relu (c) o = local.f (r) }}
        <domain: "local", opset_import: ["" : 17]> f (x) => (y) {{ h = Exp (x) y = Log (h) }}"""
    before = proto_from_text(text)
    result = check_outcome(conv_relu(constants=constants), text)
    assert [f for f in result.functions if f.domain == "local"] == list(before.functions)
    assert [node.op_type for node in result.graph.node] == ["conv2d_relu", "f"]


@pytest.mark.parametrize("order", ["program", "outermost"])
def test_compare_with_merge_composite_path(order: str) -> None:
    """F10 test_compare_with_merge_composite_path: one interface, whatever the order of search."""
    text = "g (float[2] x, float[2] y) => (float[2] o) { o = Mul (x, y) }"
    multiply = rule("Mul(x, y)", target="cutlass", name="multiply", order=order)
    check_partition(
        multiply,
        text,
        after="""
            (x, y) => (o) {
              [multiply_0] o = cutlass.multiply (x, y)
            }
            cutlass.multiply (x, y) => (mul_0_out) {
              [Mul_0] mul_0_out = Mul (x, y)
            }""",
    )
    (function,) = check_outcome(multiply, text).functions
    assert metadata(function)["Codegen"] == "cutlass"


def test_multiple_entries_multiple_calls_same_extern() -> None:
    """F11 test_multiple_entries_multiple_calls_same_extern: two graphs, four calls, one function.

    The second entry of TVM's module is a local function here, and a branch besides.
    """
    text = f"""{LOCAL}g (float[1,1,8,8] x, float[1,1,3,3] w, bool c) => (float[1,1,4,4] o) {{
        a = Conv (x, w) b = local.f (a, w)
        o = If (c) <then_branch = t () => (float[1,1,4,4] p) {{ d = Conv (x, w) p = Conv (d, w) }},
                    else_branch = e () => (float[1,1,4,4] q) {{ q = Neg (b) }}> }}
        <domain: "local", opset_import: ["" : 17]> f (x, w) => (y) {{ y = Conv (x, w) }}"""
    rules = rule("Conv(x, w)", target="dnnl", name="conv2d", order="program")
    result = check_outcome(rules, text)
    assert sorted(functions(result)) == ["dnnl.conv2d", "local.f"]
    assert len(selected(rules, text).matches) == 4


def test_ignore_call_tir() -> None:
    """F12 test_ignore_call_tir: a call of somebody else's operator is left alone."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ext" : 1]>
        g ({IMAGE}) => (o) {{ c = Conv (data, weight1) o = ext.relu (c) }}"""
    rules = [conv_relu(), rule("Conv(x, w)", target="dnnl", name="conv2d", order="program")]
    model, selection, _ = partitioned(rules, text)
    assert taken(selection) == ["conv2d: c"]
    assert [node.qualified_op for node in model.graph] == ["dnnl.conv2d", "ext.relu"]


@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
def test_clip(constants: str) -> None:
    """F17 test_clip: other bounds are another function of one input, if they go inside."""
    text = """g (float[2] x) => (float[2] o) <float a = {0}, float b = {4}, float c = {1},
        float d = {3}> { m = Clip (x, a, b) n = Clip (m, c, d) o = Clip (n, a, b) }"""
    result = check_outcome(rule("Clip(x, const(), const())", constants=constants), text)
    names = numbered_forms(result)
    calls = [(names[node.op_type], len(node.input)) for node in result.graph.node]
    lifted, inside = [("r", 3)] * 3, [("r", 1), ("r_1", 1), ("r", 1)]
    assert calls == (lifted if constants == "lift" else inside)


def test_error_on_repeated_variable_definitions() -> None:
    """F21 test_error_on_repeated_variable_definitions: two nodes cannot make the same value."""
    text = "g (float[2] x) => (float[2] o) { t = Relu (x) t = Neg (x) o = Exp (t) }"
    with pytest.raises(InvalidModelError, match="'t'"):
        model_from_text(text)


# -- what users of TVM reported --------------------------------------------------------------------


def test_argwhere_and_squeeze() -> None:
    """Issue 13543: MergeComposite fails on squeeze(argwhere(greater)), whose shape is data."""
    text = """g (float[4] x, float[4] y) => (int64[N] o) <int64[1] axes = {0}> {
        g = Greater (x, y) n = NonZero (g) o = Squeeze (n, axes) }"""
    result = check_outcome("Squeeze(NonZero(Greater(a, b)), _)", text)
    assert [node.op_type for node in result.graph.node] == ["r"]


@pytest.mark.parametrize(
    ("pattern", "rest", "left"),
    [
        pytest.param("Neg(Expand(x, _))", "o = Neg (e)", ["Shape", "r"], id="broadcast_to"),
        pytest.param(
            "Where(Less(_, _), x, _)",
            "c = Less (e, y) o = Where (c, x, y)",
            ["Shape", "Expand", "r"],
            id="sequence_mask",
        ),
    ],
)
def test_operators_of_data_dependent_shape(pattern: str, rest: str, left: list[str]) -> None:
    """Issues 10404 and 14556: TVM infers types inside the match, and fails on these operators."""
    text = "g (float[1] x, float[2] y) => (float[2] o) { s = Shape (y) e = Expand (x, s)"
    result = check_outcome(pattern, f"{text} {rest} }}")
    assert [rule_name(node.op_type) for node in result.graph.node] == left


def test_a_region_beside_a_function() -> None:
    """Issue 14424: a dominator pattern crashes on an expression that calls a function."""
    text = f"""{LOCAL}g (float[2] x) => (float[2] o) {{
        n = Neg (x) r = Relu (n) s = Sigmoid (n) a = Add (r, s) o = local.f (a) }}
        <domain: "local", opset_import: ["" : 17]> f (x) => (y) {{
          n = Neg (x) r = Relu (n) s = Tanh (n) y = Add (r, s) }}"""
    rules = rule('dominates(Neg(x), op(kind="elementwise")(_), Add(_, _))')
    assert taken(selected(rules, text)) == ["r: n, r, s, a", "r: n, r, s, y"]
    check_outcome(rules, text)


def test_a_pattern_that_repeats_itself_has_an_end() -> None:
    """Issue 15350: TVM's printer never ends on a recursive pattern; ours reads back as it is."""
    pattern = pattern_of("repeat(Cast, Conv(x, w) | y, max=4)")
    assert pattern_of(repr(pattern)) == pattern


def test_functions_and_matches_in_all_of_them() -> None:
    """Issue 17160: functions are removed while TVM goes through them; here each is seen once."""
    bodies = " ".join(
        f'<domain: "local", opset_import: ["" : 17]> f{n} (x) => (y) {{ t = Neg (x) y = Relu (t) }}'
        for n in range(5)
    )
    calls = " ".join(f"v{n + 1} = local.f{n} (v{n})" for n in range(5))
    text = f"{LOCAL}g (float[2] v0) => (float[2] v5) {{ {calls} }} {bodies}"
    result = check_outcome("Relu(Neg(x))", text)
    assert sorted(functions(result)) == [f"local.f{n}" for n in range(5)] + ["t.r"]


@pytest.mark.parametrize("add", ["a = Add (c, b)", "a = Add (b, c)"])
def test_a_bias_on_either_side(add: str) -> None:
    """TVM's add_checker of DNNL reads ``args[0].op`` and crashes on add(bias, conv)."""
    text = f"""g (float[1,1,4,4] x) => (float[1,1,2,2] o)
        <float[1,1,3,3] w = {ONES}, float[1,1,1] b = {{2}}> {{
        c = Conv (x, w) {add} o = Relu (a) }}"""
    rules = read_catalogs(["dnnl"], SCHEMAS).patterns
    assert taken(selected(rules, text)) == ["conv2d_bias_relu: c, a, o"]


def test_a_root_that_is_an_output_of_a_split() -> None:
    """Issue 15013: a check that walks up by ``args[0]`` meets a projection and crashes."""
    text = """g (float[1,2,4,4] x) => (float[1,1,4,4] o)
        <float[1,1,1,1] w = {2}, float[1] b = {1}> {
        p, q = Split <axis = 1> (x) c = Conv (p, w, b) s = Sigmoid (c) m = Mul (c, s)
        o = Add (m, q) }"""
    rules = read_catalogs(["dnnl"], SCHEMAS).patterns
    assert taken(selected(rules, text)) == ["conv2d_bias_swish: c, s, m"]
    check_outcome(rules, text)


def test_clean_up_is_not_needed() -> None:
    """PR 15904: without dead code taken out, "only used by" stops matching; a dead node counts.

    It is a reader as long as it is there, in both; what prepares a model takes it out.
    """
    dead = "g (float[2] x) => (float[2] o) { n = Neg (x) o = Relu (n) d = Exp (n) }"
    assert taken(selected("Neg(x) >> Relu(_)", dead)) == []
    alive = dead.replace("d = Exp (n)", "")
    assert taken(selected("Neg(x) >> Relu(_)", alive)) == ["r: n, o"]
