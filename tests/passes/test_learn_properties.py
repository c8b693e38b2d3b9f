"""Rules learned from random parts of random graphs match them, read back, and partition soundly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog.catalog import write_catalog
from dplcli.errors import UsageError
from dplcli.ir import Node
from dplcli.passes.learn_pattern import learn_rule
from dplcli.passes.select import select_matches
from tests.passes.learned import check_written, nodes_of
from tests.support.helpers import check_outcome, find_solutions, model_from_text
from tests.support.strategies import RandomGraph, graphs


def reads(graph: RandomGraph, name: str) -> tuple[str, ...]:
    """Return what the node *name* reads; nothing if it is none."""
    step = graph.producer(name)
    return () if step is None else step.reads


def above(graph: RandomGraph, name: str) -> set[str]:
    """Return the nodes that *name* depends on."""
    found: set[str] = set()
    pending = [name]
    while pending:
        fresh = [r for r in reads(graph, pending.pop()) if graph.producer(r) is not None]
        pending += [read for read in fresh if read not in found]
        found.update(fresh)
    return found


def between(graph: RandomGraph, chosen: set[str]) -> set[str]:
    """Return the nodes, copies aside, that depend on one of *chosen* and that one depends on."""
    needed = set().union(*(above(graph, name) for name in chosen))
    return {
        step.name
        for step in graph.steps
        if step.name in needed - chosen
        and step.op != "Identity"
        and above(graph, step.name) & chosen
    }


def links(graph: RandomGraph, name: str) -> set[str]:
    """Return the values that a node reads or makes, by which others are connected to it."""
    return {name, *map(graph.origin, reads(graph, name))} - {graph.sources[2]}


def is_connected(graph: RandomGraph, chosen: set[str]) -> bool:
    """Tell whether the nodes hang together."""
    first, *others = sorted(chosen)
    reached = links(graph, first)
    while near := [name for name in others if links(graph, name) & reached]:
        reached = reached.union(*(links(graph, name) for name in near))
        others = [name for name in others if name not in near]
    return not others


def has_split_copy(graph: RandomGraph, chosen: set[str]) -> bool:
    """Tell whether an Identity node between two of *chosen* is needed outside, too."""
    copies: set[str] = set()
    pending = [read for name in chosen for read in reads(graph, name)]
    while pending:
        read = pending.pop()
        if read not in chosen and graph.origin(read) in chosen:
            copies.add(read)
            pending += reads(graph, read)
    inside = chosen | copies
    outside = {r for step in graph.steps if step.name not in inside for r in step.reads}
    return bool(copies & {*graph.outputs, *outside})


@st.composite
def subgraphs(draw: st.DrawFn, graph: RandomGraph) -> set[str]:
    """Draw nodes that mostly form a subgraph: neighbours of neighbours, gaps filled."""
    names = [step.name for step in graph.steps if step.op != "Identity"]
    chosen = {draw(st.sampled_from(names))}
    for _ in range(draw(st.integers(0, 5))):
        linked = set().union(*(links(graph, name) for name in chosen))
        near = [name for name in names if name not in chosen and links(graph, name) & linked]
        anything = [name for name in names if name not in chosen]
        stays_near = draw(st.integers(0, 9)) > 0
        choices = near if near and stays_near else anything
        if choices:
            chosen.add(draw(st.sampled_from(choices)))
    if draw(st.integers(0, 3)):
        chosen |= between(graph, chosen)
    return chosen


@pytest.mark.long
@given(st.data())
def test_a_rule_matches_what_it_was_learned_from(data: st.DataObject) -> None:
    """Connected and convex nodes give a rule that reads back and matches them; others none."""
    graph = data.draw(graphs(12).filter(lambda g: any(s.op != "Identity" for s in g.steps)))
    chosen = data.draw(subgraphs(graph))
    model = model_from_text(graph.text())
    nodes = nodes_of(model, " ".join(sorted(chosen)))
    is_whole = not between(graph, chosen) and is_connected(graph, chosen)
    if not is_whole or has_split_copy(graph, chosen):
        with pytest.raises(UsageError):
            learn_rule(model, nodes)
        return
    found = learn_rule(model, nodes)
    check_written(found.rule)
    assert any(set(way.nodes) == chosen for way in find_solutions(found.text, model))
    whole = [m for m in select_matches(model, [found.rule]).matches if chosen <= labels_of(m.nodes)]
    assert bool(whole) != any("another match" in note for note in found.notes)


def labels_of(nodes: tuple[Node, ...]) -> set[str]:
    """Return what identifies the nodes."""
    return {node.label for node in nodes}


@pytest.mark.long
@given(st.data())
def test_the_order_of_the_names_does_not_matter(data: st.DataObject) -> None:
    """The same nodes give the same text, however they are listed."""
    graph = data.draw(graphs(10).filter(lambda g: any(s.op != "Identity" for s in g.steps)))
    chosen = data.draw(subgraphs(graph))
    orders: list[list[str]] = [sorted(chosen), data.draw(st.permutations(sorted(chosen)))]
    texts = set()
    for order in orders:
        model = model_from_text(graph.text())
        try:
            texts.add(write_catalog([learn_rule(model, nodes_of(model, " ".join(order))).rule]))
        except UsageError:
            return
    assert len(texts) == 1


@given(st.data())
def test_a_learned_rule_partitions_soundly(data: st.DataObject) -> None:
    """What comes of outlining every match is valid and computes the same."""
    graph = data.draw(graphs(12).filter(lambda g: any(s.op != "Identity" for s in g.steps)))
    chosen = data.draw(subgraphs(graph))
    model = model_from_text(graph.text())
    try:
        found = learn_rule(model, nodes_of(model, " ".join(sorted(chosen))))
    except UsageError:
        return
    check_outcome(found.rule, graph.text())
