"""What the check of numbers says: the verdict, the outputs, and the values on the way."""

from __future__ import annotations

import decimal
import math
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dplcli.errors import counted
from dplcli.escaping import one_line
from dplcli.report.document import Case, Document, Drawn, DrawnModel, DrawnStep
from dplcli.report.layout import Bars, Group, Text
from dplcli.report.tables import hint, note, number, percent, some, table_of, with_rest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dplcli.outcomes.comparing import VerifyOutcome
    from dplcli.report.layout import Part
    from dplcli.verify import OutputComparison, VerificationResult
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.verdict import KernelReport


def verification_document(
    subject: str,
    outcome: VerifyOutcome,
    *,
    files: tuple[Path | None, Path | None] = (None, None),
) -> Document:
    """Report on two models that were compared.

    Args:
        subject: The names of the two files.
        outcome: The comparison.
        files: The two files, as far as they are models.
    """
    result, inside = outcome.verification, outcome.inside

    def said(*, verbose: bool) -> Part:
        told = [note(outcome.layers)] if isinstance(outcome.layers, str) else []
        before = told if inside is None else [layer_table(inside), Text()]
        found = verification_report(result, verbose=verbose, with_outputs=True)
        return Group(*before, found, *map(hint, outcome.hints))

    return Document(
        said=said,
        of=outcome,
        command="dpl verify",
        subject=subject,
        ok=outcome.ok,
        verdict=equivalence(result),
        facts=power_facts(result),
        failures=(*result.objections, *result.doubts),
        notes=result.warnings,
        verification=result,
        cases=kernel_cases(result.kernels),
        layers=inside,
        draws=lambda: drawn_layers(files, inside),
    )


def kernel_cases(report: KernelReport | None) -> tuple[Case, ...]:
    """Return a case for each partition, if kernels were asked for: those not run are skipped."""
    if report is None:
        return ()
    group = f"partitions on {report.kernels.library}"
    return tuple(
        Case(group, item.call or item.function, "passed" if item.runs else "skipped", item.why)
        for item in report.partitions
    )


def equivalence(result: VerificationResult) -> str:
    """Return the verdict in a few words."""
    if not result.equivalent:
        return "NOT equivalent"
    if result.doubts:
        return "Cannot tell"
    if result.idle:
        return "Equivalent, but too few partitions ran on the library"
    if result.proof is not None and not result.outputs:
        return "Equivalent by proof, not run"
    return "Equivalent, by a check that is too weak" if result.is_weak else "Equivalent"


def power_facts(result: VerificationResult | None) -> tuple[tuple[str, str], ...]:
    """Return what is proved, and how many mutants the check caught, if that was measured."""
    if result is None:
        return ()
    facts = [("proved", str(result.proof))] if result.proof is not None else []
    if (report := result.kernels) is not None:
        ran = f"{report.ran:,} of {len(report.partitions):,}"
        facts.append((f"partitions on {report.kernels.library}", ran))
    if result.power is not None:
        facts.append(("mutants caught", f"{result.power.caught} of {result.power.of}"))
    return tuple(facts)


def drawn_layers(files: Sequence[Path | None], layers: Layers | None) -> Drawn:
    """Return two models that were compared, with how far values are apart and which differ."""
    if layers is None:
        return Drawn([DrawnModel(path) for path in files if path is not None])
    first, models, steps = layers.first, [], []
    for path, role in zip(files, ("original", "candidate"), strict=True):
        keyed = [(("main", getattr(each, role)), each) for each in layers.layers]
        errors = {key: _error(each) for key, each in keyed}
        marks = {key: "differs" for key, each in keyed if not each.ok}
        if first is not None:
            marks["main", getattr(first, role)] = "first to differ"
        if path is not None:
            models.append(DrawnModel(path, marks, errors))
    if first is not None and len(models) > 1:
        what = f"{first.op_type} {first.original!r}, each model by itself"
        text = f"{what}: {first.comparison.reason}"
        nodes = ([("main", first.original)], [("main", first.candidate)])
        steps = [DrawnStep("first to differ", text, nodes)]
    pairs = [(("main", each.original), ("main", each.candidate)) for each in layers.layers]
    return Drawn(models, pairs, steps, begins=True)


