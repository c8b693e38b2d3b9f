"""``dpl learn``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api
from dplcli.cli import options
from dplcli.cli.printing import say, write
from dplcli.errors import UsageError, counted
from dplcli.outcomes import LearnOutcome, RewritesOutcome, Verdict
from dplcli.report.tables import check_failure

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes import LearnedRewrite


@click.command("learn", cls=options.GroupedCommand)
@click.argument("model", type=options.PATH, required=False)
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
    help="Instead of MODEL and --nodes: a model as it was. Learn rules that replace.",
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
    help="Write the catalogue to a new file instead of standard output.",
)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not run what the rules make of the model --before.",
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write what was learned as JSON; - is standard output, which needs -o.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the catalogue and errors.")
@click.option("--verbose", "-v", is_flag=True, help="Say what the rule keeps and leaves free.")
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
    json_path: str | None,
    quiet: bool,
    verbose: bool,
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
    printing = options.Printing(json_path, quiet, verbose)
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
    outcome = result.outcome
    if outcome.yaml and output is None:
        write(outcome.yaml)
    elif output is not None and outcome.yaml:
        result.save(output)
    if json_path is not None:
        options.write_json(result.to_json(), json_path)
    if isinstance(outcome, LearnOutcome):
        if _tells(printing):
            _tell(outcome, output, verbose=verbose)
        return
    if _tells(printing):
        _tell_rewrites(outcome, output, verbose=verbose)
    _warn(outcome, printing)
    if not outcome.yaml:
        raise click.exceptions.Exit(1)


def _tells(printing: options.Printing) -> bool:
    """Tell whether anybody reads sentences."""
    return not printing.quiet and printing.json_path != "-"


_MOST_LEFT = 5
"""How many kinds of places that no rule explains are named without --verbose."""


def _tell_rewrites(outcome: RewritesOutcome, output: Path | None, *, verbose: bool) -> None:
    """Say what was learned, how much of the difference it explains, and what is wrong with it."""
    lines = [_said(item) for item in outcome.learned]
    left = sum(count for _, count in outcome.left)
    if not outcome.learned and not left:
        lines.append(f"{outcome.before} and {outcome.after} differ in no node: nothing to learn.")
    else:
        rules = counted(len(outcome.learned), "rule")
        explain = f"{rules} explain{'s' if len(outcome.learned) == 1 else ''}"
        changed = counted(outcome.explained + left, "changed place")
        rest = "." if not left else f"; {left} {'is' if left == 1 else 'are'} left:"
        lines.append(
            f"{explain} {outcome.explained} of {changed}{rest}"
            if outcome.learned
            else f"No rule explains the {changed}:"
        )
    shown = outcome.left if verbose else outcome.left[:_MOST_LEFT]
    lines += [f"  {count} x {what}" for what, count in shown]
    if len(shown) < len(outcome.left):
        lines.append(f"  and {len(outcome.left) - len(shown)} more kinds (-v shows them)")
    if outcome.beyond:
        places = counted(outcome.beyond, "place")
        lines.append(f"The rules also change {places} that {outcome.after} has as before.")
    if outcome.learned:
        lines += _said_of_run(outcome)
    wrong = output is None or not outcome.yaml
    for line in lines:
        say(f"dpl: {line}" if wrong and not line.startswith(" ") else line, err=wrong)


def _said_of_run(outcome: RewritesOutcome) -> list[str]:
    """Say that the check found no difference, or was not made; a warning says anything else."""
    if outcome.verdict is None:
        return [f"What they make of {outcome.before} was not run, as asked."]
    is_fine = isinstance(outcome.verdict, Verdict) and outcome.verdict.is_sound
    return [f"What they make of {outcome.before} is equivalent to it in onnxruntime."] * is_fine


def _warn(outcome: RewritesOutcome, printing: options.Printing) -> None:
    """Warn of rules that are wrong on some graph, and of a result that the check refuses."""
    for item in outcome.learned if _tells(printing) else ():
        if item.trial.verdict == "failed":
            _say_warning(f"{item.rule.name} is not right everywhere: {item.trial.reason}")
            if printing.verbose:
                say(item.trial.counterexample, err=True)
    verdict = outcome.verdict
    if isinstance(verdict, str):
        _say_warning(f"what the rules make of {outcome.before} could not be run: {verdict}")
    elif verdict is not None and not verdict.is_sound:
        for failure in check_failure(verdict):
            _say_warning(f"{outcome.before}, rewritten by the rules: {failure}")
        found = verdict.verification
        for reason in () if found is None else (*found.objections, *found.doubts):
            say(f"  {reason}", err=True)


def _say_warning(text: str) -> None:
    say(f"dpl: warning: {text}", err=True)


def _said(item: LearnedRewrite) -> str:
    tried = {
        "passed": f"tried on {counted(item.trial.graphs, 'graph')} made up for it",
        "failed": "wrong on a graph made up for it",
    }.get(item.trial.verdict, f"not tried: {item.trial.reason}")
    return f"{item.rule.name}: {counted(item.places, 'place')}, {tried}"


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
