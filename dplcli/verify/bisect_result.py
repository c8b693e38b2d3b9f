"""What a bisection answers: frozen values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.verify.layer_result import Layer, Layers
    from dplcli.verify.result import OutputComparison, VerificationResult


@dataclass(frozen=True)
class Step:
    """One application of a rule, or one partition.

    Attributes:
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.scopes.scope_of` names it.
        op_type: Operator of the node that the match is rooted in.
        output: Name of that node's first output.
        covered: Names of what the nodes make that it takes out.
        text: What became of which nodes, for a reader.
    """

    rule: str
    scope: str
    op_type: str
    output: str
    covered: tuple[str, ...] = ()
    text: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Which rule it is of, and where."""
        return self.rule, self.scope, self.op_type, self.output

    @property
    def label(self) -> str:
        """Name it: ``fuse.add at Relu 'y'``."""
        where = "" if self.scope == "main" else f" in {self.scope}"
        return f"{self.rule} at {self.op_type} {self.output!r}{where}"


@dataclass(frozen=True)
class Trial:
    """What came of some of the steps.

    Attributes:
        applied: The steps that fitted.
        reason: What is wrong with the result, in one line; "" if nothing is.
        levels: At which optimisation levels it is wrong.
        seed: For which seed it is worst.
    """

    applied: tuple[Step, ...]
    reason: str = ""
    levels: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Cause:
    """Steps that together break the model, and of which none can be left out.

    Attributes:
        culprits: The steps that do it.
        needed: Steps that they build on: without them there is nothing to apply them to.
        trial: What is wrong with these steps alone.
        alike: How many steps of the culprits' rules there are in all.
        reproducer: The folder with a small model that shows it; None if none was written.
        nodes: How many nodes that model has, and the model had; (0, 0) if none was written.
        is_hidden: Whether a reproducer was wanted, but nothing shows the fault outside of a
            verification of the whole.
    """

    culprits: tuple[Step, ...]
    needed: tuple[Step, ...]
    trial: Trial
    alike: int
    reproducer: Path | None = None
    nodes: tuple[int, int] = (0, 0)
    is_hidden: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them, in order."""
        return (*self.needed, *self.culprits)


@dataclass(frozen=True)
class BisectOutcome:
    """What was found about rules applied to a model.

    Attributes:
        label: The model's file name.
        kind: ``rewrite`` or ``partition``.
        steps: What the rules do, in order.
        causes: What breaks the model; empty if nothing does.
        unjudged: Steps that were not looked at: they build on steps of a rule found wrong.
        is_complete: Whether what is left, causes set aside, was seen to be equivalent.
        trials: How many parts were compared with the original.
    """

    label: str
    kind: str
    steps: tuple[Step, ...]
    causes: tuple[Cause, ...] = ()
    unjudged: tuple[Step, ...] = ()
    is_complete: bool = True
    trials: int = 0

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing is wrong."""
        return not self.causes


@dataclass(frozen=True)
class Reproduced:
    """What came of running a reproducer.

    Attributes:
        label: Name of the folder.
        reason: Why there is nothing to compare; or "".
        outputs: How the outputs compare.
        fitted: Whether all of its steps could be applied.
    """

    label: str
    reason: str = ""
    outputs: tuple[OutputComparison, ...] = ()
    fitted: bool = True

    @property
    def differs(self) -> bool:
        """Whether it still shows the fault."""
        return bool(self.reason) or any(not output.ok for output in self.outputs)


@dataclass(frozen=True)
class Place:
    """Where one model leaves another.

    Attributes:
        layer: The first value that differs though all that flows into it agrees.
        original: The nodes of the original that compute it from there.
        candidate: The nodes of the candidate that do.
        level: Optimisation level at which the candidate ran.
        reproducer: The folder with both parts; None if none was written.
        total: How many nodes the models have.
    """

    layer: Layer
    original: tuple[str, ...]
    candidate: tuple[str, ...]
    level: str
    reproducer: Path | None = None
    total: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ModelsOutcome:
    """What was found about two models.

    Attributes:
        labels: The models' file names.
        verification: The verdict on both as a whole.
        layers: How they compare inside; None if that was not looked at.
        place: Where they part; None if they do not, or no place was found.
        remark: Why no place was found; "" if one was, or nothing was looked for.
    """

    labels: tuple[str, str]
    verification: VerificationResult
    layers: Layers | None = None
    place: Place | None = None
    remark: str = ""

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing is wrong."""
        return self.verification.equivalent
