"""The whole models that the onnx package ships: inputs are made up, and its own data are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli.errors import VerificationError
from dplcli.verify import Check
from dplcli.verify.check import InputRequest
from dplcli.verify.equivalence import verify_equivalence
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = ("simple", "pytorch-operator", "pytorch-converted")
SMALL = sorted(path for folder in FOLDERS for path in (DATA / folder).glob("*/model.onnx"))
WITH_DATA = [path for path in SMALL if (path.parent / "test_data_set_0").is_dir()]


def dealt(paths: list[Path]) -> list[ParameterSet]:
    """Return a parameter for each model: one in sixteen, and the rest is exhaustive."""
    return thinned(16, paths, name=lambda path: path.parent.name)


def equivalent(path: Path, request: InputRequest) -> bool:
    """Tell whether a model equals itself on what is asked for; skip what onnxruntime refuses."""
    try:
        result = verify_equivalence(path, path, Check(request=request))
    except VerificationError as error:
        if "does not run the original model" not in error.message:
            raise
        pytest.skip(error.message)
    return result.equivalent


def test_the_package_ships_what_is_tested_here() -> None:
    """Were the folders renamed, the tests below would test nothing."""
    assert len(SMALL) > 100
    assert len(WITH_DATA) > 100


@pytest.mark.parametrize("path", dealt(SMALL))
def test_shipped_model_runs_on_made_up_inputs(path: Path) -> None:
    """No flag is needed, and nothing differs."""
    assert equivalent(path, InputRequest())


@pytest.mark.parametrize("path", dealt(WITH_DATA))
def test_shipped_test_data_are_read(path: Path) -> None:
    """Every input_0.pb of the package fits its model: tensors, sequences, scalars and words."""
    assert equivalent(path, InputRequest(given=path.parent))
