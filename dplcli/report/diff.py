"""Differences of models and the findings of a bisection: as text and as JSON."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dplcli.diff import FACETS, sentences
from dplcli.diff.sentences import ROWS
from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.ir.printer import print_node
from dplcli.report.document import (
    Case,
    Document,
    Drawn,
    DrawnModel,
    DrawnStep,
    Finding,
    drawn_layers,
    equivalence,
    key_of,
    power_facts,
    read_place,
    rule_uses,
)
from dplcli.report.layout import Group, Heading, Text, TextTable
from dplcli.report.tables import layer_table, some, verification_report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli import outcomes
    from dplcli.diff import comparison
    from dplcli.ir import Node, Value
    from dplcli.report.document import NodeKey
    from dplcli.report.layout import Part
    from dplcli.verify import OutputComparison

    Kind: TypeAlias = tuple[Sequence[Text], Sequence[Node]]
    """Differences of one kind, and the nodes concerned, if any."""


# Structural differences in pictures.


def drawn_models(outcome: outcomes.DiffOutcome, files: tuple[Path, Path]) -> Drawn:
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


# What a bisection found: in sentences, and as JSON.


_MOST_NODES = 6
_NOUNS = {"rewrite": "application", "partition": "partition"}


def rules_document(
    outcome: outcomes.BisectOutcome,
    *,
    file: Path | None = None,
    catalogs: Iterable[str],
) -> Document:
    """Report on the search for applications of rules that break a model.

    Args:
        outcome: What was found.
        file: The model, for a picture.
        catalogs: What was named on the command line.
    """
    counts = Counter(step.rule for step in outcome.steps)
    origins = {rule.qualified_name: rule.origin for rule in outcome.rules}
    named = tuple(catalogs)
    wrong = [
        (rule, f"the rule {rule} breaks {outcome.label}: {cause.trial.reason}")
        for cause in outcome.causes
        for rule in cause.rules
    ]
    findings = tuple(
        Finding("equivalence", "error", rule, message, read_place(origins[rule], named))
        for rule, message in wrong
    )
    skipped = {step.rule: "it builds on a rule found wrong" for step in outcome.unjudged}
    return Document(
        said=partial(_rules_text, outcome, findings),
        of=outcome,
        command="dpl bisect",
        subject=outcome.label,
        ok=outcome.is_equivalent,
        verdict="Equivalent" if outcome.is_equivalent else "NOT equivalent",
        failures=tuple(_cause_sentence(cause) for cause in outcome.causes),
        notes=tuple(_doubts(outcome)),
        facts=(
            (f"{_NOUNS[outcome.kind]}s", f"{len(outcome.steps):,}"),
            ("trials", f"{outcome.trials:,}"),
            *_reproducers(cause.reproducer for cause in outcome.causes),
        ),
        rules=rule_uses(counts, ()),
        cases=tuple(_rule_case(rule, dict(wrong), skipped) for rule in counts),
        findings=findings,
        draws=lambda: _drawn_causes(outcome.causes, file),
    )


def _drawn_causes(causes: Sequence[outcomes.Cause], file: Path | None) -> Drawn:
    """Return the model, with the nodes that wrong steps take out; a step for each cause."""
    if file is None or not causes:
        return Drawn()
    taken = [[(step.scope, name) for step in c.culprits for name in step.covered] for c in causes]
    steps = [
        DrawnStep(f"Cause {number}: {', '.join(cause.rules)}", _cause_sentence(cause), (nodes,))
        for number, (cause, nodes) in enumerate(zip(causes, taken, strict=True), 1)
    ]
    marks = {node: "differs" for nodes in taken for node in nodes}
    return Drawn([DrawnModel(file, marks)], steps=steps)


def _cause_sentence(cause: outcomes.Cause) -> str:
    steps = some(tuple(step.label for step in cause.culprits), _MOST_NODES)
    return f"{steps}: {cause.trial.reason}"


def _doubts(outcome: outcomes.BisectOutcome) -> Iterator[str]:
    """Yield what was not looked at."""
    if outcome.unjudged:
        count = counted(len(outcome.unjudged), _NOUNS[outcome.kind])
        yield f"Not judged: {count} that build on those of a rule found wrong."
    if not outcome.is_complete:
        yield "More is wrong; --most looks for more."


def _reproducers(folders: Iterable[Path | None]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        if folder is not None:
            yield "reproduce", f"dpl bisect --reproduce {folder}"


def _rule_case(rule: str, wrong: Mapping[str, str], skipped: Mapping[str, str]) -> Case:
    if rule in wrong:
        return Case("rules", rule, "failed", wrong[rule])
    return Case("rules", rule, "skipped" if rule in skipped else "passed", skipped.get(rule, ""))


def _rules_text(
    outcome: outcomes.BisectOutcome, findings: Iterable[Finding], *, verbose: bool
) -> Part:
    """Say which applications of rules break the model."""
    what = counted(len(outcome.steps), _NOUNS[outcome.kind])
    lines: list[Part] = [each.line for each in findings if verbose]
    if verbose and outcome.steps:
        counts, noun = Counter(step.rule for step in outcome.steps), f"{_NOUNS[outcome.kind]}s"
        rows = [(rule, f"{count:,}") for rule, count in counts.items()]
        lines += [TextTable("rule", noun, right=[noun], rows=rows, title="Rules"), Text()]
    for number, cause in enumerate(outcome.causes, 1):
        lines += [*_cause(number, cause, _NOUNS[outcome.kind]), Text()]
    lines += [Text(doubt, style="yellow") for doubt in _doubts(outcome)]
    lines += [Text(f"  {step.label}") for step in outcome.unjudged if verbose]
    if outcome.is_equivalent:
        text = f"Equivalent: {what}, none of them changes what {outcome.label} computes."
        if not outcome.steps:
            text = f"Equivalent: no rule applies to {outcome.label}."
        return Group(*lines, Text(text, style="bold green"))
    rest = "; the rest is equivalent" if outcome.is_complete else ""
    text = f"{counted(len(outcome.causes), 'cause')} in {what}{rest} ({outcome.trials} trials)."
    return Group(*lines, Text(f"NOT equivalent: {text}", style="bold red"))


def _cause(number: int, cause: outcomes.Cause, noun: str) -> list[Text]:
    title = f"{number}. {', '.join(cause.rules)}"
    if cause.alike > len(cause.culprits):
        title += f" ({counted(cause.alike, noun)} in all, this one breaks it by itself)"
    lines = [Text(title, style="bold red")]
    lines += [Text(f"   {step.label}: {step.text}") for step in cause.culprits]
    lines += [Text(f"   builds on {step.label}: {step.text}") for step in cause.needed]
    lines.append(Text(f"   {cause.trial.reason}"))
    if cause.reproducer is not None:
        size = f"{cause.nodes[0]:,} of {cause.nodes[1]:,} nodes"
        lines.append(Text(f"   reproduce: dpl bisect --reproduce {cause.reproducer} ({size})"))
    elif cause.is_hidden:
        lines.append(Text("   no reproducer: it does not show on what the model is fed there"))
    return lines


def reproduced_document(result: outcomes.Reproduced) -> Document:
    """Report on a reproducer that was run."""
    checked = result.verification
    objections = () if checked is None else checked.objections
    if not result.fitted:
        verdict = "The rules do not apply there any more: the fault is gone, or hidden"
    elif result.differs:
        verdict = "NOT equivalent: the fault is still there"
    else:
        verdict = "Equivalent: the fault is gone"
    failures = (*filter(None, [result.objection]), *objections)
    lines = [*_wrong(() if checked is None else checked.outputs), *failures]
    end = Text(f"{verdict}.", style="bold red" if result.differs else "bold green")

    def said(*, verbose: bool) -> Part:
        if verbose and checked is not None:
            return Group(verification_report(checked), end)
        return Group(*(Text(line, style="red") for line in lines), end)

    return Document(
        said=said,
        of=result,
        command="dpl bisect --reproduce",
        subject=result.label,
        ok=not result.differs,
        verdict=verdict,
        failures=failures,
        notes=() if checked is None else checked.warnings,
        verification=checked,
    )


def _wrong(outputs: Iterable[OutputComparison]) -> list[str]:
    """Say of each output that differs at which level and why."""
    return [f"{each.name} at level {each.level}: {each.reason}" for each in outputs if not each.ok]


def models_document(
    outcome: outcomes.ModelsOutcome, *, files: Sequence[Path | None] = (None, None)
) -> Document:
    """Report on the search for the first value in which two models differ.

    Args:
        outcome: What was found.
        files: The two models, for pictures.
    """
    result, place = outcome.verification, outcome.place
    parted = "" if place is None else f"they part at {_named(place)}: {place.reason}"
    return Document(
        said=partial(_models_text, outcome),
        of=outcome,
        command="dpl bisect",
        subject=f"{outcome.labels[1]} against {outcome.labels[0]}",
        ok=outcome.is_equivalent,
        verdict=equivalence(result),
        failures=(*result.objections, *result.doubts, *filter(None, [parted])),
        notes=(
            *filter(None, [outcome.remark]),
            *result.warnings,
        ),
        facts=(
            *power_facts(result),
            *_reproducers([None if place is None else place.reproducer]),
        ),
        verification=result,
        layers=outcome.layers,
        draws=lambda: drawn_layers(files, outcome.layers),
    )


def _named(place: outcomes.Divergence) -> str:
    partner = "" if place.candidate == place.original else f" (candidate: {place.candidate!r})"
    return f"{place.original!r}{partner}"


def _models_text(outcome: outcomes.ModelsOutcome, *, verbose: bool) -> Part:
    """Say in which value two models first differ."""
    result = outcome.verification
    if result.doubts:
        said = [Text(f"cannot tell: {doubt}") for doubt in result.doubts]
        return Group(*said, Text("No difference was found.", style="bold red"))
    lines: list[Part] = [Text(reason) for reason in (*_wrong(result.outputs), *result.objections)]
    if verbose:
        layers = [] if outcome.layers is None else [layer_table(outcome.layers), Text()]
        lines = [*layers, verification_report(result)]
    if result.equivalent:
        text = f"Equivalent: {outcome.labels[1]} computes what {outcome.labels[0]} does."
        return Group(*lines, Text(text, style="bold green"))
    if outcome.place is not None:
        lines += [Text(), *_divergence_lines(outcome.place), Text()]
    if outcome.remark:
        lines.append(Text(outcome.remark, style="yellow"))
    return Group(*lines, Text("NOT equivalent.", style="bold red"))


def _divergence_lines(place: outcomes.Divergence) -> list[Text]:
    ours, theirs = place.nodes
    lines = [
        f"aligned by {place.how}; both are fed what the original computes there",
        f"original:  {some(ours, _MOST_NODES)}",
        f"candidate: {some(theirs, _MOST_NODES)}",
        place.reason,
    ]
    if place.level != "disable":
        lines.append(f"only at optimisation level {place.level}")
    if place.reproducer is not None:
        size = f"{len(ours)} and {len(theirs)} nodes"
        lines.append(f"reproduce: dpl bisect --reproduce {place.reproducer} ({size})")
    title = Text(f"They part at {_named(place)}", style="bold red")
    return [title, *(Text(f"   {line}") for line in lines)]


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


def diff_document(
    outcome: outcomes.DiffOutcome, *, files: tuple[Path, Path] | None = None
) -> Document:
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
        ok=difference.is_equal,
        verdict="Structurally equal" if difference.is_equal else "Different",
        facts=tuple(
            (words[True], f"{counts[kind]:,}") for kind, words in _WORDS.items() if counts[kind]
        ),
        notes=(remark,) if remark else (),
        draws=lambda: Drawn() if files is None else drawn_models(outcome, files),
    )


def _diff_text(outcome: outcomes.DiffOutcome, remark: str, *, verbose: bool) -> Part:
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
    yield Text(f"{more}{', …' if len(counts) > 5 else ''} (--verbose)", style="dim")  # noqa: PLR2004


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
        text = f"function {function.qualified_name} ({count} node{'s' * (count != 1)})"
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
