"""What a rewrite did: as tables, as sentences on why the answer is no, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.dpl.reach import reach_of
from dplcli.passes.applications import list_nodes
from dplcli.report.catalog_findings import broken_rule
from dplcli.report.document import Document, result_document, rule_uses
from dplcli.report.layout import Table, Text
from dplcli.report.records import refusals
from dplcli.report.tables import refusal_list, rule_table
from dplcli.report.trace_report import application_record, sentence
from dplcli.report.written_report import check_failure, ending, whereabouts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dplcli.report.layout import Part
    from dplcli.report.rewrite_summary import Broken, Rewritten

    Json = dict[str, Any]

_MOST_NAMED = 10


def rewrite_report(outcome: Rewritten, *, is_verified: bool, verbose: bool) -> list[Part]:
    """Return the tables: rules, what changed, the check; then what was written.

    Args:
        outcome: What was done.
        is_verified: Whether the result was to be verified.
        verbose: Whether to list every application and refusal.
    """
    parts: list[Part] = [_rules(outcome, verbose=verbose)]
    if verbose:
        parts += _listing(outcome)
    is_whole = outcome.broken is None and (outcome.may_miss or not outcome.missing)
    if outcome.is_changed and is_whole:
        parts += [Text(), *_changes(outcome)]
    parts += [Text(f"note: {note}", style="yellow") for note in outcome.notes]
    if outcome.may_miss:
        parts += [Text(f"left out: {line}", style="yellow") for line in missing_lines(outcome)]
    return parts + _ending(outcome, is_verified=is_verified)


def _rules(outcome: Rewritten, *, verbose: bool) -> Part:
    """Return one row per rule; where a plan is applied only of the rules that it names."""
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
        hidden = set() if verbose else _unremarkable(outcome) & counts.keys()
        return rule_table(counts, outcome.refused, counted="applied", hidden=hidden)
    named = {entry.rule for entry in plan.entries}
    if not named:
        return Text("The plan lists nothing.")
    table = Table("rule", "listed", "applied", right=("listed", "applied"))
    for rule, count in outcome.counts.items():
        if rule in named:
            listed = sum(entry.rule == rule for entry in plan.entries)
            table.add_row(rule, str(listed), str(count))
    return table


def _unremarkable(outcome: Rewritten) -> set[str]:
    """Name the rules that did nothing, and fit nowhere.

    A pattern of one node is found at every node of its operator: what its conditions refuse is no
    match that almost was, as it is with a pattern of several nodes.
    """
    rules = {item.rule.qualified_name: item.rule for item in outcome.refused}
    others = {item.rule.qualified_name for item in outcome.refused if item.stage != "where"}
    return {
        name
        for name, rule in rules.items()
        if name not in others and not outcome.counts[name] and reach_of(rule.pattern) == 1
    }


def _listing(outcome: Rewritten) -> list[Part]:
    parts: list[Part] = []
    if outcome.applications:
        table = Table(
            "", "rule", "scope", "removed", "added", right=("",), prose=("removed", "added")
        )
        for item in outcome.applications:
            removed, added = list_nodes(item.removed), list_nodes(item.added)
            table.add_row(str(item.number), item.rule, item.scope, removed, added)
        parts += [Text(), table]
    if outcome.refused:
        parts += [Text(), refusal_list(outcome.refused)]
    return parts


def _changes(outcome: Rewritten) -> list[Part]:
    """Return the operators whose number changed, the totals, and how many rounds it took."""
    before, after = outcome.ops
    table = Table("operator", "before", "after", right=("before", "after"))
    for op in sorted(before.keys() | after.keys()):
        old, new = before.get(op, 0), after.get(op, 0)
        if old != new:
            table.add_row(op, f"{old:,}", f"{new:,}")
    table.add_row("all nodes", f"{sum(before.values()):,}", f"{sum(after.values()):,}")
    table.add_row("bytes", *(f"{size:,}" for size in outcome.size))
    count = len(outcome.applications)
    if not count:
        return [table]
    done = "1 application" if count == 1 else f"{count:,} applications"
    rounds = "1 round" if outcome.rounds == 1 else f"{outcome.rounds} rounds"
    stopped = ", then stopped as asked" if outcome.is_stopped else ""
    return [table, Text(f"{done} in {rounds}{stopped}.")]


def _ending(outcome: Rewritten, *, is_verified: bool) -> list[Part]:
    if outcome.is_dry:
        return [Text("Nothing was verified or written, as asked.", style="yellow")]
    return ending(outcome.verdict, is_changed=outcome.is_changed, is_verified=is_verified)


def rewrite_failures(outcome: Rewritten) -> list[str]:
    """Say why the answer is no, a sentence a line, and where the result is."""
    where = [] if outcome.is_dry else [whereabouts(outcome.verdict)]
    return [*_reasons(outcome), *where]


def _reasons(outcome: Rewritten) -> list[str]:
    lines = list(outcome.unmet)
    if outcome.missing and not outcome.may_miss:
        lines += missing_lines(outcome)
    if outcome.growth:
        lines.append(outcome.growth)
    if outcome.broken is not None:
        lines += _blame(outcome.broken)
    else:
        lines += check_failure(outcome.verdict)
    return lines


def rewrite_document(
    command: str, outcome: Rewritten, catalogues: Iterable[Path | str]
) -> Document:
    """Return what the other forms of report say.

    Args:
        command: What was run.
        outcome: What was done.
        catalogues: What was named on the command line.
    """
    verdict, broken = outcome.verdict, outcome.broken
    before, after = outcome.ops
    blamed = None if broken is None else broken.rule
    return result_document(
        command,
        outcome.label,
        verdict.verification,
        ok=outcome.is_success,
        failures=[] if outcome.is_success else _reasons(outcome),
        notes=outcome.notes,
        facts=[
            ("nodes before", f"{sum(before.values()):,}"),
            ("nodes after", f"{sum(after.values()):,}"),
            ("applications", f"{len(outcome.applications):,}"),
        ],
        rules=rule_uses(outcome.counts, outcome.refused),
        findings=broken_rule(
            outcome.rules,
            outcome.counts,
            verdict.verification,
            catalogues=catalogues,
            blamed=blamed,
            reason="" if broken is None else broken.reason,
        ),
    )


def missing_lines(outcome: Rewritten) -> list[str]:
    """Say of each entry of the plan that does not fit where it stands, and why."""
    if outcome.plan is None:
        return []
    place = outcome.plan.place
    return [
        f"{place(entry)}: {entry.rule} does not fit at {entry.output!r} in {entry.scope}: {reason}"
        for entry, reason in outcome.missing
    ]


def _blame(broken: Broken) -> list[str]:
    done = [f"  {item.number}. {sentence(item)}" for item in broken.applications]
    if len(done) > _MOST_NAMED:
        done = [*done[:_MOST_NAMED], f"  and {len(done) - _MOST_NAMED} more"]
    culprit = f"the rule {broken.rule}" if broken.rule else "raising the opset"
    when = f" in round {broken.round}" if broken.rule else ""
    return [f"{culprit} breaks the model{when}: {broken.reason}", *done]


def rewrite_record(outcome: Rewritten) -> Json:
    """Return the record ``dpl.rewrite/1``."""
    verdict, broken = outcome.verdict, outcome.broken
    before, after = outcome.ops
    return {
        "schema": "dpl.rewrite/1",
        "counts": dict(outcome.counts),
        "unmet": list(outcome.unmet),
        "applications": [application_record(item) for item in outcome.applications],
        "rounds": outcome.rounds,
        "refused": refusals(outcome.refused),
        "missing": missing_lines(outcome),
        "broken": None
        if broken is None
        else {
            "rule": broken.rule,
            "round": broken.round,
            "applications": [item.number for item in broken.applications],
            "reason": broken.reason,
        },
        "nodes": {
            "before": sum(before.values()),
            "after": sum(after.values()),
            "by_op": {
                op: {"before": before.get(op, 0), "after": after.get(op, 0)}
                for op in sorted(before.keys() | after.keys())
            },
        },
        "bytes": {"before": outcome.size[0], "after": outcome.size[1]},
        "growth": outcome.growth,
        "objection": verdict.objection,
        "verification": None if verdict.verification is None else verdict.verification.to_json(),
    }
