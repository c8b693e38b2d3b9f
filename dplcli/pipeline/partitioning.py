"""Outlining, checking and writing a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.onnx_io import is_modified, load_model, paused_gc
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.selection import select_matches
from dplcli.pipeline.matching import MatchOutcome
from dplcli.pipeline.measuring import Measuring, given_sizes
from dplcli.pipeline.merging import check_merge, light_matches, without_matches
from dplcli.pipeline.policies import Policies
from dplcli.pipeline.rules import RuleSource, load_rules
from dplcli.pipeline.writing import (
    Judged,
    Verdict,
    WriteSettings,
    finish,
    open_model,
    protect_files,
    say_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.dpl import PatternRule
    from dplcli.ir import Model
    from dplcli.passes.coverage import Coverage
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.pipeline.writing import Progress


@dataclass(frozen=True)
class PartitionOutcome(MatchOutcome, Judged):
    """What :func:`partition` did.

    Attributes:
        partitions: The calls written, in program order.
        verdict: What is said of the result, and where it is.
        nodes: Nodes of the model before and after, function bodies not counted.
        coverage: How much of the work is inside the functions; None if it was not measured.
        regions: What the targets are handed, in program order; None if nothing was to be merged.
        is_sorted: Whether the nodes had to be brought into topological order.
    """

    partitions: tuple[Partition, ...] = ()
    verdict: Verdict = field(default_factory=Verdict)
    nodes: tuple[int, int] = (0, 0)
    coverage: Coverage | None = None
    regions: tuple[Region, ...] | None = None
    is_sorted: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        merged = any(region.members for region in self.regions or ())
        return self.is_sorted or bool(self.partitions) or merged

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.verdict.is_sound and not self.unmet


@dataclass(frozen=True)
class PartitionSettings(WriteSettings):
    """How :func:`partition` should go about it.

    Attributes:
        measure: Whether to estimate how much of the work is inside the functions.
        merge: Whether to merge neighbouring partitions of one target into regions.
        prune: Whether to leave out what would be in regions without a heavy operator.
    """

    measure: bool = False
    merge: bool = False
    prune: bool = False


@paused_gc()
def partition(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[PatternRule] = (),
    settings: PartitionSettings | None = None,
    allow_code: bool = False,
    policies: Policies | None = None,
    progress: Progress | None = None,
) -> PartitionOutcome:
    """Outline every match as a function call, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there. Arguments as for :func:`match`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    settings = settings or PartitionSettings()
    check_merge(merge=settings.merge, prune=settings.prune)
    say = progress or say_nothing
    model = open_model(model_path, output, settings, say)
    say("loading rules")
    tried, files = load_rules(
        RuleSource(patterns, targets, rules, allow_code, policies or Policies()), model
    )
    protect_files(model, output, settings.failed_path(output), files)
    expected = parse_expectations(settings.expectations, tried)
    outlined = _outline(model, tried, say, settings)
    if settings.merge:
        outlined = _merged(tried, outlined, say, settings)
    model, outcome, measuring = outlined
    outcome = replace(outcome, unmet=unmet_expectations(expected, outcome.counts))

    is_met = not outcome.unmet
    verdict = finish(
        model, model_path, output, settings, say, is_changed=outcome.is_changed, is_met=is_met
    )
    coverage = None if measuring is None else measuring.coverage(verdict.verification)
    return replace(outcome, verdict=verdict, coverage=coverage)


class _Outlined(NamedTuple):
    """A model whose matches are outlined, what was done, and what is to be measured of it."""

    model: Model
    outcome: PartitionOutcome
    measuring: Measuring | None


def _merged(
    rules: Sequence[PatternRule],
    outlined: _Outlined,
    say: Progress,
    settings: PartitionSettings,
) -> _Outlined:
    """Merge what was outlined; begin anew without the matches that make light regions only."""
    light: dict[int, str] = {}
    while True:
        say("merging")
        model, outcome, _ = outlined
        regions = merge_partitions(model, {rule.name for rule in rules})
        found = light_matches(outcome.selection, outcome.partitions, regions, light)
        if not found or not settings.prune:
            nodes = (outcome.nodes[0], model.graph.node_count)
            return outlined._replace(outcome=replace(outcome, regions=tuple(regions), nodes=nodes))
        light |= found
        assert model.path is not None  # noqa: S101  # partition() has read it
        model = load_model(model.path)
        outlined = _outline(model, rules, say, settings, light)


def _outline(
    model: Model,
    rules: Sequence[PatternRule],
    say: Progress,
    settings: PartitionSettings,
    light: Mapping[int, str] = MappingProxyType({}),
) -> _Outlined:
    before, is_sorted = model.graph.node_count, is_modified(model)
    say("matching")
    selection = without_matches(select_matches(model, rules), light)
    measuring = None
    if settings.measure:
        say("measuring")
        sizes = given_sizes(model, settings.verification)
        measuring = Measuring(model, selection, sizes, can_wait=settings.verify)
    say("outlining")
    partitions = outline_matches(model, selection)
    outcome = PartitionOutcome(
        label="" if model.path is None else model.path.name,
        rules=tuple(rules),
        selection=selection,
        notes=tuple(model.notes),
        partitions=tuple(partitions),
        nodes=(before, model.graph.node_count),
        is_sorted=is_sorted,
    )
    return _Outlined(model, outcome, measuring)
