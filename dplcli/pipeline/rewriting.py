"""Rewrite a model by rules or by a plan, check the result and write it."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplcli.catalog.finding import find_catalog
from dplcli.catalog.python import installed_catalogs
from dplcli.errors import (
    CatalogError,
    DplError,
    UsageError,
    VerificationError,
    did_you_mean_rule,
    opt,
)
from dplcli.files import exists, resolved, temporary_file, temporary_folder
from dplcli.ir import Value
from dplcli.ir.model import RULE_KEY
from dplcli.language.replacement import DraftConstant, DraftNode
from dplcli.language.rule import judge_expectations, parse_expectations
from dplcli.onnx_io import (
    check_external_data,
    check_imports,
    check_model,
    data_used,
    is_modified,
    load_model,
    losses,
    paused_gc,
    restate,
    written_size,
)
from dplcli.outcomes.rewriting import RewriteOutcome
from dplcli.outcomes.written import Delivery
from dplcli.passes.rewrite import (
    RestrictingObserver,
    Restriction,
    RewriteObserver,
    Rewriting,
    list_nodes,
    replay,
)
from dplcli.passes.rewrite import rewrite as rewrite_model
from dplcli.pipeline.hints import hints_on_rewrite
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.rules import catalogs_in, load_rewrites, names_of
from dplcli.pipeline.taking_back import Attempt, Undoable, is_left_out, keep_what_holds
from dplcli.pipeline.writing import (
    StepVerifier,
    WriteJob,
    check_output,
    load_editable,
    write_text,
)
from dplcli.settings import RuleSettings
from dplcli.verify.runnable import KernelAnswers, KernelQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.catalog.plan import Plan
    from dplcli.ir import Model, Node
    from dplcli.language import RewriteRule
    from dplcli.language.replacement import Draft
    from dplcli.language.rule import Match
    from dplcli.onnx_io import Restated
    from dplcli.passes.rewrite import Application, Trace
    from dplcli.pipeline.taking_back import Left
    from dplcli.settings import ApplySettings, RewriteSettings


# A model whose interface is said anew, as a file: rewriting begins with it.


def _of_model(text: str, file: Path, path: Path) -> str:
    return text.replace(str(file), str(path)).replace(file.name, path.name)


@contextmanager
def restated(
    path: Path, shape: Mapping[str, int | str | Sequence[int]], rename: Mapping[str, str]
) -> Iterator[tuple[Path, Restated | None]]:
    """Write a model with other sizes and names, for as long as it is needed.

    Args:
        path: The model.
        shape: See :func:`dplcli.onnx_io.restate`.
        rename: As there.

    Yields:
        The file, and what is said anew. Where nothing is, the file is the model's own.

    Raises:
        UsageError: There is no such dimension or value, or the model contradicts a size.
        DplError: It is no model.
    """
    if not shape and not rename:
        yield path, None
        return
    model = load_model(path)
    check_imports(model)
    check_external_data(model)
    said = restate(model, shape, rename)
    try:
        with (
            temporary_file(path.parent, ".onnx")  # external data is found from there
            if model.may_have_external_data
            else temporary_folder()
        ) as place:
            file = place / path.name if place.is_dir() else place
            file.write_bytes(said.proto.SerializeToString())
            if (objection := check_model(file)) and not check_model(path):
                what = "shape" if shape else "rename"
                raise UsageError(f"{opt(what)}: the model contradicts it: {objection}")
            try:
                yield file, said
            except DplError as error:  # it names the file that there is no more
                error.wording = _of_model(error.wording, file, path)
                raise
    except OSError as error:
        raise UsageError(f"{path.parent}: cannot be written: {error.strerror}") from error


# Plans as files, and the catalogues that they name.


_CODE = ".py"
_PROBE = 1 << 14


def describe_change(application: Application) -> str:
    """Describe an application in one line: ``Conv 'c', Relu 'r' -> FusedConv 'c'``."""
    removed, added = list_nodes(application.removed), list_nodes(application.added)
    return f"{removed} -> {added}" if removed and added else removed or added


def _written(name: str, folder: Path) -> str:
    """Return how a plan in *folder* names a catalogue: by its path from there, or its name."""
    if not exists(Path(name).is_file):
        return Path(name).stem if Path(name).suffix in {".yaml", ".yml"} else name
    return Path(os.path.relpath(resolved(Path(name)), resolved(folder))).as_posix()


def check_plan_path(path: Path, others: Iterable[Path | None]) -> None:
    """Refuse a plan that cannot or must not be written, before any work is done.

    Raises:
        UsageError: It is another file of the run, holds something else, or has no folder.
    """
    if any(other is not None and resolved(path) == resolved(other) for other in others):
        raise UsageError(f"{opt('plan')} {path}: is another file of this command")
    if not path.name or path.is_dir():
        raise UsageError(f"{opt('plan')} {str(path)!r}: is not a file")
    if not path.parent.is_dir():
        raise UsageError(f"{opt('plan')} {path}: there is no folder {str(path.parent)!r}")
    if not exists(path.is_file):
        return
    from dplcli.catalog.plan import PLAN_SCHEMA  # noqa: PLC0415  # pydantic

    with path.open("rb") as file:
        if PLAN_SCHEMA.encode() not in file.read(_PROBE):
            raise UsageError(f"{opt('plan')} {path}: exists and is no plan, so it is kept")


def named_catalogs(plan: Plan, *, allow_code: bool) -> list[str]:
    """Return the catalogues that *plan* names, as paths from here or as names.

    Raises:
        CatalogError: One is missing, or is code, which a plan does not run without leave.
    """
    folder = Path() if plan.path is None else plan.path.parent
    names = []
    for name in plan.catalogues:
        is_path = Path(name).suffix != "" or Path(name).name != name
        is_code = name.endswith(_CODE) if is_path else name in installed_catalogs()
        if is_code and not allow_code:
            raise CatalogError(
                f"{plan.label}: the catalogue {name!r} is Python code, which a plan does not run "
                "by itself",
                hint=f"pass {opt('allow_code')} if you trust it, or name it with {opt('patterns')}",
            )
        path = str(folder / name) if is_path else name
        try:
            if is_path or not is_code:
                find_catalog(path)
        except CatalogError as error:
            hint = f"{error.advice}; {opt('patterns')} names another" if error.hint else None
            raise CatalogError(f"{plan.label}: {error.wording}", hint=hint) from error
        names.append(path)
    return names


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# What rules may make: what the installed onnxruntime runs.


class RunnableOnly(RewriteObserver):
    """Refuses replacements with an operator that the installed onnxruntime has no kernel for."""

    def __init__(self) -> None:
        self._kernels = KernelAnswers()

    def objection(self, match: Match, draft: Draft) -> str:
        """Ask for each operator that the match does not have."""
        known = {(node.domain, node.op_type) for node in match.nodes}
        imports = match.root.graph.opset_imports
        for part in draft.parts:
            if not isinstance(part, DraftNode) or part.function or part.copied:
                continue
            if (part.domain, part.op_type) in known:
                continue
            opset, dtypes = imports.get(part.domain, part.version), _dtypes_of(part, match)
            asked = KernelQuestion(
                part.domain, part.op_type, opset, dtypes, part.attributes, part.output_count
            )
            if self._kernels.lacks(asked):
                name = f"{part.domain}.{part.op_type}" if part.domain else part.op_type
                return f"the installed onnxruntime has no kernel for {name} at opset {opset}"
        return ""


def _dtypes_of(part: DraftNode, match: Match) -> list[str]:
    """Return the element types of what a node to be reads; what is not known is as the rest."""
    known: list[str | None] = []
    for operand in part.inputs:
        if isinstance(operand, Value):
            kind = operand.known_type()
            known.append(None if kind is None else kind.dtype)
        elif isinstance(operand, DraftConstant):
            known.append(operand.tensor.dtype)
        else:
            known.append(None if operand is not None else "")
    made = [kind.dtype for value in match.outputs if (kind := value.known_type()) is not None]
    rest = next(filter(None, [*known, *made]), "float32")
    return [rest if dtype is None else dtype for dtype in known]


# Where rules may be tried: ``RULE``, ``RULE@NODE`` or ``@NODE``, as users write it.


class NotedRestrictions(RestrictingObserver):
    """Restrictions that remember which of them had an effect.

    Args:
        only: If not empty, nothing else is tried.
        skip: What is not tried, as somebody said.
        left: What else is not tried.
        limit: After how many applications the rewrite ends; None for no limit.
    """

    def __init__(
        self,
        only: Sequence[Restriction],
        skip: Sequence[Restriction],
        left: Sequence[Restriction],
        limit: int | None,
    ) -> None:
        super().__init__(only, [*skip, *left], limit)
        self._said = skip
        self._idle = {item for item in skip if item.node}

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether the restrictions let *rule* be tried at *root*."""
        if self._idle:
            self._idle -= {item for item in self._idle if item.covers(rule, root)}
        return super().admits(rule, root)

    def may_try(self, rule: RewriteRule) -> bool:
        """Tell whether the restrictions let *rule* be tried anywhere."""
        names = {"", rule.name, rule.qualified_name}
        if self.only and not any(item.rule in names for item in self.only):
            return False
        return not any(item.rule in names and not item.node for item in self._said)

    def notes(self) -> list[str]:
        """List the nodes of --skip that were never tried: a name may be misspelt."""
        return [
            f"--skip {item.rule}@{item.node}: this never came up"
            for item in self._said
            if item in self._idle
        ]


