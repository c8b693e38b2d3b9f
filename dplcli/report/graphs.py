"""The models that a report shows, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import DplError
from dplcli.report import view
from dplcli.report.document import DrawnPatterns
from dplcli.report.html import PageGraphs
from dplcli.report.picture import Picture, opened, picture_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.outcomes.inspecting import ViewOutcome
    from dplcli.report.document import Drawn
    from dplcli.verify import VerificationResult

_MOST_STEPS = 5_000
_MOST_DRAWN = 20_000
"""The nodes of a model that a report still draws: a page grows by half a kilobyte for each."""


def graphs_of(
    drawn: Drawn, verified: VerificationResult | None, look: Callable[..., ViewOutcome]
) -> PageGraphs:
    """Draw models for a report, or say why not.

    Args:
        drawn: What is drawn.
        verified: What the check said: costs are counted with its sizes.
        look: Loads a model to draw it, given its file and sizes.
    """
    notes = [drawn.note] if drawn.note else []
    shapes = {} if verified is None else {each.name: each.shape for each in verified.inputs}
    records = []
    shown: list[Picture | DrawnPatterns] = []
    for model in drawn.models:
        if isinstance(model, DrawnPatterns):
            records.append(view.pattern_record(model))
            shown.append(model)
            continue
        name = model.path.name
        try:
            outcome = look(model.path, shapes)
            picture = picture_of(outcome.model, outcome.label)
        except DplError as error:
            notes.append(f"{name}: {error.message}")
            continue
        except OSError as error:
            notes.append(f"{name}: cannot be read: {error.strerror or error}")
            continue
        if picture.node_count > _MOST_DRAWN:
            count = f"{picture.node_count:,} nodes"
            notes.append(f"{name}: {count} are too many for a report; dpl view draws them")
            continue
        figures = view.NodeFigures(model.marks, model.errors, outcome.costs, outcome.open_sizes)
        records.append(view.view_data(picture, opened(picture), outcome.notes, figures).as_page())
        shown.append(picture)
    if len(records) < len(drawn.models):
        drawn = drawn._replace(steps=(), pairs=())
    if len(steps := list(drawn.steps)) > _MOST_STEPS:
        few = f"The first {_MOST_STEPS:,} of {len(steps):,} steps can be looked at one by one."
        notes.append(few)
        drawn = drawn._replace(steps=steps[:_MOST_STEPS])
    return PageGraphs(records, view.beside_record(shown, drawn), notes)
