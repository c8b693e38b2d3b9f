"""How two models differ: in structure, in the values inside, or by the rule that did it."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast

from dplcli.catalog import plan
from dplcli.catalog.needs import files_named
from dplcli.catalog.plan import REPRODUCER_FILE
from dplcli.diff import DEFAULT_IGNORED, FACETS, Differ, Facet
from dplcli.errors import DplError, UsageError, VerificationError, did_you_mean, opt
from dplcli.files import provisional, put_folder, resolved, temporary_folder
from dplcli.ir.model import scope_of
from dplcli.language import PatternRule, RewriteRule
from dplcli.onnx_io import check_model, load_model, paused_gc, staged
from dplcli.outcomes.comparing import (
    BisectOutcome,
    BisectStep,
    BisectTrial,
    Cause,
    DiffOutcome,
    Divergence,
    ModelsOutcome,
    Reproduced,
)
from dplcli.passes.partition import partition
from dplcli.passes.rewrite import identify, list_nodes, replay, rewrite
from dplcli.passes.select import in_program_order, select_matches
from dplcli.pipeline.rewriting import describe_change
from dplcli.pipeline.rules import catalogs_in, load_any_rules, load_rewrites, load_rules
from dplcli.pipeline.verifying import compare, verify
from dplcli.pipeline.writing import check_result, graph_objection, load_editable, say_nothing
from dplcli.settings import FaultSettings, RuleSettings
from dplcli.verify import Check, Execution, InputRequest, Override
from dplcli.verify.check import Whole
from dplcli.verify.layers import CANDIDATE, DATA, ORIGINAL, minimise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from dplcli.ir import Model
    from dplcli.language.rule import Match
    from dplcli.passes.rewrite import Application
    from dplcli.pipeline.writing import Progress
    from dplcli.verify import VerificationResult
    from dplcli.verify.inputs import Reference
    from dplcli.verify.layers import Cutting, DivergenceSearch, Layers, Specimen
    from dplcli.verify.verdict import Junction

    Changes: TypeAlias = "Rewrites | Partitions"


# The steps that rules take on a model, any of which can be left out.


KINDS = ("rewrite", "partition")


@dataclass(frozen=True)
class Rewrites:
    """Rules that replace, applied one after the other as a plan lists them."""

    rules: Sequence[RewriteRule]
    kind: ClassVar[Literal["rewrite"]] = "rewrite"

    def plan(self, model: Model) -> tuple[BisectStep, ...]:
        """Return the steps that the rules take on *model*, which is edited."""
        return tuple(map(_rewrite_step, rewrite(model, self.rules).applications))

    def apply(self, model: Model, steps: Sequence[BisectStep]) -> tuple[BisectStep, ...]:
        """Apply only *steps* to *model*; return the steps that fit."""
        entries = [plan.PlanEntry(s.rule, s.scope, s.output, s.op_type, s.text) for s in steps]
        done = replay(model, self.rules, entries=entries, skip_missing=True)
        missing = {id(item.entry) for item in done.missing}
        return tuple(
            step for step, entry in zip(steps, entries, strict=True) if id(entry) not in missing
        )


@dataclass(frozen=True)
class Partitions:
    """Matches that become functions."""

    rules: Sequence[PatternRule]
    kind: ClassVar[Literal["partition"]] = "partition"

    def plan(self, model: Model) -> tuple[BisectStep, ...]:
        """Return the partitions that the rules make of *model*."""
        matches = in_program_order(select_matches(model, self.rules).matches)
        return tuple(map(_partition_step, matches))

    def apply(self, model: Model, steps: Sequence[BisectStep]) -> tuple[BisectStep, ...]:
        """Outline only what *steps* list; return the steps that fit."""
        wanted = {step.place for step in steps}
        names = {step.rule for step in steps}
        selection = select_matches(model, [r for r in self.rules if r.qualified_name in names])
        matches = [m for m in selection.matches if _partition_step(m).place in wanted]
        done = {_partition_step(match).place for match in matches}
        partition(model, replace(selection, matches=matches))
        return tuple(step for step in steps if step.place in done)


def _rewrite_step(done: Application) -> BisectStep:
    root, change = done.root, describe_change(done)
    covered = tuple(node.output for node in done.removed) or (root.output,)
    return BisectStep(done.rule, done.scope, root.qualified_op, root.output, covered, change)


def _partition_step(match: Match) -> BisectStep:
    root, *nodes = (identify(node, node.outputs) for node in (match.root, *match.nodes))
    rule, scope = match.rule.qualified_name, scope_of(match.root.graph)
    covered = tuple(node.output for node in nodes)
    change = f"{list_nodes(nodes, len(nodes))} -> {rule}"
    return BisectStep(rule, scope, root.qualified_op, root.output, covered, change)


def load_changes(source: RuleSettings, model: Model, kind: str | None) -> tuple[Changes, set[Path]]:
    """Read rules; return how they change a model, and the files that they were read from.

    Args:
        source: Where the rules come from.
        model: A model that they are for.
        kind: ``rewrite`` or ``partition``; None lets the catalogues decide.

    Raises:
        UsageError: The catalogues have rules of both kinds, and *kind* is None.
        CatalogError: A catalogue cannot be read, or has no such rule.
    """
    if kind is None:
        rules, _ = load_any_rules(source, model)
        kinds = {isinstance(rule, RewriteRule) for rule in rules}
        if len(kinds) > 1:
            raise UsageError(
                "the catalogues have rules that replace and rules that outline",
                hint=f"say which to look at: {opt('by', 'rewrite')} or {opt('by', 'partition')}",
            )
        kind = KINDS[0] if kinds == {True} else KINDS[1]
    if kind == KINDS[0]:
        rewrites, files = load_rewrites(source, model)
        return Rewrites(rewrites), files
    patterns, files = load_rules(source, model)
    return Partitions(patterns), files


# A reproducer: a folder with a small model, rules and inputs, which shows one fault.


def reproduce(folder: Path, *, allow_code: bool = False) -> Reproduced:
    """Run a reproducer: apply its rules and compare both models on its inputs.

    Args:
        folder: The folder.
        allow_code: Whether its catalogues may be Python, or import Python functions.

    Raises:
        UsageError: It is no reproducer, or its rules are code that is not allowed.
        DplError: A model or a catalogue in it cannot be used.
    """
    spec = plan.read_reproducer(folder)
    if spec.needs_code and not allow_code:
        raise UsageError(
            f"{folder}: its rules are Python code", hint=f"pass {opt('allow_code')} if you trust it"
        )
    return run_reproducer(folder, spec)


def run_reproducer(folder: Path, spec: plan.Reproducer) -> Reproduced:
    """Run what *spec* says in *folder*.

    Raises:
        DplError: A model or a catalogue in it cannot be used.
    """
    if spec.kind == "models":
        return _compare(folder, spec, folder / CANDIDATE)
    model, applied = _changed(folder, spec)
    if applied < len(spec.steps):
        return Reproduced(folder.name, fitted=False)
    broken = graph_objection(model)
    if broken:
        return Reproduced(folder.name, broken)
    with temporary_folder() as scratch, staged(model, scratch / CANDIDATE) as written:
        objection = check_model(written.path)
        if objection and not check_model(folder / ORIGINAL):
            return Reproduced(folder.name, f"onnx.checker refuses the result: {objection}")
        return _compare(folder, spec, written.path)


def _changed(folder: Path, spec: plan.Reproducer) -> tuple[Model, int]:
    """Return what the rules make of the original, and how many of the steps fit."""
    names = [str(folder / name) if (folder / name).is_file() else name for name in spec.catalogues]
    model = load_model(folder / ORIGINAL)
    source = RuleSettings(patterns=names, allow_code=spec.allow_code)
    changes, _ = load_changes(source, model, spec.kind)
    steps = [BisectStep(step.rule, step.scope, step.op_type, step.output) for step in spec.steps]
    return model, len(changes.apply(model, steps))


def _compare(folder: Path, spec: plan.Reproducer, candidate: Path) -> Reproduced:
    """Compare both models of a folder by the rules of the verification that found the fault.

    Raises:
        UsageError: What the folder says of it cannot be meant, or cannot be done here.
    """
    data = folder / DATA
    for path in (data / f"input_{number}.pb" for number in range(spec.inputs)):
        if not path.is_file():  # else a value would be made up
            raise UsageError(f"{path}: there is no such file")
    where = f"{folder / REPRODUCER_FILE}: "
    try:
        check = Check(
            levels=(spec.level,),
            **dict(spec.tolerance),
            tolerances={name: Override(**dict(item)) for name, item in spec.tolerances.items()},
            request=InputRequest(given=data if spec.inputs else None),
            custom_ops=tuple(folder / name for name in spec.custom_ops),
            execution=Execution(**dict(spec.execution)),
            whole=Whole(spec.coarsest, spec.rounds),
        )
        result = compare(
            folder / ORIGINAL, candidate, check, None, prove=spec.kind == Partitions.kind
        )
    except UsageError as error:
        raise UsageError(f"{where}{error.wording}", hint=error.advice) from error
    return Reproduced(folder.name, verification=result)


def shows(folder: Path, spec: plan.Reproducer) -> Reproduced | None:
    """Run *folder*; return None if the fault does not show, or the folder cannot be run."""
    try:
        reproduced = run_reproducer(folder, spec)
    except DplError:
        return None
    return reproduced if reproduced.differs else None


def copy_rules(source: RuleSettings, folder: Path) -> list[str]:
    """Copy the catalogues that are files into *folder*, with what they need; return their names."""
    named = [item for item in source.patterns if isinstance(item, str)]
    paths = [name for name in catalogs_in(named) if Path(name).is_file()]
    own = [resolved(Path(name)) for name in paths]
    if not own:
        return [*named, *source.target]
    top = Path(os.path.commonpath([path.parent for path in own]))
    needed = set(map(resolved, files_named(map(str, own))))
    brought = [path for path in sorted(needed) if path.is_relative_to(top)]
    for path in brought:
        target = folder / "rules" / path.relative_to(top)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    names = [
        f"rules/{resolved(Path(name)).relative_to(top).as_posix()}" if name in paths else name
        for name in named
    ]
    return [*names, *source.target]


# Writing a reproducer: the smallest part of the model that still shows the fault.


_ROUNDS = 4
README = "README.md"


def check_folder(folder: Path) -> None:
    """Refuse a folder that reproducers cannot be written to, before any work is done.

    Raises:
        UsageError: It holds something, is a file, or cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder}: is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"-o {folder}: is not empty, so it is kept", hint="name a new folder")
    if not resolved(folder).parent.is_dir():
        raise UsageError(f"-o {folder}: there is no folder {str(resolved(folder).parent)!r}")


