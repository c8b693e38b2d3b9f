"""Shapes of what attention and its companions make, onnxruntime's own operators among them.

The standard's inference calls the last dimension of Attention 0 where it is unknown, and knows
nothing of onnxruntime's operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.shapes.terms import add, divide, multiply

if TYPE_CHECKING:
    from dplcli.dpl.shapes.shape_rules import ShapeRule, Shapes
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import View

_HEADS_RANK = 4
_PAST = 4


def _same(view: View) -> Shapes:
    return [view.shape()]


def _attention(view: View) -> Shapes:
    """Attention: the result, and keys and values behind those of the cache."""
    query, key, value = (view.shape(slot) for slot in range(3))
    if query is None or key is None or value is None:
        return []
    past = view.shape(_PAST)
    kept: Number | None = 0 if not view.has(_PAST) else past[2] if past else None
    if len(query) == _HEADS_RANK:
        total = None if kept is None else add(kept, key[2])
        caches = [(*part[:2], total, part[3]) for part in (key, value)]
        return [(*query[:3], value[3]), *caches]
    heads, of_keys = view.integer("q_num_heads"), view.integer("kv_num_heads")
    size = None if of_keys is None else divide(value[-1], of_keys)
    width = None if size is None or heads is None else multiply(size, heads)
    return [(*query[:2], width)]


def _multi_head_attention(view: View) -> Shapes:
    query, value = view.shape(0), view.shape(2)
    if query is None or value is None:
        return []
    is_split = len(value) == _HEADS_RANK
    return [(*query[:2], multiply(value[1], value[3]) if is_split else value[-1])]


def _matmul_nbits(view: View) -> Shapes:
    """MatMulNBits: the columns of the packed weight are an attribute."""
    shape, columns = view.shape(), view.integer("N")
    return [] if not shape or columns is None else [(*shape[:-1], columns)]


ATTENTION_RULES: dict[str, ShapeRule] = {"Attention": _attention, "RotaryEmbedding": _same}
"""Operators of the standard."""

_LIKE_INPUT = """
    BiasGelu FastGelu Gelu GroupQueryAttention QuickGelu RotaryEmbedding
    SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
"""

ONNXRUNTIME_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(_LIKE_INPUT.split(), _same),
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _multi_head_attention,
}
"""Operators of the domain com.microsoft."""
