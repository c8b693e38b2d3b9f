"""``dpl inline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.options import (
    WRITING,
    GroupedCommand,
    check_json_path,
    choose_output,
    conclude,
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
from dplcli.report.rewrite import inline_document

if TYPE_CHECKING:
    from pathlib import Path


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
    document = inline_document(outcome, is_verified=settings.verify, verbose=verbose)
    conclude(document, json_path, quiet=quiet, reports=reports)


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
