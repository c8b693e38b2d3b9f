"""Matches and what becomes of them: partitions, regions and repeated blocks, with coverage."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.outcomes import RepeatOutcome
from dplcli.passes.select import in_program_order
from dplcli.report import tables
from dplcli.report.document import (
    Document,
    DrawnStep,
    expectation_cases,
    findings_of,
    key_of,
    result_document,
    rule_uses,
)
from dplcli.report.layout import Group, Text, TextTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dplcli.outcomes import MatchOutcome, PartitionOutcome, Preparation
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.repeat import Family
    from dplcli.passes.select import Coverage, LeftOut, Selection, Work
    from dplcli.report.layout import Part


# Where rules match.


def match_document(outcome: MatchOutcome, *, catalogs: Iterable[Path | str] = ()) -> Document:
    """Report on where rules match.

    Args:
        outcome: What was found.
        catalogs: What was named on the command line.
    """
    selection, count = outcome.selection, sum(outcome.counts.values())
    verdict = "1 match" if count == 1 else f"{count:,} matches" if count else "No matches"
    more = [*map(tables.note, outcome.notes), *map(tables.hint, outcome.hints)]
    findings = findings_of(outcome, catalogs)

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = [each.line for each in findings if verbose]
        parts.append(tables.rule_table(outcome.counts, selection.refused))
        if not count:
            parts.append(tables.hint("dpl explain, with the same arguments, says why"))
        return Group(*parts, *(_listing(selection) if verbose else []), *more)

    return Document(
        said=said,
        of=outcome,
        ok=not outcome.unmet,
        is_idle=not count,
        complaints=outcome.unmet,
        command="dpl match",
        subject=outcome.label,
        verdict="Not as expected" if outcome.unmet else verdict,
        failures=outcome.unmet,
        notes=outcome.notes,
        rules=rule_uses(outcome.counts, selection.refused),
        cases=expectation_cases(outcome.expected),
        findings=findings,
    )


def _listing(selection: Selection, partitions: Iterable[Partition] = ()) -> list[Part]:
    """Return every match, the call that it became, and every refusal."""
    calls = {id(each.match): [each.call.name] for each in partitions}
    columns = ("rule", "scope", "root", *(["call"] if calls else []), "nodes")
    table = TextTable(*columns, prose=("nodes",), title="Matches")
    for m in in_program_order(selection.matches):
        place = (scope_of(m.root.graph), m.root.label, *calls.get(id(m), [""] * bool(calls)))
        table.add_row(m.rule.qualified_name, *place, tables.named(*m.nodes))
    parts: list[Part] = [Text(), table] if table.rows else []
    return parts + ([Text(), tables.refusal_list(selection.refused)] if selection.refused else [])


# What was outlined: matches, or what a model repeats.


def partition_document(
    outcome: PartitionOutcome,
    *,
    file: Path | None = None,
    catalogs: Iterable[Path | str] = (),
) -> Document:
    """Report on a model whose matches or repeated blocks were outlined.

    Args:
        outcome: What was done.
        file: The model.
        catalogs: What was named on the command line.
    """
    return result_document(
        "dpl repeat" if isinstance(outcome, RepeatOutcome) else "dpl partition",
        outcome,
        said=partial(_partition_text, outcome),
        failures=[*outcome.unmet, *tables.check_failure(outcome.delivery)],
        done=("partitions", len(outcome.partitions)),
        rules=rule_uses(outcome.counts, outcome.selection.refused),
        findings=findings_of(outcome, catalogs),
        original=file,
        steps=lambda: [_step(*item) for item in enumerate(outcome.partitions, 1)],
        marks=("outlined", ""),
        counted="nodes of the main graph",
    )


def _partition_text(outcome: PartitionOutcome, *, verbose: bool) -> Part:
    if isinstance(outcome, RepeatOutcome):
        said = _repeated(outcome, verbose=verbose)
    else:
        said = _outlined(outcome, verbose=verbose)
    problem = "" if outcome.coverage is None else outcome.coverage.problem
    notes = [tables.note(text) for text in outcome.notes if text != problem]
    end = tables.ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
    if outcome.prepared is not None and outcome.prepared.proof:
        proved = Text(f"Of the prepared model, {outcome.prepared.proof}: proved by structure.")
        end.insert(len(end) - (outcome.delivery.output is not None), proved)
    return Group(*said, *notes, *map(tables.hint, outcome.hints), *end)


def _step(number: int, item: Partition) -> DrawnStep:
    scope = scope_of(item.call.graph)
    nodes = [(scope, key_of(node)[1]) for node in item.match.nodes]
    text = f"{tables.named(*item.match.nodes)} became {item.call.name}"
    title = f"{number}. {item.function.qualified_name}"
    return DrawnStep(title, text, (nodes, [key_of(item.call)]))


def _outlined(outcome: PartitionOutcome, *, verbose: bool) -> list[Part]:
    selection = outcome.selection
    parts: list[Part] = []
    if outcome.prepared is not None:
        parts += [_prepared(outcome.prepared, verbose=verbose), Text()]
    table = tables.rule_table(
        outcome.counts, selection.refused, outcome.functions, is_brief=not verbose
    )
    parts += [table, *(_listing(selection, outcome.partitions) if verbose else [])]
    if outcome.regions is not None:
        parts += [Text(), _region_table(outcome.regions)]
    parts += [Text(), _summary(outcome)]
    if outcome.coverage is not None:
        parts.append(coverage_report(outcome.coverage, verbose=verbose))
    return parts


def _prepared(done: Preparation, *, verbose: bool) -> Part:
    """Say what was rewritten first, and how calls relate to that; *verbose* lists all rules."""
    if not done.counts:
        return Text("Nothing is to be prepared.")
    applied = sorted(done.counts.items(), key=lambda item: -item[1])
    names = [f"{rule} {count:,}" for rule, count in applied]
    before, after = done.nodes
    count = counted(sum(done.counts.values()), "application")
    listed = tables.some(names, len(names) if verbose else _MOST_PREPARED)
    return Text(f"Prepared: {before:,} nodes became {after:,} by {count}: {listed}.")


def _repeated(outcome: RepeatOutcome, *, verbose: bool) -> list[Part]:
    parts: list[Part] = [_repeat_table(outcome)]
    if verbose and outcome.families:
        parts += [Text(), _block_list(outcome.families)]
    parts += [Text(), _summary(outcome)]
    before, after = outcome.size
    if outcome.is_changed and after:
        change = 100 * (after - before) / before if before else 0
        text = f"The file went from {before:,} to {after:,} bytes ({change:+.1f} %)."
        parts.append(Text(text))
    return parts


def _summary(outcome: PartitionOutcome) -> Text:
    """Say how many nodes are inside functions."""
    covered = outcome.covered
    before, after = outcome.nodes
    share = 100 * covered.nodes / covered.of if covered.of else 0
    known = sum(outcome.selection.outlined.values())
    plural = "a call that was" if known == 1 else "calls that were"
    already = f", {known} of them {plural} there before" if known else ""
    inside = (
        f"{covered.nodes:,} of {covered.of:,} nodes ({share:.0f} %) are inside functions{already}"
    )
    return Text(f"{inside}; the main graph went from {before:,} to {after:,} nodes.")


# Coverage: how much of a model is inside partitions.


_TOP = 5
_MOST_PREPARED = 4
_MOST_SIZES = 4
_UNITS = ("", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_STEP = 1000


def coverage_report(measured: Coverage, *, verbose: bool = False) -> Part:
    """Return the share of the work that is inside functions, and the biggest part that is not.

    Args:
        measured: What was measured.
        verbose: Whether to list everything, also by operator.
    """
    parts: list[Part] = [Text(sentence) for sentence in _sentences(measured)]
    heavy = [item for item in measured.left_out if item.work.flops or item.work.unknown]
    shown = measured.left_out if verbose else heavy[:_TOP]
    parts += [Text(), _op_table(measured)] if verbose else []
    parts += [Text(), _left_table(shown, measured)] if shown else []
    rest = len(heavy) - len(shown)
    if rest > 0:
        more = "kind of node is" if rest == 1 else "kinds of node are"
        parts.append(Text(f"{rest} more {more} left out (--verbose).", style="dim"))
    return Group(*parts)


def _sentences(measured: Coverage) -> list[str]:
    inside, whole = measured.total
    if not whole.nodes:
        return []
    lines = []
    misses_much = whole.unknown and (measured.symbols or measured.problem)
    if whole.flops and not _is_blind(measured) and not misses_much:
        of_whole = f"{_amount(inside.flops)} of {_amount(whole.flops)}"
        targets = sorted(measured.by_target.items())
        each = "; ".join(f"{name} {_percent(work.flops, whole)}" for name, work in targets)
        by_target = f": {each}" if len(targets) > 1 else ""
        share = _percent(inside.flops, whole)
        lines.append(f"They do {share} of the work, {of_whole}{by_target}{_at(measured)}.")
    return [*lines, _about_unknown(measured)] if whole.unknown else lines


def _at(measured: Coverage) -> str:
    """Say which sizes the check chose, and how to give others."""
    names = measured.chosen
    if not names:
        return ""
    sizes = ", ".join(f"{name}={measured.sizes[name]}" for name in names[:_MOST_SIZES])
    options = " ".join(f"--shape {name}=N" for name in names[:_MOST_SIZES])
    more = f" and {len(names) - _MOST_SIZES} more" if len(names) > _MOST_SIZES else ""
    return f", at {sizes}{more} (chosen by the check; {options} for yours)"


def _is_blind(measured: Coverage) -> bool:
    """Tell whether the cost of nothing inside is known, as with calls that were there before."""
    inside = measured.total.inside
    return bool(inside.unknown and not inside.flops)


def _about_unknown(measured: Coverage) -> str:
    inside, whole = measured.total
    verb = "costs" if whole.unknown == 1 else "cost"
    text = f"What {counted(whole.unknown, 'node')} {verb} is not known"
    text += f" ({inside.unknown:,} inside functions)"
    if measured.symbols and not measured.problem:
        sizes = " ".join(f"--shape {symbol}=N" for symbol in measured.symbols)
        return f"{text}; give the sizes of the inputs: {sizes}"
    return f"{text}{f': {measured.problem}' * bool(measured.problem)}."


def _op_table(measured: Coverage) -> Part:
    columns = ("nodes", "inside", "FLOP", "share", "inside by FLOP", "unknown")
    table = TextTable("operator", *columns, right=columns, title="Coverage")
    by_op = measured.by_op.items()
    for op, (inside, whole) in sorted(by_op, key=lambda i: (-i[1][1].flops, -i[1][1].nodes, i[0])):
        table.add_row(
            op,
            f"{whole.nodes:,}",
            f"{inside.nodes:,}",
            _amount(whole.flops),
            _percent(whole.flops, measured.total.whole),
            _percent(inside.flops, whole),
            f"{whole.unknown:,}" if whole.unknown else "",
        )
    return table


def _left_table(items: Iterable[LeftOut], measured: Coverage) -> Part:
    is_known = not (measured.symbols and measured.total.whole.unknown)
    columns = ("nodes", "FLOP", "share") if is_known else ("nodes",)
    titles = ("left out", *columns, "reason")
    table = TextTable(*titles, right=columns, prose=("reason",), title="Left out")
    for item in items:
        work, reason = item.work, item.reason
        cost = _amount(work.flops) if work.flops or not work.unknown else "unknown"
        is_share = work.flops and not _is_blind(measured)
        share = _percent(work.flops, measured.total.whole) if is_share else ""
        costs = (cost, share) if is_known else ()
        if item.rule:
            others = f" (and {work.nodes - 1:,} like it)" if work.nodes > 1 else ""
            reason = f"{item.rule}: {item.stage}: {reason}{others}"
        table.add_row(item.op, f"{work.nodes:,}", *costs, reason)
    return table


def _percent(part: int, whole: Work) -> str:
    if not whole.flops:
        return ""
    share = 100 * part / whole.flops
    if 0 < share < 1:
        return "<1 %"
    return ">99 %" if 99 < share < 100 else f"{share:.0f} %"  # noqa: PLR2004  # not all of it


def _amount(flops: int) -> str:
    """Write a number of operations with three digits and a unit."""
    if flops < _STEP:
        return f"{flops} FLOP" if flops else "0"
    amount, unit = float(flops), 0
    while amount >= _STEP - 0.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 2 if amount < 10 else 1 if amount < 100 else 0  # noqa: PLR2004  # three digits
    return f"{amount:.{digits}f} {_UNITS[unit]}"


# Regions: neighbouring partitions of one target that became one.


def _region_table(regions: Sequence[Region]) -> Part:
    """Return one row for each function of several partitions, and the number of the others."""
    if not regions:
        return Text("There are no partitions to merge.")
    calls = Counter(region.function for region in regions if len(region.partitions) > 1)
    alone = sum(len(region.partitions) == 1 for region in regions)
    text = f"{alone} partitions have no neighbours that they can be merged with."
    if alone == 1:
        text = "1 partition has no neighbour that it can be merged with."
    columns = ("calls", "partitions each", "inputs", "outputs")
    table = TextTable("region", *columns, right=columns, title="Regions")
    for function, count in calls.items():
        body = function.body
        sizes = (count, body.node_count, len(body.inputs), len(body.outputs))
        table.add_row(function.qualified_name, *map(str, sizes))
    rest = [Text(text, style="dim")] if alone else []
    return Group(*([table] if calls else []), *rest)


# Repeated blocks.


_NUMBERS = ("calls", "nodes each", "share", "inputs", "outputs")
_FEW_NAMES = 4


def _repeat_table(outcome: RepeatOutcome) -> Part:
    """Return one row for each kind of block: its calls, its size, and how the calls differ."""
    if not outcome.families:
        return Text("No block repeats often enough, or saves enough.")
    total, last = sum(outcome.selection.totals.values()), ("calls differ in",)
    table = TextTable("block", *_NUMBERS, *last, right=_NUMBERS, prose=last, title="Blocks")
    for family in outcome.families:
        calls, first = len(family.partitions), family.partitions[0].call
        share = "" if family.is_nested else f"{100 * calls * family.size / total:.0f} %"
        name = ("  " if family.is_nested else "") + family.function.qualified_name
        width = (str(len(first.inputs)), str(len(first.outputs)))
        differing = [f"attributes {tables.some(family.differing, _FEW_NAMES)}"] * bool(
            family.differing
        )
        if family.reshaped:
            plural = "s" if family.reshaped > 1 else ""
            differing.append(f"shape of {family.reshaped} weight{plural}")
        difference = "; ".join(differing) or "inputs alone"
        table.add_row(name, str(calls), str(family.size), share, *width, difference)
    return table


def _block_list(families: Sequence[Family]) -> Part:
    """Return one row for each call: the block, its first and last node, and the number of nodes."""
    calls = (
        (partition.call.name, family.function.name, partition.match.nodes)
        for family in families
        for partition in family.partitions
    )
    rows = [
        (*names, tables.named(of[0]), tables.named(of[-1]), str(len(of))) for *names, of in calls
    ]
    return TextTable("call", "block", "from", "to", "nodes", rows=rows, title="Calls of blocks")
