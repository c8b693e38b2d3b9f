"""What became of a model that was partitioned."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dplcli.keys import keys
from dplcli.outcomes.matching import MatchOutcome
from dplcli.outcomes.written import WrittenOutcome, _figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.outcomes.base import Counts
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.repeat import Family
    from dplcli.passes.select import Coverage, Selection, Share


@keys("counts rounds proof unproved nodes.before=nodes.0 nodes.after=nodes.1")
@dataclass(frozen=True)
class Preparation:
    """What was rewritten before matches were outlined.

    Attributes:
        counts: How often each rule was applied, of those that were.
        rounds: How many rounds changed something.
        nodes: Nodes of all graphs before and after, but for Constants.
        proof: What is proved by structure of the result and the prepared model, or "".
        unproved: Why nothing is, if that was tried, or "".
    """

    counts: Mapping[str, int]
    rounds: int
    nodes: tuple[int, int]
    proof: str = ""
    unproved: str = ""


@keys(
    "model=label counts unmet partitions refused coverage=covered *=delivery regions hints? "
    "prepared? taken_back?",
    "dpl.partition/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartitionOutcome(MatchOutcome, WrittenOutcome):
    """What was outlined as functions, by dpl partition and dpl repeat.

    Attributes:
        partitions: The calls written, in program order.
        nodes: Nodes of the main graph before and after, but for Constants.
        coverage: How much of the work is inside the functions; None if it was not measured.
        regions: What the targets are handed, in program order; None if nothing was to be merged.
        is_sorted: Whether the nodes had to be brought into topological order.
        written: How many functions were written for each rule, if that was counted.
        prepared: What was rewritten first; None if nothing was to be.
    """

    partitions: Sequence[Partition]
    nodes: tuple[int, int]
    coverage: Coverage | None = None
    regions: tuple[Region, ...] | None = None
    is_sorted: bool = False
    written: Mapping[str, int] | None = None
    prepared: Preparation | None = None

    @property
    def figures(self) -> Counts:
        """How many nodes there were and are, and what was done."""
        done = ("partitions", len(self.partitions))
        return _figures("nodes of the main graph", self.nodes, done)

    @property
    def failures(self) -> list[str]:
        """Reasons for a no that the comparison does not give, a sentence each."""
        return [*self.unmet, *self.delivery.failures]

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, and where a result that failed is."""
        return super(MatchOutcome, self).complaints  # what WrittenOutcome says

    @property
    def covered(self) -> Covered:
        """How many nodes are inside functions, and what that costs if it was measured."""
        return Covered.of_selection(self.selection, self.coverage)

    @property
    def functions(self) -> Mapping[str, int]:
        """How many functions were written for each rule that has matches."""
        if self.written is not None:
            return self.written
        keys = {(item.match.rule.qualified_name, item.function.key) for item in self.partitions}
        return Counter(rule for rule, _ in keys)

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        merged = any(region.members for region in self.regions or ())
        return self.is_sorted or bool(self.partitions) or merged

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.delivery.is_sound and not self.unmet


@keys("covered of flops?")
class CoveredOp(NamedTuple):
    """How many nodes of an operator are inside functions, and what they cost."""

    covered: int
    of: int
    flops: Share | None = None


@keys("nodes of by_op *=measured")
class Covered(NamedTuple):
    """How much of a model is inside functions."""

    nodes: int
    of: int
    by_op: Mapping[str, CoveredOp]
    measured: Coverage | None = None

    @classmethod
    def of_selection(cls, selection: Selection, measured: Coverage | None) -> Covered:
        """Count nodes as the selection does; what was *measured* has to agree."""
        inside, of = selection.share
        if measured is not None:
            left = sum(item.work.nodes for item in measured.left_out)
            assert (inside, of) == (measured.total.inside.nodes, inside + left)  # noqa: S101  # one count
        shares = {} if measured is None else measured.by_op
        covered = selection.covered
        by_op = {
            op: CoveredOp(covered.get(op, 0), count, shares.get(op))
            for op, count in selection.counted.items()
        }
        return cls(inside, of, by_op, measured)


@keys("... families")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RepeatOutcome(PartitionOutcome):
    """What was outlined as functions of repeated blocks, by dpl repeat.

    Attributes:
        families: The kinds of blocks; blocks inside other blocks come after these.
        size: Bytes of the file before and after, external data not counted; the second is 0 if
            none was made.
    """

    families: tuple[Family, ...]
    size: tuple[int, int] = (0, 0)
