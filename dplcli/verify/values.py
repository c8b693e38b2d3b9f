"""What goes into a run and what comes out of it; no onnxruntime here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dplcli.errors import VerificationError
from dplcli.verify.execution import PLAIN, Execution

Array = npt.NDArray[np.generic]
Feed = Array | list[Array] | None

_ADDED = 2  # what numpy calls an element type that another package registered


def is_exotic(array: Array) -> bool:
    """Tell whether numpy itself lacks the element type: ml_dtypes adds bfloat16, float8, ..."""
    return array.dtype.isbuiltin == _ADDED


class RunError(Exception):
    """onnxruntime refused a model or a set of inputs; the message is one clean line."""


class ShortageError(RunError):
    """There was not enough memory for a model or its run."""


class StoppedError(VerificationError):
    """The process that ran a model crashed, or was stopped at a limit.

    Args:
        how: What onnxruntime did, such as 'crashed (SIGSEGV)'.
        doing: On what, such as 'running the candidate at level all'.
        hint: What may help.
    """

    def __init__(self, how: str, doing: str, *, hint: str | None = None) -> None:
        """Make one sentence of both."""
        super().__init__(f"onnxruntime {how} {doing}", hint=hint)
        self.how = how
        self.doing = doing


@dataclass(frozen=True)
class Leaf:
    """One array of an output.

    Attributes:
        label: Where it is inside the output: '' for a tensor, '[3]' in a sequence.
        dtype: Element type, as numpy calls it; bfloat16 comes as float32 data of that name.
        data: The values; other types that numpy lacks come
            as integers, numbered in the order of what they stand for.
    """

    label: str
    dtype: str
    data: Array


Outputs = dict[str, tuple[Leaf, ...]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and how it is to be run.

    Attributes:
        path: The file; external data is looked up beside it.
        content: What to run instead of the file's own bytes, if set.
        weights: Values of initializers of *content* that are declared external.
        libraries: Libraries of custom operators that it may use.
        execution: Provider, options and limits.
        name: What messages call it.
    """

    path: Path
    content: bytes | None = None
    weights: Mapping[str, Array] | None = None
    libraries: tuple[Path, ...] = ()
    execution: Execution = PLAIN
    name: str = "model"
