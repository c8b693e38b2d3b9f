"""What can be read off a model before it runs: its signature, and what its values are for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal

import onnx

from dplcli.analysis.extract import subgraphs
from dplcli.errors import VerificationError
from dplcli.files import path_of
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import (
    AXIS_SLOTS,
    CASTS,
    COUNT_SLOTS,
    INDEXED,
    INFLUENCED,
    LENGTHS,
    MASK_SLOTS,
    PART_SLOTS,
    REARRANGING,
    TUPLE_SLOTS,
    VALUES_FROM,
    WANTS_NUMBER,
    WANTS_POSITIVE,
    WANTS_UNIT,
    is_random,
)
from dplcli.onnx_io import parse_model, read_model_file
from dplcli.onnx_io.convert import load_data
from dplcli.onnx_io.external_data import all_tensors
from dplcli.onnx_io.infer import ONNX_ERRORS, Expansion, infer_shapes, nodes_of
from dplcli.verify.settings import TIMEOUT, Execution, ModelSource

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Container,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    import numpy as np

    from dplcli.verify.settings import Array


# The signature of a model: what it takes and gives, and whether two models agree on it.


Kind = Literal["tensor", "sequence", "optional", "optional sequence", "map", "sparse", "unknown"]
Dim = int | str | None


@dataclass(frozen=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Name of the value.
        kind: What it holds. The other fields describe the tensor inside, if there is one.
        dtype: Element type by number (`onnx.TensorProto.DataType`), 0 if unknown.
        shape: A number, a symbol or None per dimension; None if not even the rank is declared.
    """

    name: str
    kind: Kind
    dtype: int
    shape: tuple[Dim, ...] | None

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


def read_whole(path: Path) -> onnx.ModelProto:
    """Read a model with its weights.

    Raises:
        ModelLoadError: There is no such file, or it does not hold a model.
        InvalidModelError: A name in it is not UTF-8.
        OSError: Its external data cannot be read. onnx raises other errors for that, too.
    """
    return whole_of(ModelSource(path))


def whole_of(source: ModelSource) -> onnx.ModelProto:
    """Read what *source* runs, with its weights, refilled ones too.

    Raises:
        ModelLoadError: There is no such file, or it does not hold a model.
        OSError: Its external data cannot be read. onnx raises other errors for that, too.
    """
    model = model_of(source)
    put_weights(model, source.weights or {})
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            load_data(tensor, source.path.parent)
    return model


def put_weights(model: onnx.ModelProto, values: Mapping[str, Array]) -> None:
    """Give initializers their values, also if *model* says that they lie in a file."""
    for tensor in model.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(onnx.numpy_helper.from_array(values[tensor.name], tensor.name))


def external_places(
    model: onnx.ModelProto, folder: Path, held: Container[str] = ()
) -> list[tuple[onnx.TensorProto, Hashable]]:
    """Return a model's tensors with external data, and which part of which file each of them is.

    Args:
        model: The model.
        folder: The folder of its file.
        held: Tensors that are in memory, whatever the model says.

    Raises:
        OSError: A file cannot be looked at.
        ValueError: It has no possible name.
    """
    files: dict[str, tuple[int, int]] = {}
    places: list[tuple[onnx.TensorProto, Hashable]] = []
    for tensor in all_tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL or tensor.name in held:
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


def load_unshared(*models: tuple[onnx.ModelProto, Path, Container[str]]) -> list[onnx.TensorProto]:
    """Read the external data of two models, but for what both have in the same place of one file.

    Args:
        models: Each model, its folder, and its tensors that are in memory.

    Returns:
        The tensors that were read.

    Raises:
        OSError: A file cannot be read.
        ValueError: It is not what a tensor needs, or has no possible name.
    """
    found = [external_places(*model) for model in models]
    shared = set.intersection(*({place for _, place in places} for places in found))
    read = []
    for (_, folder, _), places in zip(models, found, strict=True):
        for tensor, place in places:
            if place not in shared:
                load_data(tensor, folder)
                read.append(tensor)
    return read


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
        hint="let it try for as long as you like to wait: --timeout 600",
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
    if field == "tensor_type":
        tensor = inner.tensor_type
        shape = dims_of(tensor.shape) if tensor.HasField("shape") else None
        return Port(info.name, kind, tensor.elem_type, shape)
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


