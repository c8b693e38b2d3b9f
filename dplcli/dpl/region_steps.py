"""Steps for patterns that are more than a tree: edges, chains, dominated regions, outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.logic_steps import EachStep
from dplcli.dpl.search import fits
from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step
from dplcli.ir.traversal import behind_identities, is_identity, is_read_only_by, users

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.call_steps import CallStep
    from dplcli.dpl.pattern import DominatorPattern, EdgePattern, OutputsPattern, RepeatPattern
    from dplcli.dpl.program import Program
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Graph, Node, Value


class EdgeStep(Step):
    """A consumer, one of whose inputs is the producer."""

    __slots__ = ("consumer", "edge", "producer")

    def __init__(self, pattern: EdgePattern, producer: Step, consumer: Step) -> None:
        """Match the consumer first: its inputs are few."""
        super().__init__(pattern)
        self.edge = pattern
        self.producer = producer
        self.consumer = consumer
        self.heads = consumer.heads
        self.required = consumer.required | producer.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        """Match the consumer, then look for the edge."""
        return (self.consumer, value, (_EdgeEnd(self), value, rest))

    def bound_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return what the consumer is bound to."""
        return self.consumer.bound_values_in(slots)

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


class DominatorStep(Step):
    """Relay's dominator pattern (``src/relay/ir/dataflow_matcher.cc``), with visited nodes marked.

    Every way upwards from the child, leaves aside, goes through path nodes to one and the same
    parent; nothing outside reads the parent or a path node.
    """

    __slots__ = ("child", "parent", "path")

    def __init__(self, pattern: DominatorPattern, parent: Step, path: Program, child: Step) -> None:
        """Match the child first, then parents from the nearest on."""
        super().__init__(pattern)
        self.parent = parent
        self.path = path
        self.child = child
        self.heads = child.heads
        self.required = child.required | parent.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the child; what is claimed by now lies in no region."""
        taken = frozenset(state.claimed)
        return (self.child, value, (_Region(self, taken), value, rest))

    def bound_values_in(self, slots: Sequence[object]) -> list[Value]:
        """Return what the child is bound to."""
        return self.child.bound_values_in(slots)


class _Region(Step):
    __slots__ = ("dominator", "taken")

    def __init__(self, dominator: DominatorStep, taken: AbstractSet[Node]) -> None:
        super().__init__(dominator.pattern)
        self.dominator = dominator
        self.taken = taken

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        child = None if value is None else behind_identities(value).producer
        if child is None or child.graph is not state.graph:
            return False
        walk = _Walk(self.dominator, child, state, self.taken)
        return EachStep(self, walk.ways(rest)).run(state, value, None)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        pattern = self.dominator.parent.pattern
        return f"{pattern!r} above, all of whose uses lead here", f"none above {describe(value)}"


class _Walk:
    """Looks for parents above one child."""

    def __init__(
        self, dominator: DominatorStep, child: Node, state: State, taken: AbstractSet[Node]
    ) -> None:
        self.dominator = dominator
        self.child = child
        self.state = state
        self.taken = taken
        self.on_path: dict[Node, bool] = {}

    def ways(self, rest: Goals) -> Iterator[Goals]:
        """Yield the goals for each parent that encloses a region, in depth-first order."""
        parent = self.dominator.parent
        for candidate in self._upwards():
            outputs = [v for v in candidate.outputs if v is not None and parent.is_plausible(v)]
            region = self._region(candidate) if outputs else None
            if region is None:
                continue
            for output in outputs:
                yield (_ClaimStep(self.dominator, region, self.taken), None, (parent, output, rest))

    def _upwards(self) -> Iterator[Node]:
        """Yield every node above the child that path nodes lead to."""
        seen: set[Node] = set()
        pending = list(reversed(self._above(self.child)))
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            self.state.charge(1)
            if not is_identity(node):
                yield node
            if self._is_path(node):
                pending.extend(reversed(self._above(node)))

    def _above(self, node: Node) -> list[Node]:
        """Return the nodes that make the inputs of *node*; leaves do not count."""
        made = (value.producer for value in node.inputs if value is not None)
        graph = self.state.graph
        return [n for n in made if n is not None and n.graph is graph and not _is_leaf(n)]

    def _is_path(self, node: Node) -> bool:
        if is_identity(node):
            return True
        known = self.on_path.get(node)
        if known is None:
            outputs = (output for output in node.outputs if output is not None)
            known = any(fits(self.dominator.path, output, self.state) for output in outputs)
            self.on_path[node] = known
        return known

    def _region(self, parent: Node) -> list[Node] | None:
        """Return the nodes between *parent* and the child; None if they make no region."""
        region = {self.child: None}
        pending = [self.child]
        while pending:
            node = pending.pop()
            above = self._above(node)
            self.state.charge(1)
            if not above or (node is not self.child and not self._is_path(node)):
                return None
            for upper in above:
                if upper is not parent and upper not in region:
                    region[upper] = None
                    pending.append(upper)
        inner = [parent, *(node for node in region if node is not self.child)]
        if any(_is_read_outside(node, region) for node in inner):
            return None
        return [node for node in region if node is not self.child]


def _is_leaf(node: Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _is_read_outside(node: Node, region: dict[Node, None]) -> bool:
    for output in node.outputs:
        if output is not None and (
            output.returned_by or any(user not in region for user in users(output))
        ):
            return True
    return False


class _ClaimStep(Step):
    """Take the nodes of a region into the match."""

    __slots__ = ("nodes", "taken")

    def __init__(
        self, dominator: DominatorStep, nodes: Sequence[Node], taken: AbstractSet[Node]
    ) -> None:
        super().__init__(dominator.pattern)
        self.nodes = nodes
        self.taken = taken

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        for node in self.nodes:
            if node in self.taken:
                return False
            if is_identity(node):
                state.note(node)
            elif node not in state.claimed:
                state.claim(node)
        return rest


class Anchor(NamedTuple):
    """A part that two outputs share, and how many edges it lies above the second one."""

    step: Step
    distance: int


class OutputsStep(Step):
    """Several outputs: the first at the root, each other one below something they share.

    Args:
        pattern: The pattern compiled.
        outputs: One step per output.
        slots: Where the values of the outputs are bound.
        anchors: For each output, what it may share with those before it.
    """

    __slots__ = ("anchors", "outputs", "slots")

    def __init__(
        self,
        pattern: OutputsPattern,
        outputs: Sequence[Step],
        slots: Sequence[int],
        anchors: Sequence[Sequence[Anchor]],
    ) -> None:
        """Find the outputs in order."""
        super().__init__(pattern)
        self.outputs = outputs
        self.slots = slots
        self.anchors = anchors
        self.heads = outputs[0].heads
        self.required = frozenset().union(*(step.required for step in outputs))

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the first output."""
        return self.match_one(state, 0, value, rest)

    def match_one(self, state: State, number: int, value: Value | None, rest: Goals) -> Outcome:
        """Match one output, then look for the next."""
        if value is None:
            return False
        state.bind(self.slots[number], behind_identities(value))
        if number + 1 < len(self.outputs):
            rest = (_NextOutput(self, number + 1), None, rest)
        return (self.outputs[number], value, rest)

    def candidates(self, state: State, number: int) -> Iterator[Value]:
        """Yield the values that output *number* may be, in program order."""
        for step, distance in self.anchors[number]:
            values = step.bound_values_in(state.slots)
            if values:
                yield from _below(values, distance, state)
                return
        for node in state.graph:
            yield from (output for output in node.outputs if output is not None)


