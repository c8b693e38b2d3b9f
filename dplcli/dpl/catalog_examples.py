"""Examples in a file of their own, beside the catalogue: ``dnnl.examples.yaml``.

Only what runs or counts examples reads it, so a catalogue with many of them is not slower to use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from dplcli.dpl.catalog_entries import labelled, written_out
from dplcli.dpl.catalog_files import examples_file, exists
from dplcli.dpl.catalog_schema import ExamplesFile
from dplcli.dpl.rule import Example
from dplcli.dpl.source import Source
from dplcli.dpl.validation import explain_invalid
from dplcli.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    Where: TypeAlias = tuple[str | int, ...]


def read_examples(catalogue: Path, names: Collection[str]) -> dict[str, tuple[Example, ...]]:
    """Return the examples in the file beside a catalogue, by rule; nothing if there is none.

    Args:
        catalogue: The catalogue's file.
        names: Names of its rules.

    Raises:
        CatalogError: The file makes no sense, or is about a rule that the catalogue does not have.
    """
    path = examples_file(catalogue)
    if not exists(path.is_file):
        return {}
    source = Source(path, "file of examples")
    data = source.plain()
    try:
        file = ExamplesFile.model_validate(data)
    except ValidationError as error:
        raise explain_invalid(source, error, _keys_at) from error
    found: dict[str, tuple[Example, ...]] = {}
    for number in range(len(file.examples)):
        item = data["examples"][number]
        for rule, example in _written_out(source, number, item, names, catalogue.name):
            found[rule] = (*found.get(rule, ()), example)
    return found


def _written_out(
    source: Source,
    number: int,
    item: Any,  # noqa: ANN401  # YAML holds anything
    names: Collection[str],
    catalogue: str,
) -> Iterator[tuple[str, Example]]:
    """Yield the examples that one item stands for, each with its rule."""
    for entry in written_out(source, ("examples", number), item, {}):
        rule = entry.data["rule"]
        if rule not in names:
            hint = did_you_mean(rule, names)
            wrong = entry.error(f"{catalogue} has no rule {rule!r}", ("rule",), hint)
            raise labelled(wrong, entry.values)
        after = entry.data.get("after", "any")
        yield (
            rule,
            Example(before=entry.data["before"], after=after, origin=entry.line(("before",))),
        )


def _keys_at(where: Where) -> Iterable[str]:
    fields = ExamplesFile.model_fields if len(where) == 1 else ("rule", "before", "after")
    return [*fields, "for_each", "except"]
