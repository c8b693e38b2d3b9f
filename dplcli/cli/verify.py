"""``dpl verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.funnel import EXIT_NO
from dplcli.cli.options import (
    PATH,
    check_json_path,
    emit,
    output_options,
    progress,
)
from dplcli.cli.report_options import report_options, take_reports
from dplcli.cli.verify_options import verify_options, verify_settings
from dplcli.report.document import verification_document
from dplcli.report.tables import verification_report

if TYPE_CHECKING:
    from pathlib import Path


@click.command("verify")
@click.argument("original", type=PATH)
@click.argument("candidate", type=PATH)
@verify_options
@report_options()
@output_options("Say what is being done.")
def command(
    *,
    original: Path,
    candidate: Path,
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
    check_json_path(json_path, original, candidate)
    reports.check(json_path, original, candidate)
    settings = verify_settings(**verification)
    with progress(quiet=quiet, verbose=verbose) as say:
        result = pipeline.verify(original, candidate, settings=settings, progress=say)
    reports.write(verification_document(f"{candidate.name} against {original.name}", result))
    is_silent = quiet or reports.takes_stdout
    emit(verification_report(result), result.to_json, json_path, quiet=is_silent)
    if not result.equivalent:
        raise click.exceptions.Exit(EXIT_NO)
