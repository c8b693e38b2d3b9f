"""Reductions of something computed element by element, in one operator.

The patterns name the sum ``sum``; the axes may be an attribute or an input, or missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.operators import attribute_of
from dplcli.ir.parameters import inputs_of

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, NewValue
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Node, Value

_AXES_ARE_INPUTS = 18
"""First opset in which every reduction has its axes as an input; a sum has from 13 on."""


def reduce_l1(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Sum absolute values."""
    return _reduction("ReduceL1", match, build)


def reduce_l2(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Take the root of a sum of squares."""
    return _reduction("ReduceL2", match, build)


def reduce_log_sum(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Take the logarithm of a sum."""
    return _reduction("ReduceLogSum", match, build)


def reduce_log_sum_exp(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Take the logarithm of a sum of exponentials."""
    return _reduction("ReduceLogSumExp", match, build)


def reduce_sum_square(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Sum squares."""
    return _reduction("ReduceSumSquare", match, build)


def _reduction(op_type: str, match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Reduce ``x`` by *op_type* as ``sum`` reduces what is computed from it.

    Refused where the sum may reduce nothing (``noop_with_empty_axes``), and where the axes would
    have to become an attribute and are not constant.
    """
    total, reduced = match.node("sum"), match.value("x")
    assert total is not None  # noqa: S101  # the patterns name both
    assert reduced is not None  # noqa: S101
    inputs = inputs_of(total)
    axes = inputs[1] if len(inputs) > 1 else None
    if _may_do_nothing(total, axes):
        return match.reject("a sum without axes that sums nothing", at=total)
    keepdims = attribute_of(total, "keepdims")
    if build.opset >= _AXES_ARE_INPUTS or axes is None:
        return build.op(op_type, reduced, axes, keepdims=keepdims)
    listed = axes.constant
    if listed is None:
        reason = f"opset {build.opset} keeps the axes of {op_type} in an attribute"
        return match.reject(f"{reason}, and these are computed", at=axes)
    numbers = listed.numpy().tolist() or None
    return build.op(op_type, reduced, axes=numbers, keepdims=keepdims)


def _may_do_nothing(total: Node, axes: Value | None) -> bool:
    """Tell whether empty axes may mean that nothing is summed."""
    noop = attribute_of(total, "noop_with_empty_axes")
    if noop is None or (noop.value == 0 and not noop.ref):
        return False
    return axes is None or axes.constant is None or axes.constant.size == 0
