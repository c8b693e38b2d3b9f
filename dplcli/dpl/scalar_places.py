"""Where a character of a YAML scalar's text stands in the file.

YAML folds lines, drops indentation and resolves escapes; so the text is laid beside the file and
both are read in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    Position: TypeAlias = tuple[int, int]

_BLANKS = frozenset(" \t\n\r")
_BLANK_ESCAPES = frozenset("nrt LNP_ev0abf")
_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}


def place_in_scalar(lines: Sequence[str], start: Position, text: str, place: Position) -> Position:
    """Return the 0-based line and column, in the file, of a place in a scalar's text.

    Args:
        lines: The file's lines.
        start: 0-based line and column of the scalar's value, anchors and tags included.
        text: What the scalar says.
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
    """Step over anchor, tag and the header of a block; return where the text begins, and how."""
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


class _Aligner:
    """Walks through the file beside the text."""

    def __init__(self, source: str, begin: int, style: str) -> None:
        self.source = source
        self.at = begin
        self.style = style

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
