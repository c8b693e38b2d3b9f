"""Normalisations and reductions that are written out, as one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.replacement import BuildError
from dplcli.ir.operators import attribute_of, parameter_of
from dplcli.ir.traversal import behind_identities
from dplcli.rewrites.operands import (
    dtype_of,
    input_of,
    node_of,
    size_of,
    static_shape,
    value_called,
)

if TYPE_CHECKING:
    from dplcli.dpl.replacement import GraphBuilder, NewValue, Operand
    from dplcli.dpl.rule import Match, Rejection
    from dplcli.ir import Value


# Normalisations written in parts: layer, instance and root-mean-square normalisation.
#
# The patterns name what is normalised ``x``, the reductions ``mean`` and ``square_mean`` or
# ``variance``, and where they are there ``scale``, ``bias`` and ``eps``; ``y`` is the result.


_DTYPES = ("float32", "float16")
"""Element types whose statistics the standard takes in float32, as the operators do."""

_FIRST_SPATIAL_AXIS = 2
_IMAGE_RANK = 4


class _Normalized(NamedTuple):
    """What is normalised, and along which of its axes.

    Attributes:
        x: The value.
        dtype: Its element type.
        shape: Its dimensions; None are those not known as numbers.
        axes: The axes that the statistics are taken along, in order, from 0 on.
        epsilon: What is added to the variance.
    """

    x: Value
    dtype: str
    shape: tuple[int | None, ...]
    axes: tuple[int, ...]
    epsilon: float

    def number(self, number: float) -> np.generic:
        """Return *number* in the element type."""
        made: np.generic = np.dtype(self.dtype).type(number)
        return made

    @property
    def is_suffix(self) -> bool:
        """Whether the axes are the last ones."""
        rank = len(self.shape)
        return self.axes == tuple(range(rank - len(self.axes), rank))

    @property
    def dims(self) -> tuple[int, ...] | None:
        """The dimensions of those axes; None if one is not known."""
        dims = tuple(dim for axis in self.axes if (dim := self.shape[axis]) is not None)
        return dims if len(dims) == len(self.axes) else None


def layer_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Normalise along the last axes, and scale and shift there."""
    found = _normalized(match)
    scale, bias = match.value("scale"), match.value("bias")
    if not found.is_suffix:
        return match.reject("the axes are not the last ones", at=found.x)
    is_plain = scale is None and bias is None
    if is_plain and len(found.shape) >= _IMAGE_RANK and found.axes[0] == _FIRST_SPATIAL_AXIS:
        return match.reject("InstanceNormalization says the same", at=found.x)
    dims = found.dims
    if dims is None:
        return match.reject("a dimension that is normalised is not known", at=found.x)
    given = _fitted(build, scale, dims, found.number(1))
    shift = None if bias is None else _fitted(build, bias, dims, found.number(0))
    if given is None or (bias is not None and shift is None):
        return match.reject(f"scale and bias must fit into {list(dims)}", at=found.x)
    axis, epsilon = -len(dims), found.epsilon
    return build.op("LayerNormalization", found.x, given, shift, axis=axis, epsilon=epsilon)


def rms_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Divide by the root mean square along the last axes, and scale there."""
    found = _normalized(match)
    if not found.is_suffix:
        return match.reject("the axes are not the last ones", at=found.x)
    dims = found.dims
    if dims is None:
        return match.reject("a dimension that is normalised is not known", at=found.x)
    scale = _fitted(build, match.value("scale"), dims, found.number(1))
    if scale is None:
        return match.reject(f"the scale must fit into {list(dims)}", at=found.x)
    axis, epsilon = -len(dims), found.epsilon
    return build.op("RMSNormalization", found.x, scale, axis=axis, epsilon=epsilon)


def instance_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Normalise along the spatial axes, and scale and shift each channel."""
    found = _normalized(match)
    if not found.is_suffix or found.axes[0] != _FIRST_SPATIAL_AXIS:
        return match.reject("the axes are not the spatial ones", at=found.x)
    channels = found.shape[1]
    if channels is None:
        return match.reject("the number of channels is not known", at=found.x)
    rank = len(found.shape)
    is_plain = match.value("scale") is None and match.value("bias") is None
    if is_plain and rank < _IMAGE_RANK:
        return match.reject("LayerNormalization says the same of a sequence", at=found.x)
    scale = per_channel(build, match.value("scale"), channels, rank, found.number(1))
    bias = per_channel(build, match.value("bias"), channels, rank, found.number(0))
    if scale is None or bias is None:
        return match.reject("scale and bias must be constants, one number per channel", at=found.x)
    return build.op("InstanceNormalization", found.x, scale, bias, epsilon=found.epsilon)


