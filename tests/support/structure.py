"""Tell in what two models differ that a reader of the files would call a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx
    from google.protobuf.message import Message

FIRST_IR_WITH_FUNCTIONS = 8
FIRST_IR_WITH_FREE_INITIALIZERS = 4


def differences(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """Say in what *after* is not *before*.

    Compared are nodes in their order, with names, operators, attributes, inputs, outputs,
    documentation, metadata, devices and what onnx does not know; bodies and functions likewise;
    inputs, outputs, initializers and stated types by name; opset imports; and all else that a model
    states of itself.

    Equal are ``ai.onnx`` and the empty domain, and initializers, stated types and quantization
    annotations in another order. What a partition changes for good is allowed: an IR version
    below 8 becomes 8, and then what was an initializer and, for IR versions below 4, also an input
    is no input any more.
    """
    found = list(_model(before, after))
    inputs = list(before.graph.input)
    if before.ir_version < FIRST_IR_WITH_FREE_INITIALIZERS <= after.ir_version:
        stored = {tensor.name for tensor in before.graph.initializer}
        inputs = [value for value in inputs if value.name not in stored]
    found += _sequences("graph input", inputs, after.graph.input)
    found += _graphs("main", before.graph, after.graph)
    functions = (_by_name(before.functions), _by_name(after.functions))
    rest = [{k: _without(f, "node", "value_info") for k, f in x.items()} for x in functions]
    found += _mappings("function", *rest)
    for key in functions[0].keys() & functions[1].keys():
        stated = [{info.name: info for info in x[key].value_info} for x in functions]
        found += _mappings(f"function {key}: value_info", *stated)
        found += _nodes(f"function {key}", functions[0][key].node, functions[1][key].node)
    return found


def _model(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[str]:
    if after.ir_version not in {before.ir_version, max(before.ir_version, FIRST_IR_WITH_FUNCTIONS)}:
        yield f"ir_version: {before.ir_version} -> {after.ir_version}"
    imports = [{_domain(i.domain): i.version for i in m.opset_import} for m in (before, after)]
    if imports[0] != imports[1]:
        yield f"opset imports: {imports[0]} -> {imports[1]}"
    rest = [
        _without(m, "ir_version", "opset_import", "graph", "functions") for m in (before, after)
    ]
    if rest[0] != rest[1]:
        yield "what the model says of itself"


def _graphs(where: str, before: onnx.GraphProto, after: onnx.GraphProto) -> Iterator[str]:
    parts = ("node", "input", "initializer", "value_info", "quantization_annotation")
    if _without(before, *parts) != _without(after, *parts):
        yield f"{where}: outputs or what the graph says of itself"
    for part in ("initializer", "value_info"):
        items = [{i.name: i for i in getattr(graph, part)} for graph in (before, after)]
        yield from _mappings(f"{where}: {part}", *items)
    notes = [sorted(map(str, graph.quantization_annotation)) for graph in (before, after)]
    if notes[0] != notes[1]:
        yield f"{where}: quantization annotations"
    yield from _nodes(where, before.node, after.node)


def _nodes(
    where: str, before: Iterable[onnx.NodeProto], after: Iterable[onnx.NodeProto]
) -> Iterator[str]:
    ours, theirs = list(before), list(after)
    if len(ours) != len(theirs):
        yield f"{where}: {len(ours)} nodes -> {len(theirs)}"
    keys = [[(n.op_type, n.name, tuple(n.output)) for n in nodes] for nodes in (ours, theirs)]
    for gone in sorted(set(keys[0]) - set(keys[1])):
        yield f"{where}: no node {gone}"
    for new in sorted(set(keys[1]) - set(keys[0])):
        yield f"{where}: new node {new}"
    if keys[0] != keys[1]:
        if sorted(keys[0]) == sorted(keys[1]):
            yield f"{where}: order of nodes"
        return
    for one, other in zip(ours, theirs, strict=True):
        yield from _node(f"{where}: {one.op_type} {one.name or list(one.output)}", one, other)


def _node(where: str, before: onnx.NodeProto, after: onnx.NodeProto) -> Iterator[str]:
    if list(before.input) != list(after.input):
        yield f"{where}: reads {list(before.input)} -> {list(after.input)}"
    if (_domain(before.domain), before.overload) != (_domain(after.domain), after.overload):
        yield f"{where}: domain or overload"
    if (before.doc_string, _metadata(before)) != (after.doc_string, _metadata(after)):
        yield f"{where}: documentation or metadata"
    compared = ("input", "output", "name", "op_type", "domain", "overload", "metadata_props")
    rest = [_without(node, *compared, "attribute", "doc_string") for node in (before, after)]
    if rest[0].SerializeToString() != rest[1].SerializeToString():
        yield f"{where}: devices, or what onnx does not know"
    attributes = [{a.name: a for a in node.attribute} for node in (before, after)]
    if list(attributes[0]) != list(attributes[1]):
        yield f"{where}: order of attributes"
    bodies = [{k: a.g for k, a in items.items() if a.HasField("g")} for items in attributes]
    plain = [{k: _attribute(a) for k, a in items.items()} for items in attributes]
    yield from _mappings(f"{where}: attribute", *plain)
    for name in bodies[0].keys() & bodies[1].keys():
        inner = f"{where}.{name}"
        yield from _sequences(f"{inner} input", bodies[0][name].input, bodies[1][name].input)
        yield from _graphs(inner, bodies[0][name], bodies[1][name])


def _attribute(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """Leave out bodies, which are compared by themselves, and what a tensor is called."""
    copy: onnx.AttributeProto = _without(attribute, "g")
    if copy.HasField("t"):
        copy.t.ClearField("name")
    return copy


def _mappings(what: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in before.keys() - after.keys():
        yield f"{what} {name!r} is gone"
    for name in after.keys() - before.keys():
        yield f"{what} {name!r} is new"
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            yield f"{what} {name!r} differs"


def _sequences(what: str, before: Iterable[Message], after: Iterable[Message]) -> Iterator[str]:
    if list(before) != list(after):
        yield f"{what}s differ"


def _by_name(functions: Iterable[onnx.FunctionProto]) -> dict[str, onnx.FunctionProto]:
    return {f"{f.domain}::{f.name}:{f.overload}": f for f in functions}


def _metadata(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _without(message: Any, *fields: str) -> Any:  # noqa: ANN401  # any message
    copy = type(message)()
    copy.CopyFrom(message)
    for name in fields:
        copy.ClearField(name)
    return copy
