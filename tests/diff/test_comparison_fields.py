"""Whatever field of a file is changed: ``--ignore nothing`` sees it, and names the place."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from onnx import ModelProto, TensorProto, helper, numpy_helper

from dplcli.errors import DplError
from dplcli.outcomes.comparing import DiffOutcome
from dplcli.report.diff import diff_document
from dplcli.report.layout import plain_text
from tests.diff.compared import difference
from tests.support.helpers import model_from_bytes, one_in, proto_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

NET = """<ir_version: 10, opset_import: ["" : 21, "local" : 1, "odd" : 1, "idle" : 1]>
  g (float[2, N] x, float[2] unread, int64[1] k) => (float[2, N] y, float[2, N] z)
  <float[2, 1] w = {1, 2}, float[2] spare = {5, 6}, float[2, N] c> {
    [first] c = Mul (x, w)
    [calls] d = local.f <alpha = 2.0> (c, w)
    one = Constant <value = float {1}> ()
    e = Add (d, one)
    b = Cast <to = 9> (k)
    [branch] y = If (b) <then_branch = t () => (float[2, N] p) <float v = {3}> { p = Mul (e, v) },
        else_branch = s () => (float[2, N] q) { q = Neg (e) }>
    [strange] z, left = odd.All <i = 1, f = 1.5, s = "text", ints = [1, 2], floats = [1.0, 2.0],
        strings = ["a", "b"], t = float[2] {1, 2}> (e, c, k)
  }
  <domain: "local", opset_import: ["" : 21, "idle" : 2]> f <alpha, beta: float = 1.0> (a, m) => (r)
  { n = LeakyRelu <alpha: float = @alpha> (a) r = Mul (n, m) }
