"""What a model was fed and gave, where its partitions ran, and what a plan of them holds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.errors import counted
from dplcli.report.document import Document, kernel_cases, kernel_chapters
from dplcli.report.layout import Group, Text, TextTable
from dplcli.report.tables import kernel_lines, note, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.outcomes import KernelsOutcome, RunOutcome
    from dplcli.report.layout import Part
    from dplcli.verify.settings import Array

    Json = dict[str, Any]


def run_document(outcome: RunOutcome) -> Document:
    """Report on a model that was run."""
    report = outcome.kernels
    columns = ("min", "max", "mean")
    rows = [
        (kind, name, dtype, _shape(data), *map(number, _figures(data)))
        for kind, name, dtype, data in _arrays(outcome)
    ]
    parts: list[Part] = [
        TextTable("", "name", "type", "shape", *columns, right=columns, rows=rows),
        *map(note, outcome.notes),
    ]
    if report is not None:
        parts += [Text(), *kernel_lines(report)]
    if outcome.output is not None:
        parts.append(Text(f"Wrote {outcome.output}."))
    return Document(
        text=Group(*parts),
        record=lambda: _record(outcome),
        ok=report is None or not report.complaints,
        complaints=() if report is None else report.complaints,
        command="dpl run",
        subject=outcome.label,
        notes=outcome.notes,
        cases=kernel_cases(report),
        chapters=lambda: kernel_chapters(report),
    )


def _arrays(outcome: RunOutcome) -> Iterator[tuple[str, str, str, Array]]:
    """Yield every array that the model was fed or gave; those of a sequence are many."""
    for name, value in outcome.inputs.items():
        if isinstance(value, list):
            for place, item in enumerate(value):
                yield "input", f"{name}[{place}]", item.dtype.name, item
        elif value is not None:
            yield "input", name, value.dtype.name, value
    for name, leaves in outcome.outputs.items():
        for leaf in leaves:
            yield "output", f"{name}{leaf.label}", leaf.dtype, leaf.data


def _shape(data: Array) -> str:
    return "x".join(map(str, data.shape)) or "scalar"


def _figures(data: Array) -> tuple[float | None, ...]:
    """Return the least, the largest and the mean number; None where there are none."""
    if data.dtype.kind not in "biuf" or not data.size:
        return None, None, None
    wide = data.astype(np.float64)
    found = (float(wide.min()), float(wide.max()), float(wide.mean()))
    return tuple(value if np.isfinite(value) else None for value in found)


def _record(outcome: RunOutcome) -> Json:
    values: dict[str, list[Json]] = {"input": [], "output": []}
    for kind, name, dtype, data in _arrays(outcome):
        figures = dict(zip(("min", "max", "mean"), _figures(data), strict=True))
        values[kind].append({"name": name, "dtype": dtype, "shape": list(data.shape), **figures})
    return {
        "schema": "dpl.run/1",
        "model": outcome.label,
        "fed": outcome.fed,
        "inputs": values["input"],
        "level": outcome.level,
        "outputs": values["output"],
        "kernels": None if outcome.kernels is None else outcome.kernels.to_json(),
    }


def plan_document(outcome: KernelsOutcome) -> Document:
    """Report on a plan of partitions."""
    total = counted(len(outcome.partitions), "partition")
    found = f"{outcome.taken:,} of {total} {'is' if outcome.taken == 1 else 'are'} in the plan"
    complaints = () if outcome.taken else (f"{found}, so it is not written",)
    if not outcome.partitions:
        complaints = (f"{outcome.label} has no partition for dnnl, so no plan is written",)
    rows = Counter(
        (item.function, item.library or "onnxruntime", item.why) for item in outcome.partitions
    )
    table = TextTable(
        *("function", "calls", "runs on", "why not"),
        right=("calls",),
        prose=("why not",),
        rows=[(name, f"{count:,}", where, why) for (name, where, why), count in rows.items()],
    )
    parts: list[Part] = [table] if rows else []
    if outcome.taken:
        parts.append(Text(f"{found}. Wrote {outcome.output}."))
    return Document(
        text=Group(*parts),
        record=lambda: {
            "schema": "dpl.kernels/1",
            "model": outcome.label,
            "planned": outcome.taken,
            "partitions": [
                {name: getattr(item, name) for name in ("call", "function", "library", "why")}
                for item in outcome.partitions
            ],
        },
        ok=not complaints,
        complaints=complaints,
        command="dpl kernels plan",
        subject=outcome.label,
    )
