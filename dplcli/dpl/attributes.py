"""How attributes of a node compare with what a pattern states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir.parameters import parameter_of
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.dpl.pattern import AttributeValue
    from dplcli.ir import Attribute, Node

DTYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "stash_type", "precision", "softmax_precision"}
)


def attribute_equals(node: Node, name: str, expected: AttributeValue) -> bool:
    """Compare an attribute, completed with its default, with what a pattern states.

    Floats compare as float32, an element type also by its name (``to="float32"``). An attribute
    that a function's caller supplies is unknown, hence unequal. What the node's opset keeps in an
    input is compared if it is constant.
    """
    attribute = parameter_of(node, name)
    if attribute is None or attribute.ref:
        return False
    value = attribute.value
    if attribute.kind == "float":
        return _floats_equal((value,), (expected,))
    if attribute.kind == "floats" and isinstance(value, tuple) and isinstance(expected, tuple):
        return _floats_equal(value, expected)
    if attribute.kind == "int" and isinstance(expected, str) and name in DTYPE_ATTRIBUTES:
        return value == DTYPE_CODES.get(expected)
    return value == expected and type(value) is type(expected)


def _floats_equal(values: Sequence[object], expected: Sequence[object]) -> bool:
    if len(values) != len(expected) or any(isinstance(item, str) for item in expected):
        return False
    try:
        with np.errstate(over="ignore"):
            return np.array_equal(
                np.asarray(values, dtype=np.float32), np.asarray(expected, dtype=np.float32)
            )
    except OverflowError:
        return False


def unnamed_attributes(
    node: Node, named: Sequence[tuple[str, AttributeValue]]
) -> Mapping[str, Attribute]:
    """Return the attributes that *node* states and a pattern does not."""
    if not named:
        return node.attributes
    return {
        name: attribute
        for name, attribute in node.attributes.items()
        if all(name != known for known, _ in named)
    }
