"""Look past nodes that only one graph has, where pairs do not grow from neighbour to neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.diff.reading import readers, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.diff.pairing import NodePair, Pairing
    from dplcli.diff.side import Side
    from dplcli.ir import Node

    Step: TypeAlias = Callable[[Side, Node], Iterator[Node]]

_FARTHEST = 3
"""Most nodes that are passed over, in both graphs together."""
_WIDEST = 16
"""Most nodes that are looked at in one distance; where there are more it is not clear anyway."""


def bridges(pairing: Pairing, pair: NodePair) -> Iterator[NodePair]:
    """Propose partners near *pair*, past as few nodes without a partner as possible."""
    for step in (_behind, _before):
        rings = [
            _rings(pairing, side, node, step)
            for side, node in zip(pairing.sides, pair, strict=True)
        ]
        if rings[0][0] and rings[1][0]:
            yield from _nearest(pairing, rings[0], rings[1])


def _nearest(pairing: Pairing, first: list[list[Node]], second: list[list[Node]]) -> list[NodePair]:
    for passed in range(1, _FARTHEST + 1):
        found: list[NodePair] = []
        for ours in range(passed + 1):
            if ours < len(first) and passed - ours < len(second):
                found += _clear(pairing, first[ours], second[passed - ours])
        if found:
            return found
    return []


def _clear(pairing: Pairing, first: list[Node], second: list[Node]) -> Iterator[NodePair]:
    """Pair the nodes of which there is one of a kind."""
    kinds: dict[int, tuple[list[Node], list[Node]]] = {}
    for which, nodes in enumerate((first, second)):
        local = pairing.sides[which].local("loose")
        for node in nodes:
            kinds.setdefault(local[node], ([], []))[which].append(node)
    for one, other in kinds.values():
        if len(one) == 1 and len(other) == 1:
            yield one[0], other[0]


def _rings(pairing: Pairing, side: Side, node: Node, step: Step) -> list[list[Node]]:
    """List the nodes without a partner next to *node*, those next to these, and so on."""
    rings: list[list[Node]] = []
    seen = {node}
    ring = [node]
    for _ in range(_FARTHEST + 1):
        found: dict[Node, None] = {}
        for near in ring:
            for other in step(side, near):
                if other in seen or pairing.is_paired(other):
                    continue
                found[other] = None
                if len(found) > _WIDEST:
                    return [*rings, []]
        seen |= found.keys()
        ring = list(found)
        rings.append(ring)
        if not ring:
            break
    return rings


def _behind(side: Side, node: Node) -> Iterator[Node]:
    for output in node.outputs:
        if output is not None:
            yield from (user for user, _ in readers(output, side.graph) if user in side.position)


def _before(side: Side, node: Node) -> Iterator[Node]:
    for value in slots(node):
        if value is not None and value.producer in side.position:
            yield value.producer
