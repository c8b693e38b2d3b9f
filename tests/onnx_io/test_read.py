"""Models that are well-formed in unusual ways load as what they mean."""

import contextlib
import gc
import weakref

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from dplcli.errors import InvalidModelError
from dplcli.ir.traversal import check_structure, users
from dplcli.onnx_io import paused_gc, to_proto
from tests.support.models import ir_of, node_making, parse, read_values

UNSORTED_CAPTURE = """g (float[2] x, bool c) => (float[2] y) {
  y = If (c) <then_branch = t () => (float[2] p) { p = Neg (late) },
              else_branch = e () => (float[2] q) { q = Identity (x) }>
  late = Relu (x)
}"""
UNSORTED_BODY = """g (float[2] x, bool c) => (float[2] y) {
  y = If (c) <then_branch = t () => (float[2] p) { p = Neg (late) late = Relu (x) },
              else_branch = e () => (float[2] q) { q = Identity (x) }>
}"""
SHADOWED = """g (float[2] x, bool c) => (float[2] y) {
  v = Relu (x)
  y = If (c) <then_branch = t () => (float[2] p) { v = Neg (x) p = Abs (v) },
              else_branch = e () => (float[2] q) { q = Identity (v) }>
}"""
CAPTURED_OUTPUT = """g (float[2] x, bool c) => (float[2] y) {
  v = Relu (x)
  y = If (c) <then_branch = t () => (float[2] v) { },
              else_branch = e () => (float[2] q) { q = Identity (v) }>
}"""


def old_model(ir_version: int) -> onnx.ModelProto:
    """Return an opset 7 model whose initializer is listed as an input."""
    return parse(
        f'<ir_version: {ir_version}, opset_import: ["" : 7]>'
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }"
    )


@pytest.mark.parametrize(("ir_version", "constant"), [(3, True), (4, False), (10, False)])
def test_initializer_that_is_an_input(ir_version: int, *, constant: bool) -> None:
    """Before IR 4 an initializer must be listed as an input; from IR 4 that makes it a default."""
    model = ir_of(old_model(ir_version))
    check_structure(model)
    weight = model.graph.values["w"]
    assert [value.name for value in model.graph.inputs] == ["x", "w"]
    assert (weight.is_initializer, weight.is_graph_input) == (True, True)
    assert weight.is_constant is constant
    assert (weight.constant is not None) is constant


@pytest.mark.parametrize("ir_version", [3, 8])
def test_plain_initializer_is_constant(ir_version: int) -> None:
    """An initializer that is no input is constant at any IR version."""
    proto = old_model(ir_version)
    del proto.graph.input[1]
    weight = ir_of(proto).graph.values["w"]
    assert weight.is_constant
    assert weight.constant is not None
    np.testing.assert_array_equal(weight.constant.numpy(), np.array([1, 2], np.float32))


def test_unsorted_capture() -> None:
    """A body may capture what the file makes later: the If is sorted behind it."""
    model = ir_of(UNSORTED_CAPTURE)
    check_structure(model)
    assert [node.op_type for node in model.graph] == ["Relu", "If"]
    late = model.graph.values["late"]
    assert [node.op_type for node in users(late)] == ["If"]


def test_unsorted_body_is_written_sorted() -> None:
    """A body whose nodes are out of order is noted and comes back sorted too."""
    model = ir_of(UNSORTED_BODY)
    check_structure(model)
    assert len(model.notes) == 1
    body = to_proto(model).graph.node[0].attribute[0].g
    assert [node.op_type for node in body.node] == ["Relu", "Neg"]


def test_unsorted_function_is_written_sorted() -> None:
    """A function whose nodes are out of order is noted and comes back sorted too."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2] x) => (float[2] y) { y = o.f (x) }
        <domain: "o", opset_import: ["" : 17]> f (a) => (c) { c = Neg (b) b = Relu (a) }""")
    check_structure(model)
    assert len(model.notes) == 1
    assert [node.op_type for node in to_proto(model).functions[0].node] == ["Relu", "Neg"]


def test_shadowed_name() -> None:
    """A name made again inside a body is another value, in the body only."""
    model = ir_of(SHADOWED)
    check_structure(model)
    branch = node_making(model, "y").subgraphs
    inner, outer = branch["then_branch"].values["v"], model.graph.values["v"]
    assert inner is not outer
    assert [node.op_type for node, _ in inner.uses] == ["Abs"]
    assert [node.op_type for node, _ in outer.uses] == ["Identity"]


def test_body_returns_an_outer_value() -> None:
    """A body may return an outer value: it counts as read by the If and as returned."""
    model = ir_of(CAPTURED_OUTPUT)
    check_structure(model)
    choice = node_making(model, "y")
    outer = model.graph.values["v"]
    assert choice.subgraphs["then_branch"].outputs == [outer]
    assert outer.returned_by
    assert outer in set(read_values(choice))


