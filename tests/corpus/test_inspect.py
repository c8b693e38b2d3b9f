"""Every node of every real model can be looked at: its names, types and neighbours are shown."""

from __future__ import annotations

import pytest

from dplcli import pipeline
from dplcli.outcomes.inspecting import InspectOutcome
from dplcli.report.inspect import model_document, nodes_document
from dplcli.report.layout import lines_of
from tests.corpus.nets import manifest, real_model
from tests.support.helpers import thinned

_MANY = 500


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(12, manifest()))
def test_every_node_is_shown_with_its_names_and_types(name: str) -> None:
    """What the model says of a node is in its report as it is, symbolic shapes included.

    At 80 columns no name and no type is broken. Of a net that is unrolled to many thousand nodes,
    all alike, some are looked at.
    """
    path = real_model(name)
    model = pipeline.inspect(path)
    outcome = InspectOutcome(label=path.name, ir=model)
    whole = "\n".join(line.plain for line in lines_of(model_document(outcome).text(), None))
    for port in (*model.graph.inputs, *model.graph.outputs):
        known = port.known_type()
        if not port.is_initializer and known is not None:
            assert f"{port.name} {known}" in whole
    nodes = [node for graph in model.graphs() for node in graph]
    for node in nodes[:: 1 + len(nodes) // _MANY]:
        report = "\n".join(
            line.plain for line in lines_of(nodes_document([node], path.name).text(), 80)
        )
        for value in (*node.inputs, *node.outputs):
            known = None if value is None else value.known_type()
            assert value is None or value.name in report
            assert known is None or str(known) in report
