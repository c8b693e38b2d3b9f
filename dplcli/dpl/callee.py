"""What a node pattern calls: operators by name or class, and model-local functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir.op_kinds import OP_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.dpl.pattern import DFPattern

STANDARD_DOMAIN = ""


@dataclass(frozen=True)
class OpName:
    """An operator of one domain ("" is the standard one)."""

    op_type: str
    domain: str = STANDARD_DOMAIN

    def spelled(self) -> str:
        """``Conv`` or ``com.microsoft.Gelu``."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class OpKind:
    """Every standard operator of a class (TVM's ``TOpPattern``); "" is any operator at all."""

    kind: str = ""

    def __post_init__(self) -> None:
        """Refuse a class that does not exist.

        Raises:
            ValueError: Names those that do.
        """
        if self.kind and self.kind not in OP_KINDS:
            raise ValueError(
                f"no class of operators {self.kind!r}; there are: {', '.join(OP_KINDS)}"
            )

    def spelled(self) -> str:
        """``op(kind="elementwise")``."""
        return f'op(kind="{self.kind}")' if self.kind else "op()"


@dataclass(frozen=True)
class FunctionName:
    """A model-local function by its name, perhaps ``domain::name``; "" is any function."""

    name: str = ""

    def accepts(self, domain: str, name: str) -> bool:
        """Tell whether a function is meant."""
        return self.name in {"", name, f"{domain}::{name}"}

    def spelled(self) -> str:
        """``call("local::f")``."""
        return f"call({json.dumps(self.name)})"


@dataclass(frozen=True, eq=False)
class FunctionPattern:
    """A model-local function by what it computes (TVM's ``FunctionPattern``).

    Attributes:
        params: One pattern per formal input, or None for any number of any inputs. They are not
            linked to the arguments of the call.
        results: One pattern per output that matters, from the first.
        metadata: What the function's metadata must say.
    """

    params: tuple[DFPattern, ...] | None
    results: tuple[DFPattern, ...]
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns it is made of."""
        return (*(self.params or ()), *self.results)

    def spelled_with(self, spell: Callable[[DFPattern], str]) -> str:
        """``function([a, b], body)``."""
        params = "..." if self.params is None else f"[{', '.join(map(spell, self.params))}]"
        results = ", ".join(map(spell, self.results))
        shown = results if len(self.results) == 1 else f"({results})"
        wanted = f", metadata={json.dumps(dict(self.metadata))}" if self.metadata else ""
        return f"function({params}, {shown}{wanted})"


Callee: TypeAlias = OpName | OpKind | FunctionName | FunctionPattern
