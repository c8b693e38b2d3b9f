"""Steps for edges between nodes, and for chains of nodes of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step
from dplcli.ir.traversal import behind_identities, is_read_only_by

if TYPE_CHECKING:
    from dplcli.dpl.call_steps import CallStep
    from dplcli.dpl.pattern import EdgePattern, RepeatPattern
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Value


class EdgeStep(Step):
    """A consumer, one of whose inputs is the producer."""

    __slots__ = ("consumer", "edge", "producer")

    def __init__(self, pattern: EdgePattern, producer: Step, consumer: Step) -> None:
        """Match the consumer first: its inputs are few."""
        super().__init__(pattern)
        self.edge = pattern
        self.producer = producer
        self.consumer = consumer
        self.stands_for = consumer
        self.heads = consumer.heads
        self.required = consumer.required | producer.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Match the consumer, then look for the edge."""
        return (self.consumer, value, (_EdgeEnd(self), value, rest))

    def inputs(self, value: Value | None) -> list[Value]:
        """Return the inputs that the edge may come in at, each once."""
        node = None if value is None else behind_identities(value).producer
        if node is None:
            return []
        index = self.edge.index
        inputs = node.inputs if index is None else node.inputs[index : index + 1]
        fitting = dict.fromkeys(item for item in inputs if item is not None)
        if self.edge.only:
            return [item for item in fitting if is_read_only_by(behind_identities(item), node)]
        return list(fitting)


class _EdgeEnd(Step):
    __slots__ = ("edge",)

    def __init__(self, edge: EdgeStep) -> None:
        super().__init__(edge.pattern)
        self.edge = edge

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        producer = self.edge.producer
        ways: list[Goals] = [
            (producer, item, rest)
            for item in self.edge.inputs(value)
            if producer.is_plausible(item)
        ]
        if not ways:
            return False
        mark = len(state.trail)
        state.choices.extend((way, mark) for way in reversed(ways[1:]))
        return ways[0]

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        only = " that nothing else reads" if self.edge.edge.only else ""
        index = self.edge.edge.index
        where = "an input" if index is None else f"input {index}"
        return f"{where} of {describe(value)}{only}", "none"


class RepeatStep(Step):
    """A chain of nodes of one kind, the longest first.

    Attributes:
        node: One node of the chain; its last argument is :class:`ChainStep`.
        base: What the chain ends in.
        fresh: The slots that each node of the chain binds anew.
        constants: Those of them that constants are bound in.
    """

    __slots__ = ("base", "chain", "constants", "fresh", "node")

    def __init__(self, pattern: RepeatPattern, counter: int, base: Step) -> None:
        """Count the nodes in slot *counter*."""
        super().__init__(pattern, counter)
        self.chain = pattern
        self.base = base
        self.node: CallStep | None = None
        self.fresh: tuple[int, ...] = ()
        self.constants: tuple[int, ...] = ()

    def set_node(self, node: CallStep, fresh: tuple[int, ...], constants: tuple[int, ...]) -> None:
        """Complete the step: node and chain refer to each other."""
        self.node = node
        self.fresh = fresh
        self.constants = constants
        self.required = self.base.required
        if self.chain.least:
            self.required |= node.required
            self.heads = node.heads
        elif node.heads is not None and self.base.heads is not None:
            self.heads = node.heads | self.base.heads

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Begin with no node."""
        state.reset(self.slot, 0)
        return self.go_on(state, value, rest)

    def go_on(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match one more node, or else the base."""
        assert self.node is not None  # noqa: S101  # set when compiled
        count = state.slots[self.slot]
        assert isinstance(count, int)  # noqa: S101  # see run
        may_end = count >= self.chain.least and self.base.is_plausible(value)
        may_grow = self.chain.most is None or count < self.chain.most
        if not may_grow or not self.node.is_plausible(value):
            return (self.base, value, rest) if may_end else False
        if may_end:
            state.choices.append(((self.base, value, rest), len(state.trail)))
        for slot in self.constants:
            known = state.slots[slot]
            if known is not None:
                state.note(known)  # type: ignore[arg-type]  # constants are values
        for slot in self.fresh:
            if state.slots[slot] is not None:
                state.reset(slot)
        return (self.node, value, rest)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """The chain is too short, or too long."""
        title = self.node.title if self.node is not None else ""
        return (
            f"{self.chain.least} or more {title}",
            f"{state.slots[self.slot]}, then {describe(value)}",
        )


class ChainStep(Step):
    """The rest of a chain, as the last argument of a node of it."""

    __slots__ = ("repeat",)

    def __init__(self, repeat: RepeatStep) -> None:
        """Go on with *repeat*."""
        super().__init__(repeat.pattern)
        self.repeat = repeat

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Count the node that has matched."""
        count = state.slots[self.repeat.slot]
        assert isinstance(count, int)  # noqa: S101  # see RepeatStep.run
        state.reset(self.repeat.slot, count + 1)
        return self.repeat.go_on(state, value, rest)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """Say what the chain lacks."""
        return self.repeat.mismatch(state, value)
