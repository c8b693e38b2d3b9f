"""``prepare`` on real models, twice: what it made it leaves as it is."""

from pathlib import Path

import pytest

from dplcli import pipeline
from dplcli.settings import RewriteSettings
from tests.corpus.nets import LIGHT_NETS, light_net, listed_models, manifest
from tests.support.helpers import thinned

SMALL = 40_000
MODELS = {f"light_{name}": light_net(name) for name in LIGHT_NETS} | {
    name.removesuffix(".onnx"): path
    for name, path in listed_models().items()
    if manifest()[name]["size"] < SMALL
}
SETTINGS = RewriteSettings(verify=False)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", thinned(8, MODELS))
def test_a_second_run_of_prepare_changes_nothing(tmp_path: Path, name: str) -> None:
    """Not one more constant is folded, and the file keeps its bytes."""
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"

    pipeline.rewrite(MODELS[name], SETTINGS.but(output=once, patterns=["prepare"]))
    again = pipeline.rewrite(once, SETTINGS.but(output=twice, patterns=["prepare"]))

    assert again.applications == ()
    assert twice.read_bytes() == once.read_bytes()
