"""What a bisection found: steps of rules that break a model, or where two models part."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from dplcli.errors import counted
from dplcli.report.document import (
    Case,
    Document,
    Drawn,
    DrawnModel,
    DrawnStep,
    Finding,
    read_place,
)
from dplcli.report.layout import Group, Text
from dplcli.report.tables import rule_uses, some, table_of
from dplcli.report.verify import (
    drawn_layers,
    equivalence,
    layer_table,
    power_facts,
    verification_report,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.outcomes.comparing import (
        BisectOutcome,
        Cause,
        Divergence,
        ModelsOutcome,
        Reproduced,
    )
    from dplcli.report.layout import Part
    from dplcli.verify import OutputComparison


_MOST_NODES = 6
_NOUNS = {"rewrite": "application", "partition": "partition"}


def rules_document(
    outcome: BisectOutcome,
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


def _drawn_causes(causes: Sequence[Cause], file: Path | None) -> Drawn:
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


def _cause_sentence(cause: Cause) -> str:
    steps = some(tuple(step.label for step in cause.culprits), _MOST_NODES)
    return f"{steps}: {cause.trial.reason}"


def _doubts(outcome: BisectOutcome) -> Iterator[str]:
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


def _rules_text(outcome: BisectOutcome, findings: Iterable[Finding], *, verbose: bool) -> Part:
    """Say which applications of rules break the model."""
    what = counted(len(outcome.steps), _NOUNS[outcome.kind])
    lines: list[Part] = [each.line for each in findings if verbose]
    if verbose and outcome.steps:
        counts = Counter(step.rule for step in outcome.steps)
        columns = f"rule {_NOUNS[outcome.kind]}s:count"
        lines += [table_of([*counts.items()], "Rules", columns), Text()]
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


def _cause(number: int, cause: Cause, noun: str) -> list[Text]:
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


def reproduced_document(result: Reproduced) -> Document:
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
    outcome: ModelsOutcome, *, files: Sequence[Path | None] = (None, None)
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


def _named(place: Divergence) -> str:
    partner = "" if place.candidate == place.original else f" (candidate: {place.candidate!r})"
    return f"{place.original!r}{partner}"


def _models_text(outcome: ModelsOutcome, *, verbose: bool) -> Part:
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


def _divergence_lines(place: Divergence) -> list[Text]:
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
