"""Graphs and function bodies as their nodes see them, and the edits that are to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from dplcli.ir import TensorType
from dplcli.ir.types import dtype_name
from dplcli.onnx_io.attributes import graphs_of
from dplcli.onnx_io.shape_inference import inferred_graph
from dplcli.onnx_io.tensors import UNREADABLE
from dplcli.onnx_io.types import decode_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from onnx import AttributeProto, ModelProto

STANDARD = ("", "ai.onnx")
"""The names of the standard's domain."""

Body: TypeAlias = tuple[int, str]
"""Which body of which node: the node's index, the attribute's name."""


class InferredTypes:
    """The types that onnx infers for the values of the main graph and its bodies.

    Args:
        model: The model, which is not edited before the last question.
    """

    def __init__(self, model: ModelProto) -> None:
        """Infer nothing yet."""
        self._model = model
        self._root: GraphProto | None = None
        self._tables: dict[tuple[Body, ...], dict[str, TensorType]] = {}

    def table(self, path: tuple[Body, ...]) -> dict[str, TensorType]:
        """Return what is known about the values of one graph.

        Args:
            path: The bodies to go through on the way from the main graph.
        """
        if path not in self._tables:
            graph = self._inferred()
            for number, name in path:
                graph = dict(graphs_of(graph.node[number]))[name]
            typed = [
                (info.name, decode_type(info.type))
                for info in (*graph.input, *graph.value_info, *graph.output)
            ]
            self._tables[path] = {name: found for name, found in typed if found is not None}
        return self._tables[path]

    def _inferred(self) -> GraphProto:
        if self._root is None:
            self._root = inferred_graph(self._model)[0] or self._model.graph
        return self._root


class Names:
    """The names in a main graph and its bodies, or in a function; gives out unused ones.

    Args:
        root: The main graph, or the function.
    """

    def __init__(self, root: GraphProto | FunctionProto) -> None:
        """Look at nothing yet."""
        self._root = root
        self._taken: set[str] | None = None
        self._read: set[str] | None = None

    def is_read(self, name: str) -> bool:
        """Tell whether any node or output reads a value of this name."""
        if self._read is None:
            self._read = set(_read_names(self._root))
        return name in self._read

    def new(self, wanted: str) -> str:
        """Return *wanted*, or with a number behind it, for a new value or node."""
        if self._taken is None:
            self._taken = set(_all_names(self._root))
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def _all_names(root: GraphProto | FunctionProto) -> Iterator[str]:
    for scope in all_scopes(root):
        if isinstance(scope, FunctionProto):
            yield from (*scope.input, *scope.output)
        else:
            yield from (info.name for info in (*scope.input, *scope.output))
            yield from (tensor.name for tensor in scope.initializer)
            yield from (sparse.values.name for sparse in scope.sparse_initializer)
        for node in scope.node:
            yield from (node.name, *node.input, *node.output)


def _read_names(root: GraphProto | FunctionProto) -> Iterator[str]:
    for scope in all_scopes(root):
        if isinstance(scope, FunctionProto):
            yield from scope.output
        else:
            yield from (info.name for info in scope.output)
        for node in scope.node:
            yield from node.input


