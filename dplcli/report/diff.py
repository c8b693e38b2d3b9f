"""In what two models differ, in sentences and in pictures."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dplcli.diff import FACETS, sentences
from dplcli.diff.sentences import ROWS
from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.ir.printer import print_node
from dplcli.report.document import Document, Drawn, DrawnModel, DrawnStep, key_of
from dplcli.report.layout import Group, Heading, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dplcli.diff import comparison
    from dplcli.ir import Node, Value
    from dplcli.outcomes.comparing import DiffOutcome
    from dplcli.report.document import NodeKey
    from dplcli.report.layout import Part

    Kind: TypeAlias = tuple[Sequence[Text], Sequence[Node]]
    """Differences of one kind, and the nodes concerned, if any."""


# Structural differences in pictures.


def drawn_models(outcome: DiffOutcome, files: tuple[Path, Path]) -> Drawn:
    """Return both models, with what was removed from the one, added to the other, or changed.

    Models in which nothing differs are drawn once. A node that reads a changed weight is changed.
    """
    if not outcome.difference.count:
        return Drawn([DrawnModel(files[0])], note="Both models have this graph.")
    marks: tuple[dict[NodeKey, str], ...] = ({}, {})
    steps: list[DrawnStep] = []
    for mark, text, *sides in _differences(outcome.difference):
        nodes = [[key_of(node) for node in side] for side in sides]
        for known, keys in zip(marks, nodes, strict=True):
            known.update(dict.fromkeys(keys, mark))
        steps.append(DrawnStep(f"{len(steps) + 1}. {mark}: {text}", text, tuple(nodes)))
    return Drawn(
        [DrawnModel(*each) for each in zip(files, marks, strict=True)],
        steps=steps,
        begins=True,
        pairs=[
            (key_of(one), key_of(other))
            for graph in outcome.difference.graphs
            for one, other in graph.partners.items()
        ],
    )


def _differences(
    difference: comparison.ModelDiff,
) -> Iterator[tuple[str, str, Sequence[Node], Sequence[Node]]]:
    """Yield a word, a sentence, and the nodes of both graphs for all that differs in nodes."""
    for graph in difference.graphs:
        for change in graph.changes:
            yield "changed", _change_text(change), [change.before], [change.after]
        for weight in graph.weights:
            before, after = ([n for n, _ in v.iter_uses()] for v in (weight.before, weight.after))
            yield "changed", _weight_text(weight), before, after
        for node in graph.removed:
            yield "removed", print_node(node), [node], []
        for node in graph.added:
            yield "added", print_node(node), [], [node]


# Structural differences: a block for each graph, a line for each difference.
#
# ``+`` is only in the second model, ``-`` only in the first, ``~`` in both, but different.


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


def diff_document(outcome: DiffOutcome, *, files: tuple[Path, Path] | None = None) -> Document:
    """Report on two models whose structures were compared.

    Args:
        outcome: The differences.
        files: The two models, for pictures.
    """
    difference = outcome.difference
    counts, remark = difference.counts, _not_counted(difference)
    return Document(
        said=partial(_diff_text, outcome, remark),
        of=outcome,
        command="dpl diff",
        subject=" and ".join(outcome.labels),
        ok=outcome.ok,
        verdict="Structurally equal" if difference.is_equal else "Different",
        facts=tuple(
            (words[True], f"{counts[kind]:,}") for kind, words in _WORDS.items() if counts[kind]
        ),
        notes=(remark,) if remark else (),
        draws=lambda: Drawn() if files is None else drawn_models(outcome, files),
    )


def _diff_text(outcome: DiffOutcome, remark: str, *, verbose: bool) -> Part:
    """Return the verdict, the differences by graph, and a remark on those that do not count."""
    is_equal, verdict = outcome.difference.is_equal, _verdict(outcome.difference)
    joined = " and " if is_equal else " -> "
    said = f" are {verdict}." if is_equal else f": {verdict}."
    style = "green" if is_equal else "bold"
    parts: list[Part] = [Text(f"{joined.join(outcome.labels)}{said}", style=style)]
    for title, *kinds in _sections(outcome.difference):
        parts += [Text(), title]
        for lines, nodes in kinds:
            parts += _shortened(lines, None if verbose else _SHOWN, nodes)
    if remark:
        parts += [Text(), Text(remark, style="dim")]
    return Group(*parts)


def _line(mark: str, text: str) -> Text:
    """Return one difference, which ``+``, ``-`` or ``~`` marks."""
    return Text(f"  {mark} ", style=_STYLES[mark], whole=True).append(text)


def _sections(difference: comparison.ModelDiff) -> Iterator[tuple[Heading, *tuple[Kind, ...]]]:
    """Yield the differences of the model, of each graph, and beside the dataflow."""
    model = [
        _line(
            "~", f"opset of {each.domain or 'ai.onnx'}: {each.before or '-'} -> {each.after or '-'}"
        )
        for each in difference.opsets
    ]
    model += map(_function_line, difference.functions)
    if model:
        yield Heading("model"), (model, ())
    yield from (_graph_section(graph) for graph in difference.graphs if graph.count)
    beside = [
        _line("~", f"{r.facet}: {r.where}: {r.before!r} -> {r.after!r}") for r in difference.counted
    ]
    if beside:
        yield Heading("beside the dataflow"), (beside, ())


def _verdict(difference: comparison.ModelDiff) -> str:
    counts = ((difference.counts[kind], words) for kind, words in _WORDS.items())
    said = ", ".join(f"{count} {words[count != 1]}" for count, words in counts if count)
    return "structurally equal" if difference.is_equal else said


def _graph_section(graph: comparison.GraphDiff) -> tuple[Heading, *tuple[Kind, ...]]:
    before, after = scope_of(graph.before), scope_of(graph.after)
    title = Heading(before if before == after else f"{before} -> {after}")
    old, new = graph.sizes
    title.append(f"  {old} nodes -> {new}, {graph.paired} in both", style="dim not bold")
    return (
        title,
        ([_signature_line(item) for item in graph.signature], ()),
        ([_line("-", print_node(node)) for node in graph.removed], graph.removed),
        ([_line("+", print_node(node)) for node in graph.added], graph.added),
        ([_line("~", _change_text(change)) for change in graph.changes], ()),
        ([_line("~", _weight_text(change)) for change in graph.weights], ()),
    )


def _shortened(lines: Sequence[Text], shown: int | None, nodes: Sequence[Node]) -> Iterator[Text]:
    """Yield the first lines and the number of the others; for nodes, also their operators."""
    if shown is None or len(lines) <= shown + 1:
        yield from lines
        return
    yield from lines[:shown]
    counts = Counter(node.qualified_op for node in nodes[shown:]).most_common(6)
    which = ", ".join(f"{count} {op}" for op, count in counts)
    more = f"  … {len(lines) - shown} more" + (f": {which}" if which else "")
    yield Text(f"{more}{', …' if len(counts) > 5 else ''} (--verbose)", style="dim")  # noqa: PLR2004  # how a reader wants numbers cut


def _change_text(change: comparison.NodeChange) -> str:
    parts = [*sentences.attributes(change, ROWS)]
    parts += (
        f"input {i.slot} {ROWS.pair(_value(i.before), _value(i.after))}" for i in change.inputs
    )
    said = "; ".join([*parts, *sentences.outputs(change)]) or "another operator"
    return f"{sentences.both(change.before, change.after, ROWS)}: {said}"


def _value(value: Value | None) -> str:
    if value is None:
        return "(none)"
    if value.is_constant:
        return f"{value.name} (constant {value.declared_type or ''})".replace(" )", ")")
    return value.name if value.producer is None else f"{value.name} ({value.producer.qualified_op})"


def _weight_text(change: comparison.WeightChange) -> str:
    found = change.distance
    if found is None:
        return sentences.weight(change, ROWS)
    name = f"weight {ROWS.once(change.before.name, change.after.name)}"
    text = f"{name} {sentences.type_of(change.before)}: "
    text += f"{found.changed} of {found.size} elements differ"
    if found.max_abs is None or found.max_rel is None:
        return text
    return f"{text}, by at most {found.max_abs:.3g}, relative {found.max_rel:.3g}"


def _signature_line(item: comparison.SignatureChange) -> Text:
    value = item.before or item.after
    if value is not None and None in {item.before, item.after}:
        text = f"{item.side} {value.name} {value.declared_type or ''}"
        return _line("-" if item.after is None else "+", text.rstrip())
    return _line("~", sentences.signature(item, ROWS))


def _function_line(item: comparison.FunctionChange) -> Text:
    before, after = item.before, item.after
    if before is None or after is None:
        function = before or after
        assert function is not None  # noqa: S101  # one of them is there
        count = function.body.node_count
        text = f"function {function.qualified_name} ({counted(count, 'node')})"
        return _line("-" if after is None else "+", text)
    text = f"function {before.qualified_name}: declares other attributes"
    if item.what == "renamed":
        text = f"function {before.qualified_name} -> {after.qualified_name}: renamed"
    return _line("~", text)


def _not_counted(difference: comparison.ModelDiff) -> str:
    """Say which differences do not count, and how to make them count."""
    counts = Counter(r.facet for r in difference.all_remarks if r.facet in difference.ignored)
    if not counts:
        return ""
    found = ", ".join(f"{facet} {counts[facet]}" for facet in FACETS if counts[facet])
    return f"Not counted: {found} (--ignore nothing counts and lists them)."
