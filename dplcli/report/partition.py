"""Matches and what becomes of them: partitions, regions and repeated blocks, with coverage."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.outcomes.partitioning import RepeatOutcome
from dplcli.report.document import Document, DrawnStep, key_of
from dplcli.report.layout import Group, Text
from dplcli.report.match import listing
from dplcli.report.result import drawn_result, ending, result_document
from dplcli.report.tables import (
    amount,
    hint,
    named,
    note,
    rule_table,
    rule_uses,
    share,
    some,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dplcli.outcomes.partitioning import PartitionOutcome, Preparation
    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.repeat import Family
    from dplcli.passes.select import Coverage, LeftOut
    from dplcli.report.layout import Part


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
        partial(_partition_text, outcome),
        draws=lambda: drawn_result(
            outcome,
            file,
            [_step(*item) for item in enumerate(outcome.partitions, 1)],
            ("outlined", ""),
        ),
        catalogs=catalogs,
    )


def _partition_text(outcome: PartitionOutcome, *, verbose: bool) -> Part:
    if isinstance(outcome, RepeatOutcome):
        said = _repeated(outcome, verbose=verbose)
    else:
        said = _outlined(outcome, verbose=verbose)
    problem = "" if outcome.coverage is None else outcome.coverage.problem
    notes = [note(text) for text in outcome.notes if text != problem]
    end = ending(outcome, is_changed=outcome.is_changed, verbose=verbose)
    if outcome.prepared is not None and outcome.prepared.proof:
        proved = Text(f"Of the prepared model, {outcome.prepared.proof}: proved by structure.")
        end.insert(len(end) - (outcome.delivery.output is not None), proved)
    return Group(*said, *notes, *map(hint, outcome.hints), *end)


def _step(number: int, item: Partition) -> DrawnStep:
    scope = scope_of(item.call.graph)
    nodes = [(scope, key_of(node)[1]) for node in item.match.nodes]
    text = f"{named(item.match.nodes)} became {item.call.name}"
    title = f"{number}. {item.function.qualified_name}"
    return DrawnStep(title, text, (nodes, [key_of(item.call)]))


def _outlined(outcome: PartitionOutcome, *, verbose: bool) -> list[Part]:
    selection = outcome.selection
    parts: list[Part] = []
    if outcome.prepared is not None:
        parts += [_prepared(outcome.prepared, verbose=verbose), Text()]
    uses = rule_uses(outcome.counts, selection.refused, outcome.functions, verbose=verbose)
    table = rule_table(uses, len(outcome.counts), is_brief=not verbose)
    parts += [table, *(listing(selection, outcome.partitions) if verbose else [])]
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
    listed = some(names, len(names) if verbose else _MOST_PREPARED)
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
    inside = 100 * covered.nodes / covered.of if covered.of else 0
    known = sum(outcome.selection.outlined.values())
    plural = "a call that was" if known == 1 else "calls that were"
    already = f", {known} of them {plural} there before" if known else ""
    told = f"{covered.nodes:,} of {covered.of:,} nodes ({inside:.0f} %) are inside functions"
    return Text(f"{told}{already}; the main graph went from {before:,} to {after:,} nodes.")


# Coverage: how much of a model is inside partitions.


_TOP = 5
_MOST_PREPARED = 4
_MOST_SIZES = 4


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
    parts += [Text(), _left_table(shown, measured, verbose=verbose)] if shown else []
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
        of_whole = f"{amount(inside.flops)} of {amount(whole.flops)}"
        targets = sorted(measured.by_target.items())
        each = "; ".join(f"{name} {share(work.flops / whole.flops)}" for name, work in targets)
        by_target = f": {each}" if len(targets) > 1 else ""
        much = share(inside.flops / whole.flops)
        lines.append(f"They do {much} of the work, {of_whole}{by_target}{_at(measured)}.")
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


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _op_table(measured: Coverage) -> Part:
    total = measured.total.whole.flops
    by_op = measured.by_op.items()
    rows = [
        (op, whole.nodes, inside.nodes, whole.flops, *shares, whole.unknown or None)
        for op, (inside, whole) in sorted(
            by_op, key=lambda i: (-i[1].whole.flops, -i[1].whole.nodes, i[0])
        )
        for shares in [(_ratio(whole.flops, total), _ratio(inside.flops, whole.flops))]
    ]
    columns = "operator nodes:count inside:count FLOP:flop share:share inside_by_FLOP:share"
    return table_of(rows, "Coverage", f"{columns} unknown:count")


def _left_table(items: Iterable[LeftOut], measured: Coverage, *, verbose: bool) -> Part:
    is_known = not (measured.symbols and measured.total.whole.unknown)
    rows = []
    for item in items:
        work, reason = item.work, item.reason
        if item.rule:
            told = reason if verbose or item.outlook != "none" else "conditions do not hold"
            others = f" (and {work.nodes - 1:,} like it)" if work.nodes > 1 else ""
            reason = f"{item.rule}: {item.stage}: {told}{others}"
        cost = amount(work.flops) if work.flops or not work.unknown else "unknown"
        part = None if _is_blind(measured) else work.flops or None
        much = part and _ratio(part, measured.total.whole.flops)
        rows.append((item.op, work.nodes, *((cost, much) if is_known else ()), reason))
    costs = "FLOP:number share:share" if is_known else ""
    return table_of(rows, "Left out", f"left_out nodes:count {costs} reason:prose")


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
    rows = [
        (function.qualified_name, count, body.node_count, len(body.inputs), len(body.outputs))
        for function, count in calls.items()
        for body in [function.body]
    ]
    columns = "region calls:count partitions_each:count inputs:count outputs:count"
    table = table_of(rows, "Regions", columns)
    return Group(table, *([Text(text, style="dim")] if alone else []))


# Repeated blocks.


_FEW_NAMES = 4


def _repeat_table(outcome: RepeatOutcome) -> Part:
    """Return one row for each kind of block: its calls, its size, and how the calls differ."""
    if not outcome.families:
        return Text("No block repeats often enough, or saves enough.")
    total, rows = sum(outcome.selection.totals.values()), []
    for family in outcome.families:
        calls, first = len(family.partitions), family.partitions[0].call
        much = None if family.is_nested else calls * family.size / total
        name = ("  " if family.is_nested else "") + family.function.qualified_name
        differing = []
        if family.differing:
            differing.append(f"attributes {some(family.differing, _FEW_NAMES)}")
        if family.reshaped:
            differing.append(f"shape of {counted(family.reshaped, 'weight')}")
        difference = "; ".join(differing) or "inputs alone"
        ends = (len(first.inputs), len(first.outputs))
        rows.append((name, calls, family.size, much, *ends, difference))
    columns = "block calls:count nodes_each:count share:share inputs:count outputs:count"
    return table_of(rows, "Blocks", f"{columns} calls_differ_in:prose")


def _block_list(families: Sequence[Family]) -> Part:
    """Return one row for each call: the block, its first and last node, and the number of nodes."""
    rows = [
        (each.call.name, family.function.name, named(of[:1]), named(of[-1:]), str(len(of)))
        for family in families
        for each in family.partitions
        for of in [each.match.nodes]
    ]
    return table_of(rows, "Calls of blocks", "call block from to nodes")
