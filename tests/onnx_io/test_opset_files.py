"""Raising while a file is read: IR version, external data, and what is written afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dplcli.errors import InvalidModelError, OpsetError, UsageError
from dplcli.onnx_io import is_modified, load_model, staged, to_proto
from dplcli.pipeline import verify
from tests.onnx_io.raised import parsed, raise_opset

if TYPE_CHECKING:
    from pathlib import Path

REDUCTION = """<ir_version: 7, opset_import: ["" : 12]>
g (float[2, 3] x) => (float[2] y) <float[3] w = {1, 2, 3}> {
    a = Mul (x, w)
    y = ReduceSum <axes = [1], keepdims = 0> (a)
}"""


def saved(folder: Path, text: str) -> Path:
    """Write a model to a file."""
    path = folder / "model.onnx"
    onnx.save(parsed(text), path)
    return path


def test_what_is_written_is_of_the_new_opset(tmp_path: Path) -> None:
    """A raised model counts as edited, and computes what the file does."""
    path = saved(tmp_path, REDUCTION)
    model = load_model(path, opset=18)
    assert is_modified(model)
    assert model.opset_imports == {"": 18}
    assert model.notes == [f"{path}: raised from opset 12 to 18; adapted: ReduceSum"]
    with staged(model, tmp_path / "raised.onnx") as written:
        written.commit()
    raised = onnx.load(tmp_path / "raised.onnx")
    assert (raised.opset_import[0].version, raised.ir_version) == (18, 8)
    onnx.checker.check_model(raised, full_check=True)
    assert verify(path, tmp_path / "raised.onnx").equivalent


def test_the_ir_sees_the_new_schema(tmp_path: Path) -> None:
    """Graphs, bodies and functions of the IR are of the opset that the model was raised to."""
    model = load_model(saved(tmp_path, REDUCTION), opset=18)
    node = next(node for node in model.graph if node.op_type == "ReduceSum")
    assert node.inputs[1] is not None
    constant = node.inputs[1].constant
    assert constant is not None
    np.testing.assert_array_equal(constant.numpy(), [1])
    assert {graph.opset_imports[""] for graph in model.graphs()} == {18}


def test_raising_to_the_same_opset_is_no_edit(tmp_path: Path) -> None:
    """Such a model is written back as the file that it came from."""
    path = saved(tmp_path, REDUCTION)
    model = load_model(path, opset=12)
    assert not is_modified(model)
    assert model.notes == []
    assert to_proto(model) == onnx.load(path)


def test_a_file_that_is_sorted_first_says_both(tmp_path: Path) -> None:
    """What reading had to mend is still noted."""
    model = parsed(REDUCTION)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    loaded = load_model(path, opset=18)
    assert [note.split(": ")[1] for note in loaded.notes] == [
        "the nodes were not in topological order; sorted",
        "raised from opset 12 to 18; adapted",
    ]
    onnx.checker.check_model(to_proto(loaded), full_check=True)


def test_a_broken_file_is_refused_as_without_raising(tmp_path: Path) -> None:
    """Adapting a node does not hide that the model was never valid."""
    text = REDUCTION.replace("y = ReduceSum", "d, a = Dropout (x)\n    y = ReduceSum")
    path = saved(tmp_path, text.replace('"" : 12', '"" : 9'))
    with pytest.raises(InvalidModelError, match="'a' is made twice"):
        load_model(path, opset=18)


def test_a_refused_file_is_not_loaded(tmp_path: Path) -> None:
    """The message begins with the path."""
    path = saved(tmp_path, REDUCTION.replace("ReduceSum", "Nonsense"))
    with pytest.raises(OpsetError, match=f"{path}: cannot be raised from opset 12 to 18: Nonsense"):
        load_model(path, opset=18)
    with pytest.raises(UsageError, match=f"{path}: is of opset 12, which cannot be lowered"):
        load_model(path, opset=11)


@pytest.mark.parametrize(("version", "expected"), [(13, 7), (15, 8), (18, 8), (21, 10), (23, 11)])
def test_the_ir_version_goes_up_as_far_as_needed(version: int, expected: int) -> None:
    """And no further."""
    model = parsed(REDUCTION)
    result = raise_opset(model, version)
    assert model.ir_version == expected
    assert result.ir_versions == (7, expected)


def test_the_ir_version_stays_if_the_opset_does() -> None:
    """A file whose IR version is too low for its opset is not mended by the way."""
    model = parsed(REDUCTION)
    model.ir_version = 5
    assert not raise_opset(model, 12).is_changed
    assert model.ir_version == 5


def test_a_newer_ir_version_stays() -> None:
    """It is not lowered."""
    model = parsed(REDUCTION)
    model.ir_version = 12
    raise_opset(model, 18)
    assert model.ir_version == 12


LEGACY = """<ir_version: 3, opset_import: ["" : 8]>
g (float[2, 3] x, float[3] w, int64 n) => (float[2, 3] y) <float[3] w = {1, 2, 3}> {
    y = Mul (x, w)
}"""


def test_below_ir_4_initializers_are_taken_off_the_inputs() -> None:
    """They had to be listed there; later that would make them overridable."""
    model = parsed(LEGACY)
    raise_opset(model, 9)
    assert model.ir_version == 4
    assert [info.name for info in model.graph.input] == ["x", "n"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]


def test_a_new_initializer_needs_ir_4() -> None:
    """Opset 8 would be content with less, but what is added must not become an input."""
    model = parsed(LEGACY.replace('"" : 8', '"" : 7'))
    raise_opset(model, 8)
    assert model.ir_version == 4


def test_from_ir_4_on_inputs_stay_overridable() -> None:
    """An initializer that is an input as well may be meant so."""
    model = parsed(LEGACY.replace("ir_version: 3", "ir_version: 4"))
    raise_opset(model, 18)
    assert [info.name for info in model.graph.input] == ["x", "w", "n"]


def test_initializers_are_taken_off_the_inputs_of_bodies() -> None:
    """The inputs of a body are those that its node gives it, in this order."""
    text = """<ir_version: 3, opset_import: ["" : 8]>
    g (int64 n, bool c, float[2] x) => (float[2] y) {
        y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] v, float[2] w)
            => (bool k2, float[2] r) <float[2] w = {1, 2}> {
            k2 = Identity (k)
            r = Mul (v, w)
        }>
    }"""
    model = parsed(text)
    raise_opset(model, 18)
    body = model.graph.node[0].attribute[0].g
    assert [info.name for info in body.input] == ["i", "k", "v"]


def test_external_data_is_neither_read_nor_moved(tmp_path: Path) -> None:
    """The file need not even be there, and the reference stays."""
    model = parsed(REDUCTION)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    before = tensor.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = load_model(path, opset=18)
    assert loaded.may_have_external_data
    assert to_proto(loaded).graph.initializer[0].SerializeToString() == before
    (tmp_path / "weights.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    with staged(load_model(path, opset=18), tmp_path / "raised.onnx") as written:
        written.commit()
    assert verify(path, tmp_path / "raised.onnx").equivalent


def test_a_large_weight_in_a_constant_node_survives() -> None:
    """Nodes that are only moved along keep their tensors."""
    weight = np.random.default_rng(0).random((512, 512), np.float32)
    model = parsed(
        """<ir_version: 6, opset_import: ["" : 11]>
        g (float[512, 512] x) => (float[512, 512] y) {
            w = Constant <value = float[1] {0}> ()
            a = MatMul (x, w)
            y = Softmax <axis = 0> (a)
        }"""
    )
    tensor = numpy_helper.from_array(weight)
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("value", tensor))
    before = model.graph.node[0].SerializeToString()
    raise_opset(model, 18)
    assert model.graph.node[0].SerializeToString() == before
    assert len(model.graph.node) == 6
