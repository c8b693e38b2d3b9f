"""``dpl rewrite``, and the options and reports that ``dpl apply`` shares with it."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    PRINTING,
    WRITING,
    GroupedCommand,
    SettingsGroup,
    allow_code_option,
    catalog_options,
    check_json_path,
    choose_output,
    conclude,
    expect_option,
    model_argument,
    option,
    output_options,
    report_options,
    setting,
    take_reports,
    take_verification,
    verify_options,
    write_options,
)
from dplcli.cli.printing import progress, say, write
from dplcli.errors import DplError, UsageError
from dplcli.escaping import json_text
from dplcli.report.rewrite import rewrite_document, trace_lines, trace_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dplcli.cli.options import ReportFiles
    from dplcli.outcomes import RewriteOutcome

    Command = TypeVar("Command", bound=Callable[..., Any])

    Job = Callable[
        [Path, pipeline.RewriteSettings, Callable[[str], None], pipeline.Trace | None],
        RewriteOutcome,
    ]


# What ``dpl rewrite`` and ``dpl apply`` have in common: options, and how they report.


def _percent(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read ``5`` or ``5%``."""
    if value is None:
        return None
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number of percent.", ctx, param)
    return number


@dataclass(frozen=True)
class _Shown:
    """What is shown of a run, and where.

    Attributes:
        trace: Whether to print what happens.
        trace_json: Where to write it as JSON; None for nowhere.
        json_path: Where to write the result as JSON; None for nowhere.
        quiet: Whether to print only errors.
        verbose: Whether to list everything, and say what is being done.
    """

    trace: bool
    trace_json: str | None
    json_path: str | None
    quiet: bool
    verbose: bool


RUN = SettingsGroup(
    "The run",
    setting(
        "dry_run",
        "--dry-run",
        is_flag=True,
        help="Show what would be done; verify and write no model.",
    ),
    setting(
        "verify_each",
        "--verify-each",
        is_flag=True,
        help="Check the model after every turn of a rule, and name the one that breaks it.",
    ),
    setting(
        "max_growth",
        "--max-growth",
        callback=_percent,
        metavar="PERCENT",
        help="By how much the model, its external data included, may grow. Default: 5, and "
        "16 kB in any case.",
    ),
)


def run_options(command: Command) -> Command:
    """Add the options that say how to write, check and report a result."""
    command = output_options(
        "Also list every application and refusal, and say what is being done."
    )(command)
    command = option(
        PRINTING,
        "--trace-json",
        metavar="FILE",
        help="Write the same as JSON; - is standard output, instead of the tables.",
    )(command)
    command = option(
        PRINTING,
        "--trace",
        is_flag=True,
        help="Print every turn of every rule, applied or refused.",
    )(command)
    command = verify_options(report_options()(command))
    return write_options("rewritten")(RUN(command))


def carry_out(  # noqa: PLR0913  # what the commands hand over
    model: Path,
    job: Job,
    options: dict[str, Any],
    *,
    allow_code: bool,
    settings: pipeline.RewriteSettings | None = None,
    reads: Iterable[Path | str] = (),
) -> None:
    """Do *job*, report it, and end with 1 if the answer is no.

    Args:
        model: The model.
        job: Takes where to write, how, whom to tell of progress, and what to fill with a trace.
        options: What the options of :func:`run_options` were given.
        allow_code: Whether inputs may be made by a Python function.
        settings: How to go about it, but for what these options say.
        reads: Other files of the command, which no report may replace.
    """
    reads = tuple(reads)
    shown = _Shown(**{field.name: options.pop(field.name) for field in fields(_Shown)})
    reports, writing = take_reports(options), WRITING.take(options)
    output = choose_output(model, options.pop("output"), "rewritten", writing)
    settings = replace(
        settings or pipeline.RewriteSettings(),
        **writing,
        **RUN.take(options),
        verification=take_verification(options, allow_code=allow_code),
    )
    _check_reports(shown, reports, model, output, settings.plan, *reads)
    with (
        _traced(shown, model.name) as trace,
        progress(quiet=shown.quiet, verbose=shown.verbose) as say,
    ):
        outcome = job(output, settings, say, trace)
    document = rewrite_document(
        f"dpl {click.get_current_context().info_name}",
        outcome,
        catalogs=reads,
        is_verified=settings.verify,
        verbose=shown.verbose,
    )
    quiet = shown.quiet or shown.trace_json == "-"
    conclude(document, shown.json_path, quiet=quiet, reports=reports)


