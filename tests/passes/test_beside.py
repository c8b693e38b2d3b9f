"""What a file says beside its graph: training, quantisation, devices; passes keep it true."""

from __future__ import annotations

import onnx
import pytest

from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import losses, to_proto
from dplcli.passes.inline import inline
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.repeat import outline_repeats
from dplcli.passes.rewrite import rewrite
from dplcli.passes.rewriter import object_to_devices
from dplcli.passes.select import select_matches
from dplcli.settings import RepeatSettings
from tests.passes.inlining import check_undone
from tests.passes.inlining import inlined as inlined_through_file
from tests.passes.repeating import chain, numbered
from tests.passes.rewriting import rewrite_rule
from tests.support.beside import HEADER, UNKNOWN, conv_bn, placed, plain, quantised, trained
from tests.support.helpers import (
    describe_refusals,
    model_from_bytes,
    proto_from_text,
    rule,
    rules_of,
    shipped_rewrites,
)
from tests.support.structure import differences

CHAIN = f"{HEADER}g (float[2] x) => (float[2] y) "
THREE = CHAIN + "{ [a] p = Neg (x) [b] q = Abs (p) [c] y = Relu (q) }"
FOLD = rewrite_rule("Abs(Neg(x))", "Abs(x)", name="fold")


def rewritten(model: onnx.ModelProto, *rules: object) -> tuple[onnx.ModelProto, list[str]]:
    """Rewrite a model; return the result, and what is said to be lost."""
    ir = model_from_bytes(model.SerializeToString())
    rewrite(ir, rules or shipped_rewrites("prepare"))  # type: ignore[arg-type]  # rules
    check_structure(ir)
    return to_proto(ir), losses(ir)


def ops(model: onnx.ModelProto) -> list[str]:
    """Name the operators of the main graph."""
    return [node.op_type for node in model.graph.node]


def stored(model: onnx.ModelProto) -> set[str]:
    """Name the initializers."""
    return {tensor.name for tensor in model.graph.initializer}


# Training.


def test_a_weight_that_training_updates_stays_the_weight() -> None:
    """It is read as often as it is named: folding would compute a second one beside it."""
    model = trained(conv_bn(), "w")
    result, said = rewritten(model)
    assert ops(result) == ["Conv", "BatchNormalization", "Relu"]
    assert result.training_info == model.training_info
    assert "w" in result.graph.node[0].input
    assert not said
    without, _ = rewritten(conv_bn())
    assert ops(without) == ["Conv", "Relu"]


def test_a_weight_that_training_updates_is_kept_where_nobody_reads_it_any_more() -> None:
    """That training would have no effect is said."""
    fold = rewrite_rule("Mul(x, const(k))", "Neg(x)", name="drop")
    text = (
        CHAIN + "<float[2] k = {-1, -1}, float[2] j = {-1, -1}> { p = Mul (x, k) y = Mul (p, j) }"
    )
    result, said = rewritten(trained(proto_from_text(text), "k"), fold)
    assert stored(result) == {"k"}
    assert said == ["the model: the training information updates 'k', which no node reads any more"]


@pytest.mark.parametrize("how", ["input", "output", "binding", "Gradient", "branch"])
def test_a_value_that_training_reads_is_made_under_its_name(how: str) -> None:
    """Whatever way it is named: as an input, a result, in a binding, or in a text of Gradient."""
    model = proto_from_text(THREE)
    info = model.training_info.add()
    algorithm = info.algorithm
    if how == "input":
        algorithm.node.add(op_type="Neg", input=["p"], output=["t"])
    elif how == "output":
        algorithm.output.add(name="p")
    elif how == "binding":
        info.update_binding.add(key="k", value="p")
    elif how == "Gradient":
        node = algorithm.node.add(op_type="Gradient", domain="ai.onnx.preview.training")
        node.attribute.add(name="xs", type=onnx.AttributeProto.STRINGS, strings=[b"p"])
    else:
        node = algorithm.node.add(op_type="If", input=["c"], output=["t"])
        body = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        body.node.add(op_type="Neg", input=["p"], output=["t"])
    result, _ = rewritten(model, FOLD)
    assert ops(result) == ["Neg", "Abs", "Relu"]
    assert "p" in [name for node in result.graph.node for name in node.output]
    assert ops(rewritten(proto_from_text(THREE), FOLD)[0]) == ["Abs", "Relu"]


