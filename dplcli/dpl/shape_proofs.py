"""Whether broadcasting has widened a value: proofs from the nodes, where types may be unknown.

A rule that puts one operator in the place of several elementwise ones must know that none of the
other operands, a constant of rank 5 say, makes the result larger than the input. Shape inference
knows the result's shape only where it knows the input's, and a symbol in a shape is what the file
claims; so the proof goes through the nodes: what is computed from *x* element by element, with
operands that fit into *x*, has the shape of *x*, whatever that is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.dpl.shapes import Knowledge
from dplcli.ir.op_kinds import OP_KINDS
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Node, Value

_MOST_NODES = 64

_KEEP = OP_KINDS["elementwise"] | frozenset(
    {"DequantizeLinear", "QuantizeLinear", "CumSum", "LogSoftmax", "Softmax"}
    | {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"}
    | {"LpNormalization", "MeanVarianceNormalization", "RMSNormalization"}
)
"""Operators whose first output has the shape of their first input."""

_BROADCAST = OP_KINDS["broadcast"] - {"DequantizeLinear", "Expand", "QuantizeLinear", "Unsqueeze"}
_REDUCTIONS = OP_KINDS["reduction"]


class _Extent(IntEnum):
    """How the shape of a value compares with that of the source."""

    UNKNOWN = 0
    FITS = 1
    WHOLE = 2


def shaped_like(result: ValueFacts, source: ValueFacts) -> bool:
    """Tell whether *result*, which is computed from *source*, has its shape.

    Raises:
        UnknownFactError: Nothing proves it.
    """
    if _Proof(source.subject).extent_of(result.subject) is _Extent.WHOLE:
        return True
    raise UnknownFactError(f"{result.name!r} may have another shape than {source.name!r}")


class _Proof:
    """Compares shapes with that of one value.

    Args:
        source: The value.
    """

    def __init__(self, source: Value) -> None:
        self.source = behind_identities(source)
        self.knowledge = source.graph.model.memory(Knowledge)
        self.shape = self.knowledge.shape(source)

    def extent_of(self, result: Value) -> _Extent:
        """Compare *result*, in topological order of what it is computed from."""
        found: dict[Value, _Extent] = {self.source: _Extent.WHOLE}
        pending = [result]
        while pending:
            value = pending[-1]
            node = None if value in found else value.producer
            missing = (
                [] if node is None else [v for v in node.inputs if v is not None and v not in found]
            )
            if missing and len(found) + len(pending) < _MOST_NODES:
                pending += missing
                continue
            if value not in found:
                found[value] = max(self._by_type(value), self._by_node(value, found))
            pending.pop()
        return found[result]

    def _by_type(self, value: Value) -> _Extent:
        """Compare dimensions; those that are no numbers (symbols are claims) prove nothing."""
        shape = self.knowledge.shape(value)
        if shape is None:
            return _Extent.UNKNOWN
        if not shape:
            return _Extent.FITS
        if self.shape is None or not _broadcasts(shape, self.shape):
            return _Extent.UNKNOWN
        is_whole = shape == self.shape and all(isinstance(dim, int) for dim in shape)
        return _Extent.WHOLE if is_whole else _Extent.FITS

    def _by_node(self, value: Value, found: dict[Value, _Extent]) -> _Extent:
        """Conclude from what the value's node reads."""
        node = value.producer
        if node is None or node.domain or value.index:
            return _Extent.UNKNOWN
        read = [found.get(v, _Extent.UNKNOWN) for v in node.inputs if v is not None]
        if not read:
            return _Extent.UNKNOWN
        if node.op_type in _KEEP:
            return read[0]
        if node.op_type in _BROADCAST:
            return max(read) if min(read) is not _Extent.UNKNOWN else _Extent.UNKNOWN
        if node.op_type in _REDUCTIONS and _keeps_dims(node):
            return min(read[0], _Extent.FITS)
        return _Extent.UNKNOWN


def _keeps_dims(node: Node) -> bool:
    keepdims = attribute_of(node, "keepdims")
    return keepdims is not None and not keepdims.ref and keepdims.value == 1


def _broadcasts(small: Sequence[object], large: Sequence[object]) -> bool:
    """Tell whether *small* provably broadcasts to *large* without changing it."""
    if len(small) > len(large):
        return False
    pairs = zip(reversed(small), reversed(large), strict=False)
    return all(dim == 1 or (isinstance(dim, int) and dim == other) for dim, other in pairs)
