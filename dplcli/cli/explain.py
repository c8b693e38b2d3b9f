"""``dpl explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import pipeline
from dplcli.cli.options import (
    RULES,
    GroupedCommand,
    allow_code_option,
    catalog_options,
    check_json_path,
    conclude,
    model_argument,
    option,
    output_options,
    policy_options,
)
from dplcli.cli.printing import progress
from dplcli.report.catalog import explain_document

if TYPE_CHECKING:
    from pathlib import Path


POLICIES = policy_options("escape", "order")


@click.command("explain", cls=GroupedCommand)
@model_argument
@catalog_options
@allow_code_option
@POLICIES
@option(
    RULES,
    "--rule",
    "only",
    multiple=True,
    metavar="NAME",
    help="Explain this rule only; the others still take their nodes. Repeatable.",
)
@option(
    RULES,
    "--node",
    metavar="NAME",
    help="Ask about one node, found by its name or by an output's, as the root of a match.",
)
@output_options("Show the whole pattern of every nearest miss.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    allow_code: bool,
    only: tuple[str, ...],
    node: str | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **policies: tuple[str, ...],
) -> None:
    """Say why patterns match where they do in MODEL, and why not elsewhere.

    Per rule: how many nodes were tried, matched, refused and at which stage, and the attempt that
    got furthest: which part of the pattern failed at which node, what was expected and found.
    With --node: the same for one node, as a tree.
    """
    check_json_path(json_path, model, *patterns)
    with progress(quiet=quiet, verbose=verbose) as say:
        say(f"explaining {model.name}")
        outcome = pipeline.explain(
            model,
            patterns=patterns,
            targets=targets,
            only=only,
            node=node,
            allow_code=allow_code,
            policies=pipeline.Policies(**POLICIES.take(policies)),
        )
    conclude(explain_document(outcome, verbose=verbose), json_path, quiet=quiet)
