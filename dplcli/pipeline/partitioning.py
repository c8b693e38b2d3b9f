"""Outline matches, regions or repeated blocks as functions, or inline them; check and write."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl import PatternRule
from dplcli.dpl.pattern import wildcard
from dplcli.dpl.rule import Policies, Rejection, parse_expectations, unmet_expectations
from dplcli.errors import UsageError, did_you_mean
from dplcli.ir.model import NODES_KEY, called_function
from dplcli.onnx_io import is_modified, load_model, paused_gc
from dplcli.outcomes import InlineOutcome, PartitionOutcome, RepeatOutcome
from dplcli.passes.inline import inline as inline_functions
from dplcli.passes.merge import light_regions, merge_partitions
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.records import REPEAT_DOMAIN, is_written
from dplcli.passes.repeat import RepeatOptions, outline_repeats
from dplcli.passes.select import select_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.matching import Measuring, given_sizes
from dplcli.pipeline.rules import RuleSource, load_rules
from dplcli.pipeline.writing import (
    WriteSettings,
    finish,
    open_model,
    protect_files,
    say_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Function, Model, Node
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.select import Selection
    from dplcli.pipeline.writing import Progress


# Inlining functions, checking the result and writing it.


@dataclass(frozen=True)
class InlineChoice:
    """What to inline; nothing chosen means everything that a partition wrote.

    Attributes:
        targets: Domains, all of whose functions are inlined, whoever wrote them.
        functions: Functions, as ``dnnl::conv2d_relu``.
        calls: Single calls, by the name of the node or of an output.
        everything: Whether to inline every function there is.
    """

    targets: Sequence[str] = ()
    functions: Sequence[str] = ()
    calls: Sequence[str] = ()
    everything: bool = False


@paused_gc()
def inline(
    model_path: Path,
    *,
    output: Path,
    choice: InlineChoice | None = None,
    settings: WriteSettings | None = None,
    progress: Progress | None = None,
) -> InlineOutcome:
    """Put functions in the place of their calls, verify the result, and write it.

    Args:
        model_path: The model.
        output: Where to write the result; it appears complete, or not at all.
        choice: What to inline; None for everything that a partition wrote.
        settings: How the result is checked and written.
        progress: Told what is being done.

    Raises:
        DplError: The model cannot be used, something chosen is not there, the output cannot be
            written, or no verdict on the result can be reached.
    """
    settings = settings or WriteSettings()
    say = progress or say_nothing
    model = open_model(model_path, output, settings, say)
    protect_files(model, output, settings.failed_path(output), set())
    functions, only = _chosen(model, choice or InlineChoice())
    before, known = model.graph.node_count, len(model.functions)
    is_sorted = is_modified(model)
    say("inlining")
    outcome = InlineOutcome(
        label=model_path.name,
        inlining=inline_functions(model, functions, only),
        notes=tuple(model.notes),
        nodes=(before, model.graph.node_count),
        functions=known,
        is_sorted=is_sorted,
    )
    verdict = finish(model, model_path, output, settings, say, is_changed=outcome.is_changed)
    return replace(outcome, verdict=verdict)


def _chosen(model: Model, choice: InlineChoice) -> tuple[list[Function], Collection[Node] | None]:
    """Return the functions chosen, and the calls if not all of them are.

    Raises:
        UsageError: Something chosen is not there.
    """
    known = model.functions.values()
    if choice.everything:
        return list(known), None
    if choice.calls:
        return _of_calls(model, choice.calls)
    if not choice.targets and not choice.functions:
        return written_functions(model), None
    found = [function for name in choice.functions for function in _named(known, name)]
    for target in choice.targets:
        found += _of_target(known, target)
    return found, None


def written_functions(model: Model) -> list[Function]:
    """Return the functions that dpl has outlined: they, or their calls, say so."""
    marked = {
        called_function(node)
        for graph in model.graphs()
        for node in graph
        if called_function(node) is not None and NODES_KEY in node.remarks.metadata
    }
    return [
        function
        for function in model.functions.values()
        if function in marked or is_written(function)
    ]


def _of_calls(model: Model, names: Iterable[str]) -> tuple[list[Function], set[Node]]:
    functions: dict[Function, None] = {}
    calls = set()
    for name in names:
        found = find_nodes(model, name)
        if len(found) > 1:
            where = ", ".join(f"{node.qualified_op} -> {_output_of(node)!r}" for node in found)
            raise UsageError(
                f"--call {name!r}: {len(found)} nodes have this name: {where}",
                hint="name one by its output",
            )
        function = called_function(found[0])
        if function is None:
            raise UsageError(
                f"--call {name!r}: is a {found[0].qualified_op}, not a call of a function"
            )
        functions[function] = None
        calls.add(found[0])
    return list(functions), calls


def _output_of(node: Node) -> str:
    return next((output.name for output in node.outputs if output is not None), "")


def _named(functions: Iterable[Function], name: str) -> list[Function]:
    """Return the functions of that name; several if they differ in their overload."""
    found = [function for function in functions if _name_of(function) == name]
    if not found:
        names = [_name_of(function) for function in functions]
        raise UsageError(
            f"--function {name!r}: the model has no such function", hint=_hint(name, names)
        )
    return found


def _of_target(functions: Iterable[Function], target: str) -> list[Function]:
    found = [function for function in functions if function.domain == target]
    if not found:
        domains = [function.domain for function in functions]
        raise UsageError(
            f"--target {target!r}: the model has no function of this domain",
            hint=_hint(target, domains),
        )
    return found


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    if not names:
        return "the model has no functions at all"
    return did_you_mean(name, names) or f"there is {', '.join(names[:_MOST_NAMED])}"


_MOST_NAMED = 8


def _name_of(function: Function) -> str:
    return f"{function.domain}::{function.name}"


# Which matches a run leaves out, because what they would become is not worth a call.


def check_merge(*, merge: bool, prune: bool) -> None:
    """Refuse what cannot be meant.

    Raises:
        UsageError: Regions are to be pruned and none are to be made.
    """
    if prune and not merge:
        raise UsageError("--prune is about the regions that --merge makes", hint="pass both")


def light_matches(
    selection: Selection,
    partitions: Sequence[Partition],
    regions: Sequence[Region],
    before: Mapping[int, str],
) -> dict[int, str]:
    """Say which matches only make regions without a heavy operator.

    Args:
        selection: What was found, without *before*.
        partitions: What it was made into.
        regions: What that was merged into.
        before: What was left out already.

    Returns:
        Why, by the place of the match among all that were found.
    """
    reasons = {}
    for region in light_regions(regions):
        count = len(region.partitions)
        several = f"none of the {count} partitions of its region has a heavy operator"
        reason = several if count > 1 else "it has no heavy operator and no neighbour"
        reasons.update(dict.fromkeys((region.call, *region.members), reason))
    found = {id(item.match): reasons[item.call] for item in partitions if item.call in reasons}
    total = len(selection.matches) + len(before)
    places = (place for place in range(total) if place not in before)
    return {
        place: found[id(match)]
        for place, match in zip(places, selection.matches, strict=True)
        if id(match) in found
    }


def without_matches(selection: Selection, light: Mapping[int, str]) -> Selection:
    """Refuse the matches of *selection* at the places that *light* gives reasons for."""
    if not light:
        return selection
    matches = enumerate(selection.matches)
    refused = [
        Rejection(match.rule, match.root, "prune", light[place], match.root)
        for place, match in enumerate(selection.matches)
        if place in light
    ]
    return replace(
        selection,
        matches=[match for place, match in matches if place not in light],
        refused=[*selection.refused, *refused],
    )


# Outlining, checking and writing a model.


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
    outlined = _outline_matches(model, tried, say, settings)
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
        outlined = _outline_matches(model, rules, say, settings, light)


def _outline_matches(
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


# Outlining the repeated blocks of a model, checking and writing it.


_EXPECTED_NAME = re.compile(rf"^\s*{REPEAT_DOMAIN}\.(\w+)\s*[<>=]")


@paused_gc()
def repeat(
    model_path: Path,
    *,
    output: Path,
    options: RepeatOptions | None = None,
    settings: PartitionSettings | None = None,
    progress: Progress | None = None,
) -> RepeatOutcome:
    """Outline every repeated block as a call of one function, verify the result, and write it.

    The output appears complete, or not at all, as that of :func:`partition` does.

    Args:
        model_path: The model.
        output: Where to write the result.
        options: What counts as a repeated block.
        settings: How to check and write; expectations are of names such as ``repeat.layer``.
        progress: Told what is being done.

    Raises:
        DplError: The model cannot be used, the output cannot be written, or no verdict on the
            result can be reached.
    """
    settings = settings or PartitionSettings()
    say = progress or say_nothing
    placeholders = _named_in(settings.expectations)
    expected = parse_expectations(settings.expectations, placeholders)
    model = open_model(model_path, output, settings, say)
    protect_files(model, output, settings.failed_path(output), set())
    outcome = _outline_blocks(model, options or RepeatOptions(), say)
    counts = {rule.qualified_name: 0 for rule in placeholders} | outcome.counts
    outcome = replace(outcome, unmet=unmet_expectations(expected, counts))

    is_met = not outcome.unmet
    before = model_path.stat().st_size
    verdict = finish(
        model, model_path, output, settings, say, is_changed=outcome.is_changed, is_met=is_met
    )
    return replace(outcome, verdict=verdict, size=(before, verdict.size))


def _named_in(expectations: Iterable[str]) -> list[PatternRule]:
    """Return a rule for each block named: which there are is not known before they are found."""
    found = (_EXPECTED_NAME.match(text) for text in expectations)
    names = dict.fromkeys(match.group(1) for match in found if match is not None)
    return [PatternRule(target=REPEAT_DOMAIN, name=name, pattern=wildcard()) for name in names]


def _outline_blocks(model: Model, options: RepeatOptions, say: Progress) -> RepeatOutcome:
    before, is_sorted = model.graph.node_count, is_modified(model)
    say("searching for repeated blocks")
    result = outline_repeats(model, options)
    partitions = [p for family in result.families for p in family.partitions]
    return RepeatOutcome(
        label="" if model.path is None else model.path.name,
        rules=result.selection.rules,
        selection=result.selection,
        notes=tuple(model.notes),
        partitions=tuple(partitions),
        nodes=(before, model.graph.node_count),
        families=tuple(result.families),
        is_sorted=is_sorted,
    )
