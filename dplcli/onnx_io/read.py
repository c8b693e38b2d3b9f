"""Read an ONNX file into the IR, or build a model from ONNX text."""

from __future__ import annotations

import gc
import re
import stat
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx.shape_inference
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, ValueInfoProto

from dplcli.errors import InvalidModelError, ModelLoadError, some_of
from dplcli.ir import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Remarks,
    SchemaLibrary,
    Tensor,
    TensorType,
    TypeStatement,
    Value,
)
from dplcli.ir.model import NO_ATTRIBUTES, NO_REMARKS, is_in_function, record_uses
from dplcli.ir.operators import canonical_domain
from dplcli.ir.traversal import find_value, outwards
from dplcli.ir.types import DTYPE_CODES, dtype_name
from dplcli.onnx_io import infer
from dplcli.onnx_io.convert import (
    Home,
    OnnxSchemas,
    ProtoTensor,
    decode_annotations,
    decode_attribute,
    decode_statement,
    decode_type,
    joined_devices,
    moved_devices,
    names_in_training,
    node_remarks,
    placements_of,
    restated,
    shardings_of,
)
from dplcli.onnx_io.external_data import IN_MEMORY, DataPlace, place_of
from dplcli.onnx_io.source import Source, row_of, source_of
from dplcli.onnx_io.table import GraphKind, read_table
from dplcli.onnx_io.wire import PADDING, padded_file
from dplcli.onnx_io.write import (
    encode_graph_remarks,
    encode_statement_of,
    large_tensors,
    to_proto,
)
from dplcli.shapes import Knowledge

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from onnx import OperatorSetIdProto

    from dplcli.onnx_io.table import GraphRow, Table
    from dplcli.onnx_io.wire import Bytes


# The IR's decoder for models that came from protobuf.


class ProtoCodec:
    """A :class:`dplcli.ir.Codec` for models that were read from a file.

    Attributes and types that are encoded alike are decoded once, and nodes share the result: in
    most nets they repeat.

    Args:
        source: The file.
    """

    schemas: SchemaLibrary = OnnxSchemas()

    def __init__(self, source: Source) -> None:
        self.source = source
        self._attributes: dict[int, dict[str, Attribute]] = {}
        self._types: dict[bytes, TensorType | None] = {}
        self.infer_node = infer.NodeInference().infer  # those of nodes that are alike are known
        self._remarked = frozenset(np.flatnonzero(source.table.nodes.remarked).tolist())

    def attributes(self, node: Node) -> dict[str, Attribute]:
        """Decode the attributes of *node*."""
        row = row_of(node.source)
        which = int(self.source.table.nodes.attributes[row])
        known = self._attributes.get(which)
        if known is None or node.subgraphs:
            known, refers = self._decoded(node, row)  # what is referred to depends on where
            if not refers and not node.subgraphs:
                self._attributes[which] = known
        return known

    def _decoded(self, node: Node, row: int) -> tuple[dict[str, Attribute], bool]:
        attributes = {}
        refers = False
        for item in self.source.attributes(row):
            inside = bool(item.ref_attr_name) and is_in_function(node.graph)
            refers = refers or bool(item.ref_attr_name)
            attributes[item.name] = decode_attribute(
                item, node.subgraphs, self.source.home, in_function=inside
            )
        return attributes, refers

    def remarks(self, node: Node) -> Remarks:
        """Read what a loaded node carries for readers and tools."""
        row = node.source
        return node_remarks(self.source.node(row_of(row))) if row in self._remarked else NO_REMARKS

    graph_remarks = staticmethod(encode_graph_remarks)
    statement_of = staticmethod(encode_statement_of)

    @staticmethod
    def readable(kind: Literal["graph", "value"], encoded: bytes) -> bytes | None:
        """Return what one of these two has encoded; None if it cannot be read."""
        try:
            (GraphProto if kind == "graph" else ValueInfoProto).FromString(encoded)
        except DecodeError:
            return None
        return encoded

    @staticmethod
    def placements(node: Node) -> Mapping[tuple[str, str], str]:
        """Read where a node runs: by configuration, its pipeline stage and its devices."""
        return placements_of(node.remarks.rest)

    @staticmethod
    def devices(node: Node, nodes: Iterable[Node]) -> bytes:
        """Return what *node*, in the place of *nodes*, is to say of its devices."""
        names = {value.name for value in (*node.inputs, *node.outputs) if value is not None}
        return joined_devices((each.remarks.rest for each in nodes), names)

    moved_devices = staticmethod(moved_devices)
    restated = staticmethod(restated)

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""
        return source if isinstance(source, Tensor) else self.source.tensor(row_of(source))

    def declared_type(self, source: object) -> TensorType | None:
        """Decode what is stated of a value; None if it is not a dense tensor."""
        assert type(source) is bytes  # noqa: S101  # the loader sets nothing else
        if source not in self._types:
            self._types[source] = decode_type(ValueInfoProto.FromString(source).type)
        return self._types[source]

    def infer_types(
        self, model: Model, *, anew: bool = False
    ) -> tuple[Mapping[Value, TensorType], str]:
        """Run onnx's shape inference over the model as it was loaded, or as it is now."""
        return infer.infer_types_anew(model) if anew else infer.infer_types(model)

    kinds_of_nodes = staticmethod(infer.kinds_of_nodes)

    @staticmethod
    def derived_type(value: Value) -> TensorType | None:
        """Derive a type by following the arithmetic on sizes; None if the rank does not follow."""
        return value.graph.model.memory(Knowledge).type_of(value)

    evaluate = staticmethod(infer.evaluate)


