"""Operators of onnxruntime's own: fused ones, and ones on quantised tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.replacement import BuildError
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities
from dplcli.rewrites.operands import input_of, node_called, node_of, value_called

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.replacement import GraphBuilder, Operand
    from dplcli.dpl.rule import Match, Rejection
    from dplcli.ir import Node, Value


# What the functions that make operators of onnxruntime share.


MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


def array_of(value: Value | None) -> NDArray[Any] | None:
    """Return the data of a constant, also behind Identity nodes; None if it is no constant."""
    tensor = None if value is None else behind_identities(value).constant
    return None if tensor is None else tensor.numpy()


def number_of(node: Node, name: str, default: float) -> float:
    """Return an attribute that is a number; *default* if the node has none.

    Raises:
        BuildError: A caller of the function supplies it.
    """
    attribute = attribute_of(node, name)
    if attribute is None:
        return default
    if not isinstance(attribute.value, (int, float)):
        raise BuildError(f"{name} of {node.op_type} is not known")
    return float(attribute.value)


def dtype_of(value: Value) -> str:
    """Return the element type of a value.

    Raises:
        BuildError: It is not known.
    """
    known = value.known_type()
    if known is None or known.dtype is None:
        raise BuildError(f"the element type of {value.name!r} is unknown")
    return known.dtype


def in_first_place(match: Match, made: Operand) -> tuple[Operand, ...]:
    """Put *made* in the place of the first output, and leave the other outputs as they are.

    A rule lists a node behind its first output if others may read what the node makes: it stays
    for them, and goes with the match if there are none.
    """
    return (made, *match.outputs[1:])


def own(
    match: Match, build: GraphBuilder, op_type: str, *inputs: Operand | None, **attributes: object
) -> tuple[Operand, ...]:
    """Put an operator of onnxruntime's own in the place of the first output."""
    made = build.op(op_type, *inputs, domain=MICROSOFT, **attributes)
    return in_first_place(match, made)


# MatMulNBits: a matrix product whose weights are packed numbers of four bits.


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
    sizes = {"K": weights.shape[1], "N": len(weights), "bits": _BITS, "block_size": size}
    return own(match, build, "MatMulNBits", *inputs, **sizes)


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


# Operators on quantised tensors.


def ort_qlinear_concat(match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection:
    """Make a QLinearConcat, if every input of the Concat ``r`` is dequantised from bytes.

    A zero point that the model omits becomes a constant, since the operator needs one.
    """
    dtype = dtype_of(match.outputs[0])
    zero = build.constant(np.zeros((), np.dtype(dtype)))
    inputs: list[Operand | None] = [match.value("sy"), match.value("zy") or zero]
    for value in node_called(match, "r").inputs:
        node = None if value is None else node_of(behind_identities(value), "DequantizeLinear")
        if node is None:
            return match.reject("an input of the Concat is not dequantised", at=value)
        data, scale, stated = (input_of(node, slot) for slot in range(3))
        if data is None or dtype_of(data) != dtype:
            return match.reject(f"an input of the Concat is not of {dtype}", at=value)
        if scale is None or _shape_of(scale) not in {(), (1,)}:
            return match.reject("an input of the Concat has several scales", at=value)
        inputs += [data, scale, stated or zero]
    axis = attribute_of(node_called(match, "r"), "axis")
    return own(match, build, "QLinearConcat", *inputs, axis=axis)


def _shape_of(value: Value) -> tuple[object, ...] | None:
    known = value.known_type()
    return None if known is None else known.shape
