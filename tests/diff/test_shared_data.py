"""Models that share a file of data are compared without reading it, as far as that decides."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dplcli.analysis.numbering import Content
from dplcli.ir import types
from dplcli.onnx_io import load_model
from dplcli.onnx_io.convert import ProtoTensor
from tests.diff.compared import difference, words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dplcli.ir import Model, Tensor

SIZE = 8
"""Elements of each weight."""
DATA = np.arange(4 * SIZE, dtype=np.float32)
DATA[3 * SIZE :] = DATA[:SIZE]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the tensors whose external data is read from now on."""
    found: list[str] = []
    chunks = ProtoTensor.chunks

    def noted(tensor: ProtoTensor) -> Iterator[NDArray[Any]]:
        if tensor.is_external:
            found.append(tensor.proto.name)
        return chunks(tensor)

    monkeypatch.setattr(ProtoTensor, "chunks", noted)
    return found


def net(
    path: Path, weights: list[int], *, ops: str = "Add Add Add", location: str = "data.bin"
) -> Model:
    """Write and load a chain of operators: each reads the weight at one of four places."""
    (path.parent / location).write_bytes(DATA.tobytes())
    tensors, nodes = [], []
    for k, (place, op) in enumerate(zip(weights, ops.split(), strict=True)):
        tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[SIZE])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", location),
            ("offset", str(place * SIZE * 4)),
            ("length", str(SIZE * 4)),
        ):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
        nodes.append(helper.make_node(op, [f"v{k}" if k else "x", f"w{k}"], [f"v{k + 1}"]))
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIZE]) for n in ("x", "v3")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return load_model(path)


def weight(model: Model, name: str = "w0") -> Tensor:
    """Return what a weight of a model holds."""
    found = model.graph.values[name].constant
    assert found is not None
    return found


def test_nothing_is_read_of_what_both_models_share(tmp_path: Path, reads: list[str]) -> None:
    """Whether they are equal, or differ in a node, or in which weight a node reads."""
    first = net(tmp_path / "a.onnx", [0, 1, 2])
    assert difference(first, net(tmp_path / "b.onnx", [0, 1, 2])).is_equal
    other = net(tmp_path / "c.onnx", [0, 1, 2], ops="Add Sub Add")
    assert words(difference(first, other)) == ["Add -> Sub"]
    assert reads == []


def test_of_a_type_only_what_lies_elsewhere_is_read(tmp_path: Path, reads: list[str]) -> None:
    """One weight that was changed is no reason to read the others of its type."""
    first = net(tmp_path / "a.onnx", [0, 1, 2])
    proto = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(DATA[:SIZE], "w1"))
    (tmp_path / "b.onnx").write_bytes(proto.SerializeToString())
    second = load_model(tmp_path / "b.onnx")
    assert words(difference(first, second)) == ["weight w1 8"]
    assert set(reads) == {"w1"}
    assert difference(second, first).graphs[0].weights[0].distance is not None
    assert set(reads) == {"w1"}


def test_a_file_with_two_names_is_one_file(tmp_path: Path, reads: list[str]) -> None:
    """A hard link in another folder, as ``--external-data link`` makes."""
    first = net(tmp_path / "a.onnx", [0, 1, 2])
    folder = tmp_path / "b"
    folder.mkdir()
    net(folder / "b.onnx", [0, 1, 2])
    (folder / "data.bin").unlink()
    os.link(tmp_path / "data.bin", folder / "data.bin")
    assert difference(first, load_model(folder / "b.onnx")).is_equal
    assert reads == []


def test_what_lies_elsewhere_is_read_and_equal(tmp_path: Path, reads: list[str]) -> None:
    """In another file, or at another place of this one."""
    first = net(tmp_path / "a.onnx", [0, 1, 2])
    assert difference(first, net(tmp_path / "b.onnx", [0, 1, 2], location="b.bin")).is_equal
    assert difference(first, net(tmp_path / "c.onnx", [3, 1, 2])).is_equal
    assert set(reads) == {"w0", "w1", "w2"}
    inside = onnx.load(tmp_path / "a.onnx")
    onnx.save(inside, tmp_path / "d.onnx")
    assert difference(first, load_model(tmp_path / "d.onnx")).is_equal


def test_other_weights_of_the_same_file_differ(tmp_path: Path) -> None:
    """Also where both models have the same weights, and read them in other places."""
    first = net(tmp_path / "a.onnx", [0, 1, 2])
    assert words(difference(first, net(tmp_path / "b.onnx", [1, 0, 2]))) == [
        "weight w0 8",
        "weight w1 8",
    ]


def test_equal_data_at_two_shared_places_is_no_difference(tmp_path: Path) -> None:
    """Both models have both copies, and read the one for the other."""
    ops = "Add Sub Mul"
    first = net(tmp_path / "a.onnx", [0, 3, 2], ops=ops)
    assert difference(first, net(tmp_path / "b.onnx", [3, 0, 2], ops=ops)).is_equal


def test_a_place_is_known_only_where_the_data_fits(tmp_path: Path) -> None:
    """Of a tensor in a file; none is known without the file, or of data inside the model."""
    first, second = (net(tmp_path / name, [0, 1, 2]) for name in ("a.onnx", "b.onnx"))
    place = weight(first).place
    assert place is not None
    assert place == weight(second).place != weight(second, "w1").place
    assert types.ArrayTensor(DATA).place is None
    proto = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    assert ProtoTensor(proto.graph.initializer[0]).place is None
    assert ProtoTensor(numpy_helper.from_array(DATA)).place is None
    proto.graph.initializer[0].external_data[2].value = "4"
    home = weight(first).home  # type: ignore[attr-defined]  # as it is in a file
    assert ProtoTensor(proto.graph.initializer[0], home).place is None
    (tmp_path / "data.bin").unlink()
    assert weight(first).place is None


def test_contents_in_one_place_are_equal_unread(tmp_path: Path, reads: list[str]) -> None:
    """Type and shape count before the place does."""
    first, second = (net(tmp_path / name, [0, 1, 2]) for name in ("a.onnx", "b.onnx"))
    assert Content(weight(first)) == Content(weight(second))
    assert reads == []
    assert Content(weight(first)) != Content(weight(second, "w1"))
    assert hash(Content(weight(first))) == hash(Content(types.ArrayTensor(DATA[:SIZE])))
    assert Content(weight(first)) == Content(types.ArrayTensor(DATA[:SIZE]))
