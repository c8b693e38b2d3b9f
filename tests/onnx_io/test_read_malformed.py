"""Whatever stands in a file, loading it gives a model or one line that says what is wrong."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli import pipeline
from dplcli.errors import DplError, InvalidModelError, ModelLoadError
from dplcli.ir import Model
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import load_model, to_proto
from dplcli.onnx_io.scratch import functions_from_text, model_from_text
from dplcli.settings import RewriteSettings
from tests.support.helpers import print_graph
from tests.support.models import ir_of, parse
from tests.support.strategies import within

VICTIM = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}, float[2] u> {
  [first] t = o.f <alpha = 2.0> (x, w)
  u = Clip (t, , w)
  y = If (c) <then_branch = a () => (float[2] p) { p = Relu (u) },
              else_branch = b () => (float[2] q) { k = Constant <value_ints = [1]> () q = Neg (u) }>
}
<domain: "o", opset_import: ["" : 17]>
f <alpha> (m, n) => (r) { s = Add (m, n) r = LeakyRelu <alpha: float = @alpha> (s) }
"""
BYTES = parse(VICTIM).SerializeToString()
ONE_LINE = re.compile(r"[^\n]+")


def load_bytes(folder: Path, data: bytes) -> Model:
    """Load *data* from a file."""
    path = folder / "broken.onnx"
    path.write_bytes(data)
    return load_model(path)


