"""Shape inference ends: functions in functions, long vectors, nodes that are broken."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import helper

from dplcli.ir import TensorType
from dplcli.ir.model import MANY, expanded_sizes
from dplcli.ir.operators import FORMULAS, flops
from dplcli.onnx_io import check_model, load_model
from dplcli.onnx_io import infer as inference
from dplcli.onnx_io.bounded import bounded, limited_memory
from dplcli.onnx_io.convert import decode_type
from dplcli.onnx_io.infer import Expansion, infer_node
from dplcli.pipeline.inspecting import exact_types
from tests.support.helpers import model_from_bytes, model_from_text, proto_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Model, Node, Shape, Value

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.forks
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no limit is kept here")
HEAD = '<ir_version: 8, opset_import: ["" : 17, "o" : 1]>'


def nested(depth: int, calls: int, main: str = "y = o.f{last} (x)") -> str:
    """Write functions that call each other, *depth* of them, each so many times the next."""
    functions = []
    for number in range(depth):
        op = f"o.f{number - 1}" if number else "Relu"
        names = ["x", *[f"t{index}" for index in range(calls - 1)], "y"]
        body = " ".join(f"{made} = {op} ({read})" for read, made in pairwise(names))
        functions.append(
            f'<domain: "o", opset_import: ["" : 17, "o" : 1]> f{number} (x) => (y) {{ {body} }}'
        )
    graph = f"g (float[2, 3] x) => (y) {{ {main.format(last=depth - 1)} }}"
    return "\n".join([HEAD, graph, *functions])


def inner_type(model: Model, function: int) -> str:
    """Return what is known of what a function of :func:`nested` returns."""
    return str(model.functions["o", f"f{function}", ""].body.values["y"].known_type())


# -- counting --------------------------------------------------------------------------------------


def test_calls_count_as_what_they_call() -> None:
    """Two calls of two calls of two nodes: 8, and what stands between."""
    found = Expansion(proto_from_text(nested(3, 2)))
    assert found.sizes == {("o", "f0", ""): 2, ("o", "f1", ""): 6, ("o", "f2", ""): 14}
    assert (found.stated, found.total) == (7, 15)


def test_counting_expands_nothing() -> None:
    """2 to the 40 nodes are counted in 40 steps; what has no end, and what reaches it, is many."""
    own = dict.fromkeys(range(40), 1)
    calls = {number: {number - 1: 2} for number in range(1, 40)}
    assert expanded_sizes(own, calls)[39] == 2**40 - 1
    assert expanded_sizes(own, {**calls, 0: {20: 1}}) == dict.fromkeys(own, MANY)
    assert expanded_sizes({0: 1, 1: 1, 2: 5}, {0: {0: 1}, 1: {0: 3}}) == {0: MANY, 1: MANY, 2: 5}


def test_calls_in_bodies_count() -> None:
    """A branch is looked into as well."""
    branch = "If (c) <then_branch = t () => (p) {{ p = o.f{last} (x) }}, else_branch = e () => (q)"
    text = nested(2, 2, f"y = {branch} {{{{ q = Neg (x) }}}}>").replace("\ng (", "\ng (bool c, ")
    found = Expansion(proto_from_text(text))
    assert found.total == 3 + 6


# -- functions in functions ------------------------------------------------------------------------


def growing(depth: int) -> str:
    """Write functions that each call the next one with twice what they are given, and one more."""
    functions = ['<domain: "o", opset_import: ["" : 17]> f0 (x) => (y) { y = Relu (x) }']
    functions += [
        f"""<domain: "o", opset_import: ["" : 17, "o" : 1]> f{number} (x) => (y) {{
            c = Constant <value = float[1, 3] {{0, 0, 0}}> ()
            d = Concat <axis = 0> (x, x) a = o.f{number - 1} (d)
            e = Concat <axis = 0> (x, x, c) b = o.f{number - 1} (e)
            y = Concat <axis = 0> (a, b) }}"""
        for number in range(1, depth + 1)
    ]
    graph = f"g (float[2, 3] x) => (y, r) {{ y = o.f{depth} (x) r = Neg (x) }}"
    return "\n".join([HEAD, graph, *functions])


@pytest.mark.parametrize(("depth", "calls"), [(30, 2), (12, 3), (90, 1), (40, 9), (2000, 1)])
def test_calls_that_are_alike_are_looked_into_once(
    monkeypatch: pytest.MonkeyPatch, depth: int, calls: int
) -> None:
    """However often functions call each other, and however deeply."""
    asked = asked_for(monkeypatch, nested(depth, calls, "r = Relu (x) y = o.f{last} (r)"))
    model = model_from_text(nested(depth, calls, "r = Relu (x) y = o.f{last} (r)"))
    assert str(model.graph.values["y"].known_type()) == "float32[2,3]"
    assert {inner_type(model, number) for number in range(depth)} == {"float32[2,3]"}
    assert len(asked) <= 4
    assert model.notes == []


@pytest.mark.parametrize(("steps", "is_whole"), [(106, True), (105, False)])
def test_calls_that_differ_are_looked_into_within_bounds(
    monkeypatch: pytest.MonkeyPatch, steps: int, *, is_whole: bool
) -> None:
    """What was given up is said once; nothing is guessed, and what stands outside is known."""
    monkeypatch.setattr(inference, "_MOST_STEPS", steps)
    monkeypatch.setattr(inference, "_MOST_TIMES_STEPS", 0)
    model = model_from_text(growing(4))
    known = model.graph.values["y"].known_type()
    assert (str(known) == "float32[632,3]") == is_whole
    assert known is None or known.shape is None or not isinstance(known.shape[0], int) or is_whole
    assert str(model.graph.values["r"].known_type()) == "float32[2,3]"
    problems = [note for note in model.notes if "does not look into all functions" in note]
    assert len(problems) == len(model.notes) == (not is_whole)


def test_thousands_of_kinds_of_calls_end() -> None:
    """The budget is one for the whole model."""
    model = model_from_text(growing(30))
    assert str(model.graph.values["r"].known_type()) == "float32[2,3]"
    assert len(model.notes) == 1


def test_a_function_that_calls_itself_ends() -> None:
    """It is no model, but a file."""
    proto = proto_from_text(nested(2, 1))
    proto.functions[0].node[0].op_type, proto.functions[0].node[0].domain = "f1", "o"
    model = model_from_bytes(proto.SerializeToString())
    types, problem = exact_types(model, {})
    assert model.graph.values["y"] not in types
    assert "endlessly many" in " ".join([problem, *model.notes])


def test_the_checker_does_not_expand_either(tmp_path: Path) -> None:
    """It says what it finds without inference; with a few nodes it infers, and objects."""
    deep, wrong = proto_from_text(nested(40, 2)), proto_from_text(nested(2, 2))
    shape = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2, 3])
    for model in (deep, wrong):
        model.graph.output[0].type.CopyFrom(shape)
    onnx.save(deep, tmp_path / "deep.onnx")
    assert check_model(tmp_path / "deep.onnx") == ""
    deep.functions[0].node[0].ClearField("output")
    deep.functions[0].node[0].input.extend(["x", "x"])
    onnx.save(deep, tmp_path / "deep.onnx")
    assert "Relu" in check_model(tmp_path / "deep.onnx")
    wrong.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(wrong, tmp_path / "wrong.onnx")
    assert check_model(tmp_path / "wrong.onnx") != ""


# -- memory ----------------------------------------------------------------------------------------

CAST = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[n, 2] p, float[n, 3] x) => (y, z) {
        size = Constant <value = int64[1] {%d}> () r = Reshape (p, size)
        c = Cast <to = 7> (r) z = Identity (c) y = Relu (x) }"""


