"""``dpl diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    GroupedCommand,
    check_json_path,
    conclude,
    output_options,
    report_options,
    take_reports,
)
from dplcli.cli.printing import progress
from dplcli.report.diff import diff_document

if TYPE_CHECKING:
    from pathlib import Path


@click.command("diff", cls=GroupedCommand)
@click.argument("first", type=PATH, metavar="A")
@click.argument("second", type=PATH, metavar="B")
@click.option(
    "--ignore",
    metavar="WHAT",
    help="What does not count, separated by commas: names (of nodes and inner values), order, "
    "doc, metadata, value-info, storage (initializer or Constant node). By default all of these; "
    "'nothing' to count everything.",
)
@report_options("markdown", "html")
@output_options("Show every difference; else long lists are shortened.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    first: Path,
    second: Path,
    ignore: str | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **others: Any,  # noqa: ANN401  # those of report_options
) -> None:
    """Show in what the structures of models A and B differ.

    Nodes are compared by dataflow: what they are called and in which order they stand does not
    matter, but the names of the model's inputs and outputs do. Equal models may compute other
    numbers only through what --ignore leaves out; to compare numbers use dpl verify.

    Exit codes: 0 structurally equal; 1 different; 2 it could not be done.
    """
    reports = take_reports(others)
    check_json_path(json_path, first, second)
    reports.check(json_path, first, second, has_plots=False)
    names = None if ignore is None else [name.strip() for name in ignore.split(",")]
    with progress(quiet=quiet, verbose=verbose) as say:
        outcome = pipeline.diff(first, second, ignore=names, progress=say)
    conclude(diff_document(outcome, verbose=verbose), json_path, quiet=quiet, reports=reports)
