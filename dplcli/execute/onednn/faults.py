"""What oneDNN's Graph API computes wrongly, and how it is kept from that.

It fuses more than it can. Where a fusion would be wrong, the value between the two operators is
said to be read outside, too, so that each runs by itself. The faults were found by trying an
operator and a binary one behind it for all shapes that broadcast, with oneDNN 3.2 and 3.7.2, as
``tests/execute/test_fusions.py`` does:

- A product by a matrix is computed with two dimensions, and an operand that is added to it, and has
  more, is misread unless it is a row, a number, or as large as the product.
- Behind pooling and layer normalisation, an operand that is as large as the result is misread.
- Behind softmax, an operand of fewer dimensions is misread, or ends the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dplcli.execute.plan import broadcast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.execute.plan import KernelPlan, OpenShape, PlanOp

_BINARY = frozenset({"add", "divide", "maximum", "minimum", "multiply", "subtract"})
# Behind these, no binary operator is fused.
_ALONE = frozenset({"avg_pool", "layer_norm", "log_softmax", "max_pool", "softmax"})
_OF_ONE_SHAPE = frozenset({"dequantize", "layer_norm", "log_softmax", "quantize", "softmax"}) | {
    *("abs", "clamp", "elu", "exp", "gelu", "hard_swish", "leaky_relu", "log", "mish"),
    *("reciprocal", "relu", "round", "sigmoid", "sqrt", "tanh"),
}
_MATRIX = 2


def misread(plan: KernelPlan) -> set[int]:
    """Return the values behind which a binary operator would go wrong if it were fused.

    Where shapes are not known well enough, this is assumed.
    """
    shapes: dict[int, OpenShape] = {n: array.shape for n, array in plan.numbers.items()}
    shapes |= plan.shapes
    alone: set[int] = set()  # what operators of _ALONE made, and activations behind them
    products: set[int] = set()  # the same of products by matrices, and of what is fused with them
    found: set[int] = set()
    for op in plan.ops:
        first = op.inputs[0]
        if op.kind in _BINARY:
            one, other = op.inputs
            for value, operand in ((one, other), (other, one)):
                if value in alone or (value in products and not _fits(value, operand, shapes)):
                    found.add(value)
            fused = (products & {one, other}) - found
        else:
            fused = products & {first}
        if op.kind in _ALONE or (op.kind in _OF_ONE_SHAPE and first in alone):
            alone.add(op.output)
        if fused or (op.kind == "matmul" and _is_by_matrix(op, shapes)):
            products.add(op.output)
        if (shape := _shape(op, shapes)) is not None:
            shapes[op.output] = shape
    return found


def _fits(product: int, operand: int, shapes: Mapping[int, OpenShape]) -> bool:
    """Tell whether an operand is a row, a number, or as large as the product."""
    whole, other = shapes.get(product), shapes.get(operand)
    if other is None:
        return False
    is_row = all(size == 1 for size in other[:-1])
    return is_row or (other == whole and None not in other)


def _is_by_matrix(op: PlanOp, shapes: Mapping[int, OpenShape]) -> bool:
    """Tell whether a product is, for all that is known, one of more dimensions by a matrix."""
    data, weights = (shapes.get(value) for value in op.inputs[:2])
    is_product_of_matrices = data is not None and len(data) == _MATRIX
    return not is_product_of_matrices and (weights is None or len(weights) == _MATRIX)


def _shape(op: PlanOp, shapes: Mapping[int, OpenShape]) -> OpenShape | None:
    """Return the shape of what an operator makes; None if it is not known."""
    read = [shapes.get(value) for value in op.inputs[:2]]
    first, last = read[0], read[-1]
    if op.kind in _OF_ONE_SHAPE:
        return first
    if first is None or last is None:
        return None
    if op.kind in _BINARY:
        return broadcast(first, last)
    if op.kind == "static_transpose":
        return tuple(first[axis] for axis in cast("Sequence[int]", op.settings["order"]))
    if op.kind == "matmul" and min(len(first), len(last)) >= _MATRIX:
        rows = first[-1] if op.settings.get("transpose_a") else first[-2]
        columns = last[-2] if op.settings.get("transpose_b") else last[-1]
        return (*broadcast(first[:-2], last[:-2]), rows, columns)
    return None
