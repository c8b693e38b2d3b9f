"""What rules replaced: as a tree of turns, and as a document."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.language.matcher import reach_of
from dplcli.passes.rewrite import Application, list_nodes
from dplcli.report.document import DrawnStep
from dplcli.report.layout import Group, Text
from dplcli.report.result import drawn_result, ending, result_document
from dplcli.report.tables import (
    hint,
    note,
    refusal_list,
    rule_table,
    rule_uses,
    table_of,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from dplcli.outcomes.rewriting import RewriteOutcome
    from dplcli.passes.rewrite import Trace
    from dplcli.report.document import Document, NodeKey
    from dplcli.report.layout import Part


# What a rewrite did, turn by turn: as a tree to read, and as JSON.


def trace_lines(trace: Trace) -> Iterator[str]:
    """Yield a tree: the rounds, in each the turns of rules, in each what was applied or refused."""
    number = 0
    for turn in trace.turns:
        if turn.round != number:
            number = turn.round
            yield f"round {number}"
        applied = f", applied {times(turn.applied)}" if turn.applied else ""
        yield f"  {turn.rule}: {counted(turn.candidates, 'candidate')}{applied}"
        for event in turn.events:
            if isinstance(event, Application):
                yield f"    {event.number}. {event.text}"
                continue
            where = "" if event.scope == "main" else f" in {event.scope}"
            place = f"{list_nodes([event.root])}{where}"
            yield f"    refused at {place} by {event.stage}: {event.reason}"
    if not trace.turns:
        yield "no rule has anything to look at"


# What a rewrite did, as a document.


_MOST_CHANGED = 4


def rewrite_document(
    outcome: RewriteOutcome, *, file: Path | None = None, catalogs: Iterable[Path | str] = ()
) -> Document:
    """Report on a model that was rewritten by rules or by a plan.

    Args:
        outcome: What was done.
        file: The model.
        catalogs: What was named on the command line.
    """
    return result_document(
        "dpl rewrite" if outcome.plan is None else "dpl apply",
        outcome,
        partial(_rewrite_text, outcome),
        draws=lambda: drawn_result(outcome, file, _steps(outcome.applications)),
        catalogs=catalogs,
    )


def _steps(applications: Sequence[Application]) -> list[DrawnStep]:
    """Return what each application took from the first graph, and what is left of it in the last.

    What it takes may have been made by applications before it, and what it makes may be taken by
    those behind it: such nodes stand for what they were made of, and for what became of them.
    """
    edits = [
        [[(item.scope, node.output) for node in nodes] for nodes in (item.removed, item.added)]
        for item in applications
    ]
    taken = _traced(edits)
    left = _traced([[after, before] for before, after in reversed(edits)])
    return [
        DrawnStep(f"{item.number}. {item.rule}", item.text, tuple(nodes))
        for item, *nodes in zip(applications, taken, reversed(left), strict=True)
    ]


def _traced(edits: Iterable[Sequence[Iterable[NodeKey]]]) -> list[list[NodeKey]]:
    """Return what each edit took in the end, if what others made stands for what they took."""
    ends: dict[NodeKey, list[NodeKey]] = {}
    taken = []
    for before, after in edits:
        taken.append([*dict.fromkeys(end for key in before for end in ends.get(key, [key]))])
        ends |= dict.fromkeys(after, taken[-1])
    return taken


def _listed(outcome: RewriteOutcome) -> Iterator[Part]:
    """Yield every application and refusal."""
    if outcome.applications:
        yield from (Text(), table_of(outcome.applications, "Applications"))
    if outcome.refused:
        yield from (Text(), refusal_list(outcome.refused))


def _rewrite_text(outcome: RewriteOutcome, *, verbose: bool) -> Part:
    """Return the tables of rules and changes, then the check and the file."""
    parts: list[Part] = [_rules(outcome, verbose=verbose)]
    parts += _listed(outcome) if verbose else ()
    is_whole = outcome.broken is None and (outcome.may_miss or not outcome.missing)
    if outcome.is_changed and is_whole:
        parts += [Text(), *_changes(outcome, None if verbose else _MOST_CHANGED)]
    parts += [*map(note, outcome.notes), *map(hint, outcome.hints)]
    if outcome.may_miss:
        parts += [Text(f"left out: {line}", style="yellow") for line in outcome.misfits]
    if outcome.is_dry:
        parts.append(Text("Nothing was verified or written, as asked.", style="yellow"))
    else:
        parts += ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
    return Group(*parts)


def _rules(outcome: RewriteOutcome, *, verbose: bool) -> Part:
    """Return one row for each rule; for a plan, only the rules that it names."""
    plan = outcome.plan
    if plan is None:
        counts = {r: count for r, count in outcome.counts.items() if r not in outcome.untried}
        if not counts:
            return Text("No rule was to be tried.")
        if outcome.is_stopped:  # of rules that were not reached nothing is known
            met = {item.rule.qualified_name for item in outcome.refused}
            counts = {rule: count for rule, count in counts.items() if count or rule in met}
        if not counts:
            return Text("Stopped before any rule was applied.")
        hidden = set() if verbose else _unremarkable(outcome)
        uses = rule_uses(counts, outcome.refused, verbose=verbose)
        return rule_table(uses, len(counts), "applied", hidden=hidden, is_brief=not verbose)
    listed = Counter(entry.rule for entry in plan.entries)
    if not listed:
        return Text("The plan lists nothing.")
    rows = [(rule, listed[rule], n) for rule, n in outcome.counts.items() if rule in listed]
    return table_of(rows, "Rules", "rule listed:count applied:count")


def _unremarkable(outcome: RewriteOutcome) -> set[str]:
    """Name the rules that did nothing and came nowhere near a match.

    A pattern of one node fits every node of its operator. If its conditions refuse them all, that
    is no near miss; with a pattern of several nodes it is one.
    """
    rules = {item.rule.qualified_name: item.rule for item in outcome.refused}
    others = {item.rule.qualified_name for item in outcome.refused if item.stage != "where"}
    return {
        name
        for name, rule in rules.items()
        if name not in others and not outcome.counts[name] and reach_of(rule.pattern) == 1
    }


def _changes(outcome: RewriteOutcome, most: int | None = None) -> list[Part]:
    """Return the operators whose count changed, the totals, and the number of rounds.

    Args:
        outcome: What was done.
        most: How many operators to show, those that changed most; None for all.
    """
    changed = [(op, old, new) for op, (old, new) in outcome.by_op.items() if old != new]
    shown = sorted(sorted(changed, key=lambda row: -abs(row[2] - row[1]))[:most])
    left = len(changed) - len(shown)
    others = [f"{counted(left, 'other operator')} changed (--verbose shows them)"] if left else []
    what = "all but Constant" if "Constant" in outcome.by_op else "all nodes"
    counts = [*shown, (what, *outcome.nodes), ("bytes", *outcome.size)]
    columns = "operator before:count after:count"
    table = table_of(counts, "Operators before and after", columns)
    count = len(outcome.applications)
    if count:
        done = counted(count, "application")
        rounds = "1 round" if outcome.rounds == 1 else f"{outcome.rounds} rounds"
        stopped = ", then stopped as asked" if outcome.is_stopped else ""
        others.insert(0, f"{done} in {rounds}{stopped}")
    return [table, *([Text(f"{'; '.join(others)}.")] if others else [])]
