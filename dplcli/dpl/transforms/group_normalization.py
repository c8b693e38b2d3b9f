"""Group normalisation written as instance normalisation of a reshaped value.

Before: ``Reshape(InstanceNormalization(Reshape(x, [0, G, -1]), ones, zeros), Shape(x))``, times a
scale and plus a bias for each channel.
After: ``GroupNormalization(x, scale, bias, num_groups=G)``
Holds when: the first Reshape keeps the batch and makes G groups of whole channels, the second one
gives x its shape back, and scale and bias are constants of one number per channel.
Numerics: statistics are in float32, also where float16 had its own before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.transforms.normalizations import per_channel
from dplcli.dpl.transforms.static_shapes import size_of, static_shape
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, NewValue
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Value

_LEAST_RANK = 3


def group_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Normalise groups of channels; see the module."""
    x, groups, whole, ones = (match.value(name) for name in ("x", "groups", "whole", "ones"))
    assert x is not None  # noqa: S101  # the pattern names all four
    assert groups is not None  # noqa: S101
    assert whole is not None  # noqa: S101
    assert ones is not None  # noqa: S101
    known, shape, count = x.known_type(), static_shape(x), ones.constant
    if known is None or shape is None or len(shape) < _LEAST_RANK or count is None:
        return match.reject("the input is not known to have channels and more", at=x)
    channels, rank = shape[1], len(shape)
    if channels is None or channels % count.size:
        return match.reject(f"the channels are not known to make {count.size} groups", at=x)
    if not _keeps_batch(x, groups, count.size):
        return match.reject("the batch is not known to stay one dimension", at=groups)
    if not _restores(x, whole):
        return match.reject("the shape is not known to come back", at=whole)
    one, zero = np.dtype(known.dtype).type(1), np.dtype(known.dtype).type(0)
    scale = per_channel(build, match.value("scale"), channels, rank, one)
    bias = per_channel(build, match.value("bias"), channels, rank, zero)
    if scale is None or bias is None:
        return match.reject("scale and bias must be constants, one number per channel", at=x)
    norm = match.node("norm")
    epsilon = None if norm is None else attribute_of(norm, "epsilon")
    return build.op("GroupNormalization", x, scale, bias, num_groups=count.size, epsilon=epsilon)


def _keeps_batch(x: Value, groups: Value, count: int) -> bool:
    """Tell whether the reshaped value begins with the batch and the groups."""
    target = _target(groups)
    if target is not None and len(target) >= _LEAST_RANK and target[:2] == [0, count]:
        return True
    before, after = static_shape(x), static_shape(groups)
    if before is None or after is None or len(after) < _LEAST_RANK or after[1] != count:
        return False
    if after[0] is not None and after[0] == before[0]:
        return True
    size = size_of(before[1:])
    return size is not None and size == size_of(after[1:])


def _restores(x: Value, whole: Value) -> bool:
    """Tell whether *whole*, whose batch and size are those of *x*, provably has its shape.

    If all dimensions but one are equal, so is the last.
    """
    if _takes_shape_of(x, whole):
        return True
    before, after = static_shape(x), static_shape(whole)
    if before is None or after is None or len(before) != len(after) or 0 in before:
        return False
    equal = [old is not None and old == new for old, new in zip(before, after, strict=True)]
    target = _target(whole)
    equal[0] = equal[0] or (target is not None and target[0] == 0)
    return equal.count(False) <= 1


def _takes_shape_of(x: Value, whole: Value) -> bool:
    """Tell whether *whole* is reshaped to ``Shape(x)``."""
    node = whole.producer
    shape = None if node is None or len(node.inputs) < 2 else node.inputs[1]  # noqa: PLR2004  # data, shape
    source = None if shape is None else behind_identities(shape).producer
    if source is None or source.op_type != "Shape" or source.domain or source.inputs[0] is None:
        return False
    start = attribute_of(source, "start")
    is_part = "end" in source.attributes or (start is not None and (start.ref or start.value))
    return not is_part and behind_identities(source.inputs[0]) is behind_identities(x)


def _target(reshaped: Value) -> list[int] | None:
    """Return the constant that a Reshape is told to make, where 0 means to copy."""
    node = reshaped.producer
    if node is None or len(node.inputs) < 2 or node.inputs[1] is None:  # noqa: PLR2004  # data, shape
        return None
    allowzero = attribute_of(node, "allowzero")
    tensor = behind_identities(node.inputs[1]).constant
    if tensor is None or (allowzero is not None and (allowzero.ref or allowzero.value)):
        return None
    numbers: list[int] = tensor.numpy().tolist()
    return numbers
