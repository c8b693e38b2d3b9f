"""Random nets and known edits: the difference is the edit, whatever things are called."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dplcli.diff import Differ
from tests.diff.compared import calls_in, difference, words
from tests.support.helpers import model_from_text
from tests.support.strategies import RandomGraph, Step, graphs

if TYPE_CHECKING:
    from dplcli.diff import ModelDiff
    from dplcli.ir import Model

OTHER = {"Relu": "Neg", "Neg": "Relu", "Sigmoid": "Neg", "Add": "Sub", "Sub": "Add", "Mul": "Sub"}


def renamed(graph: RandomGraph) -> RandomGraph:
    """Give every inner value another name, such that old names mean other values."""
    inner = [step.name for step in graph.steps if step.name not in graph.outputs]
    names = dict(zip(inner, [*inner[1:], *inner[:1]], strict=True))
    names["k"] = "constant"
    steps = [
        Step(names.get(s.name, s.name), s.op, tuple(names.get(r, r) for r in s.reads))
        for s in graph.steps
    ]
    a, b, _ = graph.sources
    return replace(graph, steps=tuple(steps), sources=(a, b, "constant"))


def shuffled(graph: RandomGraph, seed: int) -> RandomGraph:
    """Put the nodes into another topological order."""
    rng = random.Random(seed)  # noqa: S311  # not for cryptography
    known, steps, left = set(graph.sources), [], list(graph.steps)
    while left:
        ready = [step for step in left if known.issuperset(step.reads)]
        steps.append(rng.choice(ready))
        left.remove(steps[-1])
        known.add(steps[-1].name)
    return graph.with_steps(steps)


@given(graphs(max_nodes=12), st.integers(0, 99))
def test_renaming_and_reordering_are_no_difference(graph: RandomGraph, seed: int) -> None:
    """Names of inner values and the order of nodes carry no meaning."""
    assert words(difference(graph.text(), shuffled(renamed(graph), seed).text())) == []


@given(graphs(max_nodes=12), graphs(max_nodes=12))
def test_difference_is_mirrored(first: RandomGraph, second: RandomGraph) -> None:
    """What A has more than B is what B has less than A."""
    there = difference(first.text(), second.text()).graphs[0]
    back = difference(second.text(), first.text()).graphs[0]
    assert [n.label for n in there.added] == [n.label for n in back.removed]
    assert [n.label for n in there.removed] == [n.label for n in back.added]
    assert {(c.before.label, c.after.label, len(c.inputs)) for c in there.changes} == {
        (c.after.label, c.before.label, len(c.inputs)) for c in back.changes
    }
    assert there.paired + len(there.removed) == len(first.steps)
    assert there.paired + len(there.added) == len(second.steps)


@given(graphs(max_nodes=10), st.data())
def test_an_inserted_node_is_one_node(graph: RandomGraph, data: st.DataObject) -> None:
    """A node of a new kind put into one wire: it is added, one input reads it, nothing else."""
    place = data.draw(st.integers(0, len(graph.steps) - 1))
    step = graph.steps[place]
    slot = data.draw(st.integers(0, len(step.reads) - 1))
    reads = (*step.reads[:slot], "new", *step.reads[slot + 1 :])
    steps = [*graph.steps[:place], Step("new", "Tanh", (step.reads[slot],))]
    steps += [replace(step, reads=reads), *graph.steps[place + 1 :]]
    after = graph.with_steps(steps)
    found = difference(graph.text(), renamed(after).text())
    main = found.graphs[0]
    assert [node.op_type for node in main.added] == ["Tanh"]
    assert not main.removed
    assert sum(len(change.inputs) for change in main.changes) == 1
    assert found.count == 2


@given(graphs(max_nodes=10), st.data())
def test_a_replaced_operator_is_noticed(graph: RandomGraph, data: st.DataObject) -> None:
    """Another operator in one place is a difference, of one node and its neighbours at most."""
    places = [k for k, step in enumerate(graph.steps) if step.op in OTHER]
    assume(places)
    place = data.draw(st.sampled_from(places))
    step = graph.steps[place]
    steps = [*graph.steps[:place], replace(step, op=OTHER[step.op]), *graph.steps[place + 1 :]]
    found = difference(graph.text(), graph.with_steps(steps).text())
    assert not found.is_equal
    main = found.graphs[0]
    assert len(main.added) == len(main.removed)


@given(graphs(max_nodes=10), st.integers(0, 99))
def test_another_constant_is_one_weight(graph: RandomGraph, seed: int) -> None:
    """New data of the constant is one changed weight, or none where nobody reads it."""
    text = shuffled(renamed(graph), seed).text()
    found = difference(graph.text(), text.replace("{2, 3}", "{2, 4}"))
    is_read = any("k" in step.reads for step in graph.steps)
    assert words(found) == (["weight k 1"] if is_read else [])


def chain(length: int, inserted: set[int], weight: int = 1) -> Model:
    """Return a chain of Conv, Add and Relu, perhaps with a node more in places."""
    lines, weights, value = [], [], "x"
    for k in range(length):
        weights.append(f"float[1,1,1,1] w{k} = {{{k + weight}}}")
        lines.append(f"c{k} = Conv ({value}, w{k})\na{k} = Add (c{k}, {value})")
        if k in inserted:
            lines.append(f"s{k} = Sigmoid (a{k})")
        lines.append(f"r{k} = Relu ({'s' if k in inserted else 'a'}{k})")
        value = f"r{k}"
    nodes = "\n".join(lines)
    return model_from_text(
        f"g (float[1,1,2,2] x) => (float[1,1,2,2] {value}) <{', '.join(weights)}> {{\n{nodes}\n}}"
    )


@pytest.mark.parametrize("weight", [1, 1000], ids=["same weights", "other weights"])
def test_several_edits_of_equal_layers(weight: int) -> None:
    """Of 60 layers alike, those with a node more are found, also if every weight is another."""
    edits = {7, 8, 30, 59}
    found = difference(chain(60, set()), chain(60, edits, weight))
    main = found.graphs[0]
    assert [node.label for node in main.added] == [f"s{k}" for k in sorted(edits)]
    assert not main.removed
    assert [change.before.label for change in main.changes] == [f"r{k}" for k in sorted(edits)]
    assert len(main.weights) == (0 if weight == 1 else 60)


@pytest.mark.long
def test_work_grows_with_the_size() -> None:
    """Ten times the nodes and edits are about ten times the work, not a hundred times."""
    calls = []
    for length in (200, 2000):
        edits = set(range(0, length, 50))
        differ = Differ(chain(length, set()), chain(length, edits, 5000))
        found: list[ModelDiff] = []
        calls.append(calls_in(lambda: found.append(differ.result())))  # noqa: B023  # at once
        assert len(found[0].graphs[0].added) == len(edits)
    assert calls[1] < 15 * calls[0]
