"""Which operators may be computed once and for all."""

from __future__ import annotations

from dplcli.ir.op_kinds import OP_KINDS

_KEPT = frozenset({"QuantizeLinear", "DequantizeLinear", "Dropout", "BitCast", "SwiGLU"})
"""Operators that say how a model is quantised, or that may not give the same each time."""

_FURTHER = """
    Compress ConstantOfShape CumSum Einsum EyeLike Gemm LayerNormalization MatMul NonZero OneHot
    Range Scatter ScatterElements ScatterND Shape Size Softmax TopK
"""

FOLDABLE = (
    OP_KINDS["elementwise"] | OP_KINDS["broadcast"] | OP_KINDS["injective"] | OP_KINDS["reduction"]
) - _KEPT | {*_FURTHER.split()}
"""Operators that always give the same; convolutions and other heavy work are not among them."""

EXPLOSIVE = frozenset(
    {"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
)
"""Those whose results may be far larger than what they read."""
