"""The steps that match nodes: operator, attributes and inputs in every order allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.assign_steps import AssignStep
from dplcli.dpl.attributes import attribute_equals, unnamed_attributes
from dplcli.dpl.state import describe
from dplcli.dpl.steps import AnyStep, Step
from dplcli.ir.operators import COMMUTATIVE
from dplcli.ir.parameters import MOVED, inputs_of, parameter_of, slot_of
from dplcli.ir.printer import print_attribute
from dplcli.ir.traversal import behind_identities, is_identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.dpl.pattern import CallPattern, DFPattern
    from dplcli.dpl.scope_steps import ResultsStep
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, OpKey, Outcome
    from dplcli.ir import Attribute, Node, Value


_IDENTITY = frozenset({("", "Identity")})


class CallParts(NamedTuple):
    """The compiled parts of a node pattern.

    Attributes:
        ops: Operators to choose from; None for any.
        functions: What else may be called: model-local functions.
        args: One step per input.
        bodies: By attribute name, what the node's bodies must result in.
        attributes_slot: Where to bind the attributes that are not named, or None.
    """

    ops: frozenset[OpKey] | None
    functions: tuple[ResultsStep, ...]
    args: tuple[Step, ...]
    bodies: tuple[tuple[str, ResultsStep], ...]
    attributes_slot: int | None


class CallStep(Step):
    """A node pattern: the producer of the value, its operator, attributes and inputs."""

    __slots__ = (
        "args",
        "attributes",
        "attributes_slot",
        "bodies",
        "call",
        "consumed",
        "functions",
        "is_plain",
        "is_rotated",
        "is_unordered",
        "ops",
        "rest",
        "sees_identity",
    )

    def __init__(self, pattern: CallPattern, slot: int, parts: CallParts) -> None:
        """Compile a node pattern whose arguments are compiled."""
        super().__init__(pattern, slot)
        self.call = pattern
        self.ops = parts.ops
        self.functions = parts.functions
        self.args = parts.args
        self.bodies = parts.bodies
        self.rest = pattern.rest
        self.is_unordered = pattern.is_unordered
        self.attributes = pattern.attributes
        self.attributes_slot = parts.attributes_slot
        self.is_rotated = False
        self.is_plain = not (parts.functions or parts.bodies or parts.attributes_slot is not None)
        self.consumed: dict[tuple[str, int], frozenset[int]] = {}
        self.sees_identity = parts.ops is not None and ("", "Identity") in parts.ops
        if parts.ops is not None and not parts.functions:
            self.heads = parts.ops
            edges = ((arg.heads, parts.ops) for arg in self.args if arg.heads is not None)
            self.required = frozenset({parts.ops, *edges})
        self.required = self.required.union(*(arg.required for arg in self.args))

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
        if node.op_type == "Identity" and is_identity(node):
            value = self._at_identity(state, value, index, rest)
            node = value.producer
        if node is None or value.index != index or node.graph is not state.graph:
            return False
        bound = state.slots[self.slot]
        if bound is not None:
            return rest if bound is node else False
        is_named = self.ops is None or (node.domain, node.op_type) in self.ops
        if node in state.claimed or not (is_named or self.functions):
            return False
        inputs = self._fitting_inputs(node)
        if inputs is None:
            return False
        state.bind_node(self.slot, node)
        if self.is_plain:
            return self.match_inputs(state, node, inputs, rest)
        if self.attributes_slot is not None and not self._bind_attributes(state, node):
            return False
        rest = self._with_bodies(node, rest)
        if not is_named:
            return self._called(state, node, inputs, rest)
        return self.match_inputs(state, node, inputs, rest)

    def _at_identity(self, state: State, value: Value, index: int, rest: Goals) -> Value:
        """Return the value to match: what is copied, or first the copy where that may be meant."""
        if not self.sees_identity:
            return look_through(state, value)
        if self.ops != _IDENTITY:
            state.choices.append(((_BehindStep(self, index), value, rest), len(state.trail)))
        return value

    def match_inputs(
        self, state: State, node: Node, inputs: Sequence[Value | None], rest: Goals
    ) -> Outcome:
        """Match the inputs in every order allowed."""
        if len(inputs) > 1 and self.args:
            commutes = node.op_type in COMMUTATIVE and not node.domain
            if commutes or self.is_unordered:
                return self._permuted(state, inputs, rest)
        return self._in_order(inputs, rest)

    def _bind_attributes(self, state: State, node: Node) -> bool:
        """Bind the attributes not named, or compare them with those bound before."""
        slot = self.attributes_slot
        assert slot is not None  # noqa: S101  # checked by the caller
        found = unnamed_attributes(node, self.attributes)
        if state.slots[slot] is None:
            state.bind(slot, Attributes(node, found))
            return True
        known = state.slots[slot]
        return isinstance(known, Attributes) and known.values == found

    def _with_bodies(self, node: Node, rest: Goals) -> Goals:
        for attribute, step in reversed(self.bodies):
            graph = node.subgraphs.get(attribute)
            rest = (step.of(graph), None, rest)
        return rest

    def _called(
        self, state: State, node: Node, inputs: Sequence[Value | None], rest: Goals
    ) -> Outcome:
        """Match the function that *node* calls, then the inputs."""
        model = node.graph.model
        function = model.functions.get((node.domain, node.op_type, node.overload))
        if function is None:
            return False
        ways: list[Goals] = [
            (step.of_function(function), None, (_InputsStep(self, node, inputs), None, rest))
            for step in self.functions
            if step.accepts(function)
        ]
        return state.choose(ways)

    def _fitting_inputs(self, node: Node) -> Sequence[Value | None] | None:
        """Return the inputs, omitted ones at the end cut off or filled up to the arguments.

        None if number of inputs or attributes do not fit.
        """
        inputs: Sequence[Value | None] = node.inputs
        count, wanted = len(inputs), len(self.args)
        if node.op_type in MOVED and not node.domain:
            inputs = inputs_of(node)
            count = len(inputs)
        elif count == wanted and not (self.attributes or self.is_rotated):
            return inputs
        if self.attributes:
            inputs = self._not_named(node, inputs)
            count = len(inputs)
        while count and inputs[count - 1] is None:
            count -= 1
        if count > wanted and not self.rest:
            return None
        for name, expected in self.attributes:
            if not attribute_equals(node, name, expected):
                return None
        fitting = inputs[:count]
        if count < wanted:
            fitting = (*fitting, *[None] * (wanted - count))
        if self.is_rotated:
            fitting = (*fitting[1:wanted], fitting[0], *fitting[wanted:])
        return fitting

    def _not_named(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Leave out the inputs that the pattern gives the values of by name, as attributes."""
        key = (node.op_type, node.graph.opset_imports.get(node.domain, 0))
        consumed = self.consumed.get(key)
        if consumed is None:
            slots = (slot_of(node, name) for name, _ in self.attributes)
            consumed = frozenset(slot for slot in slots if slot is not None)
            self.consumed[key] = consumed
        if not consumed:
            return inputs
        return [value for slot, value in enumerate(inputs) if slot not in consumed]

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
        """Try every assignment of inputs to arguments, those as written first.

        An omitted input has a place, not an order: only the argument written there can be it.
        """
        if len(self.args) == 2 and len(inputs) == 2:  # noqa: PLR2004  # the common case
            first, second = self.args
            a, b = inputs
            if type(first) is AnyStep and type(second) is AnyStep:
                return False if a is None or b is None else rest
            swapped = first.is_plausible(b) and second.is_plausible(a)
            swapped = swapped and a is not None and b is not None
            if first.is_plausible(a) and second.is_plausible(b):
                if swapped:
                    goals = (first, b, (second, a, rest))
                    state.choices.append((goals, len(state.trail)))
                return (first, a, (second, b, rest))
            return (first, b, (second, a, rest)) if swapped else False
        wanted = [(slot, arg) for slot, arg in enumerate(self.args) if type(arg) is not AnyStep]
        spare = len(self.args) - len(wanted)
        offered = tuple(enumerate(inputs))
        return AssignStep(self, tuple(wanted), offered, spare).run(state, None, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the outputs of the node."""
        node = slots[self.slot]
        return [] if node is None else [v for v in node.outputs if v is not None]  # type: ignore[attr-defined]  # a node

    @property
    def title(self) -> str:
        """What the pattern calls."""
        return self.call.op.spelled(lambda _: "…")

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """Find out which of the tests of :meth:`match_output` failed."""
        return self.output_mismatch(state, value, 0)

    def output_mismatch(self, state: State, value: Value | None, index: int) -> tuple[str, str]:
        """The same for output *index*."""
        found = describe(value)
        if value is None or value.producer is None:
            return self.title, found
        if not self.sees_identity:
            value = behind_identities(value)
        node = value.producer
        is_named = node is not None and (
            self.ops is None or (node.domain, node.op_type) in self.ops
        )
        if node is None or not (is_named or self.functions):
            return self.title, found
        return self._node_mismatch(state, node, value.index, index) or (self.title, found)

    def _node_mismatch(
        self, state: State, node: Node, found_index: int, index: int
    ) -> tuple[str, str] | None:
        who = f"{node.qualified_op} {node.label!r}"
        if node.graph is not state.graph:
            return f"{self.title} in the same graph", f"{who} in the graph round it"
        if found_index != index:
            return f"output {index} of {self.title}", f"output {found_index} of {who}"
        bound = state.slots[self.slot]
        if bound is not None and bound is not node:
            return f"the node that is {self.title} elsewhere in the pattern", who
        if bound is None and node in state.claimed:
            return f"a {self.title} of its own", f"{who}, which another part of the pattern is"
        for name, expected in self.attributes:
            if not attribute_equals(node, name, expected):
                known = parameter_of(node, name)
                shown = "unknown" if known is None else print_attribute(known)
                return f"{self.title} with {name} = {expected!r}", f"{name} = {shown} at {who}"
        return self._inputs_mismatch(node, who)

    def _inputs_mismatch(self, node: Node, who: str) -> tuple[str, str] | None:
        inputs = list(inputs_of(node))
        given = self._not_named(node, inputs) if self.attributes else inputs
        wanted, count = len(self.args), len(given)
        if count > wanted and not self.rest:
            more = ", ".join(describe(value) for value in given[wanted:] if value is not None)
            plural = "" if wanted == 1 else "s"
            return f"{self.title} with {wanted} input{plural}", f"{count} at {who}: also {more}"
        for slot, arg in enumerate(self.args):
            if type(arg) is AnyStep and (slot >= count or given[slot] is None):
                return f"{self.title} with input {slot}", f"none at {who}"
        return None


@dataclass(frozen=True, eq=False)
class Attributes:
    """The attributes of a node that a pattern does not name.

    Attributes:
        node: The node.
        values: What the file states, by name.
    """

    node: Node
    values: Mapping[str, Attribute]


class _BehindStep(Step):
    """A node pattern that may be an Identity, tried behind one."""

    __slots__ = ("call", "index")

    def __init__(self, call: CallStep, index: int) -> None:
        super().__init__(call.pattern)
        self.call = call
        self.index = index

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        maker = None if value is None else value.producer
        inner = None if maker is None else maker.inputs[0]
        if maker is None or inner is None:
            return False
        if maker.graph is state.graph:
            state.note(maker)
        return self.call.match_output(state, inner, self.index, rest)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        return self.call.output_mismatch(state, value, self.index)


class _InputsStep(Step):
    """The inputs of a node whose function has matched."""

    __slots__ = ("call", "inputs", "node")

    def __init__(self, call: CallStep, node: Node, inputs: Sequence[Value | None]) -> None:
        super().__init__(call.pattern)
        self.call = call
        self.node = node
        self.inputs = inputs

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        return self.call.match_inputs(state, self.node, self.inputs, rest)


class OutputStep(Step):
    """Output *index* of a node pattern."""

    __slots__ = ("call", "index")

    def __init__(self, pattern: DFPattern, call: CallStep, index: int) -> None:
        """Match the node that *call* matches."""
        super().__init__(pattern)
        self.call = call
        self.index = index
        self.heads = call.heads
        self.required = call.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match one output of a node."""
        return self.call.match_output(state, value, self.index, rest)

    def own_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return the output, if the node has it."""
        return [v for v in self.call.bound_values_in(slots) if v.index == self.index]

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """The node does not match, or it is another output."""
        return self.call.output_mismatch(state, value, self.index)


def look_through(state: State, value: Value) -> Value:
    """Return the value behind Identity nodes, which are noted as part of the match."""
    origin = behind_identities(value)
    while value is not origin:
        producer = value.producer
        assert producer is not None  # noqa: S101  # it has an origin, so it is a copy
        if producer.graph is state.graph:
            state.note(producer)
        value = producer.inputs[0] or origin
    return origin