def test_a_match_round_what_training_reads_is_refused_with_that_reason() -> None:
    """A call has no such value."""
    model = trained(proto_from_text(THREE), "p")
    ir = model_from_bytes(model.SerializeToString())
    selection = select_matches(ir, rules_of(rule("Abs(Neg(x))")))
    (refusal,) = describe_refusals(selection)
    assert refusal.endswith("'p' is named by the training information")
    outer = select_matches(ir, rules_of(rule("Relu(Abs(x))")))
    assert len(outer.matches) == 1


def test_no_new_value_has_a_name_of_training() -> None:
    """Graph and algorithm are run as one graph, in which a name means one value."""
    model = proto_from_text(CHAIN + "{ p = Neg (x) y = Abs (p) }")
    twice = rewrite_rule("Abs(x)", "Relu(Sigmoid(x))", name="twice")
    (free,) = {name for node in rewritten(model, twice)[0].graph.node for name in node.output} - {
        *("p", "y")
    }
    model.training_info.add().algorithm.node.add(op_type="Neg", input=["x"], output=[free])
    result, _ = rewritten(model, twice)
    assert free not in [name for node in result.graph.node for name in node.output]


def test_a_function_that_training_calls_stays() -> None:
    """Also where its last call in the graph is inlined."""
    model = proto_from_text(
        '<ir_version: 11, opset_import: ["" : 17, "own" : 1]>'
        "g (float[2] x) => (float[2] y) { y = own.f (x) }"
        '<domain: "own", opset_import: ["" : 17]> f (a) => (b) { b = Neg (a) }'
    )
    assert not inlined_through_file(model, everything=True)[0].functions
    model.training_info.add().algorithm.node.add(op_type="f", domain="own", input=["x"])
    result, _ = inlined_through_file(model, everything=True)
    assert ops(result) == ["Neg"]
    assert [function.name for function in result.functions] == ["f"]
    assert "own" in {item.domain for item in result.opset_import}


# Quantisation.


def test_annotations_of_what_is_fused_away_go_and_that_is_said() -> None:
    """Those of what stays are kept, and so are the tensors that they name."""
    result, said = rewritten(quantised(conv_bn(), "w", "c", "y"))
    assert ops(result) == ["Conv", "Relu"]
    assert [note.tensor_name for note in result.graph.quantization_annotation] == ["y"]
    assert {"scale", "zero"} <= stored(result)
    assert said == ["the model: left out: the quantization annotations of 'w', 'c', which are gone"]


def test_a_parameter_of_a_quantised_tensor_is_kept_as_an_output_is() -> None:
    """Though no node reads it, or one that is fused does."""
    text = CHAIN + "<float[2] k = {1, 2}> { p = Mul (x, k) q = Neg (p) y = Neg (q) }"
    model = proto_from_text(text)
    note = model.graph.quantization_annotation.add(tensor_name="y")
    for key, name in (("SCALE_TENSOR", "k"), ("ZERO_POINT_TENSOR", "q")):
        note.quant_parameter_tensor_names.add(key=key, value=name)
    rules = (rewrite_rule("Mul(x, const(k))", "Abs(x)"), rewrite_rule("Neg(Neg(x))", "Relu(x)"))
    result, said = rewritten(model, *rules)
    assert "k" in stored(result)
    assert "q" in [name for node in result.graph.node for name in node.output]
    assert result.graph.quantization_annotation == model.graph.quantization_annotation
    assert not said


def test_annotations_in_a_call_come_back() -> None:
    """The call says how the tensors inside are quantised."""
    model = quantised(proto_from_text(THREE), "p", "q", "y")
    model.graph.quantization_annotation[0].MergeFromString(UNKNOWN)
    ir = model_from_bytes(model.SerializeToString())
    partition(ir, select_matches(ir, rules_of(rule("Relu(Abs(Neg(x)))"))))
    (said,) = losses(ir, in_calls=True)
    assert "annotations of 'p', 'q', which are inside functions now; dpl inline brings" in said
    written = to_proto(ir)
    assert [note.tensor_name for note in written.graph.quantization_annotation] == ["y"]
    after, _ = inlined_through_file(written)
    assert differences(model, after) == []


