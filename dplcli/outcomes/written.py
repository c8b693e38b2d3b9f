"""What became of a model that was made from another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from dplcli.errors import some_of
from dplcli.keys import keys
from dplcli.outcomes.base import StoredOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dplcli.outcomes.base import Counts
    from dplcli.passes.inline import Inlining
    from dplcli.verify import VerificationResult


NOTHING_WRITTEN = "nothing was written"


@keys("objection verification stripped? external_data=data? fault?")
@dataclass(frozen=True)
class Delivery:
    """Whether a result is sound, and where it was written.

    Attributes:
        objection: What onnx.checker says of it though it accepts the original, or "".
        verification: The numerical check; None if it was not made.
        output: The file written; None if nothing was, because the answer is no.
        kept: Where a failed result was kept for a look.
        size: How many bytes the file has, external data apart.
        data: How many bytes of external data were put into a file of its own; None if all lie
            where the model had them.
        used: How many bytes of external data it uses, wherever they lie.
        unused: How many more bytes the files have in which those lie.
        stripped: How many bytes each kind took that was left out, as asked.
        fault: What onnx says against a model that was not changed, or "".
        linked: The model's own data files that have a second name now.
    """

    objection: str = ""
    verification: VerificationResult | None = None
    output: Path | None = None
    kept: Path | None = None
    size: int = 0
    data: int | None = None
    used: int = 0
    unused: int = 0
    stripped: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""
    linked: tuple[Path, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know, beside what the check of numbers has to say."""
        said = (f"onnx objects to the model: {self.fault}",) if self.fault else ()
        if not self.linked:
            return said
        named = some_of([path.name for path in self.linked])
        refused = "onnx refuses that, in the result and in the model itself, until one is removed"
        copied = "onnxruntime reads both (--external-data copy makes a copy)"
        return (*said, f"{named} has two names now: {refused}; {copied}")

    @property
    def complaint(self) -> str:
        """Why the result is not sound; "" if it is."""
        if self.objection:
            return f"onnx.checker refuses the result: {self.objection}"
        return "" if self.verification is None else self.verification.complaint

    @property
    def failures(self) -> list[str]:
        """The same, with what to do; none if it is sound."""
        mend = "; mend the rule that made this, which dpl bisect finds" if self.objection else ""
        return [f"{self.complaint}{mend}"] if self.complaint else []

    @property
    def is_sound(self) -> bool:
        """Whether the result is valid, and equivalent as far as checked."""
        equivalent = self.verification is None or self.verification.accepted
        return equivalent and not self.objection


@keys("rule node reason", columns="taken_back=rule where reason:prose")
class TakenBack(NamedTuple):
    """What was done, and left out again because the check said no.

    Attributes:
        rule: The rule, or what else was done.
        node: Where; "" for everywhere.
        reason: What the check said.
    """

    rule: str
    node: str
    reason: str

    def __str__(self) -> str:
        """Say what was taken back, and why."""
        where = f"at {self.node!r}" if self.node else "everywhere"
        return f"{self.rule} {where}: {self.reason}"

    @property
    def where(self) -> str:
        """The node, or that it is everywhere."""
        return self.node or "everywhere"


_MOST_NAMED = 10


def _figures(what: str, nodes: tuple[int, int], done: tuple[str, int]) -> Counts:
    before, after = nodes
    return (f"{what} before", before), (f"{what} after", after), done


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WrittenOutcome(StoredOutcome):
    """A model that was made from another.

    Attributes:
        delivery: What is said of the result, and where it is.
        is_verified: Whether a check was asked for.
        taken_back: What failed the check and was left out of the result.
    """

    delivery: Delivery = Delivery()
    is_verified: bool = False
    taken_back: tuple[TakenBack, ...] = ()

    @property
    def path(self) -> Path | None:
        """Where it was written; None for nowhere."""
        return self.delivery.output

    @property
    def verification(self) -> VerificationResult | None:
        """The numerical check; None if it was not made."""
        return self.delivery.verification

    @property
    def verdict(self) -> Literal["equivalent", "different", "inconclusive", "unverified"]:
        """Whether it computes what the model does."""
        if self.verification is not None:
            return self.verification.answer
        is_same = self.is_verified and self._stored is not None
        return "equivalent" if is_same else "unverified"  # what was not changed needs no check

    @property
    def equivalent(self) -> bool:
        """Whether the check says so."""
        return self.verdict == "equivalent"

    @property
    def ok(self) -> bool:
        """Whether the answer is yes: valid, and equivalent as far as checked."""
        return self.delivery.is_sound

    @property
    def failures(self) -> list[str]:
        """Reasons for a no that the comparison does not give, a sentence each."""
        return self.delivery.failures

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why the answer is no, and where a result that failed is."""
        kept = self.delivery.kept
        return (*self.failures, NOTHING_WRITTEN if kept is None else f"kept as {kept}")


@keys(
    "model=label counts calls=inlining.calls refused=inlining.refused removed=inlining.removed "
    "nodes.before=nodes.0 nodes.after=nodes.1 *=delivery taken_back?",
    "dpl.inline/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InlineOutcome(WrittenOutcome):
    """Which functions were put in the place of their calls.

    Attributes:
        inlining: The calls replaced, those that stay, and the functions removed.
        nodes: Nodes of the main graph before and after, but for Constants.
        functions: How many functions the model had.
        is_sorted: Whether the nodes had to be brought into topological order.
    """

    inlining: Inlining
    nodes: tuple[int, int]
    functions: int
    is_sorted: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """How many calls of each function were replaced, functions without any included."""
        names = {function.qualified_name: 0 for function in self.inlining.functions}
        return names | Counter(item.function.qualified_name for item in self.inlining.calls)

    @property
    def figures(self) -> Counts:
        """How many nodes there were and are, and what was done."""
        done = ("calls inlined", len(self.inlining.calls))
        return _figures("nodes of the main graph", self.nodes, done)

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        return self.is_sorted or bool(self.inlining.calls or self.inlining.removed)


@keys(
    "model=label inputs outputs weights operators data notes nodes.before=nodes.0 "
    "nodes.after=nodes.1",
    "dpl.extract/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExtractOutcome(WrittenOutcome):
    """A part that was cut out of a model.

    Attributes:
        inputs: What it is given, those that were named first.
        outputs: What it returns.
        nodes: Nodes of the main graph of the model, and of the part.
        weights: How many initializers it has.
        operators: How many of its nodes have which operator, the most frequent first.
        data: Bytes of its external data.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, int]
    weights: int
    operators: Mapping[str, int]
    data: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes each operator has in it, in its main graph."""
        return dict(self.operators)

    @property
    def figures(self) -> Counts:
        """How many nodes the model and the part have."""
        return _figures("nodes", self.nodes, ("nodes taken", self.nodes[1]))
