"""Nodes whose inputs are all constant become what they compute.

Before: ``y = Mul(a, b)`` with constants *a* and *b*
After:  ``y`` is a constant
Holds when: the operator always gives the same, has no body, is no placeholder of a weight, and the
result takes hardly more than what goes: the node, and the constants that nothing reads afterwards.
Numerics: onnx's reference evaluator computes each node in its own element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.shapes import Knowledge
from dplcli.dpl.shapes.content_rules import CONTENT_RULES, MEASURING
from dplcli.dpl.shapes.foldable import FOLDABLE
from dplcli.dpl.shapes.view import WHOLE
from dplcli.dpl.transforms.budget import may_become, size_in_bytes
from dplcli.ir import ArrayTensor
from dplcli.ir.placeholders import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Node, Value

_MOST_WORK = 1 << 24
"""Elements of the inputs or of the results of a node beyond which it is not computed."""


@nodewise(reach=3)
class fold_constants:  # noqa: N801  # catalogues call it by this name
    """Folds the nodes of one model."""

    def __init__(self) -> None:
        """Begin where no shape has been asked for."""
        self.meets_shapes = False

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
        """Describe the constants that take the place of a node."""
        node = match.root
        self.meets_shapes = self.meets_shapes or node.op_type in MEASURING
        arrays = _known(node, match.outputs) if self.meets_shapes and match.outputs else None
        if arrays is None and not is_foldable(node):
            return None
        size = _expected_size(node, match.outputs)
        if size is None or size > _MOST_WORK:
            return match.reject("how large the result is cannot be told, or it is too large")
        if not may_become(node, size):
            return match.reject(
                f"{size:,} bytes of constants are more than the file may grow by for one node"
            )
        arrays = arrays or _computed(node, match.outputs, build)
        if arrays is None:
            return match.reject("onnx's reference evaluator cannot compute it as it should be")
        return [build.constant(array) for array in arrays]


def _computed(
    node: Node, outputs: Sequence[Value], build: GraphBuilder
) -> list[NDArray[Any]] | None:
    """Return the results, if they are of the types that they should be."""
    made = build.evaluate(node)
    if made is None or len(made) != len(node.outputs):
        return None
    for value in outputs:
        known = value.known_type()
        if known is not None and known.dtype not in (None, ArrayTensor(made[value.index]).dtype):
            return None
    return [made[value.index] for value in outputs]


def _known(node: Node, outputs: Sequence[Value]) -> list[NDArray[Any]] | None:
    """Return whole numbers that follow from shapes and constants, whatever the inputs."""
    if node.domain or node.op_type not in CONTENT_RULES:
        return None
    types = [value.known_type() for value in outputs]
    if any(known is not None and known.dtype not in WHOLE for known in types):
        return None
    knowledge = node.graph.model.memory(Knowledge)
    arrays = [knowledge.array(value) for value in outputs]
    found = [array for array in arrays if array is not None]
    return found if len(found) == len(arrays) else None


def is_foldable(node: Node) -> bool:
    """Tell whether *node* is one to compute: constant inputs, the same result each time.

    A placeholder is none: folded, a weight that was left out of the file would be in it.
    """
    if node.domain or node.op_type not in FOLDABLE or node.subgraphs:
        return False
    if is_placeholder(node):
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
