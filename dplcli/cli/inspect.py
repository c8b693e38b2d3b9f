"""``dpl inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Group

from dplcli import pipeline
from dplcli.cli.options import check_json_path, emit, model_argument, output_options
from dplcli.report.records import inspect_record, nodes_record
from dplcli.report.tables import model_report, node_report

if TYPE_CHECKING:
    from pathlib import Path


@click.command("inspect")
@model_argument
@click.option(
    "--node",
    "name",
    metavar="NAME",
    help="Show one node, found by its name or by an output's, and its neighbours.",
)
@output_options("No effect: the report has one length.")
def command(
    *, model: Path, name: str | None, json_path: str | None, quiet: bool, verbose: bool
) -> None:
    """Show what MODEL is made of: interface, operators, weights, functions."""
    del verbose  # the report has one length
    check_json_path(json_path, model)
    loaded = pipeline.inspect(model)
    if name is None:
        report = model_report(loaded, model.name)
        emit(report, lambda: inspect_record(loaded, model.name), json_path, quiet=quiet)
        return
    found = pipeline.find_nodes(loaded, name)
    report = Group(*(node_report(node) for node in found))
    emit(report, lambda: nodes_record(found, model.name), json_path, quiet=quiet)
