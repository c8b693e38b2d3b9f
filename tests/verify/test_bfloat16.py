"""Models in bfloat16, which onnxruntime does not run: they are computed in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import pytest

from dplcli.pipeline import verify
from dplcli.verify.check import Check, Execution
from dplcli.verify.engines import Session
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = '<ir_version: 10, opset_import: ["" : 22, "own" : 1]>\n'
NET = """g (bfloat16[N,32] x) => (bfloat16[N,32] y)
  <bfloat16[32,64] w, bfloat16[64] b, bfloat16[64,32] v, bfloat16[32] s> {
    p = MatMul (x, w) q = Add (p, b) r = Relu (q) t = MatMul (r, v)
    y = LayerNormalization <axis = -1, epsilon = 0.01> (t, s) }"""
BODIES = """g (bfloat16[4] x, bool c, bfloat16[4] z) => (bfloat16[4] y, float u, bfloat16[4] o) {
    one = Constant <value = bfloat16[1] {16256}> () t = Sin (x)
    y = If (c) <then_branch = a () => (bfloat16[4] d) { d = Add (t, one) },
                else_branch = e () => (bfloat16[4] k) { k = Identity (t) }>
    s = ReduceSum <keepdims = 0> (t) h = Sqrt (s) u = Cast <to = 1> (h) o = own.f (t, z) }
<domain: "own", opset_import: ["" : 22]> f (p, q) => (r) { r = Mul (p, q) }"""


def model(text: str) -> onnx.ModelProto:
    """Return a model whose weights are random."""
    proto = onnx.parser.parse_model(HEADER + text)
    random = np.random.default_rng(0)
    for info in proto.graph.value_info:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        data = (random.standard_normal(dims) / np.sqrt(dims[0])).astype(ml_dtypes.bfloat16)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, info.name))
    del proto.graph.value_info[:]
    return proto


def told(tmp_path: Path, edit: Callable[[onnx.ModelProto], object]) -> tuple[str, str]:
    """Return the verdict on an edited model, and what is said of it."""
    paths = tmp_path / "original.onnx", tmp_path / "candidate.onnx"
    proto = model(NET)
    onnx.save(proto, paths[0])
    edit(proto)
    onnx.save(proto, paths[1])
    found = verify(*paths, check=Check(seeds=(0,), levels=("disable",)))
    regions = found.regions
    assert "computed in float32: Could not find an implementation" in found.warnings[0]
    return found.verdict, "" if regions is None else " ".join(regions.differing)


def _with_gemm(proto: onnx.ModelProto) -> None:
    nodes = proto.graph.node
    nodes[1].CopyFrom(onnx.helper.make_node("Gemm", ["x", "w", "b"], ["q"]))
    del nodes[0]


def _change_weight(proto: onnx.ModelProto) -> None:
    weight = proto.graph.initializer[2]
    values = np.frombuffer(weight.raw_data, ml_dtypes.bfloat16).copy()
    values[77] *= 1.25
    weight.raw_data = values.tobytes()


def _round_weight(proto: onnx.ModelProto) -> None:
    weight = proto.graph.initializer[2]
    bits = np.frombuffer(weight.raw_data, np.uint16) ^ 1
    weight.raw_data = bits.tobytes()


def _change_epsilon(proto: onnx.ModelProto) -> None:
    next(a for a in proto.graph.node[-1].attribute if a.name == "epsilon").f = 0.011


@pytest.mark.parametrize(
    ("edit", "verdict", "named"),
    [
        (lambda _: None, "equivalent", ""),
        (_with_gemm, "equivalent", ""),
        (_round_weight, "equivalent", ""),
        (_change_weight, "different", "MatMul 't'"),
        (_change_epsilon, "different", "LayerNormalization 'y'"),
    ],
    ids=["same", "other operators", "last bits of all", "weight", "epsilon"],
)
def test_what_differs_is_found(
    tmp_path: Path, edit: Callable[[onnx.ModelProto], object], verdict: str, named: str
) -> None:
    """Places are compared in float32; only constants may be rounded as coarsely as they are."""
    answer, said = told(tmp_path, edit)
    assert answer == verdict
    assert named in said


def test_a_few_weights_are_no_rounding(tmp_path: Path) -> None:
    """What one weight more or less makes of a sum may be less than a last place of the result."""
    original, candidate = tmp_path / "original.onnx", tmp_path / "candidate.onnx"
    proto = model(
        """g (bfloat16[N,256] x) => (bfloat16[N,32] y) <bfloat16[256,32] w, bfloat16[32] b> {
        p = MatMul (x, w) q = Add (p, b) y = Relu (q) }"""
    )
    onnx.save(proto, original)
    weight = proto.graph.initializer[0]
    values = np.frombuffer(weight.raw_data, ml_dtypes.bfloat16).copy()
    values[np.argmin(np.abs(values.astype(np.float32) - 0.01))] *= ml_dtypes.bfloat16(1.05)
    weight.raw_data = values.tobytes()
    onnx.save(proto, candidate)
    found = verify(original, candidate, check=Check(seeds=(0,), levels=("disable",)))
    assert all(output.ok for output in found.outputs)
    assert found.verdict == "different"


@pytest.mark.parametrize("taken", [True, False])
def test_bodies_and_functions_compute_in_float32(tmp_path: Path, *, taken: bool) -> None:
    """What leaves is of the type that is stated, and what lies between is not rounded."""
    path = tmp_path / "model.onnx"
    onnx.save(model(BODIES), path)
    x = np.array([0.3, 1.7, 0.9, 2.2], ml_dtypes.bfloat16)
    feeds = {"x": x, "c": np.array(taken), "z": x}
    with pytest.raises(RunError, match="Could not find an implementation"):
        Session(ModelSource(path), "disable")
    source = ModelSource(path, execution=Execution(isolated=False, widens=True))
    given = {name: leaves[0] for name, leaves in Session(source, "disable").run(feeds).items()}
    sine = np.sin(x.astype(np.float32))
    assert [leaf.dtype for leaf in given.values()] == ["bfloat16", "float32", "bfloat16"]
    for name, exact in (("y", sine + taken), ("o", sine * x.astype(np.float32))):
        rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(given[name].data, rounded)
    assert np.allclose(given["u"].data, np.sqrt(sine.sum()), rtol=1e-6, atol=0)
