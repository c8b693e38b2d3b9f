"""The one place where graphs are edited keeps order, names and use-lists true."""

import pytest

from dplcli.errors import InvalidGraphError
from dplcli.ir import Node, Value
from dplcli.ir.traversal import check_structure
from dplcli.passes.rewriter import GraphRewriter, RewriteListener
from tests.support.helpers import model_from_text, print_model

TEXT = "g (float[2] a) => (o) <float[2] k = {1, 2}> { r = Relu (a) s = Neg (r) o = Abs (s) }"


class Log(RewriteListener):
    """Remembers every edit."""

    def __init__(self) -> None:
        """Start empty."""
        self.seen: list[str] = []
        self.changed: set[str] = set()

    def node_inserted(self, node: Node) -> None:
        """Note an insertion."""
        self.seen.append(f"+{node.op_type}")

    def bodies_made(self, node: Node) -> None:
        """Note the bodies of a new node."""
        self.seen.append(f"+{len(node.subgraphs)} bodies")

    def node_erased(self, node: Node) -> None:
        """Note a removal."""
        self.seen.append(f"-{node.op_type}")

    def value_changed(self, value: Value) -> None:
        """Note a value with another maker."""
        self.changed.add(value.name)

    def constant_made(self, value: Value) -> None:
        """Note a new constant."""
        self.changed.add(f"data of {value.name}")

    def inputs_changed(self, node: Node) -> None:
        """Note a node that reads something else."""
        self.changed.add(f"inputs of {node.op_type}")

    def readers_changed(self, value: Value) -> None:
        """Note a value with other readers."""
        self.changed.add(f"readers of {value.name}")


def test_replace_a_node() -> None:
    """A new node takes over the outputs, the old one goes, and the listener hears of both."""
    model = model_from_text(TEXT)
    log = Log()
    rewriter = GraphRewriter(model.graph, log)
    old = model.graph.values["s"].producer
    assert old is not None
    new = rewriter.insert(old, "Tanh", old.inputs, name="n")
    rewriter.take_over_outputs(new, [model.graph.values["s"]])
    rewriter.erase([old])
    check_structure(model)
    assert log.seen == ["+Tanh", "-Neg"]
    assert log.changed == {"s"}
    assert "[n] s = Tanh (r)" in print_model(model)
    assert model.graph.modified


def test_erasing_what_is_read_changes_nothing() -> None:
    """A node whose value is read or returned is not erased, and the graph stays whole."""
    for name in ("r", "o"):
        model = model_from_text(TEXT)
        before = print_model(model)
        node = model.graph.values[name].producer
        assert node is not None
        with pytest.raises(InvalidGraphError):
            GraphRewriter(model.graph).erase([node])
        assert print_model(model) == before
        check_structure(model)


def test_erasing_a_group_reads_within_it() -> None:
    """Nodes that only read each other are erased together, in any order."""
    model = model_from_text(TEXT.replace("o = Abs (s)", "o = Abs (a)"))
    r, s = model.graph.values["r"].producer, model.graph.values["s"].producer
    assert r is not None
    assert s is not None
    GraphRewriter(model.graph).erase([r, s])
    check_structure(model)
    assert [node.op_type for node in model.graph] == ["Abs"]
    assert {"r", "s"}.isdisjoint(model.graph.values)


def test_dropping_initializers() -> None:
    """An initializer is dropped if nobody reads it, and only then."""
    model = model_from_text(TEXT)
    GraphRewriter(model.graph).drop_initializer(model.graph.values["k"])
    assert "k" not in model.graph.values
    model = model_from_text(TEXT.replace("Abs (s)", "Add (s, k)"))
    with pytest.raises(InvalidGraphError):
        GraphRewriter(model.graph).drop_initializer(model.graph.values["k"])


def test_many_insertions_keep_the_order() -> None:
    """Inserting at one place again and again never breaks the order of positions."""
    model = model_from_text(TEXT)
    anchor = model.graph.values["o"].producer
    source = model.graph.values["a"]
    assert anchor is not None
    rewriter = GraphRewriter(model.graph)
    for _ in range(100):
        rewriter.insert(anchor, "Sink", [source])
    check_structure(model)
    assert model.graph.node_count == 103
