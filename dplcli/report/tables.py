"""Outcomes as tables and sentences for a terminal."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.ir.printer import node_window, print_node
from dplcli.ir.scopes import scope_of
from dplcli.passes.selection import in_program_order
from dplcli.report.escaping import one_line
from dplcli.report.histogram import error_histograms
from dplcli.report.judgement_lines import judgement_lines
from dplcli.report.layout import Group, Table, Text
from dplcli.report.measures import needed_tolerances, percent, share_of_tolerance
from dplcli.report.records import (
    coverage,
    initializer_summary,
    op_histogram,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dplcli.dpl import Rejection
    from dplcli.ir import Model, Node, Value
    from dplcli.passes.partition import Partition
    from dplcli.passes.selection import Selection
    from dplcli.report.layout import Part
    from dplcli.verify import OutputComparison, VerificationResult

_TOP_OPS = 12
_SHOWN_INPUTS = 12
_SHOWN_NODES = 12
_LONG = 1000


def few(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """Write the first words, and how many more there are."""
    more = len(words) - most
    rest = [f"and {more} more"] if more > 0 else []
    return separator.join([*words[:most], *rest])


def rule_table(
    counts: Mapping[str, int],
    rejections: Iterable[Rejection],
    functions: Mapping[str, Sequence[str]] | None = None,
    *,
    counted: str = "matches",
    hidden: Collection[str] = (),
) -> Part:
    """Return one row per rule that matched or was refused, and how many rules have no row.

    Args:
        counts: Matches by rule.
        rejections: What was refused.
        functions: The functions written by rule; None if none were to be written.
        counted: What *counts* counts.
        hidden: Rules to leave out although they were refused.
    """
    refused: dict[str, list[Rejection]] = {}
    for item in rejections:
        if item.rule.qualified_name not in hidden:
            refused.setdefault(item.rule.qualified_name, []).append(item)
    columns = [counted, *(["functions"] if functions is not None else []), "refused"]
    reasons = ["most frequent reason"] if refused else []
    table = Table("rule", *columns, *reasons, right=columns, prose=reasons)
    for rule, count in counts.items():
        if not count and rule not in refused:
            continue
        written = [str(len(functions.get(rule, ())))] if functions is not None else []
        of_rule = refused.get(rule, [])
        reason = [_main_reason(of_rule)] if refused else []
        table.add_row(rule, str(count), *written, str(len(of_rule)), *reason)
    silent = len(counts) - table.row_count
    if not silent:
        return table
    said = _say_silent(silent, is_all=not table.row_count, verb=counted, hidden=len(hidden))
    return Group(table, Text(said, style="dim")) if table.row_count else Text(said)


def _say_silent(count: int, *, is_all: bool, verb: str, hidden: int) -> str:
    """Say how many rules have no row; *hidden* of them were refused."""
    plural, singular = ("match", "matches") if verb == "matches" else ("apply", "applies")
    was = "was" if hidden == 1 else "were"
    why = f"; {hidden} of them {was} refused (--verbose shows why)" if hidden else ""
    if not is_all:
        others = "1 other rule does" if count == 1 else f"{count} other rules do"
        return f"{others} not {plural}{why}."
    if count == 1:
        return f"The rule does not {plural}{' (--verbose shows why)' if hidden else ''}."
    return f"None of the {count} rules {singular}{why}."


def _main_reason(refused: Iterable[Rejection]) -> str:
    by_stage: dict[str, list[str]] = {}
    for item in refused:
        by_stage.setdefault(item.stage, []).append(item.reason)
    if not by_stage:
        return ""
    stage, reasons = max(by_stage.items(), key=lambda item: len(item[1]))
    reason, times = Counter(reasons).most_common(1)[0]
    others = len(reasons) - times
    return f"{stage}: {reason}" + (f" (and {others} like it)" if others else "")


def listing(selection: Selection) -> list[Part]:
    """Return every match and every refusal, as far as there are any."""
    parts: list[Part] = []
    if selection.matches:
        parts += [Text(), match_list(selection)]
    if selection.refused:
        parts += [Text(), refusal_list(selection.refused)]
    return parts


def match_list(selection: Selection) -> Part:
    """Return one row per match: rule, scope, root and nodes."""
    table = Table("rule", "scope", "root", "nodes", prose=("nodes",))
    for found in in_program_order(selection.matches):
        nodes = " ".join(f"{node.op_type}:{node.label}" for node in found.nodes)
        table.add_row(
            found.rule.qualified_name, scope_of(found.root.graph), found.root.label, nodes
        )
    return table


def refusal_list(refused: Iterable[Rejection]) -> Part:
    """Return one row per refused match: rule, root, stage and reason."""
    table = Table("rule", "root", "stage", "reason", prose=("reason",))
    for item in refused:
        root = f"{item.root.op_type} {item.root.label}"
        table.add_row(item.rule.qualified_name, root, item.stage, item.reason)
    return table


def functions_by_rule(partitions: Sequence[Partition]) -> dict[str, list[str]]:
    """List the functions written for each rule, in order of first call."""
    functions: dict[str, dict[str, None]] = {}
    for item in partitions:
        names = functions.setdefault(item.match.rule.qualified_name, {})
        names[f"{item.function.domain}::{item.function.name}"] = None
    return {rule: list(names) for rule, names in functions.items()}


def summary_line(nodes: tuple[int, int], selection: Selection) -> Text:
    """Say how much of the model went into functions."""
    covered = coverage(selection)
    before, after = nodes
    share = 100 * covered["nodes"] / covered["of"] if covered["of"] else 0
    known = sum(selection.outlined.values())
    plural = "a call that was" if known == 1 else "calls that were"
    already = f", {known} of them {plural} there before" if known else ""
    return Text(
        f"{covered['nodes']} of {covered['of']} nodes ({share:.0f} %) are inside functions"
        f"{already}; "
        f"the main graph went from {before} to {after} nodes."
    )


def _printable(result: VerificationResult) -> VerificationResult:
    """Return *result* with names and strings of the model that are not endless."""
    outputs = tuple(
        replace(
            output,
            name=one_line(output.name, _LONG),
            reason=None if output.reason is None else one_line(output.reason, _LONG),
        )
        for output in result.outputs
    )
    opinions = (replace(each, output=one_line(each.output, _LONG)) for each in result.opinions)
    return replace(result, outputs=outputs, opinions=tuple(opinions))


def verification_report(result: VerificationResult) -> Part:
    """Return the verdict, the figures per output and level, and what weakens the verdict."""
    needed = needed_tolerances(result.outputs)
    result = _printable(result)
    lines: list[Part] = []
    if result.outputs:
        columns = ("max abs", "max rel", "max ulp", "rtol", "atol", "used")
        table = Table("output", "level", *columns, "verdict", right=columns)
        for output in result.outputs:
            table.add_row(*_figures(output))
        lines.append(table)
        lines += error_histograms(result.outputs)
    lines += judgement_lines(result)
    lines += [
        Text(f"{output.name} at level {output.level}: {output.reason}", style="red")
        for output in result.outputs
        if output.reason
    ]
    lines += [
        Text(one_line(f"{name} would pass with --tolerance {shlex.quote(option)}", _LONG))
        for name, option in ((name, f"{name}={tolerance}") for name, tolerance in needed.items())
    ]
    lines += [Text(reason, style="red") for reason in result.reasons]
    lines += [Text(str(opinion), style="cyan") for opinion in result.opinions]
    lines += [Text(f"warning: {warning}", style="yellow") for warning in result.warnings]
    refilled = f", {result.refilled} weights refilled" if result.refilled else ""
    verdict = "Equivalent" if result.equivalent else "NOT equivalent"
    style = "bold green" if result.accepted else "bold red"
    lines.append(Text(f"{verdict} in onnxruntime ({result.fed}{refilled}).", style=style))
    return Group(*lines)


def _figures(output: OutputComparison) -> tuple[str, ...]:
    ulp = "" if output.max_ulp is None else str(output.max_ulp)
    level = output.level if output.baseline == "disable" else f"{output.level} (same level)"
    return (
        output.name,
        level,
        _short(output.max_abs),
        _short(output.max_rel),
        ulp,
        _short(output.rtol),
        _short(output.atol),
        percent(share_of_tolerance(output)),
        "ok" if output.ok else f"{output.mismatches} differ",
    )


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.2g}"


def model_report(model: Model, label: str) -> Part:
    """Return what a model is made of."""
    facts = Table("", "", prose=("",))
    opsets = ", ".join(
        f"{domain or 'ai.onnx'} {version}"
        for domain, version in sorted(model.opset_imports.items())
    )
    weights = initializer_summary(model)
    external = f", {weights['external']} in external files" if weights["external"] else ""
    graphs = list(model.graphs())
    inner = len(graphs) - 1 - len(model.functions)
    facts.add_row("model", label)
    facts.add_row("ir version", str(model.ir_version))
    facts.add_row("opsets", opsets)
    for value in model.graph.inputs:
        if not value.is_initializer:
            facts.add_row("input", _describe(value))
    for value in model.graph.outputs:
        facts.add_row("output", _describe(value))
    facts.add_row("nodes", f"{sum(graph.node_count for graph in graphs):,}")
    facts.add_row(
        "initializers", f"{weights['count']:,} with {weights['elements']:,} elements{external}"
    )
    if inner:
        facts.add_row("bodies", f"{inner} of If, Loop or Scan")
    for note in model.notes:
        facts.add_row("note", note)
    parts: list[Part] = [facts, Text(), _op_table(model)]
    if model.functions:
        parts += [Text(), _function_table(model)]
    return Group(*parts)


def _describe(value: Value) -> str:
    known = value.known_type()
    return f"{value.name} {known}" if known is not None else f"{value.name} (not a tensor)"


def _op_table(model: Model) -> Part:
    counts = op_histogram(model)
    table = Table("operator", "nodes", right=("nodes",))
    for op, count in list(counts.items())[:_TOP_OPS]:
        table.add_row(op, f"{count:,}")
    left = len(counts) - _TOP_OPS
    return Group(table, Text(f"and {left} more operators", style="dim")) if left > 0 else table


def _function_table(model: Model) -> Part:
    table = Table("function", "inputs", "body", prose=("inputs", "body"))
    for function in model.functions.values():
        inputs = few([value.name for value in function.body.inputs], _SHOWN_INPUTS)
        body = few([node.qualified_op for node in function.body], _SHOWN_NODES, " ")
        table.add_row(f"{function.domain}::{function.name}", inputs, body)
    return table


def node_report(node: Node) -> Part:
    """Return a node, the types of what it reads and makes, and its neighbours in the file."""
    table = Table("", "value", "type", "from or to", prose=("from or to",))
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
