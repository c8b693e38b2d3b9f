"""``prepare`` costs no matches: each target has as many after it as before, on every model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from dplcli import pipeline
from dplcli.ir.traversal import captured_values
from dplcli.onnx_io import load_model
from dplcli.settings import MatchSettings, RewriteSettings
from tests.corpus.nets import LIGHT_NETS, light_net, listed_models
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.ir import Graph, Node, Value
    from dplcli.language.rule import Match

MODELS = {f"light_{name}": light_net(name) for name in LIGHT_NETS} | {
    name.removesuffix(".onnx"): path for name, path in listed_models().items()
}
MADE = {"Concat", "Constant", "Gather", "Reshape", "Split", "Sub"}
"""What ``prepare`` makes of nodes of other operators."""

SETTINGS = RewriteSettings(verify=False)
TARGETS = ("dnnl", "cublas", "cutlass")

pytestmark = pytest.mark.long


def open_nodes(graph: Graph) -> set[Node]:
    """Return the nodes whose results depend on what the graph is given."""
    found: set[Node] = set()

    def is_open(value: Value | None) -> bool:
        if value is None or value.graph is not graph or value.producer is None:
            return value is not None and not value.is_constant
        return value.producer in found

    for node in graph:
        if any(map(is_open, (*node.inputs, *captured_values(node)))):
            found.add(node)
    return found


def count(path: Path, target: str) -> tuple[Counter[str], Counter[str]]:
    """Count the matches of each rule, but for those of constants alone, and the nodes outside."""
    matches: list[Match] = list(
        pipeline.match(path, MatchSettings(target=[target])).selection.matches
    )
    found = {graph: open_nodes(graph) for graph in {match.root.graph for match in matches}}
    left = (match for match in matches if not found[match.root.graph].isdisjoint(match.nodes))
    inside = Counter(node.op_type for match in matches for node in match.nodes)
    nodes = Counter(node.op_type for graph in load_model(path).graphs() for node in graph)
    return Counter(match.rule.name for match in left), nodes - inside


@pytest.mark.parametrize("name", thinned(15, MODELS, first=2))
def test_prepare_costs_no_matches(tmp_path: Path, name: str) -> None:
    """What is folded away is none; nor is a node left outside that was in a match before."""
    model = MODELS[name]
    prepared = tmp_path / model.name
    pipeline.rewrite(model, SETTINGS.but(output=prepared, patterns=["prepare"]))

    for target in TARGETS:
        (before, outside), (after, still) = count(model, target), count(prepared, target)
        assert after.total() >= before.total(), (target, before - after, after - before)
        assert (still - outside).keys() <= MADE, target
