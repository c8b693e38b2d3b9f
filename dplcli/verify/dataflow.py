"""Where a value goes inside a model: through subgraphs and through calls of local functions.

Names of nested subgraphs are looked up together with those of the graph around them. A name that
is declared twice is therefore followed twice, which can only add consumers, never lose one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import onnx

from dplcli.onnx_io.bounded_inference import INFERENCE_ERRORS, infer_shapes
from dplcli.verify.interface import Dim, dims_of

Dims = tuple[Dim, ...]
FunctionId = tuple[str, str]

_KEEPS_SHAPE = frozenset({"Identity", "Cast", "CastLike", "DequantizeLinear", "Dropout"})
_LARGE = 1024


class Body:
    """What the nodes of a graph or function, and of the subgraphs inside it, say about names.

    Attributes:
        consumers: The nodes that read a name, and in which slot.
        producers: The node that makes a name.
        constants: The tensor behind a name, where there is one.
        dims: Declared or inferred dimensions.
        exits: Names outside a subgraph (or of a called function's outputs) that a name becomes.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto], outputs: Iterable[str] = ()) -> None:
        """Index *nodes* and everything nested in them."""
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self.producers: dict[str, onnx.NodeProto] = {}
        self.constants: dict[str, onnx.TensorProto] = {}
        self.dims: dict[str, Dims] = {}
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
        """Take over the initializers and the declared shapes of *graph*."""
        for info in (*graph.input, *graph.value_info, *graph.output):
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


class Frame:
    """A body with what its formal inputs stand for: one per call that a walk enters."""

    def __init__(self, body: Body, call: "Call | None" = None) -> None:
        """Open *body* at the main graph, or for one *call*."""
        self.body = body
        self.call = call
        self.opened: dict[int, Frame] = {}

    def dims(self, name: str) -> Dims | None:
        """Return the dimensions of *name* where they are known, here or at the caller."""
        frame: Frame | None = self
        while frame is not None:
            if (known := frame.body.dims.get(name)) is not None:
                return known
            node = frame.body.producers.get(name)
            if node is not None and node.op_type not in _KEEPS_SHAPE:
                return None
            if node is not None:
                name = node.input[0]
            elif frame.call is None or (name := frame.call.actuals.get(name, "")) == "":
                return None
            else:
                frame = frame.call.frame
        return None

    def constant(self, name: str) -> onnx.TensorProto | None:
        """Return the tensor behind *name*, here or at the caller; None if it is computed."""
        frame: Frame | None = self
        while frame is not None:
            if (found := frame.body.constants.get(name)) is not None:
                return found
            if frame.call is None:
                return None
            name, frame = frame.call.actuals.get(name, ""), frame.call.frame
        return None

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

    def __init__(self, model: onnx.ModelProto) -> None:
        """Index the main graph, with inferred shapes; *model* loses its large weights."""
        model = inferred(model)
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


class Place(Protocol):
    """Where a walk stands: a value, and what is known of the way to it; hashable."""

    @property
    def name(self) -> str:
        """The value; "" for an omitted one."""


P = TypeVar("P", bound=Place)


def walk(start: P, onward: Callable[[P], Iterable[P]], most: int) -> None:
    """Visit each place that can be reached once; stop after so many, however large the graph.

    Args:
        start: Where to begin.
        onward: Looks at a place, and says where one gets from it.
        most: How many places to know of at the most.
    """
    pending, seen = [start], {start}
    while pending and len(seen) < most:
        for place in onward(pending.pop()):
            if place.name and place not in seen:
                seen.add(place)
                pending.append(place)


def leaving(frame: Frame, name: str) -> Iterator[tuple[Frame, str]]:
    """Yield the values that *name* becomes outside of its subgraph or function."""
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


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that *node* holds as attributes."""
    for item in node.attribute:
        if item.type == onnx.AttributeProto.GRAPH:
            yield item.g
        yield from item.graphs


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Return an attribute by name."""
    return next((item for item in node.attribute if item.name == name), None)


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return *model* without its large weights and with inferred shapes, as far as onnx can.

    The argument loses its large weights too, so that a model is never held twice. Where inference
    fails, the model's own declarations have to do.
    """
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > _LARGE:
            tensor.ClearField("raw_data")
        for field in ("float_data", "int32_data", "int64_data", "double_data"):
            if len(getattr(tensor, field)) > _LARGE:
                tensor.ClearField(field)
    try:
        return infer_shapes(model)[0]
    except INFERENCE_ERRORS:
        return model


def small_values(
    tensor: onnx.TensorProto,
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    """Return the values of a tensor that holds them itself and is not empty, else None."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or 0 in tensor.dims:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return None
