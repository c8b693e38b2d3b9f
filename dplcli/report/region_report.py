"""Regions as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.ir.scopes import scope_of
from dplcli.report.layout import Group, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Function
    from dplcli.passes.merge import Region
    from dplcli.report.layout import Part


def regions_record(regions: Sequence[Region] | None) -> dict[str, Any]:
    """Return what ``dpl.partition/1`` says of regions; null if none were to be made."""
    return {"regions": None if regions is None else [_region(region) for region in regions]}


def _region(region: Region) -> dict[str, Any]:
    call, function = region.call, region.function
    return {
        "target": function.domain,
        "function": {"domain": function.domain, "name": function.name},
        "call": call.name,
        "scope": scope_of(call.graph),
        "partitions": list(region.partitions),
        "inputs": [value.name for value in call.inputs if value is not None],
        "outputs": [value.name for value in call.outputs if value is not None],
    }


def region_table(regions: Sequence[Region]) -> Part:
    """Return one row per function that holds several partitions, and how many are left alone."""
    if not regions:
        return Text("There are no partitions to merge.")
    calls: dict[Function, list[Region]] = {}
    for region in regions:
        if len(region.partitions) > 1:
            calls.setdefault(region.function, []).append(region)
    alone = sum(len(region.partitions) == 1 for region in regions)
    rest = Text(_without_neighbour(alone), style="dim")
    if not calls:
        return rest
    columns = ("calls", "partitions each", "inputs", "outputs")
    table = Table("region", *columns, right=columns)
    for function, of_function in calls.items():
        body = function.body
        sizes = (len(of_function), body.node_count, len(body.inputs), len(body.outputs))
        table.add_row(f"{function.domain}::{function.name}", *map(str, sizes))
    return Group(table, rest) if alone else table


def _without_neighbour(count: int) -> str:
    if count == 1:
        return "1 partition has no neighbour that it can be merged with."
    return f"{count} partitions have no neighbours that they can be merged with."