class _NextOutput(Step):
    __slots__ = ("number", "whole")

    def __init__(self, whole: OutputsStep, number: int) -> None:
        super().__init__(whole.outputs[number].pattern)
        self.whole = whole
        self.number = number

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:  # noqa: ARG002
        step = self.whole.outputs[self.number]
        ways = (
            (_OneOutput(self.whole, self.number), candidate, rest)
            for candidate in self.whole.candidates(state, self.number)
            if step.is_plausible(candidate)
        )
        return EachStep(self, ways).run(state, None, None)

    def mismatch(self, state: State, value: Value | None) -> tuple[str, str]:  # noqa: ARG002
        return f"the output {self.pattern!r}", "no value that could be it"


class _OneOutput(Step):
    __slots__ = ("number", "whole")

    def __init__(self, whole: OutputsStep, number: int) -> None:
        super().__init__(whole.outputs[number].pattern)
        self.whole = whole
        self.number = number

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        return self.whole.match_one(state, self.number, value, rest)


def _below(values: Sequence[Value], distance: int, state: State) -> list[Value]:
    """Return what is made from *values* in *distance* steps, Identity nodes not counted."""
    level = list(values)
    for _ in range(distance):
        readers = _readers(level, state.graph)
        state.charge(len(readers))
        level = [out for node in readers for out in node.outputs if out is not None]
    return level


def _readers(values: Sequence[Value], graph: Graph) -> list[Node]:
    pending = list(values)
    found: dict[Node, None] = {}
    while pending:
        for user, _ in pending.pop().iter_uses():
            if user.graph is not graph:
                continue
            found[user] = None
            if is_identity(user):
                pending += [out for out in user.outputs if out is not None]
    return sorted(found, key=lambda node: node.position)
