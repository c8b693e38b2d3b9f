"""Lines and tables for a terminal. They hold plain text, and names are never broken."""

from __future__ import annotations

import math
import re
from io import StringIO
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as RichText

from dplcli.errors import shortened
from dplcli.escaping import inert, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.style import Style


_GAP = "  "
_BARS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_NARROW = 30
"""The least width of a column of sentences."""
_BELOW = "    "
_WORD = re.compile(r"\S+\s*")


class Text(RichText):
    """One line of text. Its characters are shown as they are: none of them is markup.

    Args:
        text: The text. Invisible characters and line ends are escaped, and names of any length
            lose their middle.
        style: How it looks on a terminal.
        whole: Whether the line is never broken, as for code.
    """

    def __init__(self, text: str = "", style: str | Style = "", *, whole: bool = False) -> None:
        super().__init__(shortened(one_line(text, None)), style, no_wrap=whole)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Text:
        """Add another text, or a plain one, which is escaped."""
        shown = shortened(one_line(text, None)) if isinstance(text, str) else text
        super().append(shown, style)
        return self


def joined(*parts: str | tuple[str, str]) -> Text:
    """Join texts to one line; a pair is a text and its style."""
    text = Text()
    for part in parts:
        text.append(*((part,) if isinstance(part, str) else part))
    return text


class Bars:
    """Numbers as characters of different heights. The scale is logarithmic, so that 1 can be seen.

    Args:
        counts: The numbers.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = counts

    def text(self, *, is_ascii: bool) -> str:
        """Return the bars; *is_ascii* is for terminals that show nothing else."""
        shapes = _ASCII if is_ascii else _BARS
        largest = math.log1p(max(self._counts, default=0)) or 1.0
        steps = len(shapes) - 1
        return "".join(shapes[math.ceil(math.log1p(n) / largest * steps)] for n in self._counts)


class Heading(Text):
    """The first line of a part of a report."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "bold")


class TextTable:
    """Rows under headings, in columns as wide as what they hold.

    Args:
        columns: The headings. If all are empty, the table has no line of headings.
        right: The columns that hold numbers.
        prose: The columns that hold sentences or lists. Only these are broken, at blanks.
        rows: The rows, with a cell for each column; :meth:`add_row` adds more.
        title: What it lists: the heading in files; a terminal shows none.
        ranks: A number for each row, the smallest for the worst, which files show first; none if
            rows keep their order.

    Attributes:
        is_right: For each column, whether it holds numbers.
        is_prose: For each column, whether it holds sentences or lists.
    """

    def __init__(
        self,
        *columns: str,
        right: Iterable[str] = (),
        prose: Iterable[str] = (),
        rows: Iterable[Sequence[Cell]] = (),
        title: str = "",
        ranks: Iterable[float] = (),
    ) -> None:
        self.title = title
        self.ranks = list(ranks)
        self.show_header = any(columns)
        self.rows = list(rows)
        self.columns = columns
        self.is_right = [column in set(right) for column in columns]
        self.is_prose = [column in set(prose) for column in columns]

    def add_row(self, *cells: Cell) -> None:
        """Add a row, with a cell for each column."""
        self.rows.append(cells)

    @property
    def looks(self) -> list[str]:
        """How files show each column: 'number', 'text', 'name' for the first other, or 'short'."""
        sides = zip(self.is_right, self.is_prose, strict=True)
        looks = ["number" if right else "text" if prose else "short" for right, prose in sides]
        if "short" in looks:
            looks[looks.index("short")] = "name"
        return looks

    def worst_first(self) -> list[Sequence[Cell]]:
        """Return the rows as files show them, which may leave out the last."""
        if not self.ranks:
            return self.rows
        return [self.rows[at] for at in sorted(range(len(self.rows)), key=self.ranks.__getitem__)]

    def lines(self, width: int | None, *, is_ascii: bool = False) -> Iterator[RichText]:
        """Yield the lines, at most *width* characters long; None stands for any length.

        If names leave too little room for sentences, long sentences go below their rows.
        """
        rows = [[_text_of(cell, is_ascii=is_ascii) for cell in row] for row in self.rows]
        if self.show_header:
            rows.insert(0, [Text(column, "bold") for column in self.columns])
        if not rows:
            return
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        below: list[list[Text]] = [[] for _ in rows]
        if width is not None and not self._narrow(widths, width):
            below = [self._take_long(row) for row in rows]
            widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        for row, sentences in zip(rows, below, strict=True):
            yield from self._lines_of_row(row, widths)
            for line in sentences:
                yield from _broken(line, width or 0)

    def _take_long(self, row: list[RichText]) -> list[Text]:
        """Remove the sentences that are longer than a narrow column from a row, and return them."""
        taken = []
        for at, is_prose in enumerate(self.is_prose):
            if is_prose and row[at].cell_len > _NARROW:
                title = f"{self.columns[at]}: " if sum(self.is_prose) > 1 else ""
                taken.append(Text(f"{_BELOW}{title}").append(row[at]))
                row[at] = Text()
        return taken

    def _narrow(self, widths: list[int], room: int) -> bool:
        """Narrow the columns of sentences, the widest first; return whether the rows fit then."""
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
        while excess > 0:
            wide = [at for at, prose in enumerate(self.is_prose) if prose and widths[at] > _NARROW]
            if not wide:
                return not any(self.is_prose)
            widest = max(wide, key=widths.__getitem__)
            below = max((widths[at] for at in wide if widths[at] < widths[widest]), default=_NARROW)
            taken = min(excess, widths[widest] - below)
            widths[widest] -= taken
            excess -= taken
        return True

    def _lines_of_row(self, row: Sequence[RichText], widths: Sequence[int]) -> Iterator[RichText]:
        cells = [
            _broken(cell, width) if is_prose else [cell]
            for cell, width, is_prose in zip(row, widths, self.is_prose, strict=True)
        ]
        for pieces in zip_longest(*cells):
            line, start = Text(), 0
            for piece, width, is_right in zip(pieces, widths, self.is_right, strict=True):
                if piece is not None and piece.plain:
                    left = start + (max(width - piece.cell_len, 0) if is_right else 0)
                    least = len(_GAP) if line.plain else 0  # a name may be longer than its column
                    line.append(" " * max(left - line.cell_len, least)).append(piece)
                start += width + len(_GAP)
            yield line


