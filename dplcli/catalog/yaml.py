"""YAML files whose parts have positions, and messages that point at them."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

from dplcli.catalog import quick_yaml
from dplcli.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pydantic import ValidationError

    Position: TypeAlias = tuple[int, int]

    KeyPath = Sequence[str | int]

    Where: TypeAlias = tuple[str | int, ...]


# Finding a character of a scalar's text in the file.
#
# YAML folds lines, drops indentation and resolves escapes. So the text and the file are read in
# step.


_BLANKS = frozenset(" \t\n\r")
_BLANK_ESCAPES = frozenset("nrt LNP_ev0abf")
_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}


def place_in_scalar(lines: Sequence[str], start: Position, text: str, place: Position) -> Position:
    """Return the 0-based line and column in the file of a position in a scalar's text.

    Args:
        lines: The file's lines.
        start: 0-based line and column of the scalar's value, at its anchor or tag if it has one.
        text: The scalar's text.
        place: 1-based line and 0-based column in *text*.
    """
    source = "\n".join(lines)
    origin = sum(len(line) + 1 for line in lines[: start[0]]) + start[1]
    wanted = _offset(text, place)
    begin, style = _begin(source, origin)
    found = _Aligner(source, begin, style).find(text, wanted)
    line = source.count("\n", 0, found)
    return line, found - (source.rfind("\n", 0, found) + 1)


def _offset(text: str, place: Position) -> int:
    lines = text.split("\n")
    line = min(place[0] - 1, len(lines) - 1)
    return sum(len(item) + 1 for item in lines[:line]) + min(place[1], len(lines[line]))


def _begin(source: str, origin: int) -> tuple[int, str]:
    """Skip anchor, tag and block header; return where the text begins, and its style."""
    at = origin
    while source[at : at + 1] in {"&", "!"}:
        while at < len(source) and source[at] not in _BLANKS:
            at += 1
        while at < len(source) and source[at] in _BLANKS:
            at += 1
    style = source[at : at + 1]
    if style in {"|", ">"}:
        end = source.find("\n", at)
        return (len(source) if end < 0 else end + 1), style
    return (at + 1, style) if style in {"'", '"'} else (at, "")


@dataclass
class _Aligner:
    """Walks through the file in step with the text."""

    source: str
    at: int
    style: str

    def find(self, text: str, wanted: int) -> int:
        """Return where in the file character *wanted* of *text* stands."""
        for index, letter in enumerate(text):
            if letter not in _BLANKS:
                self._skip_blanks()
            if index == wanted:
                return self.at
            self._pass(letter)
        return self.at

    def _skip_blanks(self) -> None:
        while self.at < len(self.source):
            if self.source[self.at] in _BLANKS:
                self.at += 1
            elif self._at_escape() and self._escaped() in _BLANK_ESCAPES | _BLANKS:
                self.at += 2
            else:
                return

    def _pass(self, letter: str) -> None:
        if letter in _BLANKS:
            if self._at_escape():
                self.at += 2
            elif self.source[self.at : self.at + 1] in _BLANKS:
                self.at += 1
        elif self._at_escape():
            self.at += _ESCAPE_LENGTHS.get(self._escaped(), 2)
        elif self.style == "'" and self.source.startswith("''", self.at):
            self.at += 2
        else:
            self.at += 1

    def _at_escape(self) -> bool:
        return self.style == '"' and self.source.startswith("\\", self.at)

    def _escaped(self) -> str:
        return self.source[self.at + 1 : self.at + 2]


# A YAML file whose parts have positions, and messages that point at them.


_LONGEST = 10_000_000
_LONGEST_UNUSUAL = 2_000_000
"""Characters of a file: either parser takes some seconds for so many."""

_MOST_ITEMS = 100_000
_SHOWN = 160
_MOST_KEPT = 32
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_STRING_TAG = ":str"
_TAGS: dict[type, frozenset[str]] = {
    ScalarEvent: quick_yaml.SCALARS,
    SequenceStartEvent: frozenset({"seq"}),
    MappingStartEvent: frozenset({"map"}),
}
"""The tags that change nothing, by the kind of item."""


class YamlSource:
    """A YAML file, read.

    Args:
        path: The file.
        kind: What the file should be, for messages.
        first_line: How such a file begins.
        text: The text of the file; None to read it.

    Raises:
        CatalogError: It cannot be read, or is not YAML with a mapping at the top.
    """

    def __init__(
        self,
        path: Path,
        kind: str = "catalogue",
        first_line: str = "dpl: 1",
        text: str | None = None,
    ) -> None:
        self.label = path.name
        self.folder = path.parent
        self.text = read_utf8(path, _LONGEST) if text is None else text
        self.lines = _LINE_ENDS.split(self.text)
        if not self.lines[-1]:
            self.lines.pop()
        self.data = self._parsed()
        if not isinstance(self.data, dict):
            hint = f"it starts with a line: {first_line}"
            raise CatalogError(f"{self.label}: is not a {kind}", hint=hint)

    def _parsed(self) -> object:
        try:
            self._refuse_tags()
            return _parse(self.text)
        except MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line, mark.column) if mark else (0, 0)
            problem = error.problem or "malformed"
            raise self.error_at(f"not valid YAML: {problem}", line, column) from error
        except CatalogError:
            raise
        except RecursionError as error:
            raise CatalogError(f"{self.label}: lists and mappings nest too deeply") from error
        except quick_yaml.UnusualTextError as error:
            raise CatalogError(
                f"{self.label}: {len(self.text):,} characters are too many for a file that has "
                "tags, merges or very long lines",
                hint="write long texts on several lines, or divide the file",
            ) from error
        except Exception as error:  # the library does not foresee every text
            reason = " ".join(str(error).split())
            raise CatalogError(f"{self.label}: not valid YAML: {reason}") from error

    def _refuse_tags(self) -> None:
        """Refuse tags for anything but text, numbers, lists and mappings.

        Raises:
            CatalogError: There is such a tag.
        """
        if quick_yaml.MAY_HAVE_TAGS.search(self.text) is None:
            return
        _check_extent(self.text)
        for event in YAML(typ="rt").parse(self.text):
            tag = getattr(event, "tag", None)
            kind = next((kind for kind in _TAGS if isinstance(event, kind)), None)
            if tag is None or kind is None or str(tag).removeprefix(quick_yaml.CORE) in _TAGS[kind]:
                continue
            mark = event.start_mark
            shown = str(tag).replace(quick_yaml.CORE, "!!")
            raise self.error_at(
                f"the tag {shown} means nothing here",
                mark.line,
                mark.column,
                "leave it out: what is written here is text, numbers, lists and mappings",
            )

    def plain(self) -> Any:  # noqa: ANN401  # YAML holds anything
        """Return the data in Python's own types.

        Raises:
            CatalogError: Aliases make it endless, or nearly endless.
        """
        return _Plain(self.label, max(_MOST_ITEMS, len(self.text))).of(self.data)

    def line(self, where: KeyPath) -> int:
        """Return the 1-based line at which the item at *where* stands."""
        return self.position(where)[0] + 1

    def error(self, message: str, where: KeyPath, hint: str | None = None) -> CatalogError:
        """Point at the item at *where*."""
        return self.error_at(message, *self.position(where), hint)

    def position_in_text(self, of_line: int, of_column: int, where: KeyPath) -> tuple[int, int]:
        """Return the 0-based line and column of a position inside a scalar of this file.

        Args:
            of_line: 1-based line inside the scalar.
            of_column: 0-based column in that line.
            where: The scalar.
        """
        line, column = self.position(where, value=True)
        data: Any = self.data
        for key in self._written(where):
            data = data[key]
        text = getattr(data, "value", data)  # a tagged scalar holds its value
        return place_in_scalar(self.lines, (line, column), str(text), (of_line, of_column))

    def position(self, where: KeyPath, *, value: bool = False) -> tuple[int, int]:
        """Return the 0-based line and column of the item at *where*.

        If there is no such item, return the position of the nearest item around it.
        """
        data: Any = self.data
        line, column = 0, 0
        where = self._written(where)
        for depth, key in enumerate(where):
            if not _holds(data, key):
                break
            line, column = _mark(data, key, value=value and depth == len(where) - 1)
            data = data[key]
        return line, column

    def _written(self, where: KeyPath) -> KeyPath:
        """Return *where*, without the number of an item that is written alone, not in a list."""
        data: Any = self.data
        for depth, key in enumerate(where):
            if depth == len(where) - 1 and isinstance(key, int) and isinstance(data, str):
                return where[:depth]
            if not _holds(data, key):
                break
            data = data[key]
        return where

    def error_at(
        self, message: str, line: int, column: int, hint: str | None = None
    ) -> CatalogError:
        """Point at a 0-based line and column."""
        if line >= len(self.lines) > 0:
            line = len(self.lines) - 1
            column = len(self.lines[line])
        place = f"{self.label}:{line + 1}:{column + 1}"
        excerpt = ""
        if line < len(self.lines):
            start = max(column - _SHOWN // 2, 0)
            shown = self.lines[line][start : start + _SHOWN]
            excerpt = f"\n    {shown}\n    {' ' * min(column - start, len(shown))}^"
        return CatalogError(f"{place}: {message}{excerpt}", hint=hint)


_DEEPEST = 1000


def _check_extent(text: str) -> None:
    """Refuse what the slower parser would not come to an end with.

    Raises:
        UnusualTextError: The text is too long.
        RecursionError: Lists in brackets nest so deeply that it only takes time to give up.
    """
    if len(text) > _LONGEST_UNUSUAL:
        raise quick_yaml.UnusualTextError
    depth = 0
    for bracket in re.findall(r"[\[{}\]]", text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        if depth > _DEEPEST:
            raise RecursionError


def read_utf8(path: Path, most: int = -1) -> str:
    """Return the text in a file.

    Args:
        path: The file.
        most: How many characters it may have; -1 for any number.

    Raises:
        CatalogError: It cannot be read, is no UTF-8 text, or is too long.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(most + 1 if most >= 0 else -1)
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: is not UTF-8 text") from error
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > most >= 0:
        raise CatalogError(
            f"{path}: has more than {most:,} characters",
            hint="divide it: --patterns takes several files",
        )
    return text


