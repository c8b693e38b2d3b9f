"""Catalogues: YAML files of rules, found by path or by the name they are shipped under."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dplcli.dpl.conditions import Condition
from dplcli.dpl.rule import RESERVED_METADATA, ConstantsPolicy, PatternRule
from dplcli.dpl.scoping import bound_names
from dplcli.dpl.source import Source
from dplcli.dpl.text import parse_pattern
from dplcli.errors import CatalogError, PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dplcli.ir import SchemaLibrary

_SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).parent.parent
SHIPPED_FOLDERS = (_PACKAGE / "patterns", _PACKAGE.parent / "patterns")
"""Where shipped catalogues lie: in an installed package, and in a source checkout."""


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004  # pydantic wants a ValueError
    return value


def _foreign(domain: str) -> str:
    if domain == "ai" or domain.startswith("ai.onnx"):
        raise ValueError("the standard's own domains cannot be a target")
    return domain


def _unreserved(metadata: object) -> object:
    taken = RESERVED_METADATA & set(metadata) if isinstance(metadata, dict) else set()
    if taken:
        raise ValueError(f"{min(taken)!r} is written by dpl itself")
    return metadata


_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Domain = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"),
    AfterValidator(_foreign),
]


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
    attrs: Annotated[dict[str, str], BeforeValidator(_unreserved)] = {}


class CatalogFile(_Strict):
    """A whole catalogue file, as written."""

    dpl: Annotated[Literal[1], BeforeValidator(_no_truth_value)]
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
    if not name:
        raise CatalogError("'': no such catalogue: the name is empty")
    path = Path(name)
    if _is(path.is_file):
        return path
    if _is(path.is_dir):
        raise CatalogError(f"{name}: is a directory, not a catalogue")
    folder = _shipped_folder()
    if folder is not None and path.parent == Path():
        shipped = folder / (name if path.suffix in _SUFFIXES else f"{name}.yaml")
        if _is(shipped.is_file):
            return shipped
    known = shipped_catalogs()
    hint = did_you_mean(path.stem, known)
    raise CatalogError(
        f"{name}: no such catalogue, neither a file nor shipped with dpl",
        hint=hint or f"shipped catalogues: {', '.join(known)}",
    )


def _is(question: Callable[[], bool]) -> bool:
    """Ask the file system; a name that it cannot hold is the name of nothing."""
    try:
        return question()
    except OSError:
        return False


def shipped_targets() -> list[str]:
    """Name the shipped catalogues that are complete for the target they are named after."""
    folder = _shipped_folder()
    if folder is None:
        return []
    named = ((name, Source(folder / f"{name}.yaml").plain()) for name in shipped_catalogs())
    return [name for name, data in named if data.get("target") == name]


def check_distinct(rules: Iterable[PatternRule]) -> None:
    """Refuse two rules of one name.

    Raises:
        CatalogError: Names them, and where they were written.
    """
    first: dict[str, PatternRule] = {}
    for rule in rules:
        other = first.setdefault(rule.qualified_name, rule)
        if other is not rule:
            places = " and ".join(item.origin or "in Python" for item in (other, rule))
            raise CatalogError(f"two rules are named {rule.qualified_name!r}: {places}")


def load_catalogs(
    names: Iterable[str], schemas: SchemaLibrary, *, files: set[Path] | None = None
) -> list[PatternRule]:
    """Read the rules of several catalogues, in the order given.

    Args:
        names: Paths, or names of shipped catalogues; one given twice counts once.
        schemas: The standard operators.
        files: Gets every file that was read, included ones too.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name.
    """
    reader = _Reader(schemas)
    for name in names:
        reader.read(find_catalog(name))
    if files is not None:
        files |= reader.seen
    return list(reader.rules.values())


def load_catalog(path: Path, schemas: SchemaLibrary) -> list[PatternRule]:
    """Read the rules of one catalogue file, after those of the files it includes.

    Raises:
        CatalogError: With file, line and column of what is wrong.
    """
    reader = _Reader(schemas)
    reader.read(path)
    return list(reader.rules.values())


class _Reader:
    """Reads catalogue files, each once, and gathers their rules in order."""

    def __init__(self, schemas: SchemaLibrary) -> None:
        self.schemas = schemas
        self.rules: dict[str, PatternRule] = {}
        self.seen: set[Path] = set()

    def read(self, path: Path) -> None:
        if path.resolve() in self.seen:
            return
        self.seen.add(path.resolve())
        source = Source(path)
        catalog = _validated(source)
        for index, name in enumerate(catalog.include):
            included = path.parent / name
            if not _is(included.is_file):
                raise source.error(f"there is no file {name!r} to include", ("include", index))
            self.read(included)
        for index, entry in enumerate(catalog.patterns):
            rule = self._rule(source, catalog, index, entry)
            other = self.rules.setdefault(rule.qualified_name, rule)
            if other is not rule:
                raise source.error(
                    f"the rule {rule.qualified_name!r} is defined already, at {other.origin}",
                    ("patterns", index, "name"),
                )

    def _rule(
        self, source: Source, catalog: CatalogFile, index: int, entry: PatternEntry
    ) -> PatternRule:
        at = ("patterns", index)
        try:
            pattern = parse_pattern(entry.pattern, self.schemas)
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


def _validated(source: Source) -> CatalogFile:
    try:
        return CatalogFile.model_validate(source.plain())
    except ValidationError as error:
        raise _explained(source, error) from error


def _explained(source: Source, error: ValidationError) -> CatalogError:
    """Turn the first thing that pydantic objects to into one message with a place."""
    problems: list[Any] = list(error.errors())
    misspelt = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problem = (misspelt or problems)[0]
    where = tuple(problem["loc"])
    hint = None
    match problem["type"]:
        case "extra_forbidden":
            message = f"unknown key {where[-1]!r}"
            model = CatalogFile if len(where) == 1 else PatternEntry
            hint = did_you_mean(str(where[-1]), model.model_fields)
        case "missing":
            message = f"the key {where[-1]!r} is missing"
        case "string_pattern_mismatch":
            message = f"{where[-1]}: {problem['input']!r} is not a name: letters, digits and _"
        case _:
            text = problem["msg"].removeprefix("Value error, ")
            message = f"{'.'.join(map(str, where))}: {text[:1].lower()}{text[1:]}"
    return source.error(message, where, hint)
