"""Repeated blocks of real models: as many as the architecture has layers, and nothing broken."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import load_model, to_proto
from dplcli.passes.repeat import outline_repeats
from dplcli.settings import RepeatingSettings, RepeatSettings
from tests.corpus.nets import each_model, light_net, real_model
from tests.support.helpers import model_from_bytes

if TYPE_CHECKING:
    from pathlib import Path

NO_VERIFY = RepeatingSettings(verify=False)
LAYERS = {
    "bert-legacy17": [("encoder_layer", 12)],
    "bert-dynamo18": [("encoder_layer", 12)],
    "bert-dynamo23": [("encoder_layer", 12)],
    "bert-legacy13-eager": [("encoder_layer", 12)],
    "vit-legacy13-eager": [("vit_layers", 12)],
    "vit-dynamo23": [("vit_layers", 12)],
    "gpt2-dynamo20": [("transformer_h", 12)],
    "gpt2_past-legacy17": [("transformer_h", 4)],
    "distilbert-dynamo18": [("transformer_layer", 6)],
    "llama_deep-dynamo18": [("model_layers", 22)],
    "qwen3-dynamo23": [("model_layers", 4)],
    "deit-dynamo18": [("deit_layers", 6)],
    "convnext-legacy17": [("stages_layers", 18)],
    "resnet50-legacy17": [("layer", 16)],
    "regnet-legacy13": [("stages_layers", 15)],
    "bart-legacy17": [("decoder_layers", 4), ("encoder_layers", 4)],
    "clip-legacy17": [("text_model_encoder_layers", 12), ("vision_model_encoder_layers", 12)],
    "dit-dynamo18": [("single_transformer_blocks", 6), ("transformer_blocks", 3)],
}
"""The first kinds of blocks of each model, and how many layers its architecture has."""


@pytest.mark.parametrize("name", each_model(LAYERS, gate=3))
def test_there_is_one_function_per_kind_of_layer(tmp_path: Path, name: str) -> None:
    """Whole layers, each a call of one function; a second run changes nothing."""
    model = load_model(real_model(name))
    nodes = model.graph.node_count

    result = outline_repeats(model, RepeatSettings())

    wanted = LAYERS[name]
    found = [(family.function.name, len(family.partitions)) for family in result.families]
    assert found[: len(wanted)] == wanted
    covered = sum(len(f.partitions) * f.size for f in result.families[: len(wanted)])
    assert covered >= 0.7 * nodes
    check_structure(model)
    written = to_proto(model)
    onnx.save(written, tmp_path / "out.onnx")
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
    again = model_from_bytes(written.SerializeToString())
    assert outline_repeats(again, RepeatSettings()).families == []
    assert to_proto(again) == written


def test_the_layers_of_a_stack_are_in_one_row() -> None:
    """Each layer of a transformer reads what the one before it makes."""
    model = load_model(real_model("gpt2_past-legacy17"))
    (family,) = outline_repeats(model, RepeatSettings()).families
    calls = [partition.call for partition in family.partitions]
    for earlier, later in pairwise(calls):
        assert earlier.outputs[0] in later.inputs


@pytest.mark.parametrize(
    ("net", "kinds"),
    [("resnet50", [13, 3, 4]), ("squeezenet", [8]), ("inception_v1", [9]), ("shufflenet", [16])],
)
def test_nets_of_the_onnx_package(tmp_path: Path, net: str, kinds: list[int]) -> None:
    """Bottlenecks, of which the first three have weights of another make; fires; modules; units."""
    outcome = pipeline.repeat(light_net(net), NO_VERIFY.but(output=tmp_path / "out.onnx"))
    assert [len(family.partitions) for family in outcome.families] == kinds
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)


@pytest.mark.parametrize("name", each_model(["resnet50-legacy17", "qwen3-dynamo23", "silero_vad"]))
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_onnxruntime_computes_the_same(tmp_path: Path, name: str, *, nested: bool) -> None:
    """Verified at both levels: attributes that differ, wide blocks, bodies of If nodes."""
    outcome = pipeline.repeat(
        real_model(name), RepeatingSettings(output=tmp_path / "out.onnx", nested=nested)
    )
    assert outcome.verification is not None
    assert outcome.ok
    assert outcome.families
    assert outcome.nodes[1] < outcome.nodes[0] or name == "silero_vad"
