"""Commands that do a job of :mod:`dplcli.api`, made from what the job takes: one model, or many.

The options are the fields of the job's settings. Each of many models is done in a process of a
pool: the same job, with the same settings. All are reported together.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, chdir, closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import click

from dplcli import api, pipeline
from dplcli.batch import done
from dplcli.batch.models import ModelFile, find_models, is_one_model, pair_models
from dplcli.cli import options
from dplcli.cli.main import EXIT_NO, code_of_interrupt, command_named, said_of
from dplcli.cli.printing import complain, say
from dplcli.docstrings import docstring
from dplcli.errors import MOST_MISTAKES, CatalogError, UsageError, counted, opt
from dplcli.files import remove_stale
from dplcli.outcomes.base import ModelAnswer
from dplcli.settings import BaseSettings, BatchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dplcli.cli.options import Printing
    from dplcli.outcomes.base import Outcome
    from dplcli.report.document import Document

    Json = dict[str, Any]
    Models = tuple[Path | None, ...]

_LOADED = (
    "dplcli.cli.job",
    "dplcli.pipeline.matching",
    "dplcli.pipeline.partitioning",
    "dplcli.pipeline.rewriting",
    "dplcli.report.many",
    "dplcli.report.partition",
    "dplcli.report.rewrite",
)
"""What every process needs; it is loaded once for all of them, where the system can do that."""


class _GivenPath(click.Path):
    """A path that is not empty, as that of an unset variable of a shell is: that means ``.``."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401  # click's
        """Refuse an empty path."""
        if value == "":
            self.fail("an empty path names no model.", param, ctx)
        return super().convert(value, param, ctx)


_PATHS = _GivenPath(path_type=Path)


RESULTS = frozenset(job.settings.result for job in api.JOBS.values())
"""The middle parts of the names of files that jobs write beside their models."""


# One of many models.


@dataclass(frozen=True, kw_only=True)
class BatchTask:
    """What is done with one of many models.

    Attributes:
        label: The model, as it is named.
        model: Its file.
        folder: The working directory.
        run: Names this run: what it has done is not done again if a process is lost.
        expected: What the files have to hold, by their names; None for whatever they hold.
    """

    label: str
    model: Path
    folder: Path
    run: str
    expected: Mapping[str, str] | None = None

    keeps: ClassVar[bool] = True

    def request(self) -> list[object]:
        """Return what is asked, as JSON would hold it."""
        raise NotImplementedError

    def texts(self) -> Iterator[str]:
        """Yield parts of the request that may name files."""
        raise NotImplementedError

    def work(self) -> ModelAnswer:
        """Do it."""
        raise NotImplementedError

    def places(self) -> Iterator[Path]:
        """Yield the files that it may write."""
        raise NotImplementedError

    def contents(self, *, reads: bool) -> dict[str, str]:
        """Return what the files hold that the work depends on."""
        return done.contents_of(self.model, self.texts(), reads=reads)

    def unlike(self, contents: Mapping[str, str]) -> str:
        """Return the first file that does not hold what it has to; "" if all do."""
        meant = contents if self.expected is None else self.expected
        names = sorted({*contents, *meant})
        return next((name for name in names if contents.get(name) != meant.get(name)), "")

    def key(self, contents: Mapping[str, str]) -> str:
        """Return what stands for the answer; "" if it cannot be kept."""
        return done.key_of(contents, self.request(), self.folder)

    def known(self) -> ModelAnswer | None:
        """Return the answer of an earlier run."""
        known = done.read_answer(self.key(self.contents(reads=False)))
        return None if known is None else ModelAnswer(**known["answer"] | {"label": self.label})


