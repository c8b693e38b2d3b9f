"""Operators of onnxruntime's own: fused ones, and ones on quantised tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


def number_called(match: Match, name: str) -> float | None:
    """Return the only element of a constant; None if the name took no part."""
    value = match.value(name)
    data = array_of(value)
    if value is None:
        return None
    if data is None or data.size != 1:
        raise BuildError(f"{name!r} is not a constant of one element")
    return float(data.reshape(()))


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


# Operators on quantised tensors, from what stands between DequantizeLinear and QuantizeLinear.
#
# The rules call the DequantizeLinear nodes ``da``, ``db`` and ``dc``, the operator between ``r``
# and the QuantizeLinear ``y``. A zero point that the model omits becomes a constant of zeros, since
# these operators need one where the standard's do not.


_BIAS_TOLERANCE = 1e-5
_FIRST_OPSET_OF_ONE_AXIS = 13


class _Encoded(NamedTuple):
    """A quantised tensor, its scale and its zero point."""

    data: Operand
    scale: Operand
    zero: Operand


def _decoded(node: Node, build: GraphBuilder) -> _Encoded:
    """Return what a DequantizeLinear reads."""
    data = _required(node, 0)
    return _Encoded(data, *_quantization_parameters(node, dtype_of(data), build))


def _decoded_pair(match: Match, build: GraphBuilder) -> tuple[Operand, ...]:
    """Return what ``da`` reads, then what ``db`` reads."""
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    return (*a, *b)


def _quantization_parameters(
    node: Node, dtype: str, build: GraphBuilder
) -> tuple[Operand, Operand]:
    """Return scale and zero point of a (De)QuantizeLinear; it may have no zero point."""
    scale, zero = _required(node, 1), input_of(node, 2)
    if zero is not None:
        return _scalar(scale, build), _scalar(zero, build)
    dims = [dim for dim in _dims_of(scale) if isinstance(dim, int) and dim != 1]
    if len(dims) < sum(dim != 1 for dim in _dims_of(scale)):
        raise BuildError(f"the length of {scale.name!r} is unknown")
    return _scalar(scale, build), build.constant(np.zeros(dims, np.dtype(dtype)))


def _scalar(parameter: Value, build: GraphBuilder) -> Operand:
    """Make a scalar of a vector of one number: some operators take no other."""
    if _dims_of(parameter) != (1,):
        return parameter
    data = array_of(parameter)
    if data is None:
        raise BuildError(f"{parameter.name!r} is a vector of one number, and not constant")
    return build.constant(data.reshape(()))


def _required(node: Node, slot: int) -> Value:
    value = input_of(node, slot)
    if value is None:
        raise BuildError(f"{node.op_type} has no input {slot}")
    return value


def _encoding(match: Match, build: GraphBuilder) -> tuple[Operand, Operand]:
    """Return scale and zero point of what the match makes."""
    return _quantization_parameters(node_called(match, "y"), dtype_of(match.outputs[0]), build)


# -- elementwise operators and pools -----------------------------------------------------------


def ort_qlinear_binary(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearAdd or QLinearMul."""
    inputs = (*_decoded_pair(match, build), *_encoding(match, build))
    return own(match, build, f"QLinear{node_called(match, 'r').op_type}", *inputs)


