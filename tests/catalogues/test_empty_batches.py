"""A batch may be empty: what ``prepare`` makes runs wherever the original does."""

import numpy as np
import onnxruntime as ort
import pytest

from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import model_from_text, proto_from_text, shipped_rewrites

SIZES = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4},
            int64[1] axis = {1}, int64[1] after = {2}, int64[1] eight = {8}> {
    q = Shape (x) n = Slice (q, zero, one) s = Slice (q, one, two) w = Mul (s, four)
    both = Mul (n, s) rows = Concat <axis = 0> (n, w) flat = Concat <axis = 0> (both, four)
    mask = Concat <axis = 0> (n, one, one, w)"""

CASES = {
    "a target of two sizes": "y = Reshape <allowzero = 1> (x, rows)",
    "a target where 0 is kept": "y = Reshape (x, rows)",
    "rows of a matrix": "y = Reshape <allowzero = 1> (x, flat)",
    "two Unsqueeze": "t = Unsqueeze (x, axis) y = Unsqueeze (t, after)",
    "a Flatten of a Reshape": "t = Reshape <allowzero = 1> (x, mask) y = Flatten (t)",
    "a Flatten": "t = Unsqueeze (x, axis) y = Flatten (t)",
}


def run(model: bytes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what a model gives."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.zeros(shape, np.float32)})
    return tuple(np.asarray(found).shape)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0, 0, 4), (2, 3, 4)], ids=str)
def test_what_prepare_makes_runs_on_nothing(case: str, shape: tuple[int, ...]) -> None:
    """-1 beside a size of 0 is what onnxruntime refuses, whatever the original says."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,s,4] x) => (y) {SIZES} {CASES[case]} }}"""
    model = model_from_text(text)
    assert rewrite(model, shipped_rewrites("prepare")).rounds
    try:
        expected = run(proto_from_text(text).SerializeToString(), shape)
    except ort.capi.onnxruntime_pybind11_state.RuntimeException:
        return  # the original does not run either
    assert run(to_proto(model).SerializeToString(), shape) == expected