def test_a_vector_of_any_length_takes_little_memory() -> None:
    """A constant of 8 bytes says how many elements there are: nobody looks at each of them."""
    model = model_from_text(CAST % 7_945_248_671_017_770_693)
    with limited_memory(0):
        assert str(model.graph.values["y"].known_type()) == "float32[n,3]"
    assert str(model.graph.values["z"].known_type()) == "int64[7945248671017770693]"
    assert model.notes == []


def test_a_short_vector_is_no_trouble() -> None:
    """The near miss: nothing is said, and no limit is noticed."""
    model = model_from_text(CAST % 6)
    assert str(model.graph.values["z"].known_type()) == "int64[6]"
    assert model.notes == []


@LINUX
def test_a_limit_that_somebody_set_is_kept() -> None:
    """One that is lower than ours."""
    import resource  # noqa: PLC0415  # not on Windows

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    low = used + (200 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (low, before[1]))
    try:
        with limited_memory(0):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == low
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    with pytest.raises(ValueError, match="inside"), limited_memory(0):
        raise ValueError("inside")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_is_read_as_a_shape_may_be_long() -> None:
    """A rank of three billion is none; indices keep their number."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[3000000000] s, float[7, 5] t, int64[100000] i) => (z, y) {
            z = ConstantOfShape (s) y = Gather (t, i) }"""
    model = model_from_text(text)
    z, y = (model.graph.values[name].known_type() for name in "zy")
    assert z is None or z.shape is None
    assert y == TensorType("float32", (100_000, 5))


