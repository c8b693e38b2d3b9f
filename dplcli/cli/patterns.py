"""``dpl patterns``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli import completion, options
from dplcli.cli.printing import progress, write
from dplcli.errors import CatalogError
from dplcli.escaping import json_text
from dplcli.report.catalog import (
    catalogs_document,
    contract_document,
    problems_document,
    rules_document,
    trials_document,
    unreadable_document,
)
from dplcli.settings import BindingSettings, CatalogueSettings, TrialSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_CATALOGUES = click.argument(
    "catalogues", nargs=-1, metavar="CATALOGUE...", shell_complete=completion.catalogues
)


@click.group("patterns")
def command() -> None:
    """List, show, check and test catalogues of patterns.

    A CATALOGUE is a YAML file, a Python file (which is executed), the name of one that dpl or an
    installed package ships, or the text of a pattern.
    """


@command.command("list")
@options.printing_options("No effect: the list has one length.")
def list_(*, printing: options.Printing) -> None:
    """List the catalogues that dpl and installed packages ship."""
    printing.check()
    printing.conclude(catalogs_document(pipeline.list_catalogs()))


def _catalogue_command(
    name: str,
    short: str,
    verbose: str,
    *forms: str,
    settings: type[CatalogueSettings] = CatalogueSettings,
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command that takes catalogues and rules."""

    def decorate(function: Callable[..., None]) -> click.Command:
        printing = options.printing_options(verbose, *forms)
        for add in (printing, options.settings_options(settings), _CATALOGUES):
            function = add(function)
        return command.command(name, short_help=short)(function)

    return decorate


def _meant(settings: CatalogueSettings) -> dict[str, Any]:
    return {"only": settings.rule, "allow_code": settings.allow_code}


@_catalogue_command("show", "Show the rules of catalogues.", "No effect: everything is shown.")
def show(
    *,
    catalogues: tuple[str, ...],
    settings: CatalogueSettings,
    printing: options.Printing,
) -> None:
    """Show the rules of CATALOGUEs, included ones too, as dpl understands them."""
    printing.check(*catalogues)
    rules = pipeline.load_catalog_rules(
        catalogues, only=settings.rule, allow_code=settings.allow_code
    )
    printing.conclude(rules_document(rules))


@contextmanager
def _told(name: str, catalogues: tuple[str, ...], printing: options.Printing) -> Iterator[None]:
    """Report a catalogue that cannot be read, too: code hosts show at which line that is."""
    try:
        yield
    except CatalogError as error:
        printing.write_reports(unreadable_document(f"dpl patterns {name}", catalogues, error))
        raise


@_catalogue_command(
    "check",
    "Look for mistakes, without a model.",
    "No effect: every problem is shown.",
    *options.EVERY_FORM,
)
def check(
    *,
    catalogues: tuple[str, ...],
    settings: CatalogueSettings,
    printing: options.Printing,
) -> None:
    """Look for mistakes in CATALOGUEs without a model.

    Operators, inputs and attributes in every opset claimed, rules that no node can reach, names
    that are bound and not used, rewrites that lose attributes or feed themselves. Exit code 1 if
    there is an error.
    """
    printing.check(*catalogues)
    with printing.progress() as say, _told("check", catalogues, printing):
        say("checking")
        problems = pipeline.check_catalogs(
            catalogues, only=settings.rule, allow_code=settings.allow_code
        )
    printing.conclude(problems_document(catalogues, problems))


@_catalogue_command(
    "test",
    "Run the examples, and try every rule.",
    "List every trial, not only those that failed.",
    *options.EVERY_FORM,
    settings=TrialSettings,
)
def test(
    *, catalogues: tuple[str, ...], settings: TrialSettings, printing: options.Printing
) -> None:
    """Run the examples of CATALOGUEs, and try every rule on graphs made up for its pattern.

    Each result must be a valid model and compute the same in onnxruntime. Ranks, sizes, element
    types, attributes and constants are drawn at random, as far as pattern and conditions allow;
    examples are tried with something changed, too. A rule that is wrong ends with the smallest
    graph found that shows it, to be pasted into its examples.

    Exit code 1 if a result is wrong, if an example turns out differently, or if a rule could not be
    tried. Where no graph can be made up for a rule, the examples that it applies to are its trials.
    """
    printing.check(*catalogues)
    with printing.progress() as say, _told("test", catalogues, printing):
        say("trying rules")
        found = pipeline.try_catalogs(
            catalogues, **_meant(settings), trials=settings.trials, seed=settings.seed
        )
    document = trials_document(catalogues, found, verbose=printing.verbose)
    printing.conclude(document)


@_catalogue_command(
    "contract",
    "Show what kernels have to keep to.",
    "No effect: everything is shown.",
    settings=BindingSettings,
)
def contract(
    *, catalogues: tuple[str, ...], settings: BindingSettings, printing: options.Printing
) -> None:
    """Show the functions that CATALOGUEs may write, for whoever supplies kernels.

    One for each form of a pattern (alternatives, optional parts), with what is known of its
    inputs, attributes and operators without a model; dpl inspect MODEL --contract says what the
    functions of a model are. Swapped operands of Add, Mul and the like give further functions.
    """
    header, stub = settings.header, settings.stub
    printing.check(*catalogues, header, stub)
    with progress(quiet=printing.quiet, verbose=False) as say:
        say("making graphs up")
        found = pipeline.catalog_contract(
            catalogues, only=settings.rule, allow_code=settings.allow_code
        )
    pipeline.write_bindings(found, header=header, stub=stub, others=(*catalogues, *printing.files))
    printing.conclude(contract_document(found))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of a catalogue file, for editors."""
    write(json_text(pipeline.catalog_schema(), indent=2))
