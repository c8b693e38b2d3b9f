"""Where rules match, and what was expected of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.report.document import Case, Document, Finding, read_place
from dplcli.report.layout import Group, Text
from dplcli.report.tables import hint, note, refusal_list, rule_table, rule_uses, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dplcli.language.rule import JudgedExpectation
    from dplcli.outcomes.matching import MatchOutcome
    from dplcli.outcomes.rewriting import RewriteOutcome
    from dplcli.passes.partition import Partition
    from dplcli.passes.select import Selection
    from dplcli.report.document import Severity
    from dplcli.report.layout import Part

    Told: TypeAlias = tuple[Severity, str, str, str]
    """How grave a finding is, its kind, the rule, and the message."""


def match_document(outcome: MatchOutcome, *, catalogs: Iterable[Path | str] = ()) -> Document:
    """Report on where rules match.

    Args:
        outcome: What was found.
        catalogs: What was named on the command line.
    """
    selection, counts = outcome.selection, outcome.counts
    count = sum(counts.values())
    verdict = "1 match" if count == 1 else f"{count:,} matches" if count else "No matches"
    findings = findings_of(outcome, catalogs)

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = [each.line for each in findings if verbose]
        uses = rule_uses(counts, selection.refused, verbose=verbose)
        parts.append(rule_table(uses, len(counts)))
        if not count:
            parts.append(hint("dpl explain, with the same arguments, says why"))
        parts += listing(selection) if verbose else []
        return Group(*parts, *map(note, outcome.notes), *map(hint, outcome.hints))

    return Document(
        said=said,
        of=outcome,
        ok=outcome.ok,
        is_idle=not count,
        complaints=outcome.unmet,
        command="dpl match",
        subject=outcome.label,
        verdict="Not as expected" if outcome.unmet else verdict,
        failures=outcome.unmet,
        notes=outcome.notes,
        facts=(("matches", f"{count:,}"), ("refused", f"{len(outcome.refused):,}")),
        rules=rule_uses(counts, selection.refused),
        cases=expectation_cases(outcome.expected),
        findings=findings,
    )


def listing(selection: Selection, partitions: Iterable[Partition] = ()) -> list[Part]:
    """Return every match, the call that it became, and every refusal."""
    calls = {id(each.match): each.call.name for each in partitions}
    rows = [
        (m.rule, m.root.scope, m.root.label, calls.get(id(m), ""), m.nodes)
        for m in selection.ordered
    ]
    parts: list[Part] = []
    if rows:
        parts += [Text(), table_of(rows, "Matches", "rule scope root call? nodes:nodes")]
    return parts + ([Text(), refusal_list(selection.refused)] if selection.refused else [])


def expectation_cases(expected: Iterable[JudgedExpectation]) -> tuple[Case, ...]:
    """Return a case for each expectation."""
    return tuple(
        Case("expectations", item.text, "passed" if item.is_met else "failed", str(item))
        for item in expected
    )


def findings_of(
    outcome: MatchOutcome | RewriteOutcome,
    catalogs: Iterable[Path | str],
    more: Iterable[Told] = (),
) -> tuple[Finding, ...]:
    """Return each expectation that is not met, and what more is told of rules, where they stand.

    Args:
        outcome: What was done.
        catalogs: What was named on the command line.
        more: What is told of rules besides.
    """
    origins = {rule.qualified_name: rule.origin for rule in outcome.rules}
    catalogs = tuple(catalogs)
    told: list[Told] = [
        ("error", "expectation", item.rule, f"{outcome.label}: {item}")
        for item in outcome.expected
        if not item.is_met
    ]
    return tuple(
        Finding(kind, severity, rule, message, read_place(origins.get(rule, ""), catalogs))
        for severity, kind, rule, message in (*told, *more)
    )
