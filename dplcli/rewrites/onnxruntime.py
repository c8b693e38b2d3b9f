"""Operators of onnxruntime's own that no text describes: packed weights, any number of operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities
from dplcli.language.replacement import BuildError, dtype_of
from dplcli.rewrites.operands import input_of, node_called, node_of, value_called
from dplcli.shapes import shape_of

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Node, Value
    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match, Rejection


_MICROSOFT = "com.microsoft"
_BITS = 4
_MIDDLE = 8
"""What MatMulNBits takes for a zero point where there is none."""


def ort_matmul_nbits(match: Match, build: GraphBuilder) -> Operand:
    """Make a MatMulNBits of ``a`` and of the weights ``w`` that ``dw`` dequantises in blocks.

    The weights lie K by N with blocks along the first axis, or, where the product is called
    ``by_rows``, N by K with blocks along the second.
    """
    decoding, by_rows = node_called(match, "dw"), match.value("by_rows") is not None
    if _whole(decoding, "axis") % 2 != by_rows:
        raise BuildError("the blocks do not lie along the rows of the product")
    weights, scales = (_matrix(value_called(match, name), by_rows) for name in "ws")
    stated, size = match.value("z"), _whole(decoding, "block_size")
    zeros = None if stated is None else _matrix(stated, by_rows)
    if len(scales) != len(weights) or scales.size * size != weights.size:
        raise BuildError("the scales are not one for each block")
    shift = 0 if dtype_of(match.value("w")) == "uint4" else _MIDDLE
    if zeros is None and not shift:
        zeros = np.zeros(scales.shape, np.int16)
    blocks = (weights.astype(np.int16) + shift).reshape(*scales.shape, size)
    return build.op(
        "MatMulNBits",
        value_called(match, "a"),
        build.constant(_packed(blocks)),
        build.constant(np.ascontiguousarray(scales)),
        None if zeros is None else build.constant(_packed(zeros.astype(np.int16) + shift)),
        domain=_MICROSOFT,
        K=weights.shape[1],
        N=len(weights),
        bits=_BITS,
        block_size=size,
    )


def _whole(node: Node, name: str) -> int:
    attribute = attribute_of(node, name)
    if attribute is None or not isinstance(attribute.value, int):
        raise BuildError(f"{name} of {node.op_type} is not known")
    return attribute.value


def _matrix(value: Value, by_rows: bool) -> NDArray[Any]:  # noqa: FBT001  # private
    """Return a constant matrix, with the columns of the product as its rows."""
    assert value.constant is not None  # noqa: S101  # the pattern asks for it
    data = value.constant.numpy()
    return data if by_rows else data.T


def _packed(numbers: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Pack numbers of four bits in pairs along the last axis, the first of a pair below."""
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    return (numbers[..., 0::2] | numbers[..., 1::2] << _BITS).astype(np.uint8)


def ort_qlinear_concat(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Make a QLinearConcat, if every input of the Concat ``r`` is dequantised from bytes.

    A zero point that the model omits becomes a constant, since the operator needs one.
    """
    dtype = dtype_of(value_called(match, "a"))
    zero = build.constant(np.zeros((), dtype))
    inputs: list[Operand | None] = [match.value("sy"), match.value("zy") or zero]
    for value in node_called(match, "r").inputs:
        node = None if value is None else node_of(behind_identities(value), "DequantizeLinear")
        if node is None:
            return match.reject("an input of the Concat is not dequantised", at=value)
        data, scale, stated = (input_of(node, slot) for slot in range(3))
        if dtype_of(data) != dtype:
            return match.reject(f"an input of the Concat is not of {dtype}", at=value)
        if scale is None or shape_of(scale) not in {(), (1,)}:
            return match.reject("an input of the Concat has several scales", at=value)
        inputs += [data, scale, stated or zero]
    axis = attribute_of(node_called(match, "r"), "axis")
    return build.op("QLinearConcat", *inputs, domain=_MICROSOFT, axis=axis)


def ort_dequantised_concat(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Make a Concat of floats of a QLinearConcat: its inputs come in threes."""
    scale, zero, *parts = match.root.inputs
    floats: list[Operand] = []
    for data, own, stated in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if own is None or shape_of(own) not in {(), (1,)}:
            return match.reject("an input has several scales", at=own)
        floats.append(build.op("DequantizeLinear", data, own, stated))
    joined = build.op("Concat", *floats, axis=attribute_of(match.root, "axis"))
    return build.op("QuantizeLinear", joined, scale, zero)


def ort_dequantised_pool(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Make a pool of floats of a QLinearAveragePool or QLinearGlobalAveragePool."""
    pool = match.root
    last = attribute_of(pool, "channels_last")
    if last is not None and last.value:
        return match.reject("channels come last", at=pool)
    data, scale, zero, made, its_zero = (input_of(pool, slot) for slot in range(5))
    attributes: dict[str, Any] = {**pool.attributes}
    attributes.pop("channels_last", None)
    floats = build.op("DequantizeLinear", data, scale, zero)
    pooled = build.op(pool.op_type.removeprefix("QLinear"), floats, **attributes)
    return build.op("QuantizeLinear", pooled, made, its_zero)


def ort_dequantised_gemm(match: Match, build: GraphBuilder) -> Operand | Rejection:
    """Make a Gemm of floats of a QGemm, which may have a bias, and may give floats."""
    gemm = match.root
    a, sa, za, b, sb, zb, c, sy, zy = (input_of(gemm, slot) for slot in range(9))
    flags = (attribute_of(gemm, name) for name in ("transA", "transB"))
    first, second = (int(flag is not None and flag.value == 1) for flag in flags)
    stated = attribute_of(gemm, "alpha")
    alpha = stated.value if stated is not None and isinstance(stated.value, float) else 1.0
    forms = [None if each is None else shape_of(each) for each in (b, sb, zb, c, sy)]
    if forms[0] is None:
        return match.reject("nothing is known of the weights' columns", at=b)
    columns = forms[0][1 - second : 2 - second]
    if forms[1] != forms[2] or forms[1] not in {(), (1,), columns}:
        return match.reject("the weights have neither one scale nor one for each column", at=sb)
    if sy is not None and forms[4] not in {(), (1,)}:
        return match.reject("the result has several scales", at=sy)
    operands = [
        build.op("DequantizeLinear", a, sa, za),
        build.op("DequantizeLinear", b, sb, zb, axis=1 - second),
    ]
    if c is not None:
        scales = [None if each is None else each.constant for each in (sa, sb)]
        if scales[0] is None or scales[1] is None or forms[3] != columns:
            return match.reject("a bias needs constant scales, and a number for each column", at=c)
        unit = scales[0].numpy().reshape(()) * scales[1].numpy() * np.float32(alpha)
        operands.append(build.op("DequantizeLinear", c, build.constant(unit), axis=0))
    made = build.op("Gemm", *operands, alpha=alpha, transA=first, transB=second)
    return made if sy is None else build.op("QuantizeLinear", made, sy, zy)
