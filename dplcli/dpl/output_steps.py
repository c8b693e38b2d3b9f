"""Steps for patterns of several outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.logic_steps import EachStep
from dplcli.dpl.steps import Step
from dplcli.ir.traversal import behind_identities, is_identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.pattern import OutputsPattern
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Graph, Node, Value


class Anchor(NamedTuple):
    """A part that two outputs share, and how many edges it lies above the second one."""

    step: Step
    distance: int


class OutputsStep(Step):
    """Several outputs: the first at the root, each other one below something they share.

    Args:
        pattern: The pattern compiled.
        outputs: One step per output.
        slots: Where the values of the outputs are bound.
        anchors: For each output, what it may share with those before it.
    """

    __slots__ = ("anchors", "outputs", "slots")

    def __init__(
        self,
        pattern: OutputsPattern,
        outputs: Sequence[Step],
        slots: Sequence[int],
        anchors: Sequence[Sequence[Anchor]],
    ) -> None:
        """Find the outputs in order."""
        super().__init__(pattern)
        self.outputs = outputs
        self.slots = slots
        self.anchors = anchors
        self.heads = outputs[0].heads
        self.required = frozenset().union(*(step.required for step in outputs))

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the first output."""
        return self.match_one(state, 0, value, rest)

    def match_one(self, state: State, number: int, value: Value | None, rest: Goals) -> Outcome:
        """Match one output, then look for the next."""
        if value is None:
            return False
        state.bind(self.slots[number], behind_identities(value))
        if number + 1 < len(self.outputs):
            rest = (_NextOutput(self, number + 1), None, rest)
        return (self.outputs[number], value, rest)

    def candidates(self, state: State, number: int) -> Iterator[Value]:
        """Yield the values that output *number* may be, in program order."""
        for step, distance in self.anchors[number]:
            values = step.bound_values_in(state.slots)
            if values:
                yield from _below(values, distance, state)
                return
        for node in state.graph:
            yield from (output for output in node.outputs if output is not None)


class _NextOutput(Step):
    __slots__ = ("number", "whole")

    def __init__(self, whole: OutputsStep, number: int) -> None:
        super().__init__(whole.outputs[number].pattern)
        self.whole = whole
        self.number = number

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        step = self.whole.outputs[self.number]
        ways = (
            (_OneOutput(self.whole, self.number), candidate, rest)
            for candidate in self.whole.candidates(state, self.number)
            if step.is_plausible(candidate) and candidate.producer not in state.taken
        )
        return EachStep(self, ways).run(state, None, None)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        return f"the output {self.pattern!r}", "no value that could be it"


class _OneOutput(Step):
    __slots__ = ("number", "whole")

    def __init__(self, whole: OutputsStep, number: int) -> None:
        super().__init__(whole.outputs[number].pattern)
        self.whole = whole
        self.number = number

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        return self.whole.match_one(state, self.number, value, rest)


def _below(values: Sequence[Value], distance: int, state: State) -> list[Value]:
    """Return what is made from *values* in *distance* steps, Identity nodes not counted."""
    level = list(values)
    for _ in range(distance):
        readers = _readers(level, state.graph)
        state.charge(len(readers))
        level = [out for node in readers for out in node.outputs if out is not None]
    return level


def _readers(values: Sequence[Value], graph: Graph) -> list[Node]:
    pending = list(values)
    found: dict[Node, None] = {}
    while pending:
        for user, _ in pending.pop().iter_uses():
            if user.graph is not graph:
                continue
            found[user] = None
            if is_identity(user):
                pending += [out for out in user.outputs if out is not None]
    return sorted(found, key=lambda node: node.position)
