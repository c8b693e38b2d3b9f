"""Check message by message that a partition touched nothing but what it outlined."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.message import Message

OURS = "Composite"
FIRST_IR_WITH_FUNCTIONS = 8
FIRST_IR_WITH_FREE_INITIALIZERS = 4


def check_untouched(before: onnx.ModelProto, after: onnx.ModelProto, covered: int) -> None:
    """Check everything outside the partitions, of which *covered* nodes became part.

    Args:
        before: The original.
        after: The result; its new functions carry the metadata ``Composite``.
        covered: How many nodes of the original were outlined.
    """
    if covered:
        assert after.ir_version == max(before.ir_version, FIRST_IR_WITH_FUNCTIONS)
    _check_fields(before, after, {"ir_version", "opset_import", "graph", "functions"})
    added = Counter(_bytes(after.opset_import)) - Counter(_bytes(before.opset_import))
    targets = {item.domain for item in _new_functions(before, after)}
    assert sorted(onnx.OperatorSetIdProto.FromString(data).domain for data in added) == sorted(
        targets - {item.domain for item in before.opset_import}
    )
    calls = {(item.domain, item.name) for item in _new_functions(before, after)}
    gone = _check_graphs(before, after, calls)
    assert gone == covered


def _new_functions(before: onnx.ModelProto, after: onnx.ModelProto) -> list[onnx.FunctionProto]:
    known = {(item.domain, item.name, item.overload) for item in before.functions}
    new = [i for i in after.functions if (i.domain, i.name, i.overload) not in known]
    assert all(any(entry.key == OURS for entry in item.metadata_props) for item in new)
    return new


def _check_graphs(
    before: onnx.ModelProto, after: onnx.ModelProto, calls: set[tuple[str, str]]
) -> int:
    """Check main graph and functions; return how many nodes of the original are gone."""
    _check_interface(before, after)
    gone = _check_nodes(before.graph.node, after.graph.node, calls)
    _check_values(before.graph, after.graph)
    old = [item for item in after.functions if (item.domain, item.name) not in calls]
    for ours, theirs in zip(before.functions, old, strict=True):
        _check_fields(ours, theirs, {"node", "opset_import"})
        gone += _check_nodes(ours.node, theirs.node, calls)
    return gone


def _check_interface(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    stored = {tensor.name for tensor in before.graph.initializer}
    inputs = list(before.graph.input)
    if before.ir_version < FIRST_IR_WITH_FREE_INITIALIZERS < after.ir_version:
        inputs = [value for value in inputs if value.name not in stored]
    assert _bytes(after.graph.input) == _bytes(inputs)
    assert _bytes(after.graph.output) == _bytes(before.graph.output)


def _check_values(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Weights stay as they are; a value's type is gone only with the value itself."""
    _check_fields(before, after, {"node", "input", "value_info"})
    kept = Counter(_bytes(after.value_info))
    assert not kept - Counter(_bytes(before.value_info))
    still_made = {name for node in after.node for name in node.output}
    still_made |= {value.name for value in after.input} | {t.name for t in after.initializer}
    left = [info for info in before.value_info if info.name in still_made]
    made_before = {name for node in before.node for name in node.output}
    lost = {info.name for info in before.value_info} - {info.name for info in after.value_info}
    assert lost <= made_before
    assert {info.name for info in left} <= {info.name for info in after.value_info}


def _check_nodes(
    before: Iterable[onnx.NodeProto],
    after: Iterable[onnx.NodeProto],
    calls: set[tuple[str, str]],
) -> int:
    """Check that what is no call is as it was; return how many nodes are gone, bodies included."""
    known: dict[bytes, list[onnx.NodeProto]] = {}
    count = 0
    for node in before:
        known.setdefault(_without_bodies(node), []).append(node)
        count += 1
    gone = 0
    for node in after:
        if (node.domain, node.op_type) in calls:
            continue
        same = known.get(_without_bodies(node))
        assert same, f"{node.op_type} {node.name} is not a node of the original"
        gone += _check_bodies(same.pop(0), node, calls)
        count -= 1
    return gone + count


def _check_bodies(
    before: onnx.NodeProto, after: onnx.NodeProto, calls: set[tuple[str, str]]
) -> int:
    gone = 0
    for ours, theirs in zip(_bodies(before), _bodies(after), strict=True):
        assert _bytes(theirs.input) == _bytes(ours.input)
        gone += _check_nodes(ours.node, theirs.node, calls)
        _check_values(ours, theirs)
    return gone


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def _without_bodies(node: onnx.NodeProto) -> bytes:
    if not any(True for _ in _bodies(node)):
        return _bytes([node])[0]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        attribute.ClearField("g")
    return _bytes([copy])[0]


def _check_fields(before: Message, after: Message, without: set[str]) -> None:
    """Check that all fields but these are equal."""
    copies = []
    for message in (before, after):
        copy = type(message)()
        copy.CopyFrom(message)
        for name in without:
            copy.ClearField(name)
        copies.append(copy)
    assert copies[0] == copies[1]


def _bytes(messages: Iterable[Message]) -> list[bytes]:
    return [message.SerializeToString(deterministic=True) for message in messages]
