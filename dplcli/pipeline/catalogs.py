"""Catalogues by themselves: what there is, and whether it is right and does what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dplcli.dpl import Catalog, find_catalog, read_catalogs, shipped_catalogs
from dplcli.dpl.catalog_schema import json_schema
from dplcli.dpl.code import installed_catalogs
from dplcli.dpl.lint import Problem, lint
from dplcli.dpl.source import Source
from dplcli.errors import UsageError, did_you_mean
from dplcli.onnx_io import OnnxSchemas, paused_gc
from dplcli.pipeline.function_catalogs import READERS
from dplcli.pipeline.trials import Trial, Trier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.rule import PatternRule, RewriteRule


@dataclass(frozen=True)
class CatalogEntry:
    """A catalogue that can be named.

    Attributes:
        name: Its name.
        origin: "dpl", or the package that offers it.
        doc: What it is for; empty for one of a package, which is code and not run to find out.
        target: The target of its functions, or "".
        rules: How many rules it has; None if that is not known without running it.
    """

    name: str
    origin: str
    doc: str
    target: str
    rules: int | None


def list_catalogs() -> list[CatalogEntry]:
    """Return the catalogues that dpl and installed packages offer."""
    schemas = OnnxSchemas()
    entries = []
    for name in shipped_catalogs():
        data = Source(find_catalog(name)).plain()
        found = read_catalogs([name], schemas)
        count = len(found.patterns) + len(found.rewrites)
        doc = str(data.get("doc", ""))
        entries.append(CatalogEntry(name, "dpl", doc, str(data.get("target", "")), count))
    for name, point in installed_catalogs().items():
        package = point.dist.name if point.dist is not None else point.value
        entries.append(CatalogEntry(name, package, "", "", None))
    return entries


def load_catalog_rules(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[PatternRule | RewriteRule]:
    """Return the rules of catalogues, those that outline first.

    Args:
        names: Paths, or names of catalogues.
        only: Names of rules, with or without their target; empty for all.
        allow_code: Whether YAML may name Python functions to import.

    Raises:
        CatalogError: A catalogue cannot be read.
        UsageError: There is no such rule, or no catalogue is named.
    """
    if not names:
        raise UsageError("no catalogue is named", hint="dpl patterns list shows what there is")
    catalog: Catalog = read_catalogs(
        names, OnnxSchemas(), allow_code=allow_code, readers=READERS, with_examples=True
    )
    return _named(catalog.rules, only)


def _named(
    rules: Sequence[PatternRule | RewriteRule], only: Sequence[str]
) -> list[PatternRule | RewriteRule]:
    known = {name for rule in rules for name in (rule.name, rule.qualified_name)}
    for name in only:
        if name not in known:
            raise UsageError(f"{name}: no such rule", hint=did_you_mean(name, sorted(known)))
    wanted = set(only)
    return [rule for rule in rules if not wanted or wanted & {rule.name, rule.qualified_name}]


@paused_gc()
def check_catalogs(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[Problem]:
    """Look for what cannot be right in the rules of catalogues, without a model.

    Raises:
        CatalogError: A catalogue cannot be read at all.
    """
    schemas = OnnxSchemas()
    rules = load_catalog_rules(names, allow_code=allow_code)
    wanted = {rule.qualified_name for rule in _named(rules, only)}
    problems = [problem for rule in rules for problem in lint(rule, schemas)]
    problems += Trier(schemas).find_conflicts(rules)
    return [problem for problem in problems if problem.rule in wanted]


@paused_gc()
def try_catalogs(
    names: Sequence[str], *, only: Sequence[str] = (), allow_code: bool = False
) -> list[Trial]:
    """Run the examples of catalogues, and try each rule on made-up graphs, in onnxruntime.

    Raises:
        CatalogError: A catalogue cannot be read.
    """
    trier = Trier(OnnxSchemas())
    rules = load_catalog_rules(names, only=only, allow_code=allow_code)
    return [trial for rule in rules for trial in trier.trials(rule)]


def catalog_schema() -> dict[str, Any]:
    """Return the JSON Schema of a catalogue file."""
    return json_schema()
