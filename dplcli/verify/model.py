"""What can be read off a model before it runs: its signature, and what its values are for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import onnx

from dplcli.errors import DplError, VerificationError, flag, opt
from dplcli.files import path_of
from dplcli.ir import operators
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS, called_function
from dplcli.ir.operators import is_random
from dplcli.ir.types import summands
from dplcli.onnx_io import model_from_proto, parse_model, read_model_file
from dplcli.onnx_io.convert import all_tensors, decode_type, dtype_bits, file_of, load_data
from dplcli.onnx_io.infer import Expansion, nodes_of, state_types
from dplcli.verify.check import TIMEOUT, Execution
from dplcli.verify.numbering import SHORT, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence

    from dplcli.ir import Dim, Node, Shape, Tensor, Value
    from dplcli.verify.check import Sums
    from dplcli.verify.values import Array, ModelSource


# The signature of a model: what it takes and gives, and whether two models agree on it.


Kind = Literal["tensor", "sequence", "optional", "optional sequence", "map", "sparse", "unknown"]


@dataclass(frozen=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Name of the value.
        kind: What it holds. The other fields describe the tensor inside, if there is one.
        dtype: Element type by number (`onnx.TensorProto.DataType`), 0 if unknown.
        shape: A number, a symbol or None per dimension; None if not even the rank is declared.
        sums: Which symbols are sums of others, as somebody has said.
    """

    name: str
    kind: Kind
    dtype: int
    shape: tuple[Dim, ...] | None
    sums: Sums = field(default_factory=dict, compare=False)

    @property
    def parts(self) -> dict[str, tuple[int | str, ...]]:
        """The symbols that are sums of others, by what is said or by their names."""
        named = {dim: summands(dim) for dim in self.shape or () if isinstance(dim, str)}
        return {name: parts for name, parts in {**named, **self.sums}.items() if parts}

    @property
    def type_name(self) -> str:
        """Element type as numpy calls it, after the kind if this is no tensor."""
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
        """The name under which the size of each axis is chosen; None for a fixed size."""
        return tuple(
            None if isinstance(dim, int) else dim or f"{self.name}:{axis}"
            for axis, dim in enumerate(self.shape or ())
        )


