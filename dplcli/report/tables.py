"""Tables and phrases that all reports share: how a record becomes a row, and a number a cell.

What the columns of a record are stands beside its keys (:func:`dplcli.keys.keys`). A column says by
one of the forms below how it is written.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dplcli.ir import Node
from dplcli.keys import columns_of, part_of, read_columns
from dplcli.language.rule import Rule
from dplcli.report.layout import Bars, Group, Text, TextTable, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dplcli.language import Rejection
    from dplcli.report.layout import Cell, Part


# Numbers and names, as cells and sentences have them.


def some(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """Write the first names and the number of the others: ``a, b and 3 more``."""
    left = len(names) - most
    return separator.join(names[:most]) + (f" and {left:,} more" if left > 0 else "")


def times(count: int) -> str:
    """Write how often: ``once``, ``2,000 times``."""
    return "once" if count == 1 else f"{count:,} times"


def named(nodes: Iterable[Node]) -> str:
    """Name nodes briefly: ``Conv:c Relu:r``."""
    return " ".join(f"{node.op_type}:{node.label}" for node in nodes)


def opset_range(rule: Rule) -> str:
    """Write which opsets a rule holds for: ``13 to the newest``."""
    first, last = rule.opsets
    return f"{first or 1} to {last or 'the newest'}"


def number(value: float) -> str:
    """Write a figure with two digits."""
    return f"{value:.2g}"


def percent(share: float) -> str:
    """Write a share of the tolerance: '0.3 %', '12 %', '4,000 times'."""
    if math.isinf(share):
        return "infinite"
    if share >= 10:  # noqa: PLR2004  # so many percent are hard to read
        return f"{share:,.0f} times" if share < 1e6 else f"{share:.2g} times"  # noqa: PLR2004  # how a reader wants numbers cut
    return f"{100 * share:.3g} %" if share >= 0.1 else f"{100 * share:.2g} %"  # noqa: PLR2004  # how a reader wants numbers cut


def share(part: float) -> str:
    """Write how much of a whole something is: '<1 %', '12 %', '>99 %' for all but a little."""
    if 0 < part < 0.01:  # noqa: PLR2004  # one percent
        return "<1 %"
    return ">99 %" if 0.99 < part < 1 else f"{100 * part:.0f} %"  # noqa: PLR2004  # not all of it


_UNITS = ("", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_STEP = 1000


def amount(flops: int) -> str:
    """Write a number of operations with three digits and a unit."""
    if flops < _STEP:
        return f"{flops} FLOP" if flops else "0"
    rest, unit = float(flops), 0
    while rest >= _STEP - 0.5 and unit < len(_UNITS) - 1:
        rest, unit = rest / _STEP, unit + 1
    digits = 2 if rest < 10 else 1 if rest < 100 else 0  # noqa: PLR2004  # three digits
    return f"{rest:.{digits}f} {_UNITS[unit]}"


# Records as rows.


def _plain(part: object) -> Cell:
    match part:
        case Text() | Bars():
            return part
        case Rule():
            return part.qualified_name
        case Node():
            return f"{part.op_type} {part.label}"
        case list() | tuple() if not hasattr(part, "_fields"):
            return ", ".join(map(str, part))
        case _:
            return str(part)


_NUMBERS: dict[str, Callable[[Any], Cell]] = {
    "count": "{:,}".format,
    "number": str,
    "figure": number,
    "value": "{:,.6g}".format,
    "ms": "{:.3g}".format,
    "percent": percent,
    "share": share,
    "flop": amount,
}
_SENTENCES: dict[str, Callable[[Any], Cell]] = {"prose": _plain, "nodes": named}
_FORMS: dict[str, Callable[[Any], Cell]] = {
    **_NUMBERS,
    **_SENTENCES,
    "": _plain,
    "fate": lambda part: Text(part, "green" if part == "ok" else "red"),
}
"""How the part of a record is written: as a number, as a sentence or list, or as a name."""


def table_of(  # noqa: PLR0913  # a table, and what of it is shown
    records: Iterable[object],
    title: str = "",
    columns: str = "",
    *,
    ranks: Iterable[float] = (),
    most: int | None = None,
    has_headings: bool = True,
) -> Part:
    """Return a table with a row for each record, whose class says which columns there are.

    Args:
        records: The records.
        title: What the table lists.
        columns: The columns, if the class does not say; a tuple has them in its order.
        ranks: A number for each row, the smallest for what files show first.
        most: How many rows to show; the number of the others stands below. None for all.
        has_headings: Whether a terminal shows headings; none are shown that are all empty.
    """
    every = list(records)
    shown = every[:most]
    declared = read_columns(columns) if columns else columns_of(type(every[0])) if every else ()
    cells = []
    for at, column in enumerate(declared):
        is_tuple = columns and all(type(record) is tuple for record in every)
        path = (str(at),) if is_tuple else column.path
        write = _FORMS[column.form]
        parts = [part_of(record, path) for record in shown]
        cells.append(["" if part is None else write(part) for part in parts])
    kept = [at for at, column in enumerate(declared) if not column.is_optional or any(cells[at])]
    table = TextTable(
        *(declared[at].title for at in kept),
        right=[declared[at].title for at in kept if declared[at].form in _NUMBERS],
        prose=[declared[at].title for at in kept if declared[at].form in _SENTENCES],
        rows=zip(*(cells[at] for at in kept), strict=True),
        title=title,
        ranks=ranks,
    )
    table.show_header = table.show_header and has_headings and bool(every)
    return with_rest(table, len(every) - len(shown))


def with_rest(table: Part, left: int, what: str = "more") -> Part:
    """Return a table with the number of rows that it does not show."""
    more = f"and {left:,} {what} (--verbose shows all)"
    return Group(table, Text(more, "dim")) if left else table


# Rules, and the matches that were refused.


class RuleUse(NamedTuple):
    """What became of one rule.

    Attributes:
        name: The rule.
        used: How often it was applied, or how many of its matches were outlined.
        refused: How often its pattern fits but the match was refused.
        functions: How many functions were written for it; None if none were to be written.
        reason: The most frequent reason, as far as it is told.
    """

    name: str
    used: int
    refused: int
    functions: int | None = None
    reason: str = ""


def rule_uses(
    counts: Mapping[str, int],
    refused: Iterable[Rejection],
    functions: Mapping[str, int] | None = None,
    *,
    verbose: bool = False,
) -> tuple[RuleUse, ...]:
    """Return the rules that were applied or refused, in listed order.

    Args:
        counts: How often each rule was used.
        refused: The refused matches.
        functions: How many functions were written, by rule; None if none were to be written.
        verbose: Whether reasons about which nothing can be done are told, too.
    """
    refusals: dict[str, list[Rejection]] = {}
    for item in refused:
        refusals.setdefault(item.rule.qualified_name, []).append(item)
    uses = []
    for name, used in counts.items():
        of_rule = refusals.get(name, [])
        written = None if functions is None else functions.get(name, 0)
        told = [item for item in of_rule if verbose or item.outlook != "none"]
        if used or of_rule:
            uses.append(RuleUse(name, used, len(of_rule), written, _main_reason(told)))
    return tuple(uses)


def _main_reason(refused: Sequence[Rejection]) -> str:
    """Return the most frequent reason of the most frequent stage: of those with a mend, if any."""
    told = [item for item in refused if item.outlook == "mend"] or refused
    stages = Counter(item.stage for item in told)
    if not stages:
        return ""
    stage, count = stages.most_common(1)[0]
    reasons = Counter(item.reason for item in told if item.stage == stage)
    reason, often = reasons.most_common(1)[0]
    return f"{stage}: {reason}" + (f" (and {count - often} like it)" if count > often else "")


_MOST_RULES = 8
_VERBS = {"matches": ("match", "matches"), "applied": ("apply", "applies")}
_COLUMNS = (
    "rule=name {}=used:count functions:count? refused:count most_frequent_reason=reason:prose?"
)


def rule_table(
    uses: Sequence[RuleUse],
    total: int,
    used_as: Literal["matches", "applied"] = "matches",
    *,
    hidden: Collection[str] = (),
    is_brief: bool = False,
) -> Part:
    """Return one row for each rule that did anything, and the number of the others.

    Args:
        uses: What became of rules.
        total: How many rules there are.
        used_as: The heading of how often rules were used.
        hidden: Refused rules that get no row.
        is_brief: Whether only the rules that did most are shown, and those that were refused.
    """
    plural, singular = _VERBS[used_as]
    active = [use for use in uses if use.name not in hidden]
    most = sorted(active, key=lambda use: -use.used)[:_MOST_RULES]
    shown = [use for use in active if not is_brief or use.refused or use in most]
    used = len(active) - len(shown)
    doing = f"rules {plural}" if used > 1 else f"rule {singular}"
    lines = [f"{used} more {doing} (--verbose shows them)."] if used else []
    if silent := total - len(shown) - used:
        unseen = len(uses) - len(shown) - used
        was = "was" if unseen == 1 else "were"
        why = f"; {unseen} of them {was} refused (--verbose shows why)" if unseen else ""
        others = "1 other rule does" if silent == 1 else f"{silent} other rules do"
        said = f"{others} not {plural}{why}."
        if not shown:
            said = f"None of the {silent} rules {singular}{why}."
        if not shown and silent == 1:
            said = f"The rule does not {plural}{' (--verbose shows why)' if unseen else ''}."
        lines.append(said)
    if not shown:
        return Text(" ".join(lines))
    lines = [" ".join(lines)] if lines else []
    if any(use.refused and not use.reason for use in shown):
        lines.append("Other refusals: a condition does not hold (--verbose says which).")
    table = table_of(shown, "Rules", _COLUMNS.format(used_as))
    return Group(table, *(Text(line, "dim") for line in lines))


def refusal_list(refused: Iterable[Rejection]) -> Part:
    """Return one row for each refused match; those about which something can be done come first."""
    order = ("mend", "open", "none")
    ranked = sorted(refused, key=lambda item: order.index(item.outlook))
    return table_of(ranked, "Refused")


# Lines that stand out.


def note(text: str) -> Text:
    """Return a note for the reader."""
    return Text(f"note: {text}", style="yellow")


def hint(text: str) -> Text:
    """Return what a reader may do next."""
    return Text(f"hint: {text}", style="cyan")


_SEVERITIES = {"error": "red", "warning": "yellow", "note": ""}


def finding_line(place: str, severity: str, rule: str, message: str) -> Text:
    """Return what is to be looked at in a catalogue, and where: ``rules.yaml:12: error: …``."""
    line = joined(f"{place}: " * bool(place), (severity, _SEVERITIES[severity]))
    return line.append(f": {rule}: {message}")
