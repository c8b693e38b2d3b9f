"""Find out which node of one graph is which of the other, by dataflow alone.

What is computed alike from the inputs down is paired first, then what is alike in both
directions but for the data of constants. From there pairs grow to neighbours; where several
would do, what lies around them decides. Names play no part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.diff.growth import Growth
from dplcli.diff.pairing import DETAILS, Pairing, grouped, unique_pairs
from dplcli.diff.reading import slots
from dplcli.diff.refinement import refine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.diff.pairing import NodePair, Places, ValuePair
    from dplcli.diff.side import Detail, Side
    from dplcli.ir import Node

_PASSES = 4
"""How often colours are made anew after they have led to pairs."""
_WORTHWHILE = 32
"""They are only if they have led to one pair for so many nodes."""
_MANY = 16
"""From how many numbers on equal data is no chance."""
_SECOND = 1


def align(
    sides: tuple[Side, Side], inputs: Iterable[ValuePair], outputs: Sequence[Places]
) -> tuple[Pairing, int]:
    """Pair the nodes of two graphs.

    Args:
        sides: The graphs.
        inputs: Their inputs that are one.
        outputs: For each pair of outputs: where it stands in either graph.

    Returns:
        The pairs, and how many neighbours were looked at.
    """
    pairing = Pairing(sides, inputs, outputs)
    growth = Growth(pairing)
    _pair_equal(pairing)
    if pairing.is_complete():
        return pairing, growth.steps
    _pair_alike(pairing)
    growth.from_interface()
    for detail in DETAILS[:2]:
        _pair_by_colour(pairing, growth, detail)
    growth.bridging = True
    growth.from_interface()
    _pair_by_colour(pairing, growth, "loose")
    _pair_in_order(pairing, growth)
    growth.from_interface()
    _pair_by_inputs(pairing)
    _pair_replaced(pairing)
    return pairing, growth.steps


def _pair_equal(pairing: Pairing) -> None:
    """Pair nodes that compute the same; of several, those of which the same becomes."""
    first, second = pairing.sides
    made = (first.made("exact"), second.made("exact"))
    classes = grouped(*made, (first.nodes, second.nodes))
    doubtful: list[tuple[list[Node], list[Node]]] = []
    for one, other in classes:
        if len(one) == 1 and len(other) == 1:
            pairing.add(one[0], other[0])
        else:
            doubtful.append((one, other))
    if not doubtful:
        return
    used = (first.used("exact", pairing.returned(0)), second.used("exact", pairing.returned(1)))
    for nodes in doubtful:
        for one, other in grouped(*used, nodes):
            _pair_all(pairing, zip(one, other, strict=False))
        free = [[n for n in members if not pairing.is_paired(n)] for members in nodes]
        _pair_all(pairing, zip(*free, strict=False))


def _pair_alike(pairing: Pairing) -> None:
    """Pair nodes that alone have what leads to them, or what comes of them, or both."""
    first, second = pairing.sides
    made = (first.made("alike"), second.made("alike"))
    used = (first.used("alike", pairing.returned(0)), second.used("alike", pairing.returned(1)))
    numbers = first.numbers
    both = tuple(
        {node: numbers(("both", made[which][node], used[which][node])) for node in side.nodes}
        for which, side in enumerate(pairing.sides)
    )
    for colours in (both, made, used):
        _pair_all(pairing, unique_pairs(colours[0], colours[1], pairing.rest()))


def _pair_by_colour(pairing: Pairing, growth: Growth, detail: Detail) -> None:
    """Pair nodes that alone look as they do, from the widest view to the narrowest.

    A node seen by itself must hold a weight.
    """
    for _ in range(_PASSES):
        nodes = pairing.rest()
        if not nodes[0] or not nodes[1]:
            return
        before = len(pairing.forth)
        views = refine(pairing, nodes, detail)
        for distance, colours in reversed(list(enumerate(views))):
            found = unique_pairs(*colours, pairing.rest())
            if not distance:
                found = [
                    pair for pair in found if detail == "exact" and _has_weights(pairing, pair)
                ]
            _pair_all(pairing, found)
            growth.run(found)
        if (len(pairing.forth) - before) * _WORTHWHILE < len(nodes[0]) + len(nodes[1]):
            return


def _pair_in_order(pairing: Pairing, growth: Growth) -> None:
    """Pair nodes of which as many look alike in both graphs, first with first and so on."""
    for detail in DETAILS:
        nodes = pairing.rest()
        if not nodes[0] or not nodes[1]:
            return
        colours = refine(pairing, nodes, detail)[-1]
        found = [
            pair
            for one, other in grouped(*colours, nodes)
            if len(one) == len(other)
            for pair in zip(one, other, strict=True)
        ]
        _pair_all(pairing, found)
        growth.run(found)


def _pair_by_inputs(pairing: Pairing) -> None:
    """Pair what is alike and reads the same, whatever becomes of it."""
    nodes = pairing.rest()
    keys = []
    for which, side in enumerate(pairing.sides):
        local = side.local("exact")
        found = {}
        for node in nodes[which]:
            inputs = [-1 if v is None else pairing.resolve(which, v) for v in slots(node)]
            found[node] = side.numbers(("reads", local[node], tuple(inputs)))
        keys.append(found)
    for one, other in grouped(keys[0], keys[1], nodes):
        _pair_all(pairing, zip(one, other, strict=False))


def _pair_replaced(pairing: Pairing) -> None:
    """Pair nodes of different operators that read and give the same in the same places."""
    readers_of = _Places(pairing)
    first, second = pairing.rest()
    places: dict[object, tuple[list[Node], list[Node]]] = {}
    for which, nodes in enumerate((first, second)):
        for node in nodes:
            place = readers_of.place(which, node)
            if place is not None:
                places.setdefault(place, ([], []))[which].append(node)
    _pair_all(pairing, [(a[0], b[0]) for a, b in places.values() if len(a) == 1 and len(b) == 1])


class _Places:
    """Where nodes stand: what they read, and the partners that read what they make."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.returned = (pairing.returned(0), pairing.returned(_SECOND))

    def place(self, which: int, node: Node) -> object | None:
        """Return what can be compared; None unless all that reads *node* has a partner."""
        uses: list[tuple[int, ...]] = []
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            for user, slot in output.iter_uses():
                if not self.pairing.is_paired(user):
                    return None
                uses.append((index, slot, self.pairing.number(user)))
            uses += [(index, -1, number) for number in self.returned[which].get(output, ())]
        if not uses:
            return None
        inputs = [-1 if v is None else self.pairing.resolve(which, v) for v in slots(node)]
        return tuple(inputs), tuple(sorted(uses))


def _has_weights(pairing: Pairing, pair: NodePair) -> bool:
    """Tell whether the nodes hold data that is hardly the same by chance."""
    tensors = [pairing.sides[0].reader.tensor(v) for v in slots(pair[0]) if v is not None]
    return any(tensor is not None and tensor.size >= _MANY for tensor in tensors)


def _pair_all(pairing: Pairing, pairs: Iterable[NodePair]) -> None:
    for pair in pairs:
        pairing.add(*pair)
