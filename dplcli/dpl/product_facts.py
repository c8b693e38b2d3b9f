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
    ("com.microsoft", "MatMulNBits"): 1,
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
_PACKED = "MatMulNBits"
"""The node that states depth and columns as attributes: its weight is a string of bits."""


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


def scales_columns(scale: ValueFacts, product: ValueFacts) -> bool:
    """Tell whether the weight of *product* has a scale per column, or per block of a column.

    The weight is the right operand: made by DequantizeLinear, perhaps with a Transpose behind it.
    MatMulNBits has no other scales.
    """
    node = _multiplier(product)
    if node.op_type == _PACKED:
        return True
    weight, is_turned = node.inputs[RIGHT[node.domain, node.op_type]], _turns_right(node)
    source = None if weight is None else behind_identities(weight).producer
    if source is not None and source.op_type == "Transpose" and source.inputs[0] is not None:
        source, is_turned = behind_identities(source.inputs[0]).producer, not is_turned
    if source is None or (source.domain, source.op_type) != ("", "DequantizeLinear"):
        raise TypeError(f"the weight of {product.name!r} is not made by a DequantizeLinear")
    quantised = None if source.inputs[0] is None else shape_of(source.inputs[0])
    scales = shape_of(scale.subject)
    if quantised is None or scales is None:
        raise UnknownFactError(f"the shapes of {scale.name!r} and the weight are not known")
    if len(quantised) != _MATRIX or len(scales) not in {1, _MATRIX}:
        return False
    axis_of_columns = 0 if is_turned else 1
    if scales[axis_of_columns if len(scales) == _MATRIX else 0] != quantised[axis_of_columns]:
        return False
    return (_whole(source, "axis") % _MATRIX == axis_of_columns) is (len(scales) == 1)


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


def only_output(result: ValueFacts) -> bool:
    """Tell whether nothing reads another output of the node that makes *result*."""
    node = result.subject.producer
    others = [] if node is None else [item for item in node.outputs if item is not result.subject]
    return not any(item is not None and (item.use_count or item.returned_by) for item in others)


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
    node = _multiplier(product)
    inputs = inputs_of(node)
    left = _matrices(product, inputs[0])
    if node.op_type == _PACKED:
        return _Operands(left, (_whole(node, "K"), _whole(node, "N")))
    right = _matrices(product, inputs[RIGHT[node.domain, node.op_type]])
    if node.op_type == "Gemm" and _whole(node, "transA"):
        left = _swapped(left)
    return _Operands(left, _swapped(right) if _turns_right(node) else right)


def _multiplier(product: ValueFacts) -> Node:
    node = product.subject.producer
    if node is None or (node.domain, node.op_type) not in RIGHT:
        raise TypeError(f"{product.name!r} is not a product of matrices")
    return node


def _turns_right(node: Node) -> bool:
    return node.op_type == "Gemm" and bool(_whole(node, "transB"))


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


def _whole(node: Node, name: str) -> int:
    attribute = parameter_of(node, name)
    if attribute is None or not isinstance(attribute.value, int):
        raise UnknownFactError(f"the attribute {name!r} of {node.label!r} is not known")
    return attribute.value
