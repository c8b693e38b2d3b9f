"""The whole numbers that exporters compute from shapes again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.shapes import Knowledge
from dplcli.dpl.shapes.content_rules import CONTENT_RULES, MEASURING
from dplcli.dpl.shapes.view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Hashable

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Value

    Key = tuple[Hashable, ...]

_REACH = 3


@nodewise(*sorted(CONTENT_RULES.keys() - {"Identity"}), reach=_REACH)
class reuse_shape_arithmetic:  # noqa: N801  # catalogues call it by this name
    """Reads whole numbers where they were computed first.

    Before: ``n = Gather(Shape(x), 0); m = Gather(Shape(Relu(x)), 0)``
    After:  whoever read *m* reads *n*
    Holds when: both are provably equal, element type and rank included.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: dict[Key, Value] = {}
        self._meets_shapes = False

    def __call__(self, match: Match, build: GraphBuilder) -> Operand | None:  # noqa: ARG002  # nothing is made
        """Return an earlier value with the same elements."""
        self._meets_shapes = self._meets_shapes or match.root.op_type in MEASURING
        if not self._meets_shapes or len(match.outputs) != 1:
            return None
        (value,) = match.outputs
        known = value.known_type()
        if known is not None and known.dtype not in WHOLE:
            return None
        knowledge = value.graph.model.memory(Knowledge)
        fact = knowledge.fact(value)
        if fact.content is None or fact.shape is None or not fact.content:
            return None
        # terms of two algebras look alike and mean different numbers
        key: Key = (knowledge, value.graph, fact.dtype, len(fact.shape), fact.content)
        other = self._known.get(key)
        if other is None or other is value or not _stands_before(other, value):
            self._known[key] = value
            return None
        return None if value.returned_by and other.returned_by else other


def _stands_before(other: Value, value: Value) -> bool:
    if other.graph.values.get(other.name) is not other:
        return False
    if other.producer is None or value.producer is None:
        return other.producer is None
    return other.producer.position < value.producer.position
