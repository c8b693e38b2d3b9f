"""A node and the sizes of what it reads and makes, for formulas over them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias, cast

from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.ir.node import Node
    from dplcli.ir.types import Shape
    from dplcli.ir.value import Value

    Shapes: TypeAlias = Callable[[Value], Shape | None]


class UnknownCostError(Exception):
    """What a node costs is not known."""


class Operation:
    """A node and the shapes of what it reads and makes.

    Args:
        node: The node.
        shapes: Tells the shape of a value.
    """

    __slots__ = ("_shapes", "node")

    def __init__(self, node: Node, shapes: Shapes) -> None:
        """Look at *node*."""
        self.node = node
        self._shapes = shapes

    @property
    def arity(self) -> int:
        """How many inputs are given."""
        return sum(value is not None for value in self.node.inputs)

    def has(self, slot: int) -> bool:
        """Whether an input is given."""
        return slot < len(self.node.inputs) and self.node.inputs[slot] is not None

    def read(self, slot: int = 0) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            UnknownCostError: It is not known, or there is no such input.
        """
        return self._shape(self.node.inputs[slot] if slot < len(self.node.inputs) else None)

    def made(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output.

        Raises:
            UnknownCostError: It is not known, or there is no such output.
        """
        return self._shape(self.node.outputs[index] if index < len(self.node.outputs) else None)

    def size_read(self, slot: int = 0) -> int:
        """Return how many elements an input has."""
        return prod(self.read(slot))

    def size_made(self, index: int = 0) -> int:
        """Return how many elements an output has."""
        return prod(self.made(index))

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a string."""
        found = attribute_of(self.node, name)
        return str(found.value) if found is not None and found.value is not None else default

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute that is a whole number."""
        found = attribute_of(self.node, name)
        return found.value if found is not None and isinstance(found.value, int) else default

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of whole numbers.

        Raises:
            UnknownCostError: There is none.
        """
        found = attribute_of(self.node, name)
        if found is None or not isinstance(found.value, tuple):
            raise UnknownCostError(name)
        return tuple(int(item) for item in found.value)

    def _shape(self, value: Value | None) -> tuple[int, ...]:
        shape = None if value is None else self._shapes(value)
        if shape is None:
            raise UnknownCostError
        for dim in shape:
            if type(dim) is not int or dim < 0:
                raise UnknownCostError
        return cast("tuple[int, ...]", shape)
