"""Merge neighbouring partitions of one target into regions; drop what is not worth a call."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dplcli.ir import Function, Value
from dplcli.ir.model import NODES_KEY, Remarks, called_function
from dplcli.ir.operators import HEAVY
from dplcli.ir.traversal import captured_values, enclosing_node
from dplcli.keys import keys
from dplcli.passes.inline import inline
from dplcli.passes.partition import (
    OPSET_OF_UNDECLARED,
    describe_type,
    encode_json,
    names_behind,
    remarks_by_number,
    stated_of,
    told_order,
)
from dplcli.passes.records import (
    CODEGEN_KEY,
    UNDO_KEY,
    call_of_written,
    is_for_target,
    is_partition,
    is_region,
    is_written,
    read_call,
    read_entries,
)
from dplcli.passes.rewriter import (
    BodyWriter,
    GraphRewriter,
    attribute_key,
    claim,
    inherit_devices,
    lowest_rank_first,
    nodes_run_by,
    object_to_devices,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Attribute, Graph, Model, Node

    Structure: TypeAlias = tuple[object, ...]


# Contract nodes of a graph to one, two sets at a time, as long as no cycle comes of it.
#
# TVM's MergeCompositeFunctions notes what a group depends on when the group is made, and misses
# that those groups grow later. Here every question is answered by a search over the graph as it is
# contracted at that time. The search goes from both ends in turns, and stays between the two in the
# node list. A search that finds no path moves the smaller side out of the way, so that later
# searches do not meet it again. This is two-way search over an ordered list, after M. A. Bender,
# J. T. Fineman, S. Gilbert and R. E. Tarjan, *A new approach to incremental cycle detection and
# related problems*, 2016.


class Contraction:
    """A graph in which some sets of nodes count as one node each.

    A set is known by one of its members. It has one place in the node list, that of the member
    where a call instead of the whole set would have to stand; the list is kept in topological
    order of the sets by moving nodes, and the places of the other members mean nothing any more.

    Args:
        graph: The graph; not to be edited meanwhile.
    """

    def __init__(self, graph: Graph) -> None:
        """Let every node of *graph* be a set of its own."""
        self.graph = graph
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
        leader = self.find(node)
        return self._members.get(leader) or [leader]

    def place(self, node: Node) -> Node:
        """Return the node where a call instead of the set of *node* has to stand."""
        leader = self.find(node)
        return self._place.get(leader, leader)

    def position(self, node: Node) -> int:
        """Return where the set of *node* stands in the node list."""
        return self.place(node).position

    def merge(self, first: Node, last: Node) -> bool:
        """Make one set of those of *first* and of *last*, which reads what the other makes.

        Returns:
            Whether they are one set now. They are not if a path leads from one to the other
            through a third. That answer is final and is remembered.
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
        # Make one set of two, and move what *moved* reached from between them.
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
        return True

    def _search(self, first: Node, last: Node) -> _Front | None:
        """Return one side with all that it reached between the two; None if a path joins them."""
        down = _Front(first, last, self._successors, self._ahead)
        up = _Front(last, first, self._predecessors, self._behind)
        low, high = self.position(first), self.position(last)
        while True:
            for front, opposite in ((up, down), (down, up)):
                edge = next(front.edges, None)
                if edge is None:
                    return front
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
        """Remember for later searches that *path* leads from *first* to *last*."""
        for node in path:
            self._ahead.setdefault(node, set()).add(last)
            self._behind.setdefault(node, set()).add(first)

    def _successors(self, leader: Node) -> Iterator[Node]:
        for member in self._members.get(leader, (leader,)):
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

    def _predecessors(self, leader: Node) -> Iterator[Node]:
        for member in self._members.get(leader, (leader,)):
            for value in chain(member.inputs, self._captures(member)):
                if value is not None and value.producer is not None and value.graph is self.graph:
                    yield self.find(value.producer)

    def _captures(self, node: Node) -> Iterable[Value]:
        if not node.subgraphs:
            return ()
        captured = self._captured.get(node)
        if captured is None:
            captured = self._captured[node] = captured_values(node)
        return captured


