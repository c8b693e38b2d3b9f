"""How much work a run is, by an estimate that no clock has a say in."""

import math
from collections.abc import Mapping, Sequence

from dplcli.verify.inputs.sizes import IMAGE_RANK, holds_indices, shape_of
from dplcli.verify.model import Dataflow, Port, stored

CHEAP = 1 << 25
"""The work up to which a case may have larger sizes than those of the seeds."""

DEAR = 1 << 33
"""The work from which on a run is dear: that of a billion weights at eight positions."""

_PATCH = 256  # pixels, after the 16 x 16 of vision transformers


def work_of(flow: Dataflow, ports: Sequence[Port], sizes: Mapping[str, int]) -> int:
    """Estimate the multiplications and copies of one run; it may be wrong by ten times.

    Every weight is used once at every position: a row, an index or a patch of an image. Every
    node touches as many elements as the inputs have.
    """
    tensors = (stored(value) for value in flow.values())
    weights = sum(math.prod(tensor.shape) for tensor in tensors if tensor is not None)
    value_count = sum(value.producer is not None for value in flow.values())
    shapes = [shape_of(port, sizes) for port in ports]
    positions = max(map(_positions, ports, shapes), default=1)
    return weights * positions + value_count * sum(map(math.prod, shapes))


def _positions(port: Port, shape: Sequence[int]) -> int:
    """Return at how many rows, indices or patches of an image a model looks."""
    if len(shape) >= IMAGE_RANK:
        return shape[0] * max(math.prod(shape[2:]) // _PATCH, 1)
    if holds_indices(port):
        return math.prod(shape)
    fixed = math.prod(dim for dim in port.shape or () if isinstance(dim, int))
    return math.prod(shape) // max(fixed, 1)