def parse_restrictions(
    option: str, texts: Sequence[str], rules: Sequence[RewriteRule], model: Model
) -> list[Restriction]:
    """Read the values of --only or --skip.

    Args:
        option: The option, for messages. The nodes of --only must be in the model.
        texts: The values.
        rules: The rules of the run.
        model: The model, not yet edited.

    Raises:
        UsageError: One is malformed, or names a rule or a node that is not there.
    """
    names = names_of(rules)
    return [_parse(option, text, names, model) for text in texts]


def _parse(option: str, text: str, names: Sequence[str], model: Model) -> Restriction:
    rule, separator, node = text.partition("@")
    if not (rule or node) or (separator and not node):
        raise UsageError(f"{option} {text!r}: names nothing", hint="write RULE, RULE@NODE or @NODE")
    if rule and rule not in names:
        hint = did_you_mean_rule(rule, names)
        raise UsageError(f"{option} {text!r}: there is no rule {rule!r}", hint=hint)
    if node and option == opt("only"):
        try:
            find_nodes(model, node)
        except UsageError as error:
            raise UsageError(f"{option} {text!r}: {error.wording}", hint=error.advice) from error
    return Restriction(rule, node)


# Rewriting a model by rules or by a plan, checking the result and writing it.


DEFAULT_GROWTH = 5.0
"""By how many percent a model may grow by default."""

