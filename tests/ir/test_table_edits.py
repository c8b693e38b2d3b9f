"""Edits of the table keep what always holds, and refuse what would break it."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from dplcli.ir.edits import Editor, NewNodes
from dplcli.ir.table import OMITTED, Payload, Table, TableError
from dplcli.onnx_io.splice import written
from dplcli.onnx_io.table import read_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.ir.relations import Ids

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
main (float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 2.0}, float[2] v = {1.0, 2.0}> {
  a = Add (x, w)
  b = Mul (a, v)
  k = Constant <value = float[2] {3.0, 4.0}> ()
  d = If (c) <
    then_branch = then () => (float[2] t) <float[2] s = {5.0, 6.0}> { t = Sub (b, s) },
    else_branch = other () => (float[2] b) { }
  >
  y = Max (d, k)
}
"""


def a_table() -> Table:
    """Return the table of a small model."""
    data: bytes = parser.parse_model(TEXT).SerializeToString()
    return read_table(data, "m.onnx")


def value(table: Table, name: str) -> int:
    """Return the only value of a name."""
    every = np.arange(1, table.values.size)
    (found,) = (row + 1 for row, text in enumerate(table.names(every)) if text == name.encode())
    return found


def values(table: Table, *names: str) -> Ids:
    """Return the values of some names."""
    return np.array([value(table, name) for name in names], np.int32)


def maker(table: Table, name: str) -> Ids:
    """Return the node that makes a value."""
    return table.values.producer[values(table, name)]


def relu(editor: Editor, read: Ids, made: Ids, **more: object) -> NewNodes:
    """Return one node for each of some values."""
    ones = np.ones(read.size, np.int64)
    columns: dict[str, object] = {"operator": editor.operator(b"", b"Relu")} | more
    return NewNodes(in_count=ones, inputs=read, out_count=ones, outputs=made, **columns)  # type: ignore[arg-type]


def order(table: Table) -> list[bytes]:
    """Return what the nodes of the main graph make, in order."""
    nodes = table.in_order()
    nodes = nodes[table.nodes.graph[nodes] == 0]
    return [b",".join(table.names(table.outputs_of(np.array([node]))[1])) for node in nodes]


def test_a_new_node_makes_the_value_of_the_old_one() -> None:
    """So its readers, in bodies too, need no edit; what the old one read is returned."""
    table = a_table()
    editor = Editor(table)
    old, anchor = values(table, "b"), maker(table, "b")
    read = values(table, "a")
    (new,), lost = editor.replace(anchor, relu(editor, read, old, anchor=anchor, names=[b"new"]))
    table.check()
    assert {*table.names(lost)} == {b"a", b"v"}
    assert table.values.producer[old] == new
    assert table.node_names(np.array([new])) == [b"new"]
    assert not table.nodes.live[anchor].any()
    assert table.values.uses[values(table, "a")] == 1
    assert order(table) == [b"a", b"b", b"k", b"d", b"y"]
    assert editor.sweep(lost).size == 0
    assert table.values.tensor[values(table, "v")] == -1
    table.check()


def test_many_nodes_share_one_place() -> None:
    """In their own order, before a node that stays or in the place of one that goes."""
    table = a_table()
    editor = Editor(table)
    for turn in range(40):
        anchor, last = maker(table, "b"), values(table, "a")
        names = [f"{turn}_{number}".encode() for number in range(9)]
        made = editor.add_values(0, names)
        anchors = np.repeat(anchor, 9)
        editor.add(relu(editor, np.append(last, made[:-1]), made, anchor=anchors))
        table.check()
        assert order(table)[-13:] == [*names, b"b", b"k", b"d", b"y"]
        kept = values(table, "b")
        between = editor.add_values(0, [b"before_%d" % turn])
        read = np.array([made[-1], between[0]])
        new = relu(editor, read, np.append(between, kept), anchor=np.repeat(anchor, 2))
        editor.replace(anchor, new)
        table.check()
        assert order(table)[-5:] == [b"before_%d" % turn, b"b", b"k", b"d", b"y"]
    assert len(order(table)) == 5 + 40 * 10


def test_what_nobody_reads_goes() -> None:
    """With bodies, their captures, stored values and Constants; inputs stay."""
    table = a_table()
    editor = Editor(table)
    result = values(table, "y")
    anchor = maker(table, "y")
    _, lost = editor.replace(anchor, relu(editor, values(table, "x"), result, anchor=anchor))
    gone = editor.sweep(lost)
    table.check()
    assert gone.size == 4
    assert order(table) == [b"y"]
    assert [graph.live for graph in table.graphs] == [True, False, False]
    assert (table.values.tensor == -1).all()
    assert table.values.given[values(table, "x", "c")].all()


def test_chains_of_rewired_values_are_followed() -> None:
    """In one step; a body that reads is touched, what a body returns is not."""
    table = a_table()
    editor = Editor(table)
    touched = editor.rewire(values(table, "b", "a"), values(table, "a", "x"))
    table.check()
    reads = {*table.names(table.inputs_of(touched)[1])}
    assert reads == {b"x", b"v", b"s"}
    assert table.nodes.touched[touched].all()
    assert table.values.returned[values(table, "x")] == 0
    assert editor.rewire(values(table, "a"), values(table, "x")).size == 0
    with pytest.raises(ValueError, match="circle"):
        editor.rewire(values(table, "a", "x"), values(table, "x", "a"))


