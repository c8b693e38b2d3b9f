"""Whether blocks can be single nodes: nothing may be needed by what it needs in turn."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dplcli.passes.repeat_index import body_readers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dplcli.ir import Graph
    from dplcli.passes.repeat_growth import Row
    from dplcli.passes.repeat_index import RepeatIndex

_STEPS_PER_NODE = 8
_LEAST_STEPS = 256
"""How far is walked from one block to see whether a way leads back; else all are seen at once."""


_SCATTERED = 8
"""Where all blocks of a graph span so many times its nodes, they are gathered."""


def places_of(rows: Sequence[Row]) -> list[dict[int, int]]:
    """Return the row of each node, by region."""
    if not rows:
        return []
    return [
        {row[region]: place for place, row in enumerate(rows)} for region in range(len(rows[0]))
    ]


def trim(index: RepeatIndex, rows: list[Row]) -> tuple[list[Row], bool]:
    """Make every block convex by leaving out rows, or blocks, whichever saves more.

    Returns:
        What is left, and whether that was all.
    """
    early: set[int] = set()
    late: set[int] = set()
    bad: set[int] = set()
    unclear: list[int] = []
    all_places = places_of(rows)
    for number, places in enumerate(all_places):
        found = _detours(index, places, _LEAST_STEPS + _STEPS_PER_NODE * len(places))
        if found is None:
            unclear.append(number)
            continue
        entries, exits = found
        if entries:
            bad.add(number)
            late |= {places[node] for node in _closure(index, entries, places, up=False)}
            early |= {places[node] for node in _closure(index, exits, places, up=True)}
    if unclear:
        groups = {node: number for number in unclear for node in all_places[number]}
        bad |= _stuck(index, groups)
    if not bad:
        return rows, True
    without = [tuple(n for number, n in enumerate(row) if number not in bad) for row in rows]
    if not late:
        return without, True
    smaller = late if len(late) <= len(early) else early
    trimmed = [row for place, row in enumerate(rows) if place not in smaller]
    if _saving(without) > _saving(trimmed):
        return without, True
    return trimmed, False


def _saving(rows: Sequence[Row]) -> int:
    return len(rows) * (len(rows[0]) - 1) if rows and rows[0] else 0


def _detours(
    index: RepeatIndex, places: Mapping[int, int], steps: int
) -> tuple[set[int], set[int]] | None:
    """Return the nodes that what leaves the block comes back to, and those that it leaves from.

    None if that takes more than so many *steps* outside the block.
    """
    last = max(places)
    came_from: dict[int, list[int]] = {}
    pending = list(places)
    while pending:
        node = pending.pop()
        steps -= node not in places
        if steps < 0:
            return None
        for user in readers_of(index, node):
            if user > last or (user in places and node in places):
                continue
            if user not in came_from and user not in places:
                pending.append(user)
            came_from.setdefault(user, []).append(node)
    entries = {node for node in came_from if node in places}
    return entries, _left_from(came_from, entries, places)


def _left_from(
    came_from: Mapping[int, Sequence[int]], entries: set[int], places: Mapping[int, int]
) -> set[int]:
    """Return the nodes of the block from which ways outside lead to *entries*."""
    exits: set[int] = set()
    behind, seen = list(entries), set(entries)
    while behind:
        for maker in came_from.get(behind.pop(), ()):
            if maker in places:
                exits.add(maker)
            elif maker not in seen:
                seen.add(maker)
                behind.append(maker)
    return exits


def readers_of(index: RepeatIndex, node: int) -> list[int]:
    """List the nodes of the same graph that read what *node* makes, bodies included."""
    found = [user for _, _, user in index.readers[node]]
    if index.shown[node]:
        found += [index.numbers[user] for user in body_readers(index.nodes[node])]
    return found


def _closure(
    index: RepeatIndex, starts: Collection[int], inside: Collection[int], *, up: bool
) -> set[int]:
    """Return *starts* and all that they need (*up*), or that needs them, of what is inside."""
    found = set(starts)
    pending = list(starts)
    while pending:
        node = pending.pop()
        if up:
            near = [maker[0] for maker in index.makers[node] if maker is not None]
        else:
            near = [user for _, _, user in index.readers[node]]
        fresh = [other for other in near if other in inside and other not in found]
        found.update(fresh)
        pending += fresh
    return found


def acyclic(index: RepeatIndex, rows: Sequence[Row], claimed: dict[int, int]) -> list[Row]:
    """Leave out blocks until the model has no cycle if all of them, and the claimed, are nodes."""
    rows = list(rows)
    while rows and rows[0]:
        groups = dict(claimed)
        groups.update((node, -1 - number) for row in rows for number, node in enumerate(row))
        stuck = {group for group in _stuck(index, groups) if group < 0}
        if not stuck:
            return rows
        keep = max(stuck) if len(stuck) > 1 else None
        out = {-1 - group for group in stuck if group != keep}
        rows = [tuple(n for number, n in enumerate(row) if number not in out) for row in rows]
    return []


def gathered(index: RepeatIndex, blocks: Sequence[Sequence[Row]]) -> list[list[int]]:
    """Order the nodes of each graph so that those of a block follow each other, as its rows do.

    Args:
        index: The graphs.
        blocks: The kinds of blocks, which form no cycle.

    Returns:
        The nodes of each graph that blocks are scattered over, or in which equal blocks are in
        different order; of the others nothing.
    """
    members = [list(block) for rows in blocks for block in zip(*rows, strict=True)]
    spans: dict[Graph, int] = {}
    unordered: set[Graph] = set()
    for block in members:
        graph = index.nodes[block[0]].graph
        spans[graph] = spans.get(graph, 0) + max(block) - min(block)
        if block != sorted(block):
            unordered.add(graph)
    scattered = {graph for graph, span in spans.items() if span > _SCATTERED * graph.node_count}
    if not scattered | unordered:
        return []
    group_of = {node: block for block in members for node in block}
    orders = []
    for graph in scattered | unordered:
        first = index.numbers[next(iter(graph))]
        numbers = range(first, first + graph.node_count)
        orders.append(_gathered(index, numbers, group_of))
    return sorted(orders)


def _gathered(
    index: RepeatIndex, numbers: Sequence[int], group_of: Mapping[int, list[int]]
) -> list[int]:
    """Sort the nodes of one graph; each group is as late as its last node, if it can be."""
    owner = {node: max(group_of[node]) if node in group_of else node for node in numbers}
    below: dict[int, set[int]] = {}
    missing = dict.fromkeys(owner.values(), 0)
    for node in numbers:
        for user in readers_of(index, node):
            users = below.setdefault(owner[node], set())
            if owner[user] != owner[node] and owner[user] not in users:
                users.add(owner[user])
                missing[owner[user]] += 1
    ready = [group for group, count in missing.items() if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        group = heappop(ready)
        order += group_of.get(group, [group])
        for user in below.get(group, ()):
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, user)
    return order


def _stuck(index: RepeatIndex, groups: dict[int, int]) -> set[int]:
    """Return the groups that lie on a cycle, or between cycles, if each were a single node."""
    size = len(index)
    names = {group: size + number for number, group in enumerate(dict.fromkeys(groups.values()))}
    owner = [names[groups[node]] if node in groups else node for node in range(size)]
    below: dict[int, set[int]] = {}
    for node in range(size):
        for user in readers_of(index, node):
            if owner[user] != owner[node]:
                below.setdefault(owner[node], set()).add(owner[user])
    remaining = _prune(below)
    above: dict[int, set[int]] = {}
    for node, users in below.items():
        for user in users:
            if node in remaining and user in remaining:
                above.setdefault(user, set()).add(node)
    remaining = _prune(above) if remaining else set()
    return {group for group, name in names.items() if name in remaining}


def _prune(edges: dict[int, set[int]]) -> set[int]:
    """Return what is left if what nothing leads to is taken away, again and again."""
    count: dict[int, int] = dict.fromkeys(edges, 0)
    for users in edges.values():
        for user in users:
            count[user] = count.get(user, 0) + 1
    free = [node for node, number in count.items() if not number]
    while free:
        node = free.pop()
        del count[node]
        for user in edges.get(node, ()):
            count[user] -= 1
            if not count[user]:
                free.append(user)
    return set(count)
