"""Compare two models by what they compute rather than by what they call things."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir.tensor import Tensor
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Hashable

    from dplcli.ir import Attribute, Graph, Model, Node, Value

    Form: TypeAlias = tuple[Hashable, ...]


def same_structure(first: Model, second: Model) -> bool:
    """Tell whether the main graphs are equal up to names of values and nodes.

    Inputs and outputs correspond by position, Identity nodes are seen through, constants are
    compared by their data, and local functions by what they are called.
    """
    numbers: dict[Form, int] = {}
    return _form(first.graph, numbers) == _form(second.graph, numbers)


def _form(graph: Graph, numbers: dict[Form, int]) -> list[int]:
    """Number every value by what computes it; equal ones get equal numbers."""
    known: dict[Value, int] = {}
    for position, value in enumerate(v for v in graph.inputs if not v.is_initializer):
        known[value] = _number(("input", position), numbers)
    for node in graph:
        inputs = tuple(-1 if v is None else _of(v, known, numbers) for v in node.inputs)
        shape = (node.domain, node.op_type, inputs, _attributes(node))
        for output in node.outputs:
            if output is not None:
                known[output] = _number((*shape, output.index), numbers)
    return [_of(value, known, numbers) for value in graph.outputs]


def _of(value: Value, known: dict[Value, int], numbers: dict[Form, int]) -> int:
    origin = behind_identities(value)
    tensor = origin.constant
    if tensor is not None:
        data = (tensor.dtype, tensor.shape, str(tensor.numpy().tolist()))
        return _number(("constant", *data), numbers)
    if origin not in known:
        known[origin] = _number(("outside", origin.name), numbers)
    return known[origin]


def _number(form: Form, numbers: dict[Form, int]) -> int:
    return numbers.setdefault(form, len(numbers))


def _attributes(node: Node) -> Form:
    return tuple(sorted((name, _value(a)) for name, a in node.attributes.items()))


def _value(attribute: Attribute) -> str:
    if isinstance(attribute.value, Tensor):
        return str(attribute.value.numpy().tolist())
    return f"{attribute.ref}{attribute.value!r}"