@dataclass
class _Front:
    """What one end of a search has reached, breadth first.

    Attributes:
        start: The set it starts from.
        goal: The set it looks for.
        neighbours: Where it can go from a set, the set itself included.
        known: By set, the goals to which earlier searches found a way.
    """

    start: Node
    goal: Node
    neighbours: Callable[[Node], Iterator[Node]]
    known: dict[Node, set[Node]]

    def __post_init__(self) -> None:
        self.reached: dict[Node, Node] = {}
        self.pending = deque([self.start])
        self.edges = self._walk()

    def _walk(self) -> Iterator[tuple[Node, Node]]:
        while self.pending:
            origin = self.pending.popleft()
            for node in self.neighbours(origin):
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
        return self.goal in self.known.get(node, ())


# Where the calls of regions go. All nodes stay in order, as far as that is possible.


def arranged(
    nodes: Sequence[Node], sets: Sequence[Sequence[Node]]
) -> tuple[list[Node], dict[Node, list[Node]]]:
    """Bring the nodes of a graph into an order in which each set stands in one row.

    Each set goes where its last node is; what has to follow one goes right behind it.

    Args:
        nodes: The nodes, in topological order.
        sets: Sets that can be contracted without a cycle, each in that order.

    Returns:
        The order, and by its last node what had to move behind each set.
    """
    rank = {node: number for number, node in enumerate(nodes)}
    unit = {node: members[-1] for members in sets for node in members}
    rows = {members[-1]: members for members in sets}
    makers: dict[Node, set[Node]] = {}
    for node in nodes:
        last = unit.get(node, node)
        needed = {unit.get(maker, maker) for maker in _makers(node) if maker in rank}
        makers.setdefault(last, set()).update(needed - {last})
    moved: dict[Node, list[Node]] = {last: [] for last in rows}
    order: list[Node] = []
    latest: Node | None = None
    for node in lowest_rank_first(makers, {node: (number,) for node, number in rank.items()}):
        if latest is not None and rank[node] < rank[latest]:
            moved[latest].append(node)
        elif node in rows:
            latest = node
        order += rows.get(node, (node,))
    return order, moved


def _makers(node: Node) -> set[Node]:
    """Return what makes the values that *node* or a body of it reads, in whatever graph."""
    read = (*node.inputs, *captured_values(node)) if node.subgraphs else node.inputs
    return {value.producer for value in read if value is not None and value.producer is not None}


# Write a region, which is a set of calls of one target, as a function that makes those calls.
#
# A call of such a function carries what any call of dpl's functions does: under ``dpl.nodes`` one
# entry per node of the body, which here is a call of a partition: what it calls, its name, the
# names of what it makes. Under ``dpl.undo``, by the number of the entry, is what else there was
# of it:
#
# ==============  ==================================================================================
# ``run``         how many runs of dpl the graph had been through before: calls of a later run are
#                                 undone first
# ``remarks``     ``{"0": {"metadata": {…}}}``: what each call carried, its own ``dpl.nodes`` and
#                                 ``dpl.undo`` included
# ``types``       what the file stated of values that only the region reads, as for partitions
# ``order``, ``behind``  how they stood, as for partitions
# ==============  ==================================================================================
#
# The calls in the body carry nothing: they stand for other nodes each time the function is called.


@dataclass(frozen=True, slots=True)
class RegionOutline:
    """A set of calls of partitions as one call to be.

    Attributes:
        calls: The calls, in order.
        inputs: What the new call reads: each value once, in order of first use.
        outputs: What it makes: what others than *calls* read.
        attributes: What it passes on from the function that its graph is the body of.
        structure: Equal for sets of calls that do the same.
    """

    calls: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    attributes: Mapping[str, Attribute]
    structure: Structure

    @property
    def domain(self) -> str:
        """The target."""
        return self.calls[0].domain

    def metadata(
        self, run: int, behind: Mapping[str, str], moved: Iterable[Node]
    ) -> Mapping[str, str]:
        """Return what the new call carries.

        Args:
            run: How many runs of dpl the graph has been through.
            behind: The order of the graph.
            moved: The nodes that had to move behind the call.
        """
        nodes = [
            [c.qualified_op, c.name, ["" if v is None else v.name for v in c.outputs]]
            for c in self.calls
        ]
        # Write down what the file states of values that are inside from now on.
        types: dict[str, object] = {}
        leaving = set(self.outputs)
        for number, call in enumerate(self.calls):
            for value in call.made:
                stated = None if value in leaving else stated_of(value)
                if stated is not None:
                    key = f"{number}.{value.index}" if value.index else f"{number}"
                    types[key] = describe_type(stated)
        rest: dict[str, Any] = {
            "run": run,
            "remarks": remarks_by_number(call.remarks for call in self.calls),
            "types": types,
            "order": told_order(self.calls, behind),
            "behind": {node.first_output: behind[node.first_output] for node in moved},
        }
        rest = {key: value for key, value in rest.items() if value}
        return {NODES_KEY: encode_json(nodes), UNDO_KEY: encode_json(rest)}


