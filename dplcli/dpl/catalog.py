"""Catalogues: files of rules, in YAML or in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from dplcli.dpl.catalog_files import exists, find_catalog
from dplcli.dpl.catalog_schema import CatalogFile, ExampleEntry, PatternEntry, RewriteEntry
from dplcli.dpl.code import (
    find_function,
    installed_catalogs,
    load_entry_point,
    load_python_catalog,
)
from dplcli.dpl.conditions import Condition
from dplcli.dpl.lost_attributes import check_attributes
from dplcli.dpl.nodewise import is_nodewise
from dplcli.dpl.replacement import Replacement, parse_replacement
from dplcli.dpl.rule import Example, PatternRule, RewriteRule
from dplcli.dpl.scoping import attribute_names, bound_names
from dplcli.dpl.source import Source
from dplcli.dpl.text import character_column, read_pattern
from dplcli.dpl.transforms import find_transform
from dplcli.dpl.validation import explain_invalid
from dplcli.errors import CatalogError, PatternSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from dplcli.dpl.draft import RewriteFunction
    from dplcli.dpl.pattern import DFPattern, Place
    from dplcli.dpl.rule import Check, Locate, Opsets, Rule
    from dplcli.ir import SchemaLibrary

    Where: TypeAlias = tuple[str | int, ...]
    Reader: TypeAlias = Callable[[Path], Sequence[RewriteRule]]

_PYTHON = ".py"
NO_READERS: Mapping[str, Reader] = MappingProxyType({})


@dataclass
class Catalog:
    """The rules of one or more catalogues.

    Attributes:
        patterns: Rules that outline, in order of priority.
        rewrites: Rules that replace, in order of priority.
        files: The files that were read.
    """

    patterns: list[PatternRule] = field(default_factory=list)
    rewrites: list[RewriteRule] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)
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


def read_catalogs(
    names: Iterable[str],
    schemas: SchemaLibrary,
    *,
    allow_code: bool = False,
    readers: Mapping[str, Reader] = NO_READERS,
) -> Catalog:
    """Read the rules of several catalogues, in the order given.

    Args:
        names: Paths, names of shipped catalogues, or of those that installed packages offer; one
            given twice counts once. A path that ends in ``.py`` is executed.
        schemas: The standard operators.
        allow_code: Whether YAML may name Python functions to import (``check``, ``function``).
        readers: By suffix, what else reads catalogues: files that are neither YAML nor Python.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name.
    """
    reader = _Reader(schemas, allow_code=allow_code, readers=readers)
    for name in names:
        reader.read_named(name)
    return reader.catalog


def load_catalogs(names: Iterable[str], schemas: SchemaLibrary) -> list[PatternRule]:
    """Read the rules that outline of several catalogues; see :func:`read_catalogs`."""
    return read_catalogs(names, schemas).patterns


def load_catalog(path: Path, schemas: SchemaLibrary) -> list[PatternRule]:
    """Read the rules that outline of one catalogue file, after those of the files it includes.

    Raises:
        CatalogError: With file, line and column of what is wrong.
    """
    return read_catalogs([str(path)], schemas).patterns


def check_distinct(rules: Iterable[Rule]) -> None:
    """Refuse two rules of one name.

    Raises:
        CatalogError: Names them, and where they were written.
    """
    first: dict[str, Rule] = {}
    for rule in rules:
        other = first.setdefault(rule.qualified_name, rule)
        if other is not rule:
            places = " and ".join(item.origin or "in Python" for item in (other, rule))
            raise CatalogError(f"two rules are named {rule.qualified_name!r}: {places}")


class _Reader:
    """Reads catalogues, each once, and gathers their rules in order."""

    def __init__(
        self, schemas: SchemaLibrary, *, allow_code: bool, readers: Mapping[str, Reader]
    ) -> None:
        self.schemas = schemas
        self.readers = readers
        self.allow_code = allow_code
        self.catalog = Catalog()
        self.offered: set[str] = set()

    def read_named(self, name: str) -> None:
        try:
            path = find_catalog(name)
        except CatalogError:
            point = installed_catalogs().get(name)
            if point is None:
                raise
            self._read_offer(point)
            return
        self.read(path, path.parent)

    def _read_offer(self, point: EntryPoint) -> None:
        """Read what an installed package offers."""
        if point.name in self.offered:
            return
        self.offered.add(point.name)
        found = load_entry_point(point)
        if isinstance(found, Path):
            self.read(found, found.parent)
            return
        for rule in found:
            self.catalog.add(rule)

    def read(self, path: Path, root: Path) -> None:
        """Read one file; what it includes must lie below *root*."""
        if path.resolve() in self.catalog.files:
            return
        self.catalog.files.add(path.resolve())
        if path.suffix == _PYTHON:
            for rule in load_python_catalog(path):
                self.catalog.add(rule)
            return
        if path.suffix in self.readers:
            for made in self.readers[path.suffix](path):
                self.catalog.add(made)
            return
        source = Source(path)
        file = _validated(source)
        if file.target is None and (file.patterns or not file.rewrites):
            raise source.error("the key 'target' is missing", ())
        for index, name in enumerate(file.include):
            self._include(source, path, root, name, index)
        for index, entry in enumerate(file.patterns):
            self._add(source, "patterns", index, self._pattern_rule(source, file, index, entry))
        for index, item in enumerate(file.rewrites):
            self._add(source, "rewrites", index, self._rewrite_rule(source, index, item))

    def _include(self, source: Source, path: Path, root: Path, name: str, index: int) -> None:
        where = ("include", index)
        included = path.parent / name
        if included.suffix == _PYTHON:
            hint = "name it on the command line instead"
            raise source.error(f"{name!r} is Python, which YAML cannot run", where, hint)
        try:
            is_below = included.resolve().is_relative_to(root.resolve())
        except (OSError, RuntimeError, ValueError):
            is_below = False
        if not is_below:
            hint = f"what a catalogue includes lies in its own folder, {root.resolve().name}"
            raise source.error(f"{name!r} is outside the catalogue's folder", where, hint)
        if not exists(included.is_file):
            raise source.error(f"there is no file {name!r} to include", where)
        self.read(included, root)

    def _add(self, source: Source, kind: str, index: int, rule: PatternRule | RewriteRule) -> None:
        other = self.catalog.namesake(rule)
        if other is not None:
            raise source.error(
                f"the rule {rule.qualified_name!r} is defined already, at {other.origin}",
                (kind, index, "name"),
            )
        self.catalog.add(rule)

    def _pattern_rule(
        self, source: Source, file: CatalogFile, index: int, entry: PatternEntry
    ) -> PatternRule:
        at = ("patterns", index)
        pattern, unused = self._pattern(source, at, entry)
        assert file.target is not None  # noqa: S101  # see read
        return PatternRule(
            target=file.target,
            name=entry.name,
            pattern=pattern,
            where=_conditions(source, at, entry, pattern),
            constants=entry.constants or file.constants,
            doc=entry.doc,
            metadata=entry.attrs,
            origin=f"{source.label}:{source.line((*at, 'name'))}",
            check=self._check(source, at, entry),
            escape=entry.escape,
            order=entry.order,
            examples=_examples(source, at, entry.examples),
            locate=_locator(source, (*at, "pattern"), entry.pattern),
            opsets=_opsets(entry),
            unused=unused,
        )

    def _rewrite_rule(self, source: Source, index: int, entry: RewriteEntry) -> RewriteRule:
        at = ("rewrites", index)
        pattern, unused = self._pattern(source, at, entry)
        replacement = self._becoming(source, at, entry, pattern)
        conditions = _conditions(source, at, entry, pattern)
        try:
            return RewriteRule(
                name=entry.name,
                pattern=pattern,
                replacement=replacement,
                where=conditions,
                doc=entry.doc,
                origin=f"{source.label}:{source.line((*at, 'name'))}",
                check=self._check(source, at, entry),
                examples=_examples(source, at, entry.examples),
                locate=_locator(source, (*at, "pattern"), entry.pattern),
                opsets=_opsets(entry),
                unused=unused,
                once=entry.once,
            )
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "replacement"), entry.name) from error

    def _becoming(
        self, source: Source, at: Where, entry: RewriteEntry, pattern: DFPattern
    ) -> Replacement | RewriteFunction:
        """Read the replacement, or find the function."""
        if entry.function is not None:
            return self._function(source, at, entry, entry.function)
        replacement = self._replacement(source, at, entry, pattern)
        try:
            check_attributes(pattern, replacement.carried, self.schemas)
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "pattern"), entry.name) from error
        return replacement

    def _function(
        self, source: Source, at: Where, entry: RewriteEntry, name: str
    ) -> RewriteFunction:
        where = (*at, "function")
        if ":" in name:
            return self._import(source, where, entry.name, "function", name)
        try:
            function = find_transform(name)
        except CatalogError as error:
            message = f"rule {entry.name!r}: {error.message}"
            raise source.error(message, where, error.hint) from error
        if "pattern" not in entry.model_fields_set and not is_nodewise(function):
            raise source.error(f"rule {entry.name!r}: the key 'pattern' is missing", where)
        return function

    def _pattern(
        self, source: Source, at: Where, entry: PatternEntry | RewriteEntry
    ) -> tuple[DFPattern, tuple[str, ...]]:
        try:
            return read_pattern(entry.pattern, self.schemas)
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "pattern"), entry.name) from error

    def _replacement(
        self, source: Source, at: Where, entry: RewriteEntry, pattern: DFPattern
    ) -> Replacement:
        names = bound_names(pattern), attribute_names(pattern)
        try:
            return parse_replacement(entry.replacement or "", *names, self.schemas)
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "replacement"), entry.name) from error

    def _check(self, source: Source, at: Where, entry: PatternEntry | RewriteEntry) -> Check | None:
        if entry.check is None:
            return None
        return self._import(source, (*at, "check"), entry.name, "check", entry.check)

    def _import(
        self, source: Source, where: Where, rule: str, role: str, reference: str
    ) -> Callable[..., Any]:
        if not self.allow_code:
            raise source.error(
                f"rule {rule!r}: the {role} {reference!r} is Python code, which YAML does "
                "not run by itself",
                where,
                "pass --allow-code if you trust it",
            )
        try:
            return find_function(reference, source.folder, role)
        except CatalogError as error:
            raise source.error(f"rule {rule!r}: {error.message}", where) from error


def _conditions(
    source: Source, at: Where, entry: PatternEntry | RewriteEntry, pattern: DFPattern
) -> tuple[Condition, ...]:
    names = bound_names(pattern)
    conditions = []
    for number, text in enumerate(entry.where):
        try:
            condition = Condition(text)
            condition.check_names(names)
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "where", number), entry.name) from error
        conditions.append(condition)
    return tuple(conditions)


def _examples(source: Source, at: Where, entries: Iterable[ExampleEntry]) -> tuple[Example, ...]:
    return tuple(
        Example(
            before=entry.before,
            after=entry.after,
            origin=f"{source.label}:{source.line((*at, 'examples', number, 'before'))}",
        )
        for number, entry in enumerate(entries)
    )


def _locator(source: Source, where: Where, text: str) -> Locate:
    def locate(place: Place) -> str:
        column = character_column(text, place.line, place.column)
        return source.place_in_text(place.line, column, where)

    return locate


def _opsets(entry: PatternEntry | RewriteEntry) -> Opsets:
    if entry.opsets is None:
        return (None, None)
    return (entry.opsets[0], entry.opsets[1] if len(entry.opsets) > 1 else None)


def _validated(source: Source) -> CatalogFile:
    try:
        return CatalogFile.model_validate(source.plain())
    except ValidationError as error:
        raise explain_invalid(source, error, _keys_at) from error


def _keys_at(where: Where) -> Iterable[str]:
    """Return the keys of the mapping that the last key of *where* stands in."""
    if len(where) == 1:
        return CatalogFile.model_fields
    if "examples" in where:
        return ExampleEntry.model_fields
    entry = RewriteEntry if where[0] == "rewrites" else PatternEntry
    return entry.model_fields