def all_scopes(root: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    """Iterate over a graph or function and every body in it, outer ones first."""
    pending = [root]
    while pending:
        scope = pending.pop()
        yield scope
        for node in scope.node:
            pending += [body for _, body in graphs_of(node)]


def all_nodes(root: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Iterate over the nodes of a graph or function and of every body in it."""
    for scope in all_scopes(root):
        yield from scope.node


class Scope:
    """A graph, or the body of a function, and what is to change in it.

    Args:
        proto: The message, which stays as it is until :meth:`apply`.
        types: Types of the model's values.
        outer: The graph round it, whose values it sees; None for a main graph or a function.
        body: Which body of which node of *outer* it is.

    Attributes:
        proto: As given.
        names: Free names, here and in whatever shares names with it.
        function: The function that it is, or lies in, if any.
        path: The bodies to go through on the way from the main graph or the function.
        where: What to put behind a node's name in messages: "", or " in ...".
        replaced: What to put into the places of nodes, by index.
    """

    def __init__(
        self,
        proto: GraphProto | FunctionProto,
        types: InferredTypes,
        outer: Scope | None = None,
        body: Body = (0, ""),
    ) -> None:
        """Look at nothing yet."""
        self.proto = proto
        self.replaced: dict[int, list[NodeProto]] = {}
        self.function: FunctionProto | None = None
        self.path: tuple[Body, ...] = ()
        self.where: str = ""
        self.names: Names = Names(proto) if outer is None else outer.names
        if outer is not None:
            self.function = outer.function
            self.path = (*outer.path, body)
            self.where = f" in {body[1]} of {node_label(outer.proto.node[body[0]])}{outer.where}"
        elif isinstance(proto, FunctionProto):
            self.function = proto
            self.where = f" in {proto.domain}::{proto.name}"
        self._types = types
        self._outer = outer
        self._values: dict[str, TensorProto | None] | None = None
        self._shared: dict[bytes, str] = {}
        self._initializers: list[TensorProto] = []
        self._first: list[NodeProto] = []

    def type_of(self, name: str) -> TensorType | None:
        """Return what is known about a value that is visible here."""
        values = self._defined()
        if name not in values:
            return self._outer.type_of(name) if self._outer else None
        tensor = values[name]
        if tensor is not None:
            return TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
        return None if self.function else self._types.table(self.path).get(name)

    def value_of(self, name: str) -> NDArray[Any] | None:
        """Return the value of a constant that is visible here, unless it is external data."""
        values = self._defined()
        if name not in values:
            return self._outer.value_of(name) if self._outer else None
        tensor = values[name]
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            array: NDArray[Any] = numpy_helper.to_array(tensor)
        except UNREADABLE:
            return None
        return array

    def _defined(self) -> dict[str, TensorProto | None]:
        """Return what this graph itself defines, with the tensors of constants."""
        if self._values is None:
            self._values = dict(_definitions(self.proto))
        return self._values

    def add_constant(self, tensor: TensorProto, wanted: str) -> str:
        """Return the name of a value that is always *tensor*; equal constants are shared.

        Args:
            tensor: The constant, without a name.
            wanted: What to call it if that is free.
        """
        key = tensor.SerializeToString()
        if key in self._shared:
            return self._shared[key]
        name = self._shared[key] = self.names.new(wanted)
        if isinstance(self.proto, FunctionProto):
            self._first.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            tensor.name = name
            self._initializers.append(tensor)
        return name

    def add_reference(self, attribute: AttributeProto, wanted: str) -> str:
        """Return the name of a value that is what the function's caller gives for an attribute.

        Args:
            attribute: The attribute of the Constant node that is made, which refers to the
                function's.
            wanted: What to call the value if that is free.
        """
        key = attribute.SerializeToString()
        if key not in self._shared:
            name = self._shared[key] = self.names.new(wanted)
            node = NodeProto(op_type="Constant", output=[name])
            node.attribute.append(attribute)
            self._first.append(node)
        return self._shared[key]

    def apply(self) -> None:
        """Edit the message; bodies are edited before what is round them."""
        nodes = self.proto.node
        if self._first or any(len(new) != 1 for new in self.replaced.values()):
            kept = list(nodes)
            del nodes[:]
            nodes.extend(self._first)
            for number, node in enumerate(kept):
                nodes.extend(self.replaced.get(number, [node]))
        else:
            for number, (new,) in self.replaced.items():
                nodes[number].CopyFrom(new)
        if isinstance(self.proto, GraphProto):
            self.proto.initializer.extend(self._initializers)


def node_label(node: NodeProto) -> str:
    """Return how messages call a node: its operator, and its name or its first output."""
    return f"{node.op_type} {node.name or next(filter(None, node.output), '')!r}"


def _definitions(
    proto: GraphProto | FunctionProto,
) -> Iterator[tuple[str, TensorProto | None]]:
    if isinstance(proto, GraphProto):
        yield from ((tensor.name, tensor) for tensor in proto.initializer)
        yield from ((sparse.values.name, None) for sparse in proto.sparse_initializer)
        yield from ((info.name, None) for info in proto.input)
    else:
        yield from ((name, None) for name in proto.input)
    for node in proto.node:
        constant = _constant(node)
        yield from ((name, constant) for name in node.output)


def _constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in STANDARD:
        return None
    attribute = next(iter(node.attribute), None)
    if attribute is None or attribute.name != "value" or attribute.ref_attr_name:
        return None
    tensor: TensorProto = attribute.t
    return tensor
