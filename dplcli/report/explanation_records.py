"""Explanations as JSON: the record ``dpl.explain/1``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.dpl.tracing import headline
from dplcli.ir.scopes import scope_of
from dplcli.report.records import node_record, refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.tracing import Trace
    from dplcli.passes.explanation import NodeExplanation, PartFit, RuleExplanation

    Json = dict[str, Any]


def explain_record(
    label: str, rules: Sequence[RuleExplanation], verdicts: Sequence[NodeExplanation]
) -> Json:
    """Return what became of each rule, and what each says of the node asked about."""
    return {
        "schema": "dpl.explain/1",
        "model": label,
        "rules": [_rule(item) for item in rules],
        "verdicts": [_verdict(item) for item in verdicts],
    }


def _rule(item: RuleExplanation) -> Json:
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
        "nearest": None if item.nearest is None else trace_record(item.nearest),
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


def _verdict(item: NodeExplanation) -> Json:
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
        "trace": None if item.trace is None else trace_record(item.trace),
    }


def trace_record(trace: Trace) -> Json:
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
