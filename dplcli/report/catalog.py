"""Catalogues, contracts and explanations: as tables and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from dplcli.catalog.template import shown
from dplcli.dpl.explain import describe_part, headline
from dplcli.dpl.replacement import RewriteRule
from dplcli.ir.model import scope_of
from dplcli.report.json import node_record, refusals
from dplcli.report.layout import Group, Table, Text, joined
from dplcli.report.tables import few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.catalog.lint import Problem
    from dplcli.dpl.explain import (
        MatchTrace,
        Mismatch,
        NodeExplanation,
        PartFit,
        RuleExplanation,
    )
    from dplcli.dpl.rule import PatternRule, Rule
    from dplcli.report.layout import Part
    from dplcli.targets import AttributeContract, Contract, FunctionContract, PortContract

    Json = dict[str, Any]


# Catalogues, problems and trials as tables.


class CatalogRow(Protocol):
    """A catalogue that can be named."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def origin(self) -> str:
        """Who offers it."""

    @property
    def doc(self) -> str:
        """What it is for."""

    @property
    def target(self) -> str:
        """The target of its functions, or ""."""

    @property
    def rules(self) -> int | None:
        """How many rules it has, if known."""


class TriedRule(Protocol):
    """One attempt at a rule."""

    @property
    def rule(self) -> PatternRule | RewriteRule:
        """The rule."""

    @property
    def kind(self) -> str:
        """An example, or made up."""

    @property
    def place(self) -> str:
        """Which one."""

    @property
    def verdict(self) -> str:
        """How it ended."""

    @property
    def reason(self) -> str:
        """Why."""


def catalog_list(entries: Sequence[CatalogRow]) -> Part:
    """Return one row per catalogue."""
    table = Table("catalogue", "from", "target", "rules", "", right=("rules",), prose=("",))
    for entry in entries:
        count = "" if entry.rules is None else str(entry.rules)
        table.add_row(entry.name, entry.origin, entry.target, count, entry.doc)
    return table


def rule_texts(rules: Sequence[PatternRule | RewriteRule]) -> Part:
    """Return each rule with its pattern, conditions and policies."""
    parts: list[Part] = []
    for number, rule in enumerate(rules):
        parts += [Text()] if number else []
        values = f"  ({shown(rule.values)})" if rule.values else ""
        origin = f"  {rule.origin}" if rule.origin else ""
        parts.append(joined((rule.qualified_name, "bold"), origin, values))
        parts += [Text(f"  {line}") for line in rule.doc.splitlines()]
        parts += [Text(f"    {line}", whole=True) for line in repr(rule.pattern).splitlines()]
        parts += [Text(f"  where {condition.text}") for condition in rule.where]
        parts += [Text(f"  {line}") for line in _policies(rule)]
    return Group(*parts)


def _policies(rule: PatternRule | RewriteRule) -> list[str]:
    lines = []
    if isinstance(rule, RewriteRule):
        lines += ["becomes", *(f"  {line}" for line in rule.becomes.splitlines())]
    else:
        policies = {"constants": rule.constants, "escape": rule.escape, "order": rule.order}
        lines.append(", ".join(f"{name}: {value}" for name, value in policies.items()))
    first, last = rule.opsets
    if first is not None or last is not None:
        lines.append(f"opsets {first or 1} to {last or 'the newest'}")
    return lines


def problem_list(problems: Sequence[Problem]) -> Part:
    """Return one line per problem, and a count."""
    errors = sum(problem.severity == "error" for problem in problems)
    styles = {"error": "red", "warning": "yellow"}
    lines: list[Part] = [
        joined(
            f"{problem.place}: " if problem.place else "",
            (problem.severity, styles[problem.severity]),
            f": {problem.rule}: {problem.message}",
        )
        for problem in problems
    ]
    if not problems:
        return Text("No problems found.")
    warnings = len(problems) - errors
    return Group(
        *lines, Text(f"{_plain_count(errors, 'error')}, {_plain_count(warnings, 'warning')}.")
    )


