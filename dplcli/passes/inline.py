"""Put the bodies of functions in the place of their calls; what a partition did is undone.

Calls that a partition wrote say what they stand for, so the nodes come back with their names, in
their order. Calls of other functions get the function's nodes under new names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.functions import called_function
from dplcli.ir.scopes import scope_of
from dplcli.passes.call_inlining import inline_call
from dplcli.passes.call_records import read_call
from dplcli.passes.inlinable import callees_of, check_growth, object_to_call
from dplcli.passes.inlined_names import InlinedNames
from dplcli.passes.node_order import arrange, original_places

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dplcli.ir import Function, Graph, Model, Node
    from dplcli.passes.call_records import CallRecord


class InlinedCall(NamedTuple):
    """One call that was replaced by the body of its function.

    Attributes:
        function: The function called.
        call: The call, which is no longer in its graph.
        scope: The name of the graph that it was in.
        nodes: The nodes that took its place.
        is_restored: Whether the call said what the nodes were.
    """

    function: Function
    call: Node
    scope: str
    nodes: tuple[Node, ...]
    is_restored: bool


class RefusedCall(NamedTuple):
    """One call that stays, and why."""

    function: Function
    call: Node
    reason: str


@dataclass
class Inlining:
    """What :func:`inline` did.

    Attributes:
        functions: The functions that were to be inlined.
        calls: The calls replaced.
        refused: The calls that stay.
        removed: The functions taken out of the model, because nothing calls them any more.
    """

    functions: tuple[Function, ...]
    calls: list[InlinedCall] = field(default_factory=list)
    refused: list[RefusedCall] = field(default_factory=list)
    removed: list[Function] = field(default_factory=list)


def inline(
    model: Model, functions: Iterable[Function], only: Collection[Node] | None = None
) -> Inlining:
    """Replace calls of *functions* by their bodies, and take out functions left without calls.

    Args:
        model: The model to edit; without such calls or functions it is left as it is.
        functions: What to inline.
        only: The calls to replace; None for all, those in the bodies included.

    Raises:
        PassError: A function calls itself, or the model would grow beyond all measure.
    """
    chosen = dict.fromkeys(functions)
    check_growth(model, chosen if only is None else ())
    result = Inlining(tuple(chosen))
    worker = _Worker(chosen, only, result)
    kept = [f for f in model.functions.values() if f not in chosen]
    todo = [model.graph, *(function.body for function in kept)]
    done: set[Function] = set(kept)
    while todo:
        for outermost in todo:
            worker.run(outermost)
        called = _called_from(model.graph, kept)
        still = [f for f in chosen if f in called and f not in done]
        done.update(still)
        todo = [function.body for function in still]
    _remove(model, result, [f for f in chosen if f not in _called_from(model.graph, kept)])
    return result


class _Worker:
    """Inlines the chosen calls in one outermost graph after the other."""

    def __init__(
        self, chosen: Collection[Function], only: Collection[Node] | None, result: Inlining
    ) -> None:
        self.chosen = chosen
        self.only = only
        self.result = result
        self.refused: set[Node] = set()
        self.scopes: dict[Graph, str] = {}

    def run(self, outermost: Graph) -> None:
        names = InlinedNames(outermost)
        seen: set[Graph] = set()
        while graphs := [graph for graph in outermost.and_inner() if graph not in seen]:
            for graph in graphs:
                seen.add(graph)
                while self._inline_latest(graph, names):
                    pass

    def _inline_latest(self, graph: Graph, names: InlinedNames) -> bool:
        """Inline the calls that the latest partition of *graph* wrote; tell if there were any."""
        calls = {
            node: function
            for node in graph
            if (function := called_function(node)) is not None and node not in self.refused
        }
        chosen = [node for node in calls if self._is_chosen(node, calls[node])]
        if not chosen:
            return False
        found = {node: read_call(node) for node in calls}
        records = {node: record for node, record in found.items() if record is not None}
        latest = max(_run_of(records.get(node)) for node in chosen)
        batch = [node for node in chosen if _run_of(records.get(node)) == latest]
        of_run = {node: record for node, record in records.items() if record.run == latest}
        places = original_places(graph, of_run)
        for call in batch:
            self._inline(call, calls[call], records.get(call), names)
        if places:
            arrange(graph, places)
        return True

    def _is_chosen(self, call: Node, function: Function) -> bool:
        return function in self.chosen and (self.only is None or call in self.only)

    def _inline(
        self, call: Node, function: Function, record: CallRecord | None, names: InlinedNames
    ) -> None:
        reason = object_to_call(call, function)
        if reason:
            self.refused.add(call)
            self.result.refused.append(RefusedCall(function, call, reason))
            return
        graph = call.graph
        scope = self._scope_of(graph)
        _import_domains(function, graph)
        done = inline_call(call, function, record, names)
        self.result.calls.append(InlinedCall(function, call, scope, *done))

    def _scope_of(self, graph: Graph) -> str:
        """Name a graph; its name may need a node that goes later."""
        if graph not in self.scopes:
            self.scopes[graph] = scope_of(graph)
        return self.scopes[graph]


def _import_domains(function: Function, graph: Graph) -> None:
    """Let *graph* import the domains that the nodes of *function* are of."""
    imports = function.body.opset_imports
    missing = imports.keys() - graph.opset_imports.keys()
    if not missing:
        return
    used = {node.domain for body in function.body.and_inner() for node in body}
    for domain in sorted(missing & used):
        graph.opset_imports[domain] = imports[domain]
        graph.model.opset_imports.setdefault(domain, imports[domain])


def _run_of(record: CallRecord | None) -> int:
    return -1 if record is None else record.run


def _called_from(graph: Graph, functions: Iterable[Function]) -> set[Function]:
    """Return what *graph* or one of *functions* calls, directly or through others."""
    pending = [graph, *(function.body for function in functions)]
    found: set[Function] = set()
    while pending:
        new = [callee for callee in callees_of(pending.pop()) if callee not in found]
        found.update(new)
        pending += [callee.body for callee in new]
    return found


def _remove(model: Model, result: Inlining, functions: Iterable[Function]) -> None:
    """Take *functions* out, and the imports that only they needed."""
    result.removed = list(functions)
    if not result.removed:
        return
    model.graph.modified = True
    domains = {function.domain for function in result.removed}
    for function in result.removed:
        del model.functions[function.key]
    used = {key[0] for key in model.functions}
    used |= {node.domain for graph in model.graphs() for node in graph}
    for domain in domains - used:
        model.opset_imports.pop(domain, None)
        bodies = [graph for graph in model.graphs() if domain in graph.opset_imports]
        for body in bodies:
            body.opset_imports.pop(domain, None)
            body.modified = True
