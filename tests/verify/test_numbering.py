"""Value numbering: which computations count as the same, over two models."""

import onnx
import pytest
from onnx import TensorProto

from dplcli.verify.numbering import Numbering
from tests.support.helpers import proto_from_text

SAME = [
    ("y = Add (x, w)", "y = Add (w, x)"),  # bit for bit, whatever the order
    ("y = Add (x, w)", "q = Identity (x)  y = Add (q, w)"),
    ("y = Add (x, w)", "k = Constant <value = float[2] {1, 2}> ()  y = Add (x, k)"),
    ("y = Add (x, w)", "k = Constant <value_floats = [1.0, 2.0]> ()  y = Add (x, k)"),
    ("y = Add (x, w)", "y = ai.onnx.Add (x, w)"),
    ("y = Clip (x, , m)", "[node] y = Clip (x, , m)"),
    ("y = Clip (x, m)", "y = Clip (x, m, )"),
    ("y = Elu (x)", "y = Elu <alpha = 1.0> (x)"),
    ("a = Neg (x)  y = Add (a, w)", "y = Add (a, w)  a = Neg (x)"),
]
OTHER = [
    ("y = Sub (x, w)", "y = Sub (w, x)"),
    ("y = Add (x, w)", "y = Add (x, v)"),
    ("y = Add (x, w)", "y = Add (x, missing)"),
    ("y = Clip (x, , m)", "y = Clip (x, m)"),
    ("y = Elu <alpha = 1.0> (x)", "y = Elu <alpha = 2.0> (x)"),
    ("y = Add (x, missing)", "y = Add (x, missing)"),
]
WEIGHTS = "float[2] w = {1, 2}, float[2] v = {1, 3}, float m = {0.5}"


def net(body: str, functions: str = "") -> onnx.ModelProto:
    """Return a model whose nodes are *body*."""
    return proto_from_text(f"g (float[2] x) => (float[2] y) <{WEIGHTS}> {{ {body} }} {functions}")


def are_same(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    """Tell whether two models compute *y* alike."""
    numbering = Numbering()
    return numbering.model(one).values["y"] == numbering.model(other).values["y"]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_computation_has_one_number(one: str, other: str) -> None:
    """Names, order, Identity, defaults and where a constant is kept make no difference."""
    assert are_same(net(one), net(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_computation_has_another_number(one: str, other: str) -> None:
    """Weights, slots and attributes do; what comes from nowhere is unique."""
    assert not are_same(net(one), net(other))


def test_alike_nodes_are_said_to_draw_alike() -> None:
    """A model and itself draw the same; two alike nodes of one model are doubted all the same."""
    numbering = Numbering()
    one = numbering.model(net("y = RandomNormalLike (x)"))
    assert one.outputs == numbering.model(net("y = RandomNormalLike (x)")).outputs
    assert not one.doubts
    twice = "a = RandomNormalLike (x)  b = RandomNormalLike (x)  y = Sub (a, b)"
    assert numbering.model(net(twice)).doubts == [
        "RandomNormalLike may draw random numbers, and two are alike"
    ]


def test_bodies_count_by_what_they_compute() -> None:
    """Names inside a branch do not count, what it captures does."""

    def branch(inner: str, captured: str) -> onnx.ModelProto:
        return proto_from_text(f"""g (bool c, float[2] x) => (float[2] y) {{
            p = Neg (x)  r = Abs (x)
            y = If (c) <
                then_branch = t () => (float[2] {inner}) {{ {inner} = Exp ({captured}) }},
                else_branch = e () => (float[2] o) {{ o = Identity (x) }}> }}""")

    assert are_same(branch("a", "p"), branch("b", "p"))
    assert not are_same(branch("a", "p"), branch("a", "r"))


def test_calls_count_by_what_is_behind_them() -> None:
    """A function that calls another has the number of neither its own text nor its name alone."""

    def calls(outer: str, inner: str) -> onnx.ModelProto:
        model = net("y = d.f (x)")
        opset = onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("d", 1)
        bodies = {
            "f": onnx.helper.make_node("g", ["a"], ["b"], domain="d"),
            "g": onnx.helper.make_node(inner, ["a"], ["b"]),
        }
        for name, node in bodies.items():
            function = onnx.helper.make_function("d", name, ["a"], ["b"], [node], opset)
            function.doc_string = outer if name == "f" else ""
            model.functions.append(function)
        model.opset_import.add(domain="d", version=1)
        return model

    assert are_same(calls("", "Neg"), calls("", "Neg"))
    assert not are_same(calls("", "Neg"), calls("", "Abs"))
    assert not are_same(calls("", "Neg"), net("y = Neg (x)"))


def test_given_values_stand_for_what_computes_them() -> None:
    """What reads them is the same then; they themselves are still what they are."""
    numbering = Numbering()
    one = numbering.model(net("a = Neg (x)  y = Exp (a)"), {"a": "cut"}).values
    other = numbering.model(net("b = Abs (x)  y = Exp (b)"), {"b": "cut"}).values
    assert one["y"] == other["y"]
    assert one["a"] != other["b"]
    assert one["y"] != numbering.model(net("b = Abs (x)  y = Exp (b)"), {"b": "else"}).values["y"]


@pytest.mark.parametrize(
    ("body", "doubt"),
    [
        ("y = Add (x, missing)", "nothing makes the value 'missing'"),
        ("a = Neg (b)  b = Neg (a)  y = Neg (x)", "a node needs what it makes"),
        ("y = d.f (x)", "no opset of 'd' is imported, which f is of"),
    ],
)
def test_what_cannot_be_told_is_said(body: str, doubt: str) -> None:
    """And all that needs no such value has its number."""
    model = net(f"z = Sin (x)  {body}")
    del model.opset_import[:]
    model.opset_import.add(version=17)
    numbering = Numbering()
    found = numbering.model(model)
    assert found.doubts == [doubt]
    assert found.values["z"] == numbering.model(net("y = Sin (x)")).values["y"]


def test_a_damaged_constant_is_like_no_other() -> None:
    """Also where two models have the same damage."""
    model = net("y = Add (x, w)")
    model.graph.initializer[0].CopyFrom(
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], float_data=[1.0])
    )
    assert not are_same(model, model)
    assert "the constant 'w' cannot be read" in Numbering().model(model).doubts[0]