def do_task(task: BatchTask) -> Json:
    """Do one of many models; return its answer as plain data, which is kept, too.

    Raises:
        UnfitError: The files here are not those that are meant.
    """
    from dplcli.batch.processes import UnfitError  # noqa: PLC0415  # one model needs none

    is_elsewhere = task.expected is not None
    with ExitStack() as scope:
        try:
            scope.enter_context(chdir(task.folder))
        except OSError as error:
            if not is_elsewhere:
                raise
            raise UnfitError(f"there is no folder {task.folder}", hint=_SHARED) from error
        contents = task.contents(reads=task.keeps or is_elsewhere)
        if unlike := task.unlike(contents):
            raise UnfitError(f"{unlike} is another file there, or none", hint=_SHARED)
        return done.once(
            task.key(contents), task.run, lambda: asdict(task.work()), keeps=task.keeps
        )


_SHARED = "all machines have to see the same files under the same names"


@dataclass(frozen=True, kw_only=True)
class ModelTask(BatchTask):
    """A job with one of many models.

    Attributes:
        command: The command's name.
        models: What the job is given: the model alone, or with another file.
        settings: How it is done.
        writes: What the job may write.
        with_record: Whether the JSON is wanted.
        with_text: Whether what the command would print is.
        verbose: Whether that says more.
    """

    command: str
    models: tuple[Path, ...]
    settings: BaseSettings
    writes: tuple[Path, ...] = ()
    with_record: bool = False
    with_text: bool = False
    verbose: bool = False

    def request(self) -> list[object]:
        """Return what is asked, as JSON would hold it."""
        told = [self.with_record, self.with_text, self.verbose]
        return [self.command, self.models, self.settings, told]

    def texts(self) -> Iterator[str]:
        """Yield parts of the request that may name files."""
        yield from map(str, self.models)
        yield from self.settings.reads()

    def places(self) -> Iterator[Path]:
        """Yield the files that the job may write."""
        return iter(self.writes)

    def work(self) -> ModelAnswer:
        """Do the job; files that it wrote are named as they are seen from the folder."""
        asked = (self.command, self.models, self.settings, self.label)
        answer = answer_to(
            *asked,
            verbose=self.verbose,
            with_record=self.with_record,
            with_text=self.with_text,
        )
        here, files = self.folder, {}
        for path in self.writes if answer.status != "error" else ():
            if path.exists():
                seen = path.relative_to(here) if path.is_relative_to(here) else path
                files[str(seen)] = done.digest_of(path)
        return replace(answer, files=files)


def answer_to(
    command: str,
    models: tuple[Path, ...],
    settings: BaseSettings,
    label: str,
    **wanted: bool,
) -> ModelAnswer:
    """Do the job of a command with one model; return what it says; *wanted* as for answers."""
    from dplcli.report.many import answer_of  # noqa: PLC0415  # loads rich

    called = cast("JobCommand", command_named(command))
    started = perf_counter()
    try:
        answer = answer_of(label, called.document(models, settings), **wanted)
        return replace(answer, seconds=perf_counter() - started)
    except Exception as error:  # noqa: BLE001  # the other models go on
        return failed_answer(label, error)


def failed_answer(label: str, error: Exception) -> ModelAnswer:
    """Return that a model could not be done, and why."""
    message, hint = said_of(error)
    if hint is not None and "--debug" in hint:
        hint = "this is a bug in dpl; run dpl --debug for this model alone to have a traceback"
    mistakes = error.mistakes[:MOST_MISTAKES] if isinstance(error, CatalogError) else ()
    messages = tuple(mistake.text for mistake in mistakes) or (message,)
    return ModelAnswer(label=label, status="error", messages=messages, hint=hint or "")


# All of them.


