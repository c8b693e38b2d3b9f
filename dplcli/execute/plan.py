"""What a partition computes, in operators that no target owns: the seam between ONNX and libraries.

Values are numbers. Operators and their attributes are those of oneDNN's Graph API, which is the
smallest set that several libraries share: https://uxlfoundation.github.io/oneDNN/dev_guide_graph_supported_operations.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Shape: TypeAlias = "tuple[int, ...]"
    Setting: TypeAlias = "bool | int | float | str | Sequence[int]"


class RefusedError(Exception):
    """A partition cannot be run on the library; the message says why."""


@dataclass
class PlanOp:
    """One operator.

    Attributes:
        kind: What it computes.
        inputs: The values it reads.
        output: The value it makes.
        settings: Its attributes.
    """

    kind: str
    inputs: list[int]
    output: int
    settings: dict[str, Setting] = field(default_factory=dict)


@dataclass
class KernelPlan:
    """The operators of one call.

    Attributes:
        ops: In order of need.
        inputs: The value that each input of the call is; several inputs are never one value.
        outputs: The values that the call returns.
        dtypes: Element type of each value.
        constant: The inputs that are the same in every run.
        fixed: The numbers of those constant inputs that settings were made from.
        views: By input, the shape that the operators see if it is not the call's: the elements are
            the same, in the same order.
        numbers: The constants of the body.
        is_region: Whether it is a region of partitions, each of which the library runs by itself.
        parts: Into how many parts a library may split it that is no region: more than one where an
            operator is written out that libraries have as one, or not at all.
    """

    ops: list[PlanOp] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    dtypes: dict[int, str] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)
    fixed: dict[int, NDArray[np.generic]] = field(default_factory=dict)
    views: dict[int, Shape] = field(default_factory=dict)
    numbers: dict[int, NDArray[np.generic]] = field(default_factory=dict)
    is_region: bool = False
    parts: int = 1
