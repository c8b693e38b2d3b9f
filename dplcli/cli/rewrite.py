"""``dpl rewrite``, and the options and reports that ``dpl apply`` shares with it."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    allow_code_option,
    catalog_options,
    check_json_path,
    choose_output,
    conclude,
    expect_option,
    model_argument,
    output_options,
    report_options,
    take_reports,
    verify_options,
    verify_settings,
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
class RunOptions:
    """What the shared options were given, but for those of the verification.

    Attributes:
        output: Where to write the result; None for the default.
        in_place: Whether to replace the model.
        dry_run: Whether neither to write nor to verify.
        trace: Whether to print what happens.
        trace_json: Where to write it as JSON; None for nowhere.
        verify_each: Whether to check after every turn.
        max_growth: By how many percent the model may grow; None for the default.
        no_verify: Whether to leave the check out.
        keep_failed: Whether to keep a result that fails.
        json_path: Where to write the result as JSON; None for nowhere.
        quiet: Whether to print only errors.
        verbose: Whether to list everything, and say what is being done.
    """

    output: Path | None
    in_place: bool
    dry_run: bool
    trace: bool
    trace_json: str | None
    verify_each: bool
    max_growth: float | None
    no_verify: bool
    keep_failed: bool
    json_path: str | None
    quiet: bool
    verbose: bool


def run_options(command: Command) -> Command:
    """Add the options that say how to write, check and report a result."""
    options = [
        click.option(
            "--dry-run", is_flag=True, help="Show what would be done; verify and write no model."
        ),
        click.option(
            "--trace", is_flag=True, help="Print every turn of every rule, applied or refused."
        ),
        click.option(
            "--trace-json",
            metavar="FILE",
            help="Write the same as JSON; - is standard output, instead of the tables.",
        ),
        click.option(
            "--verify-each",
            is_flag=True,
            help="Check the model after every turn of a rule, and name the one that breaks it.",
        ),
        click.option(
            "--max-growth",
            callback=_percent,
            metavar="PERCENT",
            help="By how much the model, its external data included, may grow. Default: 5, and "
            "16 kB in any case.",
        ),
    ]
    command = output_options(
        "Also list every application and refusal, and say what is being done."
    )(command)
    command = report_options()(command)
    command = verify_options(command)
    for option in reversed(options):
        command = option(command)
    return write_options("rewritten")(command)


def carry_out(
    model: Path,
    job: Job,
    options: dict[str, Any],
    *,
    settings: pipeline.RewriteSettings | None = None,
    reads: Iterable[Path | str] = (),
) -> None:
    """Do *job*, report it, and end with 1 if the answer is no.

    Args:
        model: The model.
        job: Takes where to write, how, whom to tell of progress, and what to fill with a trace.
        options: What the options of :func:`run_options` were given.
        settings: How to go about it, but for what these options say.
        reads: Other files of the command, which no report may replace.
    """
    reads = tuple(reads)
    names = RunOptions.__dataclass_fields__.keys()
    run = RunOptions(**{name: value for name, value in options.items() if name in names})
    verification = {name: value for name, value in options.items() if name not in names}
    reports = take_reports(verification)
    output = choose_output(model, run.output, "rewritten", in_place=run.in_place)
    settings = replace(
        settings or pipeline.RewriteSettings(),
        verify=not run.no_verify,
        verification=verify_settings(**verification),
        in_place=run.in_place,
        keep_failed=run.keep_failed,
        verify_each=run.verify_each,
        max_growth=run.max_growth,
        dry_run=run.dry_run,
    )
    _check_reports(run, reports, model, output, settings.plan, *reads)
    with _traced(run, model.name) as trace, progress(quiet=run.quiet, verbose=run.verbose) as say:
        outcome = job(output, settings, say, trace)
    document = rewrite_document(
        f"dpl {click.get_current_context().info_name}",
        outcome,
        catalogues=reads,
        is_verified=not run.no_verify,
        verbose=run.verbose,
    )
    quiet = run.quiet or run.trace_json == "-"
    conclude(document, run.json_path, quiet=quiet, reports=reports)


def _check_reports(run: RunOptions, reports: ReportFiles, *others: Path | str | None) -> None:
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
def _traced(run: RunOptions, label: str) -> Iterator[pipeline.Trace | None]:
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


def _write_trace(trace: pipeline.Trace, run: RunOptions, label: str) -> None:
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


@click.command("rewrite")
@model_argument
@catalog_options
@expect_option
@allow_code_option
@click.option(
    "--only",
    multiple=True,
    metavar="RULE[@NODE]",
    help="Try nothing else: this rule, everywhere or at one node, which is found by its name or an "
    "output's. Repeatable.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="RULE[@NODE]",
    help="Do not try this rule, or not at this node. Repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Stop after so many applications.",
)
@click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Raise the model to this opset before anything is matched.",
)
@click.option(
    "--plan",
    type=PATH,
    metavar="FILE",
    help="Write what is done as a list that can be edited, for dpl apply.",
)
@run_options
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    limit: int | None,
    opset: int | None,
    plan: Path | None,
    **options: Any,  # noqa: ANN401  # the options of run_options
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

    settings = pipeline.RewriteSettings(
        expectations=expectations, only=only, skip=skip, limit=limit, opset=opset, plan=plan
    )
    carry_out(model, job, options | {"allow_code": allow_code}, settings=settings, reads=patterns)
