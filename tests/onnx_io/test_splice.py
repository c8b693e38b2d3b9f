"""A table that was edited is written as the object graph is after the same edits, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from dplcli.errors import DplError
from dplcli.ir import Attribute, Function, Graph, Node, StatedType, TensorType, Value
from dplcli.ir.edits import Editor, NewNodes
from dplcli.ir.model import record_uses
from dplcli.ir.table import OMITTED, GraphKind, Payload, TableError
from dplcli.ir.traversal import captured_values
from dplcli.ir.types import ArrayTensor
from dplcli.onnx_io import convert
from dplcli.onnx_io.read import model_from_proto, parse_model
from dplcli.onnx_io.small import SMALL
from dplcli.onnx_io.splice import written
from dplcli.onnx_io.table import read_table
from dplcli.onnx_io.wire import PADDING, padded_file
from dplcli.onnx_io.write import is_modified, model_parts
from dplcli.passes.rewriter import BodyWriter, GraphRewriter, erase_unread
from tests.corpus.nets import each_model, listed_models, real_model
from tests.onnx_io.test_round_trip import SHIPPED, WHEEL, rich_model
from tests.onnx_io.test_table import NESTED, graphs_in, graphs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Model
    from dplcli.ir.table import Table


def encoded(model: Model) -> bytes:
    """Return what the writer of the object graph writes."""
    return b"".join(convert.encode(model_parts(model)))


# What was not edited, and all of it encoded anew.


def encode_anew(table: Table, model: Model) -> None:
    """Let every node and graph be encoded anew."""
    table.nodes.touched[:] = True
    table.modified.update(range(len(table.graphs)))
    for graph in model.graphs():
        graph.modified = True
        for node in graph:
            node.rewire(node.inputs)


def check_both_ways(data: bytes) -> None:
    """Check what is written of a file untouched, and with every node and graph encoded anew."""
    table = read_table(data, "m.onnx")
    assert written(table) == data
    model = model_from_proto(ModelProto.FromString(data), Path(), "m.onnx")
    encode_anew(table, model)
    result = written(table)
    assert result == encoded(model)
    in_order = table.data.tobytes()[:-PADDING] if table.sorted else data
    assert ModelProto.FromString(result) == ModelProto.FromString(in_order)


@pytest.mark.parametrize(
    "path", [*WHEEL, *SHIPPED], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_models_at_hand(path: Path) -> None:
    """Those of the onnx package and of the project."""
    check_both_ways(path.read_bytes())


@pytest.mark.long
@pytest.mark.parametrize("name", each_model([*listed_models()][::3]))
def test_real_models(name: str) -> None:
    """The same for every third model of the corpus."""
    check_both_ways(real_model(name).read_bytes())


def full_model() -> ModelProto:
    """Return a model that has all that text cannot express, bodies in bodies, and types."""
    proto = rich_model()
    proto.ParseFromString(NESTED.SerializeToString() + proto.SerializeToString())
    return proto


def nested_model() -> ModelProto:
    """Return a model with bodies in bodies and functions, all of whose values have stated types."""
    proto = ModelProto()
    proto.CopyFrom(NESTED)
    inner = proto.graph.node[2].attribute[0].g
    for graph, names in ((proto.graph, ("a", "ghost", "w")), (inner, ("two", "inner"))):
        for name in names:
            graph.value_info.add(name=name).type.tensor_type.elem_type = 1
    proto.functions[0].value_info.add(name="s").type.tensor_type.elem_type = 1
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "thin"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64)))
    proto.graph.node.add(op_type="Neg", input=["thin"], output=["sparsely"])
    proto.graph.input.add(name="k").type.tensor_type.elem_type = 1
    return proto


def test_what_text_cannot_express() -> None:
    """All fields, and what the format does not know."""
    check_both_ways(rich_model().SerializeToString())
    check_both_ways(nested_model().SerializeToString())
    proto = nested_model()
    proto.graph.MergeFromString(b"\xa2\x3e\x01x")
    proto.graph.node[0].MergeFromString(b"\xa2\x3e\x01y")
    proto.graph.node[2].attribute[0].g.MergeFromString(b"\xa2\x3e\x01z")
    check_both_ways(proto.SerializeToString())


def test_a_file_that_protobuf_would_not_write_is_kept_as_it_is() -> None:
    """Until it is edited: then it is written as protobuf would."""
    graph = GraphProto(name="g").SerializeToString()
    data = b"\x3a" + bytes([len(graph)]) + graph + b"\x08\x0a"  # the version behind the graph
    table = read_table(data, "m.onnx")
    assert written(table) == data
    Editor(table).set_ir_version(9)
    assert ModelProto.FromString(written(table)).ir_version == 9


def test_a_file_is_read_into_the_buffer_that_the_table_keeps(tmp_path: Path) -> None:
    """An array with the zeros behind it is not copied, if it is not small."""
    path = tmp_path / "m.onnx"
    model = ModelProto.FromString(NESTED.SerializeToString())
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(SMALL, np.uint8), "large"))
    path.write_bytes(model.SerializeToString())
    data = padded_file(path)
    table = read_table(data, "m.onnx")
    assert table.data is data
    assert written(table) == path.read_bytes()
    path.write_bytes(b"\x3a\x01")
    with pytest.raises(DecodeError):
        read_table(padded_file(path), "m.onnx")


# The same edits of both.


class Twins:
    """A model as object graph and as table, edited alike.

    Args:
        proto: The model.
    """

    def __init__(self, proto: ModelProto) -> None:
        self.data = data = proto.SerializeToString()
        self.table: Table = read_table(data, "m.onnx")
        self.editor = Editor(self.table)
        self.model = model_from_proto(ModelProto.FromString(data), Path(), "m.onnx")
        self.graphs: dict[Graph, int] = {}
        self.nodes: dict[Node, int] = {}
        self.values: dict[Value, int] = {}
        mains = [self.model.graph, *(item.body for item in self.model.functions.values())]
        for number, row in enumerate(self.table.graphs):
            if row.kind is GraphKind.BODY:
                owner = next(node for node, mine in self.nodes.items() if mine == row.owner)
                graph = owner.subgraphs[row.attribute.decode()]
            else:
                graph = mains[number]
            self._link(graph, number)

    def _link(self, graph: Graph, number: int) -> None:
        self.graphs[graph] = number
        mine = self.table.in_order()
        mine = mine[self.table.nodes.graph[mine] == number]
        self.nodes |= dict(zip(graph, mine.tolist(), strict=True))
        for value in range(1, self.table.values.size):
            if self.table.values.graph[value] == number:
                name = self.table.names(np.array([value]))[0].decode()
                self.values[graph.values[name]] = value

    def rows(self, values: Sequence[Value | None]) -> np.ndarray:
        """Return the rows of values."""
        return np.array([OMITTED if v is None else self.values[v] for v in values], np.int64)

    def node(self, node: Node) -> np.ndarray:
        """Return the row of a node."""
        return np.array([self.nodes[node]])

    def new_value(self, graph: Graph, name: str) -> Value:
        """Define a value in both."""
        value = GraphRewriter(graph).make_value(name)
        (self.values[value],) = self.editor.add_values(self.graphs[graph], [name.encode()]).tolist()
        return value

    def insert(  # noqa: PLR0913  # these are the parts of a node
        self,
        anchor: Node,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        *,
        operator: tuple[str, str] = ("", "Mul"),
        name: str = "",
        attributes: dict[str, Attribute] | None = None,
        metadata: dict[str, str] | None = None,
        is_gone: bool = False,
    ) -> Node:
        """Put a node before another one, or in its place."""
        domain, op_type = operator
        rewriter = GraphRewriter(anchor.graph)
        new = rewriter.insert(
            anchor,
            op_type,
            inputs,
            domain=domain,
            name=name,
            attributes=attributes,
            metadata=metadata,
        )
        rewriter.take_over_outputs(new, outputs)
        read = [*(v for v in anchor.inputs if v is not None), *captured_values(anchor)]
        kept = [v for v in anchor.outputs if v is not None and v not in outputs]
        assert not kept or not is_gone
        if is_gone:
            rewriter.erase([anchor])
        texts = [encode_text(*item) for item in (attributes or {}).items()]
        remark = b"".join(
            b"\x4a" + bytes([len(entry)]) + entry
            for key, value in (metadata or {}).items()
            for entry in [onnx.StringStringEntryProto(key=key, value=value).SerializeToString()]
        )
        ids, lost = self.editor.replace(
            self.node(anchor) if is_gone else np.zeros(0, np.int64),
            NewNodes(
                operator=self.editor.operator(domain.encode(), op_type.encode()),
                attributes=self.editor.attribute_set(texts),
                anchor=self.node(anchor),
                in_count=np.array([len(inputs)]),
                inputs=self.rows(inputs),
                out_count=np.array([len(outputs)]),
                outputs=self.rows(outputs),
                names=[name.encode()],
                remark=self.editor.remark(b"", remark),
            ),
        )
        self.nodes[new] = int(ids[0])
        if is_gone:
            assert {*lost.tolist()} - {OMITTED} == {*self.rows(read).tolist()} - {OMITTED}
        return new

    def store(self, value: Value, array: np.ndarray) -> None:
        """Let a value be data; whoever made it is taken out."""
        rewriter = GraphRewriter(value.graph)
        maker = value.producer
        rewriter.make_initializer(value, ArrayTensor(array))
        if maker is not None:
            rewriter.erase([maker])
        (tensor,) = self.editor.add_tensors(*encoded_data(self.editor, array))
        gone = np.zeros(0, np.int64) if maker is None else self.node(maker)
        self.editor.store(self.rows([value]), np.array([tensor]), gone)

    def rewire(self, old: Value, new: Value) -> None:
        """Let whoever reads one value read another one."""
        GraphRewriter(old.graph).replace_uses(old, new)
        self.editor.rewire(self.rows([old]), self.rows([new]))

    def rename(self, value: Value, old: Value) -> None:
        """Let the node that makes a value make its copy instead."""
        rewriter = GraphRewriter(value.graph)
        maker = old.producer
        assert maker is not None
        rewriter.rename_source(value, old)
        rewriter.erase([maker])
        self.editor.rename(self.rows([value]), self.rows([old]), self.node(maker))

    def sweep(self, values: Sequence[Value]) -> None:
        """Take out what only made values that nobody reads."""
        gone = erase_unread(values)
        self.editor.sweep(self.rows(values))
        assert not self.table.nodes.live[[self.nodes[node] for node in gone]].any()

    def check(self) -> None:
        """Check that both are the same, and what is written of them."""
        self.table.check()
        result = written(self.table)
        assert result == (encoded(self.model) if is_modified(self.model) else self.data)
        proto = ModelProto.FromString(result)
        again = read_table(result, "again.onnx")
        again.check()
        assert graphs_in(again) == graphs_of(proto)


def encode_text(name: str, attribute: Attribute) -> bytes:
    """Encode an attribute."""
    data: bytes = convert.encode_attribute(name, attribute).SerializeToString()
    return data


def encoded_data(editor: Editor, array: np.ndarray) -> tuple[int, list[Payload]]:
    """Return the type and the payload of data."""
    proto = numpy_helper.from_array(array)
    front = TensorProto(dims=proto.dims, data_type=proto.data_type).SerializeToString()
    raw = TensorProto(raw_data=proto.raw_data).SerializeToString()
    return editor.tensor_type(front), [Payload(front, (raw[:2], memoryview(raw)[2:]))]


def is_alone(value: Value) -> bool:
    """Tell whether no other graph has a value of its name, which might hide it there."""
    return sum(value.name in graph.values for graph in value.graph.model.graphs()) == 1


def visible(node: Node) -> list[Value]:
    """Return what a node may read: what stands before it, in its graph and round that."""
    found: list[Value] = []
    current: Node | None = node
    while current is not None:
        order = {other: place for place, other in enumerate(current.graph)}
        found += [
            value
            for value in current.graph.values.values()
            if value.producer is None or order[value.producer] < order[current]
            if is_alone(value)
        ]
        current = current.graph.owner
    return found


ATTRIBUTES = st.dictionaries(
    st.sampled_from(["alpha", "beta"]), st.integers(0, 2).map(lambda n: Attribute("int", n))
)
ROWS: st.SearchStrategy[np.ndarray] = st.sampled_from(
    [np.arange(3, dtype=np.float32), np.zeros((), np.int64)]
)


class Steps:
    """Random edits of twins, each of which a pass could do.

    Args:
        twins: The model.
        data: What chooses.
    """

    def __init__(self, twins: Twins, data: st.DataObject) -> None:
        self.twins = twins
        self.data = data
        self.count = 0

    def graphs(self) -> list[Graph]:
        """Return the graphs that are there."""
        return [*self.twins.model.graphs()]

    def choose(self, items: Sequence[Node | Value]) -> object:
        """Return one of some items, or None if there are none."""
        return self.data.draw(st.sampled_from(items)) if items else None

    def a_node(self) -> Node | None:
        """Return a node."""
        found = self.choose([node for graph in self.graphs() for node in graph])
        assert found is None or isinstance(found, Node)
        return found

    def a_value(self, values: Sequence[Value] | None = None) -> Value | None:
        """Return a value."""
        if values is None:
            values = [value for graph in self.graphs() for value in graph.values.values()]
        found = self.choose(values)
        assert found is None or isinstance(found, Value)
        return found

    def name(self) -> str:
        """Return a name that nothing has had."""
        self.count += 1
        return f"new_{self.count}"

    def inputs(self, node: Node) -> list[Value | None]:
        """Return what a node might read that stands where *node* does."""
        choices = st.sampled_from([None, *visible(node)])
        return self.data.draw(st.lists(choices, max_size=3))

    def put(self) -> None:
        """Put a node before another one, or in its place; it may make two values."""
        anchor = self.a_node()
        if anchor is None:
            return
        is_gone = self.data.draw(st.booleans())
        kept = [value for value in anchor.outputs if value is not None]
        inputs = self.inputs(anchor)
        made = [
            self.twins.new_value(anchor.graph, self.name())
            for _ in range(self.data.draw(st.integers(0, 2)) if is_gone else 1)
        ]
        self.twins.insert(
            anchor,
            inputs,
            [*kept, *made] if is_gone else made,
            operator=self.data.draw(st.sampled_from([("", "Mul"), ("d", "f"), ("", "Relu")])),
            name=self.data.draw(st.sampled_from(["", "called", "n" * 200])),
            attributes=self.data.draw(ATTRIBUTES),
            metadata=self.data.draw(st.sampled_from([None, {"key": "text", "more": ""}])),
            is_gone=is_gone,
        )

    def rewire(self) -> None:
        """Let readers of a value read one that is made before it."""
        old = self.a_value()
        if old is None:
            return
        if old.producer is not None:
            others = visible(old.producer)
        else:
            others = [v for v in old.graph.values.values() if v.producer is None and v is not old]
            others = [value for value in others if is_alone(value)]
        new = self.a_value(others)
        if new is not None:
            self.twins.rewire(old, new)

    def sweep(self) -> None:
        """Take out what is not needed, beginning anywhere."""
        values = [value for graph in self.graphs() for value in graph.values.values()]
        if values:
            self.twins.sweep(self.data.draw(st.lists(st.sampled_from(values), max_size=5)))

    def store(self) -> None:
        """Let a value be data."""
        functions = [item.body for item in self.twins.model.functions.values()]
        values = [
            value
            for graph in self.graphs()
            for value in graph.values.values()
            if graph not in functions
            and (
                value.initializer_source is not None
                or (
                    value.producer is not None
                    and [out for out in value.producer.outputs if out is not None] == [value]
                )
            )
        ]
        value = self.a_value(values)
        if value is not None:
            self.twins.store(value, self.data.draw(ROWS))

    def rename(self) -> None:
        """Let a node make what is a copy of what it makes."""
        olds = [list(node.outputs) for graph in self.graphs() for node in graph]
        old = self.a_value([made[0] for made in olds if len(made) == 1 and made[0] is not None])
        if old is None or old.producer is None or not is_alone(old):
            return
        values = [
            value
            for value in visible(old.producer)
            if value.graph is old.graph and value.producer is not None and not value.returned_by
        ]
        value = self.a_value(values)
        if value is not None:
            self.twins.rename(value, old)

    def state(self) -> None:
        """State a type."""
        value = self.a_value()
        if value is None:
            return
        known = TensorType("float32", self.data.draw(st.sampled_from([None, (), (2, "n", None)])))
        value.graph.stated_types[value.name] = StatedType(known)
        value.graph.modified = True
        text = convert.encode_type("", known)
        text.ClearField("name")
        self.twins.editor.state(self.twins.values[value], text.SerializeToString())

    def new_constant(self) -> None:
        """Store a new value, and let a node read it."""
        node = self.a_node()
        if node is None or any(
            node.graph is item.body for item in self.twins.model.functions.values()
        ):
            return
        value = self.twins.new_value(node.graph, self.name())
        self.twins.store(value, self.data.draw(ROWS))
        made = self.twins.new_value(node.graph, self.name())
        self.twins.insert(node, [value, None], [made])

    def call(self) -> None:
        """Add a function, and a node that calls it."""
        node = self.a_node()
        if node is None:
            return
        name = self.name()
        self.add_function(name)
        inputs = self.inputs(node)
        made = self.twins.new_value(node.graph, self.name())
        self.twins.insert(node, inputs, [made], operator=("made", name))

    def add_function(self, name: str) -> None:
        """Add a function of two nodes."""
        twins = self.twins
        writer = BodyWriter(twins.model, name, {"": 18})
        given = [writer.add_input("x"), writer.add_input("y")]
        first = writer.add_node(("", "Add", ""), "first", given, {}, ["s"])
        last = writer.add_node(
            ("", "Split", ""), "", [first.outputs[0], None], {"n": Attribute("int", 2)}, ["p", "q"]
        )
        for value in last.outputs:
            assert value is not None
            writer.graph.add_output(value)
        function = Function("made", name, writer.graph)
        function.attributes = ("alpha",)
        function.metadata = {"key": "text"}
        twins.model.functions[function.key] = function
        proto = FunctionProto(domain="made", name=name, attribute=["alpha"])
        proto.metadata_props.add(key="key", value="text")
        editor = twins.editor
        graph = editor.add_function(proto.SerializeToString(), [b"x", b"y"], {"": 18})
        x, y = twins.table.given[graph].tolist()
        s, p, q = editor.add_values(graph, [b"s", b"p", b"q"]).tolist()
        text = encode_text("n", Attribute("int", 2))
        ids = editor.add(
            NewNodes(
                operator=np.array([editor.operator(b"", b"Add"), editor.operator(b"", b"Split")]),
                attributes=np.array([0, editor.attribute_set([text])]),
                graph=graph,
                in_count=np.array([2, 2]),
                inputs=np.array([x, y, s, OMITTED]),
                out_count=np.array([1, 2]),
                outputs=np.array([s, p, q]),
                names=[b"first", b""],
            )
        )
        editor.set_returned(graph, np.array([p, q]))
        twins.graphs[writer.graph] = graph
        twins.nodes |= dict(zip(writer.graph, ids.tolist(), strict=True))
        names = ("x", "y", "s", "p", "q")
        twins.values |= {
            writer.graph.values[name]: value
            for name, value in zip(names, (x, y, s, p, q), strict=True)
        }

    def imports(self) -> None:
        """Import another domain, in the model or in a function."""
        model = self.twins.model
        graphs = [model.graph, *(item.body for item in model.functions.values())]
        graph = self.data.draw(st.sampled_from(graphs))
        graph.opset_imports["made"] = self.data.draw(st.integers(1, 3))
        graph.modified = True
        self.twins.editor.set_imports(self.twins.graphs[graph], graph.opset_imports)

    def withhold(self) -> None:
        """Let stored values be no inputs, in a newer version of the format."""
        model = self.twins.model
        model.ir_version += 1
        model.graph.modified = True
        off = [value for value in model.graph.inputs if value.initializer_source is not None]
        for value in off:
            value.is_graph_input = False
            model.graph.inputs.remove(value)
        self.twins.editor.set_ir_version(model.ir_version)
        self.twins.editor.withhold(self.twins.rows(off))


STEPS = ["put", "put", "put", "rewire", "rewire", "sweep", "sweep", "store", "rename", "state"]
STEPS += ["new_constant", "call", "imports", "withhold"]


@pytest.mark.long
@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_random_edits(data: st.DataObject) -> None:
    """After each, all that always holds does, and the file is that of the object graph."""
    twins = Twins(data.draw(st.sampled_from([nested_model(), rich_model()])))
    steps = Steps(twins, data)
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=12)):
        getattr(steps, step)()
        twins.check()


def test_a_new_body() -> None:
    """It is written where its owner has its attribute, with what is stated of its values."""
    twins = Twins(nested_model())
    graph = twins.model.graph
    values = graph.values
    anchor = values["y"].producer
    assert anchor is not None
    made = twins.new_value(graph, "z")
    node = twins.insert(anchor, [values["c"]], [made], operator=("", "Loop"), name="again")
    body = Graph(twins.model, graph.opset_imports, owner=node)
    body.name, body.modified = "body", True
    before, behind = (Attribute("int", number) for number in (3, 4))
    node.attributes = {"a": before, "body": Attribute("graph", body), "z": behind}
    node.subgraphs = {"body": body}
    node.doc = "words"
    given, unused, result = (Value(name, body) for name in ("x", "unused", "r"))
    for value in (given, unused):
        value.is_graph_input = True
    body.inputs += [given, unused]
    body.values |= {value.name: value for value in (given, unused, result)}
    known = TensorType("float32", (2,))
    given.type_source = known
    inner = GraphRewriter(body)
    last = Node(body, "Add", "", "")
    last.inputs = (given, values["a"])
    last.attributes = {}
    record_uses(last)
    body.append(last)
    inner.take_over_outputs(last, [result])
    body.add_output(result)
    constant = inner.add_initializer("k", ArrayTensor(np.ones(2, np.float32)))

    editor, table = twins.editor, twins.table
    empty = AttributeProto(name="body", type=AttributeProto.GRAPH, g=GraphProto())
    texts = [encode_text("a", before), empty.SerializeToString(), encode_text("z", behind)]
    row = twins.nodes[node]
    table.nodes.attributes[row] = editor.attribute_set(texts)
    table.nodes.remark[row] = editor.remark(b"words")
    text = GraphProto(name="body").SerializeToString()
    number = editor.add_body(row, b"body", text, [b"x", b"unused"])
    (x, _) = table.given[number].tolist()
    stated = convert.encode_type("", known)
    stated.ClearField("name")
    editor.state(x, stated.SerializeToString())
    r, k = editor.add_values(number, [b"r", b"k"]).tolist()
    tensors = editor.add_tensors(*encoded_data(editor, np.ones(2, np.float32)))
    editor.store(np.array([k]), tensors)
    editor.add(
        NewNodes(
            operator=editor.operator(b"", b"Add"),
            graph=number,
            in_count=np.array([2]),
            inputs=np.array([x, twins.values[values["a"]]]),
            out_count=np.array([1]),
            outputs=np.array([r]),
        )
    )
    editor.set_returned(number, np.array([r]))
    assert constant.name == "k"
    twins.check()


def test_data_of_the_file_under_another_name() -> None:
    """It is copied but for its name, the data of a Constant too; sparse data is refused."""
    twins = Twins(nested_model())
    values = twins.model.graph.values
    table, editor = twins.table, twins.editor
    rewriter = GraphRewriter(twins.model.graph)
    inner = next(graph for graph in twins.model.graphs() if "two" in graph.values)
    sources = [(inner.values["w"], "copy"), (inner.values["two"], "second")]
    for source, name in sources:
        tensor = source.constant
        assert tensor is not None
        value = twins.new_value(twins.model.graph, name)
        rewriter.make_initializer(value, tensor)
        tensors = table.values.tensor[twins.rows([source])]
        editor.store(twins.rows([value]), tensors)
    twins.check()
    value = twins.new_value(twins.model.graph, "dense")
    editor.store(twins.rows([value]), table.values.tensor[twins.rows([values["thin"]])])
    with pytest.raises(TableError, match="sparse"):
        written(table)


def test_functions_that_are_taken_out() -> None:
    """With bodies in them, and what these read."""
    proto = nested_model()
    proto.functions[1].node.add().CopyFrom(
        helper.make_node("If", ["p"], ["q"], then_branch=GraphProto(), else_branch=GraphProto())
    )
    body = proto.functions[1].node[0].attribute[0].g
    body.node.add(op_type="Relu", input=["p"], output=["inner"])
    body.output.add(name="inner")
    twins = Twins(proto)
    (first, second) = list(twins.model.functions.values())
    twins.model.functions.pop(second.key)
    twins.model.graph.modified = True
    twins.editor.remove_functions([twins.graphs[second.body]])
    twins.check()
    with pytest.raises(TableError, match="no function"):
        twins.editor.remove_functions([0])
    assert first.key in twins.model.functions


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """What is read of them, however odd, is written alike by both writers."""
    text = bytearray(data.draw(st.sampled_from([nested_model(), rich_model()])).SerializeToString())
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[at] = data.draw(st.integers(0, 255))
    else:
        del text[at : at + data.draw(st.integers(1, 4))]
    try:
        proto = parse_model(bytes(text), Path("m.onnx"))
        model = model_from_proto(proto, Path(), "m.onnx")
        table = read_table(bytes(text), "m.onnx")
    except (DecodeError, DplError):
        return
    assert written(table) == bytes(text)
    encode_anew(table, model)
    if not table.original:
        assert written(table) == encoded(model)
        return
    # what protobuf would not write is lost, if the format does not know it either
    result, expected = (ModelProto.FromString(text) for text in (written(table), encoded(model)))
    expected.DiscardUnknownFields()
    result.DiscardUnknownFields()
    assert result == expected
