"""A model that onnxscript writes: functions that call functions, a loop and a branch.

The functions are written in onnxscript's language, which is not Python's: what stands for types,
comparisons and the like is read and never run.
"""
# ruff: noqa: ANN001, ANN201, D103, SIM108
# mypy: ignore-errors

from onnxscript import FLOAT, INT64, script
from onnxscript import opset18 as op
from onnxscript.values import Opset

LIBRARY = Opset("pkg.onnxscript.torch_lib", 1)


@script(LIBRARY)
def aten_relu(x):
    return op.Max(x, op.CastLike(0.0, x))


@script(LIBRARY)
def aten_silu(x, alpha: float = 1.0):
    return op.Mul(x, op.Sigmoid(op.Mul(x, op.CastLike(alpha, x))))


@script(LIBRARY)
def block(x, w):
    return aten_silu(aten_relu(op.MatMul(x, w)), alpha=0.5)


@script()
def main(x: FLOAT[2, 3], w: FLOAT[3, 3], n: INT64) -> FLOAT[2, 3]:
    y = block(x, w)
    for _ in range(n):
        y = aten_silu(op.MatMul(y, w))
    if op.ReduceSum(y) > 0.0:
        z = op.Neg(op.MatMul(y, w))
    else:
        z = aten_relu(op.MatMul(y, w))
    return z


def written() -> bytes:
    """Return the model, serialised."""
    return main.to_model_proto().SerializeToString()
