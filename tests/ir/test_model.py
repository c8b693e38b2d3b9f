"""The data structures: linked nodes that know their order, values that know their uses."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir import Graph, Node, Value
from tests.support.models import ir_of, node_making

MANY = 100


def empty_graph() -> Graph:
    """Return a graph without nodes."""
    return ir_of("g () => () { }").graph


def assert_linked(graph: Graph, expected: list[Node]) -> None:
    """Check order both ways, positions and count."""
    assert list(graph) == expected
    assert list(reversed(graph)) == expected[::-1]
    assert graph.node_count == len(expected)
    positions = [node.position for node in graph]
    assert positions == sorted(set(positions))
    assert all(position > 0 for position in positions)


def test_thousands_of_insertions_at_one_place() -> None:
    """Order and positions hold however often one inserts at the same place."""
    graph = empty_graph()
    first, last = Node(graph, "First"), Node(graph, "Last")
    graph.append(first)
    graph.append(last)
    inserted = [Node(graph, "New") for _ in range(3000)]
    for node in inserted:
        graph.insert_before(last, node)
    assert_linked(graph, [first, *inserted, last])
    front = [Node(graph, "Front") for _ in range(3000)]
    anchor = first
    for node in front:
        graph.insert_before(anchor, node)
        anchor = node
    assert_linked(graph, [*front[::-1], first, *inserted, last])


@pytest.mark.parametrize(
    "place", ["before-the-newest", "before-the-last", "at-the-front", "halfway"]
)
def test_room_is_made_at_little_cost(place: str) -> None:
    """Wherever one inserts, few of the nodes around it get new positions."""
    moved = {}
    for count in (500, 4000):
        graph = empty_graph()
        expected = [Node(graph, "Old") for _ in range(count)]
        for node in expected:
            graph.append(node)
        places = {"before-the-newest": count // 2, "front": 0}
        moves = 0
        for number in range(count):
            last = len(expected) - 1
            at = (number * 7919) % last if place == "anywhere" else places.get(place, last)
            node = Node(graph, "New")
            before = [other.position for other in expected[max(at - 20, 0) : at + 20]]
            graph.insert_before(expected[at], node)
            after = [other.position for other in expected[max(at - 20, 0) : at + 20]]
            moves += sum(old != new for old, new in zip(before, after, strict=True))
            expected.insert(at, node)
        assert_linked(graph, expected)
        moved[count] = moves / count
    assert moved[4000] < 8
    assert moved[4000] < 2 * moved[500] + 1


def test_removing_the_current_node_while_iterating() -> None:
    """A walk in either direction survives the removal of the node it is at."""
    for walk in (iter, reversed):
        graph = empty_graph()
        nodes = [Node(graph, "Op") for _ in range(10)]
        for node in nodes:
            graph.append(node)
        seen = []
        for node in walk(graph):
            seen.append(node)
            graph.unlink(node)
        assert sorted(map(nodes.index, seen)) == list(range(10))
        assert_linked(graph, [])


@given(st.lists(st.tuples(st.sampled_from("aiu"), st.integers(0, 10**6)), max_size=200))
def test_any_sequence_of_edits(edits: list[tuple[str, int]]) -> None:
    """Appending, inserting and unlinking keep the list equal to a plain one."""
    graph = empty_graph()
    expected: list[Node] = []
    for kind, number in edits:
        if kind == "u" and expected:
            graph.unlink(expected.pop(number % len(expected)))
        elif kind == "i" and expected:
            place = number % len(expected)
            node = Node(graph, "Op")
            graph.insert_before(expected[place], node)
            expected.insert(place, node)
        else:
            node = Node(graph, "Op")
            graph.append(node)
            expected.append(node)
    assert_linked(graph, expected)


def test_an_emptied_graph_can_be_filled_again() -> None:
    """Nothing of the nodes once unlinked shows in what is appended later."""
    graph = empty_graph()
    node = Node(graph, "Op")
    for _ in range(3):
        graph.append(node)
        assert_linked(graph, [node])
        graph.unlink(node)
        assert_linked(graph, [])
        assert (node.prev, node.next) == (None, None)


def test_few_and_many_uses_read_alike() -> None:
    """Uses are listed in order of their making, whatever their number."""
    for count in (1, 32, 33, MANY):
        graph = empty_graph()
        value = Value("v", graph)
        uses = [(Node(graph, "Op"), slot % 3) for slot in range(count)]
        for node, slot in uses:
            value.add_use(node, slot)
        assert value.uses == tuple(uses) == tuple(value.iter_uses())
        assert value.use_count == count
        value.remove_use(*uses[0])
        assert value.uses == tuple(uses[1:])


@given(st.integers(0, 80), st.randoms(use_true_random=False))
def test_uses_are_a_multiset_however_edited(count: int, rng: random.Random) -> None:
    """Adding and removing in any order keeps exactly the uses not removed."""
    graph = empty_graph()
    value = Value("v", graph)
    nodes = [Node(graph, "Op") for _ in range(10)]
    free = [(node, slot) for node in nodes for slot in range(12)]
    rng.shuffle(free)
    present = [free.pop() for _ in range(count)]
    for use in present:
        value.add_use(*use)
    for _ in range(150):
        if present and rng.random() < 0.5:
            use = present.pop(rng.randrange(len(present)))
            value.remove_use(*use)
            free.append(use)
        elif free:
            use = free.pop(rng.randrange(len(free)))
            value.add_use(*use)
            present.append(use)
        assert value.use_count == len(present)
    assert Counter(value.uses) == Counter(present)


def test_uses_may_be_edited_while_walking_a_copy() -> None:
    """``uses`` is a copy: removing while walking it misses nothing."""
    graph = empty_graph()
    value = Value("v", graph)
    for _ in range(MANY):
        value.add_use(Node(graph, "Op"), 0)
    for use in value.uses:
        value.remove_use(*use)
    assert value.uses == ()


def test_a_node_that_reads_a_value_twice_uses_it_twice() -> None:
    """Each slot is a use of its own."""
    model = ir_of("g (float[2] x) => (y) { y = Foo (x, , x) }")
    node = node_making(model, "y")
    assert model.graph.values["x"].uses == ((node, 0), (node, 2))


def test_graphs_come_outermost_first() -> None:
    """Every graph of a model comes once: main, its bodies in order, then functions."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        main (float[2] x, bool c) => (y) {
          t = If (c) <then_branch = a () => (p) {
                        p = If (c) <then_branch = aa () => (q) { q = Neg (x) }> },
                      else_branch = b () => (r) { r = Abs (x) }>
          y = o.f (t)
        }
        <domain: "o", opset_import: ["" : 17]> f (u) => (v) { v = Relu (u) }""")
    names = [graph.name for graph in model.graphs()]
    assert sorted(names) == ["a", "aa", "b", "f", "main"]
    assert names[0] == "main"
    assert names[-1] == "f"
    assert names.index("a") < names.index("aa")


def test_a_new_model_is_empty_and_sound() -> None:
    """A model of an empty graph has no nodes, values, functions or notes."""
    model = ir_of("g () => () {}")
    assert list(model.graphs()) == [model.graph]
    assert (list(model.graph), model.graph.initializers, model.notes) == ([], [], [])


def test_reprs_name_what_they_show() -> None:
    """What a debugger shows says name, operator and size, never an address."""
    model = ir_of("g (float[2] x) => (y) { [n] y = Relu (x) }")
    shown = [model.graph, node_making(model, "y"), *model.graph.values.values()]
    assert not any(" at 0x" in repr(item) for item in shown)
    assert repr(model.graph) == "<Graph 'g' with 1 nodes>"
    assert repr(shown[1]) == "<Node Relu 'n'>"
