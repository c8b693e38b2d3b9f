"""What the tests of raising share."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from dplcli.errors import OpsetError
from dplcli.onnx_io import RaisedOpset, model_from_proto
from dplcli.onnx_io.opset import raise_opset as raise_with_types
from tests.support.helpers import check_sound


def parsed(text: str) -> onnx.ModelProto:
    """Parse ONNX text."""
    model: onnx.ModelProto = onnx.parser.parse_model(text)
    return model


def raise_opset(proto: onnx.ModelProto, version: int, label: str = "the model") -> RaisedOpset:
    """Raise a model, which is read for the types of its values."""
    return raise_with_types(
        proto, version, lambda: model_from_proto(proto, Path(), label).graph, label
    )


def check_raised(text: str, version: int, *, adapted: int) -> onnx.ModelProto:
    """Raise a model, and check that it is valid, computes the same and says what it is.

    Args:
        text: The model, which onnx.checker accepts.
        version: The opset to raise it to.
        adapted: How many nodes change.
    """
    before, after = parsed(text), parsed(text)
    onnx.checker.check_model(before, full_check=True)
    result = raise_opset(after, version)
    assert len(result.adapted) == adapted
    assert [item.version for item in after.opset_import if not item.domain] == [version]
    check_sound(before, after)
    return after


def check_refused(model: onnx.ModelProto | str, version: int, reason: str, hint: str) -> None:
    """Check that a model is refused, says why and what to do, and stays as it was."""
    proto = parsed(model) if isinstance(model, str) else model
    before = proto.SerializeToString(deterministic=True)
    with pytest.raises(OpsetError, match=reason) as caught:
        raise_opset(proto, version, "m.onnx")
    assert caught.value.message.startswith("m.onnx: ")
    assert hint == (caught.value.hint or "")
    assert proto.SerializeToString(deterministic=True) == before
