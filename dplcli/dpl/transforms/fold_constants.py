"""Nodes whose inputs are all constant become what they compute.

Before: ``y = Mul(a, b)`` with constants *a* and *b*
After:  ``y`` is a constant
Holds when: the operator always gives the same, has no body, and the result fits the size budget:
what it takes, less the constants that nothing reads afterwards.
Numerics: onnx's reference evaluator computes each node in its own element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.shapes import Knowledge
from dplcli.dpl.transforms.budget import SizeBudget, size_in_bytes
from dplcli.ir import ArrayTensor
from dplcli.ir.op_kinds import OP_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Node, Value

_KEPT = frozenset({"QuantizeLinear", "DequantizeLinear", "Dropout", "BitCast", "SwiGLU"})
"""Operators that say how a model is quantised, or that may not give the same each time."""

_FURTHER = """
    ConstantOfShape CumSum Einsum EyeLike Gemm MatMul NonZero OneHot Range Scatter ScatterElements
    ScatterND Shape Size Softmax TopK Compress LayerNormalization
"""

FOLDABLE = (
    OP_KINDS["elementwise"] | OP_KINDS["broadcast"] | OP_KINDS["injective"] | OP_KINDS["reduction"]
) - _KEPT | {*_FURTHER.split()}
"""Operators that are folded; convolutions and other heavy work are not."""

_MOST_WORK = 1 << 24
"""Elements of the inputs or of the results of a node beyond which it is not computed."""


@nodewise()
class fold_constants:  # noqa: N801  # catalogues call it by this name
    """Folds nodes for one model, within one budget."""

    def __init__(self) -> None:
        """Start with the whole budget."""
        self.budget = SizeBudget()

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
        """Describe the constants that take the place of a node."""
        node = match.root
        if not is_foldable(node) or not match.outputs:
            return None
        size = _expected_size(node, match.outputs)
        if size is None or size > _MOST_WORK:
            return match.reject("how large the result is cannot be told, or it is too large")
        if not self.budget.allows(node, size):
            return match.reject(f"{size:,} bytes of constants would be more than the file may grow")
        arrays = build.evaluate(node)
        if arrays is None or len(arrays) != len(node.outputs):
            return match.reject("onnx's reference evaluator cannot compute it")
        tensors = [ArrayTensor(arrays[value.index]) for value in match.outputs]
        for tensor, value in zip(tensors, match.outputs, strict=True):
            known = value.known_type()
            if known is not None and known.dtype not in (None, tensor.dtype):
                return match.reject(f"the result would be {tensor.dtype} instead of {known.dtype}")
        self.budget.spend(node, size)
        return [build.constant(tensor) for tensor in tensors]


def is_foldable(node: Node) -> bool:
    """Tell whether *node* is one to compute: constant inputs, the same result each time."""
    if node.domain or node.op_type not in FOLDABLE or node.subgraphs:
        return False
    inputs = [value for value in node.inputs if value is not None]
    if not inputs or not all(value.is_constant for value in inputs):
        return False
    tensors = [value.constant for value in inputs]
    return all(t is not None and not t.is_external and t.size <= _MOST_WORK for t in tensors)


def _expected_size(node: Node, outputs: Sequence[Value]) -> int | None:
    """Return how many bytes the results will take; None if that is not known beforehand."""
    knowledge = node.graph.model.memory(Knowledge)
    total = 0
    for value in outputs:
        fact = knowledge.fact(value)
        if fact.dtype is None or fact.shape is None:
            return None
        count = 1
        for dim in fact.shape:
            if not isinstance(dim, int):
                return None
            count *= dim
        total += size_in_bytes(fact.dtype, count)
    return total
