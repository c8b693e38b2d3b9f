"""What the functions that make operators of onnxruntime share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.draft_attributes import BuildError
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.draft import Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


def node_called(match: Match, name: str) -> Node:
    """Return the node that makes what the rule calls *name*.

    Raises:
        BuildError: It took no part in the match.
    """
    node = match.node(name)
    if node is None:
        raise BuildError(f"{name!r} took no part in the match")
    return node


def value_called(match: Match, name: str) -> Value:
    """Return the value that the rule calls *name*.

    Raises:
        BuildError: It took no part in the match.
    """
    value = match.value(name)
    if value is None:
        raise BuildError(f"{name!r} took no part in the match")
    return value


def input_of(node: Node, slot: int) -> Value | None:
    """Return an input of *node*; None if it is omitted."""
    return node.inputs[slot] if slot < len(node.inputs) else None


def array_of(value: Value | None) -> NDArray[Any] | None:
    """Return the data of a constant, also behind Identity nodes; None if it is no constant."""
    tensor = None if value is None else behind_identities(value).constant
    return None if tensor is None else tensor.numpy()


def number_called(match: Match, name: str) -> float | None:
    """Return the only element of a constant; None if the name took no part."""
    value = match.value(name)
    data = array_of(value)
    if value is None:
        return None
    if data is None or data.size != 1:
        raise BuildError(f"{name!r} is not a constant of one element")
    return float(data.reshape(()))


def number_of(node: Node, name: str, default: float) -> float:
    """Return an attribute that is a number; *default* if the node has none.

    Raises:
        BuildError: A caller of the function supplies it.
    """
    attribute = attribute_of(node, name)
    if attribute is None:
        return default
    if not isinstance(attribute.value, (int, float)):
        raise BuildError(f"{name} of {node.op_type} is not known")
    return float(attribute.value)


def dtype_of(value: Value) -> str:
    """Return the element type of a value.

    Raises:
        BuildError: It is not known.
    """
    known = value.known_type()
    if known is None or known.dtype is None:
        raise BuildError(f"the element type of {value.name!r} is unknown")
    return known.dtype


def in_first_place(match: Match, made: Operand) -> tuple[Operand, ...]:
    """Put *made* in the place of the first output, and leave the other outputs as they are.

    A rule lists a node behind its first output if others may read what the node makes: it stays
    for them, and goes with the match if there are none.
    """
    return (made, *match.outputs[1:])
