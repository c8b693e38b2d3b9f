"""Structural differences for a terminal: one block per graph, one line per difference.

``+`` is only in the second model, ``-`` only in the first, ``~`` in both but not the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from dplcli.diff import FACETS
from dplcli.ir.printer import print_attribute, print_node
from dplcli.ir.scopes import scope_of
from dplcli.report.diff_records import diff_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from dplcli.diff import GraphDiff, ModelDiff, NodeChange
    from dplcli.diff.result import FunctionChange, SignatureChange, WeightChange
    from dplcli.ir import Attribute, Function, Node, Value

_SHOWN = 12
"""Lines of one kind that are shown unless the reader wants all."""
_STYLES = {"+": "green", "-": "red", "~": "yellow"}
_WORDS = {
    "added": ("node added", "nodes added"),
    "removed": ("node removed", "nodes removed"),
    "changed": ("node changed", "nodes changed"),
    "weights": ("weight changed", "weights changed"),
    "signature": ("change of inputs or outputs", "changes of inputs or outputs"),
    "functions": ("change of functions", "changes of functions"),
    "opsets": ("change of opsets", "changes of opsets"),
    "remarks": ("other difference", "other differences"),
}


def diff_report(labels: tuple[str, str], difference: ModelDiff, *, verbose: bool) -> RenderableType:
    """Return the verdict, what differs by graph, and what differs but does not count."""
    shown = None if verbose else _SHOWN
    parts: list[RenderableType] = [_verdict(labels, difference)]
    model = [*_opsets(difference), *map(_function_line, difference.functions)]
    if model:
        parts += [Text(), Text("model", style="bold"), *_shortened(model, shown)]
    for graph in difference.graphs:
        if graph.count:
            parts += [Text(), _graph_title(graph), *_graph_lines(graph, shown)]
    counted = [
        _line("~", f"{r.facet}: {r.where}: {r.before!r} -> {r.after!r}") for r in difference.counted
    ]
    if counted:
        parts += [Text(), Text("beside the dataflow", style="bold"), *_shortened(counted, shown)]
    parts += _not_counted(difference)
    return Group(*parts)


def _verdict(labels: tuple[str, str], difference: ModelDiff) -> Text:
    if difference.is_equal:
        return Text(f"{labels[0]} and {labels[1]} are structurally equal.", style="green")
    counts = diff_counts(difference)
    found = [
        f"{counts[kind]} {words[counts[kind] != 1]}"
        for kind, words in _WORDS.items()
        if counts[kind]
    ]
    return Text(f"{labels[0]} -> {labels[1]}: {', '.join(found)}.", style="bold")


def _graph_title(graph: GraphDiff) -> Text:
    before, after = scope_of(graph.before), scope_of(graph.after)
    title = Text(before if before == after else f"{before} -> {after}", style="bold")
    old, new = graph.paired + len(graph.removed), graph.paired + len(graph.added)
    return title.append(f"  {old} nodes -> {new}, {graph.paired} in both", style="dim not bold")


def _graph_lines(graph: GraphDiff, shown: int | None) -> Iterator[Text]:
    kinds: tuple[list[Text], ...] = (
        [_signature_line(item) for item in graph.signature],
        [_line("-", print_node(node)) for node in graph.removed],
        [_line("+", print_node(node)) for node in graph.added],
        [_line("~", _change_text(change)) for change in graph.changes],
        [_line("~", _weight_text(change)) for change in graph.weights],
    )
    for lines, nodes in zip(kinds, ((), graph.removed, graph.added, (), ()), strict=True):
        yield from _shortened(lines, shown, nodes)


def _shortened(
    lines: Sequence[Text], shown: int | None, nodes: Sequence[Node] = ()
) -> Iterator[Text]:
    """Yield the first lines, and how many more there are; of nodes, which operators."""
    if shown is None or len(lines) <= shown + 1:
        yield from lines
        return
    yield from lines[:shown]
    counts = Counter(node.qualified_op for node in nodes[shown:]).most_common(6)
    which = ", ".join(f"{count} {op}" for op, count in counts)
    more = f"  … {len(lines) - shown} more" + (f": {which}" if which else "")
    yield Text(f"{more}{', …' if len(counts) > 5 else ''} (--verbose)", style="dim")  # noqa: PLR2004


def _line(mark: str, text: str) -> Text:
    return Text(f"  {mark} ", style=_STYLES[mark]).append(text)


def _change_text(change: NodeChange) -> str:
    parts = [
        f"{item.name} {_attribute(item.before)} -> {_attribute(item.after)}"
        for item in change.attributes
    ]
    parts += [
        f"input {item.slot} {_value(item.before)} -> {_value(item.after)}" for item in change.inputs
    ]
    made = change.after.outputs
    parts += [
        f"output {index} {'added' if any(made[index : index + 1]) else 'removed'}"
        for index in change.outputs
    ]
    return f"{_both(change.before, change.after)}: {'; '.join(parts) or 'another operator'}"


def _both(before: Node, after: Node) -> str:
    """Name a node of both models, once if it is called the same in both."""
    old, new = (f"{node.qualified_op} {node.label}" for node in (before, after))
    if old == new:
        return old
    if before.qualified_op == after.qualified_op:
        return f"{old} ({after.label})"
    return f"{old} -> {new}"


def _attribute(attribute: Attribute | None) -> str:
    return "(none)" if attribute is None else print_attribute(attribute)


def _value(value: Value | None) -> str:
    if value is None:
        return "(none)"
    if value.is_constant:
        return f"{value.name} (constant {value.declared_type or ''})".replace(" )", ")")
    return value.name if value.producer is None else f"{value.name} ({value.producer.qualified_op})"


def _weight_text(change: WeightChange) -> str:
    names = {change.before.name: None, change.after.name: None}
    name = "weight " + " -> ".join(names)
    old, new = change.before.declared_type, change.after.declared_type
    found = change.distance
    if found is None:
        return f"{name}: {old} -> {new}" if old != new else f"{name}: stored in one model only"
    text = f"{name} {old}: {found.changed} of {found.size} elements differ"
    if found.max_abs is None or found.max_rel is None:
        return text
    return f"{text}, by at most {found.max_abs:.3g}, relative {found.max_rel:.3g}"


def _signature_line(item: SignatureChange) -> Text:
    before, after = item.before, item.after
    if before is None or after is None:
        value = before or after
        assert value is not None  # noqa: S101  # one of them is there
        return _line("-" if after is None else "+", f"{item.side} {_typed(value)}")
    text = f"{item.side} {before.name}"
    if item.what == "renamed":
        return _line("~", f"{text} -> {after.name}: renamed")
    if item.what == "moved":
        return _line("~", f"{text}: at another place among the {item.side}s")
    if item.what == "retyped":
        return _line("~", f"{text}: {before.declared_type} -> {after.declared_type}")
    return _line("~", f"{text}: made by {_maker(before)} -> {_maker(after)}")


def _typed(value: Value) -> str:
    return f"{value.name} {value.declared_type or ''}".rstrip()


def _maker(value: Value) -> str:
    maker = value.producer
    return value.name if maker is None else f"{maker.qualified_op} {maker.label}"


def _opsets(difference: ModelDiff) -> list[Text]:
    return [
        _line(
            "~", f"opset of {item.domain or 'ai.onnx'}: {item.before or '-'} -> {item.after or '-'}"
        )
        for item in difference.opsets
    ]


def _function_line(item: FunctionChange) -> Text:
    before, after = item.before, item.after
    if before is None or after is None:
        function = before or after
        assert function is not None  # noqa: S101  # one of them is there
        size = f"{function.body.node_count} node{'s' if function.body.node_count != 1 else ''}"
        return _line("-" if after is None else "+", f"function {_key(function)} ({size})")
    if item.what == "renamed":
        return _line("~", f"function {_key(before)} -> {_key(after)}: renamed")
    return _line("~", f"function {_key(before)}: declares other attributes")


def _key(function: Function) -> str:
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}::{function.name}{overload}"


def _not_counted(difference: ModelDiff) -> list[RenderableType]:
    """Say what differs but does not count, and how to make it count."""
    counts = Counter(r.facet for r in difference.all_remarks if r.facet in difference.ignored)
    if not counts:
        return []
    found = ", ".join(f"{facet} {counts[facet]}" for facet in FACETS if counts[facet])
    text = f"Not counted: {found} (--ignore nothing counts and lists them)."
    return [Text(), Text(text, style="dim")]
