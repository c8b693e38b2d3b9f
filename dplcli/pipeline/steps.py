"""Checking a rewrite after every turn of a rule, so that the one that breaks it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import InvalidGraphError
from dplcli.ir.verifier import verify_model
from dplcli.onnx_io import is_modified, staged
from dplcli.passes.observer import RewriteObserver
from dplcli.pipeline.writing import Verdict, check_result

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.dpl import RewriteRule
    from dplcli.ir import Model
    from dplcli.passes.applications import Application
    from dplcli.pipeline.writing import Progress
    from dplcli.verify import Settings as VerifySettings


class BrokenTurn(NamedTuple):
    """The first turn after which the model is not what it was.

    Attributes:
        rule: The rule's name; "" if the model was broken before any rule had a turn.
        round: The round.
        applications: What the rule did in it.
        reason: What is wrong.
        verdict: What was said of the result.
    """

    rule: str
    round: int
    applications: tuple[Application, ...]
    reason: str
    verdict: Verdict


class StepVerifier(RewriteObserver):
    """Compares the model with the original after every turn, and ends the rewrite if it differs.

    Args:
        model: The model that is being edited.
        original: The file it was loaded from.
        output: Where the result will be; what is checked is written beside it, and taken away.
        verification: How to compare.
        say: Told of each step.

    Attributes:
        broken: The turn that broke the model; None as long as none has.
        verdict: The verdict on the last turn.
    """

    def __init__(
        self,
        model: Model,
        original: Path,
        output: Path,
        verification: VerifySettings | None,
        say: Progress,
    ) -> None:
        """Check nothing yet; see :meth:`begin`."""
        self.model = model
        self.original = original
        self.output = output
        self.verification = verification
        self.say = say
        self.broken: BrokenTurn | None = None
        self.verdict = Verdict()
        self._round = 0
        self._applications: list[Application] = []

    @property
    def is_over(self) -> bool:
        """Whether a turn has broken the model."""
        return self.broken is not None

    def begin(self) -> None:
        """Check the model if it was changed before any rule had a turn."""
        if not is_modified(self.model):
            return
        reason = self._objection()
        if reason:
            self.broken = BrokenTurn("", 0, (), reason, self.verdict)

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Begin to list what the turn does."""
        del rule, candidates
        self._round = number
        self._applications = []

    def applied(self, application: Application) -> None:
        """List an application."""
        self._applications.append(application)

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """Check the model if it was changed."""
        if not count:
            return
        name = rule.qualified_name
        times = "once" if count == 1 else f"{count:,} times"
        self.say(f"round {self._round}: {name} was applied {times}")
        reason = self._objection()
        if reason:
            done = tuple(self._applications)
            self.broken = BrokenTurn(name, self._round, done, reason, self.verdict)

    def _objection(self) -> str:
        try:
            verify_model(self.model)
        except InvalidGraphError as error:
            return f"the graph is broken: {error.message}"
        with staged(self.model, self.output) as written:
            self.verdict = check_result(self.original, written.path, self.verification, self.say)
        if self.verdict.objection:
            return f"onnx.checker refuses the result: {self.verdict.objection}"
        return "" if self.verdict.is_sound else "the result is not equivalent to the original"