def test_a_symbol_that_looks_like_a_length_is_a_symbol() -> None:
    """Whatever a file calls its dimensions."""
    proto = proto_from_text("g (float[n, 3] x) => (y) { y = Relu (x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "dpl length many"
    model = model_from_bytes(proto.SerializeToString())
    assert str(model.graph.values["y"].known_type()) == "float32[dpl length many,3]"


# -- broken nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [{}, {"axis": "x", "axes": 1.5, "start": 0.5, "to": [1]}])
@pytest.mark.parametrize("inputs", [[], [""], ["x"], ["x"] * 9])
@pytest.mark.parametrize("outputs", [[], ["y"], ["y", "", "w"]])
def test_what_a_broken_node_makes_is_unknown(
    attributes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> None:
    """Inputs and outputs that are missing or too many, attributes of another kind."""
    nodes = [helper.make_node("Relu", ["x"], ["z"])]
    for op_type in sorted({*FORMULAS, "NoSuchOperator"} - {"If", "Loop", "Scan", "SequenceMap"}):
        names = [name and f"{name}_{op_type}" for name in outputs]
        nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        if attributes:
            nodes[-1].attribute.add(name="value", type=onnx.AttributeProto.GRAPHS)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [2, 2])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="z")])
    model = model_from_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    types, _ = exact_types(model, {})

    def shape_of(value: Value) -> Shape | None:
        known = types.get(value) or value.declared_type
        return None if known is None else known.shape

    relu, *broken = [flops(node, shape_of) for node in model.graph]
    assert relu == 4
    assert any(cost is None for cost in broken)


def test_work_for_a_short_result_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over 2 to the 30 points of one element is not computed; a small one is."""
    asked: list[str] = []
    evaluate = inference.evaluate

    def spy(node: Node, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...] | None:
        asked.append(node.op_type)
        return evaluate(node, inputs)

    letters = "abcdefghijklmnopqrstuvwxyzABCD"
    equation = ",".join(letters[start : start + 10] for start in (0, 10, 20)) + "->"
    shape = ",".join(["2"] * 10)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x) => (y, s) {{
            o = Constant <value = int64[10] {{{shape}}}> ()
            c = ConstantOfShape <value = float[1] {{1}}> (o)
            s = Einsum <equation = "{equation}"> (c, c, c)
            i = Constant <value_ints = [1]> () r = Reshape (s, i) w = Cast <to = 7> (r)
            y = ConstantOfShape (w) }}"""
    monkeypatch.setattr("dplcli.onnx_io.read.ProtoCodec.evaluate", staticmethod(spy))
    exact_types(model_from_text(text), {"n": 2})
    assert asked == ["ConstantOfShape"]


