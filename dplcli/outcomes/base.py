"""What every answer of a job has: frozen values, for programs to read and for reports to show."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from dplcli.errors import VerificationError
from dplcli.escaping import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import TypeAlias

    from onnx import ModelProto

    Counts: TypeAlias = tuple[tuple[str, int], ...]
    """What is counted, and how often."""


class Report(Protocol):
    """What is told of an outcome, before it takes a form."""

    @property
    def subject(self) -> str:
        """What it is about."""

    @property
    def verdict(self) -> str:
        """The answer in a few words."""

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no."""

    def json(self) -> Mapping[str, Any]:
        """Return what the command writes for ``--json``."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""


class Stored(Protocol):
    """A model: its file, or what is in it."""

    @property
    def place(self) -> Path | bytes:
        """Its file, or its bytes."""

    def proto(self) -> ModelProto:
        """Return a new message, external data loaded."""

    def save(self, path: Path) -> None:
        """Write it, and its external data beside it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What a job answers. Printed, it is what the command prints; notebooks show the same."""

    _report: Callable[[], Report] | None = None

    def answered(self, report: Callable[[], Report]) -> Self:
        """Return the same outcome with what makes its report."""
        return replace(self, _report=report)

    def document(self) -> Report:
        """Return the report, from which all forms are made.

        Raises:
            LookupError: It is no answer of the functions of dpl, which know how to report it.
        """
        if self._report is None:
            raise LookupError("only what the functions of dpl answer has a report")
        return self._report()

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, a sentence each."""
        return ()

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: the command's exit code is 0."""
        return not self.complaints

    def to_json(self) -> dict[str, Any]:
        """Return what the command writes for ``--json``."""
        record: dict[str, Any] = json.loads(json_text(self.document().json()))
        return record

    def __repr__(self) -> str:
        if self._report is None:
            return object.__repr__(self)
        told = self.document()
        subject, verdict = f" of {told.subject}" * bool(told.subject), told.verdict
        return f"<{type(self).__name__}{subject}{f': {verdict}' * bool(verdict)}>"

    def __str__(self) -> str:
        return repr(self) if self._report is None else str(self.document())

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()  # the name that notebooks know


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelOutcome(Outcome):
    """The model that a job worked on.

    Attributes:
        label: The model's file name.
        notes: What a reader should know about it and the run.
        hints: What would let rules do more, if that was asked for.
    """

    label: str
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredOutcome(ModelOutcome):
    """An answer that is a model; functions take it as they take a path."""

    _stored: Stored | None = None

    def answered(self, report: Callable[[], Report], stored: Stored | None = None) -> Self:
        """Return the same outcome with what makes its report, and the model."""
        return replace(self, _report=report, _stored=stored)

    @property
    def stored(self) -> Stored:
        """Where the model is.

        Raises:
            VerificationError: There is none, because the answer is no.
        """
        if self._stored is None:
            reasons = "; ".join(self.complaints)
            raise VerificationError(f"there is no result: {reasons}")
        return self._stored

    @property
    def model(self) -> ModelProto:
        """The model as a new message, external data loaded.

        Raises:
            VerificationError: There is none, because the answer is no.
        """
        return self.stored.proto()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, and its external data beside it."""
        self.stored.save(Path(path))


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """What a command said of one of many models: plain data, which travels between processes.

    Attributes:
        label: The model, as it is named.
        status: Whether the answer is yes or no, or there is none.
        verdict: The answer in a few words.
        messages: Why the answer is no, or why there is none.
        hint: What to do about it.
        notes: What else a reader should know.
        figures: Names and numbers, of which a summary has a column each.
        rules: Name, matches or applications, and refusals of each rule that did anything.
        cases: What was tried: group, name, status and message.
        record: The report as JSON, if that is wanted.
        lines: What the command would print, if that is wanted.
        files: What was written, each with the hash of its content.
        seconds: How long it took.
    """

    label: str
    status: Literal["yes", "no", "error"]
    verdict: str = ""
    messages: Sequence[str] = ()
    hint: str = ""
    notes: Sequence[str] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[tuple[str, int, int]] = ()
    cases: Sequence[tuple[str, str, Literal["passed", "failed", "error", "skipped"], str]] = ()
    record: Mapping[str, Any] | None = None
    lines: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