_NO_MEASURE = 1e30
"""The error of what differs by more than numbers, as a number that JSON has."""


def _error(layer: Layer) -> float:
    share = layer.comparison.share
    if share is None or not math.isfinite(share):
        return 0.0 if layer.ok else _NO_MEASURE
    return share


# The verdict, and its grounds.


_MOST_ROWS = 8
_LONG = 1000
_MISSED = 5


def verification_report(
    result: VerificationResult, *, verbose: bool = True, with_outputs: bool = False
) -> Part:
    """Return the verdict with its warnings; if it is no, or *verbose*, also the figures behind it.

    Args:
        result: The comparison.
        verbose: Whether to show every output, how errors are spread, and where tolerances come
            from, though all is well.
        with_outputs: Whether to show the outputs in any case, the worst of them if not *verbose*.
    """
    in_full = verbose or not result.accepted
    lines: list[Part] = []
    if verbose and result.inputs:
        lines += [table_of(result.inputs, "Inputs"), Text()]
    if result.outputs and (in_full or with_outputs):
        lines.append(_output_table(result.outputs, None if in_full else _MOST_ROWS))
        lines += error_histograms(result.outputs) if in_full else []
    lines += _tolerances(result.outputs) if in_full else []
    lines += _power(result, None if verbose else _MISSED)
    lines += [] if result.kernels is None else kernel_lines(result.kernels, verbose=verbose)
    lines += _said_of_outputs(result.outputs, "reason", "red")
    lines += _said_of_outputs(result.outputs, "excuse", "yellow")
    for name, tolerance in needed_tolerances(result).items():
        option = shlex.quote(f"{name}={tolerance}")
        lines.append(Text(one_line(f"{name} would pass with --tolerance {option}", _LONG)))
    lines += [Text(reason, style="red") for reason in result.objections]
    changes = () if result.regions is None else result.regions.changes
    lines += [Text(f"changed: {change}") for change in changes[:_MOST_ROWS]]
    if (more := len(changes) - _MOST_ROWS) > 0:
        lines.append(Text(f"changed: {counted(more, 'more change')}"))
    if result.memory is not None and (in_full or result.memory.blocks > 1):
        lines.append(Text(str(result.memory)))
        judged = [each for each in result.memory.seen if each.judged and in_full]
        lines.append(table_of(judged, "Blocks that differ"))
    lines += [Text(f"warning: {warning}", style="yellow") for warning in result.warnings]
    lines += [Text(f"cannot tell: {doubt}", style="red") for doubt in result.doubts]
    if not in_full and not with_outputs:
        lines += _largest_error(result.outputs)
    verdict = _verdict(result)
    if result.equivalent and not result.doubts and result.complaint:
        verdict = f"{verdict.removesuffix('.')}; but {result.complaint}."
    return Group(*lines, Text(verdict, style="bold green" if result.accepted else "bold red"))


def _tolerances(outputs: Sequence[OutputComparison]) -> list[Part]:
    """Return one line for each derivation of a tolerance."""
    users: dict[str, dict[str, None]] = {}
    for output in outputs:
        if output.derivation:
            users.setdefault(output.derivation, {})[output.name] = None
    return [
        Text(f"tolerance of {some([*names])}: {derivation}", style="dim")
        for derivation, names in users.items()
    ]


def _power(result: VerificationResult, most: int | None) -> list[Part]:
    """Say what the check notices, as far as that was measured."""
    lines: list[Part] = []
    power, weak = result.power, result.is_weak
    if power is not None:
        where = f"changed in the {power.regions}" if power.regions else "tried"
        score = f"caught {power.caught} of {power.of} mutants, {where}"
        lines.append(Text(f"power: {score}", style="red" if weak else ""))
        if not power.of:
            lines = [Text(f"power: no mutant {where} ran", style="yellow")]
        missed = [f"  missed: {what}" for what in power.missed[:most]]
        if left := len(power.missed) - len(missed):
            missed.append(f"  and {left} more")
        lines += [Text(line, style="yellow") for line in missed]
    if weak:
        caught = "nothing" if power is None else f"{power.score:.0%}"
        wanted = f"{result.min_power:.0%}"
        lines.append(Text(f"the check caught {caught} of what it was to catch {wanted} of", "red"))
    return lines


