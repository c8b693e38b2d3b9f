"""Rules of catalogues as they were made before, from the user's cache folder.

To read a catalogue costs more than all else that is done with a small model: YAML, its schema, and
the text of each rule. So the rules of a file, and of the files that it
includes, are kept under a hash. It covers the texts, dpl's own code, and the libraries below it.

They are kept as a pickle, and a pickle can run code. So dpl reads a file only if it belongs to this
user and nobody else could have written it or put it there. Only POSIX systems can tell; on others
nothing is kept.
"""

from __future__ import annotations

import os
import pickle
import stat
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from dplcli.catalog.finding import Catalog, find_catalog
from dplcli.catalog.python import check_rules
from dplcli.errors import CatalogError
from dplcli.files import cache_folder, exists, resolved, temporary_file
from dplcli.language.replacement import RewriteRule
from dplcli.version import __version__, program_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.catalog.catalog import Reader
    from dplcli.catalog.finding import CatalogPart
    from dplcli.ir import SchemaLibrary
    from dplcli.language.pattern import TextPosition
    from dplcli.language.rule import Locate, PatternRule

_SUFFIXES = (".yaml", ".yml")
_END = ".rules"
_DIGEST = 32
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_FILES = 64
_PRIVATE = 0o700


@dataclass(frozen=True)
class _Compiled:
    """What a catalogue gave: the files that were read for it, in order, and the rules of each.

    Attributes:
        digests: The hash of the text of each file.
        rules: Its rules.
    """

    digests: Mapping[Path, str]
    rules: Mapping[Path, tuple[PatternRule | RewriteRule, ...]]


class _Kept(threading.local):
    """What this thread read before, by its name in the folder: rules have working memory."""

    def __init__(self) -> None:
        self.found: dict[str, _Compiled] = {}


KEPT = _Kept()


def read_compiled(
    names: Sequence[str | PatternRule | RewriteRule],
    schemas: SchemaLibrary,
    *,
    allow_code: bool = False,
    readers: Mapping[str, Reader],
) -> Catalog:
    """Read the rules of several catalogues, as :func:`dplcli.catalog.catalog.read_catalogs` does.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name.
    """
    folder = None if allow_code else _folder()
    if folder is not None:
        with suppress(CatalogError):  # the readers say it better
            catalog = Catalog()
            if all(_add(catalog, name, folder, schemas) for name in names):
                return catalog
    from dplcli.catalog.catalog import read_catalogs  # noqa: PLC0415  # loads pydantic and YAML

    catalog = read_catalogs(names, schemas, allow_code=allow_code, readers=readers)
    if folder is not None:
        for path in filter(None, map(_path_of, names)):
            with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
                _keep(path, catalog.parts, type(schemas), folder)
    return catalog


def _path_of(name: str | PatternRule | RewriteRule) -> Path | None:
    """Return the file of a catalogue in YAML; None for what is none."""
    if not isinstance(name, str):
        return None
    try:
        path = find_catalog(name)
    except CatalogError:
        return None
    return resolved(path) if path.suffix in _SUFFIXES else None


def _add(
    catalog: Catalog, name: str | PatternRule | RewriteRule, folder: Path, schemas: SchemaLibrary
) -> bool:
    """Add the rules of *name*; tell whether they were to be had.

    Raises:
        CatalogError: Two rules have one name, or one can never match.
    """
    if not isinstance(name, str):
        if catalog.namesake(name) is not name:
            check_rules([name], schemas)
            catalog.add(name)
        return True
    path = _path_of(name)
    if path is None:
        return False
    compiled = _found(path, folder)
    if compiled is None:
        return False
    for file, rules in compiled.rules.items():
        if file not in catalog.files:
            catalog.files.add(file)
            for rule in rules:
                catalog.add(rule)
    return True


# The folder and its files.


def _folder() -> Path | None:
    """Return the folder, which need not exist; None if nothing is to be kept."""
    return cache_folder() if hasattr(os, "geteuid") else None


@cache
def code() -> bytes:
    """Return a hash of what decides what a catalogue gives: dpl, and what it runs on."""
    import numpy as np  # noqa: PLC0415  # is loaded wherever a model is

    onnx = getattr(sys.modules.get("onnx"), "__version__", "")
    digest = sha256(f"{__version__} {sys.version} {np.__version__} {onnx}".encode())
    for file in program_files().values():
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.digest()


def _file_for(path: Path, folder: Path) -> Path:
    return folder / (sha256(code() + os.fsencode(path)).hexdigest() + _END)


