"""What rewriting and inlining did, as tables, sentences and JSON."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dplcli.dpl.matcher import reach_of
from dplcli.errors import counted
from dplcli.escaping import one_line
from dplcli.ir.model import scope_of
from dplcli.passes.rewrite import Application, list_nodes
from dplcli.report import tables
from dplcli.report.document import (
    DrawnStep,
    findings_of,
    key_of,
    result_document,
    rule_uses,
)
from dplcli.report.layout import Group, Text, TextTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from dplcli.outcomes import ExtractOutcome, InlineOutcome, RewriteOutcome
    from dplcli.passes.inline import InlinedCall, Inlining, RefusedCall
    from dplcli.passes.rewrite import Trace
    from dplcli.report.document import Document, NodeKey
    from dplcli.report.layout import Part

    Json = dict[str, Any]

    Call = TypeVar("Call", InlinedCall, RefusedCall)


# What inlining did.


def inline_document(outcome: InlineOutcome, *, file: Path | None = None) -> Document:
    """Report on a model whose functions were inlined.

    Args:
        outcome: What was done.
        file: The model.
    """
    return result_document(
        "dpl inline",
        outcome,
        said=partial(_inline_text, outcome),
        failures=tables.check_failure(outcome.delivery),
        done=("calls inlined", len(outcome.inlining.calls)),
        counted="nodes of the main graph",
        original=file,
        steps=lambda: [
            DrawnStep(
                call.function.qualified_name,
                f"{call.call.label}: {counted(len(call.nodes), 'node')} took its place",
                ([key_of(call.call)], [key_of(node) for node in call.nodes]),
            )
            for call in outcome.inlining.calls
        ],
    )


def _inline_text(outcome: InlineOutcome, *, verbose: bool) -> Part:
    inlining = outcome.inlining
    parts: list[Part] = [_inline_table(inlining)]
    if not inlining.functions and outcome.functions:
        what = "1 function" if outcome.functions == 1 else f"{outcome.functions} functions"
        parts = [Text(f"dpl wrote none of the model's {what}; --all-functions inlines them.")]
    if verbose and (inlining.calls or inlining.refused):
        parts += [Text(), _call_list(inlining)]
    if inlining.functions:
        parts += [Text(), *_inline_summary(outcome)]
    end = tables.ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
    return Group(*parts, *map(tables.note, outcome.notes), *end)


def extract_document(outcome: ExtractOutcome) -> Document:
    """Report on a part that was cut out of a model."""
    (before, after), weights = outcome.nodes, counted(outcome.weights, "weight")
    size = f", {outcome.data:,} bytes of external data" if outcome.data else ""
    sides = (("input", outcome.inputs), ("output", outcome.outputs))
    rows = [(side, one_line(name, None)) for side, names in sides for name in names]
    said = Text(f"{after:,} of {counted(before, 'node')} and {weights}{size}.")
    end = (*map(tables.note, outcome.notes), *tables.delivered(outcome.delivery, is_changed=True))
    text = Group(TextTable("", "value", rows=rows, title="Ends of the part"), Text(), said, *end)
    done = ("nodes taken", after)
    return result_document("dpl extract", outcome, said=text, failures=(), done=done)


def _by_function(inlining: Inlining, calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Group *calls* by the name of their function, functions without any included."""
    groups: dict[str, list[Call]] = {each.qualified_name: [] for each in inlining.functions}
    for call in calls:
        groups.setdefault(call.function.qualified_name, []).append(call)
    return groups


def _inline_table(inlining: Inlining) -> Part:
    """Return one row for each function: calls inlined, nodes put in, calls kept and why."""
    if not inlining.functions:
        return Text("There is no function to inline.")
    columns = ("calls inlined", "nodes")
    more = ("calls kept", "why") if inlining.refused else ()
    right = (*columns, "calls kept")
    table = TextTable("function", *columns, *more, right=right, prose=("why",), title="Functions")
    refused = _by_function(inlining, inlining.refused)
    for name, calls in _by_function(inlining, inlining.calls).items():
        kept = refused[name]
        reasons = (str(len(kept)), kept[0].reason if kept else "") if more else ()
        nodes = sum(len(call.nodes) for call in calls)
        table.add_row(name, str(len(calls)), str(nodes), *reasons)
    return table


def _call_list(inlining: Inlining) -> Part:
    """Return one row for each call that was replaced, and for each that stays."""
    columns = ("call", "function", "scope", "nodes")
    table = TextTable(*columns, prose=("nodes",), title="Calls")
    for done in inlining.calls:
        name, nodes = done.function.qualified_name, tables.named(*done.nodes)
        table.add_row(done.call.label, name, done.scope, nodes)
    for function, call, reason in inlining.refused:
        table.add_row(call.label, function.qualified_name, scope_of(call.graph), reason)
    return table


def _inline_summary(outcome: InlineOutcome) -> list[Text]:
    """Say which functions are gone, how the main graph grew, and which nodes got new names."""
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
    """Yield a tree: the rounds, in each the turns of rules, in each what was applied or refused."""
    number = 0
    for turn in trace.turns:
        if turn.round != number:
            number = turn.round
            yield f"round {number}"
        applied = f", applied {tables.times(turn.applied)}" if turn.applied else ""
        yield f"  {turn.rule}: {counted(turn.candidates, 'candidate')}{applied}"
        for event in turn.events:
            if isinstance(event, Application):
                yield f"    {event.number}. {sentence(event)}"
                continue
            place = f"{list_nodes([event.root])}{_in_scope(event.scope)}"
            yield f"    refused at {place} by {event.stage}: {event.reason}"
    if not trace.turns:
        yield "no rule has anything to look at"


