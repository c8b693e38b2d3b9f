"""Write rules as a catalogue in YAML that reads as the same rules."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from dplcli.dpl.catalog_schema import CatalogFile, PatternEntry
from dplcli.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.rule import ConstantsPolicy, PatternRule

_UNWRAPPED = 1 << 20
"""A width that no line has."""


def write_catalog(rules: Sequence[PatternRule], *, doc: str = "") -> str:
    """Return the text of a catalogue.

    Args:
        rules: At least one rule, all of one target.
        doc: What the catalogue is for.

    Raises:
        CatalogError: No catalogue can say it: a bad name, several targets, a check in Python.
    """
    targets = list(dict.fromkeys(rule.target for rule in rules))
    if len(targets) > 1:
        raise CatalogError(f"a catalogue has one target, not {', '.join(targets)}")
    policies = {rule.constants for rule in rules}
    policy = policies.pop() if len(policies) == 1 else "auto"
    catalog: dict[str, Any] = {"dpl": 1, "target": targets[0]}
    if doc:
        catalog["doc"] = doc
    if policy != "auto":
        catalog["constants"] = policy
    catalog["patterns"] = [_entry(rule, policy) for rule in rules]
    _check(catalog)
    return _yaml(catalog)


def _entry(rule: PatternRule, policy: ConstantsPolicy) -> dict[str, Any]:
    """Return what the catalogue says of *rule*, keys that would say nothing left out."""
    if rule.check is not None:
        raise CatalogError(f"rule {rule.name!r}: its check is Python code, which YAML cannot hold")
    first, last = rule.opsets
    bounds = [first or 1] if last is None else [first or 1, last]
    optional: dict[str, tuple[object, object]] = {
        "where": ([condition.text for condition in rule.where], []),
        "constants": (rule.constants, policy),
        "escape": (rule.escape, "refuse"),
        "order": (rule.order, "outermost"),
        "attrs": (dict(rule.metadata), {}),
        "opsets": (bounds, [1]),
        "examples": ([{"before": e.before, "after": e.after} for e in rule.examples], []),
    }
    return {
        "name": rule.name,
        **({"doc": _escaped(rule.doc)} if rule.doc else {}),
        "pattern": _block(_escaped(f"{rule.pattern!r}\n")),
        **{key: _escaped(value) for key, (value, default) in optional.items() if value != default},
    }


def _escaped(data: Any) -> Any:  # noqa: ANN401  # what YAML holds
    """Keep ``${`` from being read as a reference."""
    if isinstance(data, str):
        return data.replace("${", "$${")
    if isinstance(data, dict):
        return {key: _escaped(item) for key, item in data.items()}
    return [_escaped(item) for item in data] if isinstance(data, list) else data


def _block(text: str) -> str:
    """Have *text* written line by line; YAML must quote what cannot be printed."""
    return LiteralScalarString(text) if text.replace("\n", "").isprintable() else text


def _check(catalog: dict[str, Any]) -> None:
    try:
        entries = [dict(entry) for entry in catalog["patterns"]]
        CatalogFile.model_validate(catalog | {"patterns": entries})
        for entry in entries:
            PatternEntry.model_validate(entry)
    except ValidationError as error:
        problem = error.errors()[0]
        key = next(item for item in reversed(problem["loc"]) if isinstance(item, str))
        what = f": {problem['msg'].removeprefix('Value error, ')}"
        if problem["type"] == "string_pattern_mismatch":
            what = " is not a name: letters, digits and _"
        raise CatalogError(f"{key}: {problem['input']!r}{what}") from error


def _yaml(catalog: dict[str, Any]) -> str:
    writer = YAML()
    writer.width = _UNWRAPPED
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    writer.dump(catalog, stream)
    return stream.getvalue()
