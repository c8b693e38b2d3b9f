"""Transposed factors of products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.transforms.remake import remade
from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node


def transpose_into_gemm(match: Match, build: GraphBuilder) -> Operand:
    """Let a Gemm read its left or right factor as it was before it was transposed.

    Before: ``y = Gemm(Transpose(p, perm=[1, 0]), b, ...)``, or a MatMul of matrices
    After:  ``y = Gemm(p, b, ..., transA=1 - transA)``
    The pattern binds *p* to what the left factor is a transpose of, or *q* for the right one.
    """
    node = match.root
    slot = 0 if "p" in match.bindings else 1
    inputs = list(node.inputs)
    inputs[slot] = match.bindings["q" if slot else "p"]
    name = "transB" if slot else "transA"
    flags: dict[str, object] = {name: 1 - _flag(node, name)}
    if node.op_type == "Gemm":
        return remade(build, node, inputs, **flags)[0]
    return build.op("Gemm", *inputs, transA=flags.get("transA"), transB=flags.get("transB"))


def _flag(node: Node, name: str) -> int:
    attribute = attribute_of(node, name)
    return int(attribute is not None and attribute.value == 1)
