"""Outcomes as tables and sentences for a terminal."""

from __future__ import annotations

import decimal
import math
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dplcli.errors import counted
from dplcli.escaping import one_line
from dplcli.ir.printer import node_window, print_node
from dplcli.report.layout import Bars, Group, Text, TextTable, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.dpl import Rejection
    from dplcli.ir import Model, Node, Value
    from dplcli.outcomes import Delivery, InspectOutcome, TakenBack, WrittenOutcome
    from dplcli.report.layout import Cell, Part
    from dplcli.verify import InputChoice, OutputComparison, Power, VerificationResult
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.verdict import BlockReport, KernelReport


# The grounds of a verdict: where tolerances come from, and what the check notices.


_SHOWN = 5


def judgement_lines(
    result: VerificationResult, *, is_brief: bool, with_tolerances: bool
) -> list[Text]:
    """Return one line for each derivation of a tolerance, and lines on the power of the check."""
    users: dict[str, dict[str, None]] = {}
    for output in result.outputs:
        users.setdefault(output.derivation, {})[output.name] = None
    lines = [
        Text(f"tolerance of {some([*names])}: {derivation}", style="dim")
        for derivation, names in users.items()
        if derivation and with_tolerances
    ]
    if result.power is not None:
        lines += _power_lines(result.power, _SHOWN if is_brief else None, weak=result.is_weak)
    if result.is_weak:
        found = "nothing" if result.power is None else f"{result.power.score:.0%}"
        wanted = f"{result.min_power:.0%}"
        lines.append(Text(f"the check caught {found} of what it was to catch {wanted} of", "red"))
    return lines


def _power_lines(power: Power, most: int | None, *, weak: bool) -> list[Text]:
    where = f"changed in the {power.regions}" if power.regions else "tried"
    if not power.of:
        return [Text(f"power: no mutant {where} ran", style="yellow")]
    score = f"power: caught {power.caught} of {power.of} mutants, {where}"
    lines = [Text(score, style="red" if weak else "")]
    missed = [f"  missed: {what}" for what in power.missed[:most]]
    if most is not None and (left := len(power.missed) - most) > 0:
        missed.append(f"  and {left} more")
    return lines + [Text(line, style="yellow") for line in missed]


def some(names: Sequence[str], most: int = _SHOWN) -> str:
    """Write the first names and the number of the others: ``a, b and 3 more``."""
    shown = ", ".join(names[:most])
    left = len(names) - most
    return f"{shown} and {left} more" if left > 0 else shown


