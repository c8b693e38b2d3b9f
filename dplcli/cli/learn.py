"""``dpl learn``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import pipeline
from dplcli.cli import options
from dplcli.cli.printing import say, write
from dplcli.errors import UsageError
from dplcli.files import encoded, write_new_file

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes import LearnOutcome


@click.command("learn", cls=options.GroupedCommand)
@options.model_argument
@click.option(
    "--nodes",
    "lists",
    multiple=True,
    metavar="NAMES",
    help="The nodes to learn from, by their names or by values they make, with commas between "
    "them. Repeatable.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the rule; without, it is made from the operators.",
)
@click.option(
    "--target",
    default="custom",
    show_default=True,
    metavar="NAME",
    help="Target of the catalogue: the domain of the functions that its rule makes.",
)
@click.option(
    "--exact", is_flag=True, help="Demand every attribute that the file states, as it is there."
)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE",
    help="Write the catalogue to a new file instead of standard output.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the catalogue and errors.")
@click.option("--verbose", "-v", is_flag=True, help="Say what the rule keeps and leaves free.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    lists: tuple[str, ...],
    name: str,
    target: str,
    exact: bool,
    output: Path | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write a catalogue with a rule for a subgraph of MODEL, and for all that is like it.

    The rule keeps the operators, how they are wired, and numbers and attributes that say what is
    computed; it leaves weights, shapes and all other attributes free.
    """
    if output is not None:
        _check_new(output)
    names = [item.strip() for text in lists for item in text.split(",") if item.strip()]
    if not names:
        raise UsageError("no node is named", hint="pass --nodes NAME,NAME,…")
    outcome = pipeline.learn(model, nodes=names, name=name, target=target, exact=exact)
    if output is None:
        write(outcome.yaml)
    else:
        _write_new(output, outcome.yaml)
    if not quiet:
        _tell(outcome, output, verbose=verbose)


def _tell(outcome: LearnOutcome, output: Path | None, *, verbose: bool) -> None:
    """Say what was learned; beside the catalogue itself on standard error, with a hint."""
    learned, label = outcome.learned, outcome.label
    nodes = "1 node" if len(learned.nodes) == 1 else f"{len(learned.nodes)} nodes"
    matches = "1 match" if learned.matches == 1 else f"{learned.matches} matches"
    lines = [f"Learned {learned.rule.qualified_name} from {nodes}: {matches} in {label}."]
    if verbose:
        lines += [f"note: {note}" for note in learned.notes]
    if output is None:
        lines = [f"dpl: {line[0].lower()}{line[1:]}" for line in lines]
        lines.append(f"dpl: hint: write it with -o FILE, then: dpl match {label} --patterns FILE")
    for line in lines:
        say(line, err=output is None)


def _check_new(output: Path) -> None:
    """Refuse, before any work is done, what cannot be or must not be written."""
    if output.exists():
        raise UsageError(f"{output}: exists", hint="choose another name")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no folder {str(output.parent)!r}")


def _write_new(output: Path, text: str) -> None:
    try:
        write_new_file(output, encoded(text))
    except FileExistsError as error:
        raise UsageError(f"{output}: exists", hint="choose another name") from error
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from error