def _found(path: Path, folder: Path) -> _Compiled | None:
    """Return what *path* gave before, if it would give the same now."""
    file = _file_for(path, folder)
    compiled = KEPT.found.get(file.name) or _loaded(file)
    if compiled is None or not all(_digest(f) == digest for f, digest in compiled.digests.items()):
        return None
    KEPT.found[file.name] = compiled
    return compiled


def _digest(path: Path) -> str:
    try:
        return _digest_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _loaded(file: Path) -> _Compiled | None:
    """Return what a file holds; None if it is not ours, not whole, or not there."""
    try:
        if not _is_ours(file.parent.lstat(), stat.S_ISDIR):
            return None
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123  # a descriptor
            if not _is_ours(os.fstat(descriptor), stat.S_ISREG):
                return None
            content = stream.read()
    except OSError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if sha256(data).digest() != digest:
        return None
    try:
        compiled = pickle.loads(data)  # noqa: S301  # this user's own
    except Exception:  # noqa: BLE001  # whatever it is, the catalogue is read instead
        return None
    return compiled if isinstance(compiled, _Compiled) else None


def _is_ours(status: os.stat_result, is_kind: object) -> bool:
    """Tell whether only this user could have written what has this *status*."""
    mode = status.st_mode
    right = callable(is_kind) and is_kind(mode)
    return bool(right) and status.st_uid == os.geteuid() and not mode & _OTHERS_MAY_WRITE


def _keep(
    path: Path, parts: Mapping[Path, CatalogPart], library: type[SchemaLibrary], folder: Path
) -> None:
    """Keep what *path* gave.

    Raises:
        OSError: It cannot be written.
    """
    read = list(_in_order(path, parts))
    compiled = _Compiled(
        {file: _digest_of(parts[file].text) for file in read},
        {
            file: tuple(
                _asked(rule, _Locator(path, type(rule), rule.qualified_name, library))
                for rule in parts[file].rules
            )
            for file in read
        },
    )
    data = pickle.dumps(compiled, pickle.HIGHEST_PROTOCOL)
    if not exists(folder.is_dir):
        above = next(parent for parent in folder.parents if parent.is_dir())
        if above.stat().st_uid != os.geteuid():
            return  # as for root in somebody's home
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(_PRIVATE)
    if not _is_ours(folder.lstat(), stat.S_ISDIR):
        return
    with temporary_file(folder) as draft:  # which nobody else may read
        draft.write_bytes(sha256(data).digest() + data)
        draft.replace(_file_for(path, folder))
    files = sorted(folder.glob(f"*{_END}"), key=lambda item: item.stat().st_mtime)
    for old in files[:-_MOST_FILES]:
        old.unlink(missing_ok=True)


def _asked(rule: PatternRule | RewriteRule, locate: Locate) -> PatternRule | RewriteRule:
    """Return *rule* with what each run asks of all rules, so that only few are compiled again."""
    kept = replace(rule, locate=locate)
    _ = kept.demand  # it remembers the answers
    if isinstance(kept, RewriteRule):
        _ = kept.reach, kept.counts_uses, kept.inner_operators
    del vars(kept)["matcher"]
    return kept


def _in_order(path: Path, parts: Mapping[Path, CatalogPart]) -> Iterator[Path]:
    """Yield the files that were read for *path*, what is included first."""
    seen: set[Path] = set()
    pending: list[tuple[Path, Iterable[Path]]] = [(path, iter(parts[path].includes))]
    while pending:
        file, rest = pending[-1]
        inner = next(iter(rest), None)
        if inner is None:
            pending.pop()
            yield file
        elif inner not in seen:
            seen.add(inner)
            pending.append((inner, iter(parts[inner].includes)))


@dataclass(frozen=True)
class _Locator:
    """Finds places in the text of a rule by reading its catalogue; few ask for any."""

    path: Path
    kind: type
    name: str
    library: type[SchemaLibrary]

    def __call__(self, place: TextPosition) -> str:
        rule = _read_again(self.path, self.library).get((self.kind, self.name))
        if rule is not None and rule.locate is not None:
            return rule.locate(place)
        return f"line {place.line}, column {place.column + 1}"


@cache
def _read_again(
    path: Path, library: type[SchemaLibrary]
) -> dict[tuple[type, str], PatternRule | RewriteRule]:
    from dplcli.catalog.catalog import read_catalogs  # noqa: PLC0415  # loads pydantic and YAML

    rules = read_catalogs([str(path)], library()).rules
    return {(type(rule), rule.qualified_name): rule for rule in rules if rule.locate is not None}
