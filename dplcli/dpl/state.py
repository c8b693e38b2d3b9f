"""What one search has bound so far, and how it goes back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dplcli.errors import PassError
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from dplcli.dpl.steps import Goals, Outcome, Step
    from dplcli.ir import Graph, Node, Value

    Deferred: TypeAlias = tuple[Step, Value | None, "Deferred"] | None


class StepBudgetExceededError(PassError):
    """The search at one root took more steps than allowed."""


class State:
    """The bindings of a search, and where it can still go back to.

    Attributes:
        graph: The scope of the match; nodes outside it are leaves.
        slots: What each slot is bound to: a Node for node patterns, a Value for leaves, a
            dimension for dimension variables; None while unbound.
        claimed: The nodes bound so far: different node patterns bind different nodes.
        noted: Identity nodes looked through, possibly repeated, and constants in repeated parts.
        deferred: What can be decided only when everything else is bound.
        negations: How many negations the search is inside of.
        taken: Nodes that no further output may be: other matches have them.
        budget: Most steps to spend.
        spent: Steps spent.
        subject: The value that the search began with.
        trail: Slots in the order of binding; functions that undo what was done otherwise.
        choices: Goals to try next, each with the length of the trail to go back to.
    """

    __slots__ = (
        "budget",
        "choices",
        "claimed",
        "deferred",
        "graph",
        "negations",
        "noted",
        "slots",
        "spent",
        "subject",
        "taken",
        "trail",
    )

    def __init__(self, graph: Graph, slot_count: int, budget: int, subject: Value) -> None:
        """Start with nothing bound."""
        self.subject = subject
        self.graph = graph
        self.slots: list[object] = [None] * slot_count
        self.claimed: set[Node] = set()
        self.noted: list[Node | Value] = []
        self.deferred: Deferred = None
        self.negations = 0
        self.taken: Container[Node] = ()
        self.budget = budget
        self.spent = 0
        self.trail: list[int | Callable[[], object]] = []
        self.choices: list[tuple[Goals, int]] = []

    def bind(self, slot: int, subject: object) -> None:
        """Bind a leaf or a dimension."""
        self.slots[slot] = subject
        self.trail.append(slot)

    def bind_node(self, slot: int, node: Node) -> None:
        """Bind a node pattern."""
        self.slots[slot] = node
        self.trail.append(slot)
        self.claimed.add(node)

    def claim(self, node: Node) -> None:
        """Take *node* into the match though no slot is bound to it."""
        self.claimed.add(node)
        self.trail.append(partial(self.claimed.discard, node))

    def reset(self, slot: int, subject: object = None) -> None:
        """Bind a slot anew; a node bound before stays claimed."""
        self.trail.append(partial(self.slots.__setitem__, slot, self.slots[slot]))
        self.slots[slot] = subject

    def note(self, thing: Node | Value) -> None:
        """Note an Identity node that is looked through, or a constant in a repeated part."""
        self.noted.append(thing)
        self.trail.append(self.noted.pop)

    def change(self, name: str, value: object) -> None:
        """Set an attribute until the search goes back."""
        self.trail.append(partial(setattr, self, name, getattr(self, name)))
        setattr(self, name, value)

    def defer(self, step: Step, value: Value | None) -> None:
        """Let *step* decide on *value* when everything else is bound."""
        self.change("deferred", (step, value, self.deferred))

    def choose(self, ways: Sequence[Goals]) -> Outcome:
        """Go the first of *ways* and leave the others to come back to; False if there are none."""
        if not ways:
            return False
        mark = len(self.trail)
        self.choices.extend((way, mark) for way in reversed(ways[1:]))
        return ways[0]

    def charge(self, steps: int) -> None:
        """Count steps that are not goals.

        Raises:
            StepBudgetExceededError: There are none left.
        """
        self.spent += steps
        if self.spent > self.budget:
            raise StepBudgetExceededError(
                f"the search took more than {self.budget:,} steps",
                hint="make the pattern more specific, or raise the budget",
            )

    def undo(self, mark: int) -> None:
        """Take back everything done since the trail had length *mark*."""
        trail, slots = self.trail, self.slots
        while len(trail) > mark:
            entry = trail.pop()
            if isinstance(entry, int):
                self.claimed.discard(slots[entry])
                slots[entry] = None
            else:
                entry()


def describe(value: Value | None) -> str:
    """Say what makes a value, for a reader."""
    if value is None:
        return "nothing: the input is omitted"
    origin = behind_identities(value)
    node = origin.producer
    if node is not None and not origin.is_constant:
        which = f" (output {origin.index})" if origin.index else ""
        return f"{node.qualified_op} {node.label!r}{which}"
    if origin.is_constant:
        tensor = origin.constant
        shape = "" if tensor is None else f" {tensor.dtype}{list(tensor.shape)}"
        return f"the constant {origin.name!r}{shape}"
    if origin.is_initializer:
        return f"the input {origin.name!r}, which has a default"
    return f"the input {origin.name!r}"
