"""Explanations as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.tracing import headline
from dplcli.passes.explanation import describe_part
from dplcli.report.layout import Group, Table, Text, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.rule import Rule
    from dplcli.dpl.tracing import Mismatch, Trace
    from dplcli.passes.explanation import NodeExplanation, RuleExplanation
    from dplcli.report.layout import Part

_MARKS = {"matched": ("+", "green"), "failed": ("x", "red"), "not reached": (".", "dim")}


def explanation_report(
    rules: Sequence[RuleExplanation],
    verdicts: Sequence[NodeExplanation],
    notes: Sequence[str],
    *,
    verbose: bool,
) -> Part:
    """Return a table of the rules and the nearest miss of each, or the verdicts on one node."""
    parts: list[Part] = []
    if rules:
        parts.append(_summary(rules))
        for item in rules:
            parts += _details(item, verbose=verbose)
    for number, verdict in enumerate(verdicts):
        parts += [Text()] if number else []
        parts += _verdict(verdict)
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    return Group(*parts)


def _summary(rules: Sequence[RuleExplanation]) -> Part:
    figures = ("candidates", "matched", "taken", "refused")
    table = Table("rule", *figures, right=figures)
    for item in rules:
        stages = ", ".join(f"{count} by {stage}" for stage, count in item.refused.items())
        table.add_row(
            item.rule.qualified_name,
            str(item.candidates),
            str(item.matched),
            str(item.taken),
            stages or "0",
        )
    return table


def _details(item: RuleExplanation, *, verbose: bool) -> list[Part]:
    lines: list[Part] = []
    if not item.opset_holds:
        lines.append(Text(f"  {_claim(item.rule)}"))
    lines += [Text(f"  the model has no {op}, which every match needs") for op in item.missing]
    if item.part is not None:
        place = f" ({item.part.place})" if item.part.place else ""
        lines.append(Text(f"  {describe_part(item.part)}{place}"))
    for example in item.examples:
        root = f"{example.root.op_type} {example.root.label!r}"
        lines.append(Text(f"  refused by {example.stage} at {root}: {example.reason}"))
    if item.nearest is not None:
        lines += _nearest(item.nearest, verbose=verbose)
    if not lines:
        return []
    where = f" ({item.rule.origin})" if item.rule.origin else ""
    return [Text(), Text(f"{item.rule.qualified_name}{where}", style="bold"), *lines]


def _claim(rule: Rule) -> str:
    first, last = rule.opsets
    return f"it holds for opsets {first or 1} to {last or 'the newest'} only"


def _nearest(trace: Trace, *, verbose: bool) -> list[Part]:
    root = f"{trace.root.op_type} {trace.root.label!r}"
    lines: list[Part] = [
        Text(f"  nearest miss at {root}: {trace.matched} of {trace.of} nodes of the pattern match")
    ]
    if trace.mismatch is not None:
        lines += _mismatch(trace.mismatch)
    if verbose:
        lines += _tree(trace)
    return lines


def _mismatch(mismatch: Mismatch) -> list[Text]:
    place = f" ({mismatch.place})" if mismatch.place else ""
    return [
        Text(f"    {headline(mismatch.part)}{place}", style="red"),
        Text(f"      expected  {mismatch.expected}"),
        Text(f"      found     {mismatch.found}"),
    ]


def _verdict(item: NodeExplanation) -> list[Part]:
    node = f"{item.node.qualified_op} {item.node.label!r}"
    lines: list[Part] = [
        joined((f"{item.rule.qualified_name} at {node}: ", "bold"), _sentence(item))
    ]
    return lines if item.trace is None else lines + _tree(item.trace)


def _sentence(item: NodeExplanation) -> str:  # noqa: PLR0911  # one per verdict
    match = item.match
    if item.verdict == "matched":
        return "matches"
    if item.verdict == "inside" and match is not None:
        return f"is inside the match at {match.root.op_type} {match.root.label!r}"
    if item.verdict == "taken" and match is not None:
        other = match.rule.qualified_name
        return f"fits, but belongs to the match of {other} at {match.root.label!r}"
    if item.rejection is not None:
        return f"fits, and is refused by {item.rejection.stage}: {item.rejection.reason}"
    if item.verdict == "skipped" and not item.rule.holds_for(item.node.graph):
        return f"is not tried: {_claim(item.rule)}"
    if item.verdict == "skipped":
        return "is not tried: it lies in a function that a partition wrote"
    if item.trace is not None and item.trace.given_up:
        return "is not known to match: the search takes too many steps"
    if item.trace is None or item.trace.mismatch is None:
        return "does not match"
    trace, mismatch = item.trace, item.trace.mismatch
    return (
        f"does not match ({trace.matched} of {trace.of} nodes): "
        f"expected {mismatch.expected}, found {mismatch.found}"
    )


def _tree(trace: Trace) -> list[Part]:
    table = Table("", "pattern", "written at", "result", prose=("result",))
    table.show_header = False
    for line in trace.lines:
        mark, style = _MARKS[line.status]
        result = line.found or line.status
        table.add_row(
            Text(f"    {mark}", style=style),
            Text("  " * line.depth + line.pattern),
            Text(line.place, style="dim"),
            Text(result, style=style),
        )
    return [table]