_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    | {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
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
    return parse_model(read_model_file(path), path)


def model_of(source: ModelSource) -> onnx.ModelProto:
    """Read what *source* runs, without its external data."""
    if source.content is None:
        return read_model(source.path)
    return onnx.load_model_from_string(source.content)


def whole_of(source: ModelSource) -> onnx.ModelProto:
    """Read what *source* runs, with its weights.

    Raises:
        ModelLoadError: There is no such file, or it does not hold a model.
        OSError: Its external data cannot be read. onnx raises other errors for that, too.
    """
    model = model_of(source)
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            load_data(tensor, source.path.parent)
    return model


def bytes_of(tensor: onnx.TensorProto) -> int:
    """Return how many bytes a stored value takes."""
    size: int = math.prod(tensor.dims) * dtype_bits(tensor.data_type) // 8
    return size


def external_places(
    model: onnx.ModelProto, folder: Path
) -> list[tuple[onnx.TensorProto, Hashable]]:
    """Return a model's tensors with external data, and which part of which file each of them is.

    Args:
        model: The model.
        folder: The folder of its file.

    Raises:
        OSError: A file cannot be looked at.
        ValueError: It has no possible name.
    """
    files: dict[str, tuple[int, int]] = {}
    places: list[tuple[onnx.TensorProto, Hashable]] = []
    for tensor in all_tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise ValueError(f"the data of {tensor.name!r} is said to lie in a file without a name")
        if location not in files:
            status = (folder / path_of(location)).stat()
            files[location] = status.st_dev, status.st_ino
        places.append((tensor, (*files[location], *sorted(entries.items()))))
    return places


_AT_ONCE = 1 << 24
"""External data of more bytes is not loaded."""
_IN_ALL = 1 << 28
"""Nor is more than this of one pair of models, but for what is short."""


def load_unshared(*models: tuple[onnx.ModelProto, Path]) -> Iterator[onnx.TensorProto]:
    """Read the external data of two models, but for what both have in the same place of one file.

    What is large stays where it is, and is marked by what it holds.

    Args:
        models: Each model, and its folder.

    Yields:
        Each tensor, as soon as it is read.

    Raises:
        OSError: A file cannot be read.
        ValueError: It is not what a tensor needs, or has no possible name.
    """
    located = [external_places(*model) for model in models]
    shared = set.intersection(*({place for _, place in places} for places in located))
    room = _IN_ALL
    for (_, folder), places in zip(models, located, strict=True):
        for tensor, place in places:
            size = bytes_of(tensor)
            if place in shared:
                continue
            if size > _AT_ONCE or (size > SHORT and size > room):
                mark(tensor, _digest(folder, tensor))
            else:
                load_data(tensor, folder)
                room -= size
            yield tensor


def _digest(folder: Path, tensor: onnx.TensorProto) -> str:
    """Return what stands for external data, which is read a piece at a time."""
    path, begin, size = file_of(tensor, folder)
    status = path.stat()
    return _digest_of(path, begin, size, status.st_mtime_ns)


@cache
def _digest_of(path: Path, begin: int, size: int, _changed: int) -> str:
    """Return the digest of a part of a file as it was changed last."""
    digest = sha256()
    with path.open("rb") as file:
        file.seek(begin)
        while size > 0 and (part := file.read(min(size, _AT_ONCE))):
            digest.update(part)
            size -= len(part)
    return digest.hexdigest()


def check_expansion(path: Path, model: onnx.ModelProto, execution: Execution) -> None:
    """Refuse a model whose functions stand for far more nodes than it has.

    Before onnxruntime runs anything it puts functions in the place of their calls, calls inside
    functions included. If the user sets a time limit, onnxruntime may try.

    Raises:
        VerificationError: It would take onnxruntime minutes or hours, or all memory.
    """
    expansion = Expansion(model)
    if execution.timeout != TIMEOUT or expansion.is_runnable:
        return
    raise VerificationError(
        f"{path}: its functions stand for {nodes_of(expansion.total)} in the place of "
        f"{expansion.stated:,}; "
        "onnxruntime would expand them all before it runs",
        hint=f"let it try for as long as you like to wait: {opt('timeout', '600')}",
    )


def input_ports(graph: onnx.GraphProto) -> tuple[Port, ...]:
    """Return what has to be fed: the graph inputs without an initializer as their default."""
    given = {tensor.name for tensor in graph.initializer}
    given |= {tensor.values.name for tensor in graph.sparse_initializer}
    return tuple(port_of(info) for info in graph.input if info.name not in given)


def output_ports(graph: onnx.GraphProto) -> tuple[Port, ...]:
    """Return the graph outputs in order."""
    return tuple(port_of(info) for info in graph.output)


def port_of(info: onnx.ValueInfoProto) -> Port:
    """Describe one declared value; of a sequence or optional, the tensor inside."""
    kind, inner = kind_of(info.type)
    field = inner.WhichOneof("value")
    if (known := decode_type(inner)) is not None:
        return Port(info.name, kind, inner.tensor_type.elem_type, known.shape)
    dtype = inner.map_type.key_type if field == "map_type" else onnx.TensorProto.UNDEFINED
    return Port(info.name, "map" if field == "map_type" else kind, dtype, None)


def kind_of(declared: onnx.TypeProto) -> tuple[Kind, onnx.TypeProto]:
    """Return the outermost container of a type, and the innermost type in it."""
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


def signature_differences(
    original: onnx.GraphProto, candidate: onnx.GraphProto, *, converts: bool = False
) -> list[str]:
    """Name the differences of two signatures: in names, order, types and ranks.

    Args:
        original: The original.
        candidate: The candidate.
        converts: Whether a float may be one of another type, to which it is converted.
    """
    return [
        *input_differences(original, candidate, converts=converts),
        *_differences("output", output_ports(original), output_ports(candidate), converts=converts),
    ]


def input_differences(
    original: onnx.GraphProto, candidate: onnx.GraphProto, *, converts: bool = False
) -> list[str]:
    """Name the differences of what two models are fed, as :func:`signature_differences` does."""
    return _differences("input", input_ports(original), input_ports(candidate), converts=converts)


def narrowed_inputs(original: onnx.GraphProto, candidate: onnx.GraphProto) -> list[str]:
    """Name the axes of inputs that may have any size in the original, and one in the candidate."""
    said: dict[str, str] = {}
    for port, other in _by_name(input_ports(original), input_ports(candidate)):
        for axis, (own, size) in enumerate(zip(port.shape or (), other.shape or (), strict=False)):
            if isinstance(size, int) and not isinstance(own, int):
                name = own or f"{port.name}:{axis}"
                way = f"{flag('shape', f'{name}={size}')} compares them there"
                said.setdefault(
                    name, f"the candidate takes {name}={size} alone, the original any size: {way}"
                )
    return [*said.values()]


_Floats = dict[str, tuple[str, str]]


def other_floats(original: onnx.GraphProto, candidate: onnx.GraphProto) -> tuple[_Floats, _Floats]:
    """Return the inputs and outputs that are floats of two types, with both types."""
    inputs, outputs = (
        {
            port.name: (dtype_name(port.dtype), dtype_name(other.dtype))
            for port, other in _by_name(ports(original), ports(candidate))
            if _are_floats(port, other)
        }
        for ports in (input_ports, output_ports)
    )
    return inputs, outputs


def _by_name(ours: Sequence[Port], theirs: Sequence[Port]) -> list[tuple[Port, Port]]:
    others = {port.name: port for port in theirs}
    return [(port, others[port.name]) for port in ours if port.name in others]


def _are_floats(port: Port, other: Port) -> bool:
    """Tell whether two ports hold floats, of two types."""
    is_one_kind = port.kind == other.kind and port.dtype != other.dtype
    return is_one_kind and {port.dtype, other.dtype} <= _FLOATS


def _differences(
    what: str, ours: Sequence[Port], theirs: Sequence[Port], *, converts: bool
) -> list[str]:
    names, other_names = [port.name for port in ours], [port.name for port in theirs]
    own, others = set(names), set(other_names)
    differences = [f"the candidate has no {what} {n!r}" for n in names if n not in others]
    differences += [f"the candidate has another {what} {n!r}" for n in other_names if n not in own]
    if differences:
        return differences
    if names != other_names:
        return [f"the {what}s are in another order: {other_names} where the original has {names}"]
    for port, other in zip(ours, theirs, strict=True):
        is_bridged = "unknown" in {port.kind, other.kind} or (converts and _are_floats(port, other))
        if port.type_name != other.type_name and not is_bridged:
            differences.append(f"{what} {port.name!r} is {other.type_name}, not {port.type_name}")
        elif None not in (port.shape, other.shape) and _rank(port) != _rank(other):
            differences.append(f"{what} {port.name!r} has rank {_rank(other)}, not {_rank(port)}")
    return differences


def lost_defaults(original: onnx.ModelProto, candidate: onnx.ModelProto) -> list[str]:
    """Name the inputs with a default, which a caller may feed, that only the original has.

    Before IR version 4 every stored constant is such an input, whether it is meant so or not.
    """
    if original.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS:
        return []
    stored = {tensor.name for tensor in original.graph.initializer}
    kept = {info.name for info in candidate.graph.input}
    return [i.name for i in original.graph.input if i.name in stored and i.name not in kept]


def _rank(port: Port) -> int:
    return len(port.shape or ())


# Where a value goes inside a model: through subgraphs and through calls of local functions.


_INDICES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_KEEPS_SHAPE = operators.CASTS | {"DequantizeLinear", "Dropout", "Identity"}
_LARGE = 1 << 13  # bytes: shape inference looks at no more than 1,024 elements
_LARGE_WHOLE = 1 << 16  # tables of classes, which say what an index may be; weights are floats


class Dataflow:
    """A model whose values can be followed.

    Args:
        model: The model, which loses its large weights, so that they are never held twice.
        infers: Whether to infer the types that it does not state. If that fails, there are only
            those that it states.

    Attributes:
        model: The model, with the types that were inferred.
        graph: Its main graph.
    """

    def __init__(self, model: onnx.ModelProto, *, infers: bool = True) -> None:
        for tensor in model.graph.initializer if infers else ():
            most = _LARGE_WHOLE if tensor.data_type in _INDICES else _LARGE
            for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                if len(getattr(tensor, name)) > most:
                    tensor.ClearField(name)
        self.model = model
        self.graph = model_from_proto(model, Path(), "the model").graph
        if infers:
            types = state_types(self.graph.model)
            for info in model.graph.output:
                if info.name in types:
                    info.type.CopyFrom(types[info.name])

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of the main graph and of the bodies in it."""
        return (node for graph in self.graph.and_inner() for node in graph)

    def values(self) -> Iterator[Value]:
        """Yield the values of the main graph and of the bodies in it."""
        return (value for graph in self.graph.and_inner() for value in graph.values.values())


def stored(value: Value) -> Tensor | None:
    """Return the tensor that a file holds for a value, be it the default of an input."""
    if value.is_initializer:
        return value.graph.model.codec.tensor(value.initializer_source)
    return value.constant


def numbers_in(tensor: Tensor | None) -> Array | None:
    """Return what a tensor holds; None if it is empty, was left out or lies in another file."""
    if tensor is None or tensor.is_external or 0 in tensor.shape:
        return None
    try:
        return tensor.numpy()
    except (DplError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class Waypoint:
    """A value on the way from an input to its consumers.

    Attributes:
        value: The value.
        calls: The calls that lead into the function where it is, the outermost first.
        offset: What was added to it since the input.
        cast: Whether it changed its type since the input.
        mixed: Whether a matrix product lies between.
        capped: Whether the largest numbers may have been cut off since the input.
    """

    value: Value
    calls: tuple[Node, ...] = ()
    offset: int = 0
    cast: bool = False
    mixed: bool = False
    capped: bool = False

    def on_to(self, values: Iterable[Value | None], **changes: Any) -> Iterator[Waypoint]:  # noqa: ANN401  # fields
        """Yield where a walk goes on."""
        return (replace(self, value=value, **changes) for value in values if value is not None)

    def read_by(self, node: Node, slot: int) -> Waypoint | None:
        """Return what a node here reads in a slot, None if that is nothing."""
        return next(self.on_to(node.inputs[slot : slot + 1]), None)

    def back(self, through: Container[str] = ()) -> Iterator[Waypoint]:
        """Yield where it comes from: behind operators *through* which it goes, out of calls."""
        here: Waypoint | None = self
        while here is not None:
            yield here
            node, inputs = here.value.producer, here.value.graph.inputs
            if node is not None and node.op_type in through:
                here = here.read_by(node, 0)
            elif here.calls and here.value in inputs and here.value.graph.owner is None:
                slot = inputs.index(here.value)
                here = replace(here, calls=here.calls[:-1]).read_by(here.calls[-1], slot)
            else:
                return

    @property
    def dims(self) -> Shape | None:
        """Its dimensions where they are known, here or at the caller."""
        types = (place.value.declared_type for place in self.back(_KEEPS_SHAPE))
        return next((known.shape for known in types if known and known.shape is not None), None)

    def dims_of(self, node: Node, slot: int) -> Shape:
        """Return the dimensions of what a node here reads, none if they are not known."""
        place = self.read_by(node, slot)
        return () if place is None else place.dims or ()

    def tensor_of(self, node: Node, slot: int) -> Tensor | None:
        """Return the tensor that a node here reads, None if it is computed."""
        place = self.read_by(node, slot)
        tensors = (stored(each.value) for each in place.back()) if place else ()
        return next((tensor for tensor in tensors if tensor is not None), None)


def integer(node: Node, name: str, default: int, calls: Sequence[Node] = ()) -> int:
    """Return an integer attribute of *node*, through references to those of *calls* around it."""
    item = node.attributes.get(name)
    for call in reversed(calls):
        if item is not None and item.ref:
            item = call.attributes.get(item.ref)
    return default if item is None or not isinstance(item.value, int) else item.value


def follow(
    start: Waypoint, look: Callable[[Waypoint, Node, int], Iterable[Waypoint]], most: int
) -> None:
    """Follow a value through subgraphs and calls; stop after so many values.

    Args:
        start: The value.
        look: Looks at a node that reads a value in some slot, and says which values the walk goes
            on to.
        most: How many values to know of at the most, however large the graph.
    """
    pending, seen = [start], {start}
    while pending and len(seen) < most:
        here = pending.pop()
        places = [*leaving(here)]
        for node, slot in here.value.iter_uses():
            if (function := called_function(node)) is not None:
                inside = function.body.inputs[slot : slot + 1]
                places += here.on_to(inside, calls=(*here.calls, node))
                continue
            for body in node.subgraphs.values():
                if node.op_type == "Scan" or slot > 1:
                    places += here.on_to(body.inputs[slot : slot + 1])
            places += look(here, node, slot)
        for place in places:
            if place not in seen:
                seen.add(place)
                pending.append(place)


def leaving(here: Waypoint) -> Iterator[Waypoint]:
    """Yield the values outside of a subgraph or function that a value becomes."""
    for graph in dict.fromkeys(here.value.returned_by):
        node = graph.owner or next(iter(here.calls[-1:]), None)
        if node is None:
            continue
        calls = here.calls if graph.owner else here.calls[:-1]
        skipped = 1 if graph.owner and node.op_type == "Loop" else 0
        outer = zip(graph.outputs[skipped:], node.outputs, strict=False)
        yield from here.on_to((new for old, new in outer if old is here.value), calls=calls)


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Return an attribute by name."""
    return next((item for item in node.attribute if item.name == name), None)


def small_values(tensor: onnx.TensorProto) -> Array | None:
    """Return the values of a tensor; None if it is empty or they lie in another file."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or 0 in tensor.dims:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return None


def draws_random(node: onnx.NodeProto, stored: Callable[[str], onnx.TensorProto | None]) -> bool:
    """Tell whether a node may draw random numbers by itself; *stored* gives constants by name."""

    def is_true(name: str) -> bool | None:
        tensor = stored(name)
        values = None if tensor is None else small_values(tensor)
        return None if values is None else bool(values.any())

    return is_random(node.domain, node.op_type, node.input, is_true)


# What whole numbers and booleans are for, told by where their influence ends.
#
# A mask reaches a softmax through casts, comparisons and arithmetic, and selects nothing on the
# way. A position reaches a sine or cosine, perhaps through a matrix of frequencies. The operator
# that reads the input first tells neither: both are cast to float there, and multiplied.


_MOST_PURPOSE_STATES = 4_000
_WHOLE = frozenset(
    {onnx.TensorProto.BOOL, onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
    | {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
)
_MIXES = frozenset({"MatMul", "Gemm", "Einsum"})
_TURNS = frozenset({"Sin", "Cos"})


class Purpose(Enum):
    """What a consumer takes its input for."""

    COUNT = "count"
    NUMBER = "number"
    POSITIVE = "positive"
    UNIT = "unit"
    ABOVE_ONE = "above one"
    MASK = "mask"
    ANGLE = "angle"


def influences(flow: Dataflow, port: Port) -> list[tuple[Purpose, Value]]:
    """Return where *port*, of whole numbers or booleans, hides or turns what it meets."""
    ends: list[tuple[Purpose, Value]] = []

    def look(here: Waypoint, node: Node, slot: int) -> Iterator[Waypoint]:
        if (node.op_type, slot) in operators.MASK_SLOTS and not here.mixed:
            ends.append((Purpose.MASK, here.value))
        elif node.op_type in _TURNS:
            ends.append((Purpose.ANGLE, here.value))
        if node.op_type in _MIXES or slot in operators.INFLUENCED.get(node.op_type, ()):
            mixed = here.mixed or node.op_type in _MIXES
            yield from here.on_to(node.outputs, mixed=mixed)

    value = flow.graph.values.get(port.name)
    if value is not None and port.dtype in _WHOLE:
        follow(Waypoint(value), look, _MOST_PURPOSE_STATES)
    return ends


def purposes(flow: Dataflow, port: Port) -> set[Purpose]:
    """Tell whether *port*, of whole numbers or booleans, is a mask of attention or an angle."""
    return {purpose for purpose, _ in influences(flow, port)}


# Which values an input may take, read from the operators that consume it.
#
# An index has to lie inside the axis that it selects from; a mask is 0 or 1; Log wants a positive
# number. The input is followed to its consumers through everything that moves values and does not
# change them: reshapes, casts, subgraphs, calls of local functions.


_MOST_DOMAIN_STATES = 20_000
_FEWEST_CLASSES = 3
_KEEPS_NUMBERS = operators.REARRANGING | operators.CASTS | {"Expand", "Tile"}
_WEIGHED = frozenset({"Conv", "Gemm", "MatMul"})
_WANTED = {
    **dict.fromkeys(operators.WANTS_POSITIVE, Purpose.POSITIVE),
    **dict.fromkeys(operators.WANTS_UNIT, Purpose.UNIT),
    "Acosh": Purpose.ABOVE_ONE,
}


@dataclass(frozen=True)
class Bound:
    """An index plus *offset* selects from an axis of size *limit* (a number or a symbol).

    Attributes:
        limit: The size.
        offset: What is added to the index first.
        is_strict: Whether a larger index fails: one may be capped, or be none of the classes of a
            OneHot.
    """

    limit: int | str
    offset: int = 0
    is_strict: bool = True


@dataclass
class Domain:
    """What the consumers of one input say about its values.

    Attributes:
        bounds: Axes from which it selects.
        parts: Sizes of axes that it divides into parts: its values add up to one of them.
        uses: What else it is used for.
    """

    bounds: set[Bound] = field(default_factory=set)
    parts: set[int | str] = field(default_factory=set)
    uses: set[Purpose] = field(default_factory=set)


def input_domain(flow: Dataflow, port: Port) -> Domain:
    """Follow *port* to its consumers and collect what they allow.

    The walk stops after a fixed number of values, so that a huge graph costs no more than a large
    one. Consumers beyond are not asked.
    """
    domain = Domain(uses=purposes(flow, port))

    def look(here: Waypoint, node: Node, slot: int) -> Iterator[Waypoint]:
        _note(domain, here, node, slot)
        is_clipped = node.op_type == "Clip" and slot == 0 and port.dtype in _INDICES
        if slot in operators.VALUES_FROM.get(node.op_type, ()) or is_clipped:
            cast = here.cast or node.op_type == "Cast"
            capped = here.capped or node.op_type in {"Min", "Clip"}
            yield from here.on_to(node.outputs, cast=cast, capped=capped)
        elif node.op_type in {"Add", "Sub"} and not (node.op_type == "Sub" and slot):
            step = numbers_in(here.tensor_of(node, 1 - slot))
            if step is not None and step.size == 1 and step.dtype.kind in "iu":
                added = -int(step.item()) if node.op_type == "Sub" else int(step.item())
                yield from here.on_to(node.outputs, offset=here.offset + added)

    value = flow.graph.values.get(port.name)
    if value is not None:
        follow(Waypoint(value), look, _MOST_DOMAIN_STATES)
    return domain


def _note(domain: Domain, place: Waypoint, node: Node, slot: int) -> None:
    key = (node.op_type, slot)
    if key in operators.PART_SLOTS and not node.domain:
        dims = place.dims_of(node, 0)
        axis = integer(node, "axis", 0, place.calls)
        domain.parts.update(dim for dim in dims[axis : axis + 1 or None] if dim)
    limits = [(limit, place.offset) for limit in _limits(place, node, slot)]
    if (
        key in operators.LENGTHS and not node.domain
    ):  # the largest is the size of the axis that it cuts
        data, switch, axes = operators.LENGTHS[key]
        cut = axes[bool(integer(node, switch, 0, place.calls))]
        limits += [(limit, place.offset - 1) for limit in _axis_size(place, node, data, cut)]
    is_strict = node.op_type not in {"OneHot", "Equal"} and not place.capped
    domain.bounds.update(Bound(limit, offset, is_strict) for limit, offset in limits if limit)
    if key in operators.COUNT_SLOTS:
        domain.uses.add(Purpose.COUNT)
    elif node.op_type in _WANTED:
        domain.uses.add(_WANTED[node.op_type])
    elif node.op_type in operators.WANTS_NUMBER and not place.cast:
        domain.uses.add(Purpose.NUMBER)
    elif node.op_type in _WEIGHED and slot == 0 and place.tensor_of(node, 1) is not None:
        domain.uses.add(Purpose.NUMBER)  # of a mask, an exporter subtracts or multiplies something


def _limits(place: Waypoint, node: Node, slot: int) -> list[Dim]:
    key = (node.op_type, slot)
    if node.op_type == "OneHot" and slot == 0:
        depth = numbers_in(place.tensor_of(node, 1))
        return [] if depth is None else [int(depth.reshape(-1)[0])]
    if node.op_type == "Equal" and (classes := _classes(place.read_by(node, 1 - slot))):
        return [classes]
    if key in operators.TUPLE_SLOTS:
        first = integer(node, "batch_dims", 0, place.calls)
        width = next(reversed(place.dims_of(node, slot)), None)
        last = first + width if isinstance(width, int) else None
        return list(place.dims_of(node, 0)[first:last])
    if key in operators.AXIS_SLOTS:
        return [len(place.dims_of(node, 0))]
    # which slot of a RotaryEmbedding holds the positions depends on the domain
    no_positions = 3 if node.domain == "com.microsoft" else 1
    if key not in operators.INDEXED or (node.op_type == "RotaryEmbedding" and slot == no_positions):
        return []
    data, axis = operators.INDEXED[key]
    if not isinstance(axis, int):
        axis = integer(node, axis[0], axis[1], place.calls)
    return _axis_size(place, node, data, axis)


def _classes(place: Waypoint | None) -> int:
    """Return n if a value is made of 0 to n - 1 and n is 3 or more, else 0.

    To compare an index with all of these is another way to write OneHot, that of JAX.
    """
    for here in place.back(_KEEPS_NUMBERS) if place else ():
        tensor, node = stored(here.value), here.value.producer
        if tensor is not None:
            values = numbers_in(tensor)
            classes = [] if values is None else sorted(set(values.reshape(-1).tolist()))
            counts_up = classes == list(range(len(classes)))
            return len(classes) if len(classes) >= _FEWEST_CLASSES and counts_up else 0
        if node is not None and node.op_type == "Range":
            ends = [numbers_in(here.tensor_of(node, slot)) for slot in range(3)]
            start, limit, step = (None if each is None else each.item() for each in ends)
            return int(limit) if limit is not None and (start, step) == (0, 1) else 0
    return 0


def _axis_size(place: Waypoint, node: Node, slot: int, axis: int) -> list[Dim]:
    dims = place.dims_of(node, slot)
    return [dims[axis]] if -len(dims) <= axis < len(dims) else []
