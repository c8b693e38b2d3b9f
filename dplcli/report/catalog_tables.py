"""Catalogues, problems and trials as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dplcli.dpl.for_each import shown
from dplcli.dpl.rule import PatternRule, RewriteRule
from dplcli.report.layout import Group, Table, Text, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.lint import Problem
    from dplcli.report.layout import Part


class CatalogEntry(Protocol):
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


class Trial(Protocol):
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


def catalog_list(entries: Sequence[CatalogEntry]) -> Part:
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
    return Group(*lines, Text(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}."))


def trial_table(trials: Sequence[Trial], *, verbose: bool) -> Part:
    """Return one row per rule, then what failed and what could not be tried."""
    figures = ("examples", "made up", "not tried", "failed")
    table = Table("rule", *figures, right=figures)
    by_rule: dict[str, list[Trial]] = {}
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