def test_omitted_inputs_and_outputs() -> None:
    """An empty name is an omitted input or output, never a value."""
    proto = parse("g (float[2] x) => (float[2] y) <float m = {1}> { y = Foo (x, , m) }")
    proto.graph.node[0].output.extend(["", "z"])
    model = ir_of(proto)
    node = node_making(model, "y")
    assert [value and value.name for value in node.inputs] == ["x", None, "m"]
    assert [value and value.name for value in node.outputs] == ["y", None, "z"]
    assert "" not in model.graph.values
    check_structure(model)


def test_omitted_stays_omitted_beside_an_unnamed_initializer() -> None:
    """A nameless initializer, which nothing can read, does not fill omitted inputs."""
    proto = parse("g (float[2] x) => (float[2] y) <float m = {1}> { y = Clip (x, , m) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3, np.float32), ""))
    model = ir_of(proto)
    assert node_making(model, "y").inputs[1] is None


def test_sparse_initializer() -> None:
    """A sparse initializer is a constant of the dense type, decoded to a dense array."""
    for coordinates in (np.array([0, 5]), np.array([[0, 0], [2, 1]])):
        proto = parse("g (float[3, 2] x) => (float[3, 2] y) { y = Add (x, s) }")
        proto.graph.sparse_initializer.append(
            onnx.helper.make_sparse_tensor(
                onnx.numpy_helper.from_array(np.array([7, 8], np.float32), "s"),
                onnx.numpy_helper.from_array(coordinates, "i"),
                [3, 2],
            )
        )
        model = ir_of(proto)
        check_structure(model)
        value = model.graph.values["s"]
        assert value.is_constant
        assert str(value.known_type()) == "float32[3,2]"
        assert value.constant is not None
        np.testing.assert_array_equal(value.constant.numpy(), [[7, 0], [0, 0], [0, 8]])


def test_functions_with_overloads_and_nested_calls() -> None:
    """Functions are told apart by overload too, and may call each other, in any order."""
    proto = parse("""<ir_version: 10, opset_import: ["" : 17, "o" : 1]>
        g (float[2] x) => (float[2] y) { t = o.outer (x) y = o.f (t) }
        <domain: "o", opset_import: ["" : 13, "o" : 1]> outer (a) => (b) { b = o.f (a) }
        <domain: "o", opset_import: ["" : 17]> f (a) => (b) { b = Relu (a) }""")
    second = proto.functions.add()
    second.CopyFrom(proto.functions[1])
    second.overload = proto.graph.node[1].overload = "other"
    model = ir_of(proto)
    check_structure(model)
    assert set(model.functions) == {("o", "outer", ""), ("o", "f", ""), ("o", "f", "other")}
    assert node_making(model, "y").overload == "other"
    body = model.functions["o", "outer", ""].body
    assert body.opset_imports == {"": 13, "o": 1}
    assert [node.qualified_op for node in body] == ["o.f"]


def test_function_reads_nothing_of_the_main_graph() -> None:
    """A function's values are its own, whatever they are called."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2] x) => (float[2] y) { y = o.f (x) }
        <domain: "o", opset_import: ["" : 17]> f (x) => (y) { y = Relu (x) }""")
    body = model.functions["o", "f", ""].body
    assert body.values["x"] is not model.graph.values["x"]
    assert [node.op_type for node, _ in model.graph.values["x"].uses] == ["f"]


def test_ai_onnx_is_the_standard_domain() -> None:
    """The long name of the standard domain reads as the empty one, and is kept in the file."""
    proto = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    model = ir_of(proto)
    assert node_making(model, "y").domain == ""
    assert model.opset_imports == {"": 17}
    model.graph.modified = True
    result = to_proto(model)
    assert [(item.domain, item.version) for item in result.opset_import] == [("ai.onnx", 17)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("g () => () { }", id="empty"),
        pytest.param("g (float[2] x) => (float[2] x) { }", id="input-is-output"),
        pytest.param("g () => (float[1] w) <float[1] w = {1}> { }", id="initializer-is-output"),
        pytest.param("g (float[2] x) => (y, y) { y = Relu (x) }", id="output-twice"),
        pytest.param("g (float[2] x) => () { = Foo (x) }", id="no-output-at-all"),
        pytest.param("g (float[2] x) => (y) { y = Relu (x) z = Neg (x) }", id="dangling"),
        pytest.param("g (float[2] x) => (y) { y = Add (x, x) }", id="read-twice"),
        pytest.param("g (float[2] x) => (y) { [n] a = Neg (x) [n] y = Neg (a) }", id="same-name"),
    ],
)
def test_odd_but_sound_graphs_load(text: str) -> None:
    """What the standard allows, however odd, loads, verifies and comes back."""
    proto = parse(text)
    expected = proto.SerializeToString(deterministic=True)
    model = ir_of(proto)
    check_structure(model)
    model.graph.modified = True
    assert to_proto(model).SerializeToString(deterministic=True) == expected