def test_annotations_inside_bodies() -> None:
    """A body says of its own values how they are quantised; a copy of it does so, too."""
    model = proto_from_text(
        '<ir_version: 11, opset_import: ["" : 17, "own" : 1]>'
        "g (bool c, float[2] x) => (float[2] y) { [one] z = own.f (c, x) [two] y = own.f (c, z) }"
        '<domain: "own", opset_import: ["" : 17]> f (c, a) => (b) { b = If (c) <'
        "then_branch = t () => (float[2] u) <float[1] k = {1}> { u = Neg (a) }, "
        "else_branch = e () => (float[2] v) { v = Abs (a) }> }"
    )
    body = model.functions[0].node[0].attribute[0].g
    body.doc_string = "branch"
    note = body.quantization_annotation.add(tensor_name="u")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="k")
    result, _ = inlined_through_file(model, everything=True)
    for node in result.graph.node:
        copy = node.attribute[0].g
        (kept,) = copy.quantization_annotation
        assert kept.tensor_name in copy.node[0].output
        (entry,) = kept.quant_parameter_tensor_names
        assert entry.value in {tensor.name for tensor in copy.initializer}
        assert copy.doc_string == "branch"


def test_annotations_that_go_with_a_body_are_said_to_go() -> None:
    """A node whose results nobody reads is taken out, and all in it."""
    model = proto_from_text(
        f"{HEADER}g (bool c, float[2] x) => (float[2] y) {{ y = Neg (x) z = If (c) <"
        "then_branch = t () => (float[2] u) { u = Neg (x) }, "
        "else_branch = e () => (float[2] v) { v = Abs (x) }> }"
    )
    body = model.graph.node[1].attribute[0].g
    body.quantization_annotation.add(tensor_name="u")
    result, said = rewritten(model)
    assert ops(result) == ["Neg"]
    assert said == ["the model: left out: the quantization annotations of 'u', which are gone"]


# Devices.


def test_what_a_node_carries_comes_back() -> None:
    """Devices, stage, documentation of attributes, their order, and what onnx does not know."""
    model = placed(conv_bn(), "conv", 3, [0, -1], "w", group=[1, 2])
    conv = model.graph.node[0]
    conv.attribute.insert(0, onnx.helper.make_attribute("strides", [1, 1], "of strides"))
    conv.attribute[1].MergeFromString(UNKNOWN)
    conv.MergeFromString(UNKNOWN)
    ir = model_from_bytes(model.SerializeToString())
    partition(ir, select_matches(ir, rules_of(rule("Relu(BatchNormalization(Conv(x, w), ...))"))))
    written = to_proto(ir)
    assert ops(written) == ["r"]
    after, _ = inlined_through_file(written)
    for before, again in zip(model.graph.node, after.graph.node, strict=True):
        assert again.SerializeToString() == before.SerializeToString()


def test_attributes_of_calls_that_differ_in_their_order_come_back_in_it() -> None:
    """One function serves both, and each call says its own order."""
    check_undone(
        f"{HEADER}g (float[1,1,4,4] x) => (float[1,1,4,4] y) {{"
        "p = MaxPool <kernel_shape = [1, 1], strides = [1, 1]> (x)"
        "q = MaxPool <strides = [1, 1], kernel_shape = [1, 1]> (p)"
        "y = MaxPool <strides = [1, 1], kernel_shape = [1, 1], ceil_mode = 0> (q) }",
        rule("MaxPool(x)"),
        matches=3,
    )


def test_a_constant_that_was_embedded_comes_back_with_all_it_carried() -> None:
    """Documentation of its attribute, devices and what onnx does not know."""
    model = plain(
        proto_from_text(
            CHAIN + "{ [k] k = Constant <value_floats = [1.0, 2.0]> () [a] y = Add (x, k) }"
        )
    )
    placed(model, "k", 1).graph.node[0].attribute[0].doc_string = "doc"
    model.graph.node[0].MergeFromString(UNKNOWN)
    check_undone(model, rule("Add(x, const(c))", constants="embed"))


