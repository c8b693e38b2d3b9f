"""How near a model comes to one that it approximates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.report.document import Case, Chapter, Document
from dplcli.report.layout import Group, Text, TextTable
from dplcli.report.tables import note, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dplcli.outcomes import AccuracyOutcome
    from dplcli.report.layout import Part
    from dplcli.verify.accuracy import NamedAccuracy

_WORST = 10
"""How many values inside are shown if nobody asks for all."""


def accuracy_document(outcome: AccuracyOutcome, *, verbose: bool) -> Document:
    """Report on two models, of which one approximates the other."""
    measured = outcome.measured
    outputs = _table(measured.outputs)
    parts: list[Part] = [outputs]
    layers = _by_sqnr(measured.layers or ())
    if measured.layers:
        few = layers[:_WORST]
        shown = measured.layers if verbose else [each for each in measured.layers if each in few]
        told = f"{len(measured.layers):,} values inside"
        if len(shown) < len(measured.layers):
            told += f"; the {len(shown)} least accurate, in order of computation:"
        parts += [Text(), Text(told), _table(shown, with_operators=True)]
    if measured.loss is not None:
        name, op_type, decibels = measured.loss
        lost = f"{decibels:.3g} dB" if math.isfinite(decibels) else "all"
        parts.append(Text(f"Most accuracy is lost at {op_type} {name!r}: {lost}."))
    notes = list(measured.notes)
    if measured.is_made_up:
        notes.append("inputs are made up; only --inputs with real data tells about accuracy in use")
    parts += map(note, notes)
    sets = f"{counted(len(measured.fed), 'set')} of inputs ({', '.join(measured.fed)})"
    verdict = "Near enough" if outcome.bounds else "Measured"
    verdict = "Not near enough" if outcome.unmet else verdict
    parts.append(Text(f"{verdict}, on {sets}."))
    return Document(
        text=Group(*parts),
        of=outcome,
        ok=not outcome.unmet,
        complaints=outcome.unmet,
        command="dpl accuracy",
        subject=f"{outcome.labels[1]} against {outcome.labels[0]}",
        verdict=verdict,
        notes=tuple(notes),
        facts=tuple(_least(measured.outputs)),
        cases=tuple(_case(outcome, each.name) for each in measured.outputs),
        failures=tuple(why for name, why in outcome.misses if not name),
        chapters=lambda: _chapters(outputs, layers),
    )


def _least(outputs: Sequence[NamedAccuracy]) -> Iterator[tuple[str, str]]:
    """Yield the least of each figure over the outputs."""
    for figure, (title, write) in _FIGURES.items():
        values = [getattr(each.accuracy, figure) for each in outputs]
        known = [value for value in values if value is not None]
        if known:
            yield f"least {title}", write(min(known))


def _case(outcome: AccuracyOutcome, output: str) -> Case:
    reasons = "; ".join(why for name, why in outcome.misses if name == output)
    return Case("outputs", output, "failed" if reasons else "passed", reasons)


def _chapters(outputs: TextTable, layers: list[NamedAccuracy]) -> Iterable[Chapter]:
    yield Chapter("Outputs", outputs)
    if layers:
        yield Chapter(
            "Values inside, the least accurate first", _table(layers, with_operators=True)
        )


def _by_sqnr(layers: Iterable[NamedAccuracy]) -> list[NamedAccuracy]:
    known = [each for each in layers if each.accuracy.sqnr is not None]
    return sorted(known, key=lambda each: each.accuracy.sqnr or 0.0)


def _table(values: Iterable[NamedAccuracy], *, with_operators: bool = False) -> TextTable:
    figures = (*(title for title, _ in _FIGURES.values()), "max abs")
    columns = ("operator", "value", *figures) if with_operators else ("output", *figures)
    rows = []
    for each in values:
        told = [(getattr(each.accuracy, figure), write) for figure, (_, write) in _FIGURES.items()]
        cells = ("" if value is None else write(value) for value, write in told)
        row = (each.name, *cells, number(each.accuracy.max_abs))
        rows.append((each.op_type, *row) if with_operators else row)
    return TextTable(*columns, right=figures, rows=rows)


def _decibels(sqnr: float) -> str:
    return "exact" if sqnr == math.inf else f"{sqnr:.1f}"


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "sqnr": ("SQNR dB", _decibels),
    "cosine": ("cosine", "{:.6f}".format),
    "agreement": ("agreement", lambda share: f"{100 * share:.2f} %"),
}
"""The figures, what a table calls them, and how they are written."""
