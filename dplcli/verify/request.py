"""What somebody asks of the inputs: values from elsewhere, ranges, shapes, corners."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dplcli.errors import UsageError

InputFunction = Callable[[int], object]
"""Called with a seed, returns a mapping from input names to arrays."""

CORNERS = ("zeros", "negative", "large", "denormal")
"""The corner values that are tried, in this order."""


@dataclass(frozen=True, kw_only=True)
class InputRequest:
    """What the inputs of a comparison shall be, as far as somebody said so.

    What nobody said is made up: an input that neither *given* nor *function* covers is drawn from
    the range of *ranges*, or else from the one that the model's operators suggest.

    Attributes:
        given: A .npz or .npy file, a .pb file, or a folder of them (see `verify.given`).
        function: Makes the values of one seed.
        label: What to call *function* in messages.
        ranges: Smallest and largest value of an input, both included.
        shapes: Whole shapes, by input.
        corners: Whether to run corner values, too (see `verify.corners`).
        save: Where to write what was fed, as .npz.

    Raises:
        UsageError: Two sources, an input that is drawn from an empty or endless range, a negative
            dimension, a file to write that is no .npz or whose folder is missing.
    """

    given: Path | None = None
    function: InputFunction | None = None
    label: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    corners: bool = False
    save: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before any work is done."""
        if self.given is not None and self.function is not None:
            raise UsageError("inputs come from a file or from a function, not from both")
        for name, (low, high) in self.ranges.items():
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise UsageError(
                    f"the range of {name!r} holds no number: {low:g} to {high:g}",
                    hint="write the smaller number first: --range ids=0:1000",
                )
        for name, shape in self.shapes.items():
            if any(dim < 0 for dim in shape):
                raise UsageError(f"the shape of {name!r} must not hold a negative number")
        if self.save is not None:
            _check_place(self.save)


def _check_place(path: Path) -> None:
    if path.suffix != ".npz":
        raise UsageError(f"{path}: inputs are saved as .npz", hint="write --save-inputs inputs.npz")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {str(path.parent)!r}")
