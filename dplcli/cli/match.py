"""``dpl match``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import pipeline
from dplcli.cli.options import (
    GroupedCommand,
    allow_code_option,
    catalog_options,
    check_json_path,
    conclude,
    expect_option,
    model_argument,
    output_options,
    policy_options,
)
from dplcli.cli.printing import progress
from dplcli.report.partition import match_document

if TYPE_CHECKING:
    from pathlib import Path


POLICIES = policy_options("escape", "order")


@click.command("match", cls=GroupedCommand)
@model_argument
@catalog_options
@expect_option
@allow_code_option
@POLICIES
@output_options("Also list every match and refusal.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **policies: tuple[str, ...],
) -> None:
    """Show where patterns match in MODEL; nothing is changed.

    The matches are those that dpl partition would outline.
    """
    check_json_path(json_path, model, *patterns)
    with progress(quiet=quiet, verbose=verbose) as say:
        say(f"matching in {model.name}")
        outcome = pipeline.match(
            model,
            patterns=patterns,
            targets=targets,
            expectations=expectations,
            allow_code=allow_code,
            policies=pipeline.Policies(**POLICIES.take(policies)),
        )
    conclude(match_document(outcome, verbose=verbose), json_path, quiet=quiet)
