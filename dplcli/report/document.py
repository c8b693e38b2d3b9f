"""A report before it takes a form: the verdict, the reasons for it, and what to look at."""

from __future__ import annotations

import math
import platform
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dplcli.errors import counted
from dplcli.ir.model import scope_of
from dplcli.keys import keys
from dplcli.outcomes import NodesOutcome, NodeView, WrittenOutcome
from dplcli.report import tables
from dplcli.report.json import parts_of, published
from dplcli.report.layout import Group, Text, TextTable, blocks_of, html_text, plain_text
from dplcli.version import __version__, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dplcli import outcomes
    from dplcli.dpl import Rejection
    from dplcli.dpl.explain import MatchTrace
    from dplcli.dpl.rule import JudgedExpectation
    from dplcli.ir import Model, Node
    from dplcli.report.layout import Part
    from dplcli.verify import VerificationResult
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.verdict import KernelReport

    Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]

    Severity: TypeAlias = Literal["error", "warning", "note"]

    NodeKey: TypeAlias = tuple[str, str]

    Made: TypeAlias = (
        outcomes.ExtractOutcome
        | outcomes.InlineOutcome
        | outcomes.PartitionOutcome
        | outcomes.RewriteOutcome
    )


class SourceLocation(NamedTuple):
    """A place in a catalogue.

    Attributes:
        file: The path as the command line gives it; for a shipped catalogue, its bare name.
        line: The line, from 1.
        column: The column, from 1; None if it is not known.
    """

    file: str
    line: int
    column: int | None = None


class Finding(NamedTuple):
    """Something to look at in a catalogue.

    Attributes:
        kind: The kind of finding: 'catalogue', 'example', 'made-up-graph' or 'equivalence'.
        severity: How bad it is.
        rule: The rule's name.
        message: The finding in one sentence.
        place: Where it is; None if that is not known.
    """

    kind: str
    severity: Severity
    rule: str
    message: str
    place: SourceLocation | None

    @property
    def line(self) -> Text:
        """The finding as a line of text."""
        place = "" if self.place is None else f"{self.place.file}:{self.place.line}"
        return tables.finding_line(place, self.severity, self.rule, self.message)


class Case(NamedTuple):
    """One thing that was tried, other than a comparison of an output.

    Attributes:
        group: The group of cases that it belongs to, such as a rule's name.
        name: What was tried.
        status: The result.
        message: Why it did not pass; "" if it did.
        model: The model that it was tried with; "" for none.
        seconds: How long it took, if that was measured by itself.
    """

    group: str
    name: str
    status: Status
    message: str = ""
    model: str = ""
    seconds: float = 0.0


class RuleUse(NamedTuple):
    """What became of one rule.

    Attributes:
        name: The rule.
        used: How often it was applied, or how many of its matches were outlined.
        refused: How often its pattern fits but the match was refused.
    """

    name: str
    used: int
    refused: int


class DrawnModel(NamedTuple):
    """A model whose graph a page shows. Nodes go by their scope and the name of the first output.

    Attributes:
        path: The file.
        marks: What is to be seen of nodes: 'added', 'removed', 'changed', 'outlined', 'differs',
            'first to differ', 'fits' or 'does not fit'.
        errors: How far what nodes make is from the original's, as a share of the tolerance.
    """

    path: Path
    marks: Mapping[NodeKey, str] = MappingProxyType({})
    errors: Mapping[NodeKey, float] = MappingProxyType({})


class DrawnPatterns(NamedTuple):
    """Patterns as trees, each with how far it got at a node.

    Their parts go by the place of the pattern and their own in it, as texts.

    Attributes:
        titles: The rules that they belong to.
        traces: The attempts.
    """

    titles: Sequence[str]
    traces: Sequence[MatchTrace]


class DrawnStep(NamedTuple):
    """One of the steps that lead from a graph to another, or that explain it.

    Attributes:
        title: Which one.
        text: What it did.
        nodes: For each graph the nodes that it is about.
    """

    title: str
    text: str
    nodes: tuple[Iterable[NodeKey], ...]


