"""Outline matches, regions or repeated blocks as functions, or inline functions again."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.finding import shipped_catalog
from dplcli.dpl import PatternRule
from dplcli.dpl.pattern import is_op
from dplcli.dpl.rule import Rejection, judge_expectations, parse_expectations, unmet_of
from dplcli.errors import UsageError, did_you_mean
from dplcli.ir.model import NODES_KEY, called_function, calls_in
from dplcli.onnx_io import as_written, is_modified, load_model, losses, paused_gc, staged
from dplcli.outcomes import InlineOutcome, PartitionOutcome, Preparation, RepeatOutcome
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.records import REPEAT_DOMAIN, is_written
from dplcli.passes.select import Selection, fates, select_matches
from dplcli.pipeline.hints import hints_on_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.matching import Measuring, given_sizes
from dplcli.pipeline.rules import load_rewrites, load_rules
from dplcli.pipeline.verifying import prove
from dplcli.pipeline.writing import WriteJob, doubted
from dplcli.settings import RuleSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Function, Model, Node
    from dplcli.outcomes import Delivery
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.pipeline.writing import Progress
    from dplcli.settings import (
        CallSettings,
        InlineSettings,
        PartitionSettings,
        RepeatingSettings,
        RepeatSettings,
    )


# Inlining functions, checking the result and writing it.


_MOST_NAMED = 8


@paused_gc()
def inline(model_path: Path, settings: InlineSettings) -> InlineOutcome:
    """Put functions in the place of their calls, verify the result, and write it.

    Args:
        model_path: The model.
        settings: What to inline, and how the result is checked and written; it appears complete,
            or not at all.

    Raises:
        DplError: The model cannot be used, something chosen is not there, the output cannot be
            written, or no verdict on the result can be reached.
    """
    from dplcli.passes.inline import inline as inline_functions  # noqa: PLC0415  # only here

    job = WriteJob(model_path, settings)
    model = job.open()
    job.protect(model, set())
    functions, only = _chosen(model, settings)
    before, count = model.graph.computing_count, len(model.functions)
    is_sorted = is_modified(model)
    job.say("inlining")
    inlining = inline_functions(model, functions, only)
    outcome = InlineOutcome(
        label=model_path.name,
        inlining=inlining,
        notes=(*model.notes, *losses(model)),
        nodes=(before, model.graph.computing_count),
        functions=count,
        is_sorted=is_sorted,
    )
    return replace(outcome, delivery=job.finish(model, is_changed=outcome.is_changed))


def _chosen(model: Model, choice: CallSettings) -> tuple[list[Function], Collection[Node] | None]:
    """Return the chosen functions, and the chosen calls; None for all calls.

    Raises:
        UsageError: The model has no such function or call.
    """
    functions = model.functions.values()
    if choice.all_functions:
        return list(functions), None
    if choice.call:
        return _of_calls(model, choice.call)
    if not choice.target and not choice.function:
        return written_functions(model), None
    chosen = [function for name in choice.function for function in _named(functions, name)]
    for target in choice.target:
        domains = {function: function.domain for function in functions}
        missing = f"--target {target!r}: the model has no function of this domain"
        chosen += _chosen_by(domains, target, missing)
    return chosen, None


def written_functions(model: Model) -> list[Function]:
    """Return the functions that dpl has outlined: their metadata or that of a call shows it."""
    return [
        function
        for function, calls in calls_in(model).items()
        if is_written(function) or any(NODES_KEY in call.remarks.metadata for call in calls)
    ]


def _of_calls(model: Model, names: Iterable[str]) -> tuple[list[Function], set[Node]]:
    functions: dict[Function, None] = {}
    calls = set()
    for name in names:
        nodes = find_nodes(model, name)
        if len(nodes) > 1:
            where = ", ".join(f"{node.qualified_op} -> {node.first_output!r}" for node in nodes)
            raise UsageError(
                f"--call {name!r}: {len(nodes)} nodes have this name: {where}",
                hint="name one by its output",
            )
        function = called_function(nodes[0])
        if function is None:
            raise UsageError(
                f"--call {name!r}: is a {nodes[0].qualified_op}, not a call of a function"
            )
        functions[function] = None
        calls.add(nodes[0])
    return list(functions), calls


def _named(functions: Iterable[Function], name: str) -> list[Function]:
    """Return the functions of that name; there are several if overloads differ."""
    names = {function: f"{function.domain}::{function.name}" for function in functions}
    return _chosen_by(names, name, f"--function {name!r}: the model has no such function")


def _chosen_by(names: Mapping[Function, str], wanted: str, missing: str) -> list[Function]:
    """Return the functions whose name is *wanted*; *missing* is the message if there is none."""
    functions = [function for function, name in names.items() if name == wanted]
    if not functions:
        known = list(dict.fromkeys(names.values()))
        hint = did_you_mean(wanted, known) or f"there is {', '.join(known[:_MOST_NAMED])}"
        raise UsageError(missing, hint=hint if known else "the model has no functions at all")
    return functions


# Pruning: matches that are left out because their region is not worth a call.


def light_matches(
    selection: Selection,
    partitions: Sequence[Partition],
    regions: Sequence[Region],
    before: Mapping[int, str],
) -> dict[int, str]:
    """Find the matches whose regions have no heavy operator.

    Args:
        selection: The matches, without those of *before*.
        partitions: The partitions that they became.
        regions: The regions that the partitions became.
        before: The matches that were left out before.

    Returns:
        The reason to leave a match out, by its position among all matches.
    """
    reasons = {}
    from dplcli.passes.merge import light_regions  # noqa: PLC0415  # only to prune

    for region in light_regions(regions):
        count = len(region.partitions)
        several = f"none of the {count} partitions of its region has a heavy operator"
        reason = several if count > 1 else "it has no heavy operator and no neighbour"
        reasons.update(dict.fromkeys((region.call, *region.members), reason))
    light = {id(item.match): reasons[item.call] for item in partitions if item.call in reasons}
    total = len(selection.matches) + len(before)
    places = (place for place in range(total) if place not in before)
    return {
        place: light[id(match)]
        for place, match in zip(places, selection.matches, strict=True)
        if id(match) in light
    }


# Outlining, checking and writing a model.


@paused_gc()
def partition(model_path: Path, settings: PartitionSettings) -> PartitionOutcome:
    """Outline every match as a function call, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there.

    Args:
        model_path: The model.
        settings: By which rules, and how the result is checked and written.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    job = _PartitionJob(model_path, settings)
    model = job.open()
    if settings.prepare:
        model = job.prepare(model)
    job.say("loading rules")
    tried, files = load_rules(settings, model)
    job.protect(model, files)
    expected = parse_expectations(settings.expect, tried)
    job.say("matching")
    outlined = _outline_matches(model, tried, job, settings)
    if settings.merge:
        outlined = _merged(tried, outlined, job, settings)
    model, outcome, measuring = outlined
    judged = judge_expectations(expected, outcome.counts)
    delivery = job.finish(
        model, is_changed=outcome.is_changed, is_wanted=lambda _size: not unmet_of(judged)
    )
    coverage = measuring.coverage(delivery.verification)
    outcome = replace(outcome, expected=judged, delivery=delivery, coverage=coverage)
    outcome = replace(outcome, notes=(*outcome.notes, *losses(model, in_calls=True)))
    if job.preparation is None:
        return outcome
    return replace(outcome, prepared=job.preparation, nodes=(job.nodes, outcome.nodes[1]))