def _said_of_outputs(
    outputs: Sequence[OutputComparison], what: Literal["reason", "excuse"], style: str
) -> Iterator[Part]:
    """Say what is wrong with outputs, or what excuses them; of many the same once."""
    named: dict[str, list[str]] = {}
    for output in outputs:
        if said := getattr(output, what):
            line = f"at level {output.level}: {one_line(said, _LONG)}"
            named.setdefault(line, []).append(one_line(output.name, _LONG))
    for said, (first, *others) in named.items():
        more = f" and {counted(len(others), 'other output')}" if others else ""
        yield Text(f"{first}{more} {said}", style=style)


def _output_table(outputs: Sequence[OutputComparison], most: int | None) -> Part:
    """Return a row for each output and level; of more than *most*, for the worst."""
    ranks = {id(output): rank for rank, output in enumerate(ranked(outputs)[:most])}
    chosen = [output for output in outputs if id(output) in ranks]
    table = table_of(chosen, "Outputs", ranks=[ranks[id(output)] for output in chosen])
    return with_rest(table, len(outputs) - len(chosen), "more, closer than these")


def _largest_error(outputs: Sequence[OutputComparison]) -> list[Text]:
    """Say how much of its tolerance the worst output uses; nothing if no output has an error."""
    worst = next(iter(ranked(outputs)), None)
    if worst is None or not worst.share:
        return []
    text = f"The largest error is {percent(worst.share)} of its tolerance, in {worst.name}"
    return [Text(f"{text} at level {worst.level} (--verbose shows every output).", style="dim")]


def kernel_lines(report: KernelReport, *, verbose: bool = False) -> list[Part]:
    """Return where partitions ran: each if *verbose*, or by function, those of one fate in one."""
    library = report.kernels.library
    rows: list[tuple[object, ...]] = [
        (each.call, each.function, each.runs, library if each.runs else "onnxruntime", each.what)
        for each in report.partitions
    ]
    columns = "call function runs:count ran_on primitives,_or_why_not:prose"
    if not verbose:
        fates = Counter((function, *fate) for _, function, _, *fate in rows)
        rows = [(function, n, *fate) for (function, *fate), n in fates.items()]
        columns = "function calls:count ran_on primitives,_or_why_not:prose"
    return [
        table_of(rows, f"Partitions on {library}", columns),
        Text(f"{report}."),
    ]


_NOT_ALIKE = ": inputs or outputs differ, so nothing was run"


def _verdict(result: VerificationResult) -> str:
    """Return the verdict and its ground in one sentence."""
    where = f"in onnxruntime ({result.fed})"
    if not result.equivalent:
        ground = f" {where}" if result.outputs or result.cases else _NOT_ALIKE
        if result.is_retyped_alone:
            ground = f": other types; but for that, within their tolerances {where}"
        return f"NOT equivalent{ground}."
    if result.doubts:
        return f"Cannot tell: no difference was found {where}, but that says too little."
    if result.proof is None:
        regions = result.regions
        places = f"; {regions.agreement}{regions.evidence}" if regions and regions.judged else ""
        return f"Equivalent {where}{places}."
    if not result.outputs:
        return f"Equivalent by proof: {result.proof}."
    if any(output.rtol or output.atol for output in result.outputs):
        return f"Equivalent {where}, and by proof: {result.proof}."
    return f"Equivalent by proof: {result.proof}; it gives the same bits {where}."


# The figures of a comparison, for tables and plots.


_TWO_DIGITS = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)


@dataclass(frozen=True)
class Bin:
    """Some elements whose error is about the same.

    Attributes:
        label: The size of the error, such as '4-7'.
        count: The number of elements.
    """

    label: str
    count: int


