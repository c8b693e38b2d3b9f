"""Matches by joins are those of the search, in its order, bindings included."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from dplcli.dpl import StepBudgetExceededError
from dplcli.dpl.joins import Joins
from dplcli.dpl.matcher import Attributes, Matcher
from dplcli.errors import PatternSyntaxError
from dplcli.ir.table import GraphKind
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.table import read_table
from tests.helpers import pattern_of, proto_from_text
from tests.strategies import (
    FEATURES,
    RandomGraph,
    RandomPattern,
    graphs,
    near_patterns,
    patterns,
    rich_graphs,
    rich_patterns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl import DFPattern
    from dplcli.dpl.matcher import State
    from dplcli.ir import Graph, Node, Value

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


class Paired:
    """A model as a table and as objects: nodes pair by their places in the file."""

    def __init__(self, data: bytes, folder: Path = Path()) -> None:
        """Read *data* twice."""
        self.table = read_table(data, "test")
        self.proto = onnx.ModelProto.FromString(data)
        self.model = model_from_proto(self.proto, folder, "test")
        self.joins = Joins(self.table, self)

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graph of each row of the table's graphs."""
        functions = iter(self.model.functions.values())
        found: list[Graph] = []
        for row in self.table.graphs:
            if row.kind is GraphKind.MAIN:
                found.append(self.model.graph)
            elif row.kind is GraphKind.FUNCTION:
                found.append(next(functions).body)
            else:
                owner = self._node_of(found, row.owner)
                found.append(owner.subgraphs[row.attribute.decode()])
        return found

    def _node_of(self, found: Sequence[Graph], row: int) -> Node:
        """Return a node by the first value that it makes, or by its place among those without."""
        table = self.table
        graph = found[table.nodes.graph[row]]
        _, made = table.outputs_of(np.array([row]))
        named = [name.decode() for name in table.names(made[made > 0])]
        if named:
            maker = graph.values[named[0]].producer
            assert maker is not None
            return maker
        _, read = table.inputs_of(np.array([row]))
        names = [name.decode() for name in table.names(read)]
        return next(
            node
            for node in graph
            if not any(node.outputs) and [v.name if v else "" for v in node.inputs] == names
        )

    @cached_property
    def _nodes(self) -> dict[int, Node]:
        return {}

    def node(self, row: int) -> Node:
        """Return the node of a row."""
        if row not in self._nodes:
            self._nodes[row] = self._node_of(self.graphs, row)
        return self._nodes[row]

    def value(self, row: int) -> Value:
        """Return the value of a row."""
        name = self.table.names(np.array([row]))[0].decode()
        return self.graphs[self.table.values.graph[row]].values[name]


def described(state: State) -> tuple[object, ...]:
    """Return all that a search has bound, so that it can be compared."""
    slots = [slot.values if isinstance(slot, Attributes) else slot for slot in state.slots]
    noted = frozenset(thing for thing in state.noted)
    return state.subject, slots, frozenset(state.claimed), noted


def compare(paired: Paired, matcher: Matcher) -> int:
    """Check the matches of one pattern at every node, and return how many were compared."""
    found = paired.joins.matches(matcher.program, paired.table.in_order())
    by_root: dict[Node, list[object]] = {}
    for root, state in found.states():
        by_root.setdefault(root, []).append(described(state))
    left = {paired.node(row) for row in found.left.tolist()}
    assert left.isdisjoint(by_root)
    for graph in paired.model.graphs():
        for root in graph:
            if root in left:
                continue
            expected = [
                described(state) for state in matcher.solutions(root) if root in state.claimed
            ]
            assert by_root.pop(root, []) == expected, root
    assert not by_root
    _check_names(paired, matcher)
    return found.size


def _check_names(paired: Paired, matcher: Matcher) -> None:
    found = paired.joins.matches(matcher.program)
    for row, (_, state) in enumerate(found.states()):
        bound = matcher.program.bindings(state.slots)
        rows = {name: int(column[row]) for name, column in found.values.items()}
        assert {name: paired.value(at) for name, at in rows.items() if at >= 0} == bound
        nodes = {paired.node(at) for at in found.nodes[row].tolist() if at >= 0}
        assert nodes == state.claimed


def agree(text: str, pattern: str | DFPattern, *, binds_all: bool = False) -> None:
    """Check a pattern in a graph, both given as text."""
    try:
        value = pattern_of(pattern) if isinstance(pattern, str) else pattern
    except PatternSyntaxError:
        return
    paired = Paired(proto_from_text(text).SerializeToString())
    try:
        compare(paired, Matcher(value, binds_all=binds_all))
    except StepBudgetExceededError:
        return


@settings(SETTINGS, max_examples=300)
@given(graphs(), patterns(), st.booleans())
def test_any_pattern(graph: RandomGraph, pattern: RandomPattern, binds_all: bool) -> None:  # noqa: FBT001  # drawn
    """Random patterns match alike, whether or not functions may ask for unnamed parts."""
    agree(graph.text(), pattern.text(), binds_all=binds_all)


@settings(SETTINGS, max_examples=600)
@given(st.data())
def test_patterns_that_follow_the_graph(data: st.DataObject) -> None:
    """Patterns that nearly always fit match alike, also where inputs are omitted."""
    graph = data.draw(graphs(omitting=data.draw(st.booleans())))
    agree(graph.text(), data.draw(near_patterns(graph)).text())


@settings(SETTINGS, max_examples=400)
@given(st.data())
def test_the_whole_language(data: st.DataObject) -> None:
    """What is not joined is left to the search: roots that are not left match alike."""
    graph = data.draw(rich_graphs())
    features = data.draw(st.lists(st.sampled_from(FEATURES), max_size=3, unique=True))
    agree(graph.text(), data.draw(rich_patterns(graph, features)).text())
