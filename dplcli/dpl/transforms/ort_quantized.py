"""Operators on quantised tensors, from what stands between DequantizeLinear and QuantizeLinear.

The rules call the DequantizeLinear nodes ``da``, ``db`` and ``dc``, the operator between ``r`` and
the QuantizeLinear ``y``. A zero point that the model omits is made up: these operators want it
where the standard's do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
)
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Node, Value

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
    return _Encoded(data, *_parameters(node, dtype_of(data), build))


def _parameters(node: Node, dtype: str, build: GraphBuilder) -> tuple[Operand, Operand]:
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
    return _parameters(node_called(match, "y"), dtype_of(match.outputs[0]), build)


# -- elementwise operators and pools -----------------------------------------------------------


def ort_qlinear_binary(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearAdd or QLinearMul."""
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    made = build.op(
        f"QLinear{node_called(match, 'r').op_type}",
        *(*a, *b, *_encoding(match, build)),
        domain=MICROSOFT,
    )
    return in_first_place(match, made)


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
    made = build.op(
        f"QLinear{op_type}",
        *(*_decoded(node_called(match, "da"), build), *_encoding(match, build)),
        domain=MICROSOFT,
        **attributes,
    )
    return in_first_place(match, made)


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
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    inputs = (condition, *a, *b, *_encoding(match, build))
    return in_first_place(match, build.op("QLinearWhere", *inputs, domain=MICROSOFT))


def ort_qlinear_concat(match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection:
    """Make a QLinearConcat, if every input of the Concat ``r`` is dequantised from bytes."""
    concat = node_called(match, "r")
    dtype = dtype_of(match.outputs[0])
    inputs: list[Operand] = [*_encoding(match, build)]
    for value in concat.inputs:
        node = None if value is None else behind_identities(value).producer
        if node is None or (node.domain, node.op_type) != ("", "DequantizeLinear"):
            return match.reject("an input of the Concat is not dequantised", at=value)
        if dtype_of(_required(node, 0)) != dtype:
            return match.reject(f"an input of the Concat is not of {dtype}", at=value)
        if not _is_scalar(_required(node, 1)):
            return match.reject("an input of the Concat has several scales", at=value)
        inputs += _decoded(node, build)
    axis = attribute_of(concat, "axis")
    return in_first_place(match, build.op("QLinearConcat", *inputs, domain=MICROSOFT, axis=axis))


def _is_scalar(scale: Value) -> bool:
    known = scale.known_type()
    return known is not None and known.shape in {(), (1,)}


# -- convolutions and matrix products ----------------------------------------------------------


def ort_qlinear_conv(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearConv of ``da``, the weights ``db`` and the bias ``dc``."""
    node = node_called(match, "r")
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    bias = _quantized_bias(match, factor=1.0)
    inputs = (*a, *b, *_encoding(match, build), bias)
    return in_first_place(match, build.op("QLinearConv", *inputs, domain="", **node.attributes))


def ort_qlinear_matmul(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QLinearMatMul."""
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    made = build.op("QLinearMatMul", *a, *b, *_encoding(match, build))
    return in_first_place(match, made)


def ort_qgemm(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a QGemm; where nothing quantises what the Gemm makes, its output is float."""
    node = node_called(match, "r")
    a, b = (_decoded(node_called(match, name), build) for name in ("da", "db"))
    alpha = number_of(node, "alpha", 1.0)
    bias = _quantized_bias(match, factor=alpha)
    encoding = () if match.root is node else _encoding(match, build)
    made = build.op(
        "QGemm",
        *(*a, *b, bias, *encoding),
        domain=MICROSOFT,
        alpha=alpha,
        transA=attribute_of(node, "transA"),
        transB=attribute_of(node, "transB"),
    )
    return in_first_place(match, made)


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
    return in_first_place(match, build.op("MatMulIntegerToFloat", *inputs, domain=MICROSOFT))


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