class Batch(BatchSettings):
    """How many models are worked on, and the work."""

    @property
    def is_wanted(self) -> bool:
        """Whether something is asked for that one model alone would not have."""
        return self.resume or self.scheduler is not None

    def limited(self) -> AbstractContextManager[None]:
        """Give one model alone the time that is stated."""
        if "model_timeout" not in self.stated():
            return nullcontext()
        from dplcli.batch.processes import limited  # noqa: PLC0415  # one model needs none

        return limited(self.model_timeout)

    def answers(
        self,
        rows: Sequence[BatchTask | ModelAnswer],
        known: Callable[[Any], ModelAnswer | None],
        printing: Printing,
    ) -> list[ModelAnswer]:
        """Return the answers of all rows: those that are, those known before, and those of tasks.

        Args:
            rows: Tasks, and answers that need no task.
            known: Returns what an earlier run answered to a task.
            printing: Where to say how far it is.
        """
        tasks = [row for row in rows if isinstance(row, BatchTask)]
        with printing.progress() as tell:
            answers = {task.label: known(task) for task in tasks}
            left = [task for task in tasks if answers[task.label] is None]
            if self.resume and len(left) < len(tasks) and not printing.quiet:
                count = len(tasks) - len(left)
                say(f"dpl: {count} of {counted(len(tasks), 'model')} were done before", err=True)
            answers |= self.run(left, tell) if left else {}
        for folder in {place.parent for task in tasks for place in task.places()}:
            remove_stale(folder)  # what a process left that was killed, of this run or before
        said = [row if isinstance(row, ModelAnswer) else answers[row.label] for row in rows]
        return [answer for answer in said if answer is not None]

    def run(
        self, tasks: Sequence[BatchTask], tell: Callable[[str], None]
    ) -> dict[str, ModelAnswer]:
        """Do all tasks; return the answers by the labels of the tasks.

        Who is interrupted has the answers so far; the other models are said not to be done.

        Raises:
            UsageError: There is no such scheduler, or no worker that can do the work.
        """
        answers: dict[str, ModelAnswer] = {}
        tell(f"0 of {counted(len(tasks), 'model')} done")
        try:
            with closing(self._done(tasks)) as answered:
                for label, answer in answered:
                    answers[label] = answer
                    tell(f"{len(answers)} of {counted(len(tasks), 'model')} done, last {label}")
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001  # somebody asks the process to end
            code_of_interrupt(error)
            stopped = "interrupted; no file is left half-written"
            for task in tasks:
                rest = ModelAnswer(label=task.label, status="error", messages=(stopped,))
                answers.setdefault(task.label, rest)
        return answers

    def _done(self, tasks: Sequence[BatchTask]) -> Generator[tuple[str, ModelAnswer]]:
        from dplcli.batch.processes import (  # noqa: PLC0415  # one model needs none
            default_jobs,
            run_here,
        )

        if self.scheduler is not None:
            yield from self._done_there(tasks)
            return
        jobs = self.jobs or default_jobs()
        for task, said in run_here(do_task, tasks, jobs, _LOADED, self.model_timeout):
            yield task.label, _answer(task, said)

    def _done_there(self, tasks: Sequence[BatchTask]) -> Generator[tuple[str, ModelAnswer]]:
        """Have tasks done in a cluster; what is said to be written has to be here."""
        from dplcli.batch.processes import Cluster, run_there  # noqa: PLC0415  # as above

        cluster = Cluster(
            self.scheduler or "",
            done.program(),
            _LOADED,
            self.worker_timeout,
            self.strict_workers,
            lambda line: say(f"dpl: {line}", err=True),
        )
        meant = [replace(task, expected=task.contents(reads=True)) for task in tasks]
        unseen: list[tuple[BatchTask, ModelAnswer, str]] = []
        for task, said, machine in run_there(do_task, meant, cluster, self.model_timeout, _stands):
            answer = _answer(task, said)
            if answer.status == "error" and machine:
                lines = [f"{line} (on {machine})" for line in answer.messages]
                answer = replace(answer, messages=lines)
            if not done.are_there(answer.files):
                unseen.append((task, answer, machine))
                continue
            if answer.status != "error" and task.keeps:
                done.keep_answer(task.key(task.expected or {}), {"run": task.run, "answer": said})
            yield task.label, answer
        late = monotonic() + _UNSEEN
        for task, answer, machine in unseen:
            while not (is_there := done.are_there(answer.files)) and monotonic() < late:
                sleep(_SOON)  # a shared folder may show a file late
            if not is_there:
                line = f"{machine} wrote {', '.join(answer.files)}, which is not here"
                lost = UsageError(line, hint=_SHARED)
                answer = failed_answer(task.label, lost)  # noqa: PLW2901  # an answer that got lost is one that failed
            yield task.label, answer


