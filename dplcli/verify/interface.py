"""The signature of a model: what it takes and gives, and whether two models agree on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx
from onnx.external_data_helper import load_external_data_for_model

from dplcli.errors import VerificationError
from dplcli.files import text_path
from dplcli.ir.functions import MANY
from dplcli.onnx_io import parse_model, read_model_file
from dplcli.onnx_io.bounded_inference import Expansion
from dplcli.verify.execution import TIMEOUT, Execution

Kind = Literal["tensor", "sequence", "optional", "optional sequence", "map", "sparse", "unknown"]
Dim = int | str | None


@dataclass(frozen=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Name of the value.
        kind: What it holds; the other fields describe the tensor inside, if there is one.
        dtype: Element type by number (`onnx.TensorProto.DataType`), 0 if unknown.
        shape: A number, a symbol or None per dimension; None if not even the rank is declared.
    """

    name: str
    kind: Kind
    dtype: int
    shape: tuple[Dim, ...] | None

    @property
    def type_name(self) -> str:
        """Element type as numpy calls it, within the kind if that is no tensor."""
        inner = dtype_name(self.dtype)
        return inner if self.kind == "tensor" else f"{self.kind} of {inner}"

    @property
    def is_sequence(self) -> bool:
        """Whether it holds a list of tensors, if it holds anything."""
        return self.kind in {"sequence", "optional sequence"}

    @property
    def may_be_absent(self) -> bool:
        """Whether it may hold nothing."""
        return self.kind in {"optional", "optional sequence"}

    @property
    def symbols(self) -> tuple[str | None, ...]:
        """Per axis the name under which its size is chosen; None for a number."""
        return tuple(
            None if isinstance(dim, int) else dim or f"{self.name}:{axis}"
            for axis, dim in enumerate(self.shape or ())
        )


def dtype_name(dtype: int) -> str:
    """Return numpy's name of an ONNX element type, 'unknown' if it is not one."""
    if dtype == onnx.TensorProto.STRING:
        return "string"
    if dtype == onnx.TensorProto.UNDEFINED or dtype not in onnx.TensorProto.DataType.values():
        return "unknown"
    return onnx.helper.tensor_dtype_to_np_dtype(dtype).name


def read_model(path: Path) -> onnx.ModelProto:
    """Read a model without its external data.

    Raises:
        ModelLoadError: There is no such file, or it does not hold a model.
        InvalidModelError: A name in it is not UTF-8.
    """
    return parse_model(read_model_file(path), path)[0]


def read_whole(path: Path) -> onnx.ModelProto:
    """Read a model with its weights.

    Raises:
        ModelLoadError: There is no such file, or it does not hold a model.
        InvalidModelError: A name in it is not UTF-8.
        OSError: Its external data cannot be read; onnx raises other things for that, too.
    """
    model = read_model(path)
    with text_path(path.parent) as folder:
        load_external_data_for_model(model, folder)
    return model


def check_expansion(path: Path, model: onnx.ModelProto, execution: Execution) -> None:
    """Refuse a model whose functions stand for far more nodes than it has.

    onnxruntime puts functions in the place of their calls before it runs anything, calls in
    functions included. Whoever sets a time limit of their own lets it try.

    Raises:
        VerificationError: It would take onnxruntime hours, or all memory.
    """
    expansion = Expansion(model)
    if execution.timeout != TIMEOUT or expansion.is_bounded:
        return
    number = f"{expansion.total:,}" if expansion.total < MANY else "endlessly many"
    raise VerificationError(
        f"{path}: its functions stand for {number} nodes in the place of {expansion.stated:,}; "
        "onnxruntime would expand them all before it runs",
        hint="let it try for as long as you like to wait: --timeout 600",
    )


def input_ports(graph: onnx.GraphProto) -> tuple[Port, ...]:
    """Return what has to be fed: the graph inputs that no initializer gives a default."""
    given = {tensor.name for tensor in graph.initializer}
    given |= {tensor.values.name for tensor in graph.sparse_initializer}
    return tuple(port_of(info) for info in graph.input if info.name not in given)


def output_ports(graph: onnx.GraphProto) -> tuple[Port, ...]:
    """Return the graph outputs in order."""
    return tuple(port_of(info) for info in graph.output)


def port_of(info: onnx.ValueInfoProto) -> Port:
    """Describe one declared value; a sequence or optional by the tensor inside it."""
    kind, inner = kind_of(info.type)
    field = inner.WhichOneof("value")
    if field == "tensor_type":
        tensor = inner.tensor_type
        shape = dims_of(tensor.shape) if tensor.HasField("shape") else None
        return Port(info.name, kind, tensor.elem_type, shape)
    dtype = inner.map_type.key_type if field == "map_type" else onnx.TensorProto.UNDEFINED
    return Port(info.name, "map" if field == "map_type" else kind, dtype, None)


def kind_of(declared: onnx.TypeProto) -> tuple[Kind, onnx.TypeProto]:
    """Return the outermost container of a type and what is innermost in it."""
    match declared.WhichOneof("value"):
        case "tensor_type":
            return "tensor", declared
        case "sequence_type":
            return "sequence", kind_of(declared.sequence_type.elem_type)[1]
        case "optional_type":
            kind, inner = kind_of(declared.optional_type.elem_type)
            return "optional sequence" if kind == "sequence" else "optional", inner
        case "map_type":
            return "map", declared
        case "sparse_tensor_type":
            return "sparse", declared
        case _:
            return "unknown", declared


def dims_of(shape: onnx.TensorShapeProto) -> tuple[Dim, ...]:
    """Return each dimension as a number, a symbol or None; a negative number says nothing."""
    return tuple(
        (dim.dim_value if dim.dim_value >= 0 else None)
        if dim.HasField("dim_value")
        else dim.dim_param or None
        for dim in shape.dim
    )


def signature_differences(original: onnx.GraphProto, candidate: onnx.GraphProto) -> list[str]:
    """Name each difference in what the two take and give: names, order, types and ranks."""
    return [
        *_differences("input", input_ports(original), input_ports(candidate)),
        *_differences("output", output_ports(original), output_ports(candidate)),
    ]


def _differences(what: str, ours: Sequence[Port], theirs: Sequence[Port]) -> list[str]:
    names, other_names = [port.name for port in ours], [port.name for port in theirs]
    found = [f"the candidate has no {what} {n!r}" for n in names if n not in other_names]
    found += [f"the candidate has another {what} {n!r}" for n in other_names if n not in names]
    if found:
        return found
    if names != other_names:
        return [f"the {what}s are in another order: {other_names} where the original has {names}"]
    for port, other in zip(ours, theirs, strict=True):
        if port.type_name != other.type_name and "unknown" not in (port.kind, other.kind):
            found.append(f"{what} {port.name!r} is {other.type_name}, not {port.type_name}")
        elif None not in (port.shape, other.shape) and _rank(port) != _rank(other):
            found.append(f"{what} {port.name!r} has rank {_rank(other)}, not {_rank(port)}")
    return found


def _rank(port: Port) -> int:
    return len(port.shape or ())
