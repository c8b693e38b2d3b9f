"""What is left out of a file that computes nothing, and what stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf.message import Message

from dplcli.errors import ModelExportError
from dplcli.onnx_io.strip import strip_file
from tests.support.helpers import proto_from_text

NET = """
<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}, float[2] v, float[2] s> {
    k = Constant <value = float[2] {3, 4}> ()
    v = Add (x, k)
    s = If (c) <
        then_branch = yes () => (float[2] g) <float[2] i> { i = Relu (v)  g = Neg (i) },
        else_branch = no () => (float[2] h) { h = Mul (v, w) }
    >
    y = f.twice (s)
}
<domain: "f", opset_import: ["" : 17]>
twice (a) => (b) { b = Add (a, a) }
"""


def messages(message: Message) -> Iterator[Any]:
    """Yield every message within one, itself included."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                yield from messages(part)


def annotated() -> onnx.ModelProto:
    """Return the net with a doc and metadata wherever there may be any."""
    model = proto_from_text(NET)
    model.functions[0].value_info.add(name="b")
    for message in list(messages(model)):
        fields = {field.name for field in message.DESCRIPTOR.fields}
        if "doc_string" in fields:
            message.doc_string = "a doc"
        if "metadata_props" in fields:
            message.metadata_props.add(key="source", value="line 7")
    for key in ("dpl.nodes", "dpl.undo", "dpl.rule", "dpl.replaces"):
        model.graph.node[-1].metadata_props.add(key=key, value="1")
    return model


def stripped(model: onnx.ModelProto, folder: Path, *kinds: str) -> onnx.ModelProto:
    """Return what is left of *model* in a file."""
    onnx.save(model, folder / "m.onnx")
    before = (folder / "m.onnx").stat().st_size
    freed = strip_file(folder / "m.onnx", kinds)
    assert sorted(freed) == sorted(kinds)
    assert before - sum(freed.values()) == (folder / "m.onnx").stat().st_size
    return onnx.load(folder / "m.onnx", load_external_data=False)


def test_metadata(tmp_path: Path) -> None:
    """Docs go everywhere; keys of functions stay, and those of calls that undo a partition."""
    left = stripped(annotated(), tmp_path, "metadata")
    found = [
        (type(message).__name__, entry.key)
        for message in messages(left)
        if not isinstance(message, onnx.StringStringEntryProto)
        for entry in getattr(message, "metadata_props", ())
    ]
    assert not any(getattr(message, "doc_string", "") for message in messages(left))
    assert found == [
        ("NodeProto", "dpl.nodes"),
        ("NodeProto", "dpl.undo"),
        ("FunctionProto", "source"),
    ]
    assert [value.name for value in left.graph.value_info] == ["v", "s"]


def test_metadata_is_all_that_goes(tmp_path: Path) -> None:
    """A net without any stays what it is."""
    model = proto_from_text(NET)
    assert stripped(model, tmp_path, "metadata") == model


def test_value_info(tmp_path: Path) -> None:
    """Types of inner values go, in bodies and functions as well; those of the interface stay."""
    left = stripped(annotated(), tmp_path, "value_info")
    bodies = [body for body in messages(left) if hasattr(body, "value_info")]
    assert [len(body.value_info) for body in bodies] == [0] * 4
    assert left.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert left.graph.input[0].doc_string == "a doc"


def test_external_data_is_not_read(tmp_path: Path) -> None:
    """Weights in another file, which need not be there, stay where they are."""
    model = annotated()
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    left = stripped(model, tmp_path, "metadata", "value_info")
    assert left.graph.initializer[0].external_data[0].value == "w.bin"


def test_what_is_no_message(tmp_path: Path) -> None:
    """A file that cannot be parsed as one, as beyond 2 GiB, is refused with a way out."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff" * 9)
    with pytest.raises(ModelExportError, match="too large") as caught:
        strip_file(path, ["metadata"])
    assert caught.value.hint == "store its weights as external data"
    assert path.read_bytes() == b"\xff" * 9