def _stands(task: BatchTask) -> bool:
    """Tell whether the files of a task are here as they were."""
    return not task.unlike(task.contents(reads=True))


_UNSEEN = 10.0
_SOON = 0.2


def _answer(task: BatchTask, said: Json | Exception) -> ModelAnswer:
    return failed_answer(task.label, said) if isinstance(said, Exception) else ModelAnswer(**said)


@dataclass(frozen=True)
class Invocation:
    """A call of a command: what the arguments name, and what the options say.

    Attributes:
        models: What the arguments name.
        settings: How the job is done.
        extra: Further options of the command.
        printing: What is reported, and how.
        batch: How many models are worked on.
    """

    models: tuple[Any, ...]
    settings: BaseSettings
    extra: BaseSettings | None
    printing: Printing
    batch: Batch


class Asked(NamedTuple):
    """What is asked for: a model, what the job is given, and where its result goes."""

    file: ModelFile
    models: tuple[Path, ...]
    output: Path | None


def each_of(
    command: JobCommand,
    models: Sequence[Path],
    before: tuple[Path, ...],
    settings: BaseSettings,
) -> list[Asked]:
    """Return what is asked of each of the models that are named.

    Args:
        command: The command.
        models: Files, folders and globs.
        before: What the job is given before the model.
        settings: How it is done.
    """
    found = find_models(models, {settings.result})
    outputs = _outputs(found, settings, command.suffix)
    if command.is_beside and not outputs:
        outputs = {each.path: each.path.with_suffix(command.suffix) for each in found}
    return [Asked(each, (*before, each.path), outputs.get(each.path)) for each in found]


def pairs_of(
    command: JobCommand, folders: tuple[Path, Path], settings: BaseSettings
) -> list[Asked]:
    """Return what is asked of each pair of models of two folders."""
    asked = []
    pairs = pair_models(*folders)
    outputs = _outputs([one for one, _ in pairs], settings, command.suffix)
    for each, partner in pairs:
        missing = f"{each.path}: {folders[1]} has no model of this name" if partner is None else ""
        file = each._replace(problem=each.problem or missing)
        asked.append(Asked(file, (each.path, (partner or each).path), outputs.get(each.path)))
    return asked


def _outputs(found: Iterable[ModelFile], settings: BaseSettings, suffix: str) -> dict[Path, Path]:
    """Return where the results go, if -o names a folder."""
    folder = vars(settings).get("output")
    if folder is None:
        return {}
    if not folder.is_dir() and (folder.suffix or folder.exists()):
        raise UsageError(
            f"-o {folder}: there are several models, so it must be a folder",
            hint=f"pass -o {folder.with_suffix('')}",
        )
    return {each.path: (folder / each.place).with_suffix(suffix) for each in found}


def do_all(command: JobCommand, asked: Sequence[Asked], call: Invocation) -> None:
    """Do a job for all models, and report them."""
    settings, printing, batch = call.settings, call.printing, call.batch
    name, is_in_place = str(command.name), vars(settings).get("in_place", False)
    printing.check(*(each.path for each, _, _ in asked))
    if batch.resume and is_in_place:
        raise UsageError(
            f"{opt('in_place')} and {opt('resume')} contradict each other",
            hint="what is done is not seen any more: name a folder with -o",
        )
    for some in filter(None, (settings, call.extra)):
        for field in map(some.options.get, some.stated()):
            if field is not None and field.is_of_one:
                raise UsageError(f"{opt(field.name)} is for one model, and there are {len(asked)}")
    if "hints" in settings.options:
        settings = settings.but(hints=printing.has_record)

    def known(task: ModelTask) -> ModelAnswer | None:
        answer = task.known() if batch.resume else None
        return answer if answer is not None and done.are_there(answer.files) else None

    answers = batch.answers(list(rows_of(name, asked, settings, printing)), known, printing)
    done.forget_oldest(batch.cache_size)
    conclude(printing, f"dpl {name}", answers)


