"""Catalogues, contracts and explanations: as tables and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.finding import lacks_examples
from dplcli.catalog.template import shown
from dplcli.dpl.explain import describe_part, headline
from dplcli.dpl.replacement import RewriteRule
from dplcli.errors import CatalogError, counted
from dplcli.ir.traversal import behind_identities
from dplcli.keys import keys
from dplcli.report.document import (
    Case,
    Document,
    Drawn,
    DrawnModel,
    DrawnPatterns,
    DrawnStep,
    Finding,
    key_of,
    read_place,
)
from dplcli.report.layout import Group, Heading, Text, TextTable, joined
from dplcli.report.tables import few, finding_line, note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.catalog.lint import Problem
    from dplcli.dpl.explain import MatchTrace, NodeExplanation, RuleExplanation
    from dplcli.dpl.rule import PatternRule, Rejection, Rule
    from dplcli.errors import DplError
    from dplcli.ir import Node
    from dplcli.outcomes import CatalogEntry, ExplainOutcome, Trial
    from dplcli.report.document import NodeKey, Status
    from dplcli.report.layout import Part
    from dplcli.targets.contract import AttributeContract, Contract, FunctionContract, PortContract


# Catalogues and their rules.


@keys("...", "dpl.patterns.list/1")
class CatalogList(NamedTuple):
    """The catalogues that can be named."""

    catalogs: Sequence[CatalogEntry]


@keys("*=rule")
class ShownRule(NamedTuple):
    """A rule in full."""

    rule: PatternRule | RewriteRule


@keys("...", "dpl.patterns.show/1")
class RuleList(NamedTuple):
    """Rules with their patterns and conditions."""

    rules: tuple[ShownRule, ...]


@keys("...", "dpl.patterns.check/1")
class ProblemList(NamedTuple):
    """Mistakes in catalogues."""

    errors: int
    problems: Sequence[Problem]


@keys("...", "dpl.patterns.test/1")
class TrialList(NamedTuple):
    """What became of rules on examples and made-up graphs."""

    failed: int
    not_tried: int
    trials: Sequence[Trial]


def catalogs_document(entries: Sequence[CatalogEntry]) -> Document:
    """Report on the catalogues that can be named, one in each row."""
    table = TextTable(*("catalogue", "from", "target", "rules", ""), right=("rules",), prose=("",))
    for each in entries:
        rules = "" if each.rules is None else str(each.rules)
        table.add_row(each.name, each.origin, each.target, rules, each.doc)
    return Document(said=table, of=CatalogList(entries))


def rules_document(rules: Sequence[PatternRule | RewriteRule]) -> Document:
    """Report on rules: each with its pattern, conditions and policies."""
    parts: list[Part] = []
    for number, rule in enumerate(rules):
        parts += [Text()] if number else []
        values = f"  ({shown(rule.values)})" if rule.values else ""
        origin = f"  {rule.origin}" if rule.origin else ""
        parts.append(joined((rule.qualified_name, "bold"), origin, values))
        parts += [Text(f"  {line}") for line in rule.doc.splitlines()]
        parts += [Text(f"    {line}", whole=True) for line in repr(rule.pattern).splitlines()]
        lines = [f"where {condition.text}" for condition in rule.where]
        if isinstance(rule, RewriteRule):
            lines += ["becomes", *(f"  {line}" for line in rule.becomes.splitlines())]
        else:
            policies = f"constants: {rule.constants}, escape: {rule.escape}, order: {rule.order}"
            lines.append(policies)
        if rule.opsets != (None, None):
            lines.append(f"opsets {_opset_range(rule)}")
        parts += [Text(f"  {line}") for line in lines]
    return Document(said=Group(*parts), of=RuleList(tuple(map(ShownRule, rules))))


def _opset_range(rule: Rule) -> str:
    first, last = rule.opsets
    return f"{first or 1} to {last or 'the newest'}"


# Mistakes in catalogues, and examples that fail.


def problems_document(catalogs: Sequence[str], problems: Sequence[Problem]) -> Document:
    """Report on what ``dpl patterns check`` found."""
    errors = sum(problem.severity == "error" for problem in problems)
    verdict, lines = "No problems found", [Text("No problems found.")]
    if problems:
        verdict = f"{errors} of {len(problems)} are errors"
        count = f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'warning')}."
        lines = [
            *(finding_line(p.place, p.severity, p.rule, p.message) for p in problems),
            Text(count),
        ]
    return Document(
        said=Group(*lines),
        of=ProblemList(errors, problems),
        command="dpl patterns check",
        subject=", ".join(catalogs),
        ok=not errors,
        verdict=verdict,
        cases=tuple(
            Case(
                problem.rule,
                problem.message,
                "failed" if problem.severity == "error" else "skipped",
                f"{problem.severity}: {problem.message}",
            )
            for problem in problems
        ),
        findings=tuple(
            Finding("catalogue", p.severity, p.rule, p.message, read_place(p.place, catalogs))
            for p in problems
        ),
    )


def unreadable_document(command: str, catalogs: Sequence[str], error: DplError) -> Document:
    """Report on a catalogue that cannot be read; each finding points at a mistake."""
    mistakes = (isinstance(error, CatalogError) and error.mistakes) or (error,)
    findings = []
    for mistake in mistakes:
        head, _, rest = mistake.message.partition(": ")
        place = read_place(head, catalogs)
        message = rest if place is not None else mistake.message
        said = f"{message}\n{mistake.hint}" if mistake.hint else message
        findings.append(Finding("catalogue", "error", "catalogue", said, place))
    return Document(
        command=command,
        subject=", ".join(catalogs),
        ok=False,
        verdict="A catalogue cannot be read",
        said=Group(*(each.line for each in findings)),
        failures=tuple(mistake.message for mistake in mistakes),
        findings=tuple(findings),
    )


def trials_document(catalogs: Sequence[str], trials: Sequence[Trial]) -> Document:
    """Report on what ``dpl patterns test`` tried."""
    wrong = [trial for trial in trials if trial.verdict in {"failed", "not tried"}]
    counts = Counter(trial.verdict for trial in trials)
    verdict = f"{counts['passed']} passed, {counts['failed']} failed"
    verdict += f", {counts['not tried']} not tried" if counts["not tried"] else ""
    end = [Text(), Text(_IN_SOURCES)] if any(map(lacks_examples, catalogs)) else []

    def said(*, verbose: bool) -> Part:
        return Group(*_trial_parts(trials, verbose=verbose), *end, Text(), Text(f"{verdict}."))

    return Document(
        said=said,
        of=TrialList(counts["failed"], counts["not tried"], trials),
        command="dpl patterns test",
        subject=", ".join(catalogs),
        ok=not wrong,
        verdict=verdict,
        cases=tuple(
            Case(
                trial.rule.qualified_name,
                f"{trial.kind} {trial.place}",
                _STATUS[trial.verdict],
                "" if trial.verdict == "passed" else _whole_reason(trial),
            )
            for trial in trials
        ),
        findings=tuple(
            Finding(
                "example" if trial.kind == "example" else "made-up-graph",
                "error",
                trial.rule.qualified_name,
                f"{trial.kind} {trial.place}: {_whole_reason(trial)}",
                read_place(trial.place, catalogs) or read_place(trial.rule.origin, catalogs),
            )
            for trial in wrong
        ),
    )


_STATUS: dict[str, Status] = {
    "passed": "passed",
    "failed": "failed",
    "not tried": "failed",
    "by example": "skipped",
}


def _whole_reason(trial: Trial) -> str:
    """Return the reason, and the example that shows it."""
    return "\n".join([trial.reason, *_as_example(trial)])


def _as_example(trial: Trial) -> list[str]:
    """Return a counterexample as an entry of ``examples``."""
    if not trial.counterexample:
        return []
    lines = [f"    {line}" for line in trial.counterexample.splitlines()]
    return ["- before: |", *lines, "  after: unchanged"]


def _trial_parts(trials: Sequence[Trial], *, verbose: bool) -> list[Part]:
    """Return one row for each rule, then the trials that failed."""
    figures = ("examples", "made up", "not tried", "failed")
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        of_rule = counts.setdefault(trial.rule.qualified_name, Counter())
        if trial.verdict == "passed" and trial.kind == "example":
            of_rule["examples"] += 1
        elif trial.verdict == "passed":
            of_rule["made up"] += trial.graphs
        else:
            of_rule[trial.verdict] += 1
    rows = [
        (name, *(str(of_rule[figure]) for figure in figures)) for name, of_rule in counts.items()
    ]
    parts: list[Part] = [TextTable("rule", *figures, right=figures, rows=rows, title="Rules")]
    for trial in trials if verbose or len(counts) <= _FEW_RULES else ():
        if trial.tried:
            said = [counted(trial.graphs, "graph") + (f", {trial.shown}" if trial.shown else "")]
            said += [*trial.tried, *(f"note: {note}" for note in trial.notes)]
            parts += [Text(), Text(f"{trial.rule.qualified_name} was tried on")]
            parts += [Text(f"  {line}") for line in said]
    shown = [t for t in trials if verbose or t.verdict in {"failed", "not tried"}]
    parts += [Text()] * bool(shown)
    for trial in shown:
        what = f"{trial.rule.qualified_name}, {trial.kind} {trial.place}: {trial.verdict}"
        style = "" if trial.verdict in {"passed", "by example"} else "red"
        parts.append(Text(f"{what}: {trial.reason}" if trial.reason else what, style=style))
        if trial.counterexample:
            parts.append(Text("  the smallest graph found that shows it, as an example:"))
        parts += [Text(f"    {line}", whole=True) for line in _as_example(trial)]
    if by_example := sum(trial.verdict == "by example" for trial in trials):
        rules = counted(by_example, "rule")
        parts += [Text(), Text(f"{rules} can be tried by examples only: {_NO_GRAPH}.")]
    return parts


_FEW_RULES = 6
_NO_GRAPH = "no graph could be made up, --verbose says why"
_IN_SOURCES = "The examples of shipped catalogues come with the sources of dpl; they were not run."


# Contracts: what the kernels for a target must do.


_SHOWN_VALUES = 4
_SHOWN_NODES = 24


def contract_document(contract: Contract) -> Document:
    """Report on the functions that kernels stand for: the interface and the body of each."""
    parts: list[Part] = []
    for function in contract.functions:
        parts += [_heading(function), _interface(function), Text()]
    if not contract.functions:
        nothing = "has no function of a target" if contract.is_of_model else "outlines nothing"
        parts += [Text(f"{contract.label} {nothing}."), Text()]
    parts += [Text(f"{rule}: {note}", style="yellow") for rule, note in contract.notes.items()]
    while parts and isinstance(parts[-1], Text) and not parts[-1].plain:
        parts.pop()
    return Document(said=Group(*parts), of=contract)


def _heading(function: FunctionContract) -> Part:
    lines = [Text(f"{function.domain}::{function.name}", style="bold")]
    calls = "" if function.calls is None else f", {counted(function.calls, 'call')}"
    body = few([node.qualified_op for node in function.body], _SHOWN_NODES, " ")
    lines.append(Text(f"  {function.origin}{calls}, body: {body}"))
    own = [*function.parts.operators, *(f"input {name}" for name in function.parts.inputs)]
    if own:
        lines.append(Text(f"  not in every function of the rule: {', '.join(own)}"))
    lines += [Text(f"  where {condition}") for condition in function.conditions]
    lines += [Text(f"  {variation}") for variation in function.variations]
    return Group(*lines)


def _interface(function: FunctionContract) -> Part:
    table = TextTable("", "", "name", "type", "values", prose=("values",))
    table.show_header = False
    for number, port in enumerate(function.inputs):
        constant = f"constant: {_some(port)}" if port.values else "constant"
        told = constant if port.is_constant else ""
        table.add_row("  input", str(number), port.name, _type(port), told)
    for attribute in function.attributes:
        given = attribute.kind if attribute.is_given else f"{attribute.kind}, optional"
        reader = function.reader_of(attribute)
        default = f"default {json.dumps(attribute.default, ensure_ascii=False)}"
        values = _some(attribute) or ("" if attribute.default is None else default)
        known = f"{reader}: {values}" if values else reader
        table.add_row("  attribute", "", attribute.name, given, known)
    for number, port in enumerate(function.outputs):
        table.add_row("  output", str(number), port.name, _type(port), "")
    return table


def _type(port: PortContract) -> str:
    if port.unknown and not port.dtypes and not port.ranks:
        return "unknown"
    ranks = f"rank {' | '.join(map(str, port.ranks))}" if port.ranks else "of any rank"
    partly = f", {port.unknown} unknown" if port.unknown else ""
    return f"{' | '.join(port.dtypes) or 'any type'} {ranks}{partly}"


def _some(listed: AttributeContract | PortContract) -> str:
    """Write the first values and the number of the others."""
    shown = [json.dumps(value, ensure_ascii=False) for value in listed.values[:_SHOWN_VALUES]]
    more = listed.distinct - len(shown)
    return " | ".join(shown) + (f" and {more} more" if more > 0 else "")


# Explanations: what became of each rule, or what each rule says of one node.


def explain_document(outcome: ExplainOutcome, *, file: Path | None = None) -> Document:
    """Report on why rules match where they do.

    Args:
        outcome: What was found.
        file: The model, for a picture.
    """
    matching = sum(item.matched > 0 for item in outcome.rules)
    verdict = f"{matching} of {counted(len(outcome.rules), 'rule')} matched"
    if not outcome.rules:
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
    shown = _shown(outcome.rules)
    if summed := outcome.rules if verbose else shown:
        parts.append(_summary(summed))
    if len(shown) < len(outcome.rules):
        parts += _lacking(outcome.rules, verbose=verbose)
    for item in shown:
        parts += _details(item, verbose=verbose)
    for number, verdict in enumerate(outcome.verdicts):
        parts += [Text()] if number else []
        parts += _verdict_lines(verdict, verbose=verbose)
    return Group(*parts, *map(note, outcome.notes))


def _lacking(rules: Sequence[RuleExplanation], *, verbose: bool) -> list[Part]:
    """Say which operators the model lacks, so that rules cannot match."""
    hidden = [item for item in rules if item.missing]
    if verbose:
        rows = [(item.rule.qualified_name, ", ".join(item.missing)) for item in hidden]
        title = "What the model lacks"
        return [Text(), TextTable("rule", "every match needs", rows=rows, title=title)]
    ops = Counter(op for item in hidden for op in item.missing)
    most = few([f"{op} ({count})" for op, count in ops.most_common()], _MOST_LACKED)
    text = f"{counted(len(hidden), 'other rule')} cannot match: the model lacks {most}"
    return [Text(f"{text} (--verbose lists the rules).")]


def _shown(rules: Sequence[RuleExplanation]) -> Sequence[RuleExplanation]:
    """Return the rules that have something to say of their own: of many, those that could match."""
    return rules if len(rules) <= _MANY_RULES else [item for item in rules if not item.missing]


def _summary(rules: Sequence[RuleExplanation]) -> Part:
    figures = ("candidates", "matched", "taken", "refused")
    table = TextTable("rule", *figures, right=figures, title="Rules")
    for item in rules:
        stages = ", ".join(f"{count} by {stage}" for stage, count in item.refused.items())
        counts = map(str, (item.candidates, item.matched, item.taken))
        table.add_row(item.rule.qualified_name, *counts, stages or "0")
    return table


def _details(item: RuleExplanation, *, verbose: bool) -> list[Part]:
    lines: list[Part] = []
    if not item.opset_holds:
        lines.append(Text(f"  {_HOLDS.format(_opset_range(item.rule))}"))
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
        return f"is not tried: {_HOLDS.format(_opset_range(item.rule))}"
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
    table = TextTable("fits", "pattern", "written at", "result", prose=("result",))
    table.show_header = False
    hidden = [line for line in trace.lines if line.status == "not reached"]
    if whole or len(hidden) < _FEW_LINES:
        hidden = []
    for line in trace.lines:
        if line in hidden:
            continue
        mark, style = _MARKS[line.status]
        part, place = Text("  " * line.depth + line.pattern), Text(line.place, style="dim")
        result = Text(line.found or line.status, style=style)
        table.add_row(Text(f"    {mark}", style=style), part, place, result)
    if hidden:
        more = f"{len(hidden)} further parts"
        table.add_row("    .", more, "", "not reached; --verbose lists them")
    return table
