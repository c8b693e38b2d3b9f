"""Catalogues: files of rules, in YAML or in Python."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import ValidationError

from dplcli.dpl.catalog_entries import labelled, written_out
from dplcli.dpl.catalog_examples import read_examples
from dplcli.dpl.catalog_files import exists, find_catalog
from dplcli.dpl.catalog_rules import RuleMaker
from dplcli.dpl.catalog_schema import (
    CatalogFile,
    ExampleItem,
    PatternEntry,
    PatternItem,
    RewriteEntry,
    RewriteItem,
)
from dplcli.dpl.code import installed_catalogs, load_entry_point, load_python_catalog
from dplcli.dpl.expander import Fragment
from dplcli.dpl.rule import PatternRule, RewriteRule
from dplcli.dpl.source import Source
from dplcli.dpl.template_text import Written
from dplcli.dpl.validation import explain_invalid
from dplcli.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from dplcli.dpl.catalog_entries import Entry
    from dplcli.dpl.catalog_schema import FragmentEntry
    from dplcli.dpl.rule import Rule
    from dplcli.ir import SchemaLibrary

    Where: TypeAlias = tuple[str | int, ...]
    Reader: TypeAlias = Callable[[Path], Sequence[RewriteRule]]
    Made: TypeAlias = tuple[tuple[Entry, PatternRule | RewriteRule], ...]

E = TypeVar("E", PatternEntry, RewriteEntry)

_PYTHON = ".py"
_MOST_KEPT = 32
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
    with_examples: bool = False,
) -> Catalog:
    """Read the rules of several catalogues, in the order given.

    Args:
        names: Paths, names of shipped catalogues, or of those that installed packages offer; one
            given twice counts once. A path that ends in ``.py`` is executed.
        schemas: The standard operators.
        allow_code: Whether YAML may name Python functions to import (``check``, ``function``).
        readers: By suffix, what else reads catalogues: files that are neither YAML nor Python.
        with_examples: Whether to read the files of examples beside the catalogues, too.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name.
    """
    maker = RuleMaker(schemas, allow_code=allow_code)
    reader = _Reader(maker, readers, with_examples=with_examples)
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


class _Kept(threading.local):
    """The rules made of files read before, by all that they depend on; the latest come last.

    A program that goes through many models reads the same catalogues for each. Rules do not
    change, but the conditions in them have a place to work in: each thread has rules of its own.
    """

    def __init__(self) -> None:
        self.rules: dict[tuple[object, ...], Made] = {}


_KEPT = _Kept()


class _Reader:
    """Reads catalogues, each once, and gathers their rules in order."""

    def __init__(
        self, maker: RuleMaker, readers: Mapping[str, Reader], *, with_examples: bool
    ) -> None:
        self.maker = maker
        self.readers = readers
        self.with_examples = with_examples
        self.catalog = Catalog()
        self.offered: set[str] = set()
        self.fragments: dict[Path, dict[str, Fragment]] = {}
        self.texts: dict[Path, tuple[str, ...]] = {}

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
        self._read_yaml(path, root)

    def _read_yaml(self, path: Path, root: Path) -> None:
        source = Source(path)
        data = source.plain()
        file = _validated(source, data)
        if file.target is None and (file.patterns or not (file.rewrites or file.fragments)):
            raise source.error("the key 'target' is missing", ())
        fragments = self.fragments[path.resolve()] = {}
        texts = [source.label, source.text]
        for index, name in enumerate(file.include):
            included = self._include(source, path, root, name, index)
            fragments |= self.fragments.get(included, {})
            texts += self.texts.get(included, ())
        self.texts[path.resolve()] = tuple(texts)
        _add_fragments(source, file.fragments, fragments)
        made = self._made(_Writer(source, data, fragments), file, tuple(texts))
        names = {rule.name for _, rule in made}
        examples = read_examples(path, names) if self.with_examples else {}
        for place, rule in made:
            more = examples.get(rule.name, ())
            self._add(place, replace(rule, examples=rule.examples + more) if more else rule)

    def _made(self, writer: _Writer, file: CatalogFile, texts: tuple[str, ...]) -> Made:
        """Make the rules of a file, or find them made of the same *texts* before.

        What imports code is made anew: the code may have changed.
        """
        if self.maker.allow_code:
            return tuple(self._rules(writer, file))
        key = (self.maker.schemas, *texts)
        made = _KEPT.rules.pop(key, None) or tuple(self._rules(writer, file))
        if len(_KEPT.rules) >= _MOST_KEPT:
            del _KEPT.rules[next(iter(_KEPT.rules))]
        _KEPT.rules[key] = made
        return made

    def _rules(
        self, writer: _Writer, file: CatalogFile
    ) -> Iterator[tuple[Entry, PatternRule | RewriteRule]]:
        """Make the rules of a file."""
        for index, item in enumerate(file.patterns):
            for place, entry in writer.entries(("patterns", index), item, PatternEntry):
                target, constants = file.target or "", file.constants
                yield place, self.maker.pattern_rule(place, entry, target, constants)
        for index, other in enumerate(file.rewrites):
            for place, made in writer.entries(("rewrites", index), other, RewriteEntry):
                yield place, self.maker.rewrite_rule(place, made)

    def _include(self, source: Source, path: Path, root: Path, name: str, index: int) -> Path:
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
        return included.resolve()

    def _add(self, place: Entry, rule: PatternRule | RewriteRule) -> None:
        other = self.catalog.namesake(rule)
        if other is not None:
            message = f"the rule {rule.qualified_name!r} is defined already, at {other.origin}"
            raise labelled(place.error(message, ("name",)), place.values)
        self.catalog.add(rule)


def _validated(source: Source, data: object) -> CatalogFile:
    try:
        return CatalogFile.model_validate(data)
    except ValidationError as error:
        raise explain_invalid(source, error, _keys_at) from error


def _keys_at(where: Where) -> Iterable[str]:
    """Return the keys of the mapping that the last key of *where* stands in."""
    if len(where) == 1:
        return CatalogFile.model_fields
    if "examples" in where:
        return ExampleItem.model_fields
    entry = RewriteItem if where[0] == "rewrites" else PatternItem
    return [field.alias or name for name, field in entry.model_fields.items()]


def _add_fragments(
    source: Source, own: Mapping[str, str | FragmentEntry], fragments: dict[str, Fragment]
) -> None:
    """Put the fragments of a file beside those of the files it includes."""
    for name, entry in own.items():
        where: Where = ("fragments", name)
        if name in fragments:
            other = fragments[name].pattern.source.label
            raise source.error(f"the fragment {name!r} is defined already, in {other}", where)
        if isinstance(entry, str):
            fragments[name] = Fragment(name, Written(entry, source, where))
            continue
        conditions = (
            Written(text, source, (*where, "where", number))
            for number, text in enumerate(entry.where)
        )
        pattern = Written(entry.pattern, source, (*where, "pattern"))
        fragments[name] = Fragment(name, pattern, tuple(conditions))


class _Writer:
    """Writes the items of a file out."""

    def __init__(
        self,
        source: Source,
        data: Any,  # noqa: ANN401  # YAML holds anything
        fragments: Mapping[str, Fragment],
    ) -> None:
        self.source = source
        self.data = data
        self.fragments = fragments

    def entries(self, at: Where, item: E, kind: type[E]) -> Iterator[tuple[Entry, E]]:
        """Yield the entries that *item* stands for, each with the places of what it says."""
        for entry in written_out(self.source, at, self.data[at[0]][at[1]], self.fragments):
            if not entry.texts:
                yield entry, item
                continue
            try:
                yield entry, kind.model_validate(entry.data)
            except ValidationError as error:
                wrong = explain_invalid(entry, error, lambda _: ())
                raise labelled(wrong, entry.values) from error