FREE_GROWTH = 1 << 14
"""By how many bytes a model may always grow by default, beside what new nodes say of themselves."""


@paused_gc()
def rewrite(
    model_path: Path, settings: RewriteSettings, trace: Trace | None = None
) -> RewriteOutcome:
    """Replace what matches until nothing does, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there.

    Args:
        model_path: The model.
        settings: By which rules, what is tried, and how the result is checked and written.
        trace: Filled with what happens, even if the run ends with an error.

    Raises:
        RewriteLimitError: The rules would go on without an end; names them.
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    job = _RewriteJob(model_path, settings.but(shape=settings.fed))
    job.is_resized = bool(settings.resized)
    with restated(model_path, settings.resized, settings.rename) as (job.reference, said):
        if said is not None:
            sizes = {**said.trial, **job.verification.sizes}
            job.verification = replace(job.verification, sizes=sizes)
        return _rewritten(job, settings, () if said is None else said.notes, trace)


def _rewritten(
    job: _RewriteJob, settings: RewriteSettings, said: Sequence[str], trace: Trace | None
) -> RewriteOutcome:
    """Do what :func:`rewrite` does, with a model of which some things were *said* anew."""
    job.open_with(settings, opset=settings.opset, plan=settings.plan)
    only, skip = (
        parse_restrictions(option, texts, job.rules, job.model)
        for option, texts in ((opt("only"), settings.only), (opt("skip"), settings.skip))
    )

    def make(left: Left) -> Attempt[RewriteOutcome]:
        model = job.unedited()
        left_out = [Restriction(*each) for each in left]
        observer = NotedRestrictions(only, skip, left_out, settings.limit)
        job.say("rewriting")
        done = rewrite_model(model, job.rules, observer, watchers=job.watchers(trace))
        outcome = job.describe(
            done,
            untried=frozenset(r.qualified_name for r in job.rules if not observer.may_try(r)),
            is_stopped=observer.is_over,
            notes=(*said, *model.notes, *losses(model), *observer.notes()),
        )
        return Attempt(model, outcome, _steps(outcome))

    def finish(attempt: Attempt[RewriteOutcome]) -> RewriteOutcome:
        if settings.plan is not None:
            _write_plan(settings.plan, job, settings, attempt.outcome)
        return job.written(attempt)

    outcome = keep_what_holds(job, make, finish)
    if settings.hints and job.rules and not settings.is_restricted:
        done = Rewriting({**outcome.counts}, outcome.rounds, outcome.refused, outcome.applications)
        before, after = outcome.nodes
        advice = hints_on_rewrite(job.reference, job.load, job.rules, done, (after, before))
        outcome = replace(outcome, hints=advice.hints, refused=advice.refused)
    return outcome


def _write_plan(
    path: Path, job: _RewriteJob, settings: RewriteSettings, outcome: RewriteOutcome
) -> None:
    """Write what was done as a plan that can be applied again."""
    from dplcli.catalog.plan import Plan, PlanEntry, write_plan  # noqa: PLC0415  # pydantic

    entries = tuple(
        PlanEntry(
            item.rule,
            item.scope,
            item.root.output,
            item.root.qualified_op,
            describe_change(item),
        )
        for item in outcome.applications
    )
    catalogs = [*catalogs_in(settings.patterns), *settings.target]
    names = tuple(_written(name, path.parent) for name in catalogs)
    plan = Plan(job.path.name, sha256_of(job.path), names, entries, settings.opset)
    write_text(path, write_plan(plan, path.name), opt("plan"))


def _steps(outcome: RewriteOutcome) -> list[Undoable]:
    """Return what was done as steps that can be left out."""
    return [Undoable(item.rule, item.root.label, item.values) for item in outcome.applications]


@paused_gc()
def apply_plan(
    plan_path: Path, model_path: Path, settings: ApplySettings, trace: Trace | None = None
) -> RewriteOutcome:
    """Apply only what a plan lists, verify the result and write it.

    Args:
        plan_path: The plan, as :func:`rewrite` writes it.
        model_path: The model.
        settings: What becomes of a plan that does not fit, and how the result is checked and
            written.
        trace: Filled with what happens, even if the run ends with an error.

    Raises:
        UsageError: The plan was made for another model.
        DplError: As for :func:`rewrite`; or the plan cannot be used.
    """
    from dplcli.catalog.plan import read_plan  # noqa: PLC0415  # pydantic

    plan, allow_code = read_plan(plan_path), settings.allow_code
    job = _RewriteJob(model_path, settings)
    catalogs = settings.patterns or named_catalogs(plan, allow_code=allow_code)
    rules = RuleSettings(patterns=catalogs, allow_code=allow_code)
    job.open_with(rules, opset=plan.opset, reads=plan_path)
    # A plan is made for one file.
    digest = sha256_of(model_path)
    other = (
        ""
        if digest == plan.sha256
        else f"{model_path.name} is not the file that {plan.label} was made for: "
        f"its sha256 is {digest[:12]}…, not {plan.sha256[:12]}…"
    )
    if other and not settings.force:
        raise UsageError(other, hint=f"pass {opt('force')} to apply it all the same")
    names = {rule.qualified_name for rule in job.rules}
    for entry in plan.entries:
        if entry.rule not in names:
            hint = did_you_mean_rule(entry.rule, sorted(names))
            raise CatalogError(f"{plan.place(entry)}: there is no rule {entry.rule!r}", hint=hint)

    def make(left: Left) -> Attempt[RewriteOutcome]:
        model = job.unedited()
        entries = [e for e in plan.entries if not is_left_out(e.rule, e.output, left)]
        job.say("rewriting")
        done = replay(
            model,
            job.rules,
            entries=entries,
            skip_missing=settings.skip_missing,
            watchers=job.watchers(trace),
        )
        outcome = job.describe(
            done.rewriting,
            plan=plan,
            missing=done.missing,
            may_miss=settings.skip_missing,
            notes=(*model.notes, *losses(model), *([other] if other else [])),
        )
        steps = [Undoable(e.rule, e.root.output, e.values) for e in outcome.applications]
        return Attempt(model, outcome, steps)

    return keep_what_holds(job, make, job.written)


class _RewriteJob(WriteJob):
    """What rewriting by rules and by a plan have in common.

    Attributes:
        is_resized: Whether inputs have other sizes than the file states.
    """

    moves_only = False
    is_resized = False

    def __init__(self, path: Path, settings: RewriteSettings | ApplySettings) -> None:
        super().__init__(path, settings)
        self.settings = settings
        self.steps: StepVerifier | None = None
        self._runnable = RunnableOnly()
        if not settings.dry_run:
            check_output(path, self.output, in_place=settings.in_place)

    @property
    def takes_back(self) -> bool:
        """Not where the turn that breaks the model is sought."""
        return super().takes_back and not self.settings.verify_each

    def load(self) -> Model:
        """Read the model as this job edits it: what is said anew is a change."""
        if self.reference == self.path:
            return super().load()
        model = load_editable(self.reference, self.opset, self.verification.request.sums)
        model.graph.modified, model.path = True, self.path
        model.notes = [n.replace(str(self.reference), str(self.path)) for n in model.notes]
        model.note_refutations()
        return model

    def check(self, written: Path) -> Delivery:
        """Ask onnx.checker and onnxruntime; sizes that they lack are fed, and not changed."""
        try:
            return super().check(written)
        except VerificationError as error:
            error.spell(lambda name, value: opt("size" if name == "shape" else name, value))
            if not self.is_resized:
                raise
            fed = ", ".join(f"{name}={size}" for name, size in self.verification.sizes.items())
            how = f" with {fed}" if fed else ""
            what = f"{opt('shape')}: the model does not run like this{how}: {error.wording}"
            raise VerificationError(what, hint=error.advice) from error

    def open_with(
        self,
        source: RuleSettings,
        *,
        opset: int | None,
        plan: Path | None = None,
        reads: Path | None = None,
    ) -> None:
        """Read the model and the rules, and check early what could fail later.

        Args:
            source: Where the rules come from.
            opset: The opset to raise the model to first; None for its own.
            plan: The plan that is written.
            reads: The plan that is read. Like a catalogue, it must not be overwritten.
        """
        settings = self.settings
        if reads is not None and resolved(reads) == resolved(self.output):
            raise UsageError(f"{self.output}: is the plan")
        if plan is not None:
            check_plan_path(plan, (self.path, self.output, self.failed))
        self.begin(will_run=settings.verify and not settings.dry_run)
        self.opset = opset
        self.model = self.load()
        is_alone = opset is not None or self.reference != self.path
        has_rules = bool(source.patterns or source.target) or not is_alone
        self.rules, files = load_rewrites(source, self.model) if has_rules else ([], set[Path]())
        if not settings.dry_run:
            self.protect(self.model, files)
        self.expected = parse_expectations(settings.expect, self.rules)
        self.ops = _count(load_model(self.path) if is_modified(self.model) else self.model)
        self.size = self.path.stat().st_size + data_used(self.model)

    def watchers(self, trace: Trace | None) -> list[RewriteObserver]:
        """Return the observers of the rewrite."""
        watchers: list[RewriteObserver] = [] if trace is None else [trace]
        if trace is not None:
            trace.turns.clear()  # of an attempt that failed
        if self.settings.verify and not self.settings.provider:
            watchers.append(self._runnable)
        if self.settings.verify_each:
            self.steps = StepVerifier(self, self.model)
            self.steps.begin()
            watchers.append(self.steps)
        return watchers

    def describe(self, done: Rewriting, **more: Any) -> RewriteOutcome:  # noqa: ANN401  # fields
        """Describe what was done, before anything is written; *more* are further fields."""
        return RewriteOutcome(
            label=self.path.name,
            rules=tuple(self.rules),
            counts=done.counts,
            applications=done.applications,
            rounds=done.rounds,
            refused=done.refused,
            ops=(self.ops, _count(self.model)),
            size=(self.size, self.size),
            is_changed=is_modified(self.model),
            expected=judge_expectations(self.expected, done.counts),
            broken=None if self.steps is None else self.steps.broken,
            is_dry=self.settings.dry_run,
            **more,
        )

    def written(self, attempt: Attempt[RewriteOutcome]) -> RewriteOutcome:
        """Check the result and write it, unless the settings or the outcome forbid it."""
        outcome = attempt.outcome
        if outcome.missing and not outcome.may_miss:
            return outcome
        if outcome.broken is not None and not self.settings.keep_failed:
            return replace(outcome, delivery=outcome.broken.delivery)
        if self.settings.dry_run:
            size, used = written_size(self.model, self.settings.strip)
            return self._measured(outcome, Delivery(size=size, used=used))
        delivery = self.finish(
            self.model,
            is_changed=outcome.is_changed,
            is_wanted=lambda delivery: self._measured(outcome, delivery).is_wanted,
            known=None if self.steps is None else self.steps.delivery,
        )
        outcome = replace(self._measured(outcome, delivery), delivery=delivery)
        total = outcome.size[1]
        if not outcome.is_changed or not _growth(total, total + delivery.unused, None, FREE_GROWTH):
            return outcome
        note = (
            f"the files of its external data have {delivery.unused:,} bytes that the result does "
            "not use; --external-data repack leaves them out"
        )
        return replace(outcome, notes=(*outcome.notes, note))

    def _measured(self, outcome: RewriteOutcome, written: Delivery) -> RewriteOutcome:
        """Add the size of the file, and whether it grew too much."""
        before, after = outcome.size[0], written.size + written.used
        free = FREE_GROWTH + _said_of_origin(self.model)
        growth = _growth(before, after, self.settings.max_growth, free)
        return replace(outcome, size=(before, after), growth=growth)


def _said_of_origin(model: Model) -> int:
    """Count the bytes that new nodes take to name themselves, and the rules that made them."""
    made = (node for graph in model.graphs() for node in graph if node.source is None)
    return sum(
        len(node.name.encode()) + sum(len(f"{key}{text}".encode()) for key, text in said.items())
        for node in made
        if RULE_KEY in (said := node.remarks.metadata)
    )


def _growth(before: int, after: int, most: float | None, free: int) -> str:
    """Say why growing from *before* to *after* bytes is too much, or "".

    Args:
        before: The size before.
        after: The size after.
        most: By how many percent it may grow, whatever the reason; None for what is usual.
        free: By how many bytes it may usually grow in any case.
    """
    allowed = DEFAULT_GROWTH if most is None else most
    if after - before <= max(before * allowed / 100, free if most is None else 0):
        return ""
    percent = 100 * (after - before) / before
    return (
        f"the model would grow from {before:,} to {after:,} bytes, which is {percent:.1f} % and "
        f"more than {allowed:g} %; --max-growth {math.ceil(percent)} allows it"
    )


def _count(model: Model) -> Counter[str]:
    return Counter(node.qualified_op for graph in model.graphs() for node in graph)