class Drawn(NamedTuple):
    """The graphs that a page shows, side by side.

    Attributes:
        models: None, one or two; the first may be patterns.
        pairs: Which nodes of the first are which of the second. Where nothing is said of two
            nodes, they are the same if they make values of one name.
        steps: What led from the one to the other, in order.
        note: What a reader should know about them.
        begins: Whether the page shows the first step at once: where something is wrong, say.
    """

    models: Sequence[DrawnModel | DrawnPatterns] = ()
    pairs: Iterable[tuple[NodeKey, NodeKey]] = ()
    steps: Iterable[DrawnStep] = ()
    note: str = ""
    begins: bool = False


def key_of(node: Node) -> NodeKey:
    """Return what a node goes by in pictures: its scope and the name of its first output."""
    output = next((value.name for value in node.outputs if value is not None), "")
    return scope_of(node.graph), output


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report before it takes a form: text, JSON, JUnit, SARIF, Markdown or a page.

    A command that offers only text and JSON leaves the fields of the other forms empty.

    Attributes:
        said: All that there is to say; or what makes that, or the most important of it: a function
            that takes ``verbose``.
        of: The outcome, which JSON is made of.
        ok: Whether the answer is yes.
        is_idle: Whether there is nothing to be glad or sorry about: no rule matches.
        complaints: Sentences for the user if the answer is no.
        command: What was run, such as 'dpl verify'.
        subject: What it was run on.
        verdict: The answer in a few words.
        failures: Reasons for a no that no output and no case gives, one sentence each.
        notes: What else a reader should know.
        facts: Names and values, each shown on a line of its own.
        verification: The numerical comparison; None if none was made.
        rules: What became of each rule that did anything.
        cases: What was tried, apart from the comparison.
        findings: What to look at in catalogues.
        layers: How the values on the way compare; None if they were not compared.
        draws: Tells which graphs a page shows.
        is_of_many: Whether it is about many models.
    """

    said: Part | Callable[..., Part] = field(default_factory=Text)
    of: object = None
    ok: bool = True
    is_idle: bool = False
    complaints: tuple[str, ...] = ()
    command: str = ""
    subject: str = ""
    verdict: str = ""
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    verification: VerificationResult | None = None
    rules: tuple[RuleUse, ...] = ()
    cases: tuple[Case, ...] = ()
    findings: tuple[Finding, ...] = ()
    layers: Layers | None = None
    draws: Callable[[], Drawn] = Drawn
    is_of_many: bool = False

    @property
    def model(self) -> str:
        """The model that it is about; "" for none, and for several."""
        is_about_one = not self.command.startswith("dpl patterns") and not self.is_of_many
        return self.subject if is_about_one else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is no, each reason once; where the result is says the rest."""
        said = dict.fromkeys((*self.complaints, *self.failures))
        return tuple(line for line in said if line != tables.NOTHING_WRITTEN)

    def text(self, *, verbose: bool = False) -> Part:
        """Return what a terminal shows; if *verbose*, all there is to say."""
        return self.said(verbose=verbose) if callable(self.said) else self.said

    def blocks(self) -> Iterator[Text | TextTable]:
        """Yield what files show: all there is to say, but no reason a second time."""
        told, whole = {Text(each).plain for each in self.reasons}, self.text(verbose=True)
        return (each for each in blocks_of(whole) if getattr(each, "plain", None) not in told)

    def json(self) -> dict[str, Any]:
        """Return the JSON that is written; `dplcli.report.schema` describes it."""
        return published(self.record())

    def __str__(self) -> str:
        """Return what the command prints."""
        return plain_text(self.text())

    def _repr_html_(self) -> str:
        return html_text(self.text())

    def record(self) -> dict[str, Any]:
        """Return what the JSON holds, which may be large."""
        return {} if self.of is None else parts_of(self.of)


