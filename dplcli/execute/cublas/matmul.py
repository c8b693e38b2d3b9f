"""A product of matrices as cuBLASLt is told it, without the library and without a GPU.

cuBLASLt's matrices are column-major. A row-major matrix is the column-major form of its transpose,
so that Y = X W is written as Y' = W' X': the right matrix of ONNX is A here, the left one is B. A
row that is added to Y is a column that is added to all columns of Y', which is the library's bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.execute.plan import RefusedError
from dplcli.execute.product import matrices_of, product_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.execute.plan import KernelPlan, Shape
    from dplcli.execute.product import Product

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
"""Element types, as ``cudaDataType_t`` (library_types.h)."""

COMPUTE_32F, COMPUTE_64F = 68, 70
"""``cublasComputeType_t`` (cublas_api.h): float32 throughout, no TF32."""

DEFAULT, RELU, BIAS = 1, 2, 4
"""``cublasLtEpilogue_t`` (cublasLt.h), whose numbers are combined."""

EPILOGUES = {DEFAULT: "DEFAULT", RELU: "RELU", BIAS: "BIAS", RELU | BIAS: "RELU_BIAS"}


@dataclass(frozen=True)
class Layout:
    """A column-major matrix, or several.

    Attributes:
        rows: Its rows.
        columns: Its columns.
        leading: Elements from one column to the next.
        batch: How many matrices there are.
        stride: Elements from one matrix to the next.
    """

    rows: int
    columns: int
    leading: int
    batch: int = 1
    stride: int = 0


@dataclass(frozen=True)
class Matmul:
    """D = epilogue(op(A) op(B) + bias), column-major.

    Attributes:
        a: Matrix A.
        b: Matrix B.
        d: Matrix D.
        transpose_a: Whether op(A) is the transpose of A.
        transpose_b: Whether op(B) is the transpose of B.
        compute: Type in which is computed (``cublasComputeType_t``).
        scale: Type of the factors alpha and beta, a key of :data:`DTYPES`.
        epilogue: What is done to the product, a key of :data:`EPILOGUES`.
        tail: What is left to be done to D afterwards: ``gelu``, or "" for nothing.
        product: What it computes, row-major.
    """

    a: Layout
    b: Layout
    d: Layout
    transpose_a: bool
    transpose_b: bool
    compute: int
    scale: str
    epilogue: int
    tail: str
    product: Product


def lower(plan: KernelPlan, shapes: Mapping[int, Shape]) -> Matmul:
    """Return a plan as one product of cuBLASLt.

    A Gelu stays apart. The library's own is believed to be the one by tanh, and ONNX's is by erf.

    Args:
        plan: The plan.
        shapes: The shapes of its inputs.

    Raises:
        RefusedError: It is no such product; the message says why.
    """
    product = product_of(plan, shapes)
    if product.kind != "matmul":
        raise RefusedError(f"{product.kind}: cuBLASLt multiplies matrices")
    if product.binary:
        raise RefusedError(f"{product.binary} after the product: no epilogue of cuBLASLt")
    if product.activation not in {"", "relu", "gelu"}:
        raise RefusedError(f"{product.activation} after the product: no epilogue of cuBLASLt")
    if product.dtype not in DTYPES:
        raise RefusedError(f"values are of type {product.dtype}")
    is_wide = product.dtype == "float64"
    has_bias = product.bias is not None
    if is_wide and (has_bias or product.activation):
        raise RefusedError("float64 with an epilogue")
    of = matrices_of(product)
    if not of.depth:
        raise RefusedError("a product over nothing")
    a = (of.columns, of.depth)[:: -1 if of.is_right_turned else 1]  # as they are stored
    b = (of.depth, of.rows)[:: -1 if of.is_left_turned else 1]
    epilogue = (RELU if product.activation == "relu" else 0) | (BIAS if has_bias else 0)
    return Matmul(
        Layout(a[0], a[1], a[0], of.batch, of.right_stride),
        Layout(b[0], b[1], b[0], of.batch, of.left_stride),
        Layout(of.columns, of.rows, of.columns, of.batch, of.columns * of.rows),
        of.is_right_turned,
        of.is_left_turned,
        COMPUTE_64F if is_wide else COMPUTE_32F,
        "float64" if is_wide else "float32",
        epilogue or DEFAULT,
        "gelu" if product.activation == "gelu" else "",
        product,
    )