def outline_region(calls: Sequence[Node]) -> RegionOutline:
    """Work out interface and structure of a set of calls, which are in order."""
    # What is read by others than *calls*.
    members = set(calls)
    outputs = [value for call in calls for value in call.made]
    read = [
        value
        for value in outputs
        if value.returned_by or any(user not in members for user, _ in value.iter_uses())
    ]
    outputs = read or outputs[-1:]
    number_of: dict[Value, object] = {}
    inputs: dict[Value, int] = {}
    passed: dict[str, Attribute] = {}
    known: dict[int, object] = {}
    structure: list[object] = []
    for number, call in enumerate(calls):
        wires = []
        for value in call.inputs:
            if value is not None and value not in number_of:
                inputs.setdefault(value, len(inputs))
            wires.append(None if value is None else number_of.get(value, inputs.get(value)))
        number_of |= {value: (number, value.index) for value in call.made}
        present = tuple([value is not None for value in call.outputs])
        frozen = known.get(id(call.attributes))
        if frozen is None:
            items = sorted(call.attributes.items())
            frozen = tuple([(name, attribute_key(attribute)) for name, attribute in items])
            known[id(call.attributes)] = frozen
        structure += [called_function(call), tuple(wires), present, frozen]
        passed |= {item.ref: item for item in call.attributes.values() if item.ref}
    structure += [number_of[value] for value in outputs]
    structure.append(calls[0].graph.opset_imports.get(calls[0].domain, 0))
    return RegionOutline(calls, list(inputs), outputs, passed, tuple(structure))


def make_region(model: Model, outline: RegionOutline, name: str) -> Function:
    """Write the function for *outline*."""
    domain = outline.domain
    # A file may call functions of a domain that it does not import: onnx's checker lets it.
    opset = model.opset_imports.setdefault(domain, OPSET_OF_UNDECLARED)
    opset = outline.calls[0].graph.opset_imports.setdefault(domain, opset)
    body = BodyWriter(model, name, {domain: opset})
    # Name the inputs after those of the functions that read them.
    values: dict[Value, Value] = {}
    wanted = set(outline.inputs)
    for call in outline.calls:
        for value, formal in zip_longest(call.inputs, _called(call).body.inputs):
            if value in wanted and value not in values:
                values[value] = body.add_input("x" if formal is None else formal.name)
    for number, call in enumerate(outline.calls):
        label = f"{call.op_type}_{number}"
        names = ["" if each is None else f"{label.lower()}_out" for each in call.outputs]
        inputs = [None if read is None else values[read] for read in call.inputs]
        operator = (domain, call.op_type, call.overload)
        node = body.add_node(operator, label, inputs, call.attributes, names)
        pairs = zip(call.outputs, node.outputs, strict=True)
        values |= {each: value for each, value in pairs if each is not None and value is not None}
    for output in outline.outputs:
        body.graph.add_output(values[output])
    function = Function(domain, name, body.graph)
    function.attributes = tuple(outline.attributes)
    function.metadata = {CODEGEN_KEY: domain}
    return function


def _called(call: Node) -> Function:
    function = called_function(call)
    assert function is not None  # noqa: S101  # see sets_in
    return function


# Merge neighbouring partitions of one target into regions.
#
# After Relax's ``MergeCompositeFunctions`` and Relay's ``MergeCompilerRegions`` with
# ``PartitionGraph``. A region is the largest set of calls that hang together by values one makes
# and another reads, and that may become one call: nothing else leads from one of them to another.
# Regions are made in one scope at a time and never span two.


