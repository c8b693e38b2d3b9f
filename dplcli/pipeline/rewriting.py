"""Rewriting a model by rules or by a plan, checking the result and writing it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.errors import UsageError
from dplcli.onnx_io import (
    check_external_data,
    check_imports,
    external_files,
    is_modified,
    load_model,
    paused_gc,
    written_size,
)
from dplcli.passes.replay import replay
from dplcli.passes.rewriting import rewrite as rewrite_model
from dplcli.pipeline.plans import (
    check_plan_path,
    check_rules_of,
    check_same_model,
    named_catalogues,
    read_plan,
    save_plan,
)
from dplcli.pipeline.restrictions import NotedRestrictions, parse_restrictions
from dplcli.pipeline.rewrite_outcome import RewriteOutcome, RewriteSettings
from dplcli.pipeline.rules import RuleSource, load_rewrites
from dplcli.pipeline.steps import StepVerifier
from dplcli.pipeline.writing import (
    Verdict,
    check_output,
    check_result,
    protect_files,
    say_nothing,
    write_checked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.dpl import RewriteRule
    from dplcli.ir import Model
    from dplcli.passes.observer import RewriteObserver
    from dplcli.passes.rewriting import Rewriting
    from dplcli.passes.trace import Trace
    from dplcli.pipeline.writing import Progress

DEFAULT_GROWTH = 5.0
"""By how many percent a model may grow if nobody says otherwise."""

FREE_GROWTH = 1 << 14
"""Bytes that any model may grow by then: new nodes say which rule made them from what."""


@paused_gc()
def rewrite(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[RewriteRule] = (),
    settings: RewriteSettings | None = None,
    allow_code: bool = False,
    progress: Progress | None = None,
    trace: Trace | None = None,
) -> RewriteOutcome:
    """Replace what matches until nothing does, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there.

    Args:
        model_path: The model.
        output: Where to write the result.
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        rules: Rules made in Python; they come after those of the catalogues.
        settings: What to do, and how to check it.
        allow_code: Whether YAML may name Python functions to import.
        progress: Called with a short phrase before each step that may take long.
        trace: Filled with what happens, also where this ends with an error.

    Raises:
        RewriteLimitError: The rules would go on without an end; names them.
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    settings = settings or RewriteSettings()
    run = _Run(model_path, output, settings, progress or say_nothing)
    source = RuleSource(patterns, targets, rules, allow_code)
    run.load(source)
    only, skip = (
        parse_restrictions(option, texts, run.rules, run.model)
        for option, texts in (("--only", settings.only), ("--skip", settings.skip))
    )
    observer = NotedRestrictions(only, skip, settings.limit)
    run.say("rewriting")
    done = rewrite_model(run.model, run.rules, observer, watchers=run.watchers(trace))
    untried = (rule.qualified_name for rule in run.rules if not observer.may_try(rule))
    outcome = run.describe(done)
    outcome = replace(
        outcome,
        untried=frozenset(untried),
        is_stopped=observer.is_over,
        notes=(*outcome.notes, *observer.notes()),
    )
    if settings.plan is not None:
        save_plan(
            settings.plan,
            model_path,
            [*patterns, *targets],
            done.applications,
            opset=settings.opset,
        )
    return run.finish(outcome)


@paused_gc()
def apply_plan(  # noqa: PLR0913  # all by keyword
    plan_path: Path,
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    rules: Sequence[RewriteRule] = (),
    settings: RewriteSettings | None = None,
    force: bool = False,
    skip_missing: bool = False,
    allow_code: bool = False,
    progress: Progress | None = None,
    trace: Trace | None = None,
) -> RewriteOutcome:
    """Do what a plan lists, and nothing else; verify the result and write it.

    Args:
        plan_path: The plan, as :func:`rewrite` writes it.
        model_path: The model.
        output: Where to write the result.
        patterns: Catalogues to use instead of those that the plan names.
        rules: Rules made in Python; they come after those of the catalogues.
        settings: How to check and write the result; what else a rewrite does has no effect.
        force: Whether to go on with a model that the plan was not made for.
        skip_missing: Whether to leave out what does not fit; otherwise it ends the run, and the
            answer is no.
        allow_code: Whether the plan may name catalogues in Python, and YAML Python functions.
        progress: Called with a short phrase before each step that may take long.
        trace: Filled with what happens, also where this ends with an error.

    Raises:
        UsageError: The plan was made for another model.
        DplError: As for :func:`rewrite`; or the plan cannot be used.
    """
    plan = read_plan(plan_path)
    settings = replace(settings or RewriteSettings(), opset=plan.opset)
    run = _Run(model_path, output, settings, progress or say_nothing)
    catalogues = list(patterns) or named_catalogues(plan, allow_code=allow_code)
    run.load(RuleSource(catalogues, (), rules, allow_code), plan_path)
    other = check_same_model(plan, model_path)
    if other and not force:
        raise UsageError(other, hint="pass --force to apply it all the same")
    check_rules_of(plan, run.rules)
    run.say("rewriting")
    done = replay(
        run.model,
        run.rules,
        entries=plan.entries,
        skip_missing=skip_missing,
        watchers=run.watchers(trace),
    )
    outcome = replace(
        run.describe(done.rewriting), plan=plan, missing=done.missing, may_miss=skip_missing
    )
    if other:
        outcome = replace(outcome, notes=(*outcome.notes, other))
    return run.finish(outcome)