def rows_of(
    name: str, asked: Sequence[Asked], settings: BaseSettings, printing: Printing
) -> Iterator[ModelTask | ModelAnswer]:
    """Yield what is to be done for each model, or why there is nothing to do."""
    from secrets import token_hex  # noqa: PLC0415  # one model needs none

    is_in_place = vars(settings).get("in_place", False)
    run, taken = token_hex(8), dict[Path, Path]()
    for each, models, output in asked:
        label, problem = str(each.path), each.problem
        if output in taken and not problem:
            problem = f"{label}: its result would replace that of {taken[output]}"
        if problem:
            yield ModelAnswer(label=label, status="error", messages=(problem,))
            continue
        if output is not None:
            taken[output] = each.path
            output.parent.mkdir(parents=True, exist_ok=True)
        place = each.path if is_in_place else output
        if place is None and settings.result:
            place = pipeline.default_output(each.path, settings.result)
        is_placed = place is not None and not is_in_place
        yield ModelTask(
            label=label,
            model=each.path,
            command=name,
            models=models,
            settings=settings.but(output=place) if is_placed else settings,
            folder=Path.cwd(),
            run=run,
            writes=() if place is None else (place,),
            with_record=printing.has_record,
            with_text=printing.verbose or name == "explain",
            verbose=printing.verbose,
        )


def conclude(printing: Printing, command: str, answers: Sequence[ModelAnswer]) -> None:
    """Report many models; say what is wrong with any, and end with the worst exit code."""
    from dplcli.report.many import complaints, many_document  # noqa: PLC0415  # only for many models

    document = many_document(command, answers)
    errors = [answer for answer in answers if answer.status == "error"]
    times = Counter(tuple(answer.messages) for answer in errors)
    is_one_problem = len(errors) == len(answers) > 1 == len(times)
    printing.publish(document, prints=not is_one_problem)
    for answer in answers:
        count = times.pop(tuple(answer.messages), 0) if answer.status == "error" else 1
        prefix = "error: " if answer.status == "error" else ""
        parts = [line.partition("\n") for line in answer.messages]
        alike = [f"{first} ({count} models){end}{rest}" for first, end, rest in parts]
        if answer.status != "yes" and count:
            for line in alike if count > 1 else complaints(answer):
                complain(f"{prefix}{line}")
    for hint in dict.fromkeys(answer.hint for answer in answers if answer.hint):
        say(f"dpl: hint: {hint}", err=True)
    statuses = {answer.status for answer in answers}
    if statuses != {"yes"}:
        raise click.exceptions.Exit(code_of_interrupt() if "error" in statuses else EXIT_NO)


# Commands.


