"""Tensors between protobuf and the IR; data is decoded only when asked for."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto, numpy_helper

from dplcli.errors import ModelLoadError
from dplcli.files import text_path
from dplcli.ir import Tensor
from dplcli.ir.types import dtype_name

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    MemoryError,
    RuntimeError,
    onnx.checker.ValidationError,
)
"""What onnx raises where the data of a tensor cannot be had."""


class Home(NamedTuple):
    """Where a model comes from.

    Attributes:
        folder: Where its external data lies.
        label: What messages call it.
    """

    folder: Path
    label: str


class ProtoTensor(Tensor):
    """A ``TensorProto`` as it stands in the file.

    Args:
        proto: The message.
        home: The model that it is part of; None if it cannot have external data.
    """

    __slots__ = ("home", "proto")

    def __init__(self, proto: TensorProto, home: Home | None = None) -> None:
        """Wrap *proto* without looking at its data."""
        self.proto = proto
        self.home = home

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return dtype_name(self.proto.data_type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return tuple(self.proto.dims[:])

    @property
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""
        return self.proto.data_location == TensorProto.EXTERNAL

    def numpy(self) -> NDArray[Any]:
        """Decode the data, from the external file if it lies there.

        Raises:
            ModelLoadError: The external file is missing, too short or outside the folder, or the
                tensor is only a segment of one.
        """
        if self.proto.HasField("segment"):
            raise self._unreadable(
                "it is one of several segments of a tensor, which onnx does not put together",
                "save the model again with every tensor in one piece",
            )
        folder = self.home.folder if self.home else Path()
        try:
            with text_path(folder) as base:
                array: NDArray[Any] = numpy_helper.to_array(self.proto, base)
        except UNREADABLE as error:
            raise self._unreadable(" ".join(str(error).split())) from error
        return array

    def _unreadable(self, why: str, hint: str | None = None) -> ModelLoadError:
        where = f"{self.home.label}: " if self.home else ""
        name = self.proto.name
        return ModelLoadError(
            f"{where}constant {name!r}: its data cannot be read: {why}", hint=hint
        )


class SparseTensor(ProtoTensor):
    """A sparse initializer: the values' element type, the dense shape.

    Args:
        proto: The message; its indices are linear or one row of coordinates per value.
        home: The model that it is part of.
    """

    __slots__ = ("sparse",)

    def __init__(self, proto: SparseTensorProto, home: Home) -> None:
        """Wrap *proto* without looking at its data."""
        super().__init__(proto.values, home)
        self.sparse = proto

    @property
    def shape(self) -> tuple[int, ...]:
        """The dense dimensions."""
        return tuple(self.sparse.dims)

    def numpy(self) -> NDArray[Any]:
        """Decode to a dense array."""
        values = super().numpy()
        indices = ProtoTensor(self.sparse.indices, self.home).numpy()
        coordinates = (indices,) if indices.ndim == 1 else tuple(indices.T)
        extents = (self.size,) if indices.ndim == 1 else self.shape
        if len(coordinates) != len(extents) or len(indices) != len(values):
            raise self._unreadable("its indices do not fit its values")
        if any((c < 0).any() or (c >= n).any() for c, n in zip(coordinates, extents, strict=True)):
            raise self._unreadable("an index lies outside its shape")
        try:
            dense = np.zeros(extents, dtype=values.dtype)
        except UNREADABLE as error:
            raise self._unreadable(str(error)) from error
        dense[coordinates] = values
        return dense.reshape(self.shape)


def tensor_to_proto(tensor: Tensor, name: str) -> TensorProto:
    """Write *tensor* under *name*; what came from a file is copied, not re-encoded.

    A sparse tensor becomes a dense one.
    """
    if type(tensor) is ProtoTensor:
        proto = TensorProto()
        proto.CopyFrom(tensor.proto)
        proto.name = name
        return proto
    return numpy_helper.from_array(np.asarray(tensor.numpy()), name)
