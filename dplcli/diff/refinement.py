"""Tell nodes without a partner apart by what lies around them.

Colours are refined round by round (B. Weisfeiler and A. Leman, 1968): a node's colour says what
its neighbours are, then what theirs are, and so on. A neighbour that has a partner is its own
colour, so that an edit is seen from close by only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.diff.reading import is_commutative, readers, slots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.diff.pairing import Pairing
    from dplcli.diff.side import Detail, Side
    from dplcli.ir import Node, Value

    Colours = tuple[Mapping[Node, int], Mapping[Node, int]]

ROUNDS = 3
_BEYOND = -1


def refine(
    pairing: Pairing,
    nodes: tuple[list[Node], list[Node]],
    detail: Detail,
) -> list[Colours]:
    """Colour *nodes*, which have no partner, by their neighbours up to each distance.

    Args:
        pairing: The pairs there are.
        nodes: The nodes of the first and of the second graph.
        detail: How much of a node counts.

    Returns:
        The colours of the first and of the second graph after each round, none first.
    """
    firsts, seconds = (
        _rounds(pairing, which, nodes[which], detail) for which in range(len(pairing.sides))
    )
    return list(zip(firsts, seconds, strict=True))


def _rounds(
    pairing: Pairing, which: int, nodes: list[Node], detail: Detail
) -> list[dict[Node, int]]:
    side, returned = pairing.sides[which], pairing.returned(which)
    local = side.local(detail)
    colours = {node: local[node] for node in nodes}
    found = [colours]
    for _ in range(ROUNDS):
        view = _View(pairing, side, colours, returned, detail)
        colours = {node: view.colour(node) for node in nodes}
        found.append(colours)
    return found


class _View:
    """What the nodes see of each other in one round."""

    def __init__(
        self,
        pairing: Pairing,
        side: Side,
        colours: Mapping[Node, int],
        returned: Mapping[Value, list[int]],
        detail: Detail,
    ) -> None:
        self.pairing = pairing
        self.side = side
        self.colours = colours
        self.returned = returned
        self.detail = detail

    def colour(self, node: Node) -> int:
        """Return the colour of *node* after this round."""
        inputs = [(0, 0) if value is None else self._source(value) for value in slots(node)]
        if is_commutative(node):
            inputs.sort()
        uses = []
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            uses += [
                (index, slot, *self._node(user))
                for user, slot in readers(output, self.side.graph)
                if user in self.side.position
            ]
            uses += [(index, 0, _BEYOND, number) for number in self.returned.get(output, ())]
        return self.side.numbers(("seen", self.colours[node], tuple(inputs), tuple(sorted(uses))))

    def _source(self, value: Value) -> tuple[int, int]:
        maker = value.producer
        if maker is not None and maker in self.side.position:
            kind, number = self._node(maker)
            return kind, self.side.numbers(("made", kind, number, value.index))
        if self.detail == "loose" and self.side.reader.tensor(value) is not None:
            return _BEYOND, _BEYOND
        if self.detail == "alike" and self.side.reader.tensor(value) is not None:
            return _BEYOND, self.side.constant(value, "alike")
        return _BEYOND, self.side.number_of(value, "exact")

    def _node(self, node: Node) -> tuple[int, int]:
        if self.pairing.is_paired(node):
            return 1, self.pairing.number(node)
        return 2, self.colours[node]
