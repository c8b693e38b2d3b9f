"""Where in a graph the calls of regions go: all nodes stay in order, as far as that can be."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.traversal import captured_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Node


class Place(NamedTuple):
    """Where the nodes of a set were, seen from the last one of them.

    Attributes:
        offsets: How many nodes before the last one each was.
        moved: By first output, the nodes that now follow the set though they stood before its
            last node, and how many nodes before that.
    """

    offsets: tuple[int, ...]
    moved: dict[str, int]

    @property
    def is_row(self) -> bool:
        """Whether the nodes stood in one row."""
        return self.offsets == tuple(reversed(range(len(self.offsets))))


def arranged(
    nodes: Sequence[Node], sets: Sequence[Sequence[Node]]
) -> tuple[list[Node], dict[Node, Place]]:
    """Bring the nodes of a graph into an order in which each set stands in one row.

    Each set goes where its last node is; what has to follow one goes right behind it.

    Args:
        nodes: The nodes, in topological order.
        sets: Sets that can be contracted without a cycle, each in that order.

    Returns:
        The order, and by its last node the place of each set.
    """
    rank = {node: number for number, node in enumerate(nodes)}
    unit = {node: members[-1] for members in sets for node in members}
    rows = {members[-1]: members for members in sets}
    makers: dict[Node, set[Node]] = {}
    for node in nodes:
        last = unit.get(node, node)
        made_by = {unit.get(maker, maker) for maker in _makers(node) if maker in rank}
        makers.setdefault(last, set()).update(made_by - {last})
    readers: dict[Node, list[Node]] = {node: [] for node in makers}
    for node, made_by in makers.items():
        for maker in made_by:
            readers[maker].append(node)
    places = {
        last: Place(tuple([rank[last] - rank[node] for node in members]), {})
        for last, members in rows.items()
    }
    missing = {node: len(made_by) for node, made_by in makers.items()}
    ready = [rank[node] for node, count in missing.items() if not count]
    heapq.heapify(ready)
    order: list[Node] = []
    latest: Node | None = None
    while ready:
        node = nodes[heapq.heappop(ready)]
        if latest is not None and rank[node] < rank[latest]:
            name = next((out.name for out in node.outputs if out is not None), "")
            places[latest].moved[name] = rank[latest] - rank[node]
        elif node in rows:
            latest = node
        order += rows.get(node, (node,))
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, rank[reader])
    return order, places


def _makers(node: Node) -> set[Node]:
    """Return what makes the values that *node* or a body of it reads, in whatever graph."""
    read = (*node.inputs, *captured_values(node)) if node.subgraphs else node.inputs
    return {value.producer for value in read if value is not None and value.producer is not None}
