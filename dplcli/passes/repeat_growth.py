"""Grow equal regions round equal nodes, all at once and edge by edge.

The regions of one growth have the same rows: row *p* of region *i* stands for row *p* of region
*j*, and every wire between two rows is there in all regions or in none. So whatever rows are left
out later, the regions stay equal. Regions may overlap while they grow: where blocks follow each
other it is not known yet where one ends, and :mod:`dplcli.passes.repeat_cut` decides that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.passes.repeat_index import FIXED

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator

    from dplcli.passes.repeat_index import RepeatIndex

Row: TypeAlias = tuple[int, ...]
"""What stands at one place of every region: a node number per region."""

_MANY_READERS = 64
"""A value that so many nodes read is no place to grow through: who is who among them is unclear."""


class Disagreement(NamedTuple):
    """An edge at which the regions could not grow together.

    Attributes:
        groups: The regions (by place) that agree with each other, two and more.
        found: What each region has at the edge; None for nothing.
    """

    groups: list[list[int]]
    found: list[int | None]


class Growth:
    """Regions round *seeds*, as large as they can be.

    Args:
        index: The graphs.
        seeds: One node per region, with equal labels, in order.
        claimed: Nodes that no region may contain.

    Attributes:
        rows: The places of the regions, the seeds' first.
        places: By region, the row of each of its nodes.
        owners: How many regions a node is in.
        touching: Whether two regions met.
        disagreements: Where some of the regions could have grown further.
        work: How many nodes were looked at.
    """

    def __init__(self, index: RepeatIndex, seeds: Row, claimed: Collection[int]) -> None:
        """Grow."""
        self.index = index
        self.claimed = claimed
        self.rows: list[Row] = []
        self.places: list[dict[int, int]] = [{} for _ in seeds]
        self.owners: dict[int, int] = {}
        self.touching = False
        self.disagreements: list[Disagreement] = []
        self.work = 0
        self._seeds = frozenset(seeds)
        self._upwards: deque[tuple[int, int]] = deque()
        self._downwards: deque[tuple[int, int]] = deque()
        self._unclear: deque[tuple[int, int]] = deque()
        self._add(seeds)
        self._grow()

    def _grow(self) -> None:
        """Take every edge once: makers first, for a slot has but one; then readers."""
        while True:
            if self._upwards:
                self._grow_upwards(*self._upwards.popleft())
            elif self._downwards:
                self._grow_downwards(*self._downwards.popleft())
            elif self._unclear:
                self._grow_in_order(*self._unclear.popleft())
            else:
                return

    def _add(self, row: Row) -> None:
        place = len(self.rows)
        self.rows.append(row)
        for region, node in zip(self.places, row, strict=True):
            region[node] = place
            self.owners[node] = self.owners.get(node, 0) + 1
        slots = range(len(self.index.makers[row[0]]))
        self._upwards.extend((place, slot) for slot in slots)
        outputs = range(len(self.index.nodes[row[0]].outputs))
        self._downwards.extend((place, output) for output in outputs)

    # -- upwards -----------------------------------------------------------------------------

    def _grow_upwards(self, place: int, slot: int) -> None:
        makers = [self.index.makers[node] for node in self.rows[place]]
        wires = [of_node[slot] if slot < len(of_node) else None for of_node in makers]
        found = [None if wire is None else wire[0] for wire in wires]
        self.work += len(found)
        if all(node is None for node in found) or self._any_inside(found):
            return
        if self._agrees(found) and len({wire[1] for wire in wires if wire is not None}) == 1:
            self._try([node for node in found if node is not None])

    def _any_inside(self, found: Iterable[int | None]) -> bool:
        return any(
            node in region
            for node, region in zip(found, self.places, strict=True)
            if node is not None
        )

    def _agrees(self, found: list[int | None]) -> bool:
        """Tell whether nodes of one label are found; note who agrees with whom if not."""
        labels = [self._label(node) for node in found]
        if labels.count(labels[0]) == len(labels):
            return labels[0] != FIXED
        self._disagree(labels, found)
        return False

    def _label(self, node: int | None) -> int:
        return FIXED if node is None or node in self.claimed else self.index.labels[node]

    def _disagree(self, keys: Iterable[Hashable], found: list[int | None]) -> None:
        if 2 * sum(node in self._seeds for node in found) >= len(found):
            self.touching = True
        groups: dict[Hashable, list[int]] = {}
        for region, key in enumerate(keys):
            if found[region] is not None and key != FIXED:
                groups.setdefault(key, []).append(region)
        several = [group for group in groups.values() if len(group) > 1]
        if several:
            self.disagreements.append(Disagreement(several, found))

    # -- downwards ---------------------------------------------------------------------------

    def _grow_downwards(self, place: int, output: int) -> None:
        """Follow the readers of an output that only one choice can stand for each other."""
        readers = self._readers(place, output)
        if readers is None or not any(readers):
            return
        if all(len(of_region) == 1 for of_region in readers) and self._is_one_kind(readers):
            self._try([of_region[0][1] for of_region in readers])
            return
        for colours in reversed(self.index.colours):
            for row in list(_alone_of_their_kind(readers, colours)):
                if not self._any_inside(row):
                    self._try(row)
            readers = [
                [(slot, node) for slot, node in of_region if node not in region]
                for of_region, region in zip(readers, self.places, strict=True)
            ]
        if all(readers):
            self._unclear.append((place, output))
        self._note_missing(readers)

    def _is_one_kind(self, readers: list[list[tuple[int, int]]]) -> bool:
        """Tell whether the first readers have one label and read in one slot."""
        labels = self.index.labels
        slot, node = readers[0][0]
        label = labels[node]
        return all(of[0][0] == slot and labels[of[0][1]] == label for of in readers)

    def _note_missing(self, readers: list[list[tuple[int, int]]]) -> None:
        """Note who has a reader of a kind that others lack."""
        labels = self.index.labels
        kinds = dict.fromkeys((labels[n], slot) for each in readers for slot, n in each)
        for kind in kinds:
            found: list[int | None] = [None] * len(readers)
            for region, of_region in enumerate(readers):
                alike = [n for slot, n in of_region if (labels[n], slot) == kind]
                if alike and alike[0] not in self.claimed:
                    found[region] = alike[0]
            if None in found:
                self._disagree([FIXED if node is None else 0 for node in found], found)

    def _readers(self, place: int, output: int) -> list[list[tuple[int, int]]] | None:
        """List what reads an output of a row outside the regions; None where that is too much."""
        readers = []
        for node, region in zip(self.rows[place], self.places, strict=True):
            of_node = self.index.readers[node]
            self.work += 1 + len(of_node)
            if len(of_node) > _MANY_READERS:
                return None
            readers.append([(s, n) for o, s, n in of_node if o == output and n not in region])
        return readers

    def _grow_in_order(self, place: int, output: int) -> None:
        """Let equal readers stand for each other as the file lists them, one pair at a time."""
        readers = self._readers(place, output)
        if readers is None:
            return
        for colours in reversed(self.index.colours):
            for row in _first_of_their_kind(readers, colours):
                if self._try(row):
                    self._unclear.append((place, output))
                    return

    # -- both --------------------------------------------------------------------------------

    def _try(self, row: list[int]) -> bool:
        """Add *row* if its nodes can stand for each other and are wired to the regions alike."""
        self.work += len(row)
        labels = self.index.labels
        label = labels[row[0]]
        if label == FIXED or len(set(row)) < len(row):
            return False
        for node in row:
            if labels[node] != label or node in self.claimed:
                return False
        taken = sum(node in self._seeds or self.owners.get(node, 0) > 1 for node in row)
        if taken:
            self.touching = self.touching or 2 * taken >= len(row)
            return False
        wiring = None
        for node, region in zip(row, self.places, strict=True):
            found = self._wires(node, region)
            if wiring is not None and found != wiring:
                return False
            wiring = found
        self._add(tuple(row))
        return True

    def _wires(self, node: int, region: dict[int, int]) -> tuple[list[object], list[object]]:
        """Return how *node* is wired to the nodes of *region*."""
        index = self.index
        above: list[object] = [
            None if maker is None or maker[0] not in region else (region[maker[0]], maker[1])
            for maker in index.makers[node]
        ]
        while above and above[-1] is None:
            above.pop()
        below = [(o, s, region[n]) for o, s, n in index.readers[node] if n in region]
        self.work += len(index.readers[node])
        return above, sorted(below)  # type: ignore[return-value]  # numbers are objects


def _by_kind(
    readers: list[tuple[int, int]], colours: list[int]
) -> dict[tuple[int, int], list[int]]:
    kinds: dict[tuple[int, int], list[int]] = {}
    for slot, node in readers:
        kinds.setdefault((colours[node], slot), []).append(node)
    return kinds


def _alone_of_their_kind(
    readers: list[list[tuple[int, int]]], colours: list[int]
) -> Iterator[list[int]]:
    """Iterate over the readers that are the only ones of a kind, in every region."""
    sorted_out = [_by_kind(of_region, colours) for of_region in readers]
    for kind in sorted_out[0]:
        alike = [kinds.get(kind, []) for kinds in sorted_out]
        if all(len(nodes) == 1 for nodes in alike):
            yield [nodes[0] for nodes in alike]


def _first_of_their_kind(
    readers: list[list[tuple[int, int]]], colours: list[int]
) -> Iterator[list[int]]:
    """Iterate over the first readers of each kind that every region has equally many of."""
    sorted_out = [_by_kind(of_region, colours) for of_region in readers]
    for kind, nodes in sorted_out[0].items():
        alike = [kinds.get(kind, []) for kinds in sorted_out]
        if all(len(of_region) == len(nodes) for of_region in alike):
            for number in range(len(nodes)):
                yield [of_region[number] for of_region in alike]