REGION_NAME = "region"
"""Name of the functions that regions become: ``dnnl::region``, ``dnnl::region_1``, …

A region is whatever one model has side by side, so its name cannot be a contract as that of a
partition is. It says that it is a region, and is the same whenever the same model is partitioned.
"""


@keys(
    "target=function.domain function call=call.name scope=call.scope partitions "
    "inputs=call.read outputs=call.made"
)
class Region(NamedTuple):
    """What a target is handed as one.

    Attributes:
        function: The function called: a region's, or a partition's that has no neighbour.
        call: The call.
        members: The calls that it took the place of; none if it was there before.
        partitions: Names of the calls of partitions inside; its own if it is one.
    """

    function: Function
    call: Node
    members: tuple[Node, ...]
    partitions: tuple[str, ...]


def merge_partitions(
    model: Model,
    reserved: Iterable[str] = (),
    stays_apart: Callable[[Sequence[Node]], bool] = lambda _: False,
) -> list[Region]:
    """Merge the calls of partitions, whoever wrote them, of all targets.

    The model is edited in place; where no two partitions are neighbours it is left as it is.

    Args:
        model: The model.
        reserved: Names that no region's function may have: those of rules.
        stays_apart: Tells of the calls of a region to be whether they are left alone.

    Returns:
        Every region, in program order.
    """
    written = {function.body for function in model.functions.values() if is_written(function)}
    scopes = [graph for graph in model.graphs() if graph not in written]
    merger = _Merger(model, reserved, stays_apart)  # what is there keeps its names to itself
    _part_growing(model, scopes, stays_apart)
    regions = [region for graph in scopes for region in merger.merge(graph)]
    merger.add_functions()
    return regions


def _part_growing(
    model: Model, scopes: Sequence[Graph], stays_apart: Callable[[Sequence[Node]], bool]
) -> None:
    """Put the calls of partitions back for those of regions that become part of larger ones."""
    stuck: set[Node] = set()
    while any(map(is_region, model.functions.values())):
        sets = [calls for graph in scopes for calls in sets_in(graph)]
        growing = {
            call: _called(call)
            for calls in sets
            if len(calls) > 1 and not stays_apart(calls)
            for call in calls
            if call not in stuck and is_region(_called(call))
        }
        if not growing:
            return
        stuck.update(item.call for item in inline(model, growing.values(), growing).refused)


def sets_in(graph: Graph) -> list[list[Node]]:
    """Say which calls of partitions and regions in *graph* may become one call.

    Calls are looked at in program order. Each joins the sets before it that it reads from, where
    that makes no cycle. All that leads to a call has been looked at by then, so a node that stands
    between the call and a set will never join them: a refusal is final. In the end no two
    neighbouring sets could be one.

    Returns:
        Each set in the order of the program.
    """
    functions = {node: function for node in graph if (function := _unit_called(node)) is not None}
    contraction, order = Contraction(graph), list(graph)
    for node in functions:
        # The calls of the same target that *node* reads from, each once.
        makers = {value.producer: None for value in node.read}
        for source in [
            m for m in makers if m is not None and m in functions and m.domain == node.domain
        ]:
            both = (source, node) if graph.model.is_spread else ()
            if object_to_devices(member for end in both for member in contraction.members(end)):
                continue
            contraction.merge(source, node)
    graph.arrange(order)
    sets: dict[Node, list[Node]] = {}
    for node in functions:
        sets.setdefault(contraction.find(node), []).append(node)
    return list(sets.values())


def _unit_called(node: Node) -> Function | None:
    function = call_of_written(node)
    if function is None or node.subgraphs or not is_for_target(function):
        return None
    return function


def _alone(call: Node) -> Region:
    """Return the region that a call is by itself."""
    function = _called(call)
    names = [call.name]
    if not is_partition(function):
        entries = read_entries(call)
        told = [e.name for e in entries] if len(entries) == function.body.node_count else []
        inner = zip_longest(told, function.body)
        names = [name or f"{call.name}/{node.name}" for name, node in inner]
    return Region(function, call, (), tuple(names))


