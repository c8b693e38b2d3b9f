"""What became of functions that were inlined, and of a part that was cut out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.report.document import DrawnStep, key_of
from dplcli.report.layout import Group, Text
from dplcli.report.result import delivered, drawn_result, ending, result_document
from dplcli.report.tables import named, note, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.outcomes.written import ExtractOutcome, InlineOutcome
    from dplcli.passes.inline import InlinedCall, Inlining, RefusedCall
    from dplcli.report.document import Document
    from dplcli.report.layout import Part


def inline_document(outcome: InlineOutcome, *, file: Path | None = None) -> Document:
    """Report on a model whose functions were inlined.

    Args:
        outcome: What was done.
        file: The model.
    """

    def steps() -> list[DrawnStep]:
        return [
            DrawnStep(
                each.function.qualified_name,
                f"{each.call.label}: {counted(len(each.nodes), 'node')} took its place",
                ([key_of(each.call)], [key_of(node) for node in each.nodes]),
            )
            for each in outcome.inlining.calls
        ]

    return result_document(
        "dpl inline",
        outcome,
        partial(_inline_text, outcome),
        draws=lambda: drawn_result(outcome, file, steps()),
    )


def _inline_text(outcome: InlineOutcome, *, verbose: bool) -> Part:
    inlining = outcome.inlining
    parts: list[Part] = [_inline_table(inlining)]
    if not inlining.functions and outcome.functions:
        what = counted(outcome.functions, "function")
        parts = [Text(f"dpl wrote none of the model's {what}; --all-functions inlines them.")]
    if verbose and (inlining.calls or inlining.refused):
        parts += [Text(), _call_list(inlining)]
    if inlining.functions:
        parts += [Text(), *_inline_summary(outcome)]
    end = ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
    return Group(*parts, *map(note, outcome.notes), *end)


def _inline_table(inlining: Inlining) -> Part:
    """Return one row for each function: calls inlined, nodes put in, calls kept and why."""
    if not inlining.functions:
        return Text("There is no function to inline.")
    groups: dict[str, tuple[list[Any], list[Any]]] = {
        each.qualified_name: ([], []) for each in inlining.functions
    }
    sides: tuple[Sequence[InlinedCall | RefusedCall], ...] = (inlining.calls, inlining.refused)
    for side, calls in enumerate(sides):
        for call in calls:
            groups.setdefault(call.function.qualified_name, ([], []))[side].append(call)
    rows = []
    for name, (done, kept) in groups.items():
        left = (len(kept), kept[0].reason if kept else "") if inlining.refused else (None, None)
        rows.append((name, len(done), sum(len(each.nodes) for each in done), *left))
    columns = "function calls_inlined:count nodes:count calls_kept:count? why:prose?"
    return table_of(rows, "Functions", columns)


def _call_list(inlining: Inlining) -> Part:
    """Return one row for each call that was replaced, and for each that stays."""
    rows = [
        (each.call.label, each.function.qualified_name, each.scope, named(each.nodes))
        for each in inlining.calls
    ]
    rows += [
        (call.label, function.qualified_name, scope_of(call.graph), reason)
        for function, call, reason in inlining.refused
    ]
    return table_of(rows, "Calls", "call function scope nodes:prose")


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


def extract_document(outcome: ExtractOutcome) -> Document:
    """Report on a part that was cut out of a model."""
    (before, after), weights = outcome.nodes, counted(outcome.weights, "weight")
    size = f", {outcome.data:,} bytes of external data" if outcome.data else ""
    sides = (("input", outcome.inputs), ("output", outcome.outputs))
    ends = table_of(
        [(side, name) for side, names in sides for name in names], "Ends of the part", "= value"
    )
    said = Text(f"{after:,} of {counted(before, 'node')} and {weights}{size}.")
    end = (*map(note, outcome.notes), *delivered(outcome.delivery, is_changed=True))
    whole = Group(ends, Text(), said, *end)
    return result_document("dpl extract", outcome, lambda **_: whole)