def verification_document(
    subject: str,
    outcome: outcomes.VerifyOutcome,
    *,
    files: tuple[Path | None, Path | None] = (None, None),
) -> Document:
    """Report on two models that were compared.

    Args:
        subject: The names of the two files.
        outcome: The comparison.
        files: The two files, as far as they are models.
    """
    result, inside = outcome.verification, outcome.inside

    def said(*, verbose: bool) -> Part:
        note = [tables.note(outcome.layers)] if isinstance(outcome.layers, str) else []
        before = note if inside is None else [tables.layer_table(inside), Text()]
        found = tables.verification_report(result, verbose=verbose, with_outputs=True)
        return Group(*before, found, *map(tables.hint, outcome.hints))

    return Document(
        said=said,
        of=outcome,
        command="dpl verify",
        subject=subject,
        ok=result.accepted,
        verdict=equivalence(result),
        facts=power_facts(result),
        failures=(*result.objections, *result.doubts),
        notes=result.warnings,
        verification=result,
        cases=kernel_cases(result.kernels),
        layers=inside,
        draws=lambda: drawn_layers(files, inside),
    )


def kernel_cases(report: KernelReport | None) -> tuple[Case, ...]:
    """Return a case for each partition, if kernels were asked for: those not run are skipped."""
    if report is None:
        return ()
    group = f"partitions on {report.kernels.library}"
    return tuple(
        Case(group, item.call or item.function, "passed" if item.runs else "skipped", item.why)
        for item in report.partitions
    )


def drawn_layers(files: Sequence[Path | None], layers: Layers | None) -> Drawn:
    """Return two models that were compared, with how far values are apart and which differ."""
    if layers is None:
        return Drawn([DrawnModel(path) for path in files if path is not None])
    first, models, steps = layers.first, [], []
    for path, role in zip(files, ("original", "candidate"), strict=True):
        keys = [("main", getattr(each, role)) for each in layers.layers]
        errors = dict(zip(keys, map(_error, layers.layers), strict=True))
        judged = zip(keys, layers.layers, strict=True)
        marks = {key: "differs" for key, each in judged if not each.ok}
        if first is not None:
            marks["main", getattr(first, role)] = "first to differ"
        if path is not None:
            models.append(DrawnModel(path, marks, errors))
    if first is not None and len(models) > 1:
        what = f"{first.op_type} {first.original!r}, each model by itself"
        text = f"{what}: {first.comparison.reason}"
        nodes = ([("main", first.original)], [("main", first.candidate)])
        steps = [DrawnStep("first to differ", text, nodes)]
    pairs = [(("main", each.original), ("main", each.candidate)) for each in layers.layers]
    return Drawn(models, pairs, steps, begins=True)


_NO_MEASURE = 1e30
"""The error of what differs by more than numbers, as a number that JSON has."""


def _error(layer: Layer) -> float:
    share = tables.share_of_tolerance(layer.comparison)
    if share is None or not math.isfinite(share):
        return 0.0 if layer.ok else _NO_MEASURE
    return share


def result_document(  # noqa: PLR0913  # the forms, and what only some of them say
    command: str,
    outcome: Made,
    *,
    said: Part | Callable[..., Part],
    failures: Sequence[str],
    done: tuple[str, int],
    rules: Iterable[RuleUse] = (),
    findings: Iterable[Finding] = (),
    original: Path | None = None,
    steps: Callable[[], Iterable[DrawnStep]] = tuple,
    marks: tuple[str, str] = ("removed", "added"),
    counted: str = "nodes",
    is_dry: bool = False,
) -> Document:
    """Report on a model that was made from another.

    Args:
        command: What was run.
        outcome: What became of the model.
        said: All that there is to say, or what makes it.
        failures: Reasons for a no that the comparison does not give.
        counted: Which nodes are counted before and after.
        done: The name of what was done, and how often it was done.
        rules: How often each rule was used and refused.
        findings: What to look at in catalogues.
        original: The file of the model before.
        steps: Makes what led from it to the result.
        marks: What is to be seen of the nodes of steps, before and after; "" for nothing.
        is_dry: Whether nothing was to be written.
    """
    verification, ok = outcome.delivery.verification, outcome.is_success
    if verification is None:
        verdict = "Done, not verified" if ok else "Failed"
    else:
        verdict = equivalence(verification)
        if verification.equivalent and not ok:
            verdict = f"{verdict}, but not as asked"
    before, after = outcome.nodes
    counts = ((f"{counted} before", before), (f"{counted} after", after), done)
    notes, reasons, report = outcome.delivery.warnings, tuple[str, ...](), None
    if verification is not None:
        notes += verification.warnings
        reasons, report = verification.objections + verification.doubts, verification.kernels
    made = outcome.delivery.output or outcome.delivery.kept
    found = tuple(findings)

    def told(*, verbose: bool) -> Part:
        whole = said(verbose=verbose) if callable(said) else said
        return Group(*(each.line for each in found if verbose), whole)

    return Document(
        said=told,
        of=outcome,
        command=command,
        subject=outcome.label,
        ok=ok,
        complaints=(*failures, *([] if is_dry else [tables.whereabouts(outcome.delivery)])),
        verdict=verdict,
        failures=(*failures, *reasons),
        notes=(*outcome.notes, *notes),
        facts=(*((what, f"{n:,}") for what, n in counts), *power_facts(verification)),
        verification=verification,
        rules=tuple(rules),
        findings=found,
        cases=(*expectation_cases(getattr(outcome, "expected", ())), *kernel_cases(report)),
        draws=lambda: _before_and_after((original, made), steps(), marks),
    )


