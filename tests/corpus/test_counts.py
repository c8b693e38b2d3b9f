"""The counts that TVM's own partitioner gives, over the nets of the onnx package."""

from pathlib import Path

import onnx
import onnx.version_converter
import pytest

from dplcli import pipeline
from dplcli.settings import MatchSettings, PartitionSettings
from tests.corpus.nets import LIGHT_NETS, light_net

pytestmark = pytest.mark.long

RULES = """dpl: 1
target: tvm
constants: lift
patterns:
  - {name: conv_bias_relu, pattern: "Relu(Conv(x, w, b))"}
  - {name: conv_relu, pattern: "Relu(Conv(x, w))"}
  - {name: conv_bias, pattern: "Conv(x, w, b)"}
  - {name: conv, pattern: "Conv(x, w)"}
"""
# Conv with bias and Relu, with Relu, with bias, plain.
COUNTS = {
    "bvlc_alexnet": (5, 0, 0, 0),
    "densenet121": (0, 0, 1, 120),
    "inception_v1": (57, 0, 0, 0),
    "inception_v2": (0, 0, 0, 69),
    "resnet50": (0, 0, 0, 53),
    "shufflenet": (0, 0, 1, 48),
    "squeezenet": (26, 0, 0, 0),
    "vgg19": (16, 0, 0, 0),
    "zfnet512": (5, 0, 0, 0),
}
NO_VERIFY = PartitionSettings(verify=False)


def raised(name: str, folder: Path) -> Path:
    """Return a net of the onnx package raised to opset 13."""
    path = folder / f"{name}.onnx"
    model = onnx.version_converter.convert_version(onnx.load(light_net(name)), 13)
    onnx.save(model, path)
    return path


def test_every_net_has_its_counts() -> None:
    """The table covers the nine nets that the package has."""
    assert list(COUNTS) == LIGHT_NETS
    assert all(light_net(name).is_file() for name in COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_tvm(tmp_path: Path, name: str) -> None:
    """Four rules in order of priority find what TVM finds, and what is found is outlined."""
    rules, output = tmp_path / "tvm.yaml", tmp_path / "out.onnx"
    rules.write_text(RULES)
    path = raised(name, tmp_path)

    counts = pipeline.match(path, MatchSettings(patterns=[str(rules)])).counts
    outcome = pipeline.partition(path, NO_VERIFY.but(output=output, patterns=[str(rules)]))

    assert tuple(counts.values()) == COUNTS[name]
    assert outcome.counts == counts
    written = onnx.load(output)
    calls = [node for node in written.graph.node if node.domain == "tvm"]
    assert len(calls) == sum(COUNTS[name])
    assert len(written.functions) == sum(count > 0 for count in COUNTS[name])


BN = """dpl: 1
target: t
constants: lift
patterns:
  - name: conv_bn_relu
    pattern: Relu(BatchNormalization(Conv(x, w), scale, shift, mean, var))
"""


@pytest.mark.parametrize("raise_opset", [False, True], ids=["opset-9", "opset-13"])
def test_resnet50_has_33_normalised_convolutions_in_one_function(
    tmp_path: Path, *, raise_opset: bool
) -> None:
    """33 calls that differ in pads and strides share one function, which declares these."""
    (tmp_path / "bn.yaml").write_text(BN)
    path = raised("resnet50", tmp_path) if raise_opset else light_net("resnet50")
    output = tmp_path / "out.onnx"

    outcome = pipeline.partition(
        path, NO_VERIFY.but(output=output, patterns=[str(tmp_path / "bn.yaml")])
    )

    assert outcome.counts == {"t.conv_bn_relu": 33}
    written = onnx.load(output)
    (function,) = written.functions
    calls = [node for node in written.graph.node if node.op_type == function.name]
    assert (function.domain, function.name, len(calls)) == ("t", "conv_bn_relu", 33)
    assert all({a.name for a in call.attribute} == set(function.attribute) for call in calls)
    onnx.checker.check_model(written, full_check=True)


def test_the_shipped_catalogue_takes_residual_blocks_first(tmp_path: Path) -> None:
    """resnet50 with conv_relu: 16 blocks with a residual sum, and the other 33."""
    outcome = pipeline.partition(
        light_net("resnet50"), NO_VERIFY.but(output=tmp_path / "out.onnx", patterns=["conv_relu"])
    )

    assert {rule: count for rule, count in outcome.counts.items() if count} == {
        "dnnl.conv2d_bn_sum_relu": 16,
        "dnnl.conv2d_bn_relu": 33,
    }
    assert len(onnx.load(tmp_path / "out.onnx").functions) == 2
