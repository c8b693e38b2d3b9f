"""Find the repeated blocks of a model: equal regions that are called rather than spelled out.

Nodes with equal surroundings are seeds, round which equal regions grow
(:mod:`dplcli.passes.repeat_growth`); where only some of the seeds could have grown further, they
are tried by themselves. Of all that was found, what makes the model shortest is taken first, and
what overlaps with it has to grow again round what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dplcli.passes.repeat_cut import cut_blocks
from dplcli.passes.repeat_growth import Growth
from dplcli.passes.repeat_index import FIXED, is_constant
from dplcli.passes.repeat_order import acyclic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.passes.repeat_growth import Row
    from dplcli.passes.repeat_index import RepeatIndex

_WORK_PER_NODE = (400, 20)
_LEAST_WORK, _LARGE_WORK = 2_000_000, 8_000_000
"""Nodes looked at, per node of the model: in a small model, and in one where that is much."""

_DEEPEST = 40
"""How often seeds are parted again before the parts are left as they are."""

_PARTITIONS = 3
"""In how many ways the seeds of one growth are parted where they disagree."""

_LARGER = 1.15
_SHARE_INSIDE = 0.6
_SHARE_COVERED = 0.8
_SHARE_SAVED = 0.8
_SHARE_OF_KIND = 0.1
_LARGER_TRIED = 16
"""When larger blocks win over what they have in common: see :meth:`_Search._larger`."""

_WELL_SERVED = 0.8
_SHARE_SERVED = 0.95
"""Where blocks save so much of what they cover, seeds of which so many are covered are left."""

_KNOWN_ROWS = 24
"""How many of the regions that a node has been in are remembered."""


@dataclass(frozen=True)
class RepeatOptions:
    """What counts as a repeated block.

    Attributes:
        min_repeats: How often it must occur.
        min_nodes: How many nodes it must have, Constant nodes not counted.
        min_saving: What share of the model's nodes it must save, as a function.
        max_families: How many kinds of blocks there may be, those of earlier runs included; None
            for any number.
        same_attributes: Whether the values of attributes must be equal, too; else those that
            differ become attributes of the function.
        nested: Whether blocks are looked for inside the blocks found.
    """

    min_repeats: int = 2
    min_nodes: int = 4
    min_saving: float = 0.02
    max_families: int | None = None
    same_attributes: bool = False
    nested: bool = False


class Blocks(NamedTuple):
    """One kind of block.

    Attributes:
        rows: Its nodes in topological order, each as node numbers, one per block.
        saving: How many nodes fewer there are in the model if it becomes a function.
    """

    rows: list[Row]
    saving: int


class Found(NamedTuple):
    """What a search found.

    Attributes:
        kinds: The kinds of blocks, the most saving first; no node is in two blocks.
        is_whole: Whether it looked everywhere, rather than stop at what is too much work.
    """

    kinds: list[Blocks]
    is_whole: bool


def find_blocks(index: RepeatIndex, options: RepeatOptions, *, most: int | None) -> Found:
    """Find the kinds of blocks in *index*.

    Args:
        index: The graphs.
        options: What counts as a block.
        most: How many kinds to find at most; None for all.
    """
    search = _Search(index, options)
    return Found(search.run(most), search.work_left > 0)


class _Search:
    def __init__(self, index: RepeatIndex, options: RepeatOptions) -> None:
        self.index = index
        self.options = options
        self.claimed: dict[int, int] = {}
        self.found: list[Blocks] = []
        small, large = (factor * len(index) for factor in _WORK_PER_NODE)
        self.work_left = max(_LEAST_WORK, min(small, _LARGE_WORK + large))
        self.tried: dict[Row, list[Blocks]] = {}
        self.known: dict[int, list[tuple[int, int]]] = {}
        self.served: set[int] = set()
        self.results: list[list[Blocks]] = []
        self.least_saving = max(1.0, options.min_saving * index.full_size)

    def run(self, most: int | None) -> list[Blocks]:
        pool = list({id(blocks): blocks for blocks in self._explore()}.values())
        while pool and (most is None or len(self.found) < most):
            best = min(pool, key=_merit)
            if self._is_claimed(best):
                pool = [blocks for blocks in pool if blocks is not best]
                pool += self._grown_again(best)
                continue
            chosen = self._larger(best, pool) or best
            pool = [blocks for blocks in pool if blocks is not chosen]
            whole = self._worth(acyclic(self.index, chosen.rows, self.claimed))
            if whole is not None and whole.saving == chosen.saving:
                self._claim(whole)
            elif whole is not None:
                pool.append(whole)
        return self.found

    def _is_claimed(self, blocks: Blocks) -> bool:
        return any(node in self.claimed for row in blocks.rows for node in row)

    def _larger(self, best: Blocks, pool: Sequence[Blocks]) -> Blocks | None:
        """Find blocks of which those of *best* are but the part that they have in common.

        Where nearly every one of *best* lies in a larger block, with more round it, a reader is
        served better by the larger ones, though there are more kinds of them: a model with two
        stacks of layers that are equal for the most part has two kinds of layers. A larger block
        that is but several of *best* in a row is no such thing.
        """
        owner = {node: number for row in best.rows for number, node in enumerate(row)}
        size, repeats = len(best.rows), len(best.rows[0])
        larger = [
            blocks
            for blocks in sorted(pool, key=_merit)
            if len(blocks.rows) >= _LARGER * size and _SHARE_OF_KIND * best.saving <= blocks.saving
        ]
        chosen: list[Blocks] = []
        covered: set[int] = set()
        for blocks in larger[:_LARGER_TRIED]:
            inside = _parts_inside(blocks, owner, size)
            if inside and covered.isdisjoint(inside) and not self._is_claimed(blocks):
                chosen.append(blocks)
                covered |= inside
        if len(covered) < _SHARE_COVERED * repeats or _total(chosen) < _SHARE_SAVED * best.saving:
            return None
        return chosen[0]

    def _claim(self, blocks: Blocks) -> None:
        first = len(self.found) * len(self.index)
        for row in blocks.rows:
            self.claimed.update((node, first + block) for block, node in enumerate(row))
        self.found.append(blocks)

    def _worth(self, rows: list[Row]) -> Blocks | None:
        """Return *rows* as blocks if they are large and many enough."""
        if not rows or len(rows[0]) < self.options.min_repeats:
            return None
        if sum(not is_constant(self.index.nodes[row[0]]) for row in rows) < self.options.min_nodes:
            return None
        size, repeats = len(rows), len(rows[0])
        saving = size * repeats - size - repeats
        return Blocks(rows, saving) if saving >= self.least_saving else None

    # -- seeds -------------------------------------------------------------------------------

    def _explore(self) -> Iterator[Blocks]:
        for seeds in self._classes():
            if self.work_left <= 0:
                return
            if sum(map(self.served.__contains__, seeds)) < _SHARE_SERVED * len(seeds):
                yield from self._from_seeds(seeds)

    def _classes(self) -> Iterator[Row]:
        """Iterate over sets of nodes with equal surroundings, ever larger ones."""
        seen: set[Row] = set()
        for colours in self.index.colours:
            classes: dict[int, list[int]] = {}
            for node, colour in enumerate(colours):
                if colour != FIXED:
                    classes.setdefault(colour, []).append(node)
            for nodes in sorted(classes.values(), key=len):
                seeds = tuple(nodes)
                if len(seeds) >= self.options.min_repeats and seeds not in seen:
                    seen.add(seeds)
                    yield seeds

    def _known_blocks(self, seeds: Row, besides: frozenset[int]) -> list[Blocks] | None:
        """Return the blocks of regions grown before in which *seeds* stand for each other.

        None if there are no such regions, those of the growths *besides* not counted.
        """
        common = {known for known in self.known.get(seeds[0], ()) if known[0] not in besides}
        for node in seeds:
            common.intersection_update(self.known.get(node, ()))
            if not common:
                return None
        return max((self.results[growth] for growth, _ in sorted(common)), key=_total)

    def _from_seeds(
        self, seeds: Row, line: frozenset[int] = frozenset(), depth: int = 0
    ) -> list[Blocks]:
        """Grow round *seeds*, and round those of them that agree where not all do.

        Args:
            seeds: Where to start.
            line: The growths that *seeds* are a part of.
            depth: How often they were parted.

        Returns:
            All of them as blocks, or the parts by themselves, whichever saves more.
        """
        if len(seeds) < self.options.min_repeats or self.work_left <= 0:
            return []
        known = self.tried[seeds] if seeds in self.tried else self._known_blocks(seeds, line)
        if known is not None:
            return known
        self.tried[seeds] = []
        growth = Growth(self.index, seeds, self.claimed)
        self.work_left -= growth.work
        best = self._as_blocks(growth)
        if best:
            self._remember(growth, best)
            line |= {len(self.results) - 1}
        elif growth.touching:
            parts = self._thinned(growth)
            best = [b for part in parts for b in self._from_seeds(part, depth=depth + 1)]
        partitions = _partitions(growth) if depth < _DEEPEST else []
        for parts in partitions[: _PARTITIONS if best else 1]:
            found = [b for part in parts for b in self._from_seeds(part, line, depth + 1)]
            best = max(best, found, key=_total)
        self.tried[seeds] = best
        return best

    def _as_blocks(self, growth: Growth) -> list[Blocks]:
        if len(growth.rows) < self.options.min_nodes:
            return []
        self.work_left -= len(growth.rows) * len(growth.rows[0])
        blocks = self._worth(cut_blocks(self.index, growth))
        return [] if blocks is None else [blocks]

    def _thinned(self, growth: Growth) -> list[Row]:
        """Leave out so many seeds that blocks of several of the small regions are large enough."""
        size = sum(not is_constant(self.index.nodes[row[0]]) for row in growth.rows)
        step = -(-self.options.min_nodes // max(1, size))
        seeds = tuple(sorted(growth.rows[0]))
        return [seeds[::step]] if step > 1 else []

    def _remember(self, growth: Growth, blocks: list[Blocks]) -> None:
        self.results.append(blocks)
        for rows, saving in blocks:
            if saving >= _WELL_SERVED * len(rows) * len(rows[0]):
                self.served.update(node for row in rows for node in row)
        for place, row in enumerate(growth.rows):
            for node in row:
                known = self.known.setdefault(node, [])
                known.append((len(self.results) - 1, place))
                if len(known) > _KNOWN_ROWS:
                    del known[0]

    def _grown_again(self, blocks: Blocks) -> Iterator[Blocks]:
        """Grow anew where none of the claimed nodes is in the way."""
        best: Row = ()
        for row in blocks.rows:
            if is_constant(self.index.nodes[row[0]]):
                continue
            free = tuple(node for node in row if node not in self.claimed)
            if len(free) > len(best):
                best = free
        if len(best) >= self.options.min_repeats and self.work_left > 0:
            self.tried.clear()
            self.known.clear()
            yield from self._from_seeds(best)


def _merit(blocks: Blocks) -> tuple[int, Row]:
    """Sort by what is saved, most first; nothing depends on chance."""
    return (-blocks.saving, blocks.rows[0])


def _parts_inside(blocks: Blocks, owner: dict[int, int], size: int) -> set[int]:
    """Return which smaller blocks lie in *blocks* for the most part, if they are not all of it."""
    inside: set[int] = set()
    for number in range(len(blocks.rows[0])):
        owners = [owner[row[number]] for row in blocks.rows if row[number] in owner]
        distinct = set(owners)
        if not _SHARE_INSIDE * size * len(distinct) <= len(owners) <= len(blocks.rows) / _LARGER:
            return set()
        inside |= distinct
    return inside


def _total(found: Sequence[Blocks]) -> int:
    """Say how many nodes fewer there are with all of *found*, which may overlap."""
    if len(found) < 2:  # noqa: PLR2004  # nothing to overlap with
        return sum(blocks.saving for blocks in found)
    distinct = list({id(blocks): blocks for blocks in found}.values())
    covered = {node for blocks in distinct for row in blocks.rows for node in row}
    return len(covered) - sum(len(blocks.rows) + len(blocks.rows[0]) for blocks in distinct)


def _partitions(growth: Growth) -> list[list[Row]]:
    """Part the seeds where they disagree, in a few ways.

    Where most of what some agree on is in the next region anyway, blocks follow each other and
    nothing is to be gained.
    """
    seeds = growth.rows[0]
    found: dict[tuple[Row, ...], list[Row]] = {}
    for groups, nodes in growth.disagreements:
        fresh = [group for group in groups if _is_fresh(growth, group, nodes)]
        if not fresh:
            continue
        parted = {region for group in fresh for region in group}
        rest = [region for region in range(len(seeds)) if region not in parted]
        parts = [tuple(seeds[region] for region in part) for part in (*fresh, rest)]
        found.setdefault(tuple(sorted(parts)), parts)
    return list(found.values())


def _is_fresh(growth: Growth, group: Sequence[int], found: Sequence[int | None]) -> bool:
    """Tell whether most of what *group* has at an edge is in no region yet."""
    nodes = [found[region] for region in group]
    return 2 * sum(node is not None and growth.owners.get(node, 0) > 0 for node in nodes) < len(
        group
    )
