"""Nodes that do nothing but hold data, and nodes that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.nodewise import nodewise
from dplcli.ir.value import FIRST_IR_WITH_PLAIN_INITIALIZERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Graph


@nodewise("Constant")
def constants_to_initializers(match: Match, build: GraphBuilder) -> Operand | None:
    """Let the graph store what a Constant node holds.

    Holds when: the graph can (no function's body, IR version 4 or later), the data is one dense
    tensor, and it is not itself what the graph returns.
    """
    value = match.root.outputs[0]
    if value is None or value.returned_by or not can_store(match.root.graph):
        return None
    tensor = value.constant
    return None if tensor is None else build.constant(tensor)


@nodewise(unread=True)
def drop_unread(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:  # noqa: ARG001  # nothing is made
    """Take out a node none of whose outputs is read: no operator has an effect but its results."""
    return None if match.outputs else ()


def can_store(graph: Graph) -> bool:
    """Tell whether initializers may be put in: function bodies have none."""
    model = graph.model
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph is model.graph and model.ir_version >= FIRST_IR_WITH_PLAIN_INITIALIZERS
