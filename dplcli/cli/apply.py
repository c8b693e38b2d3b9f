"""``dpl apply``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options
from dplcli.cli.rewrite import carry_out, run_options

if TYPE_CHECKING:
    from pathlib import Path


_PLAN = "The plan"


@click.command("apply", cls=options.GroupedCommand)
@click.argument("plan", type=options.PATH)
@many.takes_models("rewritten")
@options.option(
    options.RULES,
    "--patterns",
    "-p",
    multiple=True,
    metavar="CATALOGUE",
    help="Take the rules from this catalogue instead of those that the plan names. Repeatable.",
)
@options.allow_code_option
@options.option(
    _PLAN, "--force", is_flag=True, help="Go on with a model that the plan was not made for."
)
@options.option(
    _PLAN, "--skip-missing", is_flag=True, help="Leave out what does not fit, instead of giving up."
)
@run_options
def command(  # noqa: PLR0913  # one parameter per option
    *,
    plan: Path,
    model: Path,
    patterns: tuple[str, ...],
    allow_code: bool,
    force: bool,
    skip_missing: bool,
    **given: Any,  # noqa: ANN401  # those of run_options
) -> None:
    """Do to MODEL what PLAN lists, which dpl rewrite --plan wrote and somebody may have edited.

    Each entry is one application of a rule; they are done in the order of the plan, and nothing
    else is. An entry that does not fit is the answer no: exit code 1, and nothing is written.
    """
    job = partial(api.apply, plan, model, patterns=patterns, force=force, skip_missing=skip_missing)
    chosen = {"allow_code": allow_code}
    carry_out(model, job, given, chosen=chosen, reads=(plan, *patterns))