"""


def whole_net() -> ModelProto:
    """Return a model that has each message of onnx somewhere, with something stated in it."""
    model = proto_from_text(NET)
    graph, function, strange = model.graph, model.functions[0], model.graph.node[-1]
    function.value_info.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, [2, 3]))
    numbers = numpy_helper.from_array(np.array([[1, 2]], np.float32), "numbers")
    places = numpy_helper.from_array(np.array([1, 2], np.int64), "places")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1, 2], np.float32)), places, [4]
    )
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, "M"])
    attributes: dict[str, Any] = {
        "tensors": [numbers],
        "sparse": sparse,
        "sparses": [sparse],
        "sequence": helper.make_sequence_type_proto(tensor),
        "types": [
            helper.make_optional_type_proto(tensor),
            helper.make_map_type_proto(1, tensor),
            helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2]),
            onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque(domain="odd", name="Thing")),
        ],
        "graphs": [helper.make_graph([helper.make_node("Neg", ["e"], ["u"])], "in a list", [], [])],
    }
    strange.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    graph.sparse_initializer.add().CopyFrom(sparse)
    graph.sparse_initializer[0].values.name = "few"
    graph.quantization_annotation.add(tensor_name="w").quant_parameter_tensor_names.add(
        key="SCALE", value="one"
    )
    graph.initializer[1].segment.end = 2  # of one that is not read
    training = model.training_info.add()
    training.algorithm.name = "descent"
    training.update_binding.add(key="w", value="w2")
    device = model.configuration.add(name="two", num_devices=2, device=["a", "b"])
    placed = strange.device_configurations.add(configuration_id=device.name, pipeline_stage=1)
    spec = placed.sharding_spec.add(tensor_name="z", device=[0, 1])
    spec.index_to_device_group_map.add(key=1, value=[0, 1])
    spec.sharded_dim.add(axis=1).simple_sharding.add(dim_value=2, num_shards=2)
    return model
    for each in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.value_info):
        each.metadata_props.add(key="origin", value="here")
    model.metadata_props.add(key="license", value="MIT")
    return model


def descriptors(top: Descriptor) -> set[Descriptor]:
    """Return the types of all messages that one of a type can hold."""
    reached, pending = {top}, [top]
    while pending:
        inner = {field.message_type for field in pending.pop().fields} - {None} - reached
        reached |= inner
        pending += inner
    return reached


Place = tuple[tuple[str, int], ...]


def places(message: Message, at: Place = ()) -> Iterator[tuple[Place, Message]]:
    """Walk all messages in a message, with the way to each."""
    yield at, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            items = list(value) if field.is_repeated else [value]
            for number, item in enumerate(items):
                yield from places(item, (*at, (field.name, number if field.is_repeated else -1)))


def one_of_each(message: Message) -> dict[tuple[str, ...], Place]:
    """Return a way to one message of each type in each field that holds any."""
    chosen: dict[tuple[str, ...], Place] = {}
    for at, each in places(message):
        kind = (each.DESCRIPTOR.name, *(field for field, _ in at[-1:]))
        chosen.setdefault(kind, at)
    return chosen


def resolve(message: Any, at: Place) -> Any:  # noqa: ANN401  # a message of any type
    """Go the way to a message inside another one."""
    for field, number in at:
        inner = getattr(message, field)
        message = inner if number < 0 else inner[number]
    return message


def changed(
    message: Any,  # noqa: ANN401  # a message of any type
    field: FieldDescriptor,
) -> Iterator[Callable[[Any], object]]:
    """Yield ways to change a field: to state it, to take it away, to state something else."""
    name, value = field.name, getattr(message, field.name)
    new = {
        FieldDescriptor.CPPTYPE_STRING: b"more" if field.type == field.TYPE_BYTES else "more",
        FieldDescriptor.CPPTYPE_ENUM: 1,
        FieldDescriptor.CPPTYPE_FLOAT: 7.5,
        FieldDescriptor.CPPTYPE_DOUBLE: 7.5,
    }.get(field.cpp_type, 6)
    if field.is_repeated and field.message_type is not None:
        yield lambda m: getattr(m, name).add()
    elif field.is_repeated:
        yield lambda m: getattr(m, name).append("" if name in {"input", "output"} else new)
    elif field.message_type is not None and not message.HasField(name):
        yield lambda m: getattr(m, name).SetInParent()
    elif field.message_type is None:
        yield lambda m: setattr(
            m, name, new if not message.HasField(name) or value != new else new * 2
        )
    if field.is_repeated and len(value):
        yield lambda m: getattr(m, name).__delitem__(0)
    elif not field.is_repeated and message.HasField(name):
        yield lambda m: m.ClearField(name)
    if field.is_repeated and len(value) > 1 and value[0] != value[1]:
        yield lambda m: swap(getattr(m, name))


def swap(items: Any) -> None:  # noqa: ANN401  # a list of protobuf
    """Let the items of a list stand in the opposite order."""
    kept = deepcopy(list(items)[::-1])
    del items[:]
    items.extend(kept)


def told(after: ModelProto) -> tuple[str, list[str]]:
    """Return what is said of the net and another model, and the places that are named apart.

    Nothing is said if they are equal, and why if the other one is refused.
    """
    try:
        found = difference(LOADED, model_from_bytes(after.SerializeToString()), frozenset())
    except DplError as error:
        return f"{error}", []
    if found.is_equal:
        return "", []
    document = diff_document(DiffOutcome(("a", "b"), found))
    return plain_text(document.text(verbose=True)), [remark.where for remark in found.counted]


MODEL = whole_net()
LOADED = model_from_bytes(MODEL.SerializeToString())


def test_the_net_has_every_message() -> None:
    """What onnx can hold is there to be changed."""
    kinds = {kind for kind, *_ in one_of_each(MODEL)}
    assert {each.name for each in descriptors(ModelProto.DESCRIPTOR)} - kinds == set()


def name_of(at: Place) -> str:
    """Return what the node, value, tensor or entry that a message lies in is called, if it is."""
    depth = 2 if at[:1] == (("graph", -1),) else 1
    around = resolve(MODEL, at[:depth]) if len(at) > depth else None
    keys = ("key", "name", "tensor_name")
    return next((str(getattr(around, key)) for key in keys if hasattr(around, key)), "")


KINDS = {"-".join(kind): place for kind, place in one_of_each(MODEL).items()}
EACH_KIND = pytest.mark.parametrize("kind", one_in(8, KINDS, gate=3))
REFUSED = "invalid model|data cannot be read"
"""A name that nothing defines any more, and data that does not fit its type."""


@EACH_KIND
def test_every_field(kind: str) -> None:
    """Stated, taken away, changed, put in another order: each is seen, and it is said where."""
    at = KINDS[kind]
    message = resolve(MODEL, at)
    seen = 0
    for field in message.DESCRIPTOR.fields:
        for number, change in enumerate(changed(message, field)):
            other = ModelProto.FromString(MODEL.SerializeToString())
            change(resolve(other, at))
            said, where = told(other)
            assert said, f"{field.full_name}, change {number}"
            if re.search(REFUSED, said) is None:
                seen += 1
                assert name_of(at) in said, field.full_name
                assert not [place for place in where if "_" in place.replace("then_branch", "")]
    assert seen >= len(message.DESCRIPTOR.fields) // 2


@EACH_KIND
def test_a_field_of_next_year(kind: str) -> None:
    """What the installed onnx does not know counts in every message, whatever is ignored."""
    at = KINDS[kind]
    for data in (b"\x98\x3e\x01", b"\x9a\x3e\x03abc"):
        other = ModelProto.FromString(MODEL.SerializeToString())
        resolve(other, at).MergeFromString(data)
        found = difference(LOADED, model_from_bytes(other.SerializeToString()))
        assert not found.is_equal
        assert "unknown field 995" in found.counted[0].where
