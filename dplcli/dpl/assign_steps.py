"""The step that assigns inputs to arguments where their order does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Value


class AssignStep(Step):
    """Arguments still to be given an input each, of the inputs nobody has taken.

    An omitted input stays where it is: no argument that stands elsewhere takes it.

    Args:
        call: The node pattern.
        args: The arguments left, each with its own place.
        inputs: The inputs left, each with its place.
        spare: How many arguments take any input that is present.
    """

    __slots__ = ("args", "inputs", "spare")

    def __init__(
        self,
        call: Step,
        args: tuple[tuple[int, Step], ...],
        inputs: tuple[tuple[int, Value | None], ...],
        spare: int,
    ) -> None:
        """Continue the assignment of *call*."""
        super().__init__(call.pattern, call.slot)
        self.args = args
        self.inputs = inputs
        self.spare = spare

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Give the first argument an input, its own if it can; leave the others as choices."""
        if not self.args:
            present = sum(candidate is not None for _, candidate in self.inputs)
            return rest if present >= self.spare else False
        (home, first), others = self.args[0], self.args[1:]
        goals: list[Goals] = []
        for place, candidate in _own_first(self.inputs, home):
            if (candidate is not None or place == home) and first.is_plausible(candidate):
                left = tuple(item for item in self.inputs if item[0] != place)
                following = (AssignStep(self, others, left, self.spare), None, rest)
                goals.append((first, candidate, following))
        return state.choose(goals)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        """No input is left that could be the next argument."""
        left = ", ".join(describe(candidate) for _, candidate in self.inputs)
        wanted = repr(self.args[0][1].pattern) if self.args else "one more input"
        return wanted, left or "no input left"


def _own_first(
    inputs: Sequence[tuple[int, Value | None]], home: int
) -> Iterable[tuple[int, Value | None]]:
    return sorted(inputs, key=lambda item: item[0] != home)
