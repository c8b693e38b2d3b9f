"""``dpl view``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dplcli import pipeline
from dplcli.cli import options
from dplcli.cli.job import ModelCommand
from dplcli.cli.printing import write
from dplcli.errors import UsageError, counted
from dplcli.escaping import inert_markup
from dplcli.report.document import Document
from dplcli.report.layout import Group, Text
from dplcli.report.picture import opened, picture_of
from dplcli.report.view import NodeFigures, Viewed, view_page
from dplcli.settings import ViewSettings

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.cli.job import Invocation, Models
    from dplcli.report.layout import Part
    from dplcli.settings import BaseSettings

FORMS = {
    ".html": "page",
    ".htm": "page",
    ".svg": "drawing",
    ".dot": "graph in DOT",
    ".gv": "graph in DOT",
    ".mmd": "graph in Mermaid",
    ".mermaid": "graph in Mermaid",
}
"""What each ending of a file stands for."""

_MARKS = {"page": b'<meta name="generator" content="dpl">'}
_MARK = b"drawn by dpl"


class _ViewCommand(ModelCommand):
    """Draw MODEL: a page to look around in, or a drawing for a document.

    The page is one file and loads nothing. Groups open and close: module scopes, functions and
    partitions, bodies of If, Loop and Scan, and runs of nodes where a model has no scopes. Colours
    tell classes of operators, what nodes cost, or which numbers quantised tensors can hold.
    """

    suffix = ".html"
    is_beside = True

    def one(self, call: Invocation) -> None:
        """Draw a model."""
        models, settings, printing = call.models, call.settings, call.printing
        place = _place_of(models[-1], settings)
        is_printed = str(place) == "-"
        printing.check(
            *models, None if is_printed else place, printed=["-o -"] if is_printed else []
        )
        printing.conclude(self.document(models, settings))

    def document(self, models: Models, settings: BaseSettings) -> Document:
        """Draw a model, and say what was drawn."""
        (model,), chosen = models, cast("ViewSettings", settings)
        place = _place_of(model, settings)
        form = _form_of(place)
        is_printed = str(place) == "-"
        if not is_printed:
            mark = _MARKS.get(form, _MARK)
            options.check_report_path(
                str(place), model, option="-o", mark=mark, kind=f"{form} that dpl wrote"
            )
        outcome = pipeline.view(cast("Path", model), chosen.shape)
        picture = picture_of(outcome.model, outcome.label, chosen.scope, outcome.layers)
        found = opened(picture, chosen.open, chosen.depth)
        figures = NodeFigures(costs=outcome.costs, open_sizes=outcome.open_sizes)
        viewed = Viewed(outcome.label, picture, found, outcome.notes, figures)
        text = _drawn(form, viewed)
        if is_printed:
            write(inert_markup(text))
        else:
            pipeline.write_text(place, text, "-o")
        nodes = counted(picture.node_count, "node")
        first = f"{nodes} in {place}" + "; open it in a browser" * (form == "page")

        def said(*, verbose: bool) -> Part:
            lines = [first, *(f"Note: {note}" for note in outcome.notes if verbose)]
            return Group(*map(Text, () if is_printed else lines))

        return Document(
            said=said,
            of=viewed,
            command="dpl view",
            subject=outcome.label,
            facts=(("nodes", f"{picture.node_count:,}"),),
        )


def _place_of(model: Path | None, settings: BaseSettings) -> Path:
    output: Path | None = vars(settings)["output"]
    return cast("Path", model).with_suffix(".html") if output is None else output


command = _ViewCommand(
    "view",
    verbose="Also print what a reader should know about the file.",
    settings=ViewSettings,
)


def _form_of(place: Path) -> str:
    form = "page" if str(place) == "-" else FORMS.get(place.suffix.lower())
    if form is None:
        hint = f"choose one of {', '.join(FORMS)}"
        raise UsageError(f"-o {place}: the ending says no form", hint=hint)
    return form


def _drawn(form: str, viewed: Viewed) -> str:
    if form == "page":
        return view_page(*viewed[1:])
    from dplcli.report.drawing import dot, mermaid, svg  # noqa: PLC0415  # each form loads its own

    forms = {"drawing": svg, "graph in DOT": dot, "graph in Mermaid": mermaid}
    return forms[form](viewed.picture, viewed.opened)
