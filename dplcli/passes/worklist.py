"""What each rule has not looked at yet: so that a round costs what has changed.

The nodes of a model by operator, kept up to date by edits, and a journal of the nodes at which
something may match that did not before. MLIR's greedy driver keeps one work-list for all patterns
(``mlir/lib/Transforms/Utils/GreedyPatternRewriteDriver.cpp``); here each rule has its own place
in the journal, since rules take turns in listed order.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.ir import Tensor
from dplcli.ir.traversal import captured_values, enclosing_node, is_identity
from dplcli.passes.selection import matchable_graphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Graph, Model, Node, Value

    OpKey: TypeAlias = tuple[str, str]
    Seen: TypeAlias = tuple[dict[OpKey, int], ...]

_POSITION = attrgetter("position")


_MOST_SIZES = 64


class Concern(NamedTuple):
    """What of a graph a list of rules can see from the nodes that it looks at.

    Attributes:
        heads: The operators of those nodes; None for all.
        inner: The operators of the nodes above them that a match may have; None for all.
        reach: How many nodes lie one above the other in a match, at most.
        largest: How many nodes a match has, at most.
        counts_uses: Whether it matters to some rule how often its leaves are read.
    """

    heads: frozenset[OpKey] | None
    inner: frozenset[OpKey] | None
    reach: int
    largest: int
    counts_uses: bool

    @classmethod
    def of(cls, rules: Sequence[RewriteRule]) -> Concern:
        """Sum up *rules*; those that look further are not asked how far."""
        local = [rule for rule in rules if rule.reach is not None]
        return cls(
            _union([rule.heads for rule in rules]),
            _union([rule.inner_operators for rule in local]),
            max((rule.reach or 0 for rule in local), default=0),
            max((rule.largest_match for rule in rules), default=0),
            any(rule.counts_uses for rule in rules),
        )


def _union(sets: Sequence[frozenset[OpKey] | None]) -> frozenset[OpKey] | None:
    known = [ops for ops in sets if ops is not None]
    return frozenset().union(*known) if len(known) == len(sets) else None


class Journal:
    """Nodes to look at again, by operator, in the order in which they were noted."""

    def __init__(self) -> None:
        """Begin with none."""
        self._entries: dict[OpKey, list[Node]] = {}

    def add(self, node: Node) -> None:
        """Note *node*."""
        self._entries.setdefault((node.domain, node.op_type), []).append(node)

    def end(self) -> dict[OpKey, int]:
        """Return the place behind which everything is new from now on."""
        return {key: len(entries) for key, entries in self._entries.items()}

    def since(self, seen: dict[OpKey, int], heads: AbstractSet[OpKey] | None) -> Iterator[Node]:
        """Yield what was noted behind *seen*, which is brought up to date."""
        keys = list(self._entries) if heads is None else self._entries.keys() & heads
        for key in keys:
            entries = self._entries[key]
            yield from entries[seen.get(key, 0) :]
            seen[key] = len(entries)


class Worklist:
    """A listener that knows, for each rule, the candidates that are new to it.

    What follows from other readers of a value is kept apart: most rules do not care how often
    their leaves are read, and a weight may have very many readers.

    Args:
        model: The model that is being edited.
        concern: What the rules can see.
    """

    def __init__(self, model: Model, concern: Concern) -> None:
        """List the nodes of *model*."""
        self.concern = concern
        self.graphs = matchable_graphs(model)
        self._nodes: dict[Graph, dict[OpKey, dict[Node, None]]] = {}
        self._journals = (Journal(), Journal())
        self._changed: dict[Value, None] = {}
        self._rewired: dict[Node, None] = {}
        self._recounted: dict[Value, None] = {}
        self.has_new_sizes = False
        self.edits = 0
        for graph in self.graphs:
            self._list(graph)

    def _list(self, graph: Graph) -> None:
        of_graph = self._nodes[graph] = {}
        for node in graph:
            of_graph.setdefault((node.domain, node.op_type), {})[node] = None

    # -- listening -----------------------------------------------------------------------------

    def node_inserted(self, node: Node) -> None:
        """List a new node, and let every rule look at it."""
        key = (node.domain, node.op_type)
        self._nodes[node.graph].setdefault(key, {})[node] = None
        self._journals[0].add(node)
        self._recount(node)
        self.edits += 1

    def node_erased(self, node: Node) -> None:
        """Strike a node that has gone."""
        self._nodes[node.graph][node.domain, node.op_type].pop(node, None)
        for body in node.subgraphs.values():
            for graph in body.and_inner():
                self._nodes.pop(graph, None)
        self._recount(node)
        self.edits += 1

    def _recount(self, node: Node) -> None:
        """Remember that what *node* reads has other readers."""
        recounted = self._recounted
        for value in node.inputs:
            if value is not None:
                recounted[value] = None
        if node.subgraphs:
            recounted.update(dict.fromkeys(captured_values(node)))

    def graph_added(self, graph: Graph) -> None:
        """List a new function's body, and let every rule look at it."""
        self.graphs.append(graph)
        self._list(graph)
        for node in graph:
            self._journals[0].add(node)
        self.edits += 1

    def value_changed(self, value: Value) -> None:
        """Remember that what lies below *value* must be looked at again."""
        self._changed[value] = None

    def inputs_changed(self, node: Node) -> None:
        """Remember that *node* must be looked at again, and what lies below it."""
        self._rewired[node] = None

    def readers_changed(self, value: Value) -> None:
        """Remember that what depends on how often *value* is read must be looked at again."""
        self._recounted[value] = None

    def constant_made(self, value: Value) -> None:
        """Remember that shapes may be known that were not, if *value* can be a size."""
        self.has_new_sizes = self.has_new_sizes or _is_size(value)

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
        self, seen: Seen, heads: AbstractSet[OpKey] | None, *, counts_uses: bool = True
    ) -> dict[Graph, list[Node]]:
        """Return the nodes to look at again, by graph, in topological order.

        Args:
            seen: How much of the journals was read before; it is brought up to date.
            heads: The operators of interest; None for all.
            counts_uses: Whether it matters how often leaves are read.
        """
        self._note_what_lies_below()
        found: dict[Graph, dict[Node, None]] = {}
        journals = self._journals if counts_uses else self._journals[:1]
        for journal, place in zip(journals, seen, strict=False):
            for node in journal.since(place, heads):
                if self.is_listed(node):
                    found.setdefault(node.graph, {})[node] = None
        return {
            graph: sorted(found[graph], key=_POSITION) for graph in self.graphs if graph in found
        }

    def forget_before(self) -> Seen:
        """Return a place in the journals from which nothing that is in them now is new."""
        self._note_what_lies_below()
        return tuple(journal.end() for journal in self._journals)

    def _note_what_lies_below(self) -> None:
        """Enter in the journals the nodes that edits may concern."""
        changed, self._changed = self._changed, {}
        rewired, self._rewired = self._rewired, {}
        recounted, self._recounted = self._recounted, {}
        inner = [value for value in recounted if self._may_be_inner(value)]
        self._note_below([*changed, *inner], rewired, self._journals[0])
        if self.concern.counts_uses:
            self._note_below([*recounted], (), self._journals[1])

    def _may_be_inner(self, value: Value) -> bool:
        """Tell whether all that read *value* may lie in one match: it has not too many readers."""
        if value.producer is None or value.returned_by:
            return False
        if value.use_count <= self.concern.largest:
            return True
        readers: set[Node | None] = set()
        for node, _slot in value.iter_uses():
            if not is_identity(node):
                readers.add(enclosing_node(node, value.graph))
                if len(readers) > self.concern.largest:
                    return False
        return True

    def _note_below(
        self, values: Sequence[Value], readers: Iterable[Node], journal: Journal
    ) -> None:
        """Note what makes *values* and their *readers*, and what lies within reach below."""
        seen = dict.fromkeys(values)
        noted: set[Node] = set()
        for value in values:
            if value.producer is not None:
                self._note(value.producer, noted, journal)
                seen.update((out, None) for out in value.producer.outputs if out is not None)
        level: list[Value] = list(seen)
        below: list[Value] = []
        for node in readers:
            self._note(node, noted, journal)
            self._pass(node, seen, level, below)
        for _ in range(self.concern.reach):
            while level:
                for node, _slot in level.pop().iter_uses():
                    if node not in noted:
                        self._note(node, noted, journal)
                        self._pass(node, seen, level, below)
            level, below = below, []

    def _note(self, node: Node, noted: set[Node], journal: Journal) -> None:
        noted.add(node)
        heads = self.concern.heads
        if (heads is None or (node.domain, node.op_type) in heads) and node.graph in self._nodes:
            journal.add(node)

    def _pass(
        self, node: Node, seen: dict[Value, None], level: list[Value], below: list[Value]
    ) -> None:
        """Go on from *node* to what reads it, if a match can hold both."""
        inner = self.concern.inner
        if is_identity(node):
            level += _new_outputs(node, seen)
        elif inner is None or (node.domain, node.op_type) in inner:
            below += _new_outputs(node, seen)


def _new_outputs(node: Node, seen: dict[Value, None]) -> list[Value]:
    """List the outputs of *node* that are not in *seen*, and enter them."""
    made = [output for output in node.outputs if output is not None and output not in seen]
    seen.update(dict.fromkeys(made))
    return made


def _is_size(value: Value) -> bool:
    """Tell whether *value* is a constant that a pass made and that shapes may depend on."""
    tensor = value.initializer_source
    if not isinstance(tensor, Tensor) or not tensor.dtype.startswith("int"):
        return False
    return tensor.size <= _MOST_SIZES
