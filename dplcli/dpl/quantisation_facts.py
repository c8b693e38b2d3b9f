"""What conditions may ask of the parameters of a quantisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.dpl.facts import ValueFacts


def per_tensor(parameter: ValueFacts) -> bool:
    """Tell whether a scale or zero point is one number for all: a scalar, or a vector of one."""
    return parameter.shape in {(), (1,)}
