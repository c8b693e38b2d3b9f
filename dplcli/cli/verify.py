"""``dpl verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli.cli.funnel import EXIT_NO
from dplcli.cli.layer_options import layer_options, look_inside, with_layers
from dplcli.cli.options import (
    PATH,
    check_json_path,
    emit,
    output_options,
)
from dplcli.cli.printing import progress
from dplcli.cli.report_options import report_options, take_reports
from dplcli.cli.results_options import choose_subject, results_options
from dplcli.cli.verify_options import input_code_option, verify_options, verify_settings
from dplcli.report.document import verification_document
from dplcli.report.tables import verification_report

if TYPE_CHECKING:
    from pathlib import Path


@click.command("verify")
@click.argument("original", type=PATH, required=False)
@click.argument("candidate", type=PATH, required=False)
@results_options
@layer_options
@verify_options
@input_code_option
@report_options()
@output_options("Say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    original: Path | None,
    candidate: Path | None,
    judged: Path | None,
    against: Path | None,
    save_results: Path | None,
    layers: bool,
    max_memory: int,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **verification: Any,  # noqa: ANN401  # those of verify_options and report_options
) -> None:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Exits with 0 if every output of the candidate agrees with the original within the tolerance
    derived from its type and magnitude, at every optimisation level; else with 1.
    """
    reports = take_reports(verification)
    files = (original, candidate, judged, against, save_results)
    check_json_path(json_path, *files)
    reports.check(json_path, *files)
    settings = verify_settings(**verification, save_results=save_results)
    subject = choose_subject((original, candidate), judged, against, settings, layers=layers)
    inside = None
    with progress(quiet=quiet, verbose=verbose) as say:
        result = subject.compare(settings, say)
        if layers and subject.original is not None and subject.candidate is not None:
            inside = look_inside(subject.original, subject.candidate, result, settings, max_memory)
    layers_found = None if isinstance(inside, str) else inside
    reports.write(verification_document(subject.title, result, layers_found))
    is_silent = quiet or reports.takes_stdout
    table, record = with_layers(verification_report(result), result.to_json, inside)
    emit(table, record, json_path, quiet=is_silent)
    if not result.accepted:
        raise click.exceptions.Exit(EXIT_NO)