# Get the bytes of a file, or say what the file is instead.


_LFS_MARK = b"version https://git-lfs"
_TEXT_PROBE = 512
_LARGEST_MESSAGE = 2**31 - 1


def read_model_file(path: Path) -> Bytes:
    """Return the bytes of the file at *path*, and the zeros behind them that readers need.

    Raises:
        ModelLoadError: It is missing, no file, too large or cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ModelLoadError(f"{path}: is not a regular file", hint="save the model to a file")
        if status.st_size > _LARGEST_MESSAGE:
            raise ModelLoadError(
                f"{path}: is larger than 2 GB, which protobuf cannot hold",
                hint="save it with its weights as external data",
            )
        return padded_file(path)
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise ModelLoadError(
            f"{path}: is a directory, not a model", hint="name the .onnx file inside it"
        ) from error
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from error


def parse_model(data: bytes | Bytes, path: Path) -> ModelProto:
    """Parse the bytes of the file at *path*, without its external data.

    Raises:
        ModelLoadError: They are no model, or not a whole one.
        InvalidModelError: They are a model that contradicts itself, or a name is not UTF-8.
    """
    return Source(_read_table(data, path), Home(path.parent, str(path))).model()


def _read_table(data: bytes | Bytes, path: Path) -> Table:
    size = len(data) - (0 if isinstance(data, bytes) else PADDING)
    beginning = bytes(data[: min(size, _TEXT_PROBE)])
    if not beginning:
        raise ModelLoadError(f"{path}: is empty")
    if beginning.startswith(_LFS_MARK):
        raise ModelLoadError(
            f"{path}: is a Git LFS pointer, not the model itself", hint="run: git lfs pull"
        )
    try:
        table = read_table(data, str(path))
    except DecodeError as error:
        raise ModelLoadError(f"{path}: {_what_is_wrong(beginning)}") from error
    if not table.graphs[0].end:
        raise ModelLoadError(f"{path}: {_what_is_wrong(beginning)}: it holds no graph")
    return table


def _what_is_wrong(beginning: bytes) -> str:
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in beginning):  # noqa: PLR2004  # ASCII space
        return "is a text file, not a binary ONNX model"
    return "is not an ONNX model, or was cut off"


# Read an ONNX file into the IR.


_ANNOTATION = GraphProto.QUANTIZATION_ANNOTATION_FIELD_NUMBER
_EXTERNAL_MARK = b"location"
"""The key in every reference to external data; a file without it has no such data."""


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
    model = _model(_read_table(data, path), Home(path.parent, str(path)))
    model.path = path
    if opset is not None:
        model = _raised(model, opset, path)
    model.may_have_external_data = may_refer(data)
    return model


def may_refer(data: Bytes) -> bool:
    """Tell whether a file may refer to external data."""
    return re.search(_EXTERNAL_MARK, data.data) is not None


def _raised(model: Model, opset: int, path: Path) -> Model:
    """Raise a model to an opset: build it anew from what it becomes."""
    from dplcli.onnx_io.opset import raise_opset  # noqa: PLC0415  # rarely needed

    check_imports(model)
    proto = source_of(model).model()
    with paused_gc():
        result = raise_opset(proto, opset, str(path))
    if not result.is_changed:
        return model
    raised = model_from_proto(proto, path.parent, str(path))
    raised.path = path
    raised.notes = [*model.notes, f"{path}: {result}"]
    raised.graph.modified = True
    return raised


@contextmanager
def paused_gc() -> Iterator[None]:
    """Suspend cyclic garbage collection while many long-lived objects are made.

    At 100,000 nodes the collector would otherwise walk the growing graph again and again, which
    costs as much as building it. Afterwards the new objects are young ones, as anybody's are: what
    is garbage of them is found soon. (`gc.freeze` and `gc.unfreeze` would make them old without a
    walk. But they also set back what decides when the old are walked: in a process that lives long,
    and pauses often, that is never, and no garbage is freed.)
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def model_from_proto(proto: ModelProto, folder: Path, label: str) -> Model:
    """Build the IR of *proto*.

    Args:
        proto: A model, without external data.
        folder: Where its external data lies.
        label: What to call it in messages.

    Raises:
        InvalidModelError: Its graph contradicts itself.
    """
    return _model(read_table(proto.SerializeToString(), label), Home(folder, label))


