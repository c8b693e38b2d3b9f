"""Size is no obstacle: long chains in any order, wide fans, many bodies."""

import random
from pathlib import Path

import onnx
import onnx.helper
import pytest

from dplcli.ir import Model
from dplcli.ir.traversal import check_structure, path_through_outside
from dplcli.onnx_io import staged, to_proto
from tests.support.models import ir_of, node_making, parse, read_values

LENGTH = 20_000


def chain(order: str) -> onnx.ModelProto:
    """Return LENGTH Relu in a row, listed forwards, backwards or shuffled."""
    proto = parse("g (float[2] v0) => (y) { }")
    nodes = [
        onnx.helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(LENGTH)
    ]
    if order == "backwards":
        nodes.reverse()
    if order == "shuffled":
        random.Random(7).shuffle(nodes)  # noqa: S311  # not for cryptography
    proto.graph.node.extend(nodes)
    proto.graph.output[0].name = f"v{LENGTH}"
    return proto


@pytest.mark.parametrize(
    "order",
    ["forwards", *(pytest.param(o, marks=pytest.mark.long) for o in ("backwards", "shuffled"))],
)
def test_a_long_chain_in_any_order(order: str, tmp_path: Path) -> None:
    """20,000 nodes in a row load, verify, are typed and written without recursion."""
    model = ir_of(chain(order))
    check_structure(model)
    assert [node.outputs[0].name for node in model.graph if node.outputs[0]] == [
        f"v{index + 1}" for index in range(LENGTH)
    ]
    first, last = node_making(model, "v1"), node_making(model, f"v{LENGTH}")
    assert path_through_outside([first, last], [model.graph.values["v1"]]) is not None
    assert path_through_outside([first], [model.graph.values["v1"]]) is None
    with staged(model, tmp_path / "out.onnx") as written:
        written.commit()
    assert not ir_of(onnx.load(tmp_path / "out.onnx")).notes


def test_a_long_chain_has_types() -> None:
    """Shape inference reaches the end of a long chain."""
    model = ir_of(chain("forwards"))
    assert str(model.graph.values[f"v{LENGTH}"].known_type()) == "float32[2]"
    assert model.notes == []


def test_a_value_with_many_uses() -> None:
    """Taking all uses of a much-read value away, in any order, is not quadratic."""
    proto = parse("g (float[2] x) => (y0) { }")
    proto.graph.node.extend(
        onnx.helper.make_node("Relu", ["x"], [f"y{index}"]) for index in range(LENGTH)
    )
    model = ir_of(proto)
    value = model.graph.values["x"]
    assert value.use_count == LENGTH
    for use in reversed(value.uses):
        value.remove_use(*use)
    assert value.use_count == 0


def model_with_bodies(count: int) -> Model:
    """Return *count* Ifs whose bodies capture the If before."""
    proto = parse("g (float[2] v0, bool c) => (y) { }")
    text = (
        "g (float[2] x, bool c) => (y) { y = If (c) <then_branch = t () => (p) { p = Neg (x) }> }"
    )
    template = parse(text).graph.node[0]
    for index in range(count):
        node = proto.graph.node.add()
        node.CopyFrom(template)
        node.output[0] = f"v{index + 1}"
        node.attribute[0].g.node[0].input[0] = f"v{index}"
    proto.graph.output[0].name = f"v{count}"
    return ir_of(proto)


@pytest.mark.long
def test_many_bodies() -> None:
    """Thousands of bodies load, verify and are written; captures keep their order."""
    model = model_with_bodies(3000)
    check_structure(model)
    assert len(list(model.graphs())) == 3001
    last = node_making(model, "v3000")
    assert [value.name for value in read_values(last)] == ["c", "v2999"]
    for graph in model.graphs():
        graph.modified = True
    assert len(to_proto(model).graph.node) == 3000
