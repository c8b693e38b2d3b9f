"""Each invariant is broken once, and the verifier says which."""

from collections.abc import Callable

import pytest

from dplcli.errors import InvalidGraphError
from dplcli.ir import Model, Node, Value
from dplcli.ir.traversal import check_graph_structure, check_structure
from tests.support.models import ir_of, node_making

TEXT = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}, float[2] spare = {1, 2}> {
  a = Add (x, w)
  b = Neg (a)
  m = If (c) <then_branch = t () => (float[2] p) { p = Abs (a) },
              else_branch = e () => (float[2] q) { q = Mul (a, b) }>
  y = o.f (m)
}
<domain: "o", opset_import: ["" : 17]> f (u) => (v) { s = Relu (u) v = Neg (s) }"""


def value(model: Model, name: str) -> Value:
    """Return a value of the main graph."""
    return model.graph.values[name]


def node(model: Model, name: str) -> Node:
    """Return the node of the main graph that makes *name*."""
    return node_making(model, name)


def swap_nodes(model: Model) -> None:
    """Put a reader before the maker of what it reads."""
    reader = node(model, "b")
    model.graph.unlink(reader)
    model.graph.insert_before(node(model, "a"), reader)


def equal_positions(model: Model) -> None:
    """Give two nodes one position."""
    node(model, "b").position = node(model, "a").position


def drop_use(model: Model) -> None:
    """Forget a use."""
    value(model, "a").remove_use(node(model, "b"), 0)


def drop_captured_use(model: Model) -> None:
    """Forget the use by a node in a body."""
    inner = next(iter(node(model, "m").subgraphs["then_branch"]))
    value(model, "a").remove_use(inner, 0)


def invent_use(model: Model) -> None:
    """Claim a use that is none."""
    value(model, "w").add_use(node(model, "b"), 0)


def invent_slot(model: Model) -> None:
    """Claim a use in a slot that does not exist."""
    value(model, "w").add_use(node(model, "b"), 5)


def count_use_twice(model: Model) -> None:
    """Record one use two times."""
    value(model, "a").add_use(node(model, "b"), 0)


def use_by_gone_node(model: Model) -> None:
    """Keep the use by a node that is in the graph no more."""
    gone = Node(model.graph, "Gone")
    gone.inputs = (value(model, "w"),)
    value(model, "w").add_use(gone, 0)


def made_by_gone_node(model: Model) -> None:
    """Keep a value, and its reader, whose maker is in the graph no more."""
    gone = node(model, "a")
    model.graph.unlink(gone)
    value(model, "x").remove_use(gone, 0)
    value(model, "w").remove_use(gone, 1)


def unregister(model: Model) -> None:
    """Forget the name of a value that is read."""
    del model.graph.values["a"]


def unregister_output(model: Model) -> None:
    """Return a value that the graph does not hold."""
    spare = model.graph.values.pop("spare")
    model.graph.add_output(spare)


def rename(model: Model) -> None:
    """Give a value another name than it is registered under."""
    value(model, "a").name = "z"


def foreign_value(model: Model) -> None:
    """Register a value of another graph."""
    inner = node(model, "m").subgraphs["then_branch"]
    model.graph.values["p"] = inner.values["p"]


def wrong_producer(model: Model) -> None:
    """Name the wrong maker of a value."""
    value(model, "a").producer = node(model, "b")


def wrong_index(model: Model) -> None:
    """Number an output wrongly."""
    value(model, "a").index = 1


def wrong_count(model: Model) -> None:
    """Count a node too many."""
    model.graph.node_count += 1


def wrong_graph(model: Model) -> None:
    """Let a node say that it is in another graph."""
    node(model, "b").graph = node(model, "m").subgraphs["then_branch"]


def wrong_owner(model: Model) -> None:
    """Detach a body from the node it belongs to."""
    node(model, "m").subgraphs["then_branch"].owner = None


def unmarked_output(model: Model) -> None:
    """Return a value that does not know it."""
    value(model, "y").returned_by = ()


def marked_output(model: Model) -> None:
    """Mark a value as returned that is not."""
    value(model, "b").returned_by = (model.graph,)


def broken_back_link(model: Model) -> None:
    """Break the list for those who walk it backwards."""
    node(model, "m").prev = node(model, "a")


def read_from_sibling(model: Model) -> None:
    """Let one branch read a value of the other."""
    bodies = node(model, "m").subgraphs
    reader = next(iter(bodies["then_branch"]))
    foreign = bodies["else_branch"].values["q"]
    value(model, "a").remove_use(reader, 0)
    reader.inputs = (foreign,)
    foreign.add_use(reader, 0)


def function_reads_main(model: Model) -> None:
    """Let a function read a value of the main graph."""
    reader = next(iter(model.functions["o", "f", ""].body))
    assert reader.inputs[0] is not None
    reader.inputs[0].remove_use(reader, 0)
    reader.inputs = (value(model, "a"),)
    value(model, "a").add_use(reader, 0)


def return_later_value(model: Model) -> None:
    """Let a body return a value that is made after the node that has the body."""
    node(model, "m").subgraphs["then_branch"].add_output(value(model, "y"))


def return_value_of_sibling(model: Model) -> None:
    """Let one branch return a value of the other."""
    bodies = node(model, "m").subgraphs
    bodies["then_branch"].add_output(bodies["else_branch"].values["q"])


def no_import(model: Model) -> None:
    """Call an operator of a domain that the model does not import."""
    del model.opset_imports["o"]


def broken_body(model: Model) -> None:
    """Break something in a body."""
    node(model, "m").subgraphs["else_branch"].node_count = 7


def broken_function(model: Model) -> None:
    """Break something in a function."""
    model.functions["o", "f", ""].body.values["s"].name = "z"


CORRUPTIONS = [
    swap_nodes,
    equal_positions,
    drop_use,
    drop_captured_use,
    invent_use,
    invent_slot,
    count_use_twice,
    use_by_gone_node,
    made_by_gone_node,
    unregister,
    unregister_output,
    rename,
    foreign_value,
    wrong_producer,
    wrong_index,
    wrong_count,
    wrong_graph,
    wrong_owner,
    unmarked_output,
    marked_output,
    broken_back_link,
    read_from_sibling,
    function_reads_main,
    return_later_value,
    return_value_of_sibling,
    no_import,
    broken_body,
    broken_function,
]


def test_a_sound_model_passes() -> None:
    """The verifier has nothing to say of a model as loaded."""
    check_structure(ir_of(TEXT))


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda change: change.__name__)
def test_every_corruption_is_caught(corrupt: Callable[[Model], None]) -> None:
    """A model broken in one place is refused in one line."""
    model = ir_of(TEXT)
    corrupt(model)
    with pytest.raises(InvalidGraphError) as caught:
        check_structure(model)
    assert "\n" not in caught.value.message


def test_one_graph_alone_can_be_verified() -> None:
    """A body is checked on its own, and answers for itself only."""
    model = ir_of(TEXT)
    broken_body(model)
    bodies = node(model, "m").subgraphs
    check_graph_structure(bodies["then_branch"])
    with pytest.raises(InvalidGraphError, match="'e'"):
        check_graph_structure(bodies["else_branch"])
