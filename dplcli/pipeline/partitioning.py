"""Outline matches, regions or repeated blocks as functions, or inline functions again."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from dplcli.catalog.finding import shipped_catalog
from dplcli.errors import UsageError, did_you_mean, opt
from dplcli.ir.model import NODES_KEY, called_function, calls_in
from dplcli.language import PatternRule
from dplcli.language.pattern import is_op
from dplcli.language.rule import Rejection, judge_expectations, parse_expectations, unmet_of
from dplcli.onnx_io import as_written, is_modified, losses, paused_gc, staged
from dplcli.outcomes.partitioning import PartitionOutcome, Preparation, RepeatOutcome
from dplcli.outcomes.written import InlineOutcome
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.records import REPEAT_DOMAIN, is_written
from dplcli.passes.select import fates, in_program_order, select_matches
from dplcli.pipeline.hints import hints_on_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.matching import Measuring, given_sizes
from dplcli.pipeline.rules import load_rewrites, load_rules
from dplcli.pipeline.taking_back import (
    FAILED,
    Attempt,
    Undoable,
    is_left_out,
    keep_what_holds,
    names_of,
)
from dplcli.pipeline.verifying import prove
from dplcli.pipeline.writing import WriteJob, doubted
from dplcli.settings import RuleSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Function, Model, Node
    from dplcli.language.rule import Match
    from dplcli.outcomes.written import Delivery
    from dplcli.pipeline.taking_back import Key, Left
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
    count = len(model.functions)

    def make(left: Left) -> Attempt[InlineOutcome]:
        model = job.unedited()
        functions, only = _chosen(model, settings)
        before, is_sorted = model.graph.computing_count, is_modified(model)
        job.say("inlining")

        def stays(function: Function, call: Node) -> str:
            is_left = is_left_out(function.qualified_name, call.first_output, left)
            return FAILED if is_left else ""

        inlining = inline_functions(model, functions, only, stays)
        outcome = InlineOutcome(
            label=model_path.name,
            inlining=inlining,
            notes=(*model.notes, *losses(model)),
            nodes=(before, model.graph.computing_count),
            functions=count,
            is_sorted=is_sorted,
        )
        steps = [
            Undoable(done.function.qualified_name, done.outputs[0], frozenset(done.outputs))
            for done in inlining.calls
            if done.outputs
        ]
        return Attempt(model, outcome, steps)

    def finish(attempt: Attempt[InlineOutcome]) -> InlineOutcome:
        outcome = attempt.outcome
        delivery = job.finish(attempt.model, is_changed=outcome.is_changed)
        return replace(outcome, delivery=delivery)

    return keep_what_holds(job, make, finish)


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
        missing = f"{opt('target')} {target!r}: the model has no function of this domain"
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
                f"{opt('call')} {name!r}: {len(nodes)} nodes have this name: {where}",
                hint="name one by its output",
            )
        function = called_function(nodes[0])
        if function is None:
            raise UsageError(
                f"{opt('call')} {name!r}: is a {nodes[0].qualified_op}, not a call of a function"
            )
        functions[function] = None
        calls.add(nodes[0])
    return list(functions), calls


def _named(functions: Iterable[Function], name: str) -> list[Function]:
    """Return the functions of that name; there are several if overloads differ."""
    names = {function: f"{function.domain}::{function.name}" for function in functions}
    return _chosen_by(names, name, f"{opt('function')} {name!r}: the model has no such function")


def _chosen_by(names: Mapping[Function, str], wanted: str, missing: str) -> list[Function]:
    """Return the functions whose name is *wanted*; *missing* is the message if there is none."""
    functions = [function for function, name in names.items() if name == wanted]
    if not functions:
        known = list(dict.fromkeys(names.values()))
        hint = did_you_mean(wanted, known) or f"there is {', '.join(known[:_MOST_NAMED])}"
        raise UsageError(missing, hint=hint if known else "the model has no functions at all")
    return functions


# Pruning: matches that are left out because their region is not worth a call.


def light_matches(outlined: _Outlined) -> dict[Key, str]:
    """Return the matches whose regions have no heavy operator, with the reason to leave them out.

    Args:
        outlined: The matches, the partitions that they became, and the regions of these.
    """
    from dplcli.passes.merge import light_regions  # noqa: PLC0415  # only to prune

    reasons = {}
    for region in light_regions(outlined.outcome.regions or ()):
        count = len(region.partitions)
        several = f"none of the {count} partitions of its region has a heavy operator"
        reason = several if count > 1 else "it has no heavy operator and no neighbour"
        reasons.update(dict.fromkeys((region.call, *region.members), reason))
    return {
        step.key: reasons[item.call]
        for step, item in zip(outlined.steps, outlined.outcome.partitions, strict=False)
        if item.call in reasons
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
        model = job.prepare(frozenset())
    job.say("loading rules")
    tried, files = load_rules(settings, model)
    job.protect(model, files)
    expected = parse_expectations(settings.expect, tried)

    def make(left: Left) -> _Outlined:
        if settings.prepare and left:
            job.prepare(left)
        outlined = _outline_matches(job.unedited(), tried, job, settings, left)
        if settings.merge:
            outlined = _merged(tried, outlined, job, settings, left)
        return replace(outlined, steps=[*job.steps, *outlined.steps])

    def finish(outlined: _Outlined) -> PartitionOutcome:
        model, outcome = outlined.model, outlined.outcome
        judged = judge_expectations(expected, outcome.counts)
        delivery = job.finish(
            model, is_changed=outcome.is_changed, is_wanted=lambda _size: not unmet_of(judged)
        )
        outcome = replace(
            outcome,
            expected=judged,
            delivery=delivery,
            coverage=outlined.measuring.coverage(delivery.verification),
            notes=(*outcome.notes, *losses(model, in_calls=True)),
        )
        if job.preparation is None:
            return outcome
        return replace(outcome, prepared=job.preparation, nodes=(job.nodes, outcome.nodes[1]))

    return keep_what_holds(job, make, finish)


class _PartitionJob(WriteJob):
    """Outlines matches of a model, which may be rewritten first.

    Attributes:
        prepared: The rewritten model as it was before matches were outlined; None if it is that
            of the file.
        preparation: What was rewritten; None if nothing was to be.
        nodes: How many nodes the main graph of the file has.
        steps: What was rewritten, as what can be left out.
    """

    prepared: Model | None = None
    preparation: Preparation | None = None
    nodes: int = 0
    steps: Sequence[Undoable] = ()

    def prepare(self, left: Left) -> Model:
        """Rewrite the model by the shipped catalogue; return it as a file would hold it.

        Args:
            left: What made an earlier result fail.
        """
        from dplcli.passes.rewrite import (  # noqa: PLC0415  # only to prepare
            RestrictingObserver,
            Restriction,
            rewrite,
        )

        self.prepared = None
        model = self.unedited()
        self.say("preparing")
        rules, _ = load_rewrites(RuleSettings(patterns=str(shipped_catalog("prepare"))), model)
        self.nodes, before = model.graph.computing_count, model.computing_count
        observer = RestrictingObserver(skip=[Restriction(*each) for each in left])
        done = rewrite(model, rules, observer)
        counts = {rule: count for rule, count in done.counts.items() if count}
        self.preparation = Preparation(counts, done.rounds, (before, model.computing_count))
        self.steps = [Undoable(e.rule, e.root.label, e.values) for e in done.applications]
        if is_modified(model):
            self.prepared = model
            self.model = self.load()
        self._is_edited = False
        return self.model

    def load(self) -> Model:
        """Read the model as it is before anything is outlined."""
        if self.prepared is None:
            return super().load()
        model = as_written(self.prepared)
        model.notes = [*self.prepared.notes, *losses(self.prepared)]
        return model

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


@dataclass(frozen=True)
class _Outlined(Attempt[PartitionOutcome]):
    """A model whose matches are outlined.

    Attributes:
        measuring: What will be measured.
    """

    measuring: Measuring


def _merged(
    rules: Sequence[PatternRule],
    outlined: _Outlined,
    job: _PartitionJob,
    settings: PartitionSettings,
    left: Left,
) -> _Outlined:
    """Merge partitions; to prune, begin anew without the matches whose regions are light."""
    from dplcli.passes.merge import merge_partitions  # noqa: PLC0415  # only to merge

    light: dict[Key, str] = {}
    while True:
        job.say("merging")
        model, outcome = outlined.model, outlined.outcome
        regions = merge_partitions(
            model,
            {rule.name for rule in rules},
            lambda calls: any(
                is_left_out(f"{call.domain}.region", value.name, left)
                for call in calls
                for value in call.made
            ),
        )
        nodes = (outcome.nodes[0], model.graph.computing_count)
        steps = [
            Undoable(f"{r.call.domain}.region", r.call.first_output, names_of(r.call.made))
            for r in regions
            if r.members
        ]
        outlined = replace(
            outlined,
            outcome=replace(outcome, regions=tuple(regions), nodes=nodes),
            steps=[*outlined.steps, *steps],
        )
        left_out = light_matches(outlined) if settings.prune else {}
        if not left_out:
            return outlined
        light |= left_out
        job.say("matching")
        outlined = _outline_matches(job.load(), rules, job, settings, left, light)


def _outline_matches(  # noqa: PLR0913, PLR0917  # what is outlined, and what is not
    model: Model,
    rules: Sequence[PatternRule],
    job: _PartitionJob,
    settings: PartitionSettings,
    left: Left,
    light: Mapping[Key, str] = MappingProxyType({}),
) -> _Outlined:
    """Outline what matches.

    Args:
        model: The model.
        rules: The rules.
        job: The job.
        settings: What is to be said of it.
        left: The matches that made an earlier result fail.
        light: The matches whose regions are not worth a call, and why.
    """
    before, is_sorted = model.graph.computing_count, is_modified(model)
    job.say("matching")
    chosen = select_matches(model, rules)
    hints: tuple[str, ...] = ()
    if settings.hints and model.path is not None and not light and not left:
        said = hints_on_matches(model.path, model, chosen, is_prepared=settings.prepare)
        hints, chosen = said.hints, replace(chosen, refused=[*said.refused])
    matches, refused = [], list(chosen.refused)
    for match in chosen.matches:
        key = _step(match).key
        if is_left_out(*key, left):
            refused.append(Rejection(match.rule, match.root, "check", FAILED, match.root))
        elif key in light:
            refused.append(Rejection(match.rule, match.root, "prune", light[key], match.root))
        else:
            matches.append(match)
    selection = replace(chosen, matches=matches, refused=refused)
    job.say("measuring")
    sizes = given_sizes(model, job.verification)
    measuring = Measuring(model, fates(model, selection), sizes, can_wait=settings.verify)
    job.say("outlining")
    steps = [_step(match) for match in in_program_order(matches)]
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
    return _Outlined(model, outcome, steps, measuring)


def _step(match: Match) -> Undoable:
    """Return an outlining as a step; the root's output stays when it is outlined."""
    values = names_of(value for node in match.nodes for value in node.made)
    return Undoable(match.rule.qualified_name, match.root.first_output, values)


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
    before = model_path.stat().st_size

    def make(left: Left) -> Attempt[RepeatOutcome]:
        model = job.unedited()
        outcome = _outline_blocks(model, settings, job.say, left)
        steps = [
            Undoable(
                _BLOCK,
                family.partitions[0].call.first_output,
                names_of(value for each in family.partitions for value in each.call.made),
            )
            for family in outcome.families
        ]
        return Attempt(model, outcome, steps)

    def finish(attempt: Attempt[RepeatOutcome]) -> RepeatOutcome:
        outcome = attempt.outcome
        counts = {rule.qualified_name: 0 for rule in placeholders} | outcome.counts
        judged = judge_expectations(expected, counts)
        delivery = job.finish(
            attempt.model,
            is_changed=outcome.is_changed,
            is_wanted=lambda _size: not unmet_of(judged),
        )
        return replace(outcome, expected=judged, delivery=delivery, size=(before, delivery.size))

    return keep_what_holds(job, make, finish)


_BLOCK = "block"
"""What a kind of repeated block is called where it is taken back."""


def _outline_blocks(
    model: Model, options: RepeatSettings, say: Progress, left: Left
) -> RepeatOutcome:
    from dplcli.passes.repeat import outline_repeats  # noqa: PLC0415  # only here

    before, is_sorted = model.graph.computing_count, is_modified(model)
    say("searching for repeated blocks")
    result = outline_repeats(
        model,
        options,
        lambda block: any(
            is_left_out(_BLOCK, value.name, left) for node in block for value in node.made
        ),
    )
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
