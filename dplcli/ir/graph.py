"""Graphs: nodes in topological order.

Nested graphs (bodies of If, Loop, Scan) are graphs of their own; a value of an outer graph that
an inner node reads is simply that value, with the inner node in its use-list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dplcli.ir.codec import StatedType
    from dplcli.ir.model import Model
    from dplcli.ir.node import Node
    from dplcli.ir.value import Value

_GAP = 1 << 40
_FILLED = 1.4
"""How many more positions may be taken in a range that is twice as wide."""
_SHARE = 8
"""What is put in takes the first eighth of a gap: mostly more comes between it and what follows."""


class Graph:
    """A main graph, the body of a function, or the body of an If, Loop or Scan.

    Nodes form a linked list in topological order, each with a position label, so that insertion,
    removal and "which comes first" take constant time.

    Attributes:
        model: The model it belongs to.
        name: Graph name.
        owner: The node whose attribute it is; None for a main graph or a function body.
        inputs: Its inputs, overridable initializers included.
        outputs: What it returns; never None.
        values: Every value it defines, by name.
        source: The opaque graph it was loaded from.
        modified: Whether anything was edited since loading.
        inner: The bodies that its nodes have, in order of loading.
        erased: Names of the values taken out since loading.
        dropped: Those of them that the graph stored data for.
        stated_types: Types to state in the file for values that passes have made.
        opset_imports: Domain to version, as in force here (shared with the enclosing graph).
    """

    __slots__ = (
        "_first",
        "_last",
        "dropped",
        "erased",
        "inner",
        "inputs",
        "model",
        "modified",
        "name",
        "node_count",
        "opset_imports",
        "outputs",
        "owner",
        "source",
        "stated_types",
        "values",
    )

    def __init__(
        self, model: Model, opset_imports: dict[str, int], *, owner: Node | None = None
    ) -> None:
        """Create an empty graph."""
        self.model = model
        self.opset_imports = opset_imports
        self.name = ""
        self.owner = owner
        self.inner: list[Graph] = []
        if owner is not None:
            owner.graph.inner.append(self)
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.values: dict[str, Value] = {}
        self.source: object = None
        self.modified = False
        self.erased: set[str] = set()
        self.dropped: set[str] = set()
        self.stated_types: dict[str, StatedType] = {}
        self.node_count = 0
        self._first: Node | None = None
        self._last: Node | None = None

    def __repr__(self) -> str:
        """Show name and size."""
        return f"<Graph {self.name!r} with {self.node_count} nodes>"

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes in topological order; removing the current one is safe."""
        node = self._first
        while node is not None:
            following = node.next
            yield node
            node = following

    def __reversed__(self) -> Iterator[Node]:
        """Iterate from the last node to the first; removing the current one is safe."""
        node = self._last
        while node is not None:
            preceding = node.prev
            yield node
            node = preceding

    def clear(self) -> None:
        """Forget everything an outermost graph holds."""
        self.inputs, self.outputs, self.values, self.inner = [], [], {}, []
        self._first = self._last = None
        self.node_count = 0

    @property
    def initializers(self) -> list[Value]:
        """The values that the graph stores data for, in file order."""
        return [value for value in self.values.values() if value.is_initializer]

    def add_output(self, value: Value) -> None:
        """Return *value*, of this graph or one round it, as a further output."""
        self.outputs.append(value)
        value.returned_by += (self,)

    def and_inner(self) -> Iterator[Graph]:
        """Iterate over this graph and those inside it, outer ones first."""
        pending = [self]
        while pending:
            graph = pending.pop()
            yield graph
            pending += reversed(graph.inner)

    # -- building and editing: used by the loader and by passes.rewriter only ------------------

    def append(self, node: Node) -> None:
        """Link *node* in as the last one; its inputs must be defined already."""
        last = self._last
        if last is None:
            self._first = node
            node.position = _GAP
        else:
            last.next = node
            node.position = last.position + _GAP
        node.prev = last
        node.next = None
        self._last = node
        self.node_count += 1

    def insert_before(self, anchor: Node, node: Node) -> None:
        """Link *node* in just before *anchor*."""
        before = anchor.prev
        node.prev, node.next = before, anchor
        anchor.prev = node
        if before is None:
            self._first = node
        else:
            before.next = node
        self.node_count += 1
        low = 0 if before is None else before.position
        node.position = low + (anchor.position - low) // _SHARE
        if node.position == low:
            self._make_room(node)

    def insert_behind(self, anchor: Node, node: Node) -> None:
        """Link *node* in just behind *anchor*."""
        if anchor.next is None:
            self.append(node)
        else:
            self.insert_before(anchor.next, node)

    def unlink(self, node: Node) -> None:
        """Take *node* out of the list; its values and uses are the caller's affair."""
        if node.prev is None:
            self._first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self._last = node.prev
        else:
            node.next.prev = node.prev
        node.prev = node.next = None
        self.node_count -= 1

    def arrange(self, nodes: Iterable[Node]) -> None:
        """Put all nodes into another topological order."""
        self._first = self._last = None
        self.node_count = 0
        for node in nodes:
            self.append(node)

    def _make_room(self, node: Node) -> None:
        """Give *node*, which has no position between its neighbours', and those round it new ones.

        The smallest aligned range of positions that is sparse enough is spread out evenly, which
        costs the logarithm of the graph's size for each insertion (M. A. Bender and others, *Two
        simplified algorithms for maintaining order in a list*, ESA 2002).
        """
        centre = node.position = 0 if node.prev is None else node.prev.position
        first = last = node
        count, width, most = 1, 1, 1.0
        while True:
            width *= 2
            most *= _FILLED
            start = centre - centre % width
            while first.prev is not None and first.prev.position >= start:
                first, count = first.prev, count + 1
            while last.next is not None and last.next.position < start + width:
                last, count = last.next, count + 1
            if count <= most:
                break
        gap = width // (count + 1)
        current: Node | None = first
        for rank in range(1, count + 1):
            assert current is not None  # noqa: S101  # they were counted
            current.position = start + rank * gap
            current = current.next