def _check_reports(run: _Shown, reports: ReportFiles, *others: Path | str | None) -> None:
    """Refuse reports that cannot be written, or that would take each other's place."""
    shown = {
        "--json -": run.json_path == "-",
        "--trace-json -": run.trace_json == "-",
        "--trace": run.trace,
    }
    shown |= {f"--{form} -": path == "-" for form, path in reports.wanted.items()}
    wanted = [option for option, given in shown.items() if given]
    if len(wanted) > 1:
        raise UsageError(
            f"{wanted[0]} and {wanted[1]} both want standard output", hint="name a file for one"
        )
    check_json_path(run.json_path, *others)
    json_file = None if run.json_path == "-" else run.json_path
    check_json_path(run.trace_json, json_file, *others, option="--trace-json")
    trace_file = None if run.trace_json == "-" else run.trace_json
    reports.check(run.json_path, trace_file, *others)


@contextmanager
def _traced(run: _Shown, label: str) -> Iterator[pipeline.Trace | None]:
    """Report what happened, also where it ended with an error."""
    if not run.trace and run.trace_json is None:
        yield None
        return
    trace = pipeline.Trace()
    try:
        yield trace
    except DplError:
        if trace.turns:
            _write_trace(trace, run, label)
        raise
    _write_trace(trace, run, label)


def _write_trace(trace: pipeline.Trace, run: _Shown, label: str) -> None:
    if run.trace_json is not None:
        text = json_text(trace_record(trace, label))
        if run.trace_json == "-":
            write(text)
        else:
            pipeline.write_text(Path(run.trace_json), text, "--trace-json")
    if run.trace and not run.quiet:
        for line in trace_lines(trace):
            say(line)
        say()


# ``dpl rewrite``.


CHOICE = SettingsGroup(
    "What is applied",
    setting(
        "only",
        "--only",
        multiple=True,
        metavar="RULE[@NODE]",
        help="Try nothing else: this rule, everywhere or at one node, which is found by its name "
        "or an output's. Repeatable.",
    ),
    setting(
        "skip",
        "--skip",
        multiple=True,
        metavar="RULE[@NODE]",
        help="Do not try this rule, or not at this node. Repeatable.",
    ),
    setting(
        "limit",
        "--limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="Stop after so many applications.",
    ),
    setting(
        "opset",
        "--opset",
        type=click.IntRange(min=1),
        metavar="N",
        help="Raise the model to this opset before anything is matched.",
    ),
    setting(
        "plan",
        "--plan",
        type=PATH,
        metavar="FILE",
        help="Write what is done as a list that can be edited, for dpl apply.",
    ),
)


@click.command("rewrite", cls=GroupedCommand)
@model_argument
@catalog_options
@expect_option
@allow_code_option
@CHOICE
@run_options
def command(  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    **options: Any,  # noqa: ANN401  # those of run_options, and what is applied
) -> None:
    """Replace subgraphs of MODEL by the rewrites of catalogues, until none matches.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """

    def job(
        output: Path,
        settings: pipeline.RewriteSettings,
        say: Callable[[str], None],
        trace: pipeline.Trace | None,
    ) -> RewriteOutcome:
        return pipeline.rewrite(
            model,
            output=output,
            patterns=patterns,
            targets=targets,
            settings=settings,
            allow_code=allow_code,
            progress=say,
            trace=trace,
        )

    settings = pipeline.RewriteSettings(expectations=expectations, **CHOICE.take(options))
    carry_out(model, job, options, allow_code=allow_code, settings=settings, reads=patterns)
