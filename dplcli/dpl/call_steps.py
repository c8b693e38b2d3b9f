"""The steps that match nodes: operator, attributes and inputs in every order allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.steps import AnyStep, Step
from dplcli.ir.operators import COMMUTATIVE, attribute_of
from dplcli.ir.traversal import behind_identities, is_identity
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.pattern import AttributeValue, DFPattern
    from dplcli.dpl.steps import Goals, OpKey, Outcome, State
    from dplcli.ir import Node, Value


class CallStep(Step):
    """A node pattern: the producer of the value, its operator, attributes and inputs.

    Args:
        pattern: The pattern compiled.
        slot: Slot for the node.
        ops: Operators to choose from.
        args: One step per input.
        rest: Whether further inputs may follow.
        attributes: Attribute values to demand.
    """

    __slots__ = ("args", "attributes", "ops", "rest", "sees_identity")

    def __init__(  # noqa: PLR0913  # these are the parts of a call
        self,
        pattern: DFPattern,
        slot: int,
        *,
        ops: Sequence[OpKey],
        args: Sequence[Step],
        rest: bool,
        attributes: Sequence[tuple[str, AttributeValue]],
    ) -> None:
        """Compile a node pattern whose arguments are compiled."""
        super().__init__(pattern, slot)
        self.ops = frozenset(ops)
        self.args = tuple(args)
        self.rest = rest
        self.attributes = tuple(attributes)
        self.sees_identity = ("", "Identity") in self.ops
        self.heads = self.ops
        self.required = frozenset({self.ops}).union(*(arg.required for arg in args))

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match output 0 of a node."""
        return self.match_output(state, value, 0, rest)

    def match_output(  # noqa: PLR0911  # a guard each
        self, state: State, value: Value | None, index: int, rest: Goals
    ) -> Outcome:
        """Match output *index* of a node."""
        node = None if value is None else value.producer
        if value is None or node is None:
            return False
        if node.op_type == "Identity" and not self.sees_identity and is_identity(node):
            value = self._look_through(state, value)
            node = value.producer
        if node is None or value.index != index or node.graph is not state.graph:
            return False
        bound = state.slots[self.slot]
        if bound is not None:
            return rest if bound is node else False
        if (node.domain, node.op_type) not in self.ops or node in state.claimed:
            return False
        inputs = self._fitting_inputs(node)
        if inputs is None:
            return False
        state.bind_node(self.slot, node)
        if len(inputs) > 1 and self.args and node.op_type in COMMUTATIVE and not node.domain:
            return self._permuted(state, inputs, rest)
        return self._in_order(inputs, rest)

    def _look_through(self, state: State, value: Value) -> Value:
        origin = behind_identities(value)
        while value is not origin:
            producer = value.producer
            assert producer is not None  # noqa: S101  # it has an origin, so it is a copy
            if producer.graph is state.graph:
                state.look_through(producer)
            value = producer.inputs[0] or origin
        return origin

    def _fitting_inputs(self, node: Node) -> Sequence[Value | None] | None:
        """Return the inputs, omitted ones at the end cut off or filled up to the arguments.

        None if number of inputs or attributes do not fit.
        """
        inputs = node.inputs
        count, wanted = len(inputs), len(self.args)
        while count and inputs[count - 1] is None:
            count -= 1
        if count > wanted and not self.rest:
            return None
        for name, expected in self.attributes:
            if not attribute_equals(node, name, expected):
                return None
        if count < wanted:
            return inputs[:count] + (None,) * (wanted - count)
        return inputs[:count]

    def _in_order(self, inputs: Sequence[Value | None], rest: Goals) -> Outcome:
        args = self.args
        for slot in range(len(args) - 1, -1, -1):
            step, value = args[slot], inputs[slot]
            if type(step) is AnyStep:
                if value is None:
                    return False
            elif step.heads is None or step.is_plausible(value):
                rest = (step, value, rest)
            else:
                return False
        return rest

    def _permuted(self, state: State, inputs: Sequence[Value | None], rest: Goals) -> Outcome:
        """Try every assignment of inputs to arguments, those as written first."""
        if len(self.args) == 2 and len(inputs) == 2:  # noqa: PLR2004  # the common case
            first, second = self.args
            a, b = inputs
            swapped = first.is_plausible(b) and second.is_plausible(a)
            if first.is_plausible(a) and second.is_plausible(b):
                if swapped:
                    goals = (first, b, (second, a, rest))
                    state.choices.append((goals, len(state.trail)))
                return (first, a, (second, b, rest))
            return (first, b, (second, a, rest)) if swapped else False
        return AssignStep(self, self.args, tuple(inputs)).run(state, None, rest)


class AssignStep(Step):
    """Arguments still to be given an input each, of the inputs nobody has taken."""

    __slots__ = ("args", "inputs")

    def __init__(
        self, call: Step, args: tuple[Step, ...], inputs: tuple[Value | None, ...]
    ) -> None:
        """Continue the assignment of *call*."""
        super().__init__(call.pattern, call.slot)
        self.args = args
        self.inputs = inputs

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Give the first argument an input; leave the other inputs as choices."""
        if not self.args:
            return rest
        first, others = self.args[0], self.args[1:]
        goals: list[Goals] = []
        for index, candidate in enumerate(self.inputs):
            if first.is_plausible(candidate):
                left = self.inputs[:index] + self.inputs[index + 1 :]
                following = (AssignStep(self, others, left), None, rest)
                goals.append((first, candidate, following))
        if not goals:
            return False
        mark = len(state.trail)
        state.choices.extend((goal, mark) for goal in reversed(goals[1:]))
        return goals[0]


class OutputStep(Step):
    """Output *index* of a node pattern."""

    __slots__ = ("call", "index")

    def __init__(self, pattern: DFPattern, slot: int, call: CallStep, index: int) -> None:
        """Match the node that *call* matches."""
        super().__init__(pattern, slot)
        self.call = call
        self.index = index
        self.heads = call.heads
        self.required = call.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match one output of a node."""
        return self.call.match_output(state, value, self.index, rest)


_DTYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "stash_type", "precision", "softmax_precision"}
)


def attribute_equals(node: Node, name: str, expected: AttributeValue) -> bool:
    """Compare an attribute, completed with its default, with what a pattern states.

    Floats compare as float32, an element type also by its name (``to="float32"``). An attribute
    that a function's caller supplies is unknown, hence unequal.
    """
    attribute = attribute_of(node, name)
    if attribute is None or attribute.ref:
        return False
    value = attribute.value
    if attribute.kind == "float":
        return _floats_equal((value,), (expected,))
    if attribute.kind == "floats" and isinstance(value, tuple) and isinstance(expected, tuple):
        return _floats_equal(value, expected)
    if attribute.kind == "int" and isinstance(expected, str) and name in _DTYPE_ATTRIBUTES:
        return value == DTYPE_CODES.get(expected)
    return value == expected and type(value) is type(expected)


def _floats_equal(values: Sequence[object], expected: Sequence[object]) -> bool:
    if len(values) != len(expected) or any(isinstance(item, str) for item in expected):
        return False
    try:
        with np.errstate(over="ignore"):
            return np.array_equal(
                np.asarray(values, dtype=np.float32), np.asarray(expected, dtype=np.float32)
            )
    except OverflowError:
        return False