def trial_table(trials: Sequence[TriedRule], *, verbose: bool) -> Part:
    """Return one row per rule, then what failed and what could not be tried."""
    figures = ("examples", "made up", "not tried", "failed")
    table = Table("rule", *figures, right=figures)
    by_rule: dict[str, list[TriedRule]] = {}
    for trial in trials:
        by_rule.setdefault(trial.rule.qualified_name, []).append(trial)
    for name, of_rule in by_rule.items():
        passed = [trial for trial in of_rule if trial.verdict == "passed"]
        examples = sum(trial.kind == "example" for trial in passed)
        not_tried = sum(trial.verdict == "not tried" for trial in of_rule)
        failed = len(of_rule) - len(passed) - not_tried
        counts = (examples, len(passed) - examples, not_tried, failed)
        table.add_row(name, *map(str, counts))
    parts: list[Part] = [table]
    shown = [t for t in trials if verbose or t.verdict == "failed"]
    if shown:
        parts.append(Text())
    for trial in shown:
        what = f"{trial.rule.qualified_name}, {trial.kind} {trial.place}: {trial.verdict}"
        style = "red" if trial.verdict == "failed" else ""
        parts.append(Text(f"{what}: {trial.reason}" if trial.reason else what, style=style))
    failed = sum(trial.verdict == "failed" for trial in trials)
    passed_count = sum(trial.verdict == "passed" for trial in trials)
    parts += [Text(), Text(f"{passed_count} passed, {failed} failed.")]
    return Group(*parts)


def _plain_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# Catalogues, problems and trials as JSON.


def catalogs_record(entries: Sequence[CatalogRow]) -> Json:
    """Return the record ``dpl.patterns.list/1``."""
    return {
        "schema": "dpl.patterns.list/1",
        "catalogs": [
            {
                "name": entry.name,
                "origin": entry.origin,
                "target": entry.target,
                "doc": entry.doc,
                "rules": entry.rules,
            }
            for entry in entries
        ],
    }


def rules_record(rules: Sequence[PatternRule | RewriteRule]) -> Json:
    """Return the record ``dpl.patterns.show/1``."""
    return {"schema": "dpl.patterns.show/1", "rules": [_rule_record(rule) for rule in rules]}


def _rule_record(rule: PatternRule | RewriteRule) -> Json:
    own: Json
    if isinstance(rule, RewriteRule):
        own = {"kind": "rewrite", "replacement": rule.becomes}
    else:
        own = {
            "kind": "pattern",
            "target": rule.target,
            "constants": rule.constants,
            "escape": rule.escape,
            "order": rule.order,
            "attrs": dict(rule.metadata),
        }
    return {
        "name": rule.qualified_name,
        "origin": rule.origin,
        "for_each": dict(rule.values),
        "doc": rule.doc,
        "pattern": repr(rule.pattern),
        "where": [condition.text for condition in rule.where],
        "opsets": list(rule.opsets),
        "examples": len(rule.examples),
        **own,
    }


def problems_record(problems: Sequence[Problem]) -> Json:
    """Return the record ``dpl.patterns.check/1``."""
    return {
        "schema": "dpl.patterns.check/1",
        "errors": sum(problem.severity == "error" for problem in problems),
        "problems": [problem._asdict() for problem in problems],
    }


def trials_record(trials: Sequence[TriedRule]) -> Json:
    """Return the record ``dpl.patterns.test/1``."""
    return {
        "schema": "dpl.patterns.test/1",
        "failed": sum(trial.verdict == "failed" for trial in trials),
        "trials": [
            {
                "rule": trial.rule.qualified_name,
                "kind": trial.kind,
                "place": trial.place,
                "verdict": trial.verdict,
                "reason": trial.reason,
            }
            for trial in trials
        ],
    }


