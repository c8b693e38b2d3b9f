"""The nets of the onnx package, whole: partitioned for dnnl and compared with real weights."""

from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import PartitionSettings
from tests.corpus.nets import LIGHT_NETS, UNFILLED, light_net
from tests.corpus.untouched import check_untouched
from tests.helpers import thinned

pytestmark = pytest.mark.long

REFILLED = PartitionSettings(level=("disable", "all"), refill_weights=True, seed=0)


@pytest.mark.parametrize("name", thinned(3, LIGHT_NETS, first=1))
def test_partition_for_dnnl_is_valid_equivalent_and_final(tmp_path: Path, name: str) -> None:
    """Refilled weights, so that the verdict means something; a second run changes nothing."""
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    settings = REFILLED.but(verify=name not in UNFILLED)

    outcome = pipeline.partition(light_net(name), settings.but(output=once, target=["dnnl"]))

    assert outcome.is_success
    if name not in UNFILLED:
        assert outcome.verification is not None
        assert outcome.verification.proof is not None
        assert outcome.verification.blind_outputs == ()
        assert outcome.verification.refilled > 0
        assert [output.level for output in outcome.verification.outputs] == ["disable", "all"]
    written = onnx.load(once)
    onnx.checker.check_model(written, full_check=True)
    covered = sum(len(found.nodes) for found in outcome.selection.matches)
    assert covered > 0
    check_untouched(onnx.load(light_net(name)), written, covered)
    assert not pipeline.partition(once, PartitionSettings(output=twice, target=["dnnl"])).is_changed
    assert twice.read_bytes() == once.read_bytes()