class _Run:
    """What rewriting by rules and by a plan have in common."""

    def __init__(
        self, model_path: Path, output: Path, settings: RewriteSettings, say: Progress
    ) -> None:
        self.path = model_path
        self.output = output
        self.settings = settings
        self.say = say
        self.steps: StepVerifier | None = None
        if settings.verify_each and (settings.dry_run or not settings.verify):
            option = "--dry-run" if settings.dry_run else "--no-verify"
            raise UsageError(
                f"--verify-each and {option} contradict each other", hint="leave one of them out"
            )
        if not settings.dry_run:
            check_output(model_path, output, in_place=settings.in_place)

    def load(self, source: RuleSource, plan: Path | None = None) -> None:
        """Read the model and the rules, and look at everything that could fail later.

        Args:
            source: Where the rules come from.
            plan: The plan that is read; like a catalogue, it is not to be replaced.
        """
        settings = self.settings
        failed = settings.failed_path(self.output)
        if plan is not None and plan.resolve() == self.output.resolve():
            raise UsageError(f"{self.output}: is the plan")
        if settings.plan is not None:
            check_plan_path(settings.plan, (self.path, self.output, failed))
        self.say(f"reading {self.path.name}")
        self.model: Model = load_model(self.path, opset=settings.opset)
        check_imports(self.model)
        check_external_data(self.model)
        self.model.note_refutations()
        self.rules, files = load_rewrites(source, self.model)
        if not settings.dry_run:
            protect_files(self.model, self.output, failed, files)
        self.expected = parse_expectations(settings.expectations, self.rules)
        self.ops = _count(load_model(self.path) if is_modified(self.model) else self.model)
        external = external_files(self.model, self.path.parent)
        self.external = sum(path.stat().st_size for path in external)
        self.size = self.path.stat().st_size

    def watchers(self, trace: Trace | None) -> list[RewriteObserver]:
        """Return who is told of what happens."""
        watchers: list[RewriteObserver] = [] if trace is None else [trace]
        if self.settings.verify_each:
            self.steps = StepVerifier(
                self.model, self.path, self.output, self.settings.verification, self.say
            )
            self.steps.begin()
            watchers.append(self.steps)
        return watchers

    def describe(self, done: Rewriting) -> RewriteOutcome:
        """Say what was done to the model, which is not written yet."""
        before = self.size + self.external
        return RewriteOutcome(
            label=self.path.name,
            rules=tuple(self.rules),
            counts=done.counts,
            applications=done.applications,
            rounds=done.rounds,
            refused=done.refused,
            ops=(self.ops, _count(self.model)),
            size=(before, before),
            is_changed=is_modified(self.model),
            notes=tuple(self.model.notes),
            unmet=unmet_expectations(self.expected, done.counts),
            broken=None if self.steps is None else self.steps.broken,
            is_dry=self.settings.dry_run,
        )

    def finish(self, outcome: RewriteOutcome) -> RewriteOutcome:
        """Check what came out and write it, if that was asked for."""
        settings = self.settings
        if outcome.missing and not outcome.may_miss:
            return outcome
        if outcome.broken is not None and not settings.keep_failed:
            return replace(outcome, verdict=outcome.broken.verdict)
        if settings.dry_run:
            return self._measured(outcome, written_size(self.model))
        self.say("writing")
        verdict = write_checked(
            self.model,
            self.output,
            settings,
            lambda written: self._check(outcome, written),
            is_wanted=lambda size: self._measured(outcome, size).is_wanted,
        )
        return replace(self._measured(outcome, verdict.size), verdict=verdict)

    def _check(self, outcome: RewriteOutcome, written: Path) -> Verdict:
        settings = self.settings
        if not settings.verify or not outcome.is_changed:
            return Verdict()
        if self.steps is not None:
            return self.steps.verdict
        return check_result(self.path, written, settings.verification, self.say)

    def _measured(self, outcome: RewriteOutcome, size: int) -> RewriteOutcome:
        """Add how large the file is, and whether that is too much."""
        before, after = outcome.size[0], size + self.external
        growth = _growth(before, after, self.settings.max_growth)
        return replace(outcome, size=(before, after), growth=growth)


def _growth(before: int, after: int, most: float | None) -> str:
    """Say why growing from *before* to *after* bytes is too much, or ""."""
    allowed = DEFAULT_GROWTH if most is None else most
    free = FREE_GROWTH if most is None else 0
    if after - before <= max(before * allowed / 100, free):
        return ""
    percent = 100 * (after - before) / before
    return (
        f"the model would grow from {before:,} to {after:,} bytes, which is {percent:.1f} % and "
        f"more than {allowed:g} %; --max-growth {math.ceil(percent)} allows it"
    )


def _count(model: Model) -> Counter[str]:
    return Counter(node.qualified_op for graph in model.graphs() for node in graph)
