"""How long two models took, and where partitions spent it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dplcli.errors import counted
from dplcli.report.document import Chapter, Document, kernel_cases, kernel_chapters
from dplcli.report.layout import Group, Text, TextTable
from dplcli.report.tables import kernel_lines, note

if TYPE_CHECKING:
    from dplcli.outcomes import BenchOutcome
    from dplcli.report.layout import Part

    Kind = Literal["wall", "cpu"]

_KINDS: tuple[Kind, ...] = ("cpu", "wall")
_NAMES = {"cpu": "CPU time", "wall": "time by the clock"}


def bench_document(outcome: BenchOutcome) -> Document:
    """Report on two models that were timed."""
    report = outcome.kernels
    verdict = _verdict(outcome)
    table = _sides(outcome)
    parts: list[Part] = [Text(_conditions(outcome)), Text(), table]
    if report is not None:
        parts += [Text(), *kernel_lines(report)]
        if outcome.times:
            parts += [Text(), _functions(outcome)]
    parts += [*map(note, outcome.notes), Text(), *map(Text, verdict)]
    return Document(
        text=Group(*parts),
        of=outcome,
        ok=report is None or not report.complaints,
        complaints=() if report is None else report.complaints,
        command="dpl bench",
        subject=f"{outcome.sides[0].label} and {outcome.sides[1].label}",
        verdict=verdict[-1],
        notes=outcome.notes,
        cases=kernel_cases(report),
        chapters=lambda: (Chapter("Times", table), *kernel_chapters(report)),
    )


def _conditions(outcome: BenchOutcome) -> str:
    threads = counted(outcome.threads, "thread") if outcome.threads else "all cores"
    rounds = len(outcome.sides[0].timing.wall)
    return (
        f"{outcome.fed}, {threads}, optimisation level {outcome.level}, "
        f"{counted(rounds, 'round')} by turns; medians, and the middle half of the rounds"
    )


def _sides(outcome: BenchOutcome) -> TextTable:
    rows = []
    for name, side in zip("AB", outcome.sides, strict=True):
        figures = []
        for kind in _KINDS:
            low, middle, high = getattr(side, kind)
            figures += [_ms(middle), f"{_ms(low)} to {_ms(high)}"]
        rows.append((name, side.label, side.engine, *figures))
    columns = ("", "model", "runs in", "CPU ms", "between", "wall ms", "between ")
    return TextTable(*columns, right=columns[3:], rows=rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _verdict(outcome: BenchOutcome) -> list[str]:
    """Say how many times as long B takes, and which is quicker, if that can be told."""
    said, found = [], {}
    for kind in _KINDS:
        low, middle, high = found[kind] = getattr(outcome.ratios, kind)
        said.append(
            f"B takes {middle:.3g} times the {_NAMES[kind]} of A ({low:.3g} to {high:.3g})."
        )
    if outcome.is_void:
        return [*said, "That says nothing: no partition ran on the library."]
    low, _, high = found["cpu"]
    ours, theirs = outcome.sides
    if low <= 1 <= high:
        said.append("Neither is quicker: the rounds disagree.")
    elif high < 1:
        said.append(f"B is quicker: {theirs.label} in {theirs.engine}.")
    elif outcome.kernels is not None:
        said.append(f"A is quicker: {ours.label} in onnxruntime alone.")
    else:
        said.append(f"A is quicker: {ours.label}.")
    return said


def _functions(outcome: BenchOutcome) -> TextTable:
    """Return where the library spent its time, by function, the longest first."""
    assert outcome.kernels is not None  # noqa: S101  # times are of kernels
    functions = {item.call: item.function for item in outcome.kernels.partitions}
    sums: dict[str, tuple[int, float, float]] = {}
    for item in outcome.times:
        count, own, moved = sums.get(functions[item.call], (0, 0.0, 0.0))
        sums[functions[item.call]] = count + 1, own + item.milliseconds, moved + item.reorders
    longest = sorted(sums.items(), key=lambda pair: -sum(pair[1][1:]))
    total = sum(own + moved for _, own, moved in sums.values())
    rows = [
        (name, f"{count:,}", f"{own:.3g}", f"{moved:.3g}", f"{(own + moved) / total:.0%}")
        for name, (count, own, moved) in longest
        if total
    ]
    columns = ("function", "calls", "ms", "ms of reorders", "share")
    return TextTable(*columns, right=columns[1:], rows=rows)