@dataclass(frozen=True)
class RuleExhibit:
    """Writes reproducers of faults of rules, all of one model.

    Attributes:
        label: The model's file name.
        source: The rules.
        kind: ``rewrite`` or ``partition``.
        check: How models are compared.
        fed: The model, and inputs that it runs on.
    """

    label: str
    source: RuleSettings
    kind: str
    check: Check
    fed: Reference

    def write(self, cause: Cause, folder: Path) -> Cause:
        """Write the reproducer of *cause* to *folder*, which does not exist yet.

        Returns:
            The cause with the folder; without a folder if the fault shows neither in a part of the
            model nor in the whole.
        """
        from dplcli.verify.layers import Specimen  # noqa: PLC0415  # onnxruntime

        specimen = Specimen(self.fed, cause.trial.seed)
        with temporary_folder(resolved(folder).parent) as draft:
            spec = self._spec(cause, draft)
            levels = cause.trial.levels or self.check.judged_levels
            specs = (spec.model_copy(update={"level": level}) for level in levels)
            drafts = (self._cut_out(cause, specimen, draft, spec) for spec in specs)
            drafted = next((item for item in drafts if item is not None), None)
            if drafted is None:
                return replace(cause, is_hidden=True)
            spec, cutting = drafted
            (draft / REPRODUCER_FILE).write_text(spec.to_text(), encoding="utf-8")
            model, _ = _changed(draft, spec)
            with staged(model, draft / CANDIDATE) as written:
                written.commit()
            nodes = (cutting.nodes, len(specimen.wiring.nodes))
            text = _rules_readme(cause, spec, self.label, nodes)
            (draft / README).write_text(text, encoding="utf-8")
            put_folder(draft, folder)
        return replace(cause, reproducer=folder, nodes=nodes)

    def _spec(self, cause: Cause, folder: Path) -> plan.Reproducer:
        """Copy the rules and list the steps; the inputs are not known yet."""
        return _reproducer(
            folder,
            self.fed,
            self.check,
            kind=self.kind,
            catalogues=copy_rules(self.source, folder),
            allow_code=self.source.allow_code,
            steps=[
                plan.StepItem(rule=s.rule, scope=s.scope, op_type=s.op_type, output=s.output)
                for s in cause.steps
            ],
            inputs=0,
            level=self.check.judged_levels[0],
        )

    def _cut_out(
        self, cause: Cause, specimen: Specimen, folder: Path, spec: plan.Reproducer
    ) -> tuple[plan.Reproducer, Cutting] | None:
        """Write the smallest part of the model that shows the fault."""

        def show(nodes: set[int]) -> tuple[plan.Reproducer, Cutting] | None:
            shutil.rmtree(folder / DATA, ignore_errors=True)
            cutting = specimen.write(folder, ORIGINAL, nodes)
            if cutting is None:
                return None
            own = _tolerances_of(self.check, cutting.outputs)
            full = spec.model_copy(update={"tolerances": own, "inputs": cutting.inputs})
            return (full, cutting) if shows(folder, full) is not None else None

        covered = {name for step in cause.steps for name in step.covered}
        core: set[int] = set()
        for nodes in specimen.growing(covered, _ROUNDS):
            core = core or nodes
            if show(nodes) is None:
                continue
            extra = sorted(nodes - core)
            if not extra:
                return show(nodes)

            def needs(part: Sequence[int], kept: set[int] = core) -> Sequence[int] | None:
                return part if show(kept | set(part)) else None

            return show(core | set(minimise(extra, needs)))
        return None


