"""``dpl patterns``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.options import (
    allow_code_option,
    check_json_path,
    conclude,
    conclude_contract,
    contract_files,
    output_options,
    report_options,
    take_reports,
)
from dplcli.cli.printing import progress, write
from dplcli.errors import CatalogError
from dplcli.escaping import json_text
from dplcli.report.catalog import (
    catalogs_document,
    problems_document,
    rules_document,
    trials_document,
    unreadable_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dplcli.cli.options import ReportFiles


_CATALOGUES = click.argument("catalogues", nargs=-1, metavar="CATALOGUE...")
_RULES = click.option(
    "--rule", "only", multiple=True, metavar="NAME", help="This rule only. Repeatable."
)


@click.group("patterns")
def command() -> None:
    """List, show, check and test catalogues of patterns.

    A CATALOGUE is a YAML file, a Python file (which is executed), or the name of one that dpl or
    an installed package ships.
    """


@command.command("list")
@output_options("No effect: the list has one length.")
def list_(*, json_path: str | None, quiet: bool, verbose: bool) -> None:
    """List the catalogues that dpl and installed packages ship."""
    del verbose
    check_json_path(json_path)
    conclude(catalogs_document(pipeline.list_catalogs()), json_path, quiet=quiet)


def _catalogue_command(
    name: str, short: str, verbose: str
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command that takes catalogues and rules."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        for option in (output_options(verbose), allow_code_option, _RULES, _CATALOGUES):
            function = option(function)
        return command.command(name, short_help=short)(function)

    return decorate


@_catalogue_command("show", "Show the rules of catalogues.", "No effect: everything is shown.")
def show(  # noqa: PLR0913  # one parameter per option
    *,
    catalogues: tuple[str, ...],
    only: tuple[str, ...],
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show the rules of CATALOGUEs, included ones too, as dpl understands them."""
    del verbose
    check_json_path(json_path, *catalogues)
    rules = pipeline.load_catalog_rules(catalogues, only=only, allow_code=allow_code)
    conclude(rules_document(rules), json_path, quiet=quiet)


@contextmanager
def _told(name: str, catalogues: tuple[str, ...], reports: ReportFiles) -> Iterator[None]:
    """Report a catalogue that cannot be read, too: code hosts show at which line that is."""
    try:
        yield
    except CatalogError as error:
        reports.write(unreadable_document(f"dpl patterns {name}", catalogues, error))
        raise


@_catalogue_command(
    "check", "Look for mistakes, without a model.", "No effect: every problem is shown."
)
@report_options()
def check(  # noqa: PLR0913  # one parameter per option
    *,
    catalogues: tuple[str, ...],
    only: tuple[str, ...],
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **forms: Any,  # noqa: ANN401  # the options of report_options
) -> None:
    """Look for mistakes in CATALOGUEs without a model.

    Operators, inputs and attributes in every opset claimed, rules that no node can reach, names
    that are bound and not used, rewrites that lose attributes or feed themselves. Exit code 1 if
    there is an error.
    """
    reports = take_reports(forms)
    check_json_path(json_path, *catalogues)
    reports.check(json_path, *catalogues)
    with progress(quiet=quiet, verbose=verbose) as say, _told("check", catalogues, reports):
        say("checking")
        problems = pipeline.check_catalogs(catalogues, only=only, allow_code=allow_code)
    conclude(problems_document(catalogues, problems), json_path, quiet=quiet, reports=reports)


@_catalogue_command(
    "test", "Run the examples, and try every rule.", "List every trial, not only those that failed."
)
@report_options()
def test(  # noqa: PLR0913  # one parameter per option
    *,
    catalogues: tuple[str, ...],
    only: tuple[str, ...],
    allow_code: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **forms: Any,  # noqa: ANN401  # the options of report_options
) -> None:
    """Run the examples of CATALOGUEs, and try every rule on graphs made up for its pattern.

    Each result must be a valid model and compute the same in onnxruntime. Exit code 1 if one does
    not, or if an example turns out differently.
    """
    reports = take_reports(forms)
    check_json_path(json_path, *catalogues)
    reports.check(json_path, *catalogues)
    with progress(quiet=quiet, verbose=verbose) as say, _told("test", catalogues, reports):
        say("trying rules")
        trials = pipeline.try_catalogs(catalogues, only=only, allow_code=allow_code)
    document = trials_document(catalogues, trials, verbose=verbose)
    conclude(document, json_path, quiet=quiet, reports=reports)


@_catalogue_command(
    "contract", "Show what kernels have to keep to.", "No effect: everything is shown."
)
@contract_files
def contract(  # noqa: PLR0913  # one parameter per option
    *,
    catalogues: tuple[str, ...],
    only: tuple[str, ...],
    allow_code: bool,
    header: Path | None,
    stub: Path | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show the functions that CATALOGUEs may write, for whoever supplies kernels.

    One for each form of a pattern (alternatives, optional parts), with what is known of its
    inputs, attributes and operators without a model; dpl inspect MODEL --contract says what the
    functions of a model are. Swapped operands of Add, Mul and the like give further functions.
    """
    del verbose
    check_json_path(json_path, *catalogues, header, stub)
    with progress(quiet=quiet, verbose=False) as say:
        say("making graphs up")
        found = pipeline.catalog_contract(catalogues, only=only, allow_code=allow_code)
    conclude_contract(found, catalogues, header=header, stub=stub, json_path=json_path, quiet=quiet)


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of a catalogue file, for editors."""
    write(json_text(pipeline.catalog_schema(), indent=2))
