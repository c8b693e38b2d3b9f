"""What comparing costs where graphs nest: twice as deep is twice as much, in every kind of body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import helper

from dplcli.diff.comparison import Differ
from dplcli.ir.operators import draws_random
from tests.diff.compared import calls_in, difference, words
from tests.support.models import ir_of
from tests.support.strategies import FOUR_TIMES, growth

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[int, str, str], onnx.ModelProto]

DEPTHS = (7, 14, 28)
"""protobuf reads no file whose bodies nest deeper than 33."""
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def _scalar(name: str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [])


def _model(
    node: onnx.NodeProto, functions: list[onnx.FunctionProto] | None = None
) -> onnx.ModelProto:
    inputs = [_scalar("x"), _scalar("c", BOOL), _scalar("m", INT64)]
    graph = helper.make_graph([node], "g", inputs, [_scalar(node.output[0])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


def nested_ifs(depth: int, leaf: str = "Relu", each: str = "Neg") -> onnx.ModelProto:
    """Return an If in an If, and so on; the innermost bodies read values from the outermost."""

    def branch(name: str, inner: onnx.NodeProto) -> onnx.GraphProto:
        last = helper.make_node(each, [inner.output[0]], [f"{name}_y"])
        return helper.make_graph([inner, last], name, [], [_scalar(f"{name}_y")])

    node = helper.make_node(leaf, ["x"], ["o"])
    for level in range(depth):
        other = helper.make_node("Exp", ["x"], [f"e{level}"])
        branches = {
            "then_branch": branch(f"t{level}", node),
            "else_branch": branch(f"f{level}", other),
        }
        node = helper.make_node("If", ["c"], [f"i{level}"], **branches)
    return _model(node)


def nested_loops(depth: int, leaf: str = "Relu", each: str = "Neg") -> onnx.ModelProto:
    """Return a Loop in a Loop, and so on, each of which starts with what is carried round it."""
    node = helper.make_node(leaf, ["s0"], ["o"])
    for level in range(depth):
        state, outer = f"s{level}", "x" if level == depth - 1 else f"s{level + 1}"
        nodes = [
            helper.make_node("Identity", [f"p{level}"], [f"q{level}"]),
            node,
            helper.make_node("Add", [node.output[0], state], [f"w{level}"]),
            helper.make_node(each, [f"w{level}"], [f"y{level}"]),
        ]
        inputs = [_scalar(f"n{level}", INT64), _scalar(f"p{level}", BOOL), _scalar(state)]
        outputs = [_scalar(f"q{level}", BOOL), _scalar(f"y{level}")]
        body = helper.make_graph(nodes, f"b{level}", inputs, outputs)
        node = helper.make_node("Loop", ["m", "c", outer], [f"l{level}"], body=body)
    return _model(node)


def nested_functions(depth: int, leaf: str = "Relu", each: str = "Neg") -> onnx.ModelProto:
    """Return functions each of which calls the one before twice."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for level in range(depth):
        called = {"op_type": f"f{level - 1}", "domain": "f"} if level else {"op_type": leaf}
        nodes = [
            helper.make_node(inputs=["a"], outputs=["b"], **called),
            helper.make_node(inputs=["b"], outputs=["d"], **called),
            helper.make_node(each, ["d"], ["y"]),
        ]
        made = helper.make_function("f", f"f{level}", ["a"], ["y"], nodes, imports)
        functions.append(made)
    return _model(helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="f"), functions)


def check_growth(cost: Callable[[int], int]) -> None:
    """Check, from little to much, that what is twice as deep costs hardly more than twice."""
    before = cost(DEPTHS[0])
    for depth in DEPTHS[1:]:
        after = cost(depth)
        assert after < 2.4 * before, (depth, before, after)
        before = after


@pytest.mark.long
@pytest.mark.parametrize("make", [nested_ifs, nested_loops, nested_functions])
@pytest.mark.parametrize(
    "other",
    [("Relu", "Neg"), ("Tanh", "Neg"), ("Relu", "Abs")],
    ids=["equal", "innermost", "every"],
)
def test_twice_as_deep_costs_twice(make: Make, other: tuple[str, str]) -> None:
    """Whether the models are equal, or differ innermost, or at every level."""

    def cost(depth: int) -> int:
        first, second = ir_of(make(depth, "Relu", "Neg")), ir_of(make(depth, *other))
        return calls_in(Differ(first, second).result)

    check_growth(cost)


