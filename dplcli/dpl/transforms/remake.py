"""Nodes like others, with something changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.draft import DraftOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.ir import Node


def remade(
    build: GraphBuilder, node: Node, inputs: Sequence[Operand | None], **changed: object
) -> list[DraftOutput]:
    """Describe a node of the same operator over other *inputs*; return all its outputs.

    Args:
        build: Who describes it.
        node: The node that it is like, attributes included.
        inputs: What it reads.
        changed: Attributes that it has instead of, or besides, those of *node*.
    """
    attributes: dict[str, object] = {**node.attributes, **changed}
    count = len(node.outputs)
    made = build.node(node.op_type, node.domain, inputs, attributes, count)
    return [DraftOutput(made, index) for index in range(count)]
