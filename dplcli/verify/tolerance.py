"""How far two results may be apart that compute the same thing in another order.

A rounding error is at most half a unit in the last place, and errors of *n* steps add up like a
random walk: to about ``eps * sqrt(n)``. *n* is counted in the model (`dplcli.verify.depth`): the
terms of all sums along the longest path to the output, and one for every other operator. Four
times that is allowed relative to the element itself, and as much relative to the largest element
of the output divided by four, for sums whose terms cancel. *n* is taken for at least 1,024, since
functions such as Exp and divisions by small numbers enlarge what came before them, and for at most
65,536 (256 operators of 256 terms, say), which is also assumed where it cannot be counted. Half
precision is summed up in float32 by every kernel we know and rounded once per operator, so there
operators are counted, from 4 to 16.

===========  ====================  ====================
dtype        rtol                  atol / max |original|
===========  ====================  ====================
float64      2.8e-14 to 2.3e-13    7.1e-15 to 5.7e-14
float32      1.5e-5 to 1.2e-4      3.8e-6 to 3.1e-5
float16      7.8e-3 to 1.6e-2      2.0e-3 to 3.9e-3
bfloat16     6.3e-2 to 1.3e-1      1.6e-2 to 3.1e-2
===========  ====================  ====================

For comparison: over 135 real models, onnxruntime's own optimiser moves a typical output by a
fiftieth of the largest of that, and in five models, most of them quantised, by more than a third.

An output is judged by the coarsest type that the model computes with, not only by its own: a
float32 output of float16 layers carries their rounding.

The largest element is one that was computed: the -3.4e38, -65504 or -1e9 that models put where
a mask says so is no part of any sum, and would allow the others to be anything.
"""

from dataclasses import dataclass

import numpy as np

from dplcli.verify.dataflow import Dataflow
from dplcli.verify.depth import Depth
from dplcli.verify.interface import dtype_name
from dplcli.verify.sessions import Array

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_HALVES = frozenset({"float16", "bfloat16"})
_MARGIN = 4.0
_CANCELLING = 0.25
_FEWEST, _MOST = 2**10, 2**16
_HALF_FEWEST, _HALF_MOST = 2**2, 2**4
# Operators that only move, convert or make values: their type says nothing about arithmetic.
_NOT_ARITHMETIC = frozenset(
    {"Cast", "CastLike", "Identity", "Constant", "ConstantOfShape", "Shape", "Size"}
    | {"QuantizeLinear", "DequantizeLinear", "Gather", "GatherElements", "GatherND", "Where"}
    | {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Concat"}
    | {"Expand", "Tile", "Pad", "If", "Loop", "Scan"}
)

# What stands where nothing was computed: from so large on, and so many times all the others.
_FILL, _APART = 1e4, 2.0**10
_EXTREMES = frozenset(
    {2.0**128 - 2.0**120}  # bfloat16
    | {float(np.finfo(name).max) for name in ("float16", "float32", "float64")}
)

FLOATS = frozenset(_EPS)


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of one element: ``atol + rtol * |original|``, and where it is from."""

    rtol: float
    atol: float
    derivation: str = ""


def derive_tolerance(  # noqa: PLR0913  # what it depends on
    dtype: str,
    reference: Array,
    *,
    coarsest: str,
    rtol: float | None,
    atol: float | None,
    depth: Depth | None = None,
) -> Tolerance:
    """Return the tolerance of one output.

    Args:
        dtype: Element type of the output; anything but a float has to agree exactly.
        reference: The original's values, whose magnitude sets the absolute tolerance.
        coarsest: The coarsest float type that the model computes with (`working_type`).
        rtol: Overrides the derived relative tolerance.
        atol: Overrides the derived absolute tolerance.
        depth: How many roundings lead to the output; None if that is not known.
    """
    if dtype not in FLOATS:
        return Tolerance(0.0, 0.0, "exact")
    judged = max(dtype, coarsest, key=lambda name: _EPS.get(name, 0.0))
    halved = judged in _HALVES
    roundings, counted = _roundings(depth, halved=halved)
    relative = _MARGIN * _EPS[judged] * roundings**0.5
    absolute = _CANCELLING * relative * max(_magnitude(reference), _TINY[dtype])
    chosen = [name for name, value in (("rtol", rtol), ("atol", atol)) if value is not None]
    given = f"; {' and '.join(chosen)} given" if chosen else ""
    derivation = f"{_MARGIN:g} x eps({judged}) x sqrt({roundings:,} roundings, {counted}){given}"
    return Tolerance(
        relative if rtol is None else rtol,
        absolute if atol is None else atol,
        derivation if len(chosen) < len(("rtol", "atol")) else "given",
    )


def _roundings(depth: Depth | None, *, halved: bool) -> tuple[int, str]:
    """Return how many roundings to allow for, within what is plausible, and who says so."""
    fewest, most = (_HALF_FEWEST, _HALF_MOST) if halved else (_FEWEST, _MOST)
    if depth is None:
        return most, "assumed"
    counted = depth.operators if halved else depth.roundings
    if not fewest < counted < most:
        return (fewest, "the least") if counted <= fewest else (most, "the most")
    return counted, "partly assumed" if depth.assumed else "on the longest path"


def _magnitude(values: Array) -> float:
    """Return the largest finite magnitude, without those that fill masked places.

    That is one number, in several elements or the last of a type, far from all the others.
    """
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    largest = float(finite.max(initial=0.0))
    while largest >= _FILL:
        others = finite[finite < largest]
        below = float(others.max(initial=0.0))
        is_alone = finite.size - others.size == 1 and largest not in _EXTREMES
        if is_alone or not 0 < below <= largest / _APART:
            break
        finite, largest = others, below
    return largest


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
