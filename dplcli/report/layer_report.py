"""Two models compared inside, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.report.escaping import one_line
from dplcli.report.layout import Group, Table, Text

if TYPE_CHECKING:
    from dplcli.report.layout import Part
    from dplcli.verify.layer_result import Layer, Layers

_LONG = 1000


def layer_table(layers: Layers) -> Part:
    """Return one row per value that both models compute, and the first that differs."""
    columns = ("max abs", "max rel", "atol")
    table = Table("value", "candidate", "made by", "aligned by", *columns, "", right=columns)
    for layer in layers.layers:
        table.add_row(*_row(layer))
    return Group(table, Text(), *layer_summary(layers))


def layer_summary(layers: Layers) -> list[Text]:
    """Say how many values were compared, and which is the first that differs."""
    counts = layers.counts()
    by = ", ".join(f"{number:,} by {how}" for how, number in sorted(counts.items()))
    wrong = sum(not layer.ok for layer in layers.layers)
    alone = f"{layers.alone[0]:,} of the original and {layers.alone[1]:,} of the candidate"
    lines = [
        Text(f"{len(layers.layers):,} values compared with optimisation off ({by or 'none'})."),
        Text(f"Not compared, because nothing in the other model is the like: {alone}."),
    ]
    if layers.first is None:
        return [*lines, Text("No value differs.", style="bold green")]
    first = layers.first
    partner = "" if first.candidate == first.original else f", {first.candidate!r} there"
    text = f"{wrong:,} differ; the first is {first.original!r} ({first.op_type}{partner})."
    return [*lines, Text(text, style="bold red")]


def _row(layer: Layer) -> tuple[str, ...]:
    found = layer.comparison
    return (
        one_line(layer.original, _LONG),
        "" if layer.candidate == layer.original else one_line(layer.candidate, _LONG),
        layer.op_type,
        layer.how,
        "" if found.max_abs is None else f"{found.max_abs:.2g}",
        "" if found.max_rel is None else f"{found.max_rel:.2g}",
        f"{found.atol:.2g}",
        "" if layer.ok else f"{found.mismatches:,} differ",
    )
