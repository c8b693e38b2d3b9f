"""Who calls the functions of a model, and what they are given, through any number of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Function, Graph, Model, Node, Value

    Key: TypeAlias = tuple[str, str, str]


class CallSites:
    """The calls of every function of a model.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        """Look at every node of *model* once."""
        self._calls: dict[Key, list[Node]] = {key: [] for key in model.functions}
        self._functions: dict[Graph, Function] = {f.body: f for f in model.functions.values()}
        for graph in model.graphs():
            for node in graph:
                calls = self._calls.get((node.domain, node.op_type, node.overload))
                if calls is not None:
                    calls.append(node)

    def calls(self, key: Key) -> Sequence[Node]:
        """Return the nodes that call a function, in order of the file."""
        return self._calls[key]

    def origins(self, call: Node, slot: int) -> list[Value | None]:
        """Return what may arrive in an input of *call*; None stands for an omitted one.

        An input of a function round the call is whatever the calls of that function give it.
        """
        found: dict[Value | None, None] = {}
        pending = [(call, slot)]
        seen = set(pending)
        while pending:
            node, index = pending.pop()
            value = node.inputs[index] if index < len(node.inputs) else None
            outer = None if value is None else self._formal(value)
            if outer is None:
                found[value] = None
                continue
            further = [(again, outer[1]) for again in self._calls[outer[0].key]]
            pending += [place for place in further if place not in seen]
            seen.update(further)
        return list(found)

    def _formal(self, value: Value) -> tuple[Function, int] | None:
        """Return the function and the number of the input that *value* is, if it is one."""
        function = self._functions.get(value.graph)
        if function is None or not value.is_graph_input:
            return None
        return function, function.body.inputs.index(value)
