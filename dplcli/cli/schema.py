"""``dpl schema``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dplcli import pipeline
from dplcli.cli import options
from dplcli.cli.printing import show, write
from dplcli.errors import UsageError, did_you_mean
from dplcli.escaping import json_text

if TYPE_CHECKING:
    from collections.abc import Callable


def documents_known() -> dict[str, tuple[str, Callable[[], dict[str, Any]]]]:
    """Return what each document is in one line, and what makes its schema, by its name."""
    from dplcli.cli.build import file_schema  # noqa: PLC0415  # loads every command with steps
    from dplcli.report.schema import DOCUMENTS, json_schema, summary  # noqa: PLC0415  # no other command needs it

    written = {name: (summary(of[0]), partial(json_schema, of)) for name, of in DOCUMENTS.items()}
    return written | {
        "plan": ("What a rewrite did, to be edited and done again.", pipeline.plan_schema),
        "catalogue": ("A catalogue of rules: a YAML file.", pipeline.catalog_schema),
        "pipeline": ("A pipeline file, dpl.yaml, which dpl build reads.", file_schema),
    }


def _complete(
    _context: click.Context, _argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    known = documents_known().items()
    return [CompletionItem(name, help=of[0]) for name, of in known if name.startswith(incomplete)]


@click.command("schema", cls=options.GroupedCommand)
@click.argument("document", required=False, shell_complete=_complete)
def command(*, document: str | None) -> None:
    """Print the JSON Schema of a DOCUMENT that dpl writes or reads; without one, list them.

    A document names its schema first, such as dpl.match/1: that is DOCUMENT match.
    """
    from dplcli.report.layout import TextTable  # noqa: PLC0415  # loads rich

    known = documents_known()
    if document is None:
        rows = [(name, about) for name, (about, _) in known.items()]
        show(TextTable("document", "what it is", prose=("what it is",), rows=rows))
        return
    name = document.removeprefix("dpl.").partition("/")[0]
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"there is no document {document!r}", hint=hint or "dpl schema lists them")
    write(json_text(known[name][1](), indent=2))
