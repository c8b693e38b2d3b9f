"""Why rules match where they do, and why nowhere else."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.ir.traversal import behind_identities
from dplcli.language.explain import describe_part, headline
from dplcli.report.document import (
    Document,
    Drawn,
    DrawnModel,
    DrawnPatterns,
    DrawnStep,
    key_of,
)
from dplcli.report.layout import Group, Heading, Text, joined
from dplcli.report.tables import note, opset_range, some, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.ir import Node
    from dplcli.language.explain import MatchTrace, NodeExplanation, RuleExplanation
    from dplcli.language.rule import Rejection
    from dplcli.outcomes.matching import ExplainOutcome
    from dplcli.passes.nearest import NearestRule
    from dplcli.report.document import NodeKey
    from dplcli.report.layout import Part


def explain_document(outcome: ExplainOutcome, *, file: Path | None = None) -> Document:
    """Report on why rules match where they do.

    Args:
        outcome: What was found.
        file: The model, for a picture.
    """
    matching = sum(item.matched > 0 for item in outcome.rules)
    verdict = f"{matching} of {counted(len(outcome.rules), 'rule')} matched"
    if outcome.left_out is not None:
        verdict = _left_out_in_words(outcome.left_out)
    elif not outcome.rules:
        verdict = f"{outcome.verdicts[0].node.op_type} {outcome.verdicts[0].node.label}"
    return Document(
        said=partial(_explanation_text, outcome),
        of=outcome,
        command="dpl explain",
        subject=outcome.label,
        verdict=verdict,
        is_idle=not matching,
        notes=outcome.notes,
        draws=lambda: _drawn_traces(outcome, file),
    )


def _drawn_traces(outcome: ExplainOutcome, file: Path | None) -> Drawn:
    """Return the patterns beside the model, with the attempt of each that got furthest."""
    found = [(item.rule.qualified_name, item.nearest) for item in outcome.rules]
    found += [(item.rule.qualified_name, item.trace) for item in outcome.verdicts]
    tried = [(title, trace) for title, trace in found if trace is not None and trace.lines]
    if file is None:
        return Drawn()
    marks: dict[NodeKey, str] = {}
    pairs: list[tuple[NodeKey, NodeKey]] = []
    steps = []
    for number, (title, trace) in enumerate(tried):
        parts: dict[NodeKey, NodeKey] = {}
        outer: dict[int, Node] = {-1: trace.root}
        for place, (line, value) in enumerate(zip(trace.lines, trace.values, strict=True)):
            node = None if value is None or value.is_constant else behind_identities(value).producer
            has_failed = line.status == "failed"
            if node is None and has_failed:  # nothing that is drawn: what reads it is
                node = outer.get(line.depth - 1)
            if node is None:
                continue
            outer[line.depth] = node
            parts[str(number), str(place)] = key_of(node)
            if has_failed or marks.get(key_of(node)) != "does not fit":
                marks[key_of(node)] = "does not fit" if has_failed else "fits"
        pairs += parts.items()
        end = trace.mismatch
        text = "fits" if trace.fits else f"{trace.matched} of {trace.of} nodes match"
        if end is not None:
            text = f"{text}; {headline(end.part)}: expected {end.expected}, found {end.found}"
        nodes = [(str(number), str(place)) for place in range(len(trace.lines))]
        steps.append(DrawnStep(title, text, (nodes, [*dict.fromkeys(parts.values())])))
    model = DrawnModel(file, marks)
    if not tried:
        return Drawn([model])
    patterns = DrawnPatterns([title for title, _ in tried], [trace for _, trace in tried])
    return Drawn([patterns, model], pairs, steps, begins=True)


_MANY_RULES = 20
"""Of more rules than these, those that need an operator that the model lacks are summed up."""

_MOST_LACKED = 4
_HOLDS = "it holds for opsets {} only"
_FEW_LINES = 4
_MARKS = {"matched": ("+", "green"), "failed": ("x", "red"), "not reached": (".", "dim")}


def _explanation_text(outcome: ExplainOutcome, *, verbose: bool) -> Part:
    """Return a table of the rules and the nearest miss of each, or the verdicts on one node."""
    parts: list[Part] = []
    if outcome.left_out is not None:
        said = Text(f"{_left_out_in_words(outcome.left_out)}.")
        ranks = [-each.alike for each in outcome.left_out]
        table = table_of(outcome.left_out, "Left out", ranks=ranks)
        parts = [table, said] if outcome.left_out else [said]
    shown = _shown(outcome.rules)
    if summed := outcome.rules if verbose else shown:
        parts.append(table_of(summed, "Rules"))
    if len(shown) < len(outcome.rules):
        parts += _lacking(outcome.rules, verbose=verbose)
    for item in shown:
        parts += _details(item, verbose=verbose)
    for number, verdict in enumerate(outcome.verdicts):
        parts += [Text()] if number else []
        parts += _verdict_lines(verdict, verbose=verbose)
    return Group(*parts, *map(note, outcome.notes))


def _left_out_in_words(items: Sequence[NearestRule]) -> str:
    count = sum(each.alike for each in items)
    return f"{counted(count, 'node')} {'is' if count == 1 else 'are'} in no match"


def _lacking(rules: Sequence[RuleExplanation], *, verbose: bool) -> list[Part]:
    """Say which operators the model lacks, so that rules cannot match."""
    hidden = [item for item in rules if item.missing]
    if verbose:
        rows = [(item.rule, item.missing) for item in hidden]
        return [Text(), table_of(rows, "What the model lacks", "rule every_match_needs")]
    ops = Counter(op for item in hidden for op in item.missing)
    most = some([f"{op} ({count})" for op, count in ops.most_common()], _MOST_LACKED)
    text = f"{counted(len(hidden), 'other rule')} cannot match: the model lacks {most}"
    return [Text(f"{text} (--verbose lists the rules).")]


def _shown(rules: Sequence[RuleExplanation]) -> Sequence[RuleExplanation]:
    """Return the rules that have something to say of their own: of many, those that could match."""
    return rules if len(rules) <= _MANY_RULES else [item for item in rules if not item.missing]


def _details(item: RuleExplanation, *, verbose: bool) -> list[Part]:
    lines: list[Part] = []
    if not item.opset_holds:
        lines.append(Text(f"  {_HOLDS.format(opset_range(item.rule))}"))
    lines += [Text(f"  the model has no {op}, which every match needs") for op in item.missing]
    if item.part is not None:
        place = f" ({item.part.place})" if item.part.place else ""
        lines.append(Text(f"  {describe_part(item.part)}{place}"))
    for example in item.examples:
        root = f"{example.root.op_type} {example.root.label!r}"
        lines.append(Text(f"  refused by {example.stage} at {root}: {_with_values(example)}"))
    if item.nearest is not None:
        lines += _nearest(item.nearest, verbose=verbose)
    if not lines:
        return []
    where = f" ({item.rule.origin})" if item.rule.origin else ""
    return [Text(), Heading(f"{item.rule.qualified_name}{where}"), *lines]


def _nearest(trace: MatchTrace, *, verbose: bool) -> list[Part]:
    root, mismatch = f"{trace.root.op_type} {trace.root.label!r}", trace.mismatch
    text = f"  nearest miss at {root}: {trace.matched} of {trace.of} nodes of the pattern match"
    lines: list[Part] = [Text(text)]
    if mismatch is not None:
        place = f" ({mismatch.place})" if mismatch.place else ""
        lines.append(Text(f"    {headline(mismatch.part)}{place}", style="red"))
        lines.append(Text(f"      expected  {mismatch.expected}"))
        lines.append(Text(f"      found     {mismatch.found}"))
    return [*lines, _tree(trace, whole=True)] if verbose else lines


def _verdict_lines(item: NodeExplanation, *, verbose: bool) -> list[Part]:
    node = f"{item.node.qualified_op} {item.node.label!r}"
    line = joined((f"{item.rule.qualified_name} at {node}: ", "bold"), _sentence(item))
    return [line] if item.trace is None else [line, _tree(item.trace, whole=verbose)]


def _sentence(item: NodeExplanation) -> str:  # noqa: PLR0911  # one per verdict
    match = item.match
    if item.verdict == "matched":
        return "matches"
    if item.verdict == "inside" and match is not None:
        return f"is inside the match at {match.root.op_type} {match.root.label!r}"
    if item.verdict == "taken" and match is not None:
        other = match.rule.qualified_name + match.rule.outranking(item.rule)
        return f"fits, but belongs to the match of {other} at {match.root.label!r}"
    if item.rejection is not None:
        return f"fits, and is refused by {item.rejection.stage}: {_with_values(item.rejection)}"
    if item.verdict == "skipped" and not item.rule.holds_for(item.node.graph):
        return f"is not tried: {_HOLDS.format(opset_range(item.rule))}"
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


def _with_values(rejection: Rejection) -> str:
    """Return the reason, with what the condition asks about."""
    facts = ", ".join(rejection.facts)
    return f"{rejection.reason} ({facts})" if facts else rejection.reason


def _tree(trace: MatchTrace, *, whole: bool) -> Part:
    hidden = [line for line in trace.lines if line.status == "not reached"]
    if whole or len(hidden) < _FEW_LINES:
        hidden = []
    rows: list[tuple[object, ...]] = []
    for line in trace.lines:
        if line not in hidden:
            mark, style = _MARKS[line.status]
            part, place = Text("  " * line.depth + line.pattern), Text(line.place, style="dim")
            result = Text(line.found or line.status, style=style)
            rows.append((Text(f"    {mark}", style=style), part, place, result))
    if hidden:
        more = f"{len(hidden)} further parts"
        rows.append(("    .", more, "", "not reached; --verbose lists them"))
    return table_of(rows, "", "fits pattern written_at result:prose", has_headings=False)
