"""Steps for edges between nodes, and for chains of nodes of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.logic_steps import SETTLE
from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step
from dplcli.ir.traversal import behind_identities, is_read_only_by

if TYPE_CHECKING:
    from dplcli.dpl.call_steps import CallStep
    from dplcli.dpl.pattern import EdgePattern, RepeatPattern
    from dplcli.dpl.state import Deferred, State
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

    def inputs(self, state: State, value: Value | None) -> list[Value]:
        """Return the inputs that the edge may come in at, each once."""
        node = None if value is None else behind_identities(value).producer
        if node is None or node.graph is not state.graph:
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
            for item in self.edge.inputs(state, value)
            if producer.is_plausible(item)
        ]
        return state.choose(ways)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        only = " that nothing else reads" if self.edge.edge.only else ""
        index = self.edge.edge.index
        where = "an input" if index is None else f"input {index}"
        return f"{where} of {describe(value)}{only}", "none"


class Round(NamedTuple):
    """Where a chain is.

    Attributes:
        nodes: How many nodes have matched.
        outside: What was deferred outside of the chain.
    """

    nodes: int
    outside: Deferred


def _count(done: object) -> int:
    return done.nodes if isinstance(done, Round) else 0


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
        return self.go_on(state, value, rest, 0)

    def go_on(self, state: State, value: Value | None, rest: Goals, count: int) -> Outcome:
        """Match one more node after *count* of them, or else the base."""
        assert self.node is not None  # noqa: S101  # set when compiled
        state.reset(self.slot, Round(count, state.deferred))
        may_end = count >= self.chain.least and self.base.is_plausible(value)
        may_grow = self.chain.most is None or count < self.chain.most
        if not may_grow or not self.node.is_plausible(value):
            return self.end(state, value, rest) if may_end else False
        if may_end:
            state.choices.append(((_ChainEnd(self), value, rest), len(state.trail)))
        self._forget(state)
        state.change("deferred", None)
        return (self.node, value, rest)

    def end(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Go on to the base; nothing that the last node has bound is seen from there on."""
        self._forget(state)
        return (self.base, value, rest)

    def _forget(self, state: State) -> None:
        """Unbind what one node of the chain has bound; its constants stay part of the match."""
        for slot in self.constants:
            known = state.slots[slot]
            if known is not None:
                state.note(known)  # type: ignore[arg-type]  # constants are values
        for slot in self.fresh:
            if state.slots[slot] is not None:
                state.reset(slot)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """The chain is too short, or too long."""
        title = self.node.title if self.node is not None else ""
        return (
            f"{self.chain.least} or more {title}",
            f"{_count(state.slots[self.slot])}, then {describe(value)}",
        )


class _ChainEnd(Step):
    """The end of a chain that might have gone on."""

    __slots__ = ("repeat",)

    def __init__(self, repeat: RepeatStep) -> None:
        super().__init__(repeat.pattern)
        self.repeat = repeat

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        return self.repeat.end(state, value, rest)


class ChainStep(Step):
    """The rest of a chain, as the last argument of a node of it."""

    __slots__ = ("repeat",)

    def __init__(self, repeat: RepeatStep) -> None:
        """Go on with *repeat*."""
        super().__init__(repeat.pattern)
        self.repeat = repeat

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Decide what the node has deferred, then count it and go on."""
        if state.deferred is not None:
            return (SETTLE, None, (self, value, rest))
        done = state.slots[self.repeat.slot]
        assert isinstance(done, Round)  # noqa: S101  # see RepeatStep.go_on
        state.change("deferred", done.outside)
        return self.repeat.go_on(state, value, rest, done.nodes + 1)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:
        """Say what the chain lacks."""
        return self.repeat.mismatch(state, value)
