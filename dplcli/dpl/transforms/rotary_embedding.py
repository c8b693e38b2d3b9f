"""The standard operator RotaryEmbedding in the place of a rotary embedding that is written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.nodewise import far_sighted
from dplcli.dpl.shapes import shape_of
from dplcli.dpl.transforms.rotary import NotRotaryError, read_rotary
from dplcli.dpl.transforms.rotary_tables import for_batch
from dplcli.dpl.transforms.tensor_layouts import merged_heads, split_heads

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.transforms.rotary import RotaryParts


@far_sighted
def rotary_embedding(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe the operator RotaryEmbedding in the place of a match of the rotary pattern."""
    try:
        parts = read_rotary(match)
    except NotRotaryError as error:
        return error.rejection(match)
    if parts.heads_first is None and not isinstance(parts.heads, int):
        return match.reject("the number of heads is not known", at=parts.source)
    tables = _tables(parts, build)
    attributes: dict[str, object] = {
        "interleaved": 1 if parts.is_interleaved else None,
        "rotary_embedding_dim": parts.width if parts.is_partial else None,
    }
    if parts.heads_first is not None:
        node = build.node("RotaryEmbedding", "", (parts.heads_first, *tables), attributes)
        turned = DraftOutput(node)
        return turned if parts.heads_axis == 1 else build.op("Transpose", turned, perm=[0, 2, 1, 3])
    attributes["num_heads"] = parts.heads
    flat = merged_heads(build, parts.source)
    node = build.node("RotaryEmbedding", "", (flat, *tables), attributes)
    return split_heads(build, DraftOutput(node), parts.heads)


def _tables(parts: RotaryParts, build: GraphBuilder) -> list[Operand]:
    """Return cosines, sines and, if they are rows of tables, which rows."""
    shared = _shared_rows(parts, build)
    if shared is not None:
        return shared
    made = []
    for table in (parts.cos, parts.sin):
        rows = table.build(build)
        if table.batch != parts.batch:
            rows = for_batch(build, rows, parts.batch, parts.source)
        made.append(rows)
    return made


def _shared_rows(parts: RotaryParts, build: GraphBuilder) -> list[Operand] | None:
    """Return cosines and sines of all positions, and the positions, if it is made of these."""
    cos, sin = parts.cos, parts.sin
    length = parts.shape[3 - parts.heads_axis]
    positions = cos.positions
    if cos.rows is None or sin.rows is None or positions is None:
        return None
    if positions is not sin.positions or shape_of(positions) != (parts.batch, length):
        return None
    return [cos.build_rows(build), sin.build_rows(build), positions]


@far_sighted
def onnxruntime_rotary_embedding(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Describe onnxruntime's own operator in the place of a match of the rotary pattern.

    Its tables are matrices: rows for all positions and which rows to take, or rows for the
    positions of every sequence, which begin at 0.
    """
    try:
        parts = read_rotary(match)
    except NotRotaryError as error:
        return error.rejection(match)
    if not isinstance(parts.heads, int):
        return match.reject("the number of heads is not known", at=parts.source)
    tables = _matrices(parts, build)
    if tables is None:
        return match.reject("the positions differ between sequences", at=parts.cos.value)
    attributes: dict[str, object] = {
        "interleaved": 1 if parts.is_interleaved else None,
        "rotary_embedding_dim": parts.width if parts.is_partial else None,
        "num_heads": parts.heads if parts.is_partial or parts.heads_first is None else None,
    }
    source = parts.heads_first
    rows = source if source is not None else merged_heads(build, parts.source)
    node = build.node("RotaryEmbedding", "com.microsoft", (rows, *tables), attributes)
    if source is None:
        return split_heads(build, DraftOutput(node), parts.heads)
    turned = DraftOutput(node)
    return turned if parts.heads_axis == 1 else build.op("Transpose", turned, perm=[0, 2, 1, 3])


def _matrices(parts: RotaryParts, build: GraphBuilder) -> list[Operand] | None:
    """Return positions, cosines and sines; None if each sequence has rows of its own."""
    shared = _shared_rows(parts, build)
    if shared is not None:
        return [shared[2], shared[0], shared[1]]
    if parts.cos.batch != 1 or parts.sin.batch != 1:
        return None
    first = build.constant(np.array([0]))
    axis = build.constant(np.array([0]))
    return [first, *(build.op("Squeeze", t.build(build), axis) for t in (parts.cos, parts.sin))]