class Group:
    """Parts of a report, one below the other."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts


Cell: TypeAlias = str | Text | Bars
Part: TypeAlias = Text | TextTable | Group


_MOODS = {"red": "no", "green": "yes", "yellow": "warn", "dim": "muted"}


def mood_of(cell: Cell) -> str:
    """Return what the colour of a text says: 'yes', 'no', 'warn' or 'muted'; "" for nothing."""
    words = str(cell.style).split() if isinstance(cell, Text) else ()
    return next((_MOODS[word] for word in words if word in _MOODS), "")


def plain_of(cell: Cell) -> str:
    """Return what a cell says, without its style."""
    return cell.text(is_ascii=False) if isinstance(cell, Bars) else str(cell)


def blocks_of(part: Part) -> Iterator[Text | TextTable]:
    """Yield the lines and tables of a report, one below the other.

    Raises:
        TypeError: A part of it is of no class of this module.
    """
    if isinstance(part, Group):
        for each in part.parts:
            yield from blocks_of(each)
    elif isinstance(part, (Text, TextTable)):
        yield part
    else:
        raise TypeError(f"{part!r} is no part of a report")


def kind_of(block: Text | TextTable) -> Literal["table", "heading", "code", "line"]:
    """Return how files show a line or a table; lines of code stay together."""
    if isinstance(block, TextTable):
        return "table"
    if isinstance(block, Heading):
        return "heading"
    return "code" if block.no_wrap else "line"


def lines_of(part: Part, width: int | None, *, is_ascii: bool = False) -> Iterator[RichText]:
    """Yield the lines of a report, at most *width* characters long; None stands for any length."""
    for each in blocks_of(part):
        if isinstance(each, TextTable):
            yield from map(_inert, each.lines(width, is_ascii=is_ascii))
        else:
            yield from map(_inert, [each] if width is None else _broken(each, width))


def plain_text(part: Part) -> str:
    """Return a report as lines of any length, without styles."""
    return "\n".join(line.plain for line in lines_of(part, None))


def html_text(part: Part) -> str:
    """Return a report as a terminal shows it, as preformatted HTML with its colours."""
    console = Console(file=StringIO(), record=True, markup=False, emoji=False, highlight=False)
    for line in lines_of(part, None):
        console.print(line, soft_wrap=True)
    frame = '<pre style="line-height:1.3;overflow-x:auto">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=frame)


def _inert(line: RichText) -> RichText:
    """Return a line that no program takes for a command; a changed line has no styles."""
    line.rstrip()
    text = inert(line.plain)
    return line if text == line.plain else RichText(text)


def _text_of(cell: Cell, *, is_ascii: bool) -> RichText:
    if isinstance(cell, str):
        return Text(cell)
    return cell if isinstance(cell, Text) else Text(cell.text(is_ascii=is_ascii), whole=True)


def _broken(text: RichText, width: int) -> list[RichText]:
    """Break a line at blanks, before the words that end beyond *width*; words stay whole.

    Each piece is indented like the line.
    """
    if text.no_wrap or text.cell_len <= width:
        return [text]
    indent = len(text.plain) - len(text.plain.lstrip())
    breaks, end = [], indent
    for word in _WORD.finditer(text.plain, indent):
        if end > indent and end + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            end = indent
        end += cell_len(word[0])
    first, *rest = text.divide(breaks)
    pieces = [first, *(Text(" " * indent).append(piece) for piece in rest)]
    for piece in pieces:
        piece.rstrip()
    return pieces