def _model(table: Table, home: Home) -> Model:
    source = Source(table, home)
    model = Model(ProtoCodec(source))
    model.source = source
    model.ir_version = source.header.ir_version
    with paused_gc():
        _Builder(model, source).build()
    return model


def built_again(model: Model) -> Model:
    """Build a loaded model anew, as it was before any pass edited it."""
    source = source_of(model)
    again = _model(source.table, source.home)
    again.path = model.path
    again.may_have_external_data = model.may_have_external_data
    return again


def as_written(model: Model) -> Model:
    """Build an edited model anew from what its file would be: the result is nobody's file yet.

    What passes have made and is large is the same in memory.
    """
    home = source_of(model).home
    large = large_tensors(model)
    places = {tensor: DataPlace(IN_MEMORY, k, k) for k, tensor in enumerate(large)}
    again = model_from_proto(to_proto(model, places), home.folder, home.label)
    again.path = model.path
    again.may_have_external_data = model.may_have_external_data
    again.graph.modified = True
    for value in (value for graph in again.graphs() for value in graph.initializers if large):
        tensor = value.constant
        if isinstance(tensor, ProtoTensor) and tensor.is_external:
            location, number, _ = place_of(tensor.proto)
            if location == IN_MEMORY:
                value.set_initializer(large[number])
                value.graph.modified = True
    return again


def check_imports(model: Model) -> None:
    """Refuse to change a model that imports a domain in two versions.

    Tools disagree on what its nodes mean: of `""` and `ai.onnx` onnxruntime takes the last one,
    onnx takes `""`. So no edit is right for both.

    Raises:
        InvalidModelError: The model does so.
    """
    if model.conflicts:
        raise InvalidModelError(
            f"{model.path or 'the model'}: {model.conflicts[0]}",
            hint="tools disagree on what its nodes mean; delete the import that is wrong from "
            "opset_import",
        )


