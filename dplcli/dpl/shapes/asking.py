"""Questions about one value, answered from what is known of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.dpl.shapes.knowledge import Knowledge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Value


def shape_of(value: Value) -> Dims | None:
    """Return the dimensions of a value; None if not even the rank is known."""
    return value.graph.model.memory(Knowledge).shape(value)


def items_of(value: Value) -> NDArray[Any] | None:
    """Return the elements of a small tensor, as an array of objects; None if they are not known.

    An element is a bool, a float, an int or a :class:`Term`.
    """
    knowledge = value.graph.model.memory(Knowledge)
    array = knowledge.array(value)
    if array is not None:
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return _objects(array.tolist(), array.shape) if array.dtype.kind in "biuf" else None
    fact = knowledge.fact(value)
    if fact.content is None or fact.shape is None:
        return None
    return _objects(list(fact.content), (len(fact.content),) if fact.shape else ())


def described(value: Value, number: Number) -> str:
    """Write a dimension of a value for a reader: ``2*batch*seq``."""
    return value.graph.model.memory(Knowledge).describe(number)


def _objects(items: Any, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ANN401  # nested lists
    made = np.empty(shape, dtype=object)
    if shape:
        made[...] = np.array(items, dtype=object).reshape(shape)
    else:
        made[()] = items[0] if isinstance(items, list) else items
    return made
