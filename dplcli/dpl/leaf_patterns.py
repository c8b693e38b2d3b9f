"""Patterns of values that nothing is said of but what they are: the leaves of a pattern."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.combinators import Combinators
from dplcli.dpl.written import Place, literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.dpl.pattern import DFPattern

    Spell: TypeAlias = Callable[[DFPattern], str]


@dataclass(frozen=True)
class ExactValue:
    """A tensor to compare bit by bit.

    Attributes:
        dtype: Name of the element type.
        shape: The dimensions.
        data: The elements' bytes in row-major order.
        items: The elements as nested lists, for the text form.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    items: object = field(compare=False, hash=False)


@dataclass(frozen=True, eq=False, repr=False)
class WildcardPattern(Combinators):
    """Any present value; named, the same value wherever the name stands."""

    name: str = ""
    place: Place | None = None

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``x`` or ``_``."""
        return self.name or "_"


@dataclass(frozen=True, eq=False, repr=False)
class AbsentPattern(Combinators):
    """An optional input that is omitted."""

    place: Place | None = None
    name: str = field(default="", init=False)

    @property
    def is_shareable(self) -> bool:
        """Nothing is the same as nothing."""
        return False

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``None``."""
        return "None"


@dataclass(frozen=True, eq=False, repr=False)
class ConstantPattern(Combinators):
    """A constant; perhaps of one element that equals *value* in its own dtype, or of exact data."""

    name: str = ""
    value: float | None = None
    exact: ExactValue | None = None
    place: Place | None = None

    @property
    def own_line(self) -> str:
        """A constant of a given value is named by assignment."""
        return "" if self.value is None and self.exact is None else self.name

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``const(w)``, ``2.0`` or ``is_value([1, 2], dtype="int64")``."""
        if self.exact is not None:
            items = literal(self.exact.items)
            shape = f", shape={list(self.exact.shape)}" if 0 in self.exact.shape else ""
            return f'is_value({items}, dtype="{self.exact.dtype}"{shape})'
        if self.value is not None:
            return literal(self.value)
        return f"const({self.name})"


@dataclass(frozen=True, eq=False, repr=False)
class InputPattern(Combinators):
    """A graph or function input that carries no data; with *source*, the one of that name."""

    source: str = ""
    name: str = ""
    place: Place | None = None

    @property
    def own_line(self) -> str:
        """An input is named after itself, or by assignment."""
        return "" if self.name == self.source else self.name

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``input("x")``."""
        return f"input({json.dumps(self.source) if self.source else ''})"
