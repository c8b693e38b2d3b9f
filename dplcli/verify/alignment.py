"""Which values of two models ought to be the same: by the log, dataflow and numbers, not by name.

In this order: values with equal digests of what computes them; values that the log of a rewrite or
a partition, in the candidate's metadata, says it took over from nodes which the original has;
values whose numbers agree on what both models are fed, where there are enough different numbers
for that to mean something; and then nodes of one operator that read values already aligned, or
whose results are. The last are aligned whether they agree or not: that is where a fault shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplcli.verify.log import logged_values
from dplcli.verify.structure import digests, same_digest
from dplcli.verify.tolerance import FLOATS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    import onnx

    from dplcli.verify.compare import Judge
    from dplcli.verify.cutting import Wiring
    from dplcli.verify.intermediates import Sketch

_TELLING = 8
_MOST_WALKED = 64


@dataclass(frozen=True)
class Pair:
    """Two values that ought to be the same.

    Attributes:
        original: The value of the original.
        candidate: The value of the candidate.
        how: ``structure``, ``log``, ``numbers``, ``dataflow`` or ``output``.
    """

    original: str
    candidate: str
    how: str


class Alignment:
    """Pairs of values of two models, each value in one pair at most.

    Args:
        ours: The original.
        theirs: The candidate.
    """

    def __init__(self, ours: Wiring, theirs: Wiring) -> None:
        """Align nothing but the graph inputs."""
        self.ours = ours
        self.theirs = theirs
        self.pairs: dict[str, Pair] = {}
        self.taken: dict[str, str] = {}
        self.moving = _moving(ours), _moving(theirs)
        given = {info.name for info in theirs.model.graph.input}
        for info in ours.model.graph.input:
            if info.name in given:
                self._add(info.name, info.name, "input")

    def unaligned(self) -> tuple[list[str], list[str]]:
        """Return what nodes make and is in no pair yet, in both models."""
        mine = [name for name in self.ours.makers if name not in self.pairs]
        return mine, [name for name in self.theirs.makers if name not in self.taken]

    def by_structure(self) -> None:
        """Align what is computed alike from the graph inputs on."""
        mine, other = digests(self.ours.model), digests(self.theirs.model)
        found = same_digest(mine, _made(other, self.theirs), list(self.ours.makers))
        for name, partner in found.items():
            self._add(name, partner, "structure")

    def by_log(self) -> None:
        """Align what the candidate says it took over, where the original has it like that."""
        for node in self.theirs.nodes:
            for logged in logged_values(node):
                maker = self.ours.makers.get(logged.name)
                if maker is not None and logged.is_made_by(self.ours.nodes[maker]):
                    self._add(logged.name, logged.name, "log")

    def by_numbers(
        self, mine: Mapping[str, Sketch], other: Mapping[str, Sketch], judge: Judge
    ) -> None:
        """Align what holds the same numbers, if these tell anything."""
        groups: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
        for name, sketch in other.items():
            groups[sketch.dtype, sketch.shape].append(name)
        for name, sketch in mine.items():
            names = groups.get((sketch.dtype, sketch.shape))
            if not names or not _tells(sketch):
                continue
            partner = _nearest(sketch, names, other, judge)
            if partner is not None:
                self._add(name, partner, "numbers")
                names.remove(partner)

    def by_dataflow(self) -> None:
        """Align the rest: outputs of the model, then nodes by what they read, and by who reads."""
        ends = zip(self.ours.model.graph.output, self.theirs.model.graph.output, strict=False)
        for ours, theirs in ends:
            if ours.name not in self.pairs and theirs.name not in self.taken:
                self._add(ours.name, theirs.name, "output")
        self._forwards()
        self._backwards()

    def _add(self, name: str, partner: str, how: str) -> bool:
        if name in self.pairs or partner in self.taken:
            return False
        self.pairs[name] = Pair(name, partner, how)
        self.taken[partner] = name
        return True

    def _forwards(self) -> None:
        """Align nodes that compute from aligned values, in the original's order.

        Of one operator, if there is one that alone reads what is aligned with what they read; else
        any whose result comes from the same aligned values and goes into the same operators.
        """
        for index, node in enumerate(self.ours.nodes):
            if all(name in self.pairs for name in node.output if name):
                continue
            found = self._counterparts(node, index)
            if len(found) == 1:
                self._join(node, self.theirs.nodes[found.pop()])
                continue
            for name in filter(None, node.output):
                if (partner := self._likewise(name)) is not None:
                    self._add(name, partner, "dataflow")

    def _counterparts(self, node: onnx.NodeProto, index: int) -> set[int]:
        """Return the nodes of one operator that read the counterparts of what *node* reads."""
        moving = [name for name in self.ours.reads[index] if name in self.moving[0]]
        if not moving or not all(name in self.pairs for name in moving):
            return set()
        partners = {self.pairs[name].candidate for name in moving}
        return {
            reader
            for reader in self.theirs.readers.get(min(partners), ())
            if partners <= set(self.theirs.reads[reader])
            and _is_alike(node, self.theirs.nodes[reader])
            and not any(n in self.taken for n in self.theirs.nodes[reader].output if n)
        }

    def _likewise(self, name: str) -> str | None:
        """Return the nearest value that comes from where *name* does and goes where it goes.

        Going into all of the same operators is best, into some of them is enough.
        """
        start = _sources(self.ours, name, self.pairs, self.moving[0])
        uses = _uses(self.ours, name)
        if not start or not uses:
            return None
        partners = {self.pairs[source].candidate for source in start}
        best, merit = None, (False, 0)
        for other in self._reached(partners):
            theirs = _uses(self.theirs, other)
            found = (theirs == uses, (theirs & uses).total())
            if found > merit and self._comes_from(other, partners):
                best, merit = other, found
        return best

    def _comes_from(self, name: str, partners: set[str]) -> bool:
        return _sources(self.theirs, name, self.taken, self.moving[1]) == partners

    def _reached(self, names: Iterable[str]) -> Iterator[str]:
        """Yield values of the candidate that come from *names* through what is not aligned."""
        pending, seen = deque(names), set[str]()
        while pending and len(seen) < _MOST_WALKED:
            for reader in self.theirs.readers.get(pending.popleft(), ()):
                for made in self.theirs.nodes[reader].output:
                    if made and made not in self.taken and made not in seen:
                        seen.add(made)
                        pending.append(made)
                        yield made

    def _backwards(self) -> None:
        """Align what nodes of one operator read, slot by slot, where their results are aligned."""
        for node in reversed(self.ours.nodes):
            pair = self.pairs.get(node.output[0]) if node.output else None
            maker = None if pair is None else self.theirs.makers.get(pair.candidate)
            if maker is None or not _is_alike(node, self.theirs.nodes[maker]):
                continue
            for name, partner in zip(node.input, self.theirs.nodes[maker].input, strict=True):
                if name in self.ours.makers and partner in self.theirs.makers:
                    self._add(name, partner, "dataflow")

    def _join(self, node: onnx.NodeProto, other: onnx.NodeProto) -> None:
        for name, partner in zip(node.output, other.output, strict=False):
            if name and partner:
                self._add(name, partner, "dataflow")


def _moving(wiring: Wiring) -> set[str]:
    """Return the values that depend on what the model is fed."""
    given = {info.name for info in wiring.model.graph.input}
    found = given - wiring.initializers.keys() - wiring.sparse.keys()
    for index, node in enumerate(wiring.nodes):
        if any(name in found for name in wiring.reads[index]):
            found.update(filter(None, node.output))
    return found


def _sources(
    wiring: Wiring, name: str, aligned: Container[str], moving: Container[str]
) -> set[str] | None:
    """Return the aligned values that *name* is computed from; None if they are far away."""
    found, seen = set[str](), set[int]()
    pending = [name]
    while pending:
        index = wiring.makers.get(pending.pop())
        if index is None or index in seen:
            continue
        seen.add(index)
        if len(seen) > _MOST_WALKED:
            return None
        for read in wiring.reads[index]:
            if read in moving and read in aligned:
                found.add(read)
            elif read in moving:
                pending.append(read)
    return found


def _uses(wiring: Wiring, name: str) -> Counter[tuple[str, int]]:
    """Return which operators read a value, and in which slots."""
    return Counter(
        (wiring.nodes[reader].op_type, slot)
        for reader in wiring.readers.get(name, ())
        for slot, read in enumerate(wiring.nodes[reader].input)
        if read == name
    )


def _made(found: Mapping[str, bytes], wiring: Wiring) -> dict[str, bytes]:
    return {name: digest for name, digest in found.items() if name in wiring.makers}


def _is_alike(node: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    kind = node.op_type, node.domain, len(node.input)
    return kind == (other.op_type, other.domain, len(other.input))


def _tells(sketch: Sketch) -> bool:
    """Tell whether agreeing with these numbers can hardly be an accident."""
    if sketch.dtype not in FLOATS:
        return False
    data = sketch.sample.data
    return np.unique(data[np.isfinite(data)]).size >= _TELLING


def _nearest(
    sketch: Sketch, names: list[str], others: Mapping[str, Sketch], judge: Judge
) -> str | None:
    """Return which of *names* agrees best with a value; None if none does."""
    own = judge.compare("", (sketch.sample,), (sketch.sample,))
    ours = sketch.sample.data.astype(np.float64)
    theirs = np.stack([others[name].sample.data.astype(np.float64) for name in names])
    with np.errstate(invalid="ignore"):
        outside = np.abs(theirs - ours) > own.atol + own.rtol * np.abs(ours)
        outside |= np.isnan(theirs) != np.isnan(ours)
        distance = np.where(outside.any(axis=1), np.inf, np.abs(theirs - ours).max(axis=1))
    if np.isinf(distance).all():
        return None
    return names[int(np.nanargmin(np.where(np.isnan(distance), 0.0, distance)))]