def dims_of(shape: onnx.TensorShapeProto) -> tuple[Dim, ...]:
    """Return each dimension as a number, a symbol or None; a negative number says nothing."""
    return tuple(
        (dim.dim_value if dim.dim_value >= 0 else None)
        if dim.HasField("dim_value")
        else dim.dim_param or None
        for dim in shape.dim
    )


def signature_differences(original: onnx.GraphProto, candidate: onnx.GraphProto) -> list[str]:
    """Name the differences of two signatures: in names, order, types and ranks."""
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
#
# The names of nested subgraphs and of the graph around them share one table. A name that is
# declared twice is followed twice: that can add consumers, but never lose one.


Dims = tuple[Dim, ...]
FunctionId = tuple[str, str]

_INDICES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_KEEPS_SHAPE = CASTS | {"DequantizeLinear", "Dropout", "Identity"}
_LARGE = 1024
_LARGE_WHOLE = 1 << 16  # tables of classes, which say what an index may be; weights are floats


class Body:
    """What a graph or function, with the subgraphs inside it, says about its names.

    Attributes:
        consumers: The nodes that read a name, and in which slot.
        producers: The node that makes a name.
        constants: The tensor behind a name, where there is one.
        dims: Declared or inferred dimensions.
        types: Declared or inferred element types, by name.
        exits: The names outside of a subgraph that a name becomes.
        outputs: The outputs of the function that a name becomes, by number.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto], outputs: Iterable[str] = ()) -> None:
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self.producers: dict[str, onnx.NodeProto] = {}
        self.constants: dict[str, onnx.TensorProto] = {}
        self.dims: dict[str, Dims] = {}
        self.types: dict[str, str] = {}
        self.exits: dict[str, list[str]] = defaultdict(list)
        self.outputs: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(outputs):
            self.outputs[name].append(index)
        pending = [nodes]
        while pending:
            for node in pending.pop():
                self._add_node(node)
                for graph in subgraphs(node):
                    self._add_exits(node, graph)
                    self.add_declarations(graph)
                    pending.append(graph.node)

    def add_declarations(self, graph: onnx.GraphProto) -> None:
        """Take over the initializers and the declared types of *graph*."""
        for info in (*graph.input, *graph.value_info, *graph.output):
            self.types[info.name] = dtype_name(info.type.tensor_type.elem_type)
            if info.type.tensor_type.HasField("shape"):
                self.dims[info.name] = dims_of(info.type.tensor_type.shape)
        for tensor in graph.initializer:
            self.constants[tensor.name] = tensor
            self.dims[tensor.name] = tuple(tensor.dims)

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that have an output, each once, nested ones included."""
        for name, node in self.producers.items():
            if name == next(filter(None, node.output)):
                yield node

    def _add_node(self, node: onnx.NodeProto) -> None:
        for slot, name in enumerate(node.input):
            if name:
                self.consumers[name].append((node, slot))
        self.producers.update((name, node) for name in node.output if name)
        if node.op_type == "Constant" and (value := attribute(node, "value")) is not None:
            self.constants[node.output[0]] = value.t
            self.dims[node.output[0]] = tuple(value.t.dims)

    def _add_exits(self, node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        skipped = 1 if node.op_type == "Loop" else 0
        for info, outer in zip(graph.output[skipped:], node.output, strict=False):
            self.exits[info.name].append(outer)


@dataclass(eq=False)
class Frame:
    """A body at one place: that of the main graph, or of one call that a walk enters.

    Attributes:
        body: The body.
        call: What its formal inputs stand for; None in the main graph.
        opened: The frames of the calls in it, by node.
    """

    body: Body
    call: Call | None = None
    opened: dict[int, Frame] = field(default_factory=dict)

    def back(self, name: str, through: Container[str] = ()) -> Iterator[tuple[Frame, str]]:
        """Yield where *name* comes from: behind operators *through* which it goes, out of calls."""
        frame = self
        while name:
            yield frame, name
            node = frame.body.producers.get(name)
            if node is not None and node.op_type in through:
                name = node.input[0]
            elif node is None and frame.call is not None:
                name, frame = frame.call.actuals.get(name, ""), frame.call.frame
            else:
                return

    def dims(self, name: str) -> Dims | None:
        """Return the dimensions of *name* where they are known, here or at the caller."""
        known = (frame.body.dims.get(each) for frame, each in self.back(name, _KEEPS_SHAPE))
        return next((dims for dims in known if dims is not None), None)

    def constant(self, name: str) -> onnx.TensorProto | None:
        """Return the tensor behind *name*, here or at the caller; None if it is computed."""
        known = (frame.body.constants.get(each) for frame, each in self.back(name))
        return next((tensor for tensor in known if tensor is not None), None)

    def integer(self, node: onnx.NodeProto, name: str, default: int) -> int:
        """Return an integer attribute of *node*, through references to the caller's."""
        frame: Frame | None = self
        found = attribute(node, name)
        while found is not None and found.ref_attr_name and frame is not None and frame.call:
            found = attribute(frame.call.node, found.ref_attr_name)
            frame = frame.call.frame
        return default if found is None or found.ref_attr_name else found.i


@dataclass(frozen=True)
class Call:
    """One call of a local function: the node, where it stands, and formal to actual names."""

    node: onnx.NodeProto
    frame: Frame
    actuals: Mapping[str, str]


class Dataflow:
    """The main graph and the local functions of one model, indexed when first walked."""

    def __init__(self, model: onnx.ModelProto, *, infers: bool = True) -> None:
        """Index the main graph; *model* itself loses its large weights, if shapes are inferred."""
        model = inferred(model) if infers else model
        body = Body(model.graph.node)
        body.add_declarations(model.graph)
        self.model = model
        self.main = Frame(body)
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._bodies: dict[FunctionId, Body] = {}

    def enter(self, frame: Frame, node: onnx.NodeProto) -> tuple[Frame, tuple[str, ...]] | None:
        """Return the frame inside a call and its formal inputs; None if *node* is no call."""
        key = (node.domain, node.op_type)
        function = self._functions.get(key)
        if function is None:
            return None
        if key not in self._bodies:
            self._bodies[key] = Body(function.node, function.output)
        formals = tuple(function.input)
        if id(node) not in frame.opened:
            actuals = dict(zip(formals, node.input, strict=False))
            frame.opened[id(node)] = Frame(self._bodies[key], Call(node, frame, actuals))
        return frame.opened[id(node)], formals


@dataclass(frozen=True)
class Waypoint:
    """A value on the way from an input to its consumers.

    Attributes:
        frame: Where it is.
        name: Its name; "" for an omitted one.
        offset: What was added to it since the input.
        cast: Whether it changed its type since the input.
        mixed: Whether a matrix product lies between.
    """

    frame: Frame
    name: str
    offset: int = 0
    cast: bool = False
    mixed: bool = False


def follow(
    flow: Dataflow,
    name: str,
    look: Callable[[Waypoint, onnx.NodeProto, int], Iterable[Waypoint]],
    most: int,
) -> None:
    """Follow a graph input through subgraphs and calls; stop after so many values.

    Args:
        flow: The model.
        name: The input.
        look: Looks at a node that reads a value in some slot, and says which values the walk goes
            on to.
        most: How many values to know of at the most, however large the graph.
    """
    start = Waypoint(flow.main, name)
    pending, seen = [start], {start}
    while pending and len(seen) < most:
        here = pending.pop()
        reached = [
            replace(here, frame=frame, name=n) for frame, n in leaving(here.frame, here.name)
        ]
        for node, slot in here.frame.body.consumers.get(here.name, ()):
            if (entered := flow.enter(here.frame, node)) is not None:
                frame, formals = entered
                reached += [replace(here, frame=frame, name=n) for n in formals[slot : slot + 1]]
            else:
                reached += [replace(here, name=n) for n in entering(node, slot)]
                reached += look(here, node, slot)
        for place in reached:
            if place.name and place not in seen:
                seen.add(place)
                pending.append(place)


def leaving(frame: Frame, name: str) -> Iterator[tuple[Frame, str]]:
    """Yield the values outside of a subgraph or function that *name* becomes."""
    for outer in frame.body.exits.get(name, ()):
        yield frame, outer
    if frame.call is None:
        return
    for index in frame.body.outputs.get(name, ()):
        if index < len(frame.call.node.output):
            yield frame.call.frame, frame.call.node.output[index]


def entering(node: onnx.NodeProto, slot: int) -> Iterator[str]:
    """Yield the subgraph inputs that stand for input *slot* of a Loop or Scan."""
    for graph in subgraphs(node):
        if node.op_type == "Scan" or slot > 1:
            yield from (info.name for info in graph.input[slot : slot + 1])


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Return an attribute by name."""
    return next((item for item in node.attribute if item.name == name), None)


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return *model* without its large weights, with the shapes that onnx infers.

    *model* itself loses its large weights, so that they are never held twice. If inference fails,
    there are only the shapes that the model declares.
    """
    for tensor in model.graph.initializer:
        most = _LARGE_WHOLE if tensor.data_type in _INDICES else _LARGE
        for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
            if len(getattr(tensor, name)) > most:
                tensor.ClearField(name)
    try:
        return infer_shapes(model)[0]
    except ONNX_ERRORS:
        return model


def small_values(
    tensor: onnx.TensorProto,
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
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


def purposes(flow: Dataflow, port: Port) -> set[Purpose]:
    """Tell whether *port*, of whole numbers or booleans, is a mask of attention or an angle."""
    found: set[Purpose] = set()

    def look(here: Waypoint, node: onnx.NodeProto, slot: int) -> Iterator[Waypoint]:
        if (node.op_type, slot) in MASK_SLOTS and not here.mixed:
            found.add(Purpose.MASK)
        elif node.op_type in _TURNS:
            found.add(Purpose.ANGLE)
        if node.op_type in _MIXES or slot in INFLUENCED.get(node.op_type, ()):
            mixed = here.mixed or node.op_type in _MIXES
            yield from (replace(here, name=name, mixed=mixed) for name in node.output)

    if port.dtype in _WHOLE:
        follow(flow, port.name, look, _MOST_PURPOSE_STATES)
    return found


# Which values an input may take, read from the operators that consume it.
#
# An index has to lie inside the axis that it selects from; a mask is 0 or 1; Log wants a positive
# number. The input is followed to its consumers through everything that moves values and does not
# change them: reshapes, casts, subgraphs, calls of local functions.


_MOST_DOMAIN_STATES = 20_000
_FEWEST_CLASSES = 3
_KEEPS_NUMBERS = REARRANGING | CASTS | {"Expand", "Tile"}
_WEIGHED = frozenset({"Conv", "Gemm", "MatMul"})
_WANTED = {
    **dict.fromkeys(WANTS_POSITIVE, Purpose.POSITIVE),
    **dict.fromkeys(WANTS_UNIT, Purpose.UNIT),
    "Acosh": Purpose.ABOVE_ONE,
}


@dataclass(frozen=True)
class Bound:
    """An index plus *offset* selects from an axis of size *limit* (a number or a symbol)."""

    limit: int | str
    offset: int = 0


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

    def look(here: Waypoint, node: onnx.NodeProto, slot: int) -> Iterator[Waypoint]:
        _note(domain, here, node, slot)
        is_clipped = node.op_type == "Clip" and slot == 0 and port.dtype in _INDICES
        if slot in VALUES_FROM.get(node.op_type, ()) or is_clipped:
            cast = here.cast or node.op_type == "Cast"
            yield from (replace(here, name=name, cast=cast) for name in node.output)
        elif (step := _constant_step(here.frame, node, slot)) is not None:
            yield replace(here, name=node.output[0], offset=here.offset + step)

    follow(flow, port.name, look, _MOST_DOMAIN_STATES)
    return domain


def _note(domain: Domain, place: Waypoint, node: onnx.NodeProto, slot: int) -> None:
    key = (node.op_type, slot)
    if key in PART_SLOTS and not node.domain:
        dims = _data_dims(place.frame, node, 0)
        axis = place.frame.integer(node, "axis", 0)
        domain.parts.update(dim for dim in dims[axis : axis + 1 or None] if dim)
    limits = [(limit, place.offset) for limit in _limits(place.frame, node, slot)]
    limits += [(limit, place.offset - 1) for limit in _longest(place.frame, node, slot)]
    domain.bounds.update(Bound(limit, offset) for limit, offset in limits if limit)
    if key in COUNT_SLOTS:
        domain.uses.add(Purpose.COUNT)
    elif node.op_type in _WANTED:
        domain.uses.add(_WANTED[node.op_type])
    elif node.op_type in WANTS_NUMBER and not place.cast:
        domain.uses.add(Purpose.NUMBER)
    elif node.op_type in _WEIGHED and slot == 0 and place.frame.constant(node.input[1]) is not None:
        domain.uses.add(Purpose.NUMBER)  # of a mask, an exporter subtracts or multiplies something


def _limits(frame: Frame, node: onnx.NodeProto, slot: int) -> list[Dim]:
    key = (node.op_type, slot)
    if node.op_type == "OneHot" and slot == 0:
        depth = frame.constant(node.input[1])
        values = None if depth is None else small_values(depth)
        return [] if values is None else [int(values.reshape(-1)[0])]
    if node.op_type == "Equal" and (classes := _classes(frame, node.input[1 - slot])):
        return [classes]
    if key in TUPLE_SLOTS:
        first = frame.integer(node, "batch_dims", 0)
        width = next(reversed(_data_dims(frame, node, slot)), None)
        last = first + width if isinstance(width, int) else None
        return list(_data_dims(frame, node, 0)[first:last])
    if key in AXIS_SLOTS:
        return [len(_data_dims(frame, node, 0))]
    if key not in INDEXED or _is_other_rotation(node, slot):
        return []
    data, axis = INDEXED[key]
    if not isinstance(axis, int):
        axis = frame.integer(node, axis[0], axis[1])
    return _axis_size(frame, node, data, axis)


def _classes(frame: Frame, name: str) -> int:
    """Return n if *name* is made of 0 to n - 1 and n is 3 or more, else 0.

    To compare an index with all of these is another way to write OneHot, that of JAX.
    """
    for place, current in frame.back(name, _KEEPS_NUMBERS):
        tensor, node = place.body.constants.get(current), place.body.producers.get(current)
        if tensor is not None:
            values = small_values(tensor)
            found = [] if values is None else sorted(set(values.reshape(-1).tolist()))
            counts_up = found == list(range(len(found)))
            return len(found) if len(found) >= _FEWEST_CLASSES and counts_up else 0
        if node is not None and node.op_type == "Range":
            return _range_size(place, node)
    return 0


def _range_size(frame: Frame, node: onnx.NodeProto) -> int:
    """Return n if a Range goes from 0 to n - 1 in steps of 1, all of them constants, else 0."""
    tensors = [frame.constant(name) for name in node.input]
    start, limit, step = (None if t is None else small_values(t) for t in tensors)
    if start is None or limit is None or step is None or (start.item(), step.item()) != (0, 1):
        return 0
    return int(limit.item())


def _longest(frame: Frame, node: onnx.NodeProto, slot: int) -> list[Dim]:
    """Return the largest value of a length in input *slot*: the size of the axis that it cuts."""
    if (node.op_type, slot) not in LENGTHS or node.domain:
        return []
    data, switch, axes = LENGTHS[node.op_type, slot]
    return _axis_size(frame, node, data, axes[bool(frame.integer(node, switch, 0))])


def _axis_size(frame: Frame, node: onnx.NodeProto, slot: int, axis: int) -> list[Dim]:
    dims = _data_dims(frame, node, slot)
    return [dims[axis]] if -len(dims) <= axis < len(dims) else []


def _is_other_rotation(node: onnx.NodeProto, slot: int) -> bool:
    """Tell whether this slot of a RotaryEmbedding holds no positions; it depends on the domain."""
    own = node.domain == "com.microsoft"
    return node.op_type == "RotaryEmbedding" and slot == (3 if own else 1)


def _data_dims(frame: Frame, node: onnx.NodeProto, slot: int) -> tuple[Dim, ...]:
    return (frame.dims(node.input[slot]) or ()) if slot < len(node.input) else ()


def _constant_step(frame: Frame, node: onnx.NodeProto, slot: int) -> int | None:
    """Return what an Add or Sub of one constant integer adds to its input *slot*."""
    if node.op_type not in {"Add", "Sub"} or (node.op_type == "Sub" and slot == 1):
        return None
    other = frame.constant(node.input[1 - slot])
    values = None if other is None else small_values(other)
    if values is None or values.size != 1 or values.dtype.kind not in "iu":
        return None
    step = int(values.reshape(-1)[0])
    return -step if node.op_type == "Sub" else step