def few(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """Write the first words and the number of the others: ``a, b, and 3 more``."""
    more = len(words) - most
    rest = [f"and {more} more"] if more > 0 else []
    return separator.join([*words[:most], *rest])


def times(count: int) -> str:
    """Write how often: ``once``, ``2,000 times``."""
    return "once" if count == 1 else f"{count:,} times"


def named(*nodes: Node) -> str:
    """Name nodes briefly: ``Conv:c Relu:r``."""
    return " ".join(f"{node.op_type}:{node.label}" for node in nodes)


# The figures of a comparison, for tables and plots.


_TENTH = 0.1
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


def share_of_tolerance(output: OutputComparison) -> float | None:
    """Return the largest error as a share of the tolerance; above 1 the output fails.

    It is None where it is not known: the output holds no numbers, or NaN or infinity differ.
    """
    if output.max_abs == 0 and output.ok:
        return 0.0
    figures = output.figures
    for needed, given in ((figures.needed_atol, output.atol), (figures.needed_rtol, output.rtol)):
        if needed is not None and given > 0 and math.isfinite(needed):
            return needed / given
    return None


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
    return f"{low:,}+" if low < 100_000 else f"{low:.0e}+".replace("e+0", "e").replace("e+", "e")  # noqa: PLR2004


def ranked(outputs: Sequence[OutputComparison]) -> list[OutputComparison]:
    """Sort *outputs*: failures first, then by the largest error as a share of the tolerance.

    Shares of the same two digits keep the order of the model: further digits depend on the CPU.
    """

    def rank(output: OutputComparison) -> tuple[bool, float]:
        return output.ok, -float(number(share_of_tolerance(output)) or 0)

    return sorted(outputs, key=rank)


def number(value: float | None) -> str:
    """Write a figure with two digits; "" for None."""
    return "" if value is None else f"{value:.2g}"


def largest_errors(output: OutputComparison) -> tuple[str, str, str]:
    """Write the largest differences: absolute, relative, and in representable numbers."""
    ulp = "" if output.max_ulp is None else str(output.max_ulp)
    return number(output.max_abs), number(output.max_rel), ulp


def value(number: float | None) -> str:
    """Write a number that was fed; "" for None."""
    return "" if number is None else f"{number:,.6g}"


def percent(share: float | None) -> str:
    """Write a share of the tolerance: '0.3 %', '12 %', '4,000 times'."""
    if share is None:
        return ""
    if math.isinf(share):
        return "infinite"
    if share >= 10:  # noqa: PLR2004  # so many percent are hard to read
        return f"{share:,.0f} times" if share < 1e6 else f"{share:.2g} times"  # noqa: PLR2004
    return f"{100 * share:.3g} %" if share >= _TENTH else f"{100 * share:.2g} %"


# The distribution of errors, as bars on a terminal.


_MOST_ROWS = 8
_MOST_CHANGES = 8
_LONG = 1000
_HEADING = "0, 1, 2-3, 4-7, ... representable numbers apart"


def error_histograms(outputs: Sequence[OutputComparison]) -> list[Part]:
    """Return a line of bars for each output and level that has an error.

    The first bar counts elements without an error, the next those one representable number apart,
    then 2 to 3, 4 to 7 and so on. If there are many outputs, only the worst are shown.
    """
    spread = [output for output in ranked(outputs) if len(error_bins(output)) > 1]
    if not spread:
        return []
    columns = ("errors of", "level", _HEADING, "farthest")
    table = TextTable(*columns, prose=(_HEADING,), title="Errors by output")
    for output in spread[:_MOST_ROWS]:
        bins = error_bins(output)
        bars = Bars([each.count for each in bins])
        table.add_row(one_line(output.name, _LONG), output.level, bars, bins[-1].label)
    left = len(spread) - _MOST_ROWS
    more = [Text(f"and {left} more", style="dim")] if left > 0 else []
    return [Text(), table, *more, Text()]


_MOST_NAMED = 12
_MOST_RULES = 8


def rule_table(  # noqa: PLR0913  # what was done, and what of it is shown
    counts: Mapping[str, int],
    rejections: Iterable[Rejection],
    functions: Mapping[str, int] | None = None,
    *,
    counted: str = "matches",
    hidden: Collection[str] = (),
    is_brief: bool = False,
) -> Part:
    """Return one row for each rule that did anything, and the number of the others.

    Args:
        counts: Matches by rule.
        rejections: The refused matches.
        functions: How many functions were written, by rule; None if none were to be written.
        counted: The heading of the counts.
        hidden: Refused rules that get no row.
        is_brief: Whether only the rules that did most are shown, and those that were refused.
    """
    refused: dict[str, list[Rejection]] = {}
    for item in rejections:
        if item.rule.qualified_name not in hidden:
            refused.setdefault(item.rule.qualified_name, []).append(item)
    active = [rule for rule, count in counts.items() if count or rule in refused]
    by_use = sorted(active, key=lambda rule: -counts[rule])
    shown = {*(by_use[:_MOST_RULES] if is_brief else active), *(refused.keys() & active)}
    columns = [counted, *(["functions"] if functions is not None else []), "refused"]
    reasons = ["most frequent reason"] if shown & refused.keys() else []
    titles = ("rule", *columns, *reasons)
    table = TextTable(*titles, right=columns, prose=reasons, title="Rules")
    for rule in active:
        if rule in shown:
            of_rule = refused.get(rule, [])
            written = [str(functions.get(rule, 0))] if functions is not None else []
            reason = [main_reason(of_rule)] if reasons else []
            table.add_row(rule, str(counts[rule]), *written, str(len(of_rule)), *reason)
    plural, singular = ("match", "matches") if counted == "matches" else ("apply", "applies")
    used = sum(rule not in shown for rule in active)
    more = f"rules {plural}" if used > 1 else f"rule {singular}"
    lines = [f"{used} more {more} (--verbose shows them)."] if used else []
    silent = len(counts) - len(shown) - used
    if silent:
        verb = plural, singular
        lines.append(_say_silent(silent, is_all=not shown, verb=verb, hidden=len(hidden)))
    if not shown:
        return Text(" ".join(lines))
    return Group(table, *([Text(" ".join(lines), style="dim")] if lines else []))


def _say_silent(count: int, *, is_all: bool, verb: tuple[str, str], hidden: int) -> str:
    """Say how many rules have no row, and that *hidden* of them were refused."""
    plural, singular = verb
    was = "was" if hidden == 1 else "were"
    why = f"; {hidden} of them {was} refused (--verbose shows why)" if hidden else ""
    if not is_all:
        others = "1 other rule does" if count == 1 else f"{count} other rules do"
        return f"{others} not {plural}{why}."
    if count == 1:
        return f"The rule does not {plural}{' (--verbose shows why)' if hidden else ''}."
    return f"None of the {count} rules {singular}{why}."


def main_reason(refused: Sequence[Rejection]) -> str:
    """Return the most frequent reason of the most frequent stage."""
    stages = Counter(item.stage for item in refused)
    if not stages:
        return ""
    stage, count = stages.most_common(1)[0]
    reasons = Counter(item.reason for item in refused if item.stage == stage)
    reason, times = reasons.most_common(1)[0]
    return f"{stage}: {reason}" + (f" (and {count - times} like it)" if count > times else "")


def refusal_list(refused: Iterable[Rejection]) -> Part:
    """Return one row for each refused match: rule, root, stage and reason."""
    roots = ((each, f"{each.root.op_type} {each.root.label}") for each in refused)
    rows = [(each.rule.qualified_name, root, each.stage, each.reason) for each, root in roots]
    columns = ("rule", "root", "stage", "reason")
    return TextTable(*columns, prose=("reason",), rows=rows, title="Refused")


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
    needed = needed_tolerances(result)
    outputs = tuple(
        replace(
            output,
            name=one_line(output.name, _LONG),
            reason=None if output.reason is None else one_line(output.reason, _LONG),
        )
        for output in result.outputs
    )
    result = replace(result, outputs=outputs)
    in_full = verbose or not result.accepted
    lines: list[Part] = [_input_table(result.inputs), Text()] if verbose and result.inputs else []
    if result.outputs and (in_full or with_outputs):
        lines.append(_output_table(result.outputs, None if in_full else _MOST_ROWS))
        lines += error_histograms(result.outputs) if in_full else []
    lines += judgement_lines(result, is_brief=not verbose, with_tolerances=in_full)
    lines += [] if result.kernels is None else kernel_lines(result.kernels, verbose=verbose)
    lines += _said_of_outputs(result.outputs, "reason", "red")
    lines += _said_of_outputs(result.outputs, "excuse", "yellow")
    for name, tolerance in needed.items():
        option = shlex.quote(f"{name}={tolerance}")
        lines.append(Text(one_line(f"{name} would pass with --tolerance {option}", _LONG)))
    lines += [Text(reason, style="red") for reason in result.objections]
    changes = () if result.regions is None else result.regions.changes
    lines += [Text(f"changed: {change}") for change in changes[:_MOST_CHANGES]]
    if (more := len(changes) - _MOST_CHANGES) > 0:
        lines.append(Text(f"changed: {counted(more, 'more change')}"))
    if result.memory is not None and (in_full or result.memory.blocks > 1):
        lines.append(Text(str(result.memory)))
        lines += _block_table(result.memory.seen) if in_full else []
    lines += [Text(f"warning: {warning}", style="yellow") for warning in result.warnings]
    lines += [Text(f"cannot tell: {doubt}", style="red") for doubt in result.doubts]
    if not in_full and not with_outputs:
        lines += _largest_error(result.outputs)
    verdict = _verdict(result)
    if result.equivalent and not result.doubts and result.complaint:
        verdict = f"{verdict.removesuffix('.')}; but {result.complaint}."
    return Group(*lines, Text(verdict, style="bold green" if result.accepted else "bold red"))


def _said_of_outputs(
    outputs: Sequence[OutputComparison], what: Literal["reason", "excuse"], style: str
) -> Iterator[Part]:
    """Say what is wrong with outputs, or what excuses them; of many the same once."""
    named: dict[str, list[str]] = {}
    for output in outputs:
        if said := getattr(output, what):
            named.setdefault(f"at level {output.level}: {said}", []).append(output.name)
    for said, (first, *others) in named.items():
        more = f" and {counted(len(others), 'other output')}" if others else ""
        yield Text(f"{first}{more} {said}", style=style)


def _output_table(outputs: Sequence[OutputComparison], most: int | None) -> Part:
    """Return a row for each output and level; of more than *most*, for the worst."""
    ranks = {id(output): rank for rank, output in enumerate(ranked(outputs)[:most])}
    columns = ("max abs", "max rel", "max ulp", "rtol", "atol", "used")
    chosen = [output for output in outputs if id(output) in ranks]
    rows = list(map(_figures, chosen))
    names = ("output", "level", *columns, "verdict")
    order = (ranks[id(output)] for output in chosen)
    table = TextTable(*names, right=columns, rows=rows, title="Outputs", ranks=order)
    left = len(outputs) - len(rows)
    if not left:
        return table
    return Group(table, Text(f"{left} more, closer than these (--verbose shows all).", "dim"))


def _block_table(blocks: Sequence[BlockReport]) -> list[Part]:
    """Return a row for each block with places that differ: how many, and the worst of them."""
    rows = [
        (
            str(each.number),
            f"{each.nodes:,}",
            f"{each.judged:,}",
            "other" if each.off is None else f"{each.off:.2g}",
            one_line(each.worst, _LONG),
        )
        for each in blocks
        if each.judged
    ]
    right = ("block", "nodes", "places", "ulps off")
    table = TextTable(*right, "in", right=right, rows=rows, title="Blocks that differ")
    return [table] if rows else []


def _largest_error(outputs: Sequence[OutputComparison]) -> list[Text]:
    """Say how much of its tolerance the worst output uses; nothing if no output has an error."""
    worst = next(iter(ranked(outputs)), None)
    share = None if worst is None else share_of_tolerance(worst)
    if worst is None or not share:
        return []
    text = f"The largest error is {percent(share)} of its tolerance, in {worst.name} at level "
    return [Text(f"{text}{worst.level} (--verbose shows every output).", style="dim")]


def kernel_lines(report: KernelReport, *, verbose: bool = False) -> list[Part]:
    """Return where partitions ran: each if *verbose*, or by function, those of one fate in one."""
    rows: list[tuple[str, ...]] = []
    for item in report.partitions:
        what = item.why or "; ".join(dict.fromkeys(item.primitives)) or "not reached"
        where = report.kernels.library if item.runs else "onnxruntime"
        name = (item.call, item.function, f"{item.runs:,}") if verbose else (item.function,)
        rows.append((*name, where, one_line(what, _LONG)))
    columns = ["call", "function", "runs", "ran on", "primitives, or why not"]
    if not verbose:
        rows = [(function, f"{n:,}", *fate) for (function, *fate), n in Counter(rows).items()]
        columns = ["function", "calls", *columns[3:]]
    title = f"Partitions on {report.kernels.library}"
    table = TextTable(*columns, right=("calls", "runs"), prose=columns[-1:], rows=rows, title=title)
    return [*([table] if rows else []), Text(f"{report}.")]


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


def _figures(output: OutputComparison) -> tuple[Cell, ...]:
    level = output.level if output.baseline == "disable" else f"{output.level} (same level)"
    return (
        output.name,
        level,
        *largest_errors(output),
        number(output.rtol),
        number(output.atol),
        percent(share_of_tolerance(output)),
        _judged(ok=output.ok and not output.excuse, mismatches=output.mismatches),
    )


def _judged(*, ok: bool, mismatches: int) -> Text:
    return Text("ok", "green") if ok else Text(f"{mismatches:,} differ", "red")


def _input_table(inputs: Iterable[InputChoice]) -> TextTable:
    """Return a row for each input: what it was fed, and why."""
    rows = [
        (each.name, f"{each.dtype} {list(each.shape)}", value(each.low), value(each.high), each.how)
        for each in inputs
    ]
    limits, how = ("lowest", "highest"), "how it was chosen"
    columns = ("input", "type", *limits, how)
    return TextTable(*columns, right=limits, prose=(how,), rows=rows, title="Inputs")


def model_report(outcome: InspectOutcome) -> Part:
    """Return the contents of a model."""
    model, weights = outcome.ir, outcome.weights
    opsets = [
        f"{name or 'ai.onnx'} {number}" for name, number in sorted(model.opset_imports.items())
    ]
    external = f", {weights.external} in external files" if weights.external else ""
    defaults = [value.name for value in outcome.overridable]
    told = f"{len(defaults):,} with a default that callers may override, so no constant: "
    inner = len(list(model.graphs())) - 1 - len(model.functions)
    constants = outcome.counts.get("Constant", 0)
    data = f", {constants:,} of them Constant, which are data" if constants else ""
    facts = [
        ("model", outcome.label),
        ("ir version", str(model.ir_version)),
        ("opsets", ", ".join(opsets)),
        *(("input", _describe(v)) for v in model.graph.inputs if not v.is_initializer),
        *(("output", _describe(value)) for value in model.graph.outputs),
        ("nodes", f"{model.node_count:,}{data}"),
        ("initializers", f"{weights.count:,} with {weights.elements:,} elements{external}"),
        *([("overridable", told + few(defaults, _MOST_NAMED))] if defaults else []),
        *([("bodies", f"{inner} of If, Loop or Scan")] if inner else []),
        *(("note", note) for note in model.notes),
    ]
    counts = [(op, f"{count:,}") for op, count in outcome.counts.items()]
    operators = TextTable("operator", "nodes", right=("nodes",), rows=counts[:_MOST_NAMED])
    parts: list[Part] = [TextTable("", "", prose=("",), rows=facts), Text(), operators]
    if (left := len(counts) - _MOST_NAMED) > 0:
        parts.append(Text(f"and {left} more operators", style="dim"))
    if model.functions:
        parts += [Text(), _function_table(model)]
    return Group(*parts)


def _describe(value: Value) -> str:
    known = value.known_type()
    return f"{value.name} {known}" if known is not None else f"{value.name} (not a tensor)"


def _function_table(model: Model) -> Part:
    table = TextTable("function", "inputs", "body", prose=("inputs", "body"))
    for function in model.functions.values():
        inputs = few([value.name for value in function.body.inputs], _MOST_NAMED)
        body = few([node.qualified_op for node in function.body], _MOST_NAMED, " ")
        table.add_row(f"{function.domain}::{function.name}", inputs, body)
    return table


def node_table(nodes: Iterable[Node], *, has_scopes: bool) -> TextTable:
    """Return a row for each node: its name, its operator, and what it makes, with the types."""
    table = TextTable("node", "operator", "makes", *(["graph"] if has_scopes else []))
    for node in nodes:
        values = [(value.name, value.known_type()) for value in node.outputs if value]
        made = ", ".join(name if kind is None else f"{name} {kind}" for name, kind in values)
        scope = [one_line(node.scope)] if has_scopes else []
        table.add_row(one_line(node.name), node.qualified_op, one_line(made), *scope)
    return table


def node_report(node: Node) -> Part:
    """Return the values that a node reads and makes, with their types, and the nodes around it."""
    table = TextTable("", "value", "type", "from or to", prose=("from or to",))
    for slot, value in enumerate(node.inputs):
        if value is not None:
            made_by = "" if value.producer is None else print_node(value.producer)
            table.add_row(f"in {slot}", value.name, str(value.known_type() or "?"), made_by)
    for index, output in enumerate(node.outputs):
        if output is not None:
            read_by = ", ".join(f"{user.op_type} {user.label}" for user, _ in output.iter_uses())
            where = f"{read_by} (graph output)" if output.is_graph_output else read_by
            table.add_row(f"out {index}", output.name, str(output.known_type() or "?"), where)
    window = [Text(line, whole=True) for line in node_window(node)]
    return Group(table, Text(), *window)


# The last lines of a command that writes a model: the check, and the file.


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


def ending(outcome: WrittenOutcome, *, is_changed: bool, verbose: bool) -> list[Part]:
    """Return the last lines of a report: the check, and where the result is.

    Args:
        outcome: What was done.
        is_changed: Whether the result differs from the model at all.
        verbose: Whether to show the figures of a check that passed.
    """
    delivery = [
        *taken_back(outcome.taken_back, None if verbose else _MOST_TAKEN_BACK),
        *delivered(outcome.delivery, is_changed=is_changed),
    ]
    if outcome.verification is not None:
        return [Text(), verification_report(outcome.verification, verbose=verbose), *delivery]
    if is_changed and not outcome.is_verified:
        return [Text("Not verified, as asked.", style="yellow"), *delivery]
    return delivery


def taken_back(items: Sequence[TakenBack], most: int | None) -> list[Part]:
    """Say what failed the check and is left out of the result."""
    if not items:
        return []
    rows = [(each.rule, each.node or "everywhere", each.reason) for each in items[:most]]
    table = TextTable("taken back", "where", "reason", prose=("reason",), rows=rows)
    left = len(items) - len(rows)
    more = [Text(f"and {left:,} more (--verbose shows them)")] if left else []
    return [Text(), table, *more]


_MOST_TAKEN_BACK = 8


def delivered(written: Delivery, *, is_changed: bool) -> list[Part]:
    """Return what became of the file, and what a reader should know of it."""
    parts: list[Part] = [Text(f"warning: {text}", style="yellow") for text in written.warnings]
    if written.stripped:
        freed = [f"{kind} {counted(size, 'byte')}" for kind, size in written.stripped.items()]
        parts.append(Text(f"Left out: {', '.join(freed)}."))
    if written.output is not None:
        is_same = not is_changed and not written.stripped and written.data is None
        data = "" if written.data is None else f", and {written.data:,} bytes of external data"
        parts.append(Text(f"Wrote {written.output}{data}{', unchanged' if is_same else ''}."))
        if written.kept is not None:
            parts.append(Text(f"Kept what failed as {written.kept}."))
    return parts


def check_failure(written: Delivery) -> list[str]:
    """Say why the check refuses the result; nothing if it does not."""
    if written.objection:
        return [f"{written.complaint}; mend the rule that made this, which dpl bisect finds"]
    return [written.complaint] if written.complaint else []


NOTHING_WRITTEN = "nothing was written"


def whereabouts(written: Delivery) -> str:
    """Say where a result that failed is."""
    return NOTHING_WRITTEN if written.kept is None else f"kept as {written.kept}"


# The values inside two models, compared, as a table.


def layer_table(layers: Layers) -> Part:
    """Return one row for each value that both models compute, and the first that differs."""
    numbers = ("max abs", "max rel", "atol", "used")
    columns = ("value", "candidate", "made by", "aligned by", *numbers, "verdict")
    rows, ranks = map(_row, layers.layers), (layer.ok for layer in layers.layers)
    title = "Values on the way"
    table = TextTable(*columns, right=numbers, rows=rows, title=title, ranks=ranks)
    by = ", ".join(f"{number:,} by {how}" for how, number in sorted(layers.counts().items()))
    wrong, first = sum(not layer.ok for layer in layers.layers), layers.first
    alone = f"{layers.alone[0]:,} of the original and {layers.alone[1]:,} of the candidate"
    verdict = Text("No value differs.", style="bold green")
    if first is not None:
        partner = "" if first.candidate == first.original else f", {first.candidate!r} there"
        text = f"{wrong:,} differ; the first is {first.original!r} ({first.op_type}{partner})."
        verdict = Text(text, style="bold red")
    return Group(
        table,
        Text(),
        Text(f"{len(layers.layers):,} values compared with optimisation off ({by or 'none'})."),
        Text(f"Not compared, because nothing in the other model is the like: {alone}."),
        verdict,
    )


def _row(layer: Layer) -> tuple[Cell, ...]:
    found = layer.comparison
    return (
        one_line(layer.original, _LONG),
        "" if layer.candidate == layer.original else one_line(layer.candidate, _LONG),
        layer.op_type,
        layer.how,
        *largest_errors(found)[:2],
        number(found.atol),
        percent(share_of_tolerance(found)),
        _judged(ok=layer.ok, mismatches=found.mismatches),
    )
