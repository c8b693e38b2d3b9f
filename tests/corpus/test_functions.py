"""Models whose modules torch has exported as functions: what is inside is found as anywhere."""

from collections import Counter
from pathlib import Path

import pytest

from dplcli import pipeline
from dplcli.settings import InlineSettings, PartitionSettings
from tests.corpus.nets import real_model
from tests.support.helpers import thinned

pytestmark = pytest.mark.long

# BasicBlock is called four times with channels and sizes of its own, BasicBlock.1 as well: that
# the shortcut has the shape of what is added to it holds at every call, though no number does.
FOUND = {
    ("resnet18-legacy16-fn.onnx", "dnnl"): {
        "conv2d_bias_sum_relu": 2,
        "conv2d_bias_relu": 3,
        "conv2d_bias": 1,
        "dense_bias": 1,
        "global_avg_pool2d": 1,
    },
    ("torch_transformer-legacy17-fn.onnx", "dnnl"): {
        "dense_bias": 5,
        "layer_norm": 1,
        "batch_matmul": 4,
    },
    ("torch_transformer-legacy17-fn.onnx", "cublas"): {
        "matmul_transposed_bias": 2,
        "matmul_bias": 2,
        "matmul": 4,
    },
    ("torch_transformer-legacy17-fn.onnx", "cutlass"): {
        "layer_norm": 1,
        "matmul_transposed_bias": 2,
        "matmul_bias": 2,
        "matmul": 4,
    },
}


@pytest.mark.parametrize(
    ("name", "target", "constants"),
    thinned(3, [(*key, constants) for key in FOUND for constants in ("lift", "embed")]),
)
def test_functions_of_torch(name: str, target: str, constants: str, tmp_path: Path) -> None:
    """Found, equivalent, final, and undone."""
    once, twice, undone = tmp_path / "1.onnx", tmp_path / "2.onnx", tmp_path / "3.onnx"
    outcome = pipeline.partition(
        real_model(name), PartitionSettings(output=once, target=[target], constants=constants)
    )
    assert Counter(found.rule.name for found in outcome.selection.matches) == FOUND[name, target]
    assert outcome.ok
    again = pipeline.partition(
        once, PartitionSettings(output=twice, target=[target], constants=constants)
    )
    assert not again.is_changed
    assert twice.read_bytes() == once.read_bytes()
    pipeline.inline(once, InlineSettings(output=undone))
    assert pipeline.diff(real_model(name), undone).difference.is_equal
