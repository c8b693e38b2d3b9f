"""Every real model can be drawn: all nodes are there, no box is too full, no page too large."""

from __future__ import annotations

from collections import Counter

import pytest

from dplcli import pipeline
from dplcli.report.drawing import dot
from dplcli.report.picture import MOST_ITEMS, opened, picture_of
from dplcli.report.view import view_page
from tests.corpus.nets import manifest, real_model
from tests.support.helpers import thinned


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(12, manifest(), first=1))
def test_every_real_model_is_drawn(name: str) -> None:
    """Each node once, but for Constant nodes; what is folded belongs to one that is drawn."""
    outcome = pipeline.view(real_model(name))
    picture = picture_of(outcome.model, outcome.label)
    for sheet in picture.sheets.values():
        drawn = Counter(sheet.root.nodes())
        named = {node for node in sheet.graph if node.op_type != "Constant" or node.domain}
        assert set(drawn.values()) <= {1}
        assert named <= drawn.keys() | sheet.folded.keys()
        assert not drawn.keys() & sheet.folded.keys()
        assert set(sheet.folded.values()) <= drawn.keys()
        for box in (sheet.root, *sheet.root.boxes()):
            assert len(box.items) <= MOST_ITEMS
            assert box is sheet.root or len(box.items) > 1
    found = opened(picture)
    page = view_page(picture, found, outcome.notes)

    assert len(page.encode()) < 2_000_000 + 1_000 * picture.node_count
    assert dot(picture, found).endswith("}\n")
