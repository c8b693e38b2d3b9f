"""What ``dpl learn`` says: the rules, how much of the difference they explain, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.outcomes.rules import LearnOutcome
from dplcli.report.document import Document
from dplcli.report.layout import Group, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.outcomes.rules import LearnedRewrite, RewritesOutcome


_MOST_LEFT = 5
"""How many kinds of places that no rule explains are named without --verbose."""


def learn_document(outcome: LearnOutcome | RewritesOutcome) -> Document:
    """Report on rules that were learned; the answer is no if there are none."""
    notes: tuple[str, ...] = ()
    if isinstance(outcome, LearnOutcome):
        facts, subject = {"rules": 1, "matches": outcome.learned.matches}, outcome.label
    else:
        notes = tuple(_warnings(outcome))
        changed = outcome.explained + sum(left.places for left in outcome.left)
        facts = {"rules": len(outcome.learned), "changed places": changed}
        facts["explained"] = outcome.explained
        subject = f"{outcome.before} and {outcome.after}"
    return Document(
        said=lambda *, verbose: Group(*map(Text, _lines(outcome, verbose=verbose))),
        of=outcome,
        ok=outcome.ok,
        command="dpl learn",
        subject=subject,
        verdict=counted(facts["rules"], "rule"),
        failures=() if outcome.rules else tuple(_lines(outcome, verbose=False)[:1]),
        notes=notes,
        facts=tuple((what, str(number)) for what, number in facts.items()),
    )


def _lines(outcome: LearnOutcome | RewritesOutcome, *, verbose: bool) -> list[str]:
    if not isinstance(outcome, LearnOutcome):
        return _lines_of_rewrites(outcome, verbose=verbose)
    learned = outcome.learned
    nodes = counted(len(learned.nodes), "node")
    matches = "1 match" if learned.matches == 1 else f"{learned.matches} matches"
    rule = f"Learned {learned.rule.qualified_name} from {nodes}"
    notes = [f"note: {note}" for note in learned.notes if verbose]
    return [f"{rule}: {matches} in {outcome.label}.", *notes]


def _lines_of_rewrites(outcome: RewritesOutcome, *, verbose: bool) -> list[str]:
    """Say what was learned from two models, and how much of the difference it explains."""
    lines = [_said(item) for item in (*outcome.learned, *outcome.unproved)]
    if outcome.unproved:
        count, is_one = len(outcome.unproved), len(outcome.unproved) == 1
        rules = f"{counted(count, 'rule')} that {'is' if is_one else 'are'} not proved"
        stand = "stands" if is_one else "stand"
        lines.append(f"{rules} {stand} in the catalogue as comments (--unproved writes all).")
    left = sum(each.places for each in outcome.left)
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
    for what, count, counterexample in shown:
        lines.append(f"  {count} x {what}")
        lines += [f"    {line}" for line in counterexample.splitlines() if verbose]
    if len(shown) < len(outcome.left):
        lines.append(f"  and {len(outcome.left) - len(shown)} more kinds (-v shows them)")
    if outcome.beyond:
        places = counted(outcome.beyond, "place")
        lines.append(f"The rules also change {places} that {outcome.after} has as before.")
    made = f"What they make of {outcome.before}"
    if outcome.learned and outcome.delivery is None:
        lines.append(f"{made} was not run, as asked.")
    elif outcome.learned and outcome.checked is not None and outcome.checked.is_sound:
        lines.append(f"{made} is equivalent to it in onnxruntime.")
    return lines


def _said(item: LearnedRewrite) -> str:
    is_tried = item.trial.verdict == "passed"
    graphs = f"tried on {counted(item.trial.graphs, 'graph')} made up for it"
    tried = graphs if is_tried else f"not proved: {item.trial.reason}"
    return f"{item.rule.name}: {counted(item.places, 'place')}, {tried}"


def _warnings(outcome: RewritesOutcome) -> Iterator[str]:
    """Warn of a result that the check refuses, and of a budget that was spent."""
    delivery = outcome.delivery
    if outcome.spent is not None:
        yield f"the budget of {counted(outcome.spent, 'trial')} was spent (--budget N tries more)"
    if isinstance(delivery, str):
        yield f"what the rules make of {outcome.before} could not be run: {delivery}"
    elif delivery is not None and not delivery.is_sound:
        for failure in delivery.failures:
            yield f"{outcome.before}, rewritten by the rules: {failure}"
        found = delivery.verification
        yield from () if found is None else (*found.objections, *found.doubts)
