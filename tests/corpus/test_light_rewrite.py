"""The nets of the onnx package, whole: rewritten and compared with real weights; what they grow."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import RewriteSettings
from tests.corpus.nets import LIGHT_NETS, UNFILLED, filled_net, light_net
from tests.support.helpers import thinned

pytestmark = pytest.mark.long

CATALOGUES = ("prepare", "fuse", "fuse_ort")
UNCHANGED = {"resnet50", "shufflenet"}
UNVERIFIED = RewriteSettings(verify=False)
MOST_GROWTH = 0.05
# Nothing but nodes: the files are so small that the five fusions of zfnet512 take 5.4 %.
MOST_GROWTH_OF_NODES = 0.055
BYTES_SAID = 70
TAG = 2  # bytes before an entry in a file
FILLED = RewriteSettings(seed=0)


@pytest.mark.parametrize("name", thinned(4, LIGHT_NETS, first=1))
def test_rewritten_nets_are_valid_and_equivalent(tmp_path: Path, name: str) -> None:
    """All that dpl ships, together: as the net is, and with weights that mean something."""
    net, output, checked = light_net(name), tmp_path / "out.onnx", tmp_path / "checked.onnx"

    outcome = pipeline.rewrite(net, UNVERIFIED.but(output=output, patterns=CATALOGUES))

    assert outcome.ok
    assert outcome.is_changed == (name not in UNCHANGED)
    if outcome.is_changed:
        onnx.checker.check_model(onnx.load(output), full_check=True)
        check_growth(net, output, len(outcome.applications))
    else:
        assert output.read_bytes() == net.read_bytes()
    if name in UNFILLED:
        return
    filled = filled_net(name, tmp_path)
    outcome = pipeline.rewrite(filled, FILLED.but(output=checked, patterns=CATALOGUES))
    assert outcome.ok
    if outcome.is_changed:
        onnx.checker.check_model(onnx.load(checked), full_check=True)
        result = outcome.verification
        assert result is not None
        assert result.equivalent
        assert result.blind_outputs == ()
        assert [item.level for item in result.outputs] == ["disable", "all"]


@pytest.mark.parametrize("name", thinned(4, LIGHT_NETS, first=2))
def test_preparing_makes_no_net_larger_than_it_may_be(tmp_path: Path, name: str) -> None:
    """The weights that were left out of the file are not put into it."""
    net, output = light_net(name), tmp_path / "out.onnx"
    patterns = CATALOGUES[:2]

    pipeline.rewrite(net, UNVERIFIED.but(output=output, patterns=patterns))

    assert output.stat().st_size <= (1 + MOST_GROWTH) * net.stat().st_size
    made = Counter(node.op_type for node in onnx.load(output).graph.node)
    had = Counter(node.op_type for node in onnx.load(net).graph.node)
    assert made["ConstantOfShape"] == had["ConstantOfShape"]


def check_growth(net: Path, output: Path, applications: int) -> None:
    """Check what a fusion adds where the weights, which are most of a model, are left out.

    A FusedConv in the place of a Conv and its Relu has a domain and an attribute more, and says
    which rule made it from what.
    """
    model = onnx.load(output)
    said = 0
    for node in model.graph.node:
        said += sum(entry.ByteSize() + TAG for entry in node.metadata_props)
        del node.metadata_props[:]
    assert said <= BYTES_SAID * applications
    assert model.ByteSize() <= (1 + MOST_GROWTH_OF_NODES) * net.stat().st_size
