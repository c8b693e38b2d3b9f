"""What a file states of types is believed as long as the graph does not contradict it."""

import onnx
import pytest

from dplcli.ir import Model, Value
from dplcli.onnx_io import to_proto
from dplcli.shapes import Knowledge
from tests.support.models import ir_of, parse

T = "t = Transpose <perm = [1, 0]> (x)"
RELU = f"g (float[2,3] x) => (float[?,?] y) <{{0}} t> {{{{ {T} y = Relu (t) }}}}"
OUTPUT = "g (float[2,3] x) => ({0} t) {{ t = Transpose <perm = [1, 0]> (x) }}"
BRANCH = """g (float[2,3] x, bool c) => (float[?,?] y) {{
    y = If (c) <then_branch = b () => (float[?,?] p) <{0} t>
                {{ t = Transpose <perm = [1, 0]> (x) p = Relu (t) }},
                else_branch = e () => (float[?,?] q) {{ q = Identity (x) }}>
}}"""
BRANCH_OUTPUT = """g (float[2,3] x, bool c) => (float[?,?] y) {{
    y = If (c) <then_branch = b () => ({0} t) {{ t = Transpose <perm = [1, 0]> (x) }},
                else_branch = e () => (float[?,?] q) {{ q = Identity (x) }}>
}}"""
LOOP = """g (float[2,3] x, int64 n, bool c) => (float[?,?] y) {{
    y = Loop (n, c, x) <body = b (int64 i, bool k, float[?,?] v)
        => (bool k2, float[?,?] w) <{0} t>
        {{ k2 = Identity (k) t = Transpose <perm = [1, 0]> (x) w = Add (v, t) }}>
}}"""
FUNCTION = """<ir_version: 10, opset_import: ["" : 17, "d" : 1]>
g (float[2,3] x) => (float[?,?] y) {{ y = d.f (x) }}
<domain: "d", opset_import: ["" : 17]> f (a) => (b) <{0} t>
{{ t = Transpose <perm = [1, 0]> (a) b = Relu (t) }}"""
PLACES = {
    "value_info": RELU,
    "output": OUTPUT,
    "branch": BRANCH,
    "branch output": BRANCH_OUTPUT,
    "loop": LOOP,
    "function": FUNCTION,
}
WRONG = {
    "dim": ("float[2,3]", "float32[2,3]"),
    "one of the dims": ("float[3,4]", "float32[3,4]"),
    "beside a symbol": ("float[N,3]", "float32[N,3]"),
    "rank": ("float[3,2,1]", "float32[3,2,1]"),
    "scalar": ("float", "float32[]"),
    "dtype": ("int64[3,2]", "int64[3,2]"),
}
RIGHT = {
    "equal": ("float[3,2]", "float32[3,2]"),
    "a symbol": ("float[M,2]", "float32[M,2]"),
    "symbols that look wrong": ("float[x0,x0]", "float32[x0,x0]"),
    "unknown": ("float[?,2]", "float32[?,2]"),
}


def value_called(model: Model, name: str) -> Value:
    """Return the only value of this name, wherever it is."""
    (value,) = [graph.values[name] for graph in model.graphs() if name in graph.values]
    return value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", WRONG)
def test_a_contradiction_is_said_and_not_believed(place: str, kind: str) -> None:
    """The note names the value, what is stated and what is so; the file keeps the statement."""
    text, stated = WRONG[kind]
    proto = parse(PLACES[place].format(text))
    before = proto.SerializeToString()
    model = ir_of(proto)
    value = value_called(model, "t")
    assert str(value.known_type()) == "float32[3,2]"
    (note,) = model.notes
    assert "'t'" in note
    assert f"is stated to be {stated}, and is float32[3,2];" in note
    assert ("output 't'" in note) == place.endswith("output")
    assert to_proto(model).SerializeToString() == before


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", RIGHT)
def test_what_is_no_contradiction_stands(place: str, kind: str) -> None:
    """A symbol may stand for any number, and what is left open contradicts nothing."""
    text, stated = RIGHT[kind]
    model = ir_of(PLACES[place].format(text))
    assert str(value_called(model, "t").known_type()) == stated
    model.infer()
    assert (model.notes, model.refuted) == ([], {})


