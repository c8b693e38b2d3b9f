"""Spell a pattern as text, its objects that are used twice on lines of their own.

The text reads back as an equal pattern, which is also what "equal" means for patterns. Where an
object has no name its line gets a label, which starts with an underscore and binds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DEEPEST = 24
"""Levels of nesting before a part moves to a line of its own."""


class Spellable(Protocol):
    """A part of a pattern."""

    @property
    def parts(self) -> Sequence[Spellable]:
        """The patterns it is directly made of, left to right, each as often as it occurs."""

    @property
    def own_line(self) -> str:
        """The left side of the assignment that names it (``conv``, ``y, mean``), or ""."""

    @property
    def is_shareable(self) -> bool:
        """Whether using one object twice differs from using two equal ones."""

    @property
    def folded(self) -> tuple[Spellable, Spellable] | None:
        """A part that can be left out of the text, and what of it is then mentioned once less."""

    def spelled(self, spell: Callable[[Spellable], str]) -> str:
        """Write it down, its parts by *spell*."""

    def spelled_folded(self, spell: Callable[[Spellable], str]) -> str:
        """Write it down without the part that :attr:`folded` names."""


def spell_pattern(root: Spellable) -> str:
    """Write the lines of *root*."""
    return _Speller(root).text()


def parts_first(root: Spellable) -> list[Spellable]:
    """List every object once, parts before wholes, left to right."""
    ordered: dict[int, Spellable] = {}
    pending: list[tuple[Spellable, bool]] = [(root, False)]
    while pending:
        current, expanded = pending.pop()
        if id(current) in ordered:
            continue
        if expanded:
            ordered[id(current)] = current
            continue
        pending.append((current, True))
        pending.extend((part, False) for part in reversed(current.parts))
    return list(ordered.values())


class _Speller:
    def __init__(self, root: Spellable) -> None:
        self.root = root
        self.order = parts_first(root)
        self.uses: dict[int, int] = {}
        for part in self.order:
            for child in part.parts:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
        self.left_out: set[int] = set()
        self.folding: set[int] = set()
        for part in self.order:
            self._fold(part)
        self.texts: dict[int, str] = {}
        self.depths: dict[int, int] = {}
        self.lines: list[str] = []
        self.labels = 0

    def text(self) -> str:
        for part in self.order:
            if id(part) not in self.left_out:
                self._write(part)
        return "\n".join([*self.lines, self.texts[id(self.root)]])

    def _fold(self, part: Spellable) -> None:
        if part.folded is None:
            return
        left_out, mentioned = part.folded
        if self.uses[id(left_out)] == 1 and not left_out.own_line:
            self.left_out.add(id(left_out))
            self.folding.add(id(part))
            self.uses[id(mentioned)] -= 1

    def _write(self, part: Spellable) -> None:
        write = part.spelled_folded if id(part) in self.folding else part.spelled
        text = write(lambda child: self.texts[id(child)])
        shown = [child for child in part.parts if id(child) not in self.left_out]
        depth = 1 + max((self.depths[id(child)] for child in shown), default=0)
        line = part.own_line
        shared = part.is_shareable and self.uses.get(id(part), 0) > 1
        if line.startswith("_,") or (not line and (shared or depth > _DEEPEST)):
            self.labels += 1
            line = f"_{self.labels}{line.removeprefix('_')}"
        if not line:
            self.texts[id(part)] = text
            self.depths[id(part)] = depth
            return
        if text != "_":
            self.lines.append(f"{line} = {text}")
        self.texts[id(part)], self.depths[id(part)] = line.partition(",")[0], 0
