"""Keep what holds: where the check says no, take back what fails, and write the rest.

A rewrite, a partition or an inlining is made of steps, each at one place. If the result does not
pass its check, the steps at the places that fail are left out, and all is done again without them:
what they would have changed stays as it was, as if --skip had named them.

The check names places (:mod:`dplcli.verify.places`). Where several steps lead to one, or where it
names none, as when onnxruntime does not load the result, the first step that makes it fail is found
by halving. A rule that fails three times is left out everywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from dplcli.errors import VerificationError
from dplcli.ir.traversal import captured_values
from dplcli.onnx_io import load_model
from dplcli.outcomes.written import TakenBack, WrittenOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dplcli.ir import Model, Value
    from dplcli.outcomes.written import Delivery
    from dplcli.pipeline.writing import WriteJob
    from dplcli.verify.verdict import Junction

_MOST_FAILURES = 3
"""How often a rule may fail before it is left out everywhere."""

_MOST_ROUNDS = 12
"""How often steps are taken back before the result is refused as a whole."""

_MOST_SOUGHT = 4
"""How often a step is sought by halving where no place names it."""

FAILED = "with it, the result failed its check"
"""Why something that was taken back is refused."""

Outcome = TypeVar("Outcome", bound=WrittenOutcome)

Key: TypeAlias = tuple[str, str]
"""What a step is left out by: a rule, and a node."""


class Undoable(NamedTuple):
    """What was done at one place, and can be left out.

    Attributes:
        rule: The rule, or another name of what is done.
        node: Where, by a name that says so in the original or after other steps.
        values: The names of the values that it took away or made.
    """

    rule: str
    node: str
    values: frozenset[str]

    @property
    def key(self) -> Key:
        """What it is left out by."""
        return self.rule, self.node


Left: TypeAlias = frozenset[Key]
"""What is left out: a rule at a node, or a rule everywhere, at ""."""


def is_left_out(rule: str, node: str, left: Collection[Key]) -> bool:
    """Tell whether a rule is not to be applied at a node."""
    return (rule, node) in left or (rule, "") in left


def names_of(values: Iterable[Value]) -> frozenset[str]:
    """Return the names of values."""
    return frozenset(value.name for value in values)


@dataclass(frozen=True)
class Attempt(Generic[Outcome]):
    """A model that was edited.

    Attributes:
        model: It.
        outcome: What was done, before anything is checked or written.
        steps: The same, as what can be left out, in order.
    """

    model: Model
    outcome: Outcome
    steps: Sequence[Undoable]


Made = TypeVar("Made", bound=Attempt[Any])


def keep_what_holds(
    job: WriteJob, make: Callable[[Left], Made], finish: Callable[[Made], Outcome]
) -> Outcome:
    """Edit a model and write it; where the check says no, take back what fails.

    Args:
        job: The job.
        make: Edits the model anew, but for what is left out.
        finish: Checks a result, and writes it if it is sound.

    Returns:
        What *finish* said last; of a result that stays unsound, what it said first.
    """
    search = _Search(job, make)
    attempt = make(frozenset())
    first = outcome = finish(attempt)
    job.failed = None  # what is kept is the result with all that was done
    while search.may_help(attempt, outcome.delivery):
        search.take_back(attempt, outcome.delivery)
        attempt = make(search.left)
        outcome = finish(attempt)
    if not outcome.delivery.is_sound:
        return first
    delivery = replace(outcome.delivery, kept=first.delivery.kept)
    return replace(outcome, delivery=delivery, taken_back=tuple(search.taken.values()))


class _Search:
    """Finds the steps that make a result fail.

    Attributes:
        taken: What was taken back, and why.
    """

    def __init__(self, job: WriteJob, make: Callable[[Left], Attempt[Any]]) -> None:
        self._job, self._make = job, make
        self._sought: list[str] = []  # the rules that were found where no place said where to look
        self._rounds = self._trials = 0
        self.taken: dict[Key, TakenBack] = {}

    @property
    def left(self) -> Left:
        """What is left out."""
        return frozenset(self.taken)

    def may_help(self, attempt: Attempt[Any], delivery: Delivery) -> bool:
        """Tell whether leaving something out may make a result sound."""
        is_over = self._rounds >= _MOST_ROUNDS or not self._job.takes_back
        if delivery.is_sound or is_over or not attempt.steps:
            return False
        if _places(delivery):
            return True
        # A check that is too weak, or blind, is that whatever is left out.
        verification = delivery.verification
        says_no = verification is None or verification.verdict == "different"
        return says_no and len(self._sought) < _MOST_SOUGHT

    def take_back(self, attempt: Attempt[Any], delivery: Delivery) -> None:
        """Note what is to be left out, and why."""
        self._rounds += 1
        reason = _reason(delivery)
        found: dict[Undoable, str] = {}
        for place in _places(delivery):
            steps = self._leading_to(place, attempt)
            if not steps or not found.keys().isdisjoint(steps):
                continue
            guilty = {step.rule for step in found}
            again = [step for step in steps if step.rule in guilty]
            for step in again or [self._first_of(attempt, steps)]:
                found[step] = place.why or reason
        if not found:
            step = self._first_of(attempt, attempt.steps)
            self._sought.append(step.rule)
            found[step] = reason
        self._note(found)

    @cached_property
    def _original(self) -> Model:
        return load_model(self._job.path)

    def _leading_to(self, place: Junction, attempt: Attempt[Any]) -> list[Undoable]:
        """Return the steps that changed what lies between a place and the values before it."""
        ours = _made_between(self._original, place.original, place.agreed.keys())
        theirs = _made_between(attempt.model, place.candidate, {*place.agreed.values()})
        names = ours | theirs
        return [step for step in attempt.steps if not step.values.isdisjoint(names)]

    def _first_of(self, attempt: Attempt[Any], suspects: Sequence[Undoable]) -> Undoable:
        """Return the first of some steps with which a result fails, those after it left out.

        In all there are as many trials as it takes to find two of them among all steps; then it is
        the last one.
        """
        sound, unsound = 0, len(suspects)
        most = 2 * len(attempt.steps).bit_length()
        while unsound - sound > 1 and self._trials < most:
            middle = (sound + unsound) // 2
            self._trials += 1
            self._job.say(f"trying {middle:,} of {len(suspects):,} steps")
            others = {step.key for step in suspects[middle:]}
            if self._is_sound(self._make(self.left | others)):
                sound = middle
            else:
                unsound = middle
        return suspects[unsound - 1]

    def _is_sound(self, attempt: Attempt[Any]) -> bool:
        try:
            return not self._job.try_out(attempt.model)[0]
        except VerificationError:  # no verdict is no yes
            return False

    def _note(self, found: Mapping[Undoable, str]) -> None:
        for step, reason in found.items():
            self.taken[step.key] = TakenBack(step.rule, step.node, reason)
        failures = Counter(rule for rule, _ in self.taken)
        for rule, count in failures.items():
            if count >= _MOST_FAILURES or self._sought.count(rule) > 1:
                alike = [key for key in self.taken if key[0] == rule]
                reasons = [self.taken.pop(key).reason for key in alike]
                self.taken[rule, ""] = TakenBack(rule, "", reasons[0])


def _places(delivery: Delivery) -> tuple[Junction, ...]:
    regions = None if delivery.verification is None else delivery.verification.regions
    return () if regions is None else regions.places


def _reason(delivery: Delivery) -> str:
    """Say what the check objects to first."""
    objections = () if delivery.verification is None else delivery.verification.objections
    return next(iter(objections), delivery.complaint)


def _made_between(model: Model, end: str, agreed: Collection[str]) -> set[str]:
    """Return the names of values of the main graph from which an end follows, back to some."""
    names = {end}
    pending: list[Value | None] = [model.graph.values.get(end)]
    while pending:
        value = pending.pop()
        node = None if value is None else value.producer
        if node is None:
            continue
        names.update(made.name for made in node.made)
        for body in node.subgraphs.values():
            names.update(name for graph in body.and_inner() for name in graph.values)
        for read in (*node.read, *captured_values(node)):
            if read.name not in names:
                names.add(read.name)
                pending += [] if read.name in agreed else [read]
    return names