def test_the_place_is_named() -> None:
    """A value in a body or a function is named with it."""
    for place, where in [("branch", "main/y.then_branch"), ("function", "function d::f")]:
        model = ir_of(PLACES[place].format("float[7,7]"))
        model.infer()
        assert f"'t' in {where} is stated" in model.notes[0]


def test_a_number_for_an_unknown_size_is_believed() -> None:
    """What nobody can infer is what the file says, and what follows from it is known."""
    model = ir_of("""g (float[2,3] x, int64[2] s) => (float[?,?] y) <float[6,1] t>
        { t = Reshape (x, s) u = Transpose (t) y = Relu (u) }""")
    assert str(model.graph.values["t"].known_type()) == "float32[6,1]"
    assert str(model.graph.values["u"].known_type()) == "float32[1,6]"
    assert model.notes == []


def test_a_number_for_the_symbol_of_an_input_is_believed() -> None:
    """A symbol may stand for it."""
    model = ir_of("g (float[N,3] x) => (float[?,?] y) <float[5,3] t> { t = Neg (x) y = Relu (t) }")
    assert str(model.graph.values["t"].known_type()) == "float32[5,3]"
    assert model.notes == []


def test_nothing_follows_from_what_is_refuted() -> None:
    """Neither what is stated to fit it, nor what is inferred behind it."""
    model = ir_of(f"""g (float[2,3] x) => (float[?,?] y) <float[2,3] t, float[2,3] u>
        {{ {T} u = Relu (t) v = Neg (u) y = Abs (v) }}""")
    for name in "tuvy":
        assert str(model.graph.values[name].known_type()) in {"float32[3,2]", "float32[?,?]"}
    assert str(model.graph.values["v"].known_type()) == "float32[3,2]"
    assert set(model.refuted) == {model.graph.values[name] for name in "tu"}


@pytest.mark.parametrize("middle", ["u = Relu (t)", "k = Neg (t) u = Relu (k)"])
def test_statements_that_contradict_each_other(middle: str) -> None:
    """Of two that onnx alone cannot judge the earlier one is believed."""
    model = ir_of(f"""<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
        g (float[2,3] x) => (float[?,?] y) <float[4,5] t, float[5,4] u>
        {{ t = custom.Op (x) {middle} v = Neg (u) y = Abs (v) }}""")
    for name in "tuv":
        assert str(model.graph.values[name].known_type()) == "float32[4,5]"
    assert [*model.refuted] == [model.graph.values["u"]]


def test_what_is_unknown_stays_so_beside_a_statement() -> None:
    """A node may rest on a statement and on a value that nobody knows."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
        g (float[2,3] x) => (float[?,?] y) <float[4,5] t, float[5,4] u>
        { t = custom.Op (x) k = custom.Op (x) u = Add (t, k) y = Abs (u) }""")
    assert str(model.graph.values["u"].known_type()) == "float32[5,4]"
    assert model.graph.values["k"].known_type() is None
    assert model.notes == []


def test_sizes_that_are_computed_count() -> None:
    """A target computed from the shape of an input is as good as a constant."""
    model = ir_of(
        """g (float[2,3,4] x) => (float[?,?] y) <float[2,13] t,
            int64[1] one = {1}, int64[1] zero = {0}, int64[1] rest = {-1}> {
        s = Shape (x) b = Slice (s, zero, one) r = Concat <axis = 0> (b, rest)
        t = Reshape (x, r) y = Relu (t) }"""
    )
    assert str(model.graph.values["t"].known_type()) == "float32[2,12]"
    assert len(model.refuted) == 1


def test_an_initializer_is_what_it_holds() -> None:
    """A statement beside it is said to be wrong."""
    proto = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("w", 1, [7]))
    model = ir_of(proto)
    assert str(model.graph.values["w"].known_type()) == "float32[2]"
    model.infer()
    assert "'w' is stated to be float32[7], and is float32[2]" in model.notes[0]


@pytest.mark.parametrize("size", [2, 3])
def test_a_model_that_states_all_states_it_of_initializers_too(size: int) -> None:
    """Its data decides without any inference, if it is so."""
    proto = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("w", 1, [size]))
    model = ir_of(proto)
    model.infer()
    assert bool(model.refuted) == (size != 2)


