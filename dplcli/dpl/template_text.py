"""Texts of a catalogue that ``${name}`` was replaced in, and where each letter was written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.source import Source
    from dplcli.errors import CatalogError

    Where: TypeAlias = tuple[str | int, ...]

REFERENCE = re.compile(r"\$\$\{|\$\{([^{}\n]*)(\}?)")
"""``${name}``, or ``$${`` which stands for ``${``."""

_TOKEN = re.compile(r"""("[^"\n]*"|'[^'\n]*')|(\#[^\n]*)|(\\\n)|(\n)|([(\[{])|([)\]}])|(\S)""")
_STRING, _COMMENT, _CONTINUED, _NEWLINE, _OPENING, _CLOSING, _OTHER = range(1, 8)


class Written(NamedTuple):
    """A scalar of a catalogue file.

    Attributes:
        text: What it says.
        source: The file.
        where: Its place in the file's data.
        is_key: Whether it is the key there, not the value.
    """

    text: str
    source: Source
    where: Where
    is_key: bool = False

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 0-based line and column, in the file, of a letter of the text."""
        if self.is_key:
            return self.source.position(self.where)
        line = self.text.count("\n", 0, offset)
        column = offset - (self.text.rfind("\n", 0, offset) + 1)
        return self.source.position_in_text(line + 1, column, self.where)

    def error(self, message: str, offset: int = 0, hint: str | None = None) -> CatalogError:
        """Point at a letter of the text."""
        return self.source.error_at(message, *self.position(offset), hint)

    def references(self, *, skip_comments: bool = False) -> Iterator[re.Match[str]]:
        """Yield each ``${name}`` and ``$${``, in order; perhaps not those in ``#`` comments."""
        comments = _comments(self.text) if skip_comments and "#" in self.text else []
        for found in REFERENCE.finditer(self.text):
            if not any(start <= found.start() < end for start, end in comments):
                yield found


class Piece(NamedTuple):
    """A part of a text, as it was written somewhere.

    Attributes:
        text: The part.
        written: The scalar it is from.
        offset: Where in that scalar it begins.
        is_verbatim: Whether it stands there letter for letter.
    """

    text: str
    written: Written
    offset: int = 0
    is_verbatim: bool = True


class Expanded(NamedTuple):
    """A text in which all references were replaced.

    Attributes:
        pieces: Its parts, in order.
        base: The scalar that it was made from.
    """

    pieces: Sequence[Piece]
    base: Written

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)

    def position(self, line: int, column: int) -> tuple[Source, int, int]:
        """Return file, 0-based line and column of a place: a 1-based line and a column."""
        lines = self.text.split("\n")
        line = min(line, len(lines))
        column = min(column, len(lines[line - 1]))
        return self._position(sum(len(item) + 1 for item in lines[: line - 1]) + column)

    def error(self, message: str, offset: int) -> CatalogError:
        """Point at where a letter of the text was written."""
        source, line, column = self._position(offset)
        return source.error_at(message, line, column)

    def _position(self, left: int) -> tuple[Source, int, int]:
        for piece in self.pieces:
            if left < len(piece.text):
                inside = left if piece.is_verbatim else 0
                return piece.written.source, *piece.written.position(piece.offset + inside)
            left -= len(piece.text)
        last = self.pieces[-1] if self.pieces else Piece("", self.base)
        end = last.offset + (len(last.text) if last.is_verbatim else 0)
        return last.written.source, *last.written.position(end)


def split(pieces: Sequence[Piece], offset: int) -> tuple[list[Piece], list[Piece]]:
    """Cut a text in two."""
    before: list[Piece] = []
    for number, piece in enumerate(pieces):
        if offset < len(piece.text):
            if not offset:
                return before, list(pieces[number:])
            inside = offset if piece.is_verbatim else 0
            left = piece._replace(text=piece.text[:offset])
            right = piece._replace(text=piece.text[offset:], offset=piece.offset + inside)
            return [*before, left], [right, *pieces[number + 1 :]]
        before.append(piece)
        offset -= len(piece.text)
    return before, []


def open_statement(text: str) -> int:
    """Return where the line begins that the end of a pattern's text belongs to, brackets closed."""
    start, depth = 0, 0
    for token in _TOKEN.finditer(text):
        depth += {_OPENING: 1, _CLOSING: -1}.get(token.lastindex or 0, 0)
        if token.lastindex == _NEWLINE and depth <= 0:
            start = token.end()
    return start


def last_statement(text: str) -> tuple[int, int]:
    """Return where the last statement of a pattern's text begins and ends; the same for none."""
    start, end, depth, is_open = 0, 0, 0, False
    for token in _TOKEN.finditer(text):
        kind = token.lastindex
        depth += {_OPENING: 1, _CLOSING: -1}.get(kind or 0, 0)
        if kind == _NEWLINE and depth <= 0:
            is_open = False
        elif kind not in {_COMMENT, _NEWLINE, _CONTINUED}:
            start = start if is_open else token.start()
            is_open, end = True, token.end()
    return start, end


def _comments(text: str) -> list[tuple[int, int]]:
    return [token.span() for token in _TOKEN.finditer(text) if token.lastindex == _COMMENT]
