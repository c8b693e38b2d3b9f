"""Steps for negation, and for choices that are made one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.pattern import WildcardPattern
from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.dpl.pattern import NotPattern
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Graph, Value


class NotStep(Step):
    """Negation as failure (K. L. Clark, *Negation as Failure*, 1978), decided as late as needed.

    Inside, nodes may be those of other parts of the pattern: what is denied is that the value is
    of a kind, not that it is one more node of the kind.

    Args:
        pattern: The pattern compiled.
        inner: What must not match.
        is_closed: Whether nothing inside is bound outside, so that it can be decided at once.
    """

    __slots__ = ("inner", "is_closed")

    def __init__(self, pattern: NotPattern, inner: Step, *, is_closed: bool) -> None:
        """Deny *inner*."""
        super().__init__(pattern)
        self.inner = inner
        self.is_closed = is_closed

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Decide now, or when all names are bound."""
        if value is None:
            return False
        if self.is_closed:
            return self.begin(state, value, rest)
        state.defer(_Denial(self, state.graph), value)
        return rest

    def begin(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try to match *inner*; if that fails, the search goes on with *rest*."""
        depth = len(state.choices)
        state.choices.append((rest, len(state.trail)))
        state.change("claimed", set())
        state.change("deferred", None)
        state.change("negations", state.negations + 1)
        return (self.inner, value, (SETTLE, None, (_CutStep(self, depth), value, None)))


class _Denial(Step):
    """A negation that is decided later, in the graph that it stands in."""

    __slots__ = ("graph", "negation")

    def __init__(self, negation: NotStep, graph: Graph) -> None:
        super().__init__(negation.pattern)
        self.negation = negation
        self.graph = graph

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        outcome = self.negation.begin(state, value, rest)
        state.change("graph", self.graph)
        return outcome


class _CutStep(Step):
    """What is denied has matched: forget every other way, and fail."""

    __slots__ = ("depth",)

    def __init__(self, negation: NotStep, depth: int) -> None:
        super().__init__(negation.pattern)
        self.depth = depth

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        del state.choices[self.depth :]
        state.negations -= 1
        return False

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        return repr(self.pattern), describe(value)


class _SettleStep(Step):
    """Decide what was deferred."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        if state.deferred is None:
            return rest
        step, subject, others = state.deferred
        state.change("deferred", others)
        return step.run(state, subject, (self, None, rest))


SETTLE = _SettleStep(WildcardPattern())
"""The last goal of a search that may defer decisions."""


class EachStep(Step):
    """Goals to try one after the other, made only when their turn comes."""

    __slots__ = ("ways",)

    def __init__(self, owner: Step, ways: Iterator[Goals]) -> None:
        """Try *ways* in order; the state is then as it is now."""
        super().__init__(owner.pattern)
        self.ways = ways

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Take the next way and leave the others as a choice."""
        way = next(self.ways, None)
        if way is None:
            return False
        state.choices.append(((self, value, rest), len(state.trail)))
        return way
