"""Matches by joins are those of the search, in its order, bindings included."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplcli.catalog import read_catalogs, shipped_catalogs
from dplcli.dpl import StepBudgetExceededError
from dplcli.dpl.joins import Joins, unjoined
from dplcli.dpl.matcher import Attributes, Matcher, OpIndex
from dplcli.errors import PatternSyntaxError
from dplcli.ir.table import GraphKind
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.table import read_table
from tests.corpus.nets import ROOT, SAMPLES, each_model, listed_models, real_model
from tests.helpers import SCHEMAS, pattern_of, proto_from_text
from tests.strategies import (
    FEATURES,
    RandomGraph,
    RandomPattern,
    graphs,
    near_patterns,
    patterns,
    rich_graphs,
    rich_patterns,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl import DFPattern
    from dplcli.dpl.matcher import State
    from dplcli.ir import Graph, Node, Value

SETTINGS = settings(max_examples=100, deadline=None, derandomize=True)


class Paired:
    """A model as a table and as objects: values pair by graph and name, nodes by what they make."""

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
        """Return a node by the first value that it makes, or by what it reads."""
        table = self.table
        graph = found[table.nodes.graph[row]]
        _, made = table.outputs_of(np.array([row]))
        named = [name.decode() for name in table.names(made[made > 0])]
        if named:
            maker: Node | None = graph.values[named[0]].producer
            assert maker is not None
            return maker
        _, read = table.inputs_of(np.array([row]))
        names = [name.decode() for name in table.names(read)]
        silent: Node = next(
            node
            for node in graph
            if not any(node.outputs) and [v.name if v else "" for v in node.inputs] == names
        )
        return silent

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
        found: Value = self.graphs[self.table.values.graph[row]].values[name]
        return found


def described(state: State) -> tuple[object, ...]:
    """Return all that a search has bound, so that it can be compared."""
    slots = [slot.values if isinstance(slot, Attributes) else slot for slot in state.slots]
    noted = frozenset(thing for thing in state.noted)
    return state.subject, slots, frozenset(state.claimed), noted


def compare(paired: Paired, matcher: Matcher, *, only_candidates: bool = False) -> int:
    """Check the matches of one pattern at every node, and return how many there are."""
    everywhere = None if only_candidates else paired.table.in_order()
    found = paired.joins.matches(matcher.program, everywhere)
    by_root: dict[Node, list[object]] = {}
    for root, state in found.states():
        by_root.setdefault(root, []).append(described(state))
    left = {paired.node(row) for row in found.left.tolist()}
    assert left.isdisjoint(by_root)
    for graph in paired.model.graphs():
        roots = OpIndex(graph).candidates(matcher.program) if only_candidates else graph
        for root in roots:
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


@settings(SETTINGS, max_examples=50)
@given(graphs(), patterns(), st.booleans())
def test_any_pattern(graph: RandomGraph, pattern: RandomPattern, binds_all: bool) -> None:  # noqa: FBT001  # drawn
    """Random patterns match alike, whether or not functions may ask for unnamed parts."""
    agree(graph.text(), pattern.text(), binds_all=binds_all)


@pytest.mark.long
@settings(SETTINGS, max_examples=75)
@given(st.data())
def test_patterns_that_follow_the_graph(data: st.DataObject) -> None:
    """Patterns that nearly always fit match alike, also where inputs are omitted."""
    graph = data.draw(graphs(omitting=data.draw(st.booleans())))
    agree(graph.text(), data.draw(near_patterns(graph)).text())


@settings(SETTINGS, max_examples=50)
@given(st.data())
def test_the_whole_language(data: st.DataObject) -> None:
    """What is not joined is left to the search: roots that are not left match alike."""
    graph = data.draw(rich_graphs())
    features = data.draw(st.lists(st.sampled_from(FEATURES), max_size=3, unique=True))
    agree(graph.text(), data.draw(rich_patterns(graph, features)).text())


@pytest.mark.parametrize(
    ("pattern", "graph", "count"),
    [
        ("Add(x, x)", "y = Add (a, a) z = Add (a, b)", 2),
        ("Add(Neg(x), y)", "n = Neg (a) y = Add (n, b) z = Add (b, n) w = Sub (n, b)", 2),
        ("Sub(Neg(x), y)", "n = Neg (a) y = Sub (b, n)", 0),
        ("Add(p, Neg(p))", "n = Neg (a) y = Add (n, a) z = Add (n, b)", 1),
        ("Add(Neg(x), Neg(y))", "n = Neg (a) y = Add (n, n)", 0),
        ("Add(Neg(x), Neg(y))", "n = Neg (a) m = Neg (a) y = Add (n, m)", 2),
        ("n = Neg(x)\nAdd(n, n)", "n = Neg (a) i = Identity (n) y = Add (n, i)", 2),
        ("LeakyRelu(x, alpha=0.01)", "y = LeakyRelu (a) z = LeakyRelu <alpha = 0.5> (a)", 1),
        ("Transpose(x, perm=[0])", "y = Transpose (a) z = Transpose <perm = [0]> (a)", 2),
        ("Clip(x, max=2)", 'y = Clip (a, "", two) z = Clip (a, two) w = Clip (a, two, two)', 1),
        ("Clip(x, None, m)", 'y = Clip (a, "", two) z = Clip (a, two)', 1),
        ("Mul(x, 2)", "y = Mul (a, two) z = Mul (a, three) w = Mul (a, k)", 1),
        ("Mul(x, const(c))", "y = Mul (a, two) z = Mul (k, a) w = Mul (a, b)", 2),
        ("Neg(input('a'))", "y = Neg (a) z = Neg (k) w = Neg (y)", 1),
        ("Neg(x.has_shape(n))", "y = Neg (a) r = ReduceSum <keepdims = 0> (a) z = Neg (r)", 1),
        ("Sum(x, ...)", "y = Sum (a) z = Sum (a, b, k)", 4),
        (
            "Concat(unordered(Neg(x), _, _))",
            "n = Neg (a) y = Concat <axis = 0> (a, b, n)",
            1,
        ),
        ("op()(x) | Neg(y)", "y = Neg (a)", 2),
        ("(Relu | Identity)(x)", "r = Relu (a) i = Identity (r) y = Neg (i)", 2),
    ],
)
def test_counts(pattern: str, graph: str, count: int) -> None:
    """What is joined is found, near misses are not; nothing of it is left to the search."""
    text = (
        "g (float[2] a, float[2] b) => (float[2] a) "
        f"<float[2] k = {{2, 3}}, float two = {{2}}, float three = {{3}}> {{ {graph} }}"
    )
    paired = Paired(proto_from_text(text).SerializeToString())
    matcher = Matcher(pattern_of(pattern))
    assert not unjoined(matcher.program)
    assert compare(paired, matcher) == count
    assert not paired.joins.matches(matcher.program).left.size


@pytest.mark.parametrize(
    ("pattern", "reason", "left"),
    [
        ("repeat(Neg, Relu(x), min=1)", "repeat", 1),
        ("Add(~Relu(x), y)", "not", 2),
        ("r = Relu(x)\nNeg(r), Add(r, _)", "several outputs", 1),
        ("Add(same_shape(x, y), y)", "sameshape", 2),
        ("Relu(x).used_by(Neg(_))", "edge", 1),
        ("dominates(Relu(x), None, Add(_, _))", "dominator", 2),
        ("Concat(*head, Relu(x), *tail)", "variadic", 2),
        ("Transpose(Transpose(x, perm=p), perm=p)", "attributes of one name", 2),
    ],
)
def test_what_is_not_joined_is_left(pattern: str, reason: str, left: int) -> None:
    """The search gets the roots at which the rest of a pattern fits, and no others."""
    body = """r = Relu (a) n = Neg (r) y = Add (n, r) z = Add (a, b) s = Sub (y, z)
        c = Concat <axis = 0> (a, n, r) d = Concat <axis = 0> (a, b)
        t = Transpose <perm = [0]> (c) u = Transpose <perm = [0]> (t)
        v = Transpose <perm = [0]> (u)"""
    text = f"g (float[2] a, float[2] b) => (float[2] s) {{ {body} }}"
    paired = Paired(proto_from_text(text).SerializeToString())
    program = Matcher(pattern_of(pattern)).program
    assert unjoined(program) == [reason]
    found = paired.joins.matches(program)
    assert (found.size, found.left.size) == (0, left)


NESTED = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]>
g (float[2] a, bool c) => (float[2] y, float[2] z) {
  n = Neg (a)
  y = If (c) <
    then_branch = t () => (float[2] p) { r = Relu (n) p = Add (r, n) },
    else_branch = e () => (float[2] q) { m = Neg (n) i = Identity (n) q = Add (m, i) }
  >
  z = l.f (n)
}
<domain: "l", opset_import: ["" : 17]> f (v) => (w) { m = Neg (v) w = Add (v, m) }"""


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("Add(Neg(x), y)", 2), ("Add(x, Neg(x))", 2), ("Add(Relu(x), Neg(y))", 0), ("Neg(Neg(x))", 0)],
)
def test_a_match_stays_in_its_graph(pattern: str, count: int) -> None:
    """Bodies and functions are matched each on its own; what they capture is a leaf."""
    paired = Paired(proto_from_text(NESTED).SerializeToString())
    assert compare(paired, Matcher(pattern_of(pattern))) == count


