"""The standard operator RotaryEmbedding in the place of a rotary embedding that is written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft import DraftOutput
from dplcli.dpl.transforms.rotary import NotRotaryError, read_rotary
from dplcli.dpl.transforms.rotary_tables import for_batch
from dplcli.dpl.transforms.tensor_layouts import merged_heads
from dplcli.ir.symbolic import shape_of

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.transforms.rotary import RotaryParts


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
    back = build.constant(np.array([0, 0, parts.heads, -1]))
    return build.op("Reshape", DraftOutput(node), back)


def _tables(parts: RotaryParts, build: GraphBuilder) -> list[Operand]:
    """Return cosines, sines and, if they are rows of tables, which rows."""
    cos, sin = parts.cos, parts.sin
    positions = cos.positions
    length = parts.shape[3 - parts.heads_axis]
    if (
        cos.rows is not None
        and sin.rows is not None
        and positions is not None
        and positions is sin.positions
        and shape_of(positions) == (parts.batch, length)
    ):
        return [cos.build_rows(build), sin.build_rows(build), positions]
    made = []
    for table in (cos, sin):
        rows = table.build(build)
        if table.batch != parts.batch:
            rows = for_batch(build, rows, parts.batch, parts.source)
        made.append(rows)
    return made
