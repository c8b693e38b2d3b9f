"""Bring nodes that were put back into the order in which they were."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from dplcli.ir.traversal import captured_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dplcli.ir import Graph, Node
    from dplcli.passes.call_records import CallRecord


def original_places(graph: Graph, records: Mapping[Node, CallRecord]) -> dict[str, int]:
    """Work out where each node was before the calls took the place of some.

    From the last node to the first, each takes the highest place that is still free; a call
    besides takes the places of the other nodes that it stands for, which its record gives
    relative to its last one.

    Args:
        graph: The graph with its calls.
        records: What the calls of one partition say, chosen or not.

    Returns:
        Places by the names of what is made there; empty if no record says where anything was, so
        that everything may stay where it is.
    """
    if not any(record.has_places for record in records.values()):
        return {}
    return _Places(graph, records).work_out()


class _Places:
    def __init__(self, graph: Graph, records: Mapping[Node, CallRecord]) -> None:
        self.nodes = list(graph)
        self.records = records
        self.places: dict[str, int] = {}
        self.taken: set[int] = set()
        self.present = {
            output.name
            for node in self.nodes
            if node not in records
            for output in node.outputs
            if output is not None
        }
        moved = {name for record in records.values() for name in record.moved}
        self.waiting: dict[str, Node] = {}
        for node in self.nodes:
            self.waiting.update(dict.fromkeys(self._names(node) & moved, node))
        inner = sum(len(record.entries) + len(record.constants) for record in records.values())
        self.free = len(self.nodes) + inner

    def work_out(self) -> dict[str, int]:
        later = set(self.waiting.values())
        for node in reversed(self.nodes):
            if node not in later:
                self._place(node)
        for node in reversed(self.nodes):
            if node in later and not self._names(node) & self.places.keys():
                self._place(node)
        return self.places

    def _names(self, node: Node) -> set[str]:
        """Name what *node* makes, or the last node that it stands for."""
        record = self.records.get(node)
        if record is not None:
            return set(record.entries[record.last].outputs) - {""}
        return {output.name for output in node.outputs if output is not None}

    def _place(self, node: Node) -> None:
        pending = [(node, self.free)]
        while pending:
            current, wanted = pending.pop()
            last = self._highest(wanted)
            self._take(last, self._names(current))
            record = self.records.get(current)
            if record is None:
                continue
            self._place_others(record, last)
            pending += [
                (self.waiting[name], last - offset)
                for name, offset in record.moved.items()
                if name in self.waiting and name not in self.places
            ]

    def _place_others(self, record: CallRecord, last: int) -> None:
        for number, entry in sorted(
            enumerate(record.entries), key=lambda item: record.offset(item[0])
        )[1:]:
            names = set(entry.outputs) - {""}
            if not names & self.present:
                self._take_near(last - record.offset(number), names)
        for name, constant in record.constants.items():
            if constant.at is not None and name not in self.present:
                self._take_near(last - constant.at, {name})

    def _take_near(self, place: int, names: Collection[str]) -> None:
        if not any(name in self.places for name in names):
            self._take(self._highest(place), names)

    def _take(self, place: int, names: Collection[str]) -> None:
        self.taken.add(place)
        for name in names:
            self.places.setdefault(name, place)

    def _highest(self, place: int) -> int:
        """Return the highest free place that is not above *place*."""
        while place in self.taken:
            place -= 1
        if place == self.free:
            self.free -= 1
        return place


def arrange(graph: Graph, places: Mapping[str, int]) -> None:
    """Put the nodes of *graph* in the order of *places*, as far as what they read allows.

    A node that makes nothing there is a place for stays with the one behind it.
    """
    wanted = _wanted(graph, places)
    readers: dict[Node, list[Node]] = {node: [] for node in wanted}
    missing: dict[Node, int] = {}
    for node in wanted:
        read = [value for value in (*node.inputs, *captured_values(node)) if value is not None]
        makers = {v.producer for v in read if v.graph is graph and v.producer is not None}
        missing[node] = len(makers)
        for maker in makers:
            readers[maker].append(node)
    ready = [(wanted[node], rank, node) for rank, node in enumerate(wanted) if not missing[node]]
    ranks = {node: rank for rank, node in enumerate(wanted)}
    heapq.heapify(ready)
    ordered = []
    while ready:
        *_, node = heapq.heappop(ready)
        ordered.append(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (wanted[reader], ranks[reader], reader))
    if ordered != list(wanted):
        graph.arrange(ordered)
        graph.modified = True


def _wanted(graph: Graph, places: Mapping[str, int]) -> dict[Node, int]:
    """Return the place of each node, in the present order."""
    behind = max(places.values(), default=0) + 1
    wanted: list[tuple[Node, int]] = []
    for node in reversed(graph):
        names = [output.name for output in node.outputs if output is not None]
        behind = next((places[name] for name in names if name in places), behind)
        wanted.append((node, behind))
    return dict(reversed(wanted))
