"""Every field of every message of onnx: what nobody touches is written as it came."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dplcli.onnx_io import load_model, staged
from dplcli.passes.rewriter import GraphRewriter
from tests.onnx_io.test_round_trip import mark_modified
from tests.support.models import node_making, parse

MODEL = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[N, 2] x, bool c) => (float[N, 2] y) <float[2] w = {1, 2}, float[N, 2] t> {
  t = own.f <alpha = 2.0> (x, w)
  m = Abs (t)
  y = If (c) <then_branch = a () => (float[N, 2] p) <float[2] v = {1, 2}, float[N, 2] r>
                { r = Relu (m) p = Add (r, v) },
              else_branch = b () => (float[N, 2] q) { q = Neg (t) }>
}
<domain: "own", opset_import: ["" : 18]>
f <alpha: float = 1.0, beta> (u, v) => (r) { s = Add (u, v) r = LeakyRelu (s) }
"""
BASE = parse(MODEL)
TOUCHED = 1
"""The node of the main graph that is replaced."""

UNKNOWN = b"\xc2\x3e\x03new" + b"\xc8\x3e" + b"\xff" * 9 + b"\x01" + b"\xd5\x3e\x01\x02\x03\x04"
"""Fields 1000 to 1002, which a newer onnx may add: bytes, the number -1, four bytes."""

DECISIVE = {
    *("ModelProto.graph", "ModelProto.functions", "ModelProto.opset_import"),
    *("FunctionProto.opset_import", "OperatorSetIdProto.domain"),
    *("GraphProto.node", "GraphProto.input", "GraphProto.output", "GraphProto.initializer"),
    *("GraphProto.sparse_initializer", "AttributeProto.g", "AttributeProto.graphs"),
    *("NodeProto.input", "NodeProto.output", "NodeProto.domain", "NodeProto.overload"),
    *("FunctionProto.node", "FunctionProto.input", "FunctionProto.output"),
    *("FunctionProto.overload", "AttributeProto.ref_attr_name"),
}
"""What is read as a graph: what these hold has to fit together. The model has most of them."""


class Spot(NamedTuple):
    """A message in the model, or one that is put there.

    Attributes:
        path: The field and the item of each message on the way; a new item, if there is none.
        message: The message, as a model of its own has it.
    """

    path: tuple[tuple[str, int], ...]
    message: Message


def spots(spot: Spot, kinds: tuple[str, ...] = ()) -> Iterator[Spot]:
    """Yield all messages, and one of each kind that none of those around it has."""
    yield spot
    kinds = (*kinds, spot.message.DESCRIPTOR.name)
    for field in spot.message.DESCRIPTOR.fields:
        if field.message_type is None or _name(field) in DECISIVE - _present(spot.message):
            continue
        items = _items(spot.message, field)
        if not items and field.message_type.name not in kinds:
            items = [_put(type(spot.message)(), field)]
        for number, item in enumerate(items):
            yield from spots(Spot((*spot.path, (field.name, number)), item), kinds)


def _present(message: Message) -> set[str]:
    return {_name(field) for field, _ in message.ListFields()}


def _name(field: FieldDescriptor) -> str:
    return f"{field.containing_type.name}.{field.name}"


def _items(message: Message, field: FieldDescriptor) -> list[Any]:
    value = getattr(message, field.name)
    return [*value] if field.is_repeated else [value] if message.HasField(field.name) else []


def _put(message: Message, field: FieldDescriptor) -> Any:  # noqa: ANN401  # a message
    if field.is_repeated:
        return getattr(message, field.name).add()
    part = getattr(message, field.name)
    part.SetInParent()
    return part


def at(model: Message, path: tuple[tuple[str, int], ...]) -> Any:  # noqa: ANN401  # as above
    """Return the message at a place of a model; it is put there if need be."""
    for name, number in path:
        field = model.DESCRIPTOR.fields_by_name[name]
        items = _items(model, field)
        model = items[number] if number < len(items) else _put(model, field)
    return model


def fill(message: Message, field: FieldDescriptor) -> None:
    """State one field, or one item more of it."""
    if field.message_type is not None:
        _put(message, field).MergeFromString(UNKNOWN)
        return
    samples: dict[int, object] = {
        FieldDescriptor.CPPTYPE_STRING: "some" if field.type == field.TYPE_STRING else b"\xff\0",
        FieldDescriptor.CPPTYPE_FLOAT: 1.5,
        FieldDescriptor.CPPTYPE_DOUBLE: 1.5,
    }
    value = field.enum_type.values[0].number if field.enum_type else samples.get(field.cpp_type, 3)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def cases() -> list[Any]:
    """List places and fields: those that are not stated there, and one that nobody knows."""
    found = {}
    for spot in spots(Spot((), BASE)):
        place = "/".join(name for name, _ in spot.path)
        for field in (*spot.message.DESCRIPTOR.fields, None):
            name = "unknown" if field is None else field.name
            is_stated = field is not None and bool(_items(spot.message, field))
            is_free = field is None or field.is_repeated or not is_stated
            if is_free and (field is None or _name(field) not in DECISIVE):
                found[f"{place}:{name}"] = (spot.path, field)
    return [pytest.param(*case, id=name) for name, case in found.items()]


CASES = cases()


@pytest.mark.parametrize(("path", "field"), CASES)
def test_what_is_untouched_stays(
    path: tuple[tuple[str, int], ...], field: FieldDescriptor | None, tmp_path: Path
) -> None:
    """Byte for byte: as the file is copied, written anew, and written beside a node that is new."""
    proto = onnx.ModelProto.FromString(BASE.SerializeToString())
    message = at(proto, path)
    if field is None:
        message.MergeFromString(UNKNOWN)
    else:
        fill(message, field)
    data, file = proto.SerializeToString(), tmp_path / "in.onnx"
    file.write_bytes(data)
    model = load_model(file)
    assert written(model, tmp_path) == data
    mark_modified(model)
    assert written(model, tmp_path) == data
    model = load_model(file)
    old = node_making(model, "m")
    rewriter = GraphRewriter(model.graph)
    new = rewriter.insert(old, "Abs", old.inputs)
    rewriter.take_over_outputs(new, old.outputs)
    rewriter.erase([old])
    assert without_touched(written(model, tmp_path)) == without_touched(data)


def written(model: Any, folder: Path) -> bytes:  # noqa: ANN401  # a Model
    """Return the file of a model."""
    with staged(model, folder / "out.onnx") as done:
        return done.path.read_bytes()


def without_touched(data: bytes) -> bytes:
    """Return a file without the node that is replaced."""
    proto = onnx.ModelProto.FromString(data)
    del proto.graph.node[TOUCHED]
    return bytes(proto.SerializeToString())


def test_the_cases_are_all_there() -> None:
    """Each message of onnx.proto is among them, with each field that is not read as a graph."""
    filled = {_name(case.values[1]) for case in CASES if case.values[1] is not None}
    messages = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values()
    everything = {_name(f) for kind in messages for f in _with_inner(kind) for f in f.fields}
    stated = {name for spot in spots(Spot((), BASE)) for name in _present(spot.message)}
    assert everything - filled - stated <= DECISIVE


def _with_inner(kind: Any) -> Iterator[Any]:  # noqa: ANN401  # a descriptor
    yield kind
    for inner in kind.nested_types:
        yield from _with_inner(inner)
