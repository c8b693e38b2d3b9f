"""Catalogues, problems and trials as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.dpl.rule import PatternRule, RewriteRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.lint import Problem
    from dplcli.report.catalog_tables import CatalogEntry, Trial

    Json = dict[str, Any]


def catalogs_record(entries: Sequence[CatalogEntry]) -> Json:
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
    return {"schema": "dpl.patterns.show/1", "rules": [_rule(rule) for rule in rules]}


def _rule(rule: PatternRule | RewriteRule) -> Json:
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


def trials_record(trials: Sequence[Trial]) -> Json:
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
