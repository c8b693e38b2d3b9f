"""How much of a model is inside partitions: JSON, and tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.report.layout import Group, Table, Text
from dplcli.report.records import coverage

if TYPE_CHECKING:
    from dplcli.passes.coverage import Coverage, LeftOut, Share, Work
    from dplcli.passes.selection import Selection
    from dplcli.report.layout import Part

    Json = dict[str, Any]

_TOP = 5
_MOST_SIZES = 4
_UNITS = ("", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_STEP = 1000


def coverage_record(selection: Selection, measured: Coverage | None) -> Json:
    """Return the part ``coverage`` of ``dpl.partition/1``, with costs where they were measured."""
    record = coverage(selection)
    if measured is None:
        return record
    by_op = record["by_op"]
    for op, share in measured.by_op.items():
        by_op[op]["flops"] = _share(share)
    record["flops"] = _share(measured.total)
    record["symbols"] = list(measured.symbols)
    record["sizes"] = {
        "given": {n: s for n, s in measured.sizes.items() if n not in measured.chosen},
        "chosen": {name: measured.sizes[name] for name in measured.chosen},
    }
    record["by_target"] = {
        target: {"nodes": work.nodes, "flops": work.flops, "unknown": work.unknown}
        for target, work in sorted(measured.by_target.items())
    }
    record["left_out"] = [
        {
            "op": item.op,
            "nodes": item.work.nodes,
            "flops": item.work.flops,
            "unknown": item.work.unknown,
            "rule": item.rule,
            "stage": item.stage,
            "reason": item.reason,
        }
        for item in measured.left_out
    ]
    return record


def _share(share: Share) -> Json:
    return {
        "covered": share.inside.flops,
        "of": share.whole.flops,
        "unknown": {"covered": share.inside.unknown, "of": share.whole.unknown},
    }


def coverage_report(measured: Coverage, *, verbose: bool = False) -> Part:
    """Return the share of the work that is inside, and the biggest of what is not.

    Args:
        measured: What was measured.
        verbose: Whether to list everything, by operator, too.
    """
    parts: list[Part] = [Text(sentence) for sentence in _sentences(measured)]
    heavy = [item for item in measured.left_out if item.work.flops or item.work.unknown]
    shown = list(measured.left_out) if verbose else heavy[:_TOP]
    if verbose:
        parts += [Text(), _op_table(measured)]
    if shown:
        parts += [Text(), _left_table(shown, measured)]
    if rest := (0 if verbose else len(heavy) - len(shown)):
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
        targets = measured.by_target
        each = "; ".join(
            f"{name} {_percent(w.flops, whole)}" for name, w in sorted(targets.items())
        )
        by_target = f": {each}" if len(targets) > 1 else ""
        share = _percent(inside.flops, whole)
        lines.append(f"They do {share} of the work, {of_whole}{by_target}{_at(measured)}.")
    if whole.unknown:
        lines.append(_about_unknown(measured))
    return lines


def _at(measured: Coverage) -> str:
    """Say at which sizes the work was counted, where nobody gave them."""
    names = measured.chosen
    if not names:
        return ""
    sizes = ", ".join(f"{name}={measured.sizes[name]}" for name in names[:_MOST_SIZES])
    options = " ".join(f"--shape {name}=N" for name in names[:_MOST_SIZES])
    more = f" and {len(names) - _MOST_SIZES} more" if len(names) > _MOST_SIZES else ""
    return f", at {sizes}{more} (chosen by the check; {options} for yours)"


def _is_blind(measured: Coverage) -> bool:
    """Tell whether nothing is known of what is inside: calls that were there before, say."""
    inside = measured.total.inside
    return bool(inside.unknown and not inside.flops)


def _about_unknown(measured: Coverage) -> str:
    inside, whole = measured.total
    nodes = "1 node" if whole.unknown == 1 else f"{whole.unknown:,} nodes"
    text = f"What {nodes} cost{'s' if whole.unknown == 1 else ''} is not known"
    text += f" ({inside.unknown:,} inside functions)"
    if measured.problem:
        return f"{text}: {measured.problem}."
    if measured.symbols:
        sizes = " ".join(f"--shape {symbol}=N" for symbol in measured.symbols)
        return f"{text}; give the sizes of the inputs: {sizes}"
    return f"{text}."


def _op_table(measured: Coverage) -> Part:
    columns = ("nodes", "inside", "FLOP", "share", "inside by FLOP", "unknown")
    table = Table("operator", *columns, right=columns)
    whole = measured.total.whole
    order = sorted(
        measured.by_op.items(), key=lambda i: (-i[1].whole.flops, -i[1].whole.nodes, i[0])
    )
    for op, share in order:
        table.add_row(
            op,
            f"{share.whole.nodes:,}",
            f"{share.inside.nodes:,}",
            _amount(share.whole.flops),
            _percent(share.whole.flops, whole),
            _percent(share.inside.flops, share.whole),
            f"{share.whole.unknown:,}" if share.whole.unknown else "",
        )
    return table


def _left_table(items: list[LeftOut], measured: Coverage) -> Part:
    is_known = not (measured.symbols and measured.total.whole.unknown)
    columns = ("nodes", "FLOP", "share") if is_known else ("nodes",)
    table = Table("left out", *columns, "reason", right=columns, prose=("reason",))
    for item in items:
        work = item.work
        if not is_known:
            table.add_row(item.op, f"{work.nodes:,}", _reason(item))
            continue
        cost = _amount(work.flops) if work.flops or not work.unknown else "unknown"
        is_share = work.flops and not _is_blind(measured)
        share = _percent(work.flops, measured.total.whole) if is_share else ""
        table.add_row(item.op, f"{work.nodes:,}", cost, share, _reason(item))
    return table


def _reason(item: LeftOut) -> str:
    if not item.rule:
        return item.reason
    others = f" (and {item.work.nodes - 1:,} like it)" if item.work.nodes > 1 else ""
    return f"{item.rule}: {item.stage}: {item.reason}{others}"


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
