"""The table says what protobuf says of a model, and nothing that is broken gets into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, parser

from dplcli.errors import InvalidModelError
from dplcli.onnx_io.arrays import unnest
from dplcli.onnx_io.table import OMITTED, GraphKind, read_table
from dplcli.onnx_io.wire import PADDING
from tests.corpus.nets import ROOT, listed_models, real_model
from tests.helpers import thinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from dplcli.onnx_io.arrays import Ints
    from dplcli.onnx_io.table import Table


Graphs = dict[tuple[object, ...], dict[str, Any]]


def raw(text: str | bytes) -> bytes:
    """Return a text as it stands; protobuf gives bytes if they are not UTF-8."""
    return text.encode() if isinstance(text, str) else text


def raw_all(texts: Iterable[str | bytes]) -> list[bytes]:
    """Return texts as they stand."""
    return [raw(text) for text in texts]


def known(text: bytes) -> AttributeProto:
    """Return what is known of an attribute; what is not may go where protobuf must help."""
    attribute: AttributeProto = AttributeProto.FromString(text)
    attribute.DiscardUnknownFields()
    return attribute


def repeated(names: Sequence[str | bytes]) -> list[bytes]:
    """Return those of a name that come after its first."""
    return [raw(name) for place, name in enumerate(names) if name in names[:place]]


# what says that it is a number is one, whatever else it holds
MAY_HAVE_BODIES = (AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.GRAPHS)


def graphs_of(model: ModelProto) -> Graphs:
    """Describe every graph of a model as protobuf reads it, by the way to it."""
    found: Graphs = {}

    def add(way: tuple[object, ...], nodes: Iterable[NodeProto], **declared: object) -> None:
        nodes = list(nodes)
        found[way] = declared | {
            "nodes": [
                (
                    *raw_all((node.domain, node.op_type, node.overload)),
                    raw_all(node.input),
                    raw_all(node.output),
                    [known(item.SerializeToString()) for item in node.attribute],
                )
                for node in nodes
            ]
        }
        for place, node in enumerate(nodes):
            bodies = [
                graph
                for item in node.attribute
                if item.type in MAY_HAVE_BODIES
                for graph in ([item.g] if item.HasField("g") else list(item.graphs))
            ]
            for number, body in enumerate(bodies):
                add_graph((*way, place, number), body)

    def add_graph(way: tuple[object, ...], graph: GraphProto) -> None:
        stored = [tensor.name for tensor in graph.initializer]
        stored += [tensor.values.name for tensor in graph.sparse_initializer]
        add(
            way,
            graph.node,
            given=set(raw_all(info.name for info in graph.input)),
            stored=set(raw_all(stored)),
            returned=raw_all(info.name for info in graph.output),
            repeated=repeated([info.name for info in graph.input]) + repeated(stored),
        )

    add_graph(("main",), model.graph)
    for number, function in enumerate(model.functions):
        add(
            (number,),
            function.node,
            given=set(raw_all(function.input)),
            stored=set(),
            returned=raw_all(function.output),
            repeated=repeated(function.input),
        )
    return found


def names(table: Table, rows: Ints) -> list[bytes]:
    """Return the names of some values."""
    at, size = table.values.name_at[rows], table.values.name_size[rows]
    spans = zip(at.tolist(), (at + size).tolist(), strict=True)
    return [table.data[begin:end].tobytes() for begin, end in spans]


def read_by(table: Table, node: int) -> Ints:
    """Return the values that a node reads."""
    begin = table.nodes.in_at[node]
    return table.inputs[begin : begin + table.nodes.in_count[node]]


def made_by(table: Table, node: int) -> Ints:
    """Return the values that a node makes."""
    begin = table.nodes.out_at[node]
    return table.outputs[begin : begin + table.nodes.out_count[node]]


def graphs_in(table: Table) -> Graphs:
    """Describe every graph of a table, in the same way."""
    found: Graphs = {}
    ways = dict(ways_in(table))
    nodes, values = table.nodes, table.values

    for graph, way in ways.items():
        mine = np.flatnonzero(nodes.graph == graph)
        here = (values.graph == graph) & (np.arange(values.graph.size) != OMITTED)
        rows = [
            (
                *table.operators[nodes.operator[node]],
                names(table, read_by(table, node)),
                names(table, made_by(table, node)),
                [known(text) for text in table.attribute_sets[nodes.attributes[node]]],
            )
            for node in mine.tolist()
        ]
        is_stored = (values.tensor >= 0) & (values.producer < 0)
        found[way] = {
            "nodes": rows,
            "given": set(names(table, np.flatnonzero(here & values.given))),
            "stored": set(names(table, np.flatnonzero(here & is_stored))),
            "returned": names(table, table.returned[graph]),
            "repeated": [],
        }
    return found


def check_scopes(table: Table) -> None:
    """Check that a name stands for what is defined nearest, by a node that comes before."""
    nodes, values = table.nodes, table.values
    every = np.arange(values.graph.size)[OMITTED + 1 :]
    keys = zip(values.graph[every].tolist(), names(table, every), strict=True)
    defined = dict(zip(keys, every.tolist(), strict=True))
    assert len(defined) == every.size
    maker = np.full(values.graph.size, -1)
    maker[table.outputs] = unnest(nodes.out_at, nodes.out_count)[0]
    assert maker[every].tolist() == values.producer[every].tolist()

    def expected(graph: int, name: bytes) -> int:
        while graph >= 0 and (graph, name) not in defined:
            graph = table.graphs[graph].parent
        return defined.get((graph, name), -1) if name else OMITTED

    for graph, row in enumerate(table.graphs):
        returned = table.returned[graph]
        assert returned.tolist() == [expected(graph, name) for name in names(table, returned)]
        for node in np.flatnonzero(nodes.graph == graph).tolist():
            read, made = read_by(table, node), made_by(table, node)
            assert read.tolist() == [expected(graph, name) for name in names(table, read)]
            assert set(values.graph[made[made != OMITTED]].tolist()) <= {graph}
            sources = values.producer[read]
            for source in sources[sources >= 0].tolist():
                reader, around = node, row  # or the node outside that holds it
                while nodes.graph[reader] != nodes.graph[source]:
                    reader, around = around.owner, table.graphs[around.parent]
                assert source < reader


def ways_in(table: Table) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Yield each graph and the way to it."""
    ways: dict[int, tuple[object, ...]] = {}
    for number, graph in enumerate(table.graphs):
        if graph.kind is GraphKind.BODY:
            before = [k for k in range(number) if table.graphs[k].owner == graph.owner]
            place = graph.owner - int(np.flatnonzero(table.nodes.graph == graph.parent)[0])
            ways[number] = (*ways[graph.parent], place, len(before))
        else:
            ways[number] = ("main",) if graph.kind is GraphKind.MAIN else (number - 1,)
        yield number, ways[number]


