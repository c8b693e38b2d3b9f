"""What each rule has not looked at yet: so that a round costs what has changed.

The nodes of a model by operator, kept up to date by edits, and a journal of the nodes at which
something may match that did not before. MLIR's greedy driver keeps one work-list for all patterns
(``mlir/lib/Transforms/Utils/GreedyPatternRewriteDriver.cpp``); here each rule has its own place
in the journal, since rules take turns in listed order.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir import Tensor
from dplcli.ir.traversal import is_identity
from dplcli.passes.selection import matchable_graphs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Graph, Model, Node, Value

    OpKey: TypeAlias = tuple[str, str]

_POSITION = attrgetter("position")


_MOST_SIZES = 64


class Worklist:
    """A listener that knows, for each rule, the candidates that are new to it.

    Args:
        model: The model that is being edited.
        reach: How many nodes above its root a match may depend on, at most.
    """

    def __init__(self, model: Model, reach: int) -> None:
        """List the nodes of *model*."""
        self.reach = reach
        self.graphs = matchable_graphs(model)
        self._nodes: dict[Graph, dict[OpKey, dict[Node, None]]] = {}
        self._journal: dict[OpKey, list[Node]] = {}
        self._changed: dict[Value, None] = {}
        self._sizes: set[Value] = set()
        self.has_new_sizes = False
        self.edits = 0
        for graph in self.graphs:
            of_graph = self._nodes[graph] = {}
            for node in graph:
                of_graph.setdefault((node.domain, node.op_type), {})[node] = None

    # -- listening -----------------------------------------------------------------------------

    def node_inserted(self, node: Node) -> None:
        """List a new node, and let every rule look at it."""
        key = (node.domain, node.op_type)
        self._nodes[node.graph].setdefault(key, {})[node] = None
        self._journal.setdefault(key, []).append(node)
        self.edits += 1

    def node_erased(self, node: Node) -> None:
        """Strike a node that has gone."""
        self._nodes[node.graph][node.domain, node.op_type].pop(node, None)
        for body in node.subgraphs.values():
            for graph in body.and_inner():
                self._nodes.pop(graph, None)
        self.edits += 1

    def value_changed(self, value: Value) -> None:
        """Remember that what lies below *value* must be looked at again."""
        self._changed[value] = None
        if value.producer is None and value not in self._sizes and _is_size(value):
            self._sizes.add(value)
            self.has_new_sizes = True

    def takes_new_sizes(self) -> bool:
        """Tell whether constants that may be sizes were made since this was asked last."""
        answer, self.has_new_sizes = self.has_new_sizes, False
        return answer

    # -- asking --------------------------------------------------------------------------------

    def is_listed(self, node: Node) -> bool:
        """Tell whether *node* is still in its graph."""
        of_graph = self._nodes.get(node.graph)
        return of_graph is not None and node in of_graph.get((node.domain, node.op_type), ())

    def has_any(self, graph: Graph, ops: Iterable[OpKey]) -> bool:
        """Tell whether *graph* has a node of one of the operators."""
        of_graph = self._nodes.get(graph, {})
        return any(of_graph.get(op) for op in ops)

    def all_of(self, graph: Graph, heads: Iterable[OpKey] | None) -> list[Node]:
        """Return the nodes of *graph* of the operators *heads*, in topological order."""
        of_graph = self._nodes.get(graph, {})
        keys = of_graph.keys() if heads is None else heads
        nodes = [node for key in keys for node in of_graph.get(key, ())]
        nodes.sort(key=_POSITION)
        return nodes

    def new_since(
        self, seen: dict[OpKey, int], heads: AbstractSet[OpKey] | None
    ) -> dict[Graph, list[Node]]:
        """Return the nodes to look at again, by graph, in topological order.

        Args:
            seen: How much of the journal was read before, by operator; it is brought up to date.
            heads: The operators of interest; None for all.
        """
        self._note_what_lies_below()
        keys = (
            list(self._journal) if heads is None else [key for key in heads if key in self._journal]
        )
        found: dict[Graph, dict[Node, None]] = {}
        for key in keys:
            entries = self._journal[key]
            for node in entries[seen.get(key, 0) :]:
                if self.is_listed(node):
                    found.setdefault(node.graph, {})[node] = None
            seen[key] = len(entries)
        return {
            graph: sorted(found[graph], key=_POSITION) for graph in self.graphs if graph in found
        }

    def forget_before(self) -> dict[OpKey, int]:
        """Return a place in the journal from which nothing that is in it now is new."""
        self._note_what_lies_below()
        return {key: len(entries) for key, entries in self._journal.items()}

    def _note_what_lies_below(self) -> None:
        """Enter in the journal the nodes that a changed value may concern."""
        changed, self._changed = self._changed, {}
        seen: dict[Value, None] = dict.fromkeys(changed)
        noted: set[Node] = set()
        for value in changed:
            if value.producer is not None:
                self._note(value.producer, noted)
                seen.update((out, None) for out in value.producer.outputs if out is not None)
        level = list(seen)
        for _ in range(self.reach):
            below: list[Value] = []
            pending = level
            while pending:
                value = pending.pop()
                for node, _slot in value.iter_uses():
                    if node in noted:
                        continue
                    self._note(node, noted)
                    made = [out for out in node.outputs if out is not None and out not in seen]
                    seen.update(dict.fromkeys(made))
                    (pending if is_identity(node) else below).extend(made)
            level = below

    def _note(self, node: Node, noted: set[Node]) -> None:
        noted.add(node)
        if node.graph in self._nodes:
            self._journal.setdefault((node.domain, node.op_type), []).append(node)


def _is_size(value: Value) -> bool:
    """Tell whether *value* is a constant that a pass made and that shapes may depend on."""
    tensor = value.initializer_source
    if not isinstance(tensor, Tensor) or not tensor.dtype.startswith("int"):
        return False
    return tensor.size <= _MOST_SIZES
