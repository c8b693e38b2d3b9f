"""What a compiled pattern consists of: one step per pattern object.

A step takes a subject (the value to match, None where an input is omitted) and the goals that
remain, and answers with the goals to go on with, or False. It may bind slots and leave choice
points in the :class:`State`; both are undone when the search comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dplcli.ir.traversal import behind_identities, is_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Dim, Graph, Node, Value

    Goals: TypeAlias = tuple["Step", Value | None, "Goals"] | None
    Outcome: TypeAlias = Goals | Literal[False]
    OpKey: TypeAlias = tuple[str, str]

_LOOKED_THROUGH = -1


class State:
    """What one search has bound so far, and where it can still go back to.

    Attributes:
        graph: The scope of the match; nodes outside it are leaves.
        slots: What each slot is bound to: a Node for node patterns, a Value for leaves, a
            dimension for dimension variables; None while unbound.
        claimed: The nodes bound so far: different node patterns bind different nodes.
        through: The Identity nodes looked through, possibly repeated.
        trail: Slots in the order of binding.
        choices: Goals to try next, each with the length of the trail to go back to.
    """

    __slots__ = ("choices", "claimed", "graph", "slots", "through", "trail")

    def __init__(self, graph: Graph, slot_count: int) -> None:
        """Start with nothing bound."""
        self.graph = graph
        self.slots: list[object] = [None] * slot_count
        self.claimed: set[Node] = set()
        self.through: list[Node] = []
        self.trail: list[int] = []
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

    def look_through(self, node: Node) -> None:
        """Note that the match reaches its next value through an Identity node."""
        self.through.append(node)
        self.trail.append(_LOOKED_THROUGH)

    def undo(self, mark: int) -> None:
        """Unbind everything bound since the trail had length *mark*."""
        trail, slots = self.trail, self.slots
        while len(trail) > mark:
            slot = trail.pop()
            if slot == _LOOKED_THROUGH:
                self.through.pop()
                continue
            self.claimed.discard(slots[slot])
            slots[slot] = None


class Step(ABC):
    """One compiled pattern object.

    Attributes:
        pattern: The pattern object it was compiled from.
        slot: Its slot.
        heads: The operators whose nodes can match it; None if any value might.
        required: For each operator choice that every match needs, the choice.
    """

    __slots__ = ("heads", "pattern", "required", "slot")

    def __init__(self, pattern: DFPattern, slot: int) -> None:
        """Create a step that any value might match and that needs nothing."""
        self.pattern = pattern
        self.slot = slot
        self.heads: frozenset[OpKey] | None = None
        self.required: frozenset[frozenset[OpKey]] = frozenset()

    @abstractmethod
    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try to match *value*; return the goals left, or False."""

    def is_plausible(self, value: Value | None) -> bool:
        """Tell cheaply whether *value* might match; never a wrong no."""
        if self.heads is None:
            return True
        node = None if value is None else value.producer
        if node is None:
            return False
        return (node.domain, node.op_type) in self.heads or is_identity(node)


class AnyStep(Step):
    """A wildcard that nothing else refers to."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Accept whatever is present."""
        return False if value is None else rest


class LeafStep(Step):
    """A wildcard with a name: a value without a look at what makes it."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value, or compare it with the one bound before."""
        if value is None:
            return False
        producer = value.producer
        if producer is not None and producer.op_type == "Identity":
            value = behind_identities(value)
        bound = state.slots[self.slot]
        if bound is None:
            state.bind(self.slot, value)
            return rest
        return rest if bound is value else False


class ChoosyLeafStep(LeafStep):
    """A constant or an input."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value if it is of the right sort."""
        if value is None or not self.accepts(behind_identities(value)):
            return False
        return super().run(state, value, rest)

    @abstractmethod
    def accepts(self, value: Value) -> bool:
        """Tell whether *value*, seen behind Identity nodes, is of the right sort."""


class ConstantStep(ChoosyLeafStep):
    """A constant, perhaps of one given number."""

    __slots__ = ("number",)

    def __init__(self, pattern: DFPattern, slot: int, number: float | None) -> None:
        """Accept constants that equal *number*, or any if it is None."""
        super().__init__(pattern, slot)
        self.number = number

    def accepts(self, value: Value) -> bool:
        """Accept a constant of one element that equals the number in its own dtype."""
        if self.number is None:
            return value.is_constant
        tensor = value.constant
        if tensor is None or tensor.size != 1:
            return False
        return equals_number(tensor.numpy().reshape(()), self.number)


def equals_number(scalar: np.ndarray[tuple[()], np.dtype[np.generic]], number: float) -> bool:
    """Compare a 0-d array with a number in the array's own dtype.

    A number that an integer dtype cannot hold equals nothing; for a float dtype it is rounded
    first, as an exporter rounded what it wrote.
    """
    if scalar.dtype == np.object_ or scalar.dtype.kind in "SU":
        return False
    if scalar.dtype.kind in "iub":
        return bool(int(scalar) == number)
    try:
        with np.errstate(over="ignore"):
            return bool(scalar == np.asarray(float(number)).astype(scalar.dtype))
    except OverflowError:
        return False


