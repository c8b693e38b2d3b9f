"""What the reports on a rewrite read; the outcomes of the pipeline have it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.dpl import Rejection, RewriteRule
    from dplcli.dpl.plan import Plan
    from dplcli.passes.applications import Application
    from dplcli.passes.replay import Missing
    from dplcli.verify import VerificationResult


class Judged(Protocol):
    """What was said of a result, and where it is."""

    @property
    def objection(self) -> str:
        """What onnx.checker objects to."""

    @property
    def verification(self) -> VerificationResult | None:
        """The numerical check."""

    @property
    def output(self) -> Path | None:
        """The file written."""

    @property
    def kept(self) -> Path | None:
        """Where a failed result was kept."""


class Broken(Protocol):
    """The turn that broke a model."""

    @property
    def rule(self) -> str:
        """The rule's name."""

    @property
    def round(self) -> int:
        """The round."""

    @property
    def applications(self) -> tuple[Application, ...]:
        """What it did."""

    @property
    def reason(self) -> str:
        """What is wrong."""


class Rewritten(Protocol):
    """What a rewrite did."""

    @property
    def label(self) -> str:
        """The model's file name."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Applications by rule."""

    @property
    def untried(self) -> frozenset[str]:
        """The rules that were not to be tried."""

    @property
    def applications(self) -> tuple[Application, ...]:
        """What was done."""

    @property
    def rounds(self) -> int:
        """How many rounds changed something."""

    @property
    def refused(self) -> tuple[Rejection, ...]:
        """What was not replaced."""

    @property
    def ops(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Nodes by operator, before and after."""

    @property
    def size(self) -> tuple[int, int]:
        """Bytes before and after."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know."""

    @property
    def unmet(self) -> Sequence[str]:
        """Expectations that were not met."""

    @property
    def growth(self) -> str:
        """Why it grew too much."""

    @property
    def plan(self) -> Plan | None:
        """The plan that was applied."""

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Entries of the plan that did not fit."""

    @property
    def may_miss(self) -> bool:
        """Whether such entries are left out."""

    @property
    def broken(self) -> Broken | None:
        """The turn that broke the model."""

    @property
    def verdict(self) -> Judged:
        """What is said of the result."""

    @property
    def rules(self) -> tuple[RewriteRule, ...]:
        """The rules, in listed order."""

    @property
    def is_changed(self) -> bool:
        """Whether anything was done."""

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes."""

    @property
    def is_dry(self) -> bool:
        """Whether nothing was to be written."""

    @property
    def is_stopped(self) -> bool:
        """Whether a limit ended it."""
