"""Each change is one short sentence, which says what differs and not only where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import numpy_helper

from dplcli.diff import InputChange, NodeChange
from dplcli.diff.sentences import node_change, sentences, weight
from tests.diff.compared import NET, difference
from tests.support.helpers import model_from_bytes, model_from_text, proto_from_text

if TYPE_CHECKING:
    from dplcli.ir import Model

CALL = """<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (float[9] x) => (float[9] y) {
  y = a.F <v = float[2] {1,2}, w = [1,2,3,4,5,6,7,8,9], m = "a"> (x)
}"""
TWICE = "g (float[2,3] x) => (float[2,3] z) { [t] y = Relu (x) z = Neg (y) }"


def said(before: str | Model, after: str | Model) -> list[str]:
    """Return all sentences on two models."""
    return [text for graph in difference(before, after).graphs for text in sentences(graph)]


def edited(text: str, *changes: tuple[str, str]) -> str:
    """Return a text with some of it replaced, each of which must be there."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("[1, 1]", "[2, 2]")], ["Conv 'c': strides [1, 1] → [2, 2]"]),
        (
            [("strides = [1, 1], group = 1", "dilations = [2, 1]")],
            ["Conv 'c': dilations [1, 1] → [2, 1]"],
        ),
        (
            [("[1, 1]", "[2, 2]"), (", b)", ")")],
            ["Conv 'c': strides [1, 1] → [2, 2]; no longer reads 'b'"],
        ),
        ([(", b)", ")")], ["Conv 'c' no longer reads 'b'"]),
        ([("{1,2,3,4}", "{1,2,3,5}")], ["weight 'w': 1 of 4 numbers, by at most 1"]),
        ([("{5,6}", "{5,6.1}")], ["weight 'b': [5.0, 6.0] → [5.0, 6.1]"]),
        (
            [("float[2,2,1,1] w = {1,2,3,4}", "float[2,1,1,1] w = {1,2}")],
            ["weight 'w': float32[2,2,1,1] → float32[2,1,1,1]"],
        ),
        ([("Add (s, x)", "Add (r, x)")], ["Add 'y' reads 'r', not 's'"]),
        (
            [("(r)\n", "(q)\n"), ("  s =", "  q = Tanh (r)\n  s =")],
            ["Sigmoid 's' reads 'q', not 'r'", "Tanh 'q' is new"],
        ),
        (
            [("  r = Relu (c)\n", ""), ("(r)", "(c)")],
            ["Sigmoid 's' reads 'c', not 'r'", "Relu 'r' is gone"],
        ),
        ([("Sigmoid", "Tanh")], ["Sigmoid 's' → Tanh 's'"]),
        (
            [("s = Sigmoid", "s = LeakyRelu <alpha = 0.5>")],
            ["Sigmoid 's' → LeakyRelu 's': alpha (none) → 0.5"],
        ),
        ([("x)", "z)"), ("(x,", "(z,")], ["input 'x' → 'z': renamed"]),
        (
            [("float[1,2,8,8] x", "float[N,2,8,8] x")],
            ["input 'x': float32[1,2,8,8] → float32[N,2,8,8]"],
        ),
        ([("8] y)", "8] y, float[1,2,8,8] r)")], ["output 'r' is new"]),
    ],
)
def test_one_edit(changes: list[tuple[str, str]], expected: list[str]) -> None:
    """One edit is one sentence, or two where a wire leads elsewhere."""
    assert said(NET, edited(NET, *changes)) == expected


def test_attributes_of_any_kind() -> None:
    """Short values are written out, and long ones counted."""
    after = edited(CALL, ("{1,2}", "{1,3}"), ("8,9]", "9,9]"), ('"a">', '"b">'))
    expected = 'm "a" → "b"; v [1.0, 2.0] → [1.0, 3.0]; w [9 items]: 1 of them differ'
    assert said(CALL, after) == [f"a.F 'y': {expected}"]
    table = "v = float[2,2] {1,2,3,4}"
    before, after = (
        edited(CALL, ("v = float[2] {1,2}", new)) for new in (table, table[:-2] + "6}")
    )
    assert said(before, after) == ["a.F 'y': v float32[2,2]: 1 of 4 numbers, by at most 2"]
    after = edited(CALL, ("v = float[2] {1,2}, ", ""), ("8,9]", "9]"))
    assert said(before, after) == [
        "a.F 'y': v float32[2, 2] → (none); w [9 items] → [1, 2, 3, 4, 5, 6, 7, 9]"
    ]


