"""``dpl build``: what a pipeline file says is done with all its models."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections import Counter
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal

import click

from dplcli import pipeline
from dplcli.api import JOBS
from dplcli.batch import build_file
from dplcli.batch.done import are_there, digest_of, forget_oldest, size_of
from dplcli.batch.models import ModelFile, find_models
from dplcli.batch.processes import run_program
from dplcli.cli import job, options
from dplcli.errors import DplError, UsageError, did_you_mean
from dplcli.files import resolved, temporary_folder, write_file
from dplcli.outcomes.base import ModelAnswer
from dplcli.settings import CheckSettings, InputCodeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.report.document import Case
    from dplcli.settings import BaseSettings, Option

    Json = dict[str, Any]

_UNCHANGED = "Unchanged"

# Options of commands, as a file states them.


def _options_of(*kinds: type[BaseSettings]) -> dict[str, Option]:
    """Return what a step may say, by the names without dashes."""
    return {
        field.long: field
        for kind in kinds
        for field in kind.options.values()
        if field.is_stated and field.is_of_steps and not field.is_of_one
    }


_CHECK = _options_of(CheckSettings, InputCodeSettings)


def _schema_of(known: dict[str, Option]) -> Json:
    """Return the JSON Schema of options."""
    properties = {}
    for name, field in known.items():
        kind: Json = {"type": "boolean" if field.is_flag else ["number", "string"]}
        several = {"anyOf": [kind, {"type": "array", "items": kind}]}
        properties[name] = (several if field.is_multiple else kind) | {"description": field.help}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _stated(
    file: build_file.ReadFile,
    given: Json,
    known: dict[str, Option],
    where: tuple[str | int, ...],
) -> dict[str, Any]:
    """Return what a file says of options, by the names of fields.

    Raises:
        CatalogError: There is no such option, or a value is none; it points into the file.
    """
    fields, stated = {field.name: field for field in known.values()}, {}

    def spell(name: str, text: str) -> str:
        return fields[name].as_key(text)

    for name, value in given.items():
        place = (*where, name)
        if name not in known:
            is_step = name in build_file.COMMANDS
            hint = "it is a step of its own" if is_step else did_you_mean(name, known)
            raise file.source.error(f"unknown option {name!r}", place, hint)
        try:
            stated[known[name].name] = known[name].parse_step(value)
        except ValueError as error:
            raise file.source.error(f"{name}: {error}", place) from error
        except DplError as error:
            error.spell(spell)
            raise file.source.error(error.message, place, error.hint) from error
    return {name: value for name, value in stated.items() if value is not None}


def _settings(
    command: str, stated: dict[str, Any], file: build_file.ReadFile, *where: str | int
) -> BaseSettings:
    """Make settings of a step.

    Raises:
        CatalogError: They contradict each other; it points into the file.
    """
    kind = JOBS[command].settings
    try:
        return kind(**stated)
    except DplError as error:
        error.spell(kind.as_key)
        raise file.source.error(error.message, where, error.hint) from error


@dataclass(frozen=True)
class BuildStep:
    """One step, ready to be done with any model.

    Attributes:
        kind: The command of dpl; ``run`` for another program.
        settings: How it is done; for another program, how its result is checked; None for not at
            all.
        program: The other program and its arguments.
    """

    kind: str
    settings: BaseSettings | None
    program: tuple[str, ...] = ()


def _steps(file: build_file.ReadFile) -> Iterator[BuildStep]:
    content = file.content
    checks = content.verify is not False
    said = content.verify if isinstance(content.verify, dict) else {}
    check = _stated(file, said, _CHECK, ("verify",)) if checks else {"verify": False}
    for number, step in enumerate(content.steps):
        where = ("steps", number, step.kind)
        if step.run is not None:
            settings = _settings("verify", check, file, *where) if checks else None
            yield BuildStep(build_file.EXTERNAL, settings, tuple(step.run))
            continue
        given = dict(getattr(step, step.kind) or {})
        if step.kind == "partition" and not given.keys() & {"patterns", "target"}:
            given["target"] = content.targets
            if not content.targets:
                hint = "say targets: [dnnl] for the whole file, or patterns here"
                raise file.source.error("partition: no rules are named", where, hint)
        stated = _stated(file, given, _options_of(JOBS[step.kind].settings), where)
        fed = {"shape": "size"} if "size" in JOBS[step.kind].settings.options else {}
        asked = {fed.get(name, name): value for name, value in check.items()}
        yield BuildStep(step.kind, _settings(step.kind, stated | asked, file, *where))


# One model.


@dataclass(frozen=True, kw_only=True)
class BuildTask(job.BatchTask):
    """All steps with one model.

    Attributes:
        output: Where the result belongs.
        steps: What is done.
        expect: How often rules are to be used.
        budgets: Limits of the result.
        check: Whether nothing may be written.
    """

    output: Path
    steps: tuple[BuildStep, ...]
    expect: tuple[str, ...]
    budgets: build_file.Budgets
    check: bool

    @property
    def keeps(self) -> bool:  # type: ignore[override]  # of this task
        """Whether anything may be written."""
        return not self.check

    def request(self) -> list[object]:
        """Return what is asked, as JSON would hold it."""
        steps = [[step.kind, step.settings, step.program] for step in self.steps]
        return [self.label, self.output, steps, self.expect, self.budgets.model_dump()]

    def texts(self) -> Iterator[str]:
        """Yield parts of the request that may name files, programs among them."""
        for step in self.steps:
            yield from () if step.settings is None else step.settings.reads()
            yield from _texts_of(step.program)

    def places(self) -> Iterator[Path]:
        """Yield the file of the result."""
        yield self.output

    def work(self) -> ModelAnswer:
        """Do all steps."""
        try:
            return _Build(self).answer()
        except Exception as error:  # noqa: BLE001  # the other models go on
            return job.failed_answer(self.label, error)


def _texts_of(program: Sequence[str]) -> Iterator[str]:
    """Yield what may name files in the call of a program: its words, and files inside them."""
    yield from program
    yield from (shutil.which(word) or "" for word in program[:1])
    yield from (f"{module}:main" for flag, module in pairwise(program) if flag == "-m")
    parts = (part for word in program for part in re.split(r"[\s=,:;'\"]+", word))
    yield from filter(os.path.isfile, parts)


class _Build:
    """Does all steps with one model, each on the result of the one before.

    Args:
        task: The model and the steps.
    """

    def __init__(self, task: BuildTask) -> None:
        self.task = task
        self.said: list[ModelAnswer] = []
        self.expected: tuple[Case, ...] = ()

    def answer(self) -> ModelAnswer:
        """Build the result, judge it, and put it in its place if all is well."""
        with temporary_folder() as scratch:
            current = self.task.model
            for number, step in enumerate(self.task.steps, start=1):
                made = scratch / str(number) / self.task.model.name
                made.parent.mkdir()
                done = self._do(step, current, made)
                if done.status == "yes" and filecmp.cmp(current, made, shallow=False):
                    done = replace(done, verdict=_UNCHANGED)
                self.said.append(done)
                if done.status != "yes":
                    said = (line.removeprefix(f"{current}: ") for line in done.messages)
                    said = (line.replace(str(made), made.name) for line in said)
                    lines = tuple(f"step {number}, {step.kind}: {line}" for line in said)
                    return self._summary(done.status, lines, done.hint)
                current = made
            return self._judged(current)

    def _do(self, step: BuildStep, current: Path, made: Path) -> ModelAnswer:
        label = self.task.label
        if step.kind != build_file.EXTERNAL:
            assert step.settings is not None  # noqa: S101  # a step of dpl has them
            settings = step.settings.but(output=made)
            return job.answer_to(step.kind, (current,), settings, label, with_record=True)
        words = (("{input}", str(current.absolute())), ("{output}", str(made)))
        command = list(step.program)
        for mark, path in words:
            command = [word.replace(mark, path) for word in command]
        try:
            done = run_program(command)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be run: {error.strerror}") from error
        if done.returncode or not made.is_file():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            last = f": {lines[-1].strip()}" if lines else ""
            ended = f"exit code {done.returncode}" if done.returncode else "it wrote no {output}"
            message = f"{command[0]}: {ended}{last}"
            return ModelAnswer(label=label, status="error", messages=(message,))
        if step.settings is None:
            return ModelAnswer(label=label, status="yes", verdict="Done, not verified")
        return job.answer_to("verify", (current, made), step.settings, label, with_record=True)

    def _judged(self, made: Path) -> ModelAnswer:
        """Hold the result against what is expected of it; put it in its place."""
        from dplcli.report.match import expectation_cases  # noqa: PLC0415  # loads rich

        task = self.task
        counts: Counter[str] = Counter()
        for answer in self.said:
            counts.update((answer.record or {}).get("counts", {}))
        files = sorted(each for each in made.parent.rglob("*") if each.is_file())
        self.expected = expectation_cases(build_file.judged(task.expect, counts))
        unmet = [case.message for case in self.expected if case.status == "failed"]
        lines = [*unmet, *build_file.exceeded(task.budgets, self._measures(made, files))]
        if lines:
            return self._summary("no", tuple(lines))
        places = {each: task.output.parent / each.relative_to(made.parent) for each in files}
        digests = {str(at): digest_of(each) for each, at in places.items()}
        states = {
            at: "changed" if at.exists() else "new"
            for each, at in places.items()
            if not at.is_file() or not filecmp.cmp(each, at, shallow=False)
        }
        state = states.get(task.output, "changed" if states else "unchanged")
        if task.check:
            return checked(self._summary("yes", state=state), states)
        for each, at in sorted(places.items(), key=lambda pair: pair[0] == made):
            if at in states:
                at.parent.mkdir(parents=True, exist_ok=True)
                with each.open("rb") as source:
                    write_file(at, partial(shutil.copyfileobj, source))
        return replace(self._summary("yes", state=state), files=digests)

    def _measures(self, made: Path, files: Sequence[Path]) -> build_file.Measures:
        """Return what budgets limit; the model is read again only if one asks."""
        covered = None
        for answer in self.said:
            coverage = (answer.record or {}).get("coverage")
            if coverage:
                covered = coverage["nodes"] / coverage["of"] if coverage["of"] else 0.0
        limits = self.task.budgets
        nodes = pipeline.inspect(made).graph.computing_count if limits.nodes is not None else 0
        growth = None
        if limits.growth is not None:
            growth = 100 * (size_of(made) / size_of(self.task.model) - 1)
        return build_file.Measures(
            nodes, sum(each.stat().st_size for each in files), growth, covered
        )

    def _summary(
        self,
        status: Literal["yes", "no", "error"],
        messages: tuple[str, ...] = (),
        hint: str = "",
        *,
        state: str = "",
    ) -> ModelAnswer:
        """Return one answer of those of all steps."""
        figures: dict[str, str] = {}
        for answer in self.said:
            before = figures.get("nodes before")
            figures |= answer.figures
            if before is not None:
                figures["nodes before"] = before
        figures.pop("size", None)
        return ModelAnswer(
            label=self.task.label,
            status=status,
            verdict=self._verdict(status),
            messages=messages,
            hint=hint,
            notes=tuple(line for answer in self.said for line in answer.notes),
            figures=figures | {"file": state or "not written"},
            rules=tuple(rule for answer in self.said for rule in answer.rules),
            cases=(
                *(
                    (f"step {number}{f', {group}' * (group != 'verdict')}", name, status, message)
                    for number, answer in enumerate(self.said, start=1)
                    for group, name, status, message in answer.cases
                ),
                *((case.group, case.name, case.status, case.message) for case in self.expected),
            ),
            record={"steps": [answer.record for answer in self.said]},
        )

    def _verdict(self, status: str) -> str:
        """Return the weakest verdict of the steps."""
        if status != "yes":
            last = self.said[-1].verdict if self.said else ""
            return last if last.startswith(("NOT", "Cannot")) else ""
        verdicts = [answer.verdict for answer in self.said if answer.verdict != _UNCHANGED]
        weakest = next((each for each in verdicts if each != "Equivalent"), "Equivalent")
        return weakest if verdicts else _UNCHANGED


def checked(answer: ModelAnswer, states: dict[Path, str]) -> ModelAnswer:
    """Return the answer of a check: no, if a file would be another."""
    if not states:
        return answer
    said = {"new": "is missing", "changed": "would differ"}
    lines = tuple(f"{path}: {said[state]}" for path, state in states.items())
    hint = "dpl build writes what is missing or would differ"
    return replace(answer, status="no", messages=lines, hint=hint)


# All models.


def file_schema() -> Json:
    """Return the JSON Schema of a pipeline file."""
    steps = {name: _schema_of(_options_of(JOBS[name].settings)) for name in build_file.COMMANDS}
    return build_file.build_file_schema(steps, _schema_of(_CHECK))


@click.command("build", cls=options.GroupedCommand)
@click.argument("file", type=options.PATH, required=False)
@click.option(
    "--check",
    cls=options.GroupedOption,
    group="The run",
    is_flag=True,
    help="Write nothing; exit with 1 if a result would differ, or something is not as expected.",
)
@options.settings_options(job.Batch, without="resume")
@options.printing_options("Say what is being done.", "junit", "markdown", "html")
def command(  # one parameter per option
    *,
    file: Path | None,
    check: bool,
    settings: job.Batch,
    printing: options.Printing,
) -> None:
    """Do what FILE says with all its models: dpl.yaml, or [tool.dpl] of a pyproject.toml.

    A model is done again only if something has changed: a file that is read for it, what FILE
    says, or the version of dpl or of what it runs on.

    Exit codes: 0 all is as expected; 1 it is not, or would differ; 2 some could not be done.
    """
    read = build_file.read_build_file(build_file.find_build_file(Path()) if file is None else file)
    if not check:
        printing = _with_reports(printing, read)
    printing.check(read.path)
    folder = read.path.absolute().parent
    steps = tuple(_steps(read))
    with chdir(folder):
        answers = settings.answers(list(_rows(read, steps, folder, check=check)), _known, printing)
        if not check:
            forget_oldest(settings.cache_size)
    job.conclude(printing, "dpl build", list(_without_clashes(answers)))


def _with_reports(printing: options.Printing, read: build_file.ReadFile) -> options.Printing:
    """Return where reports go, after the command line and the file."""
    folder = read.path.parent
    stated = read.content.reports.model_dump(by_alias=True, exclude_none=True)
    places = {form: str(folder / path) for form, path in stated.items()}
    return replace(printing, reports=places | dict(printing.reports))


def _rows(
    read: build_file.ReadFile, steps: tuple[BuildStep, ...], folder: Path, *, check: bool
) -> Iterator[BuildTask | ModelAnswer]:
    """Yield what is to be done for each model, or why there is nothing to do."""
    run, content = token_hex(8), read.content
    output = Path(content.output)
    taken: dict[Path, str] = {}
    for each, entry in _models(content.models, output):
        label, place = str(each.path), output / each.place
        problem = each.problem
        if not problem and place in taken:
            problem = f"{label}: its result would replace that of {taken[place]}"
        if not problem and resolved(place) == resolved(each.path):
            problem = f"{label}: its result would replace it"
        if problem:
            yield ModelAnswer(label=label, status="error", messages=(problem,))
            continue
        taken[place] = label
        yield BuildTask(
            label=label,
            model=each.path,
            output=place,
            steps=steps,
            expect=(*content.expect, *entry.expect),
            budgets=build_file.joined(content.budgets, entry.budgets),
            folder=folder,
            run=run,
            check=check,
        )


def _models(
    entries: Iterable[build_file.ModelEntry], output: Path
) -> Iterable[tuple[ModelFile, build_file.ModelEntry]]:
    """Return each model once, with the last entry that names it."""
    found: dict[Path, tuple[ModelFile, build_file.ModelEntry]] = {}
    results = resolved(output)
    for entry in entries:
        path = Path(entry.path)
        try:
            models = find_models([path], job.RESULTS)
        except UsageError as error:
            models = [ModelFile(path, path, error.message)]
        for each in models:
            place = resolved(each.path)
            if place.is_relative_to(results):
                continue
            first = found[place][0] if place in found else each
            found[place] = first, entry
        for left_out in find_models([Path(name) for name in entry.without]):
            found.pop(resolved(left_out.path), None)
    return found.values()


def _known(task: BuildTask) -> ModelAnswer | None:
    """Return the answer of an earlier build, if it still says all."""
    answer = task.known()
    if answer is None:
        return None
    if are_there(answer.files):
        states = {"file": "unchanged"} if answer.status == "yes" else {}
        return replace(answer, figures={**answer.figures, **states})
    if not task.check:
        return None
    changed = {
        Path(path): "changed" if Path(path).exists() else "new"
        for path, digest in answer.files.items()
        if not are_there({path: digest})
    }
    return checked(answer, changed)


def _without_clashes(answers: Iterable[ModelAnswer]) -> Iterator[ModelAnswer]:
    """Refuse results that share a file, such as external data, but not its content."""
    first: dict[str, tuple[str, str]] = {}
    for answer in answers:
        for path, digest in answer.files.items():
            other, content = first.setdefault(path, (answer.label, digest))
            if content != digest:
                line = f"{answer.label}: {path} is external data of {other}, too, and differs"
                hint = "put the models into folders of their own"
                yield replace(answer, status="error", messages=(line,), hint=hint)
                break
        else:
            yield answer
