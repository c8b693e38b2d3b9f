"""Decide which rows of regions that have grown round equal nodes become a block.

Blocks are disjoint, each is connected, and none is needed by a node that it needs in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.passes.repeat_index import is_constant
from dplcli.passes.repeat_names import count_at_home, find_scopes
from dplcli.passes.repeat_order import places_of, trim

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.ir import Value
    from dplcli.passes.repeat_growth import Growth, Row
    from dplcli.passes.repeat_index import RepeatIndex

_ASKED = 24
"""How many regions are asked for names."""

_TRIMS = 4
"""How often what was trimmed is looked at again."""


def cut_blocks(index: RepeatIndex, growth: Growth) -> list[Row]:
    """Return the rows of *growth* that make blocks; none of them if they make no sense.

    Rows are in topological order. Regions that cannot be made blocks are left out of the rows.
    """
    rows = _without_overlap(index, growth)
    rows = _connected(index, _without_lent_constants(index, rows), growth.rows[0])
    for _ in range(_TRIMS):
        if not rows:
            return []
        rows, is_whole = trim(index, rows)
        if is_whole:
            return sorted(rows)
        rows = _connected(index, _without_lent_constants(index, rows), growth.rows[0])
    return []


# -- overlap ----------------------------------------------------------------------------------


def _without_overlap(index: RepeatIndex, growth: Growth) -> list[Row]:
    """Give what is the end of one region and the beginning of the next to one of them.

    Of all ways to cut a sequence of regions, the one with the fewest values across; then the one
    that names speak for; then the latest.
    """
    middle = len(growth.places) // 2
    order = {place: row[middle] for place, row in enumerate(growth.rows)}
    pairs = sorted(
        {tuple(sorted(pair, key=order.__getitem__)) for pair in _conflicts(growth)},
        key=lambda pair: (order[pair[0]], order[pair[1]]),
    )
    if not pairs:
        return growth.rows
    margin = {place for pair in pairs for place in pair}
    core = [growth.rows[place] for place in order if place not in margin] or growth.rows[:1]
    few = range(0, len(growth.places), -(-len(growth.places) // _ASKED))
    scopes = find_scopes([index.nodes[row[number]] for number in few] for row in core)
    home = {
        place: count_at_home([index.nodes[growth.rows[place][number]] for number in few], scopes)
        for place in margin
        if scopes is not None
    }
    best = _best_cut(index, growth, pairs, home, middle)
    left_out = {pair[0] for pair in pairs[:best]} | {pair[1] for pair in pairs[best:]}
    return [row for place, row in enumerate(growth.rows) if place not in left_out]


def _conflicts(growth: Growth) -> set[tuple[int, int]]:
    """List the pairs of rows that share a node."""
    shared = {node for node, count in growth.owners.items() if count > 1}
    rows_of: dict[int, list[int]] = {}
    for region in growth.places:
        for node in shared & region.keys():
            rows_of.setdefault(node, []).append(region[node])
    return {(min(rows), max(rows)) for rows in rows_of.values()}


def _best_cut(
    index: RepeatIndex,
    growth: Growth,
    pairs: Sequence[tuple[int, ...]],
    home: Mapping[int, int],
    middle: int,
) -> int:
    """Return how many of *pairs* go to the end of the earlier region rather than the later's."""
    reasons = dict.fromkeys(range(len(growth.rows)), 0)
    for pair in pairs:
        reasons[pair[1]] += 1
    nodes = [row[middle] for row in growth.rows]
    inside = [nodes[place] for place, count in reasons.items() if not count]
    border = _Border(index, inside)
    score = sum(home.get(place, 0) for place, count in reasons.items() if not count)
    best, best_score = 0, (len(inside), -border.crossing, score)
    kept = len(inside)
    for number, (front, end) in enumerate(pairs, 1):
        for place, change in ((front, 1), (end, -1)):
            before = reasons[place]
            reasons[place] += change
            if bool(before) == bool(reasons[place]):
                continue
            border.toggle(nodes[place])
            kept -= change
            score -= change * home.get(place, 0)
        if (kept, -border.crossing, score) >= best_score:
            best, best_score = number, (kept, -border.crossing, score)
    return best


class _Border:
    """Counts the values that go into and out of a set of nodes, constants aside."""

    def __init__(self, index: RepeatIndex, inside: Iterable[int]) -> None:
        self.index = index
        self.inside: set[int] = set()
        self.reads: dict[Value, int] = {}
        self.crossing = 0
        for node in inside:
            self.toggle(node)

    def toggle(self, number: int) -> None:
        """Put a node in, or take it out."""
        node = self.index.nodes[number]
        touched = {value for value in (*node.inputs, *node.outputs) if value is not None}
        self.crossing -= sum(map(self._crosses, touched))
        step = -1 if number in self.inside else 1
        self.inside ^= {number}
        for value in node.inputs:
            if value is not None:
                self.reads[value] = self.reads.get(value, 0) + step
        self.crossing += sum(map(self._crosses, touched))

    def _crosses(self, value: Value) -> bool:
        if value.is_constant:
            return False
        inner = self.reads.get(value, 0)
        if value.producer is not None and self.index.numbers.get(value.producer) in self.inside:
            return value.use_count > inner or bool(value.returned_by)
        return inner > 0


# -- connection -------------------------------------------------------------------------------


def _without_lent_constants(index: RepeatIndex, rows: list[Row]) -> list[Row]:
    """Leave out Constant nodes that are also read outside their block: those stay inputs."""
    places = places_of(rows)
    return [row for row in rows if not _is_lent(index, row, places)]


def _is_lent(index: RepeatIndex, row: Row, places: Sequence[Mapping[int, int]]) -> bool:
    if not is_constant(index.nodes[row[0]]):
        return False
    return any(
        index.shown[node] or any(user not in region for _, _, user in index.readers[node])
        for node, region in zip(row, places, strict=True)
    )


def _connected(index: RepeatIndex, rows: list[Row], seeds: Row) -> list[Row]:
    """Return the largest part of *rows* that hangs together; that of the seeds among equals."""
    place_of = {row[0]: place for place, row in enumerate(rows)}
    linked: list[list[int]] = [[] for _ in rows]
    for place, row in enumerate(rows):
        for maker in index.makers[row[0]]:
            if maker is not None and maker[0] in place_of:
                linked[place].append(place_of[maker[0]])
                linked[place_of[maker[0]]].append(place)
    best: list[int] = []
    seen: set[int] = set()
    for start in range(len(rows)):
        if start in seen:
            continue
        part, pending = [], [start]
        seen.add(start)
        while pending:
            place = pending.pop()
            part.append(place)
            pending += [near for near in dict.fromkeys(linked[place]) if near not in seen]
            seen.update(linked[place])
        if len(part) > len(best) or (len(part) == len(best) and place_of.get(seeds[0]) in part):
            best = part
    return [rows[place] for place in sorted(best)]
