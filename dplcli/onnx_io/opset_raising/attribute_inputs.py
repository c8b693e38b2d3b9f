"""Adapters for the bumps that turned attributes into inputs and left the meaning alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.onnx_io.opset_raising.site import Site

_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)


def _integers(value: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401  # whatever the attribute holds
    return np.array(value, np.int64)


def _floats(value: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    return np.array(value, np.float32)


def _lists_to_inputs(*names: str) -> Callable[[Site], None]:
    """Return an adapter that moves lists of integers behind the first input, in this order."""

    def adapt(site: Site) -> None:
        if any(site.attribute(name) is not None for name in names):
            moved = [site.as_input(name, _integers, "value_ints") for name in names]
            site.replace(inputs=[site.input(0), *moved], without=names)

    return adapt


def _unsqueeze_13(site: Site) -> None:
    """Move the axes, which must be there, even where the list of them is empty."""
    axes = site.as_input("axes", _integers, "value_ints") or site.constant(_integers([]), "axes")
    site.replace(inputs=[site.input(0), axes], without=["axes"])


def _upsample_9(site: Site) -> None:
    scales = site.as_input("scales", _floats, "value_floats")
    site.replace(inputs=[site.input(0), scales], without=["scales"])


def _top_k_10(site: Site) -> None:
    """Move the number of elements, which became a vector of one."""
    count = site.constant(_integers([site.integer("k", 1)]), "k")
    site.replace(inputs=[site.input(0), count], without=["k"])


def _dft_20(site: Site) -> None:
    """Move the axis, whose default changed from 1 to the last but one."""
    axis = site.as_input("axis", _integers, "value_int") or site.constant(_integers(1), "axis")
    site.replace(inputs=[site.input(0), site.input(1), axis], without=["axis"])


def _clip_11(site: Site) -> None:
    """Move the bounds, which became scalars of the input's type."""
    if site.attribute("min") is None and site.attribute("max") is None:
        return
    bounds = [site.scalar_like_input("min"), site.scalar_like_input("max")]
    site.replace(inputs=[site.input(0), *bounds], without=["min", "max"])


def _pad_11(site: Site) -> None:
    """Move the widths, and the value where it is used and not the default."""
    value = ""
    found = site.attribute("value")
    if found is not None and (found.ref_attr_name or found.f):
        value = site.scalar_like_input("value")
    pads = site.as_input("pads", _integers, "value_ints") or site.constant(_integers([]), "pads")
    site.replace(inputs=[site.input(0), pads, value], without=["pads", "value"])


ATTRIBUTE_INPUTS = {
    ("Clip", 11): _clip_11,
    ("DFT", 20): _dft_20,
    ("Pad", 11): _pad_11,
    ("ReduceSum", 13): _lists_to_inputs("axes"),
    ("Slice", 10): _lists_to_inputs("starts", "ends", "axes"),
    ("Split", 13): _lists_to_inputs("split"),
    ("Squeeze", 13): _lists_to_inputs("axes"),
    ("TopK", 10): _top_k_10,
    ("Unsqueeze", 13): _unsqueeze_13,
    ("Upsample", 9): _upsample_9,
    **{(op_type, 18): _lists_to_inputs("axes") for op_type in _REDUCTIONS},
}
