"""Repeated blocks as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.report.layout import Table, Text
from dplcli.report.records import node_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.passes.repeat import Family
    from dplcli.report.layout import Part

_NUMBERS = ("calls", "nodes each", "share", "inputs", "outputs")
_FEW_NAMES = 4


def repeat_table(families: Sequence[Family], total: int) -> Part:
    """Return one row per kind of block: how often it is called, how large it is, what differs.

    Args:
        families: The kinds of blocks.
        total: How many nodes were looked at.
    """
    if not families:
        return Text("No block repeats often enough, or saves enough.")
    table = Table("block", *_NUMBERS, "calls differ in", right=_NUMBERS, prose=("calls differ in",))
    for family in families:
        calls = len(family.partitions)
        share = "" if family.is_nested else f"{100 * calls * family.size / total:.0f} %"
        first = family.partitions[0].call
        counts = map(str, (calls, family.size))
        width = map(str, (len(first.inputs), len(first.outputs)))
        name = f"{family.function.domain}::{family.function.name}"
        label = f"  {name}" if family.is_nested else name
        table.add_row(label, *counts, share, *width, _difference(family))
    return table


def _difference(family: Family) -> str:
    parts = []
    if family.differing:
        few = ", ".join(family.differing[:_FEW_NAMES])
        more = len(family.differing) - _FEW_NAMES
        parts.append(f"attributes {few}" + (f" and {more} more" if more > 0 else ""))
    if family.reshaped:
        plural = "s" if family.reshaped > 1 else ""
        parts.append(f"shape of {family.reshaped} weight{plural}")
    return "; ".join(parts) or "inputs alone"


def size_line(size: tuple[int, int]) -> Text:
    """Say what became of the file."""
    before, after = size
    change = 100 * (after - before) / before if before else 0
    return Text(f"The file went from {before:,} to {after:,} bytes ({change:+.1f} %).")


def block_list(families: Sequence[Family]) -> Part:
    """Return one row per call: what is called, and the nodes that it stands for."""
    table = Table("call", "block", "from", "to", "nodes")
    for family in families:
        for partition in family.partitions:
            nodes = partition.match.nodes
            label = f"{nodes[0].op_type}:{nodes[0].label}", f"{nodes[-1].op_type}:{nodes[-1].label}"
            table.add_row(partition.call.name, family.function.name, *label, str(len(nodes)))
    return table


def family_records(families: Sequence[Family]) -> list[dict[str, Any]]:
    """Return one record per kind of block."""
    return [
        {
            "rule": family.rule.qualified_name,
            "function": {"domain": family.function.domain, "name": family.function.name},
            "calls": len(family.partitions),
            "nodes": family.size,
            "nested": family.is_nested,
            "inputs": [value.name for value in family.function.body.inputs],
            "outputs": [value.name for value in family.function.body.outputs],
            "differing": {"attributes": list(family.differing), "weight_shapes": family.reshaped},
            "first": [node_record(node) for node in family.partitions[0].match.nodes[:1]],
        }
        for family in families
    ]
