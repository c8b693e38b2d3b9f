"""``dpl diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


@click.command("diff", cls=options.GroupedCommand)
@click.argument("first", type=options.PATH, metavar="A")
@click.argument("second", type=options.PATH, metavar="B")
@many.takes_pairs("first", "second")
@click.option(
    "--ignore",
    metavar="WHAT",
    help="What does not count, separated by commas: names (of nodes and inner values), order, "
    "doc, metadata, value-info, storage (initializer or Constant node, in which field or file; "
    "defaults that are stated), other (fields that dpl does not know). By default all of these but "
    "other; 'nothing' to count every field of the files.",
)
@options.printing_options(
    "Show every difference; else long lists are shortened.", "markdown", "html"
)
def command(  # one parameter per option
    *,
    first: Path,
    second: Path,
    ignore: str | None,
    printing: options.Printing,
) -> None:
    """Show in what the structures of models A and B differ.

    Nodes are compared by dataflow: what they are called and in which order they stand does not
    matter, but the names of the model's inputs and outputs do. Equal models may compute other
    numbers only through what --ignore leaves out; to compare numbers use dpl verify.

    Exit codes: 0 structurally equal; 1 different; 2 it could not be done.
    """
    printing.check(first, second)
    names = None if ignore is None else [name.strip() for name in ignore.split(",")]
    with printing.progress() as say:
        result = api.diff(first, second, ignore=names, progress=say)
    printing.conclude(result)
