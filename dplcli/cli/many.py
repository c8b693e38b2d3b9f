"""How commands take many models: each is done in a process of its own pool, and all are reported.

What runs there is the command itself, with the options that were given and one of the models. It
hands its report over instead of printing it.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import chdir
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.batch.done import are_there, digest_of, forget_oldest, key_of, once, read_answer
from dplcli.batch.models import ModelFile, find_models, is_one_model, pair_models
from dplcli.cli import options
from dplcli.cli.main import EXIT_COULD_NOT, EXIT_NO, said_of
from dplcli.cli.printing import say
from dplcli.errors import UsageError, counted
from dplcli.outcomes import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dplcli.report.document import Document

    Json = dict[str, Any]

_OF_ONE_MODEL = {
    "header": "--c-header",
    "plan": "--plan",
    "save": "--save-inputs",
    "save_results": "--save-results",
    "stub": "--python",
    "trace": "--trace",
    "trace_json": "--trace-json",
}
"""Options that write one file, or print one listing, about one model."""

_LOADED = (
    "dplcli.cli.many",
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

    def convert(
        self,
        value: Any,  # noqa: ANN401  # click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401  # click's
        """Refuse an empty path."""
        if value == "":
            self.fail("an empty path names no model.", param, ctx)
        return super().convert(value, param, ctx)


_PATHS = _GivenPath(path_type=Path)


# One of many models.


@dataclass(frozen=True)
class ModelTask:
    """A command with one of many models.

    Attributes:
        label: The model, as it is named.
        model: Its file.
        command: The command's name.
        params: What it is given, as click parsed it.
        folder: The working directory.
        run: Names this run: what it has done is not done again if a process is lost.
        writes: What the command may write.
        with_record: Whether the JSON is wanted.
        with_text: Whether what the command would print is.
    """

    label: str
    model: Path
    command: str
    params: Json
    folder: Path
    run: str
    writes: tuple[Path, ...] = ()
    with_record: bool = False
    with_text: bool = False

    def key(self, *, reads: bool) -> str:
        """Return what stands for the answer; "" if it cannot be kept."""
        request = {
            "command": self.command,
            "params": self.params,
            "folder": self.folder,
            "told": [self.with_record, self.with_text],
        }
        read = [value for name, value in self.params.items() if name != "output"]
        return key_of(self.model, request, texts_in(read), reads=reads)


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in what a command is given; some of them name files."""
    if isinstance(value, (str, Path)):
        yield str(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


ALONE = threading.Lock()
"""A worker of Dask has several threads, but dpl does one thing at a time."""


def do_task(task: ModelTask) -> Json:
    """Do one of many models; return its answer as plain data, which is kept, too."""
    with ALONE, chdir(task.folder):
        return once(task.key(reads=True), task.run, partial(_answer_of, task))


def _answer_of(task: ModelTask) -> Json:
    wanted = {"with_record": task.with_record, "with_text": task.with_text}
    answer = answer_to(task.command, task.params, task.label, **wanted)
    files = {str(path): digest_of(path) for path in task.writes if path.exists()}
    return asdict(replace(answer, files=files if answer.status != "error" else {}))


def answer_to(
    command: str, params: Json, label: str, *, with_record: bool = False, with_text: bool = False
) -> ModelAnswer:
    """Run a command on one model; return what it says instead of printing it."""
    from dplcli.report.many import answer_of  # noqa: PLC0415  # loads rich

    called: click.Command = import_module(f"dplcli.cli.{command}").command
    kept: list[Document] = []
    started = perf_counter()
    try:
        with click.Context(called, info_name=command, obj=kept.append) as context:
            context.invoke(called.callback or called, **params)
        answer = answer_of(label, kept[0], with_record=with_record, with_text=with_text)
        return replace(answer, seconds=perf_counter() - started)
    except Exception as error:  # noqa: BLE001  # the other models go on
        return failed_answer(label, error)


def failed_answer(label: str, error: Exception) -> ModelAnswer:
    """Return that a model could not be done, and why."""
    message, hint = said_of(error)
    if hint is not None and "--debug" in hint:
        hint = "this is a bug in dpl; run dpl --debug for this model alone to have a traceback"
    return ModelAnswer(label=label, status="error", messages=(message,), hint=hint or "")


# All of them.


@dataclass(frozen=True)
class Batch:
    """How many models are worked on: by what, and whether what was done before counts.

    Attributes:
        jobs: How many processes.
        scheduler: The address of a scheduler of Dask; None for processes here.
        resume: Whether what an earlier run did counts.
    """

    jobs: int | None
    scheduler: str | None
    resume: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether something is asked for that one model alone would not have."""
        return self.resume or self.scheduler is not None

    def run(
        self, work: Callable[[Any], Json], tasks: Sequence[Any], tell: Callable[[str], None]
    ) -> dict[str, ModelAnswer]:
        """Do all tasks; return the answers by the labels of the tasks.

        Raises:
            UsageError: There is no such scheduler.
        """
        from dplcli.batch.processes import (  # noqa: PLC0415  # one model needs none
            default_jobs,
            run_here,
            run_there,
        )

        if self.scheduler is not None:
            done = run_there(work, tasks, self.scheduler)
        else:
            done = run_here(work, tasks, self.jobs or default_jobs(), _LOADED)
        answers: dict[str, ModelAnswer] = {}
        tell(f"0 of {counted(len(tasks), 'model')} done")
        for task, said in done:
            label = task.label
            answers[label] = (
                failed_answer(label, said) if isinstance(said, Exception) else ModelAnswer(**said)
            )
            tell(f"{len(answers)} of {counted(len(tasks), 'model')} done, last {label}")
        return answers


def batch_options(*, resume: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --jobs, --scheduler and, unless the command always does that, --resume."""
    adding = [
        options.option(
            options.MANY,
            "--scheduler",
            metavar="ADDRESS",
            help="Have the workers of this scheduler of Dask do them, such as tcp://host:8786.",
        ),
        options.option(
            options.MANY,
            "--resume",
            is_flag=True,
            help="Leave out what an earlier run did, if model, options and results are unchanged.",
        ),
        options.option(
            options.MANY,
            "--jobs",
            "-j",
            type=click.IntRange(min=1),
            metavar="N",
            help="How many processes work on them. Default: one for each core.",
        ),
    ]
    if not resume:
        del adding[1]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for one in adding:
            command = one(command)
        return command

    return add


def takes_models(
    result: str = "", suffix: str = ".onnx", *, beside: bool = False
) -> Callable[..., Callable[..., None]]:
    """Let a command that takes one model take many: several, folders and globs.

    Args:
        result: The middle part of the names of the results; "" if the command writes none.
        suffix: The ending of the results.
        beside: Whether a result without -o lies beside its model, with that ending alone.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(
            *,
            models: tuple[Path, ...],
            jobs: int | None,
            resume: bool,
            scheduler: str | None,
            **given: Any,  # noqa: ANN401  # what click gives
        ) -> None:
            if not models:
                context = click.get_current_context()
                raise click.MissingParameter(
                    ctx=context, param_hint="'MODEL'", param_type="argument"
                )
            batch = Batch(jobs, scheduler, resume)
            if is_one_model(models) and not batch.is_wanted:
                command(model=models[0], **given)
                return
            do_each(models, given, batch, result, suffix, beside=beside)

        argument = click.argument("models", type=_PATHS, nargs=-1, metavar="MODEL...")
        return argument(batch_options()(call))

    return add


def do_each(  # noqa: PLR0913  # as takes_models, and what was given
    models: Sequence[Path],
    given: Json,
    batch: Batch,
    result: str = "",
    suffix: str = ".onnx",
    *,
    beside: bool = False,
) -> None:
    """Do the command that was called for each of the models that are named."""
    found = find_models(models, result)
    outputs = _outputs(found, given.get("output"), suffix) if "output" in given else {}
    if beside and not outputs:
        outputs = {each.path: each.path.with_suffix(suffix) for each in found}
    asked = [(each, {"models": (each.path,)} | _output_of(each, outputs)) for each in found]
    _do_all(asked, given, batch, result)


def takes_pairs(first: str, second: str, suffix: str = "") -> Callable[..., Callable[..., None]]:
    """Let a command that takes two models take two folders: pairs of models of the same name.

    Args:
        first: The parameter for the first model.
        second: That for the second.
        suffix: The ending of what -o names; "" if the command writes nothing, or folders.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(
            *,
            jobs: int | None,
            resume: bool,
            scheduler: str | None,
            **given: Any,  # noqa: ANN401  # what click gives
        ) -> None:
            one, other = given[first], given[second]
            batch = Batch(jobs, scheduler, resume)
            if one is None or other is None or is_one_model([one]) or is_one_model([other]):
                if batch.is_wanted:
                    raise UsageError("--resume and --scheduler are for two folders of models")
                command(**given)
                return
            do_pairs(
                (one, other), given, batch, lambda *pair: {first: pair[0], second: pair[1]}, suffix
            )

        return batch_options()(call)

    return add


def do_pairs(
    folders: tuple[Path, Path],
    given: Json,
    batch: Batch,
    params: Callable[[Path, Path | None], Json],
    suffix: str = "",
) -> None:
    """Do the command that was called for each pair of models of two folders.

    Args:
        folders: The folders.
        given: What else the command is given.
        batch: How they are worked on.
        params: Makes of a pair what the command is given.
        suffix: The ending of what -o names.
    """
    pairs = pair_models(*folders)
    found = [one for one, _ in pairs]
    outputs = _outputs(found, given.get("output"), suffix) if "output" in given else {}
    asked = []
    for each, partner in pairs:
        problem = each.problem
        if partner is None and not problem:
            problem = f"{each.path}: {folders[1]} has no model of this name"
        pair = params(each.path, partner.path if partner else None) | _output_of(each, outputs)
        asked.append((each._replace(problem=problem), pair))
    _do_all(asked, given, batch)


def _outputs(found: Iterable[ModelFile], folder: Path | None, suffix: str) -> dict[Path, Path]:
    """Return where the results go, if -o names a folder."""
    if folder is None:
        return {}
    if not folder.is_dir() and (folder.suffix or folder.exists()):
        raise UsageError(
            f"-o {folder}: there are several models, so it must be a folder",
            hint=f"pass -o {folder.with_suffix('')}",
        )
    return {each.path: (folder / each.place).with_suffix(suffix) for each in found}


def _output_of(each: ModelFile, outputs: dict[Path, Path]) -> Json:
    return {"output": outputs[each.path]} if outputs else {}


def _do_all(
    asked: Sequence[tuple[ModelFile, Json]], given: Json, batch: Batch, result: str = ""
) -> None:
    """Do a command for all models, and report them."""
    from secrets import token_hex  # noqa: PLC0415  # one model needs none

    context = click.get_current_context()
    name = str(context.info_name)
    forms = {key: path for key, path in given.items() if key.startswith("report_")}
    printing = options.Printing(
        given["json_path"],
        given["quiet"],
        given["verbose"],
        {key.removeprefix("report_"): path for key, path in forms.items() if path is not None},
    )
    printing.check(*(each.path for each, _ in asked))
    if batch.resume and given.get("in_place"):
        raise UsageError(
            "--in-place and --resume contradict each other: what is done is not seen any more",
            hint="name a folder with -o",
        )
    for key, option in _OF_ONE_MODEL.items():
        if given.get(key):
            raise UsageError(f"{option} is for one model, and there are {len(asked)}")
    alone: Json = {"jobs": None, "resume": False, "scheduler": None, "quiet": True}
    alone["json_path"] = None if printing.json_path is None else "-"
    common = {**given, **dict.fromkeys(forms), **alone}
    rows: list[ModelTask | ModelAnswer] = []
    run = token_hex(8)
    taken: dict[Path, Path] = {}
    for each, own in asked:
        label, output = str(each.path), own.get("output")
        problem = each.problem
        if output in taken and not problem:
            problem = f"{label}: its result would replace that of {taken[output]}"
        if problem:
            rows.append(ModelAnswer(label=label, status="error", messages=(problem,)))
            continue
        if output is not None:
            taken[output] = each.path
            output.parent.mkdir(parents=True, exist_ok=True)
        params = {**common, **own}
        rows.append(
            ModelTask(
                label=label,
                model=each.path,
                command=name,
                params=params,
                folder=Path.cwd(),
                run=run,
                writes=_written(each.path, params, result),
                with_record=printing.json_path is not None,
                with_text=printing.verbose or name == "explain",
            )
        )
    tasks = [row for row in rows if isinstance(row, ModelTask)]
    with printing.progress() as tell:
        known = {task.label: _known(task) if batch.resume else None for task in tasks}
        left = [task for task in tasks if known[task.label] is None]
        if len(left) < len(tasks) and not printing.quiet:
            done = len(tasks) - len(left)
            say(f"dpl: {done} of {counted(len(tasks), 'model')} were done before", err=True)
        answers = known | (batch.run(do_task, left, tell) if left else {})
    forget_oldest()
    said = [row if isinstance(row, ModelAnswer) else answers[row.label] for row in rows]
    conclude(printing, f"dpl {name}", [answer for answer in said if answer is not None])


def _written(model: Path, params: Json, result: str) -> tuple[Path, ...]:
    """Return what a command may write for a model."""
    output = params.get("output")
    if not result:
        return () if output is None else (output.absolute(),)
    if params.get("in_place"):
        return (model.absolute(),)
    return ((output or pipeline.default_output(model, result)).absolute(),)


def _known(task: ModelTask) -> ModelAnswer | None:
    """Return the answer of an earlier run, if what it wrote is still there."""
    known = read_answer(task.key(reads=False))
    answer = None if known is None else ModelAnswer(**known["answer"])
    return answer if answer is not None and are_there(answer.files) else None


def conclude(printing: options.Printing, command: str, answers: Sequence[ModelAnswer]) -> None:
    """Report many models; say what is wrong with any, and end with the worst exit code."""
    from dplcli.report.layout import Group  # noqa: PLC0415  # loads rich
    from dplcli.report.many import complaints, many_document  # noqa: PLC0415

    document = many_document(command, answers)
    errors = [answer for answer in answers if answer.status == "error"]
    times = Counter(tuple(answer.messages) for answer in errors)
    is_one_problem = len(errors) == len(answers) > 1 == len(times)
    printing.publish(replace(document, text=Group()) if is_one_problem else document)
    for answer in answers:
        count = times.pop(tuple(answer.messages), 0) if answer.status == "error" else 1
        prefix = "error: " if answer.status == "error" else ""
        alike = [f"{line} ({count} models)" for line in answer.messages]
        if answer.status != "yes" and count:
            for line in alike if count > 1 else complaints(answer):
                say(f"dpl: {prefix}{line}", err=True)
    for hint in dict.fromkeys(answer.hint for answer in answers if answer.hint):
        say(f"dpl: hint: {hint}", err=True)
    statuses = {answer.status for answer in answers}
    if statuses != {"yes"}:
        raise click.exceptions.Exit(EXIT_COULD_NOT if "error" in statuses else EXIT_NO)
