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
from dplcli.cli.verify_options import verify_options, verify_settings
from dplcli.errors import UsageError
from dplcli.report.tables import verification_report

if TYPE_CHECKING:
    from pathlib import Path


@click.command("verify")
@click.argument("original", type=PATH, required=False)
@click.argument("candidate", type=PATH, required=False)
@click.option(
    "--save-results",
    type=PATH,
    metavar="FILE",
    help="Write what both models gave to a numpy archive, to judge it again with --from.",
)
@click.option(
    "--from",
    "results",
    type=PATH,
    metavar="FILE",
    help="Judge saved results, with --rtol, --atol and --tolerance; no model is run.",
)
@verify_options
@output_options("Say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    original: Path | None,
    candidate: Path | None,
    results: Path | None,
    save_results: Path | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **verification: Any,  # noqa: ANN401  # the options of verify_options
) -> None:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Exits with 0 if every output of the candidate agrees with the original within the tolerance
    derived from its type and magnitude, at every optimisation level; else with 1.
    """
    check_json_path(json_path, original, candidate, results, save_results)
    settings = verify_settings(**verification, save_results=save_results)
    if results is not None:
        _check_offline(settings, [original, candidate, save_results])
        result = pipeline.judge_again(results, settings=settings)
    elif original is None or candidate is None:
        raise UsageError(
            "dpl verify needs ORIGINAL and CANDIDATE", hint="or --from with saved results"
        )
    else:
        _check_results_path(save_results, [original, candidate])
        with progress(quiet=quiet, verbose=verbose) as say:
            result = pipeline.verify(original, candidate, settings=settings, progress=say)
    emit(verification_report(result), result.to_json, json_path, quiet=quiet)
    if not result.accepted:
        raise click.exceptions.Exit(EXIT_NO)


def _check_offline(settings: pipeline.VerifySettings, files: list[Path | None]) -> None:
    """Refuse what saved results have no use for."""
    plain = pipeline.VerifySettings(
        rtol=settings.rtol, atol=settings.atol, tolerances=settings.tolerances
    )
    if settings != plain or any(file is not None for file in files):
        raise UsageError(
            "--from judges what was saved: no model is run",
            hint="only --rtol, --atol, --tolerance and where to report go with it",
        )


def _check_results_path(save_results: Path | None, models: list[Path]) -> None:
    """Refuse early where results cannot be, or must not be, written."""
    if save_results is None:
        return
    folder = save_results.parent
    if save_results.is_dir() or not folder.is_dir():
        raise UsageError(f"--save-results {save_results}: is not a file in a folder that exists")
    if any(model.exists() and save_results.resolve() == model.resolve() for model in models):
        raise UsageError(f"--save-results {save_results}: is a model of this command")