def ort_qlinear_unary(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax or a pool, with its attributes."""
    node = node_called(match, "r")
    op_type = "GlobalAveragePool" if node.op_type == "ReduceMean" else node.op_type
    attributes: dict[str, object] = {}
    if op_type in {"LeakyRelu", "AveragePool"}:
        attributes = {k: v for k, v in node.attributes.items() if k != "dilations"}
    _refuse_dilations(node)
    if op_type == "Softmax":
        attributes = _softmax_attributes(node, build.opset)
    inputs = (*_decoded(node_called(match, "da"), build), *_encoding(match, build))
    return own(match, build, f"QLinear{op_type}", *inputs, **attributes)


def _softmax_attributes(node: Node, opset: int) -> dict[str, object]:
    """Return the attributes of QLinearSoftmax, if it divides several elements by their sum.

    Up to opset 12 that is all dimensions from the axis on.
    """
    axis = attribute_of(node, "axis")
    dims = _dims_of(_required(node, 0))
    if axis is None or not isinstance(axis.value, int) or not -len(dims) <= axis.value < len(dims):
        raise BuildError("the axis of the Softmax is not known")
    first = axis.value % len(dims)
    divided = dims[first:] if opset < _FIRST_OPSET_OF_ONE_AXIS else dims[first : first + 1]
    if not all(isinstance(dim, int) for dim in divided) or all(dim == 1 for dim in divided):
        raise BuildError("QLinearSoftmax needs to know that there are several elements")
    return {"axis": axis.value, "opset": opset}


def _refuse_dilations(node: Node) -> None:
    stated = node.attributes.get("dilations")
    dilations = () if stated is None else stated.value
    if not isinstance(dilations, tuple) or any(item != 1 for item in dilations):
        raise BuildError(f"QLinear{node.op_type} knows no dilations")


def ort_qlinear_where(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearWhere."""
    condition = input_of(node_called(match, "r"), 0)
    inputs = (condition, *_decoded_pair(match, build), *_encoding(match, build))
    return own(match, build, "QLinearWhere", *inputs)


def ort_qlinear_concat(match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection:
    """Make a QLinearConcat, if every input of the Concat ``r`` is dequantised from bytes."""
    concat = node_called(match, "r")
    dtype = dtype_of(match.outputs[0])
    inputs: list[Operand] = [*_encoding(match, build)]
    for value in concat.inputs:
        node = None if value is None else node_of(behind_identities(value), "DequantizeLinear")
        if node is None:
            return match.reject("an input of the Concat is not dequantised", at=value)
        if dtype_of(_required(node, 0)) != dtype:
            return match.reject(f"an input of the Concat is not of {dtype}", at=value)
        if not _is_scalar(_required(node, 1)):
            return match.reject("an input of the Concat has several scales", at=value)
        inputs += _decoded(node, build)
    axis = attribute_of(concat, "axis")
    return own(match, build, "QLinearConcat", *inputs, axis=axis)


def _is_scalar(scale: Value) -> bool:
    known = scale.known_type()
    return known is not None and known.shape in {(), (1,)}


# -- convolutions and matrix products ----------------------------------------------------------


def ort_qlinear_conv(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearConv of ``da``, the weights ``db`` and the bias ``dc``."""
    node = node_called(match, "r")
    bias = _quantized_bias(match, factor=1.0)
    inputs = (*_decoded_pair(match, build), *_encoding(match, build), bias)
    return in_first_place(match, build.op("QLinearConv", *inputs, domain="", **node.attributes))


def ort_qlinear_matmul(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearMatMul."""
    inputs = (*_decoded_pair(match, build), *_encoding(match, build))
    return in_first_place(match, build.op("QLinearMatMul", *inputs))


def ort_qgemm(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QGemm; where nothing quantises what the Gemm makes, its output is float."""
    node = node_called(match, "r")
    pair = _decoded_pair(match, build)
    attributes: dict[str, object] = {n: attribute_of(node, n) for n in ("transA", "transB")}
    alpha = number_of(node, "alpha", 1.0)
    bias = _quantized_bias(match, factor=alpha)
    encoding = () if match.root is node else _encoding(match, build)
    return own(match, build, "QGemm", *pair, bias, *encoding, alpha=alpha, **attributes)


def _quantized_bias(match: Match, *, factor: float) -> Value | None:
    """Return the int32 bias that ``dc`` dequantises, if it counts in units of the products.

    Raises:
        BuildError: Its scale is not the product of the others, or it has a zero point.
    """
    node = match.node("dc")
    if node is None:
        return None
    scales = [_scale_of(node_called(match, name)) for name in ("da", "db")]
    expected = factor * scales[0].astype(np.float64) * scales[1].astype(np.float64)
    found = _scale_of(node).astype(np.float64)
    if not np.allclose(found, expected, rtol=_BIAS_TOLERANCE, atol=0):
        raise BuildError("the bias is quantised in other units than the products")
    stated = input_of(node, 2)
    zero = array_of(stated)
    if stated is not None and (zero is None or zero.any()):
        raise BuildError("the zero point of the bias is not 0")
    return _required(node, 0)


def _scale_of(node: Node) -> NDArray[Any]:
    scale = array_of(_required(node, 1))
    if scale is None:
        raise BuildError(f"the scale of {node.label!r} is not constant")
    return scale


# -- integer products, scaled ------------------------------------------------------------------


def ort_dequantized_matmul(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a MatMulIntegerToFloat of two dequantised operands."""
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    inputs = (a.data, b.data, a.scale, b.scale, a.zero, b.zero)
    return own(match, build, "MatMulIntegerToFloat", *inputs)


def ort_matmul_integer_to_float(match: Match, build: GraphBuilder) -> Operand:
    """Make a MatMulIntegerToFloat of a MatMulInteger (``r``) that is converted and scaled."""
    node = node_called(match, "r")
    a, b, *zeros = (input_of(node, slot) for slot in range(4))
    scales = (match.value("sa"), match.value("sb"))
    return build.op("MatMulIntegerToFloat", a, b, *scales, *zeros, domain=MICROSOFT)


def ort_dynamic_quantize_matmul(match: Match, build: GraphBuilder) -> Operand:
    """Make a DynamicQuantizeMatMul of ``x``, quantised for the MatMulIntegerToFloat ``y`` only."""
    node = node_called(match, "y")
    b, scale, zero, bias = (input_of(node, slot) for slot in (1, 3, 5, 6))
    return build.op(
        "DynamicQuantizeMatMul", match.value("x"), b, scale, zero, bias, domain=MICROSOFT
    )


_BIAS_SLOTS = {"MatMulIntegerToFloat": 6, "DynamicQuantizeMatMul": 4, "MatMulNBits": 5}


def ort_matmul_bias(match: Match, build: GraphBuilder) -> Operand:
    """Give a product ``r`` that has no bias the one that is added to it."""
    node = node_called(match, "r")
    slot = _BIAS_SLOTS[node.op_type]
    if input_of(node, slot) is not None:
        raise BuildError(f"{node.op_type} has a bias already")
    inputs = [input_of(node, index) for index in range(slot)]
    bias = match.value("bias")
    return build.op(node.op_type, *inputs, bias, domain=MICROSOFT, **node.attributes)


def _dims_of(value: Value) -> tuple[object, ...]:
    known = value.known_type()
    if known is None or known.shape is None:
        raise BuildError(f"the rank of {value.name!r} is unknown")
    return known.shape
