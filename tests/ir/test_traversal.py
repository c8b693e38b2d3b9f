"""Walks over graphs, checked by hand and against brute force on random graphs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir import Model, Node, Value
from dplcli.ir.traversal import check_structure, enclosing_node, path_through_outside, users
from tests.support.models import ir_of, node_making, parse, read_values

NESTED = """g (float[2] x, bool c) => (y, z) {
  a = Neg (x)
  y = If (c) <
    then_branch = t () => (p) {
      p = If (c) <then_branch = tt () => (q) { q = Add (a, x) },
                  else_branch = te () => (a) { }>
    },
    else_branch = e () => (r) { s = Abs (x) r = Mul (s, s) }>
  z = Add (a, a)
}"""


def nodes_of(model: Model, names: str) -> list[Node]:
    """Return the nodes of the main graph that make the values *names*, one letter each."""
    return [node_making(model, name) for name in names]


def inner(node: Node, *path: str) -> Node:
    """Return the last node of the body that *path* leads to."""
    *way, last = path
    for attribute in way:
        node = next(iter(node.subgraphs[attribute]))
    return next(reversed(node.subgraphs[last]))


def test_enclosing_node() -> None:
    """A node in a body lies, seen from outside, in the node that has the body."""
    model = ir_of(NESTED)
    choice = node_making(model, "y")
    deep = inner(choice, "then_branch", "then_branch")
    assert deep.op_type == "Add"
    assert enclosing_node(deep, deep.graph) is deep
    assert enclosing_node(deep, model.graph) is choice
    assert enclosing_node(choice, model.graph) is choice
    middle = next(iter(choice.subgraphs["then_branch"]))
    assert enclosing_node(deep, middle.graph) is middle
    assert enclosing_node(choice, deep.graph) is None
    assert enclosing_node(deep, choice.subgraphs["else_branch"]) is None


def test_users_count_captures() -> None:
    """A reader in a body counts as a use by the node that has the body; twice is twice."""
    model = ir_of(NESTED)
    (choice, final) = nodes_of(model, "yz")
    assert list(users(model.graph.values["a"])) == [choice, final, final, choice]
    x = model.graph.values["x"]
    assert [user.op_type for user in users(x)] == ["Neg", "If", "If"]
    s = choice.subgraphs["else_branch"].values["s"]
    assert [user.op_type for user in users(s)] == ["Mul", "Mul"]


def test_values_read_include_captures_at_any_depth() -> None:
    """A node depends on its inputs, on what its bodies read, and on what they return."""
    choice = node_making(ir_of(NESTED), "y")
    outside = [v.name for v in read_values(choice) if v.graph is choice.graph]
    assert sorted(set(outside)) == ["a", "c", "x"]
    only_returned = node_making(
        ir_of("g (bool c, x) => (y) { y = If (c) <then_branch = t () => (x) { }> }"), "y"
    )
    assert [value.name for value in read_values(only_returned)] == ["c", "x"]


def leaving(nodes: list[Node]) -> list[Value]:
    """Return the outputs of *nodes* that other nodes read."""
    return [
        output
        for node in nodes
        for output in node.outputs
        if output is not None and any(user not in nodes for user in users(output))
    ]


def detour(model: Model, names: str) -> str | None:
    """Return what path_through_outside says of the nodes that make *names*."""
    nodes = nodes_of(model, names)
    found = path_through_outside(nodes, leaving(nodes))
    return None if found is None else found.label


def test_convex_and_not() -> None:
    """A detour through a node outside is found, named by its first node; else there is none."""
    model = ir_of("""g (float[2] x) => (d, e) {
        a = Neg (x) b = Abs (a) b2 = Relu (b) c = Add (a, b2) d = Exp (c) e = Log (b) }""")
    assert detour(model, "ac") == "b"
    assert detour(model, "ab") is None
    assert detour(model, "ad") in {"b", "c"}
    assert detour(model, "cd") is None
    assert detour(model, "ae") == "b"
    assert detour(model, "bd") == "b2"
    assert detour(model, "a") is None


def test_detours_through_captures() -> None:
    """A path may lead through a body outside, and end in a body of a member."""
    model = ir_of("""g (float[2] x, bool c) => (d) {
        a = Neg (x)
        b = If (c) <then_branch = t () => (p) { p = Abs (a) }>
        d = If (c) <then_branch = u () => (q) { q = Add (a, b) }> }""")
    assert detour(model, "ad") == "b"
    assert detour(model, "ab") is None
    assert detour(model, "bd") is None


def test_a_detour_through_what_a_body_returns() -> None:
    """Returning an outer value from a body is reading it: such a path counts as well."""
    model = ir_of("""g (float[2] x, bool c) => (d) {
        a = Neg (x)
        b = If (c) <then_branch = t () => (a) { }>
        d = Add (a, b) }""")
    returned = model.graph.values["a"]
    assert path_through_outside(nodes_of(model, "ad"), [returned]) is node_making(model, "b")


def random_dag(rng: random.Random, size: int) -> Model:
    """Return a graph of *size* nodes, some reading earlier values only inside a body."""
    made, lines = ["x"], []
    for index in range(size):
        read = [rng.choice(made[-6:]) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            body = f"p{index} = Foo ({', '.join(read)})"
            lines.append(f"v{index} = If (c) <then_branch = t () => (p{index}) {{ {body} }}>")
        else:
            lines.append(f"v{index} = Foo ({', '.join(read)})")
        made.append(f"v{index}")
    proto = parse(f"g (x, bool c) => ({made[-1]}) {{ {' '.join(lines)} }}")
    return ir_of(proto)


def reachable(starts: list[Node]) -> set[Node]:
    """Return the nodes that depend on one of *starts*, by asking every node what it reads."""
    found = set(starts)
    for node in starts[0].graph:
        if any(value.producer in found for value in read_values(node)):
            found.add(node)
    return found - set(starts)


@given(st.randoms(use_true_random=False), st.integers(2, 14), st.integers(1, 5))
def test_convexity_agrees_with_brute_force(rng: random.Random, size: int, picked: int) -> None:
    """A set is convex exactly if no outside node both depends on it and is needed by it."""
    model = random_dag(rng, size)
    check_structure(model)
    nodes = rng.sample(list(model.graph), min(picked, size))
    behind = [node for node in reachable(nodes) if node not in nodes]
    on_a_path = {node for node in behind if reachable([node]) & set(nodes)}
    found = path_through_outside(nodes, leaving(nodes))
    if not on_a_path:
        assert found is None
    else:
        assert found in on_a_path
