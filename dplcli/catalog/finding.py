"""Where catalogues are, and the object that gathers their rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dplcli.catalog.python import installed_catalogs
from dplcli.errors import CatalogError, did_you_mean
from dplcli.files import exists
from dplcli.ir.operators import kind_of
from dplcli.language.rule import PatternRule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dplcli.language.replacement import RewriteRule
    from dplcli.language.rule import Rule

_SUFFIXES = (".yaml", ".yml")
_TARGET = re.compile(r"^target: *(\w+)", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parent.parent
_INSTALLED, _SOURCES = _PACKAGE / "patterns", _PACKAGE.parent / "patterns"
"""Where shipped catalogues lie: in an installed package, and in a source checkout."""


def shipped_catalogs() -> list[str]:
    """Name the catalogues that come with dpl."""
    folder = _shipped_folder()
    if folder is None:
        return []
    return sorted(path.stem for path in folder.glob("*.yaml"))


def examples_file(catalog: Path) -> Path:
    """Return the path that a catalogue's file of examples would have: beside the catalogue.

    Those of shipped catalogues are for the tests of dpl, and lie there; no user installs them.
    """
    is_source = catalog.resolve().parent == _SOURCES
    folder = _PACKAGE.parent / "tests" / "catalogues" if is_source else catalog.parent
    return folder / f"{catalog.stem}.examples.yaml"


def _shipped_folder() -> Path | None:
    return next((folder for folder in (_INSTALLED, _SOURCES) if folder.is_dir()), None)


def shipped_catalog(name: str) -> Path:
    """Return the file of a catalogue that dpl ships, whatever files of that name lie around.

    Raises:
        CatalogError: dpl was installed without it.
    """
    folder = _shipped_folder()
    if folder is None:
        raise CatalogError(f"{name}: the catalogues that dpl ships are missing: install it again")
    return folder / f"{name}.yaml"


def find_catalog(name: str) -> Path:
    """Return the file that *name* means: a path, or the name of a shipped catalogue.

    Raises:
        CatalogError: There is no such file.
    """
    if not name:
        raise CatalogError("'': no such catalogue: the name is empty")
    path = Path(name)
    if exists(path.is_file):
        return path
    if exists(path.is_dir):
        raise CatalogError(f"{name}: is a directory, not a catalogue")
    folder = _shipped_folder()
    if folder is not None and path.parent == Path():
        shipped = folder / (name if path.suffix in _SUFFIXES else f"{name}.yaml")
        if exists(shipped.is_file):
            return shipped
    names = [*shipped_catalogs(), *installed_catalogs()]
    hint = did_you_mean(path.stem, names)
    if kind_of(name) is not None:
        hint = f"a pattern has brackets: '{name}(...)' is any {name}"
    raise CatalogError(
        f"{name}: no such catalogue, neither a file nor shipped with dpl",
        hint=hint or f"shipped catalogues: {', '.join(names)}",
    )


def lacks_examples(name: str) -> bool:
    """Tell whether *name* means a catalogue of an installed dpl: its examples are in the sources.

    False for the text of a pattern, and for what another package offers.
    """
    try:
        return find_catalog(name).resolve().parent == _INSTALLED
    except CatalogError:
        return False


def shipped_targets() -> list[str]:
    """Name the shipped catalogues that are complete for the target they are named after."""
    return [name for name in shipped_catalogs() if is_shipped_target(name)]


def is_shipped_target(name: str) -> bool:
    """Tell whether the shipped catalogue *name* is complete for the target of that name."""
    return name in shipped_catalogs() and _target_of(name) == name


def shipped_beside(targets: Collection[str]) -> list[str]:
    """Name the shipped catalogues that have further rules for *targets*."""
    names = (name for name in shipped_catalogs() if name not in targets)
    return [name for name in names if _target_of(name) in targets]


def _target_of(name: str) -> str:
    """Return the target that a shipped catalogue names; "" if it names none."""
    target = _TARGET.search(shipped_catalog(name).read_text(encoding="utf-8"))
    return "" if target is None else target[1]


@dataclass(frozen=True)
class CatalogPart:
    """What one file in YAML gave.

    Attributes:
        text: What is in it.
        includes: The files that it includes.
        rules: Its own rules.
    """

    text: str
    includes: tuple[Path, ...]
    rules: tuple[PatternRule | RewriteRule, ...]


@dataclass
class Catalog:
    """The rules of one or more catalogues.

    Attributes:
        patterns: Rules that outline, in order of priority.
        rewrites: Rules that replace, in order of priority.
        files: The files that were read.
        parts: What each file in YAML gave.
    """

    patterns: list[PatternRule] = field(default_factory=list)
    rewrites: list[RewriteRule] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)
    parts: dict[Path, CatalogPart] = field(default_factory=dict)
    _by_name: dict[tuple[type[Rule], str], Rule] = field(default_factory=dict)

    @property
    def rules(self) -> list[PatternRule | RewriteRule]:
        """Those that outline, then those that replace."""
        return [*self.patterns, *self.rewrites]

    def namesake(self, rule: Rule) -> Rule | None:
        """Return the rule of the same kind and name, if there is one."""
        return self._by_name.get((type(rule), rule.qualified_name))

    def add(self, rule: PatternRule | RewriteRule) -> None:
        """Put *rule* at the end.

        Raises:
            CatalogError: There is another one of its name.
        """
        other = self.namesake(rule)
        check_distinct([rule] if other is None else [other, rule])
        self._by_name[type(rule), rule.qualified_name] = rule
        if isinstance(rule, PatternRule):
            self.patterns.append(rule)
        else:
            self.rewrites.append(rule)


def check_distinct(rules: Iterable[Rule]) -> None:
    """Refuse two rules with the same name.

    Raises:
        CatalogError: There are two; the message says where they were written.
    """
    first: dict[str, Rule] = {}
    for rule in rules:
        other = first.setdefault(rule.qualified_name, rule)
        if other is not rule:
            places = " and ".join(item.origin or "in Python" for item in (other, rule))
            raise CatalogError(f"two rules are named {rule.qualified_name!r}: {places}")
