"""The matcher against a brute-force reference, and what must never change its answer."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dplcli.language import StepBudgetExceededError
from tests.support.helpers import Solution, find_solutions, model_from_text
from tests.support.strategies import (
    COMMUTATIVE,
    RandomGraph,
    RandomPattern,
    Step,
    graphs,
    near_patterns,
    patterns,
    subgraph_patterns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from tests.support.strategies import Term

    Bound = dict[object, str]


class Reference:
    """Tries every assignment; knows nothing of plausibility, indexes or order."""

    def __init__(self, graph: RandomGraph, pattern: RandomPattern) -> None:
        """Match *pattern* in *graph*."""
        self.graph = graph
        self.pattern = pattern

    def solutions(self) -> set[Solution]:
        """Return every solution at every root."""
        found = set()
        for root in self.graph.steps:
            for bound in self.solve(self.pattern.last, ("root",), root.name, {}):
                nodes = tuple(sorted(v for key, v in bound.items() if isinstance(key, tuple)))
                names = [(k, v) for k, v in bound.items() if isinstance(k, str)]
                names += [(f"n{k[1]}", v) for k, v in bound.items() if k[:1] == ("line",)]  # type: ignore[index]
                if root.name in nodes:
                    found.add(Solution(root.name, nodes, tuple(sorted(names))))
        return found

    def solve(self, term: Term, key: Term, value: str, bound: Bound) -> Iterator[Bound]:
        """Yield *bound* extended in every way that lets *term* match *value*."""
        match term:
            case ("absent",):
                yield from () if value else (bound,)
            case ("or", tuple(left), tuple(right)):
                yield from self.solve(left, (*key, 0), value, bound)
                yield from self.solve(right, (*key, 1), value, bound)
            case _ if not value:
                return
            case ("any",) | ("name", _) | ("const",):
                yield from self.leaf(term, self.graph.origin(value), bound)
            case ("line", int(number)):
                yield from self.call(self.pattern.lines[number], ("line", number), value, bound)
            case ("call", *_):
                yield from self.call(term, key, value, bound)
            case ("and", tuple(left), tuple(right)):
                for first in self.solve(left, (*key, 0), value, bound):
                    yield from self.solve(right, (*key, 1), value, first)
            case _:
                raise AssertionError(term)

    def leaf(self, term: Term, origin: str, bound: Bound) -> Iterator[Bound]:
        """Yield *bound*, with the leaf's name, if the leaf accepts the value *origin*."""
        if term == ("const",) and origin != self.graph.sources[2]:
            return
        names = dict.fromkeys(term[1:], origin)
        if all(bound.get(name, origin) == origin for name in names):
            yield bound | names

    def call(self, term: Term, key: Term, value: str, bound: Bound) -> Iterator[Bound]:
        """Yield every way in which a node pattern matches the node that makes *value*."""
        op, args = str(term[1]), term[2:]
        node = self.graph.producer(value if op == "Identity" else self.graph.origin(value))
        if key in bound:
            if node is not None and bound[key] == node.name:
                yield bound
            return
        used = {name for other, name in bound.items() if isinstance(other, tuple)}
        if node is None or node.op not in op.split(" | ") or node.name in used:
            return
        if len(node.reads) > len(args):
            return
        omitted = [""] * (len(args) - len(node.reads))  # they come last, in whichever order
        orders = permutations(node.reads) if node.op in COMMUTATIVE else [node.reads]
        for order in orders:
            reads = [*order, *omitted]
            yield from self.arguments(args, key, reads, bound | {key: node.name})

    def arguments(
        self, args: Sequence[object], key: Term, reads: Sequence[str], bound: Bound
    ) -> Iterator[Bound]:
        """Yield every way in which all arguments match."""
        partial = [bound]
        for number, (arg, read) in enumerate(zip(args, reads, strict=True)):
            assert isinstance(arg, tuple)
            partial = [
                more for one in partial for more in self.solve(arg, (*key, number), read, one)
            ]
        yield from partial


def found_in(graph: RandomGraph, pattern: str) -> set[Solution]:
    """Return what the matcher finds."""
    try:
        return set(find_solutions(pattern, model_from_text(graph.text())))
    except StepBudgetExceededError:
        assume(condition=False)
        raise


@st.composite
def matching(draw: st.DrawFn) -> tuple[RandomGraph, RandomPattern]:
    """Draw a graph and a pattern that mostly matches in it."""
    graph = draw(graphs())
    return graph, draw(near_patterns(graph))