class InputStep(ChoosyLeafStep):
    """A graph or function input that carries no data."""

    __slots__ = ("source",)

    def __init__(self, pattern: DFPattern, slot: int, source: str) -> None:
        """Accept the input named *source*, or any if it is empty."""
        super().__init__(pattern, slot)
        self.source = source

    def accepts(self, value: Value) -> bool:
        """Accept an input without an initializer."""
        if not value.is_graph_input or value.is_initializer:
            return False
        return not self.source or value.name == self.source


class AbsentStep(Step):
    """An omitted input."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Accept only nothing."""
        return rest if value is None else False


class OrStep(Step):
    """One of two steps."""

    __slots__ = ("left", "right")

    def __init__(self, pattern: DFPattern, slot: int, left: Step, right: Step) -> None:
        """Prefer *left*."""
        super().__init__(pattern, slot)
        self.left = left
        self.right = right
        if left.heads is not None and right.heads is not None:
            self.heads = left.heads | right.heads
        self.required = left.required & right.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try the left step now and the right one later."""
        if not self.left.is_plausible(value):
            return (self.right, value, rest)
        if self.right.is_plausible(value):
            state.choices.append(((self.right, value, rest), len(state.trail)))
        return (self.left, value, rest)


class SharedStep(Step):
    """A compound pattern with a name, or used more than once: the same value each time."""

    __slots__ = ("inner",)

    def __init__(self, inner: Step, slot: int) -> None:
        """Bind the value before *inner* is tried on it."""
        super().__init__(inner.pattern, slot)
        self.inner = inner
        self.heads = inner.heads
        self.required = inner.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match *inner* the first time, and compare afterwards."""
        if value is None:
            return (self.inner, value, rest)
        producer = value.producer
        origin = value
        if producer is not None and producer.op_type == "Identity":
            origin = behind_identities(value)
        bound = state.slots[self.slot]
        if bound is None:
            state.bind(self.slot, origin)
        elif bound is not origin:
            return False
        return self.inner.run(state, value, rest)


class AndStep(Step):
    """Two steps at the same value."""

    __slots__ = ("left", "right")

    def __init__(self, pattern: DFPattern, slot: int, left: Step, right: Step) -> None:
        """Try *left* first."""
        super().__init__(pattern, slot)
        self.left = left
        self.right = right
        self.heads = left.heads if left.heads is not None else right.heads
        self.required = left.required | right.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Demand both."""
        return (self.left, value, (self.right, value, rest))


class TypeStep(Step):
    """A check of what is known of the value's type; leaves nothing bound but dimensions.

    Args:
        pattern: The pattern compiled.
        dtypes: Element types to choose from, or None.
        ranks: Ranks to choose from, or None.
        dims: One per dimension: a number, the slot of a dimension variable, or None; or None.
    """

    __slots__ = ("dims", "dtypes", "ranks")

    def __init__(
        self,
        pattern: DFPattern,
        dtypes: tuple[str, ...] | None,
        ranks: tuple[int, ...] | None,
        dims: tuple[tuple[str, int] | None, ...] | None,
    ) -> None:
        """Check after the inner pattern has matched."""
        super().__init__(pattern, 0)
        self.dtypes = dtypes
        self.ranks = ranks
        self.dims = dims

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept only what is known to fit."""
        known = None if value is None else value.known_type()
        if known is None:
            return False
        if self.dtypes is not None and known.dtype not in self.dtypes:
            return False
        if self.ranks is None and self.dims is None:
            return rest
        if known.shape is None:
            return False
        if self.ranks is not None and len(known.shape) not in self.ranks:
            return False
        return rest if self.dims is None or self._fits(state, known.shape) else False

    def _fits(self, state: State, shape: Sequence[Dim]) -> bool:
        assert self.dims is not None  # noqa: S101  # checked by the only caller
        if len(shape) != len(self.dims):
            return False
        for wanted, dim in zip(self.dims, shape, strict=True):
            if wanted is None:
                continue
            if dim is None:
                return False
            kind, number = wanted
            if kind == "number":
                if dim != number:
                    return False
            elif state.slots[number] is None:
                state.bind(number, dim)
            elif state.slots[number] != dim:
                return False
        return True


class TypedStep(Step):
    """An inner step, then a check of the type."""

    __slots__ = ("check", "inner")

    def __init__(self, pattern: DFPattern, slot: int, inner: Step, check: TypeStep) -> None:
        """Match *inner* first: types may have to be inferred."""
        super().__init__(pattern, slot)
        self.inner = inner
        self.check = check
        self.heads = inner.heads
        self.required = inner.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Demand both."""
        return (self.inner, value, (self.check, value, rest))