# Contracts as JSON.


def contract_record(contract: Contract) -> Json:
    """Return the record ``dpl.contract/1``: what kernels for a target have to keep to."""
    source = "model" if contract.is_of_model else "catalogue"
    return {
        "schema": "dpl.contract/1",
        "of": source,
        source: contract.label,
        "functions": [_function(function) for function in contract.functions],
        "notes": dict(contract.notes),
    }


def _function(function: FunctionContract) -> Json:
    return {
        "domain": function.domain,
        "name": function.name,
        "rule": function.rule,
        "target": function.target,
        "doc": function.doc,
        "calls": function.calls,
        "opsets": {domain or "ai.onnx": number for domain, number in function.opsets.items()},
        "inputs": [_port(port) for port in function.inputs],
        "attributes": [_attribute(attribute) for attribute in function.attributes],
        "outputs": [_port(port) for port in function.outputs],
        "body": [
            {
                "op_type": node.op_type,
                "domain": node.domain,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "references": dict(node.references),
                "attributes": dict(node.attributes),
            }
            for node in function.body
        ],
        "parts": {
            "operators": list(function.parts.operators),
            "inputs": list(function.parts.inputs),
        },
        "conditions": list(function.conditions),
        "variations": list(function.variations),
    }


def _port(port: PortContract) -> Json:
    return {
        "name": port.name,
        "dtypes": list(port.dtypes),
        "ranks": list(port.ranks),
        "unknown": port.unknown,
        "constant": port.is_constant,
        "values": list(port.values),
        "distinct": port.distinct,
    }


def _attribute(attribute: AttributeContract) -> Json:
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "node": attribute.node,
        "reads": attribute.reads,
        "given": attribute.is_given,
        "values": list(attribute.values),
        "distinct": attribute.distinct,
        "default": attribute.default,
    }


# Contracts as tables for a terminal.


_SHOWN_VALUES = 4
_SHOWN_NODES = 24


def contract_report(contract: Contract) -> Part:
    """Return one block per function: how it is called, and what its body computes."""
    parts: list[Part] = []
    for function in contract.functions:
        parts += [_heading(function), _interface(function), Text()]
    if not contract.functions:
        nothing = "has no function of a target" if contract.is_of_model else "outlines nothing"
        parts += [Text(f"{contract.label} {nothing}."), Text()]
    parts += [Text(f"{rule}: {note}", style="yellow") for rule, note in contract.notes.items()]
    while parts and isinstance(parts[-1], Text) and not parts[-1].plain:
        parts.pop()
    return Group(*parts)


def _heading(function: FunctionContract) -> Part:
    lines = [Text(f"{function.domain}::{function.name}", style="bold")]
    calls = "" if function.calls is None else f", {_count(function.calls, 'call')}"
    body = few([node.qualified_op for node in function.body], _SHOWN_NODES, " ")
    lines.append(Text(f"  {function.origin}{calls}, body: {body}"))
    own = [*function.parts.operators, *(f"input {name}" for name in function.parts.inputs)]
    if own:
        lines.append(Text(f"  not in every function of the rule: {', '.join(own)}"))
    lines += [Text(f"  where {condition}") for condition in function.conditions]
    lines += [Text(f"  {variation}") for variation in function.variations]
    return Group(*lines)


def _interface(function: FunctionContract) -> Part:
    table = Table("", "", "name", "type", "values", prose=("values",))
    table.show_header = False
    for number, port in enumerate(function.inputs):
        table.add_row("  input", str(number), port.name, _type(port), _constant(port))
    for attribute in function.attributes:
        given = attribute.kind if attribute.is_given else f"{attribute.kind}, optional"
        reader = f"{function.body[attribute.node].op_type}.{attribute.reads}"
        values = _values(attribute)
        known = f"{reader}: {values}" if values else reader
        table.add_row("  attribute", "", attribute.name, given, known)
    for number, port in enumerate(function.outputs):
        table.add_row("  output", str(number), port.name, _type(port), "")
    return table


