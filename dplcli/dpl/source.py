"""A YAML file with the places of its parts, and messages that point into it."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

from dplcli.dpl.scalar_places import place_in_scalar
from dplcli.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Where = Sequence[str | int]

_MOST_ITEMS = 100_000
_SHOWN = 160
_MOST_KEPT = 32
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_STRING_TAG = ":str"
_CORE = "tag:yaml.org,2002:"
_MAY_HAVE_TAGS = re.compile(r"(?:^|[\s\[{,:?-])!(?!=\s)", re.MULTILINE)
_TAGS: dict[type, frozenset[str]] = {
    ScalarEvent: frozenset({"str", "int", "float", "bool", "null"}),
    SequenceStartEvent: frozenset({"seq"}),
    MappingStartEvent: frozenset({"map"}),
}
"""Which tags change nothing, by what they stand at."""


class Source:
    """A YAML file, read.

    Args:
        path: The file.
        kind: What it should be.
        first_line: How such a file begins.
        text: What is in it, if that is at hand.

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
        """Read and parse the file."""
        self.label = path.name
        self.folder = path.parent
        self.text = read_utf8(path) if text is None else text
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
        except Exception as error:  # the library does not foresee every text
            reason = " ".join(str(error).split())
            raise CatalogError(f"{self.label}: not valid YAML: {reason}") from error

    def _refuse_tags(self) -> None:
        """Refuse tags that ask for more than text, numbers, lists and mappings.

        Raises:
            CatalogError: There is one; points at it.
        """
        if _MAY_HAVE_TAGS.search(self.text) is None:
            return
        for event in YAML(typ="rt").parse(self.text):
            tag = getattr(event, "tag", None)
            kind = next((kind for kind in _TAGS if isinstance(event, kind)), None)
            if tag is None or kind is None or str(tag).removeprefix(_CORE) in _TAGS[kind]:
                continue
            mark = event.start_mark
            shown = str(tag).replace(_CORE, "!!")
            raise self.error_at(
                f"the tag {shown} means nothing here",
                mark.line,
                mark.column,
                "leave it out: what is written here is text, numbers, lists and mappings",
            )

    def plain(self) -> Any:  # noqa: ANN401  # YAML holds anything
        """Return the data in Python's own types.

        Raises:
            CatalogError: Aliases make it endless, or as good as endless.
        """
        return _Plain(self.label, max(_MOST_ITEMS, len(self.text))).of(self.data)

    def line(self, where: Where) -> int:
        """Return the 1-based line at which the item at *where* stands."""
        return self.position(where)[0] + 1

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where*."""
        return self.error_at(message, *self.position(where), hint)

    def position_in_text(self, of_line: int, of_column: int, where: Where) -> tuple[int, int]:
        """Return the 0-based line and column of a place inside a scalar of this file.

        Args:
            of_line: 1-based line inside the scalar.
            of_column: 0-based column in that line.
            where: The scalar.
        """
        line, column = self.position(where, value=True)
        data: Any = self.data
        for key in where:
            data = data[key]
        text = getattr(data, "value", data)  # a tagged scalar holds its value
        return place_in_scalar(self.lines, (line, column), str(text), (of_line, of_column))

    def position(self, where: Where, *, value: bool = False) -> tuple[int, int]:
        """Return the 0-based line and column of the item at *where*.

        If it does not exist, of the nearest thing round it that does.
        """
        data: Any = self.data
        line, column = 0, 0
        for depth, key in enumerate(where):
            if not _holds(data, key):
                break
            line, column = _mark(data, key, value=value and depth == len(where) - 1)
            data = data[key]
        return line, column

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


def read_utf8(path: Path) -> str:
    """Return the text in a file.

    Raises:
        CatalogError: It cannot be read, or is no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: is not UTF-8 text") from error
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=_MOST_KEPT)
def _parse(text: str) -> object:
    """Read YAML with the places of its parts.

    It takes long, and a run reads a catalogue more than once: to look for its target, say, and
    again for each trial of a bisection. Nobody may edit the result.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an anchor defined twice is no fault
        return YAML(typ="rt").load(text)


def _holds(data: Any, key: str | int) -> bool:  # noqa: ANN401  # YAML holds anything
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


def _mark(data: Any, key: str | int, *, value: bool) -> tuple[int, int]:  # noqa: ANN401  # YAML
    """Return the 0-based line and column of an item, as the YAML reader noted them."""
    position = data.lc
    try:
        if not isinstance(data, dict):
            line, column = position.item(key)
        else:
            line, column = position.value(key) if value else position.key(key)
    except (KeyError, TypeError):  # it came with a merge, or the reader noted nothing
        line, column = position.line or 0, position.col or 0
    return line, column


class _Plain:
    """Copies data out of the types that carry positions, which strict validation refuses."""

    def __init__(self, label: str, most: int) -> None:
        self.label = label
        self.most = most
        self.items = 0
        self.open: set[int] = set()

    def of(self, data: Any) -> Any:  # noqa: ANN401  # YAML holds anything
        self.items += 1
        if self.items > self.most or id(data) in self.open:
            raise CatalogError(f"{self.label}: aliases repeat without end")
        if isinstance(data, (dict, list)):
            self.open.add(id(data))
            copy = self._copy(data)
            self.open.discard(id(data))
            return copy
        if isinstance(data, bool):
            return bool(data)
        if isinstance(data, TaggedScalar) and str(data.tag).endswith(_STRING_TAG):
            return str(data.value)
        return next((kind(data) for kind in (str, int, float) if isinstance(data, kind)), data)

    def _copy(self, data: Any) -> Any:  # noqa: ANN401  # YAML holds anything
        if isinstance(data, dict):
            return {self.of(key): self.of(item) for key, item in data.items()}
        return [self.of(item) for item in data]
