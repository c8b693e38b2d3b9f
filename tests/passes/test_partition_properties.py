"""Random graphs under random rules: valid, equivalent, idempotent, deterministic."""

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.language import PatternRule
from tests.support.helpers import check_idempotent, check_sound, partitioned, proto_from_text, rule
from tests.support.random_models import rule_texts
from tests.support.strategies import RandomGraph, graphs, subgraph_patterns

POLICIES = ("auto", "embed", "lift")


def check_all(graph: RandomGraph, rules: list[PatternRule]) -> None:
    """Partition twice, and check what must hold of every result."""
    text = graph.text()
    _, selection, written = partitioned(rules, text)
    assert partitioned(rules, text)[2] == written
    nodes = [node for match in selection.matches for node in match.nodes]
    assert len(set(nodes)) == len(nodes)
    result = onnx.ModelProto.FromString(written)
    names = [node.name for node in result.graph.node if node.domain == "t"]
    assert len(set(names)) == len(names) == len(selection.matches)
    check_sound(proto_from_text(text), result)
    check_idempotent(rules, written)


@pytest.mark.long
@given(st.data())
def test_random_rules(data: st.DataObject) -> None:
    """Whatever the rules find, the result is sound, and a second run finds nothing."""
    graph = data.draw(graphs(12))
    rules = [
        rule(
            data.draw(rule_texts(graph)),
            name=f"r{number}",
            constants=data.draw(st.sampled_from(POLICIES)),
        )
        for number in range(data.draw(st.integers(1, 3)))
    ]
    check_all(graph, rules)


@pytest.mark.long
@given(st.data())
def test_rules_read_off_the_graph(data: st.DataObject) -> None:
    """Rules that surely match somewhere give sound results too."""
    graph = data.draw(graphs(12))
    rules = []
    for number in range(data.draw(st.integers(1, 3))):
        pattern, _, _ = data.draw(subgraph_patterns(graph))
        policy = data.draw(st.sampled_from(POLICIES))
        rules.append(rule(pattern, name=f"r{number}", constants=policy))
    check_all(graph, rules)
