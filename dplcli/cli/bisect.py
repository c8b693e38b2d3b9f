"""``dpl bisect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    RULES,
    GroupedCommand,
    allow_code_option,
    catalog_options,
    check_json_path,
    conclude,
    option,
    output_options,
    take_verification,
    verify_options,
)
from dplcli.cli.printing import progress
from dplcli.errors import UsageError
from dplcli.report.diff import models_document, reproduced_document, rules_document

if TYPE_CHECKING:
    from pathlib import Path


_TWO = 2
_FAULTS = "Faults"
_ALONE = "--reproduce DIR stands alone: all it needs is in the folder"


@click.command("bisect", cls=GroupedCommand)
@click.argument("models", type=PATH, nargs=-1, metavar="[MODEL | ORIGINAL CANDIDATE]")
@catalog_options
@option(
    RULES,
    "--by",
    "kind",
    type=click.Choice(["rewrite", "partition"]),
    help="What to do with the rules, if the catalogues have both kinds.",
)
@option(
    _FAULTS,
    "--output",
    "-o",
    type=PATH,
    metavar="DIR",
    help="A new folder for what reproduces each fault: a small model, its inputs, the rules, and a "
    "README with the command.",
)
@option(
    _FAULTS,
    "--most",
    type=click.IntRange(min=1),
    default=pipeline.MOST_CAUSES,
    show_default=True,
    metavar="N",
    help="Look for so many faults of rules at most.",
)
@option(
    _FAULTS,
    "--reproduce",
    type=PATH,
    metavar="DIR",
    help="Run a folder that -o wrote: exit code 1 if the fault is still there.",
)
@allow_code_option
@verify_options
@output_options("Say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    models: tuple[Path, ...],
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    kind: str | None,
    output: Path | None,
    most: int,
    reproduce: Path | None,
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **verification: Any,  # noqa: ANN401  # the options of verify_options
) -> None:
    """Find what makes a model compute something else.

    With catalogues: the smallest sets of applications of rules, or of partitions, that break MODEL.
    With two models: the first place where CANDIDATE leaves ORIGINAL, by what flows into it and
    never by name.

    Exits with 0 if there is nothing to find: the whole is equivalent; with 1 if something was
    found; with 2 if the original does not run.
    """
    check_json_path(json_path, *models, *patterns, output)
    source = pipeline.RuleSource(patterns, targets, allow_code=allow_code)
    _check(models, source, output, reproduce)
    settings = take_verification(verification, allow_code=allow_code)
    _check_settings(settings, reproduce)
    with progress(quiet=quiet, verbose=verbose) as say:
        if reproduce is not None:
            document = reproduced_document(pipeline.reproduce(reproduce, allow_code=allow_code))
        elif len(models) == _TWO:
            both = pipeline.bisect_models(*models, settings=settings, output=output, progress=say)
            document = models_document(both, verbose=verbose)
        else:
            found = pipeline.bisect_rules(
                models[0],
                source,
                kind=kind,
                settings=settings,
                output=output,
                most=most,
                progress=say,
            )
            document = rules_document(found, verbose=verbose)
    conclude(document, json_path, quiet=quiet)


def _check(
    models: tuple[Path, ...],
    source: pipeline.RuleSource,
    output: Path | None,
    reproduce: Path | None,
) -> None:
    """Refuse arguments that do not go together."""
    has_rules = bool(source.patterns or source.targets)
    if reproduce is not None:
        if models or has_rules or output is not None:
            raise UsageError(_ALONE)
        return
    if len(models) not in (1, _TWO):
        raise UsageError(f"{len(models)} models are named", hint="name one, with rules, or two")
    if len(models) == _TWO and has_rules:
        raise UsageError(
            "two models and rules are named", hint="leave the second model or the rules out"
        )
    if len(models) == 1 and not has_rules:
        raise UsageError(
            "one model is named and no rules",
            hint="pass --patterns CATALOGUE, or a second model to compare it with",
        )


def _check_settings(settings: pipeline.VerifySettings, reproduce: Path | None) -> None:
    """Refuse options that would change nothing."""
    if reproduce is not None and settings != pipeline.VerifySettings():
        raise UsageError(_ALONE)
    if settings.mutants or settings.min_power is not None:
        raise UsageError(
            "--mutants and --min-power measure a check; bisect looks for what one found",
            hint="dpl verify and the commands that write a model take them",
        )
