"""What inlining did, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.ir.scopes import scope_of
from dplcli.report.layout import Group, Table, Text
from dplcli.report.records import node_record

if TYPE_CHECKING:
    from dplcli.ir import Function
    from dplcli.passes.inline import InlinedCall, Inlining, RefusedCall
    from dplcli.report.layout import Part
    from dplcli.verify import VerificationResult

    Json = dict[str, Any]


def inline_record(
    label: str,
    inlining: Inlining,
    nodes: tuple[int, int],
    verification: VerificationResult | None,
    *,
    objection: str,
) -> Json:
    """Return the record ``dpl.inline/1``."""
    return {
        "schema": "dpl.inline/1",
        "model": label,
        "counts": _counts(inlining),
        "calls": [_call(item) for item in inlining.calls],
        "refused": [_refusal(item) for item in inlining.refused],
        "removed": [_function(function) for function in inlining.removed],
        "nodes": {"before": nodes[0], "after": nodes[1]},
        "objection": objection,
        "verification": None if verification is None else verification.to_json(),
    }


def _call(item: InlinedCall) -> Json:
    return {
        "function": _function(item.function),
        "call": node_record(item.call),
        "scope": item.scope,
        "nodes": [node_record(node) for node in item.nodes],
        "restored": item.is_restored,
    }


def _refusal(item: RefusedCall) -> Json:
    return {
        "function": _function(item.function),
        "call": node_record(item.call),
        "scope": scope_of(item.call.graph),
        "reason": item.reason,
    }


def _function(function: Function) -> Json:
    found = {"domain": function.domain, "name": function.name}
    return {**found, "overload": function.overload} if function.overload else found


def _counts(inlining: Inlining) -> dict[str, int]:
    counts = {_name(function): 0 for function in inlining.functions}
    for item in inlining.calls:
        counts[_name(item.function)] += 1
    return counts


def _name(function: Function) -> str:
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}::{function.name}{overload}"


def inline_table(inlining: Inlining) -> Part:
    """Return one row per function: its calls replaced, nodes put in, calls that stay and why."""
    if not inlining.functions:
        return Text("There is no function to inline.")
    columns = ("calls inlined", "nodes")
    refused = {_name(item.function): item.reason for item in reversed(inlining.refused)}
    more = ("calls kept", "why") if refused else ()
    table = Table("function", *columns, *more, right=(*columns, "calls kept"), prose=("why",))
    nodes = dict.fromkeys(_counts(inlining), 0)
    for item in inlining.calls:
        nodes[_name(item.function)] += len(item.nodes)
    for name, count in _counts(inlining).items():
        stay = sum(_name(item.function) == name for item in inlining.refused)
        reasons = (str(stay), refused.get(name, "")) if refused else ()
        table.add_row(name, str(count), str(nodes[name]), *reasons)
    return table


def call_list(inlining: Inlining) -> Part:
    """Return one row per call that was replaced, and per call that stays."""
    table = Table("call", "function", "scope", "nodes", prose=("nodes",))
    for item in inlining.calls:
        made = " ".join(f"{node.op_type}:{node.label}" for node in item.nodes)
        table.add_row(item.call.label, _name(item.function), item.scope, made)
    for refused in inlining.refused:
        scope = scope_of(refused.call.graph)
        table.add_row(refused.call.label, _name(refused.function), scope, refused.reason)
    return table


def inline_summary(inlining: Inlining, nodes: tuple[int, int]) -> Part:
    """Say what is gone, how the main graph has grown, and what got new names."""
    count = len(inlining.removed)
    gone = "1 function was" if count == 1 else f"{count} functions were"
    before, after = nodes
    lines = [Text(f"{gone} removed; the main graph went from {before} to {after} nodes.")]
    new = sum(not item.is_restored for item in inlining.calls)
    if new:
        what = "1 call does" if new == 1 else f"{new} calls do"
        lines.append(Text(f"{what} not say what was there before; the nodes got new names."))
    return Group(*lines)