@given(graphs(), patterns())
def test_agrees_with_brute_force(graph: RandomGraph, pattern: RandomPattern) -> None:
    """The matcher finds every solution that trying everything finds, and no other."""
    assert found_in(graph, pattern.text()) == Reference(graph, pattern).solutions()


@pytest.mark.long
@given(st.data())
def test_agrees_with_brute_force_where_much_matches(data: st.DataObject) -> None:
    """The same for patterns that follow the graph, with shared parts, and nearly always fit."""
    graph = data.draw(graphs())
    pattern = data.draw(near_patterns(graph))
    assert found_in(graph, pattern.text()) == Reference(graph, pattern).solutions()


@pytest.mark.long
@given(st.data())
def test_agrees_with_brute_force_where_inputs_are_omitted(data: st.DataObject) -> None:
    """The same for nodes that omit inputs: ``None`` is for such an input, and in its place."""
    graph = data.draw(graphs(omitting=True))
    pattern = data.draw(near_patterns(graph))
    assert found_in(graph, pattern.text()) == Reference(graph, pattern).solutions()


@given(st.data())
def test_a_subgraph_matches_itself(data: st.DataObject) -> None:
    """A pattern read off part of a graph matches there, with exactly those nodes."""
    graph = data.draw(graphs())
    pattern, root, nodes = data.draw(subgraph_patterns(graph))
    found = found_in(graph, pattern)
    assert any(s.root == root and set(s.nodes) == nodes for s in found)


@pytest.mark.long
@given(matching(), st.randoms(use_true_random=False))
def test_commuting_operands_changes_nothing(
    drawn: tuple[RandomGraph, RandomPattern], random: Random
) -> None:
    """The operands of commutative operators may stand in any order in the graph."""
    graph, pattern = drawn
    steps = [
        Step(s.name, s.op, tuple(random.sample(s.reads, len(s.reads))))
        if s.op in COMMUTATIVE
        else s
        for s in graph.steps
    ]
    text = pattern.text()
    assert found_in(graph.with_steps(steps), text) == found_in(graph, text)


@pytest.mark.long
@given(matching())
def test_renaming_values_changes_nothing(drawn: tuple[RandomGraph, RandomPattern]) -> None:
    """What values are called makes no difference."""
    graph, pattern = drawn
    steps = tuple(
        Step(f"z_{s.name}", s.op, tuple(f"z_{read}" for read in s.reads)) for s in graph.steps
    )
    renamed = RandomGraph(
        steps,
        tuple(f"z_{name}" for name in graph.outputs),
        tuple(f"z_{name}" for name in graph.sources),
    )
    expected = {
        Solution(
            f"z_{s.root}",
            tuple(f"z_{node}" for node in s.nodes),
            tuple((name, f"z_{value}") for name, value in s.bindings),
        )
        for s in found_in(graph, pattern.text())
    }
    assert found_in(renamed, pattern.text()) == expected


@pytest.mark.long
@given(matching(), st.data())
def test_reordering_independent_nodes_changes_nothing(
    drawn: tuple[RandomGraph, RandomPattern], data: st.DataObject
) -> None:
    """Any topological order of the nodes gives the same solutions."""
    graph, pattern = drawn
    pending, order, made = list(graph.steps), [], set(graph.sources)
    while pending:
        ready = [step for step in pending if made.issuperset(step.reads)]
        step = data.draw(st.sampled_from(ready))
        pending.remove(step)
        order.append(step)
        made.add(step.name)
    text = pattern.text()
    assert found_in(graph.with_steps(order), text) == found_in(graph, text)


@pytest.mark.long
@given(matching())
def test_unrelated_nodes_change_nothing(drawn: tuple[RandomGraph, RandomPattern]) -> None:
    """Nodes that read nothing of the graph's own make no difference to its solutions."""
    graph, pattern = drawn
    more = [Step(f"u_{s.name}", s.op, tuple(_apart(r) for r in s.reads)) for s in graph.steps]
    text = pattern.text()
    roots = {step.name for step in graph.steps}
    found = {s for s in found_in(graph.with_steps([*more, *graph.steps]), text) if s.root in roots}
    assert found == found_in(graph, text)


def _apart(name: str) -> str:
    return f"u_{name}" if name.startswith("v") else name
