"""Merge neighbouring partitions of one target into regions.

After Relax's ``MergeCompositeFunctions`` and Relay's ``MergeCompilerRegions`` with
``PartitionGraph``. A region is the largest set of calls that hang together by values one makes and
another reads, and that may become one call: nothing else leads from one of them to another.
Regions are made in one scope at a time and never span two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.functions import called_function
from dplcli.passes.contraction import Contraction
from dplcli.passes.marks import call_of_written, is_for_target, is_region, is_written
from dplcli.passes.outline import unique
from dplcli.passes.region import make_region, outline_region
from dplcli.passes.region_order import arranged
from dplcli.passes.region_steps import run_of, steps_of
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.ir import Function, Graph, Model, Node
    from dplcli.passes.region import RegionOutline, Structure
    from dplcli.passes.region_order import Place

REGION_NAME = "region"
"""Name of the functions that regions become: ``dnnl::region``, ``dnnl::region_1``, …

A region is whatever one model has side by side, so its name cannot be a contract as that of a
partition is. It says that it is a region, and is the same whenever the same model is partitioned.
"""


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


def merge_partitions(model: Model, reserved: Iterable[str] = ()) -> list[Region]:
    """Merge the calls of partitions, whoever wrote them, of all targets.

    The model is edited in place; where no two partitions are neighbours it is left as it is.

    Args:
        model: The model.
        reserved: Names that no region's function may have: those of rules.

    Returns:
        Every region, in program order.
    """
    written = {function.body for function in model.functions.values() if is_written(function)}
    scopes = [graph for graph in model.graphs() if graph not in written]
    merger = _Merger(model, scopes, reserved)
    regions = [region for graph in scopes for region in merger.merge(graph)]
    merger.add_functions()
    return regions


def sets_in(graph: Graph) -> list[list[Node]]:
    """Say which calls of partitions and regions in *graph* may become one call.

    Calls are taken in program order, each joined with the sets before it that it reads from, where
    that makes no cycle. All that leads to a call has been looked at by then. So what stands between
    it and such a set is, somewhere, a node that will never be in a set with the two, and what is
    refused is refused for good: no two neighbouring sets are left that could be one. Nodes may be
    moved for that.

    Returns:
        Each set in the order of the program.
    """
    functions = {node: function for node in graph if (function := _unit_called(node)) is not None}
    contraction = Contraction(graph)
    for node in functions:
        for source in _sources(node, functions):
            contraction.merge(source, node)
    sets: dict[Node, list[Node]] = {}
    for node in functions:
        sets.setdefault(contraction.find(node), []).append(node)
    return list(sets.values())


def _unit_called(node: Node) -> Function | None:
    function = call_of_written(node)
    if function is None or node.subgraphs or not is_for_target(function):
        return None
    return function


def _sources(node: Node, functions: Mapping[Node, Function]) -> list[Node]:
    """Return the calls of the same target that *node* reads from, each once."""
    makers = {value.producer: None for value in node.inputs if value is not None}
    return [m for m in makers if m is not None and m in functions and m.domain == node.domain]


def _alone(call: Node) -> Region:
    """Return the region that a call is by itself."""
    function = called_function(call)
    assert function is not None  # noqa: S101  # see sets_in
    return Region(function, call, (), tuple([step.name for step in steps_of(call)]))


class _Merger:
    """Writes the functions and the calls.

    Args:
        model: The model to edit.
        scopes: The graphs that regions are in.
        reserved: Names that no function may have.
    """

    def __init__(self, model: Model, scopes: Iterable[Graph], reserved: Iterable[str]) -> None:
        self.model = model
        self.scopes = scopes
        self.node_names: set[str] = set()
        self.taken: set[tuple[str, str]] = set()
        for node in (node for graph in model.graphs() for node in graph):
            self.node_names.add(node.name)
            self.taken.add((node.domain, node.op_type))
        self.taken.update(key[:2] for key in model.functions)
        self.reserved = set(reserved)
        self.made: dict[Structure, Function] = {}
        self.numbers: dict[str, int] = {}
        self.calls: dict[Function, int] = {}
        self.dissolved: dict[Function, None] = {}

    def merge(self, graph: Graph) -> list[Region]:
        """Merge in one graph; return its regions in program order."""
        nodes = list(graph)
        sets = sets_in(graph)
        several = [calls for calls in sets if len(calls) > 1]
        if not several:
            return [_alone(call) for (call,) in sets]
        order, places = arranged(nodes, several)
        graph.arrange(order)
        run = 1 + max(run_of(call) for calls in sets for call in calls)
        made = {
            calls[-1]: self._join(calls, run, places[calls[-1]])
            if len(calls) > 1
            else _alone(calls[0])
            for calls in sets
        }
        return [made[node] for node in order if node in made]

    def _join(self, calls: Sequence[Node], run: int, place: Place) -> Region:
        """Make one call of several, in the place of the last."""
        outline = outline_region(calls)
        function = self._function_for(outline)
        for call in calls:
            called = called_function(call)
            if called is not None and is_region(called):
                self.dissolved[called] = None
        call = self._replace(outline, function, outline.metadata(run, place))
        return Region(function, call, tuple(calls), tuple([step.name for step in outline.steps]))

    def _function_for(self, outline: RegionOutline) -> Function:
        known = self.made.get(outline.structure)
        if known is not None:
            return known
        name = self._new_name(outline.domain)
        function = self.made[outline.structure] = make_region(self.model, outline, name)
        return function

    def _new_name(self, domain: str) -> str:
        while True:
            number = self.numbers[domain] = self.numbers.get(domain, -1) + 1
            name = f"{REGION_NAME}_{number}" if number else REGION_NAME
            if name not in self.reserved and (domain, name) not in self.taken:
                return name

    def _replace(
        self, outline: RegionOutline, function: Function, metadata: Mapping[str, str]
    ) -> Node:
        number = self.calls[function] = self.calls.get(function, -1) + 1
        name = unique(f"{function.name}_{number}", self.node_names.__contains__)
        self.node_names.add(name)
        place = outline.calls[-1]
        rewriter = GraphRewriter(place.graph)
        call = rewriter.insert(
            place,
            function.name,
            outline.inputs,
            domain=function.domain,
            name=name,
            attributes=outline.attributes,
            metadata=metadata,
        )
        rewriter.take_over_outputs(call, outline.outputs)
        rewriter.erase(outline.calls)
        return call

    def add_functions(self) -> None:
        """Put each function behind those that it calls, and take out those now called by none."""
        unused = set(self.dissolved)
        if unused:
            for graph in self.scopes:
                unused.difference_update(map(called_function, graph))
        waiting = {f: {called_function(node) for node in f.body} for f in self.made.values()}
        ordered: dict[tuple[str, str, str], Function] = {}
        for function in self.model.functions.values():
            if function in unused:
                continue
            ordered[function.key] = function
            for region, called in list(waiting.items()):
                called.discard(function)
                if not called:
                    ordered[region.key] = region
                    del waiting[region]
        self.model.functions = ordered
