"""Clips and Relus in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.transforms.chains import inner_node

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node

    Bound: TypeAlias = NDArray[Any] | None
    Bounds: TypeAlias = tuple[Bound, Bound]

_RELU: Bounds = (np.array(0), None)


@nodewise("Clip", "Relu", reach=2)
def merge_clips(match: Match, build: GraphBuilder) -> Operand | None:
    """Clip once what is clipped twice; a Relu is a Clip at 0.

    Before: ``y = Clip(Relu(x), low, high)``
    After:  ``y = Clip(x, max(low, 0), max(high, 0))``
    Holds when: all bounds are constant.
    Numerics: none, but for what is not a number where an implementation tells the two apart.
    """
    outer, inner = match.root, inner_node(match.root)
    if (
        inner is None
        or inner.op_type not in {"Clip", "Relu"}
        or "Clip" not in {inner.op_type, outer.op_type}
    ):
        return None
    first, second = _bounds(inner), _bounds(outer)
    if first is None or second is None:
        return None
    given = [bound for bound in (*first, *second) if bound is not None and bound is not _RELU[0]]
    if not given:
        return None
    dtype = given[0].dtype
    low, high = _within(first[0], second, second[0]), _within(first[1], second, second[1])
    return build.op(
        "Clip",
        inner.inputs[0],
        None if low is None else build.constant(low.astype(dtype)),
        None if high is None else build.constant(high.astype(dtype)),
    )


def _bounds(node: Node) -> Bounds | None:
    """Return the bounds, each None if there is none; None if one is not constant."""
    if node.op_type == "Relu":
        return _RELU
    bounds: list[Bound] = []
    for value in (*node.inputs[1:3], None, None)[:2]:
        tensor = None if value is None else value.constant
        if value is not None and (tensor is None or tensor.size != 1):
            return None
        bounds.append(None if tensor is None else tensor.numpy().reshape(()))
    return bounds[0], bounds[1]


def _within(bound: Bound, limits: Bounds, default: Bound) -> Bound:
    """Return what becomes of an inner bound in an outer Clip."""
    if bound is None:
        return default
    low, high = limits
    if low is not None:
        bound = np.maximum(bound, low)
    return bound if high is None else np.minimum(bound, high)
