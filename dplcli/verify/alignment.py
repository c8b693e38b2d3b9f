"""Which values of two models ought to be the same: by dataflow and by numbers, never by name.

In this order: values with equal digests of what computes them; values whose numbers agree on what
both models are fed, where there are enough different numbers for that to mean something; and then
nodes of one operator that read values already aligned, or whose results are. The last are aligned
whether they agree or not: that is where a fault shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplcli.verify.structure import digests, same_digest
from dplcli.verify.tolerance import FLOATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from dplcli.verify.compare import Judge
    from dplcli.verify.cutting import Wiring
    from dplcli.verify.intermediates import Sketch

_TELLING = 8


@dataclass(frozen=True)
class Pair:
    """Two values that ought to be the same.

    Attributes:
        original: The value of the original.
        candidate: The value of the candidate.
        how: ``structure``, ``numbers``, ``dataflow`` or ``output``.
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
        """Align nodes of one operator that alone read aligned values in the same places."""
        for index, node in enumerate(self.ours.nodes):
            if all(name in self.pairs for name in node.output if name):
                continue
            found = self._counterparts(node, index)
            if len(found) == 1:
                self._join(node, self.theirs.nodes[found.pop()])

    def _counterparts(self, node: onnx.NodeProto, index: int) -> set[int]:
        moving = [name for name in self.ours.reads[index] if name in self.ours.makers]
        moving += [n for n in self.ours.reads[index] if n in self.pairs and n not in moving]
        if not moving or not all(name in self.pairs for name in moving):
            return set()
        partners = [self.pairs[name].candidate for name in moving]
        found = {
            reader
            for reader in self.theirs.readers.get(partners[0], ())
            if set(partners) <= set(self.theirs.reads[reader])
            and _is_alike(node, self.theirs.nodes[reader])
        }
        return {
            other
            for other in found
            if not any(name in self.taken for name in self.theirs.nodes[other].output if name)
        }

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
