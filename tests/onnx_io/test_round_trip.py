"""What comes in goes out: every model at hand, touched and untouched."""

import random
from collections import Counter
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import DplError
from dplcli.ir import Model
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import is_modified, load_model, staged, to_proto
from tests.corpus.nets import each_model, listed_models
from tests.passes.rewriting import all_nodes as each_node
from tests.support.models import ir_of, parse

WHEEL = sorted((Path(onnx.__file__).parent / "backend/test/data").rglob("*.onnx"))
SHIPPED = sorted((Path(__file__).parents[2] / "sample_models").glob("*.onnx"))
CORPUS = [
    *(pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in WHEEL + SHIPPED),
    *(
        pytest.param(listed_models()[str(case.values[0])], id=f"models/{case.id}", marks=case.marks)
        for case in each_model(listed_models(), gate=8, first=5)
    ),
]

RICH = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1], producer_name: "maker",
 producer_version: "7", domain: "org", model_version: 3, doc_string: "doc",
 metadata_props: ["k" : "v"]>
g (float[N, 2] x, bool c) => (float[N, 2] y) <float[2] w = {1, 2}, float[N, 2] t> {
  [first] t = own.f <alpha = 2.0> (x, w)
  y = If (c) <then_branch = a () => (float[N, 2] p) { [in] p = Relu (t) },
              else_branch = b () => (float[N, 2] q) { q = Neg (t) }>
}
<domain: "own", opset_import: ["" : 18]>
f <alpha: float = 1.0, beta> (u, v) => (r) {
  [body] s = Add (u, v)
  r = LeakyRelu <alpha: float = @alpha> (s)
}
"""


def rich_model() -> onnx.ModelProto:
    """Return a model that fills every optional field of ONNX that text cannot express."""
    proto = parse(RICH)
    graph, function = proto.graph, proto.functions[0]
    inner = graph.node[1].attribute[0].g
    for item in (graph, graph.node[0], graph.input[0], graph.initializer[0], function):
        item.metadata_props.add(key="where", value=type(item).__name__)
        item.doc_string = "words"
    for item in (inner, inner.node[0], function.node[0]):
        item.metadata_props.add(key="inside", value="yes")
    graph.quantization_annotation.add(tensor_name="t")
    proto.training_info.add().algorithm.name = "training"
    proto.configuration.add(name="two", num_devices=2)
    graph.node[0].device_configurations.add(configuration_id="two")
    function.value_info.add(name="s").type.tensor_type.elem_type = 1
    return proto


def serialized(proto: onnx.ModelProto) -> bytes:
    """Return bytes that are equal exactly if two models are."""
    return bytes(proto.SerializeToString(deterministic=True))


def mark_modified(model: Model) -> None:
    """Make the exporter write every graph anew, and what every node reads and makes."""
    for graph in model.graphs():
        graph.modified = True
        for node in graph:
            node.rewired = True


def all_nodes(proto: onnx.ModelProto) -> Counter[bytes]:
    """Return the nodes of the main graph and of the functions, whatever their order."""
    groups = [proto.graph.node, *(function.node for function in proto.functions)]
    return Counter(node.SerializeToString(deterministic=True) for group in groups for node in group)


@pytest.mark.parametrize("path", CORPUS)
def test_a_model_comes_back_equal(path: Path) -> None:
    """A loaded model is sound and equal to its file, also when every graph is written anew."""
    data = path.read_bytes()
    original = serialized(onnx.ModelProto.FromString(data))
    model = load_model(path)
    check_structure(model)
    if model.notes:
        assert all_nodes(to_proto(model)) == all_nodes(onnx.ModelProto.FromString(data))
        return
    assert not is_modified(model)
    assert serialized(to_proto(model)) == original
    mark_modified(model)
    assert serialized(to_proto(model)) == original
    assert serialized(to_proto(model)) == original
    check_structure(model)


def without_empty_texts(proto: onnx.ModelProto) -> bytes:
    """Return a model whose nodes state no text that is empty."""
    for node in each_node(proto):
        for name in ("name", "domain", "doc_string", "overload"):
            if not getattr(node, name):
                node.ClearField(name)
    return serialized(proto)


@pytest.mark.parametrize("path", CORPUS)
def test_nodes_that_are_made_of_their_parts_are_equal(path: Path) -> None:
    """Operator, attributes, names and remarks are all that a file says of a node."""
    model = load_model(path)
    for graph in model.graphs():
        for node in graph:
            if not node.subgraphs:
                attributes, remarks = node.attributes, node.remarks
                node.source, node.remarks, node.attributes = None, remarks, attributes
        graph.modified = True
    result = to_proto(model)
    if model.notes:  # they were sorted
        return
    original = onnx.ModelProto.FromString(path.read_bytes())
    assert without_empty_texts(result) == without_empty_texts(original)


@given(st.data())
def test_changed_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """What is read of a file, however odd, is written again, whether or not it was edited."""
    text = bytearray(rich_model().SerializeToString())
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[at] = data.draw(st.integers(0, 255))
    else:
        del text[at : at + data.draw(st.integers(1, 4))]
    path = tmp_path_factory.getbasetemp() / "m.onnx"
    path.write_bytes(text)
    try:
        model = load_model(path)
    except DplError:
        return
    if model.notes:  # nodes were sorted, or bytes that are no text were spelled out
        return
    original = onnx.ModelProto.FromString(bytes(text))
    for touch in (lambda _model: None, mark_modified):
        touch(model)
        result = to_proto(model)
        for proto in (result, original):
            proto.DiscardUnknownFields()
        assert serialized(result) == serialized(original)


def test_the_corpora_are_found() -> None:
    """The wheel's models and the shipped ones are there, so the test above tests something."""
    assert len(WHEEL) > 100
    assert SHIPPED