def test_a_function_that_is_called_in_two_ways() -> None:
    """What is stated inside it must be so at each call."""
    text = """<ir_version: 10, opset_import: ["" : 17, "d" : 1]>
        g (float[2,3] x, float[5,3] z) => (float[?,?] y, float[?,?] w)
        {{ y = d.f (x) w = d.f (z) }}
        <domain: "d", opset_import: ["" : 17]> f (a) => (b) <float[{0}] t>
        {{ t = Neg (a) b = Relu (t) }}"""
    wrong = ir_of(text.format("2,3"))
    known = value_called(wrong, "t").known_type()
    assert known is not None
    assert known.shape is not None
    assert not isinstance(known.shape[0], int)
    assert len(wrong.refuted) == 1
    right = ir_of(text.format("n,3"))
    right.infer()
    assert right.refuted == {}


def test_many_are_counted() -> None:
    """Where a size was changed all over, a few are named."""
    stated = ", ".join(f"float[9] t{number}" for number in range(20))
    chain = " ".join(f"t{number + 1} = Neg (t{number})" for number in range(19))
    model = ir_of(
        f"g (float[2] x) => (float[?] y) <{stated}> {{ t0 = Relu (x) {chain} y = Abs (t19) }}"
    )
    model.infer()
    assert len(model.notes) == 6
    assert model.notes[-1].endswith("15 more values are not what the file states")


STATIC = """g (float[2,3] x) => (float[6] y) <int64[1] all = {-1}, int64[2] s = {3, 2}> {
    a = Relu (x) b = Relu (a) c = Reshape (b, s) d = Neg (c) e = Reshape (d, all) y = Abs (e) }"""


def static_model() -> onnx.ModelProto:
    """Return a model all of whose types are stated as numbers."""
    return onnx.shape_inference.infer_shapes(parse(STATIC))


def test_a_model_that_states_all_says_it_itself() -> None:
    """What holds at each node holds for all; nodes are numbered by kind."""
    model = ir_of(static_model())
    assert str(model.graph.values["d"].known_type()) == "float32[3,2]"
    assert (dict(model.infer().types), model.notes) == ({}, [])
    assert [*model.kinds.values()] == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", "abcdey")
def test_any_wrong_statement_of_them_is_found(name: str) -> None:
    """Also where all behind it is stated to fit, and where nodes of the same kind are in order."""
    proto = static_model()
    for info in (*proto.graph.value_info, *proto.graph.output):
        if info.name == name:
            info.type.tensor_type.shape.dim[0].dim_value += 1
    model = ir_of(proto)
    model.infer()
    assert [value.name for value in model.refuted] == [name]


def test_equal_constants_are_told_from_others() -> None:
    """Two Reshapes alike but for the constant are two; so it is for Constant nodes."""
    targets = {"a": (2, 3), "b": (2, 3), "c": (3, 2), "d": (3, 2)}
    nodes = "".join(
        f"k{name} = Constant <value = int64[2] {{{dims[0]}, {dims[1]}}}> () "
        f"y{name} = Reshape (x, k{name})\n"
        for name, dims in targets.items()
    )
    outputs = ", ".join(f"float[2,3] y{name}" for name in targets)
    proto = parse(f"g (float[6] x) => ({outputs}) {{ {nodes} }}")
    for name in targets:
        proto.graph.value_info.append(onnx.helper.make_tensor_value_info(f"k{name}", 7, [2]))
    model = ir_of(proto)
    model.infer()
    assert [value.name for value in model.refuted] == ["yc", "yd"]


def test_symbols_of_sizes_that_data_decide_prove_nothing() -> None:
    """They are what an exporter saw once; those of inputs are given."""
    model = ir_of("""g (float[b,s,8] x, int64[2] t) => (float[?,?] z) <float[b,s] y, float[b,s,8] n>
        { y = Reshape (x, t) n = Neg (x) z = Abs (y) }""")
    knowledge = model.memory(Knowledge)
    x, y, n = (knowledge.shape(model.graph.values[name]) for name in "xyn")
    assert x is not None
    assert y is not None
    assert n == x
    assert y[0] != x[0]
    assert y[1] != x[1]


def test_large_models_wait_for_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """To say it takes time; not to believe it is never left out."""
    monkeypatch.setattr("dplcli.ir.model.QUICKLY_CHECKED", 1)
    model = ir_of(RELU.format("float[2,3]"))
    model.note_refutations()
    assert model.notes == []
    assert str(model.graph.values["t"].known_type()) == "float32[3,2]"
    assert len(model.notes) == 1
