"""Adapters for the bumps that changed what a node means, and guards where only some nodes did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx.helper import make_attribute

from dplcli.ir.types import DTYPE_CODES
from dplcli.onnx_io.opset_raising.site import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.onnx_io.opset_raising.site import Site

_FIRST_OPTIONAL_ROI = 13
_FIRST_ALLOWZERO = 14
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _softmax_13(site: Site) -> None:
    """Keep normalising over all dimensions from the axis on; since 13 it is over one only.

    Where the dimensions behind the axis are all 1 that is the same. Elsewhere the input is made a
    matrix for the time being, which is how the older schema described it.
    """
    found = site.attribute("axis")
    if found is None or not found.ref_attr_name:
        axis = 1 if found is None else found.i
        if axis == -1 or _ends_at(site, axis):
            if found is None and len(site.shape(0) or ()) != axis + 1:
                site.replace(attributes={"axis": axis})
            return
    name = site.node.output[0]
    if site.target < _FIRST_ALLOWZERO and 0 in (site.shape(0) or ()):
        raise Refusal(f"its input is empty, which opset {_FIRST_ALLOWZERO} is needed for")
    flat = site.helper("Flatten", [site.input(0)], f"{name}_flat", [found] if found else [])
    normal = site.replace(inputs=[flat], output=f"{name}_matrix", attributes={"axis": -1})
    shape = site.helper("Shape", [site.input(0)], f"{name}_shape")
    if site.target < _FIRST_ALLOWZERO:
        site.helper("Reshape", [normal, shape], name)
    else:
        zeros = make_attribute("allowzero", 1)
        site.helper("Reshape", [normal, shape], name, [zeros], version=_FIRST_ALLOWZERO)


def _ends_at(site: Site, axis: int) -> bool:
    """Tell whether all dimensions of the input behind *axis* are known to be 1."""
    shape = site.shape(0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return False
    return all(dim == 1 for dim in shape[axis % len(shape) + 1 :])


def _resize_11(site: Site) -> None:
    """Say how coordinates are computed, whose default became another.

    Before 11 the nearest element was the one before it where an axis grows and the one behind it
    where it shrinks: that is what onnxruntime does, the schema does not say.
    """
    rounding = {}
    if site.text("mode", "nearest") == "nearest":
        scales = site.value(1)
        if scales is None:
            raise Refusal("which element is nearest depends on its scales, which are no constant")
        if (scales >= 1).all():
            rounding["nearest_mode"] = "floor"
        elif (scales <= 1).all():
            rounding["nearest_mode"] = "ceil"
        else:
            raise Refusal("it grows along one axis and shrinks along another, rounding differently")
    _resize_asymmetrically(site, rounding)


def _upsample_10(site: Site) -> None:
    """Make it a Resize; an axis can only grow."""
    if site.target == site.version:
        site.replace(op_type="Resize")
        return
    is_nearest = site.text("mode", "nearest") == "nearest"
    _resize_asymmetrically(site, {"nearest_mode": "floor"} if is_nearest else {})


def _resize_asymmetrically(site: Site, rounding: dict[str, str]) -> None:
    """Make it a Resize of opset 11."""
    roi = ""
    if site.target < _FIRST_OPTIONAL_ROI:
        roi = site.constant(np.zeros(0, np.float32), "roi")
    site.replace(
        op_type="Resize",
        inputs=[site.input(0), roi, site.input(1)],
        version=11,
        attributes={"coordinate_transformation_mode": "asymmetric", **rounding},
    )


def _resize_13(site: Site) -> None:
    """Leave out the scales where there are sizes, instead of giving an empty tensor."""
    mode = site.text("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        raise Refusal(f"its coordinate_transformation_mode {mode!r} was taken out in opset 13")
    if site.input(2) and site.input(3):
        site.replace(inputs=[site.input(0), site.input(1), "", site.input(3)])


def _dropout_10(site: Site) -> None:
    """Leave the mask out, whose type changed, and in opset 12 its value."""
    if site.is_output_read(1):
        raise Refusal("its output 'mask' is read, which became another in opsets 10 and 12")
    if len(site.node.output) > 1:
        site.replace(outputs=1)


def _dropout_12(site: Site) -> None:
    """Move the ratio as well."""
    _dropout_10(site)
    ratio = site.as_input("ratio", lambda value: np.array(value, np.float32), "value_float")
    if ratio:
        site.made.clear()
        site.replace(inputs=[site.input(0), ratio], outputs=1, without=["ratio"])


def _batch_normalization_9(site: Site) -> None:
    if not site.integer("spatial", 1):
        raise Refusal("its attribute 'spatial' is 0: per-activation statistics ended with opset 9")
    if site.attribute("spatial") is not None:
        site.replace(without=["spatial"])


def _batch_normalization_14(site: Site) -> None:
    if any(site.node.output[1:]):
        raise Refusal("it is in training mode, whose outputs changed in opset 14")


def _mean_variance_normalization_13(site: Site) -> None:
    """State the default of the axes, without which onnx.checker stumbles over the newer schema."""
    if site.attribute("axes") is None:
        site.replace(attributes={"axes": [0, 2, 3]})


def _grid_sample_20(site: Site) -> None:
    """Rename the modes; the default is the same by its new name."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = site.text("mode", "")
    if mode in renamed:
        site.replace(attributes={"mode": renamed[mode]})