class _Merger:
    """Writes the functions and the calls.

    Args:
        model: The model to edit.
        reserved: Names that no function may have.
        stays_apart: Tells of the calls of a region to be whether they are left alone.
    """

    def __init__(
        self,
        model: Model,
        reserved: Iterable[str],
        stays_apart: Callable[[Sequence[Node]], bool],
    ) -> None:
        self.model = model
        self.stays_apart = stays_apart
        self.node_names: set[str] = set()
        self.used_names: set[tuple[str, str]] = set()
        for node in (node for graph in model.graphs() for node in graph):
            self.node_names.add(node.name)
            self.used_names.add((node.domain, node.op_type))
        self.used_names.update(key[:2] for key in model.functions)
        self.reserved = set(reserved)
        self.made: dict[Structure, Function] = {}
        self.numbers: dict[str, int] = {}
        self.calls: dict[Function, int] = {}

    def merge(self, graph: Graph) -> list[Region]:
        """Merge in one graph; return its regions in program order."""
        nodes = list(graph)
        sets = [
            part
            for calls in sets_in(graph)
            for part in ([[call] for call in calls] if self.stays_apart(calls) else [calls])
        ]
        several = [calls for calls in sets if len(calls) > 1]
        if not several:
            return [_alone(call) for (call,) in sets]
        order, moved = arranged(nodes, several)
        behind = names_behind(nodes)
        graph.arrange(order)
        calls = (call for calls in sets for call in calls)
        records = (read_call(call) for call in calls if UNDO_KEY in call.remarks.metadata)
        run = 1 + max((record.run for record in records if record is not None), default=0)
        regions = {
            calls[-1]: self._join(calls, run, behind, moved[calls[-1]])
            if len(calls) > 1
            else _alone(calls[0])
            for calls in sets
        }
        return [regions[node] for node in order if node in regions]

    def _join(
        self, calls: Sequence[Node], run: int, behind: Mapping[str, str], moved: Iterable[Node]
    ) -> Region:
        """Make one call of several, in the place of the last; what is *moved* follows it."""
        outline = outline_region(calls)
        function = self.made.get(outline.structure)
        if function is None:
            function = make_region(self.model, outline, self._new_name(outline.domain))
            self.made[outline.structure] = function
        metadata = outline.metadata(run, behind, moved)
        number = self.calls[function] = self.calls.get(function, -1) + 1
        name = claim(f"{function.name}_{number}", self.node_names)
        rewriter = GraphRewriter(calls[-1].graph)
        call = rewriter.insert(
            calls[-1],
            function.name,
            outline.inputs,
            domain=function.domain,
            name=name,
            attributes=outline.attributes,
            remarks=Remarks(metadata=metadata),
        )
        rewriter.take_over_outputs(call, outline.outputs)
        inherit_devices(call, outline.calls)
        rewriter.erase(outline.calls)
        return Region(function, call, tuple(calls), tuple([call.name for call in calls]))

    def _new_name(self, domain: str) -> str:
        while True:
            number = self.numbers[domain] = self.numbers.get(domain, -1) + 1
            name = f"{REGION_NAME}_{number}" if number else REGION_NAME
            if name not in self.reserved and (domain, name) not in self.used_names:
                return name

    def add_functions(self) -> None:
        """Put callees before their callers."""
        waiting = {f: {called_function(node) for node in f.body} for f in self.made.values()}
        ordered: dict[tuple[str, str, str], Function] = {}
        for function in self.model.functions.values():
            ordered[function.key] = function
            for region, called in list(waiting.items()):
                called.discard(function)
                if not called:
                    ordered[region.key] = region
                    del waiting[region]
        self.model.functions = ordered


# Which functions are worth a call of a target's library, and which regions are not.
#
# After ``prune_dnnl_subgraphs`` of TVM (``python/tvm/relay/op/contrib/dnnl.py``): a region
# without an operator that is worth it goes back to where it was, unless it is the target's only
# one.


def is_heavy(node: Node) -> bool:
    """Tell whether *node* is heavy, or calls a function with a heavy one at any depth."""
    return any((each.domain, each.op_type) in HEAVY for each in nodes_run_by(node))


def light_regions(regions: Sequence[Region]) -> list[Region]:
    """Return the regions without a heavy operator, but none that is its target's only one."""
    counts = Counter(region.call.domain for region in regions)
    return [
        region for region in regions if counts[region.call.domain] > 1 and not is_heavy(region.call)
    ]