def test_nodes_of_a_function_run_where_they_did_or_where_the_call_does() -> None:
    """What they say of tensors is said by the names that these have in the graph."""
    model = proto_from_text(
        '<ir_version: 11, opset_import: ["" : 17, "own" : 1]>'
        "g (float[2] x) => (float[2] y) { [call] y = own.f (x) }"
        '<domain: "own", opset_import: ["" : 17]> f (a) => (b) { [n] i = Neg (a) [m] b = Abs (i) }'
    )
    placed(placed(model, "call", 3, [0, 1], "y"), "n", 2, [0, 1], "i")
    model.functions[0].node[1].MergeFromString(UNKNOWN)
    result, _ = inlined_through_file(model, everything=True)
    told = [
        (place.pipeline_stage, [spec.tensor_name for spec in place.sharding_spec])
        for node in result.graph.node
        for place in node.device_configurations
    ]
    assert told == [(2, ["call/i"]), (3, ["y"])]
    assert result.graph.node[1].SerializeToString().endswith(UNKNOWN)
    ir = model_from_bytes(model.SerializeToString())
    inline(ir, ir.functions.values())
    assert not losses(ir)


APART = {
    "stages": ([(0, (), "", ()), (1, (), "", ())], "has pipeline stage"),
    "devices": ([(None, (0, 1), "p", ()), (None, (2, 3), "q", ())], "has devices 0, 1, "),
    "groups": ([(None, (0, 1), "p", ()), (None, (-1,), "q", (2, 3))], "devices 2, 3"),
    "the same group": ([(None, (0, 1), "p", ()), (None, (-1,), "q", (0, 1))], ""),
    "the same stage": ([(1, (), "", ()), (1, (0, 1), "q", ())], ""),
    "not said": ([(None, (), "", ()), (4, (), "", ())], ""),
}


@pytest.mark.parametrize(("places", "reason"), APART.values(), ids=APART)
def test_a_match_in_two_places_is_refused(places: list[tuple[object, ...]], reason: str) -> None:
    """What is not said contradicts nothing."""
    model = proto_from_text(THREE)
    for name, (stage, devices, tensor, group) in zip("ab", places, strict=True):
        placed(model, name, stage, devices, tensor, group=group)  # type: ignore[arg-type]  # as listed
    for rules in (rules_of(rule("Abs(Neg(x))")), [FOLD]):
        ir = model_from_bytes(model.SerializeToString())
        selection = select_matches(ir, rules)
        assert len(selection.matches) == (not reason)
        if reason:
            (refusal,) = describe_refusals(selection)
            assert "it would run in two places: 'a' has " in refusal
            assert reason in refusal


def test_places_in_two_configurations_are_not_compared() -> None:
    """A model is deployed in one of them."""
    model = placed(placed(proto_from_text(THREE), "a", 0, name="one"), "b", 1, name="other")
    ir = model_from_bytes(model.SerializeToString())
    assert len(select_matches(ir, rules_of(rule("Abs(Neg(x))"))).matches) == 1


def test_what_takes_the_place_of_nodes_runs_where_they_did() -> None:
    """A call, and the nodes of a replacement; the sharding of what is gone is said to go."""
    model = placed(placed(conv_bn(), "conv", 2, [0, 1], "w"), "bn", None, [0, 1], "n")
    result, said = rewritten(model)
    (place,) = result.graph.node[0].device_configurations
    assert (place.configuration_id, place.pipeline_stage) == ("two", 2)
    assert [spec.tensor_name for spec in place.sharding_spec] == ["n"]
    assert said == [
        "the model: left out: the sharding of 'w', which no node reads or makes any more"
    ]
    ir = model_from_bytes(model.SerializeToString())
    lifted = rule("BatchNormalization(Conv(x, w), ...)", constants="lift")
    partition(ir, select_matches(ir, rules_of(lifted)))
    (place,) = to_proto(ir).graph.node[0].device_configurations
    assert [spec.tensor_name for spec in place.sharding_spec] == ["w", "n"]


@pytest.mark.parametrize(("stage", "count"), [(1, 2), (0, 1)])
def test_a_region_runs_in_one_place(stage: int, count: int) -> None:
    """Calls in two stages stay two."""
    model = placed(placed(proto_from_text(THREE), "a", 0), "b", stage)
    ir = model_from_bytes(model.SerializeToString())
    partition(ir, select_matches(ir, [rule("Neg(x)", name="n"), rule("Abs(x)", name="a")]))
    assert len(merge_partitions(ir)) == count
    check_structure(ir)
    after, _ = inlined_through_file(to_proto(ir))
    assert differences(model, after) == []


