"""``dpl patterns``."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dplcli import pipeline
from dplcli.cli import completion, options
from dplcli.cli.printing import progress, write
from dplcli.errors import CatalogError
from dplcli.escaping import json_text
from dplcli.report import inspect, patterns
from dplcli.settings import BindingSettings, CatalogueSettings, TrialSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_CATALOGUES = click.argument(
    "catalogues", nargs=-1, metavar="CATALOGUE...", shell_complete=completion.catalogues
)


@click.group("patterns")
def command() -> None:
    """List, show, check and test catalogues of patterns.

    A CATALOGUE is a YAML file, a Python file (which is executed), the name of one that dpl or an
    installed package ships, or the text of a pattern.
    """


@command.command("list", cls=options.GroupedCommand)
@options.printing_options()
def list_(*, printing: options.Printing) -> None:
    """List the catalogues that dpl and installed packages ship."""
    printing.check()
    printing.conclude(patterns.catalogs_document(pipeline.list_catalogs()))


class _Given(NamedTuple):
    """What a command about catalogues is given; *meant* says which rules of them are meant."""

    catalogues: tuple[str, ...]
    settings: Any
    printing: options.Printing

    @property
    def meant(self) -> dict[str, Any]:
        return {"only": self.settings.rule, "allow_code": self.settings.allow_code}


def _catalogue_command(
    short: str,
    *,
    verbose: str = "",
    forms: Sequence[str] = (),
    settings: type[CatalogueSettings] = CatalogueSettings,
) -> Callable[[Callable[[_Given], None]], click.Command]:
    """Make a command that takes catalogues and rules."""

    def decorate(function: Callable[[_Given], None]) -> click.Command:
        @wraps(function)
        def call(**given: Any) -> None:  # noqa: ANN401  # what click gives
            function(_Given(**given))

        added: Callable[..., None] = call
        printing = options.printing_options(verbose, *forms)
        for add in (printing, options.settings_options(settings), _CATALOGUES):
            added = add(added)
        return command.command(function.__name__, cls=options.GroupedCommand, short_help=short)(
            added
        )

    return decorate


@_catalogue_command("Show the rules of catalogues.")
def show(given: _Given) -> None:
    """Show the rules of CATALOGUEs, included ones too, as dpl understands them."""
    given.printing.check(*given.catalogues)
    rules = pipeline.load_catalog_rules(given.catalogues, **given.meant)
    given.printing.conclude(patterns.rules_document(rules))


@contextmanager
def _told(name: str, phrase: str, given: _Given) -> Iterator[None]:
    """Report a catalogue that cannot be read, too: code hosts show at which line that is."""
    given.printing.check(*given.catalogues)
    with given.printing.progress() as say:
        say(phrase)
        try:
            yield
        except CatalogError as error:
            document = patterns.unreadable_document(f"dpl patterns {name}", given.catalogues, error)
            given.printing.write_reports(document)
            raise


@_catalogue_command(
    "Look for mistakes, without a model.",
    verbose="Say what is being done.",
    forms=options.EVERY_FORM,
)
def check(given: _Given) -> None:
    """Look for mistakes in CATALOGUEs without a model.

    Operators, inputs and attributes in every opset claimed, rules that no node can reach, names
    that are bound and not used, rewrites that lose attributes or feed themselves. Exit code 1 if
    there is an error.
    """
    with _told("check", "checking", given):
        problems = pipeline.check_catalogs(given.catalogues, **given.meant)
    given.printing.conclude(patterns.problems_document(given.catalogues, problems))


@_catalogue_command(
    "Run the examples, and try every rule.",
    verbose="List every trial, not only those that failed.",
    forms=options.EVERY_FORM,
    settings=TrialSettings,
)
def test(given: _Given) -> None:
    """Run the examples of CATALOGUEs, and try every rule on graphs made up for its pattern.

    Each result must be a valid model and compute the same in onnxruntime. Ranks, sizes, element
    types, attributes and constants are drawn at random, as far as pattern and conditions allow;
    examples are tried with something changed, too. A rule that is wrong ends with the smallest
    graph found that shows it, to be pasted into its examples.

    Exit code 1 if a result is wrong, if an example turns out differently, or if a rule could not be
    tried. Where no graph can be made up for a rule, the examples that it applies to are its trials.
    """
    tried = {"trials": given.settings.trials, "seed": given.settings.seed}
    with _told("test", "trying rules", given):
        trials = pipeline.try_catalogs(given.catalogues, **given.meant, **tried)
    given.printing.conclude(patterns.trials_document(given.catalogues, trials))


@_catalogue_command(
    "Show what kernels have to keep to.",
    settings=BindingSettings,
)
def contract(given: _Given) -> None:
    """Show the functions that CATALOGUEs may write, for whoever supplies kernels.

    One for each form of a pattern (alternatives, optional parts), with what is known of its
    inputs, attributes and operators without a model; dpl inspect MODEL --contract says what the
    functions of a model are. Swapped operands of Add, Mul and the like give further functions.
    """
    catalogues, settings, printing = given
    files = {"header": settings.header, "stub": settings.stub}
    printing.check(*catalogues, *files.values())
    with progress(quiet=printing.quiet, verbose=False) as say:
        say("making graphs up")
        found = pipeline.catalog_contract(catalogues, **given.meant)
    pipeline.write_bindings(found, **files, others=(*catalogues, *printing.files))
    printing.conclude(inspect.contract_document(found))


@command.command("schema", cls=options.GroupedCommand)
def schema() -> None:
    """Print the JSON Schema of a catalogue file, for editors."""
    write(json_text(pipeline.catalog_schema(), indent=2))
