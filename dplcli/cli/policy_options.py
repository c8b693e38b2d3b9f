"""Options that override the policies of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])

_HELP = {
    "constants": "Which constants go into the functions' bodies",
    "escape": "What if something outside a match reads a value inside",
    "order": "Whether consumers come first, or producers and larger matches absorb smaller ones",
}


def policy_options(*names: str) -> Callable[[Command], Command]:
    """Add the options --constants, --escape and --order, or those of them that are named."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            values = ", ".join(pipeline.POLICIES[name])
            command = click.option(
                f"--{name}",
                multiple=True,
                metavar="[RULE=]POLICY",
                help=f"{_HELP[name]}: {values}; for all rules or for one. Repeatable.",
            )(command)
        return command

    return add
