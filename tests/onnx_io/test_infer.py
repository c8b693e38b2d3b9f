"""Types on demand: declared ones stay, inferred ones are added, and failure is a note."""

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from dplcli.ir import Model
from dplcli.onnx_io import load_model, to_proto
from tests.support.models import ir_of, node_making, parse

BODIES = """g (float[N, 2] x, bool c) => (y) {
  t = Relu (x)
  y = If (c) <then_branch = a () => (p) { u = Neg (t) p = Transpose (u) },
              else_branch = b () => (q) { q = Shape (t) }>
}"""
RECURSIVE = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
g (float[2] x) => (y) { t = Relu (x) y = o.f (t) }
<domain: "o", opset_import: ["" : 17, "o" : 1]> f (a) => (b) { b = o.f (a) }"""


def read(model: Model, name: str) -> str:
    """Return the known type of a value of the main graph."""
    return str(model.graph.values[name].known_type())


def test_missing_types_are_inferred_in_bodies_too() -> None:
    """Values without a declaration get a type, in bodies as well, once for the model."""
    model = ir_of(BODIES)
    assert read(model, "x") == "float32[N,2]"
    assert read(model, "t") == "float32[N,2]"
    bodies = node_making(model, "y").subgraphs
    assert str(bodies["then_branch"].values["p"].known_type()) == "float32[2,N]"
    assert str(bodies["then_branch"].values["u"].known_type()) == "float32[N,2]"
    assert str(bodies["else_branch"].values["q"].known_type()) == "int64[2]"
    assert model.notes == []


def test_types_in_bodies_are_known_after_an_export() -> None:
    """Looking at types after the model was written finds the same as before."""
    model = ir_of(BODIES)
    for graph in model.graphs():
        graph.modified = True
    to_proto(model)
    body = node_making(model, "y").subgraphs["then_branch"]
    assert str(body.values["u"].known_type()) == "float32[N,2]"


@pytest.mark.parametrize("declared", ["float32[7,2]", "float32[M,2]"])
def test_a_declared_type_stands(declared: str) -> None:
    """What the file declares is what is known, also where inference has another symbol."""
    stated = declared.replace("float32", "float")
    model = ir_of(f"g (float[N, 2] x) => (y) <{stated} t> {{ t = Relu (x) y = Neg (t) }}")
    assert read(model, "t") == declared
    assert model.notes == []


@pytest.mark.parametrize("rank_known", [False, True])
def test_a_partly_declared_type_is_completed(*, rank_known: bool) -> None:
    """A declaration without an element type or shape is completed by inference."""
    proto = parse("g (float[N, 2] x) => (float[] t) { t = Relu (x) }")
    tensor = proto.graph.output[0].type.tensor_type
    if rank_known:
        tensor.elem_type = 0
        tensor.shape.dim.add()
        tensor.shape.dim.add()
    assert read(ir_of(proto), "t") == "float32[N,2]"


def test_weights_are_not_needed() -> None:
    """Large initializers play their part by type only; small ones by value."""
    proto = parse("""g (float[N, 64] x) => (y)
        <int64[2] s = {-1, 32}> { t = MatMul (x, w) y = Reshape (t, s) }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((64, 64), "f4"), "w"))
    model = ir_of(proto)
    assert read(model, "t") == "float32[N,64]"
    assert read(model, "y").endswith(",32]")
    assert [tensor.name for tensor in proto.graph.initializer] == ["s", "w"]


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param("s = Concat <axis = 0> (a, b) y = Reshape (x, s)", id="concatenated"),
        pytest.param(
            "o = Shape (x) m = Mul (o, two) y = Reshape (x, m)",
            id="from-a-shape",
        ),
        pytest.param("y = o.f (x, two)", id="from-a-shape-in-a-function"),
    ],
)
def test_shapes_computed_in_the_graph_are_followed(nodes: str) -> None:
    """A shape that the graph computes from known numbers is known."""
    model = ir_of(f"""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 8] x) => (y)
        <int64[1] a = {{4}}, int64[1] b = {{16}}, int64[2] two = {{2, 2}}> {{ {nodes} }}
        <domain: "o", opset_import: ["" : 17]>
        f (u, v) => (r) {{ o = Shape (u) m = Mul (o, v) r = Reshape (u, m) }}""")
    assert read(model, "y") == "float32[4,16]"


def test_sparse_and_overridable_initializers_have_types() -> None:
    """Initializers of every sort count with their type."""
    proto = parse("""<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (y) <float[2] w = {1, 2}>
        { t = Add (x, w) y = Mul (t, s) }""")
    sparse = proto.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.int64), "i"))
    model = ir_of(proto)
    assert read(model, "t") == "float32[2]"
    assert read(model, "y") == "float32[2]"
    assert model.notes == []


def test_unsorted_files_have_types() -> None:
    """Inference looks at the sorted nodes, not at the file's order."""
    model = ir_of("g (float[2] x) => (y) { y = Relu (a) a = Neg (b) b = Abs (x) }")
    assert [read(model, name) for name in "bay"] == ["float32[2]"] * 3


def test_function_calls_are_seen_through() -> None:
    """The output of a model-local function has the type that its body computes, as inside."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x) => (y) { y = o.f (x) }
        <domain: "o", opset_import: ["" : 17]> f (a) => (b) { b = Transpose (a) }""")
    assert read(model, "y") == "float32[3,2]"
    assert str(model.functions["o", "f", ""].body.values["b"].known_type()) == "float32[3,2]"


def test_functions_without_an_end_are_a_note() -> None:
    """What they return stays unknown, and one line says so."""
    model = ir_of(RECURSIVE)
    for _ in range(2):
        assert model.graph.values["y"].known_type() is None
        assert read(model, "t") == "float32[2]"
    assert len(model.notes) == 1
    assert "functions that stand for endlessly many nodes" in model.notes[0]


def test_an_operator_that_nobody_knows_hides_nothing_else() -> None:
    """Even of a domain that is not imported."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (y) { t = Relu (x) y = stranger.Op (t) }""")
    assert model.graph.values["y"].known_type() is None
    assert read(model, "t") == "float32[2]"
    assert model.notes == []


def test_a_contradiction_is_no_exception() -> None:
    """A model whose types contradict themselves is typed as far as possible."""
    model = ir_of("""g (float[2] x) => (int64[9] y) <string[1, 1] t>
        { t = Relu (x) u = MatMul (t, x) y = Concat <axis = 7> (u, x) }""")
    assert read(model, "t") == "float32[2]"
    assert all(isinstance(read(model, name), str) for name in "uy")


def test_external_constant_does_not_hinder(tmp_path: Path) -> None:
    """A Constant node whose data lies beside the model, even missing, is typed."""
    proto = parse(
        "g (float[2] x) => (y) { c = Constant <value = float[2] {1, 2}> () y = Add (x, c) }"
    )
    tensor = proto.graph.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="missing.bin")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    model = load_model(tmp_path / "m.onnx")
    assert [read(model, name) for name in "cy"] == ["float32[2]"] * 2
    assert model.notes == []
