"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import RenderableType

    Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
_UNWRAPPED = 10_000


def model_argument(command: Command) -> Command:
    """Add the argument MODEL."""
    return click.argument("model", type=PATH)(command)


def catalog_options(command: Command) -> Command:
    """Add --patterns, --target and --expect."""
    command = click.option(
        "--expect",
        "expectations",
        multiple=True,
        metavar="RULE>=N",
        help="Exit with 1 unless the rule has so many matches (also <= == > <). Repeatable.",
    )(command)
    command = click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="NAME",
        help="Use everything dpl ships for a target, such as dnnl. Repeatable.",
    )(command)
    return click.option(
        "--patterns",
        "-p",
        multiple=True,
        metavar="CATALOGUE",
        help="A catalogue: a YAML file, or the name of a shipped one. Repeatable.",
    )(command)


def output_options(command: Command) -> Command:
    """Add --json, --quiet and --verbose."""
    command = click.option(
        "--json",
        "json_path",
        metavar="FILE",
        help="Write the result as JSON; - is standard output, instead of the table.",
    )(command)
    command = click.option("--quiet", "-q", is_flag=True, help="Print only errors.")(command)
    return click.option("--verbose", "-v", is_flag=True, help="Print every match and refusal.")(
        command
    )


def emit(
    table: RenderableType,
    record: Callable[[], Mapping[str, Any]],
    json_path: str | None,
    *,
    quiet: bool,
) -> None:
    """Print a result: the table, or the JSON where that goes to standard output."""
    if json_path is not None:
        text = json.dumps(record(), indent=1, ensure_ascii=False) + "\n"
        if json_path == "-":
            click.echo(text, nl=False)
            return
        _write_atomically(Path(json_path), text)
    if not quiet:
        stdout_console().print(table)


def stdout_console() -> Console:
    """Return a console that wraps to a terminal's width, and not at all in a pipe."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNWRAPPED
    return Console(width=width, highlight=False)


def _write_atomically(path: Path, text: str) -> None:
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise UsageError(f"--json {path}: cannot be written: {error.strerror}") from error


@contextmanager
def progress(*, quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show what is going on: a spinner on a terminal, lines if verbose, else nothing."""
    if verbose and not quiet:
        yield lambda phrase: click.echo(f"dpl: {phrase}", err=True)
        return
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _phrase: None
        return
    console = Console(stderr=True)
    with console.status("") as status:
        yield status.update
