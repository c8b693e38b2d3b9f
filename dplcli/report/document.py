"""What a report says, whatever form it takes: the verdict, its grounds, and what to look at."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from dplcli import __version__
from dplcli.report.tables import share_of_tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.catalog.lint import Problem
    from dplcli.dpl import Rejection
    from dplcli.dpl.rule import Rule
    from dplcli.errors import DplError
    from dplcli.outcomes import Trial
    from dplcli.verify import VerificationResult
    from dplcli.verify.layers import Layers

    Status: TypeAlias = Literal["passed", "failed", "skipped"]

    Severity: TypeAlias = Literal["error", "warning", "note"]


_PACKAGES = ("onnx", "onnxruntime", "numpy")


@dataclass(frozen=True)
class SourceLocation:
    """A place in a catalogue.

    Attributes:
        file: The file, as it was named on the command line; of a shipped one its bare name.
        line: The line, from 1.
        column: The column, from 1; None if it is not known.
    """

    file: str
    line: int
    column: int | None = None


@dataclass(frozen=True)
class Finding:
    """Something to look at in a catalogue.

    Attributes:
        kind: What sort of thing it is, as one word: 'catalogue', 'example', 'equivalence'.
        severity: How bad it is.
        rule: The rule's name.
        message: What, for a reader.
        place: Where; None if that is not known.
    """

    kind: str
    severity: Severity
    rule: str
    message: str
    place: SourceLocation | None


@dataclass(frozen=True)
class Case:
    """One thing that was tried, other than a comparison of an output.

    Attributes:
        group: What it belongs to: a rule, say.
        name: What was tried.
        status: How that ended.
        message: Why, where it did not pass.
    """

    group: str
    name: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class RuleUse:
    """What became of one rule.

    Attributes:
        name: The rule.
        used: How often it was applied, or its matches outlined.
        refused: How often it was not although its pattern fits.
    """

    name: str
    used: int
    refused: int


@dataclass(frozen=True)
class LayerError:
    """How far one value on the way to the outputs is from the original's.

    Attributes:
        name: The value's name in the original.
        op_type: The operator that makes it.
        share: Largest error as a share of the tolerance; None if it has no meaning.
        ok: Whether it is within the tolerance.
    """

    name: str
    op_type: str
    share: float | None
    ok: bool


@dataclass(frozen=True)
class Section:
    """Differences in one place.

    Attributes:
        title: What the place is called.
        rows: A mark and a text each: ``+`` added, ``-`` removed, ``~`` changed.
    """

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report before it takes a form.

    Attributes:
        command: What was run, such as 'dpl verify'.
        subject: What it was run on.
        ok: Whether the answer is yes.
        verdict: The answer in a few words.
        failures: Why it is no, one sentence each, as far as no output or case says so.
        notes: What else a reader should know.
        facts: Names and values worth a line each.
        verification: The numerical comparison; None if none was made.
        rules: What became of each rule that did anything.
        cases: What was tried, apart from the comparison.
        findings: What to look at in catalogues.
        layers: How the values on the way compare, in order of computation.
        sections: In what two models differ.
    """

    command: str
    subject: str
    ok: bool
    verdict: str
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    verification: VerificationResult | None = None
    rules: tuple[RuleUse, ...] = ()
    cases: tuple[Case, ...] = ()
    findings: tuple[Finding, ...] = ()
    layers: tuple[LayerError, ...] = ()
    sections: tuple[Section, ...] = ()


def verification_document(
    subject: str, result: VerificationResult, inside: Layers | None = None
) -> Document:
    """Report on two models that were compared.

    Args:
        subject: The names of the two files.
        result: The comparison.
        inside: How the values on the way compare, if that was asked for.
    """
    layers = () if inside is None else inside.layers
    return Document(
        command="dpl verify",
        subject=subject,
        ok=result.accepted,
        verdict=equivalence(result),
        facts=power_facts(result),
        failures=result.reasons,
        notes=result.warnings,
        verification=result,
        layers=tuple(
            LayerError(
                layer.original, layer.op_type, share_of_tolerance(layer.comparison), ok=layer.ok
            )
            for layer in layers
        ),
    )


def result_document(  # noqa: PLR0913  # the parts of an outcome
    command: str,
    subject: str,
    verification: VerificationResult | None,
    *,
    ok: bool,
    failures: Iterable[str],
    notes: Iterable[str] = (),
    facts: Iterable[tuple[str, str]] = (),
    rules: Iterable[RuleUse] = (),
    findings: Iterable[Finding] = (),
) -> Document:
    """Report on a model that was made from another.

    Args:
        command: What was run.
        subject: What it was run on.
        verification: How the two compare; None if they were not compared.
        ok: Whether the answer is yes.
        failures: Why it is no, where the comparison does not say so.
        notes: What else a reader should know.
        facts: Names and values.
        rules: What became of the rules.
        findings: What to look at in catalogues.
    """
    if verification is None:
        verdict = "Done, not verified" if ok else "Failed"
    else:
        verdict = equivalence(verification)
        if verification.equivalent and not ok:
            verdict = f"{verdict}, but not as asked"
    weak = () if verification is None else verification.warnings
    reasons = () if verification is None else verification.reasons
    return Document(
        command=command,
        subject=subject,
        ok=ok,
        verdict=verdict,
        failures=(*failures, *reasons),
        notes=(*notes, *weak),
        facts=(*facts, *power_facts(verification)),
        verification=verification,
        rules=tuple(rules),
        findings=tuple(findings),
    )


def chosen_layers(layers: Sequence[LayerError], most: int) -> list[LayerError]:
    """Return up to *most* of *layers* in order of computation; those that differ go before."""
    places = sorted(range(len(layers)), key=lambda place: layers[place].ok)[:most]
    return [layers[place] for place in sorted(places)]


def equivalence(result: VerificationResult) -> str:
    """Return the verdict in a few words."""
    if not result.equivalent:
        return "NOT equivalent"
    return "Equivalent, by a check that is too weak" if result.is_weak else "Equivalent"


def power_facts(result: VerificationResult | None) -> tuple[tuple[str, str], ...]:
    """Return how many wrong models the check noticed, where that was measured."""
    if result is None or result.power is None:
        return ()
    return (("mutants caught", f"{result.power.caught} of {result.power.of}"),)


def rule_uses(counts: Mapping[str, int], refused: Iterable[Rejection]) -> tuple[RuleUse, ...]:
    """Return the rules that were applied or refused, in listed order."""
    refusals: dict[str, int] = {}
    for item in refused:
        refusals[item.rule.qualified_name] = refusals.get(item.rule.qualified_name, 0) + 1
    return tuple(
        RuleUse(name, count, refusals.get(name, 0))
        for name, count in counts.items()
        if count or refusals.get(name)
    )


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    found = {"dpl": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found | {"python": platform.python_version()}


# What a report says of catalogues: mistakes, examples that fail, a rule that breaks a model.


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


def read_place(text: str, catalogues: Iterable[Path | str]) -> SourceLocation | None:
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
    return SourceLocation(file, int(found["line"]), None if column is None else int(column))


def _path_of(name: str, catalogues: Sequence[Path]) -> str:
    files = [path for path in catalogues if path.is_file()]
    beside = [path.parent / name for path in files]
    candidates = [path for path in files if path.name == name] + beside
    return next((str(path) for path in candidates if path.is_file()), name)
