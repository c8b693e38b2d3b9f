"""What rewriting and inlining did: as tables, as sentences on why the answer is no, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.dpl.matcher import reach_of
from dplcli.ir.model import scope_of
from dplcli.passes.rewrite import Application, list_nodes
from dplcli.report.document import broken_rule, result_document, rule_uses, verdict_record
from dplcli.report.json import record_of
from dplcli.report.layout import Group, Table, Text
from dplcli.report.tables import check_failure, counted, ending, note, refusal_list, rule_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dplcli.ir import Function
    from dplcli.outcomes import BrokenTurn, InlineOutcome, RewriteOutcome
    from dplcli.passes.inline import Inlining, RefusedCall
    from dplcli.passes.rewrite import Refusal, Trace, TracedTurn
    from dplcli.report.document import Document
    from dplcli.report.layout import Part

    Json = dict[str, Any]


# What inlining did.


def inline_document(outcome: InlineOutcome, *, is_verified: bool, verbose: bool) -> Document:
    """Report on a model whose functions were inlined.

    Args:
        outcome: What was done.
        is_verified: Whether the result was to be verified.
        verbose: Whether to list every call.
    """
    inlining = outcome.inlining
    parts: list[Part] = [_inline_table(inlining)]
    if not inlining.functions and outcome.functions:
        what = "1 function" if outcome.functions == 1 else f"{outcome.functions} functions"
        parts = [Text(f"dpl wrote none of the model's {what}; --all-functions inlines them.")]
    if verbose and (inlining.calls or inlining.refused):
        parts += [Text(), _call_list(inlining)]
    if inlining.functions:
        parts += [Text(), *_inline_summary(outcome)]
    parts += map(note, outcome.notes)
    parts += ending(outcome.verdict, is_changed=outcome.is_changed, is_verified=is_verified)
    return result_document(
        "dpl inline",
        outcome,
        text=Group(*parts),
        record=lambda: _inline_record(outcome),
        failures=check_failure(outcome.verdict),
        nodes=outcome.nodes,
        done=("calls inlined", len(inlining.calls)),
    )


def _inline_record(outcome: InlineOutcome) -> Json:
    """Return the record ``dpl.inline/1``."""
    inlining = outcome.inlining
    return {
        "schema": "dpl.inline/1",
        "model": outcome.label,
        "counts": _counts(inlining),
        "calls": [
            {**record_of(item), "function": _function(item.function)} for item in inlining.calls
        ],
        "refused": [_refusal(item) for item in inlining.refused],
        "removed": [_function(function) for function in inlining.removed],
        "nodes": {"before": outcome.nodes[0], "after": outcome.nodes[1]},
        **verdict_record(outcome.verdict),
    }


def _refusal(item: RefusedCall) -> Json:
    return {
        "function": _function(item.function),
        "call": record_of(item.call),
        "scope": scope_of(item.call.graph),
        "reason": item.reason,
    }


def _function(function: Function) -> Json:
    overload = {"overload": function.overload} if function.overload else {}
    return {**record_of(function), **overload}


def _counts(inlining: Inlining) -> dict[str, int]:
    counts = {_name(function): 0 for function in inlining.functions}
    for item in inlining.calls:
        counts[_name(item.function)] += 1
    return counts


def _name(function: Function) -> str:
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}::{function.name}{overload}"


def _inline_table(inlining: Inlining) -> Part:
    """Return one row per function: its calls replaced, nodes put in, calls that stay and why."""
    if not inlining.functions:
        return Text("There is no function to inline.")
    columns = ("calls inlined", "nodes")
    refused = {_name(item.function): item.reason for item in reversed(inlining.refused)}
    more = ("calls kept", "why") if refused else ()
    table = Table("function", *columns, *more, right=(*columns, "calls kept"), prose=("why",))
    nodes = dict.fromkeys(_counts(inlining), 0)
    for item in inlining.calls:
        nodes[_name(item.function)] += len(item.nodes)
    for name, count in _counts(inlining).items():
        stay = sum(_name(item.function) == name for item in inlining.refused)
        reasons = (str(stay), refused.get(name, "")) if refused else ()
        table.add_row(name, str(count), str(nodes[name]), *reasons)
    return table


def _call_list(inlining: Inlining) -> Part:
    """Return one row per call that was replaced, and per call that stays."""
    table = Table("call", "function", "scope", "nodes", prose=("nodes",))
    for item in inlining.calls:
        made = " ".join(f"{node.op_type}:{node.label}" for node in item.nodes)
        table.add_row(item.call.label, _name(item.function), item.scope, made)
    for refused in inlining.refused:
        scope = scope_of(refused.call.graph)
        table.add_row(refused.call.label, _name(refused.function), scope, refused.reason)
    return table


def _inline_summary(outcome: InlineOutcome) -> list[Text]:
    """Say what is gone, how the main graph has grown, and what got new names."""
    count = len(outcome.inlining.removed)
    gone = "1 function was" if count == 1 else f"{count} functions were"
    before, after = outcome.nodes
    lines = [Text(f"{gone} removed; the main graph went from {before} to {after} nodes.")]
    new = sum(not item.is_restored for item in outcome.inlining.calls)
    if new:
        what = "1 call does" if new == 1 else f"{new} calls do"
        lines.append(Text(f"{what} not say what was there before; the nodes got new names."))
    return lines


# What a rewrite did, turn by turn: as a tree to read, and as JSON.


def trace_lines(trace: Trace) -> Iterator[str]:
    """Yield a tree: rounds, the rules that had a turn in them, what each did and did not do."""
    number = 0
    for turn in trace.turns:
        if turn.round != number:
            number = turn.round
            yield f"round {number}"
        yield f"  {turn.rule}: {counted(turn.candidates, 'candidate')}{_outcome(turn)}"
        for event in turn.events:
            yield f"    {_told(event)}"
    if not trace.turns:
        yield "no rule has anything to look at"


def _outcome(turn: TracedTurn) -> str:
    return f", applied {_times(turn.applied)}" if turn.applied else ""


def _told(event: Application | Refusal) -> str:
    if isinstance(event, Application):
        return f"{event.number}. {sentence(event)}"
    return (
        f"refused at {list_nodes([event.root])}{_place(event.scope)} by {event.stage}: "
        f"{event.reason}"
    )


def sentence(application: Application) -> str:
    """Say what an application did: ``replaced Conv 'c', Relu 'r' by FusedConv 'c'``."""
    removed, added = list_nodes(application.removed), list_nodes(application.added)
    if not removed:
        done = f"added {added}" if added else f"changed {list_nodes([application.root])}"
    else:
        done = f"replaced {removed} by {added}" if added else f"removed {removed}"
    return f"{done}{_place(application.scope)}"


def _place(scope: str) -> str:
    return "" if scope == "main" else f" in {scope}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def trace_record(trace: Trace, label: str) -> Json:
    """Return the record ``dpl.trace/1``."""
    return {
        "schema": "dpl.trace/1",
        "model": label,
        "turns": [
            {
                "round": turn.round,
                "rule": turn.rule,
                "candidates": turn.candidates,
                "applied": turn.applied,
                "events": [_event(event) for event in turn.events],
            }
            for turn in trace.turns
        ],
    }


def _event(event: Application | Refusal) -> Json:
    if isinstance(event, Application):
        return {"event": "applied", **_application(event)}
    return {"event": "refused", **record_of(event)}


def _application(item: Application) -> Json:
    """Return what identifies one application, and what it did."""
    return {
        "id": item.number,
        "rule": item.rule,
        "scope": item.scope,
        "root": record_of(item.root),
        "removed": record_of(item.removed),
        "added": record_of(item.added),
    }


# What a rewrite did, in every form.


_MOST_NAMED = 10


def rewrite_document(
    command: str,
    outcome: RewriteOutcome,
    *,
    catalogues: Iterable[Path | str],
    is_verified: bool,
    verbose: bool,
) -> Document:
    """Report on a model that was rewritten by rules or by a plan.

    Args:
        command: What was run.
        outcome: What was done.
        catalogues: What was named on the command line.
        is_verified: Whether the result was to be verified.
        verbose: Whether to list every application and refusal.
    """
    broken = outcome.broken
    before, after = (sum(ops.values()) for ops in outcome.ops)
    return result_document(
        command,
        outcome,
        text=_rewrite_text(outcome, is_verified=is_verified, verbose=verbose),
        record=lambda: _rewrite_record(outcome),
        failures=_reasons(outcome),
        nodes=(before, after),
        done=("applications", len(outcome.applications)),
        rules=rule_uses(outcome.counts, outcome.refused),
        findings=broken_rule(
            outcome.rules,
            outcome.counts,
            outcome.verification,
            catalogues=catalogues,
            blamed=None if broken is None else broken.rule,
            reason="" if broken is None else broken.reason,
        ),
        is_dry=outcome.is_dry,
    )


def _rewrite_text(outcome: RewriteOutcome, *, is_verified: bool, verbose: bool) -> Part:
    """Return the tables: rules, what changed, the check; then what was written."""
    parts: list[Part] = [_rules(outcome, verbose=verbose)]
    if verbose:
        parts += _listing(outcome)
    is_whole = outcome.broken is None and (outcome.may_miss or not outcome.missing)
    if outcome.is_changed and is_whole:
        parts += [Text(), *_changes(outcome)]
    parts += map(note, outcome.notes)
    if outcome.may_miss:
        parts += [Text(f"left out: {line}", style="yellow") for line in _missing(outcome)]
    if outcome.is_dry:
        parts.append(Text("Nothing was verified or written, as asked.", style="yellow"))
    else:
        parts += ending(outcome.verdict, is_changed=outcome.is_changed, is_verified=is_verified)
    return Group(*parts)


def _rules(outcome: RewriteOutcome, *, verbose: bool) -> Part:
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


def _unremarkable(outcome: RewriteOutcome) -> set[str]:
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


def _listing(outcome: RewriteOutcome) -> list[Part]:
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


def _changes(outcome: RewriteOutcome) -> list[Part]:
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
    done = counted(count, "application")
    rounds = "1 round" if outcome.rounds == 1 else f"{outcome.rounds} rounds"
    stopped = ", then stopped as asked" if outcome.is_stopped else ""
    return [table, Text(f"{done} in {rounds}{stopped}.")]


def _reasons(outcome: RewriteOutcome) -> list[str]:
    """Say why the answer is no, a sentence a line."""
    lines = list(outcome.unmet)
    if outcome.missing and not outcome.may_miss:
        lines += _missing(outcome)
    if outcome.growth:
        lines.append(outcome.growth)
    if outcome.broken is not None:
        lines += _blame(outcome.broken)
    else:
        lines += check_failure(outcome.verdict)
    return lines


def _missing(outcome: RewriteOutcome) -> list[str]:
    """Say of each entry of the plan that does not fit where it stands, and why."""
    if outcome.plan is None:
        return []
    place = outcome.plan.place
    return [
        f"{place(entry)}: {entry.rule} does not fit at {entry.output!r} in {entry.scope}: {reason}"
        for entry, reason in outcome.missing
    ]


def _blame(broken: BrokenTurn) -> list[str]:
    done = [f"  {item.number}. {sentence(item)}" for item in broken.applications]
    if len(done) > _MOST_NAMED:
        done = [*done[:_MOST_NAMED], f"  and {len(done) - _MOST_NAMED} more"]
    culprit = f"the rule {broken.rule}" if broken.rule else "raising the opset"
    when = f" in round {broken.round}" if broken.rule else ""
    return [f"{culprit} breaks the model{when}: {broken.reason}", *done]


def _rewrite_record(outcome: RewriteOutcome) -> Json:
    """Return the record ``dpl.rewrite/1``."""
    broken = outcome.broken
    before, after = outcome.ops
    return {
        "schema": "dpl.rewrite/1",
        "counts": dict(outcome.counts),
        "unmet": list(outcome.unmet),
        "applications": [_application(item) for item in outcome.applications],
        "rounds": outcome.rounds,
        "refused": record_of(outcome.refused),
        "missing": _missing(outcome),
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
        **verdict_record(outcome.verdict),
    }
