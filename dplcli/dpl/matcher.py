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
from dplcli.dpl.search import advance
from dplcli.dpl.state import State, StepBudgetExceededError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Node

DEFAULT_BUDGET = 100_000


class Matcher:
    """A compiled pattern.

    Args:
        pattern: What to look for.
        budget: Most steps to spend on one root.
        notes_all: See :func:`~dplcli.dpl.compiler.compile_pattern`.
    """

    def __init__(
        self, pattern: DFPattern, *, budget: int = DEFAULT_BUDGET, notes_all: bool = False
    ) -> None:
        """Compile *pattern*."""
        self.program = compile_pattern(pattern, notes_all=notes_all)
        self.budget = budget

    def solutions(self, root: Node, taken: Container[Node] = ()) -> Iterator[State]:
        """Yield every way to match the pattern at *root*, preferred ones first.

        The state is reused: read it before asking for the next.

        Args:
            root: The node to match at.
            taken: Nodes that none of the outputs may be but the first.

        Raises:
            StepBudgetExceededError: The search was given up.
        """
        spent = 0
        for subject in root.outputs:
            if subject is None:
                continue
            state = State(root.graph, self.program.slot_count, self.budget, subject)
            state.spent = spent
            state.taken = taken
            goals = self.program.start(subject)
            try:
                while True:
                    if advance(state, goals):
                        yield state
                    if not state.choices:
                        break
                    goals, mark = state.choices.pop()
                    state.undo(mark)
            except StepBudgetExceededError as error:
                raise StepBudgetExceededError(
                    f"matching at {root!r} took more than {self.budget:,} steps", hint=error.hint
                ) from error
            spent = state.spent