def _group_normalization_21(site: Site) -> None:
    """Repeat scale and bias for each channel of a group, and keep the precision."""
    shape, dtype, groups = site.shape(0), site.dtype(0), site.integer("num_groups", 0)
    channels = None if shape is None or len(shape) < 2 else shape[1]  # noqa: PLR2004  # N and C
    if not isinstance(channels, int) or dtype is None or not groups or channels % groups:
        raise Refusal("scale and bias are per channel since opset 21, and those are not known")
    inputs = [site.input(0), site.input(1), site.input(2)]
    if channels != groups:
        inputs[1:] = [_repeated(site, name, channels // groups) for name in inputs[1:]]
    if dtype != "float32":
        site.replace(inputs=inputs, attributes={"stash_type": DTYPE_CODES[dtype]})
    elif channels != groups:
        site.replace(inputs=inputs)


def _repeated(site: Site, name: str, times: int) -> str:
    """Return the name of the vector *name* with each element repeated."""
    column = site.constant(np.array([-1, 1]), "column")
    widths = site.constant(np.array([1, times]), "widths")
    vector = site.constant(np.array([-1]), "vector")
    tall = site.helper("Reshape", [name, column], f"{name}_column")
    wide = site.helper("Expand", [tall, widths], f"{name}_repeated")
    return site.helper("Reshape", [wide, vector], f"{name}_per_channel")


def _without_integers(site: Site) -> None:
    """Refuse integers, which are no longer taken.

    An unknown type passes: if it is one of integers after all, the result is an invalid model and
    not a wrong one.
    """
    dtype = site.dtype(0)
    if dtype in _INTEGERS:
        raise Refusal(f"it takes no {dtype} since opset {site.version}")


def _roi_align_16(site: Site) -> None:
    """Say that coordinates are not shifted, whose default became another."""
    site.replace(attributes={"coordinate_transformation_mode": "output_half_pixel"})


def _scatter_11(site: Site) -> None:
    """Give it the name that it has since."""
    site.replace(op_type="ScatterElements")


def _split_18(site: Site) -> None:
    """Say into how many parts to split where the lengths are not given."""
    if not site.input(1):
        site.replace(attributes={"num_outputs": len(site.node.output)})


MEANINGS: dict[tuple[str, int], Callable[[Site], None]] = {
    ("BatchNormalization", 9): _batch_normalization_9,
    ("BatchNormalization", 14): _batch_normalization_14,
    ("Dropout", 10): _dropout_10,
    ("Dropout", 12): _dropout_12,
    ("Erf", 13): _without_integers,
    ("GridSample", 20): _grid_sample_20,
    ("GroupNormalization", 21): _group_normalization_21,
    ("Hardmax", 13): _softmax_13,
    ("LogSoftmax", 13): _softmax_13,
    ("MeanVarianceNormalization", 13): _mean_variance_normalization_13,
    ("ReduceLogSum", 28): _without_integers,
    ("ReduceLogSumExp", 28): _without_integers,
    ("Resize", 11): _resize_11,
    ("Resize", 13): _resize_13,
    ("RoiAlign", 16): _roi_align_16,
    ("Scatter", 11): _scatter_11,
    ("Softmax", 13): _softmax_13,
    ("Split", 18): _split_18,
    ("Upsample", 10): _upsample_10,
}
