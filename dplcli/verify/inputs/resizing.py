"""Other sizes than those of the seeds, for one case each: smaller ones, larger ones, long ones.

They find what is right for one set of sizes only, for few rows only, or up to a length only. How
much work a run is, and so how large it may be, is estimated: no clock has a say.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from dplcli.ir import operators
from dplcli.verify.inputs.relations import fixed_sizes, tied_sizes
from dplcli.verify.inputs.sizes import (
    IMAGE_RANK,
    Dimensions,
    holds_indices,
    other_sizes,
    shape_of,
    smaller_size,
)
from dplcli.verify.model import Dataflow, Port, numbers_in, stored

_CHEAP = 1 << 25
"""The work up to which a case may have larger sizes than those of the seeds."""

_DEAR = 1 << 33
"""The work from which on a run is dear: that of a billion weights at eight positions."""

_PATCH = 256  # pixels, after the 16 x 16 of vision transformers

_LARGER: Sequence[Mapping[str, int]] = ({"batch": 64, "length": 2}, {"batch": 64}, {"batch": 8})
"""How many times as large sizes are in a larger case; the first that runs."""

_LONG, _LONGEST = 16, 1 << 13
"""Beyond which numbers a length is tried: the smallest and the largest."""

_MOST_BOUNDS = 4
"""How many numbers a bound of sizes has at most, one for each axis."""


class Resizing:
    """The sizes of one model that may be others.

    Args:
        flow: The model.
        ports: Its inputs.
        sizes: Sizes that run.
        given: Sizes that the user chose, which stay.
    """

    def __init__(
        self,
        flow: Dataflow,
        ports: Sequence[Port],
        sizes: Mapping[str, int],
        given: Collection[str],
    ) -> None:
        self._flow, self._ports, self._sizes = flow, ports, sizes
        self._fixed = fixed_sizes(flow)
        kept = {*given, *tied_sizes(flow, ports)}
        roles = Dimensions(ports, sizes).roles
        self._roles = {s: role for s, role in roles.items() if role != "channel" and s not in kept}

    def smaller(self) -> Iterator[dict[str, int]]:
        """Yield smaller sizes: all that are open, only the batch, and all but that."""
        roles = self._roles
        batch = {symbol for symbol, role in roles.items() if role == "batch"}
        for changed in (roles.keys(), batch, roles.keys() - batch):
            others = self._others({s: smaller_size(roles[s], self._sizes[s]) for s in changed})
            if images := [symbol for symbol in changed if roles[symbol] == "image"]:
                # what holds for even sizes need not hold for odd ones
                yield {**others, **{symbol: others[symbol] - 1 for symbol in images}}
            yield others

    def larger(self) -> Iterator[dict[str, int]]:
        """Yield sizes many times as large, where that is little work."""
        for times in _LARGER:
            starts = {s: self._sizes[s] * times[r] for s, r in self._roles.items() if r in times}
            yield from self._cheap(starts)

    def longer(self) -> Iterator[dict[str, int]]:
        """Yield sizes with lengths beyond a number that sizes are compared with, where it is cheap.

        A length that is cut off at 512 shows in no run that is shorter.
        """
        lengths = [symbol for symbol, role in self._roles.items() if role == "length"]
        for bound in sorted(_bounds(self._flow), reverse=True) if lengths else ():
            yield from self._cheap(dict.fromkeys(lengths, bound + 1))

    def _others(self, starts: Mapping[str, int]) -> dict[str, int]:
        return other_sizes(self._ports, self._sizes, starts, self._fixed)

    def _cheap(self, starts: Mapping[str, int]) -> Iterator[dict[str, int]]:
        others = self._others(starts)
        if _work(self._flow, self._ports, others) <= _CHEAP:
            yield others


def _bounds(flow: Dataflow) -> set[int]:
    """Return the whole numbers that sizes may be compared with, or that are a part of one."""
    nodes = [*flow.nodes()]
    measuring = operators.MEASURING | operators.BOUNDED_BY_SIZE
    if measuring.isdisjoint(node.op_type for node in nodes):
        return set()
    bounding = operators.BOUNDING | {"Add", "Sub"}
    values = [v for node in nodes if node.op_type in bounding for v in node.inputs if v]
    arrays = [numbers_in(stored(value)) for value in values]
    return {
        number
        for array in arrays
        if array is not None and array.dtype == np.int64 and array.size <= _MOST_BOUNDS
        for number in array.reshape(-1).tolist()
        if _LONG <= number <= _LONGEST
    }


def is_dear(flow: Dataflow, ports: Sequence[Port], sizes: Mapping[str, int]) -> bool:
    """Tell whether one run takes seconds."""
    return _work(flow, ports, sizes) > _DEAR


def _work(flow: Dataflow, ports: Sequence[Port], sizes: Mapping[str, int]) -> int:
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
    fixed = math.prod(dim for dim in port.shape or () if isinstance(dim, int))
    return math.prod(shape) // (1 if holds_indices(port) else max(fixed, 1))
