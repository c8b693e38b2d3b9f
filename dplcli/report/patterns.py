"""Catalogues: their rules, mistakes in them, and whether rules do what they say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.finding import lacks_examples
from dplcli.catalog.template import shown
from dplcli.errors import CatalogError, counted
from dplcli.keys import keys
from dplcli.language.replacement import RewriteRule
from dplcli.report.document import Case, Document, Finding, read_place
from dplcli.report.layout import Group, Text, joined
from dplcli.report.tables import finding_line, opset_range, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.catalog.lint import Problem
    from dplcli.errors import DplError
    from dplcli.language.rule import PatternRule
    from dplcli.outcomes.rules import CatalogEntry, Trial
    from dplcli.report.document import Status
    from dplcli.report.layout import Part


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
    return Document(said=table_of(entries), of=CatalogList(entries), about="rules")


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
            lines.append(f"opsets {opset_range(rule)}")
        parts += [Text(f"  {line}") for line in lines]
    return Document(said=Group(*parts), of=RuleList(tuple(map(ShownRule, rules))))


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
        about="rules",
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
        about="rules",
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
        about="rules",
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
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        of_rule = counts.setdefault(trial.rule.qualified_name, Counter())
        if trial.verdict == "passed" and trial.kind == "example":
            of_rule["examples"] += 1
        elif trial.verdict == "passed":
            of_rule["made up"] += trial.graphs
        else:
            of_rule[trial.verdict] += 1
    figures = ("examples", "made up", "not tried", "failed")
    rows = [(name, *(of_rule[figure] for figure in figures)) for name, of_rule in counts.items()]
    columns = "rule examples:count made_up:count not_tried:count failed:count"
    parts: list[Part] = [table_of(rows, "Rules", columns)]
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
