"""A node as the rules for shapes and contents see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dplcli.dpl.shapes.terms import Term
from dplcli.ir import Tensor
from dplcli.ir.operators import attribute_of
from dplcli.ir.parameters import inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.shapes.terms import Algebra, Number
    from dplcli.ir import Node, Value

    Dims: TypeAlias = tuple[Number, ...]
    PartlyKnown: TypeAlias = Sequence[Number | None]


class Fact(NamedTuple):
    """What is known of a value.

    Attributes:
        dtype: Name of the element type, or None.
        shape: Its dimensions; None if even the rank is unknown.
        content: The elements of a scalar or vector of whole numbers or truth values.
        array: All elements, if they are few and can only have these values.
    """

    dtype: str | None = None
    shape: Dims | None = None
    content: Dims | None = None
    array: NDArray[Any] | None = None


NOTHING = Fact()
"""What is known of a value that nobody described."""

WHOLE = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}
)
"""The element types that contents are kept of."""

MOST_ELEMENTS = 64
"""Longer vectors are no shapes."""


class View:
    """A node with the facts about its inputs.

    Attributes:
        node: The node.
        op_type: Its operator.
        algebra: What to compute with.
        opset: Version of the standard operators in force.
    """

    def __init__(self, node: Node, algebra: Algebra, fact_of: Callable[[Value], Fact]) -> None:
        """Look at *node*."""
        self.node = node
        self.op_type = node.op_type
        self.algebra = algebra
        self.opset = node.graph.opset_imports.get("", 0)
        self._values = inputs_of(node)
        self._facts = [NOTHING if value is None else fact_of(value) for value in self._values]

    @property
    def count(self) -> int:
        """The number of inputs."""
        return len(self._facts)

    def has(self, slot: int) -> bool:
        """Tell whether an input is present."""
        return slot < len(self._values) and self._values[slot] is not None

    def dtype(self, slot: int = 0) -> str | None:
        """Return the element type of an input."""
        return self._facts[slot].dtype if slot < len(self._facts) else None

    def shape(self, slot: int = 0) -> Dims | None:
        """Return the dimensions of an input."""
        return self._facts[slot].shape if slot < len(self._facts) else None

    def content(self, slot: int = 0) -> Dims | None:
        """Return the elements of an input."""
        return self._facts[slot].content if slot < len(self._facts) else None

    def scalar(self, slot: int) -> Number | None:
        """Return the only element of an input."""
        content = self.content(slot)
        return content[0] if content is not None and len(content) == 1 else None

    def numbers(self, slot: int) -> list[int] | None:
        """Return the elements of an input if all are plain numbers."""
        content = self.content(slot)
        if content is None or any(isinstance(item, Term) for item in content):
            return None
        return [item for item in content if isinstance(item, int)]

    def constant(self, slot: int) -> list[float] | None:
        """Return the elements of a small constant input of any number type."""
        value = self._values[slot] if slot < len(self._values) else None
        tensor = None if value is None else value.constant
        if tensor is None or tensor.size > MOST_ELEMENTS or tensor.is_external:
            return None
        data = tensor.numpy()
        return [float(item) for item in data.ravel()] if data.dtype.kind in "iufb" else None

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a whole-number attribute."""
        attribute = attribute_of(self.node, name)
        if attribute is None or attribute.ref:
            return default if attribute is None else None
        return attribute.value if isinstance(attribute.value, int) else None

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of whole numbers."""
        attribute = attribute_of(self.node, name)
        if attribute is None or attribute.ref or not isinstance(attribute.value, tuple):
            return None
        return [item for item in attribute.value if isinstance(item, int)]

    def text(self, name: str, default: str) -> str | None:
        """Return an attribute that is a text."""
        attribute = attribute_of(self.node, name)
        if attribute is None:
            return default
        if attribute.ref or not isinstance(attribute.value, (str, bytes)):
            return None
        value = attribute.value
        return value if isinstance(value, str) else value.decode(errors="replace")

    @property
    def fill(self) -> int | None:
        """The whole number that a ConstantOfShape repeats; 0.0 is one, too, but of no use."""
        attribute = attribute_of(self.node, "value")
        if attribute is None or attribute.ref or not isinstance(attribute.value, Tensor):
            return None
        tensor = attribute.value
        if tensor.dtype not in WHOLE or tensor.size != 1:
            return None
        return int(tensor.numpy().reshape(()).item())

    def axes(self, slot: int, rank: int) -> list[int] | None:
        """Return an input of axes, counted from the front; None if it is absent or unknown."""
        numbers = self.numbers(slot)
        if numbers is None or not all(-rank <= axis < rank for axis in numbers):
            return None
        return [axis % rank for axis in numbers]