class _Builder:
    """Builds the graphs of one model from its table, column by column.

    Args:
        model: The model, without graphs.
        source: Its file.
    """

    def __init__(self, model: Model, source: Source) -> None:
        self.model = model
        self.source = source
        self.table = source.table
        self.graphs: list[Graph] = []
        self.nodes: list[Node] = []
        self.values: list[Value | None] = []

    def build(self) -> None:
        """Build all."""
        imports = self.imports(self.source.header.opset_import)
        self.model.opset_imports.update(imports)
        self.model.notes += self.table.notes
        self.model.is_spread = self.table.is_spread
        nodes = self.table.nodes
        names = self.source.texts(nodes.name_at, nodes.name_size)
        operators = self.operators()
        which = nodes.operator.tolist()
        first, count = self.table.rows_by_graph()
        for row, graph in enumerate(self.table.graphs):
            made = self._make_graph(row, graph)
            self.graphs.append(made)
            rows = range(first[row], first[row] + count[row])
            for number in rows:
                domain, op_type, overload = operators[which[number]]
                node = Node(made, op_type, domain, names[number], number)
                if overload:
                    node.overload = overload
                self.nodes.append(node)
            made.arrange(self.nodes[first[row] :])
        # bodies come level by level, and a graph lists those of its nodes by node
        for made in self.graphs:
            if made.inner:
                made.inner.sort(key=self._where)
                for body in made.inner:
                    self._let_own(body)
        self._make_values()
        self._let_nodes_read()
        self._let_graphs_return()
        self._state_types()
        self._protect()
        for number in self.table.sorted:
            self.graphs[number].modified = True

    def imports(self, stated: Iterable[OperatorSetIdProto], where: str = "") -> dict[str, int]:
        """Read which version of each domain is in force; note what is imported in two.

        The last one counts, as for onnxruntime.
        """
        listed: dict[str, list[OperatorSetIdProto]] = {}
        for opset in stated:
            listed.setdefault(canonical_domain(opset.domain), []).append(opset)
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
                    f"{self.source.home.label}: {conflict}; read as version {opsets[-1].version}, "
                    "which onnxruntime takes; other tools may take another"
                )
        return {domain: opsets[-1].version for domain, opsets in listed.items()}

    def _where(self, body: Graph) -> tuple[int, int]:
        row = self.table.graphs[row_of(body.source)]
        return row.owner, row.begin

    def _let_own(self, body: Graph) -> None:
        """Let a node have its body; of two under one name nobody knows which one runs."""
        owner = body.owner
        assert owner is not None  # noqa: S101  # it is a body
        name = self.table.graphs[row_of(body.source)].attribute.decode()
        if name in owner.subgraphs:
            node = f"{owner.op_type} {owner.name!r}" if owner.name else f"a node {owner.op_type}"
            raise InvalidModelError(
                f"{self.source.home.label}: invalid model: graph {owner.graph.name!r}: "
                f"{node} has two bodies {name!r}"
            )
        owner.subgraphs = {**owner.subgraphs, name: body}

    def operators(self) -> list[tuple[str, str, str]]:
        """Return domain, type and overload of each operator."""
        texts = [tuple(map(bytes.decode, operator)) for operator in self.table.operators]
        return [
            (canonical_domain(d), op_type, overload if d else "") for d, op_type, overload in texts
        ]

    def _make_graph(self, number: int, row: GraphRow) -> Graph:
        if row.kind is GraphKind.FUNCTION:
            header = self.source.function_header(number)
            where = f"the function {header.domain}::{header.name} "
            body = Graph(
                self.model, self.imports(header.opset_import, where) or self.model.opset_imports
            )
            body.name = header.name
            function = Function(
                header.domain,
                header.name,
                body,
                overload=header.overload,
                attributes=tuple(header.attribute),
                metadata={entry.key: entry.value for entry in header.metadata_props},
                source=number,
            )
            function.defaults = {
                item.name: decode_attribute(item, {}, self.source.home)
                for item in header.attribute_proto
            }
            if function.key in self.model.functions:
                raise InvalidModelError(
                    f"{self.source.home.label}: invalid model: graph {body.name!r}: "
                    f"two functions are named {header.domain}::{header.name}"
                )
            self.model.functions[function.key] = function
            made = body
        elif row.kind is GraphKind.MAIN:
            made = self.model.graph
        else:
            owner = self.nodes[row.owner]
            made = Graph(self.model, owner.graph.opset_imports, owner=owner)
        if row.kind is not GraphKind.FUNCTION:
            made.name = self.source.name_of(number)
        made.source = number
        return made

    def _make_values(self) -> None:
        """Define all values: of a graph first what it is given and stores, then what nodes make."""
        table = self.table
        values = table.values
        made_by = values.producer
        out_at = table.nodes.out_at
        index = np.zeros(values.graph.size, np.int64)
        made, count = table.outputs, table.nodes.out_count
        index[made] = np.arange(made.size) - np.repeat(out_at, count)
        nodes: list[Node | None] = [*self.nodes, None]  # the last stands for none
        graphs = self.graphs
        _, *found = map(
            Value,
            self.source.texts(values.name_at, values.name_size),
            [graphs[graph] for graph in values.graph.tolist()],
            [nodes[node] for node in made_by.tolist()],
            index.tolist(),
        )
        self.values = [None, *found]
        stored = np.flatnonzero((values.tensor >= 0) & (made_by < 0))
        for number, tensor in zip(stored.tolist(), values.tensor[stored].tolist(), strict=True):
            found[number - 1].set_initializer(tensor)
        for number in np.flatnonzero(values.given).tolist():
            value = found[number - 1]
            value.is_graph_input = True
            value.graph.inputs.append(value)
        if len(graphs) == 1:
            graphs[0].values = {value.name: value for value in found}
            return
        for value in found:
            value.graph.values[value.name] = value

    def _let_nodes_read(self) -> None:
        """Set what nodes read and make, and the uses of values: in the order of the document."""
        nodes, values = self.table.nodes, self.values
        read = [values[value] for value in self.table.inputs.tolist()]
        made = [values[value] for value in self.table.outputs.tolist()]
        spans = zip(
            *(
                column.tolist()
                for column in (
                    nodes.in_at,
                    nodes.in_at + nodes.in_count,
                    nodes.out_at,
                    nodes.out_at + nodes.out_count,
                )
            ),
            strict=True,
        )
        plain = nodes.attributes == 0
        for node, (a, b, c, d), is_plain in zip(self.nodes, spans, plain.tolist(), strict=True):
            node.inputs = tuple(read[a:b])
            node.outputs = tuple(made[c:d])
            if is_plain:
                node.attributes = NO_ATTRIBUTES
        for function in (self.model.graph, *(f.body for f in self.model.functions.values())):
            record_uses(_in_document_order(function))

    def _let_graphs_return(self) -> None:
        """Set what graphs return, inner ones first."""
        for function in (self.model.graph, *(f.body for f in self.model.functions.values())):
            for graph in _inner_first(function):
                for number in self.table.returned[row_of(graph.source)].tolist():
                    value = self.values[number]
                    if value is not None:
                        graph.add_output(value)

    def _state_types(self) -> None:
        """Note what the file states of values.

        Of stored data, the data says it, or what is stated beside the interface of the graph. The
        first statement counts.
        """
        table, values = self.table, self.values
        types = self.source.tensor_types
        stored = np.flatnonzero((table.values.tensor >= 0) & (table.values.producer < 0))
        kinds = table.tensors.type[table.values.tensor[stored]]
        for number, kind in zip(stored.tolist(), kinds.tolist(), strict=True):
            value = values[number]
            if value is not None and kind >= 0:
                value.type_source = types[kind]
        infos = table.infos
        which, texts = self.source.statements()
        statements = [TypeStatement(text, decode_statement) for text in texts]
        is_main = [row.kind is not GraphKind.FUNCTION for row in table.graphs]
        stated = zip(
            self.source.values_stated().tolist(),
            infos.graph.tolist(),
            infos.number.tolist(),
            which.tolist(),
            strict=True,
        )
        returned = []
        for number, graph, field, text in stated:
            value = values[number]
            if value is None:
                continue
            known = value.type_source
            if field == GraphProto.INPUT_FIELD_NUMBER and is_main[graph]:
                value.type_source = texts[text]
            elif field == GraphProto.OUTPUT_FIELD_NUMBER and is_main[graph]:
                returned.append((value, text))
            elif known is None or type(known) is TensorType:
                value.type_source = statements[text]
        for value, text in returned:
            if value.type_source is None:
                value.type_source = texts[text]

    def _protect(self) -> None:
        """Keep what lies beside the graphs true: hold the values that it names."""
        model, main = self.model, self.model.graph.values
        model.taken, updated, model.called_beside = names_in_training(
            self.source.header.training_info
        )
        model.trained = [main[name] for name in updated if name in main and main[name].use_count]
        for name in sorted(model.taken & main.keys()):
            model.protect(main[name], "the training information")
        parts = self.table.parts
        for number in sorted(set(parts.graph[parts.number == _ANNOTATION].tolist())):
            if number < 0 or self.table.graphs[number].kind is GraphKind.FUNCTION:
                continue  # there the number is that of another field
            graph = self.graphs[number]
            header = self.source.graph_header(number)
            model.annotated.append(graph)
            graph.annotations = decode_annotations(header.quantization_annotation)
            for annotation in chain.from_iterable(graph.annotations.values()):
                for name in annotation.parameters.values():
                    value = find_value(graph, name)
                    if value is not None:
                        model.protect(value, "a quantization annotation")


