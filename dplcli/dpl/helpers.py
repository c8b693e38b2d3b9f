"""The functions that expressions over captured names may call."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.array_helpers import ARRAY_FUNCTIONS, items_of
from dplcli.dpl.facts import ValueFacts
from dplcli.dpl.product_facts import (
    batches_agree,
    columns,
    depends_on,
    depth,
    left_is_matrix,
    only_output,
    per_column,
    right_is_matrix,
    scales_columns,
    symmetric,
    transposes_last_two,
)
from dplcli.dpl.quantisation_facts import per_tensor
from dplcli.dpl.shape_proofs import shaped_like
from dplcli.dpl.size_helpers import dims, is_static

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_NUMBER = 2**64
"""Numbers beyond it are no dimensions, and take long to compute with."""

_LAST_BIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def same_shape(first: ValueFacts, second: ValueFacts) -> bool:
    """Tell whether both shapes are known and equal dimension for dimension."""
    return first.shape == second.shape


def broadcasts_to(small: ValueFacts, large: ValueFacts) -> bool:
    """Tell whether *small* broadcasts to the shape of *large* without changing it."""
    a, b = small.shape, large.shape
    if len(a) > len(b):
        return False
    return all(x in (1, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def per_channel(bias: ValueFacts, output: ValueFacts) -> bool:
    """Tell whether *bias* has one number per channel (axis 1) of *output* and no other extent.

    ``(C, 1, 1)`` and ``(1, C, 1, 1)`` are, for an output of rank 4; ``(C,)`` is not: it runs
    along the last axis.
    """
    channels, rank = output.channels_and_rank
    shape = bias.shape
    axis = 1 - (rank - len(shape))
    if len(shape) > rank:
        return False
    wanted: list[object] = [1] * len(shape)
    if axis >= 0:
        wanted[axis] = channels
    elif channels != 1:
        return False
    return list(shape) == wanted


def is_close(constant: ValueFacts, number: float, rtol: float = 1e-3) -> bool:
    """Tell whether every element of a constant is within *rtol* of *number*.

    Half precision cannot say a number so exactly: there its own last bit is enough.
    """
    data = np.asarray(constant.value, dtype=np.float64)
    last_bit = _LAST_BIT.get(constant.dtype, 0.0)
    return bool(np.allclose(data, number, rtol=max(rtol, last_bit), atol=1e-12))


def _product(numbers: object) -> float:
    """Multiply numbers of ordinary size, such as dimensions."""
    product: float = 1
    for number in items_of(numbers):
        product = product * number
        if abs(product) > LARGEST_NUMBER:
            raise ValueError("a product is too large")
    return product


def _on_values(function: Callable[..., object], count: int) -> Callable[..., object]:
    """Let *function* take that many captured values first, and say so if it is given others."""

    @wraps(function)
    def checked(*args: object) -> object:
        if len(args) < count or {*map(type, args[:count])} != {ValueFacts}:
            names = "a name" if count == 1 else f"{count} names"
            raise TypeError(f"{function.__name__} takes {names} of the pattern first")
        return function(*args)

    return checked


FUNCTIONS: dict[str, Callable[..., object]] = {
    **ARRAY_FUNCTIONS,
    "len": len,
    "abs": abs,
    "prod": _product,
    "same_shape": _on_values(same_shape, 2),
    "broadcasts_to": _on_values(broadcasts_to, 2),
    "per_channel": _on_values(per_channel, 2),
    "is_close": _on_values(is_close, 1),
    "per_tensor": _on_values(per_tensor, 1),
    "shaped_like": _on_values(shaped_like, 2),
    "dims": dims,
    "is_static": _on_values(is_static, 1),
    "depth": _on_values(depth, 1),
    "columns": _on_values(columns, 1),
    "batches_agree": _on_values(batches_agree, 1),
    "left_is_matrix": _on_values(left_is_matrix, 1),
    "right_is_matrix": _on_values(right_is_matrix, 1),
    "per_column": _on_values(per_column, 2),
    "scales_columns": _on_values(scales_columns, 2),
    "symmetric": _on_values(symmetric, 1),
    "transposes_last_two": _on_values(transposes_last_two, 1),
    "only_output": _on_values(only_output, 1),
    "depends_on": _on_values(depends_on, 2),
}
"""Every function an expression may call."""
