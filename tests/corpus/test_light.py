"""The nets of the onnx package, whole: partitioned for dnnl and compared with real weights."""

from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import PartitionSettings
from tests.corpus.nets import LIGHT_NETS, UNFILLED, filled_net, light_net
from tests.corpus.untouched import check_untouched
from tests.support.helpers import thinned

pytestmark = pytest.mark.long

FILLED = PartitionSettings(level=("disable", "all"), seed=0)


@pytest.mark.parametrize("name", thinned(3, LIGHT_NETS, first=1))
def test_partition_for_dnnl_is_valid_equivalent_and_final(tmp_path: Path, name: str) -> None:
    """With weights that mean something; a second run changes nothing."""
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    net = light_net(name) if name in UNFILLED else filled_net(name, tmp_path)
    settings = FILLED.but(verify=name not in UNFILLED, output=once, target=["dnnl"])

    outcome = pipeline.partition(net, settings)

    assert outcome.ok
    if name not in UNFILLED:
        assert outcome.verification is not None
        assert outcome.verification.proof is not None
        assert outcome.verification.blind_outputs == ()
        assert [output.level for output in outcome.verification.outputs] == ["disable", "all"]
    written = onnx.load(once)
    onnx.checker.check_model(written, full_check=True)
    covered = sum(len(found.nodes) for found in outcome.selection.matches)
    assert covered > 0
    check_untouched(onnx.load(net), written, covered)
    assert not pipeline.partition(once, PartitionSettings(output=twice, target=["dnnl"])).is_changed
    assert twice.read_bytes() == once.read_bytes()