def test_inputs_in_another_number() -> None:
    """The nodes stay; what they have read is returned."""
    table = a_table()
    editor = Editor(table)
    nodes = np.concatenate([maker(table, "a"), maker(table, "b")])
    inputs = np.append(values(table, "x", "w", "x"), OMITTED)
    lost = editor.set_inputs(nodes, np.array([3, 1]), inputs)
    table.check()
    assert {*table.names(lost)} == {b"x", b"w", b"a", b"v"}
    assert table.names(table.inputs_of(nodes)[1]) == [b"x", b"w", b"x", b""]


def test_a_copy_is_independent() -> None:
    """Rows added to one, and rows changed in one, are not in the other; the file is shared."""
    table = a_table()
    data = written(table)
    for other in (table.copy(), deepcopy(table)):
        editor = Editor(other)
        anchor = maker(other, "b")
        new = relu(editor, values(other, "a"), values(other, "b"), anchor=anchor)
        editor.sweep(editor.replace(anchor, new)[1])
        editor.state(value(other, "a"), b"")
        other.check()
        table.check()
        assert written(table) == data != written(other)
    assert table.copy().data is table.data


def test_columns_of_a_copy_are_those_that_grow() -> None:
    """A column that was changed in a copy stays so when rows are added to that."""
    nodes = a_table().nodes
    for copy in (deepcopy(nodes), pickle.loads(pickle.dumps(nodes))):  # noqa: S301  # our own
        copy.place[:] = 7
        copy.append(100, **dict.fromkeys(type(nodes).__annotations__, 0))
        assert (copy.place[: nodes.size] == 7).all()
        assert (nodes.place != 7).all()


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=6))
def test_places_of_random_anchors(batches: list[list[int]]) -> None:
    """New nodes of one anchor come in their own order before it, those without one at the end."""
    table = a_table()
    editor = Editor(table)
    expected = order(table)
    for turn, batch in enumerate(batches):
        names = [b"%d_%d" % (turn, number) for number in range(len(batch))]
        where = [b"a", b"d", b"y", b""]
        anchors = [-1 if at == 3 else int(maker(table, where[at].decode())[0]) for at in batch]
        made = editor.add_values(0, names)
        read = np.repeat(values(table, "x"), len(batch))
        editor.add(relu(editor, read, made, anchor=np.array(anchors, np.int64), graph=0))
        for name, at in zip(names, batch, strict=True):
            place = len(expected) if at == 3 else expected.index(where[at])
            expected.insert(place, name)
        table.check()
        assert order(table) == expected


def store_an_input(editor: Editor) -> None:
    """Store what is made, without taking the node out."""
    tensors = editor.add_tensors(editor.tensor_type(b""), [Payload(b"")])
    editor.store(values(editor.table, "a"), tensors)


def make_twice(editor: Editor) -> None:
    """Make what is made."""
    made = values(editor.table, "a")
    editor.add(relu(editor, values(editor.table, "x"), made, graph=0))


def remove_twice(editor: Editor) -> None:
    """Take out a node that is gone."""
    node = maker(editor.table, "y")
    new = relu(editor, values(editor.table, "x"), values(editor.table, "y"), anchor=node)
    editor.replace(node, new)
    editor.remove(node)


HARM: dict[str, tuple[str, Callable[[Editor], object]]] = {
    "read": ("still read", lambda editor: editor.remove(maker(editor.table, "a"))),
    "read-in-a-body": ("still read", lambda editor: editor.remove(maker(editor.table, "b"))),
    "returned": ("still read", lambda editor: editor.remove(maker(editor.table, "y"))),
    "stored": ("stored value is made", store_an_input),
    "made-twice": ("made twice", make_twice),
    "makes-what-is-given": (
        "made twice",
        lambda editor: editor.add(
            relu(editor, values(editor.table, "w"), values(editor.table, "x"), graph=0)
        ),
    ),
    "makes-what-is-stored": (
        "made twice",
        lambda editor: editor.add(
            relu(editor, values(editor.table, "x"), values(editor.table, "w"), graph=0)
        ),
    ),
    "no-graph": (
        "no graph",
        lambda editor: editor.add(
            relu(editor, values(editor.table, "x"), editor.add_values(0, [b"n"]))
        ),
    ),
    "gone": ("taken out twice", remove_twice),
    "renamed-input": (
        "no node makes",
        lambda editor: editor.rename(values(editor.table, "x"), values(editor.table, "a")),
    ),
    "renamed-result": (
        "that is returned",
        lambda editor: editor.rename(values(editor.table, "y"), values(editor.table, "a")),
    ),
    "withheld": (
        "not stored",
        lambda editor: editor.withhold(values(editor.table, "x")),
    ),
    "results-of-the-file": (
        "of the file",
        lambda editor: editor.set_returned(0, values(editor.table, "a")),
    ),
}


@pytest.mark.parametrize(("message", "harm"), HARM.values(), ids=HARM)
def test_a_mistake_is_told(message: str, harm: Callable[[Editor], object]) -> None:
    """By the edit itself, not by whoever looks later."""
    with pytest.raises(TableError, match=message):
        harm(Editor(a_table()))
