"""A report before it takes a form: the verdict, the reasons for it, and what to look at."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dplcli.ir.model import scope_of
from dplcli.keys import keys
from dplcli.outcomes.written import NOTHING_WRITTEN
from dplcli.report.json import parts_of, published
from dplcli.report.layout import Text, TextTable, blocks_of, html_text, plain_text
from dplcli.report.tables import finding_line
from dplcli.version import __version__, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Node
    from dplcli.language.explain import MatchTrace
    from dplcli.report.layout import Part
    from dplcli.report.tables import RuleUse
    from dplcli.verify import VerificationResult
    from dplcli.verify.layers import Layers

    Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]

    Severity: TypeAlias = Literal["error", "warning", "note"]

    NodeKey: TypeAlias = tuple[str, str]


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
        return finding_line(place, self.severity, self.rule, self.message)


@keys(columns="model what=name why=first:prose")
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

    @property
    def first(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


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
        about: What *subject* is.
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
    about: Literal["model", "models", "rules"] = "model"

    @property
    def model(self) -> str:
        """The model that it is about; "" for none, and for several."""
        return self.subject if self.about == "model" else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is no, each reason once; where the result is says the rest."""
        said = dict.fromkeys((*self.complaints, *self.failures))
        return tuple(line for line in said if line != NOTHING_WRITTEN)

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


def versions() -> dict[str, str]:
    """Return the versions of dpl, of the packages that it runs on, and of Python."""
    packages = {name: version_of(name) for name in ("onnx", "onnxruntime", "numpy")}
    return {"dpl": __version__, **packages, "python": platform.python_version()}


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
