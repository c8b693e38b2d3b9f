"""``dpl explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api
from dplcli.cli import completion, many, options

if TYPE_CHECKING:
    from pathlib import Path


POLICIES = options.policy_options("escape", "order")


@click.command("explain", cls=options.GroupedCommand)
@many.takes_models()
@options.catalog_options
@options.allow_code_option
@POLICIES
@options.option(
    options.RULES,
    "--rule",
    "only",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.rules,
    help="Explain this rule only; the others still take their nodes. Repeatable.",
)
@options.option(
    options.RULES,
    "--node",
    metavar="NAME",
    help="Ask about one node, found by its name or by an output's, as the root of a match.",
)
@options.printing_options("Show the whole pattern of every nearest miss.", "html")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    allow_code: bool,
    only: tuple[str, ...],
    node: str | None,
    printing: options.Printing,
    **policies: tuple[str, ...],
) -> None:
    """Say why patterns match where they do in MODEL, and why not elsewhere.

    Per rule: how many nodes were tried, matched, refused and at which stage, and the attempt that
    got furthest: which part of the pattern failed at which node, what was expected and found.
    With --node: the same for one node, as a tree. The page of --html draws the patterns beside the
    model, with what fits and what does not.
    """
    printing.check(model, *patterns)
    with printing.progress() as say:
        say(f"explaining {model.name}")
        result = api.explain(
            model,
            patterns=patterns,
            target=targets,
            rule=only,
            node=node,
            allow_code=allow_code,
            **POLICIES.take(policies),
        )
    printing.conclude(result)
