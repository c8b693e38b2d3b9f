"""From pairs of nodes to pairs of their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.diff.bridging import bridges
from dplcli.diff.pairing import DETAILS
from dplcli.diff.reading import is_commutative, readers, slots

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from dplcli.diff.pairing import NodePair, Pairing, ValuePair
    from dplcli.diff.side import Side
    from dplcli.ir import Node, Value

_VOTE = 2
"""What a neighbour's word weighs; what the nodes themselves have in common weighs one a level."""


class Growth:
    """Pairs nodes because their neighbours are pairs.

    Attributes:
        bridging: Whether to look past nodes that only one graph has where nothing else helps.
        steps: How many neighbours were looked at, for tests of growth.
    """

    def __init__(self, pairing: Pairing) -> None:
        """Grow *pairing*."""
        self.pairing = pairing
        self.bridging = False
        self.steps = 0

    def from_interface(self) -> None:
        """Grow from the inputs and outputs, and from all pairs there are."""
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        proposed = [pair for values in pairing.inputs for pair in self._of_readers(values)]
        for one, other in pairing.outputs:
            proposed += self._of_makers((first.outputs[one], second.outputs[other]))
        self.run([*self._choose(proposed), *pairing.forth.items()])

    def run(self, pairs: Iterable[NodePair]) -> None:
        """Grow from *pairs*, which are partners already, round by round."""
        frontier = list(pairs)
        stalled: list[NodePair] = []
        while frontier and not self.pairing.is_complete():
            stalled += frontier
            frontier = self._choose([near for pair in frontier for near in self._near(pair)])
            if not frontier and self.bridging:
                self.steps += len(stalled)
                found = (near for pair in stalled for near in bridges(self.pairing, pair))
                frontier, stalled = self._choose(found), []

    def _near(self, pair: NodePair) -> Iterator[NodePair]:
        """Iterate over what could be partners if *pair* are."""
        first, second = pair
        if is_commutative(first):
            yield from self._of_operands(pair)
        else:
            for values in zip(slots(first), slots(second), strict=False):
                yield from self._of_makers(values)
        for outputs in zip(first.outputs, second.outputs, strict=False):
            if outputs[0] is not None and outputs[1] is not None:
                yield from self._of_readers((outputs[0], outputs[1]))

    def _of_makers(self, values: tuple[Value | None, Value | None]) -> Iterator[NodePair]:
        """Propose the nodes that make two values that should be one."""
        self.steps += 1
        first, second = (
            None if value is None else self._free_maker(value, side)
            for value, side in zip(values, self.pairing.sides, strict=True)
        )
        if first is None or second is None or values[0] is None or values[1] is None:
            return
        if self._label(0, first) == self._label(1, second) and values[0].index == values[1].index:
            yield first, second

    def _of_operands(self, pair: NodePair) -> Iterator[NodePair]:
        """Propose the nodes that make operands whose place does not matter, if it is clear."""
        makers: tuple[list[Node], list[Node]] = ([], [])
        for which, node in enumerate(pair):
            side = self.pairing.sides[which]
            found = [self._free_maker(v, side) for v in slots(node) if v is not None]
            makers[which].extend(dict.fromkeys(maker for maker in found if maker is not None))
            self.steps += len(node.inputs)
        keyed = tuple([(node, 0) for node in nodes] for nodes in makers)
        yield from self._clear_pairs(keyed[0], keyed[1])

    def _of_readers(self, values: ValuePair) -> Iterator[NodePair]:
        """Propose the nodes that read two values that are one, where it is clear which."""
        found: list[list[tuple[Node, int]]] = []
        for value, side in zip(values, self.pairing.sides, strict=True):
            all_readers = list(readers(value, side.graph))
            self.steps += len(all_readers)
            free = [item for item in all_readers if not self.pairing.is_paired(item[0])]
            found.append(list(dict.fromkeys(free)))
        yield from self._clear_pairs(found[0], found[1])

    def _clear_pairs(
        self, first: list[tuple[Node, int]], second: list[tuple[Node, int]]
    ) -> Iterator[NodePair]:
        """Pair what has one counterpart: in every detail, else but for data, else by operator."""
        for detail in DETAILS:
            if not first or not second:
                return
            groups: dict[Hashable, tuple[list[Node], list[Node]]] = {}
            for which, items in enumerate((first, second)):
                local = self.pairing.sides[which].local(detail)
                for node, slot in items:
                    groups.setdefault((local[node], slot), ([], []))[which].append(node)
            taken: set[Node] = set()
            for one, other in groups.values():
                if len(one) == 1 and len(other) == 1:
                    yield one[0], other[0]
                    taken |= {one[0], other[0]}
            first = [item for item in first if item[0] not in taken]
            second = [item for item in second if item[0] not in taken]

    def _choose(self, proposed: Iterable[NodePair]) -> list[NodePair]:
        """Make the best of the proposed pairs partners; the order of the models plays no part."""
        votes: dict[NodePair, int] = {}
        for pair in proposed:
            votes[pair] = votes.get(pair, self._likeness(pair)) + _VOTE
        place = self.pairing.place
        chosen = []
        for pair in sorted(votes, key=lambda pair: (-votes[pair], *place(pair))):
            if not any(map(self.pairing.is_paired, pair)):
                self.pairing.add(*pair)
                chosen.append(pair)
        return chosen

    def _likeness(self, pair: NodePair) -> int:
        sides = self.pairing.sides
        for weight, detail in enumerate(DETAILS):
            if sides[0].local(detail)[pair[0]] == sides[1].local(detail)[pair[1]]:
                return len(DETAILS) - weight
        return 0

    def _free_maker(self, value: Value, side: Side) -> Node | None:
        """Return the node of the graph that makes *value*, unless it has a partner."""
        maker = value.producer
        if maker is None or maker not in side.position or self.pairing.is_paired(maker):
            return None
        return maker

    def _label(self, which: int, node: Node) -> object:
        return self.pairing.sides[which].reader.label(node)
