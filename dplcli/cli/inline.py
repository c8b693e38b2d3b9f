"""``dpl inline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.main import answer_no
from dplcli.cli.options import (
    WRITING,
    GroupedCommand,
    check_json_path,
    choose_output,
    emit,
    input_code_option,
    listed,
    model_argument,
    option,
    output_options,
    report_options,
    take_reports,
    take_verification,
    verify_options,
    write_options,
)
from dplcli.cli.printing import progress
from dplcli.errors import UsageError
from dplcli.report.document import result_document
from dplcli.report.layout import Group, Text
from dplcli.report.rewrite import call_list, inline_record, inline_summary, inline_table
from dplcli.report.tables import check_failure, ending, whereabouts

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes import InlineOutcome
    from dplcli.report.document import Document
    from dplcli.report.layout import Part


_CHOICE = "What is inlined"


@click.command("inline", cls=GroupedCommand)
@model_argument
@option(
    _CHOICE,
    "--target",
    "targets",
    multiple=True,
    metavar="NAMES",
    callback=listed,
    help="Inline the functions of this domain, such as dnnl, or of several, such as dnnl,cublas, "
    "whoever wrote them. Repeatable.",
)
@option(
    _CHOICE,
    "--function",
    "functions",
    multiple=True,
    metavar="DOMAIN::NAME",
    help="Inline all calls of this function. Repeatable.",
)
@option(
    _CHOICE,
    "--call",
    "calls",
    multiple=True,
    metavar="NAME",
    help="Inline one call, found by its name or by an output's. Repeatable.",
)
@option(
    _CHOICE,
    "--all-functions",
    is_flag=True,
    help="Inline every function, also those that dpl did not write.",
)
@write_options("inlined")
@verify_options
@input_code_option
@report_options("junit", "markdown", "html")
@output_options("Also list every call, and say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    targets: tuple[str, ...],
    functions: tuple[str, ...],
    calls: tuple[str, ...],
    all_functions: bool,
    output: Path | None,
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401  # those of write_, verify_ and report_options
) -> None:
    """Put functions of MODEL back in the place of their calls.

    Without a choice, all functions that dpl partition wrote: the nodes come back under the names
    and in the order that they had. The result is checked and compared with MODEL before it is
    written.
    """
    choice = _choice(targets, functions, calls, everything=all_functions)
    reports, writing = take_reports(options), WRITING.take(options)
    output = choose_output(model, output, "inlined", writing)
    check_json_path(json_path, model, output)
    reports.check(json_path, model, output)
    settings = pipeline.WriteSettings(
        **writing, verification=take_verification(options, allow_code=allow_code)
    )
    with progress(quiet=quiet, verbose=verbose) as say:
        outcome = pipeline.inline(
            model, output=output, choice=choice, settings=settings, progress=say
        )
    reports.write(_document(outcome))
    emit(
        _report(outcome, verify=settings.verify, verbose=verbose),
        lambda: inline_record(
            outcome.label,
            outcome.inlining,
            outcome.nodes,
            outcome.verification,
            objection=outcome.verdict.objection,
        ),
        json_path,
        quiet=quiet or reports.takes_stdout,
    )
    if not outcome.is_success:
        answer_no([*check_failure(outcome.verdict), whereabouts(outcome.verdict)])


def _document(outcome: InlineOutcome) -> Document:
    before, after = outcome.nodes
    return result_document(
        "dpl inline",
        outcome.label,
        outcome.verification,
        ok=outcome.is_success,
        failures=check_failure(outcome.verdict),
        notes=outcome.notes,
        facts=[
            ("nodes before", f"{before:,}"),
            ("nodes after", f"{after:,}"),
            ("calls inlined", f"{len(outcome.inlining.calls):,}"),
        ],
    )


def _choice(
    targets: tuple[str, ...],
    functions: tuple[str, ...],
    calls: tuple[str, ...],
    *,
    everything: bool,
) -> pipeline.InlineChoice:
    given = [
        name
        for name, chosen in (
            ("--all-functions", everything),
            ("--call", calls),
            ("--function", functions),
            ("--target", targets),
        )
        if chosen
    ]
    if len(given) > 1 and given[0] in {"--all-functions", "--call"}:
        raise UsageError(
            f"{given[0]} and {given[1]} contradict each other", hint="pass one of them"
        )
    return pipeline.InlineChoice(targets, functions, calls, everything)


def _report(outcome: InlineOutcome, *, verify: bool, verbose: bool) -> Part:
    inlining = outcome.inlining
    parts: list[Part] = [inline_table(inlining)]
    if not inlining.functions and outcome.functions:
        what = "1 function" if outcome.functions == 1 else f"{outcome.functions} functions"
        parts = [Text(f"dpl wrote none of the model's {what}; --all-functions inlines them.")]
    if verbose and (inlining.calls or inlining.refused):
        parts += [Text(), call_list(inlining)]
    if inlining.functions:
        parts += [Text(), inline_summary(inlining, outcome.nodes)]
    parts += [Text(f"note: {note}", style="yellow") for note in outcome.notes]
    parts += ending(outcome.verdict, is_changed=outcome.is_changed, is_verified=verify)
    return Group(*parts)
