"""YAML files whose parts have positions, and messages that point at them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.tag import Tag

from dplcli.errors import CatalogError, did_you_mean, opt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pydantic import ValidationError
    from ruamel.yaml.error import StringMark

    Position: TypeAlias = tuple[int, int]

    KeyPath = Sequence[str | int]

    Where: TypeAlias = tuple[str | int, ...]


# Finding a character of a scalar's text in the file.
#
# YAML folds lines, drops indentation and resolves escapes. So the text and the file are read in
# step.


_ESCAPED_BLANK = r"\\[nrtLNP_ev0abf \t\n]"
_BLANK = re.compile(r"[ \t\n\r]")
_BLANKS = {
    '"': re.compile(rf"(?:[ \t\n\r]|{_ESCAPED_BLANK})*"),
    "": re.compile(r"[ \t\n\r]*"),
}
_LETTERS = {
    '"': re.compile(r"\\x.{2}|\\u.{4}|\\U.{8}|\\?.", re.DOTALL),
    "'": re.compile(r"''|.", re.DOTALL),
    "": re.compile(r".", re.DOTALL),
}
"""How one letter is written, by the quotes around it."""

_BEFORE = re.compile(r"(?:[&!]\S*\s*)*(?:(['\"])|[|>].*(?:\n|\Z))?")
"""Anchor and tag, and how the text is written: in quotes, or below a header."""


def offset_in_scalar(source: str, begin: int, text: str, place: Position) -> int:
    """Return where in a file a position in a scalar's text is.

    Args:
        source: The file's text.
        begin: Where in it the scalar's value begins, at its anchor or tag if it has one.
        text: The scalar's text.
        place: 1-based line and 0-based column in *text*.
    """
    rows = text.split("\n")
    row = min(place[0] - 1, len(rows) - 1)
    wanted = sum(len(each) + 1 for each in rows[:row]) + min(place[1], len(rows[row]))
    before = _BEFORE.match(source, begin)
    assert before is not None  # noqa: S101  # it matches nothing, too
    at, quote = before.end(), before[1] or ""
    blanks = _BLANKS.get(quote, _BLANKS[""])
    for index, letter in enumerate(text):
        is_blank = _BLANK.match(letter) is not None
        if not is_blank:
            at = _end(blanks, source, at)
        if index == wanted:
            break
        is_escape = quote == '"' and source.startswith("\\", at)
        if not is_blank or is_escape or _BLANK.match(source, at):
            at = _end(_LETTERS[quote], source, at)
    return at


def _end(pattern: re.Pattern[str], source: str, at: int) -> int:
    """Return where what *pattern* says ends that stands at *at*, if it stands there."""
    text = pattern.match(source, at)
    return at if text is None else text.end()


# The data of a text, and where its parts stand.
#
# libyaml, which is written in C, tells of one item after the other, and where each begins. It takes
# some characters for ends of lines that are none in YAML 1.2, and refuses half a surrogate pair, as
# names of files may have one; it is given others in their place.


_CORE = "tag:yaml.org,2002:"
"""How the tags of YAML itself begin."""

_TAGS: dict[type, frozenset[str]] = {
    ScalarEvent: frozenset({"str", "int", "float", "bool", "null"}),
    SequenceStartEvent: frozenset({"seq"}),
    MappingStartEvent: frozenset({"map"}),
}
"""The tags that change nothing, by the kind of item."""

_NO_LINE_ENDS = {0x85: 0xF0085, 0x2028: 0xF2028, 0x2029: 0xF2029}
_SURROGATES = {0xF0000 + code: code for code in range(0xD800, 0xE000)}
_AS_WRITTEN = {other: letter for letter, other in _NO_LINE_ENDS.items()} | _SURROGATES
_SURROGATE = re.compile(r"\\U0000(?=[dD][89a-fA-F][0-9a-fA-F]{2})")
_NO_SURROGATE = re.compile(r"\\U000F(?=[dD][89a-fA-F][0-9a-fA-F]{2})")
"""An escape of one, as the file has it and as the parser is given it: both are as long."""
_DEEPEST = 100
_MOST_ITEMS = 100_000
_MOST_KEPT = 32
_NO_KEY: Any = object()


class _Merge(str):
    """The key ``<<``: what follows are mappings whose items are taken over."""

    __slots__ = ()


class _FaultError(Exception):
    """The text says what means nothing here: why, where, and what to do."""

    def __init__(self, message: str, mark: StringMark, hint: str | None = None) -> None:
        super().__init__(message)
        self.line, self.column = mark.line, mark.column
        self.hint = hint


class _Marks(NamedTuple):
    """Where a mapping or list begins, and each key and value in it; of a list: each item.

    All are 0-based lines and columns.
    """

    start: Position
    keys: dict[Any, Position]
    values: dict[Any, Position]


@dataclass
class _Open:
    """A mapping or list of which more may come.

    Attributes:
        data: What has come.
        mark: Where it begins.
        marks: Where its parts stand.
        anchor: What aliases call it; None if there are none.
        size: How many items it has, those of its parts included, as often as aliases repeat them.
        key: The key whose value comes next, if it has come.
        merged: The mappings whose items it takes over.
    """

    data: Any
    mark: StringMark
    marks: _Marks
    anchor: str | None
    size: int = 1
    key: Any = _NO_KEY
    merged: list[Any] = field(default_factory=list)

    def add(self, item: Any, mark: StringMark, size: int) -> None:  # noqa: ANN401  # YAML
        """Add an item, or a key."""
        self.size += size
        place = mark.line, mark.column
        if isinstance(self.data, list):
            self.marks.keys[len(self.data)] = self.marks.values[len(self.data)] = place
            self.data.append(item)
        elif self.key is _NO_KEY:
            if isinstance(item, (list, dict)):
                raise _FaultError("not valid YAML: a key is a text or a number", mark)
            if item in self.data:
                raise _FaultError(f"not valid YAML: found duplicate key {item!r}", mark)
            self.key = item
            self.marks.keys[item] = place
        else:
            if isinstance(self.key, _Merge):
                self.merged += item if isinstance(item, list) else [item]
                if not all(isinstance(each, dict) for each in self.merged):
                    raise _FaultError("not valid YAML: only mappings can be merged", mark)
            else:
                self.data[self.key] = item
                self.marks.values[self.key] = place
            self.key = _NO_KEY


@lru_cache(maxsize=_MOST_KEPT)
def _parse(text: str) -> tuple[Any, Mapping[int, _Marks]]:
    """Read YAML: return the data, and by ``id`` where the parts of each mapping and list stand.

    A run reads a catalogue more than once: to find its target, and for each trial of a bisection.
    The result must not be edited.

    Raises:
        MarkedYAMLError: It is no YAML.
        _FaultError: It has what means nothing here.
    """
    parser = _Parser(max(_MOST_ITEMS, len(text)))
    given = _SURROGATE.sub(r"\\U000F", text.removeprefix("\ufeff").translate(_NO_LINE_ENDS))
    for event in parser.reader.parse(given):
        read = parser.readers.get(type(event))
        if read is not None:
            read(event)
    return (parser.pending[0].data[0] if parser.pending else None), parser.marks


class _Parser:
    """Makes data of one event after the other.

    Args:
        most: The most items that the data may have.

    Attributes:
        reader: Gives the events.
        readers: What is done with each kind of them.
        marks: By ``id`` where the parts of each mapping and list stand.
        anchors: What each alias stands for, where that begins, and how many items it has.
        pending: Mappings and lists that have no end yet, inside a list for the whole.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.reader = YAML(typ="safe")
        self.marks: dict[int, _Marks] = {}
        self.anchors: dict[str, tuple[Any, StringMark, int]] = {}
        self.pending: list[_Open] = []
        self.readers: dict[type, Callable[[Any], None]] = {
            DocumentStartEvent: self._document,
            AliasEvent: self._alias,
            ScalarEvent: self._scalar,
            MappingStartEvent: self._start,
            SequenceStartEvent: self._start,
            MappingEndEvent: self._end,
            SequenceEndEvent: self._end,
        }

    def _document(self, event: DocumentStartEvent) -> None:
        if self.pending or event.version not in {None, (1, 2)}:
            what = "a second document begins" if self.pending else "YAML 1.2 is expected"
            raise _FaultError(f"not valid YAML: {what}", event.start_mark)
        self.pending.append(_Open([], event.start_mark, _Marks((0, 0), {}, {}), None))

    def _alias(self, event: AliasEvent) -> None:
        if event.anchor not in self.anchors:
            what = f"not valid YAML: found undefined alias {event.anchor!r}"
            raise _FaultError(what, event.start_mark)
        item, mark, size = self.anchors[event.anchor]
        is_endless = any(item is each.data for each in self.pending)
        self._add(item, mark, self.most if is_endless else size)

    def _start(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        self._check_tag(event)
        data: Any = {} if type(event) is MappingStartEvent else []
        mark = event.start_mark
        marks = self.marks[id(data)] = _Marks((mark.line, mark.column), {}, {})
        self.pending.append(_Open(data, mark, marks, event.anchor))
        if len(self.pending) > _DEEPEST:
            raise _FaultError("lists and mappings nest too deeply", mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = data, mark, 1

    def _end(self, _event: object) -> None:
        done = self.pending.pop()
        for other in done.merged:
            done.data |= {key: item for key, item in other.items() if key not in done.data}
        if done.anchor is not None:
            self.anchors[done.anchor] = done.data, done.mark, done.size
        self._add(done.data, done.mark, done.size)

    def _scalar(self, event: ScalarEvent) -> None:
        self._check_tag(event)
        item: Any = event.value.translate(_AS_WRITTEN)
        if event.style != '"':  # what looks like an escape is none
            item = _NO_SURROGATE.sub(r"\\U0000", item)
        if event.implicit[0] or event.tag is not None:
            tag = event.tag or self.reader.resolver.resolve(ScalarNode, item, event.implicit)
            kind = str(tag).removeprefix(_CORE)
            if kind == "merge":
                item = _Merge(item)
            elif kind not in {"str", "value"}:
                node = ScalarNode(Tag(suffix=str(tag)), item, event.start_mark, event.end_mark)
                item = self.reader.constructor.construct_object(node)
        if event.anchor is not None:
            self.anchors[event.anchor] = item, event.start_mark, 1
        self._add(item, event.start_mark, 1)

    def _add(self, item: Any, mark: StringMark, size: int) -> None:  # noqa: ANN401  # YAML
        around = self.pending[-1]
        around.add(item, mark, size)
        if around.size > self.most:
            raise _FaultError("aliases repeat without end", mark)

    def _check_tag(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
        if event.tag is not None and str(event.tag).removeprefix(_CORE) not in _TAGS[type(event)]:
            shown = str(event.tag).replace(_CORE, "!!")
            hint = "leave it out: what is written here is text, numbers, lists and mappings"
            raise _FaultError(f"the tag {shown} means nothing here", event.start_mark, hint)


# A YAML file whose parts have positions, and messages that point at them.


_LONGEST = 10_000_000
"""Characters of a file: reading it takes some seconds."""

_SHOWN = 160
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


_ENTRY = re.compile(r"(?P<key>\s*(?:- )*(?:[\w-]+:\s+)?)(?P<text>.*?)\s*$")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def _items(text: str) -> list[str]:
    """Divide a list at the commas outside of brackets and quotes."""
    items, depth, quote = [""], 0, ""
    for letter in text:
        depth += 0 if quote else _BRACKETS.get(letter, 0)
        if letter == quote or (not quote and letter in "\"'"):
            quote = "" if quote else letter
        if letter == "," and not depth and not quote:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items]


def _quoted(item: str) -> str:
    """Put a text in quotes, unless it is."""
    is_quoted = re.fullmatch(r"\"[^\"]*\"|'[^']*'", item)
    return item if is_quoted else "'" + item.replace("'", "''") + "'"


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
        self.lines = _LINE_ENDS.split(self.text.removeprefix("\ufeff"))
        if not self.lines[-1]:
            self.lines.pop()
        self._source = "\n".join(self.lines)
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        try:
            data, self._marks = _parse(self.text)
        except _FaultError as error:
            raise self.error_at(str(error), error.line, error.column, error.hint) from error
        except MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line, mark.column) if mark else (0, 0)
            problem = f"not valid YAML: {error.problem or 'malformed'}"
            raise self.error_at(problem, line, column, self.quoting_hint(line)) from error
        except Exception as error:  # the library does not foresee every text
            reason = " ".join(str(error).split())
            raise CatalogError(f"{self.label}: not valid YAML: {reason}") from error
        if not isinstance(data, dict):
            hint = f"it starts with a line: {first_line}"
            raise CatalogError(f"{self.label}: is not a {kind}", hint=hint)
        self.data: dict[Any, Any] = data

    def quoting_hint(self, number: int) -> str | None:
        """Return how a line is to be quoted, if brackets, commas or signs in it mean YAML to YAML.

        Only what makes the file another one, and lets the line be read, is returned.

        Args:
            number: The 0-based line.
        """
        line = self.lines[number] if number < len(self.lines) else ""
        parts = _ENTRY.match(line)
        if parts is None or not parts["text"]:
            return None
        text = parts["text"]
        is_list = text.startswith("[") and text.endswith("]")
        for quoted in ([f"[{', '.join(map(_quoted, _items(text[1:-1])))}]"] if is_list else []) + [
            _quoted(text)
        ]:
            lines = [*self.lines[:number], f"{parts['key']}{quoted}", *self.lines[number + 1 :]]
            try:
                data = _parse("\n".join(lines))[0]
            except (_FaultError, MarkedYAMLError):
                continue
            if data != getattr(self, "data", None):
                return f"put it in quotes: {quoted}"
        return None

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
        begin = self._starts[line] + column
        at = offset_in_scalar(self._source, begin, str(data), (of_line, of_column))
        line = bisect_right(self._starts, at, hi=len(self.lines)) - 1
        return line, at - self._starts[line]

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
            marks = self._marks[id(data)]
            places = marks.values if value and depth == len(where) - 1 else marks.keys
            line, column = places.get(key, marks.start)  # what was merged stands elsewhere
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
            hint=f"divide it: {opt('patterns')} takes several files",
        )
    return text


def _holds(data: Any, key: str | int) -> bool:  # noqa: ANN401  # YAML holds anything
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


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
            if (where[0], where[-1]) == ("patterns", "replacement"):
                hint = "a rule that replaces stands under rewrites:, not under patterns:"
        case "missing":
            message = f"the key {where[-1]!r} is missing"
        case "string_pattern_mismatch":
            message = f"{where[-1]}: {problem['input']!r} is not a name: letters, digits and _"
        case _:
            text = problem["msg"].removeprefix("Value error, ")
            message = f"{'.'.join(map(str, where))}: {text[:1].lower()}{text[1:]}"
    return source.error(message, where, hint)