def _normalized(match: Match) -> _Normalized:
    """Read the match.

    Raises:
        BuildError: It cannot be used.
    """
    x, y, eps = (value_called(match, name) for name in ("x", "y", "eps"))
    dtype, shape = dtype_of(x), static_shape(x)
    if dtype is None or shape is None:
        raise BuildError("the element type or the rank is not known")
    if dtype not in _DTYPES:
        raise BuildError(f"statistics of {dtype} would be taken in float32")
    others = [y, *(value for name in ("scale", "bias") if (value := match.value(name)))]
    if any(dtype_of(other) != dtype for other in others):
        raise BuildError(f"scale, bias or result are not known to be {dtype}, as the input is")
    axes = _axes(match, len(shape))
    if axes is None:
        raise BuildError("the statistics are not taken along the same known axes")
    epsilon = eps.constant
    if epsilon is None or epsilon.size != 1:
        raise BuildError("epsilon is not one number")
    return _Normalized(x, dtype, shape, axes, float(epsilon.numpy().item()))


def _axes(match: Match, rank: int) -> tuple[int, ...] | None:
    """Return the axes of all reductions; None if they differ, or are not known or not there."""
    found: set[tuple[int, ...]] = set()
    for name in ("mean", "variance", "square_mean"):
        node = match.node(name)
        if node is None or node.op_type != "ReduceMean":
            continue
        axes = parameter_of(node, "axes")
        if axes is None or axes.ref or not isinstance(axes.value, tuple):
            return None
        numbers = [axis + rank if axis < 0 else axis for axis in axes.value]
        found.add(tuple(sorted(numbers)))
    if len(found) != 1:
        return None
    (numbers_of_all,) = found
    is_sound = bool(numbers_of_all) and len(set(numbers_of_all)) == len(numbers_of_all)
    return numbers_of_all if is_sound else None


def _fitted(
    build: GraphBuilder, given: Value | None, dims: tuple[int, ...], neutral: np.generic
) -> Operand | None:
    """Return scale or bias in exactly the shape *dims*; None if it cannot have it.

    What is missing becomes a constant of the *neutral* number; a constant that broadcasts is
    spread out.
    """
    if given is None:
        return build.constant(np.full(dims, neutral))
    if static_shape(given) == dims:
        return given
    tensor = given.constant
    if tensor is None:
        return None
    data = tensor.numpy()
    extra = max(data.ndim - len(dims), 0)
    if any(dim != 1 for dim in data.shape[:extra]):
        return None
    data = data.reshape(data.shape[extra:])
    wanted = dims[len(dims) - data.ndim :]
    if any(data.shape[axis] not in (1, dim) for axis, dim in enumerate(wanted)):
        return None
    return build.constant(np.broadcast_to(data, dims).copy())


def per_channel(
    build: GraphBuilder, given: Value | None, channels: int, rank: int, neutral: np.generic
) -> Operand | None:
    """Return scale or bias as a vector over the channels (axis 1 of *rank*); None if it is none.

    What is missing becomes a constant of the *neutral* number.
    """
    if given is None:
        return build.constant(np.full((channels,), neutral))
    tensor = given.constant
    if tensor is None or len(tensor.shape) > rank:
        return None
    full = (1,) * (rank - len(tensor.shape)) + tensor.shape
    if full[1] not in (1, channels) or any(dim != 1 for dim in (full[0], *full[2:])):
        return None
    return build.constant(np.broadcast_to(tensor.numpy().reshape(-1), (channels,)).copy())


# Group normalisation written as instance normalisation of a reshaped value.
#
# Before: ``Reshape(InstanceNormalization(Reshape(x, [0, G, -1]), ones, zeros), Shape(x))``, times a
# scale and plus a bias for each channel.
# After: ``GroupNormalization(x, scale, bias, num_groups=G)``
# Holds when: the first Reshape keeps the batch and makes G groups of whole channels; the second one
# gives x its shape back; scale and bias are constants of one number per channel.
# Numerics: statistics are in float32, also where float16 had its own before.


_LEAST_RANK = 3


def group_normalization(match: Match, build: GraphBuilder) -> NewValue | Rejection:
    """Normalise groups of channels."""
    x, groups, whole, ones = (
        value_called(match, name) for name in ("x", "groups", "whole", "ones")
    )
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
    shape = None if whole.producer is None else input_of(whole.producer, 1)
    source = None if shape is None else node_of(behind_identities(shape), "Shape")
    if source is None or source.inputs[0] is None:
        return False
    start = attribute_of(source, "start")
    is_part = "end" in source.attributes or (start is not None and (start.ref or start.value))
    return not is_part and behind_identities(source.inputs[0]) is behind_identities(x)


def _target(reshaped: Value) -> list[int] | None:
    """Return the constant that a Reshape is told to make, where 0 means to copy."""
    node = reshaped.producer
    shape = None if node is None else input_of(node, 1)
    if node is None or shape is None:
        return None
    allowzero = attribute_of(node, "allowzero")
    tensor = behind_identities(shape).constant
    if tensor is None or (allowzero is not None and (allowzero.ref or allowzero.value)):
        return None
    numbers: list[int] = tensor.numpy().tolist()
    return numbers