def _before_and_after(
    files: tuple[Path | None, Path | None], steps: Iterable[DrawnStep], marks: tuple[str, str]
) -> Drawn:
    """Return a model and what was made of it, unless that stands in its place."""
    original, made = files
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


def expectation_cases(expected: Iterable[JudgedExpectation]) -> tuple[Case, ...]:
    """Return a case for each expectation."""
    return tuple(
        Case("expectations", item.text, "passed" if item.is_met else "failed", str(item))
        for item in expected
    )


def findings_of(
    outcome: outcomes.MatchOutcome | outcomes.RewriteOutcome, catalogs: Iterable[Path | str]
) -> tuple[Finding, ...]:
    """Return each expectation that is not met, and the rule that breaks the model, if it is known.

    It is known if it was caught, or if no other was applied.

    Args:
        outcome: What was done, and how the result compares.
        catalogs: What was named on the command line.
    """
    origins = {rule.qualified_name: rule.origin for rule in outcome.rules}
    catalogs = tuple(catalogs)
    messages = [
        ("expectation", item.rule, f"{outcome.label}: {item}")
        for item in outcome.expected
        if not item.is_met
    ]
    broken = getattr(outcome, "broken", None)
    result = outcome.verification if isinstance(outcome, WrittenOutcome) else None
    reason, guilty = "the result is not equivalent to the original", []
    if broken is not None:
        reason, guilty = broken.reason, [broken.rule]
    elif result is not None and not result.equivalent:
        guilty = [rule for rule in origins if outcome.counts.get(rule)]
    if len(guilty) == 1 and guilty[0] in origins:
        message = f"the rule {guilty[0]} breaks the model: {reason}"
        messages.append(("equivalence", guilty[0], message))
    taken = outcome.taken_back if isinstance(outcome, WrittenOutcome) else ()
    told: list[tuple[Severity, str, str, str]] = [
        *(("error", *each) for each in messages),
        *(("warning", "equivalence", item.rule, f"taken back: {item}") for item in taken),
    ]
    return tuple(
        Finding(kind, severity, rule, message, read_place(origins.get(rule, ""), catalogs))
        for severity, kind, rule, message in told
    )


def equivalence(result: VerificationResult) -> str:
    """Return the verdict in a few words."""
    if not result.equivalent:
        return "NOT equivalent"
    if result.doubts:
        return "Cannot tell"
    if result.idle:
        return "Equivalent, but too few partitions ran on the library"
    if result.proof is not None and not result.outputs:
        return "Equivalent by proof, not run"
    return "Equivalent, by a check that is too weak" if result.is_weak else "Equivalent"


def power_facts(result: VerificationResult | None) -> tuple[tuple[str, str], ...]:
    """Return what is proved, and how many mutants the check caught, if that was measured."""
    if result is None:
        return ()
    facts = [("proved", str(result.proof))] if result.proof is not None else []
    if (report := result.kernels) is not None:
        ran = f"{report.ran:,} of {len(report.partitions):,}"
        facts.append((f"partitions on {report.kernels.library}", ran))
    if result.power is not None:
        facts.append(("mutants caught", f"{result.power.caught} of {result.power.of}"))
    return tuple(facts)


