"""``prepare`` costs no matches: each target has as many after it as before, on every model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from dplcli import pipeline
from dplcli.ir.traversal import captured_values
from tests.corpus.nets import LIGHT_NETS, light_net, listed_models

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.dpl.rule import Match
    from dplcli.ir import Graph, Node, Value

MODELS = {f"light_{name}": light_net(name) for name in LIGHT_NETS} | {
    name.removesuffix(".onnx"): path for name, path in listed_models().items()
}
SETTINGS = pipeline.RewriteSettings(verify=False)
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


def count(path: Path, target: str) -> Counter[str]:
    """Count the matches of each rule, but for those of constants alone."""
    matches: list[Match] = list(pipeline.match(path, targets=[target]).selection.matches)
    found = {graph: open_nodes(graph) for graph in {match.root.graph for match in matches}}
    left = (match for match in matches if not found[match.root.graph].isdisjoint(match.nodes))
    return Counter(match.rule.name for match in left)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_prepare_costs_no_matches(tmp_path: Path, model: Path) -> None:
    """What is folded away is none; whatever is left to compute, kernels are found for."""
    prepared = tmp_path / model.name
    pipeline.rewrite(model, output=prepared, patterns=["prepare"], settings=SETTINGS)

    for target in TARGETS:
        before, after = count(model, target), count(prepared, target)
        assert after.total() >= before.total(), (target, before - after, after - before)