def _in_document_order(graph: Graph) -> Iterator[Node]:
    """Iterate over the nodes of a graph, and behind each over those in its bodies."""
    for node in graph:
        yield node
        for body in node.subgraphs.values():
            yield from _in_document_order(body)


def _inner_first(graph: Graph) -> Iterator[Graph]:
    """Iterate over a graph and those in it, bodies before the graph that holds them."""
    for body in graph.inner:
        yield from _inner_first(body)
    yield graph


# Models made from scratch: from ONNX text, and from made-up graphs.


DEFAULT_OPSET = 21
_NO_GRAPH = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]> empty () => () {{}}\n'
_DEFAULT_HEADER = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]>\n'


def model_from_text(text: str, label: str) -> Model:
    """Read ONNX text; without a header of its own it is of opset 21.

    Raises:
        InvalidModelError: It is no model; says why.
    """
    header = "" if text.lstrip().startswith("<") else _DEFAULT_HEADER
    return _from_text(header, text, label, "is not a model in ONNX text", is_checked=True)


def functions_from_text(text: str, label: str) -> Model:
    """Read functions in ONNX text, with or without a model before them.

    Raises:
        InvalidModelError: They are no functions; says why.
    """
    header = "" if text.lstrip().startswith("<ir_version") else _NO_GRAPH
    return _from_text(header, text, label, "is not ONNX text", is_checked=False)


