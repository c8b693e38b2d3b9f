"""Some real models, raised: valid as before, the same numbers, and refused only for a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.errors import OpsetError, UsageError
from dplcli.onnx_io import check_model, load_model, staged
from dplcli.pipeline import verify
from tests.corpus.nets import each_model, manifest, real_model
from tests.support.helpers import strides, with_long

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = [
    "faster_rcnn-legacy13.onnx",  # bodies, RoiAlign, dynamic shapes
    "gtcrn.onnx",  # 165 nodes to adapt
    "onnx_light_squeezenet.onnx",  # opset 9, IR 3, an unread output that changed
    "resnet18-legacy16-fn.onnx",  # functions
    "silero_vad.onnx",  # nested bodies
    "tract_lgbm_classifier.onnx",  # other domains
    "tract_qtdnn.onnx",  # quantised, of opset 10
    "trt_loop.onnx",
    "yunet_n_dynamic.onnx",
]
NOT_RUN = {
    # It has no kernel.
    ("faster_rcnn-legacy13.onnx", 26): "Could not find an implementation for RoiAlign(22)",
    # Its optimiser makes a node that it then refuses itself; unoptimised the model runs.
    ("tract_qtdnn.onnx", 21): "output_dtype INT8 does not match y_zero_point type UINT8",
    ("tract_qtdnn.onnx", 26): "output_dtype INT8 does not match y_zero_point type UINT8",
}
"""What onnxruntime 1.31 does not run, and what it says: the verdict is no."""

REFUSED = {
    "ort_upsample.onnx": "'tf_half_pixel_for_nn' was taken out in opset 13",
    "trt_nested_local_function.onnx": "Fake_2 is no operator of the standard",
    "vespa_mnist_softmax.onnx": "Add changed in opset 6",
    "winml_candy.onnx": "ImageScaler is no operator of the standard",
}


@pytest.mark.parametrize("version", with_long({str(v): (v,) for v in (18, 21, 26)}, {"18", "26"}))
@pytest.mark.parametrize("name", each_model(SAMPLE, gate=4))
def test_a_raised_model_computes_the_same(tmp_path: Path, name: str, version: int) -> None:
    """onnx.checker accepts it if it accepts the original, and onnxruntime sees no difference."""
    raised = tmp_path / name
    with staged(load_model(real_model(name), opset=version), raised) as written:
        written.commit()
    assert load_model(raised).opset_imports[""] == version
    assert not check_model(raised) or check_model(real_model(name))
    result = verify(real_model(name), raised)
    if (name, version) in NOT_RUN:
        assert NOT_RUN[name, version] in result.reasons[0]
    else:
        assert result.equivalent


@pytest.mark.parametrize("name", each_model(sorted(REFUSED)))
def test_refused_models_say_why(name: str) -> None:
    """The reason is a sentence about one node."""
    with pytest.raises(OpsetError, match=REFUSED[name]):
        load_model(real_model(name), opset=18)


@pytest.mark.long
@pytest.mark.parametrize("stride", strides(3))
def test_all_others_are_raised_or_newer(stride: int) -> None:
    """No other model is refused, whatever the opset; none is loaded that cannot be."""
    for name in [*manifest()][::stride]:
        for version in (18, 28):
            try:
                model = load_model(real_model(name), opset=version)
            except UsageError as error:
                assert "cannot be lowered" in error.message  # noqa: PT017
            except OpsetError:
                assert name in REFUSED
            else:
                assert model.opset_imports[""] == version
