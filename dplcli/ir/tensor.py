"""Constant tensors, read only when somebody looks at the numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplcli.ir.types import DTYPE_NAMES, Attribute


class Tensor(ABC):
    """A constant tensor whose element type and shape are at hand and whose data may not be."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Name of the element type, as in :data:`dplcli.ir.types.DTYPE_NAMES`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""

    @property
    @abstractmethod
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""

    @abstractmethod
    def numpy(self) -> NDArray[Any]:
        """Decode the data; this reads the external file, if there is one.

        Raises:
            ModelLoadError: The data cannot be read.
        """

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class ArrayTensor(Tensor):
    """A constant that a pass has computed."""

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        """Hold *array*, which must not be changed afterwards; nobody can through the tensor."""
        self._array = array.view()
        self._array.flags.writeable = False

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return _name_of(self._array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._array.shape

    @property
    def is_external(self) -> bool:
        """Never: the data is in memory."""
        return False

    def numpy(self) -> NDArray[Any]:
        """Return the array itself."""
        return self._array


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    name = dtype.name.replace("_", "")
    for name_of_ours in (name, name.removesuffix("fn"), name.removesuffix("fnu")):
        if name_of_ours in DTYPE_NAMES:
            return name_of_ours
    return "string"


_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def tensor_of_attributes(attributes: Mapping[str, Attribute]) -> Tensor | None:
    """Return the tensor of a ``Constant`` node; None if sparse or set by a function's caller."""
    for name, attribute in attributes.items():
        if attribute.ref:
            return None
        if name == "value" and isinstance(attribute.value, Tensor):
            return attribute.value
        if name in _NUMPY_TYPES:
            return _array_tensor(attribute.value, _NUMPY_TYPES[name])
    return None


def _array_tensor(value: Any, dtype: type[np.generic]) -> Tensor | None:  # noqa: ANN401  # any kind
    try:
        return ArrayTensor(np.array(value, dtype=dtype))
    except (ValueError, TypeError, OverflowError):
        return None  # the attribute is of another kind than its name says
