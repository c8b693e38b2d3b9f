"""The loop that runs goals: depth first, iterative, with an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.state import State

if TYPE_CHECKING:
    from dplcli.dpl.program import Program
    from dplcli.dpl.steps import Goals
    from dplcli.ir import Value


def advance(state: State, goals: Goals) -> bool:
    """Run until all goals are met, or none is left to try; tell which.

    Raises:
        StepBudgetExceededError: The steps of *state* are spent.
    """
    choices = state.choices
    allowed = state.budget - state.spent
    taken = 0
    while goals is not None:
        taken += 1
        if taken > allowed:
            state.charge(taken)
        step, subject, rest = goals
        following = step.run(state, subject, rest)
        if following is not False:
            goals = following
            continue
        if not choices:
            state.spent += taken
            return False
        goals, mark = choices.pop()
        state.undo(mark)
    state.spent += taken
    return True


def fits(program: Program, value: Value, outer: State) -> bool:
    """Tell whether a pattern of its own matches *value*, at the expense of *outer*.

    Raises:
        StepBudgetExceededError: The steps of *outer* are spent.
    """
    state = State(outer.graph, program.slot_count, outer.budget - outer.spent, value)
    found = advance(state, program.start(value))
    outer.charge(state.spent)
    return found
