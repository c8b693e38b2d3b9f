"""Read an ONNX file into the IR."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from onnx import ModelProto

from dplcli.errors import InvalidModelError
from dplcli.ir import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    TensorType,
    TypeStatement,
    Value,
)
from dplcli.ir.node import NO_ATTRIBUTES
from dplcli.ir.operators import schema_of
from dplcli.ir.types import dtype_name
from dplcli.ir.value import record_uses
from dplcli.onnx_io import wire
from dplcli.onnx_io.attributes import decode_attribute, graphs_of
from dplcli.onnx_io.codec import ProtoCodec
from dplcli.onnx_io.model_file import parse_model, read_model_file
from dplcli.onnx_io.sorting import sort_nodes
from dplcli.onnx_io.tensors import Home
from dplcli.onnx_io.types import decode_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
    from pathlib import Path

    from onnx import (
        FunctionProto,
        GraphProto,
        NodeProto,
        OperatorSetIdProto,
        TensorProto,
        ValueInfoProto,
    )

    RepeatedNodes = MutableSequence[NodeProto]

Scope = dict[str, Value]

_EXTERNAL_MARK = b"location"
"""The key that every reference to external data has; where it is missing nobody needs to look."""

_SLICE = 512
"""How many messages to hold at a time where they are looked at once."""


def load_model(path: Path, *, opset: int | None = None) -> Model:
    """Read the model at *path*; external data stays where it is, unread.

    Args:
        path: The file.
        opset: The opset to raise the model to before anything else is done with it.

    Raises:
        ModelLoadError: The file is missing, empty, truncated or not ONNX.
        InvalidModelError: Its graph contradicts itself.
        OpsetError: It cannot be raised to *opset*.
        UsageError: There is no such opset, or the model's is newer.
    """
    data = read_model_file(path)
    proto, notes = parse_model(data, path)
    model = model_from_proto(proto, path.parent, str(path))
    model.path = path
    if opset is not None:
        model = _raised(model, proto, opset, path)
        model.path = path
    model.notes = [*notes, *model.notes]
    model.may_have_external_data = _EXTERNAL_MARK in data
    return model


def _raised(model: Model, proto: ModelProto, opset: int, path: Path) -> Model:
    """Raise *proto*, over which *model* was built and so found to be whole, and build it anew."""
    from dplcli.onnx_io.opset_raising import raise_opset  # noqa: PLC0415  # rarely needed

    check_imports(model)
    with paused_gc():
        result = raise_opset(proto, opset, str(path))
    if not result.is_changed:
        return model
    raised = model_from_proto(proto, path.parent, str(path))
    raised.notes = [*model.notes, f"{path}: {result}"]
    raised.graph.modified = True
    return raised


@contextmanager
def paused_gc() -> Iterator[None]:
    """Suspend cyclic garbage collection while many long-lived objects are made.

    At 100,000 nodes the collector would otherwise walk the growing graph again and again, which
    costs as much as building it. Afterwards what was made counts as old, unwalked.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def model_from_proto(proto: ModelProto, folder: Path, label: str) -> Model:
    """Build the IR over *proto*, which the model owns from now on.

    Args:
        proto: A parsed model, without external data.
        folder: Where its external data lies.
        label: What to call it in messages.

    Raises:
        InvalidModelError: Its graph contradicts itself.
    """
    model = Model(ProtoCodec(Home(folder, label)))
    model.source = proto
    model.ir_version = proto.ir_version
    reader = _GraphReader(model, label)
    model.opset_imports.update(reader.read_imports(proto.opset_import))
    with paused_gc():
        reader.read_main(proto.graph)
        for function in proto.functions:
            reader.read_function(function)
    return model


def built_again(model: Model) -> Model:
    """Build a loaded model anew, as it was before any pass edited it."""
    source, path = model.source, model.path
    assert isinstance(source, ModelProto)  # noqa: S101  # the loader sets nothing else
    assert path is not None  # noqa: S101  # nor leaves it out
    return model_from_proto(source, path.parent, str(path))


def check_imports(model: Model) -> None:
    """Refuse to change a model that imports a domain in two versions.

    What its nodes mean depends on who reads it: of `""` and `ai.onnx` onnxruntime takes what comes
    last, onnx what `""` says. So no edit of it is right for all, and none is checked by both.

    Raises:
        InvalidModelError: It does.
    """
    if model.conflicts:
        raise InvalidModelError(
            f"{model.path or 'the model'}: {model.conflicts[0]}",
            hint="tools disagree on what its nodes mean; delete the import that is wrong from "
            "opset_import",
        )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _UndefinedError(Exception):
    """A node reads a name that nothing before it, in its graph or round it, defines."""

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name)
        self.name = name
        self.node = node


