"""What a bisection found: in sentences, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.report.layer_report import layer_table
from dplcli.report.layout import Group, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.report.layout import Part
    from dplcli.verify.bisect_result import (
        BisectOutcome,
        Cause,
        ModelsOutcome,
        Place,
        Reproduced,
        Step,
    )

    Json = dict[str, Any]

SCHEMA = "dpl.bisect/1"


def rules_report(outcome: BisectOutcome, *, verbose: bool) -> Part:
    """Say which applications of rules break the model."""
    what = _counted(len(outcome.steps), outcome.kind)
    lines = []
    for number, cause in enumerate(outcome.causes, 1):
        lines += [*_cause(number, cause, outcome.kind), Text()]
    if outcome.unjudged:
        count = _counted(len(outcome.unjudged), outcome.kind)
        lines.append(
            Text(f"Not judged: {count} that build on those of a rule found wrong.", style="yellow")
        )
        lines += [Text(f"  {step.label}") for step in outcome.unjudged if verbose]
    if not outcome.is_complete:
        text = "More is wrong; --most looks for more."
        lines.append(Text(text, style="yellow"))
    if outcome.is_equivalent:
        text = f"Equivalent: {what}, none of them changes what {outcome.label} computes."
        if not outcome.steps:
            text = f"Equivalent: no rule applies to {outcome.label}."
        return Group(*lines, Text(text, style="bold green"))
    causes = "1 cause" if len(outcome.causes) == 1 else f"{len(outcome.causes)} causes"
    rest = "; the rest is equivalent" if outcome.is_complete else ""
    text = f"NOT equivalent: {causes} in {what}{rest} ({outcome.trials} trials)."
    return Group(*lines, Text(text, style="bold red"))


def _cause(number: int, cause: Cause, kind: str) -> list[Text]:
    names = ", ".join(dict.fromkeys(step.rule for step in cause.culprits))
    title = f"{number}. {names}"
    if cause.alike > len(cause.culprits):
        title += f" ({_counted(cause.alike, kind)} in all, this one breaks it by itself)"
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


def _counted(number: int, kind: str) -> str:
    noun = "application" if kind == "rewrite" else "partition"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rules_record(outcome: BisectOutcome) -> Json:
    """Return the record ``dpl.bisect/1`` of a bisection over rules."""
    return {
        "schema": SCHEMA,
        "model": outcome.label,
        "over": outcome.kind,
        "equivalent": outcome.is_equivalent,
        "applications": len(outcome.steps),
        "trials": outcome.trials,
        "complete": outcome.is_complete,
        "causes": [
            {
                "culprits": [_step(step) for step in cause.culprits],
                "needed": [_step(step) for step in cause.needed],
                "reason": cause.trial.reason,
                "levels": list(cause.trial.levels),
                "seed": cause.trial.seed,
                "alike": cause.alike,
                "reproducer": None if cause.reproducer is None else cause.reproducer.name,
                "nodes": list(cause.nodes),
            }
            for cause in outcome.causes
        ],
        "unjudged": [_step(step) for step in outcome.unjudged],
    }


def _step(step: Step) -> Json:
    return {
        "rule": step.rule,
        "scope": step.scope,
        "root": {"op_type": step.op_type, "output": step.output},
        "change": step.text,
    }


def reproduced_report(result: Reproduced) -> Part:
    """Say whether a reproducer still shows its fault."""
    if not result.fitted:
        text = "The rules do not apply there any more: the fault is gone, or hidden."
        return Text(text, style="bold green")
    lines = [
        Text(f"{output.name} at level {output.level}: {output.reason}", style="red")
        for output in result.outputs
        if not output.ok
    ]
    if result.reason:
        lines.append(Text(result.reason, style="red"))
    if result.differs:
        return Group(*lines, Text("NOT equivalent: the fault is still there.", style="bold red"))
    return Text("Equivalent: the fault is gone.", style="bold green")


def reproduced_record(result: Reproduced) -> Json:
    """Return the record ``dpl.reproduced/1``."""
    return {
        "schema": "dpl.reproduced/1",
        "reproducer": result.label,
        "equivalent": not result.differs,
        "applies": result.fitted,
        "reason": result.reason,
        "outputs": [output.to_json() for output in result.outputs],
    }


def models_report(outcome: ModelsOutcome, *, verbose: bool) -> Part:
    """Say where one model leaves another."""
    result = outcome.verification
    if result.equivalent:
        text = f"Equivalent: {outcome.labels[1]} computes what {outcome.labels[0]} does."
        return Text(text, style="bold green")
    lines: list[Part] = []
    if verbose and outcome.layers is not None:
        lines += [layer_table(outcome.layers), Text()]
    lines += [
        Text(f"{output.name} at level {output.level}: {output.reason}")
        for output in result.outputs
        if not output.ok
    ]
    lines += [Text(reason) for reason in result.reasons]
    if outcome.place is not None:
        lines += [Text(), *_place(outcome.place), Text()]
    if outcome.remark:
        lines.append(Text(outcome.remark, style="yellow"))
    return Group(*lines, Text("NOT equivalent.", style="bold red"))


def _place(place: Place) -> list[Text]:
    layer = place.layer
    partner = "" if layer.candidate == layer.original else f" (candidate: {layer.candidate!r})"
    lines = [
        Text(f"They part at {layer.original!r}{partner}", style="bold red"),
        Text(f"   aligned by {layer.how}; all that flows into it agrees"),
        Text(f"   original:  {_listed(place.original)}"),
        Text(f"   candidate: {_listed(place.candidate)}"),
        Text(f"   {layer.comparison.reason}"),
    ]
    if place.level != "disable":
        lines.append(Text(f"   only at optimisation level {place.level}"))
    if place.reproducer is not None:
        size = f"{len(place.original)} and {len(place.candidate)} nodes"
        lines.append(Text(f"   reproduce: dpl bisect --reproduce {place.reproducer} ({size})"))
    return lines


def _listed(nodes: Sequence[str], most: int = 6) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(nodes[:most]) + more


def models_record(outcome: ModelsOutcome) -> Json:
    """Return the record ``dpl.bisect/1`` of a bisection over the nodes of two models."""
    place = outcome.place
    return {
        "schema": SCHEMA,
        "model": outcome.labels[0],
        "candidate": outcome.labels[1],
        "over": "nodes",
        "equivalent": outcome.is_equivalent,
        "remark": outcome.remark,
        "place": None
        if place is None
        else {
            "original": place.layer.original,
            "candidate": place.layer.candidate,
            "aligned_by": place.layer.how,
            "reason": place.layer.comparison.reason,
            "level": place.level,
            "nodes": {"original": list(place.original), "candidate": list(place.candidate)},
            "reproducer": None if place.reproducer is None else place.reproducer.name,
        },
        "layers": None if outcome.layers is None else outcome.layers.to_json(),
        "verification": outcome.verification.to_json(),
    }
