"""``dpl inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api, pipeline
from dplcli.cli import many, options
from dplcli.errors import UsageError
from dplcli.report.catalog import contract_document
from dplcli.report.document import nodes_document

if TYPE_CHECKING:
    from pathlib import Path


@click.command("inspect", cls=options.GroupedCommand)
@many.takes_models()
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
@options.contract_files
@options.printing_options("No effect: the report has one length.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    name: str | None,
    is_contract: bool,
    header: Path | None,
    stub: Path | None,
    printing: options.Printing,
) -> None:
    """Show what MODEL is made of: interface, operators, weights, functions."""
    printing.check(model, header, stub)
    if is_contract or header is not None or stub is not None:
        if name is not None:
            raise UsageError("--node and --contract contradict each other", hint="pass one of them")
        contract = pipeline.model_contract(model)
        pipeline.write_bindings(contract, header=header, stub=stub, others=(model, *printing.files))
        printing.conclude(contract_document(contract))
        return
    loaded = api.load(model)
    if name is None:
        printing.conclude(loaded)
        return
    nodes = pipeline.find_nodes(loaded.ir, name)
    printing.conclude(nodes_document(nodes, model.name))
