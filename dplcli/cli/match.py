"""``dpl match``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


POLICIES = options.policy_options("escape", "order")


@click.command("match", cls=options.GroupedCommand)
@many.takes_models()
@options.catalog_options
@options.expect_option
@options.allow_code_option
@POLICIES
@options.printing_options("Also list every match and refusal.", *options.EVERY_FORM)
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    printing: options.Printing,
    **policies: tuple[str, ...],
) -> None:
    """Show where patterns match in MODEL; nothing is changed.

    The matches are those that dpl partition would outline.
    """
    printing.check(model, *patterns)
    with printing.progress() as say:
        say(f"matching in {model.name}")
        result = api.match(
            model,
            patterns=patterns,
            target=targets,
            expect=expectations,
            allow_code=allow_code,
            hints=printing.wants_hints,
            **POLICIES.take(policies),
        )
    printing.conclude(result)
