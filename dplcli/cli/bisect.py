"""``dpl bisect``."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dplcli import api, pipeline
from dplcli.batch.models import is_one_model
from dplcli.cli import many, options
from dplcli.errors import UsageError
from dplcli.report.diff import models_document, reproduced_document, rules_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_TWO = 2
_FAULTS = "Faults"
_ALONE = "--reproduce DIR stands alone: all it needs is in the folder"


def _takes_many(command: Callable[..., None]) -> Callable[..., None]:
    """Take many models, if there are rules to try on each, or else two folders."""

    @wraps(command)
    def call(
        *,
        models: tuple[Path, ...],
        jobs: int | None,
        resume: bool,
        scheduler: str | None,
        **given: Any,  # noqa: ANN401  # what click gives
    ) -> None:
        batch = many.Batch(jobs, scheduler, resume)
        has_rules = bool(given["patterns"] or given["targets"])
        is_one = [is_one_model([path]) for path in models]
        is_apart = given["reproduce"] is not None or not models
        if has_rules and not is_apart and (is_one != [True] or batch.is_wanted):
            many.do_each(models, given, batch, suffix="")
        elif not has_rules and not is_apart and is_one == [False, False]:
            many.do_pairs((models[0], models[1]), given, batch, lambda *pair: {"models": pair})
        elif batch.is_wanted:
            raise UsageError("--resume and --scheduler are for many models")
        else:
            command(models=models, **given)

    return many.batch_options()(call)


@click.command("bisect", cls=options.GroupedCommand)
@click.argument("models", type=options.PATH, nargs=-1, metavar="[MODEL... | ORIGINAL CANDIDATE]")
@_takes_many
@options.catalog_options
@options.option(
    options.RULES,
    "--by",
    "kind",
    type=click.Choice(["rewrite", "partition"]),
    help="What to do with the rules, if the catalogues have both kinds.",
)
@options.option(
    _FAULTS,
    "--output",
    "-o",
    type=options.PATH,
    metavar="DIR",
    help="A new folder for what reproduces each fault: a small model, its inputs, the rules, and a "
    "README with the command.",
)
@options.option(
    _FAULTS,
    "--most",
    type=click.IntRange(min=1),
    default=pipeline.MOST_CAUSES,
    show_default=True,
    metavar="N",
    help="Look for so many faults of rules at most.",
)
@options.option(
    _FAULTS,
    "--reproduce",
    type=options.PATH,
    metavar="DIR",
    help="Run a folder that -o wrote: exit code 1 if the fault is still there.",
)
@options.allow_code_option
@options.verify_options
@options.printing_options("Say what is being done.", *options.EVERY_FORM)
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
    printing: options.Printing,
    **verification: Any,  # noqa: ANN401  # those of verify_options
) -> None:
    """Find what makes a model compute something else.

    With catalogues: the smallest sets of applications of rules, or of partitions, that break MODEL,
    or each of many. With two models, or two folders of them: the first place where CANDIDATE leaves
    ORIGINAL, by what flows into it and never by name.

    Exits with 0 if there is nothing to find: the whole is equivalent; with 1 if something was
    found; with 2 if the original does not run.
    """
    printing.check(*models, *patterns, output)
    source = pipeline.RuleSource(patterns, targets, allow_code=allow_code)
    _check(models, source, output, reproduce)
    settings = api.verify_settings(allow_code=allow_code, **options.take_verification(verification))
    _check_settings(settings, reproduce)
    with printing.progress() as say:
        if reproduce is not None:
            document = reproduced_document(pipeline.reproduce(reproduce, allow_code=allow_code))
        elif len(models) == _TWO:
            both = pipeline.bisect_models(*models, settings=settings, output=output, progress=say)
            document = models_document(both, files=models, verbose=printing.verbose)
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
            document = rules_document(
                found, file=models[0], catalogs=patterns, verbose=printing.verbose
            )
    printing.conclude(document)


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