class _PartitionJob(WriteJob):
    """Outlines matches of a model, which may be rewritten first.

    Attributes:
        prepared: The rewritten model as it was before matches were outlined; None if it is that
            of the file.
        preparation: What was rewritten; None if nothing was to be.
        nodes: How many nodes the main graph of the file has.
    """

    prepared: Model | None = None
    preparation: Preparation | None = None
    nodes: int = 0

    def prepare(self, model: Model) -> Model:
        """Rewrite *model* by the shipped catalogue; return it as a file would hold it."""
        from dplcli.passes.rewrite import rewrite  # noqa: PLC0415  # only to prepare

        self.say("preparing")
        rules, _ = load_rewrites(RuleSettings(patterns=str(shipped_catalog("prepare"))), model)
        self.nodes, before = model.graph.computing_count, model.computing_count
        done = rewrite(model, rules)
        counts = {rule: count for rule, count in done.counts.items() if count}
        self.preparation = Preparation(counts, done.rounds, (before, model.computing_count))
        if not is_modified(model):
            return model
        self.prepared = model
        prepared = as_written(model)
        prepared.notes = [*model.notes, *losses(model)]
        return prepared

    def check(self, written: Path) -> Delivery:
        """Judge the result against the file; prove that calls stand for the prepared nodes."""
        if self.prepared is None or self.preparation is None:
            return super().check(written)
        self.moves_only = False
        delivery = super().check(written)
        how = self.writing.external_data
        with staged(self.prepared, self.output, external_data=how) as file:
            proof, unproved = prove(file.path, written)
        self.preparation = replace(self.preparation, proof=proof, unproved=unproved)
        return doubted(delivery, "what calls stand for is not proved by structure", unproved)


class _Outlined(NamedTuple):
    """A model whose matches are outlined, the outcome, and what will be measured."""

    model: Model
    outcome: PartitionOutcome
    measuring: Measuring


