"""What is computed twice is computed once.

Before: ``a = Relu(x); b = Relu(x)``
After:  whoever read *b* reads *a*
Holds when: operator, attributes and inputs are the same; equal short constants count as the same.
Not for what is random, has a body or comes from an unknown domain.
Numerics: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.nodewise import nodewise
from dplcli.ir import Tensor
from dplcli.ir.placeholders import is_placeholder
from dplcli.ir.randomness import RANDOM_OPS

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Attribute, Node, Value

    Signature: TypeAlias = tuple[Hashable, ...]

_RANDOM = RANDOM_OPS | {"Dropout", "Constant", "Identity"}
"""Operators that may give something else each time; and two that other rules see to."""

_DOMAINS = frozenset({"", "ai.onnx.ml"})
_SHORT = 64


@nodewise()
class merge_common:  # noqa: N801  # catalogues call it by this name
    """Remembers the nodes of one model by what they compute."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: dict[Signature, list[Node]] = {}

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | None:  # noqa: ARG002  # nothing is made
        """Return the outputs of an earlier node that computes the same."""
        node = match.root
        if node.op_type in _RANDOM or node.subgraphs or node.domain not in _DOMAINS:
            return None
        if is_placeholder(node):  # weights of equal shape are different weights
            return None
        alike = self._known.setdefault(_signature(node), [])
        for other in alike:
            if other is not node and _stands_before(other, node) and _same_attributes(other, node):
                return _outputs_of(other, match.outputs)
        alike[:] = [other for other in alike if other is not node and _is_there(other)] + [node]
        return None


def _signature(node: Node) -> Signature:
    """Return what equal nodes have in common, attributes apart."""
    return (node.graph, node.domain, node.op_type, *map(_identity, node.inputs))


def _identity(value: Value | None) -> Hashable:
    """Return what two inputs that are the same have in common: for short constants the data."""
    if value is None or not value.is_constant:
        return value
    tensor = value.constant
    if tensor is None or tensor.is_external or tensor.size > _SHORT:
        return value
    return _data(tensor)


def _data(tensor: Tensor) -> Hashable:
    array = tensor.numpy()
    data = repr(array.tolist()) if array.dtype.hasobject else array.tobytes()
    return (tensor.dtype, tensor.shape, data)


def _same_attributes(first: Node, second: Node) -> bool:
    a, b = first.attributes, second.attributes
    return a.keys() == b.keys() and all(_same_value(a[name], b[name]) for name in a)


def _same_value(first: Attribute, second: Attribute) -> bool:
    a, b = first.value, second.value
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return max(a.size, b.size) <= _SHORT and _data(a) == _data(b)
    return first == second


def _is_there(node: Node) -> bool:
    """Tell whether *node* is still in its graph."""
    made = next((value for value in node.outputs if value is not None), None)
    return made is not None and made.producer is node and node.graph.values.get(made.name) is made


def _stands_before(other: Node, node: Node) -> bool:
    return _is_there(other) and other.position < node.position


def _outputs_of(node: Node, wanted: Sequence[Value]) -> list[Value] | None:
    found = []
    for value in wanted:
        output = node.outputs[value.index] if value.index < len(node.outputs) else None
        if output is None:
            return None
        found.append(output)
    return found
