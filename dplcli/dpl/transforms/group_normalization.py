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
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, NewValue
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Value

_LEAST_RANK = 3


def group_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Normalise groups of channels; see the module."""
    x, groups, ones = (match.value(name) for name in ("x", "groups", "ones"))
    assert x is not None  # noqa: S101  # the pattern names all three
    assert groups is not None  # noqa: S101
    assert ones is not None  # noqa: S101
    known, count = x.known_type(), ones.constant
    if known is None or known.shape is None or len(known.shape) < _LEAST_RANK or count is None:
        return match.reject("the input is not known to have channels and more", at=x)
    channels = known.shape[1]
    if not isinstance(channels, int) or channels % count.size:
        return match.reject(f"the channels are not known to make {count.size} groups", at=x)
    if not _keeps_batch(x, groups, count.size):
        return match.reject("the batch is not known to stay one dimension", at=groups)
    if not _restores(x, match.value("whole")):
        return match.reject("the shape is not known to come back", at=match.value("whole"))
    one, zero = np.dtype(known.dtype).type(1), np.dtype(known.dtype).type(0)
    scale = per_channel(build, match.value("scale"), channels, len(known.shape), one)
    bias = per_channel(build, match.value("bias"), channels, len(known.shape), zero)
    if scale is None or bias is None:
        return match.reject("scale and bias must be constants, one number per channel", at=x)
    norm = match.node("norm")
    epsilon = None if norm is None else attribute_of(norm, "epsilon")
    return build.op("GroupNormalization", x, scale, bias, num_groups=count.size, epsilon=epsilon)


def _keeps_batch(x: Value, groups: Value, count: int) -> bool:
    """Tell whether the reshaped value begins with the batch and the groups."""
    known, given = groups.known_type(), x.known_type()
    assert given is not None  # noqa: S101  # the caller has asked
    target = _target(groups)
    if target is not None and len(target) >= _LEAST_RANK and target[:2] == [0, count]:
        return True
    if known is None or known.shape is None or given.shape is None:
        return False
    if len(known.shape) < _LEAST_RANK or known.shape[1] != count:
        return False
    if isinstance(known.shape[0], int) and known.shape[0] == given.shape[0]:
        return True
    size = _size(given.shape[1:])
    return size is not None and size == _size(known.shape[1:])


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


def _restores(x: Value, whole: Value | None) -> bool:
    """Tell whether *whole* provably has the shape of *x*."""
    node = None if whole is None else whole.producer
    if whole is None or node is None:
        return False
    shape = node.inputs[1] if len(node.inputs) > 1 else None
    source = None if shape is None else behind_identities(shape).producer
    if source is not None and source.op_type == "Shape" and not source.domain:
        start = attribute_of(source, "start")
        is_whole = "end" not in source.attributes and (start is None or start.value == 0)
        read = source.inputs[0]
        if is_whole and read is not None and behind_identities(read) is behind_identities(x):
            return True
    made, known = whole.known_type(), x.known_type()
    if made is None or known is None or made.shape is None or known.shape is None:
        return False
    return (
        len(made.shape) == len(known.shape)
        and made.shape[1:] == known.shape[1:]
        and _size(made.shape[1:]) is not None
    )


def _size(dims: Sequence[object]) -> int | None:
    """Multiply dimensions; None if one is unknown or zero."""
    size = 1
    for dim in dims:
        if not isinstance(dim, int) or dim == 0:
            return None
        size *= dim
    return size
