"""Plans on real models: what was rewritten is done again, byte for byte."""

from pathlib import Path

import pytest

from dplcli import pipeline
from dplcli.settings import ApplySettings, RewriteSettings
from tests.corpus.nets import real_model
from tests.support.helpers import rewriting_catalogues, thinned

pytestmark = pytest.mark.long

# One of each family: attention, windows, recurrent, loops and branches, quantised, large, dynamic.
NAMES = [
    *("bert-legacy17", "swin-legacy17", "gru-legacy17", "greedy_loop-legacy17", "silero_vad"),
    *("cond_net-dynamo18", "distilbert-dynamo18-qdq-static", "deberta-legacy17"),
    *("faster_rcnn-legacy13", "basic_pitch_nmp", "llama-legacy17", "densenet-legacy13"),
]
# fuse_ort_quantized goes the way that qoperator_to_qdq goes back
CATALOGUES = [name for name in rewriting_catalogues() if name != "qoperator_to_qdq"]


STATED = pytest.mark.xfail(
    reason="whether an output of a body has a type depends on what asked for it before"
)


@pytest.mark.parametrize("name", thinned(3, NAMES))
def test_an_unedited_plan_gives_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """All that dpl ships, whatever its functions remember."""
    if name == "silero_vad":
        request.applymarker(STATED)
    model, plan = real_model(name), tmp_path / "plan.yaml"
    settings = RewriteSettings(verify=False, max_growth=100, plan=plan)

    done = pipeline.rewrite(model, settings.but(output=tmp_path / "a.onnx", patterns=CATALOGUES))
    again = pipeline.apply_plan(
        plan, model, ApplySettings(output=tmp_path / "b.onnx", verify=False, max_growth=100)
    )

    assert again.missing == ()
    assert again.counts == done.counts
    assert again.rounds == done.rounds
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()