_DEEPEST_TEXT = 1000
"""How deep brackets may nest: the parser of onnx is recursive, and ends the process."""


_BRACKET = re.compile(r"[(){}\[\]]")


def _from_text(header: str, text: str, label: str, wrong: str, *, is_checked: bool) -> Model:
    # How deep brackets nest, those in strings and comments included.
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "({[" else -1
        deepest = max(deepest, depth)
    if deepest > _DEEPEST_TEXT:
        raise InvalidModelError(f"{label}: {wrong}: it nests deeper than {_DEEPEST_TEXT:,}")
    try:
        proto = _parsed(header + text)
        if is_checked:
            onnx.checker.check_model(proto)
    except onnx.parser.ParseError as error:
        reason = _said_by_parser(error, header.count("\n"))
        raise InvalidModelError(f"{label}: {wrong}: {reason}") from error
    except (onnx.checker.ValidationError, ValueError, DecodeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidModelError(f"{label}: {wrong}: {reason}") from error
    return model_from_proto(proto, Path(), label)


def _parsed(text: str) -> ModelProto:
    try:
        return onnx.parser.parse_model(text)
    except (IndexError, OverflowError, RuntimeError) as error:  # C++ does not hold a number
        raise ValueError("a number in it is too large") from error


_PARSER_SAYS = re.compile(
    r"\[ParseError at position \(line: (\d+) column: (\d+)\)\]\nError context: (.*)\n(.*)",
    re.DOTALL,
)
_BEFORE, _BEHIND = 40, 20


def _said_by_parser(error: onnx.parser.ParseError, lines_before: int) -> str:
    """Return where and what the parser of onnx objects to; we put lines before the text."""
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    found = _PARSER_SAYS.fullmatch(text)
    if found is None:
        return " ".join(text.split())
    line, column, what = int(found[1]) - lines_before, int(found[2]), found[4]
    near = " ".join(found[3][max(column - _BEFORE, 0) : column + _BEHIND].split())
    return f"line {line}, column {column}, near {near!r}: {' '.join(what.split())}"


_UNFIT = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def text_of_model(model: Model) -> str:
    """Return ONNX text that :func:`model_from_text` reads; opset 21 goes without saying."""
    text = onnx.printer.to_text(to_proto(model))
    head, _, rest = text.partition(">\n")
    is_usual = f'"" : {DEFAULT_OPSET}]' in head
    lines = (rest if is_usual else f"{' '.join(head.split())}>\n{rest}").splitlines()
    return "\n".join(line.rstrip() for line in lines)


class MadeUpGraph(Protocol):
    """A graph, by names.

    Attributes:
        nodes: Its nodes in topological order, each with an operator, inputs, outputs, attributes.
        inputs: Element type and shape of each input.
        constants: Its initializers.
        outputs: Names of what it returns.
    """

    nodes: list[Any]
    inputs: dict[str, tuple[str, tuple[int, ...]]]
    constants: dict[str, NDArray[Any]]
    outputs: list[str]


def node_types(
    node: Any,  # noqa: ANN401  # as in MadeUpGraph
    types: Mapping[str, tuple[str, tuple[int, ...]]],
    constants: Mapping[str, NDArray[Any]],
    opset: int,
    *,
    may_be_empty: bool = False,
) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Return element type and shape of what a made-up node makes; None if onnx cannot tell.

    What has no elements fits only if it may be empty. Sizes that depend on data are taken for 2.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        read = {name: types[name] for name in node.inputs if name}
        kinds = {
            name: onnx.helper.make_tensor_type_proto(DTYPE_CODES[dtype], shape)
            for name, (dtype, shape) in read.items()
        }
        data = {n: onnx.numpy_helper.from_array(constants[n], n) for n in read if n in constants}
        inferred = infer.infer_outputs(schema, _proto_of(node), kinds, data, {"": opset}, 10)
    except (*_UNFIT, onnx.defs.SchemaError, RuntimeError, ValueError, TypeError):
        return None
    found = {}
    for name, kind in inferred.items():
        dims = kind.tensor_type.shape.dim
        if not kind.tensor_type.HasField("shape"):
            return None
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else 2 for dim in dims)
        if min(shape, default=1) < (not may_be_empty):
            return None
        found[name] = (dtype_name(kind.tensor_type.elem_type), shape)
    return found


