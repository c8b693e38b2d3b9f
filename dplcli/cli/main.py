"""The group of commands; each is imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from dplcli import __version__
from dplcli.cli.funnel import run

COMMANDS = {
    "apply": "Do what a plan lists, which dpl rewrite wrote and you may have edited.",
    "bisect": "Find the rule application, or the node, that makes a model compute something else.",
    "diff": "Show in what the structures of two models differ.",
    "explain": "Say why patterns match where they do, and why not elsewhere.",
    "inline": "Put functions back in the place of their calls, and verify the result.",
    "inspect": "Show what a model is made of.",
    "learn": "Write a catalogue with a rule for a subgraph that you point at.",
    "match": "Show where patterns match, and why they do not elsewhere.",
    "partition": "Outline matched subgraphs as functions for a target, and verify the result.",
    "patterns": "List, show, check and test catalogues of patterns.",
    "rewrite": "Replace subgraphs by the rewrites of catalogues, and verify the result.",
    "verify": "Compare two models numerically in onnxruntime.",
}
"""The commands and their one-line help, so that ``dpl --help`` loads none of them."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Name the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"dplcli.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from dplcli.errors import did_you_mean  # noqa: PLC0415  # only for a typo

            hint = did_you_mean(name, COMMANDS)
            ctx.fail(f"no such command {name!r}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="dpl")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def dpl(*, debug: bool) -> None:
    """Find, rewrite, outline and verify subgraphs of ONNX models.

    Exit codes: 0 done, and equivalent; 1 the answer is no (not equivalent, expectation unmet);
    2 it could not be done (usage, unreadable model, bad catalogue).
    """
    del debug  # the funnel reads it


def main() -> None:
    """Run the command line and exit with its code."""
    run(dpl)
