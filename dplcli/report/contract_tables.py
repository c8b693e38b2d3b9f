"""Contracts as tables for a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dplcli.report.layout import Group, Table, Text
from dplcli.report.tables import few

if TYPE_CHECKING:
    from dplcli.report.layout import Part
    from dplcli.targets import AttributeContract, Contract, FunctionContract, PortContract

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
