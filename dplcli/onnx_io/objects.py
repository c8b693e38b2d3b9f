"""Models that programs hold in memory: written to files, where all of dpl reads, and read back.

What a model comes from is told by its class. Nothing is imported for that: who holds an object has
imported its package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import onnx
from onnx import ModelProto

from dplcli.errors import ModelLoadError, UsageError
from dplcli.onnx_io.convert import all_tensors, external_tensors, load_data
from dplcli.onnx_io.external_data import DataPlace, refer
from dplcli.onnx_io.parts import copy_but

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onnx import TensorProto


NAME = "model.onnx"
"""The file of a model that was given as an object; reports call it so."""

_DATA = f"{NAME}.data"
_MOST = 1 << 30
"""So many bytes of tensors go into one file: protobuf takes no message of 2 GB."""
_SMALL = 1 << 10


class IrModel(Protocol):
    """What is needed of an ``onnx_ir.Model``."""

    @property
    def opset_imports(self) -> Mapping[str, int]:
        """The versions of operator sets."""

    @property
    def graph(self) -> object:
        """The main graph."""


class TorchProgram(Protocol):
    """What is needed of a ``torch.onnx.ONNXProgram``."""

    @property
    def model_proto(self) -> ModelProto:
        """The model as a message."""


def write_object(model: object, folder: Path) -> Path:
    """Write a model to a file in *folder*; the object stays as it is.

    Tensors of more than 1 GB in all go into a file beside it.

    Args:
        model: An ``onnx.ModelProto``, an ``onnx_ir.Model`` or an ``ONNXProgram`` of torch.
        folder: An empty folder.

    Raises:
        UsageError: It is none of these.
        ModelLoadError: It cannot be written, or refers to external data that nobody can find.
    """
    path = folder / NAME
    if isinstance(model, ModelProto):
        _write_proto(model, path)
    elif _is_of(model, "onnx_ir", "Model"):
        onnx_ir: Any = sys.modules["onnx_ir"]
        try:
            tensors = [
                value.const_value
                for graph in model.graphs()  # type: ignore[attr-defined]  # onnx_ir's
                for value in graph.initializers.values()
            ]
            size = sum(tensor.nbytes for tensor in tensors if tensor is not None)
            inline = _SMALL if size > _MOST else sys.maxsize
            onnx_ir.save(model, path, external_data=_DATA, size_threshold_bytes=inline)
        except Exception as error:  # whatever it raises, the model is not to be had
            raise ModelLoadError(f"onnx_ir cannot write this model: {error}") from error
    elif _is_of(model, "torch", "ONNXProgram"):
        inner = getattr(model, "model", None)
        write_object(inner if _is_of(inner, "onnx_ir", "Model") else model.model_proto, folder)  # type: ignore[attr-defined]  # torch's
    else:
        kind = type(model).__qualname__
        raise UsageError(
            f"this is no model, but an object of the class {kind}",
            hint="pass a path, an onnx.ModelProto, an onnx_ir.Model or an ONNXProgram of torch",
        )
    return path


def _is_of(model: object, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(model).__mro__
    )


def _write_proto(proto: ModelProto, path: Path) -> None:
    for tensor in external_tensors(proto):
        raise ModelLoadError(
            f"the data of {tensor.name!r} lies in a file, and a ModelProto does not say where",
            hint="pass the path of the model instead, or load the data into it",
        )
    if sum(tensor.ByteSize() for tensor in all_tensors(proto)) <= _MOST:
        path.write_bytes(proto.SerializeToString())
        return
    shell = copy_but(proto, {"graph"})
    shell.graph.MergeFrom(copy_but(proto.graph, {"initializer"}))
    with path.with_name(_DATA).open("wb") as file:
        for tensor in proto.graph.initializer:
            shell.graph.initializer.append(_put_outside(tensor, file))
    try:
        path.write_bytes(shell.SerializeToString())
    except Exception as error:  # protobuf's own classes say nothing to others
        raise ModelLoadError(
            "the model has 2 GB beside its initializers, and no file takes that"
        ) from error


def _put_outside(tensor: TensorProto, file: BinaryIO) -> TensorProto:
    """Return a tensor with its data at the end of *file* if it is large."""
    if not tensor.HasField("raw_data") or tensor.ByteSize() <= _SMALL:
        return tensor
    begin = file.tell()
    file.write(tensor.raw_data)
    outside = copy_but(tensor, {"raw_data"})
    refer(outside, DataPlace(_DATA, begin, file.tell()))
    return outside


def read_proto(content: Path | bytes, folder: Path) -> ModelProto:
    """Return a model as a message of its own, external data loaded.

    Args:
        content: The file, or what is in it.
        folder: Where its external data lies.

    Raises:
        ModelLoadError: It cannot be read, or its external data cannot.
    """
    try:
        data = content if isinstance(content, bytes) else content.read_bytes()
        proto = onnx.load_model_from_string(data)
        for tensor in external_tensors(proto):
            load_data(tensor, folder)
    except Exception as error:  # protobuf's, onnx's and the system's
        name = NAME if isinstance(content, bytes) else content
        raise ModelLoadError(f"{name}: cannot be read: {error}") from error
    return proto
