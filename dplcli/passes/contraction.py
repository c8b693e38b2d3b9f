"""Contract nodes of a graph to one, two sets at a time, as long as no cycle comes of it.

TVM's MergeCompositeFunctions notes for each group what it depends on when the group is made, and
forgets that groups which it depends on grow later. Here nothing is noted that can become wrong:
every question is answered by a search over the graph as it is contracted by then. The search goes
from both ends in turns and never leaves the stretch between them in the node list, and a
successful one moves the fewer nodes out of that stretch, so that they are not met again: the two
ends of one edge of a long chain are next to each other (two-way search over an ordered list, after
M. A. Bender, J. T. Fineman, S. Gilbert and R. E. Tarjan, *A new approach to incremental cycle
detection and related problems*, 2016).
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from dplcli.ir.traversal import captured_values, enclosing_node
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dplcli.ir import Graph, Node, Value


class Contraction:
    """A graph in which some sets of nodes count as one node each.

    A set is known by one of its members. It has one place in the node list, that of the member
    where a call instead of the whole set would have to stand; the list is kept in topological
    order of the sets by moving nodes, and the places of the other members mean nothing any more.

    Args:
        graph: The graph; not to be edited meanwhile.

    Attributes:
        steps: How many edges were looked at so far.
    """

    def __init__(self, graph: Graph) -> None:
        """Let every node of *graph* be a set of its own."""
        self.graph = graph
        self.steps = 0
        self._rewriter = GraphRewriter(graph)
        self._parent: dict[Node, Node] = {}
        self._members: dict[Node, list[Node]] = {}
        self._place: dict[Node, Node] = {}
        self._apart: dict[Node, set[Node]] = {}
        self._behind: dict[Node, set[Node]] = {}
        self._ahead: dict[Node, set[Node]] = {}
        self._captured: dict[Node, list[Value]] = {}

    def find(self, node: Node) -> Node:
        """Return the member by which the set of *node* is known."""
        parent = self._parent
        while (above := parent.get(node)) is not None:
            higher = parent.get(above)
            if higher is None:
                return above
            parent[node] = higher
            node = higher
        return node

    def members(self, node: Node) -> list[Node]:
        """Return the set of *node*, in no particular order."""
        known = self.find(node)
        return self._members.get(known) or [known]

    def place(self, node: Node) -> Node:
        """Return the node where a call instead of the set of *node* has to stand."""
        known = self.find(node)
        return self._place.get(known, known)

    def position(self, node: Node) -> int:
        """Return where the set of *node* stands in the node list."""
        return self.place(node).position

    def merge(self, first: Node, last: Node) -> bool:
        """Make one set of those of *first* and of *last*, which reads what the other makes.

        Returns:
            Whether they are one set now; not if a path leads from one to the other through a
            third. Such a pair is not looked at again: the callers' sets are told apart for good.
        """
        first, last = self.find(first), self.find(last)
        if first is last:
            return True
        if last in self._apart.get(first, ()):
            return False
        moved = self._search(first, last)
        if moved is None:
            self._apart.setdefault(first, set()).add(last)
            self._apart.setdefault(last, set()).add(first)
            return False
        self._unite(first, last, moved)
        return True

    def _search(self, first: Node, last: Node) -> _Front | None:
        """Return what is on one side between the two, all of it; None if a path leads across."""
        down = _Front(first, last, self._successors, self._ahead)
        up = _Front(last, first, self._predecessors, self._behind)
        low, high = self.position(first), self.position(last)
        while True:
            for front, opposite in ((up, down), (down, up)):
                edge = next(front.edges, None)
                if edge is None:
                    return front
                self.steps += 1
                origin, node = edge
                if node in front.reached or node is front.start:
                    continue
                if node is front.goal and origin is front.start:
                    continue
                if node is not front.goal and not low < self.position(node) < high:
                    continue
                if node is front.goal or node in opposite.reached or front.is_known(node):
                    self._remember([*front.way_to(origin), *opposite.way_to(node)], first, last)
                    return None
                front.reached[node] = origin
                front.pending.append(node)

    def _remember(self, path: Iterable[Node], first: Node, last: Node) -> None:
        """Spare later searches with the same start or goal the way that this one went."""
        for node in path:
            self._ahead.setdefault(node, set()).add(last)
            self._behind.setdefault(node, set()).add(first)

    def _successors(self, known: Node) -> Iterator[Node]:
        for member in self._members.get(known, (known,)):
            for value in member.outputs:
                if value is not None:
                    yield from map(self.find, self._readers(value))

    def _readers(self, value: Value) -> Iterator[Node]:
        """As :func:`dplcli.ir.traversal.users`, but one at a time: mostly few are asked for."""
        for user, _ in value.iter_uses():
            reader = user if user.graph is self.graph else enclosing_node(user, self.graph)
            if reader is not None:
                yield reader
        for body in value.returned_by:
            if body.owner is not None:
                reader = enclosing_node(body.owner, self.graph)
                if reader is not None:
                    yield reader

    def _predecessors(self, known: Node) -> Iterator[Node]:
        for member in self._members.get(known, (known,)):
            for value in chain(member.inputs, self._captures(member)):
                if value is not None and value.producer is not None and value.graph is self.graph:
                    yield self.find(value.producer)

    def _captures(self, node: Node) -> Iterable[Value]:
        if not node.subgraphs:
            return ()
        known = self._captured.get(node)
        if known is None:
            known = self._captured[node] = captured_values(node)
        return known

    def _unite(self, first: Node, last: Node, moved: _Front) -> None:
        """Make one set of two that nothing lies between once what *moved* reached has gone."""
        between = [self._place.get(node, node) for node in moved.reached]
        between.sort(key=lambda node: node.position)
        place = self.place(moved.goal)
        if moved.goal is last:
            self._rewriter.move_behind(place, between)
        else:
            self._rewriter.move_before(place, between)
        few, many = last, first
        if len(self.members(few)) > len(self.members(many)):
            few, many = many, few
        self._parent[few] = many
        self._members.setdefault(many, [many]).extend(self._members.pop(few, [few]))
        self._place.pop(few, None)
        self._place[many] = place
        for other in self._apart.pop(few, ()):
            self._apart[other].discard(few)
            self._apart[other].add(many)
            self._apart.setdefault(many, set()).add(other)


class _Front:
    """What one end of a search has reached, breadth first.

    Args:
        start: The set it starts from.
        goal: The set it looks for.
        neighbours: Where it can go from a set, the set itself included.
        known: For each set, from which ones earlier searches found a way to the goal.
    """

    def __init__(
        self,
        start: Node,
        goal: Node,
        neighbours: Callable[[Node], Iterator[Node]],
        known: dict[Node, set[Node]],
    ) -> None:
        self.start = start
        self.goal = goal
        self.reached: dict[Node, Node] = {}
        self.pending = deque([start])
        self.edges = self._walk(neighbours)
        self._known = known

    def _walk(self, neighbours: Callable[[Node], Iterator[Node]]) -> Iterator[tuple[Node, Node]]:
        while self.pending:
            origin = self.pending.popleft()
            for node in neighbours(origin):
                yield origin, node

    def way_to(self, node: Node) -> Iterator[Node]:
        """List the sets on the way from the start, left out, to *node*, last first."""
        while node is not self.start:
            yield node
            if node not in self.reached:
                return
            node = self.reached[node]

    def is_known(self, node: Node) -> bool:
        """Tell whether an earlier search found that *node* leads to the goal."""
        return self.goal in self._known.get(node, ())
