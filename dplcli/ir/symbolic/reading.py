"""What the rules for shapes and elements share: attributes, inputs, broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.ir.operators import attribute_of
from dplcli.ir.parameters import inputs_of
from dplcli.ir.symbolic.analysis import ask_items
from dplcli.ir.symbolic.size import is_minimum_of

if TYPE_CHECKING:
    from dplcli.ir.node import Node
    from dplcli.ir.symbolic.analysis import Found, ItemSteps
    from dplcli.ir.symbolic.size import Extent
    from dplcli.ir.value import Value


FAR = 2**31 - 1
"""Bounds of slices so far away mean "to the end", or "from the start"."""


def attribute(node: Node, name: str, otherwise: Any = None) -> Any:  # noqa: ANN401  # of any kind
    """Return an attribute's value, completed with its default, or *otherwise*.

    Raises:
        ValueError: Only the caller of the function it stands in knows it.
    """
    found = attribute_of(node, name)
    if found is None:
        return otherwise
    if found.ref:
        raise ValueError(name)
    return found.value


def argument(node: Node, slot: int) -> Value | None:
    """Return an input as the newest opset has it; None if it is omitted."""
    inputs = inputs_of(node)
    return inputs[slot] if slot < len(inputs) else None


def numbers(node: Node, slot: int) -> ItemSteps:
    """Ask for an input that holds whole numbers; None if it is omitted or any is not a number."""
    items = yield from ask_items(argument(node, slot))
    if items is None or not all(type(item) is int for item in items.reshape(-1)):
        return None
    return items.reshape(-1)


def numbers_or(node: Node, slot: int, otherwise: list[int]) -> Any:  # noqa: ANN401  # ItemSteps
    """Ask for an input that holds whole numbers; *otherwise* if it is omitted."""
    if argument(node, slot) is None:
        return otherwise
    return (yield from numbers(node, slot))


def common(first: Extent | None, second: Extent | None) -> Extent | None:
    """Broadcast two dimensions; None is unknown."""
    if second in {first, 1}:
        return first
    if first == 1:
        return second
    if first is None or second is None:
        return next((dim for dim in (first, second) if isinstance(dim, int)), None)
    # a table cut to length is only as long as what it is added to, else the model does not run
    for cut, whole in ((first, second), (second, first)):
        if is_minimum_of(cut, whole):
            return whole
    # a number other than 1 meets 1 or itself, else the model does not run
    return next((dim for dim in (first, second) if isinstance(dim, int)), None)


def broadcast(first: Found, second: Found) -> Found:
    """Broadcast two shapes."""
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    lined_up = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    return tuple(common(*dims) for dims in zip(*lined_up, strict=True))
