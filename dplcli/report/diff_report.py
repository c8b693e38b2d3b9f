"""Structural differences for a terminal and for reports: a block per graph, a line per difference.

``+`` is only in the second model, ``-`` only in the first, ``~`` in both but not the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from dplcli.diff import FACETS
from dplcli.ir.printer import print_attribute, print_node
from dplcli.ir.scopes import scope_of
from dplcli.report.diff_records import diff_counts
from dplcli.report.document import Document, Section
from dplcli.report.layout import Group, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.diff import GraphDiff, ModelDiff, NodeChange
    from dplcli.diff.result import FunctionChange, SignatureChange, WeightChange
    from dplcli.ir import Attribute, Function, Node, Value
    from dplcli.report.layout import Part

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


def diff_report(labels: tuple[str, str], difference: ModelDiff, *, verbose: bool) -> Part:
    """Return the verdict, what differs by graph, and what differs but does not count."""
    shown = None if verbose else _SHOWN
    verdict, style = _verdict(difference), "green" if difference.is_equal else "bold"
    joined = " and " if difference.is_equal else " -> "
    said = f" are {verdict}." if difference.is_equal else f": {verdict}."
    parts: list[Part] = [Text(f"{joined.join(labels)}{said}", style=style)]
    for place in _places(difference):
        title = Text(place.title, style="bold")
        if place.size:
            title.append(f"  {place.size}", style="dim not bold")
        parts += [Text(), title]
        for lines, nodes in place.kinds:
            parts += _shortened(lines, shown, nodes)
    if remark := _not_counted(difference):
        parts += [Text(), Text(remark, style="dim")]
    return Group(*parts)


def diff_document(labels: tuple[str, str], difference: ModelDiff) -> Document:
    """Report on two models whose structures were compared."""
    counts = diff_counts(difference)
    remark = _not_counted(difference)
    return Document(
        command="dpl diff",
        subject=" and ".join(labels),
        ok=difference.is_equal,
        verdict="Structurally equal" if difference.is_equal else "Different",
        facts=tuple(
            (words[True], f"{counts[kind]:,}") for kind, words in _WORDS.items() if counts[kind]
        ),
        notes=(remark,) if remark else (),
        sections=tuple(map(_section, _places(difference))),
    )


class Line(NamedTuple):
    """One difference: ``+``, ``-`` or ``~``, and what."""

    mark: str
    text: str


class Kind(NamedTuple):
    """Differences of one kind, and the nodes that they are about, if there are any."""

    lines: Sequence[Line]
    nodes: Sequence[Node] = ()


class Place(NamedTuple):
    """Where models differ: what it is called, how large it is, and in what."""

    title: str
    size: str
    kinds: Sequence[Kind]


def _section(place: Place) -> Section:
    title = f"{place.title}: {place.size}" if place.size else place.title
    return Section(title, tuple(line for kind in place.kinds for line in kind.lines))


def _places(difference: ModelDiff) -> Iterator[Place]:
    """Yield the places with differences: the model as such, its graphs, what is beside them."""
    model = [*_opsets(difference), *map(_function_line, difference.functions)]
    if model:
        yield Place("model", "", (Kind(model),))
    yield from (_graph_place(graph) for graph in difference.graphs if graph.count)
    counted = [
        Line("~", f"{r.facet}: {r.where}: {r.before!r} -> {r.after!r}") for r in difference.counted
    ]
    if counted:
        yield Place("beside the dataflow", "", (Kind(counted),))


def _verdict(difference: ModelDiff) -> str:
    if difference.is_equal:
        return "structurally equal"
    counts = diff_counts(difference)
    return ", ".join(
        f"{counts[kind]} {words[counts[kind] != 1]}"
        for kind, words in _WORDS.items()
        if counts[kind]
    )


def _graph_place(graph: GraphDiff) -> Place:
    before, after = scope_of(graph.before), scope_of(graph.after)
    title = before if before == after else f"{before} -> {after}"
    old, new = graph.paired + len(graph.removed), graph.paired + len(graph.added)
    kinds = (
        Kind([_signature_line(item) for item in graph.signature]),
        Kind([Line("-", print_node(node)) for node in graph.removed], graph.removed),
        Kind([Line("+", print_node(node)) for node in graph.added], graph.added),
        Kind([Line("~", _change_text(change)) for change in graph.changes]),
        Kind([Line("~", _weight_text(change)) for change in graph.weights]),
    )
    return Place(title, f"{old} nodes -> {new}, {graph.paired} in both", kinds)


def _shortened(
    lines: Sequence[Line], shown: int | None, nodes: Sequence[Node] = ()
) -> Iterator[Text]:
    """Yield the first lines, and how many more there are; of nodes, which operators."""
    if shown is None or len(lines) <= shown + 1:
        yield from map(_styled, lines)
        return
    yield from map(_styled, lines[:shown])
    counts = Counter(node.qualified_op for node in nodes[shown:]).most_common(6)
    which = ", ".join(f"{count} {op}" for op, count in counts)
    more = f"  … {len(lines) - shown} more" + (f": {which}" if which else "")
    yield Text(f"{more}{', …' if len(counts) > 5 else ''} (--verbose)", style="dim")  # noqa: PLR2004


def _styled(line: Line) -> Text:
    mark = Text(f"  {line.mark} ", style=_STYLES[line.mark], whole=True)
    return mark.append(line.text)


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


def _signature_line(item: SignatureChange) -> Line:
    before, after = item.before, item.after
    if before is None or after is None:
        value = before or after
        assert value is not None  # noqa: S101  # one of them is there
        return Line("-" if after is None else "+", f"{item.side} {_typed(value)}")
    text = f"{item.side} {before.name}"
    if item.what == "renamed":
        return Line("~", f"{text} -> {after.name}: renamed")
    if item.what == "moved":
        return Line("~", f"{text}: at another place among the {item.side}s")
    if item.what == "retyped":
        return Line("~", f"{text}: {before.declared_type} -> {after.declared_type}")
    return Line("~", f"{text}: made by {_maker(before)} -> {_maker(after)}")


def _typed(value: Value) -> str:
    return f"{value.name} {value.declared_type or ''}".rstrip()


def _maker(value: Value) -> str:
    maker = value.producer
    return value.name if maker is None else f"{maker.qualified_op} {maker.label}"


def _opsets(difference: ModelDiff) -> list[Line]:
    return [
        Line(
            "~", f"opset of {item.domain or 'ai.onnx'}: {item.before or '-'} -> {item.after or '-'}"
        )
        for item in difference.opsets
    ]


def _function_line(item: FunctionChange) -> Line:
    before, after = item.before, item.after
    if before is None or after is None:
        function = before or after
        assert function is not None  # noqa: S101  # one of them is there
        size = f"{function.body.node_count} node{'s' if function.body.node_count != 1 else ''}"
        return Line("-" if after is None else "+", f"function {_key(function)} ({size})")
    if item.what == "renamed":
        return Line("~", f"function {_key(before)} -> {_key(after)}: renamed")
    return Line("~", f"function {_key(before)}: declares other attributes")


def _key(function: Function) -> str:
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}::{function.name}{overload}"


def _not_counted(difference: ModelDiff) -> str:
    """Say what differs but does not count, and how to make it count."""
    counts = Counter(r.facet for r in difference.all_remarks if r.facet in difference.ignored)
    if not counts:
        return ""
    found = ", ".join(f"{facet} {counts[facet]}" for facet in FACETS if counts[facet])
    return f"Not counted: {found} (--ignore nothing counts and lists them)."
