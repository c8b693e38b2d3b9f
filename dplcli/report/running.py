"""What a model was fed and gave, where its partitions ran, and what a plan of them holds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.report.document import Document, kernel_cases, kernel_chapters
from dplcli.report.layout import Group, Text, TextTable
from dplcli.report.tables import kernel_lines, note, number, verification_report

if TYPE_CHECKING:
    from dplcli.outcomes import KernelsOutcome, RunOutcome
    from dplcli.report.layout import Part
    from dplcli.verify.settings import Array


def run_document(outcome: RunOutcome) -> Document:
    """Report on a model that was run."""
    report = outcome.kernels
    columns = ("min", "max", "mean")
    rows = [
        (kind, each.name, each.dtype, _shape(each.data), *map(number, each.figures))
        for kind, arrays in (("input", outcome.given), ("output", outcome.made))
        for each in arrays
    ]
    parts: list[Part] = [
        TextTable("", "name", "type", "shape", *columns, right=columns, rows=rows),
        *map(note, outcome.notes),
    ]
    if report is not None:
        parts.append(Text())
        if outcome.verification is None:
            not_checked = note("what they gave is not checked; --check does that")
            parts += [*kernel_lines(report), not_checked]
        else:
            parts.append(verification_report(outcome.verification, verbose=False))
    if outcome.output is not None:
        parts.append(Text(f"Wrote {outcome.output}."))
    return Document(
        text=Group(*parts),
        of=outcome,
        ok=not outcome.complaints,
        complaints=outcome.complaints,
        command="dpl run",
        subject=outcome.label,
        notes=outcome.notes,
        cases=kernel_cases(report),
        chapters=lambda: kernel_chapters(report),
    )


def _shape(data: Array) -> str:
    return "x".join(map(str, data.shape)) or "scalar"


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
        of=outcome,
        ok=not complaints,
        complaints=complaints,
        command="dpl kernels plan",
        subject=outcome.label,
    )
