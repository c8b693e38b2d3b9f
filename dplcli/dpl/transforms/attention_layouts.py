"""Make better use of an operator Attention: its own layouts, its own cache, its own masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.nodewise import far_sighted, nodewise
from dplcli.dpl.shapes import shape_of
from dplcli.dpl.shapes.terms import add, multiply
from dplcli.dpl.transforms.attention_masks import build_boolean, build_float, node_of, read_mask
from dplcli.dpl.transforms.operands import follow
from dplcli.dpl.transforms.remake import remade
from dplcli.dpl.transforms.tensor_layouts import merged_heads, split_heads
from dplcli.ir import Value
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node

_HEADS_RANK = 4
_LENGTHS_FIRST = (0, 2, 1, 3)
_MASK = 3
"""Slot of the mask."""
_PAST = 4
"""Slot of the cached keys; that of the cached values is the next one."""


@far_sighted
def attention_of_rows(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Let Attention split and join the heads, rather than transpose before and after it.

    Before: ``Transpose(Attention(Transpose(q), Transpose(k), Transpose(v)))``
    After:  ``Reshape(Attention(Reshape(q), Reshape(k), Reshape(v), q_num_heads=…))``
    """
    node = match.node("a")
    operands = None if node is None else [_lengths_first(value) for value in node.inputs[:3]]
    if node is None or operands is None or len(node.inputs) > _PAST + 2:
        return None
    query, key, value = operands
    if query is None or key is None or value is None:
        return None
    shapes = [shape_of(operand) or () for operand in (query, key, value)]
    heads, of_keys = shapes[0][2], shapes[1][2]
    if not isinstance(heads, int) or not isinstance(of_keys, int):
        return None
    if not all(isinstance(shape[3], int) for shape in shapes):
        return None  # onnx infers a width of 0 from widths that are no numbers
    rows = [merged_heads(build, operand) for operand in (query, key, value)]
    attributes = {**node.attributes, "q_num_heads": heads, "kv_num_heads": of_keys}
    count = len(match.outputs)
    made = build.node("Attention", "", (*rows, *node.inputs[_MASK:]), attributes, count)
    back = split_heads(build, DraftOutput(made), heads)
    return [back, *(DraftOutput(made, index) for index in range(1, count))]


def _lengths_first(value: Value | None) -> Value | None:
    """Return what a value was transposed from, if that has lengths before heads."""
    followed = None if value is None else follow(value)
    if followed is None or followed.rank != _HEADS_RANK:
        return None
    found = followed.without_scaling().seen_as(_LENGTHS_FIRST)
    return None if found is None else found.value


@far_sighted
def attention_unmerged(match: Match, build: GraphBuilder) -> Operand | Rejection | None:
    """Undo the merging of batch and heads round an Attention of a single head.

    Before: ``Reshape(Attention(Reshape(q), Reshape(k), Reshape(v), q_num_heads=1))``
    After:  ``Attention(q, k, v)``
    Holds when: q, k, v and the result are ``(batch, heads, length, size)`` with the same batch and
    heads; the mask is for all of them, or is merged in the same way.
    """
    node = match.node("a")
    if node is None or len(node.inputs) > _PAST:
        return None
    shape = shape_of(match.outputs[0])
    operands = [_unmerged(value) for value in node.inputs[:3]]
    query, key, value = operands
    if shape is None or len(shape) != _HEADS_RANK or not query or not key or not value:
        return None
    for operand in (query, key, value):
        if (shape_of(operand) or ())[:2] != shape[:2]:
            return match.reject("batch and heads of queries, keys and values differ", at=operand)
    query_shape = shape_of(query)
    if query_shape is None or query_shape[2] != shape[2]:
        return match.reject("the result is not split as the queries are", at=query)
    mask: Operand | None = _slot(node, _MASK)
    own = shape_of(mask) if isinstance(mask, Value) else None
    if mask is not None and (own is None or (len(own) == _HEADS_RANK and own[0] != 1)):
        if own is None or not isinstance(shape[1], int):
            return match.reject("how the mask is merged is not known", at=query)
        mask = build.op("Reshape", mask, build.constant(np.array([-1, shape[1], 0, 0])))
    kept = {n: a for n, a in node.attributes.items() if not n.endswith("_num_heads")}
    return DraftOutput(build.node("Attention", "", (query, key, value, mask), kept))


def _unmerged(value: Value | None) -> Value | None:
    """Return x of ``Reshape(x, (batch * heads, length, size))``."""
    node = None if value is None else node_of(value, "Reshape")
    source = None if node is None else node.inputs[0]
    if value is None or source is None:
        return None
    before, after = shape_of(source), shape_of(value)
    if before is None or after is None or len(before) != _HEADS_RANK:
        return None
    merged = (multiply(before[0], before[1]), *before[2:])
    return behind_identities(source) if after == merged else None


