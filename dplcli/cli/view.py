"""``dpl view``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import pipeline
from dplcli.cli import many, options
from dplcli.cli.printing import write
from dplcli.errors import UsageError, counted
from dplcli.escaping import inert_markup
from dplcli.report.document import Document
from dplcli.report.layout import Group, Text
from dplcli.report.picture import opened, picture_of
from dplcli.report.view import NodeFigures, Viewed, view_page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dplcli.report.picture import Picture

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


@click.command("view", cls=options.GroupedCommand)
@many.takes_models(suffix=".html", beside=True)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE",
    show_default="MODEL.html",
    help="Where to write the picture; the ending says what it is: .html, .svg, .dot (Graphviz) or "
    ".mmd (Mermaid). - is standard output, for a page.",
)
@click.option(
    "--scope",
    metavar="NAME",
    help="Draw only a part: a module scope such as encoder/layer.0, or a function.",
)
@click.option(
    "--open",
    "names",
    multiple=True,
    metavar="NAME",
    help="Open a group at first: a scope, the calls of a function, or a node with a body. "
    "Repeatable.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="N",
    help="Open so many levels of groups, calls and bodies; without, as many groups as can be "
    "looked at.",
)
@click.option(
    *("--shape", "sizes"),
    multiple=True,
    metavar="DIM=N",
    help="Size of a symbolic dimension, or of INPUT:AXIS, or a whole shape, INPUT=1x3x224x224: "
    "what nodes cost is counted with it. Repeatable.",
)
@options.printing_options("Also print what a reader should know about the file.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    output: Path | None,
    scope: str | None,
    names: tuple[str, ...],
    depth: int | None,
    sizes: tuple[str, ...],
    printing: options.Printing,
) -> None:
    """Draw MODEL: a page to look around in, or a drawing for a document.

    The page is one file and loads nothing. Groups open and close: module scopes, functions and
    partitions, bodies of If, Loop and Scan, and runs of nodes where a model has no scopes. Colours
    tell classes of operators, what nodes cost, or which numbers quantised tensors can hold.
    """
    place = model.with_suffix(".html") if output is None else output
    form = _form_of(place)
    is_printed = str(place) == "-"
    printing.check(model, None if is_printed else place, printed=["-o -"] if is_printed else [])
    if not is_printed:
        mark = _MARKS.get(form, _MARK)
        options.check_report_path(
            str(place), model, option="-o", mark=mark, kind=f"{form} that dpl wrote"
        )
    outcome = pipeline.view(model, options.parse_sizes(sizes))
    picture = picture_of(outcome.model, outcome.label, scope)
    found = opened(picture, names, depth)
    figures = NodeFigures(costs=outcome.costs, open_sizes=outcome.open_sizes)
    viewed = Viewed(outcome.label, picture, found, outcome.notes, figures)
    text = _drawn(form, viewed)
    if is_printed:
        write(inert_markup(text))
    else:
        pipeline.write_text(place, text, "-o")
    said = _said(picture, place, outcome.notes if printing.verbose else (), is_page=form == "page")
    document = Document(
        text=Group() if is_printed else Group(*map(Text, said)),
        of=viewed,
        command="dpl view",
        subject=outcome.label,
        facts=(("nodes", f"{picture.node_count:,}"),),
    )
    printing.conclude(document)


def _said(picture: Picture, place: Path, notes: Iterable[str], *, is_page: bool) -> list[str]:
    nodes = counted(picture.node_count, "node")
    first = f"{nodes} in {place}" + "; open it in a browser" * is_page
    return [first, *(f"Note: {note}" for note in notes)]


def _form_of(place: Path) -> str:
    form = "page" if str(place) == "-" else FORMS.get(place.suffix.lower())
    if form is None:
        raise UsageError(
            f"-o {place}: the ending says no form", hint=f"choose one of {', '.join(FORMS)}"
        )
    return form


def _drawn(form: str, viewed: Viewed) -> str:
    if form == "page":
        return view_page(*viewed[1:])
    from dplcli.report import drawing  # noqa: PLC0415  # each form loads its own

    forms = {
        "drawing": drawing.svg,
        "graph in DOT": drawing.dot,
        "graph in Mermaid": drawing.mermaid,
    }
    return forms[form](viewed.picture, viewed.opened)
