"""Which node, input and output of one graph is which of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dplcli.diff.side import Detail, Side
    from dplcli.ir import Node, Value

    NodePair = tuple[Node, Node]
    ValuePair = tuple[Value, Value]

_SECOND = 1


class Pairing:
    """Partners between two graphs.

    Attributes:
        sides: The two graphs.
        inputs: Inputs that are one.
        outputs: For each pair of outputs: where it stands in the first and in the second graph.
        forth: The partner of a node of the first graph.
        back: The partner of a node of the second graph.
    """

    def __init__(
        self, sides: tuple[Side, Side], inputs: Iterable[ValuePair], outputs: Sequence[Places]
    ) -> None:
        """Start without pairs of nodes."""
        self.sides = sides
        self.inputs = list(inputs)
        self.outputs = outputs
        self.forth: dict[Node, Node] = {}
        self.back: dict[Node, Node] = {}
        self._input_partner = dict(self.inputs)
        self._shared: set[int] | None = None
        self._numbers: dict[Node, int] = {}

    def add(self, first: Node, second: Node) -> None:
        """Make two nodes partners."""
        self._numbers[first] = self._numbers[second] = len(self.forth)
        self.forth[first] = second
        self.back[second] = first

    def is_paired(self, node: Node) -> bool:
        """Tell whether *node*, of either graph, has a partner."""
        return node in self._numbers

    def number(self, node: Node) -> int:
        """Return the number of the pair that *node* belongs to."""
        return self._numbers[node]

    def rest(self) -> tuple[list[Node], list[Node]]:
        """List the nodes of either graph that have no partner, in order."""
        first, second = ([n for n in side.nodes if n not in self._numbers] for side in self.sides)
        return first, second

    def is_complete(self) -> bool:
        """Tell whether one of the graphs has no node left that could be paired."""
        return len(self.forth) == min(len(side.nodes) for side in self.sides)

    def place(self, pair: NodePair) -> tuple[int, int]:
        """Return a key to sort pairs by that is the same whichever graph comes first."""
        one, other = (side.position[n] for side, n in zip(self.sides, pair, strict=True))
        return one + other, abs(one - other)

    def returned(self, which: int) -> Mapping[Value, list[int]]:
        """Return, for each value that a graph returns, numbers for what it is returned as."""
        graph, numbers = self.sides[which].graph, self.sides[which].numbers
        found: dict[Value, list[int]] = {}
        for number, places in enumerate(self.outputs):
            value = graph.outputs[places[which]]
            found.setdefault(value, []).append(numbers(("returned", number)))
        return found

    # -- values ------------------------------------------------------------------------------

    def same_value(self, first: Value | None, second: Value | None) -> bool:
        """Tell whether two values are one: made by partners, or by equal computations."""
        if first is None or second is None:
            return first is second
        if self.resolve(0, first) == self.resolve(_SECOND, second):
            return True
        maker = first.producer
        return (
            maker is not None
            and maker in self.forth
            and self.forth[maker] is second.producer
            and first.index == second.index
        )

    def resolve(self, which: int, value: Value) -> int:
        """Number *value* of one of the graphs, or round it, so that the same ones are equal."""
        side = self.sides[which]
        number = side.number_of(value, "exact")
        maker = value.producer
        if maker is None or number in self._common() or maker not in self._numbers:
            return number
        return side.numbers(("of partners", id(self), self._numbers[maker], value.index))

    def resolver(self, which: int) -> Callable[[Value], int]:
        """Return :meth:`resolve` for one side."""
        return lambda value: self.resolve(which, value)

    def _common(self) -> set[int]:
        """Return the numbers of the values that both graphs compute."""
        if self._shared is None:
            first, second = (
                {
                    side.number_of(output, "exact")
                    for node in side.nodes
                    for output in node.outputs
                    if output is not None
                }
                for side in self.sides
            )
            self._shared = first & second
        return self._shared


Places = tuple[int, int]
"""Where an output stands in the first graph, and in the second."""


def unique_pairs(
    first: Mapping[Node, int], second: Mapping[Node, int], nodes: tuple[list[Node], list[Node]]
) -> list[NodePair]:
    """Pair the nodes whose number only one node of each graph has."""
    classes = grouped(first, second, nodes)
    return [(one[0], other[0]) for one, other in classes if len(one) == 1 and len(other) == 1]


def grouped(
    first: Mapping[Node, int], second: Mapping[Node, int], nodes: tuple[list[Node], list[Node]]
) -> list[tuple[list[Node], list[Node]]]:
    """Group the nodes of both graphs by number, numbers that only one graph has left out."""
    groups: dict[int, tuple[list[Node], list[Node]]] = {}
    for node in nodes[0]:
        groups.setdefault(first[node], ([], []))[0].append(node)
    for node in nodes[1]:
        if second[node] in groups:
            groups[second[node]][1].append(node)
    return [pair for pair in groups.values() if pair[1]]


DETAILS: tuple[Detail, ...] = ("exact", "alike", "loose")
"""From the most to the least that two nodes can have in common."""
