"""Casts to the element type of another value, where that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.nodewise import nodewise
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, NewValue
    from dplcli.dpl.match import Match

_FLOATS = frozenset({"float16", "float32", "float64"})
_MOST_ELEMENTS = 1024
"""Constants beyond it are left to whoever folds constants, within a budget."""


@nodewise("CastLike")
def resolve_cast_like(match: Match, build: GraphBuilder) -> NewValue | None:
    """Cast to the type that the other value has; the result is a constant if it is a short one."""
    node = match.root
    data, like = node.inputs
    known = None if like is None else like.known_type()
    if data is None or known is None or known.dtype not in DTYPE_CODES:
        return None
    tensor = data.constant
    is_short = tensor is not None and tensor.size <= _MOST_ELEMENTS
    if tensor is not None and is_short and {tensor.dtype, known.dtype} <= _FLOATS:
        with np.errstate(over="ignore"):
            return build.constant(tensor.numpy().astype(known.dtype))
    saturate = node.attributes.get("saturate")
    return build.op("Cast", data, to=DTYPE_CODES[known.dtype], saturate=saturate)
