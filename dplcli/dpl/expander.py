"""Replace ``${name}`` in the texts of one rule: by variables of its ``for_each``, by fragments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.template_text import Expanded, Piece, last_statement, open_statement, split
from dplcli.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.dpl.template_text import Written

_LONGEST = 100_000
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w, ]*=(?!=)")
_LITERAL = "write $${ for ${ itself"


class Fragment(NamedTuple):
    """A part of patterns that several rules share.

    Attributes:
        name: What ``${name}`` stands for it.
        pattern: Lines ``name = expression``, and an expression.
        where: Conditions of every rule that uses it.
    """

    name: str
    pattern: Written
    where: tuple[Written, ...] = ()


class Choice(NamedTuple):
    """A value of a variable.

    Attributes:
        value: The value.
        fields: What ``${variable.field}`` stands for.
    """

    value: Written
    fields: Mapping[str, Written]


class Expander:
    """Replaces references, for one combination of values.

    Args:
        choices: The value of each variable.
        fragments: The fragments that can be seen.
        used: The variables in use; more are added.
    """

    def __init__(
        self, choices: Mapping[str, Choice], fragments: Mapping[str, Fragment], used: set[str]
    ) -> None:
        """Start without any text."""
        self.choices = choices
        self.fragments = fragments
        self.used = used
        self.conditions: list[Written] = []
        self._inside: list[str] = []
        self._placed: set[str] = set()
        self._length = 0

    def text(self, written: Written) -> Expanded:
        """Replace the references in a text that is no pattern.

        Raises:
            CatalogError: A reference means nothing, or is to a fragment.
        """
        return Expanded(self._pieces(written, in_pattern=False), written)

    def pattern(self, written: Written) -> Expanded:
        """Replace the references in a pattern, fragments among them.

        A fragment's expression comes in brackets into the place of the reference, its other lines
        before that line, once for each rule; its conditions go to :attr:`conditions`.

        Raises:
            CatalogError: A reference means nothing.
        """
        return Expanded(self._pieces(written, in_pattern=True), written)

    def _pieces(
        self, written: Written, *, in_pattern: bool, before: Sequence[Piece] = ()
    ) -> list[Piece]:
        """Return the pieces of *before* and those of *written*."""
        pieces = list(before)
        at = 0
        for found in written.references(skip_comments=in_pattern):
            self._add(pieces, Piece(written.text[at : found.start()], written, at))
            at = found.end()
            if found[1] is None:
                self._add(pieces, Piece("${", written, found.start(), is_verbatim=False))
            else:
                pieces = self._replaced(pieces, written, found, in_pattern=in_pattern)
        self._add(pieces, Piece(written.text[at:], written, at))
        return pieces

    def _add(self, pieces: list[Piece], piece: Piece) -> None:
        if piece.text:
            self._grow(piece.written, len(piece.text))
            pieces.append(piece)

    def _grow(self, written: Written, length: int) -> None:
        self._length += length
        if self._length > _LONGEST:
            raise written.error(f"the rule is more than {_LONGEST:,} letters long, written out")

    def _replaced(
        self, before: list[Piece], written: Written, found: re.Match[str], *, in_pattern: bool
    ) -> list[Piece]:
        """Put what a reference stands for behind *before*."""
        name = found[1].strip()
        if not found[2] or not _NAME.fullmatch(name):
            message = f"{found[0]!r} is not a name in ${{…}}"
            raise written.error(message, found.start(), _LITERAL)
        if name in self._inside:
            raise written.error(f"{name!r} stands for itself", found.start())
        self._grow(written, 1)
        self._inside.append(name)
        if name in self.fragments:
            if not in_pattern:
                message = f"{name!r} is a fragment: it can stand in patterns only"
                raise written.error(message, found.start())
            pieces = self._fragment(before, self.fragments[name])
        else:
            value = self._value(name, written, found.start())
            pieces = self._pieces(value, in_pattern=in_pattern, before=before)
        self._inside.pop()
        return pieces

    def _value(self, name: str, written: Written, offset: int) -> Written:
        """Look a variable or one of its fields up."""
        variable, _, field = name.partition(".")
        choice = self.choices.get(variable)
        if choice is None:
            known = [*self.choices, *self.fragments]
            hint = did_you_mean(variable, known) or (_LITERAL if not known else None)
            message = f"there is no variable or fragment {variable!r}"
            raise written.error(message, offset, hint or f"there are: {', '.join(known)}")
        self.used.add(variable)
        if not field:
            return choice.value
        if field not in choice.fields:
            hint = did_you_mean(field, choice.fields)
            raise written.error(f"the variable {variable!r} has no {field!r}", offset, hint)
        return choice.fields[field]

    def _fragment(self, before: list[Piece], fragment: Fragment) -> list[Piece]:
        pieces = self._pieces(fragment.pattern, in_pattern=True)
        text = "".join(piece.text for piece in pieces)
        start, end = last_statement(text)
        if start == end:
            raise fragment.pattern.error(f"the fragment {fragment.name!r} is empty")
        if _ASSIGNMENT.match(text, start):
            message = f"the last line of the fragment {fragment.name!r} must be an expression"
            raise Expanded(pieces, fragment.pattern).error(message, start)
        rest, _ = split(pieces, end)
        lines, expression = split(rest, start)
        opening, closing = (
            Piece(bracket, fragment.pattern, is_verbatim=False) for bracket in ("(", ")")
        )
        if fragment.name not in self._placed:
            self._placed.add(fragment.name)
            self.conditions += [item for item in fragment.where if item not in self.conditions]
            before = _with_lines(before, lines)
        return [*before, opening, *expression, closing]


def _with_lines(before: Sequence[Piece], lines: Sequence[Piece]) -> list[Piece]:
    """Put whole *lines* before the line that *before* ends in."""
    if not lines:
        return list(before)
    text = "".join(piece.text for piece in before)
    done, begun = split(before, open_statement(text))
    is_whole = lines[-1].text.endswith("\n")
    end: Iterable[Piece] = () if is_whole else (lines[-1]._replace(text="\n", is_verbatim=False),)
    return [*done, *lines, *end, *begun]
