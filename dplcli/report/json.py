"""Outcomes as JSON. It is versioned, in a stable order, and has no times and no absolute paths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dplcli.ir import Attribute, Tensor, Value
from dplcli.ir.printer import print_attribute, short_float
from dplcli.keys import keys_of, part_of, schema_name
from dplcli.language.pattern import DFPattern
from dplcli.language.rule import Rule
from dplcli.version import __version__

Json = dict[str, Any]


_COUNTS_BY_RULE = {"dpl.match/1", "dpl.partition/1", "dpl.rewrite/1"}


def published(record: Mapping[str, Any]) -> Json:
    """Return a record as it is written: with dpl's version, and without the rules that do nothing.

    A target has more than a hundred rules, and few of them match in one model.
    """
    head = {"schema": record["schema"], "dpl_version": __version__} if "schema" in record else {}
    written = {**head, **record}
    if record.get("schema") in _COUNTS_BY_RULE:
        written["counts"] = {rule: count for rule, count in record["counts"].items() if count}
    return written


def record_of(value: Any) -> Any:  # noqa: ANN401, PLR0911  # anything; a return for each kind
    """Return *value* as JSON: the keys of its class, or what identifies it.

    Numbers that JSON lacks, such as infinity, become text.
    """
    match value:
        case None | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Value():
            return value.name
        case Rule():
            return value.qualified_name
        case Path():
            return value.name
        case DFPattern():
            return repr(value)
        case Attribute():
            return _attribute_record(value)
        case Mapping():
            return {key: record_of(item) for key, item in value.items()}
        case _ if keys_of(type(value)):
            return parts_of(value)
        case _:
            return [record_of(item) for item in value]


def parts_of(value: object) -> Json:
    """Return a value by the keys of its class; of a rule, too, which its name identifies."""
    record: Json = {}
    if name := schema_name(type(value)):
        record["schema"] = name
    for place, path, is_optional in keys_of(type(value)):
        if not path:
            record.pop(place[0], None)
            continue
        part = part_of(value, path)
        if is_optional and (part is None or (hasattr(part, "__len__") and not len(part))):
            continue
        inner = record
        for key in place[:-1]:
            inner = inner.setdefault(key, {})
        if place[-1] != "*":
            inner[place[-1]] = record_of(part)
        elif part is not None:
            inner.update(parts_of(part))
    return record


def _attribute_record(attribute: Attribute) -> object:
    """Return the attribute's value; as text if JSON has no such value."""
    value = attribute.value
    items = value if isinstance(value, tuple) else (value,)
    is_plain = all(
        isinstance(item, (int, str)) or (isinstance(item, float) and math.isfinite(item))
        for item in items
    )
    if attribute.ref or isinstance(value, Tensor) or not is_plain:
        return print_attribute(attribute)
    plain = [short_float(item) if isinstance(item, float) else item for item in items]
    return plain if isinstance(value, tuple) else plain[0]
