"""``prepare`` on real models, twice: what it made it leaves as it is."""

from pathlib import Path

import pytest

from dplcli import pipeline
from tests.corpus.nets import LIGHT_NETS, light_net, manifest, real_model

SMALL = 40_000
MODELS = [real_model(name) for name, facts in manifest().items() if facts["size"] < SMALL]
SETTINGS = pipeline.RewriteSettings(verify=False)

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "model", [*map(light_net, LIGHT_NETS), *MODELS], ids=lambda model: model.stem
)
def test_a_second_run_of_prepare_changes_nothing(tmp_path: Path, model: Path) -> None:
    """Not one more constant is folded, and the file keeps its bytes."""
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"

    pipeline.rewrite(model, output=once, patterns=["prepare"], settings=SETTINGS)
    again = pipeline.rewrite(once, output=twice, patterns=["prepare"], settings=SETTINGS)

    assert again.applications == ()
    assert twice.read_bytes() == once.read_bytes()
