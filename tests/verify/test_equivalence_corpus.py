"""Real models: inputs are found without help, and a model equals itself."""

import pytest

from dplcli.errors import VerificationError
from dplcli.verify import Check
from dplcli.verify.equivalence import verify_equivalence
from tests.corpus.nets import manifest, real_model
from tests.support.helpers import thinned
from tests.support.processor import channels_in_a_block

BLOCKS_OF_16 = "yolo_csp-legacy17-nchwc.onnx"
"""onnxruntime optimised it on a processor with AVX-512: elsewhere it does not run."""

# Sessions take minutes, or runs take seconds.
SLOW = ("gru_unrolled", "vgg19", "zfnet512", "winml_candy", "alexnet", "sd_unet")

pytestmark = pytest.mark.long


def names(*, runnable: bool) -> list[str]:
    """Return the models at hand that onnxruntime is known to run, or known to refuse."""
    return [
        name
        for name, entry in manifest().items()
        if (entry["checks"]["onnxruntime_cpu"] == "ok") == runnable
        and not any(slow in name for slow in SLOW)
        and (name != BLOCKS_OF_16 or channels_in_a_block() == 16)
    ]


@pytest.mark.parametrize("name", thinned(12, names(runnable=True)))
def test_real_model_runs_on_made_up_inputs_and_equals_itself(name: str) -> None:
    """No flag, no hint: sizes and values are found, and nothing differs."""
    path = real_model(name)

    result = verify_equivalence(path, path, Check(levels=("disable",)))

    assert result.equivalent
    assert all(output.max_abs in {0, None} for output in result.outputs)


@pytest.mark.skipif(channels_in_a_block() == 16, reason="this processor is the right one")
def test_model_made_for_another_processor_is_said_to_be_that() -> None:
    """No size and no value would help, so none is asked for."""
    path = real_model(BLOCKS_OF_16)

    with pytest.raises(VerificationError, match="no inputs were found") as caught:
        verify_equivalence(path, path, Check(levels=("disable",)))
    assert "processors like the one" in (caught.value.hint or "")


@pytest.mark.parametrize("name", names(runnable=False))
def test_model_that_onnxruntime_refuses_is_reported_in_one_line(name: str) -> None:
    """A sentence without codes or C++ paths: no verdict, or which node was left out."""
    path = real_model(name)
    try:
        result = verify_equivalence(path, path)
    except VerificationError as error:
        said = error.message
        assert "onnxruntime does not run the original model" in said
    else:
        said = result.warnings[0]
        assert result.verdict == "equivalent"
        assert said.startswith("onnxruntime does not run ")
    assert "\n" not in said
    assert "ONNXRuntimeError" not in said
    assert ".cc:" not in said


def test_what_the_optimiser_changes_is_not_blamed_on_the_candidate() -> None:
    """A quantised net moves with the level; held against the original at that level it passes."""
    path = real_model("mobilenetv2-legacy13-qdq-perchannel")

    result = verify_equivalence(path, path)

    assert result.equivalent
    assert [output.baseline for output in result.outputs] == ["disable", "all"]
