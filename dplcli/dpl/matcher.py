"""How a pattern meets a graph: complete backtracking, without recursion.

A pattern is compiled once into :mod:`steps <dplcli.dpl.steps>`. Matching keeps an agenda of goals
(a linked list of step, subject, rest), a trail of bindings to undo, and a stack of choice points:
the search of Warren's abstract machine (D. H. D. Warren, *An Abstract Prolog Instruction Set*,
SRI 309, 1983) over dataflow graphs. The order of preference is TVM's
(``src/relax/ir/dataflow_matcher.cc``): left alternative first, operands as written first. TVM
commits to the first success of a part; this search returns to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.compiler import compile_pattern
from dplcli.dpl.steps import State
from dplcli.errors import PassError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.steps import Goals
    from dplcli.ir import Node

DEFAULT_BUDGET = 100_000


class StepBudgetExceededError(PassError):
    """The search at one root took more steps than allowed."""


class Matcher:
    """A compiled pattern.

    Args:
        pattern: What to look for.
        budget: Most steps to spend on one root.
    """

    def __init__(self, pattern: DFPattern, *, budget: int = DEFAULT_BUDGET) -> None:
        """Compile *pattern*."""
        self.program = compile_pattern(pattern)
        self.budget = budget

    def solutions(self, root: Node) -> Iterator[State]:
        """Yield every way to match the pattern at *root*, preferred ones first.

        The state is reused: read it before asking for the next.

        Raises:
            StepBudgetExceededError: The search was given up.
        """
        spent = 0
        for subject in root.outputs:
            if subject is None:
                continue
            state = State(root.graph, self.program.slot_count)
            choices = state.choices
            goals: Goals = (self.program.root, subject, None)
            while True:
                solved, spent = self._search(state, goals, spent, root)
                if solved:
                    yield state
                if not choices:
                    break
                goals, mark = choices.pop()
                state.undo(mark)

    def _search(self, state: State, goals: Goals, spent: int, root: Node) -> tuple[bool, int]:
        """Run until all goals are met or none is left to try; return which, and steps spent."""
        choices = state.choices
        while goals is not None:
            spent += 1
            if spent > self.budget:
                raise StepBudgetExceededError(
                    f"matching at {root!r} took more than {self.budget:,} steps",
                    hint="make the pattern more specific, or raise the budget",
                )
            step, subject, rest = goals
            following = step.run(state, subject, rest)
            if following is not False:
                goals = following
                continue
            if not choices:
                return False, spent
            goals, mark = choices.pop()
            state.undo(mark)
        return True, spent
