"""Shapes of convolutions and pools: windows that move over the spatial axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.shapes.terms import add, multiply, negative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.shapes.shape_rules import PartlyKnown, Shapes
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims, View

_SPATIAL = 2
"""The first spatial axis."""


def conv(view: View) -> Shapes:
    """Conv and ConvInteger."""
    shape, weight = view.shape(0), view.shape(1)
    if shape is None or weight is None or len(weight) != len(shape) or len(shape) < _SPATIAL:
        return []
    return [(shape[0], weight[0], *_moved(view, shape, weight[_SPATIAL:]))]


def pool(view: View) -> Shapes:
    """MaxPool, AveragePool and LpPool, and the places of the maxima."""
    shape, kernel = view.shape(0), view.integers("kernel_shape")
    if shape is None or kernel is None or len(shape) != len(kernel) + _SPATIAL:
        return []
    if view.integer("ceil_mode", 0) != 0:
        return []
    made = (*shape[:_SPATIAL], *_moved(view, shape, kernel))
    return [made] * len(view.node.outputs)


def global_pool(view: View) -> Shapes:
    """The pools over all that there is."""
    shape = view.shape()
    return [] if shape is None else [(*shape[:_SPATIAL], *(1 for _ in shape[_SPATIAL:]))]


def conv_transpose(view: View) -> Shapes:
    """ConvTranspose with pads that are stated."""
    shape, weight, group = view.shape(0), view.shape(1), view.integer("group", 1)
    if shape is None or weight is None or group is None or len(weight) != len(shape):
        return []
    count = len(shape) - _SPATIAL
    made: list[Number | None] = [None] * count
    if view.text("auto_pad", "NOTSET") == "NOTSET" and view.integers("output_shape") is None:
        strides, dilations = (
            _listed(view, "strides", count, 1),
            _listed(view, "dilations", count, 1),
        )
        more, paddings = _listed(view, "output_padding", count, 0), _paddings(view, count)
        made = []
        for place, dim in enumerate(shape[_SPATIAL:]):
            span = _span(weight[_SPATIAL + place], dilations[place])
            last = multiply(add(dim, -1), strides[place])
            made.append(add(add(last, span), more[place] - paddings[place]))
    return [(shape[0], multiply(weight[1], group), *made)]


def _span(kernel: Number, dilation: int) -> Number:
    """Return how far a kernel reaches."""
    return add(multiply(dilation, add(kernel, -1)), 1)


def _moved(view: View, shape: Dims, kernel: Sequence[Number]) -> PartlyKnown:
    count = len(kernel)
    strides, dilations = _listed(view, "strides", count, 1), _listed(view, "dilations", count, 1)
    mode = view.text("auto_pad", "NOTSET")
    if mode not in {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}:
        return [None] * count
    if mode in {"SAME_UPPER", "SAME_LOWER"}:
        pairs = zip(shape[_SPATIAL:], strides, strict=True)
        return [view.algebra.floor_divide(add(dim, step - 1), step) for dim, step in pairs]
    paddings = _paddings(view, count) if mode == "NOTSET" else [0] * count
    made = []
    for place, dim in enumerate(shape[_SPATIAL:]):
        span = _span(kernel[place], dilations[place])
        room = add(add(dim, paddings[place]), negative(span))
        made.append(add(view.algebra.floor_divide(room, strides[place]), 1))
    return made


def _listed(view: View, name: str, count: int, default: int) -> list[int]:
    given = view.integers(name)
    return given if given is not None and len(given) == count else [default] * count


def _paddings(view: View, count: int) -> list[int]:
    pads = _listed(view, "pads", 2 * count, 0)
    return [before + after for before, after in zip(pads[:count], pads[count:], strict=True)]


WINDOW_RULES = {
    "Conv": conv,
    "ConvInteger": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool,
    "AveragePool": pool,
    "LpPool": pool,
    "GlobalMaxPool": global_pool,
    "GlobalAveragePool": global_pool,
    "GlobalLpPool": global_pool,
}
"""By operator of the standard domain."""
