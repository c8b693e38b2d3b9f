"""What expressions may ask of the sizes of values beyond what shape inference knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.dpl.shapes import shape_of

if TYPE_CHECKING:
    from dplcli.dpl.shapes.view import Dims


def dims(value: object) -> Dims:
    """Return the dimensions of a captured value, followed through what shapes are computed from.

    A dimension is a number or a polynomial over the dimensions of inputs, and ``==`` says whether
    two are provably equal; nothing else can be asked of them.

    Raises:
        UnknownFactError: Not even the rank is known.
    """
    if not isinstance(value, ValueFacts):
        raise TypeError("dims takes a name of the pattern")
    shape = shape_of(value.subject)
    if shape is None:
        raise UnknownFactError(f"the rank of {value.name!r} is unknown")
    return shape


def is_static(value: ValueFacts) -> bool:
    """Tell whether every dimension of *value* is a number.

    Raises:
        UnknownFactError: Not even the rank is known.
    """
    return all(isinstance(extent, int) for extent in dims(value))
