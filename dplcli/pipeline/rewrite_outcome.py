"""What a rewrite is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dplcli.pipeline.writing import Verdict, WriteSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.dpl import Rejection, RewriteRule
    from dplcli.dpl.plan import Plan
    from dplcli.passes.applications import Application
    from dplcli.passes.replay import Missing
    from dplcli.pipeline.steps import BrokenTurn


@dataclass(frozen=True)
class RewriteSettings(WriteSettings):
    """How :func:`rewrite` should go about it.

    Attributes:
        only: If not empty, nothing else is tried: rules, as RULE, RULE@NODE or @NODE.
        skip: What is not tried, likewise.
        limit: After so many applications no more is done; None for no limit.
        verify_each: Whether to check the model after every turn of a rule that changed it.
        max_growth: By how many percent the model may grow, its external data included; None for
            5 percent, and 16 kB in any case.
        dry_run: Whether neither to write nor to verify anything.
        plan: Where to write a plan that does the same again; None for nowhere.
        opset: The opset to raise the model to before anything is matched; None for its own. What
            comes out is compared with the model as it was.
    """

    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    limit: int | None = None
    verify_each: bool = False
    max_growth: float | None = None
    dry_run: bool = False
    plan: Path | None = None
    opset: int | None = None


@dataclass(frozen=True)
class RewriteOutcome:
    """What :func:`rewrite` or :func:`apply_plan` did.

    Attributes:
        label: The model's file name.
        rules: The rules, in listed order.
        counts: How often each rule was applied.
        untried: Names of the rules that were not to be tried.
        applications: What was done, in order.
        rounds: How many rounds changed something.
        refused: Matches that were not replaced, at nodes that are still there.
        ops: Nodes of every graph by operator, before and after.
        size: Bytes of the model and its external data, before and after.
        is_changed: Whether the result differs from the model at all.
        notes: What a reader should know about the model and the run.
        unmet: The expectations that were not met, each with what was found.
        growth: Why the model grew too much, or "".
        plan: The plan that was applied; None for none.
        missing: The entries of the plan that did not fit.
        broken: The turn that broke the model, if each was checked and one did.
        verdict: What is said of the result, and where it is.
        is_dry: Whether nothing was to be written.
        is_stopped: Whether a limit ended it.
        may_miss: Whether entries of a plan that do not fit are left out.
    """

    label: str
    rules: tuple[RewriteRule, ...]
    counts: Mapping[str, int]
    applications: tuple[Application, ...]
    rounds: int
    refused: tuple[Rejection, ...]
    ops: tuple[Mapping[str, int], Mapping[str, int]]
    size: tuple[int, int]
    is_changed: bool
    untried: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    growth: str = ""
    plan: Plan | None = None
    missing: tuple[Missing, ...] = ()
    broken: BrokenTurn | None = None
    verdict: Verdict = field(default_factory=Verdict)
    is_dry: bool = False
    is_stopped: bool = False
    may_miss: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether it is what was asked for, whatever a check says of it."""
        fits = self.may_miss or not self.missing
        return fits and self.broken is None and not self.unmet and not self.growth

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        return self.is_wanted and self.verdict.is_sound