def test_a_block_that_spans_two_stages_is_not_called() -> None:
    """The other blocks are."""
    block = numbered("[n#] a# = Neg (@) [m#] b# = Abs (a#) [o#] c# = Sin (b#) [p#] d# = Cos (c#)")
    model = proto_from_text(chain(4, block))
    for number in range(4):
        placed(model, f"n{number}", number)
        placed(model, f"p{number}", number + (number == 1))
    ir = model_from_bytes(model.SerializeToString())
    result = outline_repeats(ir, RepeatSettings())
    (family,) = result.families
    assert len(family.partitions) > 1
    assert all(object_to_devices(item.match.nodes) is None for item in family.partitions)
    after, _ = inlined_through_file(to_proto(ir))
    assert differences(model, after) == []


# Names, and what functions state.


def test_names_are_unique_after_nested_blocks_are_inlined() -> None:
    """Functions have nodes of one name, and each is called several times."""
    inner = "".join(
        f"[{name}{i}_#] {name}{i}_# = {op} ({'@' if (i, name) == (0, 'a') else before})"
        for i in range(3)
        for name, op, before in (
            ("a", "Neg", f"d{i - 1}_#"),
            ("b", "Abs", f"a{i}_#"),
            ("c", "Sin", f"b{i}_#"),
            ("d", "Cos", f"c{i}_#"),
        )
    )
    last = numbered(f"{inner} [e#] e# = Tanh (d2_#) [d#] d# = Sigmoid (e#)")
    model = proto_from_text(chain(3, last))
    ir = model_from_bytes(model.SerializeToString())
    families = outline_repeats(ir, RepeatSettings(nested=True, min_saving=0)).families
    assert any(family.is_nested for family in families)
    after = model_from_bytes(to_proto(ir).SerializeToString())
    inline(after, after.functions.values())
    names = [node.name for node in after.graph]
    assert len(set(names)) == len(names) == len(model.graph.node)


def test_names_that_a_function_repeats_are_not_repeated_where_it_is_called() -> None:
    """A record that was copied with a call says how the function was, and not this graph."""
    written = proto_from_text(
        '<ir_version: 11, opset_import: ["" : 17, "own" : 1, "t" : 1]>'
        "g (float[2] x) => (float[2] y) { [one] z = own.f (x) [two] y = own.f (z) }"
        '<domain: "t", opset_import: ["" : 17]> r (a) => (b) { [Neg_0] b = Neg (a) }'
        '<domain: "own", opset_import: ["" : 17, "t" : 1]> f (a) => (b) { [r_0] b = t.r (a) }'
    )
    call = written.functions[1].node[0]
    call.metadata_props.add(key="dpl.nodes", value='[["Neg","n",["b"]]]')
    call.metadata_props.add(key="dpl.undo", value='{"repeated":[0]}')
    result, _ = inlined_through_file(written, everything=True)
    names = [node.name for node in result.graph.node]
    assert len(set(names)) == 2


STATED = """<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
g (float[B,4] x, float[8,4] z, bool[B] k) => (float[B,4] y, float[8,4] u, float[M,4] v) {
  [one] y = own.f (x)
  [two] u = own.f (z)
  q = Compress <axis = 0> (x, k)
  [open] v = own.f (q)
}
<domain: "own", opset_import: ["" : 17]> f (a) => (b) { i = Relu (a) b = Abs (i) }"""


@pytest.mark.parametrize("denotation", ["", "FEATURES"])
def test_what_a_function_states_of_values_holds_where_it_is_called(denotation: str) -> None:
    """A symbol of the function becomes the size that is there, or a symbol of the call's own."""
    model = proto_from_text(STATED)
    info = onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, ["N", 4], "of i")
    info.type.denotation = denotation
    model.functions[0].value_info.append(info)
    result, _ = inlined_through_file(model, everything=True)
    found = {item.name: item for item in result.graph.value_info}
    dims = {
        name: [dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for name, item in found.items()
    }
    assert dims == {"one/i": ["B", 4], "two/i": [8, 4], "open/i": ["open/N", 4]}
    assert {item.doc_string for item in found.values()} == {"of i"}
    assert {item.type.denotation for item in found.values()} == {denotation}
    onnx.checker.check_model(result, full_check=True)


def test_what_a_function_states_falsely_is_left_behind() -> None:
    """In the graph it would keep onnxruntime from loading the model."""
    model = proto_from_text(STATED)
    info = onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, [3, 5])
    model.functions[0].value_info.append(info)
    result, _ = inlined_through_file(model, everything=True)
    assert not [item for item in result.graph.value_info if item.name == "two/i"]
    onnx.checker.check_model(result, full_check=True)
