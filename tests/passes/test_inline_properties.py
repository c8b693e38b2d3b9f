"""Random graphs, rules and policies: a partition and its undoing give the graph back."""

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir.traversal import check_structure
from dplcli.language import PatternRule
from dplcli.onnx_io import to_proto
from dplcli.passes.inline import inline
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.records import is_written
from dplcli.passes.select import select_matches
from tests.support.helpers import model_from_bytes, proto_from_text, rule
from tests.support.random_models import named as with_names
from tests.support.random_models import rule_texts, scoped_models
from tests.support.strategies import RandomGraph, graphs, subgraph_patterns
from tests.support.structure import differences

POLICIES = ("auto", "embed", "lift")
ESCAPES = ("refuse", "duplicate", "outputs")
UNKNOWN = b"\xa2\x06\x03new"
"""Field 100, which no message of onnx has."""
ORDERS = ("outermost", "program")


def named(graph: RandomGraph) -> onnx.ModelProto:
    """Read the graph; some nodes have no name, and some carry what a file can say of them.

    That is remarks, devices and a field that onnx does not know; of values a type, and how they are
    quantised.
    """
    proto = proto_from_text(graph.text())
    for number, node in enumerate(proto.graph.node):
        node.name = "" if number % 3 == 2 else f"Conv_{number}"
        node.doc_string = "" if number % 4 else f"node {number}"
        for attribute in node.attribute:
            attribute.doc_string = f"of node {number}"
        if number % 3 == 1:
            device = node.device_configurations.add(configuration_id="d", pipeline_stage=1)
            device.sharding_spec.add(tensor_name=node.output[0]).device.extend([0, 1])
            node.MergeFromString(UNKNOWN)
        if number % 4 == 2:
            note = proto.graph.quantization_annotation.add(tensor_name=node.output[0])
            note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="a")
        if number % 5 and node.output[0] not in graph.outputs:
            known: list[str | int | None] = ["N", 2]
            dims = known[: number % 3]
            info = onnx.helper.make_tensor_value_info(node.output[0], 1, dims)
            proto.graph.value_info.append(info)
    return proto


def partitioned(proto: onnx.ModelProto, *rounds: list[PatternRule]) -> onnx.ModelProto:
    """Partition by each list of rules in turn, through a file each time."""
    for rules in rounds:
        model = model_from_bytes(proto.SerializeToString())
        partition(model, select_matches(model, rules))
        proto = to_proto(model)
    return proto


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inline all functions that dpl wrote."""
    model = model_from_bytes(proto.SerializeToString())
    result = inline(model, [f for f in model.functions.values() if is_written(f)])
    check_structure(model)
    assert not result.refused
    assert all(item.is_restored for item in result.calls)
    return to_proto(model)


def drawn_rule(data: st.DataObject, graph: RandomGraph, number: int, target: str) -> PatternRule:
    """Draw a rule that is like a part of the graph, or surely matches there."""
    if data.draw(st.booleans()):
        pattern = data.draw(rule_texts(graph))
    else:
        pattern, _, _ = data.draw(subgraph_patterns(graph))
    return rule(
        pattern,
        target=target,
        name=f"r{number}",
        constants=data.draw(st.sampled_from(POLICIES)),
        escape=data.draw(st.sampled_from(ESCAPES)),
        order=data.draw(st.sampled_from(ORDERS)),
    )


@pytest.mark.long
@given(st.data())
def test_one_partition_is_undone(data: st.DataObject) -> None:
    """Whatever the rules and policies, the graph is as it was, in the order it was."""
    graph = data.draw(graphs(12))
    rules = [drawn_rule(data, graph, n, "t") for n in range(data.draw(st.integers(1, 3)))]
    original = named(graph)
    assert differences(original, inlined(partitioned(original, rules))) == []


@pytest.mark.long
@given(st.data())
def test_a_partition_of_a_partition_is_undone(data: st.DataObject) -> None:
    """A second run for another target over the first's result is undone first."""
    graph = data.draw(graphs(12))
    rounds = [[drawn_rule(data, graph, n, f"t{n}")] for n in range(2)]
    original = named(graph)
    assert differences(original, inlined(partitioned(original, *rounds))) == []


@pytest.mark.long
@given(st.data())
def test_in_branches_and_functions(data: st.DataObject) -> None:
    """Captured values, branches in branches, the model's own function; regions, too."""
    drawn = data.draw(scoped_models())
    scopes = drawn.graphs()
    rules = [
        drawn_rule(data, data.draw(st.sampled_from(scopes)), number, "t")
        for number in range(2 if scopes else 0)
    ]
    original = with_names(proto_from_text(drawn.text()))
    model = model_from_bytes(original.SerializeToString())
    partition(model, select_matches(model, rules))
    if data.draw(st.booleans()):
        merge_partitions(model)
    assert differences(original, inlined(to_proto(model))) == []


@pytest.mark.long
@given(st.data())
def test_call_by_call_in_any_order(data: st.DataObject) -> None:
    """Calls inlined one at a time, through a file each time, end in the same graph."""
    graph = data.draw(graphs(10))
    rules = [drawn_rule(data, graph, n, "t") for n in range(2)]
    original = named(graph)
    proto = partitioned(original, rules)
    while proto.functions:
        model = model_from_bytes(proto.SerializeToString())
        calls = [node for node in model.graph if node.domain == "t"]
        call = data.draw(st.sampled_from(calls))
        key = (call.domain, call.op_type, "")
        inline(model, [model.functions[key]], {call})
        check_structure(model)
        proto = to_proto(model)
    assert differences(original, proto) == []
