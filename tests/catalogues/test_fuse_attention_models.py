"""Attention in real exports: how many are found, and that onnxruntime computes the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort
import pytest

from dplcli import pipeline
from dplcli.onnx_io import load_model, to_proto
from dplcli.passes.rewrite import rewrite
from tests.corpus.nets import real_model
from tests.support.helpers import shipped_rewrites, thinned

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

pytestmark = pytest.mark.long

FOUND = {
    "bert-legacy13-eager": (12, 0),
    "bert-legacy17": (12, 0),
    "bert-dynamo18": (12, 0),
    "gpt2_past-legacy17": (4, 0),
    "llama-legacy17": (4, 8),
    "llama-dynamo18-noopt": (4, 8),
    "gptneox-legacy17": (6, 12),
    "modernbert-dynamo20": (4, 8),
    "gemma2-dynamo20": (4, 8),
    "t5_decoder-legacy17": (12, 0),
    "swin-legacy17": (8, 0),
    "sam_decoder-legacy17": (7, 0),
    "rtdetr-legacy17": (4, 0),
    "sd_vae_decoder-dynamo20": (1, 0),
    "vit-legacy17-half": (12, 0),
    "whisper_decoder-dynamo18": (8, 0),
}
"""By model, the numbers of attentions and of rotary embeddings; both are all there are."""

WITHOUT_KERNEL = {"gemma2-dynamo20": "capped scores, in heads of 4"}
"""Attentions that no operator of onnxruntime's own computes."""


@pytest.mark.parametrize("name", thinned(4, FOUND))
def test_the_standard_operators(name: str, tmp_path: Path) -> None:
    """All attentions of a model that was raised to opset 23 are found."""
    original = _raised(name, tmp_path)

    counts = _rewrite(original, tmp_path / "after.onnx", "fuse_attention")

    assert (counts["Attention"], counts["RotaryEmbedding"]) == FOUND[name]
    assert pipeline.verify(original, tmp_path / "after.onnx").equivalent


@pytest.mark.parametrize("name", thinned(4, FOUND, first=2))
def test_operators_of_onnxruntime(name: str, tmp_path: Path) -> None:
    """All attentions are found in the model as it is, too."""
    original = real_model(name)

    counts = _rewrite(original, tmp_path / "after.onnx", "fuse_ort_attention")

    kinds = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
    found = (
        sum(counts[f"com.microsoft.{kind}"] for kind in kinds),
        counts["com.microsoft.RotaryEmbedding"],
    )
    attentions, embeddings = FOUND[name]
    assert found == (0 if name in WITHOUT_KERNEL else attentions, embeddings)
    assert pipeline.verify(original, tmp_path / "after.onnx").equivalent


def test_routers_and_classes_are_no_attention(tmp_path: Path) -> None:
    """A softmax over experts or classes stays what it is."""
    original = _raised("mixtral-dynamo18", tmp_path)

    counts = _rewrite(original, tmp_path / "after.onnx", "fuse_attention")

    assert (counts["Attention"], counts["Softmax"]) == (2, 2)


HIDDEN = {"left": slice(3), "right": slice(-3, None), "all": slice(None)}
PADDED = ["bert-dynamo18", "gpt2-dynamo20", "llama-legacy17", "llama_deep-dynamo18"]


@pytest.mark.parametrize("name", thinned(4, PADDED))
@pytest.mark.parametrize("padding", HIDDEN)
def test_padding(name: str, padding: str, tmp_path: Path) -> None:
    """Tokens before the first real one see nothing, and get the same out of it as before."""
    original = _raised(name, tmp_path)
    _rewrite(original, tmp_path / "after.onnx", "fuse_attention")
    feeds = _tokens(original)
    feeds["attention_mask"][0, HIDDEN[padding]] = 0

    wanted, found = (_run(path, feeds) for path in (original, tmp_path / "after.onnx"))

    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


def _raised(name: str, folder: Path) -> Path:
    """Write a model with opset 23."""
    proto = onnx.load(real_model(name))
    raised = onnx.version_converter.convert_version(proto, 23)
    raised.ir_version = max(raised.ir_version, 10)
    path = folder / "before.onnx"
    onnx.save(raised, path)
    return path


def _rewrite(source: Path, target: Path, catalogue: str) -> Counter[str]:
    """Apply a catalogue; return what operators there are afterwards."""
    model = load_model(source)
    rewrite(model, shipped_rewrites(catalogue))
    target.write_bytes(to_proto(model).SerializeToString())
    return Counter(node.qualified_op for node in model.graph)


def _tokens(path: Path) -> dict[str, NDArray[Any]]:
    """Make two sequences of eight tokens."""
    rng = np.random.default_rng(0)
    proto = onnx.load(path, load_external_data=False)
    feeds: dict[str, NDArray[Any]] = {
        item.name: rng.integers(0, 20, (2, 8)) for item in proto.graph.input
    }
    for name in feeds:
        if name != "input_ids":
            feeds[name] = np.full((2, 8), int(name == "attention_mask"))
    return feeds


def _run(path: Path, feeds: dict[str, NDArray[Any]]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))