@cache
def accepted_types(op_type: str, domain: str, opset: int) -> tuple[frozenset[str], ...]:
    """Return by formal input which element types an operator takes; none if nobody knows it."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return ()
    names = {"float": "float32", "double": "float64"}
    texts = [
        {text.removeprefix("tensor(").removesuffix(")") for text in formal.types}
        for formal in schema.inputs
    ]
    return tuple(frozenset(names.get(text, text) for text in each) for each in texts)


def _proto_of(node: Any) -> onnx.NodeProto:  # noqa: ANN401  # as in MadeUpGraph
    attributes = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
    return onnx.helper.make_node(
        node.op_type, node.inputs, node.outputs, domain=node.domain, **attributes
    )


def build_model(graph: MadeUpGraph, opset: int) -> Model | None:
    """Make a model of a made-up graph; None if operators and shapes do not fit together."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
        for name, (dtype, shape) in graph.inputs.items()
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    try:
        nodes = list(map(_proto_of, graph.nodes))
    except (ValueError, TypeError):
        return None  # an attribute that onnx cannot tell the kind of
    outputs = [onnx.ValueInfoProto(name=name) for name in graph.outputs]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "made_up", inputs, outputs, constants),
        opset_imports=[
            onnx.helper.make_opsetid("", opset),
            *(onnx.helper.make_opsetid(d, 1) for d in {n.domain: 1 for n in graph.nodes} if d),
        ],
        ir_version=10,
    )
    if any(map(infer.endangers_inference, nodes)):
        return None
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        types = {info.name: info for info in inferred.graph.value_info}
        types |= {info.name: info for info in inferred.graph.output}
        del proto.graph.output[:]
        proto.graph.output.extend(types[name] for name in graph.outputs)
        onnx.checker.check_model(proto)  # a full check would only infer the same once more
    except (*_UNFIT, KeyError):
        return None
    return model_from_proto(proto, Path(), "made up")


