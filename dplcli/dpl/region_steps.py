"""The step for dominated regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.logic_steps import EachStep
from dplcli.dpl.search import fits
from dplcli.dpl.state import describe
from dplcli.dpl.steps import Step
from dplcli.ir.traversal import behind_identities, is_identity, users

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.pattern import DominatorPattern
    from dplcli.dpl.program import Program
    from dplcli.dpl.state import State
    from dplcli.dpl.steps import Goals, Outcome
    from dplcli.ir import Node, Value


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
        self.stands_for = child
        self.heads = child.heads
        self.required = child.required | parent.required

    def run(self, state: State, value: Value | None, rest: Goals) -> Outcome:
        """Match the child; what is claimed by now lies in no region."""
        taken = frozenset(state.claimed)
        return (self.child, value, (_Region(self, taken), value, rest))


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
        self.leaves: dict[Value, bool] = {}

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
        made = (value for value in node.inputs if value is not None)
        inner = (value.producer for value in made if not self._copies_leaf(value))
        return [node for node in inner if node is not None]

    def _copies_leaf(self, value: Value) -> bool:
        """Tell whether *value* is a leaf, or a copy of one by Identity nodes."""
        copies: list[Value] = []
        current = value
        while current not in self.leaves and is_identity(current.producer):
            copies.append(current)
            source = current.producer.inputs[0] if current.producer is not None else None
            if source is None:
                break
            current = source
        known = self.leaves.get(current)
        is_leaf = self._is_leaf(current) if known is None else known
        self.leaves.update(dict.fromkeys(copies, is_leaf))
        return is_leaf

    def _is_leaf(self, value: Value) -> bool:
        """Tell whether *value* is an input, a constant, or captured."""
        maker = value.producer
        return maker is None or maker.graph is not self.state.graph or value.is_constant

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