@pytest.mark.parametrize("path", CORPUS[::40])
def test_an_untouched_model_is_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    """The file of an untouched model is the original, byte for byte."""
    with staged(load_model(path), tmp_path / "out.onnx") as written:
        written.commit()
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("touched", [False, True])
def test_metadata_survives(tmp_path: Path, *, touched: bool) -> None:
    """Every documentation, metadata, device, training and annotation field is kept."""
    path = tmp_path / "in.onnx"
    path.write_bytes(rich_model().SerializeToString())
    model = load_model(path)
    if touched:
        mark_modified(model)
    with staged(model, tmp_path / "out.onnx") as written:
        written.commit()
    result = onnx.ModelProto.FromString((tmp_path / "out.onnx").read_bytes())
    assert serialized(result) == serialized(rich_model())


def test_what_is_absent_stays_absent() -> None:
    """Optional fields that the file leaves out are left out again."""
    proto = onnx.ModelProto()
    proto.graph.node.add(op_type="Foo", output=["y"])
    expected = serialized(proto)
    model = ir_of(proto)
    mark_modified(model)
    assert serialized(to_proto(model)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_unsorted_nodes_come_back_sorted(seed: int) -> None:
    """Shuffled nodes load, are noted once, and are written sorted, none lost or changed."""
    source = onnx.ModelProto.FromString(
        (Path(__file__).parents[2] / "sample_models/light_squeezenet.onnx").read_bytes()
    )
    nodes = list(source.graph.node)
    random.Random(seed).shuffle(nodes)  # noqa: S311  # not for cryptography
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(source)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    model = ir_of(shuffled)
    check_structure(model)
    assert [note for note in model.notes if "order" in note] == model.notes
    assert len(model.notes) == 1
    assert is_modified(model)
    result = to_proto(model)
    assert all_nodes(result) == all_nodes(source)
    assert not ir_of(result).notes


def test_sorting_is_stable() -> None:
    """Only the nodes that must move do: independent nodes keep their order."""
    model = ir_of("g (float[2] x) => (d) { d = Neg (c) a = Relu (x) b = Abs (x) c = Sub (a, b) }")
    assert [node.op_type for node in model.graph] == ["Relu", "Abs", "Sub", "Neg"]


def test_writing_twice_gives_the_same(tmp_path: Path) -> None:
    """Exporting changes nothing: a second export of an edited model is the same file."""
    model = ir_of(rich_model())
    mark_modified(model)
    for name in ("one.onnx", "two.onnx"):
        with staged(model, tmp_path / name) as written:
            written.commit()
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
