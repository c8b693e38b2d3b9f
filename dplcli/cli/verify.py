"""``dpl verify``, also of the values inside two models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    RESULTS,
    GroupedCommand,
    check_json_path,
    choose_subject,
    conclude,
    input_code_option,
    option,
    output_options,
    report_options,
    take_reports,
    take_verification,
    verify_options,
)
from dplcli.cli.printing import progress
from dplcli.errors import VerificationError
from dplcli.report.document import verification_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = TypeVar("Command", bound=Callable[..., Any])


# Options that look at the values inside two models.


_INSIDE = "The values inside"


def layer_options(command: Command) -> Command:
    """Add --layers and --max-memory."""
    command = option(
        _INSIDE,
        "--max-memory",
        type=click.IntRange(min=1),
        default=pipeline.MEMORY_CAP,
        show_default=True,
        metavar="MB",
        help="With --layers: hold so many megabytes of values of each model at once.",
    )(command)
    return option(
        _INSIDE,
        "--layers",
        is_flag=True,
        help="Compare the values inside, too: a row for every value that both models compute, "
        "found by what dpl noted when it changed the model, by dataflow and by numbers.",
    )(command)


def look_inside(
    original: Path,
    candidate: Path,
    result: pipeline.VerificationResult,
    settings: pipeline.VerifySettings,
    cap: int,
) -> pipeline.Layers | str:
    """Compare what is inside two models, for the seed that is worst; or say why it cannot be."""
    if result.reasons and not result.outputs:
        return "nothing inside was compared: the candidate cannot be run on the same inputs"
    wrong = [output for output in result.outputs if not output.ok]
    seed = wrong[0].seed if wrong else None
    try:
        return pipeline.compare_layers(original, candidate, settings, seed=seed, cap=cap)
    except VerificationError as error:
        return error.message


# ``dpl verify``.


@click.command("verify", cls=GroupedCommand)
@click.argument("original", type=PATH, required=False)
@click.argument("candidate", type=PATH, required=False)
@RESULTS
@layer_options
@verify_options
@input_code_option
@report_options()
@output_options("Say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    original: Path | None,
    candidate: Path | None,
    layers: bool,
    max_memory: int,
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401  # those of results_, verify_ and report_options
) -> None:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Exits with 0 if every output of the candidate agrees with the original within the tolerance
    derived from its type and magnitude, at every optimisation level; else with 1.
    """
    reports, results = take_reports(options), RESULTS.take(options)
    files = (original, candidate, *results.values())
    check_json_path(json_path, *files)
    reports.check(json_path, *files)
    save_results = results.pop("save_results", None)
    settings = take_verification(options, allow_code=allow_code, save_results=save_results)
    subject = choose_subject((original, candidate), settings, layers=layers, **results)
    inside = None
    with progress(quiet=quiet, verbose=verbose) as say:
        result = subject.compare(settings, say)
        if layers and subject.original is not None and subject.candidate is not None:
            inside = look_inside(subject.original, subject.candidate, result, settings, max_memory)
    document = verification_document(subject.title, result, inside)
    conclude(document, json_path, quiet=quiet, reports=reports)
