"""The check of whole models sees what it is there to see."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import PartitionSettings
from tests.corpus.untouched import check_untouched

SAMPLE = Path(__file__).parents[2] / "sample_models" / "resnet18_bn.onnx"
Change = Callable[[onnx.ModelProto], object]


def _other(model: onnx.ModelProto) -> onnx.NodeProto:
    (node,) = [node for node in model.graph.node if node.op_type == "Gemm"]
    assert isinstance(node, onnx.NodeProto)
    return node


def _rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "renamed"


def _drop_a_node(model: onnx.ModelProto) -> None:
    model.graph.node.remove(_other(model))


def _change_a_weight(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = bytes(reversed(tensor.raw_data))


PLANTED: dict[str, Change] = {
    "input-renamed": _rename_input,
    "output-type": lambda model: model.graph.output[0].type.tensor_type.Clear(),
    "metadata-of-a-node": lambda model: _other(model).metadata_props.add(key="a", value="b"),
    "attribute-of-a-node": lambda model: _other(model).attribute[0].ClearField("f"),
    "node-renamed": lambda model: setattr(_other(model), "name", "renamed"),
    "node-gone": _drop_a_node,
    "weight-changed": _change_a_weight,
    "weight-gone": lambda model: model.graph.initializer.pop(),
    "producer": lambda model: setattr(model, "producer_name", "somebody"),
    "ir-version": lambda model: setattr(model, "ir_version", 10),
    "opset": lambda model: model.opset_import.add(domain="extra", version=1),
    "value-type": lambda model: model.graph.value_info.add(name="new"),
    "function-unmarked": lambda model: model.functions[0].ClearField("metadata_props"),
}


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a partitioned model, and how many nodes became part of functions."""
    output = tmp_path_factory.mktemp("untouched") / "out.onnx"
    outcome = pipeline.partition(
        SAMPLE, PartitionSettings(output=output, patterns=["conv_relu"], verify=False)
    )
    return output, sum(len(found.nodes) for found in outcome.selection.matches)


def test_a_partition_as_it_is_passes(partitioned: tuple[Path, int]) -> None:
    """The sample is left alone but for 59 nodes."""
    output, covered = partitioned

    assert covered == 59
    check_untouched(onnx.load(SAMPLE), onnx.load(output), covered)


@pytest.mark.parametrize("change", PLANTED.values(), ids=PLANTED)
def test_a_planted_change_is_seen(partitioned: tuple[Path, int], change: Change) -> None:
    """One change outside the partitions, of any kind, fails the check."""
    output, covered = partitioned
    after = onnx.load(output)
    change(after)

    with pytest.raises(AssertionError):
        check_untouched(onnx.load(SAMPLE), after, covered)
