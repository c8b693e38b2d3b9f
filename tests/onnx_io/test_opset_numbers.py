"""A raised node computes what it did: onnxruntime judges, onnx's evaluator has a say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dplcli.errors import OpsetError
from tests.onnx_io.one_node import OneNode, cases
from tests.onnx_io.raised import raise_opset
from tests.support.helpers import run_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEWEST_RUN = 26
"""The newest opset that onnxruntime 1.31 runs."""

WITHOUT_KERNEL = {"GlobalLpPool": 22, "RoiAlign": 22}
"""Operators and the opset from which on onnxruntime 1.31 does not implement them."""

INVALID_BEFORE = {"average-pool", "group", "group-half", "group-per-channel", "max-pool"}
"""Cases that onnx.checker objects to as they are: it holds GroupNormalization 18 for deprecated,
and counts pooling windows that begin in the padding."""

EVALUATOR_DIFFERS = {
    "global-lp",  # not implemented
    "pad-2",  # refuses negative widths
    "resize-12-cubic-align_corners-scales",  # rounds scaled sizes in another place
    "resize-12-linear-align_corners-scales",
    "resize-12-nearest-half_pixel-scales",
    "resize-12-nearest-pytorch_half_pixel-scales",
    "transposed-shape",  # does not run
}
"""Cases in which onnx's evaluator disagrees with onnxruntime whatever the opset."""

CASES = cases()


def targets(case: OneNode) -> list[int]:
    """Return the opsets to raise a case to."""
    found = {case.opset + 1, 13, 18, 21, NEWEST_RUN}
    if case.name.endswith("-empty"):
        found.discard(13)
    return sorted(version for version in found if case.opset < version <= NEWEST_RUN)


def raised(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Return a copy at another opset."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    raise_opset(copy, version)
    return copy


def is_valid(model: onnx.ModelProto) -> bool:
    """Tell whether onnx.checker accepts a model, types included."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def check_equal(found: NDArray[Any], wanted: NDArray[Any], what: str) -> None:
    """Compare one output, its type included."""
    assert found.dtype == wanted.dtype, what
    tolerance = 1e-2 if wanted.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_computes_the_same_at_every_opset(case: OneNode) -> None:
    """Raised to each opset, the model is valid if it was and computes the same."""
    before = case.model()
    assert is_valid(before) == (case.name not in INVALID_BEFORE)
    wanted = run_model(before, case.feeds(), optimise=False)
    assert targets(case)
    for version in targets(case):
        after = raised(before, version)
        assert is_valid(after) or not is_valid(before), version
        if version >= WITHOUT_KERNEL.get(case.op_type, NEWEST_RUN + 1):
            continue
        for optimise in (False, True):
            found = run_model(after, case.feeds(), optimise=optimise)
            assert found.keys() == wanted.keys()
            for name, array in wanted.items():
                check_equal(found[name], array, f"{name} at opset {version}")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in EVALUATOR_DIFFERS],
    ids=lambda case: case.name,
)
def test_agrees_with_the_evaluator(case: OneNode) -> None:
    """What the newest schema says of the raised node is what onnxruntime computed before."""
    before = case.model()
    wanted = run_model(before, case.feeds(), optimise=False)
    evaluated = ReferenceEvaluator(raised(before, NEWEST_RUN)).run(None, case.feeds())
    for array, (name, expected) in zip(evaluated, wanted.items(), strict=True):
        found = np.asarray(array)
        tolerance = 1e-2 if expected.dtype == np.float16 else 1e-4
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_needs_no_shapes_or_says_so(case: OneNode) -> None:
    """Without the inputs' shapes the result is the same, or the model is refused."""
    before = case.model(shapes=False)
    wanted = run_model(before, case.feeds(), optimise=False)
    if case.op_type == "GroupNormalization":
        with pytest.raises(OpsetError, match="are not known"):
            raised(before, 21)
        return
    version = 18 if case.opset < 18 else NEWEST_RUN
    found = run_model(raised(before, version), case.feeds(), optimise=False)
    for name, array in wanted.items():
        check_equal(found[name], array, name)


def test_goes_step_by_step_as_in_one() -> None:
    """Raising one opset at a time gives the numbers that raising at once gives."""
    for case in CASES[::7]:
        before = case.model()
        model = before
        last = WITHOUT_KERNEL.get(case.op_type, NEWEST_RUN + 1) - 1
        for version in range(case.opset, last + 1):
            if version != 13 or not case.name.endswith("-empty"):
                model = raised(model, version)
        wanted = run_model(before, case.feeds(), optimise=False)
        found = run_model(model, case.feeds(), optimise=False)
        for name, array in wanted.items():
            check_equal(found[name], array, f"{case.name}: {name}")