def _outermost_rows(table: Table, graphs: Collection[object]) -> NDArray[np.bool_]:
    """Tell of each node of a file, (n,), whether it is in one of the outermost *graphs*."""
    outermost: list[int] = []
    for number, row in enumerate(table.graphs):
        outermost.append(number if row.parent < 0 else outermost[row.parent])
    return np.array([number in graphs for number in outermost], np.bool_)[table.nodes.graph]


def losses(model: Model, *, in_calls: bool = False) -> list[str]:
    """Say what the file states beside its graphs that an edited model no longer does.

    Args:
        model: The model.
        in_calls: Whether calls say what was there, so that inlining them brings it back.
    """
    graphs = list(model.graphs())
    gone: list[str] = []
    for graph in model.annotated:
        *_, outermost = outwards(graph)  # where it was, if it has gone with its node
        lost = graph.erased - graph.values.keys() if graph in graphs else graph.annotations.keys()
        gone += [name for name in graph.annotations if name in lost and outermost in graphs]
    idle = [v.name for v in model.trained if not v.use_count and not v.is_graph_output]
    spread: list[str] = []
    if model.is_spread and not in_calls:
        source = source_of(model)
        rows = np.flatnonzero(source.table.nodes.remarked).tolist()
        here = _outermost_rows(source.table, {g.source for g in graphs})
        before = (node_remarks(source.node(row)).rest for row in rows if here[row])
        after = {item for g in graphs for node in g for item in shardings_of(node.remarks.rest)}
        told = (item for rest in before for item in shardings_of(rest))
        spread = [item[1] for item in dict.fromkeys(told) if item not in after]
    where = "are inside functions now; dpl inline brings them back" if in_calls else "are gone"
    lines = (
        (f"left out: the quantization annotations of {{}}, which {where}", gone),
        ("left out: the sharding of {}, which no node reads or makes any more", spread),
        ("the training information updates {}, which no node reads any more", idle),
    )
    label = model.path or "the model"
    return [f"{label}: {text.format(some_of(names))}" for text, names in lines if names]
