"""Pads that become those of the convolution or pool behind them.

The patterns of the rules bind *x* to what is padded and *pads* to the constant numbers, and their
conditions see to it that only spatial axes are padded, by numbers that are not negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.transforms.remake import remade
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Node

_NOT_SPATIAL = 2
_LOWEST = np.finfo(np.float32).min


def pad_into_conv(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Add the numbers to the pads of a Conv."""
    return _with_pads(match, build, {})


def pad_into_average_pool(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Add the numbers to the pads of an AveragePool, which counts them from now on."""
    if not _fits_kernel(match):
        return match.reject("a pool's pads must be smaller than its kernel")
    return _with_pads(match, build, {"count_include_pad": 1})


def pad_into_max_pool(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Add the numbers to the pads of a MaxPool, where what they put in can never win.

    That is so of minus infinity and the lowest float32, and of zero after a Relu.
    """
    if not _fits_kernel(match):
        return match.reject("a pool's pads must be smaller than its kernel")
    fill = match.bindings.get("v")
    tensor = None if fill is None else fill.constant
    number = 0.0 if tensor is None else float(tensor.numpy().reshape(-1)[0])
    maker = behind_identities(match.bindings["x"]).producer
    is_positive = maker is not None and not maker.domain and maker.op_type == "Relu"
    if number > _LOWEST and not (number == 0 and is_positive):
        return match.reject(f"a maximum may be less than {number}")
    return _with_pads(match, build, {})


def _with_pads(match: Match, build: GraphBuilder, more: dict[str, object]) -> Operand | Rejection:
    node = match.root
    pads = _joined(match)
    if pads is None:
        return match.reject("the pads are not known")
    inputs = [match.bindings["x"], *node.inputs[1:]]
    return remade(build, node, inputs, pads=pads, **more)[0]


def _joined(match: Match) -> list[int] | None:
    """Return the sums of both pads along the spatial axes."""
    tensor = match.bindings["pads"].constant
    own = _numbers(match.root, "pads")
    if tensor is None or own is None:
        return None
    numbers = [int(number) for number in tensor.numpy()]
    rank = len(numbers) // 2
    spatial = numbers[_NOT_SPATIAL:rank] + numbers[rank + _NOT_SPATIAL :]
    if len(own) != len(spatial):
        return None
    return [first + second for first, second in zip(own, spatial, strict=True)]


def _fits_kernel(match: Match) -> bool:
    pads, kernel = _joined(match), _numbers(match.root, "kernel_shape")
    if pads is None or kernel is None or len(pads) != 2 * len(kernel):
        return False
    return all(pad < size for pad, size in zip(pads, kernel * 2, strict=True))


def _numbers(node: Node, name: str) -> list[int] | None:
    attribute = attribute_of(node, name)
    if attribute is None or attribute.ref or not isinstance(attribute.value, tuple):
        return None
    return [int(number) for number in attribute.value]
