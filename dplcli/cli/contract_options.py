"""What the commands that show a contract share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import PATH, emit
from dplcli.report.contract_records import contract_record
from dplcli.report.contract_tables import contract_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = TypeVar("Command", bound=Callable[..., Any])


def contract_files(command: Command) -> Command:
    """Add --c-header and --python."""
    command = click.option(
        "--python",
        "stub",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a Python module: one abstract class per function.",
    )(command)
    return click.option(
        "--c-header",
        "header",
        type=PATH,
        metavar="FILE",
        help="Write the contract as a header for C and C++.",
    )(command)


def emit_contract(  # noqa: PLR0913  # the files of a command
    contract: pipeline.Contract,
    others: tuple[Path | str, ...],
    *,
    header: Path | None,
    stub: Path | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Write the files that are asked for, and print the contract.

    Args:
        contract: The contract.
        others: The files that the command reads.
        header: The header to write.
        stub: The Python module to write.
        json_path: The JSON to write.
        quiet: Whether to print nothing.
    """
    if json_path not in {None, "-"}:
        others = (*others, str(json_path))
    pipeline.write_bindings(contract, header=header, stub=stub, others=others)
    emit(contract_report(contract), lambda: contract_record(contract), json_path, quiet=quiet)
