"""MatMulNBits: a matrix product whose weights are packed numbers of four bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft_attributes import BuildError
from dplcli.dpl.transforms.ort_common import (
    MICROSOFT,
    array_of,
    dtype_of,
    in_first_place,
    input_of,
    node_called,
    number_of,
    value_called,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Value

_BITS = 4
_MIDDLE = 8
"""What MatMulNBits takes for a zero point where there is none."""


def ort_matmul_nbits(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a MatMulNBits of ``a`` and of the weights that ``dw`` dequantises in blocks.

    The weights lie K by N with blocks along the first axis, or, where the product is called
    ``by_rows``, N by K with blocks along the second.
    """
    decoding = node_called(match, "dw")
    by_rows = match.value("by_rows") is not None
    if int(number_of(decoding, "axis", 1)) % 2 != by_rows:
        raise BuildError("the blocks do not lie along the rows of the product")
    weights, scales = (_matrix(input_of(decoding, slot), by_rows) for slot in (0, 1))
    stated = input_of(decoding, 2)
    zeros = None if stated is None else _matrix(stated, by_rows)
    size = int(number_of(decoding, "block_size", 0))
    if scales.shape[0] != len(weights) or scales.size * size != weights.size:
        raise BuildError("the scales are not one for each block")
    unsigned = dtype_of(value_called(match, "w")) == "uint4"
    shift = 0 if unsigned else _MIDDLE
    if zeros is None and unsigned:
        zeros = np.zeros(scales.shape, np.int16)
    blocks = (weights.astype(np.int16) + shift).reshape(*scales.shape, size)
    inputs: list[Operand | None] = [
        value_called(match, "a"),
        build.constant(_packed(blocks)),
        build.constant(np.ascontiguousarray(scales)),
        None if zeros is None else build.constant(_packed(zeros.astype(np.int16) + shift)),
    ]
    made = build.op(
        "MatMulNBits",
        *inputs,
        domain=MICROSOFT,
        K=weights.shape[1],
        N=len(weights),
        bits=_BITS,
        block_size=size,
    )
    return in_first_place(match, made)


def _matrix(value: Value | None, by_rows: bool) -> NDArray[Any]:  # noqa: FBT001  # private
    """Return a constant matrix, with the columns of the product as its rows."""
    data = array_of(value)
    if data is None or data.ndim != 2:  # noqa: PLR2004  # a matrix
        raise BuildError("the weights are not constant matrices")
    return data if by_rows else data.T


def _packed(numbers: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Pack numbers of four bits in pairs along the last axis, the first of a pair below."""
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    return (numbers[..., 0::2] | numbers[..., 1::2] << _BITS).astype(np.uint8)