def test_old_opsets() -> None:
    """What an older opset keeps in attributes is left to the search, where it is reached."""
    text = """<ir_version: 3, opset_import: ["" : 9]>
    g (float[2] a, float[2] k) => (float[2] y) <float[2] k = {1, 2}> {
      y = Clip <max = 6.0> (a) z = Clip (a) w = Mul (a, k)
    }"""
    paired = Paired(proto_from_text(text).SerializeToString())
    clip = Matcher(pattern_of("Clip(x, None, const(m))"))
    assert compare(paired, clip) == 0
    assert paired.joins.matches(clip.program).left.size == 1
    assert compare(paired, Matcher(pattern_of("Mul(x, const(c))"))) == 1


OPERANDS = ", ".join(f"x{number}" for number in range(16))
GROWING = {
    "operands": (f"y = Sum ({OPERANDS})", f"Sum({OPERANDS})"),
    "hopeless": (
        f"r = Relu (x0) y = Sum ({OPERANDS.replace('x0', 'r')})",
        f"Sum(Neg(a), {OPERANDS.replace('x0, ', '')})",
    ),
    "diamonds": (
        "y0 = Add (x0, x0) " + " ".join(f"y{i} = Add (y{i - 1}, y{i - 1})" for i in range(1, 40)),
        "n0 = Add(x, z)\n"
        + "\n".join(f"n{i} = Add(n{i - 1}, n{i - 1})" for i in range(1, 40))
        + "\nn39",
    ),
    "alternatives": (
        "y0 = Relu (x0) " + " ".join(f"y{i} = Relu (y{i - 1})" for i in range(1, 40)),
        "n0 = Relu(x) | Relu(x)\n"
        + "\n".join(f"n{i} = Relu(n{i - 1}) | Relu(n{i - 1})" for i in range(1, 40))
        + "\nn39",
    ),
    "chain": (
        "y0 = Relu (x0) " + " ".join(f"y{i} = Relu (y{i - 1})" for i in range(1, 2000)),
        "n0 = Relu(x)\n" + "\n".join(f"n{i} = Relu(n{i - 1})" for i in range(1, 2000)) + "\nn1999",
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_given_up(name: str) -> None:
    """However many ways there are to match, a query ends soon and leaves the rest to the search."""
    body, pattern = GROWING[name]
    inputs = ", ".join(f"float[2] x{number}" for number in range(16))
    paired = Paired(
        proto_from_text(f"g ({inputs}) => (float[2] x0) {{ {body} }}").SerializeToString()
    )
    program = Matcher(pattern_of(pattern)).program
    with within(10):
        found = paired.joins.matches(program)
    assert found.size == 0
    assert bool(found.left.size) == (name != "hopeless")


@cache
def _rules(catalogue: str) -> list[tuple[str, Matcher]]:
    """List the rules of a catalogue, those with equal patterns once."""
    found = read_catalogs([catalogue], SCHEMAS, with_examples=False)
    rules = [*found.patterns, *found.rewrites]
    distinct = {(repr(rule.pattern), rule.has_code): rule for rule in rules}
    return [(rule.qualified_name, rule.matcher) for rule in distinct.values()]


@pytest.mark.parametrize("model", sorted(SAMPLES.values()))
@pytest.mark.parametrize("catalogue", shipped_catalogs())
def test_shipped_rules(catalogue: str, model: str) -> None:
    """The shipped rules match alike in the sample models."""
    path = ROOT / "sample_models" / f"{model}.onnx"
    paired = Paired(path.read_bytes(), path.parent)
    for _, matcher in _rules(catalogue):
        compare(paired, matcher, only_candidates=True)


@pytest.mark.long
@pytest.mark.parametrize("name", each_model([*listed_models()][2::6]))
def test_shipped_rules_on_real_models(name: str) -> None:
    """The shipped rules match alike in every sixth model at hand."""
    path = real_model(name)
    paired = Paired(path.read_bytes(), path.parent)
    for catalogue in shipped_catalogs():
        for _, matcher in _rules(catalogue):
            compare(paired, matcher, only_candidates=True)
