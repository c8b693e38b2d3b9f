"""What runs of models gave: values, where partitions ran, how long they took, how near they are."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.report.document import Case, Document
from dplcli.report.layout import Group, Text, TextTable
from dplcli.report.tables import note, number, some, table_of
from dplcli.report.verify import kernel_cases, kernel_lines, verification_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dplcli.outcomes.comparing import AccuracyOutcome
    from dplcli.outcomes.running import BenchOutcome, KernelsOutcome, RunOutcome
    from dplcli.report.layout import Part
    from dplcli.verify.accuracy import Loss, Measured, NamedAccuracy, OutputGain
    from dplcli.verify.values import PartitionTime
    from dplcli.verify.verdict import KernelReport


# What one model was fed and gave, and which of its partitions a plan takes.


def run_document(outcome: RunOutcome) -> Document:
    """Report on a model that was run."""
    report = outcome.kernels
    rows = [
        (kind, each.name, each.dtype, "x".join(map(str, each.shape)) or "scalar", *each.figures)
        for kind, arrays in (("input", outcome.given), ("output", outcome.made))
        for each in arrays
    ]
    columns = "= name type shape min:figure max:figure mean:figure"
    table = table_of(rows, "Inputs and outputs", columns)

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = [table, *map(note, outcome.notes)]
        if report is not None and outcome.verification is None:
            not_checked = note("what they gave is not checked; --check does that")
            parts += [Text(), *kernel_lines(report, verbose=verbose), not_checked]
        elif report is not None and outcome.verification is not None:
            parts += [Text(), verification_report(outcome.verification, verbose=verbose)]
        written = outcome.output
        return Group(*parts, *([] if written is None else [Text(f"Wrote {written}.")]))

    return Document(
        said=said,
        of=outcome,
        ok=outcome.ok,
        complaints=outcome.complaints,
        command="dpl run",
        subject=outcome.label,
        notes=outcome.notes,
        cases=kernel_cases(report),
    )


def plan_document(outcome: KernelsOutcome) -> Document:
    """Report on a plan of partitions."""
    fates = Counter(
        (item.function, item.library or "onnxruntime", item.why) for item in outcome.partitions
    )
    rows = [(name, n, where, why) for (name, where, why), n in fates.items()]
    table = table_of(rows, "", "function calls:count runs_on why_not:prose")

    def said(*, verbose: bool) -> Part:
        checked = outcome.verification
        part = table if checked is None else verification_report(checked, verbose=verbose)
        end = [Text(f"{outcome.found}. Wrote {outcome.output}.")] if outcome.ok else []
        return Group(part, *map(note, outcome.notes), *end)

    return Document(
        said=said,
        of=outcome,
        ok=outcome.ok,
        complaints=outcome.complaints,
        command="dpl kernels plan",
        subject=outcome.label,
    )


# How long two models took, and where partitions spent it.


_CLOCKS = ("CPU time", "time by the clock")


def bench_document(outcome: BenchOutcome) -> Document:
    """Report on two models that were timed."""
    report = outcome.kernels
    verdict = _comparison(outcome)
    table = _sides(outcome)
    threads = counted(outcome.threads, "thread") if outcome.threads else "all cores"
    rounds = counted(len(outcome.sides[0].timing.wall), "round")
    conditions = f"{outcome.fed}, {threads}, optimisation level {outcome.level}, {rounds} by turns"
    head = Text(f"{conditions}; medians, and the middle half of the rounds")

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = [head, Text(), table]
        if report is not None:
            parts += [Text(), *kernel_lines(report, verbose=verbose)]
            parts += [Text(), _functions(report, outcome.times)] if outcome.times else []
        return Group(*parts, *map(note, outcome.notes), Text(), *map(Text, verdict))

    return Document(
        said=said,
        of=outcome,
        ok=outcome.ok,
        complaints=outcome.complaints,
        command="dpl bench",
        subject=f"{outcome.sides[0].label} and {outcome.sides[1].label}",
        verdict=verdict[-1],
        notes=outcome.notes,
        cases=kernel_cases(report),
    )


def _sides(outcome: BenchOutcome) -> Part:
    rows = []
    for name, side in zip("AB", outcome.sides, strict=True):
        ends = ([seconds * 1e3 for seconds in spread] for spread in (side.cpu, side.wall))
        times = [(middle, f"{low:.3g} to {high:.3g}") for low, middle, high in ends]
        rows.append((name, side.label, side.engine, *times[0], *times[1]))
    columns = "= model runs_in CPU_ms:ms between:number wall_ms:ms between_:number"
    return table_of(rows, "Times", columns)


def _comparison(outcome: BenchOutcome) -> list[str]:
    """Say how many times as long B takes, and which is quicker, if that can be told."""
    said = [
        f"B takes {middle:.3g} times the {clock} of A ({low:.3g} to {high:.3g})."
        for clock, (low, middle, high) in zip(_CLOCKS, outcome.ratios, strict=True)
    ]
    ours, theirs = outcome.sides
    if outcome.is_void:
        said.append("That says nothing: no partition ran on the library.")
    elif outcome.quicker is None:
        said.append("Neither is quicker: the rounds disagree.")
    elif outcome.quicker == "second":
        said.append(f"B is quicker: {theirs.label} in {theirs.engine}.")
    else:
        alone = " in onnxruntime alone" if outcome.kernels is not None else ""
        said.append(f"A is quicker: {ours.label}{alone}.")
    return said


def _functions(report: KernelReport, times: Iterable[PartitionTime]) -> Part:
    """Return where the library spent its time, by function, the longest first."""
    functions = {item.call: item.function for item in report.partitions}
    sums: dict[str, tuple[int, float, float]] = {}
    for item in times:
        count, own, moved = sums.get(functions[item.call], (0, 0.0, 0.0))
        sums[functions[item.call]] = count + 1, own + item.milliseconds, moved + item.reorders
    longest = sorted(sums.items(), key=lambda pair: -sum(pair[1][1:]))
    total = sum(own + moved for _, own, moved in sums.values())
    rows = [
        (name, count, own, moved, f"{(own + moved) / total:.0%}")
        for name, (count, own, moved) in longest
        if total
    ]
    columns = "function calls:count ms:ms ms_of_reorders:ms share:number"
    return table_of(rows, "Times by function", columns)


# How near a model comes to one that it approximates.


_WORST = 10
"""How many values inside are shown if nobody asks for all."""


def accuracy_document(outcome: AccuracyOutcome) -> Document:
    """Report on two models, of which one approximates the other."""
    measured = outcome.measured
    notes = list(measured.notes)
    if measured.is_made_up:
        notes.append("inputs are made up; only --inputs with real data tells about accuracy in use")
    sets = f"{counted(len(measured.fed), 'set')} of inputs ({', '.join(measured.fed)})"
    verdict = "Near enough" if outcome.bounds else "Measured"
    verdict = "Not near enough" if outcome.unmet else verdict

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = [_table(measured.outputs, "Outputs")]
        if measured.layers:
            parts += [Text(), *_inside(measured.layers, None if verbose else _WORST)]
        lines = _losses(measured, verbose=verbose)
        parts += [Text(), *lines] if lines else []
        return Group(*parts, *map(note, notes), Text(f"{verdict}, on {sets}."))

    return Document(
        said=said,
        of=outcome,
        ok=not outcome.unmet,
        complaints=outcome.unmet,
        command="dpl accuracy",
        subject=f"{outcome.labels[1]} against {outcome.labels[0]}",
        verdict=verdict,
        notes=tuple(notes),
        facts=tuple(_least(measured.outputs)),
        cases=tuple(
            Case("outputs", each.name, "failed" if reasons else "passed", reasons)
            for each in measured.outputs
            for reasons in ["; ".join(why for name, why in outcome.misses if name == each.name)]
        ),
        failures=tuple(why for name, why in outcome.misses if not name),
    )


_MOST_NODES = 4
"""How many nodes of a place are named."""

_SHOWN_GAIN = 0.05
"""From how many decibels on a gain shows, as figures are written."""


def _losses(measured: Measured, *, verbose: bool) -> list[Text]:
    """Say where most accuracy is lost, and what was gained by leaving that as it was."""
    best = measured.loss
    if best is None:
        return []
    tried, is_gain = len(measured.tried), best.gain >= _SHOWN_GAIN
    lines = [f"{'Most accuracy is lost' if is_gain else 'Most noise is added'} at {_place(best)}."]
    if not is_gain:
        which = f"None of the {tried} places that add most noise" if tried > 1 else "That"
        lines.append(f"{which} gains anything if it alone is left in float.")
    if verbose and tried > 1:
        lines += [f"Tried, too: {_place(each)}." for each in measured.tried if each is not best]
    return [*map(Text, lines)]


def _place(loss: Loss) -> str:
    """Name a place, the noise that it adds, and what is gained if it is left in float."""
    nodes = some([f"{node.op_type} {node.label!r}" for node in loss.nodes], _MOST_NODES)
    moved = [each for each in loss.outputs if abs(each.gain) >= _SHOWN_GAIN] or loss.outputs[:1]
    changes = some([_change(each) for each in moved], _MOST_NODES)
    left = f"; left in float: {changes}" if changes else ""
    return f"{nodes}: {_decibels(loss.sqnr_alone)} alone{left}"


def _change(change: OutputGain) -> str:
    is_moved = not abs(change.left - change.before) < _SHOWN_GAIN  # nor where both are infinite
    before = f"instead of {_sqnr(change.before)}" if is_moved else "as before"
    after = f"{_decibels(change.left)} at {change.name!r} {before}"
    if change.unrounded is None:
        return after
    return f"{after} ({_decibels(change.unrounded)} if its result is not quantised, either)"


def _sqnr(sqnr: float) -> str:
    return "exact" if sqnr == math.inf else f"{sqnr:.1f}"


def _decibels(sqnr: float) -> str:
    return f"{_sqnr(sqnr)} dB" if math.isfinite(sqnr) else _sqnr(sqnr)


def _least(outputs: Sequence[NamedAccuracy]) -> Iterator[tuple[str, str]]:
    """Yield the least of each figure over the outputs."""
    for figure, (title, write) in _FIGURES.items():
        values = [getattr(each.accuracy, figure) for each in outputs]
        known = [value for value in values if value is not None]
        if known:
            yield f"least {title}", write(min(known))


def _inside(layers: Sequence[NamedAccuracy], most: int | None) -> Iterator[Part]:
    """Yield the values inside in order of computation: the *most* least accurate, or all."""
    known = [each for each in layers if each.accuracy.sqnr is not None]
    least = sorted(known, key=_noise)[:most]
    shown = layers if most is None else [each for each in layers if each in least]
    told = f"{counted(len(layers), 'value')} inside"
    if len(shown) < len(layers):
        told += f"; the {len(shown)} at which most noise is added, in order of computation:"
    yield Text(told)
    yield _table(shown, "Values inside", with_operators=True)


def _noise(value: NamedAccuracy) -> tuple[float, float]:
    """Return what sorts values by the noise that their places add, then by all that they have."""
    alone = math.inf if value.sqnr_alone is None else value.sqnr_alone
    return alone, value.accuracy.decibels


def _table(
    values: Iterable[NamedAccuracy], title: str, *, with_operators: bool = False
) -> TextTable:
    """Return a row for each value; files show the least accurate first."""
    figures = (*(title for title, _ in _FIGURES.values()), "max abs")
    own = ("alone dB",) if with_operators else ()
    columns = ("operator", "value", *own, *figures) if with_operators else ("output", *figures)
    rows, ranks = [], []
    for each in values:
        ranks.append(_noise(each)[0] if with_operators else each.accuracy.decibels)
        told = [(getattr(each.accuracy, figure), write) for figure, (_, write) in _FIGURES.items()]
        cells = ("" if value is None else write(value) for value, write in told)
        row = (*cells, number(each.accuracy.max_abs))
        alone = "" if each.sqnr_alone is None else _sqnr(each.sqnr_alone)
        named = (each.op_type, each.name, alone) if with_operators else (each.name,)
        rows.append((*named, *row))
    return TextTable(*columns, right=(*own, *figures), rows=rows, title=title, ranks=ranks)


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "sqnr": ("SQNR dB", _sqnr),
    "cosine": ("cosine", "{:.6f}".format),
    "agreement": ("agreement", lambda share: f"{100 * share:.2f} %"),
}
"""The figures, what a table calls them, and how they are written."""