def check_file(data: bytes) -> Table:
    """Check that the table of a file is right."""
    table = read_table(data, "m.onnx")
    check_scopes(table)
    model = ModelProto.FromString(data)
    if table.sorted:
        before, model = model, ModelProto.FromString(table.data.tobytes()[:-PADDING])
        assert sorted(map(repr, before.graph.node)) == sorted(map(repr, model.graph.node))
    assert graphs_in(table) == graphs_of(model)
    for value in np.flatnonzero(table.values.tensor >= 0).tolist():
        row = table.values.tensor[value]
        text = table.data[table.tensors.begin[row] : table.tensors.end[row]].tobytes()
        if table.values.producer[value] < 0:
            assert names(table, np.array([value]))[0] in text
        TensorProto.FromString(text)
    return table


MODELS = sorted((ROOT / "sample_models").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_models_of_the_project(path: Path) -> None:
    """All graphs, nodes, names and tensors, and the bytes themselves."""
    data = path.read_bytes()
    table = check_file(data)
    assert table.data[:-PADDING].tobytes() == data


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(12, listed_models(), first=5))
def test_real_models(name: str) -> None:
    """The same for the corpus."""
    check_file(real_model(name).read_bytes())


NESTED = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "d" : 1]>
main (float[2] x, bool c, float[2] w) => (float[2] y, float[2] seen)
<float[2] w = {1.0, 2.0}, float[2] k = {3.0, 4.0}>
{
  a = Add (x, w)
  seen = Identity (a)
  y = If (c) <
    then_branch = then () => (float[2] t) <float[2] w = {5.0, 6.0}> {
      two = Constant <value = float {2.0}> ()
      inner = If (c) <
        then_branch = deep () => (float[2] d) { d = Mul (a, two) },
        else_branch = other () => (float[2] a) { a = Mul (w, k) }
      >
      t = Clip (inner, , two)
    },
    else_branch = els () => (float[2] e) { e = d.f <n = 3> (a, k) }
  >
}
<domain: "d", opset_import: ["" : 21]>
f <n> (p, q) => (r) { s = Add (p, q)  r = Relu (s) }
<domain: "d", opset_import: ["" : 21]>
g (p) => (p) { }
""")


def test_bodies_and_functions() -> None:
    """What is captured is the value outside; a name defined again inside is another one."""
    table = check_file(NESTED.SerializeToString())
    kinds = [graph.kind for graph in table.graphs]
    assert kinds == [
        GraphKind.MAIN,
        *[GraphKind.FUNCTION] * 2,
        *[GraphKind.BODY] * 4,
    ]
    texts = names(table, np.arange(table.values.graph.size))
    assert {*texts} >= {b"a", b"w", b"k", b"two"}
    outer, inner = (value for value, name in enumerate(texts) if name == b"a")
    assert table.values.graph[outer] == 0 != table.values.graph[inner]
    # seen, Mul in the innermost body and d.f read the outer one; the inner one is only returned
    assert [np.count_nonzero(table.inputs == value) for value in (outer, inner)] == [3, 0]


def test_equal_parts_share_a_number() -> None:
    """Operators, and sets of attributes in the order in which the file has them."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    m (float[N] x) => (float[N] y) {
      a = LeakyRelu <alpha = 0.5> (x)
      b = LeakyRelu <alpha = 0.5> (a)
      c = LeakyRelu <alpha = 0.25> (b)
      y = Elu <alpha = 0.5> (c)
    }
    """
    table = check_file(parser.parse_model(text).SerializeToString())
    assert len(set(table.nodes.operator.tolist())) == len(table.operators) == 2
    first, second, third, last = table.nodes.attributes.tolist()
    assert first == second == last != third
    assert table.attribute_sets[0] == ()


def model_of(*nodes: NodeProto, **declared: Any) -> bytes:  # noqa: ANN401  # of a graph
    """Return a model of some nodes; x is an input."""
    given = helper.make_tensor_value_info("x", 1, [2])
    graph = GraphProto(node=nodes, input=[given], **declared)
    data: bytes = ModelProto(ir_version=10, graph=graph).SerializeToString()
    return data


def relu(read: str, made: str) -> NodeProto:
    """Return a node."""
    return helper.make_node("Relu", [read], [made])


def test_nodes_out_of_order_are_sorted() -> None:
    """Each follows what it, or a node in its body, reads, and otherwise as they stand."""
    body = GraphProto(node=[relu("late", "out")])
    body.output.add(name="out")
    owner = helper.make_node("Loop", [""], ["z"], body=body)
    data = model_of(relu("x", "a"), owner, relu("b", "late"), relu("a", "b"))
    table = read_table(data, "m.onnx")
    check_scopes(table)
    main = np.flatnonzero(table.nodes.graph == 0)
    made = [name for node in main.tolist() for name in names(table, made_by(table, node))]
    assert made == [b"a", b"b", b"late", b"z"]
    assert table.sorted == [0]
    assert table.notes == ["m.onnx: the nodes were not in topological order; sorted"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            model_of(relu("gone", "y")),
            "Relu 'y' reads 'gone', which nothing defines",
            id="undefined",
        ),
        pytest.param(
            model_of(relu("x", "y"), relu("x", "y")),
            "'y' is made twice, again by Relu 'y'",
            id="made-twice",
        ),
        pytest.param(
            model_of(relu("x", "x")), "'x' is made twice, again by Relu 'x'", id="made-and-given"
        ),
        pytest.param(
            model_of(initializer=[TensorProto(name="k"), TensorProto(name="k")]),
            "two initializers are named 'k'",
            id="stored-twice",
        ),
        pytest.param(model_of(relu("b", "a"), relu("a", "b")), "on or behind a cycle", id="circle"),
    ],
)
def test_a_broken_model_is_refused(data: bytes, message: str) -> None:
    """With what is wrong, and where."""
    with pytest.raises(InvalidModelError, match=message) as caught:
        read_table(data, "m.onnx")
    assert caught.value.message.startswith("m.onnx: invalid model: ")


@pytest.mark.parametrize("data", [b"", model_of()], ids=["empty-file", "no-nodes"])
def test_a_model_of_nothing(data: bytes) -> None:
    """It has a main graph without nodes."""
    table = check_file(data)
    assert table.nodes.graph.size == 0
    assert [graph.kind for graph in table.graphs] == [GraphKind.MAIN]


def test_what_protobuf_would_not_write_is_read_as_protobuf_reads_it() -> None:
    """A graph in two parts is merged, numbers with needless bytes are read."""
    parts = [
        ModelProto(graph=GraphProto(node=[relu("x", "a")])),
        ModelProto(graph=GraphProto(node=[relu("a", "b")])),
    ]
    parts[0].graph.input.add(name="x")
    data = b"".join(part.SerializeToString() for part in parts)
    assert check_file(data).nodes.graph.size == 2
    size = len(parts[0].graph.SerializeToString())
    assert size < 128
    odd = b"\x3a" + bytes([size | 128, 0]) + parts[0].graph.SerializeToString()
    assert check_file(odd).nodes.graph.size == 1


def odd_files() -> dict[str, bytes]:
    """Return files with what is rare, or with what a later version of ONNX may have."""
    models = {name: ModelProto() for name in ("sparse", "a body in a number", "remarks", "long")}
    for model in models.values():
        model.CopyFrom(NESTED)
    models["sparse"].graph.sparse_initializer.add(dims=[4]).values.name = "s"
    models["a body in a number"].graph.node[2].attribute[0].type = AttributeProto.INT
    node, stored = models["remarks"].graph.node[0], models["remarks"].graph.initializer[0]
    node.doc_string = "a sum: größer"
    node.metadata_props.add(key="a", value="ü")
    stored.data_location = TensorProto.EXTERNAL
    stored.external_data.add(key="location", value="w.bin")
    models["long"].graph.node[0].attribute.add(name="n" * 300, type=AttributeProto.INTS).ints[:] = [
        -1,
        640,
        1 << 62,
    ]
    found = {name: model.SerializeToString() for name, model in models.items()}
    data = NESTED.SerializeToString()
    found["no graph"] = ModelProto(ir_version=10).SerializeToString()
    found["an unknown field"] = data + b"\xa2\x7d\x01\x00"
    found["a field stated twice"] = data + b"\x08\x0a"
    found["another type than its own"] = data.replace(b"\x0a\x05value\x2a", b"\x0a\x05value\x2b")
    return found


ODD = odd_files()


@pytest.mark.parametrize("name", ODD)
def test_what_is_rare_is_read_as_protobuf_reads_it(name: str) -> None:
    """Or refused as protobuf refuses it."""
    try:
        ModelProto.FromString(ODD[name])
    except DecodeError:
        with pytest.raises(DecodeError):
            read_table(ODD[name], "m.onnx")
    else:
        check_file(ODD[name])


def names_are_broken(model: ModelProto) -> bool:
    """Tell whether a name is defined twice in a graph, or is nowhere where it is read."""
    graphs = graphs_of(model)
    defined: dict[tuple[object, ...], list[bytes]] = {}
    for way, graph in graphs.items():
        made = [name for node in graph["nodes"] for name in node[4] if name]
        defined[way] = [*(graph["given"] | graph["stored"]), *made]
        defined[way] += graph["repeated"]

    def is_seen(name: bytes, way: tuple[object, ...]) -> bool:
        return name in defined[way] or (len(way) > 1 and is_seen(name, way[:-2]))

    reads = [
        (name, way)
        for way, graph in graphs.items()
        for name in (*graph["returned"], *(name for node in graph["nodes"] for name in node[3]))
    ]
    is_twice = any(len(set(names)) < len(names) for names in defined.values())
    return is_twice or any(name and not is_seen(name, way) for name, way in reads)


def holds_text_alone(message: Message) -> bool:
    """Tell whether all strings of a message are text; protobuf shows others as bytes."""
    for found, value in message.ListFields():
        items = value if found.is_repeated else [value]
        if found.type == found.TYPE_STRING and any(isinstance(item, bytes) for item in items):
            return False
        if found.message_type and not all(map(holds_text_alone, items)):
            return False
    return True


@given(st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """Protobuf refuses it, or the graph is refused by name, or it is read as protobuf reads it."""
    text = bytearray(NESTED.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        if data.draw(st.booleans()):
            text[at] = data.draw(st.integers(0, 255))
        else:
            del text[at : at + data.draw(st.integers(1, 4))]
    try:
        ModelProto.FromString(bytes(text))
    except DecodeError:
        with pytest.raises(DecodeError):
            read_table(bytes(text), "m.onnx")
        return
    if names_are_broken(ModelProto.FromString(bytes(text))):
        with pytest.raises(InvalidModelError):
            read_table(bytes(text), "m.onnx")
        return
    try:
        table = read_table(bytes(text), "m.onnx")
    except InvalidModelError as error:
        is_text = holds_text_alone(ModelProto.FromString(bytes(text)))
        if "cycle" not in error.message and ("UTF-8" not in error.message or is_text):
            raise
    else:
        check_scopes(table)
        assert graphs_in(table) == graphs_of(ModelProto.FromString(bytes(text)))