@far_sighted
def attention_with_cache(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Let Attention append the new keys and values to those of the cache.

    Before: ``all_k = Concat(past_k, k); all_v = Concat(past_v, v); Attention(q, all_k, all_v)``
    After:  ``y, all_k, all_v = Attention(q, k, v, mask, past_k, past_v)``
    Holds when: both are joined along the lengths; the attribute does not hide keys after the
    query, since with a cache these would be other keys. A mask that hides the keys after the
    query, counted from the end of the cache, becomes the attribute.
    """
    node = match.node("a")
    joints = [match.node("all_k"), match.node("all_v")]
    if node is None or len(node.inputs) > _PAST or len(node.outputs) > 1:
        return None
    causal = attribute_of(node, "is_causal")
    if causal is None or causal.value != 0 or not all(map(joins_lengths, joints)):
        return None
    if not all(is_read_elsewhere(output, node) for output in match.outputs[1:]):
        return None
    query, key, value, *past = (match.value(n) for n in ("q", "k", "v", "past_k", "past_v"))
    shapes = [() if each is None else shape_of(each) or () for each in (query, key, value, *past)]
    if {len(shape) for shape in shapes} != {_HEADS_RANK} or shapes[3][2] != shapes[4][2]:
        return None
    scores = _scores(node)
    stripped = None if scores is None else _without_causal(build, node, scores, shapes[3][2])
    mask: Operand | None = _slot(node, _MASK) if stripped is None else stripped[0]
    attributes = {**node.attributes, "is_causal": None if stripped is None else 1}
    made = build.node("Attention", "", (query, key, value, mask, *past), attributes, 3)
    return [DraftOutput(made, index) for index in range(3)]


def joins_lengths(node: Node | None) -> bool:
    """Tell whether a Concat joins along the lengths, heads being before them."""
    axis = None if node is None else attribute_of(node, "axis")
    return axis is not None and axis.value in {-2, 2}


def is_read_elsewhere(value: Value, node: Node) -> bool:
    """Tell whether somebody else than *node* reads a value: else it is no cache."""
    return bool(value.returned_by) or any(user is not node for user, _ in value.iter_uses())


@far_sighted
@nodewise("Attention")
def attention_causal(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Say in an attribute that keys after the query take no part.

    Before: ``Attention(q, k, v, mask)`` with a mask that hides them
    After:  ``Attention(q, k, v, is_causal=1)``, with what is left of the mask
    """
    node = match.root
    causal = attribute_of(node, "is_causal")
    scores = _scores(node)
    if scores is None or causal is None or causal.value:
        return None
    stripped = _without_causal(build, node, scores, _past_length(node))
    if stripped is None:
        return None
    (left,) = stripped
    inputs = (*node.inputs[:_MASK], left, *node.inputs[_MASK + 1 :])
    made = remade(build, node, inputs, is_causal=1)
    return [made[output.index] for output in match.outputs]


def _without_causal(
    build: GraphBuilder, node: Node, scores: Dims, past: Number
) -> tuple[Operand | None] | None:
    """Return what is left of a mask but that it hides the keys after the query.

    None if it does not, or if what is left has no row for each query.
    """
    mask = _slot(node, _MASK)
    query = _slot(node, 0)
    if mask is None or query is None:
        return None
    read = read_mask([mask], scores, past, split=True)
    if not read.is_causal or any((shape_of(t) or ())[-2:] != scores[-2:] for t in read.tensors):
        return None
    if not read.tensors:
        return (None,)
    if read.is_boolean:
        return (build_boolean(build, read),)
    known = query.known_type()
    if known is None or known.dtype is None:
        return None
    return (build_float(build, read, known.dtype),)


def _scores(node: Node) -> Dims | None:
    """Return the shape of an Attention's scores."""
    query, key = (_shape(node, slot) for slot in (0, 1))
    if query is None or key is None:
        return None
    total = add(key[-2], _past_length(node))
    if len(query) == _HEADS_RANK:
        return (*query[:3], total)
    heads = attribute_of(node, "q_num_heads")
    count = heads.value if heads is not None else None
    return (query[0], count, query[1], total) if isinstance(count, int) else None


def _past_length(node: Node) -> Number:
    shape = _shape(node, _PAST)
    return 0 if shape is None else shape[2]


def _slot(node: Node, slot: int) -> Value | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


def _shape(node: Node, slot: int) -> Dims | None:
    value = _slot(node, slot)
    return None if value is None else shape_of(value)
