"""Holding JSON documents against the schemas that ``dpl schema`` prints."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from dplcli.cli.schema import documents_known
from dplcli.escaping import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST = 300_000
"""Characters of a document beyond which it costs seconds and says nothing new."""


@cache
def validator(name: str) -> Draft202012Validator:
    """Return what judges documents of one name."""
    schema = documents_known()[name][1]()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def mistakes(record: Mapping[str, Any]) -> list[str]:
    """Say what in a document is not as its schema has it, first of all."""
    text = json_text(record)
    if "schema" not in record or len(text) > _MOST:
        return []
    name = record["schema"].removeprefix("dpl.").partition("/")[0]
    wrong = best_match(validator(name).iter_errors(json.loads(text)))
    if wrong is None:
        return []
    place = ".".join(map(str, wrong.absolute_path))
    return [f"{record['schema']}, {place}: {wrong.message[:300]}"]


def checked(write: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return *write*, which makes a document, held to the document's schema."""

    def call(record: Mapping[str, Any]) -> Any:  # noqa: ANN401  # as *write*
        made = write(record)
        wrong = mistakes(made)
        assert not wrong, wrong
        return made

    return call