class JobCommand(options.GroupedCommand):
    """A command that does a job. What a class says of itself is the help of its command.

    Args:
        name: The command, and the job of the API.
        verbose: What --verbose does; "" if there is no such option.
        forms: The forms of report.
        models: The arguments for models.
        settings: The class of the settings; None for that of the job.
        extra: Further options, which are about what is printed.
        more: Parameters of click's own.
    """

    suffix = ".onnx"
    """The ending of results of many models."""

    is_beside = False
    """Whether a result without -o lies beside its model, with that ending alone."""

    takes_many = True
    """Whether many models can be named."""

    def __init__(  # noqa: PLR0913  # all that there is to know of one
        self,
        name: str,
        *,
        verbose: str = "",
        forms: Sequence[str] = (),
        models: Sequence[click.Argument] = (),
        settings: type[BaseSettings] | None = None,
        extra: type[BaseSettings] | None = None,
        more: Sequence[click.Parameter] = (),
    ) -> None:
        self.settings = settings or api.JOBS[name].settings
        self.extra = extra
        self.arguments = [argument.name or "" for argument in models]
        printing = options.printing_params(verbose, forms)
        if extra is not None:
            printing[len(forms) : len(forms)] = options.options_of(extra)
        batch = options.options_of(Batch) if self.takes_many else []
        params = [*models, *options.options_of(self.settings), *more, *printing, *batch]
        super().__init__(name, params=params, callback=self._call, help=docstring(type(self)))

    def _call(self, **given: Any) -> None:  # noqa: ANN401  # what click gives
        printing = options.take_printing(given)
        batch = options.take_settings(Batch, given)
        models = tuple(given.pop(name) for name in self.arguments)
        extra = None if self.extra is None else options.take_settings(self.extra, given)
        settings = options.take_settings(self.settings, given)
        if "hints" in settings.options:
            settings = settings.but(hints=printing.wants_hints)
        self.begin(Invocation(models, settings, extra, printing, batch))

    def begin(self, call: Invocation) -> None:
        """Do the job with what the arguments name: once, or with each of many models."""
        self.one(call)

    def one(self, call: Invocation) -> None:
        """Do the job once, and report it."""
        settings, printing = placed(call.models[-1], call.settings), call.printing
        printing.check(*call.models, *settings.files())
        with call.batch.limited(), printing.progress() as say:
            if "progress" in settings.options:
                settings = settings.but(progress=say)
            document = self.document(call.models, settings)
        printing.conclude(document)

    def document(self, models: Models, settings: BaseSettings) -> Document:
        """Do the job with one model or pair; return the report."""
        outcome: Outcome = api.JOBS[str(self.name)].function(*models, settings)
        return cast("Document", outcome.document())


def placed(model: Path | None, settings: BaseSettings) -> BaseSettings:
    """Return settings that say where a result goes, if a job writes one and nothing says it."""
    given = vars(settings)
    is_said = not settings.result or given["output"] is not None or given.get("in_place", False)
    if model is None or is_said:
        return settings
    return settings.but(output=pipeline.default_output(model, settings.result))


class ModelCommand(JobCommand):
    """A command that takes a model: a file, or several, folders and globs.

    Args:
        name: The command.
        before: Arguments before the models.
        more: As for :class:`JobCommand`.
    """

    def __init__(
        self,
        name: str,
        before: Sequence[click.Argument] = (),
        **more: Any,  # noqa: ANN401  # as there
    ) -> None:
        last = click.Argument(["models"], type=_PATHS, nargs=-1, metavar="MODEL...")
        super().__init__(name, models=[*before, last], **more)

    def begin(self, call: Invocation) -> None:
        """Do the job with the model, or with each of them."""
        *before, paths = call.models
        if not paths:
            context = click.get_current_context()
            raise click.MissingParameter(ctx=context, param_hint="'MODEL'", param_type="argument")
        if is_one_model(paths) and not call.batch.is_wanted:
            self.one(replace(call, models=(*before, paths[0])))
        else:
            do_all(self, each_of(self, paths, tuple(before), call.settings), call)


class PairCommand(JobCommand):
    """A command that takes two models, or two folders: pairs of models of the same name."""

    def begin(self, call: Invocation) -> None:
        """Do the job with the pair, or with each pair of two folders."""
        one, other = self.pair(call)
        is_alone = one is None or other is None or is_one_model([one]) or is_one_model([other])
        if not self.takes_many or is_alone:
            if call.batch.scheduler is not None:
                raise UsageError(f"{opt('scheduler')} is for two folders of models")
            self.one(call)
        else:
            do_all(self, pairs_of(self, (one, other), call.settings), call)

    def pair(self, call: Invocation) -> tuple[Any, ...]:
        """Return what may be two folders."""
        return call.models
