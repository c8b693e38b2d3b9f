"""Finding which applications of rules make a model compute something else.

The steps that rules take are replayed in parts, each part compared with the original as
:func:`dplcli.pipeline.verify` does it, until no step can be left out without mending it. Then all
steps of the rules found are set aside and the rest is looked at, so that a second wrong rule does
not hide behind the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.errors import InvalidGraphError
from dplcli.files import provisional, temporary_folder
from dplcli.ir.verifier import verify_model
from dplcli.onnx_io import check_external_data, check_imports, load_model, paused_gc, staged
from dplcli.pipeline.changes import load_changes
from dplcli.pipeline.exhibiting import RuleExhibit, check_folder
from dplcli.pipeline.writing import check_result, say_nothing
from dplcli.verify import Settings as VerifySettings
from dplcli.verify.bisect_result import BisectOutcome, Cause, Step, Trial
from dplcli.verify.ddmin import minimise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.pipeline.changes import Changes
    from dplcli.pipeline.rules import RuleSource
    from dplcli.pipeline.writing import Progress, Verdict
    from dplcli.verify import VerificationResult

MOST = 20
"""How many causes are looked for if nobody says otherwise."""


@paused_gc()
def bisect_rules(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    source: RuleSource,
    *,
    kind: str | None = None,
    settings: VerifySettings | None = None,
    output: Path | None = None,
    most: int = MOST,
    progress: Progress | None = None,
) -> BisectOutcome:
    """Find the smallest sets of rule applications, or partitions, that break a model.

    Args:
        model_path: The model.
        source: The rules.
        kind: ``rewrite`` or ``partition``; None for what the catalogues are for.
        settings: How to compare.
        output: The folder to write a reproducer of each cause to; None for nowhere.
        most: After so many causes no more are looked for.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: onnxruntime does not run the model.
        DplError: The model or a catalogue cannot be used.
    """
    say, settings = progress or say_nothing, settings or VerifySettings()
    if output is not None:
        check_folder(output)
    say(f"reading {model_path.name}")
    model = load_model(model_path)
    check_imports(model)
    check_external_data(model)
    changes, _ = load_changes(source, model, kind)
    say("applying the rules")
    steps = changes.plan(model)
    del model
    with temporary_folder() as folder:
        search = _Search(model_path, changes, settings, say, folder)
        causes, unjudged, is_complete = search.run(steps, most)
    if output is not None and causes:
        say("cutting out what shows it")
        exhibit = RuleExhibit(model_path, source, changes.kind, settings)
        with provisional() as made:
            made.note(output)  # which stays if something is in it
            output.mkdir(exist_ok=True)
            causes = tuple(
                exhibit.write(cause, output / str(number)) for number, cause in enumerate(causes, 1)
            )
    return BisectOutcome(
        model_path.name, changes.kind, steps, causes, unjudged, is_complete, search.trials
    )


class _Search:
    """One bisection under way."""

    def __init__(
        self, path: Path, changes: Changes, settings: VerifySettings, say: Progress, folder: Path
    ) -> None:
        self.path = path
        self.changes = changes
        self.settings = settings
        self.say = say
        self.folder = folder
        self.trials = 0

    def run(
        self, steps: tuple[Step, ...], most: int
    ) -> tuple[tuple[Cause, ...], tuple[Step, ...], bool]:
        """Return the causes, the steps that were not judged, and whether the rest is sound."""
        rest, causes = steps, list[Cause]()
        while rest:
            trial = self.try_out(rest, self.settings)
            if not trial.reason:
                return tuple(causes), _without(rest, trial.applied), True
            if len(causes) == most:
                return tuple(causes), (), False
            cause = self._cause(trial, steps)
            causes.append(cause)
            rules = {step.rule for step in cause.culprits}
            rest = tuple(step for step in rest if step.rule not in rules)
        return tuple(causes), (), True

    def try_out(self, steps: Sequence[Step], settings: VerifySettings) -> Trial:
        """Apply *steps* to the model and compare."""
        self.trials += 1
        model = load_model(self.path)
        applied = self.changes.apply(model, steps)
        if not applied:
            return Trial(())
        try:
            verify_model(model)
        except InvalidGraphError as error:
            return Trial(applied, f"the graph is broken: {error.message}", settings.levels)
        with staged(model, self.folder / "candidate.onnx") as written:
            verdict = check_result(self.path, written.path, settings, lambda _: None)
        return _trial(applied, verdict, settings)

    def _cause(self, trial: Trial, steps: tuple[Step, ...]) -> Cause:
        settings = replace(self.settings, levels=trial.levels)
        last = trial

        def breaks(part: Sequence[Step]) -> Sequence[Step] | None:
            nonlocal last
            self.say(f"trying {len(part):,} of {len(steps):,} applications")
            found = self.try_out(part, settings)
            if not found.reason:
                return None
            last = found
            return found.applied

        minimal = minimise(trial.applied, breaks)
        needed = self._needed(minimal)
        culprits = tuple(step for step in minimal if step not in needed)
        rules = {step.rule for step in culprits}
        alike = sum(step.rule in rules for step in steps)
        return Cause(culprits, needed, last, alike)

    def _needed(self, minimal: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the steps without which others of *minimal* cannot be applied."""
        found = []
        for step in minimal[:-1]:
            others = [other for other in minimal if other is not step]
            if len(self.changes.apply(load_model(self.path), others)) < len(others):
                found.append(step)
        return tuple(found)


def _trial(applied: tuple[Step, ...], verdict: Verdict, settings: VerifySettings) -> Trial:
    if verdict.objection:
        reason = f"onnx.checker refuses the result: {verdict.objection}"
        return Trial(applied, reason, settings.levels, settings.seeds[0])
    result = verdict.verification
    if result is None or result.equivalent:
        return Trial(applied)
    return Trial(applied, *what_differs(result))


def what_differs(result: VerificationResult) -> tuple[str, tuple[str, ...], int]:
    """Say of two models that are not equivalent why, at which levels it shows, for which seed.

    That onnxruntime refuses the candidate may be so at one level only; all count then.
    """
    wrong = [output for output in result.outputs if not output.ok]
    if result.reasons or not wrong:
        return "; ".join(result.reasons), result.levels, result.seeds[0]
    first = wrong[0]
    reason = f"output {first.name!r} at level {first.level}: {first.reason}"
    return reason, (first.level,), first.seed


def _without(steps: Sequence[Step], others: Sequence[Step]) -> tuple[Step, ...]:
    known = set(map(id, others))
    return tuple(step for step in steps if id(step) not in known)