def _reproducer(
    folder: Path,
    fed: Reference,
    check: Check,
    **own: Any,  # noqa: ANN401  # fields of what is returned
) -> plan.Reproducer:
    """Describe a reproducer; copy the libraries of custom operators into its *folder*."""
    libraries = []
    for number, path in enumerate(check.custom_ops):
        libraries.append(f"libraries/{number}/{path.name}")
        (folder / libraries[-1]).parent.mkdir(parents=True)
        shutil.copyfile(path, folder / libraries[-1])
    facts = {
        "schema": plan.REPRODUCER_SCHEMA,
        "coarsest": fed.facts.coarsest,
        "rounds": fed.facts.rounds,
        "tolerance": plan.ToleranceItem(rtol=check.rtol, atol=check.atol),
        "custom_ops": libraries,
        "execution": plan.ExecutionItem(
            provider=check.execution.provider,
            options=list(check.execution.options),
            timeout=check.execution.timeout,
            memory_limit=check.execution.memory_limit,
        ),
    }
    return plan.Reproducer.model_validate(facts | own)


def _tolerances_of(check: Check, outputs: Collection[str]) -> dict[str, plan.ToleranceItem]:
    """Return the tolerances that the user chose for single outputs that a reproducer has."""
    return {
        name: plan.ToleranceItem(rtol=own.rtol, atol=own.atol)
        for name, own in check.tolerances.items()
        if name in outputs
    }


