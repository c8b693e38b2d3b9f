"""onnx's own one-node models, written for the opset before each change and raised to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.case.node import collect_testcases
from onnx.shape_inference import InferenceError

from dplcli.ir.operators import FIRST_OPSET
from dplcli.onnx_io.opset import REFUSED, bumps
from tests.onnx_io.raised import raise_opset
from tests.onnx_io.test_opset_bumps import history
from tests.support.helpers import run_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Outputs = dict[str, Any]

NEWEST_RUN = 26
RANDOM = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
    *("RandomUniform", "RandomUniformLike"),
}
WITHOUT_KERNEL = {("RoiAlign", 22)}


def changes_of(op_type: str) -> Sequence[int]:
    """Return the opsets that change an operator, which is not refused, and onnxruntime runs."""
    first = min(schema.since_version for schema in history()[op_type])
    found = bumps(op_type, max(first, FIRST_OPSET), NEWEST_RUN)
    return [version for version in found if (op_type, version) not in REFUSED]


class Case(NamedTuple):
    """One of onnx's test cases: a model of one node and what to feed it."""

    name: str
    op_type: str
    model: onnx.ModelProto
    inputs: Sequence[Any]


def one_node_cases() -> Iterator[Case]:
    """Iterate over onnx's cases of one node of the standard; their inputs are random."""
    np.random.seed(0)  # noqa: NPY002  # the generator that onnx takes them from
    for case in collect_testcases(""):
        model = case.model
        if model is None or not case.data_sets or model.functions or len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        if not node.domain and node.op_type not in RANDOM:
            yield Case(case.name, node.op_type, model, case.data_sets[0][0])


def at_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto | None:
    """Return the model relabelled to be of another opset, or None if it is not valid then."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    imported = helper.make_opsetid("", version)
    del copy.opset_import[:]
    copy.opset_import.append(imported)
    copy.ir_version = max(4, helper.find_min_ir_version_for([imported]))
    try:
        onnx.checker.check_model(copy, full_check=True)
    except (onnx.checker.ValidationError, InferenceError):
        return None
    return copy


def run_if_possible(model: onnx.ModelProto, inputs: Sequence[Any]) -> Outputs | None:
    """Run a model; None if onnxruntime does not, for want of a kernel for some type."""
    names = [info.name for info in model.graph.input]
    try:
        return run_model(model, dict(zip(names, inputs, strict=False)), optimise=False)
    except Exception:  # noqa: BLE001  # onnxruntime's have no common base class
        return None


def is_same(found: object, wanted: object) -> bool:
    """Compare two outputs: arrays, sequences of them, or nothing."""
    if isinstance(wanted, list):
        assert isinstance(found, list)
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if wanted is None:
        return found is None
    ours, theirs = np.asarray(wanted), np.asarray(found)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.kind not in "fc":
        return bool((ours == theirs).all())
    if ours.dtype.kind == "f":  # what onnxruntime masks is the lowest number, since 1.32 -inf
        lowest = np.finfo(ours.dtype).min
        ours, theirs = (np.where(x <= lowest, -np.inf, x) for x in (ours, theirs))
    half = ours.dtype == np.float16  # another kernel may round its last bit, 1e-3, another way
    rtol, atol = (2e-3, 1e-3) if half else (1e-4, 1e-5)
    return np.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def differences(found: Outputs, wanted: Outputs) -> Outputs:
    """Return, by name, both values of the outputs that differ."""
    assert found.keys() == wanted.keys()
    return {
        name: (found[name], wanted[name])
        for name in wanted
        if not is_same(found[name], wanted[name])
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_each_change_leaves_the_numbers_alone() -> None:
    """Whatever is valid and runs before a change is valid, runs and computes the same behind it."""
    seen: set[tuple[str, int]] = set()
    for case in one_node_cases():
        for version in changes_of(case.op_type):
            before = at_opset(case.model, version - 1)
            wanted = None if before is None else run_if_possible(before, case.inputs)
            if before is None or wanted is None:
                continue
            after = onnx.ModelProto()
            after.CopyFrom(before)
            raise_opset(after, version)
            onnx.checker.check_model(after, full_check=True)
            found = run_if_possible(after, case.inputs)
            if found is None:
                assert (case.op_type, version) in WITHOUT_KERNEL, case.name
                continue
            unlike = differences(found, wanted)
            assert not unlike, (case.name, version, unlike)
            seen.add((case.op_type, version))
    assert len(seen) > 250
