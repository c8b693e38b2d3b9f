"""Why a pattern does not match at a node: the search again, slower, with every mismatch noted.

One attempt is what the search did until it gave up; of all attempts the one that got furthest is
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.matcher import (
    DEFAULT_BUDGET,
    State,
    StepBudgetExceededError,
    compile_pattern,
    describe,
)
from dplcli.dpl.pattern import CallPattern, RepeatPattern, WildcardPattern
from dplcli.dpl.text import all_parts, hidden_parts, own_line, visible_parts, write_part

if TYPE_CHECKING:
    from dplcli.dpl.matcher import Goals, Program, Step
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.rule import Rule
    from dplcli.ir import Node, Value


TRACE_BUDGET = 4 * DEFAULT_BUDGET
"""Without shortcuts a search takes more steps than the matcher's."""


class Mismatch(NamedTuple):
    """Where an attempt ended.

    Attributes:
        part: The part of the pattern that failed.
        place: Where it is written, or "".
        at: The value it failed at; None where an input is omitted, or no value is concerned.
        expected: What was expected, for a reader.
        found: What was found.
    """

    part: DFPattern
    place: str
    at: Value | None
    expected: str
    found: str


class TraceLine(NamedTuple):
    """One part of a pattern, and what became of it.

    Attributes:
        depth: How deep it stands.
        pattern: Its text, without what is inside.
        place: Where it is written, or "".
        status: "matched", "failed" or "not reached".
        found: What it matched, or what was found instead.
    """

    depth: int
    pattern: str
    place: str
    status: str
    found: str


class MatchTrace(NamedTuple):
    """The attempt that got furthest.

    Attributes:
        root: The node.
        matched: How many node patterns fitted.
        of: How many the pattern has.
        mismatch: Where it ended; None if it fits, or if the search was given up.
        lines: The pattern as a tree.
        fits: Whether the pattern fits.
        given_up: Whether the search took too many steps.
    """

    root: Node
    matched: int
    of: int
    mismatch: Mismatch | None
    lines: tuple[TraceLine, ...]
    fits: bool = False
    given_up: bool = False


class Tracer:
    """A pattern compiled for questions.

    Args:
        rule: The rule whose pattern it is.
        budget: Most steps to spend on one value.
    """

    def __init__(self, rule: Rule, *, budget: int = TRACE_BUDGET) -> None:
        self.rule = rule
        self.budget = budget
        self.program = compile_pattern(rule.pattern, prune=False)
        parts = visible_parts(rule.pattern)
        self.size = sum(isinstance(part, (CallPattern, RepeatPattern)) for part in parts)

    def trace(self, root: Node) -> MatchTrace:
        """Match at *root*, and report."""
        best = _Best()
        given_up = False
        for subject in root.outputs:
            if subject is None:
                continue
            state = State(root.graph, self.program.slot_count, self.budget, subject)
            try:
                fits = _search(state, self.program, best, root)
            except StepBudgetExceededError:
                given_up = True
                break
            if fits:
                lines = tuple(self._lines(state.slots, None))
                return MatchTrace(root, len(state.claimed), self.size, None, lines, fits=True)
        mismatch = None
        if best.step is None and not given_up:
            pattern = self.rule.pattern
            expected = f"a node that is {headline(pattern)}"
            found = f"{root.qualified_op} {root.label!r}, which the pattern does not bind"
            mismatch = Mismatch(pattern, self.rule.place(pattern), None, expected, found)
        if best.step is not None:
            part = self._part_of(best.step)
            place = self.rule.place(part)
            mismatch = Mismatch(part, place, best.value, best.expected, best.found)
        lines = tuple(self._lines(best.slots, mismatch))
        return MatchTrace(root, best.matched, self.size, mismatch, lines, given_up=given_up)

    def _part_of(self, step: Step) -> DFPattern:
        """Return the part to blame; a node of a chain has no text of its own."""
        part = step.pattern
        for other in visible_parts(self.rule.pattern):
            if isinstance(other, RepeatPattern) and other.step is part:
                return other
        return part

    def _lines(self, slots: list[object], mismatch: Mismatch | None) -> list[TraceLine]:
        around = set() if mismatch is None else _around(mismatch.part, self.rule.pattern)
        lines: list[TraceLine] = []
        seen: set[int] = set()
        pending: list[tuple[DFPattern, int]] = [(self.rule.pattern, 0)]
        while pending:
            part, depth = pending.pop()
            if id(part) in seen or _is_anything(part):
                continue
            seen.add(id(part))
            lines.append(self._line(part, depth, slots, mismatch, is_open=id(part) in around))
            hidden = {id(inner) for inner in hidden_parts(part)}
            pending += [(p, depth + 1) for p in reversed(part.parts) if id(p) not in hidden]
        return lines

    def _line(
        self,
        part: DFPattern,
        depth: int,
        slots: list[object],
        mismatch: Mismatch | None,
        *,
        is_open: bool,
    ) -> TraceLine:
        status, found = "not reached", ""
        if mismatch is not None and part is mismatch.part:
            status, found = "failed", f"expected {mismatch.expected}, found {mismatch.found}"
        elif (
            slots and not is_open and (bound := self.program.steps[id(part)].bound_values_in(slots))
        ):
            status, found = "matched", describe(bound[0])
        place = self.rule.place(part) if part.place is not None else ""
        return TraceLine(depth, headline(part), place, status, found)


def _around(part: DFPattern, pattern: DFPattern) -> set[int]:
    """Return the parts that contain *part* and are no nodes: they match only if it does."""
    found = {id(part)}
    for other in all_parts(pattern):
        if not isinstance(other, CallPattern) and any(id(inner) in found for inner in other.parts):
            found.add(id(other))
    return found - {id(part)}


class _Best:
    """The attempt that got furthest so far."""

    def __init__(self) -> None:
        self.score = -1
        self.matched = 0
        self.step: Step | None = None
        self.value: Value | None = None
        self.expected = self.found = ""
        self.slots: list[object] = []

    def offer(self, step: Step, value: Value | None, state: State) -> None:
        if not state.negations and len(state.trail) > self.score:
            self.score = len(state.trail)
            self.matched = len(state.claimed)
            self.step, self.value = step, value
            self.expected, self.found = step.mismatch(state, value)
            self.slots = list(state.slots)


def _search(state: State, program: Program, best: _Best, root: Node) -> bool:
    """Run like the matcher until *root* itself is matched, and offer every failure to *best*."""
    goals: Goals = program.start(state.subject)
    while True:
        while goals is not None:
            state.charge(1)
            step, subject, rest = goals
            following = step.run(state, subject, rest)
            if following is not False:
                goals = following
                continue
            best.offer(step, subject, state)
            if not state.choices:
                return False
            goals, mark = state.choices.pop()
            state.undo(mark)
        if root in state.claimed:
            return True
        if not state.choices:
            return False
        goals, mark = state.choices.pop()
        state.undo(mark)


def headline(part: DFPattern) -> str:
    """Return the text of *part* with ``…`` for what is inside."""
    if isinstance(part, CallPattern) and not part.bodies:
        text = part.op.spelled(lambda _: "…")
    else:
        text = write_part(part, lambda _: "…")
    line = own_line(part)
    return f"{line} = {text}" if line else text


def _is_anything(part: DFPattern) -> bool:
    return isinstance(part, WildcardPattern) and not part.name
