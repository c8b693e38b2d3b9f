"""Shapes as numbers, for functions that must know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.shapes import Knowledge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Value


def static_shape(value: Value) -> tuple[int | None, ...] | None:
    """Return the dimensions of *value* that are known as numbers, and None for the others.

    None in all if even the rank is unknown. Symbols are what a file claims, and count as unknown.
    """
    dims = value.graph.model.memory(Knowledge).shape(value)
    return None if dims is None else tuple(dim if isinstance(dim, int) else None for dim in dims)


def size_of(dims: Sequence[int | None]) -> int | None:
    """Multiply dimensions; None if one is unknown or zero."""
    size = 1
    for dim in dims:
        if not dim:
            return None
        size *= dim
    return size
