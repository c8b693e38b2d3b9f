"""What conditions may ask of matrix products, and of what is computed round them.

A product is the output of a node that multiplies matrices: one of :data:`RIGHT`. Its depth is the
extent that is summed over, its columns are the last extent of the result; both are read off the
operands, as the node reads them, so no rule needs to know how a weight is laid out.

Extents are compared as :func:`dplcli.dpl.size_helpers.dims` gives them: unknown ones are equal to
nothing but themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.dpl.shapes import shape_of
from dplcli.ir.parameters import inputs_of, parameter_of
from dplcli.ir.traversal import behind_identities, captured_values

if TYPE_CHECKING:
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

RIGHT = {
    ("", "MatMul"): 1,
    ("", "Gemm"): 1,
    ("", "MatMulInteger"): 1,
    ("", "QLinearMatMul"): 3,
}
"""The nodes that multiply matrices, and the input that is the matrix on the right."""

_ZERO_POINTS = {
    "MatMulInteger": (2, 3),
    "ConvInteger": (2, 3),
    "QLinearMatMul": (2, 5, 7),
    "QLinearConv": (2, 5, 7),
    "DequantizeLinear": (2,),
    "QuantizeLinear": (2,),
}
_MATRIX = 2


class _Operands(NamedTuple):
    """The operands of a product, the right one as the product reads it: (…, depth, columns)."""

    left: Dims
    right: Dims


def depth(product: ValueFacts) -> int:
    """Return the extent that *product* sums over.

    Raises:
        UnknownFactError: It is not a number.
    """
    left, right = _operands(product)
    found = next((n for n in (left[-1], right[-2]) if isinstance(n, int)), None)
    if found is None:
        raise UnknownFactError(f"the depth of the product {product.name!r} is not a number")
    return found


def columns(product: ValueFacts) -> int:
    """Return the number of columns of *product*.

    Raises:
        UnknownFactError: It is not a number.
    """
    found = _operands(product).right[-1]
    if not isinstance(found, int):
        raise UnknownFactError(f"the number of columns of {product.name!r} is not known")
    return found


def batches_agree(product: ValueFacts) -> bool:
    """Tell whether both operands have the same leading extents, so that none is broadcast."""
    left, right = _operands(product)
    a, b = left[:-_MATRIX], right[:-_MATRIX]
    longest = max(len(a), len(b))
    return (1,) * (longest - len(a)) + a == (1,) * (longest - len(b)) + b


def left_is_matrix(product: ValueFacts) -> bool:
    """Tell whether the left operand of *product* is a single matrix."""
    return _is_one(_operands(product).left[:-_MATRIX])


def right_is_matrix(product: ValueFacts) -> bool:
    """Tell whether the right operand of *product* is a single matrix."""
    return _is_one(_operands(product).right[:-_MATRIX])


def per_column(vector: ValueFacts, product: ValueFacts) -> bool:
    """Tell whether *vector* has one number per column of *product*, and no other extent.

    ``(N,)`` and ``(1, N)`` are; a column, a whole matrix, and what has more dimensions than the
    product (so that adding it widens the product) are not.
    """
    left, right = _operands(product)
    shape = shape_of(vector.subject)
    if shape is None:
        raise UnknownFactError(f"the rank of {vector.name!r} is unknown")
    if not 1 <= len(shape) <= max(len(left), len(right)):
        return False
    return _is_one(shape[:-1]) and shape[-1] == right[-1]


def scales_columns(scale: ValueFacts, weight: ValueFacts) -> bool:
    """Tell whether a weight has one scale per column of the product, or per block of a column.

    Args:
        scale: The scales.
        weight: What DequantizeLinear makes of them, (depth, columns); or a Transpose of that.
    """
    node, columns_axis = weight.subject.producer, 1
    if node is not None and node.op_type == "Transpose" and node.inputs[0] is not None:
        node, columns_axis = node.inputs[0].producer, 0
    if node is None or (node.domain, node.op_type) != ("", "DequantizeLinear"):
        raise TypeError(f"{weight.name!r} is not made by a DequantizeLinear")
    quantised = node.inputs[0]
    shape = None if quantised is None else shape_of(quantised)
    scales = shape_of(scale.subject)
    if shape is None or scales is None:
        raise UnknownFactError(f"the shapes of {scale.name!r} and the weight are not known")
    if len(shape) != _MATRIX:
        return False
    axis = _axis(node, len(shape))
    if len(scales) == 1:
        return axis == columns_axis and scales[0] == shape[columns_axis]
    return (
        len(scales) == _MATRIX
        and axis == 1 - columns_axis
        and scales[columns_axis] == shape[columns_axis]
    )


def symmetric(result: ValueFacts) -> bool:
    """Tell whether every zero point of the node that makes *result* is absent or constant zeros.

    Raises:
        UnknownFactError: One is computed.
    """
    node = result.subject.producer
    slots = () if node is None or node.domain else _ZERO_POINTS.get(node.op_type, ())
    if node is None or not slots:
        raise TypeError(f"{result.name!r} is not made by an operator with zero points")
    for slot in slots:
        zero_point = node.inputs[slot] if slot < len(node.inputs) else None
        if zero_point is not None and ValueFacts(zero_point).value.any():
            return False
    return True


def transposes_last_two(result: ValueFacts) -> bool:
    """Tell whether the Transpose that makes *result* swaps the last two axes and no others."""
    node = result.subject.producer
    if node is None or (node.domain, node.op_type) != ("", "Transpose"):
        raise TypeError(f"{result.name!r} is not made by a Transpose")
    perm = parameter_of(node, "perm")
    if perm is None or perm.ref or not isinstance(perm.value, tuple):
        raise UnknownFactError(f"the order of the axes of {result.name!r} is not known")
    rest = tuple(range(len(perm.value) - _MATRIX))
    return perm.value == (*rest, len(rest) + 1, len(rest))


def depends_on(value: ValueFacts, source: ValueFacts) -> bool:
    """Tell whether *value* is *source*, or computed from it through any number of nodes."""
    end, origin = source.subject, source.subject.producer
    if value.subject is end:
        return True
    if origin is None:
        return _reaches(value.subject, end, 0)
    return _reaches(value.subject, end, origin.position)


def _reaches(value: Value, end: Value, first: int) -> bool:
    """Walk upwards from *value* to *end*, no further than to the node at position *first*."""
    pending = [value]
    seen: set[Node] = set()
    while pending:
        node = pending.pop().producer
        if node is None or node in seen or node.graph is not end.graph or node.position < first:
            continue
        seen.add(node)
        read = [*(item for item in node.inputs if item is not None), *captured_values(node)]
        if any(item is end for item in read):
            return True
        pending += read
    return False


def _operands(product: ValueFacts) -> _Operands:
    """Read the extents of both operands.

    Raises:
        TypeError: No node that multiplies makes it.
        UnknownFactError: The rank of one is unknown, or it is a vector.
    """
    node = product.subject.producer
    slot = None if node is None else RIGHT.get((node.domain, node.op_type))
    if node is None or slot is None:
        raise TypeError(f"{product.name!r} is not a product of matrices")
    left, right = (_matrices(product, inputs_of(node)[at]) for at in (0, slot))
    if node.op_type == "Gemm":
        left = _swapped(left) if _flag(node, "transA") else left
        right = _swapped(right) if _flag(node, "transB") else right
    return _Operands(left, right)


def _matrices(product: ValueFacts, operand: Value | None) -> Dims:
    shape = None if operand is None else shape_of(behind_identities(operand))
    if shape is None:
        raise UnknownFactError(f"the rank of an operand of {product.name!r} is unknown")
    if len(shape) < _MATRIX:
        raise UnknownFactError(f"an operand of {product.name!r} is a vector")
    return shape


def _swapped(shape: Dims) -> Dims:
    return (*shape[:-_MATRIX], shape[-1], shape[-2])


def _is_one(extents: tuple[Number, ...]) -> bool:
    return all(extent == 1 for extent in extents)


def _flag(node: Node, name: str) -> bool:
    attribute = parameter_of(node, name)
    if attribute is None or attribute.ref:
        raise UnknownFactError(f"the attribute {name!r} of {node.label!r} is not known")
    return bool(attribute.value)


def _axis(node: Node, rank: int) -> int | None:
    attribute = parameter_of(node, "axis")
    if attribute is None or not isinstance(attribute.value, int):
        return None
    return attribute.value % rank