def test_unnamed_nodes_are_labelled_by_their_output() -> None:
    """A node without a name is known by its first output."""
    model = ir_of("g (float[2] x) => (y) { , t = Foo (x) [named] y = Relu (t) }")
    assert [node.label for node in model.graph] == ["t", "named"]


def test_a_sparse_initializer_of_a_body_shadows_too() -> None:
    """A name that a body's sparse initializer defines is no capture when nodes are sorted."""
    proto = parse("""g (float[2] x, bool c) => (z) {
        z = Abs (y)
        y = If (c) <then_branch = t () => (p) { p = Neg (z) }> }""")
    body = proto.graph.node[1].attribute[0].g
    sparse = body.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.float32), "z"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.int64), "i"))
    model = ir_of(proto)
    check_structure(model)
    assert [node.op_type for node in model.graph] == ["If", "Abs"]


@pytest.mark.parametrize("operator", ["While", "own.While"])
def test_captures_in_a_body_of_an_unknown_operator(operator: str) -> None:
    """Any node with a body reads what the body captures, known to the standard or not."""
    model = ir_of(f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (y) {{
          t = Relu (x)
          y = {operator} <body = b () => (p) {{ p = Neg (t) }}> () }}""")
    assert list(users(model.graph.values["t"])) == [node_making(model, "y")]


def test_captures_in_a_list_of_bodies() -> None:
    """What a list of bodies captures counts as read from outside, so that nobody removes it."""
    proto = parse("""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (y) { t = Relu (x) y = own.Switch () }""")
    bodies = parse("b () => (p) { p = Neg (t) }").graph
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("bodies", [bodies]))
    captured = ir_of(proto).graph.values["t"]
    assert captured.use_count or captured.is_graph_output


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before(*, enabled: bool) -> None:
    """Garbage collection is off inside the pause and as before afterwards, come what may."""
    (gc.enable if enabled else gc.disable)()
    try:
        with contextlib.suppress(KeyError), paused_gc():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is enabled
        with contextlib.suppress(InvalidModelError):
            ir_of("g () => (y) { }")
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


class _Knot:
    """What only the collector finds, once nobody else holds it."""

    def __init__(self) -> None:
        self.itself = self


def test_a_process_that_pauses_often_keeps_no_garbage() -> None:
    """What was made in a pause is collected as anything else: nobody asks for it, nor waits."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # as Python has them
    alive: weakref.WeakSet[_Knot] = weakref.WeakSet()
    try:
        for _ in range(3000):
            with paused_gc():
                alive.add(_Knot())
                [[number] for number in range(800)]
    finally:
        gc.set_threshold(*thresholds)

    assert len(alive) < 1000


def referring(value: tuple[int, ...] = (2, 2)) -> onnx.ModelProto:
    """Return a model, a body and a function with attributes that refer to one, with a value."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[1,1,8,8] x, float[1,1,1,1] w, bool c) => (y) {
          p = Conv <strides = [1, 1]> (x, w)
          q = If (c) <then_branch = t () => (r) { r = Conv <strides = [1, 1]> (x, w) },
                      else_branch = e () => (s) { s = Identity (p) }>
          y = f.conv <steps = [1, 1]> (q, w)
        }
        <domain: "f", opset_import: ["" : 17]>
        conv <steps> (a, b) => (d) { d = Conv <strides = [1, 1]> (a, b) }"""
    )
    nodes = [
        model.graph.node[0],
        model.graph.node[1].attribute[0].g.node[0],
        model.functions[0].node[0],
    ]
    for node in nodes:
        node.attribute[0].ints[:] = value
        node.attribute[0].ref_attr_name = "steps"
    return model


def test_outside_of_functions_the_value_beside_a_reference_counts() -> None:
    """onnx.checker wants one there, and onnxruntime takes it; in functions, the caller's."""
    model = ir_of(referring())
    then_branch = model.graph.inner[0]
    (function,) = model.functions.values()

    for node in (node_making(model, "p"), next(iter(then_branch))):
        assert (node.attributes["strides"].value, node.attributes["strides"].ref) == ((2, 2), "")
    (inside,) = function.body
    assert (inside.attributes["strides"].value, inside.attributes["strides"].ref) == (None, "steps")


def test_outside_of_functions_a_reference_without_a_value_says_nothing() -> None:
    """It is kept, and what it would be is not known."""
    attribute = node_making(ir_of(referring(())), "p").attributes["strides"]

    assert (attribute.value, attribute.ref) == (None, "steps")