def _type(port: PortContract) -> str:
    dtypes = " | ".join(port.dtypes) or "any type"
    ranks = f" rank {' | '.join(map(str, port.ranks))}" if port.ranks else " of any rank"
    partly = f", {port.unknown} unknown" if port.unknown else ""
    if port.unknown and not port.dtypes and not port.ranks:
        return "unknown"
    return f"{dtypes}{ranks}{partly}"


def _constant(port: PortContract) -> str:
    if not port.is_constant:
        return ""
    return f"constant: {_some(port)}" if port.values else "constant"


def _some(listed: AttributeContract | PortContract) -> str:
    """Write the first values, and how many more there are."""
    shown = [json.dumps(value, ensure_ascii=False) for value in listed.values[:_SHOWN_VALUES]]
    more = listed.distinct - len(shown)
    return " | ".join(shown) + (f" and {more} more" if more > 0 else "")


def _values(attribute: AttributeContract) -> str:
    text = _some(attribute)
    if text or attribute.default is None:
        return text
    return f"default {json.dumps(attribute.default, ensure_ascii=False)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


# Explanations as JSON: the record ``dpl.explain/1``.


def explain_record(
    label: str, rules: Sequence[RuleExplanation], verdicts: Sequence[NodeExplanation]
) -> Json:
    """Return what became of each rule, and what each says of the node asked about."""
    return {
        "schema": "dpl.explain/1",
        "model": label,
        "rules": [_explained_rule_record(item) for item in rules],
        "verdicts": [_verdict_record(item) for item in verdicts],
    }


def _explained_rule_record(item: RuleExplanation) -> Json:
    return {
        "rule": item.rule.qualified_name,
        "origin": item.rule.origin,
        "candidates": item.candidates,
        "matched": item.matched,
        "taken": item.taken,
        "refused": item.refused,
        "examples": refusals(item.examples),
        "missing_operators": list(item.missing),
        "opset_holds": item.opset_holds,
        "nearest": None if item.nearest is None else attempt_record(item.nearest),
        "part": None if item.part is None else _part(item.part),
    }


def _part(fit: PartFit) -> Json:
    return {
        "pattern": headline(fit.part),
        "place": fit.place,
        "nodes": fit.nodes,
        "example": node_record(fit.example),
        "read_by": dict(fit.readers),
    }


def _verdict_record(item: NodeExplanation) -> Json:
    match = item.match
    return {
        "rule": item.rule.qualified_name,
        "node": node_record(item.node),
        "scope": scope_of(item.node.graph),
        "verdict": item.verdict,
        "match": None
        if match is None
        else {"rule": match.rule.qualified_name, "root": node_record(match.root)},
        "refusal": None if item.rejection is None else refusals([item.rejection])[0],
        "trace": None if item.trace is None else attempt_record(item.trace),
    }


def attempt_record(trace: MatchTrace) -> Json:
    """Return one attempt: how far it got, where it ended, and the pattern as a tree."""
    mismatch = trace.mismatch
    return {
        "root": node_record(trace.root),
        "fits": trace.fits,
        "given_up": trace.given_up,
        "matched": trace.matched,
        "of": trace.of,
        "failed": None
        if mismatch is None
        else {
            "pattern": headline(mismatch.part),
            "place": mismatch.place,
            "at": None if mismatch.at is None else mismatch.at.name,
            "expected": mismatch.expected,
            "found": mismatch.found,
        },
        "tree": [line._asdict() for line in trace.lines],
    }


# Explanations as text.


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
        parts += _verdict_lines(verdict)
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


def _nearest(trace: MatchTrace, *, verbose: bool) -> list[Part]:
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


def _verdict_lines(item: NodeExplanation) -> list[Part]:
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


def _tree(trace: MatchTrace) -> list[Part]:
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