def _rules_readme(cause: Cause, spec: plan.Reproducer, label: str, nodes: tuple[int, int]) -> str:
    allow = " --allow-code" if spec.needs_code else ""
    what = "Applying these rules" if spec.kind == "rewrite" else "Outlining these partitions"
    paragraphs = [
        "# A fault, by itself",
        f"{what} to `{ORIGINAL}` gives a model that computes something else:",
        _bullets(step.label for step in cause.culprits),
    ]
    if cause.needed:
        paragraphs.append("They build on these, which are applied first:")
        paragraphs.append(_bullets(step.label for step in cause.needed))
    files = [
        f"`{ORIGINAL}`: {nodes[0]:,} of the {nodes[1]:,} nodes of `{label}`.",
        f"`{CANDIDATE}`: what the rules made of it when this was written.",
        f"`{DATA}/`: what is fed, and what the original gives.",
        f"`{REPRODUCER_FILE}`: what is applied where, and how the results are run and compared.",
    ]
    if any(name.startswith("rules/") for name in spec.catalogues):
        files.append("`rules/`: the rules, as they are applied when this is run: mend them here.")
    again = "Run it again from inside this folder; exit code 1: the fault is still there, "
    paragraphs += [
        f"In `{label}`: {cause.trial.reason}.",
        f"{again}0: it is gone, 2: it could not be tried.",
        f"    dpl bisect --reproduce .{allow}",
        _bullets(files),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# The search for the applications of rules that change what a model computes.
#
# Parts of the steps are replayed and compared with the original, as verify compares, until
# leaving out any step mends the model. Then all steps of the rules found are set aside and
# the rest is searched, so that a second wrong rule does not hide behind the first.


MOST: int = FaultSettings.options["most"].default
"""How many causes are looked for by default."""


@paused_gc()
def bisect_rules(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    source: RuleSettings,
    *,
    kind: str | None = None,
    check: Check | None = None,
    output: Path | None = None,
    most: int = MOST,
    progress: Progress | None = None,
) -> BisectOutcome:
    """Find the smallest sets of rule applications, or partitions, that break a model.

    Args:
        model_path: The model.
        source: The rules.
        kind: ``rewrite`` or ``partition``; None lets the catalogues decide.
        check: How to compare.
        output: The folder to write a reproducer of each cause to; None for nowhere.
        most: The search ends after so many causes.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: onnxruntime does not run the model.
        DplError: The model or a catalogue cannot be used.
    """
    say, check = progress or say_nothing, check or Check()
    if output is not None:
        check_folder(output)
    say(f"reading {model_path.name}")
    model = load_editable(model_path)
    changes, _ = load_changes(source, model, kind)
    say("applying the rules")
    steps = changes.plan(model)
    del model
    with temporary_folder() as folder:
        search = _Search(model_path, changes, check, say, folder)
        causes, unjudged, is_complete = search.run(steps, most)
    if output is not None and causes:
        from dplcli.verify.layers import feed  # noqa: PLC0415  # onnxruntime

        say("cutting out what shows it")
        fed = feed(model_path, check)
        exhibit = RuleExhibit(model_path.name, source, changes.kind, check, fed)
        with provisional() as unfinished:
            unfinished.note(output)  # which stays if something is in it
            output.mkdir(exist_ok=True)
            causes = tuple(
                exhibit.write(cause, output / str(number)) for number, cause in enumerate(causes, 1)
            )
    return BisectOutcome(
        model_path.name,
        changes.kind,
        tuple(changes.rules),
        steps,
        causes,
        unjudged,
        is_complete,
        search.trials,
    )


@dataclass
class _Search:
    """One bisection under way."""

    path: Path
    changes: Changes
    check: Check
    say: Progress
    folder: Path
    trials: int = 0

    def run(
        self, steps: tuple[BisectStep, ...], most: int
    ) -> tuple[tuple[Cause, ...], tuple[BisectStep, ...], bool]:
        """Return the causes, the steps that were not judged, and whether the rest is sound."""
        rest, causes = steps, list[Cause]()
        while rest:
            trial = self.try_out(rest, self.check)
            if not trial.reason:
                return tuple(causes), _without(rest, trial.applied), True
            if len(causes) == most:
                return tuple(causes), (), False
            cause = self._cause(trial, steps)
            causes.append(cause)
            rules = {step.rule for step in cause.culprits}
            rest = tuple(step for step in rest if step.rule not in rules)
        return tuple(causes), (), True

    def try_out(self, steps: Sequence[BisectStep], check: Check) -> BisectTrial:
        """Apply *steps* to the model and compare."""
        self.trials += 1
        model = load_model(self.path)
        applied = self.changes.apply(model, steps)
        if not applied:
            return BisectTrial(())
        broken = graph_objection(model)
        if broken:
            return BisectTrial(applied, broken, check.judged_levels)
        with staged(model, self.folder / CANDIDATE) as written:
            is_moved = self.changes.kind == Partitions.kind  # as where partitions are written
            verdict = check_result(self.path, written.path, check, say_nothing, prove=is_moved)
        if verdict.objection:
            reason = verdict.complaint
            return BisectTrial(applied, reason, check.judged_levels, check.first_seeds[0])
        result = verdict.verification
        if result is None or result.equivalent:
            return BisectTrial(applied)
        return BisectTrial(applied, *what_differs(result))

    def _cause(self, trial: BisectTrial, steps: tuple[BisectStep, ...]) -> Cause:
        check = replace(self.check, levels=trial.levels)
        last = trial

        def breaks(part: Sequence[BisectStep]) -> Sequence[BisectStep] | None:
            nonlocal last
            self.say(f"trying {len(part):,} of {len(steps):,} applications")
            trial_of_part = self.try_out(part, check)
            if not trial_of_part.reason:
                return None
            last = trial_of_part
            return trial_of_part.applied

        minimal = minimise(trial.applied, breaks)
        needed = self._needed(minimal)
        culprits = tuple(step for step in minimal if step not in needed)
        rules = {step.rule for step in culprits}
        alike = sum(step.rule in rules for step in steps)
        return Cause(culprits, needed, last, alike)

    def _needed(self, minimal: tuple[BisectStep, ...]) -> tuple[BisectStep, ...]:
        """Return the steps without which others of *minimal* cannot be applied."""
        needed = []
        for step in minimal[:-1]:
            others = [other for other in minimal if other is not step]
            if len(self.changes.apply(load_model(self.path), others)) < len(others):
                needed.append(step)
        return tuple(needed)


def what_differs(result: VerificationResult) -> tuple[str, tuple[str, ...], int]:
    """Return why two models are not equivalent, at which levels, and for which seed.

    If onnxruntime refuses the candidate, perhaps at one level only, all levels are returned.
    """
    wrong = [output for output in result.outputs if not output.ok]
    if result.reasons or not wrong:
        levels = result.levels if result.reasons else (_OFF,)  # where places were run
        return "; ".join(result.objections), levels, result.seeds[0]
    first = wrong[0]
    reason = f"output {first.name!r} at level {first.level}: {first.reason}"
    return reason, (first.level,), first.seed


def _without(steps: Sequence[BisectStep], others: Sequence[BisectStep]) -> tuple[BisectStep, ...]:
    left_out = set(map(id, others))
    return tuple(step for step in steps if id(step) not in left_out)


# Comparing the values inside two models, and finding the first that differs.


_HELD = 0.25
"""How many gigabytes of each model's values are held at once, if nobody says."""

_MOST_TRIED = 24
_MOST_NAMED = 12
_OFF = "disable"


def look_inside(
    original: Path, candidate: Path, result: VerificationResult, check: Check
) -> Layers | str:
    """Compare what is inside two models, for the seed that is worst; or say why it cannot be."""
    if result.reasons and not result.outputs:
        return "nothing inside was compared: the candidate cannot be run on the same inputs"
    wrong = [output for output in result.outputs if not output.ok]
    seed = wrong[0].seed if wrong else None
    try:
        with _inside(original, candidate, check, seed) as comparison:
            return comparison.layers(_cap_of(check))
    except VerificationError as error:
        return error.message


def _cap_of(check: Check) -> int:
    """Return how many bytes of each model's values are held at once."""
    return int((check.max_memory or _HELD) * 10**9)


def bisect_models(
    original: Path,
    candidate: Path,
    *,
    check: Check | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
) -> ModelsOutcome:
    """Find the first value that differs although all values that it is made of agree.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        check: How to compare.
        output: The folder to write a reproducer to; None for nowhere.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: The original does not run, or no inputs were found for it.
        DplError: A file is no model.
    """
    check, say = check or Check(), progress or say_nothing
    if output is not None:
        check_folder(output)
    labels = original.name, candidate.name
    result = verify(original, candidate, check=check, progress=say)
    if result.equivalent:
        return ModelsOutcome(labels, result)
    places = () if result.regions is None else result.regions.places
    if not places and all(output.ok for output in result.outputs):
        remark = "no value inside can be compared, because the candidate does not run like this"
        return ModelsOutcome(labels, result, remark=remark)
    _, levels, seed = what_differs(result)
    seed = result.regions.case if result.regions and places else seed
    try:
        with _inside(original, candidate, check, seed) as comparison:
            say("comparing the values inside")
            layers = comparison.layers(_cap_of(check))
            say("cutting out where they part")
            finder = _Finder(comparison, layers, check, labels, output)
            place = finder.find(levels, places)
    except VerificationError as error:
        return ModelsOutcome(labels, result, remark=error.message)
    remark = "" if place is not None else _unplaced(layers, is_local=bool(places))
    return ModelsOutcome(labels, result, layers, place, remark)


def _unplaced(layers: Layers, *, is_local: bool) -> str:
    if layers.first is None and not is_local:
        return (
            "with optimisation off all values inside agree: it is onnxruntime's optimiser that "
            "makes them differ"
        )
    return "no part of the models shows the difference by itself: it builds up over many nodes"


@contextmanager
def _inside(
    original: Path, candidate: Path, check: Check, seed: int | None
) -> Iterator[DivergenceSearch]:
    """Open two models; an error of onnxruntime on the candidate becomes an error of dpl."""
    from dplcli.verify.layers import DivergenceSearch  # noqa: PLC0415  # onnxruntime
    from dplcli.verify.values import RunError  # noqa: PLC0415  # onnxruntime

    try:
        yield DivergenceSearch(original, candidate, check, seed)
    except RunError as error:
        raise VerificationError(
            f"the values inside cannot be compared: onnxruntime does not run the candidate with "
            f"optimisation off: {error}"
        ) from error


@dataclass(frozen=True)
class _Finder:
    """Looks for the first value that differs, and writes a reproducer."""

    comparison: DivergenceSearch
    layers: Layers
    check: Check
    labels: tuple[str, str]
    output: Path | None

    def find(self, levels: Sequence[str], places: Sequence[Junction]) -> Divergence | None:
        """Return the first place whose part of the models shows the difference.

        Args:
            levels: The optimisation levels at which outputs differ.
            places: Places that differ by themselves. They come first.
        """
        wrong = (layer for layer in self.layers.layers if not layer.ok)
        others = (*islice(wrong, _MOST_TRIED), *self.layers.doubtful[:_MOST_TRIED])
        for at in (*places, *(self.comparison.junction(self.layers, layer) for layer in others)):
            for level in dict.fromkeys((_OFF, *levels)):
                if (place := self._try(at, level)) is not None:
                    return place
        return None

    def _try(self, at: Junction, level: str) -> Divergence | None:
        # A folder on the same disk as the output; a folder there can be moved to it.
        with temporary_folder(
            self.output
            if self.output is None or self.output.is_dir()
            else resolved(self.output).parent
        ) as folder:
            parts = self.comparison.write(at, folder)
            if parts is None:
                return None
            spec = _reproducer(
                folder,
                self.comparison.fed,
                self.check,
                kind="models",
                inputs=parts.inputs,
                level=level,
                tolerances=_tolerances_of(self.check, [at.original]),
            )
            reproduced = shows(folder, spec)
            if reproduced is None or reproduced.verification is None:
                return None
            ours, theirs = (wiring.nodes for wiring in self.comparison.wirings)
            wrong = [output.reason for output in reproduced.verification.outputs if output.reason]
            place = Divergence(
                at.original,
                at.candidate,
                at.how,
                (wrong[0] if wrong else "; ".join(reproduced.verification.objections)),
                (parts.original, parts.candidate),
                (len(ours), len(theirs)),
                level,
                self.output,
            )
            if self.output is not None:
                (folder / REPRODUCER_FILE).write_text(spec.to_text(), encoding="utf-8")
                (folder / README).write_text(_models_readme(place, self.labels), encoding="utf-8")
                put_folder(folder, self.output)
        return place


def _models_readme(place: Divergence, labels: tuple[str, str]) -> str:
    parts = (
        f"{label}: {', '.join(nodes[:_MOST_NAMED])}{', …' * (len(nodes) > _MOST_NAMED)}: "
        f"{len(nodes):,} of {total:,} nodes"
        for label, nodes, total in zip(
            ("original", "candidate"), place.nodes, place.total, strict=True
        )
    )
    files = (
        f"`{DATA}/`: what is fed, and what the original gives.",
        f"`{REPRODUCER_FILE}`: how the two are run and compared.",
    )
    return f"""\
# A difference, by itself

`{ORIGINAL}` is a part of `{labels[0]}`, `{CANDIDATE}` the part of \
`{labels[1]}` that ought to compute the same from the same inputs:

{_bullets(parts)}

Both are fed what the original computes there. In {place.original!r} (in the candidate: \
{place.candidate!r}) they differ: {place.reason}.

Run it again from inside this folder; exit code 1: they still differ, 0: they agree, \
2: it could not be tried.

    dpl bisect --reproduce .

{_bullets(files)}
"""


# Structural difference of two models.


NOTHING = "nothing"
"""The word for ignoring no facet."""


def facets(names: Iterable[str] | None) -> frozenset[Facet]:
    """Return the facets of these names; None stands for the default, ``nothing`` for no facet.

    Raises:
        UsageError: There is no such facet, or others stand beside ``nothing``.
    """
    if names is None:
        return DEFAULT_IGNORED
    listed = list(dict.fromkeys(names))
    if listed == [NOTHING]:
        return frozenset()
    for name in listed:
        if name == NOTHING:
            raise UsageError(f"{opt('ignore')}: {NOTHING!r} stands alone")
        if name not in FACETS:
            choices = [*FACETS, NOTHING]
            hint = did_you_mean(name, choices) or f"one of {', '.join(choices)}"
            raise UsageError(f"{opt('ignore')}: {name!r} is nothing that can be ignored", hint=hint)
    return frozenset(cast("list[Facet]", listed))


def diff(
    first: Path,
    second: Path,
    *,
    ignore: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> DiffOutcome:
    """Compare the structures of two models by their dataflow.

    Args:
        first: One file.
        second: The other.
        ignore: The facets that do not count; None for the default.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A file is no model, or a weight cannot be read; or there is no such facet.
    """
    ignored, say = facets(ignore), progress or say_nothing
    say(f"reading {first.name}")
    before = load_model(first)
    say(f"reading {second.name}")
    after = load_model(second)
    say(f"comparing {first.name} and {second.name}")
    with paused_gc():
        difference = Differ(before, after).result(ignored)
    return DiffOutcome((first.name, second.name), difference)