def _merged(
    rules: Sequence[PatternRule],
    outlined: _Outlined,
    job: _PartitionJob,
    settings: PartitionSettings,
) -> _Outlined:
    """Merge partitions; to prune, begin anew without the matches whose regions are light."""
    from dplcli.passes.merge import merge_partitions  # noqa: PLC0415  # only to merge

    light: dict[int, str] = {}
    while True:
        job.say("merging")
        model, outcome, _ = outlined
        regions = merge_partitions(model, {rule.name for rule in rules})
        left_out = light_matches(outcome.selection, outcome.partitions, regions, light)
        if not left_out or not settings.prune:
            nodes = (outcome.nodes[0], model.graph.computing_count)
            return outlined._replace(outcome=replace(outcome, regions=tuple(regions), nodes=nodes))
        light |= left_out
        job.say("matching")
        anew = load_model(job.path) if job.prepared is None else as_written(job.prepared)
        outlined = _outline_matches(anew, rules, job, settings, light)


def _outline_matches(
    model: Model,
    rules: Sequence[PatternRule],
    job: _PartitionJob,
    settings: PartitionSettings,
    light: Mapping[int, str] = MappingProxyType({}),
) -> _Outlined:
    before, is_sorted = model.graph.computing_count, is_modified(model)
    chosen = select_matches(model, rules)
    # Refuse the matches at the positions for which there is a reason.
    matches, refused = [], list(chosen.refused)
    for place, match in enumerate(chosen.matches):
        if place in light:
            refused.append(Rejection(match.rule, match.root, "prune", light[place], match.root))
        else:
            matches.append(match)
    selection = replace(chosen, matches=matches, refused=refused)
    hints: tuple[str, ...] = ()
    if settings.hints and model.path is not None and not light:
        hints = hints_on_matches(model.path, model, chosen, is_prepared=settings.prepare)
    job.say("measuring")
    sizes = given_sizes(model, job.verification)
    measuring = Measuring(model, fates(model, selection), sizes, can_wait=settings.verify)
    job.say("outlining")
    partitions = outline_matches(model, selection)
    outcome = PartitionOutcome(
        label="" if model.path is None else model.path.name,
        rules=tuple(rules),
        selection=selection,
        notes=tuple(model.notes),
        partitions=tuple(partitions),
        nodes=(before, model.graph.computing_count),
        is_sorted=is_sorted,
        hints=hints,
    )
    return _Outlined(model, outcome, measuring)


# Outlining the repeated blocks of a model, checking and writing it.


_EXPECTED_NAME = re.compile(rf"^\s*{REPEAT_DOMAIN}\.(\w+)\s*[<>=]")


@paused_gc()
def repeat(model_path: Path, settings: RepeatingSettings) -> RepeatOutcome:
    """Outline every repeated block as a call of one function, verify the result, and write it.

    The output appears complete, or not at all, as that of :func:`partition` does.

    Args:
        model_path: The model.
        settings: What counts as a repeated block, and how the result is checked and written;
            expectations are of names such as ``repeat.layer``.

    Raises:
        DplError: The model cannot be used, the output cannot be written, or no verdict on the
            result can be reached.
    """
    # A rule for each block named: no block is known before the search.
    named = (_EXPECTED_NAME.match(text) for text in settings.expect)
    names = dict.fromkeys(match.group(1) for match in named if match is not None)
    placeholders = [
        PatternRule(target=REPEAT_DOMAIN, name=name, pattern=is_op()(...)) for name in names
    ]
    expected = parse_expectations(settings.expect, placeholders)
    job = WriteJob(model_path, settings)
    model = job.open()
    job.protect(model, set())
    outcome = _outline_blocks(model, settings, job.say)
    counts = {rule.qualified_name: 0 for rule in placeholders} | outcome.counts
    judged = judge_expectations(expected, counts)
    before = model_path.stat().st_size
    delivery = job.finish(
        model, is_changed=outcome.is_changed, is_wanted=lambda _size: not unmet_of(judged)
    )
    return replace(outcome, expected=judged, delivery=delivery, size=(before, delivery.size))


def _outline_blocks(model: Model, options: RepeatSettings, say: Progress) -> RepeatOutcome:
    from dplcli.passes.repeat import outline_repeats  # noqa: PLC0415  # only here

    before, is_sorted = model.graph.computing_count, is_modified(model)
    say("searching for repeated blocks")
    result = outline_repeats(model, options)
    partitions = [p for family in result.families for p in family.partitions]
    return RepeatOutcome(
        label="" if model.path is None else model.path.name,
        rules=result.selection.rules,
        selection=result.selection,
        notes=(*model.notes, *losses(model, in_calls=True)),
        partitions=tuple(partitions),
        nodes=(before, model.graph.computing_count),
        families=tuple(result.families),
        is_sorted=is_sorted,
    )
