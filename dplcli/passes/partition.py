"""Outline the selected matches as functions of their target's domain.

After Relay's ``pattern.partition`` and Relax's ``FuseOpsByPattern``
(``src/relax/transform/fuse_ops.cc``); what the file looks like is set down in the README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.traversal import dependents_before, is_identity
from dplcli.passes.ir_version import raise_ir_version
from dplcli.passes.origin import OriginRecorder
from dplcli.passes.outline import Kind, Outline, group, outline, rule_of, unique
from dplcli.passes.rewriter import GraphRewriter
from dplcli.passes.selection import in_program_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.dpl.match import Match
    from dplcli.ir import Function, Graph, Model, Node, Value
    from dplcli.passes.selection import Selection


class Partition(NamedTuple):
    """One match that became a call.

    Attributes:
        match: What was matched; its nodes are no longer in the graph.
        function: The function called.
        call: The call.
    """

    match: Match
    function: Function
    call: Node


def partition(model: Model, selection: Selection) -> list[Partition]:
    """Replace every selected match by a call of a function.

    The model is edited in place; without matches it is left as it is.

    Returns:
        One entry per match, in program order.
    """
    if not selection.matches:
        return []
    matches = in_program_order(selection.matches)
    by_rule: dict[str, list[Outline]] = {}

    def outlines() -> Iterator[Outline]:
        for match in matches:
            item = outline(match)
            by_rule.setdefault(match.rule.qualified_name, []).append(item)
            yield item

    origins = OriginRecorder(model, outlines())
    kinds = [kind for items in by_rule.values() for kind in group(items)]
    made = write_calls(model, kinds, {rule.name for rule in selection.rules}, origins)
    raise_ir_version(model)
    _drop_unread_constants(kinds)
    return [made[id(match)] for match in matches]


def write_calls(
    model: Model, kinds: Sequence[Kind], reserved: set[str], origins: OriginRecorder
) -> dict[int, Partition]:
    """Write a function for each of *kinds*, and a call in the place of each of its outlines.

    Args:
        model: The model to edit.
        kinds: What to outline; contracted to single nodes, all of them must form no cycle.
        reserved: Names of the rules: a variant's name must not look like another rule's.
        origins: Knows how the model was.

    Returns:
        What each match became, by its identity.
    """
    return _Outliner(model, reserved, origins).replace_all(kinds)


class _Outliner:
    """Writes the functions and the calls.

    Args:
        model: The model to edit.
        reserved: Names of the rules: a variant's name must not look like another rule's.
        origins: Knows how the model was.
    """

    def __init__(self, model: Model, reserved: set[str], origins: OriginRecorder) -> None:
        self.model = model
        self.reserved = reserved
        self.origins = origins
        self.node_names = set(origins.names)
        self.taken: set[tuple[str, str]] = {key[:2] for key in model.functions}
        for graph in model.graphs():
            self.taken.update([(node.domain, node.op_type) for node in graph if node.domain])
        self.functions: dict[tuple[str, str, str], Function] = {}
        self.may_share = False
        self.kept: dict[Graph, list[Node]] = {}

    def replace_all(self, kinds: Sequence[Kind]) -> dict[int, Partition]:
        """Write all functions from the graphs as they are, then put the calls in.

        Where calls may compute again what others compute, all nodes stay to the end.
        """
        made = {}
        rules = [rule_of(kind.outlines[0].match) for kind in kinds]
        self.may_share = any(rule.escape == "duplicate" for rule in rules)
        functions = [self._add_function(kind) for kind in kinds]
        for kind, function in zip(kinds, functions, strict=True):
            version = self.model.opset_imports.setdefault(function.domain, 1)
            for number, item in enumerate(kind.outlines):
                scope = item.match.root.graph
                scope.opset_imports.setdefault(function.domain, version)
                call = self._replace(item, kind, function, number)
                made[id(item.match)] = Partition(item.match, function, call)
        for graph, nodes in self.kept.items():
            GraphRewriter(graph).erase(nodes)
        self.model.functions = self.functions | self.model.functions
        return made

    def _add_function(self, kind: Kind) -> Function:
        """Write the function under a name that nothing goes by, an operator of others included."""
        rule = rule_of(kind.outlines[0].match)

        def is_taken(name: str) -> bool:
            if (rule.target, name) in self.taken:
                return True
            return name in self.reserved and name != rule.name

        name = unique(rule.name, is_taken)
        self.taken.add((rule.target, name))
        function = kind.write(self.model, name)
        self.functions[function.key] = function
        return function

    def _replace(self, item: Outline, kind: Kind, function: Function, number: int) -> Node:
        match = item.match
        graph = match.root.graph
        rewriter = GraphRewriter(graph)
        anchor = item.last
        moved: list[Node] = []
        if any(output.producer is not anchor for output in item.outputs):
            moved = dependents_before(anchor, item.outputs, match.nodes)
        metadata = self.origins.metadata(item, moved)
        rewriter.move_behind(anchor, moved)
        name = unique(f"{function.name}_{number}", self.node_names.__contains__)
        self.node_names.add(name)
        call = rewriter.insert(
            anchor,
            function.name,
            item.inputs,
            domain=function.domain,
            name=name,
            attributes=kind.call_attributes(item),
            metadata=metadata,
        )
        self.origins.stand_for(call, item)
        rewriter.take_over_outputs(call, item.outputs)
        if self.may_share:
            self.kept.setdefault(graph, []).extend(item.replaced)
        else:
            rewriter.erase(item.replaced)
        return call


def _drop_unread_constants(kinds: Iterable[Kind]) -> None:
    """Take out what was embedded and is now read by nobody."""
    for kind in kinds:
        for item in kind.outlines:
            for value in item.embedded:
                _drop_if_unread(value)


def _drop_if_unread(value: Value) -> None:
    """Take out a constant, and the copies of it that led to where it was read."""
    while not (value.use_count or value.returned_by or value.is_graph_input):
        if value.graph.values.get(value.name) is not value:
            return
        rewriter = GraphRewriter(value.graph)
        producer = value.producer
        if producer is None:
            rewriter.drop_initializer(value)
            return
        origin = producer.inputs[0] if is_identity(producer) else None
        if origin is None and not value.is_constant:
            return  # a call has taken the place of the copy
        rewriter.erase([producer])
        if origin is None:
            return
        value = origin