def sentence(application: Application) -> str:
    """Say what an application did: ``replaced Conv 'c', Relu 'r' by FusedConv 'c'``."""
    removed, added = list_nodes(application.removed), list_nodes(application.added)
    if not removed:
        done = f"added {added}" if added else f"changed {list_nodes([application.root])}"
    else:
        done = f"replaced {removed} by {added}" if added else f"removed {removed}"
    return f"{done}{_in_scope(application.scope)}"


def _in_scope(scope: str) -> str:
    return "" if scope == "main" else f" in {scope}"


# What a rewrite did, as a document.


_MOST_NAMED = 10
_MOST_CHANGED = 4


def rewrite_document(  # what was run, on what, and what is wanted of it
    command: str,
    outcome: RewriteOutcome,
    *,
    file: Path | None = None,
    catalogs: Iterable[Path | str],
) -> Document:
    """Report on a model that was rewritten by rules or by a plan.

    Args:
        command: What was run.
        outcome: What was done.
        file: The model.
        catalogs: What was named on the command line.
    """
    return result_document(
        command,
        outcome,
        said=partial(_rewrite_text, outcome),
        failures=_reasons(outcome),
        done=("applications", len(outcome.applications)),
        rules=rule_uses(outcome.counts, outcome.refused),
        findings=findings_of(outcome, catalogs),
        original=file,
        steps=lambda: _steps(outcome.applications),
        is_dry=outcome.is_dry,
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
        DrawnStep(f"{item.number}. {item.rule}", sentence(item), tuple(nodes))
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
        rows = [
            (str(a.number), a.rule, a.scope, list_nodes(a.removed), list_nodes(a.added))
            for a in outcome.applications
        ]
        prose = ("removed", "added")
        columns = ("", "rule", "scope", *prose)
        yield Text()
        yield TextTable(*columns, right=("",), prose=prose, rows=rows, title="Applications")
    if outcome.refused:
        yield Text()
        yield tables.refusal_list(outcome.refused)


def _rewrite_text(outcome: RewriteOutcome, *, verbose: bool) -> Part:
    """Return the tables of rules and changes, then the check and the file."""
    parts: list[Part] = [_rules(outcome, verbose=verbose)]
    parts += _listed(outcome) if verbose else ()
    is_whole = outcome.broken is None and (outcome.may_miss or not outcome.missing)
    if outcome.is_changed and is_whole:
        parts += [Text(), *_changes(outcome, None if verbose else _MOST_CHANGED)]
    parts += [*map(tables.note, outcome.notes), *map(tables.hint, outcome.hints)]
    if outcome.may_miss:
        parts += [Text(f"left out: {line}", style="yellow") for line in outcome.misfits]
    if outcome.is_dry:
        parts.append(Text("Nothing was verified or written, as asked.", style="yellow"))
    else:
        parts += tables.ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
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
        hidden = set() if verbose else _unremarkable(outcome) & counts.keys()
        return tables.rule_table(
            counts, outcome.refused, counted="applied", hidden=hidden, is_brief=not verbose
        )
    listed = Counter(entry.rule for entry in plan.entries)
    if not listed:
        return Text("The plan lists nothing.")
    rows = [
        (rule, str(listed[rule]), str(count))
        for rule, count in outcome.counts.items()
        if rule in listed
    ]
    columns = ("rule", "listed", "applied")
    return TextTable(*columns, right=columns[1:], rows=rows, title="Rules")


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
    rows = [(what, f"{old:,}", f"{new:,}") for what, old, new in counts]
    columns = ("operator", "before", "after")
    table = TextTable(*columns, right=columns[1:], rows=rows, title="Operators before and after")
    count = len(outcome.applications)
    if count:
        done = counted(count, "application")
        rounds = "1 round" if outcome.rounds == 1 else f"{outcome.rounds} rounds"
        stopped = ", then stopped as asked" if outcome.is_stopped else ""
        others.insert(0, f"{done} in {rounds}{stopped}")
    return [table, *([Text(f"{'; '.join(others)}.")] if others else [])]


def _reasons(outcome: RewriteOutcome) -> list[str]:
    """Return the reasons for a no, one sentence each."""
    missing = () if outcome.may_miss else outcome.misfits
    reasons = [*outcome.unmet, *missing, *filter(None, [outcome.growth])]
    broken = outcome.broken
    if broken is None:
        return reasons + tables.check_failure(outcome.delivery)
    done = [f"  {item.number}. {sentence(item)}" for item in broken.applications]
    if len(done) > _MOST_NAMED:
        done = [*done[:_MOST_NAMED], f"  and {len(done) - _MOST_NAMED} more"]
    culprit = f"the rule {broken.rule}" if broken.rule else "raising the opset"
    when = f" in round {broken.round}" if broken.rule else ""
    return [*reasons, f"{culprit} breaks the model{when}: {broken.reason}", *done]
