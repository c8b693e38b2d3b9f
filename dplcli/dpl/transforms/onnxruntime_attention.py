"""Turn attention that is written out into onnxruntime's own operators, which older opsets have.

Before: ``MatMul(Softmax(MatMul(q, k^T) * scale + mask), v)``
After:  ``MultiHeadAttention(q, k, v, , , mask)``, or ``GroupQueryAttention`` where heads share keys
        or scores are capped
Holds when: see :mod:`dplcli.dpl.transforms.attention_reading`; and the number of heads is known.
Numerics: the same sums in another order. Where all keys of a query get -inf both give what is not
a number; if the model makes 0 of that, what comes after the operator does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.nodewise import far_sighted
from dplcli.dpl.shapes import described, shape_of
from dplcli.dpl.transforms.attention_layouts import is_read_elsewhere, joins_lengths
from dplcli.dpl.transforms.attention_masks import build_float, joint_shape, rows_and_columns
from dplcli.dpl.transforms.attention_reading import (
    NotAttentionError,
    grouped_heads,
    read_attention,
)
from dplcli.dpl.transforms.operands import follow
from dplcli.dpl.transforms.tensor_layouts import length_of, merged_heads, split_heads
from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.transforms.attention_reading import AttentionParts
    from dplcli.ir import Value

_DOMAIN = "com.microsoft"
_HEADS_RANK = 4
_HEADS_FIRST = (0, 1, 2, 3)
_LENGTHS_FIRST = (0, 2, 1, 3)
_KEYS_HEADS_FIRST = (0, 1, 3, 2)
_KEYS_LENGTHS_FIRST = (0, 3, 1, 2)
_GROUPED_UNIT = 8
"""Head sizes of GroupQueryAttention are multiples of it."""

_INT32 = 6


@far_sighted
def onnxruntime_attention(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe one of onnxruntime's operators in the place of a match of the attention pattern."""
    try:
        parts = read_attention(match)
        _check(parts)
        shared = _shared(parts)
    except NotAttentionError as error:
        return error.rejection(match)
    bias = _bias(parts, build, shared)
    if shared is None:
        made = _multi_head(parts, build, bias)
    else:
        made = _grouped(parts, build, bias, shared)
    if parts.is_guarded and parts.mask.may_hide_all:
        zero = build.constant(np.zeros((), np.dtype(parts.dtype)))
        made = build.op("Where", build.op("IsNaN", made), zero, made)
    if parts.rank < _HEADS_RANK:
        return made
    return build.op("Transpose", split_heads(build, made, parts.scores[1]), perm=_LENGTHS_FIRST)


def _check(parts: AttentionParts) -> None:
    """Refuse what the kernels do not compute.

    Raises:
        NotAttentionError: They do not.
    """
    at = parts.query.value
    if parts.dtype not in {"float32", "float16"} or parts.softmax_dtype:
        raise NotAttentionError("the kernels compute in float32 or float16 throughout", at)
    if parts.rank == _HEADS_RANK and not isinstance(parts.scores[1], int):
        raise NotAttentionError("the number of heads is not known", at)
    if parts.mask.is_causal and parts.scores[-2] != parts.scores[-1]:
        raise NotAttentionError("a causal mask is not known to be square", at)


# -- one key head for each query head ----------------------------------------------------------


def _multi_head(parts: AttentionParts, build: GraphBuilder, bias: Operand | None) -> Operand:
    """Describe MultiHeadAttention; the result has the heads side by side."""
    attributes: dict[str, object] = {
        "num_heads": parts.scores[1] if parts.rank == _HEADS_RANK else 1,
        "scale": None if parts.has_default_scale else parts.scale,
        "unidirectional": 1 if parts.mask.is_causal else None,
    }
    inputs = (*_operands(parts, build), None, None, bias)
    return DraftOutput(build.node("MultiHeadAttention", _DOMAIN, inputs, attributes))


