"""``dpl learn``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import click

from dplcli import api
from dplcli.cli import many, options
from dplcli.cli.printing import say, write
from dplcli.errors import UsageError
from dplcli.outcomes import LearnOutcome
from dplcli.report.layout import Group, lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes import RewritesOutcome, RulesOutcome
    from dplcli.report.document import Document


@click.command("learn", cls=options.GroupedCommand)
@click.argument("model", type=options.PATH, required=False)
@many.takes_pairs("before", "after", ".yaml")
@click.option(
    "--nodes",
    "lists",
    multiple=True,
    metavar="NAMES",
    help="The nodes to learn from, by their names or by values they make, with commas between "
    "them. Repeatable.",
)
@click.option(
    "--before",
    type=options.PATH,
    metavar="FILE",
    help="Instead of MODEL and --nodes: a model as it was. Learn rules that replace. A folder, as "
    "that of --after, stands for its models.",
)
@click.option(
    "--after", type=options.PATH, metavar="FILE", help="What somebody made of the model --before."
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the rule; without, it is made from the operators.",
)
@click.option(
    "--target",
    show_default="custom",
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
    help="Write the catalogue to a new file instead of standard output; for folders of models, the "
    "folder for their catalogues.",
)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not run what the rules make of the model --before.",
)
@options.printing_options("Say what the rule keeps and leaves free.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path | None,
    lists: tuple[str, ...],
    before: Path | None,
    after: Path | None,
    name: str,
    target: str | None,
    exact: bool,
    output: Path | None,
    no_verify: bool,
    printing: options.Printing,
) -> None:
    """Write a catalogue with a rule for a subgraph of MODEL, and for all that is like it.

    The rule keeps the operators, how they are wired, and numbers and attributes that say what is
    computed; it leaves weights, shapes and all other attributes free.

    With --before and --after, write the rules that lead from one model to the other: one for each
    kind of place at which they differ, the most frequent first. Each is tried on graphs made up for
    it. What they make of --before is compared with --after by structure, and with --before in
    onnxruntime.

    Exit codes: 0 a catalogue was written; 1 no rule was learned from two models; 2 it could not be
    done.
    """
    if output is not None:
        _check_new(output)
    printing.check(model, before, after, output, printed=[] if output else ["the catalogue"])
    if no_verify and before is None and after is None:
        raise UsageError("--no-verify goes with --before and --after only")
    names = [item.strip() for text in lists for item in text.split(",") if item.strip()]
    with printing.progress() as say_step:
        result = api.learn(
            model,
            nodes=names or lists,
            before=before,
            after=after,
            name=name,
            target=target or "",
            exact=exact,
            verify=not no_verify,
            progress=say_step,
        )
    if output is not None and result.yaml:
        result.save(output)
    document = cast("Document", result.document(verbose=printing.verbose))
    if printing.keeps is None and output is None:
        write(result.yaml)
    if printing.keeps is None and not printing.quiet and printing.json_path != "-":
        _tell(result, document, output, verbose=printing.verbose)
    if printing.keeps is None:
        for warning in document.notes:
            say(f"dpl: warning: {warning}", err=True)
        document = replace(document, text=Group())  # it is said
    printing.conclude(document)


def _tell(result: RulesOutcome, document: Document, output: Path | None, *, verbose: bool) -> None:
    """Say what was learned, on standard error if the catalogue itself is printed or missing."""
    is_beside = output is None or not result.yaml
    for line in lines_of(document.text, None):
        text = line.plain
        if is_beside and not text.startswith(" "):
            start = text.startswith("Learned ")  # a sentence of ours; anything else may be a name
            text = f"dpl: {'l' + text[1:] if start else text}"
        say(text, err=is_beside)
    if isinstance(result, LearnOutcome):
        if output is None:
            hint = f"write it with -o FILE, then: dpl match {result.label} --patterns FILE"
            say(f"dpl: hint: {hint}", err=True)
        return
    for item in cast("RewritesOutcome", result).learned:
        if verbose and item.trial.verdict == "failed":
            say(f"{item.rule.name} is not right here:", err=True)
            write(f"{item.trial.counterexample.rstrip()}\n", err=True)


def _check_new(output: Path) -> None:
    """Refuse, before any work is done, what cannot be or must not be written."""
    if output.exists():
        raise UsageError(f"{output}: exists", hint="choose another name")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no folder {str(output.parent)!r}")
