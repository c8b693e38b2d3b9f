"""What the site adds to the pages: the help of every command, and buttons that copy commands."""

import html
import re

import click

from dplcli.cli.main import dpl
from dplcli.cli.options import EVERY_OPTION

MARK = "<!-- commands -->"
WIDTH = 96


def on_page_markdown(markdown: str, **_others: object) -> str:
    """Put the help in the place of the mark; called by mkdocs for each page."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n".join(sections(dpl, click.Context(dpl, info_name="dpl"))))


_CONSOLE = re.compile(r'<div class="highlight">((?:(?!</div>).)*class="gp".*?)</div>', re.DOTALL)
_TAG = re.compile("<[^>]*>")


def on_page_content(content: str, **_others: object) -> str:
    """Let the button of a console block copy what is typed, without prompts and output."""
    return _CONSOLE.sub(_with_commands, content)


def _with_commands(block: re.Match[str]) -> str:
    lines = html.unescape(_TAG.sub("", block[1])).splitlines()
    typed = "\n".join(line[2:] for line in lines if line.startswith(("$ ", "> ")))
    return block[0].replace("<div ", f'<div data-copy="{html.escape(typed)}" ', 1)


def sections(command: click.Command, context: click.Context) -> list[str]:
    """Return a heading and the help of a command, and of those below it."""
    context.meta[EVERY_OPTION] = True
    context.terminal_width = context.max_content_width = WIDTH
    found = [f"## {context.command_path}", "```text", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += sections(below, click.Context(below, context, name))
    return found
