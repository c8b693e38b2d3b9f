"""Which files catalogues, plans and Python functions are made of. Nothing is executed to know it.

Files count that another one names: what a catalogue includes, the modules of its ``check`` and
``function``, the catalogues of a plan; of Python, the modules that it imports from beside it or
from elsewhere on the path, and the files that texts in it name. What other installed packages are
made of does not count, nor does what code puts together while it runs.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES as EXTENSIONS
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.finding import find_catalog
from dplcli.catalog.python import FUNCTION, installed_catalogs
from dplcli.catalog.template import Expander, ScalarText, combinations
from dplcli.catalog.yaml import YamlSource
from dplcli.errors import CatalogError
from dplcli.files import exists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_YAML = (".yaml", ".yml")
_CODE = ".py"
_INIT = "__init__.py"
_BYTECODE = "__pycache__"
_PACKAGE = Path(__file__).parent.parent
_LONGEST_NAME = 255


class Said(NamedTuple):
    """What a file in YAML says.

    Attributes:
        data: All of it.
        files: What it names from its folder: files that it includes, or catalogues of a plan.
        functions: The functions in Python that its rules name.
    """

    data: Mapping[object, object]
    files: tuple[str, ...]
    functions: tuple[str, ...]


def files_named(texts: Iterable[str]) -> list[Path]:
    """Return all files that texts name, and those that these name; each once, sorted.

    Args:
        texts: Files, folders, functions in Python, and names of catalogues that installed packages
            offer. Other texts name nothing.
    """
    needs = _Needs()
    for text in texts:
        needs.add_text(text)
    return sorted(needs.files)


def said_in(path: Path) -> Said:
    """Read a catalogue or a plan.

    Raises:
        CatalogError: It is no YAML.
    """
    source = YamlSource(path)
    named = [source.data.get(key) or () for key in ("include", "catalogues")]
    files = (name for names in named if isinstance(names, list) for name in names)
    functions = dict.fromkeys(_functions_in(source))
    return Said(source.data, tuple(f for f in files if isinstance(f, str)), tuple(functions))


def _functions_in(source: YamlSource) -> Iterator[str]:
    """Yield the functions of rules, for each combination of values; what is wrong names none."""
    for section in ("patterns", "rewrites"):
        items = source.data.get(section)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            for key in ("check", "function") if isinstance(item, dict) else ():
                text = item.get(key)
                if not isinstance(text, str):
                    continue
                where = (section, number)
                with suppress(CatalogError):
                    for values in combinations(source, where, item):
                        written = ScalarText(text, source, (*where, key))
                        yield Expander(values, {}, set()).text(written).text


class _Needs:
    """Gathers files, each with what it names."""

    def __init__(self) -> None:
        self.files: set[Path] = set()

    def add_text(self, text: str) -> None:
        """Add what *text* names, if it names something."""
        path = Path(text)
        if not text or "\0" in text:
            return
        if exists(path.is_dir):
            self._add_folder(path)
        elif exists(path.is_file):
            self.add(path)
        elif function := FUNCTION.fullmatch(text):
            self.add_function(function["module"], Path.cwd())
        elif point := installed_catalogs().get(text):
            self.add_function(point.module, Path.cwd())

    def add(self, path: Path) -> None:
        """Add a file, and what it names."""
        path = absolute(path)
        if path in self.files:
            return
        self.files.add(path)
        if path.suffix in _YAML:
            with suppress(CatalogError, RecursionError):
                self._add_said(path)
        elif path.suffix == _CODE:
            self._add_code(path, [path.parent, *_path()])

    def add_function(self, module: str, folder: Path) -> None:
        """Add the module of a function; those in *folder* come first."""
        file = Path(module)
        if file.suffix == _CODE and exists(file.is_file):
            self.add(file)
            return
        path = [folder, *_path()]
        for found in _found(module, path):
            if (place := installed_place(found)) is not None:  # a package is whole
                top = place / found.relative_to(place).parts[0]
                self._add_folder(top) if top.is_dir() else None
            self._add_code(found, [*([] if place is None else [place]), *path])

    def _add_folder(self, folder: Path) -> None:
        for each in folder.rglob("*"):
            if each.is_file() and _BYTECODE not in each.parts:
                self.files.add(absolute(each))

    def _add_said(self, path: Path) -> None:
        said = said_in(path)
        for name in said.files:
            if exists((path.parent / name).is_file):
                self.add(path.parent / name)
            else:
                with suppress(CatalogError):
                    find_catalog(name)
                    continue  # dpl ships it
                self.add_text(name)
        for name in said.functions:
            module, colon, _ = name.partition(":")
            if colon:
                self.add_function(module, path.parent)

    def _add_code(self, path: Path, places: Sequence[Path]) -> None:
        """Add a module, and in turn what each imports, and the files that its texts name."""
        home = installed_place(path)
        waiting, seen = [absolute(path)], set[Path]()
        while waiting:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            self.files.add(file)
            tree = _parsed(file) if file.suffix == _CODE else None
            if tree is None:
                continue
            for name, start in _imported(tree, file):
                found = _found(name, places if start is None else [start])
                waiting += [each for each in found if _counts(each, path, home)]
            texts = [*_texts(tree)]
            beside = {Path(), file.parent}
            inside = {at / text for at in beside for text in texts if exists((at / text).is_dir)}
            for place in (at for folder in beside | inside for at in map(folder.joinpath, texts)):
                if exists(place.is_file):
                    self.add(place)


def absolute(path: Path) -> Path:
    """Return a path from the root, without ``..``."""
    return Path(os.path.abspath(path))  # noqa: PTH100  # links stay as they are named


# Modules, as the file system tells. Python itself would execute a package to find what is in it,
# and its modulefinder fails at packages without __init__.py.


def _path() -> Sequence[Path]:
    """Return where Python looks for modules, beside its own."""
    return _places(tuple(sys.path))


@cache
def _places(path: tuple[str, ...]) -> Sequence[Path]:
    standard = Path(sysconfig.get_path("stdlib"))
    places = [absolute(Path(each)) for each in dict.fromkeys(path) if each]
    return [each for each in places if each not in {standard, standard / "lib-dynload"}]


def _found(module: str, places: Iterable[Path]) -> set[Path]:
    """Return the files that importing a module may execute, whichever place comes first."""
    return {absolute(file) for place in places for file in _found_in(place, module.split("."))}


def _found_in(place: Path, parts: Sequence[str]) -> Iterator[Path]:
    for part in parts:
        if exists((place / part).is_dir):
            place /= part
            if exists((place / _INIT).is_file):
                yield place / _INIT
            continue
        if exists((place / f"{part}{_CODE}").is_file):
            yield place / f"{part}{_CODE}"
        else:
            yield from (each for end in EXTENSIONS if (each := place / f"{part}{end}").exists())
        return


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, file: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield the modules that code may import, each with the folder that it is relative to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else None
            if node.module:
                yield node.module, start
            before = f"{node.module}." if node.module else ""
            yield from ((f"{before}{alias.name}", start) for alias in node.names)
        elif isinstance(node, ast.Call):
            match node:
                case ast.Call(
                    func=ast.Name(id=called) | ast.Attribute(attr=called),
                    args=[ast.Constant(value=str(name)), *_],
                ) if called in {"import_module", "__import__"}:
                    yield name.lstrip("."), file.parent if name.startswith(".") else None


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts in code that may name files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.strip("./\\") and len(text) <= _LONGEST_NAME and text.isprintable():
                yield text


def _counts(file: Path, root: Path, home: Path | None) -> bool:
    """Tell whether a module that *root* needs counts: not those of other installed packages.

    Args:
        file: The module.
        root: What needs it.
        home: Where that is installed; None if it is not.
    """
    place = installed_place(file)
    if place is None or home is None:
        return place is None and not file.is_relative_to(_PACKAGE)
    owners = _owners(file, place)
    return not owners or bool(owners & _owners(root, home))


def _owners(file: Path, place: Path) -> set[str]:
    """Return the distributions that an installed module belongs to; none if nobody knows."""
    top = file.relative_to(place).parts[0].partition(".")[0]
    return {*_distributions(tuple(sys.path)).get(top, ())}


@cache
def _distributions(_path: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def installed_place(file: Path) -> Path | None:
    """Return the folder that packages are installed in and that holds *file*; None if none does."""
    inside = (each for each in _path() if file.is_relative_to(each))
    return next((each for each in inside if _is_installed(each)), None)


@cache
def _is_installed(place: Path) -> bool:
    return next(place.glob("*.dist-info"), None) is not None
