"""Constants that are stored twice are stored once.

Before: ``t = Add(x, a); y = Mul(t, b)`` with equal weights *a* and *b*
After:  ``y = Mul(t, a)``
Holds when: element type, shape and bytes are equal, and the data is not in another file.
Numerics: none.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.transforms.budget import tensor_bytes
from dplcli.dpl.transforms.remake import remade

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Value

    Key: TypeAlias = tuple[Hashable, ...]

_SHORTEST = 64
"""Bytes from which it is worth while to make a node anew."""

_LONGEST = 1 << 28
"""Bytes beyond which nobody looks."""


@nodewise()
class merge_initializers:  # noqa: N801  # catalogues call it by this name
    """Remembers the constants of one model by what they hold."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._keys: dict[Value, Key | None] = {}
        self._sizes: dict[Key, Value] = {}
        self._known: dict[Key, Value] = {}

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
        """Make the node anew if an earlier one reads the same constant under another name."""
        node = match.root
        if node.subgraphs:
            return None
        inputs = [None if value is None else self._first(value) for value in node.inputs]
        if inputs == list(node.inputs):
            return None
        made = remade(build, node, inputs)
        return [made[value.index] for value in match.outputs]

    def _first(self, value: Value) -> Value:
        """Return the first constant seen that equals *value*."""
        if not value.is_initializer or value.is_graph_input or value.returned_by:
            return value
        tensor = value.constant
        if tensor is None or tensor.is_external:
            return value
        if not _SHORTEST <= tensor_bytes(tensor) <= _LONGEST:
            return value
        coarse: Key = (value.graph, tensor.dtype, tensor.shape)
        alone = self._sizes.setdefault(coarse, value)
        if alone is value:
            return value
        self._known.setdefault(self._key(alone, coarse), alone)
        other = self._known.setdefault(self._key(value, coarse), value)
        return other if other.graph.values.get(other.name) is other else self._renew(value, coarse)

    def _renew(self, value: Value, coarse: Key) -> Value:
        """Remember *value* in the place of one that has gone."""
        self._known[self._key(value, coarse)] = value
        return value

    def _key(self, value: Value, coarse: Key) -> Key:
        known = self._keys.get(value)
        if known is None:
            tensor = value.constant
            array = None if tensor is None else tensor.numpy()
            if array is None or array.dtype.hasobject:
                known = (*coarse, value)
            else:
                known = (*coarse, blake2b(array.tobytes(), digest_size=16).digest())
            self._keys[value] = known
        return known
