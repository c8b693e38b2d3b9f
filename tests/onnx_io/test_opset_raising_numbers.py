"""A raised node computes what it did, in onnxruntime and, where it is right, in onnx's evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dplcli.onnx_io import raise_opset
from tests.helpers import run_model
from tests.onnx_io.one_node import OneNode, cases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = dict[str, NDArray[np.generic]]

NEWEST_RUN = 26
"""The newest opset that onnxruntime 1.31 runs."""

WITHOUT_KERNEL = {"GlobalLpPool": 22, "RoiAlign": 22}
"""Operators and the opset from which on onnxruntime 1.31 does not implement them."""

CASES = cases()


def targets(case: OneNode) -> list[int]:
    """Return the versions of the operator's schema, and some in between."""
    found = {13, 18, 21, NEWEST_RUN} | {case.opset + 1}
    return sorted(version for version in found if case.opset < version <= NEWEST_RUN)


def check_equal(found: Outputs, wanted: Outputs, what: str) -> None:
    """Compare outputs, types included."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, what
        tolerance = 1e-2 if array.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            found[name], array, rtol=tolerance, atol=tolerance, err_msg=f"{name} at {what}"
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_computes_the_same_at_every_opset(case: OneNode) -> None:
    """Raised to each opset, the model is valid and computes the same, optimised or not."""
    before = case.model()
    wanted = run_model(before, case.feeds(), optimise=False)
    for version in targets(case):
        after = onnx.ModelProto()
        after.CopyFrom(before)
        raise_opset(after, version)
        onnx.checker.check_model(after, full_check=True)
        if version >= WITHOUT_KERNEL.get(case.op_type, NEWEST_RUN + 1):
            continue
        for optimise in (False, True):
            found = run_model(after, case.feeds(), optimise=optimise)
            check_equal(found, wanted, f"opset {version}")
