"""How far two results may be apart that compute the same thing in another order.

A rounding error is at most half a unit in the last place, and errors of *n* steps add up like a
random walk: to about ``eps * sqrt(n)``. Assumed are 2**20 roundings on the way to one element
(256 operators, each a sum of 4,096 terms) relative to the element itself, and 2**16 relative to
the largest element of the output, for sums whose terms cancel. Half precision is summed up in
float32 by every kernel we know and rounded once per operator, so there it is 2**8 and 2**4.

===========  =========  ====================
dtype        rtol       atol / max |original|
===========  =========  ====================
float64      2.3e-13    5.7e-14
float32      1.2e-4     3.1e-5
float16      1.6e-2     3.9e-3
bfloat16     1.3e-1     3.1e-2
===========  =========  ====================

For comparison: over 135 real models, onnxruntime's own optimiser moves a typical output by a
fiftieth of that, and in five models, most of them quantised, by more than a third.

An output is judged by the coarsest type that the model computes with, not only by its own: a
float32 output of float16 layers carries their rounding.
"""

from dataclasses import dataclass

import numpy as np

from dplcli.verify.dataflow import Dataflow
from dplcli.verify.interface import dtype_name
from dplcli.verify.sessions import Array

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_HALVES = frozenset({"float16", "bfloat16"})
_ROUNDINGS = 2**20
_CANCELLING = 2**16
_HALF_ROUNDINGS = 2**8
_HALF_CANCELLING = 2**4
# Operators that only move, convert or make values: their type says nothing about arithmetic.
_NOT_ARITHMETIC = frozenset(
    {"Cast", "CastLike", "Identity", "Constant", "ConstantOfShape", "Shape", "Size"}
    | {"QuantizeLinear", "DequantizeLinear", "Gather", "GatherElements", "GatherND", "Where"}
    | {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Concat"}
    | {"Expand", "Tile", "Pad", "If", "Loop", "Scan"}
)

FLOATS = frozenset(_EPS)


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of one element: ``atol + rtol * |original|``."""

    rtol: float
    atol: float


def derive_tolerance(
    dtype: str, reference: Array, *, coarsest: str, rtol: float | None, atol: float | None
) -> Tolerance:
    """Return the tolerance of one output.

    Args:
        dtype: Element type of the output; anything but a float has to agree exactly.
        reference: The original's values, whose magnitude sets the absolute tolerance.
        coarsest: The coarsest float type that the model computes with (`working_type`).
        rtol: Overrides the derived relative tolerance.
        atol: Overrides the derived absolute tolerance.
    """
    if dtype not in FLOATS:
        return Tolerance(0.0, 0.0)
    judged = max(dtype, coarsest, key=lambda name: _EPS.get(name, 0.0))
    eps = _EPS[judged]
    halved = judged in _HALVES
    relative = eps * (_HALF_ROUNDINGS if halved else _ROUNDINGS) ** 0.5
    absolute = eps * (_HALF_CANCELLING if halved else _CANCELLING) ** 0.5
    return Tolerance(
        relative if rtol is None else rtol,
        absolute * max(_magnitude(reference), _TINY[dtype]) if atol is None else atol,
    )


def _magnitude(values: Array) -> float:
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def working_type(flow: Dataflow) -> str:
    """Return the coarsest float type that an operator of the main graph computes, '' if none."""
    types = {
        info.name: dtype_name(info.type.tensor_type.elem_type)
        for info in (*flow.model.graph.value_info, *flow.model.graph.output)
    }
    computed = {
        types.get(name, "")
        for node in flow.model.graph.node
        if node.op_type not in _NOT_ARITHMETIC
        for name in node.output
    }
    return max(computed & FLOATS, key=lambda name: _EPS[name], default="")