def _operands(parts: AttentionParts, build: GraphBuilder) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values; keys and values with heads first if they are there so."""
    query, key, value = parts.query, parts.key, parts.value
    if parts.rank < _HEADS_RANK:
        straight = (0, 1, 2)
        return (
            query.build(build, straight),
            key.build(build, (0, 2, 1)),
            value.build(build, straight),
        )
    rows = merged_heads(build, query.build(build, _LENGTHS_FIRST))
    lengths_first = (key.seen_as(_KEYS_LENGTHS_FIRST), value.seen_as(_LENGTHS_FIRST))
    heads_first = (key.seen_as(_KEYS_HEADS_FIRST), value.seen_as(_HEADS_FIRST))
    sizes = (key.shape[2], value.shape[3])
    if None in lengths_first and None not in heads_first and sizes[0] == sizes[1]:
        return rows, key.build(build, _KEYS_HEADS_FIRST), value.build(build, _HEADS_FIRST)
    return (
        rows,
        merged_heads(build, key.build(build, _KEYS_LENGTHS_FIRST)),
        merged_heads(build, value.build(build, _LENGTHS_FIRST)),
    )


def _bias(
    parts: AttentionParts, build: GraphBuilder, shared: _SharedHeads | None
) -> Operand | None:
    """Return what is added to the scores, with four axes and a row and column per score."""
    tensors = parts.mask.tensors
    if not tensors:
        return None
    scores = parts.scores
    shape = joint_shape(tensors, scores)
    made = build_float(build, parts.mask, parts.dtype)
    of_keys = parts.value.source_of(parts.rank - 2)
    if shared is not None and shared.before is not None:
        of_keys = (shared.before[1], 2)
    owners = (parts.query.source_of(parts.rank - 2), of_keys)
    made = rows_and_columns(build, made, shape, scores, owners)
    rank = max(len(shape), 2)
    if parts.rank < _HEADS_RANK and rank == parts.rank:
        axes = [1]
    else:
        axes = list(range(_HEADS_RANK - rank))
    return build.op("Unsqueeze", made, build.constant(np.array(axes))) if axes else made


# -- heads that share keys ---------------------------------------------------------------------


class _SharedHeads(NamedTuple):
    """Keys and values of which each head may serve several query heads.

    Attributes:
        heads: How many heads they have.
        before: Keys and values before they were repeated, ``(batch, heads, length, size)``; None
            if they were not.
    """

    heads: int
    before: tuple[Value, Value] | None


def _shared(parts: AttentionParts) -> _SharedHeads | None:
    """Return what GroupQueryAttention takes; None for MultiHeadAttention.

    Raises:
        NotAttentionError: It takes the former, but that does not compute it.
    """
    if parts.rank < _HEADS_RANK:
        if parts.softcap:
            raise NotAttentionError("scores are capped, and heads are not apart", parts.query.value)
        return None
    repeated = grouped_heads(parts)
    is_needed = bool(parts.softcap) or parts.key.shape[1] != parts.scores[1]
    if repeated is None and not is_needed:
        return None
    heads = parts.key.shape[1] if repeated is None else repeated[2]
    objection = _objection_to_grouping(parts, heads)
    if isinstance(heads, int) and not objection:
        return _SharedHeads(heads, None if repeated is None else repeated[:2])
    if is_needed:
        reason = f"heads share keys, or scores are capped, and {objection}"
        raise NotAttentionError(reason, parts.query.value)
    return None


def _objection_to_grouping(parts: AttentionParts, heads: Number) -> str:
    """Say why GroupQueryAttention does not compute it, or ""."""
    size = parts.query.shape[-1]
    if not isinstance(heads, int):
        return "the number of key heads is not known"
    if not isinstance(size, int) or size % _GROUPED_UNIT or size != parts.value.shape[-1]:
        told = [described(parts.value.value, n) for n in (size, parts.value.shape[-1])]
        return f"heads of {told[0]} and {told[1]} are not a multiple of {_GROUPED_UNIT}"
    if parts.scores[-2] != parts.scores[-1]:
        return "there are not known to be as many keys as queries"
    return ""


def _grouped(
    parts: AttentionParts, build: GraphBuilder, bias: Operand | None, shared: _SharedHeads
) -> Operand:
    """Describe GroupQueryAttention; every sequence is as long as the tensors are."""
    rows = [merged_heads(build, parts.query.build(build, _LENGTHS_FIRST))]
    if shared.before is None:
        rows.append(merged_heads(build, parts.key.build(build, _KEYS_LENGTHS_FIRST)))
        rows.append(merged_heads(build, parts.value.build(build, _LENGTHS_FIRST)))
    for tensor in shared.before or ():
        followed = follow(tensor)
        assert followed is not None  # noqa: S101  # its shape is known
        rows.append(merged_heads(build, followed.without_scaling().build(build, _LENGTHS_FIRST)))
    lengths, total = _lengths(parts, build)
    attributes: dict[str, object] = {
        "num_heads": parts.scores[1],
        "kv_num_heads": shared.heads,
        "scale": None if parts.has_default_scale else parts.scale,
        "softcap": parts.softcap or None,
        "causal": None if parts.mask.is_causal else 0,
    }
    inputs = (*rows, None, None, lengths, total, None, None, None, bias)
    return DraftOutput(build.node("GroupQueryAttention", _DOMAIN, inputs, attributes, 3))


def _lengths(parts: AttentionParts, build: GraphBuilder) -> tuple[Operand, Operand]:
    """Return the last place of each sequence, and the number of places, in int32."""
    batch, length = parts.scores[0], parts.scores[-1]
    if isinstance(batch, int) and isinstance(length, int):
        last = np.full(batch, length - 1, np.int32)
        return build.constant(last), build.constant(np.array(length, np.int32))
    # there are as many keys as queries
    counted = build.op("Cast", length_of(build, *parts.query.source_of(2)), to=_INT32)
    last_place = build.op("Sub", counted, build.constant(np.array([1], np.int32)))
    lengths = build.op("Expand", last_place, length_of(build, *parts.query.source_of(0)))
    return lengths, build.op("Squeeze", counted)


# -- caches ------------------------------------------------------------------------------------


@far_sighted
def onnxruntime_attention_with_cache(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Let MultiHeadAttention append the new keys and values to those of the cache.

    Before: ``all_k = Concat(past_k, k); MultiHeadAttention(q, all_k, all_v, , , mask)``
    After:  ``MultiHeadAttention(q, k, v, , , mask, past_k, past_v)``
    """
    node = match.node("a")
    joints = [match.node("all_k"), match.node("all_v")]
    if node is None or len(node.inputs) > 6 or not all(map(joins_lengths, joints)):  # noqa: PLR2004  # up to the mask
        return None
    causal = attribute_of(node, "unidirectional")
    if causal is not None and causal.value:
        return None
    if not all(is_read_elsewhere(output, node) for output in match.outputs[1:]):
        return None
    query, key, value, *past = (match.value(n) for n in ("q", "k", "v", "past_k", "past_v"))
    shapes = [() if each is None else shape_of(each) or () for each in (key, value, *past)]
    if {len(shape) for shape in shapes} != {_HEADS_RANK} or shapes[2][2] != shapes[3][2]:
        return None
    rows = [_rows_of(build, each) for each in (key, value)]
    pair = rows if None not in rows else [key, value]
    bias = node.inputs[5] if len(node.inputs) > 5 else None  # noqa: PLR2004  # its slot
    inputs = (query, *pair, None, None, bias, *past)
    made = build.node("MultiHeadAttention", _DOMAIN, inputs, node.attributes, 3)
    return [DraftOutput(made, index) for index in range(3)]


def _rows_of(build: GraphBuilder, value: Value | None) -> Operand | None:
    followed = None if value is None else follow(value)
    found = None if followed is None else followed.without_scaling().seen_as(_LENGTHS_FIRST)
    return None if found is None else merged_heads(build, found.value)
