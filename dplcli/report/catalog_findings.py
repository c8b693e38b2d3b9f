"""What a report says of catalogues: mistakes, examples that fail, a rule that breaks a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.report.document import Case, Document, Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl.lint import Problem
    from dplcli.dpl.rule import Rule
    from dplcli.errors import DplError
    from dplcli.report.catalog_tables import Trial
    from dplcli.report.document import Status
    from dplcli.verify import VerificationResult

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+)(?::(?P<column>[0-9]+))?", re.DOTALL)


def problems_document(catalogues: Sequence[str], problems: Sequence[Problem]) -> Document:
    """Report on what ``dpl patterns check`` found."""
    errors = sum(problem.severity == "error" for problem in problems)
    verdict = "No problems found" if not problems else f"{errors} of {len(problems)} are errors"
    return Document(
        command="dpl patterns check",
        subject=", ".join(catalogues),
        ok=not errors,
        verdict=verdict,
        cases=tuple(
            Case(
                problem.rule,
                problem.message,
                "failed" if problem.severity == "error" else "skipped",
                f"{problem.severity}: {problem.message}",
            )
            for problem in problems
        ),
        findings=tuple(
            Finding("catalogue", p.severity, p.rule, p.message, read_place(p.place, catalogues))
            for p in problems
        ),
    )


def unreadable_document(command: str, catalogues: Sequence[str], error: DplError) -> Document:
    """Report on a catalogue that cannot be read, pointing to where it says what is wrong."""
    head, _, rest = error.message.partition(": ")
    place = read_place(head, catalogues)
    message = rest if place is not None else error.message
    said = f"{message}\n{error.hint}" if error.hint else message
    return Document(
        command=command,
        subject=", ".join(catalogues),
        ok=False,
        verdict="A catalogue cannot be read",
        failures=(error.message,),
        findings=(Finding("catalogue", "error", "catalogue", said, place),),
    )


def trials_document(catalogues: Sequence[str], trials: Sequence[Trial]) -> Document:
    """Report on what ``dpl patterns test`` tried."""
    failed = [trial for trial in trials if trial.verdict == "failed"]
    passed = sum(trial.verdict == "passed" for trial in trials)
    status: dict[str, Status] = {"passed": "passed", "failed": "failed", "not tried": "skipped"}
    return Document(
        command="dpl patterns test",
        subject=", ".join(catalogues),
        ok=not failed,
        verdict=f"{passed} passed, {len(failed)} failed",
        cases=tuple(
            Case(
                trial.rule.qualified_name,
                f"{trial.kind} {trial.place}",
                status[trial.verdict],
                "" if trial.verdict == "passed" else trial.reason,
            )
            for trial in trials
        ),
        findings=tuple(
            Finding(
                "example" if trial.kind == "example" else "made-up-graph",
                "error",
                trial.rule.qualified_name,
                f"{trial.kind} {trial.place}: {trial.reason}",
                read_place(trial.place, catalogues) or read_place(trial.rule.origin, catalogues),
            )
            for trial in failed
        ),
    )


def broken_rule(  # noqa: PLR0913  # what was tried, and what is known
    rules: Iterable[Rule],
    counts: Mapping[str, int],
    verification: VerificationResult | None,
    *,
    catalogues: Iterable[Path | str],
    blamed: str | None = None,
    reason: str = "",
) -> tuple[Finding, ...]:
    """Return the rule that breaks a model, where it is known: it was caught, or did all there is.

    Args:
        rules: Those that were tried.
        counts: How often each was applied.
        verification: The comparison; None if there was none.
        catalogues: What was named on the command line.
        blamed: The rule that was caught, if one was.
        reason: What was said then.
    """
    applied = [rule for rule in rules if counts.get(rule.qualified_name)]
    differs = verification is not None and not verification.equivalent
    if blamed is not None:
        guilty = [rule for rule in rules if rule.qualified_name == blamed]
    else:
        guilty = applied if differs and len(applied) == 1 else []
    said = reason or "the result is not equivalent to the original"
    return tuple(
        Finding(
            "equivalence",
            "error",
            rule.qualified_name,
            f"the rule {rule.qualified_name} breaks the model: {said}",
            read_place(rule.origin, catalogues),
        )
        for rule in guilty
    )


def read_place(text: str, catalogues: Iterable[Path | str]) -> Place | None:
    """Read ``rules.yaml:12`` or ``rules.yaml:12:5``; anything else is no place in a file.

    Args:
        text: A file's bare name, a line, perhaps a column.
        catalogues: What was named on the command line: the file is one of these, or lies beside
            one that includes it; that of a shipped catalogue keeps its bare name.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    column = found["column"]
    file = _path_of(found["file"], [Path(name) for name in catalogues])
    return Place(file, int(found["line"]), None if column is None else int(column))


def _path_of(name: str, catalogues: Sequence[Path]) -> str:
    files = [path for path in catalogues if path.is_file()]
    beside = [path.parent / name for path in files]
    candidates = [path for path in files if path.name == name] + beside
    return next((str(path) for path in candidates if path.is_file()), name)
