"""``dpl inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import pipeline
from dplcli.cli.options import (
    GroupedCommand,
    check_json_path,
    conclude,
    conclude_contract,
    contract_files,
    model_argument,
    output_options,
)
from dplcli.errors import UsageError
from dplcli.report.document import model_document, nodes_document

if TYPE_CHECKING:
    from pathlib import Path


@click.command("inspect", cls=GroupedCommand)
@model_argument
@click.option(
    "--node",
    "name",
    metavar="NAME",
    help="Show one node, found by its name or by an output's, and its neighbours.",
)
@click.option(
    "--contract",
    "is_contract",
    is_flag=True,
    help="Show what kernels for the functions of a target have to keep to.",
)
@contract_files
@output_options("No effect: the report has one length.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    name: str | None,
    is_contract: bool,
    header: Path | None,
    stub: Path | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show what MODEL is made of: interface, operators, weights, functions."""
    del verbose  # the report has one length
    check_json_path(json_path, model, header, stub)
    if is_contract or header is not None or stub is not None:
        if name is not None:
            raise UsageError("--node and --contract contradict each other", hint="pass one of them")
        contract = pipeline.model_contract(model)
        conclude_contract(
            contract, (model,), header=header, stub=stub, json_path=json_path, quiet=quiet
        )
        return
    loaded = pipeline.inspect(model)
    if name is None:
        document = model_document(loaded, model.name)
    else:
        document = nodes_document(pipeline.find_nodes(loaded, name), model.name)
    conclude(document, json_path, quiet=quiet)
