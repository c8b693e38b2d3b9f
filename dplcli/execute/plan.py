"""What a partition computes, in operators that no target owns: the seam between ONNX and libraries.

Values are numbers. Operators and their attributes are those of oneDNN's Graph API, which is the
smallest set that several libraries share: https://uxlfoundation.github.io/oneDNN/dev_guide_graph_supported_operations.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    Shape: TypeAlias = "tuple[int, ...]"
    OpenShape: TypeAlias = "tuple[int | str | None, ...]"
    Setting: TypeAlias = "bool | int | float | str | Sequence[int]"


_BFLOAT16 = DTYPE_CODES["bfloat16"]
_STRANGE = {"undefined", "string", "complex64", "complex128"}
TYPE_CODES = {
    name: code for name, code in DTYPE_CODES.items() if code <= _BFLOAT16 and name not in _STRANGE
}
"""Element types as onnxruntime's C interface numbers them, by numpy's names."""

_LONG = frozenset({"convolution", "deconvolution", "matmul", "pooling"})
"""Primitives that take a hundred times as long in plain loops."""

Size = TypeVar("Size", "int | None", "int | str | None")


def broadcast(one: Sequence[Size], other: Sequence[Size]) -> tuple[Size, ...]:
    """Return what two shapes broadcast to; None for a size that is open."""
    pairs = zip_longest(reversed(one), reversed(other), fillvalue=1)
    sizes = [b if a == 1 else a if b in {1, a} else None for a, b in pairs]
    return tuple(reversed(sizes))


def windows(
    sizes: Sequence[int | None], kernel: Sequence[int | None], spatial: Mapping[str, Any]
) -> list[int | None]:
    """Return over how many places windows run, by dimension."""
    found: list[int | None] = []
    for n, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        if size is None or width is None:
            found.append(None)
            continue
        reach = spatial["dilations"][n] * (width - 1) + 1
        named, stride = spatial.get("auto_pad", ""), spatial["strides"][n]
        if named.startswith("SAME"):
            found.append(-(-size // stride))
            continue
        pads = 0 if named else spatial["pads_begin"][n] + spatial["pads_end"][n]
        found.append((size + pads - reach) // stride + 1)
    return found


class RefusedError(Exception):
    """A partition cannot be run on the library; the message says why."""


class LibraryError(Exception):
    """The library refused something."""


class Primitive(NamedTuple):
    """What the library ran, by its own account.

    Attributes:
        kind: Such as ``convolution``, or ``reorder``.
        implementation: Which code.
        milliseconds: How long it took.
    """

    kind: str
    implementation: str
    milliseconds: float

    @property
    def is_reorder(self) -> bool:
        """Whether it only lays a tensor out in another way."""
        return self.kind == "reorder"

    @property
    def is_reference(self) -> bool:
        """Whether it is plain loops that take long; those that fold constants run once."""
        return self.implementation.startswith("ref") and self.kind in _LONG


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
        given: The shape of each input whose rank the model tells; a name or None stands for a size
            that is open.
        numbers: The constants of the body.
        scalars: The constants of one element, of the body or the call.
        is_region: Whether it is a region of partitions, each of which the library runs by itself.
        math: In which arithmetic its products may be computed: ``fp32`` or ``bf16``.
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
    given: dict[int, OpenShape] = field(default_factory=dict)
    numbers: dict[int, NDArray[np.generic]] = field(default_factory=dict)
    scalars: dict[int, float] = field(default_factory=dict)
    is_region: bool = False
    math: str = "fp32"
    parts: int = 1

    @property
    def shapes(self) -> dict[int, OpenShape]:
        """The shapes of the inputs as the operators see them, where the rank is known."""
        return {**self.given, **self.views}


def signature_of(plan: KernelPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the element types of the inputs and of the outputs of a call."""
    return (
        tuple(plan.dtypes[number] for number in plan.inputs),
        tuple(plan.dtypes[number] for number in plan.outputs),
    )


class CompiledCall(Protocol):
    """A plan for given shapes, ready to run."""

    @property
    def output_shapes(self) -> Sequence[Shape]:
        """The shape of each output."""

    def run(self, inputs: Mapping[int, int], outputs: Sequence[int]) -> None:
        """Run.

        Args:
            inputs: The address of each input that has changed since the last run.
            outputs: Where to write each output.

        Raises:
            LibraryError: The library failed.
        """


class Judging(Protocol):
    """A library that is asked what it runs."""

    def judge(self, plan: KernelPlan) -> str:
        """Return why the library does not run a plan; "" if it does."""


class KernelLibrary(Judging, Protocol):
    """A library that runs plans."""

    @property
    def name(self) -> str:
        """Its version."""

    def compile(self, plan: KernelPlan, shapes: Mapping[int, Shape]) -> CompiledCall:
        """Make a plan ready to run for given shapes of all its inputs.

        Raises:
            LibraryError: The library failed.
            RefusedError: The library does not run it for these shapes.
        """

    def traced(self) -> AbstractContextManager[list[Primitive]]:
        """Collect what the library runs meanwhile, by its own account."""
