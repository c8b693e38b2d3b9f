"""Take out what an edit has left unread, so that use counts stay true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.traversal import captured_values
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.ir import Node, Value
    from dplcli.passes.rewriter import RewriteListener


def erase_unread(values: Iterable[Value], listener: RewriteListener | None = None) -> list[Node]:
    """Erase what only made *values* that nobody reads, and what only that needed, and so on.

    Initializers that nobody reads go, too, unless they are graph inputs.

    Returns:
        The nodes erased.
    """
    erased: list[Node] = []
    pending = list(values)
    while pending:
        value = pending.pop()
        if is_read(value) or value.graph.values.get(value.name) is not value:
            continue
        node = value.producer
        rewriter = GraphRewriter(value.graph, listener)
        if node is None:
            if value.is_initializer and not value.is_graph_input:
                rewriter.drop_initializer(value)
            continue
        if any(output is not None and is_read(output) for output in node.outputs):
            continue
        read = [*(item for item in node.inputs if item is not None), *captured_values(node)]
        rewriter.erase([node])
        erased.append(node)
        pending += read
    return erased


def is_read(value: Value) -> bool:
    """Tell whether a node reads *value* or a graph returns it."""
    return bool(value.use_count or value.returned_by)