def test_names_of_nodes_and_values() -> None:
    """A node is called by its name, by both if they differ; who makes a value tells it apart."""
    after = edited(TWICE, ("[t] y = Relu (x)", "[u] y = LeakyRelu (x)"))
    assert said(TWICE, after) == ["Relu 't' → LeakyRelu 'u'"]
    leaky = edited(after, ("LeakyRelu", "LeakyRelu <alpha = 0.5>"), ("[u]", "[v]"))
    assert said(after, leaky)[0].startswith("LeakyRelu 'u' ('v'): alpha 0.0")
    after = edited(TWICE, ("[t] y = Relu (x)", "[t] q = Relu (x) y = Tanh (q)"))
    assert said(TWICE, after) == [
        "Neg 'z' reads 'y' of Tanh 'y', not of Relu 't'",
        "Tanh 'y' is new",
    ]


def test_what_concerns_some_nodes() -> None:
    """Of nodes of either graph, with the weights and inputs that they read; each change once."""
    after = edited(NET, ("[1, 1]", "[2, 2]"), ("{5,6}", "{5,7}"), ("Sigmoid", "Tanh"))
    (graph,) = difference(NET, edited(after, ("float[1,2,8,8] x", "float[N,2,8,8] x"))).graphs
    nodes = [{node.op_type: node for node in side} for side in (graph.before, graph.after)]
    retyped = "input 'x': float32[1,2,8,8] → float32[N,2,8,8]"
    of_conv = [
        "Conv 'c': strides [1, 1] → [2, 2]",
        "weight 'b': [5.0, 6.0] → [5.0, 7.0]",
        retyped,
    ]
    for side in nodes:
        assert list(sentences(graph, [side["Conv"]])) == of_conv
        assert list(sentences(graph, [side["Relu"]])) == []
        assert list(sentences(graph, {side["Add"]})) == [retyped]
    assert list(sentences(graph, [nodes[1]["Tanh"]])) == ["Sigmoid 's' → Tanh 's'"]
    assert list(sentences(graph, [])) == []
    assert len(list(sentences(graph))) == 4


def test_a_weight_that_a_body_reads_is_told_of_the_body() -> None:
    """Though it lies in the graph round it."""
    text = """g (bool c, float[2] x) => (float[2] y) <float[3,3] w = {1,2,3,4,5,6,7,8,9}> {
      y = If (c) <then_branch = t () => (float[2] u) { s = ReduceSum (w) u = Add (x, s) },
                  else_branch = e () => (float[2] v) { v = Neg (x) }>
    }"""
    graphs = difference(text, edited(text, ("9}", "11}"))).graphs
    (told,) = [graph for graph in graphs if graph.weights]
    expected = ["weight 'w': 1 of 9 numbers, by at most 2"]
    assert list(sentences(told, list(told.before))) == expected
    assert list(sentences(told)) == expected


def test_many_differences_of_one_node() -> None:
    """The first are told, and the others counted."""
    reads = ", ".join(f"v{k}" for k in range(8))
    makes = " ".join(f"v{k} = {op} (x)" for k, op in enumerate(["Abs", "Exp", "Neg", "Cos"] * 2))
    before = model_from_text(
        f"g (float[2] x) => (float[16] y) {{ {makes} y = Concat <axis = 0> ({reads}) }}"
    )
    *_, concat = before.graph
    changes = tuple(InputChange(k, value, None) for k, value in enumerate(concat.inputs))
    assert node_change(NodeChange(concat, concat, inputs=changes)) == (
        "Concat 'y': no longer reads 'v0'; no longer reads 'v1'; no longer reads 'v2'; "
        "5 differences more"
    )


def test_weights_that_are_no_short_vectors_of_numbers() -> None:
    """Texts are counted; a default that one model lacks is told as such; so is another type."""
    text = "g (float[2] x, float[2] k) => (float[2] y) { y = Add (x, k) }"
    proto = proto_from_text(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "k"))
    assert said(text, model_from_bytes(proto.SerializeToString())) == [
        "weight 'k': stored in one model only"
    ]
    shape = "g (float[4] x) => (y) <int64[{}] s = {{{}}}> {{ y = Reshape (x, s) }}"
    found = said(shape.format(2, "2, 2"), shape.format(1, "4"))
    assert found == ["weight 's': [2, 2] → [4]"]
    (graph,) = difference(NET, edited(NET, ("{1,2,3,4}", "{2,3,4,5}"))).graphs
    assert [weight(change) for change in graph.weights] == [
        "weight 'w': 4 of 4 numbers, by at most 1"
    ]
