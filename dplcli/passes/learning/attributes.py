"""Which attributes of a node a learned rule names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir.operators import schema_of
from dplcli.ir.parameters import parameter_of, slot_of
from dplcli.ir.types import DTYPE_NAMES
from dplcli.passes.learning.leaves import shortest
from dplcli.passes.learning.tables import KEPT_ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Container

    from dplcli.dpl.written import AttributeValue, Scalar
    from dplcli.ir import Attribute, Node

_ELEMENT_TYPES = frozenset({"to", "dtype"})
"""Attributes that hold the number of an element type; a pattern names it."""

_AXES = frozenset({"axes", "axis"})
"""What some operators take as an input and others as an attribute."""


def named_attributes(node: Node, *, exact: bool) -> dict[str, AttributeValue]:
    """Return what a pattern should demand of the attributes of *node*.

    Args:
        node: The node.
        exact: Whether to demand every attribute that the file states.
    """
    named: dict[str, AttributeValue] = {}
    for name in _known_names(node):
        is_stated = exact and name in node.attributes
        if not is_stated and name not in KEPT_ATTRIBUTES:
            continue
        attribute = parameter_of(node, name)
        if attribute is None or attribute.ref:
            continue
        if not is_stated and attribute.value == _default_of(node, name):
            continue
        value = _as_written(name, attribute)
        if value is not None:
            named[name] = value
    return named


def free_attributes(node: Node, named: Container[str]) -> list[str]:
    """List the attributes that the file states and a pattern neither names nor has as inputs."""
    return [name for name in node.attributes if name not in named and slot_of(node, name) is None]


def _known_names(node: Node) -> list[str]:
    """List the names that may mean an attribute of *node*, or an input that was one."""
    schema = schema_of(node)
    names = dict.fromkeys(node.attributes)
    if schema is not None:
        names |= dict.fromkeys(schema.attributes)
        names |= dict.fromkeys(name for name in schema.inputs if name in _AXES)
    return list(names)


def _default_of(node: Node, name: str) -> object:
    schema = schema_of(node)
    default = None if schema is None else schema.defaults.get(name)
    return None if default is None else default.value


def _as_written(name: str, attribute: Attribute) -> AttributeValue | None:
    """Return the value as a pattern's text writes it; None if no text can."""
    value = attribute.value
    if attribute.kind == "int" and name in _ELEMENT_TYPES and type(value) is int:
        return DTYPE_NAMES[value] if 0 <= value < len(DTYPE_NAMES) else value
    if not isinstance(value, tuple):
        return _scalar(value)
    items = [_scalar(item) for item in value]
    return tuple(item for item in items if item is not None) if None not in items else None


def _scalar(value: object) -> Scalar | None:
    if isinstance(value, float):
        return shortest(np.float32(value)) if math.isfinite(value) else None
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None
