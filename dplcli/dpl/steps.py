"""What a compiled pattern consists of: one step per pattern object.

A step takes a subject (the value to match, None where an input is omitted) and the goals that
remain, and answers with the goals to go on with, or False. It may bind slots and leave choice
points in the :class:`State`; both are undone when the search comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dplcli.dpl.state import describe
from dplcli.ir.traversal import behind_identities, is_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.pattern import DFPattern, ExactValue
    from dplcli.dpl.state import State
    from dplcli.ir import Tensor, Value

    Goals: TypeAlias = tuple["Step", Value | None, "Goals"] | None
    Outcome: TypeAlias = Goals | Literal[False]
    OpKey: TypeAlias = tuple[str, str]
    Ops: TypeAlias = frozenset[OpKey]
    Requirement: TypeAlias = Ops | tuple[Ops, Ops]

_MOST_REQUIREMENTS = 32


class Step(ABC):
    """One compiled pattern object.

    Attributes:
        pattern: The pattern object it was compiled from.
        slot: Its slot.
        stands_for: The step that is bound in its place, if it binds nothing itself.
        heads: The operators whose nodes can match it; None if any value might.
        required: What every match needs of the graph: operators (a set to choose from), and edges
            (a pair of such sets: of what makes a value, and of what reads it).
    """

    __slots__ = ("heads", "pattern", "required", "slot", "stands_for")

    def __init__(self, pattern: DFPattern, slot: int = 0) -> None:
        """Create a step that any value might match and that needs nothing."""
        self.pattern = pattern
        self.slot = slot
        self.stands_for: Step | None = None
        self.heads: frozenset[OpKey] | None = None
        self.required: frozenset[Requirement] = frozenset()

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

    def bound_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return what it is bound to: for a node pattern all outputs of the node."""
        step = self
        while step.stands_for is not None:
            step = step.stands_for
        return step.own_values_in(slots)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:  # noqa: ARG002  # most bind nothing
        """Return what its own slot is bound to."""
        return []

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        """Say, where :meth:`run` has just failed, what was expected and what was found."""
        return "any value", describe(value)


class AnyStep(Step):
    """A wildcard that nothing else refers to."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Accept whatever is present."""
        return False if value is None else rest


class NotedStep(AnyStep):
    """The same, noted for a function that holds the pattern object."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Accept and bind whatever is present."""
        if value is not None and state.slots[self.slot] is None:
            state.bind(self.slot, behind_identities(value))
        return False if value is None else rest

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the value."""
        bound = slots[self.slot]
        return [] if bound is None else [bound]  # type: ignore[list-item]  # it binds values


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

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the value."""
        bound = slots[self.slot]
        return [] if bound is None else [bound]  # type: ignore[list-item]  # leaves bind values

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """It is omitted, or another value than before."""
        bound = self.bound_values_in(state.slots)
        if value is None or not bound:
            return super().mismatch(state, value)
        name = self.pattern.name or "the same pattern"
        return f"{describe(bound[0])}, which {name} stands for elsewhere", describe(value)


