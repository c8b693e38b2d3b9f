"""Steps that enter another graph: bodies of nodes, and of model-local functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.callee import FunctionName, FunctionPattern
from dplcli.dpl.steps import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Function, Graph, Node, Value


class ResultsStep:
    """What a body must take and result in.

    Args:
        pattern: The node pattern it belongs to.
        function: The function that may be called; None for a body of a node.
        params: One step per formal input, or None for any.
        results: One step per result, from the first.
    """

    def __init__(
        self,
        pattern: DFPattern,
        function: FunctionName | FunctionPattern | None,
        params: Sequence[Step] | None,
        results: Sequence[Step],
    ) -> None:
        """Hold the compiled parts."""
        self.pattern = pattern
        self.function = function
        self.params = params
        self.results = results

    def accepts(self, function: Function) -> bool:
        """Tell whether name, metadata and number of inputs are as wanted."""
        if isinstance(self.function, FunctionName):
            return self.function.accepts(function.domain, function.name)
        if self.params is not None and len(self.params) != len(function.body.inputs):
            return False
        wanted = () if self.function is None else self.function.metadata
        return all(function.metadata.get(key) == value for key, value in wanted)

    def of_function(self, function: Function) -> Step:
        """Return the step for one function."""
        return _ScopeStep(self, function.body)

    def of(self, graph: Graph | None) -> Step:
        """Return the step for one body; None is a body that is missing."""
        return _ScopeStep(self, graph)


class _ScopeStep(Step):
    """Match results in a graph of their own; its nodes are no part of the match."""

    __slots__ = ("inside", "wanted")

    def __init__(self, wanted: ResultsStep, graph: Graph | None) -> None:
        super().__init__(wanted.pattern)
        self.wanted = wanted
        self.inside = graph

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        if self.inside is None or len(self.wanted.results) > len(self.inside.outputs):
            return False
        goals: Goals = (_LeaveStep(self.pattern, state.graph, state.claimed), None, rest)
        formal = () if self.wanted.params is None else self.inside.inputs
        pairs = [
            *zip(self.wanted.params or (), formal, strict=False),
            *zip(self.wanted.results, self.inside.outputs, strict=False),
        ]
        for step, subject in reversed(pairs):
            goals = (step, subject, goals)
        state.change("graph", self.inside)
        state.change("claimed", set())
        return goals

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        count = 0 if self.inside is None else len(self.inside.outputs)
        return f"a body with {len(self.wanted.results)} results", f"one with {count}"


class _LeaveStep(Step):
    """Go back to the graph round a body."""

    __slots__ = ("claimed", "outside")

    def __init__(self, pattern: DFPattern, graph: Graph, claimed: AbstractSet[Node]) -> None:
        super().__init__(pattern)
        self.outside = graph
        self.claimed = claimed

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        state.change("graph", self.outside)
        state.change("claimed", self.claimed)
        return rest