def rule_uses(counts: Mapping[str, int], refused: Iterable[Rejection]) -> tuple[RuleUse, ...]:
    """Return the rules that were applied or refused, in listed order."""
    refusals = Counter(item.rule.qualified_name for item in refused)
    return tuple(
        RuleUse(name, count, refusals[name])
        for name, count in counts.items()
        if count or refusals[name]
    )


def model_document(outcome: outcomes.InspectOutcome) -> Document:
    """Report on the contents of a model."""
    return Document(
        said=tables.model_report(outcome),
        of=outcome,
        command="dpl inspect",
        subject=outcome.label,
        facts=(("nodes", f"{outcome.total:,}"), ("functions", f"{len(outcome.functions):,}")),
    )


def nodes_document(nodes: Sequence[Node], label: str, said: Part | None = None) -> Document:
    """Report on nodes and their neighbours, or with *said* about them."""
    said = said or Group(*map(tables.node_report, nodes))
    return Document(said=said, of=NodesOutcome(label=label, nodes=tuple(map(NodeView, nodes))))


def list_document(model: Model, label: str) -> Document:
    """List all nodes of a model, graph by graph."""
    graphs = list(model.graphs())
    nodes = [node for graph in graphs for node in graph]
    return nodes_document(nodes, label, tables.node_table(nodes, has_scopes=len(graphs) > 1))


def versions() -> dict[str, str]:
    """Return the versions of dpl, of the packages that it runs on, and of Python."""
    packages = {name: version_of(name) for name in ("onnx", "onnxruntime", "numpy")}
    return {"dpl": __version__, **packages, "python": platform.python_version()}


@keys("versions *=found", "dpl.doctor/1")
class Doctor(NamedTuple):
    """What dpl runs on."""

    versions: Mapping[str, str]
    found: outcomes.Diagnosis


def diagnosis_document(found: outcomes.Diagnosis) -> Document:
    """Report on what dpl runs on."""
    others = Counter(found.catalogs.values())
    ours = others.pop("dpl", 0)
    told = [f"{ours} of dpl", *(f"{count} of {package}" for package, count in others.items())]
    extras = [
        f"{extra}: {'lacks ' + ', '.join(missing) if missing else 'installed'}"
        for extra, missing in found.missing.items()
    ]
    rows = [
        *versions().items(),
        ("system", found.system),
        ("providers", ", ".join(found.providers) or "none"),
        ("models run in", "a process of their own" if found.is_isolated else "the process of dpl"),
        ("catalogues", ", ".join(told)),
        *((name, _library(state)) for name, state in found.libraries.items()),
        *zip(("extra", *[""] * len(extras)), extras, strict=False),
    ]
    verdict = f"{counted(len(found.problems), 'problem')}." if found.problems else "No problems."
    lines = [Text(f"problem: {problem}", style="red") for problem in found.problems]
    said = Group(TextTable("", "", rows=rows), Text(), *lines, Text(verdict))
    return Document(said=said, ok=not found.problems, of=Doctor(versions(), found))


def _library(state: outcomes.LibraryState) -> str:
    if state.version:
        return ", ".join([state.version, state.path, *state.features])
    looked_for = f"not found; looked for {', '.join(state.looked_for)}"
    return "cannot be used" if state.problem else looked_for


# Findings: the rule that breaks a model, and the place where it is written.


_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+)(?::(?P<column>[0-9]+))?", re.DOTALL)


def read_place(text: str, catalogs: Iterable[Path | str]) -> SourceLocation | None:
    """Read ``rules.yaml:12`` or ``rules.yaml:12:5``; return None for any other text.

    Args:
        text: The bare name of a file, a line, and perhaps a column.
        catalogs: What the command line names. The file is one of these, or lies beside
            one that includes it. The file of a shipped catalogue keeps its bare name.
    """
    place = _PLACE.fullmatch(text)
    if place is None:
        return None
    name, line, column = place.groups()
    files = [path for path in map(Path, catalogs) if path.is_file()]
    candidates = [path for path in files if path.name == name]
    candidates += [path.parent / name for path in files]
    file = next((str(path) for path in candidates if path.is_file()), name)
    return SourceLocation(file, int(line), None if column is None else int(column))