def comparisons(result: VerificationResult) -> tuple[OutputComparison, ...]:
    """Return every comparison that was made: of each output at each level, for each seed."""
    return tuple(each for output in result.outputs for each in output.by_seed or (output,))


def needed_tolerances(result: VerificationResult) -> dict[str, str]:
    """Return the tolerances with which failing outputs would pass, as --tolerance takes them.

    An output that no tolerance helps is left out; all are, if a place inside is wrong by itself.
    """
    if result.regions is not None and result.regions.differing:
        return {}
    tolerances = {}
    for name in dict.fromkeys(output.name for output in result.outputs if not output.ok):
        figures = [each.figures for each in comparisons(result) if each.name == name]
        pairs = [(each.needed_rtol, each.needed_atol) for each in figures]
        known = [(rtol, atol) for rtol, atol in pairs if rtol is not None and atol is not None]
        if known == pairs:
            largest = map(max, zip(*known, strict=True))
            rtol, atol = map(float, map(_TWO_DIGITS.create_decimal_from_float, largest))
            tolerances[name] = f"rtol:{rtol:g},atol:{atol:g}"
    return tolerances


def error_bins(output: OutputComparison) -> tuple[Bin, ...]:
    """Count the elements by their error in representable numbers, the smallest errors first."""
    counts = enumerate(output.figures.ulp_histogram)
    return tuple(Bin(_range(power), count) for power, count in counts)


def _range(power: int) -> str:
    """Name the bin from 2**(power - 1) to 2**power - 1; power 0 stands for no error."""
    if power < 2:  # noqa: PLR2004  # zero and one
        return str(power)
    low, high = 1 << (power - 1), (1 << power) - 1
    if high < 100:  # noqa: PLR2004  # short enough for an axis
        return f"{low}-{high}"
    return f"{low:,}+" if low < 100_000 else f"{low:.0e}+".replace("e+0", "e").replace("e+", "e")  # noqa: PLR2004  # how a reader wants numbers cut


def ranked(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Sort *outputs*: failures first, then by the largest error as a share of the tolerance.

    Shares of the same two digits keep the order of the model: further digits depend on the CPU.
    """

    def rank(output: OutputComparison) -> tuple[bool, float]:
        return output.ok, -float(number(output.share or 0))

    return sorted(outputs, key=rank)


_HEADING = "0,_1,_2-3,_4-7,_..._representable_numbers_apart"


def error_histograms(outputs: Sequence[OutputComparison]) -> list[Part]:
    """Return a line of bars for each output and level that has an error.

    The first bar counts elements without an error, the next those one representable number apart,
    then 2 to 3, 4 to 7 and so on. If there are many outputs, only the worst are shown.
    """
    spread = [output for output in ranked(outputs) if len(error_bins(output)) > 1]
    rows = [
        (output.name, output.level, Bars([each.count for each in bins]), bins[-1].label)
        for output in spread
        for bins in [error_bins(output)]
    ]
    columns = f"errors_of level {_HEADING}:prose farthest"
    table = table_of(rows, "Errors by output", columns, most=_MOST_ROWS)
    return [Text(), table, Text()] if rows else []


# The values inside two models, compared.


def layer_table(layers: Layers) -> Part:
    """Return one row for each value that both models compute, and the first that differs."""
    ranks = (layer.ok for layer in layers.layers)
    by = ", ".join(f"{number:,} by {how}" for how, number in sorted(layers.counts().items()))
    wrong, first = sum(not layer.ok for layer in layers.layers), layers.first
    alone = f"{layers.alone[0]:,} of the original and {layers.alone[1]:,} of the candidate"
    verdict = Text("No value differs.", style="bold green")
    if first is not None:
        partner = f", {first.candidate!r} there" if first.renamed else ""
        text = f"{wrong:,} differ; the first is {first.original!r} ({first.op_type}{partner})."
        verdict = Text(text, style="bold red")
    return Group(
        table_of(layers.layers, "Values on the way", ranks=ranks),
        Text(),
        Text(f"{len(layers.layers):,} values compared with optimisation off ({by or 'none'})."),
        Text(f"Not compared, because nothing in the other model is the like: {alone}."),
        verdict,
    )