def use_everything(model: Model) -> None:
    """Look at each part that is decoded late, and write the model."""
    check_structure(model)
    for graph in model.graphs():
        graph.modified = True
        print_graph(graph)
        for node in graph:
            attribute_of(node, "axis")
        for value in graph.values.values():
            str(value.known_type())
            if value.constant is not None and value.constant.size < 100:
                value.constant.numpy()
    to_proto(model).SerializeToString()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", id="lfs"),
        pytest.param(b'{"this": "is json"}', "is a text file", id="json"),
        pytest.param(b"<html>\r\n\t<body>404", "is a text file", id="html"),
        pytest.param("über\n".encode(), "is a text file", id="utf-8"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0", "is not an ONNX model", id="png"),
        pytest.param(b"\0" * 100, "is not an ONNX model", id="zeros"),
        pytest.param(b"PK\x03\x04\x14\0\0\0", "is not an ONNX model", id="zip"),
        pytest.param(b"\x08\x08", "holds no graph", id="no-graph"),
        pytest.param(BYTES[: len(BYTES) // 2], "cut off", id="half"),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, data: bytes, reason: str) -> None:
    """The message is one line: the file, and what is wrong with it."""
    with pytest.raises(ModelLoadError) as caught:
        load_bytes(tmp_path, data)
    message = caught.value.message
    assert message.startswith(str(tmp_path / "broken.onnx"))
    assert reason in message
    assert ONE_LINE.fullmatch(message)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """A missing path, a directory and a path through a file are told apart."""
    (tmp_path / "file").write_bytes(BYTES)
    for path, reason in (
        (tmp_path / "absent.onnx", "no such file"),
        (tmp_path, "is a directory"),
        (tmp_path / "file" / "m.onnx", "cannot be read"),
        (tmp_path / ("n" * 300), "cannot be read"),
    ):
        with pytest.raises(ModelLoadError, match=reason) as caught:
            load_model(path)
        assert caught.value.message.startswith(str(path))


def without_outputs(proto: onnx.ModelProto) -> None:
    """Put a nameless node without outputs behind a cycle."""
    sink = onnx.helper.make_node("Sink", ["a"], [])
    proto.graph.node.insert(0, sink)


def nothing(_: onnx.ModelProto) -> None:
    """Change nothing."""


def again(field: str) -> Callable[[onnx.ModelProto], None]:
    """Return a change that repeats the first item of a field of the graph."""

    def change(proto: onnx.ModelProto) -> None:
        items = getattr(proto.graph, field)
        items.append(items[0])

    return change


def function_again(proto: onnx.ModelProto) -> None:
    """Define the first function twice."""
    proto.functions.append(proto.functions[0])


def function_input_again(proto: onnx.ModelProto) -> None:
    """List a function's input twice."""
    proto.functions[0].input.append(proto.functions[0].input[0])


FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
g (float[2] x) => (y) {{ y = o.f (x) }}
<domain: "o", opset_import: ["" : 17]> f (a) => (b) {{ {} }}"""


@pytest.mark.parametrize(
    ("text", "change", "reason"),
    [
        pytest.param("g (x) => (y) { y = Add (x, z) }", nothing, "'z'", id="undefined"),
        pytest.param("g (x) => (y) { y = Add (x, y) }", nothing, "'y'", id="own-output"),
        pytest.param("g (x) => (b) { a = Add (x, b) b = Neg (a) }", nothing, "cycle", id="cycle"),
        pytest.param(
            "g (x) => (b) { a = Add (x, b) b = Neg (a) }", without_outputs, "cycle", id="no-name"
        ),
        pytest.param("g (x) => (z) { y = Neg (x) }", nothing, "'z'", id="output-never-made"),
        pytest.param("g (x) => (y) { y = Neg (x) y = Abs (x) }", nothing, "'y'", id="twice"),
        pytest.param("g (x) => (x) { x = Neg (x) }", nothing, "'x'", id="remakes-input"),
        pytest.param("g (x) => (y) { y, y = Foo (x) }", nothing, "'y'", id="twice-in-a-node"),
        pytest.param("g (x) => (x) { }", again("input"), "'x'", id="input-twice"),
        pytest.param(
            "g () => (w) <float w = {1}> { }", again("initializer"), "'w'", id="initializer-twice"
        ),
        pytest.param(FUNCTION.format("b = Add (a, x)"), nothing, "'x'", id="function-captures"),
        pytest.param(FUNCTION.format("c = Neg (a)"), nothing, "'b'", id="function-output"),
        pytest.param(FUNCTION.format("b = Neg (a)"), function_again, "'?f'?", id="two-functions"),
        pytest.param(FUNCTION.format("b = Neg (a)"), function_input_again, "'a'", id="parameter"),
        pytest.param(
            """g (x, bool c) => (y) { y = If (c) <then_branch = t () => (p) { p = Neg (q) },
               else_branch = e () => (q) { q = Abs (x) }> }""",
            nothing,
            "'q'",
            id="sibling-body",
        ),
        pytest.param(
            "g (x, bool c) => (p) { y = If (c) <then_branch = t () => (p) { p = Neg (x) }> }",
            nothing,
            "'p'",
            id="out-of-a-body",
        ),
    ],
)
def test_a_graph_that_contradicts_itself(
    tmp_path: Path, text: str, change: Callable[[onnx.ModelProto], None], reason: str
) -> None:
    """The message is one line that names the file and the value, node or function."""
    proto = parse(text)
    change(proto)
    with pytest.raises(InvalidModelError, match=reason) as caught:
        load_bytes(tmp_path, proto.SerializeToString())
    assert caught.value.message.startswith(str(tmp_path / "broken.onnx"))
    assert ONE_LINE.fullmatch(caught.value.message)


def constant_of(proto: onnx.ModelProto, name: str) -> None:
    """Decode one constant of a model."""
    constant = ir_of(proto).graph.values[name].constant
    assert constant is not None
    constant.numpy()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda w: setattr(w, "data_type", 99), id="unknown-element-type"),
        pytest.param(lambda w: setattr(w, "data_type", 0), id="undefined-element-type"),
        pytest.param(lambda w: setattr(w, "data_type", 7), id="data-of-another-type"),
        pytest.param(lambda w: w.dims.append(7), id="too-short"),
        pytest.param(lambda w: w.dims.append(1 << 62), id="huge-dimension"),
        pytest.param(lambda w: setattr(w, "raw_data", b"abc"), id="odd-number-of-bytes"),
        pytest.param(lambda w: setattr(w, "data_location", 1), id="external-nowhere"),
        pytest.param(lambda w: w.segment.SetInParent(), id="segment"),
    ],
)
def test_a_broken_constant(change: Callable[[onnx.TensorProto], None]) -> None:
    """Data that does not fit the declaration is an error when, and only when, it is read."""
    proto = parse("g (float[2] x) => (y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    change(proto.graph.initializer[0])
    with pytest.raises(ModelLoadError, match="'w'"):
        constant_of(proto, "w")


@pytest.mark.parametrize(
    ("indices", "size"),
    [([77], 2), ([-3], 2), ([[0, 0]], 2), ([0, 1], 2), ([0], 1 << 60)],
)
def test_a_broken_sparse_constant(indices: list[object], size: int) -> None:
    """Indices outside the shape, of a wrong rank or number, and absurd sizes are load errors."""
    proto = parse("g (float[2] x) => (y) { y = Add (x, s) }")
    sparse = proto.graph.sparse_initializer.add(dims=[size])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array(indices), "i"))
    with pytest.raises(ModelLoadError):
        constant_of(proto, "s")


def try_to_use(folder: Path, data: bytes) -> None:
    """Load *data* and use all of it, which may only fail with an error of dpl."""
    try:
        use_everything(load_bytes(folder, data))
    except DplError as error:
        assert ONE_LINE.fullmatch(error.message)  # noqa: PT017  # success is as good


def test_any_prefix(tmp_path: Path) -> None:
    """However much of a model is missing, nothing worse than an error of dpl comes of it."""
    for length in range(len(BYTES)):
        try_to_use(tmp_path, BYTES[:length])


@pytest.mark.long
@given(flips=st.lists(st.integers(0, len(BYTES) * 8 - 1), min_size=1, max_size=4))
def test_any_flipped_bits(tmp_path: Path, flips: list[int]) -> None:
    """Whichever bits are wrong, nothing worse than an error of dpl comes of it."""
    data = bytearray(BYTES)
    for flip in flips:
        data[flip // 8] ^= 1 << flip % 8
    try_to_use(tmp_path, bytes(data))


@pytest.mark.parametrize("word", [b"Clip", b"first", b"alpha", b"value_ints", b"then_branch"])
def test_text_that_is_not_utf8(tmp_path: Path, word: bytes) -> None:
    """Names that are not UTF-8 are an error of dpl or are carried, but never crash."""
    try_to_use(tmp_path, BYTES.replace(word, b"\xff" * len(word)))


@pytest.mark.parametrize("where", ["initializer", "node", "function", "metadata"])
def test_all_text_is_looked_at(tmp_path: Path, where: str) -> None:
    """The data of weights alone is not looked at; all names are."""
    proto = parse(VICTIM)
    proto.graph.initializer[0].raw_data = b"\xff" * 8
    proto.graph.initializer[0].ClearField("float_data")
    load_bytes(tmp_path, proto.SerializeToString())
    named = {
        "initializer": proto.graph.initializer[0],
        "node": proto.graph.node[1],
        "function": proto.functions[0],
        "metadata": proto.graph.initializer[0].metadata_props.add(),
    }[where]
    setattr(named, "key" if where == "metadata" else "name", "unheard")
    data = proto.SerializeToString().replace(b"unheard", b"\xff" * 7)
    with pytest.raises(InvalidModelError, match="is not UTF-8 text"):
        load_bytes(tmp_path, data)


def field(number: int, data: bytes) -> bytes:
    """Return one length-delimited field as it stands in a file."""
    size, varint = len(data), bytearray()
    while size > 0x7F:
        varint.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *varint, size]) + data


def nested_ifs(depth: int) -> bytes:
    """Return a model of Ifs in one another, deeper than protobuf's Python would build."""
    text = """g (float[2] x, bool c) => (z) {
        z = If (c) <then_branch = t () => (z) { z = Neg (x) }> }"""
    outer, inner = parse(text).graph, parse(text).graph.node[0].attribute[0].g
    node = outer.node[0]
    attribute = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH)
    del outer.node[:]
    del node.attribute[:]
    shell = onnx.GraphProto(name="t", output=inner.output).SerializeToString()
    body = inner.SerializeToString()
    for level in range(depth):
        branch = field(5, attribute.SerializeToString() + field(6, body))
        around = outer.SerializeToString() if level == depth - 1 else shell
        body = field(1, node.SerializeToString() + branch) + around
    header = parse("g () => () { }")
    header.ClearField("graph")
    return bytes(header.SerializeToString()) + field(7, body)


def test_bodies_nested_as_deep_as_protobuf_allows(tmp_path: Path) -> None:
    """Thirty Ifs in one another load; more than protobuf reads is an error of dpl."""
    model = load_bytes(tmp_path, nested_ifs(30))
    use_everything(model)
    assert len(list(model.graphs())) == 31
    with pytest.raises(ModelLoadError):
        load_bytes(tmp_path, nested_ifs(200))


@pytest.mark.parametrize("depth", [47, 48])
def test_types_nested_as_deep_as_protobuf_allows(tmp_path: Path, depth: int) -> None:
    """Whatever can be read can be looked at; one level more is refused when the file is read."""
    proto = parse("g (float[2] x) => (y) { y = Identity (x) }")
    for _ in range(depth):
        inner = proto.graph.input[0].type.SerializeToString()
        proto.graph.input[0].type.Clear()
        proto.graph.input[0].type.sequence_type.elem_type.ParseFromString(inner)
    if depth == 48:  # of the parameters
        with pytest.raises(ModelLoadError, match="nest deeper than protobuf reads"):
            load_bytes(tmp_path, proto.SerializeToString())
        return
    use_everything(load_bytes(tmp_path, proto.SerializeToString()))


NESTING = {
    "types": "g ({0}float{1} x) => (y) {{ y = Identity (x) }}",
    "bodies": "g (bool b) => (y) {{ {0}y = Not (b){1} }}",
}
LEVEL = {
    "types": ("seq(", ")"),
    "bodies": ("y = If (b) <then_branch = t () => (z) { ", " }>"),
}


@pytest.mark.parametrize("depth", [60, 900, 100_000])
@pytest.mark.parametrize("kind", NESTING)
def test_text_that_nests_without_end(kind: str, depth: int) -> None:
    """One line; onnx's parser would end the process, or make what protobuf cannot read."""
    begin, end = (part * depth for part in LEVEL[kind])
    with (
        within(5),
        pytest.raises(InvalidModelError, match=r"x: is not a model in ONNX text: ") as caught,
    ):
        model_from_text(NESTING[kind].format(begin, end), "x")
    assert ONE_LINE.fullmatch(caught.value.message)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "g (float[2] x) => (float[2] y) {\n  y = Relu x) }",
            "line 2, column 12, near 'y = Relu x) }': Expected character ( not found.",
        ),
        ("g (float[99999999999999999999] x) => (x) { }", "a number in it is too large"),
        ("g (float x) => (y) { y = Op <a = 1e999> (x) }", "a number in it is too large"),
    ],
)
@pytest.mark.parametrize("read", [model_from_text, functions_from_text])
def test_text_that_is_wrong_says_where(
    read: Callable[[str, str], object], text: str, said: str
) -> None:
    """In the lines of the text itself; without the bytes' own notation."""
    with pytest.raises(InvalidModelError) as caught:
        read(text, "x")
    assert caught.value.message.endswith(f": {said}")


def test_long_text_is_read_or_refused_in_time() -> None:
    """As long as a catalogue may be."""
    nodes = " ".join(f"v{number + 1} = Relu (v{number})" for number in range(50_000))
    with within(5):
        model = model_from_text(f"g (float[2] v0) => (float[2] v50000) {{ {nodes} }}", "x")
    assert model.graph.node_count == 50_000


@pytest.mark.parametrize("field", ["initializer", "sparse_initializer"])
def test_a_tensor_without_anything_outlives_a_rewrite(tmp_path: Path, field: str) -> None:
    """The checker refuses such a file; what is written has what was read."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3] x) => (float[3] y) {
        a = Constant <value = int64[1] {0}> () y = ReduceSum <keepdims = 0> (x, a) }"""
    )
    getattr(model.graph, field).add()
    path, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(model.SerializeToString())

    outcome = pipeline.rewrite(
        path, RewriteSettings(output=output, patterns=["prepare"], verify=False)
    )

    assert outcome.is_changed
    kept = getattr(onnx.load(output).graph, field)
    assert [tensor.ByteSize() for tensor in kept].count(0) == 1
