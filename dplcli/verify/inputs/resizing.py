"""Other sizes than those of the seeds, for one case each: smaller ones, larger ones, long ones.

They find what is right for one set of sizes only, for few rows only, or up to a length only.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dplcli.ir import operators
from dplcli.verify.inputs.relations import fixed_sizes, tied_sizes
from dplcli.verify.inputs.sizes import Dimensions, Role, other_sizes, smaller_size
from dplcli.verify.inputs.work import CHEAP, work_of
from dplcli.verify.model import Dataflow, Port, numbers_in, stored

_LARGER: Sequence[Mapping[Role, int]] = ({"batch": 64, "length": 2}, {"batch": 64}, {"batch": 8})
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
        given: Mapping[str, int],
    ) -> None:
        self._flow, self._ports, self._sizes = flow, ports, sizes
        self._fixed = fixed_sizes(flow)
        roles = Dimensions(ports, sizes).roles
        kept = given.keys() | tied_sizes(flow, ports)
        self._roles = {s: role for s, role in roles.items() if role != "channel" and s not in kept}

    def smaller(self) -> Iterator[dict[str, int]]:
        """Yield smaller sizes: all that are open, only the batch, and all but that."""
        roles = self._roles
        batch = {symbol for symbol, role in roles.items() if role == "batch"}
        for changed in (roles.keys(), batch, roles.keys() - batch):
            starts = {
                symbol: smaller_size(roles[symbol], self._sizes[symbol]) for symbol in changed
            }
            others = self._others(starts)
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
        for bound in sorted(self._bounds(), reverse=True) if lengths else ():
            yield from self._cheap(dict.fromkeys(lengths, bound + 1))

    def _others(self, starts: Mapping[str, int]) -> dict[str, int]:
        return other_sizes(self._ports, self._sizes, starts, self._fixed)

    def _cheap(self, starts: Mapping[str, int]) -> Iterator[dict[str, int]]:
        others = self._others(starts)
        if work_of(self._flow, self._ports, others) <= CHEAP:
            yield others

    def _bounds(self) -> set[int]:
        """Return the whole numbers that sizes may be compared with, or that are a part of one."""
        nodes = [*self._flow.nodes()]
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