@lru_cache(maxsize=_MOST_KEPT)
def _parse(text: str) -> object:
    """Read YAML with the positions of its parts.

    Parsing is slow, and a run reads a catalogue more than once: to find its target, and for each
    trial of a bisection. The result must not be edited.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an anchor defined twice is no fault
        try:
            return quick_yaml.read(text)
        except (quick_yaml.UnusualTextError, YAMLError):
            _check_extent(text)
            return YAML(typ="rt").load(text)


def _holds(data: Any, key: str | int) -> bool:  # noqa: ANN401  # YAML holds anything
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


def _mark(data: Any, key: str | int, *, value: bool) -> tuple[int, int]:  # noqa: ANN401  # YAML
    """Return the 0-based line and column of an item, as the parser noted them."""
    position = data.lc
    try:
        if not isinstance(data, dict):
            line, column = position.item(key)
        else:
            line, column = position.value(key) if value else position.key(key)
    except (KeyError, TypeError):  # it came with a merge, or the reader noted nothing
        line, column = position.line or 0, position.col or 0
    return line, column


@dataclass
class _Plain:
    """Copies data to plain types: strict validation refuses the types that carry positions."""

    label: str
    most: int
    items: int = 0
    open: set[int] = field(default_factory=set)

    def of(self, data: Any) -> Any:  # noqa: ANN401  # YAML holds anything
        self.items += 1
        if self.items > self.most or id(data) in self.open:
            raise CatalogError(f"{self.label}: aliases repeat without end")
        if isinstance(data, (dict, list)):
            self.open.add(id(data))
            if isinstance(data, dict):
                copy: Any = {self.of(key): self.of(item) for key, item in data.items()}
            else:
                copy = [self.of(item) for item in data]
            self.open.discard(id(data))
            return copy
        if isinstance(data, TaggedScalar) and str(data.tag).endswith(_STRING_TAG):
            return str(data.value)
        kinds = (bool, str, int, float)  # a bool is an int, too
        return next((kind(data) for kind in kinds if isinstance(data, kind)), data)


# The objections of pydantic, as messages that point into the file.


class SourceMap(Protocol):
    """Knows where the items of some data are written."""

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where*."""


