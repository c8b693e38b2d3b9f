"""Real models: under other names, with one edit, and as others have optimised them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnxruntime as ort
import pytest

from tests.corpus.nets import each_model, real_model
from tests.diff.compared import difference, words
from tests.support.helpers import model_from_bytes

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "cond_net-dynamo18.onnx",
    "gru-legacy17.onnx",
    "greedy_loop-legacy17.onnx",
    "llama_past-dynamo23.onnx",
    "modernbert-dynamo20.onnx",
    "moe_block-legacy17.onnx",
    "scan_net-dynamo18.onnx",
    "torch_transformer-legacy17-fn.onnx",
]


def rename(graph: onnx.GraphProto, kept: set[str], outer: dict[str, str]) -> None:
    """Rename every node and inner value of *graph*, and of the bodies inside it, in place."""
    names = dict(outer)
    made = [tensor.name for tensor in graph.initializer]
    made += [name for node in graph.node for name in node.output if name]
    names |= {name: f"{len(made) - k}{name[::-1]}" for k, name in enumerate(made)}
    names |= {name: name for name in kept}
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    del graph.value_info[:]
    for node in graph.node:
        node.name = ""
        for names_of in (node.input, node.output):
            names_of[:] = [names.get(name, name) for name in names_of]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, set(), names)
    for output in graph.output:
        output.name = names.get(output.name, output.name)


def other_names(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which only inputs and outputs are called as before."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    kept = {value.name for value in (*copy.graph.input, *copy.graph.output)}
    rename(copy.graph, kept, {})
    return copy


@pytest.mark.parametrize("name", each_model(NAMES, gate=3))
def test_other_names(name: str) -> None:
    """No name but those of inputs and outputs matters."""
    proto = onnx.load(real_model(name))
    found = difference(
        model_from_bytes(proto.SerializeToString()),
        model_from_bytes(other_names(proto).SerializeToString()),
    )
    assert words(found) == []
    assert any(remark.facet == "names" for remark in found.all_remarks)


@pytest.mark.parametrize("name", ["llama_past-dynamo23.onnx", "modernbert-dynamo20.onnx"])
def test_one_edit_in_the_middle(name: str) -> None:
    """A node more in the middle of a real net is one node and one wire, whatever the names."""
    proto = onnx.load(real_model(name))
    edited = other_names(proto)
    middle = len(edited.graph.node) // 2
    place = next(
        k for k, node in enumerate(edited.graph.node) if k >= middle and node.op_type == "MatMul"
    )
    node = edited.graph.node[place]
    edited.graph.node.insert(place, onnx.helper.make_node("Elu", [node.input[0]], ["fresh"]))
    edited.graph.node[place + 1].input[0] = "fresh"
    found = difference(
        model_from_bytes(proto.SerializeToString()), model_from_bytes(edited.SerializeToString())
    )
    main = found.graphs[0]
    assert [node.op_type for node in main.added] == ["Elu"]
    assert not main.removed
    assert [(c.before.op_type, len(c.inputs)) for c in main.changes] == [("MatMul", 1)]
    assert found.count == 2


@pytest.mark.parametrize(
    ("name", "least"), [("onnx_light_squeezenet.onnx", 65), ("moe_block-legacy17.onnx", 250)]
)
def test_what_onnxruntime_has_optimised(name: str, least: int, tmp_path: Path) -> None:
    """Most nodes of an optimised model are found again, and every node is accounted for."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(real_model(name)), options, providers=["CPUExecutionProvider"])
    first, second = (path.read_bytes() for path in (real_model(name), tmp_path / "optimised.onnx"))
    there = difference(model_from_bytes(first), model_from_bytes(second)).graphs[0]
    back = difference(model_from_bytes(second), model_from_bytes(first)).graphs[0]
    assert there.paired == back.paired >= least
    assert (len(there.added), len(there.removed)) == (len(back.removed), len(back.added))


@pytest.mark.parametrize(
    ("first", "second", "least"),
    [
        pytest.param(
            *("resnet18-legacy13.onnx", "resnet18-dynamo18.onnx", 48), marks=pytest.mark.long
        ),
        ("bert-legacy17.onnx", "bert-dynamo18.onnx", 420),
    ],
)
def test_the_same_net_by_two_exporters(first: str, second: str, least: int) -> None:
    """Without one name or weight in common, the layers of the one are those of the other."""
    one, other = ((real_model(name)).read_bytes() for name in (first, second))
    found = difference(model_from_bytes(one), model_from_bytes(other)).graphs[0]
    assert found.paired >= least
