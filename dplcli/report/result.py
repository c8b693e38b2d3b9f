"""What is said of a model that was made from another, whatever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.errors import counted
from dplcli.outcomes.partitioning import PartitionOutcome
from dplcli.outcomes.rewriting import RewriteOutcome
from dplcli.report.document import Document, Drawn, DrawnModel, Finding
from dplcli.report.layout import Group, Text
from dplcli.report.match import expectation_cases, findings_of
from dplcli.report.tables import RuleUse, rule_uses, table_of
from dplcli.report.verify import equivalence, kernel_cases, power_facts, verification_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from dplcli.outcomes.written import Delivery, ExtractOutcome, InlineOutcome, WrittenOutcome
    from dplcli.report.document import DrawnStep
    from dplcli.report.layout import Part
    from dplcli.report.match import Told

    Made: TypeAlias = ExtractOutcome | InlineOutcome | PartitionOutcome | RewriteOutcome


def result_document(
    command: str,
    outcome: Made,
    said: Callable[..., Part],
    *,
    draws: Callable[[], Drawn] = Drawn,
    catalogs: Iterable[Path | str] = (),
) -> Document:
    """Report on a model that was made from another.

    Args:
        command: What was run.
        outcome: What became of the model.
        said: Makes all that there is to say.
        draws: Tells which graphs a page shows.
        catalogs: What was named on the command line.
    """
    delivery, result, failures = outcome.delivery, outcome.verification, outcome.failures
    verdict = "Done, not verified" if outcome.ok else "Failed"
    notes, reasons, kernels = delivery.warnings, tuple[str, ...](), None
    if result is not None:
        as_asked = "" if outcome.ok or not result.equivalent else ", but not as asked"
        verdict, notes = f"{equivalence(result)}{as_asked}", (*notes, *result.warnings)
        reasons, kernels = result.objections + result.doubts, result.kernels
    uses, found, cases = tuple[RuleUse, ...](), tuple[Finding, ...](), kernel_cases(kernels)
    if isinstance(outcome, (PartitionOutcome, RewriteOutcome)):
        uses = rule_uses(outcome.counts, outcome.refused)
        found = findings_of(outcome, catalogs, _of_check(outcome))
        cases = (*expectation_cases(outcome.expected), *cases)
    return Document(
        said=lambda *, verbose: Group(
            *(each.line for each in found if verbose), said(verbose=verbose)
        ),
        of=outcome,
        command=command,
        subject=outcome.label,
        ok=outcome.ok,
        complaints=outcome.complaints,
        verdict=verdict,
        failures=(*failures, *reasons),
        notes=(*outcome.notes, *notes),
        facts=(*((what, f"{n:,}") for what, n in outcome.figures), *power_facts(result)),
        verification=result,
        rules=uses,
        findings=found,
        cases=cases,
        draws=draws,
    )


def drawn_result(
    outcome: Made,
    original: Path | None,
    steps: Iterable[DrawnStep],
    marks: tuple[str, str] = ("removed", "added"),
) -> Drawn:
    """Return a model and what was made of it, unless that stands in its place.

    Args:
        outcome: What became of the model.
        original: The file of the model before.
        steps: What led from it to the result.
        marks: What is to be seen of the nodes of steps, before and after; "" for nothing.
    """
    made = outcome.delivery.output or outcome.delivery.kept
    if made is None:
        return Drawn()
    done = list(steps)
    before, after = (
        {key: mark for step in done for key in step.nodes[side] if mark}
        for side, mark in enumerate(marks)
    )
    if original is None or original.resolve() == made.resolve():
        return Drawn([DrawnModel(made, after)])
    return Drawn(
        [DrawnModel(original, before), DrawnModel(made, after)],
        pairs=[(one, other) for step in done for one in step.nodes[0] for other in step.nodes[1]],
        steps=done,
    )


def _of_check(outcome: PartitionOutcome | RewriteOutcome) -> Iterator[Told]:
    """Yield the rule that breaks the model, if it is known, and what was taken back.

    It is known if it was caught, or if no other was applied.
    """
    rules = {rule.qualified_name for rule in outcome.rules}
    broken = outcome.broken if isinstance(outcome, RewriteOutcome) else None
    result = outcome.verification
    reason, guilty = "the result is not equivalent to the original", []
    if broken is not None:
        reason, guilty = broken.reason, [broken.rule]
    elif result is not None and not result.equivalent:
        guilty = [rule for rule in rules if outcome.counts.get(rule)]
    if len(guilty) == 1 and guilty[0] in rules:
        message = f"the rule {guilty[0]} breaks the model: {reason}"
        yield "error", "equivalence", guilty[0], message
    for item in outcome.taken_back:
        yield "warning", "equivalence", item.rule, f"taken back: {item}"


# The last lines: the check, and the file.


_MOST_TAKEN_BACK = 8


def ending(outcome: WrittenOutcome, *, is_changed: bool, verbose: bool) -> list[Part]:
    """Return the last lines of a report: the check, and where the result is.

    Args:
        outcome: What was done.
        is_changed: Whether the result differs from the model at all.
        verbose: Whether to show the figures of a check that passed.
    """
    parts: list[Part] = []
    if outcome.verification is not None:
        parts += [Text(), verification_report(outcome.verification, verbose=verbose)]
    elif is_changed and not outcome.is_verified:
        parts.append(Text("Not verified, as asked.", style="yellow"))
    if outcome.taken_back:
        most = None if verbose else _MOST_TAKEN_BACK
        parts += [Text(), table_of(outcome.taken_back, "Taken back", most=most)]
    return [*parts, *delivered(outcome.delivery, is_changed=is_changed)]


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
