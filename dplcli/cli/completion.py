"""Values that a shell offers after Tab: names of catalogues, targets, rules and nodes.

Click makes the scripts for bash, zsh and fish: ``_DPL_COMPLETE=bash_source dpl`` prints one. What
goes wrong here completes nothing; a command line that is half typed is no place for messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from dplcli import pipeline
from dplcli.errors import DplError

if TYPE_CHECKING:
    import click


def catalogues(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer catalogues by name, and files."""
    names = sorted({*pipeline.shipped_catalogs(), *pipeline.installed_catalogs()})
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


def targets(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer targets, also behind a comma."""
    before, comma, name = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{target}")
        for target in pipeline.shipped_targets()
        if target.startswith(name)
    ]


def nodes(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer nodes of the model on the command line, and values that they make, also behind a comma.

    A node that has a name is offered by that, too.
    """
    before, comma, name = incomplete.rpartition(",")
    words = [*context.params.get("models", ()), context.params.get("model"), *context.args]
    files = [path for path in (Path(word) for word in words if word) if path.is_file()]
    try:
        model = pipeline.inspect(files[0]) if files else None
    except DplError:
        return []
    offered = [
        CompletionItem(f"{before}{comma}{text}", help=node.qualified_op)
        for node in (model.graph if model is not None else ())
        for text in dict.fromkeys((node.name, *(each.name for each in node.outputs if each)))
        if text and text.startswith(name)
    ]
    return list({item.value: item for item in offered}.values())


def rules(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the rules of the catalogues that stand on the command line, with what they are for.

    Behind an @, as in RULE@NODE, offer nodes.
    """
    rule, at, node = incomplete.rpartition("@")
    if at:
        return [
            CompletionItem(f"{rule}@{each.value}", help=each.help)
            for each in nodes(context, _option, node)
        ]
    given = context.params
    names = [*given.get("patterns", ())]
    names += [name for text in given.get("target", ()) for name in text.split(",")]
    if "catalogues" in given:  # click leaves arguments unread while an option is typed
        names += [*given["catalogues"], *context.args]
    try:
        known = pipeline.load_catalog_rules(names)
    except DplError:
        return []
    return [
        CompletionItem(name, help=rule.doc.partition("\n")[0] or None)
        for rule in known
        for name in dict.fromkeys((rule.qualified_name, rule.name))
        if name.startswith(incomplete)
    ]
