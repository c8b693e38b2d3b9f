"""Turn attention that is written out into the standard operator Attention.

Before: ``MatMul(Softmax(MatMul(q, k^T) * scale + mask), v)``
After:  ``Attention(q, k, v, mask, scale=scale)``
Holds when: see :mod:`dplcli.dpl.transforms.attention_reading`.
Numerics: the same sums in another order. A query all of whose keys get -inf has no defined result
before and 0 after. Inputs that are infinite or not a number are not considered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.nodewise import far_sighted
from dplcli.dpl.transforms.attention_masks import (
    build_boolean,
    build_float,
    joint_shape,
    rows_and_columns,
)
from dplcli.dpl.transforms.attention_reading import (
    NotAttentionError,
    grouped_heads,
    read_attention,
)
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.transforms.attention_reading import AttentionParts

_HEADS_RANK = 4


@far_sighted
def attention(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe the operator Attention in the place of a match of the attention pattern."""
    try:
        parts = read_attention(match)
    except NotAttentionError as error:
        return error.rejection(match)
    if parts.rank < _HEADS_RANK and not isinstance(parts.value.shape[-1], int):
        # onnx infers a size of 0 for the result then
        return match.reject("the size of the values is not known", at=parts.value.value)
    operands = _operands(parts, build)
    attributes: dict[str, object] = {
        "scale": None if parts.has_default_scale else parts.scale,
        "softcap": parts.softcap or None,
        "is_causal": 1 if parts.mask.is_causal else None,
        "softmax_precision": DTYPE_CODES[parts.softmax_dtype] if parts.softmax_dtype else None,
    }
    if parts.rank < _HEADS_RANK:
        attributes |= {"q_num_heads": 1, "kv_num_heads": 1}
    mask = _mask(parts, build, operands)
    return DraftOutput(build.node("Attention", "", (*operands, mask), attributes))


def _operands(parts: AttentionParts, build: GraphBuilder) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values, heads before lengths."""
    if parts.rank < _HEADS_RANK:
        straight, swapped = (0, 1, 2), (0, 2, 1)
        return (
            parts.query.build(build, straight),
            parts.key.build(build, swapped),
            parts.value.build(build, straight),
        )
    query = parts.query.build(build, (0, 1, 2, 3))
    grouped = grouped_heads(parts)
    if grouped is not None:
        return query, grouped[0], grouped[1]
    return query, parts.key.build(build, (0, 1, 3, 2)), parts.value.build(build, (0, 1, 2, 3))


def _mask(
    parts: AttentionParts, build: GraphBuilder, operands: tuple[Operand, Operand, Operand]
) -> Operand | None:
    """Return the mask, with a row per query and a column per key, which onnxruntime wants."""
    tensors = parts.mask.tensors
    if not tensors:
        return None
    shape = joint_shape(tensors, parts.scores)
    if parts.mask.is_boolean:
        made = build_boolean(build, parts.mask)
    else:
        made = build_float(build, parts.mask, parts.dtype, keeps_lowest=False)
    owners = [(operand, parts.rank - 2) for operand in operands[::2]]
    made = rows_and_columns(build, made, shape, parts.scores, owners)
    if len(shape) == parts.rank < _HEADS_RANK:
        return build.op("Unsqueeze", made, build.constant(np.array([1])))
    return made