class ChoosyLeafStep(LeafStep):
    """A constant or an input."""

    __slots__ = ()

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Bind the value if it is of the right sort."""
        if value is None or not self.accepts(behind_identities(value)):
            return False
        return super().run(state, value, rest)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """It is of another sort, or another value than before."""
        if value is not None and self.accepts(behind_identities(value)):
            return super().mismatch(state, value)
        return self.sort, self.describe_found(value)

    def describe_found(self, value: Value | None) -> str:
        """Say what stands there instead."""
        return describe(value)

    @property
    @abstractmethod
    def sort(self) -> str:
        """What it accepts, in words."""

    @abstractmethod
    def accepts(self, value: Value) -> bool:
        """Tell whether *value*, seen behind Identity nodes, is of the right sort."""


class ConstantStep(ChoosyLeafStep):
    """A constant, perhaps of one given number or of exact data."""

    __slots__ = ("exact", "number")

    def __init__(
        self, pattern: DFPattern, slot: int, number: float | None, exact: ExactValue | None
    ) -> None:
        """Accept constants that equal what is given, or any if nothing is."""
        super().__init__(pattern, slot)
        self.number = number
        self.exact = exact

    @property
    def sort(self) -> str:
        """A constant, perhaps with its value."""
        if self.number is not None:
            return f"the constant {self.number!r}"
        return "a constant" if self.exact is None else f"the constant {self.pattern!r}"

    def describe_found(self, value: Value | None) -> str:
        """Show a short constant's data, which may be what differs."""
        tensor = None if value is None else behind_identities(value).constant
        if tensor is None or tensor.size > _SHOWN or tensor.is_external:
            return describe(value)
        return f"{describe(value)} = {tensor.numpy().tolist()}"

    def accepts(self, value: Value) -> bool:
        """Accept a constant that is as demanded."""
        if self.number is None and self.exact is None:
            return value.is_constant
        tensor = value.constant
        if tensor is None:
            return False
        if self.exact is not None:
            return equals_exactly(tensor, self.exact)
        assert self.number is not None  # noqa: S101  # one of the two is given
        return tensor.size == 1 and equals_number(tensor.numpy().reshape(()), self.number)


_SHOWN = 8


def equals_exactly(tensor: Tensor, exact: ExactValue) -> bool:
    """Compare element type, shape and bytes."""
    if tensor.dtype != exact.dtype or tensor.shape != exact.shape:
        return False
    data = tensor.numpy()
    if data.dtype.kind in "OUS":
        items = (item.decode() if isinstance(item, bytes) else str(item) for item in data.flat)
        return "\0".join(items).encode() == exact.data
    return np.ascontiguousarray(data).tobytes() == exact.data


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

    @property
    def sort(self) -> str:
        """An input, perhaps a certain one."""
        return f"the input {self.source!r}" if self.source else "an input without data"

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

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        """Something is there."""
        return "no input", describe(value)


class OrStep(Step):
    """One of two steps."""

    __slots__ = ("left", "right")

    def __init__(self, pattern: DFPattern, left: Step, right: Step) -> None:
        """Prefer *left*."""
        super().__init__(pattern)
        self.left = left
        self.right = right
        if left.heads is not None and right.heads is not None:
            self.heads = left.heads | right.heads
        self.required = left.required & right.required | _either(left, right)

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Try the left step now and the right one later."""
        if not self.left.is_plausible(value):
            return (self.right, value, rest)
        if self.right.is_plausible(value):
            state.choices.append(((self.right, value, rest), len(state.trail)))
        return (self.left, value, rest)


def _either(left: Step, right: Step) -> frozenset[Ops]:
    """Return what a match of either step needs: operators of the one, or operators of the other."""
    first = [needed for needed in left.required if isinstance(needed, frozenset)]
    second = [needed for needed in right.required if isinstance(needed, frozenset)]
    if len(first) * len(second) > _MOST_REQUIREMENTS:
        return frozenset()
    return frozenset(one | other for one in first for other in second)


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
        if bound is not None:
            return rest if bound is origin else False
        state.bind(self.slot, origin)
        return self.inner.run(state, value, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the value."""
        bound = slots[self.slot]
        return [] if bound is None else [bound]  # type: ignore[list-item]  # see run

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """It is another value than before, or does not match at all."""
        bound = self.bound_values_in(state.slots)
        if value is None or (bound and behind_identities(value) is bound[0]):
            return self.inner.mismatch(state, value)
        name = self.pattern.name or "the same pattern"
        where = describe(bound[0]) if bound else "a value"
        return f"{where}, which {name} stands for elsewhere", describe(value)


class AndStep(Step):
    """Two steps at the same value."""

    __slots__ = ("left", "right")

    def __init__(self, pattern: DFPattern, left: Step, right: Step) -> None:
        """Try *left* first."""
        super().__init__(pattern)
        self.left = left
        self.right = right
        self.heads = left.heads if left.heads is not None else right.heads
        self.required = left.required | right.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Demand both."""
        return (self.left, value, (self.right, value, rest))
