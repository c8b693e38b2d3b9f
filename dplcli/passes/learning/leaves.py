"""What comes into a region: values that may be anything, constants, and numbers that matter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dplcli.dpl.builders import is_const, wildcard
from dplcli.dpl.conditions import Condition
from dplcli.ir.traversal import behind_identities
from dplcli.passes.learning.tables import NUMBER_SLOTS
from dplcli.passes.learning.words import leaf_word

if TYPE_CHECKING:
    import numpy as np

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Node, Value
    from dplcli.passes.learning.words import Names

_LARGEST_PLAIN = 1024
_FINEST_PLAIN = 16
"""Plain numbers are multiples of its reciprocal, as a person would choose them."""

_TOLERANCE = 5e-4
"""How near the digits of a number must be to it; ``is_close`` allows twice as much."""


class Leaves:
    """The leaves of one pattern: one per value, but one per use for a number.

    Args:
        names: Where their names come from.
        any_values: Whether a leaf for a constant, numbers aside, takes any value.
    """

    def __init__(self, names: Names, *, any_values: bool) -> None:
        """Start with no leaves."""
        self._names = names
        self._any_values = any_values
        self._known: dict[Value, DFPattern] = {}

    def leaf(self, node: Node, slot: int, value: Value) -> DFPattern:
        """Return the leaf for *value*, which *node* reads in input *slot*."""
        origin = behind_identities(value)
        if origin not in self._known:
            name = self._names.new(leaf_word(node, slot))
            is_weight = origin.is_constant and not self._any_values
            self._known[origin] = is_const(name) if is_weight else wildcard(name)
        return self._known[origin]

    def name_of(self, value: Value) -> str:
        """Return the name of the leaf for *value*, "" if there is none."""
        leaf = self._known.get(behind_identities(value))
        return "" if leaf is None else leaf.name

    def number(self, node: Node, slot: int, number: float) -> tuple[DFPattern, list[Condition]]:
        """Return a leaf for a constant, and what must hold for it to be *number*."""
        if isinstance(number, int) or _is_plain(number):
            return is_const(value=number), []
        name = self._names.new(leaf_word(node, slot))
        return is_const(name), [Condition(f"is_close({name}, {number!r})")]


def number_at(node: Node, slot: int, value: Value) -> int | float | None:
    """Return the number that input *slot* of *node* is, if it says what the node computes."""
    slots = () if node.domain else NUMBER_SLOTS.get(node.op_type, ())
    tensor = behind_identities(value).constant
    if tensor is None or tensor.size != 1 or (slots is not None and slot not in slots):
        return None
    scalar = tensor.numpy().reshape(-1)[0]
    if scalar.dtype.kind in "iub":
        return int(scalar)
    if "float" not in scalar.dtype.name:
        return None
    number = shortest(scalar)
    if not math.isclose(number, float(scalar), rel_tol=_TOLERANCE):
        number = float(scalar)  # so small that its dtype has few digits left
    return None if math.isnan(number) else number


def shortest(scalar: np.generic) -> float:
    """Return the number of fewest digits that is *scalar* in its own dtype."""
    return float(str(scalar))


def _is_plain(number: float) -> bool:
    if math.isinf(number):
        return True
    return abs(number) <= _LARGEST_PLAIN and (number * _FINEST_PLAIN).is_integer()
