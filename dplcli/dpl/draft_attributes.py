"""Attributes of new nodes: made of Python's and numpy's values, held against the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.ir import ArrayTensor, Attribute, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import OpSchema

_INT64 = 1 << 63


class BuildError(Exception):
    """What is described cannot be made here; the match is left as it is."""


def fit_attributes(
    op_type: str, count: int, attributes: Mapping[str, Attribute], schema: OpSchema
) -> Mapping[str, Attribute]:
    """Compare a node with its schema; a whole number may stand for a float."""
    if not schema.min_inputs <= count <= schema.max_inputs:
        raise BuildError(f"{op_type}-{schema.since} takes no {count} inputs")
    missing = sorted(schema.required_attributes - attributes.keys())
    if missing:
        raise BuildError(f"{op_type}-{schema.since} needs {missing[0]!r}")
    known = schema.attributes
    if all(known.get(name) == attribute.kind for name, attribute in attributes.items()):
        return attributes
    fitting = {}
    for name, attribute in attributes.items():
        wanted = known.get(name)
        if wanted is None:
            raise BuildError(f"{op_type}-{schema.since} has no {name!r}")
        fitting[name] = _of_kind(attribute, wanted, f"{op_type}: {name}")
    return fitting


def _of_kind(attribute: Attribute, wanted: str, label: str) -> Attribute:
    value = attribute.value
    if attribute.kind == wanted:
        return attribute
    if (attribute.kind, wanted) == ("int", "float") and isinstance(value, int):
        return Attribute("float", float(value), attribute.ref)
    if attribute.kind == "floats" and value == ():
        return Attribute(wanted, (), attribute.ref)
    if (attribute.kind, wanted) == ("ints", "floats") and isinstance(value, tuple):
        return Attribute("floats", tuple(map(float, value)), attribute.ref)
    raise BuildError(f"{label} is {wanted}, not {attribute.kind} {value!r}")


def as_tensor(data: NDArray[Any] | np.generic) -> ArrayTensor:
    """Wrap an array.

    Raises:
        TypeError: No tensor can hold it.
    """
    array = np.asarray(data)
    if array.dtype.hasobject and not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise TypeError(f"{data!r} is no array of numbers or strings")
    return ArrayTensor(array)


def as_attribute(value: object, name: str, kind: str = "") -> Attribute:
    """Turn a number, a string, a tensor or a list into an attribute.

    Args:
        value: What to turn into one.
        name: Its name, for the message.
        kind: The kind that is wanted; "" if nobody knows.

    Raises:
        BuildError: It is nothing of the kind.
    """
    if isinstance(value, Tensor):
        return Attribute("tensor", value)
    if isinstance(value, (np.ndarray, np.generic)) and kind == "tensor":
        return Attribute("tensor", as_tensor(value))
    plain = _plain(value)
    attribute = _attribute_of_list(plain) if isinstance(plain, list) else _attribute_of(plain)
    if attribute is None or not _is_encodable(attribute):
        raise BuildError(f"the attribute {name!r} cannot be {value!r}")
    return attribute


def _plain(value: object) -> object:
    """Write numbers of numpy, truth values and tuples as Python's numbers and lists."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item() if value.ndim == 0 else value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, bool) else value


def _attribute_of(value: object) -> Attribute | None:
    kinds = (("int", int), ("float", float), ("string", str))
    return next((Attribute(kind, value) for kind, known in kinds if isinstance(value, known)), None)


def _attribute_of_list(items: list[object]) -> Attribute | None:
    for kind, known in (("ints", int), ("floats", float), ("strings", str)):
        if items and all(isinstance(item, known) for item in items):
            return Attribute(kind, tuple(items))
    numbers = [float(item) for item in items if isinstance(item, (int, float))]
    return Attribute("floats", tuple(numbers)) if len(numbers) == len(items) else None


def _is_encodable(attribute: Attribute) -> bool:
    """Tell whether a file can hold it: numbers of 64 bits, and text that is UTF-8."""
    value = attribute.value
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, int) and not -_INT64 <= item < _INT64:
            return False
        if isinstance(item, str) and item != item.encode(errors="ignore").decode():
            return False
    return True