class _GraphReader:
    """Builds the graphs of one model.

    Nodes are linked in a single pass, which needs them in topological order. A graph that turns
    out not to be (files of some converters are not) is read once more, sorted, and noted. What
    repeats is taken as a slice, which costs half of what protobuf takes to iterate.
    """

    def __init__(self, model: Model, label: str) -> None:
        self.model = model
        self.label = label
        self.sorting = False
        self.with_bodies: dict[str, bool] = {}
        self.op_types: dict[str, str] = {}
        self.types: dict[tuple[int, ...], TensorType] = {}
        self.statements: dict[bytes, TypeStatement] = {}

    def read_imports(self, stated: Iterable[OperatorSetIdProto], where: str = "") -> dict[str, int]:
        """Read which version of each domain is in force; note what is imported in two.

        The last one counts, as for onnxruntime.
        """
        listed: dict[str, list[OperatorSetIdProto]] = {}
        for opset in stated:
            listed.setdefault(_domain(opset.domain), []).append(opset)
        for domain, opsets in listed.items():
            if len({opset.version for opset in opsets}) > 1:
                what = f"the domain {domain!r}" if domain else "the default domain"
                versions = [f"{opset.domain!r} {opset.version}" for opset in opsets]
                times = "twice" if len(opsets) == 2 else f"{len(opsets)} times"  # noqa: PLR2004
                conflict = (
                    f"{where}imports {what} {times}: {', '.join(versions[:-1])} and {versions[-1]}"
                )
                self.model.conflicts.append(conflict)
                self.model.notes.append(
                    f"{self.label}: {conflict}; read as version {opsets[-1].version}, which "
                    "onnxruntime takes; other tools may take another"
                )
        return {domain: opsets[-1].version for domain, opsets in listed.items()}

    def read_main(self, proto: GraphProto) -> None:
        graph = self.model.graph
        self._read_sorted_if_needed(graph, lambda: self._read_graph(graph, proto, []))

    def read_function(self, proto: FunctionProto) -> None:
        opsets = self.read_imports(
            proto.opset_import, f"the function {proto.domain}::{proto.name} "
        )
        body = Graph(self.model, opsets or self.model.opset_imports)
        function = Function(proto.domain, proto.name, body)
        function.overload = proto.overload
        function.attributes = tuple(proto.attribute)
        if proto.attribute_proto:
            function.defaults = self._defaults(proto)
        function.metadata = {entry.key: entry.value for entry in proto.metadata_props}
        function.source = proto
        if function.key in self.model.functions:
            raise self._invalid(body, f"two functions are named {proto.domain}::{proto.name}")
        self._read_sorted_if_needed(body, lambda: self._read_function_body(body, proto))
        self.model.functions[function.key] = function

    def _defaults(self, proto: FunctionProto) -> dict[str, Attribute]:
        home = self.model.codec.home if isinstance(self.model.codec, ProtoCodec) else None
        return {item.name: decode_attribute(item, {}, home) for item in proto.attribute_proto}

    def _read_sorted_if_needed(self, graph: Graph, read: Callable[[], None]) -> None:
        self.sorting = False
        try:
            read()
        except _UndefinedError:
            self.sorting = True
            graph.clear()
            try:
                read()
            except _UndefinedError as error:
                raise self._invalid(
                    graph,
                    f"{error.node.op_type} {error.node.label!r} reads {error.name!r}, "
                    "which nothing defines",
                ) from None
            self.model.notes.append(
                f"{self.label}: the nodes were not in topological order; sorted"
            )

    def _read_function_body(self, body: Graph, proto: FunctionProto) -> None:
        body.name = proto.name
        body.source = proto
        for name in proto.input:
            if name in body.values:
                raise self._invalid(body, f"two inputs are named {name!r}")
            value = Value(name, body)
            value.is_graph_input = True
            body.values[name] = value
            body.inputs.append(value)
        self._read_body(body, proto.node, proto.output, [])
        self._declare(body.values, proto.value_info)

    def _read_graph(self, graph: Graph, proto: GraphProto, scopes: Sequence[Scope]) -> None:
        graph.name = proto.name
        graph.source = proto
        values = graph.values
        for info in proto.input:
            if info.name in values:
                raise self._invalid(graph, f"two inputs are named {info.name!r}")
            value = Value(info.name, graph)
            value.is_graph_input = True
            value.type_source = info
            values[info.name] = value
            graph.inputs.append(value)
        for tensor in proto.initializer[:]:
            constant = self._store(graph, tensor.name, tensor)
            if constant.type_source is None:
                constant.type_source = self._type_of(tensor)
        for sparse in proto.sparse_initializer:
            self._store(graph, sparse.values.name, sparse)
        self._read_body(graph, proto.node, [info.name for info in proto.output], scopes)
        self._declare(values, proto.value_info)
        for info in proto.output:
            declared = values.get(info.name)
            if declared is not None and declared.type_source is None:
                declared.type_source = info

    def _store(self, graph: Graph, name: str, source: object) -> Value:
        """Let the value *name* be an initializer."""
        constant = graph.values.get(name)
        if constant is None:
            constant = graph.values[name] = Value(name, graph)
        elif constant.is_initializer:
            raise self._invalid(graph, f"two initializers are named {name!r}")
        constant.set_initializer(source)
        return constant

    def _type_of(self, tensor: TensorProto) -> TensorType:
        """Return the type of a tensor; most tensors of a model share a few."""
        key = (tensor.data_type, *tensor.dims[:])
        known = self.types.get(key)
        if known is None:
            known = self.types[key] = TensorType(dtype_name(key[0]), key[1:])
        return known

    def _declare(self, values: Scope, infos: MutableSequence[ValueInfoProto]) -> None:
        """Note what the file states of values beside the interface of their graph."""
        statements = self.statements
        slices = (infos[i : i + _SLICE] for i in range(0, len(infos), _SLICE))
        for info in chain.from_iterable(slices):
            name = info.name
            declared = values.get(name)
            if declared is None:
                continue
            known = declared.type_source
            if known is not None and type(known) is not TensorType:
                continue
            encoded = info.SerializeToString()[wire.text_field_size(name) :]
            statement = statements.get(encoded)
            if statement is None:
                statement = statements[encoded] = TypeStatement(encoded, decode_statement)
            declared.type_source = statement

    def _read_body(
        self,
        graph: Graph,
        protos: RepeatedNodes,
        outputs: Iterable[str],
        scopes: Sequence[Scope],
    ) -> None:
        if self.sorting:
            self._sort(graph, protos)
        inner_scopes = [*scopes, graph.values]
        for proto in protos[:]:
            self._read_node(graph, proto, inner_scopes)
        for name in outputs:
            value = _find(name, inner_scopes)
            if value is None:
                raise self._invalid(graph, f"its output {name!r} is never made")
            graph.add_output(value)

    def _read_node(self, graph: Graph, proto: NodeProto, scopes: Sequence[Scope]) -> None:
        domain, op_type = proto.domain, proto.op_type
        op_type = self.op_types.setdefault(op_type, op_type)
        node = Node(graph, op_type, domain and _domain(domain), proto.name, proto)
        if domain:
            node.overload = proto.overload
        values = graph.values
        inputs: list[Value | None] = []
        for name in proto.input[:]:
            value = values.get(name) if name else None
            if value is None and name:
                value = _find(name, scopes)
                if value is None:
                    raise _UndefinedError(name, node)
            inputs.append(value)
        node.inputs = tuple(inputs)
        record_uses(node)
        if not proto.attribute:
            node.attributes = NO_ATTRIBUTES
        elif self._may_have_bodies(node):
            self._read_bodies(node, proto, scopes)
        outputs: list[Value | None] = []
        for name in proto.output[:]:
            if name in values:
                raise self._invalid(
                    graph, f"{name!r} is made twice, again by {node.op_type} {node.label!r}"
                )
            output = Value(name, graph, node, len(outputs)) if name else None
            if output is not None:
                values[name] = output
            outputs.append(output)
        node.outputs = tuple(outputs)
        graph.append(node)

    def _may_have_bodies(self, node: Node) -> bool:
        """Tell whether a node can have graph attributes; unknown operators can."""
        op_type = node.op_type
        known = None if node.domain else self.with_bodies.get(op_type)
        if known is None:
            schema = schema_of(node)
            kinds = () if schema is None else schema.attributes.values()
            known = schema is None or "graph" in kinds or "graphs" in kinds
            if not node.domain:
                self.with_bodies[op_type] = known
        return known

    def _read_bodies(self, node: Node, proto: NodeProto, scopes: Sequence[Scope]) -> None:
        bodies = {}
        for name, source in graphs_of(proto):
            body = bodies[name] = Graph(self.model, node.graph.opset_imports, owner=node)
            self._read_graph(body, source, scopes)
        if bodies:
            node.subgraphs = bodies

    def _sort(self, graph: Graph, protos: RepeatedNodes) -> None:
        """Bring the messages themselves into topological order."""
        before = list(protos)
        ordered = sort_nodes(before)
        if len(ordered) < len(before):
            kept = set(map(id, ordered))
            culprit = next(proto for proto in before if id(proto) not in kept)
            label = culprit.name or next(iter(culprit.output), culprit.op_type)
            raise self._invalid(graph, f"node {label!r} lies on or behind a cycle")
        if ordered != before:
            del protos[:]
            protos.extend(ordered)
            graph.modified = True

    def _invalid(self, graph: Graph, what: str) -> InvalidModelError:
        where = f"graph {graph.name!r}: " if graph.name else ""
        return InvalidModelError(f"{self.label}: invalid model: {where}{what}")


def _find(name: str, scopes: Sequence[Scope]) -> Value | None:
    for scope in reversed(scopes):
        value = scope.get(name)
        if value is not None:
            return value
    return None
