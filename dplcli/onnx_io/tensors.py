"""Tensors between protobuf and the IR; data is decoded only when asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto, numpy_helper

from dplcli.errors import ModelLoadError
from dplcli.ir import Tensor
from dplcli.ir.types import dtype_name

_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    MemoryError,
    onnx.checker.ValidationError,
)


class ProtoTensor(Tensor):
    """A ``TensorProto`` as it stands in the file.

    Args:
        proto: The message.
        folder: Where external data lies; None if the tensor cannot have any.
    """

    __slots__ = ("folder", "proto")

    def __init__(self, proto: TensorProto, folder: Path | None = None) -> None:
        """Wrap *proto* without looking at its data."""
        self.proto = proto
        self.folder = folder

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
            ModelLoadError: The external file is missing, too short or outside the folder.
        """
        try:
            array: NDArray[Any] = numpy_helper.to_array(self.proto, str(self.folder or "."))
        except _UNREADABLE as error:
            raise self._unreadable(error) from error
        return array

    def _unreadable(self, why: object) -> ModelLoadError:
        return ModelLoadError(f"constant {self.proto.name!r}: its data cannot be read: {why}")


class SparseTensor(ProtoTensor):
    """A sparse initializer: the values' element type, the dense shape.

    Args:
        proto: The message; its indices are linear or one row of coordinates per value.
        folder: Where external data lies.
    """

    __slots__ = ("sparse",)

    def __init__(self, proto: SparseTensorProto, folder: Path) -> None:
        """Wrap *proto* without looking at its data."""
        super().__init__(proto.values, folder)
        self.sparse = proto

    @property
    def shape(self) -> tuple[int, ...]:
        """The dense dimensions."""
        return tuple(self.sparse.dims)

    def numpy(self) -> NDArray[Any]:
        """Decode to a dense array."""
        values = super().numpy()
        indices = ProtoTensor(self.sparse.indices, self.folder).numpy()
        coordinates = (indices,) if indices.ndim == 1 else tuple(indices.T)
        extents = (self.size,) if indices.ndim == 1 else self.shape
        if len(coordinates) != len(extents) or len(indices) != len(values):
            raise self._unreadable("its indices do not fit its values")
        if any((c < 0).any() or (c >= n).any() for c, n in zip(coordinates, extents, strict=True)):
            raise self._unreadable("an index lies outside its shape")
        try:
            dense = np.zeros(extents, dtype=values.dtype)
        except _UNREADABLE as error:
            raise self._unreadable(error) from error
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