@pytest.mark.parametrize("make", [nested_ifs, nested_loops, nested_functions])
def test_whether_random_numbers_are_drawn_is_asked_of_each_node_once(make: Make) -> None:
    """A node in several bodies one round the other is one node."""

    def cost(depth: int) -> int:
        (node,) = ir_of(make(depth, "Relu", "Neg")).graph
        return calls_in(lambda: draws_random(node))

    check_growth(cost)
    for leaf, is_random in (("Relu", False), ("Bernoulli", True)):
        (node,) = ir_of(make(5, leaf, "Neg")).graph
        assert draws_random(node) is is_random


@pytest.mark.parametrize("make", [nested_ifs, nested_loops, nested_functions])
def test_what_differs_deep_inside_is_found_once(make: Make) -> None:
    """In the graph where it is, and nowhere else."""
    depth = 6
    first, second = ir_of(make(depth, "Relu", "Neg")), ir_of(make(depth, "Tanh", "Neg"))

    assert difference(first, first).is_equal
    assert len([graph for graph in difference(first, second).graphs if graph.count]) == 1


def test_equal_bodies_that_capture_something_else_differ() -> None:
    """What a body captures is part of it, at any depth; in another order it is the same."""
    text = """g (bool c, float[2] a, float[2] b) => (y) {{
        s = Sub ({0}) t = Sub ({1})
        y = If (c) <
            then_branch = t () => (u) {{
                u = If (c) <
                    then_branch = tt () => (v) {{ p = Abs (s) q = Exp (t) v = Sub (p, q) }},
                    else_branch = te () => (w) {{ w = Neg (s) }}> }},
            else_branch = e () => (z) {{ z = Neg (b) }}> }}"""
    swapped = text.replace("p = Abs (s) q = Exp (t)", "q = Exp (t) p = Abs (s)")

    assert difference(text.format("a, b", "b, a"), swapped.format("a, b", "b, a")).is_equal
    assert not difference(text.format("a, b", "b, a"), text.format("b, a", "a, b")).is_equal
    other = text.replace("w = Neg (s)", "w = Neg (t)")
    assert words(difference(text.format("a, b", "b, a"), other.format("a, b", "b, a"))) == [
        "Neg[0] s t"
    ]


def test_inputs_are_not_searched_for_each_other() -> None:
    """However many a model has."""

    def prepared(count: int) -> Callable[[], object]:
        inputs = [_scalar(f"x{number}") for number in range(count)]
        relu = helper.make_node("Relu", ["x0"], ["y"])
        graph = helper.make_graph([relu], "g", inputs, [_scalar("y")])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Differ(ir_of(proto), ir_of(proto)).result

    assert growth(prepared, 2000) < FOUR_TIMES


class Watched(dict[Any, Any]):
    """Functions of a model that count how often somebody goes through all of them."""

    walks = 0

    def values(self) -> Any:  # noqa: ANN401  # as dict has it
        """Return the functions."""
        self.walks += 1
        return super().values()

    def items(self) -> Any:  # noqa: ANN401  # as dict has it
        """Return the functions with their keys."""
        self.walks += 1
        return super().items()


def test_functions_are_not_searched_for_each_other() -> None:
    """However many there are, they are gone through as often."""

    def walks(count: int) -> int:
        relu, opset = helper.make_node("Relu", ["x"], ["y"]), [helper.make_opsetid("", 17)]
        functions = [
            helper.make_function("f", f"f{n}", ["x"], ["y"], [relu], opset) for n in range(count)
        ]
        proto = _model(helper.make_node("f0", ["x"], ["y"], domain="f"), functions)
        first, second = ir_of(proto), ir_of(proto)
        first.functions = Watched(first.functions)
        assert Differ(first, second).result().all_remarks == ()
        return first.functions.walks

    assert walks(40) == walks(20)