# -- once for each kind of node --------------------------------------------------------------------


def asked_for(monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    """Infer a model, and return the nodes that onnx was asked about."""
    asked: list[str] = []

    def spy(node: Node, *known: Mapping[Any, Any]) -> list[inference.Known | None]:
        asked.append(node.label)
        return infer_node(node, *known)

    monkeypatch.setattr(inference, "infer_node", spy)
    model = model_from_text(text)
    assert model.graph.outputs[0].known_type() is not None
    return asked


def test_nodes_that_are_alike_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred blocks are three questions, whatever is in their weights."""
    blocks = " ".join(
        f"w{n} = Constant <value = float[1] {{{n}}}> () p{n} = Add (r{n}, w{n}) "
        f"q{n} = Neg (p{n}) r{n + 1} = Relu (q{n})"
        for n in range(100)
    )
    asked = asked_for(monkeypatch, f"g (float[2, 3] r0) => (r100) {{ {blocks} }}")
    assert [label for label in asked if not label.startswith("w")] == ["p0", "q0", "r1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a = Concat <axis = 0> (x, x)", "b = Concat <axis = 1> (x, x)"),
        ("a = Relu (x)", "b = Relu (v)"),
        ("a = Relu (x)", "b = Relu (d)"),
        ("a = Reshape (x, s)", "b = Reshape (x, t)"),
        ("a = Expand (x, s)", "b = Expand (x, r)"),
        ("a = Clip (x, z)", "b = Clip (x, , z)"),
        ("a, m = Dropout (x)", "b = Dropout (x)"),
        ("a = Relu (x)", "b = Neg (x)"),
    ],
)
def test_nodes_that_differ_are_asked_for_each(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """In an attribute, a type, a constant that counts, in what is left out, in the operator."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x, float[3, 2] v, double[2, 3] d) => (a, b)
        <int64[2] s = {{2, 3}}, int64[2] t = {{3, 2}}, int64[3] r = {{5, 2, 3}}, float z = {{1}}>
        {{ {first} {second} }}"""
    assert asked_for(monkeypatch, text) == ["a", "b"]


@pytest.mark.parametrize("name", ["resnet18_bn", "super_resolution", "residual_block", "deit"])
def test_onnx_finds_the_same_for_a_whole_model(name: str) -> None:
    """With a number for each size."""
    path = ROOT / "sample_models" / f"{name}.onnx"
    sizes = dict.fromkeys(inference.open_sizes(load_model(path)), 2)
    model = load_model(path)
    ours, _ = exact_types(model, sizes)
    proto = onnx.load(path)
    for info in proto.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            dim.CopyFrom(onnx.TensorShapeProto.Dimension(dim_value=dim.dim_value or 2))
    found = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    theirs = {info.name: decode_type(info.type) for info in found.graph.value_info}
    for value in model.graph.values.values():
        if value.producer is not None and value.name in theirs:
            assert (ours.get(value) or value.known_type()) == theirs[value.name]


def test_a_kind_is_of_one_version_of_an_operator() -> None:
    """The same node in a graph and in a function of another opset are two questions."""
    text = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3, 4] x) => (y, z) { y = Softmax (x) z = o.f (x) }
        <domain: "o", opset_import: ["" : 1]> f (x) => (y) { y = Softmax (x) }"""
    model = model_from_text(text)
    assert str(model.graph.values["y"].known_type()) == "float32[2,3,4]"
    assert str(model.graph.values["z"].known_type()) == "float32[2,3,4]"


@LINUX
def test_a_fork_ends_when_nobody_waits_for_it() -> None:
    """Who asked was killed, and the answer is more than a pipe holds."""
    reading, writing = os.pipe()

    def work() -> bytes:
        os.write(writing, b"%9d" % os.getpid())
        while os.getppid() == asks:
            time.sleep(0.01)
        return bytes(1 << 20)

    child = os.fork()
    if not child:
        asks = os.getpid()
        try:
            bounded(work, 0)
        finally:
            os._exit(0)
    os.close(writing)
    fork = int(os.read(reading, 9))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    ended, _, _ = select.select([reading], [], [], 20)
    if not ended:
        os.kill(fork, signal.SIGKILL)
    assert ended
    assert os.read(reading, 1) == b""
    os.close(reading)


OBJECTIONS = {
    "[ShapeInferenceError] (op_type:Add, node name: add): B has inconsistent type tensor(int64)": (
        "Add 'add': B has inconsistent type tensor(int64)"
    ),
    "[ShapeInferenceError] Inference error(s): (op_type:If): [ShapeInferenceError] Inference "
    "error(s): (op_type:MatMul, node name: m): [ShapeInferenceError] Incompatible dimensions\n\n"
    "(op_type:Neg): [TypeInferenceError] Input 0 expected to have type but instead is null\n": (
        "MatMul 'm' in If: Incompatible dimensions"
    ),
    "Unrecognized attribute: alpha for operator Relu\n\n==> Context: Bad node spec for node. "
    "Name: r OpType: Relu": "Relu 'r': Unrecognized attribute: alpha for operator Relu",
    "No Op registered for Foo\n\n==> Context: Bad node spec for node. Name:  OpType: Foo": (
        "Foo: No Op registered for Foo"
    ),
    "Graph output 'n' is not an output.": "Graph output 'n' is not an output.",
    "": "",
}


@pytest.mark.parametrize("said", OBJECTIONS)
def test_the_first_objection(said: str) -> None:
    """One sentence, with the node that is wrong and those round it."""
    assert inference.first_objection(said) == OBJECTIONS[said]


@pytest.mark.parametrize(("depth", "is_runnable"), [(13, True), (16, False), (200, False)])
def test_calls_that_onnxruntime_would_expand(depth: int, *, is_runnable: bool) -> None:
    """Each of them is a walk over the whole graph, so their number counts, not that of nodes."""
    text = nested(depth, 2, "r = Relu (x) y = o.f{last} (r)")
    assert Expansion(proto_from_text(text)).is_runnable == is_runnable


def test_many_calls_that_the_file_states_are_run() -> None:
    """A long file of calls is no trap: each of them was written."""
    calls = " ".join(f"v{k + 1} = o.f{{last}} (v{k})" for k in range(30_000))
    text = nested(2, 2, f"v0 = Relu (x) {calls} y = Relu (v30000)")
    assert Expansion(proto_from_text(text)).is_runnable


UNKNOWN = """<ir_version: 10, opset_import: ["" : 18, "my" : 1, "f" : 1]>
    g (float[2] x) => ({} y) {{ a = f.region (x) {} }}
    <domain: "f", opset_import: ["" : 18, "f" : 1]> region (p) => (q)
    {{ b = f.one (p) q = Relu (b) }}
    <domain: "f", opset_import: ["" : 18, "my" : 1]> one (p) => (q) {{ q = my.Op (p) }}"""


@pytest.mark.parametrize(
    ("kind", "nodes", "said"),
    [
        ("float[2]", "y = Neg (a)", ""),
        ("float[3]", "k = Abs (x) y = Neg (k)", "differ"),
        ("float[2]", "y = Neg (nobody)", "nobody"),
    ],
)
def test_a_type_that_onnx_cannot_know_is_no_fault(kind: str, nodes: str, said: str) -> None:
    """Calls of functions with unknown operators have none; what is wrong is still said."""
    proto = onnx.parser.parse_model(UNKNOWN.format(kind, nodes))
    answer = inference.objection_to(proto.SerializeToString())
    assert said in answer
    assert bool(answer) == bool(said)
