"""Catalogues: YAML files of rules, found by path or by the name they are shipped under."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from dplcli.dpl.conditions import Condition, bound_names
from dplcli.dpl.rule import ConstantsPolicy, PatternRule
from dplcli.dpl.text import parse_pattern
from dplcli.errors import CatalogError, PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import SchemaLibrary

_SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).parent.parent
SHIPPED_FOLDERS = (_PACKAGE / "patterns", _PACKAGE.parent / "patterns")
"""Where shipped catalogues lie: in an installed package, and in a source checkout."""

_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Domain = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PatternEntry(_Strict):
    """One item of ``patterns``."""

    name: _Identifier
    pattern: str
    doc: str = ""
    where: list[str] = []
    constants: ConstantsPolicy | None = None
    escape: Literal["refuse"] = "refuse"
    order: Literal["outermost"] = "outermost"
    attrs: dict[str, str] = {}


class CatalogFile(_Strict):
    """A whole catalogue file, as written."""

    dpl: Literal[1]
    target: _Domain
    doc: str = ""
    constants: ConstantsPolicy = "auto"
    include: list[str] = []
    patterns: list[PatternEntry] = []


def shipped_catalogs() -> list[str]:
    """Name the catalogues that come with dpl."""
    folder = _shipped_folder()
    return sorted(path.stem for path in folder.glob("*.yaml")) if folder else []


def _shipped_folder() -> Path | None:
    return next((folder for folder in SHIPPED_FOLDERS if folder.is_dir()), None)


def find_catalog(name: str) -> Path:
    """Return the file that *name* means: a path, or the name of a shipped catalogue.

    Raises:
        CatalogError: There is no such file.
    """
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        raise CatalogError(f"{name}: is a directory, not a catalogue")
    folder = _shipped_folder()
    if folder is not None and path.parent == Path():
        shipped = folder / (name if path.suffix in _SUFFIXES else f"{name}.yaml")
        if shipped.is_file():
            return shipped
    known = shipped_catalogs()
    hint = did_you_mean(path.stem, known)
    raise CatalogError(
        f"{name}: no such catalogue, neither a file nor shipped with dpl",
        hint=hint or f"shipped catalogues: {', '.join(known)}",
    )


def load_catalogs(names: Iterable[str], schemas: SchemaLibrary) -> list[PatternRule]:
    """Read the rules of several catalogues, in the order given.

    Args:
        names: Paths, or names of shipped catalogues; one given twice counts once.
        schemas: The standard operators.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name.
    """
    seen: set[Path] = set()
    rules = [
        rule for name in names for rule in load_catalog(find_catalog(name), schemas, seen=seen)
    ]
    first: dict[str, PatternRule] = {}
    for rule in rules:
        other = first.setdefault(rule.qualified_name, rule)
        if other is not rule:
            raise CatalogError(
                f"{rule.origin}: the rule {rule.qualified_name!r} is already defined "
                f"at {other.origin}"
            )
    return rules


def load_catalog(
    path: Path, schemas: SchemaLibrary, *, seen: set[Path] | None = None
) -> list[PatternRule]:
    """Read the rules of one catalogue file, after those of the files it includes.

    Args:
        path: The file.
        schemas: The standard operators.
        seen: Files read already, which are skipped; the files read here are added.

    Raises:
        CatalogError: With file, line and column of what is wrong.
    """
    seen = set() if seen is None else seen
    if path.resolve() in seen:
        return []
    seen.add(path.resolve())
    source = _Source(path)
    catalog = source.validated()
    rules = []
    for index, name in enumerate(catalog.include):
        included = path.parent / name
        if not included.is_file():
            raise source.error(f"there is no file {name!r} to include", ("include", index))
        rules += load_catalog(included, schemas, seen=seen)
    for index, entry in enumerate(catalog.patterns):
        rules.append(_rule(source, catalog, index, entry, schemas))
    return rules


def _rule(
    source: _Source, catalog: CatalogFile, index: int, entry: PatternEntry, schemas: SchemaLibrary
) -> PatternRule:
    at = ("patterns", index)
    try:
        pattern = parse_pattern(entry.pattern, schemas)
    except PatternSyntaxError as error:
        raise source.error_in_text(error, (*at, "pattern"), entry.name) from error
    names = bound_names(pattern)
    conditions = []
    for number, text in enumerate(entry.where):
        try:
            condition = Condition(text)
            condition.check_names(names)
        except PatternSyntaxError as error:
            raise source.error_in_text(error, (*at, "where", number), entry.name) from error
        conditions.append(condition)
    return PatternRule(
        target=catalog.target,
        name=entry.name,
        pattern=pattern,
        where=tuple(conditions),
        constants=entry.constants or catalog.constants,
        doc=entry.doc,
        metadata=entry.attrs,
        origin=f"{source.label}:{source.line((*at, 'name'))}",
    )


class _Source:
    """A catalogue's text, its YAML with positions, and messages that point into it."""

    def __init__(self, path: Path) -> None:
        self.label = path.name
        try:
            self.text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CatalogError(f"{path}: is not UTF-8 text") from error
        except OSError as error:
            raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
        self.lines = self.text.splitlines()
        try:
            self.data = YAML(typ="rt").load(self.text)
        except MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line, mark.column) if mark else (0, 0)
            problem = error.problem or "malformed"
            raise self._error(f"not valid YAML: {problem}", line, column) from error
        except YAMLError as error:
            raise CatalogError(f"{self.label}: not valid YAML: {error}") from error
        except (ValueError, RecursionError) as error:
            raise CatalogError(f"{self.label}: not valid YAML: {error}") from error
        if not isinstance(self.data, dict):
            raise CatalogError(
                f"{self.label}: is not a catalogue", hint="it starts with a line: dpl: 1"
            )

    def validated(self) -> CatalogFile:
        try:
            return CatalogFile.model_validate(_plain(self.data))
        except ValidationError as error:
            first = error.errors()[0]
            path = tuple(first["loc"])
            line, column = self._position(path)
            raise self._error(_explain(first), line, column, _hint(first)) from error

    def line(self, path: Sequence[str | int]) -> int:
        """Return the 1-based line at which the item at *path* stands."""
        return self._position(path)[0] + 1

    def error_in_text(
        self, error: PatternSyntaxError, path: Sequence[str | int], rule: str
    ) -> CatalogError:
        """Point into the pattern or condition at *path*, for what is wrong inside it."""
        line, column = self._text_start(path)
        if error.line > 1:
            column = 0
            text_line = line + error.line - 1
            first = self.lines[line] if line < len(self.lines) else ""
            column = len(first) - len(first.lstrip())
        else:
            text_line = line
        return self._error(
            f"rule {rule!r}: {error.message}", text_line, column + error.column, error.hint
        )

    def error(self, message: str, path: Sequence[str | int]) -> CatalogError:
        """Point at the item at *path*."""
        return self._error(message, *self._position(path))

    def _text_start(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return the 0-based line and column at which the text of a scalar begins."""
        line, column = self._position(path, value=True)
        shown = self.lines[line][column:] if line < len(self.lines) else ""
        if shown[:1] in {"|", ">"}:
            line += 1
            while line < len(self.lines) and not self.lines[line].strip():
                line += 1
            first = self.lines[line] if line < len(self.lines) else ""
            return line, len(first) - len(first.lstrip())
        return line, column + (shown[:1] in {"'", '"'})

    def _position(self, path: Sequence[str | int], *, value: bool = False) -> tuple[int, int]:
        """Return where the item at *path* stands, or the nearest thing round it that exists."""
        data: Any = self.data
        line, column = 0, 0
        for depth, key in enumerate(path):
            if not _holds(data, key):
                break
            line, column = _mark(data, key, value=value and depth == len(path) - 1)
            data = data[key]
        return line, column

    def _error(self, message: str, line: int, column: int, hint: str | None = None) -> CatalogError:
        where = f"{self.label}:{line + 1}:{column + 1}"
        excerpt = ""
        if line < len(self.lines):
            shown = self.lines[line]
            excerpt = f"\n    {shown}\n    {' ' * min(column, len(shown))}^"
        return CatalogError(f"{where}: {message}{excerpt}", hint=hint)


def _holds(data: Any, key: str | int) -> bool:  # noqa: ANN401  # YAML holds anything
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


def _mark(data: Any, key: str | int, *, value: bool) -> tuple[int, int]:  # noqa: ANN401  # YAML
    """Return the 0-based line and column of an item, as the YAML reader noted them."""
    position = data.lc
    if not isinstance(data, dict):
        line, column = position.item(key)
    else:
        line, column = position.value(key) if value else position.key(key)
    return line, column


def _plain(data: Any) -> Any:  # noqa: ANN401  # YAML holds anything
    """Return *data* without the position-carrying types, which strict validation refuses."""
    if isinstance(data, dict):
        return {_plain(key): _plain(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(item) for item in data]
    if isinstance(data, bool):
        return bool(data)
    for plain in (str, int, float):
        if isinstance(data, plain):
            return plain(data)
    return data


def _explain(error: Any) -> str:  # noqa: ANN401  # pydantic's ErrorDetails, a TypedDict
    where = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {error['loc'][-1]!r}"
        case "missing":
            return f"the key {error['loc'][-1]!r} is missing"
        case "string_pattern_mismatch":
            return f"{where}: {error['input']!r} is not a name: letters, digits and _"
        case _:
            return f"{where}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _hint(error: Any) -> str | None:  # noqa: ANN401  # pydantic's ErrorDetails, a TypedDict
    if error["type"] != "extra_forbidden":
        return None
    model = CatalogFile if len(error["loc"]) == 1 else PatternEntry
    return did_you_mean(str(error["loc"][-1]), model.model_fields)
