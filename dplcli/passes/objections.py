"""Why what a rule describes cannot take the place of a match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.draft import DraftNode
from dplcli.ir import Value
from dplcli.ir.traversal import dependents_before, enclosing_node, is_identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.draft import Draft, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node

    Pairs = Sequence[tuple[Operand, Value]]


def object_to_draft(
    match: Match, draft: Draft, read: Sequence[Value], kept: AbstractSet[Node]
) -> str:
    """Say why *draft* cannot take the place of *match*, or "".

    Args:
        match: The match.
        draft: What is to take its place.
        read: The existing values that *draft* reads or returns.
        kept: The nodes of the match that those need.
    """
    every = zip(draft.outputs, match.outputs, strict=True)
    pairs = [(new, old) for new, old in every if new is not old]
    return (
        _object_to_operands(match, pairs, read)
        or _object_to_kept_nodes(match, draft, pairs, kept)
        or _object_to_copies(match, pairs)
    )


def _object_to_operands(match: Match, pairs: Pairs, read: Sequence[Value]) -> str:
    """Refuse to read what is replaced, and what is there only later."""
    replaced = {old for _, old in pairs}
    anchor = match.nodes[-1]
    for value in read:
        if value in replaced:
            return f"the replacement reads {value.name!r}, which it replaces"
        if not _is_defined_before(value, anchor):
            return f"the replacement reads {value.name!r}, which is not made before it"
    if len(match.outputs) > 1:
        moved = dependents_before(anchor, match.outputs, match.nodes)
        late = {output for node in moved for output in node.outputs}
        for value in read:
            if value in late:
                return f"the replacement reads {value.name!r}, which needs what it replaces"
    return ""


def _is_defined_before(value: Value, anchor: Node) -> bool:
    if value.graph.values.get(value.name) is not value:
        return False
    here = enclosing_node(anchor, value.graph)
    if here is None:
        return False
    maker = value.producer
    return maker is None or maker is anchor or maker.position < here.position


def _object_to_kept_nodes(match: Match, draft: Draft, pairs: Pairs, kept: AbstractSet[Node]) -> str:
    """Refuse to keep a node that makes what is replaced, and to put something before its maker."""
    for _, old in pairs:
        maker = old.producer
        if maker is not None and maker in kept:
            return f"the replacement needs {maker.op_type} {maker.label!r}, which it replaces"
    anchor = match.nodes[-1]
    if anchor not in kept:
        return ""
    copies = any(isinstance(new, Value) and old.returned_by for new, old in pairs)
    if copies or any(isinstance(part, DraftNode) for part in draft.parts):
        return f"the replacement reads {anchor.label!r}, the last node of the match"
    return ""


def _object_to_copies(match: Match, pairs: Pairs) -> str:
    """Refuse to put a copy in the place of the same copy."""
    for new, old in pairs:
        if match.nodes == (old.producer,) and _is_copy(new, old):
            return f"{old.name!r} is returned, and must be a copy"
    return ""


def _is_copy(new: Operand, old: Value) -> bool:
    """Tell whether *old* is a copy of *new* already, and would be one afterwards."""
    node = old.producer
    return (
        isinstance(new, Value)
        and node is not None
        and is_identity(node)
        and node.inputs == (new,)
        and bool(old.returned_by)
        and not can_be_renamed(new, old)
    )


def can_be_renamed(value: Value, old: Value) -> bool:
    """Tell whether the node that makes *value* can make it under the name of *old*."""
    maker = value.producer
    return (
        maker is not None
        and value.graph is old.graph
        and not value.returned_by
        and not value.is_graph_input
    )