def explain_invalid(
    source: SourceMap, error: ValidationError, keys_at: Callable[[Where], Iterable[str]]
) -> CatalogError:
    """Turn the objections of pydantic into messages that point into the file.

    Args:
        source: The file, or a part of it.
        error: The objections of pydantic.
        keys_at: Returns the keys that may stand where an unknown one stands.
    """
    problems: list[Any] = list(error.errors())
    misspelt = {each["loc"][:-1] for each in problems if each["type"] == "extra_forbidden"}
    kept = [p for p in problems if p["type"] != "missing" or p["loc"][:-1] not in misspelt]
    kept.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    return CatalogError.of(_explained(source, problem, keys_at) for problem in kept)


def _explained(
    source: SourceMap,
    problem: Any,  # noqa: ANN401  # a dictionary of pydantic's
    keys_at: Callable[[Where], Iterable[str]],
) -> CatalogError:
    where = tuple(problem["loc"])
    hint = None
    match problem["type"]:
        case "extra_forbidden":
            message = f"unknown key {where[-1]!r}"
            hint = did_you_mean(str(where[-1]), keys_at(where))
        case "missing":
            message = f"the key {where[-1]!r} is missing"
        case "string_pattern_mismatch":
            message = f"{where[-1]}: {problem['input']!r} is not a name: letters, digits and _"
        case _:
            text = problem["msg"].removeprefix("Value error, ")
            message = f"{'.'.join(map(str, where))}: {text[:1].lower()}{text[1:]}"
    return source.error(message, where, hint)
