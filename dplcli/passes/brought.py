"""Functions that a replacement brings along: each is put into the model once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir import Function, Graph, Node, Tensor, Value
from dplcli.ir.functions import called_function
from dplcli.ir.value import record_uses
from dplcli.passes.ir_version import raise_ir_version
from dplcli.passes.outline import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dplcli.ir import Attribute, Model

    Callees: TypeAlias = dict[Function, Function]

BROUGHT_KEY = "dpl.brought"
"""Metadata key of a function that a replacement brought along: what it was then."""


class BroughtFunctions:
    """Knows which functions of other models are in this one already.

    Args:
        model: The model that gets them.
        announce: Told of the body of each function that is put in.
    """

    def __init__(self, model: Model, announce: Callable[[Graph], None] | None = None) -> None:
        """Begin with none."""
        self.model = model
        self.announce = announce
        self._known: dict[Function, Function] = {}

    def bring(self, function: Function) -> Function:
        """Return the model's own copy of *function*, which is made if it has none.

        Another function of that name stays; the copy's name then has a number behind it. What it
        calls comes along.
        """
        own = self._find(function)
        if own is None:
            own = self._known[function] = self._copy(function)
        return own

    def leads_into(self, function: Function, graph: Graph) -> bool:
        """Tell whether a call of *function* would run *graph*, which is to hold the call."""
        while graph.owner is not None:
            graph = graph.owner.graph
        own = self._find(function)
        pending = [] if own is None else [own]
        seen = set(pending)
        while pending:
            body = pending.pop().body
            if body is graph:
                return True
            callees = set(_callees(body)) - seen
            pending += callees
            seen |= callees
        return False

    def _find(self, function: Function) -> Function | None:
        """Return the copy, or a function of the model's own that is the same."""
        if function not in self._known:
            wanted = _digest(function)
            for found in self.model.functions.values():
                mark = found.metadata.get(BROUGHT_KEY) or _digest(found)
                if found.domain == function.domain and mark == wanted:
                    self._known[function] = found
                    break
        return self._known.get(function)

    def _copy(self, function: Function) -> Function:
        model = self.model
        raise_ir_version(model)
        callees = {callee: self.bring(callee) for callee in _callees(function.body)}
        taken = {found.name for found in model.functions.values()}
        name = unique(function.name, taken.__contains__)
        model.opset_imports.setdefault(function.domain, 1)
        imports = {
            domain: model.opset_imports.setdefault(domain, version)
            for domain, version in function.body.opset_imports.items()
        }
        copy = Function(function.domain, name, _copy_body(function, model, imports, callees))
        copy.attributes = function.attributes
        copy.metadata = {**function.metadata, BROUGHT_KEY: _digest(function)}
        model.functions[copy.key] = copy
        if self.announce is not None:
            self.announce(copy.body)
        return copy


def _callees(body: Graph) -> list[Function]:
    """List the functions that are called in *body*, each once."""
    nodes = (node for graph in body.and_inner() for node in graph)
    found = (called_function(node) for node in nodes)
    return list(dict.fromkeys(callee for callee in found if callee is not None))


def _copy_body(
    function: Function, model: Model, imports: dict[str, int], callees: Callees
) -> Graph:
    source = function.body
    body = Graph(model, imports)
    body.name = source.name
    body.modified = True
    values: dict[Value, Value] = {}
    for value in source.inputs:
        formal = values[value] = Value(value.name, body)
        formal.is_graph_input = True
        body.values[formal.name] = formal
        body.inputs.append(formal)
    for node in source:
        callee = called_function(node)
        op_type = node.op_type if callee is None else callees[callee].name
        copy = Node(body, op_type, node.domain, node.name)
        copy.attributes = node.attributes
        copy.inputs = tuple([None if value is None else values[value] for value in node.inputs])
        record_uses(copy)
        for index, output in enumerate(node.outputs):
            if output is not None:
                made = values[output] = Value(output.name, body, copy, index)
                body.values[made.name] = made
        copy.outputs = tuple([None if value is None else values[value] for value in node.outputs])
        body.append(copy)
    for value in source.outputs:
        body.add_output(values[value])
    return body


def _digest(function: Function) -> str:
    """Say in short what a function is, all but its name; what it calls is part of it."""
    parts = [repr(function.attributes)]
    pending = [function]
    seen = {function}
    while pending:
        body = pending.pop().body
        callees = _callees(body)
        parts += [_names(body.inputs), _names(body.outputs)]
        for node in body:
            callee = called_function(node)
            op_type = node.op_type if callee is None else f"callee {callees.index(callee)}"
            attributes = sorted((key, _describe(item)) for key, item in node.attributes.items())
            what = f"{node.domain} {op_type} {attributes}"
            parts += [what, _names(node.inputs), _names(node.outputs)]
        new = [callee for callee in callees if callee not in seen]
        pending += new
        seen.update(new)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _names(values: Iterable[Value | None]) -> str:
    return repr(["" if value is None else value.name for value in values])


def _describe(attribute: Attribute) -> str:
    value = attribute.value
    if isinstance(value, Tensor):
        return f"{value.dtype} {value.shape} {value.numpy().tolist()}"
    return f"{attribute.kind} {attribute.ref} {value!r}"
