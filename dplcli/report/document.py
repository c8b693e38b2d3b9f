"""What a report says, whatever form it takes: the verdict, its grounds, and what to look at."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal, TypeAlias

from dplcli import __version__
from dplcli.report.measures import share_of_tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl import Rejection
    from dplcli.verify import VerificationResult
    from dplcli.verify.layer_result import Layers

    Status: TypeAlias = Literal["passed", "failed", "skipped"]
    Severity: TypeAlias = Literal["error", "warning", "note"]

_PACKAGES = ("onnx", "onnxruntime", "numpy")


@dataclass(frozen=True)
class Place:
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
    place: Place | None


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
class Layer:
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
    layers: tuple[Layer, ...] = ()
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
            Layer(layer.original, layer.op_type, share_of_tolerance(layer.comparison), ok=layer.ok)
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


def chosen_layers(layers: Sequence[Layer], most: int) -> list[Layer]:
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
