"""Options that several commands share."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.printing import show, write
from dplcli.errors import UsageError
from dplcli.files import temporary_file
from dplcli.report.escaping import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.report.layout import Part

    Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
_START = 2_000


def model_argument(command: Command) -> Command:
    """Add the argument MODEL."""
    return click.argument("model", type=PATH)(command)


def expect_option(command: Command) -> Command:
    """Add --expect."""
    return click.option(
        "--expect",
        "expectations",
        multiple=True,
        metavar="RULE>=N",
        help="Exit with 1 unless the rule matches, or is applied, so often (also <= == > <). "
        "Repeatable.",
    )(command)


def catalog_options(command: Command) -> Command:
    """Add --patterns and --target."""
    command = click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="NAMES",
        callback=listed,
        help="Use everything dpl ships for a target, such as dnnl, or for several: of "
        "cutlass,cublas the first one wins where both would take a node. Repeatable.",
    )(command)
    return click.option(
        "--patterns",
        "-p",
        multiple=True,
        metavar="CATALOGUE",
        help="A catalogue: a YAML file, a Python file (which is executed), or the name of one that "
        "dpl or an installed package ships. Repeatable.",
    )(command)


def listed(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """Split what is given as a comma-separated list, in order."""
    for text in texts:
        if "," in text and not all(name.strip() for name in text.split(",")):
            raise UsageError(f"{option.opts[0]} {text}: a name is missing beside a comma")
    return tuple(name.strip() for text in texts for name in text.split(","))


def allow_code_option(command: Command) -> Command:
    """Add --allow-code."""
    return click.option(
        "--allow-code",
        is_flag=True,
        help="Let YAML catalogues import the Python functions that they name as checks. "
        "A catalogue in Python (FILE.py) is code and always runs.",
    )(command)


def output_options(verbose: str) -> Callable[[Command], Command]:
    """Add --json, --quiet and --verbose, which the text explains."""
    options = (
        click.option(
            "--json",
            "json_path",
            metavar="FILE",
            help="Write the result as JSON; - is standard output, instead of the table.",
        ),
        click.option("--quiet", "-q", is_flag=True, help="Print only errors."),
        click.option("--verbose", "-v", is_flag=True, help=verbose),
    )

    def add(command: Command) -> Command:
        for option in options:
            command = option(command)
        return command

    return add


def check_json_path(
    json_path: str | None, *others: Path | str | None, option: str = "--json"
) -> None:
    """Refuse, before any work is done, a JSON file that cannot be or must not be written.

    Args:
        json_path: What the option was given.
        others: The other files of the command; names of shipped catalogues do no harm.
        option: The option, for messages.

    Raises:
        UsageError: It is another file of the command, a directory, or has no folder.
    """
    if json_path is None or json_path == "-":
        return
    check_report_path(json_path, *others, option=option, mark=None)


def check_report_path(
    report: str,
    *others: Path | str | None,
    option: str,
    mark: bytes | None,
    kind: str = "JSON report",
) -> None:
    """Refuse, before any work is done, a report that cannot be or must not be written.

    Args:
        report: Where to write it.
        others: The other files of the command; names of shipped catalogues do no harm.
        option: The option, for messages.
        mark: What a file of dpl's has near its beginning, which alone may be replaced; None for
            JSON, any of which may be; empty if what there is stays.
        kind: What such a file is, for messages.

    Raises:
        UsageError: It is another file of the command, a directory, or has no folder.
    """
    path = Path(report)
    try:
        taken = [Path(other) for other in others if other is not None]
        if any(path.resolve() == other.resolve() for other in taken):
            raise UsageError(f"{option} {report}: is another file of this command")
        if not report or path.is_dir():
            raise UsageError(f"{option} {report!r}: is not a file")
        if path.is_file() and not _is_replaceable(path, mark):
            raise UsageError(f"{option} {report}: exists and is no {kind}, so it is kept")
        if not path.exists():
            with temporary_file(path.parent):
                pass  # what it is written to before it takes its place
        elif path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"{option} {report}: cannot be written: {error.strerror}") from error


def _is_replaceable(path: Path, mark: bytes | None) -> bool:
    with path.open("rb") as file:
        start = file.read(_START)
    if mark is None:
        return path.suffix == ".json" or start[:1] in b"{"
    return not start or mark in start


def emit(
    table: Part,
    record: Callable[[], Mapping[str, Any]],
    json_path: str | None,
    *,
    quiet: bool,
) -> None:
    """Print a result: the table, or the JSON where that goes to standard output."""
    if json_path is not None:
        text = json_text(record())
        if json_path == "-":
            write(text)
            return
        pipeline.write_text(Path(json_path), text, "--json")
    if not quiet:
        show(table)
